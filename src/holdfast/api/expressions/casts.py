"""`CAST` as Spark does it in ANSI mode: a value that does not fit is an error."""

from __future__ import annotations

import decimal
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import expressions as e

from holdfast.api.errors import DataflowError, UnsupportedError
from holdfast.api.expressions.types import TIMESTAMP, cast_column, name_of
from holdfast.api.expressions.values import Column, EvaluationError, Value, constant, derived

_TYPES = {
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "TEXT": pa.string(),
    "VARCHAR": pa.string(),
    "BOOLEAN": pa.bool_(),
    "DATE": pa.date32(),
    "TIMESTAMP": TIMESTAMP,
    "TIMESTAMPTZ": TIMESTAMP,
    "TIMESTAMPLTZ": TIMESTAMP,
}


def type_of(tree: e.DataType) -> pa.DataType:
    """The Arrow type of a type in SQL. Raises `UnsupportedError`."""
    kind = tree.this.name
    if kind == "DECIMAL":
        numbers = [int(parameter.name) for parameter in tree.expressions]
        precision, scale = (*numbers, 0)[:2] if numbers else (10, 0)
        if not 1 <= precision <= 38 or not 0 <= scale <= precision:
            raise DataflowError(f"DECIMAL({precision},{scale}) is no type")
        return pa.decimal128(precision, scale)
    if kind not in _TYPES or tree.expressions:
        raise UnsupportedError(f"type {tree.sql(dialect='spark')} is not supported")
    return _TYPES[kind]


def cast(value: Value, to: pa.DataType, text: str) -> Value:
    """`CAST(value AS to)`. Raises `UnsupportedError` for pairs that are not exact here."""
    kernel, is_total = _kernel(value, to, text)
    result = derived(to, text, kernel, value, is_total=is_total)
    if value.literal is None:
        return result
    try:
        return constant(kernel(value.literal), text)
    except (pa.ArrowInvalid, ValueError, OverflowError, EvaluationError) as error:
        raise DataflowError(f"{text}: {error}") from None


def _kernel(value: Value, to: pa.DataType, text: str) -> tuple[Callable[[Column], Column], bool]:
    of = value.type
    if of == to:
        return (lambda column: column), True
    if pa.types.is_null(of):
        return (lambda column: column.cast(to)), True
    if pa.types.is_integer(of):
        return _from_integer(of, to, text)
    if pa.types.is_floating(of):
        return _from_float(of, to, text)
    if pa.types.is_decimal(of):
        return _from_decimal(of, to, text)
    if pa.types.is_string(of):
        return _from_string(value, to, text)
    if pa.types.is_boolean(of) and (pa.types.is_integer(to) or pa.types.is_string(to)):
        return (lambda column: column.cast(to)), True
    if pa.types.is_timestamp(of) and pa.types.is_date(to):
        return date_of, True
    if pa.types.is_date(of) and pa.types.is_timestamp(to):
        return (lambda column: cast_column(column, to)), False
    raise _refused(of, to, text)


def _refused(of: pa.DataType, to: pa.DataType, text: str) -> UnsupportedError:
    return UnsupportedError(f"{text}: {name_of(of)} AS {name_of(to)} is not supported")


def date_of(column: Column) -> Column:
    """The day of a timestamp, also before 1970."""
    return pc.floor_temporal(column, unit="day").cast(pa.timestamp("us")).cast(pa.date32())


def _from_integer(
    of: pa.DataType, to: pa.DataType, text: str
) -> tuple[Callable[[Column], Column], bool]:
    if pa.types.is_integer(to):
        return (lambda column: column.cast(to)), to.bit_width >= of.bit_width
    if pa.types.is_floating(to):
        return (lambda column: cast_column(column, to)), True
    if pa.types.is_decimal(to):
        return (lambda column: cast_column(column, to)), False
    if pa.types.is_string(to):
        return (lambda column: column.cast(to)), True
    if pa.types.is_boolean(to):
        return (lambda column: pc.not_equal(column, 0)), True
    raise _refused(of, to, text)


def _from_float(
    of: pa.DataType, to: pa.DataType, text: str
) -> tuple[Callable[[Column], Column], bool]:
    if pa.types.is_floating(to):
        return (lambda column: column.cast(to)), True
    if pa.types.is_integer(to):
        low, high = (
            float(np.iinfo(to.to_pandas_dtype()).min),
            -float(np.iinfo(to.to_pandas_dtype()).min),
        )

        def truncated(column: Column) -> Column:
            whole = pc.trunc(column.cast(pa.float64()))
            fits = pc.and_(pc.greater_equal(whole, low), pc.less(whole, high))
            if not _all(fits):
                raise EvaluationError(f"a value does not fit {name_of(to)}")
            return whole.cast(to)

        return truncated, False
    if pa.types.is_boolean(to):
        return (lambda column: pc.not_equal(column, 0.0)), True
    raise _refused(of, to, text)


def _all(column: Column) -> bool:
    if isinstance(column, pa.Scalar):
        return column.as_py() is not False
    return pc.all(column).as_py() is not False


def _from_decimal(
    of: pa.DataType, to: pa.DataType, text: str
) -> tuple[Callable[[Column], Column], bool]:
    if pa.types.is_decimal(to):
        return (lambda column: rescaled(column, to)), False
    if pa.types.is_integer(to):
        whole = pa.decimal128(of.precision, 0)

        def truncated(column: Column) -> Column:
            return pc.trunc(column).cast(whole, safe=False).cast(to)

        return truncated, False
    raise _refused(of, to, text)


def rescaled(column: Column, to: pa.DataType) -> Column:
    """A decimal with another scale, halves away from zero; too many digits are an error."""
    of = column.type
    if to.scale < of.scale:
        wide = column.cast(pa.decimal256(76, of.scale))
        column = pc.round(wide, ndigits=to.scale, round_mode="half_towards_infinity")
    return column.cast(to)


def _from_string(
    value: Value, to: pa.DataType, text: str
) -> tuple[Callable[[Column], Column], bool]:
    if pa.types.is_integer(to):
        return _parser(lambda s: _integer(s, to), to), False
    if pa.types.is_decimal(to):
        return _parser(lambda s: _decimal(s, to), to), False
    if value.literal is not None and (pa.types.is_timestamp(to) or pa.types.is_date(to)):
        return (lambda column: _moment(column.as_py(), to)), False
    if value.literal is not None and pa.types.is_floating(to):
        return (lambda column: pa.scalar(float(column.as_py()), to)), False
    raise _refused(value.type, to, text)


def _parser(function: Callable[[str], Any], to: pa.DataType) -> Callable[[Column], Column]:
    from holdfast.api.expressions.values import per_distinct

    return per_distinct(function, to)


_SPACES = "".join(map(chr, range(33))) + "\x7f"


def _integer(text: str, to: pa.DataType) -> int:
    digits = text.strip(_SPACES)
    bare = digits[1:] if digits[:1] in ("+", "-") else digits
    if not (bare.isascii() and bare.isdigit()):
        raise EvaluationError(f"{text!r} is no {name_of(to)}")
    number, bounds = int(digits), np.iinfo(to.to_pandas_dtype())
    if not bounds.min <= number <= bounds.max:
        raise EvaluationError(f"{text!r} does not fit {name_of(to)}")
    return number


def _decimal(text: str, to: pa.DataType) -> decimal.Decimal:
    plain = text.strip(_SPACES)
    if not plain.isascii() or "_" in plain:
        raise EvaluationError(f"{text!r} is no {name_of(to)}")
    try:
        with decimal.localcontext(prec=120, rounding=decimal.ROUND_HALF_UP):
            number = decimal.Decimal(plain).quantize(decimal.Decimal(1).scaleb(-to.scale))
    except decimal.InvalidOperation:
        raise EvaluationError(f"{text!r} is no {name_of(to)}") from None
    if not number.is_finite() or len(number.as_tuple().digits) > to.precision:
        raise EvaluationError(f"{text!r} does not fit {name_of(to)}")
    return number


def _moment(text: str, to: pa.DataType) -> pa.Scalar:
    """A timestamp or date literal, in UTC."""
    try:
        moment = np.datetime64(text.strip().replace(" ", "T").removesuffix("Z"), "us")
    except ValueError:
        raise EvaluationError(f"{text!r} is no {name_of(to)}") from None
    micros = pa.scalar(int(moment.astype(np.int64)), pa.int64())
    stamp = micros.cast(pa.timestamp("us")).cast(TIMESTAMP)
    return date_of(stamp) if pa.types.is_date(to) else stamp
