"""Columns of one value: kept as that value, back as they were, and refused where they cannot be."""

from __future__ import annotations

import struct
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.model.tuples import TupleType
from holdfast.core.wire.arrow_batches import BatchRefused, message_parts
from holdfast.core.wire.constant_columns import read_with, take_out
from holdfast.core.wire.log_records import (
    CorruptRecord,
    LogRecord,
    RecordKind,
    decode_record,
    encode_record,
)

ROWS = 4096
TIMES = pa.timestamp("us", tz="UTC")
SCHEMA = pa.schema(
    [
        pa.field("start", TIMES, nullable=False),
        ("n", pa.int64()),
        ("small", pa.int32()),
        ("text", pa.string()),
        ("gone", pa.int64()),
        ("x", pa.float64()),
        ("most", pa.int64()),
        ("u", pa.uint64()),
    ]
)
ENTRY = struct.Struct("<H6xq")


def rows_of(count: int) -> pa.RecordBatch:
    """Constant are `start`, `x` (not a number) and `u`; `most` is but for one row in the middle."""
    columns = [
        pa.array([datetime(2026, 1, 1, tzinfo=UTC)] * count, TIMES),
        pa.array(range(count)),
        pa.array([7] * count, pa.int32()),
        pa.array(["x"] * count),
        pa.array([None] * count, pa.int64()),
        pa.array(np.full(count, np.nan)),
        pa.array([3] * (count // 2) + [4] + [3] * (count - count // 2 - 1)),
        pa.array([2**64 - 1] * count, pa.uint64()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def payload_of(rest: pa.RecordBatch, entries: list[bytes]) -> memoryview:
    return memoryview(b"".join(bytes(part) for part in [*message_parts(rest), *entries]))


def same(found: pa.RecordBatch, expected: pa.RecordBatch) -> bool:
    """Equal, and not a number where the other one is none."""
    return found.schema.equals(expected.schema) and all(
        a.equals(b) or (str(a) == str(b))
        for a, b in zip(found.columns, expected.columns, strict=True)
    )


@pytest.mark.parametrize("offset", [0, 5])
def test_words_that_are_all_the_same_are_kept_once(offset: int) -> None:
    batch = rows_of(ROWS + 10).slice(offset, ROWS)
    rest, entries = take_out(batch)
    assert rest.schema.names == ["n", "small", "text", "gone", "most"]
    assert [ENTRY.unpack(entry)[0] for entry in entries] == [0, 5, 7]
    back = read_with(payload_of(rest, entries), len(entries), SCHEMA, ROWS)
    back.validate(full=True)
    assert back.drop_columns("x").equals(batch.drop_columns("x"))
    assert same(back, batch)


def test_few_rows_are_left_alone() -> None:
    batch = rows_of(ROWS - 1)
    assert take_out(batch) == (batch, [])


def test_one_column_stays_as_it_is() -> None:
    batch = pa.RecordBatch.from_arrays([pa.array([1] * ROWS), pa.array([2] * ROWS)], ["a", "b"])
    rest, entries = take_out(batch)
    assert (rest.schema.names, len(entries)) == (["a"], 1)
    assert read_with(payload_of(rest, entries), 1, batch.schema, ROWS).equals(batch)
    alone = batch.select(["a"])
    assert take_out(alone) == (alone, [])


@pytest.mark.parametrize(
    ("columns", "count"),
    [
        pytest.param([0, 0], 2, id="twice"),
        pytest.param([2], 1, id="no word"),
        pytest.param([8], 1, id="no such column"),
        pytest.param([0], 7, id="more announced than there are"),
        pytest.param([0], 8, id="all"),
        pytest.param([0], 60_000, id="beyond the payload"),
    ],
)
def test_constants_that_cannot_be_are_refused(columns: list[int], count: int) -> None:
    rest, _ = take_out(rows_of(ROWS))
    entries = [ENTRY.pack(column, 1) for column in columns]
    with pytest.raises(BatchRefused):
        read_with(payload_of(rest, entries), count, SCHEMA, ROWS)


@pytest.mark.parametrize(
    ("kind", "word"), [(pa.time64("us"), -5), (pa.time64("ns"), 1 << 62), (pa.date64(), 12_345)]
)
def test_a_constant_that_is_no_value_of_its_type_is_refused(kind: pa.DataType, word: int) -> None:
    schema = pa.schema([("n", pa.int64()), ("at", kind)])
    rest = pa.RecordBatch.from_arrays([pa.array(range(ROWS))], ["n"])
    assert read_with(payload_of(rest, [ENTRY.pack(1, 0)]), 1, schema, ROWS).num_rows == ROWS
    with pytest.raises(BatchRefused, match="constant column"):
        read_with(payload_of(rest, [ENTRY.pack(1, word)]), 1, schema, ROWS)


def test_few_bytes_cannot_ask_for_much_memory() -> None:
    nothing = pa.nulls(1 << 20)
    names = [f"c{i}" for i in range(63)]
    schema = pa.schema([("n", pa.null()), *((name, pa.int64()) for name in names)])
    rest = pa.RecordBatch.from_arrays([nothing], ["n"])
    entries = [ENTRY.pack(1 + i, 7) for i in range(63)]
    with pytest.raises(BatchRefused, match="63 constant columns of 64, 1048576 rows"):
        read_with(payload_of(rest, entries), 63, schema, 1 << 20)
    few = payload_of(rest, entries[:30])
    assert read_with(few, 30, schema_of_first(schema, 31), 1 << 20).num_columns == 31
    wide = pa.RecordBatch.from_arrays([pa.array([1] * ROWS)] * 65, [f"c{i}" for i in range(65)])
    assert take_out(wide) == (wide, [])


def schema_of_first(schema: pa.Schema, columns: int) -> pa.Schema:
    return pa.schema([schema.field(i) for i in range(columns)])


def test_many_rows_have_to_be_brought() -> None:
    rest, entries = take_out(rows_of(ROWS))
    with pytest.raises(BatchRefused, match="announced"):
        read_with(payload_of(rest, entries), len(entries), SCHEMA, 1 << 20)


@given(st.integers(ROWS, ROWS + 99), st.integers(0, 2))
def test_a_record_of_such_a_batch_comes_back(count: int, offset: int) -> None:
    batch = rows_of(count + 2).slice(offset, count)
    parts = encode_record(RecordKind.DATA, TupleType.STABLE, 2, 7, 99, 5, batch)
    data = b"".join(bytes(part) for part in parts)
    assert len(data) % 64 == 0
    record = decode_record(memoryview(data), SCHEMA)
    assert isinstance(record, LogRecord)
    assert record.batch is not None
    assert same(record.batch, batch)
    assert record.size == len(data) < batch.nbytes
    for position in (3, 6):  # Version and count have to agree.
        broken = bytearray(data)
        broken[position] ^= 3
        assert isinstance(decode_record(memoryview(bytes(broken)), SCHEMA), CorruptRecord)
