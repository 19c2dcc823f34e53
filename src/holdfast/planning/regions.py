"""Which nodes recover together: those that do not repeat, and are connected. [CheckMate §III-B]

A unit with uncoordinated checkpoints whose replacement puts out the same tuples again
(core/recovery/repeating.py) recovers alone, as under `Checkpointed`. The others make up regions.
What leaves a region waits behind a gate, so that whoever reads it repeats.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from holdfast.core.recovery.guarantee import Guarantee
from holdfast.core.recovery.repeating import Reading, UnitNature, repeating
from holdfast.errors import DataflowError

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.core.haunit.plan import NodePlan, UnitProtection
    from holdfast.core.model.ids import NodeId


def with_regions(
    nodes: tuple[NodePlan, ...], protection: Callable[[str], UnitProtection]
) -> tuple[NodePlan, ...]:
    """The plans of nodes, with the regions of those that recover together.

    Args:
        nodes: As they would be planned to recover alone, arbitrary ones logging their passes.
        protection: Of a unit, by its name.

    Raises:
        DataflowError: A region would read what may come under other ids.
    """
    units = dict.fromkeys(plan.unit for plan in nodes)
    together = {unit for unit in units if protection(unit).is_uncoordinated}
    if not together:
        return nodes
    unit_of = {plan.node: plan.unit for plan in nodes}
    reads = {unit: _senders(unit, nodes, unit_of) for unit in units}
    arbitrary = {plan.unit for plan in nodes if plan.keeps_passes}
    precise = {plan.unit for plan in nodes if plan.guarantee is Guarantee.PRECISE}
    natures = {
        unit: UnitNature(
            unit in precise,
            unit not in together & arbitrary,
            tuple(Reading(sender, is_gated=unit not in together) for sender in reads[unit]),
        )
        for unit in units
    }
    members = together - repeating(natures)
    _refuse_rebased(members, reads, precise)
    regions = _connected(members, reads)
    return tuple(_placed(plan, regions, unit_of, protection) for plan in nodes)


def _senders(unit: str, nodes: tuple[NodePlan, ...], unit_of: dict[NodeId, str]) -> tuple[str, ...]:
    own = (plan for plan in nodes if plan.unit == unit)
    return tuple(dict.fromkeys(unit_of[sender] for plan in own for sender in plan.producers()))


def _refuse_rebased(
    members: set[str], reads: dict[str, tuple[str, ...]], precise: set[str]
) -> None:
    for unit in members:
        seen, open_ = {unit}, [unit]
        while open_:
            for sender in reads[open_.pop()]:
                if sender not in precise:
                    raise DataflowError(
                        f"unit {unit!r} is Uncoordinated and takes its input as it comes, and what "
                        f"unit {sender!r} before it puts out may come twice, or be missing, after "
                        f"a failure; give {sender!r} a protection that recovers precisely"
                    )
                if sender not in seen:
                    seen.add(sender)
                    open_.append(sender)


def _connected(members: set[str], reads: dict[str, tuple[str, ...]]) -> dict[str, str]:
    """Per member the name of its region: that of the first unit in it."""
    neighbours: dict[str, set[str]] = {unit: set() for unit in members}
    for unit in members:
        for sender in members.intersection(reads[unit]):
            neighbours[unit].add(sender)
            neighbours[sender].add(unit)
    regions: dict[str, str] = {}
    for first in sorted(members):
        open_ = [first]
        while open_:
            unit = open_.pop()
            if unit not in regions:
                regions[unit] = first
                open_ += neighbours[unit]
    return regions


def _placed(
    plan: NodePlan,
    regions: dict[str, str],
    unit_of: dict[NodeId, str],
    protection: Callable[[str], UnitProtection],
) -> NodePlan:
    region, checkpoints = regions.get(plan.unit), protection(plan.unit).checkpoints
    if region is None or checkpoints is None:
        return plan
    return replace(
        plan,
        region=region,
        keeps_passes=False,
        checkpoints=replace(checkpoints, kept=1, asks_first=False),
        outputs=tuple(
            replace(
                spec,
                is_gated=spec.is_sink
                or any(regions.get(unit_of[receiver]) != region for receiver in spec.receivers),
            )
            for spec in plan.outputs
        ),
    )
