"""The page of `holdfast bench cec`: targets beside what was measured, tables, plots."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from holdfast_bench.cec import FAST, FAST_PASSES, PASS_TUPLES, SLOW
from holdfast_bench.cec_matrix import RATE as MATRIX_RATE
from holdfast_bench.cec_results import RATE
from holdfast_bench.cec_targets import targets
from holdfast_bench.reached import section
from holdfast_bench.reporter import (
    former_results,
    machine_of,
    new_figure,
    save_figure,
    table,
    write_page,
)

_INTRODUCTION = """\
# Eventual checkpoints, measured

`holdfast bench cec` made this page.

"""
_HOW: Final = ("size", "seconds", "commit", "load_before")
_SHARE_NOTE = """
## Share

Counts and sums per bidder, {keys:,} windows open at a time, in passes of {tuples:,} tuples. `slow`:
windows stay open; `fast`: they close after {passes} passes. `throughput` is that with footprints
over that without, measured in turn, once each window has been opened. A restart point is noted
every 50 ms of work, as by a busy node, or more seldom, so that it leaves half of the share.
`pass_ratio`: how long passes take beside those without; `mark_share`: of the time, for G_open and
R; `check_share`: for G_check. Recovery is from the log: reading, adopting, replaying; predicted by
a node that has never replayed. `check`: a piece of
background work; `on_core`: its time on a core, without that of others there.
`written_per_changed`: bytes of the log for each byte of keys and counts that had changed.

"""
_OBJECTIVE_NOTE = """
## Objectives

A share of 0.05; `windows`: how many groups are open. `slow`: all stay open; `mixed`: windows by
count, of which a few close all the time beside many that stay open. `shortfall`: the node's words
before the failure. Each point is the second recovery of its node, which has measured the first.

"""
_BESIDE_NOTE = """
## Beside others

Each three bids in a row of {keys:,} bidders on Spark tasks at {rate:,.0f} bids/s; the node that
counts is killed {kills} times. Medians of what the query reports. `stored_bytes`: of footprints or
checkpoints, in the end. `p99_ms`: of the results of the last minute before a kill.

"""
_RESULTS_NOTE = """
## Results

{rate:,} tuples/s on Spark tasks into a state of some {state_mb} MB. Every second tuple is of a
window that stays open, the others of windows of ten milliseconds: each that closes has results.
Percentiles, from when the last tuple of a window was due until its result was read in the sink's
log; medians of the runs, in turn. With a share of 0.02, and more to write than there is time for.

"""
_KILLS_NOTE = """
## Kills

The same dataflow under `EventualCheckpoints(recovery=...)`. `met`: from the decision that the node
is lost until it had replayed its input, it took no longer than that. `said_before`: kills where it
did, and the query's progress had said so.

"""
_MATRIX_NOTE = """
## Large states and many windows

Every second tuple of {rate:,} per second is of a window that stays open, the others of windows of
a tenth of a second. Windows collect texts, where they are to be large. The node is killed `kills`
times; `recovery_ms` and `p95_ms` are from the decision that it is lost until it had replayed its
input. `said_before`: kills that missed the objective, where the query's progress had said so;
`shortfall`: its last words before a kill; `advised`: those of the adviser, detection included.
`lap_s`: until each window had been written once behind the fill; None: longer than three minutes.
`memory_mb`: the most that the node's process had. `unplanned`: failures beside the kills.
`results`: of the whole run, compared with arithmetic.

"""


_SHARE_COLUMNS: Final = (
    *("kind", "share", "throughput", "pass_ratio", "mark_share", "check_share"),
    *(
        "median_check_ms",
        "p99_check_ms",
        "longest_check_ms",
        "p99_on_core_ms",
        "longest_on_core_ms",
        "written_bytes",
        "written_per_changed",
    ),
    *("extent_bytes", "extent_tuples", "predicted_ms", "recovery_ms"),
)
_OBJECTIVE_COLUMNS: Final = (
    *("kind", "windows", "state_mb", "objective_ms", "recovery_ms", "predicted_ms", "is_met"),
    "shortfall",
)
_BESIDE_COLUMNS: Final = (
    *("protection", "detected_ms", "restarted_ms", "replayed_ms", "recovered_ms", "stored_bytes"),
    *("longest_standstill_ms", "p99_ms"),
)
_RESULTS_COLUMNS: Final = (
    *("protection", "rate", "runs", "state_mb", "tuples", "p50_ms", "p99_ms", "max_ms"),
)
_KILLS_COLUMNS: Final = (
    *("windows", "state_mb", "objective_ms", "kills", "met", "said_before", "predicted_ms"),
    *("restarted_ms", "replayed_ms", "recovered_ms"),
)
_MATRIX_COLUMNS: Final = (
    *("state_mb", "windows", "objective_ms", "kills", "met", "said_before", "recovery_ms"),
    *("p95_ms", "predicted_ms", "advised", "lap_s", "reached_mb", "extent_mb", "memory_mb"),
    *("unplanned", "results", "failed", "shortfall"),
)


def _columns(points: list[dict[str, Any]], names: tuple[str, ...]) -> str:
    return table(names, [tuple(point.get(name, "") for name in names) for point in points])


def render(results: dict[str, Any]) -> str:
    """The page as Markdown; only what was measured is in it."""
    sizes, text = results["sizes"], _INTRODUCTION
    if "machine" in results:
        text += f"Machine: {machine_of(results)}.\n\n" + table(
            ("experiment", *_HOW),
            [(name, *(e[h] for h in _HOW)) for name, e in results["experiments"].items()],
        )
    text += section(targets(results))
    if "share" in results:
        note = {"keys": sizes["keys"], "tuples": PASS_TUPLES, "passes": FAST_PASSES}
        text += _SHARE_NOTE.format(**note) + _columns(results["share"], _SHARE_COLUMNS)
        text += (
            "\n![Recovery by share](cec-share.png)\n![Throughput by share](cec-throughput.png)\n"
        )
    if "objective" in results:
        text += _OBJECTIVE_NOTE + _columns(results["objective"], _OBJECTIVE_COLUMNS)
    if "beside" in results:
        note = {"keys": sizes["spark_keys"], "rate": sizes["rate"], "kills": sizes["kills"]}
        text += _BESIDE_NOTE.format(**note) + _columns(results["beside"], _BESIDE_COLUMNS)
    if "results" in results:
        note = {"rate": RATE, "state_mb": round(results["results"][0]["state_mb"])}
        text += _RESULTS_NOTE.format(**note) + _columns(results["results"], _RESULTS_COLUMNS)
    if "kills" in results:
        text += _KILLS_NOTE + _columns(results["kills"], _KILLS_COLUMNS)
    if "matrix" in results:
        text += _MATRIX_NOTE.format(rate=MATRIX_RATE)
        text += _columns(results["matrix"], _MATRIX_COLUMNS)
    return text


def write(results: dict[str, Any], folder: Path) -> Path:
    """Write `cec.json`, `cec.md` and plots into a folder; the page's path."""
    page = write_page("cec", results, render(results), folder)
    if "share" in results:
        _plot(results["share"], "recovery_ms", "recovery, ms", folder / "cec-share.png")
        shown = "throughput, part of that without"
        _plot(results["share"], "throughput", shown, folder / "cec-throughput.png")
    return page


def _plot(points: list[dict[str, Any]], name: str, label: str, path: Path) -> None:
    """One figure of all points by share, slow and fast windows."""
    figure, axes = new_figure()
    for kind in (SLOW, FAST):
        mine = [point for point in points if point["kind"] == kind]
        shares = [100 * point["share"] for point in mine]
        axes.plot(shares, [point[name] for point in mine], marker="o", label=kind)
    axes.set_xlabel("share of the node's time, %")
    axes.set_ylabel(label)
    axes.legend(frameon=False)
    save_figure(figure, path)


def former(folder: Path) -> dict[str, Any]:
    """What a page there says."""
    return former_results("cec", folder)


def joined(before: dict[str, Any], results: dict[str, Any]) -> dict[str, Any]:
    """What was measured before, and what was now; of some experiments each point by itself."""
    whole = before | results
    whole["experiments"] = before.get("experiments", {}) | results["experiments"]
    for experiment, name_of in _BY_POINTS.items():
        old, new = (r.get(experiment, []) for r in (before, results))
        now = {_name(point, name_of) for point in new}
        if points := [point for point in old if _name(point, name_of) not in now] + new:
            whole[experiment] = sorted(points, key=lambda point: _name(point, name_of))
    return whole


_BY_POINTS: Final = {
    "objective": ("kind", "windows", "objective_ms"),
    "kills": ("windows", "objective_ms"),
    "matrix": ("state_mb", "windows", "objective_ms"),
}
"""By what points are told of experiments that may be run in pieces."""


def _name(point: dict[str, Any], name_of: tuple[str, ...]) -> tuple[Any, ...]:
    return tuple(point[part] for part in name_of)
