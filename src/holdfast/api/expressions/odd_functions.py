"""What is seldom needed: numerals of other bases, remainders above zero, names, sounds, pairs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from holdfast.api.expressions import logic
from holdfast.api.expressions.bit_functions import signed
from holdfast.api.expressions.casts import coerce
from holdfast.api.expressions.regexp_functions import split_by
from holdfast.api.expressions.signatures import ANY, Function, fixed, integer, rows, string
from holdfast.api.expressions.types import common_type, holds_interval, is_number, name_of
from holdfast.api.expressions.values import EvaluationError, Value, constant, derived, per_row
from holdfast.errors import UnsupportedError

_TEXT = pa.string()
_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_SOUNDS = dict(zip("ABCDEFGHIJKLMNOPQRSTUVWXYZ", "01230127022455012623017202", strict=True))
_LEAVES_SOUND = "7"
"""Of H and W, which part no equal sounds."""


def _converted(numeral: str, of: int, to: int) -> str | None:
    """A numeral of one base in another; a negative base gives a negative number its sign."""
    if not 2 <= of <= 36 or not 2 <= abs(to) <= 36:
        return None
    plain = numeral.strip(" ")
    if not plain:
        return None
    is_negative = plain[0] == "-"
    number = 0
    for character in plain[is_negative:]:
        digit = _DIGITS.find(character.upper()) if character.isascii() else -1
        if not 0 <= digit < of:
            break
        number = number * of + digit
        if number >= 2**64:
            raise EvaluationError(f"{numeral!r} has more than 64 bits")
    if is_negative and to > 0:
        value = signed(number, 64)
        number = 2**64 - 1 if value < 0 else -value & (2**64 - 1)
    if to < 0 and signed(number, 64) < 0:
        number, is_negative = -signed(number, 64), True
    digits = ""
    while number:
        number, digit = divmod(number, abs(to))
        digits = _DIGITS[digit] + digits
    return ("-" if is_negative and to < 0 else "") + (digits or "0")


def _soundex(text: str) -> str:
    first = text[:1].upper()
    if first not in _SOUNDS:
        return text
    sounds, last = first, _SOUNDS[first]
    for byte in text[1:].encode():
        sound = _SOUNDS.get(chr(byte).upper()) if byte < 128 else None
        if sound is None:
            last = "0"
        elif sound != _LEAVES_SOUND:
            if sound not in ("0", last):
                sounds += sound
                if len(sounds) == 4:
                    break
            last = sound
    return sounds.ljust(4, "0")


def _initcap(text: str) -> str:
    """The first letter of each word a capital, all others small; spaces part words."""
    return " ".join(
        word[:1].title() + word.lower()[len(word[:1].lower()) :] for word in text.split(" ")
    )


def _pmod(args: Sequence[Value], text: str) -> Value:
    """A remainder with the divisor's sign where it is negative, else not negative."""
    for arg in args:
        if not (is_number(arg.type) or pa.types.is_null(arg.type)):
            raise UnsupportedError(f"{text}: {arg.text} is no number")
        if pa.types.is_decimal(arg.type):
            raise UnsupportedError(f"{text}: pmod of DECIMAL; cast to DOUBLE")
    of = common_type(args, text)
    if pa.types.is_null(of):
        of = pa.float64()
    value, divisor = (coerce(arg, of) for arg in args)
    one = _real_pmod if pa.types.is_floating(of) else _whole_pmod(max(of.bit_width, 32))
    # As in Spark, where the divisor is null nothing else is looked at.
    compute = per_row(lambda by, number: one(number, by), of)
    return derived(of, text, compute, divisor, value, is_total=False)


def _whole_pmod(bits: int) -> Any:
    def one(number: int, by: int) -> int:
        if by == 0:
            raise EvaluationError("division by zero")
        rest = _rest(number, by)
        return _rest(signed(rest + by, bits), by) if rest < 0 else rest

    return one


def _rest(number: int, by: int) -> int:
    """The remainder with the dividend's sign."""
    rest = abs(number) % abs(by)
    return -rest if number < 0 else rest


def _real_pmod(number: float, by: float) -> float:
    if by == 0:
        raise EvaluationError("division by zero")
    rest = _real_rest(number, by)
    return _real_rest(rest + by, by) if rest < 0 else rest


def _real_rest(number: float, by: float) -> float:
    return math.nan if math.isinf(number) else math.fmod(number, by)


def _typeof(args: Sequence[Value], text: str) -> Value:
    of = args[0].type
    if holds_interval(of):
        raise UnsupportedError(f"{text}: the type of an interval")
    return constant(pa.scalar(name_of(of, spelt=str.lower)), text)


def _decoded(args: Sequence[Value], text: str) -> Value:
    """`decode(value, wanted, result, ..., otherwise)`: the first that equals; null equals null."""
    value, *rest = args
    otherwise = rest.pop() if len(rest) % 2 else None
    branches = [
        (logic.null_safe_equal(value, wanted, text), result)
        for wanted, result in zip(rest[::2], rest[1::2], strict=True)
    ]
    value = logic.chosen(branches, otherwise, text)
    if otherwise is None and not pa.types.is_string(value.type):
        raise UnsupportedError(f"{text}: decode to {name_of(value.type)} without a last value")
    return value


def decoded(plain: Function) -> Function:
    """Of two arguments the text in a character set, of more a choice."""

    def build(args: Sequence[Value], text: str) -> Value:
        return plain.build(args, text) if len(args) == 2 else _decoded(args, text)

    return Function(build, 2, ANY)


def _str_to_map(args: Sequence[Value], text: str) -> Value:
    """`str_to_map(text, between pairs, between key and value)`."""
    written = [fixed(string(arg, text), text) for arg in args[1:]]
    if None in written:
        raise UnsupportedError(f"{text}: a delimiter is NULL")
    between, within = (*written, ",", ":")[:2] if len(written) != 1 else (written[0], ":")
    pairs, entry = split_by(between, -1, text), split_by(within, 2, text)

    def one(given: str) -> list[tuple[str, str | None]]:
        found: list[tuple[str, str | None]] = []
        for pair in pairs(given):
            key, *value = entry(pair)
            found.append((key, value[0] if value else None))
        if len({key for key, _ in found}) < len(found):
            raise EvaluationError("a map has the same key twice")
        return found

    of = pa.map_(_TEXT, _TEXT)
    return derived(of, text, per_row(one, of), string(args[0], text), is_total=False)


FUNCTIONS: dict[str, Function] = {
    "conv": Function(rows(_TEXT, _converted, string, integer, integer, is_total=False), 3, 3),
    "initcap": Function(rows(_TEXT, _initcap, string), 1, 1),
    "pmod": Function(_pmod, 2, 2),
    "soundex": Function(rows(_TEXT, _soundex, string), 1, 1),
    "str_to_map": Function(_str_to_map, 1, 3),
    "typeof": Function(_typeof, 1, 1),
}
