"""What a snapshot holds stays as it was, whatever is written meanwhile. [SGuard §4.4]"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from holdfast.core.state import kernels
from holdfast.core.state.page_manager import PageManager, Snapshot, StateLimitExceeded
from holdfast.core.state.paged_list import PagedList
from holdfast.core.state.raw_page import RawPage
from holdfast.core.state.string_pages import StringPages
from holdfast.core.state.unordered_map import UnorderedMap

keys = st.integers(0, 200)


class Structures:
    """One of each, over an empty manager or a recovered one."""

    def __init__(self, manager: PageManager) -> None:
        self.map = UnorderedMap(manager, 1, 1)
        self.list = PagedList(manager)
        self.strings = StringPages(manager)
        self.raw = RawPage(manager)
        manager.recovered()

    def content(self) -> tuple[Any, ...]:
        interned = len(self.strings)
        return (
            self.map.entries().tolist(),
            self.list.scan().tolist(),
            interned,
            self.raw.read().tolist(),
        )


def stored_pages(manager: PageManager, snapshot: Snapshot) -> np.ndarray:
    """The words of the snapshot's pages now, int64 (pages, words)."""
    out = np.empty(len(snapshot.pages) * manager.page_words, dtype=np.int64)
    kernels.copy_pages(manager.arena, manager.shift, snapshot.pages, out)
    return out.reshape(-1, manager.page_words)


def reopened(manager: PageManager, snapshot: Snapshot, words: np.ndarray) -> PageManager:
    """A manager that has loaded these words as the pages of the snapshot."""
    other = PageManager(page_bytes=manager.page_bytes)
    order = np.arange(len(words), dtype=np.int64)[::-1].copy()
    physical = other.load(snapshot.page_sets, snapshot.counts, order, snapshot.next_set)
    other.arena.reshape(-1, other.page_words)[physical] = words
    return other


class SnapshotMachine(RuleBasedStateMachine):
    """Writes, snapshots and their ends in any order; the disk is an array of pages."""

    def __init__(self) -> None:
        super().__init__()
        self.manager = PageManager(page_bytes=512)
        self.parts = Structures(self.manager)
        self.snapshot: Snapshot | None = None
        self.content: tuple[Any, ...] = ()
        self.written: dict[int, np.ndarray] = {}  # position -> words copied out
        self.disk: dict[tuple[int, int], np.ndarray] = {}  # PageID -> words, of what is finished
        self.finished: tuple[Any, ...] | None = None

    @rule(batch=st.lists(st.tuples(keys, st.integers()), min_size=1, max_size=60))
    def put(self, batch: list[tuple[int, int]]) -> None:
        rows = np.array([(k, v % 2**62) for k, v in batch], dtype=np.int64)
        self.parts.map.write_values(
            self.parts.map.upsert_slots(rows[:, :1].copy()), rows[:, 1:].copy()
        )

    @rule(batch=st.lists(st.tuples(keys, keys, keys), min_size=1, max_size=40))
    def append(self, batch: list[tuple[int, int, int]]) -> None:
        self.parts.list.append(np.array(batch, dtype=np.int64))

    @rule(first=st.integers(0, 100), row=st.tuples(keys, keys, keys))
    def overwrite(self, first: int, row: tuple[int, int, int]) -> None:
        if first < len(self.parts.list):
            self.parts.list.overwrite(first, np.array([row], dtype=np.int64))

    @rule(kept=st.integers(0, 60))
    def shorten(self, kept: int) -> None:
        self.parts.list.replace_all(self.parts.list.scan()[:kept])

    @rule(texts=st.lists(st.text(max_size=90), min_size=1, max_size=20))
    def intern(self, texts: list[str]) -> None:
        self.parts.strings.intern(pa.array(texts, type=pa.string()))

    @rule(words=st.lists(keys, max_size=5))
    def note(self, words: list[int]) -> None:
        self.parts.raw.write(np.array(words, dtype=np.int64))

    @precondition(lambda self: self.snapshot is None)
    @rule(also=st.lists(st.booleans(), max_size=10))
    def checkpoint(self, also: list[bool]) -> None:
        self.content = self.parts.content()
        self.snapshot = self.manager.checkpoint(np.array(also, dtype=np.bool_))
        self.written = {}

    @precondition(lambda self: self.snapshot is not None)
    @rule(picks=st.lists(st.integers(0, 40), max_size=8))
    def copy_out(self, picks: list[int]) -> None:
        assert self.snapshot is not None
        changed = self.snapshot.changed
        positions = [int(changed[i]) for i in dict.fromkeys(picks) if i < len(changed)]
        fresh = np.array([p for p in positions if p not in self.written], dtype=np.int64)
        words = stored_pages(self.manager, self.snapshot)
        self.written |= {int(p): words[p].copy() for p in fresh}
        self.manager.thaw(self.snapshot, fresh)

    @precondition(lambda self: self.snapshot is not None)
    @rule()
    def finish(self) -> None:
        snapshot = self.snapshot
        assert snapshot is not None
        words = stored_pages(self.manager, snapshot)
        for position in snapshot.changed.tolist():
            self.written.setdefault(position, words[position])
        ids = [
            (page_set, sequence)
            for page_set, count in zip(snapshot.page_sets, snapshot.counts.tolist(), strict=True)
            for sequence in range(count)
        ]
        self.disk = {
            page_id: self.written[i] if i in self.written else self.disk[page_id]
            for i, page_id in enumerate(ids)
        }
        self.manager.finish(snapshot)
        other = reopened(self.manager, snapshot, np.array(list(self.disk.values())))
        assert Structures(other).content() == self.content
        other.check_invariants()
        self.snapshot = None

    @precondition(lambda self: self.snapshot is not None)
    @rule()
    def cancel(self) -> None:
        assert self.snapshot is not None
        self.manager.cancel(self.snapshot)
        self.snapshot = None

    @precondition(lambda self: self.snapshot is None)
    @rule()
    def unchanged_pages_are_not_written_twice(self) -> None:
        self.checkpoint([])
        self.finish()
        again = self.manager.checkpoint()
        assert len(again.changed) == 0
        self.manager.finish(again)

    @invariant()
    def whole(self) -> None:
        self.manager.check_invariants()
        self.parts.map.check_invariants()
        self.parts.list.check_invariants()


TestSnapshots = SnapshotMachine.TestCase
TestSnapshots.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_a_snapshot_gives_way_when_the_bound_leaves_no_room_for_clones() -> None:
    manager = PageManager(page_bytes=512, state_bytes_max=20 * 512)
    numbers = PagedList(manager, 64)
    numbers.append(np.zeros((18, 64), dtype=np.int64))
    snapshot = manager.checkpoint()
    numbers.overwrite(0, np.ones((18, 64), dtype=np.int64))
    assert snapshot.is_cancelled
    assert numbers.scan().tolist() == np.ones((18, 64)).tolist()
    manager.check_invariants()
    assert manager.statistics().pages_held <= 20
    with pytest.raises(StateLimitExceeded, match="stateBytesMax"):
        numbers.append(np.zeros((2, 64), dtype=np.int64))
    assert len(manager.checkpoint().changed) == 19  # What was given up is written the next time.


def test_a_recovered_structure_refuses_records_of_another_shape() -> None:
    manager = PageManager(page_bytes=512)
    UnorderedMap(manager, 2, 1)
    snapshot = manager.checkpoint()
    other = reopened(manager, snapshot, stored_pages(manager, snapshot))
    with pytest.raises(Exception, match="key and value words"):
        UnorderedMap(other, 1, 2)


@given(page=st.integers(0, 3), word=st.integers(0, 63), bit=st.integers(0, 63))
@settings(max_examples=200, deadline=None)
def test_every_flipped_bit_of_a_page_changes_its_checksum(page: int, word: int, bit: int) -> None:
    arena = np.arange(4 * 64, dtype=np.int64) * 7919
    pages = np.arange(4, dtype=np.int64)
    seeds = np.array([9, 8, 7, 6], dtype=np.uint64)
    before, after = np.empty(4, dtype=np.uint64), np.empty(4, dtype=np.uint64)
    kernels.page_checksums(arena, 6, pages, seeds, before)
    arena.view(np.uint64)[page * 64 + word] ^= np.uint64(1 << bit)
    kernels.page_checksums(arena, 6, pages, seeds, after)
    assert (before != after).tolist() == [i == page for i in range(4)]


def test_more_memory_than_there_is_may_be_allowed() -> None:
    manager = PageManager(page_bytes=8192, state_bytes_max=1 << 50)
    page_set = manager.create_page_set()
    for _ in range(9):
        manager.allocate(page_set, 64)
    manager.writable(page_set, 575)[:] = 7
    assert int(manager.resolve(page_set, 575).sum()) == 7 * 1024
    manager.check_invariants()
