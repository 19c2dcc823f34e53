"""One recovery of a region: halt, plan, write down, tell."""

import pytest

from holdfast.core.coordinator.rollback import (
    GoOn,
    Halt,
    RegionState,
    RollBack,
    Rollback,
    StartFrom,
)
from holdfast.core.errors import LocalProtocolError
from holdfast.core.model.ids import NodeId, StreamId
from holdfast.core.recovery.checkpoint_graph import LIVE, Channel, Place

A, B, C = NodeId("a"), NodeId("b"), NodeId("c")
CHANNELS = (Channel(StreamId("a>b"), A, B), Channel(StreamId("b>c"), B, C))
POINTS = {
    A: (Place(0), Place(1, {}, {"a>b": 10})),
    B: (Place(0), Place(1, {"a>b": 5}, {"b>c": 5})),
    C: (Place(0), Place(1, {"b>c": 4})),
}
AHEAD = Place(LIVE, {"a>b": 15}, {"b>c": 15})
BEHIND = Place(LIVE, {"b>c": 5})


def _at_work():
    region = Rollback((A, B, C), CHANNELS)
    region.decide({node: (Place(0),) for node in POINTS})
    assert region.journalled() == [StartFrom(A, 0), StartFrom(B, 0), StartFrom(C, 0)]
    assert not region.is_at_work
    for node in (A, B, C):
        region.at_work(node)
    assert region.is_at_work
    return region


def test_a_recovery_halts_plans_and_tells():
    region = _at_work()
    assert region.lost(A) == [Halt(B, 2), Halt(C, 2)]
    region.halted(B, 2, AHEAD)
    assert not region.is_ready
    region.halted(C, 2, BEHIND)
    assert region.is_ready
    plan = region.decide(POINTS)
    assert plan.back_to == {A: 1, B: 1}
    assert not region.may_move_line
    assert region.journalled() == [StartFrom(A, 1), RollBack(B, 1), GoOn(C)]
    assert region.state is RegionState.WORKING
    assert region.may_move_line
    assert not region.is_at_work


def test_a_survivor_that_is_lost_meanwhile_is_not_waited_for():
    region = _at_work()
    region.lost(A)
    region.halted(B, 2, AHEAD)
    assert region.lost(C) == []
    assert region.is_ready
    assert region.decide(POINTS).back_to == {A: 1, B: 1, C: 1}


def test_answers_to_an_earlier_attempt_say_nothing():
    region = _at_work()
    region.lost(A)
    region.halted(B, 1, AHEAD)
    region.halted(C, 2, BEHIND)
    assert not region.is_ready


def test_who_is_lost_while_the_plan_is_written_down_begins_another_recovery():
    region = _at_work()
    region.lost(A)
    region.halted(B, 2, AHEAD)
    region.halted(C, 2, BEHIND)
    region.decide(POINTS)
    assert region.lost(C) == []
    told = region.journalled()
    assert told == [StartFrom(A, 1), RollBack(B, 1), GoOn(C), Halt(B, 3)]
    region.halted(B, 3, Place(LIVE, {"a>b": 5}, {"b>c": 5}))
    plan = region.decide(POINTS)
    assert plan.back_to == {A: 1, C: 1}
    assert region.journalled() == [StartFrom(A, 1), GoOn(B), StartFrom(C, 1)]


def test_a_plan_needs_all_answers_and_telling_a_plan():
    region = _at_work()
    region.lost(A)
    with pytest.raises(LocalProtocolError, match="before all survivors have answered"):
        region.decide(POINTS)
    with pytest.raises(LocalProtocolError, match="no recovery was decided"):
        region.journalled()
