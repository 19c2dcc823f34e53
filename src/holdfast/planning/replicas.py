"""Which nodes run an instance side by side, and where sinks stand then. [DPC §3]

Each replica of an instance is a node of its own (core/replication/switching.py says why). It reads
every stream from all replicas of its producer, and each of its own streams goes to all replicas of
its reader, so an edge between units with n and m replicas has n·m streams.

A log has one writer, so each sink of a unit with replicas gets a unit of its own, with one node,
which reads like any other: `<sink>~sink`. It is Replicated with one replica, so that the feed of
what is tentative stands beside the log.

A unit that reads sources itself has no replicas: it is the paper's proxy of the source, and the log
that it reads, or fills, is the copy.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from holdfast.api.graph import Graph
from holdfast.api.steps import Source, Step, Union
from holdfast.core.haunit.plan import Standby
from holdfast.core.recovery.guarantee import Guarantee
from holdfast.core.replication.input_delay import DuringFailure
from holdfast.errors import DataflowError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from holdfast.core.haunit.plan import DelayPlan, InputSpec, NodePlan, UnitProtection
    from holdfast.core.model.ids import NodeId

SINK_UNIT_SUFFIX: Final = "~sink"


def with_sink_units(flow: Graph, protection: Callable[[str], UnitProtection]) -> Graph:
    """The dataflow with a unit of its own for each sink of a unit that has replicas."""
    apart = {
        sink: step
        for sink, step in flow.sinks.items()
        if not step.unit.endswith(SINK_UNIT_SUFFIX)
        and _replicas_asked(protection(step.unit)) > 1
        and not _reads_sources(flow, step.unit)
    }
    if not apart:
        return flow
    made = Graph(flow.name)
    made.outside_sinks = flow.outside_sinks
    made.steps = list(flow.steps)
    made.sinks = dict(flow.sinks)
    for sink, step in apart.items():
        name = f"{sink}{SINK_UNIT_SUFFIX}"
        made.sinks[sink] = Step(Union(), name, name, step.schema, (step,))
        made.steps.append(made.sinks[sink])
    return made


def with_sinks_apart(
    flow: Graph, protection: Callable[[str], UnitProtection]
) -> tuple[Graph, Callable[[str], UnitProtection]]:
    """The dataflow of `with_sink_units`, and how its units are protected."""
    made = with_sink_units(flow, protection)
    return made, with_sinks_protected(made, protection)


def _reads_sources(flow: Graph, unit: str) -> bool:
    return any(isinstance(s.operation, Source) for s in flow.steps if s.unit == unit)


def _replicas_asked(protection: UnitProtection) -> int:
    return 1 if protection.delays is None else protection.delays.replicas


def with_sinks_protected(
    flow: Graph, protection: Callable[[str], UnitProtection]
) -> Callable[[str], UnitProtection]:
    """The protection of units, those of sinks included: one node, which passes on what comes."""
    reads = {
        step.unit: step.inputs[0].unit
        for step in flow.sinks.values()
        if step.unit.endswith(SINK_UNIT_SUFFIX)
    }

    def of_unit(unit: str) -> UnitProtection:
        given = protection(reads.get(unit, unit))
        if unit not in reads or given.delays is None:
            return given
        return replace(given, delays=replace(given.delays, replicas=1, waits_alone=False))

    return of_unit


def one_reader(members: Sequence[Step], reads: int, delays: DelayPlan) -> DelayPlan:
    """What a unit was asked to do, with one replica where it reads nothing but a source."""
    is_of_source = any(isinstance(step.operation, Source) for step in members)
    return replace(delays, replicas=1) if is_of_source and reads == 1 else delays


def replicas_of(
    units: Mapping[str, Sequence[Step]], delays: Mapping[str, DelayPlan]
) -> dict[str, int]:
    """Per unit with several replicas of each instance, how many.

    Args:
        units: Per unit its steps.
        delays: Per unit that may put out tentative results how long it waits.

    Raises:
        DataflowError: One reads sources, and merges what it reads.
    """
    found: dict[str, int] = {}
    for unit, plan in delays.items():
        if plan.replicas == 1:
            continue
        sources = [step.name for step in units[unit] if isinstance(step.operation, Source)]
        found[unit] = plan.replicas
        if sources:
            raise DataflowError(
                f"unit {unit!r} is Replicated(replicas={plan.replicas}), and merges what it reads "
                f"with {sources[0]!r}, which it reads itself: a source has one reader; give the "
                "operator that merges another unit(...)"
            )
    return found


def require_replicable(nodes: Sequence[NodePlan]) -> None:
    """Refuse what cannot stand before or behind replicated units.

    Raises:
        DataflowError: Replicas would not agree, or a reader could not choose among them; or a unit
            would go on without a stream all the time.
    """
    _require_gates_in_time(nodes)
    plans = {plan.node: plan for plan in nodes}
    for plan in nodes:
        if plan.replicas:
            _require_precise_before(plan, plans)
            if any(s.is_looped for s in plan.inputs) or any(s.is_looped for s in plan.outputs):
                raise DataflowError(
                    f"unit {plan.unit!r} has replicas, and is in a loop, where they would not "
                    "agree; give it Replicated() without replicas, or UpstreamBackup()"
                )
        if not any(spec.alternates for spec in plan.inputs):
            continue
        if plan.standby is not Standby.NONE or plan.guarantee is Guarantee.GAP:
            raise DataflowError(
                f"unit {plan.unit!r} reads from a unit with replicas, among which its secondary, "
                "or a replacement that starts empty, could not choose; give it UpstreamBackup(), "
                "Checkpointed() or Replicated()"
            )


def _require_gates_in_time(nodes: Sequence[NodePlan]) -> None:
    """Refuse units that would go on without a stream all the time, as it waits behind a gate.

    Raises:
        DataflowError: A unit merges what a gate holds with what none holds, and waits no longer.
    """
    plans = {plan.node: plan for plan in nodes}
    for plan in nodes:
        delays = plan.delays
        if delays is None or delays.during_failure is DuringFailure.SUSPEND:
            continue
        waits = [(_gate_ms(spec, plans), spec) for spec in plan.inputs if not spec.is_feedback]
        longest_ms, slowest = max(waits, default=(0, None), key=lambda each: each[0])
        if slowest is None or longest_ms <= delays.bound_ms or min(ms for ms, _ in waits):
            continue
        raise DataflowError(
            f"unit {plan.unit!r} is Replicated and waits {delays.bound_ms} ms for a missing "
            f"stream, and {slowest.stream} comes {longest_ms} ms late by itself: what is behind a "
            "gate leaves with a checkpoint. Its results would always be tentative; give it a "
            "longer delay, or the units before it a shorter interval"
        )


def _gate_ms(spec: InputSpec, plans: Mapping[NodeId, NodePlan]) -> int:
    """How long gates hold a stream back, at the longest, over all that it comes from."""
    if spec.producer is None:
        return 0
    producer = plans[spec.producer]
    inputs = (each for each in producer.inputs if not each.is_feedback)
    before_ms = max((_gate_ms(each, plans) for each in inputs), default=0)
    is_gated = any(out.is_gated for out in producer.outputs if spec.stream in out.streams)
    interval_ms = producer.checkpoints.interval_ms if producer.checkpoints else 0
    return before_ms + (interval_ms if is_gated else 0)


def _require_precise_before(plan: NodePlan, plans: dict[NodeId, NodePlan]) -> None:
    seen, open_ = {plan.node}, [plan.node]
    while open_:
        for producer in plans[open_.pop()].producers():
            if plans[producer].rebases:
                raise DataflowError(
                    f"unit {plan.unit!r} has replicas, which would not agree: what unit "
                    f"{plans[producer].unit!r} before it puts out may come twice, or be missing, "
                    "after a failure; give that one a protection that recovers precisely"
                )
            if producer not in seen:
                seen.add(producer)
                open_.append(producer)
