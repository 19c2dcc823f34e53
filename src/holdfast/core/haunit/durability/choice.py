"""Which durability a plan asks for: the one place that asks."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from holdfast.core.haunit.durability.base import Durability
from holdfast.core.haunit.durability.checkpointed import Checkpointed
from holdfast.core.haunit.durability.coordinated import Coordinated
from holdfast.core.haunit.durability.eventual import Eventual
from holdfast.core.haunit.durability.induced import Induced
from holdfast.core.haunit.durability.lines import Lines
from holdfast.core.haunit.durability.mirrored import Mirrored
from holdfast.core.haunit.durability.replayed import Replayed
from holdfast.core.haunit.plan import Standby

if TYPE_CHECKING:
    from holdfast.core.haunit.plan import NodePlan

_CHOICES: Final[tuple[tuple[Callable[[NodePlan], bool], type[Durability]], ...]] = (
    (lambda plan: plan.cuts is not None and plan.cuts.has_rounds, Coordinated),
    (lambda plan: plan.cuts is not None and plan.cuts.is_induced, Induced),
    (lambda plan: plan.cuts is not None, Lines),
    (lambda plan: plan.checkpoints is not None, Checkpointed),
    (lambda plan: plan.footprints is not None, Eventual),
    (lambda plan: plan.standby is Standby.PASSIVE, Mirrored),
    (lambda plan: plan.is_protected, Replayed),
    (lambda plan: True, Durability),
)
"""The first that holds counts."""


def durability_of(plan: NodePlan) -> type[Durability]:
    """How a node of this plan is protected."""
    return next(durability for asks_for, durability in _CHOICES if asks_for(plan))
