"""The compiled inner loops over pages. Each is pure, and deterministic in its arguments.

Conventions. `arena` is the page manager's memory, flat, int64. A page has `1 << shift` words. A
*logical address* counts words within one page set: `page sequence number << shift | word offset`;
a page table (`pages`, sequence number -> physical page) resolves it. Links in pages are logical
addresses plus one, so zero means "none" and pages may be moved or cloned. [SGuard §4, Table 1]

`marks` says per physical page what may be done with it. What is DIRTY has changed since the last
checkpoint and may be written. What is CLEAN is stored; the first write makes it dirty. What is
FROZEN belongs to a checkpoint that is being written; the first write clones it to a page from the
stack `free` (word 0 its height, then the pages). So kernels read through `resolve` and write only
through `touch`. [SGuard §4.4]

A kernel that runs out of pages changes nothing for the row at hand and returns that row's number;
its caller allocates and calls again from there. The plain function under each kernel is reachable
as `<kernel>.py_func`; the tests hold both to dict and list models.

The header of a map or of string pages (in its super page): word 0 entries, word 1 buckets, word 2
the largest power of two not above word 1, word 3 next free logical address.

The kernels of hash structures are in one file because compiled code is cached by file: an edit
must not leave others with an old copy of what they inlined. After an edit of `touch` or `resolve`,
the caches of tree_kernels.py and deque_kernels.py have to go.
"""

# Signatures are numba's; to mypy, machine words and Python integers are different types.
# mypy: disable-error-code="no-any-return,return-value,assignment,arg-type"

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar, cast

import numba
import numpy as np

from holdfast.core.model.stable_hash import hash_bytes

_F = TypeVar("_F", bound=Callable[..., object])

ENTRIES: Final = 0
BUCKETS: Final = 1
LOW_POWER: Final = 2
NEXT_FREE: Final = 3
HEADER_WORDS: Final = 8

FREE: Final = 0
DIRTY: Final = 1
CLEAN: Final = 2
FROZEN: Final = 3

COUNT_ALL: Final = 0
COUNT: Final = 1
SUM_INT: Final = 2
SUM_FLOAT: Final = 3
SUM_DECIMAL: Final = 4
MIN_WORD: Final = 5
MAX_WORD: Final = 6
MIN_DECIMAL: Final = 7
MAX_DECIMAL: Final = 8
MIN_STRING: Final = 9
MAX_STRING: Final = 10

STRING_HEADER_WORDS: Final = 3
"""Length in bytes, hash, link to the next string of the bucket; the bytes follow."""

_BLOCK: Final = 64
"""Rows whose groups are looked up together."""

_C1: Final = np.uint64(0xBF58476D1CE4E5B9)
_C2: Final = np.uint64(0x94D049BB133111EB)
_S31: Final = np.uint64(31)
_S32: Final = np.uint64(32)


def kernel(signature: str) -> Callable[[_F], _F]:
    """Compile for exactly this signature, now, or load what an earlier process compiled."""
    return cast("Callable[[_F], _F]", numba.njit(signature, cache=True, nogil=True))


def _inlined(function: _F) -> _F:
    """Put the function's code into every kernel that calls it."""
    return cast("_F", numba.njit(inline="always")(function))


@_inlined
def resolve(pages: np.ndarray, logical: int, shift: int) -> int:
    """Physical word address of a logical one, to be read."""
    return (pages[logical >> shift] << shift) | (logical & ((1 << shift) - 1))


@kernel("int64(int64[::1], uint8[::1], int64[::1], int64, int64[::1], int64)")
def _unfreeze(
    arena: np.ndarray,
    marks: np.ndarray,
    free: np.ndarray,
    shift: int,
    pages: np.ndarray,
    sequence: int,
) -> int:
    """Make a page that is not dirty writable; its physical number, -1 if there is no free page."""
    page = pages[sequence]
    if marks[page] == FROZEN:
        if free[0] == 0:
            return -1
        clone = free[free[0]]
        free[0] -= 1
        for j in range(1 << shift):
            arena[(clone << shift) + j] = arena[(page << shift) + j]
        pages[sequence] = clone
        page = clone
    marks[page] = DIRTY
    return page


@_inlined
def touch(
    arena: np.ndarray,
    marks: np.ndarray,
    free: np.ndarray,
    shift: int,
    pages: np.ndarray,
    logical: int,
) -> int:
    """Physical word address of a logical one, to be written; -1 if a free page is missing.

    A page that a snapshot holds is cloned first, and the table then leads to the clone. Content
    and logical addresses stay, so touching what is not written after all does no harm.
    """
    page = pages[logical >> shift]
    if marks[page] != DIRTY:
        page = _unfreeze(arena, marks, free, shift, pages, logical >> shift)
        if page < 0:
            return -1
    return (page << shift) | (logical & ((1 << shift) - 1))


@_inlined
def place(pages: np.ndarray, base: int, logical: int, shift: int) -> int:
    """As `resolve`; `base` is the set's `PageManager.base_of`."""
    if base >= 0:
        return base + logical
    return resolve(pages, logical, shift)


@_inlined
def mark_of(marks: np.ndarray, shift: int, address: int) -> int:
    """The mark of the page of this physical word address."""
    return marks[np.uint64(address) >> np.uint64(shift)]  # Unsigned: no look for a negative index.


@_inlined
def touch_unfrozen(marks: np.ndarray, shift: int, address: int) -> bool:
    """Make what is at this physical word address writable; false if it is frozen."""
    mark = marks[address >> shift]
    if mark == CLEAN:
        marks[address >> shift] = DIRTY
    return mark != FROZEN


@kernel("boolean(int64[::1], uint8[::1], int64[::1], int64, int64[::1], int64, int64)")
def touch_range(
    arena: np.ndarray,
    marks: np.ndarray,
    free: np.ndarray,
    shift: int,
    pages: np.ndarray,
    first: int,
    stop: int,
) -> bool:
    """Touch the pages with sequence numbers [first, stop); false if a free page is missing."""
    for sequence in range(first, stop):
        if touch(arena, marks, free, shift, pages, sequence << shift) < 0:
            return False
    return True


@kernel("void(int64[::1], int64, int64[::1], int64[::1])")
def copy_pages(arena: np.ndarray, shift: int, pages: np.ndarray, out: np.ndarray) -> None:
    """Copy physical pages, one after another, to `out`."""
    words = 1 << shift
    for i in range(len(pages)):
        at = pages[i] << shift
        for j in range(words):
            out[i * words + j] = arena[at + j]


@_inlined
def _hash_words(words: np.ndarray, start: int, count: int) -> int:
    h = np.uint64(0)
    for j in range(count):
        h = (h ^ np.uint64(words[start + j])) * _C1
        h ^= h >> _S32
    return (h * _C2) ^ (h >> _S31)


@_inlined
def _bucket_of(h: int, buckets: int, low_power: int) -> int:
    b = np.int64(h & np.uint64(2 * low_power - 1))
    if b >= buckets:
        b -= low_power
    return b


@kernel("int64(int64[::1], int64, int64[::1], int64[::1], int64[::1], int64, int64, int64)")
def _find(
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
def _split_bucket(
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
            h = _hash_words(arena, next_at + 1, k)
        else:
            next_at = resolve(record_pages, logical + 2, shift)
            h = np.uint64(arena[resolve(record_pages, logical + 1, shift)])
        following = arena[next_at]
        if _bucket_of(h, new + 1, low_power) == new:
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
def _insert(
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
        if not _split_bucket(arena, marks, free, shift, bucket_pages, record_pages, k):
            return -1
        head = resolve(bucket_pages, 0, shift)
    b = _bucket_of(h, arena[head + BUCKETS], arena[head + LOW_POWER])
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
        h = _hash_words(flat, i * k, k)
        b = _bucket_of(h, arena[head + BUCKETS], arena[head + LOW_POWER])
        logical = _find(arena, shift, bucket_pages, record_pages, flat, i * k, k, b)
        if logical < 0:
            logical = _insert(
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
    """As `map_upsert`, but absent keys get -1."""
    n, k = keys.shape
    flat = keys.reshape(n * k)
    head = resolve(bucket_pages, 0, shift)
    for i in range(n):
        h = _hash_words(flat, i * k, k)
        b = _bucket_of(h, arena[head + BUCKETS], arena[head + LOW_POWER])
        logical = _find(arena, shift, bucket_pages, record_pages, flat, i * k, k, b)
        slots[i] = logical + 1 + k if logical >= 0 else -1


@kernel("void(int64[::1], int64, int64[::1], int64[::1], int64[:,::1])")
def read_words(
    arena: np.ndarray, shift: int, pages: np.ndarray, slots: np.ndarray, out: np.ndarray
) -> None:
    """The words from each logical address on into out[n, w]; they lie within a page."""
    for i in range(len(slots)):
        address = resolve(pages, slots[i], shift)
        for j in range(out.shape[1]):
            out[i, j] = arena[address + j]


@kernel(
    "int64(int64[::1], uint8[::1], int64[::1], int64, int64[::1], int64[::1], int64[:,::1], int64)"
)
def write_words(
    arena: np.ndarray,
    marks: np.ndarray,
    free: np.ndarray,
    shift: int,
    pages: np.ndarray,
    slots: np.ndarray,
    words: np.ndarray,
    start: int,
) -> int:
    """Store words[n, w] from each logical address on; the first row not done, n if all are."""
    for i in range(start, len(slots)):
        address = touch(arena, marks, free, shift, pages, slots[i])
        if address < 0:
            return i
        for j in range(words.shape[1]):
            arena[address + j] = words[i, j]
    return len(slots)


@kernel("void(int64[::1], int64, int64[::1], int64, int64, int64, int64[:,::1])")
def read_records(
    arena: np.ndarray,
    shift: int,
    pages: np.ndarray,
    first: int,
    width: int,
    skip: int,
    out: np.ndarray,
) -> None:
    """Records `first..` of fixed `width`, without their `skip` leading words, into out[n, w]."""
    per_page = (1 << shift) // width
    n, w = out.shape
    for i in range(n):
        r = first + i
        address = (pages[r // per_page] << shift) + (r % per_page) * width + skip
        for j in range(w):
            out[i, j] = arena[address + j]


@kernel("int64(int64[::1], uint8[::1], int64[::1], int64, int64[::1], int64, int64[:,::1], int64)")
def write_records(
    arena: np.ndarray,
    marks: np.ndarray,
    free: np.ndarray,
    shift: int,
    pages: np.ndarray,
    first: int,
    rows: np.ndarray,
    start: int,
) -> int:
    """Store rows[start.., w] as records `first + start..`; the first row not done."""
    n, w = rows.shape
    per_page = (1 << shift) // w
    for i in range(start, n):
        r = first + i
        logical = ((r // per_page) << shift) + (r % per_page) * w
        address = touch(arena, marks, free, shift, pages, logical)
        if address < 0:
            return i
        for j in range(w):
            arena[address + j] = rows[i, j]
    return n


@kernel("void(int64[::1], int64, int64[::1], int64, int64[::1], int64[:,::1])")
def gather_records(
    arena: np.ndarray,
    shift: int,
    pages: np.ndarray,
    width: int,
    numbers: np.ndarray,
    out: np.ndarray,
) -> None:
    """Records by number into out[n, width]; a negative number gives zeros."""
    per_page = (1 << shift) // width
    for i in range(len(numbers)):
        r = numbers[i]
        if r < 0:
            for j in range(width):
                out[i, j] = 0
            continue
        address = (pages[r // per_page] << shift) + (r % per_page) * width
        for j in range(width):
            out[i, j] = arena[address + j]


@kernel("uint64(uint8[::1], int64, int64)")
def _word_at(data: np.ndarray, start: int, stop: int) -> int:
    """Up to eight bytes, little-endian, as a word."""
    word = np.uint64(0)
    for j in range(min(8, stop - start)):
        word |= np.uint64(data[start + j]) << np.uint64(8 * j)
    return word


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
        b = _bucket_of(h, arena[head + BUCKETS], arena[head + LOW_POWER])
        link = arena[resolve(bucket_pages, b + page_words, shift)]
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
            if not _split_bucket(arena, marks, free, shift, bucket_pages, text_pages, -1):
                return i
            head = resolve(bucket_pages, 0, shift)
            b = _bucket_of(h, arena[head + BUCKETS], arena[head + LOW_POWER])
        if touch(arena, marks, free, shift, bucket_pages, 0) < 0:
            return i
        if touch(arena, marks, free, shift, bucket_pages, b + page_words) < 0:
            return i
        if not touch_range(arena, marks, free, shift, text_pages, logical >> shift, stop):
            return i
        head = resolve(bucket_pages, 0, shift)
        bucket_at = resolve(bucket_pages, b + page_words, shift)
        arena[resolve(text_pages, logical, shift)] = end - begin
        arena[resolve(text_pages, logical + 1, shift)] = np.int64(h)
        arena[resolve(text_pages, logical + 2, shift)] = arena[bucket_at]
        arena[bucket_at] = logical + 1
        at = logical + STRING_HEADER_WORDS
        for position in range(begin, end, 8):
            word = np.int64(_word_at(data, position, end))
            arena[resolve(text_pages, at, shift)] = word
            at += 1
        arena[head + NEXT_FREE] = logical + words
        arena[head + ENTRIES] += 1
        references[i] = logical + 1
    return n


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
            total += arena[resolve(text_pages, references[i] - 1, shift)]
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
        length = offsets[i + 1] - offsets[i]
        at = references[i] - 1 + STRING_HEADER_WORDS
        position = offsets[i]
        for j in range(0, length, 8):
            word = np.uint64(arena[resolve(text_pages, at, shift)])
            for part in range(min(8, length - j)):
                data[position + part] = (word >> np.uint64(8 * part)) & np.uint64(255)
            position += 8
            at += 1


@kernel("boolean(int64[::1], int64, int64[::1], int64, int64)")
def _is_string_less(
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


@kernel(
    "int64(int64[::1], uint8[::1], int64, int64[::1], int64[::1], int64, int64, int64[::1], int64,"
    " int64, int64, int64[::1])"
)
def _find_block(
    arena: np.ndarray,
    marks: np.ndarray,
    shift: int,
    bucket_pages: np.ndarray,
    record_pages: np.ndarray,
    bucket_base: int,
    record_base: int,
    keys: np.ndarray,
    first: int,
    stop: int,
    k: int,
    found: np.ndarray,
) -> int:
    """Physical addresses of the records of the rows [first, stop), until one needs more.

    Step by step for all rows: what one row waits for in memory, the processor fetches for many.

    Returns:
        The first row whose group is new or frozen, `stop` if none is.
    """
    head = resolve(bucket_pages, 0, shift)
    buckets = arena[head + BUCKETS]
    low_power = arena[head + LOW_POWER]
    rows = stop - first
    for i in range(rows):
        h = _hash_words(keys, (first + i) * k, k)
        found[i] = _bucket_of(h, buckets, low_power) + (1 << shift)
    for i in range(rows):
        found[i] = arena[place(bucket_pages, bucket_base, found[i], shift)]
    unready = np.int64(0)
    for i in range(rows):
        link = found[i]
        address = np.int64(-1)
        while link != 0:
            address = place(record_pages, record_base, link - 1, shift)
            same = True
            for j in range(k):
                if arena[address + 1 + j] != keys[(first + i) * k + j]:
                    same = False
                    break
            if same:
                break
            link = arena[address]
        found[i] = address if link != 0 else -1
    for i in range(rows):
        unready |= found[i] >> 63
        unready |= mark_of(marks, shift, max(found[i], 0)) ^ DIRTY
    if unready != 0:
        for i in range(rows):
            if found[i] < 0 or not touch_unfrozen(marks, shift, found[i]):
                return first + i
    return stop


@kernel(
    "int64(int64[::1], float64[::1], int64, int64[::1], int64, int64, int64[:,::1],"
    " int64[:,::1], float64[:,::1], uint8[:,::1], int64, int64, int64[::1], int64[:,::1])"
)
def _update_found(
    arena: np.ndarray,
    arena_floats: np.ndarray,
    shift: int,
    text_pages: np.ndarray,
    k: int,
    v: int,
    plan: np.ndarray,
    arguments: np.ndarray,
    float_arguments: np.ndarray,
    is_valid: np.ndarray,
    first: int,
    stop: int,
    found: np.ndarray,
    running: np.ndarray,
) -> int:
    """Update the groups of rows [first, stop), of which the places are found and dirty.

    Returns `stop`, or -1 - p if aggregate p overflowed.
    """
    with_nulls = is_valid.shape[1] > 0
    with_running = running.shape[0] > 0
    for i in range(first, stop):
        base = found[i - first] + 1 + k
        for p in range(plan.shape[0]):
            operation = plan[p, 0]
            at = base + plan[p, 1]
            if operation == COUNT_ALL:
                arena[at] += 1
                continue
            row = plan[p, 2]
            if with_nulls and not is_valid[row, i]:
                continue
            seen = arena[at]
            arena[at] = seen + 1
            if operation == COUNT:
                continue
            value = arguments[row, i]
            if operation == SUM_INT:
                old = arena[at + 1]
                total = old + value
                if ((old ^ total) & (value ^ total)) < 0:
                    return -1 - p
                arena[at + 1] = total
            elif operation == SUM_FLOAT:
                arena_floats[at + 1] += float_arguments[row, i]
            elif operation == SUM_DECIMAL:
                low = np.uint64(arena[at + 1])
                low_total = low + np.uint64(value)
                carry = np.int64(1) if low_total < low else np.int64(0)
                old = arena[at + 2]
                high = arguments[row + 1, i]
                total = old + high + carry
                if ((old ^ total) & (high ^ total)) < 0:
                    return -1 - p
                arena[at + 1] = np.int64(low_total)
                arena[at + 2] = total
            elif operation == MIN_WORD:
                if seen == 0 or value < arena[at + 1]:
                    arena[at + 1] = value
            elif operation == MAX_WORD:
                if seen == 0 or value > arena[at + 1]:
                    arena[at + 1] = value
            elif operation in (MIN_DECIMAL, MAX_DECIMAL):
                high = arguments[row + 1, i]
                old = arena[at + 2]
                low = np.uint64(arena[at + 1])
                if operation == MIN_DECIMAL:
                    better = high < old or (high == old and np.uint64(value) < low)
                else:
                    better = high > old or (high == old and np.uint64(value) > low)
                if seen == 0 or better:
                    arena[at + 1] = value
                    arena[at + 2] = high
            elif operation == MIN_STRING:
                if seen == 0 or _is_string_less(arena, shift, text_pages, value, arena[at + 1]):
                    arena[at + 1] = value
            elif operation == MAX_STRING and (
                seen == 0 or _is_string_less(arena, shift, text_pages, arena[at + 1], value)
            ):
                arena[at + 1] = value
        if with_running:
            for j in range(v):
                running[i, j] = arena[base + j]
    return stop


@kernel(
    "int64(int64[::1], float64[::1], uint8[::1], int64[::1], int64, int64[::1], int64[::1], int64,"
    " int64, int64[::1], int64[:,::1], int64, int64[:,::1], int64[:,::1], float64[:,::1],"
    " uint8[:,::1], int64, int64[:,::1])"
)
def aggregate(
    arena: np.ndarray,
    arena_floats: np.ndarray,
    marks: np.ndarray,
    free: np.ndarray,
    shift: int,
    bucket_pages: np.ndarray,
    record_pages: np.ndarray,
    bucket_base: int,
    record_base: int,
    text_pages: np.ndarray,
    keys: np.ndarray,
    v: int,
    plan: np.ndarray,
    arguments: np.ndarray,
    float_arguments: np.ndarray,
    is_valid: np.ndarray,
    start: int,
    running: np.ndarray,
) -> int:
    """Find or insert each row's group and update its accumulators, in row order.

    Args:
        arena_floats: The arena seen as float64.
        bucket_base: `PageManager.base_of` the buckets.
        record_base: And of the records.
        keys: int64 (n, k).
        v: Accumulator words per group.
        plan: int64 (m, 3): operation, first accumulator word, first row of `arguments`.
        arguments: int64 (words, n); a decimal takes two rows, low word first.
        float_arguments: The same memory seen as float64.
        is_valid: uint8 (words, n); (words, 0) if no argument is null.
        running: int64 (n, v): the accumulators after each row; (0, v) if not wanted.

    Returns:
        The first row not done for want of pages, n if all are done, or -1 - p if the
        aggregate p of the plan overflowed.
    """
    n, k = keys.shape
    flat = keys.reshape(n * k)
    found = np.empty(_BLOCK, dtype=np.int64)
    rows = _BLOCK
    i = start
    while i < n:
        stop = min(n, i + rows)
        found_before = _find_block(
            arena,
            marks,
            shift,
            bucket_pages,
            record_pages,
            bucket_base,
            record_base,
            flat,
            i,
            stop,
            k,
            found,
        )
        i = _update_found(
            arena,
            arena_floats,
            shift,
            text_pages,
            k,
            v,
            plan,
            arguments,
            float_arguments,
            is_valid,
            i,
            found_before,
            found,
            running,
        )
        if i < 0:
            return i
        if i == stop:
            rows = min(_BLOCK, 2 * rows)
            continue
        rows = 1  # Where one group is new or frozen, others are: look no further ahead for now.
        head = resolve(bucket_pages, 0, shift)
        h = _hash_words(flat, i * k, k)
        b = _bucket_of(h, arena[head + BUCKETS], arena[head + LOW_POWER])
        logical = _find(arena, shift, bucket_pages, record_pages, flat, i * k, k, b)
        if logical < 0:
            logical = _insert(
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
        if logical < 0 or touch(arena, marks, free, shift, record_pages, logical) < 0:
            return i
    return n


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


def warm_up() -> int:
    """Have every kernel compiled or loaded; for the process that forks the others.

    Importing this module already does it, since all signatures are explicit. Returns how many
    kernels there are.
    """
    return sum(1 for value in globals().values() if hasattr(value, "py_func"))
