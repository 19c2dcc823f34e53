"""Sources that tell when there is more, and threads that are woken."""

import select
import shutil
import threading
import time
from pathlib import Path

import pyarrow as pa
import pytest

from holdfast.core.model.ids import BEGINNING_US
from holdfast.core.model.tuples import TupleType, with_time
from holdfast.shell.sources.base import newest_id, stirs
from holdfast.shell.sources.log_source import LogSourceSpec
from holdfast.shell.storage import ingest_log
from holdfast.shell.storage.errors import StorageError
from holdfast.shell.storage.folder_watch import Change, FolderWatch
from holdfast.shell.storage.ingest_log import IngestMeta
from holdfast.shell.storage.logs import open_writer
from holdfast.shell.transport.waker import Waker

SCHEMA = pa.schema([("at", pa.timestamp("us", tz="UTC"))])
META = IngestMeta(SCHEMA, "at", 0)


def is_ready(descriptor: int, timeout_s: float = 0.0) -> bool:
    return bool(select.select([descriptor], [], [], timeout_s)[0])


def one_row(at: int) -> pa.RecordBatch:
    rows = pa.array([at], pa.int64()).cast(SCHEMA.field("at").type)
    return pa.RecordBatch.from_arrays([rows], schema=SCHEMA)


def commit(root: str, at: int) -> None:
    file = ingest_log.write_file(root, META, [one_row(at)])
    assert file is not None
    ingest_log.append_batch(root, [file])


@pytest.mark.parametrize("is_made_before", [True, False])
def test_an_ingest_log_tells_of_every_commit_and_of_its_end(
    tmp_path: Path, is_made_before: bool
) -> None:
    root = str(tmp_path / "rows")
    if is_made_before:
        ingest_log.prepare(root, META)
    reader = LogSourceSpec(root, "ingest").open()
    assert stirs(reader) >= 0
    assert not reader.read(0, 10).batches
    if not is_made_before:
        ingest_log.prepare(root, META)
        commit(root, 1)  # Nobody tells of what is there before the next look.
        assert [b.count for b in reader.read(0, 10).batches] == [1]
    first_id = 0 if is_made_before else 1
    for next_id in range(first_id, first_id + 3):
        assert not reader.read(next_id, 10).batches
        assert not is_ready(stirs(reader))
        commit(root, next_id + 1)
        assert is_ready(stirs(reader), 5)
        assert [b.count for b in reader.read(next_id, 10).batches] == [1]
    reader.read(next_id + 1, 10)
    assert not is_ready(stirs(reader)), "reading hears it"
    ingest_log.end(root)
    assert is_ready(stirs(reader), 5)
    reader.close()


@pytest.mark.parametrize("partitions", [1, 2])
def test_the_only_reader_of_an_ingest_log_has_files_before_they_are_committed(
    tmp_path: Path, partitions: int
) -> None:
    root = str(tmp_path)
    ingest_log.prepare(root, META)
    commit(root, 0)
    reader = LogSourceSpec(root, "ingest", 0, partitions).open()
    stirs(reader)
    assert [b.count for b in reader.read(0, 10).batches] == [1]
    made = ingest_log.write_file(root, META, [one_row(1)])
    assert made is not None
    assert is_ready(stirs(reader), 5) == (partitions == 1)
    assert not reader.read(1, 10).batches
    shutil.rmtree(tmp_path / "files" / made.name)
    ingest_log.append_batch(root, [made])
    assert is_ready(stirs(reader), 5)
    if partitions == 1:
        assert [b.count for b in reader.read(1, 10).batches] == [1]
    else:
        with pytest.raises(StorageError, match="holds 0 rows"):
            reader.read(1, 10)
    reader.close()


def test_the_end_of_a_log_is_found_while_spark_writes_on(tmp_path: Path) -> None:
    """1. Whoever looks for the end reads on and on. 2. A draft appears. 3. The log goes on."""
    root = str(tmp_path)
    ingest_log.prepare(root, META)
    reader = LogSourceSpec(root, "ingest").open()
    stirs(reader)
    for at in range(3):
        commit(root, at)
    assert [b.count for b in reader.read(0, 1).batches] == [1]
    (tmp_path / "files" / "abc.draft").mkdir()
    assert newest_id(reader) == 3
    (tmp_path / "files" / "def.draft").mkdir()
    assert not reader.read(3, 1).batches
    commit(root, 3)
    assert [b.count for b in reader.read(3, 1).batches] == [1]
    reader.close()


def test_a_watch_says_what_has_changed(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    second.mkdir()
    watch = FolderWatch(str(first), str(second))
    (second / "made").touch()
    (second / "made").rename(second / "moved")
    first.mkdir()
    watch.look_for_missing()
    (second / "moved").rename(first / "moved here")
    assert watch.clear() == [
        Change(str(second), "made", is_moved=False),
        Change(str(second), "moved", is_moved=True),
        Change(str(first), "moved here", is_moved=True),
    ]
    assert watch.clear() == []
    watch.close()


def test_a_stream_log_tells_of_what_is_appended(tmp_path: Path) -> None:
    schema = with_time(SCHEMA)
    writer = open_writer(str(tmp_path), schema, "rows", 1)
    reader = LogSourceSpec(str(tmp_path), "stream").open()
    for next_id in range(3):
        assert not reader.read(next_id, 10).batches
        assert not is_ready(stirs(reader))
        times = pa.array([next_id], pa.int64())
        rows = pa.RecordBatch.from_arrays(
            [times.cast(SCHEMA.field("at").type), times], schema=schema
        )
        writer.append(TupleType.STABLE, next_id, rows, BEGINNING_US, 0)
        assert is_ready(stirs(reader), 5)
        assert [b.count for b in reader.read(next_id, 10).batches] == [1]
    reader.close()
    writer.close()


def test_a_paced_log_knows_how_long_it_will_be_quiet(tmp_path: Path) -> None:
    root = str(tmp_path / "rows")
    ingest_log.prepare(root, META)
    commit(root, 0)
    commit(root, 3_600_000_000)
    reader = LogSourceSpec(root, "ingest", speed=2.0, started_s=time.time()).open()
    first = reader.read(0, 10)
    rows = reader.read(1, 10)
    assert sum(b.count for b in first.batches) == 1
    assert not rows.batches
    assert 1_790_000 < rows.quiet_ms <= 1_800_000
    assert stirs(reader) == -1
    reader.close()


def test_a_replay_falls_silent_once_however_late_it_is(tmp_path: Path) -> None:
    """Its node came up long after the silence was to be over; a replacement is not silent again."""
    root = str(tmp_path / "rows")
    ingest_log.prepare(root, META)
    for second in range(4):
        commit(root, second * 1_000_000)

    def spec(length_s: float) -> LogSourceSpec:
        silent_s = (2.0, 2.0 + length_s)
        started_s = time.time() - 100
        return LogSourceSpec(root, "ingest", speed=1.0, started_s=started_s, silent_s=silent_s)

    reader = spec(60.0).open()
    given = [sum(b.count for b in reader.read(0, 10).batches)]
    rows = reader.read(2, 10)
    assert given == [2]
    assert not rows.batches
    assert 0 < rows.quiet_ms <= 60_001
    reader.close()
    replacement = spec(60.0).open()
    assert sum(b.count for b in replacement.read(2, 10).batches) == 2
    replacement.close()
    short = spec(1e-6).open()
    assert sum(b.count for b in short.read(0, 10).batches) == 2
    assert not short.read(2, 10).batches
    assert sum(b.count for b in short.read(2, 10).batches) == 2
    short.close()


def test_a_waker_wakes_once_and_a_late_call_does_no_harm() -> None:
    waker = Waker()
    thread = threading.Thread(target=waker.wake)
    thread.start()
    thread.join()
    assert is_ready(waker.fileno())
    waker.clear()
    assert not is_ready(waker.fileno())
    waker.clear()
    waker.close()
    waker.wake()
