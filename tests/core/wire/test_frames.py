"""Frames: round trip, and refusal of everything else."""

from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core.haunit.copied_pages import PageRun
from holdfast.core.haunit.events import (
    AckReceived,
    BatchReceived,
    BoundaryReceived,
    DeltaAckReceived,
    DeltaReceived,
    NotesReceived,
    PageRunReceived,
    PositionsReceived,
    SubscribeReceived,
)
from holdfast.core.haunit.state_delta import StateDelta
from holdfast.core.model.ids import Incarnation, Run, StreamId
from holdfast.core.model.notes import CheckpointClocks, CheckpointMarker, PlacedNote, Undo
from holdfast.core.model.tuples import TIME_COLUMN, TupleBatch, TupleType
from holdfast.core.recovery.restart_point import RestartPoint
from holdfast.core.wire.delta_frames import decode_page_run
from holdfast.core.wire.frames import CorruptFrame, decode, encode
from holdfast.core.wire.messages import NodeMessage

STREAM = StreamId("bids:ingest[0]>counts[1].0")
EPOCH = 3
ENDS = (STREAM, Incarnation(5), Incarnation(7))
SCHEMA = pa.schema([("name", pa.string()), (TIME_COLUMN, pa.int64())])


RUN = Run(Incarnation(5), 2)
MARKER = CheckpointMarker(3)
CLOCKS = CheckpointClocks(7, (3, 0, -1, 2**40), 0b101, 1 << 300)


def batch(rows: int = 3) -> TupleBatch:
    names = pa.array([f"n{i}" for i in range(rows)])
    times = pa.array(np.arange(rows, dtype=np.int64))
    return TupleBatch(11, pa.RecordBatch.from_arrays([names, times], schema=SCHEMA), -5, 77)


def parts(value: list[object]) -> list[bytes]:
    return [bytes(memoryview(part)) for part in value]  # type: ignore[arg-type]


def test_a_batch_comes_back_as_it_was() -> None:
    got = decode(list(parts(encode(BatchReceived(*ENDS, batch()), EPOCH))), {STREAM: SCHEMA}, 3)
    assert isinstance(got, BatchReceived)
    assert (got.sender, got.receiver, got.stream) == (5, 7, STREAM)
    assert got.batch == batch()


@pytest.mark.parametrize(
    "message",
    [
        BoundaryReceived(*ENDS, 9, -3),
        BoundaryReceived(*ENDS, 9, -3, 4, 1 << 40, RUN),
        BoundaryReceived(*ENDS, 9, -3, -1, 0, RUN, (StreamId("bids[0]"), StreamId("ü[1]"))),
        NotesReceived(*ENDS, 9, 1, None, (PlacedNote(1, 0, MARKER), PlacedNote(7, 9, Undo(RUN)))),
        NotesReceived(*ENDS, 9, 0, RUN, (PlacedNote(1 << 40, 9, CLOCKS),)),
        SubscribeReceived(*ENDS, 9, 3, 10, boundary_us=-8, from_note=1 << 33),
        SubscribeReceived(*ENDS, 9, 3, 10),
        SubscribeReceived(*ENDS, 9, 3, 10, is_secondary=True),
        SubscribeReceived(*ENDS, 9, 3, 10, is_aside=True, is_told=True),
        SubscribeReceived(*ENDS, 9, 3, 10, had_before=11),
        AckReceived(*ENDS, 9, 3, 10),
        AckReceived(*ENDS, 9, 3, 10, run=RUN, run_until=1 << 40),
        AckReceived(*ENDS, 9, 3, 10, is_secondary=True),
        AckReceived(*ENDS, 9, 3, 10, is_aside=True),
        PositionsReceived(*ENDS, ((1, 2), (3, 0))),
        DeltaAckReceived(*ENDS, 4, 17, True),
    ],
)
def test_positions_come_back_as_they_were(message: NodeMessage) -> None:
    assert decode(parts([*encode(message, EPOCH)]), {}, EPOCH) == message


def test_notes_come_back_with_the_tuples_that_they_stand_among() -> None:
    notes = (PlacedNote(6, 11, MARKER), PlacedNote(7, 12, CLOCKS), PlacedNote(8, 14, MARKER))
    message = BatchReceived(*ENDS, batch(), 5, None, notes)
    assert decode(parts([*encode(message, EPOCH)]), {STREAM: SCHEMA}, EPOCH) == message


def test_tentative_tuples_come_back_with_their_run_and_stable_ones_have_none() -> None:
    tentative = replace(batch(), tuple_type=TupleType.TENTATIVE)
    message = BatchReceived(*ENDS, tentative, 5, RUN)
    assert decode(parts([*encode(message, EPOCH)]), {STREAM: SCHEMA}, EPOCH) == message
    for tuples, run in ((tentative, None), (batch(), RUN)):
        message = BatchReceived(*ENDS, tuples, 5, run)
        got = decode(parts([*encode(message, EPOCH)]), {STREAM: SCHEMA}, EPOCH)
        assert isinstance(got, CorruptFrame)


@pytest.mark.parametrize("kind", list(TupleType)[2:])
def test_tuples_of_a_type_that_notes_or_fields_stand_for_are_refused(kind: TupleType) -> None:
    """They would be taken for stable ones."""
    message = BatchReceived(*ENDS, replace(batch(), tuple_type=kind), 5)
    got = decode(parts([*encode(message, EPOCH)]), {STREAM: SCHEMA}, EPOCH)
    assert isinstance(got, CorruptFrame)
    assert "said in notes" in got.reason


def test_a_batch_without_notes_has_no_part_for_them_and_a_header_of_eighty_bytes() -> None:
    header, _ = encode(BatchReceived(*ENDS, batch()), EPOCH)
    assert len(header) == 80 - 8 + len(STREAM)


@pytest.mark.parametrize("before_id", [10, 15])
def test_a_note_that_does_not_stand_among_the_tuples_of_its_frame_is_refused(
    before_id: int,
) -> None:
    message = BatchReceived(*ENDS, batch(), 0, None, (PlacedNote(0, before_id, MARKER),))
    with pytest.raises(ValueError, match="note") if before_id < 11 else nullcontext():
        got = decode(parts([*encode(message, EPOCH)]), {STREAM: SCHEMA}, EPOCH)
        assert isinstance(got, CorruptFrame)
        assert "note 0 before 15" in got.reason


def test_a_frame_of_another_version_is_refused_by_name() -> None:
    (frame,) = parts([*encode(AckReceived(*ENDS, 9, 3, 10), EPOCH)])
    other = frame[:2] + b"\x03" + frame[3:]
    assert decode([other], {}, EPOCH) == CorruptFrame("frame of version 3; this is version 8")


@pytest.mark.parametrize("others", [(), (11, 12, 13, 14)])
def test_pages_come_back_as_they_were(others: tuple[int, ...]) -> None:
    """Few changed words are said by their places, more by a bit per word."""
    ids = np.array([[1, 0], [7, 300]], dtype=np.int64)
    changed = np.zeros((2, 61), dtype=np.bool_)
    changed[0, 60] = changed[1, 0] = changed[1, 7] = True
    changed[1, list(others)] = True
    run = PageRun(5, ids, changed, np.array([-1, 2**62, 3, *others], dtype=np.int64))
    frame = parts([*encode(PageRunReceived(*ENDS, run), EPOCH)])
    got = decode(frame, {}, EPOCH)
    assert isinstance(got, PageRunReceived)
    assert got.run.sequence == 5
    assert np.array_equal(got.run.ids, ids)
    assert np.array_equal(got.run.changed, changed)
    assert np.array_equal(got.run.values, run.values)
    assert len(frame[2]) == (16 if others else 12)
    assert run.nbytes == sum(map(len, frame[1:]))
    for part, cut in ((1, 8), (2, 1), (3, 8), (3, 1)):
        torn = [*frame[:part], frame[part][:-cut], *frame[part + 1 :]]
        assert isinstance(decode(torn, {}, EPOCH), CorruptFrame)


def test_places_of_changed_words_that_do_not_follow_one_another_are_refused() -> None:
    ids, ones = np.zeros((1, 2), dtype=np.int64), np.ones(2, dtype=np.int64)
    for places in ([3, 3], [4, 3], [3, 100]):
        said = np.array(places, dtype=np.uint32).tobytes()
        with pytest.raises(ValueError, match="do not follow one another"):
            decode_page_run([ids.tobytes(), said, ones.tobytes()], 1, 1, 100)


def delta() -> StateDelta:
    cut = RestartPoint(3, {"a": 1}, {"a": 2}, 77, {"b": 14})
    return StateDelta(4, False, 9, {1: 5, 8: 2}, (3,), 11, cut, ((11, 14),), ((0, batch()),))


def test_a_delta_says_which_notes_are_kept() -> None:
    with_notes = replace(delta(), notes={STREAM: (PlacedNote(7, 12, MARKER),)})
    frame = parts([*encode(DeltaReceived(*ENDS, with_notes), EPOCH, [STREAM])])
    assert decode(frame, {STREAM: SCHEMA}, EPOCH) == DeltaReceived(*ENDS, with_notes)


def test_a_delta_comes_back_as_it_was() -> None:
    frame = parts([*encode(DeltaReceived(*ENDS, delta()), EPOCH, [STREAM])])
    assert decode(frame, {STREAM: SCHEMA}, EPOCH) == DeltaReceived(*ENDS, delta())
    assert isinstance(decode(frame, {}, EPOCH), CorruptFrame)
    for length in range(len(frame[1])):
        cut = [frame[0], frame[1][:length], frame[2]]
        assert isinstance(decode(cut, {STREAM: SCHEMA}, EPOCH), CorruptFrame)
    assert isinstance(decode(frame[:2], {STREAM: SCHEMA}, EPOCH), CorruptFrame)


def test_a_frame_of_another_epoch_is_refused() -> None:
    frame = parts([*encode(AckReceived(*ENDS, 9, 3, 10), EPOCH)])
    assert decode(frame, {}, 4) == CorruptFrame("epoch 3, now 4")


def test_a_batch_of_another_schema_is_refused() -> None:
    other = pa.schema([("number", pa.int64()), (TIME_COLUMN, pa.int64())])
    frame = list(parts(encode(BatchReceived(*ENDS, batch()), EPOCH)))
    assert isinstance(decode(frame, {STREAM: other}, 3), CorruptFrame)
    assert isinstance(decode(frame, {}, 3), CorruptFrame)


@settings(max_examples=300)
@given(st.lists(st.binary(max_size=200), max_size=3))
def test_any_bytes_are_safe(frame: list[bytes]) -> None:
    decode(list(frame), {STREAM: SCHEMA}, 3)


def test_every_flipped_bit_and_every_truncation_of_a_batch_is_safe() -> None:
    header, body = parts(encode(BatchReceived(*ENDS, batch()), EPOCH))
    for part, other in ((0, body), (1, header)):
        whole = header if part == 0 else body
        for position in range(len(whole) * 8):
            flipped = bytearray(whole)
            flipped[position // 8] ^= 1 << (position % 8)
            frame = [bytes(flipped), other] if part == 0 else [other, bytes(flipped)]
            got = decode(list(frame), {STREAM: SCHEMA}, 3)
            if isinstance(got, BatchReceived):
                got.batch.batch.to_pylist()
        for length in range(len(whole)):
            frame = [whole[:length], other] if part == 0 else [other, whole[:length]]
            got = decode(list(frame), {STREAM: SCHEMA}, 3)
            assert isinstance(got, CorruptFrame) or part == 1
