"""Inner join of everything that ever arrives on two inputs. Deterministic. [HA §3.2]

All rows of both sides stay in pages for ever, so the operator needs its whole input to be rebuilt:
its low watermark is the first tuple ever seen. Started empty in the middle it never puts out the
pairs of earlier rows, so it is neither repeatable nor convergent-capable. The paper's repeatable
join has a window, and forgets. A pair is emitted when its later row arrives; pairs
are in the order of that row, then of the earlier row's insertion, so cuts into passes don't show.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from holdfast.core.model.ids import BEGINNING_US, NO_ID
from holdfast.core.operators.base import (
    NOTHING,
    Operator,
    OperatorClass,
    Output,
    Owns,
    Rows,
    has_rows,
)
from holdfast.core.operators.join import JoinLayout, Matcher, stored_rows
from holdfast.core.state.page_manager import PageManager
from holdfast.core.state.raw_page import RawPage


class IncrementalJoin(Operator):
    """Emits each pair of rows with equal keys once; a null key matches nothing."""

    operator_class = OperatorClass.DETERMINISTIC

    def __init__(
        self,
        layout: JoinLayout,
        *,
        manager: PageManager | None = None,
    ) -> None:
        """Join port 0 (left) and port 1 (right).

        Args:
            layout: Keys, records and output columns; the name is the operator's.
            manager: Where the state lives; an own one if None.
        """
        self.name = layout.name
        self._manager = manager if manager is not None else PageManager()
        self._layout = layout
        self._matcher = Matcher(self._manager, self._layout)
        self._first = RawPage(self._manager)  # per stream the first id ever seen
        self.output_schema = pa.schema(self._layout.output_fields)

    def process(self, inputs: Sequence[Rows | None], low: np.ndarray, boundary_us: int) -> Output:
        """Store the rows, and emit their pairs; the time of a pair is that of its later tuple.

        Raises:
            StateLimitExceeded: The pages are used up.
        """
        given = [(side, rows) for side, rows in enumerate(inputs) if rows is not None]
        keyed = [(side, self._layout.with_keys(side, rows)) for side, rows in given]
        present = [(side, rows) for side, rows in keyed if has_rows(rows)]
        if not present:
            return NOTHING
        seen = self._first.read()
        cause = np.minimum(seen, low) if len(seen) else low.copy()
        self._first.write(cause)
        matches = self._matcher.add(present)
        if matches is None:
            return NOTHING
        batch = pa.RecordBatch.from_arrays(matches.columns, schema=self.output_schema)
        created_us = max(rows.created_us for _, rows in present)
        return Output((Rows(batch, matches.time_us, matches.order, created_us),), cause)

    def closes_us(self, boundary_us: int) -> int:
        """None: results come with rows."""
        del boundary_us
        return BEGINNING_US

    def oldest_needed(self) -> np.ndarray | None:
        """The first tuple ever seen per stream; it never moves."""
        seen = self._first.read()
        return seen if len(seen) else None

    def adopt(self, others: Sequence[Operator], owns: Owns, streams: int) -> None:
        """Rows go in the order of the instances that held them; their chains are linked anew."""
        held = [other._matcher for other in others if isinstance(other, IncrementalJoin)]
        self._matcher.take_over(held, owns)
        self._first.write(np.full(streams, NO_ID, dtype=np.int64))  # The checkpoint has it.

    def check_invariants(self) -> None:
        """Raise `InvariantViolation` if the map or the lists make no sense."""
        self._matcher.check_invariants()

    def state_bytes(self) -> int:
        """Bytes of pages held."""
        return (self._matcher.page_count + self._first.page_count) * self._manager.page_bytes

    def state_rows(self) -> pa.Table:
        """All rows of both sides."""
        return stored_rows(self._layout, [self._matcher.rows])
