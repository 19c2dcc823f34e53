"""Brings a query up: everything is checked first, then begins in an order that can be undone."""

from __future__ import annotations

import logging
import os
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

from holdfast.api.protections import Protection, Protections, Uncoordinated
from holdfast.api.replaced_rows import replaced_by
from holdfast.api.steps import FromFiles, FromFrame
from holdfast.core.coordinator.journal_entries import JournalEntry
from holdfast.core.coordinator.limits import CoordinatorLimits
from holdfast.driver import retention as kept_logs
from holdfast.driver.advice import refusals
from holdfast.driver.changes import Changes, Comparison
from holdfast.driver.checks import check_hosts, check_session, require_cut, require_end
from holdfast.driver.description import claim, describe, described, instances_in, settle
from holdfast.driver.draining import commit_counters
from holdfast.driver.former_plan import former_plan
from holdfast.driver.frame_recorders import as_read, recorder_of_frame
from holdfast.driver.inspection import FILE_NAME as OPERATORS_FILE
from holdfast.driver.inspection import describe_operators, operators_at, operators_of
from holdfast.driver.kafka import check_topics
from holdfast.driver.measurements import Measurements, Observed, measure
from holdfast.driver.options import read_options
from holdfast.driver.own_output import require_other_places
from holdfast.driver.query import Query, Running
from holdfast.driver.request import Request, ports_of, session_options
from holdfast.driver.rescaling import Rescaling, draining_plan
from holdfast.driver.scans import SETTING as READ_FILES_IN_NODES
from holdfast.driver.sink_keys import say_sink_keys
from holdfast.driver.slots import Slots, require_slots, slots_of
from holdfast.driver.standby import StandbyDriver
from holdfast.driver.user_files import recorder_of
from holdfast.errors import HoldfastError, QueryFailedError, RescalingError
from holdfast.planning.division import Moved
from holdfast.planning.guarantees import recoveries_of
from holdfast.planning.plan import Plan
from holdfast.planning.together import recovering_together
from holdfast.shell.spark.chunk_cluster import ChunkCluster
from holdfast.shell.spark.driver_lease import DriverLease, lease_ms_at
from holdfast.shell.spark.executors import Executors
from holdfast.shell.spark.journal import COORDINATOR, JOURNAL_FOLDER, Journal, registry_at
from holdfast.shell.spark.launch import Cluster
from holdfast.shell.spark.launches import LaunchSpec
from holdfast.shell.storage.errors import JournalSuperseded
from holdfast.shell.storage.lock import LocationLock
from holdfast.shell.storage.places import (
    is_remote,
    local_path,
    location_id,
    put_over,
    store_at,
)
from holdfast.shell.storage.rights import mode_of, open_location
from holdfast.shell.stores.base import StoreSpec
from holdfast.shell.stores.embedded_place import mount, place_in
from holdfast.shell.stores.folder import FolderStoreSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import SparkSession

    from holdfast.api.embedded_store import EmbeddedStore
    from holdfast.api.graph import Graph
    from holdfast.api.steps import Step
    from holdfast.core.recovery.cost_model import Together
    from holdfast.driver.changes import Wish
    from holdfast.driver.security import Shortcoming
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
    *,
    is_standby: bool = False,
    retention: str | Mapping[str, str] | None = None,
    state: Mapping[str, Wish] | None = None,
) -> Query:
    """Plan the dataflow, check that Spark can hold it, and launch it; see `Dataflow.start`."""
    asked = _asked(flow, spark, location, protection, parallelism, options)
    lacking, location = asked.checked(), asked.location

    def request() -> Request:
        return asked.request(retention, state)

    if not is_standby:
        return _begin(_checked(request(), lacking))
    open_location(location, mode_of(asked.values["locationMode"]))
    standby = StandbyDriver(location, lease_ms_at(location, asked.values["driverLeaseMs"]))
    try:
        while True:
            checked = _checked(request(), lacking)
            checked.executors.start()
            with ExitStack() as undo:
                undo.callback(checked.executors.stop)
                standby.wait()
                undo.pop_all()
            # What others have done meanwhile counts: whoever leads is asked for anew.
            ready = replace(checked, request=request(), lock=standby.lock)
            try:
                return _begin(ready)
            except JournalSuperseded:
                standby.lost()
    except BaseException:
        standby.close()
        raise


@dataclass(frozen=True, slots=True)
class _Asked:
    """What a user has given, as `Dataflow.start` takes it.

    Attributes:
        flow: The dataflow.
        spark: The session.
        location: The checkpoint location.
        protection: What a failure may cost.
        parallelism: Instances of units.
        conf: What Spark was told when it began.
        values: The options.
    """

    flow: Graph
    spark: SparkSession
    location: str
    protection: Protection | Mapping[str, Protection] | None
    parallelism: int | dict[str, int]
    conf: dict[str, str]
    values: dict[str, int]

    def checked(self) -> list[Shortcoming]:
        """How the session is less secure than it could be. Raises what excludes a start."""
        Protections(self.protection).check(self.flow)
        values = self.values
        is_allowed = bool(values["allowInsecureCluster"])
        master = self.spark.sparkContext.master
        lacking = check_session(master, self.conf, is_insecure_allowed=is_allowed)
        ports_of(values)  # Raises before anything has begun.
        mode_of(values["locationMode"])
        return lacking

    def request(
        self,
        retention: str | Mapping[str, str] | None = None,
        state: Mapping[str, Wish] | None = None,
    ) -> Request:
        """What is to run, as the location has it now."""
        values = self.values
        run = as_read(self.flow, self.location, is_allowed=bool(values[READ_FILES_IN_NODES]))
        return Request(
            run,
            self.spark,
            self.location,
            Protections(self.protection),
            self.parallelism,
            values,
            kept_logs.wanted(self.flow, retention),
            state or {},
        )


def _asked(
    flow: Graph,
    spark: SparkSession,
    location: str,
    protection: Protection | Mapping[str, Protection] | None,
    parallelism: int | dict[str, int],
    options: dict[str, str],
) -> _Asked:
    """What a user has given, and the session's settings. Raises `OptionError`.

    They are read once, as each takes some calls of the JVM. `getConf` would copy all of them first.
    """
    conf = dict(spark.sparkContext._conf.getAll())
    values = read_options({**session_options(conf, spark.conf.getAll), **options})
    return _Asked(flow, spark, local_path(location), protection, parallelism, conf, values)


def changes(
    flow: Graph,
    spark: SparkSession,
    location: str,
    protection: Protection | Mapping[str, Protection] | None,
    parallelism: int | dict[str, int],
    options: dict[str, str],
    state: Mapping[str, Wish] | None,
) -> Changes:
    """What would happen to a location; see `Dataflow.changes`."""
    asked = _asked(flow, spark, location, protection, parallelism, options)
    Protections(protection).check(flow)
    request = asked.request(state=state)
    plan = request.place()
    text = describe(request.flow, plan, request.protections)
    before = described(asked.location)
    return _changes(request, plan, before or text, text)


def drain(
    flow: Graph,
    spark: SparkSession,
    location: str,
    protection: Protection | Mapping[str, Protection] | None,
    parallelism: int | dict[str, int],
    options: dict[str, str],
) -> None:
    """Leave a location at a cut; see `Dataflow.drain`."""
    asked = _asked(flow, spark, location, protection, parallelism, options)
    asked.checked()
    request = asked.request()
    recorders = _recorders(request)
    before = described(request.location)
    if before is None:
        raise RescalingError(
            f"{location}: no query has run there, so that nothing is to be drained"
        )
    plan = request.place()
    claim(request.location, describe(request.flow, plan, request.protections), before)
    require_cut(request.flow, recorders, request.protections)
    timeout_s = request.values["drainTimeoutMs"] / 1000
    rescaling = Rescaling(draining_plan(plan), plan, request.location, timeout_s, is_to_cut=True)
    rescaling.require_possible()
    slots = slots_of(plan, [], request.embedded_store())
    require_slots(spark.sparkContext, slots, request.wait_s)
    executors = Executors(spark.sparkContext, flow.name)
    with ExitStack() as undo:
        if not is_remote(request.location):
            open_location(request.location, mode_of(request.values["locationMode"]))
            undo.callback(LocationLock(request.location).release)
        undo.callback(executors.stop)
        executors.start()
        ready = _Checked(request, executors, slots, is_room=False, lacking=())
        _, store = _store(ready, undo)
        if store is not None:
            _describe_operators(request.location, describe_operators(plan, store))
        _rescale(request, replace(rescaling, store=store), store)


def _changes(request: Request, plan: Plan, before: str, text: str) -> Changes:
    former, wanted = operators_at(request.location), operators_of(plan)
    comparison = Comparison(before, text, former, wanted, request.wishes)
    return comparison.changes(is_at_cut=registry_at(request.location).is_at_cut)


def _changed(request: Request, plan: Plan, before: str, text: str) -> Rescaling:
    """How a location goes on with a changed dataflow. Raises `DataflowChangedError` if not."""
    changes = _changes(request, plan, before, text)
    if changes.refused:
        claim(request.location, text, before, changes.refused)
    moved = Moved(changes.units, changes.kept)
    former = former_plan(plan, instances_in(before), operators_at(request.location))
    rescaling = Rescaling(former, plan, request.location, 0, moved=moved)
    rescaling.require_possible()
    return rescaling


@dataclass(frozen=True, slots=True)
class _Checked:
    """A query that may begin.

    Attributes:
        request: What to run.
        executors: Spark's.
        wanted: The slots that it holds.
        is_room: Whether nodes leave Spark a slot to record in.
        lacking: How the session is less secure than it could be.
        lock: The location's, if it is held already.
    """

    request: Request
    executors: Executors
    wanted: Slots
    is_room: bool
    lacking: Sequence[Shortcoming]
    lock: LocationLock | None = None


def _recorders(request: Request) -> list[Recorder]:
    made = (_recorder(step, request) for step in request.flow.steps)
    return [recorder for recorder in made if recorder is not None]


def _checked(request: Request, lacking: Sequence[Shortcoming]) -> _Checked:
    """Wait for slots and machines. Raises what keeps the query from beginning."""
    spark, recorders = request.spark, _recorders(request)
    require_end(request.flow, recorders)
    require_other_places(request.flow)
    slots = slots_of(request.place(), recorders, request.embedded_store())
    free = require_slots(spark.sparkContext, slots, request.wait_s)
    executors = Executors(spark.sparkContext, request.flow.name)
    check_hosts(request.place(), executors, request.wait_s)
    check_topics(request.flow)
    return _Checked(request, executors, slots, free > slots.count, lacking)


def _begin(ready: _Checked) -> Query:
    """Launch what was checked."""
    request, lock = ready.request, ready.lock
    recorders = _recorders(request)
    with ExitStack() as undo:
        if lock is None and not is_remote(request.location):
            # Elsewhere the journal keeps two drivers apart.
            open_location(request.location, mode_of(request.values["locationMode"]))
            lock = LocationLock(request.location)
            undo.callback(lock.release)
        plan, cluster, chunks = _launched(ready, recorders, undo)
        if lock is not None:
            lock.note(cluster.epoch)
        running = Running(
            request.flow,
            request.spark,
            request.location,
            plan,
            cluster,
            recorders,
            lock,
            chunks,
            _measuring(request, plan),
            request.values,
            request.retentions,
        )
        undo.pop_all()  # From here on the query stops what runs.
    return Query(running, ready.wanted, ready.lacking)


def _recorder(step: Step, request: Request) -> Recorder | None:
    """Who makes the rows of a source part of an ingest log, if somebody has to."""
    match step.operation:
        case FromFrame():
            is_allowed = bool(request.values[READ_FILES_IN_NODES])
            return recorder_of_frame(step, request.flow, request.location, is_allowed=is_allowed)
        case FromFiles(files=files):
            return recorder_of(step.name, files, request.location)
        case _:
            return None


def _launched(
    ready: _Checked, recorders: list[Recorder], undo: ExitStack
) -> tuple[Plan, Cluster, ChunkCluster | None]:
    """Begin, in the order in which one needs the other.

    Args:
        ready: What to run.
        recorders: Of its sources.
        undo: Gets how each thing stops that has begun.
    """
    request, executors = ready.request, ready.executors
    location, spark = request.location, request.spark
    undo.callback(executors.stop)
    executors.start()
    location_id(location)  # There is one before there is a dataflow.
    rescaling = _claimed(request, recorders)
    chunks: ChunkCluster | None = None
    store: StoreSpec | None = None
    if rescaling is not None:
        chunks, store = _store(ready, undo)
        _rescale(request, replace(rescaling, store=store), store)
    # From here on no other driver goes on here: whoever records, or runs a chunk store, has the
    # newest epoch.
    journal, lease = _journal(request, undo)
    if rescaling is None:
        chunks, store = _store(ready, undo)
    for recorder in recorders:
        undo.callback(recorder.stop)
    _start_recorders(spark, recorders, is_room_beside_nodes=ready.is_room)
    plan = request.place()  # Again: a replay begins when its recording is complete.
    for recovery in recoveries_of(plan.nodes):
        _LOG.info("%s", recovery)
    for raised in plan.raised:
        _LOG.warning("%s", raised)
    if store is not None:
        _describe_operators(location, describe_operators(plan, store))
    flow = request.flow
    logs = {name: step for name, step in flow.sinks.items() if name not in flow.outside_sinks}
    say_sink_keys(location, {name: replaced_by(step) for name, step in logs.items()})
    spec = _launch_spec(request, plan, store)
    return plan, Cluster(spark, spec, executors, journal, lease.end), chunks


def _journal(request: Request, undo: ExitStack) -> tuple[Journal[JournalEntry], DriverLease]:
    """Begin an epoch, and keep its lease. Raises `JournalSuperseded`."""
    location = request.location
    journal: Journal[JournalEntry] = Journal(os.path.join(location, JOURNAL_FOLDER), COORDINATOR)
    undo.callback(journal.close)
    lease = DriverLease(journal, lease_ms_at(location, request.values["driverLeaseMs"]))
    undo.callback(lease.stop)
    return journal, lease


def _store(ready: _Checked, undo: ExitStack) -> tuple[ChunkCluster | None, StoreSpec | None]:
    """Where checkpoints are kept, if they are; an embedded store is started."""
    request = ready.request
    stored, embedded = request.protections.stored, request.embedded_store()
    if embedded is not None:
        chunks = _start_chunks(request, embedded, ready.executors)
        undo.callback(chunks.stop)
        place = place_in(location_id(request.location))
        mount(place, chunks.spec)
        undo.callback(mount, place, None)
        return chunks, chunks.spec
    store = None if stored is None else stored.store_spec(request.location)
    if isinstance(store, FolderStoreSpec):
        open_location(store.path, mode_of(request.values["locationMode"]))
    return None, store


def _claimed(request: Request, recorders: list[Recorder]) -> Rescaling | None:
    """Make the location this dataflow's; how it gets there, if it had other numbers of instances.

    Raises:
        DataflowChangedError: It is another dataflow's.
        RescalingError: It has other numbers of instances, and they cannot change.
    """
    location, protections, plan = request.location, request.protections, request.place()
    text = describe(request.flow, plan, protections)
    before = described(location)
    former = settle(before, text)
    if former is None:
        if before is not None and before != text:
            return _changed(request, plan, before, text)
        claim(location, text, before)
        return None
    require_cut(request.flow, recorders, protections)
    timeout_s = request.values["drainTimeoutMs"] / 1000
    placed = request.place(former)
    rescaling = Rescaling(draining_plan(placed), plan, location, timeout_s)
    rescaling.require_possible()
    slots = slots_of(placed, [], request.embedded_store())
    require_slots(request.spark.sparkContext, slots, request.wait_s)
    return rescaling


def _measuring(request: Request, plan: Plan) -> Callable[[Observed], Measurements]:
    """How what was observed becomes measurements."""

    @cache
    def refused() -> dict[str, dict[str, str]]:
        """Worked out when somebody asks for advice, or the query ends; it stays the same."""
        protections = request.protections
        return refusals(request.flow, protections, lambda given: request.place(given=given))

    @cache
    def together() -> Mapping[str, Together]:
        """The same; empty if no unit may have such a protection."""
        try:
            return recovering_together(request.place(given=Protections(Uncoordinated())).nodes)
        except HoldfastError:
            return {}

    def measured(observed: Observed) -> Measurements:
        return measure(
            request.flow.name,
            plan,
            request.protections.of,
            observed,
            misses=request.values["keepAliveMisses"],
            refused=refused(),
            together=together(),
        )

    return measured


def _rescale(request: Request, rescaling: Rescaling, store: StoreSpec | None) -> None:
    """Have the location go on with other numbers of instances, or a changed dataflow."""
    if rescaling.moved is not None:
        rescaling.go_on(describe(request.flow, request.place(), request.protections))
        return
    former = rescaling.former
    counters = commit_counters(former)
    executors = Executors(request.spark.sparkContext, request.flow.name)  # The cluster ends them.
    with ExitStack() as undo:
        undo.callback(executors.stop)
        executors.start()
        journal, lease = _journal(request, undo)
        spec = _launch_spec(request, former, store)
        # The query goes on afterwards: this is nobody's last word.
        cluster = Cluster(request.spark, spec, executors, journal, lambda _: lease.stop())
        undo.pop_all()
    rescaling.run(cluster, lambda: {s: counter.rows() for s, counter in counters.items()})


def _describe_operators(location: str, content: bytes) -> None:
    """What `holdfast inspect` goes by; the one before says the same, or is of an older version."""
    put_over(store_at(location), OPERATORS_FILE, content)


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
        request.retentions.segments(plan),
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
