"""Functions of text."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.api.expressions.signatures import ANY, Build, Function, integer, kernel, rows, string
from holdfast.api.expressions.values import (
    Column,
    EvaluationError,
    Value,
    derived_from_all,
    per_distinct,
    per_row_with_nulls,
)

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


def _substring(text: str, start: int, length: int = 2**31 - 1) -> str:
    """From a position that counts from 1, or from the end if it is negative."""
    size = len(text)
    begin = start - 1 if start > 0 else size + start if start < 0 else 0
    end = size if length == 2**31 - 1 else begin + length
    return text[max(begin, 0) : end] if end > max(begin, 0) else ""


def _left(text: str, length: int) -> str:
    return text[:length] if length > 0 else ""


def _right(text: str, length: int) -> str:
    return text[-length:] if length > 0 else ""


def _bounded(count: int, what: str) -> int:
    if count > _LONGEST:
        raise EvaluationError(f"{what} of {count} characters")
    return count


def _repeated(text: str, times: int) -> str:
    _bounded(len(text) * max(times, 0), "a text")
    return text * times


def _padded(text: str, width: int, fill: str, *, is_left: bool) -> str:
    room = _bounded(width, "padding") - len(text)
    if room <= 0 or not fill:
        return text[: max(width, 0)]
    padding = (fill * (room // len(fill) + 1))[:room]
    return padding + text if is_left else text + padding


def _lpad(text: str, width: int, fill: str = " ") -> str:
    return _padded(text, width, fill, is_left=True)


def _rpad(text: str, width: int, fill: str = " ") -> str:
    return _padded(text, width, fill, is_left=False)


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


def _overlaid(text: str, replacement: str, start: int, length: int = -1) -> str:
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


_TEXT, _INT, _FLAG = pa.string(), pa.int32(), pa.bool_()

_LENGTH = Function(kernel(_INT, pc.utf8_length, string), 1, 1)
_UPPER = Function(_cased(pc.ascii_upper, str.upper), 1, 1)
_LOWER = Function(_cased(pc.ascii_lower, str.lower), 1, 1)
_TRIM = rows(_TEXT, _stripped(str.strip), string, string)
_LTRIM = rows(_TEXT, _stripped(str.lstrip), string, string)
_RTRIM = rows(_TEXT, _stripped(str.rstrip), string, string)

REVERSE = rows(_TEXT, lambda s: s[::-1], string)

FUNCTIONS: dict[str, Function] = {
    "ascii": Function(rows(_INT, lambda s: ord(s[0]) if s else 0, string), 1, 1),
    "bit_length": Function(rows(_INT, lambda s: len(s.encode()) * 8, string), 1, 1),
    "btrim": Function(_TRIM, 1, 2),
    "char_length": _LENGTH,
    "character_length": _LENGTH,
    "concat_ws": Function(_concat_ws, 1, ANY),
    "contains": Function(rows(_FLAG, lambda s, part: part in s, string, string), 2, 2),
    "endswith": Function(rows(_FLAG, str.endswith, string, string), 2, 2),
    "instr": Function(rows(_INT, lambda s, part: s.find(part) + 1, string, string), 2, 2),
    "lcase": _LOWER,
    "left": Function(rows(_TEXT, _left, string, integer), 2, 2),
    "len": _LENGTH,
    "length": _LENGTH,
    "locate": Function(rows(_INT, _located, string, string, integer), 2, 3),
    "lower": _LOWER,
    "lpad": Function(rows(_TEXT, _lpad, string, integer, string, is_total=False), 2, 3),
    "ltrim": Function(kernel(_TEXT, lambda c: pc.utf8_ltrim(c, characters=" "), string), 1, 1),
    "octet_length": Function(rows(_INT, lambda s: len(s.encode()), string), 1, 1),
    "overlay": Function(rows(_TEXT, _overlaid, string, string, integer, integer), 3, 4),
    "position": Function(rows(_INT, _located, string, string, integer), 2, 3),
    "repeat": Function(rows(_TEXT, _repeated, string, integer, is_total=False), 2, 2),
    "replace": Function(rows(_TEXT, _replaced, string, string, string), 2, 3),
    "right": Function(rows(_TEXT, _right, string, integer), 2, 2),
    "rpad": Function(rows(_TEXT, _rpad, string, integer, string, is_total=False), 2, 3),
    "rtrim": Function(kernel(_TEXT, lambda c: pc.utf8_rtrim(c, characters=" "), string), 1, 1),
    "split_part": Function(rows(_TEXT, _split_part, string, string, integer, is_total=False), 3, 3),
    "startswith": Function(rows(_FLAG, str.startswith, string, string), 2, 2),
    "substr": Function(rows(_TEXT, _substring, string, integer, integer), 2, 3),
    "substring_index": Function(rows(_TEXT, _substring_index, string, string, integer), 3, 3),
    "substring": Function(rows(_TEXT, _substring, string, integer, integer), 2, 3),
    "trim": Function(kernel(_TEXT, lambda c: pc.utf8_trim(c, characters=" "), string), 1, 1),
    "translate": Function(rows(_TEXT, _translated, string, string, string), 3, 3),
    "trim from": Function(_TRIM, 1, 2),
    "ltrim from": Function(_LTRIM, 1, 2),
    "rtrim from": Function(_RTRIM, 1, 2),
    "ucase": _UPPER,
    "upper": _UPPER,
}
