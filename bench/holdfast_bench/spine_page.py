"""Results of the spine's experiments as a page: figures beside targets, and plots."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from holdfast_bench.frames import VARIANTS
from holdfast_bench.inputs import TRIGGERS
from holdfast_bench.recovery import said_of_catch_up
from holdfast_bench.reporter import Page, how_measured, new_figure, save_figure, table
from holdfast_bench.targets import RECOVERY_MEDIAN_MS

_INTRODUCTION = """\
# The main job, measured

`holdfast bench spine` made this page. Everything ran on one machine, what is compared in turn;
figures are medians, and a ratio is what carries over to other machines.

"""
_THROUGHPUT_NOTE = f"""
From log to log, on the same two cores and the same events: Holdfast reads its ingest log and writes
its stream log, with upstream backup and precise recovery; Structured Streaming reads and writes
parquet, on a warm JVM of its own, with state in RocksDB, changelog checkpoints and the trigger
`availableNow`, once in {TRIGGERS} micro-batches and once with everything in a single one, which is
its fastest way but gives no result before all input has been read. Holdfast's time runs from the
first read to the end of the sink's log, which is written when all before it is durable; that of
Structured Streaming is the sum of its micro-batches. `with start` counts from the call to the end.
`CPU s` is that of all processes of a system from the call to the end; unlike time it hardly depends
on what else the machine does.
Windows that no later event closes are put out by Holdfast at the end of its input, not by
Structured Streaming in append mode.
Q12 reads three times as many tuples as Q1: with ten million, coming up and finishing would take a
third of Holdfast's 0.3 s. It counts in [parts](../operators.md#aggregates-in-parts) where the log
is read, and Structured Streaming before its shuffle.
"""
_LATENCY_NOTE = """
Q12 at {rate:,} tuples/s for {seconds:g} s, from an event's creation to its result in the sink's
log. `changes` gives a result per event; `final` one per bidder when the window closes, counted from
the newest event that contributed.
"""
_RECOVERY_NOTE = """
Q12 with a result per event over {keys:,} bidders in one window at {rate:,.0f} tuples/s, in {runs}
queries. The node that counts is killed with SIGKILL while it holds at least {state:.1f} MB of
state. The time runs from the kill to the first tuple that its replacement writes, as the driver
sees it in the sink's log. Median {median:.0f} ms, slowest {slowest:.0f} ms. All outputs, compared
tuple by tuple and in order with what they must be, were {verdict}.

`detected`: from the last sign of life until it is taken for lost. `restarted`: from there until the
replacement's first word. `replayed`: from there until the state is rebuilt.
"""
_CATCH_UP_NOTE = """
Medians, both from the last sign of life, as the query reports them. Results are as prompt as before
once half of those of a report are no later than 99 of 100 were in the two seconds before; nodes
report every 20 ms then. Without a rate the query takes {most:,} tuples/s, measured just before. At
half of that a pause of one second leaves a second's work, so twice the first output's time is the
least.
"""
_PROTECTION_NOTE = """
The same query over the same log, with upstream backup and with no protection in turn.
"""


def _targets(targets: list[dict[str, Any]]) -> str:
    rows = [
        (
            target["what"],
            f"{'≥' if target['is_at_least'] else '≤'} {target['bound']:g} {target['unit']}",
            f"{target['measured']:g} {target['unit']}",
            "met" if target["is_met"] else "**not met**",
        )
        for target in targets
    ]
    return "\n## Targets\n\n" + table(("what", "target", "measured", ""), rows)


def _millions(tps: float) -> str:
    return f"{tps / 1e6:.2f} M/s"


_SYSTEMS = {
    "holdfast": "Holdfast",
    "triggers": "Structured Streaming, micro-batches",
    "at_once": "Structured Streaming, all at once",
}


def _throughput(results: dict[str, Any]) -> str:
    rows = []
    for query, result in results.items():
        for system, rate in result["tuples_per_s"].items():
            ratio = result["ratio"].get(system)
            with_start = result["tuples_per_s_with_start"][system]
            ratio_with_start = result["ratio_with_start"].get(system)
            runs = ", ".join(f"{run['seconds']:.2f}" for run in result["runs"][system])
            rows.append(
                (
                    query,
                    f"{result['tuples']:,}",
                    _SYSTEMS[system],
                    _millions(rate),
                    "" if ratio is None else f"{ratio:.1f} ×",
                    _millions(with_start),
                    "" if ratio_with_start is None else f"{ratio_with_start:.1f} ×",
                    f"{result['cpu_s'][system]:.2f}",
                    runs,
                )
            )
    header = (
        "query",
        "tuples",
        "system",
        "throughput",
        "ratio",
        "with start",
        "ratio",
        "CPU s",
        "runs, s",
    )
    plot = "\n![Throughput of both](spine-throughput.png)\n"
    cpu = "\nCPU seconds of Holdfast's nodes in the last run of each query:\n\n"
    cpu_rows = [
        (query, node, seconds)
        for query, result in results.items()
        for node, seconds in result["runs"]["holdfast"][-1]["cpu_s"].items()
    ]
    return (
        "\n## Throughput\n\n"
        + table(header, rows)
        + _THROUGHPUT_NOTE
        + plot
        + cpu
        + table(("query", "node", "CPU s"), cpu_rows)
    )


def _latency(results: dict[str, Any]) -> str:
    rows = [
        (emit, len(r["runs"]), r["p50_ms"], r["p99_ms"], r["max_ms"])
        for emit, r in results["emit"].items()
    ]
    note = _LATENCY_NOTE.format(rate=results["tuples_per_s"], seconds=results["seconds"])
    plot = "\n![Latency](spine-latency.png)\n"
    figures = table(("emit", "runs", "p50 ms", "p99 ms", "max ms"), rows)
    return "\n## Latency\n\n" + figures + note + plot


def _frames(results: dict[str, Any]) -> str:
    parts = {"own_ms": "log to log", "whole_ms": "whole way"}
    rows = [
        (VARIANTS[variant].title, name, found[part]["p50"], found[part]["p99"])
        for variant, found in results["variants"].items()
        for part, name in parts.items()
    ]
    repeats = len(results["variants"]["one"]["runs"])
    return (
        "\n## DataFrame to DataFrame\n\n"
        + table(("dataflow", "part", "p50 ms", "p99 ms"), rows)
        + f"\nRunning counts per key of Spark's rate source at {results['tuples_per_s']:,} rows/s, "
        f"median of {repeats} runs of {results['seconds']:g} s. The whole way goes from a row's "
        "creation to the micro-batch of the query that reads the results; what lies outside the "
        "logs is Structured Streaming's. Its micro-batches bring a second's rows at once, and need "
        "the cores at the same time: the p99 of a run is that of its slowest batches. Nodes may "
        "come before Spark's threads, by a [priority](../settings.md) of their own, which is a "
        "privilege; it helps in most runs, not in all.\n"
    )


def _recovery(results: dict[str, Any]) -> str:
    note = _RECOVERY_NOTE.format(
        keys=results["keys"],
        rate=results["tuples_per_s"],
        runs=len(results["runs"]),
        state=results["state_bytes_min"] / 1e6,
        median=results["first_output_ms"]["median"],
        slowest=results["first_output_ms"]["max"],
        verdict="identical" if results["is_identical"] else "**not identical**",
    )
    parts = ("first_output_ms", "detected_ms", "restarted_ms", "replayed_ms")
    rows = [
        (
            number,
            f"{kill['state_bytes'] / 1e6:.1f}",
            *(kill[part] for part in parts),
            f"{kill['replayed_tuples']:,}",
        )
        for number, kill in enumerate(results["kills"], 1)
    ]
    header = ("kill", "state MB", "first output ms", *(p.replace("_", " ") for p in parts[1:]))
    plot = "\n![Recovery times](spine-recovery.png)\n"
    made = "\n## Recovery\n" + note + "\n" + table((*header, "replayed tuples"), rows) + plot
    return made + _catch_up(results)


def _catch_up(results: dict[str, Any]) -> str:
    """For how long the kills were felt; empty for results from before that was measured."""
    if "at_half" not in results:
        return ""
    rows = [
        (
            f"{found['tuples_per_s']:,.0f}",
            len(found["kills"]),
            f"{found['reported_median_ms']['recovered_ms']:,.0f}",
            *said_of_catch_up(found["catch_up"]),
            "yes" if found["is_identical"] else "**no**",
        )
        for found in (results, results["at_half"])
    ]
    header = ("tuples/s", "kills", "first output ms", "as prompt as before ms", "×", "identical")
    most = results["at_half"]["most_tuples_per_s"]
    return f"\n### Catch-up\n{_CATCH_UP_NOTE.format(most=most)}\n" + table(header, rows)


def _protection(results: dict[str, Any]) -> str:
    rows = [
        (
            query,
            f"{r['tuples']:,}",
            _millions(r["tuples_per_s"]["upstream_backup"]),
            _millions(r["tuples_per_s"]["none"]),
            f"{r['ratio'] * 100:.1f} %",
            len(r["runs"]["none"]),
        )
        for query, r in results.items()
    ]
    header = ("query", "tuples", "upstream backup", "none", "share", "runs each")
    return "\n## Cost of protection\n\n" + table(header, rows) + _PROTECTION_NOTE


def _start(results: dict[str, Any]) -> str:
    runs = ", ".join(f"{seconds:.2f}" for seconds in results["runs_s"])
    return (
        f"\n## Start\n\nFrom `flow.start` to the first tuple in the sink's log: {runs} s. The "
        "first one of a session also starts its Python daemon.\n"
    )


_SECTIONS = {
    "throughput": _throughput,
    "latency": _latency,
    "frames": _frames,
    "recovery": _recovery,
    "protection": _protection,
    "start": _start,
}


# -- plots ----------------------------------------------------------------------------------------


_COLOURS = {"holdfast": "#1f6f8b", "triggers": "#9aa5b1", "at_once": "#cbd2d9"}


def _plot_throughput(results: dict[str, Any], folder: Path) -> None:
    figure, axes = new_figure()
    systems = list(next(iter(results.values()))["tuples_per_s"])
    width = 0.8 / len(systems)
    for number, system in enumerate(systems):
        rates = [result["tuples_per_s"][system] for result in results.values()]
        places = [i + (number - (len(systems) - 1) / 2) * width for i in range(len(rates))]
        bars = axes.bar(places, rates, width, color=_COLOURS[system], label=_SYSTEMS[system])
        axes.bar_label(bars, [f"{rate / 1e6:.2f} M" for rate in rates], fontsize=7, padding=2)
    axes.set_yscale("log")
    axes.set_xticks(range(len(results)), [query.upper() for query in results])
    axes.set_ylabel("tuples per second")
    axes.set_title("NexMark on two cores, log to log")
    axes.legend(frameon=False, fontsize=8, loc="lower left", bbox_to_anchor=(0, -0.28), ncols=3)
    save_figure(figure, folder / "spine-throughput.png")


def _plot_latency(results: dict[str, Any], folder: Path) -> None:
    figure, axes = new_figure()
    for emit, result in results["emit"].items():
        counts: dict[int, int] = {}
        for run in result["runs"]:
            for bucket, count in run["histogram"]:
                counts[bucket] = counts.get(bucket, 0) + count
        total, seen = sum(counts.values()), 0
        edges, shares = [], []
        for edge, count in sorted(counts.items()):
            seen += count
            edges.append(edge / 1000)
            shares.append(seen / total)
        axes.step(edges, shares, where="post", label=f"emit={emit}")
    axes.set_xscale("log")
    axes.set_xlabel("ms from an event's creation to its result in the sink")
    axes.set_ylabel("share of results")
    axes.set_title(f"Latency of Q12 at {results['tuples_per_s']:,} tuples/s")
    axes.legend(frameon=False)
    save_figure(figure, folder / "spine-latency.png")


def _plot_recovery(results: dict[str, Any], folder: Path) -> None:
    figure, axes = new_figure()
    times = [kill["first_output_ms"] for kill in results["kills"]]
    axes.bar(range(1, len(times) + 1), times, color=_COLOURS["holdfast"])
    axes.axhline(RECOVERY_MEDIAN_MS, color="#c0392b", linestyle="--", linewidth=1)
    axes.text(0.5, RECOVERY_MEDIAN_MS, " target for the median", va="bottom", fontsize=8)
    axes.set_xlabel("kill")
    axes.set_ylabel("ms from SIGKILL to the first new output")
    axes.set_title(f"Recovery with at least {results['state_bytes_min'] / 1e6:.1f} MB of state")
    save_figure(figure, folder / "spine-recovery.png")


_PLOTS = {"throughput": _plot_throughput, "latency": _plot_latency, "recovery": _plot_recovery}


def _head(results: dict[str, Any]) -> str:
    failed = results.get("failed", {})
    missing = [f"\n**Not measured**: {name}; {reason}\n" for name, reason in failed.items()]
    return "".join([_INTRODUCTION, how_measured(results), _targets(results["targets"]), *missing])


PAGE = Page("spine", _head, _SECTIONS, _PLOTS)
