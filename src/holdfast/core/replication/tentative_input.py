"""The tentative suffix of an input stream: what has come of it and is not taken. [DPC §3.1]

Theory of operation. Tentative tuples come behind the stable ones of their stream, in one *run* at a
time. `Undo(run)`, in its place among the stable tuples, makes void what came of the run; so does a
later run, and a replacement of the producer, whose runs are others. What comes late of a run that
is void is dropped: frames may be old.

Nothing is sent twice: what is lost with a connection is lost, and nobody waits for it. Frames of
the run that counts may be old, too: they arrive once more, or after the boundary that was sent
behind them. So tuples are dropped if the run has come further, by its ids or by its boundary. Ids
also say how much of the run has come, for its credit; those of two runs cannot be compared.

A producer may have replicas, whose runs have nothing to do with each other. Going from one of them
to another (`go_over`), the reader keeps what it has taken and takes of the other's run what is
younger: the newest time taken is the paper's t_max. What is as old may be lost; none comes twice.

Invariant: what waits here is of the one run that counts.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from holdfast.core.errors import InvariantViolation
from holdfast.core.model.ids import BEGINNING_US

if TYPE_CHECKING:
    from holdfast.core.model.ids import Run, StreamId
    from holdfast.core.model.tuples import TupleBatch


class TentativeInput:
    """The suffix of one stream. Volatile: all fields."""

    __slots__ = (
        "_credit_told",
        "_had",
        "_is_gone_over",
        "_is_undone",
        "_newest_us",
        "_not_before_us",
        "_pending",
        "_taken_us",
        "boundary_us",
        "missing",
        "next_id",
        "pending_tuples",
        "run",
    )

    def __init__(self) -> None:
        """Nothing has come."""
        self.run: Run | None = None
        """The run that counts; None: none does."""
        self.next_id = 0  # of the run: all that has come of it is before this
        self.boundary_us = BEGINNING_US  # what it has promised
        self.missing: tuple[StreamId, ...] = ()
        """Source streams that it was made without; empty: that has not come."""
        self._had: Run | None = None  # of this run and those before it nothing counts any more
        self._pending: deque[TupleBatch] = deque()
        self.pending_tuples = 0
        self._taken_us = BEGINNING_US  # which boundary has been taken
        self._is_undone = False
        self._credit_told = 0
        self._is_gone_over = False  # what has been taken is of a run of another replica
        self._newest_us = BEGINNING_US  # the time of the newest tuple that has been taken
        self._not_before_us = BEGINNING_US  # older tuples of the run count no more

    # -- what comes -------------------------------------------------------------------------

    def receive(self, run: Run, batch: TupleBatch) -> None:
        """Tuples of a run; its boundary may have moved on. Those that are late are dropped."""
        if not self._counts(run):
            return
        next_id = batch.next_id
        if self._not_before_us > BEGINNING_US:
            batch = batch.not_older_than(self._not_before_us)
        if self._is_late(batch):
            return
        self.next_id = max(self.next_id, next_id)
        self.boundary_us = max(self.boundary_us, batch.boundary_us)
        if batch.count:
            self._pending.append(batch)
            self.pending_tuples += batch.count

    def _is_late(self, batch: TupleBatch) -> bool:
        """Whether tuples of the run that counts stand before what has come of it.

        Those of a run that is gone over to have been cut at what had been taken before.
        """
        is_passed = batch.count > 0 and int(batch.time_us.min()) < self.boundary_us
        return is_passed or batch.first_id < self.next_id

    def promise(self, run: Run, boundary_us: int, missing: tuple[StreamId, ...] = ()) -> None:
        """Nothing older will come of a run, which was made without these source streams."""
        if self._counts(run):
            self.missing = missing or self.missing
            self.boundary_us = max(self.boundary_us, boundary_us)

    def _counts(self, run: Run) -> bool:
        """Whether a run is the one that counts; a later one than any before begins to."""
        if self.run is not None and run > self.run:
            self.void()
        if self.run is None and (self._had is None or run > self._had):
            self.run = run
        return run == self.run

    def undo(self, run: Run) -> None:
        """A run, and all before it, are void."""
        if self.run is not None and self.run <= run:
            self.void()
        if self._had is None or self._had < run:
            self._had = run

    def void(self) -> None:
        """The run that counts is void."""
        if self.run is None and not self._is_gone_over:
            return
        self._had, self.run = self.run or self._had, None
        self.next_id = self.pending_tuples = self._credit_told = 0
        self._pending.clear()
        self.missing = ()
        self.boundary_us = self._taken_us = BEGINNING_US
        self._newest_us = self._not_before_us = BEGINNING_US
        self._is_undone, self._is_gone_over = True, False

    def go_over(self) -> None:
        """Another replica goes on with a run of its own: what was taken stays, and counts."""
        self._is_gone_over = self._is_gone_over or self.run is not None
        self.run = self._had = None
        self.next_id = self.pending_tuples = self._credit_told = 0
        self._pending.clear()
        self.missing = ()
        self._not_before_us = max(self._taken_us, self._newest_us + 1, self._not_before_us)
        self.boundary_us = self._taken_us

    def change_producer(self) -> None:
        """Another replica goes on that has none: what came is void, and runs count anew."""
        self.void()
        self._had = None

    def overtaken(self, stable_us: int) -> None:
        """All that is older than this has been taken as stable: what is tentative of it is void.

        Only where another replica has sent what is stable: 1. The main one is in up_failure. 2. One
        that has corrected is read aside, up to the end of the stream. 3. What is left of the run
        stands for tuples that have been taken.
        """
        if self._pending and stable_us > BEGINNING_US:
            rest = [batch.not_older_than(stable_us) for batch in self._pending]
            self._pending = deque(batch for batch in rest if batch.count)
            self.pending_tuples = sum(batch.count for batch in self._pending)
        if self.boundary_us <= stable_us:
            self._taken_us = self.boundary_us

    # -- what is taken ------------------------------------------------------------------------

    @property
    def has_news(self) -> bool:
        """Whether tuples or a boundary wait."""
        return bool(self._pending) or self.boundary_us > self._taken_us

    @property
    def is_undone(self) -> bool:
        """Whether what was taken before is void, and nobody has been told."""
        return self._is_undone

    def take_undone(self) -> bool:
        """The same; from now on somebody has."""
        is_undone, self._is_undone = self._is_undone, False
        return is_undone

    def take(self) -> list[TupleBatch]:
        """All that waits; its boundary goes with it."""
        taken = list(self._pending)
        for batch in taken:
            self._newest_us = max(self._newest_us, int(batch.time_us.max()))
        self._pending.clear()
        self.pending_tuples = 0
        self._taken_us = self.boundary_us
        return taken

    # -- credit -------------------------------------------------------------------------------

    def credit(self, held_tuples: int, max_tuples: int) -> int:
        """The id up to which more of the run may be sent.

        Args:
            held_tuples: So many have been taken and wait elsewhere.
            max_tuples: About how many to hold at most.
        """
        return self.next_id + max(0, max_tuples - held_tuples - self.pending_tuples)

    def credit_is_due(self, credit_until: int, max_tuples: int) -> bool:
        """Whether enough room has come free that the producer should hear of it at once."""
        return self.run is not None and credit_until - self._credit_told >= max_tuples // 2

    def credit_told(self, credit_until: int) -> None:
        """The producer has been told."""
        self._credit_told = credit_until

    def check_invariants(self) -> None:
        """Raise `InvariantViolation` when something waits of a run that does not count."""
        if self.run is None and self._pending:
            raise InvariantViolation("tentative tuples of a run that is void wait")
        if self.pending_tuples != sum(batch.count for batch in self._pending):
            raise InvariantViolation("tentative tuples are counted wrongly")
