"""Runs the coordinator in the driver and the nodes as Spark jobs of one task each."""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import signal
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

import zmq

from holdfast.core.coordinator import events as c
from holdfast.core.coordinator.admission import AdmitWrite
from holdfast.core.coordinator.checkpoint_registry import CheckpointRegistry
from holdfast.core.coordinator.coordinator import Coordinator
from holdfast.core.coordinator.held_up import HeldUp, SourcePromise, held_up, meetings, promises_of
from holdfast.core.coordinator.host_choice import Executor
from holdfast.core.coordinator.instance import Hearing, Instance
from holdfast.core.coordinator.journal_entries import JournalEntry
from holdfast.core.coordinator.limits import CoordinatorLimits
from holdfast.core.coordinator.replica import NodeState, Replica
from holdfast.core.coordinator.reports import (
    CheckpointReported,
    DamageReported,
    GapReported,
    StatisticsReported,
)
from holdfast.core.haunit import told
from holdfast.core.haunit.plan import NodePlan
from holdfast.core.machine import Effect, SetTimer, Stimulus, TimerFired
from holdfast.core.model.ids import NodeId, StreamId
from holdfast.core.recovery.restart_point import RestartPoint
from holdfast.core.wire.frames import CorruptFrame
from holdfast.core.wire.node_words import (
    WORD_BYTES_MAX,
    FromNode,
    Task,
    ToNode,
    decode_from_node,
    encode,
    task_of,
    word_of,
)
from holdfast.shell.sinks.base import OutsideSpec
from holdfast.shell.sources.base import SourceSpec
from holdfast.shell.spark.catch_up import CatchUpWatch, CaughtUp
from holdfast.shell.spark.executors import Executors
from holdfast.shell.spark.jobs import NodeJobs
from holdfast.shell.spark.journal import Journal
from holdfast.shell.spark.reasons import reason_of
from holdfast.shell.spark.task_spec import TaskSpec
from holdfast.shell.storage.paths import within
from holdfast.shell.stores.base import StoreSpec
from holdfast.shell.transport.addresses import Ports, driver_addresses
from holdfast.shell.transport.channels import Channels, RunKeys
from holdfast.shell.transport.waker import Waker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOG = logging.getLogger(__name__)
_ANSWER_INTERVAL_S = 1.0
_CHECKPOINTS_SHOWN = 1_000
_WAIT_MAX_MS = 100
_UNWRITTEN_WAIT_MS = 5


@dataclass(slots=True)
class NodeReport:
    """What the driver last heard of a node."""

    pid: int = 0
    host: str = ""
    statistics: dict[str, Any] = field(default_factory=dict)
    latency: dict[int, int] = field(default_factory=dict)
    latency_max_us: int = 0
    late_rows: dict[str, int] = field(default_factory=dict)  # from its beginning
    refused: dict[str, int] = field(default_factory=dict)
    waits: tuple[str, ...] = ()
    processed: dict[str, int] = field(default_factory=dict)  # per input stream, exclusive
    next_ids: dict[str, int] = field(default_factory=dict)  # per output stream
    source_rows: dict[str, int | None] = field(default_factory=dict)  # read of each source's log
    promises: dict[StreamId, SourcePromise] = field(default_factory=dict)  # of its sources
    reports: int = 0  # how often its task has said all this

    def hear(self, said: StatisticsReported, now_ms: int) -> None:
        """The node's task has said what it has done so far."""
        self.statistics = said.statistics
        self.latency = said.latency
        self.latency_max_us = said.latency_max_us
        self.late_rows = said.late_rows
        self.refused = said.refused
        self.processed = said.processed
        self.next_ids = said.next_ids
        self.source_rows = {str(stream): each.rows_read for stream, each in said.sources.items()}
        self.promises = promises_of(said.sources, self.promises, now_ms)
        self.reports += 1


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


class Cluster:
    """The shell around one `Coordinator`: its socket, its journal, its Spark jobs."""

    def __init__(
        self,
        spark: SparkSession,
        spec: LaunchSpec,
        executors: Executors,
        journal: Journal[JournalEntry],
    ) -> None:
        """Bind the coordinator's socket; `start` launches the nodes.

        Args:
            spark: The session.
            spec: What to run.
            executors: Spark's.
            journal: The location's, begun for this life of the driver; closed when it ends.
        """
        self._sc = spark.sparkContext
        self._spec = spec
        self._plans = {plan.node: plan for plan in spec.plans}
        self._meetings = meetings(spec.plans)
        self._places = {
            (kind, node): within(spec.root, kind, node)
            for kind in ("rounds", "footprints", "spill")
            for node in self._plans
        }
        self._is_local = self._sc.master.startswith("local")
        self._executors = executors
        self._wished: dict[tuple[NodeId, int], Executor] = {}  # where a launch should come up
        self._keys = RunKeys.generate()
        self._channels = Channels(self._keys)
        self._router = self._channels.server(WORD_BYTES_MAX)
        self._refused_words = 0
        self._reached_at = self.route(self._bind())
        self._journal = journal
        self._machine = Coordinator(
            spec.plans,
            epoch=self._journal.epoch,
            limits=spec.limits,
            journal=self._journal.entries,
        )
        self._inbox: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._waker = Waker()
        self._poller = zmq.Poller()
        self._poller.register(self._router, zmq.POLLIN)
        self._poller.register(self._waker, zmq.POLLIN)
        self._timers: dict[str, int] = {}
        self._answered_s: dict[bytes, float] = {}
        self._unwritten: list[c.WriteJournal] = []
        self._is_stopping = threading.Event()
        self._jobs = NodeJobs(self._sc, spec.name, self._task_spec, self._on_task_ended, executors)
        self._is_over = False  # finished or failed; only the coordinator's thread looks
        self._on_end: Callable[[], None] = lambda: None
        self._loop = threading.Thread(target=self._run, name="holdfast-coordinator", daemon=True)
        self.reports = {plan.node: NodeReport() for plan in spec.plans}  # of primaries
        self.begun: dict[NodeId, RestartPoint] = {}  # where each node was at first
        self._reports_of: dict[str, NodeReport] = {}  # by task
        self._catch_up = CatchUpWatch({plan.node: plan.receivers() for plan in spec.plans})
        self.failures: list[dict[str, Any]] = []
        self.recoveries: list[dict[str, Any]] = []
        self.checkpoints: deque[dict[str, Any]] = deque(maxlen=_CHECKPOINTS_SHOWN)
        self.gaps: list[dict[str, Any]] = []
        self.damages: list[dict[str, Any]] = []
        self.done = threading.Event()
        self.error: str | None = None
        self.started_s = time.time()

    @staticmethod
    def route(endpoint: str) -> str:
        """Where others reach an endpoint; whoever tests puts a faulty network there."""
        return endpoint

    def _bind(self) -> str:
        listened = reached = "127.0.0.1"
        if not self._is_local:
            listened, reached = driver_addresses(self._sc.getConf())
        return f"tcp://{reached}:{self._spec.ports.bind(self._router, listened)}"

    # -- life -------------------------------------------------------------------------------

    def start(self, on_end: Callable[[], None]) -> None:
        """Launch all nodes; returns at once.

        Args:
            on_end: Called once nothing of the query runs any more, in the coordinator's thread.
        """
        self._on_end = on_end
        self._executors.on_change(lambda hosts: self._post(c.HostsKnown(hosts)))
        self._post(c.Started())
        self._loop.start()

    def stop(self) -> None:
        """Tell all nodes to stop and wait for their tasks; returns when nothing runs any more."""
        self._is_stopping.set()
        self._waker.wake()
        self._loop.join()

    @property
    def epoch(self) -> int:
        """Counts the lives of the coordinator at this location."""
        return self._machine.epoch

    def states(self) -> dict[NodeId, str]:
        """The state of every node's primary."""
        return {node: state.value for node, state in self._machine.statistics().items()}

    def replicas(self, node: NodeId) -> list[tuple[Replica, NodeReport]]:
        """What is known of a node's primary, and of its secondary if it is to have one."""
        replicas = self._machine.instance(node).replicas
        return [(r, self._reports_of.get(r.task or "", NodeReport())) for r in replicas]

    def instance(self, node: NodeId) -> Instance:
        """What the coordinator knows of a node."""
        return self._machine.instance(node)

    @property
    def registry(self) -> CheckpointRegistry:
        """The restart points and incarnations that are durable. To be read only."""
        return self._machine.registry

    def held_up(self) -> list[HeldUp]:
        """Which sources hold up event time now; none when the query is over."""
        if self._is_stopping.is_set():
            return []
        promises = {s: p for r in list(self.reports.values()) for s, p in r.promises.items()}
        return held_up(self._meetings, promises, _now_ms())

    def refused(self) -> dict[str, dict[str, int]]:
        """Frames and handshakes refused so far, by the coordinator and by each node.

        A node's are those of all its tasks.
        """
        found = {
            "coordinator": {
                "frames": self._refused_words,
                "handshakes": self._channels.refused_handshakes,
            }
        }
        for node in self._plans:
            found[node] = {"frames": 0, "handshakes": 0}
        for task, report in list(self._reports_of.items()):
            of_node = found[NodeId(task.partition("|")[0])]
            for kind, count in report.refused.items():
                of_node[kind] = of_node.get(kind, 0) + count
        return found

    def hand_over(self, node: NodeId, pid: int) -> None:
        """Have a node's secondary take over, if this is still the process of its primary."""
        task = self._machine.instance(node).primary.task
        if task is not None and self.reports[node].pid == pid:
            self._post(c.HandoverWanted(node, task))

    def kill(self, node: NodeId) -> None:
        """SIGKILL to a node's primary; on another host it is asked to send it to itself."""
        task = self._machine.instance(node).primary.task
        if task is None:
            return
        if self._is_local:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(task.split("|")[2]), signal.SIGKILL)
        else:
            self._do(lambda: self._say(task.encode(), told.KillReceived()))

    # -- the loop ---------------------------------------------------------------------------

    def _run(self) -> None:
        """Until the query ends or is stopped; then its nodes give their slots back."""
        try:
            while not (self._is_stopping.is_set() or self._is_over):
                self._turn()
            self._is_stopping.set()
            self._say_to_all(told.StopReceived())
            self._collect_last_words()
            self._jobs.end()
        except Exception as error:  # Whatever it is, the query has failed and must say why.
            self.error = f"the coordinator failed: {type(error).__name__}: {reason_of(error)}"
            if self._jobs.is_spark_stopped:
                self.error = "Spark's session was stopped while the query ran"
            _LOG.debug("the coordinator failed", exc_info=True)
        finally:
            self._is_stopping.set()
            self._executors.stop()
            self._channels.close()
            self._waker.close()
            self._journal.close()
            self._on_end()
            self.done.set()

    def _turn(self) -> None:
        ready = dict(self._poller.poll(self._until_next_timer_ms()))
        if self._waker.fileno() in ready:
            self._waker.clear()
        if self._router in ready:
            for _ in range(256):
                try:
                    identity, *parts = self._router.recv_multipart(zmq.NOBLOCK)
                except zmq.Again:
                    break
                self._on_parts(identity, parts)
        while not self._inbox.empty():
            self._inbox.get()()
        now_ms = _now_ms()
        for name in [name for name, at_ms in self._timers.items() if at_ms <= now_ms]:
            del self._timers[name]
            self._step(TimerFired(name))
        self._write_journal()

    def _until_next_timer_ms(self) -> int:
        """How long to wait for words; what is to be written may be due sooner than any timer."""
        wait_ms = min(self._timers.values(), default=_WAIT_MAX_MS + _now_ms()) - _now_ms()
        return max(0, min(wait_ms, _UNWRITTEN_WAIT_MS if self._unwritten else _WAIT_MAX_MS))

    def _post(self, stimulus: Stimulus) -> None:
        """From any thread: let the machine take a step."""
        self._do(lambda: self._step(stimulus))

    def _do(self, work: Callable[[], None]) -> None:
        """From any thread: do something in the coordinator's."""
        self._inbox.put(work)
        self._waker.wake()

    def _collect_last_words(self) -> None:
        """Nodes send their last statistics when told to stop."""
        deadline = time.monotonic() + 1.0
        waiting = {
            replica.task
            for plan in self._spec.plans
            for replica in self._machine.instance(plan.node).replicas
            if replica.state is NodeState.RUNNING
        }
        while waiting and time.monotonic() < deadline:
            if self._router.poll(20):
                identity, *parts = self._router.recv_multipart()
                task = task_of(identity)
                word = decode_from_node(parts, task)
                if task is None or isinstance(word, CorruptFrame):
                    self._refused_words += 1
                    continue
                self._note(task.name, word)
                if isinstance(word, StatisticsReported):
                    waiting.discard(task.name)

    def _step(self, stimulus: Stimulus) -> None:
        for effect in self._machine.step(stimulus, _now_ms()):
            self._perform(effect)

    def _write_journal(self) -> None:
        """All entries of this turn with one sync; their completions may bring more."""
        while entries := [entry for request in self._unwritten for entry in request.entries]:
            if not self._journal.is_due(entries):
                return
            requests, self._unwritten = self._unwritten, []
            self._journal.write(entries)
            for request in requests:
                self._step(c.JournalWritten(request.request_id))

    def _on_parts(self, identity: bytes, parts: list[bytes]) -> None:
        """What came by a connection: a node's word, or something to be refused and counted."""
        task = task_of(identity)
        word = decode_from_node(parts, task)
        if task is None or isinstance(word, CorruptFrame) or not self._on_word(task, word):
            self._refused_words += 1

    def _on_word(self, task: Task, word: FromNode) -> bool:
        """Whether the task may say so."""
        node = word.node
        if node not in self._plans:
            return False
        if isinstance(word, c.HelloReceived):
            self._on_hello(task, word)
            return True
        if task.name not in self._reports_of:
            return False  # Nodes say hello before anything else.
        identity = task.name.encode()  # Only the node's loop listens.
        match self._machine.instance(node).judge(task.name, word.incarnation):
            case Hearing.REFUSED:
                return False
            case Hearing.PASSED_OVER:
                return True
            case Hearing.FENCED:
                self._say(identity, told.Fenced())
                self._step(c.ZombieHeard(node, word.incarnation))
                return True
        self._answer(identity)
        self._note(task.name, word)
        self._executors.heard(self._host_of(task.name))
        if isinstance(word, Stimulus):
            self._step(word)
        return True

    def _on_hello(self, task: Task, hello: c.HelloReceived) -> None:
        node, host = hello.node, hello.host
        self._executors.heard(host)
        launch = self._launch_for(node, task.launch)
        if launch is None:
            self._say(task.name.encode(), told.Fenced())
            return
        self._reports_of.setdefault(task.name, NodeReport(task.pid, host))
        self._wished.pop((node, task.launch), None)
        if not self._is_local:
            address = hello.endpoint.removeprefix("tcp://").rpartition(":")[0]
            self._executors.learned(address, host)
        endpoint, machine = self.route(hello.endpoint), "" if self._is_local else host
        self._step(replace(hello, launch=launch, endpoint=endpoint, host=machine))
        self._show_primary(node)

    def _launch_for(self, node: NodeId, number: int) -> int | None:
        """The launch that a process may run which the job of launch `number` has brought up."""
        launch = self._jobs.launch_of(node, number)
        instance = self._machine.instance(node)
        if instance.expects(launch):
            return launch
        awaited = instance.awaited_launch
        if awaited is not None:
            self._jobs.carry(node, number, awaited)
        return awaited

    def _show_primary(self, node: NodeId) -> None:
        """What is reported of a node is what its primary says."""
        task = self._machine.instance(node).primary.task
        if task is not None:
            self.reports[node] = self._reports_of[task]

    def _host_of(self, task: str) -> str:
        report = self._reports_of.get(task)
        return "" if report is None else report.host

    def _answer(self, identity: bytes) -> None:
        """Renew the node's lease now and then."""
        now_s = time.monotonic()
        if now_s - self._answered_s.get(identity, 0.0) > _ANSWER_INTERVAL_S:
            self._answered_s[identity] = now_s
            self._say(identity, told.LeaseRenewed())

    def _note(self, task: str, word: FromNode) -> None:
        """Keep what people may want to know."""
        note = _NOTED.get(type(word))
        if note is not None:
            note(self, task, word)

    def _note_keep_alive(self, task: str, alive: c.KeepAliveReceived) -> None:
        report = self._reports_of.get(task)
        if report is not None:
            report.waits = alive.waits

    def _note_statistics(self, task: str, said: StatisticsReported) -> None:
        report = self._reports_of.get(task)
        if report is None:
            return
        report.hear(said, _now_ms())
        if self.reports[said.node] is report:
            for caught_up in self._catch_up.heard(said.node, report.latency, time.monotonic()):
                self._note_caught_up(caught_up)

    def _note_caught_up(self, caught_up: CaughtUp) -> None:
        """Put beside the first new output when results were as prompt again as before."""
        for recovery in reversed(self.recoveries):
            if recovery["node"] == caught_up.node:
                recovery["caught_up_ms"] = caught_up.caught_up_ms
                return

    def _note_checkpoint(self, _: str, said: CheckpointReported) -> None:
        shown = self._shown(said)
        self.checkpoints.append(shown)
        if said.failure is not None:
            _LOG.warning("no checkpoint this time: %s", shown)

    def _note_damage(self, _: str, said: DamageReported) -> None:
        self.damages.append(self._shown(said))
        _LOG.warning("checkpoint passed over: %s", self.damages[-1])

    def _note_gap(self, _: str, said: GapReported) -> None:
        shown = self._shown(said)
        del shown["at_unix_s"]
        self.gaps.append(shown)

    def _shown(self, said: CheckpointReported | DamageReported | GapReported) -> dict[str, Any]:
        """A report as progress reports and logs show it, with the time."""
        names = [each.name for each in fields(said) if each.name != "incarnation"]
        return {name: getattr(said, name) for name in names} | {
            "at_s": round(time.time() - self.started_s, 3),
            "at_unix_s": round(time.time(), 3),
        }

    def _say(self, identity: bytes, word: ToNode) -> None:
        self._router.send_multipart([identity, encode(word)])

    def _say_to_all(self, word: ToNode) -> None:
        for plan in self._spec.plans:
            for replica in self._machine.instance(plan.node).replicas:
                if replica.task is not None:
                    self._say(replica.task.encode(), word)

    # -- effects ----------------------------------------------------------------------------

    def _perform(self, effect: Effect) -> None:
        _PERFORMERS[type(effect)](self, effect)

    def _set_timer(self, effect: SetTimer) -> None:
        self._timers[effect.name] = effect.at_ms

    def _ask_journal(self, effect: c.WriteJournal) -> None:
        self._unwritten.append(effect)

    def _tell_task(self, effect: _ToTask) -> None:
        self._say(effect.task.encode(), word_of(effect))

    def _assign(self, effect: c.SendAssignment) -> None:
        point = effect.assignment.restart_point
        self.begun.setdefault(effect.node, point or RestartPoint())
        self._say(effect.task.encode(), word_of(effect))

    def _promote(self, effect: c.SendPromotion) -> None:
        self._say(effect.task.encode(), word_of(effect))
        self._show_primary(effect.node)

    def _admit(self, effect: AdmitWrite) -> None:
        task = self._machine.instance(effect.node).primary.task
        if task is not None:
            self._say(task.encode(), word_of(effect))

    def _finish(self, _: c.FinishQuery) -> None:
        self._is_over = True

    def _fail(self, effect: c.FailQuery) -> None:
        self.error = effect.reason
        self._is_over = True

    def _note_failure(self, failure: c.ReportFailure) -> None:
        """One line for whoever watches the driver, and what progress reports say of it."""
        if failure.silent_ms > self._spec.limits.silence_ms:
            self._executors.silent(failure.host)
        _LOG.warning("%s failed and is being replaced: %s", failure.node, failure.reason)
        self._catch_up.failed(failure.node, time.monotonic() - failure.silent_ms / 1e3)
        self.failures.append(
            {
                "node": failure.node,
                "incarnation": failure.incarnation,
                "at_s": round(time.time() - self.started_s, 3),
                "reason": failure.reason,
                "detected_ms": failure.silent_ms,
            }
        )

    def _note_recovery(self, recovery: c.ReportRecovery) -> None:
        self._catch_up.recovered(recovery.node, time.monotonic())
        self.recoveries.append(
            {
                "node": recovery.node,
                "at_s": round(time.time() - self.started_s - recovery.recovered_ms / 1e3, 3),
                "detected_ms": recovery.detected_ms,
                "restarted_ms": recovery.restarted_ms,
                "replayed_ms": recovery.replayed_ms,
                "recovered_ms": recovery.recovered_ms,
                "recovered_unix_s": round(time.time(), 3),
                "caught_up_ms": None,
                "replayed_tuples": recovery.replayed_tuples,
                "was_promoted": recovery.was_promoted,
            }
        )

    def _end_task(self, effect: c.EndTask) -> None:
        """End a fenced process on this host; elsewhere it ends itself when told or by its lease."""
        pid = int(effect.task.split("|")[2])
        present = [report.pid for _, report in self.replicas(effect.node)]
        if self._is_local and pid not in present:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    # -- Spark jobs -------------------------------------------------------------------------

    def _launch(self, effect: c.LaunchTask) -> None:
        node, launch = effect.node, effect.launch
        replicas = self._machine.instance(node).replicas
        beside = self._beside(node, [r for r in replicas if r.launch != launch])
        chosen = self._executors.choose(f"{node}#{launch}", apart_from=beside)
        if chosen is not None:
            self._wished[(node, launch)] = chosen
        self._jobs.launch(node, launch, {replica.launch for replica in replicas}, chosen)

    def _beside(self, node: NodeId, others: list[Replica]) -> list[str]:
        """The machine of the node's other replica, or where that is on its way to."""
        wished = [self._wished.get((node, other.launch)) for other in others]
        known = [other.host for other in others if other.host]
        return known or [executor.machine for executor in wished if executor is not None]

    def _task_spec(self, node: NodeId, launch: int) -> TaskSpec:
        plan = self._plans[node]
        streams = {spec.stream for spec in plan.inputs}
        sinks = {s for output in plan.outputs if output.is_sink for s in output.streams}
        return TaskSpec(
            plan=plan,
            launch=launch,
            coordinator=self._reached_at,
            keys=self._keys,
            sources={s: source for s, source in self._spec.sources.items() if s in streams},
            sink_paths={s: path for s, path in self._spec.sink_paths.items() if s in sinks},
            pass_place=self._places[("rounds", node)],
            footprint_place=self._places[("footprints", node)],
            spill_path=self._places[("spill", node)],
            store=self._spec.store,
            is_local=self._is_local,
            ports=self._spec.ports,
            outside_sinks=tuple(s for s in self._spec.outside_sinks if s.stream in sinks),
            niceness=self._spec.niceness,
        )

    def _on_task_ended(self, ended: c.TaskEnded) -> None:
        if not self._is_stopping.is_set():
            self._post(ended)


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000


_NOTED: dict[type[Any], Callable[[Cluster, str, Any], None]] = {
    c.KeepAliveReceived: Cluster._note_keep_alive,
    StatisticsReported: Cluster._note_statistics,
    CheckpointReported: Cluster._note_checkpoint,
    DamageReported: Cluster._note_damage,
    GapReported: Cluster._note_gap,
}

_ToTask = (
    c.TellFloor
    | c.TellPeer
    | c.TellPointStored
    | c.TellHalt
    | c.TellGoOn
    | c.TellRollBack
    | c.TellLineMoved
)
_PERFORMERS: dict[type[Effect], Callable[[Cluster, Any], None]] = {
    SetTimer: Cluster._set_timer,
    c.LaunchTask: Cluster._launch,
    c.EndTask: Cluster._end_task,
    c.WriteJournal: Cluster._ask_journal,
    c.SendAssignment: Cluster._assign,
    c.TellFloor: Cluster._tell_task,
    c.TellPeer: Cluster._tell_task,
    c.TellPointStored: Cluster._tell_task,
    c.TellHalt: Cluster._tell_task,
    c.TellGoOn: Cluster._tell_task,
    c.TellRollBack: Cluster._tell_task,
    c.TellLineMoved: Cluster._tell_task,
    c.SendPromotion: Cluster._promote,
    AdmitWrite: Cluster._admit,
    c.ReportFailure: Cluster._note_failure,
    c.ReportRecovery: Cluster._note_recovery,
    c.FinishQuery: Cluster._finish,
    c.FailQuery: Cluster._fail,
}
