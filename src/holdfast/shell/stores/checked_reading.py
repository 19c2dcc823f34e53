"""Pages read from a file and checked while they are in the processor's cache. [SGuard §4.4]

Reading first and checking afterwards fetches every page from memory once more. One compiled loop
reads a few pages, checks them, and goes on, without the interpreter's lock.
"""

# Signatures are numba's; to mypy, machine words and Python integers are different types.
# mypy: disable-error-code="arg-type"

from __future__ import annotations

from typing import Final

import numpy as np
from numba import types

from holdfast.core.checkpoint.page_checksum import page_checksums
from holdfast.core.state.kernels import kernel

_CACHED_WORDS: Final = 32 << 10
"""256 KiB are read before they are checked: half of that and four times as much are slower."""

_pread = types.ExternalFunction(
    "pread", types.intp(types.int32, types.uintp, types.uintp, types.int64)
)


@kernel("int64(int32, int64, int64[::1], int64, uint64[::1], uint64[::1])", allocates=True)
def read_checked(
    file: int,
    offset: int,
    words: np.ndarray,
    shift: int,
    seeds: np.ndarray,
    checksums: np.ndarray,
) -> int:
    """Read pages that lie one after another.

    Args:
        file: A file descriptor.
        offset: Where the first page begins, in bytes.
        words: Takes the pages, one after another.
        shift: A page has `1 << shift` words.
        seeds: The PageID of each, see `page_image.page_seeds`.
        checksums: What each must have.

    Returns:
        How many pages are read and whole; fewer than there are: the next one could not be read,
        or is damaged.
    """
    count = len(seeds)
    at_once = min(count, max(1, _CACHED_WORDS >> shift))
    numbers = np.arange(at_once)
    found = np.empty(at_once, dtype=np.uint64)
    for first in range(0, count, at_once):
        last = min(first + at_once, count)
        done, end = first << (shift + 3), last << (shift + 3)
        while done < end:
            got = _pread(file, words.ctypes.data + done, end - done, offset + done)
            if got <= 0:
                return first
            done += got
        pages = words[first << shift : last << shift]
        page_checksums(pages, shift, numbers[: last - first], seeds[first:last], found)
        for i in range(last - first):
            if found[i] != checksums[first + i]:
                return first + i
    return count
