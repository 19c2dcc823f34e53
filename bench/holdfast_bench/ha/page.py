"""HA's experiments as a page: the paper's values, the cost model's and the simulation's."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from holdfast.core.recovery.cost_model import (
    GUARANTEES,
    Approach,
    Prediction,
    UnitFigures,
    Variant,
    predict,
)
from holdfast.driver.session import session
from holdfast_bench.ha import experiments, paper, plots, spark_costs, spark_kills
from holdfast_bench.ha.paper import PaperQuery
from holdfast_bench.ha.spark_kills import Kills
from holdfast_bench.reporter import Page, machine_of, table
from holdfast_bench.spine import machine

SIMULATED: Final = experiments.EXPERIMENTS
ON_SPARK: Final = ("kills", "bytes", "intervals", "handovers")
EXPERIMENTS: Final = (*SIMULATED, *ON_SPARK)
APPROACHES: Final = tuple(experiments.APPROACHES)
_NEAR: Final = 0.15

_INTRODUCTION: Final = """\
# Approaches to recovery, simulated

`holdfast bench ha` made this page: the experiments of HA (ICDE 2005), section 7, by simulation,
with its Table 5: 1,000 tuples/s of 50 bytes, ids of 8, 16 Mbps and 5 ms, filter 10 µs, an aggregate
that times window over advance, r 40 ms, M 50 ms. What runs is Holdfast's own `Node` and
`Coordinator` under virtual time. All recovery is precise.

`recovery`: from the detection until a replica that counts has reached the state before the failure,
ms. `as there`: the same if a replay from empty costs what it does in the paper: an aggregate opens
its windows one after another, and a tuple is sent, then processed. `model`:
`core/recovery/cost_model.py` for Holdfast, and by the paper's formula. `overhead`: bytes for
protection to the bytes of the tuples to the unit, counted as the paper counts them, in tuples and
ids. `own`: what only Holdfast sends or stores: restart points to the coordinator, and pages of
checkpoints. `±`: standard error of the mean.

"""


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured: simulated runs a point; on Spark kills, bytes at rates, handovers."""

    name: str
    runs: int
    kills: tuple[Kills, ...]
    rates: tuple[float, ...]
    handovers: int


QUICK: Final = Size("quick", 5, (Kills(10_000, 1, 3),), (10_000,), 3)
FULL: Final = Size(
    "full",
    25,
    (Kills(1_000, 2, 10), Kills(10_000, 5, 10), Kills(100_000, 10, 2)),
    (1_000, 10_000, 100_000),
    20,
)


def run(
    size: Size,
    say: Callable[[str], None],
    *,
    only: tuple[str, ...] = SIMULATED,
    approaches: tuple[str, ...] = APPROACHES,
) -> dict[str, Any]:
    """Measure, and put the paper's and the model's figures beside."""
    began_s = time.monotonic()
    simulated = tuple(name for name in only if name in SIMULATED)
    around = machine()
    points = experiments.run(simulated, approaches, size.runs, say)
    return {
        "size": size.name,
        "runs": size.runs,
        "machine": around,
        **_on_spark(size, only, say),
        "points": [point.to_json() | _beside(point) for point in points],
        "seconds": round(time.monotonic() - began_s, 1),
    }


def _on_spark(size: Size, only: tuple[str, ...], say: Callable[[str], None]) -> dict[str, Any]:
    """What is wanted of the experiments on Spark tasks, each by its name."""
    found: dict[str, Any] = {}
    if not set(only) & set(ON_SPARK):
        return found
    spark = session("holdfast-bench-ha", slots=spark_kills.SLOTS)
    try:
        if "kills" in only:
            found["kills"] = spark_kills.measure(spark, size.kills, say)
        if "bytes" in only:
            found["bytes"] = spark_costs.measure_bytes(spark, size.rates, say)
        if "intervals" in only:
            found["intervals"] = spark_costs.measure_intervals(spark, say)
        if "handovers" in only:
            found["handovers"] = spark_costs.measure_handovers(spark, size.handovers, say)
    finally:
        spark.stop()
    return found


def combined(before: dict[str, Any], results: dict[str, Any]) -> dict[str, Any]:
    """Results, and of former ones what was not measured again."""
    measured = {(point["experiment"], point["approach"]) for point in results["points"]}
    kept = [
        point
        for point in before.get("points", ())
        if (point["experiment"], point["approach"]) not in measured
    ]
    if not kept and not set(before) - set(results):
        return results
    size = "put together from several runs"
    return before | results | {"size": size, "points": [*kept, *results["points"]]}


# -- the paper and the model beside a point ---------------------------------------------------


def _query(point: experiments.Point) -> PaperQuery:
    operator: Any = point.operator
    return PaperQuery(operator, point.window_ms, point.advance_ms, point.aggregates)


def _beside(point: experiments.Point) -> dict[str, float | None]:
    """What the paper prints, and what the model says for paper and Holdfast."""
    approach = Approach(point.approach)
    printed = _printed(point)
    found: dict[str, float | None] = {
        "paper_recovery_ms": printed[1],
        "paper_overhead_percent": printed[0],
    }
    if approach is not Approach.CHECKPOINTED:
        as_paper = _predicted(point, Variant.PAPER)
        found["paper_model_ms"] = round(as_paper.failure.recovery_ms, 2)
    if approach is Approach.AMNESIA:
        found["paper_lost_tuples"] = round(as_paper.failure.lost_tuples, 1)
    ours = _predicted(point, Variant.HOLDFAST)
    found["model_ms"] = round(ours.failure.recovery_ms, 2)
    return found


def _predicted(point: experiments.Point, variant: Variant) -> Prediction:
    approach, interval_ms = Approach(point.approach), point.interval_ms
    around = replace(
        paper.surroundings(interval_ms),
        detection_ms=point.detection_ms,
        checkpoint_interval_ms=interval_ms,
        sync_ms=paper.NETWORK_DELAY_MS + 0.1,
    )
    guarantee: Any = GUARANTEES[approach][-1]
    if variant is Variant.PAPER:
        guarantee = GUARANTEES[approach][0]  # Tables 6 to 8: rollback.
    figures = _query(point).figures()
    if variant is Variant.HOLDFAST:
        figures = _as_holdfast(figures, _query(point), interval_ms)
    return predict(approach, guarantee, figures, around, variant)


def _as_holdfast(figures: UnitFigures, query: PaperQuery, interval_ms: int) -> UnitFigures:
    """What `down` still needs keeps restart points back; windows all open at once in a replay."""
    below_ms = 1.5 * interval_ms + paper.NETWORK_DELAY_MS
    below = below_ms * paper.TUPLES_PER_S / 1000
    state = figures.state_tuples
    if query.operator == "aggregate":
        # The oldest open window began between window - advance and window ago.
        state = query.aggregates * query.window_ms - query.advance_ms / 2
    return replace(figures, below_tuples=below, rebuild_share=1.0, state_tuples=state)


def _printed(point: experiments.Point) -> tuple[float | None, float | None]:
    """Overhead and recovery time that the paper prints for it, if it does."""
    if point.experiment == "figure7" and point.approach == Approach.UPSTREAM_BACKUP.value:
        return None, paper.FIGURE_7_UPSTREAM_BACKUP_MS.get(point.aggregates)
    for cell in paper.PRINTED:
        is_it = cell.table == point.experiment and cell.approach.value == point.approach
        if is_it and cell.query == _query(point):
            return cell.overhead_percent, cell.recovery_ms
    return None, None


# -- the page -------------------------------------------------------------------------------


_TITLES: Final = {
    "figure6": ("Figure 6: M from 25 to 200 ms", "M", "interval_ms"),
    "figure7": ("Figure 7: one to five aggregates", "aggregates", "aggregates"),
    "table6": ("Table 6: type of the query", "query", "operator"),
    "table7": ("Table 7: size of the state", "window, ms", "window_ms"),
    "table8": ("Table 8: rate of change", "advance, ms", "advance_ms"),
}
_PLOTTED: Final = ("figure6", "figure7")
_HEADER: Final = (
    *("recovery", "±", "paper", "ratio", "as there", "ratio", "model", "paper's formula"),
    *("overhead %", "paper %", "own %"),
)


def _section(experiment: str, points: list[dict[str, Any]]) -> str:
    title, column, key = _TITLES[experiment]
    rows = [
        (
            point["approach"],
            point[key],
            f"{point['recovery_ms']:.1f}",
            f"{point['recovery_error_ms']:.1f}",
            _number(point["paper_recovery_ms"]),
            _ratio(point, "recovery_ms"),
            _number(point["replayed_ms"]),
            _ratio(point, "replayed_ms"),
            f"{point['model_ms']:.1f}",
            _number(point.get("paper_model_ms")),
            f"{point['overhead_percent']:.2f}",
            _number(point["paper_overhead_percent"], 2),
            f"{point['own_percent']:.2f}",
        )
        for point in points
    ]
    plot = f"\n![{experiment}](ha-{experiment}.png)\n" if experiment in _PLOTTED else ""
    return f"\n## {title}\n\n" + table(("", column, *_HEADER), rows) + plot


def _amnesia(points: list[dict[str, Any]]) -> str:
    """What the paper says by formula alone: no recovery time, no overhead, a gap. [HA Table 3]"""
    header = ("query", "recovery", "±", "detection", "lost", "formula", "overhead %", "own %")
    rows = [
        (
            point["operator"],
            f"{point['recovery_ms']:.1f}",
            f"{point['recovery_error_ms']:.1f}",
            f"{point['detection_ms']:.0f}",
            f"{point['lost_tuples']:.0f}",
            _number(point["paper_lost_tuples"], 0),
            f"{point['overhead_percent']:.2f}",
            f"{point['own_percent']:.2f}",
        )
        for point in points
    ]
    return f"\n## Amnesia\n\n{_AMNESIA}\n{table(header, rows)}"


def _number(value: float | None, digits: int = 1) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def _ratio(point: dict[str, Any], key: str) -> str:
    if not point["paper_recovery_ms"] or point[key] is None:
        return ""
    return f"{point[key] / point['paper_recovery_ms']:.2f}"


_AMNESIA: Final = """\
The paper measures no amnesia: nothing is recreated, so its recovery time is 0, and what is lost
(its Δ) are the tuples of the state and those that come until the inputs are redirected. `formula`:
that, with the detection as it was here. `recovery`: until the replacement takes input as new as
what its predecessor had taken. `lost`: reported, from the newest restart point that was stored;
that lies up to an M and the way to the journal before the failure, and goes back as far as the
state does. The overhead are acknowledgements, which also give credit; `own` are restart points,
stored to know what was lost.
"""

_WHY: Final = {
    "UpstreamBackup": """\
**Upstream backup, what a replayed tuple costs.** Not fixed by the paper's parameters, and measured
twice here. `recovery`: a tuple enters every window that it lies in, from the first one on, and is
sent while others are processed; so do Holdfast's tasks. `as there`: windows open one after another,
so that a tuple of the lost state costs half on average, and a tuple is sent (25 µs) and then
processed. That the paper's simulator does so follows from its Table 6, where 25 and 75 replayed
tuples of 10 µs take 0.88 and 2.62 ms, 35 µs each, and from its Table 7, which grows with 5 ms times
the square of the window in hundreds.

**Upstream backup, where the replay begins.** At the newest restart point that the coordinator has.
`down` notes a point and tells it an M later; the unit's own points lie one M apart; the last word
is half an M old: `state + 2 M λ` and 10 tuples on average. The paper's formula has `state + M λ + 2
d λ`, for it maps level-0 positions, and so survives one failure at a time. So M counts more here,
which shows at 150 and 200 ms in Figure 6.

**Upstream backup, large advances.** Table 8 without K comes to so many replayed tuples, if they
cost what `as there` has: 217, 239, 281, 387 and 517 tuples at advances of 5, 10, 25, 50 and 100,
about 205 and 3.2 for each of the advance. Its formula has the window, half an advance, M and two
delays: at most 210. What adds the other 2.7 advances the paper does not say: it names the effect
(the oldest tuples that contribute become known with outputs, which are rare then), but neither how
often `down`, whose acknowledgements of outputs move them, acknowledges when nothing comes, nor how
it lets go of them. Here a point is noted every M, with or without outputs.

**Upstream backup, five aggregates.** The paper's text says 170 ms; its formula gives 131 ms. What
lies between is not said either. It would fit what Table 8 shows: if every aggregate of the chain
went back as many advances further, its replay would be as long.

**Upstream backup, bytes.** Two positions per stream and M, as in the paper's Table 6. Its precise
recovery costs 16 % more, for watermarks sent with tuples; here ids count up without gaps, and
duplicates are known by them. Restart points, under `own`, are about three times the
acknowledgements.
""",
    "ActiveStandby": """\
**Active standby.** 5.2 ms are one network delay, 0.1 ms for the journal, and 0.1 ms to send a word
of 200 bytes: the coordinator notices, journals, and tells the secondary. The paper's secondary
notices by itself, and counts from there: what is left is sending the output queue again, at 25 µs a
tuple. Its 0.07 ms for the aggregate are 3 tuples, as its formula has them (λ_out (M/2 + 2 d)); its
1.8 ms for filter and union are 72, twice the formula's 35, which it does not explain. Here nothing
of that is sent again: recovery is precise, and receivers name the id that they expect. The paper
counts three ids per M and stream; here the secondary acknowledges upstream for itself and is told
two positions, which makes six. Precise recovery takes r longer in the paper, for receivers are
asked what they have; here they say so as they subscribe.
""",
    "PassiveStandby": """\
**Passive standby.** As in the paper half an M is replayed after r and d. What is sent is pages that
have changed, of 512 bytes here, and every open window has pages of its own: 10 to 50 windows of a
few words each, all of which change in every interval. That is many times the tuples that the paper
sends. The filter and the union have no state: what is sent for them is output that receivers may
still need, and what they have acknowledged within the interval is not.
""",
    "Checkpointed": """\
**Checkpointed** is not in the paper; it stands where passive standby does, with a checkpoint every
M to a store. Like there half an M has to be replayed, and what is written is pages. It is meant for
states of megabytes and intervals of seconds.
""",
}


def _differences(points: list[dict[str, Any]]) -> str:
    """How many printed cells are met, first with the paper's parameters alone, and why the others
    are not.
    """
    approaches = dict.fromkeys(p["approach"] for p in points)
    parts = [
        "\n## Where it differs, and why\n",
        f"With the paper's parameters alone, of the cells that it prints, within {_NEAR:.0%}:\n",
        _met("recovery times", points, "paper_recovery_ms", lambda p: p["recovery_ms"], "ms"),
        _met("overheads", points, "paper_overhead_percent", lambda p: p["overhead_percent"], "%"),
        "With costs of a replay that are fitted to the paper's figures (the columns `as there`):\n",
        _met("recovery times", points, "paper_recovery_ms", _as_there, "ms"),
        *(_WHY[approach] for approach in approaches if approach in _WHY),
    ]
    return "\n".join(parts)


def _met(
    what: str,
    points: list[dict[str, Any]],
    printed: str,
    found: Callable[[dict[str, Any]], float],
    unit: str,
) -> str:
    """A line that counts the printed cells that are met, and one for each of the others."""
    named = [p for p in points if p[printed]]
    far = [p for p in named if abs(found(p) / p[printed] - 1) > _NEAR]
    lines = [
        f"  - {p['approach']}, {p['experiment']}, {p[_TITLES[p['experiment']][2]]}: "
        f"{found(p):.1f} {unit}, the paper {p[printed]:.1f}\n"
        for p in far
    ]
    others = "; the others:\n" if far else ".\n"
    return f"- {len(named) - len(far)} of {len(named)} {what}{others}{''.join(lines)}"


def _as_there(point: dict[str, Any]) -> float:
    """The recovery time with the paper's costs of a replay."""
    replayed_ms: float | None = point["replayed_ms"]
    return point["recovery_ms"] if replayed_ms is None else replayed_ms


def _head(results: dict[str, Any]) -> str:
    runs = sorted({point["runs"] for point in results["points"]}) or [0]
    count = " to ".join(str(n) for n in dict.fromkeys((runs[0], runs[-1])))
    size = f"Size: {results['size']}, {count} runs a point."
    return f"{_INTRODUCTION}Machine: {machine_of(results)}. {size}\n"


def _simulated(points: list[dict[str, Any]]) -> str:
    parts: list[str] = []
    for experiment in SIMULATED:
        of_it = [point for point in points if point["experiment"] == experiment]
        mine = [point for point in of_it if point["approach"] != Approach.AMNESIA.value]
        if len(mine) < len(of_it):
            parts.append(_amnesia([point for point in of_it if point not in mine]))
        if mine:
            parts.append(_section(experiment, mine))
    return "".join([*parts, _differences(points)])


PAGE: Final = Page(
    "ha",
    _head,
    {
        "kills": spark_kills.section,
        "bytes": spark_costs.bytes_section,
        "intervals": spark_costs.intervals_section,
        "handovers": spark_costs.handover_section,
        "points": _simulated,
    },
    {"points": plots.draw},
)
