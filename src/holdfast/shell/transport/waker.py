"""Wakes a thread that waits for sockets, from any other thread."""

from __future__ import annotations

import contextlib
import os
import threading


class Waker:
    """A descriptor that is readable once somebody has called `wake`, until `clear`."""

    def __init__(self) -> None:
        """Nobody has called."""
        self._fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._open = threading.Lock()  # Or a late caller writes into what got its number next.

    def fileno(self) -> int:
        """To be polled."""
        return self._fd

    def wake(self) -> None:
        """Wake whoever polls; of no effect once it is closed."""
        with self._open:
            if self._fd >= 0:
                os.eventfd_write(self._fd, 1)

    def clear(self) -> None:
        """Forget the calls so far."""
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._fd)

    def close(self) -> None:
        """Give the descriptor back."""
        with self._open:
            os.close(self._fd)
            self._fd = -1
