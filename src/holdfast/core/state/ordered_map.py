"""An ordered map by a T-tree: k key words -> v value words, in pages. [SGuard §4.3, Table 3]

A node of the tree is a page of records sorted by key, with the pages of its parent and children in
its header; the super page names the root (see `tree_kernels.py`, where the inner loops are, and
`page_layout.py`). Keys compare as signed words, the first word first. Records move when others come
and go, so values are handed out and taken in by copy, never by address.
"""

from __future__ import annotations

import numpy as np

from holdfast.core.errors import InvariantViolation, LocalProtocolError
from holdfast.core.model.ids import BEGINNING_US, END_US
from holdfast.core.state import tree_kernels, tree_range_kernels
from holdfast.core.state.page_layout import FRESH, LinkedPages
from holdfast.core.state.page_manager import PageManager, PageSetId
from holdfast.core.state.tree_search_kernels import (
    COUNT,
    EMPTIED,
    HEIGHT,
    LEFT,
    NODE_WORDS,
    PARENT,
    RIGHT,
    ROOT,
)

_NO_WORDS = np.zeros(0, dtype=np.int64)
_RANGES_ROOM = 1 << 10
"""Of records: so many are read at once of many ranges, at least."""


def time_bound(time_us: int, words: int) -> np.ndarray | None:
    """The least key of so many words that begins with a time; None: at the end of time."""
    if time_us >= END_US:
        return None
    bound = np.full(words, BEGINNING_US, dtype=np.int64)
    bound[0] = time_us
    return bound


class OrderedMap:
    """A map of fixed-width keys and values. Iteration is in key order."""

    def __init__(
        self,
        manager: PageManager,
        key_words: int,
        value_words: int,
        page_sets: tuple[PageSetId, ...] | None = None,
    ) -> None:
        """Create it empty, or find it as a checkpoint holds it.

        Empty, it takes a page at once; the first key takes another.

        Args:
            manager: Of the pages.
            key_words: Words of a key, at least one.
            value_words: Words of a value; none make it a set.
            page_sets: Its one page set, when a record elsewhere names it; else it makes it.

        Raises:
            LocalProtocolError: A record does not fit in a page, or the checkpoint's are others.
            StateLimitExceeded: No page is left.
        """
        self.key_words = key_words
        self.value_words = value_words
        self.width = key_words + value_words
        if not 0 < key_words <= self.width <= manager.page_words - NODE_WORDS:
            raise LocalProtocolError(
                f"a record of {key_words} key and {value_words} value words does not fit in a "
                f"node of {manager.page_words - NODE_WORDS}"
            )
        self._manager = manager
        self._capacity = (manager.page_words - NODE_WORDS) // self.width
        self._pages = LinkedPages(manager, (key_words, value_words), page_sets)
        self.page_sets = self._pages.page_sets

    def __len__(self) -> int:
        return len(self._pages)

    @property
    def page_count(self) -> int:
        """How many pages it takes."""
        return len(self._pages.table)

    def put(self, keys: np.ndarray, values: np.ndarray) -> None:
        """Insert keys, int64 (n, k), or replace their values, int64 (n, v), in row order.

        Raises:
            StateLimitExceeded: No page is left; earlier rows were stored.

        Cost: O(log n) and half a page moved, each. [SGuard Table 2]
        """
        keys = _rows(keys, self.key_words)
        values = _rows(values, self.value_words)
        if len(keys) != len(values):
            raise LocalProtocolError(f"{len(keys)} keys for {len(values)} values")
        done = 0
        while done < len(keys):
            done = tree_kernels.tree_put(self._pages.to_write(), keys, values, done)
            if done < len(keys) and self._pages.head[EMPTIED] == 0:
                self._pages.reserve(1)

    def get(self, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Look up keys, int64 (n, k).

        Returns:
            Which are there, bool (n,), and their values, int64 (n, v); zeros for the others.
        """
        keys = _rows(keys, self.key_words)
        found = np.empty(len(keys), dtype=np.bool_)
        values = np.empty((len(keys), self.value_words), dtype=np.int64)
        tree_kernels.tree_get(self._pages.to_read(), keys, found, values)
        return found, values

    def remove(self, keys: np.ndarray) -> np.ndarray:
        """Remove keys, int64 (n, k), in row order; which were there, bool (n,)."""
        keys = _rows(keys, self.key_words)
        removed = np.empty(len(keys), dtype=np.bool_)
        done = 0
        while done < len(keys):
            done = tree_kernels.tree_remove(
                self._pages.to_write(), keys, self.value_words, done, removed
            )
        self._give_back_if_empty()
        return removed

    def first(self) -> np.ndarray | None:
        """The entry with the least key, int64 (k + v,); None if there is none."""
        out = np.empty((1, self.width), dtype=np.int64)
        return out[0] if self._read(None, None, 1, out) else None

    def pop_first(self, count: int) -> np.ndarray:
        """Remove the first entries, up to `count`, and return them. int64 (n, k + v).

        Cost: of the last node touched, the remaining entries move; so take many at a time.
        """
        out = np.empty((max(0, min(count, len(self))), self.width), dtype=np.int64)
        done = 0
        while done < len(out):
            done = tree_kernels.tree_pop_first(self._pages.to_write(), done, out)
        self._give_back_if_empty()
        return out

    def pop_below(self, bound: np.ndarray | None) -> np.ndarray:
        """Remove the entries with smaller keys, and return them. int64 (n, k + v).

        Args:
            bound: A key, int64 (k,); None: all entries.
        """
        if bound is None:
            return self.pop_first(len(self))
        none = np.empty((0, self.width), dtype=np.int64)
        return self.pop_first(self._read(None, bound, len(self), none))

    def range(self, low: np.ndarray | None, high: np.ndarray | None) -> np.ndarray:
        """Entries with keys in [low, high), in key order. int64 (n, k + v).

        Args:
            low: A key, int64 (k,); None: from the first.
            high: A key, int64 (k,); None: to the last.
        """
        count = self._read(low, high, len(self), np.empty((0, self.width), dtype=np.int64))
        out = np.empty((count, self.width), dtype=np.int64)
        self._read(low, high, count, out)
        return out

    def ranges(self, lows: np.ndarray, highs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Entries of many ranges [low, high), each in key order.

        Args:
            lows: Keys, int64 (n, k).
            highs: As many keys.

        Returns:
            Per entry the number of its range, int64 (m,), and the entries, int64 (m, k + v).
        """
        bounds = np.concatenate([_rows(lows, self.key_words), _rows(highs, self.key_words)], axis=1)
        flat = bounds.reshape(-1)
        counts = np.zeros(len(bounds), dtype=np.int64)
        parts: list[np.ndarray] = []
        done, room = 0, max(_RANGES_ROOM, 2 * len(bounds))
        while done < len(counts):
            out = np.empty((room, self.width), dtype=np.int64)
            before = done
            done, written = tree_range_kernels.tree_ranges(
                self._pages.to_read(), self.key_words, self.value_words, flat, counts, done, out
            )
            parts.append(out[:written])
            if done == before:  # One range takes more.
                room *= 2
        none = np.empty((0, self.width), dtype=np.int64)
        entries = parts[0] if len(parts) == 1 else np.concatenate([none, *parts])
        return np.repeat(np.arange(len(counts)), counts), entries

    def entries(self) -> np.ndarray:
        """Keys and values in key order, int64 (entries, k + v)."""
        out = np.empty((len(self), self.width), dtype=np.int64)
        self._read(None, None, len(out), out)
        return out

    def destroy(self) -> None:
        """Release all its pages; the map must not be used again."""
        self._pages.destroy()

    def check_invariants(self) -> None:
        """Raise `InvariantViolation` unless it is a balanced tree of sorted pages. O(entries)."""
        head = self._pages.head
        nodes: list[int] = []
        self._check_subtree(int(head[ROOT]), 0, nodes)
        count = sum(int(self._node(link)[COUNT]) for link in nodes)
        _require(count == len(self), f"{count} entries in nodes, {len(self)} counted")
        link = int(head[EMPTIED])
        while link:
            _require(len(nodes) < int(head[FRESH]) - 1, "a node is in the tree and emptied")
            nodes.append(link)
            link = int(self._node(link)[PARENT])
        _require(sorted(nodes) == list(range(2, int(head[FRESH]) + 1)), "a node is lost")
        keys = self.entries()[:, : self.key_words]
        deciding = np.argmax(keys[1:] != keys[:-1], axis=1)[:, None]
        rises = np.take_along_axis(keys[1:] > keys[:-1], deciding, axis=1)
        _require(bool(rises.all()), "a key is not greater than the one before it")

    def _check_subtree(self, link: int, parent: int, nodes: list[int]) -> int:
        """The height of a subtree; appends its nodes."""
        if link == 0:
            return 0
        node = self._node(link)
        nodes.append(link)
        _require(int(node[PARENT]) == parent, f"node {link} does not know its parent {parent}")
        _require(0 < int(node[COUNT]) <= self._capacity, f"node {link} has {node[COUNT]} entries")
        left = self._check_subtree(int(node[LEFT]), link, nodes)
        right = self._check_subtree(int(node[RIGHT]), link, nodes)
        _require(abs(left - right) <= 1, f"below node {link} are {left} and {right} levels")
        _require(int(node[HEIGHT]) == 1 + max(left, right), f"node {link} has a wrong height")
        return int(node[HEIGHT])

    def _node(self, link: int) -> np.ndarray:
        return self._manager.resolve(self.page_sets[0], link - 1)

    def _read(
        self, low: np.ndarray | None, high: np.ndarray | None, limit: int, out: np.ndarray
    ) -> int:
        """How many entries lie in [low, high), at most `limit`; the first of them into `out`."""
        return tree_kernels.tree_range(
            self._pages.to_read(),
            self.key_words,
            self.value_words,
            self._bound(low),
            self._bound(high),
            limit,
            out,
        )

    def _bound(self, key: np.ndarray | None) -> np.ndarray:
        return _NO_WORDS if key is None else _rows(key.reshape(1, -1), self.key_words)[0]

    def _give_back_if_empty(self) -> None:
        if len(self) == 0 and self.page_count > 1:
            self._pages.clear()


def _rows(words: np.ndarray, width: int) -> np.ndarray:
    """The words as a kernel wants them: int64 (n, width)."""
    if words.ndim != 2 or words.shape[1] != width:
        raise LocalProtocolError(f"rows of shape {words.shape}, expected (n, {width})")
    return np.ascontiguousarray(words, dtype=np.int64)


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise InvariantViolation(otherwise)
