"""Parts of dates and timestamps by name, and timestamps made of parts; in UTC."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.api.expressions import calendar, moments, time_functions
from holdfast.api.expressions.casts import coerce, divided_down
from holdfast.api.expressions.signatures import (
    Build,
    Function,
    date,
    fixed,
    integer,
    kernel,
    rows,
    string,
    timestamp,
)
from holdfast.api.expressions.types import TIMESTAMP, TIMESTAMP_NTZ
from holdfast.api.expressions.values import Column, EvaluationError, Value, derived
from holdfast.errors import DataflowError, UnsupportedError

_SECONDS = pa.decimal128(16, 6)
_MINUTE_US = 60_000_000
_YEARS = 999_999_999
"""Java's last year, and first."""


def _year_of_week(days: calendar.Numbers) -> calendar.Numbers:
    """The year in which the Thursday of the week lies."""
    return calendar.year(days - calendar.weekday(days) + 3)


def _day_of_week_iso(days: calendar.Numbers) -> calendar.Numbers:
    return calendar.weekday(days) + 1


def _seconds(column: Column) -> Column:
    """With their fraction."""
    micros = column.cast(pa.int64())
    minutes = divided_down(micros, _MINUTE_US)
    rest = pc.subtract(micros, pc.multiply(minutes, _MINUTE_US))
    wide = rest.cast(pa.decimal128(19, 0))
    millionth = pa.scalar(Decimal("0.000001"), pa.decimal128(7, 6))
    return pc.multiply(wide, millionth).cast(pa.decimal128(8, 6))


_SECOND: Build = kernel(pa.decimal128(8, 6), _seconds, timestamp)
_OF_DAYS: dict[str, Callable[[calendar.Numbers], calendar.Numbers]] = {
    **dict.fromkeys(("year", "y", "years", "yr", "yrs"), calendar.year),
    "yearofweek": _year_of_week,
    **dict.fromkeys(("quarter", "qtr"), calendar.quarter),
    **dict.fromkeys(("month", "mon", "mons", "months"), calendar.month),
    **dict.fromkeys(("week", "w", "weeks"), calendar.week_of_year),
    **dict.fromkeys(("day", "d", "days"), calendar.day),
    **dict.fromkeys(("dayofweek", "dow"), calendar.day_of_week),
    **dict.fromkeys(("dayofweek_iso", "dow_iso"), _day_of_week_iso),
    "doy": calendar.day_of_year,
}
_PARTS: dict[str, Build] = {
    **{name: time_functions.of_day(field) for name, field in _OF_DAYS.items()},
    **dict.fromkeys(("hour", "h", "hours", "hr", "hrs"), time_functions.of_time(3_600_000_000, 24)),
    **dict.fromkeys(
        ("minute", "m", "min", "mins", "minutes"), time_functions.of_time(_MINUTE_US, 60)
    ),
    **dict.fromkeys(("second", "s", "sec", "seconds", "secs"), _SECOND),
}


def _date_part(args: Sequence[Value], text: str) -> Value:
    given = fixed(string(args[0], text), text)
    part = None if given is None else _PARTS.get(given.lower())
    if part is None:
        raise UnsupportedError(f"{text}: parts are {', '.join(_PARTS)}")
    return part([_moment(args[1], text)], text)


def _extracted(part: Build) -> Function:
    return Function(lambda args, text: part([_moment(args[0], text)], text), 1, 1)


def _moment(value: Value, text: str) -> Value:
    """A date or timestamp; text is taken for a timestamp."""
    if pa.types.is_duration(value.type):
        raise UnsupportedError(f"{text}: parts of intervals")
    if pa.types.is_date(value.type) or pa.types.is_timestamp(value.type):
        return value
    return timestamp(value, text)


_WEEKDAYS = ("MONDAY", "TUESDAY", "WEDNESDAY", "THURSDAY", "FRIDAY", "SATURDAY", "SUNDAY")
_BY_NAME = {
    name: at
    for at, day in enumerate(_WEEKDAYS)
    for name in (day, day[:2], day[:3])
}  # fmt: skip


def _next_day(args: Sequence[Value], text: str) -> Value:
    name = fixed(string(args[1], text), text)
    wanted = None if name is None else _BY_NAME.get(name.upper())
    if wanted is None:
        raise DataflowError(f"{text}: {args[1].text} is no day of the week")

    def later(days: calendar.Numbers) -> calendar.Numbers:
        return days + 1 + (wanted - 1 - calendar.weekday(days)) % 7

    next_day = kernel(pa.date32(), calendar.dates(later), date, is_total=False)
    return next_day(args[:1], text)


def _try_micros(
    year: int, month: int, day: int, hour: int, minute: int, second: Decimal
) -> int | None:
    """Null for a time that there is not; one that is too far away is an error, as in Spark."""
    days = moments.days_of(year, month, day) if abs(year) <= _YEARS else None
    micros = int(second.scaleb(6))
    is_time = 0 <= hour < 24 and 0 <= minute < 60 and 0 <= micros <= _MINUTE_US
    if days is None or not is_time:
        return None
    made = ((days * 24 + hour) * 60 + minute) * _MINUTE_US + micros
    if not -(2**63) <= made < 2**63:
        raise EvaluationError(f"year {year} is too far away")
    return made


def _micros(year: int, month: int, day: int, hour: int, minute: int, second: Decimal) -> int:
    made = _try_micros(year, month, day, hour, minute, second)
    if made is None:
        raise EvaluationError(f"there is no time {year}-{month}-{day} {hour}:{minute}:{second}")
    return made


def _second(value: Value, text: str) -> Value:
    if not (pa.types.is_integer(value.type) or pa.types.is_decimal(value.type)):
        raise UnsupportedError(f"{text}: seconds are whole numbers or decimals here")
    if pa.types.is_decimal(value.type) and (value.type.scale > 6 or value.type.precision > 16):
        raise UnsupportedError(f"{text}: seconds are at most DECIMAL(16,6) here")
    return coerce(value, _SECONDS)


def _made(of: pa.DataType, *, is_tried: bool) -> Function:
    micros = rows(
        pa.int64(),
        _try_micros if is_tried else _micros,
        *(integer,) * 5,
        _second,
        is_total=False,
    )

    def build(args: Sequence[Value], text: str) -> Value:
        made = micros(args, text)
        return derived(of, text, lambda c: c.cast(pa.timestamp("us")).cast(of), made)

    return Function(build, 6, 6)


FUNCTIONS: dict[str, Function] = {
    **{f"extract {name}": _extracted(part) for name, part in _PARTS.items()},
    "date_part": Function(_date_part, 2, 2),
    "datepart": Function(_date_part, 2, 2),
    "make_timestamp": _made(TIMESTAMP, is_tried=False),
    "make_timestamp_ltz": _made(TIMESTAMP, is_tried=False),
    "make_timestamp_ntz": _made(TIMESTAMP_NTZ, is_tried=False),
    "next_day": Function(_next_day, 2, 2),
    "try_make_timestamp": _made(TIMESTAMP, is_tried=True),
    "try_make_timestamp_ltz": _made(TIMESTAMP, is_tried=True),
    "try_make_timestamp_ntz": _made(TIMESTAMP_NTZ, is_tried=True),
}
