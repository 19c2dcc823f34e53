"""The chunk store under faults, by seed; and whether the simulator would notice."""

from collections import Counter

import pytest
from chunk_mutants import CHUNK_MUTANTS
from finding import first_found

from holdfast.sim.chunks import FAULTS, STEPS, simulate_chunks

SEEDS = 100
MUTANT_SEEDS = 200


def test_every_invariant_holds_under_all_faults() -> None:
    outcomes = [simulate_chunks(seed) for seed in range(SEEDS)]
    shown = [f"seed {o.seed}: {o.violation}" for o in outcomes if o.invariant is not None]
    assert not shown, "\n".join(shown)
    struck: Counter[str] = Counter()
    for outcome in outcomes:
        struck.update(outcome.faults)
    assert set(struck) == {*FAULTS, *STEPS}
    assert sum(outcome.committed for outcome in outcomes) > 20 * SEEDS
    assert sum(outcome.copies for outcome in outcomes) > SEEDS


def test_without_faults_nothing_is_copied_again() -> None:
    for seed in range(10):
        outcome = simulate_chunks(seed, with_faults=False)
        assert outcome.invariant is None, outcome.violation
        assert outcome.committed > 10
        assert outcome.copies == 0


def test_the_same_seed_gives_the_same_run() -> None:
    digests = [simulate_chunks(seed).digest for seed in range(5)]
    assert digests == [simulate_chunks(seed).digest for seed in range(5)]
    assert len(set(digests)) == 5


@pytest.mark.parametrize("name", CHUNK_MUTANTS)
def test_a_deliberate_bug_of_the_chunk_store_is_found(name: str) -> None:
    mutant = CHUNK_MUTANTS[name]
    with mutant.switched_in():
        found = first_found(map(simulate_chunks, range(MUTANT_SEEDS)))
    assert found is not None, f"nobody noticed in {MUTANT_SEEDS} runs"
    assert found in (mutant.invariants or (found,))
