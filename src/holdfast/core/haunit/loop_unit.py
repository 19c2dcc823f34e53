"""An HA unit in a loop: it bears marks, and takes what comes back first. [CheckMate §VI, "cyclic"]

Theory of operation. Event time goes round with marks (loop_progress.py). An entrance is a unit with
feedback streams. Three things keep a loop from standing still, or growing without a bound:

- a feedback stream never stops its sender: what cannot be sent yet is spilled (outputs/edge.py);
- as long as half of what a feedback queue may hold waits there, an entrance takes nothing else;
- a node without feedback streams takes no input from outside of its loop (planning/loops.py).

So whoever waits in a loop waits for a node further on, which waits for nobody in the end.

A mark counts like a pass, so that its bearer takes another checkpoint: 1. A node has taken a mark
and fills its gate. 2. Its cut is on the line once its sender has a checkpoint behind that mark. 3.
The sender has nothing else to do, and would take none.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from holdfast.core.haunit.ha_unit import HAUnit
from holdfast.core.haunit.input_order import ArrivalOrder
from holdfast.core.haunit.loop_progress import Entrance, Laps, known_at
from holdfast.core.model.ids import END_US
from holdfast.core.model.notes import LoopMark
from holdfast.core.recovery.loop_state import LoopState

if TYPE_CHECKING:
    from holdfast.core.haunit.arrivals import Arrivals, InputStream
    from holdfast.core.haunit.beginning import Beginning
    from holdfast.core.haunit.events import Proceed
    from holdfast.core.haunit.input_order import InputOrder
    from holdfast.core.haunit.plan import NodePlan
    from holdfast.core.machine import Effect
    from holdfast.core.model.notes import StreamNote
    from holdfast.core.model.tuples import TupleBatch
    from holdfast.core.recovery.restart_point import RestartPoint


class EntranceOrder(ArrivalOrder):
    """As it comes, what comes back first where much waits; volatile: all fields."""

    def __init__(self, plan: NodePlan, arrivals: Arrivals, begins: Beginning) -> None:
        """Go on with what the restart point has acted on."""
        super().__init__(plan, arrivals, begins)
        self.entrance = Entrance(known_at(begins.point))
        self._feedback = tuple(s for s in arrivals.streams if s.spec.is_feedback)
        self._outside = tuple(s for s in arrivals.streams if not s.spec.is_feedback)
        self._backlog_max = max(1, plan.limits.input_queue_tuples // 2)

    @property
    def outside_us(self) -> int:
        """What the input from outside has passed, as far as it was taken."""
        return min((s.queue.taken_boundary_us for s in self._outside), default=END_US)

    def _slowest_us(self) -> int:
        """What comes back promises nothing by itself."""
        return min(self.outside_us, self.entrance.promised_us)

    def _take_some(self) -> list[list[TupleBatch]]:
        has_backlog = any(
            s.queue.has_work and s.queue.pending_tuples >= self._backlog_max for s in self._feedback
        )
        batches = self._arrivals.take_some(self._outside if has_backlog else ())
        for stream in self._feedback:
            for batch in batches[stream.number]:
                times_us = batch.batch.column(batch.batch.num_columns - 1).to_numpy()
                self.entrance.came_back(int(np.min(times_us)))
        return batches


class LoopUnit(HAUnit):
    """See the module. Volatile: all fields."""

    def __init__(self, plan: NodePlan, begins: Beginning, now_ms: int) -> None:
        """Bring it up where it begins."""
        super().__init__(plan, begins, now_ms)
        self._entrance = self.order if isinstance(self.order, EntranceOrder) else None
        marked = (
            spec.stream
            for spec in plan.inputs
            if (spec.is_looped if self._entrance is None else spec.is_feedback)
        )
        self._looped = plan.looped_streams()
        known = begins.point.loop or LoopState()
        self.laps = Laps(tuple(marked), self._looped, begins.point.laps, known.waiting)

    def _order_of(self, begins: Beginning) -> InputOrder:
        if any(spec.is_feedback for spec in self.plan.inputs):
            return EntranceOrder(self.plan, self.inputs.arrivals, begins)
        return super()._order_of(begins)

    def noted(self, stream: InputStream, note: StreamNote) -> bool:
        """Bear a mark on; no other note is for the unit."""
        if not isinstance(note, LoopMark):
            return False
        self.laps.take(stream.spec.stream, note)
        self.passes += 1
        if self._entrance is None:
            while self.laps.has_all(self.laps.put + 1):
                self._put(self.laps.least(self.laps.put + 1))
        else:
            self._begin_lap(self._entrance)
        return True

    def run_pass(self, proceed: Proceed, now_ms: int) -> tuple[bool, list[Effect]]:
        """Run the next pass; the input from outside may have come far enough for another lap."""
        has_processed, effects = super().run_pass(proceed, now_ms)
        has_put = self._entrance is not None and self._begin_lap(self._entrance)
        return has_processed or has_put, effects

    def _begin_lap(self, order: EntranceOrder) -> bool:
        """Begin the next lap if the last one is back, and another may lead to more."""
        entrance, lap = order.entrance, self.laps.put
        if not self.laps.has_all(lap):
            return False
        back = entrance.back
        if back is None or back.lap < lap:
            back = self.laps.least(lap)
            entrance.lap_is_back(back)
        if not entrance.may_gain(order.outside_us, lap):
            return False
        self._put(entrance.next_mark(back, order.outside_us))
        return True

    def _put(self, mark: LoopMark) -> None:
        self.laps.put = mark.lap
        self.passes += 1
        for stream in self._looped:
            if self.outputs.before_tuples is not None:
                self.outputs.before_tuples(stream)
        self.outputs.put_note(mark, self._looped, replaces=True)

    def cut(self, sequence: int, *, is_state_kept: bool = False) -> RestartPoint:
        """See `HAUnit`; with the laps, and what is known of them."""
        point = super().cut(sequence, is_state_kept=is_state_kept)
        entrance = None if self._entrance is None else self._entrance.entrance.known
        return replace(point, laps=self.laps.point, loop=LoopState(self.laps.waiting, entrance))

    def check_invariants(self) -> None:
        """See `HAUnit`."""
        super().check_invariants()
        self.laps.check_invariants()
