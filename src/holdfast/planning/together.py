"""How units would recover together, if all of a dataflow took checkpoints with others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.core.checkpoint.scope import components, reached
from holdfast.core.recovery.cost_model import Together

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from holdfast.core.haunit.plan import NodePlan


def recovering_together(nodes: Sequence[NodePlan]) -> Mapping[str, Together]:
    """Per unit of a region how it recovers; units that recover alone are left out.

    Args:
        nodes: As they are planned with one of the protections of units that recover together.
    """
    members = [node for node in nodes if node.region]
    edges = tuple(
        (spec.producer, node.node)
        for node in members
        for spec in node.inputs
        if spec.is_from_region and spec.producer is not None
    )
    circles = components(edges)
    unit_of = {node.node: node.unit for node in members}
    width = {unit: list(unit_of.values()).count(unit) for unit in unit_of.values()}
    back = tuple((unit_of[receiver], unit_of[sender]) for sender, receiver in edges)
    found = {}
    for node in members:
        passed = {node.unit, *reached(node.unit, back)}
        found[node.unit] = Together(
            members=sum(other.region == node.region for other in members),
            depth=len(passed),
            width=max(width[unit] for unit in passed),
            circle=len(circles.get(node.node, (node.node,))),
        )
    return found
