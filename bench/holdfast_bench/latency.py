"""Latency at a steady rate, and how soon a started query gives its first output."""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.api.dataflow import Dataflow
from holdfast.api.protections import UpstreamBackup
from holdfast.api.streams import Stream
from holdfast.nexmark.generator import NexmarkConfig
from holdfast.nexmark.queries import build
from holdfast.nexmark.run import NexmarkRun
from holdfast.shell.storage.paths import stream_path
from holdfast.shell.storage.stream_log import StreamLogReader
from holdfast_bench.inputs import record
from holdfast_bench.running import finish, median, wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RATE = 10_000
_BIDS_SHARE = 46 / 50
_WARM_UP_S = 2.0
_TIMEOUT_S = 60.0
_START_TUPLES = 50_000


@dataclass(frozen=True, slots=True)
class LatencySizes:
    """How long and how often.

    Attributes:
        seconds: Length of each run; results of windows need more than the 10 s of one.
        repeats: Runs of each kind.
        changes_seconds: Length of the runs with a result per event; None: the same.
    """

    seconds: float
    repeats: int
    changes_seconds: float | None = None

    def of(self, emit: str) -> float:
        """The length of a run of this kind."""
        if emit == "changes" and self.changes_seconds is not None:
            return self.changes_seconds
        return self.seconds


def measure(spark: SparkSession, sizes: LatencySizes) -> dict[str, Any]:
    """Q12 at `RATE`, once with every change put out, once with final counts per window.

    A short run comes first: the first nodes of a session wait for their processes to start.
    """
    _run(spark, "changes", _WARM_UP_S)
    runs: dict[str, list[dict[str, Any]]] = {"changes": [], "final": []}
    for _ in range(sizes.repeats):
        for emit, found in runs.items():
            found.append(_run(spark, emit, sizes.of(emit)))
    return {
        "tuples_per_s": RATE,
        "seconds": sizes.seconds,
        "emit": {
            emit: {
                "p50_ms": median(run["latency_ms"]["p50"] for run in found),
                "p99_ms": median(run["latency_ms"]["p99"] for run in found),
                "max_ms": max(run["latency_ms"]["max"] for run in found),
                "runs": found,
            }
            for emit, found in runs.items()
        },
    }


def _run(spark: SparkSession, emit: str, seconds: float) -> dict[str, Any]:
    events = int(RATE * seconds / _BIDS_SHARE) // 50 * 50
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        flow, _ = NexmarkRun("q12", events, RATE, 1, UpstreamBackup(), emit).flow()
        query = flow.start(spark, checkpointLocation=folder, protection=UpstreamBackup())
        cpu_s = finish(query, f"latency, {emit}", seconds + _TIMEOUT_S)
        progress = query.lastProgress
        return {
            "latency_ms": progress["latencyMs"],
            "histogram": query.latency().upper_edges(),
            "tuples": progress["numInputRows"],
            "output_tuples": progress["numOutputRows"],
            "cpu_s": cpu_s,
        }


def start_time(spark: SparkSession, repeats: int) -> dict[str, Any]:
    """From `flow.start` to the first tuple in the sink's log, on a session that is up."""
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        log = record("bid", _START_TUPLES, NexmarkConfig(), Path(folder)).log
        seconds = [_start(spark, log, f"{folder}/{number}") for number in range(repeats)]
    return {"runs_s": seconds, "median_s": median(seconds), "max_s": max(seconds)}


def _start(spark: SparkSession, log: str, location: str) -> float:
    def source(flow: Dataflow, kind: str) -> Stream:
        return flow.source_log(log, name=f"{kind}s", unit="ingest")

    flow = build("q12", source, emit="changes")
    reader = StreamLogReader(stream_path(location, "q12", 0))
    started_s = time.monotonic()
    query = flow.start(spark, checkpointLocation=location, protection=UpstreamBackup())
    try:
        wait_until(query, lambda: bool(reader.poll(1, 1)), "start: the first output", _TIMEOUT_S)
        seconds = round(time.monotonic() - started_s, 3)
        finish(query, "start", _TIMEOUT_S)
    finally:
        query.stop()
        reader.close()
    return seconds
