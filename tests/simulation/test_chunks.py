"""The chunk store under faults, by seed; and whether the simulator would notice.

Run as a program, this looks for the seeds at which bugs are found, of all or those named.
"""

import sys
from collections import Counter
from collections.abc import Iterable

import pytest
from chunk_mutants import CHUNK_MUTANTS
from finding import KeptSeeds, first_found_at

from holdfast.sim.chunks import FAULTS, STEPS, simulate_chunks

SEEDS = 20
MUTANT_SEEDS = range(200)
FOUND_AT = KeptSeeds("chunks_found_at.json")


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


def test_a_host_that_is_away_takes_all_of_its_data_nodes_with_it() -> None:
    """So it counts as the loss of each; two that hold both copies of a chunk may not be away."""
    outcome = simulate_chunks(1011502)
    assert outcome.invariant is None, outcome.violation


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
    found = _found_at(name, FOUND_AT.first(name, MUTANT_SEEDS))
    assert found is not None, "nobody noticed"
    assert found[1] in (CHUNK_MUTANTS[name].invariants or found)


def _found_at(name: str, seeds: Iterable[int]) -> tuple[int, str] | None:
    with CHUNK_MUTANTS[name].switched_in():
        return first_found_at(simulate_chunks, seeds)


def _first_seed(name: str) -> int | None:
    found = _found_at(name, FOUND_AT.first(name, MUTANT_SEEDS))
    return found and found[0]


if __name__ == "__main__":
    FOUND_AT.look_again(sys.argv[1:] or list(CHUNK_MUTANTS), _first_seed)
