"""An unordered map by linear hashing: k key words -> v value words, in pages. [SGuard §4]

Two page sets. The first holds the super page (page 0, the header) and then the buckets, one word
each: the link to the bucket's newest record. The second holds the records in insertion order:
link to the next record of the bucket, key words, value words; a record never spans two pages.
"""

from __future__ import annotations

import numpy as np

from holdfast.core.errors import InvariantViolation, LocalProtocolError
from holdfast.core.state import hash_kernels, kernels
from holdfast.core.state.page_manager import PageManager, PageSetId

_BUCKETS_FIRST = 16
_SHAPE_AT = 4


class UnorderedMap:
    """A map of fixed-width keys and values. Iteration is in insertion order."""

    def __init__(
        self,
        manager: PageManager,
        key_words: int,
        value_words: int,
        page_sets: tuple[PageSetId, ...] | None = None,
    ) -> None:
        """Create it empty, or find it as a checkpoint holds it.

        Empty, it takes two pages at once and a third with the first key.

        Args:
            manager: Of the pages.
            key_words: Words of a key.
            value_words: Words of a value.
            page_sets: Its two page sets, when a record elsewhere names them; else it makes them.

        Raises:
            LocalProtocolError: A record does not fit in a page, or the checkpoint's are others.
            StateLimitExceeded: No page is left.
        """
        self.width = 1 + key_words + value_words
        if self.width > manager.page_words:
            raise LocalProtocolError(
                f"a record of {self.width} words does not fit in a page of {manager.page_words}"
            )
        self.key_words = key_words
        self._value_words = value_words
        self._manager = manager
        self.page_sets = page_sets or (manager.create_page_set(), manager.create_page_set())
        self._bucket_set, self._record_set = self.page_sets
        if len(self.bucket_pages):
            require_shape(manager, self._bucket_set, (key_words, value_words))
            return
        create_buckets(manager, self._bucket_set, (key_words, value_words))

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

    def bases(self) -> tuple[int, int]:
        """`PageManager.base_of` its two page sets."""
        manager = self._manager
        return manager.base_of(self._bucket_set), manager.base_of(self._record_set)

    @property
    def page_count(self) -> int:
        """How many pages it takes."""
        return len(self.bucket_pages) + len(self.record_pages)

    def upsert_slots(self, keys: np.ndarray) -> np.ndarray:
        """Find or insert keys, int64 (n, k); new ones get zero values.

        Returns:
            Logical addresses of the value words in the record pages, int64 (n,).

        Raises:
            StateLimitExceeded: No page is left; earlier rows were inserted.
        """
        keys = np.ascontiguousarray(keys)
        slots = np.empty(len(keys), dtype=np.int64)
        done = 0
        manager = self._manager
        while done < len(keys):
            manager.make_room()
            done = hash_kernels.map_upsert(
                manager.arena,
                manager.marks,
                manager.free,
                manager.shift,
                self.bucket_pages,
                self.record_pages,
                keys,
                done,
                self._value_words,
                slots,
            )
            if done < len(keys):
                self.grow()
        return slots

    def lookup_slots(self, keys: np.ndarray) -> np.ndarray:
        """As `upsert_slots`, but an absent key gets -1. int64 (n,)."""
        keys = np.ascontiguousarray(keys)
        slots = np.empty(len(keys), dtype=np.int64)
        hash_kernels.map_lookup(
            self._manager.arena,
            self._manager.shift,
            self.bucket_pages,
            self.record_pages,
            keys,
            slots,
        )
        return slots

    def read_values(self, slots: np.ndarray) -> np.ndarray:
        """The value words at these addresses, int64 (n, v)."""
        values = np.empty((len(slots), self._value_words), dtype=np.int64)
        manager = self._manager
        kernels.read_words(manager.arena, manager.shift, self.record_pages, slots, values)
        return values

    def write_values(self, slots: np.ndarray, values: np.ndarray) -> None:
        """Store value words, int64 (n, v), at these addresses, in this order.

        Raises:
            StateLimitExceeded: No page is left; earlier rows were stored.
        """
        manager = self._manager
        done = 0
        while done < len(slots):
            manager.make_room()
            done = kernels.write_words(
                manager.arena,
                manager.marks,
                manager.free,
                manager.shift,
                self.record_pages,
                slots,
                np.ascontiguousarray(values),
                done,
            )

    def entries(self, first: int = 0, count: int | None = None) -> np.ndarray:
        """Keys and values in insertion order, int64 (n, k + v): from `first` on, all or `count`.

        In Fortran order: who makes columns of them need not gather.
        """
        count = len(self) - first if count is None else count
        out = np.empty((count, self.width - 1), dtype=np.int64, order="F")
        kernels.read_records(
            self._manager.arena, self._manager.shift, self.record_pages, first, self.width, 1, out
        )
        return out

    def reserve(self, entries: int) -> None:
        """Make an empty map as large as so many entries need: it need not grow on the way there.

        It stays as it is if that took more than half of the pages that are left.
        """
        manager = self._manager
        buckets = 1 << max(0, entries - 1).bit_length()
        bucket_pages = 1 + -(-buckets // manager.page_words)
        record_pages = -(-entries // (manager.page_words // self.width))
        more = bucket_pages - len(self.bucket_pages), record_pages - len(self.record_pages)
        if len(self) or buckets <= _BUCKETS_FIRST or 2 * sum(more) > manager.pages_left:
            return
        for page_set, pages in zip(self.page_sets, more, strict=True):
            if pages > 0:
                manager.allocate(page_set, pages)
        header = manager.writable(self._bucket_set, 0)
        header[hash_kernels.BUCKETS] = header[hash_kernels.LOW_POWER] = buckets

    def grow(self) -> None:
        """Allocate what the next insertion lacks in tables, half as many pages again as there are.

        Raises:
            StateLimitExceeded: No page is left.
        """
        manager = self._manager
        header = manager.resolve(self._bucket_set, 0)
        next_free = int(header[hash_kernels.NEXT_FREE])
        buckets = int(header[hash_kernels.BUCKETS])
        offset = next_free & (manager.page_words - 1)
        page = (next_free >> manager.shift) + (offset + self.width > manager.page_words)
        if page >= len(self.record_pages):
            manager.allocate(self._record_set, _some_more(manager, len(self.record_pages)))
        if (buckets >> manager.shift) + 1 >= len(self.bucket_pages):
            manager.allocate(self._bucket_set, _some_more(manager, len(self.bucket_pages)))

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
        low_power, buckets = int(header[hash_kernels.LOW_POWER]), int(header[hash_kernels.BUCKETS])
        if not low_power <= buckets <= 2 * low_power:
            raise InvariantViolation(f"{buckets} buckets at level {low_power}")


def distinct_keys(manager: PageManager, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of each row the number of its key, int64 (n,), and the keys, each once, int64 (u, k).

    Keys are numbered in the order in which they come first.

    Raises:
        StateLimitExceeded: No page is left.
    """
    numbers = UnorderedMap(manager, keys.shape[1], 0)
    slots = numbers.upsert_slots(keys)  # Addresses rise in order of insertion.
    _, first, number_of = np.unique(slots, return_index=True, return_inverse=True)
    numbers.destroy()
    return number_of.astype(np.int64).reshape(-1), np.ascontiguousarray(keys[first])


def _some_more(manager: PageManager, pages: int) -> int:
    """Half as many again as there are, as far as the bound allows; one in any case."""
    return max(1, min(pages // 2, manager.pages_left))


def create_buckets(manager: PageManager, page_set: PageSetId, shape: tuple[int, int]) -> None:
    """Lay out the super page and the first page of buckets."""
    manager.allocate(page_set, 2)
    header = manager.writable(page_set, 0)
    header[hash_kernels.BUCKETS] = _BUCKETS_FIRST
    header[hash_kernels.LOW_POWER] = _BUCKETS_FIRST
    header[_SHAPE_AT : _SHAPE_AT + 2] = shape


def require_shape(manager: PageManager, page_set: PageSetId, shape: tuple[int, int]) -> None:
    """Raise `LocalProtocolError` unless a recovered set has key and value words like these."""
    found = tuple(manager.resolve(page_set, 0)[_SHAPE_AT : _SHAPE_AT + 2].tolist())
    if found != shape:
        raise LocalProtocolError(
            f"page set {page_set} holds records of {found} key and value words, expected {shape}"
        )
