"""The ingest log: what Spark writes into, exactly once by batch id, and nodes follow.

    meta.json                 schema, time column, delay
    files/<unique name>/      rows as a Spark task wrote them: a small stream log each, which shows
                              up when it is whole
    commits/<batch id>.json   created exclusively: makes a batch's files part of the stream
    end.json                  nothing follows

Partition i of p consists of every p-th file of each commit, in order of commits. Ids count the
on-time tuples of a partition. A tuple is late when it is older than the boundary at the start of
its record: newest time of the partition so far minus the delay, or the watermark of its commit if
that is later. All of this depends on the commits alone, so every reader, and every replay, sees the
same stream.
"""

from __future__ import annotations

import base64
import json
import os
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from holdfast.core.haunit.events import ENOUGH_TUPLES
from holdfast.core.model.ids import BEGINNING_US
from holdfast.core.model.tuples import TupleType, with_time
from holdfast.core.queues.lateness import Lateness
from holdfast.core.wire.sealed_json import encode_sealed
from holdfast.shell.storage.errors import (
    FileDamaged,
    SchemaMismatch,
    StorageError,
    UnknownStream,
)
from holdfast.shell.storage.log_follower import LoggedBatch
from holdfast.shell.storage.logs import LogWriter, open_reader, open_writer
from holdfast.shell.storage.paths import checked_name, sync_path
from holdfast.shell.storage.places import (
    has_files,
    is_remote,
    local_path,
    put_or_read,
    read_if_any,
    store_at,
)
from holdfast.shell.storage.small_files import decode

if TYPE_CHECKING:
    from holdfast.shell.stores.base import CheckpointStore

_RECORD_ROWS = 1 << 17
_RECORD_BYTES = 4 << 20
"""A record has so many rows, or so many bytes: a reader takes it whole."""
_REMOTE_LOOK_INTERVAL_S = 0.1
_AHEAD_BYTES = 4 << 20
_AHEAD_FILES = 16
COMMITS = "commits"
DRAFT = ".draft"
FILES = "files"
_META = "meta.json"
_END = "end.json"


@dataclass(frozen=True, slots=True)
class IngestMeta:
    """What holds for a whole ingest log.

    Attributes:
        schema: Attributes, without the time column.
        time_column: The attribute that holds the event time.
        delay_us: How far tuples may be out of order.
    """

    schema: pa.Schema
    time_column: str
    delay_us: int


@dataclass(frozen=True, slots=True)
class IngestFile:
    """One file of a commit.

    Attributes:
        name: Of its folder under `files/`.
        count: Rows.
        min_time_us: Oldest tuple time.
        max_time_us: Newest tuple time.
        disorder_us: How far a row is older than the newest row before it, at most.
    """

    name: str
    count: int
    min_time_us: int
    max_time_us: int
    disorder_us: int


def read_meta(root: str) -> IngestMeta:
    """The log's description. Raises `UnknownStream` if there is none."""
    found = read_if_any(store_at(root), _META) if has_files(root) else None
    if found is None:
        raise UnknownStream(
            f"{root} is no ingest log: it has no {_META}; if that is lost, restore it from a copy"
        )
    return decode(found, f"{root}/{_META}", _meta_from)


def _meta_from(value: dict[str, Any]) -> IngestMeta:
    schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(value["schema"], validate=True)))
    return IngestMeta(schema, str(value["time"]), int(value["delay_us"]))


def prepare(root: str, meta: IngestMeta) -> None:
    """Make the log, or check that it is one of this description.

    Raises:
        SchemaMismatch: It holds another schema, time column or delay.
    """
    value = {
        "schema": base64.b64encode(meta.schema.serialize().to_pybytes()).decode(),
        "time": meta.time_column,
        "delay_us": meta.delay_us,
    }
    store, content = store_at(root), encode_sealed(value)
    # Looked at first: every batch of Spark comes by here, and what is put is made durable.
    if (read_if_any(store, _META) or put_or_read(store, _META, [content])) == content:
        return
    present = read_meta(root)
    if not present.schema.equals(meta.schema):
        differing = [
            f"{field.name} {field.type}"
            for field in meta.schema
            if field.name not in present.schema.names
            or present.schema.field(field.name).type != field.type
        ]
        raise SchemaMismatch(
            f"{root} holds other columns; differing: {', '.join(differing) or 'order or nulls'}. "
            "Use another checkpointLocation, or the same columns"
        )
    if (present.time_column, present.delay_us) != (meta.time_column, meta.delay_us):
        raise SchemaMismatch(
            f"{root} was begun with time={present.time_column!r} and a delay of "
            f"{present.delay_us} us; use the same, or another checkpointLocation"
        )


def write_file(root: str, meta: IngestMeta, batches: Iterable[pa.RecordBatch]) -> IngestFile | None:
    """Write one Spark task's rows; they count once a commit names the file.

    Raises:
        SchemaMismatch: A batch has other columns, or a null time.
    """
    name = uuid.uuid4().hex
    place = _file_place(root, name)
    draft = place if is_remote(root) else f"{local_path(place)}{DRAFT}"
    timed = with_time(meta.schema)
    writer: LogWriter | None = None
    oldest, newest, disorder = 2**63 - 1, BEGINNING_US, 0
    for rows in _regrouped(batches):
        for start in range(0, rows.num_rows, _RECORD_ROWS):
            batch = _timed(rows.slice(start, _RECORD_ROWS), meta, timed)
            times = batch.column(batch.num_columns - 1).to_numpy()
            if writer is None:
                writer = open_writer(draft, timed, name, 1, is_sole=True)
                newest = int(times[0])
            running = np.maximum(np.maximum.accumulate(times), newest)
            disorder = max(disorder, int((running - times).max()))
            oldest, newest = min(oldest, int(times.min())), int(running[-1])
            writer.append(TupleType.STABLE, writer.next_id, batch, BEGINNING_US, 0)
    if writer is None:
        return None
    writer.end()
    writer.close()
    if not is_remote(root):
        os.rename(draft, local_path(place))
        sync_path(Path(local_path(place)).parent)
    return IngestFile(name, writer.next_id, oldest, newest, disorder)


def _regrouped(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in batches of about a record's size; Spark's own are small."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        is_full = rows + batch.num_rows > _RECORD_ROWS or size + batch.nbytes > _RECORD_BYTES
        if waiting and is_full:
            yield pa.concat_batches(waiting)
            waiting, rows, size = [], 0, 0
        waiting.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
    if waiting:
        yield pa.concat_batches(waiting)


def _timed(rows: pa.RecordBatch, meta: IngestMeta, timed: pa.Schema) -> pa.RecordBatch:
    """The rows in the log's column order, with the time column."""
    missing = [name for name in meta.schema.names if name not in rows.schema.names]
    if missing:
        raise SchemaMismatch(f"the rows lack {', '.join(missing)}")
    columns = [rows.column(rows.schema.get_field_index(f.name)).cast(f.type) for f in meta.schema]
    times = columns[meta.schema.get_field_index(meta.time_column)]
    if times.null_count:
        raise SchemaMismatch(
            f"time column {meta.time_column!r} is null in {times.null_count} rows; filter them "
            f"out first: df.where('{meta.time_column} IS NOT NULL')"
        )
    return pa.RecordBatch.from_arrays(
        [*columns, times.cast(pa.timestamp("us")).cast(pa.int64())], schema=timed
    )


def commit(
    root: str,
    batch_id: int,
    files: Iterable[IngestFile],
    *,
    by: str,
    watermark_us: int | None = None,
) -> bool:
    """Make files part of the stream; False if this batch was committed before.

    Args:
        root: The log.
        batch_id: Commits form the stream in the order of their ids, without gaps.
        files: What the commit adds.
        by: Who numbers the batches: `batch` writes, or the name of a streaming query's log.
        watermark_us: What is older, here and in later commits, is late; None: nothing is said.

    Raises:
        StorageError: Another kind of writer has used the id.
    """
    value: dict[str, Any] = {
        "by": by,
        "at_us": int(time.time() * 1e6),
        "files": [[f.name, f.count, f.min_time_us, f.max_time_us, f.disorder_us] for f in files],
    }
    if watermark_us is not None:
        value["watermark_us"] = watermark_us
    content = _json(value)
    # It may be there from an attempt whose answer was lost: names of files are unique.
    found = put_or_read(store_at(root), _commit_name(batch_id), [content], is_soon=True)
    if found == content:
        return True
    present = json.loads(found)["by"]
    if present != by:
        raise StorageError(
            f"{root}: batch {batch_id} was written by {present!r}, this is {by!r}; batch writes "
            "and a streaming query cannot share an ingest log, nor can two queries"
        )
    return False


def append_batch(root: str, files: Sequence[IngestFile]) -> None:
    """Commit a batch write after all others, however many write at the same time."""
    while True:
        names = store_at(root).names(COMMITS)
        taken = [int(Path(name).stem) for name in names if name.endswith(".json")]
        if commit(root, max(taken, default=-1) + 1, files, by="batch"):
            return


def _commit_name(batch_id: int) -> str:
    return f"{COMMITS}/{batch_id:020d}.json"


def _file_place(root: str, name: str) -> str:
    return os.path.join(root, FILES, name)


def _json(value: dict[str, Any]) -> bytes:
    return json.dumps(value).encode()


def end(root: str) -> None:
    """Nothing will follow."""
    put_or_read(store_at(root), _END, [b"{}"])


def has_ended(root: str) -> bool:
    """Whether nothing will follow."""
    return has_files(root) and read_if_any(store_at(root), _END) is not None


class IngestLogReader:
    """Follows one partition of an ingest log from an id on; never waits."""

    def __init__(
        self,
        root: str,
        partition: int,
        partitions: int,
        from_id: int = 0,
        *,
        is_in_records: bool = False,
    ) -> None:
        """Start at `from_id`; the log need not exist yet.

        Args:
            root: The log.
            partition: Which partition to read.
            partitions: Of how many.
            from_id: Of the first tuple.
            is_in_records: Whether it must be the first one of its record.
        """
        self._root = root
        self._is_in_records = is_in_records
        self._store: CheckpointStore | None = None
        self._partition = partition
        self._partitions = partitions
        self._from_id = from_id
        self.next_id = 0
        self.ended = False
        self._meta: IngestMeta | None = None
        self._lateness = Lateness(0)
        self._commit = 0
        self._committed_us = 0
        self._waiting: list[IngestFile] = []
        self._records: Iterator[LoggedBatch] | None = None
        self._whole: IngestFile | None = None  # what is being read, if no tuple of it is late
        self._ahead: dict[str, list[LoggedBatch]] = {}  # of files that no commit has named yet
        self._late: list[pa.RecordBatch] = []
        self._look_at_s = 0.0
        self.rows_read = 0  # late ones and those before the start included

    @property
    def boundary_us(self) -> int:
        """Nothing older follows."""
        return self._lateness.boundary_us

    def poll(self, max_rows: int = 1 << 16, max_bytes: int = 64 << 20) -> list[LoggedBatch]:
        """The next on-time tuples, as committed; see `StreamLogReader.poll`.

        Raises:
            StorageError: What there is, is not what was committed; or it begins within a record
                when it must not.
        """
        taken: list[LoggedBatch] = []
        rows = size = 0
        while rows < min(max_rows, ENOUGH_TUPLES) and size < max_bytes:
            record = self._next_record(asks_for_end=not taken)
            if record is None:
                break
            batch = self._accept(record)
            if batch is not None:
                taken.append(batch)
                rows += batch.count
                size += batch.batch.nbytes
        return taken

    def _next_record(self, *, asks_for_end: bool) -> LoggedBatch | None:
        while True:
            if self._records is not None:
                record = next(self._records, None)
                if record is not None:
                    return record
                self._records = None
            if not self._waiting and not self._next_commit(asks_for_end=asks_for_end):
                return None
            if self._waiting:
                self._open(self._waiting.pop(0))

    def _next_commit(self, *, asks_for_end: bool) -> bool:
        """Take the next commit's files; False when there is none yet.

        What has been read goes its way before it is asked whether that was the end.
        """
        if self.ended or time.monotonic() < self._look_at_s:
            return False
        if self._store is None:
            self._store = store_at(self._root)
        name = _commit_name(self._commit)
        found = read_if_any(self._store, name)
        if found is None and asks_for_end and read_if_any(self._store, _END) is not None:
            # The order matters: a commit made before the end is seen before the end.
            found = read_if_any(self._store, name)
            self.ended = found is None
        if found is None:
            if asks_for_end and is_remote(self._root):
                self._look_at_s = time.monotonic() + _REMOTE_LOOK_INTERVAL_S
            return False
        self._know_meta()
        value = json.loads(found)
        self._committed_us = int(value.get("at_us", 0))
        self._lateness.promise(value.get("watermark_us", BEGINNING_US))
        files = [IngestFile(checked_name(entry[0]), *entry[1:]) for entry in value["files"]]
        self._waiting = files[self._partition :: self._partitions]
        self._commit += 1
        return True

    def _know_meta(self) -> IngestMeta:
        if self._meta is None:
            self._meta = read_meta(self._root)
            self._lateness = Lateness(self._meta.delay_us)
        return self._meta

    def _open(self, file: IngestFile) -> None:
        """Read a file, or pass over it when all of it lies before the start."""
        delay_us = self._know_meta().delay_us
        is_on_time = file.disorder_us <= delay_us and file.min_time_us >= self.boundary_us
        if is_on_time and self.next_id + file.count <= self._from_id:
            self.next_id += file.count
            self.rows_read += file.count
            self._lateness.advance(file.max_time_us)
            return
        self._whole = file if is_on_time else None
        place, ahead = _file_place(self._root, file.name), self._ahead.pop(file.name, None)
        self._records = _counted(place, file.count, _records(place) if ahead is None else ahead)

    def read_ahead(self, names: Sequence[str]) -> None:
        """Read small files that commits may name, so that little is left to be done then.

        The newest of them, and no more than 4 MB; of all so far 16 are kept. Raises nothing: what
        is wrong with a file counts when a commit names it.
        """
        left = _AHEAD_BYTES
        for name in reversed(names[-_AHEAD_FILES:]):
            with suppress(StorageError, OSError):
                place = _file_place(self._root, checked_name(name))
                left -= sum(entry.stat().st_size for entry in os.scandir(local_path(place)))
                if left < 0:
                    return
                self._ahead[name] = list(_records(place))
                if len(self._ahead) > _AHEAD_FILES:  # Nobody may ever name the oldest.
                    del self._ahead[next(iter(self._ahead))]

    def _accept(self, record: LoggedBatch) -> LoggedBatch | None:
        """The on-time tuples of a record from the start id on; late ones are put aside."""
        self.rows_read += record.count
        if self._whole is not None and self._whole.count == record.count:
            batch, late = record.batch, None
            self._lateness.advance(self._whole.max_time_us)
        else:
            batch, late = self._lateness.split(record.batch)
        if late is not None and self.next_id >= self._from_id:
            self._late.append(late)
        first_id = self.next_id
        self.next_id += batch.num_rows
        if self.next_id <= self._from_id or batch.num_rows == 0:
            return None
        if first_id < self._from_id:
            if self._is_in_records:
                raise StorageError(f"{self._root}: no record begins with tuple {self._from_id}")
            batch, first_id = batch.slice(self._from_id - first_id), self._from_id
        return LoggedBatch(
            record.tuple_type,
            record.incarnation,
            first_id,
            batch.num_rows,
            self.boundary_us,
            self._committed_us,
            batch,
        )

    def take_late(self) -> list[pa.RecordBatch]:
        """Late tuples met since the last call, time column included."""
        late, self._late = self._late, []
        return late

    def close(self) -> None:
        """Drop what is open."""
        self._records = None
        if self._store is not None:
            self._store.close()
            self._store = None


class CommitCounter:
    """Counts the rows that one partition holds, from what commits say. Cost: O(new commits)."""

    def __init__(self, root: str, partition: int, partitions: int) -> None:
        """Begin at the first commit; the log need not exist yet."""
        self._root = root
        self._partition = partition
        self._partitions = partitions
        self._commit = 0
        self._rows = 0

    def rows(self) -> int:
        """All rows so far, late ones included."""
        if not has_files(self._root):
            return 0
        store = store_at(self._root)
        while (found := read_if_any(store, _commit_name(self._commit))) is not None:
            files = json.loads(found)["files"][self._partition :: self._partitions]
            self._rows += sum(IngestFile(*entry).count for entry in files)
            self._commit += 1
        store.close()
        return self._rows


def _counted(place: str, count: int, records: Iterable[LoggedBatch]) -> Iterator[LoggedBatch]:
    """Raises `StorageError` behind the last one, unless they are as many rows as committed."""
    seen = 0
    for record in records:
        seen += record.count
        yield record
    if seen != count:
        raise FileDamaged(place, f"it holds {seen} rows, its commit says {count}")


def _records(place: str) -> Iterator[LoggedBatch]:
    reader = open_reader(place, is_sole=True, is_finished=True)
    try:
        while not reader.ended:
            batches = reader.poll(max_rows=1, max_bytes=1)
            if not batches and not reader.ended:
                break
            yield from batches
    finally:
        with suppress(OSError):
            reader.close()
