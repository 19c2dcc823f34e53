"""Batches cut into parts by their bytes, and merged again where they are small."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.model import tuples
from holdfast.core.model.ids import BEGINNING_US, StreamId
from holdfast.core.model.tuples import TIME_COLUMN, TupleBatch, in_parts, merged
from holdfast.core.queues import output_queue
from holdfast.core.queues.output_queue import OutputQueue

PART_BYTES = 10_000


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuples, "PART_BYTES", PART_BYTES)
    monkeypatch.setattr(output_queue, "PART_BYTES", PART_BYTES)


def texts(first_id: int, sizes: list[int], boundary_us: int = 99) -> TupleBatch:
    """A row for each size, of so many bytes."""
    columns = [pa.array(["x" * size for size in sizes]), pa.array(range(len(sizes)), pa.int64())]
    batch = pa.RecordBatch.from_arrays(columns, ["s", TIME_COLUMN])
    return TupleBatch(first_id, batch, boundary_us)


@given(st.lists(st.sampled_from([0, 1, 50, 3_000, 12_000]), min_size=1, max_size=300))
def test_parts_are_the_batch_and_small_however_its_rows_differ(sizes: list[int]) -> None:
    whole = texts(7, sizes)
    parts = list(in_parts(whole))
    assert [part.first_id for part in parts] == [7, *(part.next_id for part in parts[:-1])]
    joined = pa.Table.from_batches([part.batch for part in parts]).combine_chunks()
    assert joined.equals(pa.Table.from_batches([whole.batch]))
    assert all(part.nbytes <= PART_BYTES or part.count == 1 for part in parts)
    assert [part.boundary_us for part in parts] == [BEGINNING_US] * (len(parts) - 1) + [99]


def test_rows_that_share_their_bytes_stay_together() -> None:
    words = pa.DictionaryArray.from_arrays(
        pa.array([0, 1] * 40, pa.int8()), ["x" * 9_000, "y" * 9_000]
    )
    times = pa.array(range(80), pa.int64())
    batch = TupleBatch(0, pa.RecordBatch.from_arrays([words, times], ["s", TIME_COLUMN]), 1)
    assert list(in_parts(batch)) == [batch]


def test_what_is_merged_promises_what_its_parts_did() -> None:
    (whole,) = merged([texts(0, [1, 1], 50), texts(2, [1], BEGINNING_US)])
    assert (whole.first_id, whole.next_id, whole.boundary_us) == (0, 3, 50)


def test_large_parts_are_not_merged_again() -> None:
    queue = OutputQueue(StreamId("a[0]>b[0]"), first_id=0, retain=True, memory_limit_bytes=1 << 30)
    queue.primary.subscribe(0)
    queue.primary.reset_credit(1 << 20)
    for _ in range(40):
        queue.append(texts(queue.next_id, [400]))
        queue.primary.take_sendable()
        queue.merge_small()
    held = list(queue.held_from(0))
    assert len(held) < 20, "small ones are"
    assert all(batch.nbytes <= PART_BYTES for batch in held)
    assert held[-1].next_id == 40
