"""Restart points without a copy of the state: producers keep what it is replayed from. [HA §4.3]

A point is noted whenever positions are acknowledged, every M, or at a low rate every few of them.
It costs no more than a few numbers. What the state goes back to, producers keep.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.core.haunit.durability.base import Durability, DurabilityState

if TYPE_CHECKING:
    from holdfast.core.machine import Effect


class Replayed(Durability):
    """See the module. Volatile: all fields."""

    def acknowledging(self, now_ms: int, *, is_due: bool) -> list[Effect]:
        """Note a point, if it is due and says anything new."""
        del now_ms
        if not is_due:
            return []
        if self.state is DurabilityState.FOLLOWS:
            self.unit.order.forget(self.unit.network.oldest_needed())  # Who notes no points, too.
        elif self.may_note():
            self.points.note(self.cut(is_state_kept=False))
        return []
