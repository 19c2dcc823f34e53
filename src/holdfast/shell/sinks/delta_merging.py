"""Merges small files of a Delta table now and then, beside the writing of it.

A commit that merges says that it changes no rows: readers of the table, and of its versions, see
the same ones before and after. It does not name any sink stream, so no commit of rows and none of
a zombie's is refused for it. Of two that merge the same files the table refuses one. Who is killed
meanwhile leaves files that no version names, which a vacuum removes.
"""

from __future__ import annotations

import logging
import threading
import time

_LOG = logging.getLogger(__name__)


class Merging:
    """Merges files of one table; `look` is called by one thread."""

    def __init__(self, table: str, interval_s: float) -> None:
        """The first time is an interval from now."""
        self._table = table
        self._interval_s = interval_s
        self._due_s = time.monotonic() + interval_s
        self._thread: threading.Thread | None = None

    def look(self) -> None:
        """Begin to merge, if it is time; returns at once."""
        is_busy = self._thread is not None and self._thread.is_alive()
        if is_busy or time.monotonic() < self._due_s:
            return
        self._due_s = time.monotonic() + self._interval_s
        self._thread = threading.Thread(target=self._merge, name="holdfast-merging", daemon=True)
        self._thread.start()

    def join(self) -> None:
        """Wait until what has begun is over."""
        if self._thread is not None:
            self._thread.join()

    def _merge(self) -> None:
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError

        try:
            DeltaTable(self._table).optimize.compact(max_concurrent_tasks=1)
        except (DeltaError, OSError) as error:  # Rows are written all the same.
            _LOG.warning("files of %s were not merged: %s", self._table, error)
