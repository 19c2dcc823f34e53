"""What a snapshot holds stays as it was, whatever is written meanwhile. [SGuard §4.4]"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from holdfast.core.checkpoint.page_checksum import page_checksums
from holdfast.core.errors import LocalProtocolError
from holdfast.core.state import aggregate_kernels, kernels
from holdfast.core.state.ordered_map import OrderedMap
from holdfast.core.state.page_manager import (
    PageManager,
    Snapshot,
    StateLimitExceeded,
)
from holdfast.core.state.page_memory import PageMemory
from holdfast.core.state.paged_list import PagedList
from holdfast.core.state.raw_page import RawPage
from holdfast.core.state.recycled_strings import RecycledStrings
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
        self.recycled = RecycledStrings(manager)
        self.tree = OrderedMap(manager, 1, 1)  # number -> reference of a recycled string
        manager.recovered()

    def content(self) -> tuple[Any, ...]:
        interned = len(self.strings)
        return (
            self.map.entries().tolist(),
            self.list.scan().tolist(),
            interned,
            self.raw.read().tolist(),
            self.texts(),
        )

    def texts(self) -> list[Any]:
        entries = self.tree.entries()
        references = np.ascontiguousarray(entries[:, 1])
        found = (
            self.recycled.pages.gather(references, pa.string()) if len(entries) else pa.array([])
        )
        return list(zip(entries[:, 0].tolist(), found.to_pylist(), strict=True))


def stored_pages(manager: PageManager, snapshot: Snapshot) -> np.ndarray:
    """The words of the snapshot's pages now, int64 (pages, words)."""
    out = np.empty(len(snapshot.pages) * manager.page_words, dtype=np.int64)
    kernels.copy_pages(manager.arena, manager.shift, snapshot.pages, out)
    return out.reshape(-1, manager.page_words)


def reopened(
    manager: PageManager, snapshot: Snapshot, words: np.ndarray, step: int = -1
) -> PageManager:
    """A manager that has loaded these words as the pages of the snapshot, in order or backwards."""
    other = PageManager(manager.page_bytes, 1 << 20, pooled_bytes=1024)
    order = np.arange(len(words), dtype=np.int64)[::step].copy()
    physical = other.load(snapshot.page_sets, snapshot.counts, order, snapshot.next_set)
    other.arena.reshape(-1, other.page_words)[physical] = words
    return other


class SnapshotMachine(RuleBasedStateMachine):
    """Writes, snapshots and their ends in any order; the disk is an array of pages."""

    pooled_bytes = 64 << 10

    def __init__(self) -> None:
        super().__init__()
        self.manager = PageManager(512, 1 << 20, pooled_bytes=self.pooled_bytes)
        self.parts = Structures(self.manager)
        self.snapshot: Snapshot | None = None
        self.content: tuple[Any, ...] = ()
        self.written: dict[int, np.ndarray] = {}  # position -> words copied out
        self.disk: dict[tuple[int, int], np.ndarray] = {}  # PageID -> words, of what is finished
        self.finished: tuple[Any, ...] | None = None
        self.held: list[tuple[Snapshot, tuple[Any, ...], np.ndarray]] = []  # By age.

    @precondition(lambda self: len(self.held) < 3)
    @rule()
    def hold(self) -> None:
        snapshot = self.manager.hold()
        words = stored_pages(self.manager, snapshot)
        self.held.append((snapshot, self.parts.content(), words))

    @precondition(lambda self: self.held)
    @rule(which=st.integers(0, 2))
    def let_go_of_a_held_one(self, which: int) -> None:
        self.manager.cancel(self.held.pop(which % len(self.held))[0])

    @precondition(lambda self: self.held)
    @rule(which=st.integers(0, 2))
    def go_back(self, which: int) -> None:
        which %= len(self.held)
        snapshot, content, _ = self.held[which]
        self.held = self.held[:which]
        self.manager.restore(snapshot)
        self.parts = Structures(self.manager)
        assert self.parts.content() == content
        if self.snapshot is not None and self.snapshot.is_cancelled:
            self.snapshot = None

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

    @rule(texts=st.lists(st.tuples(keys, st.text(max_size=90)), min_size=1, max_size=20))
    def keep(self, texts: list[tuple[int, str]]) -> None:
        column = pa.array([text for _, text in texts], type=pa.string())
        references = self.parts.recycled.pages.intern(column)
        numbers = np.array([[number] for number, _ in texts], dtype=np.int64)
        self.parts.tree.put(numbers, references.reshape(-1, 1))

    @rule(count=st.integers(0, 30))
    def let_go(self, count: int) -> None:
        self.parts.tree.pop_first(count)

    @rule()
    def renew(self) -> None:
        before = self.parts.texts()
        entries = self.parts.tree.entries()
        if len(entries):
            entries[:, 1:] = self.parts.recycled.renew(entries[:, 1:])
            self.parts.tree.put(entries[:, :1], entries[:, 1:])
        assert self.parts.texts() == before
        interned = len({text for _, text in before})
        assert not before or len(self.parts.recycled.pages) == interned

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
        for step in (-1, 1):
            other = reopened(self.manager, snapshot, np.array(list(self.disk.values())), step)
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
        for snapshot, _, words in self.held:
            assert np.array_equal(stored_pages(self.manager, snapshot), words)
        for page_set in self.parts.map.page_sets:
            base = self.manager.base_of(page_set)
            table = self.manager.pages_of(page_set)
            if base >= 0:
                assert (table * self.manager.page_words - base).tolist() == list(
                    range(0, len(table) * self.manager.page_words, self.manager.page_words)
                )
        self.parts.map.check_invariants()
        self.parts.list.check_invariants()
        self.parts.tree.check_invariants()


TestSnapshots = SnapshotMachine.TestCase
TestSnapshots.settings = settings(max_examples=60, stateful_step_count=40)


class RegionMachine(SnapshotMachine):
    """The same with every set of more than two pages in a region."""

    pooled_bytes = 1024


TestSnapshotsInRegions = RegionMachine.TestCase
TestSnapshotsInRegions.settings = settings(max_examples=60, stateful_step_count=40)


def count(groups: UnorderedMap, manager: PageManager, keys: np.ndarray) -> None:
    """One more per key, by the compiled aggregate."""
    none = np.zeros((1, 0), dtype=np.int64)
    done = 0
    while done < len(keys):
        manager.make_room()
        done = aggregate_kernels.aggregate(
            manager.arena,
            manager.arena.view(np.float64),
            manager.marks,
            manager.free,
            manager.shift,
            groups.bucket_pages,
            groups.record_pages,
            *groups.bases(),
            np.zeros(0, dtype=np.int64),
            keys,
            1,
            np.array([[aggregate_kernels.COUNT_ALL, 0, 0]], dtype=np.int64),
            none,
            none.view(np.float64),
            np.zeros((1, 0), dtype=np.uint8),
            done,
            np.zeros((0, 1), dtype=np.int64),
        )
        if done < len(keys):
            groups.grow()


@given(
    rounds=st.lists(
        st.tuples(st.integers(0, 400), st.sampled_from(["", "copy", "finish", "cancel"])),
        min_size=1,
        max_size=30,
    ),
    pooled_bytes=st.sampled_from([1024, 64 << 10]),
)
@settings(max_examples=60)
def test_an_aggregate_counts_right_while_pages_are_frozen_cloned_and_brought_home(
    rounds: list[tuple[int, str]], pooled_bytes: int
) -> None:
    manager = PageManager(512, 1 << 20, pooled_bytes=pooled_bytes)
    groups = UnorderedMap(manager, 1, 1)
    expected: dict[int, int] = {}
    snapshot: Snapshot | None = None
    frozen = np.zeros((0, 64), dtype=np.int64)
    random = np.random.default_rng(7)
    for groups_now, event in rounds:
        keys = random.integers(0, groups_now + 1, (300, 1))
        count(groups, manager, keys)
        for key in keys[:, 0].tolist():
            expected[key] = expected.get(key, 0) + 1
        if snapshot is not None:
            assert np.array_equal(stored_pages(manager, snapshot)[snapshot.changed], frozen)
        if snapshot is None and event == "copy":
            snapshot = manager.checkpoint()
            frozen = stored_pages(manager, snapshot)[snapshot.changed]
        elif snapshot is not None and event in ("finish", "cancel"):
            getattr(manager, event)(snapshot)
            snapshot = None
        manager.check_invariants()
        assert dict(groups.entries().tolist()) == expected


def test_clones_come_home_so_that_no_table_is_needed() -> None:
    manager = PageManager(512, 1 << 20, pooled_bytes=1024)
    groups = UnorderedMap(manager, 1, 1)
    keys = np.arange(4_000, dtype=np.int64).reshape(-1, 1)
    count(groups, manager, keys)
    assert min(groups.bases()) >= 0
    snapshot = manager.checkpoint()
    count(groups, manager, keys)
    manager.finish(snapshot)
    assert min(groups.bases()) == -1
    while min(groups.bases()) == -1:
        manager.make_room()
        manager.check_invariants()
    assert groups.entries()[:, 1].tolist() == [2] * 4_000
    assert manager.statistics().pages_held == manager.statistics().pages_used


@pytest.mark.parametrize("is_destroyed", [False, True])
def test_pages_of_a_region_that_a_snapshot_holds_are_not_used_again(is_destroyed: bool) -> None:
    manager = PageManager(512, 1 << 20, pooled_bytes=1024)
    first = manager.create_page_set()
    manager.allocate(first, 20)
    for sequence in range(20):
        manager.writable(first, sequence)[:] = 7
    snapshot = manager.checkpoint()
    if is_destroyed:
        manager.destroy_page_set(first)
        again = manager.create_page_set()
        manager.allocate(again, 2)  # In the pool for now.
        manager.allocate(again, 18)
    else:
        again = first
        manager.release(first, 10)
        manager.allocate(first, 10)
    for sequence in range(10, 20):
        assert not manager.resolve(again, sequence).any()
        manager.writable(again, sequence)[:] = 8
    assert (stored_pages(manager, snapshot) == 7).all()
    manager.check_invariants()
    manager.finish(snapshot)
    manager.make_room()
    manager.check_invariants()
    assert manager.base_of(again) >= 0
    assert (manager.resolve(again, 15) == 8).all()


def test_without_address_space_there_are_no_regions_and_the_pool_grows_by_copying(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(PageMemory, "_map", staticmethod(lambda size: None))
    manager = PageManager(page_bytes=4096, pooled_bytes=4096)
    groups = UnorderedMap(manager, 1, 1)
    keys = np.arange(40_000, dtype=np.int64).reshape(-1, 1)
    count(groups, manager, keys[:20_000])
    snapshot = manager.checkpoint()
    count(groups, manager, keys)
    manager.finish(snapshot)
    manager.check_invariants()
    assert groups.bases() == (-1, -1)
    assert groups.entries()[:, 1].tolist() == [2] * 20_000 + [1] * 20_000


@pytest.mark.parametrize(("step", "is_at_home"), [(1, True), (-1, False)])
def test_a_loaded_set_is_at_home_if_files_hold_it_in_order(step: int, is_at_home: bool) -> None:
    manager = PageManager(512, 1 << 20, pooled_bytes=1024)
    groups = UnorderedMap(manager, 1, 1)
    keys = np.arange(4_000, dtype=np.int64).reshape(-1, 1)
    count(groups, manager, keys)
    snapshot = manager.checkpoint()
    other = reopened(manager, snapshot, stored_pages(manager, snapshot), step)
    loaded = UnorderedMap(other, 1, 1)
    other.recovered()
    assert (min(loaded.bases()) >= 0) is is_at_home
    count(loaded, other, keys)
    assert loaded.entries()[:, 1].tolist() == [2] * 4_000
    other.check_invariants()


def test_regions_give_memory_back_when_together_they_have_more_than_the_bound() -> None:
    manager = PageManager(page_bytes=4096, state_bytes_max=1 << 20, pooled_bytes=4096)
    for number in range(1, 6):
        first, second = manager.create_page_set(), manager.create_page_set()
        manager.allocate(first, 2)
        manager.allocate(second, 2)
        manager.allocate(first, 200)
        for sequence in range(202):
            manager.writable(first, sequence)[:] = number
        manager.release(first, 200)
        manager.allocate(second, 200)
        assert not any(manager.resolve(second, sequence).any() for sequence in range(202))
        assert (manager.resolve(first, 1) == number).all()
        manager.destroy_page_set(first)
        manager.destroy_page_set(second)
        manager.check_invariants()


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


def test_the_checkpoint_gives_way_before_what_is_held() -> None:
    manager = PageManager(page_bytes=512, state_bytes_max=30 * 512)
    numbers = PagedList(manager, 64)
    numbers.append(np.zeros((9, 64), dtype=np.int64))
    held = manager.hold()
    numbers.overwrite(0, np.ones((9, 64), dtype=np.int64))
    checkpoint = manager.checkpoint()
    numbers.overwrite(0, np.full((9, 64), 2, dtype=np.int64))
    numbers.append(np.zeros((4, 64), dtype=np.int64))
    assert checkpoint.is_cancelled
    assert not held.is_cancelled
    manager.restore(held)
    again = PagedList(manager, 64)
    manager.recovered()
    assert again.scan().tolist() == [[0] * 64] * 9
    manager.check_invariants()


def test_only_what_is_held_can_be_gone_back_to() -> None:
    manager = PageManager(page_bytes=512)
    numbers = PagedList(manager, 64)
    numbers.append(np.zeros((3, 64), dtype=np.int64))
    first, second = manager.hold(), manager.hold()
    manager.restore(first)
    assert second.is_cancelled
    for snapshot in (second, manager.checkpoint()):
        with pytest.raises(LocalProtocolError, match="cannot be gone back to"):
            manager.restore(snapshot)


def test_what_moved_while_a_checkpoint_failed_is_in_the_next_one() -> None:
    manager = PageManager(512, 1 << 20, pooled_bytes=4 * 512)
    page_set = manager.create_page_set()
    manager.allocate(page_set, 4)
    snapshot = manager.checkpoint()
    manager.thaw(snapshot, snapshot.changed)
    manager.allocate(page_set, 4)  # Too large for the pool now: all pages move.
    manager.cancel(snapshot)
    assert len(manager.checkpoint().changed) == 8


def test_a_page_copied_out_of_a_failed_checkpoint_is_changed_after_going_back() -> None:
    manager = PageManager(page_bytes=512)
    page_set = manager.create_page_set()
    manager.allocate(page_set)
    checkpoint, held = manager.checkpoint(), manager.hold()
    manager.thaw(checkpoint, checkpoint.changed)
    manager.writable(page_set, 0)[:] = 1
    manager.cancel(checkpoint)
    manager.restore(held)
    assert len(manager.checkpoint().changed) == 1


def test_going_back_behind_a_stored_checkpoint_makes_everything_changed() -> None:
    manager = PageManager(page_bytes=512)
    page_set = manager.create_page_set()
    manager.allocate(page_set)
    manager.finish(manager.checkpoint())
    held = manager.hold()
    manager.writable(page_set, 0)[:] = 1
    manager.finish(manager.checkpoint())
    manager.restore(held)
    assert len(manager.checkpoint().changed) == 1


def test_a_recovered_structure_refuses_records_of_another_shape() -> None:
    manager = PageManager(page_bytes=512)
    UnorderedMap(manager, 2, 1)
    snapshot = manager.checkpoint()
    other = reopened(manager, snapshot, stored_pages(manager, snapshot))
    with pytest.raises(Exception, match="key and value words"):
        UnorderedMap(other, 1, 2)


def checksums_of(words: np.ndarray, page_words: int) -> list[int]:
    """Of the pages that these words are, numbered from 9 down."""
    pages = np.arange(len(words) // page_words, dtype=np.int64)
    out = np.empty(len(pages), dtype=np.uint64)
    seeds = np.uint64(9) - pages.astype(np.uint64)
    page_checksums(words, page_words.bit_length() - 1, pages, seeds, out)
    return [int(checksum) for checksum in out]


def plain_checksum(words: list[int], seed: int) -> int:
    """As docs/formats.md has it."""
    mask = (1 << 64) - 1

    def odd(number: int) -> int:
        z = (number + 1) * 0x9E3779B97F4A7C15 & mask
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & mask
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB & mask
        return (z ^ (z >> 31)) | 1

    checksum = seed
    for first in range(0, len(words), 512):
        total = 0
        for i, word in enumerate(words[first : first + 512]):
            m = word * odd(i) & mask
            total += (m ^ (m >> 32)) * odd(512 + i)
        checksum = (checksum ^ (total & mask)) * 0xBF58476D1CE4E5B9 & mask
        checksum ^= checksum >> 32
    return checksum


@pytest.mark.parametrize("page_words", [64, 512, 1024])
def test_the_checksum_is_the_documented_one(page_words: int) -> None:
    words = np.random.default_rng(3).integers(-(2**63), 2**63, 2 * page_words, dtype=np.int64)
    plain = [int(word) for word in words.view(np.uint64)]
    assert checksums_of(words, page_words) == [
        plain_checksum(plain[:page_words], 9),
        plain_checksum(plain[page_words:], 8),
    ]


@given(page=st.integers(0, 3), word=st.integers(0, 1023), bit=st.integers(0, 63))
@settings(max_examples=200)
def test_every_flipped_bit_of_a_page_changes_its_checksum(page: int, word: int, bit: int) -> None:
    arena = np.arange(4 * 1024, dtype=np.int64) * 7919
    before = checksums_of(arena, 1024)
    arena.view(np.uint64)[page * 1024 + word] ^= np.uint64(1 << bit)
    after = checksums_of(arena, 1024)
    assert [a != b for a, b in zip(after, before, strict=True)] == [i == page for i in range(4)]


@pytest.mark.parametrize("mask", [1 << 63, 1 << 63 | 1 << 31, 1, 1 << 32])
def test_the_same_damage_to_any_two_words_of_a_page_changes_its_checksum(mask: int) -> None:
    """High bits are what sums and products lose first."""
    one = np.arange(512, dtype=np.int64) * 7919
    (before,) = checksums_of(one, 512)
    damaged = np.tile(one, (512, 1)).view(np.uint64)
    damaged ^= np.eye(512, dtype=np.uint64) * np.uint64(mask)
    pages = np.arange(512, dtype=np.int64)
    seeds = np.full(512, 9, dtype=np.uint64)
    out = np.empty(512, dtype=np.uint64)
    for first in range(512):
        pairs = damaged.copy()
        pairs[:, first] ^= np.uint64(mask)
        pairs[first] = damaged[first]
        page_checksums(pairs.view(np.int64).reshape(-1), 9, pages, seeds, out)
        assert before not in out.tolist()


def test_pages_of_equal_content_have_different_checksums() -> None:
    assert len(set(checksums_of(np.zeros(8 * 64, dtype=np.int64), 64))) == 8


def test_more_memory_than_there_is_may_be_allowed() -> None:
    manager = PageManager(page_bytes=8192, state_bytes_max=1 << 50)
    page_set = manager.create_page_set()
    for _ in range(9):
        manager.allocate(page_set, 64)
    manager.writable(page_set, 575)[:] = 7
    assert int(manager.resolve(page_set, 575).sum()) == 7 * 1024
    manager.check_invariants()
