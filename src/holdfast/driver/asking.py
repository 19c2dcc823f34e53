"""Ask a running query for something, from any process that sees its checkpoint location.

The other side is `driver/requests.py`. A view in a browser and the command line ask in this way.
"""

from __future__ import annotations

import os
import time
from typing import Any, Final

from holdfast.errors import NotRunningError, OptionError, RequestError
from holdfast.shell.storage.lock import is_held
from holdfast.shell.storage.places import (
    DATAFLOW_FILE,
    is_remote,
    local_path,
    read_if_any,
    store_at,
)
from holdfast.shell.storage.request_box import RequestBox

_POLL_S: Final = 0.05
_REMOTE_POLL_S: Final = 0.5
_LOOKS_AT_LOCK_S: Final = 1.0


def ask(location: str, action: str, target: str, timeout_s: float) -> dict[str, Any]:
    """Put a request and wait for its answer.

    Raises:
        OptionError: No query has ever run there.
        NotRunningError: None does now; nothing was done.
        RequestError: The query refused, or has not answered in time though it had begun.
    """
    place = local_path(location)
    require_location(place)
    box = RequestBox(place)
    request_id = box.ask(action, target)
    try:
        answer = _answer(box, request_id, place, timeout_s)
        if answer is None:
            if box.withdraw(request_id):
                raise NotRunningError(
                    f"no query runs at {location}, or its driver does not see this place; start "
                    "it with the same checkpointLocation, or give a longer --timeout"
                )
            raise RequestError(
                f"the query at {location} has begun to {action}, and has not said within "
                f"{timeout_s:g} s what came of it; look with holdfast status"
            )
    finally:
        box.forget(request_id)
    if "error" in answer:
        raise RequestError(answer["error"])
    return answer


def _answer(
    box: RequestBox, request_id: str, place: str, timeout_s: float
) -> dict[str, Any] | None:
    """The answer; None when time is over, or nobody is there who could give one."""
    began_s = time.monotonic()
    looks_s = began_s + _LOOKS_AT_LOCK_S
    while (answer := box.answer_of(request_id)) is None:
        now_s = time.monotonic()
        if now_s > began_s + timeout_s:
            return None
        if not is_remote(place) and now_s > looks_s:
            if not is_held(place):
                return box.answer_of(request_id)
            looks_s = now_s + _LOOKS_AT_LOCK_S
        time.sleep(_REMOTE_POLL_S if is_remote(place) else _POLL_S)
    return answer


def require_location(place: str) -> None:
    """Raise `OptionError` unless a query has run at a folder or URL."""
    cure = "name the checkpointLocation that the query was started with"
    if not is_remote(place) and not os.path.isdir(place):
        wrong = f"{place} is a file" if os.path.exists(place) else f"there is no folder {place}"
        raise OptionError(f"{wrong}; {cure}")
    if read_if_any(store_at(place), DATAFLOW_FILE) is None:
        raise OptionError(f"no query has run at {place}; {cure}")


def stop(location: str, timeout_s: float) -> bool:
    """Ask a query to stop, and wait until it has; False: at a URL nobody can see when it has.

    Raises:
        OptionError, NotRunningError: As `ask`.
        RequestError: It still runs after so long.
    """
    ask(location, "stop", "", timeout_s)
    place = local_path(location)
    if is_remote(place):
        return False
    deadline_s = time.monotonic() + timeout_s
    while is_held(place):
        if time.monotonic() > deadline_s:
            raise RequestError(
                f"the query at {location} is stopping, but still runs after {timeout_s:g} s; look "
                "again, or give a longer --timeout"
            )
        time.sleep(_POLL_S)
    return True
