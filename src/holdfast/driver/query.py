"""A running dataflow: the handle that users of Structured Streaming know."""

from __future__ import annotations

import logging
import os
import threading
import time
import uuid
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from holdfast.core.coordinator.journal_entries import Ending
from holdfast.core.haunit import told
from holdfast.core.haunit.plan import Standby
from holdfast.core.model.changes import CHANGE_COLUMN
from holdfast.core.model.ids import BEGINNING_US, NodeId
from holdfast.core.model.shown_rows import together
from holdfast.driver.advice import Advice, Objectives
from holdfast.driver.advice import advise as give_advice
from holdfast.driver.description import explained
from holdfast.driver.draining import commit_counters, wait_until_drained
from holdfast.driver.feed_check import check_feed
from holdfast.driver.measurements import Measurements, Observed
from holdfast.driver.newest import newest_by as newest
from holdfast.driver.newest import table_of
from holdfast.driver.progress import (
    Heard,
    Progress,
    ProgressMaker,
    durable_rows,
    held_up_note,
    latency_of,
)
from holdfast.driver.readable_sinks import ReadableSink, wait_until_published
from holdfast.driver.reporter import Reporter
from holdfast.driver.requests import RequestDesk
from holdfast.driver.retention import Retaining
from holdfast.driver.showing import plan_of
from holdfast.driver.verification import Verification
from holdfast.driver.verification import verify as verify_sink
from holdfast.errors import OptionError, QueryFailedError, UnsupportedError
from holdfast.shell.spark.data_source import load
from holdfast.shell.spark.small_logs import has_begun, has_ended, load_now, nothing_of
from holdfast.shell.spark.web_ui import lead, view_path
from holdfast.shell.storage.places import location_id
from holdfast.shell.telemetry import LatencyHistogram
from holdfast.view.notebook import show
from holdfast.view.serving import PORT, View, serve
from holdfast.view.watching import OwnQuery

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from holdfast.api.graph import Graph
    from holdfast.driver.retention import Retentions
    from holdfast.driver.security import Shortcoming
    from holdfast.driver.slots import Slots
    from holdfast.planning.plan import Plan
    from holdfast.shell.sources.recorder import Recorder
    from holdfast.shell.spark.chunk_cluster import ChunkCluster
    from holdfast.shell.spark.launch import Cluster
    from holdfast.shell.storage.lock import LocationLock
    from holdfast.view.notebook import Card

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Running:
    """What belongs to a query.

    Attributes:
        flow: The dataflow.
        spark: The session.
        location: The checkpoint location.
        plan: The nodes.
        cluster: Runs them.
        recorders: Make what the sources give part of logs.
        lock: Keeps other drivers of this machine away; None: the location is elsewhere.
        chunks: The chunk store, if the query runs one.
        measured: Makes measurements of what was observed.
        values: The options.
        retentions: How much is kept of each log.
    """

    flow: Graph
    spark: SparkSession
    location: str
    plan: Plan
    cluster: Cluster
    recorders: list[Recorder]
    lock: LocationLock | None
    chunks: ChunkCluster | None
    measured: Callable[[Observed], Measurements]
    values: dict[str, int]
    retentions: Retentions


class Query:
    """A running dataflow."""

    def __init__(self, running: Running, slots: Slots, lacking: Sequence[Shortcoming] = ()) -> None:
        """Launch; use `Dataflow.start`."""
        self.slots = slots
        self._lacking = lacking
        self._running = running
        self._flow, self._plan, self._cluster = running.flow, running.plan, running.cluster
        self._location, self._recorders = running.location, running.recorders
        self._stop_lock = threading.Lock()
        self._is_stopped = False
        self._id = str(uuid.uuid5(uuid.NAMESPACE_URL, location_id(running.location)))
        self._run_id = str(uuid.uuid4())
        self._maker = ProgressMaker(running.plan, running.flow.name, self._id, self._run_id)
        self._committed = commit_counters(running.plan)
        cluster = running.cluster
        self._shown_plan = plan_of(running.flow, running.plan, running.values)
        self._reporter = Reporter(
            self,
            running.location,
            cluster.epoch,
            running.values,
            cluster.done,
            self._shown_plan,
        )
        self._card: Card | None = None  # In a notebook.
        self._retaining = Retaining(
            running.flow,
            running.plan,
            cluster,
            running.recorders,
            running.location,
            running.retentions,
            running.values["retentionIntervalMs"] / 1000,
        )
        cluster.start(self._on_end)
        self._reporter.start()
        self._retaining.start()
        RequestDesk(self, running.location, cluster.done).start()
        if any(recorder.is_available_now for recorder in running.recorders):
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
        return any(recorder.error for recorder in self._recorders)

    def exception(self) -> QueryFailedError | None:
        """Why it failed, or None."""
        reason = self._cluster.error or next((i.error for i in self._recorders if i.error), None)
        if reason is None:
            return None
        chunks = self._running.chunks
        located = reason if chunks is None else chunks.located(reason)
        return QueryFailedError(f"{self.name}: {located}")

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
        is_bounded = [not i.is_unbounded for i in self._recorders]
        others = [stream for stream in self._plan.sources if stream not in self._committed]
        if all(is_bounded) and (is_bounded or others):
            self.awaitTermination()
            return
        if others:
            raise UnsupportedError(
                f"processAllAvailable: {', '.join(others)} does not say how much there is"
            )
        for recorder in self._recorders:
            recorder.process_all_available()
        self._wait_until_drained(self._lives)

    def _end_with_available(self) -> None:
        """Stop all nodes once what is available has been worked off.

        Their inputs have not ended, as a later run goes on behind that: windows stay open.
        """
        for recorder in self._recorders:
            recorder.wait()
        if not self.has_lost_input:
            self._wait_until_drained(lambda: self.isActive)
            self._cluster.stop(Ending.FINISHED)

    def _wait_until_drained(self, lives: Callable[[], bool]) -> None:
        """Until what comes of the rows that are there now is in the sinks, files included."""
        wanted = wait_until_drained(
            self._plan,
            self._cluster.history.reports,
            self._rows_committed(),
            lives,
            lambda nodes: self._cluster.tell_running(nodes, told.FiguresWanted()),
        )
        for name, outside in self._flow.outside_sinks.items():
            if isinstance(outside, ReadableSink):
                wait_until_published(outside, name, self._location, wanted, lives)

    def _lives(self) -> bool:
        """Whether there is something to wait for. Raises `QueryFailedError` when it failed."""
        error = self.exception()
        if error is not None:
            raise error
        return self.isActive

    def explain(self, extended: bool = False) -> None:
        """Print how the dataflow is placed; `extended`: every stream too."""
        ways = {recorder.name: recorder.way for recorder in self._recorders}
        print(explained(self._flow, self._plan, ways, is_extended=extended))
        print("\n".join(["== Kept ==", *self._retaining.lines()]))

    def view(self, *, port: int = PORT, allow_actions: bool = False) -> View:
        """Serve a page that shows this query, at 127.0.0.1, until the answer's `stop` is called.

        Args:
            port: 0 takes any free one; `url` of the answer has it.
            allow_actions: Whether the page may kill, promote and stop.

        Raises:
            UnsupportedError: starlette or uvicorn is not installed.
            OptionError: The port is taken.
        """
        watched = OwnQuery(self, self._location, self._shown_plan)
        view = serve(watched, port=port, allow_actions=allow_actions)
        context = self._running.spark.sparkContext
        view.at_stop.append(lead(context, view_path(self._location), view.url))
        return view

    def _ipython_display_(self) -> None:
        """Show it below a notebook's cell; figures change until it is over, or shown again."""
        if self._card is not None:
            self._card.leave()
        self._card = show(OwnQuery(self, self._location, self._shown_plan))

    def addListener(self, listener: Any) -> None:
        """Tell it of this query; `holdfast.queries.addListener` tells it of all."""
        self._reporter.listeners.add(listener)

    def removeListener(self, listener: Any) -> None:
        """Tell it no more."""
        self._reporter.listeners.remove(listener)

    def stop(self, *, is_over: bool = True) -> None:
        """Stop all nodes; returns when nothing of the query runs any more.

        Args:
            is_over: Whether drivers in standby end too; otherwise one of them takes over.
        """
        ending = Ending.STOPPED if is_over else Ending.LEFT
        if self.has_lost_input:
            ending = Ending.FAILED
        with self._stop_lock:
            if not self._is_stopped:
                self._is_stopped = True
                self._cluster.stop(ending)
        self._reporter.wait()

    def _on_end(self) -> None:
        """Nothing runs any more: Spark may stop writing, and the location is free."""
        try:
            self.measurements().save(self._location)
        except Exception as error:  # Whatever it is, the location must become free.
            _LOG.warning("no measurements left in %s: %s", self._location, error)
        for recorder in self._recorders:
            recorder.stop()
        self._reporter.finish()
        if self._running.chunks is not None:
            self._running.chunks.stop()
        if self._running.lock is not None:
            self._running.lock.release()

    @property
    def status(self) -> dict[str, Any]:
        """What every node does now, and what the user should know."""
        states = self._cluster.states()
        return {
            "message": "stopped" if self._is_stopped else "running",
            "isDataAvailable": any(
                report.figures.counted.pending_tuples
                for report in self._cluster.history.reports.values()
            ),
            "isTriggerActive": self.isActive,
            "nodes": {
                node: {
                    "state": states[node],
                    "pid": report.pid or None,
                    "host": report.host,
                    **report.figures.by_name(),
                    "replicas": _replicas(self._cluster, node),
                }
                for node, report in self._cluster.history.reports.items()
            },
            "notes": [
                *self._waiting_notes(),
                *map(held_up_note, self._cluster.held_up()),
                *(str(each) for each in self._lacking),
                *self._plan.notes,
                *self._placement_notes(),
            ],
            "dataNodes": {} if self._running.chunks is None else self._running.chunks.processes(),
            "refused": self.refused(),
        }

    def refused(self) -> dict[str, dict[str, int]]:
        """What was refused so far, per process of the query, whose names are the keys.

        `frames`: what came from a peer with this run's key and made no sense, or was not its to
        say; `handshakes`: connections that did not prove this run's key. Neither has an effect.
        """
        of_store = {} if self._running.chunks is None else self._running.chunks.refused()
        return {**self._cluster.refused(), **of_store}

    def _waiting_notes(self) -> list[str]:
        """What nodes wait for outside, e.g. a broker, and data nodes."""
        of_nodes = [
            text for report in self._cluster.history.reports.values() for text in report.waits
        ]
        return (
            of_nodes if self._running.chunks is None else [*of_nodes, *self._running.chunks.waits()]
        )

    def _placement_notes(self) -> list[str]:
        """Replicas that one machine's failure would end both, or that wait to avoid that."""
        notes: list[str] = []
        for plan in self._plan.nodes:
            hosts = [r["host"] for r in _replicas(self._cluster, plan.node) if r["host"]]
            if len(hosts) > len(set(hosts)):
                notes.append(f"both replicas of {plan.node} run on {hosts[0]}")
            for replica, _ in self._cluster.replicas(plan.node):
                if replica.is_waiting:
                    waits_for_room = plan.is_strict and not replica.is_failing
                    why = "a machine of its own" if waits_for_room else "its turn"
                    notes.append(f"the secondary of {plan.node} waits for {why}")
        return notes

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
                dict(cluster.history.reports),
                list(cluster.history.checkpoints),
                list(cluster.history.recoveries),
                list(cluster.history.failures),
                list(cluster.history.gaps),
                list(cluster.history.damages),
                self.refused(),
                self._rows_committed(),
                dict(cluster.begun),
                cluster.held_up(),
                durable_rows(cluster.registry, self._plan),
                list(cluster.history.rounds),
                dict(cluster.history.lines),
                self._retaining.said(),
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

    def latency(self, node: str | None = None) -> LatencyHistogram:
        """Latencies from a tuple's creation to its sink, since the present nodes started.

        Args:
            node: Results of this one alone.
        """
        reports = self._cluster.history.reports
        return latency_of(reports.values() if node is None else [reports[NodeId(node)]])

    @property
    def nodes(self) -> dict[str, int | None]:
        """The process id of every node; None: it has none yet. `pid` waits for one."""
        return {node: report.pid or None for node, report in self._cluster.history.reports.items()}

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

    def newest_rows(self, unit: str, timeout: float = 5.0) -> dict[str, Any]:
        """The rows that a unit has sent last to the units behind it, as text for people.

        Args:
            unit: Its name. Rows in sinks are read by `to_dataframe`.
            timeout: Instances that have not answered after so many seconds are left out.

        Returns:
            `columns` and `rows`. The first column says whether a row is stable or tentative, `to`
            which node got it. Of each receiver at most 50 rows, the newest first.

        Raises:
            OptionError: There is no such unit, or no unit is behind it.
        """
        nodes = [plan for plan in self._plan.nodes if plan.unit == unit]
        if not any(plan.edge_streams() for plan in nodes):
            sending = dict.fromkeys(p.unit for p in self._plan.nodes if p.edge_streams())
            raise OptionError(
                f"unit {unit!r} sends no rows to other units; units that do: "
                f"{', '.join(sending) or 'none'}"
            )
        names = [plan.node for plan in nodes]
        answers = self._cluster.history.row_questions.asked(
            lambda ticket: self._cluster.tell_running(names, told.RowsWanted(ticket)), timeout
        )
        return together((answer.columns, answer.rows) for answer in answers)

    @property
    def checkpoints(self) -> list[dict[str, Any]]:
        """The last checkpoints that were stored, or failed: node, times, bytes, reason."""
        return list(self._cluster.history.checkpoints)

    @property
    def damaged_checkpoints(self) -> list[dict[str, Any]]:
        """Checkpoints that could not be read, so that older ones were taken."""
        return list(self._cluster.history.damages)

    @property
    def failures(self) -> list[dict[str, Any]]:
        """All failures so far."""
        return list(self._cluster.history.failures)

    @property
    def recoveries(self) -> list[dict[str, Any]]:
        """All completed recoveries so far."""
        return list(self._cluster.history.recoveries)

    def measurements(self) -> Measurements:
        """What is known of every unit: rates, sizes, costs; left at the location in the end."""
        reports = self._cluster.history.reports.items()
        return self._running.measured(
            Observed(
                {node: report.figures.measured for node, report in reports},
                {node: report.host for node, report in reports},
                list(self._cluster.history.recoveries),
                list(self._cluster.history.checkpoints),
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

    def to_dataframe(
        self, sink: str | None = None, *, newest_by: Sequence[str] = (), as_table: bool = False
    ) -> DataFrame:
        """What a sink holds now.

        Args:
            sink: Its name, if there are several.
            newest_by: Of rows that are equal in these columns, the last one alone: what running
                results of a key have come to.
            as_table: Of a changelog the rows that there are by now, and not its changes.

        Raises:
            UnsupportedError: The sink is outside of the location, and to be read there.
            OptionError: There is no such column.
        """
        name = self._flow.sink_name(sink)
        step = self._flow.sinks[name]
        if as_table and step.changelog is None:
            raise OptionError(f"to_dataframe(as_table=True): sink {name} is no changelog")
        if as_table and newest_by:
            raise OptionError("as_table=True gives the rows that there are; leave newest_by out")
        if name in self._flow.outside_sinks:
            outside = self._flow.outside_sinks[name]
            if isinstance(outside, ReadableSink):
                rows = outside.read(name, self._running.spark, self._location, step.schema)
                return table_of(rows) if as_table and CHANGE_COLUMN in rows.columns else rows
            place = outside.place
            raise UnsupportedError(f"sink {name} is {place}; read it there")
        path = os.path.join(self._location, "streams", name)
        if not has_begun(path):
            nothing = nothing_of(self._running.spark, step.schema)  # Its nodes are coming up.
            return table_of(nothing) if as_table else nothing
        read = load_now if has_ended(path) else load
        if as_table:
            return table_of(read(self._running.spark, path))
        if newest_by:
            rows = read(self._running.spark, path, metadata="true")
            return newest(rows, newest_by, step.schema.names)
        return read(self._running.spark, path)

    def verify(
        self, sink: str | None = None, *, source: str = "recorded", types: str = "stable"
    ) -> Verification:
        """Compare a sink with the batch twin over the recorded input; after the query has ended.

        Args:
            sink: Its name, if there are several.
            source: `original`: also compare what was recorded with what the user gave, where that
                can be read again: batch DataFrames, and streaming ones without state of their own.
            types: `all`: also look at the sink's feed, if its unit is `Replicated`: each undo must
                leave a prefix of what the sink holds.

        Raises:
            OptionError: `source` is neither `recorded` nor `original`, or `types` neither `stable`
                nor `all`.
            QueryFailedError: What the user gave cannot be read again, e.g. files are gone.
        """
        name = self._flow.sink_name(sink)
        if types not in ("stable", "all"):
            raise OptionError(f"verify(types={types!r}); it is 'stable' or 'all'")
        spark = self._running.spark
        compared = verify_sink(self._flow, spark, name, self._location, source)
        if types == "stable":
            return compared
        return replace(compared, corrections=check_feed(spark, name, self._location))


def _replicas(cluster: Cluster, node: NodeId) -> list[dict[str, Any]]:
    """Role and lag of a node's replicas, the primary first.

    The lag is that of the boundary that a replica has reached, behind the primary's; None as
    long as one of them has reached none.
    """
    found = cluster.replicas(node)
    reached = [report.figures.counted.boundary_us for _, report in found]
    return [
        {
            "role": replica.role.value,
            "state": replica.state.value,
            "incarnation": replica.incarnation,
            "pid": report.pid or None,
            "host": report.host,
            "lag_ms": None
            if BEGINNING_US in (reached[0], reached[i])
            else max(0, reached[0] - reached[i]) / 1e3,
            "is_ready": i == 0 or replica.is_ready(cluster.instance(node).plan),
        }
        for i, (replica, report) in enumerate(found)
    ]
