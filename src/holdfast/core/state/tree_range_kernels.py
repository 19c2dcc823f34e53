"""Many ranges of a T-tree in one call; see `tree_kernels.py`.

Conventions as in `kernels.py`.
"""

# Signatures are numba's; to mypy, machine words and Python integers are different types.
# mypy: disable-error-code="no-any-return,return-value,assignment,arg-type"

from __future__ import annotations

import numpy as np

from holdfast.core.state.kernels import kernel
from holdfast.core.state.page_layout import PAGES, Pages
from holdfast.core.state.tree_search_kernels import (
    COUNT,
    NODE_WORDS,
    compare_keys,
    field_of,
    find_key,
    leftmost,
    node_at,
    successor,
)


@kernel(f"UniTuple(int64, 2)({PAGES}, int64, int64, int64[::1], int64[::1], int64, int64[:,::1])")
def tree_ranges(
    tree: Pages, k: int, v: int, bounds: np.ndarray, counts: np.ndarray, start: int, out: np.ndarray
) -> tuple[int, int]:
    """Copy the records with keys in [low, high) of each pair of bounds, one after the other.

    Args:
        tree: The pages.
        k: Words of a key.
        v: Words of a value.
        bounds: Per range the words of `low` and then those of `high`.
        counts: Per range how many records there are, filled in.
        start: The first range to do.
        out: int64 (capacity, k + v), filled.

    Returns:
        The first range not done because `out` is full, and how many records were copied.
    """
    arena = tree[0]
    width = k + v
    written = np.int64(0)
    for i in range(start, len(counts)):
        begun = written
        link = leftmost(tree)
        at = np.int64(0)
        if link != 0:
            _, covering, _, number = find_key(tree, width, bounds, 2 * k * i, k)
            if covering != 0:
                link, at = covering, number
        while link != 0:
            first = node_at(tree, link) + NODE_WORDS
            count = field_of(tree, link, COUNT)
            r = at
            while r < count:
                address = first + r * width
                if compare_keys(arena, address, bounds, 2 * k * i + k, k) >= 0:
                    break
                if written >= out.shape[0]:
                    return i, begun
                for j in range(width):
                    out[written, j] = arena[address + j]
                written += 1
                r += 1
            if r < count:
                break
            link = successor(tree, link)
            at = np.int64(0)
        counts[i] = written - begun
    return len(counts), written
