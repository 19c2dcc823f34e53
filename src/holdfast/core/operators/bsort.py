"""BSort: a sort with slack, as many rows as a buffer holds. Convergent-capable. [HA §3.2]

It holds up to `slack` rows: they are *held back*. A row that comes when there are as many pushes
the least of all out, be it itself, so a row gets past at most `slack` others. Equal rows stay in
the order of arrival. What is held are the greatest `slack` rows of all that ever came, whatever was
held before: so the oldest of them is all that is needed to rebuild the state.

Sorted by tuple time, rows older than the boundary are let go of at once: nothing can come before
them, so that changes when they are put out, never in which order. Sorted by a column, a row is held
until it is pushed out or the input ends, and the output's boundary stays behind the oldest held.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from holdfast.core.errors import InvariantViolation, LocalProtocolError
from holdfast.core.model.ids import END_US, NO_ID
from holdfast.core.model.schema import RecordPacking
from holdfast.core.model.stable_hash import (
    fixed_words,
    is_text,
    normal_float_words,
    validity,
    word_dtype,
)
from holdfast.core.operators.base import (
    AT_CLOSE,
    NOTHING,
    Operator,
    OperatorClass,
    Output,
    Owns,
    Rows,
    has_rows,
)
from holdfast.core.operators.causes import Causes
from holdfast.core.state.kernels import kernel
from holdfast.core.state.ordered_map import OrderedMap, time_bound
from holdfast.core.state.page_manager import PageManager
from holdfast.core.state.raw_page import RawPage
from holdfast.core.state.recycled_strings import RecycledStrings
from holdfast.core.state.string_pages import moved
from holdfast.core.state.total_pages import total_pages

_SIGN: Final = np.int64(2**63 - 1)
_SIGN_BIT: Final = np.int64(-(2**63))


class BSort(Operator):
    """Puts rows out in ascending order of a column or of tuple time, as far as the slack goes."""

    operator_class = OperatorClass.CONVERGENT_CAPABLE

    def __init__(
        self,
        name: str,
        schema: pa.Schema,
        *,
        by: str | None,
        slack: int,
        manager: PageManager | None = None,
    ) -> None:
        """Sort rows of `schema`.

        Args:
            name: Of the operator.
            schema: Of the input, and of the output.
            by: The column, nulls first and NaN last; None: tuple time.
            slack: How many rows are held, at least 1.
            manager: Where the state lives; an own one if None.

        Raises:
            LocalProtocolError: The column is missing or has no order, the slack is not positive,
                or a type cannot be stored.
        """
        self.name = name
        self.output_schema = schema
        if slack < 1:
            raise LocalProtocolError(f"{name}: slack={slack}; at least 1")
        self._slack = slack
        self._by = -1 if by is None else _sortable(name, schema, by)
        self._manager = manager if manager is not None else PageManager()
        self._packing = RecordPacking(schema.types)
        self._key_words = 2 if by is None else _width(schema.field(self._by).type) + 1
        self._strings = RecycledStrings(self._manager) if self._packing.has_text else None
        self._held = OrderedMap(self._manager, self._key_words, 1 + self._packing.width)
        self._times = None if by is None else OrderedMap(self._manager, 2, 0)
        self._next = RawPage(self._manager)  # the number that the next row gets
        self._causes = Causes(self._manager)
        self._created_us = 0

    def process(self, inputs: Sequence[Rows | None], low: np.ndarray, boundary_us: int) -> Output:
        """Take rows in, put out what they push out, then what the boundary lets go of.

        Raises:
            StateLimitExceeded: The pages are used up.
        """
        (rows,) = inputs
        orders: list[np.ndarray] = []
        out: list[np.ndarray] = []
        if rows is not None and has_rows(rows):
            self._causes.note(rows.time_us, low)
            self._created_us = max(self._created_us, rows.created_us)
            pushed, causing = self._push(self._records(rows))
            orders.append(rows.order[causing])
            out.append(pushed)
        freed = self._let_go(boundary_us)
        orders.append(np.full(len(freed), AT_CLOSE, dtype=np.int64))
        out.append(freed)
        cause = self._causes.oldest()
        self._forget()
        records = np.concatenate(out)
        if not len(records) or cause is None:
            return NOTHING
        batch = self._batch(records)
        time_us = np.ascontiguousarray(records[:, self._key_words])
        self._renew()
        return Output((Rows(batch, time_us, np.concatenate(orders), self._created_us),), cause)

    def promises_us(self, boundary_us: int) -> int:
        """Not beyond the oldest row held."""
        if self._times is None or boundary_us == END_US:
            return boundary_us
        oldest = self._times.first()
        return boundary_us if oldest is None else min(boundary_us, int(oldest[0]))

    def oldest_needed(self) -> np.ndarray | None:
        """The oldest tuple of any row held, or of one that came about when that did."""
        return self._causes.oldest()

    def adopt(self, others: Sequence[Operator], owns: Owns, streams: int) -> None:
        """All of it: a sort has one instance."""
        del owns
        if len(others) > 1:
            raise LocalProtocolError(f"the state of {self.name} is in {len(others)} instances")
        for other in others:
            assert isinstance(other, BSort)
            self._next.write(other._next.read())
            records = other._held.entries()
            if not len(records):
                continue
            if self._strings is not None and other._strings is not None:
                at = self._text_at()
                records[:, at] = moved(records[:, at], other._strings.pages, self._strings.pages)
            self._hold(records)
            if self._times is not None:
                self._times.put(self._time_keys(records), np.empty((len(records), 0), np.int64))
            times = records[:, self._key_words]
            self._causes.note(times, np.full(streams, NO_ID, dtype=np.int64))

    # -- one pass --------------------------------------------------------------------------

    def _records(self, rows: Rows) -> np.ndarray:
        """Rows as they are held, int64 (n, width): sort words, number, tuple time, attributes."""
        count = len(rows.time_us)
        keys = self._key_words
        first = int(self._next.read()[0]) if len(self._next.read()) else 0
        self._next.write(np.array([first + count], dtype=np.int64))
        records = np.empty((count, keys + 1 + self._packing.width), dtype=np.int64)
        words = [rows.time_us] if self._by < 0 else order_words(rows.batch.column(self._by))
        for i, part in enumerate(words):
            records[:, i] = part
        records[:, keys - 1] = np.arange(first, first + count)
        records[:, keys] = rows.time_us
        strings = None if self._strings is None else self._strings.pages
        self._packing.pack(rows.batch.columns, strings, records[:, keys + 1 :])
        return records

    def _push(self, arriving: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Take records in; those pushed out, and for each which arriving one has done it."""
        held = self._held.pop_first(len(arriving))
        both = np.concatenate([held, arriving])
        permutation = np.lexsort(both[:, : self._key_words].T[::-1])
        rank = np.empty(len(both), dtype=np.int64)
        rank[permutation] = np.arange(len(both))
        out = np.empty((2, len(arriving)), dtype=np.int64)
        room = self._slack - len(self._held)
        pushed = push_out(rank[: len(held)], rank[len(held) :], room, out)
        chosen = permutation[out[0, :pushed]]
        is_kept = np.ones(len(both), dtype=np.bool_)
        is_kept[chosen] = False
        self._hold(both[is_kept])
        if self._times is not None:
            self._times.put(self._time_keys(arriving), np.empty((len(arriving), 0), np.int64))
            self._times.remove(self._time_keys(both[chosen]))
        return both[chosen], out[1, :pushed]

    def _hold(self, records: np.ndarray) -> None:
        keys = self._key_words
        self._held.put(records[:, :keys], records[:, keys:])

    def _time_keys(self, records: np.ndarray) -> np.ndarray:
        """Tuple time and number, int64 (n, 2)."""
        return np.ascontiguousarray(records[:, [self._key_words, self._key_words - 1]])

    def _let_go(self, boundary_us: int) -> np.ndarray:
        """What nothing can come before any more."""
        if self._times is None:
            return self._held.pop_below(time_bound(boundary_us, self._held.key_words))
        freed = self._held.pop_first(len(self._held) if boundary_us == END_US else 0)
        self._times.remove(self._time_keys(freed))
        return freed

    def _forget(self) -> None:
        times = self._held if self._times is None else self._times
        oldest = times.first()
        self._causes.forget(None if oldest is None else int(oldest[0]))

    def _batch(self, records: np.ndarray) -> pa.RecordBatch:
        words = np.ascontiguousarray(records[:, self._key_words + 1 :])
        strings = None if self._strings is None else self._strings.pages
        columns = self._packing.unpack(words, strings)
        return pa.RecordBatch.from_arrays(columns, schema=self.output_schema)

    def _renew(self) -> None:
        """Forget the strings of rows that have gone, when it is worth it."""
        if self._strings is None or not self._strings.is_due:
            return
        records = self._held.entries()
        at = self._text_at()
        records[:, at] = self._strings.renew(records[:, at])
        self._hold(records)

    def _text_at(self) -> list[int]:
        """Which words of a record are references to strings."""
        return [self._key_words + 1 + word for word in self._packing.text_words]

    # -- looking ----------------------------------------------------------------------------

    def check_invariants(self) -> None:
        """Raise `InvariantViolation` if more is held than may be, or a tree makes no sense."""
        self._held.check_invariants()
        self._causes.check_invariants()
        if len(self._held) > self._slack:
            raise InvariantViolation(f"{self.name}: holds {len(self._held)} of {self._slack} rows")
        if self._times is None:
            return
        self._times.check_invariants()
        if len(self._times) != len(self._held):
            raise InvariantViolation(
                f"{self.name}: {len(self._times)} times of {len(self._held)} rows"
            )

    def state_bytes(self) -> int:
        """Bytes of pages held."""
        pages = total_pages(self._held, self._next, self._causes, self._times, self._strings)
        return pages * self._manager.page_bytes

    def state_rows(self) -> pa.Table:
        """The rows held, in order."""
        return pa.Table.from_batches([self._batch(self._held.entries())])


def order_words(column: pa.Array) -> list[np.ndarray]:
    """Words that compare as the values do: nulls first, then by Spark's order. int64 (n,) each."""
    kind = column.type
    if pa.types.is_floating(kind):
        bits = normal_float_words(column)
        words = [bits ^ ((bits >> 63) & _SIGN)]
    elif pa.types.is_decimal(kind):
        low, high = fixed_words(column)
        words = [high, low ^ _SIGN_BIT]
    else:
        words = fixed_words(column)
    is_valid = validity(column)
    if not len(is_valid):
        return [np.ones(len(column), dtype=np.int64), *words]
    return [is_valid.astype(np.int64), *(np.where(is_valid == 1, part, 0) for part in words)]


def _width(kind: pa.DataType) -> int:
    """How many words `order_words` gives."""
    return 3 if pa.types.is_decimal(kind) else 2


def _sortable(name: str, schema: pa.Schema, column: str) -> int:
    """The column's number. Raises `LocalProtocolError` unless its values can be ordered."""
    index = int(schema.get_field_index(column))
    if index < 0:
        raise LocalProtocolError(f"{name}: {column} is not in {schema.names}")
    kind = schema.field(index).type
    if is_text(kind):
        raise LocalProtocolError(f"{name}: cannot sort by {column}, which is {kind}")
    if not (pa.types.is_boolean(kind) or pa.types.is_decimal(kind)):
        word_dtype(kind)
    return index


@kernel("int64(int64[::1], int64[::1], int64, int64[:,::1])", allocates=True)
def push_out(held: np.ndarray, arriving: np.ndarray, room: int, out: np.ndarray) -> int:
    """Let ranks arrive one after another; each that finds no room pushes the least one out.

    Args:
        held: The least ranks held, ascending; at least as many as arrive, or all there are.
        arriving: Ranks in order of arrival.
        room: How many ranks of these two kinds may be held.
        out: int64 (2, n): ranks pushed out, and which arriving one has done it.

    Returns:
        How many were pushed out.
    """
    heap = [held[i] for i in range(len(held))]
    pushed = 0
    for i in range(len(arriving)):
        heapq.heappush(heap, arriving[i])
        if len(heap) > room:
            out[0, pushed] = heapq.heappop(heap)
            out[1, pushed] = i
            pushed += 1
    return pushed
