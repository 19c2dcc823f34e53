"""Frames between nodes: a fixed header, the stream's name, and for tuples one Arrow batch.

Every frame of every kind carries the coordinator's epoch, the sender's incarnation and the
receiver's incarnation as the sender believes it, so that nothing of an earlier life has an effect.
A checksum covers all parts of a frame. Decoding never raises: bytes that are not a frame give
`CorruptFrame`. See docs/formats.md.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import xxhash

from holdfast.core.haunit.events import (
    AckReceived,
    BatchReceived,
    BoundaryReceived,
    DeltaAckReceived,
    DeltaReceived,
    PageRunReceived,
    PositionsReceived,
    SubscribeReceived,
)
from holdfast.core.model.ids import Incarnation, StreamId
from holdfast.core.model.tuples import TupleBatch, TupleType
from holdfast.core.wire import delta_frames as bodies
from holdfast.core.wire.arrow_batches import BatchRefused, read_batch
from holdfast.core.wire.messages import NodeMessage

MAGIC: Final = 0x4648  # "HF", little endian
VERSION: Final = 3
# magic, version, kind, tuple type, whether a secondary speaks, name length, epoch, sender,
# receiver, four 8-byte fields
_HEADER: Final = struct.Struct("<HBBBBHIII4q")
_CHECKSUM: Final = struct.Struct("<Q")
_FIXED_BYTES: Final = _HEADER.size + _CHECKSUM.size
_POSITIONS: Final = struct.Struct("<2q")
MAX_NAME_BYTES: Final = 512
UP_BYTES_MAX: Final = 4_096
"""More than any part of what a receiver says to its producer."""


class FrameKind(enum.IntEnum):
    """What a frame says."""

    BATCH = 1
    BOUNDARY = 2
    SUBSCRIBE = 3
    ACK = 4
    POSITIONS = 5
    PAGE_RUN = 6
    DELTA = 7
    DELTA_ACK = 8


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
    body: Sequence[bytes | pa.Buffer] = ()
    tuple_type, is_secondary = 0, False
    match message:
        case BatchReceived(batch=batch):
            kind = FrameKind.BATCH
            fields = (batch.first_id, batch.boundary_us, batch.created_us, batch.count)
            body, tuple_type = [batch.batch.serialize()], int(batch.tuple_type)
        case BoundaryReceived():
            kind = FrameKind.BOUNDARY
            fields = (message.sent_before, message.boundary_us, message.rebased_at, 0)
        case SubscribeReceived():
            kind, is_secondary = FrameKind.SUBSCRIBE, message.is_secondary
            positions = (message.from_id, message.needed_from, message.credit_until)
            fields = (*positions, message.boundary_us)
        case AckReceived():
            kind, is_secondary = FrameKind.ACK, message.is_secondary
            fields = (message.received_before, message.needed_from, message.credit_until, 0)
        case PositionsReceived(positions=positions):
            kind, fields = FrameKind.POSITIONS, (len(positions), 0, 0, 0)
            body = [b"".join(_POSITIONS.pack(*pair) for pair in positions)]
        case PageRunReceived(run=run):
            kind = FrameKind.PAGE_RUN
            fields = (run.sequence, len(run.ids), run.words.shape[1], 0)
            body = bodies.encode_page_run(run)
        case DeltaReceived(delta=delta):
            kind, fields = FrameKind.DELTA, (delta.sequence, 0, 0, 0)
            body = bodies.encode_delta(delta, streams)
        case DeltaAckReceived():
            kind = FrameKind.DELTA_ACK
            fields = (message.sequence, message.pages, int(message.is_applied), 0)
    name = message.stream.encode()
    ends = (message.sender, message.receiver)
    header = _HEADER.pack(
        MAGIC, VERSION, kind, tuple_type, is_secondary, len(name), epoch, *ends, *fields
    )
    return [header + _CHECKSUM.pack(_checksum(header + name, body)) + name, *body]


def _checksum(head: bytes, body: Sequence[object]) -> int:
    """XXH3-64 of header and name, and of every other part behind its length."""
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
    if len(head) < _FIXED_BYTES:
        return CorruptFrame(f"header of {len(head)} bytes")
    magic, version, kind, tuple_type, role, name_length, *address, a, b, c, d = _HEADER.unpack_from(
        head
    )
    sent_epoch, sender, receiver = address
    if magic != MAGIC or version != VERSION:
        return CorruptFrame(f"magic {magic:#x}, version {version}")
    if name_length > MAX_NAME_BYTES or len(head) != _FIXED_BYTES + name_length:
        return CorruptFrame("name of the wrong length")
    name = head[_FIXED_BYTES:]
    if _CHECKSUM.unpack_from(head, _HEADER.size)[0] != _checksum(
        head[: _HEADER.size] + name, parts[1:]
    ):
        return CorruptFrame("checksum is wrong")
    if role > 1:
        return CorruptFrame(f"role {role}")
    if sent_epoch != epoch:
        return CorruptFrame(f"epoch {sent_epoch}, now {epoch}")
    try:
        stream = StreamId(name.decode())
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
    if kind == FrameKind.POSITIONS:
        return _positions(parts, stream, (sender, receiver), a)
    if kind in (FrameKind.PAGE_RUN, FrameKind.DELTA):
        return _state(kind, parts[1:], stream, (sender, receiver), (a, b, c), schemas)
    if len(parts) != 1:
        return CorruptFrame(f"{len(parts)} parts")
    if kind == FrameKind.BOUNDARY:
        return BoundaryReceived(stream, sender, receiver, a, b, c)
    if kind == FrameKind.SUBSCRIBE and min(a, b, c) >= 0:
        return SubscribeReceived(stream, sender, receiver, a, b, c, bool(role), d)
    if kind == FrameKind.ACK and min(a, b, c) >= 0:
        return AckReceived(stream, sender, receiver, a, b, c, bool(role))
    if kind == FrameKind.DELTA_ACK and min(a, b, c) >= 0:
        return DeltaAckReceived(stream, sender, receiver, a, b, bool(c))
    return CorruptFrame(f"kind {kind}")


def _positions(
    parts: Sequence[object], stream: StreamId, ends: tuple[int, int], count: int
) -> PositionsReceived | CorruptFrame:
    """`ends`: the incarnations of sender and receiver."""
    if len(parts) != 2:
        return CorruptFrame(f"positions of {len(parts)} parts")
    body = bytes(memoryview(parts[1]))  # type: ignore[arg-type]
    if count < 0 or len(body) != count * _POSITIONS.size:
        return CorruptFrame(f"{len(body)} bytes, {count} positions announced")
    found = tuple((received, needed) for received, needed in _POSITIONS.iter_unpack(body))
    if any(min(pair) < 0 for pair in found):
        return CorruptFrame("a negative position")
    sender, receiver = ends
    return PositionsReceived(stream, Incarnation(sender), Incarnation(receiver), found)


def _state(
    kind: int,
    parts: Sequence[object],
    stream: StreamId,
    ends: tuple[int, int],
    fields: tuple[int, int, int],
    schemas: dict[StreamId, pa.Schema],
) -> PageRunReceived | DeltaReceived | CorruptFrame:
    """What passive standby sends; `ends` as above."""

    def batch_of(part: object, output: StreamId, count: int) -> pa.RecordBatch | None:
        batch = _batch(part, schemas.get(output), count)
        return None if isinstance(batch, CorruptFrame) else batch

    address = (stream, Incarnation(ends[0]), Incarnation(ends[1]))
    try:
        if kind == FrameKind.PAGE_RUN:
            return PageRunReceived(*address, bodies.decode_page_run(parts, *fields))
        return DeltaReceived(*address, bodies.decode_delta(parts, fields[0], batch_of))
    except ValueError as error:
        return CorruptFrame(f"no part of a state: {error}")


def _batch(part: object, schema: pa.Schema | None, count: int) -> pa.RecordBatch | CorruptFrame:
    if schema is None:
        return CorruptFrame("batch of an unknown stream")
    if count < 1:
        return CorruptFrame(f"{count} rows")
    try:
        return read_batch(part, schema, count)
    except BatchRefused as error:
        return CorruptFrame(str(error))
