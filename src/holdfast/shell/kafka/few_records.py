"""Reads few records of JSON without giving up the interpreter's lock.

Arrow's reader gives it up several times a call, and each time another thread may keep it for its
whole interval: 23 records that take 0.17 ms alone took 10 ms beside a busy thread. Here they take
0.06 ms. From a few hundred on Arrow is as fast, and lets others work meanwhile.

Only records in which nothing is odd are read here. Of all others Arrow is asked, so that what a
record becomes does not depend on how many came with it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from contextlib import suppress
from operator import itemgetter
from types import NoneType
from typing import Any, Final

import pyarrow as pa

FEW: Final = 256

_KINDS: Final = {
    pa.bool_(): bool,
    pa.float64(): float,
    **dict.fromkeys((pa.string(), pa.timestamp("us"), pa.timestamp("us", tz="UTC")), str),
    **dict.fromkeys((pa.int8(), pa.int16(), pa.int32(), pa.int64()), int),
}
_MOMENT: Final = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d{1,6})?(Z?)", re.ASCII)
_LARGE: Final = 1e300


def read_few(values: Sequence[bytes | None], schema: pa.Schema) -> pa.RecordBatch | None:
    """The rows of records, one object each; None if Arrow is to read them.

    Args:
        values: At least one.
        schema: What is wanted of them.
    """
    if len(values) > FEW or any(field.type not in _KINDS for field in schema):
        return None
    try:
        text = (b"[" + b",\n".join(values) + b"]").decode()  # type: ignore[arg-type]
        rows = _objects(text, len(values))
        wanted, texts = _wanted(rows, schema.names)
        columns = [_column(found, f.type) for found, f in zip(wanted, schema, strict=True)]
    except (TypeError, ValueError, OverflowError, RecursionError):
        return None
    texts += sum(len(c) - c.null_count for c in columns if _KINDS[c.type] is str)
    if "\\" not in text and text.count('"') != 2 * (sum(map(len, rows)) + texts):
        return None  # A field stands twice.
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _objects(text: str, count: int) -> list[dict[str, Any]]:
    """A list of so many objects, each on a line; `ValueError` if anything is odd.

    A line's end cannot stand within a string, so that it is between two of them, if they hold no
    other objects or lists; then each is one line.
    """
    is_plain = text.startswith("[{") and text.endswith("}]") and "\\u" not in text  # Half a pair?
    if not is_plain or not text.count("\n") == text.count("},\n{") == count - 1:
        raise ValueError("odd")
    rows: list[dict[str, Any]] = (_CAREFUL if "\\" in text else _QUICK).decode(text)
    if len(rows) != count or {*map(type, rows)} != {dict}:
        raise ValueError("not one each")
    return rows


def _wanted(rows: list[dict[str, Any]], names: Sequence[str]) -> tuple[list[Sequence[Any]], int]:
    """The values of each field, and how many there are of text in fields that are not wanted."""
    if len(names) > 1 and {*map(len, rows)} == {len(names)}:
        with suppress(KeyError):
            return list(zip(*map(itemgetter(*names), rows), strict=True)), 0
    others = [value for row in rows for name, value in row.items() if name not in names]
    folded = {name.lower() for name in names}
    if any(name.lower() in folded for row in rows for name in row.keys() - names):
        raise ValueError("other capitals")
    if not all(map(_is_simple, others)):
        raise ValueError("odd")
    wanted: list[Sequence[Any]] = [[row.get(name) for row in rows] for name in names]
    return wanted, sum(type(value) is str for value in others)


def _is_simple(value: Any) -> bool:
    """Whether Arrow takes the value in a field that is not wanted."""
    if type(value) in (int, float):
        return bool(-_LARGE < value < _LARGE)
    return type(value) in (str, bool, NoneType)


def _column(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Raises `ValueError` or `OverflowError` for values that are not just of that type."""
    if not {*map(type, values)} <= {_KINDS[kind], NoneType}:
        raise ValueError("another type")
    if pa.types.is_timestamp(kind):
        zone = "Z" if kind.tz else ""
        found = [_MOMENT.fullmatch(value) for value in values if value is not None]
        if not all(moment and moment[2] == zone for moment in found):
            raise ValueError("another way to write a moment")
        return pa.array(values, pa.string()).cast(kind)
    if kind == pa.float64() and not all(math.isfinite(v) for v in values if v is not None):
        raise ValueError("too large a number")
    return pa.array(values, kind)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    row = dict(pairs)
    if len(row) < len(pairs):
        raise ValueError("a field twice")
    return row


def _refuse(constant: str) -> Any:
    raise ValueError(constant)


_QUICK = json.JSONDecoder(parse_constant=_refuse)
_CAREFUL = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_refuse)
"""It finds fields that stand twice, which takes it four times as long."""
