"""Runs the coordinator in the driver and the nodes as Spark jobs of one task each."""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import signal
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import zmq

from holdfast.core.coordinator import events as c
from holdfast.core.coordinator.admission import AdmitWrite
from holdfast.core.coordinator.checkpoint_registry import CheckpointRegistry
from holdfast.core.coordinator.checkpoint_rounds import ReportRound
from holdfast.core.coordinator.coordinator import Coordinator
from holdfast.core.coordinator.held_up import HeldUp, held_up, meetings
from holdfast.core.coordinator.instance import Hearing, Instance
from holdfast.core.coordinator.journal_entries import Ending, JournalEntry
from holdfast.core.coordinator.line_account import ReportLine
from holdfast.core.coordinator.replica import NodeState, Replica
from holdfast.core.coordinator.reports import StatisticsReported
from holdfast.core.coordinator.turns import GrantTurn
from holdfast.core.haunit import told
from holdfast.core.machine import Effect, SetTimer, Stimulus, TimerFired
from holdfast.core.model.ids import NodeId
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
from holdfast.shell.processes import is_at_work
from holdfast.shell.spark.executors import Executors
from holdfast.shell.spark.history import History, NodeReport
from holdfast.shell.spark.journal import Journal
from holdfast.shell.spark.launches import Launches, LaunchSpec
from holdfast.shell.spark.reasons import reason_of
from holdfast.shell.transport.addresses import driver_addresses
from holdfast.shell.transport.channels import Channels, RunKeys
from holdfast.shell.transport.waker import Waker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOG = logging.getLogger(__name__)
_ANSWER_INTERVAL_S = 1.0
_CHECKPOINTS_SHOWN = 1_000
_WAIT_MAX_MS = 100
_UNWRITTEN_WAIT_MS = 5


class Cluster:
    """The shell around one `Coordinator`: its socket, its journal, its Spark jobs."""

    def __init__(
        self,
        spark: SparkSession,
        spec: LaunchSpec,
        executors: Executors,
        journal: Journal[JournalEntry],
        end_life: Callable[[Ending], None],
    ) -> None:
        """Bind the coordinator's socket; `start` launches the nodes.

        Args:
            spark: The session.
            spec: What to run.
            executors: Spark's.
            journal: The location's, begun for this life of the driver; closed when it ends.
            end_life: Told how it has ended, before that, once no node runs any more.
        """
        self._sc = spark.sparkContext
        self._spec = spec
        self._plans = {plan.node: plan for plan in spec.plans}
        self._meetings = meetings(spec.plans)
        self._is_local = self._sc.master.startswith("local")
        self._executors = executors
        self._keys = RunKeys.generate()
        self._channels = Channels(self._keys)
        self._router = self._channels.server(WORD_BYTES_MAX)
        self._refused_words = 0
        self._reached_at = self.route(self._bind())
        self._journal = journal
        self.require_lead = journal.require_newest
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
        self._end_life = end_life
        self._ending = Ending.FINISHED  # if nobody says otherwise
        self._launches = Launches(
            self._sc, spec, executors, self._reached_at, self._keys, self._on_task_ended
        )
        self._is_over = False  # finished or failed; only the coordinator's thread looks
        self._on_end: Callable[[], None] = lambda: None
        self._loop = threading.Thread(target=self._run, name="holdfast-coordinator", daemon=True)
        self.history = History(spec.plans)
        self.begun: dict[NodeId, RestartPoint] = {}  # where each node was at first
        self.done = threading.Event()
        self.error: str | None = None

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
        self._executors.on_leaving(
            lambda gone: self._post(c.TasksLeaving(self._launches.jobs.running_on(gone)))
        )
        self._post(c.Started())
        self._loop.start()

    def stop(self, ending: Ending = Ending.STOPPED) -> None:
        """Tell all nodes to stop and wait for their tasks; returns when nothing runs any more.

        Args:
            ending: What drivers in standby are told, unless it has ended otherwise before.
        """
        if not (self._is_stopping.is_set() or self._is_over):
            self._ending = ending
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
        return [(r, self.history.of(r.task)) for r in replicas]

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
        promises = {
            s: p for r in list(self.history.reports.values()) for s, p in r.promises.items()
        }
        return held_up(self._meetings, promises, _now_ms())

    def refused(self) -> dict[str, dict[str, int]]:
        """Frames and handshakes refused so far, by the coordinator and by each node."""
        handshakes = self._channels.refused_handshakes
        mine = {"frames": self._refused_words, "handshakes": handshakes}
        return {"coordinator": mine, **self.history.refused()}

    def hand_over(self, node: NodeId, pid: int) -> None:
        """Have a node's secondary take over, if this is still the process of its primary."""
        task = self._machine.instance(node).primary.task
        if task is not None and self.history.reports[node].pid == pid:
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

    def tell_running(self, nodes: Iterable[NodeId], word: ToNode) -> int:
        """Tell the primaries of these nodes something, from any thread; how many of them run."""
        primaries = (self._machine.instance(node).primary for node in nodes)
        tasks = [p.task.encode() for p in primaries if p.task and p.state is NodeState.RUNNING]
        for task in tasks:
            self._do(partial(self._say, task, word))
        return len(tasks)

    # -- the loop ---------------------------------------------------------------------------

    def _run(self) -> None:
        """Until the query ends or is stopped; then its nodes give their slots back."""
        try:
            while not (self._is_stopping.is_set() or self._is_over):
                self._turn()
            self._is_stopping.set()
            self._say_to_all(told.StopReceived())
            self._collect_last_words()
            self._launches.jobs.end()
        except Exception as error:  # Whatever it is, the query has failed and must say why.
            self.error = f"the coordinator failed: {type(error).__name__}: {reason_of(error)}"
            if self._launches.jobs.is_spark_stopped:
                self.error = "Spark's session was stopped while the query ran"
            _LOG.debug("the coordinator failed", exc_info=True)
        finally:
            self._is_stopping.set()
            self._executors.stop()
            self._end_life(self._ending if self.error is None else Ending.FAILED)
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
        self.tell_running(self.history.nodes_to_ask(), told.FiguresWanted())
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
                self.history.note(task.name, word)
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
        if not self.history.has(task.name):
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
        self.history.note(task.name, word)
        self._executors.heard(self.history.of(task.name).host)
        if isinstance(word, Stimulus):
            self._step(word)
        return True

    def _on_hello(self, task: Task, hello: c.HelloReceived) -> None:
        node, host = hello.node, hello.host
        self._executors.heard(host)
        instance = self._machine.instance(node)
        has_ended = instance.has_ended(task.name)
        launch = None if has_ended else self._launches.expected(instance, task.launch)
        if launch is None:
            self._say(task.name.encode(), told.Fenced())
            return
        self._answer(task.name.encode())  # Its assignment may have to wait for others.
        self.history.came_up(task, host)
        self._launches.came_up(node, task.launch)
        if not self._is_local:
            address = hello.endpoint.removeprefix("tcp://").rpartition(":")[0]
            self._executors.learned(address, host)
        endpoint, machine = self.route(hello.endpoint), "" if self._is_local else host
        self._step(replace(hello, launch=launch, endpoint=endpoint, host=machine))
        self.history.show(node, self._machine.instance(node).primary.task)

    def _answer(self, identity: bytes) -> None:
        """Renew the node's lease now and then."""
        now_s = time.monotonic()
        if now_s - self._answered_s.get(identity, 0.0) > _ANSWER_INTERVAL_S:
            self._answered_s[identity] = now_s
            self._say(identity, told.LeaseRenewed())

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

    def _assign(self, effect: c.SendAssignment) -> None:
        point = effect.assignment.restart_point
        self.begun.setdefault(effect.node, point or RestartPoint())
        self._say(effect.task.encode(), word_of(effect))

    def _promote(self, effect: c.SendPromotion) -> None:
        self._say(effect.task.encode(), word_of(effect))
        self.history.show(effect.node, self._machine.instance(effect.node).primary.task)

    def _admit(self, effect: AdmitWrite | GrantTurn) -> None:
        task = self._machine.instance(effect.node).primary.task
        if task is not None:
            self._say(task.encode(), word_of(effect))

    def _finish(self, _: c.FinishQuery) -> None:
        self._is_over = True

    def _fail(self, effect: c.FailQuery) -> None:
        self.error = effect.reason
        self._is_over = True

    def _note_failure(self, failure: c.ReportFailure) -> None:
        if failure.silent_ms > self._spec.limits.silence_ms:
            self._executors.silent(failure.host)
        self.history.failed(failure)

    def _end_task(self, effect: c.EndTask) -> None:
        """End a fenced process on this host; elsewhere it ends itself when told or by its lease.

        Where it was at work it was only slow: it would have said so, and been told to end.
        """
        pid = int(effect.task.split("|")[2])
        present = [report.pid for _, report in self.replicas(effect.node)]
        if self._is_local and pid not in (os.getpid(), *present):
            if is_at_work(pid):
                self._post(c.ZombieHeard(effect.node, effect.incarnation))
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    # -- Spark jobs -------------------------------------------------------------------------

    def _launch(self, effect: c.LaunchTask) -> None:
        self._launches.launch(self._machine.instance(effect.node), effect.launch)

    def _on_task_ended(self, ended: c.TaskEnded) -> None:
        if not self._is_stopping.is_set():
            self._post(ended)


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000


_ToTask = (
    c.TellFloor
    | c.TellPeer
    | c.TellPointStored
    | c.TellHalt
    | c.TellGoOn
    | c.TellRollBack
    | c.TellLineMoved
    | c.TellRound
    | c.TellCut
)


def _tell_task(cluster: Cluster, effect: _ToTask) -> None:
    cluster._say(effect.task.encode(), word_of(effect))


_PERFORMERS: dict[type[Effect], Callable[[Cluster, Any], None]] = {
    SetTimer: Cluster._set_timer,
    c.LaunchTask: Cluster._launch,
    c.EndTask: Cluster._end_task,
    c.WriteJournal: lambda cluster, effect: cluster._unwritten.append(effect),
    c.SendAssignment: Cluster._assign,
    c.TellFloor: _tell_task,
    c.TellPeer: _tell_task,
    c.TellPointStored: _tell_task,
    c.TellHalt: _tell_task,
    c.TellGoOn: _tell_task,
    c.TellRollBack: _tell_task,
    c.TellLineMoved: _tell_task,
    c.TellRound: _tell_task,
    c.TellCut: _tell_task,
    c.SendPromotion: Cluster._promote,
    AdmitWrite: Cluster._admit,
    GrantTurn: Cluster._admit,
    c.ReportFailure: Cluster._note_failure,
    c.ReportRecovery: lambda cluster, effect: cluster.history.recovered(effect),
    ReportRound: lambda cluster, effect: cluster.history.completed(effect),
    ReportLine: lambda cluster, effect: cluster.history.line_moved(effect),
    c.FinishQuery: Cluster._finish,
    c.FailQuery: Cluster._fail,
}
