"""From a dataflow to nodes: units, parallel instances, the streams between them.

Sources and stateless operators share the unit of their input; every stateful and every arbitrary
operator begins a unit of its own unless `unit(...)` says otherwise. A unit with p instances splits
each input by the hash of the key that its first stateful operator needs. Between units go the
columns that the receiving one reads.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from graphlib import TopologicalSorter
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from holdfast.api.dataflow import before, held_back
from holdfast.api.operators import (
    HOLDING,
    JOINS,
    MERGING,
    PASSING,
    STATEFUL,
    Recipe,
    columns_read,
    is_arbitrary,
    settings_over,
)
from holdfast.api.windows import CountWindow, Window
from holdfast.core.haunit.plan import (
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
from holdfast.core.operators.base import OperatorClass
from holdfast.core.operators.union import Union
from holdfast.core.recovery.guarantee import Guarantee
from holdfast.core.state.page_manager import PageManager
from holdfast.errors import DataflowError
from holdfast.planning.footprints import footprints_of
from holdfast.planning.partial_aggregates import with_partial_aggregates
from holdfast.shell.kafka.source import KafkaSourceSpec
from holdfast.shell.sources.base import in_records
from holdfast.shell.sources.log_source import LogSourceSpec
from holdfast.shell.storage.paths import feed_path, ingest_path, kafka_path, stream_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from holdfast.api.dataflow import Dataflow, Step
    from holdfast.shell.kafka.sink import KafkaSinkSpec
    from holdfast.shell.sources.base import SourceSpec

_START_ALLOWANCE_S = 2.0


@dataclass(frozen=True, slots=True)
class RaisedGuarantee:
    """A unit that is given more than was asked for.

    Attributes:
        unit: Its name.
        asked: The guarantee of its protection.
        given: What recovery keeps.
    """

    unit: str
    asked: Guarantee
    given: Guarantee

    def __str__(self) -> str:
        """In words, with the reason."""
        return (
            f"unit {self.unit!r} is recovered with guarantee {self.given.value!r}, though "
            f"{self.asked.value!r} was asked for: it depends on its input alone, so that its "
            "secondary makes the same tuples with the same ids, and receivers drop what comes twice"
        )


@dataclass(frozen=True, slots=True)
class Plan:
    """A dataflow, placed.

    Attributes:
        flow: The dataflow as it is run; see partial_aggregates.py.
        nodes: All nodes.
        sources: How nodes open each source stream.
        sink_paths: The log folder of each sink stream that is written to a log.
        never_trims: Operators that keep their input for ever.
        kafka_sinks: The sink streams that are written to Kafka.
        raised: The units whose guarantee is a stronger one than was asked for.
    """

    flow: Dataflow
    nodes: tuple[NodePlan, ...]
    sources: dict[StreamId, SourceSpec]
    sink_paths: dict[StreamId, str]
    never_trims: tuple[str, ...]
    kafka_sinks: tuple[KafkaSinkSpec, ...] = ()
    raised: tuple[RaisedGuarantee, ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        """What users should know of how it is placed."""
        retention = (
            f"{name} never lets go of its input: what its producers keep for replay is "
            "spilled for as long as the query runs"
            for name in self.never_trims
        )
        return (*retention, *map(str, self.raised))


@dataclass(frozen=True, slots=True)
class _Edge:
    """What a unit reads of one step outside it, on one port.

    Attributes:
        producer: The step.
        port: Of the unit's nodes.
        keys: The columns that choose the instance.
        columns: Which of the step's columns the unit reads; the others are not sent.
    """

    producer: Step
    port: int
    keys: tuple[str, ...]
    columns: tuple[int, ...] = ()

    @property
    def schema(self) -> pa.Schema:
        """Of what is sent, without the time column."""
        return pa.schema([self.producer.schema.field(column) for column in self.columns])


def plan_dataflow(
    flow: Dataflow,
    location: str,
    *,
    parallelism: int | dict[str, int],
    limits: NodeLimits,
    protection: Callable[[str], UnitProtection] = lambda _: UnitProtection(),
    has_parts: bool = True,
) -> Plan:
    """Place a dataflow.

    Args:
        flow: The dataflow.
        location: The checkpoint location.
        parallelism: Instances of every unit that can have several, or by unit.
        limits: Bounds and periods of nodes.
        protection: Of a unit, by its name.
        has_parts: Whether aggregates may be computed in part where their rows come from.

    Raises:
        DataflowError: It cannot be placed.
    """
    if not flow.sinks:
        raise DataflowError(f"{flow.name} has no sink; end it with stream.sink(name)")
    if has_parts:
        flow = with_partial_aggregates(flow, _is_recorded)
    steps = _needed(flow)
    units = units_of(flow)
    counts = {unit: _instances(unit, members, parallelism) for unit, members in units.items()}
    if isinstance(parallelism, dict) and (unknown := set(parallelism) - set(units)):
        raise DataflowError(
            f"parallelism names {', '.join(sorted(unknown))}; units are {', '.join(units)}"
        )
    _refuse_cycles(units)
    _refuse_held_back(steps)
    planner = _Planner(flow, location, steps, units, counts)
    nodes = _with_losses(
        tuple(
            planner.node(unit, index, limits, protection(unit))
            for unit in units
            for index in range(counts[unit])
        )
    )
    for node in nodes:
        _require_replayable(units[node.unit], node)
    keeping = (step for step in steps if _needs_all_input(step))
    copied = {node.unit for node in nodes if node.checkpoints or node.footprints}
    never_trims = tuple(s.name for s in keeping if s.unit not in copied)
    kafka_sinks = tuple(planner.kafka_sinks)
    return Plan(
        flow,
        nodes,
        planner.sources,
        planner.sink_paths,
        never_trims,
        kafka_sinks,
        tuple(planner.raised.values()),
    )


@dataclass(frozen=True, slots=True)
class UnitClass:
    """The class of a unit: that of its most general operator. [HA §3.2]

    Attributes:
        operator_class: The class.
        operator: The first operator of this class; empty if the unit has no operator.
    """

    operator_class: OperatorClass
    operator: str


def unit_class(plan: NodePlan) -> UnitClass:
    """What recovery of the unit of this node has to cope with."""
    worst = UnitClass(OperatorClass.REPEATABLE, "")
    for spec in plan.operators:
        operator = spec.build(PageManager(plan.limits.page_bytes))
        found = operator.operator_class
        if isinstance(operator, Union) and not plan.merges_by_arrival:
            found = min(found, OperatorClass.DETERMINISTIC)  # One stream arrives in one order.
        if not worst.operator or found > worst.operator_class:
            worst = UnitClass(found, spec.name)
    return worst


def _with_losses(nodes: tuple[NodePlan, ...]) -> tuple[NodePlan, ...]:
    """What the guarantees of the units before a node mean for its input."""
    plans = {plan.node: plan for plan in nodes}
    producers = {
        plan.node: {spec.producer for spec in plan.inputs if spec.producer is not None}
        for plan in nodes
    }
    before: dict[NodeId, set[Guarantee]] = {}  # those of the units before a node
    for node in TopologicalSorter(producers).static_order():
        direct = {plans[producer].guarantee for producer in producers[node]}
        before[node] = direct.union(*(before[producer] for producer in producers[node]))
    return tuple(
        replace(plan, loses_input=before[plan.node] - {Guarantee.PRECISE} == {Guarantee.GAP})
        for plan in nodes
    )


def _needs_all_input(step: Step) -> bool:
    """Whether the operator's state can be rebuilt from its first tuple on only."""
    if step.kind != "aggregate":
        return step.kind == "join"
    windows = step.settings["windows"]
    if isinstance(windows, CountWindow):
        return windows.alignment == "key" and windows.advance > 1
    return bool(windows.alignment == "first")


def _refuse_held_back(steps: list[Step]) -> None:
    """Rows that are held back have no place among others of the same round."""
    for step in steps:
        if step.kind not in MERGING:
            continue
        for source in step.inputs:
            holder = held_back(source) if source.unit == step.unit else None
            if holder is not None:
                raise DataflowError(
                    f"{step.name} would merge rows in unit {step.unit!r} that {holder.name} holds "
                    f"back there; give {step.name} another unit(...)"
                )


def _require_replayable(members: list[Step], plan: NodePlan) -> None:
    """Whoever replays a unit from the middle of its input gives its operators windows without their
    first tuples. What those put out is discarded; it must not get into the state of others.
    """
    if plan.checkpoints is not None or not plan.is_replayed:
        return
    for step in members:
        behind = before(step, STATEFUL) if step.kind in STATEFUL else None
        if behind is not None and not _is_of_all_results(step):
            raise DataflowError(
                f"{step.name} keeps state behind {behind.name}, which does too, in one unit, "
                f"{step.unit!r}: that cannot be replayed; give {step.name} another unit(...), or "
                "the unit protection=Checkpointed(...)"
            )


def _is_of_all_results(step: Step) -> bool:
    """Whether a step aggregates windows of all results of windows, and computes nothing of them.

    An open window needs all tuples of the windows whose results are in it, so that these are
    replayed whole. Results of others get into windows only that have closed as well.
    """
    (source, *others) = step.inputs
    windows = (step.settings.get("windows"), source.settings.get("windows"))
    return (
        not others
        and step.kind == source.kind == "aggregate"
        and all(isinstance(each, Window) and each.is_plain for each in windows)
        and all(
            a.expression is None or a.expression.sql in source.schema.names
            for a in step.settings["aggregates"]
        )
    )


def _needed(flow: Dataflow) -> list[Step]:
    """The steps that some sink depends on, inputs first."""
    return _lineage(flow.sinks.values())


def _lineage(steps: Iterable[Step]) -> list[Step]:
    """These steps and all that they depend on, inputs first."""
    needed: dict[Step, None] = {}

    def visit(step: Step) -> None:
        if step not in needed:
            for source in step.inputs:
                visit(source)
            needed[step] = None

    for step in steps:
        visit(step)
    return list(needed)


def _refuse_cycles(units: dict[str, list[Step]]) -> None:
    """Units that wait for each other's boundaries would wait for ever."""
    reads = {
        unit: {s.unit for step in members for s in step.inputs if s.unit != unit}
        for unit, members in units.items()
    }
    while reads:
        ready = [unit for unit, others in reads.items() if not others & reads.keys()]
        if not ready:
            raise DataflowError(
                f"units {', '.join(reads)} read from each other in a circle; "
                "give the operators between them another unit(...)"
            )
        for unit in ready:
            del reads[unit]


def _instances(unit: str, members: list[Step], parallelism: int | dict[str, int]) -> int:
    sources = [step for step in members if step.kind == "source"]
    if sources:
        partitions = {step.settings["partitions"] for step in sources}
        if len(partitions) > 1:
            raise DataflowError(f"the sources of unit {unit!r} have different partitions")
        count: int = partitions.pop()
        if count > 1 and any(step.kind in STATEFUL for step in members):
            raise DataflowError(
                f"unit {unit!r} holds a source with {count} partitions and a stateful operator; "
                "leave the operator in a unit of its own"
            )
        return count
    wanted = parallelism.get(unit, 1) if isinstance(parallelism, dict) else parallelism
    if wanted < 1:
        raise DataflowError(f"parallelism of unit {unit!r} is {wanted}; at least 1")
    keyed = [step for step in members if step.kind in STATEFUL]
    if not keyed or not all(_partition_keys(step) for step in keyed):
        return 1
    if wanted > 1 and len(keyed) > 1:
        names = ", ".join(step.name for step in keyed)
        raise DataflowError(
            f"unit {unit!r} with parallelism {wanted} holds several keyed operators ({names}); "
            "give each a unit of its own"
        )
    inside = [source.name for step in keyed for source in step.inputs if source.unit == unit]
    if wanted > 1 and inside:
        raise DataflowError(
            f"unit {unit!r} with parallelism {wanted} cannot split what {keyed[0].name} reads by "
            f"key, as {', '.join(inside)} comes before it there; give that another unit(...)"
        )
    return wanted


def _partition_keys(step: Step) -> tuple[tuple[str, ...], ...]:
    """Per port the columns by which the input may be split; empty if it must not be."""
    if step.kind == "aggregate":
        windows, keys = step.settings["windows"], step.settings["keys"]
        if isinstance(windows, CountWindow) and windows.alignment == "stream":
            return ()
        return (keys,) if keys else ()
    if step.kind == "resample":
        match: list[tuple[str, ...]] = step.settings["match"]
        return tuple(match) if match[0] else ()
    if step.kind in JOINS:
        return (step.settings["left_keys"], step.settings["right_keys"])
    return ()


def keys_read(step: Step, position: int) -> tuple[str, ...]:
    """The columns by which an input of a step is split among instances; empty: it is not."""
    keys = _partition_keys(step)
    return keys[position] if keys else ()


def ports_read(members: list[Step]) -> list[tuple[Step, tuple[str, ...]]]:
    """What a unit reads, port by port, and the keys by which it is split: its own sources first.

    Rows of one time come in this order where several streams are merged.

    Args:
        members: The unit's steps, inputs first.
    """
    unit = members[0].unit
    ports: list[tuple[Step, tuple[str, ...]]] = [(s, ()) for s in members if s.kind == "source"]
    for step in members:
        for position, producer in enumerate(step.inputs):
            port = producer, keys_read(step, position)
            if producer.unit != unit and port not in ports:
                ports.append(port)
    return ports


def units_of(flow: Dataflow) -> dict[str, list[Step]]:
    """The steps that sinks depend on, by unit, inputs first."""
    units: dict[str, list[Step]] = {}
    for step in _needed(flow):
        units.setdefault(step.unit, []).append(step)
    return units


class _Planner:
    """Numbers ports and names streams."""

    def __init__(
        self,
        flow: Dataflow,
        location: str,
        steps: list[Step],
        units: dict[str, list[Step]],
        counts: dict[str, int],
    ) -> None:
        self._flow = flow
        self._location = location
        self._steps = steps
        self._units = units
        self._counts = counts
        self._edges = {unit: self._unit_edges(unit) for unit in units}
        self._readers: dict[str, list[tuple[str, _Edge]]] = {unit: [] for unit in units}
        for receiver, edges in self._edges.items():
            for edge in edges:
                self._readers[edge.producer.unit].append((receiver, edge))
        self._started_s = time.time() + _START_ALLOWANCE_S
        self.sources: dict[StreamId, SourceSpec] = {}
        self.sink_paths: dict[StreamId, str] = {}
        self.kafka_sinks: list[KafkaSinkSpec] = []
        self.raised: dict[str, RaisedGuarantee] = {}

    def _unit_edges(self, unit: str) -> list[_Edge]:
        """What the unit reads from other units."""
        edges = [
            _Edge(producer, port, keys)
            for port, (producer, keys) in enumerate(ports_read(self._units[unit]))
            if producer.unit != unit
        ]
        return [replace(edge, columns=self._columns(unit, edge)) for edge in edges]

    def _columns(self, unit: str, edge: _Edge) -> tuple[int, ...]:
        """The columns that the unit's steps read of an edge; a batch has one at least."""
        names: set[str] = set()
        for step in self._units[unit]:
            for position, producer in enumerate(step.inputs):
                if producer is edge.producer and edge.keys == keys_read(step, position):
                    names.update(columns_read(step.kind, position, producer.schema, step.settings))
        found = (i for i, name in enumerate(edge.producer.schema.names) if name in names)
        return tuple(found) or (0,)

    def _edge(self, step: Step, position: int) -> _Edge:
        wanted = step.inputs[position], keys_read(step, position)
        return next(e for e in self._edges[step.unit] if (e.producer, e.keys) == wanted)

    def node(
        self, unit: str, index: int, limits: NodeLimits, protection: UnitProtection
    ) -> NodePlan:
        """One instance of a unit; without state there is nothing to checkpoint."""
        members = self._units[unit]
        sources = [step for step in members if step.kind == "source"]
        operators = [step for step in members if step.kind != "source"]
        inputs = [self._source_input(s, port, index) for port, s in enumerate(sources)]
        origin_steps = list(sources)
        for edge in self._edges[unit]:
            streams = self._edge_inputs(edge, unit, index)
            inputs += streams
            origin_steps += [edge.producer] * len(streams)
        inputs = _with_waiting(inputs, origin_steps)
        footprints = footprints_of(unit, members, protection.footprints)
        specs = []
        for step in operators:
            origins = tuple(
                self._origin(step, position, sources, operators)
                for position in range(len(step.inputs))
            )
            schemas = tuple(self._read(step, position) for position in range(len(step.inputs)))
            settings = settings_over(schemas, step.settings)
            if step.kind == "aggregate" and footprints is not None:
                settings = settings | {"footprints": True}
            recipe = Recipe(step.kind, step.name, schemas, settings)
            specs.append(OperatorSpec(step.name, recipe, origins))
            _require_own_stream(step, origins, len(inputs))
            _require_places(step, len(inputs))
        arbitrary = [s for s in operators if is_arbitrary(s.kind, s.settings)]
        merges_by_arrival = bool(arbitrary) and len(inputs) > 1
        if merges_by_arrival:
            self._require_none_beside(unit)
        decides = merges_by_arrival or any(s.kind != "union" for s in arbitrary)
        guarantee = protection.guarantee
        if protection.standby is not Standby.NONE and not decides:
            guarantee = Guarantee.PRECISE  # Nothing less is cheaper with a secondary.
        if guarantee is not protection.guarantee:
            self.raised[unit] = RaisedGuarantee(unit, protection.guarantee, guarantee)
        delays = self._delays_of(unit, protection, [step.name for step in arbitrary], len(inputs))
        outputs = self._outputs(unit, index, sources, operators)
        if delays is not None:
            outputs += self._feeds(unit, outputs)
        return NodePlan(
            node=_node(unit, index),
            unit=unit,
            index=index,
            inputs=tuple(inputs),
            port_count=len(sources) + len(self._edges[unit]),
            operators=tuple(specs),
            outputs=tuple(outputs),
            is_protected=protection.is_protected,
            limits=limits,
            checkpoints=protection.checkpoints if self._has_state(operators) else None,
            standby=protection.standby,
            is_strict=protection.is_strict,
            delta_interval_ms=protection.delta_interval_ms,
            guarantee=guarantee,
            merges_by_arrival=merges_by_arrival,
            keeps_rounds=decides and protection.is_protected and guarantee is Guarantee.PRECISE,
            delays=delays,
            footprints=footprints,
        )

    def _delays_of(
        self, unit: str, protection: UnitProtection, arbitrary: list[str], streams: int
    ) -> DelayPlan | None:
        """How long a node waits for missing input; with one stream it waits for none.

        Raises:
            DataflowError: What it puts out would depend on more than its input.
        """
        if protection.delays is None:
            return None
        if arbitrary:
            raise DataflowError(
                f"unit {unit!r} is Replicated, and {arbitrary[0]!r} in it is arbitrary: what it "
                "puts out could not be corrected, as it would come out otherwise; give it "
                "UpstreamBackup() or Checkpointed(), in a unit of its own"
            )
        return protection.delays if streams > 1 else None

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
            if sink in self._flow.kafka_sinks:
                raise DataflowError(
                    f"unit {unit!r} is Replicated, and its sink {sink!r} is a Kafka topic, which "
                    "has no place for tentative results; write it to sink(...), or give the unit "
                    "another protection"
                )
            if taken := [name for name in spec.schema.names if name in FEED_COLUMNS]:
                raise DataflowError(
                    f"sink {sink!r} has a column {taken[0]!r}, which is a name of its feed's; "
                    "rename it with select(...)"
                )
            feed = StreamId(f"{sink}{FEED_SUFFIX}[{index}]")
            self.sink_paths[feed] = feed_path(self._location, sink, int(index))
            schema = feed_schema(spec.schema)
            feeds.append(replace(spec, schema=schema, streams=(feed,), feed_of=stream))
        return feeds

    def _require_none_beside(self, unit: str) -> None:
        """Where input streams are taken as they come, there must be nothing whose result would be
        another one in a unit of its own: nothing that merges in order of time, and nothing that
        anyone sees but by way of what is arbitrary.
        """
        sinks = self._flow.sinks.values()
        seen = {*sinks, *(edge.producer for _, edge in self._readers[unit])}
        arbitrary: list[Step] = []  # and what only they give to
        for step in self._units[unit]:
            is_behind = len(step.inputs) == 1 and step.inputs[0] in arbitrary
            if is_behind or is_arbitrary(step.kind, step.settings):
                arbitrary.append(step)
            elif step in seen or step.kind not in ("source", *PASSING):
                found = next(s for s in self._units[unit] if is_arbitrary(s.kind, s.settings))
                raise DataflowError(
                    f"unit {unit!r} would take its input streams as they come, for {found.name}, "
                    f"and {step.name} there would depend on that; give {found.name} another "
                    "unit(...), or none"
                )

    def _read(self, step: Step, position: int) -> pa.Schema:
        """What a step is given of one of its inputs."""
        producer = step.inputs[position]
        is_inside = producer.unit == step.unit
        return producer.schema if is_inside else self._edge(step, position).schema

    def _has_state(self, operators: list[Step]) -> bool:
        return any(step.kind in STATEFUL for step in operators)

    def _origin(
        self, step: Step, position: int, sources: list[Step], operators: list[Step]
    ) -> tuple[str, int]:
        producer = step.inputs[position]
        if producer.unit != step.unit:
            return "port", self._edge(step, position).port
        return _within(producer, sources, operators)

    def _source_input(self, step: Step, port: int, index: int) -> InputSpec:
        stream = StreamId(f"{step.name}[{index}]")
        columns = _columns_used(step, self._steps, [*self._flow.sinks.values()])
        spec = _source_spec(step, index, self._location, self._started_s, columns)
        has_parts = any(s.kind == "part" for s in self._units[step.unit])
        self.sources[stream] = (in_records(spec) if has_parts else None) or spec
        return InputSpec(stream, port, step.schema, None)

    def _edge_inputs(self, edge: _Edge, unit: str, index: int) -> list[InputSpec]:
        senders = range(self._counts[edge.producer.unit])
        if self._is_forward(edge, unit):
            senders = range(index, index + 1)
        return [
            InputSpec(
                _stream(edge, i, unit, index),
                edge.port,
                edge.schema,
                _node(edge.producer.unit, i),
            )
            for i in senders
        ]

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
        self, unit: str, index: int, sources: list[Step], operators: list[Step]
    ) -> list[OutputSpec]:
        outputs: list[OutputSpec] = []
        for receiver, edge in self._readers[unit]:
            receivers = range(self._counts[receiver])
            if self._is_forward(edge, receiver):
                receivers = range(index, index + 1)
            outputs.append(
                OutputSpec(
                    _within(edge.producer, sources, operators),
                    edge.schema,
                    tuple(_stream(edge, index, receiver, j) for j in receivers),
                    tuple(_node(receiver, j) for j in receivers),
                    edge.keys,
                    edge.columns,
                )
            )
        for sink, step in self._flow.sinks.items():
            if step.unit == unit:
                stream = StreamId(f"{sink}[{index}]")
                place = stream_path(self._location, sink, index)
                kafka = self._flow.kafka_sinks.get(sink)
                if kafka is None:
                    self.sink_paths[stream] = place
                else:
                    self.kafka_sinks.append(kafka.spec(sink, index, place))
                outputs.append(
                    OutputSpec(
                        _within(step, sources, operators),
                        step.schema,
                        (stream,),
                        (),
                        is_sink=True,
                        is_held_up=kafka is not None,
                    )
                )
        return outputs


def _source_spec(
    step: Step,
    index: int,
    location: str,
    started_s: float,
    columns: tuple[str, ...] | None = None,
) -> SourceSpec:
    settings: dict[str, Any] = step.settings
    partitions = settings["partitions"]
    if "generator" in settings:
        spec: SourceSpec = settings["generator"].spec(index, partitions)
        return spec
    if "kafka" in settings:
        reading = settings["kafka"].reading(step.name, index, partitions)
        return KafkaSourceSpec(reading, kafka_path(location, step.name, index))
    path = settings.get("path") or ingest_path(location, step.name)
    return LogSourceSpec(
        *(str(path), "ingest", index, partitions, settings["speed"], started_s), columns=columns
    )


def _columns_used(step: Step, steps: list[Step], sinks: list[Step]) -> tuple[str, ...]:
    """The columns of a step that decide what comes out anywhere, in its schema's order."""
    used: set[str] = set(step.schema.names) if step in sinks else set()
    for reader in steps:
        for position, source in enumerate(reader.inputs):
            if source is step:
                used.update(_columns_used_by(reader, position, steps, sinks))
    return tuple(name for name in step.schema.names if name in used)


def _columns_used_by(
    reader: Step, position: int, steps: list[Step], sinks: list[Step]
) -> Iterable[str]:
    """Those of its input that a step evaluates, or hands on to somebody who uses them."""
    schema, settings = reader.inputs[position].schema, reader.settings
    everything: list[str] = schema.names
    match reader.kind:
        case "filter":
            evaluated = getattr(settings["expression"], "columns", everything)
            return [*evaluated, *_columns_used(reader, steps, sinks)]
        case "select":
            named = [getattr(e, "columns", everything) for e in settings["expressions"]]
            return [column for columns in named for column in columns]
        case "part":
            return columns_read("aggregate", position, schema, settings)
        case _:
            return columns_read(reader.kind, position, schema, settings)


def _is_recorded(step: Step) -> bool:
    """Whether the tuples of a source always come in the same batches."""
    return in_records(_source_spec(step, 0, "", 0.0)) is not None


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
    return {found.name for found in _lineage([step]) if found.kind == "source"}


def _sources_held_back(step: Step) -> set[str]:
    """Those of them whose rows some operator on the way holds back."""
    holders = [found for found in _lineage([step]) if found.kind in HOLDING]
    return {found.name for found in _lineage(holders) if found.kind == "source"}


def _require_own_stream(step: Step, origins: tuple[tuple[str, int], ...], streams: int) -> None:
    """Windows aligned to a stream's ids see all of it, and nothing else."""
    windows = step.settings.get("windows")
    if not isinstance(windows, CountWindow) or windows.alignment != "stream":
        return
    if streams != 1 or origins != (("port", 0),):
        raise DataflowError(
            f"{step.name} counts the tuples of one stream, but unit {step.unit!r} reads {streams} "
            "and may filter what it reads; leave it in a unit of its own that reads one instance "
            "of another, or use counting(..., alignment='key')"
        )


def _require_places(step: Step, streams: int) -> None:
    """Results of closed windows find their place among other rows by tuple time, in which those of
    several input streams come, but those of a single one need not.
    """
    if streams > 1 or step.kind not in MERGING:
        return
    are_closed = {_is_of_closed_windows(source, step.unit) for source in step.inputs}
    if len(are_closed) > 1:
        raise DataflowError(
            f"{step.name} would merge results of closed windows in unit {step.unit!r} with other "
            f"rows of the one stream that it reads, among which they have no place; give "
            f"{step.name} another unit(...)"
        )


def _is_of_closed_windows(step: Step, unit: str) -> bool:
    """Whether a step of this unit puts out its rows when windows of event time close."""
    if step.unit != unit:
        return False
    if step.kind == "aggregate":
        windows = step.settings["windows"]
        is_timed = isinstance(windows, Window) and windows.time == "event"
        if is_timed and windows.timeout_us is None and step.settings["emit"] == "final":
            return True  # Others go by the order of their rows, or write down their rounds.
    if step.kind == "window_join":
        return True
    return any(_is_of_closed_windows(source, unit) for source in step.inputs)


def _within(step: Step, sources: list[Step], operators: list[Step]) -> tuple[str, int]:
    """Where a step of this unit puts its rows."""
    for port, source in enumerate(sources):
        if source is step:
            return "port", port
    return "operator", next(i for i, operator in enumerate(operators) if operator is step)


def _node(unit: str, index: int) -> NodeId:
    return NodeId(f"{unit}[{index}]")


def _stream(edge: _Edge, sender: int, unit: str, receiver: int) -> StreamId:
    producer = _node(edge.producer.unit, sender)
    return StreamId(f"{edge.producer.name}:{producer}>{_node(unit, receiver)}.{edge.port}")
