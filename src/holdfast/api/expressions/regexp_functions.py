"""LIKE and regular expressions. A pattern is known when the dataflow is built."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.api.expressions.patterns import from_java, from_like
from holdfast.api.expressions.signatures import Function, fixed, integer, rows, string
from holdfast.api.expressions.types import name_of
from holdfast.api.expressions.values import EvaluationError, Value, constant, derived
from holdfast.errors import DataflowError, UnsupportedError

_TEXT, _INT, _FLAG = pa.string(), pa.int32(), pa.bool_()
_TEXTS = pa.list_(pa.string())
_REPLACEMENT = re.compile(r"\\(.)|\$(\d)(?!\d)|\$\{([a-zA-Z][a-zA-Z0-9]*)\}", re.DOTALL | re.ASCII)


def like(operands: Sequence[Value], text: str) -> Value:
    """`value LIKE pattern ESCAPE escape`."""
    value, pattern, *escapes = operands
    for each in (value, pattern):
        if not (pa.types.is_string(each.type) or pa.types.is_null(each.type)):
            raise DataflowError(f"{text}: {each.text} is {name_of(each.type)}, not STRING")
    value, pattern = string(value, text), string(pattern, text)
    written = fixed(pattern, text)
    escape = fixed(escapes[0], text) if escapes else "\\"
    if written is None:
        return constant(pa.scalar(None, _FLAG), text)
    if escape not in written and "\\" not in written:
        return derived(_FLAG, text, lambda c: pc.match_like(c, pattern=written), value)
    compiled = from_like(written, escape)
    if compiled is None:
        raise DataflowError(f"{text}: {escape!r} stands before what it cannot escape")
    return rows(_FLAG, lambda s: compiled.fullmatch(s) is not None, string)([value], text)


def ilike(operands: Sequence[Value], text: str, lower: Callable[[Value], Value]) -> Value:
    """As Spark has it: LIKE of both sides in small letters."""
    for each in operands:
        if not (pa.types.is_string(each.type) or pa.types.is_null(each.type)):
            raise DataflowError(f"{text}: {each.text} is {name_of(each.type)}, not STRING")
    value, pattern, *escapes = operands
    return like([lower(value), lower(pattern), *escapes], text)


def _pattern(value: Value, text: str) -> re.Pattern[str] | None:
    written = fixed(string(value, text), text)
    return None if written is None else from_java(written, text)


def _searching(
    of: pa.DataType, compute: Callable[..., Any], *kinds: Any, is_total: bool = True
) -> Callable[[Sequence[Value], str], Value]:
    """A function of a text, a pattern, and literals: `compute(pattern, text, *literals)`."""

    def build(args: Sequence[Value], text: str) -> Value:
        value, pattern = string(args[0], text), _pattern(args[1], text)
        others = [fixed(kind(a, text), text) for kind, a in zip(kinds, args[2:], strict=False)]
        if pattern is None or None in others:
            return constant(pa.scalar(None, of), text)

        def one(given: str) -> Any:
            return compute(pattern, given, *others)

        return rows(of, one, string, is_total=is_total)([value], text)

    return build


def _found(pattern: re.Pattern[str], text: str) -> bool:
    return pattern.search(text) is not None


RLIKE = _searching(_FLAG, _found)


def _group(match: re.Match[str], index: int) -> str:
    if not 0 <= index <= match.re.groups:
        raise EvaluationError(f"there is no group {index} of {match.re.groups}")
    return match[index] or ""


def _extract(pattern: re.Pattern[str], text: str, index: int = 1) -> str:
    match = pattern.search(text)
    return "" if match is None else _group(match, index)


def _extract_all(pattern: re.Pattern[str], text: str, index: int = 1) -> list[str]:
    return [_group(match, index) for match in pattern.finditer(text)]


def _count(pattern: re.Pattern[str], text: str) -> int:
    return sum(1 for _ in pattern.finditer(text))


def _substr(pattern: re.Pattern[str], text: str) -> str | None:
    match = pattern.search(text)
    return None if match is None else match[0] or None


def _instr(pattern: re.Pattern[str], text: str, _: int = 0) -> int:
    """The place of the first hit, from 1."""
    match = pattern.search(text)
    return 0 if match is None else match.start() + 1


def _replacement(written: str, groups: int, text: str) -> str:
    """Java's replacement as Python's."""
    parts = []
    end = 0
    for match in _REPLACEMENT.finditer(written):
        parts.append(_plain(written[end : match.start()], text))
        escaped, number, name = match.groups()
        if escaped is not None:
            parts.append(escaped.replace("\\", r"\\"))
        elif number is not None and int(number) <= groups:
            parts.append(rf"\g<{number}>")
        elif name is not None:
            parts.append(rf"\g<{name}>")
        else:
            raise UnsupportedError(f"{text}: {match[0]!r} in a replacement is not supported")
        end = match.end()
    parts.append(_plain(written[end:], text))
    return "".join(parts)


def _plain(written: str, text: str) -> str:
    if "$" in written or "\\" in written:
        raise UnsupportedError(f"{text}: the replacement {written!r} is not supported")
    return written


def _replace(args: Sequence[Value], text: str) -> Value:
    value, pattern = string(args[0], text), _pattern(args[1], text)
    written = fixed(string(args[2], text), text)
    if len(args) == 4 and fixed(integer(args[3], text), text) != 1:
        raise UnsupportedError(f"{text}: a position other than 1 is not supported")
    if pattern is None or written is None:
        return constant(pa.scalar(None, _TEXT), text)
    to = _replacement(written, pattern.groups, text)
    try:
        pattern.sub(to, "")
    except (re.error, IndexError) as error:
        raise UnsupportedError(f"{text}: {error}") from None
    return rows(_TEXT, lambda given: pattern.sub(to, given), string)([value], text)


def split_by(written: str, limit: int, text: str) -> Callable[[str], list[str]]:
    """From a text to what stands between a pattern's hits; a `limit` above 0 is the most parts.

    Raises:
        UnsupportedError: As `from_java`.
    """
    pattern = from_java(written, text)
    most = limit if limit > 0 else 2**31

    def parts(given: str) -> list[str]:
        if not written:
            parted = [*given[: most - 1], given[most - 1 :]]
            return parted if parted[-1] or not given else parted[:-1]
        found: list[str] = []
        end = 0
        for match in pattern.finditer(given):
            if len(found) >= most - 1:
                break
            if match.end() == 0:
                continue  # Nothing before the text's beginning.
            found.append(given[end : match.start()])
            end = match.end()
        return [*found, given[end:]]

    return parts


def _split(args: Sequence[Value], text: str) -> Value:
    written = fixed(string(args[1], text), text)
    limit = fixed(integer(args[2], text), text) if len(args) == 3 else -1
    if written is None or limit is None:
        return constant(pa.scalar(None, _TEXTS), text)
    return rows(_TEXTS, split_by(written, limit, text), string)(args[:1], text)


_RLIKE = Function(RLIKE, 2, 2)

FUNCTIONS: dict[str, Function] = {
    "like": Function(like, 2, 2),
    "regexp": _RLIKE,
    "regexp_count": Function(_searching(_INT, _count), 2, 2),
    "regexp_extract": Function(_searching(_TEXT, _extract, integer, is_total=False), 2, 3),
    "regexp_extract_all": Function(_searching(_TEXTS, _extract_all, integer, is_total=False), 2, 3),
    "regexp_instr": Function(_searching(_INT, _instr, integer), 2, 3),
    "regexp_like": _RLIKE,
    "regexp_replace": Function(_replace, 3, 4),
    "regexp_substr": Function(_searching(_TEXT, _substr), 2, 2),
    "rlike": _RLIKE,
    "split": Function(_split, 2, 3),
}
