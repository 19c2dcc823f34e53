"""Carries out what people ask of a running query by way of its checkpoint location.

One thread of the driver looks for requests (`shell/storage/request_box.py`). `kill` and `promote`
do what the methods of the handle do; `status` answers with what the handle shows, `rows` with what
a unit has sent last. `stop` is answered before the query stops, as nobody may be left to answer
afterwards.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any, Final

from holdfast.driver.showing import report_of
from holdfast.errors import HoldfastError, OptionError
from holdfast.shell.storage.errors import StorageError
from holdfast.shell.storage.places import is_remote
from holdfast.shell.storage.request_box import Request, RequestBox
from holdfast.shell.stores.base import StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.driver.query import Query

_LOG = logging.getLogger(__name__)
_INTERVAL_S: Final = 0.2
_REMOTE_INTERVAL_S: Final = 2.0
"""How often a folder, and a URL, is looked at: a store takes money for each look."""
_LOOKS: Final = ("status", "rows")
STOPPING: Final = {"stopping": True}


class RequestDesk:
    """The thread that serves one query's requests."""

    def __init__(self, query: Query, location: str, done: threading.Event) -> None:
        """Nothing happens before `start`; all is over when `done` is set."""
        self._query = query
        self._location = location
        self._done = done
        self._interval_s = _REMOTE_INTERVAL_S if is_remote(location) else _INTERVAL_S

    def start(self) -> None:
        """Look for requests from now on; earlier ones are forgotten before this returns."""
        try:
            self._box = RequestBox(self._location)
            self._box.clear()
        except (StoreUnavailable, StorageError) as error:
            _LOG.warning("no requests to %s are served: %s", self._query.name, error)
            return
        name = f"holdfast-requests-{self._query.name}"
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def _run(self) -> None:
        while not self._done.wait(self._interval_s):
            try:
                for request in self._box.take():
                    self._serve(request)
            except (StoreUnavailable, StorageError) as error:
                _LOG.warning("a request to %s is lost: %s", self._query.name, error)
                self._done.wait(_REMOTE_INTERVAL_S)

    def _serve(self, request: Request) -> None:
        # Whoever looks at a view asks four times a second: only what changes something is news.
        level = logging.DEBUG if request.action in _LOOKS else logging.WARNING
        asked = f"{request.action} {request.target}".rstrip()
        _LOG.log(level, "%s: %s is asked for", self._query.name, asked)
        answer = carry_out(self._query, request)
        self._box.answer(request.id, answer)
        if answer == STOPPING:
            self._query.stop()


def carry_out(query: Query, request: Request) -> dict[str, Any]:
    """Do what is asked for; the answer, whose member `error` says why it was not done."""
    action = _ACTIONS.get(request.action)
    if action is None:
        return {"error": f"{request.action!r} is no request; there are {', '.join(_ACTIONS)}"}
    try:
        return action(query, request.target)
    except (HoldfastError, TimeoutError) as error:
        return {"error": str(error)}
    except Exception as error:  # Whatever it is, the query goes on, and somebody waits.
        _LOG.exception("%s: %s failed", query.name, request.action)
        return {"error": f"{type(error).__name__}: {error}"}


def _status(query: Query, _: str) -> dict[str, Any]:
    return report_of(query)


def _stop(query: Query, _: str) -> dict[str, Any]:
    return STOPPING


def _kill(query: Query, target: str) -> dict[str, Any]:
    nodes = nodes_of(query, target)
    for node in nodes:
        query.kill(node)
    return {"killed": nodes}


def _promote(query: Query, target: str) -> dict[str, Any]:
    nodes_of(query, target)  # An unknown unit is named as such.
    query.promote(target)
    return {"promoted": target}


def _rows(query: Query, target: str) -> dict[str, Any]:
    return query.newest_rows(target)


def nodes_of(query: Query, target: str) -> list[str]:
    """The nodes that a name stands for: that of one, or of a unit.

    Raises:
        OptionError: There is neither a node nor a unit of this name.
    """
    nodes = list(query.nodes)
    found = [node for node in nodes if target in (node, node.rpartition("[")[0])]
    if not found:
        units = dict.fromkeys(node.rpartition("[")[0] for node in nodes)
        raise OptionError(
            f"{query.name} has no unit or node {target!r}; units are {', '.join(units)}, nodes "
            f"{', '.join(nodes)}"
        )
    return found


_ACTIONS: Final[dict[str, Callable[[Query, str], dict[str, Any]]]] = {
    "status": _status,
    "stop": _stop,
    "kill": _kill,
    "promote": _promote,
    "rows": _rows,
}
