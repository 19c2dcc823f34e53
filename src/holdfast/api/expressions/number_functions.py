"""Functions of numbers."""

from __future__ import annotations

import decimal
import math
from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.api.expressions import arithmetic, logic
from holdfast.api.expressions.casts import cast, coerce, rescaled
from holdfast.api.expressions.signatures import (
    Build,
    Function,
    double,
    fixed,
    integer,
    kernel,
    number,
)
from holdfast.api.expressions.values import (
    Column,
    Value,
    constant,
    derived,
    derived_from_all,
    per_row,
)
from holdfast.errors import UnsupportedError


def _abs(args: Sequence[Value], text: str) -> Value:
    value = number(args[0], text)
    if pa.types.is_decimal(value.type):
        # As Spark does it, whose negation of long decimals rounds.
        negative = logic.compared("<", value, constant(pa.scalar(0), "0"), text)
        return logic.chosen([(negative, arithmetic.signed("-", value, text))], value, text)
    is_total = not pa.types.is_integer(value.type)
    return derived(value.type, text, pc.abs_checked, value, is_total=is_total)


def _signum(column: Column) -> Column:
    return pc.if_else(pc.equal(column, 0.0), column, pc.sign(column).cast(pa.float64()))


def _stepped(step: Callable[..., Column]) -> Build:
    """`floor` and `ceil`: whole numbers; a double beyond BIGINT is an error."""

    def build(args: Sequence[Value], text: str) -> Value:
        value = number(args[0], text)
        if pa.types.is_decimal(value.type):
            digits = value.type.precision - value.type.scale + 1
            of = pa.decimal128(min(digits, 38), 0)
            wide = pa.decimal256(value.type.precision + 1, value.type.scale)
            return derived(of, text, lambda c: step(c.cast(wide)).cast(of), value)
        if pa.types.is_integer(value.type):
            return coerce(value, pa.int64())
        stepped = derived(pa.float64(), text, lambda c: step(_zero_for_nan(c)), value)
        return cast(stepped, pa.int64(), text)

    return build


def _zero_for_nan(column: Column) -> Column:
    """Unlike its CAST, Spark's floor of NaN is 0."""
    doubles = column.cast(pa.float64())
    return pc.if_else(pc.is_nan(doubles), 0.0, doubles)


def _round(args: Sequence[Value], text: str) -> Value:
    """Halves away from zero."""
    value = number(args[0], text)
    digits = fixed(integer(args[1], text), text) if len(args) == 2 else 0
    if digits is None:
        return constant(pa.scalar(None, value.type), text)
    if digits < 0:
        raise UnsupportedError(f"{text}: rounding before the point is not supported")
    if pa.types.is_integer(value.type):
        return value
    if pa.types.is_decimal(value.type):
        scale = min(value.type.scale, digits)
        integral = value.type.precision - value.type.scale + 1
        of = pa.decimal128(min(integral + scale, 38), scale)
        return derived(of, text, lambda c: rescaled(c, of), value, is_total=False)
    if value.type == pa.float32():
        raise UnsupportedError(f"{text}: round of FLOAT; cast to DOUBLE")
    return derived(value.type, text, per_row(_to_step(min(digits, 400)), pa.float64()), value)


def _to_step(digits: int) -> Callable[[float], float]:
    step = decimal.Decimal(1).scaleb(-digits)
    context = decimal.Context(prec=800, rounding=decimal.ROUND_HALF_UP)

    def to_step(number: float) -> float:
        if not math.isfinite(number):
            return number
        # A decimal has no sign at zero, in Java's decimals.
        return float(context.quantize(decimal.Decimal(repr(number)), step)) + 0.0

    return to_step


def _is_nan(args: Sequence[Value], text: str) -> Value:
    value = double(args[0], text)
    return derived_from_all(pa.bool_(), text, lambda c: pc.fill_null(pc.is_nan(c), False), value)


def _operator(symbol: str) -> Build:
    return lambda args, text: arithmetic.binary(symbol, args[0], args[1], text)


def _signed(symbol: str) -> Build:
    return lambda args, text: arithmetic.signed(symbol, args[0], text)


def _zero_if_null(args: Sequence[Value], text: str) -> Value:
    zero = constant(pa.scalar(0, pa.int32()), "0", is_literal=True)
    return logic.first_valid([args[0], zero], text)


def _null_if_zero(args: Sequence[Value], text: str) -> Value:
    zero = constant(pa.scalar(0, pa.int32()), "0", is_literal=True)
    return logic.null_if_equal(args[0], zero, text)


FUNCTIONS: dict[str, Function] = {
    "abs": Function(_abs, 1, 1),
    "ceil": Function(_stepped(pc.ceil), 1, 1),
    "ceiling": Function(_stepped(pc.ceil), 1, 1),
    "floor": Function(_stepped(pc.floor), 1, 1),
    "isnan": Function(_is_nan, 1, 1),
    "mod": Function(_operator("%"), 2, 2),
    "negative": Function(_signed("-"), 1, 1),
    "nullifzero": Function(_null_if_zero, 1, 1),
    "positive": Function(_signed("+"), 1, 1),
    "round": Function(_round, 1, 2),
    "sign": Function(kernel(pa.float64(), _signum, double), 1, 1),
    "signum": Function(kernel(pa.float64(), _signum, double), 1, 1),
    "sqrt": Function(kernel(pa.float64(), pc.sqrt, double), 1, 1),
    "zeroifnull": Function(_zero_if_null, 1, 1),
}
