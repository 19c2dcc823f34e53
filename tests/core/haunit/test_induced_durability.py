"""A node that what others say forces to cut: before which tuples, and what it says itself."""

from __future__ import annotations

from dataclasses import replace

import pytest
from region_nodes import ONE, SCHEMA, Running, counted, stored

from holdfast.core.errors import LocalProtocolError
from holdfast.core.haunit import events
from holdfast.core.haunit.durability.induced import induced_rule_of
from holdfast.core.haunit.plan import (
    CheckpointPlan,
    Cuts,
    InputSpec,
    NodeLimits,
    NodePlan,
    OutputSpec,
)
from holdfast.core.machine import TimerFired
from holdfast.core.model.ids import NodeId, StreamId
from holdfast.core.model.notes import CheckpointIndex, PlacedNote
from holdfast.core.recovery.restart_point import RestartPoint

A, DOWN = StreamId("a>n"), StreamId("n>c")
SENDER, NODE, RECEIVER = NodeId("a"), NodeId("n"), NodeId("c")
PLAN = NodePlan(
    NODE, "n", 0, (InputSpec(A, 0, SCHEMA, SENDER, is_from_region=True),), 1, (),
    (OutputSpec(("port", 0), SCHEMA, (DOWN,), (RECEIVER,)),),
    checkpoints=CheckpointPlan(1_000, kept=1), region="n", cuts=Cuts.BCS,
    scope=(SENDER, NODE, RECEIVER), limits=NodeLimits(ack_tuples=0),
)  # fmt: skip


class _Running(Running):
    """The node; the test says when its checkpoints are durable."""

    def __init__(self, plan=PLAN):
        super().__init__(plan, [SENDER], {})

    def come(self, first_id, count, index):
        """Tuples behind the index of their sender."""
        notes = (PlacedNote(index, first_id, CheckpointIndex(index)),)
        got = events.BatchReceived(A, ONE, ONE, counted(first_id, count), notes=notes)
        return self.step(got) + self.run()

    @property
    def taken(self):
        return self.node.positions()["processed"][A]


def _prepared(effects):
    return [e.prepared for e in effects if isinstance(e, events.WriteCheckpoint)]


def test_a_later_index_forces_a_cut_before_the_tuples_behind_it_and_is_said_further():
    running = _Running()
    assert not _prepared(running.come(0, 2, index=1))
    (forced,) = _prepared(running.come(2, 1, index=2))
    assert forced.point.is_forced
    assert forced.point.processed_before == {A: 2}
    assert forced.point.clocks == (2,)
    assert forced.point.next_notes == {A: 2}, "the note comes again to who starts from there"
    running.step(stored(forced))
    (wanted,) = _prepared(running.step(TimerFired("checkpoint")))
    assert not wanted.point.is_forced
    said = [(n.before_id, n.note.index) for n in wanted.notes[DOWN]]
    assert said == [(0, 1), (2, 2)], "before the first tuple of each index"
    assert RestartPoint.from_json(forced.point.to_json()) == forced.point


def test_what_forces_a_cut_waits_while_another_checkpoint_is_written():
    running = _Running()
    running.come(0, 1, index=1)
    (wanted,) = _prepared(running.step(TimerFired("checkpoint")))
    assert not _prepared(running.come(1, 1, index=7))
    assert running.taken == 1
    (forced,) = _prepared(running.step(stored(wanted)))
    assert (forced.point.clocks, forced.point.is_forced) == ((7,), True)
    running.run()
    assert running.taken == 2


@pytest.mark.parametrize("cuts", [Cuts.HMNR, Cuts.BCS, Cuts.LAZY_FI])
def test_who_is_alone_in_its_scope_says_nothing(cuts):
    running = _Running(replace(PLAN, cuts=cuts, scope=(NODE,)))
    running.step(events.BatchReceived(A, ONE, ONE, counted(0, 2)))
    running.run()
    (prepared,) = _prepared(running.step(TimerFired("checkpoint")))
    assert not prepared.notes
    assert prepared.point.clocks


def test_nothing_forces_a_node_whose_plan_does_not_say_so():
    with pytest.raises(LocalProtocolError):
        induced_rule_of(replace(PLAN, cuts=Cuts.ALIGNED))
