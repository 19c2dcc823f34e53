"""Elastic restart: a location that was left at one parallelism goes on at another, precisely.

1. The dataflow comes up as it was, without anything new being written into its logs: whatever a
   crash has left is recovered first. It works off what the logs hold, until all nodes are at one
   cut, at which what each has put out is what its receivers have processed, and until the newest
   checkpoint of every node with state is of that cut.
2. It is stopped. The state of every unit that changes is read from the checkpoints of all its
   instances, divided anew by the hash by which its input will be, and written as checkpoints of
   the new instances; windows that leave footprints, from and to footprint logs
   (rescaled_footprints.py). Edges begin anew at id 0; sinks go on where their logs end.
3. One write to the journal puts the new restart points, and how many instances there are, in the
   place of the old ones. Before it the location is what it was, after it what it is to be: a crash
   between is no third case. Files that nothing leads to any more are deleted last.

A node that merges several streams may hold tuples until the slowest stream has come as far. They
are not in its state but kept by its producers. A producer that only reads sources sends them again
under the new ids; of what it sends the node drops what is older than its boundary, which it has
processed. With any other producer that is refused.
"""

from __future__ import annotations

import logging
import os
import re
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from holdfast.core.coordinator.checkpoint_registry import CheckpointRegistry
from holdfast.core.coordinator.journal_entries import (
    InstancesDecided,
    JournalEntry,
    NewLife,
    PointNoted,
    RecoveryDecision,
)
from holdfast.core.errors import LocalProtocolError
from holdfast.core.haunit.plan import FootprintPlan
from holdfast.core.haunit.prepared import PreparedCheckpoint
from holdfast.core.model.ids import (
    END_US,
    NOBODY,
    CheckpointId,
    Incarnation,
    NodeId,
)
from holdfast.core.model.stable_hash import partition_of
from holdfast.core.recovery.restart_point import CheckpointRef, RestartPoint
from holdfast.core.state.page_manager import PageManager
from holdfast.driver.draining import Draining
from holdfast.driver.rescaled_footprints import DividedFootprints
from holdfast.errors import RescalingError
from holdfast.shell.io_service import IOService
from holdfast.shell.spark.journal import COORDINATOR, JOURNAL_FOLDER, Journal, read_entries
from holdfast.shell.storage.errors import FileMissing, StorageError
from holdfast.shell.storage.logs import open_kept
from holdfast.shell.storage.paths import sync_path
from holdfast.shell.storage.places import (
    DATAFLOW_FILE,
    is_remote,
    local_path,
    read_if_any,
    store_at,
)
from holdfast.shell.storage.small_files import decode_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pyarrow as pa

    from holdfast.core.haunit.plan import NodePlan
    from holdfast.core.operators.base import Operator
    from holdfast.planning.plan import Plan
    from holdfast.shell.spark.history import NodeReport
    from holdfast.shell.spark.launch import Cluster
    from holdfast.shell.stores.base import CheckpointStore, StoreSpec

_LOG = logging.getLogger(__name__)
_INSTANCES: Final = re.compile(r"^unit (\S+): (\d+) instances$", re.MULTILINE)
_LOOK_INTERVAL_S: Final = 0.05
_CHECKPOINT_INTERVAL_MS: Final = 200
"""While it drains: what is waited for in the end is a checkpoint of every node at the cut."""
_PROCESSED_ALL: Final = 2**62
"""Of a stream that begins anew: whatever of it is older than the boundary was processed."""


def instances_in(text: str) -> dict[str, int]:
    """How many instances each unit has, by the description of a dataflow."""
    return {unit: int(count) for unit, count in _INSTANCES.findall(text)}


def with_instances(text: str, counts: Mapping[str, int]) -> str:
    """A description with other numbers of instances."""
    return _INSTANCES.sub(lambda m: f"unit {m[1]}: {counts.get(m[1], int(m[2]))} instances", text)


def instances_of(plan: Plan) -> dict[str, int]:
    """How many instances each unit has."""
    counts: dict[str, int] = {}
    for node in plan.nodes:
        counts[node.unit] = counts.get(node.unit, 0) + 1
    return counts


def draining_plan(plan: Plan) -> Plan:
    """A plan whose nodes checkpoint soon, however seldom they are to otherwise."""
    return replace(plan, nodes=tuple(_checkpointing_soon(node) for node in plan.nodes))


def _checkpointing_soon(node: NodePlan) -> NodePlan:
    if node.footprints is not None:  # All windows are written, until nothing is to be replayed.
        return replace(node, footprints=FootprintPlan(share=1.0, extent_bytes=0, recovery_us=None))
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
    """

    former: Plan
    wanted: Plan
    location: str
    timeout_s: float
    store: StoreSpec | None = None

    def require_possible(self) -> None:
        """Raise `RescalingError` for what cannot be divided, before anything is done."""
        for plan in self.former.nodes:
            if plan.region:
                self._refuse(
                    f"unit {plan.unit!r} takes its input as it comes, and logs nothing: its "
                    "instances are not drained to a cut in common"
                )
        for plan in self._changed():
            if plan.merges_by_arrival or plan.keeps_passes:
                self._refuse(
                    f"unit {plan.unit!r} depends on more than its input, and what it depended on "
                    "is logged for each of its instances"
                )
            if plan.operators and plan.checkpoints is None and plan.standby.value != "none":
                self._refuse(f"unit {plan.unit!r} has a standby instead of checkpoints")
            if plan.delays is not None:
                self._refuse(f"unit {plan.unit!r} is Replicated, and its instances have feeds")
            if not plan.is_replayed:
                self._refuse(f"unit {plan.unit!r} keeps no restart points")
            if _has_state(plan) and plan.checkpoints is None and plan.footprints is None:
                self._refuse(f"unit {plan.unit!r} has state that is not checkpointed")
            try:
                _adopt(plan, [], lambda columns: np.ones(len(columns[0]), np.bool_))
            except LocalProtocolError as error:
                self._refuse(str(error))

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
            points = self._drain(cluster, committed())
        finally:
            cluster.stop()
        self._decide(self._divided(points))

    # -- draining -----------------------------------------------------------------------------

    def _drain(
        self, cluster: Cluster, committed: Mapping[str, int | None]
    ) -> dict[NodeId, RestartPoint]:
        """Wait until all nodes are at one cut, and what they hold is stored; where each is."""
        draining = Draining(self.former, committed)
        deadline_s = time.monotonic() + self.timeout_s
        reason = "the logs were not worked off"
        while time.monotonic() < deadline_s:
            if cluster.done.is_set():
                why = cluster.error or "its input has ended, so that nothing is left to divide"
                self._refuse(f"while it drained: {why}")
            if draining.is_over(cluster.history.reports):
                stored = {n.node: cluster.registry.newest(n.node) for n in self.former.nodes}
                found = Cut(self, dict(cluster.history.reports), stored).points()
                if not isinstance(found, str):
                    return found
                reason = found
            time.sleep(_LOOK_INTERVAL_S)  # Nodes report now and then; nothing tells of it.
        self._refuse(f"within {self.timeout_s:.0f} s: {reason}")
        raise AssertionError

    # -- dividing -----------------------------------------------------------------------------

    def _divided(self, points: Mapping[NodeId, RestartPoint]) -> list[JournalEntry]:
        """The journal's new entries; the checkpoints that they lead to are written."""
        entries = read_entries(os.path.join(self.location, JOURNAL_FOLDER))
        newest = CheckpointRegistry.of(entries).incarnations()
        changed = {plan.node for plan in self._changed()}
        former = {plan.node: plan for plan in self.former.nodes}
        for plan in self.wanted.nodes:
            if plan.node in changed:
                newest[plan.node] = Incarnation(newest.get(plan.node, NOBODY) + 1)
        for place in self.wanted.sink_paths.values():
            _sync(place)
        lives = tuple(NewLife(node, incarnation) for node, incarnation in newest.items())
        if any(plan.footprints is not None for plan in self._changed()):
            self._announce(lives)
        told: list[JournalEntry] = [RecoveryDecision(lives)]
        sequence = 1 + max(point.sequence for point in points.values())
        for plan in self.wanted.nodes:
            point = points.get(plan.node, RestartPoint())
            if plan.node in changed:
                point = self._point_of(plan, points, former, sequence)
                if plan.footprints is not None:
                    point = self._footprints(plan, point, points, newest[plan.node])
                elif _has_state(plan):
                    ref = self._checkpoint(plan, point, points, newest[plan.node])
                    point = RestartPoint(
                        point.sequence,
                        point.needed_from,
                        point.processed_before,
                        point.boundary_us,
                        point.next_ids,
                        ref,
                    )
            told.append(PointNoted(plan.node, newest.get(plan.node, NOBODY), point))
        told.append(InstancesDecided(instances_of(self.wanted)))
        return told

    def _point_of(
        self,
        plan: NodePlan,
        points: Mapping[NodeId, RestartPoint],
        former: Mapping[NodeId, NodePlan],
        sequence: int,
    ) -> RestartPoint:
        """Where a node of a changed unit goes on; its state is added later."""
        of_unit = [points[name] for name, one in former.items() if one.unit == plan.unit]
        own = points.get(plan.node)
        needed: dict[str, int] = {}
        processed: dict[str, int] = {}
        for spec in plan.inputs:
            is_kept = own is not None and not self._is_affected(spec.stream)
            if is_kept and own is not None:
                needed[spec.stream] = own.needed_from.get(spec.stream, 0)
                processed[spec.stream] = own.processed_before.get(spec.stream, 0)
            else:
                needed[spec.stream] = 0
                processed[spec.stream] = _PROCESSED_ALL if len(plan.inputs) > 1 else 0
        next_ids: dict[str, int] = {}
        for output in plan.outputs:
            for stream in output.streams:
                if output.is_sink:
                    next_ids[stream] = self._sink_position(stream, own)
                elif own is not None and not self._is_affected(stream):
                    next_ids[stream] = own.next_ids.get(stream, 0)
                else:
                    next_ids[stream] = 0
        boundary_us = of_unit[0].boundary_us if own is None else own.boundary_us
        return RestartPoint(sequence, needed, processed, boundary_us, next_ids)

    def _sink_position(self, stream: str, own: RestartPoint | None) -> int:
        """The next id of a sink's stream: one that existed in an earlier life goes on there."""
        if own is not None and stream in own.next_ids:
            return own.next_ids[stream]
        place = next(path for name, path in self.wanted.sink_paths.items() if name == stream)
        reader = open_kept(place)
        try:
            reader.skip_to_end()
            return reader.next_id
        finally:
            reader.close()

    def _announce(self, lives: tuple[NewLife, ...]) -> None:
        """Have the journal know the incarnations that footprints are written by.

        1. They are written, and the restart comes to nothing. 2. The nodes come up as they were. If
        they had the same incarnations, their logs would refuse them.
        """
        journal = Journal(os.path.join(self.location, JOURNAL_FOLDER), COORDINATOR)
        try:
            journal.write([RecoveryDecision(lives)])
        finally:
            journal.close()

    def _owns(self, plan: NodePlan) -> Callable[[Sequence[pa.Array]], np.ndarray]:
        """Which rows of key columns are a new instance's."""
        count = sum(one.unit == plan.unit for one in self.wanted.nodes)

        def owns(columns: Sequence[pa.Array]) -> np.ndarray:
            return np.asarray(partition_of(columns, count) == plan.index)

        return owns

    def _footprints(
        self,
        plan: NodePlan,
        point: RestartPoint,
        points: Mapping[NodeId, RestartPoint],
        incarnation: Incarnation,
    ) -> RestartPoint:
        """Write the windows of a new instance; its point."""
        logs = DividedFootprints(self.location)
        former = [one for one in self.former.nodes if one.unit == plan.unit]
        held = [logs.operators(one, points[one.node]) for one in former]
        _, made = _adopt(plan, [one for one in held if one is not None], self._owns(plan))
        return logs.write(plan, made, point, incarnation)

    def _checkpoint(
        self,
        plan: NodePlan,
        point: RestartPoint,
        points: Mapping[NodeId, RestartPoint],
        incarnation: Incarnation,
    ) -> CheckpointRef:
        """Write the state of a new instance; it can be read, or this raises."""
        others = [
            (one, points[one.node].checkpoint) for one in self.former.nodes if one.unit == plan.unit
        ]
        held = [self._loaded(one, ref) for one, ref in others if ref is not None]
        pages, _ = _adopt(plan, held, self._owns(plan))
        checkpoint = CheckpointId(point.sequence, incarnation)
        workers = 1 if plan.checkpoints is None else plan.checkpoints.workers
        prepared = PreparedCheckpoint(
            node=plan.node,
            checkpoint=checkpoint,
            point=point,
            snapshot=pages.checkpoint(None),
            arena=pages.arena,
            page_bytes=pages.page_bytes,
            base=None,
            outputs=(),
            kept_outputs=(),
            workers=workers,
        )
        io = self._io(plan.node, workers)
        try:
            io.forget_now(checkpoint)  # Of an attempt that came to nothing: nobody knows of it.
            stored = io.write_now(prepared)
            ref = CheckpointRef(stored.checkpoint, stored.checksum, stored.bases())
            io.load_pages_now(ref, plan.limits.state_bytes)
            return ref
        finally:
            io.close()

    def _loaded(self, plan: NodePlan, ref: CheckpointRef) -> list[Operator]:
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

    def _io(self, node: NodeId, workers: int) -> IOService:
        return IOService(self._opened(), node, workers, lambda _: None, lambda *_: ())

    def _opened(self) -> CheckpointStore:
        assert self.store is not None
        return self.store.open()

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
        store = self._opened()
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

    # -- what changes -------------------------------------------------------------------------

    def is_affected(self, stream: str) -> bool:
        """Whether a stream between nodes begins anew."""
        return self._is_affected(stream)

    def merges(self, unit: str) -> bool:
        """Whether a unit's instances merge several streams by time, before and after."""
        plans = (*self.former.nodes, *self.wanted.nodes)
        return all(len(plan.inputs) > 1 for plan in plans if plan.unit == unit)

    def _changed(self) -> list[NodePlan]:
        """The wanted nodes whose restart points cannot stay as they are."""
        before = _wiring(self.former)
        after = _wiring(self.wanted)
        return [plan for plan in self.wanted.nodes if before.get(plan.node) != after[plan.node]]

    def _is_affected(self, stream: str) -> bool:
        """Whether a stream between nodes begins anew."""
        changed = {plan.node for plan in self._changed()}
        remaining = {plan.node for plan in self.wanted.nodes}
        for plan in (*self.former.nodes, *self.wanted.nodes):
            for spec in plan.inputs:
                if spec.stream != stream:
                    continue
                if spec.producer is None:
                    return False
                ends = (plan.node, spec.producer)
                if all(end in changed or end not in remaining for end in ends):
                    return True
        return False

    def _refuse(self, reason: str) -> None:
        old, new = instances_of(self.former), instances_of(self.wanted)
        changes = [f"{u} from {old.get(u)} to {n}" for u, n in new.items() if old.get(u) != n]
        raise RescalingError(
            f"{self.location} cannot go on with other numbers of instances ({', '.join(changes)}): "
            f"{reason}. It goes on with the former ones"
        )


@dataclass(frozen=True, slots=True)
class Cut:
    """Whether all nodes are at one cut, from what they say and what they have stored.

    Attributes:
        rescaling: What is to change.
        reports: The newest of every node.
        stored: The restart points in the journal.
    """

    rescaling: Rescaling
    reports: Mapping[NodeId, NodeReport]
    stored: Mapping[NodeId, RestartPoint | None]

    def points(self) -> dict[NodeId, RestartPoint] | str:
        """Where each node is, without anything to fall back on; or what is still on its way.

        A node without state is where it says: nobody needs what it put out before. Only when its
        receivers hold some of that does it go on from its stored point, and sends it again.
        """
        found: dict[NodeId, RestartPoint] = {}
        for plan in self.rescaling.former.nodes:
            point = self._of_state(plan) if _has_state(plan) else self._of_position(plan)
            if isinstance(point, str):
                return point
            found[plan.node] = point
        for plan in self.rescaling.former.nodes:
            for spec in plan.inputs:
                if spec.producer is None:
                    continue
                sent = self.reports[spec.producer].next_ids.get(spec.stream, 0)
                taken = found[plan.node].processed_before.get(spec.stream, 0)
                if sent != taken:
                    return f"{spec.stream} is at {sent}, its receiver at {taken}"
        again = self._senders_of_held(found)
        if isinstance(again, str):
            return again
        for node in again:
            found[node] = replace(self.stored[node] or RestartPoint(), older=())
        return found

    def _of_position(self, plan: NodePlan) -> RestartPoint | str:
        report = self.reports[plan.node]
        if report.figures.counted.held_tuples:
            return f"{plan.node} holds tuples until its other inputs have come as far"
        processed = dict(report.processed)
        boundary_us = report.figures.counted.boundary_us
        stored = self.stored[plan.node] or RestartPoint()
        if boundary_us == END_US:
            return f"the input of {plan.node} has ended"
        return RestartPoint(stored.sequence, processed, processed, boundary_us, report.next_ids)

    def _of_state(self, plan: NodePlan) -> RestartPoint | str:
        report, point = self.reports[plan.node], self.stored[plan.node]
        if not _is_stored(plan, point) and _has_begun(report):
            return f"{plan.node} has stored no checkpoint"
        point = point or RestartPoint()  # Without input there is no state, and no checkpoint.
        if any(point.processed_before.get(s, 0) != i for s, i in report.processed.items()):
            return f"{plan.node} has not stored its last checkpoint"
        reached = report.figures.counted.boundary_us if report.reports else point.boundary_us
        others = [self.stored[n.node] for n in self.rescaling.former.nodes if n.unit == plan.unit]
        if any((o or RestartPoint()).boundary_us != reached for o in others):
            return f"instances of {plan.unit} have not stored the same boundary"
        if point.boundary_us == END_US:
            return f"the input of {plan.node} has ended"
        logs = DividedFootprints(self.rescaling.location)
        if plan.footprints is not None and not logs.is_at_cut(plan, point):
            return f"{plan.node} has windows that are not written as they are now"
        return replace(point, older=())

    def _senders_of_held(self, found: Mapping[NodeId, RestartPoint]) -> set[NodeId] | str:
        """Who has to send again what receivers hold; or why nobody can."""
        by_node = {plan.node: plan for plan in self.rescaling.former.nodes}
        again: set[NodeId] = set()
        for name, plan in by_node.items():
            point = found[name]
            for spec in plan.inputs:
                is_held = point.needed_from.get(spec.stream, 0) < point.processed_before.get(
                    spec.stream, 0
                )
                if spec.producer is None or not is_held:
                    continue
                sender = by_node[spec.producer]
                if _has_state(sender) or any(i.producer is not None for i in sender.inputs):
                    return (
                        f"{name} holds tuples of {spec.stream} until its other inputs have come "
                        f"as far, and their producer {spec.producer} does more than read sources"
                    )
                again.add(spec.producer)
        for name, plan in by_node.items():
            for spec in plan.inputs:
                is_again = spec.producer in again and self.rescaling.is_affected(spec.stream)
                if is_again and not (_has_state(plan) and self.rescaling.merges(plan.unit)):
                    return f"{name} cannot tell what of {spec.stream} it has processed"
        return again


def _sync(place: str) -> None:
    """Make durable what a stopped node has written to a sink's log."""
    if not is_remote(place):
        for segment in Path(local_path(place)).glob("*.seg"):
            sync_path(segment)


def _adopt(
    plan: NodePlan,
    others: list[list[Operator]],
    owns: Callable[[Sequence[pa.Array]], np.ndarray],
) -> tuple[PageManager, list[Operator]]:
    """Pages and operators with what belongs to a node of those of all former instances."""
    pages = PageManager(plan.limits.page_bytes, plan.limits.state_bytes)
    made = [spec.build(pages) for spec in plan.operators]
    for number, operator in enumerate(made):
        if operator.keeps_state:
            operator.adopt([one[number] for one in others], owns, len(plan.inputs))
    return pages, made


def _has_state(plan: NodePlan) -> bool:
    pages = PageManager(plan.limits.page_bytes)
    return any(spec.build(pages).keeps_state for spec in plan.operators)


def _is_stored(plan: NodePlan, point: RestartPoint | None) -> bool:
    """Whether a point leads to a state."""
    if point is None:
        return False
    return point.checkpoint is not None or plan.footprint_stream in point.next_ids


def _has_begun(report: NodeReport) -> bool:
    """Whether a node has processed anything."""
    return any(report.processed.values())


def _wiring(plan: Plan) -> dict[NodeId, tuple[object, ...]]:
    """What of each node decides whether its restart point still means the same."""
    counts = instances_of(plan)
    return {
        node.node: (
            counts[node.unit],
            tuple(spec.stream for spec in node.inputs),
            tuple((output.streams, output.keys) for output in node.outputs),
        )
        for node in plan.nodes
    }


def described(location: str) -> str | None:
    """The dataflow that a location was made by; None: none was yet.

    With the numbers of instances that the last elastic restart has decided: the file says those of
    the first start.

    Raises:
        FileDamaged: The file is no text.
        FileMissing: It is gone, so that nobody can tell which dataflow may go on.
        JournalCorrupt: The journal is damaged.
    """
    place = os.path.join(location, DATAFLOW_FILE)
    found = read_if_any(store_at(location), DATAFLOW_FILE)
    entries = read_entries(os.path.join(location, JOURNAL_FOLDER))
    if found is None:
        if entries:
            raise FileMissing(place, "a query has run here")
        return None
    decided = CheckpointRegistry.of(entries).instances
    text = decode_text(found, place)
    return text if decided is None else with_instances(text, decided)


def settle(before: str | None, text: str) -> dict[str, int] | None:
    """How many instances each unit had, where a location differs in that alone from `text`."""
    if before is None or before == text or with_instances(before, instances_in(text)) != text:
        return None
    return instances_in(before)
