"""Reads a source ahead in a thread, so that a node never waits for a slow store."""

from __future__ import annotations

import threading
from collections import deque

from holdfast.core.model.ids import BEGINNING_US, END_US
from holdfast.core.wire.log_owners import Place
from holdfast.shell.sources.base import SourceReader, SourceRows
from holdfast.shell.transport.waker import Waker

_READ_TUPLES = 1 << 16
_AHEAD_BYTES = 32 << 20
_IDLE_S = 0.05


class ReadAhead:
    """A source reader around another one, which only its thread uses.

    The node asks for consecutive ids, except when it recovers; then the thread begins anew there.
    Up to `_AHEAD_BYTES`, and what one read brings beyond them, wait to be taken.
    """

    def __init__(self, reader: SourceReader) -> None:
        """Read ahead of what is asked of `reader`; the thread starts with the first read."""
        self._reader = reader
        self._changed = threading.Condition()
        self._waiting: deque[SourceRows] = deque()
        self._waiting_bytes = 0
        self._boundary_us = BEGINNING_US  # of what was taken
        self._late_rows = 0  # the same
        self._next_id = -1  # to be taken
        self._ahead_id = -1  # to be read by the thread
        self._run = 0  # counts beginnings; what the thread reads for an earlier one is dropped
        self._error: Exception | None = None
        self._is_closing = False
        self._thread: threading.Thread | None = None
        self._waker = Waker()

    def fileno(self) -> int:
        """See `StirringReader`."""
        return self._waker.fileno()

    def read(self, from_id: int, max_tuples: int) -> SourceRows:
        """See `SourceReader.read`. Raises what the thread met, once what it read has been taken."""
        self._waker.clear()
        with self._changed:
            if from_id != self._next_id:
                self._begin(from_id)
            taken: list[SourceRows] = []
            count = 0
            while self._waiting and (not taken or count < max_tuples):
                rows = self._waiting.popleft()
                self._waiting_bytes -= _bytes(rows)
                count += sum(batch.count for batch in rows.batches)
                self._late_rows = rows.late_rows
                self._boundary_us = rows.boundary_us
                taken.append(rows)
            if not taken and self._error is not None:
                raise self._error
            self._changed.notify()
            batches = tuple(batch for rows in taken for batch in rows.batches)
            if batches:
                self._next_id = batches[-1].next_id
            return SourceRows(batches, self._boundary_us, self._late_rows)

    def _begin(self, from_id: int) -> None:
        self._run += 1
        self._waiting.clear()
        self._waiting_bytes = 0
        self._next_id = self._ahead_id = from_id
        self._boundary_us = BEGINNING_US
        if self._thread is None:
            self._thread = threading.Thread(target=self._follow, name="read-ahead", daemon=True)
            self._thread.start()

    def _follow(self) -> None:
        boundary_us, late_rows = BEGINNING_US, 0
        run = 0
        while True:
            with self._changed:
                self._changed.wait_for(self._has_room)
                if self._is_closing:
                    return
                if run != self._run:
                    run, boundary_us, late_rows = self._run, BEGINNING_US, 0
                from_id = self._ahead_id
            try:
                rows = self._reader.read(from_id, _READ_TUPLES)
            except Exception as error:  # The node meets it where it would have met it by itself.
                with self._changed:
                    self._error = error
                self._waker.wake()
                return
            with self._changed:
                if run != self._run:
                    continue
                is_later = rows.boundary_us > boundary_us or rows.late_rows > late_rows
                if rows.batches or is_later:
                    boundary_us, late_rows = rows.boundary_us, rows.late_rows
                    self._waiting.append(rows)
                    self._waiting_bytes += _bytes(rows)
                    self._waker.wake()
                if rows.batches:
                    self._ahead_id = rows.batches[-1].next_id
                elif not self._is_closing:
                    self._changed.wait(3600 if boundary_us == END_US else _IDLE_S)

    @property
    def rows_read(self) -> int | None:
        """As of the reader beneath, without what waits to be taken."""
        with self._changed:
            rows: int | None = getattr(self._reader, "rows_read", None)
            waiting = sum(batch.count for some in self._waiting for batch in some.batches)
            return None if rows is None else max(0, rows - waiting)

    @property
    def read_of(self) -> list[Place]:
        """As of the reader beneath, with what waits to be taken."""
        found: list[Place] = getattr(self._reader, "read_of", [])
        return found

    @property
    def warning(self) -> str:
        """As of the reader beneath."""
        return getattr(self._reader, "warning", "")

    def _has_room(self) -> bool:
        return self._is_closing or self._waiting_bytes < _AHEAD_BYTES

    def close(self) -> None:
        """See `SourceReader.close`."""
        with self._changed:
            self._is_closing = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()
        self._reader.close()
        self._waker.close()


def _bytes(rows: SourceRows) -> int:
    return sum(batch.nbytes for batch in rows.batches)
