"""Disks and clocks that fail for real, by what Debian has: libfiu, libfaketime, ext4 in a file.

`FaultPoints` has libfiu stand between a process and its C library, and refuse calls there. `Clock`
has libfaketime tell a process another time of day. `SmallDisk` is a file system of its own, which
can be full, and as slow as a cgroup makes it. None of them is known to Holdfast.

Four traps of these tools, each of which ends in a process that waits for ever:

1. A library that is being loaded begins a thread, as Arrow's does for its allocator. That one's
   first call goes to libfiu, which locks its table and asks the loader for a symbol; the loader is
   locked. Whoever loads calls `mmap`, for which libfiu wants its table. Every other import of
   pyarrow ended so. So libraries are told to begin no threads as they are loaded, and who has
   threads of its own loads its libraries before it begins them.
2. libfiu is told what to refuse through pipes that belong to a process. `fiu-ctrl` opens them, and
   waits for the other end; a node that has just died has none. What is said here waits for nobody.
3. libfaketime also moves the monotonic clock, but not the waiting of `sem_clockwait`, which Python
   waits with. A wait of 100 ms then ends in fifty years. So the monotonic clock stays as it is.
4. With that one left alone, libfaketime passes on what Python's `time.sleep` asks for as times that
   no kernel takes. So `time.sleep` waits by `select` where the clock is libfaketime's.
"""

from __future__ import annotations

import errno
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from holdfast.shell.processes import is_alive

_FIU: Final = (Path("/usr/lib/fiu/fiu_run_preload.so"), Path("/usr/lib/fiu/fiu_posix_preload.so"))
_FAKETIME: Final = "faketime/libfaketimeMT.so.1"
_LIBRARIES: Final = (Path("/usr/lib"), Path("/usr/lib/x86_64-linux-gnu"))
_SHARED: Final = Path("/dev/shm")
_CGROUPS: Final = Path("/sys/fs/cgroup/blkio")
_ANSWER_S: Final = 60.0
_BETWEEN_S: Final = 0.01
_NO_THREADS: Final = {
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
    "OPENBLAS_NUM_THREADS": "1",
}
_SLEEP: Final = """\
import select, time


def sleep(seconds):
    select.select([], [], [], seconds)


time.sleep = sleep
"""
SYNC: Final = ("posix/io/sync/*",)
WRITE: Final = ("posix/io/rw/writev", "posix/io/rw/pwrite", "posix/io/rw/pwritev")
READ: Final = ("posix/io/rw/pread", "posix/io/rw/preadv")
SHORT: Final = tuple(f"{point}/reduce" for point in (*WRITE, *READ))
"""Points of failure: what only files are read and written with, so that sockets go on."""


class NotHere(Exception):
    """This machine lacks what such faults take; it says what."""


class FaultPoints:
    """Calls to the C library that fail, in processes that began in this environment."""

    def __init__(self, folder: Path) -> None:
        """None fails yet. Raises `NotHere`.

        Args:
            folder: For its pipes; empty.
        """
        if not all(library.exists() for library in _FIU):
            raise NotHere("libfiu; on Debian: apt-get install fiu-utils libfiu0")
        self._base = folder / "of"

    @property
    def environment(self) -> dict[str, str]:
        """In which a process is to begin; those that it forks are as it is then."""
        preloaded = ":".join(str(library) for library in _FIU)
        return {"LD_PRELOAD": preloaded, "FIU_CTRL_FIFO": str(self._base), **_NO_THREADS}

    def fail(self, pid: int, points: tuple[str, ...], number: int = errno.EIO) -> bool:
        """Have these calls of a process fail with an error number; False: it has ended."""
        return all(self._say(pid, f"enable name={point},failinfo={number}") for point in points)

    def heal(self, pid: int, points: tuple[str, ...]) -> bool:
        """Let them through again; False: the process has ended."""
        return all(self._say(pid, f"disable name={point}") for point in points)

    def _say(self, pid: int, command: str) -> bool:
        """Whether the process has done so."""
        with self._opened(pid, "in", os.O_WRONLY) as into:
            if into is None:
                return False
            with self._opened(pid, "out", os.O_RDONLY) as out:
                if out is None:
                    return False
                with suppress(BrokenPipeError):
                    os.write(into, command.encode() + b"\n")
                    answered, _, _ = select.select([out], [], [], _ANSWER_S)
                    return bool(answered and os.read(out, 64).startswith(b"0"))
        return False

    @contextmanager
    def _opened(self, pid: int, name: str, how: int) -> Iterator[int | None]:
        """An end of a pipe; None if the process has no other end, nor is to open one.

        Behind each command it opens its ends anew.
        """
        end, until_s = None, time.monotonic() + _ANSWER_S
        while end is None:
            try:
                end = os.open(f"{self._base}-{pid}.{name}", how | os.O_NONBLOCK)
            except FileNotFoundError:
                break
            except OSError as error:
                if error.errno != errno.ENXIO:
                    raise
                if not is_alive(pid) or time.monotonic() > until_s:
                    break
                time.sleep(_BETWEEN_S)
        try:
            yield end
        finally:
            if end is not None:
                os.close(end)


class Clock:
    """The time of day of processes that began in this environment; it may leap either way."""

    def __init__(self, folder: Path) -> None:
        """It is right yet. Raises `NotHere`.

        Args:
            folder: For its files; empty.
        """
        found = [path / _FAKETIME for path in _LIBRARIES if (path / _FAKETIME).exists()]
        if not found:
            raise NotHere("libfaketime; on Debian: apt-get install libfaketime")
        self._library, self._folder = found[0], folder
        (folder / "sitecustomize.py").write_text(_SLEEP)
        self.leap(0)

    @property
    def environment(self) -> dict[str, str]:
        """In which a process is to begin; `PYTHONPATH` is to be put before what it has."""
        return {
            "LD_PRELOAD": str(self._library),
            "FAKETIME_TIMESTAMP_FILE": str(self._folder / "offset"),
            "FAKETIME_CACHE_DURATION": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "PYTHONPATH": str(self._folder),
        }

    def leap(self, seconds: int) -> None:
        """Be so far from the right time, within a second from now."""
        draft = self._folder / "offset.draft"
        draft.write_text(f"{seconds:+d}\n")
        os.replace(draft, self._folder / "offset")

    @staticmethod
    def sweep() -> None:
        """Remove what libfaketime has left in shared memory of processes that were killed."""
        for path in _SHARED.glob("*faketime_s*_*"):
            number = path.name.rpartition("_")[2]
            if number.isdigit() and not is_alive(int(number)):
                path.unlink(missing_ok=True)


class SmallDisk:
    """A file system in a file, mounted.

    Attributes:
        place: Its folder.
    """

    def __init__(self, folder: Path, megabytes: int) -> None:
        """Empty, with room, and fast. Raises `NotHere`.

        Args:
            folder: For the file and the place to mount it at; empty.
            megabytes: Its size.
        """
        self.place = folder / "disk"
        self._filler = self.place / "filler"
        self._group = _CGROUPS / f"holdfast-{os.getpid()}"
        if os.geteuid() or not all(map(shutil.which, ("losetup", "mkfs.ext4", "mount"))):
            raise NotHere("the right to mount a file system, or losetup and mkfs.ext4")
        image = folder / "image"
        with image.open("wb") as file:
            file.truncate(megabytes << 20)
        _run("mkfs.ext4", "-q", "-F", "-m", "0", str(image))
        self._device = _run("losetup", "-f", "--show", str(image)).strip()
        try:
            self.place.mkdir()
            _run("mount", self._device, str(self.place))
        except NotHere:
            _run("losetup", "-d", self._device)
            raise

    def fill(self, left_bytes: int) -> None:
        """Leave that much room."""
        found = os.statvfs(self.place)
        with self._filler.open("wb") as file:
            os.posix_fallocate(
                file.fileno(), 0, max(1, found.f_bavail * found.f_frsize - left_bytes)
            )

    def make_room(self) -> None:
        """As much as there was."""
        self._filler.unlink(missing_ok=True)

    def slow_down(self, pid: int, bytes_per_s: int) -> None:
        """Let a process, and those that it starts from now on, write so much a second; 0: any.

        Raises:
            NotHere: There is no cgroup that can.
        """
        if not (_CGROUPS / "cgroup.procs").exists():
            raise NotHere(f"cgroups of block devices at {_CGROUPS}")
        self._group.mkdir(exist_ok=True)
        number = (Path("/sys/block") / Path(self._device).name / "dev").read_text().strip()
        (self._group / "blkio.throttle.write_bps_device").write_text(f"{number} {bytes_per_s}")
        with suppress(ProcessLookupError):
            (self._group / "cgroup.procs").write_text(str(pid))

    def close(self) -> None:
        """Unmount it, even if somebody still has a file open there, and forget it."""
        if self._group.exists():
            for pid in (self._group / "cgroup.procs").read_text().split():
                with suppress(OSError):  # It has ended.
                    (_CGROUPS / "cgroup.procs").write_text(pid)
            with suppress(OSError):  # A process is on its way out; an empty group costs nothing.
                self._group.rmdir()
        _run("umount", "-l", str(self.place))
        _run("losetup", "-d", self._device)


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NotHere(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout
