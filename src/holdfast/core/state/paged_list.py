"""A list of fixed-width records in pages: append and read. [SGuard §4]

The super page (page 0 of the header set) holds the count and the width of a record.
Records never span pages; record r is in page r // per_page.
"""

from __future__ import annotations

import numpy as np

from holdfast.core.errors import InvariantViolation, LocalProtocolError
from holdfast.core.state import kernels
from holdfast.core.state.page_manager import PageManager, PageSetId

_COUNT = 0
_WIDTH = 1


class PagedList:
    """Records of `width` words, numbered from 0 in the order of appending."""

    def __init__(
        self,
        manager: PageManager,
        width: int | None = None,
        page_sets: tuple[PageSetId, ...] | None = None,
    ) -> None:
        """Create it empty, or find it as a checkpoint holds it.

        Empty, it takes a page for its header at once; the first record takes another.

        Args:
            manager: Of the pages.
            width: Words of a record; None: that of the first rows appended.
            page_sets: Its two page sets, when a record elsewhere names them; else it makes them.

        Raises:
            LocalProtocolError: A record does not fit in a page, or the checkpoint's are others.
            StateLimitExceeded: No page is left.
        """
        self._manager = manager
        self.width = 0
        self._per_page = 0
        self.page_sets = page_sets or (manager.create_page_set(), manager.create_page_set())
        self._header_set, self._record_set = self.page_sets
        if not len(manager.pages_of(self._header_set)):
            manager.allocate(self._header_set)
        found = int(manager.resolve(self._header_set, 0)[_WIDTH])
        if found and width not in (None, found):
            raise LocalProtocolError(f"a list of records of {found} words, expected {width}")
        if found or width is not None:
            self._set_width(found or width or 0)
        self.check_invariants()

    def _set_width(self, width: int) -> None:
        if not 0 < width <= self._manager.page_words:
            raise LocalProtocolError(
                f"a record of {width} words does not fit in a page of {self._manager.page_words}"
            )
        self.width = width
        self._per_page = self._manager.page_words // width
        if int(self._manager.resolve(self._header_set, 0)[_WIDTH]) != width:
            self._manager.writable(self._header_set, 0)[_WIDTH] = width

    def __len__(self) -> int:
        return int(self._manager.resolve(self._header_set, 0)[_COUNT])

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
        if len(rows) == 0:
            return len(self)
        if self.width == 0:
            self._set_width(rows.shape[1])
        if rows.shape[1] != self.width:
            raise LocalProtocolError(f"rows of {rows.shape[1]} words in a list of {self.width}")
        first = len(self)
        needed = -(-(first + len(rows)) // self._per_page)
        if needed > len(self.pages):
            self._manager.allocate(self._record_set, needed - len(self.pages))
        self.overwrite(first, rows)
        self._manager.writable(self._header_set, 0)[_COUNT] = first + len(rows)
        return first

    def overwrite(self, first: int, rows: np.ndarray) -> None:
        """Replace the records from number `first` on by rows, int64 (n, width).

        Raises:
            StateLimitExceeded: No page is left to clone into; earlier rows were replaced.
        """
        manager = self._manager
        rows = np.ascontiguousarray(rows)
        done = 0
        while done < len(rows):
            manager.make_room()
            done = kernels.write_records(
                manager.arena,
                manager.marks,
                manager.free,
                manager.shift,
                self.pages,
                first,
                rows,
                done,
            )

    def scan(self) -> np.ndarray:
        """All records in order, int64 (records, width)."""
        out = np.empty((len(self), self.width), dtype=np.int64)
        if len(out) == 0:
            return out
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
        self._manager.writable(self._header_set, 0)[_COUNT] = 0
        spare = len(self.pages) - -(-len(rows) // max(1, self._per_page))
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
