"""For how long input waits, by another account than the nodes' own. [DPC §3.1, Property 1]

Where nothing but input is missing:

I-AVAIL  no tuple that has come, and no result that a boundary would put out, waits for other
         streams for longer than the bound.
         The time in which the node corrects, or its receivers take no more, does not count.
I-MIN    a node goes on without streams only when something has waited as long, or when what a
         producer sends is tentative.

Looked at after each step: which tuple is the oldest held of each stream, and when each boundary
came that has not been reached. A result has waited since the first boundary of its stream that
would put it out: 1. The boundary comes while the stream's tuples are held, and then another one. 2.
Other streams promise as far as these tuples, and no further. 3. Now they are in the operators, in
several windows, and the first of these was due at 1. What a stream promises before its first tuple
puts out nothing of it.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from holdfast.core.model.ids import BEGINNING_US, END_US
from holdfast.core.replication.consistency_manager import Consistency
from holdfast.core.replication.input_delay import DuringFailure
from holdfast.sim.checkers.base import Checker, Violation
from holdfast.sim.faults import SILENCES

if TYPE_CHECKING:
    from holdfast.core.haunit.delayed_unit import Waits
    from holdfast.core.haunit.node import Node
    from holdfast.core.haunit.plan import NodePlan
    from holdfast.core.machine import Effect, Stimulus
    from holdfast.core.model.ids import NodeId
    from holdfast.sim.process import Process
    from holdfast.sim.world import World

_SLACK_MS: Final = 100
"""For what the node has to do before, and for its timers."""
_DRIFT_PERCENT: Final = 10
"""By which a clock may be fast, twice as much as they are."""


def has_bound(plan: NodePlan) -> bool:
    """Whether a node goes on when something has waited: one that suspends does not."""
    return plan.delays is not None and plan.delays.during_failure is not DuringFailure.SUSPEND


@dataclass(slots=True)
class _Stream:
    """What of one stream waits: when its tuples came, and since when results wait."""

    came: deque[tuple[int, int]] = field(default_factory=deque)  # all before this id, since when
    promises: deque[tuple[int, int]] = field(default_factory=deque)  # up to this time, since when
    promised_us: int = BEGINNING_US

    def look(self, waits: Waits, reached_us: int, now_us: int) -> int:
        """Since when something has waited; else now."""
        if self.promised_us < waits.promised_us != END_US:
            self.promised_us = waits.promised_us
            if waits.merged_before > 0:
                self.promises.append((waits.promised_us, now_us))
        while self.promises and self.promises[0][0] <= reached_us:
            self.promises.popleft()
        if not self.came or waits.merged_before > self.came[-1][0]:
            self.came.append((waits.merged_before, now_us))
        while self.came and self.came[0][0] <= waits.oldest_id:
            self.came.popleft()
        since_us = self.came[0][1] if self.came else now_us
        due = (since for before_us, since in self.promises if waits.closes(before_us) > reached_us)
        return min(since_us, next(due, now_us))


@dataclass(slots=True)
class _Known:
    """What is known of a node."""

    streams: dict[int, _Stream] = field(default_factory=dict)
    looked_us: int = 0  # since when something waited at the longest, as of the last look
    reached_us: int = BEGINNING_US
    state: Consistency = Consistency.STABLE
    is_held: bool = False  # it corrects, or its receivers take no more
    held_us: int = 0  # for how long it has been
    holds: list[tuple[int, int]] = field(default_factory=list)  # at which counted time, how long
    stepped_us: int = 0

    def counted_us(self, now_us: int, *, is_held: bool) -> int:
        """The time that counts: all but that in which it was held, before this step."""
        if self.is_held:
            self.holds.append((self.stepped_us - self.held_us, now_us - self.stepped_us))
            self.held_us += now_us - self.stepped_us
        self.is_held, self.stepped_us = is_held, now_us
        return now_us - self.held_us

    def waited_us(self, now_us: int) -> int:
        """For how long something had waited at the last look, by a clock that never stands still.

        The node's own clock does not, so it may go on without streams as soon as it is not held.
        """
        held_us = sum(length for at_us, length in self.holds if at_us >= self.looked_us)
        return now_us - self.looked_us + held_us

    def look(self, waiting: list[Waits], now_us: int) -> int:
        """For how long something has waited that still does."""
        self.looked_us = now_us
        for number, waits in enumerate(waiting):
            stream = self.streams.setdefault(number, _Stream())
            self.looked_us = min(self.looked_us, stream.look(waits, self.reached_us, now_us))
        return now_us - self.looked_us


class Waiting(Checker):
    """See the module."""

    def __init__(self) -> None:
        """Nothing waits."""
        self._world: World | None = None
        self._nodes: dict[NodeId, _Known] = {}

    def begin(self, world: World) -> None:
        """Find the nodes that wait no longer than a bound."""
        self._world = world
        if all(fault.kind in SILENCES for fault in world.faults.values()):
            plans = [plan for plan in world.plans.values() if len(plan.inputs) > 1]
            self._nodes = {plan.node: _Known() for plan in plans if has_bound(plan)}
        self.idle = () if self._nodes else ("stepped",)

    def stepped(self, process: Process, stimulus: Stimulus, effects: list[Effect]) -> None:
        """I-AVAIL and I-MIN."""
        del stimulus, effects
        known, machine = self._nodes.get(process.node), process.machine
        if known is None or machine is None or self._world is None:
            return
        consistency, delays = machine.consistency, machine.plan.delays
        if consistency is None or delays is None:
            return
        now_us = self._world.scheduler.now_us
        was_stable = known.state is Consistency.STABLE
        known.state = consistency.state
        is_held = known.state is Consistency.STABILIZATION or not machine.has_room
        now_us = known.counted_us(now_us, is_held=is_held)
        if was_stable and known.state is Consistency.UP_FAILURE and consistency.failures == 1:
            self._went_on(process.node, machine, known.waited_us(now_us), delays.bound_ms)
        known.reached_us = max(known.reached_us, machine.statistics().boundary_us)
        waited_us = known.look(machine.waiting(), now_us)
        bound_ms = delays.bound_ms
        if waited_us > 10 * (100 + _DRIFT_PERCENT) * bound_ms + 1_000 * _SLACK_MS:
            raise Violation(
                "I-AVAIL",
                f"{process.node}: something has waited {waited_us} us, the bound is {bound_ms} ms",
            )

    def _went_on(self, node: NodeId, machine: Node, waited_us: int, bound_ms: int) -> None:
        if self._world is not None:
            self._world.count("went on without input")
        if waited_us < 10 * (100 - _DRIFT_PERCENT) * (bound_ms - 1) and not machine.has_suffixes:
            raise Violation(
                "I-MIN", f"{node} goes on, and nothing has waited: {waited_us} us of {bound_ms} ms"
            )
