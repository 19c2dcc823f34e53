"""The last rows of a sink's log, as text for people."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

from holdfast.core.model.feed_rows import FEED_COLUMNS, TYPE_NAMES
from holdfast.core.model.tuples import TIME_COLUMN
from holdfast.errors import OptionError
from holdfast.shell.storage.errors import BadName
from holdfast.shell.storage.logs import open_reader, open_tail
from holdfast.shell.storage.paths import FEEDS, checked_name, within
from holdfast.shell.storage.places import has_files, local_path, store_at

if TYPE_CHECKING:
    from holdfast.shell.storage.log_follower import LoggedBatch

_ROWS: Final = 50
_CHARACTERS: Final = 200
_TYPE: Final = FEED_COLUMNS[0]
_HIDDEN: Final = frozenset((TIME_COLUMN, *FEED_COLUMNS))


def last_rows(location: str, sink: str) -> dict[str, Any]:
    """The newest rows of each partition of a sink, the newest first.

    Args:
        location: The checkpoint location.
        sink: Its name; its rows have to be in a log.

    Returns:
        `columns` and `rows`, all text. The first column says of each row whether it is stable.

    Raises:
        OptionError: There is no such sink.
        StorageError: Its log cannot be read.
    """
    root = local_path(location)
    try:
        folder = within(root, "streams", checked_name(sink))
    except BadName as error:
        raise OptionError(str(error)) from error
    if not has_files(folder):
        raise OptionError(f"sink {sink} has no rows yet")
    feed = within(root, FEEDS, sink)
    found: list[tuple[int, str, dict[str, Any]]] = []
    for name in store_at(folder).children():
        if name.isdigit():
            found += _tail(os.path.join(folder, name))
            if has_files(os.path.join(feed, name)):
                found += _tail(os.path.join(feed, name))
    found.sort(key=lambda row: row[0], reverse=True)
    columns = list(dict.fromkeys(name for _, _, values in found for name in values))
    rows = [
        [kind, *(_text(values.get(name)) for name in columns)] for _, kind, values in found[:_ROWS]
    ]
    return {"columns": ["", *columns], "rows": rows}


def _tail(place: str) -> list[tuple[int, str, dict[str, Any]]]:
    """The newest rows of one log: when each was made, its type, and its values."""
    end = open_tail(place) or open_reader(place)
    first = end.next_id
    try:
        end.skip_to_end()
        start = max(first, end.next_id - _ROWS)
    finally:
        end.close()
    reader = open_reader(place, start)
    try:
        logged = [batch for polled in iter(reader.poll, []) for batch in polled]
    finally:
        reader.close()
    return [
        (batch.created_us, _type_of(batch, row), _values(row))
        for batch in logged
        for row in batch.batch.to_pylist()
    ][-_ROWS:]


def _type_of(batch: LoggedBatch, row: dict[str, Any]) -> str:
    return str(row.get(_TYPE) or TYPE_NAMES[batch.tuple_type])


def _values(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in _HIDDEN}


def _text(value: Any) -> str:
    text = "" if value is None else str(value)
    return text if len(text) <= _CHARACTERS else f"{text[:_CHARACTERS]}…"
