"""Upstream backup under seeded fault schedules: precise, whatever fails and when. [HA §3.1, §4.3]

A failure prints the seed; `holdfast simulate --seed N` shows the run.
"""

import pytest
from dataflows import Case, counts_case, join_case, rows_of

from holdfast.sim.world import Faults, RunResult, World

FAULTS = Faults(kills=3, pauses=2, losses=3, cuts=2)
SHAPES = ("counts", "deep", "join")


def case_of(shape: str, seed: int) -> Case:
    if shape == "join":
        return join_case(seed, tuples=60)
    return counts_case(seed, senders=2, counters=2, tuples=200, is_deep=shape == "deep")


def run(case: Case, seed: int, faults: Faults) -> RunResult:
    return World(case.plans, case.sources, seed=seed, faults=faults).run()


def check_precise(case: Case, result: RunResult) -> None:
    assert result.error is None
    for stream, tuples in result.sinks.items():
        assert [tuple_id for tuple_id, _, _ in tuples] == list(range(len(tuples))), stream
    assert rows_of(result.sinks) == case.expected


@pytest.mark.parametrize("shape", SHAPES)
def test_without_faults_nothing_is_replayed_or_sent_twice(shape: str) -> None:
    case = case_of(shape, 0)
    result = run(case, 0, Faults())
    check_precise(case, result)
    assert result.failures == 0
    assert result.statistics["replayed_tuples"] == 0
    assert result.statistics["duplicates_dropped"] == 0


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("first", range(0, 60, 20))
def test_output_is_precise_under_all_faults(shape: str, first: int) -> None:
    failures = 0
    for seed in range(first, first + 20):
        case = case_of(shape, seed)
        result = run(case, seed, FAULTS)
        check_precise(case, result)
        failures += result.failures
    assert failures > 20, "the schedules must contain failures worth recovering from"


@pytest.mark.parametrize("shape", SHAPES)
def test_the_order_and_ids_are_those_of_the_run_without_faults(shape: str) -> None:
    for seed in range(5):
        case = case_of(shape, seed)
        assert run(case, seed, FAULTS).sinks == run(case, seed, Faults()).sinks


def test_the_same_seed_gives_the_same_run() -> None:
    digests = [run(case_of("deep", 7), 7, FAULTS).digest for _ in range(2)]
    assert digests[0] == digests[1]
