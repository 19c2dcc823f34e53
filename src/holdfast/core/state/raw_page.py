"""A page of plain words: what an operator remembers beside its structures. [SGuard §4.2, raw]"""

from __future__ import annotations

import numpy as np

from holdfast.core.errors import LocalProtocolError
from holdfast.core.state.page_manager import PageManager


class RawPage:
    """Up to a page of words less one, kept in one page set."""

    def __init__(self, manager: PageManager) -> None:
        """Create it without words, taking a page at once, or find it as a checkpoint holds it.

        Raises:
            StateLimitExceeded: No page is left.
        """
        self._manager = manager
        self._page_set = manager.create_page_set()
        if not len(manager.pages_of(self._page_set)):
            manager.allocate(self._page_set)

    def read(self) -> np.ndarray:
        """The words, a copy. int64 (n,)."""
        page = self._manager.resolve(self._page_set, 0)
        return page[1 : 1 + int(page[0])].copy()

    def write(self, words: np.ndarray) -> None:
        """Replace the words by these, int64 (n,); a page is touched only if they are others.

        Raises:
            LocalProtocolError: They do not fit.
            StateLimitExceeded: No page is left to clone into.
        """
        if len(words) >= self._manager.page_words:
            raise LocalProtocolError(f"{len(words)} words do not fit in a raw page")
        if np.array_equal(self.read(), words):
            return
        page = self._manager.writable(self._page_set, 0)
        page[0] = len(words)
        page[1 : 1 + len(words)] = words

    @property
    def page_count(self) -> int:
        """How many pages it takes."""
        return len(self._manager.pages_of(self._page_set))
