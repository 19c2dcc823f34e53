"""Java's regular expressions as Python's: the common part of both, character by character.

What the two read differently, or read alike and match differently, is refused by name: Unicode
classes, word boundaries (they changed with Java 19), nested character classes, flags but `(?i)` and
`(?s)` at the beginning. [java.util.regex.Pattern]
"""

from __future__ import annotations

import re
import warnings
from typing import NoReturn

from holdfast.errors import UnsupportedError

_ENDS = "\n\r\u0085\u2028\u2029"
_ANY = f"[^{_ENDS}]"
_LAST = r"(?=(?:\r\n|(?<!\r)\n|[\r\u0085\u2028\u2029])?\Z)"
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "a": "\a", "e": "\x1b"}
_CLASSES = "dDwWsS"
_POSIX = {
    "Lower": "a-z",
    "Upper": "A-Z",
    "ASCII": "\\x00-\\x7f",
    "Alpha": "a-zA-Z",
    "Digit": "0-9",
    "Alnum": "a-zA-Z0-9",
    "Punct": r"!-/:-@\[-`{-~",
    "Space": r" \t\n\x0b\f\r",
    "XDigit": "0-9a-fA-F",
}
_GROUPS = ("?:", "?=", "?!", "?<=", "?<!", "?>")
_COUNT = re.compile(r"\{\d{1,4}(,\d{0,4})?\}", re.ASCII)
_NAMED = re.compile(r"\?<([a-zA-Z][a-zA-Z0-9]*)>")
_CODE = re.compile(r"x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|0([0-3]?[0-7]{1,2})")
_FLAGS = re.compile(r"\(\?([is]+)\)")


def from_java(pattern: str, text: str) -> re.Pattern[str]:
    """Compile a pattern of Java's.

    Args:
        pattern: The pattern.
        text: The expression, for messages.

    Raises:
        UnsupportedError: It is no pattern, or one that might match otherwise here.
    """
    return _Translation(pattern, text).compiled()


class _Translation:
    """Reads one pattern from left to right and writes Python's."""

    def __init__(self, pattern: str, text: str) -> None:
        self._pattern = pattern
        self._text = text
        self._at = 0
        self._written: list[str] = []
        self._groups = 0
        self._any = _ANY
        self._flags = int(re.ASCII)

    def _refuse(self, what: str) -> NoReturn:
        raise UnsupportedError(f"{self._text}: {what} in a regular expression is not supported")

    def compiled(self) -> re.Pattern[str]:
        if match := _FLAGS.match(self._pattern):
            self._flags |= re.IGNORECASE if "i" in match[1] else 0
            self._any = r"[\s\S]" if "s" in match[1] else _ANY
            self._at = match.end()
        while self._at < len(self._pattern):
            self._one()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                return re.compile("".join(self._written), self._flags)
        except (re.error, Warning, OverflowError, RecursionError) as error:
            self._refuse(f"{self._pattern!r} ({error})")

    def _one(self) -> None:
        character = self._pattern[self._at]
        self._at += 1
        match character:
            case "\\":
                self._written.append(self._escape())
            case "[":
                self._written.append(self._class())
            case "(":
                self._group()
            case ".":
                self._written.append(self._any)
            case "$":
                self._written.append(_LAST)
            case "{":
                self._at -= 1
                count = _COUNT.match(self._pattern, self._at)
                if count is None:
                    self._refuse(f"{self._pattern[self._at :][:10]!r}")
                self._written.append(count[0])
                self._at = count.end()
            case "^" | "|" | ")" | "*" | "+" | "?":
                self._written.append(character)
            case _:
                self._written.append(re.escape(character))

    def _group(self) -> None:
        rest = self._pattern[self._at :]
        if not rest.startswith("?"):
            self._groups += 1
            self._written.append("(")
            return
        if named := _NAMED.match(rest):
            self._groups += 1
            self._written.append(f"(?P<{named[1]}>")
            self._at += named.end()
            return
        kind = next((each for each in _GROUPS if rest.startswith(each)), None)
        if kind is None:
            self._refuse(f"({rest[:3]}")
        self._written.append(f"({kind}")
        self._at += len(kind)

    def _escape(self) -> str:
        """What a backslash begins, outside of a class."""
        rest = self._pattern[self._at :]
        if not rest:
            self._refuse("a backslash at the end")
        if rest[0] in "AzZ":
            self._at += 1
            return {"A": r"\A", "z": r"\Z", "Z": _LAST}[rest[0]]
        if rest[0] == "Q":
            end = self._pattern.find("\\E", self._at)
            quoted = self._pattern[self._at + 1 : end if end >= 0 else None]
            self._at = end + 2 if end >= 0 else len(self._pattern)
            return re.escape(quoted)
        if rest[0] in "123456789":
            if int(rest[0]) > self._groups or rest[1:2].isdigit():
                self._refuse(f"\\{rest[:2]}")
            self._at += 1
            return f"(?:\\{rest[0]})"
        found = self._escaped_class()
        return found if found is not None else re.escape(self._character())

    def _escaped_class(self) -> str | None:
        """`\\d` and the like, and POSIX classes in brackets; None: it is a character."""
        rest = self._pattern[self._at :]
        if rest[:1] and rest[0] in _CLASSES:
            self._at += 1
            return f"\\{rest[0]}"
        if rest[:1] and rest[0] in "pP":
            name = re.match(r"[pP]\{(\w+)\}", rest)
            is_folded = self._flags & re.IGNORECASE  # Java folds some of these, not all.
            if name is None or name[1] not in _POSIX or rest[0] == "P" or is_folded:
                self._refuse(f"\\{rest[:8]}")
            self._at += name.end()
            return f"[{_POSIX[name[1]]}]"
        return None

    def _character(self) -> str:
        """The character behind a backslash."""
        rest = self._pattern[self._at :]
        if not rest:
            self._refuse("a backslash at the end")
        if code := _CODE.match(rest):
            self._at += code.end()
            number = int(code[1] or code[2] or "0", 16) if code[3] is None else int(code[3], 8)
            if 0xD800 <= number < 0xE000:
                self._refuse(f"\\{code[0]}")
            return chr(number)
        self._at += 1
        if rest[0] in _CONTROLS:
            return _CONTROLS[rest[0]]
        if rest[0].isalnum() or not rest[0].isascii():
            self._refuse(f"\\{rest[0]}")
        return rest[0]

    def _class(self) -> str:
        """`[...]`: characters, ranges, classes; Java's can nest and intersect, which is refused."""
        parts = ["["]
        if self._pattern[self._at : self._at + 1] == "^":
            self._at += 1
            parts.append("^")
        is_first = True
        while True:
            here = self._pattern[self._at : self._at + 1]
            if not here or here == "[" or self._pattern[self._at :].startswith("&&"):
                self._refuse("a class that is not closed, nests or intersects")
            if here == "]":
                if is_first:
                    self._refuse("a class that begins with ]")
                self._at += 1
                return "".join([*parts, "]"])
            parts.append(self._member())
            is_first = False

    def _member(self) -> str:
        """A member of a class: a class itself, a character, or a range of them."""
        first = self._one_of_class()
        ahead = self._pattern[self._at : self._at + 2]
        if ahead[:1] != "-" or ahead[1:] in ("]", ""):
            return first
        self._at += 1
        if len(first) > 2 or ahead[1] == "[":
            self._refuse("a range of classes")
        last = self._one_of_class()
        if len(last) > 2 or (last[0] == "\\" and last[1] in _CLASSES):
            self._refuse("a range of classes")
        if first[0] == "\\" and first[1] in _CLASSES:
            self._refuse("a range of classes")
        return f"{first}-{last}"

    def _one_of_class(self) -> str:
        here = self._pattern[self._at]
        self._at += 1
        if here != "\\":
            return self._inside(here)
        found = self._escaped_class()
        if found is not None:
            return found[1:-1] if found[0] == "[" else found
        return self._inside(self._character())

    @staticmethod
    def _inside(character: str) -> str:
        return f"\\{character}" if character in "\\]^-[&~|" else character


def from_like(pattern: str, escape: str) -> re.Pattern[str] | None:
    """A pattern of LIKE; None: its escape character stands before what needs none."""
    written = []
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            following = next(characters, None)
            if following is None or following not in ("_", "%", escape):
                return None
            written.append(re.escape(following))
        elif character in "%_":
            written.append({"%": ".*", "_": "."}[character])
        else:
            written.append(re.escape(character))
    return re.compile("".join(written), re.DOTALL)
