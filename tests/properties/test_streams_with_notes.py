"""Both ends of a stream against a list of what was put into it, over a channel that loses frames.

Whatever is lost, sent twice, spilled, trimmed, or asked for again, the receiver takes exactly what
the producer appended and put, in that order, from where it began.
"""

from collections import deque
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from hypothesis import example, given, settings
from hypothesis import strategies as st

from holdfast.core.model.ids import Incarnation, StreamId
from holdfast.core.model.notes import CheckpointMarker, PlacedNote
from holdfast.core.model.tuples import TIME_COLUMN, TupleBatch, between
from holdfast.core.queues.input_queue import InputQueue
from holdfast.core.queues.output_queue import OutputQueue
from holdfast.core.queues.stream_notes import first_number_of

STREAM = StreamId("a[0]>b[0]")
Item = int | CheckpointMarker
"""A tuple's id, or a note."""


def tuples(first_id: int, count: int) -> TupleBatch:
    ids = np.arange(first_id, first_id + count, dtype=np.int64)
    batch = pa.RecordBatch.from_arrays([pa.array(ids), pa.array(ids)], names=["v", TIME_COLUMN])
    return TupleBatch(first_id, batch, first_id + count)


@dataclass
class Frame:
    """What crosses the channel: tuples or none, what was sent before, and notes."""

    batch: TupleBatch | None
    sent_before: int
    notes_before: int
    notes: tuple[PlacedNote, ...]


@dataclass
class Stream:
    """A producer, a channel, a receiver that may fail and begin again, and the list."""

    output: OutputQueue = field(
        default_factory=lambda: OutputQueue(STREAM, first_id=0, retain=True, memory_limit_bytes=600)
    )
    inputs: InputQueue = field(default_factory=lambda: InputQueue(STREAM, next_id=0, max_tuples=50))
    channel: deque[Frame] = field(default_factory=deque)
    spilled: list[TupleBatch] = field(default_factory=list)
    items: list[Item] = field(default_factory=list)
    taken: list[Item] = field(default_factory=list)
    point: tuple[int, int, int] = (0, 0, 0)  # where a replacement begins: id, note, items taken

    def append(self, count: int) -> None:
        batch = tuples(self.output.next_id, count)
        self.items += range(batch.first_id, batch.next_id)
        self.output.append(batch)

    def put(self, count: int) -> None:
        for _ in range(count):
            note = CheckpointMarker(len(self.items))
            self.items.append(note)
            self.output.put_note(note)

    def send(self) -> None:
        cursor = self.output.primary
        while (missing := cursor.missing_for_send()) is not None:
            for batch in between(self.spilled, *missing):
                self._send_batch(batch)
                cursor.resent(batch.next_id)
        for batch in cursor.take_sendable():
            self._send_batch(batch)
        before = cursor.notes_before
        if notes := cursor.take_notes():
            self.channel.append(Frame(None, cursor.next_to_send, before, notes))
        self.spilled += self.output.take_spill()

    def _send_batch(self, batch: TupleBatch) -> None:
        before = self.output.primary.notes_before
        notes = self.output.primary.take_notes_in(batch)
        self.channel.append(Frame(batch, batch.first_id, before, notes))

    def keep_alive(self) -> None:
        cursor = self.output.primary
        self.channel.append(Frame(None, cursor.next_to_send, cursor.notes_before, ()))

    def deliver(self) -> None:
        if not self.channel:
            return
        frame = self.channel.popleft()
        if frame.batch is not None:
            has_come = self.inputs.receive(frame.batch, frame.notes_before, frame.notes)
        else:
            place = (frame.sent_before, frame.notes_before)
            has_come = self.inputs.receive_notes(*place, frame.notes)
        if not has_come:
            self.subscribe()

    def subscribe(self) -> None:
        inputs = self.inputs
        self.output.primary.subscribe(inputs.next_id, inputs.notes.next_number)
        self.output.primary.reset_credit(inputs.refresh_credit())

    def take(self, max_tuples: int) -> None:
        while (note := self.inputs.take_note()) is not None:
            assert isinstance(note.note, CheckpointMarker)
            self.taken.append(note.note)
        for batch in self.inputs.take(max_tuples):
            self.taken += batch.batch.column(0).to_pylist()
        self.output.primary.grant(self.inputs.refresh_credit())

    def cut(self) -> None:
        """A restart point; what comes before it is needed no more."""
        inputs = self.inputs
        place = (inputs.taken_before, inputs.notes.taken_before)
        self.point = (*place, len(self.taken))
        self.output.primary.acknowledge(inputs.next_id, place[0])
        inputs.notes.let_go(place[0])

    def fail(self) -> None:
        """The receiver is gone; another one begins at the point."""
        next_id, next_note, count = self.point
        del self.taken[count:]
        self.inputs = InputQueue(STREAM, next_id=next_id, max_tuples=50, next_note=next_note)
        self.channel.clear()
        self.output.primary.unsubscribe()
        self.subscribe()

    def check(self) -> None:
        self.output.check_invariants()
        self.inputs.check_invariants()
        assert self.taken == self.items[: len(self.taken)]


STEPS = st.lists(
    st.tuples(st.sampled_from("aaanndddddtttlrukcfs"), st.integers(1, 12)), max_size=80
)


@settings(max_examples=400)
@given(STEPS)
def test_the_receiver_takes_what_was_put_in_exactly_in_that_order(
    steps: list[tuple[str, int]],
) -> None:
    stream = Stream()
    stream.subscribe()
    for kind, number in steps:
        if kind == "a":
            stream.append(number)
            stream.send()
        elif kind == "n":
            stream.put(1 + number // 6)
            stream.send()
        elif kind == "d":
            stream.deliver()
        elif kind == "t":
            stream.take(number)
        elif kind == "l" and stream.channel:  # Lost on the way.
            del stream.channel[number % len(stream.channel)]
        elif kind == "r" and stream.channel:  # Comes twice, and late.
            stream.channel.append(stream.channel[number % len(stream.channel)])
        elif kind == "u":
            stream.subscribe()
        elif kind == "k":
            stream.keep_alive()
        elif kind == "c":
            stream.cut()
        elif kind == "f":
            stream.fail()
        else:
            stream.send()
        stream.check()
    for _ in range(20 * (len(stream.items) + 2)):
        if stream.taken == stream.items:
            break
        stream.send()
        stream.keep_alive()
        while stream.channel:
            stream.deliver()
        stream.take(5)
        stream.check()
    assert stream.taken == stream.items


@settings(max_examples=200)
@given(STEPS, st.integers(0, 40))
def test_nothing_is_taken_from_where_the_receiver_stops(
    steps: list[tuple[str, int]], stop_before: int
) -> None:
    stream = Stream()
    stream.subscribe()
    stream.inputs.stop_at(stop_before)
    for kind, number in steps:
        if kind == "n":
            stream.put(1)
        elif kind != "f":
            stream.append(number)
        stream.send()
        while stream.channel:
            stream.deliver()
        stream.take(number)
        stream.check()
    while stream.inputs.has_work:
        stream.take(7)
        stream.check()
    assert all(item < stop_before for item in stream.taken if isinstance(item, int))
    assert stream.inputs.taken_before == min(stop_before, stream.inputs.next_id)
    stream.inputs.go_on()
    for _ in range(len(stream.items) + 2):
        stream.send()
        while stream.channel:
            stream.deliver()
        stream.take(50)
    assert stream.taken == stream.items


@dataclass
class Replaced(Stream):
    """The producer fails, too: its replacement repeats tuples, but puts other notes."""

    incarnation: int = 0
    cut: tuple[int, tuple[PlacedNote, ...], list[TupleBatch]] = field(
        default_factory=lambda: (0, (), [])
    )
    lives: list[tuple[int, list[CheckpointMarker]]] = field(default_factory=lambda: [(0, [])])
    notes_taken: list[CheckpointMarker] = field(default_factory=list)
    tuples_taken: list[int] = field(default_factory=list)

    def put(self, count: int) -> None:
        for _ in range(count):
            note = CheckpointMarker(1_000 * self.incarnation + len(self.lives[-1][1]))
            self.lives[-1][1].append(note)
            self.output.put_note(note)

    def checkpoint(self) -> None:
        """What is kept, spilled or not."""
        queue = self.output
        spilled = between(self.spilled, queue.trimmed_before, queue.memory_first)
        held = queue.held_from(max(queue.trimmed_before, queue.memory_first))
        self.cut = (queue.next_id, queue.notes.all(), [*spilled, *held])

    def replace_producer(self) -> None:
        next_id, notes, held = self.cut
        self.incarnation += 1
        self.lives.append((self.incarnation, []))
        first_note = first_number_of(Incarnation(self.incarnation))
        self.output = OutputQueue(
            STREAM,
            first_id=held[0].first_id if held else next_id,
            retain=True,
            memory_limit_bytes=1 << 20,
            first_note=first_note,
        )
        for batch in held:
            self.output.append(batch)
        self.output.notes.restore(notes)
        self.channel.clear()
        self.subscribe()

    def take(self, max_tuples: int) -> None:
        count = len(self.taken)
        super().take(max_tuples)
        for item in self.taken[count:]:
            if isinstance(item, int):
                self.tuples_taken.append(item)
            else:
                self.notes_taken.append(item)

    def check(self) -> None:
        self.output.check_invariants()
        self.inputs.check_invariants()
        assert self.tuples_taken == list(range(len(self.tuples_taken)))
        assert len(set(self.notes_taken)) == len(self.notes_taken), "a note was taken twice"


@settings(max_examples=300)
@given(st.lists(st.tuples(st.sampled_from("aaannddddtttlrukpx"), st.integers(1, 9)), max_size=70))
@example([("a", 1)] * 8 + [("p", 1), ("x", 1)])  # Some of what is kept has been spilled.
@example([("a", 1), ("n", 1), ("d", 1), ("d", 1), ("x", 1), ("n", 1)])  # A note waits meanwhile.
def test_after_a_failure_of_the_producer_every_note_of_its_replacement_comes_once(
    steps: list[tuple[str, int]],
) -> None:
    stream = Replaced()
    stream.subscribe()
    for kind, number in steps:
        if kind == "a":
            stream.append(number)
        elif kind == "n":
            stream.put(1)
        elif kind == "d":
            stream.deliver()
        elif kind == "t":
            stream.take(number)
        elif kind == "l" and stream.channel:
            del stream.channel[number % len(stream.channel)]
        elif kind == "u":
            stream.subscribe()
        elif kind == "k":
            stream.keep_alive()
        elif kind == "p":
            stream.checkpoint()
        elif kind == "x":
            stream.replace_producer()
        stream.send()
        stream.check()
    while stream.output.next_id < stream.inputs.next_id:  # The replacement repeats its tuples.
        stream.append(1)
    for _ in range(20 + stream.output.next_id + len(stream.output.notes)):
        stream.send()
        stream.keep_alive()
        while stream.channel:
            stream.deliver()
        stream.take(50)
        stream.check()
    assert stream.tuples_taken == list(range(stream.output.next_id))
    of_the_last = [note for note in stream.notes_taken if note in stream.lives[-1][1]]
    assert of_the_last == stream.lives[-1][1]
    kept = [note.note for note in stream.output.notes.all()]
    assert all(note in stream.notes_taken for note in kept), "of those before, what is kept"
