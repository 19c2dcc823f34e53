"""The edges of a dataflow in a progress report: rows on their way from unit to unit, and to sinks.

Streams' positions say how many: the producer has numbered so many, the consumer has processed so
many. A node that has just been put in another's place says nothing for a while; what was heard
before holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.core.model.ids import NodeId, StreamId
    from holdfast.planning.plan import Plan
    from holdfast.shell.spark.history import NodeReport

Edge = tuple[str, str]
"""From a unit to a unit, or to `sink NAME`."""


@dataclass(frozen=True, slots=True)
class _Stream:
    """One stream of an edge; without a consumer it is a sink's."""

    name: StreamId
    producer: NodeId
    consumer: NodeId | None


class Edges:
    """The edges of a plan, and how far their streams have come."""

    def __init__(self, plan: Plan) -> None:
        """Nothing heard yet."""
        units = {node.node: node.unit for node in plan.nodes}
        self._streams: dict[Edge, list[_Stream]] = {}
        for node in plan.nodes:
            for spec in node.inputs:
                if spec.producer is not None:
                    edge = units[spec.producer], node.unit
                    stream = _Stream(spec.stream, spec.producer, node.node)
                    self._streams.setdefault(edge, []).append(stream)
            for output in node.outputs:
                if output.is_sink and output.feed_of is None:
                    for name in output.streams:
                        edge = node.unit, f"sink {name.rpartition('[')[0]}"
                        self._streams.setdefault(edge, []).append(_Stream(name, node.node, None))
        self._sent: dict[StreamId, int] = {}
        self._taken: dict[StreamId, int] = {}

    def hear(self, reports: Mapping[NodeId, NodeReport]) -> dict[str, int]:
        """Take in what nodes say now; the counters of which rates are wanted."""
        counts: dict[str, int] = {}
        for edge, streams in self._streams.items():
            for stream in streams:
                sent = reports[stream.producer].next_ids.get(stream.name, 0)
                self._sent[stream.name] = max(sent, self._sent.get(stream.name, 0))
                taken = (
                    sent
                    if stream.consumer is None
                    else reports[stream.consumer].processed.get(stream.name, 0)
                )
                self._taken[stream.name] = max(taken, self._taken.get(stream.name, 0))
            counts[_counter(edge)] = sum(self._taken[stream.name] for stream in streams)
        return counts

    def block(
        self, reports: Mapping[NodeId, NodeReport], rates: Mapping[str, float]
    ) -> list[dict[str, Any]]:
        """One entry per edge; its boundary is that of the producer that is the furthest behind."""
        return [
            {
                "from": edge[0],
                "to": edge[1],
                "rowsPerSecond": rates[_counter(edge)],
                "backlogRows": sum(
                    max(0, self._sent[stream.name] - self._taken[stream.name]) for stream in streams
                ),
                "boundaryUs": min(
                    reports[stream.producer].figures.counted.boundary_us for stream in streams
                ),
            }
            for edge, streams in self._streams.items()
        ]


def _counter(edge: Edge) -> str:
    return f"edge {edge[0]} {edge[1]}"
