"""A checkpoint that is due waits until windows have closed, for another period at most."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from region_nodes import SCHEMA, Running, batch, stored

from holdfast.core.checkpoint.after_windows import AfterWindows
from holdfast.core.haunit import events
from holdfast.core.haunit.plan import (
    CheckpointPlan,
    Cuts,
    InputSpec,
    NodeLimits,
    NodePlan,
    OperatorSpec,
    OutputSpec,
)
from holdfast.core.machine import TimerFired
from holdfast.core.model.ids import NO_ID, NodeId, StreamId
from holdfast.core.operators.base import Operator, Output


class _State:
    """Of which the oldest tuples are said."""

    def __init__(self) -> None:
        self.oldest = np.array([NO_ID, 7])

    def __call__(self) -> np.ndarray:
        return self.oldest


def test_it_waits_for_a_window_to_close_and_no_longer_than_a_period() -> None:
    state = _State()
    checkpoints = AfterWindows(state)
    assert not checkpoints.have_closed(), "none has waited"
    assert checkpoints.waits()
    assert not checkpoints.have_closed()
    state.oldest = np.array([NO_ID, 8])
    assert checkpoints.have_closed()
    assert not checkpoints.have_closed(), "once"
    assert checkpoints.waits()
    assert not checkpoints.waits(), "a period later"
    state.oldest = np.array([NO_ID, NO_ID])
    assert not checkpoints.waits(), "nothing is open"


class _Oldest(Operator):
    """Its state goes back to the newest tuple whose value is even."""

    def __init__(self) -> None:
        self._needed = NO_ID
        self._next = 0

    def process(self, inputs, low, boundary_us):
        (rows,) = inputs
        if rows is not None:
            for value in rows.batch.column("v").to_pylist():
                if value % 2 == 0:
                    self._needed = self._next
                self._next += 1
        return Output(() if rows is None else (rows,), low)

    def oldest_needed(self):
        return np.array([self._needed])


A, OUT = StreamId("a>n"), StreamId("out[0]")
PLAN = NodePlan(
    NodeId("n"), "n", 0, (InputSpec(A, 0, SCHEMA, NodeId("a")),), 1,
    (OperatorSpec("o", lambda _: _Oldest(), (("port", 0),)),),
    (OutputSpec(("operator", 0), SCHEMA, (OUT,), (), is_sink=True, is_gated=True),),
    checkpoints=CheckpointPlan(1_000, kept=1, waits_for_windows=True), region="n",
    cuts=Cuts.UNCOORDINATED, limits=NodeLimits(ack_tuples=0),
)  # fmt: skip


def _written(made):
    return [e.prepared for e in made if isinstance(e, events.WriteCheckpoint)]


def test_a_node_cuts_at_the_first_acknowledgement_after_a_window_has_closed() -> None:
    running = Running(PLAN, [NodeId("a")], {OUT: 0})

    def take(first_id, value):
        running.step(events.BatchReceived(A, 1, 1, batch(first_id, value)))
        running.run()

    take(0, 2)
    assert not _written(running.step(TimerFired("checkpoint")))
    take(1, 3)
    assert not _written(running.step(TimerFired("ack")))
    take(2, 4)
    (prepared,) = _written(running.step(TimerFired("ack")))
    assert prepared.point.processed_before == {A: 3}
    running.step(stored(prepared))
    plain = Running(replace(PLAN, checkpoints=CheckpointPlan(1_000, kept=1)), [NodeId("a")], {})
    plain.step(events.BatchReceived(A, 1, 1, batch(0, 2)))
    plain.run()
    assert _written(plain.step(TimerFired("checkpoint"))), "without waiting"
