"""The tentative suffix of an output edge. [DPC "SOutput", §3.1]

Theory of operation. Behind the stable tuples, which the edge's queue numbers and keeps, stand those
of a run. They are kept until they are sent, and never sent twice: a receiver that has lost some
goes on without, as all of them will be undone. They are sent once all that is stable has been, and
as far as credit of their own allows: ids of the run, as a suffix has no bound in those of stable
tuples.

Undo and rec_done are notes between the stable tuples, so that they come in their place.

Invariants: what is unsent is the end of the run, without a gap; no stable tuple is put out while
there is a run.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from holdfast.core.errors import InvariantViolation
from holdfast.core.model.ids import BEGINNING_US
from holdfast.core.model.tuples import TupleBatch, TupleType, in_parts
from holdfast.core.replication.soutput import SOutput

if TYPE_CHECKING:
    import pyarrow as pa

    from holdfast.core.model.ids import Incarnation, Run, StreamId

_KEPT_UNREAD: Final = 1 << 14


class Suffix:
    """What one edge says beside its stable tuples. Volatile: all fields."""

    def __init__(self, incarnation: Incarnation, room: int) -> None:
        """Nothing is tentative.

        Args:
            incarnation: The node's.
            room: How many tuples of a run may be sent before its receiver speaks of it.
        """
        self._output = SOutput(incarnation, 0)
        self._room = room
        self._unsent: deque[TupleBatch] = deque()
        self._next_unsent = 0  # the id that is sent next
        self._until = 0  # ids before it may be sent
        self._boundary_us = BEGINNING_US
        self._boundary_sent_us = BEGINNING_US
        self._missing: tuple[StreamId, ...] = ()  # what the newest of the run was made without
        self._missing_told: tuple[StreamId, ...] = ()

    @property
    def run(self) -> Run | None:
        """The suffix that receivers have, or will have."""
        return self._output.run

    @property
    def unsent_tuples(self) -> int:
        """How many tuples wait for credit or for a subscriber."""
        return sum(batch.count for batch in self._unsent)

    # -- putting out --------------------------------------------------------------------------

    def lacks(self, missing: tuple[StreamId, ...], stable_before: int) -> None:
        """What is put out next of the run, which may begin here, lacks: source streams."""
        self._put(0, stable_before)
        self._missing = missing

    def put_out(self, batch: pa.RecordBatch, created_us: int, stable_before: int) -> None:
        """Tentative tuples come.

        Args:
            batch: The rows, the time column last.
            created_us: Creation time of the oldest row.
            stable_before: The id behind the last stable tuple.
        """
        first_id = self._put(batch.num_rows, stable_before)
        if batch.num_rows:
            tuples = TupleBatch(
                first_id, batch, BEGINNING_US, created_us, tuple_type=TupleType.TENTATIVE
            )
            self._unsent.extend(in_parts(tuples))

    def promise(self, boundary_us: int, stable_before: int) -> None:
        """Nothing older will be put out in this run."""
        self._put(0, stable_before)
        self._boundary_us = max(self._boundary_us, boundary_us)

    def _put(self, count: int, stable_before: int) -> int:
        """Number so many tuples of the run, which may begin here; the id of the first one."""
        if self._output.run is None:
            self._output.stable_before = stable_before
            self._next_unsent, self._until = stable_before, stable_before + self._room
            self._boundary_us = self._boundary_sent_us = BEGINNING_US
            self._missing = self._missing_told = ()
        return self._output.tentative(count)

    def undo(self) -> Run | None:
        """All of the run is void; the run to say so of, None if there is none."""
        self._unsent.clear()
        return self._output.undo()

    def rec_done(self) -> Run | None:
        """All of it has come as stable; the run to say so of, None if none was undone."""
        return self._output.rec_done()

    # -- sending ------------------------------------------------------------------------------

    def grant(self, run: Run | None, until: int) -> None:
        """Tuples of a run before this id may be sent."""
        if run is not None and run == self._output.run:
            self._until = max(self._until, until)

    def subscribed(self) -> None:
        """The receiver, perhaps another incarnation of it, goes on with what is not sent."""
        self._until = self._next_unsent + self._room
        self._boundary_sent_us = BEGINNING_US
        self._missing_told = ()

    def take_missing(self) -> tuple[StreamId, ...]:
        """What the run was made without, if that is to be told now; it goes before the tuples."""
        if self.run is None or self._missing_told == self._missing:
            return ()
        self._missing_told = self._missing
        return self._missing

    def take_sendable(self) -> list[TupleBatch]:
        """Batches to send now; the last may be cut at the credit."""
        taken: list[TupleBatch] = []
        while self._unsent and self._unsent[0].first_id < self._until:
            batch = self._unsent.popleft()
            if batch.next_id > self._until:
                self._unsent.appendleft(batch.starting_at(self._until))
                batch = batch.before(self._until)
            self._next_unsent = batch.next_id
            taken.append(batch)
        return taken

    def forget_oldest(self) -> None:
        """Nobody reads it here: keep a few, for whoever goes over to this node."""
        unsent = self.unsent_tuples
        while self._unsent and unsent - self._unsent[0].count >= _KEPT_UNREAD:
            unsent -= self._unsent[0].count
            self._next_unsent = self._unsent.popleft().next_id

    def take_boundary(self) -> int | None:
        """The boundary of the run to tell now; None: it is known, or something stands before it."""
        if self._unsent or self.run is None or self._boundary_us <= self._boundary_sent_us:
            return None
        self._boundary_sent_us = self._boundary_us
        return self._boundary_us

    # -- looking ------------------------------------------------------------------------------

    def check_invariants(self, stable_before: int) -> None:
        """Raise `InvariantViolation` when what is unsent is not the end of the run.

        Args:
            stable_before: The id behind the last stable tuple of the edge.
        """
        self._output.check_invariants()
        if self.run is None:
            _require(not self._unsent, "tuples of no run wait to be sent")
            return
        output = self._output
        _require(output.stable_before == stable_before, "stable tuples behind a run")
        end = stable_before + output.tentative_tuples
        _require(self._next_unsent + self.unsent_tuples == end, "a gap in a run")
        if self._unsent:
            _require(self._unsent[0].first_id == self._next_unsent, "a gap in what is unsent")
        _require(self._boundary_sent_us <= self._boundary_us, "a promise that was never made")


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise InvariantViolation(otherwise)
