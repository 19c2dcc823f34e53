"""The claim to a log of which nothing may count that a successor has not found.

What such a log holds cannot be made again: the passes of an arbitrary node, or the order in which
tuples came from outside. Others act on a record as soon as it counts, whoever takes over then. So:
1. A writer makes its record durable. 2. It looks at the claims: if there is no newer one, whoever
comes later claims the log first, and then finds the record. 3. If there is a newer one, its owner
may have missed the record: this writer has been replaced, and must not act on it.
"""

from __future__ import annotations

from holdfast.shell.storage.errors import LogSuperseded
from holdfast.shell.storage.places import store_at
from holdfast.shell.stores.base import NameTaken
from holdfast.shell.stores.patience import patiently

_CLAIMS = "claims"


class Claim:
    """One writer's."""

    def __init__(self, place: str, incarnation: int) -> None:
        """Claim the log, before anything of it is read.

        Args:
            place: Its folder or URL.
            incarnation: Of the writer.

        Raises:
            LogSuperseded: It is claimed by this incarnation or a later one.
        """
        self._place = place
        self._incarnation = incarnation
        self._store = store_at(place)
        try:
            self._store.put(f"{_CLAIMS}/{incarnation:010d}", [b"claimed"])
        except NameTaken as taken:
            raise LogSuperseded(f"{place} is claimed by incarnation {incarnation}") from taken
        self.require_newest()

    def require_newest(self) -> None:
        """Raise `LogSuperseded` if there is a newer one, `StoreUnavailable` if nobody can tell."""
        names = patiently(lambda: self._store.names(_CLAIMS))
        newest = max(int(name.rpartition("/")[2]) for name in names)
        if newest > self._incarnation:
            raise LogSuperseded(f"{self._place} is claimed by incarnation {newest} now")

    def close(self) -> None:
        """Let go of the store; the claim stays."""
        self._store.close()
