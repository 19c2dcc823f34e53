"""Shows a query in a notebook: a card below the cell whose figures change while the query runs.

IPython calls `_ipython_display_` of a handle that is a cell's last value. The card is a display
with an id. A thread looks at the query once a second and updates that display, until the query is
over. The card has the words of the page (model.py). A handle shown again goes on in the newest card
alone.
"""

from __future__ import annotations

import threading
from html import escape
from typing import TYPE_CHECKING, Any, Final

from holdfast.errors import HoldfastError
from holdfast.shell.storage.errors import StorageError
from holdfast.view.model import page_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from holdfast.view.watching import Watched

_INTERVAL_S: Final = 1.0
_EVENTS_SHOWN: Final = 5
_UNITS_SHOWN: Final = 20
_OVER: Final = ("ended", "failed", "died")
_COLORS: Final = {"running": "#0a7d4b", "ended": "#5b6472"}
_RED: Final = "#c22a2a"
Bundle = dict[str, str]
"""One thing in several formats, by their MIME types."""


def bundle_of(page: Mapping[str, Any]) -> Bundle:
    """A page as a card: as HTML, and as text for a terminal."""
    return {"text/html": _html(page), "text/plain": _plain(page)}


def _plain(page: Mapping[str, Any]) -> str:
    """The state, warnings and figures; a line each."""
    lines = [f"{page['title']}: {page['state']['word']}", *(w["text"] for w in page["warnings"])]
    lines += [f"  {tile['name']}: {tile['value']} ({tile['note']})" for tile in page["tiles"]]
    lines += [f"  {said}" for said in _events(page)]
    return "\n".join(lines)


def _html(page: Mapping[str, Any]) -> str:
    """Colors lean on the notebook's own, so that the card reads in light and dark."""
    word = page["state"]["word"]
    color = _COLORS.get(word, _RED)
    parts = [
        f'<div><strong>{escape(page["title"])}</strong> <span style="background:{color};'
        f'color:#fff;border-radius:4px;padding:0 .5em">{escape(word)}</span> '
        f"<code>{escape(page['location'])}</code></div>"
    ]
    if word not in ("running", "ended"):
        parts.append(f"<p>{escape(page['state']['text'])}</p>")
    elif page["warnings"]:
        parts.append(_list(one["text"] for one in page["warnings"]))
    parts.append('<div style="display:flex;flex-wrap:wrap;gap:.3em 1.8em;margin:.6em 0">')
    parts += [
        f'<div><div style="opacity:.75">{escape(tile["name"])}</div><div style="font-size:1.3em">'
        f'{escape(tile["value"])}</div><div style="opacity:.75">{escape(tile["note"])}</div></div>'
        for tile in page["tiles"]
    ]
    parts.append("</div>")
    parts.append(_units(page))
    if events := list(_events(page)):
        parts.append(_list(events))
    return f'<div class="holdfast-query">{"".join(parts)}</div>'


def _units(page: Mapping[str, Any]) -> str:
    """A line for each unit, as the graph of the page has it."""
    live = page["live"]["boxes"]
    units = [box for box in page["graph"]["boxes"].items() if box[1]["kind"] == "unit"]
    rows = [
        f"<tr><th>{escape(box['name'])}</th><td>{escape(live[key]['first'])}</td>"
        f"<td>{escape(live[key]['second'])}</td></tr>"
        for key, box in units[:_UNITS_SHOWN]
        if key in live
    ]
    more = len(units) - _UNITS_SHOWN
    rest = f"<p>and {more} more</p>" if more > 0 else ""
    head = "<tr><th>unit</th><th>rows in</th><th>results</th></tr>"
    return f"<table><thead>{head}</thead><tbody>{''.join(rows)}</tbody></table>{rest}"


def _events(page: Mapping[str, Any]) -> Iterable[str]:
    """The newest failures and recoveries."""
    for one in page["timeline"][:_EVENTS_SHOWN]:
        if one["kind"] == "failure":
            yield f"{one['at']} {one['node']} failed: {one['text']}"
        else:
            parts = ", ".join(f"{part['name']} {part['text']}" for part in one["parts"])
            yield f"{one['at']} {one['node']} is back after {one['total']} ({parts}), {one['text']}"


def _list(lines: Iterable[str]) -> str:
    return f"<ul>{''.join(f'<li>{escape(line)}</li>' for line in lines)}</ul>"


class Card:
    """A query as it is shown below a cell."""

    def __init__(self, watched: Watched, update: Callable[[Bundle], object]) -> None:
        """Nothing happens before `start`; `update` replaces what is shown."""
        self._watched = watched
        self._update = update
        self._is_left = threading.Event()
        self._thread = threading.Thread(target=self._run, name="holdfast-card", daemon=True)

    def start(self) -> None:
        """Show changes until the query is over, or `leave` is called."""
        self._thread.start()

    def leave(self) -> None:
        """It stays as it is."""
        self._is_left.set()

    def wait(self, timeout_s: float) -> bool:
        """Until it changes no more, at most so long; whether that is so."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        is_over = False
        while not is_over and not self._is_left.wait(_INTERVAL_S):
            try:
                page = page_of(self._watched.look())
            except (HoldfastError, StorageError):
                continue  # A look less: the next one may succeed.
            is_over = page["state"]["word"] in _OVER
            try:
                self._update(bundle_of(page))
            except Exception:  # The notebook is gone, whatever it says of that.
                return


def show(watched: Watched) -> Card:
    """Show a query below the cell that runs now, and keep that up to date. Needs IPython."""
    from IPython import display as notebook

    display: Any = notebook.display  # It has no types.
    shown = display(bundle_of(page_of(watched.look())), raw=True, display_id=True)
    card = Card(watched, lambda bundle: shown.update(bundle, raw=True))
    card.start()
    return card
