"""Pages of one size, grouped in page sets, in one arena. [SGuard §4, Tables 1 and 4]

A PageID is a page set and a sequence number in it; the page set's table maps it to a physical page
(a row of the arena). Structures and kernels only keep PageIDs (as logical addresses, see
`kernels.py`), so a page may be cloned elsewhere without touching what refers to it.

Checkpoints. `checkpoint` copies the tables and freezes the pages that have changed since the last
one: that is all for which the unit stops. What the unit writes from then on goes to clones of the
frozen pages; whoever writes the checkpoint reads these through `Snapshot.pages` in peace. Pages
that have been copied out are thawed at once. In the end `finish` makes all pages of the snapshot
clean, so that the next checkpoint leaves them out; `cancel` makes them dirty again.

Every structure that lives as long as its manager creates its page sets in the same order in every
life, and so finds those of a recovered manager: `create_page_set` gives the recovered set, if there
is one, and the structure takes its content as it is. Sets created later (those of a window) are
named in some structure's records and opened by their ids.

The address space for the largest state is reserved once the state has outgrown a megabyte: from
then on no page ever moves, and nothing is copied when the state grows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NewType

import numpy as np

from holdfast.core.errors import InvariantViolation, LocalProtocolError
from holdfast.core.state.kernels import CLEAN, DIRTY, FREE, FROZEN

PageSetId = NewType("PageSetId", int)

PAGE_BYTES_DEFAULT: Final = 8 << 10
STATE_BYTES_MAX_DEFAULT: Final = 4 << 30
_FIRST_PAGES: Final = 64
_SMALL_ARENA_BYTES: Final = 1 << 20
_CLONES_AHEAD: Final = 64
"""Free pages kept for kernels to clone into while a snapshot is held."""
_NO_PAGES: Final = np.zeros(0, dtype=np.int64)


class StateLimitExceeded(RuntimeError):
    """The operators' state needs more pages than the setting `spark.holdfast.stateBytesMax`."""


@dataclass(frozen=True, slots=True)
class PageStatistics:
    """Counts at one moment.

    Attributes:
        page_bytes: Size of a page.
        pages_used: Pages in page sets.
        pages_held: Pages of page sets and of a snapshot.
        pages_peak: The most that were held.
        pages_max: The bound of those.
        page_sets: Page sets that exist.
        pages_replaced: Pages that were cloned or released while a snapshot held them.
    """

    page_bytes: int
    pages_used: int
    pages_held: int
    pages_peak: int
    pages_max: int
    page_sets: int
    pages_replaced: int


@dataclass(slots=True)
class Snapshot:
    """All pages at one moment, the page sets one after another.

    Attributes:
        page_sets: Their ids, ascending.
        counts: int64, pages per set.
        pages: int64 (n,), the physical page of every PageID.
        is_changed: bool (n,), whether the page has to be written; the others are stored already.
        next_set: The id that the next page set would get.
        is_cancelled: The manager needed its pages; what is being written is worth nothing.
    """

    page_sets: tuple[PageSetId, ...]
    counts: np.ndarray
    pages: np.ndarray
    is_changed: np.ndarray
    next_set: int
    is_cancelled: bool = False

    @property
    def changed(self) -> np.ndarray:
        """Positions of the pages to be written, int64 ascending."""
        return np.flatnonzero(self.is_changed)


class PageManager:
    """Hands out pages. Durable: the pages, once a checkpoint holds them. Volatile: all else."""

    def __init__(
        self,
        page_bytes: int = PAGE_BYTES_DEFAULT,
        state_bytes_max: int = STATE_BYTES_MAX_DEFAULT,
    ) -> None:
        """Start without pages.

        Args:
            page_bytes: A power of two from 512 to 1 MiB; 8 KiB and 64 KiB are SGuard's.
            state_bytes_max: Bound on the bytes of all pages held, clones for a snapshot included.

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
        """All pages, flat; may be replaced by `allocate`, so never keep it across a call."""
        self.marks = np.zeros(_FIRST_PAGES, dtype=np.uint8)
        """Per physical page its mark, see `kernels.py`."""
        self.free = np.zeros(_FIRST_PAGES + 1, dtype=np.int64)
        """A stack of free physical pages below `_fresh`: its height, then the pages."""
        self._tables: dict[PageSetId, np.ndarray] = {}
        self._fresh = 0  # Physical pages from here on were never used.
        self._next_set = 1
        self._recovered_next_set = 1
        self._is_recovering = False
        self._peak = 0
        self._snapshot: Snapshot | None = None
        self._replaced = 0

    # -- page sets --------------------------------------------------------------------------

    def create_page_set(self) -> PageSetId:
        """The next page set: without pages, or as the checkpoint has it. Ids count up."""
        page_set = PageSetId(self._next_set)
        self._next_set += 1
        if self._is_recovering:
            if page_set not in self._tables:
                raise LocalProtocolError(f"the checkpoint has no page set {page_set}")
        else:
            self._tables[page_set] = _NO_PAGES
        return page_set

    def exists(self, page_set: PageSetId) -> bool:
        """Whether there is such a page set."""
        return page_set in self._tables

    def destroy_page_set(self, page_set: PageSetId) -> None:
        """Release all pages of the set, and the set.

        Raises:
            LocalProtocolError: There is no such page set.
        """
        self._release_pages(self.pages_of(page_set))
        del self._tables[page_set]

    def pages_of(self, page_set: PageSetId) -> np.ndarray:
        """The page table of a set: sequence number -> physical page. int64; kernels change it.

        Raises:
            LocalProtocolError: There is no such page set.
        """
        table = self._tables.get(page_set)
        if table is None:
            raise LocalProtocolError(f"page set {page_set} does not exist")
        return table

    # -- pages ------------------------------------------------------------------------------

    def allocate(self, page_set: PageSetId, count: int = 1) -> np.ndarray:
        """Append `count` zeroed pages to the set; their physical numbers, int64 (count,).

        Raises:
            StateLimitExceeded: The bound would be passed; nothing was allocated.
            LocalProtocolError: There is no such page set.
        """
        table = self.pages_of(page_set)
        self._require(count)
        pages = self._take(count)
        self._tables[page_set] = np.concatenate([table, pages])
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

    def resolve(self, page_set: PageSetId, sequence: int) -> np.ndarray:
        """The words of one page to be read, a view that is valid until the next `allocate`."""
        return self._words(int(self._page(page_set, sequence)))

    def writable(self, page_set: PageSetId, sequence: int) -> np.ndarray:
        """The words of one page to be written, a view that is valid until the next `allocate`.

        A page that a snapshot holds is cloned first. [SGuard §4.4]

        Raises:
            StateLimitExceeded: No page is left to clone into.
        """
        page = int(self._page(page_set, sequence))
        if self.marks[page] == FROZEN:
            page = self._clone(page_set, sequence)
        self.marks[page] = DIRTY
        return self._words(page)

    def _clone(self, page_set: PageSetId, sequence: int) -> int:
        """Replace a frozen page in its set by a copy; unless that ended the snapshot."""
        self.make_room()
        old = int(self._page(page_set, sequence))
        if self.marks[old] != FROZEN:
            return old
        (new,) = self._take(1, zeroed=False)
        self._words(new)[:] = self._words(old)
        self._tables[page_set][sequence] = new
        return int(new)

    def make_room(self) -> None:
        """See to free pages for kernels to clone into. Without a snapshot none is needed.

        Where the bound leaves no room, the snapshot is cancelled: the job goes on, the checkpoint
        does not.
        """
        if self._snapshot is None or self.free[0] >= _CLONES_AHEAD:
            return
        wanted = min(_CLONES_AHEAD, self.pages_max - self.pages_held) - int(self.free[0])
        if wanted > 0:
            self._reserve(self._fresh + wanted)
            self._push(np.arange(self._fresh, self._fresh + wanted, dtype=np.int64))
            self._fresh += wanted
        if self.free[0] == 0:
            self.cancel(self._snapshot)

    @property
    def pages_left(self) -> int:
        """How many more may be held."""
        return self.pages_max - self.pages_held

    @property
    def pages_held(self) -> int:
        """Pages in page sets, and those that only the snapshot still needs."""
        return self._fresh - int(self.free[0])

    def _page(self, page_set: PageSetId, sequence: int) -> int:
        table = self.pages_of(page_set)
        if not 0 <= sequence < len(table):
            raise LocalProtocolError(f"page set {page_set} has no page {sequence}")
        return int(table[sequence])

    def _words(self, page: int) -> np.ndarray:
        return self.arena[page << self.shift : (page + 1) << self.shift]

    def _require(self, count: int) -> None:
        if self.pages_held + count > self.pages_max and self._snapshot is not None:
            self.cancel(self._snapshot)
        if self.pages_held + count > self.pages_max:
            raise StateLimitExceeded(
                f"operator state needs {(self.pages_held + count) * self.page_bytes} bytes of "
                f"pages, but spark.holdfast.stateBytesMax is {self.state_bytes_max}"
            )

    def _take(self, count: int, *, zeroed: bool = True) -> np.ndarray:
        """Free pages, and fresh ones if there are too few."""
        recycled = min(count, int(self.free[0]))
        self._reserve(self._fresh + count - recycled)
        height = int(self.free[0])
        old = self.free[height + 1 - recycled : height + 1][::-1]
        self.free[0] -= recycled
        fresh = np.arange(self._fresh, self._fresh + count - recycled, dtype=np.int64)
        self._fresh += len(fresh)
        if zeroed and recycled:
            self.arena.reshape(-1, self.page_words)[old] = 0
        pages = np.concatenate([old, fresh])
        self.marks[pages] = DIRTY
        self._peak = max(self._peak, self.pages_held)
        return pages

    def _release_pages(self, pages: np.ndarray) -> None:
        """To the free ones, except what a snapshot holds: that follows at its end."""
        unheld = pages[self.marks[pages] != FROZEN] if self._snapshot is not None else pages
        self._push(unheld[::-1])

    def _push(self, pages: np.ndarray) -> None:
        height = int(self.free[0])
        if height + len(pages) >= len(self.free):
            larger = np.zeros(2 * (height + len(pages)) + 1, dtype=np.int64)
            larger[: len(self.free)] = self.free
            self.free = larger
        self.free[height + 1 : height + 1 + len(pages)] = pages
        self.free[0] += len(pages)
        self.marks[pages] = FREE

    def _reserve(self, pages: int) -> None:
        capacity = len(self.marks)
        if pages <= capacity:
            return
        larger = max(pages, 2 * capacity)
        arena = self._new_arena(larger)
        larger = len(arena) >> self.shift
        arena[: len(self.arena)] = self.arena
        self.arena = arena
        marks = np.zeros(larger, dtype=np.uint8)
        marks[:capacity] = self.marks
        self.marks = marks

    def _new_arena(self, pages: int) -> np.ndarray:
        """Zeroed memory for so many pages; beyond a megabyte for all there may ever be.

        Where the system does not give out that much address space, the arena grows by copying.
        """
        if pages * self.page_bytes > _SMALL_ARENA_BYTES and pages < self.pages_max:
            try:
                return np.zeros(self.pages_max * self.page_words, dtype=np.int64)
            except MemoryError:
                pass
        return np.zeros(pages * self.page_words, dtype=np.int64)

    # -- checkpoint and recovery ------------------------------------------------------------

    def page_counts(self) -> dict[PageSetId, int]:
        """Pages per set."""
        return {page_set: len(table) for page_set, table in self._tables.items()}

    def dirty_pages(self) -> int:
        """How many pages have changed since the last finished checkpoint."""
        return int(np.count_nonzero(self.marks[: self._fresh] == DIRTY))

    def checkpoint(self, also: np.ndarray | None = None) -> Snapshot:
        """Freeze all pages that have changed since the last finished checkpoint. [Table 4: chkpt]

        Args:
            also: bool per page, in the order of the snapshot's; true for pages to be written
                although they have not changed. May be shorter.

        Raises:
            LocalProtocolError: A snapshot is held already.

        Cost: O(pages), a fraction of a nanosecond each; nothing is copied but the tables.
        """
        if self._snapshot is not None:
            raise LocalProtocolError("a checkpoint is being written already")
        page_sets = tuple(sorted(self._tables))
        tables = [self._tables[page_set] for page_set in page_sets]
        pages = np.concatenate([_NO_PAGES, *tables])
        is_changed = self.marks[pages] == DIRTY
        if also is not None:
            is_changed[: len(also)] |= also[: len(is_changed)]
        self.marks[pages[is_changed]] = FROZEN
        counts = np.array([len(table) for table in tables], dtype=np.int64)
        self._snapshot = Snapshot(page_sets, counts, pages, is_changed, self._next_set)
        return self._snapshot

    def thaw(self, snapshot: Snapshot, positions: np.ndarray) -> None:
        """Pages at these positions of the snapshot have been copied out. [SGuard §4.4]"""
        if snapshot is not self._snapshot:
            return
        current = self._current(snapshot, positions)
        self.marks[current[current >= 0]] = CLEAN
        dropped = snapshot.pages[positions][current < 0]
        self._drop(dropped)

    def finish(self, snapshot: Snapshot) -> None:
        """The snapshot is stored: its pages are clean, unless they have changed since."""
        self._end(snapshot, CLEAN)

    def cancel(self, snapshot: Snapshot) -> None:
        """The snapshot will not be stored: its pages have to be written the next time."""
        snapshot.is_cancelled = True
        self._end(snapshot, DIRTY)

    def _end(self, snapshot: Snapshot, mark: int) -> None:
        if snapshot is not self._snapshot:
            return
        positions = snapshot.changed
        current = self._current(snapshot, positions)
        kept = current[current >= 0]
        is_frozen = self.marks[kept] == FROZEN
        if mark == CLEAN:
            kept = kept[is_frozen]  # What was thawed says itself whether it has changed since.
        self.marks[kept] = mark
        self._drop(snapshot.pages[positions][current < 0])
        self._snapshot = None

    def _drop(self, pages: np.ndarray) -> None:
        """Free pages that only the snapshot held; those thawed before are free already."""
        held = pages[self.marks[pages] == FROZEN]
        self._replaced += len(held)
        self._push(held)

    def _current(self, snapshot: Snapshot, positions: np.ndarray) -> np.ndarray:
        """The physical pages at positions of a snapshot; -1 where they are no longer in use."""
        ends = np.cumsum(snapshot.counts)
        which = np.searchsorted(ends, positions, side="right")
        result = np.full(len(positions), -1, dtype=np.int64)
        for number in np.unique(which).tolist():
            table = self._tables.get(snapshot.page_sets[number], _NO_PAGES)
            mine = np.flatnonzero(which == number)
            sequences = positions[mine] - (ends[number] - snapshot.counts[number])
            mine = mine[sequences < len(table)]
            result[mine] = table[sequences[sequences < len(table)]]
        return np.where(result == snapshot.pages[positions], result, -1)

    def load(
        self, page_sets: tuple[PageSetId, ...], counts: np.ndarray, order: np.ndarray, next_set: int
    ) -> np.ndarray:
        """Take over the page sets of a checkpoint; the caller fills the pages. [Table 4: load]

        Args:
            page_sets: As in `Snapshot`.
            counts: As in `Snapshot`.
            order: int64, a permutation of the positions: pages that are read together, so that
                they lie together.
            next_set: As in `Snapshot`.

        Returns:
            The physical page of every position, int64 (n,), all clean.

        Raises:
            StateLimitExceeded: The checkpoint is larger than the bound.
            LocalProtocolError: There are pages already.
        """
        if self._fresh:
            raise LocalProtocolError("a checkpoint is loaded into an empty manager")
        total = int(counts.sum())
        self._require(total)
        physical = np.empty(total, dtype=np.int64)
        physical[order] = self._take(total)
        self.marks[physical] = CLEAN
        start = 0
        for page_set, count in zip(page_sets, counts.tolist(), strict=True):
            self._tables[page_set] = physical[start : start + count].copy()
            start += count
        self._is_recovering = True
        self._recovered_next_set = next_set
        return physical

    def mirror(self, page_sets: dict[PageSetId, int], next_set: int) -> np.ndarray:
        """Have the page sets of another manager; the caller fills the pages. [HA §4.1]

        Args:
            page_sets: Pages per set, by ascending id.
            next_set: The id that the next page set gets.

        Returns:
            All pages, the page sets one after another: physical numbers, int64 (n,).

        Raises:
            StateLimitExceeded: They are more than the bound.
        """
        for page_set in [name for name in self._tables if name not in page_sets]:
            self.destroy_page_set(page_set)
        for page_set, count in page_sets.items():
            more = count - len(self._tables.setdefault(page_set, _NO_PAGES))
            if more > 0:
                self.allocate(page_set, more)
            elif more < 0:
                self.release(page_set, -more)
        self._is_recovering = True
        self._recovered_next_set = next_set
        return np.concatenate([_NO_PAGES, *(self._tables[name] for name in page_sets)])

    def recovered(self) -> None:
        """All structures that live as long as the manager have been created: go on as before."""
        if self._is_recovering:
            self._is_recovering = False
            self._next_set = self._recovered_next_set

    # -- looking ----------------------------------------------------------------------------

    def statistics(self) -> PageStatistics:
        """Counts now."""
        used = sum(len(table) for table in self._tables.values())
        held = self.pages_held
        return PageStatistics(
            self.page_bytes,
            used,
            held,
            self._peak,
            self.pages_max,
            len(self._tables),
            self._replaced,
        )

    def check_invariants(self) -> None:
        """Raise `InvariantViolation` unless every page is in one set, held or free. O(pages)."""
        used = np.concatenate([_NO_PAGES, *self._tables.values()])
        free = self.free[1 : int(self.free[0]) + 1]
        held = _NO_PAGES
        if self._snapshot is not None:
            frozen = self._snapshot.pages[self._snapshot.is_changed]
            held = np.setdiff1d(frozen[self.marks[frozen] == FROZEN], used)
        everything = np.sort(np.concatenate([used, free, held]))
        if not np.array_equal(everything, np.arange(self._fresh)):
            raise InvariantViolation("a page is lost, or in two page sets")
        if bool((self.marks[used] == FREE).any()) or bool((self.marks[free] != FREE).any()):
            raise InvariantViolation("a page in use is marked free, or the other way round")
        if self._snapshot is None and bool((self.marks[used] == FROZEN).any()):
            raise InvariantViolation("a page is frozen without a snapshot")
