"""Executors that leave politely: their nodes are elsewhere before they go.

Spark says that it will soon end an executor: it is decommissioned, as clouds and Kubernetes do
every day. Its tasks work on meanwhile, so that nobody has to miss them:

- A primary with a secondary at work hands over to it, and is launched again elsewhere. [HA §4.2]
- A primary without one gets a relief: another launch, while its task works on. When the relief
  says hello, the task is fenced, and the relief goes on from the newest restart point as any
  replacement does. The long part of a recovery, to start a process, is over by then.
- A secondary is let go and launched elsewhere.

If the task is lost before its relief has come up, the relief is its replacement. A relief that ends
before that is launched again when Spark says once more that the executor leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from holdfast.core.coordinator.events import LaunchTask
from holdfast.core.coordinator.recovery_times import Recovery
from holdfast.core.coordinator.replica import NodeState

if TYPE_CHECKING:
    from holdfast.core.coordinator.events import TasksLeaving
    from holdfast.core.coordinator.instance import Instance
    from holdfast.core.coordinator.replica import Replica
    from holdfast.core.machine import Effect
    from holdfast.core.model.ids import NodeId

_Act = Callable[["Instance", "Replica", int], "list[Effect]"]


class Departures:
    """What becomes of the tasks of executors that leave. Volatile: Spark says it again."""

    def __init__(
        self, instances: Mapping[NodeId, Instance], hand_over: _Act, move: _Act, fence: _Act
    ) -> None:
        """Nobody leaves.

        Args:
            instances: All of the query.
            hand_over: Has a secondary take over from this primary, if it is ready.
            move: Lets a secondary go, and launches it again.
            fence: From then on the replica's task does not count; its region knows.
        """
        self._instances = instances
        self._hand_over = hand_over
        self._move = move
        self._fence = fence

    def leave(self, leaving: TasksLeaving, now_ms: int) -> list[Effect]:
        """The executors of these launches will be gone soon."""
        effects: list[Effect] = []
        for node, launch in leaving.launches:
            instance = self._instances[node]
            replica = instance.of_launch(launch)
            if replica is not None and launch == replica.launch:
                effects += self._relieve(instance, replica, now_ms)
        return effects

    def _relieve(self, instance: Instance, replica: Replica, now_ms: int) -> list[Effect]:
        if replica.state is not NodeState.RUNNING:
            return []  # It has yet to come up, and is asked for again then.
        if replica is not instance.primary:
            return self._move(instance, replica, now_ms)
        if instance.successor() is not None:
            return self._hand_over(instance, replica, now_ms)
        return [] if replica.relief else [self._launch(instance, replica)]

    def _launch(self, instance: Instance, replica: Replica) -> LaunchTask:
        instance.launches += 1
        replica.relief = instance.launches
        return LaunchTask(instance.plan.node, replica.relief)

    def relieved(self, instance: Instance, replica: Replica, now_ms: int) -> list[Effect]:
        """The relief has come up: the task that it takes over from has had its time."""
        if replica is instance.primary and instance.recovery is None:
            instance.recovery = Recovery(now_ms, now_ms)
        return self._fence(instance, replica, now_ms)
