"""Aggregates over windows of so many tuples of a stream. Convergent-capable. [HA §3.2]

The windows begin at the tuple ids that are multiples of `advance` and hold the next `size` tuples,
of whatever key. Ids are the same whoever replays them, so this alignment is absolute; that of
count windows of a key by itself is not. The operator must read the only stream of its node, from
which nothing has been filtered on the way.

A window is put out when its last tuple comes, with that tuple's time and place in the order, in the
order of the groups' first tuples; one that the stream's end leaves incomplete is never put out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from holdfast.core.errors import LocalProtocolError
from holdfast.core.operators.accumulators import Aggregate, AggregateFunction
from holdfast.core.operators.aggregate import WindowAggregate
from holdfast.core.operators.base import NOTHING, Evaluator, Operator, Output, Owns, Rows, has_rows
from holdfast.core.state.page_manager import PageManager


class StreamWindowAggregate(WindowAggregate):
    """Aggregates per window of tuple ids and group; its windows' times are ids."""

    _window_fields = (("first_id", pa.int64()), ("next_id", pa.int64()))
    _earliest_us = 0

    def __init__(
        self,
        name: str,
        schema: pa.Schema,
        keys: Sequence[str],
        aggregates: Sequence[Aggregate | tuple[AggregateFunction, Evaluator | None, str]],
        *,
        size: int,
        advance: int,
        manager: PageManager | None = None,
    ) -> None:
        """As `WindowAggregate` with `emit="final"`; size and advance count tuples."""
        super().__init__(
            name, schema, keys, aggregates, size_us=size, slide_us=advance, manager=manager
        )

    def adopt(self, others: Sequence[Operator], owns: Owns, streams: int) -> None:
        """Never: its windows are those of a stream that begins anew."""
        Operator.adopt(self, others, owns, streams)

    def pass_over(self, closed_us: int) -> None:
        """Never: its windows are not of time."""

    def process(self, inputs: Sequence[Rows | None], low: np.ndarray, boundary_us: int) -> Output:
        """Put the rows into windows; put out those that are full.

        Raises:
            ArithmeticOverflow: A sum does not fit its type.
            LocalProtocolError: There are several input streams, or rows come again.
            StateLimitExceeded: The pages are used up.
        """
        (rows,) = inputs
        if len(low) != 1:
            raise LocalProtocolError(f"{self.name}: reads one stream, not {len(low)}")
        if rows is None or not has_rows(rows):
            return NOTHING
        first = int(low[0])
        ids = np.arange(first, first + len(rows.time_us), dtype=np.int64)
        output = super().process([replace(rows, time_us=ids)], low, first + len(ids))
        pieces: list[Rows] = []
        for piece in output.pieces:
            # A tentative run may begin behind the end of one that is void: what lies between them
            # is left out, and windows that end there take the time of the first row.
            last = np.maximum(piece.time_us - first, 0)
            placed = replace(piece, time_us=rows.time_us[last], order=rows.order[last])
            pieces.append(placed)
        return Output(tuple(pieces), output.low)
