"""Keeps a location from growing without end: removes what no restart, reader or user wants.

A thread of the driver looks at every log now and then. Of what sources gave, all is kept from which
a node may have to start again: from the oldest of its restart points, those to fall back on
included, and from where its replicas are. Beyond that, and of sinks and metrics, the user's
`retention` decides. Results are never removed unless the user has asked for it.
"""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from holdfast.api.retention import retentions_of
from holdfast.api.steps import FromFiles, FromFrame, FromKafka
from holdfast.core.model.feed_rows import FEED_SUFFIX
from holdfast.core.queues.retention import FOR_EVER, Retention
from holdfast.shell.kafka.source import KafkaSourceSpec
from holdfast.shell.sources.log_source import LogSourceSpec
from holdfast.shell.spark.metrics_log import metrics_place
from holdfast.shell.storage.errors import JournalSuperseded, StorageError
from holdfast.shell.storage.ingest_trimming import IngestTrimmer
from holdfast.shell.storage.part_trimming import feed_trimmer_at, trimmer_at
from holdfast.shell.storage.paths import ingest_path

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from holdfast.api.graph import Graph
    from holdfast.core.model.ids import NodeId, StreamId
    from holdfast.planning.plan import Plan
    from holdfast.shell.sources.recorder import Recorder
    from holdfast.shell.spark.launch import Cluster
    from holdfast.shell.storage.trimming import Trimmer

_LOG = logging.getLogger(__name__)
METRICS: Final = "metrics"
_SEGMENTS: Final = 8
"""A log that is trimmed has about so many segments."""
_SEGMENT_BYTES: Final = (1 << 20, 256 << 20)
_SEGMENT_S: Final = 1.0


def wanted(flow: Graph, given: str | Mapping[str, str] | None) -> Retentions:
    """How much is kept of each log of a dataflow. Raises `OptionError`."""
    recorded = {
        step.name
        for step in flow.steps
        if isinstance(step.operation, FromFrame | FromFiles | FromKafka)
    }
    sinks = {sink: _why_kept(flow, sink) for sink in flow.sinks}
    return Retentions(retentions_of(given, recorded, sinks))


def _why_kept(flow: Graph, sink: str) -> str:
    """Why nothing can be removed of a sink; empty: it can."""
    if sink in flow.outside_sinks:
        return "it is written elsewhere, where others say how long it is kept"
    if flow.sinks[sink].changelog is not None:
        return (
            "without its oldest changes nobody knows the table that they come to; sink_delta and "
            "sink_kafka keep the table itself, and as_feed() gives changes as rows, which may go"
        )
    return ""


@dataclass(frozen=True, slots=True)
class Retentions:
    """How much is kept, by the names of sources and sinks, and of metrics."""

    of: Mapping[str, Retention]

    def segments(self, plan: Plan) -> dict[StreamId, tuple[int, float | None]]:
        """At which size and age logs get another segment, of sinks that are trimmed."""
        found: dict[StreamId, tuple[int, float | None]] = {}
        for stream in plan.sink_paths:
            retention = self.of.get(_named(stream), FOR_EVER)
            if not retention.is_for_ever:
                found[stream] = _segment(retention)
        return found


def _named(stream: StreamId) -> str:
    """The source or sink that a stream belongs to; a feed belongs to its sink."""
    return str(stream).partition("[")[0].removesuffix(FEED_SUFFIX)


def _trimmer_of(stream: StreamId) -> Callable[[str, Callable[[], None]], Trimmer]:
    is_feed = str(stream).partition("[")[0].endswith(FEED_SUFFIX)
    return feed_trimmer_at if is_feed else trimmer_at


def _segment(retention: Retention) -> tuple[int, float | None]:
    least, most = _SEGMENT_BYTES
    if retention.size_bytes is not None:
        return min(most, max(least, retention.size_bytes // _SEGMENTS)), None
    assert retention.time_us is not None
    return most, max(_SEGMENT_S, retention.time_us / 1e6 / _SEGMENTS)


class Needs:
    """From where nodes may have to read their sources again."""

    def __init__(self, plan: Plan, cluster: Cluster) -> None:
        """Of the nodes of a plan, by what their coordinator knows."""
        self._cluster = cluster
        self._readers: dict[StreamId, list[NodeId]] = {}
        for node in plan.nodes:
            for spec in node.inputs:
                if spec.producer is None:
                    self._readers.setdefault(spec.stream, []).append(node.node)

    def oldest(self, stream: StreamId) -> int:
        """The oldest tuple of a source stream that anybody may ask for."""
        return min((self._of(node, stream) for node in self._readers.get(stream, [])), default=0)

    def _of(self, node: NodeId, stream: StreamId) -> int:
        points = [noted.point for noted in self._cluster.registry.points(node)]
        if not points:
            return 0
        needed = [one.needed_from.get(stream, 0) for p in points for one in p.candidates()]
        # A replica that comes up may have been told an older point.
        reports = [report for _, report in self._cluster.replicas(node)]
        return min(needed + [report.processed.get(stream, 0) for report in reports])


class Retaining:
    """The thread that removes; one for each query."""

    def __init__(
        self,
        flow: Graph,
        plan: Plan,
        cluster: Cluster,
        recorders: list[Recorder],
        location: str,
        retentions: Retentions,
        interval_s: float,
    ) -> None:
        """Nothing happens before `start`."""
        self._needs = Needs(plan, cluster)
        self._done = cluster.done
        self._interval_s = interval_s
        self._retentions = retentions
        lead = cluster.require_lead
        self._inputs: dict[str, IngestTrimmer] = {}
        self._streams: dict[str, dict[tuple[int, int], StreamId]] = {}
        for recorder in recorders:
            if recorder.is_paced:
                continue  # The time of its first row is that of all.
            root = ingest_path(location, recorder.name)
            shares = {
                (spec.partition, spec.partitions): stream
                for stream, spec in plan.sources.items()
                if isinstance(spec, LogSourceSpec) and spec.path == root
            }
            if shares:
                partitions = next(iter(shares))[1]
                trimmer = IngestTrimmer(root, partitions, lead, recorder.still_there)
                self._inputs[recorder.name], self._streams[recorder.name] = trimmer, shares
        self._logs: list[tuple[str, Trimmer, StreamId | None]] = [
            (_named(stream), _trimmer_of(stream)(place, lead), None)
            for stream, place in plan.sink_paths.items()
            if _named(stream) in flow.sinks
        ]
        self._logs += [
            (_named(stream), trimmer_at(spec.place, lead), stream)
            for stream, spec in plan.sources.items()
            if isinstance(spec, KafkaSourceSpec)
        ]
        self._logs.append((METRICS, trimmer_at(metrics_place(location), lead), None))
        self._said: dict[str, dict[str, Any]] = {}
        self._thread = threading.Thread(
            target=self._run, name=f"holdfast-retention-{flow.name}", daemon=True
        )

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def said(self) -> dict[str, dict[str, Any]]:
        """Per log what is kept: its bytes, and since when; as it was looked at last."""
        return dict(self._said)

    def lines(self) -> list[str]:
        """The same for people."""
        lines = []
        for name, retention in self._retentions.of.items():
            said = self._said.get(name, {})
            since = f"; {said['keptBytes']} bytes since {said['oldest']}" if said else ""
            lines.append(f"{name}: {retention}{since}")
        return lines

    def _run(self) -> None:
        try:
            while not self._done.wait(self._interval_s):
                self.look()
        except JournalSuperseded:
            pass  # Another driver leads, and removes.
        finally:
            for trimmer in self._inputs.values():
                trimmer.close()

    def look(self) -> None:
        """Remove what may go now. Raises `JournalSuperseded`; other errors are only told."""
        now_us = time.time_ns() // 1000
        said: dict[str, dict[str, Any]] = {}
        for name, trimmer in self._inputs.items():
            needed = {of: self._needs.oldest(s) for of, s in self._streams[name].items()}
            self._trimmed(name, lambda: trimmer.trim(self._of(name), needed, now_us))  # noqa: B023
            self._trimmed(name, lambda: trimmer.pack(now_us))  # noqa: B023
            _add(said, name, trimmer)
        for name, log, stream in self._logs:
            oldest = None if stream is None else self._needs.oldest(stream)
            self._trimmed(name, lambda: log.trim(self._of(name), oldest, now_us))  # noqa: B023
            _add(said, name, log)
        self._said = said

    def _of(self, name: str) -> Retention:
        return self._retentions.of.get(name, FOR_EVER)

    def _trimmed(self, name: str, trim: Any) -> None:
        try:
            trim()
        except JournalSuperseded:
            raise
        except (StorageError, OSError) as error:  # Whoever reads the log meets it, too.
            _LOG.warning("nothing was removed of %s: %s", name, error)


def _add(said: dict[str, dict[str, Any]], name: str, log: IngestTrimmer | Trimmer) -> None:
    """What one log of a name takes, which may have several."""
    found = said.setdefault(name, {"keptBytes": 0, "oldest": None})
    found["keptBytes"] += log.size_bytes
    if log.oldest_us is not None:
        oldest = datetime.fromtimestamp(log.oldest_us / 1e6, UTC).isoformat(timespec="seconds")
        found["oldest"] = min(oldest, found["oldest"] or oldest)
