"""What a checkpoint has encoded is not encoded again for the log that waits for it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from holdfast.core.model.tuples import TupleBatch, with_time
from holdfast.core.wire.log_records import RecordKind, encode_narrow
from holdfast.shell.spark.node_sinks import append
from holdfast.shell.storage import encoded_records
from holdfast.shell.storage.encoded_records import EncodedRecords
from holdfast.shell.storage.stream_log import StreamLogReader, StreamLogWriter

SCHEMA = with_time(pa.schema([("v", pa.int64())]))
HEADER = (RecordKind.DATA, 0, 1, 0, 7, 5)


def rows(first: int = 0, count: int = 100) -> pa.RecordBatch:
    ids = pa.array(range(first, first + count), pa.int64())
    return pa.RecordBatch.from_arrays([ids, ids], schema=SCHEMA)


def joined(parts: list[bytes | pa.Buffer]) -> bytes:
    return b"".join(map(bytes, parts))


@pytest.fixture
def encoded(monkeypatch: pytest.MonkeyPatch) -> list[pa.RecordBatch]:
    """The rows that have been encoded, in order."""
    found: list[pa.RecordBatch] = []

    def counted(*header: int, batch: pa.RecordBatch | None) -> list[bytes | pa.Buffer]:
        found.append(batch)
        return encode_narrow(*header, batch=batch)

    monkeypatch.setattr(encoded_records, "encode_narrow", counted)
    return found


def test_the_record_is_the_same_and_encoded_once(encoded: list[pa.RecordBatch]) -> None:
    records, batch = EncodedRecords(), rows()
    first = records.first(*HEADER, batch=batch)
    assert records.again(*HEADER, batch=batch) is first
    assert encoded == [batch]
    assert joined(records.again(*HEADER, batch=batch)) == joined(first), "it is kept no more"
    assert len(encoded) == 2


@pytest.mark.parametrize("place", range(len(HEADER)))
def test_whatever_the_header_says_otherwise_is_encoded_anew(
    encoded: list[pa.RecordBatch], place: int
) -> None:
    records, batch = EncodedRecords(), rows()
    records.first(*HEADER, batch=batch)
    other = list(HEADER)
    other[place] += 1
    assert joined(records.again(*other, batch=batch)) == joined(encode_narrow(*other, batch=batch))
    assert len(encoded) == 2


def test_equal_rows_are_not_the_same_rows(encoded: list[pa.RecordBatch]) -> None:
    records = EncodedRecords()
    records.first(*HEADER, batch=rows())
    records.again(*HEADER, batch=rows())
    assert len(encoded) == 2


def test_records_that_nobody_wants_make_room_the_oldest_first(
    encoded: list[pa.RecordBatch],
) -> None:
    size = len(joined(encode_narrow(*HEADER, batch=rows())))
    records, batches = EncodedRecords(2 * size), [rows() for _ in range(3)]
    for batch in batches:
        records.first(*HEADER, batch=batch)
    records.first(*HEADER, batch=batches[2])  # A checkpoint came to nothing.
    for batch in reversed(batches):
        records.again(*HEADER, batch=batch)
    assert [any(each is batch for each in encoded[4:]) for batch in batches] == [True, False, False]


def test_a_log_holds_what_it_would_hold_anyway(tmp_path: Path) -> None:
    records = EncodedRecords()
    batches = [TupleBatch(first, rows(first), first + 1, 5) for first in range(0, 500, 100)]
    files = []
    for name, encode in (("plain", encode_narrow), ("kept", records.again)):
        with StreamLogWriter(str(tmp_path / name), SCHEMA, "s", 1, encode=encode) as log:
            for batch in batches:
                fields = (batch.tuple_type, 1, batch.first_id, batch.boundary_us, batch.created_us)
                records.first(RecordKind.DATA, *fields, batch=batch.batch)
                append(log, batch)
        (file,) = (tmp_path / name).glob("*.seg")
        files.append(file.read_bytes())
    assert files[0] == files[1]
    found = StreamLogReader(str(tmp_path / "kept"), 0).poll(max_rows=1_000)
    assert sum(each.batch.num_rows for each in found) == 500
