"""What a Parquet file says of its times, so that a row's place in time is known before it is read.

A file names the oldest and the newest value of each group of rows. So a file becomes part of a
stream without a look at its rows. Where a reader finds another value than the file says, the file
is damaged: a promise that nothing older follows has been given on its word.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from holdfast.core.model.ids import BEGINNING_US, END_US
from holdfast.core.model.tuples import outside
from holdfast.core.queues.lateness import FileTimes
from holdfast.shell.storage.parquet_ends import column_number

if TYPE_CHECKING:
    from collections.abc import Iterator

_UNITS_US: Final = {"milliseconds": 1_000, "microseconds": 1}
GroupTimes = tuple[int, int]
"""Oldest and newest time of a group of rows, none of which is null."""


def group_times(found: Any, time: str) -> list[GroupTimes | None]:
    """What a `ParquetFile` says of each group of rows; None: nothing that is sure.

    Args:
        found: The file.
        time: Its column with the event time.
    """
    metadata = found.metadata
    number = column_number(found, time)
    unit_us = 0 if number < 0 else _unit_us(found.schema.column(number))
    if not unit_us:
        return [None] * metadata.num_row_groups
    columns = (metadata.row_group(group).column(number) for group in range(metadata.num_row_groups))
    return [_times(column.statistics, unit_us) for column in columns]


def _unit_us(column: Any) -> int:
    """How many microseconds a column's unit has; 0: it holds no times, or others."""
    if column.physical_type != "INT64":
        return 0
    said = json.loads(column.logical_type.to_json())
    is_time = said.get("Type") == "Timestamp"
    return _UNITS_US.get(said.get("timeUnit"), 0) if is_time else 0


def _times(statistics: Any, unit_us: int) -> GroupTimes | None:
    if statistics is None or not (statistics.has_min_max and statistics.has_null_count):
        return None
    if statistics.null_count:
        return None
    times_us = int(statistics.min_raw) * unit_us, int(statistics.max_raw) * unit_us
    return None if outside(np.array(times_us)) else times_us


def file_times(found: Any, time: str, until_us: int | None) -> FileTimes | None:
    """The times of a `ParquetFile` with rows; None: its rows must be read to know them.

    Args:
        found: The file.
        time: Its column with the event time.
        until_us: What is newer may be ahead of the stream, and is then looked at row by row; None:
            never.
    """
    groups = group_times(found, time)
    known = [times for times in groups if times is not None]
    if not known or len(known) < len(groups):
        return None
    newest_us = max(newest for _, newest in known)
    if until_us is not None and newest_us > until_us:
        return None
    reached_us, disorder_us = BEGINNING_US, 0
    for oldest_us, newest_of_group_us in known:
        reached_us = max(reached_us, newest_of_group_us)
        disorder_us = max(disorder_us, reached_us - oldest_us)
    oldest_us = min(oldest for oldest, _ in known)
    return FileTimes(found.metadata.num_rows, oldest_us, newest_us, disorder_us)


def oldest_behind(groups: list[GroupTimes | None]) -> list[int]:
    """Per group, no row of a later one is older than this; `BEGINNING_US`: nobody knows."""
    oldest_us, found = END_US, []
    for times in reversed(groups):
        found.append(oldest_us)
        oldest_us = BEGINNING_US if times is None else min(oldest_us, times[0])
    return found[::-1]


def rows_of_group(
    found: Any,
    group: int,
    *,
    columns: list[str],
    time: str,
    said: GroupTimes | None,
    behind_us: int,
    batch_rows: int,
) -> Iterator[tuple[pa.RecordBatch, int]]:
    """The rows of a group in batches, each with the time than which no row behind it is older.

    Args:
        found: The file.
        group: Which one.
        columns: Those to read.
        time: The column with the event time, one of them.
        said: What the file says of the group's times.
        behind_us: Nothing in a later group is older.
        batch_rows: Of a batch, at most.

    Raises:
        ValueError: A time is not within what the file says.
    """
    if said is None:
        for rows in found.iter_batches(batch_rows, row_groups=[group], columns=columns):
            yield rows, BEGINNING_US
        return
    times = found.read_row_group(group, columns=[time], use_threads=False).column(0)
    times = pa.concat_arrays(times.chunks) if times.num_chunks != 1 else times.chunk(0)
    oldest_us = _oldest_from(times, batch_rows, said)
    others, at = [name for name in columns if name != time], 0
    for arrays, count in _of_others(found, group, others, len(times), batch_rows):
        own = times.slice(at, count)
        at += count
        made = pa.RecordBatch.from_arrays([*arrays, own], names=[*others, time])
        next_us = int(oldest_us[at // batch_rows]) if at < len(times) else END_US
        yield made, min(behind_us, next_us)


def _of_others(
    found: Any, group: int, others: list[str], count: int, batch_rows: int
) -> Iterator[tuple[list[pa.Array], int]]:
    """The other columns of the same rows, and how many rows they are."""
    if others:
        for rows in found.iter_batches(batch_rows, row_groups=[group], columns=others):
            yield rows.columns, rows.num_rows
    else:
        for start in range(0, count, batch_rows):
            yield [], min(batch_rows, count - start)


def _oldest_from(times: pa.Array, batch_rows: int, said: GroupTimes) -> np.ndarray:
    """Per batch, the oldest time in it and in those behind it."""
    values = times.cast(pa.timestamp("us", times.type.tz)).cast(pa.int64()).to_numpy()
    if not len(values):
        return np.zeros(0, np.int64)
    starts = np.arange(0, len(values), batch_rows)
    oldest: np.ndarray = np.minimum.reduceat(values, starts)
    if int(oldest.min()) < said[0] or int(values.max()) > said[1]:
        raise ValueError("it holds times that are not within what its statistics say")
    return np.minimum.accumulate(oldest[::-1])[::-1]
