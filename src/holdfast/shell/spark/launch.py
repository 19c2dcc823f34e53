"""Runs the coordinator in the driver and the nodes as Spark jobs of one task each."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import queue
import signal
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import zmq

from holdfast.core.coordinator import events as c
from holdfast.core.coordinator.admission import AdmitWrite
from holdfast.core.coordinator.coordinator import Coordinator, CoordinatorLimits
from holdfast.core.coordinator.instance import Instance, NodeState, Replica
from holdfast.core.haunit.plan import NodePlan
from holdfast.core.machine import Effect, SetTimer, Stimulus, TimerFired
from holdfast.core.model.ids import Incarnation, NodeId, StreamId
from holdfast.core.recovery.restart_point import RestartPoint
from holdfast.shell.sources.base import SourceSpec
from holdfast.shell.spark.journal import Journal
from holdfast.shell.spark.reasons import reason_of
from holdfast.shell.spark.task import KEEP_ALIVE_SUFFIX, TaskSpec, run_node
from holdfast.shell.stores.base import StoreSpec
from holdfast.shell.transport.channels import Channels, RunKeys

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOG = logging.getLogger(__name__)
_ANSWER_INTERVAL_S = 1.0
_STOP_TIMEOUT_S = 5.0
_CHECKPOINTS_SHOWN = 1_000


@dataclass(slots=True)
class NodeReport:
    """What the driver last heard of a node."""

    pid: int = 0
    host: str = ""
    statistics: dict[str, Any] = field(default_factory=dict)
    latency: dict[int, int] = field(default_factory=dict)
    latency_max_us: int = 0
    late_tuples: int = 0
    corrupt_frames: int = 0
    processed: dict[str, int] = field(default_factory=dict)  # per input stream, exclusive
    next_ids: dict[str, int] = field(default_factory=dict)  # per output stream
    source_rows: dict[str, int | None] = field(default_factory=dict)  # read of each source's log
    reports: int = 0  # how often its task has said all this


@dataclass(frozen=True, slots=True)
class LaunchSpec:
    """All that the driver needs to run a dataflow's nodes.

    Attributes:
        name: The query's name, for job groups.
        plans: All nodes.
        sources: How to open each source stream.
        sink_paths: The log folder of each sink stream.
        root: The checkpoint location.
        limits: Failure detection.
        store: Where checkpoints are kept; None: there are none.
    """

    name: str
    plans: tuple[NodePlan, ...]
    sources: dict[StreamId, SourceSpec]
    sink_paths: dict[StreamId, str]
    root: str
    limits: CoordinatorLimits
    store: StoreSpec | None = None


class Cluster:
    """The shell around one `Coordinator`: its socket, its journal, its Spark jobs."""

    def __init__(self, spark: SparkSession, spec: LaunchSpec) -> None:
        """Bind the coordinator's socket and open the journal; `start` launches the nodes."""
        self._sc = spark.sparkContext
        self._spec = spec
        self._plans = {plan.node: plan for plan in spec.plans}
        self._is_local = self._sc.master.startswith("local")
        self._keys = RunKeys.generate()
        self._channels = Channels(self._keys)
        self._router = self._channels.server()
        self._reached_at = self.route(self._bind())
        self._journal = Journal(os.path.join(spec.root, "coordinator"))
        self._machine = Coordinator(
            spec.plans,
            epoch=self._journal.epoch,
            limits=spec.limits,
            journal=self._journal.entries,
        )
        self._inbox: queue.SimpleQueue[Stimulus] = queue.SimpleQueue()
        self._timers: dict[str, int] = {}
        self._answered_s: dict[bytes, float] = {}
        self._unwritten: list[c.WriteJournal] = []
        self._threads: dict[tuple[NodeId, int], threading.Thread] = {}
        self._is_stopping = threading.Event()
        self._is_over = False  # finished or failed; only the coordinator's thread looks
        self._on_end: Callable[[], None] = lambda: None
        self._loop = threading.Thread(target=self._run, name="holdfast-coordinator", daemon=True)
        self.reports = {plan.node: NodeReport() for plan in spec.plans}  # of primaries
        self._reports_of: dict[str, NodeReport] = {}  # by task
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
        host = "127.0.0.1"
        if not self._is_local:
            host = self._sc.getConf().get("spark.driver.host", "") or socket.gethostname()
            host = socket.gethostbyname(host)
        port = self._router.bind_to_random_port(f"tcp://{host}")
        return f"tcp://{host}:{port}"

    # -- life -------------------------------------------------------------------------------

    def start(self, on_end: Callable[[], None]) -> None:
        """Launch all nodes; returns at once.

        Args:
            on_end: Called once nothing of the query runs any more, in the coordinator's thread.
        """
        self._on_end = on_end
        self._inbox.put(c.Started())
        self._loop.start()

    def stop(self) -> None:
        """Tell all nodes to stop and wait for their tasks; returns when nothing runs any more."""
        self._is_stopping.set()
        self._loop.join()

    def _end_tasks(self) -> None:
        deadline = time.monotonic() + _STOP_TIMEOUT_S
        for thread in list(self._threads.values()):
            thread.join(max(0.0, deadline - time.monotonic()))
        for (node, launch), thread in self._threads.items():
            if thread.is_alive() and not self._is_spark_stopped():
                self._sc.cancelJobGroup(self._group(node, launch))
                thread.join(_STOP_TIMEOUT_S)

    def _is_spark_stopped(self) -> bool:
        jsc: Any = self._sc._jsc
        return jsc is None or bool(jsc.sc().isStopped())

    @property
    def epoch(self) -> int:
        """Counts the lives of the coordinator at this location."""
        return self._machine.epoch

    def states(self) -> dict[NodeId, str]:
        """The state of every node's primary."""
        return {node: state.value for node, state in self._machine.states().items()}

    def replicas(self, node: NodeId) -> list[tuple[Replica, NodeReport]]:
        """What is known of a node's primary, and of its secondary if it is to have one."""
        replicas = self._machine.instance(node).replicas()
        return [(r, self._reports_of.get(r.task or "", NodeReport())) for r in replicas]

    def instance(self, node: NodeId) -> Instance:
        """What the coordinator knows of a node."""
        return self._machine.instance(node)

    def hand_over(self, node: NodeId, pid: int) -> None:
        """Have a node's secondary take over, if this is still the process of its primary."""
        task = self._machine.instance(node).primary.task
        if task is not None and self.reports[node].pid == pid:
            self._inbox.put(c.HandoverWanted(node, task))

    # -- the loop ---------------------------------------------------------------------------

    def _run(self) -> None:
        """Until the query ends or is stopped; then its nodes give their slots back."""
        try:
            while not (self._is_stopping.is_set() or self._is_over):
                self._turn()
            self._is_stopping.set()
            self._say_to_all({"kind": "stop"})
            self._collect_last_words()
            self._end_tasks()
        except Exception as error:  # Whatever it is, the query has failed and must say why.
            self.error = f"the coordinator failed: {type(error).__name__}: {reason_of(error)}"
            if self._is_spark_stopped():
                self.error = "Spark's session was stopped while the query ran"
            _LOG.debug("the coordinator failed", exc_info=True)
        finally:
            self._is_stopping.set()
            self._channels.close()
            self._journal.close()
            self._on_end()
            self.done.set()

    def _turn(self) -> None:
        if self._router.poll(5):
            for _ in range(256):
                try:
                    identity, body = self._router.recv_multipart(zmq.NOBLOCK)
                except zmq.Again:
                    break
                self._on_word(identity, json.loads(body))
        while not self._inbox.empty():
            self._step(self._inbox.get())
        now_ms = _now_ms()
        for name in [name for name, at_ms in self._timers.items() if at_ms <= now_ms]:
            del self._timers[name]
            self._step(TimerFired(name))
        self._write_journal()

    def _collect_last_words(self) -> None:
        """Nodes send their last statistics when told to stop."""
        deadline = time.monotonic() + 1.0
        waiting = {
            replica.task
            for plan in self._spec.plans
            for replica in self._machine.instance(plan.node).replicas()
            if replica.state is NodeState.RUNNING
        }
        while waiting and time.monotonic() < deadline:
            if self._router.poll(20):
                identity, body = self._router.recv_multipart()
                word = json.loads(body)
                task = identity.removesuffix(KEEP_ALIVE_SUFFIX).decode()
                self._note(task, word)
                if "statistics" in word:
                    waiting.discard(task)

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

    def _on_word(self, identity: bytes, word: dict[str, Any]) -> None:
        node = NodeId(word["node"])
        if node not in self._plans:
            return
        identity = identity.removesuffix(KEEP_ALIVE_SUFFIX)  # Only the node's loop listens.
        if word["kind"] == "hello":
            self._on_hello(node, identity, word)
            return
        incarnation = Incarnation(word["incarnation"])
        if not self._machine.is_current(node, incarnation):
            self._say(identity, {"kind": "fenced"})
            self._step(c.ZombieHeard(node, incarnation))
            return
        self._answer(identity)
        self._note(identity.decode(), word)
        stimulus = _stimulus(word, node, incarnation)
        if stimulus is not None:
            self._step(stimulus)

    def _on_hello(self, node: NodeId, identity: bytes, word: dict[str, Any]) -> None:
        if not self._machine.is_expected(node, word["launch"]):
            self._say(identity, {"kind": "fenced"})
            return
        task = identity.decode()
        self._reports_of[task] = NodeReport(word["pid"], word["host"])
        endpoint = self.route(word["endpoint"])
        self._step(c.HelloReceived(node, word["launch"], task, endpoint))
        self._show_primary(node)

    def _show_primary(self, node: NodeId) -> None:
        """What is reported of a node is what its primary says."""
        task = self._machine.instance(node).primary.task
        if task is not None:
            self.reports[node] = self._reports_of[task]

    def _answer(self, identity: bytes) -> None:
        """Renew the node's lease now and then."""
        now_s = time.monotonic()
        if now_s - self._answered_s.get(identity, 0.0) > _ANSWER_INTERVAL_S:
            self._answered_s[identity] = now_s
            self._say(identity, {"kind": "lease"})

    def _note(self, task: str, word: dict[str, Any]) -> None:
        report = self._reports_of.get(task)
        if word["kind"] in ("checkpoint", "damage"):
            self._note_checkpoint(word)
        elif word["kind"] == "gap":
            lost = {key: word[key] for key in ("node", "stream", "from_id", "to_id")}
            self.gaps.append({**lost, "at_s": round(time.time() - self.started_s, 3)})
        if report is None or "statistics" not in word:
            return
        report.statistics = word["statistics"]
        report.latency = {int(bucket): count for bucket, count in word["latency"].items()}
        report.latency_max_us = word["latency_max_us"]
        report.late_tuples = word["late_tuples"]
        report.corrupt_frames = word["corrupt_frames"]
        report.processed = word["processed"]
        report.next_ids = word["next_ids"]
        report.source_rows = word["source_rows"]
        report.reports += 1

    def _note_checkpoint(self, word: dict[str, Any]) -> None:
        """What a node says of its checkpoints, for progress reports and logs."""
        said = {key: value for key, value in word.items() if key not in ("kind", "incarnation")}
        said["at_s"] = round(time.time() - self.started_s, 3)
        said["at_unix_s"] = round(time.time(), 3)
        if word["kind"] == "damage":
            self.damages.append(said)
            _LOG.warning("checkpoint passed over: %s", said)
            return
        self.checkpoints.append(said)
        if said["failure"] is not None:
            _LOG.warning("no checkpoint this time: %s", said)

    def _say(self, identity: bytes, word: dict[str, Any]) -> None:
        self._router.send_multipart([identity, json.dumps(word).encode()])

    def _say_to_all(self, word: dict[str, Any]) -> None:
        for plan in self._spec.plans:
            for replica in self._machine.instance(plan.node).replicas():
                if replica.task is not None:
                    self._say(replica.task.encode(), word)

    # -- effects ----------------------------------------------------------------------------

    def _perform(self, effect: Effect) -> None:
        match effect:
            case SetTimer():
                self._timers[effect.name] = effect.at_ms
            case c.LaunchTask():
                self._launch(effect.node, effect.launch)
            case c.EndTask():
                self._end_task(effect.node, effect.task)
            case c.WriteJournal():
                self._unwritten.append(effect)
            case c.SendAssignment():
                self._send_assignment(effect)
            case c.TellPeer():
                self._say(effect.task.encode(), {"kind": "peer", **_peer(effect)})
            case c.SendPromotion():
                point = effect.restart_point
                word = {
                    "kind": "promote",
                    "incarnation": effect.incarnation,
                    "point": None if point is None else point.to_json(),
                }
                self._say(effect.task.encode(), word)
                self._show_primary(effect.node)
            case c.TellPointStored():
                word = {"kind": "stored", "sequence": effect.sequence}
                self._say(effect.task.encode(), word)
            case AdmitWrite():
                task = self._machine.instance(effect.node).primary.task
                if task is not None:
                    self._say(task.encode(), {"kind": "write"})
            case c.ReportFailure():
                self.failures.append(
                    {
                        "node": effect.node,
                        "incarnation": effect.incarnation,
                        "at_s": round(time.time() - self.started_s, 3),
                        "reason": effect.reason,
                        "detected_ms": effect.silent_ms,
                    }
                )
            case c.ReportRecovery():
                self.recoveries.append(
                    {
                        "node": effect.node,
                        "at_s": round(time.time() - self.started_s - effect.recovered_ms / 1e3, 3),
                        "detected_ms": effect.detected_ms,
                        "restarted_ms": effect.restarted_ms,
                        "replayed_ms": effect.replayed_ms,
                        "recovered_ms": effect.recovered_ms,
                        "recovered_unix_s": round(time.time(), 3),
                        "replayed_tuples": effect.replayed_tuples,
                        "was_promoted": effect.was_promoted,
                    }
                )
            case c.FinishQuery():
                self._is_over = True
            case c.FailQuery():
                self.error = effect.reason
                self._is_over = True

    def _send_assignment(self, effect: c.SendAssignment) -> None:
        point = effect.assignment.restart_point
        word = {
            "kind": "assign",
            "epoch": effect.assignment.epoch,
            "incarnation": effect.assignment.incarnation,
            "point": None if point is None else point.to_json(),
            "is_secondary": effect.assignment.is_secondary,
            "peers": [_peer(told) for told in effect.peers],
        }
        self._say(effect.task.encode(), word)

    def _end_task(self, node: NodeId, task: str) -> None:
        """End a fenced process on this host; elsewhere it ends itself when told or by its lease."""
        pid = int(task.split("|")[2])
        present = [report.pid for _, report in self.replicas(node)]
        if self._is_local and pid not in present:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    # -- Spark jobs -------------------------------------------------------------------------

    def _group(self, node: NodeId, launch: int) -> str:
        return f"holdfast/{self._spec.name}/{node}#{launch}"

    def _launch(self, node: NodeId, launch: int) -> None:
        expected = {replica.launch for replica in self._machine.instance(node).replicas()}
        for (name, former), thread in self._threads.items():
            if name == node and former not in expected and thread.is_alive():
                self._sc.cancelJobGroup(self._group(node, former))
        thread = threading.Thread(
            target=self._run_job, args=(node, launch), name=self._group(node, launch), daemon=True
        )
        self._threads[(node, launch)] = thread
        thread.start()

    def _run_job(self, node: NodeId, launch: int) -> None:
        """Submit the node's job and wait for its end."""
        plan = self._plans[node]
        streams = {spec.stream for spec in plan.inputs}
        sinks = {s for output in plan.outputs if output.is_sink for s in output.streams}
        spec = TaskSpec(
            plan=plan,
            launch=launch,
            coordinator=self._reached_at,
            keys=self._keys,
            sources={s: source for s, source in self._spec.sources.items() if s in streams},
            sink_paths={s: path for s, path in self._spec.sink_paths.items() if s in sinks},
            round_place=os.path.join(self._spec.root, "rounds", node),
            spill_path=os.path.join(self._spec.root, "spill", node),
            store=self._spec.store,
            is_local=self._is_local,
        )
        reason = "its task ended"
        try:
            self._sc.setJobGroup(self._group(node, launch), f"Holdfast node {node}", True)
            self._sc.parallelize([0], 1).mapPartitions(lambda _: run_node(spec)).collect()
        except Exception as error:  # Whatever Spark says ended the task is the reason to report.
            reason = reason_of(error)
        if not self._is_stopping.is_set():
            self._inbox.put(c.TaskEnded(node, launch, reason))


def _stimulus(word: dict[str, Any], node: NodeId, incarnation: Incarnation) -> Stimulus | None:
    """What a word of a node means to the coordinator; None: it is for people only."""
    match word["kind"]:
        case "checkpoint" | "damage" | "gap":
            return None
        case "point":
            point = RestartPoint.from_json(word["point"])
            return c.RestartPointReceived(node, incarnation, point)
        case "write-wanted":
            return c.WriteWanted(node, incarnation)
        case "write-ended":
            return c.WriteEnded(node, incarnation)
        case "promoted":
            return c.NodePromoted(node, incarnation)
        case "caught-up":
            return c.NodeCaughtUp(node, incarnation, word["replayed_tuples"])
        case "first-output":
            return c.FirstOutput(node, incarnation)
        case "finished":
            return c.NodeFinished(node, incarnation)
        case "failed":
            return c.NodeFailed(node, incarnation, word["reason"], word["is_fatal"])
        case _:
            peers = {NodeId(k): Incarnation(v) for k, v in word["peers"].items()}
            secondaries = {NodeId(k): Incarnation(v) for k, v in word["secondaries"].items()}
            has_joined = word["has_joined"]
            return c.KeepAliveReceived(node, incarnation, peers, secondaries, has_joined)


def _peer(told: c.TellPeer) -> dict[str, Any]:
    """What a node is told of a neighbour, as a word."""
    return {
        "peer": told.peer,
        "incarnation": told.incarnation,
        "endpoint": told.endpoint,
        "secondary": told.secondary,
    }


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
