"""Batches out of bytes: nothing compressed, nothing cut, nothing that points elsewhere."""

import pyarrow as pa
import pytest

from holdfast.core.wire.arrow_batches import BatchRefused, read_batch

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
