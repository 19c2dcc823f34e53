"""What reading a log needs, however it is stored: the tuples that count, each once, in order."""

from __future__ import annotations

import abc
import itertools
from dataclasses import dataclass

import pyarrow as pa

from holdfast.core.model.ids import BEGINNING_US, Incarnation
from holdfast.core.model.tuples import TupleType
from holdfast.core.wire.log_owners import Place
from holdfast.core.wire.log_records import LogRecord, RecordKind
from holdfast.shell.storage.errors import TuplesMissing


@dataclass(frozen=True, slots=True)
class LoggedBatch:
    """Consecutive tuples of a log; fields as in `LogRecord`."""

    tuple_type: TupleType
    incarnation: int
    first_id: int
    count: int
    boundary_us: int
    created_us: int
    batch: pa.RecordBatch


class LogFollower(abc.ABC):
    """Follows a log from an id on; never waits for what is not there yet."""

    def __init__(self, place: str, from_id: int) -> None:
        """Start at `from_id`; the log need not exist yet."""
        self._place = place
        self.next_id = from_id
        self.boundary_us = BEGINNING_US
        self.ended = False
        self.read_of: list[Place] = []
        """Of which incarnation tuples were read, each from an id on."""

    @abc.abstractmethod
    def _next(self) -> LogRecord | None:
        """The next record, whoever wrote it; None when there is none yet."""

    @abc.abstractmethod
    def _superseded_from(self) -> int:
        """The id from which a later incarnation than that of the last record writes."""

    @property
    @abc.abstractmethod
    def schema(self) -> pa.Schema | None:
        """The schema of the log, time column included; None before its first segment."""

    @abc.abstractmethod
    def close(self) -> None:
        """Let go of files and connections."""

    def poll(self, max_rows: int = 1 << 16, max_bytes: int = 64 << 20) -> list[LoggedBatch]:
        """The next tuples, at least one record if there is one.

        Raises:
            StreamLogCorrupt: A record is damaged, and not just the torn end of the newest segment.
            TuplesMissing: The next tuples were trimmed, or their segment is gone.
        """
        taken: list[LoggedBatch] = []
        rows = size = 0
        while rows < max_rows and size < max_bytes and not self.ended:
            record = self._next()
            if record is None:
                break
            batch = self._accept(record)
            if batch is not None:
                taken.append(batch)
                rows += batch.count
                size += record.size
        return taken

    def skip_to_end(self, max_records: int | None = None) -> None:
        """Pass over all tuples that are there, or so many records; see `poll` for the errors."""
        for _ in itertools.count() if max_records is None else range(max_records):
            if self.ended or (record := self._next()) is None:
                return
            limit = self._superseded_from()
            end = record.first_id + record.count
            if record.first_id > limit or (record.count and record.first_id == limit):
                continue
            if record.first_id > self.next_id:
                raise TuplesMissing(self._place, self.next_id, record.first_id)
            self.ended = record.kind is RecordKind.END
            if end <= limit:
                self.boundary_us = max(self.boundary_us, record.boundary_us)
            if record.kind is RecordKind.DATA:
                self.next_id = max(self.next_id, min(end, limit))

    def _accept(self, record: LogRecord) -> LoggedBatch | None:
        """The part of a record that is new and was not superseded."""
        limit = self._superseded_from()
        counts_at_limit = record.kind is RecordKind.BOUNDARY  # A successor says an end again.
        if record.first_id > limit or (record.first_id == limit and not counts_at_limit):
            return None
        if record.first_id > self.next_id:
            raise TuplesMissing(self._place, self.next_id, record.first_id)
        if record.kind is RecordKind.END:
            self.ended = True
        batch, first_id = record.batch, record.first_id
        boundary_us = record.boundary_us
        if batch is None:
            self.boundary_us = max(self.boundary_us, boundary_us)
            return None
        if first_id + batch.num_rows > limit:
            batch, boundary_us = batch.slice(0, limit - first_id), BEGINNING_US
        if first_id < self.next_id:
            if first_id + batch.num_rows <= self.next_id:
                self.boundary_us = max(self.boundary_us, boundary_us)
                return None
            batch, first_id = batch.slice(self.next_id - first_id), self.next_id
        self.boundary_us = max(self.boundary_us, boundary_us)
        self.next_id = first_id + batch.num_rows
        if batch.num_rows and (not self.read_of or self.read_of[-1][0] != record.incarnation):
            self.read_of.append((Incarnation(record.incarnation), first_id))
        return LoggedBatch(
            record.tuple_type,
            record.incarnation,
            first_id,
            batch.num_rows,
            boundary_us,
            record.created_us,
            batch,
        )
