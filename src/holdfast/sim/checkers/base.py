"""The observer that all checkers are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar

from holdfast.core.coordinator.journal_entries import (
    JournalEntry,
    LineMoved,
    PointNoted,
    RecoveryDecision,
)
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


class DurablePoints:
    """What entries of the journal come to: from where each node may be told to start.

    Nodes that recover alone start from their newest point, or one that it names; those that recover
    with others from any since the line.
    """

    def __init__(self) -> None:
        """No node has any."""
        self._since: dict[NodeId, list[PointNoted]] = {}  # the line, oldest first
        self._went_back: dict[NodeId, int] = {}  # the incarnation that did
        self._has_line: dict[NodeId, None] = {}

    def take(self, entries: Entries) -> Iterator[tuple[NodeId, RestartPoint]]:
        """Nodes for which entries change that, each with its newest point and those behind it."""
        for entry in entries:
            match entry:
                case PointNoted(keeps_older=False):
                    yield entry.node, entry.point
                case PointNoted():
                    known = self._since.setdefault(entry.node, [])
                    if entry.incarnation >= self._went_back.get(entry.node, 0):
                        known[:] = [noted for noted in known if noted != entry] + [entry]
                        yield entry.node, self._newest(entry.node)
                case LineMoved():
                    for node, oldest in entry.line.items():
                        self._has_line[node] = None
                        known = self._since.setdefault(node, [])
                        known[:] = [noted for noted in known if noted.point_id >= oldest]
                        yield node, self._newest(node)
                case RecoveryDecision():
                    for life in entry.lives:
                        if life.goes_back_to is not None:
                            self._went_back[life.node] = life.incarnation
                            known = self._since.setdefault(life.node, [])
                            known[:] = [n for n in known if n.point_id <= life.goes_back_to]
                            yield life.node, self._newest(life.node)

    def since_line(self, node: NodeId) -> list[RestartPoint]:
        """All points that recovery may have a node go back to, oldest first."""
        points = [noted.point for noted in self._since.get(node, [])]
        return points if node in self._has_line else [RestartPoint(), *points]

    def _newest(self, node: NodeId) -> RestartPoint:
        *older, newest = self.since_line(node)
        return replace(newest, older=tuple(reversed(older)))


def incarnations_in(entries: Entries) -> Iterator[tuple[NodeId, int]]:
    """The incarnations given out by entries of the journal, with their nodes."""
    for entry in entries:
        if isinstance(entry, RecoveryDecision):
            for life in entry.lives:
                yield life.node, life.incarnation


class Checker:
    """Watches a run; every method may raise `Violation`. Does nothing by itself.

    Attributes:
        looks_at: Per hook that most steps do not concern, the classes of stimuli or effects for
            which it does something; a hook that has no entry is called for all of them.
        idle: Hooks that do nothing in this run, known once it has begun.
    """

    looks_at: ClassVar[Mapping[str, tuple[type, ...]]] = MappingProxyType({})
    idle: tuple[str, ...] = ()

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

    def failed(self, reason: str) -> None:
        """The driver that leads has failed the query, and its user has mended nothing yet."""

    def end(self, result: RunResult) -> None:
        """The query has finished."""


class Asked(dict[type, tuple[Callable[..., None], ...]]):
    """Per class of a stimulus or effect, a hook of the checkers that look at it there.

    Most steps concern few of them, and a run has some thousand steps.
    """

    def __init__(self, checkers: tuple[Checker, ...], hook: str) -> None:
        """Of these checkers this hook, in their order."""
        super().__init__()
        nothing = getattr(Checker, hook)
        self._hook = hook
        self._looking = [one for one in checkers if getattr(type(one), hook) is not nothing]

    def __missing__(self, kind: type) -> tuple[Callable[..., None], ...]:
        """Find them once, when the run has begun."""
        hook = self._hook
        found = tuple(
            getattr(one, hook)
            for one in self._looking
            if hook not in one.idle and issubclass(kind, one.looks_at.get(hook, (object,)))
        )
        self[kind] = found
        return found
