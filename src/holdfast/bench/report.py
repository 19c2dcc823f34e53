"""Results of the spine's experiments as a page: figures beside targets, and plots."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

LATENCY_P50_MS = 5
LATENCY_P99_MS = 25
RECOVERY_MEDIAN_MS = 500
PROTECTION_SHARE = 0.95
START_S = 5

_INTRODUCTION = """\
# The main job, measured

`holdfast bench spine` made this page. Everything was run on one machine, one after the other;
throughputs are medians, and the ratio is what carries over to other machines.

"""

_THROUGHPUT_NOTE = """
Log to log on {cores} cores: Holdfast reads its ingest log and writes its stream log with upstream
backup and precise recovery; Structured Streaming reads parquet files and writes parquet, with state
in RocksDB and changelog checkpoints, `availableNow` in {triggers} triggers, on a warm JVM. Neither
side's start is counted: Holdfast's time runs from the first node that is up to the last durable
tuple, Structured Streaming's is the sum of its triggers. Windows that no later event closes are
put out by Holdfast at the end of its input, not by Structured Streaming in append mode.
"""


def write(results: dict[str, Any], folder: Path) -> Path:
    """Write `spine.json`, `spine.md` and its plots into `folder`; the page's path."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "spine.json").write_text(json.dumps(results, indent=1) + "\n")
    page = folder / "spine.md"
    page.write_text(render(results))
    if "throughput" in results:
        _plot_throughput(results["throughput"], folder / "spine-throughput.png")
    if "recovery" in results:
        _plot_recovery(results["recovery"], folder / "spine-recovery.png")
    return page


def render(results: dict[str, Any]) -> str:
    """The page as Markdown; only what was measured is in it."""
    machine = ", ".join(f"{key} {value}" for key, value in results["machine"].items())
    parts = [_INTRODUCTION, f"Machine: {machine}. Size: {results['size']}.\n"]
    sections = {
        "throughput": _throughput,
        "latency": _latency,
        "recovery": _recovery,
        "protection": _protection,
        "start": _start,
    }
    for name, section in sections.items():
        if name in results:
            parts.append(section(results[name]))
    return "".join(parts)


def _table(header: tuple[str, ...], rows: list[tuple[Any, ...]]) -> str:
    lines = [header, tuple("---" for _ in header), *rows]
    return "".join("| " + " | ".join(str(cell) for cell in line) + " |\n" for line in lines)


def _verdict(is_met: bool) -> str:
    return "met" if is_met else "**not met**"


def _millions(tps: float) -> str:
    return f"{tps / 1e6:.2f} M/s"


def _throughput(results: dict[str, Any]) -> str:
    rows = [
        (
            query,
            f"{r['input_tuples']:,}",
            _millions(r["holdfast_tps"]),
            _millions(r["structured_streaming_tps"]),
            f"{r['ratio']} ×",
            f"{r['target']} ×",
            _verdict(r["ratio"] >= r["target"]),
        )
        for query, r in results.items()
    ]
    header = ("query", "tuples", "Holdfast", "Structured Streaming", "ratio", "target", "")
    triggers = {run["triggers"] for r in results.values() for run in r["structured_streaming_runs"]}
    note = _THROUGHPUT_NOTE.format(cores=2, triggers=" or ".join(map(str, sorted(triggers))))
    plot = "\n![Throughput of both](spine-throughput.png)\n"
    return "\n## Throughput\n\n" + _table(header, rows) + note + plot


def _latency(results: dict[str, Any]) -> str:
    rows = []
    for emit, r in results.items():
        ms = r["latency_ms"]
        is_met = ms["p50"] <= LATENCY_P50_MS and ms["p99"] <= LATENCY_P99_MS
        rows.append((emit, r["output_tuples"], ms["p50"], ms["p99"], ms["max"], _verdict(is_met)))
    header = ("emit", "results", "p50 ms", "p99 ms", "max ms", "")
    return (
        "\n## Latency\n\n"
        + _table(header, rows)
        + "\nQ12 at 10,000 tuples/s, from the moment an event is due to its result in the sink's "
        f"log. Target: p50 at most {LATENCY_P50_MS} ms, p99 at most {LATENCY_P99_MS} ms. `changes` "
        "gives a result per event; `final` one per key when the window closes, counted from the "
        "event that closes it.\n"
    )


def _recovery(results: dict[str, Any]) -> str:
    is_met = results["median_ms"] <= RECOVERY_MEDIAN_MS
    kills = results["kills"]
    header = ("kill", "state MB", "first output ms", "restarted ms", "replayed ms", "replayed")
    rows = [
        (
            i + 1,
            kill["state_mb"],
            kill["first_output_ms"],
            kill["restarted_ms"],
            kill["replayed_ms"],
            f"{kill['replayed_tuples']:,}",
        )
        for i, kill in enumerate(kills)
    ]
    return (
        f"\n## Recovery\n\n{len(kills)} kills with SIGKILL of a node with at least "
        f"{results['state_mb_least']} MB of state. From the kill to the first new output: median "
        f"{results['median_ms']:.0f} ms, most {results['max_ms']} ms; target median "
        f"{RECOVERY_MEDIAN_MS} ms: {_verdict(is_met)}. Output identical to Spark SQL over all of "
        f"it: {'yes' if results['verified'] else '**no**'} "
        f"({results['output_tuples']:,} tuples).\n\n"
        + _table(header, rows)
        + "\n`restarted` runs from the decision that the node is lost to its replacement's first "
        "word, `replayed` from there until the state is rebuilt.\n"
        "\n![Recovery times](spine-recovery.png)\n"
    )


def _protection(results: dict[str, Any]) -> str:
    medians = results["median_tps"]
    is_met = results["share"] >= PROTECTION_SHARE
    runs = len(results["runs_tps"]["none"])
    return (
        "\n## Cost of protection\n\n"
        f"Q12 with upstream backup {_millions(medians['upstream_backup'])}, without "
        f"protection {_millions(medians['none'])} (medians of {runs} runs each, in turn): "
        f"{results['share'] * 100:.1f} %; target at least {PROTECTION_SHARE * 100:.0f} %: "
        f"{_verdict(is_met)}.\n"
    )


def _start(results: dict[str, Any]) -> str:
    later = ", ".join(f"{s:.2f}" for s in results["later_s"])
    is_met = results["first_s"] <= START_S
    return (
        f"\n## Start\n\nFrom `flow.start` to the first tuple in the sink's log: "
        f"{results['first_s']:.2f} s for the first query of a session (its Python daemon starts "
        f"with it), then {later} s; target at most {START_S} s: {_verdict(is_met)}.\n"
    )


def _plot_throughput(results: dict[str, Any], path: Path) -> None:
    figure, axes = _figure()
    queries = list(results)
    for offset, key, name, colour in (
        (-0.2, "structured_streaming_tps", "Structured Streaming", "#9aa5b1"),
        (0.2, "holdfast_tps", "Holdfast", "#1f6f8b"),
    ):
        values = [results[query][key] for query in queries]
        bars = axes.bar([i + offset for i in range(len(queries))], values, 0.4, color=colour)
        bars.set_label(name)
        axes.bar_label(bars, [f"{value / 1e6:.2f} M" for value in values], fontsize=8, padding=2)
    axes.set_yscale("log")
    axes.set_xticks(range(len(queries)), [query.upper() for query in queries])
    axes.set_ylabel("tuples per second")
    axes.set_title("NexMark on two cores, log to log")
    axes.legend(frameon=False, loc="upper right")
    figure.savefig(path, dpi=120)


def _plot_recovery(results: dict[str, Any], path: Path) -> None:
    figure, axes = _figure()
    times = [kill["first_output_ms"] for kill in results["kills"]]
    axes.bar(range(1, len(times) + 1), times, color="#1f6f8b")
    axes.axhline(RECOVERY_MEDIAN_MS, color="#c0392b", linestyle="--", linewidth=1)
    axes.text(0.5, RECOVERY_MEDIAN_MS, " target for the median", va="bottom", fontsize=8)
    axes.set_xlabel("kill")
    axes.set_ylabel("ms from SIGKILL to the first new output")
    axes.set_title(f"Recovery with at least {results['state_mb_least']} MB of state")
    figure.savefig(path, dpi=120)


def _figure() -> tuple[Any, Any]:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4), layout="constrained")
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes
