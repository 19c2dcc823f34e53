"""Removes the oldest pieces of a stream log, wherever it lies.

A mark is put first (beginnings.py), then pieces are deleted from the front, so that what is left
has no gap. Who is ended in between has put a mark; the next one deletes what lies before it.
"""

from __future__ import annotations

import abc
from typing import TYPE_CHECKING

from holdfast.core.queues.retention import removable
from holdfast.core.wire.beginnings import encode_first_id
from holdfast.shell.storage.beginnings import delete_marks_before, first_id_of, marks_of, put_mark
from holdfast.shell.storage.places import store_at

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.core.queues.retention import Piece, Retention
    from holdfast.shell.stores.base import CheckpointStore


class Trimmer(abc.ABC):
    """Removes what is not kept of one log; from one thread.

    Attributes:
        size_bytes: What the log takes, as of the last look.
        oldest_us: When the newest thing in its oldest piece was written; None: it has none.
    """

    def __init__(
        self,
        place: str,
        require_lead: Callable[[], None],
        may_begin_at: Callable[[int], bool] = lambda first_id: True,
    ) -> None:
        """Nothing is looked at yet.

        Args:
            place: The log's folder or URL.
            require_lead: Raises when another driver leads; asked before a mark is put.
            may_begin_at: Whether readers understand a log that begins with this tuple.
        """
        self._place = place
        self._require_lead = require_lead
        self._may_begin_at = may_begin_at
        self.size_bytes = 0
        self.oldest_us: int | None = None

    def trim(self, retention: Retention, needed_from: int | None, now_us: int) -> int:
        """Remove what nobody wants; how many pieces that were.

        Args:
            retention: What the user wants.
            needed_from: The oldest tuple that a restart asks for; None: none does.
            now_us: The clock.

        Raises:
            StorageError: The log is damaged, its store does not answer, or another driver leads.
        """
        store = store_at(self._place)
        try:
            self._look(store)
            marks = marks_of(store)
            first_id = first_id_of(store, self._place) if marks else 0
            if marks:  # An earlier driver may have died in the middle.
                self._delete_before(store, first_id)
            if len(marks) > 1:
                delete_marks_before(store, first_id)
            pieces = self._pieces(first_id)
            self._note(pieces)
            count = removable(pieces, retention, now_us, self._newest_kept(pieces))
            if needed_from is not None:
                count = sum(piece.first <= needed_from for piece in pieces[1 : count + 1])
            while count and not self._may_begin_at(pieces[count].first):
                count -= 1
            if count == 0:
                return 0
            first_id = pieces[count].first
            self._require_lead()
            put_mark(store, first_id, encode_first_id(first_id, pieces[count - 1].at_us))
            self._delete_before(store, first_id)
            delete_marks_before(store, first_id)
        finally:
            store.close()
        self._note(pieces[count:])
        return count

    def _note(self, pieces: list[Piece]) -> None:
        self.size_bytes = sum(piece.size_bytes for piece in pieces)
        self.oldest_us = pieces[0].at_us if pieces else None

    @abc.abstractmethod
    def _look(self, store: CheckpointStore) -> None:
        """List what is there."""

    @abc.abstractmethod
    def _pieces(self, first_id: int) -> list[Piece]:
        """The pieces that hold anything from an id on, the oldest first."""

    @abc.abstractmethod
    def _newest_kept(self, pieces: list[Piece]) -> int:
        """So many of the newest ones tell whoever takes the log over where it ends."""

    @abc.abstractmethod
    def _delete_before(self, store: CheckpointStore, first_id: int) -> None:
        """Delete the pieces that end before an id."""
