"""CheckMate, section II: what its three processing semantics promise, and no more. [CheckMate §II]

Each is shown by a failure: the same queries, killed, with all the simulator's invariants on.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pytest

from holdfast.sim.checkers import all_checkers
from holdfast.sim.checkers.base import Checker
from holdfast.sim.checkers.output import tuples_of
from holdfast.sim.seeds import LOOP, Run, conditions
from holdfast.sim.workload.protections import CUTS
from holdfast.sim.world import RunResult, World

KILLS = ("kill",)


@dataclass
class _Kept(Checker):
    """The results of a run."""

    results: list[RunResult] = field(default_factory=list)

    def end(self, result: RunResult) -> None:
        self.results.append(result)


def _lost_and_extra(run: Run) -> tuple[int, int, int]:
    """Results that are missing, results too many, and how often something was killed."""
    workload, kept = run.workload(), _Kept()
    world = World(
        workload.plans,
        workload.sources,
        seed=run.seed,
        faults=run.faults(),
        conditions=conditions(run.seed, workload.plans[0].limits),
        checkers=[*all_checkers(workload.expected, workload.promises), kept],
    )
    result = world.run()
    lost, extra = Counter[Any](), Counter[Any]()
    for sink, expected in workload.expected.rows.items():
        found = Counter(values for _, values in tuples_of(sink, result))
        lost += expected - found
        extra += found - expected
    return lost.total(), extra.total(), world.strikes.struck["kill"]


@pytest.mark.parametrize("seed", [2, 5])
def test_exactly_once_at_least_once_and_at_most_once_are_three_promises(seed: int) -> None:
    """The same query, killed at the same moments, with each of them."""

    def killed(guarantee: str) -> tuple[int, int, int]:
        return _lost_and_extra(Run(seed, KILLS, "q1", None, None, "upstream backup", guarantee))

    lost, extra, kills = killed("precise")
    assert (lost, extra) == (0, 0)
    assert kills > 0
    lost, extra, _ = killed("rollback")
    assert lost == 0, "at least once"
    assert extra > 0, "and some twice: it is no more"
    lost, extra, _ = killed("gap")
    assert lost > 0, "at most once, and some never"
    assert extra == 0


@pytest.mark.parametrize("approach", CUTS)
def test_each_of_the_papers_protocols_gives_exactly_once_in_a_loop_that_is_killed(
    approach: str,
) -> None:
    lost, extra, kills = _lost_and_extra(Run(2, KILLS, LOOP, None, None, approach))
    assert (lost, extra) == (0, 0)
    assert kills > 0
