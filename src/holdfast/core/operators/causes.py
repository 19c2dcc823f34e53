"""Which input tuples the rows go back to that an operator holds: its low watermark. [HA §5.2]

Kept per group of rows, not per row: a group is the rows of one pass, or of several small ones. It
is forgotten once nothing as old as its newest row is held.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from holdfast.core.model.ids import NO_ID
from holdfast.core.state.page_manager import PageManager
from holdfast.core.state.paged_deque import PagedDeque

ROWS: Final = 256
"""A group that has so many rows takes no more passes."""
_NEWEST, _COUNT, _STREAM, _LOW = range(4)
"""Words of a record. A group has one for each node-wide input stream."""


class Causes:
    """Groups of held rows in order of arrival, in pages: newest tuple time, oldest tuple ids."""

    def __init__(self, manager: PageManager, *, is_forgetful: bool = True) -> None:
        """Create it empty, or find it as a checkpoint holds it.

        Args:
            manager: Of the pages.
            is_forgetful: Whether `forget` will be called; otherwise one group is enough.
        """
        self._groups = PagedDeque(manager, 4)
        self._rows_max = ROWS if is_forgetful else NO_ID
        self._look_at = 1  # groups at which `forget_seldom` looks what may be forgotten

    def __len__(self) -> int:
        """How many groups, times the input streams."""
        return len(self._groups)

    @property
    def page_count(self) -> int:
        """How many pages it takes."""
        return self._groups.page_count

    def note(self, time_us: np.ndarray, low: np.ndarray) -> None:
        """Rows of these times, at least one, go back to no tuple older than `low`."""
        group = np.empty((len(low), 4), dtype=np.int64)
        group[:, _NEWEST] = time_us.max()
        group[:, _COUNT] = len(time_us)
        group[:, _STREAM] = np.arange(len(low))
        group[:, _LOW] = low
        if len(self._groups):
            last = self._groups.peek_back(len(low))[::-1]
            if int(last[0, _COUNT]) < self._rows_max:
                self._groups.pop_back(len(low))
                group[:, _NEWEST] = np.maximum(group[:, _NEWEST], last[:, _NEWEST])
                group[:, _COUNT] += last[:, _COUNT]
                group[:, _LOW] = np.minimum(group[:, _LOW], last[:, _LOW])
        self._groups.push_back(group)

    def forget(self, before_us: int | None) -> None:
        """Nothing older than this is held any more; None: nothing at all is."""
        if before_us is None:
            self._groups.pop_front(len(self._groups))
            return
        records = self._groups.scan()
        kept = np.flatnonzero(records[:, _NEWEST] >= before_us)
        self._groups.pop_front(int(kept[0]) if len(kept) else len(records))

    def forget_seldom(self, held: int, oldest_us: Callable[[], int]) -> None:
        """Nothing older than the oldest held row is held any more; looked for now and then.

        Args:
            held: How many things are held, each of which `oldest_us` looks at.
            oldest_us: The time of the oldest row that they go back to.
        """
        if held == 0:
            self.forget(None)
        elif len(self) >= self._look_at:
            self.forget(oldest_us())
            self._look_at = len(self) + max(8, held // ROWS)  # As many rows as it looks at.

    def oldest(self) -> np.ndarray | None:
        """Per input stream the oldest tuple that a held row goes back to; None: nothing is held."""
        if not len(self._groups):
            return None
        records = self._groups.scan()
        streams = int(records[:, _STREAM].max()) + 1
        oldest: np.ndarray = records[:, _LOW].reshape(-1, streams).min(axis=0)
        return oldest

    def check_invariants(self) -> None:
        """Raise `InvariantViolation` if the pages make no sense."""
        self._groups.check_invariants()
