"""A copy of a node's pages, kept up to date by the words that have changed. [HA §4.1]

A passive secondary has one to go on from. Its primary has one to know which words have changed
since the last delta: pages are marked as a whole, but a counter that goes up changes one word.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from holdfast.core.state.page_manager import PageManager, PageSetId

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


_PLACE_BYTES: Final = 4
"""Of the place of a word among all words of a run."""


@dataclass(frozen=True, slots=True)
class PageRun:
    """The words that have changed in some pages of a delta.

    Attributes:
        sequence: The delta's.
        ids: Page sets and sequence numbers, int64 (n, 2).
        changed: Which words have, bool (n, words of a page).
        values: What they are now, page by page, int64 (number of changed words,).
    """

    sequence: int
    ids: np.ndarray
    changed: np.ndarray
    values: np.ndarray

    @property
    def nbytes(self) -> int:
        """Bytes that it takes on a channel, its header aside."""
        said = places_bytes(self.changed.size, len(self.values))
        return int(self.ids.nbytes + said + self.values.nbytes)


def names_places(words: int, changed: int) -> bool:
    """Whether the places of the changed words among all take fewer bytes than a bit per word."""
    return _PLACE_BYTES * changed < (words + 7) // 8


def places_bytes(words: int, changed: int) -> int:
    """How many bytes it takes to say which of the words have changed."""
    return _PLACE_BYTES * changed if names_places(words, changed) else (words + 7) // 8


class CopiedPages:
    """Page sets like another manager's. Volatile: all fields."""

    def __init__(self, page_bytes: int, state_bytes: int) -> None:
        """No page yet."""
        self.manager = PageManager(page_bytes, state_bytes)
        self._counts: dict[int, int] = {}
        self._firsts: dict[PageSetId, int] = {}
        self._physical = np.zeros(0, dtype=np.int64)

    def resize(self, counts: Mapping[int, int], gone: Iterable[int], next_set: int) -> None:
        """Have so many pages in these sets; new ones are zeroed.

        Args:
            counts: Pages per page set that is new or has another size.
            gone: Page sets that there are no more.
            next_set: The id that the next page set would get.

        Raises:
            StateLimitExceeded: They are more than the bound.
        """
        self._counts |= counts
        for page_set in gone:
            self._counts.pop(page_set, None)
        sets = {PageSetId(name): count for name, count in sorted(self._counts.items())}
        self._physical = self.manager.mirror(sets, next_set)
        firsts = np.cumsum([0, *sets.values()]).tolist()
        self._firsts = dict(zip(sets, firsts, strict=False))

    def difference(self, sequence: int, ids: np.ndarray, words: np.ndarray) -> PageRun:
        """Take over some pages.

        Args:
            sequence: The delta's that they belong to.
            ids: Page sets and sequence numbers, int64 (n, 2).
            words: Their contents, int64 (n, words of a page).

        Returns:
            What differs from the copy as it was.
        """
        rows, places = self._places(ids)
        changed = words != rows[places]
        rows[places] = words
        return PageRun(sequence, ids, changed, words[changed])

    def apply(self, run: PageRun) -> None:
        """Take over what has changed.

        Raises:
            LookupError: One of its pages is not among these.
            ValueError: Its pages have another size.
        """
        rows, places = self._places(run.ids)
        words = rows[places]
        words[run.changed] = run.values
        rows[places] = words

    def _places(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """All pages, and which of them these are."""
        first = np.array([self._firsts[PageSetId(s)] for s in ids[:, 0].tolist()], dtype=np.int64)
        rows = self.manager.arena.reshape(-1, self.manager.page_words)
        return rows, self._physical[first + ids[:, 1]]
