"""The rows of users' files as the records of an ingest log, decoded beside those who take them."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from holdfast.core.model.tuples import TupleType, with_time
from holdfast.shell.storage.log_follower import LoggedBatch
from holdfast.shell.storage.user_files import UserFileDamaged
from holdfast.shell.storage.user_rows import DEAD, BadRow, Found, read_rows, times_said

if TYPE_CHECKING:
    from holdfast.core.queues.lateness import FileTimes
    from holdfast.core.queues.recording import IngestFile, UserFile
    from holdfast.shell.storage.ingest_log import IngestMeta
    from holdfast.shell.storage.parquet_ends import KeepsNone

_AHEAD_BYTES: Final = 32 << 20


class RecordsAhead:
    """Records that a thread takes from an iterator, up to `_AHEAD_BYTES` before they are asked for.

    Whatever the iterator raises, its reader meets behind the records before it.
    """

    def __init__(self, records: Iterator[LoggedBatch]) -> None:
        """Begin; nobody else may use the iterator."""
        self._records = records
        self._changed = threading.Condition()
        self._waiting: deque[LoggedBatch] = deque()
        self._waiting_bytes = 0
        self._error: BaseException | None = None
        self._is_over = self._is_closing = False
        self._thread = threading.Thread(target=self._decode_on, name="decode", daemon=True)
        self._thread.start()

    def _decode_on(self) -> None:
        try:
            for record in self._records:
                with self._changed:
                    self._waiting.append(record)
                    self._waiting_bytes += record.batch.nbytes
                    self._changed.notify()
                    self._changed.wait_for(self._has_room)
                    if self._is_closing:
                        break
        except BaseException as error:  # Raised again where it would have been met.
            self._error = error
        if isinstance(self._records, Generator):
            self._records.close()
        with self._changed:
            self._is_over = True
            self._changed.notify()

    def _has_room(self) -> bool:
        return self._is_closing or self._waiting_bytes < _AHEAD_BYTES

    def __iter__(self) -> Iterator[LoggedBatch]:
        """All records, in order; waits for each."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._is_over)
                if not self._waiting:
                    if self._error is not None:
                        raise self._error
                    return
                record = self._waiting.popleft()
                self._waiting_bytes -= record.batch.nbytes
                self._changed.notify()
            yield record

    def close(self) -> None:
        """Take no more, and let go of the file."""
        with self._changed:
            self._is_closing = True
            self._changed.notify()
        self._thread.join()


def user_times(meta: IngestMeta, file: UserFile, now_us: int) -> FileTimes | None:
    """What a user's file says of its times by itself; None: its rows must be read.

    Args:
        meta: Of the log whose commit will name it.
        file: Which one.
        now_us: The clock.

    Raises:
        UserFileError: It is not as it was listed, or not of its format.
    """
    assert meta.user_files is not None
    until_us = None if meta.ahead_us is None else now_us
    return times_said(file, meta.user_files, meta.schema, meta.time_column, until_us)


def user_rows(
    meta: IngestMeta,
    file: UserFile,
    columns: tuple[str, ...] | None,
    pruning: KeepsNone | None = None,
) -> Iterator[Found]:
    """The rows of a user's file, their times in a last column, the same ones whenever it is read.

    Args:
        meta: Of the log whose commit names the file, or will.
        file: Which one.
        columns: What is read of it, beside the time; None: all.
        pruning: Of which groups of its rows nothing but the time is read; None: of none.

    Raises:
        UserFileError: It is not as it was, or not what format and schema say.
    """
    assert meta.user_files is not None
    schema = meta.declared
    if schema is None:
        names = meta.schema.names
        own = names[: -len(DEAD)] if meta.user_files.has_dead_letters else names
        schema = pa.schema([meta.schema.field(name) for name in own])
    return read_rows(file, meta.user_files, schema, meta.time_column, columns, pruning)


def user_records(
    meta: IngestMeta,
    file: IngestFile,
    columns: tuple[str, ...] | None,
    pruning: KeepsNone | None = None,
) -> Iterator[LoggedBatch]:
    """The rows of a user's file as records; bad ones have the time of the file's newest row.

    Args and errors as of `user_rows`.
    """
    assert file.user is not None
    assert meta.user_files is not None
    timed, first_id = with_time(meta.schema), 0
    for found in user_rows(meta, file.user, columns, pruning):
        batch = found.parts[0]
        if meta.user_files.has_dead_letters:
            made = [_with_dead(rows, timed, file) for rows in found.parts]
            batch = pa.concat_batches(made) if len(made) > 1 else made[0]
        assert isinstance(batch, pa.RecordBatch)
        _require_said(file, batch)
        count = batch.num_rows
        yield LoggedBatch(TupleType.STABLE, 1, first_id, count, found.behind_us, 0, batch)
        first_id += count


def _require_said(file: IngestFile, batch: pa.RecordBatch) -> None:
    """Raise `UserFileDamaged` if rows have times of which the commit says that there are none."""
    times = batch.column(batch.num_columns - 1).to_numpy()
    if int(times.min()) < file.min_time_us or int(times.max()) > file.max_time_us:
        raise UserFileDamaged(
            f"{file.name} holds times that are not within what it says of them; write it anew, and "
            "begin again in a new checkpointLocation"
        )


def _with_dead(rows: pa.RecordBatch | BadRow, timed: pa.Schema, file: IngestFile) -> pa.RecordBatch:
    """Rows of a log with dead letters."""
    if isinstance(rows, BadRow):
        said = [file.name, rows.number, rows.text, rows.reason, file.max_time_us]
        nulls = [None] * (len(timed) - len(said))
        fields = zip([*nulls, *said], timed, strict=True)
        return pa.RecordBatch.from_arrays([pa.array([v], f.type) for v, f in fields], schema=timed)
    columns, times = rows.columns[:-1], rows.columns[-1]
    nulls = [pa.nulls(rows.num_rows, field.type) for field in DEAD]
    return pa.RecordBatch.from_arrays([*columns, *nulls, times], schema=timed)
