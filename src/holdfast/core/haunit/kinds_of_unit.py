"""Which kind of unit a plan asks for: the one place that asks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.core.haunit.delayed_unit import DelayedUnit
from holdfast.core.haunit.ha_unit import HAUnit
from holdfast.core.haunit.loop_unit import LoopUnit

if TYPE_CHECKING:
    from holdfast.core.haunit.beginning import Beginning
    from holdfast.core.haunit.plan import NodePlan


def unit_of(plan: NodePlan, begins: Beginning, now_ms: int) -> HAUnit:
    """The unit of one incarnation of a node of this plan."""
    if plan.delays is not None:
        return DelayedUnit(plan, begins, now_ms, plan.delays)
    if plan.is_in_loop:
        return LoopUnit(plan, begins, now_ms)
    return HAUnit(plan, begins, now_ms)
