"""Restart points whose windows are in a footprint log, each with its own cut. [CEC §II.B, §III]

A point is noted whenever positions are acknowledged, as without a copy of the state. The log's
newest record is of its cut, then; the point names that record, and needs the log from T's record,
and the input from T, on. It is safe once the log is durable up to there, beside what makes any
point safe. So upstream lets go of what lies before T, and a replacement adopts the windows, and
replays from T (extent_restoration.py, footprint_writer.py).

The shell says when there is time to write windows (`CheckWindows`), and how many; whether it is
due, and which ones, is decided here. It also says how far apart points are to be: the records
before them are paid from the same share of the time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np

from holdfast.core.checkpoint.eventual import MARKS_APART_MAX_MS, RecoveryObjective
from holdfast.core.errors import LocalProtocolError
from holdfast.core.haunit.durability.base import Durability
from holdfast.core.haunit.durability.footprint_writer import FootprintWriter, Place
from holdfast.core.haunit.events import CheckWindows, FootprintsTaken, TrimFootprints
from holdfast.core.machine import Effect, Stimulus
from holdfast.core.model.ids import NO_ID
from holdfast.core.operators.footprinted import Footprinted
from holdfast.core.state.page_manager import PageManager

if TYPE_CHECKING:
    import pyarrow as pa

    from holdfast.core.checkpoint.eventual import ExtentStatistics
    from holdfast.core.haunit.beginning import Beginning
    from holdfast.core.haunit.ha_unit import HAUnit
    from holdfast.core.haunit.plan import Assignment, NodePlan
    from holdfast.core.haunit.restoration import RestoredState
    from holdfast.core.model.tuples import TupleBatch

_LOOK_MS: Final = 200


class Eventual(Durability):
    """See the module. Volatile: all fields."""

    @classmethod
    def begin(
        cls, plan: NodePlan, assignment: Assignment, restored: RestoredState | None
    ) -> Beginning:
        """As where nothing is kept of the state: it is replayed from T, in silence."""
        del restored  # Its point is the assignment's.
        return super().begin(plan, assignment, None)

    def __init__(self, unit: HAUnit, begins: Beginning, restored: RestoredState | None) -> None:
        """Go on with the eventual checkpoint that was read, if there is one.

        Raises:
            LocalProtocolError: The plan has no footprints, or not one operator that leaves them.
        """
        super().__init__(unit, begins, restored)
        plan, log = unit.plan, unit.outputs.footprints
        operators = unit.network.footprinted
        if plan.footprints is None or log is None or len(operators) != 1:
            raise LocalProtocolError(f"{plan.node} leaves no footprints by its plan")
        self._log = log
        self._streams = tuple(spec.stream for spec in plan.inputs)
        self._no_ids = np.full(len(self._streams), NO_ID, dtype=np.int64)
        self._objective = RecoveryObjective(
            plan.footprints.extent_bytes, plan.footprints.recovery_us
        )
        self._footprints = FootprintWriter(
            operators[0],
            self._objective,
            log.next_id,
            None if restored is None else restored.extent,
            len(self._streams),
        )
        self._looked_ms, self._tuples = 0, unit.input_tuples  # when rates were learned, and input
        self._noted_ms, self._apart_ms = -MARKS_APART_MAX_MS, 0  # the last point; how far apart
        self._has_lost_input = False  # in the replay
        unit.witness = self

    def _place(self) -> Place:
        """Where the unit stands between two passes."""
        unit = self.unit
        needed = unit.order.needed_from(self._no_ids, is_state_kept=True)
        processed = unit.inputs.arrivals.processed_before
        boundary_us = unit.network.boundary_us
        ahead = self._footprints.cuts_ahead
        cut = processed[0] + ahead if len(processed) == 1 else boundary_us
        return Place(cut, boundary_us, tuple(needed[s] for s in self._streams), processed)

    def _append(self, records: list[TupleBatch]) -> list[Effect]:
        return [effect for record in records for effect in self._log.append(record)]

    # -- passes -----------------------------------------------------------------------------

    def pass_begins(self) -> None:
        """Windows may open and close."""
        self._footprints.begin_pass()

    def stream_rebased(self) -> tuple[bool, list[Effect]]:
        """With several streams the cut is a time, and comes: what lies before it has been put out,
        and windows go on to leave out what they have. An id may not come any more.
        """
        if len(self._streams) > 1:
            self._has_lost_input = True
            return False, []
        return True, self._append(self._footprints.renumber(self._place()))

    def replay_ended(self) -> list[Effect]:
        """Windows are what they were at the cut, unless input has been lost."""
        if self._has_lost_input:
            return self._append(self._footprints.break_off_replay(self._place()))
        self._footprints.end_replay()
        return []

    def on_check_windows(self, check: CheckWindows, now_ms: int) -> list[Effect]:
        """Write some windows, if recovery would take too long otherwise."""
        self._objective.learn(check.costs)
        self._apart_ms = check.marks_apart_ms
        if now_ms - self._looked_ms >= _LOOK_MS:
            came = self.unit.input_tuples - self._tuples
            rate = came * 1000 / (now_ms - self._looked_ms)
            self._objective.learn_rates(rate, check.windows_per_s)
            self._looked_ms, self._tuples = now_ms, self.unit.input_tuples
        if self.unit.replay.is_silent or not check.windows:
            return []
        place, footprints = self._place(), self._footprints
        if not footprints.is_check_due(place):
            return []
        if footprints.has_taken:
            self.note_again()  # T may move on, without a pass.
        effects = self._append(footprints.piece(check.windows, place))
        if not effects and footprints.has_taken:
            return [FootprintsTaken(footprints.footprints_taken)]
        return effects

    # -- restart points -----------------------------------------------------------------------

    def acknowledging(self, now_ms: int, *, is_due: bool) -> list[Effect]:
        """Note a point, if it is due, says anything new, and the last one is long enough ago."""
        if not is_due or now_ms - self._noted_ms < self._apart_ms or not self.may_note():
            return []
        self._noted_ms = now_ms
        place = self._place()
        effects = self._append(self._footprints.mark(place))
        cut = self.cut(is_state_kept=True)
        needed: dict[str, int] = dict(
            zip(self._streams, self._footprints.starts(place), strict=True)
        )
        arrivals = self.unit.inputs.arrivals
        point = replace(
            cut,
            needed_from=needed | {self._log.stream: self._footprints.log_needed_from},
            next_ids=cut.next_ids | {self._log.stream: self._footprints.ends_at},
            next_notes=arrivals.next_notes(needed, is_state_kept=False),
            predicted_us=int(self._objective.predicted_us(self._footprints.size(place))),
        )
        self.points.note(point)
        return effects

    def retained(self) -> list[Effect]:
        """No replacement reads the log from further back than the oldest of these."""
        before = self.points.retained[-1].needed_from.get(self._log.stream, 0)
        return [TrimFootprints(self._log.stream, before)]

    @property
    def extent(self) -> ExtentStatistics:
        """See the base."""
        return self._footprints.statistics(self._place())

    def check_invariants(self) -> None:
        """Raise `InvariantViolation` when points, windows and generations make no sense."""
        super().check_invariants()
        self._footprints.check_invariants()

    HANDLERS: ClassVar[Mapping[type[Stimulus], Callable[[Any, Any, int], list[Effect]]]] = {
        **Durability.HANDLERS,
        CheckWindows: on_check_windows,
    }


def body_schema(plan: NodePlan) -> pa.Schema | None:
    """The columns in which a node of this plan describes its windows; None: it leaves none."""
    if plan.footprints is None:
        return None
    operators = (spec.build(PageManager(plan.limits.page_bytes)) for spec in plan.operators)
    return next(o.body_schema for o in operators if isinstance(o, Footprinted))
