"""Checkpoints that wait until windows have closed: there is less to write then. [CheckMate §III-B]

A window has closed once the oldest tuple that the state goes back to is another one. A checkpoint
waits for that for one period at most, and not at all if no state goes back to anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.core.model.ids import NO_ID

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np


class AfterWindows:
    """Whether a checkpoint waits. Volatile: all fields."""

    def __init__(self, oldest_needed: Callable[[], np.ndarray]) -> None:
        """None waits.

        Args:
            oldest_needed: Says per input stream the oldest tuple that the state goes back to.
        """
        self._oldest_needed = oldest_needed
        self._then: np.ndarray | None = None  # when the checkpoint that waits was due

    def waits(self) -> bool:
        """A period is over; whether the checkpoint that is due waits. Cost: O(inputs)."""
        oldest = self._oldest_needed()
        if self._then is not None or bool((oldest == NO_ID).all()):
            self._then = None
            return False
        self._then = oldest
        return True

    def have_closed(self) -> bool:
        """Whether a checkpoint has waited, and need not any more. Cost: O(inputs)."""
        if self._then is None or not bool((self._oldest_needed() > self._then).any()):
            return False
        self._then = None
        return True
