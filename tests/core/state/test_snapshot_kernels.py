"""What is said of pages when a snapshot is taken, compiled and not."""

from __future__ import annotations

import numpy as np
import pytest

from holdfast.core.state import snapshot_kernels
from holdfast.core.state.kernels import CLEAN, DIRTY, FROZEN

PAGES = 64


@pytest.fixture(params=["compiled", "plain"])
def kernels(request):
    names = ("changed", "freeze")
    found = {name: getattr(snapshot_kernels, name) for name in names}
    if request.param == "plain":
        found = {name: kernel.py_func for name, kernel in found.items()}
    return found


def _memory(rng):
    marks = rng.choice(np.array([DIRTY, CLEAN, FROZEN], np.uint8), PAGES)
    behind = rng.choice(np.array([DIRTY, CLEAN], np.uint8), PAGES)
    holders = (marks == FROZEN).astype(np.uint8)
    pages = rng.permutation(PAGES)[: rng.integers(0, PAGES + 1)].astype(np.int64)
    return marks, behind, holders, pages


@pytest.mark.parametrize("seed", range(10))
def test_a_page_has_changed_by_its_mark_or_by_the_one_behind_it(kernels, seed):
    marks, behind, _, pages = _memory(np.random.default_rng(seed))
    is_changed = np.zeros(len(pages), dtype=np.bool_)
    kernels["changed"](marks, behind, pages, is_changed)
    seen = [behind[p] if marks[p] == FROZEN else marks[p] for p in pages]
    assert is_changed.tolist() == [mark == DIRTY for mark in seen]


@pytest.mark.parametrize("seed", range(10))
def test_only_what_is_needed_freezes_and_keeps_the_mark_behind_it(kernels, seed):
    rng = np.random.default_rng(seed)
    marks, behind, holders, pages = _memory(rng)
    is_needed = rng.random(len(pages)) < 0.5
    before = {int(p): (marks[p], behind[p], holders[p]) for p in range(PAGES)}
    kernels["freeze"](marks, holders, behind, pages, is_needed)
    frozen = set(pages[is_needed].tolist())
    for page, (mark, was_behind, held) in before.items():
        if page not in frozen:
            assert (marks[page], behind[page], holders[page]) == (mark, was_behind, held)
            continue
        kept = was_behind if mark == FROZEN else mark
        assert (marks[page], behind[page], holders[page]) == (FROZEN, kept, held + 1)
