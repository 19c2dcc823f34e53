"""The inner loops of string pages: equal strings are stored once.

A string may also be the continuation of another one: it has its own bytes and a reference to what
comes before them. Its words are: minus the length of all, that reference (0: nothing), the length
of its own bytes, then these. Such strings are in no bucket, and are compared with none.

Conventions as in `kernels.py`.
"""

# Signatures are numba's; to mypy, machine words and Python integers are different types.
# mypy: disable-error-code="no-any-return,return-value,assignment,arg-type"

from __future__ import annotations

from typing import Final

import numpy as np

from holdfast.core.model.stable_hash import hash_bytes
from holdfast.core.state.hash_kernels import (
    BUCKETS,
    LOW_POWER,
    NEXT_FREE,
    bucket_of,
    split_bucket,
)
from holdfast.core.state.kernels import ENTRIES, inlined, kernel, resolve, touch, touch_range

STRING_HEADER_WORDS: Final = 3
"""Length in bytes, hash, link to the next string of the bucket; the bytes follow."""


@kernel("uint64(uint8[::1], int64, int64)")
def _word_at(data: np.ndarray, start: int, stop: int) -> int:
    """Up to eight bytes, little-endian, as a word."""
    word = np.uint64(0)
    for j in range(min(8, stop - start)):
        word |= np.uint64(data[start + j]) << np.uint64(8 * j)
    return word


@inlined
def _find_text(
    arena: np.ndarray,
    shift: int,
    text_pages: np.ndarray,
    link: int,
    h: int,
    data: np.ndarray,
    begin: int,
    end: int,
) -> int:
    """The reference of the bytes [begin, end) in a chain that begins at `link`; 0: not there."""
    while link != 0:
        logical = link - 1
        if (
            arena[resolve(text_pages, logical, shift)] == end - begin
            and np.uint64(arena[resolve(text_pages, logical + 1, shift)]) == h
        ):
            same = True
            at = logical + STRING_HEADER_WORDS
            for position in range(begin, end, 8):
                word = np.int64(_word_at(data, position, end))
                if arena[resolve(text_pages, at, shift)] != word:
                    same = False
                    break
                at += 1
            if same:
                break
        link = arena[resolve(text_pages, logical + 2, shift)]
    return link


@inlined
def _write_text(
    arena: np.ndarray,
    shift: int,
    text_pages: np.ndarray,
    logical: int,
    link: int,
    h: int,
    data: np.ndarray,
    begin: int,
    end: int,
) -> None:
    """Write the bytes [begin, end) in front of the chain that begins at `link`."""
    arena[resolve(text_pages, logical, shift)] = end - begin
    arena[resolve(text_pages, logical + 1, shift)] = np.int64(h)
    arena[resolve(text_pages, logical + 2, shift)] = link
    at = logical + STRING_HEADER_WORDS
    for position in range(begin, end, 8):
        word = np.int64(_word_at(data, position, end))
        arena[resolve(text_pages, at, shift)] = word
        at += 1


@kernel(
    "int64(int64[::1], uint8[::1], int64[::1], int64, int64[::1], int64[::1], int64[::1],"
    " uint8[::1], uint8[::1], int64, int64[::1])"
)
def intern_strings(
    arena: np.ndarray,
    marks: np.ndarray,
    free: np.ndarray,
    shift: int,
    bucket_pages: np.ndarray,
    text_pages: np.ndarray,
    offsets: np.ndarray,
    data: np.ndarray,
    is_valid: np.ndarray,
    start: int,
    references: np.ndarray,
) -> int:
    """References of strings `start..`: equal strings share one; null (is_valid 0) is 0.

    Returns the first string not done for want of pages.
    """
    page_words = 1 << shift
    n = len(offsets) - 1
    for i in range(start, n):
        if len(is_valid) and not is_valid[i]:
            references[i] = 0
            continue
        begin = offsets[i]
        end = offsets[i + 1]
        h = hash_bytes(data, begin, end)
        head = resolve(bucket_pages, 0, shift)
        b = bucket_of(h, arena[head + BUCKETS], arena[head + LOW_POWER])
        link = arena[resolve(bucket_pages, b + page_words, shift)]
        link = _find_text(arena, shift, text_pages, link, h, data, begin, end)
        if link != 0:
            references[i] = link
            continue
        logical = arena[head + NEXT_FREE]
        words = STRING_HEADER_WORDS + (end - begin + 7) // 8
        stop = ((logical + words - 1) >> shift) + 1
        if stop > len(text_pages):
            return i
        if arena[head + ENTRIES] >= arena[head + BUCKETS]:
            if ((arena[head + BUCKETS] >> shift) + 1) >= len(bucket_pages):
                return i
            if not split_bucket(arena, marks, free, shift, bucket_pages, text_pages, -1):
                return i
            head = resolve(bucket_pages, 0, shift)
            b = bucket_of(h, arena[head + BUCKETS], arena[head + LOW_POWER])
        if touch(arena, marks, free, shift, bucket_pages, 0) < 0:
            return i
        if touch(arena, marks, free, shift, bucket_pages, b + page_words) < 0:
            return i
        if not touch_range(arena, marks, free, shift, text_pages, logical >> shift, stop):
            return i
        head = resolve(bucket_pages, 0, shift)
        bucket_at = resolve(bucket_pages, b + page_words, shift)
        _write_text(arena, shift, text_pages, logical, arena[bucket_at], h, data, begin, end)
        arena[bucket_at] = logical + 1
        arena[head + NEXT_FREE] = logical + words
        arena[head + ENTRIES] += 1
        references[i] = logical + 1
    return n


@kernel(
    "int64(int64[::1], uint8[::1], int64[::1], int64, int64[::1], int64[::1], int64[::1],"
    " uint8[::1], uint8[::1], int64, int64[::1])"
)
def append_strings(
    arena: np.ndarray,
    marks: np.ndarray,
    free: np.ndarray,
    shift: int,
    bucket_pages: np.ndarray,
    text_pages: np.ndarray,
    offsets: np.ndarray,
    data: np.ndarray,
    is_valid: np.ndarray,
    start: int,
    references: np.ndarray,
) -> int:
    """As `intern_strings`, of strings, none of them empty, that may continue others later."""
    n = len(offsets) - 1
    for i in range(start, n):
        if len(is_valid) and not is_valid[i]:
            references[i] = 0
            continue
        length = offsets[i + 1] - offsets[i]
        logical = arena[resolve(bucket_pages, 0, shift) + NEXT_FREE]
        words = STRING_HEADER_WORDS + (length + 7) // 8
        stop = ((logical + words - 1) >> shift) + 1
        if stop > len(text_pages):
            return i
        if touch(arena, marks, free, shift, bucket_pages, 0) < 0:
            return i
        if not touch_range(arena, marks, free, shift, text_pages, logical >> shift, stop):
            return i
        _write_text(arena, shift, text_pages, logical, length, 0, data, offsets[i], offsets[i + 1])
        arena[resolve(text_pages, logical, shift)] = -length
        arena[resolve(bucket_pages, 0, shift) + NEXT_FREE] = logical + words
        references[i] = logical + 1
    return n


@inlined
def continue_string(
    arena: np.ndarray, shift: int, text_pages: np.ndarray, reference: int, before: int
) -> None:
    """Let a string that was appended in this very pass, so that its pages are dirty, continue
    another one, if `before` is not 0.
    """
    if before != 0:
        length = abs(arena[resolve(text_pages, before - 1, shift)])
        arena[resolve(text_pages, reference - 1, shift)] -= length
        arena[resolve(text_pages, reference, shift)] = before


@kernel("boolean(uint8[::1], int64[::1], int64[::1], int64[::1])")
def places_behind_lengths(
    data: np.ndarray, offsets: np.ndarray, counts: np.ndarray, places: np.ndarray
) -> bool:
    """Where things begin that lie behind each other, each behind its length in four bytes.

    Returns whether so many of them fill each range between two offsets.
    """
    k = 0
    for i in range(len(counts)):
        at = offsets[i]
        for _ in range(counts[i]):
            if at + 4 > offsets[i + 1]:
                return False
            length = np.int64(0)
            for part in range(4):
                length |= np.int64(data[at + part]) << np.int64(8 * part)
            at += 4
            places[k] = at
            at += length
            k += 1
        if at != offsets[i + 1]:
            return False
    return True


@kernel("int64(int64[::1], int64, int64[::1], int64[::1], int64[::1])")
def string_offsets(
    arena: np.ndarray,
    shift: int,
    text_pages: np.ndarray,
    references: np.ndarray,
    offsets: np.ndarray,
) -> int:
    """Offsets of the strings when laid end to end; returns their total length in bytes."""
    total = 0
    offsets[0] = 0
    for i in range(len(references)):
        if references[i] != 0:
            total += abs(arena[resolve(text_pages, references[i] - 1, shift)])
        offsets[i + 1] = total
    return total


@kernel("void(int64[::1], int64, int64[::1], int64[::1], int64[::1], uint8[::1])")
def read_strings(
    arena: np.ndarray,
    shift: int,
    text_pages: np.ndarray,
    references: np.ndarray,
    offsets: np.ndarray,
    data: np.ndarray,
) -> None:
    """The bytes of the strings, end to end."""
    for i in range(len(references)):
        reference = references[i]
        stop = offsets[i + 1]
        while reference != 0:
            at = reference - 1
            length = arena[resolve(text_pages, at, shift)]
            reference = 0
            if length < 0:
                reference = arena[resolve(text_pages, at + 1, shift)]
                length = arena[resolve(text_pages, at + 2, shift)]
            at += STRING_HEADER_WORDS
            stop -= length
            position = stop
            for j in range(0, length, 8):
                word = np.uint64(arena[resolve(text_pages, at, shift)])
                for part in range(min(8, length - j)):
                    data[position + part] = (word >> np.uint64(8 * part)) & np.uint64(255)
                position += 8
                at += 1


@kernel("boolean(int64[::1], int64, int64[::1], int64, int64)")
def is_string_less(
    arena: np.ndarray, shift: int, text_pages: np.ndarray, left: int, right: int
) -> bool:
    """Whether the first string comes before the second in the order of their bytes."""
    left_length = arena[resolve(text_pages, left - 1, shift)]
    right_length = arena[resolve(text_pages, right - 1, shift)]
    left_at = left - 1 + STRING_HEADER_WORDS
    right_at = right - 1 + STRING_HEADER_WORDS
    common = min(left_length, right_length)
    for j in range(0, common, 8):
        a = np.uint64(arena[resolve(text_pages, left_at, shift)])
        b = np.uint64(arena[resolve(text_pages, right_at, shift)])
        if a != b:
            for part in range(min(8, common - j)):
                x = (a >> np.uint64(8 * part)) & np.uint64(255)
                y = (b >> np.uint64(8 * part)) & np.uint64(255)
                if x != y:
                    return x < y
        left_at += 1
        right_at += 1
    return left_length < right_length
