"""Pages of one size, grouped in page sets, in one arena. [SGuard §4, Tables 1 and 4]

A PageID is a page set and a sequence number in it; the page set's table maps it to a physical page
(a row of the arena). Structures and kernels only keep PageIDs (as logical addresses, see
`kernels.py`), so a page may be cloned elsewhere without touching what refers to it.

Checkpoints. `checkpoint` copies the tables and freezes the pages that have changed since the last
one: that is all for which the unit stops. What the unit writes from then on goes to clones of the
frozen pages; whoever writes the checkpoint reads these through `Snapshot.pages` in peace. Pages
that have been copied out are thawed at once. In the end `finish` makes all pages of the snapshot
clean, so that the next checkpoint leaves them out; `cancel` makes them dirty again.

Going back. `hold` freezes all pages, the clean ones too, and `restore` makes everything as it was
then. One checkpoint and any number of held snapshots may stand at a time: a page is frozen as long
as any of them needs it, and has the mark again afterwards that it has behind that, clean or dirty.
Later snapshots end when the manager goes back behind them.

Every structure that lives as long as its manager creates its page sets in the same order in every
life, and so finds those of a recovered manager: `create_page_set` gives the recovered set, if there
is one, and the structure takes its content as it is. Sets created later (those of a window) are
named in some structure's records and opened by their ids.

Where pages lie. Small page sets share the *pool*. A set that outgrows it gets a *region*, address
space for as many pages as there may be, in which a page's place follows from its sequence number:
its home. Clones are taken from the pool; once the snapshot has ended they come home, some at every
`make_room`. While all pages of a set are at home, kernels need no table to find them (`base_of`).
Where the system does not give out that much address space there are no regions, and the pool grows
by copying.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from holdfast.core.errors import InvariantViolation, LocalProtocolError
from holdfast.core.state.homes import Homes
from holdfast.core.state.kernels import CLEAN, DIRTY, FREE, FROZEN
from holdfast.core.state.owned_sets import OwnedSets
from holdfast.core.state.page_memory import PageMemory
from holdfast.core.state.snapshot import NO_PAGES as _NO_PAGES
from holdfast.core.state.snapshot import PageSetId as PageSetId
from holdfast.core.state.snapshot import PageStatistics
from holdfast.core.state.snapshot import Snapshot as Snapshot

if TYPE_CHECKING:
    from holdfast.core.state.page_memory import Region

PAGE_BYTES_DEFAULT: Final = 8 << 10
STATE_BYTES_MAX_DEFAULT: Final = 4 << 30
_CLONES_AHEAD: Final = 64
"""Free pages kept for kernels to clone into while a snapshot is held."""
_POOLED_BYTES: Final = 64 << 10
"""A page set up to this size lies in the pool."""
_WELL_ORDERED: Final = 16
"""A set is read straight into a region when files hold runs of so many of its pages."""


class StateLimitExceeded(RuntimeError):
    """The operators' state needs more pages than the setting `spark.holdfast.stateBytesMax`."""


class PageManager:
    """Hands out pages. Durable: the pages, once a checkpoint holds them. Volatile: all else."""

    def __init__(
        self,
        page_bytes: int = PAGE_BYTES_DEFAULT,
        state_bytes_max: int = STATE_BYTES_MAX_DEFAULT,
        pooled_bytes: int = _POOLED_BYTES,
    ) -> None:
        """Start without pages.

        Args:
            page_bytes: A power of two from 512 to 1 MiB; 8 KiB and 64 KiB are SGuard's.
            state_bytes_max: Bound on the bytes of all pages held, clones for a snapshot included.
            pooled_bytes: A larger page set gets a region.

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
        self._memory = PageMemory(page_bytes, self.pages_max)
        self._tables: dict[PageSetId, np.ndarray] = {}
        self._pooled_max = pooled_bytes // page_bytes
        self._homes = Homes()
        self.owned = OwnedSets()
        self.next_set = 1
        """The id that the next page set gets."""
        self._recovered_next_set = 1
        self._is_recovering = False
        self._snapshots: list[Snapshot] = []  # By age; at most one of them is a checkpoint.
        self._taken_count = 0  # Snapshots ever taken; the number of the last.
        self._stored_number = 0  # That of the last one that was stored.
        self._replaced = 0

    @property
    def arena(self) -> np.ndarray:
        """All pages, flat; may be replaced by `allocate`, so never keep it across a call."""
        return self._memory.arena

    @property
    def marks(self) -> np.ndarray:
        """Per physical page its mark, see `kernels.py`."""
        return self._memory.marks

    @property
    def free(self) -> np.ndarray:
        """The stack of free pages that kernels clone into: its height, then the pages."""
        return self._memory.free

    # -- page sets --------------------------------------------------------------------------

    def create_page_set(self) -> PageSetId:
        """The next page set: without pages, or as the checkpoint has it. Ids count up."""
        page_set = PageSetId(self.next_set)
        self.next_set += 1
        self.owned.created(page_set)
        if self._is_recovering:
            if page_set not in self._tables:
                raise LocalProtocolError(f"the checkpoint has no page set {page_set}")
        else:
            self._tables[page_set] = _NO_PAGES
        return page_set

    def destroy_page_set(self, page_set: PageSetId) -> None:
        """Release all pages of the set, and the set.

        Raises:
            LocalProtocolError: There is no such page set.
        """
        self._memory.release(self.pages_of(page_set))
        del self._tables[page_set]
        self.owned.destroyed(page_set)
        if self._homes.leave(page_set) and not self._snapshots:
            self._homes.take_back(self._memory)

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
        held = len(self.pages_of(page_set))
        self._require(count)
        region = self._region_of(page_set, held + count)
        pages = self._memory.take(count) if region is None else self._extend(region, held, count)
        self._tables[page_set] = np.concatenate([self._tables[page_set], pages])
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
        self._memory.release(table[kept:])
        self._tables[page_set] = table[:kept].copy()

    def resolve(self, page_set: PageSetId, sequence: int) -> np.ndarray:
        """The words of one page to be read, a view that is valid until the next `allocate`."""
        return self._memory.words(int(self._page(page_set, sequence)))

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
        return self._memory.words(page)

    def _clone(self, page_set: PageSetId, sequence: int) -> int:
        """Replace a frozen page in its set by a copy; unless that ended the snapshot."""
        self.make_room()
        old = int(self._page(page_set, sequence))
        if self.marks[old] != FROZEN:
            return old
        (new,) = self._memory.take(1, zeroed=False)
        self._memory.words(new)[:] = self._memory.words(old)
        self._tables[page_set][sequence] = new
        return int(new)

    def make_room(self) -> None:
        """See to free pages for kernels to clone into. Without a snapshot clones come home.

        Where the bound leaves no room, snapshots are cancelled: the job goes on, the checkpoint
        does not, and held ones can be gone back to no more.
        """
        if not self._snapshots:
            self._come_home()
            return
        if self.free[0] >= _CLONES_AHEAD:
            return
        wanted = min(_CLONES_AHEAD, self.pages_max - self.pages_held) - int(self.free[0])
        if wanted > 0:
            self._memory.add_free(wanted)
        if self.free[0] == 0:
            self._give_way()

    def _give_way(self) -> None:
        """Cancel a snapshot for its pages: the checkpoint before those to go back to."""
        checkpoint = self.being_stored
        self.cancel(self._snapshots[0] if checkpoint is None else checkpoint)

    @property
    def being_stored(self) -> Snapshot | None:
        """The checkpoint's snapshot; None: no checkpoint is being written."""
        return next((each for each in self._snapshots if not each.is_held), None)

    @property
    def pages_left(self) -> int:
        """How many more may be held."""
        return self.pages_max - self.pages_held

    @property
    def pages_held(self) -> int:
        """Pages in page sets, and those that only snapshots still need."""
        return self._memory.pages_held

    def base_of(self, page_set: PageSetId) -> int:
        """Word address of the set's first page, if the others follow it and none is frozen; or -1.

        It holds until the next call of anything but `make_room`.
        """
        region = None if self._snapshots else self._homes.of_settled(page_set)
        return -1 if region is None else region.start << self.shift

    def _page(self, page_set: PageSetId, sequence: int) -> int:
        table = self.pages_of(page_set)
        if not 0 <= sequence < len(table):
            raise LocalProtocolError(f"page set {page_set} has no page {sequence}")
        return int(table[sequence])

    def _require(self, count: int) -> None:
        while self.pages_held + count > self.pages_max and self._snapshots:
            self._give_way()
        if self.pages_held + count > self.pages_max:
            raise StateLimitExceeded(
                f"operator state needs {(self.pages_held + count) * self.page_bytes} bytes of "
                f"pages, but spark.holdfast.stateBytesMax is {self.state_bytes_max}"
            )

    # -- regions ----------------------------------------------------------------------------

    def _region_of(self, page_set: PageSetId, pages: int) -> Region | None:
        """The region of a set that will have so many pages; None: it lies in the pool."""
        region = self._homes.get(page_set)
        if region is not None or pages <= self._pooled_max:
            return region
        region = self._memory.region()
        if region is not None:
            self._homes.give(page_set, region)
            old = self._tables[page_set]
            self._tables[page_set] = self._memory.extend(region, 0, len(old))
            self._memory.move(
                old, self._tables[page_set], is_copied_out=self.being_stored is not None
            )
        return region

    def _extend(self, region: Region, held: int, count: int) -> np.ndarray:
        """Zeroed pages for a region that has so many; from the pool where a snapshot holds them."""
        if self._snapshots and self._memory.is_in_use(region, held, held + count):
            return self._memory.take(count)
        return self._memory.extend(region, held, count)

    def _come_home(self) -> None:
        """Move some pages home. Without a snapshot, so that every home is free."""
        strays = self._homes.some_strays(self._tables)
        if strays is not None:
            table, sequences, region = strays
            pages = table[sequences]
            table[sequences] = region.start + sequences
            self._memory.occupy(region, table[sequences])
            self._memory.move(pages, table[sequences], is_copied_out=self.being_stored is not None)

    # -- checkpoint and recovery ------------------------------------------------------------

    def page_counts(self) -> dict[PageSetId, int]:
        """Pages per set."""
        return {page_set: len(table) for page_set, table in self._tables.items()}

    def dirty_pages(self) -> int:
        """How many pages have changed since the last finished checkpoint."""
        tables = self._tables.values()
        return sum(int(np.count_nonzero(self._memory.changed(table))) for table in tables)

    def checkpoint(self, also: np.ndarray | None = None) -> Snapshot:
        """Freeze all pages that have changed since the last finished checkpoint. [Table 4: chkpt]

        Args:
            also: bool per page, in the order of the snapshot's; true for pages to be written
                although they have not changed. May be shorter.

        Raises:
            LocalProtocolError: A checkpoint is being written already.

        Cost: O(pages), a fraction of a nanosecond each; nothing is copied but the tables.
        """
        if self.being_stored is not None:
            raise LocalProtocolError("a checkpoint is being written already")
        snapshot = self._taken(is_held=False)
        if also is not None:
            snapshot.is_changed[: len(also)] |= also[: len(snapshot.is_changed)]
        self._freeze(snapshot, snapshot.is_changed.copy())
        return snapshot

    def hold(self) -> Snapshot:
        """Freeze all pages as long as the snapshot is not cancelled. Cost: as `checkpoint`."""
        snapshot = self._taken(is_held=True)
        self._freeze(snapshot, np.ones(len(snapshot.pages), dtype=np.bool_))
        return snapshot

    def _taken(self, *, is_held: bool) -> Snapshot:
        page_sets = sorted(self._tables)
        tables = [self.pages_of(page_set) for page_set in page_sets]
        pages = np.concatenate([_NO_PAGES, *tables])
        self._taken_count += 1
        return Snapshot(
            page_sets=tuple(page_sets),
            counts=np.array([len(table) for table in tables], dtype=np.int64),
            pages=pages,
            is_changed=self._memory.changed(pages),
            next_set=self.next_set,
            number=self._taken_count,
            is_held=is_held,
            regions=self._homes.regions(),
            owners=self.owned.all() if is_held else {},
        )

    def _freeze(self, snapshot: Snapshot, is_needed: np.ndarray) -> None:
        self._memory.freeze(snapshot.pages, is_needed)
        snapshot.is_needed = is_needed
        self._snapshots.append(snapshot)
        self._homes.forget_strays()  # Looked for when the last one ends.

    def thaw(self, snapshot: Snapshot, positions: np.ndarray) -> None:
        """Pages at these positions of the snapshot have been copied out. [SGuard §4.4]"""
        if snapshot in self._snapshots:
            self._need_no_more(snapshot, positions[snapshot.is_needed[positions]], CLEAN)

    def finish(self, snapshot: Snapshot) -> None:
        """The snapshot is stored: its pages are clean, unless they have changed since."""
        if snapshot not in self._snapshots:
            return
        self._need_no_more(snapshot, snapshot.needed, CLEAN)
        self._stored_number = snapshot.number
        self._end(snapshot)

    def cancel(self, snapshot: Snapshot) -> None:
        """The snapshot is not wanted: what it was to store has to be written the next time."""
        snapshot.is_cancelled = True
        if snapshot not in self._snapshots:
            return
        if not snapshot.is_held:
            self._memory.not_stored(*snapshot.written(self._tables))
        self._need_no_more(snapshot, snapshot.needed, None if snapshot.is_held else DIRTY)
        self._end(snapshot)

    def restore(self, snapshot: Snapshot) -> None:
        """Make all page sets as they were at a held snapshot, which ends, as do later ones.

        Structures have to be created anew, in the order of every life, before `recovered`.

        Raises:
            LocalProtocolError: It is not held, or was cancelled.

        Cost: O(pages); nothing is copied.
        """
        if snapshot not in self._snapshots or not snapshot.is_held:
            raise LocalProtocolError("the snapshot is not held; it cannot be gone back to")
        for later in self._snapshots[self._snapshots.index(snapshot) + 1 :]:
            self.cancel(later)
        self._memory.release(np.concatenate([_NO_PAGES, *self._tables.values()]))
        ends = np.cumsum(snapshot.counts)
        tables = np.split(snapshot.pages.copy(), ends[:-1])
        self._tables = dict(zip(snapshot.page_sets, tables, strict=False))
        self._homes.restore(snapshot.regions)
        is_base_older = self._stored_number < snapshot.number
        self._need_no_more(snapshot, snapshot.needed, None if is_base_older else DIRTY)
        self.next_set = 1
        self.owned.restore(snapshot.owners)
        self._is_recovering = True
        self._recovered_next_set = snapshot.next_set
        self._end(snapshot)

    def _end(self, snapshot: Snapshot) -> None:
        self._snapshots = [each for each in self._snapshots if each is not snapshot]
        if not self._snapshots:
            self._homes.take_back(self._memory)
            self._homes.look_for_strays(self._tables)

    def _need_no_more(self, snapshot: Snapshot, positions: np.ndarray, mark: int | None) -> None:
        """A snapshot lets go of pages that it has needed.

        Args:
            snapshot: It.
            positions: Of the pages in it.
            mark: What those in use are then; None: what they were.
        """
        snapshot.is_needed[positions] = False
        is_used = snapshot.are_used(positions, self._tables)
        self._replaced += self._memory.let_go(snapshot.pages[positions], is_used, mark)

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
        if self.pages_held:
            raise LocalProtocolError("a checkpoint is loaded into an empty manager")
        total = int(counts.sum())
        self._require(total)
        physical = np.full(total, -1, dtype=np.int64)
        rank = np.empty(total, dtype=np.int64)
        rank[order] = np.arange(total, dtype=np.int64)
        starts = (np.cumsum(counts) - counts).tolist()
        for page_set, start, count in zip(page_sets, starts, counts.tolist(), strict=True):
            self._tables[page_set] = _NO_PAGES
            breaks = np.count_nonzero(np.diff(rank[start : start + count]) != 1)
            region = None
            if breaks * _WELL_ORDERED <= count:
                region = self._region_of(page_set, count)
            if region is not None:
                physical[start : start + count] = self._extend(region, 0, count)
        pooled = order[physical[order] < 0]
        physical[pooled] = self._memory.take(len(pooled))
        self.marks[physical] = CLEAN
        for page_set, start, count in zip(page_sets, starts, counts.tolist(), strict=True):
            self._tables[page_set] = physical[start : start + count].copy()
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
            self.next_set = self._recovered_next_set

    # -- looking ----------------------------------------------------------------------------

    def statistics(self) -> PageStatistics:
        """Counts now."""
        used = sum(len(table) for table in self._tables.values())
        held = self.pages_held
        return PageStatistics(
            self.page_bytes,
            used,
            held,
            self._memory.pages_peak,
            self.pages_max,
            len(self._tables),
            self._replaced,
        )

    def check_invariants(self) -> None:
        """Raise `InvariantViolation` unless every page is in one set, held or free. O(pages)."""
        used = np.concatenate([_NO_PAGES, *self._tables.values()])
        free = self.free[1 : int(self.free[0]) + 1]
        held = _NO_PAGES
        if self._snapshots:
            frozen = np.concatenate([each.pages[each.is_needed] for each in self._snapshots])
            if np.count_nonzero(self.marks[frozen] != FROZEN):
                raise InvariantViolation("a page that a snapshot needs is not frozen")
            if int(self._memory.holders[np.unique(frozen)].sum()) != len(frozen):
                raise InvariantViolation("pages are not held by as many snapshots as need them")
            held = np.setdiff1d(frozen, used)
        everything = np.sort(np.concatenate([used, free, held]))
        if not self._memory.are_all(everything):
            raise InvariantViolation("a page is lost, or in two page sets")
        marks = self.marks[used]
        if np.count_nonzero(marks == FREE) or np.count_nonzero(self.marks[free] != FREE):
            raise InvariantViolation("a page in use is marked free, or the other way round")
        if np.count_nonzero(self._memory.holders[used][marks == FROZEN] == 0):
            raise InvariantViolation("a page is frozen without a snapshot")
