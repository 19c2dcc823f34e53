"""How often nodes that recover together cut after a recovery.

Results wait for a line behind the recovery. Survivors cut when they go on: the line comes to the
replacement's point then. Its next results need cuts of all members once more, first its own and
then those of its senders. So each of them begins with short periods, and doubles them until they
are as long as usual: the longer results have waited, the less a little more matters.
"""

from __future__ import annotations

from typing import Final

EARLY_MS: Final = 20
"""The first period between checkpoints after a recovery, at least."""
EARLY_PART: Final = 128
"""So small a part of the usual one it is otherwise."""


class FirstPeriods:
    """The periods of one incarnation. Volatile: all fields."""

    def __init__(self, usual_ms: int) -> None:
        """All periods are as usual, about `usual_ms`, until a recovery."""
        self._first_ms = max(EARLY_MS, usual_ms // EARLY_PART)
        self._next_ms: int | None = None

    def recovered(self) -> None:
        """The next periods are short."""
        self._next_ms = self._first_ms

    def take(self, usual_ms: int) -> int:
        """The next period, where it would be so long otherwise."""
        early_ms = self._next_ms
        if early_ms is None or early_ms >= usual_ms:
            self._next_ms = None
            return usual_ms
        self._next_ms = 2 * early_ms
        return early_ms


def first_line_ms(depth: int, usual_ms: float) -> float:
    """Until a line lies behind a recovery, and has results of the replacement before it, at most.

    The replacement cuts after the first period, and each unit before it after another one.

    Args:
        depth: Units that the input has passed through, the replacement's counted.
        usual_ms: Their usual period.
    """
    return float((1 << depth) - 1) * max(float(EARLY_MS), usual_ms / EARLY_PART)
