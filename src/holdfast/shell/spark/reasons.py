"""Says in one line what one of Spark's long errors means."""

from __future__ import annotations


def reason_of(error: Exception) -> str:
    """The line that names the cause: Python's own error if there is one, else the JVM's."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    named = [
        line
        for line in lines
        if ("Error" in line or "Exception" in line)
        and not line.startswith(("at ", "Traceback", "An error occurred"))
    ]
    python = [line for line in named if not line.startswith(("Caused by", ": ", "org.", "java."))]
    chosen = python[-1] if python else next(iter(named), (lines or [type(error).__name__])[0])
    return chosen.removeprefix(": ")[:500]
