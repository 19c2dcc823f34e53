"""The nodes that a location was left by, as far as a changed dataflow has to know them.

Nothing of the program that has run there is needed: a unit that stays has the streams that it had,
and what its operators hold is read by what the location says of it (inspection.py).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from holdfast.core.haunit.plan import NodePlan, OperatorSpec
from holdfast.driver.inspection import built
from holdfast.planning.nodes import node_id

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.core.operators.base import Operator
    from holdfast.core.state.page_manager import PageManager
    from holdfast.planning.plan import Plan


@dataclass(frozen=True, slots=True)
class _Held:
    """An operator over the pages of its checkpoint, by what is said of it as data."""

    described: dict[str, Any]

    def __call__(self, pages: PageManager) -> Operator:
        """Make it."""
        return built(self.described, pages)


def former_plan(
    wanted: Plan, counts: Mapping[str, int], operators: Mapping[str, list[dict[str, Any]]]
) -> Plan:
    """What a location was left by.

    Args:
        wanted: The changed dataflow.
        counts: How many instances each unit had.
        operators: Per unit its operators with state, as `operators.json` has them.
    """
    stays = {node.node: node for node in wanted.nodes}
    nodes: list[NodePlan] = []
    for unit, count in counts.items():
        specs = tuple(OperatorSpec(d["name"], _Held(d), ()) for d in operators.get(unit, ()))
        for index in range(count):
            name = node_id(unit, index)
            gone = NodePlan(name, unit, index, (), 0, (), ())
            nodes.append(replace(stays.get(name, gone), operators=specs))
    return replace(wanted, nodes=tuple(nodes))
