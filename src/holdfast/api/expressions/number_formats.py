"""Numbers in formats such as `'$99,999.99S'`: written by `to_char`, read by `to_number`.

A format is `[MI|S] [$] digits and commas [. digits] [$] [PR|MI|S]`. A run of digits that begins
with 0 before the point stands for as many digits, else for at most as many. `G` is a comma, `D` a
point. [Spark, ToNumberParser]
"""

from __future__ import annotations

import decimal
import re
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from holdfast.api.expressions.byte_functions import binary_in
from holdfast.api.expressions.casts import coerce
from holdfast.api.expressions.signatures import Build, Function, fixed, integer, rows, same, string
from holdfast.api.expressions.time_formats import date_format
from holdfast.api.expressions.types import as_decimal, is_time, name_of
from holdfast.api.expressions.values import EvaluationError, Value, constant
from holdfast.errors import DataflowError, UnsupportedError

_FORMAT = re.compile(
    r"(?P<before>MI|S)?(?P<dollar>\$)?(?P<whole>[09][09,G]*)?(?P<point>[.D])?(?P<part>[09]+)?"
    r"(?P<behind>PR|MI|S)?"
)
_SIGNS = "+-<"


@dataclass(frozen=True, slots=True)
class _Format:
    """A format, taken apart.

    Attributes:
        sign: `MI`, `S` or nothing, before the number.
        behind: `PR`, `MI`, `S` or nothing, behind it.
        has_dollar: Whether a dollar stands before the digits.
        groups: The runs of digits before the point, from left to right.
        has_point: Whether there is a point.
        places: Digits behind the point.
    """

    sign: str
    behind: str
    has_dollar: bool
    groups: tuple[str, ...]
    has_point: bool
    places: int

    @property
    def digits(self) -> int:
        """Digits before the point."""
        return sum(map(len, self.groups))


def _format(written: str, text: str) -> _Format:
    match = _FORMAT.fullmatch(written)
    groups = re.split("[,G]", match["whole"]) if match and match["whole"] else []
    if match is None or not (groups or match["part"]) or "" in groups:
        raise DataflowError(f"{text}: {written!r} is no format of numbers")
    if match["before"] and match["behind"] == match["before"]:
        raise DataflowError(f"{text}: {written!r} has two signs")
    if match["behind"] and match["before"]:
        raise UnsupportedError(f"{text}: a format with two signs")
    return _Format(
        match["before"] or "",
        match["behind"] or "",
        match["dollar"] is not None,
        tuple(groups),
        match["point"] is not None,
        len(match["part"] or ""),
    )


# -- written ------------------------------------------------------------------------------------


def _written(number: decimal.Decimal, form: _Format) -> str:
    is_negative = number < 0
    whole, _, part = f"{abs(number):f}".partition(".")
    whole, part = whole.lstrip("0"), part.rstrip("0")
    if len(whole) > form.digits or len(part) > form.places:
        whole, part = "#" * form.digits, "#" * form.places
    whole = whole.rjust(form.digits)
    out: list[str] = []
    if form.behind == "PR" and is_negative:
        out.append("<")
    if form.sign:
        _sign(out, form.sign, is_negative=is_negative)
    if form.has_dollar:
        out.append("$")
    _whole(out, whole, form)
    if form.has_point:
        if out and out[-1] == " ":
            out[-1] = "0"
        out.append(".")
        out.extend(part.ljust(form.places, "0"))
    if form.behind == "PR":
        _strip_point(out)
        if is_negative:
            _behind(out, ">")
        else:
            out += "  "
    elif form.behind:
        _sign(out, form.behind, is_negative=is_negative)
    _strip_point(out)
    result = "".join(out)
    return "0" if result in ("", "+", "-") else result


def _whole(out: list[str], whole: str, form: _Format) -> None:
    at = 0
    for number, group in enumerate(form.groups):
        if number:
            if out and (out[-1].isdigit()):
                out.append(",")
            else:
                _space(out)
        for digit in whole[at : at + len(group)]:
            if digit != " ":
                out.append(digit)
            elif group[0] == "0":
                out.append("0")
            else:
                _space(out)
        at += len(group)


def _sign(out: list[str], kind: str, *, is_negative: bool) -> None:
    if kind == "S" or is_negative:
        _strip_point(out)
        _behind(out, "-" if is_negative else "+")
    else:
        out.append(" ")


def _behind(out: list[str], character: str) -> None:
    """Put a character behind the last one that is no space."""
    at = len(out)
    while at and out[at - 1] == " ":
        at -= 1
    out.insert(max(at, 0), character)


def _space(out: list[str]) -> None:
    """A space, before the signs at the end."""
    at = len(out)
    while at and out[at - 1] in _SIGNS:
        at -= 1
    out.insert(at, " ")


def _strip_point(out: list[str]) -> None:
    """A point with nothing behind it becomes a space."""
    if "." in out:
        at = out.index(".")
        if at == len(out) - 1 or out[at + 1] == " ":
            out[at] = " "


# -- read ---------------------------------------------------------------------------------------


def _read(text: str, form: _Format) -> decimal.Decimal | None:
    """The number in a text; None: it is not of this format."""
    reader = _Reader(text)
    is_open = form.behind == "PR" and reader.took("<")
    is_negative = _is_minus(reader, form.sign)
    if form.has_dollar and reader.rest and not reader.took("$"):
        return None
    whole = reader.groups() if form.groups else [""]
    if not _fits(whole, form.groups):
        return None
    has_point = form.has_point and reader.took(".")
    part = reader.groups() if form.places else [""]
    if len(part) > 1 or (has_point and len(part[0]) > form.places):
        return None
    if not has_point and part[0]:
        return None
    is_negative ^= _is_minus(reader, form.behind)
    is_closed = form.behind == "PR" and reader.took(">")
    digits = "".join(whole)
    if reader.rest or is_open != is_closed or not digits + part[0]:
        return None
    number = decimal.Decimal(f"{digits or '0'}.{part[0]}".rstrip("."))
    return -number if is_negative ^ is_closed else number


def _is_minus(reader: _Reader, kind: str) -> bool:
    if kind == "S" and reader.took("+"):
        return False
    return kind in ("S", "MI") and reader.took("-")


def _fits(found: Sequence[str], groups: Sequence[str]) -> bool:
    """Whether each run of digits, from the right, has as many as the format says."""
    if not groups:
        return True
    if len(found) > len(groups):
        return False
    sizes = [len(each) for each in reversed(found)]
    sizes += [0] * (len(groups) - len(sizes))
    return all(
        size == len(group) if group[0] == "0" else size <= len(group)
        for size, group in zip(sizes, reversed(groups), strict=True)
    )


class _Reader:
    """A text, read from left to right."""

    def __init__(self, text: str) -> None:
        self.rest = text

    def took(self, character: str) -> bool:
        """Whether the text goes on with a character, which is passed then."""
        is_there = self.rest.startswith(character)
        self.rest = self.rest[is_there:]
        return is_there

    def groups(self) -> list[str]:
        """Runs of digits with commas between; spaces are passed over."""
        match = re.match(r"[0-9,\s]*", self.rest)
        run = match[0] if match else ""
        self.rest = self.rest[len(run) :]
        return re.sub(r"\s", "", run).split(",")


# -- functions ----------------------------------------------------------------------------------


def _to_number(*, is_tried: bool) -> Build:
    def build(args: Sequence[Value], text: str) -> Value:
        written = fixed(string(args[1], text), text)
        if written is None:
            raise UnsupportedError(f"{text}: the format is NULL")
        form = _format(written, text)
        if form.digits + form.places > 38:
            raise DataflowError(f"{text}: more than 38 digits")
        of = pa.decimal128(form.digits + form.places, form.places)

        def one(given: str) -> decimal.Decimal | None:
            if any(not c.isascii() and (c.isdigit() or c.isspace()) for c in given):
                raise EvaluationError(f"{given!r} has digits or spaces beyond ASCII")
            number = _read(given, form)
            if number is None and not is_tried:
                raise EvaluationError(f"{given!r} is not of the format {written}")
            return number

        return rows(of, one, string, is_total=False)(args[:1], text)

    return build


def _to_char(args: Sequence[Value], text: str) -> Value:
    value = args[0]
    if is_time(value.type):
        return date_format(args, text)
    written = fixed(string(args[1], text), text)
    if written is None:
        raise UnsupportedError(f"{text}: the format is NULL")
    if pa.types.is_binary(value.type):
        return binary_in(written, value, text)
    if not (pa.types.is_integer(value.type) or pa.types.is_decimal(value.type)):
        raise UnsupportedError(f"{text}: {value.text} is {name_of(value.type)}; cast it to DECIMAL")
    form = _format(written, text)
    number = coerce(value, as_decimal(value.type))
    return rows(pa.string(), lambda given: _written(given, form), same)([number], text)


def _format_number(args: Sequence[Value], text: str) -> Value:
    """With as many places, commas between thousands; halves to the even digit."""
    value = args[0]
    if pa.types.is_string(args[1].type):
        raise UnsupportedError(f"{text}: the second argument is a number of places here")
    places = fixed(integer(args[1], text), text)
    if places is None or places < 0:
        return constant(pa.scalar(None, pa.string()), text)
    if not (pa.types.is_integer(value.type) or pa.types.is_decimal(value.type)):
        raise UnsupportedError(f"{text}: {value.text} is {name_of(value.type)}; cast it to DECIMAL")
    context = decimal.Context(prec=500, rounding=decimal.ROUND_HALF_EVEN)
    step = decimal.Decimal(1).scaleb(-min(places, 340))

    def one(number: decimal.Decimal) -> str:
        return f"{context.quantize(number, step):,f}"

    number = coerce(value, as_decimal(value.type))
    return rows(pa.string(), one, same)([number], text)


_CHAR = Function(_to_char, 2, 2)
FUNCTIONS: dict[str, Function] = {
    "format_number": Function(_format_number, 2, 2),
    "to_char": _CHAR,
    "to_number": Function(_to_number(is_tried=False), 2, 2),
    "to_varchar": _CHAR,
    "try_to_number": Function(_to_number(is_tried=True), 2, 2),
}
