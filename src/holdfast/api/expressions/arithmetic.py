"""Arithmetic: integers overflow to an error, decimals have Spark's result types, floats IEEE's."""

from __future__ import annotations

import decimal
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.api.expressions.casts import coerce, rescaled
from holdfast.api.expressions.types import (
    MAX_PRECISION,
    bounded_decimal,
    decimal_of,
    is_number,
    name_of,
)
from holdfast.api.expressions.values import (
    Column,
    EvaluationError,
    Value,
    constant,
    derived,
    per_row,
)
from holdfast.errors import DataflowError, UnsupportedError

_KERNELS: dict[str, Callable[..., Column]] = {
    "+": pc.add_checked,
    "-": pc.subtract_checked,
    "*": pc.multiply_checked,
}
_WIDE = 76
_EXACT = decimal.Context(prec=160, rounding=decimal.ROUND_HALF_UP)
_NEGATED = decimal.Context(prec=34, rounding=decimal.ROUND_HALF_EVEN)
"""Spark negates decimals in Scala's arithmetic, which keeps 34 digits."""


def binary(symbol: str, left: Value, right: Value, text: str) -> Value:
    """`left symbol right` for + - * / % and DIV."""
    if pa.types.is_duration(right.type) and pa.types.is_timestamp(left.type) and symbol in "+-":
        return _shifted(symbol, left, right, text)
    if pa.types.is_duration(left.type) and pa.types.is_timestamp(right.type) and symbol == "+":
        return _shifted(symbol, right, left, text)
    left, right = _numbers(left, right, text)
    if symbol == "DIV" and not all(pa.types.is_integer(value.type) for value in (left, right)):
        raise UnsupportedError(f"{text}: DIV takes whole numbers here")
    if pa.types.is_floating(left.type) or pa.types.is_floating(right.type):
        return _float(symbol, left, right, text)
    if pa.types.is_decimal(left.type) or pa.types.is_decimal(right.type):
        return _decimal(symbol, left, right, text)
    return _integer(symbol, left, right, text)


def _numbers(left: Value, right: Value, text: str) -> tuple[Value, Value]:
    """Both as numbers: NULL and text take the other side's kind."""
    if all(pa.types.is_null(value.type) for value in (left, right)):
        left, right = (coerce(value, pa.float64()) for value in (left, right))
    return _beside(left, right, text), _beside(right, left, text)


def _beside(value: Value, other: Value, text: str) -> Value:
    if pa.types.is_null(value.type) and is_number(other.type):
        return coerce(value, other.type)
    if pa.types.is_string(value.type) and is_number(other.type):
        return coerce(value, pa.int64() if pa.types.is_integer(other.type) else pa.float64())
    if not is_number(value.type):
        raise DataflowError(f"{text}: no arithmetic with {name_of(value.type)}")
    return value


def _shifted(symbol: str, left: Value, right: Value, text: str) -> Value:
    kernel = pc.add_checked if symbol == "+" else pc.subtract_checked
    return derived(left.type, text, kernel, left, right, is_total=False)


def _divisor_first(
    of: pa.DataType,
    text: str,
    kernel: Callable[[Column, Column], Column],
    left: Value,
    right: Value,
) -> Value:
    """Spark looks at the divisor first: where it is null, the dividend is not evaluated."""
    return derived(of, text, lambda y, x: kernel(x, y), right, left, is_total=False)


# -- integers -----------------------------------------------------------------------------------


def _integer(symbol: str, left: Value, right: Value, text: str) -> Value:
    if symbol == "/":
        sides = (coerce(left, pa.float64()), coerce(right, pa.float64()))
        return _divisor_first(pa.float64(), text, divided, *sides)
    wide = pa.int64() if symbol == "DIV" else max(left.type, right.type, key=lambda t: t.bit_width)
    sides = (coerce(left, wide), coerce(right, wide))
    if symbol == "%":
        return _divisor_first(wide, text, _integer_remainder, *sides)
    if symbol == "DIV":
        return _divisor_first(wide, text, pc.divide_checked, *sides)
    return derived(wide, text, _KERNELS[symbol], *sides, is_total=False)


def _integer_remainder(left: Column, right: Column) -> Column:
    """The sign is the dividend's. Dividing by -1 would overflow for the least number."""
    safe = pc.if_else(pc.equal(right, -1), pa.scalar(1, right.type), right)
    quotient = pc.divide_checked(left, safe)
    return pc.subtract(left, pc.multiply(quotient, safe))


# -- floats -------------------------------------------------------------------------------------


def _float(symbol: str, left: Value, right: Value, text: str) -> Value:
    both_small = left.type == pa.float32() and right.type == pa.float32()
    of = pa.float32() if both_small and symbol != "/" else pa.float64()
    sides = (coerce(left, of), coerce(right, of))
    if symbol == "/":
        return _divisor_first(of, text, divided, *sides)
    if symbol == "%":
        return _divisor_first(of, text, _float_remainder, *sides)
    kernel = {"+": pc.add, "-": pc.subtract, "*": pc.multiply}[symbol]
    return derived(of, text, kernel, *sides)


def _refuse_zero(left: Column, right: Column) -> None:
    """A null on the left is null before anything is divided."""
    is_bad = pc.and_(pc.is_valid(left), pc.equal(right, pa.scalar(0, right.type)))
    if (is_bad if isinstance(is_bad, pa.Scalar) else pc.any(is_bad)).as_py():
        raise EvaluationError("division by zero")


def divided(left: Column, right: Column) -> Column:
    """Doubles; dividing by zero is an error in ANSI mode."""
    _refuse_zero(left, right)
    return pc.divide(left, right)


def _float_remainder(left: Column, right: Column) -> Column:
    _refuse_zero(left, right)
    if isinstance(left, pa.Scalar) and isinstance(right, pa.Scalar):
        return _float_remainder(pa.repeat(left, 1), pa.repeat(right, 1))[0]
    rows = max(len(c) for c in (left, right) if not isinstance(c, pa.Scalar))
    arrays = [pa.repeat(c, rows) if isinstance(c, pa.Scalar) else c for c in (left, right)]
    valid = pc.and_(arrays[0].is_valid(), arrays[1].is_valid())
    numbers = [array.fill_null(1.0).to_numpy(zero_copy_only=False) for array in arrays]
    with np.errstate(invalid="ignore"):
        result = pa.array(np.fmod(*numbers), left.type)
    return pc.if_else(valid, result, pa.scalar(None, left.type))


# -- decimals -----------------------------------------------------------------------------------


def _decimal(symbol: str, left: Value, right: Value, text: str) -> Value:
    left, right = (coerce(value, decimal_of(value)) for value in (left, right))
    a, b = left.type, right.type
    if symbol == "%":
        scale = max(a.scale, b.scale)
        precision = min(a.precision - a.scale, b.precision - b.scale) + scale
        of = bounded_decimal(precision, scale)
        return _divisor_first(of, text, per_row(_fitting(_remainder, of), of), left, right)
    if symbol == "*":
        precision, scale = a.precision + b.precision + 1, a.scale + b.scale
    elif symbol in "+-":
        scale = max(a.scale, b.scale)
        precision = max(a.precision - a.scale, b.precision - b.scale) + scale + 1
    else:
        scale = max(6, a.scale + b.precision + 1)
        precision = a.precision - a.scale + b.scale + scale
    of = bounded_decimal(precision, scale)
    if symbol == "/":
        return _decimal_quotient(left, right, of, text)
    kernel = _KERNELS[symbol]
    if precision <= MAX_PRECISION:
        return derived(of, text, lambda x, y: kernel(x, y).cast(of), left, right)
    if precision > _WIDE:
        exact = {"+": _EXACT.add, "-": _EXACT.subtract, "*": _EXACT.multiply}[symbol]
        return derived(of, text, per_row(_fitting(exact, of), of), left, right, is_total=False)

    def wide(x: Column, y: Column) -> Column:
        return rescaled(kernel(*(_widened(c, precision) for c in (x, y))), of)

    return derived(of, text, wide, left, right, is_total=False)


def _widened(column: Column, precision: int) -> Column:
    """Room for the exact result; half of it for each factor."""
    return column.cast(pa.decimal256(max(column.type.precision, precision // 2), column.type.scale))


def _fitting(
    exact: Callable[..., decimal.Decimal], of: pa.DataType
) -> Callable[..., decimal.Decimal]:
    """The result rounded to the type: halves away from zero."""
    step = decimal.Decimal(1).scaleb(-of.scale)

    def compute(*numbers: decimal.Decimal) -> decimal.Decimal:
        result = _EXACT.quantize(exact(*numbers), step)
        if len(result.as_tuple().digits) > of.precision:
            raise EvaluationError(f"a value does not fit {name_of(of)}")
        return result

    return compute


def _remainder(x: decimal.Decimal, y: decimal.Decimal) -> decimal.Decimal:
    """The sign is the dividend's."""
    if not y:
        raise EvaluationError("division by zero")
    return _EXACT.remainder(x, y)


def _decimal_quotient(left: Value, right: Value, of: pa.DataType, text: str) -> Value:
    """One digit more than the result has, cut off, then rounded: halves away from zero."""
    b = right.type
    scale = of.scale + 1 + b.scale
    precision = left.type.precision - left.type.scale + scale
    if precision > _WIDE - b.precision:
        return _divisor_first(of, text, per_row(_fitting(_quotient, of), of), left, right)

    def quotient(x: Column, y: Column) -> Column:
        _refuse_zero(x, y)
        rows = x.cast(pa.decimal256(precision, scale))
        raw = pc.divide_checked(rows, y.cast(pa.decimal256(b.precision, b.scale)))
        return rescaled(raw, of)

    return _divisor_first(of, text, quotient, left, right)


def _quotient(x: decimal.Decimal, y: decimal.Decimal) -> decimal.Decimal:
    """Cut off, not rounded, as what follows rounds."""
    if not y:
        raise EvaluationError("division by zero")
    return decimal.Context(prec=160, rounding=decimal.ROUND_DOWN).divide(x, y)


def signed(symbol: str, value: Value, text: str) -> Value:
    """`-value` and `+value`."""
    if pa.types.is_null(value.type) or pa.types.is_string(value.type):
        value = coerce(value, pa.float64())
    if pa.types.is_duration(value.type):
        if value.constant is None:
            raise UnsupportedError(f"{text}: only intervals as written")
        sign = -1 if symbol == "-" else 1
        micros = sign * value.constant.cast(pa.int64()).as_py()
        if micros == 2**63:
            raise DataflowError(f"{text} does not fit INTERVAL")
        return constant(pa.scalar(micros, value.type), text)
    if not is_number(value.type):
        raise DataflowError(f"{text}: no arithmetic with {name_of(value.type)}")
    if symbol == "+":
        return derived(value.type, text, lambda column: column, value)
    if pa.types.is_decimal(value.type) and value.type.precision > _NEGATED.prec:
        of = value.type
        return derived(of, text, per_row(_fitting(_NEGATED.minus, of), of), value, is_total=False)
    is_total = not pa.types.is_integer(value.type)
    return derived(value.type, text, pc.negate_checked, value, is_total=is_total)
