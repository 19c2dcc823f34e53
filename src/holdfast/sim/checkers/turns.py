"""Who may correct, of nodes that run an instance side by side. [DPC §3.3]

I-TURN   who is stable keeps no turn. Who waits for a turn has asked for it, and asks again with
         every keep-alive, where no node is slow. Where nothing but input is missing, the replicas
         of an instance never correct all at once, unless new input is to wait.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from holdfast.core.haunit.events import AskForTurn, LeaveTurn, TurnGranted
from holdfast.core.replication.consistency_manager import Consistency
from holdfast.sim.checkers.base import Checker, Violation
from holdfast.sim.faults import SILENCES

if TYPE_CHECKING:
    from holdfast.core.haunit.node import Node
    from holdfast.core.machine import Effect, Stimulus
    from holdfast.core.model.ids import NodeId
    from holdfast.sim.process import Process
    from holdfast.sim.world import World

_UNTIMELY: Final = ("pause", "slow-node", "clock-jump", "clock-back", "slow-disk", "full-disk")
"""Kinds of faults after which a node may do late what is due."""
_KEEP_ALIVES: Final = 2
_SLACK_US: Final = 50_000
"""For clocks that drift, and for the node's loop."""


class Fresh(Checker):
    """I-TURN: somebody brings what is fresh, and whoever wants to correct will."""

    def __init__(self) -> None:
        """Nobody corrects."""
        self._in_turn: dict[NodeId, None] = {}
        self._is_timely = False
        self._replicas: dict[NodeId, tuple[NodeId, ...]] = {}  # of them, where all are well
        self._correcting: dict[NodeId, None] = {}
        self._has_turn: dict[str, None] = {}  # processes that were granted one and have not left it
        self._asked_us: dict[str, int] = {}  # processes that wait: when they asked, or had to
        self._world: World | None = None

    def begin(self, world: World) -> None:
        """Find the replicas; a node that is lost leaves the others alone."""
        self._world = world
        replicas = {
            plan.node: plan.replicas
            for plan in world.plans.values()
            if plan.delays is not None and plan.delays.has_turns
        }
        self._in_turn = dict.fromkeys(replicas)
        self._is_timely = all(fault.kind not in _UNTIMELY for fault in world.faults.values())
        if all(fault.kind in SILENCES for fault in world.faults.values()):
            self._replicas = replicas
        self.idle = () if replicas else ("stepped",)

    def stepped(self, process: Process, stimulus: Stimulus, effects: list[Effect]) -> None:
        """I-TURN."""
        node, machine = process.node, process.machine
        if node not in self._in_turn or machine is None or machine.consistency is None:
            return
        self._check_left(process.endpoint.name, stimulus, effects, machine)
        if self._is_timely:
            self._check_asked(process, effects, machine)
        if node in self._replicas:
            self._check_fresh(node, machine.consistency.state)

    def _check_left(
        self, process: str, stimulus: Stimulus, effects: list[Effect], machine: Node
    ) -> None:
        if isinstance(stimulus, TurnGranted):
            self._has_turn[process] = None
        if any(isinstance(effect, LeaveTurn) for effect in effects):
            self._has_turn.pop(process, None)
        said = machine.consistency
        if process in self._has_turn and said is not None and said.state is Consistency.STABLE:
            raise Violation("I-TURN", f"{process} is stable, and keeps its turn")

    def _check_asked(self, process: Process, effects: list[Effect], machine: Node) -> None:
        if self._world is None:
            return
        name, now_us = process.endpoint.name, self._world.scheduler.now_us
        said = machine.consistency
        if said is None or not said.waits_for_turn:
            self._asked_us.pop(name, None)
            return
        has_asked = any(isinstance(effect, AskForTurn) for effect in effects)
        if name not in self._asked_us and not has_asked:
            raise Violation("I-TURN", f"{name} waits for a turn, and has not asked for it")
        since_us = self._asked_us.setdefault(name, now_us)
        if has_asked:
            self._asked_us[name] = now_us
        within_us = _KEEP_ALIVES * 1_000 * machine.plan.limits.keep_alive_ms + _SLACK_US
        if now_us - since_us > within_us:
            raise Violation("I-TURN", f"{name} has not asked for its turn again since {since_us}")
        if now_us > since_us:
            self._world.count("waited for a turn")

    def _check_fresh(self, node: NodeId, state: Consistency) -> None:
        if state is not Consistency.STABILIZATION:
            self._correcting.pop(node, None)
            return
        if node in self._correcting:
            return
        self._correcting[node] = None
        if self._world is not None:
            self._world.count("corrected in turn")
        if all(other in self._correcting for other in self._replicas[node]):
            raise Violation("I-TURN", f"{node} and all its replicas correct at once")
