"""Removes the oldest parts of a stream log at a URL; see core/wire/log_parts.py.

A mark is put first (beginnings.py), then parts are deleted that end before it. Parts of a writer
that was replaced say nothing of the log's end. So marks of writers are listed behind the parts: of
a part that was stored after its writer had been replaced, the successor's mark is there by then.

1. A writer wants to merge small parts of its own. 2. The oldest of them are removed. 3. It does not
find one, looks for where the log begins, and forgets what lies before (part_log.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from holdfast.core.queues.retention import Piece, Retention, removable
from holdfast.core.wire.beginnings import encode_first_id
from holdfast.core.wire.log_parts import MARKS, live_parts, marks_in, parse_part
from holdfast.shell.storage.beginnings import delete_marks_before, first_id_of, marks_of, put_mark
from holdfast.shell.storage.log_trimming import LogTrimmer
from holdfast.shell.storage.places import is_remote, store_at

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.core.wire.log_parts import PartName
    from holdfast.shell.stores.base import CheckpointStore

_NEWEST_KEPT: Final = 2
"""The newest part may hold no tuple; who takes the log over looks at the one before it then."""


class PartTrimmer:
    """Removes what is not kept of one log; from one thread."""

    def __init__(self, place: str, require_lead: Callable[[], None]) -> None:
        """Nothing is looked at yet; arguments as of `LogTrimmer`."""
        self._place = place
        self._require_lead = require_lead
        self.size_bytes = 0
        self.oldest_us: int | None = None

    def trim(self, retention: Retention, needed_from: int | None, now_us: int) -> int:
        """Remove what nobody wants; how many parts that were.

        Args:
            retention: What the user wants.
            needed_from: The oldest tuple that a restart asks for; None: none does.
            now_us: The clock.

        Raises:
            StorageError: The store does not answer, or another driver leads.
        """
        store = store_at(self._place)
        try:
            return self._trim(store, retention, needed_from, now_us)
        finally:
            store.close()

    def _trim(
        self, store: CheckpointStore, retention: Retention, needed_from: int | None, now_us: int
    ) -> int:
        stored = {part: s for s in store.listing() if (part := parse_part(s.name)) is not None}
        live = live_parts(stored, marks_in(store.names(MARKS)))
        marks = marks_of(store)
        first_id = first_id_of(store, self._place) if marks else 0
        if marks:  # An earlier driver may have died in the middle.
            self._delete(store, live, first_id)
            delete_marks_before(store, first_id)
        pieces: dict[int, Piece] = {}
        for part in sorted(live, key=lambda part: part.first_id):
            if live[part] is None or (live[part] or 0) > first_id:
                piece = pieces.get(part.first_id, Piece(part.first_id, 0, 0))
                size_bytes = piece.size_bytes + stored[part].size_bytes
                at_us = max(piece.at_us, stored[part].modified_us)
                pieces[part.first_id] = Piece(part.first_id, size_bytes, at_us)
        kept = list(pieces.values())
        self._note(kept)
        count = removable(kept, retention, now_us, _NEWEST_KEPT)
        if needed_from is not None:
            count = sum(piece.first <= needed_from for piece in kept[1 : count + 1])
        if count == 0:
            return 0
        self._require_lead()
        put_mark(
            store, kept[count].first, encode_first_id(kept[count].first, kept[count - 1].at_us)
        )
        self._delete(store, live, kept[count].first)
        delete_marks_before(store, kept[count].first)
        self._note(kept[count:])
        return count

    def _note(self, kept: list[Piece]) -> None:
        self.size_bytes = sum(piece.size_bytes for piece in kept)
        self.oldest_us = kept[0].at_us if kept else None

    def _delete(
        self, store: CheckpointStore, live: dict[PartName, int | None], first_id: int
    ) -> None:
        """All parts that end before an id."""
        for part, end in live.items():
            if end is not None and end <= first_id:
                store.delete(str(part))

    def close(self) -> None:
        """Nothing is open."""


def trimmer_at(place: str, require_lead: Callable[[], None]) -> LogTrimmer | PartTrimmer:
    """Who removes what is not kept of the log at a place; arguments as of `LogTrimmer`."""
    of = PartTrimmer if is_remote(place) else LogTrimmer
    return of(place, require_lead)
