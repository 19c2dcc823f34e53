"""Loops: which units are in one, and what cannot be in one. [CheckMate §VI, "cyclic"]

A loop is what lies between the units that read it, its *entrances*, and the unit that closes it.
Steps know it by their `feedback` alone, so that walks over their inputs end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from holdfast.api import steps
from holdfast.api.operators import is_arbitrary
from holdfast.api.steps import Loop
from holdfast.errors import DataflowError, UnsupportedError
from holdfast.planning.units import read_by

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping

    from holdfast.api.steps import Step
    from holdfast.core.haunit.plan import NodePlan
    from holdfast.core.model.ids import NodeId

_LOOPED: Final = (steps.Filter, steps.Select, steps.Apply, steps.Union, steps.IncrementalJoin)
"""Operators that need no boundary."""


def refuse_unread(flow_steps: Iterable[Step], needed: Container[Step]) -> None:
    """Raise `DataflowError` for a loop on which no sink depends: it was meant to do something."""
    for step in flow_steps:
        if isinstance(step.operation, Loop) and step not in needed:
            raise DataflowError(
                f"no sink depends on loop {step.name}: what comes back does not depend on it, or "
                "nobody reads that"
            )


def loops_of(
    needed: list[Step], units: Mapping[str, list[Step]], sinks: Mapping[str, Step]
) -> dict[str, str]:
    """Per unit of a loop the loop's name.

    Args:
        needed: The steps that some sink depends on.
        units: The steps by unit.
        sinks: The steps that sinks get.

    Raises:
        DataflowError: A loop is not one that can be run.
    """
    found: dict[str, str] = {}
    loops = [step for step in needed if isinstance(step.operation, Loop)]
    if not loops:
        return found
    reads = {
        unit: {s.unit for step in members for s in read_by(step) if s.unit != unit}
        for unit, members in units.items()
    }
    for loop in loops:
        entrances = _entrances(loop, units, sinks)
        (back,) = loop.feedback
        within = _before(back.unit, reads) & _behind(entrances, reads)
        _refuse_shape(loop, back, entrances, within)
        for unit in sorted(within):
            if unit in found:
                raise DataflowError(
                    f"unit {unit!r} is in the loops {found[unit]} and {loop.name}; a loop within a "
                    "loop is not supported: close one before the other begins"
                )
            found[unit] = loop.name
        _refuse_inputs(loop, entrances, within, reads)
        for unit in sorted(within):
            _refuse_operators(loop, unit, units[unit])
    return found


def _entrances(
    loop: Step, units: Mapping[str, list[Step]], sinks: Mapping[str, Step]
) -> frozenset[str]:
    """The units that read a loop."""
    if not loop.feedback:
        raise DataflowError(f"loop {loop.name} is not closed; call close(...) with what comes back")
    if any(isinstance(source.operation, Loop) for source in (*loop.inputs, *loop.feedback)):
        raise DataflowError(f"loop {loop.name} is read from, or brings back, another loop's stream")
    for sink, step in sinks.items():
        if step is loop:
            raise DataflowError(
                f"sink {sink!r} gets loop {loop.name} itself, which no node puts out; sink what "
                "comes back and what goes in, or put select('*') before it"
            )
    found = [u for u, members in units.items() for s in members if loop in s.inputs]
    return frozenset(found)


def _behind(first: frozenset[str], reads: Mapping[str, set[str]]) -> frozenset[str]:
    """These units, and all that read from them."""
    found = set(first)
    while more := {unit for unit, others in reads.items() if others & found} - found:
        found |= more
    return frozenset(found)


def _before(last: str, reads: Mapping[str, set[str]]) -> frozenset[str]:
    """The unit, and all that it reads from."""
    found, open_ = {last}, [last]
    while open_:
        more = reads[open_.pop()] - found
        found |= more
        open_ += more
    return frozenset(found)


def _refuse_shape(
    loop: Step, back: Step, entrances: frozenset[str], within: frozenset[str]
) -> None:
    (into,) = loop.inputs
    if back.unit not in within:
        raise DataflowError(
            f"loop {loop.name}: {back.name} does not depend on what it brings back to"
        )
    if back.unit in entrances:
        raise DataflowError(
            f"loop {loop.name} lies within one unit, {back.unit!r}, which would wait for itself; "
            f"put unit(...) before {back.name}"
        )
    if into.unit in within:
        raise DataflowError(f"loop {loop.name}: {into.name} is in the loop that it goes into")
    if unread := sorted(entrances - within):
        raise DataflowError(
            f"loop {loop.name} is read by unit {unread[0]!r}, from which nothing comes back; read "
            "what comes back instead"
        )


def _refuse_inputs(
    loop: Step,
    entrances: frozenset[str],
    within: frozenset[str],
    reads: Mapping[str, set[str]],
) -> None:
    for unit in sorted(within):
        inside, outside = reads[unit] & within, reads[unit] - within
        if unit in entrances and inside:
            raise DataflowError(
                f"unit {unit!r} reads loop {loop.name} and {min(inside)!r}, which is in the loop, "
                "too; read the loop in one place"
            )
        if unit not in entrances and outside:
            raise DataflowError(
                f"unit {unit!r} is in loop {loop.name}, and reads {min(outside)!r} from outside of "
                "it; put that before the loop, or read it where the loop is read"
            )


def _refuse_operators(loop: Step, unit: str, members: list[Step]) -> None:
    for step in members:
        is_sample = is_arbitrary(step.operation) and not isinstance(step.operation, steps.Union)
        if not isinstance(step.operation, _LOOPED) or is_sample:
            raise UnsupportedError(
                f"{step.name} ({step.operation.WORD}) is in loop {loop.name}, unit {unit!r}, where "
                "tuples come as they come and times are promised late; put it before or behind"
            )


def require_looped_together(nodes: tuple[NodePlan, ...]) -> None:
    """What is in a loop has to recover together, and to hear of all that comes in within a lap.

    Raises:
        DataflowError: It does not.
    """
    looped = [plan for plan in nodes if plan.is_in_loop]
    for plan in looped:
        if not plan.region or any(s.is_looped and not s.is_from_region for s in plan.inputs):
            raise DataflowError(
                f"unit {plan.unit!r} is in a loop, where units recover together; give all units of "
                "the loop the same protection: Uncoordinated(), Coordinated(...) or "
                "CommunicationInduced(...)"
            )
    heard = _heard_of(looped)
    for entrance, others in heard.items():
        if any(heard[other] != others for other in others):
            raise DataflowError(
                f"{entrance} does not hear within one lap of all that comes into its loop; give "
                "its units the same keys, or one instance"
            )


def _heard_of(looped: Iterable[NodePlan]) -> dict[NodeId, frozenset[NodeId]]:
    """Per entrance those whose tuples may come back to it within one lap."""
    plans = {plan.node: plan for plan in looped}

    def bearers(node: NodeId) -> frozenset[NodeId]:
        specs = [spec for spec in plans[node].inputs if spec.is_looped]
        if any(spec.is_feedback for spec in specs):
            return frozenset({node})
        senders = [spec.producer for spec in specs if spec.producer is not None]
        return frozenset().union(*map(bearers, senders))

    found: dict[NodeId, frozenset[NodeId]] = {}
    for node, plan in plans.items():
        backs = [s.producer for s in plan.inputs if s.is_feedback and s.producer is not None]
        if backs:
            found[node] = frozenset().union(*map(bearers, backs))
    return found
