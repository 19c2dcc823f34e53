"""Who has to know whose replicas, and is told until it says that it does.

A node has to know its neighbours' replicas, and its own if there are several. It is told when they
change, and again as long as its keep-alives name others: the word may have been lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from holdfast.core.coordinator.events import KeepAliveReceived, TellPeer
from holdfast.core.coordinator.replica import NodeState, Replica
from holdfast.core.haunit.plan import NodePlan, Standby
from holdfast.core.model.ids import NOBODY, NodeId

if TYPE_CHECKING:
    from holdfast.core.coordinator.instance import Instance


class Introductions:
    """Makes the words about peers. It holds no state but the instances', which it only reads."""

    def __init__(self, plans: Iterable[NodePlan], instances: Mapping[NodeId, Instance]) -> None:
        """For these nodes, each with its instance."""
        self._instances = instances
        self._neighbours: dict[NodeId, list[NodeId]] = {}
        self._receivers: dict[NodeId, frozenset[NodeId]] = {}
        for plan in plans:
            self._neighbours[plan.node] = [*plan.producers(), *plan.receivers()]
            self._receivers[plan.node] = frozenset(plan.receivers())

    def _known_to(self, instance: Instance) -> list[NodeId]:
        own = [instance.plan.node] if instance.secondaries else []
        return [*self._neighbours[instance.plan.node], *own]

    def _word(self, node: NodeId, replica: Replica, peer: NodeId) -> TellPeer | None:
        """What a replica has to know of a peer; None while that has no primary at work."""
        other = self._instances[peer]
        primary = other.primary
        if primary.state is not NodeState.RUNNING or replica.task is None:
            return None
        is_served = peer == node or other.plan.standby is Standby.ACTIVE
        secondary = other.secondary_incarnation if is_served else NOBODY
        return TellPeer(node, replica.task, peer, primary.incarnation, primary.endpoint, secondary)

    def to(self, instance: Instance, replica: Replica) -> tuple[TellPeer, ...]:
        """All that a replica has to know."""
        node = instance.plan.node
        words = (self._word(node, replica, peer) for peer in self._known_to(instance))
        return tuple(word for word in words if word is not None)

    def of(self, instance: Instance) -> list[TellPeer]:
        """What everybody who has to know, all their replicas, is told about an instance's."""
        name = instance.plan.node
        words = (
            self._word(peer, replica, name)
            for peer in self._known_to(instance)
            for replica in self._instances[peer].replicas
            if replica.is_up
        )
        return [word for word in words if word is not None]

    def lacking(
        self, instance: Instance, replica: Replica, alive: KeepAliveReceived
    ) -> list[TellPeer]:
        """What a replica does not know yet, by its keep-alive."""
        return [word for word in self.to(instance, replica) if not self._is_known(alive, word)]

    def _is_known(self, alive: KeepAliveReceived, word: TellPeer) -> bool:
        """Whether a node knows what it would be told. Secondaries concern producers alone."""
        if alive.peers.get(word.peer) != word.incarnation:
            return False
        if word.peer != word.node and word.peer not in self._receivers[word.node]:
            return True
        return alive.secondaries.get(word.peer, 0) == word.secondary
