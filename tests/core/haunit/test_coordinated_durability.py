"""A node that cuts in rounds: when it does, what it says, and what it holds back until then."""

from __future__ import annotations

from dataclasses import replace

import pytest
from region_nodes import ONE, SCHEMA, Running, counted, stored

from holdfast.core.haunit import events
from holdfast.core.haunit.plan import (
    CheckpointPlan,
    Cuts,
    InputSpec,
    NodeLimits,
    NodePlan,
    OutputSpec,
)
from holdfast.core.haunit.told import GoOnTold, HaltTold, LineTold, Resumed, RoundTold
from holdfast.core.machine import TimerFired
from holdfast.core.model.ids import END_US, Incarnation, NodeId, StreamId
from holdfast.core.model.notes import CheckpointMarker, PlacedNote

A, B, DOWN, OUT = StreamId("a>n"), StreamId("b>n"), StreamId("n>c"), StreamId("out[0]")
TWO = Incarnation(2)
SENDERS = {A: NodeId("a"), B: NodeId("b")}
PLAN = NodePlan(
    NodeId("n"), "n", 0,
    tuple(InputSpec(s, 0, SCHEMA, n, is_from_region=True) for s, n in SENDERS.items()), 1, (),
    (
        OutputSpec(("port", 0), SCHEMA, (DOWN,), (NodeId("c"),)),
        OutputSpec(("port", 0), SCHEMA, (OUT,), (), is_sink=True, is_gated=True),
    ),
    checkpoints=CheckpointPlan(1_000, kept=1), region="n", cuts=Cuts.ALIGNED,
    limits=NodeLimits(ack_tuples=0), merges_by_arrival=True,
)  # fmt: skip


class _Running(Running):
    """The node; the test says when its checkpoints are durable."""

    def __init__(self, plan=PLAN, **assigned):
        super().__init__(plan, SENDERS.values(), {OUT: 0}, **assigned)

    def come(self, stream, first_id, count, marker=None):
        """Tuples, and a marker of a round behind them."""
        at = first_id + count
        notes = () if marker is None else (PlacedNote(marker, at, CheckpointMarker(marker)),)
        got = events.BatchReceived(stream, ONE, ONE, counted(first_id, count), notes=notes)
        return self.step(got) + self.run()

    @property
    def taken(self):
        return self.node.positions()["processed"]


def _prepared(effects):
    return [e.prepared.point for e in effects if isinstance(e, events.WriteCheckpoint)]


def test_what_stands_behind_a_marker_waits_until_markers_have_come_on_all_inputs():
    running = _Running()
    running.come(A, 0, 1, marker=5)
    made = running.come(A, 1, 1)
    assert not _prepared(made)
    assert running.taken == {A: 1, B: 0}
    made = running.come(B, 0, 1, marker=5)
    (point,) = _prepared(made)
    assert (point.round, point.processed_before) == (5, {A: 1, B: 1})
    assert point.next_ids[DOWN] == 2
    (kept,) = next(e.prepared.notes for e in made if isinstance(e, events.WriteCheckpoint)).values()
    assert [(n.before_id, n.note) for n in kept] == [(2, CheckpointMarker(5))]
    assert running.taken == {A: 2, B: 1}, "and then it goes on"


def test_round_after_round_on_an_idle_stream_keeps_one_marker():
    running = _Running()
    running.come(A, 0, 1)
    running.come(B, 0, 1)
    for round_ in range(5, 9):
        running.come(A, 1, 0, marker=round_)
        made = running.come(B, 1, 0, marker=round_)
        (prepared,) = [e.prepared for e in made if isinstance(e, events.WriteCheckpoint)]
        running.step(stored(prepared))
        assert [n.note for n in prepared.notes[DOWN]] == [CheckpointMarker(round_)]


def test_a_round_that_is_over_holds_nothing_back():
    running = _Running()
    running.come(A, 0, 1, marker=5)
    running.come(A, 1, 1)
    running.step(RoundTold(0, 5))
    made = running.run() + running.come(B, 0, 1, marker=5)
    assert not _prepared(made)
    assert running.taken == {A: 2, B: 1}


def test_a_sender_that_goes_back_brings_other_markers():
    running = _Running()
    running.come(A, 0, 1, marker=5)
    running.step(HaltTold(1))
    assert not running.step(RoundTold(6, 5)), "it hears of that when it has gone on"
    running.step(events.PeerIncarnationLearned(SENDERS[A], TWO))
    running.step(GoOnTold(1, {A: Resumed(1, TWO)}))
    made = running.come(B, 0, 1, marker=5)
    assert not _prepared(made)
    assert running.taken == {A: 1, B: 1}, "B waits at its marker"
    running.step(RoundTold(6, 5))
    notes = (PlacedNote(TWO << 32, 2, CheckpointMarker(6)),)
    running.step(events.BatchReceived(A, TWO, ONE, counted(1, 1), notes=notes))
    made = running.run() + running.come(B, 1, 1, marker=6)
    assert [p.round for p in _prepared(made)] == [6]


def test_a_full_gate_asks_for_a_round_and_does_not_stop_the_node_before_its_marker():
    few = NodeLimits(ack_tuples=0, output_queue_tuples=3, gate_queues=1)
    running = _Running(replace(PLAN, outputs=PLAN.outputs[1:], limits=few))
    running.come(A, 0, 3)
    assert any(isinstance(e, events.WantRound) for e in running.step(TimerFired("ack")))
    running.come(A, 3, 1, marker=5)
    assert running.taken[A] == 4, "as soon as the marker is there"
    running.come(B, 0, 2)
    assert running.taken[B] == 2
    assert not any(isinstance(e, events.WantRound) for e in running.step(TimerFired("ack")))
    made = running.come(B, 2, 1, marker=5)
    assert [p.round for p in _prepared(made)] == [5]
    running.come(B, 3, 1)
    assert running.taken[B] == 3, "full, and no round is under way"


@pytest.mark.parametrize(("bytes_max", "asks_at", "may_wait"), [(1 << 20, 6, 12), (112, 4, 7)])
def test_a_gate_asks_for_a_round_before_it_stops_its_node(bytes_max, asks_at, may_wait):
    """1. A node stops, as its gate is full. 2. It asks for a round only then. 3. At full rate it
    waited for most of its time.
    """
    some = NodeLimits(
        ack_tuples=0, output_queue_tuples=3, output_queue_bytes=bytes_max, gate_queues=4
    )
    running = _Running(replace(PLAN, outputs=PLAN.outputs[1:], limits=some))
    asked_at = []
    for come in range(14):
        running.come(A, come, 1)
        if any(isinstance(e, events.WantRound) for e in running.step(TimerFired("ack"))):
            asked_at.append(running.taken[A])
    assert asked_at[0] == asks_at
    assert running.taken[A] == may_wait


def test_when_all_input_has_ended_a_node_with_results_asks_for_a_round():
    running = _Running(replace(PLAN, inputs=PLAN.inputs[:1], outputs=PLAN.outputs[1:]))
    running.come(A, 0, 3)
    assert not _wants(running), "more may come"
    running.step(events.BoundaryReceived(A, ONE, ONE, 3, END_US))
    running.run()
    assert _wants(running)
    notes = (PlacedNote(5, 3, CheckpointMarker(5)),)
    running.step(events.NotesReceived(A, ONE, ONE, 3, 0, None, notes))
    made = running.run()
    (point,) = _prepared(made)
    assert point.round == 5
    assert not _wants(running), "all of it is on the cut"


def test_when_all_input_has_ended_a_node_whose_promise_waits_asks_for_a_round():
    """1. The last tuples leave with a round. 2. The end comes. 3. A receiver outside of the region
    closes its last windows when it is promised that nothing follows.
    """
    plan = replace(PLAN, inputs=PLAN.inputs[:1], outputs=(replace(PLAN.outputs[0], is_gated=True),))
    running = _Running(plan)
    running.step(events.PeerIncarnationLearned(NodeId("c"), ONE))
    running.step(events.SubscribeReceived(DOWN, ONE, ONE, 0, 0, 100))
    _complete(running, running.come(A, 0, 3, marker=5))
    assert not _wants(running), "more may come"
    running.step(events.BoundaryReceived(A, ONE, ONE, 3, END_US))
    running.run()
    assert _wants(running)
    notes = (PlacedNote(6, 3, CheckpointMarker(6)),)
    running.step(events.NotesReceived(A, ONE, ONE, 3, 0, None, notes))
    made = _complete(running, running.run())
    assert [e.boundary_us for e in made if isinstance(e, events.SendBoundary)] == [END_US]
    assert not _wants(running), "nothing waits any more"


def _complete(running, made):
    """The round that it has cut for is complete."""
    (prepared,) = [e.prepared for e in made if isinstance(e, events.WriteCheckpoint)]
    running.step(stored(prepared))
    return running.step(LineTold(prepared.point.sequence))


def test_a_last_round_that_another_member_aborts_is_asked_for_again_after_a_pause():
    """This node's checkpoint is durable; the other's is not."""
    running = _Running(replace(PLAN, inputs=PLAN.inputs[:1], outputs=PLAN.outputs[1:]))
    running.come(A, 0, 3)
    running.step(events.BoundaryReceived(A, ONE, ONE, 3, END_US))
    running.run()
    for round_, after_ms in ((5, 20), (6, 40), (7, 80)):
        made = running.step(RoundTold(round_, round_ - 1))
        notes = (PlacedNote(round_, 3, CheckpointMarker(round_)),)
        made += running.step(events.NotesReceived(A, ONE, ONE, 3, 0, None, notes)) + running.run()
        (prepared,) = [e.prepared for e in made if isinstance(e, events.WriteCheckpoint)]
        running.step(stored(prepared))
        assert not _wants(running), "it may become complete"
        running.step(RoundTold(0, round_))
        running.step(RoundTold(0, round_))
        assert not _wants(running, after_ms - 1)
        assert _wants(running, after_ms)
    running.step(LineTold(prepared.point.sequence))
    assert not _wants(running, 1_000), "nothing waits any more"


def test_a_halted_node_asks_for_no_round():
    """It could not cut for one."""
    running = _Running(replace(PLAN, inputs=PLAN.inputs[:1], outputs=PLAN.outputs[1:]))
    running.come(A, 0, 3)
    running.step(events.BoundaryReceived(A, ONE, ONE, 3, END_US))
    running.run()
    running.step(HaltTold(1))
    assert not _wants(running)
    running.step(GoOnTold(1, {}))
    assert _wants(running)


def _wants(running, now_ms=0):
    made = running.node.step(TimerFired("ack"), now_ms)
    return any(isinstance(e, events.WantRound) for e in made)


@pytest.mark.parametrize("is_stored", [True, False])
def test_the_next_round_waits_for_the_checkpoint_of_the_last(is_stored):
    running = _Running()
    running.come(A, 0, 1, marker=5)
    made = running.come(B, 0, 1, marker=5)
    (prepared,) = [e.prepared for e in made if isinstance(e, events.WriteCheckpoint)]
    running.come(A, 1, 1, marker=6)
    assert not _prepared(running.come(B, 1, 1, marker=6)), "it is being written"
    if is_stored:
        made = running.step(stored(prepared))
    else:
        made = running.step(events.CheckpointFailed(prepared.checkpoint, "full"))
    assert [p.round for p in _prepared(made)] == [6]
    said = [e.round for e in made if isinstance(e, events.ReportRoundFailed)]
    assert said == ([] if is_stored else [5])
    again = running.step(TimerFired("keep-alive"))
    assert [e.round for e in again if isinstance(e, events.ReportRoundFailed)] == said
    running.step(RoundTold(6, 5))
    again = running.step(TimerFired("keep-alive"))
    assert not any(isinstance(e, events.ReportRoundFailed) for e in again)


def test_unaligned_a_node_cuts_as_soon_as_it_hears_of_the_round():
    running = _Running(replace(PLAN, cuts=Cuts.UNALIGNED))
    got = events.BatchReceived(
        A, ONE, ONE, counted(0, 2), notes=(PlacedNote(1, 2, CheckpointMarker(5)),)
    )
    made = running.step(got)
    (point,) = _prepared(made)
    assert (point.round, point.processed_before) == (5, {A: 0, B: 0}), "ahead of what waits"
    running.run()
    assert not _prepared(running.come(B, 0, 1, marker=5)), "it has cut"
    assert running.taken == {A: 2, B: 1}


def test_unaligned_what_follows_a_marker_waits_while_the_last_checkpoint_is_written():
    running = _Running(replace(PLAN, cuts=Cuts.UNALIGNED))
    made = running.step(RoundTold(5, 4))
    (prepared,) = [e.prepared for e in made if isinstance(e, events.WriteCheckpoint)]
    assert not _prepared(running.come(A, 0, 1, marker=6))
    running.come(A, 1, 1)
    assert running.taken[A] == 1
    made = running.step(stored(prepared))
    assert [p.round for p in _prepared(made)] == [6]
    running.run()
    assert running.taken[A] == 2


@pytest.mark.parametrize("cuts", [Cuts.ALIGNED, Cuts.UNALIGNED])
def test_who_begins_anew_does_not_cut_for_a_round_that_had_come_to_nothing_before(cuts):
    """1. It cuts for round 5, and is lost. 2. It begins behind that cut. 3. Its senders, which do
    not, send their markers of the round again, before it is told how far the rounds are.
    """
    running = _Running(replace(PLAN, cuts=cuts), rounds_over=5)
    made = running.come(A, 0, 1, marker=5) + running.come(B, 0, 1, marker=5)
    made += running.come(A, 1, 1)
    assert not _prepared(made)
    assert running.taken == {A: 2, B: 1}, "nor does it wait for one"
    made = running.come(A, 2, 0, marker=6) + running.come(B, 1, 0, marker=6)
    assert [p.round for p in _prepared(made)] == [6]


@pytest.mark.parametrize("is_empty", [True, False])
def test_an_aligned_round_stores_no_tuple_of_a_stream_on_which_none_is_on_its_way(is_empty):
    outputs = (replace(PLAN.outputs[0], is_empty_at_cuts=is_empty), PLAN.outputs[1])
    running = _Running(replace(PLAN, outputs=outputs))
    running.come(A, 0, 2, marker=5)
    made = running.come(B, 0, 1, marker=5)
    (prepared,) = [e.prepared for e in made if isinstance(e, events.WriteCheckpoint)]
    assert {tuples.stream for tuples in prepared.outputs} == ({OUT} if is_empty else {DOWN, OUT})
    assert prepared.point.held_from == {DOWN: 3 if is_empty else 0, OUT: 0}
    assert prepared.point.next_ids == {DOWN: 3, OUT: 3}
