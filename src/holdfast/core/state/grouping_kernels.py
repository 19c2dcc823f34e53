"""The inner loop of partial aggregates: number the groups of rows that share nothing afterwards.

No pages: what it finds does not outlive the pass. Conventions as in `kernels.py`.
"""

# Signatures are numba's; to mypy, machine words and Python integers are different types.
# mypy: disable-error-code="no-any-return,return-value,assignment,arg-type"

from __future__ import annotations

from typing import Final

import numpy as np

from holdfast.core.state.hash_kernels import hash_words
from holdfast.core.state.kernels import inlined, kernel

SIZE: Final = 0
_PANE: Final = 1
GROUP_WORDS: Final = 2
"""Words of a group before its key: how many rows it has, and the number of its pane."""


@inlined
def _number_rows(
    keys: np.ndarray,
    k: int,
    time_us: np.ndarray,
    pane_us: int,
    first: int,
    stop: int,
    count: int,
    table: np.ndarray,
    group_of: np.ndarray,
    firsts: np.ndarray,
    groups: np.ndarray,
) -> int:
    """See `number_groups`."""
    oldest = count  # Numbers below it in the table are of earlier rows: free places.
    mask = np.uint64(table.shape[0] - 1)
    width = GROUP_WORDS + k
    is_wanted = group_of.shape[0] > 0
    begin_us = np.int64(0)
    end_us = np.int64(0)
    pane = np.int64(0)
    for i in range(first, stop):
        at_us = time_us[i]
        if not begin_us <= at_us < end_us:  # Division is dear, and times are close to each other.
            pane = at_us // pane_us
            begin_us = pane * pane_us
            end_us = begin_us + pane_us
        slot = (hash_words(keys, i * k, k) + np.uint64(pane)) & mask
        while True:
            group = np.int64(table[slot])
            if group < oldest:
                group = count
                count += 1
                at = group * width
                table[slot] = group
                firsts[group] = i
                groups[at + SIZE] = 1
                groups[at + _PANE] = pane
                for j in range(k):
                    groups[at + GROUP_WORDS + j] = keys[i * k + j]
                break
            at = group * width
            same = groups[at + _PANE] == pane
            for j in range(k):
                same &= groups[at + GROUP_WORDS + j] == keys[i * k + j]
            if same:
                groups[at + SIZE] += 1
                break
            slot = (slot + np.uint64(1)) & mask
        if is_wanted:
            group_of[i] = group
    return count


@kernel(
    "int64(Array(int64, 1, 'C', readonly=True), int64, Array(int64, 1, 'C', readonly=True), int64,"
    " int64, int64, int64, int32[::1], int64[::1], int64[::1], int64[::1])"
)
def number_groups(
    keys: np.ndarray,
    k: int,
    time_us: np.ndarray,
    pane_us: int,
    first: int,
    stop: int,
    count: int,
    table: np.ndarray,
    group_of: np.ndarray,
    firsts: np.ndarray,
    groups: np.ndarray,
) -> int:
    """Number the groups of rows [first, stop): those with one key in one pane, by first row.

    Args:
        keys: int64 (n * k,), all rows.
        k: Words of a key.
        time_us: int64 (n,), all rows.
        pane_us: Length of a pane; panes begin at its multiples.
        count: How many groups earlier rows have; they are not looked at.
        table: int32, a power of two and more than the rows; -1 or numbers below `count`.
        group_of: int64 (n,), receives per row its group; or empty, if nobody wants to know.
        firsts: int64 (n,), receives per group its first row.
        groups: int64 (n * (GROUP_WORDS + k),), receives per group `SIZE`, the number of its pane,
            and its key; what is looked at together lies together.

    Returns:
        How many groups there are now.
    """
    # With a fixed number of words there is no loop over them: a third less time.
    if k == 1:
        return _number_rows(
            keys, 1, time_us, pane_us, first, stop, count, table, group_of, firsts, groups
        )
    if k == 2:
        return _number_rows(
            keys, 2, time_us, pane_us, first, stop, count, table, group_of, firsts, groups
        )
    return _number_rows(
        keys, k, time_us, pane_us, first, stop, count, table, group_of, firsts, groups
    )
