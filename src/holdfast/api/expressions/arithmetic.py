"""Arithmetic: integers overflow to an error, decimals have Spark's result types, floats IEEE's."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.api.errors import DataflowError, UnsupportedError
from holdfast.api.expressions.casts import rescaled
from holdfast.api.expressions.types import (
    MAX_PRECISION,
    TIMESTAMP,
    as_decimal,
    bounded_decimal,
    cast_column,
    coerce,
    is_number,
    literal_decimal,
    name_of,
)
from holdfast.api.expressions.values import Column, EvaluationError, Value, derived

_KERNELS: dict[str, Callable[..., Column]] = {
    "+": pc.add_checked,
    "-": pc.subtract_checked,
    "*": pc.multiply_checked,
}
_WIDE = 76


def binary(symbol: str, left: Value, right: Value, text: str) -> Value:
    """`left symbol right` for + - * / % and DIV."""
    if symbol in "+-" and pa.types.is_timestamp(left.type) and pa.types.is_duration(right.type):
        return _shifted(symbol, left, right, text)
    left, right = (_typed(value, text) for value in (left, right))
    if pa.types.is_floating(left.type) or pa.types.is_floating(right.type):
        return _float(symbol, left, right, text)
    if pa.types.is_decimal(left.type) or pa.types.is_decimal(right.type):
        return _decimal(symbol, left, right, text)
    return _integer(symbol, left, right, text)


def _typed(value: Value, text: str) -> Value:
    if pa.types.is_null(value.type):
        return coerce(value, pa.int32())
    if not is_number(value.type):
        raise DataflowError(f"{text}: no arithmetic with {name_of(value.type)}")
    return value


def _shifted(symbol: str, left: Value, right: Value, text: str) -> Value:
    kernel = pc.add_checked if symbol == "+" else pc.subtract_checked
    return derived(TIMESTAMP, text, kernel, left, right, is_total=False)


# -- integers -----------------------------------------------------------------------------------


def _integer(symbol: str, left: Value, right: Value, text: str) -> Value:
    if symbol == "/":
        sides = (coerce(left, pa.float64()), coerce(right, pa.float64()))
        return derived(pa.float64(), text, divided, *sides, is_total=False)
    wide = pa.int64() if symbol == "DIV" else max(left.type, right.type, key=lambda t: t.bit_width)
    sides = (coerce(left, wide), coerce(right, wide))
    kernel = {"%": _integer_remainder, "DIV": pc.divide_checked}.get(symbol) or _KERNELS[symbol]
    return derived(wide, text, kernel, *sides, is_total=False)


def _integer_remainder(left: Column, right: Column) -> Column:
    """The sign is the dividend's. Dividing by -1 would overflow for the least number."""
    safe = pc.if_else(pc.equal(right, -1), pa.scalar(1, right.type), right)
    quotient = pc.divide_checked(left, safe)
    return pc.subtract(left, pc.multiply(quotient, safe))


# -- floats -------------------------------------------------------------------------------------


def _float(symbol: str, left: Value, right: Value, text: str) -> Value:
    both_small = left.type == pa.float32() and right.type == pa.float32()
    of = pa.float32() if both_small and symbol != "/" else pa.float64()
    if symbol == "DIV":
        raise DataflowError(f"{text}: DIV takes whole numbers")
    sides = (coerce(left, of), coerce(right, of))
    if symbol == "/":
        return derived(of, text, divided, *sides, is_total=False)
    if symbol == "%":
        return derived(of, text, _float_remainder, *sides, is_total=False)
    kernel = {"+": pc.add, "-": pc.subtract, "*": pc.multiply}[symbol]
    return derived(of, text, kernel, *sides)


def _refuse_zero(left: Column, right: Column) -> None:
    """A null on the left is null before anything is divided."""
    is_bad = pc.and_(pc.is_valid(left), pc.equal(right, 0.0))
    if (is_bad if isinstance(is_bad, pa.Scalar) else pc.any(is_bad)).as_py():
        raise EvaluationError("division by zero")


def divided(left: Column, right: Column) -> Column:
    """Doubles; dividing by zero is an error in ANSI mode."""
    _refuse_zero(left, right)
    return pc.divide(left, right)


def _float_remainder(left: Column, right: Column) -> Column:
    _refuse_zero(left, right)
    rows = (
        max(len(c) for c in (left, right) if not isinstance(c, pa.Scalar))
        if not (isinstance(left, pa.Scalar) and isinstance(right, pa.Scalar))
        else 1
    )
    arrays = [pa.repeat(c, rows) if isinstance(c, pa.Scalar) else c for c in (left, right)]
    valid = pc.and_(arrays[0].is_valid(), arrays[1].is_valid())
    numbers = [array.fill_null(1.0).to_numpy(zero_copy_only=False) for array in arrays]
    with np.errstate(invalid="ignore"):
        result = pa.array(np.fmod(*numbers), left.type)
    return pc.if_else(valid, result, pa.scalar(None, left.type))


# -- decimals -----------------------------------------------------------------------------------


def _decimal(symbol: str, left: Value, right: Value, text: str) -> Value:
    left, right = (_as_decimal(value) for value in (left, right))
    a, b = left.type, right.type
    if symbol == "*":
        precision, scale = a.precision + b.precision + 1, a.scale + b.scale
    elif symbol in "+-":
        scale = max(a.scale, b.scale)
        precision = max(a.precision - a.scale, b.precision - b.scale) + scale + 1
    elif symbol == "/":
        scale = max(6, a.scale + b.precision + 1)
        precision = a.precision - a.scale + b.scale + scale
    else:
        raise UnsupportedError(f"{text}: {symbol} on decimals is not supported")
    of = bounded_decimal(precision, scale)
    if symbol == "/":
        return _decimal_quotient(left, right, of, text)
    kernel = _KERNELS[symbol]
    if precision <= MAX_PRECISION:
        return derived(of, text, lambda x, y: kernel(x, y).cast(of), left, right, is_total=True)
    if precision > _WIDE:
        raise UnsupportedError(f"{text}: more than {_WIDE} digits on the way")

    def exact(x: Column, y: Column) -> Column:
        return rescaled(kernel(*(_widened(c, precision) for c in (x, y))), of)

    return derived(of, text, exact, left, right, is_total=False)


def _widened(column: Column, precision: int) -> Column:
    """Room for the exact result; half of it for each factor."""
    return column.cast(pa.decimal256(max(column.type.precision, precision // 2), column.type.scale))


def _as_decimal(value: Value) -> Value:
    if value.literal is not None and pa.types.is_integer(value.type) and value.literal.is_valid:
        return coerce(value, literal_decimal(value.literal))
    return coerce(value, as_decimal(value.type))


def _decimal_quotient(left: Value, right: Value, of: pa.DataType, text: str) -> Value:
    """One digit more than the result has, cut off, then rounded: halves away from zero."""
    b = right.type
    scale = of.scale + 1 + b.scale
    precision = left.type.precision - left.type.scale + scale
    if precision > _WIDE - b.precision:
        raise UnsupportedError(f"{text}: too many digits on the way; cast to fewer")

    def quotient(x: Column, y: Column) -> Column:
        _refuse_zero(x, y.cast(pa.float64()))
        rows = x.cast(pa.decimal256(precision, scale))
        raw = pc.divide_checked(rows, y.cast(pa.decimal256(b.precision, b.scale)))
        return rescaled(raw, of)

    return derived(of, text, quotient, left, right, is_total=False)


def negated(value: Value, text: str) -> Value:
    """`-value`."""
    value = _typed(value, text)
    is_total = not pa.types.is_integer(value.type)
    return derived(value.type, text, pc.negate_checked, value, is_total=is_total)


def widen_integer(column: Column) -> Column:
    """A column of int64, from any integers."""
    return cast_column(column, pa.int64())
