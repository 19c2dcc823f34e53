"""Collects a sink's tuples in memory, to be written together now and then.

What was not written yet is produced again after a failure; so nothing else need be durable.
"""

from __future__ import annotations

import abc
import threading
from typing import Final

import pyarrow as pa

from holdfast.shell.storage.errors import StorageError

CUT_TUPLES: Final = 1 << 20
"""So many tuples are written together although their time has not come."""
_CUT_BYTES: Final = 128 << 20


class CollectingWriter(abc.ABC):
    """What writers have in common that are an `OutsideWriter`.

    Attributes:
        next_id: Of the tuple that comes next.
        boundary_us: Nothing older follows.
        has_ended: Whether nothing follows.
    """

    def __init__(self, stream: str, interval_s: float) -> None:
        """Nothing has come; whoever derives says where to go on, by the attributes."""
        self._stream = stream
        self._interval_s = interval_s
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes = 0
        self._waiting_from = 0
        self._lock = threading.Lock()  # over the three above, `next_id` and `boundary_us`
        self.next_id = 0
        self.boundary_us = 0
        self.has_ended = False

    def _go_on(self, next_id: int, boundary_us: int) -> None:
        """The tuple of this id comes next."""
        self._waiting_from = self.next_id = next_id
        self.boundary_us = boundary_us

    @abc.abstractmethod
    def _write(self, rows: pa.Table, next_id: int, boundary_us: int) -> None:
        """Have readers see tuples that end before an id. Raises as `sync`."""

    def append(
        self,
        tuple_type: int,
        first_id: int,
        batch: pa.RecordBatch,
        boundary_us: int,
        created_us: int,
    ) -> None:
        """Take tuples. Raises `StorageError` if others come next."""
        del tuple_type, created_us
        if first_id != self.next_id:
            raise StorageError(f"{self._stream}: tuple {first_id}, expected {self.next_id}")
        with self._lock:
            self._waiting.append(batch.select(range(batch.num_columns - 1)))
            self._waiting_bytes += batch.nbytes
            self.next_id += batch.num_rows
            self.boundary_us = max(self.boundary_us, boundary_us)

    def sync(self) -> None:
        """Have readers see everything appended so far.

        Raises:
            LogSuperseded: A later incarnation writes the sink.
            StorageError: It cannot be written.
        """
        with self._lock:
            batches, next_id, boundary_us = list(self._waiting), self.next_id, self.boundary_us
        if batches:
            self._write(pa.Table.from_batches(batches), next_id, boundary_us)
            with self._lock:
                del self._waiting[: len(batches)]
                self._waiting_bytes = sum(batch.nbytes for batch in self._waiting)
                self._waiting_from = next_id

    def publish(self) -> None:
        """See `sync`."""
        self.sync()

    def skip_to(self, first_id: int) -> None:
        """Sinks leave nothing out."""
        raise StorageError(f"{self._stream}: a sink cannot skip to {first_id}")

    def trim(self, before: int) -> None:
        """How long rows are kept is their readers' affair."""
        del before

    @property
    def is_prompt(self) -> bool:
        """Readers wait for as long as the user says."""
        return False

    @property
    def is_full(self) -> bool:
        """Whether so much waits that it is a file of a good size."""
        with self._lock:
            count = self.next_id - self._waiting_from
            return count >= CUT_TUPLES or self._waiting_bytes >= _CUT_BYTES

    @property
    def is_stale(self) -> bool:
        """What was written lasts."""
        return False

    @property
    def interval_s(self) -> float:
        """From one time of writing to the next."""
        return self._interval_s
