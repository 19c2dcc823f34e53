"""Throughput from log to log, beside Structured Streaming, and what protection costs of it."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.api.dataflow import Dataflow
from holdfast.api.protections import Protection, Unprotected, UpstreamBackup
from holdfast.api.streams import Stream
from holdfast.nexmark.generator import NexmarkConfig
from holdfast.nexmark.queries import KINDS, build
from holdfast_bench.inputs import FILES_PER_TRIGGER, LogInput, Recording, first_read_s, record
from holdfast_bench.running import BenchFailed, finish, jvm_cpu_s, median
from holdfast_bench.structured_streaming import Baseline, digest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARALLELISM = {"q1": 1, "q3": 1, "q8": 1, "q12": 1}
"""Instances of every unit, as is best for Holdfast on two cores."""

_TIMEOUT_S = 300.0

Say = Callable[[str], None]
"""Tells people what is going on."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much each query reads.

    Attributes:
        tuples: Input tuples of all kinds, per query.
        repeats: How often each system runs each query.
    """

    tuples: dict[str, int]
    repeats: int


def recordings(query: str, tuples: int, folder: Path) -> dict[str, Recording]:
    """The query's input of so many tuples of all its kinds."""
    counts = shares_of(query, tuples)
    return {kind: record(kind, count, NexmarkConfig(), folder) for kind, count in counts.items()}


def shares_of(query: str, tuples: int) -> dict[str, int]:
    """How many are of each kind that the query reads; persons to auctions 1 : 3."""
    shares = {"person": 1, "auction": 3} if len(KINDS[query]) == 2 else {"bid": 1}
    return {kind: tuples * share // sum(shares.values()) for kind, share in shares.items()}


def run_holdfast(
    spark: SparkSession,
    query: str,
    inputs: dict[str, Recording],
    protection: Protection,
    *,
    with_digest: bool = False,
) -> dict[str, Any]:
    """One run from log to log.

    Returns:
        `seconds` from the first read to the end of the sink's log, which is written when all
        before it is durable; `seconds_with_start` from `start` on; `tuples`, `output_tuples`,
        `cpu_s` per node and of the driver with its JVM, and, if wanted, the sink's `digest`.
    """
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        marks = Path(folder) / "marks"
        marks.mkdir()
        parallelism = PARALLELISM[query]

        def source(flow: Dataflow, kind: str) -> Stream:
            log = LogInput(inputs[kind].log, str(marks))
            unit = "ingest" if len(inputs) == 1 else f"{kind}s"
            return flow.source_generator(log, name=f"{kind}s", unit=unit, partitions=parallelism)

        started_s = time.time()
        driver_cpu_s = time.process_time() + jvm_cpu_s(spark)
        running = build(query, source).start(
            spark,
            checkpointLocation=f"{folder}/run",
            protection=protection,
            parallelism=parallelism,
        )
        cpu_s = finish(running, f"Holdfast, {query}", _TIMEOUT_S)
        cpu_s["driver"] = round(time.process_time() + jvm_cpu_s(spark) - driver_cpu_s, 3)
        ended_s = last_written_s(f"{folder}/run", query)
        tuples = sum(recording.count for recording in inputs.values())
        progress = running.lastProgress
        if progress["numInputRows"] != tuples:
            raise BenchFailed(f"Holdfast, {query}: read {progress['numInputRows']} of {tuples}")
        return {
            "tuples": tuples,
            "seconds": round(ended_s - first_read_s(str(marks)), 3),
            "seconds_with_start": round(ended_s - started_s, 3),
            "output_tuples": progress["numOutputRows"],
            "cpu_s": cpu_s,
            "digest": digest(running.to_dataframe()) if with_digest else None,
        }


def last_written_s(location: str, sink: str) -> float:
    """When a sink's log was last written, in seconds since the epoch."""
    return max(path.stat().st_mtime for path in Path(location, "streams", sink).rglob("*.seg"))


def compare(spark: SparkSession, baseline: Baseline, sizes: Sizes, say: Say) -> dict[str, Any]:
    """Every query on both systems in turn, over the same events; see `_compare`."""
    results = {}
    for query in sizes.tuples:
        say(f"{query}: {sizes.tuples[query]:,} tuples on both systems")
        with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
            results[query] = _compare(spark, baseline, query, sizes, Path(folder))
    return results


def _compare(
    spark: SparkSession, baseline: Baseline, query: str, sizes: Sizes, folder: Path
) -> dict[str, Any]:
    """Both run once unmeasured, then in turn; Holdfast's last output is checked against Spark SQL.

    Structured Streaming runs in `TRIGGERS` micro-batches and in a single one. That is its fastest
    way, but a batch job's: no result before all input has been read.
    """
    peers = {"triggers": FILES_PER_TRIGGER, "at_once": None}
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in ("holdfast", *peers)}
    inputs = recordings(query, sizes.tuples[query], folder)
    # The JVM compiles what it meets often: only a run of full size warms it up.
    baseline.run(query, _parquet(inputs), timeout_s=_TIMEOUT_S)
    run_holdfast(spark, query, inputs, UpstreamBackup())
    for repeat in range(sizes.repeats):
        is_last = repeat + 1 == sizes.repeats
        ours = run_holdfast(spark, query, inputs, UpstreamBackup(), with_digest=is_last)
        runs["holdfast"].append(ours)
        for name, files in peers.items():
            theirs = baseline.run(
                query, _parquet(inputs), files_per_trigger=files, timeout_s=_TIMEOUT_S
            )
            runs[name].append(theirs)
    expected = baseline.digest(query, _parquet(inputs), timeout_s=_TIMEOUT_S)["digest"]
    tuples = sum(recording.count for recording in inputs.values())
    rates = {n: _rate(tuples, found, "seconds") for n, found in runs.items()}
    rates_with_start = {n: _rate(tuples, found, "seconds_with_start") for n, found in runs.items()}
    return {
        "tuples": tuples,
        "tuples_per_s": rates,
        "tuples_per_s_with_start": rates_with_start,
        "cpu_s": {
            n: median(sum(run["cpu_s"].values()) for run in found) for n, found in runs.items()
        },
        "ratio": {n: round(rates["holdfast"] / rates[n], 2) for n in peers},
        "ratio_with_start": {
            n: round(rates_with_start["holdfast"] / rates_with_start[n], 2) for n in peers
        },
        "is_identical": runs["holdfast"][-1]["digest"] == expected,
        "runs": runs,
    }


def _rate(tuples: int, runs: list[dict[str, Any]], seconds: str) -> float:
    return round(median(tuples / run[seconds] for run in runs))


def _parquet(inputs: dict[str, Recording]) -> dict[str, str]:
    return {kind: recording.parquet for kind, recording in inputs.items()}


def cost_of_protection(spark: SparkSession, sizes: Sizes, say: Say) -> dict[str, Any]:
    """Upstream backup and none in turn, over the same log; medians and their ratio."""
    results = {}
    for query in sizes.tuples:
        say(f"{query}: {sizes.tuples[query]:,} tuples with and without protection")
        with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
            results[query] = _cost(spark, query, sizes, Path(folder))
    return results


def _cost(spark: SparkSession, query: str, sizes: Sizes, folder: Path) -> dict[str, Any]:
    protections = {"upstream_backup": UpstreamBackup(), "none": Unprotected()}
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in protections}
    inputs = recordings(query, sizes.tuples[query], folder)
    run_holdfast(spark, query, inputs, UpstreamBackup())
    for repeat in range(sizes.repeats):
        # Who goes first alternates too: what the run before left to be written back is a burden.
        for name in list(protections) if repeat % 2 else list(protections)[::-1]:
            runs[name].append(run_holdfast(spark, query, inputs, protections[name]))
    rates = {name: _rate(found[0]["tuples"], found, "seconds") for name, found in runs.items()}
    return {
        "tuples": sizes.tuples[query],
        "tuples_per_s": rates,
        "ratio": round(rates["upstream_backup"] / rates["none"], 3),
        "runs": runs,
    }
