"""Pages that link to each other: what the T-tree and the deque lay out alike. [SGuard §4.2, 4.3]

A structure of this kind has one page set. Page 0 is the super page: word 0 the count of records,
word 1 the first page that was never used, words 2 and 3 the shape of a record, and from word 4 on
the structure's own, all zero while it is empty. Any other page begins with links to its neighbors;
records follow. A *link* is a page sequence plus one; zero means "none".

A page set shrinks only at its end, and the page that becomes empty may be any. So a structure
keeps such pages for its next ones, and gives all of them back when it has no record left.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import numpy as np

from holdfast.core.errors import LocalProtocolError
from holdfast.core.state import kernels
from holdfast.core.state.page_manager import PageManager, PageSetId

FRESH: Final = 1
SHAPE: Final = 2
OWN: Final = 4
"""The first word of the super page that is the structure's own."""

Pages: TypeAlias = tuple[np.ndarray, np.ndarray, np.ndarray, int, np.ndarray]
"""arena, marks, free, shift and page table, each as in `kernels.py`: one page set to a kernel."""
PAGES: Final = "Tuple((int64[::1], uint8[::1], int64[::1], int64, int64[::1]))"
"""The same, in the signature of a kernel."""


class LinkedPages:
    """The page set of one structure: its super page, and the pages that the kernels link."""

    def __init__(
        self,
        manager: PageManager,
        shape: tuple[int, int],
        page_sets: tuple[PageSetId, ...] | None = None,
    ) -> None:
        """Create them, taking a page at once, or find them as a checkpoint holds them.

        Args:
            manager: Of the pages.
            shape: Two words that tell how the records are to be read.
            page_sets: The one page set, when a record elsewhere names it; else it is made.

        Raises:
            LocalProtocolError: The checkpoint's records are of another shape.
            StateLimitExceeded: No page is left.
        """
        self._manager = manager
        self.page_sets = page_sets or (manager.create_page_set(),)
        (self._page_set,) = self.page_sets
        if not len(self.table):
            manager.allocate(self._page_set)
            head = self.writable_head()
            head[FRESH] = 1
            head[SHAPE:OWN] = shape
        found = tuple(self.head[SHAPE:OWN].tolist())
        if found != shape:
            raise LocalProtocolError(
                f"page set {self._page_set} holds records of shape {found}, expected {shape}"
            )

    @property
    def table(self) -> np.ndarray:
        """The page table: sequence number -> physical page. int64."""
        return self._manager.pages_of(self._page_set)

    @property
    def head(self) -> np.ndarray:
        """The super page, to be read until the next write."""
        return self._manager.resolve(self._page_set, 0)

    def writable_head(self) -> np.ndarray:
        """The super page, to be written; no page is ever missing for it once it exists."""
        return self._manager.writable(self._page_set, 0)

    def __len__(self) -> int:
        return int(self.head[kernels.ENTRIES])

    def to_read(self) -> Pages:
        """What a kernel reads, valid until the next write."""
        manager = self._manager
        return manager.arena, manager.marks, manager.free, manager.shift, self.table

    def to_write(self) -> Pages:
        """The same for a kernel that writes, and some free pages for it to clone into."""
        self._manager.make_room()
        return self.to_read()

    def reserve(self, count: int) -> None:
        """See to `count` pages that were never used; where there is room, an eighth more.

        Raises:
            StateLimitExceeded: No page is left; nothing was allocated.
        """
        table = self.table
        missing = count - (len(table) - int(self.head[FRESH]))
        if missing > 0:
            room = self._manager.pages_max - self._manager.pages_held
            self._manager.allocate(self._page_set, max(missing, min(len(table) // 8, room)))

    def clear(self) -> None:
        """Give back all pages but the super page, and zero the structure's own words there."""
        head = self.writable_head()
        shape = head[SHAPE:OWN].copy()
        head[:] = 0
        head[FRESH] = 1
        head[SHAPE:OWN] = shape
        self._manager.release(self._page_set, len(self.table) - 1)

    def destroy(self) -> None:
        """Release all pages; the structure must not be used again."""
        self._manager.destroy_page_set(self._page_set)
