"""An unordered map by linear hashing: k key words -> v value words, in pages. [SGuard §4]

Two page sets. The first holds the super page (page 0, the header) and then the buckets, one word
each: the link to the bucket's newest record. The second holds the records in insertion order:
link to the next record of the bucket, key words, value words; a record never spans two pages.
"""

from __future__ import annotations

import numpy as np

from holdfast.core.errors import InvariantViolation, LocalProtocolError
from holdfast.core.state import kernels
from holdfast.core.state.page_manager import PageManager

_BUCKETS_FIRST = 16


class UnorderedMap:
    """A map of fixed-width keys and values. Iteration is in insertion order."""

    def __init__(self, manager: PageManager, key_words: int, value_words: int) -> None:
        """Create it empty; it takes two pages at once and a third with the first key.

        Raises:
            LocalProtocolError: A record does not fit in a page.
            StateLimitExceeded: No page is left.
        """
        self.width = 1 + key_words + value_words
        if self.width > manager.page_words:
            raise LocalProtocolError(
                f"a record of {self.width} words does not fit in a page of {manager.page_words}"
            )
        self.key_words = key_words
        self.value_words = value_words
        self._manager = manager
        self._bucket_set = manager.create_page_set()
        self._record_set = manager.create_page_set()
        manager.allocate(self._bucket_set, 2)
        header = manager.resolve(self._bucket_set, 0)
        header[kernels.BUCKETS] = _BUCKETS_FIRST
        header[kernels.LOW_POWER] = _BUCKETS_FIRST

    def __len__(self) -> int:
        return int(self._manager.resolve(self._bucket_set, 0)[kernels.ENTRIES])

    @property
    def bucket_pages(self) -> np.ndarray:
        """Page table of super page and buckets."""
        return self._manager.pages_of(self._bucket_set)

    @property
    def record_pages(self) -> np.ndarray:
        """Page table of the records."""
        return self._manager.pages_of(self._record_set)

    @property
    def head(self) -> int:
        """Physical address of the header."""
        return int(self.bucket_pages[0]) << self._manager.shift

    @property
    def page_count(self) -> int:
        """How many pages it takes."""
        return len(self.bucket_pages) + len(self.record_pages)

    def upsert_slots(self, keys: np.ndarray) -> np.ndarray:
        """Find or insert keys, int64 (n, k); new ones get zero values.

        Returns:
            Physical word addresses of the value words in the manager's arena, int64 (n,), valid
            until pages move; page = address >> shift.

        Raises:
            StateLimitExceeded: No page is left; earlier rows were inserted.
        """
        keys = np.ascontiguousarray(keys)
        slots = np.empty(len(keys), dtype=np.int64)
        done = 0
        while done < len(keys):
            done = kernels.map_upsert(
                self._manager.arena,
                self._manager.shift,
                self.head,
                self.bucket_pages,
                self.record_pages,
                keys,
                done,
                self.value_words,
                slots,
            )
            if done < len(keys):
                self.grow()
        return slots

    def lookup_slots(self, keys: np.ndarray) -> np.ndarray:
        """As `upsert_slots`, but an absent key gets -1. int64 (n,)."""
        keys = np.ascontiguousarray(keys)
        slots = np.empty(len(keys), dtype=np.int64)
        kernels.map_lookup(
            self._manager.arena,
            self._manager.shift,
            self.head,
            self.bucket_pages,
            self.record_pages,
            keys,
            slots,
        )
        return slots

    def entries(self) -> np.ndarray:
        """Keys and values in insertion order, int64 (entries, k + v)."""
        out = np.empty((len(self), self.width - 1), dtype=np.int64)
        kernels.read_records(
            self._manager.arena, self._manager.shift, self.record_pages, 0, self.width, 1, out
        )
        return out

    def grow(self) -> None:
        """Allocate what the next insertion lacks, half as many pages again as there are.

        Raises:
            StateLimitExceeded: No page is left.
        """
        manager = self._manager
        header = manager.resolve(self._bucket_set, 0)
        next_free = int(header[kernels.NEXT_FREE])
        buckets = int(header[kernels.BUCKETS])
        offset = next_free & (manager.page_words - 1)
        page = (next_free >> manager.shift) + (offset + self.width > manager.page_words)
        if page >= len(self.record_pages):
            manager.allocate(self._record_set, max(1, len(self.record_pages) // 2))
        if (buckets >> manager.shift) + 1 >= len(self.bucket_pages):
            manager.allocate(self._bucket_set, max(1, len(self.bucket_pages) // 2))

    def destroy(self) -> None:
        """Release all its pages; the map must not be used again."""
        self._manager.destroy_page_set(self._bucket_set)
        self._manager.destroy_page_set(self._record_set)

    def check_invariants(self) -> None:
        """Raise `InvariantViolation` unless every entry is found under its key. O(entries)."""
        keys = self.entries()[:, : self.key_words]
        slots = self.lookup_slots(keys)
        if bool((slots < 0).any()) or len(np.unique(slots)) != len(slots):
            raise InvariantViolation("a map's entry cannot be found, or is there twice")
        header = self._manager.resolve(self._bucket_set, 0)
        low_power, buckets = int(header[kernels.LOW_POWER]), int(header[kernels.BUCKETS])
        if not low_power <= buckets <= 2 * low_power:
            raise InvariantViolation(f"{buckets} buckets at level {low_power}")
