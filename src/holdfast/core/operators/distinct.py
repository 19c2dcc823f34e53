"""Of tuples with equal keys the first one. [HA §3.2]

Three kinds, by which tuples of a key are copies of one that was put out:

| kind             | copies are                     | class              | forgotten        |
| ---------------- | ------------------------------ | ------------------ | ---------------- |
| for ever         | all that come later            | deterministic      | never            |
| `within_us`      | those before its time + within | deterministic      | at that time     |
| `within_us` of 0 | those of the very same time    | convergent-capable | behind that time |

A key is forgotten when the boundary has passed the time up to which tuples would be copies: none
of these comes any more, so results do not show when that was. Started in the middle, the operator
may take another tuple of a key for the first one, and go on differently for as long as the key's
tuples follow each other; only tuples of one time, all of which a replay has, leave no such choice.

State, all in pages: a T-tree of the keys, each with the time before which tuples are copies; for
`within_us` another one by that time. Rows stay where they are in the order.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from holdfast.core.errors import InvariantViolation, LocalProtocolError
from holdfast.core.model.ids import BEGINNING_US, END_US, NO_ID
from holdfast.core.model.schema import RecordPacking
from holdfast.core.operators.base import (
    NOTHING,
    Operator,
    OperatorClass,
    Output,
    Owns,
    Rows,
    chosen,
    has_rows,
)
from holdfast.core.operators.causes import Causes
from holdfast.core.state.ordered_map import OrderedMap, time_bound
from holdfast.core.state.page_manager import PageManager
from holdfast.core.state.recycled_strings import RecycledStrings
from holdfast.core.state.session_kernels import keep_first
from holdfast.core.state.string_pages import StringPages, moved
from holdfast.core.state.total_pages import total_pages
from holdfast.core.state.unordered_map import distinct_keys


class Distinct(Operator):
    """Puts out the first tuple of every key, and drops its copies."""

    def __init__(
        self,
        name: str,
        schema: pa.Schema,
        keys: Sequence[str],
        *,
        within_us: int | None,
        manager: PageManager | None = None,
    ) -> None:
        """Look at rows of `schema`.

        Args:
            name: Of the operator.
            schema: Of the input, and of the output.
            keys: Key columns; nulls are a key, -0.0 = 0.0 and NaN = NaN.
            within_us: See the module; None: for ever.
            manager: Where the state lives; an own one if None.

        Raises:
            LocalProtocolError: There is no key, it is not in the schema, or cannot be stored.
        """
        self._columns = [schema.get_field_index(key) for key in keys]
        if min(self._columns, default=-1) < 0:
            raise LocalProtocolError(f"{name}: keys {list(keys)}; there are {schema.names}")
        self.name = name
        self.output_schema = schema
        self._manager = manager if manager is not None else PageManager()
        self._within_us = within_us
        self._is_of_one_time = within_us == 0
        self.operator_class = (
            OperatorClass.CONVERGENT_CAPABLE
            if self._is_of_one_time
            else OperatorClass.DETERMINISTIC
        )
        types = [schema.field(column).type for column in self._columns]
        self._packing = RecordPacking(types, is_key=True)
        self._key_at = 1 if self._is_of_one_time else 0  # Keys of one time begin with it.
        self._words = self._key_at + self._packing.width
        self._kept = OrderedMap(self._manager, self._words, 1)
        self._by_end = OrderedMap(self._manager, 1 + self._words, 0) if within_us else None
        self._strings = RecycledStrings(self._manager) if self._packing.has_text else None
        self._causes = Causes(self._manager, is_forgetful=self._is_of_one_time)

    @property
    def _pages(self) -> StringPages | None:
        return None if self._strings is None else self._strings.pages

    def process(self, inputs: Sequence[Rows | None], low: np.ndarray, boundary_us: int) -> Output:
        """The rows that are no copies.

        Raises:
            StateLimitExceeded: The pages are used up.
        """
        (rows,) = inputs
        output = NOTHING
        if rows is not None and has_rows(rows):
            self._causes.note(rows.time_us, low)
            numbers = self._first_of(rows)
            cause = self._causes.oldest()
            if len(numbers) and cause is not None:
                is_all = len(numbers) == len(rows.time_us)
                output = Output((rows if is_all else chosen(rows, numbers),), cause)
        self._forget(boundary_us)
        return output

    def closes_us(self, boundary_us: int) -> int:
        """None: results come with rows."""
        del boundary_us
        return BEGINNING_US

    def oldest_needed(self) -> np.ndarray | None:
        """The oldest tuple of a time that may still come; of the other kinds the first of all."""
        return self._causes.oldest()

    def adopt(self, others: Sequence[Operator], owns: Owns, streams: int) -> None:
        """Keys go to the instances that have them now."""
        for other in others:
            assert isinstance(other, Distinct)
            entries = other._kept.entries()
            words = entries[:, self._key_at : self._words]
            mine = owns(self._packing.unpack(np.ascontiguousarray(words), other._pages))
            entries = np.ascontiguousarray(entries[mine])
            if self._pages is not None and other._pages is not None:
                at = self._text_at()
                entries[:, at] = moved(entries[:, at], other._pages, self._pages)
            if len(entries) or not self._is_of_one_time:
                # The checkpoint has them: no tuple is needed.
                newest = entries[:, 0] if len(entries) else np.zeros(1, dtype=np.int64)
                self._causes.note(newest, np.full(streams, NO_ID, dtype=np.int64))
            self._put(entries)

    def _first_of(self, rows: Rows) -> np.ndarray:
        """The numbers of rows that are no copies, int64; they are remembered."""
        count = len(rows.time_us)
        all_keys = np.empty((count, self._words), dtype=np.int64)
        columns = [rows.batch.column(column) for column in self._columns]
        self._packing.pack(columns, self._pages, all_keys[:, self._key_at :])
        if self._is_of_one_time:
            all_keys[:, 0] = rows.time_us
        number_of, keys = distinct_keys(self._manager, all_keys)
        known, values = self._kept.get(keys)
        before = np.where(known, values[:, 0], BEGINNING_US)
        until = before.copy()
        is_first = np.empty(count, dtype=np.uint8)
        within_us = self._within_us or -1
        keep_first(number_of, rows.time_us.copy(), within_us, END_US, until, is_first)
        changed = until != before
        if self._by_end is not None:
            was = changed & known
            self._by_end.remove(np.concatenate([before[was, None], keys[was]], axis=1))
        self._put(np.concatenate([keys[changed], until[changed, None]], axis=1))
        return np.flatnonzero(is_first)

    def _put(self, entries: np.ndarray) -> None:
        """Remember keys, each with the time before which tuples are copies."""
        keys, until = entries[:, : self._words], entries[:, self._words :]
        self._kept.put(keys, until)
        if self._by_end is not None:
            ends = np.concatenate([until, keys], axis=1)
            self._by_end.put(ends, np.empty((len(ends), 0), dtype=np.int64))

    def _forget(self, boundary_us: int) -> None:
        """Let go of keys of which no copy can come any more."""
        if self._is_of_one_time:
            self._kept.pop_below(time_bound(boundary_us, self._words))
            self._causes.forget(boundary_us if len(self._kept) else None)
        elif self._by_end is not None:
            ended = self._by_end.pop_below(time_bound(boundary_us + 1, 1 + self._words))
            self._kept.remove(np.ascontiguousarray(ended[:, 1:]))
        if self._strings is not None and self._strings.is_due:
            entries = self._kept.entries()
            at = self._text_at()
            entries[:, at] = self._strings.renew(entries[:, at])
            for tree in (self._kept, self._by_end):
                if tree is not None:
                    tree.pop_first(len(tree))
            self._put(entries)

    def _text_at(self) -> list[int]:
        """Which words of a key refer to strings."""
        return [self._key_at + word for word in self._packing.text_words]

    def check_invariants(self) -> None:
        """Raise `InvariantViolation` if a structure makes no sense, or two disagree."""
        self._kept.check_invariants()
        self._causes.check_invariants()
        if self._by_end is not None:
            self._by_end.check_invariants()
            entries = self._kept.entries()
            ends = np.concatenate([entries[:, -1:], entries[:, :-1]], axis=1)
            order = np.lexsort(ends.T[::-1])
            if not np.array_equal(ends[order], self._by_end.entries()):
                raise InvariantViolation(f"{self.name}: keys and the times of their ends disagree")

    def state_bytes(self) -> int:
        """Bytes of pages held."""
        pages = total_pages(self._kept, self._causes, self._by_end, self._strings)
        return pages * self._manager.page_bytes

    def state_rows(self) -> pa.Table:
        """The keys that are remembered."""
        words = np.ascontiguousarray(self._kept.entries()[:, self._key_at : self._words])
        fields = [self.output_schema.field(column) for column in self._columns]
        columns = self._packing.unpack(words, self._pages)
        return pa.Table.from_arrays(columns, schema=pa.schema(fields))
