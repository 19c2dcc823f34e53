"""The folder of a process's own in which its sockets within a host lie.

A process that is killed leaves it behind. It holds a lock on it for as long as it lives; so whoever
comes next can tell folders of dead processes, of whatever query, and deletes those of its own user.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path
from typing import Final

_PREFIX: Final = "holdfast-sockets-"
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class SocketFolder:
    """A folder that nobody else may look into."""

    def __init__(self) -> None:
        """Make it, and delete what dead processes have left beside it."""
        _sweep()
        while True:
            self.path = tempfile.mkdtemp(prefix=_PREFIX)
            with contextlib.suppress(FileNotFoundError):
                self._lock = os.open(self.path, _FOLDER)
                with contextlib.suppress(BlockingIOError):
                    if _may_stay(self._lock, self.path):
                        return
                os.close(self._lock)  # Somebody sweeps it, as it was not locked yet.

    def close(self) -> None:
        """Delete it."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def _sweep() -> None:
    """Delete the folders of this user's processes that are no more."""
    with contextlib.suppress(OSError):
        for entry in os.scandir(tempfile.gettempdir()):
            if entry.name.startswith(_PREFIX):
                _delete_if_dead(Path(entry.path))


def _delete_if_dead(path: Path) -> None:
    with contextlib.suppress(OSError):  # It is another user's, in use, or was deleted just now.
        folder = os.open(path, _FOLDER)
        try:
            if os.fstat(folder).st_uid == os.geteuid():
                fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path, ignore_errors=True)
        finally:
            os.close(folder)


def _may_stay(folder: int, path: str) -> bool:
    """Lock it; whether it is still there. Raises `BlockingIOError` if somebody else has it."""
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:  # There are no locks here, and so nobody who sweeps.
        return True
    return os.path.isdir(path)
