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
    PositionsReceived,
    SubscribeReceived,
)
from holdfast.core.model.ids import Incarnation, StreamId
from holdfast.core.model.tuples import TupleBatch, TupleType

MAGIC: Final = 0x4648  # "HF", little endian
VERSION: Final = 2
# magic, version, kind, tuple type, whether a secondary speaks, name length, epoch, sender,
# receiver, four 8-byte fields
_HEADER: Final = struct.Struct("<HBBBBHIII4q")
_POSITIONS: Final = struct.Struct("<2q")
MAX_NAME_BYTES: Final = 512
MAX_ROWS: Final = 1 << 24


class FrameKind(enum.IntEnum):
    """What a frame says."""

    BATCH = 1
    BOUNDARY = 2
    SUBSCRIBE = 3
    ACK = 4
    POSITIONS = 5


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


NodeMessage = BatchReceived | BoundaryReceived | SubscribeReceived | AckReceived | PositionsReceived


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
    kind: FrameKind,
    address: FrameAddress,
    stream: StreamId,
    positions: tuple[int, int, int],
    *,
    is_secondary: bool = False,
) -> list[bytes]:
    """A boundary (sent_before, boundary_us, 0), subscription or ack (three positions)."""
    return [_header(kind, address, stream, (*positions, 0), is_secondary=is_secondary)]


def encode_replica_positions(
    address: FrameAddress, stream: StreamId, positions: tuple[tuple[int, int], ...]
) -> list[bytes]:
    """What a primary tells its secondary, as two parts: the header, and the positions."""
    header = _header(FrameKind.POSITIONS, address, stream, (len(positions), 0, 0, 0))
    return [header, b"".join(_POSITIONS.pack(*pair) for pair in positions)]


def _header(
    kind: FrameKind,
    address: FrameAddress,
    stream: StreamId,
    fields: tuple[int, int, int, int],
    tuple_type: int = 0,
    *,
    is_secondary: bool = False,
) -> bytes:
    name = stream.encode()
    return (
        _HEADER.pack(
            MAGIC,
            VERSION,
            kind,
            tuple_type,
            is_secondary,
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
    magic, version, kind, tuple_type, role, name_length, *address, a, b, c, d = _HEADER.unpack_from(
        head
    )
    sent_epoch, sender, receiver = address
    if magic != MAGIC or version != VERSION:
        return CorruptFrame(f"magic {magic:#x}, version {version}")
    if name_length > MAX_NAME_BYTES or len(head) != _HEADER.size + name_length:
        return CorruptFrame("name of the wrong length")
    if role > 1:
        return CorruptFrame(f"role {role}")
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
    if kind == FrameKind.POSITIONS:
        return _positions(parts, stream, (sender, receiver), a)
    if len(parts) != 1:
        return CorruptFrame(f"{len(parts)} parts")
    if kind == FrameKind.BOUNDARY:
        return BoundaryReceived(stream, sender, receiver, a, b)
    if kind == FrameKind.SUBSCRIBE and min(a, b, c) >= 0:
        return SubscribeReceived(stream, sender, receiver, a, b, c, bool(role))
    if kind == FrameKind.ACK and min(a, b, c) >= 0:
        return AckReceived(stream, sender, receiver, a, b, c, bool(role))
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
