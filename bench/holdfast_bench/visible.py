"""From the rename of a user's file to its results: into a log, into files, into a Delta table."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from holdfast_bench.disturbance import counted
from holdfast_bench.peers import latency
from holdfast_bench.peers.alternation import alternate, median_run
from holdfast_bench.peers.latency import LatencySizes
from holdfast_bench.peers.peer import PEERS, Peer
from holdfast_bench.reporter import table

if TYPE_CHECKING:
    from holdfast_bench.throughput import Say

RATE: Final = 10_000
"""Rows per second, in files of 50 ms."""
LOG_P99_MS: Final = 60
"""Aimed at, into the log."""
SHARE: Final = 0.1
"""Aimed at, of Structured Streaming's 99th percentile, into files and tables."""
_SPARK: Final = next(peer for peer in PEERS if peer.name == "spark")
_OURS: Final = Peer(
    "files-to-log",
    "Holdfast, into its log",
    job="holdfast_files_log_job.py",
    output="log",
    ends=False,
)
SYSTEMS: Final = (
    _OURS,
    replace(
        _OURS,
        name="files-to-files",
        title="Holdfast, into Parquet files",
        job="holdfast_files_job.py",
        output="parquet",
    ),
    replace(
        _OURS,
        name="files-to-delta",
        title="Holdfast, into a Delta table",
        job="holdfast_files_delta_job.py",
        output="delta",
    ),
    replace(_SPARK, title="Structured Streaming, into Parquet files"),
)
_INTRODUCTION: Final = f"""
## From a file's rename to its results

Q1 over {RATE:,} rows a second, in a file every 50 ms. A time is from the rename of a file to the
moment in which a reader finds its results: in Holdfast's log, under a file's final name, in a
commit of a Delta table, or in the list that Spark's file sink keeps. Sinks of Holdfast have
`every="50 milliseconds"`. Into a Delta table a row also waits for the commit before its own, and
[a commit takes longer](../measured.md) the more files the table has.

"""


@dataclass(frozen=True, slots=True)
class VisibleSizes:
    """How long.

    Attributes:
        repeats: How often all run; the run with the median p99 counts.
        seconds: Length of the part that counts.
        skipped_s: What goes before it.
    """

    repeats: int
    seconds: float
    skipped_s: float


FULL: Final = VisibleSizes(2, 20.0, 5.0)
QUICK: Final = VisibleSizes(1, 3.0, 1.0)


def measure(sizes: VisibleSizes, say: Say) -> dict[str, Any]:
    """By system: percentiles in milliseconds; `failures` says why some are not there."""
    times = LatencySizes(("q1",), (), sizes.repeats, sizes.seconds, sizes.skipped_s, 20_000)

    def once(peer: Peer, _: int) -> dict[str, Any]:
        run = partial(latency.run_at, peer, Path(sys.executable), "q1", RATE, times)
        return counted(run)

    runs, failures = alternate("rename to result", sizes.repeats, SYSTEMS, once, say)
    return {
        "systems": {name: median_run(found) for name, found in runs.items()},
        "failures": failures,
    }


def render(results: dict[str, Any]) -> str:
    """The section as Markdown."""
    systems = results["systems"]
    rows: list[tuple[str, ...]] = []
    for peer in SYSTEMS:
        found = systems.get(peer.name)
        if found is None:
            rows.append((peer.title, "-", "-", "-", results["failures"].get(peer.name, "-")))
            continue
        numbers = (f"{found[name]:,.0f}" for name in ("p50_ms", "p99_ms", "max_ms"))
        rows.append((peer.title, *numbers, _judged(peer, found, systems.get(_SPARK.name))))
    header = ("system", "p50, ms", "p99, ms", "most, ms", "target of p99, at most")
    return _INTRODUCTION + table(header, rows)


def _judged(peer: Peer, found: dict[str, Any], spark: dict[str, Any] | None) -> str:
    if peer.name == _SPARK.name or (peer.name != _OURS.name and spark is None):
        return "-"
    most = LOG_P99_MS if peer.name == _OURS.name else (spark or {})["p99_ms"] * SHARE
    return f"{most:,.0f} ms: {'met' if found['p99_ms'] <= most else 'not met'}"
