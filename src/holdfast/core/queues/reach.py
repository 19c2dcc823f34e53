"""How far ahead of its stream a tuple may be and still move its time.

One record of the year 9999, as of a broken clock, would make all that comes after it late. A tuple
is within *reach* if it is at most so much ahead of the newest one that moved time, or of the clock
when it was recorded; tuples that lead from one to the next in steps of at most so much are within
reach together. What is beyond reach is a tuple like any other, but time does not follow it. Until
there has been a tuple, the oldest ones that came together begin.

A stream that has jumped for good, and ahead of the clock, is followed once `JUMP_TUPLES` tuples in
a row, none within reach between them, say so.

Times are told as *spans*: (oldest, newest, tuples), of tuples that lead from one to the next.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np

from holdfast.core.model.ids import BEGINNING_US

DAY_US: Final = 24 * 60 * 60 * 1_000_000
JUMP_TUPLES: Final = 1_000
_SPANS_MAX: Final = 64

Span = tuple[int, int, int]


def spans_of(times_us: np.ndarray, ahead_us: int | None, now_us: int) -> list[Span]:
    """The spans of times, at least one; all that are not ahead of the clock are one.

    Cost: O(1) numpy calls unless some are ahead of the clock. Of more than 64 spans, which lie
    scattered ahead of it, the furthest are one.
    """
    newest_us = int(times_us.max())
    if ahead_us is None or newest_us <= now_us:
        return [(int(times_us.min()), newest_us, len(times_us))]
    ahead = np.sort(times_us[times_us > now_us])
    begins = [0, *(np.flatnonzero(np.diff(ahead) > ahead_us) + 1).tolist()][:_SPANS_MAX]
    ends = [*begins[1:], len(ahead)]
    spans = [(int(ahead[a]), int(ahead[b - 1]), b - a) for a, b in zip(begins, ends, strict=True)]
    count = len(times_us) - len(ahead)
    if count:
        past = times_us[times_us <= now_us]
        spans.insert(0, (int(past.min()), int(past.max()), count))
    return spans


def joined(spans: list[Span], ahead_us: int, now_us: int) -> list[Span]:
    """The spans of several batches of tuples as those of all of them."""
    found: list[Span] = []
    for oldest_us, newest_us, count in sorted(spans):
        if found and oldest_us <= max(found[-1][1], now_us) + ahead_us:
            former = found[-1]
            found[-1] = (former[0], max(former[1], newest_us), former[2] + count)
        else:
            found.append((oldest_us, newest_us, count))
    if len(found) > _SPANS_MAX:
        rest = found[_SPANS_MAX - 1 :]
        furthest = (rest[0][0], rest[-1][1], sum(count for _, _, count in rest))
        found = [*found[: _SPANS_MAX - 1], furthest]
    return found


class Reach:
    """Which tuples of a stream move its time."""

    def __init__(
        self,
        ahead_us: int | None,
        newest_us: int = BEGINNING_US,
        tuples_beyond: int = 0,
        in_a_row: int = 0,
    ) -> None:
        """Begin, or go on from the newest time that counts.

        Args:
            ahead_us: See the module; None: every tuple moves time.
            newest_us: `BEGINNING_US`: there has been no tuple.
            tuples_beyond: How many were beyond reach so far.
            in_a_row: How many of those came since one was within reach.
        """
        self._ahead_us = ahead_us
        self.newest_us = newest_us
        self.tuples_beyond = tuples_beyond
        self.in_a_row = in_a_row

    def admit(self, spans: Iterable[Span], now_us: int) -> int | None:
        """Tuples came together, recorded at this time; what is newer than this is beyond reach.

        None: nothing is. Cost: O(spans).
        """
        ahead_us = self._ahead_us
        ordered = sorted(spans)
        if ahead_us is None:
            self.newest_us = max([self.newest_us, *(newest for _, newest, _ in ordered)])
            return None
        beyond = self._follow(ordered, max(self.newest_us, now_us), ahead_us)
        if len(beyond) < len(ordered):
            self.in_a_row = 0
        count = sum(tuples for _, _, tuples in beyond)
        self.in_a_row += count
        has_begun = self.newest_us != BEGINNING_US
        if beyond and (not has_begun or self.in_a_row >= JUMP_TUPLES):
            self.in_a_row = 0
            beyond = self._follow(beyond, beyond[0][0], ahead_us)
            count = sum(tuples for _, _, tuples in beyond)
        self.tuples_beyond += count
        return beyond[0][0] - 1 if beyond else None

    def believes(self, watermark_us: int, now_us: int) -> bool:
        """Whether somebody's watermark can be that of tuples within reach."""
        limit_us = max(self.newest_us, now_us)
        return self._ahead_us is None or watermark_us <= limit_us + self._ahead_us

    def _follow(self, ordered: list[Span], reached_us: int, ahead_us: int) -> list[Span]:
        """Move time along the spans within reach; those beyond."""
        for number, (oldest_us, newest_us, _) in enumerate(ordered):
            if oldest_us > reached_us + ahead_us:
                return ordered[number:]
            reached_us = max(reached_us, newest_us)
            self.newest_us = max(self.newest_us, newest_us)
        return []
