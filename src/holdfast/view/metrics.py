"""Metrics of the queries of this process, for Prometheus.

A scrape asks every running query for its progress (`docs/progress.md`) and says it in Prometheus's
words: base units, and names that end in them. Nothing is computed between scrapes. `FAMILIES` is
the whole list; `docs/metrics.md` has the same names, and a test compares the two.

Counters of rows begin at zero with a query; those of a unit also when one of its nodes is replaced.
Prometheus takes that for what it is, a counter that begins anew.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from holdfast.core.replication.consistency_manager import Consistency
from holdfast.errors import OptionError, UnsupportedError
from holdfast.view.serving import why_not_there

if TYPE_CHECKING:
    from threading import Thread
    from wsgiref.simple_server import WSGIServer

    from prometheus_client.core import Metric

    from holdfast.driver.query import Query

PORT: Final = 9464
"""Where metrics are served unless another port is named."""
LOOPBACK: Final = "127.0.0.1"
_CACHED_S: Final = 0.5
"""A report serves all scrapes within so long."""

Labels = tuple[str, ...]
Sample = tuple[Labels, float | None]


@dataclass(frozen=True, slots=True)
class Family:
    """One metric.

    Attributes:
        name: Without the prefix `holdfast_`; a counter's without `_total`.
        help: What it counts or measures.
        labels: Beside `query`.
        samples: Its values in what a query shows; None: it has none now.
        is_counter: It only grows; otherwise it is a gauge.
    """

    name: str
    help: str
    labels: Labels
    samples: Callable[[Shown], Iterable[Sample]]
    is_counter: bool = False

    @property
    def full_name(self) -> str:
        """As Prometheus shows it."""
        return f"holdfast_{self.name}" + ("_total" if self.is_counter else "")


@dataclass(frozen=True, slots=True)
class Shown:
    """What a query shows at a scrape."""

    progress: Mapping[str, Any]
    status: Mapping[str, Any]
    info: Labels


def _one(*path: str, scale: float = 1) -> Callable[[Shown], Iterable[Sample]]:
    """The value at a path of the progress report."""
    return lambda shown: [((), _at(shown.progress, path, scale))]


def _count(name: str) -> Callable[[Shown], Iterable[Sample]]:
    """How many there are in a list of the progress report."""
    return lambda shown: [((), len(shown.progress[name]))]


def _of_units(*path: str, scale: float = 1) -> Callable[[Shown], Iterable[Sample]]:
    """The value at a path of every unit."""
    return lambda shown: [
        ((unit,), _at(block, path, scale)) for unit, block in shown.progress["units"].items()
    ]


def _of_some_units(block: str, name: str, scale: float = 1) -> Callable[[Shown], Iterable[Sample]]:
    """The same of the units that have such a block: it is of their protection."""
    return lambda shown: [
        ((unit,), _at(said, (block, name), scale))
        for unit, said in shown.progress["units"].items()
        if said[block] is not None
    ]


def _parts_of_units(
    block_name: str, names: Mapping[str, str], scale: float = 1
) -> Callable[[Shown], Iterable[Sample]]:
    """Several values of one block of every unit, by label."""
    return lambda shown: [
        ((unit, label), _at(block, (block_name, name), scale))
        for unit, block in shown.progress["units"].items()
        for label, name in names.items()
    ]


def _at(block: Mapping[str, Any], path: Iterable[str], scale: float) -> float | None:
    value: Any = block
    for name in path:
        value = value[name]
    return None if value is None else float(value) * scale


def _phases(shown: Shown) -> Iterable[Sample]:
    last = shown.progress["recovery"]
    return [((phase,), _at(last, (name,), _MS)) for phase, name in _PHASES.items()]


def _sources(name: str) -> Callable[[Shown], Iterable[Sample]]:
    return lambda shown: [((s["description"],), s[name]) for s in shown.progress["sources"]]


def _held_up(shown: Shown) -> Iterable[Sample]:
    held = {source["description"]: 0.0 for source in shown.progress["sources"]}
    for holder in shown.progress["heldUp"]:
        source = holder["source"]
        held[source] = max(held.get(source, 0.0), holder["forMs"] * _MS)
    return [((source,), seconds) for source, seconds in held.items()]


def _event_time(shown: Shown) -> Iterable[Sample]:
    watermark = shown.progress["eventTime"].get("watermark")
    return [((), None if watermark is None else datetime.fromisoformat(watermark).timestamp())]


def _nodes(shown: Shown) -> Iterable[Sample]:
    states = [replica["state"] for n in shown.status["nodes"].values() for replica in n["replicas"]]
    return [((state,), states.count(state)) for state in _NODE_STATES]


def _consistency(shown: Shown) -> Iterable[Sample]:
    return [
        ((unit, state.value), float(block["consistency"]["state"] == state.value))
        for unit, block in shown.progress["units"].items()
        for state in Consistency
    ]


_MS: Final = 1e-3
_US: Final = 1e-6
_PHASES: Final = {
    "detection": "detectionMs",
    "restart": "restartMs",
    "replay": "replayMs",
    "first_output": "firstOutputMs",
    "catch_up": "catchUpMs",
}
_NODE_STATES: Final = ("waiting", "launching", "assigning", "running", "promoting", "lost")
_QUANTILES: Final = {"0.5": "p50", "0.99": "p99", "1": "max"}
_BACKLOGS: Final = {
    "source": "sourceRows",
    "pending": "pendingRows",
    "held": "heldRows",
    "unsent": "unsentRows",
}
_SENT: Final = {
    "tuples": "tuples",
    "acks": "acks",
    "standby": "standby",
    "restart_points": "restartPoints",
}
_UNIT: Final = ("unit",)

FAMILIES: Final = (
    Family("query_info", "1; its labels tell the run", ("id", "run_id"), lambda s: [(s.info, 1)]),
    Family("input_rows", "rows processed of all sources", (), _one("numInputRows"), True),
    Family("output_rows", "rows put out to all sinks", (), _one("numOutputRows"), True),
    Family("late_rows", "rows that came too late", (), _one("lateRows"), True),
    Family("refused_frames", "frames refused of peers", (), _one("refusedFrames"), True),
    Family("refused_handshakes", "strangers refused", (), _one("refusedHandshakes"), True),
    Family("failures", "failures of nodes", (), _count("failures"), True),
    Family("recoveries", "recoveries of nodes", (), _count("recoveries"), True),
    Family("gaps", "gaps in the input of nodes", (), _count("gaps"), True),
    Family("damaged_checkpoints", "could not be read", (), _count("damagedCheckpoints"), True),
    Family("last_recovery_seconds", "of the last recovery, by phase", ("phase",), _phases),
    Family(
        "latency_seconds",
        "from a row's arrival in the log to the sink, since the nodes began",
        ("quantile",),
        lambda s: [
            ((q,), _at(s.progress, ("latencyMs", name), _MS)) for q, name in _QUANTILES.items()
        ],
    ),
    Family("event_time_seconds", "how far event time is at sinks, Unix time", (), _event_time),
    Family("held_up_seconds", "for how long a source has held up time", ("source",), _held_up),
    Family("nodes", "replicas of nodes, by state", ("state",), _nodes),
    Family("source_rows", "rows read from the first", ("source",), _sources("numInputRows"), True),
    Family("source_backlog_rows", "rows in the log", ("source",), _sources("backlogRows")),
    Family("unit_instances", "parallel instances", _UNIT, _of_units("instances")),
    Family("unit_input_rows", "rows taken in", _UNIT, _of_units("numInputRows"), True),
    Family("unit_output_rows", "rows put out", _UNIT, _of_units("numOutputRows"), True),
    Family(
        "unit_tuple_cost_seconds",
        "time to process a row, in the slowest instance",
        _UNIT,
        _of_units("tupleCostUs", scale=_US),
    ),
    Family(
        "unit_backlog_rows",
        "rows that wait, by place",
        ("unit", "place"),
        _parts_of_units("backlog", _BACKLOGS),
    ),
    Family("unit_kept_rows", "rows kept for replay", _UNIT, _of_units("keptRows")),
    Family("unit_state_bytes", "pages of state", _UNIT, _of_units("stateBytes")),
    Family(
        "unit_sent_bytes",
        "bytes that nodes have sent, by kind",
        ("unit", "kind"),
        _parts_of_units("sentBytes", _SENT),
        True,
    ),
    Family(
        "unit_checkpoint_age_seconds",
        "age of the newest checkpoint",
        _UNIT,
        _of_units("checkpoint", "ageMs", scale=_MS),
    ),
    Family(
        "unit_checkpoint_duration_seconds",
        "how long writing the newest checkpoint took",
        _UNIT,
        _of_units("checkpoint", "durationMs", scale=_MS),
    ),
    Family(
        "unit_checkpoint_standstill_seconds",
        "how long the unit stood still for it",
        _UNIT,
        _of_units("checkpoint", "standstillMs", scale=_MS),
    ),
    Family(
        "unit_checkpoint_written_bytes",
        "bytes that the newest checkpoint wrote",
        _UNIT,
        _of_units("checkpoint", "writtenBytes"),
    ),
    Family(
        "unit_recent_failed_checkpoints",
        "failed ones among the last checkpoints of the query",
        _UNIT,
        _of_units("checkpoint", "failed"),
    ),
    Family(
        "unit_line_age_seconds",
        "age of the checkpoint that a failure of everything would go back to",
        _UNIT,
        _of_some_units("line", "ageMs", scale=_MS),
    ),
    Family(
        "unit_round_seconds",
        "how long the last complete round of checkpoints took",
        _UNIT,
        _of_some_units("round", "roundMs", scale=_MS),
    ),
    Family(
        "unit_extent_bytes",
        "footprint logs that a replacement would read",
        _UNIT,
        _of_some_units("extent", "bytes"),
    ),
    Family(
        "unit_predicted_recovery_seconds",
        "how long a replacement would read and replay",
        _UNIT,
        _of_some_units("extent", "predictedRecoveryMs", scale=_MS),
    ),
    Family(
        "unit_consistency",
        "1 for the state that the unit is in [DPC]",
        ("unit", "state"),
        _consistency,
    ),
    Family(
        "unit_tentative_rows",
        "rows put out as tentative",
        _UNIT,
        _of_units("consistency", "tentativeRows"),
        True,
    ),
    Family(
        "unit_undone_rows",
        "tentative rows that were undone",
        _UNIT,
        _of_units("consistency", "undoneRows"),
        True,
    ),
)
"""All metrics, as a scrape shows them."""


@dataclass(slots=True, eq=False)
class QueryCollector:
    """What `prometheus_client` asks at every scrape."""

    queries: Callable[[], Iterable[Query]]
    _shown: dict[str, Shown] = field(default_factory=dict)
    _made_s: float = 0.0

    def collect(self) -> Iterator[Metric]:
        """All families with the samples of all running queries."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        shown = self._look()
        for family in FAMILIES:
            kind = CounterMetricFamily if family.is_counter else GaugeMetricFamily
            metric = kind(f"holdfast_{family.name}", family.help, labels=("query", *family.labels))
            for query, found in shown.items():
                for labels, value in family.samples(found):
                    if value is not None:
                        metric.add_metric((query, *labels), value)
            yield metric

    def describe(self) -> Iterable[Metric]:
        """Nothing before a scrape: the registry then does not collect to learn the names."""
        return []

    def _look(self) -> dict[str, Shown]:
        now_s = time.monotonic()
        if now_s - self._made_s > _CACHED_S:
            self._made_s = now_s
            self._shown = {query.name: shown_of(query) for query in self.queries()}
        return self._shown


def shown_of(query: Query) -> Shown:
    """What a query shows now."""
    return Shown(query.lastProgress, query.status, (query.id, query.runId))


class MetricsServer:
    """Serves metrics over HTTP until it is stopped.

    Attributes:
        url: Where Prometheus finds them.
    """

    def __init__(self, server: WSGIServer, thread: Thread) -> None:
        """Use `serve_metrics`."""
        self._server = server
        self._thread = thread
        host, port = server.server_address[:2]
        self.url = f"http://{host!s}:{port}/metrics"

    def stop(self) -> None:
        """Serve no more; the port is free when this returns."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def serve_metrics(port: int = PORT, address: str = LOOPBACK) -> MetricsServer:
    """Serve the metrics of all queries of this process, those that start later too.

    Whoever reaches the address can read them: names of units and sources, counts and sizes, no
    rows. By default that is this machine alone.

    Args:
        port: 0 takes any free one; `url` of the answer has it.
        address: Where to listen.

    Raises:
        UnsupportedError: `prometheus-client` is not installed.
        OptionError: The port is taken, or the address is not this machine's.
    """
    try:
        from prometheus_client import CollectorRegistry, start_http_server
    except ImportError as error:
        raise UnsupportedError(
            "metrics need prometheus-client: pip install 'holdfast-streaming[metrics]'"
        ) from error
    from holdfast.driver.listeners import queries

    registry = CollectorRegistry()
    registry.register(QueryCollector(lambda: queries.active))
    try:
        server, thread = start_http_server(port, address, registry)
    except (OSError, OverflowError) as error:
        why = why_not_there(error)
        raise OptionError(f"metrics cannot be served at {address}:{port}: {why}") from error
    return MetricsServer(server, thread)
