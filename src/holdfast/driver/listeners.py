"""Listeners, and the queries of this process, as `spark.streams` has them for Spark's own.

A listener is a `pyspark.sql.streaming.StreamingQueryListener`, or anything with some of its four
methods; it gets Spark's own event classes, with a `Progress` in place of Spark's.

A slow listener delays the next report, nothing else; what it raises is logged.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from typing import TYPE_CHECKING, Any, Final

from holdfast.errors import OptionError

if TYPE_CHECKING:
    from holdfast.driver.progress import Progress
    from holdfast.driver.query import Query

_LOG = logging.getLogger(__name__)
_METHODS: Final = ("onQueryStarted", "onQueryProgress", "onQueryIdle", "onQueryTerminated")


class Listeners:
    """Those who want to hear of a query, or of all."""

    def __init__(self) -> None:
        """Nobody listens."""
        self._listeners: list[Any] = []
        self._lock = threading.Lock()

    def add(self, listener: Any) -> None:
        """From now on. Raises `OptionError` when it has none of the methods."""
        if not any(callable(getattr(listener, name, None)) for name in _METHODS):
            raise OptionError(f"{listener!r} is no listener: it has none of {', '.join(_METHODS)}")
        with self._lock:
            self._listeners.append(listener)

    def remove(self, listener: Any) -> None:
        """No longer; one that does not listen is passed over, as in Spark."""
        with self._lock:
            self._listeners = [known for known in self._listeners if known is not listener]

    def tell(self, method: str, event: Any) -> None:
        """Call a method of every listener that has it."""
        for listener in list(self._listeners):
            call = getattr(listener, method, None)
            if call is None:
                continue
            try:
                call(event)
            except Exception:  # Whatever a listener does wrong, the query goes on.
                _LOG.exception("%s of a listener failed", method)


class QueryManager:
    """The queries of this process. There is one, `holdfast.queries`."""

    def __init__(self) -> None:
        """No query yet."""
        self._queries: dict[str, Query] = {}
        self._ended: list[Query] = []
        self._changed = threading.Condition()
        self._listeners = Listeners()

    @property
    def active(self) -> list[Query]:
        """The queries that run."""
        with self._changed:
            return list(self._queries.values())

    def get(self, id: str) -> Query | None:
        """The running query of this id; None: there is none."""
        return self._queries.get(str(id))

    def addListener(self, listener: Any) -> None:
        """Have all queries tell it, those that run already too."""
        self._listeners.add(listener)

    def removeListener(self, listener: Any) -> None:
        """Have it told no more."""
        self._listeners.remove(listener)

    def awaitAnyTermination(self, timeout: float | None = None) -> bool:
        """Wait until some query ends, or has ended since the process began or `resetTerminated`.

        Raises:
            QueryFailedError: It failed.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: bool(self._ended), timeout):
                return False
            errors = [error for query in self._ended if (error := query.exception()) is not None]
        if errors:
            raise errors[0]
        return True

    def resetTerminated(self) -> None:
        """Forget which queries have ended."""
        with self._changed:
            self._ended.clear()

    # -- what queries say ---------------------------------------------------------------------

    def began(self, query: Query) -> None:
        """A query runs."""
        with self._changed:
            self._queries[query.id] = query

    def has_ended(self, query: Query) -> None:
        """A query runs no more."""
        with self._changed:
            if self._queries.get(query.id) is query:
                del self._queries[query.id]
            self._ended.append(query)
            self._changed.notify_all()

    def tell(self, method: str, event: Any) -> None:
        """Tell those who listen to all queries."""
        self._listeners.tell(method, event)


queries: Final = QueryManager()


def started(query: Query) -> Any:
    """The event of a query's start."""
    from pyspark.sql.streaming.listener import QueryStartedEvent

    return QueryStartedEvent(*_who(query), query.name, _now(), set())


def progressed(progress: Progress) -> Any:
    """The event of a progress report."""
    from pyspark.sql.streaming.listener import QueryProgressEvent

    return QueryProgressEvent(progress)


def idle(query: Query) -> Any:
    """The event of a report that nothing has moved."""
    from pyspark.sql.streaming.listener import QueryIdleEvent

    return QueryIdleEvent(*_who(query), _now())


def terminated(query: Query) -> Any:
    """The event of a query's end."""
    from pyspark.sql.streaming.listener import QueryTerminatedEvent

    error = query.exception()
    return QueryTerminatedEvent(*_who(query), None if error is None else str(error), None)


def _who(query: Query) -> tuple[uuid.UUID, uuid.UUID]:
    return uuid.UUID(query.id), uuid.UUID(query.runId)


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime())
