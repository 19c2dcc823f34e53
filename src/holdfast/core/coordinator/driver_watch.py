"""A driver in standby: watches the lease of the one that leads, and says when to take over.

Theory of operation. The lease is the journal itself. The driver that leads writes to it all the
time: what it decides; when there is nothing to decide, a store gets `LeaseRenewed`, a file another
time of its last change, so that it does not grow for ever. A driver in standby looks
at the newest volume at regular times. It compares what it sees with what it saw before, by its own
clock alone, so that clocks of machines need not agree. It

- leads at once if nobody has begun, or if whoever has begun ended before the watch did begin;
- leads when the volume has stood still for the lease;
- leads at once when it gets the location's lock from the very driver whose volume is the newest:
  the kernel gives it away when that process dies. The lock's note says which epoch held it. A lock
  of another driver in standby says nothing about the one that leads;
- leads at once when the one that led says that it has left the query, or has failed;
- ends when that one says that the query is finished, or was stopped for good.

In a folder nobody leads without the lock, which keeps two drivers of one machine apart.

A watch can be wrong: a driver that stands still for longer than its lease is taken for dead. Then
two are at work for a while. Of two that begin one gets the epoch, and nothing counts that the other
one writes afterwards (wire/journal_volumes.py). So a wrong decision costs a pause, and no result.
A watch that stood still itself has seen nothing for a while; it looks once more before it decides.

Invariants: a decision comes once, unless another driver was faster; nobody leads without the lock.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from holdfast.core.coordinator.journal_entries import Ending
from holdfast.core.errors import InvariantViolation
from holdfast.core.machine import Effect, Stimulus
from holdfast.core.model.silence import SilenceWatch

LOOKS_PER_LEASE: Final = 10
"""A driver in standby looks so often within a lease; the one that leads renews it half as often."""
_LOOK_MS_MAX: Final = 1_000
_LEADER: Final = "leader"
_IS_OVER: Final = (Ending.FINISHED, Ending.STOPPED)


@dataclass(frozen=True, slots=True)
class JournalSeen(Stimulus):
    """How the journal looks now.

    Attributes:
        volume: The number of the newest volume; 0: there is none.
        length: How much it holds, in bytes or objects; only grows within a volume.
        ending: The last word of the driver that has written it; None: it has said none.
        stamp: Changes when the lease is renewed and nothing is written; by the clock of whoever
            keeps the file, so that it is compared, and nothing is reckoned with it.
    """

    volume: int
    length: int
    ending: Ending | None = None
    stamp: int = 0


@dataclass(frozen=True, slots=True)
class LockGot(Stimulus):
    """The lock of the location is this driver's.

    Attributes:
        epoch: Which driver has held it before, as it noted; 0: it has noted none.
    """

    epoch: int


@dataclass(frozen=True, slots=True)
class LeadLost(Stimulus):
    """Another driver has begun first: this one goes on watching."""


@dataclass(frozen=True, slots=True)
class Lead(Effect):
    """Begin the next epoch.

    Attributes:
        reason: Why, for people.
    """

    reason: str


@dataclass(frozen=True, slots=True)
class EndWatch(Effect):
    """There is nothing left to take over.

    Attributes:
        ending: How the query ended.
    """

    ending: Ending


class DriverWatch:
    """The machine of one driver in standby. All of its state is volatile."""

    def __init__(self, lease_ms: int, *, has_lock: bool) -> None:
        """Nothing has been seen.

        Args:
            lease_ms: So long the journal may stand still.
            has_lock: Whether it leads without asking for a lock: the location has none.
        """
        self._lease_ms = lease_ms
        self._silence = SilenceWatch(late_ms=3 * self.look_interval_ms)
        self._has_lock = has_lock
        self._has_begun = False
        self._is_decided = False
        self._seen = JournalSeen(0, 0)
        self._changed_ms = 0  # when the journal was last seen to change
        self._released = 0  # the epoch of whoever let go of the lock; 0: of nobody
        self._reason = ""  # why to lead as soon as it may; empty: it is to wait

    @property
    def look_interval_ms(self) -> int:
        """How often to look at the journal; a last word is not to wait for long."""
        return max(1, min(_LOOK_MS_MAX, self._lease_ms // LOOKS_PER_LEASE))

    def step(self, stimulus: Stimulus, now_ms: int) -> list[Effect]:
        """Take one stimulus."""
        return _HANDLERS[type(stimulus)](self, stimulus, now_ms)

    def _on_journal_seen(self, seen: JournalSeen, now_ms: int) -> list[Effect]:
        """Whether it has changed, and whether that says something."""
        if self._is_decided:
            return []
        is_first, before = not self._has_begun, self._seen
        self._has_begun, self._seen = True, seen
        if is_first or seen != before:
            self._changed_ms, self._reason = now_ms, ""
        self._silence.check(now_ms, [self._changed_ms], self._lease_ms)
        if not seen.volume:
            self._reason = "no driver has begun"
        elif is_first and seen.ending is not None:
            self._reason = f"the last driver ended before: it has {seen.ending.value}"
        elif seen.ending in _IS_OVER and not self._reason:
            self._is_decided = True
            return [EndWatch(seen.ending)]
        elif seen.ending is not None and not self._reason:
            self._reason = f"the driver of epoch {seen.volume} has {seen.ending.value}"
        elif self._released == seen.volume:
            self._reason = f"the process of the driver of epoch {seen.volume} has died"
        elif self._silence.is_lost(_LEADER, self._changed_ms, self._lease_ms, now_ms):
            silent_ms = now_ms - self._changed_ms
            self._reason = f"the driver of epoch {seen.volume} has said nothing for {silent_ms} ms"
        return self._lead()

    def _on_lock_got(self, got: LockGot, _: int) -> list[Effect]:
        """Whoever held it has ended. Why, the next look at the journal tells.

        1. The journal is looked at. 2. The driver that leads is stopped, says so, and lets go of
        the lock. 3. By what was seen it would have died without a word.
        """
        self._has_lock = True
        self._released = got.epoch
        return []

    def _on_lead_lost(self, _: LeadLost, __: int) -> list[Effect]:
        """What was seen is outdated."""
        self._is_decided = self._has_begun = False
        self._reason = ""
        return []

    def _lead(self) -> list[Effect]:
        if not (self._has_lock and self._reason) or self._is_decided:
            return []
        self._is_decided = True
        return [Lead(self._reason)]

    def check_invariants(self) -> None:
        """Raise `InvariantViolation` when it would lead before it has looked."""
        if self._reason and not self._has_begun:
            raise InvariantViolation(f"{self._reason}, and nothing was seen")


_HANDLERS: Final[dict[type[Stimulus], Callable[[DriverWatch, Any, int], list[Effect]]]] = {
    JournalSeen: DriverWatch._on_journal_seen,
    LockGot: DriverWatch._on_lock_got,
    LeadLost: DriverWatch._on_lead_lost,
}
