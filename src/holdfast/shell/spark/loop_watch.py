"""Whether a node's loop is at work, as another thread of its process can see it."""

from __future__ import annotations

import math
import threading
import time
from typing import Final

from holdfast.core.model.users_code import USERS_CODE

_PASS_MAX_S: Final = 600.0
_WORKS_SHARE: Final = 0.01
"""Of the time between two looks: who computes for less of it waits for something."""


class LoopWatch:
    """Tells a long pass from a loop that is stuck.

    A pass may take long: a window of millions of tuples closes, a user's function computes. Whoever
    replaced the node would begin the pass anew, and be silent for as long. So a loop that computes
    lives, up to ten minutes in one pass, and so does one that is in a function of the user's: it
    may wait for an answer. A loop that does nothing of that is stuck.
    """

    def __init__(self, stall_s: float) -> None:
        """Of the thread that calls: it is the loop's.

        Args:
            stall_s: A loop that has done nothing for so long is stuck.
        """
        self._stall_s = stall_s
        self._clock = time.pthread_getcpuclockid(threading.get_ident())
        self._turned_s = self._worked_s = self._looked_s = time.monotonic()
        self._computed_s = time.clock_gettime(self._clock)

    def turned(self) -> None:
        """The loop has turned."""
        self._turned_s = time.monotonic()

    def takes_over(self) -> None:
        """It takes over windows, however many and from whatever store; it lives until it turns.

        It is work that ends, and may wait for a store for long.
        """
        self._turned_s = math.inf

    def pass_s(self) -> float:
        """Since when it has not turned; seconds."""
        return max(0.0, time.monotonic() - self._turned_s)

    def is_stuck(self) -> bool:
        """Look, now and then, from any one thread."""
        now_s, computed_s = time.monotonic(), time.clock_gettime(self._clock)
        computes = computed_s - self._computed_s > _WORKS_SHARE * (now_s - self._looked_s)
        if computes or USERS_CODE.running:
            self._worked_s = now_s
        self._looked_s, self._computed_s = now_s, computed_s
        last_s = max(self._turned_s, min(self._worked_s, self._turned_s + _PASS_MAX_S))
        return now_s - last_s >= self._stall_s
