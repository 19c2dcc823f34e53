"""A node where a loop begins: what its replacement knows of the marks that go round."""

from __future__ import annotations

import pytest
from region_nodes import ONE, SCHEMA, Running, stored

from holdfast.core.haunit import events
from holdfast.core.haunit.plan import (
    CheckpointPlan,
    Cuts,
    InputSpec,
    NodeLimits,
    NodePlan,
    OutputSpec,
)
from holdfast.core.haunit.restoration import RestoredState
from holdfast.core.machine import TimerFired
from holdfast.core.model.ids import BEGINNING_US, END_US, NodeId, StreamId
from holdfast.core.model.notes import LoopMark, PlacedNote
from holdfast.core.recovery.restart_point import RestartPoint
from holdfast.core.state.page_manager import PageManager

OUTSIDE, DOWN = StreamId("s>n"), StreamId("n>b")
BACK = (StreamId("b0>n"), StreamId("b1>n"))
SENDERS = (NodeId("s"), NodeId("b0"), NodeId("b1"), NodeId("b"))
PLAN = NodePlan(
    NodeId("n"), "n", 0,
    (
        InputSpec(OUTSIDE, 0, SCHEMA, SENDERS[0]),
        *(
            InputSpec(stream, 0, SCHEMA, sender, is_from_region=True, is_looped=True,
                      is_feedback=True)
            for stream, sender in zip(BACK, SENDERS[1:3], strict=True)
        ),
    ),
    1, (),
    (OutputSpec(("port", 0), SCHEMA, (DOWN,), (SENDERS[3],), is_looped=True),),
    merges_by_arrival=True, checkpoints=CheckpointPlan(1_000, kept=1), region="n",
    cuts=Cuts.UNCOORDINATED, limits=NodeLimits(ack_tuples=0),
)  # fmt: skip


class _Running(Running):
    """The entrance; the test brings back its marks."""

    def __init__(self, restored=None):
        super().__init__(PLAN, SENDERS, {}, restored)
        self.made = self.step(events.SubscribeReceived(DOWN, ONE, ONE, 0, 0, 100))
        self.made += self.step(events.BoundaryReceived(OUTSIDE, ONE, ONE, 0, END_US)) + self.run()

    def bring_back(self, stream, mark):
        number = mark.lap - 1
        notes = (PlacedNote(number, 0, mark),)
        got = events.NotesReceived(stream, ONE, ONE, 0, number, None, notes)
        self.made += self.step(got) + self.run()

    @property
    def laps(self):
        notes = (n.note for e in self.made if isinstance(e, events.SendNotes) for n in e.notes)
        return [note for note in notes if isinstance(note, LoopMark)]

    @property
    def promised_us(self):
        return max(e.boundary_us for e in self.made if isinstance(e, events.SendBoundary))

    def cut(self):
        (prepared,) = (
            e.prepared
            for e in self.step(TimerFired("checkpoint"))
            if isinstance(e, events.WriteCheckpoint)
        )
        self.step(stored(prepared))
        return RestartPoint.from_json(prepared.point.to_json())


@pytest.mark.parametrize("had", [0, 1, 2])
def test_a_replacement_promises_the_end_with_the_lap_amid_which_its_predecessor_failed(had):
    """Others have promised it with that lap, and would begin no other one for it.

    Args:
        had: On so many streams the last lap had come back before the cut.
    """
    running = _Running()
    last = LoopMark(3, END_US, END_US)
    for mark in (LoopMark(1, END_US, BEGINNING_US), LoopMark(2, END_US, 7)):
        for stream in BACK:
            running.bring_back(stream, mark)
    assert running.laps[-1] == last
    for stream in BACK[:had]:
        running.bring_back(stream, last)
    again = _Running(RestoredState(running.cut(), 3, PageManager(), None, (), {}, ()))
    for stream in BACK:
        again.bring_back(stream, last)
    assert again.promised_us == END_US
    assert not again.laps, "no other one begins"
