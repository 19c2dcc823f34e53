"""Elastic restart of units that recover together: from a line at which nothing is in flight.

A region that works off its input comes to rest: its line then stands where all members are. What
each has sent is what its receivers have processed, and all results have left the gates. So no
channel has anything to divide, no checkpoint has output, and sinks lack nothing. Sinks are looked
at again when all is stopped and synced: the end of a log may have gone with its machine. If a unit
of a region changes, all members begin anew: streams between them at id 0, rules without clocks, in
the next round. What a sender has promised stays promised, or receivers would have acted on
boundaries that nobody gave. The journal says that the new points are the line.

In a loop nothing goes round at rest but marks, which say nothing of tuples: laps are counted anew.

A member that merges by time may hold tuples at rest. Its senders have them in their checkpoints,
under ids that nobody would know any more: then there is no cut.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from holdfast.core.coordinator.journal_entries import JournalEntry, LineMoved, PointNoted
from holdfast.core.model.ids import BEGINNING_US

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from holdfast.core.coordinator.checkpoint_registry import CheckpointRegistry
    from holdfast.core.haunit.plan import NodePlan
    from holdfast.core.model.ids import NodeId
    from holdfast.core.recovery.restart_point import RestartPoint

PROCESSED_ALL: Final = 2**62
"""Of a stream that begins anew: whatever of it is older than the boundary was processed."""


def points_to_divide(
    registry: CheckpointRegistry, plans: Iterable[NodePlan]
) -> dict[NodeId, RestartPoint | None]:
    """From where each node would go on: a member of a region from the line, not its newest point.

    None: from the very beginning.
    """
    found: dict[NodeId, RestartPoint | None] = {}
    for plan in plans:
        found[plan.node] = registry.newest(plan.node)
        if plan.region:
            is_on_line = registry.line(plan.node) is not None
            found[plan.node] = registry.points(plan.node)[0].point if is_on_line else None
    return found


def as_left(
    plans: Iterable[NodePlan],
    points: Mapping[NodeId, RestartPoint],
    now: Mapping[NodeId, RestartPoint | None],
) -> dict[NodeId, RestartPoint] | str:
    """The points of a cut as the journal has them after all is stopped; or why they are none.

    1. All nodes are at a cut. 2. A round goes on, and the line comes to its points, of the same
    cut. 3. The files of those before are deleted. 4. The nodes are stopped.

    Args:
        plans: Of the nodes.
        points: Where each was when there was a cut.
        now: `points_to_divide` of the journal that has been left.
    """
    found = dict(points)
    for plan in plans:
        left = now[plan.node]
        if not plan.region or left is None:
            continue
        left = as_processed(left, points[plan.node].processed_before)
        if _positions(left) != _positions(points[plan.node]):
            return f"{plan.node} went on while it was stopped"
        found[plan.node] = replace(left, older=())
    return found


def as_processed(point: RestartPoint, processed: Mapping[str, int]) -> RestartPoint:
    """A point with these ids of streams of which it says `PROCESSED_ALL`.

    1. A stream began anew, and a member of a region counts it as processed for as long as it lives.
    2. The location is divided again. 3. No position of that member would be the one of its point.
    """
    said = point.processed_before
    known = {s: processed.get(s, i) if i == PROCESSED_ALL else i for s, i in said.items()}
    return replace(point, processed_before=known)


def _positions(point: RestartPoint) -> tuple[dict[str, int], dict[str, int], int]:
    processed, next_ids = point.processed_before.items(), point.next_ids.items()
    return {s: i for s, i in processed if i}, {s: i for s, i in next_ids if i}, point.boundary_us


def with_whole_regions(plans: Iterable[NodePlan], changed: Collection[NodeId]) -> set[NodeId]:
    """Nodes that change, with all others of their regions."""
    plans = tuple(plans)
    regions = {plan.region for plan in plans if plan.region and plan.node in changed}
    return {plan.node for plan in plans if plan.node in changed or plan.region in regions}


def why_regions_stay(former: Iterable[NodePlan], wanted: Iterable[NodePlan]) -> str | None:
    """Why regions cannot be divided; None: they can."""
    were = {plan.unit for plan in former if plan.region}
    are = {plan.unit for plan in wanted if plan.region}
    if were != are:
        names = ", ".join(sorted(were ^ are))
        return f"units {names} would recover together with others, or no more"
    return None


def as_lines(plans: Iterable[NodePlan], told: Iterable[JournalEntry]) -> list[JournalEntry]:
    """What has the points of regions, among these entries, be the line."""
    members = {plan.node for plan in plans if plan.region}
    noted = [entry for entry in told if isinstance(entry, PointNoted) and entry.node in members]
    return [LineMoved({entry.node: entry.point_id for entry in noted})] if noted else []


def begun_anew(
    plan: NodePlan,
    point: RestartPoint,
    former: Iterable[NodePlan],
    wanted: Iterable[NodePlan],
    points: Mapping[NodeId, RestartPoint],
) -> RestartPoint:
    """The point of a new member, with what only regions need.

    Args:
        plan: The member's.
        point: Where it goes on.
        former: All nodes so far.
        wanted: All nodes from now on.
        points: Where the former nodes were.
    """
    former = tuple(former)
    of_unit = [one for one in former if one.unit == plan.unit]
    units = {one.node: one.unit for one in (*former, *wanted)}
    promised_to: dict[str, int] = {}
    for one in of_unit:
        promised = points[one.node].promised
        for stream, receiver in _streams(one):
            said_us = promised.get(stream, BEGINNING_US)
            so_far_us = promised_to.get(units[receiver], said_us)
            promised_to[units[receiver]] = min(so_far_us, said_us)
    return replace(
        point,
        held_from=dict(point.next_ids),
        promised={
            stream: promised_to.get(units[receiver], BEGINNING_US)
            for stream, receiver in _streams(plan)
        },
        clock_us=max((points[one.node].clock_us for one in of_unit), default=0),
    )


def _streams(plan: NodePlan) -> list[tuple[str, NodeId]]:
    """The streams of a node to others, with their receivers."""
    return [
        (stream, receiver)
        for output in plan.outputs
        for stream, receiver in zip(output.streams, output.receivers, strict=False)
    ]
