"""The observer that all checkers are."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.core.haunit.plan import Assignment
    from holdfast.core.machine import Effect, Stimulus
    from holdfast.sim.process import Process
    from holdfast.sim.world import RunResult, World


class Violation(Exception):
    """An invariant does not hold.

    Attributes:
        invariant: Its name.
    """

    def __init__(self, invariant: str, text: str) -> None:
        """Name the invariant and what was seen."""
        super().__init__(f"{invariant}: {text}")
        self.invariant = invariant


class Checker:
    """Watches a run; every method may raise `Violation`. Does nothing by itself."""

    def begin(self, world: World) -> None:
        """The run begins."""

    def assigned(self, process: Process, assignment: Assignment) -> None:
        """A process begins an incarnation."""

    def journalled(self, entries: tuple[dict[str, object], ...]) -> None:
        """Entries of the journal are durable."""

    def recovered(self, entries: tuple[dict[str, object], ...]) -> None:
        """A new life of the driver found these entries, in order, and made them durable."""

    def stepping(self, process: Process, stimulus: Stimulus) -> None:
        """A node is about to handle a stimulus."""

    def stepped(self, process: Process, stimulus: Stimulus, effects: list[Effect]) -> None:
        """A node has handled a stimulus."""

    def performing(self, process: Process, effect: Effect) -> None:
        """A process is about to perform an effect."""

    def end(self, result: RunResult) -> None:
        """The query has finished."""
