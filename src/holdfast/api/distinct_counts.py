"""`count(DISTINCT x)` of windows: rows are counted by their value first, and then the values are.

Both are ordinary aggregates, so that values lie in pages, and are split among instances and
recovered, as groups are. What else is computed beside it must have parts that add up exactly.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from holdfast.api.clauses import parse_aggregate
from holdfast.api.windows import Window
from holdfast.core.model.column_names import quoted
from holdfast.errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.api.steps import Aggregate
    from holdfast.api.streams import Stream

_DISTINCT: Final = re.compile(r"^\s*count\s*\(\s*distinct\b(.*)$", re.IGNORECASE | re.DOTALL)
_PARTS: Final = {"count": "sum", "sum": "sum", "min": "min", "max": "max"}
_START, _END, _VALUE = "start_of_values", "end_of_values", "value_counted"


def counts_distinct(texts: Sequence[str]) -> bool:
    """Whether one of these aggregates counts distinct values."""
    return any(map(_DISTINCT.match, texts))


def with_distinct_counts(stream: Stream, texts: Sequence[str], name: str) -> Stream:
    """The aggregates of a stream with key and windows, of which one counts distinct values.

    Args:
        stream: With `window(...)`, and maybe `key_by(...)`.
        texts: As of `Stream.aggregate`.
        name: Of the operator that counts values; the one before it has `_values` behind it.

    Raises:
        UnsupportedError: The windows are not plain, there is another value counted, or an aggregate
            does not add up from those of the values.
    """
    windows = stream.windows
    if not isinstance(windows, Window) or not windows.is_plain:
        raise UnsupportedError(
            f"count(DISTINCT ...) over {windows}; it works over windows of event time aligned to "
            "the epoch, without timeout"
        )
    parsed = [parse_aggregate(_plain(text), stream.schema) for text in texts]
    distinct = [i for i, text in enumerate(texts) if _DISTINCT.match(text)]
    if len({_value(parsed[i]) for i in distinct}) > 1:
        raise UnsupportedError("count(DISTINCT ...) of two things; aggregate twice, and join both")
    value = parsed[distinct[0]].expression
    assert value is not None
    parts = {i: f"part_{i}" for i in range(len(texts)) if i not in distinct}
    for i in parts:
        _require_parts(texts[i], parsed[i])
    keys = [quoted(key) for key in stream.keys]
    by_value = (
        stream.select("*", f"{value.sql} AS {_VALUE}")
        .key_by(*stream.keys, _VALUE)
        .window(windows)
        .aggregate(
            "count(*) AS rows_counted",
            *(f"{_written(parsed[i])} AS {part}" for i, part in parts.items()),
            name=f"{name}_values",
        )
        .select(
            f"window_start AS {_START}", f"window_end AS {_END}", *keys, _VALUE, *parts.values()
        )
    )
    # One window ends with every slide: so does one of these, with the rows of that one alone.
    counted = (
        by_value.key_by(_START, _END, *stream.keys)
        .window(Window(windows.slide_us, windows.slide_us))
        .aggregate(
            *(
                f"{_PARTS[a.function]}({parts[i]}) AS result_{i}"
                if i in parts
                else f"count({_VALUE}) AS result_{i}"
                for i, a in enumerate(parsed)
            ),
            name=name,
        )
    )
    results = (f"result_{i} AS {quoted(text_name)}" for i, text_name in enumerate(_names(texts)))
    return counted.select(f"{_START} AS window_start", f"{_END} AS window_end", *keys, *results)


def _plain(text: str) -> str:
    found = _DISTINCT.match(text)
    return text if found is None else f"count({found[1]}"


def _names(texts: Sequence[str]) -> list[str]:
    """What each result is called: the name given, or the text as it is."""
    return [_name(text) for text in texts]


def _name(text: str) -> str:
    given = re.search(r"\)\s+as\s+`?(\w+)`?\s*$", text, re.IGNORECASE)
    return given[1] if given else text.strip()


def _value(aggregate: Aggregate) -> str:
    return "" if aggregate.expression is None else aggregate.expression.sql


def _written(aggregate: Aggregate) -> str:
    return f"{aggregate.function}({_value(aggregate) or '*'})"


def _require_parts(text: str, aggregate: Aggregate) -> None:
    kind = None if aggregate.expression is None else aggregate.expression.type
    is_exact = aggregate.function != "sum" or (kind is not None and pa.types.is_integer(kind))
    if aggregate.function not in _PARTS or not is_exact:
        raise UnsupportedError(
            f"{text!r} beside count(DISTINCT ...): there may be count, min, max, and sum of whole "
            "numbers; aggregate twice, and join both"
        )
