"""Named steps of a node that goes on without missing input, at which faults strike. [DPC §3]

They have names of their own, apart from those of every node, as draws of those are kept as they
are. A step is passed once what made it has been performed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from holdfast.core.haunit.events import AskForTurn, LeaveTurn, TurnGranted
from holdfast.core.replication.consistency_manager import Consistency

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from holdfast.core.machine import Effect, Stimulus

_STATES: Final = {
    Consistency.UP_FAILURE: "went on without input",
    Consistency.STABILIZATION: "went back",
    Consistency.STABLE: "corrected",
}
_EFFECTS: Final[dict[type[Effect], str]] = {AskForTurn: "turn asked for", LeaveTurn: "turn left"}
_GRANTED: Final = "turn granted"
CORRECTION_STEPS: Final = (*_STATES.values(), *_EFFECTS.values(), _GRANTED)


def steps_passed(
    stimulus: Stimulus,
    effects: Sequence[Effect],
    before: Consistency | None,
    after: Consistency | None,
) -> Iterator[str]:
    """The steps that a node has passed.

    Args:
        stimulus: Of its step.
        effects: Of the same.
        before: The state of the node before it; None: it had none.
        after: The same after it.
    """
    if isinstance(stimulus, TurnGranted):
        yield _GRANTED
    yield from (_EFFECTS[type(effect)] for effect in effects if type(effect) in _EFFECTS)
    if before is not None and after is not None and before is not after:
        yield _STATES[after]
