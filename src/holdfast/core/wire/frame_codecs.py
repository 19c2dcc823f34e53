"""What each kind of frame says: its fields, flags and further parts. One row of a table per kind.

A codec's `encode` gives the fields, the tuple type, the flags and the parts behind the first one;
`decode` makes the message of them again, and raises `ValueError` with the reason where they are
none: a length, a count or a position that cannot be. See docs/formats.md.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import pyarrow as pa

from holdfast.core.haunit import events
from holdfast.core.model.ids import NO_ID, Incarnation, Run, StreamId
from holdfast.core.model.notes import PlacedNote
from holdfast.core.model.tuples import TupleBatch, TupleType
from holdfast.core.replication.consistency_manager import Consistency
from holdfast.core.replication.switching import Standing
from holdfast.core.wire import delta_frames as bodies
from holdfast.core.wire.arrow_batches import BatchRefused, read_batch
from holdfast.core.wire.messages import NodeMessage
from holdfast.core.wire.note_codecs import decode_notes, encode_notes

_IS_SECONDARY: Final = 1
_HAS_NOTES: Final = 2
"""The last part is notes."""
_HAS_MISSING: Final = 4
"""The last part is names of source streams."""
_HAS_STANDING: Final = 8
"""The part behind that is where the sender stands."""
_IS_ASIDE: Final = 2
_IS_TOLD: Final = 4
_POSITIONS: Final = struct.Struct("<2q")
_STANDING: Final = struct.Struct("<B2q2I")
_STATES: Final = tuple(Consistency)
_NO_RUN: Final = (0, 0)

Part: TypeAlias = "bytes | pa.Buffer"
Encoded = tuple[tuple[int, ...], int, int, Sequence[Part]]
"""Fields, tuple type, flags, further parts."""


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
    NOTES = 9


@dataclass(frozen=True, slots=True)
class Content:
    """A frame as it has come, its checksum right, its content not yet looked at.

    Attributes:
        stream: What it is about.
        sender: Incarnation of the sender.
        receiver: Incarnation of the receiver as the sender believes it.
        fields: Of its kind.
        tuple_type: As it stands there.
        flags: As they stand there.
        parts: The parts behind the first one, bytes-like.
        schemas: Per stream the declared schema with the time column.
    """

    stream: StreamId
    sender: Incarnation
    receiver: Incarnation
    fields: tuple[int, ...]
    tuple_type: int
    flags: int
    parts: Sequence[object]
    schemas: dict[StreamId, pa.Schema]

    @property
    def address(self) -> tuple[StreamId, Incarnation, Incarnation]:
        """The first three attributes of a message."""
        return self.stream, self.sender, self.receiver

    def require(self, *, parts: int, flags: int = 0) -> None:
        """Raises `ValueError` unless it has so many further parts, and no other flags."""
        if len(self.parts) != parts:
            raise ValueError(f"{len(self.parts)} parts behind the first one, expected {parts}")
        if self.flags & ~flags:
            raise ValueError(f"flags {self.flags:#x}")


@dataclass(frozen=True, slots=True)
class FrameCodec:
    """One kind of frame.

    Attributes:
        kind: Its number.
        message: Its message.
        fields: How its fields lie behind the header.
        encode: Of a message and, for a delta, the output streams of the node.
        decode: The inverse; raises `ValueError`.
    """

    kind: FrameKind
    message: type[Any]
    fields: struct.Struct
    encode: Callable[[Any, Sequence[StreamId]], Encoded]
    decode: Callable[[Content], NodeMessage]


# -- down a stream ----------------------------------------------------------------------------


def _encode_batch(message: events.BatchReceived, _: Sequence[StreamId]) -> Encoded:
    batch, notes = message.batch, message.notes
    fields = (batch.first_id, batch.boundary_us, batch.created_us, message.notes_before)
    body: list[Part] = [batch.batch.serialize()]
    if notes:
        body.append(encode_notes(notes, message.notes_before, batch.first_id))
    flags = _HAS_NOTES if notes else 0
    run = _run_fields(message.run)
    return (*fields, *run, batch.count), int(batch.tuple_type), flags, body


def _decode_batch(content: Content) -> NodeMessage:
    has_notes = bool(content.flags & _HAS_NOTES)
    content.require(parts=2 if has_notes else 1, flags=_HAS_NOTES)
    first_id, boundary_us, created_us, notes_before, *run, count = content.fields
    _require_positions(first_id, notes_before, first_id + count)
    kind = _tuple_type(content.tuple_type)
    if kind not in (TupleType.STABLE, TupleType.TENTATIVE):
        raise ValueError(f"tuples of type {kind.name.lower()}: that is said in notes")
    if (kind is TupleType.TENTATIVE) != (_run(run) is not None):
        raise ValueError(f"{kind.name.lower()} tuples of run {run}")
    rows = _rows(content.parts[0], content.schemas.get(content.stream), count)
    batch = TupleBatch(first_id, rows, boundary_us, created_us, kind)
    notes: tuple[PlacedNote, ...] = ()
    if has_notes:
        notes = _notes(content.parts[1], notes_before, first_id, batch.next_id)
    return events.BatchReceived(*content.address, batch, notes_before, _run(run), notes)


def _encode_notes(message: events.NotesReceived, _: Sequence[StreamId]) -> Encoded:
    fields = (message.sent_before, message.notes_before, *_run_fields(message.run))
    return fields, 0, _HAS_NOTES, [encode_notes(message.notes, message.notes_before, 0)]


def _decode_notes(content: Content) -> NodeMessage:
    content.require(parts=1, flags=_HAS_NOTES)
    sent_before, notes_before, *run = content.fields
    _require_positions(sent_before, notes_before)
    notes = _notes(content.parts[0], notes_before, 0, sent_before)
    return events.NotesReceived(*content.address, sent_before, notes_before, _run(run), notes)


def _notes(part: object, from_number: int, from_id: int, to_id: int) -> tuple[PlacedNote, ...]:
    data = bytes(memoryview(part))  # type: ignore[arg-type]
    notes = decode_notes(data, from_number, from_id, to_id)
    if not notes:
        raise ValueError("no notes in the part for notes")
    return notes


def _encode_boundary(message: events.BoundaryReceived, _: Sequence[StreamId]) -> Encoded:
    said = (message.sent_before, message.boundary_us, message.rebased_at, message.notes_before)
    fields = (*said, *_run_fields(message.run))
    flags, parts = 0, []
    if message.missing:
        flags |= _HAS_MISSING
        parts.append("\n".join(message.missing).encode())
    if message.standing is not None:
        flags |= _HAS_STANDING
        parts.append(_encode_standing(message.standing))
    return fields, 0, flags, parts


def _decode_boundary(content: Content) -> NodeMessage:
    has_missing = bool(content.flags & _HAS_MISSING)
    has_standing = bool(content.flags & _HAS_STANDING)
    content.require(parts=has_missing + has_standing, flags=_HAS_MISSING | _HAS_STANDING)
    sent_before, boundary_us, rebased_at, notes_before, *run = content.fields
    _require_positions(sent_before, notes_before)
    said = (sent_before, boundary_us, rebased_at, notes_before)
    missing = _names(content.parts[0]) if has_missing else ()
    standing = _decode_standing(content.parts[-1]) if has_standing else None
    return events.BoundaryReceived(*content.address, *said, _run(run), missing, standing)


def _encode_standing(standing: Standing) -> bytes:
    place = (standing.stable_before, standing.stable_us)
    return _STANDING.pack(_STATES.index(standing.state), *place, *_run_fields(standing.run))


def _decode_standing(part: object) -> Standing:
    body = bytes(memoryview(part))  # type: ignore[arg-type]
    if len(body) != _STANDING.size:
        raise ValueError(f"{len(body)} bytes are no standing")
    state, stable_before, stable_us, *run = _STANDING.unpack(body)
    if state >= len(_STATES):
        raise ValueError(f"state {state}")
    _require_positions(stable_before)
    return Standing(_STATES[state], stable_before, stable_us, _run(run))


def _names(part: object) -> tuple[StreamId, ...]:
    text = bytes(memoryview(part)).decode()  # type: ignore[arg-type]
    names = tuple(map(StreamId, text.split("\n")))
    if not all(names):
        raise ValueError("a stream without a name")
    return names


def _run_fields(run: Run | None) -> tuple[int, int]:
    return _NO_RUN if run is None else (run.incarnation, run.number)


def _run(fields: Sequence[int]) -> Run | None:
    incarnation, number = fields
    if not number and incarnation:
        raise ValueError("a run without a number")
    return Run(Incarnation(incarnation), number) if number else None


# -- up a stream ------------------------------------------------------------------------------


def _encode_subscribe(message: events.SubscribeReceived, _: Sequence[StreamId]) -> Encoded:
    positions = (message.from_id, message.needed_from, message.credit_until)
    fields = (*positions, message.boundary_us, message.from_note, message.had_before)
    told = message.is_aside * _IS_ASIDE | message.is_told * _IS_TOLD
    return fields, 0, message.is_secondary * _IS_SECONDARY | told, ()


def _decode_subscribe(content: Content) -> NodeMessage:
    content.require(parts=0, flags=_IS_SECONDARY | _IS_ASIDE | _IS_TOLD)
    from_id, needed_from, credit_until, boundary_us, from_note, had_before = content.fields
    _require_positions(from_id, needed_from, credit_until, from_note, had_before)
    return events.SubscribeReceived(
        *content.address,
        from_id=from_id,
        needed_from=needed_from,
        credit_until=credit_until,
        is_secondary=bool(content.flags & _IS_SECONDARY),
        boundary_us=boundary_us,
        from_note=from_note,
        is_aside=bool(content.flags & _IS_ASIDE),
        is_told=bool(content.flags & _IS_TOLD),
        had_before=had_before,
    )


def _encode_ack(message: events.AckReceived, _: Sequence[StreamId]) -> Encoded:
    fields = (message.received_before, message.needed_from, message.credit_until)
    flags = message.is_secondary * _IS_SECONDARY | message.is_aside * _IS_ASIDE
    return (*fields, *_run_fields(message.run), message.run_until), 0, flags, ()


def _decode_ack(content: Content) -> NodeMessage:
    content.require(parts=0, flags=_IS_SECONDARY | _IS_ASIDE)
    received_before, needed_from, credit_until, *run, run_until = content.fields
    _require_positions(received_before, needed_from, credit_until, run_until)
    return events.AckReceived(
        *content.address,
        received_before=received_before,
        needed_from=needed_from,
        credit_until=credit_until,
        is_secondary=bool(content.flags & _IS_SECONDARY),
        run=_run(run),
        run_until=run_until,
        is_aside=bool(content.flags & _IS_ASIDE),
    )


# -- between replicas -------------------------------------------------------------------------


def _encode_positions(message: events.PositionsReceived, _: Sequence[StreamId]) -> Encoded:
    body = b"".join(_POSITIONS.pack(*pair) for pair in message.positions)
    return (len(message.positions),), 0, 0, [body]


def _decode_positions(content: Content) -> NodeMessage:
    content.require(parts=1)
    (count,) = content.fields
    body = bytes(memoryview(content.parts[0]))  # type: ignore[arg-type]
    if len(body) != count * _POSITIONS.size:
        raise ValueError(f"{len(body)} bytes, {count} positions announced")
    found = tuple((received, needed) for received, needed in _POSITIONS.iter_unpack(body))
    for pair in found:
        _require_positions(*pair)
    return events.PositionsReceived(*content.address, found)


def _encode_page_run(message: events.PageRunReceived, _: Sequence[StreamId]) -> Encoded:
    run = message.run
    return (run.sequence, len(run.ids), run.changed.shape[1]), 0, 0, bodies.encode_page_run(run)


def _decode_page_run(content: Content) -> NodeMessage:
    content.require(parts=3)
    sequence, pages, words = content.fields
    run = bodies.decode_page_run(content.parts, sequence, pages, words)
    return events.PageRunReceived(*content.address, run)


def _encode_delta(message: events.DeltaReceived, streams: Sequence[StreamId]) -> Encoded:
    return (message.delta.sequence,), 0, 0, bodies.encode_delta(message.delta, streams)


def _decode_delta(content: Content) -> NodeMessage:
    def batch_of(part: object, output: StreamId, count: int) -> pa.RecordBatch:
        return _rows(part, content.schemas.get(output), count)

    content.require(parts=len(content.parts))
    (sequence,) = content.fields
    delta = bodies.decode_delta(content.parts, sequence, batch_of)
    return events.DeltaReceived(*content.address, delta)


def _encode_delta_ack(message: events.DeltaAckReceived, _: Sequence[StreamId]) -> Encoded:
    return (message.sequence, message.pages, int(message.is_applied)), 0, 0, ()


def _decode_delta_ack(content: Content) -> NodeMessage:
    content.require(parts=0)
    sequence, pages, is_applied = content.fields
    _require_positions(sequence, pages)
    return events.DeltaAckReceived(*content.address, sequence, pages, bool(is_applied))


# -- what can be ------------------------------------------------------------------------------


def _require_positions(*positions: int) -> None:
    if min(positions) < 0 or max(positions) > NO_ID:
        raise ValueError(f"no positions: {positions}")


def _tuple_type(number: int) -> TupleType:
    return TupleType(number)  # Raises `ValueError`, with the number.


def _rows(part: object, schema: pa.Schema | None, count: int) -> pa.RecordBatch:
    if schema is None:
        raise ValueError("rows of an unknown stream")
    if count < 1:
        raise ValueError(f"{count} rows")
    try:
        return read_batch(part, schema, count)
    except BatchRefused as error:
        raise ValueError(str(error)) from error


_TABLE: Final = (
    FrameCodec(
        FrameKind.BATCH,
        events.BatchReceived,
        struct.Struct("<4q2II"),
        _encode_batch,
        _decode_batch,
    ),
    FrameCodec(
        FrameKind.NOTES,
        events.NotesReceived,
        struct.Struct("<2q2I"),
        _encode_notes,
        _decode_notes,
    ),
    FrameCodec(
        FrameKind.BOUNDARY,
        events.BoundaryReceived,
        struct.Struct("<4q2I"),
        _encode_boundary,
        _decode_boundary,
    ),
    FrameCodec(
        FrameKind.SUBSCRIBE,
        events.SubscribeReceived,
        struct.Struct("<6q"),
        _encode_subscribe,
        _decode_subscribe,
    ),
    FrameCodec(
        FrameKind.ACK, events.AckReceived, struct.Struct("<3q2Iq"), _encode_ack, _decode_ack
    ),
    FrameCodec(
        FrameKind.POSITIONS,
        events.PositionsReceived,
        struct.Struct("<I"),
        _encode_positions,
        _decode_positions,
    ),
    FrameCodec(
        FrameKind.PAGE_RUN,
        events.PageRunReceived,
        struct.Struct("<qII"),
        _encode_page_run,
        _decode_page_run,
    ),
    FrameCodec(
        FrameKind.DELTA,
        events.DeltaReceived,
        struct.Struct("<q"),
        _encode_delta,
        _decode_delta,
    ),
    FrameCodec(
        FrameKind.DELTA_ACK,
        events.DeltaAckReceived,
        struct.Struct("<2qB"),
        _encode_delta_ack,
        _decode_delta_ack,
    ),
)
BY_KIND: Final[dict[int, FrameCodec]] = {codec.kind: codec for codec in _TABLE}
BY_MESSAGE: Final[dict[type[Any], FrameCodec]] = {codec.message: codec for codec in _TABLE}
