"""What a running query says of itself, under Spark's own names where Spark has one.

A `Progress` is a dict that turns into JSON; what stands at its top is also an attribute, so that
listeners written for Spark's `StreamingQueryProgress` find what they look for. Times are in
milliseconds, rates in rows per second over the last two seconds or so.
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from holdfast.core.model.ids import BEGINNING_US, END_US
from holdfast.core.recovery.restart_point import RestartPoint
from holdfast.core.replication.consistency_manager import Consistency
from holdfast.driver.edges import Edges
from holdfast.driver.line_progress import line_block, round_block
from holdfast.shell.telemetry import LatencyHistogram

if TYPE_CHECKING:
    from holdfast.core.coordinator.checkpoint_registry import CheckpointRegistry
    from holdfast.core.coordinator.held_up import HeldUp
    from holdfast.core.coordinator.reports import NodeFigures
    from holdfast.core.haunit.plan import NodePlan
    from holdfast.core.model.ids import NodeId, StreamId
    from holdfast.planning.plan import Plan
    from holdfast.shell.spark.history import NodeReport

_RATE_SPAN_S: Final = 2.0
_RATE_STEP_S: Final = 0.1
_CHECKPOINTS_SHOWN: Final = 20
_BEGINNING: Final = RestartPoint()


class Progress(dict[str, Any]):
    """One progress report; docs/progress.md explains every name."""

    def __getattr__(self, name: str) -> Any:
        """Spark's reports have attributes."""
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None

    @property
    def json(self) -> str:
        """In one line."""
        return json.dumps(self)

    @property
    def prettyJson(self) -> str:
        """For people."""
        return json.dumps(self, indent=2)


@dataclass(slots=True)
class Rates:
    """Rows per second of counters that may begin anew when a node does."""

    _samples: deque[tuple[float, dict[str, int]]] = field(default_factory=deque)

    def of(self, counts: dict[str, int], now_s: float) -> dict[str, float]:
        """Per counter the rate since the oldest sample of the last two seconds."""
        samples = self._samples
        while len(samples) > 1 and now_s - samples[1][0] >= _RATE_SPAN_S:
            samples.popleft()
        since_s, before = samples[0] if samples else (now_s, counts)
        if not samples or now_s - samples[-1][0] >= _RATE_STEP_S:
            samples.append((now_s, dict(counts)))
        seconds = now_s - since_s
        if seconds <= 0:
            return dict.fromkeys(counts, 0.0)
        gained = {name: max(0, count - before.get(name, 0)) for name, count in counts.items()}
        return {name: round(rows / seconds, 1) for name, rows in gained.items()}


@dataclass(frozen=True, slots=True)
class Heard:
    """What the driver knows at one moment.

    Attributes:
        reports: Of the primary of every node.
        checkpoints: As `Query.checkpoints`.
        recoveries: As `Query.recoveries`.
        failures: As `Query.failures`.
        gaps: Input that was missed.
        damages: Checkpoints that could not be read.
        refused: As `Query.refused()`.
        committed: Per source stream the rows that its log holds; None: nobody knows.
        begun: Where each node was when this query started it first.
        held_up: The sources that hold up event time.
        rounds: Of checkpoints, those that became complete last.
        lines: Per node that recovers with others what its line has come to.
        logs: Per log of the location what is kept of it; see retention.py.
        durable_rows: Rows that no failure would have processed again: those before restart points.
    """

    reports: Mapping[NodeId, NodeReport]
    checkpoints: Iterable[dict[str, Any]]
    recoveries: list[dict[str, Any]]
    failures: list[dict[str, Any]]
    gaps: list[dict[str, Any]]
    damages: list[dict[str, Any]]
    refused: Mapping[str, Mapping[str, int]]
    committed: Mapping[str, int | None]
    begun: Mapping[NodeId, RestartPoint]
    held_up: Sequence[HeldUp] = ()
    durable_rows: int = 0
    rounds: Sequence[Mapping[str, Any]] = ()
    lines: Mapping[NodeId, Mapping[str, Any]] = field(default_factory=dict)
    logs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


class _Rows:
    """Rows that sources have given and sinks have got.

    Streams' positions say it, whoever has brought them there. A node that has just been put in
    another's place says less for a while: what was heard before holds.
    """

    def __init__(self, plan: Plan) -> None:
        """Nothing heard yet."""
        self.sources = {
            spec.stream: node.node
            for node in plan.nodes
            for spec in node.inputs
            if spec.producer is None
        }
        self.sinks = {
            stream: node.node
            for node in plan.nodes
            for output in node.outputs
            if output.is_sink and output.feed_of is None
            for stream in output.streams
        }
        self._late: dict[StreamId, int] = {}
        self._begun: dict[StreamId, int] = {}
        self._reached: dict[StreamId, int] = {}

    def hear(self, heard: Heard) -> None:
        """Take in what nodes say now."""
        for stream, node in self.sources.items():
            begun = heard.begun.get(node, _BEGINNING).processed_before
            self._hear(stream, begun, heard.reports[node].processed)
            late = heard.reports[node].late_rows.get(stream, 0)
            self._late[stream] = max(late, self._late.get(stream, 0))
        for stream, node in self.sinks.items():
            begun = heard.begun.get(node, _BEGINNING).next_ids
            self._hear(stream, begun, heard.reports[node].next_ids)

    def _hear(self, stream: StreamId, begun: Mapping[str, int], reached: Mapping[str, int]) -> None:
        first = self._begun[stream] = begun.get(stream, 0)
        self._reached[stream] = max(first, reached.get(stream, 0), self._reached.get(stream, 0))

    def late(self) -> int:
        """Of all sources, from their very first rows on."""
        return sum(self._late.values())

    def all_of(self, streams: Iterable[StreamId]) -> int:
        """From the very first one."""
        return sum(self._reached[stream] for stream in streams)

    def new_of(self, streams: Iterable[StreamId]) -> int:
        """Since this query was started; what it has processed again from its restart points too."""
        return sum(self._reached[stream] - self._begun[stream] for stream in streams)


class ProgressMaker:
    """Puts reports together; remembers what rates need."""

    def __init__(self, plan: Plan, name: str, query_id: str, run_id: str) -> None:
        """For the nodes of a plan."""
        self._plan = plan
        self._who = {"id": query_id, "runId": run_id, "name": name}
        self._rates = Rates()
        self._rows = _Rows(plan)
        self._edges = Edges(plan)
        self._durable = _Durable()
        self._reports = 0
        self._units: dict[str, list[NodePlan]] = {}
        for node in plan.nodes:
            self._units.setdefault(node.unit, []).append(node)
        self._sources: dict[str, list[StreamId]] = {}
        for stream in self._rows.sources:
            self._sources.setdefault(stream.rpartition("[")[0], []).append(stream)

    def make(self, heard: Heard, *, now_s: float | None = None) -> Progress:
        """The report of this moment."""
        now_s = time.monotonic() if now_s is None else now_s
        rows = self._rows
        rows.hear(heard)
        read, written = rows.new_of(rows.sources), rows.new_of(rows.sinks)
        counts = {"": read, "out": written, **self._edges.hear(heard.reports)}
        for unit, nodes in self._units.items():
            counts[f"in {unit}"] = _sum(heard, nodes, lambda f: f.counted.input_tuples)
            counts[f"out {unit}"] = _sum(heard, nodes, lambda f: f.counted.output_tuples)
        for source, streams in self._sources.items():
            counts[f"source {source}"] = rows.new_of(streams)
        rates = self._rates.of(counts, now_s)
        units = {
            unit: _unit(nodes, heard, rates[f"in {unit}"], rates[f"out {unit}"])
            for unit, nodes in self._units.items()
        }
        sources = [
            {
                "description": source,
                "numInputRows": rows.all_of(streams),
                "inputRowsPerSecond": rates[f"source {source}"],
                "backlogRows": _backlog(
                    [(heard.reports[rows.sources[stream]], stream) for stream in streams], heard
                ),
            }
            for source, streams in self._sources.items()
        ]
        self._reports += 1
        return Progress(
            {
                **self._who,
                "timestamp": _timestamp(),
                "batchId": self._reports - 1,
                "numInputRows": read,
                "numOutputRows": written,
                "inputRowsPerSecond": rates[""],
                "processedRowsPerSecond": rates[""],
                "outputRowsPerSecond": rates["out"],
                "lateRows": rows.late(),
                "refusedFrames": sum(counts["frames"] for counts in heard.refused.values()),
                "refusedHandshakes": sum(counts["handshakes"] for counts in heard.refused.values()),
                "latencyMs": latency_of(heard.reports.values()).summary(),
                "eventTime": _event_time(heard, self._plan),
                "heldUp": [_held_up(holder) for holder in heard.held_up],
                "stateOperators": _state_operators(self._units, heard),
                "sources": sources,
                "sink": {"description": ", ".join(self._sinks()), "numOutputRows": written},
                "units": units,
                "edges": [_edge(edge) for edge in self._edges.block(heard.reports, rates)],
                "durable": self._durable.block((heard.durable_rows, written), now_s),
                "checkpoints": list(heard.checkpoints)[-_CHECKPOINTS_SHOWN:],
                "damagedCheckpoints": heard.damages,
                "gaps": heard.gaps,
                "failures": heard.failures,
                "logs": dict(heard.logs),
                "recoveries": heard.recoveries,
                "recovery": recovery_block(heard.recoveries),
            }
        )

    def _sinks(self) -> list[str]:
        streams = [stream for stream in self._plan.sink_paths if stream in self._rows.sinks]
        return list(dict.fromkeys(stream.rpartition("[")[0] for stream in streams))


@dataclass(slots=True)
class _Durable:
    """When restart points, or rows in sinks, have last gone on."""

    _at: tuple[int, int] = (-1, -1)
    _since_s: float = 0.0

    def block(self, at: tuple[int, int], now_s: float) -> dict[str, int]:
        """Rows before restart points, and for how long nothing has become durable."""
        if at != self._at:
            self._at, self._since_s = at, now_s
        return {"restartPointRows": at[0], "ageMs": round(1000 * (now_s - self._since_s))}


def durable_rows(registry: CheckpointRegistry, plan: Plan) -> int:
    """Rows before the newest restart points of all nodes, over their input streams."""
    newest = (registry.newest(node.node) for node in plan.nodes)
    return sum(sum(point.processed_before.values()) for point in newest if point is not None)


def latency_of(reports: Iterable[NodeReport]) -> LatencyHistogram:
    """Latencies from a tuple's creation to its sink, over nodes."""
    merged = LatencyHistogram()
    for report in reports:
        merged.merge(report.latency, report.latency_max_us)
    return merged


def recovery_block(recoveries: list[dict[str, Any]]) -> dict[str, Any]:
    """The last recovery as five numbers, one after the other.

    None: there was none. `catchUpMs` is None too as long as results are later than before.
    """
    if not recoveries:
        names = ("detectionMs", "restartMs", "replayMs", "firstOutputMs", "catchUpMs")
        return {"count": 0, "node": None, **dict.fromkeys(names)}
    last = recoveries[-1]
    before = last["detected_ms"] + last["restarted_ms"] + last["replayed_ms"]
    first_output_ms = max(0, last["recovered_ms"] - before)
    caught_up_ms = last["caught_up_ms"]
    return {
        "count": len(recoveries),
        "node": last["node"],
        "detectionMs": last["detected_ms"],
        "restartMs": last["restarted_ms"],
        "replayMs": last["replayed_ms"],
        "firstOutputMs": first_output_ms,
        "catchUpMs": None if caught_up_ms is None else max(0, caught_up_ms - last["recovered_ms"]),
    }


_SENT_BYTES: Final[dict[str, Callable[[NodeFigures], int]]] = {
    "tuples": lambda f: f.traffic.tuple_bytes,
    "acks": lambda f: f.traffic.ack_bytes,
    "standby": lambda f: f.traffic.standby_bytes,
    "restartPoints": lambda f: f.traffic.point_bytes,
}


def _unit(
    nodes: list[NodePlan], heard: Heard, rows_in_per_s: float, rows_out_per_s: float
) -> dict[str, Any]:
    names = {node.node for node in nodes}
    reports = [heard.reports[node.node] for node in nodes]
    sources = [
        (heard.reports[node.node], spec.stream)
        for node in nodes
        for spec in node.inputs
        if spec.producer is None
    ]
    written = [c for c in heard.checkpoints if c["node"] in names]
    return {
        "instances": len(nodes),
        "numInputRows": _sum(heard, nodes, lambda f: f.counted.input_tuples),
        "numOutputRows": _sum(heard, nodes, lambda f: f.counted.output_tuples),
        "inputRowsPerSecond": rows_in_per_s,
        "outputRowsPerSecond": rows_out_per_s,
        "latencyMs": latency_of(heard.reports.values()).summary(),
        "tupleCostUs": max((r.figures.measured.tuple_cost_us for r in reports), default=0.0),
        "backlog": {
            "sourceRows": _backlog(sources, heard) if sources else 0,
            "pendingRows": _sum(heard, nodes, lambda f: f.counted.pending_tuples),
            "heldRows": _sum(heard, nodes, lambda f: f.counted.held_tuples),
            "unsentRows": _sum(heard, nodes, lambda f: f.counted.unsent_tuples),
        },
        "keptRows": _sum(heard, nodes, lambda f: f.counted.retained_tuples)
        + _sum(heard, nodes, lambda f: f.counted.spilled_tuples),
        "stateBytes": _sum(heard, nodes, lambda f: f.counted.state_bytes),
        "sentBytes": {said: _sum(heard, nodes, sent) for said, sent in _SENT_BYTES.items()},
        "checkpoint": _checkpoint_block(written),
        "round": round_block(names, heard.rounds, written),
        "line": line_block(names, heard.lines, reports),
        "consistency": consistency_block([report.figures for report in reports]),
        "extent": extent_block([report.figures for report in reports]),
        "recovery": recovery_block([r for r in heard.recoveries if r["node"] in names]),
    }


def extent_block(figures: Iterable[NodeFigures]) -> dict[str, Any] | None:
    """What replacements of a unit's nodes would read and replay; None: it leaves no footprints.

    Args:
        figures: Of its nodes, as they were heard.
    """
    said = [each.extent for each in figures if each.extent is not None]
    if not said:
        return None
    slowest = max(said, key=lambda each: each.predicted_ms)
    return {
        "bytes": sum(each.size.log_bytes for each in said),
        "tuples": sum(each.size.tuples for each in said),
        "footprints": sum(each.size.footprints for each in said),
        "predictedRecoveryMs": round(slowest.predicted_ms, 3),
        "shortfall": slowest.shortfall or None,
    }


def consistency_block(figures: Iterable[NodeFigures]) -> dict[str, Any]:
    """What a unit does without missing input; of one that waits for all input, None but `state`.

    Args:
        figures: Of its nodes, as they were heard.
    """
    said = [each.consistency for each in figures if each.consistency is not None]
    names = ("sinceMs", "missing", "tentativeRows", "undoneRows", "droppedRows")
    if not said:
        return {
            "state": Consistency.STABLE.value,
            **dict.fromkeys((*names, "delayMaxMs", "correctionDelayMaxMs", "stabilizationMs")),
        }
    worst = max(said, key=lambda each: _SEVERITY[each.state])
    return {
        "state": worst.state.value,
        "sinceMs": worst.since_ms,
        "missing": sorted({stream for each in said for stream in each.missing}),
        "tentativeRows": sum(each.tentative_rows for each in said),
        "undoneRows": sum(each.undone_rows for each in said),
        "droppedRows": sum(each.dropped_rows for each in said),
        "delayMaxMs": max(each.delay_max_ms for each in said),
        "correctionDelayMaxMs": max(each.correction_delay_max_ms for each in said),
        "stabilizationMs": max(each.stabilization_ms for each in said),
    }


_SEVERITY: Final = {
    Consistency.STABLE: 0,
    Consistency.STABILIZATION: 1,
    Consistency.UP_FAILURE: 2,
}


def _checkpoint_block(written: list[dict[str, Any]]) -> dict[str, Any]:
    """The unit's newest checkpoint: how long it stood still for it, how long writing took."""
    stored = [c for c in written if c["failure"] is None]
    failed = len(written) - len(stored)
    if not stored:
        empty = dict.fromkeys(("standstillMs", "durationMs", "writtenBytes", "ageMs"))
        return {"count": 0, "failed": failed, **empty}
    last = stored[-1]
    return {
        "count": len(stored),
        "failed": failed,
        "standstillMs": last["prepared_us"] / 1000,
        "durationMs": last["duration_ms"],
        "writtenBytes": last["written_bytes"],
        "ageMs": max(0, round(1000 * (time.time() - last["at_unix_s"]))),
    }


def _backlog(streams: Sequence[tuple[NodeReport, str]], heard: Heard) -> int | None:
    """Rows that wait in the sources' logs; None: nobody knows."""
    waiting = 0
    for report, stream in streams:
        committed, read = heard.committed.get(stream), report.source_rows.get(stream)
        if committed is None or read is None:
            return None
        waiting += max(0, committed - read)
    return waiting


def _event_time(heard: Heard, plan: Plan) -> dict[str, str]:
    """How far event time has come at the sinks."""
    reached = [
        heard.reports[node.node].figures.counted.boundary_us
        for node in plan.nodes
        if any(output.is_sink for output in node.outputs)
    ]
    watermark = _dated(min(reached, default=BEGINNING_US))
    return {} if watermark is None else {"watermark": watermark}


def _dated(boundary_us: int) -> str | None:
    """A boundary as a time; None if it is none."""
    if boundary_us in (BEGINNING_US, END_US) or abs(boundary_us) > 2**53:
        return None
    return _timestamp(boundary_us / 1e6)


def _edge(edge: dict[str, Any]) -> dict[str, Any]:
    """An edge with its boundary as a time."""
    boundary_us = edge.pop("boundaryUs")
    return {**edge, "watermark": _dated(boundary_us)}


def _held_up(holder: HeldUp) -> dict[str, Any]:
    return {
        "source": holder.stream.rpartition("[")[0],
        "stream": holder.stream,
        "watermark": _dated(holder.boundary_us),
        "forMs": holder.for_ms,
        "why": holder.slowest,
    }


def held_up_note(holder: HeldUp) -> str:
    """The same for people."""
    at, why = _dated(holder.boundary_us), holder.slowest and f": {holder.slowest}"
    since = f"{holder.for_ms // 1000} s"
    return (
        f"source {holder.stream} has held up event time at {at or 'its beginning'} for {since}{why}"
    )


def _state_operators(units: dict[str, list[NodePlan]], heard: Heard) -> list[dict[str, Any]]:
    return [
        {
            "operatorName": unit,
            "memoryUsedBytes": _sum(heard, nodes, lambda f: f.counted.state_bytes),
            "numStateStoreInstances": len(nodes),
        }
        for unit, nodes in units.items()
        if _sum(heard, nodes, lambda f: f.counted.state_bytes)
    ]


def _sum(heard: Heard, nodes: list[NodePlan], figure: Callable[[NodeFigures], int]) -> int:
    return sum(figure(heard.reports[node.node].figures) for node in nodes)


def _timestamp(at_s: float | None = None) -> str:
    """As Spark writes it: UTC, milliseconds."""
    at_s = time.time() if at_s is None else at_s
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at_s // 1))
    return f"{whole}.{int(at_s % 1 * 1000):03d}Z"
