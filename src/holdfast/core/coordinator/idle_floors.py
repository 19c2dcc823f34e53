"""Tells idle instances of sources what the others have promised; see queues/idle_floor.py.

Instances say with every keep-alive how far they have come. One that is idle, and behind the floor,
is told the floor in answer, as often as it says so: a word that is lost is said again.

What an instance has said holds as long as the same incarnation is its primary. A replacement has
said nothing yet, so that nobody goes on without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.core.coordinator.events import KeepAliveReceived, TellFloor
from holdfast.core.errors import InvariantViolation
from holdfast.core.model.ids import NOBODY, Incarnation, NodeId, StreamId
from holdfast.core.queues.idle_floor import Reached, idle_floor_us

if TYPE_CHECKING:
    from holdfast.core.haunit.plan import NodePlan


@dataclass(frozen=True, slots=True)
class _Said:
    incarnation: Incarnation
    reached: Reached


class IdleFloors:
    """The sources of a dataflow and their instances. Volatile: all fields; instances say it again.

    Cost: O(instances of the source) per idle instance that speaks.
    """

    def __init__(self, plans: Iterable[NodePlan]) -> None:
        """For the sources that these nodes read."""
        self._node_of = {
            spec.stream: plan.node
            for plan in plans
            for spec in plan.inputs
            if spec.producer is None
        }
        self._instances: dict[str, list[StreamId]] = {}
        for stream in self._node_of:
            self._instances.setdefault(_source_of(stream), []).append(stream)
        self._said: dict[StreamId, _Said] = {}

    def heard(
        self,
        node: NodeId,
        incarnation: Incarnation,
        reached: Mapping[StreamId, Reached],
        primary: Callable[[NodeId], Incarnation],
    ) -> list[tuple[StreamId, int]]:
        """A primary says how far its sources are; the floors to tell it.

        Args:
            node: Which.
            incarnation: Of its primary.
            reached: Per source stream.
            primary: The incarnation of any node's primary, as it is now.
        """
        for stream, told in reached.items():
            if self._node_of.get(stream) == node:
                self._said[stream] = _Said(incarnation, told)
        floors: list[tuple[StreamId, int]] = []
        for stream, told in reached.items():
            if told.is_idle and self._node_of.get(stream) == node:
                floor_us = self._floor_us(_source_of(stream), primary)
                if floor_us > told.boundary_us:
                    floors.append((stream, floor_us))
        return floors

    def tell(
        self, alive: KeepAliveReceived, task: str, primary: Callable[[NodeId], Incarnation]
    ) -> list[TellFloor]:
        """As `heard`, by a primary's keep-alive, for its task."""
        floors = self.heard(alive.node, alive.incarnation, alive.reached, primary)
        own = (alive.node, task, alive.incarnation)
        return [TellFloor(*own, stream, floor_us) for stream, floor_us in floors]

    def check_invariants(self) -> None:
        """Raise `InvariantViolation` when somebody has spoken of a stream that no node reads."""
        for stream, said in self._said.items():
            if stream not in self._node_of:
                raise InvariantViolation(f"{stream} is read by nobody, but was told of")
            if said.incarnation <= NOBODY:
                raise InvariantViolation(f"nobody said how far {stream} is")

    def _floor_us(self, source: str, primary: Callable[[NodeId], Incarnation]) -> int:
        instances: list[Reached | None] = []
        for stream in self._instances[source]:
            said = self._said.get(stream)
            counts = said is not None and said.incarnation == primary(self._node_of[stream])
            instances.append(said.reached if said is not None and counts else None)
        return idle_floor_us(instances)


def _source_of(stream: StreamId) -> str:
    return stream.rpartition("[")[0]
