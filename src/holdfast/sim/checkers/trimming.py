"""What may be forgotten.

I-TRIM  a queue drops no tuple that the receiver's newest durable restart point needs. [HA §5.2]
I-ACK   a level-1 position is told upstream only after a restart point that allows it is durable,
        and a restart point is stored only when all that was put out to sinks before it is on disk.
I-LOW   level-1 positions, what durable restart points need, and the cuts of those whose state is
        replayed, never move back. [HA §5.2]
I-CUT   a node that starts at a durable restart point puts out what was put out after its cut: the
        state it rebuilds equals the state at the cut, and it asks for all it needs. Found by
        running a second node from the point over the recorded input, not by comparing watermarks.
I-STORE a checkpoint that a node may be told to start from can be read, in all its parts, and a node
        starts from no other. One that was replaced while it stood still was told of former points:
        it may begin anew, as nobody listens to it. [SGuard §4.4]
"""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

import pyarrow as pa

from holdfast.core.haunit import events
from holdfast.core.haunit.node import Node
from holdfast.core.haunit.passes import Pass, passes_of
from holdfast.core.haunit.plan import Assignment, NodeLimits
from holdfast.core.haunit.restoration import RestoredState
from holdfast.core.model.ids import (
    BEGINNING_US,
    END_US,
    CheckpointId,
    Incarnation,
    NodeId,
    StreamId,
)
from holdfast.core.model.tuples import between, with_time
from holdfast.core.recovery.restart_point import RestartPoint
from holdfast.core.state.page_manager import PageManager
from holdfast.sim.checkers.base import (
    Checker,
    DurablePoints,
    Entries,
    Violation,
    incarnations_in,
)
from holdfast.sim.process_sinks import extent_of
from holdfast.sim.store import Unreadable, load_checkpoint
from holdfast.sim.workload.promises import shared_streams, skipping_streams, touched_nodes

if TYPE_CHECKING:
    from holdfast.core.haunit.plan import NodePlan
    from holdfast.core.machine import Effect
    from holdfast.sim.checkers.output import Tape
    from holdfast.sim.disk import SimulatedLog
    from holdfast.sim.part_log import SimulatedPartLog
    from holdfast.sim.process import Process
    from holdfast.sim.world import RunResult, World

_PLENTY = 1 << 40
_STATE_BYTES = 1 << 30
_AUDITS = 4
_PASSES_MAX = 10_000


class Trimming(Checker):
    """I-TRIM, I-ACK and I-LOW."""

    looks_at = MappingProxyType(
        {
            "performing": (
                events.TrimSpill,
                events.TrimFootprints,
                events.SendAck,
                events.SendSubscribe,
            ),
        }
    )

    def __init__(self) -> None:
        """Nothing is durable, all is needed."""
        self._found = DurablePoints()
        self._durable: dict[StreamId, int] = {}  # oldest id that the durable point needs
        self._newest: dict[NodeId, RestartPoint] = {}
        self._needed_from_said: dict[
            tuple[StreamId, int], int
        ] = {}  # by the receiver's incarnation
        self._sinks: dict[StreamId, SimulatedLog | SimulatedPartLog] = {}
        self._touched: frozenset[NodeId] = frozenset()
        self._kept_for_nobody: frozenset[StreamId] = frozenset()
        self._shared: dict[StreamId, StreamId] = {}  # by the stream of a further replica

    def begin(self, world: World) -> None:
        """Remember the sinks' logs, and look where a gap is promised: nothing is kept for it."""
        self._sinks = world.sinks
        self._touched = touched_nodes(world.plans.values())
        self._kept_for_nobody = skipping_streams(world.plans.values())
        self._shared = shared_streams(world.plans.values())

    def journalled(self, entries: Entries) -> None:
        """A restart point is durable: what its node needs from now on."""
        for node, point in self._found.take(entries):
            self._check_cut(node, point)
            for stream, needed_from in self._needs_of(point).items():
                if needed_from < self._durable.get(stream, 0):
                    raise Violation("I-LOW", f"{stream}: a durable point needs {needed_from} again")
                self._durable[stream] = needed_from
            self._check_sinks(point)

    def _needs_of(self, point: RestartPoint) -> dict[StreamId, int]:
        """The oldest id that a point needs of each stream that is kept for its receiver."""
        needs = point.oldest().needed_from.items()
        return {StreamId(n): needed for n, needed in needs if n not in self._kept_for_nobody}

    def _check_cut(self, node: NodeId, point: RestartPoint) -> None:
        """After a damaged checkpoint comes one from further back."""
        before = self._newest.get(node, point)
        is_back = point.boundary_us < before.boundary_us or any(
            point.next_ids.get(stream, 0) < next_id for stream, next_id in before.next_ids.items()
        )
        is_replayed = point.checkpoint is None and point.sequence > 0
        if is_back and is_replayed and node not in self._touched:
            raise Violation("I-LOW", f"{node}: the cut of point {point.sequence} lies further back")
        self._newest[node] = point

    def _check_sinks(self, point: RestartPoint) -> None:
        wanted = point.next_ids | point.held_from  # A checkpoint may have the rest.
        for name, next_id in wanted.items():
            log = self._sinks.get(StreamId(name))
            if log is not None and log.durable_before() < next_id:
                raise Violation(
                    "I-ACK",
                    f"a restart point after {name} {next_id} is stored; on disk is only what comes "
                    f"before {log.durable_before()}",
                )

    def recovered(self, entries: Entries) -> None:
        """The newest points found count from now on."""
        self._found = DurablePoints()
        found: dict[StreamId, int] = {}
        for node, point in self._found.take(entries):
            self._newest[node] = point
            found |= self._needs_of(point)
        for stream, needed_from in self._durable.items():
            if found.get(stream, 0) < needed_from:
                raise Violation("I-LOW", f"{stream}: the journal has lost a restart point")
        self._durable |= found

    def performing(self, process: Process, effect: Effect) -> None:
        """Compare trims, level-1 positions and restart points with what is durable."""
        if getattr(effect, "stream", None) in self._kept_for_nobody:
            return
        if isinstance(effect, events.TrimSpill):
            if process.plan.diverges and not process.is_primary:
                return  # Its numbers are its own.
            durable = self._durable_of(effect.stream)
            if effect.before > durable:
                raise Violation(
                    "I-TRIM",
                    f"{process.endpoint.name} trims {effect.stream} before {effect.before}; "
                    f"needed from {durable}",
                )
        elif isinstance(effect, events.TrimFootprints):
            if effect.before > self._durable.get(effect.stream, 0):
                raise Violation(
                    "I-EXTENT",
                    f"{process.endpoint.name} trims {effect.stream} before {effect.before}; the "
                    f"durable point needs it from {self._durable.get(effect.stream, 0)} on",
                )
        elif isinstance(effect, events.SendAck | events.SendSubscribe):
            if effect.is_secondary:
                return  # It says what it has received; what is needed, the primary says.
            durable = self._durable_of(effect.stream)
            if effect.needed_from > durable:
                raise Violation(
                    "I-ACK",
                    f"{process.endpoint.name} no longer needs {effect.stream} before "
                    f"{effect.needed_from}; durable is {durable}",
                )
            key = (effect.stream, process.incarnation)
            if effect.needed_from < self._needed_from_said.get(key, 0):
                raise Violation("I-LOW", f"{effect.stream}: needed again {effect.needed_from}")
            self._needed_from_said[key] = effect.needed_from

    def _durable_of(self, stream: StreamId) -> int:
        """From where on the durable point of its receiver needs it."""
        return self._durable.get(self._shared.get(stream, stream), 0)


class RestartPoints(Checker):
    """I-CUT: audits some of the restart points that became durable."""

    looks_at = MappingProxyType(
        {
            "performing": (events.ForgetCheckpoints,),
        }
    )

    def __init__(self, tape: Tape) -> None:
        """`tape` holds what was really put out."""
        self._found = DurablePoints()
        self._tape = tape
        self._points: list[tuple[NodeId, RestartPoint]] = []
        self._newest: dict[NodeId, RestartPoint] = {}
        self._forgotten: dict[tuple[NodeId, CheckpointId], None] = {}
        self._incarnations: dict[NodeId, int] = {}
        self._world: World | None = None

    def begin(self, world: World) -> None:
        """Remember the plans and sources."""
        self._world = world

    def journalled(self, entries: Entries) -> None:
        """Remember the points that are replayed, and of the others the newest of each node."""
        self._incarnations |= dict(incarnations_in(entries))
        for node, point in self._found.take(entries):
            if point.is_mirrored:
                continue  # Its state is with a secondary, which says itself that it takes over.
            if point.checkpoint is None and point.sequence:
                self._points.append((node, point))
            else:
                self._newest[node] = point
                self._require_kept(node, point)

    def performing(self, process: Process, effect: Effect) -> None:
        """I-STORE: what the newest point or one behind it needs is not deleted."""
        if isinstance(effect, events.ForgetCheckpoints):
            self._forgotten |= {(process.node, c): None for c in effect.checkpoints}
            if process.node in self._newest:
                self._require_kept(process.node, self._newest[process.node])

    def _require_kept(self, node: NodeId, point: RestartPoint) -> None:
        for candidate in point.candidates():
            for part in candidate.checkpoint.parts() if candidate.checkpoint else ():
                if (node, part) in self._forgotten:
                    raise Violation(
                        "I-STORE",
                        f"{node}: checkpoint {part.sequence} is deleted, restart point "
                        f"{point.sequence} still leads to it",
                    )

    def recovered(self, entries: Entries) -> None:
        """A point may be durable although its writer died before it could say so."""
        self._incarnations |= dict(incarnations_in(entries))
        self._found = DurablePoints()
        for node, point in self._found.take(entries):
            if point.checkpoint is not None:
                self._newest[node] = point

    def restored(self, process: Process, point: RestartPoint) -> None:
        """I-STORE: a node starts only from a point that was told to it."""
        newest = self._newest.get(process.node)
        sequences = [] if newest is None else [p.sequence for p in newest.candidates()]
        if newest is not None and point.sequence > newest.sequence:
            raise Violation("I-STORE", f"{process.node} starts from {point.sequence}")
        is_replaced = process.incarnation < self._incarnations.get(process.node, 0)
        if point.checkpoint is None and 0 not in sequences and not is_replaced:
            raise Violation("I-STORE", f"{process.node} begins anew, which was given up")

    def end(self, result: RunResult) -> None:
        """Audit a few, evenly over the run, and of the checkpoints all that are retained."""
        stride = max(1, len(self._points) // _AUDITS)
        for node, point in self._points[stride // 2 :: stride][:_AUDITS]:
            self._audit(node, point)
        for node, newest in list(self._newest.items())[:_AUDITS]:
            for point in newest.candidates():
                if point.checkpoint is not None:
                    self._audit(node, point)

    def _restored(self, plan: NodePlan, point: RestartPoint) -> RestoredState | None:
        """The state of a point's checkpoint. I-STORE: it can be read as long as it is retained."""
        if self._world is None:
            return None
        if plan.footprints is not None:
            return self._adopted(self._world.sinks[plan.footprint_stream], plan, point)
        if point.checkpoint is None:
            return None
        store = self._world.store
        schemas: dict[StreamId, pa.Schema] = {
            s: with_time(o.schema) for o in plan.outputs for s in o.streams
        }
        try:
            loaded = load_checkpoint(store, plan.node, point.checkpoint, schemas, _STATE_BYTES)
        except Unreadable as reason:
            raise Violation("I-STORE", f"{plan.node}: a retained checkpoint: {reason}") from reason
        return RestoredState(
            point, 0, loaded.pages, loaded.image, loaded.segments, loaded.outputs, ()
        )

    @staticmethod
    def _adopted(
        log: SimulatedLog | SimulatedPartLog, plan: NodePlan, point: RestartPoint
    ) -> RestoredState:
        """The eventual checkpoint of a point, of the log as it is in the end."""
        stream = plan.footprint_stream
        extent = extent_of(log, point.needed_from[stream], point.next_ids[stream], len(plan.inputs))
        empty = PageManager(plan.limits.page_bytes)
        return RestoredState(point, 0, empty, None, (), {}, (), is_at_cut=False, extent=extent)

    def _audit(self, node: NodeId, point: RestartPoint) -> None:
        if self._world is None:
            return
        plan = self._world.plans[node]
        restored = self._restored(plan, point)
        if node in self._tape.touched or plan.region:
            return  # What it put out before is not what it would put out now.
        plan = replace(plan, limits=NodeLimits())
        incarnation = Incarnation(1 << 30)
        sinks = {s: point.next_ids[s] for o in plan.outputs if o.is_sink for s in o.streams}
        if plan.footprints is not None:
            sinks[plan.footprint_stream] = point.next_ids[plan.footprint_stream]
        passes = self._passes(plan, point, sinks)
        machine = Node(plan, Assignment(1, incarnation, point, sinks, passes=passes), 0, restored)
        effects = machine.start(0)
        for output in plan.outputs:
            for stream, receiver in zip(output.streams, output.receivers, strict=False):
                effects += machine.step(events.PeerIncarnationLearned(receiver, incarnation), 0)
                subscribe = events.SubscribeReceived(
                    stream, incarnation, incarnation, point.next_ids[stream], 0, _PLENTY
                )
                effects += machine.step(subscribe, 0)
        for spec in plan.inputs:
            effects += self._feed(machine, spec.stream, spec.producer, point)
        for _ in range(_PASSES_MAX):
            if not machine.has_work:
                break
            effects += machine.step(events.Proceed(), 0)
        for name, first_id in point.next_ids.items():
            if name in plan.own_logs or name in plan.feed_streams():
                continue
            if name in self._tape.unrecorded:
                continue
            self._compare(node, point, StreamId(name), first_id, effects)

    def _passes(
        self, plan: NodePlan, point: RestartPoint, sinks: dict[StreamId, int]
    ) -> tuple[Pass, ...]:
        """What the pass log of an arbitrary node holds in the end; `sinks` is told its length."""
        if self._world is None or not plan.keeps_passes:
            return ()
        stream = plan.pass_stream
        batches = self._world.sinks[stream].read()
        sinks[stream] = batches[-1].next_id if batches else 0
        return passes_of(between(batches, point.needed_from.get(stream, 0), sinks[stream]))

    def _feed(
        self, machine: Node, stream: StreamId, producer: NodeId | None, point: RestartPoint
    ) -> list[Effect]:
        """Everything from the point's needed id on, to the stream's end."""
        needed_from = point.needed_from[stream]
        if producer is None and self._world is not None:
            batches = self._world.sources[stream].all_from(needed_from)
            return machine.step(events.SourceRead(stream, batches, END_US), 0)
        own, other = machine.incarnation, Incarnation(1)
        effects = machine.step(events.PeerIncarnationLearned(NodeId(str(producer)), other), 0)
        next_id = needed_from
        for batch in self._tape.batches(stream, needed_from):
            silent = replace(batch, boundary_us=BEGINNING_US)
            effects += machine.step(events.BatchReceived(stream, other, own, silent), 0)
            next_id = batch.next_id
        ended = events.BoundaryReceived(stream, other, own, next_id, END_US)
        return effects + machine.step(ended, 0)

    def _compare(
        self,
        node: NodeId,
        point: RestartPoint,
        stream: StreamId,
        first_id: int,
        effects: list[Effect],
    ) -> None:
        found = [
            e.batch
            for e in effects
            if isinstance(e, events.SendBatch | events.WriteSink) and e.stream == stream
        ]
        wanted = self._tape.batches(stream, first_id)
        ours, theirs = sum(b.count for b in found), sum(b.count for b in wanted)
        if ours == theirs == 0:
            return
        if ours == theirs and found[0].first_id == wanted[0].first_id:
            tables = [pa.Table.from_batches([b.batch for b in side]) for side in (found, wanted)]
            if tables[0].equals(tables[1]):
                return
        raise Violation(
            "I-CUT",
            f"{node} started at its restart point {point.sequence} puts out {ours} tuples of "
            f"{stream} from {first_id} on that are not the {theirs} it put out",
        )
