"""Which units may put out tentative results, and how long each waits first. [DPC §3]

A unit that is Replicated waits for missing input if an instance of it merges streams. One with a
single stream waits for nothing; it matters if the stream comes from a unit that may put out
tentative results: then it passes them on. And it matters if it has replicas.

Of units in a chain each waits a part of the reserve longer than those before it, so that a chain
waits once: their tentative results are there before it goes on without them. One that waits alone,
as in the paper, waits for no longer than it was asked to.
"""

from __future__ import annotations

from dataclasses import replace
from graphlib import TopologicalSorter
from typing import TYPE_CHECKING, Final

from holdfast.planning.replicas import SINK_UNIT_SUFFIX

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from holdfast.core.haunit.plan import DelayPlan, InputSpec, NodePlan, OutputSpec
    from holdfast.core.model.ids import NodeId, StreamId

_LONGER_MS_MAX: Final = 100
"""Of a unit than of the one before it: tentative results need no longer to come."""


def delayed_units(
    reads: Mapping[str, Sequence[str]],
    streams: Mapping[str, int],
    asked: Mapping[str, DelayPlan],
) -> dict[str, DelayPlan]:
    """Per unit that may put out tentative results, how long it waits.

    Args:
        reads: Per unit the units that it reads.
        streams: Per unit how many streams each of its instances reads.
        asked: Per unit that is Replicated what was asked for.
    """
    waits_before: dict[str, int] = {}  # how many that wait stand before it on the longest path
    for unit in TopologicalSorter(reads).static_order():
        if unit in asked:
            before = [waits_before[p] + (streams[p] > 1) for p in reads[unit] if p in waits_before]
            if before or streams[unit] > 1 or asked[unit].replicas > 1:
                waits_before[unit] = max(before, default=0)
    parts = max(waits_before.values(), default=0) + 1
    return {unit: _longer(asked[unit], n, parts) for unit, n in waits_before.items()}


def _longer(asked: DelayPlan, parts: int, of: int) -> DelayPlan:
    if asked.waits_alone:
        return asked
    longer_ms = min(asked.reserve_ms * parts // of, _LONGER_MS_MAX * parts)
    return replace(asked, bound_ms=asked.bound_ms + longer_ms)


def with_tentative_streams(nodes: tuple[NodePlan, ...]) -> tuple[NodePlan, ...]:
    """The same nodes; those that may put out tentative results send them to others of the kind.

    They know from which sources each of their streams comes.
    """
    nodes = _with_sources(nodes)
    takes_them = {node.node: node.unit for node in nodes if node.delays is not None}
    return tuple(
        node if node.delays is None else replace(node, outputs=_outputs(node, takes_them))
        for node in nodes
    )


def _with_sources(nodes: tuple[NodePlan, ...]) -> tuple[NodePlan, ...]:
    of_node = {node.node: node for node in nodes}
    sources: dict[NodeId, tuple[StreamId, ...]] = {}
    reads = {
        n.node: [s.producer for s in n.inputs if s.producer is not None and not s.is_feedback]
        for n in nodes
    }
    for name in TopologicalSorter(reads).static_order():
        inputs = [spec for spec in of_node[name].inputs if not spec.is_feedback]
        found = ((s.stream,) if s.producer is None else sources[s.producer] for s in inputs)
        sources[name] = tuple(dict.fromkeys(stream for streams in found for stream in streams))
    return tuple(
        node
        if node.delays is None
        else replace(node, inputs=tuple(_with_sources_of(s, sources) for s in node.inputs))
        for node in nodes
    )


def _with_sources_of(spec: InputSpec, sources: dict[NodeId, tuple[StreamId, ...]]) -> InputSpec:
    found = (spec.stream,) if spec.producer is None else sources[spec.producer]
    return replace(spec, sources=found)


def _outputs(node: NodePlan, takes_them: Mapping[NodeId, str]) -> tuple[OutputSpec, ...]:
    """Its outputs; a unit that stands for a sink holds no windows, nor is one behind it."""
    return tuple(
        spec
        if spec.is_sink or spec.receivers[0] not in takes_them
        else replace(
            spec,
            has_tentative=True,
            has_windows_behind=not takes_them[spec.receivers[0]].endswith(SINK_UNIT_SUFFIX),
        )
        for spec in node.outputs
    )
