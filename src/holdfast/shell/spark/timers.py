"""The timers of a node's process, on its monotonic clock in milliseconds."""

from __future__ import annotations

import time
from typing import Final

from holdfast.core.machine import SetTimer, TimerFired

_TOGETHER_MS: Final = 100
"""Loose timers that wait for as long all fire at multiples of it."""
_LOOSE: Final = frozenset({"ack", "keep-alive", "read"})
"""Those that do no harm when they fire early; checkpoints and deltas keep their intervals."""


class Timers:
    """Those that are set, by name."""

    def __init__(self) -> None:
        """None is set."""
        self._due_ms: dict[str, int] = {}

    def set(self, effect: SetTimer) -> None:
        """Setting it again replaces the earlier one."""
        is_loose = effect.name in _LOOSE
        self._due_ms[effect.name] = together(effect.at_ms, now_ms()) if is_loose else effect.at_ms

    def fired(self, at_ms: int) -> list[TimerFired]:
        """Those that have run out; they are gone then."""
        names = [name for name, due_ms in self._due_ms.items() if due_ms <= at_ms]
        for name in names:
            del self._due_ms[name]
        return [TimerFired(name) for name in names]

    def next_ms(self, otherwise_ms: int) -> int:
        """When the next one runs out, or another time that comes first."""
        return min([*self._due_ms.values(), otherwise_ms])


def together(at_ms: int, from_ms: int) -> int:
    """When a timer fires: with others, if it waits for long, so that the node wakes up once."""
    return at_ms - at_ms % _TOGETHER_MS if at_ms - from_ms >= _TOGETHER_MS else at_ms


def now_ms() -> int:
    """The time on the clock that machines are given."""
    return time.monotonic_ns() // 1_000_000
