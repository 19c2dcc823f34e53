"""The checksum of a page, made for processors that multiply eight words at once.

A page is taken in blocks of 512 words. Every word of a block is multiplied by an odd number of its
place, folded, and multiplied by another; the sum of these is stirred into the checksum so far,
which begins with the PageID. All steps are bijections of a word, of the sum and of the checksum so
far: one damaged word always changes the result, and pages of equal content have different ones.
The sum is what a compiler turns into vector instructions; nothing waits for the word before.

XXH3 through its library was measured beside it: per page of 8 KiB half as fast, and it holds the
interpreter's lock, so that pages are not checked while others are read.
"""

# Signatures are numba's; to mypy, machine words and Python integers are different types.
# mypy: disable-error-code="operator,assignment"

from __future__ import annotations

from typing import Final

import numpy as np

from holdfast.core.state.kernels import kernel

_BLOCK: Final = 512
_STIR: Final = np.uint64(0xBF58476D1CE4E5B9)
_S32: Final = np.uint64(32)


def _odd_numbers(first: int) -> np.ndarray:
    """So many outputs of SplitMix64 from the `first` on, each made odd; uint64."""
    z = np.arange(first + 1, first + 1 + _BLOCK, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    odd: np.ndarray = (z ^ (z >> np.uint64(31))) | np.uint64(1)
    return odd


_BEFORE: Final = _odd_numbers(0)
_AFTER: Final = _odd_numbers(_BLOCK)


@kernel("void(int64[::1], int64, int64[::1], uint64[::1], uint64[::1])")
def page_checksums(
    arena: np.ndarray, shift: int, pages: np.ndarray, seeds: np.ndarray, out: np.ndarray
) -> None:
    """A checksum per physical page of `1 << shift` words.

    Args:
        arena: All pages, flat.
        shift: 6 or more.
        pages: Which ones.
        seeds: The PageID of each.
        out: Takes the checksums.
    """
    words = 1 << shift
    block = min(words, _BLOCK)
    for i in range(len(pages)):
        checksum = seeds[i]
        for first in range(pages[i] << shift, (pages[i] + 1) << shift, block):
            content = arena[first : first + block]
            total = np.uint64(0)
            for j in range(block):
                word = np.uint64(content[j]) * _BEFORE[j]
                total += (word ^ (word >> _S32)) * _AFTER[j]
            checksum = (checksum ^ total) * _STIR
            checksum ^= checksum >> _S32
        out[i] = checksum


def checksums(arena: np.ndarray, shift: int, pages: np.ndarray, seeds: np.ndarray) -> np.ndarray:
    """Of physical pages, uint64 (n,); compiled, without the interpreter's lock."""
    out = np.empty(len(pages), dtype=np.uint64)
    page_checksums(arena, shift, pages, seeds, out)
    return out
