"""What results while input is missing were to reach, beside what was measured."""

from __future__ import annotations

from collections.abc import Iterator
from operator import itemgetter
from typing import Any, Final

from holdfast_bench.dpc_redo import CHUNK
from holdfast_bench.reached import Reached, reached
from holdfast_bench.running import grouped, median

Points = list[dict[str, Any]]
_WITH_RESULTS: Final = ("bound", "waits", "modes", "chain", "interval", "cost", "crash")
_ALPHA: Final = 0.9
_SHORTEST_MS: Final = 100
_BEYOND_MS: Final = 20
_PAUSE_MS: Final = 100
_STANDSTILL_MS: Final = 2.0
_OF_USUAL: Final = 0.8
_MINUTE: Final = 270_000
"""Tuples of 60 s at 4,500 a second."""
_CORRECTED_MS: Final = 300
_KEPT: Final = 0.97
_MORE_MS: Final = 5.0
_TURN: Final = 2 * CHUNK
"""Tuples that a node is given at a time."""


def targets(results: dict[str, Any]) -> list[Reached]:
    """All figures with a target of which there is a measurement."""
    return [
        *_of_bounds(results.get("bound", [])),
        *_of_results(results),
        *_of_crashes(results.get("crash", [])),
        *_of_standstill(results.get("standstill", [])),
        *_of_corrections(results.get("redo", [])),
        *_of_chains(results.get("chain", [])),
        *_of_throughput(results.get("overhead", [])),
        *_of_latency(results.get("cost", [])),
    ]


def _of_bounds(points: Points) -> Iterator[Reached]:
    for x_ms, of_it in grouped(points, itemgetter("x_ms")).items():
        most_ms = _ALPHA * _SHORTEST_MS + _BEYOND_MS if x_ms == _SHORTEST_MS else x_ms
        for who, figure in (
            ("seen from outside", "delay_new_ms"),
            ("as the query reports", "waited_ms"),
        ):
            worst = max(of_it, key=itemgetter(figure))
            yield reached(
                f"greatest delay, X = {x_ms:,} ms, {who}",
                f"≤ {most_ms:g} ms",
                f"{worst[figure]:g} ms",
                f"in the failure of {worst['silent_s'] * 1000:g} ms; half of all rows come within "
                f"{worst['p50_ms']:.0f} ms",
                is_met=worst[figure] <= most_ms,
            )
    short = [point for point in points if point["silent_s"] * 1000 < _ALPHA * point["x_ms"]]
    if short:
        tentative = [point["tentative"] for point in short]
        yield reached(
            "tentative rows of failures shorter than αX",
            "0",
            f"{sum(tentative)} in {len(short)} failures",
            "a short failure was taken for a long one",
            is_met=not any(tentative),
        )


def _of_results(results: dict[str, Any]) -> Iterator[Reached]:
    runs = [p for name in _WITH_RESULTS for p in results.get(name, []) if "is_identical" in p]
    if runs:
        right = sum(bool(point["is_identical"]) for point in runs)
        yield reached(
            "runs whose stable output is that of Spark SQL",
            "all",
            f"{right} of {len(runs)}",
            "a defect",
            is_met=right == len(runs),
        )


def _of_crashes(points: Points) -> Iterator[Reached]:
    for keep_alive_ms, of_it in grouped(points, itemgetter("keep_alive_ms")).items():
        pause_ms = median(p["pause_ms"] for p in of_it)
        yield reached(
            f"pause at a crash, keep-alives every {keep_alive_ms} ms, median of {len(of_it)}",
            f"≤ {_PAUSE_MS} ms",
            f"{pause_ms:g} ms",
            f"a reader goes over after three keep-alives, {3 * keep_alive_ms} ms",
            is_met=pause_ms <= _PAUSE_MS,
        )
    if points:
        tentative = max(point["tentative"] for point in points)
        yield reached(
            "tentative rows of crashes with a healthy partner",
            "0",
            f"{tentative}",
            "a reader had nobody to go over to",
            is_met=not tentative,
        )


def _of_standstill(points: Points) -> Iterator[Reached]:
    for point in points:
        held_ms = max(point["hold_ms"], point["first_ms"])
        yield reached(
            f"standstill on entering up_failure, {point['state_bytes'] >> 20} MiB",
            f"≤ {_STANDSTILL_MS:g} ms",
            f"{held_ms:.2f} ms",
            "marks of all pages are looked at",
            is_met=held_ms <= _STANDSTILL_MS,
        )


def _of_corrections(points: Points) -> Iterator[Reached]:
    for tuples, of_size in grouped(points, itemgetter("tuples")).items():
        slow = [point for point in of_size if point["share_of_usual"] < _OF_USUAL]
        limit = "; ".join(
            f"{p['reconcile']} from {p['state']:,}: {p['share_of_usual']:.0%}, {p['back_ms']:g} of "
            f"{p['redo_ms']:g} ms to go back"
            for p in slow
        )
        yield reached(
            f"rate of correcting {tuples:,} tuples, to the usual one",
            f"≥ {_OF_USUAL:.0%}",
            f"{len(of_size) - len(slow)} of {len(of_size)} do",
            limit,
            is_met=not slow,
        )
    many = [point for point in points if point["tuples"] >= _MINUTE]
    if many:
        tuples = min(point["tuples"] for point in many)
        took_ms = max(point["redo_ms"] for point in many if point["tuples"] == tuples)
        yield reached(
            f"60 s of failure at 4,500 tuples/s corrected, measured with {tuples:,} tuples",
            f"≤ {_CORRECTED_MS} ms",
            f"at most {took_ms:g} ms",
            "processing",
            is_met=took_ms <= _CORRECTED_MS,
        )


def _of_chains(points: Points) -> Iterator[Reached]:
    found = {
        (point["chain"], point["nodes"]): point
        for point in points
        if point["combination"] == "process & process" and "chain" in point
    }
    for nodes in sorted(nodes for chain, nodes in found if chain == "once"):
        if ("each", nodes) in found:
            ours, papers = found["once", nodes], found["each", nodes]
            yield reached(
                f"tentative rows of a chain of {nodes}, process & process",
                f"≤ {papers['tentative']:,}, as the paper's scheme gives here",
                f"{ours['tentative']:,}",
                f"a partner corrects for {ours['stabilization_ms']:,} ms, and for "
                f"{papers['stabilization_ms']:,} in the paper's scheme; meanwhile who serves goes "
                "on with tentative rows",
                is_met=ours["tentative"] <= papers["tentative"],
            )


def _of_throughput(points: Points) -> Iterator[Reached]:
    points = [point for point in points if "window" in point]  # Earlier runs did not say.
    usual = {
        point["window"]: point["tuples_per_s"]
        for point in points
        if point["protection"] == "UpstreamBackup"
    }
    for point in points:
        if point["protection"] == "UpstreamBackup":
            continue
        before, share = usual[point["window"]], point["throughput"]
        turn_us = _TURN * 1e6 / before
        more_us = turn_us * (1 / share - 1)
        yield reached(
            f"throughput, replicas=1, {point['protection']}, windows of {point['window']:,} tuples",
            f"≥ {_KEPT:.0%}",
            f"{share:.1%}",
            f"{more_us:.0f} µs for each {_TURN:,} tuples, which take {turn_us:.0f} µs "
            "without: what each input promises is looked at, and what is kept for a correction is "
            "noted",
            is_met=share >= _KEPT,
        )


def _of_latency(points: Points) -> Iterator[Reached]:
    found = {point["protection"]: point["p50_ms"] for point in points}
    usual_ms = found.pop("UpstreamBackup", None)
    if usual_ms is None:
        return
    for protection, ms in found.items():
        more_ms = ms - usual_ms
        yield reached(
            f"latency at 10,000 tuples/s, {protection}, beside UpstreamBackup, medians",
            f"≤ {_MORE_MS:g} ms more",
            f"{more_ms:.1f} ms more",
            f"{ms:.1f} ms beside {usual_ms:.1f}; two replicas share the cores with their source",
            is_met=more_ms <= _MORE_MS,
        )
