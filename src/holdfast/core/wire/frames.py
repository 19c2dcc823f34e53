"""Frames between nodes: a fixed header, the fields of a kind, the stream's name, and other parts.

Every frame of every kind carries the coordinator's epoch, the sender's incarnation and the
receiver's incarnation as the sender believes it, so that nothing of an earlier life has an effect.
A checksum covers all parts of a frame. Decoding never raises: bytes that are not a frame give
`CorruptFrame`. What a kind says is the matter of its codec (frame_codecs.py); a new kind is a new
row of the table there. See docs/formats.md.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import xxhash

from holdfast.core.model.ids import Incarnation, StreamId
from holdfast.core.wire.frame_codecs import BY_KIND, BY_MESSAGE, Content, FrameKind
from holdfast.core.wire.messages import NodeMessage

__all__ = ["MAGIC", "UP_BYTES_MAX", "VERSION", "CorruptFrame", "FrameKind", "decode", "encode"]

MAGIC: Final = 0x4648  # "HF", little endian
VERSION: Final = 8
# magic, version, kind, tuple type, flags, name length, epoch, sender, receiver
_HEADER: Final = struct.Struct("<HBBBBHIII")
_CHECKSUM: Final = struct.Struct("<Q")
MAX_NAME_BYTES: Final = 512
UP_BYTES_MAX: Final = 4_096
"""More than any part of what a receiver says to its producer."""


@dataclass(frozen=True, slots=True)
class CorruptFrame:
    """Bytes that are no frame, and why."""

    reason: str


def encode(
    message: NodeMessage, epoch: int, streams: Sequence[StreamId] = ()
) -> list[bytes | pa.Buffer]:
    """A message as the parts of a frame; what Arrow has serialized is not copied again.

    Args:
        message: The message.
        epoch: The present epoch of the coordinator.
        streams: For a delta, the node's output streams but sinks, in the order of its plan.
    """
    codec = BY_MESSAGE[type(message)]
    fields, tuple_type, flags, body = codec.encode(message, streams)
    name = message.stream.encode()
    ends = (message.sender, message.receiver)
    kind = (MAGIC, VERSION, codec.kind, tuple_type, flags, len(name))
    header = _HEADER.pack(*kind, epoch, *ends) + codec.fields.pack(*fields)
    return [header + _CHECKSUM.pack(_checksum(header + name, body)) + name, *body]


def _checksum(head: bytes, body: Sequence[object]) -> int:
    """XXH3-64 of header, fields and name, and of every other part behind its length."""
    digest = xxhash.xxh3_64(head)
    for part in body:
        view = memoryview(part)  # type: ignore[arg-type]
        digest.update(_CHECKSUM.pack(view.nbytes))
        digest.update(view)
    return digest.intdigest()


def decode(
    parts: Sequence[object], schemas: dict[StreamId, pa.Schema], epoch: int
) -> NodeMessage | CorruptFrame:
    """A frame's message, or why it is none.

    Args:
        parts: The parts as received, bytes-like.
        schemas: Per input and output stream the declared schema with the time column; batches of
            other streams, or that do not fit, are refused.
        epoch: The present epoch of the coordinator; frames of another are refused.
    """
    if not parts:
        return CorruptFrame("no parts")
    head = bytes(memoryview(parts[0]))  # type: ignore[arg-type]
    if len(head) < _HEADER.size:
        return CorruptFrame(f"header of {len(head)} bytes")
    magic, version, kind, tuple_type, flags, name_length, *address = _HEADER.unpack_from(head)
    if magic != MAGIC:
        return CorruptFrame(f"magic {magic:#x}")
    if version != VERSION:
        return CorruptFrame(f"frame of version {version}; this is version {VERSION}")
    codec = BY_KIND.get(kind)
    if codec is None:
        return CorruptFrame(f"kind {kind}")
    fields_end = _HEADER.size + codec.fields.size
    if name_length > MAX_NAME_BYTES or len(head) != fields_end + _CHECKSUM.size + name_length:
        return CorruptFrame("name of the wrong length")
    name = head[fields_end + _CHECKSUM.size :]
    (stated,) = _CHECKSUM.unpack_from(head, fields_end)
    if stated != _checksum(head[:fields_end] + name, parts[1:]):
        return CorruptFrame("checksum is wrong")
    sent_epoch, sender, receiver = address
    if sent_epoch != epoch:
        return CorruptFrame(f"epoch {sent_epoch}, now {epoch}")
    fields = codec.fields.unpack_from(head, _HEADER.size)
    try:
        ends = (StreamId(name.decode()), Incarnation(sender), Incarnation(receiver))
        return codec.decode(Content(*ends, fields, tuple_type, flags, parts[1:], schemas))
    except ValueError as error:
        return CorruptFrame(f"{codec.kind.name.lower()}: {error}")
