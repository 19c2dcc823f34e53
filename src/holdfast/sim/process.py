"""A node's process: the simulated shell around one real `NodeLife`.

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
from holdfast.core.haunit.extent_restoration import ExtentRead, ReadExtent
from holdfast.core.haunit.life import RECOVERABLE, NodeLife
from holdfast.core.haunit.life_events import (
    BeginIncarnation,
    Connect,
    Disconnect,
    Fail,
    OpenSinks,
    OpenSources,
    OpenStore,
    ReadRecordedPasses,
    SinksOpened,
    SourcesOpened,
    StoreOpened,
)
from holdfast.core.haunit.node import Node
from holdfast.core.haunit.passes import PassesLost
from holdfast.core.haunit.plan import Standby
from holdfast.core.haunit.restoration import (
    CheckpointLoaded,
    CheckpointUnreadable,
    LoadCheckpoint,
    ReportDamage,
)
from holdfast.core.haunit.standby_replica import StandbyReplica
from holdfast.core.haunit.told import (
    AssignmentReceived,
    GoOnTold,
    HaltTold,
    LineTold,
    PromotionReceived,
    RollBackTold,
    RoundTold,
)
from holdfast.core.machine import Effect, SetTimer, Stimulus, TimerFired
from holdfast.core.model.ids import (
    BEGINNING_US,
    NO_ID,
    CheckpointId,
    Incarnation,
    NodeId,
    StreamId,
)
from holdfast.core.model.tuples import TupleBatch, between, with_time
from holdfast.core.recovery.guarantee import RolledBack, StreamRebased
from holdfast.core.wire import frames, messages
from holdfast.core.wire.frames import CorruptFrame
from holdfast.sim.disk import Damage, SimulatedLog, Superseded
from holdfast.sim.network import Endpoint
from holdfast.sim.process_sinks import ProcessSinks
from holdfast.sim.store import CheckpointWriting, Unreadable, load_checkpoint

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.sim.driver import Life
    from holdfast.sim.workload.source import SimulatedReader
    from holdfast.sim.world import World

_TURN_US = 200
_MESSAGES_PER_TURN = 16
_KEEP_ALIVE_US = 100_000
_HELLO_AGAIN_US = 500_000
_FRAME_BYTES = 64
_NOTE_BYTES = 16
_STORE_RETRY_US = 50_000
_STORE_ATTEMPTS = 5

_STEPS: dict[type[Stimulus], str] = {
    AssignmentReceived: "assigned",
    SinksOpened: "sinks opened",
    CheckpointLoaded: "checkpoint loaded",
    CheckpointUnreadable: "checkpoint loaded",
    ExtentRead: "checkpoint loaded",
    PromotionReceived: "promotion due",
    events.BatchReceived: "batch received",
    events.SubscribeReceived: "subscription received",
    events.AckReceived: "acknowledgement received",
    events.PositionsReceived: "positions received",
    events.DeltaReceived: "delta received",
    events.DeltaAckReceived: "delta acknowledged",
    events.SinkSynced: "sink synced",
    events.RestartPointStored: "restart point stored",
    events.SpillRead: "spill read",
    HaltTold: "halt due",
    GoOnTold: "going on due",
    RollBackTold: "going back due",
    LineTold: "line moved",
    RoundTold: "round told",
    events.Proceed: "pass due",
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
    events.ReportHalted: "halted",
    events.WantRound: "round wanted",
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

NODE_STEPS = tuple(dict.fromkeys((*_STEPS.values(), *_EFFECT_STEPS.values())))

_MAY_PASS = (*RECOVERABLE, Superseded)
"""Failures that a replacement may not meet again."""


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
        self.core = NodeLife(self.plan)
        self.inbox: deque[Stimulus] = deque()
        self.is_dead = False
        self.paused_until_us = 0
        self.channels: dict[NodeId, Endpoint] = {}  # to producers, and to this node's primary
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
        self._writing: CheckpointId | None = None  # the checkpoint being written
        self.logs = ProcessSinks(self, world)
        self.at_once: deque[Stimulus] = deque()  # answers for which nobody has to wait

    @property
    def machine(self) -> Node | None:
        """The node, if it has its state by now."""
        machine = self.core.machine
        return machine if isinstance(machine, Node) else None

    @property
    def standby(self) -> StandbyReplica | None:
        """The passive secondary, until it is promoted."""
        machine = self.core.machine
        return machine if isinstance(machine, StandbyReplica) else None

    @property
    def incarnation(self) -> Incarnation:
        """As which it speaks; 0 before the assignment."""
        return self.core.incarnation

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

    def _begin(self, effect: BeginIncarnation) -> None:
        given = effect.assignment
        self._scheduler.note(f"{self.endpoint.name} is incarnation {given.incarnation}")
        self._world.assigned(self, given)
        self._keep_alive()

    def opening_us(self) -> int:
        """How long a disk takes to say where a log ends."""
        disk_us = self._scheduler.uniform("disk/open", 100, self._world.disk_us)
        return disk_us * self._world.strikes.disk_slowness(self.endpoint.machine)

    def waits(self, action: Callable[[], None]) -> bool:
        """Whether an action is not for now: it comes when the process wakes up, or never."""
        paused_us = self.paused_until_us - self._scheduler.now_us
        if paused_us > 0 and not self.is_dead:
            self._scheduler.after(paused_us, action)
        return self.is_dead or paused_us > 0

    def _open_sources(self, effect: OpenSources) -> None:
        self.at_once.append(SourcesOpened(effect.request_id))

    def _open_store(self, effect: OpenStore) -> None:
        found = self._world.store.found(self.node)
        self.at_once.append(StoreOpened(effect.request_id, found))

    def _load(self, effect: LoadCheckpoint) -> None:
        def loaded() -> None:
            if self.waits(loaded):
                return
            if self._world.strikes.is_store_away():
                self._scheduler.after(_STORE_RETRY_US, loaded)
                return
            limits = self.plan.limits
            try:
                found = load_checkpoint(
                    self._world.store,
                    self.node,
                    effect.ref,
                    self._output_schemas,
                    limits.state_bytes,
                )
            except Unreadable as reason:
                self.take(CheckpointUnreadable(str(reason)))
            else:
                self._world.count("checkpoint loaded")
                self.take(CheckpointLoaded(found))

        self._scheduler.after(self.store_us(), loaded)

    def _damage(self, effect: ReportDamage) -> None:
        self._scheduler.note(f"{effect.checkpoint} is damaged: {effect.reason}")
        self._world.count("damaged checkpoint passed over")

    def _connect(self, effect: Connect) -> None:
        self.channels[effect.peer] = self._world.processes[effect.endpoint].endpoint

    def _disconnect(self, effect: Disconnect) -> None:
        self.channels.pop(effect.peer, None)

    def _die_of(self, effect: Fail) -> None:
        error = effect.error
        if isinstance(error, PassesLost):
            self._world.count("secondary ahead of the log")
        elif isinstance(error, RolledBack):
            self._world.count("survivor went back")
        elif isinstance(error, StreamRebased):
            self._world.count("started once more for a rebased stream")
        self.fail(str(error), is_fatal=not isinstance(error, _MAY_PASS))

    def _dies_at(self, step: str) -> bool:
        """Pass a named step; whether that was the end."""
        self._world.strikes.passed(step, self)
        return self.is_dead

    @property
    def is_current(self) -> bool:
        """Whether the coordinator still counts it as one of its node's replicas."""
        return self.life.machine.instance(self.node).counts(self.incarnation)

    @property
    def is_primary(self) -> bool:
        """Whether it works, and not as a secondary."""
        return self.machine is not None and not self.machine.is_secondary

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

    def fail(self, reason: str, *, is_fatal: bool) -> None:
        """As a task that raises: say why, then die; Spark notices."""
        self._scheduler.note(f"{self.endpoint.name} fails: {reason}")
        failed = c.NodeFailed(self.node, self.incarnation, reason, is_fatal)
        self.life.receive(self, failed, self.incarnation)
        self.die()
        self.life.process_died(self, reason)

    def _keep_alive(self) -> None:
        if self.is_dead or self.life.is_over:
            return
        if self._scheduler.now_us >= self.paused_until_us:
            alive = c.KeepAliveReceived(
                self.node,
                self.incarnation,
                self.core.known_peers(),
                self.core.known_secondaries(),
                self.core.has_joined,
            )
            self.life.receive(self, alive, self.incarnation)
        self._scheduler.after(_KEEP_ALIVE_US, self._keep_alive)

    # -- the loop ---------------------------------------------------------------------------

    def _turn_soon(self, delay_us: int | None = None) -> None:
        if not self._is_turn_due:
            self._is_turn_due = True
            if delay_us is None:
                delay_us = _TURN_US * self._world.strikes.slowness(self.endpoint.machine)
            self._scheduler.after(delay_us, self._turn)

    def _turn(self) -> None:
        self._is_turn_due = False
        if self.is_dead:
            return
        paused_us = self.paused_until_us - self._scheduler.now_us
        if paused_us > 0:
            self._turn_soon(paused_us)
            return
        for _ in range(min(_MESSAGES_PER_TURN, len(self.inbox))):
            if self.inbox:
                self._step(self.inbox.popleft())
        if not self.is_dead and self.core.has_work:
            seed = self._scheduler.uniform("node/seed", 0, 1 << 62)
            clock_us = self._world.clocks[self.endpoint.machine].day_us()
            self._step(events.Proceed(clock_us, seed))
        self._check_windows()
        if not self.is_dead and (self.inbox or self.core.has_work):
            self._turn_soon()

    def _check_windows(self) -> None:
        """Behind now and then a pass a node has time for windows."""
        if self.is_dead or self.plan.footprints is None or self.machine is None:
            return
        if self._scheduler.uniform("node/background", 0, 2) == 0:
            windows = self._scheduler.uniform("node/windows", 1, 4)
            self._step(events.CheckWindows(windows, 1.0))

    def _step(self, stimulus: Stimulus) -> None:
        if type(stimulus) in _STEPS and self._dies_at(_STEPS[type(stimulus)]):
            return
        self._scheduler.note(f"{self.endpoint.name} {type(stimulus).__name__}")
        self._perform(self._world.stepped(self, stimulus, self._now_ms()))
        while self.at_once and not self.is_dead:
            self._step(self.at_once.popleft())

    def _perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            if self.is_dead:
                return
            self._world.performing(self, effect)
            try:
                _PERFORMERS[type(effect)](self, effect)
            except Damage as damage:
                self.fail(str(damage), is_fatal=False)
                return
            if type(effect) in _EFFECT_STEPS:
                self._world.strikes.passed(_EFFECT_STEPS[type(effect)], self)

    def _answer(self, stimulus: Stimulus, delay_us: int) -> None:
        self._scheduler.after(delay_us, lambda: self.take(stimulus))

    def disk_us(self) -> int:
        """How long its disk takes to sync or read, this time."""
        machine = self.endpoint.machine
        disk_us = self._scheduler.uniform("disk", 100, self._world.disk_us)
        return disk_us * self._world.strikes.disk_slowness(machine)

    def dies_of_a_full_disk(self) -> bool:
        """Whether nothing can be written; then the process fails."""
        if not self._world.strikes.is_disk_full(self.endpoint.machine):
            return False
        self.fail("no space left on device", is_fatal=True)
        return True

    # -- checkpoints ------------------------------------------------------------------------

    def store_us(self) -> int:
        """How long the store takes, this time."""
        return self._scheduler.uniform("store", 100, self._world.disk_us)

    def _write_checkpoint(self, effect: events.WriteCheckpoint) -> None:
        writing = CheckpointWriting(self._world.store, effect.prepared, self._spilled)
        checkpoint = effect.prepared.checkpoint
        self._writing = checkpoint

        def step() -> None:
            if self.is_dead or self._writing != checkpoint:
                return
            if self._world.strikes.is_store_away() or self._world.strikes.is_disk_full(
                self.endpoint.machine
            ):
                self._world.count("checkpoint failed")
                self.take(events.CheckpointFailed(checkpoint, "the store takes nothing"))
                return
            try:
                answer = writing.step()
            except Damage as damage:
                answer = events.CheckpointFailed(checkpoint, str(damage))
            self.take(answer)
            if isinstance(answer, events.PagesCopied):
                self._scheduler.after(self.store_us(), step)

        self._scheduler.after(self.store_us(), step)

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
        epoch, sender = self.core.epoch, self.endpoint
        self._world.strikes.remember_frame(receiver.node, epoch, stimulus)

        def deliver(is_torn: bool) -> None:
            receiver.receive(stimulus, epoch, sender, is_torn=is_torn)

        self._world.network.send(self.endpoint, target, size_bytes, deliver)

    def receive(
        self, stimulus: messages.NodeMessage, epoch: int, sender: Endpoint, *, is_torn: bool
    ) -> None:
        """A frame arrives; what `frames.decode` refuses has no effect."""
        if self.is_dead or not self.incarnation:
            return
        if is_torn or self._world.uses_codec:
            decoded = self._decoded(stimulus, epoch, is_torn=is_torn)
            if isinstance(decoded, CorruptFrame):
                self._world.count("corrupt frame refused")
                return
            stimulus = decoded
        elif epoch != self.core.epoch:
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
        return frames.decode(parts, self._schemas | self._output_schemas, self.core.epoch)

    def _send_down(
        self, stream: StreamId, receiver: Incarnation, stimulus: messages.NodeMessage, size: int
    ) -> None:
        """To the process of that incarnation which subscribed, if it is still connected to us."""
        target = self._subscriber.get((stream, receiver))
        if target is None:
            return
        if self._world.processes[target.name].channels.get(self.node) == self.endpoint:
            self._send(target, stimulus, size)

    def _send_up(self, stream: StreamId, stimulus: messages.NodeMessage) -> None:
        channel = self.channels.get(self._producer_of[stream])
        if channel is not None:
            self._send(channel, stimulus, _FRAME_BYTES)

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
            size += effect.batch.nbytes + _NOTE_BYTES * len(effect.notes)
        elif isinstance(effect, events.SendNotes):
            size += _NOTE_BYTES * len(effect.notes)
        elif isinstance(effect, events.SendPageRun):
            size += effect.run.words.nbytes
        elif isinstance(effect, events.SendDelta):
            size += sum(batch.nbytes for _, batch in effect.delta.batches)
        message = messages.message_of(effect, self.incarnation)
        self._send_down(effect.stream, effect.receiver, message, size)

    def _answer_message(self, effect: messages.Up) -> None:
        self._send_up(effect.stream, messages.message_of(effect, self.incarnation))

    def _promoted(self, _: events.ReportPromoted) -> None:
        if self.plan.standby is Standby.PASSIVE:
            is_used = self.core.began_at is not None
            self._world.count("image taken over" if is_used else "image of no use")
        promoted = c.NodePromoted(self.node, self.incarnation)
        self.life.receive(self, promoted, self.incarnation)

    def _read_source(self, effect: events.ReadSource) -> None:
        source = self._source(effect.stream)
        from_id = effect.from_id
        if from_id == NO_ID:
            from_id = source.newest_id(self._scheduler.now_us)
        wanted = min(effect.max_tuples, self._scheduler.uniform(f"source/{effect.stream}", 1, 64))
        batches, boundary_us = self._given(effect.stream, from_id, wanted)
        delay_us = self._scheduler.uniform("source/read", 20, 500)
        read = events.SourceRead(effect.stream, batches, boundary_us, from_id)
        self._answer(read, delay_us)
        if not batches and effect.stream not in self._stirring:
            self._stirring.add(effect.stream)
            stirs_us = self._scheduler.uniform("source/stirs", 100, 60_000)
            self._scheduler.after(delay_us + stirs_us, lambda: self._stir(effect.stream))

    def _given(
        self, stream: StreamId, from_id: int, wanted: int
    ) -> tuple[tuple[TupleBatch, ...], int]:
        """What a source gives, and promises, unless it has fallen silent."""
        if self._world.strikes.is_silent(stream):
            return (), BEGINNING_US
        batches, boundary_us = self._source(stream).read(from_id, wanted, self._scheduler.now_us)
        if not self._world.strikes.is_silent(stream, "no-boundaries"):
            return batches, boundary_us
        return tuple(replace(batch, boundary_us=BEGINNING_US) for batch in batches), BEGINNING_US

    def _source(self, stream: StreamId) -> SimulatedReader:
        """This process's own reader of a source."""
        return self._readers.setdefault(stream, self._world.sources[stream].open())

    def _stir(self, stream: StreamId) -> None:
        """There may be something by now, or not."""
        self._stirring.discard(stream)
        if self.machine is not None:
            self.take(events.SourceStirred(stream))

    def _spill(self, effect: events.SpillBatches) -> None:
        if self.dies_of_a_full_disk():
            return
        log = self.spills.get(effect.stream)
        if log is None:
            schema = effect.batches[0].batch.schema
            log = self.spills[effect.stream] = SimulatedLog(effect.stream, schema)
            log.open(self.core.born, self.endpoint.machine, effect.batches[0].first_id)
        if effect.batches[0].first_id > log.next_id(self.core.born):
            log.skip_to(self.core.born, effect.batches[0].first_id)
        for batch in effect.batches:
            log.append(self.core.born, batch)

    def _read_spill(self, effect: events.ReadSpill) -> None:
        batches = self._spilled(effect.stream, effect.from_id, effect.to_id)
        self._world.count("spill read")
        read = events.SpillRead(effect.stream, effect.request_id, batches)
        self._answer(read, self.disk_us())

    def _store_point(self, effect: events.StoreRestartPoint) -> None:
        point = c.RestartPointReceived(self.node, self.incarnation, effect.point)
        self.life.receive(self, point, self.incarnation)

    def _halted(self, effect: events.ReportHalted) -> None:
        word = c.NodeHalted(
            self.node, self.incarnation, effect.attempt, effect.went_on, effect.place
        )
        self.life.receive(self, word, self.incarnation)

    def _caught_up(self, effect: events.ReportCaughtUp) -> None:
        caught_up = c.NodeCaughtUp(self.node, self.incarnation, effect.replayed_tuples)
        self.life.receive(self, caught_up, self.incarnation)

    def _first_output(self, _: events.ReportFirstOutput) -> None:
        self.life.receive(self, c.FirstOutput(self.node, self.incarnation), self.incarnation)

    def _finished(self, _: events.ReportFinished) -> None:
        self.life.receive(self, c.NodeFinished(self.node, self.incarnation), self.incarnation)

    def _report_gap(self, _: events.ReportGap) -> None:
        self._world.count("gap reported")

    def _nothing(self, _: Effect) -> None:
        """Nothing that a run can see."""


def _want_round(process: Process, _: events.WantRound) -> None:
    word = c.RoundWanted(process.node, process.incarnation)
    process.life.receive(process, word, process.incarnation)


def _round_failed(process: Process, effect: events.ReportRoundFailed) -> None:
    word = c.RoundFailed(process.node, process.incarnation, effect.round)
    process.life.receive(process, word, process.incarnation)


_PERFORMERS: dict[type[Effect], Any] = {
    BeginIncarnation: Process._begin,
    OpenSinks: lambda process, effect: process.logs.open(effect),
    OpenSources: Process._open_sources,
    ReadRecordedPasses: lambda process, effect: process.logs.read_recorded(effect),
    OpenStore: Process._open_store,
    LoadCheckpoint: Process._load,
    ReadExtent: lambda process, effect: process.logs.read_extent(effect),
    ReportDamage: Process._damage,
    Connect: Process._connect,
    Disconnect: Process._disconnect,
    Fail: Process._die_of,
    SetTimer: Process._set_timer,
    events.SendBatch: Process._send_message,
    events.SendNotes: Process._send_message,
    events.SendBoundary: Process._send_message,
    events.SendPositions: Process._send_message,
    events.SendPageRun: Process._send_message,
    events.SendDelta: Process._send_message,
    events.SendDeltaAck: Process._answer_message,
    events.SendSubscribe: Process._answer_message,
    events.SendAck: Process._answer_message,
    events.ReadSource: Process._read_source,
    events.WriteSink: lambda process, effect: process.logs.write(effect),
    events.EndSink: Process._nothing,
    events.ReadPasses: lambda process, effect: process.logs.read_passes(effect),
    events.TrimPasses: Process._nothing,
    events.TrimFootprints: Process._nothing,
    events.SyncSink: lambda process, effect: process.logs.sync(effect),
    events.SpillBatches: Process._spill,
    events.ReadSpill: Process._read_spill,
    events.TrimSpill: Process._nothing,
    events.StoreRestartPoint: Process._store_point,
    events.ReportHalted: Process._halted,
    events.WantRound: _want_round,
    events.ReportRoundFailed: _round_failed,
    events.ReportCaughtUp: Process._caught_up,
    events.ReportGap: Process._report_gap,
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
