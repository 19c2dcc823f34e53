"""What deques promise about their pages."""

from __future__ import annotations

import numpy as np
import pytest

from holdfast.core.errors import LocalProtocolError
from holdfast.core.state.deque_kernels import RING_WORDS
from holdfast.core.state.page_manager import PageManager, StateLimitExceeded
from holdfast.core.state.paged_deque import PagedDeque

PAGE_BYTES = 512
PER_PAGE = PAGE_BYTES // 8 - RING_WORDS
"""Records of one word in a page."""


def numbers(start: int, stop: int) -> np.ndarray:
    return np.arange(start, stop, dtype=np.int64).reshape(-1, 1)


def test_a_queue_goes_round_in_the_same_pages() -> None:
    queue = PagedDeque(PageManager(PAGE_BYTES), 1)
    queue.push_back(numbers(0, 5 * PER_PAGE))
    queue.push_back(numbers(5 * PER_PAGE, 5 * PER_PAGE + 10))
    for first in range(0, 300 * PER_PAGE, 10):
        assert queue.pop_front(10).tolist() == numbers(first, first + 10).tolist()
        queue.push_back(numbers(first + 5 * PER_PAGE + 10, first + 5 * PER_PAGE + 20))
    queue.check_invariants()
    assert queue.page_count == 1 + 7  # Five full pages and ten records may lie in seven.


def test_the_ends_of_a_deque_share_its_empty_pages() -> None:
    ring = PagedDeque(PageManager(PAGE_BYTES), 1)
    ring.push_back(numbers(0, 6 * PER_PAGE))
    before = ring.page_count
    ring.pop_back(5 * PER_PAGE)
    ring.push_front(numbers(100, 100 + 5 * PER_PAGE))
    ring.check_invariants()
    assert ring.page_count == before
    assert ring.pop_back(PER_PAGE + 2)[-2:].tolist() == [[100], [101]]


def test_a_deque_that_loses_its_last_record_keeps_only_its_super_page() -> None:
    manager = PageManager(PAGE_BYTES)
    ring = PagedDeque(manager, 1)
    ring.push_front(numbers(0, 1000))
    ring.pop_back(1000)
    ring.check_invariants()
    assert ring.page_count == manager.statistics().pages_used == 1
    assert ring.pop_front(5).shape == (0, 1)


def test_a_removal_writes_no_page_but_the_super_page() -> None:
    manager = PageManager(PAGE_BYTES)
    ring = PagedDeque(manager, 1)
    ring.push_back(numbers(0, 20 * PER_PAGE))
    manager.finish(manager.checkpoint())
    ring.pop_front(7 * PER_PAGE + 3)
    ring.pop_back(7 * PER_PAGE + 3)
    assert manager.checkpoint().changed.tolist() == [0]


def test_emptying_it_changes_nothing_that_a_checkpoint_holds() -> None:
    manager = PageManager(PAGE_BYTES)
    ring = PagedDeque(manager, 1)
    ring.push_back(numbers(0, 3 * PER_PAGE))
    snapshot = manager.checkpoint()
    words = manager.page_words
    held = manager.arena.reshape(-1, words)[snapshot.pages].copy()
    ring.pop_back(3 * PER_PAGE)
    ring.push_front(numbers(500, 900))
    assert np.array_equal(manager.arena.reshape(-1, words)[snapshot.pages], held)
    manager.check_invariants()


def test_at_the_bound_nothing_is_added() -> None:
    manager = PageManager(PAGE_BYTES, state_bytes_max=5 * PAGE_BYTES)
    ring = PagedDeque(manager, 1)
    ring.push_back(numbers(0, PER_PAGE + 5))
    for push in (ring.push_back, ring.push_front):
        with pytest.raises(StateLimitExceeded):
            push(numbers(0, 3 * PER_PAGE))
    assert ring.scan().tolist() == numbers(0, PER_PAGE + 5).tolist()
    ring.push_back(numbers(PER_PAGE + 5, 4 * PER_PAGE))
    ring.check_invariants()
    assert ring.scan().tolist() == numbers(0, 4 * PER_PAGE).tolist()


def test_records_of_another_width_are_refused() -> None:
    manager = PageManager(PAGE_BYTES)
    queue = PagedDeque(manager, 2)
    with pytest.raises(LocalProtocolError, match=r"rows of shape \(4, 1\)"):
        queue.push_back(numbers(0, 4))
    with pytest.raises(LocalProtocolError, match=r"shape \(2, -1\), expected \(3, -1\)"):
        PagedDeque(manager, 3, queue.page_sets)
    with pytest.raises(LocalProtocolError, match="does not fit"):
        PagedDeque(manager, PER_PAGE + 1)
