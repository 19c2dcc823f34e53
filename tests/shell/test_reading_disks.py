"""Disks that give what is asked for in pieces, or not at all: logs, ingest logs, the journal."""

import errno
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from holdfast.core.model.tuples import TupleType, with_time
from holdfast.core.wire import log_records
from holdfast.shell.storage import backward_reader, ingest_log
from holdfast.shell.storage.backward_reader import batches_before
from holdfast.shell.storage.errors import PlaceForbidden, StorageError
from holdfast.shell.storage.ingest_log import IngestLogReader, IngestMeta
from holdfast.shell.storage.small_files import read_at
from holdfast.shell.storage.stream_log import (
    StreamLogReader,
    StreamLogWriter,
    _SegmentReader,
    segments,
)

SCHEMA = with_time(pa.schema([("v", pa.int64())]))
ROWS = 1_000
PIECE = 97


@pytest.fixture
def log(tmp_path: Path) -> str:
    """Of some rows, whose values are their ids."""
    path = str(tmp_path / "log")
    ids = pa.array(range(ROWS), pa.int64())
    with StreamLogWriter(path, SCHEMA, "s", 1) as writer:
        rows = pa.RecordBatch.from_arrays([ids, ids], schema=SCHEMA)
        writer.append(TupleType.STABLE, 0, rows, ROWS, 0)
        writer.end()
    return path


@pytest.fixture
def in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system may give less than it was asked for, though there is more."""
    pread = os.pread
    monkeypatch.setattr(os, "pread", lambda file, size, at: pread(file, min(size, PIECE), at))


@pytest.fixture
def refusing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bad sector."""

    def refuse(*_: int) -> bytes:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "pread", refuse)


def values(log: str) -> list[int]:
    reader = StreamLogReader(log, 0)
    found: list[int] = []
    while batches := reader.poll():
        for batch in batches:
            found += batch.batch.column(0).to_pylist()
    reader.close()
    return found


def test_a_file_is_read_to_its_end_however_small_the_pieces(
    tmp_path: Path, in_pieces: None
) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(range(256)) * 4)
    with path.open("rb") as file:
        assert read_at(file.fileno(), path, 1_000, 10) == (bytes(range(256)) * 4)[10:1_010]
        assert read_at(file.fileno(), path, 1_000, 1_000) == bytes(range(232, 256))
        assert read_at(file.fileno(), path, 10, 5_000) == b""


def test_a_log_has_all_its_rows_however_small_the_pieces(log: str, in_pieces: None) -> None:
    assert values(log) == list(range(ROWS))


def test_a_log_is_read_backwards_however_small_the_pieces(log: str, in_pieces: None) -> None:
    found = [
        value for batch in batches_before(log, ROWS) for value in batch.batch.column(0).to_pylist()
    ]
    assert sorted(found) == list(range(ROWS))


def test_an_ingest_log_has_all_its_rows_however_small_the_pieces(
    tmp_path: Path, in_pieces: None
) -> None:
    """They were taken for damage: the header of a file seemed to be torn."""
    schema = pa.schema([pa.field("at", pa.timestamp("us", tz="UTC")), pa.field("v", pa.int64())])
    meta = IngestMeta(schema, "at", 0)
    root = str(tmp_path / "ingest")
    ingest_log.prepare(root, meta)
    ids = np.arange(ROWS, dtype=np.int64)
    rows = pa.RecordBatch.from_arrays([pa.array(ids).cast(schema.field(0).type), ids], schema)
    file = ingest_log.write_file(root, meta, iter([rows]))
    assert file is not None
    ingest_log.append_batch(root, [file], ends=True)
    reader = IngestLogReader(root, 0, 1)
    found = [value for batch in reader.poll() for value in batch.batch.column(1).to_pylist()]
    reader.close()
    assert found == list(range(ROWS))


def test_a_disk_that_refuses_to_read_is_named_with_the_file(log: str, refusing: None) -> None:
    (segment,) = Path(log).glob("*.seg")
    with pytest.raises(StorageError, match=rf"{segment}.*Input/output error; see to the disk"):
        values(log)


def test_a_segment_that_may_not_be_read_is_named_where_a_log_is_read_backwards(
    log: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rights were taken when it had been listed."""
    found = segments(Path(log))

    def refuse(path: Path, *_: int) -> int:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr(backward_reader, "segments", lambda _: found)
    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(PlaceForbidden, match=str(found[0].path)):
        list(batches_before(log, ROWS))


def test_a_disk_that_refuses_to_read_behind_a_damaged_header_is_named_with_the_file(
    log: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (segment,) = Path(log).glob("*.seg")
    damage(segment, 50)
    pread = os.pread

    def refuse(file: int, size: int, at: int) -> bytes:
        if size == log_records.HEADER_READ_BYTES:
            return pread(file, size, at)
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "pread", refuse)
    with pytest.raises(StorageError, match=rf"{segment}.*Input/output error; see to the disk"):
        values(log)


def test_what_lies_behind_a_damaged_record_is_looked_for_in_the_file_that_is_open(
    log: str, request: pytest.FixtureRequest
) -> None:
    """Its name may be gone meanwhile, and the disk may refuse."""
    (segment,) = segments(Path(log))
    header = log_records.decode_segment_header(segment.path.read_bytes())
    assert isinstance(header, log_records.SegmentHeader)
    damage(segment.path, header.size + 100)
    reader = _SegmentReader(segment)
    assert reader.next() is None
    assert reader.corrupt is not None
    segment.path.unlink()
    assert reader.has_record_beyond(), "the end of the log"
    request.getfixturevalue("refusing")
    with pytest.raises(StorageError, match="Input/output error; see to the disk"):
        reader.has_record_beyond()
    reader.close()


def damage(segment: Path, at: int) -> None:
    """One bit of a file flips."""
    data = bytearray(segment.read_bytes())
    data[at] ^= 1
    segment.write_bytes(bytes(data))
