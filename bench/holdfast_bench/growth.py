"""Throughput and latency as the work grows: keys and state, parallelism, units in a chain, rate.

Every point is runs of a counting dataflow over generated bids, some as fast as they go, one at a
steady rate. What a point changes is all that differs.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from holdfast.api.dataflow import Dataflow
from holdfast.api.protections import UpstreamBackup
from holdfast.api.streams import Stream
from holdfast.api.windows import tumbling
from holdfast.nexmark.generator import NexmarkConfig
from holdfast.nexmark.queries import build
from holdfast.nexmark.source import NexmarkSource, now_us
from holdfast_bench import day, idle
from holdfast_bench.disturbance import STOLEN_MAX, TRIES, undisturbed
from holdfast_bench.idle import IdleSizes
from holdfast_bench.inputs import Marked, first_read_s
from holdfast_bench.preloaded import WINDOW, PreloadedBids
from holdfast_bench.reporter import (
    former_results,
    machine_of,
    new_figure,
    save_figure,
    table,
    write_page,
)
from holdfast_bench.running import BenchFailed, finish, node_statistic, write_whole
from holdfast_bench.spine import machine, use_cores
from holdfast_bench.throughput import Say, last_written_s

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from holdfast.driver.query import Query

RATE: Final = 10_000
"""Tuples per second of the runs at a steady rate, but where the rate is what grows."""

_TIMEOUT_S = 600.0
_ALLOWANCE_US = 2_000_000
_MUCH_STATE: Final = {"spark.holdfast.stateBytesMax": str(8 << 30)}
_MANY_KEYS: Final = 1_000_000
_MORE = 10_000_000
"""Bids after those that bring the keys."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """The points of every experiment.

    Attributes:
        name: For the report.
        keys: Bidders in one window.
        parallelism: Instances of every unit.
        units: Units in a chain.
        batch_tuples: Tuples that a node processes at a time at most.
        rates: Tuples per second; the maximum comes beside them from the runs without a rate.
        tuples: Of runs as fast as they go.
        repeats: How often those run; the median counts. Once, with more than `_MANY_KEYS`.
        seconds: Of runs at a steady rate.
        idle: Of the dataflows that have next to nothing to do.
        day: Seconds of the stream that is run faster than the clock.
    """

    name: str
    keys: tuple[int, ...]
    parallelism: tuple[int, ...]
    units: tuple[int, ...]
    batch_tuples: tuple[int, ...]
    rates: tuple[int, ...]
    tuples: int
    repeats: int
    seconds: float
    idle: IdleSizes
    day: float


FULL: Final = Sizes(
    "full",
    (1_000, 10_000, 100_000, 1_000_000, 10_000_000, 80_000_000),
    (1, 2, 4),
    (1, 2, 4, 8),
    (64, 512, 4_096, 1 << 16, 1 << 18),
    (100, 1_000, 10_000, 100_000, 1_000_000, 4_000_000),
    10_000_000,
    3,
    15.0,
    IdleSizes(20.0, (0, 10, 100)),
    86_400.0,
)
QUICK: Final = Sizes(
    "quick",
    (1_000, 100_000),
    (1, 2),
    (1, 4),
    (512, 1 << 16),
    (1_000, 100_000),
    1_000_000,
    1,
    4.0,
    IdleSizes(5.0, (0, 100)),
    1_800.0,
)
EXPERIMENTS: Final = ("idle", "keys", "parallelism", "units", "batch", "rate", "day")


def run(
    sizes: Sizes,
    say: Say,
    *,
    only: tuple[str, ...] = EXPERIMENTS,
    keep: Callable[[dict[str, Any]], None] = lambda results: None,
) -> dict[str, Any]:
    """Measure; the keys of the result are those of the experiments, with a list of points each."""
    from holdfast.driver.session import session

    use_cores()
    began_s = time.monotonic()
    results: dict[str, Any] = {"machine": machine(), "size": sizes.name, "sizes": asdict(sizes)}
    slots = 1 + max(*sizes.units, *(2 * instances for instances in sizes.parallelism))
    spark = session("holdfast-bench-growth", slots)
    spark.sparkContext.setLogLevel("OFF")
    try:
        _measured(spark, _counting(100_000, None, 1), {}, 1, None)  # The first starts processes.
        for name in EXPERIMENTS:
            if name not in only:
                continue
            results[name] = []
            for point in _POINTS[name](spark, sizes):
                say(f"{name}: {json.dumps(point)}")
                results[name].append(point)
            results["seconds"] = round(time.monotonic() - began_s, 1)
            keep(results)
    finally:
        spark.stop()
    return results


# -- the points -----------------------------------------------------------------------------------


def _keys(spark: SparkSession, sizes: Sizes) -> Iterator[dict[str, Any]]:
    for keys in sizes.keys:
        few = keys <= _MANY_KEYS
        repeats, tries = (sizes.repeats, TRIES) if few else (1, 1)
        fast = _median(repeats, partial(_preloaded, spark, keys, None, sizes), tries)
        steady = undisturbed(partial(_preloaded, spark, keys, RATE, sizes), tries)
        yield _point(keys, fast, steady)


def _parallelism(spark: SparkSession, sizes: Sizes) -> Iterator[dict[str, Any]]:
    for instances in sizes.parallelism:
        fast = _fast(spark, _counting(sizes.tuples, None, instances), {}, sizes, instances)
        steady = _counting(int(RATE * sizes.seconds), RATE, instances)
        yield _point(instances, fast, _steady(spark, steady, {}, instances))


def _units(spark: SparkSession, sizes: Sizes) -> Iterator[dict[str, Any]]:
    for units in sizes.units:
        fast = _fast(spark, _chain(sizes.tuples, None, units), {}, sizes)
        steady = _chain(int(RATE * sizes.seconds), RATE, units)
        yield _point(units, fast, _steady(spark, steady, {}))


def _batch(spark: SparkSession, sizes: Sizes) -> Iterator[dict[str, Any]]:
    for tuples in sizes.batch_tuples:
        options = {"spark.holdfast.passTuples": str(tuples)}
        fast = _fast(spark, _counting(sizes.tuples, None, 1), options, sizes)
        steady = _counting(int(RATE * sizes.seconds), RATE, 1)
        yield _point(tuples, fast, _steady(spark, steady, options))


def _rate(spark: SparkSession, sizes: Sizes) -> Iterator[dict[str, Any]]:
    for rate in sizes.rates:
        steady = _counting(max(1, int(rate * sizes.seconds)), rate, 1)
        yield _point(rate, _steady(spark, steady, {}))
    yield _point("maximum", _fast(spark, _counting(sizes.tuples, None, 1), {}, sizes))


def _idle(spark: SparkSession, sizes: Sizes) -> Iterator[dict[str, Any]]:
    yield from idle.measure(spark, sizes.idle)


def _day(spark: SparkSession, sizes: Sizes) -> Iterator[dict[str, Any]]:
    yield from day.measure(spark, sizes.day)


_POINTS: Final[dict[str, Callable[[Any, Sizes], Iterator[dict[str, Any]]]]] = {
    "idle": _idle,
    "keys": _keys,
    "parallelism": _parallelism,
    "units": _units,
    "batch": _batch,
    "rate": _rate,
    "day": _day,
}


# -- the dataflows --------------------------------------------------------------------------------

Flow = Callable[[str], tuple[Dataflow, int]]
"""Makes a dataflow, given a folder for marks of first reads, and says how many tuples it reads."""


def _bids(tuples: int, rate: float | None) -> NexmarkSource:
    config = NexmarkConfig(events_per_second=int((rate or RATE) * 50 / 46) or 1)
    return NexmarkSource("bid", tuples, config, rate, now_us() + _ALLOWANCE_US)


def _counting(tuples: int, rate: float | None, instances: int) -> Flow:
    """Q12 with a result per event at a steady rate, and one per window otherwise."""

    def make(marks: str) -> tuple[Dataflow, int]:
        def source(flow: Dataflow, kind: str) -> Stream:
            bids = Marked(_bids(tuples, rate), marks)
            return flow.source_generator(bids, name="bids", unit="ingest", partitions=instances)

        return build("q12", source, emit="changes" if rate else "final"), tuples

    return make


def _chain(tuples: int, rate: float | None, units: int) -> Flow:
    """A source and so many units one after the other that each make new tuples of all they get."""

    def make(marks: str) -> tuple[Dataflow, int]:
        flow = Dataflow("chain")
        bids = Marked(_bids(tuples, rate), marks)
        stream = flow.source_generator(bids, name="bids", unit="ingest")
        for number in range(units):
            stream = stream.unit(f"unit{number}")
            stream = stream.select("auction", "bidder", "price + 1 AS price", "date_time")
        stream.sink("q12")
        return flow, tuples

    return make


def _preloaded(spark: SparkSession, keys: int, rate: int | None, sizes: Sizes) -> dict[str, Any]:
    """Counts over so many bidders in one window, all known before the rate begins."""
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        end = Path(folder) / "end"
        origin_us = now_us() + _ALLOWANCE_US + 2 * keys
        total = keys + (_MORE if rate is None else int(rate * sizes.seconds))
        source = PreloadedBids(keys, rate or RATE, origin_us, str(end))
        if rate is None:
            end.write_text(str(total))
        flow = Dataflow("preloaded")
        marks = _marks(folder)
        bids = flow.source_generator(Marked(source, marks), name="bids", unit="ingest")
        counted = bids.key_by("bidder").window(tumbling(WINDOW))
        emit = "final" if rate is None else "changes"
        counted.aggregate("count(*) AS bids", name="counts", emit=emit).sink("q12")
        began_s = time.time()
        query = _start(spark, flow, f"{folder}/run", _MUCH_STATE)
        state_bytes = 0
        try:
            while query.isActive:
                state_bytes = max(state_bytes, node_statistic(query, "counts[0]", "state_bytes"))
                has_all = source.due()[0] >= total
                if rate is not None and has_all and not end.exists():
                    write_whole(end, str(total))
                if time.time() - began_s > _TIMEOUT_S:
                    raise BenchFailed(f"{keys} keys: no end within {_TIMEOUT_S:.0f} s")
                time.sleep(0.05)  # Nodes report their state twice a second.
            if query.exception() is not None:
                raise BenchFailed(f"{keys} keys: {query.exception()}")
            found = _result(query, folder, total, rate)
        finally:
            query.stop()
        return found | {"state_bytes": state_bytes}


def _marks(folder: str) -> str:
    marks = Path(folder) / "marks"
    marks.mkdir()
    return str(marks)


def _start(
    spark: SparkSession, flow: Dataflow, location: str, options: dict[str, str], instances: int = 1
) -> Query:
    return flow.start(
        spark,
        checkpointLocation=location,
        protection=UpstreamBackup(),
        parallelism=instances,
        options=options,
    )


def _fast(
    spark: SparkSession, make: Flow, options: dict[str, str], sizes: Sizes, instances: int = 1
) -> dict[str, Any]:
    return _median(sizes.repeats, lambda: _measured(spark, make, options, instances, None))


def _median(
    repeats: int, measure: Callable[[], dict[str, Any]], tries: int = TRIES
) -> dict[str, Any]:
    """The run with the median throughput."""
    runs = [undisturbed(measure, tries) for _ in range(repeats)]
    return sorted(runs, key=lambda run: run["seconds"])[repeats // 2]


def _point(at: int | str, *runs: dict[str, Any]) -> dict[str, Any]:
    """What its runs have found; `stolen` is that of the more disturbed one."""
    found: dict[str, Any] = {"at": at}
    for run in runs:
        found |= run
    return found | {"stolen": max(run["stolen"] for run in runs)}


def _steady(
    spark: SparkSession, make: Flow, options: dict[str, str], instances: int = 1
) -> dict[str, Any]:
    return undisturbed(lambda: _measured(spark, make, options, instances, RATE))


def _measured(
    spark: SparkSession, make: Flow, options: dict[str, str], instances: int, rate: int | None
) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        flow, tuples = make(_marks(folder))
        query = _start(spark, flow, f"{folder}/run", options, instances)
        finish(query, "growth", _TIMEOUT_S)
        return _result(query, folder, tuples, rate)


def _result(query: Query, folder: str, tuples: int, rate: int | None) -> dict[str, Any]:
    progress = query.lastProgress
    if rate is not None:
        latency = progress["latencyMs"]
        return {"p50_ms": latency["p50"], "p99_ms": latency["p99"]}
    seconds = last_written_s(f"{folder}/run", "q12") - first_read_s(f"{folder}/marks")
    return {"tuples_per_s": round(tuples / seconds), "seconds": round(seconds, 3)}


# -- the page -------------------------------------------------------------------------------------

_INTRODUCTION = """\
# Cost as work grows

`holdfast bench growth` made this page. Counts per bidder over generated bids with upstream backup;
every point has runs as fast as they go, of which the median counts (with more than a million keys
there is one), and one at {rate:,} tuples/s with a result per event, whose latency runs from an
event's creation to its result in the sink's log. "Stolen" is the share of the cores' time that the
host gave to others meanwhile; a run that lost more than {stolen:.0%} ran again, up to {tries} times
(not with more than a million keys), and the least disturbed one counts.

"""
_ABOUT: Final = {
    "keys": (
        "Keys and state",
        "bidders in one window",
        "All keys come at once, then ten million more bids, or those of the rate; state is the "
        "most that the counting node reported. Up to 100,000 keys the tables lie in the core's own "
        "cache. Beyond, a bid waits for its bucket and its record to come from memory, some 70 ns "
        "instead of 20; and a new key, which also splits a bucket and is written out when the "
        "window closes, takes half a microsecond. That is the knee behind a million: with ten "
        "million keys half of the bids are a key's first. With eighty million, 4.6 GB, nine in ten "
        "are, and what is kept for replay goes to disk.",
    ),
    "parallelism": (
        "Parallelism",
        "instances of every unit",
        "On two cores, which one instance of each unit keeps busy. With more, every bid is sent "
        "by its bidder's hash to one of the counting instances, and each of those puts what comes "
        "from all the others into one order of time: that is what throughput falls by. Four "
        "instances share the same cores, eight processes in all, so that at a steady rate each "
        "waits for its turn; every one has small passes of its own.",
    ),
    "units": (
        "Units in a chain",
        "units",
        "Each is a process that makes new tuples of all it gets. Every one adds the same work, and "
        "with the source's there are more processes than cores from two units on: throughput falls "
        "with their number, and latency grows by what each takes to get its turn.",
    ),
    "batch": (
        "Size of batches",
        "tuples a node processes at a time at most",
        "A pass takes some 0.3 ms whatever is in it, so small ones cost in proportion; from 4,096 "
        "on the tuples themselves cost as much, and beyond 65,536 larger ones gain nothing. "
        "At a steady rate passes have the tuples of a millisecond or two, whatever is allowed.",
    ),
    "rate": (
        "Rate",
        "tuples per second",
        "Passes grow with the rate: each takes what has come during the one before. So the latency "
        "stays that of a few passes until they leave the caches, at a few million tuples a second. "
        "The last point is the maximum, in batch.",
    ),
}


def combined(before: dict[str, Any], results: dict[str, Any]) -> dict[str, Any]:
    """What was measured now beside what stands in a report, each with the machine that it ran on.

    The page's machine stays that of the experiments which were there before.
    """
    if not before:
        return results
    measured = [name for name in EXPERIMENTS if name in results]
    others = before.get("others", {}) | dict.fromkeys(measured, results["machine"])
    return before | {name: results[name] for name in measured} | {"others": others}


def former(folder: Path) -> dict[str, Any]:
    """What an earlier run has left in a folder."""
    return former_results("growth", folder)


def write(results: dict[str, Any], folder: Path) -> Path:
    """Write `growth.json`, `growth.md` and plots into a folder; the page's path."""
    page = write_page("growth", results, render(results), folder)
    for name in EXPERIMENTS:
        if name in results and name in _ABOUT:
            _plot(name, results[name], folder / f"growth-{name}.png")
    return page


def render(results: dict[str, Any]) -> str:
    """The page as Markdown; only what was measured is in it."""
    about = machine_of(results)
    size = f"Size: {results['size']}, {results['seconds']:.0f} s in all."
    introduction = _INTRODUCTION.format(rate=RATE, stolen=STOLEN_MAX, tries=TRIES)
    parts = [introduction, f"Machine: {about}. {size}{_other_machines(results)}\n"]
    parts += [_idle_section(results["idle"])] if "idle" in results else []
    parts += [_section(name, results[name]) for name in _ABOUT if name in results]
    parts += [_day_section(results["day"])] if "day" in results else []
    return "".join(parts)


def _other_machines(results: dict[str, Any]) -> str:
    """Which experiments ran another time."""
    others = results.get("others", {})
    said = [f"{name}: {machine_of({'machine': machine})}" for name, machine in others.items()]
    return f" Measured another time: {'; '.join(said)}." if said else ""


def _day_section(thirds: list[dict[str, Any]]) -> str:
    hours = thirds[0]["stream_s"] / 3600
    rows = [
        (
            ("first", "second", "last")[third["at"] - 1],
            f"{third['disk_bytes'] / 1e6:.1f}",
            third["files"],
            f"{third['node_bytes'] / 1e6:.0f}",
            f"{third['driver'] / 1e6:.0f}",
        )
        for third in thirds
    ]
    return (
        "\n## A day's stream, faster than the clock\n\n"
        f"{day.ROWS_PER_S:,} rows/s, {day.BATCH_S} seconds in each micro-batch, as fast as Spark "
        f"makes them: {hours:.2f} hours of the stream in {thirds[0]['run_s']} s. Rows, results and "
        "metrics are kept for five seconds, and as long as a restart needs them. The most that was "
        "seen in each third of the run:\n\n"
        + table(("third", "MB on disk", "files", "MB of nodes", "MB of the driver"), rows)
        + "\nThe last third beside the one before, in which Spark's own checkpoints have come to "
        "their hundred:\n\n" + table(("what", "goal", "measured", ""), day.verdicts(thirds))
    )


def _idle_section(loads: list[dict[str, Any]]) -> str:
    rows = [
        (
            load["rate"],
            name,
            f"{share:.2%}",
            *(
                f"{load['memory'][name][kind] / 1e6:.0f}" if name in load["memory"] else ""
                for kind in ("pss", "rss")
            ),
        )
        for load in loads
        for name, share in load["cpu_share"].items()
    ]
    shares = [s for n, s in loads[0]["cpu_share"].items() if n in loads[0]["memory"]]
    sizes = [memory["pss"] for memory in loads[0]["memory"].values()]
    goals = [
        (
            "CPU of an idle node",
            f"≤ {idle.CPU_SHARE_MAX:.0%} of a core",
            f"{max(shares):.2%}",
            max(shares) <= idle.CPU_SHARE_MAX,
        ),
        (
            "memory of a node before state",
            f"≤ {idle.MEMORY_BYTES_MAX / 1e6:.0f} MB",
            f"{max(sizes) / 1e6:.0f} MB",
            max(sizes) <= idle.MEMORY_BYTES_MAX,
        ),
    ]
    verdicts = [(*goal[:3], "met" if goal[3] else "**not met**") for goal in goals]
    return (
        "\n## Idle and small loads\n\n"
        + table(("what", "goal", "most measured", ""), verdicts)
        + "\n"
        + table(("tuples/s", "process", "CPU, of a core", "MB", "MB, shared in full"), rows)
        + "\nMB is the proportional share: what processes forked from one share counts once.\n"
    )


def _section(name: str, points: list[dict[str, Any]]) -> str:
    title, what, note = _ABOUT[name]
    rows = [
        (
            _number(point["at"]),
            _number(point.get("tuples_per_s", "")),
            point.get("p50_ms", ""),
            point.get("p99_ms", ""),
            f"{point['state_bytes'] / 1e6:,.1f}" if "state_bytes" in point else "",
            f"{point['stolen']:.0%}" if "stolen" in point else "",
        )
        for point in points
    ]
    shown = table((what, "tuples/s", "p50 ms", "p99 ms", "state MB", "stolen"), rows)
    return f"\n## {title}\n\n{shown}\n{note}\n\n![{title}](growth-{name}.png)\n"


def _number(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def _plot(name: str, points: list[dict[str, Any]], path: Path) -> None:
    figure, axes = new_figure()
    title, what, _ = _ABOUT[name]
    fast = [(p["at"], p["tuples_per_s"] / 1e6) for p in points if "tuples_per_s" in p]
    fast = [(at, rate) for at, rate in fast if not isinstance(at, str)]
    if fast:
        axes.plot(*zip(*fast, strict=True), marker="o", color="#1f6f8b", label="throughput")
        axes.set_ylabel("million tuples per second")
        axes.set_ylim(bottom=0)
    late = axes.twinx() if fast else axes
    slow = [(p["at"], p["p50_ms"], p["p99_ms"]) for p in points if "p99_ms" in p]
    for column, style in ((1, "--"), (2, ":")):
        values = [point[column] for point in slow]
        label = ("p50", "p99")[column - 1]
        late.plot([p[0] for p in slow], values, style, marker=".", color="#c0392b", label=label)
    late.set_ylabel("ms")
    late.set_yscale("log")
    late.yaxis.set_major_formatter("{x:g}")
    late.yaxis.set_minor_formatter("{x:g}")
    axes.set_xscale("log")
    at = [point["at"] for point in points if not isinstance(point["at"], str)]
    axes.set_xticks(at, [f"{value:,}" for value in at])
    axes.minorticks_off()
    axes.set_xlabel(what)
    axes.set_title(title)
    figure.legend(frameon=False, fontsize=8, loc="outside lower center", ncols=3)
    save_figure(figure, path)
