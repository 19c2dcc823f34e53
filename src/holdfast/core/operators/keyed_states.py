"""What a user's class keeps per key: named states, and timers; all in pages. [SGuard §4]

A state is a string of bytes, which only the class's side understands. Of the keys that a pass
meets everything is read at once, and what has changed is written at once when it ends: each key of
the pass has a `Scope` meanwhile. So a state costs by its own size whenever it changes.

A timer is a time in milliseconds and a *kind*: of a row, of another timer, or of states that lose
their value then.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

import numpy as np
import pyarrow as pa

from holdfast.core.errors import InvariantViolation
from holdfast.core.model.ids import BEGINNING_US, END_US
from holdfast.core.model.schema import RecordPacking
from holdfast.core.model.stable_hash import stable_hash
from holdfast.core.operators.base import Owns
from holdfast.core.state.ordered_map import OrderedMap
from holdfast.core.state.page_manager import PageManager
from holdfast.core.state.recycled_strings import RecycledStrings
from holdfast.core.state.string_pages import moved
from holdfast.core.state.total_pages import total_pages
from holdfast.core.state.unordered_map import distinct_keys

OF_ROW: Final = 0
OF_TIMER: Final = 1
OF_TTL: Final = 2
Timer = tuple[int, int]
"""Its time in milliseconds since the epoch, and its kind."""


class Scope(Protocol):
    """The states of one key while a pass works on them."""

    timers: set[Timer]

    def changes(self) -> list[tuple[int, bytes | None]]:
        """The numbers of the states that have changed, and what they are now; None: nothing."""
        ...


class KeyedStates:
    """States and timers of all keys.

    In pages: a T-tree by (key, number of the state), with a reference to its bytes; of timers one
    by (time, kind, key), and one by (key, time, kind); and the strings.
    """

    def __init__(
        self, manager: PageManager, keys: Sequence[pa.DataType], states: int, *, has_timers: bool
    ) -> None:
        """Create it empty, or find it as a checkpoint holds it.

        Args:
            manager: Of the pages.
            keys: Types of the key.
            states: How many states each key may have.
            has_timers: Whether there may be timers.

        Raises:
            LocalProtocolError: A key's type cannot be stored.
        """
        self._manager = manager
        self._packing = RecordPacking(keys, is_key=True)
        self._types = list(keys)
        self._count = states
        self.key_words = self._packing.width
        self._kept = OrderedMap(manager, self.key_words + 1, 1)
        self._strings = RecycledStrings(manager)
        self._timers = OrderedMap(manager, 2 + self.key_words, 0) if has_timers else None
        self._timers_of = OrderedMap(manager, self.key_words + 2, 0) if has_timers else None

    def __len__(self) -> int:
        """How many states of keys there are."""
        return len(self._kept)

    @property
    def page_count(self) -> int:
        """How many pages it takes."""
        return total_pages(self._kept, self._strings, self._timers, self._timers_of)

    def pack(self, columns: Sequence[pa.Array]) -> np.ndarray:
        """Keys of rows, int64 (n, key words)."""
        return self._packing.pack(columns, self._strings.pages)

    def distinct(self, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """As `distinct_keys`."""
        return distinct_keys(self._manager, keys)

    def columns(self, keys: np.ndarray) -> list[pa.Array]:
        """The columns of keys."""
        return self._packing.unpack(keys, self._strings.pages)

    def ranks(self, keys: np.ndarray) -> np.ndarray:
        """A number for each key that no process gives another one, uint64 (n,)."""
        return stable_hash(self.columns(keys)) if len(keys) else np.empty(0, dtype=np.uint64)

    def load(self, keys: np.ndarray) -> tuple[list[list[bytes | None]], list[set[Timer]]]:
        """The states of keys, each key once, and their timers."""
        names = np.repeat(keys, self._count, axis=0)
        numbers = np.tile(np.arange(self._count, dtype=np.int64), len(keys))
        _, references = self._kept.get(np.concatenate([names, numbers[:, None]], axis=1))
        blobs = self._strings.pages.gather(references[:, 0].copy(), pa.large_binary()).to_pylist()
        states = [blobs[at * self._count : (at + 1) * self._count] for at in range(len(keys))]
        timers: list[set[Timer]] = [set() for _ in keys]
        if self._timers_of is not None and len(self._timers_of) and len(keys):
            bounds = np.empty((2, len(keys), self.key_words + 2), dtype=np.int64)
            bounds[:, :, : self.key_words] = keys
            bounds[0, :, self.key_words :] = BEGINNING_US
            bounds[1, :, self.key_words :] = END_US
            of, entries = self._timers_of.ranges(bounds[0], bounds[1])
            ends = entries[:, self.key_words :].tolist()
            for number, (time_ms, kind) in zip(of.tolist(), ends, strict=True):
                timers[number].add((time_ms, kind))
        return states, timers

    def expired(self, before_ms: int) -> np.ndarray:
        """Entries (time, kind, key) of timers before a time, int64 (n, 2 + key words)."""
        if self._timers is None:
            return np.empty((0, 2 + self.key_words), dtype=np.int64)
        bound = np.full(2 + self.key_words, BEGINNING_US, dtype=np.int64)
        bound[0] = before_ms
        return self._timers.range(None, bound)

    def first_ms(self) -> int | None:
        """The time of the first timer; None: there is none."""
        first = None if self._timers is None else self._timers.first()
        return None if first is None else int(first[0])

    def store(self, keys: np.ndarray, scopes: Sequence[Scope], before: list[set[Timer]]) -> None:
        """Write what has changed of keys, each key once.

        Args:
            keys: int64 (n, key words).
            scopes: Of these.
            before: The timers that each key had.

        Raises:
            StateLimitExceeded: The pages are used up.
        """
        changed = [
            (at, number, blob)
            for at, scope in enumerate(scopes)
            for number, blob in scope.changes()
        ]
        if changed:
            of = np.array([(at, number) for at, number, _ in changed], dtype=np.int64)
            names = np.concatenate([keys[of[:, 0]], of[:, 1:]], axis=1)
            is_gone = np.array([blob is None for _, _, blob in changed])
            blobs = pa.array([b for _, _, b in changed if b is not None], pa.large_binary())
            references = self._strings.pages.intern(blobs)
            self._kept.put(names[~is_gone], references[:, None])
            self._kept.remove(names[is_gone])
        self._store_timers(keys, scopes, before)
        if self._strings.is_due:
            self._renew()

    def _store_timers(
        self, keys: np.ndarray, scopes: Sequence[Scope], before: list[set[Timer]]
    ) -> None:
        added: list[tuple[int, int, int]] = []
        gone: list[tuple[int, int, int]] = []
        for at, scope in enumerate(scopes):
            if scope.timers != before[at]:
                added += [(at, *each) for each in sorted(scope.timers - before[at])]
                gone += [(at, *each) for each in sorted(before[at] - scope.timers)]
        if self._timers is None or self._timers_of is None:
            return
        none = np.empty((len(added), 0), dtype=np.int64)
        for changes, is_added in ((gone, False), (added, True)):
            if changes:
                of = np.array(changes, dtype=np.int64)
                names, times = keys[of[:, 0]], of[:, 1:]
                by_time = np.concatenate([times, names], axis=1)
                by_key = np.concatenate([names, times], axis=1)
                if is_added:
                    self._timers.put(by_time, none)
                    self._timers_of.put(by_key, none)
                else:
                    self._timers.remove(by_time)
                    self._timers_of.remove(by_key)

    def adopt(self, other: KeyedStates, owns: Owns) -> None:
        """Take over what belongs to this instance of what another one holds."""
        kept, words = other._kept.entries(), self.key_words
        mine = self._owned(kept[:, :words], other, owns)
        kept = kept[mine]
        at = [*self._packing.text_words, words + 1]
        kept[:, at] = moved(kept[:, at], other._strings.pages, self._strings.pages)
        self._kept.put(kept[:, : words + 1], kept[:, words + 1 :])
        if self._timers is None or self._timers_of is None or other._timers_of is None:
            return
        timers = other._timers_of.entries()
        timers = timers[self._owned(timers[:, :words], other, owns)]
        at = self._packing.text_words
        timers[:, at] = moved(timers[:, at], other._strings.pages, self._strings.pages)
        self._put_timers(timers)

    def rows(self, names: Sequence[str]) -> list[tuple[list[pa.Array], str, bytes]]:
        """Each state: its key's columns of one row, its name, its bytes."""
        kept = self._kept.entries()
        keys = np.ascontiguousarray(kept[:, : self.key_words])
        columns = self.columns(keys)
        blobs = self._strings.pages.gather(kept[:, -1].copy(), pa.large_binary()).to_pylist()
        numbers = kept[:, self.key_words].tolist()
        return [
            ([column.slice(at, 1) for column in columns], names[number], blob)
            for at, (number, blob) in enumerate(zip(numbers, blobs, strict=True))
        ]

    def check_invariants(self) -> None:
        """Raise `InvariantViolation` if a structure makes no sense, or two disagree."""
        self._kept.check_invariants()
        if self._timers is None or self._timers_of is None:
            return
        self._timers.check_invariants()
        self._timers_of.check_invariants()
        by_key, words = self._timers_of.entries(), self.key_words
        by_time = np.concatenate([by_key[:, words:], by_key[:, :words]], axis=1)
        if not np.array_equal(by_time[np.lexsort(by_time.T[::-1])], self._timers.entries()):
            raise InvariantViolation("timers by time are not the timers of keys")

    def _owned(self, keys: np.ndarray, other: KeyedStates, owns: Owns) -> np.ndarray:
        if not len(keys):
            return np.zeros(0, dtype=np.bool_)
        return owns(other.columns(np.ascontiguousarray(keys)))

    def _put_timers(self, by_key: np.ndarray) -> None:
        assert self._timers is not None
        assert self._timers_of is not None
        words, none = self.key_words, np.empty((len(by_key), 0), dtype=np.int64)
        self._timers_of.put(by_key, none)
        self._timers.put(np.concatenate([by_key[:, words:], by_key[:, :words]], axis=1), none)

    def _renew(self) -> None:
        """Keep the strings in use alone."""
        kept, words = self._kept.entries(), self.key_words
        at = [*self._packing.text_words, words + 1]
        timers = None if self._timers_of is None else self._timers_of.entries()
        texts = self._packing.text_words
        used = [kept[:, at].reshape(-1)]
        if timers is not None:
            used.append(timers[:, texts].reshape(-1))
        renewed = self._strings.renew(np.concatenate(used))
        kept[:, at] = renewed[: used[0].size].reshape(len(kept), len(at))
        self._kept.pop_first(len(self._kept))
        self._kept.put(kept[:, : words + 1], kept[:, words + 1 :])
        if timers is not None and self._timers is not None and self._timers_of is not None:
            timers[:, texts] = renewed[used[0].size :].reshape(len(timers), len(texts))
            self._timers.pop_first(len(self._timers))
            self._timers_of.pop_first(len(self._timers_of))
            self._put_timers(timers)
