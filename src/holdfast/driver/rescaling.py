"""Elastic restart: a location that was left at one parallelism goes on at another, precisely.

1. The dataflow comes up as it was, without anything new being written into its logs: whatever a
   crash has left is recovered first. It works off what the logs hold, until all nodes are at one
   cut, at which what each has put out is what its receivers have processed, and until the newest
   checkpoint of every node with state is of that cut.
2. It is stopped. The state of every unit that changes is read from the checkpoints of all its
   instances, divided anew by the hash by which its input will be, and written as checkpoints of
   the new instances; windows that leave footprints, from and to footprint logs
   (rescaled_footprints.py). Edges begin anew at id 0; sinks go on where they have been written to.
3. One write to the journal puts the new restart points, and how many instances there are, in the
   place of the old ones. Before it the location is what it was, after it what it is to be: a crash
   between is no third case. Files that nothing leads to any more are deleted last.

How it is divided, and whether all nodes are at one cut, planning/division.py decides.

A changed dataflow goes the same way in two steps, so that no program has to hold both. Steps 1 and
2, with the same numbers of instances, leave the location at a cut: the journal says so, until a
node lives again (`is_to_cut`). The changed dataflow then begins with the division, from the points
of that cut. Its operators take over what those of the same names hold (changes.py says which), and
units that were not there begin empty (`moved`).
"""

from __future__ import annotations

import logging
import os
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from holdfast.core.coordinator.checkpoint_registry import CheckpointRegistry
from holdfast.core.coordinator.journal_entries import (
    DataflowDecided,
    JournalEntry,
    LeftAtCut,
    NewLife,
    RecoveryDecision,
)
from holdfast.core.recovery.restart_point import CheckpointRef, RestartPoint
from holdfast.driver.draining import Draining
from holdfast.driver.rescaled_footprints import DividedFootprints
from holdfast.errors import RescalingError
from holdfast.planning.divided_regions import points_to_divide
from holdfast.planning.division import Division, Moved, Stand, instance_counts
from holdfast.shell.io_service import IOService
from holdfast.shell.kafka.source import KafkaSourceSpec
from holdfast.shell.spark.journal import COORDINATOR, JOURNAL_FOLDER, Journal, registry_at
from holdfast.shell.storage.errors import StorageError
from holdfast.shell.storage.logs import open_kept
from holdfast.shell.storage.paths import sync_path
from holdfast.shell.storage.places import is_remote, local_path

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from holdfast.core.haunit.plan import NodePlan
    from holdfast.core.haunit.prepared import PreparedCheckpoint
    from holdfast.core.model.ids import Incarnation, NodeId, StreamId
    from holdfast.core.operators.base import Operator
    from holdfast.planning.plan import Plan
    from holdfast.shell.sinks.base import OutsideSpec
    from holdfast.shell.sources.base import SourceSpec
    from holdfast.shell.spark.history import NodeReport
    from holdfast.shell.spark.launch import Cluster
    from holdfast.shell.stores.base import StoreSpec

_LOG = logging.getLogger(__name__)
_LOOK_INTERVAL_S: Final = 0.05
_CHECKPOINT_INTERVAL_MS: Final = 200
"""While it drains: what is waited for in the end is a checkpoint of every node at the cut."""


def draining_plan(plan: Plan) -> Plan:
    """A plan whose nodes checkpoint soon and whose sinks publish soon, however seldom otherwise.

    Its sources read nothing of topics: what they have logged is all that they give.
    """
    nodes = tuple(_checkpointing_soon(node) for node in plan.nodes)
    sinks = tuple(_publishing_soon(spec) for spec in plan.outside_sinks)
    sources = {stream: _draining(spec) for stream, spec in plan.sources.items()}
    return replace(plan, nodes=nodes, outside_sinks=sinks, sources=sources)


def _draining(spec: SourceSpec) -> SourceSpec:
    return replace(spec, is_draining=True) if isinstance(spec, KafkaSourceSpec) else spec


def _publishing_soon(spec: OutsideSpec) -> OutsideSpec:
    return replace(spec, interval_s=min(spec.interval_s, _CHECKPOINT_INTERVAL_MS / 1000))


def _checkpointing_soon(node: NodePlan) -> NodePlan:
    if node.footprints is not None:  # All windows are written, until nothing is to be replayed.
        soon = replace(node.footprints, share=1.0, extent_bytes=0, recovery_us=None)
        return replace(node, footprints=soon)
    if node.checkpoints is None:
        return node
    interval_ms = min(node.checkpoints.interval_ms, _CHECKPOINT_INTERVAL_MS)
    return replace(node, checkpoints=replace(node.checkpoints, interval_ms=interval_ms))


@dataclass(frozen=True, slots=True)
class Rescaling:
    """From one plan of a dataflow to another one.

    Attributes:
        former: Of what the location holds.
        wanted: Of what it is to go on with.
        location: The checkpoint location.
        timeout_s: How long the drain may take.
        store: Where checkpoints are; not looked at before it runs.
        is_to_cut: Whether the location is only to be left at a cut.
        moved: What a changed dataflow takes over; None: it is the same one.
    """

    former: Plan
    wanted: Plan
    location: str
    timeout_s: float
    store: StoreSpec | None = None
    is_to_cut: bool = False
    moved: Moved | None = None

    @property
    def division(self) -> Division:
        """Of the nodes."""
        return Division(self.former.nodes, self.wanted.nodes, self.moved)

    def require_possible(self) -> None:
        """Raise `RescalingError` for what cannot be divided, before anything is done."""
        reason = self.division.why_not(is_divided=not self.is_to_cut)
        if reason is not None:
            raise self._refused(reason)

    def run(self, cluster: Cluster, committed: Callable[[], Mapping[str, int | None]]) -> None:
        """Drain, stop, divide, decide.

        Args:
            cluster: The former plan's, not started.
            committed: Per source stream the rows that its log holds.

        Raises:
            RescalingError: It cannot be done; the location is as it was.
        """
        ended = threading.Event()
        cluster.start(ended.set)
        try:
            points, reports = self._drain(cluster, committed())
        finally:
            cluster.stop()
        self._require_nothing_more(committed(), reports)
        self._sync_sinks()
        registry = self._registry()
        now = points_to_divide(registry, self.former.nodes)
        left = self.division.left(points, now, self._home())
        if isinstance(left, str):
            raise self._refused(left)
        end: list[JournalEntry] = [LeftAtCut()] if self.is_to_cut else []
        self._decide([*self._divided(left, registry), *end])

    def go_on(self, text: str) -> None:
        """Have the location, which was left at a cut, go on with a changed dataflow.

        Args:
            text: The dataflow, as `describe` says it.

        Raises:
            RescalingError: It cannot be done; the location is as it was.
        """
        registry = self._registry()
        points = dict(registry.newest_points())
        reason = self.division.why_not_from(points)
        if reason is not None:
            raise self._refused(reason)
        self._sync_sinks()
        reason = self.division.why_not_behind(points, self._home())
        if reason is not None:
            raise self._refused(reason)
        self._decide([*self._divided(points, registry), DataflowDecided(text)])

    # -- draining -----------------------------------------------------------------------------

    def _drain(
        self, cluster: Cluster, committed: Mapping[str, int | None]
    ) -> tuple[dict[NodeId, RestartPoint], Mapping[NodeId, NodeReport]]:
        """Wait until all nodes are at one cut, and what they hold is stored; where each is."""
        draining = Draining(self.former, committed)
        deadline_s = time.monotonic() + self.timeout_s
        reason = "the logs were not worked off"
        while time.monotonic() < deadline_s:
            if cluster.done.is_set():
                why = cluster.error or "its input has ended, so that nothing is left to divide"
                raise self._refused(f"while it drained: {why}")
            if draining.is_over(cluster.history.reports):
                stored = points_to_divide(cluster.registry, self.former.nodes)
                reports = dict(cluster.history.reports)
                stands = {node: _stand(report) for node, report in reports.items()}
                try:
                    found = self.division.points(stands, stored, self._home())
                except StorageError as error:  # It may be there again in a moment.
                    found = str(error)
                if not isinstance(found, str):
                    return found, reports
                reason = found
            time.sleep(_LOOK_INTERVAL_S)  # Nodes report now and then; nothing tells of it.
        raise self._refused(f"within {self.timeout_s:.0f} s: {reason}")

    def _require_nothing_more(
        self, committed: Mapping[str, int | None], reports: Mapping[NodeId, NodeReport]
    ) -> None:
        """1. All nodes are at a cut. 2. A source's log gets more rows. 3. Nodes process some, put
        out what comes of it, and are stopped. It would come once more, otherwise divided.
        """
        for stream, rows in committed.items():
            said = [report.source_rows.get(stream) for report in reports.values()]
            if rows is not None and any(read is not None and read < rows for read in said):
                raise self._refused(
                    f"more rows came to {stream} while it was stopped; stop what writes them first"
                )

    # -- dividing -----------------------------------------------------------------------------

    def _divided(
        self, points: Mapping[NodeId, RestartPoint], registry: CheckpointRegistry
    ) -> list[JournalEntry]:
        """The journal's new entries; the checkpoints that they lead to are written."""
        return self.division.divide(points, registry.incarnations(), self._home())

    def _sync_sinks(self) -> None:
        """What nodes have put out, they are about to know as put out for ever."""
        for place in self._sink_paths().values():
            _sync(place)
        for spec in self._outside_sinks().values():
            try:
                spec.settled()  # Instances that will be no more do not come back for it.
            except StorageError as error:
                raise self._refused(str(error)) from error

    def _registry(self) -> CheckpointRegistry:
        """What the journal says, which nobody writes now."""
        return registry_at(self.location)

    def _home(self) -> _Home:
        return _Home(self.location, self._sink_paths(), self._outside_sinks(), self.store)

    def _sink_paths(self) -> Mapping[StreamId, str]:
        """Those of instances that will be no more, too."""
        return {**self.former.sink_paths, **self.wanted.sink_paths}

    def _outside_sinks(self) -> Mapping[str, OutsideSpec]:
        plans = (self.former, self.wanted)
        return {spec.stream: spec for plan in plans for spec in plan.outside_sinks}

    # -- deciding -----------------------------------------------------------------------------

    def _decide(self, entries: list[JournalEntry]) -> None:
        journal = Journal(os.path.join(self.location, JOURNAL_FOLDER), COORDINATOR)
        try:
            journal.begin_anew(entries)
        finally:
            journal.close()
        remaining = {plan.node for plan in self.wanted.nodes}
        if self.store is None:
            return  # There are no checkpoints.
        store = self.store.open()
        try:
            for plan in self.former.nodes:
                if plan.node in remaining:
                    continue
                for name in store.names(f"{plan.node}-"):
                    store.delete(name)
        except StorageError as error:  # It is decided; what stays takes room, and that is all.
            _LOG.warning("checkpoints of former instances were not deleted: %s", error)
        finally:
            store.close()

    def _refused(self, reason: str) -> RescalingError:
        return RescalingError(f"{self.location} cannot {self._aim()}: {reason}. It is as it was")

    def _aim(self) -> str:
        if self.is_to_cut:
            return "be left at a cut"
        if self.moved is not None:
            return "go on with the changed dataflow"
        old, new = instance_counts(self.former.nodes), instance_counts(self.wanted.nodes)
        changes = [f"{u} from {old.get(u)} to {n}" for u, n in new.items() if old.get(u) != n]
        return f"go on with other numbers of instances ({', '.join(changes)})"


@dataclass(frozen=True, slots=True)
class _Home:
    """The checkpoints, footprints and sinks of a location; see `division.Home`.

    Attributes:
        location: The checkpoint location.
        sink_paths: The log folder of each sink stream that is written to a log.
        outside_sinks: Those that are written to topics, files or tables.
        store: Where checkpoints are; None: there are none.
    """

    location: str
    sink_paths: Mapping[StreamId, str]
    outside_sinks: Mapping[str, OutsideSpec]
    store: StoreSpec | None

    def loaded(self, plan: NodePlan, ref: CheckpointRef) -> list[Operator]:
        """Raises `RescalingError` if it cannot be read."""
        io = self._io(plan.node, 2)
        try:
            pages = io.load_pages_now(ref, plan.limits.state_bytes)
        except Exception as error:  # Whatever is wrong with it, nothing has been changed yet.
            raise RescalingError(
                f"{self.location}: the checkpoint of {plan.node} cannot be read: {error}"
            ) from error
        finally:
            io.close()
        return [spec.build(pages) for spec in plan.operators]

    def store_checkpoint(self, plan: NodePlan, prepared: PreparedCheckpoint) -> CheckpointRef:
        """It can be read, or this raises."""
        io = self._io(plan.node, prepared.workers)
        try:
            io.forget_now(prepared.checkpoint)  # Of an attempt in vain: nobody knows of it.
            stored = io.write_now(prepared)
            ref = CheckpointRef(stored.checkpoint, stored.checksum, stored.bases())
            io.load_pages_now(ref, plan.limits.state_bytes)
            return ref
        finally:
            io.close()

    def _io(self, node: NodeId, workers: int) -> IOService:
        assert self.store is not None
        return IOService(self.store.open(), node, workers, lambda _: None, lambda *_: ())

    def windows(self, plan: NodePlan, point: RestartPoint) -> list[Operator] | None:
        """Raises `StorageError` if the log cannot be read."""
        return DividedFootprints(self.location).operators(plan, point)

    def write_windows(
        self, plan: NodePlan, made: list[Operator], point: RestartPoint, incarnation: Incarnation
    ) -> RestartPoint:
        """Raises `StorageError` if they cannot be written."""
        return DividedFootprints(self.location).write(plan, made, point, incarnation)

    def are_written(self, plan: NodePlan, point: RestartPoint) -> bool:
        """Raises `StorageError` if the log cannot be read."""
        return DividedFootprints(self.location).is_at_cut(plan, point)

    def sink_next_id(self, stream: str) -> int:
        """From the log itself, or from what outside says."""
        if stream in self.outside_sinks:
            return self.outside_sinks[stream].settled()
        place = next(path for name, path in self.sink_paths.items() if name == stream)
        reader = open_kept(place)
        try:
            reader.skip_to_end()
            return reader.next_id
        finally:
            reader.close()

    def sink_holds(self, stream: str, before: int) -> bool:
        """A log is synced once the node has been stopped; a feed that has no place holds all."""
        is_placed = stream in self.sink_paths or stream in self.outside_sinks
        return not is_placed or self.sink_next_id(stream) >= before

    def announce(self, lives: tuple[NewLife, ...]) -> None:
        """Have the journal know the incarnations that footprints are written by.

        1. They are written, and the restart comes to nothing. 2. The nodes come up as they were. If
        they had the same incarnations, their logs would refuse them.
        """
        journal = Journal(os.path.join(self.location, JOURNAL_FOLDER), COORDINATOR)
        try:
            journal.write([RecoveryDecision(lives)])
        finally:
            journal.close()


def _stand(report: NodeReport) -> Stand:
    """Where a node is, as it says."""
    counted = report.figures.counted
    return Stand(
        report.processed,
        report.next_ids,
        counted.boundary_us,
        counted.held_tuples,
        has_spoken=report.reports > 0,
    )


def _sync(place: str) -> None:
    """Make durable what a stopped node has written to a sink's log."""
    if not is_remote(place):
        for segment in Path(local_path(place)).glob("*.seg"):
            sync_path(segment)
