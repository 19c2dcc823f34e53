"""How much of a state changes: some pages are copied, and compared a little later.

Independent of the marks by which checkpoints know what has changed, and of whether there are any.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

    from holdfast.core.state.page_manager import PageManager, PageSetId

_SAMPLE_BYTES: Final = 256 << 10
_WORD: Final = 1 << 64
_GOLDEN: Final = 11400714819323198485  # 2^64 over the golden ratio, odd


@dataclass(frozen=True, slots=True)
class _Sampled:
    """One page as it was."""

    page_set: PageSetId
    sequence: int
    words: np.ndarray


class ChangeSample:
    """Some pages of a manager at one moment, at most 256 KiB of them."""

    def __init__(self, pages: PageManager, number: int = 0) -> None:
        """Copy them; samples of other numbers take others. Cost: O(page sets) and 256 KiB.

        Where there are more, they are spread by the golden ratio: evenly, and in step with nothing.
        """
        self._pages = pages
        self._counts = pages.page_counts()
        ends = list(accumulate(self._counts.values()))
        total = ends[-1] if ends else 0
        wanted = max(1, _SAMPLE_BYTES // pages.page_bytes)
        positions: Iterable[int] = range(total)
        if total > wanted:
            spread = (
                (number * wanted + i) * _GOLDEN % _WORD * total // _WORD for i in range(wanted)
            )
            positions = dict.fromkeys(spread)
        names = list(self._counts)
        self._sampled: list[_Sampled] = []
        for position in positions:
            which = bisect_right(ends, position)
            begin = ends[which] - self._counts[names[which]]
            self._take_page(names[which], position - begin)

    def _take_page(self, page_set: PageSetId, sequence: int) -> None:
        words = self._pages.resolve(page_set, sequence).copy()
        self._sampled.append(_Sampled(page_set, sequence, words))

    def changed_bytes(self) -> int:
        """An estimate of the bytes in pages that have changed since, or come since.

        Pages of sets that are gone count as unchanged: nothing of them has to be copied.
        """
        counts = self._pages.page_counts()
        come = sum(max(0, n - self._counts.get(page_set, 0)) for page_set, n in counts.items())
        changed = sum(self._has_changed(page, counts) for page in self._sampled)
        total = sum(self._counts.values())
        among_old = changed * total / len(self._sampled) if self._sampled else 0.0
        return round((come + among_old) * self._pages.page_bytes)

    def _has_changed(self, page: _Sampled, counts: dict[PageSetId, int]) -> bool:
        if page.sequence >= counts.get(page.page_set, 0):
            return False
        now = self._pages.resolve(page.page_set, page.sequence)
        return not np.array_equal(now, page.words)
