"""A deque of fixed-width records in pages: add, look and remove at both ends. [SGuard §4.2]

Its pages form a ring (see `deque_kernels.py`, where the inner loops are, and `page_layout.py`). The
super page tells where the records begin and end in it; so a removal writes no other page, and a
page that a checkpoint holds is not cloned to forget what is in it.
"""

from __future__ import annotations

import numpy as np

from holdfast.core.errors import InvariantViolation, LocalProtocolError
from holdfast.core.state import deque_kernels, kernels
from holdfast.core.state.deque_kernels import FIRST, HEAD, NEXT, PREVIOUS, RING_WORDS, STOP, TAIL
from holdfast.core.state.page_layout import FRESH, LinkedPages
from holdfast.core.state.page_manager import PageManager, PageSetId

_NO_VALUES = -1
"""In the place of a map's value words, so that neither is opened as the other."""


class PagedDeque:
    """Records of `width` words, in the order from front to back.

    It keeps the pages of its longest extent until it is empty, then none but its super page.
    """

    def __init__(
        self, manager: PageManager, width: int, page_sets: tuple[PageSetId, ...] | None = None
    ) -> None:
        """Create it empty, or find it as a checkpoint holds it.

        Empty, it takes a page at once; the first record takes another.

        Args:
            manager: Of the pages.
            width: Words of a record.
            page_sets: Its one page set, when a record elsewhere names it; else it makes it.

        Raises:
            LocalProtocolError: A record does not fit in a page, or the checkpoint's are others.
            StateLimitExceeded: No page is left.
        """
        if not 0 < width <= manager.page_words - RING_WORDS:
            raise LocalProtocolError(
                f"a record of {width} words does not fit in {manager.page_words - RING_WORDS}"
            )
        self._manager = manager
        self.width = width
        self._per_page = (manager.page_words - RING_WORDS) // width
        self._pages = LinkedPages(manager, (width, _NO_VALUES), page_sets)
        self.page_sets = self._pages.page_sets

    def __len__(self) -> int:
        return len(self._pages)

    @property
    def page_count(self) -> int:
        """How many pages it takes."""
        return len(self._pages.table)

    def push_back(self, rows: np.ndarray) -> None:
        """Add rows, int64 (n, width), behind the last record; the last row becomes the last.

        Raises:
            StateLimitExceeded: No page is left; nothing was added.
        """
        self._push(rows, is_front=False)

    def push_front(self, rows: np.ndarray) -> None:
        """Add rows, int64 (n, width), before the first record; the last row becomes the first.

        Raises:
            StateLimitExceeded: No page is left; nothing was added.
        """
        self._push(rows, is_front=True)

    def pop_front(self, count: int) -> np.ndarray:
        """Remove the first records, up to `count`, and return them, the first first."""
        return self._pop(count, is_front=True)

    def pop_back(self, count: int) -> np.ndarray:
        """Remove the last records, up to `count`, and return them, the last first."""
        return self._pop(count, is_front=False)

    def peek_front(self, count: int) -> np.ndarray:
        """The first records, up to `count`, the first first. int64 (n, width)."""
        return self._read(count, is_front=True)[0]

    def peek_back(self, count: int) -> np.ndarray:
        """The last records, up to `count`, the last first. int64 (n, width)."""
        return self._read(count, is_front=False)[0]

    def scan(self) -> np.ndarray:
        """All records from front to back, int64 (records, width)."""
        return self.peek_front(len(self))

    def destroy(self) -> None:
        """Release all its pages; the deque must not be used again."""
        self._pages.destroy()

    def check_invariants(self) -> None:
        """Raise `InvariantViolation` unless the pages form a ring that holds the records."""
        head = self._pages.head
        if len(self) == 0:
            if head[FRESH] != 1 or head[HEAD] != 0:
                raise InvariantViolation("an empty deque has pages")
            return
        ring = [int(head[HEAD])]
        while len(ring) < int(head[FRESH]):
            after = int(self._page(ring[-1])[NEXT])
            if int(self._page(after)[PREVIOUS]) != ring[-1]:
                raise InvariantViolation(f"page {after} does not follow {ring[-1]} both ways")
            if after == ring[0]:
                break
            ring.append(after)
        if sorted(ring) != list(range(2, int(head[FRESH]) + 1)):
            raise InvariantViolation("a page is not in the ring, or twice")
        if not (0 <= head[FIRST] < self._per_page and 0 < head[STOP] <= self._per_page):
            raise InvariantViolation(f"the records are from {head[FIRST]} to {head[STOP]}")
        pages_before = ring.index(int(head[TAIL]))
        count = pages_before * self._per_page + int(head[STOP]) - int(head[FIRST])
        if count != len(self):
            raise InvariantViolation(f"{count} records in the ring, {len(self)} counted")

    def _push(self, rows: np.ndarray, *, is_front: bool) -> None:
        if rows.ndim != 2 or rows.shape[1] != self.width:
            raise LocalProtocolError(f"rows of shape {rows.shape} in a deque of {self.width}")
        rows = np.ascontiguousarray(rows, dtype=np.int64)
        self._reserve(len(rows), is_front=is_front)
        done = 0
        while done < len(rows):
            done = deque_kernels.deque_push(self._pages.to_write(), rows, done, is_front)

    def _reserve(self, count: int, *, is_front: bool) -> None:
        """Allocate what `count` records lack, before the first of them is stored."""
        head = self._pages.head
        room = 0
        used = 0
        if len(self):
            room = int(head[FIRST]) if is_front else self._per_page - int(head[STOP])
            used = (int(head[FIRST]) + len(self) + self._per_page - 1) // self._per_page
        needed = -(-max(0, count - room) // self._per_page)
        self._pages.reserve(needed - (int(head[FRESH]) - 1 - used))

    def _read(self, count: int, *, is_front: bool) -> tuple[np.ndarray, int, int]:
        out = np.empty((max(0, min(count, len(self))), self.width), dtype=np.int64)
        link, at = deque_kernels.deque_read(self._pages.to_read(), is_front, out)
        return out, link, at

    def _pop(self, count: int, *, is_front: bool) -> np.ndarray:
        out, link, at = self._read(count, is_front=is_front)
        remaining = len(self) - len(out)
        if remaining == 0 and len(out):
            self._pages.clear()
        elif len(out):
            head = self._pages.writable_head()
            head[kernels.ENTRIES] = remaining
            head[HEAD if is_front else TAIL] = link
            head[FIRST if is_front else STOP] = at
        return out

    def _page(self, link: int) -> np.ndarray:
        return self._manager.resolve(self.page_sets[0], link - 1)
