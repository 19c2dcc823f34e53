"""Ingest logs and sources behind URLs."""

import threading
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from holdfast.core.model.ids import END_US
from holdfast.core.model.tuples import TupleBatch
from holdfast.core.queues.recording import IngestFile
from holdfast.shell.sources.base import SourceRows
from holdfast.shell.sources.log_source import LogSourceSpec
from holdfast.shell.sources.read_ahead import ReadAhead
from holdfast.shell.storage import ingest_log
from holdfast.shell.storage.errors import StorageError
from holdfast.shell.storage.ingest_log import IngestLogReader, IngestMeta
from holdfast.shell.storage.places import has_files, is_remote, local_path, location_id, store_at
from holdfast.shell.stores.base import NameTaken
from holdfast.shell.stores.file_system import FileSystemStore

SCHEMA = pa.schema([("v", pa.int64()), ("at", pa.timestamp("us", tz="UTC"))])
META = IngestMeta(SCHEMA, "at", 0)


@pytest.fixture(params=["folder", "memory", "local"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where an ingest log may lie."""
    names = {"folder": f"{tmp_path}/log", "memory": f"memory://{uuid.uuid4()}"}
    return names.get(request.param, f"local://{tmp_path}/log")


def file(root: str, first: int, count: int = 3) -> IngestFile:
    values = pa.array(range(first, first + count), pa.int64())
    at = values.cast(pa.timestamp("us")).cast(SCHEMA.field("at").type)
    rows = pa.RecordBatch.from_arrays([values, at], schema=SCHEMA)
    made = ingest_log.write_file(root, META, [rows])
    assert made is not None
    return made


def read(root: str, from_id: int = 0) -> list[int]:
    reader = IngestLogReader(root, 0, 1, from_id)
    found: list[int] = []
    while batches := reader.poll():
        found += [v for logged in batches for v in logged.batch.column(0).to_pylist()]
    return found


def test_what_was_committed_is_read_wherever_it_lies(root: str) -> None:
    assert not ingest_log.has_ended(root)
    ingest_log.prepare(root, META)
    ingest_log.prepare(root, META)
    for batch_id in range(4):
        assert ingest_log.commit(root, batch_id, [file(root, 3 * batch_id)], by="query a")
    assert not ingest_log.commit(root, 3, [file(root, 100)], by="query a")
    with pytest.raises(StorageError, match="written by 'query a'"):
        ingest_log.commit(root, 2, [file(root, 100)], by="query b")
    assert read(root) == list(range(12))
    assert read(root, 7) == list(range(7, 12))
    ingest_log.end(root)
    assert ingest_log.has_ended(root)


def test_a_commit_whose_answer_was_lost_counts_once(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1. The commit is stored. 2. Its client tries again, and finds the name taken: by itself."""
    ingest_log.prepare(root, META)
    store_type = type(store_at(root))
    put = store_type.put

    def lost(self: FileSystemStore, name: str, parts: Sequence[bytes]) -> None:
        put(self, name, parts)
        raise NameTaken(name)

    made = file(root, 0)
    with monkeypatch.context() as patch:
        patch.setattr(store_type, "put", lost)
        ingest_log.append_batch(root, [made])
    ingest_log.append_batch(root, [file(root, 3)])
    assert read(root) == list(range(6))
    assert len(store_at(root).names("commits")) == 2


def test_a_location_keeps_its_name(root: str) -> None:
    assert location_id(root) == location_id(root)
    assert has_files(root)


def test_places_are_folders_or_urls() -> None:
    assert [is_remote(p) for p in ("/a", "a/b", "file:///a", "s3://b/a", "local:///a")] == [
        *(False, False, False, True, True)
    ]
    assert local_path("file:///a/b") == "/a/b"


def test_a_node_reads_ahead_and_again_from_any_id(tmp_path: Path) -> None:
    root = f"local://{tmp_path}/log"
    ingest_log.prepare(root, META)
    for batch_id in range(5):
        ingest_log.commit(root, batch_id, [file(root, 10 * batch_id, 10)], by="query a")
    ingest_log.end(root)
    source = LogSourceSpec(root, "ingest").open()
    assert isinstance(source, ReadAhead)
    for start in (0, 23, 5):
        next_id, values = start, []
        while (rows := source.read(next_id, 8)).boundary_us != END_US or rows.batches:
            for batch in rows.batches:
                assert batch.first_id == next_id
                next_id = batch.next_id
                values += batch.batch.column(0).to_pylist()
        assert values == list(range(start, 50))
    source.close()


class Slow:
    """A source that answers when it is allowed to."""

    def __init__(self) -> None:
        self.allowed = threading.Semaphore(0)
        self.asked: list[int] = []

    def read(self, from_id: int, max_tuples: int) -> SourceRows:
        self.asked.append(from_id)
        self.allowed.acquire()
        if len(self.asked) == 3:
            raise StorageError("the store is away")
        ids = pa.array([from_id], pa.int64())
        rows = pa.RecordBatch.from_arrays([ids, ids], names=["v", "__time_us"])
        return SourceRows((TupleBatch(from_id, rows, from_id),), from_id)

    def close(self) -> None:
        self.allowed.release()


def polled(source: ReadAhead, from_id: int) -> Iterator[int]:
    """The ids that come, as a node asks for them."""
    while True:
        for batch in source.read(from_id, 10).batches:
            yield batch.first_id
            from_id = batch.next_id


def test_a_node_never_waits_for_a_slow_source_and_meets_its_error_in_order() -> None:
    slow = Slow()
    source = ReadAhead(slow)
    assert source.read(7, 10).batches == ()  # Nothing is there yet, and nobody waits for it.
    slow.allowed.release()
    slow.allowed.release()
    slow.allowed.release()
    ids = polled(source, 7)
    assert [next(ids), next(ids)] == [7, 8]
    with pytest.raises(StorageError, match="away"):
        next(ids)
    assert slow.asked == [7, 8, 9]
    source.close()
