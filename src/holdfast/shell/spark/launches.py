"""Launches of nodes: each a Spark job of one task, with a wish where it should come up."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from holdfast.shell.spark.jobs import NodeJobs
from holdfast.shell.spark.task_spec import TaskSpec
from holdfast.shell.spark.web_ui import has_pages, view_path
from holdfast.shell.storage.footprint_log import footprint_place
from holdfast.shell.storage.pass_log import pass_folder
from holdfast.shell.storage.paths import within
from holdfast.shell.transport.addresses import Ports

if TYPE_CHECKING:
    from pyspark import SparkContext

    from holdfast.core.coordinator.events import TaskEnded
    from holdfast.core.coordinator.host_choice import Executor
    from holdfast.core.coordinator.instance import Instance
    from holdfast.core.coordinator.limits import CoordinatorLimits
    from holdfast.core.coordinator.replica import Replica
    from holdfast.core.haunit.plan import NodePlan
    from holdfast.core.model.ids import NodeId, StreamId
    from holdfast.shell.sinks.base import OutsideSpec
    from holdfast.shell.sources.base import SourceSpec
    from holdfast.shell.spark.executors import Executors
    from holdfast.shell.stores.base import StoreSpec
    from holdfast.shell.transport.channels import RunKeys


@dataclass(frozen=True, slots=True)
class LaunchSpec:
    """All that the driver needs to run a dataflow's nodes.

    Attributes:
        name: The query's name, for job groups.
        plans: All nodes.
        sources: How to open each source stream.
        sink_paths: The log folder of each sink stream that is written to a log.
        root: The checkpoint location.
        limits: Failure detection.
        store: Where checkpoints are kept; None: there are none.
        ports: Where the driver and nodes may listen.
        outside_sinks: The sink streams that are written outside: to topics, or as files.
        niceness: Of nodes, beside other sessions of their machine.
        segments: Per sink stream of which the oldest part is removed in time, the size and the age
            in seconds at which its log gets another segment.
    """

    name: str
    plans: tuple[NodePlan, ...]
    sources: dict[StreamId, SourceSpec]
    sink_paths: dict[StreamId, str]
    root: str
    limits: CoordinatorLimits
    store: StoreSpec | None = None
    ports: Ports = field(default_factory=Ports)
    outside_sinks: tuple[OutsideSpec, ...] = ()
    niceness: int = 0
    segments: Mapping[StreamId, tuple[int, float | None]] = field(default_factory=dict)


class Launches:
    """The Spark jobs of a query's nodes, and where each should come up."""

    def __init__(
        self,
        context: SparkContext,
        spec: LaunchSpec,
        executors: Executors,
        coordinator: str,
        keys: RunKeys,
        ended: Callable[[TaskEnded], None],
    ) -> None:
        """Run nothing yet.

        Args:
            context: Spark's.
            spec: What to run.
            executors: Spark's.
            coordinator: Where nodes reach it.
            keys: Those of the run.
            ended: Called from any thread when a job has ended.
        """
        self._spec = spec
        self._plans = {plan.node: plan for plan in spec.plans}
        self._coordinator = coordinator
        self._keys = keys
        self._is_local = context.master.startswith("local")
        self._executors = executors
        self._wished: dict[tuple[NodeId, int], Executor] = {}
        self._spills = {node: within(spec.root, "spill", node) for node in self._plans}
        self._footprints = {
            node: footprint_place(spec.root, plan) for node, plan in self._plans.items()
        }
        self._passes = pass_folder(spec.root)
        path = view_path(spec.root) if has_pages(context) else ""
        self.jobs = NodeJobs(context, spec.name, self._task_spec, ended, executors, path)

    def launch(self, instance: Instance, launch: int) -> None:
        """Have a task run for a launch of a node; returns at once."""
        node = instance.plan.node
        others = [replica for replica in instance.replicas if replica.launch != launch]
        chosen = self._executors.choose(
            f"{node}#{launch}", apart_from=self._machines_of(node, others)
        )
        if chosen is not None:
            self._wished[(node, launch)] = chosen
        self.jobs.launch(node, launch, instance.expected_launches, chosen)

    def _machines_of(self, node: NodeId, others: list[Replica]) -> list[str]:
        """The machine of the node's other replica, or where that is on its way to."""
        wished = [self._wished.get((node, other.launch)) for other in others]
        known = [other.host for other in others if other.host]
        return known or [executor.machine for executor in wished if executor is not None]

    def came_up(self, node: NodeId, launch: int) -> None:
        """A task of this launch runs, wherever it does."""
        self._wished.pop((node, launch), None)

    def expected(self, instance: Instance, number: int) -> int | None:
        """The launch that a process may run which the job of launch `number` has brought up."""
        node = instance.plan.node
        launch = self.jobs.launch_of(node, number)
        if instance.expects(launch):
            return launch
        awaited = instance.awaited_launch
        if awaited is not None:
            self.jobs.carry(node, number, awaited)
        return awaited

    def _task_spec(self, node: NodeId, launch: int) -> TaskSpec:
        plan = self._plans[node]
        streams = {spec.stream for spec in plan.inputs}
        sinks = {s for output in plan.outputs if output.is_sink for s in output.streams}
        return TaskSpec(
            plan=plan,
            launch=launch,
            coordinator=self._coordinator,
            keys=self._keys,
            sources={s: source for s, source in self._spec.sources.items() if s in streams},
            sink_paths={s: path for s, path in self._spec.sink_paths.items() if s in sinks},
            pass_place=within(self._passes, node),
            footprint_place=self._footprints[node],
            spill_path=self._spills[node],
            store=self._spec.store,
            is_local=self._is_local,
            ports=self._spec.ports,
            outside_sinks=tuple(s for s in self._spec.outside_sinks if s.stream in sinks),
            niceness=self._spec.niceness,
            segments={s: of for s, of in self._spec.segments.items() if s in sinks},
        )
