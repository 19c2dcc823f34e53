"""Functions of numbers that are seldom needed; and arithmetic that is null where others fail."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.api.expressions import arithmetic
from holdfast.api.expressions.casts import coerce
from holdfast.api.expressions.signatures import Build, Function, bigint, double, integer, kernel
from holdfast.api.expressions.types import is_number
from holdfast.api.expressions.values import (
    Column,
    EvaluationError,
    Value,
    as_array,
    constant,
    derived_from_all,
    per_row,
)
from holdfast.errors import DataflowError, UnsupportedError

_DOUBLE, _LONG = pa.float64(), pa.int64()
_TO_DEGREES, _TO_RADIANS = 57.29577951308232, 0.017453292519943295
"""Java's."""


def _tried(symbol: str) -> Build:
    """Arithmetic of numbers; null where it has no value."""

    def build(args: Sequence[Value], text: str) -> Value:
        for arg in args:
            if not (is_number(arg.type) or pa.types.is_null(arg.type)):
                raise UnsupportedError(f"{text}: {arg.text} is no number")
            if not arg.is_total:
                raise UnsupportedError(f"{text}: {arg.text} may fail itself, which stays an error")
        value = arithmetic.binary(symbol, args[0], args[1], text)
        if value.failure is not None:
            return constant(pa.scalar(None, value.type), text)
        if value.constant is not None:
            return value

        def evaluate(batch: pa.RecordBatch) -> Column:
            try:
                return value.evaluate(batch)
            except (pa.ArrowInvalid, EvaluationError):
                count = batch.num_rows
                if count == 1:
                    return pa.nulls(1, value.type)
                halves = batch.slice(0, count // 2), batch.slice(count // 2)
                parts = [as_array(evaluate(half), half.num_rows) for half in halves]
                return pa.concat_arrays(parts)

        return Value(value.type, evaluate, True, text)

    return build


def _constant(number: float) -> Build:
    return lambda _, text: constant(pa.scalar(number, _DOUBLE), text)


def _rint(column: Column) -> Column:
    if isinstance(column, pa.Scalar):
        value = column.as_py()
        return pa.scalar(None if value is None else float(np.rint(value)), _DOUBLE)
    values = np.rint(column.to_numpy(zero_copy_only=False))
    return pc.if_else(pc.is_valid(column), pa.array(values, _DOUBLE), pa.scalar(None, _DOUBLE))


def _factorial(number: int) -> int | None:
    return math.factorial(number) if 0 <= number <= 20 else None


def _nanvl(args: Sequence[Value], text: str) -> Value:
    for arg in args:
        if not (is_number(arg.type) or pa.types.is_null(arg.type)):
            raise DataflowError(f"{text}: {arg.text} is no number")
        if not arg.is_total:
            raise UnsupportedError(f"{text}: {arg.text} may fail; write CASE")
    of = pa.float32() if all(arg.type == pa.float32() for arg in args) else _DOUBLE
    left, right = (coerce(arg, of) for arg in args)
    return derived_from_all(
        of, text, lambda a, b: pc.if_else(pc.fill_null(pc.is_nan(a), False), b, a), left, right
    )


def _width_bucket(value: float, first: float, last: float, count: int) -> int | None:
    is_odd = count <= 0 or count == 2**63 - 1 or math.isnan(value) or first == last
    if is_odd or not (math.isfinite(first) and math.isfinite(last)):
        return None
    lower, upper = min(first, last), max(first, last)
    behind = value >= upper if first < last else value <= lower
    before = value < lower if first < last else value > upper
    if before:
        return 0
    if behind:
        return count + 1
    distance = value - lower if first < last else upper - value
    place = float(count) * distance / (upper - lower)
    return (0 if math.isnan(place) else min(int(place), 2**63 - 1)) + 1


FUNCTIONS: dict[str, Function] = {
    "degrees": Function(kernel(_DOUBLE, lambda c: pc.multiply(c, _TO_DEGREES), double), 1, 1),
    "e": Function(_constant(math.e), 0, 0),
    "factorial": Function(kernel(_LONG, per_row(_factorial, _LONG), integer), 1, 1),
    "nanvl": Function(_nanvl, 2, 2),
    "pi": Function(_constant(math.pi), 0, 0),
    "radians": Function(kernel(_DOUBLE, lambda c: pc.multiply(c, _TO_RADIANS), double), 1, 1),
    "rint": Function(kernel(_DOUBLE, _rint, double), 1, 1),
    "try_add": Function(_tried("+"), 2, 2),
    "try_divide": Function(_tried("/"), 2, 2),
    "try_mod": Function(_tried("%"), 2, 2),
    "try_multiply": Function(_tried("*"), 2, 2),
    "try_subtract": Function(_tried("-"), 2, 2),
    "width_bucket": Function(
        kernel(_LONG, per_row(_width_bucket, _LONG), double, double, double, bigint), 4, 4
    ),
}
