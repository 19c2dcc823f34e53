"""Does the checker see? Each deliberate bug must be found within 200 seeds."""

import pytest
from mutants import MUTANTS

from holdfast.sim.seeds import Run, simulate

SEEDS = 200
BY_ITS_NAME = {
    "trims one too far": {"I-TRIM"},
    "trims at level 0": {"I-TRIM"},
    "needs only what comes": {"I-CUT", "I-PRECISE"},
    "accepts an old sender": {"I-FENCE"},
    "accepts an old receiver": {"I-FENCE", "I-MEM"},
    "ignores credit": {"I-MEM"},
    "promises before it sends": {"I-BND", "LocalProtocolError"},
    "reuses incarnations": {"I-INC"},
    "assigns before the journal": {"I-COORD"},
    "partitions by incarnation": {"I-DET", "I-BND", "I-CUT"},
    "speaks while it replays": {"I-CUT", "I-DET"},
    "never subscribes again": {"I-LIVE"},
}
"""Invariants that must be the one found, where only they make sense."""


@pytest.mark.parametrize("name", MUTANTS)
def test_a_deliberate_bug_is_found(name: str) -> None:
    with MUTANTS[name].switched_in():
        for seed in range(SEEDS):
            outcome = simulate(Run(seed))
            if outcome.invariant is not None:
                assert outcome.invariant in BY_ITS_NAME.get(name, {outcome.invariant})
                return
    pytest.fail(f"nobody noticed in {SEEDS} runs")


def test_a_mutant_is_gone_after_its_block() -> None:
    mutant = MUTANTS["trims one too far"]
    before = getattr(mutant.owner, mutant.method)
    with mutant.switched_in():
        assert getattr(mutant.owner, mutant.method) is not before
    assert getattr(mutant.owner, mutant.method) is before
