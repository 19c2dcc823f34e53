"""Spark's types and how they meet: common types, decimal results, implicit casts. [Spark ANSI]"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.api.errors import DataflowError, UnsupportedError
from holdfast.api.expressions.values import Column, Value, constant, derived

TIMESTAMP = pa.timestamp("us", tz="UTC")
MAX_PRECISION = 38
_MIN_SCALE = 6
_INTEGER_DIGITS = {8: 3, 16: 5, 32: 10, 64: 20}
_NAMES = {
    "int8": "TINYINT",
    "int16": "SMALLINT",
    "int32": "INT",
    "int64": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "string": "STRING",
    "bool": "BOOLEAN",
    "date32[day]": "DATE",
    "null": "VOID",
}


def name_of(of: pa.DataType) -> str:
    """The type as Spark writes it."""
    if pa.types.is_decimal(of):
        return f"DECIMAL({of.precision},{of.scale})"
    return "TIMESTAMP" if pa.types.is_timestamp(of) else _NAMES.get(str(of), str(of).upper())


def is_number(of: pa.DataType) -> bool:
    """Whether arithmetic is defined for it."""
    return bool(pa.types.is_integer(of) or pa.types.is_floating(of) or pa.types.is_decimal(of))


def as_decimal(of: pa.DataType) -> pa.DataType:
    """The decimal type that holds every value of an integer type."""
    return of if pa.types.is_decimal(of) else pa.decimal128(_INTEGER_DIGITS[of.bit_width], 0)


def literal_decimal(scalar: pa.Scalar) -> pa.DataType:
    """An integer literal meets decimals with just the digits it has."""
    return pa.decimal128(max(1, len(str(abs(scalar.as_py())))), 0)


def bounded_decimal(precision: int, scale: int) -> pa.DataType:
    """At most 38 digits: the scale gives way, but not below six digits."""
    if precision <= MAX_PRECISION:
        return pa.decimal128(precision, scale)
    digits = precision - scale
    return pa.decimal128(MAX_PRECISION, max(MAX_PRECISION - digits, min(scale, _MIN_SCALE)))


def common_type(values: Sequence[Value], text: str) -> pa.DataType:
    """The type that all values are cast to before they are compared or chosen between.

    Raises:
        DataflowError: Spark has none either.
        UnsupportedError: Spark has one, by a cast that is not exact here.
    """
    result = values[0].type
    for value in values[1:]:
        result = _wider(result, value.type, text)
    return result


def _wider(left: pa.DataType, right: pa.DataType, text: str) -> pa.DataType:
    if left == right or pa.types.is_null(right):
        return left
    if pa.types.is_null(left):
        return right
    pair = (left, right)
    if all(pa.types.is_integer(t) for t in pair):
        return max(pair, key=lambda t: t.bit_width)
    if all(is_number(t) for t in pair):
        return _wider_number(left, right)
    if all(pa.types.is_timestamp(t) or pa.types.is_date(t) for t in pair):
        return TIMESTAMP
    raise DataflowError(
        f"{text}: {name_of(left)} and {name_of(right)} have no common type; cast one of them"
    )


def _wider_number(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    if pa.types.is_floating(left) or pa.types.is_floating(right):
        return pa.float64()
    a, b = as_decimal(left), as_decimal(right)
    scale = max(a.scale, b.scale)
    digits = max(a.precision - a.scale, b.precision - b.scale)
    if digits + scale > MAX_PRECISION:
        raise UnsupportedError(f"{name_of(left)} with {name_of(right)} needs more than 38 digits")
    return pa.decimal128(digits + scale, scale)


def coerce(value: Value, to: pa.DataType) -> Value:
    """An implicit cast, which never loses anything but double's precision."""
    if value.type == to:
        return value
    if value.literal is not None:
        return constant(_coerced_literal(value, to), value.text)
    if pa.types.is_decimal(value.type) and pa.types.is_floating(to):
        raise UnsupportedError(
            f"{value.text}: {name_of(value.type)} as DOUBLE; write a double literal such as 1.5D, "
            "or cast the other side to a decimal"
        )
    return derived(to, value.text, lambda column: cast_column(column, to), value)


def cast_column(column: Column, to: pa.DataType) -> Column:
    """A cast that Arrow does as Spark does."""
    if column.type == to:
        return column
    if pa.types.is_date(column.type) and pa.types.is_timestamp(to):
        return column.cast(pa.timestamp("us")).cast(to)
    if pa.types.is_integer(column.type) and pa.types.is_decimal(to):
        wide = column.cast(pa.decimal128(max(_INTEGER_DIGITS[column.type.bit_width], 1), 0))
        return wide.cast(to)
    if pa.types.is_integer(column.type) and pa.types.is_floating(to):
        return (
            column.cast(to, safe=False)
            if isinstance(column, pa.Scalar)
            else pc.cast(column, to, safe=False)
        )
    return column.cast(to)


def _coerced_literal(value: Value, to: pa.DataType) -> pa.Scalar:
    assert value.literal is not None
    plain = value.literal.as_py()
    if plain is None:
        return pa.scalar(None, to)
    if pa.types.is_floating(to):
        return pa.scalar(float(plain), to)  # Correctly rounded, as Java does it.
    return cast_column(value.literal, to)
