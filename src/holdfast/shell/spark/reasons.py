"""Says in one line what one of Spark's long errors means.

An error of a Python worker reaches the driver as text: Python's traceback, within whatever the JVM
says before and behind it. Its last error is known by its place, the first line behind the frames,
and not by its name: those of our own classes say what is wrong, and few of them say `Error`.
"""

from __future__ import annotations

import re
from typing import Final

_TRACEBACK: Final = "Traceback (most recent call last):"
_BEHIND: Final = re.compile(
    r"\s|SQLSTATE|===|at |JVM stacktrace|Caused by|During handling|The above"
)
"""How lines begin that are no part of a Python error's message."""
_LENGTH_MAX: Final = 500


def reason_of(error: Exception) -> str:
    """The line that names the cause: Python's own error if there is one, else the JVM's."""
    text = str(error)
    reason = _of_python(text.rpartition(_TRACEBACK)[2]) if _TRACEBACK in text else ""
    return (reason or _of_jvm(text) or type(error).__name__)[:_LENGTH_MAX]


def _of_python(behind: str) -> str:
    """The error behind the frames of a traceback; all lines of its message in one."""
    message: list[str] = []
    for line in behind.splitlines()[1:]:
        if message and (not line.strip() or _BEHIND.match(line)):
            break
        if message or not line.startswith(" "):
            message.append(line.strip())
    return " ".join(message)


def _of_jvm(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    named = [
        line
        for line in lines
        if ("Error" in line or "Exception" in line)
        and not line.startswith(("at ", "Traceback", "An error occurred"))
    ]
    plain = [line for line in named if not line.startswith(("Caused by", ": ", "org.", "java."))]
    chosen = plain[-1] if plain else next(iter(named), next(iter(lines), ""))
    return chosen.removeprefix(": ")
