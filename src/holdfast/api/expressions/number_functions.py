"""Functions of numbers."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.api.expressions import arithmetic, logic
from holdfast.api.expressions.signatures import (
    Build,
    Function,
    double,
    kernel,
    number,
)
from holdfast.api.expressions.values import (
    Column,
    Value,
    constant,
    derived,
    derived_from_all,
)


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
    "isnan": Function(_is_nan, 1, 1),
    "mod": Function(_operator("%"), 2, 2),
    "negative": Function(_signed("-"), 1, 1),
    "nullifzero": Function(_null_if_zero, 1, 1),
    "positive": Function(_signed("+"), 1, 1),
    "sign": Function(kernel(pa.float64(), _signum, double), 1, 1),
    "signum": Function(kernel(pa.float64(), _signum, double), 1, 1),
    "sqrt": Function(kernel(pa.float64(), pc.sqrt, double), 1, 1),
    "zeroifnull": Function(_zero_if_null, 1, 1),
}
