"""Batches out of bytes: nothing compressed, nothing cut, nothing that points elsewhere."""

import pyarrow as pa
import pytest

from holdfast.core.wire.arrow_batches import BatchRefused, message_parts, read_batch

SCHEMA = pa.schema(
    [("name", pa.string()), ("n", pa.int64()), ("tags", pa.list_(pa.string())), ("d", pa.binary())]
)
BATCH = pa.RecordBatch.from_pylist(
    [{"name": f"n{i}", "n": i, "tags": ["a", "bc"], "d": b"x" * i} for i in range(20)], SCHEMA
)
BYTES = BATCH.serialize().to_pybytes()


def test_a_batch_is_read() -> None:
    assert read_batch(BYTES, SCHEMA, 20).equals(BATCH)


def test_an_empty_batch_is_read() -> None:
    empty = BATCH.slice(0, 0)
    assert read_batch(empty.serialize(), SCHEMA, 0).num_rows == 0


@pytest.mark.parametrize("codec", ["zstd", "lz4"])
def test_a_compressed_batch_is_refused_before_anything_is_allocated(codec: str) -> None:
    bomb = pa.RecordBatch.from_arrays([pa.array([b"\0" * (64 << 20)])], ["d"])
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=codec)
    with pa.ipc.new_stream(sink, bomb.schema, options=options) as stream:
        stream.write_batch(bomb)
    _, message = pa.ipc.MessageReader.open_stream(sink.getvalue())
    small = message.serialize()
    assert small.size < 1 << 20
    before = pa.total_allocated_bytes()
    peak = pa.default_memory_pool().max_memory()
    with pytest.raises(BatchRefused, match="compressed"):
        read_batch(small, bomb.schema, 1)
    assert pa.total_allocated_bytes() == before
    assert pa.default_memory_pool().max_memory() == peak


@pytest.mark.parametrize("rows", [-1, 19, 21, 1 << 40])
def test_other_counts_of_rows_are_refused(rows: int) -> None:
    with pytest.raises(BatchRefused):
        read_batch(BYTES, SCHEMA, rows)


def test_another_kind_of_message_is_refused() -> None:
    with pytest.raises(BatchRefused):
        read_batch(SCHEMA.serialize(), SCHEMA, 20)


def test_every_flipped_bit_and_every_cut_is_refused_or_harmless() -> None:
    for bit in range(len(BYTES) * 8):
        flipped = bytearray(BYTES)
        flipped[bit // 8] ^= 1 << bit % 8
        try:
            got = read_batch(bytes(flipped), SCHEMA, 20)
        except BatchRefused:
            continue
        got.to_pylist()
    for length in range(len(BYTES)):
        try:
            got = read_batch(BYTES[:length], SCHEMA, 20)
        except BatchRefused:
            continue
        got.to_pylist()


@pytest.mark.parametrize("rows", [1, 4_095, 4_096, 9_000])
@pytest.mark.parametrize("repeats", [1, 40, 200])
def test_a_message_in_parts_is_the_same_message(rows: int, repeats: int) -> None:
    values = pa.array([None if i % 3 == 0 else i for i in range(rows + 7)])
    texts = pa.array([str(i) for i in range(rows + 7)])
    columns = [values, texts, pa.array([[i] for i in range(rows + 7)])] * repeats
    names = [f"c{i}" for i in range(len(columns))]
    batch = pa.RecordBatch.from_arrays(columns, names).slice(5, rows)
    parts = message_parts(batch)
    assert b"".join(bytes(part) for part in parts) == batch.serialize().to_pybytes()
    assert len(parts) < 1_024, "as many as one write takes"


def test_a_column_of_very_many_fields_is_one_part() -> None:
    fields = {f"f{i}": i for i in range(1_000)}
    batch = pa.RecordBatch.from_arrays([pa.array([fields] * 4_096)], ["s"])
    assert message_parts(batch) == [batch.serialize()]


def test_the_columns_of_many_rows_are_not_copied() -> None:
    values = pa.array(range(10_000))
    parts = message_parts(pa.RecordBatch.from_arrays([values], ["v"]))
    assert values.buffers()[1].address in {p.address for p in parts if isinstance(p, pa.Buffer)}
