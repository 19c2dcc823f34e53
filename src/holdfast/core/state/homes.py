"""Which page sets have regions, and which of their pages are not at home there. [SGuard §4.4]

The home of a page is the place in its set's region that follows from its sequence number. While a
snapshot stands, clones lie in the pool; the page manager brings them home afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from holdfast.core.state.page_memory import PageMemory, Region
    from holdfast.core.state.snapshot import PageSetId

_AT_ONCE: Final = 64
"""So many clones come home in one go."""


class Homes:
    """The regions of page sets. Volatile."""

    def __init__(self) -> None:
        """All page sets lie in the pool."""
        self._regions: dict[PageSetId, Region] = {}
        self._leaving: list[Region] = []  # Without a set; snapshots may hold pages of them.
        self._strays: list[tuple[PageSetId, np.ndarray]] = []  # Who may be away; their sequences.

    def get(self, page_set: PageSetId) -> Region | None:
        """The region of a set; None: it lies in the pool."""
        return self._regions.get(page_set)

    def of_settled(self, page_set: PageSetId) -> Region | None:
        """The same, if all pages of the set are at home, as long as no snapshot stands."""
        if any(astray == page_set for astray, _ in self._strays):
            return None
        return self._regions.get(page_set)

    def regions(self) -> dict[PageSetId, Region]:
        """All of them, by set."""
        return dict(self._regions)

    def give(self, page_set: PageSetId, region: Region) -> None:
        """A set lies in a region from now on."""
        self._regions[page_set] = region

    def leave(self, page_set: PageSetId) -> bool:
        """A set is gone; whether it had a region, which waits to be taken back."""
        region = self._regions.pop(page_set, None)
        if region is not None:
            self._leaving.append(region)
        return region is not None

    def restore(self, regions: dict[PageSetId, Region]) -> None:
        """Sets have the regions that they had at a snapshot."""
        before = [region.start for region in regions.values()]
        gone = [*self._leaving, *self._regions.values()]
        self._leaving = [region for region in gone if region.start not in before]
        self._regions = dict(regions)

    def take_back(self, memory: PageMemory) -> None:
        """No snapshot stands: regions without a set are free."""
        memory.take_back(self._leaving)
        self._leaving = []

    def look_for_strays(self, tables: Mapping[PageSetId, np.ndarray]) -> None:
        """The last snapshot has ended: who has been cloned, or could not be allocated at home?"""
        for page_set, region in self._regions.items():
            table = tables[page_set]
            away = np.flatnonzero(table != region.homes(0, len(table)))
            if len(away):
                self._strays.append((page_set, away))

    def forget_strays(self) -> None:
        """A snapshot stands: nobody comes home for now."""
        self._strays = []

    def some_strays(
        self, tables: Mapping[PageSetId, np.ndarray]
    ) -> tuple[np.ndarray, np.ndarray, Region] | None:
        """Some pages that are to come home now: the table of their set, sequences, region."""
        if not self._strays:
            return None
        page_set, sequences = self._strays.pop()
        if len(sequences) > _AT_ONCE:
            self._strays.append((page_set, sequences[_AT_ONCE:]))
        region = self._regions.get(page_set)
        if region is None:
            return None  # The set is gone.
        table = tables[page_set]
        some = sequences[:_AT_ONCE]
        some = some[some < len(table)]
        return table, some[table[some] != region.start + some], region
