"""What cannot be placed, because some rows would have no place, or could not be corrected."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.api import steps
from holdfast.api.operators import is_arbitrary
from holdfast.api.steps import Merging, Passing, Source, held_back
from holdfast.api.windows import CountWindow, SessionWindow, Window
from holdfast.errors import DataflowError

if TYPE_CHECKING:
    from collections.abc import Container

    from holdfast.api.steps import Step


def refuse_held_back(members: list[Step]) -> None:
    """Raise `DataflowError`: rows held back have no place among others of the same pass."""
    for step in members:
        if not isinstance(step.operation, Merging):
            continue
        for source in step.inputs:
            holder = held_back(source) if source.unit == step.unit else None
            if holder is not None:
                raise DataflowError(
                    f"{step.name} would merge rows in unit {step.unit!r} that {holder.name} holds "
                    f"back there; give {step.name} another unit(...)"
                )


def require_own_stream(step: Step, origins: tuple[tuple[str, int], ...], streams: int) -> None:
    """Raise `DataflowError` unless windows aligned to a stream's ids see all of it alone."""
    windows = getattr(step.operation, "windows", None)
    if not isinstance(windows, CountWindow) or windows.alignment != "stream":
        return
    if streams != 1 or origins != (("port", 0),):
        raise DataflowError(
            f"{step.name} counts the tuples of one stream, but unit {step.unit!r} reads {streams} "
            "and may filter what it reads; leave it in a unit of its own that reads one instance "
            "of another, or use counting(..., alignment='key')"
        )


def require_places(step: Step, streams: int) -> None:
    """Results of closed windows find their place among other rows by tuple time, in which those of
    several input streams come, but those of a single one need not.

    Raises:
        DataflowError: They would have no place.
    """
    if streams > 1 or not isinstance(step.operation, Merging):
        return
    are_closed = {_is_of_closed_windows(source, step.unit) for source in step.inputs}
    if len(are_closed) > 1:
        raise DataflowError(
            f"{step.name} would merge results of closed windows in unit {step.unit!r} with other "
            f"rows of the one stream that it reads, among which they have no place; give "
            f"{step.name} another unit(...)"
        )


def _is_of_closed_windows(step: Step, unit: str) -> bool:
    """Whether a step of this unit puts out its rows when windows of event time close."""
    if step.unit != unit:
        return False
    operation = step.operation
    if isinstance(operation, steps.WindowAggregate) and operation.emit == "final":
        windows = operation.windows
        is_timed = isinstance(windows, Window) and windows.time == "event"
        if is_timed or (isinstance(windows, SessionWindow) and windows.timeout_us is None):
            return True  # Others go by the order of their rows, or write down their passes.
    if isinstance(operation, steps.WindowJoin | steps.IntervalJoin):
        return True
    if isinstance(operation, steps.Process) and operation.time == "event":
        return True
    return any(_is_of_closed_windows(source, unit) for source in step.inputs)


def require_none_beside(unit: str, members: list[Step], seen: Container[Step]) -> None:
    """Where input streams are taken as they come, there must be nothing whose result would be
    another one in a unit of its own: nothing that merges in order of time, and nothing that
    anyone sees but by way of what is arbitrary.

    Args:
        unit: Its name.
        members: Its steps, inputs first; one is arbitrary.
        seen: Steps that sinks or other units read.

    Raises:
        DataflowError: There is something.
    """
    arbitrary: list[Step] = []  # and what only they give to
    for step in members:
        is_behind = len(step.inputs) == 1 and step.inputs[0] in arbitrary
        if is_behind or is_arbitrary(step.operation):
            arbitrary.append(step)
        elif step in seen or not isinstance(step.operation, Source | Passing):
            found = next(s for s in members if is_arbitrary(s.operation))
            raise DataflowError(
                f"unit {unit!r} would take its input streams as they come, for {found.name}, "
                f"and {step.name} there would depend on that; give {found.name} another "
                "unit(...), or none"
            )


def require_corrected(unit: str, members: list[Step]) -> None:
    """Refuse a Replicated unit that, with its input corrected, would not put out what is right.

    Raises:
        DataflowError: What it puts out depends on more than its input.
    """
    for step in members:
        if is_arbitrary(step.operation):
            raise DataflowError(
                f"unit {unit!r} is Replicated, and {step.name!r} in it is arbitrary: what it "
                "puts out could not be corrected, as it would come out otherwise; give it "
                "UpstreamBackup() or Checkpointed(), in a unit of its own"
            )
