"""The main job measured: throughput, latency, recovery, cost of protection, start.

Every experiment runs what it compares in turn, on the same input, and keeps all single results
beside their medians. Nothing is compared with a number from another day.
"""

from __future__ import annotations

import os
import platform
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from holdfast.errors import HoldfastError
from holdfast_bench import frames, latency, recovery, throughput
from holdfast_bench.frames import FramesSizes
from holdfast_bench.latency import LatencySizes
from holdfast_bench.recovery import RecoverySizes
from holdfast_bench.structured_streaming import Baseline
from holdfast_bench.targets import judge
from holdfast_bench.throughput import Say, Sizes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXPERIMENTS = ("start", "throughput", "latency", "frames", "recovery", "protection")
"""In the order in which they run: starting first, while the session has run nothing."""

CORES = 2


@dataclass(frozen=True, slots=True)
class SpineSizes:
    """How long the experiments take.

    Attributes:
        name: For the report.
        throughput: Input of the four queries.
        protection: Input of those whose protection is priced.
        latency: Length of the latency runs.
        frames: Length of the runs from DataFrame to DataFrame.
        recovery: Kills.
        at_half: Kills at half of the most that the query takes.
        starts: How many queries are started.
    """

    name: str
    throughput: Sizes
    protection: Sizes
    latency: LatencySizes
    frames: FramesSizes
    recovery: RecoverySizes
    at_half: RecoverySizes
    starts: int


FULL = SpineSizes(
    "full",
    Sizes({"q1": 10_000_000, "q3": 1_000_000, "q8": 500_000, "q12": 30_000_000}, 3),
    Sizes({"q12": 60_000_000, "q8": 4_000_000}, 15),
    LatencySizes(20, 2),
    FramesSizes(100, 3),
    RecoverySizes(4, 5),
    RecoverySizes(2, 5),
    6,
)
QUICK = SpineSizes(
    "quick",
    Sizes({"q12": 2_000_000}, 1),
    Sizes({"q12": 8_000_000}, 3),
    LatencySizes(11, 1, changes_seconds=5),
    FramesSizes(5, 1),
    RecoverySizes(1, 2),
    RecoverySizes(1, 2),
    2,
)
"""Less of the same: each run is as in `FULL`, or as long as a window and half of its input."""

QUICK_EXPERIMENTS = ("start", "throughput", "latency", "recovery")
"""The cost of protection is left out: in runs of a second it drowns in their differences."""


def use_cores() -> None:
    """Keep this process, and all it will start, on `CORES` cores where the system can."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])


@contextmanager
def bench_session(name: str, slots: int) -> Iterator[SparkSession]:
    """A silent session of so many task slots on the cores of `use_cores`."""
    from holdfast.driver.session import session

    use_cores()
    spark = session(f"holdfast-bench-{name}", slots)
    spark.sparkContext.setLogLevel("OFF")
    try:
        yield spark
    finally:
        spark.stop()


def run(wanted: tuple[str, ...], sizes: SpineSizes, say: Say) -> dict[str, Any]:
    """Run experiments in a session of their own.

    Returns:
        `machine`, `experiments` (how each was run), `targets`, one entry per experiment, and in
        `failed` the reasons of those that did not end in time, fit for JSON.
    """
    from holdfast.driver.session import session

    use_cores()
    failed: dict[str, str] = {}
    results: dict[str, Any] = {"machine": machine(), "experiments": {}, "failed": failed}
    with Baseline() if "throughput" in wanted else nullcontext() as baseline:
        spark = session("holdfast-bench")
        spark.sparkContext.setLogLevel("OFF")  # A killed task is no news here.
        try:
            for name in EXPERIMENTS:
                if name not in wanted:
                    continue
                began_s = time.monotonic()
                try:
                    results[name] = _run_one(name, spark, baseline, sizes, say)
                    seconds = round(time.monotonic() - began_s, 1)
                    entry = {"size": sizes.name, "sizes": asdict(sizes), "seconds": seconds}
                    results["experiments"][name] = entry
                except HoldfastError as error:  # The others are worth having.
                    failed[name] = str(error)
                    say(f"{name}: {error}")
        finally:
            spark.stop()
    results["targets"] = [asdict(target) for target in judge(results)]
    return results


def merged(former: dict[str, Any], results: dict[str, Any]) -> dict[str, Any]:
    """Results with those experiments of an earlier run that were not repeated."""
    both = {name: former.get(name, {}) | results[name] for name in ("experiments", "failed")}
    both["failed"] = {name: why for name, why in both["failed"].items() if name not in results}
    found = former | results | both
    return found | {"targets": [asdict(target) for target in judge(found)]}


def _run_one(
    name: str, spark: SparkSession, baseline: Baseline | None, sizes: SpineSizes, say: Say
) -> dict[str, Any]:
    if name == "start":
        say(f"{sizes.starts} starts")
        return latency.start_time(spark, sizes.starts)
    if name == "throughput":
        assert baseline is not None
        return throughput.compare(spark, baseline, sizes.throughput, say)
    if name == "latency":
        say(f"q12 at {latency.RATE:,} tuples/s")
        return latency.measure(spark, sizes.latency)
    if name == "frames":
        say(f"DataFrame to DataFrame at {frames.RATE:,} rows/s")
        return frames.measure(spark, sizes.frames)
    if name == "recovery":
        say(f"{sizes.recovery.runs * sizes.recovery.kills} kills of a node with 10 MB of state")
        found = recovery.measure(spark, sizes.recovery)
        say("the same at half of the most that the query takes")
        return {**found, "at_half": recovery.at_half(spark, sizes.at_half)}
    return throughput.cost_of_protection(spark, sizes.protection, say)


_CODE: Final = (":/src", ":/bench", ":/chaos")
"""What is measured and what measures, at the top of the checkout."""


def commit() -> str:
    """The commit of the code that runs, with `+` if files differ from it; empty: no checkout."""
    git = ["git", "-C", str(Path(__file__).parent)]
    named = subprocess.run([*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    if named.returncode != 0:
        return ""
    changes = subprocess.run(
        [*git, "status", "--porcelain", "--untracked-files=no", "--", *_CODE],
        capture_output=True,
        text=True,
    )
    return named.stdout.strip() + ("+" if changes.stdout.strip() else "")


def machine() -> dict[str, Any]:
    """The code that was measured, and what on."""
    import numba
    import pyarrow
    import pyspark

    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "commit": commit(),
        "cores": cores,
        "memory_gib": round(memory / 2**30, 1),
        "load_before": round(os.getloadavg()[0], 1),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "pyspark": pyspark.__version__,
        "pyarrow": pyarrow.__version__,
        "numba": numba.__version__,
    }
