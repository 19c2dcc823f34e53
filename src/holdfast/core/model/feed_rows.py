"""The rows of a feed: what a sink's log does not hold of a stream with corrections. [DPC §3.1]

A feed is a log beside a sink's. It has the tentative tuples, and where they end: `undo`, which
makes all tentative rows before it void, and `rec_done`, which says that their correction is over.
Stable tuples are in the sink's log alone; `_tuple_id` says where a row stands among them.

| column | of a tentative row | of `undo` and `rec_done` |
| --- | --- | --- |
| the sink's | its values | null |
| `_type` | `tentative` | `undo`, `rec_done` |
| `_tuple_id` | its id: counts on from the stable tuples before it | how many of these there are |
| `_run` | which suffix it is of, `incarnation.number` | the same; null: whichever there is |
| `_missing` | the source streams that it was made without | null |
| `_share` | how many of the source streams behind it were not missing, 0 to 1 | null |
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from holdfast.core.model.tuples import TupleType, with_time

if TYPE_CHECKING:
    from holdfast.core.model.ids import Run

FEED_FIELDS: Final = (
    pa.field("_type", pa.string(), nullable=False),
    pa.field("_tuple_id", pa.int64(), nullable=False),
    pa.field("_run", pa.string()),
    pa.field("_missing", pa.string()),
    pa.field("_share", pa.float64()),
)
FEED_SUFFIX: Final = "~feed"
"""Behind a sink's name, the name of its feed."""
FEED_COLUMNS: Final = tuple(field.name for field in FEED_FIELDS)
TYPE_NAMES: Final = {
    TupleType.STABLE: "stable",
    TupleType.TENTATIVE: "tentative",
    TupleType.UNDO: "undo",
    TupleType.REC_DONE: "rec_done",
}


def feed_schema(schema: pa.Schema) -> pa.Schema:
    """The attributes of a feed beside a sink of these; all of the sink's may be null."""
    fields = [pa.field(field.name, field.type) for field in schema]
    return pa.schema([*fields, *FEED_FIELDS])


def tentative_rows(
    batch: pa.RecordBatch, first_id: int, run: Run, missing: tuple[str, ...], sources: int
) -> pa.RecordBatch:
    """Tentative tuples as rows of a feed.

    Args:
        batch: The sink's columns, the time column last.
        first_id: The id of the first tuple.
        run: Their suffix.
        missing: Source streams that they were made without.
        sources: How many there are before the sink.
    """
    count = batch.num_rows
    columns = [
        *batch.columns[:-1],
        pa.repeat(TYPE_NAMES[TupleType.TENTATIVE], count),
        pa.array(np.arange(first_id, first_id + count, dtype=np.int64)),
        pa.repeat(_name(run), count),
        pa.repeat(", ".join(missing), count),
        pa.repeat(max(0.0, 1 - len(missing) / sources), count),
        batch.columns[-1],
    ]
    return pa.RecordBatch.from_arrays(columns, schema=with_time(feed_schema(_attributes(batch))))


def control_row(
    schema: pa.Schema, kind: TupleType, tuple_id: int, run: Run | None
) -> pa.RecordBatch:
    """An `undo` or `rec_done`.

    Args:
        schema: The feed's attributes.
        kind: Which of them.
        tuple_id: How many stable tuples stand before it.
        run: The suffix; None: whichever there is.
    """
    values = {
        "_type": TYPE_NAMES[kind],
        "_tuple_id": tuple_id,
        "_run": None if run is None else _name(run),
    }
    columns = [pa.array([values.get(field.name)], field.type) for field in schema]
    columns.append(pa.array([0], pa.int64()))
    return pa.RecordBatch.from_arrays(columns, schema=with_time(schema))


def _attributes(batch: pa.RecordBatch) -> pa.Schema:
    return pa.schema(list(batch.schema)[:-1])


def _name(run: Run) -> str:
    return f"{run.incarnation}.{run.number}"
