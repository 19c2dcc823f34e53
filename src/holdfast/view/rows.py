"""The last rows of a sink's log, as text for people; and by which name a page asks for others."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

from holdfast.core.model.feed_rows import FEED_COLUMNS, TYPE_NAMES
from holdfast.core.model.shown_rows import ROWS_MAX, table_of, values_of
from holdfast.errors import OptionError
from holdfast.shell.storage.errors import BadName
from holdfast.shell.storage.logs import open_kept, open_reader, open_tail
from holdfast.shell.storage.paths import FEEDS, checked_name, within
from holdfast.shell.storage.places import has_files, local_path, store_at

if TYPE_CHECKING:
    from holdfast.shell.storage.log_follower import LoggedBatch

_TYPE: Final = FEED_COLUMNS[0]
_UNIT: Final = "unit "


def unit_key(unit: str) -> str:
    """What the page calls the rows that a unit sends; no sink can have such a name."""
    return f"{_UNIT}{unit}"


def unit_of(stream: str) -> str | None:
    """The unit that such a name stands for; None: it is a sink's."""
    return stream.removeprefix(_UNIT) if stream.startswith(_UNIT) else None


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
    found.reverse()  # Rows of one batch were made at one time: the last of them is the newest.
    found.sort(key=lambda row: row[0], reverse=True)
    columns, rows = table_of((kind, values) for _, kind, values in found[:ROWS_MAX])
    return {"columns": columns, "rows": rows}


def _tail(place: str) -> list[tuple[int, str, dict[str, Any]]]:
    """The newest rows of one log: when each was made, its type, and its values."""
    end = open_tail(place) or open_kept(place)
    first = end.next_id
    try:
        end.skip_to_end()
        start = max(first, end.next_id - ROWS_MAX)
    finally:
        end.close()
    reader = open_reader(place, start)
    try:
        logged = [batch for polled in iter(reader.poll, []) for batch in polled]
    finally:
        reader.close()
    return [
        (batch.created_us, _type_of(batch, row), values_of(row))
        for batch in logged
        for row in batch.batch.to_pylist()
    ][-ROWS_MAX:]


def _type_of(batch: LoggedBatch, row: dict[str, Any]) -> str:
    return str(row.get(_TYPE) or TYPE_NAMES[batch.tuple_type])
