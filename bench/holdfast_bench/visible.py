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
FAST_RATE: Final = 1_000_000
"""Rows per second of the fast run, into a Delta table."""
FAST_P99_MS: Final = 1_000
"""Aimed at, in the fast run."""
_SPARK: Final = next(peer for peer in PEERS if peer.name == "spark")
_OURS: Final = Peer(
    "files-to-log",
    "Holdfast, into its log",
    job="holdfast_files_log_job.py",
    output="log",
    ends=False,
)
_INTO_DELTA: Final = replace(
    _OURS,
    name="files-to-delta",
    title="Holdfast, into a Delta table",
    job="holdfast_files_delta_job.py",
    output="delta",
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
    _INTO_DELTA,
    replace(_SPARK, title="Structured Streaming, into Parquet files"),
)
_INTRODUCTION: Final = f"""
## From a file's rename to its results

Q1 over {RATE:,} rows a second, in a file every 50 ms. A time is from the rename of a file to the
moment in which a reader finds its results: in Holdfast's log, under a file's final name, in a
commit of a Delta table, or in the list that Spark's file sink keeps. Sinks of Holdfast have
`every="50 milliseconds"`. Into a Delta table a row also waits for the commit before its own, and
[a commit takes longer](../measured.md) the more files the table has. The last line is of
{FAST_RATE:,} rows a second.

"""


@dataclass(frozen=True, slots=True)
class VisibleSizes:
    """How long.

    Attributes:
        repeats: How often all run; the run with the median p99 counts.
        seconds: Length of the part that counts.
        skipped_s: What goes before it.
        fast_s: Length of that part of the fast run.
    """

    repeats: int
    seconds: float
    skipped_s: float
    fast_s: float


FULL: Final = VisibleSizes(2, 20.0, 5.0, 10.0)
QUICK: Final = VisibleSizes(1, 3.0, 1.0, 2.0)


def measure(sizes: VisibleSizes, say: Say) -> dict[str, Any]:
    """By system: percentiles in milliseconds; `failures` says why some are not there.

    `fast` is that of the Delta table at `FAST_RATE`, in a run of its own.
    """
    times = LatencySizes(("q1",), (), sizes.repeats, sizes.seconds, sizes.skipped_s, 20_000)

    def once(peer: Peer, _: int, rate: int = RATE) -> dict[str, Any]:
        own = times if rate == RATE else replace(times, seconds=sizes.fast_s)
        return counted(partial(latency.run_at, peer, Path(sys.executable), "q1", rate, own))

    fast = partial(once, rate=FAST_RATE)
    runs, failures = alternate("rename to result", sizes.repeats, SYSTEMS, once, say)
    fast_runs, not_fast = alternate("a million rows", sizes.repeats, (_INTO_DELTA,), fast, say)
    return {
        "systems": {name: median_run(found) for name, found in runs.items()},
        "fast": {name: median_run(found) for name, found in fast_runs.items()},
        "failures": failures | {f"fast {name}": why for name, why in not_fast.items()},
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
        rows.append((peer.title, *_times(found), _judged(peer, found, systems.get(_SPARK.name))))
    title = f"{_INTO_DELTA.title}, {FAST_RATE:,} rows/s"
    for found in results.get("fast", {}).values():
        rows.append((title, *_times(found), _verdict(found, FAST_P99_MS)))
    if why := results["failures"].get(f"fast {_INTO_DELTA.name}"):
        rows.append((title, "-", "-", "-", why))
    header = ("system", "p50, ms", "p99, ms", "most, ms", "target of p99, at most")
    return _INTRODUCTION + table(header, rows)


def _judged(peer: Peer, found: dict[str, Any], spark: dict[str, Any] | None) -> str:
    if peer.name == _SPARK.name or (peer.name != _OURS.name and spark is None):
        return "-"
    most = LOG_P99_MS if peer.name == _OURS.name else (spark or {})["p99_ms"] * SHARE
    return _verdict(found, most)


def _times(found: dict[str, Any]) -> list[str]:
    return [f"{found[name]:,.0f}" for name in ("p50_ms", "p99_ms", "max_ms")]


def _verdict(found: dict[str, Any], most_ms: float) -> str:
    return f"{most_ms:,.0f} ms: {'met' if found['p99_ms'] <= most_ms else 'not met'}"
