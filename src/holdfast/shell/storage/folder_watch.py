"""Tells that something in local folders has changed, so that nobody has to look all the time.

inotify(7) of Linux. Elsewhere, and in folders of a network file system in which other machines
write, nothing is told: who watches has to look now and then all the same.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from dataclasses import dataclass
from functools import cache
from typing import Final

_IN_MODIFY: Final = 0x2
_IN_MOVED_TO: Final = 0x80
_IN_CREATE: Final = 0x100
_EVENT: Final = struct.Struct("iIII")  # watch, mask, cookie, bytes of the name behind it
_READ_BYTES: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class Change:
    """Something in a watched folder.

    Attributes:
        folder: As it was given.
        name: What has changed in it; empty: nobody knows.
        is_moved: Whether it has come to the folder by a rename, and so as a whole.
    """

    folder: str
    name: str
    is_moved: bool


class FolderWatch:
    """Watches some folders; those that are not there yet, from when they are."""

    def __init__(self, *folders: str) -> None:
        """Watch `folders`, which need not exist yet."""
        self._missing = list(folders)
        self._folder_of: dict[int, str] = {}
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
        missing, self._missing = self._missing, []
        for folder in missing:
            watch = libc.inotify_add_watch(self._fd, os.fsencode(folder), mask)
            if watch < 0:
                self._missing.append(folder)
            else:
                self._folder_of[watch] = folder

    def clear(self) -> list[Change]:
        """What has changed since it was asked last, in order."""
        changes: list[Change] = []
        try:
            while self._fd >= 0:
                events = os.read(self._fd, _READ_BYTES)
                changes += self._changes(events)
                if len(events) <= _READ_BYTES // 2:
                    return changes
        except BlockingIOError:
            pass
        return changes

    def _changes(self, events: bytes) -> list[Change]:
        changes: list[Change] = []
        at = 0
        while at < len(events):
            watch, mask, _, size = _EVENT.unpack_from(events, at)
            at += _EVENT.size + size
            name = os.fsdecode(events[at - size : at].rstrip(b"\0"))
            changes.append(Change(self._folder_of.get(watch, ""), name, bool(mask & _IN_MOVED_TO)))
        return changes

    def close(self) -> None:
        """Watch no more."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


@cache
def _libc() -> ctypes.CDLL | None:
    return ctypes.CDLL(None) if sys.platform.startswith("linux") else None
