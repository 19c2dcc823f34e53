"""An input queue: what arrived on one stream and is not yet processed. [HA §5]

It enforces that ids continue: tuples seen before are dropped and counted, a gap is reported so
that the node subscribes again. It grants credit so that it never holds more than its bound.

Notes (stream_notes.py) come with the tuples, and are taken in their place: `take` stops before the
first note, which is due then (`is_note_due`, `take_note`). What came behind a note, a boundary too,
is not handed on before it. `stop_at` holds back what comes from a place on, as long as a cut has to
be taken first; frames still arrive.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from holdfast.core.errors import InvariantViolation, LocalProtocolError
from holdfast.core.model.ids import BEGINNING_US, END_US, NO_ID, StreamId
from holdfast.core.queues.stream_notes import ComingNotes

if TYPE_CHECKING:
    from holdfast.core.model.notes import PlacedNote
    from holdfast.core.model.tuples import TupleBatch


class InputQueue:
    """The input queue of one stream. Volatile: all fields."""

    def __init__(
        self,
        stream: StreamId,
        *,
        next_id: int,
        max_tuples: int,
        adopts: bool = False,
        next_note: int = 0,
    ) -> None:
        """Expect what comes first, and hold a bounded number of tuples.

        Args:
            stream: Its name.
            next_id: The first tuple.
            max_tuples: About how many to hold at most.
            adopts: Whether to expect whatever comes instead.
            next_note: All notes with lower numbers have been had.
        """
        self.stream = stream
        self.adopts = adopts  # the producer has yet to say where the stream is
        self.next_id = next_id  # the next id expected from the producer
        self._max_tuples = max_tuples
        self._batches: deque[TupleBatch] = deque()
        self.pending_tuples = 0
        self.boundary_us = BEGINNING_US  # of what has been received
        self.taken_boundary_us = BEGINNING_US  # of what has been handed on
        self.duplicates_dropped = 0
        self.credit_until = 0 if adopts else next_id + max_tuples
        self._credit_told = 0
        self.notes = ComingNotes(stream, next_note)
        self.stop_before = NO_ID  # tuples from this id on are not handed on
        self.stop_note = NO_ID  # notes from this number on are not handed on

    def receive(
        self, batch: TupleBatch, notes_before: int = 0, notes: tuple[PlacedNote, ...] = ()
    ) -> bool:
        """Take the next tuples and notes; False when something before them is missing.

        Tuples with an id below `next_id` are duplicates: dropped and counted. [HA §6]

        Args:
            batch: The tuples.
            notes_before: All notes with lower numbers must have come before.
            notes: Those that stand in the batch, or right before or behind it.

        Raises:
            RemoteProtocolError: A note stands where none can.
        """
        if self.adopts or batch.first_id > self.next_id or notes_before > self.notes.next_number:
            return False
        self._receive_tuples(batch)
        if notes:
            self.notes.receive(notes, self.taken_before, self.next_id)
        return True

    def receive_notes(
        self, sent_before: int, notes_before: int, notes: tuple[PlacedNote, ...]
    ) -> bool:
        """Take notes that came without tuples; False when something before them is missing.

        Args:
            sent_before: All tuples with lower ids were sent before.
            notes_before: The same of notes.
            notes: Those that follow.

        Raises:
            RemoteProtocolError: A note stands where none can.
        """
        if self.adopts or sent_before > self.next_id or notes_before > self.notes.next_number:
            return False
        self.notes.receive(notes, self.taken_before, self.next_id)
        return True

    def _receive_tuples(self, batch: TupleBatch) -> None:
        if batch.next_id <= self.next_id:
            self.duplicates_dropped += batch.count
            self.boundary_us = max(self.boundary_us, batch.boundary_us)
            return
        self.duplicates_dropped += self.next_id - batch.first_id
        batch = batch.starting_at(self.next_id)
        self._batches.append(batch)
        self.pending_tuples += batch.count
        self.next_id = batch.next_id
        self.boundary_us = max(self.boundary_us, batch.boundary_us)

    def skip_to(self, next_id: int, next_note: int = 0) -> None:
        """The producer cannot send what comes before; nothing if that has been received."""
        self.next_id = max(self.next_id, next_id)
        self.notes.skip_to(next_note)

    def promise(self, next_id: int, boundary_us: int, next_note: int = 0) -> bool:
        """The producer has sent everything before `next_id`, and notes; False: some is missing."""
        if next_id > self.next_id or next_note > self.notes.next_number:
            return False
        if next_id == self.next_id:
            self.boundary_us = max(self.boundary_us, boundary_us)
        return True

    def adopt(self, next_id: int, next_note: int = 0) -> None:
        """The stream is there: what comes before has been missed."""
        self.adopts = False
        self.next_id = next_id
        self.notes.skip_to(next_note)
        self.credit_until = next_id + self._max_tuples

    def take(self, max_tuples: int) -> list[TupleBatch]:
        """Batches to process now, at least one if there is any, whole but where it must stop."""
        if self.notes.are_pending or self.stop_before != NO_ID:
            return self._take_to_stop(NO_ID, max_tuples)
        taken: list[TupleBatch] = []
        rows = 0
        while self._batches and (not taken or rows + self._batches[0].count <= max_tuples):
            batch = self._batches.popleft()
            rows += batch.count
            taken.append(batch)
            self.taken_boundary_us = max(self.taken_boundary_us, batch.boundary_us)
        self.pending_tuples -= rows
        if not self._batches:
            self.taken_boundary_us = max(self.taken_boundary_us, self.boundary_us)
        return taken

    def take_recorded(self, tuple_id: int) -> list[TupleBatch]:
        """All tuples before an id that has been received: it was decided once, and holds.

        Notes among them have come since, from a replacement of the producer: they are due behind.
        """
        if self.notes.are_pending:
            self.notes.move_to(tuple_id)
        return self._take_to_stop(tuple_id, NO_ID)

    def _take_to_stop(self, tuple_id: int, max_tuples: int) -> list[TupleBatch]:
        """Tuples before an id, before the next note, and before what must wait for a cut."""
        stop = min(tuple_id, self.stop_before, self.notes.next_place)
        taken: list[TupleBatch] = []
        rows = 0
        while self._batches and self._batches[0].first_id < stop:
            if taken and rows + self._batches[0].count > max_tuples:
                break
            batch = self._batches.popleft()
            if batch.next_id > stop:
                self._batches.appendleft(batch.starting_at(stop))
                batch = batch.before(stop)
            else:
                self.taken_boundary_us = max(self.taken_boundary_us, batch.boundary_us)
            rows += batch.count
            taken.append(batch)
        self.pending_tuples -= rows
        if tuple_id == NO_ID and self._is_all_taken:
            self.taken_boundary_us = max(self.taken_boundary_us, self.boundary_us)
        return taken

    def drop_from(self, tuple_id: int, acted_us: int) -> None:
        """The producer has gone back, and will send others from an id on: forget those that came.

        Args:
            tuple_id: The first of them; it has not been handed on.
            acted_us: The boundary that has been acted on; later ones may be promised no more.

        Raises:
            LocalProtocolError: It has been handed on.
        """
        if tuple_id < self.taken_before:
            raise LocalProtocolError(f"{self.stream}: {tuple_id} is void, and was handed on")
        while self._batches and self._batches[-1].next_id > tuple_id:
            batch = self._batches.pop()
            if batch.first_id < tuple_id:
                self._batches.append(batch.before(tuple_id))
                break
        dropped = max(0, self.next_id - tuple_id)
        self.pending_tuples -= dropped
        self.next_id -= dropped
        self.notes.drop_from(tuple_id)
        self.taken_boundary_us = min(self.taken_boundary_us, acted_us)
        self.boundary_us = self.taken_boundary_us

    @property
    def _is_all_taken(self) -> bool:
        """Whether nothing that has come stands between what was taken and the boundary."""
        return not self._batches and not self.notes.are_pending and self.next_id < self.stop_before

    @property
    def is_note_due(self) -> bool:
        """Whether a note stands right behind what has been taken."""
        notes = self.notes
        if not notes.are_pending or notes.taken_before >= self.stop_note:
            return False
        return notes.next_place <= self.taken_before

    def take_note(self) -> PlacedNote | None:
        """The note that is due, if one is."""
        return self.notes.take() if self.is_note_due else None

    def stop_at(self, tuple_id: int, note: int = NO_ID) -> None:
        """Hand nothing on from this tuple, and from the note with this number, on."""
        self.stop_before, self.stop_note = tuple_id, note

    def go_on(self) -> None:
        """The cut has been taken."""
        self.stop_at(NO_ID)

    @property
    def taken_before(self) -> int:
        """All tuples before this id have been handed on."""
        return self.next_id - self.pending_tuples

    @property
    def has_work(self) -> bool:
        """Whether a note, tuples or a boundary wait that may be handed on now."""
        if self.notes.are_pending or self.stop_before != NO_ID:
            return self._has_work_before_stop
        return bool(self._batches) or self.boundary_us > self.taken_boundary_us

    @property
    def _has_work_before_stop(self) -> bool:
        if self.is_note_due or (self._batches and self._batches[0].first_id < self.stop_before):
            return True
        return self._is_all_taken and self.boundary_us > self.taken_boundary_us

    @property
    def is_ended(self) -> bool:
        """Whether the producer promised that nothing follows, and all was taken."""
        all_taken = not self._batches and not self.notes.are_pending
        return all_taken and self.taken_boundary_us == END_US

    def room(self, held_elsewhere: int = 0, decided_before: int = 0) -> int:
        """How many more tuples fit.

        Args:
            held_elsewhere: Tuples of this stream taken but still waiting for other streams.
            decided_before: What comes before this id takes no room: that it will be taken is
                decided.
        """
        taken_before = max(self.next_id - self.pending_tuples, decided_before)
        return max(0, taken_before + self._max_tuples - self.next_id - held_elsewhere)

    @property
    def reading_room(self) -> int:
        """Least room with which a source is read once more; tuples."""
        return self._max_tuples // 2

    def refresh_credit(self, held_elsewhere: int = 0, decided_before: int = 0) -> int:
        """The absolute id up to which the producer may send; never moves back. Args as `room`."""
        if self.adopts:
            return self.credit_until
        room = self.room(held_elsewhere, decided_before)
        self.credit_until = max(self.credit_until, self.next_id + room)
        return self.credit_until

    def credit_is_due(self) -> bool:
        """Whether enough room has come free that the producer should hear of it at once."""
        return self.credit_until - self._credit_told >= self._max_tuples // 2

    def credit_told(self) -> None:
        """The producer has been told `credit_until`."""
        self._credit_told = self.credit_until

    def check_invariants(self) -> None:
        """Raise `InvariantViolation` unless batches are consecutive and the bound holds."""
        expected = None
        for batch in self._batches:
            if expected is not None and batch.first_id != expected:
                raise InvariantViolation(f"{self.stream}: gap in the input queue at {expected}")
            expected = batch.next_id
        if expected is not None and expected != self.next_id:
            raise InvariantViolation(f"{self.stream}: input queue ends at {expected}")
        if self.notes.next_place < self.taken_before:
            raise InvariantViolation(f"{self.stream}: tuples were taken ahead of a note")
        self.notes.check_invariants()
