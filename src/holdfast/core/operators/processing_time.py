"""Aggregates over windows of processing time. Arbitrary. [HA §3.2]

All rows of a pass are of the time at which the pass began. The output is in processing time too:
a row's tuple time is its window's end - 1, and the boundary is the clock, whatever the input's is.
At the input's end the open windows are put out.

The clock goes on when nothing comes, so it is promised then, too, whenever a window of it ends.
Else instances could wait for each other: 1. The results of one use up its credit at a node that
merges the instances by time. 2. It takes no more input, and its source, full towards it, sends
nothing to the other instances. 3. The merge waits for what these promise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from holdfast.core.model.ids import BEGINNING_US, END_US
from holdfast.core.operators.accumulators import Aggregate, AggregateFunction
from holdfast.core.operators.aggregate import WindowAggregate
from holdfast.core.operators.base import Evaluator, Output, Rows
from holdfast.core.operators.by_clock import IDLE_US, ByClock
from holdfast.core.state.page_manager import PageManager
from holdfast.core.state.raw_page import RawPage


class ProcessingTimeAggregate(ByClock, WindowAggregate):
    """Aggregates per window of the clock and group."""

    def __init__(
        self,
        name: str,
        schema: pa.Schema,
        keys: Sequence[str],
        aggregates: Sequence[Aggregate | tuple[AggregateFunction, Evaluator | None, str]],
        *,
        size_us: int,
        slide_us: int,
        manager: PageManager | None = None,
    ) -> None:
        """As `WindowAggregate` with `emit="final"`."""
        super().__init__(
            name, schema, keys, aggregates, size_us=size_us, slide_us=slide_us, manager=manager
        )
        self._clock = RawPage(self._manager)

    def pass_over(self, closed_us: int) -> None:
        """Never: its windows are those of the clock."""

    def wake_us(self) -> int | None:
        """When the first open window ends; without one, when the next would; at first at once."""
        open_windows = self._directory.states()
        if open_windows:
            return open_windows[0][0] + self._spec.size_us
        clock_us, slide_us = self._clock_us, self._spec.slide_us
        if clock_us == BEGINNING_US:
            return clock_us
        return max(clock_us + IDLE_US, (clock_us // slide_us + 1) * slide_us)

    def process(self, inputs: Sequence[Rows | None], low: np.ndarray, boundary_us: int) -> Output:
        """Put the rows into the windows of now; put out those that have ended.

        Raises:
            ArithmeticOverflow: A sum does not fit its type.
            StateLimitExceeded: The pages are used up.
        """
        (rows,) = inputs
        if rows is not None:
            rows = replace(rows, time_us=np.full(len(rows.time_us), self._clock_us, np.int64))
        return super().process([rows], low, END_US if boundary_us == END_US else self._clock_us)
