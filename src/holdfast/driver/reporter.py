"""Reports a query's progress at a steady pace: to listeners, `recentProgress`, the metrics log.

One thread of the driver. It also stops a query whose input Spark can no longer write, so that it
fails whether or not somebody waits for it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any

from holdfast.driver import listeners as events
from holdfast.driver.listeners import Listeners, queries
from holdfast.driver.showing import Keeper
from holdfast.shell.spark.metrics_log import MetricsLog
from holdfast.shell.storage.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.driver.progress import Progress
    from holdfast.driver.query import Query

_LOG = logging.getLogger(__name__)
_LAST_WORD_S = 10.0


class Reporter:
    """The thread that reports for one query."""

    def __init__(
        self,
        query: Query,
        location: str,
        epoch: int,
        values: dict[str, int],
        done: threading.Event,
        plan: Mapping[str, Any],
    ) -> None:
        """Nothing happens before `start`; all is over when `done` is set."""
        self._query = query
        self._done = done
        self._interval_s = values["progressIntervalMs"] / 1000
        self._metrics_interval_s = values["metricsIntervalMs"] / 1000
        self._metrics: MetricsLog | None = None
        if self._metrics_interval_s:
            try:
                self._metrics = MetricsLog(location, epoch)
            except StorageError as error:  # Nobody's results depend on it.
                _LOG.warning("no metrics of %s: %s", query.name, error)
        self._metrics_due_s = 0.0
        self._plan = plan
        self._keeper = Keeper(query, location, epoch, self._metrics_interval_s)
        self.recent: deque[Progress] = deque(maxlen=values["progressReportsKept"])
        self.listeners = Listeners()
        self._last_rows: tuple[int, int] | None = None
        self._last: Progress | None = None  # made when nothing runs any more
        self._lock = threading.Lock()
        self._thread = threading.Thread(
            target=self._run, name=f"holdfast-progress-{query.name}", daemon=True
        )

    def start(self) -> None:
        """The query runs: say so, before anything else is said."""
        queries.began(self._query)
        self._keeper.begin(self._plan)
        self._tell("onQueryStarted", events.started(self._query))
        self._thread.start()

    def _run(self) -> None:
        while not self._done.wait(self._interval_s):
            if self._query.has_lost_input:
                self._query.stop()
                break
            try:
                self._report()
            except StorageError as error:  # Of a log that is damaged: the nodes meet it too.
                _LOG.warning("no progress report of %s: %s", self._query.name, error)
            except Exception:  # A report less; the query goes on.
                _LOG.exception("no progress report of %s", self._query.name)
        self._done.wait()
        queries.has_ended(self._query)
        if self._last is not None:
            self._tell("onQueryProgress", events.progressed(self._last))
        self._tell("onQueryTerminated", events.terminated(self._query))

    def _report(self) -> None:
        with self._lock:
            progress = self._query.lastProgress
            self.recent.append(progress)
            self._write(progress, is_last=False)
        self._keeper.keep(is_last=False)
        rows = progress["numInputRows"], progress["numOutputRows"]
        has_moved, self._last_rows = rows != self._last_rows, rows
        if has_moved:
            self._tell("onQueryProgress", events.progressed(progress))
        else:
            self._tell("onQueryIdle", events.idle(self._query))

    def _write(self, progress: Progress, *, is_last: bool) -> None:
        now_s = time.monotonic()
        if self._metrics is None or (now_s < self._metrics_due_s and not is_last):
            return
        self._metrics_due_s = now_s + self._metrics_interval_s
        try:
            self._metrics.append(progress)
        except Exception as error:  # Nobody's results depend on it.
            _LOG.warning("no more metrics of %s: %s", self._query.name, error)
            self._metrics.close()
            self._metrics = None

    def _tell(self, method: str, event: Any) -> None:
        queries.tell(method, event)
        self.listeners.tell(method, event)

    def finish(self) -> None:
        """Nothing runs any more: keep the last report. In the coordinator's thread."""
        with self._lock:
            try:
                self._last = self._query.lastProgress
                self.recent.append(self._last)
                self._write(self._last, is_last=True)
            except StorageError as error:
                _LOG.warning("no last report of %s: %s", self._query.name, error)
            except Exception:  # The query has ended all the same.
                _LOG.exception("no last report of %s", self._query.name)
            if self._metrics is not None:
                self._metrics.close()
                self._metrics = None
            self._keeper.keep(is_last=True)

    def wait(self) -> None:
        """Until the last listener has been told; a listener itself does not wait."""
        if threading.current_thread() is not self._thread and self._thread.ident is not None:
            self._thread.join(_LAST_WORD_S)
