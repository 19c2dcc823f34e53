"""Nodes that recover together: who is told what, and when."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from holdfast.core.checkpoint.cut_rule import NO_ROUND
from holdfast.core.coordinator import events as c
from holdfast.core.coordinator.checkpoint_rounds import ReportRound, first_round
from holdfast.core.coordinator.coordinator import Coordinator
from holdfast.core.coordinator.journal_entries import LineMoved, PointNoted, RecoveryDecision
from holdfast.core.coordinator.limits import CoordinatorLimits
from holdfast.core.haunit.plan import CheckpointPlan, Cuts, InputSpec, NodePlan, OutputSpec
from holdfast.core.haunit.told import Resumed
from holdfast.core.machine import TimerFired
from holdfast.core.model.ids import BEGINNING_US, Incarnation, NodeId, PointId, StreamId
from holdfast.core.recovery.restart_point import RestartPoint

SCHEMA = pa.schema([("v", pa.int64())])
A, B, AB = NodeId("a"), NodeId("b"), StreamId("a>b")
PLANS = (
    NodePlan(
        A, "a", 0, (), 0, (), (OutputSpec(("port", 0), SCHEMA, (AB,), (B,)),),
        checkpoints=CheckpointPlan(1_000, kept=1), region="a",
    ),
    NodePlan(
        B, "b", 0, (InputSpec(AB, 0, SCHEMA, A),), 1, (), (),
        checkpoints=CheckpointPlan(1_000, kept=1), region="a",
    ),
)  # fmt: skip


ROUNDS = tuple(replace(plan, cuts=Cuts.ALIGNED) for plan in PLANS)
FIRST = first_round(1)


class _Driver:
    """Steps a coordinator; what it asks the journal for is durable at once."""

    def __init__(self, plans=PLANS):
        self.machine = Coordinator(plans, epoch=1, limits=CoordinatorLimits())
        self.entries = []
        self.launches = {}
        self.step(c.Started())

    def step(self, stimulus, now_ms=0):
        made = []
        for effect in self.machine.step(stimulus, now_ms):
            made.append(effect)
            if isinstance(effect, c.LaunchTask):
                self.launches[effect.node] = effect.launch
            if isinstance(effect, c.WriteJournal):
                self.entries += effect.entries
                made += self.step(c.JournalWritten(effect.request_id))
        self.machine.check_invariants()
        return made

    def hello(self, node, task):
        return self.step(c.HelloReceived(node, self.launches[node], task, f"ipc://{task}"))

    def both_up(self):
        self.hello(A, "a1")
        return self.hello(B, "b1")

    def incarnation(self, node):
        return self.machine.instance(node).primary.incarnation

    def halted(self, node, attempt, *, processed=0, acted_us=BEGINNING_US, went_on=0):
        place = RestartPoint(processed_before={AB: processed}, boundary_us=acted_us)
        word = c.NodeHalted(node, self.incarnation(node), attempt, went_on, place)
        return self.step(word)

    def check(self, now_ms):
        for node in (A, B):
            self.step(c.KeepAliveReceived(node, self.incarnation(node), {}), now_ms)
        return self.step(TimerFired("check"), now_ms)

    def point(self, node, sequence, *, sent=0, processed=0, promised=BEGINNING_US, in_round=0):
        point = RestartPoint(
            sequence,
            round=in_round,
            processed_before={AB: processed} if node == B else {},
            next_ids={AB: sent} if node == A else {},
            promised={AB: promised} if node == A else {},
        )
        return self.step(c.RestartPointReceived(node, self.incarnation(node), point))


def _of(kind, effects):
    return [effect for effect in effects if isinstance(effect, kind)]


def test_nobody_works_before_all_members_are_there_and_one_entry_gives_all_lives():
    driver = _Driver()
    assert not driver.hello(A, "a1")
    assigned = _of(c.SendAssignment, driver.hello(B, "b1"))
    assert [effect.node for effect in assigned] == [A, B]
    (decision,) = driver.entries
    assert isinstance(decision, RecoveryDecision)
    assert [life.node for life in decision.lives] == [A, B]


def test_survivors_halt_and_the_lost_one_waits_for_their_answer():
    driver = _Driver()
    driver.both_up()
    driver.point(A, 1, sent=20)
    lost = driver.hello(A, "a2")  # Another process in its place.
    (halt,) = _of(c.TellHalt, lost)
    assert (halt.node, halt.task) == (B, "b1")
    assert not _of(c.SendAssignment, lost)
    told = driver.halted(B, halt.attempt, processed=15)
    (assigned,) = _of(c.SendAssignment, told)
    assert assigned.assignment.restart_point.sequence == 1
    (goes_on,) = _of(c.TellGoOn, told)
    assert goes_on.resumed == {AB: Resumed(20, Incarnation(2))}
    assert told.index(goes_on) < told.index(assigned), "what is void is known first"


def test_a_survivor_that_has_read_too_far_goes_back():
    driver = _Driver()
    driver.both_up()
    driver.point(A, 1, sent=20)
    driver.point(B, 1, processed=10)
    (halt,) = _of(c.TellHalt, driver.hello(A, "a2"))
    (back,) = _of(c.TellRollBack, driver.halted(B, halt.attempt, processed=21))
    assert back.node == B
    assigned = _of(c.SendAssignment, driver.hello(B, "b2"))
    assert {e.node: e.assignment.restart_point.sequence for e in assigned} == {A: 1, B: 1}


def test_a_survivor_that_could_stay_goes_back_too_where_all_do():
    driver = _Driver(tuple(replace(plan, all_go_back=True) for plan in PLANS))
    driver.both_up()
    driver.point(A, 1, sent=20)
    driver.point(B, 1, processed=10)
    (halt,) = _of(c.TellHalt, driver.hello(A, "a2"))
    (back,) = _of(c.TellRollBack, driver.halted(B, halt.attempt, processed=15))
    assert back.node == B
    assigned = _of(c.SendAssignment, driver.hello(B, "b2"))
    assert {e.node: e.assignment.restart_point.sequence for e in assigned} == {A: 1, B: 1}


def test_a_boundary_that_was_acted_on_and_is_promised_no_more_is_read_too_far():
    driver = _Driver()
    driver.both_up()
    driver.point(A, 1, sent=20, promised=100)
    (halt,) = _of(c.TellHalt, driver.hello(A, "a2"))
    assert not _of(c.TellRollBack, driver.halted(B, halt.attempt, acted_us=100))
    driver = _Driver()
    driver.both_up()
    driver.point(A, 1, sent=20, promised=100)
    (halt,) = _of(c.TellHalt, driver.hello(A, "a2"))
    assert _of(c.TellRollBack, driver.halted(B, halt.attempt, acted_us=101))


def test_words_are_said_again_until_they_are_heeded():
    driver = _Driver()
    driver.both_up()
    (halt,) = _of(c.TellHalt, driver.hello(A, "a2"))
    alive = c.KeepAliveReceived(B, driver.incarnation(B), {})
    assert _of(c.TellHalt, driver.step(alive)) == [halt]
    (goes_on,) = _of(c.TellGoOn, driver.halted(B, halt.attempt))
    assert _of(c.TellGoOn, driver.halted(B, halt.attempt)) == [goes_on]
    assert not _of(c.TellHalt, driver.step(alive))


def test_who_missed_a_plan_is_told_of_it_with_the_next():
    driver = _Driver()
    driver.both_up()
    driver.point(A, 1, sent=20)
    (halt,) = _of(c.TellHalt, driver.hello(A, "a2"))
    driver.halted(B, halt.attempt)
    driver.point(A, 2, sent=30)
    (halt,) = _of(c.TellHalt, driver.hello(A, "a3"))
    (goes_on,) = _of(c.TellGoOn, driver.halted(B, halt.attempt))
    assert goes_on.resumed == {AB: Resumed(20, Incarnation(3))}
    (halt,) = _of(c.TellHalt, driver.hello(A, "a4"))
    (goes_on,) = _of(c.TellGoOn, driver.halted(B, halt.attempt, went_on=halt.attempt - 1))
    assert goes_on.resumed == {AB: Resumed(30, Incarnation(4))}


def test_who_is_lost_before_a_plan_is_durable_has_nothing_to_drop_in_its_next_life():
    driver = _Driver()
    driver.both_up()
    driver.point(A, 1, sent=20)
    (halt,) = _of(c.TellHalt, driver.hello(A, "a2"))
    place = RestartPoint(processed_before={AB: 15})
    word = c.NodeHalted(B, driver.incarnation(B), halt.attempt, 0, place)
    (plan,) = _of(c.WriteJournal, driver.machine.step(word, 0))
    driver.hello(B, "b2")
    assigned = _of(c.SendAssignment, driver.step(c.JournalWritten(plan.request_id)))
    assert {effect.node for effect in assigned} == {A, B}
    driver.point(A, 2, sent=30)
    (halt,) = _of(c.TellHalt, driver.hello(A, "a3"))
    (goes_on,) = _of(c.TellGoOn, driver.halted(B, halt.attempt, processed=25))
    assert goes_on.resumed == {AB: Resumed(30, driver.incarnation(A))}


def test_the_line_moves_once_points_go_together_and_a_point_that_is_asked_for_twice_is_one():
    driver = _Driver()
    driver.both_up()
    assert not _of(c.TellLineMoved, driver.point(B, 1, processed=5))
    told = _of(c.TellLineMoved, driver.point(A, 1, sent=9))
    assert {effect.node: effect.sequence for effect in told} == {A: 1, B: 1}
    assert driver.entries[-1] == LineMoved(
        {A: PointId(Incarnation(1), 1), B: PointId(Incarnation(1), 1)}
    )
    driver.point(A, 1, sent=9)
    points = [e for e in driver.entries if isinstance(e, PointNoted)]
    assert all(point.keeps_older for point in points)
    assert len(driver.machine.registry.points(A)) == 1


def test_a_round_is_begun_where_no_marker_comes_and_complete_when_all_points_are_durable():
    driver = _Driver(ROUNDS)
    driver.both_up()
    (begun,) = _of(c.TellRound, driver.check(20))
    assert begun == c.TellRound(A, "a1", FIRST, FIRST - 1)
    assert not _of(c.TellRound, driver.check(2_000)), "one at a time"
    driver.point(A, 1, sent=9, in_round=FIRST)
    (complete,) = _of(ReportRound, driver.point(B, 1, processed=9, in_round=FIRST))
    assert set(complete.durable_ms) == {A, B}
    (begun,) = _of(c.TellRound, driver.check(2_020))
    assert begun.begun == FIRST + 1


def test_a_round_is_said_again_and_is_over_when_a_checkpoint_or_a_member_is_lost():
    driver = _Driver(ROUNDS)
    driver.both_up()
    driver.check(20)
    alive = c.KeepAliveReceived(B, driver.incarnation(B), {})
    assert _of(c.TellRound, driver.step(alive, 20)) == [c.TellRound(B, "b1", FIRST, FIRST - 1)]
    failed = driver.step(c.RoundFailed(B, driver.incarnation(B), FIRST), 20)
    assert {(e.begun, e.over) for e in _of(c.TellRound, failed)} == {(0, FIRST)}
    assert not driver.step(c.RoundFailed(B, driver.incarnation(B), FIRST), 20), "said again"
    wanted = driver.step(c.RoundWanted(B, driver.incarnation(B)), 20)
    assert [e.begun for e in _of(c.TellRound, wanted)] == [FIRST + 1], "a gate is full"
    lost = driver.hello(A, "a2")
    assert [(e.node, e.begun) for e in _of(c.TellRound, lost)] == [(B, 0)]
    assert not _of(c.TellRound, driver.check(2_000)), "not while the region recovers"


def test_without_rounds_a_full_gate_has_the_others_cut_now_and_again_once_the_line_has_moved():
    """1. A member waits for cuts of those before it. 2. They took until their timers were due."""
    driver = _Driver()
    driver.both_up()

    def asked(now_ms):
        word = c.RoundWanted(B, driver.incarnation(B))
        return [(e.node, e.task) for e in _of(c.TellCut, driver.step(word, now_ms))]

    assert asked(20) == [(A, "a1")]
    assert not asked(50), "it has been told"
    driver.point(A, 1, sent=20)  # At 0 ms: the line moves.
    assert not asked(90), "a cut takes a while"
    assert asked(120) == [(A, "a1")]
    assert not asked(1_100), "nothing has moved"
    assert asked(1_120) == [(A, "a1")], "an interval later"
    driver.hello(A, "a2")
    assert not asked(9_000), "not while the region recovers"


def test_who_begins_anew_is_told_with_its_assignment_which_rounds_are_over():
    """One that comes to nothing when it is lost, e.g."""
    driver = _Driver(ROUNDS)
    at_first = _of(c.SendAssignment, driver.both_up())
    assert [e.assignment.rounds_over for e in at_first] == [FIRST - 1] * 2
    driver.check(20)
    (halt,) = _of(c.TellHalt, driver.hello(A, "a2"))
    (assigned,) = _of(c.SendAssignment, driver.halted(B, halt.attempt))
    assert (assigned.node, assigned.assignment.rounds_over) == (A, FIRST)


def test_where_there_are_no_rounds_none_is_over():
    assigned = _of(c.SendAssignment, _Driver().both_up())
    assert [e.assignment.rounds_over for e in assigned] == [NO_ROUND] * 2


def _both_at_two_lines(kept):
    two = tuple(replace(plan, checkpoints=CheckpointPlan(1_000, kept=kept)) for plan in PLANS)
    driver = _Driver(two)
    driver.both_up()
    for n in (1, 2):
        driver.point(A, n, sent=9 * n)
        driver.point(B, n, processed=9 * n)
    return driver


def _begins_again(driver, task, *, processed):
    """A is lost, and its next life finds its newest checkpoint damaged."""
    (halt,) = _of(c.TellHalt, driver.hello(A, f"{task}2"))
    (assigned,) = _of(c.SendAssignment, driver.halted(B, halt.attempt, processed=processed))
    sequence = assigned.assignment.restart_point.sequence
    return driver.step(c.PointDamaged(A, driver.incarnation(A), sequence, "a page is rotten"))


def test_where_two_lines_are_kept_a_damaged_checkpoint_is_passed_over():
    driver = _both_at_two_lines(2)
    oldest = PointId(Incarnation(1), 1)
    assert [driver.machine.registry.line(node) for node in (A, B)] == [oldest, oldest]
    (halt,) = _of(c.TellHalt, _begins_again(driver, "a", processed=18))
    driver.hello(A, "a3")
    (back,) = _of(c.TellRollBack, driver.halted(B, halt.attempt, processed=18))
    assert back.node == B
    assigned = _of(c.SendAssignment, driver.hello(B, "b2"))
    assert {e.node: e.assignment.restart_point.sequence for e in assigned} == {A: 1, B: 1}


def test_where_one_line_is_kept_the_query_ends_and_says_what_is_damaged():
    driver = _both_at_two_lines(1)
    (halt,) = _of(c.TellHalt, _begins_again(driver, "a", processed=18))
    (ended,) = _of(c.FailQuery, driver.halted(B, halt.attempt, processed=18))
    assert "no checkpoint that can be read" in ended.reason
    assert "a page is rotten" in ended.reason


def test_a_coordinator_that_has_ended_the_query_for_damage_does_nothing_any_more():
    driver = _both_at_two_lines(1)
    (halt,) = _of(c.TellHalt, _begins_again(driver, "a", processed=18))
    assert _of(c.FailQuery, driver.halted(B, halt.attempt, processed=18))
    assert not driver.halted(B, halt.attempt, processed=18), "words may come twice"
    assert not driver.hello(A, "a3")
    assert not driver.check(60_000)
