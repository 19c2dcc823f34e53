"""What all experiments share: running a query with a limit, and where its CPU time went."""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.core.model.ids import NodeId
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from holdfast.driver.query import Query

_LOOK_INTERVAL_S = 0.02


class BenchFailed(HoldfastError):
    """An experiment failed or did not end in time."""


class CpuTimes:
    """CPU seconds of a query's nodes since they were first seen; empty where there is no /proc."""

    def __init__(self, query: Query) -> None:
        """Watch the nodes of `query`."""
        self.up_s: float | None = None  # when all of them were first seen, since 1970
        self._query = query
        self._first: dict[tuple[str, int], float] = {}
        self._last: dict[tuple[str, int], float] = {}

    def sample(self) -> None:
        """Look at every node that has a process."""
        nodes = self._query.nodes
        if self.up_s is None and all(nodes.values()):
            self.up_s = time.time()
        for node, pid in nodes.items():
            spent = None if pid is None else cpu_s_of(pid)
            if pid is not None and spent is not None:
                self._first.setdefault((node, pid), spent)
                self._last[(node, pid)] = spent

    @property
    def seconds(self) -> dict[str, float]:
        """Per node, over all its processes."""
        total: dict[str, float] = {}
        for key, last in self._last.items():
            total[key[0]] = round(total.get(key[0], 0.0) + last - self._first[key], 3)
        return total


def cpu_s_of(pid: int) -> float | None:
    """CPU seconds of a process so far; None when it is gone or there is no /proc."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    except OSError:
        return None
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_bytes(pid: int) -> dict[str, int]:
    """`rss` and `pss`, the proportional share, of a process; 0 when it is gone or is not ours."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        lines = []
    found = {line.split(":")[0].lower(): line for line in lines if line.startswith(("Rss", "Pss:"))}
    sizes = {name: int(line.split()[1]) * 1024 for name, line in found.items()}
    return {"rss": 0, "pss": 0} | sizes


def peak_memory_bytes(pid: int) -> int:
    """The most that a process has had of resident memory; 0 when it is gone or nobody says."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(x.split()[1]) * 1024 for x in lines if x.startswith("VmHWM:")), 0)


def jvm_cpu_s(spark: SparkSession) -> float:
    """CPU seconds of a session's JVM so far; 0 where there is no /proc."""
    jvm: Any = spark.sparkContext._jvm
    return cpu_s_of(jvm.java.lang.ProcessHandle.current().pid()) or 0.0


def finish(
    query: Query, what: str, timeout_s: float, cpu: CpuTimes | None = None
) -> dict[str, float]:
    """Wait until a query has ended; the CPU seconds of its nodes.

    Args:
        query: Which one.
        what: It is, for people.
        timeout_s: How long it may take.
        cpu: Watches it, if somebody wants to know more of its nodes.

    Raises:
        BenchFailed: It did not end in time.
        QueryFailedError: It failed.
    """
    cpu = cpu or CpuTimes(query)

    def has_ended() -> bool:
        cpu.sample()
        return not query.isActive

    try:
        wait_until(query, has_ended, f"{what}: the end", timeout_s, every_s=_LOOK_INTERVAL_S)
        query.awaitTermination(timeout_s)
    finally:
        query.stop()
    return cpu.seconds


def wait_until(
    query: Query,
    is_so: Callable[[], bool],
    what: str,
    timeout_s: float,
    *,
    every_s: float = 0.001,
) -> None:
    """Look until something holds.

    Raises:
        BenchFailed: It does not within `timeout_s`; says what every node was doing.
        QueryFailedError: The query failed meanwhile.
    """
    deadline_s = time.monotonic() + timeout_s
    while not is_so():
        error = query.exception()
        if error is not None:
            raise error
        if time.monotonic() > deadline_s:
            nodes = json.dumps(query.status["nodes"], default=str)
            raise BenchFailed(f"{what} did not come within {timeout_s:.0f} s; nodes: {nodes}")
        time.sleep(every_s)  # Leaves the cores to what is waited for.


def node_statistic(query: Query, node: str, name: str) -> int:
    """One counter of a node, as it last reported it; 0 before its first report."""
    value: int = query.status["nodes"][NodeId(node)].get(name, 0)
    return value


def recoveries_of(query: Query, node: str) -> list[dict[str, Any]]:
    """A node's; on a busy machine others may be taken for dead and replaced, too."""
    return [recovery for recovery in query.recoveries if recovery["node"] == node]


def write_whole(path: str | Path, text: str) -> None:
    """Write a file that others look for: they find all of it, or none."""
    draft = Path(f"{path}.draft")
    draft.write_text(text)
    draft.rename(path)


def median(values: Iterable[float]) -> float:
    """The median, rounded to microunits."""
    return round(statistics.median(values), 6)


def grouped(
    points: Iterable[dict[str, Any]], key: Callable[[dict[str, Any]], Any]
) -> dict[Any, list[dict[str, Any]]]:
    """The points by what a function gives for each, in the order in which that comes first."""
    found: dict[Any, list[dict[str, Any]]] = {}
    for point in points:
        found.setdefault(key(point), []).append(point)
    return found
