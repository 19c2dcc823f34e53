"""Who may correct, of nodes that run an instance side by side. [DPC §3.3]

I-TURN   where nothing but input is missing, the replicas of an instance never correct all at once,
         unless new input is to wait.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.core.replication.consistency_manager import Consistency
from holdfast.sim.checkers.base import Checker, Violation
from holdfast.sim.faults import SILENCES

if TYPE_CHECKING:
    from holdfast.core.machine import Effect, Stimulus
    from holdfast.core.model.ids import NodeId
    from holdfast.sim.process import Process
    from holdfast.sim.world import World


class Fresh(Checker):
    """I-TURN: somebody brings what is fresh."""

    def __init__(self) -> None:
        """Nobody corrects."""
        self._replicas: dict[NodeId, tuple[NodeId, ...]] = {}  # of who corrects in turn
        self._correcting: dict[NodeId, None] = {}
        self._world: World | None = None

    def begin(self, world: World) -> None:
        """Find the replicas; a node that is lost leaves the others alone."""
        self._world = world
        if all(fault.kind in SILENCES for fault in world.faults.values()):
            self._replicas = {
                plan.node: plan.replicas
                for plan in world.plans.values()
                if plan.delays is not None and plan.delays.has_turns
            }

    def stepped(self, process: Process, stimulus: Stimulus, effects: list[Effect]) -> None:
        """I-TURN."""
        del stimulus, effects
        node, machine = process.node, process.machine
        if node not in self._replicas or machine is None or machine.consistency is None:
            return
        if machine.consistency.state is not Consistency.STABILIZATION:
            self._correcting.pop(node, None)
            return
        if node in self._correcting:
            return
        self._correcting[node] = None
        if self._world is not None:
            self._world.count("corrected in turn")
        if all(other in self._correcting for other in self._replicas[node]):
            raise Violation("I-TURN", f"{node} and all its replicas correct at once")
