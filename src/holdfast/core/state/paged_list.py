"""A list of fixed-width records in pages: append and read. [SGuard §4]

The super page (page 0 of the header set) holds the count, so all durable state is in pages.
Records never span pages; record r is in page r // per_page.
"""

from __future__ import annotations

import numpy as np

from holdfast.core.errors import InvariantViolation, LocalProtocolError
from holdfast.core.state import kernels
from holdfast.core.state.page_manager import PageManager


class PagedList:
    """Records of `width` words, numbered from 0 in the order of appending."""

    def __init__(self, manager: PageManager, width: int) -> None:
        """Create it empty; the first record takes a page, the header takes one at once.

        Raises:
            LocalProtocolError: A record does not fit in a page.
            StateLimitExceeded: No page is left.
        """
        if not 0 < width <= manager.page_words:
            raise LocalProtocolError(
                f"a record of {width} words does not fit in a page of {manager.page_words}"
            )
        self.width = width
        self._manager = manager
        self._per_page = manager.page_words // width
        self._header_set = manager.create_page_set()
        self._record_set = manager.create_page_set()
        manager.allocate(self._header_set)

    def __len__(self) -> int:
        return int(self._manager.resolve(self._header_set, 0)[0])

    @property
    def pages(self) -> np.ndarray:
        """Page table of the records."""
        return self._manager.pages_of(self._record_set)

    @property
    def page_count(self) -> int:
        """How many pages it takes."""
        return 1 + len(self.pages)

    def append(self, rows: np.ndarray) -> int:
        """Append rows, int64 (n, width); returns the number of the first.

        Raises:
            StateLimitExceeded: No page is left; nothing was appended.
        """
        if rows.shape[1] != self.width:
            raise LocalProtocolError(f"rows of {rows.shape[1]} words in a list of {self.width}")
        first = len(self)
        needed = -(-(first + len(rows)) // self._per_page)
        if needed > len(self.pages):
            self._manager.allocate(self._record_set, needed - len(self.pages))
        self.overwrite(first, rows)
        self._manager.resolve(self._header_set, 0)[0] = first + len(rows)
        return first

    def overwrite(self, first: int, rows: np.ndarray) -> None:
        """Replace the records from number `first` on by rows, int64 (n, width)."""
        kernels.write_records(
            self._manager.arena,
            self._manager.shift,
            self.pages,
            first,
            np.ascontiguousarray(rows),
        )

    def scan(self) -> np.ndarray:
        """All records in order, int64 (records, width)."""
        out = np.empty((len(self), self.width), dtype=np.int64)
        kernels.read_records(
            self._manager.arena, self._manager.shift, self.pages, 0, self.width, 0, out
        )
        return out

    def gather(self, numbers: np.ndarray) -> np.ndarray:
        """Records by number, int64 (n, width); number -1 gives zeros."""
        out = np.empty((len(numbers), self.width), dtype=np.int64)
        kernels.gather_records(
            self._manager.arena,
            self._manager.shift,
            self.pages,
            self.width,
            np.ascontiguousarray(numbers),
            out,
        )
        return out

    def replace_all(self, rows: np.ndarray) -> None:
        """Make `rows`, int64 (n, width), its only records, and give back the spare pages."""
        self._manager.resolve(self._header_set, 0)[0] = 0
        spare = len(self.pages) - -(-len(rows) // self._per_page)
        if spare > 0:
            self._manager.release(self._record_set, spare)
        self.append(rows)

    def destroy(self) -> None:
        """Release all its pages; the list must not be used again."""
        self._manager.destroy_page_set(self._header_set)
        self._manager.destroy_page_set(self._record_set)

    def check_invariants(self) -> None:
        """Raise `InvariantViolation` if there are fewer pages than the records take."""
        if len(self) > len(self.pages) * self._per_page:
            raise InvariantViolation(f"{len(self)} records in {len(self.pages)} pages")
