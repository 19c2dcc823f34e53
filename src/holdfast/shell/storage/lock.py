"""One running query per checkpoint location on a machine."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from holdfast.shell.storage.errors import LocationInUse
from holdfast.shell.storage.small_files import open_regular


class LocationLock:
    """Held for as long as the query runs; the kernel lets go of it when the process dies.

    It spares users a confusing minute. What keeps two coordinators apart for certain, on any file
    system, is the journal: of two only one gets an epoch.
    """

    def __init__(self, location: str) -> None:
        """Take the lock. Raises `LocationInUse` when another query holds it."""
        self._file = open_regular(Path(location, "lock"), os.O_CREAT | os.O_RDWR)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.pread(self._file, 100, 0).decode(errors="replace")
            os.close(self._file)
            raise LocationInUse(
                f"another query (process {holder or 'unknown'}) runs at {location}; stop it, or "
                "use another checkpointLocation"
            ) from None
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, str(os.getpid()).encode(), 0)

    def release(self) -> None:
        """Let the next query in."""
        os.close(self._file)


def is_held(location: str) -> bool:
    """Whether a query of this machine, or of one that shares its locks, runs at a folder."""
    try:
        file = open_regular(Path(location, "lock"))
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(file)
    return False
