"""The observer that all checkers are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from holdfast.core.coordinator.journal_entries import JournalEntry, PointNoted, RecoveryDecision
from holdfast.core.model.ids import NodeId
from holdfast.core.recovery.restart_point import RestartPoint

if TYPE_CHECKING:
    from holdfast.core.haunit.plan import Assignment
    from holdfast.core.machine import Effect, Stimulus
    from holdfast.sim.process import Process
    from holdfast.sim.world import RunResult, World


Entries = tuple[JournalEntry, ...]
"""Entries of the coordinator's journal."""


class Violation(Exception):
    """An invariant does not hold.

    Attributes:
        invariant: Its name.
    """

    def __init__(self, invariant: str, text: str) -> None:
        """Name the invariant and what was seen."""
        super().__init__(f"{invariant}: {text}")
        self.invariant = invariant


def points_in(entries: Entries) -> Iterator[tuple[NodeId, RestartPoint]]:
    """The restart points among entries of the journal, with their nodes."""
    for entry in entries:
        if isinstance(entry, PointNoted):
            yield entry.node, entry.point


def incarnations_in(entries: Entries) -> Iterator[tuple[NodeId, int]]:
    """The incarnations given out by entries of the journal, with their nodes."""
    for entry in entries:
        if isinstance(entry, RecoveryDecision):
            for life in entry.lives:
                yield life.node, life.incarnation


class Checker:
    """Watches a run; every method may raise `Violation`. Does nothing by itself."""

    def begin(self, world: World) -> None:
        """The run begins."""

    def assigned(self, process: Process, assignment: Assignment) -> None:
        """A process begins an incarnation."""

    def promoted(self, process: Process, incarnation: int) -> None:
        """A secondary is told to take over as an incarnation."""

    def restored(self, process: Process, point: RestartPoint) -> None:
        """A process has loaded a point's checkpoint, or begins anew as none could be read."""

    def journalled(self, entries: Entries) -> None:
        """Entries of the journal are durable."""

    def recovered(self, entries: Entries) -> None:
        """A new life of the driver found these entries, in order, and made them durable."""

    def stepping(self, process: Process, stimulus: Stimulus) -> None:
        """A node is about to handle a stimulus."""

    def stepped(self, process: Process, stimulus: Stimulus, effects: list[Effect]) -> None:
        """A node has handled a stimulus."""

    def followed(self, process: Process, stimulus: Stimulus, effects: list[Effect]) -> None:
        """A passive secondary has handled a stimulus."""

    def performing(self, process: Process, effect: Effect) -> None:
        """A process is about to perform an effect."""

    def end(self, result: RunResult) -> None:
        """The query has finished."""
