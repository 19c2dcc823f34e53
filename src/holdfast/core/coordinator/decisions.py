"""What the coordinator has decided, on its way into the journal; what follows waits for that.

A *recovery decision* is one entry: nodes that begin new lives together begin them all once it is
durable, or none does. Nothing that an entry allows happens before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from holdfast.core.coordinator.checkpoint_registry import CheckpointRegistry
from holdfast.core.coordinator.events import JournalWritten, WriteJournal
from holdfast.core.coordinator.journal_entries import JournalEntry, NewLife, RecoveryDecision
from holdfast.core.machine import Effect

Then = Callable[[int], list[Effect]]
"""What follows once an entry is durable; gets the time."""


@dataclass(frozen=True, slots=True)
class Begun:
    """A part of a decision: a node's new life, and what follows once it is durable."""

    life: NewLife
    then: Then


@dataclass(frozen=True, slots=True)
class _Asked:
    """An entry on its way into the journal, and what follows."""

    entry: JournalEntry
    then: Then


class Decisions:
    """Asks for entries and takes them once they are durable. Durable: the registry alone."""

    def __init__(self, journal: Iterable[JournalEntry]) -> None:
        """Begin with what earlier lives of the coordinator have left."""
        self.registry = CheckpointRegistry.of(journal)
        self._asked: dict[int, _Asked] = {}
        self._next_request = 1

    def decide(self, *begun: Begun) -> WriteJournal:
        """These nodes begin new lives, all of them or none."""
        decision = RecoveryDecision(tuple(each.life for each in begun))
        return self.note(decision, lambda ms: [e for each in begun for e in each.then(ms)])

    def note(self, entry: JournalEntry, then: Then) -> WriteJournal:
        """Make an entry durable."""
        request_id = self._next_request
        self._next_request += 1
        self._asked[request_id] = _Asked(entry, then)
        return WriteJournal(request_id, (entry,))

    def written(self, written: JournalWritten, now_ms: int) -> list[Effect]:
        """An entry is durable; one that nobody has asked for changes nothing."""
        asked = self._asked.pop(written.request_id, None)
        if asked is None:
            return []
        self.registry.take(asked.entry)
        return asked.then(now_ms)

    def check_invariants(self) -> None:
        """Raise `InvariantViolation` when what is durable makes no sense."""
        self.registry.check_invariants()
