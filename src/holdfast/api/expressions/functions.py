"""The functions, each with its arity and what it means; what is not here is refused."""

from __future__ import annotations

import decimal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.api.errors import DataflowError, UnsupportedError
from holdfast.api.expressions import arithmetic, logic
from holdfast.api.expressions.casts import cast, date_of, rescaled
from holdfast.api.expressions.types import TIMESTAMP, coerce, is_number, name_of
from holdfast.api.expressions.values import Column, Value, derived, per_distinct

Build = Callable[[Sequence[Value], str], Value]
_ANY = 64


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


def known(name: str) -> Function:
    """The function of this name. Raises `UnsupportedError` for an unknown one."""
    function = FUNCTIONS.get(name.lower())
    if function is None:
        raise UnsupportedError(
            f"function {name.lower()} is not supported; there are {', '.join(sorted(FUNCTIONS))}"
        )
    return function


def call(name: str, arguments: Sequence[Value], text: str) -> Value:
    """A function call. Raises `DataflowError` when the arguments do not fit."""
    function = known(name)
    if not function.low <= len(arguments) <= function.high:
        count = (
            f"{function.low} to {function.high}" if function.low < function.high else function.low
        )
        raise DataflowError(f"{text}: {name.lower()} takes {count} arguments, not {len(arguments)}")
    return function.build(arguments, text)


# -- arguments ----------------------------------------------------------------------------------


def _string(value: Value, text: str) -> Value:
    if pa.types.is_string(value.type):
        return value
    if pa.types.is_null(value.type):
        return coerce(value, pa.string())
    if pa.types.is_integer(value.type) or pa.types.is_boolean(value.type):
        return cast(value, pa.string(), value.text)
    raise DataflowError(f"{text}: {value.text} is {name_of(value.type)}, not STRING")


def _whole(value: Value, text: str) -> Value:
    if not (pa.types.is_integer(value.type) or pa.types.is_null(value.type)):
        raise DataflowError(f"{text}: {value.text} is {name_of(value.type)}, not a whole number")
    return value


def _number(value: Value, text: str) -> Value:
    if pa.types.is_null(value.type):
        return coerce(value, pa.float64())
    if not is_number(value.type):
        raise DataflowError(f"{text}: {value.text} is {name_of(value.type)}, no number")
    return value


def _timestamp(value: Value, text: str) -> Value:
    if pa.types.is_timestamp(value.type):
        return value
    if pa.types.is_date(value.type) or pa.types.is_null(value.type):
        return coerce(value, TIMESTAMP)
    raise DataflowError(f"{text}: {value.text} is {name_of(value.type)}, not TIMESTAMP")


def _date(value: Value, text: str) -> Value:
    if pa.types.is_null(value.type):
        return coerce(value, pa.date32())
    if pa.types.is_timestamp(value.type) or pa.types.is_date(value.type):
        return cast(value, pa.date32(), value.text)
    raise DataflowError(f"{text}: {value.text} is {name_of(value.type)}, not DATE")


def _fixed(value: Value, text: str) -> Any:
    """The Python value of an argument that must be a literal."""
    if value.literal is None or not value.literal.is_valid:
        raise UnsupportedError(f"{text}: {value.text} must be a literal here")
    return value.literal.as_py()


# -- strings ------------------------------------------------------------------------------------


def _on_text(kernel: Callable[[Column], Column], of: pa.DataType) -> Build:
    return lambda args, text: derived(of, text, kernel, _string(args[0], text))


def _cased(ascii_kernel: Callable[..., Column], full: Callable[[str], str]) -> Build:
    """Arrow's case mapping is quick and right for ASCII; Python's is full Unicode, as ICU's."""
    slow = per_distinct(full, pa.string())

    def kernel(column: Column) -> Column:
        is_ascii = pc.equal(pc.binary_length(column), pc.utf8_length(column))
        if isinstance(is_ascii, pa.Scalar):
            return slow(column)
        return ascii_kernel(column) if pc.all(is_ascii).as_py() is not False else slow(column)

    return _on_text(kernel, pa.string())


def _concat(args: Sequence[Value], text: str) -> Value:
    strings = [_string(arg, text) for arg in args]
    return derived(
        pa.string(), text, lambda *columns: pc.binary_join_element_wise(*columns, ""), *strings
    )


def _sliced(column: Column, start: int, length: int | None) -> Column:
    """From a position that counts from 1, or from the end if it is negative."""
    if length is not None and length <= 0:
        return pc.utf8_slice_codeunits(column, 0, 0)
    begin = start - 1 if start > 0 else start
    if length is None:
        return pc.utf8_slice_codeunits(column, begin)
    end = begin + length
    if begin < 0 <= end:
        return pc.utf8_slice_codeunits(column, begin)
    return pc.utf8_slice_codeunits(column, begin, end)


def _substring(args: Sequence[Value], text: str) -> Value:
    start = _fixed(_whole(args[1], text), text)
    length = _fixed(_whole(args[2], text), text) if len(args) == 3 else None
    return derived(pa.string(), text, lambda c: _sliced(c, start, length), _string(args[0], text))


def _left(args: Sequence[Value], text: str) -> Value:
    length = _fixed(_whole(args[1], text), text)
    return derived(pa.string(), text, lambda c: _sliced(c, 1, length), _string(args[0], text))


def _right(args: Sequence[Value], text: str) -> Value:
    length = max(0, _fixed(_whole(args[1], text), text))

    def kernel(column: Column) -> Column:
        return _sliced(column, -length, None) if length else _sliced(column, 1, 0)

    return derived(pa.string(), text, kernel, _string(args[0], text))


def _matched(kernel: Callable[..., Column]) -> Build:
    def build(args: Sequence[Value], text: str) -> Value:
        pattern = _fixed(_string(args[1], text), text)
        return derived(
            pa.bool_(), text, lambda c: kernel(c, pattern=pattern), _string(args[0], text)
        )

    return build


def _replace(args: Sequence[Value], text: str) -> Value:
    search = _fixed(_string(args[1], text), text)
    replacement = _fixed(_string(args[2], text), text) if len(args) == 3 else ""

    def kernel(column: Column) -> Column:
        if not search:
            return column
        return pc.replace_substring(column, pattern=search, replacement=replacement)

    return derived(pa.string(), text, kernel, _string(args[0], text))


def _repeated(args: Sequence[Value], text: str) -> Value:
    times = max(0, _fixed(_whole(args[1], text), text))
    return derived(pa.string(), text, lambda c: pc.binary_repeat(c, times), _string(args[0], text))


def _padded(is_left: bool) -> Build:
    def build(args: Sequence[Value], text: str) -> Value:
        width: int = max(0, _fixed(_whole(args[1], text), text))
        fill: str = _fixed(_string(args[2], text), text) if len(args) == 3 else " "

        def pad(value: str) -> str:
            room = width - len(value)
            if room <= 0 or not fill:
                return value[:width]
            padding = (fill * (room // len(fill) + 1))[:room]
            return padding + value if is_left else value + padding

        kernel = per_distinct(pad, pa.string())
        return derived(pa.string(), text, kernel, _string(args[0], text))

    return build


def _position(string: Value, part: Value, text: str) -> Value:
    search = _fixed(_string(part, text), text)
    kernel = per_distinct(lambda value: value.find(search) + 1, pa.int32())
    return derived(pa.int32(), text, kernel, _string(string, text))


# -- numbers ------------------------------------------------------------------------------------


def _abs(args: Sequence[Value], text: str) -> Value:
    value = _number(args[0], text)
    return derived(
        value.type, text, pc.abs_checked, value, is_total=not pa.types.is_integer(value.type)
    )


def _sign(args: Sequence[Value], text: str) -> Value:
    value = coerce(_number(args[0], text), pa.float64())

    def kernel(column: Column) -> Column:
        return pc.if_else(pc.equal(column, 0.0), column, pc.sign(column).cast(pa.float64()))

    return derived(pa.float64(), text, kernel, value)


def _stepped(kernel: Callable[..., Column]) -> Build:
    """`floor` and `ceil`: whole numbers; a double beyond BIGINT is an error."""

    def build(args: Sequence[Value], text: str) -> Value:
        value = _number(args[0], text)
        if pa.types.is_decimal(value.type):
            of = pa.decimal128(value.type.precision - value.type.scale + 1, 0)
            wide = pa.decimal256(value.type.precision + 1, value.type.scale)
            return derived(of, text, lambda c: kernel(c.cast(wide)).cast(of), value)
        if pa.types.is_integer(value.type):
            return coerce(value, pa.int64())
        stepped = derived(pa.float64(), text, lambda c: kernel(_zero_for_nan(c)), value)
        return cast(stepped, pa.int64(), text)

    return build


def _zero_for_nan(column: Column) -> Column:
    """Unlike its CAST, Spark's floor of NaN is 0."""
    doubles = column.cast(pa.float64())
    return pc.if_else(pc.is_nan(doubles), 0.0, doubles)


def _round(args: Sequence[Value], text: str) -> Value:
    """Halves away from zero."""
    value = _number(args[0], text)
    digits = _fixed(_whole(args[1], text), text) if len(args) == 2 else 0
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
    step = decimal.Decimal(1).scaleb(-digits)

    def to_step(number: float) -> float:
        if not np.isfinite(number):
            return number
        with decimal.localcontext(prec=400, rounding=decimal.ROUND_HALF_UP):
            return float(decimal.Decimal(repr(number)).quantize(step))

    return derived(value.type, text, per_distinct(to_step, pa.float64()), value)


def _square_root(args: Sequence[Value], text: str) -> Value:
    value = coerce(_number(args[0], text), pa.float64())
    return derived(pa.float64(), text, pc.sqrt, value)


# -- time ---------------------------------------------------------------------------------------

_UNITS = {
    "year": "year",
    "yyyy": "year",
    "quarter": "quarter",
    "month": "month",
    "mon": "month",
    "week": "week",
    "day": "day",
    "dd": "day",
    "hour": "hour",
    "minute": "minute",
    "second": "second",
    "millisecond": "millisecond",
    "microsecond": "microsecond",
}


def _field(kernel: Callable[..., Column], shift: int = 0) -> Build:
    """A whole number from a timestamp or date."""

    def build(args: Sequence[Value], text: str) -> Value:
        def field(column: Column) -> Column:
            number = kernel(column).cast(pa.int32())
            return pc.add(number, shift) if shift else number

        return derived(pa.int32(), text, field, _timestamp(args[0], text))

    return build


def _day_of_week(column: Column) -> Column:
    return pc.day_of_week(column, count_from_zero=False, week_start=7)


def _date_trunc(args: Sequence[Value], text: str) -> Value:
    unit = _UNITS.get(str(_fixed(_string(args[0], text), text)).lower())
    if unit is None:
        raise UnsupportedError(f"{text}: units are {', '.join(_UNITS)}")
    return derived(
        TIMESTAMP,
        text,
        lambda c: pc.floor_temporal(c, unit=unit, week_starts_monday=True),
        _timestamp(args[1], text),
    )


def _trunc(args: Sequence[Value], text: str) -> Value:
    unit = _UNITS.get(str(_fixed(_string(args[1], text), text)).lower())
    if unit not in ("year", "quarter", "month", "week"):
        raise UnsupportedError(f"{text}: units of trunc are year, quarter, month, week")

    def kernel(column: Column) -> Column:
        return date_of(pc.floor_temporal(column, unit=unit, week_starts_monday=True))

    return derived(pa.date32(), text, kernel, coerce(_date(args[0], text), TIMESTAMP))


def _days(value: Value, text: str) -> Value:
    return derived(pa.int32(), text, lambda c: c.cast(pa.int32()), _date(value, text))


def _date_shifted(symbol: str) -> Build:
    def build(args: Sequence[Value], text: str) -> Value:
        count = coerce(_whole(args[1], text), pa.int32())
        days = arithmetic.binary(symbol, _days(args[0], text), count, text)
        return derived(pa.date32(), text, lambda c: c.cast(pa.date32()), days)

    return build


def _date_difference(args: Sequence[Value], text: str) -> Value:
    return arithmetic.binary("-", _days(args[0], text), _days(args[1], text), text)


def _since_epoch(unit_us: int) -> Build:
    def build(args: Sequence[Value], text: str) -> Value:
        def kernel(column: Column) -> Column:
            micros = column.cast(pa.int64())
            # Rounding down, also before 1970.
            down = pc.if_else(pc.less(micros, 0), pc.add(pc.subtract(micros, unit_us), 1), micros)
            return pc.divide(down, unit_us) if unit_us > 1 else micros

        return derived(pa.int64(), text, kernel, _timestamp(args[0], text), is_total=unit_us == 1)

    return build


def _from_epoch(unit_us: int) -> Build:
    def build(args: Sequence[Value], text: str) -> Value:
        def kernel(column: Column) -> Column:
            micros = pc.multiply_checked(column.cast(pa.int64()), unit_us)
            return micros.cast(pa.timestamp("us")).cast(TIMESTAMP)

        return derived(TIMESTAMP, text, kernel, _whole(args[0], text), is_total=False)

    return build


# -- choices ------------------------------------------------------------------------------------


def _if(args: Sequence[Value], text: str) -> Value:
    return logic.chosen([(args[0], args[1])], args[2], text)


def _nvl2(args: Sequence[Value], text: str) -> Value:
    condition = logic.inverted(logic.is_null(args[0], text), text)
    return logic.chosen([(condition, args[1])], args[2], text)


def _coalesce(args: Sequence[Value], text: str) -> Value:
    return logic.first_valid(args, text)


def _is_nan(args: Sequence[Value], text: str) -> Value:
    value = coerce(_number(args[0], text), pa.float64())
    return derived(pa.bool_(), text, lambda c: pc.fill_null(pc.is_nan(c), False), value)


def _operator(symbol: str) -> Build:
    return lambda args, text: arithmetic.binary(symbol, args[0], args[1], text)


FUNCTIONS: dict[str, Function] = {
    "abs": Function(_abs, 1, 1),
    "ceil": Function(_stepped(pc.ceil), 1, 1),
    "ceiling": Function(_stepped(pc.ceil), 1, 1),
    "char_length": Function(_on_text(pc.utf8_length, pa.int32()), 1, 1),
    "coalesce": Function(_coalesce, 1, _ANY),
    "concat": Function(_concat, 1, _ANY),
    "contains": Function(_matched(pc.match_substring), 2, 2),
    "date_add": Function(_date_shifted("+"), 2, 2),
    "date_sub": Function(_date_shifted("-"), 2, 2),
    "date_trunc": Function(_date_trunc, 2, 2),
    "datediff": Function(_date_difference, 2, 2),
    "day": Function(_field(pc.day), 1, 1),
    "dayofmonth": Function(_field(pc.day), 1, 1),
    "dayofweek": Function(_field(_day_of_week), 1, 1),
    "dayofyear": Function(_field(pc.day_of_year), 1, 1),
    "endswith": Function(_matched(pc.ends_with), 2, 2),
    "floor": Function(_stepped(pc.floor), 1, 1),
    "greatest": Function(lambda args, text: logic.extreme(args, ">", text), 2, _ANY),
    "hour": Function(_field(pc.hour), 1, 1),
    "if": Function(_if, 3, 3),
    "ifnull": Function(_coalesce, 2, 2),
    "instr": Function(lambda args, text: _position(args[0], args[1], text), 2, 2),
    "isnan": Function(_is_nan, 1, 1),
    "isnotnull": Function(
        lambda args, text: logic.inverted(logic.is_null(args[0], text), text), 1, 1
    ),
    "isnull": Function(lambda args, text: logic.is_null(args[0], text), 1, 1),
    "least": Function(lambda args, text: logic.extreme(args, "<", text), 2, _ANY),
    "left": Function(_left, 2, 2),
    "length": Function(_on_text(pc.utf8_length, pa.int32()), 1, 1),
    "locate": Function(lambda args, text: _position(args[1], args[0], text), 2, 2),
    "lower": Function(_cased(pc.ascii_lower, str.lower), 1, 1),
    "lpad": Function(_padded(is_left=True), 2, 3),
    "ltrim": Function(_on_text(lambda c: pc.utf8_ltrim(c, characters=" "), pa.string()), 1, 1),
    "minute": Function(_field(pc.minute), 1, 1),
    "mod": Function(_operator("%"), 2, 2),
    "month": Function(_field(pc.month), 1, 1),
    "nullif": Function(lambda args, text: logic.null_if_equal(args[0], args[1], text), 2, 2),
    "nvl": Function(_coalesce, 2, 2),
    "nvl2": Function(_nvl2, 3, 3),
    "quarter": Function(_field(pc.quarter), 1, 1),
    "repeat": Function(_repeated, 2, 2),
    "replace": Function(_replace, 2, 3),
    "reverse": Function(_on_text(per_distinct(lambda s: s[::-1], pa.string()), pa.string()), 1, 1),
    "right": Function(_right, 2, 2),
    "round": Function(_round, 1, 2),
    "rpad": Function(_padded(is_left=False), 2, 3),
    "rtrim": Function(_on_text(lambda c: pc.utf8_rtrim(c, characters=" "), pa.string()), 1, 1),
    "second": Function(_field(pc.second), 1, 1),
    "sign": Function(_sign, 1, 1),
    "signum": Function(_sign, 1, 1),
    "sqrt": Function(_square_root, 1, 1),
    "startswith": Function(_matched(pc.starts_with), 2, 2),
    "substr": Function(_substring, 2, 3),
    "substring": Function(_substring, 2, 3),
    "timestamp_micros": Function(_from_epoch(1), 1, 1),
    "timestamp_millis": Function(_from_epoch(1_000), 1, 1),
    "timestamp_seconds": Function(_from_epoch(1_000_000), 1, 1),
    "to_date": Function(lambda args, text: _date(args[0], text), 1, 1),
    "trim": Function(_on_text(lambda c: pc.utf8_trim(c, characters=" "), pa.string()), 1, 1),
    "trunc": Function(_trunc, 2, 2),
    "unix_micros": Function(_since_epoch(1), 1, 1),
    "unix_millis": Function(_since_epoch(1_000), 1, 1),
    "unix_seconds": Function(_since_epoch(1_000_000), 1, 1),
    "upper": Function(_cased(pc.ascii_upper, str.upper), 1, 1),
    "weekday": Function(_field(pc.day_of_week), 1, 1),
    "weekofyear": Function(_field(pc.iso_week), 1, 1),
    "year": Function(_field(pc.year), 1, 1),
}
