"""The state of a node with one input stream, which is that of the stream. [DPC §3.2]

Theory of operation. Who reads one stream waits for no other. It takes stable tuples as they come,
in the order of their ids. When tentative ones come it holds the cut and goes on with them at once.
When they are void it goes back at once, as there is nothing else to go on with: what the producer
corrects, it corrects with it. Its correction is over when the stream has promised, as stable, what
was processed as tentative. New tentative tuples before that are of a correction in part. A node
with other replicas goes back when it has a turn, and takes what comes as tentative until then.

Stable tuples that come while tentative ones stand say the same as an undo: frames can be lost, and
the undo stands behind tuples that are to be taken first.

A node that waits for its bound by itself is another one (waiting_alone.py). States and what is done
between them are those of every node (consistency_manager.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.core.errors import InvariantViolation
from holdfast.core.model.ids import BEGINNING_US, END_US
from holdfast.core.replication.consistency_manager import (
    Action,
    Consistency,
    Event,
    StateOfNode,
    Step,
)
from holdfast.core.replication.turns import Turn

if TYPE_CHECKING:
    from holdfast.core.replication.consistency_manager import ConsistencyStatistics


class Follower:
    """The state of one node. Volatile: all fields; a new incarnation begins as stable."""

    def __init__(self, turn: Turn | None = None) -> None:
        """Begin as stable, where nothing has come; `turn` says when it may correct."""
        self.turn = turn or Turn(is_needed=False)
        self._state = StateOfNode()
        self._has_stable = False  # waiting
        self._has_tentative = False  # waiting
        self._is_undone = False  # what was processed as tentative
        self.acted_us = BEGINNING_US
        """Stable passes have acted on this."""
        self._target_us = BEGINNING_US  # beyond all that was processed as tentative

    @property
    def state(self) -> Consistency:
        """Of the node."""
        return self._state.now

    def resume(self, boundary_us: int, now_ms: int) -> None:
        """Everything before this boundary has been processed by another incarnation."""
        del now_ms
        self.acted_us = boundary_us

    # -- what comes -------------------------------------------------------------------------

    def waits(self, *, stable: bool, tentative: bool) -> None:
        """Whether stable tuples or boundaries, and tentative ones, have come and are not taken."""
        self._has_stable, self._has_tentative = stable, tentative

    def undone(self) -> None:
        """What came as tentative is void."""
        self._is_undone = True

    def went_on_to(self, target_us: int) -> None:
        """What is older than this may have been processed as tentative."""
        self._target_us = max(self._target_us, target_us)

    # -- what to do -------------------------------------------------------------------------

    def behind(self, boundary_us: int) -> tuple[int, ...]:
        """The one stream has not promised this as stable."""
        del boundary_us
        return (0,)

    def next_step(self, now_ms: int) -> Step | None:
        """What to do now; None: wait for what comes."""
        if self.state is Consistency.UP_FAILURE:
            healed = self._healed(now_ms)
            if healed is not None and self.turn.is_mine():
                return self._state.step(healed)
            takes_it = self._takes_tentative(now_ms)
            return Step(None, None, BEGINNING_US, True) if takes_it else None
        is_correcting = self.state is Consistency.STABILIZATION or self._state.is_partly_corrected
        if is_correcting and self.acted_us >= self._target_us:
            return self._state.step(Event.CORRECTED)
        if self._has_stable:
            return Step(None, None, END_US)
        if not self._takes_tentative(now_ms):
            return None
        if self.state is Consistency.STABILIZATION:
            return self._state.step(Event.PARTLY_CORRECTED)
        return Step(Event.MISSING, Action.HOLD_CUT, BEGINNING_US, is_tentative=True)

    def _healed(self, now_ms: int) -> Event | None:
        """What makes a node in up_failure go back; None: nothing yet."""
        del now_ms
        return Event.HEALED if self._is_undone or self._has_stable else None

    def _takes_tentative(self, now_ms: int) -> bool:
        """Whether it goes on with what has come as tentative."""
        del now_ms
        return self._has_tentative

    def due_ms(self) -> int | None:
        """Nothing waits for a time."""
        return None

    def did(self, step: Step, boundary_us: int | None, now_ms: int) -> None:
        """The step has been done; args as in `ConsistencyManager`."""
        if step.event is not None:
            action = self._state.change(step.event, now_ms)
            if action is Action.HOLD_CUT:
                self._is_undone = False
        if boundary_us is None:
            return
        if step.is_tentative:
            self.went_on_to(boundary_us)
        else:
            self.acted_us = max(self.acted_us, boundary_us)

    # -- looking ----------------------------------------------------------------------------

    @property
    def is_finished(self) -> bool:
        """Whether the stream has ended and everything has been acted on as stable."""
        is_corrected = not self._state.is_partly_corrected
        return self.state is Consistency.STABLE and is_corrected and self.acted_us == END_US

    def statistics(self) -> ConsistencyStatistics:
        """Counts now."""
        return self._state.statistics(self.turn)

    def check_invariants(self) -> None:
        """Raise `InvariantViolation` when what was tentative has been acted on as stable."""
        if self.state is Consistency.UP_FAILURE and self.acted_us == END_US:
            raise InvariantViolation("tentative tuples stand behind the end of a stream")
