"""The recovery plan of continuous eventual checkpoints: which footprints make up the state. [CEC
"Constructing an EC"]

Theory of operation. A restart point names a record of the footprint log: the node's state was
durable with it. From there the log is read backwards, newest record first:

- Each record says which one it `follows`; what lies between belongs to a life that went on from an
  earlier record, and is left out.
- The newest word on a window counts. If that is its footprint, the window was open, and has been
  found; if it is R, the window had closed, and all that comes before is passed over.
- The newest record says how many windows were open, N. With so many found, the *eventual
  checkpoint* is complete, and all that was read is its *extent*. T is the cut of the oldest record
  that has given a footprint: from there on the input is replayed, and each window takes what comes
  behind its own cut.

Footprints of parts count like windows, one by one, but T is the cut of the oldest *newest* part
that is finished.

A window is told by its number and its key. Keys are compared as operators compare them: nulls are a
key, -0.0 = 0.0 and NaN = NaN.

Departure from the paper: what is torn or damaged at the log's end was cut off when the log was
opened; a record in the middle that is damaged ends the search with an error, as nobody can say
what it held.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from holdfast.core.model.footprints import (
    KEY,
    PART,
    WINDOW,
    FootprintKind,
    FootprintRecord,
    FootprintsDamaged,
    PassMark,
    record_of,
)
from holdfast.core.model.schema import RecordPacking
from holdfast.core.state.page_manager import PageManager
from holdfast.core.state.string_pages import StringPages
from holdfast.core.state.unordered_map import UnorderedMap

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.core.model.tuples import TupleBatch


@dataclass(frozen=True, slots=True)
class FoundFootprints:
    """What one record gives of an eventual checkpoint.

    Attributes:
        first_id: Of the record in the log.
        mark: What the record says of its pass.
        bodies: The windows whose newest footprint it holds; maybe none.
        binding: bool (n,), which of them are finished, and no newer one of the window follows.
        nbytes: Size of the whole record, approximately.
    """

    first_id: int
    mark: PassMark
    bodies: pa.RecordBatch
    binding: np.ndarray
    nbytes: int


@dataclass(frozen=True, slots=True)
class Extent:
    """An eventual checkpoint.

    Attributes:
        records: Oldest first; the last one is the record that the restart point names.
        next_id: The id behind it, which the next record follows.
    """

    records: tuple[FoundFootprints, ...]
    next_id: int

    @property
    def last(self) -> PassMark:
        """Of the record that is gone on from."""
        return self.records[-1].mark

    @property
    def starts(self) -> tuple[int, ...]:
        """T: per input stream, in the order of the plan, from where it has to be replayed."""
        oldest = next((r for r in self.records if r.binding.any()), self.records[-1])
        return oldest.mark.starts


class ExtentSearch:
    """Takes the records of a footprint log, newest first, until an eventual checkpoint is whole."""

    def __init__(self, next_id: int, streams: int) -> None:
        """Look for the eventual checkpoint of the record that ends at an id.

        Args:
            next_id: The id behind the record's last row.
            streams: How many input streams the node has.
        """
        self._next_id = next_id
        self._streams = streams
        self._expected = next_id  # where the next record that counts ends
        self._records: list[FoundFootprints] = []  # newest first
        self._seen: _Seen | None = None
        self._wholes: _Seen | None = None  # windows, where footprints are parts
        self._found = 0

    @property
    def is_complete(self) -> bool:
        """Whether all windows that were open have been found."""
        return bool(self._records) and self._found == self._records[0].mark.open_windows

    def add(self, batch: TupleBatch) -> None:
        """Take the record that stands before those taken so far.

        Raises:
            FootprintsDamaged: It is none, or contradicts those behind it.
        """
        if self.is_complete or batch.first_id >= self._expected:
            return  # It belongs to a life that was not gone on from.
        if batch.next_id != self._expected:
            raise FootprintsDamaged(
                f"a record ends at row {batch.next_id}, where one follows row {self._expected}"
            )
        record = record_of(batch, self._streams)
        self._expected = record.mark.follows
        if self._records and record.mark.cut > self._records[-1].mark.cut:
            raise FootprintsDamaged(f"the cut at row {record.first_id} lies behind the next one")
        is_newest = self._are_new(record)
        is_open = is_newest & (record.kinds != FootprintKind.R)
        self._found += int(is_open.sum())
        bodies = record.bodies if is_open.all() else record.bodies.filter(pa.array(is_open))
        binding = self._binding(bodies)
        found = FoundFootprints(record.first_id, record.mark, bodies, binding, batch.nbytes)
        self._records.append(found)
        if self._found > self._records[0].mark.open_windows:
            raise FootprintsDamaged(
                f"{self._found} windows were open, where {self._records[0].mark.open_windows} were"
            )

    def extent(self) -> Extent:
        """The eventual checkpoint. Raises `FootprintsDamaged` unless it is complete."""
        if not self.is_complete:
            wanted = self._records[0].mark.open_windows if self._records else "all"
            raise FootprintsDamaged(f"footprints of {self._found} of {wanted} open windows")
        return Extent(tuple(reversed(self._records)), self._next_id)

    def _are_new(self, record: FootprintRecord) -> np.ndarray:
        """Which rows are the first word on their window. bool (n,)."""
        is_new: np.ndarray = record.kinds != FootprintKind.PASS
        if not is_new.any():
            return is_new
        if self._seen is None:
            schema = record.bodies.schema
            self._seen = _Seen(schema, [n for n in schema.names if n.startswith(KEY)])
        whole = is_new.all()
        bodies = record.bodies if whole else record.bodies.filter(pa.array(is_new))
        is_new[is_new] = self._seen.are_new(bodies)
        return is_new

    def _binding(self, bodies: pa.RecordBatch) -> np.ndarray:
        """Which of the footprints are the newest finished parts of their windows. bool (n,)."""
        schema = bodies.schema
        if PART not in schema.names:
            return np.ones(bodies.num_rows, dtype=np.bool_)
        if self._wholes is None:
            keys = [n for n in schema.names if n.startswith(KEY) and n != PART]
            self._wholes = _Seen(schema, keys)
        binding: np.ndarray = bodies.column(PART).to_numpy() >= 0
        rows = np.flatnonzero(binding)
        binding[rows] = self._wholes.are_new(bodies.take(pa.array(rows)))
        return binding


class _Seen:
    """The windows that there was a word on already, told by their numbers and these columns."""

    def __init__(self, body: pa.Schema, keys: Sequence[str]) -> None:
        self._at = [body.get_field_index(name) for name in keys]
        self._window_at = body.get_field_index(WINDOW)
        if self._window_at < 0:
            raise FootprintsDamaged("footprints do not name their windows")
        manager = PageManager()
        self._packing = RecordPacking([body.field(at).type for at in self._at], is_key=True)
        self._strings = StringPages(manager) if self._packing.has_text else None
        self._windows = UnorderedMap(manager, self._packing.width + 1, 1)

    def are_new(self, bodies: pa.RecordBatch) -> np.ndarray:
        """Which of these are seen for the first time; from now on none is. bool (n,).

        Raises:
            FootprintsDamaged: One of them occurs twice, or is not named.
        """
        number = bodies.column(self._window_at)
        if number.null_count:
            raise FootprintsDamaged("a footprint does not name its window")
        words = np.empty((bodies.num_rows, self._packing.width + 1), dtype=np.int64)
        words[:, -1] = number.to_numpy()
        if self._at:
            keys = [bodies.column(at) for at in self._at]
            words[:, :-1] = self._packing.pack(keys, self._strings)
        slots = self._windows.upsert_slots(words)
        are_new: np.ndarray = self._windows.read_values(slots)[:, 0] == 0
        marks = np.arange(1, len(slots) + 1, dtype=np.int64).reshape(-1, 1)
        self._windows.write_values(slots, marks)
        if not np.array_equal(self._windows.read_values(slots), marks):
            raise FootprintsDamaged("a record says two things of one window")
        return are_new
