"""What an expression compiles to: a type, and a function from a batch to a column.

**Null and failure.** As in Spark, most operators look at their operands one after the other and are
null as soon as one is: what stands behind it is not evaluated in that row and cannot fail there.

**Constants.** What reads no column is evaluated once, when it is compiled. A constant that fails
spoils what it is part of, unless that chooses between branches and may never come to it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

Column = Any
"""A `pa.Array`, or a `pa.Scalar` that stands for the same value in every row."""

_ONE_ROW = pa.RecordBatch.from_pydict({"": pa.nulls(1, pa.int8())})


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
        constant: Its value if it reads no column and does not fail, else None.
        is_literal: It is a number or text as written, which meets others more loosely.
        failure: Why it fails whatever the row holds; None if it need not.
        is_fixed: It reads no column.
        is_column: It is a column, or a field of one, and `text` its name.
    """

    type: pa.DataType
    evaluate: Callable[[pa.RecordBatch], Column]
    is_total: bool
    text: str
    constant: pa.Scalar | None = None
    is_literal: bool = False
    failure: str | None = None
    is_fixed: bool = False
    is_column: bool = False

    @property
    def is_null(self) -> bool:
        """Whether it is known to be null in every row."""
        return self.constant is not None and not self.constant.is_valid


def constant(scalar: pa.Scalar, text: str, *, is_literal: bool = False) -> Value:
    """The same value in every row."""
    return Value(
        scalar.type, lambda _: scalar, True, text, scalar, is_literal=is_literal, is_fixed=True
    )


def derived(
    of: pa.DataType,
    text: str,
    kernel: Callable[..., Column],
    *inputs: Value,
    is_total: bool = True,
) -> Value:
    """A value computed row by row; null where an input is null.

    Args:
        of: Its type.
        text: The expression, for messages.
        kernel: From columns to a column; nulls in, null out.
        inputs: In the order in which Spark looks at them.
        is_total: Whether the kernel has a value whatever the inputs are.
    """
    if any(value.is_null for value in inputs):
        return constant(pa.scalar(None, of), text)
    if all(value.is_total for value in inputs[1:]):
        return derived_from_all(of, text, kernel, *inputs, is_total=is_total)

    def evaluate(batch: pa.RecordBatch) -> Column:
        columns: list[Column] = []
        valid: Column = pa.scalar(True)
        for value in inputs:
            columns.append(where(value, batch, valid))
            valid = pc.and_(valid, pc.is_valid(columns[-1]))
        return kernel(*columns)

    return folded(Value(of, evaluate, False, text), inputs)


def derived_from_all(
    of: pa.DataType,
    text: str,
    kernel: Callable[..., Column],
    *inputs: Value,
    is_total: bool = True,
) -> Value:
    """A value for which every input is evaluated in every row; nulls are the kernel's business."""
    evaluators = [value.evaluate for value in inputs]
    total = is_total and all(value.is_total for value in inputs)
    if len(evaluators) == 1:
        (only,) = evaluators
        return folded(Value(of, lambda batch: kernel(only(batch)), total, text), inputs)
    if len(evaluators) == 2:
        left, right = evaluators
        value = Value(of, lambda batch: kernel(left(batch), right(batch)), total, text)
        return folded(value, inputs)
    value = Value(of, lambda batch: kernel(*(e(batch) for e in evaluators)), total, text)
    return folded(value, inputs)


def folded(value: Value, inputs: Sequence[Value], *, chooses: bool = False) -> Value:
    """The value, evaluated at once if its inputs are fixed.

    Args:
        value: Computed from the inputs and nothing else.
        inputs: What it is computed from.
        chooses: Whether it may do without any of its inputs.
    """
    if not all(each.is_fixed for each in inputs):
        failures = [] if chooses else [each.failure for each in inputs if each.failure]
        return replace(value, failure=failures[0]) if failures else value
    try:
        column = value.evaluate(_ONE_ROW)
    except (pa.ArrowInvalid, EvaluationError) as error:
        return replace(value, failure=str(error), is_fixed=True, is_total=False)
    scalar = column if isinstance(column, pa.Scalar) else column[0]
    return constant(scalar, value.text)


def as_array(column: Column, rows: int) -> pa.Array:
    """A column of `rows` values."""
    if isinstance(column, pa.Scalar):
        return pa.repeat(column, rows)
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def is_true(column: Column) -> Column:
    """Null counts as false."""
    return pc.fill_null(column, False)


def where(value: Value, batch: pa.RecordBatch, mask: Column) -> Column:
    """The value in the rows of the mask, null in all others, where it is not evaluated.

    Args:
        value: Any value.
        batch: All rows.
        mask: Booleans without nulls.
    """
    if isinstance(mask, pa.Scalar):
        return value.evaluate(batch) if mask.as_py() else pa.scalar(None, value.type)
    if value.is_total:
        column = as_array(value.evaluate(batch), batch.num_rows)
        return pc.if_else(mask, column, pa.scalar(None, column.type))
    chosen = batch.filter(mask)
    if chosen.num_rows == 0:
        return pa.nulls(batch.num_rows, value.type)
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


def per_row(function: Callable[..., Any], of: pa.DataType) -> Callable[..., Column]:
    """A kernel from a Python function of several values; null where one of them is null."""

    def one(*values: Any) -> Any:
        return None if any(value is None for value in values) else function(*values)

    return per_row_with_nulls(one, of)


def per_row_with_nulls(function: Callable[..., Any], of: pa.DataType) -> Callable[..., Column]:
    """A kernel from a Python function of several values, which sees a null as None."""

    def kernel(*columns: Column) -> Column:
        arrays = [column for column in columns if not isinstance(column, pa.Scalar)]
        if not arrays:
            return pa.scalar(function(*(column.as_py() for column in columns)), of)
        rows = len(arrays[0])
        lists = [
            [column.as_py()] * rows if isinstance(column, pa.Scalar) else column.to_pylist()
            for column in columns
        ]
        return pa.array([function(*values) for values in zip(*lists, strict=True)], of)

    return kernel
