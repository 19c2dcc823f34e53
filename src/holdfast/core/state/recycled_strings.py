"""Strings of records that come and go, in pages. [SGuard §4, raw pages]

`StringPages` never forgets a string. Whoever keeps records only for a while has their strings here:
when more has been stored than is likely to be still in use, the live ones are stored anew.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from holdfast.core.state.page_manager import PageManager, PageSetId
from holdfast.core.state.raw_page import RawPage
from holdfast.core.state.string_pages import StringPages

_SPARE_PAGES: Final = 16


class RecycledStrings:
    """String pages that are replaced from time to time.

    In pages: the strings; and their page sets' ids with the pages they took when they were new.
    """

    def __init__(self, manager: PageManager) -> None:
        """Create it empty, taking a page at once, or find it as a checkpoint holds it.

        Raises:
            StateLimitExceeded: No page is left.
        """
        self._manager = manager
        self._named = RawPage(manager)
        self._pages: StringPages | None = None
        words = self._named.read().tolist()
        if words:
            self._pages = StringPages(manager, (PageSetId(words[0]), PageSetId(words[1])))

    @property
    def pages(self) -> StringPages:
        """The strings now. Every call may find others: never keep them across `renew`."""
        if self._pages is None:
            self._pages = self._fresh()
        return self._pages

    @property
    def is_due(self) -> bool:
        """Whether most of what is stored is likely to be garbage."""
        if self._pages is None:
            return False
        return self._pages.page_count > 2 * int(self._named.read()[2]) + _SPARE_PAGES

    def renew(self, references: np.ndarray) -> np.ndarray:
        """Keep the strings of these references only, int64 of any shape; their new references.

        Raises:
            StateLimitExceeded: No page is left; nothing has changed but pages of a new set.

        Cost: O(bytes of these strings).
        """
        old = self.pages
        fresh = StringPages(self._manager)
        column = old.gather(np.ascontiguousarray(references).reshape(-1), pa.large_binary())
        found = fresh.intern(column).reshape(references.shape)
        old.destroy()
        self._pages = fresh
        self._name(fresh)
        return found

    @property
    def page_count(self) -> int:
        """How many pages it takes."""
        strings = 0 if self._pages is None else self._pages.page_count
        return self._named.page_count + strings

    def _fresh(self) -> StringPages:
        pages = StringPages(self._manager)
        self._name(pages)
        return pages

    def _name(self, pages: StringPages) -> None:
        self._named.write(np.array([*pages.page_sets, pages.page_count], dtype=np.int64))
