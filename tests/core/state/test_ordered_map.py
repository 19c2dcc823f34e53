"""What an ordered map promises beside being a map: order, its pages, what a checkpoint holds."""

from __future__ import annotations

import numpy as np
import pytest

from holdfast.core.errors import InvariantViolation, LocalProtocolError
from holdfast.core.state.ordered_map import OrderedMap
from holdfast.core.state.page_manager import PageManager, Snapshot, StateLimitExceeded
from holdfast.core.state.paged_deque import PagedDeque
from holdfast.core.state.tree_search_kernels import (
    COUNT,
    EMPTIED,
    HEIGHT,
    NODE_WORDS,
    ROOT,
    least_count,
)

PAGE_BYTES = 512
PER_PAGE = (PAGE_BYTES // 8 - NODE_WORDS) // 2
"""Entries of one key word and one value word in a page."""


def column(*keys: int) -> np.ndarray:
    return np.array(keys, dtype=np.int64).reshape(-1, 1)


def numbers(start: int, stop: int) -> np.ndarray:
    return np.arange(start, stop, dtype=np.int64).reshape(-1, 1)


def loaded(manager: PageManager, snapshot: Snapshot) -> PageManager:
    """Another manager with what the snapshot of this one holds, all of it changed."""
    other = PageManager(PAGE_BYTES)
    order = np.arange(len(snapshot.pages))
    pages = other.load(snapshot.page_sets, snapshot.counts, order, snapshot.next_set)
    words = manager.page_words
    other.arena.reshape(-1, words)[pages] = manager.arena.reshape(-1, words)[snapshot.pages]
    return other


def test_keys_are_ordered_as_signed_words_the_first_word_first() -> None:
    ordered = OrderedMap(PageManager(PAGE_BYTES), 2, 0)
    keys = [[0, 5], [-1, 9], [2**63 - 1, 0], [0, -5], [-(2**63), 1]]
    ordered.put(np.array(keys), np.zeros((5, 0), dtype=np.int64))
    assert ordered.entries().tolist() == sorted(keys)
    assert ordered.range(np.array([-1, 9]), np.array([0, 5])).tolist() == [[-1, 9], [0, -5]]


def test_the_last_of_equal_keys_in_a_batch_wins() -> None:
    ordered = OrderedMap(PageManager(PAGE_BYTES), 1, 1)
    ordered.put(column(3, 3, 3), column(1, 2, 7))
    assert ordered.entries().tolist() == [[3, 7]]


def test_an_absent_key_has_zeros_for_its_value() -> None:
    ordered = OrderedMap(PageManager(PAGE_BYTES), 1, 1)
    ordered.put(column(3), column(8))
    found, values = ordered.get(column(2, 3, 4))
    assert found.tolist() == [False, True, False]
    assert values.tolist() == [[0], [8], [0]]
    assert ordered.remove(column(3, 3)).tolist() == [True, False]
    assert ordered.first() is None


def test_entries_that_come_in_order_fill_their_pages() -> None:
    for keys in (numbers(0, 1000), numbers(0, 1000)[::-1]):
        manager = PageManager(PAGE_BYTES, state_bytes_max=PAGE_BYTES * (1 + -(-1000 // PER_PAGE)))
        OrderedMap(manager, 1, 1).put(keys, keys)


def test_a_removal_that_empties_a_node_gives_its_page_back_for_reuse() -> None:
    ordered = OrderedMap(PageManager(PAGE_BYTES), 1, 1)
    ordered.put(numbers(0, 10 * PER_PAGE), numbers(0, 10 * PER_PAGE))
    before = ordered.page_count
    for step in range(10, 500):
        ordered.remove(numbers((step - 10) * PER_PAGE, (step - 9) * PER_PAGE))
        more = numbers(step * PER_PAGE, (step + 1) * PER_PAGE)
        ordered.put(more, more)
    ordered.check_invariants()
    assert ordered.page_count == before


def test_a_leaf_that_fits_into_the_half_leaf_above_it_is_merged() -> None:
    for doomed in (numbers(1, PER_PAGE), numbers(PER_PAGE, 2 * PER_PAGE - 1)):
        manager = PageManager(PAGE_BYTES)
        ordered = OrderedMap(manager, 1, 1)
        ordered.put(numbers(0, 2 * PER_PAGE), numbers(0, 2 * PER_PAGE))
        ordered.remove(numbers(PER_PAGE // 2, PER_PAGE * 3 // 2))
        assert manager.resolve(ordered.page_sets[0], 0)[EMPTIED] == 0
        ordered.remove(doomed)
        assert manager.resolve(ordered.page_sets[0], 0)[EMPTIED] != 0
        ordered.check_invariants()


def test_a_leaf_that_a_rotation_makes_an_inner_node_is_filled() -> None:
    manager = PageManager(PAGE_BYTES)
    ordered = OrderedMap(manager, 1, 1)
    for keys in (numbers(1000, 1000 + PER_PAGE), numbers(0, PER_PAGE), column(500)):
        ordered.put(keys, keys)
    root = int(manager.resolve(ordered.page_sets[0], 0)[ROOT])
    node = manager.resolve(ordered.page_sets[0], root - 1)
    assert node[HEIGHT] == 2
    assert node[COUNT] == least_count(PER_PAGE)
    assert node[NODE_WORDS + 2 * (node[COUNT] - 1)] == 500
    ordered.check_invariants()


def test_a_window_that_slides_over_keys_takes_no_more_pages() -> None:
    chance = np.random.default_rng(5)
    ordered = OrderedMap(PageManager(PAGE_BYTES), 2, 1)
    most = 0
    for step in range(200):
        keys = chance.integers(100 * step, 100 * step + 1000, (100, 2))
        ordered.put(keys, keys[:, :1])
        ordered.pop_first(len(ordered) - 1000)
        if step == 100:
            most = ordered.page_count
    ordered.check_invariants()
    assert ordered.page_count <= 1.1 * most


def test_removals_leave_nodes_at_least_half_full_on_average() -> None:
    chance = np.random.default_rng(7)
    manager = PageManager(PAGE_BYTES)
    ordered = OrderedMap(manager, 1, 1)
    keys = chance.permutation(100_000)[:20_000].reshape(-1, 1)
    ordered.put(keys, keys)
    ordered.remove(chance.permutation(keys)[:19_000])
    ordered.check_invariants()
    pages_before = ordered.page_count
    least_in_use = len(ordered) / PER_PAGE
    free_pages = pages_before - 1 - 2 * least_in_use
    more = numbers(200_000, 200_000 + int(free_pages) * PER_PAGE)
    ordered.put(more, more)
    assert ordered.page_count == pages_before


@pytest.mark.parametrize("how", ["remove", "pop_first"])
def test_a_map_that_loses_its_last_entry_keeps_only_its_super_page(how: str) -> None:
    manager = PageManager(PAGE_BYTES)
    ordered = OrderedMap(manager, 1, 1)
    ordered.put(numbers(0, 2000), numbers(0, 2000))
    if how == "remove":
        ordered.remove(numbers(0, 2000)[::-1])
    else:
        ordered.pop_first(5000)
    assert ordered.page_count == manager.statistics().pages_used == 1
    ordered.put(numbers(5, 10), numbers(5, 10))
    ordered.check_invariants()
    assert ordered.entries()[:, 0].tolist() == [5, 6, 7, 8, 9]


def test_at_the_bound_earlier_rows_are_stored_and_the_tree_is_sound() -> None:
    manager = PageManager(PAGE_BYTES, state_bytes_max=6 * PAGE_BYTES)
    ordered = OrderedMap(manager, 1, 1)
    with pytest.raises(StateLimitExceeded):
        ordered.put(numbers(0, 1000), numbers(0, 1000))
    ordered.check_invariants()
    assert ordered.entries()[:, 0].tolist() == list(range(5 * PER_PAGE))
    ordered.pop_first(PER_PAGE)
    ordered.put(column(1000), column(1000))
    assert len(ordered) == 4 * PER_PAGE + 1


def test_where_no_room_is_left_for_clones_the_checkpoint_ends_and_the_map_goes_on() -> None:
    manager = PageManager(PAGE_BYTES, state_bytes_max=24 * PAGE_BYTES)
    ordered = OrderedMap(manager, 1, 1)
    ordered.put(numbers(0, 22 * PER_PAGE), numbers(0, 22 * PER_PAGE))
    snapshot = manager.checkpoint()
    ordered.put(numbers(0, 22 * PER_PAGE), numbers(1, 22 * PER_PAGE + 1))
    assert snapshot.is_cancelled
    manager.check_invariants()
    assert ordered.entries()[:, 1].tolist() == list(range(1, 22 * PER_PAGE + 1))


def test_a_map_is_found_again_by_creating_it() -> None:
    manager = PageManager(PAGE_BYTES)
    ordered = OrderedMap(manager, 1, 1)
    ordered.put(numbers(0, 500), numbers(500, 1000))
    snapshot = manager.checkpoint()
    ordered.remove(numbers(0, 400))
    again = OrderedMap(loaded(manager, snapshot), 1, 1)
    again.check_invariants()
    assert again.page_sets == ordered.page_sets
    assert again.entries().tolist() == [[key, 500 + key] for key in range(500)]


def test_another_shape_on_recovery_is_refused() -> None:
    manager = PageManager(PAGE_BYTES)
    page_sets = OrderedMap(manager, 2, 1).page_sets
    with pytest.raises(LocalProtocolError, match=r"shape \(2, 1\), expected \(1, 2\)"):
        OrderedMap(manager, 1, 2, page_sets)
    with pytest.raises(LocalProtocolError, match=r"shape \(2, 1\), expected \(2, -1\)"):
        PagedDeque(manager, 2, page_sets)


def test_rows_of_another_width_are_refused() -> None:
    ordered = OrderedMap(PageManager(PAGE_BYTES), 2, 1)
    with pytest.raises(LocalProtocolError, match=r"shape \(1, 1\), expected \(n, 2\)"):
        ordered.put(column(1), column(1))
    with pytest.raises(LocalProtocolError, match="1 keys for 2 values"):
        ordered.put(np.zeros((1, 2), dtype=np.int64), column(1, 2))
    with pytest.raises(LocalProtocolError, match="does not fit"):
        OrderedMap(PageManager(PAGE_BYTES), 1, PAGE_BYTES // 8 - NODE_WORDS)
    with pytest.raises(LocalProtocolError, match="does not fit"):
        OrderedMap(PageManager(PAGE_BYTES), 0, 1)


def test_damaged_pages_are_noticed() -> None:
    for word in range(NODE_WORDS + 1):
        manager = PageManager(PAGE_BYTES)
        ordered = OrderedMap(manager, 1, 1)
        ordered.put(numbers(0, 3 * PER_PAGE), numbers(0, 3 * PER_PAGE))
        manager.writable(ordered.page_sets[0], 2)[word] += 10**6 if word == NODE_WORDS else 1
        with pytest.raises((InvariantViolation, LocalProtocolError)):
            ordered.check_invariants()


def test_a_map_whose_entries_are_as_wide_as_a_node_is_still_a_map() -> None:
    values = PAGE_BYTES // 8 - NODE_WORDS - 1
    ordered = OrderedMap(PageManager(PAGE_BYTES), 1, values)
    keys = np.random.default_rng(3).permutation(200).reshape(-1, 1)
    ordered.put(keys, np.repeat(keys, values, axis=1))
    ordered.remove(keys[::3])
    ordered.check_invariants()
    kept = sorted(set(range(200)) - set(keys[::3, 0].tolist()))
    assert ordered.entries().tolist() == [[key] * (values + 1) for key in kept]


def test_destroying_it_releases_every_page() -> None:
    manager = PageManager(PAGE_BYTES)
    ordered = OrderedMap(manager, 1, 1)
    ordered.put(numbers(0, 500), numbers(0, 500))
    ordered.destroy()
    assert manager.statistics().pages_used == 0
