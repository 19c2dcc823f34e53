"""The compiled inner loops over pages. Each is pure, and deterministic in its arguments.

Conventions. `arena` is the page manager's memory, flat, int64. A page has `1 << shift` words. A
*logical address* counts words within one page set: `page sequence number << shift | word offset`;
a page table (`pages`, sequence number -> physical page) resolves it. Links in pages are logical
addresses plus one, so zero means "none" and pages may be moved or cloned. [SGuard §4, Table 1]

`marks` says per physical page what may be done with it. What is DIRTY has changed since the last
checkpoint and may be written. What is CLEAN is stored; the first write makes it dirty. What is
FROZEN belongs to a checkpoint that is being written; the first write clones it to a page from the
stack `free` (word 0 its height, then the pages). So kernels read through `resolve` and write only
through `touch`. [SGuard §4.4]

A kernel that runs out of pages changes nothing for the row at hand and returns that row's number;
its caller allocates and calls again from there. The plain function under each kernel is reachable
as `<kernel>.py_func`; the tests hold both to dict and list models.

Compiled code is cached by file, and what it has inlined with it: after an edit of `resolve`,
`place`, `touch` or a mark's functions, the caches of all `*_kernels.py` have to go; so have those
of aggregate_kernels.py after an edit of hash_kernels.py or string_kernels.py, and those of
tree_kernels.py after an edit of tree_search_kernels.py or tree_balance_kernels.py.
"""

# Signatures are numba's; to mypy, machine words and Python integers are different types.
# mypy: disable-error-code="no-any-return,return-value,assignment,arg-type"

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar, cast

import numba
import numpy as np

_F = TypeVar("_F", bound=Callable[..., object])

ENTRIES: Final = 0
"""Word of a header in a super page: how many records there are."""

FREE: Final = 0
DIRTY: Final = 1
CLEAN: Final = 2
FROZEN: Final = 3


def kernel(signature: str, *, allocates: bool = False) -> Callable[[_F], _F]:
    """Compile for exactly this signature, now, or load what an earlier process compiled.

    Arrays are the caller's for as long as a kernel runs, so numba need not count references to
    them: in a loop over rows that costs several times the work itself. Only a kernel that makes
    arrays or lists of its own (`allocates`) has to.
    """
    options = {"cache": True, "nogil": True, "_nrt": allocates}
    return cast("Callable[[_F], _F]", numba.njit(signature, **options))


def inlined(function: _F) -> _F:
    """Put the function's code into every kernel that calls it."""
    return cast("_F", numba.njit(inline="always")(function))


@inlined
def resolve(pages: np.ndarray, logical: int, shift: int) -> int:
    """Physical word address of a logical one, to be read."""
    return (pages[logical >> shift] << shift) | (logical & ((1 << shift) - 1))


@kernel("int64(int64[::1], uint8[::1], int64[::1], int64, int64[::1], int64)")
def _unfreeze(
    arena: np.ndarray,
    marks: np.ndarray,
    free: np.ndarray,
    shift: int,
    pages: np.ndarray,
    sequence: int,
) -> int:
    """Make a page that is not dirty writable; its physical number, -1 if there is no free page."""
    page = pages[sequence]
    if marks[page] == FROZEN:
        if free[0] == 0:
            return -1
        clone = free[free[0]]
        free[0] -= 1
        for j in range(1 << shift):
            arena[(clone << shift) + j] = arena[(page << shift) + j]
        pages[sequence] = clone
        page = clone
    marks[page] = DIRTY
    return page


@inlined
def touch(
    arena: np.ndarray,
    marks: np.ndarray,
    free: np.ndarray,
    shift: int,
    pages: np.ndarray,
    logical: int,
) -> int:
    """Physical word address of a logical one, to be written; -1 if a free page is missing.

    A page that a snapshot holds is cloned first, and the table then leads to the clone. Content
    and logical addresses stay, so touching what is not written after all does no harm.
    """
    page = pages[logical >> shift]
    if marks[page] != DIRTY:
        page = _unfreeze(arena, marks, free, shift, pages, logical >> shift)
        if page < 0:
            return -1
    return (page << shift) | (logical & ((1 << shift) - 1))


@inlined
def place(pages: np.ndarray, base: int, logical: int, shift: int) -> int:
    """As `resolve`; `base` is the set's `PageManager.base_of`."""
    if base >= 0:
        return base + logical
    return resolve(pages, logical, shift)


@inlined
def mark_of(marks: np.ndarray, shift: int, address: int) -> int:
    """The mark of the page of this physical word address."""
    return marks[np.uint64(address) >> np.uint64(shift)]  # Unsigned: no look for a negative index.


@kernel("boolean(int64[::1], uint8[::1], int64[::1], int64, int64[::1], int64, int64)")
def touch_range(
    arena: np.ndarray,
    marks: np.ndarray,
    free: np.ndarray,
    shift: int,
    pages: np.ndarray,
    first: int,
    stop: int,
) -> bool:
    """Touch the pages with sequence numbers [first, stop); false if a free page is missing."""
    for sequence in range(first, stop):
        if touch(arena, marks, free, shift, pages, sequence << shift) < 0:
            return False
    return True


@kernel("void(int64[::1], int64, int64[::1], int64[::1])")
def copy_pages(arena: np.ndarray, shift: int, pages: np.ndarray, out: np.ndarray) -> None:
    """Copy physical pages, one after another, to `out`."""
    words = 1 << shift
    for i in range(len(pages)):
        at = pages[i] << shift
        for j in range(words):
            out[i * words + j] = arena[at + j]


@kernel("void(int64[::1], int64, int64[::1], int64[::1], int64[:,::1])")
def read_words(
    arena: np.ndarray, shift: int, pages: np.ndarray, slots: np.ndarray, out: np.ndarray
) -> None:
    """The words from each logical address on into out[n, w]; they lie within a page."""
    for i in range(len(slots)):
        address = resolve(pages, slots[i], shift)
        for j in range(out.shape[1]):
            out[i, j] = arena[address + j]


@kernel(
    "int64(int64[::1], uint8[::1], int64[::1], int64, int64[::1], int64[::1], int64[:,::1], int64)"
)
def write_words(
    arena: np.ndarray,
    marks: np.ndarray,
    free: np.ndarray,
    shift: int,
    pages: np.ndarray,
    slots: np.ndarray,
    words: np.ndarray,
    start: int,
) -> int:
    """Store words[n, w] from each logical address on; the first row not done, n if all are."""
    for i in range(start, len(slots)):
        address = touch(arena, marks, free, shift, pages, slots[i])
        if address < 0:
            return i
        for j in range(words.shape[1]):
            arena[address + j] = words[i, j]
    return len(slots)


@kernel("void(int64[::1], int64, int64[::1], int64, int64, int64, int64[:,:])")
def read_records(
    arena: np.ndarray,
    shift: int,
    pages: np.ndarray,
    first: int,
    width: int,
    skip: int,
    out: np.ndarray,
) -> None:
    """Records `first..` of fixed `width`, without their `skip` leading words, into out[n, w].

    Page by page and word by word: whatever the layout of `out`, a page stays in the cache.
    """
    per_page = (1 << shift) // width
    n, w = out.shape
    page, at = first // per_page, first % per_page
    i = 0
    while i < n:
        begin = (pages[page] << shift) + at * width + skip
        count = min(n - i, per_page - at)
        for j in range(w):
            address = begin + j
            for k in range(i, i + count):
                out[k, j] = arena[address]
                address += width
        i += count
        page, at = page + 1, 0


@kernel("int64(int64[::1], uint8[::1], int64[::1], int64, int64[::1], int64, int64[:,::1], int64)")
def write_records(
    arena: np.ndarray,
    marks: np.ndarray,
    free: np.ndarray,
    shift: int,
    pages: np.ndarray,
    first: int,
    rows: np.ndarray,
    start: int,
) -> int:
    """Store rows[start.., w] as records `first + start..`; the first row not done."""
    n, w = rows.shape
    per_page = (1 << shift) // w
    for i in range(start, n):
        r = first + i
        logical = ((r // per_page) << shift) + (r % per_page) * w
        address = touch(arena, marks, free, shift, pages, logical)
        if address < 0:
            return i
        for j in range(w):
            arena[address + j] = rows[i, j]
    return n


@kernel("void(int64[::1], int64, int64[::1], int64, int64[::1], int64[:,::1])")
def gather_records(
    arena: np.ndarray,
    shift: int,
    pages: np.ndarray,
    width: int,
    numbers: np.ndarray,
    out: np.ndarray,
) -> None:
    """Records by number into out[n, width]; a negative number gives zeros."""
    per_page = (1 << shift) // width
    for i in range(len(numbers)):
        r = numbers[i]
        if r < 0:
            for j in range(width):
                out[i, j] = 0
            continue
        address = (pages[r // per_page] << shift) + (r % per_page) * width
        for j in range(width):
            out[i, j] = arena[address + j]
