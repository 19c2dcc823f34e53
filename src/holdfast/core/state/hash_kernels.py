"""The inner loops of hashing in pages. [SGuard §4.3]

Linear hashing: the header is in the super page of the first page set, word 0 entries, word 1
buckets, word 2 the largest power of two not above word 1, word 3 next free logical address. From
page 1 on there is a word per bucket, the link to its newest record. Strings use it too
(`string_kernels.py`). Conventions as in `kernels.py`.
"""

# Signatures are numba's; to mypy, machine words and Python integers are different types.
# mypy: disable-error-code="no-any-return,return-value,assignment,arg-type"

from __future__ import annotations

from typing import Final

import numpy as np

from holdfast.core.state.kernels import ENTRIES, inlined, kernel, resolve, touch

BUCKETS: Final = 1
LOW_POWER: Final = 2
NEXT_FREE: Final = 3
_BLOCK: Final = 64
"""Rows that are looked up together."""

_C1: Final = np.uint64(0xBF58476D1CE4E5B9)
_C2: Final = np.uint64(0x94D049BB133111EB)
_S31: Final = np.uint64(31)
_S32: Final = np.uint64(32)


@inlined
def hash_words(words: np.ndarray, start: int, count: int) -> int:
    """A hash, uint64, of `count` words from `start` on."""
    h = np.uint64(0)
    for j in range(count):
        h = (h ^ np.uint64(words[start + j])) * _C1
        h ^= h >> _S32
    return (h * _C2) ^ (h >> _S31)


@inlined
def bucket_of(h: int, buckets: int, low_power: int) -> int:
    """The bucket of a hash. Linear hashing: `low_power` is the last power of two reached."""
    b = np.int64(h & np.uint64(2 * low_power - 1))
    if b >= buckets:
        b -= low_power
    return b


@kernel("int64(int64[::1], int64, int64[::1], int64[::1], int64[::1], int64, int64, int64)")
def find_record(
    arena: np.ndarray,
    shift: int,
    bucket_pages: np.ndarray,
    record_pages: np.ndarray,
    keys: np.ndarray,
    start: int,
    k: int,
    b: int,
) -> int:
    """Logical address of the record with this key in bucket `b`, or -1."""
    link = arena[resolve(bucket_pages, b + (1 << shift), shift)]
    while link != 0:
        address = resolve(record_pages, link - 1, shift)
        same = True
        for j in range(k):
            if arena[address + 1 + j] != keys[start + j]:
                same = False
                break
        if same:
            return link - 1
        link = arena[address]
    return -1


@kernel("boolean(int64[::1], uint8[::1], int64[::1], int64, int64[::1], int64[::1], int64)")
def split_bucket(
    arena: np.ndarray,
    marks: np.ndarray,
    free: np.ndarray,
    shift: int,
    bucket_pages: np.ndarray,
    record_pages: np.ndarray,
    k: int,
) -> bool:
    """Linear hashing: add one bucket and move to it what now belongs there.

    `k` key words follow a record's link; `k == -1` means string pages, which store their hash.
    False: a free page is missing, and nothing has changed.
    """
    head = touch(arena, marks, free, shift, bucket_pages, 0)
    if head < 0:
        return False
    new = arena[head + BUCKETS]
    low_power = arena[head + LOW_POWER]
    if new == 2 * low_power:
        low_power = new
    old = new - low_power
    old_at = touch(arena, marks, free, shift, bucket_pages, old + (1 << shift))
    if old_at < 0 or touch(arena, marks, free, shift, bucket_pages, new + (1 << shift)) < 0:
        return False
    old_at = resolve(bucket_pages, old + (1 << shift), shift)
    new_at = resolve(bucket_pages, new + (1 << shift), shift)
    link = arena[old_at]
    while link != 0:
        at = link - 1 if k >= 0 else link + 1
        address = touch(arena, marks, free, shift, record_pages, at)
        if address < 0:
            return False
        link = arena[address]
    arena[head + LOW_POWER] = low_power
    arena[head + BUCKETS] = new + 1
    link = arena[old_at]
    kept = 0
    moved = 0
    while link != 0:
        logical = link - 1
        if k >= 0:
            next_at = resolve(record_pages, logical, shift)
            h = hash_words(arena, next_at + 1, k)
        else:
            next_at = resolve(record_pages, logical + 2, shift)
            h = np.uint64(arena[resolve(record_pages, logical + 1, shift)])
        following = arena[next_at]
        if bucket_of(h, new + 1, low_power) == new:
            arena[next_at] = moved
            moved = link
        else:
            arena[next_at] = kept
            kept = link
        link = following
    arena[old_at] = kept
    arena[new_at] = moved
    return True


@kernel(
    "int64(int64[::1], uint8[::1], int64[::1], int64, int64[::1], int64[::1], int64[::1], int64,"
    " int64, int64, uint64)"
)
def insert_record(
    arena: np.ndarray,
    marks: np.ndarray,
    free: np.ndarray,
    shift: int,
    bucket_pages: np.ndarray,
    record_pages: np.ndarray,
    keys: np.ndarray,
    start: int,
    k: int,
    v: int,
    h: int,
) -> int:
    """Logical address of a new record with this key and zero values; -1: pages are missing."""
    width = 1 + k + v
    page_words = 1 << shift
    head = resolve(bucket_pages, 0, shift)
    logical = arena[head + NEXT_FREE]
    if (logical & (page_words - 1)) + width > page_words:
        logical = ((logical >> shift) + 1) << shift
    if (logical >> shift) >= len(record_pages):
        return -1
    buckets = arena[head + BUCKETS]
    if arena[head + ENTRIES] >= buckets:
        if ((buckets >> shift) + 1) >= len(bucket_pages):
            return -1
        if not split_bucket(arena, marks, free, shift, bucket_pages, record_pages, k):
            return -1
        head = resolve(bucket_pages, 0, shift)
    b = bucket_of(h, arena[head + BUCKETS], arena[head + LOW_POWER])
    if touch(arena, marks, free, shift, bucket_pages, 0) < 0:
        return -1
    at = touch(arena, marks, free, shift, bucket_pages, b + page_words)
    if at < 0:
        return -1
    address = touch(arena, marks, free, shift, record_pages, logical)
    if address < 0:
        return -1
    head = resolve(bucket_pages, 0, shift)
    arena[address] = arena[at]
    arena[at] = logical + 1
    for j in range(k):
        arena[address + 1 + j] = keys[start + j]
    for j in range(v):
        arena[address + 1 + k + j] = 0
    arena[head + NEXT_FREE] = logical + width
    arena[head + ENTRIES] += 1
    return logical


@kernel(
    "int64(int64[::1], uint8[::1], int64[::1], int64, int64[::1], int64[::1], int64[:,::1], int64,"
    " int64, int64[::1])"
)
def map_upsert(
    arena: np.ndarray,
    marks: np.ndarray,
    free: np.ndarray,
    shift: int,
    bucket_pages: np.ndarray,
    record_pages: np.ndarray,
    keys: np.ndarray,
    start: int,
    v: int,
    slots: np.ndarray,
) -> int:
    """Find or insert rows `start..`; `slots[i]` is the logical address of row i's value words."""
    n, k = keys.shape
    flat = keys.reshape(n * k)
    for i in range(start, n):
        head = resolve(bucket_pages, 0, shift)
        h = hash_words(flat, i * k, k)
        b = bucket_of(h, arena[head + BUCKETS], arena[head + LOW_POWER])
        logical = find_record(arena, shift, bucket_pages, record_pages, flat, i * k, k, b)
        if logical < 0:
            logical = insert_record(
                arena,
                marks,
                free,
                shift,
                bucket_pages,
                record_pages,
                flat,
                i * k,
                k,
                v,
                h,
            )
            if logical < 0:
                return i
        slots[i] = logical + 1 + k
    return n


@kernel("void(int64[::1], int64, int64[::1], int64[::1], int64[:,::1], int64[::1])")
def map_lookup(
    arena: np.ndarray,
    shift: int,
    bucket_pages: np.ndarray,
    record_pages: np.ndarray,
    keys: np.ndarray,
    slots: np.ndarray,
) -> None:
    """As `map_upsert`, but absent keys get -1.

    Block by block, step by step for all rows of one: what a row waits for in memory, the processor
    fetches for many.
    """
    n, k = keys.shape
    flat = keys.reshape(n * k)
    head = resolve(bucket_pages, 0, shift)
    buckets = arena[head + BUCKETS]
    low_power = arena[head + LOW_POWER]
    for first in range(0, n, _BLOCK):
        stop = min(n, first + _BLOCK)
        for i in range(first, stop):
            h = hash_words(flat, i * k, k)
            slots[i] = bucket_of(h, buckets, low_power) + (1 << shift)
        for i in range(first, stop):
            slots[i] = arena[resolve(bucket_pages, slots[i], shift)]
        for i in range(first, stop):
            link = slots[i]
            while link != 0:
                address = resolve(record_pages, link - 1, shift)
                same = True
                for j in range(k):
                    if arena[address + 1 + j] != flat[i * k + j]:
                        same = False
                        break
                if same:
                    break
                link = arena[address]
            slots[i] = link + k if link != 0 else -1
