"""The ingest log: what Spark writes into, exactly once by batch id, and nodes follow.

    meta.json                 schema, time column, delay
    files/<unique name>/      rows as a Spark task wrote them: a small stream log each, which shows
                              up when it is whole
    commits/<batch id>.json   created exclusively: makes a batch's files part of the stream, and may
                              say that nothing follows
    idle/<batch id>.json      created exclusively: the watermark that Spark, idle behind the batch,
                              came to; or that the next batch came first

Which commits count, and who may write one, is decided in core/queues/recording.

Partition i of p consists of every p-th file of each commit, in order of commits. Ids count the
on-time tuples of a partition. What is late is told by the commits before a tuple's own, for all
partitions alike (`core/queues/lateness.py`). All of this depends on what is in the log alone, so
every reader, and every replay, sees the same stream.
"""

from __future__ import annotations

import base64
import os
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from holdfast.core.haunit.events import ENOUGH_TUPLES
from holdfast.core.model.ids import BEGINNING_US, NO_ID
from holdfast.core.model.tuples import TupleType, outside, with_time
from holdfast.core.queues.beginning import Beginning
from holdfast.core.queues.committed_stream import NOTHING, CommittedStream
from holdfast.core.queues.lateness import NO_COMMITS, CommitTimes, FileTimesMaker
from holdfast.core.queues.reach import DAY_US
from holdfast.core.queues.recording import (
    Commit,
    Counted,
    Following,
    IngestFile,
    Recording,
)
from holdfast.core.wire.sealed_json import encode_sealed
from holdfast.shell.storage.commit_counting import first_id_of, share_of
from holdfast.shell.storage.commit_store import CommitStore
from holdfast.shell.storage.errors import (
    FileDamaged,
    LogEnded,
    NullsMismatch,
    SchemaMismatch,
    StorageError,
    TuplesRemoved,
    UnknownStream,
)
from holdfast.shell.storage.log_follower import LoggedBatch
from holdfast.shell.storage.logs import LogWriter, open_reader, open_writer
from holdfast.shell.storage.parquet_ends import KeepsNone
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
from holdfast.shell.storage.user_records import RecordsAhead, user_records
from holdfast.shell.storage.user_rows import FilesFormat

_RECORD_ROWS = 1 << 17
_RECORD_BYTES = 4 << 20
"""A record has so many rows, or so many bytes: a reader takes it whole."""
_REMOTE_LOOK_INTERVAL_S = 0.1
_LARGE_BYTES = 1 << 20
"""Of a user's file from this size on, a thread decodes the rows."""
_AHEAD_BYTES = 4 << 20
_AHEAD_FILES = 16
BATCH = "batch"
"""Who has numbered a commit that no streaming query has."""
DRAFT = ".draft"
FILES = "files"
IDLE = "idle"
VERSION = 3
_META = "meta.json"


@dataclass(frozen=True, slots=True)
class IngestMeta:
    """What holds for a whole ingest log.

    Attributes:
        schema: Attributes, without the time column.
        time_column: The attribute that holds the event time.
        delay_us: How far tuples may be out of order, if no watermark is told.
        ahead_us: How far a row may be ahead of the stream, and of the clock, and still move time;
            None: at will.
        user_files: How rows lie in users' files, if commits name those.
        declared: The columns of users' files with what must not be null in them, at any depth, if
            the schema does not say it all: a dead letter is null in all of them.
    """

    schema: pa.Schema
    time_column: str
    delay_us: int
    ahead_us: int | None = DAY_US
    user_files: FilesFormat | None = None
    declared: pa.Schema | None = None


def read_meta(root: str) -> IngestMeta:
    """The log's description.

    Raises:
        UnknownStream: There is none.
        SchemaMismatch: The log was begun by a version that judged otherwise what is late.
    """
    found = read_if_any(store_at(root), _META) if has_files(root) else None
    if found is None:
        raise UnknownStream(
            f"{root} is no ingest log: it has no {_META}; if that is lost, restore it from a copy"
        )
    version, meta = decode(found, f"{root}/{_META}", _meta_from)
    if version != VERSION:
        raise SchemaMismatch(
            f"{root} is an ingest log of version {version}, this is version {VERSION}, in which "
            "other rows are late; finish it with the version that began it, or record the source "
            "anew at another checkpointLocation"
        )
    return meta


def _meta_from(value: dict[str, Any]) -> tuple[int, IngestMeta]:
    """The log's version, and what holds for it."""
    declared = value.get("declared")
    ahead_us, said = value.get("ahead_us"), value.get("user_files")
    user_files = None
    if said is not None:
        options = tuple((str(name), str(given)) for name, given in said["options"])
        user_files = FilesFormat(
            str(said["format"]), options, "dead_letters" in said, "exact" in said
        )
    meta = IngestMeta(
        _schema_of(value["schema"]),
        str(value["time"]),
        int(value["delay_us"]),
        None if ahead_us is None else int(ahead_us),
        user_files,
        None if declared is None else _schema_of(declared),
    )
    return int(value.get("version", VERSION - 1)), meta


def _schema_of(text: str) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text, validate=True)))


def _text_of(schema: pa.Schema) -> str:
    return base64.b64encode(schema.serialize().to_pybytes()).decode()


def prepare(root: str, meta: IngestMeta) -> None:
    """Make the log, or check that it is one of this description.

    Raises:
        SchemaMismatch: It holds another schema, time column or delay.
    """
    value: dict[str, Any] = {
        "version": VERSION,
        "schema": _text_of(meta.schema),
        "time": meta.time_column,
        "delay_us": meta.delay_us,
        "ahead_us": meta.ahead_us,
    }
    if meta.user_files is not None:
        value["user_files"] = {
            "format": meta.user_files.name,
            "options": [list(option) for option in meta.user_files.options],
            **({"dead_letters": True} if meta.user_files.has_dead_letters else {}),
            **({"exact": True} if meta.user_files.is_exact else {}),
        }
    if meta.declared is not None:
        value["declared"] = _text_of(meta.declared)
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
        if not differing and present.schema.names == meta.schema.names:
            raise NullsMismatch(root)
        raise SchemaMismatch(
            f"{root} holds other columns; differing: {', '.join(differing) or 'their order'}. "
            "Use another checkpointLocation, or the same columns (files and tables have schema=...)"
        )
    if present.user_files != meta.user_files:
        raise SchemaMismatch(
            f"{root} was begun with {present.user_files or 'rows that Spark writes'}; use the "
            "same, or another checkpointLocation"
        )
    if not (present.declared or pa.schema([])).equals(meta.declared or pa.schema([])):
        raise NullsMismatch(root)
    if replace(present, schema=meta.schema, declared=meta.declared) != meta:
        raise SchemaMismatch(
            f"{root} was begun with time={present.time_column!r}, a delay of {present.delay_us} us "
            f"and at most {present.ahead_us} us ahead; use the same, or another checkpointLocation"
        )


def write_file(root: str, meta: IngestMeta, batches: Iterable[pa.RecordBatch]) -> IngestFile | None:
    """Write one Spark task's rows; they count once a commit names the file.

    Raises:
        SchemaMismatch: A batch has other columns, or a time that is null or outside of the years
            1 to 9999.
    """
    name = uuid.uuid4().hex
    place = file_place(root, name)
    draft = place if is_remote(root) else f"{local_path(place)}{DRAFT}"
    timed = with_time(meta.schema)
    writer: LogWriter | None = None
    times = FileTimesMaker(meta.ahead_us, _now_us())
    for rows in _regrouped(batches):
        for start in range(0, rows.num_rows, _RECORD_ROWS):
            batch = _timed(rows.slice(start, _RECORD_ROWS), meta, timed)
            if writer is None:
                writer = open_writer(draft, timed, name, 1, is_sole=True)
            times.add(batch.column(batch.num_columns - 1).to_numpy())
            writer.append(TupleType.STABLE, writer.next_id, batch, BEGINNING_US, 0)
    if writer is None:
        return None
    writer.end()
    writer.close()
    if not is_remote(root):
        os.rename(draft, local_path(place))
        sync_path(Path(local_path(place)).parent)
    made = times.made()
    bounds = (made.oldest_us, made.newest_us, made.disorder_us)
    return IngestFile(name, made.count, *bounds, made.spans)


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
    times_us = times.cast(pa.timestamp("us")).cast(pa.int64())
    beyond = outside(times_us.to_numpy())
    if beyond:
        raise SchemaMismatch(
            f"time column {meta.time_column!r} is outside of the years 1 to 9999 in {len(beyond)} "
            f"rows, the first time of which is {beyond[0]} us since 1970; filter them out first: "
            f'df.where("year({meta.time_column}) BETWEEN 1 AND 9999")'
        )
    return pa.RecordBatch.from_arrays([*columns, times_us], schema=timed)


def commit(
    root: str,
    batch_id: int,
    files: Iterable[IngestFile],
    *,
    by: str,
    watermark_us: int | None = None,
    origin: str = "",
    ends: bool = False,
) -> bool:
    """Make files part of the stream; False if this batch was committed before.

    Args:
        root: The log.
        batch_id: Commits form the stream in the order of their ids, without gaps.
        files: What the commit adds.
        by: Who numbers the batches: `batch` writes, or the name of a streaming query's log.
        watermark_us: Spark's watermark during the batch: what is older in later commits is late;
            None: there is none, and what is late follows from the delay.
        origin: Stands for the offsets that the batch was read from; empty: nobody knows.
        ends: Whether nothing follows.

    Raises:
        LogEnded: The log has ended before this batch.
        StorageError: Another kind of writer has used the id, the batch was made from other offsets,
            or the one before it is missing.
    """
    idle_us = None
    if watermark_us is not None and batch_id:
        idle_us = _settle_idle(root, batch_id - 1, None)
    made = Commit(by, tuple(files), _now_us(), watermark_us, idle_us, origin, ends)
    return _record(root, Recording(made, batch_id)).is_ours


def append_batch(root: str, files: Iterable[IngestFile], *, ends: bool = False) -> None:
    """Commit a batch write after all others, however many write at the same time.

    Raises:
        LogEnded: The log has ended.
        StorageError: A streaming query writes it.
    """
    _record(root, Recording(Commit(BATCH, tuple(files), _now_us(), ends=ends)))


def end(root: str) -> None:
    """Nothing will follow; twice does no harm."""
    with suppress(LogEnded):
        append_batch(root, (), ends=True)


def has_ended(root: str) -> bool:
    """Whether nothing will follow. Raises as `read_meta`, but for a log that is not there yet."""
    try:
        read_meta(root)
    except UnknownStream:
        return False
    store = CommitStore(root)
    try:
        return store.has_ended()
    finally:
        store.close()


def _record(root: str, recording: Recording) -> Counted:
    store = CommitStore(root)
    try:
        return store.record(recording)
    finally:
        store.close()


def _now_us() -> int:
    return int(time.time() * 1e6)


def tell_idle(root: str, batch_id: int, watermark_us: int) -> None:
    """Spark is idle behind a batch, and has come to this watermark; too late, it has no effect."""
    _settle_idle(root, batch_id, watermark_us)


def _settle_idle(root: str, batch_id: int, watermark_us: int | None) -> int | None:
    """The watermark told behind a batch, or that none was before the next; who comes first says.

    A reader that has seen neither the next batch nor a word of idleness may see either one first.
    Settled before the batch shows up, the word is the same for those who read both at once.
    """
    content = encode_sealed({} if watermark_us is None else {"watermark_us": watermark_us})
    name = _idle_name(batch_id)
    found = put_or_read(store_at(root), name, [content], is_soon=True)
    return decode(found, os.path.join(root, name), _watermark_from)


def _watermark_from(value: dict[str, Any]) -> int | None:
    return int(value["watermark_us"]) if value else None


def _idle_name(batch_id: int) -> str:
    return f"{IDLE}/{batch_id:020d}.json"


def file_place(root: str, name: str) -> str:
    """Where a file of the log lies."""
    return os.path.join(root, FILES, checked_name(name))


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
        columns: tuple[str, ...] | None = None,
        pruning: KeepsNone | None = None,
    ) -> None:
        """Start at `from_id`; the log need not exist yet.

        Args:
            root: The log.
            partition: Which partition to read.
            partitions: Of how many.
            from_id: Of the first tuple.
            is_in_records: Whether it must be the first one of its record.
            columns: What is read of users' files, beside the time; the rest comes as nulls. None:
                all of it.
            pruning: Of which of their rows nothing but the time is read; None: of none.
        """
        self._root = root
        self._columns = columns
        self._pruning = pruning
        self._is_in_records = is_in_records
        self._commits: CommitStore | None = None
        self._following = Following()
        self._beginning: Beginning | None = None
        self._partition = partition
        self._partitions = partitions
        self._from_id = from_id
        self.ended = False
        self._meta: IngestMeta | None = None
        self._stream = CommittedStream(0, from_id)
        self._awaits_idle = False  # behind the last commit, a word of Spark's idleness
        self._committed_us = 0
        self._waiting: list[IngestFile] = []
        self._records: Iterator[LoggedBatch] | None = None
        self._ahead: dict[str, list[LoggedBatch]] = {}  # of files that no commit has named yet
        self._decoding: dict[str, RecordsAhead] = {}  # users' files, in the order of reading
        self._look_at_s = 0.0

    @property
    def boundary_us(self) -> int:
        """Nothing older follows."""
        return self._stream.boundary_us

    @property
    def next_id(self) -> int:
        """Of the next tuple."""
        return self._stream.next_id

    @property
    def rows_read(self) -> int:
        """Late ones and those before the start included."""
        return self._stream.rows_read

    @property
    def late_rows(self) -> int:
        """How many were late, those before the start included."""
        return self._stream.late_rows

    @property
    def warning(self) -> str:
        """What the user should know of the rows so far; empty: nothing."""
        rows, meta = self._stream.rows_ahead, self._meta
        if not rows or meta is None or meta.ahead_us is None:
            return ""
        return (
            f"{rows} rows in {self._root} are more than {meta.ahead_us // 1_000_000} s ahead of "
            f"the others, and of the clock, by their {meta.time_column}; time does not follow them"
        )

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
                try:
                    record = next(self._records, None)
                except (StorageError, OSError) as error:
                    self._require_kept(self._following.next_number - 1, error)
                    raise
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
        commit = self._commit_after()
        if commit is None:
            self.ended = self._following.ended and asks_for_end
            self._look_whether_idle()
            if asks_for_end and is_remote(self._root):
                self._look_at_s = time.monotonic() + _REMOTE_LOOK_INTERVAL_S
            return False
        self._know_meta()
        self._committed_us = commit.at_us
        self._waiting = list(commit.files[self._partition :: self._partitions])
        times = CommitTimes(
            [file.times for file in commit.files],
            commit.watermark_us,
            commit.idle_us,
            commit.at_us,
        )
        self._stream.begin(times, [file.times for file in self._waiting])
        self._awaits_idle = commit.watermark_us is not None
        return True

    def _commit_after(self) -> Commit | None:
        """The next commit; of a log of which commits were removed, the first is the one kept."""
        while True:
            if self._commits is None:
                self._commits = CommitStore(self._root)
                self._beginning = self._commits.beginning()
                if self._beginning is not None:
                    self._following = Following(self._beginning.first_commit)
            try:
                return self._commits.next_commit(self._following)
            except StorageError as error:
                if self._meta is not None:
                    self._require_kept(self._following.next_number, error)
                elif self._is_removed(self._following.next_number):
                    self._commits = None  # Since the beginning was looked at.
                    continue
                raise

    def _is_removed(self, number: int) -> bool:
        """Whether a commit is not kept any more."""
        assert self._commits is not None
        beginning = self._commits.beginning()
        return beginning is not None and beginning.first_commit > number

    def _require_kept(self, number: int, error: Exception) -> None:
        """Raise `TuplesRemoved` if that is why a commit, or a file of it, is not there."""
        if self._is_removed(number):
            first_id = first_id_of(self._root, self._partition, self._partitions)
            raise TuplesRemoved(self._root, self._stream.next_id, first_id) from error

    def _look_whether_idle(self) -> None:
        """Whether a watermark was told behind the last commit, while there is no other one."""
        if self._awaits_idle:
            name = _idle_name(self._following.next_number - 1)
            found = read_if_any(store_at(self._root), name)
            if found is not None:
                self._awaits_idle = False
                watermark_us = decode(found, os.path.join(self._root, name), _watermark_from)
                if watermark_us is not None:
                    self._stream.idle(watermark_us)

    def _know_meta(self) -> IngestMeta:
        if self._meta is None:
            self._meta = read_meta(self._root)
            meta, begun = self._meta, (NO_COMMITS, NOTHING)
            if self._beginning is not None:
                where = self._partition, self._partitions
                share = share_of(self._beginning, self._root, *where)
                if self._from_id < share.next_id:
                    raise TuplesRemoved(self._root, self._from_id, share.next_id)
                begun = self._beginning.standing, share
            self._stream = CommittedStream(meta.delay_us, self._from_id, meta.ahead_us, *begun)
        return self._meta

    def _open(self, file: IngestFile) -> None:
        """Read a file, or pass over it when all of it lies before the start."""
        if not self._stream.enter(file.times):
            return
        if file.user is not None:
            self._records = _counted(file.name, file.count, self._user_records(file))
            return
        place = file_place(self._root, file.name)
        ahead: Iterable[LoggedBatch] | None = self._ahead.pop(file.name, None)
        assert self._commits is not None
        where = self._commits, self._following.next_number - 1
        if ahead is None:
            ahead = _own_records(self._root, *where, file, self._know_meta())
        self._records = _counted(place, file.count, ahead)

    def _user_records(self, file: IngestFile) -> Iterator[LoggedBatch]:
        """The rows of a user's file; a thread decodes those of a large one, and of the next one."""
        meta, of = self._know_meta(), (self._columns, self._pruning)
        if file.user is None or file.user.size_bytes < _LARGE_BYTES:
            return user_records(meta, file, *of)
        for wanted in (file, *self._waiting[:1]):
            is_large = wanted.user is not None and wanted.user.size_bytes >= _LARGE_BYTES
            if is_large and wanted.name not in self._decoding:
                rows = user_records(meta, wanted, *of)
                self._decoding[wanted.name] = RecordsAhead(rows)
        self._drop_decoded(file.name)
        return iter(self._decoding[file.name])

    def _drop_decoded(self, name: str) -> None:
        """Files before this one have been read."""
        while (first := next(iter(self._decoding), name)) != name:
            self._decoding.pop(first).close()

    def read_ahead(self, names: Sequence[str]) -> None:
        """Read small files that commits may name, so that little is left to be done then.

        The newest of them, and no more than 4 MB; of all so far 16 are kept. Raises nothing: what
        is wrong with a file counts when a commit names it.
        """
        left = _AHEAD_BYTES
        for name in reversed(names[-_AHEAD_FILES:]):
            with suppress(StorageError, OSError):
                place = file_place(self._root, name)
                left -= sum(entry.stat().st_size for entry in os.scandir(local_path(place)))
                if left < 0:
                    return
                self._ahead[name] = list(_records(place))
                if len(self._ahead) > _AHEAD_FILES:  # Nobody may ever name the oldest.
                    del self._ahead[next(iter(self._ahead))]

    def _accept(self, record: LoggedBatch) -> LoggedBatch | None:
        """The on-time tuples of a record from the start id on; late ones are put aside."""
        accepted = self._stream.accept(record.batch, record.boundary_us)
        if accepted is None:
            return None
        if self._is_in_records and not accepted.is_whole:
            raise StorageError(f"{self._root}: no record begins with tuple {self._from_id}")
        return LoggedBatch(
            record.tuple_type,
            record.incarnation,
            accepted.first_id,
            accepted.batch.num_rows,
            accepted.boundary_us,
            self._committed_us,
            accepted.batch,
        )

    def take_late(self) -> list[pa.RecordBatch]:
        """Late tuples met since the last call, time column included."""
        return self._stream.take_late()

    def close(self) -> None:
        """Drop what is open."""
        self._records = None
        for decoding in self._decoding.values():
            decoding.close()
        self._decoding.clear()
        if self._commits is not None:
            self._commits.close()
            self._commits = None


def late_rows_of(root: str, partitions: int) -> int:
    """How many rows of a log are late. Cost: O(commits and rows of files with late ones)."""
    late_rows = 0
    for partition in range(partitions):
        reader = IngestLogReader(root, partition, partitions, NO_ID)
        while reader.poll():
            pass
        late_rows += reader.late_rows
        reader.close()
    return late_rows


def records_of(
    root: str, commits: CommitStore, number: int, file: IngestFile, meta: IngestMeta
) -> Iterable[LoggedBatch]:
    """The records of one file of a commit, time column last; other columns of users' are null.

    Raises as `IngestLogReader.poll`.
    """
    if file.user is not None:
        return _counted(file.name, file.count, user_records(meta, file, ()))
    own = _own_records(root, commits, number, file, meta)
    return _counted(file_place(root, file.name), file.count, own)


def _own_records(
    root: str, commits: CommitStore, number: int, file: IngestFile, meta: IngestMeta
) -> Iterator[LoggedBatch]:
    """The records of a commit's file, in a pack or where it was written.

    If it goes into a pack meanwhile, the rest comes from there. They may be too few: `_counted`.
    """
    rows, schema = 0, with_time(meta.schema)
    packed = commits.packed(number, file, schema)
    if packed is None:
        try:
            for record in _records(file_place(root, file.name)):
                rows += record.count
                yield record
        except (StorageError, OSError):
            commits.packs.look()
            if not commits.packs.holds(number):
                raise
        if rows == file.count:
            return
        commits.packs.look()
        packed = commits.packed(number, file, schema)
    passed = 0
    for record in packed or ():
        passed += record.count
        if passed > rows:
            yield record


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
