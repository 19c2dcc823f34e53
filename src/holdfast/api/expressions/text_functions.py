"""Functions of text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.api.expressions.casts import coerce
from holdfast.api.expressions.signatures import ANY, Build, Function, integer, kernel, rows, string
from holdfast.api.expressions.types import name_of
from holdfast.api.expressions.values import (
    Column,
    EvaluationError,
    Value,
    derived_from_all,
    per_distinct,
    per_row_with_nulls,
)
from holdfast.errors import DataflowError

_T = TypeVar("_T", str, bytes)
_LONGEST = 2**27
"""Characters of a text that a function may make: far beyond what a row of a stream should hold."""


def _cased(ascii_kernel: Callable[..., Column], full: Callable[[str], str]) -> Build:
    """Arrow's case mapping is quick and right for ASCII; Python's is full Unicode, as ICU's."""
    slow = per_distinct(full, pa.string())

    def compute(column: Column) -> Column:
        is_ascii = pc.equal(pc.binary_length(column), pc.utf8_length(column))
        if isinstance(is_ascii, pa.Scalar):
            return slow(column)
        return ascii_kernel(column) if pc.all(is_ascii).as_py() is not False else slow(column)

    return kernel(pa.string(), compute, string)


def concatenated(args: Sequence[Value], text: str) -> Value:
    """Null if one is null; unlike other functions, all are evaluated."""
    strings = [string(arg, text) for arg in args]
    return derived_from_all(
        pa.string(), text, lambda *columns: pc.binary_join_element_wise(*columns, ""), *strings
    )


def _substring(text: _T, start: int, length: int = 2**31 - 1) -> _T:
    """From a position that counts from 1, or from the end if it is negative."""
    size = len(text)
    begin = start - 1 if start > 0 else size + start if start < 0 else 0
    end = size if length == 2**31 - 1 else begin + length
    return text[max(begin, 0) : max(end, begin, 0)]


def _left(text: _T, length: int) -> _T:
    return text[: max(length, 0)]


def _right(text: str, length: int) -> str:
    return text[-length:] if length > 0 else ""


def _bounded(count: int, what: str) -> int:
    if count > _LONGEST:
        raise EvaluationError(f"{what} of {count} characters")
    return count


def _repeated(text: str, times: int) -> str:
    _bounded(len(text) * max(times, 0), "a text")
    return text * times


def _padded(text: _T, width: int, fill: _T, *, is_left: bool) -> _T:
    room = _bounded(width, "padding") - len(text)
    if room <= 0 or not fill:
        return text[: max(width, 0)]
    padding = (fill * (room // len(fill) + 1))[:room]
    return padding + text if is_left else text + padding


def _replaced(text: str, search: str, replacement: str = "") -> str:
    return text.replace(search, replacement) if search else text


def _located(part: str, text: str, start: int = 1) -> int:
    """The position from 1; 0: it is not there, or the search would start before the text."""
    if start < 1:
        return 0
    return text.find(part, start - 1) + 1 if start <= len(text) + 1 else 0


def _stripped(strip: Callable[[str, str], str]) -> Callable[..., str]:
    """Without the characters at an end; none given are none."""
    return lambda text, characters=" ": strip(text, characters) if characters else text


def _substring_index(text: str, delimiter: str, count: int) -> str:
    """What stands before the delimiter that is the count-th from the left, or from the right."""
    if not delimiter or count == 0:
        return ""
    if count > 0:
        return delimiter.join(text.split(delimiter)[:count])
    return delimiter.join(text.rsplit(delimiter)[count:])


def _translated(text: str, of: str, to: str) -> str:
    """Characters replaced one by one; those without a counterpart are left out."""
    table: dict[int, str | None] = {}
    for index, character in enumerate(of):
        table.setdefault(ord(character), to[index] if index < len(to) else None)
    return text.translate(table)


def _split_part(text: str, delimiter: str, part: int) -> str:
    """The part-th from the left or right; beyond the ends it is empty."""
    if part == 0:
        raise EvaluationError("the parts of a text are counted from 1")
    parts = text.split(delimiter) if delimiter else [text]
    index = part - 1 if part > 0 else len(parts) + part
    return parts[index] if 0 <= index < len(parts) else ""


def _overlaid(text: _T, replacement: _T, start: int, length: int = -1) -> _T:
    """The characters from a position on replaced; as many as come, if no length is given."""
    count = length if length >= 0 else len(replacement)
    return _substring(text, 1, start - 1) + replacement + _substring(text, start + count)


def _concat_ws(args: Sequence[Value], text: str) -> Value:
    """With a separator between; nulls are left out."""
    separator, *strings = (string(arg, text) for arg in args)

    def join(between: str | None, *parts: str | None) -> str | None:
        return None if between is None else between.join(part for part in parts if part is not None)

    return derived_from_all(
        pa.string(), text, per_row_with_nulls(join, pa.string()), separator, *strings
    )


def _binary(value: Value, text: str) -> Value:
    if not (pa.types.is_binary(value.type) or pa.types.is_null(value.type)):
        raise DataflowError(f"{text}: {value.text} is {name_of(value.type)}, not BINARY")
    return coerce(value, pa.binary())


def _by_type(of_text: Build, of_bytes: Build) -> Build:
    """Another function of BINARY, whose places are those of bytes."""

    def build(args: Sequence[Value], text: str) -> Value:
        of = of_bytes if pa.types.is_binary(args[0].type) else of_text
        return of(args, text)

    return build


def _padding(*, is_left: bool) -> Build:
    """`lpad` and `rpad`: texts with spaces, bytes with zeros, if nothing else is given."""

    def of_text(given: str, width: int, fill: str = " ") -> str:
        return _padded(given, width, fill, is_left=is_left)

    def of_bytes(given: bytes, width: int, fill: bytes = b"\0") -> bytes:
        return _padded(given, width, fill, is_left=is_left)

    return _by_type(
        rows(pa.string(), of_text, string, integer, string, is_total=False),
        rows(pa.binary(), of_bytes, _binary, integer, _binary, is_total=False),
    )


_TEXT, _INT, _FLAG = pa.string(), pa.int32(), pa.bool_()

_BYTES = pa.binary()
_LENGTH = Function(
    _by_type(kernel(_INT, pc.utf8_length, string), kernel(_INT, pc.binary_length, _binary)), 1, 1
)
_SUBSTRING = Function(
    _by_type(
        rows(_TEXT, _substring, string, integer, integer),
        rows(_BYTES, _substring, _binary, integer, integer),
    ),
    2,
    3,
)
_UPPER = Function(_cased(pc.ascii_upper, str.upper), 1, 1)
_LOWER = Function(_cased(pc.ascii_lower, str.lower), 1, 1)
_TRIM = rows(_TEXT, _stripped(str.strip), string, string)
_LTRIM = rows(_TEXT, _stripped(str.lstrip), string, string)
_RTRIM = rows(_TEXT, _stripped(str.rstrip), string, string)

REVERSE = _by_type(rows(_TEXT, lambda s: s[::-1], string), rows(_BYTES, lambda b: b[::-1], _binary))

FUNCTIONS: dict[str, Function] = {
    "ascii": Function(rows(_INT, lambda s: ord(s[0]) if s else 0, string), 1, 1),
    "bit_length": Function(
        _by_type(
            rows(_INT, lambda s: len(s.encode()) * 8, string),
            rows(_INT, lambda b: len(b) * 8, _binary),
        ),
        1,
        1,
    ),
    "btrim": Function(_TRIM, 1, 2),
    "char_length": _LENGTH,
    "character_length": _LENGTH,
    "concat_ws": Function(_concat_ws, 1, ANY),
    "contains": Function(rows(_FLAG, lambda s, part: part in s, string, string), 2, 2),
    "endswith": Function(rows(_FLAG, str.endswith, string, string), 2, 2),
    "instr": Function(rows(_INT, lambda s, part: s.find(part) + 1, string, string), 2, 2),
    "lcase": _LOWER,
    "left": Function(
        _by_type(rows(_TEXT, _left, string, integer), rows(_BYTES, _left, _binary, integer)),
        2,
        2,
    ),
    "len": _LENGTH,
    "length": _LENGTH,
    "locate": Function(rows(_INT, _located, string, string, integer), 2, 3),
    "lower": _LOWER,
    "lpad": Function(_padding(is_left=True), 2, 3),
    "ltrim": Function(kernel(_TEXT, lambda c: pc.utf8_ltrim(c, characters=" "), string), 1, 1),
    "octet_length": Function(
        _by_type(rows(_INT, lambda s: len(s.encode()), string), rows(_INT, len, _binary)), 1, 1
    ),
    "overlay": Function(
        _by_type(
            rows(_TEXT, _overlaid, string, string, integer, integer),
            rows(_BYTES, _overlaid, _binary, _binary, integer, integer),
        ),
        3,
        4,
    ),
    "position": Function(rows(_INT, _located, string, string, integer), 2, 3),
    "repeat": Function(rows(_TEXT, _repeated, string, integer, is_total=False), 2, 2),
    "replace": Function(rows(_TEXT, _replaced, string, string, string), 2, 3),
    "right": Function(rows(_TEXT, _right, string, integer), 2, 2),
    "rpad": Function(_padding(is_left=False), 2, 3),
    "rtrim": Function(kernel(_TEXT, lambda c: pc.utf8_rtrim(c, characters=" "), string), 1, 1),
    "split_part": Function(rows(_TEXT, _split_part, string, string, integer, is_total=False), 3, 3),
    "startswith": Function(rows(_FLAG, str.startswith, string, string), 2, 2),
    "substr": _SUBSTRING,
    "substring_index": Function(rows(_TEXT, _substring_index, string, string, integer), 3, 3),
    "substring": _SUBSTRING,
    "trim": Function(kernel(_TEXT, lambda c: pc.utf8_trim(c, characters=" "), string), 1, 1),
    "translate": Function(rows(_TEXT, _translated, string, string, string), 3, 3),
    "trim from": Function(_TRIM, 1, 2),
    "ltrim from": Function(_LTRIM, 1, 2),
    "rtrim from": Function(_RTRIM, 1, 2),
    "ucase": _UPPER,
    "upper": _UPPER,
}
