"""Footprints of windows, and the records of the log that holds them. [CEC §II.B, §III]

A *footprint* is the state of one window between two passes. A node writes one when the window opens
(G_open), some more while it is open (G_check), and says when it has closed (R). All that a pass has
to say is one record of the node's footprint log, `<node>~footprints`, which is written like a
sink's: numbered, fenced by incarnation, each record under a checksum, the paper's fingerprint.

A record has a row for each window, and the same in all of its rows: the cut, how many windows are
open after it (N), the boundary that the node had acted on, and from where each input stream has to
be read to get what the cut had not processed. The *cut* is a place in the node's order: with one
input stream the id before which all was processed, with several the boundary. A row without a
window (`PASS`) says the same where no window has anything to say.

A replacement goes on from one record of its predecessor, not always from the last one, and appends
its own behind all that is there. So each record says which one it `follows`, by where that ends;
what lies between the two does not count.

Departure from the paper: R holds no result. Results of other nodes stay in output queues, those of
sinks in sinks' logs; a restart point says which ids they have, and becomes safe as any other does.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from holdfast.core.model.schema import array_over
from holdfast.core.model.tuples import TupleBatch, with_time

KIND: Final = "kind"
WINDOW: Final = "window"
"""The number of a window among those of its key: a column of every body."""
KEY: Final = "key."
"""What the names of key columns in a body begin with; with `WINDOW` they tell a window."""
PART: Final = KEY + "part"
"""Where windows have footprints of parts: which part it is, a key among the others; negative if
it is unfinished (operators/footprinted.py)."""
_PASS_FIELDS: Final = (
    pa.field("open_windows", pa.int64(), nullable=False),
    pa.field("cut", pa.int64(), nullable=False),
    pa.field("boundary_us", pa.int64(), nullable=False),
    pa.field("follows", pa.int64(), nullable=False),
    pa.field("starts", pa.list_(pa.int64()), nullable=False),
)
_BEFORE_BODY: Final = 1
_BEHIND_BODY: Final = len(_PASS_FIELDS) + 1  # and the time


class FootprintKind(enum.IntEnum):
    """What a row says of its window."""

    PASS = 0
    G_OPEN = 1
    G_CHECK = 2
    R = 3


class FootprintsDamaged(ValueError):
    """Rows that are no record of a footprint log, though their checksum is right."""


@dataclass(frozen=True, slots=True)
class PassMark:
    """What all rows of a record have in common.

    Attributes:
        open_windows: N, how many windows are open after it.
        cut: Up to where the node has processed its input, in its own order.
        boundary_us: What the node had acted on.
        starts: Per input stream, in the order of the plan, the oldest tuple that the cut leaves to
            be processed.
        follows: The id at which the record before this one ends; it counts, what lies between does
            not.
    """

    open_windows: int
    cut: int
    boundary_us: int
    starts: tuple[int, ...]
    follows: int


@dataclass(frozen=True, slots=True)
class FootprintRecord:
    """One record of a footprint log.

    Attributes:
        first_id: Of its first row in the log.
        mark: What its rows have in common.
        kinds: uint8 (n,), `FootprintKind` of each row; each window has one row at most.
        bodies: The rows in the operator's own columns.
    """

    first_id: int
    mark: PassMark
    kinds: np.ndarray
    bodies: pa.RecordBatch

    @property
    def next_id(self) -> int:
        """The id behind its last row."""
        return self.first_id + len(self.kinds)

    def to_batch(self, schema: pa.Schema | None = None) -> TupleBatch:
        """As it stands in the log; the log's schema may be given, so that it is made once."""
        n, mark, streams = len(self.kinds), self.mark, len(self.mark.starts)
        numbers = (mark.open_windows, mark.cut, mark.boundary_us, mark.follows, *mark.starts)
        words = np.empty((n, len(numbers)), dtype=np.int64)
        words[:] = numbers
        alike = np.ascontiguousarray(words[:, : len(numbers) - streams].T)
        open_windows, cut, boundary_us, follows = map(array_over, alike)
        starts = pa.ListArray.from_arrays(
            array_over(np.arange(0, (n + 1) * streams, streams, dtype=np.int32), pa.int32()),
            array_over(words[:, len(numbers) - streams :].ravel()),
        )
        said = (open_windows, cut, boundary_us, follows, starts, boundary_us)
        columns = [array_over(self.kinds, pa.uint8()), *self.bodies.columns, *said]
        schema = schema or footprint_schema(self.bodies.schema)
        batch = pa.RecordBatch.from_arrays(columns, schema=schema)
        return TupleBatch(self.first_id, batch, mark.boundary_us)


def has_checks(record: TupleBatch) -> bool:
    """Whether a record is of windows that were written in the background."""
    kind: int = record.batch.column(KIND)[0].as_py()
    return kind == FootprintKind.G_CHECK


def footprint_schema(body: pa.Schema) -> pa.Schema:
    """Of a footprint log whose operator describes its windows by these columns."""
    kind = pa.field(KIND, pa.uint8(), nullable=False)
    return with_time(pa.schema([kind, *body, *_PASS_FIELDS]))


def no_window(body: pa.Schema) -> pa.RecordBatch:
    """The body of a `PASS` row."""
    return pa.RecordBatch.from_arrays([pa.nulls(1, f.type) for f in body], schema=body)


def record_of(batch: TupleBatch, streams: int) -> FootprintRecord:
    """The record that a batch of a footprint log holds.

    Args:
        batch: As `FootprintRecord.to_batch` makes it.
        streams: How many input streams the node has.

    Raises:
        FootprintsDamaged: It is none. Whoever has made it knew the checksum and nothing else.
    """
    rows = batch.batch
    if rows.num_columns < _BEFORE_BODY + _BEHIND_BODY or not rows.num_rows:
        raise FootprintsDamaged("no footprint record: columns or rows are missing")
    body = pa.schema(list(rows.schema)[_BEFORE_BODY:-_BEHIND_BODY])
    if not rows.schema.equals(footprint_schema(body)):
        raise FootprintsDamaged("no footprint record: its columns are others")
    kinds = rows.column(0)
    if kinds.null_count:
        raise FootprintsDamaged("a footprint without a kind")
    kinds = kinds.to_numpy()
    if int(kinds.max()) > max(FootprintKind):
        raise FootprintsDamaged(f"a footprint of kind {int(kinds.max())}")
    mark = _mark_of(rows, streams)
    if mark.follows > batch.first_id:
        raise FootprintsDamaged(f"a record at row {batch.first_id} follows row {mark.follows}")
    bodies = rows.select(range(_BEFORE_BODY, rows.num_columns - _BEHIND_BODY))
    return FootprintRecord(batch.first_id, mark, kinds, bodies)


def _mark_of(rows: pa.RecordBatch, streams: int) -> PassMark:
    """What the rows agree on. Raises `FootprintsDamaged` if they do not."""
    *numbers, starts = rows.columns[-_BEHIND_BODY:-1]
    found: list[int] = []
    for column in numbers:
        words = column.to_numpy() if not column.null_count else np.zeros(0, dtype=np.int64)
        if not len(words) or bool((words != words[0]).any()):
            raise FootprintsDamaged("rows of a footprint record disagree")
        found.append(int(words[0]))
    flat = starts.flatten()
    if starts.null_count or flat.null_count or len(flat) != rows.num_rows * streams:
        raise FootprintsDamaged(f"a footprint record does not name {streams} input streams")
    every = flat.to_numpy().reshape(rows.num_rows, streams)
    if bool((every != every[0]).any()):
        raise FootprintsDamaged("rows of a footprint record disagree")
    open_windows, cut, boundary_us, follows = found
    if open_windows < 0 or follows < 0:
        raise FootprintsDamaged(f"{open_windows} open windows, behind row {follows}")
    return PassMark(open_windows, cut, boundary_us, tuple(every[0].tolist()), follows)
