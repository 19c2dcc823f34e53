"""Checkpoints of a region's node that cuts where a rule says so. [CheckMate §III]

The rule (core/checkpoint/cut_rule.py) hears of notes in the inputs, and says before which of them
the node has to cut. One checkpoint is written at a time, so that a cut may have to wait; what the
rule keeps from being processed before the cut is held back in the inputs until then. When other
members go back, notes that will come otherwise are forgotten.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from holdfast.core.haunit.durability.lines import Lines
from holdfast.core.haunit.events import CheckpointFailed, CheckpointWritten
from holdfast.core.machine import Effect, Stimulus
from holdfast.core.model.ids import CheckpointId

if TYPE_CHECKING:
    from holdfast.core.checkpoint.cut_rule import CutRule
    from holdfast.core.haunit.arrivals import InputStream
    from holdfast.core.haunit.beginning import Beginning
    from holdfast.core.haunit.ha_unit import HAUnit
    from holdfast.core.haunit.restoration import RestoredState
    from holdfast.core.haunit.told import GoOnTold
    from holdfast.core.model.notes import StreamNote
    from holdfast.core.recovery.restart_point import RestartPoint


class Ruled(Lines, abc.ABC):
    """See the module. Volatile: all fields."""

    def __init__(
        self, unit: HAUnit, begins: Beginning, restored: RestoredState | None, rule: CutRule
    ) -> None:
        """Protect a unit that begins there; `restored` as it was given to `begin`."""
        super().__init__(unit, begins, restored)
        self._incarnation = begins.incarnation
        self._rule = rule

    @abc.abstractmethod
    def _heed(self, now_ms: int) -> list[Effect]:
        """Cut if that is due; a checkpoint may have been written or given up."""
        return []

    def _forget(self, stream: InputStream, from_id: int) -> None:
        """What arrived of an input from this id on will come otherwise."""
        self._rule.dropped(stream.number, from_id)

    def _is_cut_due(self) -> bool:
        """Whether the rule wants a cut here, and one can be taken."""
        may_cut = self._halted is None and self.unit.may_cut and not self._chkpt_mngr.is_writing
        return may_cut and self._rule.is_due(self.unit.inputs.arrivals.processed_before)

    def _hold_back(self) -> list[Effect]:
        """Stop inputs where the rule says, and let others go on."""
        arrivals = self.unit.inputs.arrivals
        if arrivals.hold_back(self._rule.limits()):
            return self.unit.inputs.grant(arrivals.streams)
        return []

    def _cut_by_rule(self, point: RestartPoint) -> StreamNote | None:
        """Tell the rule of a cut; what is to stand there on all outputs in scope."""
        checkpoint = CheckpointId(point.sequence, self._incarnation)
        return self._rule.cut(checkpoint, self.unit.inputs.arrivals.processed_before)

    def on_checkpoint_written(self, written: CheckpointWritten, now_ms: int) -> list[Effect]:
        """See `Checkpointed`; the next one may have had to wait for it."""
        return [*super().on_checkpoint_written(written, now_ms), *self._heed(now_ms)]

    def on_checkpoint_failed(self, failed: CheckpointFailed, now_ms: int) -> list[Effect]:
        """See `Checkpointed`; the next one may have had to wait for it."""
        return [*super().on_checkpoint_failed(failed, now_ms), *self._heed(now_ms)]

    def acknowledging(self, now_ms: int, *, is_due: bool) -> list[Effect]:
        """See `Lines`; a checkpoint may have been given up."""
        return [*super().acknowledging(now_ms, is_due=is_due), *self._heed(now_ms)]

    def _go_on(self, told: GoOnTold, now_ms: int) -> list[Effect]:
        """See `Lines`; notes that will come otherwise are forgotten."""
        effects = super()._go_on(told, now_ms)
        for stream in self.unit.inputs.all():
            resumed = told.resumed.get(stream.spec.stream)
            if resumed is not None:
                self._forget(stream, resumed.next_id)
        return effects

    HANDLERS: ClassVar[Mapping[type[Stimulus], Callable[[Any, Any, int], list[Effect]]]] = {
        **Lines.HANDLERS,
        CheckpointWritten: on_checkpoint_written,
        CheckpointFailed: on_checkpoint_failed,
    }
