"""Restart points without a copy of the state: producers keep what it is replayed from. [HA §4.3]

A point is noted whenever positions are acknowledged, every M, or at a low rate every few of them.
It costs no more than a few numbers. What the state goes back to, producers keep.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from holdfast.core.haunit.durability.base import Durability, DurabilityState
from holdfast.core.haunit.events import RestartPointStored, StoreRestartPoint

if TYPE_CHECKING:
    from holdfast.core.machine import Effect, Stimulus


class Replayed(Durability):
    """See the module. Volatile: all fields."""

    _restated: int | None = None  # the point that was said once more, until it is stored

    def acknowledging(self, now_ms: int, *, is_due: bool) -> list[Effect]:
        """Note a point, if it is due and says anything new."""
        effects = self._restate(now_ms)
        if not is_due:
            return effects
        if self.state is DurabilityState.FOLLOWS:
            self.unit.order.forget(self.unit.network.oldest_needed())  # Who notes no points, too.
        elif self.may_note():
            self.points.note(self.cut(is_state_kept=False))
        return effects

    def _restate(self, now_ms: int) -> list[Effect]:
        """What the unit wants to drop must be durable before it acts on that; see its ledger."""
        ledger = self.unit.ledger
        if ledger is None or self._restated is not None:
            return []
        taken_before = self.unit.taken_before
        if not ledger.has_to_write(taken_before):
            return []
        point = self.points.restate(ledger.unwritten, ledger.horizon(taken_before), now_ms)
        self._restated = point.sequence
        return [StoreRestartPoint(point)]

    def on_restart_point_stored(self, stored: RestartPointStored, now_ms: int) -> list[Effect]:
        """See `Durability`; the unit may drop what a durable point says that it does."""
        effects = super().on_restart_point_stored(stored, now_ms)
        newest = self.points.retained[0]
        if self._restated is not None and newest.sequence >= self._restated:
            self._restated = None
        return effects + self.unit.point_stored(newest, now_ms)

    HANDLERS: ClassVar[Mapping[type[Stimulus], Callable[[Any, Any, int], list[Effect]]]] = {
        RestartPointStored: on_restart_point_stored,
    }
