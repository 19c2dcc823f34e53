"""Runs SGuard's experiments and writes them down, the paper's figures beside ours."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Final

from holdfast.sim.peace import figure10
from holdfast_bench.reporter import Page, machine_of, table
from holdfast_bench.sguard import checkpoints, end_to_end, join, latency, operators, paper, plots
from holdfast_bench.spine import machine

_MB: Final = 10**6
_HEAD: Final = """\
# Checkpoints, measured

`holdfast bench sguard` made this page. Everything ran on one machine, what is compared in turn;
figures are medians, and ratios are what carries over to other machines. The paper is SGuard (VLDB
2008); its numbers are of 2008's hardware and stand here for their trends.

"""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How long everything takes."""

    name: str
    aggregate_mb: tuple[int, ...]
    repeats: int
    batches: int
    prepare_mb: tuple[int, ...]
    state_mb: int
    seconds: float
    interval_s: float
    parts: tuple[int, ...]
    real_seconds: float
    real_interval_s: int
    seeds: int


FULL: Final = Sizes(
    "full", (1, 10, 100), 21, 32, (64, 128, 256, 512), 128, 36, 6, (1, 4, 64), 52, 10, 5
)
QUICK: Final = Sizes("quick", (1, 10), 5, 8, (64, 128), 32, 12, 3, (1, 4), 12, 3, 1)


def run(sizes: Sizes, say: Callable[[str], None], *, only: tuple[str, ...] = ()) -> dict[str, Any]:
    """All experiments, or those named."""
    began = time.monotonic()
    results: dict[str, Any] = {"machine": machine(), "size": sizes.name}
    for name, experiment in EXPERIMENTS.items():
        if not only or name in only:
            say(f"-- {name}")
            results[name] = experiment(sizes, say)
    results["seconds"] = round(time.monotonic() - began)
    results["targets"] = _targets(results)
    return results


def _operators(sizes: Sizes, say: Callable[[str], None]) -> dict[str, Any]:
    return {
        "aggregate": operators.aggregate_costs(
            sizes.aggregate_mb, sizes.batches, sizes.repeats, say
        ),
        "join": join.join_costs((256, 512, 1024), sizes.repeats, say),
    }


def _preparing(sizes: Sizes, say: Callable[[str], None]) -> list[dict[str, Any]]:
    return checkpoints.preparing(sizes.prepare_mb, sizes.repeats, say)


def _incremental(sizes: Sizes, say: Callable[[str], None]) -> list[dict[str, Any]]:
    return checkpoints.incremental(sizes.state_mb, say)


def _restoring(sizes: Sizes, say: Callable[[str], None]) -> list[dict[str, Any]]:
    return checkpoints.restoring(sizes.prepare_mb, sizes.repeats, say)


def _latency(sizes: Sizes, say: Callable[[str], None]) -> list[dict[str, Any]]:
    runs = [(technique, parts, 2_000) for parts in sizes.parts for technique in latency.TECHNIQUES]
    runs += [(technique, 1, 100_000) for technique in ("none", "pages")]
    return latency.compare(
        tuple(runs),
        seconds=sizes.seconds,
        interval_s=sizes.interval_s,
        size_bytes=sizes.state_mb * _MB,
        say=say,
    )


def _end_to_end(sizes: Sizes, say: Callable[[str], None]) -> dict[str, Any]:
    return end_to_end.measure(
        size_bytes=sizes.state_mb * _MB,
        rate=100_000,
        seconds=sizes.real_seconds,
        interval=f"{sizes.real_interval_s} seconds",
        say=say,
    )


def _peace(sizes: Sizes, say: Callable[[str], None]) -> list[dict[str, Any]]:
    rows = [
        asdict(row) | {"speedup": row.speedup, "delay_percent": row.delay_percent}
        for row in figure10(range(sizes.seeds))
    ]
    say(f"peace: slowest gain {min(row['speedup'] for row in rows):.2f}")
    return rows


EXPERIMENTS: Final[dict[str, Callable[[Sizes, Callable[[str], None]], Any]]] = {
    "operators": _operators,
    "preparing": _preparing,
    "incremental": _incremental,
    "restoring": _restoring,
    "latency": _latency,
    "end_to_end": _end_to_end,
    "peace": _peace,
}


def _targets(results: dict[str, Any]) -> list[dict[str, Any]]:
    """What was to be reached, beside what was."""
    found: list[dict[str, Any]] = []

    def judge(what: str, bound: float, measured: float, unit: str, *, at_least: bool) -> None:
        is_met = measured >= bound if at_least else measured <= bound
        sign = "at least" if at_least else "at most"
        found.append(
            {
                "what": what,
                "target": f"{sign} {bound:g} {unit}",
                "measured": f"{measured:.3g} {unit}",
                "is_met": is_met,
            }
        )

    if "operators" in results:
        for cost in results["operators"]["aggregate"]:
            what = f"aggregate, {cost['size_mb']} MB, pages of {cost['page_bytes'] >> 10} KiB"
            judge(f"{what}, to plain arrays", 1.05, cost["ratio"], "×", at_least=False)
            theirs = paper.AGGREGATE_US[cost["size_mb"]][1] * 1e3
            gain = theirs / cost["pages_ns"]
            judge(f"{what}, speed to the paper's", 100, gain, "×", at_least=True)
    if "preparing" in results:
        largest = max(results["preparing"], key=lambda p: p["size_mb"])
        worst = max(
            p["prepare_ms"]
            for p in results["preparing"]
            if p["size_mb"] >= 0.9 * largest["size_mb"]
        )
        judge(f"preparing {largest['size_mb']} MB", 2, worst, "ms", at_least=False)
    if "incremental" in results:
        one = results["incremental"][0]
        what = f"bytes written with {one['touched_percent']:.2f} % of the pages touched"
        judge(what, 2, one["written_percent"], "%", at_least=False)
    if "restoring" in results:
        last = results["restoring"][-1]
        what = f"restoring {last['size_mb']} MB, to the speed of reading its files"
        judge(what, 80, last["speed_percent"], "%", at_least=True)
        judge("page tables beyond it", 60, last["page_tables_ms"], "ms", at_least=False)
    if "end_to_end" in results:
        what = "end to end p99 during a checkpoint, to a run without"
        judge(what, 2, results["end_to_end"]["p99_ratio"], "×", at_least=False)
    if "peace" in results:
        slowest = min(row["speedup"] for row in results["peace"])
        latest = max(row["delay_percent"] for row in results["peace"])
        judge("Peace: a single write, least gain", 2, slowest, "×", at_least=True)
        judge("Peace: all writes later, most", 20, latest, "%", at_least=False)
    return found


# -- the page -------------------------------------------------------------------------------


def _operators_section(found: dict[str, Any]) -> str:
    rows = []
    for cost in found["aggregate"]:
        theirs = paper.AGGREGATE_US[cost["size_mb"]]
        column = 1 if cost["page_bytes"] == 8 << 10 else 2
        rows.append(
            (
                f"{cost['size_mb']} MB",
                f"{cost['page_bytes'] >> 10} KiB",
                f"{theirs[0] * 1e3:,.0f}",
                f"{theirs[column] * 1e3:,.0f}",
                f"{cost['dict_ns']:,.0f}",
                f"{cost['arrays_ns']:.1f}",
                f"{cost['pages_ns']:.1f}",
                f"{cost['ratio']:.3f}",
            )
        )
    joins = [
        (
            f"{cost['window_kb']} KB",
            *(f"{us * 1e3:,.0f}" for us in theirs[1:]),
            f"{cost['dict_ns']:,.0f}",
            f"{cost['pages_8k_ns']:,.0f}",
            f"{cost['pages_64k_ns']:,.0f}",
        )
        for cost, theirs in zip(found["join"], paper.JOIN_US, strict=True)
    ]
    return (
        "\n## What pages cost (Tables 5 and 6)\n\nNanoseconds per tuple. Aggregate: count, minimum "
        "and maximum per group, random groups, in batches of 32,768. `plain arrays` is the same "
        "compiled code with other meanings for its two ways to reach the state; both take turns, "
        "and the ratio is the median of their ratios. No checkpoint is being written: while "
        "one is, and until the pages cloned for it have come home, pages are found by their table, "
        "which costs more. `dict` is a Python dictionary, tuple by tuple.\n\n"
        + table(
            (
                "state",
                "pages of",
                "paper, containers",
                "paper, pages",
                "dict",
                "plain arrays",
                "pages",
                "pages to arrays",
            ),
            rows,
        )
        + "\nJoin with a window on unique ids. The paper scans the window, Holdfast looks the key "
        "up; batches of 1,000.\n\n"
        + table(
            (
                "window",
                "paper, containers",
                "paper, 8 KB",
                "paper, 64 KB",
                "dict",
                "pages of 8 KiB",
                "pages of 64 KiB",
            ),
            joins,
        )
    )


def _preparing_section(found: list[dict[str, Any]]) -> str:
    rows = [
        (
            f"{p['size_mb']} MB",
            f"{p['page_bytes'] >> 10} KiB",
            f"{p['prepare_ms']:.3f}",
            f"{p['prepare_max_ms']:.3f}",
            f"{p['serialize_arrow_ms']:,.0f}" if "serialize_arrow_ms" in p else "",
            f"{p['serialize_objects_ms']:,.0f}" if "serialize_objects_ms" in p else "",
        )
        for p in found
    ]
    header = ("state", "pages of", "prepare", "slowest", "serialize, Arrow", "serialize, objects")
    return (
        "\n## Preparing a checkpoint (Figure 6)\n\nHow long the unit stands still, ms. The paper "
        "found page lists up to two orders of magnitude faster than serializing.\n\n"
        + table(header, rows)
        + "\n![preparing](sguard-preparing.png)\n"
    )


def _incremental_section(found: list[dict[str, Any]]) -> str:
    rows = [
        (
            f"{i['touched_percent']:.2f} %",
            f"{i['written_bytes'] / _MB:,.1f} MB",
            f"{i['written_percent']:.2f} %",
        )
        for i in found
    ]
    return "\n## Incremental (beyond the paper)\n\n" + table(
        ("pages touched", "written, manifest included", "of a whole checkpoint"), rows
    )


def _restoring_section(found: list[dict[str, Any]]) -> str:
    rows = [
        (
            f"{r['size_mb']} MB",
            f"{r['read_ms']:.0f}",
            f"{r['load_ms']:.0f}",
            f"{r['load_mb_per_s']:,.0f}",
            f"{r['speed_percent']:.0f} %",
            f"{r['page_tables_ms']:.1f}",
        )
        for r in found
    ]
    header = ("state", "reading, ms", "loading, ms", "MB/s", "speed", "page tables, ms")
    return (
        "\n## Loading a checkpoint (Figure 9)\n\nFrom the page cache, into fresh memory, every "
        "page checked. `reading`: the same files by as many threads into memory of the same kind, "
        "nothing checked. The paper "
        f"rebuilds the page table of 512 MB in under {paper.PAGE_TABLES_MS} ms.\n\n"
        + table(header, rows)
        + "\n![loading](sguard-restoring.png)\n"
    )


def _latency_section(found: list[dict[str, Any]]) -> str:
    rows = []
    for run_ in found:
        theirs = paper.LATENCY_MS[run_["technique"]].get(run_["parts"])
        is_papers = run_["rate"] == 2_000 and theirs is not None
        rows.append(
            (
                run_["technique"],
                run_["parts"],
                f"{run_['rate']:,}",
                f"{theirs:g}" if is_papers else "",
                f"{run_['all']['mean_ms']:.2f} ({run_['all']['sd_ms']:.2f})",
                f"{run_['between'].get('p99_ms', 0):.2f}",
                f"{run_['during'].get('p99_ms', 0):.2f}" if run_["technique"] != "none" else "",
                f"{run_['all']['max_ms']:.1f}",
            )
        )
    header = (
        "technique",
        "parts",
        "tuples/s",
        "paper, mean",
        "mean (sd)",
        "p99 between",
        "p99 during",
        "max",
    )
    first = found[0]
    return (
        f"\n## Latency during checkpoints (Figures 7 and 8, Table 7)\n\nMilliseconds. "
        f"{first['state_mb']} MB of pages, a checkpoint every {first['interval_s']:g} s (the "
        "paper: every minute), in one process without Spark: what a tuple waits between being due "
        "and being aggregated.\n\n" + table(header, rows) + "\n![latency](sguard-latency.png)\n"
    )


def _end_to_end_section(found: dict[str, Any]) -> str:
    rows = [
        (name, *(f"{part.get(key, 0):.2f}" for key in ("p50_ms", "p99_ms", "max_ms")))
        for name, part in (
            ("without checkpoints", found["without"]["all"]),
            ("with, all", found["with"]["all"]),
            ("with, during one", found["with"]["during"]),
            ("with, between", found["with"]["between"]),
            ("until the first under load has ended", found["with"]["first"]),
        )
    ]
    written = found["with"]["checkpoints"]
    stood = max((c["prepared_us"] for c in written), default=0) / 1e3
    return (
        f"\n## End to end\n\nThrough Spark tasks, the state whole, {found['rate']:,} tuples/s, a "
        f"result per tuple, a checkpoint every {found['interval']}: from when a tuple was due "
        f"until the driver reads its result in the sink's log, ms. {len(written)} checkpoints; the "
        f"unit stood still for at most {stood:.2f} ms. The first checkpoint under load is counted "
        "apart: its clones take memory that nobody has touched before.\n\n"
        + table(("run", "p50", "p99", "max"), rows)
    )


def _peace_section(found: list[dict[str, Any]]) -> str:
    rows = [
        (
            row["writers"],
            f"{row['size_mb']} MB",
            f"{row['io_without_s']:.1f}",
            f"{row['io_with_s']:.1f}",
            f"{row['waited_with_s']:.1f}",
            f"{row['speedup']:.2f}×",
            f"{row['completion_without_s']:.1f}",
            f"{row['completion_with_s']:.1f}",
            f"{row['delay_percent']:+.0f} %",
        )
        for row in found
    ]
    header = (
        "writers",
        "each",
        "IO without",
        "IO with",
        "from the request",
        "faster",
        "all without",
        "all with",
        "later",
    )
    return (
        "\n## Peace (Table 8, Figure 10)\n\nSimulated: 17 servers in two racks, chunks of 64 MB, "
        "three copies; seconds. `IO`: a checkpoint from its first chunk to its last. A data node's "
        "throughput by streams is the paper's Table 8, links share fairly. Peace drafts each "
        "timestep several times and keeps the fullest, and of equally near servers it takes the "
        "one with the most room; the paper leaves both to chance (core/peace/peace.py). The "
        "paper: single writes about twice as fast, all writes at most about 20 to 36 % later.\n\n"
        + table(header, rows)
        + "\n![peace](sguard-peace.png)\n"
        + "\nTable 8 of the paper, MB/s by streams at once (client read and write, data node read "
        "and write per client):\n\n"
        + table(("streams", "read", "write", "node reads", "node writes"), paper.DATA_NODE_MB_PER_S)
    )


_SECTIONS: Final[dict[str, Callable[[Any], str]]] = {
    "operators": _operators_section,
    "preparing": _preparing_section,
    "incremental": _incremental_section,
    "restoring": _restoring_section,
    "latency": _latency_section,
    "end_to_end": _end_to_end_section,
    "peace": _peace_section,
}


def _head(results: dict[str, Any]) -> str:
    size = f"Size: {results['size']}, {results['seconds']} s in all."
    targets = table(
        ("what", "target", "measured", "met"),
        [
            (t["what"], t["target"], t["measured"], "yes" if t["is_met"] else "**no**")
            for t in results["targets"]
        ],
    )
    return f"{_HEAD}Machine: {machine_of(results)}. {size}\n\n## Targets\n\n{targets}"


PAGE: Final = Page("sguard", _head, _SECTIONS, plots.PLOTS)
