"""Times of Parquet files that are known from their statistics."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from holdfast.core.model.ids import BEGINNING_US
from holdfast.core.queues.recording import IngestFile
from holdfast.shell.sources.file_recorder import FileRecorder, FilesSource
from holdfast.shell.storage import ingest_log, user_rows
from holdfast.shell.storage.ingest_log import IngestLogReader, IngestMeta, commit, prepare
from holdfast.shell.storage.log_follower import LoggedBatch
from holdfast.shell.storage.paths import ingest_path
from holdfast.shell.storage.user_files import UserFileDamaged, list_files
from holdfast.shell.storage.user_records import RecordsAhead, user_records, user_times
from holdfast.shell.storage.user_rows import FilesFormat

SCHEMA = pa.schema([("at", pa.timestamp("us", tz="UTC")), ("k", pa.int64())])
META = IngestMeta(SCHEMA, "at", 0, None, FilesFormat("parquet"))
DAY_US = 86_400_000_000


def write(path: Path, times: list[int], **options: object) -> IngestFile | None:
    """A file with these times, and what its footer says of it."""
    rows = pa.table([pa.array(times, pa.int64()), range(len(times))], names=["at", "k"])
    parquet.write_table(rows.cast(SCHEMA), path, row_group_size=7, **options)
    (listed,) = list_files(str(path))
    said = user_times(META, listed.file, 0)
    if said is None:
        return None
    span = said.oldest_us, said.newest_us, said.disorder_us
    return IngestFile(str(path), said.count, *span, (), listed.file)


@pytest.mark.parametrize("columns", [None, (), ("k",)])
def test_no_row_is_older_than_what_was_said_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, columns: tuple[str, ...] | None
) -> None:
    monkeypatch.setattr(user_rows, "_BATCH_ROWS", 3)
    draw, moved = random.Random(28), 0
    for number in range(30):
        times = [DAY_US + at * 100 + draw.randrange(500) for at in range(draw.randrange(1, 40))]
        found = write(tmp_path / f"{number}.parquet", times)
        assert found is not None
        assert (found.count, found.min_time_us, found.max_time_us) == (
            len(times),
            min(times),
            max(times),
        )
        read: list[int] = []
        for record in user_records(META, found, columns):
            read += record.batch.column(2).to_pylist()
            left = times[len(read) :]
            assert not left or min(left) >= record.boundary_us
            moved += record.boundary_us > min(times)
        assert read == times
        running = [max(times[: at + 1]) - time for at, time in enumerate(times)]
        assert found.disorder_us >= max(running)
    assert moved > 100


def test_a_stream_of_disordered_rows_goes_on_within_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(user_rows, "_BATCH_ROWS", 3)
    monkeypatch.setattr(ingest_log, "_LARGE_BYTES", 0)  # By threads.
    times = [DAY_US + number for number in range(21)]
    files = [write(tmp_path / f"{number}.parquet", times) for number in range(3)]
    root = str(tmp_path / "log")
    prepare(root, META)
    commit(root, 0, [file for file in files[:1] if file is not None], by="files", ends=True)
    reader, boundaries = IngestLogReader(root, 0, 1), []
    while batches := reader.poll(max_rows=1):
        boundaries += [batch.boundary_us for batch in batches]
    reader.close()
    assert boundaries == [*(DAY_US + first for first in (3, 6, 7, 10, 13, 14, 17, 20)), DAY_US + 20]


def test_a_file_that_says_nothing_of_its_times_is_read_to_know_them(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    path = tmp_path / "in" / "a.parquet"
    assert write(path, [DAY_US + 5, DAY_US], write_statistics=False) is None
    recorder = FileRecorder("a", FilesSource(str(path), META, ends=True), str(tmp_path / "out"))
    recorder.start(None)  # type: ignore[arg-type]
    recorder.wait()
    assert recorder.error is None
    reader = IngestLogReader(ingest_path(str(tmp_path / "out"), "a"), 0, 1)
    assert [batch.count for batch in reader.poll()] == [2]


def test_rows_ahead_of_the_clock_are_looked_at(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", [DAY_US, DAY_US + 1])
    (listed,) = list_files(str(tmp_path))
    meta = IngestMeta(SCHEMA, "at", 0, 1, FilesFormat("parquet"))
    assert user_times(meta, listed.file, DAY_US) is None
    assert user_times(meta, listed.file, DAY_US + 1) is not None


def test_times_that_are_not_as_said_are_an_error(tmp_path: Path) -> None:
    found = write(tmp_path / "a.parquet", [DAY_US, DAY_US + 9])
    assert found is not None
    lying = IngestFile(found.name, 2, DAY_US, DAY_US + 8, 0, (), found.user)
    with pytest.raises(UserFileDamaged, match="not within what it says"):
        list(user_records(META, lying, None))


def test_a_thread_hands_on_all_records_and_then_the_error() -> None:
    given = [
        LoggedBatch(None, 1, n, 1, BEGINNING_US, 0, pa.record_batch({"a": [n]}))  # type: ignore[arg-type]
        for n in range(5)
    ]
    closed = []

    def records() -> Iterator[LoggedBatch]:
        try:
            yield from given
            raise UserFileDamaged("here")
        finally:
            closed.append(True)

    ahead = iter(RecordsAhead(records()))
    assert [next(ahead).first_id for _ in given] == [0, 1, 2, 3, 4]
    with pytest.raises(UserFileDamaged, match="here"):
        next(ahead)
    half = RecordsAhead(records())
    next(iter(half))
    half.close()
    assert closed == [True, True]
