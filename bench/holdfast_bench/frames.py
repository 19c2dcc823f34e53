"""From a streaming DataFrame through one stateful unit to a streaming DataFrame."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from holdfast.api.dataflow import Dataflow
from holdfast.api.protections import UpstreamBackup
from holdfast.api.windows import tumbling
from holdfast_bench.disturbance import undisturbed
from holdfast_bench.running import BenchFailed, median, wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RATE = 10_000
_KEYS = 1_000
_PARTITIONS = 1
"""Of the input: each is a Python worker of Spark that writes the log, in every micro-batch."""


@dataclass(frozen=True, slots=True)
class Variant:
    """A dataflow and how it is run.

    Attributes:
        title: For people.
        units: One, or two with the source in a unit of its own, as it is by default.
        niceness: Of its nodes; a negative one is a privilege.
    """

    title: str
    units: int
    niceness: int = 0

    @property
    def is_permitted(self) -> bool:
        """Whether this process may have such a priority, and so those that Spark starts for it."""
        asking = f"import os; os.setpriority(os.PRIO_PROCESS, 0, {self.niceness})"
        asked = subprocess.run([sys.executable, "-c", asking], stderr=subprocess.DEVNULL)
        return asked.returncode == 0


VARIANTS = {
    "one": Variant("source and counts in one unit", 1),
    "first": Variant("the same, spark.holdfast.niceness=-10", 1, niceness=-10),
    "two": Variant("the source in a unit of its own", 2),
}

_UP_ROWS = 3 * RATE
_WARM_BATCHES = 3
_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class FramesSizes:
    """How long and how often.

    Attributes:
        seconds: Length of a run.
        repeats: Runs.
    """

    seconds: float
    repeats: int


def measure(spark: SparkSession, sizes: FramesSizes) -> dict[str, Any]:
    """Running counts per key at `RATE`; both ends are Structured Streaming's micro-batches.

    Returns:
        In `variants`, for each of `VARIANTS` that is permitted: `own_ms`, from the commit of a row
        to the ingest log to its result in the sink's log; `whole_ms`, from the row's creation by
        Spark to the batch of the reading query that has its result.
    """
    runs: dict[str, list[dict[str, Any]]] = {
        name: [] for name, variant in VARIANTS.items() if variant.is_permitted
    }
    for _ in range(sizes.repeats):
        for name, found in runs.items():
            found.append(undisturbed(partial(_run, spark, VARIANTS[name], sizes.seconds)))
    return {
        "tuples_per_s": RATE,
        "seconds": sizes.seconds,
        "variants": {name: _summary(found) for name, found in runs.items()},
    }


def _summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    medians = {
        part: {name: median(run[part][name] for run in runs) for name in ("p50", "p99")}
        for part in ("own_ms", "whole_ms")
    }
    return {**medians, "runs": runs}


def _run(spark: SparkSession, variant: Variant, seconds: float) -> dict[str, Any]:
    rate = spark.readStream.format("rate").option("rowsPerSecond", RATE)
    rows = rate.option("numPartitions", _PARTITIONS).load()
    flow = Dataflow("frames")
    source = flow.source(
        rows.selectExpr("timestamp AS at", f"value % {_KEYS} AS k"), name="rows", time="at"
    )
    source = source.unit("rows") if variant.units == 1 else source
    counts = source.key_by("k").window(tumbling("10 seconds"))
    counts.aggregate("count(*) AS n", "max(at) AS at", emit="changes").sink("counts")
    whole_ms: list[np.ndarray] = []

    def take(batch: DataFrame, _: int) -> None:
        created_us = batch.selectExpr("unix_micros(at) AS at").toArrow()["at"].to_numpy()
        whole_ms.append((time.time() * 1e6 - created_us) / 1e3)

    # A task of Spark's ingest query may still be writing when the query has stopped.
    with tempfile.TemporaryDirectory(
        prefix="holdfast-bench-", ignore_cleanup_errors=True
    ) as folder:
        query = flow.start(
            spark,
            checkpointLocation=f"{folder}/query",
            protection=UpstreamBackup(),
            options={"spark.holdfast.niceness": str(variant.niceness)},
        )
        try:
            wait_until(
                query,
                lambda: query.lastProgress["numInputRows"] >= _UP_ROWS,
                "frames: the first rows",
                _TIMEOUT_S,
            )
            read = spark.readStream.format("holdfast").option("stream", "counts")
            writer = read.load(f"{folder}/query").writeStream.foreachBatch(take)
            reading = writer.option("checkpointLocation", f"{folder}/reading").start()

            def is_warm() -> bool:
                error = reading.exception()
                if error is not None:
                    raise BenchFailed(f"frames: the reading query failed: {error}")
                return len(whole_ms) >= _WARM_BATCHES

            what = "frames: the first micro-batches of the reading query"
            wait_until(query, is_warm, what, _TIMEOUT_S)
            former = query.latency()  # What had waited while Spark's queries came up.
            time.sleep(seconds)  # The time that is measured.
            reading.stop()
            own, progress = query.latency().since(former), query.lastProgress
        finally:
            query.stop()
    newest = np.concatenate(whole_ms[_WARM_BATCHES - 1 :])  # The first have what had waited.
    p50, p99 = np.percentile(newest, (50, 99))
    return {
        "own_ms": own.summary(),
        "whole_ms": {"p50": round(float(p50), 1), "p99": round(float(p99), 1)},
        "tuples": progress["numInputRows"],
    }
