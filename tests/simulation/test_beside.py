"""Simulators with worlds of their own run by seed, and say what does not hold, as all do."""

from itertools import pairwise

import pytest
from recording_mutants import RECORDING_MUTANTS

from holdfast.sim.beside import BESIDE, world_of
from holdfast.sim.campaign import run_all
from holdfast.sim.seeds import Run, simulate


@pytest.mark.parametrize("world", BESIDE)
def test_a_world_of_its_own_runs_by_seed_and_can_be_traced(world: str) -> None:
    """Both times it is the same run. The trace is in order, and tells of more than a start."""
    outcome = simulate(Run(7, dataflow=world))
    assert outcome.invariant is None, outcome.violation
    assert outcome.run.command() == f"holdfast simulate --seed 7 --dataflow {world} --trace"
    told: list[tuple[int, str]] = []
    assert simulate(outcome.run, lambda now, text: told.append((now, text))) == outcome
    assert len(told) > 2
    lives = [now for now, text in told if text.startswith(("first life", "second life"))]
    begins = lives.count(0) or 1
    assert sum(a > b for (a, _), (b, _) in pairwise(told)) < begins


def test_each_world_has_its_turn() -> None:
    assert sorted(world_of(seed) for seed in range(100, 106)) == sorted(BESIDE)


def test_a_campaign_sees_what_only_recording_shows() -> None:
    with RECORDING_MUTANTS["appends what has a number"].switched_in():
        beside = run_all((Run(seed, dataflow="recording") for seed in range(60)), processes=1)
        networks = run_all(map(Run, range(3)), processes=1)
    assert beside.violations
    assert all(str(found.invariant).startswith("R-") for found in beside.violations)
    assert not networks.violations
