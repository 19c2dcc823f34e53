"""A running dataflow: the handle that users of Structured Streaming know."""

from __future__ import annotations

import logging
import os
import threading
import time
import uuid
import warnings
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

from holdfast.api.embedded_store import EmbeddedStore
from holdfast.api.protections import Checkpointed, Protection, Protections
from holdfast.core.coordinator.journal_entries import JournalEntry
from holdfast.core.coordinator.limits import CoordinatorLimits
from holdfast.core.haunit.plan import NodeLimits, Standby
from holdfast.core.model.ids import BEGINNING_US, NodeId
from holdfast.driver.advice import Advice, Objectives, refusals
from holdfast.driver.advice import advise as give_advice
from holdfast.driver.batch_twin import Verification
from holdfast.driver.batch_twin import verify as verify_sink
from holdfast.driver.description import claim, describe, explained
from holdfast.driver.draining import wait_until_drained
from holdfast.driver.inspection import FILE_NAME as OPERATORS_FILE
from holdfast.driver.inspection import describe_operators
from holdfast.driver.kafka import check_topics
from holdfast.driver.measurements import Measurements, Observed, measure
from holdfast.driver.options import PREFIX, read_options
from holdfast.driver.progress import Heard, Progress, ProgressMaker, held_up_note, latency_of
from holdfast.driver.reporter import Reporter
from holdfast.driver.rescaling import Rescaling, described, draining_plan, settle
from holdfast.driver.security import (
    AUTHENTICATION,
    InsecureClusterWarning,
    Shortcoming,
    shortcomings,
)
from holdfast.driver.slots import Slots, require_slots, slots_of
from holdfast.errors import (
    InsecureClusterError,
    NotEnoughHostsError,
    OptionError,
    QueryFailedError,
    RescalingError,
    UnsupportedError,
)
from holdfast.planning.plan import Plan, plan_dataflow
from holdfast.shell.sources.file_recorder import FileRecorder
from holdfast.shell.sources.log_source import LogSourceSpec
from holdfast.shell.spark.chunk_cluster import ChunkCluster
from holdfast.shell.spark.data_source import load
from holdfast.shell.spark.executors import Executors
from holdfast.shell.spark.ingest import Ingest
from holdfast.shell.spark.journal import COORDINATOR, JOURNAL_FOLDER, Journal
from holdfast.shell.spark.launch import Cluster, LaunchSpec
from holdfast.shell.storage.ingest_log import CommitCounter
from holdfast.shell.storage.lock import LocationLock
from holdfast.shell.storage.places import (
    is_remote,
    local_path,
    location_id,
    put_or_read,
    store_at,
)
from holdfast.shell.storage.rights import mode_of, open_location
from holdfast.shell.stores.base import StoreSpec
from holdfast.shell.stores.folder import FolderStoreSpec
from holdfast.shell.telemetry import LatencyHistogram
from holdfast.shell.transport.addresses import Ports

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from holdfast.api.dataflow import Dataflow
    from holdfast.shell.sources.recorder import Recorder


_LOG = logging.getLogger(__name__)
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
    _ports(values)  # Raises before anything has begun.
    mode_of(values["locationMode"])

    def place(counts: int | dict[str, int] = parallelism, given: Protections = protections) -> Plan:
        return plan_dataflow(
            flow,
            location,
            parallelism=counts,
            limits=_node_limits(values),
            protection=lambda unit: given.of(unit).of_unit(),
            has_parts=bool(values["partialAggregates"]),
        )

    ingests: list[Recorder] = [
        (Ingest if "df" in step.settings else FileRecorder)(step.name, step.settings, location)
        for step in flow.steps
        if step.kind == "source" and ("df" in step.settings or "files" in step.settings)
    ]
    _require_end(flow, ingests)
    checkpointed = protections.checkpointed
    embedded = checkpointed.store if checkpointed is not None else None
    embedded = embedded if isinstance(embedded, EmbeddedStore) else None
    if embedded is not None and is_remote(location) and not embedded.local_directory:
        raise OptionError(f"EmbeddedStore() with {location} needs local_directory, a folder")
    wait_s = values["launchTimeoutMs"] / 1e3
    wanted = slots_of(place(), ingests, embedded)
    free = require_slots(spark.sparkContext, wanted, wait_s)
    executors = Executors(spark.sparkContext, flow.name)
    _check_hosts(place(), executors, wait_s)
    check_topics(flow)
    lock: LocationLock | None = None
    if not is_remote(location):  # Elsewhere the journal keeps two drivers apart.
        open_location(location, mode_of(values["locationMode"]))
        lock = LocationLock(location)
    chunks: ChunkCluster | None = None
    journal: Journal[JournalEntry] | None = None
    executors.start()
    try:
        location_id(location)  # There is one before there is a dataflow.
        text = describe(flow, place(), protections)
        before = described(location)
        former = settle(before, text)
        rescaling: Rescaling | None = None
        if former is None:
            claim(location, text, before)
        else:
            _require_divisible(flow, ingests, checkpointed)
            timeout_s = values["drainTimeoutMs"] / 1000
            rescaling = Rescaling(draining_plan(place(former)), place(), location, timeout_s)
            rescaling.require_possible()
            former_slots = slots_of(place(former), [], embedded)
            require_slots(spark.sparkContext, former_slots, wait_s)
        store: StoreSpec | None = None
        if embedded is not None:
            chunks = _start_chunks(spark, location, embedded, flow.name, executors, values)
            store = chunks.spec
        elif checkpointed is not None:
            store = checkpointed.store_spec(location)
        if isinstance(store, FolderStoreSpec):
            open_location(store.path, mode_of(values["locationMode"]))
        writers = 0 if checkpointed is None else checkpointed.writers or 0
        if rescaling is not None:
            assert store is not None  # It is divisible.
            _rescale(flow, spark, replace(rescaling, store=store), values, store, writers)
        # From here on no other driver goes on here: whoever records has the newest epoch.
        journal = Journal(os.path.join(location, JOURNAL_FOLDER), COORDINATOR)
        _start_ingests(spark, ingests, is_room_beside_nodes=free > wanted.count)
        plan = place()  # Again: a replay begins when its recording is complete.
        for raised in plan.raised:
            _LOG.warning("%s", raised)
        if store is not None:
            _describe_operators(location, describe_operators(plan, store))
        spec = _launch_spec(flow, location, plan, values, store, writers)
        cluster = Cluster(spark, spec, executors, journal)
    except BaseException:
        executors.stop()
        for ingest in ingests:
            ingest.stop()
        if journal is not None:
            journal.close()
        if chunks is not None:
            chunks.stop()
        if lock is not None:
            lock.release()
        raise

    @cache
    def refused() -> dict[str, dict[str, str]]:
        """Worked out when somebody asks for advice, or the query ends; it stays the same."""
        return refusals(flow, protections, lambda given: place(given=given))

    def measured(observed: Observed) -> Measurements:
        misses = values["keepAliveMisses"]
        return measure(flow.name, plan, protections.of, observed, misses=misses, refused=refused())

    return Query(
        flow,
        spark,
        location,
        plan,
        cluster,
        ingests,
        lock,
        chunks,
        measured,
        values,
        wanted,
        lacking,
    )


def _require_end(flow: Dataflow, ingests: list[Recorder]) -> None:
    """Raise `UnsupportedError` when nobody could say that what is available is worked off."""
    available = [ingest.name for ingest in ingests if ingest.is_available_now]
    endless = {ingest.name for ingest in ingests if ingest.is_unbounded}
    for step in flow.steps if available else ():
        is_log = any(kind in step.settings for kind in ("df", "path", "files"))
        is_unknown = not is_log or step.settings.get("speed") is not None
        if step.kind == "source" and (step.name in endless or is_unknown):
            raise UnsupportedError(
                f"source {available[0]} has trigger availableNow, so that the query ends when what "
                f"is there has been worked off; source {step.name} does not say how much that is. "
                "Give all streaming DataFrames availableNow, or none; beside it may be batch "
                "DataFrames and logs"
            )


def _require_divisible(
    flow: Dataflow, ingests: list[Recorder], checkpointed: Checkpointed | None
) -> None:
    """Raise `RescalingError` for dataflows whose instances cannot change."""
    if checkpointed is None:
        raise RescalingError("other numbers of instances need protection=Checkpointed(...)")
    for step in flow.steps:
        settings = step.settings
        if step.kind == "source" and "kafka" in settings:
            raise RescalingError(
                f"source {step.name} reads Kafka, whose partitions are bound to the instances that "
                "have begun with them; the number of instances stays as it is"
            )
        if step.kind == "source" and ("generator" in settings or settings["speed"] is not None):
            raise RescalingError(
                f"source {step.name} cannot be stopped at a cut: it is a generator or is replayed "
                "at a set speed; the number of instances stays as it is"
            )
    if flow.kafka_sinks:
        raise RescalingError(
            f"sink {next(iter(flow.kafka_sinks))} writes Kafka by a transaction per instance; the "
            "number of instances stays as it is"
        )
    for ingest in ingests:
        if ingest.has_ended:
            raise RescalingError(
                f"source {ingest.name} has ended: nothing more comes that other instances could "
                "work off"
            )


def _rescale(
    flow: Dataflow,
    spark: SparkSession,
    rescaling: Rescaling,
    values: dict[str, int],
    store: StoreSpec,
    writers: int,
) -> None:
    """Have the location go on with other numbers of instances."""
    location, former = rescaling.location, rescaling.former
    counters = _commit_counters(former)
    executors = Executors(spark.sparkContext, flow.name)  # The cluster ends their watch.
    executors.start()
    journal: Journal[JournalEntry] | None = None
    try:
        journal = Journal(os.path.join(location, JOURNAL_FOLDER), COORDINATOR)
        spec = _launch_spec(flow, location, former, values, store, writers)
        cluster = Cluster(spark, spec, executors, journal)
    except BaseException:
        executors.stop()
        if journal is not None:
            journal.close()
        raise
    rescaling.run(cluster, lambda: {s: counter.rows() for s, counter in counters.items()})


def _commit_counters(plan: Plan) -> dict[str, CommitCounter]:
    """Who counts the rows of each source stream whose log says how many there are."""
    return {
        stream: CommitCounter(spec.path, spec.partition, spec.partitions)
        for stream, spec in plan.sources.items()
        if isinstance(spec, LogSourceSpec) and spec.kind == "ingest" and spec.speed is None
    }


def _describe_operators(location: str, content: bytes) -> None:
    """What `holdfast inspect` goes by; the one before says the same, or is of an older version."""
    store = store_at(location)
    if put_or_read(store, OPERATORS_FILE, [content]) != content:
        store.delete(OPERATORS_FILE)
        store.put(OPERATORS_FILE, [content])


def _start_chunks(
    spark: SparkSession,
    location: str,
    wanted: EmbeddedStore,
    name: str,
    executors: Executors,
    values: dict[str, int],
) -> ChunkCluster:
    """Launch the data nodes; nodes that come up first ask them again until they answer."""
    chunks = ChunkCluster(
        spark,
        location,
        wanted,
        name=name,
        executors=executors,
        settings=replace(wanted.settings(), reach_timeout_ms=values["reachTimeoutMs"]),
        placement=wanted.placement(),
        ports=_ports(values),
    )
    chunks.start()
    try:
        is_up = chunks.wait_until_up(_DATA_NODES_UP_S)
    except BaseException:  # Somebody will not wait any longer.
        chunks.stop()
        raise
    if not is_up:
        waits = "; ".join(chunks.waits())
        _LOG.warning("not all data nodes came up within %s s; %s", _DATA_NODES_UP_S, waits)
    return chunks


def _launch_spec(
    flow: Dataflow,
    location: str,
    plan: Plan,
    values: dict[str, int],
    store: StoreSpec | None,
    writers: int,
) -> LaunchSpec:
    return LaunchSpec(
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
        values["niceness"],
    )


def _ports(values: dict[str, int]) -> Ports:
    low, high = values["portMin"], values["portMax"]
    if low >= high:
        raise OptionError(f"{PREFIX}portMin={low} is not below {PREFIX}portMax={high}")
    return Ports(low, high)


def _start_ingests(
    spark: SparkSession, ingests: list[Recorder], *, is_room_beside_nodes: bool
) -> None:
    """Begin. Recorded as a whole first: what is replayed at a set speed; and what is bounded, if
    nodes will leave Spark no slot to record it in.
    """
    for ingest in ingests:
        ingest.start(spark)
    first = [
        ingest
        for ingest in ingests
        if (ingest.is_paced and not ingest.is_streaming)
        or not (ingest.is_unbounded or is_room_beside_nodes)
    ]
    for ingest in first:
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
    """The session's settings: those of its start, and over them what `spark.conf.set` has said."""
    given = {**dict(spark.sparkContext.getConf().getAll()), **spark.conf.getAll}
    return {key: value for key, value in given.items() if key.startswith(PREFIX)}


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


def _check_hosts(plan: Plan, executors: Executors, wait_s: float) -> None:
    """Replicas belong on different machines; where there is one only, say so, or refuse.

    Args:
        wait_s: How long executors of a cluster may take to come up, if there must be two.
    """
    doubled = [node for node in plan.nodes if node.standby is not Standby.NONE]
    if any(node.is_strict for node in doubled):
        executors.wait_for_machines(2, wait_s)
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
        ingests: list[Recorder],
        lock: LocationLock | None,
        chunks: ChunkCluster | None,
        measured: Callable[[Observed], Measurements],
        values: dict[str, int],
        slots: Slots,
        lacking: Sequence[Shortcoming] = (),
    ) -> None:
        """Launch; use `Dataflow.start`."""
        self.slots = slots
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
        self._id = str(uuid.uuid5(uuid.NAMESPACE_URL, location_id(location)))
        self._run_id = str(uuid.uuid4())
        self._maker = ProgressMaker(plan, flow.name, self._id, self._run_id)
        self._committed = _commit_counters(plan)
        self._reporter = Reporter(self, location, cluster.epoch, values, cluster.done)
        cluster.start(self._on_end)
        self._reporter.start()
        if any(ingest.is_available_now for ingest in ingests):
            threading.Thread(target=self._end_with_available, daemon=True).start()

    # -- the names of Spark's own handle ------------------------------------------------------

    @property
    def name(self) -> str:
        """The dataflow's name."""
        return self._flow.name

    @property
    def id(self) -> str:
        """A UUID that stays the same whenever a query goes on at this checkpoint location."""
        return self._id

    @property
    def runId(self) -> str:
        """A UUID of this run alone."""
        return self._run_id

    @property
    def isActive(self) -> bool:
        """Whether it runs."""
        is_over = self._is_stopped or self._cluster.done.is_set()
        return not is_over and not self.has_lost_input

    @property
    def has_lost_input(self) -> bool:
        """Whether Spark can no longer write the rows of some source."""
        return any(ingest.error for ingest in self._ingests)

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
            if self.has_lost_input:
                break
            if deadline is not None and time.monotonic() > deadline:
                return False
        self.stop()
        error = self.exception()
        if error is not None:
            raise error
        return True

    def processAllAvailable(self) -> None:
        """Wait until everything that is there now has been worked off, as far as the sinks.

        What Spark can read of streaming DataFrames is read first. Rows that windows or a merge hold
        until event time moves on have been worked off. A bounded input is waited for to its end.

        Raises:
            QueryFailedError: The query failed meanwhile.
        """
        is_bounded = [not i.is_unbounded for i in self._ingests]
        others = [stream for stream in self._plan.sources if stream not in self._committed]
        if all(is_bounded) and (is_bounded or others):
            self.awaitTermination()
            return
        if others:
            raise UnsupportedError(
                f"processAllAvailable: {', '.join(others)} does not say how much there is"
            )
        for ingest in self._ingests:
            ingest.process_all_available()
        wait_until_drained(self._plan, self._cluster.reports, self._rows_committed(), self._lives)

    def _end_with_available(self) -> None:
        """Stop all nodes once what is available has been worked off.

        Their inputs have not ended, as a later run goes on behind that: windows stay open.
        """
        for ingest in self._ingests:
            ingest.wait()
        if not self.has_lost_input:
            reports, rows = self._cluster.reports, self._rows_committed()
            wait_until_drained(self._plan, reports, rows, lambda: self.isActive)
            self._cluster.stop()

    def _lives(self) -> bool:
        """Whether there is something to wait for. Raises `QueryFailedError` when it failed."""
        error = self.exception()
        if error is not None:
            raise error
        return self.isActive

    def explain(self, extended: bool = False) -> None:
        """Print how the dataflow is placed; `extended`: every stream too."""
        print(explained(self._flow, self._plan, is_extended=extended))

    def addListener(self, listener: Any) -> None:
        """Tell it of this query; `holdfast.queries.addListener` tells it of all."""
        self._reporter.listeners.add(listener)

    def removeListener(self, listener: Any) -> None:
        """Tell it no more."""
        self._reporter.listeners.remove(listener)

    def stop(self) -> None:
        """Stop all nodes; returns when nothing of the query runs any more."""
        with self._stop_lock:
            if not self._is_stopped:
                self._is_stopped = True
                self._cluster.stop()
        self._reporter.wait()

    def _on_end(self) -> None:
        """Nothing runs any more: Spark may stop writing, and the location is free."""
        try:
            self.measurements().save(self._location)
        except Exception as error:  # Whatever it is, the location must become free.
            _LOG.warning("no measurements left in %s: %s", self._location, error)
        for ingest in self._ingests:
            ingest.stop()
        self._reporter.finish()
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
            "isDataAvailable": any(
                report.statistics.get("pending_tuples", 0)
                for report in self._cluster.reports.values()
            ),
            "isTriggerActive": self.isActive,
            "nodes": {
                node: {
                    "state": states[node],
                    "pid": report.pid or None,
                    "host": report.host,
                    **report.statistics,
                    "replicas": self._replicas(node),
                }
                for node, report in self._cluster.reports.items()
            },
            "notes": [
                *self._waiting_notes(),
                *map(held_up_note, self._cluster.held_up()),
                *(str(each) for each in self._lacking),
                *self._plan.notes,
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
        """What nodes wait for outside, e.g. a broker, and data nodes."""
        of_nodes = [text for report in self._cluster.reports.values() for text in report.waits]
        return of_nodes if self._chunks is None else [*of_nodes, *self._chunks.waits()]

    def _placement_notes(self) -> list[str]:
        """Replicas that one machine's failure would end both, or that wait to avoid that."""
        notes: list[str] = []
        for plan in self._plan.nodes:
            hosts = [r["host"] for r in self._replicas(plan.node) if r["host"]]
            if len(hosts) > len(set(hosts)):
                notes.append(f"both replicas of {plan.node} run on {hosts[0]}")
            for replica, _ in self._cluster.replicas(plan.node):
                if replica.is_waiting:
                    waits_for_room = plan.is_strict and not replica.is_failing
                    why = "a machine of its own" if waits_for_room else "its turn"
                    notes.append(f"the secondary of {plan.node} waits for {why}")
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
                "role": replica.role.value,
                "state": replica.state.value,
                "pid": report.pid or None,
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
            while self.nodes[node] == pid:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"the secondary of {node} has not taken over")
                self._cluster.hand_over(node, pid)
                time.sleep(0.005)  # A handover pauses the output for some 20 ms.

    @property
    def lastProgress(self) -> Progress:
        """Counters, rates, latencies and recoveries now."""
        cluster = self._cluster
        return self._maker.make(
            Heard(
                dict(cluster.reports),
                list(cluster.checkpoints),
                list(cluster.recoveries),
                list(cluster.failures),
                list(cluster.gaps),
                list(cluster.damages),
                self.refused(),
                self._rows_committed(),
                dict(cluster.begun),
                cluster.held_up(),
            )
        )

    def _rows_committed(self) -> dict[str, int | None]:
        """Per stream of a log that Spark writes, how many rows that holds."""
        return {stream: counter.rows() for stream, counter in self._committed.items()}

    @property
    def recentProgress(self) -> list[Progress]:
        """The last reports, one every `spark.holdfast.progressIntervalMs`, oldest first."""
        return list(self._reporter.recent)

    # -- what Holdfast adds -------------------------------------------------------------------

    def latency(self) -> LatencyHistogram:
        """Latencies from a tuple's creation to its sink, since the present nodes started."""
        return latency_of(self._cluster.reports.values())

    @property
    def nodes(self) -> dict[str, int | None]:
        """The process id of every node; None: it has none yet. `pid` waits for one."""
        return {node: report.pid or None for node, report in self._cluster.reports.items()}

    def pid(self, node: str) -> int:
        """The process id of a node, e.g. `counts[0]`; waits for one that is coming up.

        Raises:
            QueryFailedError: The query has ended, and the node never came up.
        """
        while (pid := self.nodes[node]) is None:
            if not self.isActive:
                raise QueryFailedError(f"{node} never had a process")
            time.sleep(0.01)  # A process comes up in some 50 ms.
        return pid

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
        return load(self._spark, path)

    def verify(self, sink: str | None = None, *, source: str = "recorded") -> Verification:
        """Compare a sink with the batch twin over the recorded input; after the query has ended.

        Args:
            sink: Its name, if there are several.
            source: `original`: also compare what was recorded with what the user gave, where that
                can be read again: batch DataFrames, and streaming ones without state of their own.

        Raises:
            OptionError: `source` is neither `recorded` nor `original`.
            QueryFailedError: What the user gave cannot be read again, e.g. files are gone.
        """
        name = self._flow.sink_name(sink)
        return verify_sink(self._flow, self._spark, name, self._location, source)
