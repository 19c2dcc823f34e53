"""What recovery of a unit has to cope with, and what it keeps."""

from __future__ import annotations

from dataclasses import dataclass, replace
from graphlib import TopologicalSorter
from typing import TYPE_CHECKING

from holdfast.core.operators.base import OperatorClass
from holdfast.core.operators.union import Union
from holdfast.core.recovery.guarantee import Guarantee
from holdfast.core.state.page_manager import PageManager

if TYPE_CHECKING:
    from holdfast.core.haunit.plan import NodePlan
    from holdfast.core.model.ids import NodeId


@dataclass(frozen=True, slots=True)
class RaisedGuarantee:
    """A unit that is given more than was asked for.

    Attributes:
        unit: Its name.
        asked: The guarantee of its protection.
        given: What recovery keeps.
    """

    unit: str
    asked: Guarantee
    given: Guarantee

    def __str__(self) -> str:
        """In words, with the reason."""
        return (
            f"unit {self.unit!r} is recovered with guarantee {self.given.value!r}, though "
            f"{self.asked.value!r} was asked for: it depends on its input alone, so that its "
            "secondary makes the same tuples with the same ids, and receivers drop what comes twice"
        )


@dataclass(frozen=True, slots=True)
class UnitClass:
    """The class of a unit: that of its most general operator. [HA §3.2]

    Attributes:
        operator_class: The class.
        operator: The first operator of this class; empty if the unit has no operator.
    """

    operator_class: OperatorClass
    operator: str


def unit_class(plan: NodePlan) -> UnitClass:
    """What recovery of the unit of this node has to cope with."""
    worst = UnitClass(OperatorClass.REPEATABLE, "")
    for spec in plan.operators:
        operator = spec.build(PageManager(plan.limits.page_bytes))
        found = operator.operator_class
        if isinstance(operator, Union) and not plan.merges_by_arrival:
            found = min(found, OperatorClass.DETERMINISTIC)  # One stream arrives in one order.
        if not worst.operator or found > worst.operator_class:
            worst = UnitClass(found, spec.name)
    return worst


def with_losses(nodes: tuple[NodePlan, ...]) -> tuple[NodePlan, ...]:
    """What the guarantees of the units before a node mean for its input."""
    plans = {plan.node: plan for plan in nodes}
    producers = {
        plan.node: {spec.producer for spec in plan.inputs if spec.producer is not None}
        for plan in nodes
    }
    before: dict[NodeId, set[Guarantee]] = {}  # those of the units before a node
    for node in TopologicalSorter(producers).static_order():
        direct = {plans[producer].guarantee for producer in producers[node]}
        before[node] = direct.union(*(before[producer] for producer in producers[node]))
    return tuple(
        replace(plan, loses_input=before[plan.node] - {Guarantee.PRECISE} == {Guarantee.GAP})
        for plan in nodes
    )
