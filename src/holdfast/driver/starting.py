"""Brings a query up: everything is checked first, then begins in an order that can be undone."""

from __future__ import annotations

import logging
import os
from contextlib import ExitStack
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

from holdfast.api.protections import Protection, Protections
from holdfast.api.steps import FromFiles, FromFrame
from holdfast.core.coordinator.journal_entries import JournalEntry
from holdfast.core.coordinator.limits import CoordinatorLimits
from holdfast.driver.advice import refusals
from holdfast.driver.checks import check_hosts, check_session, require_divisible, require_end
from holdfast.driver.description import claim, describe
from holdfast.driver.draining import commit_counters
from holdfast.driver.inspection import FILE_NAME as OPERATORS_FILE
from holdfast.driver.inspection import describe_operators
from holdfast.driver.kafka import check_topics
from holdfast.driver.measurements import Measurements, Observed, measure
from holdfast.driver.options import read_options
from holdfast.driver.query import Query, Running
from holdfast.driver.request import Request, ports_of, session_options
from holdfast.driver.rescaling import Rescaling, described, draining_plan, settle
from holdfast.driver.slots import require_slots, slots_of
from holdfast.errors import QueryFailedError
from holdfast.planning.plan import Plan
from holdfast.shell.sources.file_recorder import FileRecorder
from holdfast.shell.spark.chunk_cluster import ChunkCluster
from holdfast.shell.spark.executors import Executors
from holdfast.shell.spark.ingest import FrameSource, Ingest
from holdfast.shell.spark.journal import COORDINATOR, JOURNAL_FOLDER, Journal
from holdfast.shell.spark.launch import Cluster
from holdfast.shell.spark.launches import LaunchSpec
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

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import SparkSession

    from holdfast.api.embedded_store import EmbeddedStore
    from holdfast.api.graph import Graph
    from holdfast.api.steps import Step
    from holdfast.shell.sources.recorder import Recorder

_LOG = logging.getLogger(__name__)
_DATA_NODES_UP_S = 30.0


def start(
    flow: Graph,
    spark: SparkSession,
    location: str,
    protection: Protection | Mapping[str, Protection] | None,
    parallelism: int | dict[str, int],
    options: dict[str, str],
) -> Query:
    """Plan the dataflow, check that Spark can hold it, and launch it; see `Dataflow.start`."""
    protections = Protections(protection)
    protections.check(flow)
    values = read_options({**session_options(spark), **options})
    lacking = check_session(spark, is_insecure_allowed=bool(values["allowInsecureCluster"]))
    ports_of(values)  # Raises before anything has begun.
    mode = mode_of(values["locationMode"])
    location = local_path(location)
    request = Request(flow, spark, location, protections, parallelism, values)
    recorders = [made for step in flow.steps if (made := _recorder(step, location)) is not None]
    require_end(flow, recorders)
    wanted = slots_of(request.place(), recorders, request.embedded_store())
    free = require_slots(spark.sparkContext, wanted, request.wait_s)
    executors = Executors(spark.sparkContext, flow.name)
    check_hosts(request.place(), executors, request.wait_s)
    check_topics(flow)
    with ExitStack() as undo:
        lock: LocationLock | None = None
        if not is_remote(location):  # Elsewhere the journal keeps two drivers apart.
            open_location(location, mode)
            lock = LocationLock(location)
            undo.callback(lock.release)
        is_room = free > wanted.count
        plan, cluster, chunks = _launched(request, recorders, executors, undo, is_room=is_room)
        measured = _measuring(request, plan)
        running = Running(
            flow, spark, location, plan, cluster, recorders, lock, chunks, measured, values
        )
        undo.pop_all()  # From here on the query stops what runs.
    return Query(running, wanted, lacking)


def _recorder(step: Step, location: str) -> Recorder | None:
    """Who makes the rows of a source part of an ingest log, if somebody has to."""
    match step.operation:
        case FromFrame() as frame:
            source = FrameSource(
                frame.df,
                frame.time,
                frame.delay_us,
                frame.ahead_us,
                frame.has_watermark,
                frame.partitions,
                frame.speed is not None,
                frame.trigger,
            )
            return Ingest(step.name, source, location)
        case FromFiles(files=files):
            return FileRecorder(step.name, files, location)
        case _:
            return None


def _launched(
    request: Request,
    recorders: list[Recorder],
    executors: Executors,
    undo: ExitStack,
    *,
    is_room: bool,
) -> tuple[Plan, Cluster, ChunkCluster | None]:
    """Begin, in the order in which one needs the other.

    Args:
        request: What to run.
        recorders: Of its sources.
        executors: Spark's, watched by nobody yet.
        undo: Gets how each thing stops that has begun.
        is_room: Whether nodes leave Spark a slot to record in.
    """
    location, spark, values = request.location, request.spark, request.values
    undo.callback(executors.stop)
    executors.start()
    location_id(location)  # There is one before there is a dataflow.
    rescaling = _claimed(request, recorders)
    stored, embedded = request.protections.stored, request.embedded_store()
    store: StoreSpec | None = None
    chunks: ChunkCluster | None = None
    if embedded is not None:
        chunks = _start_chunks(request, embedded, executors)
        undo.callback(chunks.stop)
        store = chunks.spec
    elif stored is not None:
        store = stored.store_spec(location)
    if isinstance(store, FolderStoreSpec):
        open_location(store.path, mode_of(values["locationMode"]))
    if rescaling is not None:
        assert store is not None  # It is divisible.
        _rescale(request, replace(rescaling, store=store), store)
    # From here on no other driver goes on here: whoever records has the newest epoch.
    journal: Journal[JournalEntry] = Journal(os.path.join(location, JOURNAL_FOLDER), COORDINATOR)
    undo.callback(journal.close)
    for recorder in recorders:
        undo.callback(recorder.stop)
    _start_recorders(spark, recorders, is_room_beside_nodes=is_room)
    plan = request.place()  # Again: a replay begins when its recording is complete.
    for raised in plan.raised:
        _LOG.warning("%s", raised)
    if store is not None:
        _describe_operators(location, describe_operators(plan, store))
    return plan, Cluster(spark, _launch_spec(request, plan, store), executors, journal), chunks


def _claimed(request: Request, recorders: list[Recorder]) -> Rescaling | None:
    """Make the location this dataflow's; how it gets there, if it had other numbers of instances.

    Raises:
        DataflowChangedError: It is another dataflow's.
        RescalingError: It has other numbers of instances, and they cannot change.
    """
    location, protections = request.location, request.protections
    text = describe(request.flow, request.place(), protections)
    before = described(location)
    former = settle(before, text)
    if former is None:
        claim(location, text, before)
        return None
    require_divisible(request.flow, recorders, protections.stored)
    timeout_s = request.values["drainTimeoutMs"] / 1000
    rescaling = Rescaling(
        draining_plan(request.place(former)), request.place(), location, timeout_s
    )
    rescaling.require_possible()
    slots = slots_of(request.place(former), [], request.embedded_store())
    require_slots(request.spark.sparkContext, slots, request.wait_s)
    return rescaling


def _measuring(request: Request, plan: Plan) -> Callable[[Observed], Measurements]:
    """How what was observed becomes measurements."""

    @cache
    def refused() -> dict[str, dict[str, str]]:
        """Worked out when somebody asks for advice, or the query ends; it stays the same."""
        protections = request.protections
        return refusals(request.flow, protections, lambda given: request.place(given=given))

    def measured(observed: Observed) -> Measurements:
        return measure(
            request.flow.name,
            plan,
            request.protections.of,
            observed,
            misses=request.values["keepAliveMisses"],
            refused=refused(),
        )

    return measured


def _rescale(request: Request, rescaling: Rescaling, store: StoreSpec) -> None:
    """Have the location go on with other numbers of instances."""
    location, former = rescaling.location, rescaling.former
    counters = commit_counters(former)
    executors = Executors(request.spark.sparkContext, request.flow.name)  # The cluster ends them.
    with ExitStack() as undo:
        undo.callback(executors.stop)
        executors.start()
        journal: Journal[JournalEntry] = Journal(
            os.path.join(location, JOURNAL_FOLDER), COORDINATOR
        )
        undo.callback(journal.close)
        spec = _launch_spec(request, former, store)
        cluster = Cluster(request.spark, spec, executors, journal)
        undo.pop_all()
    rescaling.run(cluster, lambda: {s: counter.rows() for s, counter in counters.items()})


def _describe_operators(location: str, content: bytes) -> None:
    """What `holdfast inspect` goes by; the one before says the same, or is of an older version."""
    store = store_at(location)
    if put_or_read(store, OPERATORS_FILE, [content]) != content:
        store.delete(OPERATORS_FILE)
        store.put(OPERATORS_FILE, [content])


def _start_chunks(request: Request, wanted: EmbeddedStore, executors: Executors) -> ChunkCluster:
    """Launch the data nodes; nodes that come up first ask them again until they answer."""
    chunks = ChunkCluster(
        request.spark,
        request.location,
        wanted,
        name=request.flow.name,
        executors=executors,
        settings=replace(wanted.settings(), reach_timeout_ms=request.values["reachTimeoutMs"]),
        placement=wanted.placement(),
        ports=ports_of(request.values),
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


def _launch_spec(request: Request, plan: Plan, store: StoreSpec | None) -> LaunchSpec:
    values, checkpointed = request.values, request.protections.checkpointed
    return LaunchSpec(
        request.flow.name,
        plan.nodes,
        plan.sources,
        plan.sink_paths,
        request.location,
        CoordinatorLimits(
            keep_alive_ms=values["keepAliveMs"],
            misses=values["keepAliveMisses"],
            launch_timeout_ms=values["launchTimeoutMs"],
            failures_max=values["failuresMax"],
            failure_window_ms=values["failureWindowMs"],
            writers_max=0 if checkpointed is None else checkpointed.writers or 0,
        ),
        store,
        ports_of(values),
        plan.outside_sinks,
        values["niceness"],
    )


def _start_recorders(
    spark: SparkSession, recorders: list[Recorder], *, is_room_beside_nodes: bool
) -> None:
    """Begin. Recorded as a whole first: what is replayed at a set speed; and what is bounded, if
    nodes will leave Spark no slot to record it in.
    """
    for recorder in recorders:
        recorder.start(spark)
    first = [
        recorder
        for recorder in recorders
        if (recorder.is_paced and not recorder.is_streaming)
        or not (recorder.is_unbounded or is_room_beside_nodes)
    ]
    for recorder in first:
        recorder.wait()
        if recorder.error is not None:
            raise QueryFailedError(recorder.error)
