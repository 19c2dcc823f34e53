"""Filter keeps the rows whose predicate is true. Repeatable, stateless. [HA §3.2]"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.core.operators.bad_rows import explained
from holdfast.core.operators.base import (
    NOTHING,
    Evaluator,
    Operator,
    OperatorClass,
    Output,
    Rows,
    has_rows,
)


class Filter(Operator):
    """Drops rows whose predicate is false or null; times and order stay."""

    operator_class = OperatorClass.REPEATABLE

    def __init__(self, name: str, schema: pa.Schema, predicate: Evaluator) -> None:
        """Filter rows of `schema` by a boolean expression."""
        self.name = name
        self.output_schema = schema
        self._predicate = predicate

    def process(self, inputs: Sequence[Rows | None], low: np.ndarray, boundary_us: int) -> Output:
        """The rows that pass. Raises `BadRowError` where the predicate has no value."""
        (rows,) = inputs
        if rows is None or not has_rows(rows):
            return NOTHING
        try:
            mask = self._predicate.evaluate(rows.batch)
        except ArithmeticError:
            raise explained(self.name, [self._predicate], rows) from None
        if mask.null_count:
            mask = pc.fill_null(mask, False)
        keep = mask.to_numpy(zero_copy_only=False).astype(np.bool_)
        kept = int(np.count_nonzero(keep))
        if kept == 0:
            return NOTHING
        if kept == len(keep):
            return Output((rows,), low)
        times, order = rows.time_us[keep], rows.order[keep]
        batch = rows.batch.filter(mask)
        kept_rows = Rows(batch, times, order, rows.created_us, rows.batch_starts)
        return Output((kept_rows,), low)
