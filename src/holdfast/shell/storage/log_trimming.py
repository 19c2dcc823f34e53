"""Removes the oldest segments of a stream log in a folder; of one at a URL part_trimming.py does.

Whoever takes the log over finds its end in the newest segments: those from the last one on that
begins before the newest are never removed.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.core.queues.retention import Piece
from holdfast.shell.storage.places import has_files, local_path
from holdfast.shell.storage.stream_log import SegmentFolder
from holdfast.shell.storage.trimming import Trimmer

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.core.queues.retention import Retention
    from holdfast.shell.storage.stream_log import Segment
    from holdfast.shell.stores.base import CheckpointStore


class LogTrimmer(Trimmer):
    """Removes segments of one log."""

    def __init__(
        self,
        place: str,
        require_lead: Callable[[], None],
        may_begin_at: Callable[[int], bool] = lambda first_id: True,
    ) -> None:
        """See the base; the log need not be there yet."""
        super().__init__(local_path(place), require_lead, may_begin_at)
        self._folder = SegmentFolder(Path(self._place))
        self._live: list[Segment] = []

    def trim(self, retention: Retention, needed_from: int | None, now_us: int) -> int:
        """See the base."""
        if not has_files(self._place):
            return 0
        return super().trim(retention, needed_from, now_us)

    def _look(self, store: CheckpointStore) -> None:
        del store
        self._live = self._folder.listed().live

    def _pieces(self, first_id: int) -> list[Piece]:
        return [_piece(segment) for segment in self._live if segment.first_id >= first_id]

    def _newest_kept(self, pieces: list[Piece]) -> int:
        last = max((n for n, p in enumerate(pieces) if p.first < pieces[-1].first), default=0)
        return len(pieces) - last

    def _delete_before(self, store: CheckpointStore, first_id: int) -> None:
        del store
        for segment in self._live:
            if segment.first_id < first_id:
                segment.path.unlink(missing_ok=True)


def _piece(segment: Segment) -> Piece:
    with suppress(FileNotFoundError):
        found = segment.path.stat()
        return Piece(segment.first_id, found.st_size, found.st_mtime_ns // 1000)
    return Piece(segment.first_id, 0, 0)
