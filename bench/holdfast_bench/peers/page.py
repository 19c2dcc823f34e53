"""Results of `bench.py` as a page and plots; only what was measured is in it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from holdfast_bench.peers import topics
from holdfast_bench.peers.peer import (
    HOLDFAST,
    HOLDFAST_REPEATS,
    HOLDFAST_SOON,
    HOLDFAST_WHOLE,
    QUERIES,
)
from holdfast_bench.reporter import Page, how_measured, new_figure, save_figure, table

_INTRODUCTION = """\
# Holdfast beside other stream processors

`holdfast bench peers` made this page. All systems read the same events, written before, on the same
two cores of one machine, in turn, several times, in one run, with fault tolerance on. Each peer has
an environment of its own with pinned versions, made by the benchmark; its script, set up as its own
documentation advises, is in `bench/holdfast_bench/peers/jobs/`. Outputs are compared row by row
with Spark SQL in batch; windows that no event has closed are left out, as systems differ in whether
they show them. What carries over to other machines is ratios.

"""
_FILES_NOTE = """
All read the same Parquet files and write Parquet files: Holdfast by `source_files` and
`sink_files`, a row within 250 ms; Structured Streaming in eight micro-batches; PyFlink with the
jars of its own format, which its package leaves out. The time is a user's: from the call that
starts the query to the last file that shows results, the engine warm as below.
"""
_THROUGHPUT_NOTE = """
Every run is a process of its own. Engines that compile while they run (JVMs, Holdfast) get a whole
run first in the same process, which does not count; systems that would take many minutes read only
the first events. The time of Structured Streaming is the sum of its micro-batches, that of PyFlink
the net run time its job reports, that of Holdfast from the first read to the end of its sink's log;
others are timed from the call that runs their dataflow to their last output. Memory is the greatest
sum of the proportional shares of all processes of a run, a sample every quarter of a second,
warming up included.
"""
_LATENCY_NOTE = """
At shares of each one's own maximum above. Events become visible in small files, one for every
50 ms and kind, by a rename; event time goes as fast as the clock. A result's latency runs from when
the newest event it depends on became visible (Q12: the first event beyond its window) until the
result is visible where the system puts its output. Outputs are looked at every millisecond
(Holdfast), 5 ms (files that grow) or 20 ms (files that appear), so that the latter's figures are up
to that much too high; Holdfast's log only at its size, and it is read afterwards, as it has twenty
times as many results or more. Of Q8 Holdfast, Structured Streaming and Pathway put out a match when
they find it, in the race too; PyFlink and Bytewax when the window has closed, so that theirs count,
like Q12, from the first event beyond it. At half of the maximum all run in turn, several times, and
the run with the median p99 counts; the last column has the p99 of each time, and what share of the
cores' time the host gave to others meanwhile.
"""
_RECOVERY_NOTE = """
Q3 at {rate:,.0f} tuples/s, files as for latency. All processes of a system are killed with SIGKILL
and started again at once, as an ideal supervisor would; of Holdfast, in its first line, the node
that holds the state. The time runs from the kill to the first row that is right and that nobody had
seen before. Rows are compared with Spark SQL at the end, after all kills.
"""
_TOPICS_NOTE = """
JSON from one topic of Kafka to another, each of one partition, the broker on the same two cores;
this is where real-time mode runs. Q12 gives a running count for every bid. The maximum is that of
{bids:,.0f} bids put in at once, from the first of them until the last result has been read, behind
as many that do not count; who puts them in and who reads use the same cores. A result's latency
runs from when the newest bid it depends on was made until a reader of committed records has the
result, and counts from {skipped:.0f} s after the first result, when engines have compiled what they
run: at one rate for all, and at half of each one's own maximum.
Holdfast makes what it reads durable in a log of its own first, and writes each result once, by a
transaction every 50 ms unless told otherwise; with `exactly_once=False` it writes without. So does
Structured Streaming, in either mode: a failure may double results. Its connector is
`{connector}`, the newest that Maven has. In turn as above.
"""
_RECOVERY_RATIO = 10
_LATENCY_RATIO = 10
_FILES_TO_SPARK = {"q1": 5, "q3": 20, "q8": 20, "q12": 20}
_FILES_TO_PYFLINK = 5
_RATIO_TO_SPARK = {"q1": 4, "q3": 20, "q8": 20, "q12": 25}
_RATIO_TO_BEST = {"q1": 2, "q3": 5, "q8": 5, "q12": 5}


def merged(former: dict[str, Any], results: dict[str, Any]) -> dict[str, Any]:
    """Results with those experiments and queries of an earlier run that were not repeated."""
    parts = ("experiments", "peers", *_SECTIONS)
    both = {n: former.get(n, {}) | results.get(n, {}) for n in parts if n in former or n in results}
    for name in _SECTIONS.keys() & both.keys():
        both[name] = dict(sorted(both[name].items(), key=lambda item: _place(item[0])))
    return former | results | both


def _place(query: str) -> int:
    """Where a query stands on the page; what is none goes last."""
    return QUERIES.index(query) if query in QUERIES else len(QUERIES)


def has_wrong_output(results: dict[str, Any]) -> bool:
    """Whether Holdfast put out anything else than Spark SQL. What peers put out is theirs."""
    return not all(
        entry["is_identical"]
        for experiment in ("files", "throughput", "recovery")
        for found in results.get(experiment, {}).values()
        for name, entry in found["systems"].items()
        if name in _OURS
    )


_OURS = {
    peer.name: peer.title for peer in (HOLDFAST, HOLDFAST_WHOLE, HOLDFAST_SOON, HOLDFAST_REPEATS)
}


def _title(results: dict[str, Any], name: str) -> str:
    title: str = _OURS.get(name) or results["peers"][name]["title"]
    return title


# -- what is aimed at -----------------------------------------------------------------------------


def _goals(results: dict[str, Any]) -> str:
    rows = [row for name, goals in _GOALS.items() if name in results for row in goals(results)]
    shown = [
        (what, f"{sign} {bound:g}", f"{got:.3g}", "met" if is_met else "**not met**")
        for what, sign, bound, got, is_met in rows
    ]
    return "\n## Goals\n\n" + table(("ratio", "goal", "measured", ""), shown)


Goal = tuple[str, str, float, float, bool]


def _files_goals(results: dict[str, Any]) -> Iterator[Goal]:
    for query, found in results["files"].items():
        rates = {name: entry["tuples_per_s"] for name, entry in found["systems"].items()}
        what, ours = f"{query} from files into files", rates.pop("holdfast", 0)
        if "spark" in rates:
            yield _least(what, "Structured Streaming", _FILES_TO_SPARK[query], ours, rates["spark"])
        if "pyflink" in rates:
            yield _least(what, "PyFlink", _FILES_TO_PYFLINK, ours, rates["pyflink"])


def _throughput_goals(results: dict[str, Any]) -> Iterator[Goal]:
    for query, found in results["throughput"].items():
        rates = {name: entry["tuples_per_s"] for name, entry in found["systems"].items()}
        ours = rates.pop("holdfast", 0)
        if "spark" in rates:
            yield _least(
                query, "Structured Streaming", _RATIO_TO_SPARK[query], ours, rates["spark"]
            )
        if rates:
            best = max(rates, key=lambda name: rates[name])
            title = f"the best peer, {_title(results, best)}"
            yield _least(query, title, _RATIO_TO_BEST[query], ours, rates[best])


def _least(query: str, whom: str, bound: float, ours: float, theirs: float) -> Goal:
    ratio = ours / theirs
    return f"throughput of {query} to {whom}", "≥", bound, ratio, ratio >= bound


def _latency_goals(results: dict[str, Any]) -> Iterator[Goal]:
    for query, found in results["latency"].items():
        p99 = {
            name: runs["50%"]["p99_ms"] for name, runs in found["systems"].items() if "50%" in runs
        }
        what = f"p99 of {query} at half of the maximum"
        yield from _soonest(results, what, p99, _LATENCY_RATIO)


def _recovery_goals(results: dict[str, Any]) -> Iterator[Goal]:
    for found in results["recovery"].values():
        times = {name: entry["median_ms"] for name, entry in found["systems"].items()}
        times.pop(HOLDFAST_WHOLE.name, None)
        yield from _soonest(results, "recovery", times, _RECOVERY_RATIO)


def _soonest(
    results: dict[str, Any], what: str, times: dict[str, float], ratio: int
) -> Iterator[Goal]:
    """How many times sooner than Structured Streaming, and than the best peer."""
    ours = times.pop(HOLDFAST.name, None)
    if ours is None or not times:
        return
    if "spark" in times:
        got = times["spark"] / ours
        yield f"{what}, Structured Streaming's to Holdfast's", "≥", ratio, got, got >= ratio
    best = min(times, key=lambda name: times[name])
    got = times[best] / ours
    yield (
        f"{what}, that of the best peer, {_title(results, best)}, to Holdfast's",
        ">",
        1,
        got,
        got > 1,
    )


def _topics_goals(results: dict[str, Any]) -> Iterator[Goal]:
    for query, found in results["topics"].items():
        for label in _labels(found):
            p99 = {
                n: runs[label]["p99_ms"] for n, runs in found["systems"].items() if label in runs
            }
            ours = {name: p99.pop(name) for name in _OURS if name in p99}
            rate = "half of the maximum" if label == topics.HALF else label
            for name, guarantee in _GUARANTEES.items():
                if name in ours:
                    what = f"p99 of {query} from topic to topic at {rate}, {guarantee}"
                    times = {HOLDFAST.name: ours[name], **p99}
                    yield from _soonest(results, what, times, _LATENCY_RATIO)


def _labels(found: dict[str, Any]) -> list[str]:
    """The rates at which latencies were measured from topic to topic."""
    return list(dict.fromkeys(label for runs in found["systems"].values() for label in runs))


_GUARANTEES = {
    HOLDFAST_REPEATS.name: "at least once, as the peers",
    HOLDFAST.name: "exactly once, unlike the peers",
}


_GOALS = {
    "files": _files_goals,
    "throughput": _throughput_goals,
    "latency": _latency_goals,
    "recovery": _recovery_goals,
    "topics": _topics_goals,
}


# -- sections -------------------------------------------------------------------------------------


def _peers(results: dict[str, Any]) -> str:
    lines = ["\n## Peers\n\n"]
    for peer in results["peers"].values():
        version = ", ".join(peer["requirements"]) or "as the package needs it"
        notes = [*peer["quirks"], *(f"{query}: {why}" for query, why in peer["refuses"].items())]
        if peer["absent"]:
            notes.append(f"**Not run**: {_one_line(peer['absent'])}")
        lines.append(f"- **{peer['title']}** ({version}). {' '.join(notes)}\n")
    return "".join(lines)


def _files(results: dict[str, Any]) -> str:
    shown = _raced(results, "files")
    return "\n## From files into files\n\n" + shown + _failures(results, "files") + _FILES_NOTE


def _raced(results: dict[str, Any], experiment: str) -> str:
    """Who took how long."""
    rows = []
    for query, found in results[experiment].items():
        ours = found["systems"].get("holdfast", {}).get("tuples_per_s")
        for name, entry in found["systems"].items():
            rate = entry["tuples_per_s"]
            rows.append(
                (
                    query,
                    f"{entry['tuples']:,}",
                    _title(results, name),
                    f"{rate:,}",
                    "" if not ours or name == "holdfast" else f"{ours / rate:.1f} ×",
                    f"{entry['peak_bytes'] / 1e6:,.0f}",
                    _verdict(entry),
                    ", ".join(f"{run['seconds']:.2f}" for run in entry["runs"]),
                )
            )
    header = ("query", "tuples", "system", "tuples/s", "Holdfast's", "MB", "output", "runs, s")
    return table(header, rows)


def _throughput(results: dict[str, Any]) -> str:
    plot = "\n![Throughput of all](peers-throughput.png)\n"
    shown = _raced(results, "throughput") + _failures(results, "throughput")
    return "\n## Throughput\n\n" + shown + _THROUGHPUT_NOTE + plot


def _latency(results: dict[str, Any]) -> str:
    rows = [
        (
            query,
            share,
            *_latency_cells(results, name, run),
        )
        for query, found in results["latency"].items()
        for name, runs in found["systems"].items()
        for share, run in runs.items()
    ]
    header = ("query", "share", *_LATENCY_HEADER)
    plot = "\n![Latency of all](peers-latency.png)\n"
    shown = table(header, rows)
    return "\n## Latency\n\n" + shown + _failures(results, "latency") + _LATENCY_NOTE + plot


def _recovery(results: dict[str, Any]) -> str:
    (found,) = results["recovery"].values()
    rows = [
        (
            _title(results, name),
            f"{entry['median_ms']:,.0f}",
            f"{entry['max_ms']:,.0f}",
            _verdict(entry),
            ", ".join(f"{ms:,.0f}" for ms in entry["times_ms"]),
        )
        for name, entry in found["systems"].items()
    ]
    shown = table(("system", "median ms", "slowest ms", "output", "kills, ms"), rows)
    note = _RECOVERY_NOTE.format(rate=found["tuples_per_s"])
    plot = "\n![Recovery of all](peers-recovery.png)\n"
    return "\n## Recovery\n\n" + shown + _failures(results, "recovery") + note + plot


def _topics(results: dict[str, Any]) -> str:
    rows = [
        (
            query,
            label,
            *_latency_cells(results, name, runs[label]),
        )
        for query, found in results["topics"].items()
        for label in _labels(found)
        for name, runs in found["systems"].items()
        if label in runs
    ]
    maxima = [
        (query, _title(results, name), f"{run['tuples_per_s']:,}", f"{run['seconds']:.2f}")
        for query, found in results["topics"].items()
        for name, run in found["maxima"].items()
    ]
    shown = table(("query", "system", "tuples/s", "s"), maxima) + "\n"
    shown += table(("query", "rate", *_LATENCY_HEADER), rows)
    sizes = results["experiments"]["topics"]["sizes"]["topics"]
    note = _TOPICS_NOTE.format(
        skipped=sizes["skipped_s"], connector=topics.CONNECTOR, bids=sizes["bids"]
    )
    return "\n## Topic to topic\n\n" + shown + _failures(results, "topics") + note


_LATENCY_HEADER = (
    *("system", "tuples/s", "p50 ms", "p99 ms", "max ms", "results"),
    "each run (stolen)",
)


def _latency_cells(results: dict[str, Any], name: str, run: dict[str, Any]) -> tuple[str, ...]:
    """A run under `_LATENCY_HEADER`; an older report has none."""
    return (
        _title(results, name),
        f"{run['tuples_per_s']:,}",
        *(f"{run[part]:,.1f}" for part in ("p50_ms", "p99_ms", "max_ms")),
        f"{run['results']:,}",
        ", ".join(f"{r['p99_ms']:,.0f} ({r['stolen']:.0%})" for r in run.get("runs", [])),
    )


def _verdict(entry: dict[str, Any]) -> str:
    if entry["is_identical"]:
        return "identical"
    outputs = [run["output"] for run in entry.get("runs", [entry])]
    output = max(outputs, key=lambda each: each["lost"] + each["surplus"])
    return (
        f"**not identical**: of {output['expected']:,} rows {output['lost']:,} lost, "
        f"{output['surplus']:,} wrong or doubled"
    )


def _failures(results: dict[str, Any], experiment: str) -> str:
    """Who did not run and why; those absent altogether are named once, above."""
    where: dict[tuple[str, str], list[str]] = {}
    for query, found in results[experiment].items():
        for key, why in found["failures"].items():
            name, _, share = key.partition(" ")
            if not results["peers"].get(name, {}).get("absent"):
                title = _title(results, name)
                reason = _one_line(why).removeprefix(f"{title}, {query}: ")
                where.setdefault((title, reason), []).append(f"{query} {share}".strip())
    lines = [f"- {title}, {', '.join(runs)}: {why}\n" for (title, why), runs in where.items()]
    return "\nDid not run to the end:\n\n" + "".join(lines) if lines else ""


def _one_line(text: str) -> str:
    return " ".join(text.split())


_SECTIONS = {
    "files": _files,
    "throughput": _throughput,
    "latency": _latency,
    "recovery": _recovery,
    "topics": _topics,
}


# -- plots ----------------------------------------------------------------------------------------

_OUR_COLOUR, _THEIR_COLOURS = (
    "#1f6f8b",
    ("#52606d", "#9aa5b1", "#d3dae0", "#8a6d3b", "#c9a86a", "#e8d9b5"),
)


def colours(names: list[str]) -> dict[str, str]:
    """A colour per system, Holdfast's always the same."""
    others = [name for name in names if name != "holdfast"]
    return {"holdfast": _OUR_COLOUR} | {
        n: _THEIR_COLOURS[i % len(_THEIR_COLOURS)] for i, n in enumerate(others)
    }


def _plot_throughput(results: dict[str, Any], folder: Path) -> None:
    rates = {
        query: {name: entry["tuples_per_s"] for name, entry in found["systems"].items()}
        for query, found in results["throughput"].items()
    }
    plot_bars(
        results, rates, "tuples per second", "NexMark on two cores", folder / "peers-throughput.png"
    )


def plot_bars(
    results: dict[str, Any], values: dict[str, dict[str, float]], unit: str, title: str, path: Path
) -> None:
    """A group of bars per query, a bar per system, on a logarithmic axis."""
    figure, axes = new_figure()
    names = [name for name in results["peers"] if any(name in f for f in values.values())]
    width, colour = 0.8 / len(names), colours(names)
    for number, name in enumerate(names):
        places = [
            (group + (number - (len(names) - 1) / 2) * width, found[name])
            for group, found in enumerate(values.values())
            if name in found
        ]
        if places:
            at, heights = zip(*places, strict=True)
            axes.bar(at, heights, width, color=colour[name], label=_title(results, name))
    axes.set_yscale("log")
    # A bar has a height on a logarithmic axis only if the axis begins below it.
    axes.set_ylim(bottom=min(min(found.values()) for found in values.values() if found) / 2)
    axes.set_xticks(range(len(values)), [query.upper() for query in values])
    axes.set_ylabel(unit)
    axes.set_title(title)
    axes.legend(frameon=False, fontsize=8, loc="lower left", bbox_to_anchor=(0, -0.32), ncols=3)
    save_figure(figure, path)


def _plot_latency(results: dict[str, Any], folder: Path) -> None:
    values = {
        f"{query}\n{share}": {
            name: runs[share]["p99_ms"] for name, runs in found["systems"].items() if share in runs
        }
        for query, found in results["latency"].items()
        for share in sorted({s for runs in found["systems"].values() for s in runs})
    }
    plot_bars(
        results,
        values,
        "p99, ms",
        "Latency at shares of each one's maximum",
        folder / "peers-latency.png",
    )


def _plot_recovery(results: dict[str, Any], folder: Path) -> None:
    (found,) = results["recovery"].values()
    times = {name: entry["median_ms"] for name, entry in found["systems"].items()}
    names = sorted(times, key=lambda name: -times[name])
    figure, axes = new_figure()
    shown = [_OUR_COLOUR if name in _OURS else _THEIR_COLOURS[0] for name in names]
    bars = axes.barh(
        [_title(results, n) for n in names], [times[n] / 1000 for n in names], color=shown
    )
    axes.bar_label(bars, [f"{times[name] / 1000:,.2f} s" for name in names], fontsize=8, padding=3)
    axes.set_xscale("log")
    axes.margins(x=0.15)
    axes.set_xlabel("seconds, median")
    axes.set_title("From kill -9 to the first new right result")
    save_figure(figure, folder / "peers-recovery.png")


_PLOTS = {"throughput": _plot_throughput, "latency": _plot_latency, "recovery": _plot_recovery}


def _head(results: dict[str, Any]) -> str:
    return "".join([_INTRODUCTION, how_measured(results), _goals(results), _peers(results)])


PAGE = Page("peers", _head, _SECTIONS, _PLOTS, takes_all=True)
