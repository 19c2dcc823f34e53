"""Rows as text for people: the newest of a stream, each with its type. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from holdfast.core.model.feed_rows import FEED_COLUMNS, TYPE_NAMES
from holdfast.core.model.tuples import TIME_COLUMN, TupleBatch

ROWS_MAX: Final = 50
"""So many rows of a stream are shown at most."""
ROWS_OF_NODE_MAX: Final = 200
"""So many of all streams that a node sends."""
_CHARACTERS_MAX: Final = 200
_HIDDEN: Final = frozenset((TIME_COLUMN, *FEED_COLUMNS))

Shown = tuple[str, dict[str, Any]]
"""The type of a row, and its values by column."""


def newest_of(batch: TupleBatch, to: str) -> list[Shown]:
    """The last rows of a batch, the newest first; the column `to` says who got them."""
    kind = TYPE_NAMES.get(batch.tuple_type, batch.tuple_type.name.lower())
    tail = batch.batch.slice(max(0, batch.count - ROWS_MAX)).to_pylist()
    return [(kind, {"to": to, **values_of(row)}) for row in reversed(tail)]


def values_of(row: dict[str, Any]) -> dict[str, Any]:
    """What is the user's of a row."""
    return {name: value for name, value in row.items() if name not in _HIDDEN}


def table_of(rows: Iterable[Shown]) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    """Columns and cells. The first column has no name, and says whether a row is stable.

    A row without a column has an empty cell there.
    """
    found = list(rows)
    columns = tuple(dict.fromkeys(name for _, values in found for name in values))
    cells = tuple((kind, *(_text(values.get(name)) for name in columns)) for kind, values in found)
    return ("", *columns), cells


def together(tables: Iterable[tuple[Sequence[str], Iterable[Sequence[str]]]]) -> dict[str, Any]:
    """Several tables as one, whose columns are those of all."""
    given = [(columns, list(rows)) for columns, rows in tables]
    names = list(dict.fromkeys(name for columns, _ in given for name in columns[1:]))
    rows = []
    for columns, cells in given:
        for row in cells:
            of = dict(zip(columns, row, strict=True))
            rows.append([of[""], *(of.get(name, "") for name in names)])
    return {"columns": ["", *names], "rows": rows}


def _text(value: Any) -> str:
    text = "" if value is None else str(value)
    return text if len(text) <= _CHARACTERS_MAX else f"{text[:_CHARACTERS_MAX]}…"
