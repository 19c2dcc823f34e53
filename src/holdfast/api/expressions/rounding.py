"""Rounding: to the nearest with halves away from zero or to the even digit, up, and down."""

from __future__ import annotations

import decimal
import math
from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.api.expressions.casts import cast, coerce, rescaled
from holdfast.api.expressions.signatures import Build, Function, fixed, integer, number, rows, same
from holdfast.api.expressions.types import as_decimal
from holdfast.api.expressions.values import (
    Column,
    EvaluationError,
    Value,
    constant,
    derived,
    per_row,
)
from holdfast.errors import UnsupportedError

_WIDE = decimal.Context(prec=800)
_MOST_PLACES = 400


def _quantized(places: int, mode: str) -> Callable[[decimal.Decimal], decimal.Decimal]:
    step = decimal.Decimal(1).scaleb(-places)
    return lambda exact: exact.quantize(step, rounding=mode, context=_WIDE)


def _of_real(places: int, mode: str) -> Callable[[float], float]:
    to_step = _quantized(places, mode)

    def to_places(given: float) -> float:
        if not math.isfinite(given):
            return given
        # A decimal has no sign at zero, in Java's decimals.
        return float(to_step(decimal.Decimal(repr(given)))) + 0.0

    return to_places


def _of_integer(value: Value, places: int, mode: str, text: str) -> Value:
    if places >= 0:
        return value
    to_step = _quantized(places, mode)
    bits: int = value.type.bit_width

    def one(given: int) -> int:
        rounded = int(to_step(decimal.Decimal(given)))
        if not -(2 ** (bits - 1)) <= rounded < 2 ** (bits - 1):
            raise EvaluationError(f"{given} rounded does not fit")
        return rounded

    return rows(value.type, one, same, is_total=False)([value], text)


def _of_decimal(value: Value, places: int, mode: str, text: str) -> Value:
    digits, scale = value.type.precision - value.type.scale + 1, min(value.type.scale, places)
    if places < 0:
        digits, scale = max(digits, 1 - places), 0
    of = pa.decimal128(min(digits + scale, 38), scale)
    if mode == decimal.ROUND_HALF_UP and places >= 0:
        return derived(of, text, lambda c: rescaled(c, of), value, is_total=False)
    to_step = _quantized(places if places < 0 else scale, mode)

    def one(given: decimal.Decimal) -> decimal.Decimal:
        rounded = to_step(given).quantize(decimal.Decimal(1).scaleb(-scale), context=_WIDE)
        if len(rounded.as_tuple().digits) > of.precision:
            raise EvaluationError(f"{given} rounded has more than {of.precision} digits")
        return rounded

    return rows(of, one, same, is_total=False)([value], text)


def _rounded(mode: str) -> Build:
    """`round` and `bround`, whose digits are known when the dataflow is built."""

    def build(args: Sequence[Value], text: str) -> Value:
        value = number(args[0], text)
        places = fixed(integer(args[1], text), text) if len(args) == 2 else 0
        if places is None:
            return constant(pa.scalar(None, value.type), text)
        places = min(max(places, -_MOST_PLACES), _MOST_PLACES)
        if pa.types.is_integer(value.type):
            return _of_integer(value, places, mode, text)
        if pa.types.is_decimal(value.type):
            return _of_decimal(value, places, mode, text)
        if value.type == pa.float32():
            raise UnsupportedError(f"{text}: rounding of FLOAT; cast to DOUBLE")
        to_places = per_row(_of_real(places, mode), pa.float64())
        return derived(value.type, text, to_places, value)

    return build


def _stepped(step: Callable[..., Column], mode: str) -> Build:
    """`floor` and `ceil`: whole numbers, or decimals of some places."""

    def build(args: Sequence[Value], text: str) -> Value:
        value = number(args[0], text)
        if len(args) == 2:
            return _stepped_at(value, fixed(integer(args[1], text), text), mode, text)
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


def _stepped_at(value: Value, places: int | None, mode: str, text: str) -> Value:
    if pa.types.is_floating(value.type):
        raise UnsupportedError(f"{text}: places of a fraction; cast it to DECIMAL")
    if places is None:
        raise UnsupportedError(f"{text}: the number of places is NULL")
    exact = coerce(value, as_decimal(value.type))
    return _of_decimal(exact, min(max(places, -37), _MOST_PLACES), mode, text)


def _zero_for_nan(column: Column) -> Column:
    """Unlike its CAST, Spark's floor of NaN is 0."""
    doubles = column.cast(pa.float64())
    return pc.if_else(pc.is_nan(doubles), 0.0, doubles)


_CEIL = Function(_stepped(pc.ceil, decimal.ROUND_CEILING), 1, 2)
FUNCTIONS: dict[str, Function] = {
    "bround": Function(_rounded(decimal.ROUND_HALF_EVEN), 1, 2),
    "ceil": _CEIL,
    "ceiling": _CEIL,
    "floor": Function(_stepped(pc.floor, decimal.ROUND_FLOOR), 1, 2),
    "round": Function(_rounded(decimal.ROUND_HALF_UP), 1, 2),
}
