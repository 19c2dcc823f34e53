"""Dates and timestamps as text, read and written as Spark does, in UTC.

Days and microseconds are counted from 1970-01-01; years beyond 9999 and before 1 are real, so that
Python's `datetime` is of no use here.
"""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa

from holdfast.api.expressions import zones
from holdfast.api.expressions.values import Column, EvaluationError

DAY_US = 86_400_000_000
_SPACES = "".join(map(chr, range(33))) + "\x7f"
_DATE = r"(?P<sign>[+-]?)(?P<year>\d{4,7})(?:-(?P<month>\d{1,2})(?:-(?P<day>\d{1,2})"
_ONE_DATE = re.compile(_DATE + r"(?:[ T].*)?)?)?", re.DOTALL | re.ASCII)
_ONE_TIMESTAMP = re.compile(
    r"(?P<sign>[+-]?)(?P<year>\d{4,6})(?:-(?P<month>\d{1,2})(?:-(?P<day>\d{1,2})"
    r"(?:[ T](?P<hour>\d{1,2})(?::(?P<minute>\d{1,2})"
    r"(?::(?P<second>\d{1,2})(?:\.(?P<fraction>\d*))?(?P<zone>[^0-9.].*)?)?)?)?)?)?",
    re.ASCII | re.DOTALL,
)
"""A time zone stands behind seconds alone."""
_DAYS_IN_MONTH = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


def days_of(year: int, month: int, day: int) -> int | None:
    """The day's number, None if there is no such day."""
    is_leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    if not 1 <= month <= 12:
        return None
    if not 1 <= day <= _DAYS_IN_MONTH[month - 1] + (is_leap and month == 2):
        return None
    shifted = year - (month <= 2)  # A year that begins in March ends with the leap day.
    era, of_era = divmod(shifted, 400)
    of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468


def date_from(text: str) -> int:
    """The number of the day that a text names. Raises `EvaluationError`."""
    match = _ONE_DATE.fullmatch(text.strip(_SPACES))
    days = None if match is None else _days(match)
    if days is None or not -(2**31) <= days < 2**31:
        raise EvaluationError(f"{text!r} is no DATE")
    return days


def timestamp_from(text: str, *, is_local: bool = False) -> int:
    """The microsecond that a text names. Raises `EvaluationError`.

    Args:
        text: A time; one without a date is refused, for it would mean another one each day.
        is_local: Whether the zone in it is passed over.
    """
    match = _ONE_TIMESTAMP.fullmatch(text.strip(_SPACES))
    days = None if match is None else _days(match)
    if match is None or days is None:
        raise EvaluationError(f"{text!r} is no TIMESTAMP")
    hour, minute, second = (int(match[part] or 0) for part in ("hour", "minute", "second"))
    offsets = zones.offset_of(match["zone"].strip(_SPACES)) if match["zone"] else None
    if hour > 23 or minute > 59 or second > 59 or (match["zone"] and offsets is None):
        raise EvaluationError(f"{text!r} is no TIMESTAMP")
    fraction = int((match["fraction"] or "0")[:6].ljust(6, "0"))
    micros = days * DAY_US + ((hour * 60 + minute) * 60 + second) * 1_000_000 + fraction
    if offsets is not None and not is_local:
        micros -= offsets[1](micros)
    if not -(2**63) <= micros < 2**63:
        raise EvaluationError(f"{text!r} does not fit TIMESTAMP")
    return micros


def _days(match: re.Match[str]) -> int | None:
    year = int(match["year"]) * (-1 if match["sign"] == "-" else 1)
    return days_of(year, int(match["month"] or 1), int(match["day"] or 1))


def date_to_text(column: Column) -> Column:
    """Each day as `2020-01-31`."""
    if isinstance(column, pa.Scalar):
        return date_to_text(pa.repeat(column, 1))[0]
    days = column.cast(pa.int32()).fill_null(0).to_numpy().astype(np.int64)
    return pa.array(_days_written(days), pa.string(), mask=_is_null(column))


def timestamp_to_text(column: Column) -> Column:
    """Each timestamp as `2020-01-31 23:59:59.5`, as many digits as it has."""
    if isinstance(column, pa.Scalar):
        return timestamp_to_text(pa.repeat(column, 1))[0]
    micros = column.cast(pa.int64()).fill_null(0).to_numpy()
    days, within = np.divmod(micros, DAY_US)
    texts = []
    for day, rest in zip(_days_written(days), within.tolist(), strict=True):
        seconds, fraction = divmod(rest, 1_000_000)
        minutes, second = divmod(seconds, 60)
        digits = f".{fraction:06}".rstrip("0") if fraction else ""
        texts.append(f"{day} {minutes // 60:02}:{minutes % 60:02}:{second:02}{digits}")
    return pa.array(texts, pa.string(), mask=_is_null(column))


def _is_null(column: pa.Array) -> np.ndarray:
    missing: np.ndarray = column.is_null().to_numpy(zero_copy_only=False)
    return missing


def _days_written(days: np.ndarray) -> list[str]:
    """Four digits of a year at least, and a sign where there are more."""
    texts = []
    for iso in np.datetime_as_string(days.view("datetime64[D]")).tolist():
        year, _, rest = iso.removeprefix("-").partition("-")
        sign = "-" if iso[0] == "-" else "+" if len(year) > 4 else ""
        texts.append(f"{sign}{year.zfill(4)}-{rest}")
    return texts
