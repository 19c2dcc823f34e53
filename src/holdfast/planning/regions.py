"""Which nodes recover together: those that do not repeat, and are connected. [CheckMate §III]

A unit with coordinated or uncoordinated checkpoints whose replacement puts out the same tuples
again (core/recovery/repeating.py) recovers alone, as under `Checkpointed`. Each *region of units*
is made of others that are connected. What leaves a region waits behind a gate, so that whoever
reads it repeats; results do not wait where they may come again.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from holdfast.core.checkpoint.scope import components
from holdfast.core.haunit.plan import Cuts
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
    cuts = {unit: protection(unit).cuts for unit in units}
    together = {unit for unit in units if cuts[unit] is not None}
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
            tuple(Reading(s, is_gated=cuts[unit] is not cuts[s]) for s in reads[unit]),
        )
        for unit in units
    }
    members = together - repeating(natures)
    _refuse_rebased(members, reads, precise)
    regions = _connected(members, reads, cuts)
    _refuse_settings(regions, reads, protection)
    placed = tuple(_placed(plan, regions, unit_of, protection) for plan in nodes)
    return _with_scopes(_with_empty_channels(placed), protection)


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
                        f"unit {unit!r} takes its input as it comes and logs nothing, and what "
                        f"unit {sender!r} before it puts out may come twice, or be missing, after "
                        f"a failure; give {sender!r} a protection that recovers precisely"
                    )
                if sender not in seen:
                    seen.add(sender)
                    open_.append(sender)


def _refuse_settings(
    regions: dict[str, str],
    reads: dict[str, tuple[str, ...]],
    protection: Callable[[str], UnitProtection],
) -> None:
    """Raise `DataflowError` where members of a region could not agree."""
    for unit, region in regions.items():
        own, first = protection(unit), protection(region)
        if own.is_scope_whole != first.is_scope_whole:
            raise DataflowError(
                f"units {region!r} and {unit!r} recover together; give their "
                "CommunicationInduced protections the same scope"
            )
        if own.all_go_back != first.all_go_back:
            raise DataflowError(
                f"units {region!r} and {unit!r} recover together; give their protections the same "
                "rolls_back"
            )
        if own.lines_kept != first.lines_kept:
            raise DataflowError(
                f"units {region!r} and {unit!r} recover together; give their protections the same "
                "kept"
            )
        if own.cuts is None or not own.cuts.has_rounds:
            continue
        if own.checkpoints != first.checkpoints:
            raise DataflowError(
                f"units {region!r} and {unit!r} recover together, and one round serves both; give "
                "their Coordinated protections the same settings"
            )
        for sender in reads[unit]:
            if regions.get(sender) != region and _reads_from(sender, region, regions, reads):
                raise DataflowError(
                    f"unit {unit!r} reads from units that it recovers together with by way of "
                    f"{sender!r}, which has another protection: {unit!r} waits for a round to "
                    f"end, and the round for {unit!r}; give {sender!r} the same one"
                )


def _reads_from(
    unit: str, region: str, regions: dict[str, str], reads: dict[str, tuple[str, ...]]
) -> bool:
    """Whether a unit reads from one of a region, directly or by way of others."""
    seen, open_ = {unit}, [unit]
    while open_:
        for sender in reads[open_.pop()]:
            if regions.get(sender) == region:
                return True
            if sender not in seen:
                seen.add(sender)
                open_.append(sender)
    return False


def _connected(
    members: set[str], reads: dict[str, tuple[str, ...]], cuts: dict[str, Cuts | None]
) -> dict[str, str]:
    """Per member the name of its region: that of the first unit in it. One region cuts alike."""
    neighbours: dict[str, set[str]] = {unit: set() for unit in members}
    for unit in members:
        for sender in members.intersection(reads[unit]):
            if cuts[sender] is cuts[unit]:
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
    region, protected = regions.get(plan.unit), protection(plan.unit)
    checkpoints = protected.checkpoints
    if region is None or checkpoints is None:
        return plan
    return replace(
        plan,
        region=region,
        cuts=protected.cuts,
        guarantee=protected.guarantee,
        all_go_back=protected.all_go_back,
        inputs=tuple(
            replace(
                spec,
                is_from_region=spec.producer is not None
                and regions.get(unit_of[spec.producer]) == region,
            )
            for spec in plan.inputs
        ),
        keeps_passes=False,
        checkpoints=replace(checkpoints, kept=protected.lines_kept, asks_first=False),
        outputs=tuple(
            replace(
                spec,
                is_gated=any(regions.get(unit_of[r]) != region for r in spec.receivers)
                or (spec.is_sink and protected.guarantee is Guarantee.PRECISE),
            )
            for spec in plan.outputs
        ),
    )


def _with_empty_channels(nodes: tuple[NodePlan, ...]) -> tuple[NodePlan, ...]:
    """The same plans; those that cut in aligned rounds know which channels are empty then.

    A receiver that merges by time may still hold tuples from before the marker, which no checkpoint
    has but their sender's. [CheckMate §III-A]
    """
    waits = {plan.node for plan in nodes if plan.merges_by_time}
    return tuple(
        replace(
            plan,
            outputs=tuple(
                replace(
                    spec,
                    is_empty_at_cuts=not (spec.is_gated or spec.is_sink or spec.is_feedback)
                    and waits.isdisjoint(spec.receivers),
                )
                for spec in plan.outputs
            ),
        )
        if plan.cuts is Cuts.ALIGNED
        else plan
        for plan in nodes
    )


def _with_scopes(
    nodes: tuple[NodePlan, ...], protection: Callable[[str], UnitProtection]
) -> tuple[NodePlan, ...]:
    """The same plans; those that others can force to cut know whom."""
    edges = tuple(
        (spec.producer, plan.node)
        for plan in nodes
        for spec in plan.inputs
        if spec.is_from_region and spec.producer is not None
    )
    on_cycles = components(edges)

    def scope_of(plan: NodePlan) -> tuple[NodeId, ...]:
        if protection(plan.unit).is_scope_whole:
            return tuple(other.node for other in nodes if other.region == plan.region)
        return on_cycles.get(plan.node, (plan.node,))

    return tuple(
        replace(plan, scope=scope_of(plan))
        if plan.cuts is not None and plan.cuts.is_induced
        else plan
        for plan in nodes
    )
