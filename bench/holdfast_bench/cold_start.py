"""From `python` to the last row shown: the README's ten lines, and the same in plain PySpark."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from typing import Any, Final

from holdfast_bench.reporter import table
from holdfast_bench.running import BenchFailed, median

TARGET: Final = 1.5
"""Times the seconds of plain PySpark, at most."""
_ROWS: Final = (
    '"SELECT timestamp_micros(1700000000000000 + id * 100) AS at, id % 1000 AS bidder "'
    '"FROM range(1000000)"'
)
_MARK: Final = "@"
_MARKING: Final = f"""
import time
def mark(what):
    print("{_MARK}", what, time.time(), flush=True)
mark("Python is up")
"""
"""How a script tells that something is done."""
_HOLDFAST: Final = f"""
import holdfast as hf
spark = hf.session()
mark("session")
bids = spark.sql({_ROWS})
flow = hf.Dataflow("bids")
bids = flow.source(bids, name="bids", time="at")
counts = bids.key_by("bidder").window(hf.tumbling("10 seconds"))
counts.aggregate("count(*) AS n", name="counts").sink("counts")
mark("dataflow")
query = flow.start(spark, checkpointLocation=LOCATION)
mark("start")
query.awaitTermination()
mark("the query's end")
print(query.verify())
mark("verify")
query.to_dataframe().show()
mark("show")
"""
_PLAIN: Final = f"""
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
mark("session")
bids = spark.sql({_ROWS})
counts = bids.groupBy("bidder", F.window("at", "10 seconds")).agg(F.count("*").alias("n"))
counts.show()
mark("show")
"""
_AT_EXIT: Final = "exit"
_TIMEOUT_S: Final = 300.0


def measure(repeats: int) -> dict[str, Any]:
    """Run both in turn, each in a process and a JVM of its own.

    Returns:
        Per system the median of `seconds`, and `steps`: how many of them each step took in the
        median; and the `ratio`.
    """
    runs: dict[str, list[dict[str, float]]] = {"holdfast": [], "pyspark": []}
    for _ in range(repeats):
        for name, code in (("holdfast", _HOLDFAST), ("pyspark", _PLAIN)):
            with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
                runs[name].append(_run(_MARKING + code.replace("LOCATION", repr(f"{folder}/q"))))
    seconds = {
        name: round(median(sum(run.values()) for run in found), 2) for name, found in runs.items()
    }
    steps = {
        name: {step: round(median(run[step] for run in found), 2) for step in found[0]}
        for name, found in runs.items()
    }
    ratio = round(seconds["holdfast"] / seconds["pyspark"], 2)
    return {"seconds": seconds, "steps": steps, "ratio": ratio}


def _run(code: str) -> dict[str, float]:
    """How many seconds each step took, from the start of the process to its end."""
    begun_s = time.time()
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    ended_s = time.time()
    if done.returncode:
        raise BenchFailed(f"a cold start failed: {done.stderr[-2000:]}")
    return steps_of(done.stdout, begun_s, ended_s)


def steps_of(said: str, begun_s: float, ended_s: float) -> dict[str, float]:
    """How many seconds each step took, by what a script has printed.

    Args:
        said: Its output, with marks.
        begun_s: When its process began, since 1970.
        ended_s: When that was over.
    """
    marks = [line.split(" ") for line in said.splitlines() if line.startswith(_MARK)]
    moments = [(" ".join(words[1:-1]), float(words[-1])) for words in marks]
    before_s, found = begun_s, {}
    for step, at_s in (*moments, (_AT_EXIT, ended_s)):
        found[step] = at_s - before_s
        before_s = at_s
    return found


def render(found: dict[str, Any]) -> str:
    """The steps of both; empty for a report from before they were measured."""
    if "steps" not in found:
        return ""
    ours, theirs = (found["steps"][name] for name in ("holdfast", "pyspark"))
    rows = [
        (step, *(f"{of[step]:.2f}" if step in of else "-" for of in (ours, theirs)))
        for step in ours
    ]
    shown = "\n" + table(("step", "Holdfast, s", "plain PySpark, s"), rows)
    if "verify" not in ours or "session" not in theirs:
        return shown
    rest_s = found["seconds"]["holdfast"] - ours["verify"]
    return (
        f"{shown}\n`verify` computes all results once more in Spark SQL, for which plain PySpark "
        f"has no counterpart. Without it these are {rest_s / found['seconds']['pyspark']:.2f} "
        f"times. The session alone takes {ours['session']:.1f} and {theirs['session']:.1f} s.\n"
    )
