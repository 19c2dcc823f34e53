"""Which plans are restored how: the one place that asks."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from holdfast.core.haunit.extent_restoration import ExtentRestoration
from holdfast.core.haunit.restoration import (
    CheckpointRestoration,
    LineRestoration,
    Restoration,
)

if TYPE_CHECKING:
    from holdfast.core.haunit.openings import OpenThings
    from holdfast.core.haunit.plan import NodePlan
    from holdfast.core.recovery.restart_point import RestartPoint


def _from_checkpoints(plan: NodePlan, point: RestartPoint, opened: OpenThings) -> Restoration:
    limits = plan.limits
    return CheckpointRestoration(point, limits.page_bytes, limits.state_bytes, opened.found)


def _from_line(plan: NodePlan, point: RestartPoint, opened: OpenThings) -> Restoration:
    limits = plan.limits
    return LineRestoration(point, limits.page_bytes, limits.state_bytes, opened.found)


def _from_footprints(plan: NodePlan, point: RestartPoint, _: OpenThings) -> Restoration:
    return ExtentRestoration(plan, point)


RESTORATIONS: Final[
    tuple[
        tuple[
            Callable[[NodePlan], bool], Callable[[NodePlan, RestartPoint, OpenThings], Restoration]
        ],
        ...,
    ]
] = (
    (lambda plan: bool(plan.region), _from_line),
    (lambda plan: plan.checkpoints is not None, _from_checkpoints),
    (lambda plan: plan.footprints is not None, _from_footprints),
)
"""The first that fits. A protocol adds a line here."""


def restoration_of(
    plan: NodePlan, point: RestartPoint | None, opened: OpenThings
) -> Restoration | None:
    """How an incarnation gets its state; None: it begins empty.

    Args:
        plan: The node's.
        point: Its restart point; None at the very beginning.
        opened: What is open.
    """
    if point is None:
        return None
    fitting = (restore for is_for, restore in RESTORATIONS if is_for(plan))
    restore = next(fitting, None)
    return None if restore is None else restore(plan, point, opened)
