"""A driver in a process group of its own, to be killed with all its nodes."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

_TIMEOUT_S = 240.0


def kill_when_journalled(script: str, location: str, entry: str) -> str:
    """Run a driver until its journal names an entry, then kill it; returns its first line.

    Args:
        script: Python; prints a line once it has started its query.
        location: The query's checkpoint location.
        entry: How a name in quotes begins: an entry's class (without a version), or a key.
    """
    journals = Path(location, "coordinator")

    def is_journalled() -> bool:
        return any(f'"{entry}' in f.read_text() for f in journals.glob("*.journal"))

    return kill_when(script, is_journalled, f"no {entry} in the journal")


def kill_when(script: str, is_so: Callable[[], bool], otherwise: str) -> str:
    """Run a driver until something is so, then kill it; returns its first line.

    Args:
        script: Python; prints a line once it has started its query.
        is_so: Asked again and again once it has.
        otherwise: What to say if that never is.
    """
    with subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    ) as driver:
        assert driver.stdout is not None
        line = driver.stdout.readline()
        assert line, "the driver ended before it had started its query"
        try:
            deadline = time.monotonic() + _TIMEOUT_S
            while not is_so():
                assert time.monotonic() < deadline, otherwise
                assert driver.poll() is None, "the driver ended"
                time.sleep(0.01)
        finally:
            os.killpg(driver.pid, signal.SIGKILL)
    return line.strip()
