"""JSON as Jackson reads it for Spark: single quotes pass, and so does what stands behind it."""

from __future__ import annotations

import decimal
import json
import math
import re
from dataclasses import dataclass
from typing import Any

_SPACES = re.compile(r"[ \t\n\r]*")
_NUMBER = re.compile(
    r"-?(?:0|[1-9]\d*)(?P<part>\.\d+)?(?P<power>[eE][+-]?\d+)?(?![\w.+\-])", re.ASCII
)
_WORD = re.compile(r"(?:true|false|null)(?![\w])")
_ODD = re.compile(r"(?:NaN|[+-]INF|[+-]?Infinity)(?![\w])")
_WORDS = {"true": True, "false": False, "null": None}
_ESCAPES = {
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    '"': '"',
    "'": "'",
    "\\": "\\",
    "/": "/",
}
_DEEPEST = 500
_SHORT = {"\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r", '"': '\\"', "\\": "\\\\"}
_BEYOND = re.compile("[\U00010000-\U0010ffff]")
_SPECIAL = re.compile(r'[\x00-\x1f"\\]')


class NoJson(ValueError):
    """The text is no JSON."""


@dataclass(frozen=True, slots=True)
class Number:
    """A number as it is written, without a sign before 0."""

    text: str
    is_whole: bool


@dataclass(frozen=True, slots=True)
class Odd:
    """A number that JSON has not, as Java writes it: `NaN`, `Infinity`, `-Infinity`."""

    text: str


@dataclass(frozen=True, slots=True)
class Object:
    """Names with their values, in their order; a name may stand there twice."""

    fields: tuple[tuple[str, Any], ...]


def value_of(text: str, *, takes_controls: bool) -> Any:
    """The first value in a text: an `Object`, list, `Number`, `Odd`, str, bool or None.

    Args:
        text: What is read.
        takes_controls: Whether control characters may stand in strings; if not, `NaN` and the like
            are read.

    Raises:
        NoJson: There is none.
    """
    return _Reader(text, takes_controls=takes_controls).value(0)


class _Reader:
    """A text, read from left to right."""

    def __init__(self, text: str, *, takes_controls: bool) -> None:
        self._text = text
        self._at = 0
        self._takes_controls = takes_controls

    def _next(self) -> str:
        """The next character that is no space, which is left there; "" at the end."""
        spaces = _SPACES.match(self._text, self._at)
        self._at = spaces.end() if spaces else self._at
        return self._text[self._at : self._at + 1]

    def value(self, depth: int) -> Any:
        """One value."""
        if depth > _DEEPEST:
            raise NoJson("nested too deep")
        first = self._next()
        if first == "{":
            return self._object(depth)
        if first == "[":
            return self._array(depth)
        if first and first in "'\"":
            return self._string(first)
        if number := _NUMBER.match(self._text, self._at):
            self._at = number.end()
            is_whole = number["part"] is None and number["power"] is None
            return Number("0" if number[0] == "-0" else number[0], is_whole)
        odd = None if self._takes_controls else _ODD.match(self._text, self._at)
        if odd is not None:
            self._at = odd.end()
            sign = "-" if odd[0][0] == "-" else ""
            return Odd("NaN" if odd[0] == "NaN" else f"{sign}Infinity")
        word = _WORD.match(self._text, self._at)
        if word is None:
            raise NoJson(f"no value at {self._at}")
        self._at = word.end()
        return _WORDS[word[0]]

    def _object(self, depth: int) -> Object:
        self._at += 1
        fields: list[tuple[str, Any]] = []
        if self._next() == "}":
            self._at += 1
            return Object(())
        while True:
            quote = self._next()
            if not quote or quote not in "'\"":
                raise NoJson("a name is missing")
            name = self._string(quote)
            if self._next() != ":":
                raise NoJson("a colon is missing")
            self._at += 1
            fields.append((name, self.value(depth + 1)))
            if self._ends("}"):
                return Object(tuple(fields))

    def _array(self, depth: int) -> list[Any]:
        self._at += 1
        items: list[Any] = []
        if self._next() == "]":
            self._at += 1
            return items
        while True:
            items.append(self.value(depth + 1))
            if self._ends("]"):
                return items

    def _ends(self, bracket: str) -> bool:
        following = self._next()
        self._at += 1
        if following not in (",", bracket) or not following:
            raise NoJson("a comma is missing")
        return following == bracket

    def _string(self, quote: str) -> str:
        parts: list[str] = []
        at = self._at + 1
        while True:
            character = self._text[at : at + 1]
            if not character or (character < " " and not self._takes_controls):
                raise NoJson("a string is open")
            at += 1
            if character == quote:
                break
            if character == "\\":
                escaped = self._text[at : at + 1]
                if escaped == "u":
                    code = self._text[at + 1 : at + 5]
                    if not re.fullmatch("[0-9a-fA-F]{4}", code):
                        raise NoJson("no character")
                    parts.append(chr(int(code, 16)))
                    at += 5
                    continue
                if escaped not in _ESCAPES or not escaped:
                    raise NoJson("no escape")
                character = _ESCAPES[escaped]
                at += 1
            parts.append(character)
        self._at = at
        text = "".join(parts)
        if any(0xD800 <= ord(each) < 0xE000 for each in parts):
            try:
                text = text.encode("utf-16", "surrogatepass").decode("utf-16")
            except UnicodeDecodeError:
                raise NoJson("half a character") from None
        return text


def quoted(text: str) -> str:
    """A string as Jackson writes it."""
    return '"' + _SPECIAL.sub(lambda m: _SHORT.get(m[0], f"\\u{ord(m[0]):04X}"), text) + '"'


def written(value: Any) -> str:
    """A value as Jackson writes it, without spaces."""
    if isinstance(value, Object):
        return "{" + ",".join(f"{quoted(n)}:{written(v)}" for n, v in value.fields) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(written, value)) + "]"
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, Number):
        return value.text if value.is_whole else real(float(value.text))
    if isinstance(value, Odd):
        return f'"{value.text}"'
    return json.dumps(value)


def escaped(text: str) -> str:
    """Characters beyond the first 65,536 as two escapes, as Jackson's copies have them."""
    return _BEYOND.sub(lambda m: "".join(f"\\u{unit:04X}" for unit in _units(m[0])), text)


def _units(character: str) -> tuple[int, int]:
    high, low = divmod(ord(character) - 0x10000, 0x400)
    return 0xD800 + high, 0xDC00 + low


def real(number: float) -> str:
    """A number as Java prints it."""
    if not math.isfinite(number):
        raise NoJson("no number")
    if number == 0 or 1e-3 <= abs(number) < 1e7:
        return repr(number)
    sign, digits, exponent = decimal.Decimal(repr(number)).normalize().as_tuple()
    first, *rest = map(str, digits)
    power = len(digits) - 1 + int(exponent)
    return f"{'-' * sign}{first}.{''.join(rest) or '0'}E{power}"
