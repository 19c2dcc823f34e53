"""The consistency manager: whether a node's output is stable, tentative or being corrected. [DPC]

Theory of operation. A node is in one of three states [DPC Figure "node states"]; `TRANSITIONS` is
the whole of it.

- `STABLE`: it processes up to what all streams have promised.
- `UP_FAILURE`: something has waited for the bound (input_delay.py), or tentative tuples have come.
  The node has held the cut where it was, and goes on without what is missing. All that it puts out
  from there on is tentative.
- `STABILIZATION`: all streams have promised, as stable, what the node has gone to without them. It
  has gone back to the cut and processes what is stable, up to there. New input waits meanwhile.

A stream may be behind for ever, and still move. Then the stable output would never come, and those
who wait for it might be the ones for whom the stream waits. So what all streams have promised is
corrected after `PATIENCE` times the bound, though it is not all: a correction *in part*, behind
which the node goes on at once without what is missing. It is not said to be over, unless the rest
comes before the node has gone on. The same goes for what the streams of one output have promised,
if others have no part in it (reached_outputs.py).

The manager is told what comes and what time it is, and says what to do next (`next_step`), one step
at a time; its owner does it and says so (`did`). It never waits for anything to leave
STABILIZATION: what is to be processed again has all come. So a failure within a correction begins
when that is over: the end of the correction is always said before it.

A node with other replicas goes back when it has a turn (turns.py), and goes on as it is until then.

Invariants: a cut is held exactly in UP_FAILURE; what was acted on as stable never moves back but to
the cut; a correction ends where all that was put out as tentative has been corrected.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from holdfast.core.errors import InvariantViolation
from holdfast.core.model.ids import BEGINNING_US, END_US
from holdfast.core.replication.reached_outputs import ReachedOutputs
from holdfast.core.replication.turns import Turn

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from holdfast.core.replication.input_delay import DuringFailure, InputDelay
    from holdfast.core.replication.waiting_alone import OwnWait


PATIENCE: Final = 4
"""So many bounds stable input waits for more of it, before it is processed."""


class Consistency(enum.Enum):
    """The state of a node."""

    STABLE = "stable"
    UP_FAILURE = "up_failure"
    STABILIZATION = "stabilization"


class Event(enum.Enum):
    """What changes it."""

    MISSING = "something has waited for the bound, or tentative tuples have come"
    HEALED = "all streams have promised, as stable, what was processed without them"
    OVERDUE = "they, or all that reach one output, have promised a part of that, long ago"
    CORRECTED = "what is stable has been processed up to there"
    PARTLY_CORRECTED = "the same of a part of that"


class Action(enum.Enum):
    """What the node does when it changes."""

    HOLD_CUT = "hold the cut"
    GO_BACK = "go back to the cut, say undo"
    SAY_DONE = "say rec_done"
    GO_ON = "go on"


TRANSITIONS: Final[dict[tuple[Consistency, Event], tuple[Consistency, Action]]] = {
    (Consistency.STABLE, Event.MISSING): (Consistency.UP_FAILURE, Action.HOLD_CUT),
    (Consistency.UP_FAILURE, Event.HEALED): (Consistency.STABILIZATION, Action.GO_BACK),
    (Consistency.UP_FAILURE, Event.OVERDUE): (Consistency.STABILIZATION, Action.GO_BACK),
    (Consistency.STABILIZATION, Event.CORRECTED): (Consistency.STABLE, Action.SAY_DONE),
    (Consistency.STABILIZATION, Event.PARTLY_CORRECTED): (Consistency.STABLE, Action.GO_ON),
    (Consistency.STABLE, Event.CORRECTED): (Consistency.STABLE, Action.SAY_DONE),
}
"""All that may happen; anything else changes nothing."""


class Step(NamedTuple):
    """What to do next.

    Attributes:
        event: Of what has happened; None: there is nothing but a pass to run.
        action: What to do of it first; None: nothing.
        boundary_us: Process what is older, as `is_tentative` says; None: no pass.
        is_tentative: Whether the pass goes on without what is missing.
    """

    event: Event | None
    action: Action | None
    boundary_us: int | None = None
    is_tentative: bool = False


@dataclass(frozen=True, slots=True)
class ConsistencyStatistics:
    """What has happened so far.

    Attributes:
        state: Of the node.
        since_ms: When it came into it.
        failures: How often it has been in UP_FAILURE.
        delay_max_ms: The longest that input has waited for other streams, corrections apart.
        correction_delay_max_ms: The longest that input has waited for a correction.
        stabilization_ms: How long the last correction took; 0 if there was none.
        waits_for_turn: Whether it would correct if it had a turn.
    """

    state: Consistency
    since_ms: int
    failures: int
    delay_max_ms: int
    correction_delay_max_ms: int
    stabilization_ms: int
    waits_for_turn: bool


class StateOfNode:
    """Where a node is in the table, and since when. Volatile: all fields."""

    def __init__(self) -> None:
        """Begin as stable."""
        self.now = Consistency.STABLE
        self.is_partly_corrected = False
        """Whether the last correction was one in part, and the node has not gone on yet."""
        self._since_ms = 0
        self._failures = 0
        self._stabilization_ms = 0

    def step(self, event: Event) -> Step:
        """The step that an event asks for, without a pass."""
        return Step(event, self.action_of(event))

    def action_of(self, event: Event) -> Action:
        """What to do of an event. Raises `KeyError`: it is none of this state."""
        return TRANSITIONS[self.now, event][1]

    def change(self, event: Event, now_ms: int) -> Action:
        """It has happened; what was done of it.

        Raises:
            InvariantViolation: It is none of this state.
        """
        if (self.now, event) not in TRANSITIONS:
            raise InvariantViolation(f"not of a node that is {self.now.value}: {event.value}")
        following, action = TRANSITIONS[self.now, event]
        if action is Action.HOLD_CUT:
            self._failures += 1
        elif action is not Action.GO_BACK:
            self._stabilization_ms = now_ms - self._since_ms
        self.is_partly_corrected = action is Action.GO_ON
        self.now, self._since_ms = following, now_ms
        return action

    def statistics(
        self, turn: Turn, delay_max_ms: int = 0, correction_delay_max_ms: int = 0
    ) -> ConsistencyStatistics:
        """Counts now; the delays as in `ConsistencyStatistics`, and the node's turn."""
        return ConsistencyStatistics(
            state=self.now,
            since_ms=self._since_ms,
            failures=self._failures,
            delay_max_ms=delay_max_ms,
            correction_delay_max_ms=correction_delay_max_ms,
            stabilization_ms=self._stabilization_ms,
            waits_for_turn=turn.is_waiting,
        )


class Overdue:
    """Since when stable input waits in up_failure, and how long it may. Volatile: all fields."""

    def __init__(self, bound_ms: int) -> None:
        """None waits; `bound_ms` is the paper's αX."""
        self._patience_ms = PATIENCE * bound_ms
        self._from_ms: int | None = None

    @property
    def has_input(self) -> bool:
        """Whether some waits."""
        return self._from_ms is not None

    def waits(self, now_ms: int) -> None:
        """Some waits, since now at the latest."""
        if self._from_ms is None:
            self._from_ms = now_ms

    def over(self) -> None:
        """None waits any more."""
        self._from_ms = None

    def is_due(self, now_ms: int) -> bool:
        """Whether it has waited for long enough."""
        return self._from_ms is not None and self._from_ms + self._patience_ms <= now_ms

    def due_ms(self, other_ms: int | None, turn: Turn) -> int | None:
        """When it will have, or what is due at another time, whichever comes first; None: never."""
        if self._from_ms is None or turn.is_waiting:
            return other_ms
        due_ms = self._from_ms + self._patience_ms
        return due_ms if other_ms is None else min(due_ms, other_ms)


class ConsistencyManager:
    """The state of a node that merges streams.

    Volatile: all fields; a new incarnation begins as stable.
    """

    def __init__(
        self,
        streams: int,
        delay: InputDelay,
        turn: Turn | None = None,
        during_stabilization: DuringFailure | None = None,
        own_wait: OwnWait | None = None,
    ) -> None:
        """Begin as stable, where nothing has come.

        Args:
            streams: Input streams.
            delay: Their waiting.
            turn: When it may correct; None: when it wants to.
            during_stabilization: What is done with new tuples while it waits for its turn; None:
                the same as before.
            own_wait: Until when it does not go on with what is tentative; None: it does at once.
        """
        self.delay = delay
        self.turn = turn or Turn(is_needed=False)
        self._during_failure = delay.during
        self._during_stabilization = during_stabilization or delay.during
        self._state = StateOfNode()
        self._stable_us = [BEGINNING_US] * streams  # promised as stable, and all before it is there
        self._tentative_us = [BEGINNING_US] * streams  # the same, tentative tuples included
        self._acted_us = BEGINNING_US  # by stable passes
        self._target_us = BEGINNING_US  # by the tentative passes of the last failure
        self._gone_us = BEGINNING_US  # by those since the cut, which may be behind the former
        self._outputs = ReachedOutputs()
        self._own_wait = own_wait
        self._corrected_us = BEGINNING_US  # where the present correction ends
        self._overdue = Overdue(delay.bound_ms)

    @property
    def state(self) -> Consistency:
        """Of the node."""
        return self._state.now

    def tell_outputs(self, reaching: Sequence[Sequence[int]]) -> None:
        """Some streams alone reach these outputs; others are not missing for them."""
        self._outputs = ReachedOutputs(reaching)

    def touched(self, streams: Collection[int]) -> None:
        """The tentative pass that is under way goes without these, or with what is tentative."""
        self._outputs.touched(streams, self._stable_us)

    def resume(self, boundary_us: int, now_ms: int) -> None:
        """Everything before this boundary has been processed by another incarnation."""
        self._acted_us = boundary_us
        self.delay.reached(boundary_us, now_ms)
        if self._own_wait is not None:
            self._own_wait.begin(now_ms)

    # -- what comes -------------------------------------------------------------------------

    def came(self, promises: Sequence[tuple[int, int]], newest_us: int | None, now_ms: int) -> None:
        """Several streams have brought something, all of it stable.

        A stable node processes next what all have promised, so nothing of that waits for others.

        Args:
            promises: Streams, and what each promises now.
            newest_us: The time of the newest tuple; None: there is none.
            now_ms: The time.
        """
        stable_us = self._stable_us
        for stream, boundary_us in promises:
            if boundary_us > stable_us[stream]:
                stable_us[stream] = boundary_us
        if self._state.now is Consistency.STABLE:
            self.delay.reached(min(stable_us), now_ms)
        if newest_us is not None:
            self.delay.arrived(newest_us, now_ms)
        for stream, _ in promises:
            self._promised(stream, now_ms)
        self._mind_overdue(now_ms)

    def promised(self, stream: int, boundary_us: int, now_ms: int) -> None:
        """All of a stream that is older than this has been added, as stable."""
        self._stable_us[stream] = max(self._stable_us[stream], boundary_us)
        self._promised(stream, now_ms)
        self._mind_overdue(now_ms)

    def _mind_overdue(self, now_ms: int) -> None:
        """In up_failure stable input may wait from now on."""
        if self._own_wait is not None:
            self._own_wait.look(self._stable_us, now_ms)
        if self._state.now is not Consistency.UP_FAILURE or self._overdue.has_input:
            return
        if self.slowest_us > self._acted_us or self._outputs.waits(self._stable_us):
            self._overdue.waits(now_ms)

    def promised_tentative(self, stream: int, boundary_us: int, now_ms: int) -> None:
        """The same of a stream's stable tuples and the tentative ones behind them."""
        self._tentative_us[stream] = max(self._tentative_us[stream], boundary_us)
        self._promised(stream, now_ms)

    def _promised(self, stream: int, now_ms: int) -> None:
        boundary_us = max(self._stable_us[stream], self._tentative_us[stream])
        self.delay.promised(stream, boundary_us, now_ms)

    def undone(self, stream: int) -> None:
        """The tentative tuples of a stream are void."""
        self._tentative_us[stream] = BEGINNING_US
        self.delay.undone(stream, self._stable_us[stream])

    # -- what to do -------------------------------------------------------------------------

    @property
    def slowest_us(self) -> int:
        """What all streams have promised, as stable."""
        return min(self._stable_us)

    def behind(self, boundary_us: int) -> tuple[int, ...]:
        """The streams that have not promised a boundary, or as tentative alone."""
        promised = enumerate(self._stable_us)
        return tuple(stream for stream, stable_us in promised if stable_us < boundary_us)

    def next_step(self, now_ms: int) -> Step | None:
        """What to do now; None: wait, at the longest until `due_ms`."""
        state = self._state.now
        if state is Consistency.UP_FAILURE:
            healed = self._healed(now_ms)
            if healed is not None and self.turn.is_mine():
                return self._state.step(healed)
            is_waiting = healed is not None
            self.delay.during = self._during_stabilization if is_waiting else self._during_failure
            return self._tentative_step(None, self._gone_us, now_ms)
        if state is Consistency.STABILIZATION and self._acted_us >= self._corrected_us:
            is_all = self._acted_us >= self._target_us
            return self._state.step(Event.CORRECTED if is_all else Event.PARTLY_CORRECTED)
        if self._state.is_partly_corrected and self._acted_us >= self._target_us:
            return self._state.step(Event.CORRECTED)
        slowest_us = self.slowest_us
        if slowest_us > self._acted_us:
            return Step(None, None, slowest_us)
        return self._tentative_step(Event.MISSING, self._acted_us, now_ms)

    def _healed(self, now_ms: int) -> Event | None:
        """What makes a node in up_failure go back; None: nothing yet."""
        if self.slowest_us >= self._target_us:
            return Event.HEALED
        return Event.OVERDUE if self._overdue.is_due(now_ms) else None

    def due_ms(self) -> int | None:
        """When there will be a step to do though nothing comes; None: never."""
        due_ms = self.delay.due_ms()
        if self._own_wait is not None and self._state.now is not Consistency.UP_FAILURE:
            opens_ms = self._own_wait.due_ms(self._tentative_us)
            due_ms = min((each for each in (due_ms, opens_ms) if each is not None), default=None)
        return self._overdue.due_ms(due_ms, self.turn)

    def _tentative_step(self, event: Event | None, acted_us: int, now_ms: int) -> Step | None:
        boundary_us = self.delay.tentative_us(now_ms)
        if not self._may_rely_on_tentative(boundary_us, now_ms):
            boundary_us = min(boundary_us, self.delay.expired_us(now_ms))
        if boundary_us <= acted_us:
            return None
        boundary_us = self._outputs.stage(self._stable_us, acted_us, boundary_us)
        action = None if event is None else self._state.action_of(event)
        return Step(event, action, boundary_us, is_tentative=True)

    def _may_rely_on_tentative(self, boundary_us: int, now_ms: int) -> bool:
        """Whether tentative promises count, up to a boundary; in up_failure they do."""
        if self._own_wait is None or self._state.now is Consistency.UP_FAILURE:
            return True
        return self._own_wait.is_open(boundary_us, self._tentative_us, now_ms)

    def did(self, step: Step, boundary_us: int | None, now_ms: int) -> None:
        """The step has been done.

        Args:
            step: As it was told.
            boundary_us: What the pass has acted on: a part of the way, if the step's is too far.
            now_ms: The time.

        Raises:
            InvariantViolation: It is no step of this state.
        """
        if step.event is not None:
            self._change(step.event, now_ms)
        if boundary_us is None:
            return
        self.delay.reached(boundary_us, now_ms)
        if step.is_tentative:
            self._gone_us = boundary_us
            self._target_us = max(self._target_us, boundary_us)
            self.delay.went_without(boundary_us)
        else:
            self._acted_us = max(self._acted_us, boundary_us)

    def _change(self, event: Event, now_ms: int) -> None:
        action = self._state.change(event, now_ms)
        if action in (Action.SAY_DONE, Action.GO_ON):
            self.delay.corrected(now_ms)
        if action is Action.GO_BACK:
            self.delay.during = self._during_failure
            self.delay.went_back(now_ms)
            self._outputs.went_back()
            self._overdue.over()
            self._corrected_us = min(self._target_us, self.slowest_us)

    # -- looking ----------------------------------------------------------------------------

    @property
    def is_finished(self) -> bool:
        """Whether all streams have ended and everything has been acted on as stable."""
        is_corrected = not self._state.is_partly_corrected
        return self.state is Consistency.STABLE and is_corrected and self._acted_us == END_US

    def statistics(self) -> ConsistencyStatistics:
        """Counts now."""
        delay = self.delay
        return self._state.statistics(self.turn, delay.longest_ms, delay.longest_corrected_ms)

    def check_invariants(self) -> None:
        """Raise `InvariantViolation` when boundaries and state do not go together."""
        self.delay.check_invariants()
        if self.state is Consistency.UP_FAILURE and self._target_us <= self._acted_us:
            raise InvariantViolation("in up_failure nothing was processed without missing input")
        if self.state is Consistency.STABILIZATION and self._corrected_us > self.slowest_us:
            raise InvariantViolation("the correction has begun before all it needs was promised")
