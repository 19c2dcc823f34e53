"""Which kind of unit a plan asks for: the one place that asks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.core.haunit.delayed_unit import DelayedUnit
from holdfast.core.haunit.ha_unit import HAUnit

if TYPE_CHECKING:
    from holdfast.core.haunit.beginning import Beginning
    from holdfast.core.haunit.plan import NodePlan


def unit_of(plan: NodePlan, begins: Beginning, now_ms: int) -> HAUnit:
    """The unit of one incarnation of a node of this plan."""
    if plan.delays is not None:
        return DelayedUnit(plan, begins, now_ms, plan.delays)
    return HAUnit(plan, begins, now_ms)
