"""A node's process: the simulated shell around one real `Node`.

It performs effects as shell/spark/task.py does, over simulated links and disks, and decides nothing
either. A process may die, be paused, be slow, and outlive its own replacement as a zombie.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from holdfast.core.coordinator import events as c
from holdfast.core.haunit import events
from holdfast.core.haunit.node import Node
from holdfast.core.haunit.plan import Assignment, Standby
from holdfast.core.haunit.restoration import (
    BeginFrom,
    CheckpointLoaded,
    CheckpointsLost,
    CheckpointUnreadable,
    LoadCheckpoint,
    ReportDamage,
    Restoration,
    RestoredState,
)
from holdfast.core.haunit.rounds import Round, first_to_read, rounds_of
from holdfast.core.haunit.standby_replica import StandbyReplica
from holdfast.core.machine import Effect, SetTimer, Stimulus, TimerFired
from holdfast.core.model.ids import NO_ID, CheckpointId, Incarnation, NodeId, StreamId
from holdfast.core.model.tuples import TupleBatch, between, with_time
from holdfast.core.recovery.guarantee import StreamRebased
from holdfast.core.recovery.restart_point import CheckpointRef, RestartPoint
from holdfast.core.wire import frames, messages
from holdfast.core.wire.frames import CorruptFrame
from holdfast.sim.disk import Damage, SimulatedLog, Superseded
from holdfast.sim.network import Endpoint
from holdfast.sim.part_log import SimulatedPartLog
from holdfast.sim.store import CheckpointWriting, Unreadable, load_checkpoint

if TYPE_CHECKING:
    from holdfast.sim.driver import Life
    from holdfast.sim.workload.source import SimulatedReader
    from holdfast.sim.world import World

_TURN_US = 200
_MESSAGES_PER_TURN = 16
_KEEP_ALIVE_US = 100_000
_HELLO_AGAIN_US = 500_000
_FRAME_BYTES = 64
_STORE_RETRY_US = 50_000
_STORE_ATTEMPTS = 5

_STEPS: dict[type[Stimulus], str] = {
    events.BatchReceived: "batch received",
    events.SubscribeReceived: "subscription received",
    events.AckReceived: "acknowledgement received",
    events.PositionsReceived: "positions received",
    events.DeltaReceived: "delta received",
    events.DeltaAckReceived: "delta acknowledged",
    events.Promoted: "promotion due",
    events.SinkSynced: "sink synced",
    events.RestartPointStored: "restart point stored",
    events.SpillRead: "spill read",
    events.Proceed: "round due",
    events.PagesCopied: "pages copied",
    events.CheckpointWritten: "checkpoint written",
    events.CheckpointFailed: "checkpoint failed",
}
"""Steps passed before a stimulus is handled."""

_EFFECT_STEPS: dict[type[Effect], str] = {
    events.SendBatch: "batch sent",
    events.SendSubscribe: "subscription sent",
    events.SendAck: "acknowledged",
    events.WriteSink: "sink written",
    events.StoreRestartPoint: "restart point asked for",
    events.SpillBatches: "spilled",
    events.TrimSpill: "trimmed",
    events.ReportCaughtUp: "caught up",
    events.ReportPromoted: "promoted",
    events.ReportFirstOutput: "first output",
    events.ReportFinished: "node finished",
    events.WriteCheckpoint: "checkpoint prepared",
    events.SendPageRun: "pages sent",
    events.SendDelta: "delta sent",
    events.ForgetCheckpoints: "checkpoints forgotten",
}
"""Steps passed after an effect is performed."""

NODE_STEPS = (*_STEPS.values(), *_EFFECT_STEPS.values(), "assigned", "checkpoint loaded")


class Process:
    """One process of a node, in one life of the driver."""

    def __init__(self, world: World, life: Life, node: NodeId, launch: int, number: int) -> None:
        """Come up on a machine that Spark chooses."""
        self._world = world
        self._scheduler = world.scheduler
        self.life = life
        self.node = node
        self.launch = launch
        self.plan = world.plans[node]
        self.endpoint = Endpoint(
            f"{node}|{launch}|{number}", world.scheduler.uniform("spark/place", 1, world.machines)
        )
        self.machine: Node | None = None
        self.standby: StandbyReplica | None = None  # a passive secondary, until it is promoted
        self.incarnation = Incarnation(0)  # 0 before the assignment
        self.born = Incarnation(0)  # as which it began; a promotion changes the other one
        self.epoch = 0
        self.inbox: deque[Stimulus] = deque()
        self.is_dead = False
        self.paused_until_us = 0
        self.peers: dict[NodeId, tuple[events.PeerIncarnationLearned, Endpoint]] = {}
        self.spills: dict[StreamId, SimulatedLog] = {}
        self._timers: dict[str, int] = {}
        self._is_turn_due = False
        self._subscriber: dict[tuple[StreamId, Incarnation], Endpoint] = {}
        self._producer_of = {s.stream: s.producer for s in self.plan.inputs if s.producer}
        self._producer_of[self.plan.replica_stream] = node
        self.degree = len(self.plan.inputs) + sum(len(o.streams) for o in self.plan.outputs)
        self._schemas: dict[StreamId, pa.Schema] = {
            s.stream: with_time(s.schema) for s in self.plan.inputs
        }
        self._output_schemas: dict[StreamId, pa.Schema] = {
            stream: with_time(o.schema) for o in self.plan.outputs for stream in o.streams
        }
        self._readers: dict[StreamId, SimulatedReader] = {}
        self._stirring: set[StreamId] = set()  # sources that will say that there may be more
        self._storing: dict[StreamId, deque[int]] = {}  # by sink, up to where parts are wanted
        self._writing: CheckpointId | None = None  # the checkpoint being written

    def _now_ms(self) -> int:
        return self._world.clocks[self.endpoint.machine].now_ms()

    # -- coming up --------------------------------------------------------------------------

    def hello(self) -> None:
        """Say hello to the driver until the assignment comes."""
        if self.is_dead or self.incarnation or self.life.is_over:
            return
        if self._scheduler.now_us >= self.paused_until_us:
            self.life.receive_hello(self)
        self._scheduler.after(_HELLO_AGAIN_US, self.hello)

    def assign(self, given: Assignment) -> None:
        """The driver's word has arrived: open the sinks and make the machine."""
        if self.is_dead or self.incarnation:
            return
        if self._dies_at("assigned"):
            return
        next_ids: dict[StreamId, int] = {}
        rounds: tuple[Round, ...] = ()
        if not given.is_secondary:
            opened = self._open_logs(given.incarnation, given.restart_point)
            if opened is None:
                return
            next_ids, rounds = opened
        self.epoch = given.epoch
        self.incarnation = self.born = given.incarnation
        assignment = replace(given, sink_next_ids=next_ids, rounds=rounds)
        self._scheduler.note(f"{self.endpoint.name} is incarnation {given.incarnation}")
        self._world.assigned(self, assignment)
        if given.is_secondary and self.plan.standby is Standby.PASSIVE:
            self.standby = StandbyReplica(self.plan, given)
            self._perform(self.standby.start(self._now_ms()))
            self._keep_alive()
            return
        point, limits = given.restart_point, self.plan.limits
        if point is None or self.plan.checkpoints is None:
            self._begin(assignment, None)
        else:
            found = self._world.store.found(self.node)
            machine = Restoration(point, limits.page_bytes, limits.state_bytes, found)
            self._restore(machine, machine.start(), assignment)
        self._keep_alive()

    def _open_logs(
        self, incarnation: Incarnation, point: RestartPoint | None
    ) -> tuple[dict[StreamId, int], tuple[Round, ...]] | None:
        """What the sinks' logs hold, and the rounds, if it has any, from where the oldest candidate
        begins. None: a log cannot be opened or read, and the process has failed.
        """
        try:
            next_ids = {
                StreamId(log.stream): log.open(incarnation, self.endpoint.machine)
                for log in self.sinks()
            }
            stream = self.plan.round_stream
            if not self.plan.keeps_rounds:
                return next_ids, ()
            return next_ids, self._read_log(stream, first_to_read(point, stream))
        except (Damage, Superseded) as reason:
            self._fail(str(reason), is_fatal=True, incarnation=self.incarnation or incarnation)
            return None

    def _read_log(self, stream: StreamId, first: int) -> tuple[Round, ...]:
        batches = self._world.sinks[stream].read()
        return rounds_of(between(batches, first, batches[-1].next_id if batches else first))

    def promote(self, incarnation: Incarnation, point: RestartPoint | None) -> None:
        """The driver's word has arrived: open the sinks, and take over."""
        machine = self.machine or self.standby
        if self.is_dead or machine is None or not machine.is_secondary:
            return
        if any(isinstance(waiting, events.Promoted) for waiting in self.inbox):
            return
        self._world.promoted(self, incarnation)
        opened = self._open_logs(incarnation, point)
        if opened is None:
            return
        next_ids, rounds = opened
        if isinstance(machine, Node):
            if machine.may_follow(next_ids):
                self.take(events.Promoted(incarnation, point, next_ids, rounds))
            else:
                self._world.count("secondary ahead of the log")
                self._fail("a round is lost", is_fatal=False, incarnation=incarnation)
            return
        restored = machine.restored(point or RestartPoint(), next_ids)
        self._world.count("image taken over" if restored else "image of no use")
        self.standby = None
        self.incarnation = incarnation
        self.inbox.clear()
        for learned, _ in self.peers.values():
            if learned.node != self.node:
                self.inbox.append(learned)
        self._begin(Assignment(self.epoch, incarnation, point, next_ids, rounds=rounds), restored)
        self.life.receive(self, c.NodePromoted(self.node, incarnation), incarnation)

    def _restore(self, machine: Restoration, effects: list[Effect], assignment: Assignment) -> None:
        """Perform the effects of a restoration."""
        for effect in effects:
            if isinstance(effect, BeginFrom):
                self._begin(assignment, effect.state)
            elif isinstance(effect, ReportDamage):
                self._scheduler.note(f"{effect.checkpoint} is damaged: {effect.reason}")
                self._world.count("damaged checkpoint passed over")
            elif isinstance(effect, LoadCheckpoint):
                self._load(machine, effect.ref, assignment)

    def _load(self, machine: Restoration, ref: CheckpointRef, assignment: Assignment) -> None:
        def loaded() -> None:
            if self.is_dead:
                return
            paused_us = self.paused_until_us - self._scheduler.now_us
            if paused_us > 0 or self._world.is_store_away():
                self._scheduler.after(max(paused_us, _STORE_RETRY_US), loaded)
                return
            if self._dies_at("checkpoint loaded"):
                return
            limits = self.plan.limits
            answer: Stimulus
            try:
                found = load_checkpoint(
                    self._world.store, self.node, ref, self._output_schemas, limits.state_bytes
                )
                answer = CheckpointLoaded(found)
                self._world.count("checkpoint loaded")
            except Unreadable as reason:
                answer = CheckpointUnreadable(str(reason))
            try:
                effects = machine.step(answer, self._now_ms())
            except CheckpointsLost as lost:
                self._fail(str(lost), is_fatal=True, incarnation=self.incarnation)
                return
            self._restore(machine, effects, assignment)

        self._scheduler.after(self._store_us(), loaded)

    def _begin(self, assignment: Assignment, restored: RestoredState | None) -> None:
        """Make the machine; what has arrived so far is waiting for it."""
        if restored is not None and self.plan.checkpoints is not None:
            self._world.restored(self, restored)
        self.machine = Node(self.plan, assignment, self._now_ms(), restored)
        self._perform(self.machine.start(self._now_ms()))
        self._turn_soon()

    def _dies_at(self, step: str) -> bool:
        """Pass a named step; whether that was the end."""
        self._world.passed(step, self)
        return self.is_dead

    def sinks(self) -> list[SimulatedLog | SimulatedPartLog]:
        """The logs that it writes."""
        streams = [s for o in self.plan.outputs if o.is_sink for s in o.streams]
        if self.plan.keeps_rounds:
            streams.append(self.plan.round_stream)
        return [self._world.sinks[s] for s in streams]

    @property
    def is_current(self) -> bool:
        """Whether the coordinator still counts it as one of its node's replicas."""
        return self.life.machine.is_current(self.node, self.incarnation)

    @property
    def is_primary(self) -> bool:
        """Whether it works, and not as a secondary."""
        return self.machine is not None and not self.machine.is_secondary

    def meet(self, learned: events.PeerIncarnationLearned, endpoint: Endpoint) -> None:
        """A neighbour has these replicas now, and its primary is there."""
        if not self.incarnation or self.peers.get(learned.node) == (learned, endpoint):
            return
        self.peers[learned.node] = (learned, endpoint)
        self.take(learned)

    def take(self, stimulus: Stimulus) -> None:
        """Put a stimulus into the inbox."""
        if not self.is_dead:
            self.inbox.append(stimulus)
            self._turn_soon()

    # -- life and death -----------------------------------------------------------------------

    def die(self) -> None:
        """Lose everything in memory."""
        self.is_dead = True
        self.inbox.clear()

    def _fail(self, reason: str, *, is_fatal: bool, incarnation: Incarnation) -> None:
        """As a task that raises: say why, then die; Spark notices."""
        self._scheduler.note(f"{self.endpoint.name} fails: {reason}")
        failed = c.NodeFailed(self.node, incarnation, reason, is_fatal)
        self.life.receive(self, failed, incarnation)
        self.die()
        self.life.process_died(self, reason)

    def _keep_alive(self) -> None:
        machine = self.machine or self.standby
        if self.is_dead or self.life.is_over:
            return
        if self._scheduler.now_us >= self.paused_until_us:
            alive = c.KeepAliveReceived(self.node, self.incarnation, {})
            if machine is not None:
                alive = c.KeepAliveReceived(
                    self.node,
                    self.incarnation,
                    machine.known_peers(),
                    machine.known_secondaries(),
                    machine.has_joined,
                )
            self.life.receive(self, alive, self.incarnation)
        self._scheduler.after(_KEEP_ALIVE_US, self._keep_alive)

    # -- the loop ---------------------------------------------------------------------------

    def _turn_soon(self, delay_us: int | None = None) -> None:
        if not self._is_turn_due:
            self._is_turn_due = True
            if delay_us is None:
                delay_us = _TURN_US * self._world.slowness(self.endpoint.machine)
            self._scheduler.after(delay_us, self._turn)

    def _turn(self) -> None:
        self._is_turn_due = False
        if self.is_dead:
            return
        paused_us = self.paused_until_us - self._scheduler.now_us
        if paused_us > 0:
            self._turn_soon(paused_us)
            return
        machine = self.machine or self.standby
        if machine is None:
            return
        for _ in range(min(_MESSAGES_PER_TURN, len(self.inbox))):
            if self.inbox:
                self._step(machine, self.inbox.popleft())
        if not self.is_dead and machine.has_work:
            seed = self._scheduler.uniform("node/seed", 0, 1 << 62)
            clock_us = 1_700_000_000_000_000 + 1_000 * self._now_ms()
            self._step(machine, events.Proceed(clock_us, seed))
        if not self.is_dead and (self.inbox or machine.has_work):
            self._turn_soon()

    def _step(self, machine: Node | StandbyReplica, stimulus: Stimulus) -> None:
        if type(stimulus) in _STEPS and self._dies_at(_STEPS[type(stimulus)]):
            return
        name = type(stimulus).__name__
        self._scheduler.note(f"{self.endpoint.name} {name}")
        if isinstance(machine, Node):
            try:
                effects = self._world.stepped(self, machine, stimulus, self._now_ms())
            except StreamRebased as rebased:
                self._world.count("started once more for a rebased stream")
                self._fail(str(rebased), is_fatal=False, incarnation=self.incarnation)
                return
        else:
            effects = machine.step(stimulus, self._now_ms())
            machine.check_invariants()
            self._world.followed(self, stimulus, effects)
        self._perform(effects)

    def _perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            if self.is_dead:
                return
            self._world.performing(self, effect)
            try:
                _PERFORMERS[type(effect)](self, effect)
            except Damage as damage:
                self._fail(str(damage), is_fatal=False, incarnation=self.incarnation)
                return
            if type(effect) in _EFFECT_STEPS:
                self._world.passed(_EFFECT_STEPS[type(effect)], self)

    def _answer(self, stimulus: Stimulus, delay_us: int) -> None:
        self._scheduler.after(delay_us, lambda: self.take(stimulus))

    def _disk_us(self) -> int:
        machine = self.endpoint.machine
        disk_us = self._scheduler.uniform("disk", 100, self._world.disk_us)
        return disk_us * self._world.disk_slowness(machine)

    def _is_disk_full(self) -> bool:
        if not self._world.is_disk_full(self.endpoint.machine):
            return False
        self._fail("no space left on device", is_fatal=True, incarnation=self.incarnation)
        return True

    # -- checkpoints ------------------------------------------------------------------------

    def _store_us(self) -> int:
        return self._scheduler.uniform("store", 100, self._world.disk_us)

    def _write_checkpoint(self, effect: events.WriteCheckpoint) -> None:
        writing = CheckpointWriting(self._world.store, effect.prepared, self._spilled)
        checkpoint = effect.prepared.checkpoint
        self._writing = checkpoint

        def step() -> None:
            if self.is_dead or self._writing != checkpoint:
                return
            if self._world.is_store_away() or self._world.is_disk_full(self.endpoint.machine):
                self._world.count("checkpoint failed")
                self.take(events.CheckpointFailed(checkpoint, "the store takes nothing"))
                return
            try:
                answer = writing.step()
            except Damage as damage:
                answer = events.CheckpointFailed(checkpoint, str(damage))
            self.take(answer)
            if isinstance(answer, events.PagesCopied):
                self._scheduler.after(self._store_us(), step)

        self._scheduler.after(self._store_us(), step)

    def _ask_to_write(self, _: events.AskToWrite) -> None:
        self.life.receive(self, c.WriteWanted(self.node, self.incarnation), self.incarnation)

    def _leave_writers(self, _: events.LeaveWriters) -> None:
        self.life.receive(self, c.WriteEnded(self.node, self.incarnation), self.incarnation)

    def _cancel_checkpoint(self, effect: events.CancelCheckpoint) -> None:
        if self._writing == effect.checkpoint:
            self._writing = None
        self._world.count("checkpoint cancelled")

    def _forget_checkpoints(self, effect: events.ForgetCheckpoints) -> None:
        for checkpoint in effect.checkpoints:
            self._world.store.forget(self.node, checkpoint)

    def _spilled(self, stream: StreamId, from_id: int, to_id: int) -> tuple[TupleBatch, ...]:
        """What an output queue has spilled. Raises `Damage` if it is gone."""
        log = self.spills.get(stream)
        batches = between(log.read(), from_id, to_id) if log is not None else ()
        found = sum(batch.count for batch in batches)
        if found != to_id - from_id:
            raise Damage(f"{stream}: {found} of {to_id - from_id} spilled tuples")
        return batches

    # -- frames -----------------------------------------------------------------------------

    def _send(self, target: Endpoint, stimulus: messages.NodeMessage, size_bytes: int) -> None:
        receiver = self._world.processes.get(target.name)
        if receiver is None:
            return
        self._world.remember_frame(receiver.node, self.epoch, stimulus)
        epoch, sender = self.epoch, self.endpoint

        def deliver(is_torn: bool) -> None:
            receiver.receive(stimulus, epoch, sender, is_torn=is_torn)

        self._world.network.send(self.endpoint, target, size_bytes, deliver)

    def receive(
        self, stimulus: messages.NodeMessage, epoch: int, sender: Endpoint, *, is_torn: bool
    ) -> None:
        """A frame arrives; what `frames.decode` refuses has no effect."""
        if self.is_dead or (self.machine is None and self.standby is None):
            return
        if is_torn or self._world.uses_codec:
            decoded = self._decoded(stimulus, epoch, is_torn=is_torn)
            if isinstance(decoded, CorruptFrame):
                self._world.count("corrupt frame refused")
                return
            stimulus = decoded
        elif epoch != self.epoch:
            return
        if isinstance(stimulus, events.SubscribeReceived):
            self._subscriber[(stimulus.stream, stimulus.sender)] = sender
        self.take(stimulus)

    def _decoded(
        self, stimulus: messages.NodeMessage, epoch: int, *, is_torn: bool
    ) -> messages.NodeMessage | CorruptFrame:
        streams = self.plan.edge_streams()
        parts = [bytes(memoryview(part)) for part in frames.encode(stimulus, epoch, streams)]
        if is_torn:
            last = parts[-1]
            parts[-1] = last[: self._scheduler.uniform("net/torn", 0, len(last) - 1)]
        return frames.decode(parts, self._schemas | self._output_schemas, self.epoch)

    def _send_down(
        self, stream: StreamId, receiver: Incarnation, stimulus: messages.NodeMessage, size: int
    ) -> None:
        """To the process of that incarnation which subscribed, if it is still connected to us."""
        target = self._subscriber.get((stream, receiver))
        if target is None:
            return
        process = self._world.processes[target.name]
        known = process.peers.get(self.node)
        if known is not None and known[1] == self.endpoint:
            self._send(target, stimulus, size)

    def _send_up(self, stream: StreamId, stimulus: messages.NodeMessage) -> None:
        known = self.peers.get(self._producer_of[stream])
        if known is not None:
            self._send(known[1], stimulus, _FRAME_BYTES)

    # -- effects ----------------------------------------------------------------------------

    def _set_timer(self, effect: SetTimer) -> None:
        self._timers[effect.name] = effect.at_ms

        def fire() -> None:
            if self._timers.get(effect.name) == effect.at_ms and not self.is_dead:
                del self._timers[effect.name]
                self.take(TimerFired(effect.name))

        self._world.clocks[self.endpoint.machine].wait_until(effect.at_ms, fire)

    def _send_message(self, effect: messages.Down) -> None:
        size = _FRAME_BYTES
        if isinstance(effect, events.SendBatch):
            size += effect.batch.nbytes
        elif isinstance(effect, events.SendPageRun):
            size += effect.run.words.nbytes
        elif isinstance(effect, events.SendDelta):
            size += sum(batch.nbytes for _, batch in effect.delta.batches)
        message = messages.message_of(effect, self.incarnation)
        self._send_down(effect.stream, effect.receiver, message, size)

    def _answer_message(self, effect: messages.Up) -> None:
        self._send_up(effect.stream, messages.message_of(effect, self.incarnation))

    def _promoted(self, _: events.ReportPromoted) -> None:
        machine = self.machine
        if machine is not None:
            self.incarnation = machine.incarnation
            promoted = c.NodePromoted(self.node, self.incarnation)
            self.life.receive(self, promoted, self.incarnation)

    def _read_source(self, effect: events.ReadSource) -> None:
        source = self._source(effect.stream)
        from_id = effect.from_id
        if from_id == NO_ID:
            from_id = source.newest_id(self._scheduler.now_us)
        wanted = min(effect.max_tuples, self._scheduler.uniform(f"source/{effect.stream}", 1, 64))
        batches, boundary_us = source.read(from_id, wanted, self._scheduler.now_us)
        delay_us = self._scheduler.uniform("source/read", 20, 500)
        read = events.SourceRead(effect.stream, batches, boundary_us, from_id)
        self._answer(read, delay_us)
        if not batches and effect.stream not in self._stirring:
            self._stirring.add(effect.stream)
            stirs_us = self._scheduler.uniform("source/stirs", 100, 60_000)
            self._scheduler.after(delay_us + stirs_us, lambda: self._stir(effect.stream))

    def _source(self, stream: StreamId) -> SimulatedReader:
        """This process's own reader of a source."""
        return self._readers.setdefault(stream, self._world.sources[stream].open())

    def _stir(self, stream: StreamId) -> None:
        """There may be something by now, or not."""
        self._stirring.discard(stream)
        if self.machine is not None:
            self.take(events.SourceStirred(stream))

    def _write_sink(self, effect: events.WriteSink) -> None:
        if self._is_disk_full():
            return
        try:
            self._world.sinks[effect.stream].append(self.incarnation, effect.batch)
        except Damage as damage:
            self._fail(str(damage), is_fatal=True, incarnation=self.incarnation)

    def _sync_sink(self, effect: events.SyncSink) -> None:
        log = self._world.sinks[effect.stream]
        written_before = log.next_id(self.incarnation)
        if isinstance(log, SimulatedPartLog):
            requests = self._storing.setdefault(effect.stream, deque())
            requests.append(written_before)
            if len(requests) == 1:
                self._store_part(log, requests, 0)
            return

        def synced() -> None:
            if not self.is_dead:
                log.sync(self.incarnation)
                notice()

        def notice() -> None:
            paused_us = self.paused_until_us - self._scheduler.now_us
            if paused_us > 0:  # What is on disk is; the process hears of it when it wakes up.
                self._scheduler.after(paused_us, notice)
            elif not self.is_dead and not self._is_superseded(log):
                self.take(events.SinkSynced(effect.stream, written_before))

        self._scheduler.after(self._disk_us(), synced)

    def _store_part(self, log: SimulatedPartLog, requests: deque[int], attempt: int) -> None:
        """One part after the other, each tried again as long as the store gives no answer."""

        def store() -> None:
            paused_us = self.paused_until_us - self._scheduler.now_us
            if self.is_dead:
                if self._scheduler.uniform("store/late", 0, 1):
                    log.store(self.incarnation, self._pick_late)
                    self._world.count("part stored after its writer died")
            elif paused_us > 0:
                self._scheduler.after(paused_us, store)
            elif self._world.is_store_away():
                self._retry_part(log, requests, attempt)
            else:
                log.store(self.incarnation)
                if attempt < _STORE_ATTEMPTS - 1 and not self._scheduler.uniform(
                    "store/lost", 0, 9
                ):
                    self._world.count("answer of the store lost")
                    self._retry_part(log, requests, attempt)
                else:
                    self._part_stored(log, requests)

        self._scheduler.after(self._store_us(), store)

    def _pick_late(self, low: int, high: int) -> int:
        return self._scheduler.uniform("store/cut", low, high)

    def _retry_part(self, log: SimulatedPartLog, requests: deque[int], attempt: int) -> None:
        if attempt == _STORE_ATTEMPTS - 1:
            self._fail("the store is away", is_fatal=False, incarnation=self.incarnation)
            return
        again = lambda: self._store_part(log, requests, attempt + 1)  # noqa: E731
        self._scheduler.after(_STORE_RETRY_US << attempt, again)

    def _is_superseded(self, log: SimulatedLog | SimulatedPartLog) -> bool:
        """Whether a successor may have missed a round: then it may not count, and all is over."""
        if log.stream != self.plan.round_stream or log.is_newest(self.incarnation):
            return False
        self._world.count("round of a zombie")
        self._fail("superseded", is_fatal=False, incarnation=self.incarnation)
        return True

    def _part_stored(self, log: SimulatedPartLog, requests: deque[int]) -> None:
        if self._is_superseded(log):
            return
        try:
            log.stored(self.incarnation)
        except Damage as damage:  # Of a part that was to be merged.
            self._fail(str(damage), is_fatal=True, incarnation=self.incarnation)
            return
        self.take(events.SinkSynced(StreamId(log.stream), requests.popleft()))
        if requests:
            self._store_part(log, requests, 0)

    def _spill(self, effect: events.SpillBatches) -> None:
        if self._is_disk_full():
            return
        log = self.spills.get(effect.stream)
        if log is None:
            schema = effect.batches[0].batch.schema
            log = self.spills[effect.stream] = SimulatedLog(effect.stream, schema)
            log.open(self.born, self.endpoint.machine, effect.batches[0].first_id)
        if effect.batches[0].first_id > log.next_id(self.born):
            log.skip_to(self.born, effect.batches[0].first_id)
        for batch in effect.batches:
            log.append(self.born, batch)

    def _read_spill(self, effect: events.ReadSpill) -> None:
        batches = self._spilled(effect.stream, effect.from_id, effect.to_id)
        self._world.count("spill read")
        read = events.SpillRead(effect.stream, effect.request_id, batches)
        self._answer(read, self._disk_us())

    def _store_point(self, effect: events.StoreRestartPoint) -> None:
        point = c.RestartPointReceived(self.node, self.incarnation, effect.point)
        self.life.receive(self, point, self.incarnation)

    def _caught_up(self, effect: events.ReportCaughtUp) -> None:
        caught_up = c.NodeCaughtUp(self.node, self.incarnation, effect.replayed_tuples)
        self.life.receive(self, caught_up, self.incarnation)

    def _first_output(self, _: events.ReportFirstOutput) -> None:
        self.life.receive(self, c.FirstOutput(self.node, self.incarnation), self.incarnation)

    def _finished(self, _: events.ReportFinished) -> None:
        self.life.receive(self, c.NodeFinished(self.node, self.incarnation), self.incarnation)

    def _read_rounds(self, effect: events.ReadRounds) -> None:
        def read() -> None:
            if self.is_dead:
                return
            try:
                rounds = self._read_log(self.plan.round_stream, effect.from_number)
            except Damage:
                rounds = ()  # The primary will find it.
            self.take(events.RoundsRead(rounds))

        self._scheduler.after(self._disk_us() // 10, read)

    def _gap(self, _: events.ReportGap) -> None:
        self._world.count("gap reported")

    def _nothing(self, _: Effect) -> None:
        """Nothing that a run can see."""


_PERFORMERS: dict[type[Effect], Any] = {
    SetTimer: Process._set_timer,
    events.SendBatch: Process._send_message,
    events.SendBoundary: Process._send_message,
    events.SendPositions: Process._send_message,
    events.SendPageRun: Process._send_message,
    events.SendDelta: Process._send_message,
    events.SendDeltaAck: Process._answer_message,
    events.SendSubscribe: Process._answer_message,
    events.SendAck: Process._answer_message,
    events.ReadSource: Process._read_source,
    events.WriteSink: Process._write_sink,
    events.EndSink: Process._nothing,
    events.ReadRounds: Process._read_rounds,
    events.TrimRounds: Process._nothing,
    events.SyncSink: Process._sync_sink,
    events.SpillBatches: Process._spill,
    events.ReadSpill: Process._read_spill,
    events.TrimSpill: Process._nothing,
    events.StoreRestartPoint: Process._store_point,
    events.ReportCaughtUp: Process._caught_up,
    events.ReportGap: Process._gap,
    events.ReportPromoted: Process._promoted,
    events.ReportFirstOutput: Process._first_output,
    events.ReportFinished: Process._finished,
    events.WriteCheckpoint: Process._write_checkpoint,
    events.AskToWrite: Process._ask_to_write,
    events.LeaveWriters: Process._leave_writers,
    events.CancelCheckpoint: Process._cancel_checkpoint,
    events.ForgetCheckpoints: Process._forget_checkpoints,
    events.ReportCheckpoint: Process._nothing,
}
