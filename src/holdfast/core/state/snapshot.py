"""What a page manager hands out about itself: a snapshot of all pages, and counts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NewType

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.core.state.page_memory import Region

PageSetId = NewType("PageSetId", int)
NO_PAGES: Final = np.zeros(0, dtype=np.int64)


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


@dataclass(slots=True, eq=False)
class Snapshot:
    """All pages at one moment, the page sets one after another.

    Attributes:
        page_sets: Their ids, ascending.
        counts: int64, pages per set.
        pages: int64 (n,), the physical page of every PageID.
        is_changed: bool (n,), whether the page has to be written; the others are stored already.
        next_set: The id that the next page set would get.
        number: Of its manager's snapshots; later ones have larger numbers.
        is_held: Whether it is to be gone back to, or looked at; a checkpoint is to be stored.
        regions: Which page sets had regions.
        owners: Whose page sets are, if it is held.
        is_needed: bool (n,), whether the page is frozen for this snapshot.
        is_cancelled: The manager needed its pages; what is being written is worth nothing.
    """

    page_sets: tuple[PageSetId, ...]
    counts: np.ndarray
    pages: np.ndarray
    is_changed: np.ndarray
    next_set: int
    number: int
    is_held: bool
    regions: dict[PageSetId, Region]
    owners: dict[PageSetId, int] = field(default_factory=dict)
    is_needed: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))
    is_cancelled: bool = False

    @property
    def changed(self) -> np.ndarray:
        """Positions of the pages to be written, int64 ascending."""
        return np.flatnonzero(self.is_changed)

    @property
    def needed(self) -> np.ndarray:
        """Positions of the pages that are frozen for it, int64 ascending."""
        return np.flatnonzero(self.is_needed)

    def are_used(self, positions: np.ndarray, tables: Mapping[PageSetId, np.ndarray]) -> np.ndarray:
        """Whether page sets still have the physical pages at these positions, bool.

        Args:
            positions: In the snapshot, int64.
            tables: The page tables now.
        """
        ends = np.cumsum(self.counts)
        which = np.searchsorted(ends, positions, side="right")
        current = np.full(len(positions), -1, dtype=np.int64)
        for number in np.unique(which).tolist():
            table = tables.get(self.page_sets[number], NO_PAGES)
            mine = np.flatnonzero(which == number)
            sequences = positions[mine] - (ends[number] - self.counts[number])
            mine = mine[sequences < len(table)]
            current[mine] = table[sequences[sequences < len(table)]]
        is_used: np.ndarray = current == self.pages[positions]
        return is_used

    def written(self, tables: Mapping[PageSetId, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """The pages copied out so far, and whether page sets still have them; as `are_used`."""
        thawed = np.flatnonzero(self.is_changed & ~self.is_needed)
        return self.pages[thawed], self.are_used(thawed, tables)
