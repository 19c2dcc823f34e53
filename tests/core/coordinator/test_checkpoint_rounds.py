"""Rounds of a region: one at a time, complete with the last durable point."""

import pytest

from holdfast.core.coordinator.checkpoint_rounds import (
    AbortRound,
    BeginRound,
    CheckpointRounds,
    ReportRound,
    first_round,
)
from holdfast.core.errors import InvariantViolation
from holdfast.core.model.ids import NodeId

A, B = NodeId("a"), NodeId("b")


def _rounds():
    return CheckpointRounds((A, B), (A,), interval_ms=100, first=first_round(1))


def test_a_round_is_complete_when_the_last_point_is_durable():
    rounds = _rounds()
    [begin] = rounds.begin(1_000)
    assert begin == BeginRound(A, first_round(1))
    assert rounds.stored(A, begin.round, 1_010) == []
    assert rounds.stored(A, begin.round, 1_020) == []
    assert rounds.stored(B, begin.round, 1_030) == [
        ReportRound(begin.round, 1_000, {A: 10, B: 30}, 30)
    ]
    assert rounds.complete == begin.round


def test_rounds_do_not_overlap():
    rounds = _rounds()
    [first] = rounds.begin(0)
    assert rounds.due_ms() is None
    assert rounds.begin(1_000, is_wanted=True) == []
    rounds.stored(A, first.round, 1_000)
    rounds.stored(B, first.round, 1_000)
    assert rounds.begin(1_001) == [BeginRound(A, first.round + 1)]


def test_a_round_begins_when_it_is_time_or_wanted():
    rounds = _rounds()
    [first] = rounds.begin(0)
    for node in (A, B):
        rounds.stored(node, first.round, 10)
    assert rounds.due_ms() == 100
    assert rounds.begin(99) == []
    assert rounds.begin(99, is_wanted=True) != []


def test_points_of_a_round_that_was_aborted_complete_nothing():
    rounds = _rounds()
    [first] = rounds.begin(0)
    rounds.stored(A, first.round, 5)
    assert rounds.abort() == [AbortRound(A, first.round), AbortRound(B, first.round)]
    assert rounds.stored(B, first.round, 10) == []
    assert (rounds.aborted, rounds.complete, rounds.over) == (1, 0, first.round)
    [second] = rounds.begin(100)
    assert rounds.stored(B, first.round, 110) == []
    assert rounds.over == first.round
    assert second.round == first.round + 1


def test_nothing_begins_while_the_region_recovers():
    rounds = _rounds()
    rounds.begin(0)
    assert len(rounds.pause()) == 2
    assert rounds.begin(1_000, is_wanted=True) == []
    rounds.resume()
    assert rounds.begin(1_000) != []


def test_a_later_life_never_uses_a_round_again():
    assert first_round(2) > first_round(1) + (1 << 31)


def test_a_point_of_a_stranger_is_our_own_bug():
    rounds = _rounds()
    [first] = rounds.begin(0)
    with pytest.raises(InvariantViolation, match="stranger is no member"):
        rounds.stored(NodeId("stranger"), first.round, 1)


def test_rounds_come_soon_after_a_recovery():
    rounds = CheckpointRounds((A,), (A,), interval_ms=100, first=first_round(1))
    [begin] = rounds.begin(0)
    rounds.stored(A, begin.round, 1)
    rounds.pause()
    rounds.resume()
    dues = []
    for _ in range(5):
        now_ms = max(rounds.due_ms(), 1)
        [begin] = rounds.begin(now_ms)
        rounds.stored(A, begin.round, now_ms)
        rounds.resume()
        dues.append(rounds.due_ms() - now_ms)
    assert dues == [20, 40, 80, 100, 100], "the first at once, though it was not due"
