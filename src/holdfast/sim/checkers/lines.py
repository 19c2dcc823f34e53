"""Nodes that recover together.

I-LINE  where they go on after a recovery, and where the line stands, nobody has processed what its
        sender has not sent there, or acted on a boundary that it has not promised there, or lacks
        what its sender does not hold there. [CheckMate §III-B]
I-HALT  whoever has said where it halted stands there until it is told to go on.
I-GATE  what a recovery could still change is in no sink: a log holds nothing from where the line
        has not come yet. Where results may come again they do not wait for it.
I-ALIGN in an aligned round what a node had processed at its cut is what its sender had sent at its
        own, feedback streams left out: nothing is in flight. [CheckMate §III-A]
I-SPARE where two lines are kept, the oldest shares no checkpoint with the newest.
I-REST  no query ends for damage as long as checkpoints that can be read make a line. A driver that
        was replaced ends alone, which is no end of the query.

Lives of the driver overlap: a node of an earlier one says again where it halted, also when its
successor works. Only the incarnation that the journal gave last says where a survivor stands.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from holdfast.core.coordinator.journal_entries import LineMoved, PointNoted, RecoveryDecision
from holdfast.core.haunit.events import ReportHalted, WriteSink
from holdfast.core.haunit.plan import Cuts
from holdfast.core.haunit.told import GoOnTold
from holdfast.core.model.ids import BEGINNING_US, NodeId, PointId, StreamId
from holdfast.core.model.tuples import with_time
from holdfast.core.recovery.checkpoint_graph import Channel, CheckpointGraph, place_of
from holdfast.core.recovery.recovery_line import NoLine, recovery_line
from holdfast.core.recovery.restart_point import RestartPoint
from holdfast.sim.checkers.base import (
    Checker,
    DurablePoints,
    Entries,
    Violation,
    incarnations_in,
)
from holdfast.sim.store import Unreadable, load_checkpoint

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.core.coordinator.journal_entries import JournalEntry
    from holdfast.core.machine import Effect, Stimulus
    from holdfast.sim.process import Process
    from holdfast.sim.world import World

_BEGINNING = RestartPoint()


class Lines(Checker):
    """See the module."""

    looks_at = MappingProxyType(
        {
            "stepping": (GoOnTold,),
            "performing": (WriteSink,),
        }
    )

    def __init__(self) -> None:
        """Nobody has a point, or has halted."""
        self._channels: list[tuple[str, NodeId, NodeId]] = []
        self._feedback: set[str] = set()
        self._regions: dict[NodeId, str] = {}
        self._points: dict[tuple[NodeId, PointId], RestartPoint] = {}
        self._line: dict[NodeId, RestartPoint] = {}
        self._incarnations: dict[NodeId, int] = {}  # of members, the newest in the journal
        self._halted: dict[NodeId, tuple[int, RestartPoint]] = {}  # of these: attempt, place
        self._aligned: frozenset[NodeId] = frozenset()
        self._of_round: dict[tuple[NodeId, int], RestartPoint] = {}
        self._durable = DurablePoints()
        self._spare: dict[str, None] = {}  # regions of which two lines are kept
        self._world: World | None = None

    def begin(self, world: World) -> None:
        """Remember who recovers together, and which streams are between them."""
        self._world = world
        aligned = (p.node for p in world.plans.values() if p.cuts is Cuts.ALIGNED)
        self._aligned = frozenset(aligned)
        for plan in world.plans.values():
            if plan.region:
                self._regions[plan.node] = plan.region
                if plan.checkpoints is not None and plan.checkpoints.kept > 1:
                    self._spare[plan.region] = None
            for spec in plan.inputs:
                if spec.is_from_region and spec.producer is not None:
                    self._channels.append((spec.stream, spec.producer, plan.node))
                    if spec.is_feedback:
                        self._feedback.add(spec.stream)
        self.idle = () if self._regions else ("stepped",)

    def stepping(self, process: Process, stimulus: Stimulus) -> None:
        """A node that is told to go on has halted no more."""
        if not isinstance(stimulus, GoOnTold) or not self._counts(process):
            return
        halted = self._halted.get(process.node)
        if halted is not None and stimulus.attempt == halted[0]:
            del self._halted[process.node]

    def _counts(self, process: Process) -> bool:
        """Whether it is the last incarnation of a member that the journal knows of."""
        newest = self._incarnations.get(process.node)
        return process.machine is not None and process.machine.incarnation == newest

    def stepped(self, process: Process, stimulus: Stimulus, effects: list[Effect]) -> None:
        """I-HALT, and where a node says that it has halted."""
        if process.node not in self._regions or not self._counts(process):
            return
        attempt, place = self._halted.get(process.node, (0, None))
        if place is not None and process.machine is not None:
            before, done = place.processed_before, process.machine.positions()["processed"]
            if any(position > before[stream] for stream, position in done.items()):
                raise Violation("I-HALT", f"{process.node} goes on from {before} to {done}")
        for effect in effects:
            if isinstance(effect, ReportHalted) and effect.attempt != attempt:
                self._halted[process.node] = (effect.attempt, effect.place)

    def performing(self, process: Process, effect: Effect) -> None:
        """I-GATE."""
        if not isinstance(effect, WriteSink) or process.node not in self._regions:
            return
        line = self._line.get(process.node, _BEGINNING)
        open_before = line.next_ids.get(effect.stream, 0)
        is_ahead, may_be = effect.batch.next_id > open_before, process.plan.repeats_results
        if is_ahead and not may_be:
            raise Violation(
                "I-GATE",
                f"{process.endpoint.name} writes {effect.stream} up to {effect.batch.next_id}, "
                f"and the line has come to {open_before}",
            )
        if self._world is not None and is_ahead == may_be:
            self._world.count("written ahead of the line" if is_ahead else "let out by the line")

    def journalled(self, entries: Entries) -> None:
        """I-LINE, I-ALIGN and I-SPARE."""
        for entry in entries:
            self._learn(entry)
            if isinstance(entry, PointNoted) and entry.node in self._aligned and entry.point.round:
                self._check_round(entry.node, entry.point)
            if isinstance(entry, LineMoved):
                self._require_together(self._line)
                self._require_spare(entry)
            elif isinstance(entry, RecoveryDecision):
                self._check_decision(entry)

    def recovered(self, entries: Entries) -> None:
        """A new life of the driver: its journal may have what its predecessor never heard of."""
        self._durable = DurablePoints()
        for entry in entries:
            self._learn(entry)

    def _learn(self, entry: JournalEntry) -> None:
        for _ in self._durable.take((entry,)):
            pass
        match entry:
            case PointNoted() if entry.node in self._regions:
                self._points[entry.node, entry.point_id] = entry.point
            case LineMoved():
                self._line |= {node: self._point(node, at) for node, at in entry.line.items()}
            case RecoveryDecision():
                for node, incarnation in incarnations_in((entry,)):
                    if node in self._regions and incarnation > self._incarnations.get(node, 0):
                        self._incarnations[node] = incarnation
                        self._halted.pop(node, None)

    def failed(self, reason: str) -> None:
        """I-REST."""
        named = [node for node in self._regions if reason.startswith((f"{node}:", f"{node} "))]
        if not named or "no checkpoint" not in reason:
            return
        region = self._regions[named[0]]
        readable = {
            node: [point for point in points if self._can_be_read(node, point)]
            for node, points in self._points_of(region).items()
        }
        if self._newest_line(region, readable) is not None:
            raise Violation("I-REST", f"the query ends, though a line can be read: {reason}")

    def _require_spare(self, moved: LineMoved) -> None:
        """I-SPARE."""
        for region in {self._regions[node]: None for node in moved.line}:
            newest = self._newest_line(region, self._points_of(region))
            if region not in self._spare or newest is None:
                continue
            for node, sequence in newest.items():
                oldest = self._line.get(node, _BEGINNING).sequence
                if oldest == sequence and oldest != _BEGINNING.sequence:
                    raise Violation("I-SPARE", f"{node} has its point {oldest} on both lines")

    def _points_of(self, region: str) -> dict[NodeId, list[RestartPoint]]:
        members = [node for node, own in self._regions.items() if own == region]
        return {node: self._durable.since_line(node) for node in members}

    def _newest_line(
        self, region: str, points: Mapping[NodeId, list[RestartPoint]]
    ) -> dict[NodeId, int] | None:
        """Per node the sequence of its point on the newest line of these; None: there is none."""
        channels = tuple(
            Channel(StreamId(stream), sender, receiver, is_feedback=stream in self._feedback)
            for stream, sender, receiver in self._channels
            if self._regions[receiver] == region
        )
        places = {node: tuple(map(place_of, own)) for node, own in points.items()}
        try:
            line = recovery_line(CheckpointGraph(places, channels))
        except NoLine:
            return None
        return {node: place.sequence for node, place in line.items()}

    def _can_be_read(self, node: NodeId, point: RestartPoint) -> bool:
        if point.checkpoint is None or self._world is None:
            return True
        plan = self._world.plans[node]
        schemas = {s: with_time(o.schema) for o in plan.outputs for s in o.streams}
        bytes_max = plan.limits.state_bytes
        try:
            load_checkpoint(self._world.store, node, point.checkpoint, schemas, bytes_max)
        except Unreadable:
            return False
        return True

    def _check_round(self, node: NodeId, point: RestartPoint) -> None:
        """I-ALIGN, between a point of a round and those of its neighbours that there are."""
        self._of_round[node, point.round] = point
        for stream, sender, receiver in self._channels:
            sent = self._of_round.get((sender, point.round))
            taken = self._of_round.get((receiver, point.round))
            if node not in (sender, receiver) or sent is None or taken is None:
                continue
            processed, next_id = taken.processed_before.get(stream, 0), sent.next_ids[stream]
            if processed != next_id and stream not in self._feedback:
                raise Violation(
                    "I-ALIGN",
                    f"round {point.round}: {receiver} had processed {processed} of {stream} at its "
                    f"cut, and {sender} had sent {next_id} at its own",
                )

    def _point(self, node: NodeId, at: PointId) -> RestartPoint:
        return self._points.get((node, at), _BEGINNING)

    def _check_decision(self, decision: RecoveryDecision) -> None:
        """Whoever goes back, and the survivors of the same region, where they have halted."""
        back = {
            life.node: self._point(life.node, life.goes_back_to)
            for life in decision.lives
            if life.goes_back_to is not None
        }
        regions = {self._regions[node] for node in back}
        survivors = {
            node: place
            for node, (_, place) in self._halted.items()
            if self._regions[node] in regions
        }
        self._require_together(survivors | back)

    def _require_together(self, places: Mapping[NodeId, RestartPoint]) -> None:
        for stream, sender, receiver in self._channels:
            if sender not in places or receiver not in places:
                continue
            sent, taken = places[sender], places[receiver]
            processed, next_id = taken.processed_before.get(stream, 0), sent.next_ids.get(stream, 0)
            promised_us = sent.promised.get(stream, BEGINNING_US)
            acted_us = taken.boundary_us
            if taken.loop is not None and taken.loop.entrance is not None:
                acted_us = max(acted_us, taken.loop.entrance.open_us)
            is_ahead = acted_us > promised_us and stream not in self._feedback
            if processed > next_id or is_ahead:
                raise Violation(
                    "I-LINE",
                    f"{receiver} has {processed} of {stream} and acted on {acted_us}, of "
                    f"which {sender} has sent {next_id} and promised {promised_us}",
                )
            lap, put = taken.laps.get(stream, 0), sent.laps.get(stream, 0)
            if lap > put:
                raise Violation(
                    "I-LINE", f"{receiver} has lap {lap} of {stream}, {sender} put {put}"
                )
            if processed < min(next_id, sent.held_from.get(stream, 0)):
                raise Violation("I-LINE", f"{stream}: {sender} holds less than {receiver} lacks")
