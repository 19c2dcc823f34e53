"""Latency through real Spark tasks while a large unit checkpoints. [SGuard §6.1.3]

A source gives every group once, at once, so that the state is there; then it gives random groups at
a steady rate. The unit that aggregates puts out the running result of every tuple; a latency is
from when a tuple was due until the driver reads its result from the sink's log.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from holdfast.api.dataflow import Dataflow
from holdfast.api.protections import Checkpointed, Protection, UpstreamBackup
from holdfast.api.windows import tumbling
from holdfast.core.model.ids import END_US
from holdfast.core.model.tuples import TupleBatch, with_time
from holdfast.driver.query import Query
from holdfast.driver.session import session
from holdfast.shell.sources.base import SourceReader, SourceRows
from holdfast.shell.storage.paths import stream_path
from holdfast.shell.storage.stream_log import StreamLogReader
from holdfast_bench.sguard.states import RECORD_BYTES, SCHEMA

_FILL_BATCH: Final = 1 << 14
_FILL_S: Final = 20.0
_POLL_S: Final = 0.0005
_MARGIN_S: Final = 0.1
_WARM_UP_S: Final = 2.0
_SETTLE_S: Final = 1.0
_LOOK_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class GroupSource:
    """A source of groups, and how to open it: it has one partition.

    Attributes:
        groups: How many there are.
        rate: Tuples per second after the first `groups`.
        seconds: For how long.
        origin_us: When the steady rate begins, wall clock.
    """

    groups: int
    rate: int
    seconds: float
    origin_us: int

    @property
    def schema(self) -> pa.Schema:
        """Of its tuples."""
        return SCHEMA

    def spec(self, partition: int, partitions: int) -> GroupSource:
        """Itself."""
        del partition, partitions
        return self

    def open(self) -> SourceReader:
        """A reader."""
        return GroupReader(self)


class GroupReader:
    """Makes tuples by id."""

    def __init__(self, source: GroupSource) -> None:
        self._source = source
        self._schema = with_time(SCHEMA)

    def read(self, from_id: int, max_tuples: int) -> SourceRows:
        """See `SourceReader.read`."""
        source = self._source
        elapsed_us = time.time() * 1e6 - source.origin_us
        total = source.groups + int(source.rate * source.seconds)
        due = source.groups + max(0, int(elapsed_us * source.rate / 1e6))
        to_id = min(from_id + max_tuples, due, total)
        if from_id < source.groups:
            to_id = min(to_id, from_id + _FILL_BATCH, source.groups)
        boundary_us = END_US if to_id >= total else int(self._reached_us(np.array([to_id]))[0])
        if to_id <= from_id:
            return SourceRows((), boundary_us)
        ids = np.arange(from_id, to_id, dtype=np.int64)
        keys, times = self._tuples(ids)
        columns = [pa.array(keys), pa.array(ids), pa.array(times)]
        batch = pa.RecordBatch.from_arrays(columns, schema=self._schema)
        created_us = 0
        if from_id >= source.groups:
            created_us = source.origin_us + int((from_id - source.groups + 1) / source.rate * 1e6)
        return SourceRows((TupleBatch(from_id, batch, boundary_us, created_us),), boundary_us)

    def _reached_us(self, ids: np.ndarray) -> np.ndarray:
        """int64 (n,): how far time is when these ids come."""
        return ids

    def _tuples(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Keys and times, int64 (n,) each: every group once, then any of them."""
        groups = self._source.groups
        return np.where(ids < groups, ids, (ids * 2_654_435_761) % groups), self._reached_us(ids)

    def close(self) -> None:
        """Nothing is open."""


def measure(
    *,
    size_bytes: int,
    rate: int,
    seconds: float,
    interval: str,
    say: Callable[[str], None],
) -> dict[str, Any]:
    """The same run with checkpoints and without."""
    spark = session("holdfast-sguard")
    try:
        without = _run(spark, UpstreamBackup(), size_bytes, rate, seconds)
        say(f"end to end, without checkpoints: {without['all']}")
        with_them = _run(spark, Checkpointed(interval=interval), size_bytes, rate, seconds)
        say(f"end to end, a checkpoint every {interval}: {with_them}")
    finally:
        spark.stop()
    return {
        "rate": rate,
        "interval": interval,
        "without": without,
        "with": with_them,
        "p99_ratio": round(with_them["during"]["p99_ms"] / without["all"]["p99_ms"], 3),
        "p99_ratio_to_between": round(
            with_them["during"]["p99_ms"] / with_them["between"]["p99_ms"], 3
        ),
    }


def _run(
    spark: Any, protection: Protection, size_bytes: int, rate: int, seconds: float
) -> dict[str, Any]:
    groups = size_bytes // RECORD_BYTES
    origin_us = int((time.time() + _FILL_S) * 1e6)
    flow = Dataflow("groups")
    source = GroupSource(groups, rate, seconds, origin_us)
    stream = flow.source_generator(source, name="groups", unit="ingest")
    counted = stream.key_by("key").window(tumbling("1000 weeks"))
    counted.aggregate(
        "count(*) AS n", "min(value) AS low", "max(value) AS high", name="state", emit="changes"
    ).sink("changes")
    with tempfile.TemporaryDirectory(prefix="holdfast-sguard-") as location:
        query = flow.start(spark, checkpointLocation=location, protection=protection)
        try:
            path = stream_path(location, "changes", 0)
            seen = follow(query, path, groups, _FILL_S + seconds + 60)
        finally:
            query.stop()
        checkpoints = [c for c in query.checkpoints if c["failure"] is None]
    return _summary(seen, checkpoints, origin_us / 1e6)


def follow(
    query: Query,
    path: str,
    from_id: int,
    seconds: float,
    look: Callable[[], None] = lambda: None,
) -> np.ndarray:
    """(wall-clock second, latency in ms, tuples) of every batch of results, float64 (n, 3).

    Args:
        query: That writes them; until its end.
        path: Of the sink's log.
        from_id: Results before it do not count.
        seconds: No longer.
        look: Called now and then.
    """
    reader: StreamLogReader | None = None
    seen: list[tuple[float, float, int]] = []
    deadline = time.monotonic() + seconds
    look_s = 0.0
    while query.isActive and time.monotonic() < deadline:
        if time.monotonic() > look_s:
            look()
            look_s = time.monotonic() + _LOOK_S
        try:
            reader = reader or StreamLogReader(path, 0)
        except FileNotFoundError:
            time.sleep(_POLL_S)  # The log has not begun.
            continue
        batches = reader.poll()
        now_s = time.time()
        for batch in batches:
            if batch.first_id >= from_id and batch.created_us:
                seen.append((now_s, now_s * 1e3 - batch.created_us / 1e3, batch.count))
        if not batches:
            time.sleep(_POLL_S)  # What a latency is measured to.
    return np.array(seen)


def _summary(
    seen: np.ndarray, checkpoints: list[dict[str, Any]], origin_s: float
) -> dict[str, Any]:
    first_end_s = min(
        (c["at_unix_s"] for c in checkpoints if c["at_unix_s"] > origin_s + _WARM_UP_S),
        default=origin_s + _WARM_UP_S,
    )
    is_first = (seen[:, 0] > origin_s + _WARM_UP_S) & (seen[:, 0] <= first_end_s + _SETTLE_S)
    is_warm = seen[:, 0] > first_end_s + _SETTLE_S
    is_during = np.zeros(len(seen), dtype=np.bool_)
    for checkpoint in checkpoints:
        end_s = checkpoint["at_unix_s"]
        begin_s = end_s - checkpoint["duration_ms"] / 1e3
        is_during |= (seen[:, 0] >= begin_s) & (seen[:, 0] <= end_s + _MARGIN_S)
    return {
        "all": figures(seen[is_warm]),
        "during": figures(seen[is_warm & is_during]),
        "between": figures(seen[is_warm & ~is_during]),
        "first": figures(seen[is_first]),
        "checkpoints": [
            {k: c[k] for k in ("prepared_us", "written_bytes", "state_bytes", "duration_ms")}
            for c in checkpoints
        ],
    }


def figures(seen: np.ndarray) -> dict[str, float]:
    """Percentiles over tuples; a batch's tuples count with the latency of its oldest."""
    if not len(seen):
        return {}
    order = np.argsort(seen[:, 1])
    latencies, weights = seen[order, 1], np.cumsum(seen[order, 2])
    at = [int(np.searchsorted(weights, weights[-1] * share)) for share in (0.5, 0.99)]
    return {
        "p50_ms": round(float(latencies[at[0]]), 3),
        "p99_ms": round(float(latencies[min(at[1], len(latencies) - 1)]), 3),
        "max_ms": round(float(latencies[-1]), 3),
        "tuples": int(weights[-1]),
    }
