"""The inner loop of joins: link a row to its key's chain, pair it with the other side's.

Conventions as in `kernels.py`.
"""

# Signatures are numba's; to mypy, machine words and Python integers are different types.
# mypy: disable-error-code="no-any-return,return-value,assignment,arg-type"

from __future__ import annotations

import numpy as np

from holdfast.core.state.kernels import kernel, resolve, touch


@kernel(
    "UniTuple(int64, 2)(int64[::1], uint8[::1], int64[::1], int64, int64[::1], int64[::1],"
    " int64[::1], int64, int64[::1], int64[::1], uint8[::1], int64[::1], int64, boolean,"
    " int64[:,::1])"
)
def join_pairs(
    arena: np.ndarray,
    marks: np.ndarray,
    free: np.ndarray,
    shift: int,
    key_pages: np.ndarray,
    left_pages: np.ndarray,
    right_pages: np.ndarray,
    left_width: int,
    right_widths: np.ndarray,
    slots: np.ndarray,
    sides: np.ndarray,
    numbers: np.ndarray,
    start: int,
    is_outer: bool,
    pairs: np.ndarray,
) -> tuple[int, int]:
    """Link each row to its key's chain, and pair it with the other side's rows linked before.

    A key's value words: per side (left first) the first and last record number plus one, and the
    count. Word 0 of a record links to the next of its key and side.

    Args:
        right_widths: One word: the width of a right record.
        key_pages: Page table of the keys' records.
        slots: Per row the logical address of its key's value words; -1: a null key, which never
            matches.
        sides: Per row 0 (left) or 1 (right).
        numbers: Per row its record number on its side.
        is_outer: A left row that matches nothing is paired with record -1.
        pairs: int64 (capacity, 3), filled with (row, left record, right record).

    Returns:
        The first row not done because `pairs` is full or a free page is missing, and how many
        pairs were written.
    """
    page_words = 1 << shift
    written = 0
    for i in range(start, len(slots)):
        side = np.int64(sides[i])
        number = numbers[i]
        if slots[i] < 0:
            if is_outer and side == 0:
                if written >= pairs.shape[0]:
                    return i, written
                pairs[written, 0] = i
                pairs[written, 1] = number
                pairs[written, 2] = -1
                written += 1
            continue
        slot = resolve(key_pages, slots[i], shift)
        other = slot + 3 * (1 - side)
        matches = arena[other + 2]
        if written + max(matches, 1) > pairs.shape[0]:
            return i, written
        own_width = right_widths[0] if side == 1 else left_width
        own_pages = right_pages if side == 1 else left_pages
        width = left_width if side == 1 else right_widths[0]
        pages = left_pages if side == 1 else right_pages
        last_at = np.int64(-1)
        if arena[slot + 3 * side] != 0:
            last = arena[slot + 3 * side + 1] - 1
            per_page = page_words // own_width
            logical = ((last // per_page) << shift) + (last % per_page) * own_width
            last_at = touch(arena, marks, free, shift, own_pages, logical)
            if last_at < 0:
                return i, written
        slot = touch(arena, marks, free, shift, key_pages, slots[i])
        if slot < 0:
            return i, written
        other = slot + 3 * (1 - side)
        per_page = page_words // width
        link = arena[other]
        while link != 0:
            r = link - 1
            pairs[written, 0] = i
            pairs[written, 1 + side] = number
            pairs[written, 2 - side] = r
            written += 1
            link = arena[(pages[r // per_page] << shift) + (r % per_page) * width]
        if is_outer and side == 0 and matches == 0:
            pairs[written, 0] = i
            pairs[written, 1] = number
            pairs[written, 2] = -1
            written += 1
        own = slot + 3 * side
        if last_at < 0:
            arena[own] = number + 1
        else:
            arena[last_at] = number + 1
        arena[own + 1] = number + 1
        arena[own + 2] += 1
    return len(slots), written
