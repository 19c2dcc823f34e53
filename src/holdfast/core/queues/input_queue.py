"""An input queue: what arrived on one stream and is not yet processed. [HA §5]

It enforces that ids continue: tuples seen before are dropped and counted, a gap is reported so
that the node subscribes again. It grants credit so that it never holds more than its bound.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from holdfast.core.errors import InvariantViolation
from holdfast.core.model.ids import BEGINNING_US, END_US, StreamId

if TYPE_CHECKING:
    from holdfast.core.model.tuples import TupleBatch


class InputQueue:
    """The input queue of one stream. Volatile: all fields."""

    def __init__(
        self, stream: StreamId, *, next_id: int, max_tuples: int, adopts: bool = False
    ) -> None:
        """Expect `next_id` first, or whatever comes; hold at most about `max_tuples` of them."""
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

    def receive(self, batch: TupleBatch) -> bool:
        """Take the next tuples; False when tuples before them are missing.

        Tuples with an id below `next_id` are duplicates: dropped and counted. [HA §6]
        """
        if self.adopts or batch.first_id > self.next_id:
            return False
        if batch.next_id <= self.next_id:
            self.duplicates_dropped += batch.count
            self.boundary_us = max(self.boundary_us, batch.boundary_us)
            return True
        self.duplicates_dropped += self.next_id - batch.first_id
        batch = batch.starting_at(self.next_id)
        self._batches.append(batch)
        self.pending_tuples += batch.count
        self.next_id = batch.next_id
        self.boundary_us = max(self.boundary_us, batch.boundary_us)
        return True

    def skip_to(self, next_id: int) -> None:
        """The producer cannot send what comes before this id; nothing if that has been received."""
        self.next_id = max(self.next_id, next_id)

    def promise(self, next_id: int, boundary_us: int) -> bool:
        """The producer has sent everything before `next_id`; False when some of it is missing."""
        if next_id > self.next_id:
            return False
        if next_id == self.next_id:
            self.boundary_us = max(self.boundary_us, boundary_us)
        return True

    def adopt(self, next_id: int) -> None:
        """The stream is there: what comes before has been missed."""
        self.adopts = False
        self.next_id = next_id
        self.credit_until = next_id + self._max_tuples

    def take(self, max_tuples: int) -> list[TupleBatch]:
        """Batches to process now, whole ones, at least one if there is any."""
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

    def take_before(self, tuple_id: int) -> list[TupleBatch]:
        """All tuples before an id that has been received; the rest stays."""
        taken: list[TupleBatch] = []
        while self._batches and self._batches[0].first_id < tuple_id:
            batch = self._batches.popleft()
            if batch.next_id > tuple_id:
                self._batches.appendleft(batch.starting_at(tuple_id))
                batch = batch.before(tuple_id)
            else:
                self.taken_boundary_us = max(self.taken_boundary_us, batch.boundary_us)
            self.pending_tuples -= batch.count
            taken.append(batch)
        return taken

    def put_back(self, batch: TupleBatch) -> None:
        """Return the rest of a taken batch to the head of the queue."""
        self._batches.appendleft(batch)
        self.pending_tuples += batch.count

    @property
    def has_work(self) -> bool:
        """Whether tuples or a boundary wait to be processed."""
        return bool(self._batches) or self.boundary_us > self.taken_boundary_us

    @property
    def is_ended(self) -> bool:
        """Whether the producer promised that nothing follows, and all was taken."""
        return not self._batches and self.taken_boundary_us == END_US

    def room(self, held_elsewhere: int = 0, decided_before: int = 0) -> int:
        """How many more tuples fit.

        Args:
            held_elsewhere: Tuples of this stream taken but still waiting for other streams.
            decided_before: What comes before this id takes no room: that it will be taken is
                decided.
        """
        taken_before = max(self.next_id - self.pending_tuples, decided_before)
        return max(0, taken_before + self._max_tuples - self.next_id - held_elsewhere)

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
