"""Pages of one size, grouped in page sets, in one growable arena. [SGuard §4, Table 1]

A PageID is a page set and a sequence number in it; the page set's table maps it to a physical page
(a row of the arena). Structures and kernels only keep PageIDs (as logical addresses, see
`kernels.py`), so a page may be cloned elsewhere without touching what refers to it. `writable` has
one mark per physical page, for kernels to check once checkpoints make pages read-only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NewType

import numpy as np

from holdfast.core.errors import InvariantViolation, LocalProtocolError

PageSetId = NewType("PageSetId", int)

PAGE_BYTES_DEFAULT: Final = 8 << 10
STATE_BYTES_MAX_DEFAULT: Final = 4 << 30
_FIRST_PAGES: Final = 64


class StateLimitExceeded(RuntimeError):
    """The operators' state needs more pages than the setting `spark.holdfast.state.maxBytes`."""


@dataclass(frozen=True, slots=True)
class PageStatistics:
    """Counts at one moment.

    Attributes:
        page_bytes: Size of a page.
        pages_used: Pages in page sets.
        pages_peak: The most there have been.
        pages_max: The bound.
        page_sets: Page sets that exist.
    """

    page_bytes: int
    pages_used: int
    pages_peak: int
    pages_max: int
    page_sets: int


class PageManager:
    """Hands out pages. Volatile fields: all; the pages themselves are the durable state."""

    def __init__(
        self,
        page_bytes: int = PAGE_BYTES_DEFAULT,
        state_bytes_max: int = STATE_BYTES_MAX_DEFAULT,
    ) -> None:
        """Start without pages.

        Args:
            page_bytes: A power of two from 512 to 1 MiB; 8 KiB and 64 KiB are SGuard's.
            state_bytes_max: Bound on the bytes of all pages in use.

        Raises:
            LocalProtocolError: A size out of range.
        """
        if page_bytes & (page_bytes - 1) or not 512 <= page_bytes <= 1 << 20:
            raise LocalProtocolError(
                f"page size {page_bytes} is not a power of two from 512 to 1048576"
            )
        self.page_bytes = page_bytes
        self.page_words = page_bytes // 8
        self.shift = self.page_words.bit_length() - 1
        self.pages_max = state_bytes_max // page_bytes
        self.state_bytes_max = state_bytes_max
        self.arena = np.zeros(_FIRST_PAGES * self.page_words, dtype=np.int64)
        """All pages, flat; replaced when it grows, so never keep a reference across a call."""
        self.writable = np.zeros(_FIRST_PAGES, dtype=np.uint8)
        """Per physical page 1 if it may be written in place."""
        self._tables: dict[PageSetId, np.ndarray] = {}
        self._free: list[int] = []
        self._fresh = 0  # Physical pages from here on were never used.
        self._next_set = 1
        self._used = 0
        self._peak = 0

    def create_page_set(self) -> PageSetId:
        """A new page set without pages. Ids are never used again."""
        page_set = PageSetId(self._next_set)
        self._next_set += 1
        self._tables[page_set] = np.zeros(0, dtype=np.int64)
        return page_set

    def destroy_page_set(self, page_set: PageSetId) -> None:
        """Release all pages of the set, and the set.

        Raises:
            LocalProtocolError: There is no such page set.
        """
        self._release_pages(self.pages_of(page_set))
        del self._tables[page_set]

    def allocate(self, page_set: PageSetId, count: int = 1) -> np.ndarray:
        """Append `count` zeroed pages to the set; their physical numbers, int64 (count,).

        Raises:
            StateLimitExceeded: The bound would be passed; nothing was allocated.
            LocalProtocolError: There is no such page set.
        """
        table = self.pages_of(page_set)
        if self._used + count > self.pages_max:
            raise StateLimitExceeded(
                f"operator state needs {(self._used + count) * self.page_bytes} bytes of pages, "
                f"but spark.holdfast.state.maxBytes is {self.state_bytes_max}"
            )
        recycled = [self._free.pop() for _ in range(min(count, len(self._free)))]
        fresh = count - len(recycled)
        self._reserve(self._fresh + fresh)
        pages = np.array([*recycled, *range(self._fresh, self._fresh + fresh)], dtype=np.int64)
        self._fresh += fresh
        rows = self.arena.reshape(-1, self.page_words)
        if recycled:
            rows[np.array(recycled)] = 0
        self.writable[pages] = 1
        self._tables[page_set] = np.concatenate([table, pages])
        self._used += count
        self._peak = max(self._peak, self._used)
        return pages

    def release(self, page_set: PageSetId, count: int = 1) -> None:
        """Give back the last `count` pages of the set.

        Raises:
            LocalProtocolError: The set has fewer pages, or does not exist.
        """
        table = self.pages_of(page_set)
        if count > len(table):
            raise LocalProtocolError(f"page set {page_set} has {len(table)} pages, not {count}")
        kept = len(table) - count
        self._release_pages(table[kept:])
        self._tables[page_set] = table[:kept].copy()

    def pages_of(self, page_set: PageSetId) -> np.ndarray:
        """The page table of a set: sequence number -> physical page. int64, do not modify.

        Raises:
            LocalProtocolError: There is no such page set.
        """
        table = self._tables.get(page_set)
        if table is None:
            raise LocalProtocolError(f"page set {page_set} does not exist")
        return table

    def resolve(self, page_set: PageSetId, sequence: int) -> np.ndarray:
        """The words of one page, a view that is valid until the next `allocate`."""
        table = self.pages_of(page_set)
        if not 0 <= sequence < len(table):
            raise LocalProtocolError(f"page set {page_set} has no page {sequence}")
        start = int(table[sequence]) << self.shift
        return self.arena[start : start + self.page_words]

    def statistics(self) -> PageStatistics:
        """Counts now."""
        return PageStatistics(
            self.page_bytes, self._used, self._peak, self.pages_max, len(self._tables)
        )

    def check_invariants(self) -> None:
        """Raise `InvariantViolation` unless every page is in one set or free. O(pages)."""
        tables = list(self._tables.values())
        used = np.concatenate([np.zeros(0, dtype=np.int64), *tables])
        everything = np.sort(np.concatenate([used, np.array(self._free, dtype=np.int64)]))
        if len(used) != self._used:
            raise InvariantViolation(f"{len(used)} pages in sets, {self._used} counted")
        if not np.array_equal(everything, np.arange(self._fresh)):
            raise InvariantViolation("a page is lost, or in two page sets")

    def _release_pages(self, pages: np.ndarray) -> None:
        self.writable[pages] = 0
        self._free.extend(int(page) for page in pages[::-1])
        self._used -= len(pages)

    def _reserve(self, pages: int) -> None:
        capacity = len(self.writable)
        if pages <= capacity:
            return
        larger = max(pages, 2 * capacity)
        arena = np.zeros(larger * self.page_words, dtype=np.int64)
        arena[: len(self.arena)] = self.arena
        self.arena = arena
        writable = np.zeros(larger, dtype=np.uint8)
        writable[:capacity] = self.writable
        self.writable = writable
