"""What functions take: kinds of arguments, Spark's implicit casts to them, and rows of values.

In ANSI mode a function's argument is cast only where nothing can be lost: whole numbers to wider
ones and to fractions, anything but fractions to text, dates to timestamps and back. Text that is
known when the expression is compiled is read as whatever is wanted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from holdfast.api.expressions.casts import coerce
from holdfast.api.expressions.types import TIMESTAMP, is_number, is_time, name_of
from holdfast.api.expressions.values import Column, Value, derived, per_distinct, per_row
from holdfast.errors import DataflowError, UnsupportedError

Build = Callable[[Sequence[Value], str], Value]
ANY = 64
"""As many arguments as one likes."""


@dataclass(frozen=True, slots=True)
class Function:
    """A function.

    Attributes:
        build: From its arguments and its text.
        low: Fewest arguments.
        high: Most arguments.
    """

    build: Build
    low: int
    high: int


def _is_known_text(value: Value) -> bool:
    return pa.types.is_string(value.type) and value.is_fixed


def _wanted(value: Value, to: pa.DataType, text: str, *, fits: bool) -> Value:
    if value.type == to:
        return value
    if pa.types.is_null(value.type) or fits or _is_known_text(value):
        return coerce(value, to)
    raise DataflowError(f"{text}: {value.text} is {name_of(value.type)}, not {name_of(to)}")


def string(value: Value, text: str) -> Value:
    """As STRING."""
    return _wanted(value, pa.string(), text, fits=not pa.types.is_duration(value.type))


def integer(value: Value, text: str) -> Value:
    """As INT."""
    fits = pa.types.is_integer(value.type) and value.type.bit_width < 32
    return _wanted(value, pa.int32(), text, fits=fits)


def bigint(value: Value, text: str) -> Value:
    """As BIGINT."""
    return _wanted(value, pa.int64(), text, fits=pa.types.is_integer(value.type))


def double(value: Value, text: str) -> Value:
    """As DOUBLE."""
    return _wanted(value, pa.float64(), text, fits=is_number(value.type))


def number(value: Value, text: str) -> Value:
    """A number as it is; NULL and known text as DOUBLE."""
    return value if is_number(value.type) else double(value, text)


def timestamp(value: Value, text: str) -> Value:
    """As TIMESTAMP."""
    return _wanted(value, TIMESTAMP, text, fits=is_time(value.type))


def date(value: Value, text: str) -> Value:
    """As DATE."""
    return _wanted(value, pa.date32(), text, fits=is_time(value.type))


def same(value: Value, _: str) -> Value:
    """As it is."""
    return value


def fixed(value: Value, text: str) -> Any:
    """The Python value of an argument that must be known when the dataflow is built."""
    if value.constant is None:
        raise UnsupportedError(f"{text}: {value.text} must be a literal here")
    return value.constant.as_py()


Kind = Callable[[Value, str], Value]


def kernel(
    of: pa.DataType, compute: Callable[..., Column], *kinds: Kind, is_total: bool = True
) -> Build:
    """A function of columns of these kinds; nulls in, null out."""

    def build(args: Sequence[Value], text: str) -> Value:
        inputs = [kind(arg, text) for kind, arg in zip(kinds, args, strict=False)]
        return derived(of, text, compute, *inputs, is_total=is_total)

    return build


def rows(
    of: pa.DataType, compute: Callable[..., Any], *kinds: Kind, is_total: bool = True
) -> Build:
    """A function of Python values of these kinds, called where none of them is null.

    Computed once per distinct value if only the first argument is a column.
    """

    def columns(first: Column, *rest: Column) -> Column:
        if isinstance(first, pa.Scalar) or not all(isinstance(c, pa.Scalar) for c in rest):
            return per_row(compute, of)(first, *rest)
        others = [column.as_py() for column in rest]
        if None in others:
            return pa.nulls(len(first), of)
        if pa.types.is_floating(first.type):  # A dictionary would not tell 0.0 from -0.0.
            return per_row(compute, of)(first, *rest)
        return per_distinct(lambda value: compute(value, *others), of)(first)

    return kernel(of, columns, *kinds, is_total=is_total)
