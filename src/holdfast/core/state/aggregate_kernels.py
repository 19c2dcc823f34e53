"""The inner loop of aggregates: find each row's group, update its accumulators.

Rows are looked up in blocks; groups that are new are entered; then all are updated. Conventions as
in `kernels.py`.
"""

# Signatures are numba's; to mypy, machine words and Python integers are different types.
# mypy: disable-error-code="no-any-return,return-value,assignment,arg-type"

from __future__ import annotations

from typing import Final

import numpy as np

from holdfast.core.state.hash_kernels import (
    BUCKETS,
    LOW_POWER,
    bucket_of,
    find_record,
    hash_words,
    insert_record,
)
from holdfast.core.state.kernels import (
    DIRTY,
    inlined,
    kernel,
    mark_of,
    place,
    resolve,
    touch,
)
from holdfast.core.state.string_kernels import continue_string, is_string_less

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
FIRST: Final = 11
LAST: Final = 12
MIN_BY: Final = 13
MAX_BY: Final = 14
BIT_AND: Final = 15
BIT_OR: Final = 16
BIT_XOR: Final = 17
MOMENTS: Final = 18
COLLECT: Final = 19

_BLOCK: Final = 64
"""Rows whose groups are looked up together."""


@inlined
def _find_rows(
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
) -> bool:
    """See `_find_block`."""
    head = resolve(bucket_pages, 0, shift)
    buckets = arena[head + BUCKETS]
    low_power = arena[head + LOW_POWER]
    rows = stop - first
    for i in range(rows):
        h = hash_words(keys, (first + i) * k, k)
        found[i] = bucket_of(h, buckets, low_power) + (1 << shift)
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
    return unready == 0


@kernel(
    "boolean(int64[::1], uint8[::1], int64, int64[::1], int64[::1], int64, int64, int64[::1],"
    " int64, int64, int64, int64[::1])"
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
) -> bool:
    """Physical addresses of the records of the rows [first, stop), -1 where a group is new.

    Step by step for all rows: what one row waits for in memory, the processor fetches for many.

    Returns:
        Whether all are there and dirty.
    """
    if k == 2:  # A key of one column: its words are compared without a loop.
        return _find_rows(
            arena,
            marks,
            shift,
            bucket_pages,
            record_pages,
            bucket_base,
            record_base,
            keys,
            first,
            stop,
            2,
            found,
        )
    return _find_rows(
        arena,
        marks,
        shift,
        bucket_pages,
        record_pages,
        bucket_base,
        record_base,
        keys,
        first,
        stop,
        k,
        found,
    )


@kernel(
    "int64(int64[::1], uint8[::1], int64[::1], int64, int64[::1], int64[::1], int64[::1], int64,"
    " int64, int64, int64, int64[::1])"
)
def _enter_block(
    arena: np.ndarray,
    marks: np.ndarray,
    free: np.ndarray,
    shift: int,
    bucket_pages: np.ndarray,
    record_pages: np.ndarray,
    keys: np.ndarray,
    first: int,
    stop: int,
    k: int,
    v: int,
    found: np.ndarray,
) -> int:
    """Insert or unfreeze the records of the rows [first, stop) that are not there and dirty.

    A dirty record stays where it is, so what has been found of other rows holds.

    Returns:
        The first row for which pages are missing, `stop` if none.
    """
    for i in range(first, stop):
        address = found[i - first]
        if address >= 0 and mark_of(marks, shift, address) == DIRTY:
            continue
        head = resolve(bucket_pages, 0, shift)
        h = hash_words(keys, i * k, k)
        b = bucket_of(h, arena[head + BUCKETS], arena[head + LOW_POWER])
        logical = find_record(arena, shift, bucket_pages, record_pages, keys, i * k, k, b)
        if logical < 0:
            logical = insert_record(
                arena,
                marks,
                free,
                shift,
                bucket_pages,
                record_pages,
                keys,
                i * k,
                k,
                v,
                h,
            )
        if logical < 0:
            return i
        found[i - first] = touch(arena, marks, free, shift, record_pages, logical)
        if found[i - first] < 0:
            return i
    return stop


@inlined
def _pick(
    arena: np.ndarray,
    arena_floats: np.ndarray,
    arguments: np.ndarray,
    float_arguments: np.ndarray,
    operation: int,
    at: int,
    row: int,
    i: int,
    seen: int,
) -> None:
    """Update one accumulator by the row `i`, of an operation from FIRST on; see `update_found`."""
    value = arguments[row, i]
    if operation in (FIRST, LAST):
        if seen == 0 or operation == LAST:
            arena[at + 1] = value
            arena[at + 2] = arguments[row + 1, i]
    elif operation in (MIN_BY, MAX_BY):
        old = arena[at + 1]
        if seen == 0 or (value <= old if operation == MIN_BY else value >= old):
            arena[at + 1] = value
            arena[at + 2] = arguments[row + 1, i]
            arena[at + 3] = arguments[row + 2, i]
    elif operation == BIT_AND:
        arena[at + 1] = value if seen == 0 else arena[at + 1] & value
    elif operation == BIT_OR:
        arena[at + 1] |= value
    elif operation == BIT_XOR:
        arena[at + 1] ^= value
    else:  # Welford's moments, step by step as Spark's.
        delta = float_arguments[row, i] - arena_floats[at + 1]
        part = delta / np.float64(seen + 1)
        arena_floats[at + 1] += part
        arena_floats[at + 2] += delta * (delta - part)


@inlined
def _fold(
    arena: np.ndarray,
    arena_floats: np.ndarray,
    shift: int,
    text_pages: np.ndarray,
    arguments: np.ndarray,
    float_arguments: np.ndarray,
    operation: int,
    at: int,
    row: int,
    i: int,
    seen: int,
) -> bool:
    """Take row i's value into the accumulator at `at`, which has `seen` others; false: overflow."""
    value = arguments[row, i]
    if operation == SUM_INT:
        old = arena[at + 1]
        total = old + value
        if ((old ^ total) & (value ^ total)) < 0:
            return False
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
            return False
        arena[at + 1] = np.int64(low_total)
        arena[at + 2] = total
    elif operation in (MIN_WORD, MAX_WORD):
        old = arena[at + 1]
        if seen == 0 or (value < old if operation == MIN_WORD else value > old):
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
    elif operation == COLLECT:
        continue_string(arena, shift, text_pages, value, arena[at + 1])
        arena[at + 1] = value
    elif operation in (MIN_STRING, MAX_STRING):
        old = arena[at + 1]
        one, other = (value, old) if operation == MIN_STRING else (old, value)
        if seen == 0 or is_string_less(arena, shift, text_pages, one, other):
            arena[at + 1] = value
    else:
        _pick(arena, arena_floats, arguments, float_arguments, operation, at, row, i, seen)
    return True


@kernel(
    "int64(int64[::1], float64[::1], int64, int64[::1], int64, int64, int64[:,::1],"
    " int64[:,::1], float64[:,::1], uint8[:,::1], int64, int64, int64[::1], int64[:,::1])"
)
def update_found(
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

    A place lies `k + 1` words before the accumulators; see `aggregate` for the other arguments.
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
            if not _fold(
                arena,
                arena_floats,
                shift,
                text_pages,
                arguments,
                float_arguments,
                operation,
                at,
                row,
                i,
                seen,
            ):
                return -1 - p
        if with_running:
            for j in range(v):
                running[i, j] = arena[base + j]
    return stop


@kernel(
    "int64(int64[::1], float64[::1], uint8[::1], int64[::1], int64, int64[::1], int64[::1], int64,"
    " int64, int64[::1], int64[:,::1], int64, int64[:,::1], int64[:,::1], float64[:,::1],"
    " uint8[:,::1], int64, int64[:,::1])",
    allocates=True,
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
    i = start
    while i < n:
        stop = ready = min(n, i + _BLOCK)
        if not _find_block(
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
        ):
            ready = _enter_block(
                arena,
                marks,
                free,
                shift,
                bucket_pages,
                record_pages,
                flat,
                i,
                stop,
                k,
                v,
                found,
            )
        i = update_found(
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
            ready,
            found,
            running,
        )
        if i < stop:
            return i
    return n
