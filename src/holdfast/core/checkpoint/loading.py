"""Loading the pages of a checkpoint into a page manager. [SGuard §4.4]

Physical pages are given out so that runs of pages in files are runs of the arena too, and are read
straight into it: in the files' order, or at home where that makes no difference. Page tables need
no page to be there: they are ready at once, and pages may arrive in any order.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from holdfast.core.checkpoint.page_checksum import checksums
from holdfast.core.state.page_manager import PageManager

if TYPE_CHECKING:
    from holdfast.core.checkpoint.page_image import PageFile, PageImage

RUN_BYTES: Final = 4 << 20


@dataclass(frozen=True, slots=True)
class PageRun:
    """Pages that lie one after another both in a file and in the arena.

    Attributes:
        file: The file.
        offset: Where the first begins in the file, in bytes.
        words: Where they go; a view of the arena.
        shift: A page has `1 << shift` words.
        seeds: The PageID of each, uint64 (n,).
        checksums: What each must have, uint64 (n,).
    """

    file: PageFile
    offset: int
    words: np.ndarray
    shift: int
    seeds: np.ndarray
    checksums: np.ndarray

    def is_whole(self) -> bool:
        """Whether the pages, now read, have the checksums that they should."""
        pages = np.arange(len(self.seeds))
        found = checksums(self.words, self.shift, pages, self.seeds)
        return bool(np.array_equal(found, self.checksums))


class PageLoader:
    """Fills a new page manager with the pages of an image."""

    def __init__(self, image: PageImage, state_bytes_max: int) -> None:
        """Make the manager and its page tables.

        Raises:
            StateLimitExceeded: The pages are more than the bound.
        """
        self.image = image
        self.pages = PageManager(image.page_bytes, state_bytes_max)
        self._order = image.reading_order
        self._physical = self.pages.load(
            image.page_sets, image.counts, self._order, image.next_set
        )[self._order]
        self._seeds = image.seeds()[self._order]
        self._checksums = image.checksum[self._order]

    def runs(self) -> list[PageRun]:
        """What is to be read, in runs of at most `RUN_BYTES`."""
        image, order = self.image, self._order
        total = len(order)
        if total == 0:
            return []
        file, position = image.file[order], image.position[order]
        physical = self._physical
        is_next = (file[1:] == file[:-1]) & (position[1:] == position[:-1] + 1)
        is_next &= physical[1:] == physical[:-1] + 1
        breaks = [0, *(np.flatnonzero(~is_next) + 1).tolist(), total]
        longest = max(1, RUN_BYTES // image.page_bytes)
        runs: list[PageRun] = []
        shift = self.pages.shift
        for begin, end in itertools.pairwise(breaks):
            for first in range(begin, end, longest):
                count = min(longest, end - first)
                at = int(self._physical[first]) << shift
                runs.append(
                    PageRun(
                        image.files[int(file[first])],
                        int(position[first]) * image.page_bytes,
                        self.pages.arena[at : at + (count << shift)],
                        shift,
                        self._seeds[first : first + count],
                        self._checksums[first : first + count],
                    )
                )
        return runs
