"""The experiments in pieces: each command measures some, and keeps what others have found."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from holdfast_bench.checkmate import runs, scale
from holdfast_bench.checkmate.dataflows import PROTOCOLS, QUERIES
from holdfast_bench.checkmate.runs import FULL, QUICK, Sizes
from holdfast_bench.spine import bench_session, machine
from holdfast_bench.throughput import Say

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "EXPERIMENTS",
    "FULL",
    "HOT_RATIOS",
    "PROTOCOLS",
    "QUERIES",
    "QUICK",
    "Wanted",
    "merged",
    "run",
    "with_repeats",
]

EXPERIMENTS: Final = ("throughput", "failure", "kills", "standstill", "skew", "cyclic", "scale")
FIXED: Final = " fixed"
"""Behind the share of hot items that do not change."""
HOT_RATIOS: Final = (0.1, 0.2, 0.3)
_SLOTS: Final = 32


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a command measures.

    Attributes:
        experiments: Of `EXPERIMENTS`.
        queries: Of `QUERIES`.
        workers: Instances of every unit, one after the other.
        protocols: Of `cyclic`, `kills` and `standstill`.
        hot: Shares of events that refer to a hot item, of `skew`.
        is_hot_fixed: Whether that is the same one for ever.
    """

    experiments: tuple[str, ...] = EXPERIMENTS
    queries: tuple[str, ...] = QUERIES
    workers: tuple[int, ...] = (1,)
    protocols: tuple[str, ...] = PROTOCOLS[1:]
    hot: tuple[float, ...] = HOT_RATIOS
    is_hot_fixed: bool = False


Point = tuple[tuple[str, ...], Callable[[], dict[str, Any]]]
"""Where a point stands in the results, and how it is measured."""


def run(
    wanted: Wanted, sizes: Sizes, say: Say, keep: Callable[[dict[str, Any]], None]
) -> dict[str, Any]:
    """Measure; per experiment, and in it by what it varies, what was found, fit for JSON.

    Args:
        wanted: What.
        sizes: How much.
        say: Tells people.
        keep: Told of all results after each point: whoever is ended loses no earlier one.
    """
    found: dict[str, Any] = {"machine": machine()}

    def take(points: Iterable[Point]) -> None:
        for place, measure in points:
            inner = found
            for name in place[:-1]:
                inner = inner.setdefault(name, {})
            inner[place[-1]] = _with_machine(sizes, measure)
            keep(found)

    if "scale" in wanted.experiments:
        take(_simulated(sizes, say))
    if set(wanted.experiments) - {"scale"}:
        with bench_session("checkmate", _SLOTS) as spark:
            take(_on_spark(spark, wanted, sizes, say))
    return found


def _simulated(sizes: Sizes, say: Say) -> Iterator[Point]:
    for workers in sizes.workers:
        say(f"{workers} instances, simulated")
        yield ("scale", str(workers)), partial(scale.measure, workers, sizes.simulated_s)


def _on_spark(spark: SparkSession, wanted: Wanted, sizes: Sizes, say: Say) -> Iterator[Point]:
    ways: dict[str, Callable[..., dict[str, Any]]] = {
        "throughput": runs.throughput,
        "failure": runs.failure,
    }
    alone = {"kills": runs.kills, "standstill": runs.standstill}
    for name, workers in itertools.product(wanted.experiments, wanted.workers):
        at = str(workers)
        if name in ways:
            for query in wanted.queries:
                yield (name, query, at), partial(ways[name], spark, query, workers, sizes, say)
        elif name == "skew":
            for query, hot in itertools.product(wanted.queries, wanted.hot):
                skewed = partial(runs.failure, spark, query, workers, sizes, say, hot_ratio=hot)
                skewed = partial(skewed, is_hot_fixed=wanted.is_hot_fixed)
                yield (name, query, f"{hot:g}{FIXED * wanted.is_hot_fixed}"), skewed
        elif name in alone:
            for protocol in wanted.protocols:
                yield (name, protocol), partial(alone[name], spark, protocol, sizes, say)
        elif name == "cyclic":
            for protocol in wanted.protocols:
                yield (
                    (name, protocol, at),
                    partial(runs.cyclic, spark, protocol, workers, sizes, say),
                )


def _with_machine(sizes: Sizes, measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What was measured, on which code and machine, for how long."""
    on, began_s = machine(), time.monotonic()
    measured = measure()
    on["load_after"] = round(os.getloadavg()[0], 1)
    seconds = round(time.monotonic() - began_s, 1)
    return {"machine": on, "size": sizes.name, "took_s": seconds, **measured}


def merged(former: dict[str, Any], results: dict[str, Any]) -> dict[str, Any]:
    """Results with all that an earlier run has found, and this one has not measured again."""
    whole = dict(former)
    for name, value in results.items():
        is_both = isinstance(value, dict) and isinstance(whole.get(name), dict)
        is_one = "machine" in value if isinstance(value, dict) else True
        whole[name] = value if not is_both or is_one else merged(whole[name], value)
    return whole


def with_repeats(sizes: Sizes, repeats: int | None) -> Sizes:
    """As often as is asked for."""
    if repeats is None:
        return sizes
    return replace(sizes, repeats=repeats, cyclic_repeats=repeats)
