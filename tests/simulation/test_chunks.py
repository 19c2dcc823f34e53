"""The chunk store under faults, by seed; and whether the simulator would notice.

Run as a program, this looks for the seeds at which bugs are found, of all or those named.
"""

import sys
from collections import Counter
from collections.abc import Iterable
from unittest.mock import patch

import pytest
from chunk_mutants import CHUNK_MUTANTS
from finding import KeptSeeds, first_found_at

from holdfast.sim import chunks
from holdfast.sim.chunks import FAULTS, STEPS, ChunkOutcome, simulate_chunks

SEEDS = 20
MUTANT_SEEDS = range(200)
FOUND_AT = KeptSeeds("chunks_found_at.json")
SOON_US = 30_000_000
NOT_SETTLED = ("C-LIVE", "C-LEAK", "C-COPIES", "C-ROT")
"""What is said of a store that does not settle."""


@pytest.fixture(scope="module")
def outcomes() -> list[ChunkOutcome]:
    return [simulate_chunks(seed) for seed in range(SEEDS)]


def test_every_invariant_holds_under_all_faults(outcomes: list[ChunkOutcome]) -> None:
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


def test_the_same_seed_gives_the_same_run_and_others_do_not(outcomes: list[ChunkOutcome]) -> None:
    assert [simulate_chunks(seed) for seed in range(2)] == outcomes[:2]
    assert len({outcome.digest for outcome in outcomes}) == SEEDS


@pytest.mark.parametrize("name", CHUNK_MUTANTS)
def test_a_deliberate_bug_of_the_chunk_store_is_found(name: str) -> None:
    found = _found_at(name, FOUND_AT.first(name, MUTANT_SEEDS))
    assert found is not None, "nobody noticed"
    assert found[1] in (CHUNK_MUTANTS[name].invariants or found)


def _found_at(
    name: str, seeds: Iterable[int], *, is_patient: bool = False
) -> tuple[int, str] | None:
    """`is_patient`: wait for as long as campaigns do for a store that does not settle.

    Else it is enough that the same store without the bug settles soon, and this one does not.
    """
    mutant = CHUNK_MUTANTS[name]

    def run(seed: int) -> ChunkOutcome:
        if not is_patient:
            with patch.object(chunks, "_LIMIT_US", SOON_US):
                with mutant.switched_in():
                    soon = simulate_chunks(seed)
                if soon.invariant not in NOT_SETTLED:
                    return soon
                is_it = soon.invariant in (mutant.invariants or NOT_SETTLED)
                if is_it and simulate_chunks(seed).invariant is None:
                    return soon
        with mutant.switched_in():
            return simulate_chunks(seed)

    return first_found_at(run, seeds)


def _first_seed(name: str) -> int | None:
    found = _found_at(name, FOUND_AT.first(name, MUTANT_SEEDS), is_patient=True)
    return found and found[0]


if __name__ == "__main__":
    FOUND_AT.look_again(sys.argv[1:] or list(CHUNK_MUTANTS), _first_seed)
