"""Rows as the batches of an output: which columns, which receiver, how old at the least."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from holdfast.core.model.ids import BEGINNING_US, END_US
from holdfast.core.model.stable_hash import partition_of
from holdfast.core.model.tuples import with_time

if TYPE_CHECKING:
    from holdfast.core.haunit.plan import OutputSpec
    from holdfast.core.operators.base import Rows


def batch_of(rows: Rows, spec: OutputSpec) -> pa.RecordBatch:
    """Of some rows the columns that an output puts out, then their times."""
    kept = rows.batch if spec.columns is None else rows.batch.select(list(spec.columns))
    return pa.RecordBatch.from_arrays(
        [*kept.columns, pa.array(rows.time_us)], schema=with_time(spec.schema)
    )


def sink_batch_of(rows: Rows, feed: OutputSpec) -> pa.RecordBatch:
    """What the sink of a feed would be given of some rows, then their times; all may be null."""
    kept = rows.batch if feed.columns is None else rows.batch.select(list(feed.columns))
    fields = list(feed.schema)[: kept.num_columns]
    return pa.RecordBatch.from_arrays(
        [*kept.columns, pa.array(rows.time_us)], schema=with_time(pa.schema(fields))
    )


def partition(batch: pa.RecordBatch, spec: OutputSpec) -> list[pa.RecordBatch]:
    """Split by key hash into one batch per receiver, rows in order. Cost: O(rows)."""
    receivers = len(spec.streams)
    if receivers == 1:
        return [batch]
    part = partition_of([batch.column(key) for key in spec.keys], receivers)
    small = np.min_scalar_type(receivers - 1)  # Up to 16 bits are sorted in linear time.
    order = np.argsort(part.astype(small), kind="stable")
    counts = np.bincount(part, minlength=receivers)
    sorted_batch = batch.take(pa.array(order))
    starts = np.concatenate([[0], np.cumsum(counts)])
    return [sorted_batch.slice(int(starts[i]), int(counts[i])) for i in range(receivers)]


def not_before(batch: pa.RecordBatch, time_us: int) -> pa.RecordBatch:
    """The rows that are not older than a time, by the last column."""
    if time_us == BEGINNING_US or not batch.num_rows:
        return batch
    keep = batch.column(batch.num_columns - 1).to_numpy() >= time_us
    return batch if bool(keep.all()) else batch.filter(pa.array(keep))


def at_the_earliest(batch: pa.RecordBatch, time_us: int) -> pa.RecordBatch:
    """All rows; those older than a time get that time. Nothing may come any more: none are left."""
    if time_us in (BEGINNING_US, END_US):
        return not_before(batch, time_us)
    times = batch.column(batch.num_columns - 1).to_numpy()
    columns = [*batch.columns[:-1], pa.array(np.maximum(times, time_us))]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)
