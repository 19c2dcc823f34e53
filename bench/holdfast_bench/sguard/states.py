"""Aggregate states of a given size, and batches that update them at random."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from holdfast.core.operators.aggregate import WindowAggregate
from holdfast.core.operators.base import Rows
from holdfast.core.state.page_manager import PageManager

if TYPE_CHECKING:
    pass

SCHEMA: Final = pa.schema([("key", pa.int64()), ("value", pa.int64())])
SIZE_US: Final = 1 << 50
"""One window holds everything."""
RECORD_BYTES: Final = 72
"""A group: link, two key words, count, minimum and maximum; and its bucket."""
_LOW: Final = np.zeros(1, dtype=np.int64)
_FILL: Final = 1 << 16


class _Column:
    """The expression `value`."""

    name = "value"
    type = pa.int64()

    def evaluate(self, batch: pa.RecordBatch) -> pa.Array:
        return batch.column(1)


@dataclass(slots=True)
class AggregateState:
    """An aggregate with count, min and max per group, as in the paper's section 6.1.1."""

    operator: WindowAggregate
    pages: PageManager
    groups: int

    @staticmethod
    def of(size_bytes: int, page_bytes: int) -> AggregateState:
        """Filled with as many groups as take about so many bytes."""
        pages = PageManager(page_bytes)
        operator = WindowAggregate(
            "state",
            SCHEMA,
            ["key"],
            [("count", None, "n"), ("min", _Column(), "low"), ("max", _Column(), "high")],
            size_us=SIZE_US,
            manager=pages,
        )
        state = AggregateState(operator, pages, max(1, size_bytes // RECORD_BYTES))
        for first in range(0, state.groups, _FILL):
            keys = np.arange(first, min(first + _FILL, state.groups), dtype=np.int64)
            state.update(keys)
        return state

    def update(self, keys: np.ndarray) -> None:
        """One tuple per key."""
        batch = pa.RecordBatch.from_arrays([pa.array(keys), pa.array(keys)], schema=SCHEMA)
        times = np.zeros(len(keys), dtype=np.int64)
        order = np.arange(len(keys), dtype=np.int64)
        self.operator.process([Rows(batch, times, order, 0)], _LOW, 0)

    def size_bytes(self) -> int:
        """Bytes of pages in use."""
        statistics = self.pages.statistics()
        return statistics.pages_used * statistics.page_bytes
