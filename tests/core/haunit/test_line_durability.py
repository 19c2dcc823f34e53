"""A node that does not repeat: what it lets go of, lets out and forgets, and when."""

from __future__ import annotations

from dataclasses import replace

import pytest
from region_nodes import ONE, SCHEMA, Running, batch, stored

from holdfast.core.errors import LocalProtocolError
from holdfast.core.haunit import events
from holdfast.core.haunit.durability.lines import LinePoints
from holdfast.core.haunit.node import Node
from holdfast.core.haunit.plan import (
    Assignment,
    CheckpointPlan,
    Cuts,
    InputSpec,
    NodeLimits,
    NodePlan,
    OutputSpec,
)
from holdfast.core.haunit.restoration import RestoredState
from holdfast.core.haunit.told import CutTold, GoOnTold, HaltTold, LineTold, Resumed, RollBackTold
from holdfast.core.machine import SetTimer, TimerFired
from holdfast.core.model.ids import END_US, Incarnation, NodeId, StreamId
from holdfast.core.queues.input_queue import InputQueue
from holdfast.core.recovery.first_periods import EARLY_MS
from holdfast.core.recovery.guarantee import Guarantee, RolledBack
from holdfast.core.recovery.restart_point import RestartPoint
from holdfast.core.state.page_manager import PageManager

A, DOWN, OUT = StreamId("a>n"), StreamId("n>c"), StreamId("out[0]")
TWO = Incarnation(2)
SENDER = NodeId("a")
PLAN = NodePlan(
    NodeId("n"), "n", 0, (InputSpec(A, 0, SCHEMA, SENDER),), 1, (),
    (OutputSpec(("port", 0), SCHEMA, (OUT,), (), is_sink=True, is_gated=True),),
    checkpoints=CheckpointPlan(1_000, kept=1), region="n", cuts=Cuts.UNCOORDINATED,
    limits=NodeLimits(ack_tuples=0),
)  # fmt: skip


class _Running(Running):
    """A node whose checkpoints are durable at once."""

    def __init__(self, plan=PLAN, restored=None):
        super().__init__(plan, [SENDER, NodeId("c")], {OUT: 0}, restored)

    def step(self, stimulus):
        made = []
        for effect in self.node.step(stimulus, 0):
            made.append(effect)
            if isinstance(effect, events.WriteCheckpoint):
                made += self.step(stored(effect.prepared))
            if isinstance(effect, events.StoreRestartPoint):
                made += self.step(events.RestartPointStored(effect.point.sequence))
        self.node.check_invariants()
        return made

    def process(self, first_id, *times, sender=ONE):
        got = events.BatchReceived(A, sender, ONE, batch(first_id, *times))
        return self.step(got) + self.step(events.Proceed())

    def cut(self):
        made = self.step(TimerFired("checkpoint"))
        return next(e.point for e in made if isinstance(e, events.StoreRestartPoint))


FOR_OTHERS = replace(
    PLAN, outputs=(OutputSpec(("port", 0), SCHEMA, (DOWN,), (NodeId("c"),), is_gated=True),)
)


def _promised(effects):
    return [e.boundary_us for e in effects if isinstance(e, events.SendBoundary)]


def _written(effects):
    return [e.batch.first_id for e in effects if isinstance(e, events.WriteSink)]


def _asked(effects):
    return [e.point for e in effects if isinstance(e, events.StoreRestartPoint)]


def test_results_leave_and_input_is_let_go_of_when_the_line_has_passed():
    running = _Running()
    assert not _written(running.process(0, 1, 2))
    point = running.cut()
    assert (point.held_from, point.next_ids) == ({OUT: 0}, {OUT: 2})
    running.process(2, 3)
    acks = [e for e in running.step(TimerFired("ack")) if isinstance(e, events.SendAck)]
    assert [ack.needed_from for ack in acks] == [0]
    assert _written(running.step(LineTold(point.sequence))) == [0]
    acks = [e for e in running.step(TimerFired("ack")) if isinstance(e, events.SendAck)]
    assert [ack.needed_from for ack in acks] == [2]
    assert not running.step(LineTold(point.sequence)), "said again, it changes nothing"


AT_LEAST_ONCE = replace(
    PLAN, outputs=(replace(PLAN.outputs[0], is_gated=False),), guarantee=Guarantee.ROLLBACK
)


def test_results_that_may_come_again_leave_at_once_and_a_point_waits_for_them():
    running = _Running(AT_LEAST_ONCE)
    assert _written(running.process(0, 1, 2)) == [0]
    made = running.step(TimerFired("checkpoint"))
    assert not _asked(made)
    running.process(2, 3)
    running.step(TimerFired("checkpoint"))
    (asked,) = _asked(running.step(events.SinkSynced(OUT, 2)))
    assert (asked.next_ids, asked.held_from) == ({OUT: 2}, {})
    (asked,) = _asked(running.step(events.SinkSynced(OUT, 3)))
    assert asked.next_ids == {OUT: 3}


def test_each_point_is_asked_for_though_several_become_safe_at_once():
    running = _Running(AT_LEAST_ONCE)
    for first_id in (0, 1):
        running.process(first_id, 1)
        running.step(TimerFired("checkpoint"))
    made = running.step(events.SinkSynced(OUT, 2))
    made += [effect for _ in range(2) for effect in running.step(TimerFired("ack"))]
    assert [point.next_ids for point in _asked(made)] == [{OUT: 1}, {OUT: 2}]


def test_a_replacement_numbers_what_comes_again_from_the_end_of_the_sinks_log():
    point = RestartPoint(3, needed_from={A: 2}, next_ids={OUT: 2}, processed_before={A: 2})
    restored = RestoredState(point, 3, PageManager(), None, (), {}, ())
    node = Node(AT_LEAST_ONCE, Assignment(1, TWO, point, {OUT: 5}), 0, restored)
    node.start(0)
    node.step(events.PeerIncarnationLearned(SENDER, ONE), 0)
    node.step(events.BatchReceived(A, ONE, TWO, batch(2, 7)), 0)
    assert _written(node.step(events.Proceed(), 0)) == [5]


@pytest.mark.parametrize("is_line", [True, False])
def test_what_a_replacement_promises_where_it_begins_leaves_with_what_was_put_out_before(is_line):
    """1. A node cuts when its input has ended. 2. It fails before the line comes there, or before
    it tells of the end. 3. Its replacement has nothing to process, and cuts no more.
    """
    older = () if is_line else (RestartPoint(),)
    point = RestartPoint(3, {A: 2}, {A: 2}, END_US, {DOWN: 0}, older=older)
    running = _Running(FOR_OTHERS, RestoredState(point, 3, PageManager(), None, (), {}, ()))
    made = running.step(events.SubscribeReceived(DOWN, ONE, ONE, 0, 0, 100))
    assert _promised(made) == ([END_US] if is_line else [])
    assert not _asked(running.step(TimerFired("ack")))
    assert _promised(running.step(LineTold(3))) == ([] if is_line else [END_US])


def test_what_a_replacement_promises_later_waits_for_a_line_behind_it():
    point = RestartPoint(3, {A: 2}, {A: 2}, 5, {DOWN: 2})
    running = _Running(FOR_OTHERS, RestoredState(point, 3, PageManager(), None, (), {}, ()))
    running.step(events.BoundaryReceived(A, ONE, ONE, 2, END_US))
    made = running.run() + running.step(events.SubscribeReceived(DOWN, ONE, ONE, 2, 2, 100))
    assert _promised(made) == [5]
    assert _promised(running.step(LineTold(running.cut().sequence))) == [END_US]


def test_a_replacement_cuts_though_nothing_has_come_if_sinks_hold_more_than_its_point():
    """1. It repeats nothing, as no input has come. 2. An elastic restart asks where it stands."""
    point = RestartPoint(3, needed_from={A: 2}, next_ids={OUT: 2}, processed_before={A: 2})
    for in_log, is_due in ((2, False), (5, True)):
        restored = RestoredState(point, 3, PageManager(), None, (), {}, ())
        node = Node(AT_LEAST_ONCE, Assignment(1, TWO, point, {OUT: in_log}), 0, restored)
        node.start(0)
        made = node.step(TimerFired("checkpoint"), 0)
        assert any(isinstance(e, events.WriteCheckpoint) for e in made) is is_due


def test_a_halted_node_stays_where_it_is_and_drops_what_is_void_before_it_goes_on():
    running = _Running()
    running.process(0, 1, 2)
    (halted,) = running.step(HaltTold(1))
    assert halted.place.processed_before == {A: 2}
    assert not running.process(2, 3, 4, 5)
    assert not running.step(TimerFired("checkpoint"))[1:], "only its timer"
    assert not running.step(events.PeerIncarnationLearned(SENDER, TWO)), "for later"
    assert running.node.known_peers()[SENDER] == TWO
    made = running.step(GoOnTold(1, {A: Resumed(3, TWO)}))
    (asks,) = [e for e in made if isinstance(e, events.SendSubscribe)]
    assert (asks.producer, asks.from_id) == (TWO, 3)
    running.process(3, 7, sender=ONE)
    assert running.node.positions()["processed"] == {A: 3}
    running.process(3, 8, sender=TWO)
    assert running.node.positions()["processed"] == {A: 4}


def test_a_word_of_another_halt_changes_nothing():
    running = _Running()
    running.step(HaltTold(2))
    running.step(RollBackTold(1))
    running.step(GoOnTold(1, {}))
    assert not running.process(0, 1)
    with pytest.raises(RolledBack):
        running.node.step(RollBackTold(2), 0)


def test_points_are_retained_until_the_line_has_passed_them():
    points = LinePoints(0, 1, (RestartPoint(),))
    for sequence in (1, 2, 3):
        points.note(RestartPoint(sequence))
        points.ask(lambda _: True, 0)
    assert points.stored(2)
    assert [p.sequence for p in points.retained] == [2, 1, 0]
    assert points.line_moved(3), "on the line it is durable, though nobody has said so"
    assert [p.sequence for p in points.retained] == [3]
    assert not points.line_moved(3)


def test_a_queue_forgets_what_a_sender_that_goes_back_had_sent():
    queue = InputQueue(A, next_id=0, max_tuples=100)
    queue.receive(batch(0, 1, 2, boundary_us=3))
    queue.take(100)
    queue.receive(batch(2, 5, 6, 7, boundary_us=8))
    queue.drop_from(3, 3)
    assert (queue.next_id, queue.pending_tuples, queue.boundary_us) == (3, 1, 3)
    queue.check_invariants()
    assert queue.receive(replace(batch(3, 9), boundary_us=9))
    with pytest.raises(LocalProtocolError, match="handed on"):
        queue.drop_from(1, 3)


def _periods(running, count):
    """Of so many checkpoints, one after the other."""
    timers = [running.step(TimerFired("checkpoint"))[0] for _ in range(count)]
    return [timer.at_ms for timer in timers]


def test_a_survivor_cuts_when_it_goes_on_and_often_until_periods_are_as_usual():
    running = _Running()
    running.process(0, 1, 2)
    running.step(HaltTold(1))
    made = running.step(GoOnTold(1, {}))
    (timer,) = [e for e in made if isinstance(e, SetTimer) and e.name == "checkpoint"]
    assert timer.at_ms == EARLY_MS
    (point,) = [e.point for e in made if isinstance(e, events.StoreRestartPoint)]
    assert point.processed_before == {A: 2}
    assert _periods(running, 7) == [40, 80, 160, 320, 640, 1_000, 1_000]


def test_a_replacement_cuts_often_at_first_and_a_first_incarnation_does_not():
    begun = {}
    for incarnation in (ONE, TWO):
        node = Node(PLAN, Assignment(1, incarnation, None, {OUT: 0}), 0)
        begun[incarnation] = [
            e.at_ms for e in node.start(0) if isinstance(e, SetTimer) and e.name == "checkpoint"
        ]
    assert begun == {ONE: [1_000], TWO: [EARLY_MS]}


def test_without_input_a_node_that_went_back_to_the_oldest_of_two_lines_cuts_once_more():
    """1. All points behind the oldest line are void. 2. No input comes to this node. 3. Two lines
    would share its one point: neither would move, and gates of other members stayed shut.
    """
    point = RestartPoint(4, {A: 2}, {A: 2}, 5, {OUT: 0})
    restored = RestoredState(point, 4, PageManager(), None, (), {}, ())
    for kept, cuts in ((1, []), (2, [5])):
        plan = replace(PLAN, checkpoints=CheckpointPlan(1_000, kept=kept))
        running = _Running(plan, restored)
        made = [e for _ in range(3) for e in running.step(TimerFired("checkpoint"))]
        stored_ = [e.point.sequence for e in made if isinstance(e, events.StoreRestartPoint)]
        assert stored_ == cuts


@pytest.mark.parametrize(
    ("kept", "bytes_max", "cuts_at"),
    [(1, 1 << 20, [4, 8]), (2, 1 << 20, [4, 8, 8]), (1, 96, [3, 6])],
)
def test_a_gate_asks_for_a_cut_before_it_stops_its_node_and_again_only_for_what_came_since(
    kept, bytes_max, cuts_at
):
    """1. A node goes on though half of its room is taken. 2. The line waits for cuts of others.
    3. The node cut again and again, and nothing left earlier for that.
    """
    some = NodeLimits(
        ack_tuples=0, output_queue_tuples=2, output_queue_bytes=bytes_max, gate_queues=4
    )
    running = _Running(replace(PLAN, checkpoints=CheckpointPlan(1_000, kept=kept), limits=some))
    found = []
    for first_id in range(12):
        running.process(first_id, first_id)
        made = running.step(TimerFired("ack"))
        taken = running.node.positions()["processed"][A]
        found += [taken for e in made if isinstance(e, events.WriteCheckpoint)]
    assert found == cuts_at
    assert running.node.positions()["processed"][A] == max(cuts_at), "it waits for the line"
    assert _written(running.step(LineTold(1))) == list(range(min(cuts_at)))


@pytest.mark.parametrize("is_alone", [True, False])
def test_a_full_gate_asks_for_cuts_of_those_before_its_node_which_cut_when_they_are_told(is_alone):
    """1. The line waits for cuts of senders. 2. Their timers were far off. 3. Nothing went on."""
    some = NodeLimits(ack_tuples=0, output_queue_tuples=2, gate_queues=4)
    spec = replace(PLAN.inputs[0], is_from_region=not is_alone)
    running = _Running(replace(PLAN, inputs=(spec,), limits=some))
    asked = []
    for first_id in range(6):
        running.process(first_id, first_id)
        made = running.step(TimerFired("ack"))
        asked += [first_id + 1 for e in made if isinstance(e, events.WantRound)]
    assert asked == ([] if is_alone else [4, 5, 6])
    assert _cuts(running.step(CutTold())) == [2], "for what has come since"
    assert not running.step(CutTold())


@pytest.mark.parametrize("kept", [1, 2])
def test_when_all_input_has_ended_a_node_cuts_without_waiting_for_its_timer(kept):
    """As often as lines are kept, and no more: the last results leave, and nothing follows."""
    running = _Running(replace(PLAN, checkpoints=CheckpointPlan(1_000, kept=kept)))
    running.process(0, 1, 2)
    assert not _cuts(running.step(TimerFired("ack")))
    running.step(events.BoundaryReceived(A, ONE, ONE, 2, END_US))
    running.step(events.Proceed())
    found = [n for _ in range(4) for n in _cuts(running.step(TimerFired("ack")))]
    assert found == list(range(1, kept + 1))
    assert _written(running.step(LineTold(1))) == [0]


def _cuts(effects):
    return [e.point.sequence for e in effects if isinstance(e, events.StoreRestartPoint)]


@pytest.mark.parametrize("kept", [1, 2])
def test_a_last_cut_that_came_to_nothing_is_taken_again_after_longer_and_longer_periods(kept):
    """1. All input has ended. 2. The checkpoint fails. 3. The results waited for an interval."""
    running = _Running(replace(PLAN, checkpoints=CheckpointPlan(1_000, kept=kept)))
    running.process(0, 1, 2)
    running.step(events.BoundaryReceived(A, ONE, ONE, 2, END_US))
    running.step(events.Proceed())
    cut_at = []
    for now_ms in range(0, 2_500, 10):
        for prepared in _prepared_at(running, now_ms):
            cut_at.append(now_ms)
            running.node.step(events.CheckpointFailed(prepared.checkpoint, "full"), now_ms)
    assert cut_at == [0, 20, 60, 140, 300, 620, 1_260, 2_260]
    (prepared,) = _prepared_at(running, 3_260)
    made = running.node.step(stored(prepared), 3_260)
    made += running.node.step(TimerFired("ack"), 3_260)
    assert any(isinstance(e, events.StoreRestartPoint) for e in made)
    again = [e.prepared for e in made if isinstance(e, events.WriteCheckpoint)]
    assert len(again) == kept - 1, "as many as lines are kept"
    for prepared in again:
        running.node.step(stored(prepared), 3_260)
    assert not _prepared_at(running, 9_000)


def _prepared_at(running, now_ms):
    made = running.node.step(TimerFired("ack"), now_ms)
    return [e.prepared for e in made if isinstance(e, events.WriteCheckpoint)]
