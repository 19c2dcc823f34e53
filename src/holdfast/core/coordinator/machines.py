"""Which machines the replicas of an instance may be on: different ones. [HA §4]

Replicas fail independently only if no machine's failure ends two of them. A task that comes up on
the machine of another replica is not assigned but launched again, three times at most, as long as
another machine has room. If none has, they share the machine until one has: then the secondary
moves there. A strict unit's secondary waits instead.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final

from holdfast.core.coordinator.replica import NodeState, Replica
from holdfast.core.errors import InvariantViolation

if TYPE_CHECKING:
    from holdfast.core.coordinator.events import HostsKnown
    from holdfast.core.coordinator.instance import Instance
    from holdfast.core.machine import Effect

_MOVES_MAX: Final = 3
_MOVE_INTERVAL_MS: Final = 10_000


class Place(enum.Enum):
    """What becomes of a task that has come up somewhere."""

    HERE = "here"  # It may work there.
    ELSEWHERE = "elsewhere"  # It is ended, and launched again at once.
    LATER = "later"  # It is ended, and launched again when another machine has room.


class Machines:
    """Which machines have room, and what follows. Volatile: all fields; Spark says it again."""

    def __init__(self) -> None:
        """Nothing is known."""
        self.with_room: tuple[str, ...] = ()

    def know(self, known: HostsKnown) -> list[Effect]:
        """Spark has said which machines have room; nothing follows at once."""
        self.with_room = known.hosts
        return []

    def check_invariants(self) -> None:
        """Raise `InvariantViolation` when a machine is listed twice, or has no name."""
        if len(set(self.with_room)) < len(self.with_room) or "" in self.with_room:
            raise InvariantViolation(f"these are no machines with room: {self.with_room}")

    def _has_room_beside(self, host: str) -> bool:
        return any(other != host for other in self.with_room)

    def place_for(self, instance: Instance, replica: Replica, host: str) -> Place:
        """Whether a task of a replica that has come up on a machine is to work there.

        Args:
            instance: Whose replica.
            replica: Which.
            host: Where; empty: it does not matter.
        """
        others = [other for other in instance.replicas if other is not replica]
        others += [other.primary for other in instance.beside]
        if not host or all(other.host != host for other in others):
            return Place.HERE
        if replica.moves < _MOVES_MAX and self._has_room_beside(host):
            return Place.ELSEWHERE
        return Place.LATER if instance.plan.is_strict else Place.HERE

    def may_come(self, instance: Instance) -> bool:
        """Whether a secondary that waits may be launched."""
        return not instance.plan.is_strict or self._has_room_beside(instance.primary.host)

    def to_move(self, instance: Instance, now_ms: int) -> Replica | None:
        """A secondary that is to leave a machine that it shares, as another one has room."""
        moved_at_ms = instance.moved_at_ms
        if moved_at_ms is not None and now_ms - moved_at_ms < _MOVE_INTERVAL_MS:
            return None
        for replica in instance.secondaries:
            is_shared = instance.shares_host(replica)
            if is_shared and replica.state is NodeState.RUNNING:
                return replica if self._has_room_beside(replica.host) else None
        return None
