"""The calendar on columns: fields of days and times, and the beginnings of what they lie in.

Arrow's own kernels keep a year in 16 bits, and Spark's days reach far beyond.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from holdfast.api.expressions.moments import DAY_US
from holdfast.api.expressions.types import TIMESTAMP
from holdfast.api.expressions.values import Column, EvaluationError

Numbers = npt.NDArray[np.int64]
_UNITS_US = {
    "hour": 3_600_000_000,
    "minute": 60_000_000,
    "second": 1_000_000,
    "millisecond": 1_000,
    "microsecond": 1,
}


def civil(days: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    """Year, month and day of days since 1970-01-01."""
    shifted = days + 719_468  # Since the first of March of the year 0: leap days come last.
    era, of_era = np.divmod(shifted, 146_097)
    year_of_era = (of_era - of_era // 1_460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    month_from_march = (5 * of_year + 2) // 153
    day = of_year - (153 * month_from_march + 2) // 5 + 1
    month = np.where(month_from_march < 10, month_from_march + 3, month_from_march - 9)
    return era * 400 + year_of_era + (month <= 2), month, day


def days_at(year: Numbers, month: Numbers, day: Numbers) -> Numbers:
    """The inverse of `civil`."""
    shifted = year - (month <= 2)
    era, year_of_era = np.divmod(shifted, 400)
    of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    of_era = year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + of_year
    days: Numbers = era * 146_097 + of_era - 719_468
    return days


def year(days: Numbers) -> Numbers:
    """Also below zero and beyond 9999."""
    return civil(days)[0]


def quarter(days: Numbers) -> Numbers:
    """1 to 4."""
    return (month(days) + 2) // 3


def month(days: Numbers) -> Numbers:
    """1 to 12."""
    return civil(days)[1]


def day(days: Numbers) -> Numbers:
    """Of its month, from 1."""
    return civil(days)[2]


def day_of_year(days: Numbers) -> Numbers:
    """From 1."""
    return days - first_of("year", days) + 1


def day_of_week(days: Numbers) -> Numbers:
    """Sunday is 1."""
    return (days + 4) % 7 + 1


def weekday(days: Numbers) -> Numbers:
    """Monday is 0."""
    return (days + 3) % 7


def week_of_year(days: Numbers) -> Numbers:
    """A week belongs to the year that its Thursday lies in."""
    return (day_of_year(days + 3 - weekday(days)) - 1) // 7 + 1


def last_of_month(days: Numbers) -> Numbers:
    """The last day of each day's month."""
    years, months, _ = civil(days)
    following = days_at(years + months // 12, months % 12 + 1, np.ones_like(months))
    last: Numbers = following - 1
    return last


def months_later(days: Numbers, count: Numbers) -> Numbers:
    """The same day of another month, or that month's last one."""
    years, months, of_month = civil(days)
    more, months = np.divmod(months - 1 + count, 12)
    first = days_at(years + more, months + 1, np.ones_like(months))
    later: Numbers = np.minimum(first + of_month - 1, last_of_month(first))
    return later


def first_of(unit: str, days: Numbers) -> Numbers:
    """The first day of the year, quarter, month or week that each day lies in."""
    if unit == "week":
        return days - weekday(days)
    years, months, _ = civil(days)
    if unit == "year":
        months = np.ones_like(months)
    elif unit == "quarter":
        months = (months - 1) // 3 * 3 + 1
    return days_at(years, months, np.ones_like(months))


def _numbers(column: pa.Array, of: pa.DataType) -> tuple[Numbers, npt.NDArray[np.bool_]]:
    """The numbers below a column of dates or timestamps, and where it is null."""
    numbers = column.cast(of).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    return numbers, column.is_null().to_numpy(zero_copy_only=False)


def _on_arrays(compute: Callable[[pa.Array], pa.Array]) -> Callable[[Column], Column]:
    def kernel(column: Column) -> Column:
        if isinstance(column, pa.Scalar):
            return compute(pa.repeat(column, 1))[0]
        return compute(column)

    return kernel


def field_of_day(field: Callable[[Numbers], Numbers]) -> Callable[[Column], Column]:
    """A kernel: dates or timestamps to INT."""

    def compute(column: pa.Array) -> pa.Array:
        if pa.types.is_timestamp(column.type):
            micros, missing = _numbers(column, pa.int64())
            days = micros // DAY_US
        else:
            days, missing = _numbers(column, pa.int32())
        return pa.array(field(days).astype(np.int32), mask=missing)

    return _on_arrays(compute)


def dates(compute: Callable[..., Numbers]) -> Callable[..., Column]:
    """A kernel: a date and perhaps whole numbers to another date.

    Raises `EvaluationError` beyond DATE.
    """

    def kernel(*columns: Column) -> Column:
        arrays = [column for column in columns if not isinstance(column, pa.Scalar)]
        size = len(arrays[0]) if arrays else 1
        parts = [
            _numbers(pa.repeat(c, size) if isinstance(c, pa.Scalar) else c, pa.int32())
            for c in columns
        ]
        missing = np.logical_or.reduce([absent for _, absent in parts])
        days = np.where(missing, 0, compute(*(numbers for numbers, _ in parts)))
        if ((days < -(2**31)) | (days >= 2**31)).any():
            raise EvaluationError("a value does not fit DATE")
        result = pa.array(days.astype(np.int32), mask=missing).cast(pa.date32())
        return result if arrays else result[0]

    return kernel


def field_of_time(unit_us: int, count: int) -> Callable[[Column], Column]:
    """A kernel: timestamps to INT, which counts units within `count` of them."""

    def compute(column: pa.Array) -> pa.Array:
        micros, missing = _numbers(column, pa.int64())
        return pa.array((micros // unit_us % count).astype(np.int32), mask=missing)

    return _on_arrays(compute)


def date_beginning(unit: str) -> Callable[[Column], Column]:
    """A kernel: dates to the first day of the unit. Raises `EvaluationError` beyond DATE."""

    def compute(column: pa.Array) -> pa.Array:
        days, missing = _numbers(column, pa.int32())
        first = first_of(unit, days)
        if (first < -(2**31)).any():
            raise EvaluationError("a value does not fit DATE")
        return pa.array(first.astype(np.int32), mask=missing).cast(pa.date32())

    return _on_arrays(compute)


def time_beginning(unit: str) -> Callable[[Column], Column]:
    """A kernel: timestamps to the beginning of the unit.

    Raises `EvaluationError` beyond TIMESTAMP.
    """

    def compute(column: pa.Array) -> pa.Array:
        micros, missing = _numbers(column, pa.int64())
        days, within = np.divmod(micros, DAY_US)
        if unit in _UNITS_US:
            within -= within % _UNITS_US[unit]
        else:
            days, within = days if unit == "day" else first_of(unit, days), within * 0
        least_day, of_least = divmod(-(2**63), DAY_US)
        if ((days < least_day) | ((days == least_day) & (within < of_least))).any():
            raise EvaluationError("a value does not fit TIMESTAMP")
        # Both parts of the first day would overflow where their sum does not.
        began = (days + 1) * DAY_US - (DAY_US - within)
        return pa.array(began, mask=missing).cast(pa.timestamp("us")).cast(TIMESTAMP)

    return _on_arrays(compute)
