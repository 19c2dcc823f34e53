"""Sources that read a topic, by seed; and whether the simulator would notice."""

from collections import Counter

import pytest
from finding import first_found
from topic_mutants import TOPIC_MUTANTS

from holdfast.sim.topics import FAULTS, TopicOutcome, simulate_topics

SEEDS = 150
MUTANT_SEEDS = 400


@pytest.fixture(scope="module")
def outcomes() -> list[TopicOutcome]:
    return [simulate_topics(seed) for seed in range(SEEDS)]


def test_every_invariant_holds_under_all_faults(outcomes: list[TopicOutcome]) -> None:
    shown = [f"seed {o.seed}: {o.violation}" for o in outcomes if o.invariant is not None]
    assert not shown, "\n".join(shown)
    struck: Counter[str] = Counter()
    for outcome in outcomes:
        struck.update(outcome.faults)
    assert set(struck) == set(FAULTS)
    assert sum(outcome.rows for outcome in outcomes) > 100 * SEEDS
    assert sum(outcome.late for outcome in outcomes) > SEEDS
    assert sum(outcome.promises for outcome in outcomes) > SEEDS
    reached: Counter[str] = Counter()
    for outcome in outcomes:
        reached.update(outcome.reached)
    assert reached["replica took over"] > SEEDS // 2
    assert reached["replica with other tuples"] > 0


def test_who_falls_silent_before_it_has_said_that_it_has_records_is_idle_to_the_others() -> None:
    """It got its first record for a while 27 ms before its pause."""
    assert simulate_topics(406603).invariant is None


def test_the_same_seed_gives_the_same_run_and_others_do_not(outcomes: list[TopicOutcome]) -> None:
    assert [simulate_topics(seed) for seed in range(5)] == outcomes[:5]
    assert len({outcome.digest for outcome in outcomes}) == SEEDS


@pytest.mark.parametrize("name", TOPIC_MUTANTS)
def test_a_deliberate_bug_of_a_source_is_found(name: str) -> None:
    mutant = TOPIC_MUTANTS[name]
    with mutant.switched_in():
        found = first_found(map(simulate_topics, range(MUTANT_SEEDS)))
    assert found is not None, f"nobody noticed in {MUTANT_SEEDS} runs"
    assert found in mutant.invariants
