"""Restart points with a copy of the state in a store. [SGuard §3, §4.4]

A point is noted only when its checkpoint is durable, every `interval_ms`; that holds the state and
the outputs still needed, so that it waits for no receiver (chkpt_mngr.py). No checkpoint is taken
while the one before is being written. Who `asks_first` prepares only when its turn has come. A
store that places checkpoints as a whole may refuse one: then it gives way, and is prepared anew.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from holdfast.core.checkpoint.after_windows import AfterWindows
from holdfast.core.errors import LocalProtocolError
from holdfast.core.haunit.chkpt_mngr import ChkptMngr
from holdfast.core.haunit.durability.base import Durability
from holdfast.core.haunit.events import (
    AskToWrite,
    CheckpointFailed,
    CheckpointRefused,
    CheckpointWritten,
    LeaveWriters,
    PagesCopied,
    WriteAdmitted,
)
from holdfast.core.machine import Effect, SetTimer, Stimulus

if TYPE_CHECKING:
    from holdfast.core.haunit.beginning import Beginning
    from holdfast.core.haunit.ha_unit import HAUnit
    from holdfast.core.haunit.restoration import RestoredState


class Checkpointed(Durability):
    """See the module. Volatile: all fields."""

    REPLAYS = False
    GIVES_WAY: ClassVar[bool] = True
    """Whether a checkpoint may be of another cut than was meant at first."""

    def __init__(self, unit: HAUnit, begins: Beginning, restored: RestoredState | None) -> None:
        """Build on the checkpoint that the unit was restored from, if it was.

        Raises:
            LocalProtocolError: The plan has no checkpoints.
        """
        super().__init__(unit, begins, restored)
        plan = unit.plan
        if plan.checkpoints is None:
            raise LocalProtocolError(f"{plan.node} takes no checkpoints by its plan")
        self._checkpoints = plan.checkpoints
        self._chkpt_mngr = ChkptMngr(
            *(plan, plan.checkpoints, begins.incarnation, unit.network.pages, restored),
            gives_way=self.GIVES_WAY,
        )

        self._after_windows: AfterWindows | None = None
        if plan.checkpoints.waits_for_windows:
            self._after_windows = AfterWindows(unit.network.oldest_needed)

    def start(self, now_ms: int) -> list[Effect]:
        """Set the timer of checkpoints."""
        return self._set_timer(now_ms)

    def _set_timer(self, now_ms: int) -> list[Effect]:
        return [SetTimer("checkpoint", now_ms + self._checkpoints.interval_ms)]

    def acknowledging(self, now_ms: int, *, is_due: bool) -> list[Effect]:
        """A checkpoint whose pages were needed for the job is given up; one may wait no more."""
        del is_due
        effects = self._chkpt_mngr.give_up_if_cancelled(now_ms)
        if self._after_windows is not None and self._after_windows.have_closed():
            effects += self._cut_if_due(now_ms)
        return effects

    def on_checkpoint_timer(self, now_ms: int) -> list[Effect]:
        """Take a checkpoint, unless the last one is still being written, or this one waits."""
        effects = self._set_timer(now_ms)
        if self._after_windows is None or not self._after_windows.waits():
            effects += self._cut_if_due(now_ms)
        return effects

    def _cut_if_due(self, now_ms: int) -> list[Effect]:
        if not self.may_note() or self._chkpt_mngr.is_busy:
            return []
        if self._checkpoints.asks_first:
            return [AskToWrite()]  # Each time anew: the word or its answer may be lost.
        return self._prepare(now_ms)

    def _prepare(self, now_ms: int) -> list[Effect]:
        cut = self.cut(is_state_kept=True)
        return self._chkpt_mngr.prepare(cut, self.unit.outputs, now_ms)

    def on_write_admitted(self, _: WriteAdmitted, now_ms: int) -> list[Effect]:
        """The turn has come: the checkpoint is of the state now. [SGuard §5]"""
        if not self._chkpt_mngr.admitted():
            return []  # Said again.
        if self.may_note():
            return self._prepare(now_ms)
        return [LeaveWriters()] if self._checkpoints.asks_first else []

    def on_checkpoint_refused(self, refused: CheckpointRefused, now_ms: int) -> list[Effect]:
        """The unit may write to its pages again until the store has a place for them."""
        del now_ms
        self._chkpt_mngr.refused(refused.checkpoint)
        self.note_again()
        return []

    def on_pages_copied(self, copied: PagesCopied, now_ms: int) -> list[Effect]:
        """The unit may write to these again."""
        del now_ms
        self._chkpt_mngr.pages_copied(copied)
        return []

    def on_checkpoint_written(self, written: CheckpointWritten, now_ms: int) -> list[Effect]:
        """All of it is durable: note the point that leads to it."""
        point, effects = self._chkpt_mngr.written(written.stored, now_ms)
        if point is not None:
            self.points.note(point)
            effects += self.ask_to_store(now_ms)
        return effects

    def on_checkpoint_failed(self, failed: CheckpointFailed, now_ms: int) -> list[Effect]:
        """The store did not take it: the next one may come, though nothing new has."""
        effects = self._chkpt_mngr.failed(failed, now_ms)
        self.note_again()
        return effects

    def retained(self) -> list[Effect]:
        """Have the files deleted that no retained point needs."""
        return self._chkpt_mngr.collect(self.points.retained, self.points.on_their_way())

    def check_invariants(self) -> None:
        """Raise `InvariantViolation` when points, or the checkpoint under way, make no sense."""
        super().check_invariants()
        self._chkpt_mngr.check_invariants()

    HANDLERS: ClassVar[Mapping[type[Stimulus], Callable[[Any, Any, int], list[Effect]]]] = {
        **Durability.HANDLERS,
        WriteAdmitted: on_write_admitted,
        CheckpointRefused: on_checkpoint_refused,
        PagesCopied: on_pages_copied,
        CheckpointWritten: on_checkpoint_written,
        CheckpointFailed: on_checkpoint_failed,
    }
    TIMERS: ClassVar[Mapping[str, Callable[[Any, int], list[Effect]]]] = {
        "checkpoint": on_checkpoint_timer
    }
