"""What recovery of a unit has to cope with, and what it keeps."""

from __future__ import annotations

from dataclasses import dataclass, replace
from graphlib import TopologicalSorter
from typing import TYPE_CHECKING, Final

from holdfast.core.haunit.plan import Standby
from holdfast.core.operators.base import OperatorClass
from holdfast.core.operators.union import Union
from holdfast.core.recovery.guarantee import Guarantee
from holdfast.core.state.page_manager import PageManager

if TYPE_CHECKING:
    from collections.abc import Iterable

    from holdfast.core.haunit.plan import NodePlan
    from holdfast.core.model.ids import NodeId


@dataclass(frozen=True, slots=True)
class RaisedGuarantee:
    """A unit that is given more than was asked for.

    Attributes:
        unit: Its name.
        asked: The guarantee of its protection.
        given: What recovery keeps.
        by: Who makes the same tuples again.
    """

    unit: str
    asked: Guarantee
    given: Guarantee
    by: str

    def __str__(self) -> str:
        """In words, with the reason."""
        return (
            f"unit {self.unit!r} is recovered with guarantee {self.given.value!r}, though "
            f"{self.asked.value!r} was asked for: it depends on its input alone, so that its "
            f"{self.by} makes the same tuples with the same ids, and receivers drop what comes "
            "twice"
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


_ROLLBACK_OF_REPLAY: Final = {
    OperatorClass.REPEATABLE: "repeating",
    OperatorClass.CONVERGENT_CAPABLE: "convergent",
    OperatorClass.DETERMINISTIC: "divergent",
    OperatorClass.ARBITRARY: "divergent",
}
_ROLLBACK_OF_STANDBYS: Final = {
    OperatorClass.REPEATABLE: "repeating",
    OperatorClass.CONVERGENT_CAPABLE: "repeating",
    OperatorClass.DETERMINISTIC: "repeating",
    OperatorClass.ARBITRARY: "divergent",
}


@dataclass(frozen=True, slots=True)
class UnitRecovery:
    """How a unit recovers, and why.

    Attributes:
        unit: Its name.
        unit_class: Its class, and the operator that decides it.
        recovery_type: precise, repeating, convergent, divergent or gap. [HA §3.1, Table 2]
    """

    unit: str
    unit_class: UnitClass
    recovery_type: str

    def __str__(self) -> str:
        """In words."""
        said = self.unit_class.operator_class.name.lower().replace("_", "-")
        by = f" by {self.unit_class.operator}" if self.unit_class.operator else ""
        return f"unit {self.unit!r}: {said}{by}; recovery {self.recovery_type}"


def recoveries_of(nodes: Iterable[NodePlan]) -> list[UnitRecovery]:
    """That of each unit, in the order of its first node. Instances of a unit are alike."""
    found: dict[str, UnitRecovery] = {}
    for node in nodes:
        if node.unit not in found:
            unit = unit_class(node)
            found[node.unit] = UnitRecovery(node.unit, unit, recovery_type(node, unit))
    return list(found.values())


def recovery_type(plan: NodePlan, unit: UnitClass) -> str:
    """What output before and after a failure of a node is together. [HA §3.1, Table 2]

    Args:
        plan: The node's.
        unit: The class of its unit.
    """
    if plan.guarantee is not Guarantee.ROLLBACK:
        return str(plan.guarantee.value)
    if plan.region:
        return "divergent"  # What it reads may come otherwise, too.
    has_copy = plan.standby is not Standby.NONE
    table = _ROLLBACK_OF_STANDBYS if has_copy else _ROLLBACK_OF_REPLAY
    return table[unit.operator_class]


def with_losses(nodes: tuple[NodePlan, ...]) -> tuple[NodePlan, ...]:
    """What the guarantees of the units before a node mean for its input."""
    plans = {plan.node: plan for plan in nodes}
    producers = {
        plan.node: {
            spec.producer
            for spec in plan.inputs
            if spec.producer is not None and not spec.is_feedback
        }
        for plan in nodes
    }
    before: dict[NodeId, set[Guarantee]] = {}  # those of units before a node that rebase
    for node in TopologicalSorter(producers).static_order():
        direct = {plans[p].guarantee for p in producers[node] if plans[p].rebases}
        before[node] = direct.union(*(before[producer] for producer in producers[node]))
    return tuple(
        replace(
            plan,
            loses_input=before[plan.node] == {Guarantee.GAP},
            may_be_rebased=plan.rebases or bool(before[plan.node]),
        )
        for plan in nodes
    )
