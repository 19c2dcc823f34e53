"""Removes the oldest parts of a stream log at a URL; see core/wire/log_parts.py.

Parts of a writer that was replaced say nothing of the log's end. So marks of writers are listed
behind the parts: of a part that was stored after its writer had been replaced, the successor's mark
is there by then.

1. A writer wants to merge small parts of its own. 2. The oldest of them are removed. 3. It does not
find one, looks for where the log begins, and forgets what lies before (part_log.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from holdfast.core.queues.retention import Piece
from holdfast.core.wire.log_parts import MARKS, live_parts, marks_in, parse_part
from holdfast.shell.storage.feed_log import FeedBeginnings
from holdfast.shell.storage.log_trimming import LogTrimmer
from holdfast.shell.storage.places import is_remote
from holdfast.shell.storage.trimming import Trimmer

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.core.wire.log_parts import PartName
    from holdfast.shell.stores.base import CheckpointStore, StoredObject

_NEWEST_KEPT: Final = 2
"""The newest part may hold no tuple; who takes the log over looks at the one before it then."""


class PartTrimmer(Trimmer):
    """Removes parts of one log; those with one first id are a piece."""

    def __init__(
        self,
        place: str,
        require_lead: Callable[[], None],
        may_begin_at: Callable[[int], bool] = lambda first_id: True,
    ) -> None:
        """See the base."""
        super().__init__(place, require_lead, may_begin_at)
        self._stored: dict[PartName, StoredObject] = {}
        self._live: dict[PartName, int | None] = {}

    def _look(self, store: CheckpointStore) -> None:
        listing = store.listing()
        self._stored = {part: s for s in listing if (part := parse_part(s.name)) is not None}
        self._live = live_parts(self._stored, marks_in(store.names(MARKS)))

    def _pieces(self, first_id: int) -> list[Piece]:
        pieces: dict[int, Piece] = {}
        for part, end in self._live.items():
            if end is None or end > first_id:
                stored, piece = self._stored[part], pieces.get(part.first_id, Piece(0, 0, 0))
                size_bytes = piece.size_bytes + stored.size_bytes
                at_us = max(piece.at_us, stored.modified_us)
                pieces[part.first_id] = Piece(part.first_id, size_bytes, at_us)
        return list(pieces.values())

    def _newest_kept(self, pieces: list[Piece]) -> int:
        del pieces
        return _NEWEST_KEPT

    def _delete_before(self, store: CheckpointStore, first_id: int) -> None:
        for part, end in [*self._live.items()]:
            if end is not None and end <= first_id:
                store.delete(str(part))
                del self._live[part]


def trimmer_at(place: str, require_lead: Callable[[], None]) -> Trimmer:
    """Who removes what is not kept of the log at a place; arguments as of `Trimmer`."""
    of = PartTrimmer if is_remote(place) else LogTrimmer
    return of(place, require_lead)


def feed_trimmer_at(place: str, require_lead: Callable[[], None]) -> Trimmer:
    """The same of a feed: it begins where no tentative suffix stands, and none is corrected."""
    of = PartTrimmer if is_remote(place) else LogTrimmer
    return of(place, require_lead, FeedBeginnings(place).has)
