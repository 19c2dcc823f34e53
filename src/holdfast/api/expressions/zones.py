"""Time zones by name, on microseconds of any year. [Spark, DateTimeUtils.getZoneId]"""

from __future__ import annotations

import datetime as dt
import functools
import re
import zoneinfo
from collections.abc import Callable

_OFFSET = re.compile(
    r"(?:UTC|GMT|UT)?(?P<sign>[+-])"
    r"(?:(\d{1,2})|(\d\d)(\d\d)(\d\d)?|(\d{1,2}):(\d{1,2})|(\d{1,2}):(\d\d):(\d\d))",
    re.ASCII,
)
_SHORT = {
    "ACT": "Australia/Darwin", "AET": "Australia/Sydney", "AGT": "America/Argentina/Buenos_Aires",
    "ART": "Africa/Cairo", "AST": "America/Anchorage", "BET": "America/Sao_Paulo",
    "BST": "Asia/Dhaka", "CAT": "Africa/Harare", "CNT": "America/St_Johns",
    "CST": "America/Chicago", "CTT": "Asia/Shanghai", "EAT": "Africa/Addis_Ababa",
    "ECT": "Europe/Paris", "IET": "America/Indiana/Indianapolis", "IST": "Asia/Kolkata",
    "JST": "Asia/Tokyo", "MIT": "Pacific/Apia", "NET": "Asia/Yerevan", "NST": "Pacific/Auckland",
    "PLT": "Asia/Karachi", "PNT": "America/Phoenix", "PRT": "America/Puerto_Rico",
    "PST": "America/Los_Angeles", "SST": "Pacific/Guadalcanal", "VST": "Asia/Ho_Chi_Minh",
    "EST": "-05:00", "MST": "-07:00", "HST": "-10:00",
}  # fmt: skip
"""Java's short names."""
_DAY_US = 86_400_000_000
_CYCLE_US = 146_097 * _DAY_US
"""The calendar repeats after 400 years."""
_FIRST = -62_135_596_800_000_000 + 2 * _DAY_US
"""Python's times begin with the year 1."""
_LAST = 253_402_300_800_000_000 - 2 * _DAY_US
_EPOCH = dt.datetime(1970, 1, 1)
_MICROSECOND = dt.timedelta(microseconds=1)

Shift = Callable[[int], int]
"""From microseconds to microseconds."""


@functools.lru_cache(maxsize=256)
def offset_of(name: str) -> tuple[Shift, Shift] | None:
    """The distance to UTC: at a time of UTC, and at a time of the zone's own clocks.

    A time that the clocks skip is read by the offset before it, one that they show twice is the
    first of both, as in Java. None: there is no such zone.
    """
    name = _SHORT.get(name, name)
    if match := _OFFSET.fullmatch(name):
        given = [int(part) for part in match.groups()[1:] if part is not None]
        hours, minutes, seconds = (*given, 0, 0)[:3]
        total = (hours * 60 + minutes) * 60 + seconds
        if minutes > 59 or seconds > 59 or total > 18 * 3600:
            return None
        fixed = total * (-1_000_000 if match["sign"] == "-" else 1_000_000)
        return (lambda _: fixed), (lambda _: fixed)
    if name in ("Z", "UTC", "GMT", "UT"):
        return (lambda _: 0), (lambda _: 0)
    try:
        zone = zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        return None

    def of_utc(micros: int) -> int:
        moment = _moment(micros).replace(tzinfo=dt.UTC).astimezone(zone)
        return _micros(moment.utcoffset())

    def of_clocks(micros: int) -> int:
        return _micros(_moment(micros).replace(tzinfo=zone).utcoffset())

    return of_utc, of_clocks


def _moment(micros: int) -> dt.datetime:
    """The time, in a year that Python has and in which the same rules hold."""
    if micros >= _LAST:
        micros -= ((micros - _LAST) // _CYCLE_US + 1) * _CYCLE_US
    elif micros < _FIRST:
        micros += ((_FIRST - micros - 1) // _CYCLE_US + 1) * _CYCLE_US
    return _EPOCH + dt.timedelta(microseconds=micros)


def _micros(offset: dt.timedelta | None) -> int:
    return (offset or dt.timedelta()) // _MICROSECOND
