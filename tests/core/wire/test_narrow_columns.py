"""Columns kept as offsets, or as one value: back as they were, and refused where they cannot be."""

from __future__ import annotations

import struct
from datetime import UTC, datetime
from decimal import Context, Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.model.tuples import TupleType
from holdfast.core.wire import narrow_columns
from holdfast.core.wire.arrow_batches import BatchRefused, message_parts
from holdfast.core.wire.log_records import (
    CorruptRecord,
    LogRecord,
    RecordKind,
    decode_record,
    encode_record,
)
from holdfast.core.wire.narrow_columns import read_with, take_out

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
    rest, entries, _ = take_out(batch)
    assert rest.schema.names == ["n", "small", "text", "gone", "most"]
    assert [ENTRY.unpack(entry)[0] for entry in entries] == [0, 5, 7]
    back = read_with(payload_of(rest, entries), len(entries), SCHEMA, ROWS)
    back.validate(full=True)
    assert back.drop_columns("x").equals(batch.drop_columns("x"))
    assert same(back, batch)


def test_few_rows_are_left_alone() -> None:
    batch = rows_of(ROWS - 1)
    assert take_out(batch) == (batch, [], False)


def test_one_column_stays_as_it_is() -> None:
    batch = pa.RecordBatch.from_arrays([pa.array([1] * ROWS), pa.array([2] * ROWS)], ["a", "b"])
    rest, entries, _ = take_out(batch)
    assert (rest.schema.names, len(entries)) == (["a"], 1)
    assert read_with(payload_of(rest, entries), 1, batch.schema, ROWS).equals(batch)
    alone = batch.select(["a"])
    assert take_out(alone) == (alone, [], False)


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
    rest, _, _ = take_out(rows_of(ROWS))
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
    with pytest.raises(BatchRefused, match="narrow column"):
        read_with(payload_of(rest, [ENTRY.pack(1, word)]), 1, schema, ROWS)


def test_few_bytes_cannot_ask_for_much_memory() -> None:
    nothing = pa.nulls(1 << 20)
    names = [f"c{i}" for i in range(63)]
    schema = pa.schema([("n", pa.null()), *((name, pa.int64()) for name in names)])
    rest = pa.RecordBatch.from_arrays([nothing], ["n"])
    entries = [ENTRY.pack(1 + i, 7) for i in range(63)]
    with pytest.raises(BatchRefused, match="63 narrow columns of 64, 1048576 rows"):
        read_with(payload_of(rest, entries), 63, schema, 1 << 20)
    few = payload_of(rest, entries[:30])
    assert read_with(few, 30, schema_of_first(schema, 31), 1 << 20).num_columns == 31
    wide = pa.RecordBatch.from_arrays([pa.array([1] * ROWS)] * 65, [f"c{i}" for i in range(65)])
    assert take_out(wide) == (wide, [], False)


def schema_of_first(schema: pa.Schema, columns: int) -> pa.Schema:
    return pa.schema([schema.field(i) for i in range(columns)])


def test_many_rows_have_to_be_brought() -> None:
    rest, entries, _ = take_out(rows_of(ROWS))
    with pytest.raises(BatchRefused, match="announced"):
        read_with(payload_of(rest, entries), len(entries), SCHEMA, 1 << 20)


OFFSET = struct.Struct("<HB5xq")


@pytest.mark.parametrize(
    ("words", "kept"),
    [
        pytest.param([-5, 250], pa.uint8(), id="1 byte"),
        pytest.param([-5, 251], pa.uint16(), id="2 bytes"),
        pytest.param([2**62, 2**62 + 65_535], pa.uint16(), id="far away"),
        pytest.param([-(2**63), -(2**63) + 65_536], pa.uint32(), id="4 bytes"),
        pytest.param([7, 7 + 2**32 - 1], pa.uint32(), id="as far as 4 bytes go"),
        pytest.param([7, 7 + 2**32], pa.int64(), id="too far"),
        pytest.param([-(2**63), 2**63 - 1], pa.int64(), id="everywhere"),
    ],
)
@pytest.mark.parametrize("kind", [pa.int64(), TIMES, pa.uint64(), pa.duration("us")])
def test_words_that_lie_close_together_are_kept_as_offsets(
    words: list[int], kept: pa.DataType, kind: pa.DataType
) -> None:
    """The least and the greatest stand anywhere."""
    made = np.full(ROWS, words[0], dtype=np.int64)
    made[[1, ROWS // 2]] = words[1]
    column = pa.Array.from_buffers(kind, ROWS, [None, pa.py_buffer(made)])
    batch = pa.RecordBatch.from_arrays([column, pa.array(["x"] * ROWS)], ["c", "text"])
    rest, entries, has_offsets = take_out(batch, narrows=True)
    is_narrow = kept != pa.int64()
    assert rest.schema.field("c").type == (kept if is_narrow else kind)
    assert (len(entries), has_offsets) == (is_narrow, is_narrow)
    back = read_with(
        payload_of(rest, entries), len(entries), batch.schema, ROWS, has_offsets=has_offsets
    )
    assert back.equals(batch)
    assert take_out(batch) == (batch, [], False)


@pytest.mark.parametrize(
    ("values", "kept"),
    [
        pytest.param([-(10**5), -(10**5) + 255], pa.uint8(), id="1 byte"),
        pytest.param([-1, 2**31], pa.uint32(), id="4 bytes"),
        pytest.param([0, 2**32], pa.int64(), id="8 bytes"),
        pytest.param([-(2**63), 2**63 - 1], pa.int64(), id="as far as 8 bytes go"),
        pytest.param([0, 2**63], None, id="too large"),
        pytest.param([0, None], None, id="none"),
    ],
)
def test_decimals_that_fit_into_a_word_are_kept_as_offsets(
    values: list[int | None], kept: pa.DataType | None
) -> None:
    kind = pa.decimal128(38, 3)
    context = Context(prec=40)
    made = [None if v is None else context.scaleb(Decimal(v), -3) for v in values]
    column = pa.array([made[0]] * 9 + [made[1]] * ROWS, kind).slice(7, ROWS)
    batch = pa.RecordBatch.from_arrays([column, pa.array(["x"] * ROWS)], ["c", "text"])
    rest, entries, has_offsets = take_out(batch, narrows=True)
    assert rest.schema.field("c").type == (kept or kind)
    assert has_offsets == (kept is not None)
    back = read_with(
        payload_of(rest, entries), len(entries), batch.schema, ROWS, has_offsets=has_offsets
    )
    assert back.equals(batch)
    assert take_out(batch) == (batch, [], False)


def test_what_would_be_refused_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """Decimals take twice the memory of words when they are made again."""
    monkeypatch.setattr(narrow_columns, "_BYTES_MAX", 16 * ROWS)
    column = pa.array([Decimal(1)] * ROWS, pa.decimal128(9, 0))
    one = pa.RecordBatch.from_arrays([column], ["a"])
    two = pa.RecordBatch.from_arrays([column, column], ["a", "b"])
    assert take_out(one, narrows=True)[2]
    assert take_out(two, narrows=True) == (two, [], False)


def test_a_decimal_beyond_its_precision_is_refused() -> None:
    schema = pa.schema([("c", pa.decimal128(3, 1))])
    rest = pa.RecordBatch.from_arrays([pa.array([1000] * ROWS)], ["c"])
    for base, width in ((0, 8), (0, 0)):
        with pytest.raises(BatchRefused):
            read_with(
                payload_of(rest, [OFFSET.pack(0, width, base)]), 1, schema, ROWS, has_offsets=True
            )


def test_floats_nulls_and_text_have_no_offsets() -> None:
    batch = rows_of(ROWS).select(["small", "text", "gone", "x"])
    batch = batch.set_column(3, "x", pa.array([1.0, 2.0] * (ROWS // 2)))
    assert take_out(batch, narrows=True) == (batch, [], False)


@pytest.mark.parametrize(
    ("entry", "has_offsets"),
    [
        pytest.param((0, 2, 5), False, id="in a record that has none"),
        pytest.param((0, 3, 5), True, id="of 3 bytes"),
        pytest.param((0, 8, 5), True, id="of 8 bytes"),
        pytest.param((1, 2, 5), True, id="for text"),
        pytest.param((2, 2, 5), True, id="for no column"),
        pytest.param((0, 4, 5), True, id="more than there are"),
    ],
)
def test_offsets_that_cannot_be_are_refused(entry: tuple[int, int, int], has_offsets: bool) -> None:
    schema = pa.schema([("c", pa.int64()), ("text", pa.string())])
    rest = pa.RecordBatch.from_arrays(
        [pa.array([300] * ROWS, pa.uint16()), pa.array(["x"] * ROWS)], ["c", "text"]
    )
    payload = payload_of(rest, [OFFSET.pack(*entry)])
    with pytest.raises(BatchRefused):
        read_with(payload, 1, schema, ROWS, has_offsets=has_offsets)


def test_offsets_with_nulls_and_values_beyond_a_type_are_refused() -> None:
    schema = pa.schema([("at", pa.time64("us"))])
    for offsets, base in (([1, None] * (ROWS // 2), 0), ([1] * ROWS, 86_400_000_000)):
        rest = pa.RecordBatch.from_arrays([pa.array(offsets, pa.uint16())], ["at"])
        with pytest.raises(BatchRefused):
            read_with(
                payload_of(rest, [OFFSET.pack(0, 2, base)]), 1, schema, ROWS, has_offsets=True
            )


@given(st.integers(ROWS, ROWS + 99), st.integers(0, 2), st.booleans())
def test_a_record_of_such_a_batch_comes_back(count: int, offset: int, narrows: bool) -> None:
    batch = rows_of(count + 2).slice(offset, count)
    parts = encode_record(RecordKind.DATA, TupleType.STABLE, 2, 7, 99, 5, batch, narrows=narrows)
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
