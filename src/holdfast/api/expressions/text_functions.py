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


def _concat(args: Sequence[Value], text: str) -> Value:
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


_TEXT, _INT, _FLAG = pa.string(), pa.int32(), pa.bool_()

FUNCTIONS: dict[str, Function] = {
    "char_length": Function(kernel(_INT, pc.utf8_length, string), 1, 1),
    "concat": Function(_concat, 1, ANY),
    "contains": Function(rows(_FLAG, lambda s, part: part in s, string, string), 2, 2),
    "endswith": Function(rows(_FLAG, str.endswith, string, string), 2, 2),
    "instr": Function(rows(_INT, lambda s, part: s.find(part) + 1, string, string), 2, 2),
    "left": Function(rows(_TEXT, _left, string, integer), 2, 2),
    "length": Function(kernel(_INT, pc.utf8_length, string), 1, 1),
    "locate": Function(rows(_INT, _located, string, string, integer), 2, 3),
    "lower": Function(_cased(pc.ascii_lower, str.lower), 1, 1),
    "lpad": Function(rows(_TEXT, _lpad, string, integer, string, is_total=False), 2, 3),
    "ltrim": Function(kernel(_TEXT, lambda c: pc.utf8_ltrim(c, characters=" "), string), 1, 1),
    "repeat": Function(rows(_TEXT, _repeated, string, integer, is_total=False), 2, 2),
    "replace": Function(rows(_TEXT, _replaced, string, string, string), 2, 3),
    "reverse": Function(rows(_TEXT, lambda s: s[::-1], string), 1, 1),
    "right": Function(rows(_TEXT, _right, string, integer), 2, 2),
    "rpad": Function(rows(_TEXT, _rpad, string, integer, string, is_total=False), 2, 3),
    "rtrim": Function(kernel(_TEXT, lambda c: pc.utf8_rtrim(c, characters=" "), string), 1, 1),
    "startswith": Function(rows(_FLAG, str.startswith, string, string), 2, 2),
    "substr": Function(rows(_TEXT, _substring, string, integer, integer), 2, 3),
    "substring": Function(rows(_TEXT, _substring, string, integer, integer), 2, 3),
    "trim": Function(kernel(_TEXT, lambda c: pc.utf8_trim(c, characters=" "), string), 1, 1),
    "upper": Function(_cased(pc.ascii_upper, str.upper), 1, 1),
}
