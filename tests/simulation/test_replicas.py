"""Units with replicas under faults: seeds at which something was wrong once. [DPC §3]"""

from __future__ import annotations

import pytest

from holdfast.sim.faults import KINDS
from holdfast.sim.seeds import Run, simulate
from holdfast.sim.workload.oracle import TimedRow, _united
from holdfast.sim.workload.protections import REPLICAS


@pytest.mark.parametrize("seed", [4, 12, 41])
def test_replicas_agree_correct_and_end(seed: int) -> None:
    """Once a replica that nobody reads stopped; twice tuples came older than what was acted on."""
    run = Run(seed, tuple(KINDS), "random", approach=REPLICAS)
    assert any(plan.replicas for plan in run.workload().plans)
    outcome = simulate(run)
    assert outcome.invariant is None, outcome.violation
    assert outcome.reached["turn granted"]


@pytest.mark.parametrize("seed", [1004, 1019, 1045, 2036])
def test_replicas_end_in_time(seed: int) -> None:
    """A boundary came with the last of a silent replay; a turn was asked for when something came;
    tentative tuples stood behind the end of a stream that another replica had sent; one that waited
    for its turn stopped the producer of those that had theirs.
    """
    outcome = simulate(Run(seed, approach=REPLICAS))
    assert outcome.invariant is None, outcome.violation


def test_a_replica_that_is_left_and_does_not_hear_of_it_ends() -> None:
    """1. It goes on without input, cut off. 2. Its readers go over to another one. 3. That word is
    lost, and the run that it keeps for them filled its output.
    """
    run = Run(408365, keep=(4,))
    assert any(plan.replicas for plan in run.workload().plans)
    outcome = simulate(run)
    assert outcome.invariant is None, outcome.violation
    assert outcome.faults == {"isolate": 1}


def test_a_replica_whose_outputs_are_full_goes_on_to_where_another_one_is() -> None:
    """1. A node records what it made of one replica's tuples, and is replaced. 2. The other replica
    is behind the first. 3. The replacement waits for the same tuples from it, beyond its bound.
    """
    outcome = simulate(Run(1010194))
    assert outcome.invariant is None, outcome.violation


def test_a_replacement_takes_nothing_tentative_that_its_state_has() -> None:
    """1. A node has processed all of a stream, up to its end, and is killed. 2. So is a replica of
    its producer, which begins further back. 3. The node failed at each of its tentative tuples.
    """
    kinds = ("kill", "machine-crash", "kill-replicas")
    outcome = simulate(Run(73, kinds, approach=REPLICAS))
    assert outcome.invariant is None, outcome.violation


def test_the_oracle_knows_no_time_behind_a_union_that_it_did_not_know_before() -> None:
    """The sink of a unit with replicas is a union of one stream, perhaps of running results."""
    rows = [TimedRow(5, {"n": 1}, has_time=False)]
    assert not any(row.has_time for row in _united([rows], is_by_arrival=False))
