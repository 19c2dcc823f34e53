"""Frames between nodes: a fixed header, the stream's name, and for tuples one Arrow batch.

Every frame of every kind carries the coordinator's epoch, the sender's incarnation and the
receiver's incarnation as the sender believes it, so that nothing of an earlier life has an effect.
Decoding never raises: bytes that are not a frame give `CorruptFrame`. See docs/formats.md.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from holdfast.core.haunit.events import (
    AckReceived,
    BatchReceived,
    BoundaryReceived,
    SubscribeReceived,
)
from holdfast.core.model.ids import Incarnation, StreamId
from holdfast.core.model.tuples import TupleBatch, TupleType

MAGIC: Final = 0x4648  # "HF", little endian
VERSION: Final = 1
# magic, version, kind, tuple type, name length, epoch, sender, receiver, four 8-byte fields
_HEADER: Final = struct.Struct("<HBBBxHIII4q")
MAX_NAME_BYTES: Final = 512
MAX_ROWS: Final = 1 << 24


class FrameKind(enum.IntEnum):
    """What a frame says."""

    BATCH = 1
    BOUNDARY = 2
    SUBSCRIBE = 3
    ACK = 4


@dataclass(frozen=True, slots=True)
class CorruptFrame:
    """Bytes that are no frame, and why."""

    reason: str


@dataclass(frozen=True, slots=True)
class FrameAddress:
    """Who speaks to whom: the part of a header that all kinds share."""

    epoch: int
    sender: Incarnation
    receiver: Incarnation


NodeMessage = BatchReceived | BoundaryReceived | SubscribeReceived | AckReceived


def encode_batch(
    address: FrameAddress, stream: StreamId, batch: TupleBatch
) -> list[bytes | pa.Buffer]:
    """A batch as two parts: the header, and the Arrow message (not copied again)."""
    header = _header(
        FrameKind.BATCH,
        address,
        stream,
        (batch.first_id, batch.boundary_us, batch.created_us, batch.count),
        batch.tuple_type,
    )
    return [header, batch.batch.serialize()]


def encode_positions(
    kind: FrameKind, address: FrameAddress, stream: StreamId, positions: tuple[int, int, int]
) -> list[bytes]:
    """A boundary (sent_before, boundary_us, 0), subscription or ack (three positions)."""
    return [_header(kind, address, stream, (*positions, 0), 0)]


def _header(
    kind: FrameKind,
    address: FrameAddress,
    stream: StreamId,
    fields: tuple[int, int, int, int],
    tuple_type: int,
) -> bytes:
    name = stream.encode()
    return (
        _HEADER.pack(
            MAGIC,
            VERSION,
            kind,
            tuple_type,
            len(name),
            address.epoch,
            address.sender,
            address.receiver,
            *fields,
        )
        + name
    )


def decode(
    parts: Sequence[object], schemas: dict[StreamId, pa.Schema], epoch: int
) -> NodeMessage | CorruptFrame:
    """A frame's message, or why it is none.

    Args:
        parts: The parts as received, bytes-like.
        schemas: Per input stream the declared schema with the time column; batches of other
            streams, or that do not fit, are refused.
        epoch: The present epoch of the coordinator; frames of another are refused.
    """
    if not parts:
        return CorruptFrame("no parts")
    head = bytes(memoryview(parts[0]))  # type: ignore[arg-type]
    if len(head) < _HEADER.size:
        return CorruptFrame(f"header of {len(head)} bytes")
    magic, version, kind, tuple_type, name_length, sent_epoch, sender, receiver, a, b, c, d = (
        _HEADER.unpack_from(head)
    )
    if magic != MAGIC or version != VERSION:
        return CorruptFrame(f"magic {magic:#x}, version {version}")
    if name_length > MAX_NAME_BYTES or len(head) != _HEADER.size + name_length:
        return CorruptFrame("name of the wrong length")
    if sent_epoch != epoch:
        return CorruptFrame(f"epoch {sent_epoch}, now {epoch}")
    try:
        stream = StreamId(head[_HEADER.size :].decode())
    except UnicodeDecodeError:
        return CorruptFrame("name is not text")
    if kind == FrameKind.BATCH:
        if len(parts) != 2:
            return CorruptFrame(f"batch of {len(parts)} parts")
        batch = _batch(parts[1], schemas.get(stream), d)
        if isinstance(batch, CorruptFrame):
            return batch
        if a < 0 or tuple_type not in TupleType._value2member_map_:
            return CorruptFrame("bad id or tuple type")
        tuples = TupleBatch(a, batch, b, c, TupleType(tuple_type))
        return BatchReceived(stream, sender, receiver, tuples)
    if len(parts) != 1:
        return CorruptFrame(f"{len(parts)} parts")
    if kind == FrameKind.BOUNDARY:
        return BoundaryReceived(stream, sender, receiver, a, b)
    if kind == FrameKind.SUBSCRIBE and min(a, b, c) >= 0:
        return SubscribeReceived(stream, sender, receiver, a, b, c)
    if kind == FrameKind.ACK and min(a, b, c) >= 0:
        return AckReceived(stream, sender, receiver, a, b, c)
    return CorruptFrame(f"kind {kind}")


def _batch(part: object, schema: pa.Schema | None, count: int) -> pa.RecordBatch | CorruptFrame:
    if schema is None:
        return CorruptFrame("batch of an unknown stream")
    if not 0 < count <= MAX_ROWS:
        return CorruptFrame(f"{count} rows")
    try:
        batch = pa.ipc.read_record_batch(pa.py_buffer(part), schema)
        batch.validate(full=True)
    except (pa.ArrowException, ValueError, OSError, EOFError) as error:
        return CorruptFrame(f"not a record batch of the declared schema: {error}")
    if batch.num_rows != count:
        return CorruptFrame(f"{batch.num_rows} rows, {count} announced")
    return batch
