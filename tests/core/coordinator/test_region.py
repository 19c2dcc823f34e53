"""A region over the registry: decisions, the oldest line, and what members are told of it."""

from __future__ import annotations

import pytest

from holdfast.core.coordinator.checkpoint_registry import CheckpointRegistry
from holdfast.core.coordinator.checkpoint_rounds import AbortRound, BeginRound, ReportRound
from holdfast.core.coordinator.journal_entries import (
    LineMoved,
    NewLife,
    PointNoted,
    RecoveryDecision,
)
from holdfast.core.coordinator.region import Region, RegionPlan, TellLine
from holdfast.core.coordinator.rollback import GoOn, Halt, RollBack, StartFrom
from holdfast.core.model.ids import NOBODY, Incarnation, NodeId, PointId, StreamId
from holdfast.core.recovery.checkpoint_graph import LIVE, Channel, Place
from holdfast.core.recovery.recovery_line import NoLine
from holdfast.core.recovery.restart_point import RestartPoint

A, B = NodeId("a"), NodeId("b")
AB = Channel(StreamId("a>b"), A, B)
ONE = Incarnation(1)


class _Coordinator:
    """What is asked for is durable at once."""

    def __init__(self, entries=(), **settings):
        self.entries = list(entries)
        self.registry = CheckpointRegistry.of(entries)
        self.region = Region(RegionPlan((A, B), (AB,), **settings), self.registry, epoch=1)

    def take(self, entry):
        self.entries.append(entry)
        self.registry.take(entry)

    def recover(self):
        decision = self.region.decide()
        self.take(decision)
        told = self.region.decided()
        for node in (A, B):
            self.region.at_work(node)
        return decision, told

    def point_of_a(self, sequence, sent, *, incarnation=ONE, **more):
        point = RestartPoint(sequence, next_ids={"a>b": sent, "a>sink": sent}, **more)
        return self._noted(PointNoted(A, incarnation, point, keeps_older=True))

    def point_of_b(self, sequence, processed, *, incarnation=ONE, **more):
        point = RestartPoint(sequence, processed_before={"a>b": processed}, **more)
        return self._noted(PointNoted(B, incarnation, point, keeps_older=True))

    def _noted(self, noted):
        self.take(noted)
        return self.region.noted(noted, now_ms=50)

    def move(self):
        moved = self.region.move_line()
        if moved is None:
            return None, []
        self.take(moved)
        self.region.line_noted(60)
        return moved, self.region.tell_line()


def _at_work(**settings):
    coordinator = _Coordinator(**settings)
    decision, told = coordinator.recover()
    assert {life.node: life.goes_back_to for life in decision.lives} == {
        A: PointId(NOBODY, 0),
        B: PointId(NOBODY, 0),
    }
    assert told == [StartFrom(A, 0), StartFrom(B, 0)]
    return coordinator


def test_the_line_moves_when_points_go_together():
    coordinator = _at_work()
    coordinator.point_of_b(1, 5)
    assert coordinator.move() == (None, [])
    coordinator.point_of_a(1, 10)
    moved, told = coordinator.move()
    assert moved == LineMoved({A: PointId(ONE, 1), B: PointId(ONE, 1)})
    assert told == [TellLine(A, {"a>b": 5}, {"a>b": 10, "a>sink": 10}), TellLine(B, {}, {})]
    assert coordinator.move() == (None, [])


def test_one_move_is_written_at_a_time():
    coordinator = _at_work()
    coordinator.point_of_a(1, 10)
    assert coordinator.region.move_line() is not None
    coordinator.point_of_a(2, 20)
    assert coordinator.region.move_line() is None
    coordinator.region.line_noted(60)
    assert coordinator.region.move_line() is not None


def test_with_two_lines_kept_the_oldest_shares_no_point_with_the_newest():
    coordinator = _at_work(kept=2)
    coordinator.point_of_a(1, 10)
    coordinator.point_of_b(1, 5)
    assert coordinator.move() == (None, [])
    coordinator.point_of_a(2, 20)
    moved, _ = coordinator.move()
    assert moved == LineMoved({A: PointId(ONE, 1)})
    coordinator.point_of_b(2, 15)
    moved, _ = coordinator.move()
    assert moved == LineMoved({B: PointId(ONE, 1)})


def test_a_survivor_goes_back_with_one_entry_for_all():
    coordinator = _at_work()
    coordinator.point_of_a(1, 10)
    coordinator.point_of_b(1, 5)
    coordinator.move()
    region = coordinator.region
    assert region.lost(A) == [Halt(B, 2)]
    region.halted(B, 2, Place(LIVE, {"a>b": 15}))
    decision, told = coordinator.recover()
    assert decision == RecoveryDecision(
        (NewLife(A, Incarnation(2), PointId(ONE, 1)), NewLife(B, Incarnation(2), PointId(ONE, 1)))
    )
    assert told == [StartFrom(A, 1), RollBack(B, 1)]
    assert region.plan.resumes_at == {"a>b": 10}


def test_a_survivor_that_is_behind_goes_on():
    coordinator = _at_work()
    coordinator.point_of_a(1, 10)
    coordinator.region.lost(A)
    coordinator.region.halted(B, 2, Place(LIVE, {"a>b": 7}))
    decision, told = coordinator.recover()
    assert [life.node for life in decision.lives] == [A]
    assert told == [StartFrom(A, 1), GoOn(B)]


def test_the_line_stands_still_from_the_plan_until_it_is_durable():
    coordinator = _at_work()
    coordinator.region.lost(A)
    coordinator.region.halted(B, 2, Place(LIVE))
    decision = coordinator.region.decide()
    coordinator.point_of_a(1, 10)
    assert coordinator.region.move_line() is None
    coordinator.take(decision)
    coordinator.region.decided()
    assert coordinator.registry.points(A) == ()
    assert coordinator.region.move_line() is None


def test_a_damaged_checkpoint_costs_a_line_if_two_are_kept_and_the_query_if_not():
    kept = _at_work(kept=2)
    for coordinator in (kept, _at_work()):
        for sequence in (1, 2):
            coordinator.point_of_a(sequence, 10 * sequence)
            coordinator.point_of_b(sequence, 10 * sequence)
            coordinator.move()
        coordinator.region.lost(A)
        coordinator.region.halted(B, 2, Place(LIVE, {"a>b": 20}))
        coordinator.take(coordinator.region.decide())
        coordinator.region.decided()
        coordinator.region.damaged(A, 2)
        coordinator.region.halted(B, 3, Place(LIVE, {"a>b": 20}))
        if coordinator is kept:
            assert coordinator.region.decide().lives[0].goes_back_to == PointId(ONE, 1)
        else:
            with pytest.raises(NoLine, match=r"a has no checkpoint that can be read.*kept=2"):
                coordinator.region.decide()


def test_a_later_life_goes_on_where_the_line_was():
    coordinator = _at_work()
    coordinator.point_of_a(1, 10)
    coordinator.point_of_b(1, 5)
    coordinator.move()
    for entries in (coordinator.entries, coordinator.registry.entries()):
        later = _Coordinator(entries)
        assert {n: p.sequence for n, p in later.region.oldest.items()} == {A: 1, B: 1}
        assert [len(own) for own in later.region.places().values()] == [1, 1]
        decision, _ = later.recover()
        assert {life.goes_back_to for life in decision.lives} == {PointId(ONE, 1)}


def test_a_round_is_complete_with_the_points_of_all_and_aborted_with_a_loss():
    coordinator = _at_work(told=(A,))
    [begun] = coordinator.region.begin_round(0)
    assert isinstance(begun, BeginRound)
    assert coordinator.point_of_a(1, 10, round=begun.round) == []
    [report] = coordinator.point_of_b(1, 10, round=begun.round)
    assert isinstance(report, ReportRound)
    [begun] = coordinator.region.begin_round(10_000)
    told = coordinator.region.lost(B)
    assert told == [Halt(A, 2), AbortRound(A, begun.round), AbortRound(B, begun.round)]
    assert coordinator.region.begin_round(20_000) == []
