"""Runs one node inside a Spark task: collects stimuli, steps the machine, performs its effects.

It decides nothing that a peer could observe; see core/haunit/node.py for that. It ends itself when
its parent dies, when the coordinator has not answered for the lease, or when told that a later
incarnation has replaced it.
"""

from __future__ import annotations

import contextlib
import datetime
import importlib
import os
import random
import signal
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import zmq

from holdfast.core.coordinator import events as c
from holdfast.core.coordinator import reports
from holdfast.core.errors import InvariantViolation
from holdfast.core.haunit import events, told
from holdfast.core.haunit.life_events import Fail
from holdfast.core.haunit.node import Node
from holdfast.core.haunit.plan import Assignment, NodePlan, Standby
from holdfast.core.haunit.restoration import (
    BeginFrom,
    CheckpointRestoration,
    LoadCheckpoint,
    ReportDamage,
    Restoration,
    RestoredState,
    StoreAway,
)
from holdfast.core.haunit.rounds import Round, RoundsLost, first_to_read
from holdfast.core.haunit.standby_replica import StandbyReplica
from holdfast.core.machine import Effect, SetTimer, Stimulus, TimerFired
from holdfast.core.model.ids import NO_ID, CheckpointId, Incarnation, NodeId, StreamId
from holdfast.core.model.tuples import TupleBatch, with_time
from holdfast.core.queues.idle_floor import Reached
from holdfast.core.recovery.guarantee import StreamRebased
from holdfast.core.recovery.restart_point import RestartPoint
from holdfast.core.wire import frames, messages
from holdfast.core.wire.frames import CorruptFrame
from holdfast.core.wire.gate import Gate
from holdfast.core.wire.node_words import (
    KEEP_ALIVE_SUFFIX,
    FromNode,
    ToNode,
    decode_from_coordinator,
    encode,
)
from holdfast.shell.io_service import IOService
from holdfast.shell.kafka.sink import KafkaSinkSpec, KafkaSinkWriter, SinkOpening, Waits
from holdfast.shell.processes import begin_session, die_with_parent, keep_freed_memory
from holdfast.shell.sources.base import SourceReader, SourceSpec, newest_id, stirs
from holdfast.shell.spark.meter import Meter
from holdfast.shell.spark.supervisor import supervise
from holdfast.shell.spark.syncing import Syncing
from holdfast.shell.spark.traffic import Traffic
from holdfast.shell.storage.errors import (
    LogSuperseded,
    SpillLost,
    StorageError,
    TuplesMissing,
    UnknownStream,
)
from holdfast.shell.storage.logs import LogWriter, open_tail, open_writer
from holdfast.shell.storage.range_reader import RangeReader, read_range
from holdfast.shell.storage.rights import is_forbidden, storage_error
from holdfast.shell.storage.round_log import RoundLogReader, RoundLogWriter, read_rounds
from holdfast.shell.storage.stream_log import StreamLogReader
from holdfast.shell.stores.base import StoreSpec, StoreUnavailable
from holdfast.shell.telemetry import LatencyHistogram
from holdfast.shell.transport.addresses import Ports, machine_of, own_address
from holdfast.shell.transport.channels import Channels, RunKeys
from holdfast.shell.transport.socket_folder import SocketFolder
from holdfast.shell.transport.waker import Waker

_DRAIN_FRAMES = 64
_RECEIVERS_KNOWN = 4
"""Incarnations of a stream's receiver of which it is known where they are."""
_SKIPPED_RECORDS = 1000
"""Records of a sink's log that a secondary passes over before it looks at its channels again."""
_HELLO_INTERVAL_MS = 500
_RESTORING_POLL_MS = 5
_STATISTICS_INTERVAL_S = 0.5
_TOGETHER_MS = 100
"""Loose timers that wait for as long all fire at multiples of it."""
_LOOSE_TIMERS = frozenset({"ack", "keep-alive", "read"})
"""Those that do no harm when they fire early; checkpoints and deltas keep their intervals."""


_RECOVERABLE = (
    InvariantViolation,
    LogSuperseded,
    MemoryError,
    RoundsLost,
    SpillLost,
    StoreAway,
    StoreUnavailable,
    StreamRebased,
    zmq.ZMQError,
)
"""What a replacement may not meet again."""


class NodeEnded(Exception):
    """The node must stop: told so, fenced, or without a lease."""


@dataclass(frozen=True, slots=True)
class TaskSpec:
    """All that a task needs to run a node.

    Attributes:
        plan: The node's part of the dataflow.
        launch: Number of the launch; the coordinator refuses tasks of earlier ones.
        coordinator: The coordinator's endpoint.
        keys: This run's CURVE keys.
        sources: How to open each source stream.
        sink_paths: The log folder of each sink stream that is written to a log.
        kafka_sinks: The sink streams that are written to Kafka.
        round_place: The round log of an arbitrary node.
        spill_path: Folder for spill logs.
        store: Where checkpoints are kept; None: there are none.
        is_local: All nodes share a host, so that channels can be `ipc`.
        ports: Where it may listen otherwise.
        lease_s: Without word from the coordinator for so long, the node ends.
        stall_s: A node whose loop has not turned for so long no longer says that it lives.
        niceness: Of nodes, beside other sessions of their machine.
    """

    plan: NodePlan
    launch: int
    coordinator: str
    keys: RunKeys = field(repr=False)
    sources: dict[StreamId, SourceSpec]
    sink_paths: dict[StreamId, str]
    round_place: str
    spill_path: str
    store: StoreSpec | None
    is_local: bool
    ports: Ports = field(default_factory=Ports)
    kafka_sinks: tuple[KafkaSinkSpec, ...] = ()
    lease_s: float = 10.0
    stall_s: float = 10.0
    niceness: int = 0


def warm_up() -> None:
    """Import what a node needs, by which its kernels are compiled; called before forking.

    Arrow imports pandas, if it is there, at its first conversion: better now than in a node.
    """
    from holdfast.api import expressions, operators
    from holdfast.shell.stores import checked_reading

    del expressions, operators, checked_reading
    with contextlib.suppress(ImportError):  # For logs there; others are small.
        importlib.import_module("s3fs")
    pa.array([1.5, None]).to_numpy(zero_copy_only=False)
    pa.array([datetime.datetime(2000, 1, 1, tzinfo=datetime.UTC)]).to_pylist()


def run_node(spec: TaskSpec) -> Iterator[str]:
    """The body of a node's Spark task. Ends when told; raises when it must die."""
    die_with_parent()
    supervise(lambda former, came_up: _run_process(spec, former, came_up))
    yield spec.plan.node


def _run_process(spec: TaskSpec, former: str, came_up: Callable[[], None]) -> None:
    begin_session(spec.niceness)  # Spark's own session has many threads.
    keep_freed_memory()
    task = NodeTask(spec, former, came_up)
    try:
        task.run()
    finally:
        task.close()


class NodeTask:
    """The shell around one `Node`."""

    def __init__(self, spec: TaskSpec, former: str, came_up: Callable[[], None]) -> None:
        """Open the node's own socket and connect to the coordinator.

        Args:
            spec: What to run.
            former: What ended the process that ran it before; empty: there was none.
            came_up: Called when there is an assignment.
        """
        self._spec = spec
        self._name = spec.plan.node
        self._former = former
        self._came_up = came_up
        self._folder = SocketFolder() if spec.is_local else None
        self._channels = Channels(spec.keys)
        self._server = self._channels.server(frames.UP_BYTES_MAX)
        self._host = socket.gethostname()
        self._endpoint = self._bind()
        self._task_id = f"{self._name}|{spec.launch}|{os.getpid()}|{time.time_ns()}"
        self._coordinator = self._channels.client(self._task_id.encode(), spec.coordinator)
        self._poller = zmq.Poller()
        self._poller.register(self._server, zmq.POLLIN)
        self._poller.register(self._coordinator, zmq.POLLIN)
        self._waker = Waker()
        self._poller.register(self._waker, zmq.POLLIN)
        self._producers: dict[NodeId, zmq.Socket[bytes]] = {}
        self._gate = Gate(spec.plan)
        self._peers: dict[NodeId, tuple[events.PeerIncarnationLearned, str]] = {}
        # Of each incarnation of an output stream's receiver that has subscribed: a zombie that
        # subscribes again must not draw away what is meant for its successor.
        self._identity_of: dict[tuple[StreamId, Incarnation], bytes] = {}
        self._schemas: dict[StreamId, pa.Schema] = {
            s.stream: with_time(s.schema) for s in spec.plan.inputs
        }
        self._output_schemas: dict[StreamId, pa.Schema] = {
            stream: with_time(o.schema) for o in spec.plan.outputs for stream in o.streams
        }
        self._edge_streams = spec.plan.edge_streams()
        self._known_schemas = self._schemas | self._output_schemas
        self._sources: dict[StreamId, SourceReader] = {}
        self._descriptors: dict[StreamId, int] = {}  # of sources that tell when to read them
        self._listened_to: dict[int, StreamId] = {}  # those that have been read since they did
        self._sinks: dict[StreamId, LogWriter | RoundLogWriter] = {}
        self._closing = threading.Event()  # for what waits for a broker
        self._sink_waits = Waits()
        self._opening: SinkOpening | None = None
        self._word_waiting: ToNode | None = None  # until the sinks are open
        self._round_reader: RoundLogReader | None = None  # of a secondary
        self._tails: dict[StreamId, StreamLogReader] = {}  # of the sinks of a secondary
        self._spills: dict[StreamId, LogWriter] = {}
        self._replays: dict[StreamId, RangeReader] = {}  # of what was spilled
        self._timers: dict[str, int] = {}
        self._pending: deque[Stimulus] = deque()
        self._answers: deque[Stimulus | Exception] = deque()  # of other threads
        self._syncing = Syncing("sync-sinks", self._answer)
        self._settling: dict[StreamId, Syncing] = {}  # sinks that wait for a broker, not a disk
        self._is_closing = False
        self._node: Node | None = None
        self._standby: StandbyReplica | None = None  # a passive secondary, until it is promoted
        self._incarnation = Incarnation(0)  # 0 before the assignment
        self._born = Incarnation(0)  # as which it began; a promotion changes the other one
        self._assignment: Assignment | None = None
        self._restoration: Restoration | None = None
        self._io: IOService | None = None
        self._prepared_us: dict[CheckpointId, int] = {}
        self._epoch = 0
        self._latency = LatencyHistogram()
        self._meter = Meter()
        self._traffic = Traffic()
        self._late_rows: dict[StreamId, int] = {}
        self._refused_frames = 0  # no frames or words, or by a connection that may not say so
        self._coordinator_heard_s = time.monotonic()
        self._keep_alive_due_ms = 0
        self._statistics_due_s = 0.0
        self._parent = os.getppid()
        self._turned_s = time.monotonic()  # when the loop last turned
        self._alive_word: bytes | None = None  # what the keep-alive thread says

    def _bind(self) -> str:
        if self._folder is not None:
            endpoint = f"ipc://{self._folder.path}/node"
            self._server.bind(endpoint)
            return endpoint
        address = own_address(self._spec.coordinator)
        self._host = machine_of(address)
        return f"tcp://{address}:{self._spec.ports.bind(self._server, address)}"

    # -- the loop ---------------------------------------------------------------------------

    def run(self) -> None:
        """Serve until told to stop."""
        keeping_alive = threading.Thread(target=self._keep_alive, name="keep-alive", daemon=True)
        keeping_alive.start()
        try:
            while True:
                self._turn()
        except NodeEnded:
            return
        except Exception as error:
            self._report_error(error)
            raise
        finally:
            self._is_closing = True
            self._closing.set()
            threads = [self._syncing, *self._settling.values()]
            for thread in threads:
                thread.end()
            for thread in threads:
                thread.join()
            keeping_alive.join()

    def _hello(self) -> None:
        names = (self._name, self._spec.launch, self._task_id)
        self._say(c.HelloReceived(*names, self._endpoint, self._host, self._former))

    def _hello_again(self) -> None:
        """Until the assignment comes: the word may have been lost."""
        if _now_ms() >= self._keep_alive_due_ms:
            self._keep_alive_due_ms = _now_ms() + _HELLO_INTERVAL_MS
            self._hello()

    def _turn(self) -> None:
        """Collect a bounded number of stimuli, step, perform; then one round."""
        self._turned_s = time.monotonic()
        machine = self._node or self._standby
        has_work = machine is not None and (machine.has_work or bool(self._pending))
        timeout_ms = 0 if has_work else self._until_next_timer_ms()
        for channel, _ in self._poller.poll(timeout_ms):
            if channel == self._waker.fileno():
                self._waker.clear()
            elif channel in self._listened_to:
                self._source_stirs(channel)
            elif not channel.closed:  # By what another one has brought: its producer was replaced.
                self._drain(channel)
        self._check_lease()
        if self._opening is not None:
            self._go_on_when_open(self._opening)
        if self._assignment is None:
            if self._opening is None:
                self._hello_again()
            return
        while self._answers:
            answer = self._answers.popleft()
            if isinstance(answer, Exception):
                raise answer
            self._take(answer)
        machine = self._node or self._standby
        if machine is None:
            self._alive_word = self._alive(None)
            return
        now_ms = _now_ms()
        for name in [name for name, at_ms in self._timers.items() if at_ms <= now_ms]:
            del self._timers[name]
            self._pending.append(TimerFired(name))
        if machine.has_work:
            clock_us, seed = time.time_ns() // 1000, random.getrandbits(64)
            self._pending.append(events.Proceed(clock_us, seed))
        for _ in range(len(self._pending)):
            self._perform(self._stepped(machine, self._pending.popleft(), now_ms))
        self._report(now_ms)

    def _stepped(
        self, node: Node | StandbyReplica, stimulus: Stimulus, now_ms: int
    ) -> list[Effect]:
        """Step the machine; for a checkpoint, note how long the unit stood still."""
        began_ns = time.monotonic_ns()
        effects = node.step(stimulus, now_ms)
        took_us = (time.monotonic_ns() - began_ns) // 1000
        if isinstance(node, Node):
            self._meter.stepped(node, stimulus, effects, took_us)
        if type(stimulus) is TimerFired:
            for effect in effects:
                if isinstance(effect, events.WriteCheckpoint):
                    self._prepared_us[effect.prepared.checkpoint] = took_us
        return effects

    def _take(self, answer: Stimulus) -> None:
        """What another thread says: to the machine, or to the one that brings up its state."""
        if self._restoration is not None and self._node is None:
            self._restore(self._restoration.step(answer, _now_ms()))
        else:
            self._pending.append(answer)

    def _until_next_timer_ms(self) -> int:
        if self._restoration is not None and self._node is None:
            return _RESTORING_POLL_MS
        due = min([*self._timers.values(), self._keep_alive_due_ms], default=0)
        return max(0, min(100, due - _now_ms()))

    def _drain(self, channel: zmq.Socket[bytes]) -> None:
        for _ in range(_DRAIN_FRAMES):
            try:
                parts = channel.recv_multipart(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                return
            if channel is self._coordinator:
                word = decode_from_coordinator([part.bytes for part in parts])
                if isinstance(word, CorruptFrame):
                    self._refused_frames += 1
                else:
                    self._on_word(word)
            elif channel is self._server:
                self._on_frame(parts[1:], parts[0].bytes)
            else:
                peers = (peer for peer, there in self._producers.items() if there is channel)
                self._on_frame(parts, None, next(peers, None))

    def _on_frame(
        self, parts: list[zmq.Frame], identity: bytes | None, producer: NodeId | None = None
    ) -> None:
        """`identity`: of a receiver's connection; or else `producer`: whose it is."""
        began_ns = time.monotonic_ns()
        message = frames.decode([part.buffer for part in parts], self._known_schemas, self._epoch)
        self._meter.decoded((time.monotonic_ns() - began_ns) // 1000)
        refused: CorruptFrame | None = None
        if isinstance(message, CorruptFrame):
            refused = message
        elif identity is not None:
            refused = self._gate.from_receiver(identity, message)
        elif producer is not None:
            refused = self._gate.from_producer(producer, message)
        if refused is not None or isinstance(message, CorruptFrame):
            self._refused_frames += 1
            return
        if isinstance(message, events.SubscribeReceived) and identity is not None:
            self._remember_receiver(message.stream, message.sender, identity)
        if identity is not None:
            self._traffic.answered(message, parts)
        self._pending.append(message)

    def _remember_receiver(self, stream: StreamId, sender: Incarnation, identity: bytes) -> None:
        """A receiver may have two replicas, and each of them a zombie."""
        self._identity_of.pop((stream, sender), None)
        self._identity_of[(stream, sender)] = identity
        known = [key for key in self._identity_of if key[0] == stream]
        for former in known[:-_RECEIVERS_KNOWN]:
            del self._identity_of[former]

    def _check_lease(self) -> None:
        if time.monotonic() - self._coordinator_heard_s > self._spec.lease_s:
            raise NodeEnded("no word from the coordinator for the lease")
        if os.getppid() != self._parent:
            raise NodeEnded("the parent process is gone")

    # -- the coordinator --------------------------------------------------------------------

    def _say(self, word: FromNode) -> int:
        """Returns its size in bytes."""
        text = encode(word)
        self._coordinator.send(text)
        return len(text)

    def _tell(self, kind: Callable[..., FromNode], *said: Any, **more: Any) -> int:
        """A word of this class, as this incarnation."""
        return self._say(kind(self._name, self._incarnation, *said, **more))

    def _on_word(self, word: ToNode) -> None:
        self._coordinator_heard_s = time.monotonic()
        _LISTENERS[type(word)](self, word)

    def _hand_on(self, word: events.WriteAdmitted | events.RestartPointStored) -> None:
        self._pending.append(word)

    def _stop(self, _: told.StopReceived) -> None:
        self._report(_now_ms(), is_last=True)
        raise NodeEnded("told to stop")

    def _end_fenced(self, _: told.Fenced) -> None:
        raise NodeEnded("a later incarnation has taken over")

    def _tell_floor(self, word: told.FloorTold) -> None:
        tell = getattr(self._sources.get(word.stream), "tell_floor", None)
        if tell is not None:
            tell(word.floor_us)

    def _begin(self, word: told.AssignmentReceived) -> None:
        """The assignment is here: open sinks, bring up the state, meet the neighbours."""
        self._came_up()
        self._epoch = word.epoch
        incarnation = self._incarnation = self._born = word.incarnation
        self._alive_word = self._alive(None)  # Opening logs elsewhere may take a while.
        is_secondary = word.is_secondary
        if not is_secondary and self._must_wait(word):
            return
        point = word.restart_point
        next_ids = {} if is_secondary else self._open_sinks(incarnation, point)
        for stream, source in self._spec.sources.items():
            reader = self._sources[stream] = source.open()
            self._descriptors[stream] = stirs(reader)
        if not is_secondary:
            self._lead_sources(incarnation)
        rounds = self._logged_rounds(point, next_ids)
        self._assignment = Assignment(
            self._epoch, incarnation, point, next_ids, is_secondary, rounds
        )
        for peer in word.peers:
            self._meet(peer)
        checkpoints, limits = self._spec.plan.checkpoints, self._spec.plan.limits
        if checkpoints is not None and self._spec.store is not None:
            try:
                store, workers = self._spec.store.open(), checkpoints.workers
            except StorageError as error:
                raise StoreAway(str(error)) from error
            self._io = IOService(store, NodeId(self._name), workers, self._answer, self._spilled)
        if is_secondary and self._spec.plan.standby is Standby.PASSIVE:
            self._standby = StandbyReplica(self._spec.plan, self._assignment)
            self._perform(self._standby.start(_now_ms()))
            return
        if point is None or self._io is None:
            self._make_node(None)
            return
        self._restoration = CheckpointRestoration(
            point, limits.page_bytes, limits.state_bytes, self._io.found()
        )
        self._restore(self._restoration.start())

    def _must_wait(self, word: told.AssignmentReceived | told.PromotionReceived) -> bool:
        """Whether sinks have to be opened first that may have to wait for a broker."""
        specs = [s for s in self._spec.kafka_sinks if StreamId(s.stream) not in self._sinks]
        if specs and self._opening is None:
            self._word_waiting = word
            self._opening = SinkOpening(specs, word.incarnation, self._closing, self._sink_waits)
        return bool(specs)

    def _go_on_when_open(self, opening: SinkOpening) -> None:
        """The sinks are open: take up the word that needed them."""
        if self._assignment is None:
            self._alive_word = self._alive(None)
        if not opening.is_done or self._word_waiting is None:
            return
        for stream, writer in opening.writers.items():
            self._sinks[StreamId(stream)] = writer
            self._settling[StreamId(stream)] = Syncing(
                f"settle-{stream}", self._answer, writer.commit_interval_s
            )
        word, self._word_waiting, self._opening = self._word_waiting, None, None
        self._on_word(word)

    def _lead_sources(self, incarnation: Incarnation) -> None:
        """Sources that have a log of their own to fill begin."""
        for source in self._sources.values():
            lead = getattr(source, "lead", None)
            if lead is not None:
                lead(incarnation)

    def _open_sinks(
        self, incarnation: Incarnation, point: RestartPoint | None
    ) -> dict[StreamId, int]:
        """Fence whoever wrote the sinks' logs before; per stream the first id they lack.

        Raises:
            TuplesMissing: A log ends before the restart point: that was stored after the tuples
                before it were durable, so the log has lost some since.
        """
        for stream, path in self._spec.sink_paths.items():
            self._sinks[stream] = open_writer(
                path,
                self._output_schemas[stream],
                stream,
                incarnation,
                narrows=True,
                tail=self._tails.pop(stream, None),
            )
            _require_whole(path, self._sinks[stream].next_id, stream, point)
        plan = self._spec.plan
        if plan.keeps_rounds:
            log = RoundLogWriter(self._spec.round_place, plan.round_stream, incarnation)
            self._sinks[plan.round_stream] = log
            _require_whole(self._spec.round_place, log.next_id, plan.round_stream, point)
        return {stream: writer.next_id for stream, writer in self._sinks.items()}

    def _follow_sinks(self) -> None:
        """A secondary keeps where the sinks' logs end, so that it can take them over at once.

        Little by little: a segment may hold hundreds of thousands of records.
        """
        for stream, path in self._spec.sink_paths.items():
            tail = self._tails.get(stream) or open_tail(path)
            if tail is not None:
                self._tails[stream] = tail
                tail.skip_to_end(_SKIPPED_RECORDS)

    def _logged_rounds(
        self, point: RestartPoint | None, next_ids: dict[StreamId, int]
    ) -> tuple[Round, ...]:
        """What the round log holds, if it was opened, from where the oldest candidate begins."""
        stream = self._spec.plan.round_stream
        if stream not in next_ids:
            return ()
        first_id = first_to_read(point, stream)
        return read_rounds(self._spec.round_place, first_id, next_ids[stream])

    def _promote(self, word: told.PromotionReceived) -> None:
        """The primary is gone: open the sinks, and take over."""
        machine = self._node or self._standby
        is_told = any(isinstance(waiting, events.Promoted) for waiting in self._pending)
        if machine is None or not machine.is_secondary or is_told:
            return
        if self._must_wait(word):
            return
        incarnation, point = word.incarnation, word.restart_point
        next_ids = self._open_sinks(incarnation, point)
        self._require_rounds_held()
        self._lead_sources(incarnation)
        rounds = self._logged_rounds(point, next_ids)
        if isinstance(machine, Node):
            if not machine.may_follow(next_ids):
                raise RoundsLost(f"{self._name} has run a round that its log has lost")
            self._pending.append(events.Promoted(incarnation, point, next_ids, rounds))
            return
        restored = machine.restored(point or RestartPoint(), next_ids)
        self._standby = None
        self._incarnation = incarnation
        self._assignment = Assignment(self._epoch, incarnation, point, next_ids, rounds=rounds)
        self._pending = deque(learned for learned, _ in self._peers.values())
        self._make_node(restored)
        self._promoted(events.ReportPromoted())

    def _require_rounds_held(self) -> None:
        """Raise `RoundsLost` if a secondary has followed rounds that its log does not hold."""
        log = self._sinks.get(self._spec.plan.round_stream)
        if self._round_reader is not None and isinstance(log, RoundLogWriter):
            self._round_reader.require_held(log.owners)

    def _restore(self, effects: list[Effect]) -> None:
        """Perform the effects of the restoration."""
        for effect in effects:
            if isinstance(effect, Fail):
                raise effect.error
            if isinstance(effect, BeginFrom):
                self._make_node(effect.state)
            elif isinstance(effect, ReportDamage):
                self._tell(reports.DamageReported, effect.checkpoint.sequence, effect.reason)
            elif isinstance(effect, LoadCheckpoint) and self._io is not None:
                limits = self._spec.plan.limits
                self._io.load(effect.ref, self._output_schemas, limits.state_bytes)

    def _make_node(self, restored: RestoredState | None) -> None:
        """Make the machine; what has arrived so far is waiting for it."""
        if self._assignment is None:
            return
        node = Node(self._spec.plan, self._assignment, _now_ms(), restored)
        self._node = node
        self._keep_alive_due_ms = 0
        self._perform(node.start(_now_ms()))

    def _meet(self, word: told.PeerTold) -> None:
        """A neighbour has (other) replicas: connect to its primary if that produces for us."""
        peer, endpoint = word.peer, word.endpoint
        incarnation, secondary = word.incarnation, word.secondary
        learned = events.PeerIncarnationLearned(peer, incarnation, secondary)
        known = self._peers.get(peer)
        if known == (learned, endpoint):
            return
        if known is not None and known[0].incarnation > incarnation:
            return  # Of an assignment that had to wait; newer words have come meanwhile.
        self._peers[peer] = (learned, endpoint)
        is_there = known is not None and (known[0].incarnation, known[1]) == (incarnation, endpoint)
        if peer in self._gate.producer_of.values() and not is_there:
            self._connect(peer, incarnation, endpoint)
        self._pending.append(learned)

    def _connect(self, peer: NodeId, incarnation: Incarnation, endpoint: str) -> None:
        """Open a channel to a producer, or to the primary of this node itself."""
        former = self._producers.pop(peer, None)
        if former is not None:
            self._poller.unregister(former)
            former.close(linger=0)
        if endpoint == self._endpoint:
            return
        identity = f"{self._name}|{self._incarnation}|{incarnation}"
        channel = self._channels.client(identity.encode(), endpoint)
        self._producers[peer] = channel
        self._poller.register(channel, zmq.POLLIN)

    def _keep_alive(self) -> None:
        """A thread of its own, so that a long round is not taken for death.

        It falls silent when the loop has not turned for `stall_s`: then the node is as good as
        dead. A stopped process stops this thread too.
        """
        identity = self._task_id.encode() + KEEP_ALIVE_SUFFIX
        channel = self._channels.client(identity, self._spec.coordinator)
        interval_s = self._spec.plan.limits.keep_alive_ms / 1000
        while not self._is_closing:
            word = self._alive_word
            if word is not None and time.monotonic() - self._turned_s < self._spec.stall_s:
                channel.send(word)
            time.sleep(interval_s - time.monotonic() % interval_s)  # When the loop wakes up, too.
        channel.close(linger=0)

    def _alive(self, node: Node | StandbyReplica | None) -> bytes:
        alive = c.KeepAliveReceived(
            self._name,
            self._incarnation,
            {} if node is None else node.known_peers(),
            {} if node is None else node.known_secondaries(),
            node is not None and node.has_joined,
            self._reached(),
            self._waits(),
        )
        return encode(alive)

    def _reached(self) -> dict[StreamId, Reached]:
        """How far its sources are, of those that may be idle."""
        known = ((s, getattr(source, "reached", None)) for s, source in self._sources.items())
        return {stream: reached for stream, reached in known if reached is not None}

    def _waits(self) -> tuple[str, ...]:
        """What the node waits for, and what is odd about its sources, for people."""
        sources = self._sources.values()
        waiting = [getattr(source, "trouble", "") for source in sources]
        waiting += [getattr(source, "warning", "") for source in sources]
        store = self._io.trouble if self._io is not None else ""
        restoring = store and f"{self._name} is being restored: {store}"
        return tuple(text for text in (*waiting, self._sink_waits.trouble, restoring) if text)

    def _report(self, now_ms: int, *, is_last: bool = False) -> None:
        """Say what the keep-alive thread repeats, and now and then the statistics."""
        node = self._node or self._standby
        if node is None or (now_ms < self._keep_alive_due_ms and not is_last):
            return
        due_ms = now_ms + self._spec.plan.limits.keep_alive_ms
        self._keep_alive_due_ms = _together(due_ms, now_ms)
        self._meter.look_at_changes(now_ms)
        now_s = time.monotonic()
        self._alive_word = self._alive(node)
        if node.is_secondary:
            self._follow_sinks()
        if now_s < self._statistics_due_s and not is_last:
            return
        self._statistics_due_s = now_s + _STATISTICS_INTERVAL_S
        for stream, writer in self._sinks.items():
            if isinstance(writer, KafkaSinkWriter) and writer.is_stale:
                self._sync_sink(events.SyncSink(stream))
        statistics = node.statistics()
        if not isinstance(statistics, dict):
            measured = self._meter.measured(self._node, statistics, now_ms) if self._node else {}
            counted = {name: getattr(statistics, name) for name in statistics.__slots__}
            statistics = counted | measured | self._traffic.counted()
        positions = node.positions() if isinstance(node, Node) else {}
        self._tell(
            reports.StatisticsReported,
            statistics=statistics,
            latency=self._latency.counts,
            latency_max_us=self._latency.max_us,
            late_rows=self._late_rows,
            refused={
                "frames": self._refused_frames,
                "handshakes": self._channels.refused_handshakes,
            },
            sources=self._sources_reported(node),
            **positions,
        )

    def _sources_reported(
        self, node: Node | StandbyReplica
    ) -> dict[StreamId, reports.SourceReported]:
        promised = node.source_boundaries() if isinstance(node, Node) else {}
        reached = self._reached()
        return {
            stream: reports.SourceReported(
                getattr(reader, "rows_read", None),
                getattr(reader, "slowest", ""),
                getattr(reader, "is_held_up", False),
                promised.get(stream),
                stream in reached and reached[stream].is_idle,
            )
            for stream, reader in self._sources.items()
        }

    def _report_error(self, error: Exception) -> None:

        if isinstance(error, OSError) and is_forbidden(error):
            error = storage_error(error, self._spec.spill_path)
        reason = f"{type(error).__name__}: {error}"
        is_fatal = not isinstance(error, _RECOVERABLE)
        self._tell(c.NodeFailed, reason[:4000], is_fatal)
        time.sleep(0.05)  # Let the word leave before the sockets close.

    # -- effects ----------------------------------------------------------------------------

    def _perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            _PERFORMERS[type(effect)](self, effect)

    def _set_timer(self, effect: SetTimer) -> None:
        is_loose = effect.name in _LOOSE_TIMERS
        self._timers[effect.name] = _together(effect.at_ms, _now_ms()) if is_loose else effect.at_ms

    def _send_message(self, effect: messages.Down) -> None:
        identity = self._identity_of.get((effect.stream, effect.receiver))
        if identity is None:
            return
        message = messages.message_of(effect, self._incarnation)
        parts = frames.encode(message, self._epoch, self._edge_streams)
        self._server.send_multipart([identity, *parts], copy=len(parts) == 1)
        peer = self._peers.get(self._gate.receiver_of[effect.stream])
        to_secondary = peer is not None and peer[0].secondary == effect.receiver
        self._traffic.sent(effect, parts, to_secondary=to_secondary)

    def _answer_message(self, effect: messages.Up) -> None:
        channel = self._producers.get(self._gate.producer_of[effect.stream])
        if channel is not None:
            message = messages.message_of(effect, self._incarnation)
            channel.send_multipart(frames.encode(message, self._epoch))

    def _read_source(self, effect: events.ReadSource) -> None:
        from_id = effect.from_id
        if from_id == NO_ID:
            from_id = newest_id(self._sources[effect.stream])
        rows = self._sources[effect.stream].read(from_id, effect.max_tuples)
        self._late_rows[effect.stream] = rows.late_rows
        self._listen_to(effect.stream)
        read = events.SourceRead(
            effect.stream, rows.batches, rows.boundary_us, from_id, rows.quiet_ms
        )
        self._pending.append(read)

    def _listen_to(self, stream: StreamId) -> None:
        """Wake up when the source stirs next, if it can tell."""
        descriptor = self._descriptors[stream]
        if descriptor >= 0 and descriptor not in self._listened_to:
            self._listened_to[descriptor] = stream
            self._poller.register(descriptor, zmq.POLLIN)

    def _source_stirs(self, descriptor: int) -> None:
        """It will be read, when there is room; until then it has nothing else to say."""
        self._poller.unregister(descriptor)
        self._pending.append(events.SourceStirred(self._listened_to.pop(descriptor)))

    def _write_sink(self, effect: events.WriteSink) -> None:
        batch, writer = effect.batch, self._sinks[effect.stream]
        _append(writer, batch)
        if isinstance(writer, KafkaSinkWriter) and writer.is_exactly_once:
            self._sync_sink(events.SyncSink(effect.stream))  # Readers wait for it.
        if batch.created_us:
            self._statistics_due_s = 0.0  # Who waits for prompt results sees them come.
            self._latency.add(int(time.time() * 1e6) - batch.created_us, batch.count)

    def _end_sink(self, effect: events.EndSink) -> None:
        writer = self._sinks[effect.stream]
        if not isinstance(writer, RoundLogWriter):  # Those have no end.
            writer.end()

    def _sync_sink(self, effect: events.SyncSink) -> None:
        stream = effect.stream
        self._settling.get(stream, self._syncing).request(stream, self._sinks[stream])

    def _answer(self, answer: Stimulus | Exception) -> None:
        """What another thread has done, or failed to do: the loop is to look at once."""
        self._answers.append(answer)
        self._waker.wake()

    def _spill(self, effect: events.SpillBatches) -> None:
        writer = self._spills.get(effect.stream)
        if writer is None:
            path = self._spill_folder(effect.stream)
            writer = open_writer(
                path,
                self._output_schemas[effect.stream],
                effect.stream,
                self._born,
                first_id=effect.batches[0].first_id,
                is_lasting=False,
            )
            self._spills[effect.stream] = writer
        if effect.batches[0].first_id > writer.next_id:  # Trimmed before it was spilled.
            writer.skip_to(effect.batches[0].first_id)
        for batch in effect.batches:
            _append(writer, batch)

    def _spill_folder(self, stream: StreamId) -> str:
        number = list(self._output_schemas).index(stream)
        return os.path.join(self._spec.spill_path, f"{number}-{self._born}")

    def _spilled(self, stream: StreamId, from_id: int, to_id: int) -> tuple[TupleBatch, ...]:
        """What an output queue has spilled. Raises `StorageError` if it is gone."""
        return read_range(self._published_spill(stream), from_id, to_id)

    def _published_spill(self, stream: StreamId) -> str:
        writer = self._spills.get(stream)
        if writer is not None:
            writer.publish()
        return self._spill_folder(stream)

    def _read_spill(self, effect: events.ReadSpill) -> None:
        try:
            place = self._published_spill(effect.stream)
            replay = self._replays.setdefault(effect.stream, RangeReader(place))
            batches = replay.read(effect.from_id, effect.to_id)
        except StorageError as error:
            raise SpillLost(f"{effect.stream}: {error}") from error
        self._pending.append(events.SpillRead(effect.stream, effect.request_id, batches))

    def _trim_spill(self, effect: events.TrimSpill) -> None:
        writer = self._spills.get(effect.stream)
        if writer is not None:
            writer.trim(effect.before)
        replay = self._replays.get(effect.stream)
        if replay is not None:
            replay.trim(effect.before)

    def _read_rounds(self, effect: events.ReadRounds) -> None:
        """A secondary follows the primary's log; before the first round there is none."""
        rounds: tuple[Round, ...] = ()
        with contextlib.suppress(UnknownStream):
            if self._round_reader is None:
                self._round_reader = RoundLogReader(self._spec.round_place, effect.from_number)
            rounds = self._round_reader.poll()
        self._pending.append(events.RoundsRead(rounds))

    def _trim_rounds(self, effect: events.TrimRounds) -> None:
        log = self._sinks.get(self._spec.plan.round_stream)
        if isinstance(log, RoundLogWriter):
            log.trim(effect.before)

    def _store_point(self, effect: events.StoreRestartPoint) -> None:
        self._traffic.point_bytes += self._tell(c.RestartPointReceived, effect.point)

    def _write_checkpoint(self, effect: events.WriteCheckpoint) -> None:
        if self._io is not None:
            self._io.write(effect.prepared)

    def _ask_to_write(self, _: events.AskToWrite) -> None:
        self._tell(c.WriteWanted)

    def _leave_writers(self, _: events.LeaveWriters) -> None:
        self._tell(c.WriteEnded)

    def _cancel_checkpoint(self, effect: events.CancelCheckpoint) -> None:
        if self._io is not None:
            self._io.cancel(effect.checkpoint)

    def _forget_checkpoints(self, effect: events.ForgetCheckpoints) -> None:
        if self._io is not None:
            self._io.forget(effect.checkpoints)

    def _report_checkpoint(self, effect: events.ReportCheckpoint) -> None:
        self._tell(
            reports.CheckpointReported,
            checkpoint=effect.checkpoint.sequence,
            failure=effect.failure,
            prepared_us=self._prepared_us.pop(effect.checkpoint, 0),
            written_bytes=effect.written_bytes,
            state_bytes=effect.state_bytes,
            duration_ms=effect.duration_ms,
        )

    def _promoted(self, _: events.ReportPromoted) -> None:
        if self._node is not None:
            self._incarnation = self._node.incarnation
            self._alive_word = self._alive(self._node)
            self._tell(c.NodePromoted)

    def _gap(self, effect: events.ReportGap) -> None:
        self._tell(reports.GapReported, effect.stream, effect.from_id, effect.to_id)

    def _caught_up(self, effect: events.ReportCaughtUp) -> None:
        self._tell(c.NodeCaughtUp, effect.replayed_tuples)

    def _first_output(self, effect: events.ReportFirstOutput) -> None:
        self._tell(c.FirstOutput)

    def _finished(self, effect: events.ReportFinished) -> None:
        self._report(_now_ms(), is_last=True)  # Whoever hears of the end knows all that was done.
        self._tell(c.NodeFinished)

    def close(self) -> None:
        """Release everything; the process may serve another task afterwards."""
        if self._io is not None:
            self._io.close()
        for source in self._sources.values():
            source.close()
        for writer in [*self._sinks.values(), *self._spills.values()]:
            writer.close()
        for reader in (self._round_reader, *self._tails.values(), *self._replays.values()):
            if reader is not None:
                reader.close()
        self._channels.close()
        self._waker.close()
        if self._folder is not None:
            self._folder.close()


def _require_whole(place: str, end: int, stream: str, point: RestartPoint | None) -> None:
    """Raise `TuplesMissing` if a log ends before what was durable when the point was stored."""
    wanted = 0 if point is None else point.next_ids.get(stream, 0)
    if end < wanted:
        raise TuplesMissing(place, end, wanted)


def _append(writer: LogWriter | RoundLogWriter, batch: TupleBatch) -> None:
    writer.append(
        batch.tuple_type, batch.first_id, batch.batch, batch.boundary_us, batch.created_us
    )


def _together(at_ms: int, now_ms: int) -> int:
    """When a timer fires: with others, if it waits for long, so that the node wakes up once."""
    return at_ms - at_ms % _TOGETHER_MS if at_ms - now_ms >= _TOGETHER_MS else at_ms


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000


_PERFORMERS: dict[type[Effect], Any] = {
    SetTimer: NodeTask._set_timer,
    events.SendBatch: NodeTask._send_message,
    events.SendNotes: NodeTask._send_message,
    events.SendBoundary: NodeTask._send_message,
    events.SendPositions: NodeTask._send_message,
    events.SendPageRun: NodeTask._send_message,
    events.SendDelta: NodeTask._send_message,
    events.SendDeltaAck: NodeTask._answer_message,
    events.SendSubscribe: NodeTask._answer_message,
    events.SendAck: NodeTask._answer_message,
    events.ReadSource: NodeTask._read_source,
    events.WriteSink: NodeTask._write_sink,
    events.EndSink: NodeTask._end_sink,
    events.ReadRounds: NodeTask._read_rounds,
    events.TrimRounds: NodeTask._trim_rounds,
    events.SyncSink: NodeTask._sync_sink,
    events.SpillBatches: NodeTask._spill,
    events.ReadSpill: NodeTask._read_spill,
    events.TrimSpill: NodeTask._trim_spill,
    events.StoreRestartPoint: NodeTask._store_point,
    events.ReportCaughtUp: NodeTask._caught_up,
    events.ReportGap: NodeTask._gap,
    events.ReportPromoted: NodeTask._promoted,
    events.ReportFirstOutput: NodeTask._first_output,
    events.ReportFinished: NodeTask._finished,
    events.WriteCheckpoint: NodeTask._write_checkpoint,
    events.AskToWrite: NodeTask._ask_to_write,
    events.LeaveWriters: NodeTask._leave_writers,
    events.CancelCheckpoint: NodeTask._cancel_checkpoint,
    events.ForgetCheckpoints: NodeTask._forget_checkpoints,
    events.ReportCheckpoint: NodeTask._report_checkpoint,
}

_LISTENERS: dict[type[Stimulus], Any] = {
    told.AssignmentReceived: NodeTask._begin,
    told.PeerTold: NodeTask._meet,
    told.PromotionReceived: NodeTask._promote,
    told.FloorTold: NodeTask._tell_floor,
    told.LeaseRenewed: lambda task, _: None,  # Every word renews it.
    told.Fenced: NodeTask._end_fenced,
    told.StopReceived: NodeTask._stop,
    told.KillReceived: lambda task, _: os.kill(os.getpid(), signal.SIGKILL),
    events.RestartPointStored: NodeTask._hand_on,
    events.WriteAdmitted: NodeTask._hand_on,
}
