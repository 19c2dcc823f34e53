"""The inner loops of the deque: pages in a ring. [SGuard §4.2, 4.3, Table 3]

Conventions as in `kernels.py`; super page and links as in `page_layout.py`, with four words of the
deque's own: the head page, the number of its first record, the tail page, and one more than the
number of its last record. Any other page is the link to the page before it, the link to the page
after it, and then records.

The pages form one ring. From the head on to the tail they hold records; those after the tail, up
to the head, are empty and wait for either end to reach them. So a page that becomes empty is not
written, the ends only move past it; and a new page is taken into the ring only where the ends meet.

Compiled code is cached by file, and the code of this file has `resolve` and `touch` inlined: after
an edit of these this file has to be compiled again.
"""

# Signatures are numba's; to mypy, machine words and Python integers are different types.
# mypy: disable-error-code="no-any-return,return-value,assignment,arg-type"

from __future__ import annotations

from typing import Final

import numpy as np

from holdfast.core.state.kernels import ENTRIES, kernel, resolve, touch
from holdfast.core.state.page_layout import FRESH, OWN, PAGES, Pages

HEAD: Final = OWN
FIRST: Final = OWN + 1
TAIL: Final = OWN + 2
STOP: Final = OWN + 3

PREVIOUS: Final = 0
NEXT: Final = 1
RING_WORDS: Final = 2


@kernel("int64(int64[::1], int64, int64)")
def _page(table: np.ndarray, shift: int, link: int) -> int:
    """Physical word address of a page; to be written only once it is touched."""
    return table[link - 1] << shift


@kernel(f"boolean({PAGES}, int64)")
def _touch(pages: Pages, link: int) -> bool:
    arena, marks, free, shift, table = pages
    return touch(arena, marks, free, shift, table, (link - 1) << shift) >= 0


@kernel(f"int64({PAGES}, boolean)")
def _next_page(pages: Pages, is_front: bool) -> int:
    """The page that an end moves to, in the ring and touched; 0 if a page is missing."""
    arena, _, _, shift, table = pages
    head = resolve(table, 0, shift)
    own = arena[head + (HEAD if is_front else TAIL)]
    outward = PREVIOUS if is_front else NEXT
    fresh = arena[head + FRESH] + 1
    beyond = fresh
    if own != 0:
        beyond = arena[_page(table, shift, own) + outward]
        if beyond != arena[head + (TAIL if is_front else HEAD)]:
            return beyond if _touch(pages, beyond) else 0
    if fresh > len(table) or not _touch(pages, fresh):
        return 0
    if own == 0:
        own = fresh
    if not (_touch(pages, own) and _touch(pages, beyond)):
        return 0
    arena[head + FRESH] = fresh
    page = _page(table, shift, fresh)
    arena[page + 1 - outward] = own
    arena[page + outward] = beyond
    arena[_page(table, shift, own) + outward] = fresh
    arena[_page(table, shift, beyond) + 1 - outward] = fresh
    return fresh


@kernel(f"int64({PAGES}, int64[:,::1], int64, boolean)")
def deque_push(pages: Pages, rows: np.ndarray, start: int, is_front: bool) -> int:
    """Add rows `start..` at an end, one after another; the first row not done, n if all are.

    What goes into one page goes together.
    """
    arena, marks, free, shift, table = pages
    n, width = rows.shape
    per_page = ((1 << shift) - RING_WORDS) // width
    done = start
    while done < n:
        head = touch(arena, marks, free, shift, table, 0)
        if head < 0:
            return done
        link = arena[head + (HEAD if is_front else TAIL)]
        at = arena[head + (FIRST if is_front else STOP)]
        if link == 0 or at == (0 if is_front else per_page):
            link = _next_page(pages, is_front)
            at = per_page if is_front else 0
            if link == 0:
                return done
        elif not _touch(pages, link):
            return done
        if arena[head + ENTRIES] == 0:
            arena[head + HEAD] = link
            arena[head + TAIL] = link
            arena[head + FIRST] = at
            arena[head + STOP] = at
        first = _page(table, shift, link) + RING_WORDS
        taken = min(n - done, at if is_front else per_page - at)
        for i in range(taken):
            address = first + (at - 1 - i if is_front else at + i) * width
            for j in range(width):
                arena[address + j] = rows[done + i, j]
        arena[head + (HEAD if is_front else TAIL)] = link
        arena[head + (FIRST if is_front else STOP)] = at - taken if is_front else at + taken
        arena[head + ENTRIES] += taken
        done += taken
    return n


@kernel(f"UniTuple(int64, 2)({PAGES}, boolean, int64[:,::1])")
def deque_read(pages: Pages, is_front: bool, out: np.ndarray) -> tuple[int, int]:
    """Copy records from an end inwards into out[n, w]; there are as many.

    Returns:
        The page and the number where that end is once these records are gone, if others remain.
    """
    arena, _, _, shift, table = pages
    n, width = out.shape
    per_page = ((1 << shift) - RING_WORDS) // width
    head = resolve(table, 0, shift)
    link = arena[head + (HEAD if is_front else TAIL)]
    at = arena[head + (FIRST if is_front else STOP)]
    done = np.int64(0)
    while done < n:
        page = _page(table, shift, link)
        taken = min(n - done, per_page - at if is_front else at)
        for i in range(taken):
            address = page + RING_WORDS + (at + i if is_front else at - 1 - i) * width
            for j in range(width):
                out[done + i, j] = arena[address + j]
        done += taken
        at = at + taken if is_front else at - taken
        if at == (per_page if is_front else 0):
            link = arena[page + (NEXT if is_front else PREVIOUS)]
            at = 0 if is_front else per_page
    return link, at
