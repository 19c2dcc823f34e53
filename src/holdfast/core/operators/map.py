"""Map computes new attributes row by row. Repeatable, stateless. [HA §3.2]"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

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


class Map(Operator):
    """Replaces the attributes by expressions over them; times and order stay."""

    operator_class = OperatorClass.REPEATABLE

    def __init__(self, name: str, expressions: Sequence[Evaluator]) -> None:
        """Output one column per expression, named and typed by it."""
        self.name = name
        self._expressions = list(expressions)
        self.output_schema = pa.schema([pa.field(e.name, e.type) for e in expressions])

    def process(self, inputs: Sequence[Rows | None], low: np.ndarray, boundary_us: int) -> Output:
        """The mapped rows. Raises `BadRowError` where an expression has no value."""
        (rows,) = inputs
        if rows is None or not has_rows(rows):
            return NOTHING
        try:
            columns = [expression.evaluate(rows.batch) for expression in self._expressions]
        except ArithmeticError:
            raise explained(self.name, self._expressions, rows) from None
        batch = pa.RecordBatch.from_arrays(columns, schema=self.output_schema)
        return Output((replace(rows, batch=batch),), low)
