"""A day's stream, faster than the clock: does what a query keeps stay as it is?

Each micro-batch of Spark's brings half a minute of 3,000 rows/s, as fast as Spark makes them. What
is kept of them, and of the results, is kept for some seconds of the real clock. So what matters of
a day passes in a part of it: all its rows and results, and thousands of commits, files, segments,
restart points and reports.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from holdfast.api.dataflow import Dataflow
from holdfast.api.protections import Checkpointed
from holdfast.api.windows import tumbling
from holdfast_bench.running import BenchFailed, memory_bytes, wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from holdfast.driver.query import Query

ROWS_PER_S: Final = 3_000
BATCH_S: Final = 30
"""Seconds of the stream in a micro-batch."""
_KEPT_S: Final = 5
_LOOK_S: Final = 1.0
_TIMEOUT_S: Final = 120.0
_ALLOWED: Final = 1.25
"""The most of the last third may be so much of the most of the second one."""


def measure(spark: SparkSession, stream_s: float) -> list[dict[str, Any]]:
    """The most of each third of a run: bytes and files of the location, memory of processes.

    It ends after so many seconds of the stream.
    """
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        query = _started(spark, folder)
        try:
            wait_until(query, lambda: all(query.nodes.values()), "day: the nodes", _TIMEOUT_S)
            began_s = time.monotonic()
            looks = _looked(query, Path(folder), stream_s)
            run_s = time.monotonic() - began_s
            recorded_s = _recorded_s(Path(folder))
        finally:
            query.stop()
    thirds = [looks[len(looks) * n // 3 : len(looks) * (n + 1) // 3] for n in range(3)]
    return [
        {
            "at": n + 1,
            "stream_s": recorded_s,
            "run_s": round(run_s),
            **{name: max(look[name] for look in third) for name in third[0]},
        }
        for n, third in enumerate(thirds)
    ]


def _started(spark: SparkSession, folder: str) -> Query:
    reader = spark.readStream.format("rate-micro-batch").option("numPartitions", 1)
    reader = reader.option("rowsPerBatch", ROWS_PER_S * BATCH_S)
    rows = reader.option("advanceMillisPerBatch", 1_000 * BATCH_S).load()
    flow = Dataflow("day")
    stream = flow.source(
        rows.selectExpr("timestamp AS at", "value % 1000 AS key", "value"),
        time="at",
        name="rows",
    )
    windows = stream.key_by("key").window(tumbling("10 seconds"))
    windows.aggregate("count(*) AS n", "sum(value) AS total", name="counts").sink("counts")
    kept = f"{_KEPT_S} seconds"
    return flow.start(
        spark,
        checkpointLocation=folder,
        protection=Checkpointed(interval="1 second"),
        retention={"rows": kept, "counts": kept, "metrics": kept},
        options={
            "spark.holdfast.retentionIntervalMs": "1000",
            "spark.holdfast.metricsIntervalMs": "100",
        },
    )


def _looked(query: Query, folder: Path, stream_s: float) -> list[dict[str, int]]:
    looks = []
    while _recorded_s(folder) < stream_s:
        if query.exception() is not None:
            raise BenchFailed(f"day: {query.exception()}")
        looks.append(_look(query, folder))
        time.sleep(_LOOK_S)  # The time that is measured.
    return looks


def _look(query: Query, folder: Path) -> dict[str, int]:
    disk_bytes = files = 0
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                disk_bytes += os.path.getsize(os.path.join(place, name))
            except FileNotFoundError:  # Removed meanwhile.
                continue
            files += 1
    nodes = [memory_bytes(query.pid(node))["pss"] for node in query.nodes if query.pid(node)]
    driver = memory_bytes(os.getpid())["pss"]
    return {"disk_bytes": disk_bytes, "files": files, "node_bytes": sum(nodes), "driver": driver}


def _recorded_s(folder: Path) -> int:
    """How many seconds of the stream were recorded."""
    names = (folder / "ingest" / "rows" / "commits").glob("*.json")
    return BATCH_S * (1 + max((int(path.stem) for path in names), default=-1))


def verdicts(thirds: list[dict[str, Any]]) -> list[tuple[str, str, str, str]]:
    """What did not grow: its name, the goal, the last third beside the one before, and whether."""
    said = {
        "disk_bytes": "bytes on disk",
        "files": "files",
        "node_bytes": "memory of nodes",
        "driver": "memory of the driver",
    }
    found = []
    for name, text in said.items():
        before, last = thirds[1][name], thirds[2][name]
        share = last / before if before else 1.0
        verdict = "met" if share <= _ALLOWED else "**not met**"
        found.append((text, f"≤ {_ALLOWED:.2f} times", f"{share:.2f} times", verdict))
    return found
