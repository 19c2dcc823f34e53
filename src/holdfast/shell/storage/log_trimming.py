"""Removes the oldest segments of a stream log in a folder; of one at a URL part_trimming.py does.

A mark is put first (beginnings.py), then segments are deleted from the front, so that what is left
has no gap. Whoever takes the log over finds its end in the newest segments: those from the last one
on that begins before the newest are never removed.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.core.queues.retention import Piece, Retention, removable
from holdfast.core.wire.beginnings import encode_first_id
from holdfast.shell.storage.beginnings import delete_marks_before, first_id_of, marks_of, put_mark
from holdfast.shell.storage.places import has_files, local_path, store_at
from holdfast.shell.storage.stream_log import SegmentFolder

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.shell.storage.stream_log import Segment


class LogTrimmer:
    """Removes what is not kept of one log; from one thread."""

    def __init__(self, place: str, require_lead: Callable[[], None]) -> None:
        """Nothing is looked at yet.

        Args:
            place: The log's folder.
            require_lead: Raises when another driver leads; asked before a mark is put.
        """
        self._place = local_path(place)
        self._require_lead = require_lead
        self._folder = SegmentFolder(Path(self._place))
        self.size_bytes = 0
        self.oldest_us: int | None = None

    def trim(self, retention: Retention, needed_from: int | None, now_us: int) -> int:
        """Remove what nobody wants; how many segments that were.

        Args:
            retention: What the user wants.
            needed_from: The oldest tuple that a restart asks for; None: none does.
            now_us: The clock.

        Raises:
            StorageError: The log is damaged, or another driver leads.
        """
        if not has_files(self._place):
            return 0
        live = self._folder.listed().live
        store = store_at(self._place)
        try:
            marks = marks_of(store)
            first_id = first_id_of(store, self._place) if marks else 0
            if marks and (len(marks) > 1 or (live and live[0].first_id < first_id)):
                self._delete(live, first_id)  # An earlier driver has died in the middle.
                delete_marks_before(store, first_id)
                live = [segment for segment in live if segment.first_id >= first_id]
            pieces = [_piece(segment) for segment in live]
            self.size_bytes = sum(piece.size_bytes for piece in pieces)
            self.oldest_us = pieces[0].at_us if pieces else None
            last = max((n for n, s in enumerate(live) if s.first_id < live[-1].first_id), default=0)
            count = removable(pieces, retention, now_us, len(live) - last)
            if needed_from is not None:
                count = sum(s.first_id <= needed_from for s in live[1 : count + 1])
            if count == 0:
                return 0
            first_id = live[count].first_id
            self._require_lead()
            put_mark(store, first_id, encode_first_id(first_id, pieces[count - 1].at_us))
            self._delete(live[:count], first_id)
            delete_marks_before(store, first_id)
        finally:
            store.close()
        self.size_bytes -= sum(piece.size_bytes for piece in pieces[:count])
        self.oldest_us = pieces[count].at_us
        return count

    def _delete(self, live: list[Segment], first_id: int) -> None:
        for segment in live:
            if segment.first_id < first_id:
                segment.path.unlink(missing_ok=True)

    def close(self) -> None:
        """Nothing is open."""


def _piece(segment: Segment) -> Piece:
    with suppress(FileNotFoundError):
        found = segment.path.stat()
        return Piece(segment.first_id, found.st_size, found.st_mtime_ns // 1000)
    return Piece(segment.first_id, 0, 0)
