"""Which units can have eventual checkpoints: those whose state is windows that close. [CEC]"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.api.operators import is_arbitrary
from holdfast.api.steps import Stateful, WindowAggregate, WindowJoin
from holdfast.api.windows import AnyWindow, CountWindow
from holdfast.errors import DataflowError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.api.steps import Step
    from holdfast.core.haunit.plan import FootprintPlan

_INSTEAD = "give it protection=Checkpointed()"


def footprints_of(
    unit: str, members: Sequence[Step], wanted: FootprintPlan | None
) -> FootprintPlan | None:
    """How the windows of a unit are checkpointed; None: it has no state, or is not asked to.

    Raises:
        DataflowError: Its state is not made of windows that can be written one by one.
    """
    if wanted is None or not any(isinstance(step.operation, Stateful) for step in members):
        return None
    reason = why_no_footprints(members)
    if reason is not None:
        raise DataflowError(f"unit {unit!r} has EventualCheckpoints, and {reason}")
    return wanted


def why_no_footprints(members: Sequence[Step]) -> str | None:
    """Why a unit with these steps cannot have eventual checkpoints, with a cure; None: it can."""
    stateful = [step for step in members if isinstance(step.operation, Stateful)]
    for step in members:
        if is_arbitrary(step.operation):
            return (
                f"{step.name} in it depends on more than its input, so that what it replays could "
                f"differ: {_INSTEAD}, or UpstreamBackup()"
            )
    if len(stateful) > 1:
        return (
            f"{stateful[-1].name} keeps state beside that of {stateful[0].name}: closed windows "
            f"are not replayed into it; give it another unit(...), or {_INSTEAD}"
        )
    for step in stateful:
        if isinstance(step.operation, WindowJoin):
            continue
        if not isinstance(step.operation, WindowAggregate):
            return f"the state of {step.name} is not made of windows that close: {_INSTEAD}"
        reason = _why_no_windows(step.operation.windows, step.operation.emit)
        if reason is not None:
            return f"the windows of {step.name} {reason}: {_INSTEAD}"
    return None


def _why_no_windows(windows: AnyWindow, emit: str) -> str | None:
    """Why such windows leave no footprints; None: they do."""
    if emit != "final":
        return f"put out every change (emit={emit!r}), and close without a result"
    if isinstance(windows, CountWindow):
        return None if windows.alignment == "key" else "are told by the stream's ids, not by a key"
    return None
