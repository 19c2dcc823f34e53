"""The inner loop of partial aggregates: number the groups of rows that share nothing afterwards.

No pages: what it finds does not outlive the round. Conventions as in `kernels.py`.
"""

# Signatures are numba's; to mypy, machine words and Python integers are different types.
# mypy: disable-error-code="no-any-return,return-value,assignment,arg-type"

from __future__ import annotations

import numpy as np

from holdfast.core.state.hash_kernels import hash_words
from holdfast.core.state.kernels import inlined, kernel


@inlined
def _number_rows(
    keys: np.ndarray,
    k: int,
    time_us: np.ndarray,
    pane_us: int,
    first: int,
    stop: int,
    groups: int,
    table: np.ndarray,
    group_of: np.ndarray,
    firsts: np.ndarray,
    sizes: np.ndarray,
    panes: np.ndarray,
    group_keys: np.ndarray,
) -> int:
    """See `number_groups`."""
    oldest = groups  # Numbers below it in the table are of earlier rows: free places.
    mask = np.uint64(table.shape[0] - 1)
    begin_us = np.int64(0)
    end_us = np.int64(0)
    number = np.int64(0)
    for i in range(first, stop):
        at_us = time_us[i]
        if not begin_us <= at_us < end_us:  # Division is dear, and times are close to each other.
            number = at_us // pane_us
            begin_us = number * pane_us
            end_us = begin_us + pane_us
        slot = (hash_words(keys, i * k, k) + np.uint64(number)) & mask
        while True:
            group = np.int64(table[slot])
            if group < oldest:
                group = groups
                groups += 1
                table[slot] = group
                firsts[group] = i
                sizes[group] = 1
                panes[group] = number
                for j in range(k):
                    group_keys[group * k + j] = keys[i * k + j]
                break
            same = panes[group] == number
            for j in range(k):
                same &= group_keys[group * k + j] == keys[i * k + j]
            if same:
                sizes[group] += 1
                break
            slot = (slot + np.uint64(1)) & mask
        group_of[i] = group
    return groups


@kernel(
    "int64(Array(int64, 1, 'C', readonly=True), int64, Array(int64, 1, 'C', readonly=True), int64,"
    " int64, int64, int64, int32[::1], int64[::1], int64[::1], int64[::1], int64[::1], int64[::1])"
)
def number_groups(
    keys: np.ndarray,
    k: int,
    time_us: np.ndarray,
    pane_us: int,
    first: int,
    stop: int,
    groups: int,
    table: np.ndarray,
    group_of: np.ndarray,
    firsts: np.ndarray,
    sizes: np.ndarray,
    panes: np.ndarray,
    group_keys: np.ndarray,
) -> int:
    """Number the groups of rows [first, stop): those with one key in one pane, by first row.

    Args:
        keys: int64 (n * k,), all rows.
        k: Words of a key.
        time_us: int64 (n,), all rows.
        pane_us: Length of a pane; panes begin at its multiples.
        groups: How many groups earlier rows have; they are not looked at.
        table: int32, a power of two and more than the rows; -1 or numbers below `groups`.
        group_of: int64 (n,), receives per row its group.
        firsts: int64 (n,), receives per group its first row.
        sizes: int64 (n,), receives per group how many rows it has.
        panes: int64 (n,), receives per group the number of its pane.
        group_keys: int64 (n * k,), receives per group its key.

    Returns:
        How many groups there are now.
    """
    if k == 1:  # With a fixed number of words there is no loop over them: a third less time.
        return _number_rows(
            keys,
            1,
            time_us,
            pane_us,
            first,
            stop,
            groups,
            table,
            group_of,
            firsts,
            sizes,
            panes,
            group_keys,
        )
    if k == 2:
        return _number_rows(
            keys,
            2,
            time_us,
            pane_us,
            first,
            stop,
            groups,
            table,
            group_of,
            firsts,
            sizes,
            panes,
            group_keys,
        )
    return _number_rows(
        keys,
        k,
        time_us,
        pane_us,
        first,
        stop,
        groups,
        table,
        group_of,
        firsts,
        sizes,
        panes,
        group_keys,
    )
