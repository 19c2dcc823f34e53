"""Ingest logs under faults, by seed; and whether the simulator would notice."""

from collections import Counter

import pytest
from finding import first_found
from recording_mutants import RECORDING_MUTANTS

from holdfast.sim.recording import KINDS, RecordingOutcome, simulate_recording

SEEDS = 400
MUTANT_SEEDS = 400


@pytest.fixture(scope="module")
def outcomes() -> list[RecordingOutcome]:
    return [simulate_recording(seed) for seed in range(SEEDS)]


def test_every_row_counts_once_under_all_faults(outcomes: list[RecordingOutcome]) -> None:
    shown = [f"seed {o.seed}: {o.violation}" for o in outcomes if o.invariant is not None]
    assert not shown, "\n".join(shown)
    assert {outcome.kind for outcome in outcomes} == set(KINDS)
    happened: Counter[str] = Counter()
    for outcome in outcomes:
        happened.update(outcome.events)
    assert {"killed", "paused", "repeated", "removed", "unanswered", "asked twice"} <= set(happened)
    assert {"refused: ended", "refused: foreign", "refused: missing"} <= set(happened)
    assert "reader refused: missing" in happened


def test_the_same_seed_gives_the_same_run(outcomes: list[RecordingOutcome]) -> None:
    assert [simulate_recording(seed) for seed in range(5)] == outcomes[:5]
    assert len({outcome.digest for outcome in outcomes[:5]}) == 5


@pytest.mark.parametrize("name", RECORDING_MUTANTS)
def test_a_deliberate_bug_of_recording_is_found(name: str) -> None:
    mutant = RECORDING_MUTANTS[name]
    with mutant.switched_in():
        found = first_found(map(simulate_recording, range(MUTANT_SEEDS)))
    assert found is not None, f"nobody noticed in {MUTANT_SEEDS} runs"
    assert found in mutant.invariants
