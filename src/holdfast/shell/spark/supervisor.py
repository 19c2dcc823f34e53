"""Runs a node in a process of its own beneath its Spark task, and starts it again when it dies.

Spark takes a few hundred milliseconds to start a task again. A fork of a process that has all
modules loaded takes a few; so a node whose process alone has died is back before it is missed. What
takes more with it, the executor or the machine, is Spark's and the coordinator's to replace.
"""

from __future__ import annotations

import os
import signal
import stat
import traceback
from collections.abc import Callable

from holdfast.shell.processes import die_with_parent

_REPORT_BYTES_MAX = 1 << 20
_EARLY_KILLS_MAX = 3
_AGAIN = 75
"""The exit code of a process that asks to be run again."""
_UP = b"\n"
"""The first that a process writes to its supervisor, if it gets so far; an error follows."""

Body = Callable[[str, Callable[[], None]], None]
"""What to run: gets what ended the process before, if there was one; calls when it has come up."""


class RunAgain(Exception):
    """The process is to be replaced by another one, for this reason; nothing is wrong with it."""


class ProcessError(Exception):
    """The process has raised an error, or was killed again and again before it had come up."""


def supervise(body: Body) -> None:
    """Run `body` in a process of its own until it returns; run it again if it was killed, or asks.

    Raises:
        ProcessError: It has raised, or was killed so often before it came up that it may be so for
            ever.
    """
    former = ""
    kills = 0
    while True:
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reader)
            _run(body, former, writer)
        os.close(writer)
        with os.fdopen(reader, "rb") as pipe:
            said = pipe.read(_REPORT_BYTES_MAX)
        _, status = os.waitpid(child, 0)
        error = said.decode(errors="replace").strip()
        if not os.WIFSIGNALED(status) and os.WEXITSTATUS(status) == _AGAIN:
            former = error
            continue
        if not os.WIFSIGNALED(status):
            if error or os.WEXITSTATUS(status) != 0:
                raise ProcessError(error or f"exit code {os.WEXITSTATUS(status)}")
            return
        former = f"its process was ended by {signal.Signals(os.WTERMSIG(status)).name}"
        kills = 0 if said.startswith(_UP) else kills + 1
        if kills == _EARLY_KILLS_MAX:
            raise ProcessError(former)


def _run(body: Body, former: str, writer: int) -> None:
    """In the child: never returns. What it inherits of its parent's connections is the parent's."""

    def came_up() -> None:
        os.write(writer, _UP)

    status = 1
    try:
        die_with_parent()
        _close_sockets()
        body(former, came_up)
        status = 0
    except RunAgain as again:
        os.write(writer, str(again).encode())
        status = _AGAIN
    except BaseException:
        os.write(writer, traceback.format_exc().encode()[-_REPORT_BYTES_MAX:])
    finally:
        os._exit(status)


def _close_sockets() -> None:
    """The connection to Spark above all: it has to end with the parent."""
    for name in os.listdir("/proc/self/fd"):
        try:
            if stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                os.close(int(name))
        except OSError:
            continue  # The listing's own.
