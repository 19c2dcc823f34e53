"""Functions of text that are seldom needed: masks, distances, addresses, checks."""

from __future__ import annotations

import re
from collections.abc import Sequence
from urllib.parse import quote_plus, unquote_to_bytes

import pyarrow as pa

from holdfast.api.expressions.signatures import ANY, Function, bigint, fixed, integer, rows, string
from holdfast.api.expressions.values import (
    EvaluationError,
    Value,
    constant,
    derived,
    derived_from_all,
    per_distinct,
    per_row_with_nulls,
)
from holdfast.errors import DataflowError, UnsupportedError

_MASKS = ("X", "x", "n", None)
"""What stands for capitals, small letters, digits, and all else, which is kept."""


def _mask(args: Sequence[Value], text: str) -> Value:
    value = string(args[0], text)
    masks = [*_MASKS]
    for at, arg in enumerate(args[1:]):
        mask = fixed(string(arg, text), text)
        if mask is not None and len(mask) != 1:
            raise DataflowError(f"{text}: {arg.text} is one character, or NULL")
        masks[at] = mask
    if any(mask is not None and ord(mask) > 0xFFFF for mask in masks):
        raise UnsupportedError(f"{text}: a mask of two UTF-16 characters")
    upper, lower, digit, other = masks

    def masked(character: str) -> str:
        if ord(character) > 0xFFFF:  # To Java it is of no kind.
            return character if other is None else other
        if character.isupper():
            return character if upper is None else upper
        if character.islower():
            return character if lower is None else lower
        if character.isdecimal():
            return character if digit is None else digit
        return character if other is None else other

    of_text = per_distinct(lambda given: "".join(map(masked, given)), pa.string())
    return derived(pa.string(), text, of_text, value)


def _elt(args: Sequence[Value], text: str) -> Value:
    number, *texts = integer(args[0], text), *(string(arg, text) for arg in args[1:])

    def chosen(at: int | None, *values: str | None) -> str | None:
        if at is None:
            return None
        if not 1 <= at <= len(values):
            raise EvaluationError(f"there is no {at}th of {len(values)}")
        return values[at - 1]

    if not all(value.is_total for value in texts):
        raise UnsupportedError(f"{text}: elt of what may fail; write CASE")
    choose = per_row_with_nulls(chosen, pa.string())
    if number.is_null:
        return constant(pa.scalar(None, pa.string()), text)
    return derived_from_all(pa.string(), text, choose, number, *texts, is_total=False)


def _find_in_set(word: str, words: str) -> int:
    listed = words.split(",")
    return listed.index(word) + 1 if "," not in word and word in listed else 0


def _distance(left: str, right: str) -> int:
    before = list(range(len(right) + 1))
    for at, character in enumerate(left, 1):
        here = [at]
        for place, other in enumerate(right, 1):
            changed = before[place - 1] + (character != other)
            here.append(min(before[place] + 1, here[-1] + 1, changed))
        before = here
    return before[-1]


def _levenshtein(args: Sequence[Value], text: str) -> Value:
    """With a threshold, -1 for a greater distance. Spark has no one answer for one that is null."""
    most = fixed(integer(args[2], text), text) if len(args) == 3 else 2**31 - 1
    if most is None:
        raise UnsupportedError(f"{text}: the threshold is NULL")

    def distance(left: str, right: str) -> int:
        found = _distance(left, right)
        return found if found <= most else -1

    return rows(_INT, distance, string, string)(args[:2], text)


def _luhn(text: str) -> bool:
    if not re.fullmatch("[0-9]+", text):
        return False
    total = 0
    for at, digit in enumerate(reversed(text)):
        twice = int(digit) * (1 + at % 2)
        total += twice - 9 if twice > 9 else twice
    return total % 10 == 0


def _chr(code: int) -> str:
    return "" if code < 0 else chr(code & 0xFF)


def _url_decoded(text: str) -> str:
    if re.search("%(?![0-9a-fA-F]{2})", text):
        raise EvaluationError(f"{text!r} is no URL-encoded text")
    return unquote_to_bytes(text.replace("+", " ")).decode(errors="replace")


def _try_url_decoded(text: str) -> str | None:
    try:
        return _url_decoded(text)
    except EvaluationError:
        return None


def _url_encoded(text: str) -> str:
    return quote_plus(text, safe="*").replace("~", "%7E")


_TEXT, _INT = pa.string(), pa.int32()
_CHR = Function(rows(_TEXT, _chr, bigint), 1, 1)

FUNCTIONS: dict[str, Function] = {
    "char": _CHR,
    "chr": _CHR,
    "elt": Function(_elt, 2, ANY),
    "find_in_set": Function(rows(_INT, _find_in_set, string, string), 2, 2),
    "levenshtein": Function(_levenshtein, 2, 3),
    "luhn_check": Function(rows(pa.bool_(), _luhn, string), 1, 1),
    "mask": Function(_mask, 1, 5),
    "quote": Function(rows(_TEXT, lambda s: "'" + s.replace("'", "\\'") + "'", string), 1, 1),
    "space": Function(rows(_TEXT, lambda n: " " * _few(n), integer, is_total=False), 1, 1),
    "try_url_decode": Function(rows(_TEXT, _try_url_decoded, string), 1, 1),
    "url_decode": Function(rows(_TEXT, _url_decoded, string, is_total=False), 1, 1),
    "url_encode": Function(rows(_TEXT, _url_encoded, string), 1, 1),
}


def _few(count: int) -> int:
    if count > 2**27:
        raise EvaluationError(f"a text of {count} characters")
    return max(count, 0)
