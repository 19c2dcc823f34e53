"""Plots of Figures 6 and 7: recovery time against bandwidth overhead."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from holdfast.core.recovery.cost_model import Approach, UnitFigures, predict
from holdfast_bench.ha import paper
from holdfast_bench.ha.paper import PaperQuery

_MARKERS: Final = {"UpstreamBackup": "o", "ActiveStandby": "s", "PassiveStandby": "^"}
_FORMULAS: Final = (Approach.UPSTREAM_BACKUP, Approach.PASSIVE_STANDBY, Approach.ACTIVE_STANDBY)
_FIGURES: Final = {
    "figure6": "Figure 6: M 25, 50, 100, 150, 200 ms",
    "figure7": "Figure 7: one to five aggregates",
}


def draw(points: list[dict[str, Any]], folder: Path) -> None:
    """Write `ha-figure6.png` and `ha-figure7.png`, as far as there are points."""
    for experiment, title in _FIGURES.items():
        mine = [point for point in points if point["experiment"] == experiment]
        if mine:
            _draw(experiment, title, mine, folder / f"ha-{experiment}.png")


def _draw(experiment: str, title: str, points: list[dict[str, Any]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4.5), layout="constrained")
    for approach in _FORMULAS:
        times, overheads = _formula(experiment, approach)
        label = f"{approach.value}, the paper's formula"
        marker = _MARKERS[approach.value]
        axes.plot(overheads, times, marker + ":", alpha=0.5, markersize=4, label=label)
    for name in dict.fromkeys(point["approach"] for point in points):
        mine = [point for point in points if point["approach"] == name]
        if name not in _MARKERS:
            continue  # Its overhead is of another kind, and off the scale.
        axes.errorbar(
            [point["overhead_percent"] for point in mine],
            [point["recovery_ms"] for point in mine],
            yerr=[point["recovery_error_ms"] for point in mine],
            fmt=_MARKERS[name] + "-",
            label=f"{name}, simulated (precise)",
        )
    axes.set_xlabel("bandwidth overhead, % of the tuples to the unit")
    axes.set_ylabel("recovery time from detection, ms")
    axes.set_ylim(bottom=0)
    axes.set_xscale("log")  # Pages instead of tuples, or two ids instead of all tuples.
    axes.set_title(title)
    axes.grid(visible=True, alpha=0.3)
    axes.legend(fontsize="small")
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def _formula(experiment: str, approach: Approach) -> tuple[list[float], list[float]]:
    """The curve by Table 3: rollback recovery."""
    if experiment == "figure6":
        wanted: list[tuple[UnitFigures, float]] = [
            (PaperQuery().figures(), interval_ms) for interval_ms in paper.INTERVALS_MS
        ]
    else:
        counts = range(1, 6)
        wanted = [(PaperQuery(aggregates=n).figures(), paper.INTERVAL_MS) for n in counts]
    found = [predict(approach, "rollback", unit, paper.surroundings(m)) for unit, m in wanted]
    times = [prediction.failure.recovery_ms for prediction in found]
    return times, [prediction.run_time.bandwidth_percent for prediction in found]
