"""The page of `holdfast bench dpc`: what was measured, beside what the paper says. [DPC §5]"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

from holdfast_bench.dpc_runs import section
from holdfast_bench.dpc_targets import targets
from holdfast_bench.reached import section as section_of
from holdfast_bench.reporter import Page, machine_of, new_figure, save_figure, table
from holdfast_bench.running import grouped, median

Points = list[dict[str, Any]]
_HEAD: Final = """\
# Results while input is missing, measured

`holdfast bench dpc` made this page. Three sources, one unit that merges them; one source is silent,
and comes back with all its tuples. `delay_new_ms`: how late, seen from outside, the latest tuple
was that is newer than all before it. `tentative`: rows in the feed. `waited_ms`: the longest wait
that the query reports. `is_identical`: the stable output is that of Spark SQL.

"""


def _head(results: dict[str, Any]) -> str:
    how = "".join(
        f"- {name}: {said['size']}, commit {said['commit']}, load {said['load']}\n"
        for name, said in results.get("measured", {}).items()
    )
    return f"{_HEAD}Machine: {machine_of(results)}.\n\n{how}{section_of(targets(results))}"


def _section(title: str, note: str, columns: tuple[str, ...], points: Points) -> str:
    # An experiment may have learnt a column since some of its points were measured.
    rows = [tuple(_cell(point.get(name, "")) for name in columns) for point in points]
    return f"\n## {title}\n\n{note}\n\n{table(columns, rows)}"


def _cell(value: Any) -> Any:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else value


_SEEN: Final = ("delay_new_ms", "waited_ms", "tentative", "stabilization_ms", "is_identical")
_SECTIONS: Final[dict[str, tuple[str, str, tuple[str, ...]]]] = {
    "bound": (
        "The bound",
        "X with alpha 0.9. Failures last three times X, or half of αX: the latter are to give no "
        "tentative tuple. The paper: no tuple waits for longer than X.",
        ("x_ms", "silent_s", *_SEEN),
    ),
    "waits": (
        "Process and delay by the wait",
        "The paper: Delay_new is the wait, in both modes; `delay` makes fewer tuples tentative, "
        "the fewer the longer the wait.\n\n![Tentative tuples by the wait](dpc-waits.png)",
        ("mode", "wait_ms", *_SEEN),
    ),
    "modes": (
        "During the failure, and while it is corrected",
        "Two replicas. The paper: who suspends while it corrects keeps the bound only as long as "
        "the correction is short; `process & process` always does, and delaying saves tentative "
        "tuples in short failures.\n\n![Delay by how long the failure lasts](dpc-modes.png)",
        ("combination", "silent_s", *_SEEN),
    ),
    "chain": (
        "A chain",
        "Two replicas of each node; αX is 2.7 s. `chain`: `once` is Holdfast's scheme, in which "
        "those behind go on, and back, with the first; `each` is the paper's, in which each node "
        "waits by itself. The paper: `process & process` has a delay of αX, and the more tentative "
        "tuples the longer the chain, as its nodes correct one after the other; `delay & delay` "
        "delays by αX for each node, and gains nothing; `process & suspend` waits for all "
        "corrections.\n\n![Delay by the number of nodes](dpc-chain.png)",
        ("combination", "chain", "nodes", *_SEEN),
    ),
    "interval": (
        "What order costs",
        "No failure: the paper's Table 2. `mean_ms`: of the latency, over all runs; `spread_ms`: "
        "the standard deviation of the runs' averages. The paper: latency grows linearly with the "
        "interval between boundaries.\n\n![Latency by the interval](dpc-interval.png)",
        ("interval_ms", "runs", "mean_ms", "spread_ms", "p50_ms", "is_identical"),
    ),
    "cost": (
        "Cost without failure",
        "10,000 tuples/s, boundaries every 10 ms.",
        ("protection", "p50_ms", "delay_new_ms", "tentative", "is_identical"),
    ),
    "redo": (
        "Checkpoint/redo and undo/redo",
        "In one process. `state`: tuples that the state goes back to; `tuples`: processed again, "
        "half of them new. `back_ms`: until the node is back at the cut. `share_of_usual`: that "
        "rate as a part of the unit's usual one. The paper: checkpoint/redo is the faster one, "
        "and undo/redo grows with the state.\n\n![Correction by tuples](dpc-redo.png)",
        ("reconcile", "state", "tuples", "redo_ms", "back_ms", "tuples_per_s", "share_of_usual"),
    ),
    "overhead": (
        "Throughput without failure",
        "The passes of one node in one process, 10,000 keys. `window`: its tuples; of the larger "
        "one the state goes back to more than undo/redo keeps. `throughput`: beside upstream "
        "backup.",
        ("window", "protection", "tuples_per_s", "throughput"),
    ),
    "standstill": (
        "On entering up_failure",
        "Holding all pages of a state, five times; the median.",
        ("state_bytes", "first_ms", "hold_ms", "back_ms"),
    ),
}


def _redo(points: Points) -> str:
    """What was measured, and the paper's Table 1 with costs that fit it."""
    text = _section(*_SECTIONS["redo"], points)
    copied = [point for point in points if point["reconcile"] == "checkpoint/redo"]
    if not copied:
        return text
    largest = max(copied, key=lambda p: p["tuples"])
    proc_us = (largest["redo_ms"] - largest["back_ms"]) * 1000 / largest["tuples"]
    widest = max(copied, key=lambda p: p["state"])
    copy_us = widest["back_ms"] * 1000 / widest["state"]
    rows = []
    for point in points:
        state, tuples = point["state"], point["tuples"]
        again_us = proc_us * tuples
        first_us = state * (copy_us if point["reconcile"] == "checkpoint/redo" else proc_us)
        predicted = round((first_us + again_us) / 1000, 1)
        rows.append((point["reconcile"], f"{state:,}", f"{tuples:,}", predicted, point["redo_ms"]))
    return (
        f"{text}\n### Table 1\n\nThe paper's formulas for the time to reconcile: S p_copy + (D + "
        "l/2) λ p_proc with checkpoint/redo, S (p_comp + p_proc) + (D + l/2) λ (p_comp + p_proc) "
        "with undo/redo; S is the state, D λ the tuples to process again. A cut is held when the "
        "failure begins, so l = 0; ids are compared by ranges, so p_comp = 0. Of the largest run, "
        f"p_proc = {proc_us:.3f} µs; of the widest state, p_copy = {copy_us:.4f} µs. Memory: S + D "
        "λ_in, and S + D λ_stateful; here both keep the input of the failure once.\n\n"
        + table(("reconcile", "state", "tuples", "predicted_ms", "measured_ms"), rows)
    )


def _crash(points: Points) -> str:
    rows: list[tuple[Any, ...]] = []
    for keep_alive_ms, of_it in grouped(points, itemgetter("keep_alive_ms")).items():
        pauses = [point["pause_ms"] for point in of_it]
        said = of_it[-1]["tentative"], of_it[-1]["is_identical"]
        rows.append((keep_alive_ms, len(pauses), median(pauses), min(pauses), max(pauses), *said))
    columns = ("keep_alive_ms", "crashes", "median_ms", "least_ms", "longest_ms")
    return (
        "\n## A crashed replica\n\nOne of two is killed, in turns; the longest delay meanwhile. A "
        "reader goes over to the other one after three keep-alives.\n\n"
        + table((*columns, "tentative", "is_identical"), rows)
    )


def _plot(
    name: str, label: Callable[[dict[str, Any]], str], x: str, y: str, texts: tuple[str, str]
) -> Callable[[Points, Path], None]:
    """A line per label."""

    def draw(points: Points, folder: Path) -> None:
        figure, axes = new_figure()
        for line, of_line in grouped(points, label).items():
            axes.plot([p[x] for p in of_line], [p[y] for p in of_line], marker="o", label=line)
        axes.set_xlabel(texts[0])
        axes.set_ylabel(texts[1])
        if name == "redo":
            axes.set_xscale("log")
            axes.set_yscale("log")
        else:
            axes.set_ylim(bottom=0)
        if x == "nodes":
            axes.set_xticks(sorted({point[x] for point in points}))
        axes.legend(frameon=False)
        save_figure(figure, folder / f"dpc-{name}.png")

    return draw


def _scheme(point: dict[str, Any]) -> str:
    """How a chain waited, and what it did."""
    return f"{point['combination']}, {point.get('chain', 'once')}"


PAGE: Final = Page(
    "dpc",
    _head,
    {name: partial(_section, *texts) for name, texts in _SECTIONS.items()}
    | {"crash": _crash, "redo": _redo, "runs": section},
    {
        "waits": _plot(
            *("waits", lambda p: p["mode"], "wait_ms", "tentative"), ("αX, ms", "tentative tuples")
        ),
        "modes": _plot(
            *("modes", lambda p: p["combination"], "silent_s", "delay_new_ms"),
            ("failure, s", "Delay_new, ms"),
        ),
        "chain": _plot(
            *("chain", _scheme, "nodes", "delay_new_ms"),
            ("nodes", "Delay_new, ms"),
        ),
        "interval": _plot(
            *("interval", lambda p: "average", "interval_ms", "mean_ms"),
            ("interval of boundaries, ms", "latency, ms"),
        ),
        "redo": _plot(
            *("redo", lambda p: f"{p['reconcile']}, state {p['state']:,}", "tuples", "redo_ms"),
            ("tuples processed again", "correction, ms"),
        ),
    },
)
