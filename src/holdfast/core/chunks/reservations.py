"""Places for whole checkpoints, so that a checkpoint is granted or refused as one. [SGuard §5]

Theory of operation. A client asks for as many places as its checkpoint has chunks (w, r, k). Peace
grants them, or refuses and grants them later:

    ASKED --refused--> WAITING --granted--> GRANTED --each taken, and written--> (end)

- Uploads that name the reservation take its places one by one, whichever comes first. Chunks are
  alike: it does not matter which upload takes which.
- Peace may grant a large request in portions, and anew what a lost data node was to hold. Until
  then an upload that finds no place waits. Once all have been taken, and for a reservation that is
  not known, chunks are placed one by one.
- Asked again with another size, it keeps its turn as long as no place was taken. Otherwise it is a
  new request of Peace's (`life`), so that chunks still on their way count for the former one.
- So it is when it had ended: given back, silent, or failed by Peace. A question that comes late
  begins it once more while its uploads still write to places of before. No two requests to Peace
  have the same life, whatever their reservations are called.
- A client that waits, or writes, says something every `resend_ms`. One that was killed does not:
  soon its places are for others (`asking_timeout_ms`). All is volatile: clients ask again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from holdfast.core.errors import InvariantViolation
from holdfast.core.peace.messages import WriteRequestId

if TYPE_CHECKING:
    from holdfast.core.chunks.messages import PlacesRequested
    from holdfast.core.peace.messages import GrantWrite
    from holdfast.core.peace.network_model import ServerName

_MARK = "places of "


@dataclass(slots=True)
class Reservation:
    """The places of one checkpoint.

    Attributes:
        asked: Who wants them, and how many.
        heard_ms: When its client last said something.
        life: Of its present request to Peace; no other request has the same.
        free: Chains that nobody has taken, by number.
        taken: Numbers that uploads have, or had.
        waiting: Uploads that found no free place, oldest first.
    """

    asked: PlacesRequested
    heard_ms: int
    life: int
    free: dict[int, tuple[ServerName, ...]] = field(default_factory=dict)
    taken: dict[int, None] = field(default_factory=dict)
    waiting: dict[str, None] = field(default_factory=dict)

    def key(self) -> WriteRequestId:
        """What Peace calls it."""
        return WriteRequestId(f"{_MARK}{self.asked.reservation}/{self.life}")

    @property
    def is_used_up(self) -> bool:
        """Whether every place has been taken."""
        return len(self.taken) >= self.asked.chunks

    def granted(self, grant: GrantWrite) -> None:
        """Peace has found places; one that is taken is its upload's affair."""
        for placement in grant.placements:
            if placement.chunk not in self.taken:
                self.free[placement.chunk] = placement.servers

    def take(
        self, is_live: Callable[[ServerName], bool]
    ) -> tuple[int, tuple[ServerName, ...]] | None:
        """A place whose data nodes live; None: there is none now."""
        for number, servers in self.free.items():
            if all(map(is_live, servers)):
                del self.free[number]
                self.taken[number] = None
                return number, servers
        return None


class Reservations:
    """All of them, by name. Volatile."""

    def __init__(self, reservations_max: int) -> None:
        """Begin without any."""
        self._max = reservations_max
        self._all: dict[str, Reservation] = {}
        self._lives = 0

    def get(self, reservation: str) -> Reservation | None:
        """The one of this name."""
        return self._all.get(reservation)

    def of(self, key: WriteRequestId) -> Reservation | None:
        """The one that Peace calls so; None: there is none, or it has another life."""
        name, _, _ = key.removeprefix(_MARK).rpartition("/")
        found = self._all.get(name)
        return found if found is not None and found.key() == key else None

    def begin(self, asked: PlacesRequested, now_ms: int) -> Reservation | None:
        """A new one; None: there are too many."""
        if len(self._all) >= self._max:
            return None
        made = self._all[asked.reservation] = Reservation(asked, now_ms, self._next_life())
        return made

    def begin_anew(self, reservation: Reservation, asked: PlacesRequested) -> None:
        """Another size: nothing that was granted counts."""
        reservation.asked = asked
        reservation.free.clear()
        if reservation.taken:
            reservation.life = self._next_life()
            reservation.taken.clear()

    def _next_life(self) -> int:
        self._lives += 1
        return self._lives

    def end(self, reservation: Reservation) -> None:
        """It is over."""
        del self._all[reservation.asked.reservation]

    def silent(self, now_ms: int, limit_ms: int) -> list[Reservation]:
        """Those whose clients have said nothing for so long."""
        return [each for each in self._all.values() if now_ms - each.heard_ms > limit_ms]

    def check_invariants(self) -> None:
        """Raise `InvariantViolation` when a place is free and taken."""
        for name, each in self._all.items():
            if both := each.free.keys() & each.taken.keys():
                raise InvariantViolation(f"places {sorted(both)} of {name} are free and taken")
