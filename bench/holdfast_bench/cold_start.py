"""From `python` to the last row shown: the README's ten lines, and the same in plain PySpark."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from typing import Any, Final

from holdfast_bench.running import BenchFailed, median

TARGET: Final = 1.5
"""Times the seconds of plain PySpark, at most."""
_ROWS: Final = (
    '"SELECT timestamp_micros(1700000000000000 + id * 100) AS at, id % 1000 AS bidder "'
    '"FROM range(1000000)"'
)
_HOLDFAST: Final = f"""
import holdfast as hf
spark = hf.session()
bids = spark.sql({_ROWS})
flow = hf.Dataflow("bids")
bids = flow.source(bids, name="bids", time="at")
counts = bids.key_by("bidder").window(hf.tumbling("10 seconds"))
counts.aggregate("count(*) AS n", name="counts").sink("counts")
query = flow.start(spark, checkpointLocation=LOCATION)
query.awaitTermination()
print(query.verify())
query.to_dataframe().show()
"""
_PLAIN: Final = f"""
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
bids = spark.sql({_ROWS})
counts = bids.groupBy("bidder", F.window("at", "10 seconds")).agg(F.count("*").alias("n"))
counts.show()
"""
_TIMEOUT_S: Final = 300.0


def measure(repeats: int) -> dict[str, Any]:
    """Run both in turn, each in a process and a JVM of its own; median seconds of each."""
    seconds: dict[str, list[float]] = {"holdfast": [], "pyspark": []}
    for _ in range(repeats):
        for name, code in (("holdfast", _HOLDFAST), ("pyspark", _PLAIN)):
            with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
                seconds[name].append(_run(code.replace("LOCATION", repr(f"{folder}/q"))))
    medians = {name: round(median(times), 2) for name, times in seconds.items()}
    return {"seconds": medians, "ratio": round(medians["holdfast"] / medians["pyspark"], 2)}


def _run(code: str) -> float:
    begun_s = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    if done.returncode:
        raise BenchFailed(f"a cold start failed: {done.stderr[-2000:]}")
    return time.perf_counter() - begun_s
