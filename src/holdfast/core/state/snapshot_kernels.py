"""The compiled loops over all pages of a snapshot: a unit stands still while they run.

Each passes over the pages once, as marks of pages lie apart and have left the processor's caches
since the last snapshot. See kernels.py for what marks mean, page_memory.py for `holders` and
`behind`.
"""

# Signatures are numba's; to mypy, machine words and Python integers are different types.
# mypy: disable-error-code="no-any-return,return-value,assignment,arg-type"

from __future__ import annotations

import numpy as np

from holdfast.core.state.kernels import DIRTY, FROZEN, kernel


@kernel("void(uint8[::1], uint8[::1], int64[::1], boolean[::1])")
def changed(
    marks: np.ndarray, behind: np.ndarray, pages: np.ndarray, is_changed: np.ndarray
) -> None:
    """Say of each page whether it is dirty, or will be once nobody needs it frozen.

    Args:
        marks: uint8, per physical page.
        behind: uint8, per physical page.
        pages: int64 (n,), physical.
        is_changed: bool (n,), filled.
    """
    for i in range(len(pages)):
        page = pages[i]
        mark = marks[page]
        if mark == FROZEN:
            mark = behind[page]
        is_changed[i] = mark == DIRTY


@kernel("void(uint8[::1], uint8[::1], uint8[::1], int64[::1], boolean[::1])")
def freeze(
    marks: np.ndarray,
    holders: np.ndarray,
    behind: np.ndarray,
    pages: np.ndarray,
    is_needed: np.ndarray,
) -> None:
    """One snapshot more needs these pages as they are.

    Args:
        marks: uint8, per physical page.
        holders: uint8, per physical page.
        behind: uint8, per physical page.
        pages: int64 (n,), physical, each once.
        is_needed: bool (n,), which of them.
    """
    for i in range(len(pages)):
        if is_needed[i]:
            page = pages[i]
            if marks[page] != FROZEN:
                behind[page] = marks[page]
                marks[page] = FROZEN
            holders[page] += 1
