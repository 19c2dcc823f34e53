"""Rows for which an expression has no value: overflow, division by zero, a text that is no number.

Spark in ANSI mode refuses them, and so do the operators; what is wanted of them is a clear error,
or, where the dataflow gives a dead-letter stream, that they go there and nothing else does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from holdfast.core.operators.base import Evaluator, Rows


class BadRowError(ArithmeticError):
    """An expression has no value for a row; the message shows the first such row."""


def is_evaluable(expressions: Sequence[Evaluator], batch: pa.RecordBatch) -> np.ndarray:
    """For each row whether all expressions have a value (which may be null).

    Cost: one evaluation if all rows are good, else O(bad rows · log rows) evaluations.
    """
    good = np.ones(batch.num_rows, dtype=np.bool_)
    ranges = [(0, batch.num_rows)]
    while ranges:
        start, stop = ranges.pop()
        if stop <= start or _failure(expressions, batch.slice(start, stop - start)) is None:
            continue
        if stop - start == 1:
            good[start] = False
            continue
        middle = (start + stop) // 2
        ranges += [(start, middle), (middle, stop)]
    return good


def failures(expressions: Sequence[Evaluator], batch: pa.RecordBatch) -> list[str | None]:
    """Why a row has no value, or None, for each row."""
    return [_failure(expressions, batch.slice(row, 1)) for row in range(batch.num_rows)]


def explained(name: str, expressions: Sequence[Evaluator], rows: Rows) -> BadRowError:
    """The error that names an operator's first bad row, and the cure."""
    row = int(np.argmin(is_evaluable(expressions, rows.batch)))
    [values] = rows.batch.slice(row, 1).to_pylist()
    return BadRowError(
        f"{name}: {_failure(expressions, rows.batch.slice(row, 1))}, at the tuple of time "
        f"{np.datetime64(int(rows.time_us[row]), 'us')}Z with {values}; mend the expression, or "
        "divert such rows with dead_letters='name'"
    )


def _failure(expressions: Sequence[Evaluator], batch: pa.RecordBatch) -> str | None:
    for expression in expressions:
        try:
            expression.evaluate(batch)
        except ArithmeticError as error:
            return str(error)
    return None
