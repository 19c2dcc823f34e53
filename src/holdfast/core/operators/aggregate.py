"""Aggregates over windows of tuple time, per group. Convergent-capable. [HA §3.2]

State: the directory of open windows, and per window a map group -> accumulators and its strings,
all in pages. When the boundary reaches a window's end the window is emitted and its page sets are
destroyed; with `emit="changes"` every input row gives a row instead, and closing only frees the
pages.

Output order: (window end, window start, first arrival of the group); with changes, (input row,
window start).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa

from holdfast.core.model.ids import BEGINNING_US, NO_ID
from holdfast.core.model.schema import column_of
from holdfast.core.operators.accumulators import (
    WINDOW_TIME,
    Accumulators,
    Aggregate,
    AggregateFunction,
)
from holdfast.core.operators.base import (
    AT_CLOSE,
    NOTHING,
    PIECE_ROWS,
    Evaluator,
    Operator,
    Output,
    Owns,
    Rows,
    has_rows,
    in_pieces,
)
from holdfast.core.operators.windows import (
    ClosedWindow,
    WindowDirectory,
    WindowedOperator,
    WindowSpec,
)
from holdfast.core.state.page_manager import PageManager, PageSetId
from holdfast.core.state.string_pages import StringPages, moved
from holdfast.core.state.total_pages import total_pages
from holdfast.core.state.unordered_map import UnorderedMap

Words = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Of rows: keys (n, k), arguments (words, n), and the arguments' validity (words, n or 0)."""


@dataclass(frozen=True, slots=True)
class AggregatedWindow:
    """The structures of a window: group -> accumulators, and its strings, if there are any."""

    groups: UnorderedMap
    strings: StringPages | None

    @property
    def page_sets(self) -> tuple[PageSetId, ...]:
        """Their page sets, those of groups first."""
        strings = () if self.strings is None else self.strings.page_sets
        return self.groups.page_sets + strings

    @property
    def page_count(self) -> int:
        """How many pages they take."""
        return total_pages(self.groups, self.strings)

    def destroy(self) -> None:
        """Release them."""
        self.groups.destroy()
        if self.strings is not None:
            self.strings.destroy()

    def check_invariants(self) -> None:
        """Raise `InvariantViolation` if they make no sense."""
        self.groups.check_invariants()


class WindowAggregate(WindowedOperator[AggregatedWindow]):
    """Aggregates per window and group."""

    _window_fields = (("window_start", WINDOW_TIME), ("window_end", WINDOW_TIME))
    _earliest_us = BEGINNING_US  # No window begins before this.

    def __init__(
        self,
        name: str,
        schema: pa.Schema,
        keys: Sequence[str],
        aggregates: Sequence[Aggregate | tuple[AggregateFunction, Evaluator | None, str]],
        *,
        size_us: int,
        slide_us: int | None = None,
        emit: Literal["final", "changes"] = "final",
        manager: PageManager | None = None,
    ) -> None:
        """Aggregate rows of `schema`.

        Args:
            name: Of the operator.
            schema: Of the input.
            keys: Grouping columns, maybe none; nulls form a group, -0.0 = 0.0 and NaN = NaN.
            aggregates: Function (count, sum, min, max, avg), argument, output name.
            size_us: Length of a window, microseconds.
            slide_us: Distance of window starts; equal to the size (tumbling) if None.
            emit: `final`: one row per group when the window closes, with tuple time window end - 1.
                `changes`: one row per input row and window, with the input row's time.
            manager: Where the state lives; an own one if None.

        Raises:
            LocalProtocolError: A function is not defined for its argument's type, a size is not
                positive, or a type cannot be stored.
        """
        self.name = name
        self._manager = manager if manager is not None else PageManager()
        slide_us = slide_us if slide_us is not None else size_us
        self._spec = WindowSpec(size_us, slide_us, self._earliest_us)
        self._is_changes = emit == "changes"
        self._groups = Accumulators(name, schema, keys, aggregates)
        self._groups_expected = 0  # As many as the largest of the windows closed last had.
        self._needs_strings = self._groups.key_has_text or self._groups.value_has_text
        self._directory = WindowDirectory(
            self._manager, self._spec, 4 if self._needs_strings else 2, self._attach
        )
        fields = [pa.field(title, kind, nullable=False) for title, kind in self._window_fields]
        self.output_schema = pa.schema([*fields, *self._groups.fields])

    def process(self, inputs: Sequence[Rows | None], low: np.ndarray, boundary_us: int) -> Output:
        """Update the windows' groups; emit.

        Raises:
            ArithmeticOverflow: A sum does not fit its type.
            LocalProtocolError: A row is older than the boundary.
            StateLimitExceeded: The pages are used up.
        """
        (rows,) = inputs
        changes = NOTHING
        if rows is not None and has_rows(rows):
            self._directory.require_not_late(self.name, rows.time_us)
            changes = self._update(rows, low)
        closed = self._directory.close(boundary_us)
        if not closed:
            return changes
        self._groups_expected = max(len(window.state.groups) for window in closed)
        final = NOTHING if self._is_changes else self._emit(closed)
        for window in closed:
            window.state.destroy()
        return changes if self._is_changes else final

    def closes_us(self, boundary_us: int) -> int:
        """The end of the newest window that it would close; none of changes, which rows cause."""
        return BEGINNING_US if self._is_changes else super().closes_us(boundary_us)

    def adopt(self, others: Sequence[Operator], owns: Owns, streams: int) -> None:
        """Groups go window by window, in the order of the instances that held them."""
        for other in others:
            assert isinstance(other, WindowAggregate)
            self._directory.resume(other._directory.boundary_us)
            for start, window in other._directory.states():
                entries = self._groups.taken_over(other._groups, window.groups.entries())
                self._adopt_window(start, window, entries, owns, streams)

    def _adopt_window(
        self,
        start: int,
        window: AggregatedWindow,
        entries: np.ndarray,
        owns: Owns,
        streams: int,
    ) -> None:
        groups = self._groups
        keys = np.ascontiguousarray(entries[:, : groups.key_words])
        mine = groups.owned(owns, keys, window.strings)
        if not bool(mine.any()):
            return
        low = np.full(streams, NO_ID, dtype=np.int64)  # The checkpoint has it: nothing is needed.
        own, _ = self._directory.enter(start, low, 0)
        entries = np.ascontiguousarray(entries[mine])
        at = [*groups.key_text_words, *(groups.key_words + word for word in groups.text_words)]
        if at and window.strings is not None and own.strings is not None:
            entries[:, at] = moved(entries[:, at], window.strings, own.strings)
        slots = own.groups.upsert_slots(entries[:, : groups.key_words])
        own.groups.write_values(slots, entries[:, groups.key_words :])

    # -- updating ---------------------------------------------------------------------------

    def _update(self, rows: Rows, low: np.ndarray) -> Output:
        columns = self._groups.evaluate(rows.batch)
        parts: list[tuple[np.ndarray | None, pa.RecordBatch]] = []
        cause = low.copy()
        shared = self._shared_words(rows.batch, columns)
        for start, numbers in self._spec.assign(rows.time_us):
            window, watermark = self._directory.enter(start, low, rows.created_us)
            np.minimum(cause, watermark, out=cause)
            if shared is None:
                taken = None if numbers is None else pa.array(numbers)
                batch = rows.batch if taken is None else rows.batch.take(taken)
                mine = [c if c is None or taken is None else c.take(taken) for c in columns]
                keys, arguments, mask = self._words(batch, mine, window.strings)
            else:
                keys, arguments, mask = some_of(shared, numbers)
            running = self._run(start, window, keys, arguments, mask)
            if self._is_changes:
                edges = self._edges(start, len(keys))
                parts.append((numbers, self._batch(edges, keys, running, window.strings)))
        if not parts:
            return NOTHING
        return Output((_in_row_order(rows, parts),), cause)

    def _shared_words(
        self, batch: pa.RecordBatch, columns: Sequence[pa.Array | None]
    ) -> Words | None:
        """The words of rows, the same for all windows; None: strings are of one window each."""
        return None if self._needs_strings else self._words(batch, columns, None)

    def _attach(self, page_sets: tuple[PageSetId, ...] | None) -> AggregatedWindow:
        """A window's structures, new or over these page sets."""
        groups, strings = (page_sets[:2], page_sets[2:]) if page_sets else (None, None)
        return AggregatedWindow(
            UnorderedMap(self._manager, self._groups.key_words, self._groups.value_words, groups),
            StringPages(self._manager, strings) if self._needs_strings else None,
        )

    def _words(
        self,
        batch: pa.RecordBatch,
        columns: Sequence[pa.Array | None],
        strings: StringPages | None,
    ) -> Words:
        """Keys (n, k), arguments (words, n), and the arguments' validity (words, n or 0)."""
        arguments, mask = self._groups.arguments_of(columns, batch.num_rows, strings)
        return self._groups.keys_of(batch, strings), arguments, mask

    def _run(
        self,
        start: int,
        window: AggregatedWindow,
        keys: np.ndarray,
        arguments: np.ndarray,
        mask: np.ndarray,
    ) -> np.ndarray:
        """One compiled pass over a window's rows; the running accumulators if they are wanted."""
        del start
        window.groups.reserve(min(len(keys), self._groups_expected))
        count = len(keys) if self._is_changes else 0
        running = np.empty((count, self._groups.value_words), dtype=np.int64)
        self._groups.update(
            self._manager, window.groups, window.strings, keys, arguments, mask, running
        )
        return running

    # -- emitting ---------------------------------------------------------------------------

    def _emit(self, closed: list[ClosedWindow[AggregatedWindow]]) -> Output:
        cause = np.minimum.reduce([window.low for window in closed])
        created_us = max(window.created_us for window in closed)
        return Output(in_pieces(self._parts_of(closed, created_us)), cause)

    def _parts_of(
        self, closed: list[ClosedWindow[AggregatedWindow]], created_us: int
    ) -> Iterator[Rows]:
        for window in closed:
            batches = self._rows_of(window.start, window.state)
            rows = min(len(window.state.groups), PIECE_ROWS)
            last_us = np.full(rows, window.start + self._spec.size_us - 1, dtype=np.int64)
            order = np.full(rows, AT_CLOSE, dtype=np.int64)
            for batch in batches:
                n = batch.num_rows
                yield Rows(batch, last_us[:n], order[:n], created_us)

    def _rows_of(self, start: int, window: AggregatedWindow) -> Iterator[pa.RecordBatch]:
        """The results of a window, one row per group in order of first arrival."""
        count, key_words = len(window.groups), self._groups.key_words
        edges = self._edges(start, min(count, PIECE_ROWS))
        for first in range(0, count, PIECE_ROWS):
            entries = window.groups.entries(first, min(PIECE_ROWS, count - first))
            keys, values = entries[:, :key_words], entries[:, key_words:]
            yield self._batch(edges, keys, values, window.strings)

    def state_rows(self) -> pa.Table:
        """The groups of the open windows with their results so far."""
        states = self._directory.states()
        batches = [batch for start, window in states for batch in self._rows_of(start, window)]
        return pa.Table.from_batches(batches, schema=self.output_schema)

    def _edges(self, start: int, count: int) -> list[pa.Array]:
        """The columns that say which window it is, for so many rows."""
        return [
            column_of(np.full(count, edge, dtype=np.int64), None, kind)
            for edge, (_, kind) in zip(
                (start, start + self._spec.size_us), self._window_fields, strict=True
            )
        ]

    def _batch(
        self,
        edges: list[pa.Array],
        keys: np.ndarray,
        values: np.ndarray,
        strings: StringPages | None,
    ) -> pa.RecordBatch:
        columns = [edge.slice(0, len(keys)) for edge in edges]
        columns += self._groups.key_columns(keys, strings)
        columns += self._groups.result_columns(values, strings)
        return pa.RecordBatch.from_arrays(columns, schema=self.output_schema)


def _in_row_order(rows: Rows, parts: Sequence[tuple[np.ndarray | None, pa.RecordBatch]]) -> Rows:
    """What windows say of the rows with these numbers, None for all of them; at least one part."""
    numbers, batch = parts[0]
    if len(parts) == 1 and numbers is None:
        # A copy: results that wait do not keep the memory that the rows came in.
        return Rows(batch, rows.time_us.copy(), rows.order, rows.created_us)
    every = np.arange(len(rows.time_us), dtype=np.int64)
    numbers = np.concatenate([every if mine is None else mine for mine, _ in parts])
    if len(parts) > 1:
        batch = pa.concat_batches([part for _, part in parts])
        if bool((numbers[1:] < numbers[:-1]).any()):
            permutation = np.argsort(numbers, kind="stable")
            numbers, batch = numbers[permutation], batch.take(pa.array(permutation))
    return Rows(batch, rows.time_us[numbers], rows.order[numbers], rows.created_us)


def some_of(words: Words, numbers: np.ndarray | None) -> Words:
    """Those of the rows with these ascending numbers; None: of all."""
    keys, arguments, mask = words
    if numbers is None:
        return words
    some = _without_gaps(numbers)
    arguments = np.ascontiguousarray(arguments[:, some])
    mask = np.ascontiguousarray(mask[:, some]) if mask.shape[1] else mask
    return keys[some], arguments, mask


def _without_gaps(numbers: np.ndarray) -> np.ndarray | slice:
    """Ascending row numbers as a slice if none is left out: rows need not be copied then."""
    first, last = int(numbers[0]), int(numbers[-1])
    return slice(first, last + 1) if last - first + 1 == len(numbers) else numbers
