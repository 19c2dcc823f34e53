"""Notes at both ends of a stream: numbers, places, trimming."""

import numpy as np
import pyarrow as pa
import pytest

from holdfast.core.errors import InvariantViolation, LocalProtocolError, RemoteProtocolError
from holdfast.core.model.ids import END_US, NO_ID, Incarnation, StreamId
from holdfast.core.model.notes import CheckpointIndex, CheckpointMarker, PlacedNote
from holdfast.core.model.tuples import TIME_COLUMN, TupleBatch
from holdfast.core.queues.input_queue import InputQueue
from holdfast.core.queues.output_queue import OutputQueue
from holdfast.core.queues.stream_notes import ComingNotes, KeptNotes, first_number_of

STREAM = StreamId("a[0]>b[0]")


def tuples(first_id: int, count: int, boundary_us: int = 0) -> TupleBatch:
    ids = np.arange(first_id, first_id + count, dtype=np.int64)
    batch = pa.RecordBatch.from_arrays([pa.array(ids), pa.array(ids)], names=["v", TIME_COLUMN])
    return TupleBatch(first_id, batch, boundary_us)


def placed(number: int, before_id: int) -> PlacedNote:
    return PlacedNote(number, before_id, CheckpointMarker(number))


def output(*steps: int) -> OutputQueue:
    """Counts of tuples to append, with a note after each of them."""
    queue = OutputQueue(STREAM, first_id=0, retain=True, memory_limit_bytes=1 << 20)
    for count in steps:
        if count:
            queue.append(tuples(queue.next_id, count))
        queue.put_note(CheckpointMarker(queue.notes.next_number))
    queue.primary.subscribe(0)
    queue.primary.reset_credit(1_000)
    return queue


def inputs() -> InputQueue:
    return InputQueue(STREAM, next_id=0, max_tuples=100)


def numbers(notes: tuple[PlacedNote, ...]) -> list[int]:
    return [note.number for note in notes]


def test_a_note_stands_behind_what_was_appended_and_is_sent_with_it() -> None:
    queue = output(3, 2, 0)
    first, second = queue.primary.take_sendable()
    assert numbers(queue.primary.take_notes_in(first)) == [0]
    assert numbers(queue.primary.take_notes_in(second)) == [1, 2]
    assert queue.primary.take_notes() == ()


def test_a_note_needs_no_credit_but_waits_for_the_tuples_ahead_of_it() -> None:
    queue = output(3, 2)
    queue.primary.reset_credit(4)
    for batch in queue.primary.take_sendable():
        queue.primary.take_notes_in(batch)
    assert queue.primary.next_note == 1
    queue.primary.grant(5)
    (rest,) = queue.primary.take_sendable()
    assert numbers(queue.primary.take_notes_in(rest)) == [1]
    queue.put_note(CheckpointMarker(7))
    assert numbers(queue.primary.take_notes()) == [2]


def test_a_note_is_kept_as_long_as_the_tuple_behind_it() -> None:
    queue = output(3, 2)
    list(queue.primary.take_sendable())
    queue.primary.acknowledge(5, 3)
    assert numbers(queue.notes.all()) == [0, 1]
    queue.primary.acknowledge(5, 5)
    assert numbers(queue.notes.all()) == [1], "whoever begins at 5 may lack it"


def test_a_note_may_replace_the_one_of_its_kind_at_its_place() -> None:
    queue = output(3)
    queue.put_note(CheckpointIndex(0))
    for round_ in range(1, 100):
        queue.put_note(CheckpointMarker(round_), replaces=True)
    assert numbers(queue.notes.all()) == [1, 100], "one of another kind stays"
    receiver = inputs()
    (batch,) = queue.primary.take_sendable()
    assert receiver.receive(batch, 0, queue.primary.take_notes_in(batch))
    queue.put_note(CheckpointMarker(100), replaces=True)
    assert receiver.receive_notes(3, queue.primary.notes_before, queue.primary.take_notes())
    assert numbers(receiver.notes.waiting()) == [1, 100, 101], "nothing seems lost"
    queue.append(tuples(3, 1))
    queue.put_note(CheckpointMarker(101), replaces=True)
    assert numbers(queue.notes.all()) == [1, 101, 102]


def test_who_lacks_a_note_that_was_replaced_is_sent_what_has_replaced_it() -> None:
    queue = output(3)
    queue.put_note(CheckpointMarker(2), replaces=True)
    queue.primary.subscribe(3, 0)
    assert numbers(queue.primary.take_notes()) == [1]
    assert queue.primary.has_sent_all
    queue.primary.subscribe(3, 2)
    assert queue.primary.take_notes() == ()


def test_a_note_that_nobody_lacks_any_more_holds_up_no_boundary() -> None:
    """1. A replacement puts a note where its receiver has had the tuples. 2. That subscribes behind
    them, and its position has the note trimmed. 3. Nothing is left to be sent.
    """
    queue = output(3)
    queue.append(tuples(3, 2))
    queue.primary.subscribe(5, 0)
    queue.primary.acknowledge(5, 5)
    queue.promise(END_US)
    assert not queue.notes.all()
    assert queue.primary.take_boundary() == END_US


def test_of_the_notes_that_were_taken_at_a_place_the_first_is_remembered() -> None:
    notes = ComingNotes(STREAM)
    for number in range(100):
        notes.receive((placed(number, 5),), 5, 5)
        notes.take()
    assert len(notes._taken) == 1
    assert notes.number_at(5) == 0
    assert notes.taken_before == 100


def test_a_subscriber_is_sent_the_notes_that_it_has_not_had() -> None:
    queue = output(3, 2, 0)
    queue.primary.subscribe(5, 2)
    assert numbers(queue.primary.take_notes()) == [2]
    queue.primary.subscribe(5, 1)
    assert queue.primary.notes_before == 1
    assert numbers(queue.primary.take_notes()) == [1, 2]
    assert queue.primary.notes_before == 3
    queue.primary.skip_notes()
    assert queue.primary.take_notes() == ()


def test_a_queue_that_does_not_retain_sends_every_note_once() -> None:
    queue = OutputQueue(STREAM, first_id=0, retain=False, memory_limit_bytes=1 << 20)
    queue.primary.subscribe(0)
    queue.primary.reset_credit(1_000)
    sent: list[int] = []
    for _ in range(4):
        queue.put_note(CheckpointMarker(1))
        queue.append(tuples(queue.next_id, 3))
        for batch in queue.primary.take_sendable():
            sent += numbers(queue.primary.take_notes_in(batch))
    assert sent == [0, 1, 2, 3]
    assert len(queue.notes) == 1


def test_a_boundary_waits_for_the_notes_ahead_of_it_and_a_gate_holds_both() -> None:
    queue = output(3)
    queue.shut()
    queue.put_note(CheckpointMarker(1))
    queue.promise(50)
    (batch,) = queue.primary.take_sendable()
    assert numbers(queue.primary.take_notes_in(batch)) == [0]
    assert queue.primary.take_notes() == ()
    assert queue.primary.take_boundary() is None
    queue.open_to(queue.next_id, queue.notes.next_number)
    assert numbers(queue.primary.take_notes()) == [1]
    assert queue.primary.take_boundary() == 50


def test_unsent_notes_count_like_unsent_tuples() -> None:
    queue = output(3, 0)
    assert queue.unsent_tuples == 5
    for batch in queue.primary.take_sendable():
        queue.primary.take_notes_in(batch)
    assert queue.unsent_tuples == 0


def test_tuples_are_handed_on_up_to_the_next_note_and_behind_it_when_it_is_taken() -> None:
    queue = inputs()
    assert queue.receive(tuples(0, 5, 70), 0, (placed(0, 2), placed(1, 2), placed(2, 5)))
    assert [(b.first_id, b.next_id) for b in queue.take(100)] == [(0, 2)]
    assert queue.take(100) == []
    assert [queue.take_note(), queue.take_note(), queue.take_note()] == [
        placed(0, 2),
        placed(1, 2),
        None,
    ]
    assert [(b.first_id, b.next_id) for b in queue.take(100)] == [(2, 5)]
    assert queue.taken_boundary_us == 70, "it came with tuples ahead of the note"
    assert queue.is_note_due
    assert queue.has_work


def test_a_boundary_that_came_behind_a_note_is_taken_behind_it() -> None:
    queue = inputs()
    queue.receive(tuples(0, 1, 10))
    queue.receive_notes(1, 0, (placed(0, 1),))
    queue.promise(1, END_US, 1)
    queue.take(100)
    assert queue.taken_boundary_us == 10
    assert not queue.is_ended
    assert queue.take_note() == placed(0, 1)
    queue.take(100)
    assert queue.is_ended


def test_nothing_is_handed_on_from_where_a_cut_has_to_be_taken_first() -> None:
    queue = inputs()
    queue.receive(tuples(0, 5, 70), 0, (placed(0, 3), placed(1, 3)))
    queue.take(100)
    marker = queue.take_note()
    assert marker is not None
    queue.stop_at(marker.before_id, marker.number + 1)
    assert queue.take(100) == []
    assert queue.take_note() is None, "another note stands there, behind the marker"
    assert not queue.has_work
    assert queue.receive(tuples(5, 5, 90))
    assert not queue.has_work
    queue.check_invariants()
    queue.go_on()
    assert queue.take_note() == placed(1, 3)
    assert [(b.first_id, b.next_id) for b in queue.take(100)] == [(3, 5), (5, 10)]


def test_an_id_that_is_stopped_at_lets_its_notes_through() -> None:
    queue = inputs()
    queue.receive(tuples(0, 5), 0, (placed(0, 3),))
    queue.stop_at(3)
    queue.promise(5, 99, 1)
    assert [(b.first_id, b.next_id) for b in queue.take(100)] == [(0, 3)]
    assert queue.take_note() == placed(0, 3)
    assert queue.take(100) == []
    assert queue.taken_boundary_us < 99


def test_a_lost_note_is_noticed_by_every_frame_behind_it() -> None:
    queue = inputs()
    assert queue.receive(tuples(0, 2))
    assert not queue.receive(tuples(2, 2), 1)
    assert not queue.receive_notes(2, 1, (placed(1, 2),))
    assert not queue.promise(2, 5, 1)
    assert not queue.receive_notes(3, 0, (placed(0, 3),)), "a tuple was lost"
    assert queue.receive_notes(2, 0, (placed(0, 2), placed(1, 2)))
    assert queue.receive(tuples(2, 2), 1, (placed(1, 2), placed(2, 4)))
    assert queue.notes.next_number == 3


@pytest.mark.parametrize("notes", [(placed(0, 3),), (placed(0, 2), placed(1, 1))])
def test_a_note_where_none_can_stand_is_refused(notes: tuple[PlacedNote, ...]) -> None:
    queue = inputs()
    with pytest.raises(RemoteProtocolError, match="note"):
        queue.receive(tuples(0, 2), 0, notes)


def test_who_begins_again_at_a_tuple_begins_with_the_first_note_at_it() -> None:
    notes = ComingNotes(STREAM)
    notes.receive((placed(0, 2), placed(1, 5), placed(2, 5), placed(3, 9)), 0, 9)
    for _ in range(3):
        notes.take()
    assert [notes.number_at(i) for i in (2, 3, 5, 6)] == [0, 1, 1, 3]
    notes.let_go(5)
    assert notes.number_at(5) == 1
    assert notes.taken_before == 3
    assert notes.waiting() == (placed(3, 9),)


def test_notes_of_a_replacement_come_even_where_the_tuples_have_been_had() -> None:
    queue = inputs()
    queue.receive(tuples(0, 9), 0, (placed(0, 3), placed(1, 9)))
    queue.take(100)
    assert queue.take_note() == placed(0, 3)
    queue.take(100)
    assert queue.take_note() == placed(1, 9)
    first = first_number_of(Incarnation(4))
    again = KeptNotes(STREAM, first)
    again.restore((placed(0, 3),))
    again.put(CheckpointMarker(7), 5)
    assert again.first_for(9, queue.notes.next_number) == first
    assert queue.receive_notes(9, 2, again.between(2, NO_ID, 9))
    assert queue.take_note() == PlacedNote(first, 9, CheckpointMarker(7)), "due at once"
    queue.check_invariants()


def test_a_note_of_a_replacement_waits_behind_those_of_its_predecessor_that_have_come() -> None:
    """It stands ahead of them, as it began again further ahead; the receiver had the tuples."""
    queue = inputs()
    queue.receive(tuples(0, 9), 0, (placed(0, 7),))
    new = PlacedNote(first_number_of(Incarnation(2)), 4, CheckpointMarker(7))
    assert queue.receive_notes(4, 1, (new,))
    assert [(b.first_id, b.next_id) for b in queue.take(100)] == [(0, 7)]
    assert queue.take_note() == placed(0, 7)
    assert queue.take_note() == PlacedNote(new.number, 7, new.note)
    queue.check_invariants()


def test_what_was_decided_once_is_taken_whatever_notes_stand_in_it_now() -> None:
    queue = inputs()
    queue.receive(tuples(0, 9), 0, (placed(0, 3), placed(1, 8)))
    assert [(b.first_id, b.next_id) for b in queue.take(5)] == [(0, 3)]
    assert [(b.first_id, b.next_id) for b in queue.take_recorded(5)] == [(3, 5)]
    queue.check_invariants()
    assert queue.take_note() == placed(0, 5)
    assert queue.take_note() is None


def test_what_a_producer_has_gone_back_behind_is_dropped_and_what_it_keeps_comes_again() -> None:
    queue = inputs()
    queue.receive(tuples(0, 9), 0, (placed(0, 3), placed(1, 5), placed(2, 7)))
    queue.notes.drop_from(5)
    assert queue.notes.next_number == 1
    first = first_number_of(Incarnation(2))
    new = PlacedNote(first, 6, CheckpointMarker(9))
    assert queue.receive_notes(9, 1, (placed(1, 5), new))
    assert queue.notes.waiting() == (placed(0, 3), placed(1, 5), new)


def test_a_promoted_secondary_sends_what_stands_from_the_receivers_place_on() -> None:
    kept = KeptNotes(STREAM, first_number_of(Incarnation(2)))
    for before_id in (3, 5, 5, 8):
        kept.put(CheckpointMarker(before_id), before_id)
    kept.promote(Incarnation(6))
    had = first_number_of(Incarnation(4)) + 2
    first = first_number_of(Incarnation(6))
    assert kept.first_for(5, had) == first + 1
    kept.put(CheckpointMarker(9), 8)
    assert kept.first_for(9, had) == first + 4
    assert kept.count_from(first + 3) == 2
    kept.check_invariants()


def test_a_stream_that_goes_on_elsewhere_goes_on_with_other_numbers() -> None:
    queue = InputQueue(STREAM, next_id=0, max_tuples=100, adopts=True)
    assert not queue.receive_notes(0, 0, (placed(0, 0),))
    queue.adopt(7, 4)
    assert queue.receive(tuples(7, 1), 4, (placed(4, 8),))
    queue.take(10)
    assert queue.take_note() == placed(4, 8)
    queue.skip_to(20, 9)
    queue.check_invariants()


def test_numbers_and_places_that_do_not_follow_are_errors() -> None:
    kept = KeptNotes(STREAM, 2)
    kept.put(CheckpointMarker(1), 3)
    with pytest.raises(LocalProtocolError, match="note before 2"):
        kept.put(CheckpointMarker(2), 2)
    with pytest.raises(InvariantViolation, match="note 1 before 2"):
        kept.restore((placed(1, 3), placed(1, 2)))
    with pytest.raises(InvariantViolation, match="the next one is 3"):
        kept.restore((placed(3, 3),))
    queue = inputs()
    queue.receive(tuples(0, 4), 0, (placed(0, 2),))
    queue.pending_tuples = 1
    with pytest.raises(InvariantViolation, match="ahead of a note"):
        queue.check_invariants()
