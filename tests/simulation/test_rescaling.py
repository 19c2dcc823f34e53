"""Elastic restarts by seed: results are the same at another parallelism."""

from __future__ import annotations

import pytest

from holdfast.sim.rescaling import simulate_rescaling


@pytest.mark.parametrize("seed", [0, 8])
def test_a_unit_that_holds_what_came_after_its_last_pass_is_divided(seed: int) -> None:
    """1. A join has acted on all that both streams promise, and is stored. 2. More of one comes. 3.
    No pass runs, and so no checkpoint follows: the restart was refused for ever.
    """
    outcome = simulate_rescaling(seed)
    assert outcome.invariant is None, outcome.violation
    assert outcome.is_divided, outcome.violation


@pytest.mark.parametrize("seed", [3, 9])
def test_a_union_of_sources_that_holds_some_sends_it_again(seed: int) -> None:
    """It is without state, so that its producers, and not a checkpoint, have what it holds."""
    outcome = simulate_rescaling(seed)
    assert outcome.invariant is None, outcome.violation
    assert outcome.is_divided, outcome.violation


def test_a_node_without_state_is_at_the_cut_when_its_sink_has_what_it_put_out() -> None:
    """1. A sink is in an object store, and its last part is not stored. 2. The node is stopped."""
    outcomes = [simulate_rescaling(seed) for seed in (16, 17)]
    assert [each.violation for each in outcomes if each.invariant or not each.is_divided] == []


@pytest.mark.parametrize("seed", [6, 14, 23, 35, 88, 110])
def test_units_that_recover_together_are_divided_at_a_line(seed: int) -> None:
    """Uncoordinated, aligned, unaligned, and induced; the last two in loops.

    In the first one `spread` has no input at first, and two lines are kept: the gates of the others
    did not open any more.
    """
    outcome = simulate_rescaling(seed)
    assert outcome.invariant is None, outcome.violation
    assert outcome.is_divided, outcome.violation


@pytest.mark.parametrize("seed", [192, 216])
def test_units_whose_results_may_come_again_are_divided_behind_what_sinks_hold(seed: int) -> None:
    """1. Sinks hold more than the line says. 2. A node goes back to that. 3. All is divided."""
    outcome = simulate_rescaling(seed)
    assert outcome.invariant is None, outcome.violation
    assert outcome.is_divided, outcome.violation


@pytest.mark.parametrize("seed", [19, 37, 69, 111, 175])
def test_windows_with_footprints_are_divided(seed: int) -> None:
    """Groups and joins, of one stream and of several, whose cut is a time: rows come again."""
    outcome = simulate_rescaling(seed)
    assert outcome.invariant is None, outcome.violation
    assert outcome.is_divided, outcome.violation
    assert outcome.rows


def test_seeds_are_divided_and_end_with_the_same_results() -> None:
    outcomes = [simulate_rescaling(seed) for seed in range(20, 30)]
    assert not [outcome for outcome in outcomes if outcome.invariant is not None]
    assert all(outcome.is_divided and outcome.rows for outcome in outcomes)


def test_a_seed_comes_to_the_same_each_time() -> None:
    assert simulate_rescaling(5) == simulate_rescaling(5)
