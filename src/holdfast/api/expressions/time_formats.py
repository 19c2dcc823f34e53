"""Times in patterns such as `'yyyy-MM-dd HH:mm'`, in UTC. [java.time.format.DateTimeFormatter]

Read as Spark does: strictly, whatever the case of letters; parts that are not there are those of
1970-01-01 00:00. Letters that are not in `_LETTERS` are refused by name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa

from holdfast.api.expressions import moments
from holdfast.api.expressions.calendar import civil, weekday
from holdfast.api.expressions.signatures import fixed, kernel, rows, same, string, timestamp
from holdfast.api.expressions.values import EvaluationError, Value, constant
from holdfast.errors import DataflowError, UnsupportedError

_MONTHS = (
    *("January", "February", "March", "April", "May", "June", "July", "August", "September"),
    *("October", "November", "December"),
)
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_LETTERS = {
    "y": 6, "M": 4, "L": 2, "d": 2, "H": 2, "h": 2, "m": 2, "s": 2, "S": 9, "a": 1, "E": 4,
    "D": 3, "Q": 2, "X": 3, "x": 3, "Z": 3, "V": 2,
}  # fmt: skip
"""Each letter, and how often it may stand in a row."""
_NOT_READ = "EDQXxZVL"
_UTC = {"X": ("Z", "Z", "Z"), "x": ("+00", "+0000", "+00:00"), "Z": ("+0000",) * 3}
_TOKEN = re.compile(
    r"''|'(?P<quoted>(?:[^']|'')*)'|(?P<letters>([a-zA-Z])\3*)|(?P<plain>[^a-zA-Z'])"
)
_SECOND_US = 1_000_000


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of a pattern: a letter and its count, or text as it is."""

    letter: str
    count: int
    text: str = ""


def _parts(pattern: str, text: str) -> list[_Part]:
    parts: list[_Part] = []
    at = 0
    while at < len(pattern):
        match = _TOKEN.match(pattern, at)
        if match is None:
            raise DataflowError(f"{text}: a quote is open in {pattern!r}")
        at = match.end()
        if match["letters"]:
            letter, count = match["letters"][0], len(match["letters"])
            if count > _LETTERS.get(letter, 0) or (letter == "V" and count != 2):
                raise UnsupportedError(f"{text}: {match['letters']} in a pattern of time")
            parts.append(_Part(letter, count))
            continue
        plain = match["plain"] or (match["quoted"] or "").replace("''", "'") or "'"
        if match["plain"] and plain in "[]{}#":
            raise UnsupportedError(f"{text}: {plain} in a pattern of time")
        parts.append(_Part("", 0, plain))
    return parts


# -- written ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Moment:
    """A time in UTC, taken apart."""

    year: int
    month: int
    day: int
    days: int
    within: int

    @classmethod
    def of(cls, micros: int) -> _Moment:
        days, within = divmod(micros, moments.DAY_US)
        year, month, day = (int(part[0]) for part in civil(np.array([days])))
        return cls(year, month, day, days, within)


def _year(moment: _Moment, count: int) -> str:
    if count == 2:
        return f"{abs(moment.year) % 100:02}"
    digits = f"{abs(moment.year):0{count}}"
    sign = "-" if moment.year < 0 else "+" if count >= 4 and len(digits) > count else ""
    return sign + digits


def _month(moment: _Moment, count: int) -> str:
    if count <= 2:
        return f"{moment.month:0{count}}"
    name = _MONTHS[moment.month - 1]
    return name[:3] if count == 3 else name


def _weekday(moment: _Moment, count: int) -> str:
    name = _DAYS[int(weekday(np.array([moment.days]))[0])]
    return name if count == 4 else name[:3]


def _day_of_year(moment: _Moment, count: int) -> str:
    first = moments.days_of(moment.year, 1, 1)
    assert first is not None
    return f"{moment.days - first + 1:0{count}}"


def _clock(unit_us: int, size: int) -> Callable[[_Moment, int], str]:
    return lambda moment, count: f"{moment.within // unit_us % size:0{count}}"


_WRITERS: dict[str, Callable[[_Moment, int], str]] = {
    "y": _year,
    "M": _month,
    "L": _month,
    "d": lambda moment, count: f"{moment.day:0{count}}",
    "H": _clock(3600 * _SECOND_US, 24),
    "h": lambda moment, count: f"{(moment.within // (3600 * _SECOND_US) - 1) % 12 + 1:0{count}}",
    "m": _clock(60 * _SECOND_US, 60),
    "s": _clock(_SECOND_US, 60),
    "S": lambda moment, count: f"{moment.within % _SECOND_US:06}000"[:count],
    "a": lambda moment, _: "AM" if moment.within < moments.DAY_US // 2 else "PM",
    "E": _weekday,
    "D": _day_of_year,
    "Q": lambda moment, count: f"{(moment.month + 2) // 3:0{count}}",
    "X": lambda _, count: _UTC["X"][count - 1],
    "x": lambda _, count: _UTC["x"][count - 1],
    "Z": lambda _, count: _UTC["Z"][count - 1],
    "V": lambda *_: "UTC",
}


def writer(pattern: str, text: str) -> Callable[[int], str]:
    """From microseconds since 1970 to text. Raises `UnsupportedError` for unknown letters."""
    parts = _parts(pattern, text)

    def write(micros: int) -> str:
        moment = _Moment.of(micros)
        return "".join(
            _WRITERS[part.letter](moment, part.count) if part.letter else part.text
            for part in parts
        )

    return write


# -- read ---------------------------------------------------------------------------------------


def reader(pattern: str, text: str) -> Callable[[str], int | None]:
    """From text to microseconds since 1970; None: it is no time of this pattern.

    Raises:
        UnsupportedError: The pattern holds what is not read here.
    """
    parts = _parts(pattern, text)
    letters = [part.letter for part in parts if part.letter]

    def refuse(what: str) -> NoReturn:
        raise UnsupportedError(f"{text}: a pattern of time with {what} is not read")

    if len(set(letters)) < len(letters):
        refuse("a letter that stands twice")
    for letter in letters:
        if letter in _NOT_READ:
            refuse(letter)
    if ("a" in letters and "h" not in letters) or {"h", "H"} <= set(letters):
        refuse("a beside H, or h beside H")
    written = []
    for number, part in enumerate(parts):
        behind = parts[number + 1 :]
        if part.letter and behind and behind[0].letter and _is_open(part):
            run = _numbers(behind)
            if part != _Part("y", 4) or any(map(_is_open, run)):
                refuse("numbers of any length next to each other")
        if part.text and not part.text.isascii():
            refuse(f"{part.text!r}")
        if part.text[:1].isdigit() or part.text[-1:].isdigit():
            refuse("digits as text")
        written.append(_expected(part) if part.letter else re.escape(part.text))
    compiled = re.compile("".join(written), re.ASCII | re.IGNORECASE)
    return lambda given: _micros(compiled.fullmatch(given))


def _is_open(part: _Part) -> bool:
    """Whether it is a number of any length."""
    return (
        (part.letter == "y" and part.count != 2)
        or part.letter == "S"
        or (part.letter in "MdHhms" and part.count == 1)
    )


def _numbers(parts: Sequence[_Part]) -> list[_Part]:
    """The letters at the beginning, next to each other."""
    run = []
    for part in parts:
        if not part.letter:
            break
        run.append(part)
    return run


def _expected(part: _Part) -> str:
    letter, count = part.letter, part.count
    if letter == "y":
        if count == 2:
            return r"(?P<yy>\d{2})"
        if count < 4:
            return rf"(?P<y>-?\d{{{count},18}})"
        return rf"(?P<y>-\d{{{count},18}}|\+\d{{{count + 1},18}}|\d{{{count}}})"
    if letter == "M" and count > 2:
        names = [name[:3] if count == 3 else name for name in _MONTHS]
        return f"(?P<name>{'|'.join(names)})"
    if letter == "S":
        return rf"(?P<S>\d{{1,{count}}})"
    if letter == "a":
        return "(?P<a>AM|PM)"
    return rf"(?P<{letter}>\d{{{f'1,{19}' if count == 1 else count}}})"


def _micros(match: re.Match[str] | None) -> int | None:
    if match is None:
        return None
    found = match.groupdict()
    year = int(found.get("y") or 1970)
    if "yy" in found:
        year = 2000 + int(found["yy"])
    month = int(found.get("M") or 1)
    if "name" in found:
        month = [name[:3].lower() for name in _MONTHS].index(found["name"][:3].lower()) + 1
    clock = _time_of_day(found)
    days = moments.days_of(year, month, int(found.get("d") or 1)) if abs(year) <= 300_000 else None
    if days is None or clock is None:
        return None
    micros = days * moments.DAY_US + clock
    return micros if -(2**63) <= micros < 2**63 else None


def _time_of_day(found: dict[str, Any]) -> int | None:
    """Microseconds since midnight; None: there is no such time."""
    hour, minute, second = (int(found.get(part) or 0) for part in ("H", "m", "s"))
    if "h" in found:
        if not 1 <= int(found["h"]) <= 12:
            return None
        is_late = (found.get("a") or "AM").upper() == "PM"
        hour = int(found["h"]) % 12 + 12 * is_late
    if hour > 23 or minute > 59 or second > 59:
        return None
    fraction = int((found.get("S") or "0")[:6].ljust(6, "0"))
    return ((hour * 60 + minute) * 60 + second) * _SECOND_US + fraction


# -- functions ----------------------------------------------------------------------------------


def pattern_of(value: Value, text: str) -> str | None:
    """The pattern, which is known when the dataflow is built."""
    found: str | None = fixed(string(value, text), text)
    return found


def microseconds(value: Value, text: str) -> Value:
    """A date, timestamp or known text as microseconds in UTC."""
    return as_numbers(timestamp(value, text), text)


def as_numbers(value: Value, text: str) -> Value:
    """A time as the microseconds that it is kept as."""
    return kernel(pa.int64(), lambda column: column.cast(pa.int64()), same)([value], text)


def date_format(args: Sequence[Value], text: str) -> Value:
    """`date_format(time, pattern)`."""
    pattern = pattern_of(args[1], text)
    if pattern is None:
        return constant(pa.scalar(None, pa.string()), text)
    write = writer(pattern, text)
    given = microseconds(args[0], text)
    return rows(pa.string(), write, same, is_total=False)([given], text)


def parsed(args: Sequence[Value], text: str, *, is_tried: bool) -> Value:
    """A text by a pattern, as BIGINT microseconds."""
    pattern = pattern_of(args[1], text)
    if pattern is None:
        return constant(pa.scalar(None, pa.int64()), text)
    read = reader(pattern, text)

    def one(given: str) -> int | None:
        micros = read(given)
        if micros is None and not is_tried:
            raise EvaluationError(f"{given!r} is no time of the pattern {pattern!r}")
        return micros

    return rows(pa.int64(), one, string, is_total=is_tried)(args[:1], text)
