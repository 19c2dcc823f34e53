"""Records of footprint logs on any bytes and rows: what was written, or a refusal."""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core.model.footprints import (
    FootprintKind,
    FootprintRecord,
    FootprintsDamaged,
    PassMark,
    footprint_schema,
    no_window,
    record_of,
)
from holdfast.core.model.tuples import TupleBatch
from holdfast.core.wire import log_records
from holdfast.core.wire.log_records import LogRecord, RecordKind

BODY = pa.schema([("window", pa.int64()), ("key.0", pa.string()), ("state.0", pa.int64())])
SCHEMA = footprint_schema(BODY)
INT64 = st.integers(-(2**63), 2**63 - 1)
STREAMS = 2


def record(first_id: int = 7, rows: int = 3) -> FootprintRecord:
    bodies = pa.RecordBatch.from_arrays(
        [pa.array(range(rows)), pa.array(["k", None, ""][:rows]), pa.array([5] * rows)],
        schema=BODY,
    )
    kinds = pa.array([FootprintKind.G_OPEN, FootprintKind.G_CHECK, FootprintKind.R][:rows])
    mark = PassMark(2, 40, 1000, (40, 3), 5)
    return FootprintRecord(first_id, mark, kinds.cast(pa.uint8()).to_numpy(), bodies)


def equal(a: FootprintRecord, b: FootprintRecord) -> bool:
    same = (a.first_id, a.mark, a.kinds.tolist()) == (b.first_id, b.mark, b.kinds.tolist())
    return same and a.bodies.equals(b.bodies)


def in_log(batch: TupleBatch) -> bytes:
    parts = log_records.encode_record(
        RecordKind.DATA, 0, 1, batch.first_id, batch.boundary_us, 0, batch.batch
    )
    return b"".join(bytes(part) for part in parts)


def test_a_record_comes_back_from_the_log_as_it_was_written():
    data = in_log(record().to_batch())
    found = log_records.decode_record(memoryview(data), SCHEMA)
    assert isinstance(found, LogRecord)
    assert found.batch is not None
    assert equal(record_of(TupleBatch(7, found.batch, 0), STREAMS), record())


def test_a_pass_without_windows_is_a_row_of_its_own():
    mark = PassMark(0, 40, 1000, (40, 3), 7)
    kinds = pa.array([FootprintKind.PASS]).cast(pa.uint8()).to_numpy()
    written = FootprintRecord(7, mark, kinds, no_window(BODY))
    assert equal(record_of(written.to_batch(), STREAMS), written)


@given(st.data())
@settings(max_examples=60)
def test_a_flipped_bit_is_never_taken_for_a_record(data):
    whole = bytearray(in_log(record().to_batch()))
    at = data.draw(st.integers(0, len(whole) - 1))
    whole[at] ^= 1 << data.draw(st.integers(0, 7))
    found = log_records.decode_record(memoryview(bytes(whole)), SCHEMA)
    if isinstance(found, LogRecord):  # Only what pads a payload has no checksum.
        assert equal(record_of(TupleBatch(found.first_id, found.batch, 0), STREAMS), record())


@given(st.integers(0, 400))
@settings(max_examples=40)
def test_a_torn_record_is_none(size):
    whole = in_log(record().to_batch())
    found = log_records.decode_record(memoryview(whole[: min(size, len(whole) - 1)]), SCHEMA)
    assert not isinstance(found, LogRecord)


columns = st.lists(INT64 | st.none(), min_size=3, max_size=3)


@given(
    st.lists(st.integers(0, 255) | st.none(), min_size=3, max_size=3),
    columns,
    columns,
    columns,
    columns,
    st.lists(st.none() | st.lists(INT64 | st.none(), max_size=3), min_size=3, max_size=3),
)
def test_any_rows_of_the_schema_give_a_record_or_are_refused(kinds, n, cut, boundary, follows, at):
    good = record().to_batch().batch
    arrays = [pa.array(kinds, pa.uint8()), *good.columns[1:4]]
    arrays += [pa.array(words, pa.int64()) for words in (n, cut, boundary, follows)]
    arrays += [pa.array(at, pa.list_(pa.int64())), good.columns[-1]]
    batch = pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)
    try:
        found = record_of(TupleBatch(7, batch, 0), STREAMS)
    except FootprintsDamaged:
        return
    assert found.kinds.tolist() == kinds
    assert [found.mark.cut] * 3 == cut
    assert [list(found.mark.starts)] * 3 == at
    assert found.mark.follows <= 7


@pytest.mark.parametrize(
    "schema",
    [pa.schema([("kind", pa.uint8())]), SCHEMA.remove(0), SCHEMA.remove(6)],
)
def test_other_columns_are_refused(schema):
    batch = pa.RecordBatch.from_arrays([pa.nulls(1, f.type) for f in schema], schema=schema)
    with pytest.raises(FootprintsDamaged):
        record_of(TupleBatch(0, batch, 0), STREAMS)


def test_a_record_that_follows_a_later_one_is_refused():
    with pytest.raises(FootprintsDamaged, match="follows row 5"):
        record_of(record(first_id=4).to_batch(), STREAMS)
