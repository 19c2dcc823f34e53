"""From a dataflow to nodes: units, parallel instances, the streams between them. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.api import steps
from holdfast.api.windows import CountWindow, Window
from holdfast.core.haunit.plan import NodeLimits, NodePlan, UnitProtection
from holdfast.core.model.ids import StreamId
from holdfast.errors import DataflowError
from holdfast.planning.guarantees import RaisedGuarantee, with_losses
from holdfast.planning.loops import refuse_unread, require_looped_together
from holdfast.planning.nodes import Planner
from holdfast.planning.partial_aggregates import with_partial_aggregates
from holdfast.planning.refusals import refuse_held_back
from holdfast.planning.regions import with_regions
from holdfast.planning.replicas import (
    require_replicable,
    with_sinks_apart,
)
from holdfast.planning.sources import is_recorded
from holdfast.planning.tentative import with_tentative_streams
from holdfast.planning.units import instances_of, needed, refuse_cycles, units_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.api.graph import Graph
    from holdfast.api.steps import Step
    from holdfast.shell.sinks.base import OutsideSpec
    from holdfast.shell.sources.base import SourceSpec


@dataclass(frozen=True, slots=True)
class Plan:
    """A dataflow, placed.

    Attributes:
        flow: The dataflow as it is run; see partial_aggregates.py.
        nodes: All nodes.
        sources: How nodes open each source stream.
        sink_paths: The log folder of each sink stream that is written to a log.
        never_trims: Operators that keep their input for ever.
        outside_sinks: The sink streams that are written outside: to topics, or as files.
        raised: The units whose guarantee is a stronger one than was asked for.
    """

    flow: Graph
    nodes: tuple[NodePlan, ...]
    sources: dict[StreamId, SourceSpec]
    sink_paths: dict[StreamId, str]
    never_trims: tuple[str, ...]
    outside_sinks: tuple[OutsideSpec, ...] = ()
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


def plan_dataflow(
    flow: Graph,
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
    if has_parts and not any(isinstance(step.operation, steps.Loop) for step in flow.steps):
        flow = with_partial_aggregates(flow, is_recorded)
    flow, protection = with_sinks_apart(flow, protection)
    units = units_of(flow)
    counts = {unit: instances_of(unit, members, parallelism) for unit, members in units.items()}
    if isinstance(parallelism, dict) and (unknown := set(parallelism) - set(units)):
        raise DataflowError(
            f"parallelism names {', '.join(sorted(unknown))}; units are {', '.join(units)}"
        )
    refuse_unread(flow.steps, set(needed(flow)))
    refuse_cycles(units)
    refuse_held_back(needed(flow))
    planner = Planner(flow, location, units, counts)
    delays = planner.delayed(protection)
    alone = tuple(
        planner.node(unit, index, limits, protection(unit), delays.get(unit), replica)
        for unit, index, replica in planner.places()
    )
    nodes = with_tentative_streams(with_losses(with_regions(alone, protection)))
    require_looped_together(nodes)
    require_replicable(nodes)
    together = {node.unit for node in nodes if node.region}
    keeping = (step for step in needed(flow) if _needs_all_input(step))
    copied = {n.unit for n in nodes if n.checkpoints or n.footprints or n.survives_one}
    never_trims = tuple(s.name for s in keeping if s.unit not in copied)
    outside_sinks = tuple(planner.outside_sinks)
    return Plan(
        flow,
        nodes,
        planner.sources,
        planner.sink_paths,
        never_trims,
        outside_sinks,
        tuple(raised for unit, raised in planner.raised.items() if unit not in together),
    )


def _needs_all_input(step: Step) -> bool:
    """Whether the operator's state can be rebuilt from its first tuple on only."""
    operation = step.operation
    if isinstance(operation, steps.Distinct):
        return not operation.is_of_one_time
    if not isinstance(operation, steps.WindowAggregate):
        return isinstance(operation, steps.IncrementalJoin | steps.RunningAggregate | steps.Process)
    windows = operation.windows
    if isinstance(windows, CountWindow):
        return windows.alignment == "key" and windows.advance > 1
    return isinstance(windows, Window) and windows.alignment == "first"
