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

    def __init__(self, location: str, *, waits: bool = False) -> None:
        """Take the lock.

        Args:
            location: The folder.
            waits: Whether to wait until it is free; of those that wait the kernel picks one.

        Attributes:
            epoch_before: Which epoch whoever held it before had begun; 0: it noted none.

        Raises:
            LocationInUse: Another query holds it, and this one does not wait.
        """
        self._file = open_regular(Path(location, "lock"), os.O_CREAT | os.O_RDWR)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | (0 if waits else fcntl.LOCK_NB))
        except OSError:
            holder = self._noted()[:1]
            os.close(self._file)
            raise LocationInUse(
                f"another query (process {''.join(holder) or 'unknown'}) runs at {location}; stop "
                "it, or use another checkpointLocation"
            ) from None
        epoch = "".join(self._noted()[1:2])
        self.epoch_before = int(epoch) if epoch.isdigit() else 0
        self.note(0)

    def note(self, epoch: int) -> None:
        """Say which epoch the holder has begun: whoever gets the lock next knows who has ended."""
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, f"{os.getpid()} {epoch}".encode(), 0)

    def _noted(self) -> list[str]:
        """The process that holds it or has held it, and its epoch."""
        return os.pread(self._file, 100, 0).decode(errors="replace").split()

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
