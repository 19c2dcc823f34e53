"""The one contract: a machine takes a stimulus and gives back effects.

A machine holds no clock, thread, socket or file. Time is an argument; waiting is a `SetTimer`
effect answered by a `TimerFired` stimulus; a write is an effect whose completion comes back as a
stimulus. The shell around a machine performs effects in the order given and decides nothing, so
that the machines run unchanged in Spark tasks and under a virtual clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class Stimulus:
    """What happened. Subclasses are frozen dataclasses named as past-tense facts."""

    __slots__ = ()


class Effect:
    """What the shell must do. Subclasses are frozen dataclasses named as imperatives."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class TimerFired(Stimulus):
    """A timer set earlier has run out.

    Attributes:
        name: The name given to `SetTimer`.
    """

    name: str


@dataclass(frozen=True, slots=True)
class SetTimer(Effect):
    """Ask for a `TimerFired` with this name; setting it again replaces the earlier one.

    Attributes:
        name: Identifies the timer within its machine.
        at_ms: Due time on the clock that `step` is given, in milliseconds.
    """

    name: str
    at_ms: int


class Machine(Protocol):
    """What every core machine offers its shell."""

    def step(self, stimulus: Stimulus, now_ms: int) -> list[Effect]:
        """Take one stimulus; the only way to change a machine. `now_ms` is monotonic."""
        ...

    def check_invariants(self) -> None:
        """Raise `InvariantViolation` when the machine's own state makes no sense."""
        ...

    def statistics(self) -> object:
        """A frozen summary for people and tests."""
        ...
