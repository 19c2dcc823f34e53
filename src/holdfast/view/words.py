"""Figures as the view shows them: three digits or so, and their unit. Pure."""

from __future__ import annotations

import time
from typing import Final

NOTHING: Final = "–"
_SPANS: Final = (
    (86_400, "d", 3_600, "h"),
    (3_600, "h", 60, "min"),
    (60, "min", 1, "s"),
)
_STEPS: Final = ((1e9, "G"), (1e6, "M"), (1e3, "k"))


def figure(value: float | None) -> str:
    """A count: `950`, `12.3 k`, `4.00 M`."""
    if value is None:
        return NOTHING
    for size, letter in _STEPS:
        if abs(value) >= size * 0.9995:
            return f"{_digits(value / size)} {letter}"
    return _digits(value) if value % 1 else f"{value:.0f}"


def rate(value: float | None) -> str:
    """Rows per second."""
    return NOTHING if value is None else f"{figure(round(value) if value >= 10 else value)}/s"


def size(value: float | None) -> str:
    """Bytes."""
    return NOTHING if value is None else f"{figure(value)}B" if value >= 999.5 else f"{value:.0f} B"


def milliseconds(value: float | None) -> str:
    """A duration given in milliseconds: `0.2 ms`, `340 ms`, `12.5 s`, `3 min`."""
    if value is None:
        return NOTHING
    if value < 999.5:
        return f"{_digits(value)} ms" if value % 1 else f"{value:.0f} ms"
    return duration(value / 1e3)


def duration(seconds: float) -> str:
    """A duration given in seconds."""
    if seconds < 60:
        return f"{_digits(seconds)} s" if seconds % 1 else f"{seconds:.0f} s"
    for length, word, smaller, smaller_word in _SPANS:
        if seconds >= length:
            rest = int(seconds % length / smaller)
            return f"{int(seconds / length)} {word}" + (f" {rest} {smaller_word}" if rest else "")
    return NOTHING


def clock(unix_s: float) -> str:
    """A time of today's, UTC."""
    return time.strftime("%H:%M:%S", time.gmtime(unix_s))


def _digits(value: float) -> str:
    """Three digits."""
    return (
        f"{value:.2f}"
        if abs(value) < 10
        else f"{value:.1f}"
        if abs(value) < 100
        else f"{value:.0f}"
    )
