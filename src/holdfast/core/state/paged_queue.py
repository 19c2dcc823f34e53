"""A queue of fixed-width records in pages: first in, first out. [SGuard §4.2]

A deque used from one side each; its pages go round in a ring as the records move through.
"""

from __future__ import annotations

import numpy as np

from holdfast.core.state.page_manager import PageManager, PageSetId
from holdfast.core.state.paged_deque import PagedDeque


class PagedQueue:
    """Records of `width` words, in the order of their arrival."""

    def __init__(
        self, manager: PageManager, width: int, page_sets: tuple[PageSetId, ...] | None = None
    ) -> None:
        """Create it empty, or find it as a checkpoint holds it; as `PagedDeque`."""
        self._deque = PagedDeque(manager, width, page_sets)
        self.width = width
        self.page_sets = self._deque.page_sets

    def __len__(self) -> int:
        return len(self._deque)

    @property
    def page_count(self) -> int:
        """How many pages it takes."""
        return self._deque.page_count

    def push(self, rows: np.ndarray) -> None:
        """Add rows, int64 (n, width), behind the others.

        Raises:
            StateLimitExceeded: No page is left; nothing was added.
        """
        self._deque.push_back(rows)

    def pop(self, count: int) -> np.ndarray:
        """Remove the oldest records, up to `count`, and return them. int64 (n, width)."""
        return self._deque.pop_front(count)

    def peek(self, count: int) -> np.ndarray:
        """The oldest records, up to `count`. int64 (n, width)."""
        return self._deque.peek_front(count)

    def scan(self) -> np.ndarray:
        """All records, the oldest first. int64 (records, width)."""
        return self._deque.scan()

    def destroy(self) -> None:
        """Release all its pages; the queue must not be used again."""
        self._deque.destroy()

    def check_invariants(self) -> None:
        """Raise `InvariantViolation` unless the pages form a ring that holds the records."""
        self._deque.check_invariants()
