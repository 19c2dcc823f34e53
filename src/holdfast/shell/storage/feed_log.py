"""Reading a sink together with its feed: stable tuples, tentative ones and corrections in order.

The sink's log has the stable tuples, the feed the others, and at which stable tuple they stand
(core/model/feed_rows.py). `all_rows` gives everything in the order in which it was put out,
`current_rows` what is best known now: all stable tuples, and the tentative suffix that stands.

The feed is read first, to its end, then the log as far as the feed had come: no further than to the
suffix that stands, so that both are of one moment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa

from holdfast.core.model.feed_rows import FEED_FIELDS, TYPE_NAMES
from holdfast.core.model.tuples import TIME_COLUMN, TupleType
from holdfast.shell.storage.log_follower import LogFollower, LoggedBatch

_TENTATIVE: Final = TYPE_NAMES[TupleType.TENTATIVE]
_UNDO: Final = TYPE_NAMES[TupleType.UNDO]

Stable = Callable[[int, int | None], Iterator[LoggedBatch]]
"""Reads the log: tuples with ids from the first on, before the second; None: to its end."""


def logged_in(follower: LogFollower, end: int | None) -> Iterator[LoggedBatch]:
    """What a log holds from where its follower is, before an id; None: to its end.

    Raises:
        StorageError: As of `LogFollower.poll`.
    """
    while batches := follower.poll():
        for logged in batches:
            count = logged.count if end is None else min(logged.count, end - logged.first_id)
            if count > 0:
                yield replace(logged, count=count, batch=logged.batch[:count])
        if end is not None and follower.next_id >= end:
            break
    follower.close()


def all_rows(stable: Stable, feed: Iterable[LoggedBatch]) -> Iterator[pa.RecordBatch]:
    """Everything in order: the sink's columns, the time, and the feed's columns.

    Args:
        stable: Reads the sink's log.
        feed: What the feed holds.
    """
    next_id = 0
    stands = False
    for rows in _stretches(feed):
        tuple_id = rows.column("_tuple_id")[0].as_py()
        yield from _stable_rows(stable, next_id, tuple_id)
        next_id = max(next_id, tuple_id)
        yield from rows.to_batches()
        kind = rows.column("_type")[0].as_py()
        stands = kind == _TENTATIVE or (stands and kind != _UNDO)
    if not stands:
        yield from _stable_rows(stable, next_id, None)


def current_rows(stable: Stable, feed: Iterable[LoggedBatch]) -> Iterator[pa.RecordBatch]:
    """What is best known now; columns and args as of `all_rows`."""
    standing: list[pa.Table] = []
    for rows in _stretches(feed):
        kind = rows.column("_type")[0].as_py()
        if kind == _TENTATIVE:
            standing.append(rows)
        elif kind == _UNDO:
            standing = []
    ends = standing[0].column("_tuple_id")[0].as_py() if standing else None
    yield from _stable_rows(stable, 0, ends)
    for rows in standing:
        yield from rows.to_batches()


def _stable_rows(stable: Stable, start: int, end: int | None) -> Iterator[pa.RecordBatch]:
    if end is not None and end <= start:
        return
    for logged in stable(start, end):
        count = logged.count
        columns = [
            *logged.batch.columns,
            pa.repeat(TYPE_NAMES[TupleType.STABLE], count),
            pa.array(np.arange(logged.first_id, logged.first_id + count, dtype=np.int64)),
            pa.nulls(count, pa.string()),
            pa.nulls(count, pa.string()),
        ]
        own = [pa.field(field.name, field.type) for field in list(logged.batch.schema)[:-1]]
        fields = [*own, logged.batch.schema.field(TIME_COLUMN), *FEED_FIELDS]
        yield pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def _stretches(feed: Iterable[LoggedBatch]) -> Iterator[pa.Table]:
    """The feed's rows, those of one run or word together; the time stands before its columns."""
    batches = [logged.batch for logged in feed]
    if not batches:
        return
    rows = pa.Table.from_batches(batches)
    names = [name for name in rows.column_names if name != TIME_COLUMN]
    own = len(names) - len(FEED_FIELDS)
    rows = rows.select([*names[:own], TIME_COLUMN, *names[own:]])
    kinds, runs = rows.column("_type").to_pylist(), rows.column("_run").to_pylist()
    keys = list(zip(kinds, runs, strict=True))
    starts = [i for i in range(len(keys)) if i == 0 or keys[i] != keys[i - 1]]
    for start, stop in zip(starts, [*starts[1:], len(keys)], strict=True):
        yield rows.slice(start, stop - start)
