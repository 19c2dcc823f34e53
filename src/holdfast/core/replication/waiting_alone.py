"""A node that waits for its own bound, whatever units before it have waited. [DPC §3.2, §3.3, §5.2]

Theory of operation. In the paper each node of a chain is given X, and has an SUnion on each of its
inputs. What comes as tentative is held there as what is missing: for αX, in the hope of what is
stable. Here that time runs from when the stream last promised more as stable. In a failure a chain
hears nothing for as long as its first node waits. So with equal bounds all nodes have waited by
then, and new tuples pass at once: "the delay is equal to only αX plus the normal processing delay
through the chain". With `DELAY` each node holds each tuple for its bound, so that delays add up.

- Several streams (`OwnWait`, of the consistency manager): until that time a node that is stable
  goes only as far as something has waited for the bound.
- One stream (`WaitingFollower`): the same. And it goes back when the stream has promised, as
  stable, all that was processed as tentative: "a node reconciles its state only after correcting
  all its input streams". So the nodes of a chain correct one after the other. `Follower` goes back
  with its producer.

Who suspends in a failure takes nothing that is tentative, in either scheme.

What is stable waits meanwhile in the input queue. It may be full before all is there. Or the rest
may not come for long. Then the node goes back to correct a part, as nodes do that merge.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.core.model.ids import BEGINNING_US, END_US
from holdfast.core.replication.consistency_manager import Action, Consistency, Event, Overdue, Step
from holdfast.core.replication.following import Follower
from holdfast.core.replication.input_delay import DuringFailure

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.core.replication.consistency_manager import ConsistencyStatistics
    from holdfast.core.replication.turns import Turn


class OwnWait:
    """Of a node that merges: until when tentative promises do not count. Volatile: all fields."""

    def __init__(self, streams: int, bound_ms: int) -> None:
        """No stream has promised anything; `bound_ms` is the paper's αX."""
        self._bound_ms = bound_ms
        self._stable_us = [BEGINNING_US] * streams
        self._stable_ms = [0] * streams  # when each last promised more as stable
        self._looked_ms = 0

    def begin(self, now_ms: int) -> None:
        """From here on time runs."""
        self._stable_ms = [now_ms] * len(self._stable_ms)

    def look(self, stable_us: Sequence[int], now_ms: int) -> None:
        """What all streams have promised as stable by now."""
        for stream, boundary_us in enumerate(stable_us):
            if boundary_us > self._stable_us[stream]:
                self._stable_us[stream], self._stable_ms[stream] = boundary_us, now_ms

    def is_open(self, boundary_us: int, tentative_us: Sequence[int], now_ms: int) -> bool:
        """Whether what streams have promised as tentative counts, up to a boundary."""
        self._looked_ms = now_ms
        opens = self._opens(boundary_us, tentative_us)
        return all(opens_ms <= now_ms for opens_ms in opens)

    def due_ms(self, tentative_us: Sequence[int]) -> int | None:
        """When another stream's tentative promise will count; None: none will."""
        later = (each for each in self._opens(END_US, tentative_us) if each > self._looked_ms)
        return min(later, default=None)

    def _opens(self, boundary_us: int, tentative_us: Sequence[int]) -> list[int]:
        """When those of streams count that have promised less as stable, and less than this."""
        promised = zip(self._stable_us, tentative_us, self._stable_ms, strict=True)
        return [
            since_ms + self._bound_ms
            for stable, tentative, since_ms in promised
            if stable < min(boundary_us, tentative)
        ]


class WaitingFollower(Follower):
    """The state of a node with one input stream. Volatile: all fields."""

    def __init__(
        self,
        turn: Turn | None,
        bound_ms: int,
        during_failure: DuringFailure,
        during_stabilization: DuringFailure | None = None,
    ) -> None:
        """Begin as stable, where nothing has come.

        Args:
            turn: When it may correct; None: when it wants to.
            bound_ms: So long it waits for what is stable: the paper's αX.
            during_failure: What is done with new tentative tuples, once it has.
            during_stabilization: The same while it waits for its turn; None: the same as before.
        """
        super().__init__(turn)
        self._bound_ms = bound_ms
        self._during_failure = during_failure
        self._during_stabilization = during_stabilization or during_failure
        self._promised_ms = 0  # when the stream last promised more as stable
        self._since_ms: int | None = None  # since when the oldest tentative input waits
        self._is_healed = False  # it would go back if it had its turn
        self._overdue = Overdue(bound_ms)
        self._corrected_ms = 0  # when the last correction was over
        self._longest_ms = 0
        self.promised_us = BEGINNING_US
        """What the stream has promised as stable, and all before it has come."""
        self.is_full = False
        """Whether no more of what is stable can come."""

    def resume(self, boundary_us: int, now_ms: int) -> None:
        """Everything before this boundary has been processed by another incarnation."""
        super().resume(boundary_us, now_ms)
        self.promised_us, self._promised_ms = boundary_us, now_ms

    # -- what comes -------------------------------------------------------------------------

    def promised(self, boundary_us: int, now_ms: int, *, is_full: bool) -> None:
        """The stream's stable boundary, all before which has come; whether no more can come."""
        self.is_full = is_full
        if boundary_us > self.promised_us:
            self.promised_us, self._promised_ms = boundary_us, now_ms

    def waits_since(self, since_ms: int | None) -> None:
        """When the oldest tentative input came that waits; None: none does."""
        self._since_ms = since_ms

    # -- what to do -------------------------------------------------------------------------

    @property
    def _during(self) -> DuringFailure:
        """What is done with new tentative tuples now."""
        is_waiting = self.state is Consistency.UP_FAILURE and self._is_healed
        return self._during_stabilization if is_waiting else self._during_failure

    def came_until_ms(self, now_ms: int) -> int:
        """A tentative pass takes what had come by then."""
        return now_ms - self._bound_ms if self._during is DuringFailure.DELAY else now_ms

    def _takes_tentative(self, now_ms: int) -> bool:
        """Whether it has waited long enough."""
        opens_ms = self._opens_ms()
        return opens_ms is not None and opens_ms <= now_ms

    def _opens_ms(self) -> int | None:
        """When what has come as tentative may be taken; None: not at all, or there is none."""
        since_ms, during = self._since_ms, self._during
        if not self._has_tentative or since_ms is None or during is DuringFailure.SUSPEND:
            return None
        if during is DuringFailure.DELAY:
            return since_ms + self._bound_ms
        if self.state is Consistency.UP_FAILURE:
            return since_ms
        return max(since_ms, self._promised_ms + self._bound_ms)

    def _healed(self, now_ms: int) -> Event | None:
        """What makes a node in up_failure go back; None: nothing yet."""
        healed = self._event(now_ms)
        self._is_healed = healed is not None
        return healed

    def _event(self, now_ms: int) -> Event | None:
        if self.promised_us >= self._target_us:
            return Event.HEALED
        if not (self._is_undone or self._has_stable):
            self._overdue.over()
            return None
        self._overdue.waits(now_ms)
        return Event.OVERDUE if self.is_full or self._overdue.is_due(now_ms) else None

    def due_ms(self) -> int | None:
        """When there will be a step to do though nothing comes; None: never."""
        return self._overdue.due_ms(self._opens_ms(), self.turn)

    def did(self, step: Step, boundary_us: int | None, now_ms: int) -> None:
        """The step has been done; args as in `ConsistencyManager`."""
        if step.is_tentative and self._since_ms is not None:
            # Not while it corrected: new input waits for that, too, and is not missing.
            from_ms = max(self._since_ms, self._corrected_ms)
            self._longest_ms = max(self._longest_ms, now_ms - from_ms)
        super().did(step, boundary_us, now_ms)
        if step.action is Action.GO_BACK:
            self._overdue.over()
        if step.action in (Action.SAY_DONE, Action.GO_ON):
            self._corrected_ms = now_ms

    # -- looking ----------------------------------------------------------------------------

    def statistics(self) -> ConsistencyStatistics:
        """Counts now."""
        return self._state.statistics(self.turn, self._longest_ms)
