"""The approaches on real Spark tasks: SIGKILL of a primary until the first new output. [HA §7]

The query, the state and the kills are those of bench/recovery.py: 10 MB of counts, the output
compared tuple by tuple in the end, if the approach promises as much. A node is taken for dead after
two missed keep-alives of 50 ms, or as soon as another process of its task says hello.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from holdfast.api.protections import (
    ActiveStandby,
    Amnesia,
    PassiveStandby,
    Protection,
    UpstreamBackup,
)
from holdfast_bench import recovery
from holdfast_bench.recovery import RecoverySizes, said_of_catch_up
from holdfast_bench.reporter import table
from holdfast_bench.running import median

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SLOTS: Final = 6
_DETECTION: Final = {"spark.holdfast.keepAliveMs": "50", "spark.holdfast.keepAliveMisses": "2"}
_PROTECTIONS: Final[dict[str, Protection]] = {
    "ActiveStandby": ActiveStandby(),
    "PassiveStandby": PassiveStandby(),
    "UpstreamBackup": UpstreamBackup(),
    "Amnesia": Amnesia(),
}
APPROACHES: Final = tuple(_PROTECTIONS)
TARGETS_MS: Final = {
    "ActiveStandby": (150, 400),
    "PassiveStandby": (300, 700),
    "UpstreamBackup": (500, 1_000),
    "Amnesia": (300, 700),
}
"""Median and 99th percentile that were set."""


@dataclass(frozen=True, slots=True)
class Kills:
    """So many queries at a rate, in tuples per second, and kills in each."""

    rate: float
    runs: int
    kills: int


def measure(
    spark: SparkSession, wanted: tuple[Kills, ...], say: Callable[[str], None]
) -> list[dict[str, Any]]:
    """Every approach at every rate."""
    found: list[dict[str, Any]] = []
    for each in wanted:
        for name, protection in _PROTECTIONS.items():
            say(f"{name}: {each.runs} queries, {each.kills} kills each, {each.rate:,.0f} tuples/s")
            sizes = RecoverySizes(
                each.runs, each.kills, rate=each.rate, protection=protection, options=_DETECTION
            )
            found.append({"approach": name, **recovery.measure(spark, sizes)})
    return found


def section(found: list[dict[str, Any]]) -> str:
    """The page's part."""
    rows: list[tuple[Any, ...]] = []
    for measured in found:
        name = measured["approach"]
        first, parts = measured["first_output_ms"], measured["reported_median_ms"]
        target = TARGETS_MS[name]
        is_met = first["median"] <= target[0] and first["p99"] <= target[1]
        rows.append(
            (
                name,
                f"{measured['tuples_per_s']:,.0f}",
                len(measured["kills"]),
                f"{first['median']:.0f}",
                f"{first['p99']:.0f}",
                f"{target[0]} / {target[1]}",
                "met" if is_met else "**not met**",
                *(f"{parts[part]:.0f}" for part in ("detected_ms", "restarted_ms", "replayed_ms")),
                *(said_of_catch_up(measured["catch_up"]) if "catch_up" in measured else ("", "")),
                f"{median(kill['replayed_tuples'] for kill in measured['kills']):,.0f}",
                "-" if name == "Amnesia" else "yes" if measured["is_identical"] else "**no**",
            )
        )
    header = (
        *("approach", "tuples/s", "kills", "first output, median ms", "p99 ms", "target ms", ""),
        *("detection", "restart", "replay", "as prompt as before", "× first output"),
        *("tuples replayed", "output identical"),
    )
    return "\n## On Spark tasks\n\n" + table(header, rows) + _NOTE


_NOTE: Final = """
From SIGKILL of the primary of a unit with 10 MB of state (nothing need be left of it under amnesia)
to the first tuple that its successor has written. Detection, restart and replay are medians of what
the query reports; it counts detection from the last sign of life. The log is looked at every 20 ms.
`as prompt as before`: from the last sign of life until half of the results of a report are no later
than 99 of 100 were in the two seconds before, median; nodes report every 20 ms then.
"""
