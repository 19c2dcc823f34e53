"""Functions of dates and timestamps, in UTC."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.api.expressions import arithmetic, calendar, moments
from holdfast.api.expressions.casts import divided_down, timestamps
from holdfast.api.expressions.signatures import (
    Build,
    Function,
    bigint,
    date,
    fixed,
    integer,
    kernel,
    rows,
    same,
    string,
    timestamp,
)
from holdfast.api.expressions.types import TIMESTAMP
from holdfast.api.expressions.values import EvaluationError, Value, derived, per_distinct
from holdfast.errors import UnsupportedError

_UNITS = {
    **dict.fromkeys(("year", "yyyy", "yy"), "year"),
    "quarter": "quarter",
    **dict.fromkeys(("month", "mon", "mm"), "month"),
    "week": "week",
    **dict.fromkeys(("day", "dd"), "day"),
    "hour": "hour",
    "minute": "minute",
    "second": "second",
    "millisecond": "millisecond",
    "microsecond": "microsecond",
}


def of_day(field: Callable[[calendar.Numbers], calendar.Numbers]) -> Build:
    """A whole number from a date or timestamp."""

    def build(args: Sequence[Value], text: str) -> Value:
        (value,) = args
        if not pa.types.is_timestamp(value.type):
            value = date(value, text)
        return derived(pa.int32(), text, calendar.field_of_day(field), value)

    return build


def of_time(unit_us: int, count: int) -> Build:
    """A whole number from the time of day: how many units, up to a count."""
    return kernel(pa.int32(), calendar.field_of_time(unit_us, count), timestamp)


def _unit(value: Value, text: str) -> str:
    given = fixed(string(value, text), text)
    unit = None if given is None else _UNITS.get(given.lower())
    if unit is None:
        raise UnsupportedError(f"{text}: units are {', '.join(_UNITS)}")
    return unit


def _date_trunc(args: Sequence[Value], text: str) -> Value:
    beginning = calendar.time_beginning(_unit(args[0], text))
    return derived(TIMESTAMP, text, beginning, timestamp(args[1], text), is_total=False)


def _trunc(args: Sequence[Value], text: str) -> Value:
    unit = _unit(args[1], text)
    if unit not in ("year", "quarter", "month", "week"):
        raise UnsupportedError(f"{text}: units of trunc are year, quarter, month, week")
    beginning = calendar.date_beginning(unit)
    return derived(pa.date32(), text, beginning, date(args[0], text), is_total=False)


def _days(value: Value, text: str) -> Value:
    return derived(pa.int32(), text, lambda c: c.cast(pa.int32()), date(value, text))


def _date_shifted(symbol: str) -> Build:
    def build(args: Sequence[Value], text: str) -> Value:
        count = integer(args[1], text)
        days = arithmetic.binary(symbol, _days(args[0], text), count, text)
        return derived(pa.date32(), text, lambda c: c.cast(pa.date32()), days)

    return build


def _date_difference(args: Sequence[Value], text: str) -> Value:
    return arithmetic.binary("-", _days(args[0], text), _days(args[1], text), text)


def _since_epoch(unit_us: int) -> Build:
    return kernel(pa.int64(), lambda c: divided_down(c.cast(pa.int64()), unit_us), timestamp)


def _from_epoch(unit_us: int) -> Build:
    return kernel(
        TIMESTAMP, lambda c: timestamps(pc.multiply_checked(c, unit_us)), bigint, is_total=False
    )


_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


def _named(field: Callable[[calendar.Numbers], calendar.Numbers], names: tuple[str, ...]) -> Build:
    """A field's name, of fields that count from 0."""
    number = calendar.field_of_day(field)
    name = per_distinct(lambda index: names[index], pa.string())
    return kernel(pa.string(), lambda column: name(number(column)), date)


def _made_date(year: int, month: int, day: int) -> int:
    days = moments.days_of(year, month, day)
    if days is None or not -(2**31) <= days < 2**31:
        raise EvaluationError(f"there is no day {year}-{month}-{day}")
    return days


def _make_date(args: Sequence[Value], text: str) -> Value:
    days = rows(pa.int32(), _made_date, integer, integer, integer, is_total=False)(args, text)
    return derived(pa.date32(), text, lambda column: column.cast(pa.date32()), days)


def _micros_of_real(seconds: float) -> int | None:
    """Beyond TIMESTAMP its first or last; null for what is no number."""
    if not math.isfinite(seconds):
        return None
    micros = seconds * 1e6
    if abs(micros) < 2.0**63:
        return int(micros)
    return 2**63 - 1 if micros > 0 else -(2**63)


def _from_seconds(args: Sequence[Value], text: str) -> Value:
    """Whole seconds, or parts of them, too."""
    (value,) = args
    if pa.types.is_floating(value.type):
        number = rows(pa.int64(), _micros_of_real, same)(args, text)
        return derived(TIMESTAMP, text, timestamps, number)
    if not pa.types.is_decimal(value.type):
        return _from_epoch(1_000_000)(args, text)
    if value.type.scale > 6 or value.type.precision > 30:
        raise UnsupportedError(f"{text}: seconds are at most DECIMAL(30,6) here")

    def micros(seconds: Decimal) -> int:
        number = int(seconds.scaleb(6))
        if not -(2**63) <= number < 2**63:
            raise EvaluationError(f"second {seconds} is too far away")
        return number

    number = rows(pa.int64(), micros, same, is_total=False)(args, text)
    return derived(TIMESTAMP, text, timestamps, number)


FUNCTIONS: dict[str, Function] = {
    "date_add": Function(_date_shifted("+"), 2, 2),
    "date_sub": Function(_date_shifted("-"), 2, 2),
    "date_trunc": Function(_date_trunc, 2, 2),
    "add_months": Function(
        kernel(pa.date32(), calendar.dates(calendar.months_later), date, integer, is_total=False),
        2,
        2,
    ),
    "date_diff": Function(_date_difference, 2, 2),
    "date_from_unix_date": Function(
        kernel(pa.date32(), lambda c: c.cast(pa.date32()), integer), 1, 1
    ),
    "dateadd": Function(_date_shifted("+"), 2, 2),
    "datediff": Function(_date_difference, 2, 2),
    "day": Function(of_day(calendar.day), 1, 1),
    "dayname": Function(_named(calendar.weekday, _WEEKDAYS), 1, 1),
    "dayofmonth": Function(of_day(calendar.day), 1, 1),
    "dayofweek": Function(of_day(calendar.day_of_week), 1, 1),
    "dayofyear": Function(of_day(calendar.day_of_year), 1, 1),
    "hour": Function(of_time(3_600_000_000, 24), 1, 1),
    "last_day": Function(
        kernel(pa.date32(), calendar.dates(calendar.last_of_month), date, is_total=False), 1, 1
    ),
    "make_date": Function(_make_date, 3, 3),
    "minute": Function(of_time(60_000_000, 60), 1, 1),
    "month": Function(of_day(calendar.month), 1, 1),
    "monthname": Function(_named(lambda days: calendar.month(days) - 1, _MONTHS), 1, 1),
    "quarter": Function(of_day(calendar.quarter), 1, 1),
    "second": Function(of_time(1_000_000, 60), 1, 1),
    "timestamp_micros": Function(_from_epoch(1), 1, 1),
    "timestamp_millis": Function(_from_epoch(1_000), 1, 1),
    "timestamp_seconds": Function(_from_seconds, 1, 1),
    "trunc": Function(_trunc, 2, 2),
    "unix_date": Function(lambda args, text: _days(args[0], text), 1, 1),
    "unix_micros": Function(_since_epoch(1), 1, 1),
    "unix_millis": Function(_since_epoch(1_000), 1, 1),
    "unix_seconds": Function(_since_epoch(1_000_000), 1, 1),
    "weekday": Function(of_day(calendar.weekday), 1, 1),
    "weekofyear": Function(of_day(calendar.week_of_year), 1, 1),
    "year": Function(of_day(calendar.year), 1, 1),
}
