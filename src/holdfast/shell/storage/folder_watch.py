"""Tells that something in local folders has changed, so that nobody has to look all the time.

inotify(7) of Linux. Elsewhere, and in folders of a network file system in which other machines
write, nothing is told: who watches has to look now and then all the same.
"""

from __future__ import annotations

import ctypes
import os
import sys
from functools import cache
from typing import Final

_IN_MODIFY: Final = 0x2
_IN_MOVED_TO: Final = 0x80
_IN_CREATE: Final = 0x100
_READ_BYTES: Final = 1 << 16


class FolderWatch:
    """Watches some folders; those that are not there yet, from when they are."""

    def __init__(self, *folders: str) -> None:
        """Watch `folders`, which need not exist yet."""
        self._missing = list(folders)
        libc = _libc()
        self._fd = -1 if libc is None else libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        self.look_for_missing()

    def fileno(self) -> int:
        """Readable when something has changed; -1 where nobody tells."""
        return self._fd

    def look_for_missing(self) -> None:
        """Watch also what has been made meanwhile; what is in there already, is not told."""
        libc = _libc()
        if libc is None or self._fd < 0 or not self._missing:
            return
        mask = _IN_MODIFY | _IN_MOVED_TO | _IN_CREATE
        self._missing = [
            folder
            for folder in self._missing
            if libc.inotify_add_watch(self._fd, os.fsencode(folder), mask) < 0
        ]

    def clear(self) -> None:
        """Forget what has changed so far."""
        try:
            while len(os.read(self._fd, _READ_BYTES)) > _READ_BYTES // 2:
                pass
        except BlockingIOError:
            pass

    def close(self) -> None:
        """Watch no more."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


@cache
def _libc() -> ctypes.CDLL | None:
    return ctypes.CDLL(None) if sys.platform.startswith("linux") else None
