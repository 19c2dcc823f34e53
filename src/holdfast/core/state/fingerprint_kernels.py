"""Whether records are what they were: a fingerprint of some at a time. Conventions: kernels.py."""

# Signatures are numba's; to mypy, machine words and Python integers are different types.
# mypy: disable-error-code="no-any-return,return-value,assignment,arg-type"

from __future__ import annotations

from typing import Final

import numpy as np

from holdfast.core.state.kernels import kernel

_C: Final = np.uint64(0xBF58476D1CE4E5B9)
_S: Final = np.uint64(32)


@kernel("void(int64[:,::1], int64[::1], int64[::1])")
def take_fingerprints(columns: np.ndarray, sizes: np.ndarray, found: np.ndarray) -> None:
    """One word for each so many records that follow each other.

    Each step is a bijection of what came before, so records of which one word has changed never
    have the fingerprint that they had. Others have it by a chance of 2^-64.

    Args:
        columns: int64 (words, n), of the records.
        sizes: int64 (m,), records to each fingerprint; n in all.
        found: int64 (m,), receives them.
    """
    words = len(columns)
    first = 0
    for part in range(len(sizes)):
        stop = first + sizes[part]
        h = np.uint64(sizes[part])
        for i in range(first, stop):
            for j in range(words):
                h = (h ^ np.uint64(columns[j, i])) * _C
                h ^= h >> _S
        found[part] = np.int64(h)
        first = stop
