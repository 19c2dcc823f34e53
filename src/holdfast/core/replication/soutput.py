"""SOutput: an output stream as a stable prefix and a tentative suffix. [DPC "SOutput", §3.1]

Theory of operation. Stable tuples have the ids that they would have without any failure, gap-free.
Behind the last of them there may be a *run* of tentative tuples, which take ids from there on;
`Undo(run)` makes all of the run void, stable tuples take the same ids, and `RecDone(run)` says that
the correction is over. So a reader keeps a prefix that only grows, and at most one suffix.

A node that goes back to a cut may put out stable tuples again that it has put out before, on
streams that the failure did not reach. They are dropped by id (`fresh_from`).

Whoever takes over from an incarnation that had left a run open undoes it first. It may be in a
failure of its own before it has corrected that: then the end of that correction ends both.

Invariants: what was put out as stable is never undone; there is one open run at most; nothing is
undone where nothing tentative was put out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.core.errors import InvariantViolation
from holdfast.core.model.ids import Run

if TYPE_CHECKING:
    from holdfast.core.model.ids import Incarnation


class SOutput:
    """What one output stream has said. Volatile: all fields."""

    def __init__(
        self, incarnation: Incarnation, stable_before: int, left_open: Run | None = None
    ) -> None:
        """Go on where the stream is.

        Args:
            incarnation: The node's.
            stable_before: The id behind the last stable tuple.
            left_open: A run of an earlier incarnation that nobody has undone.
        """
        self._incarnation = incarnation
        self._runs = 0
        self.stable_before = stable_before
        self.run = left_open
        """The tentative suffix that readers have; None: there is none."""
        self.tentative_tuples = 0
        """How many tuples this incarnation has put out in it."""
        self.correcting: Run | None = None
        """The run whose correction has begun and is not over."""
        self.tentative_total = 0
        self.undone_total = 0

    def tentative(self, count: int) -> int:
        """Put out so many tentative tuples; the id of the first one."""
        if self.run is None:
            self._runs += 1
            self.run = Run(self._incarnation, self._runs)
            self.tentative_tuples = 0
        first_id = self.stable_before + self.tentative_tuples
        self.tentative_tuples += count
        self.tentative_total += count
        return first_id

    def undo(self) -> Run | None:
        """Make the suffix void; the run to say so of, None if there is nothing to undo."""
        undone, self.run = self.run, None
        if undone is not None:
            self.undone_total += self.tentative_tuples
            self.tentative_tuples = 0
            self.correcting = undone
        return undone

    def fresh_from(self, first_id: int, next_id: int) -> int:
        """Stable tuples with ids [first_id, next_id) come: that from which on they are new.

        Raises:
            InvariantViolation: They would leave a gap, or come while a suffix stands.
        """
        if first_id > self.stable_before:
            raise InvariantViolation(f"stable tuples {first_id} behind {self.stable_before}")
        if self.run is not None and next_id > self.stable_before:
            raise InvariantViolation(f"stable tuple {next_id - 1} behind tentative ones")
        fresh_from = min(self.stable_before, next_id)
        self.stable_before = max(self.stable_before, next_id)
        return fresh_from

    def rec_done(self) -> Run | None:
        """The correction is over; the run to say so of, None if none was undone."""
        done, self.correcting = self.correcting, None
        return done

    def check_invariants(self) -> None:
        """Raise `InvariantViolation` when what is undone was never tentative."""
        if self.run is None and self.tentative_tuples:
            raise InvariantViolation(f"{self.tentative_tuples} tentative tuples of no run")
        if self.tentative_tuples + self.undone_total > self.tentative_total:
            raise InvariantViolation(f"more than {self.tentative_total} tentative tuples undone")
