"""What a process asks of the kernel."""

from __future__ import annotations

import ctypes
import os
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

_PR_SET_PDEATHSIG: Final = 1
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_MAPPED_BYTES_MIN: Final = 32 << 20
_FREED_BYTES_KEPT: Final = 256 << 20
_AUTOGROUP: Final = Path("/proc/self/autogroup")
_WISHES: Final = 500
_WISH_INTERVAL_S: Final = 0.02


def die_with_parent() -> None:
    """Ask the kernel to kill this process when its parent dies: no orphan survives."""
    parent = os.getppid()
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def keep_freed_memory() -> None:
    """Ask glibc's allocator to keep what is freed, up to 256 MiB; other allocators are left alone.

    Blocks from 32 MiB on are given back at once: it lets nobody keep those.

    A node frees and needs again as much with every batch and every window. A page that the kernel
    has to bring costs several times what filling it does, most of all in a virtual machine.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _MAPPED_BYTES_MIN)
        mallopt(_M_TRIM_THRESHOLD, _FREED_BYTES_KEPT)


def begin_session(niceness: int) -> None:
    """Leave the parent's session, and be as nice to others as asked; with 0 all are alike.

    Linux shares the cores out among sessions first (sched_autogroup), so that the many threads of
    one do not crowd out the few of another; then the session is what has a niceness. Where it does
    not, in a container for one, only that of the process counts. A negative one is a privilege:
    without it, it has no effect.
    """
    os.setsid()
    if niceness:
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, 0, niceness)
        wish = threading.Thread(target=_make_session, args=(niceness,), name="niceness")
        wish.daemon = True  # It may take as many tenths of a second as there are nodes.
        wish.start()


def _make_session(niceness: int) -> None:
    """Linux takes one such wish in 100 ms, of all processes, from those without privileges."""
    for _ in range(_WISHES):
        try:
            _AUTOGROUP.write_text(str(niceness))
        except BlockingIOError:
            time.sleep(_WISH_INTERVAL_S)
        except OSError:
            return
        else:
            return


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and that nobody has asked after does not."""
    return _state(pid) not in "ZX"


def is_at_work(pid: int) -> bool:
    """The same, of one that is not stopped either."""
    return _state(pid) not in "ZXTt"


def _state(pid: int) -> str:
    """As Linux has it: one letter, X if there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[0]
    except OSError:
        return "X"
