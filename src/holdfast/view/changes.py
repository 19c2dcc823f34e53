"""What has changed from one page to the next, as a JSON merge patch. [RFC 7386] Pure.

Departure: of a list that is as long as before, the patch has the changed places alone, by number.
Rows of tables are such lists, and most of their cells stay.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any, Final

EDGES_SEEN: Final = 200
"""A page with more of them writes no figures beside its edges."""
ROWS_SEEN: Final = 50
"""So many rows of a table a page shows before somebody asks for more."""


def difference(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    """The patch that makes `now` of `before`; neither holds None, which stands for "no more"."""
    patch: dict[str, Any] = {key: None for key in before if key not in now}
    for key, value in now.items():
        old = before.get(key)
        if old is value:
            continue
        if isinstance(old, Mapping) and isinstance(value, Mapping):
            if inner := difference(old, value):
                patch[key] = inner
        elif old != value:
            patch[key] = _of_lists(old, value)
    return patch


def _of_lists(before: Any, now: Any) -> Any:
    """The changed places, if these are lists of texts of one length; otherwise `now`."""
    if not (isinstance(before, list) and isinstance(now, list) and len(before) == len(now)):
        return now
    places = {str(n): now[n] for n, old in enumerate(before) if old != now[n]}
    return places if all(isinstance(one, str) for one in places.values()) else now


def calmed(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    """The page `now`, but as `before` where nobody sees at once that it changes.

    These are figures of edges, where there are too many to write them, and rows of tables behind
    those that are shown. Whoever calls this every time but now and then sends little of a large
    dataflow, and all of a small one.
    """
    if not before:
        return dict(now)
    live = dict(now["live"])
    if len(live["edges"]) > EDGES_SEEN and live["edges"].keys() == before["live"]["edges"].keys():
        live["edges"] = before["live"]["edges"]
    tables = {
        name: {**table, "rows": _calmed_rows(before["tables"][name]["rows"], table["rows"])}
        for name, table in now["tables"].items()
    }
    return {**now, "live": live, "tables": tables}


def _calmed_rows(before: Mapping[str, Any], now: Mapping[str, Any]) -> Mapping[str, Any]:
    if len(now) <= ROWS_SEEN or before.keys() != now.keys():
        return now
    return {**before, **dict(islice(now.items(), ROWS_SEEN))}
