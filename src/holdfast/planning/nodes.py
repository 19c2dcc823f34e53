"""From units to nodes: ports and streams get their names, outputs and sinks their places.

Between units go the columns that the receiving one reads.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from holdfast.api.operators import Recipe, columns_read, cut_down, is_arbitrary
from holdfast.api.steps import (
    Holding,
    PartialAggregate,
    Source,
    Stateful,
    Union,
    WindowAggregate,
    WindowJoin,
)
from holdfast.core.haunit.plan import (
    Alternate,
    DelayPlan,
    InputSpec,
    NodeLimits,
    NodePlan,
    OperatorSpec,
    OutputSpec,
    Standby,
    UnitProtection,
)
from holdfast.core.model.feed_rows import FEED_COLUMNS, FEED_SUFFIX, feed_schema
from holdfast.core.model.ids import NodeId, StreamId
from holdfast.core.recovery.guarantee import Guarantee
from holdfast.errors import DataflowError
from holdfast.planning.footprints import footprints_of
from holdfast.planning.guarantees import RaisedGuarantee
from holdfast.planning.loops import loops_of
from holdfast.planning.refusals import (
    require_corrected,
    require_none_beside,
    require_own_stream,
    require_places,
)
from holdfast.planning.replicas import one_reader, replicas_of
from holdfast.planning.sources import columns_used, pruning_of, source_spec
from holdfast.planning.tentative import delayed_units
from holdfast.planning.units import keys_read, lineage, needed, ports_read, producers_of
from holdfast.shell.sources.base import in_records
from holdfast.shell.storage.paths import feed_path, stream_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from holdfast.api.graph import Graph
    from holdfast.api.steps import Step
    from holdfast.shell.sinks.base import OutsideSpec
    from holdfast.shell.sources.base import SourceSpec

_START_ALLOWANCE_S = 2.0


@dataclass(frozen=True, slots=True)
class _Edge:
    """What a unit reads of one step outside it, on one port.

    Attributes:
        producer: The step that puts out what is read.
        port: Of the unit's nodes.
        keys: The columns that choose the instance.
        read: The step that the unit reads: the producer, or a loop that it is read by way of.
        is_feedback: Whether it brings back what has gone round a loop.
        columns: Which of the step's columns the unit reads; the others are not sent.
    """

    producer: Step
    port: int
    keys: tuple[str, ...]
    read: Step
    is_feedback: bool = False
    columns: tuple[int, ...] = ()

    @property
    def schema(self) -> pa.Schema:
        """Of what is sent, without the time column."""
        return pa.schema([self.producer.schema.field(column) for column in self.columns])


class Planner:
    """Numbers ports and names streams.

    Attributes:
        sources: How nodes open each source stream made so far.
        sink_paths: The log folder of each sink stream that is written to a log.
        outside_sinks: The sink streams that are written to topics, files or tables.
        raised: By unit, guarantees that are stronger than was asked for.
        replicas: By unit that has several of each instance, how many; `delayed` finds it.
    """

    def __init__(
        self,
        flow: Graph,
        location: str,
        units: dict[str, list[Step]],
        counts: dict[str, int],
    ) -> None:
        """Number the ports of all units.

        Args:
            flow: The dataflow.
            location: The checkpoint location.
            units: As `units_of` gives them.
            counts: Instances of each.
        """
        self._flow = flow
        self._location = location
        self._steps = needed(flow)
        self._units = units
        self._counts = counts
        self._loops = loops_of(self._steps, units, flow.sinks)
        self._edges = {unit: self._unit_edges(unit) for unit in units}
        self._readers: dict[str, list[tuple[str, _Edge]]] = {unit: [] for unit in units}
        for receiver, edges in self._edges.items():
            for edge in edges:
                self._readers[edge.producer.unit].append((receiver, edge))
        self._started_s = time.time() + _START_ALLOWANCE_S
        self.sources: dict[StreamId, SourceSpec] = {}
        self.sink_paths: dict[StreamId, str] = {}
        self.outside_sinks: list[OutsideSpec] = []
        self.raised: dict[str, RaisedGuarantee] = {}
        self.replicas: dict[str, int] = {}

    def _unit_edges(self, unit: str) -> list[_Edge]:
        """What the unit reads from other units."""
        edges = [
            _Edge(producer, port, keys, read, producer in read.feedback)
            for port, (read, keys) in enumerate(ports_read(self._units[unit]))
            for producer in producers_of(read)
            if read.unit != unit
        ]
        return [replace(edge, columns=self._columns(unit, edge)) for edge in edges]

    def _columns(self, unit: str, edge: _Edge) -> tuple[int, ...]:
        """The columns that the unit's steps read of an edge; a batch has one at least."""
        names: set[str] = set()
        for step in self._units[unit]:
            for position, producer in enumerate(step.inputs):
                if producer is edge.read and edge.keys == keys_read(step, position):
                    names.update(columns_read(step.operation, position, producer.schema))
        found = (i for i, name in enumerate(edge.producer.schema.names) if name in names)
        return tuple(found) or (0,)

    def _edge(self, step: Step, position: int) -> _Edge:
        wanted = step.inputs[position], keys_read(step, position)
        return next(e for e in self._edges[step.unit] if (e.read, e.keys) == wanted)

    def delayed(self, protection: Callable[[str], UnitProtection]) -> dict[str, DelayPlan]:
        """Per unit that may put out tentative results, how long it waits for missing input.

        Raises:
            DataflowError: What one puts out would depend on more than its input.
        """
        plans = {unit: protection(unit).delays for unit in self._units}
        asked = {unit: delays for unit, delays in plans.items() if delays is not None}
        for unit in asked:
            require_corrected(unit, self._units[unit])
        reads = {unit: self._streams_read(unit) for unit in self._units}
        asked = {u: one_reader(self._units[u], reads[u], delays) for u, delays in asked.items()}
        delayed = delayed_units(
            {
                unit: [e.producer.unit for e in edges if not e.is_feedback]
                for unit, edges in self._edges.items()
            },
            reads,
            asked,
        )
        self.replicas = replicas_of(self._units, delayed)
        return delayed

    def _streams_read(self, unit: str) -> int:
        """How many streams each instance of a unit reads."""
        sources = sum(isinstance(step.operation, Source) for step in self._units[unit])
        return sources + sum(len(self._edge_inputs(e, unit, 0)) for e in self._edges[unit])

    def node(
        self,
        unit: str,
        index: int,
        limits: NodeLimits,
        protection: UnitProtection,
        delays: DelayPlan | None,
        replica: int = 0,
    ) -> NodePlan:
        """One replica of an instance of a unit; without state there is nothing to checkpoint.

        Raises:
            DataflowError: Its operators cannot share a node, or have this protection.
        """
        members = self._units[unit]
        sources = [step for step in members if isinstance(step.operation, Source)]
        operators = [step for step in members if step not in sources]
        inputs = self._inputs(unit, index, sources, replica)
        footprints = footprints_of(unit, members, protection.footprints)
        specs = tuple(self._operator(s, sources, operators, len(inputs)) for s in operators)
        if footprints is not None:
            specs = tuple(map(_with_footprints, specs))
        arbitrary = [s for s in operators if is_arbitrary(s.operation)]
        is_looped = unit in self._loops
        merges_by_arrival = (bool(arbitrary) or is_looped) and len(inputs) > 1
        if merges_by_arrival and not is_looped:
            readers = (edge.producer for _, edge in self._readers[unit])
            require_none_beside(unit, members, {*self._flow.sinks.values(), *readers})
        decides = merges_by_arrival or not all(isinstance(s.operation, Union) for s in arbitrary)
        guarantee = self._guarantee(unit, protection, decides=decides)
        outputs = self._outputs(node_id(unit, index, replica), unit, index, sources, operators)
        if delays is not None:
            outputs += self._feeds(unit, outputs)
        else:
            self._require_no_feeds(unit)
        has_state = any(isinstance(step.operation, Stateful) for step in operators)
        return NodePlan(
            node=node_id(unit, index, replica),
            unit=unit,
            index=index,
            inputs=tuple(inputs),
            port_count=len(sources) + len(self._edges[unit]),
            operators=specs,
            outputs=tuple(outputs),
            is_protected=protection.is_protected,
            limits=limits,
            checkpoints=protection.checkpoints if has_state else None,
            standby=protection.standby,
            is_strict=protection.is_strict,
            delta_interval_ms=protection.delta_interval_ms,
            survives_one=protection.survives_one and not (arbitrary or merges_by_arrival),
            guarantee=guarantee,
            merges_by_arrival=merges_by_arrival,
            keeps_passes=decides and protection.is_protected and guarantee is Guarantee.PRECISE,
            delays=delays,
            footprints=footprints,
            replica=replica,
            replicas=self._nodes(unit, index) if unit in self.replicas else (),
        )

    def places(self) -> Iterator[tuple[str, int, int]]:
        """Unit, instance and replica of every node, in order; `delayed` has found replicas."""
        for unit in self._units:
            for index in range(self._counts[unit]):
                for replica in range(self.replicas.get(unit, 1)):
                    yield unit, index, replica

    def _nodes(self, unit: str, index: int) -> tuple[NodeId, ...]:
        """All nodes that run an instance of a unit."""
        return tuple(node_id(unit, index, r) for r in range(self.replicas.get(unit, 1)))

    def _inputs(self, unit: str, index: int, sources: list[Step], replica: int) -> list[InputSpec]:
        """The streams of an instance: its sources, then those of other units, port by port."""
        inputs = [self._source_input(s, port, index) for port, s in enumerate(sources)]
        origins = list(sources)
        for edge in self._edges[unit]:
            streams = self._edge_inputs(edge, unit, index, replica)
            inputs += streams
            origins += [edge.producer] * len(streams)
        return _with_waiting(inputs, origins)

    def _operator(
        self, step: Step, sources: list[Step], operators: list[Step], streams: int
    ) -> OperatorSpec:
        """One operator of a node with so many input streams, and where its rows come from."""
        positions = range(len(step.inputs))
        origins = tuple(self._origin(step, i, sources, operators) for i in positions)
        schemas = tuple(self._read(step, i) for i in positions)
        require_own_stream(step, origins, streams)
        require_places(step, streams)
        recipe = Recipe(cut_down(step.operation, schemas), step.name, schemas)
        return OperatorSpec(step.name, recipe, origins)

    def _guarantee(self, unit: str, protection: UnitProtection, *, decides: bool) -> Guarantee:
        """What recovery keeps; nothing less than precise is cheaper where the same comes again.

        So it does with a secondary, and from checkpoints; `with_regions` finds where it does not.
        """
        is_copied = protection.standby is not Standby.NONE and not decides
        is_raised = is_copied or protection.cuts is not None
        given = Guarantee.PRECISE if is_raised else protection.guarantee
        if given is not protection.guarantee:
            by = "secondary" if is_copied else "replacement"
            self.raised[unit] = RaisedGuarantee(unit, protection.guarantee, given, by)
        return given

    def _feeds(self, unit: str, outputs: list[OutputSpec]) -> list[OutputSpec]:
        """Beside each sink a feed of what is tentative.

        Raises:
            DataflowError: A sink has no place for one.
        """
        feeds: list[OutputSpec] = []
        for spec in outputs:
            if not spec.is_sink:
                continue
            (stream,) = spec.streams
            sink, _, index = stream.removesuffix("]").rpartition("[")
            if taken := [name for name in spec.schema.names if name in FEED_COLUMNS]:
                raise DataflowError(
                    f"sink {sink!r} has a column {taken[0]!r}, which is a name of its feed's; "
                    "rename it with select(...)"
                )
            feed = StreamId(f"{sink}{FEED_SUFFIX}[{index}]")
            self._place_feed(unit, sink, feed, int(index))
            schema = feed_schema(spec.schema)
            feeds.append(replace(spec, schema=schema, streams=(feed,), feed_of=stream))
        return feeds

    def _require_no_feeds(self, unit: str) -> None:
        """Raises `DataflowError` if a sink has a topic for what is tentative, and nothing is."""
        for sink, step in self._flow.sinks.items():
            outside = self._flow.outside_sinks.get(sink)
            if step.unit != unit or outside is None:
                continue
            if outside.feed_spec(sink, sink, 0, self._location) is not None:
                raise DataflowError(
                    f"sink {sink!r} names a topic for tentative results, and unit {unit!r} gives "
                    "none: it waits for all its input; give it, and the units before it that "
                    "merge, protection=Replicated(...), or leave out tentative=..."
                )

    def _place_feed(self, unit: str, sink: str, feed: StreamId, index: int) -> None:
        """A feed is a log, or where the sink has a place for it."""
        outside = self._flow.outside_sinks.get(sink)
        place = feed_path(self._location, sink, index)
        if outside is None:
            self.sink_paths[feed] = place
            return
        spec = outside.feed_spec(sink, f"{sink}{FEED_SUFFIX}", index, place)
        if spec is None:
            raise DataflowError(
                f"unit {unit!r} is Replicated, and its sink {sink!r} is {outside.place}, where "
                "tentative results have no place; name a topic for them, "
                "sink_kafka(..., tentative=...), write it to sink(...), or give the unit another "
                "protection"
            )
        self.outside_sinks.append(spec)

    def _read(self, step: Step, position: int) -> pa.Schema:
        """What a step is given of one of its inputs."""
        producer = step.inputs[position]
        is_inside = producer.unit == step.unit
        return producer.schema if is_inside else self._edge(step, position).schema

    def _origin(
        self, step: Step, position: int, sources: list[Step], operators: list[Step]
    ) -> tuple[str, int]:
        producer = step.inputs[position]
        if producer.unit != step.unit:
            return "port", self._edge(step, position).port
        return _within(producer, sources, operators)

    def _source_input(self, step: Step, port: int, index: int) -> InputSpec:
        stream = StreamId(f"{step.name}[{index}]")
        sinks = [*self._flow.sinks.values()]
        columns = columns_used(step, self._steps, sinks)
        pruning = pruning_of(step, self._steps, sinks)
        spec = source_spec(step, index, self._location, self._started_s, columns, pruning)
        has_parts = any(isinstance(s.operation, PartialAggregate) for s in self._units[step.unit])
        self.sources[stream] = (in_records(spec) if has_parts else None) or spec
        return InputSpec(stream, port, step.schema, None)

    def _edge_inputs(self, edge: _Edge, unit: str, index: int, replica: int = 0) -> list[InputSpec]:
        senders = range(self._counts[edge.producer.unit])
        if self._is_forward(edge, unit):
            senders = range(index, index + 1)
        receiver = node_id(unit, index, replica)
        inputs: list[InputSpec] = []
        for i in senders:
            first, *others = (
                Alternate(_stream(edge, sender, receiver), sender)
                for sender in self._nodes(edge.producer.unit, i)
            )
            spec = InputSpec(
                first.stream,
                edge.port,
                edge.schema,
                first.producer,
                is_looped=self._is_within_loop(edge.producer.unit, unit),
                is_feedback=edge.is_feedback,
            )
            inputs.append(replace(spec, alternates=tuple(others)))
        return inputs

    def _is_within_loop(self, sender: str, receiver: str) -> bool:
        """Whether two units are in the same loop."""
        return sender in self._loops and self._loops[sender] == self._loops.get(receiver)

    def _is_forward(self, edge: _Edge, unit: str) -> bool:
        """Whether instance i reads from instance i alone."""
        receivers, senders = self._counts[unit], self._counts[edge.producer.unit]
        if edge.keys or receivers == 1:
            return False
        if receivers == senders:
            return True
        raise DataflowError(
            f"unit {unit!r} has {receivers} instances and reads {edge.producer.name!r} without a "
            f"key from {senders}; add key_by(...) or use the same number"
        )

    def _outputs(
        self,
        node: NodeId,
        unit: str,
        index: int,
        sources: list[Step],
        operators: list[Step],
    ) -> list[OutputSpec]:
        outputs: list[OutputSpec] = []
        for receiver, edge in self._readers[unit]:
            receivers = range(self._counts[receiver])
            if self._is_forward(edge, receiver):
                receivers = range(index, index + 1)
            replicas = zip(*(self._nodes(receiver, j) for j in receivers), strict=True)
            for replica, names in enumerate(replicas):
                outputs.append(
                    OutputSpec(
                        _within(edge.producer, sources, operators),
                        edge.schema,
                        tuple(_stream(edge, node, name) for name in names),
                        names,
                        edge.keys,
                        edge.columns,
                        is_looped=self._is_within_loop(unit, receiver),
                        is_feedback=edge.is_feedback,
                        replica=replica,
                    )
                )
        for sink, step in self._flow.sinks.items():
            if step.unit == unit:
                stream = StreamId(f"{sink}[{index}]")
                place = stream_path(self._location, sink, index)
                outside = self._flow.outside_sinks.get(sink)
                if outside is None:
                    self.sink_paths[stream] = place
                else:
                    self.outside_sinks.append(outside.spec(sink, index, place))
                outputs.append(
                    OutputSpec(
                        _within(step, sources, operators),
                        step.schema,
                        (stream,),
                        (),
                        is_sink=True,
                        unsynced_max=None if outside is None else outside.unsynced_max,
                    )
                )
        return outputs


def _with_footprints(spec: OperatorSpec) -> OperatorSpec:
    """The operator with windows that are checkpointed one by one, if it has windows."""
    recipe = spec.build
    if not isinstance(recipe, Recipe) or not isinstance(
        recipe.operation, WindowAggregate | WindowJoin
    ):
        return spec
    operation = replace(recipe.operation, has_footprints=True)
    return replace(spec, build=replace(recipe, operation=operation))


def _with_waiting(inputs: list[InputSpec], origins: list[Step]) -> list[InputSpec]:
    """Tell every input stream which others hold back what comes from a source of its own."""
    held = [_sources_held_back(step) for step in origins]
    own = [_sources(step) for step in origins]
    return [
        replace(
            spec,
            waits_for=tuple(
                other.stream for j, other in enumerate(inputs) if j != i and held[j] & own[i]
            ),
        )
        for i, spec in enumerate(inputs)
    ]


def _sources(step: Step) -> set[str]:
    """The sources that a step depends on."""
    return {found.name for found in lineage([step]) if isinstance(found.operation, Source)}


def _sources_held_back(step: Step) -> set[str]:
    """Those of them whose rows some operator on the way holds back."""
    holders = [found for found in lineage([step]) if isinstance(found.operation, Holding)]
    return {found.name for found in lineage(holders) if isinstance(found.operation, Source)}


def _within(step: Step, sources: list[Step], operators: list[Step]) -> tuple[str, int]:
    """Where a step of this unit puts its rows."""
    for port, source in enumerate(sources):
        if source is step:
            return "port", port
    return "operator", next(i for i, operator in enumerate(operators) if operator is step)


def node_id(unit: str, index: int, replica: int = 0) -> NodeId:
    """The name of an instance of a unit, or of one of its further replicas."""
    return NodeId(f"{unit}[{index}]" + (f"+{replica}" if replica else ""))


def _stream(edge: _Edge, sender: NodeId, receiver: NodeId) -> StreamId:
    return StreamId(f"{edge.producer.name}:{sender}>{receiver}.{edge.port}")
