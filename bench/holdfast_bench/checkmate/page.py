"""CheckMate's experiments as a page: the paper's figures beside ours."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

from holdfast_bench.checkmate import beside, paper, scale
from holdfast_bench.checkmate.dataflows import PROTOCOLS
from holdfast_bench.reporter import Page, Results, new_figure, save_figure, table

_HEAD: Final = """\
# Coordinated, uncoordinated, communication-induced: measured

`holdfast bench checkmate` made this page. [How the protocols work](../protocols/checkmate.md).

All inputs are taken as they come, so that nothing repeats and everything recovers together.
`CIC` is HMNR with clocks between all instances, as in the paper; by default they stay within
loops. Nodes are killed with SIGKILL. In the paper a message ends them, and more workers run on more
machines; so look at how protocols compare, not at one number beside the other.

"""
_THROUGHPUT: Final = """
## Throughput without a failure

Tuples/s from log to log, running results; the median. In brackets: its share of unprotected, run by
run side by side. Two cores run all instances.

"""
_FAILURE: Final = """
## With a failure

One node is killed; the rates are steady. `restart`: until its replacement has its state and works.
`recovered`: until its first new result. `caught up`: until latencies are what they were. `stood
still`, `durable` and `complete` are the three times of a checkpoint: how long its node stood still,
until it was written, until all that go with it were. Results wait for the line, so latencies are
about those of an interval. `foretold`: what `query.advise()` said three seconds before the failure.
All in ms. `others`: further failures, of nodes that were silent for longer than keep-alives allow,
as the cores were busy.

"""
_KILLS: Final = """
## Killed again and again

A node with 10 MB of state, which reads a union by arrival, is killed again and again. From SIGKILL
to its first new result in the sink's log, ms; checkpoints as by default. All output is compared
with what it must be, tuple by tuple and in order.

"""
_STANDSTILL: Final = """
## A large state

How long a node with 512 MB of state stands still at its cuts, while it goes on counting; ms.

"""
_SKEW: Final = """
## Hot items

The same with 10, 20 and 30 % of events that refer to a hot item. It changes after 100 persons or
auctions; `fixed`: it never does, as in the paper. Latencies are those of the seconds before the
failure.

"""
_CYCLIC: Final = """
## A loop: reachability

60, 15, 20 and 5 % new links, new sources, links and sources that go; a million nodes. The paper's
figures (Table 4) are of 5 and 10 workers. Its aligned protocol deadlocks in loops.

"""
_SCALE: Final = """
## Many instances, simulated

`keyed`: all to all, without a loop. `cyclic`: instances that join, all to all, half of whose
results go in again. Everybody sends to everybody in each pass, which is the worst case: under UNC
nearly every checkpoint is on a Z-cycle then. `invalid` in the paper: newer than the line after the
failure, our `rolled past`. Its overhead is of clocks with each record; ours of changes, once for
a batch.

"""


def _ms(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}" if value >= 10 else f"{value:.2f}"


def _measured(of: dict[str, Any]) -> str:
    on = of["machine"]
    load = f"{on['load_before']} to {on['load_after']}"
    return f"commit {on['commit']}, {on['cores']} cores, load {load}, {of['size']}"


def _head(results: Results) -> str:
    on = results["machine"]
    about = f"Python {on['python']}, Spark {on['pyspark']}, {on['system']}.\n"
    return _HEAD + about + beside.commits(results) + beside.targets(results)


def _throughput(found: dict[str, Any]) -> str:
    rows = []
    for query, by_workers in found.items():
        for workers, of in by_workers.items():
            cells = [
                f"{of['tuples_per_s'][p]:,} ({of['share_side_by_side'][p]:.1%})" for p in PROTOCOLS
            ]
            rows.append((query, workers, *cells, len(of["runs"]["UNC"]), _measured(of)))
    header = ("query", "instances", *PROTOCOLS, "runs", "measured on")
    return _THROUGHPUT + table(header, rows)


def _steady(of: dict[str, Any]) -> tuple[float | None, float | None]:
    """Median p50 and p99 of the seconds before the failure."""
    before = [s for s in of["seconds"][3:15] if s["results"]]
    if not before:
        return None, None
    middle = len(before) // 2
    p50 = sorted(s["p50"] for s in before)[middle]
    return p50, sorted(s["p99"] for s in before)[middle]


def _failed_rows(name: str, of: dict[str, Any]) -> Iterator[tuple[Any, ...]]:
    for protocol, run in of["protocols"].items():
        recovery, (p50, p99) = run["recovery"], _steady(run)
        foretold = run.get("predicted") or {}
        restart = sum(recovery[n] or 0 for n in ("detected_ms", "restarted_ms", "replayed_ms"))
        yield (
            name,
            protocol,
            _ms(p50),
            _ms(foretold.get("delay_ms")),
            _ms(p99),
            _ms(restart),
            _ms(recovery["recovered_ms"]),
            _ms(foretold.get("recovery_ms")),
            _ms(recovery["caught_up_ms"]),
            _ms(run["standstill_ms"]),
            _ms(run["durable_ms"]),
            _ms(run["complete_ms"]),
            run["checkpoints"],
            run["useless"],
            run["rolledPast"],
            run["unplanned_failures"],
            run["message_overhead"] or "–",
            "yes" if run["is_identical"] else "NO",
        )


_FAILED_HEADER: Final = (
    "run", "protocol", "p50", "foretold", "p99", "restart", "recovered", "foretold", "caught up",
    "stood still", "durable", "complete", "checkpoints", "useless", "rolled past", "others",
    "bytes", "identical",
)  # fmt: skip


def _failure(found: dict[str, Any]) -> str:
    rows: list[tuple[Any, ...]] = []
    notes = []
    for query, by_workers in found.items():
        for workers, of in by_workers.items():
            rows += _failed_rows(f"{query}, {workers}", of)
            notes.append(f"{query}, {workers}: {of['tuples_per_s']:,.0f} tuples/s, {_measured(of)}")
    return _FAILURE + table(_FAILED_HEADER, rows) + "\n" + ". ".join(notes) + ".\n"


def _kills(found: dict[str, Any]) -> str:
    rows = []
    for protocol, of in found.items():
        first, parts = of["first_output_ms"], of["reported_median_ms"]
        times = [_ms(first[name]) for name in ("median", "p99", "max")]
        of_it = [_ms(parts[name]) for name in ("detected_ms", "restarted_ms", "replayed_ms")]
        is_identical = "yes" if of["is_identical"] else "NO"
        rows.append((protocol, len(of["kills"]), *times, *of_it, is_identical, _measured(of)))
    header = (
        "protocol", "kills", "median", "p99", "longest", "detected", "restarted", "replayed",
        "identical", "measured on",
    )  # fmt: skip
    return _KILLS + table(header, rows)


def _standstill(found: dict[str, Any]) -> str:
    rows = [
        (
            protocol,
            f"{of['state_bytes'] >> 20} MiB",
            of["cuts"],
            _ms(of["median_ms"]),
            _ms(of["max_ms"]),
            _measured(of),
        )
        for protocol, of in found.items()
    ]
    header = ("protocol", "state", "cuts", "median", "longest", "measured on")
    return _STANDSTILL + table(header, rows)


def _skew(found: dict[str, Any]) -> str:
    rows: list[tuple[Any, ...]] = []
    for query, by_ratio in found.items():
        for ratio, of in by_ratio.items():
            share, _, fixed = ratio.partition(" ")
            rows += _failed_rows(f"{query}, {float(share):.0%} {fixed}".strip(), of)
    return _SKEW + table(_FAILED_HEADER, rows)


def _cyclic(found: dict[str, Any]) -> str:
    rows = []
    for protocol, by_workers in found.items():
        for workers, of in by_workers.items():
            failed, run = of["failure"], of["runs"][-1]
            rows.append(
                (
                    protocol,
                    workers,
                    f"{of['changes_per_s']:,}",
                    f"{run['results']:,}",
                    _ms(failed["durable_ms"]),
                    _ms(failed["complete_ms"]),
                    _ms(failed["recovery"]["recovered_ms"]),
                    failed["checkpoints"],
                    failed["forced"],
                    failed["useless"],
                    failed["rolledPast"],
                    failed["message_overhead"] or "–",
                    "yes" if failed["is_identical"] else "NO",
                    _measured(of),
                )
            )
    header = (
        "protocol", "instances", "changes/s", "results", "durable", "complete", "recovered",
        "checkpoints", "forced", "useless", "rolled past", "bytes", "identical", "measured on",
    )  # fmt: skip
    theirs = [tuple(row.values()) for row in paper.table("table4_cyclic")]
    names = tuple(paper.table("table4_cyclic")[0])
    return _CYCLIC + table(header, rows) + "\nThe paper's:\n\n" + table(names, theirs)


def _scale(found: dict[str, Any]) -> str:
    rows = []
    for workers in sorted(found, key=int):
        for graph in scale.GRAPHS:
            for rule, of in found[workers][graph].items():
                protocol = "UNC" if rule == "UNC" else "CIC"
                is_there = graph == "keyed" and rule in ("UNC", "HMNR, all")
                said = paper.message_overhead(protocol, "q12", int(workers)) if is_there else ""
                invalid = paper.invalid_percent(protocol, "q12", int(workers)) if is_there else ""
                rows.append(
                    (
                        workers,
                        graph,
                        rule,
                        of["checkpoints"],
                        of["forced_per_basic"],
                        of["useless"],
                        "–" if of["rolled_past"] is None else of["rolled_past"],
                        of["message_overhead"],
                        said,
                        invalid and f"{invalid} %",
                    )
                )
    header = (
        "instances", "graph", "rule", "checkpoints", "forced per basic", "useless", "rolled past",
        "bytes", "paper's bytes (Q12)", "paper's invalid (Q12)",
    )  # fmt: skip
    return _SCALE + table(header, rows)


# -- plots ----------------------------------------------------------------------------------------


def _plot_failure(found: dict[str, Any], folder: Path) -> None:
    """Latency over time, one plot for each query with the fewest instances."""
    for query, by_workers in found.items():
        of = by_workers[min(by_workers, key=int)]
        figure, axes = new_figure()
        for protocol, run in of["protocols"].items():
            there = [s for s in run["seconds"] if s["results"]]
            axes.plot(
                [s["second"] for s in there], [s["p50"] for s in there], label=protocol, marker="."
            )
        axes.set_xlabel("second of the run")
        axes.set_ylabel("p50 of the second's results, ms")
        axes.set_yscale("log")
        axes.set_title(f"{query}: a node is killed")
        axes.legend(frameon=False)
        save_figure(figure, folder / f"checkmate-failure-{query}.png")


def _plot_throughput(found: dict[str, Any], folder: Path) -> None:
    """Shares of unprotected."""
    figure, axes = new_figure()
    bars = [(q, w, of) for q, by_workers in found.items() for w, of in by_workers.items()]
    width = 0.8 / (len(PROTOCOLS) - 1)
    for number, protocol in enumerate(PROTOCOLS[1:]):
        places = [place + number * width for place in range(len(bars))]
        shares = [100 * of["share_side_by_side"][protocol] for _, _, of in bars]
        axes.bar(places, shares, width, label=protocol)
    axes.axhline(97, linewidth=0.8, linestyle="--", color="grey")
    axes.set_xticks([p + 0.3 for p in range(len(bars))], [f"{q}, {w}" for q, w, _ in bars])
    axes.set_ylabel("% of unprotected")
    axes.legend(frameon=False, ncols=2)
    save_figure(figure, folder / "checkmate-throughput.png")


def _of(name: str, section: Callable[[dict[str, Any]], str], results: Results) -> str:
    return section(results[name])


def _drawn(
    name: str, plot: Callable[[dict[str, Any], Path], None], results: Results, folder: Path
) -> None:
    plot(results[name], folder)


_OWN: Final = {
    "throughput": _throughput,
    "failure": _failure,
    "kills": _kills,
    "standstill": _standstill,
    "skew": _skew,
    "cyclic": _cyclic,
    "scale": _scale,
}
_PLOTS: Final = {"failure": _plot_failure, "throughput": _plot_throughput}


def _rest(results: Results) -> str:
    """What looks at all of it."""
    return beside.calibrated(results) + beside.beside_the_paper(results)


PAGE: Final = Page(
    "checkmate",
    _head,
    {name: partial(_of, name, section) for name, section in _OWN.items()} | {"machine": _rest},
    {name: partial(_drawn, name, plot) for name, plot in _PLOTS.items()},
    takes_all=True,
)
