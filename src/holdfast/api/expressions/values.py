"""What an expression compiles to: a type, and a function from a batch to a column."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

Column = Any
"""A `pa.Array`, or a `pa.Scalar` that stands for the same value in every row."""


class EvaluationError(ArithmeticError):
    """An expression has no value for some row, which Spark in ANSI mode refuses too."""


@dataclass(frozen=True, slots=True)
class Value:
    """A compiled expression.

    Attributes:
        type: Of its result; `pa.null()` for an untyped NULL.
        evaluate: One value per row of a batch. Raises `pa.ArrowInvalid` or `EvaluationError`.
        is_total: It has a value for every row, so that it may be evaluated where it is not needed.
        text: The expression, for messages.
        literal: Its value if it is a literal, else None.
    """

    type: pa.DataType
    evaluate: Callable[[pa.RecordBatch], Column]
    is_total: bool
    text: str
    literal: pa.Scalar | None = None


def constant(scalar: pa.Scalar, text: str) -> Value:
    """A literal."""
    return Value(scalar.type, lambda _: scalar, True, text, scalar)


def derived(
    of: pa.DataType,
    text: str,
    kernel: Callable[..., Column],
    *inputs: Value,
    is_total: bool = True,
) -> Value:
    """A value computed from others row by row; nulls are the kernel's business."""
    evaluators = [value.evaluate for value in inputs]
    total = is_total and all(value.is_total for value in inputs)
    if len(evaluators) == 1:
        (only,) = evaluators
        return Value(of, lambda batch: kernel(only(batch)), total, text)
    if len(evaluators) == 2:
        left, right = evaluators
        return Value(of, lambda batch: kernel(left(batch), right(batch)), total, text)
    return Value(of, lambda batch: kernel(*(e(batch) for e in evaluators)), total, text)


def as_array(column: Column, rows: int) -> pa.Array:
    """A column of `rows` values."""
    if isinstance(column, pa.Scalar):
        return pa.repeat(column, rows)
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def is_true(column: Column) -> Column:
    """Null counts as false."""
    return pc.fill_null(column, False)


def where(value: Value, batch: pa.RecordBatch, mask: pa.Array) -> pa.Array:
    """The value in the rows of the mask, null in all others, where it is not evaluated.

    Args:
        value: Any value.
        batch: All rows.
        mask: Booleans without nulls.
    """
    if value.is_total:
        column = as_array(value.evaluate(batch), batch.num_rows)
        return pc.if_else(mask, column, pa.scalar(None, column.type))
    chosen = batch.filter(mask)
    column = as_array(value.evaluate(chosen), chosen.num_rows)
    if chosen.num_rows == batch.num_rows:
        return column
    # Row i of the mask takes the value number (how many were chosen up to i) - 1.
    position = pc.subtract(pc.cumulative_sum(mask.cast(pa.int64())), 1)
    return column.take(pc.if_else(mask, position, pa.scalar(None, pa.int64())))


def per_distinct(function: Callable[[Any], Any], of: pa.DataType) -> Callable[[Column], Column]:
    """A kernel from a Python function, called once per distinct value; null stays null."""

    def kernel(column: Column) -> Column:
        if isinstance(column, pa.Scalar):
            value = column.as_py()
            return pa.scalar(None if value is None else function(value), of)
        encoded = column.dictionary_encode()
        results = [function(value) for value in encoded.dictionary.to_pylist()]
        return pa.array(results, of).take(encoded.indices)

    return kernel
