"""`CAST` as Spark does it in ANSI mode: a value that does not fit is an error."""

from __future__ import annotations

import decimal
import functools
import re
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.api.expressions import moments
from holdfast.api.expressions.nested import arrays_from, maps_from, parts_of, per_array
from holdfast.api.expressions.types import TIMESTAMP, as_decimal, name_of
from holdfast.api.expressions.values import (
    Column,
    EvaluationError,
    Value,
    constant,
    derived,
    per_distinct,
)
from holdfast.core.model.nested_types import is_nested
from holdfast.errors import UnsupportedError

Kernel = tuple[Callable[[Column], Column], bool]
"""From a column to a column, and whether it has a value for every value."""

_SPACES = "".join(map(chr, range(33))) + "\x7f"
_REAL = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?[dDfF]?", re.ASCII)
_INFINITE = re.compile(r"([+-]?)(?:inf|infinity)")
_TRUE = ("t", "true", "y", "yes", "1")
_FALSE = ("f", "false", "n", "no", "0")


def cast(value: Value, to: pa.DataType, text: str) -> Value:
    """`CAST(value AS to)`. Raises `UnsupportedError` for pairs that are not exact here."""
    if value.type == to:
        return value
    if pa.types.is_null(value.type):
        return constant(pa.scalar(None, to), text)
    kernel, is_total = _kernel(value, to, text)
    return derived(to, text, kernel, value, is_total=is_total)


def coerce(value: Value, to: pa.DataType) -> Value:
    """An implicit cast; it keeps the value's text."""
    return cast(value, to, value.text)


def _kernel(value: Value, to: pa.DataType, text: str) -> Kernel:
    of = value.type
    for is_of, kernel in (
        (pa.types.is_integer, _from_integer),
        (pa.types.is_floating, _from_float),
        (pa.types.is_decimal, _from_decimal),
        (pa.types.is_boolean, _from_boolean),
        (pa.types.is_timestamp, _from_timestamp),
        (pa.types.is_date, _from_date),
        (pa.types.is_binary, _from_binary),
    ):
        if is_of(of):
            found = kernel(of, to)
            if found is not None:
                return found
    if is_nested(of):
        found = _from_nested(value, to, text)
        if found is not None:
            return found
    if pa.types.is_string(of):
        found = _from_string(value, to)
        if found is not None:
            return found
    raise UnsupportedError(f"{text}: {name_of(of)} AS {name_of(to)} is not supported")


# -- numbers ------------------------------------------------------------------------------------


def _from_integer(of: pa.DataType, to: pa.DataType) -> Kernel | None:
    if pa.types.is_integer(to):
        return (lambda column: column.cast(to)), to.bit_width >= of.bit_width
    if pa.types.is_floating(to):
        return (lambda column: integer_to_float(column, to)), True
    if pa.types.is_decimal(to):
        wide = as_decimal(of)
        is_total = to.precision - to.scale >= wide.precision
        return (lambda column: _checked(column.cast(wide), to)), is_total
    if pa.types.is_string(to):
        return (lambda column: column.cast(to)), True
    if pa.types.is_boolean(to):
        return (lambda column: pc.not_equal(column, pa.scalar(0, of))), True
    return None


def integer_to_float(column: Column, to: pa.DataType) -> Column:
    """Rounded to the nearest, as Java does."""
    if isinstance(column, pa.Scalar):
        return column.cast(to, safe=False)
    return pc.cast(column, to, safe=False)


def _from_float(of: pa.DataType, to: pa.DataType) -> Kernel | None:
    if pa.types.is_floating(to):
        return (lambda column: column.cast(to)), True
    if pa.types.is_integer(to):
        high = float(2 ** (to.bit_width - 1))

        def truncated(column: Column) -> Column:
            whole = pc.trunc(column.cast(pa.float64()))
            fits = pc.and_(pc.greater_equal(whole, -high), pc.less(whole, high))
            if not _all(fits):
                raise EvaluationError(f"a value does not fit {name_of(to)}")
            return whole.cast(to)

        return truncated, False
    if pa.types.is_boolean(to):
        return (lambda column: pc.not_equal(column, pa.scalar(0.0, of))), True
    return None


def _all(column: Column) -> bool:
    if isinstance(column, pa.Scalar):
        return column.as_py() is not False
    return pc.all(column).as_py() is not False


def _from_decimal(of: pa.DataType, to: pa.DataType) -> Kernel | None:
    if pa.types.is_decimal(to):
        digits = to.precision - to.scale - (to.scale < of.scale)
        return (lambda column: rescaled(column, to)), digits >= of.precision - of.scale
    if pa.types.is_integer(to):
        whole = pa.decimal128(of.precision, 0)

        def truncated(column: Column) -> Column:
            return _cast_unsafe(pc.trunc(column), whole).cast(to)

        return truncated, False
    if to == pa.float64():
        return per_distinct(float, to), True
    if to == pa.float32():
        return per_distinct(lambda number: nearest_float32(Fraction(number)), to), True
    if pa.types.is_string(to):
        return per_distinct(lambda number: f"{number:f}", to), True
    if pa.types.is_boolean(to):
        zero = pa.scalar(decimal.Decimal(0), of)
        return (lambda column: pc.not_equal(column, zero)), True
    return None


def _cast_unsafe(column: Column, to: pa.DataType) -> Column:
    return (
        column.cast(to, safe=False)
        if isinstance(column, pa.Scalar)
        else pc.cast(column, to, safe=False)
    )


def rescaled(column: Column, to: pa.DataType) -> Column:
    """A decimal with another scale, halves away from zero; too many digits are an error."""
    of = column.type
    if to.scale < of.scale:
        wide = column.cast(pa.decimal256(76, of.scale))
        column = pc.round(wide, ndigits=to.scale, round_mode="half_towards_infinity")
    return _checked(column, to)


def _checked(column: Column, to: pa.DataType) -> Column:
    """A decimal of another type.

    Arrow looks at the digits only while it narrows 256 bits: needed where they may be too many.
    """
    room = to.precision - to.scale + column.type.scale
    if room >= column.type.precision:
        return column.cast(to)
    if room < 1:
        # Nothing but zero fits.
        zero = pa.scalar(decimal.Decimal(0), column.type)
        if not _all(pc.equal(column, zero)):
            raise EvaluationError(f"a value does not fit {name_of(to)}")
    return column.cast(pa.decimal256(76, column.type.scale)).cast(to)


def nearest_float32(exact: Fraction) -> float:
    """The float nearest to a number; of two, the one with an even last bit."""
    with np.errstate(over="ignore"):
        guess = np.float32(float(exact)) if abs(exact) < Fraction(10) ** 40 else np.float32(0)
    if abs(exact) >= Fraction(2) ** 128 or not np.isfinite(guess):
        edge = Fraction(2) ** 128 - Fraction(2) ** 103  # Halfway to what would be 2^128.
        sign = 1 if exact > 0 else -1
        return sign * (float("inf") if abs(exact) >= edge else float(np.finfo(np.float32).max))
    below, above = np.nextafter(guess, np.float32("-inf")), np.nextafter(guess, np.float32("inf"))
    near = [each for each in (guess, below, above) if np.isfinite(each)]
    return float(
        min(near, key=lambda f: (abs(Fraction(float(f)) - exact), int(f.view(np.int32)) & 1))
    )


def _from_boolean(of: pa.DataType, to: pa.DataType) -> Kernel | None:
    if pa.types.is_integer(to) or pa.types.is_string(to):
        return (lambda column: column.cast(to)), True
    if pa.types.is_floating(to):
        return (lambda column: column.cast(pa.int8()).cast(to)), True
    if pa.types.is_decimal(to):
        return (lambda column: _checked(column.cast(pa.int8()).cast(pa.decimal128(3, 0)), to)), (
            to.precision > to.scale
        )
    return None


# -- time ---------------------------------------------------------------------------------------


def _from_timestamp(of: pa.DataType, to: pa.DataType) -> Kernel | None:
    if pa.types.is_date(to):
        return date_of, True
    if pa.types.is_string(to):
        return moments.timestamp_to_text, True
    if pa.types.is_timestamp(to):
        return (lambda column: timestamps(column.cast(pa.int64()), to)), True
    if pa.types.is_integer(to) and of == TIMESTAMP:
        return (lambda column: seconds_of(column).cast(to)), to == pa.int64()
    return None


def _from_date(of: pa.DataType, to: pa.DataType) -> Kernel | None:
    if pa.types.is_timestamp(to):
        return (lambda column: date_to_timestamp(column, to)), False
    if pa.types.is_string(to):
        return moments.date_to_text, True
    return None


def date_of(column: Column) -> Column:
    """The day of a timestamp, also before 1970."""
    return divided_down(column.cast(pa.int64()), moments.DAY_US).cast(pa.int32()).cast(pa.date32())


def seconds_of(column: Column) -> Column:
    """Whole seconds since 1970, rounded down."""
    return divided_down(column.cast(pa.int64()), 1_000_000)


def divided_down(numbers: Column, by: int) -> Column:
    """Whole numbers divided by a positive one and rounded down, also below zero."""
    quotient = pc.divide(numbers, by)
    remainder = pc.subtract(numbers, pc.multiply(quotient, by))
    return pc.if_else(pc.less(remainder, 0), pc.subtract(quotient, 1), quotient)


def date_to_timestamp(column: Column, to: pa.DataType = TIMESTAMP) -> Column:
    """Midnight, in UTC."""
    days = column.cast(pa.int32()).cast(pa.int64())
    return timestamps(pc.multiply_checked(days, moments.DAY_US), to)


def timestamps(micros: Column, to: pa.DataType = TIMESTAMP) -> Column:
    """Microseconds since 1970 as timestamps, with a zone or without one."""
    return micros.cast(pa.timestamp("us")).cast(to)


# -- bytes, and what is nested ------------------------------------------------------------------


def _from_binary(of: pa.DataType, to: pa.DataType) -> Kernel | None:
    if pa.types.is_string(to):
        return per_distinct(_decoded, to), False
    return None


def _decoded(value: bytes) -> str:
    """Arrow's strings are UTF-8; Spark's may be any bytes, which no stream here can carry."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise EvaluationError("bytes that are no UTF-8 as STRING") from None


def _from_nested(value: Value, to: pa.DataType, text: str) -> Kernel | None:
    """Each part by its own cast; None where the two are not nested alike."""
    of = value.type
    if pa.types.is_list(of) and pa.types.is_list(to):
        (one,), is_total = _part_kernels([(of.value_type, to.value_type)], text)

        def elements(column: pa.Array) -> pa.Array:
            parts = parts_of(column)
            return arrays_from(parts.lengths, parts.valid, one(parts.values))

        return per_array(elements), is_total
    if pa.types.is_map(of) and pa.types.is_map(to):
        pairs = [(of.key_type, to.key_type), (of.item_type, to.item_type)]
        (key, item), is_total = _part_kernels(pairs, text)

        def entries(column: pa.Array) -> pa.Array:
            parts = parts_of(column)
            keys, items = parts.values.flatten()
            return maps_from(parts.lengths, parts.valid, key(keys), item(items))

        return per_array(entries), is_total
    if pa.types.is_struct(of) and pa.types.is_struct(to) and of.num_fields == to.num_fields:
        pairs = [(before.type, after.type) for before, after in zip(of, to, strict=True)]
        kernels, is_total = _part_kernels(pairs, text)

        def fields(column: pa.StructArray) -> pa.Array:
            parts = [one(part) for one, part in zip(kernels, column.flatten(), strict=True)]
            return pa.StructArray.from_arrays(parts, fields=list(to), mask=column.is_null())

        return per_array(fields), is_total
    return None


def _nulls(of: pa.DataType) -> Callable[[pa.Array], pa.Array]:
    return lambda column: pa.nulls(len(column), of)


def _part_kernels(
    pairs: list[tuple[pa.DataType, pa.DataType]], text: str
) -> tuple[list[Callable[[pa.Array], pa.Array]], bool]:
    """A cast for each pair of types, and whether all of them are total."""
    kernels: list[Callable[[pa.Array], pa.Array]] = []
    all_total = True
    for of, to in pairs:
        if of == to:
            kernels.append(lambda column: column)
        elif pa.types.is_null(of):
            kernels.append(_nulls(to))
        else:
            part = Value(of, lambda batch: batch.column(0), True, text)
            kernel, is_total = _kernel(part, to, text)
            kernels.append(kernel)
            all_total = all_total and is_total
    return kernels, all_total


# -- text ---------------------------------------------------------------------------------------


def _from_string(value: Value, to: pa.DataType) -> Kernel | None:
    if pa.types.is_integer(to):
        return per_distinct(lambda text: _integer(text, to), to), False
    if pa.types.is_decimal(to):
        return per_distinct(lambda text: _decimal(text, to), to), False
    if pa.types.is_floating(to):
        return per_distinct(lambda text: _real(text, to), to), False
    if pa.types.is_boolean(to):
        return per_distinct(_boolean, to), False
    if pa.types.is_date(to):
        days = per_distinct(moments.date_from, pa.int32())
        return (lambda column: days(column).cast(to)), False
    if pa.types.is_timestamp(to):
        read = functools.partial(moments.timestamp_from, is_local=to != TIMESTAMP)
        micros = per_distinct(read, pa.int64())
        return (lambda column: timestamps(micros(column), to)), False
    if pa.types.is_binary(to):
        return (lambda column: column.cast(to)), True
    return None


def _integer(text: str, to: pa.DataType) -> int:
    digits = text.strip(_SPACES)
    bare = digits[1:] if digits[:1] in ("+", "-") else digits
    if not (bare.isascii() and bare.isdigit()):
        raise EvaluationError(f"{text!r} is no {name_of(to)}")
    significant = bare.lstrip("0") or "0"
    number = int(significant) if len(significant) < 30 else 2**80
    number = -number if digits[0] == "-" else number
    if not -(2 ** (to.bit_width - 1)) <= number < 2 ** (to.bit_width - 1):
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


def _real(text: str, to: pa.DataType) -> float:
    plain = text.strip(_SPACES)
    if _REAL.fullmatch(plain):
        number = plain.rstrip("dDfF")
        if to == pa.float64() or "e" in number.lower():
            return float(number) if to == pa.float64() else _small(number)
        return nearest_float32(Fraction(number))
    infinite = _INFINITE.fullmatch(plain.lower())
    if infinite:
        return float(f"{infinite[1]}inf")
    if plain.lower() == "nan":
        return float("nan")
    raise EvaluationError(f"{text!r} is no {name_of(to)}")


def _small(number: str) -> float:
    double = float(number)
    if double == 0 or abs(double) > 1e40:
        return double
    return nearest_float32(Fraction(number))


def _boolean(text: str) -> bool:
    word = text.strip(_SPACES).lower()
    if word in _TRUE or word in _FALSE:
        return word in _TRUE
    raise EvaluationError(f"{text!r} is no BOOLEAN")


def tried(value: Value, to: pa.DataType, text: str) -> Value:
    """`TRY_CAST(value AS to)`: null where CAST fails. Raises `UnsupportedError` as `cast`."""
    if value.type == to or pa.types.is_null(value.type):
        return cast(value, to, text)
    if pa.types.is_string(value.type) and pa.types.is_timestamp(to) and not value.is_fixed:
        # A time without a date has a value in Spark, which would be null here.
        raise UnsupportedError(f"{text}: TRY_CAST of a text column to TIMESTAMP is not supported")
    kernel, is_total = _kernel(value, to, text)

    def one(scalar: pa.Scalar) -> pa.Scalar:
        try:
            return kernel(scalar)
        except (pa.ArrowInvalid, EvaluationError):
            return pa.scalar(None, to)

    def attempt(column: Column) -> Column:
        if isinstance(column, pa.Scalar):
            return one(column)
        try:
            return kernel(column)
        except (pa.ArrowInvalid, EvaluationError):
            scalars = [one(scalar) for scalar in column]
            return pa.concat_arrays([pa.repeat(scalar, 1) for scalar in scalars])

    return derived(to, text, kernel if is_total else attempt, value)
