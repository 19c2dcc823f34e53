"""Who receives a node's streams: the incarnations of all receivers' replicas, as far as known."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.core.haunit.outputs.edge import OutputEdge
    from holdfast.core.model.ids import Incarnation, NodeId, StreamId


class Receivers:
    """A view of the edges of one incarnation. It has no state of its own."""

    def __init__(self, edges: dict[StreamId, OutputEdge]) -> None:
        """Look at these, in the order of the plan."""
        self._edges = edges

    def learn(self, node: NodeId, incarnation: Incarnation, secondary: Incarnation) -> None:
        """A receiver's primary has this incarnation, and its secondary, if it has one, that."""
        others = (secondary,) if secondary else ()
        for edge in self._edges.values():
            if edge.node == node:
                edge.learn(incarnation, others)

    def primary(self, stream: StreamId) -> Incarnation | None:
        """The incarnation of the primary of a stream's receiver, as far as it is known."""
        return self._edges[stream].primary.receiver

    def secondary(self, stream: StreamId) -> Incarnation | None:
        """The incarnation of the secondary of a stream's receiver, if it has one."""
        return next(iter(self._edges[stream].others), None)

    def primaries(self) -> dict[NodeId, Incarnation]:
        """The incarnation of every receiver that is known."""
        links = ((edge.node, edge.primary.receiver) for edge in self._edges.values())
        return {node: receiver for node, receiver in links if receiver is not None}

    def secondaries(self) -> dict[NodeId, Incarnation]:
        """The incarnation of every receiver's secondary."""
        return {edge.node: other for edge in self._edges.values() for other in edge.others}
