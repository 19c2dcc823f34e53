"""Ctrl-C in a command that runs a query: everything is stopped in order, and nothing is dumped.

PySpark's own handler cancels all jobs first. Nodes would look lost, and be started again while the
query is being stopped; so it is replaced as soon as the session is there.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any, Final

INTERRUPTED: Final = 130
"""The exit code that shells give a command that ended by SIGINT."""


class Interrupts:
    """What Ctrl-C does in each phase of a command."""

    def __init__(self) -> None:
        """From now on it raises `KeyboardInterrupt`."""
        self.is_asked = False
        self._waits = False
        self.take_over()

    def _handle(self, *_: Any) -> None:
        self.is_asked = True
        if not self._waits:
            raise KeyboardInterrupt

    def take_over(self) -> None:
        """Take the signals from PySpark, which takes them for a new session.

        SIGTERM is as Ctrl-C: it is how service managers and containers stop a process.
        """
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, self._handle)
            signal.signal(signal.SIGTERM, self._handle)

    @contextlib.contextmanager
    def asking(self) -> Iterator[None]:
        """Within, it waits for the end: a JVM that comes up, or a call to it, is not torn apart."""
        self._waits = True
        try:
            yield
        finally:
            self._waits = False
        if self.is_asked:
            raise KeyboardInterrupt

    def stop(self, *steps: Callable[[], None]) -> None:
        """Take every step, whatever became of the others; further interrupts do nothing.

        What an interrupted call left behind may make a step fail; then there is nothing to stop.
        """
        self._waits = True
        for step in steps:
            if not self.is_asked:
                step()
                continue
            with contextlib.suppress(Exception):
                step()
