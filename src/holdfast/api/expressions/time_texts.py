"""Times as texts by a pattern, epochs, and the clocks of other time zones."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.api.expressions import more_times, zones
from holdfast.api.expressions.calendar import civil, last_of_month
from holdfast.api.expressions.casts import cast, date_of, timestamps
from holdfast.api.expressions.moments import DAY_US
from holdfast.api.expressions.signatures import (
    Build,
    Function,
    bigint,
    fixed,
    kernel,
    rows,
    same,
    string,
    timestamp,
)
from holdfast.api.expressions.time_formats import (
    as_numbers,
    date_format,
    microseconds,
    parsed,
    writer,
)
from holdfast.api.expressions.types import TIMESTAMP, TIMESTAMP_NTZ, is_time
from holdfast.api.expressions.values import (
    Column,
    EvaluationError,
    Value,
    constant,
    derived,
    per_row,
)
from holdfast.errors import DataflowError, UnsupportedError

_LONG = pa.int64()
_USUAL = "yyyy-MM-dd HH:mm:ss"


def _tried(value: Value, of: pa.DataType, text: str) -> Value:
    """The value as a time; null where known text is none."""
    if pa.types.is_string(value.type):
        if not value.is_fixed:
            raise UnsupportedError(f"{text}: {value.text} needs a pattern here")
        try:
            found = cast(value, of, text)
        except EvaluationError:
            return constant(pa.scalar(None, of), text)
        return constant(pa.scalar(None, of), text) if found.failure else found
    return cast(value, of, text)


def _read(of: pa.DataType, *, is_tried: bool) -> Build:
    """`to_timestamp` and the like: by a pattern, or without one as CAST."""

    def build(args: Sequence[Value], text: str) -> Value:
        value = args[0]
        if len(args) == 1 or not pa.types.is_string(value.type):
            if len(args) == 2:
                fixed(string(args[1], text), text)
            is_known = pa.types.is_string(value.type) or pa.types.is_null(value.type)
            if not (is_known or is_time(value.type)):
                raise UnsupportedError(f"{text}: {value.text} is no time and no text")
            return _tried(value, of, text) if is_tried else cast(value, of, text)
        micros = parsed(args, text, is_tried=is_tried)
        if pa.types.is_date(of):
            return derived(of, text, lambda c: date_of(timestamps(c)), micros)
        return derived(of, text, lambda c: timestamps(c, of), micros)

    return build


def _seconds(column: Column) -> Column:
    return pc.divide(column.cast(_LONG), 1_000_000)


def _unix_timestamp(args: Sequence[Value], text: str) -> Value:
    """Whole seconds, rounded to 0; a text by the pattern."""
    value, *patterns = args
    if is_time(value.type) or pa.types.is_null(value.type):
        return kernel(_LONG, _seconds, timestamp)(args[:1], text)
    if not pa.types.is_string(value.type):
        raise DataflowError(f"{text}: {value.text} is no time and no text")
    usual = constant(pa.scalar(_USUAL), _USUAL, is_literal=True)
    pattern = patterns[0] if patterns else usual
    micros = parsed([value, pattern], text, is_tried=False)
    return derived(_LONG, text, _seconds, micros)


def _from_unixtime(args: Sequence[Value], text: str) -> Value:
    pattern = fixed(string(args[1], text), text) if len(args) == 2 else _USUAL
    if pattern is None:
        return constant(pa.scalar(None, pa.string()), text)
    write = writer(pattern, text)

    def one(seconds: int) -> str:
        if not -(2**63) <= seconds * 1_000_000 < 2**63:
            raise EvaluationError(f"second {seconds} is too far away")
        return write(seconds * 1_000_000)

    return rows(pa.string(), one, bigint, is_total=False)(args[:1], text)


# -- zones --------------------------------------------------------------------------------------


def _zone(value: Value, text: str) -> tuple[zones.Shift, zones.Shift] | None:
    """The distances of a zone to UTC; None: it is NULL."""
    name = fixed(string(value, text), text)
    found = None if name is None else zones.offset_of(name)
    if name is not None and found is None:
        raise DataflowError(f"{text}: there is no time zone {name!r}")
    return found


def _shifted(of: pa.DataType, shift: Callable[[int], int], value: Value, text: str) -> Value:
    """A time by another clock, as a time of UTC."""

    def one(micros: int) -> int:
        moved = shift(micros)
        if not -(2**63) <= moved < 2**63:
            raise EvaluationError("a value does not fit TIMESTAMP")
        return moved

    micros = rows(_LONG, one, same, is_total=False)([value], text)
    return derived(of, text, lambda c: timestamps(c, of), micros)


def _utc(*, is_from: bool) -> Build:
    """`from_utc_timestamp` and `to_utc_timestamp`."""

    def build(args: Sequence[Value], text: str) -> Value:
        offsets = _zone(args[1], text)
        if offsets is None:
            return constant(pa.scalar(None, TIMESTAMP), text)
        of_utc, of_clocks = offsets

        def shift(micros: int) -> int:
            return micros + of_utc(micros) if is_from else micros - of_clocks(micros)

        return _shifted(TIMESTAMP, shift, microseconds(args[0], text), text)

    return build


def _convert_timezone(args: Sequence[Value], text: str) -> Value:
    """`convert_timezone(source, target, time)`; without a source from UTC."""
    *sources, target, value = args
    to = _zone(target, text)
    of = _zone(sources[0], text) if sources else zones.offset_of("UTC")
    if to is None or of is None:
        return constant(pa.scalar(None, TIMESTAMP_NTZ), text)
    given = as_numbers(cast(value, TIMESTAMP_NTZ, text), text)

    def shift(micros: int) -> int:
        there = micros - of[1](micros)
        return there + to[0](there)

    return _shifted(TIMESTAMP_NTZ, shift, given, text)


def _made(name: str) -> Function:
    """`make_timestamp` with a time zone behind the seconds, or of a date alone."""
    plain = more_times.FUNCTIONS[name]

    def build(args: Sequence[Value], text: str) -> Value:
        if len(args) == 1 and pa.types.is_date(args[0].type):
            return cast(args[0], TIMESTAMP, text)
        if not 6 <= len(args) <= 7:
            raise DataflowError(f"{text}: {name} takes six or seven arguments, or a date")
        made = plain.build(args[:6], text)
        if len(args) == 6:
            return made
        offsets = _zone(args[6], text)
        if offsets is None:
            return constant(pa.scalar(None, TIMESTAMP), text)
        of_clocks = offsets[1]
        micros = as_numbers(made, text)
        return _shifted(TIMESTAMP, lambda given: given - of_clocks(given), micros, text)

    return Function(build, 1, 7)


# -- between ------------------------------------------------------------------------------------


def _months_between(args: Sequence[Value], text: str) -> Value:
    """Whole months, and the rest as parts of 31 days; rounded to 8 places if so wished."""
    is_rounded = fixed(args[2], text) if len(args) == 3 else True
    if not isinstance(is_rounded, bool):
        raise UnsupportedError(f"{text}: rounding is TRUE or FALSE")

    def between(first: int, second: int) -> float:
        (month, day, is_last, seconds), (before, of, was_last, rest) = map(_split, (first, second))
        whole = float(month - before)
        if day == of or (is_last and was_last):
            return whole
        behind = (day - of) * 86_400 + seconds - rest
        months = whole + behind / (31 * 86_400.0)
        return float(np.floor(months * 1e8 + 0.5)) / 1e8 if is_rounded else months

    given = [microseconds(arg, text) for arg in args[:2]]
    return derived(pa.float64(), text, per_row(between, pa.float64()), *given)


def _split(micros: int) -> tuple[int, int, bool, int]:
    """Month since the year 0, its day, whether that is its last one, second of the day."""
    days = np.array([micros // DAY_US])
    year, month, day = (int(part[0]) for part in civil(days))
    is_last = bool(last_of_month(days)[0] == days[0])
    return year * 12 + month, day, is_last, micros % DAY_US // 1_000_000


_TO_TIMESTAMP = Function(_read(TIMESTAMP, is_tried=False), 1, 2)
_UNIX = Function(_unix_timestamp, 1, 2)

FUNCTIONS: dict[str, Function] = {
    **{
        name: _made(name)
        for name in (
            *("make_timestamp", "make_timestamp_ltz"),
            *("try_make_timestamp", "try_make_timestamp_ltz"),
        )
    },
    "convert_timezone": Function(_convert_timezone, 2, 3),
    "current_timezone": Function(lambda _, text: constant(pa.scalar("UTC"), text), 0, 0),
    "date_format": Function(date_format, 2, 2),
    "from_unixtime": Function(_from_unixtime, 1, 2),
    "from_utc_timestamp": Function(_utc(is_from=True), 2, 2),
    "months_between": Function(_months_between, 2, 3),
    "to_date": Function(_read(pa.date32(), is_tried=False), 1, 2),
    "to_timestamp": _TO_TIMESTAMP,
    "to_timestamp_ltz": _TO_TIMESTAMP,
    "to_timestamp_ntz": Function(_read(TIMESTAMP_NTZ, is_tried=False), 1, 2),
    "to_unix_timestamp": _UNIX,
    "to_utc_timestamp": Function(_utc(is_from=False), 2, 2),
    "try_to_date": Function(_read(pa.date32(), is_tried=True), 1, 2),
    "try_to_timestamp": Function(_read(TIMESTAMP, is_tried=True), 1, 2),
    "unix_timestamp": _UNIX,
}
