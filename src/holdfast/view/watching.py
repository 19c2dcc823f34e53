"""Where a page's facts come from: the handle of a running query, or a checkpoint location."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final, Protocol

from holdfast.driver.asking import ask
from holdfast.driver.requests import carry_out
from holdfast.errors import HoldfastError, NotRunningError, RequestError
from holdfast.shell.storage.errors import StorageError
from holdfast.shell.storage.lock import is_held
from holdfast.shell.storage.places import is_remote, local_path
from holdfast.shell.storage.request_box import Request
from holdfast.shell.storage.shown_box import newest_kept
from holdfast.view.model import Facts
from holdfast.view.rows import last_rows, unit_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.driver.query import Query

_STATUS_S: Final = 5.0
_ACTION_S: Final = 30.0


class Watched(Protocol):
    """A query, however it is reached.

    Attributes:
        location: Its checkpoint location.
    """

    location: str

    def look(self) -> Facts:
        """What is known of it now."""
        ...

    def act(self, action: str, target: str) -> dict[str, Any]:
        """Kill, promote or stop. Raises `HoldfastError` if it refuses or cannot be reached."""
        ...

    def rows(self, stream: str) -> dict[str, Any]:
        """The last rows of a sink, or of a unit as `unit NAME`; see view/rows.py.

        Raises `HoldfastError` or `StorageError` if there are none to be had.
        """
        ...


class OwnQuery:
    """A query of this process."""

    def __init__(self, query: Query, location: str, plan: Mapping[str, Any]) -> None:
        """Its handle."""
        self.location = location
        self._query = query
        self._plan = plan

    def look(self) -> Facts:
        """See `Watched`."""
        report = carry_out(self._query, Request("", "status", ""))
        is_running = bool(report.get("isActive"))
        if "error" in report:
            return Facts(
                self.location, self._plan, None, time.time(), None, problem=report["error"]
            )
        return Facts(self.location, self._plan, report, time.time(), is_running)

    def act(self, action: str, target: str) -> dict[str, Any]:
        """See `Watched`."""
        answer = carry_out(self._query, Request("", action, target))
        if "error" in answer:
            raise RequestError(answer["error"])
        if action == "stop":
            self._query.stop()
        return answer

    def rows(self, stream: str) -> dict[str, Any]:
        """See `Watched`."""
        unit = unit_of(stream)
        return last_rows(self.location, stream) if unit is None else self._query.newest_rows(unit)


class Location:
    """A checkpoint location, whether a query runs there or not, and whoever runs it."""

    def __init__(self, location: str) -> None:
        """Nothing is read before `look`."""
        self.location = location
        self._place = local_path(location)
        self._plan: dict[str, Any] | None = None
        self._run_id = ""

    def look(self) -> Facts:
        """See `Watched`."""
        is_running = None if is_remote(self._place) else is_held(self._place)
        problem, report = "", None
        if is_running is not False:
            try:
                report = ask(self.location, "status", "", _STATUS_S)
            except NotRunningError as error:
                problem = "" if is_running is None else str(error)
            except (HoldfastError, StorageError) as error:
                problem = str(error)
        if report is None or self._plan is None or report["runId"] != self._run_id:
            try:
                kept = newest_kept(self._place)
            except StorageError as error:
                return Facts(
                    self.location, None, report, time.time(), is_running, problem=str(error)
                )
            if kept is not None:
                self._plan = kept.plan
                report = report or kept.report
                self._run_id = "" if report is None else report["runId"]
        return Facts(self.location, self._plan, report, time.time(), is_running, problem=problem)

    def act(self, action: str, target: str) -> dict[str, Any]:
        """See `Watched`."""
        return ask(self.location, action, target, _ACTION_S)

    def rows(self, stream: str) -> dict[str, Any]:
        """See `Watched`."""
        unit = unit_of(stream)
        if unit is None:
            return last_rows(self.location, stream)
        return ask(self.location, "rows", unit, _ACTION_S)
