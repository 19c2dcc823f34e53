"""Sources that tell when there is more, and threads that are woken."""

import select
import threading
import time
from pathlib import Path

import pyarrow as pa
import pytest

from holdfast.core.model.ids import BEGINNING_US
from holdfast.core.model.tuples import TupleType, with_time
from holdfast.shell.sources.base import stirs
from holdfast.shell.sources.log_source import LogSourceSpec
from holdfast.shell.storage import ingest_log
from holdfast.shell.storage.ingest_log import IngestMeta
from holdfast.shell.storage.logs import open_writer
from holdfast.shell.transport.waker import Waker

SCHEMA = pa.schema([("at", pa.timestamp("us", tz="UTC"))])
META = IngestMeta(SCHEMA, "at", 0)


def is_ready(descriptor: int, timeout_s: float = 0.0) -> bool:
    return bool(select.select([descriptor], [], [], timeout_s)[0])


def commit(root: str, at: int) -> None:
    rows = pa.array([at], pa.int64()).cast(SCHEMA.field("at").type)
    file = ingest_log.write_file(root, META, [pa.RecordBatch.from_arrays([rows], schema=SCHEMA)])
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
