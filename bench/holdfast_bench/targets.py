"""What the spine promises, beside what was measured."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

THROUGHPUT_RATIOS = {"q1": 3, "q3": 10, "q8": 10, "q12": 20}
"""Multiples of Structured Streaming's throughput."""

LATENCY_P50_MS = 5
LATENCY_P99_MS = 25
RECOVERY_MEDIAN_MS = 500
CATCH_UP_RATIO = 2
"""Time until results are as prompt as before, to that until the first one, at half of the most."""

PROTECTION_RATIO = 0.95
START_S = 5
FRAMES_OWN_P99_MS = 10
_FRAMES = {
    "one": "",
    "spark_last": ", nodes before Spark's session",
    "first": ", nodes before all sessions",
}


@dataclass(frozen=True, slots=True)
class Target:
    """One promise.

    Attributes:
        what: The quantity, for people.
        bound: What it should be at least, or at most.
        is_at_least: Which of the two.
        measured: What it was.
        unit: Of both.
        is_met: Whether the promise was kept.
        is_correctness: Whether it is about right output, not speed.
    """

    what: str
    bound: float
    is_at_least: bool
    measured: float
    unit: str
    is_met: bool
    is_correctness: bool = False


def judge(results: dict[str, Any]) -> list[Target]:
    """The targets of every experiment in `results`."""
    return [
        target
        for name, of_experiment in _JUDGES.items()
        if name in results
        for target in of_experiment(results[name])
    ]


def _at_least(what: str, bound: float, measured: float, unit: str) -> Target:
    return Target(what, bound, True, measured, unit, measured >= bound)


def _at_most(what: str, bound: float, measured: float, unit: str) -> Target:
    return Target(what, bound, False, measured, unit, measured <= bound)


def _identical(what: str, is_identical: bool) -> Target:
    return Target(what, 1, True, int(is_identical), "of 1", is_identical, is_correctness=True)


def _throughput(results: dict[str, Any]) -> Iterator[Target]:
    for query, result in results.items():
        bound, ratio = THROUGHPUT_RATIOS[query], result["ratio"]
        for name, how in (("triggers", "micro-batches"), ("at_once", "one micro-batch")):
            what = f"throughput of {query}, to Structured Streaming in {how}"
            yield _at_least(what, bound, ratio[name], "×")
        yield _identical(f"output of {query} identical to Spark SQL", result["is_identical"])


def _latency(results: dict[str, Any]) -> Iterator[Target]:
    for emit, result in results["emit"].items():
        for name, bound in (("p50", LATENCY_P50_MS), ("p99", LATENCY_P99_MS)):
            yield _at_most(f"latency {name}, emit={emit}", bound, result[f"{name}_ms"], "ms")


def _recovery(results: dict[str, Any]) -> Iterator[Target]:
    measured = results["first_output_ms"]["median"]
    yield _at_most("recovery, median", RECOVERY_MEDIAN_MS, measured, "ms")
    yield _identical("output identical after all kills", results["is_identical"])
    half = results.get("at_half")
    if half is not None:
        ratio = half["catch_up"]["ratio"]
        measured = float("inf") if ratio is None else ratio
        what = "at half of the most: until results are as prompt as before, to the first one"
        yield _at_most(what, CATCH_UP_RATIO, measured, "×")
        yield _identical("output identical after kills at half of the most", half["is_identical"])


def _protection(results: dict[str, Any]) -> Iterator[Target]:
    for query, result in results.items():
        what = f"throughput of {query}, protected to unprotected"
        yield _at_least(what, PROTECTION_RATIO, result["ratio"], "×")


def _start(results: dict[str, Any]) -> Iterator[Target]:
    yield _at_most("start to first output, slowest", START_S, results["max_s"], "s")


def _frames(results: dict[str, Any]) -> Iterator[Target]:
    what = "DataFrame to DataFrame through one unit, Holdfast's own part, p99"
    for variant, how in _FRAMES.items():
        if variant in results["variants"]:
            p99 = results["variants"][variant]["own_ms"]["p99"]
            yield _at_most(what + how, FRAMES_OWN_P99_MS, p99, "ms")


_JUDGES = {
    "throughput": _throughput,
    "latency": _latency,
    "frames": _frames,
    "recovery": _recovery,
    "protection": _protection,
    "start": _start,
}
