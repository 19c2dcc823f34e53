"""Real runs of replicated units, by seed: what was struck, and what came of it. [DPC]

The runs are those of `python -m holdfast_chaos`; here each stays in the report, with its commit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from holdfast_bench.reporter import table
from holdfast_bench.spine import machine

if TYPE_CHECKING:
    from holdfast_chaos.replicated_runs import ReplicatedOutcome

Points = list[dict[str, Any]]


def real_runs(seeds: Iterable[int], say: Callable[[str], None]) -> Points:
    """Run the seeds on Spark tasks; one point each."""
    import holdfast as hf
    from holdfast_chaos.replicated_runs import SLOTS, execute_all, told

    spark = hf.session("holdfast-bench-dpc-runs", SLOTS)
    spark.sparkContext.setLogLevel("OFF")
    try:
        outcomes = execute_all(spark, seeds, lambda outcome: say(told(outcome)))
    finally:
        spark.stop()
    commit = machine()["commit"]
    return [{**_point(outcome), "commit": commit} for outcome in outcomes]


def _point(outcome: ReplicatedOutcome) -> dict[str, Any]:
    run = outcome.run
    return {
        "seed": run.seed,
        "feeds": run.feeds,
        "sources": run.sources,
        "protection": run.protection,
        "struck": outcome.struck,
        "failures": outcome.failures,
        "tentative": outcome.tentative,
        "dropped": outcome.dropped,
        "delay_max_ms": outcome.delay_max_ms,
        "violations": outcome.violations,
    }


def section(points: Points) -> str:
    """How many ran, what struck them, and what was not as it must be."""
    by_replicas: list[tuple[Any, ...]] = []
    for replicas in sorted({point["protection"]["replicas"] for point in points}):
        of_it = [point for point in points if point["protection"]["replicas"] == replicas]
        ways = Counter(point["protection"]["reconcile"] for point in of_it)
        by_replicas.append(
            (
                replicas,
                len(of_it),
                ways["checkpoint/redo"],
                ways["undo/redo"],
                sum(point["failures"] for point in of_it),
                sum(point["tentative"] > 0 for point in of_it),
                sum(point["dropped"] > 0 for point in of_it),
                sum(bool(point["violations"]) for point in of_it),
            )
        )
    names = (
        *("replicas", "runs", "checkpoint/redo", "undo/redo", "failures found"),
        *("with tentative rows", "with dropped rows", "with a violation"),
    )
    struck = Counter(kind for point in points for kind in point["struck"])
    kinds = [(kind, count) for kind, count in sorted(struck.items())]
    commits = ", ".join(dict.fromkeys(point["commit"] for point in points))
    wrong = [(point["seed"], "; ".join(point["violations"])) for point in points]
    wrong = [each for each in wrong if each[1]]
    text = (
        f"\n## Real runs\n\n{len(points)} seeds of `python -m holdfast_chaos` on Spark tasks, on "
        f"commits {commits}: sources fall silent, nodes are killed, paused and cut off by a proxy, "
        "all replicas at once, and drivers. A run is right if the sink holds exactly what it must, "
        "and each run of tentative rows in the feed is undone and corrected.\n\n"
        f"{table(names, by_replicas)}\n{table(('fault', 'struck'), kinds)}"
    )
    return text + (f"\n{table(('seed', 'violation'), wrong)}" if wrong else "")
