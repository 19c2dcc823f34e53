"""Where the seconds of a query from files into files go: when what had happened, and CPU time."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow.parquet as pq

from holdfast.shell.sinks.file_formats import FORMATS
from holdfast_bench.reporter import table
from holdfast_bench.running import CpuTimes, finish, jvm_cpu_s

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

    from holdfast.driver.query import Query

_BATCH_ROWS: Final = 1 << 17
MOMENTS: Final = ("started", "up", "listed", "first", "last", "over")
COLUMNS: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    "q1": {"bid": ("auction", "bidder", "price", "date_time")},
    "q3": {
        "person": ("id", "name", "city", "state", "date_time"),
        "auction": ("id", "seller", "category", "date_time"),
    },
    "q8": {"person": ("id", "name", "date_time"), "auction": ("id", "seller", "date_time")},
    "q12": {"bid": ("bidder", "date_time")},
}
"""What a query must read of each kind of event."""
_HEADER: Final = (
    *("query", "`start` has returned", "all nodes are up", "input is listed"),
    *("first file of results", "last file", "the query is over", "a thousandth of the input"),
    *("CPU of nodes", "CPU of the driver", "pyarrow alone, CPU"),
)
_SAID: Final = """
## Where the seconds go

Moments of the median run, in seconds since the call of `start`, and CPU seconds up to its end. The
last file is what counts above. A thousandth of the input, in as many files, takes what is the same
for any size. pyarrow alone, in one thread, reads the same columns of the same files and writes the
same results; a query has to do that, and cannot take less than its CPU seconds by all cores.

"""


class Watched:
    """One run, from just before its start."""

    def __init__(self, spark: SparkSession) -> None:
        """Now it is about to start."""
        self._spark = spark
        self._jvm_s, self._own_s = jvm_cpu_s(spark), time.process_time()
        self.began_s = time.time()

    def finish(self, query: Query, what: str, timeout_s: float) -> dict[str, float]:
        """Wait for the end of a query that has just started; its moments, and CPU seconds.

        Raises as `running.finish`.
        """
        started_s, cpu = time.time(), CpuTimes(query)
        nodes = finish(query, what, timeout_s, cpu)
        driver_s = jvm_cpu_s(self._spark) - self._jvm_s + time.process_time() - self._own_s
        found = {"started": self._since(started_s), "over": self._since(time.time())}
        if cpu.up_s is not None:
            found["up"] = self._since(cpu.up_s)
        return found | {
            "cpu_nodes": round(sum(nodes.values()), 2),
            "cpu_driver": round(driver_s, 2),
        }

    def shown(self, location: str, files: list[Path]) -> dict[str, float]:
        """The moments that files tell.

        Args:
            location: The checkpoint location.
            files: Of results, as their readers see them.
        """
        commits = [*Path(location, "ingest").glob("*/commits/*.json")]
        seen = sorted(path.stat().st_ctime for path in files)  # A rename counts.
        return {
            "listed": self._since(max(path.stat().st_ctime for path in commits)),
            "first": self._since(seen[0]),
            "last": self._since(seen[-1]),
        }

    def _since(self, moment_s: float) -> float:
        return round(moment_s - self.began_s, 3)


def by_pyarrow(query: str, inputs: Mapping[str, str], results: list[Path]) -> float:
    """CPU seconds in which pyarrow alone, in one thread, reads and writes what a query does.

    Args:
        query: Of NexMark.
        inputs: The folder of each kind of event.
        results: Files that the query has written.
    """
    spent_s = 0.0
    for kind, columns in COLUMNS[query].items():
        for path in sorted(Path(inputs[kind]).iterdir()):
            began_s = time.thread_time()
            with pq.ParquetFile(path) as found:
                for _ in found.iter_batches(_BATCH_ROWS, columns=list(columns), use_threads=False):
                    pass
            spent_s += time.thread_time() - began_s
    for path in results:
        with pq.ParquetFile(path) as written:
            table = written.read()
        began_s = time.thread_time()
        with Path(os.devnull).open("wb") as nowhere:
            FORMATS["parquet"](table, nowhere)
        spent_s += time.thread_time() - began_s
    return round(spent_s, 2)


def render(queries: Mapping[str, Mapping[str, Any]]) -> str:
    """The section; empty if no query has moments."""
    rows = [
        (
            query.upper(),
            *(_shown(found["moments"].get(name)) for name in MOMENTS),
            _shown(found.get("thousandth_seconds")),
            *(_shown(found["moments"].get(f"cpu_{who}")) for who in ("nodes", "driver")),
            _shown(found.get("pyarrow_cpu_s")),
        )
        for query, found in queries.items()
        if "moments" in found
    ]
    return _SAID + table(_HEADER, rows) if rows else ""


def _shown(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds:.2f}"
