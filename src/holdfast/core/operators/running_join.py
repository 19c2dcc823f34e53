"""Join of two inputs within tumbling windows, emitting on arrival. [CheckMate §V "running windows"]

Every window pairs its rows as they come, in page sets of its own, which are released when the
boundary reaches its end: what comes later matches nothing in it any more. Pairs are in the order
of the row that came last, then of the earlier row's insertion. Convergent-capable. [HA §3.2]
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from holdfast.core.model.ids import BEGINNING_US, NO_ID
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
    joined,
)
from holdfast.core.operators.join import (
    MATCHER_PAGE_SETS,
    JoinLayout,
    Matcher,
    stored_rows,
    window_columns,
)
from holdfast.core.operators.windows import WindowDirectory, WindowedOperator, WindowSpec
from holdfast.core.state.page_manager import PageManager, PageSetId


class RunningJoin(WindowedOperator[Matcher]):
    """Emits each pair of rows with equal keys in a window once; a null key matches nothing."""

    def __init__(
        self,
        layout: JoinLayout,
        *,
        size_us: int,
        manager: PageManager | None = None,
    ) -> None:
        """Join port 0 (left) and port 1 (right).

        Args:
            layout: Keys, records and output columns; the name is the operator's.
            size_us: Length of a window, microseconds. A pair has the tuple time of its later row.
            manager: Where the state lives; an own one if None.

        Raises:
            LocalProtocolError: The size is not positive.
        """
        self.name = layout.name
        self._manager = manager if manager is not None else PageManager()
        self._layout = layout
        self._spec = WindowSpec(size_us, size_us)
        self._directory = WindowDirectory(
            self._manager, self._spec, MATCHER_PAGE_SETS, self._attach
        )
        self.output_schema = pa.schema([*WINDOW_FIELDS, *self._layout.output_fields])

    def process(self, inputs: Sequence[Rows | None], low: np.ndarray, boundary_us: int) -> Output:
        """Store the rows and emit their pairs; forget the windows that the boundary closes.

        Raises:
            LocalProtocolError: A row is older than the boundary.
            StateLimitExceeded: The pages are used up.
        """
        present: dict[int, list[tuple[int, Rows]]] = {}
        for side, rows in enumerate(inputs):
            if rows is not None and has_rows(rows):
                self._directory.require_not_late(self.name, rows.time_us)
                keyed = self._layout.with_keys(side, rows)
                for start, numbers in self._spec.assign(keyed.time_us):
                    present.setdefault(start, []).append((side, chosen(keyed, numbers)))
        parts: list[Rows] = []
        cause = low.copy()
        for start in sorted(present):
            created_us = max(rows.created_us for _, rows in present[start])
            window, watermark = self._directory.enter(start, low, created_us)
            matches = window.add(present[start])
            if matches is not None:
                np.minimum(cause, watermark, out=cause)
                columns = window_columns(start, self._spec.size_us, len(matches.order))
                columns += matches.columns
                batch = pa.RecordBatch.from_arrays(columns, schema=self.output_schema)
                parts.append(Rows(batch, matches.time_us, matches.order, created_us))
        for closed in self._directory.close(boundary_us):
            closed.state.destroy()
        return Output((_in_order(parts),), cause) if parts else NOTHING

    def closes_us(self, boundary_us: int) -> int:
        """None: results come with rows."""
        del boundary_us
        return BEGINNING_US

    def adopt(self, others: Sequence[Operator], owns: Owns, streams: int) -> None:
        """Rows go window by window, in the order of the instances that held them."""
        low = np.full(streams, NO_ID, dtype=np.int64)  # The checkpoint has it: nothing is needed.
        held: dict[int, list[Matcher]] = {}
        for other in others:
            assert isinstance(other, RunningJoin)
            self._directory.resume(other._directory.boundary_us)
            for start, window in other._directory.states():
                held.setdefault(start, []).append(window)
        for start in sorted(held):
            mine, _ = self._directory.enter(start, low, 0)
            mine.take_over(held[start], owns)

    def state_rows(self) -> pa.Table:
        """The rows of the open windows."""
        return stored_rows(self._layout, [window.rows for _, window in self._directory.states()])

    def _attach(self, page_sets: tuple[PageSetId, ...] | None) -> Matcher:
        """A window's rows, new or over these page sets."""
        return Matcher(self._manager, self._layout, page_sets)


def _in_order(parts: Sequence[Rows]) -> Rows:
    """Pairs of one window after the other, in the order of the rows that came last."""
    rows = joined(parts)
    if len(parts) == 1 or bool((rows.order == AT_CLOSE).any()):
        return rows  # Rows of closed windows come in the order of their times, as windows do.
    return chosen(rows, np.argsort(rows.order, kind="stable"))
