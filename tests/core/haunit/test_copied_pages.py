"""Differences of pages: what is sent is what differs, and the copy at the other end is equal."""

from __future__ import annotations

import numpy as np
import pytest

from holdfast.core.haunit.copied_pages import CopiedPages, PageRun

PAGE_BYTES = 512
WORDS = PAGE_BYTES // 8


def copies() -> tuple[CopiedPages, CopiedPages]:
    return CopiedPages(PAGE_BYTES, 1 << 20), CopiedPages(PAGE_BYTES, 1 << 20)


def read(copied: CopiedPages, page_set: int, sequence: int) -> np.ndarray:
    none = np.zeros((1, WORDS), dtype=np.bool_)
    ids = np.array([[page_set, sequence]], dtype=np.int64)
    copied.apply(PageRun(0, ids, none, np.zeros(0, dtype=np.int64)))
    rows, places = copied._places(ids)
    return rows[places][0].copy()


def test_only_words_that_changed_are_sent_and_the_copy_is_equal() -> None:
    rng = np.random.default_rng(7)
    here, there = copies()
    contents: dict[tuple[int, int], np.ndarray] = {}
    counts: dict[int, int] = {}
    next_set = 1
    for sequence in range(1, 60):
        wanted = dict(counts)
        if rng.random() < 0.3:
            wanted[next_set] = int(rng.integers(1, 4))
            next_set += 1
        for name in list(wanted):
            if rng.random() < 0.2:
                wanted[name] = int(rng.integers(0, 5))
        gone = [name for name in wanted if name in counts and rng.random() < 0.05]
        for name in gone:
            del wanted[name]
        changes = {s: n for s, n in wanted.items() if counts.get(s) != n}
        counts = wanted
        for copied in (here, there):
            copied.resize(changes, gone, next_set)
        pages = [(s, i) for s, n in counts.items() for i in range(n)]
        kept = {p: contents.get(p, np.zeros(WORDS, dtype=np.int64)) for p in pages}
        contents = kept
        chosen = [p for p in pages if rng.random() < 0.5]
        if not chosen:
            continue
        written = 0
        for page in chosen:
            contents[page] = contents[page].copy()
            for word in rng.integers(0, WORDS, int(rng.integers(0, 4))).tolist():
                value = int(rng.integers(1, 1 << 62))
                written += contents[page][word] != value
                contents[page][word] = value
        words = np.stack([contents[page] for page in chosen])
        run = here.difference(sequence, np.array(chosen, dtype=np.int64), words)
        assert len(run.values) <= written
        there.apply(run)
        assert all(np.array_equal(read(there, *page), contents[page]) for page in pages)


def test_a_page_of_no_set_is_refused() -> None:
    _, there = copies()
    there.resize({1: 2}, (), 2)
    for page in ([2, 0], [1, 2]):
        ids = np.array([page], dtype=np.int64)
        run = PageRun(1, ids, np.ones((1, WORDS), dtype=np.bool_), np.ones(WORDS, dtype=np.int64))
        with pytest.raises(LookupError):
            there.apply(run)


def test_a_page_of_another_size_is_refused() -> None:
    _, there = copies()
    there.resize({1: 1}, (), 2)
    ids = np.array([[1, 0]], dtype=np.int64)
    run = PageRun(1, ids, np.ones((1, 8), dtype=np.bool_), np.ones(8, dtype=np.int64))
    with pytest.raises((LookupError, ValueError)):
        there.apply(run)
