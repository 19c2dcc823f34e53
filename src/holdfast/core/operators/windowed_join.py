"""Join of two inputs within tumbling windows of tuple time. Convergent-capable. [HA §3.2]

Rows wait in their window's own page sets. When the boundary reaches the window's end, the window
is joined and emitted in the order (window end, left insertion, right insertion), and its pages
are released. With `how="left"` a left row without match is emitted with nulls.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import pyarrow as pa

from holdfast.core.model.ids import NO_ID
from holdfast.core.operators.accumulators import WINDOW_FIELDS
from holdfast.core.operators.base import (
    AT_CLOSE,
    NOTHING,
    Operator,
    Output,
    Owns,
    Rows,
    chosen,
    has_rows,
    in_pieces,
)
from holdfast.core.operators.join import (
    JOIN_PAGE_SETS,
    SLOT_WORDS,
    JoinLayout,
    JoinRows,
    find_pairs,
    stored_rows,
    window_columns,
)
from holdfast.core.operators.windows import WindowDirectory, WindowedOperator, WindowSpec
from holdfast.core.state.page_manager import PageManager, PageSetId
from holdfast.core.state.unordered_map import UnorderedMap


class WindowedJoin(WindowedOperator[JoinRows]):
    """Joins rows with equal keys in the same window; a null key matches nothing."""

    def __init__(
        self,
        layout: JoinLayout,
        *,
        size_us: int,
        how: Literal["inner", "left"] = "inner",
        manager: PageManager | None = None,
    ) -> None:
        """Join port 0 (left) and port 1 (right).

        Args:
            layout: Keys, records and output columns; the name is the operator's.
            size_us: Length of a window, microseconds. Output rows have tuple time window end - 1.
            how: `left` also emits left rows without match.
            manager: Where the state lives; an own one if None.

        Raises:
            LocalProtocolError: The size is not positive.
        """
        self.name = layout.name
        self._manager = manager if manager is not None else PageManager()
        self._layout = layout
        self._spec = WindowSpec(size_us, size_us)
        self._is_outer = how == "left"
        self._directory = WindowDirectory(self._manager, self._spec, JOIN_PAGE_SETS, self._attach)
        self.output_schema = pa.schema([*WINDOW_FIELDS, *self._layout.output_fields])

    def process(self, inputs: Sequence[Rows | None], low: np.ndarray, boundary_us: int) -> Output:
        """Store the rows; emit the windows that the boundary closes.

        Raises:
            LocalProtocolError: A row is older than the boundary.
            StateLimitExceeded: The pages are used up.
        """
        for side, rows in enumerate(inputs):
            if rows is not None and has_rows(rows):
                self._directory.require_not_late(self.name, rows.time_us)
                is_shown = self._is_outer and side == 0  # Even without a match.
                self._store(side, rows if is_shown else self._layout.with_keys(side, rows), low)
        closed = self._directory.close(boundary_us)
        if not closed:
            return NOTHING
        parts: list[Rows] = []
        cause = closed[0].low.copy()
        for window in closed:
            batch = self._join(window.start, window.state)
            window.state.destroy()
            if batch.num_rows == 0:
                continue
            if not parts:
                cause = window.low.copy()
            np.minimum(cause, window.low, out=cause)
            last_us = np.full(batch.num_rows, window.start + self._spec.size_us - 1, dtype=np.int64)
            order = np.full(batch.num_rows, AT_CLOSE, dtype=np.int64)
            parts.append(Rows(batch, last_us, order, window.created_us))
        return Output(in_pieces(parts), cause) if parts else NOTHING

    def adopt(self, others: Sequence[Operator], owns: Owns, streams: int) -> None:
        """Rows that wait go window by window, in the order of the instances that held them."""
        low = np.full(streams, NO_ID, dtype=np.int64)  # The checkpoint has it: nothing is needed.
        for other in others:
            assert isinstance(other, WindowedJoin)
            self._directory.resume(other._directory.boundary_us)
            for start, rows in other._directory.states():
                mine, _ = self._directory.enter(start, low, 0)
                for side in (0, 1):
                    mine.sides[side].append(mine.taken_over(rows, side, owns))

    def _store(self, side: int, rows: Rows, low: np.ndarray) -> None:
        for start, numbers in self._spec.assign(rows.time_us):
            window = self._enter(start, low, rows.created_us)
            mine = chosen(rows, numbers)
            window.append(side, mine.batch, mine.time_us)

    def _enter(self, start: int, low: np.ndarray, created_us: int) -> JoinRows:
        """The rows of a window, which opens if need be; args as of `WindowDirectory.enter`."""
        return self._directory.enter(start, low, created_us)[0]

    def _attach(self, page_sets: tuple[PageSetId, ...] | None) -> JoinRows:
        """A window's rows, new or over these page sets."""
        return JoinRows(self._manager, self._layout, page_sets)

    def state_rows(self) -> pa.Table:
        """The rows that wait in the open windows."""
        return stored_rows(self._layout, [rows for _, rows in self._directory.states()])

    def _join(self, start: int, rows: JoinRows) -> pa.RecordBatch:
        """The pairs of one window: link all right rows, then probe with the left ones."""
        layout = self._layout
        right, left = rows.sides[1].scan(), rows.sides[0].scan()
        keys = np.concatenate([part[:, 2 : layout.row_at] for part in (right, left)])
        usable = ~layout.key_packings[0].is_any_null(keys)
        slots = np.full(len(keys), -1, dtype=np.int64)
        groups = UnorderedMap(self._manager, layout.key_words, SLOT_WORDS)
        slots[usable] = groups.upsert_slots(keys[usable])
        sides = np.repeat(np.array([1, 0], dtype=np.uint8), [len(right), len(left)])
        numbers = np.concatenate([np.arange(len(right)), np.arange(len(left))]).astype(np.int64)
        pairs = find_pairs(
            self._manager,
            rows,
            groups.record_pages,
            slots,
            sides,
            numbers,
            is_outer=self._is_outer,
        )
        groups.destroy()
        columns, _ = rows.columns_of(pairs[:, 1], pairs[:, 2])
        columns = window_columns(start, self._spec.size_us, len(pairs)) + columns
        return pa.RecordBatch.from_arrays(columns, schema=self.output_schema)
