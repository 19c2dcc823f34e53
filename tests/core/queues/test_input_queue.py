"""The input queue: duplicates, gaps, credit."""

import numpy as np
import pyarrow as pa

from holdfast.core.model.ids import END_US, StreamId
from holdfast.core.model.tuples import TIME_COLUMN, TupleBatch
from holdfast.core.queues.input_queue import InputQueue


def tuples(first_id: int, count: int, boundary_us: int = 0) -> TupleBatch:
    ids = np.arange(first_id, first_id + count, dtype=np.int64)
    batch = pa.RecordBatch.from_arrays([pa.array(ids), pa.array(ids)], names=["v", TIME_COLUMN])
    return TupleBatch(first_id, batch, boundary_us)


def queue(max_tuples: int = 100) -> InputQueue:
    return InputQueue(StreamId("s"), next_id=0, max_tuples=max_tuples)


def test_tuples_seen_before_are_dropped_and_counted() -> None:
    inputs = queue()
    assert inputs.receive(tuples(0, 10))
    assert inputs.receive(tuples(0, 10))
    assert inputs.receive(tuples(5, 10))
    assert inputs.duplicates_dropped == 15
    assert [(b.first_id, b.next_id) for b in inputs.take(100)] == [(0, 10), (10, 15)]


def test_a_gap_is_reported_and_nothing_is_taken() -> None:
    inputs = queue()
    assert not inputs.receive(tuples(3, 1))
    assert inputs.take(100) == []


def test_a_keep_alive_reveals_that_the_last_tuples_were_lost() -> None:
    inputs = queue()
    inputs.receive(tuples(0, 10))
    assert inputs.promise(10, 7)
    assert not inputs.promise(11, 8)
    assert inputs.boundary_us == 7


def test_credit_never_moves_back_and_bounds_what_is_held() -> None:
    inputs = queue(max_tuples=20)
    assert inputs.credit_until == 20
    inputs.receive(tuples(0, 20))
    assert inputs.refresh_credit() == 20
    inputs.take(20)
    assert inputs.refresh_credit(held_elsewhere=15) == 25
    assert inputs.refresh_credit() == 40


def test_a_stream_has_ended_only_when_all_was_taken() -> None:
    inputs = queue()
    inputs.receive(tuples(0, 1, boundary_us=END_US))
    assert not inputs.is_ended
    inputs.take(10)
    assert inputs.is_ended
