"""Makes sinks durable beside a node's loop: the stream goes on while disks and brokers work."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

from holdfast.core.haunit.events import SinkSynced
from holdfast.core.model.ids import StreamId


class Syncable(Protocol):
    """A sink's writer, as far as it is made durable."""

    @property
    def next_id(self) -> int:
        """Behind what was appended."""

    def sync(self) -> None:
        """Make everything appended so far durable."""

    def tidy(self) -> None:
        """Do what can wait until then."""


class Syncing:
    """A thread that syncs sinks one after the other, in the order in which that was asked for."""

    def __init__(
        self, name: str, tell: Callable[[SinkSynced | Exception], None], interval_s: float = 0.0
    ) -> None:
        """It starts with the first request.

        Args:
            name: Of the thread.
            tell: Told of every sync, or of the error that was the end of them; by the thread.
            interval_s: From the beginning of a sync to that of the next, at least.
        """
        self._tell = tell
        self._interval_s = interval_s
        self._requests: deque[StreamId] = deque()
        self._writers: dict[StreamId, Syncable] = {}
        self._wake = threading.Event()
        self._closing = threading.Event()
        self._due = threading.Event()  # the interval counts no more
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._has_started = False

    def request(self, stream: StreamId, writer: Syncable) -> None:
        """Have a sink synced; once, however often that is asked for before it begins."""
        self._writers[stream] = writer
        if stream not in self._requests:
            self._requests.append(stream)
            self._wake.set()
        if not self._has_started:
            self._has_started = True
            self._thread.start()

    def hasten(self) -> None:
        """Sync what was asked for without waiting for the interval."""
        self._due.set()

    def end(self) -> None:
        """Do not wait for another interval or request."""
        self._closing.set()
        self._due.set()
        self._wake.set()

    def join(self) -> None:
        """Wait for the thread, after `end`."""
        if self._has_started:
            self._thread.join()

    def _run(self) -> None:
        try:
            while not self._closing.is_set():
                self._wake.wait()
                self._wake.clear()
                while self._requests:
                    began_s = time.monotonic()
                    self._due.clear()
                    self._sync(self._requests.popleft())
                    self._due.wait(self._interval_s - (time.monotonic() - began_s))
        except Exception as error:  # The loop raises it.
            self._tell(error)

    def _sync(self, stream: StreamId) -> None:
        writer = self._writers[stream]
        durable_before = writer.next_id
        writer.sync()
        self._tell(SinkSynced(stream, durable_before))
        writer.tidy()
