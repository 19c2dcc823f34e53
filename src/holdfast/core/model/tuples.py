"""Tuples travel, are stored and are processed in batches of one type.

Ids are implicit: row `i` of a batch has id `first_id + i`. Every batch carries its tuples' times in
a last column named `__time_us` (int64, microseconds since the epoch). [DPC §3.1]
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from holdfast.core.model.ids import BEGINNING_US

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import numpy as np

TIME_COLUMN: Final = "__time_us"
EARLIEST_US: Final = -62_135_596_800_000_000
"""0001-01-01: Spark's times, and so those of tuples, lie in the years 1 to 9999."""
LATEST_US: Final = 253_402_300_799_999_999
"""The last microsecond of the year 9999: far from the end of a stream, with room for windows."""
PART_BYTES: Final = 4 << 20
"""What is sent in one frame and written in one record: receivers and readers take those whole."""
_SHARED: Final = 1.5
"""Halves that have so many times the bytes of the whole share them."""


class TupleType(enum.IntEnum):
    """The type of every tuple of a batch. [DPC §3.1]"""

    STABLE = 0
    TENTATIVE = 1
    UNDO = 2
    BOUNDARY = 3
    UNDO_START = 4
    REC_DONE = 5


def with_time(schema: pa.Schema) -> pa.Schema:
    """The schema of a batch of these attributes: the same with the time column appended."""
    return schema.append(pa.field(TIME_COLUMN, pa.int64(), nullable=False))


def outside(times_us: np.ndarray) -> list[int]:
    """Those of some times that no tuple may have; see `EARLIEST_US` and `LATEST_US`."""
    if not len(times_us) or (times_us.min() >= EARLIEST_US and times_us.max() <= LATEST_US):
        return []
    found: list[int] = times_us[(times_us < EARLIEST_US) | (times_us > LATEST_US)].tolist()
    return found


@dataclass(frozen=True, slots=True)
class TupleBatch:
    """Consecutive tuples of one stream and one type.

    Attributes:
        first_id: Id of row 0.
        batch: The attributes, then `__time_us`.
        boundary_us: Nothing older than this follows this batch in its stream.
        created_us: Wall-clock time at which the oldest row entered the system; 0 if unknown. Only
            latency figures use it.
        tuple_type: The type of all rows.
    """

    first_id: int
    batch: pa.RecordBatch
    boundary_us: int
    created_us: int = 0
    tuple_type: TupleType = TupleType.STABLE

    @property
    def count(self) -> int:
        """How many tuples."""
        return int(self.batch.num_rows)

    @property
    def next_id(self) -> int:
        """The id after the last row's."""
        return self.first_id + int(self.batch.num_rows)

    @property
    def time_us(self) -> np.ndarray:
        """Tuple times, int64 microseconds, one per row."""
        times: np.ndarray = self.batch.column(self.batch.num_columns - 1).to_numpy()
        return times

    @property
    def nbytes(self) -> int:
        """Approximate size in bytes."""
        return int(self.batch.nbytes) + 64

    def starting_at(self, tuple_id: int) -> TupleBatch:
        """The same batch without the rows before `tuple_id` (which must lie within it)."""
        if tuple_id <= self.first_id:
            return self
        rows = self.batch.slice(tuple_id - self.first_id)
        return TupleBatch(tuple_id, rows, self.boundary_us, self.created_us, self.tuple_type)

    def not_older_than(self, time_us: int) -> TupleBatch:
        """The same batch without rows that are older; so ids may be other rows'."""
        is_kept = self.time_us >= time_us
        if is_kept.all():
            return self
        return replace(self, batch=self.batch.filter(pa.array(is_kept)))

    def before(self, tuple_id: int) -> TupleBatch:
        """The same batch without the rows from `tuple_id` on (which must lie within it).

        It promises no boundary: that of the whole holds only once the rest has been sent.
        """
        if tuple_id >= self.next_id:
            return self
        rows = self.batch.slice(0, tuple_id - self.first_id)
        return TupleBatch(self.first_id, rows, BEGINNING_US, self.created_us, self.tuple_type)


def in_parts(batch: TupleBatch) -> Iterator[TupleBatch]:
    """The same tuples in batches of `PART_BYTES` at most; only the last has the boundary.

    A single row may have more, and so may rows that share their bytes, which no cut makes fewer.
    """
    if batch.nbytes <= PART_BYTES or batch.count <= 1:
        yield batch
        return
    middle = batch.first_id + batch.count // 2
    halves = (batch.before(middle), batch.starting_at(middle))
    if sum(half.nbytes for half in halves) > _SHARED * batch.nbytes:
        yield batch
        return
    for half in halves:
        yield from in_parts(half)


def between(batches: Iterable[TupleBatch], from_id: int, to_id: int) -> tuple[TupleBatch, ...]:
    """The tuples with ids in [from_id, to_id); a batch cut short promises no boundary."""
    kept: list[TupleBatch] = []
    for batch in batches:
        if batch.next_id <= from_id or batch.first_id >= to_id:
            continue
        kept.append(batch.starting_at(from_id).before(to_id))
    return tuple(kept)


def merged(batches: list[TupleBatch]) -> list[TupleBatch]:
    """Consecutive batches as few as possible: one for each run of tuples of the same type."""
    runs: list[list[TupleBatch]] = []
    for batch in batches:
        if runs and runs[-1][0].tuple_type is batch.tuple_type:
            runs[-1].append(batch)
        else:
            runs.append([batch])
    return [run[0] if len(run) == 1 else _merged_run(run) for run in runs]


def _merged_run(run: list[TupleBatch]) -> TupleBatch:
    return TupleBatch(
        run[0].first_id,
        pa.concat_batches([batch.batch for batch in run]),
        max(batch.boundary_us for batch in run),
        min((batch.created_us for batch in run if batch.created_us), default=0),
        run[0].tuple_type,
    )
