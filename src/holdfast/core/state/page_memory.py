"""The memory that pages lie in: a pool, and regions. [SGuard §4]

Physical pages are numbered from the beginning of the arena. The first ones are the pool: single
pages, given out from a stack of free ones. Behind it lie regions, each address space for as many
pages as there may be, so that the page set in it can grow without ever moving.

Pool and regions are reserved in one piece once the pool has outgrown a megabyte, or the first
region is asked for, and take memory only where they have been written. Where the system does not
give out that much address space there are no regions, and the pool grows by copying. What a region
no longer uses stays its memory, to be used again without a page fault, until the regions together
have more than the bound; then it is given back.
"""

from __future__ import annotations

import contextlib
import mmap
from dataclasses import dataclass
from typing import Final

import numpy as np

from holdfast.core.state import snapshot_kernels
from holdfast.core.state.kernels import CLEAN, DIRTY, FREE, FROZEN

_FIRST_PAGES: Final = 64
_SMALL_ARENA_BYTES: Final = 1 << 20
_REGIONS: Final = (16, 4, 1, 0)
"""How many regions are asked for: the first number that the system grants."""
_NO_RESERVE: Final = 0x4000
"""MAP_NORESERVE of Linux: address space counts as memory only where it is written."""


@dataclass(slots=True)
class Region:
    """Place for the pages of one set.

    Attributes:
        start: Its first physical page, the home of sequence number 0.
        touched: So many pages from the first on may not be zero.
    """

    start: int
    touched: int = 0

    def homes(self, first: int, stop: int) -> np.ndarray:
        """The physical pages of the sequence numbers [first, stop), int64."""
        return np.arange(self.start + first, self.start + stop, dtype=np.int64)


class PageMemory:
    """Physical pages, in use or free. Volatile."""

    def __init__(self, page_bytes: int, pages_max: int) -> None:
        """Start with a small pool.

        Args:
            page_bytes: Size of a page.
            pages_max: More are never in use; whoever takes pages sees to it.
        """
        self._page_bytes = page_bytes
        self._pages_max = max(pages_max, _FIRST_PAGES)
        self._page_words = page_bytes // 8
        self.arena = np.zeros(_FIRST_PAGES * self._page_words, dtype=np.int64)
        self.marks = np.zeros(_FIRST_PAGES, dtype=np.uint8)
        self.holders = np.zeros(_FIRST_PAGES, dtype=np.uint8)
        """Per physical page how many snapshots need it."""
        self.behind = np.zeros(_FIRST_PAGES, dtype=np.uint8)
        """The mark that a frozen page has once none does."""
        self.free = np.zeros(_FIRST_PAGES + 1, dtype=np.int64)
        self.pages_peak = 0
        """The most that were held."""
        self._pool_pages = _FIRST_PAGES  # Physical pages from here on belong to regions.
        self._fresh = 0  # Pages of the pool from here on were never used.
        self._mapped: mmap.mmap | None = None
        self._is_refused = False
        self._regions: list[Region] = []
        self._idle: list[Region] = []  # A stack, so that memory is used again.
        self._in_regions = 0  # Pages of regions in use.

    @property
    def pages_held(self) -> int:
        """Pages in use, and those that kernels have taken from the stack."""
        return self._fresh - int(self.free[0]) + self._in_regions

    def words(self, page: int) -> np.ndarray:
        """The words of a page, a view until pages are taken the next time."""
        first = page * self._page_words
        return self.arena[first : first + self._page_words]

    # -- the pool ---------------------------------------------------------------------------

    def take(self, count: int, *, zeroed: bool = True) -> np.ndarray:
        """Free pages of the pool, and fresh ones if there are too few; dirty from now on."""
        recycled = min(count, int(self.free[0]))
        self._reserve(self._fresh + count - recycled)
        height = int(self.free[0])
        old = self.free[height + 1 - recycled : height + 1][::-1]
        self.free[0] -= recycled
        fresh = np.arange(self._fresh, self._fresh + count - recycled, dtype=np.int64)
        self._fresh += len(fresh)
        if zeroed and recycled:
            self.arena.reshape(-1, self._page_words)[old] = 0
        pages = np.concatenate([old, fresh])
        self.marks[pages] = DIRTY
        self.pages_peak = max(self.pages_peak, self.pages_held)
        return pages

    def add_free(self, count: int) -> None:
        """Put so many fresh pages of the pool on the stack."""
        self._reserve(self._fresh + count)
        self._fresh += count
        self.push(np.arange(self._fresh - count, self._fresh, dtype=np.int64))

    def push(self, pages: np.ndarray) -> None:
        """Nobody needs these pages: those of the pool go on the stack."""
        self.marks[pages] = FREE
        pooled = pages[pages < self._pool_pages]
        self._in_regions -= len(pages) - len(pooled)
        height = int(self.free[0])
        self.free[height + 1 : height + 1 + len(pooled)] = pooled
        self.free[0] += len(pooled)

    def release(self, pages: np.ndarray) -> None:
        """No page set has these any more; frozen ones are free once no snapshot needs them."""
        self.push(pages[self.marks[pages] != FROZEN][::-1])

    def _reserve(self, pages: int) -> None:
        """Let the pool have room for so many pages."""
        if pages <= self._pool_pages:
            return
        larger = max(pages, 2 * self._pool_pages)
        if larger * self._page_bytes <= _SMALL_ARENA_BYTES or not self._is_mapped():
            self._grow_to(larger, np.zeros(larger * self._page_words, dtype=np.int64))

    def _grow_to(self, pool_pages: int, arena: np.ndarray) -> None:
        """Move to larger memory, of which so much is the pool."""
        arena[: len(self.arena)] = self.arena
        pages = len(arena) // self._page_words
        self.marks, self.holders, self.behind = (
            _grown(each, pages) for each in (self.marks, self.holders, self.behind)
        )
        free = np.zeros(pool_pages + 1, dtype=np.int64)
        free[: len(self.free)] = self.free
        self.arena, self.free, self._pool_pages = arena, free, pool_pages

    def _is_mapped(self) -> bool:
        """Whether all there may ever be has its addresses; asks the system the first time."""
        if self._mapped is None and not self._is_refused:
            for regions in _REGIONS:
                self._mapped = self._map((1 + regions) * self._pages_max * self._page_bytes)
                if self._mapped is not None:
                    self._grow_to(self._pages_max, np.frombuffer(self._mapped, dtype=np.int64))
                    starts = range(regions * self._pages_max, 0, -self._pages_max)
                    self._regions = [Region(start) for start in starts]
                    self._idle = list(self._regions)
                    return True
            self._is_refused = True
        return self._mapped is not None

    @staticmethod
    def _map(size: int) -> mmap.mmap | None:
        try:
            flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE
            mapped = mmap.mmap(-1, size, flags=flags)
        except (OSError, OverflowError, ValueError):
            return None
        with contextlib.suppress(OSError):  # Without large pages it is slower, no more.
            mapped.madvise(mmap.MADV_HUGEPAGE)
        return mapped

    # -- regions ----------------------------------------------------------------------------

    def region(self) -> Region | None:
        """A region of which all pages are free; None if there is none."""
        return self._idle.pop() if self._is_mapped() and self._idle else None

    def take_back(self, regions: list[Region]) -> None:
        """No page set lies in these any more, and all their pages are free."""
        self._idle += regions

    def is_in_use(self, region: Region, first: int, stop: int) -> bool:
        """Whether a page of these sequence numbers is not free."""
        return bool(self.marks[region.start + first : region.start + stop].any())

    def extend(self, region: Region, held: int, count: int) -> np.ndarray:
        """Zeroed pages, dirty from now on, for a region that has so many; they must be free."""
        stop = held + count
        words, first = self._page_words, region.start + held
        used_before = region.start + min(region.touched, stop)
        self.arena[first * words : used_before * words] = 0
        if stop > region.touched:
            self._give_back_for(stop - region.touched)
        homes = region.homes(held, stop)
        self.occupy(region, homes)
        self.marks[homes] = DIRTY
        return homes

    def occupy(self, region: Region, homes: np.ndarray) -> None:
        """These pages of a region, which were free, are in use again; the caller marks them."""
        self._in_regions += len(homes)
        if len(homes):
            region.touched = max(region.touched, int(homes.max()) + 1 - region.start)
        self.pages_peak = max(self.pages_peak, self.pages_held)

    def _give_back_for(self, count: int) -> None:
        """See to it that regions have no more memory than the bound when so many are touched."""
        if sum(region.touched for region in self._regions) + count <= self._pages_max:
            return
        for region in self._regions:
            (in_use,) = self.marks[region.start : region.start + region.touched].nonzero()
            kept = int(in_use[-1]) + 1 if len(in_use) else 0
            begin = -(-(region.start + kept) * self._page_bytes // mmap.PAGESIZE) * mmap.PAGESIZE
            size = (region.start + region.touched) * self._page_bytes - begin
            if size > 0 and self._mapped is not None:
                self._mapped.madvise(mmap.MADV_DONTNEED, begin, size)
                region.touched = -(-begin // self._page_bytes) - region.start

    # -- snapshots --------------------------------------------------------------------------

    def changed(self, pages: np.ndarray) -> np.ndarray:
        """Whether these are dirty, or will be once no snapshot needs them: bool (n,)."""
        is_changed = np.empty(len(pages), dtype=np.bool_)
        snapshot_kernels.changed(self.marks, self.behind, pages, is_changed)
        return is_changed

    def freeze(self, pages: np.ndarray, is_needed: np.ndarray) -> None:
        """One snapshot more needs some of these as they are, bool per page."""
        snapshot_kernels.freeze(self.marks, self.holders, self.behind, pages, is_needed)

    def let_go(self, pages: np.ndarray, is_used: np.ndarray, mark: int | None) -> int:
        """One snapshot less needs these; what neither a snapshot nor a page set has, is free.

        Args:
            pages: They.
            is_used: bool per page: a page set has it.
            mark: What those in use are then; None: what they were.

        Returns:
            How many are free now.
        """
        self.holders[pages] -= 1
        is_unheld = self.holders[pages] == 0
        if mark is not None:
            self.behind[pages] = mark
        thawed = pages[is_unheld & is_used]
        self.marks[thawed] = self.behind[thawed]
        dropped = pages[is_unheld & ~is_used]
        self.push(dropped)
        return len(dropped)

    def not_stored(self, pages: np.ndarray, is_used: np.ndarray) -> None:
        """These were copied out in vain: they count as changed, where still in use or held."""
        is_frozen = self.marks[pages] == FROZEN
        self.behind[pages[is_frozen]] = DIRTY
        self.marks[pages[is_used & ~is_frozen]] = DIRTY

    def move(self, pages: np.ndarray, homes: np.ndarray, *, is_copied_out: bool) -> None:
        """Copy pages of a set, which no longer has them, to their homes; frozen ones stay, too.

        While a checkpoint is copied out, a copy counts as changed. 1. A page is copied out, and so
        clean. 2. It moves. 3. The store fails: the page that was written is dirty again, but the
        one in use is another, and would be left out of the next checkpoint.
        """
        rows = self.arena.reshape(-1, self._page_words)
        rows[homes] = rows[pages]
        is_clean = ~self.changed(pages) & (not is_copied_out)
        self.marks[homes] = np.where(is_clean, CLEAN, DIRTY)
        self.release(pages)

    # -- looking ----------------------------------------------------------------------------

    def are_all(self, pages: np.ndarray) -> bool:
        """Whether these, int64 ascending, are just the pages of the pool and those in use."""
        pooled = int(pages.searchsorted(self._pool_pages))
        if pooled != self._fresh or len(pages) - pooled != self._in_regions:
            return False
        if pooled and (pages[0] != 0 or pages[pooled - 1] != pooled - 1):
            return False
        return not np.count_nonzero(pages[1:] <= pages[:-1])


def _grown(marks: np.ndarray, pages: int) -> np.ndarray:
    """A copy with a place for so many pages."""
    grown = np.zeros(pages, dtype=marks.dtype)
    grown[: len(marks)] = marks
    return grown
