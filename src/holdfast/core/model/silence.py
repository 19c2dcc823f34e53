"""Whose keep-alives are missed, as one can tell who may have stood still oneself. [HA §4]

Words that came in while the waiting process was stopped, starved or held up by a disk are handled
only after it goes on, and its check may be due before them. So a check that comes late takes nobody
for lost yet who was not missed at the check before: one more turn, and such words are in.

Nor do all peers die in one moment: when all of them fall silent together, the machine that they
share stands still, or who waits is cut off from them. Such a time does not count, up to twice the
limit: what is missed for three times the limit is lost, whatever the others do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

_COMMON_FACTOR: Final = 2
"""So many limits of silence that all share do not count."""


class SilenceWatch:
    """Judges silence at checks that come at regular times.

    Attributes:
        stood_still_ms: How much longer than regularly the last check has been in coming, if it
            shows a standstill.
    """

    def __init__(self, late_ms: int) -> None:
        """Nothing has been checked.

        Args:
            late_ms: A check that comes so long after the one before shows a standstill.
        """
        self._late_ms = late_ms
        self._checked_ms: int | None = None
        self._common_ms: int | None = None  # until then, all were silent together
        self._is_late = False
        self.stood_still_ms = 0
        self._missed: dict[str, int] = {}  # at this check, with when it was last heard
        self._missed_before: dict[str, int] = {}

    def check(self, now_ms: int, heard_ms: Sequence[int], limit_ms: int) -> None:
        """A check begins.

        Args:
            now_ms: The time.
            heard_ms: When each of the peers was last heard.
            limit_ms: So long a silence is nothing.
        """
        before_ms = self._checked_ms
        apart_ms = 0 if before_ms is None else now_ms - before_ms
        self._is_late = apart_ms > self._late_ms
        self.stood_still_ms = apart_ms - self._late_ms if self._is_late else 0
        self._checked_ms = now_ms
        self._missed_before, self._missed = self._missed, {}
        silent_ms = now_ms - max(heard_ms, default=now_ms)
        if len(heard_ms) > 1 and limit_ms < silent_ms <= _COMMON_FACTOR * limit_ms:
            self._common_ms = now_ms

    def is_lost(self, peer: str, heard_ms: int, limit_ms: int, now_ms: int) -> bool:
        """Whether a peer that was last heard at `heard_ms` is missed for more than `limit_ms`."""
        common_ms = heard_ms if self._common_ms is None else self._common_ms
        since_ms = max(heard_ms, min(common_ms, heard_ms + _COMMON_FACTOR * limit_ms))
        if now_ms - since_ms <= limit_ms:
            return False
        self._missed[peer] = heard_ms
        return not self._is_late or self._missed_before.get(peer) == heard_ms
