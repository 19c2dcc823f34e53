"""One side of a join whose rows match within a span of time: its rows, and when each goes.

A row is an *entry* of words: the key's, tuple time, number, whether it has matched, the columns'.
Rows have numbers in the order in which they came to the operator.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from holdfast.core.errors import InvariantViolation
from holdfast.core.model.ids import BEGINNING_US, END_US
from holdfast.core.operators.base import Rows
from holdfast.core.operators.join import JoinLayout
from holdfast.core.state.ordered_map import OrderedMap, time_bound
from holdfast.core.state.page_manager import PageManager
from holdfast.core.state.paged_deque import PagedDeque
from holdfast.core.state.string_pages import StringPages

_CHUNK = 1 << 10
"""Of rows that go: so many are looked at once."""


class IntervalSide:
    """Rows of one side, all in pages.

    Those that have not had their turn wait in a T-tree by (time, number). The others lie in a
    T-tree by (key, time, number), where the rows of a key between two times are found, and their
    keys in a deque by time, from whose front they go.
    """

    def __init__(self, manager: PageManager, layout: JoinLayout, side: int, keep_us: int) -> None:
        """Empty, or as a checkpoint holds it.

        Args:
            manager: Of the pages.
            layout: Of the join.
            side: 0, the left one, or 1.
            keep_us: A row that has had its turn goes so much later.
        """
        self._layout = layout
        self._side = side
        self.keep_us = keep_us
        words = layout.key_words
        self.time_at, self.number_at, self.matched_at = words, words + 1, words + 2
        self.row_at = words + 3
        self.width = self.row_at + layout.row_packings[side].width
        self._held = OrderedMap(manager, words + 2, self.width - words - 2)
        self._leaving = PagedDeque(manager, words + 2)
        self._waiting = OrderedMap(manager, 2, self.width - 2)
        self._rotated = [*range(words, words + 2), *range(words), *range(words + 2, self.width)]

    def __len__(self) -> int:
        return len(self._held) + len(self._waiting)

    @property
    def page_count(self) -> int:
        """How many pages it takes."""
        return self._held.page_count + self._leaving.page_count + self._waiting.page_count

    def next_number(self) -> int:
        """More than the number of any row."""
        held, waiting = self._held.entries(), self._waiting.entries()
        numbers = [held[:, self.number_at], waiting[:, 1]]
        return max((int(part.max()) + 1 for part in numbers if len(part)), default=0)

    def oldest_us(self) -> int:
        """The tuple time of its oldest row; END_US: there is none."""
        leaving, waiting = self._leaving.peek_front(1), self._waiting.first()
        oldest = int(leaving[0, self.time_at]) if len(leaving) else END_US
        return oldest if waiting is None else min(oldest, int(waiting[0]))

    def entries_of(self, rows: Rows, numbers: np.ndarray, strings: StringPages) -> np.ndarray:
        """Rows that come, with these numbers, as entries."""
        entries = np.zeros((len(numbers), self.width), dtype=np.int64)
        columns = rows.batch.columns
        keys = [columns[c] for c in self._layout.key_columns[self._side]]
        self._layout.key_packings[self._side].pack(keys, strings, entries[:, : self.time_at])
        self._layout.row_packings[self._side].pack(columns, strings, entries[:, self.row_at :])
        entries[:, self.time_at] = rows.time_us
        entries[:, self.number_at] = numbers
        return entries

    def turns(self, coming: np.ndarray, boundary_us: int) -> np.ndarray:
        """The entries older than the boundary, by (time, number); others of `coming` wait."""
        is_due = coming[:, self.time_at] < boundary_us
        if len(self._waiting) or not is_due.all():
            self._wait(coming[~is_due])
            waited = self._waiting.pop_below(time_bound(boundary_us, 2))
            due = np.empty((len(waited), self.width), dtype=np.int64)
            due[:, self._rotated] = waited
            coming = np.concatenate([due, coming[is_due]])
        return coming[np.lexsort((coming[:, self.number_at], coming[:, self.time_at]))]

    def hold(self, entries: np.ndarray) -> None:
        """Take in entries that have had their turn; none is older than what was taken in before."""
        self.mark(entries)
        self._leaving.push_back(entries[:, : self.matched_at])

    def mark(self, entries: np.ndarray) -> None:
        """Write what entries that it holds say now."""
        self._held.put(entries[:, : self.matched_at], entries[:, self.matched_at :])

    def partners(
        self, others: np.ndarray, time_at: int, first_us: int, last_us: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """What it holds with the keys of other entries, so much later than these, both included.

        Returns:
            Per partner the number of the other entry, ascending, and its own entry.
        """
        words = self._layout.key_words
        lows = np.empty((len(others), words + 2), dtype=np.int64)
        lows[:, :words] = others[:, :words]
        lows[:, words + 1] = BEGINNING_US
        highs = lows.copy()
        lows[:, words] = others[:, time_at] + first_us
        highs[:, words] = others[:, time_at] + last_us + 1
        return self._held.ranges(lows, highs)

    def gone(self, boundary_us: int) -> np.ndarray:
        """Take out, by (time, number), what no row at or after the boundary can match."""
        before_us = max(BEGINNING_US, boundary_us - self.keep_us)
        before_us = END_US if boundary_us == END_US else before_us
        keys = [*self._pop_before(before_us)]
        if not keys:
            return np.empty((0, self.width), dtype=np.int64)
        names = np.concatenate(keys)
        found, values = self._held.get(names)
        if not found.all():
            raise InvariantViolation(f"{self._layout.name}: a row that goes is not held")
        self._held.remove(names)
        return np.concatenate([names, values], axis=1)

    def adopt(self, entries: np.ndarray, waiting: np.ndarray) -> None:
        """Take in entries of others, whose references are to strings of this one."""
        order = np.lexsort((entries[:, self.number_at], entries[:, self.time_at]))
        self.hold(entries[order])
        self._wait(waiting)

    def all(self) -> tuple[np.ndarray, np.ndarray]:
        """The entries that it holds, and those that wait for their turn."""
        waited = self._waiting.entries()
        waiting = np.empty((len(waited), self.width), dtype=np.int64)
        waiting[:, self._rotated] = waited
        return self._held.entries(), waiting

    def clear(self) -> None:
        """Let go of everything."""
        for tree in (self._held, self._waiting):
            tree.pop_first(len(tree))
        self._leaving.pop_front(len(self._leaving))

    def text_at(self) -> list[int]:
        """Which words of an entry refer to strings."""
        keys = self._layout.key_packings[self._side].text_words
        rows = self._layout.row_packings[self._side].text_words
        return [*keys, *(self.row_at + word for word in rows)]

    def key_columns(self, entries: np.ndarray, strings: StringPages) -> list[pa.Array]:
        """The columns of the entries' keys."""
        keys = np.ascontiguousarray(entries[:, : self.time_at])
        return self._layout.key_packings[self._side].unpack(keys, strings)

    def column(self, entries: np.ndarray, column: int, strings: StringPages) -> pa.Array:
        """A column of entries."""
        packing = self._layout.row_packings[self._side]
        return packing.unpack_column(entries[:, self.row_at :], column, strings)

    def absent(self, count: int) -> np.ndarray:
        """Entries of no row: all their columns are null."""
        entries = np.zeros((count, self.width), dtype=np.int64)
        nulls = self._layout.row_packings[self._side].null_words
        entries[:, self.row_at : self.row_at + nulls] = -1
        return entries

    def check_invariants(self) -> None:
        """Raise `InvariantViolation` if a structure makes no sense, or two disagree."""
        for structure in (self._held, self._leaving, self._waiting):
            structure.check_invariants()
        leaving = self._leaving.scan()
        times = leaving[:, self.time_at]
        names = leaving[np.lexsort(leaving.T[::-1])]
        if (times[1:] < times[:-1]).any():
            raise InvariantViolation(f"{self._layout.name}: rows do not go in order of time")
        if not np.array_equal(names, self._held.entries()[:, : self.matched_at]):
            raise InvariantViolation(f"{self._layout.name}: rows held are not those that will go")

    def _wait(self, entries: np.ndarray) -> None:
        rotated = entries[:, self._rotated]
        self._waiting.put(rotated[:, :2], rotated[:, 2:])

    def _pop_before(self, time_us: int) -> Iterator[np.ndarray]:
        while len(self._leaving):
            front = self._leaving.peek_front(_CHUNK)
            count = int(np.searchsorted(front[:, self.time_at], time_us))
            if count:
                yield self._leaving.pop_front(count)
            if count < len(front):
                return
