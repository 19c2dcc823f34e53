"""A running dataflow: the handle that users of Structured Streaming know."""

from __future__ import annotations

import logging
import os
import threading
import time
import warnings
from functools import partial
from typing import TYPE_CHECKING, Any

from holdfast.api.advice import Advice, Objectives, refusals
from holdfast.api.advice import advise as give_advice
from holdfast.api.batch_twin import Verification
from holdfast.api.batch_twin import verify as verify_sink
from holdfast.api.description import claim, describe
from holdfast.api.embedded_store import EmbeddedStore
from holdfast.api.errors import (
    InsecureClusterError,
    NotEnoughHostsError,
    NotEnoughSlotsError,
    OptionError,
    QueryFailedError,
    UnsupportedError,
)
from holdfast.api.inspection import FILE_NAME as OPERATORS_FILE
from holdfast.api.inspection import describe_operators
from holdfast.api.kafka import check_topics
from holdfast.api.measurements import Measurements, Observed, measure
from holdfast.api.options import PREFIX, read_options
from holdfast.api.planning import Plan, plan_dataflow
from holdfast.api.protections import Protection, Protections
from holdfast.api.security import (
    AUTHENTICATION,
    InsecureClusterWarning,
    Shortcoming,
    shortcomings,
)
from holdfast.core.coordinator.coordinator import CoordinatorLimits
from holdfast.core.haunit.plan import NodeLimits, Standby
from holdfast.core.model.ids import BEGINNING_US, NodeId
from holdfast.shell.spark.chunk_cluster import ChunkCluster
from holdfast.shell.spark.data_source import register
from holdfast.shell.spark.executors import Executors, wait_for_slots
from holdfast.shell.spark.ingest import Ingest
from holdfast.shell.spark.launch import Cluster, LaunchSpec
from holdfast.shell.storage.lock import LocationLock
from holdfast.shell.storage.places import is_remote, local_path, put_or_read, store_at
from holdfast.shell.stores.base import StoreSpec
from holdfast.shell.telemetry import LatencyHistogram
from holdfast.shell.transport.addresses import Ports

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from holdfast.api.dataflow import Dataflow


_LOG = logging.getLogger(__name__)
_CHECKPOINTS_IN_PROGRESS = 20
_DATA_NODES_UP_S = 30.0


def start(
    flow: Dataflow,
    spark: SparkSession,
    location: str,
    protection: Protection | Mapping[str, Protection] | None,
    parallelism: int | dict[str, int],
    options: dict[str, str],
) -> Query:
    """Plan the dataflow, check that Spark can hold it, and launch it."""
    location = local_path(location)
    protections = Protections(protection)
    protections.check(flow)
    values = read_options({**_session_options(spark), **options})
    lacking = _check_session(spark, is_insecure_allowed=bool(values["allowInsecureCluster"]))
    ports = _ports(values)

    def place() -> Plan:
        return plan_dataflow(
            flow,
            location,
            parallelism=parallelism,
            limits=_node_limits(values),
            protection=lambda unit: protections.of(unit).of_unit(),
        )

    ingests = [
        Ingest(step.name, step.settings, location)
        for step in flow.steps
        if step.kind == "source" and "df" in step.settings
    ]
    checkpointed = protections.checkpointed
    embedded = checkpointed.store if checkpointed is not None else None
    embedded = embedded if isinstance(embedded, EmbeddedStore) else None
    if embedded is not None and is_remote(location) and not embedded.local_directory:
        raise OptionError(f"EmbeddedStore() with {location} needs local_directory, a folder")
    _check_slots(spark, place(), ingests, embedded, values["launchTimeoutMs"] / 1e3)
    executors = Executors(spark.sparkContext, flow.name)
    _check_hosts(place(), executors)
    check_topics(flow)
    register(spark)
    lock: LocationLock | None = None
    if not is_remote(location):  # Elsewhere the journal keeps two drivers apart.
        os.makedirs(location, exist_ok=True)
        lock = LocationLock(location)
    chunks: ChunkCluster | None = None
    executors.start()
    try:
        claim(location, describe(flow, place(), protections))
        _start_ingests(spark, ingests)
        plan = place()  # Again: a replay begins when its recording is complete.
        store: StoreSpec | None = None
        if embedded is not None:
            chunks = _start_chunks(spark, location, embedded, flow.name, executors, ports)
            store = chunks.spec
        elif checkpointed is not None:
            store = checkpointed.store_spec(location)
        if store is not None:
            _describe_operators(location, describe_operators(flow, plan, store))
        writers = 0 if checkpointed is None else checkpointed.writers or 0
        cluster = _cluster(flow, spark, location, plan, values, store, writers, executors)
    except BaseException:
        executors.stop()
        for ingest in ingests:
            ingest.stop()
        if chunks is not None:
            chunks.stop()
        if lock is not None:
            lock.release()
        raise
    misses = values["keepAliveMisses"]
    measured = partial(
        measure, flow.name, plan, protections.of, misses=misses, refused=refusals(flow)
    )
    return Query(flow, spark, location, plan, cluster, ingests, lock, chunks, measured, lacking)


def _describe_operators(location: str, text: str) -> None:
    """What `holdfast inspect` goes by; the one before says the same, or is of an older version."""
    store = store_at(location)
    if put_or_read(store, OPERATORS_FILE, [text.encode()]) != text.encode():
        store.delete(OPERATORS_FILE)
        store.put(OPERATORS_FILE, [text.encode()])


def _start_chunks(
    spark: SparkSession,
    location: str,
    wanted: EmbeddedStore,
    name: str,
    executors: Executors,
    ports: Ports,
) -> ChunkCluster:
    """Launch the data nodes; nodes that come up first ask them again until they answer."""
    chunks = ChunkCluster(
        spark,
        location,
        wanted,
        name=name,
        executors=executors,
        placement=wanted.placement(),
        ports=ports,
    )
    chunks.start()
    if not chunks.wait_until_up(_DATA_NODES_UP_S):
        _LOG.warning("not all data nodes came up within %s s", _DATA_NODES_UP_S)
    return chunks


def _cluster(
    flow: Dataflow,
    spark: SparkSession,
    location: str,
    plan: Plan,
    values: dict[str, int],
    store: StoreSpec | None,
    writers: int,
    executors: Executors,
) -> Cluster:
    return Cluster(
        spark,
        LaunchSpec(
            flow.name,
            plan.nodes,
            plan.sources,
            plan.sink_paths,
            location,
            CoordinatorLimits(
                keep_alive_ms=values["keepAliveMs"],
                misses=values["keepAliveMisses"],
                launch_timeout_ms=values["launchTimeoutMs"],
                failures_max=values["failuresMax"],
                failure_window_ms=values["failureWindowMs"],
                writers_max=writers,
            ),
            store,
            _ports(values),
            plan.kafka_sinks,
        ),
        executors,
    )


def _ports(values: dict[str, int]) -> Ports:
    low, high = values["portMin"], values["portMax"]
    if low >= high:
        raise OptionError(f"{PREFIX}portMin={low} is not below {PREFIX}portMax={high}")
    return Ports(low, high)


def _start_ingests(spark: SparkSession, ingests: list[Ingest]) -> None:
    """Begin; what is replayed at a set speed is recorded as a whole first."""
    for ingest in ingests:
        ingest.start(spark)
    paced = [ingest for ingest in ingests if ingest.is_paced and not ingest.is_streaming]
    for ingest in paced:
        ingest.wait()
        if ingest.error is not None:
            raise QueryFailedError(ingest.error)


def _check_session(spark: SparkSession, *, is_insecure_allowed: bool) -> list[Shortcoming]:
    """Refuse sessions in which nodes would not be safe; warn of the rest, and give it back.

    Raises:
        InsecureClusterError: Tasks, and with them this run's keys, travel unauthenticated.
        OptionError: Spark would run a second attempt of a slow task, or take executors away.
    """
    conf = dict(spark.sparkContext.getConf().getAll())
    if conf.get("spark.speculation", "false") == "true":
        raise OptionError(
            "spark.speculation=true would start nodes twice; set it to false for this session"
        )
    if conf.get("spark.dynamicAllocation.enabled", "false") == "true":
        raise OptionError(
            "spark.dynamicAllocation.enabled=true would take away the executors that wait for "
            "nodes to replace; set it to false and ask for as many executors as are needed"
        )
    lacking = shortcomings(spark.sparkContext.master, conf)
    if any(each.setting == AUTHENTICATION for each in lacking) and not is_insecure_allowed:
        raise InsecureClusterError(
            "spark.authenticate is off, so that anyone on the network could read this run's keys; "
            f"turn it on (with spark.network.crypto.enabled), or set {PREFIX}allowInsecureCluster="
            "true if the network is yours alone"
        )
    for each in lacking:
        warnings.warn(str(each), InsecureClusterWarning, stacklevel=4)
    return lacking


def _session_options(spark: SparkSession) -> dict[str, str]:
    return {
        key: value for key, value in spark.sparkContext.getConf().getAll() if key.startswith(PREFIX)
    }


def _node_limits(values: dict[str, int]) -> NodeLimits:
    if values["roundTuples"] > values["inputQueueTuples"]:
        raise OptionError(f"{PREFIX}roundTuples is larger than {PREFIX}inputQueueTuples")
    if values["pageBytes"].bit_count() != 1:
        raise OptionError(f"{PREFIX}pageBytes={values['pageBytes']} is no power of two")
    return NodeLimits(
        input_queue_tuples=values["inputQueueTuples"],
        output_queue_tuples=values["outputQueueTuples"],
        output_queue_bytes=values["outputQueueBytes"],
        round_tuples=values["roundTuples"],
        ack_interval_ms=values["ackIntervalMs"],
        keep_alive_ms=values["keepAliveMs"],
        resubscribe_ms=3 * values["keepAliveMs"],
        page_bytes=values["pageBytes"],
        state_bytes=values["stateBytesMax"],
    )


def _check_slots(
    spark: SparkSession,
    plan: Plan,
    ingests: list[Ingest],
    embedded: EmbeddedStore | None,
    wait_s: float,
) -> None:
    """Every node, and every data node, holds a task slot for as long as it lives.

    Args:
        wait_s: How long executors of a cluster may take to come up.
    """
    writers = 1 if any(ingest.is_streaming for ingest in ingests) else 0
    data_nodes = 0 if embedded is None else embedded.data_nodes
    secondaries = sum(node.standby is not Standby.NONE for node in plan.nodes)
    needed = len(plan.nodes) + secondaries + writers + data_nodes
    is_local = spark.sparkContext.master.startswith("local")
    slots = wait_for_slots(spark.sparkContext, needed, 0.0 if is_local else wait_s)
    if needed > slots:
        others = [f"{secondaries} for secondaries"] if secondaries else []
        others += ["one for the streaming DataFrames"] if writers else []
        others += [f"{data_nodes} for data nodes"] if data_nodes else []
        also = f" ({', '.join(others)})" if others else ""
        raise NotEnoughSlotsError(
            f"{len(plan.nodes)} nodes need {needed} task slots at the same time"
            f"{also}, Spark has {slots}: "
            f"use a master with at least {needed} slots, e.g. local[{needed}], "
            "or less parallelism"
        )


def _check_hosts(plan: Plan, executors: Executors) -> None:
    """Replicas belong on different machines; where there is one only, say so, or refuse."""
    doubled = [node for node in plan.nodes if node.standby is not Standby.NONE]
    if not doubled or len(executors.machines) > 1:
        return
    names = ", ".join(dict.fromkeys(node.unit for node in doubled))
    if any(node.is_strict for node in doubled):
        raise NotEnoughHostsError(
            f"both replicas of {names} would run on one machine, and strict=True forbids that: "
            "give Spark executors on a second one, or leave strict out"
        )
    _LOG.warning("both replicas of %s run on one machine, and fail with it", names)


class Query:
    """A running dataflow."""

    def __init__(
        self,
        flow: Dataflow,
        spark: SparkSession,
        location: str,
        plan: Plan,
        cluster: Cluster,
        ingests: list[Ingest],
        lock: LocationLock | None,
        chunks: ChunkCluster | None,
        measured: Callable[[Observed], Measurements],
        lacking: Sequence[Shortcoming] = (),
    ) -> None:
        """Launch; use `Dataflow.start`."""
        self._measured = measured
        self._lacking = lacking
        self._flow = flow
        self._spark = spark
        self._location = location
        self._plan = plan
        self._cluster = cluster
        self._ingests = ingests
        self._location_lock = lock
        self._chunks = chunks
        self._stop_lock = threading.Lock()
        self._is_stopped = False
        self._progress: list[dict[str, Any]] = []
        self._last_counts: tuple[float, int, int] | None = None
        cluster.start(self._on_end)

    # -- the names of Spark's own handle ------------------------------------------------------

    @property
    def name(self) -> str:
        """The dataflow's name."""
        return self._flow.name

    @property
    def isActive(self) -> bool:
        """Whether it runs."""
        is_over = self._is_stopped or self._cluster.done.is_set()
        return not is_over and not any(ingest.error for ingest in self._ingests)

    def exception(self) -> QueryFailedError | None:
        """Why it failed, or None."""
        reason = self._cluster.error or next((i.error for i in self._ingests if i.error), None)
        return None if reason is None else QueryFailedError(f"{self.name}: {reason}")

    def awaitTermination(self, timeout: float | None = None) -> bool:
        """Wait until the query ends, at most `timeout` seconds; whether it has ended.

        Raises:
            QueryFailedError: It failed.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self._cluster.done.wait(0.02):
            if any(ingest.error for ingest in self._ingests):
                break
            if deadline is not None and time.monotonic() > deadline:
                return False
        self.stop()
        error = self.exception()
        if error is not None:
            raise error
        return True

    def processAllAvailable(self) -> None:
        """Wait until everything that bounded sources hold has come out of the sinks."""
        self.awaitTermination()

    def stop(self) -> None:
        """Stop all nodes; returns when nothing of the query runs any more."""
        with self._stop_lock:
            if self._is_stopped:
                return
            self._is_stopped = True
            self._cluster.stop()

    def _on_end(self) -> None:
        """Nothing runs any more: Spark may stop writing, and the location is free."""
        try:
            self.measurements().save(self._location)
        except Exception as error:  # Whatever it is, the location must become free.
            _LOG.warning("no measurements left in %s: %s", self._location, error)
        for ingest in self._ingests:
            ingest.stop()
        if self._chunks is not None:
            self._chunks.stop()
        if self._location_lock is not None:
            self._location_lock.release()

    @property
    def status(self) -> dict[str, Any]:
        """What every node does now, and what the user should know."""
        states = self._cluster.states()
        return {
            "message": "stopped" if self._is_stopped else "running",
            "nodes": {
                node: {
                    "state": states[node],
                    "pid": report.pid,
                    "host": report.host,
                    **report.statistics,
                    "replicas": self._replicas(node),
                }
                for node, report in self._cluster.reports.items()
            },
            "notes": [
                *self._waiting_notes(),
                *(str(each) for each in self._lacking),
                *self._retention_notes(),
                *self._placement_notes(),
            ],
            "dataNodes": {} if self._chunks is None else self._chunks.processes(),
            "refused": self.refused(),
        }

    def refused(self) -> dict[str, dict[str, int]]:
        """What was refused so far, per process of the query, whose names are the keys.

        `frames`: what came from a peer with this run's key and made no sense, or was not its to
        say; `handshakes`: connections that did not prove this run's key. Neither has an effect.
        """
        of_store = {} if self._chunks is None else self._chunks.refused()
        return {**self._cluster.refused(), **of_store}

    def _waiting_notes(self) -> list[str]:
        """What nodes wait for outside, e.g. a broker."""
        return [text for report in self._cluster.reports.values() for text in report.waits]

    def _retention_notes(self) -> list[str]:
        return [
            f"{name} never lets go of its input: what its producers keep for replay is "
            "spilled for as long as the query runs"
            for name in self._plan.never_trims
        ]

    def _placement_notes(self) -> list[str]:
        """Replicas that one machine's failure would end both, or that wait to avoid that."""
        notes: list[str] = []
        for plan in self._plan.nodes:
            hosts = [r["host"] for r in self._replicas(plan.node) if r["host"]]
            if len(hosts) > len(set(hosts)):
                notes.append(f"both replicas of {plan.node} run on {hosts[0]}")
            if any(replica.is_waiting for replica, _ in self._cluster.replicas(plan.node)):
                notes.append(f"the secondary of {plan.node} waits for a machine of its own")
        return notes

    def _replicas(self, node: NodeId) -> list[dict[str, Any]]:
        """Role and lag of a node's replicas, the primary first.

        The lag is that of the boundary that a replica has reached, behind the primary's; None as
        long as one of them has reached none.
        """
        found = self._cluster.replicas(node)
        reached = [report.statistics.get("boundary_us", BEGINNING_US) for _, report in found]
        return [
            {
                "role": "primary" if i == 0 else "secondary",
                "state": replica.state.value,
                "pid": report.pid,
                "host": report.host,
                "lag_ms": None
                if BEGINNING_US in (reached[0], reached[i])
                else max(0, reached[0] - reached[i]) / 1e3,
                "is_ready": i == 0 or replica.is_ready(self._cluster.instance(node).plan),
            }
            for i, (replica, report) in enumerate(found)
        ]

    def promote(self, unit: str, timeout: float = 10.0) -> None:
        """Have the secondaries of all instances of a unit take over, e.g. before maintenance.

        Nothing is lost and nothing doubled; the former primaries come back as secondaries.

        Raises:
            OptionError: There is no such unit, or it has no secondaries.
            TimeoutError: Some secondary is not ready to take over.
        """
        nodes = [plan for plan in self._plan.nodes if plan.unit == unit]
        if not nodes or any(plan.standby is Standby.NONE for plan in nodes):
            ready = dict.fromkeys(p.unit for p in self._plan.nodes if p.standby is not Standby.NONE)
            raise OptionError(
                f"unit {unit!r} has no secondaries; units that have: {', '.join(ready) or 'none'}"
            )
        deadline = time.monotonic() + timeout
        before = {plan.node: self.pid(plan.node) for plan in nodes}
        for node, pid in before.items():
            while self.pid(node) == pid:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"the secondary of {node} has not taken over")
                self._cluster.hand_over(node, pid)
                time.sleep(0.005)

    @property
    def lastProgress(self) -> dict[str, Any]:
        """Counters, rates, latencies and recoveries now."""
        progress = self._measure()
        self._progress = [*self._progress[-99:], progress]
        return progress

    @property
    def recentProgress(self) -> list[dict[str, Any]]:
        """The last progress reports that were asked for, oldest first."""
        return list(self._progress)

    def _measure(self) -> dict[str, Any]:
        read = written = 0
        for plan in self._plan.nodes:
            statistics = self._cluster.reports[plan.node].statistics
            if any(spec.producer is None for spec in plan.inputs):
                read += statistics.get("input_tuples", 0) - statistics.get("replayed_tuples", 0)
            if any(output.is_sink for output in plan.outputs):
                written += statistics.get("output_tuples", 0)
        now = time.monotonic()
        previous = self._last_counts or (now, read, written)
        self._last_counts = (now, read, written)
        seconds = max(now - previous[0], 1e-9)
        reports = self._cluster.reports.values()
        refused = self.refused().values()
        return {
            "name": self.name,
            "timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "numInputRows": read,
            "numOutputRows": written,
            "inputRowsPerSecond": round((read - previous[1]) / seconds, 1),
            "outputRowsPerSecond": round((written - previous[2]) / seconds, 1),
            "lateRows": sum(report.late_tuples for report in reports),
            "refusedFrames": sum(counts["frames"] for counts in refused),
            "refusedHandshakes": sum(counts["handshakes"] for counts in refused),
            "latencyMs": self.latency().summary(),
            "checkpoints": list(self._cluster.checkpoints)[-_CHECKPOINTS_IN_PROGRESS:],
            "damagedCheckpoints": list(self._cluster.damages),
            "gaps": list(self._cluster.gaps),
            "failures": list(self._cluster.failures),
            "recovery": list(self._cluster.recoveries),
        }

    # -- what Holdfast adds -------------------------------------------------------------------

    def latency(self) -> LatencyHistogram:
        """Latencies from a tuple's creation to its sink, since the present nodes started."""
        merged = LatencyHistogram()
        for report in self._cluster.reports.values():
            merged.merge(report.latency, report.latency_max_us)
        return merged

    @property
    def nodes(self) -> dict[str, int]:
        """The process id of every node."""
        return {node: report.pid for node, report in self._cluster.reports.items()}

    def pid(self, node: str) -> int:
        """The process id of a node, e.g. `counts[0]`."""
        return self._cluster.reports[NodeId(node)].pid

    def kill(self, node: str) -> None:
        """SIGKILL to a node's process, on whatever host it runs; to see what happens then."""
        self._cluster.kill(NodeId(node))

    @property
    def checkpoints(self) -> list[dict[str, Any]]:
        """The last checkpoints that were stored, or failed: node, times, bytes, reason."""
        return list(self._cluster.checkpoints)

    @property
    def damaged_checkpoints(self) -> list[dict[str, Any]]:
        """Checkpoints that could not be read, so that older ones were taken."""
        return list(self._cluster.damages)

    @property
    def failures(self) -> list[dict[str, Any]]:
        """All failures so far."""
        return list(self._cluster.failures)

    @property
    def recoveries(self) -> list[dict[str, Any]]:
        """All completed recoveries so far."""
        return list(self._cluster.recoveries)

    def measurements(self) -> Measurements:
        """What is known of every unit: rates, sizes, costs; left at the location in the end."""
        reports = self._cluster.reports.items()
        return self._measured(
            Observed(
                {node: report.statistics for node, report in reports},
                {node: report.host for node, report in reports},
                list(self._cluster.recoveries),
                list(self._cluster.checkpoints),
            )
        )

    def advise(
        self,
        *,
        recovery_ms: float | None = None,
        delay_ms: float | None = None,
        overhead_percent: float | None = None,
        guarantee: str = "precise",
    ) -> Advice:
        """What each protection would cost here, and which is enough; see `Objectives`.

        Raises:
            AdviceError: No unit has had input yet, or an objective makes no sense.
        """
        objectives = Objectives(recovery_ms, delay_ms, overhead_percent, guarantee)
        return give_advice(self.measurements(), objectives)

    def to_dataframe(self, sink: str | None = None) -> DataFrame:
        """What a sink holds now."""
        name = self._flow.sink_name(sink)
        if name in self._flow.kafka_sinks:
            topic = self._flow.kafka_sinks[name].topic
            raise UnsupportedError(f"sink {name} is in Kafka; read the topic {topic!r} there")
        path = os.path.join(self._location, "streams", name)
        return self._spark.read.format("holdfast").load(path)

    def verify(self, sink: str | None = None) -> Verification:
        """Compare a sink with the batch twin over the recorded input; after the query has ended."""
        return verify_sink(self._flow, self._spark, self._flow.sink_name(sink), self._location)
