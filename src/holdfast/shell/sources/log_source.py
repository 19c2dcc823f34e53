"""Reads a stream log, or the ingest log that Spark writes into, as a source."""

from __future__ import annotations

import os
import time
from collections import deque
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from holdfast.core.model.ids import BEGINNING_US, END_US
from holdfast.core.model.tuples import TupleBatch, TupleType
from holdfast.core.wire.log_owners import Place
from holdfast.shell.sources.base import SourceReader, SourceRows
from holdfast.shell.sources.read_ahead import ReadAhead
from holdfast.shell.storage.commit_store import COMMITS
from holdfast.shell.storage.folder_watch import Change, FolderWatch
from holdfast.shell.storage.ingest_log import DRAFT, FILES, IDLE, IngestLogReader
from holdfast.shell.storage.logs import open_reader
from holdfast.shell.storage.parquet_ends import KeepsNone
from holdfast.shell.storage.places import is_remote, local_path

_READ_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class LogSourceSpec:
    """One partition of a log.

    Attributes:
        path: The ingest root, or the folder of one stream log partition.
        kind: `ingest` or `stream`.
        partition: Which partition of an ingest log.
        partitions: Of how many.
        speed: Event time per real time at which tuples are released; None reads as fast as the
            dataflow can take them.
        started_s: Wall-clock time at which a paced log's first tuple is due.
        is_in_records: Whether every tuple comes in the batch in which it was written.
        columns: What anybody reads of users' files; None: all of it.
        pruning: Of which groups of rows of users' files nobody keeps any; None: not known.
        silent_s: Of a paced log: the tuples that are due between so many seconds after its first
            one and so many come late, all at once; whenever the node has come to be.
    """

    path: str
    kind: str
    partition: int = 0
    partitions: int = 1
    speed: float | None = None
    started_s: float = 0.0
    is_in_records: bool = False
    columns: tuple[str, ...] | None = None
    pruning: KeepsNone | None = None
    silent_s: tuple[float, float] | None = None

    def in_records(self) -> LogSourceSpec | None:
        """See `RecordedSpec`."""
        is_recorded = self.kind == "ingest" and self.speed is None
        return replace(self, is_in_records=True) if is_recorded else None

    def open(self) -> SourceReader:
        """Open the log."""
        return self.follow() if self.speed is None else PacedReader(self)

    def follow(self) -> LogSourceReader | ReadAhead:
        """Read as fast as may be; ahead of what is asked for, where every look is a request."""
        reader = LogSourceReader(self)
        return ReadAhead(reader) if is_remote(self.path) else reader


class LogSourceReader:
    """Follows a log from whatever id is asked for."""

    def __init__(self, spec: LogSourceSpec) -> None:
        """Open lazily: the first read says from where."""
        self._spec = spec
        self._reader: Any = None
        self._next_id = -1
        self._boundary_us = BEGINNING_US
        self._watch: FolderWatch | None = None  # until somebody listens
        self._is_drained = False  # when it was read last, there was nothing

    def fileno(self) -> int:
        """See `StirringReader`."""
        place = local_path(self._spec.path)
        if self._watch is None and not is_remote(place):
            folders = [place]
            if self._spec.kind == "ingest":
                folders += [f"{place}/{COMMITS}", f"{place}/{IDLE}"]
                if self._spec.partitions == 1:  # All that comes is for this reader.
                    folders.append(f"{place}/{FILES}")
            self._watch = FolderWatch(*folders)
        return -1 if self._watch is None else self._watch.fileno()

    def read(self, from_id: int, max_tuples: int) -> SourceRows:
        """See `SourceReader.read`."""
        changes: list[Change] = []
        if self._watch is not None:
            changes = self._watch.clear()
            self._watch.look_for_missing()
        is_new = self._reader is None or from_id != self._next_id
        if self._is_drained and not is_new and changes and all(map(_is_draft, changes)):
            return SourceRows((), self._known_us, self._late_rows)
        if is_new:
            self._close_log()
            self._reader = self._open(from_id)
            self._next_id = from_id
            self._boundary_us = BEGINNING_US  # That of what was read before may be later.
        batches = []
        for logged in self._reader.poll(max_rows=max_tuples, max_bytes=_READ_BYTES):
            self._boundary_us = max(self._boundary_us, logged.boundary_us)
            if logged.count == 0:
                continue
            batches.append(
                TupleBatch(
                    logged.first_id,
                    logged.batch,
                    logged.boundary_us,
                    logged.created_us,
                    TupleType(logged.tuple_type),
                )
            )
            self._next_id = logged.first_id + logged.count
        self._is_drained = not batches
        if self._spec.kind == "ingest":
            if not batches:
                self._read_ahead(changes)
            self._reader.take_late()
            # A watermark, or late tuples, move it without a tuple.
            self._boundary_us = max(self._boundary_us, self._reader.boundary_us)
        return SourceRows(tuple(batches), self._known_us, self._late_rows)

    @property
    def _known_us(self) -> int:
        """The boundary of what has been read."""
        is_over = self._reader is not None and self._reader.ended
        return END_US if is_over else self._boundary_us

    def _read_ahead(self, changes: list[Change]) -> None:
        """Read what has come to an ingest log, while its commit is being made."""
        self._reader.read_ahead(
            [c.name for c in changes if c.is_moved and os.path.basename(c.folder) == FILES]
        )

    @property
    def _late_rows(self) -> int:
        """Of an ingest log; other logs hold no late ones."""
        return int(getattr(self._reader, "late_rows", 0))

    @property
    def warning(self) -> str:
        """What the user should know of the rows of an ingest log; empty: nothing."""
        return getattr(self._reader, "warning", "")

    @property
    def rows_read(self) -> int | None:
        """Rows of an ingest log that have been read, late ones too; None: nobody counts."""
        return getattr(self._reader, "rows_read", None)

    @property
    def read_of(self) -> list[Place]:
        """Of which incarnations tuples were read, each from an id on, since ids were in order."""
        return [] if self._reader is None else list(self._reader.read_of)

    def _open(self, from_id: int) -> Any:
        spec = self._spec
        if spec.kind == "ingest":
            return IngestLogReader(
                *(spec.path, spec.partition, spec.partitions, from_id),
                is_in_records=spec.is_in_records,
                columns=spec.columns,
                pruning=spec.pruning,
            )
        return open_reader(spec.path, from_id, is_tailing=True)

    def close(self) -> None:
        """See `SourceReader.close`."""
        self._close_log()
        if self._watch is not None:
            self._watch.close()

    def _close_log(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None


class PacedReader:
    """Releases tuples at a multiple of the speed at which they happened.

    The log's first tuple is due at the time that the spec names; so a restarted node goes on at
    the pace of the others, and what became due meanwhile comes at once.
    """

    def __init__(self, spec: LogSourceSpec) -> None:
        """Pace the log of `spec`."""
        self._spec = spec
        self._reader = spec.follow()
        self._origin_us: int | None = None
        self._waiting: deque[TupleBatch] = deque()
        self._rows = SourceRows((), BEGINNING_US)
        self._was_before_silence = False
        self._silent_until_s: float | None = None

    def read(self, from_id: int, max_tuples: int) -> SourceRows:
        """See `SourceReader.read`."""
        if self._origin_us is None and not self._find_origin():
            return SourceRows((), BEGINNING_US)
        if self._waiting and self._waiting[0].first_id != from_id:
            self._waiting.clear()
        if not self._waiting:
            self._rows = self._reader.read(from_id, max_tuples)
            self._waiting.extend(self._rows.batches)
        now_s = time.time()
        silent_s = self._silent_for_s(now_s)
        if silent_s > 0:
            return SourceRows((), BEGINNING_US, quiet_ms=1 + int(1000 * silent_s))
        batches, boundary_us = self._release(now_s)
        quiet_ms = 0 if batches or not self._waiting else self._due_in_ms(now_s)
        return SourceRows(batches, boundary_us, self._rows.late_rows, quiet_ms)

    def _silent_for_s(self, now_s: float) -> float:
        """How long it will give nothing; 0: it gives what is due.

        The silence begins when the tuple is due, and all before it were given. So it is as long
        however late the node was; a replacement that begins behind that place is not silent.
        """
        from_us = self._silent_from_us
        if self._spec.silent_s is None or from_us is None or not self._waiting:
            return 0.0
        begin_s, end_s = self._spec.silent_s
        if int(self._waiting[0].time_us[0]) < from_us:
            self._was_before_silence = True
            return 0.0
        if self._silent_until_s is None:
            begins_s = max(now_s, self._spec.started_s + begin_s)
            self._silent_until_s = begins_s + (end_s - begin_s if self._was_before_silence else 0.0)
        return max(0.0, self._silent_until_s - now_s)

    @property
    def _silent_from_us(self) -> int | None:
        """The event time of the first tuple that comes late; None: none does."""
        if self._spec.silent_s is None:
            return None
        return (self._origin_us or 0) + int(self._spec.silent_s[0] * self._speed * 1e6)

    def _find_origin(self) -> bool:
        """The event time of the log's first tuple, once there is one."""
        first = LogSourceReader(self._spec)
        rows = first.read(0, 1)
        first.close()
        if rows.batches:
            self._origin_us = int(rows.batches[0].time_us[0])
        return rows.boundary_us == END_US or bool(rows.batches)

    def _release(self, now_s: float) -> tuple[tuple[TupleBatch, ...], int]:
        """What is due by now, and the boundary after it."""
        due_us = self._due_before_us(now_s)
        released: list[TupleBatch] = []
        while self._waiting:
            batch = self._waiting[0]
            count = int(np.count_nonzero(batch.time_us < due_us))
            if count < batch.count:
                count = int(np.argmax(batch.time_us >= due_us))
            if count == 0:
                break
            is_whole = count == batch.count
            rest_us = batch.boundary_us if is_whole else _oldest(batch, count)
            head = batch.batch.slice(0, count)
            released.append(TupleBatch(batch.first_id, head, rest_us, int(now_s * 1e6)))
            if not is_whole:
                self._waiting[0] = batch.starting_at(batch.first_id + count)
                break
            self._waiting.popleft()
        if not self._waiting:
            return tuple(released), self._rows.boundary_us
        following = self._waiting[0]
        return tuple(released), min(following.boundary_us, int(following.time_us.min()))

    def _due_before_us(self, now_s: float) -> int:
        """Tuples older than this are due."""
        elapsed_us = max(0.0, now_s - self._spec.started_s) * 1e6
        due_us = (self._origin_us or 0) + int(elapsed_us * self._speed)
        from_us = self._silent_from_us
        is_to_come = from_us is not None and self._silent_until_s is None
        return min(due_us, from_us) if is_to_come and from_us is not None else due_us

    def _due_in_ms(self, now_s: float) -> int:
        """How long the first of those that wait has to, at least 1."""
        early_us = int(self._waiting[0].time_us[0]) - self._due_before_us(now_s)
        return max(1, int(early_us / self._speed / 1000))

    @property
    def warning(self) -> str:
        """As of the reader beneath."""
        return getattr(self._reader, "warning", "")

    @property
    def _speed(self) -> float:
        return self._spec.speed or 1.0

    def close(self) -> None:
        """See `SourceReader.close`."""
        self._reader.close()


def _is_draft(change: Change) -> bool:
    """Whether it is not for readers yet."""
    return change.name.startswith(".") or change.name.endswith(DRAFT)


def _oldest(batch: TupleBatch, start: int) -> int:
    """No row from `start` on, nor anything after the batch, is older than this."""
    return min(batch.boundary_us, int(batch.time_us[start:].min()))
