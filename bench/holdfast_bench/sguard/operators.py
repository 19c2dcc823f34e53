"""What an update costs on pages, plain arrays and ordinary containers. [SGuard Tables 5, 6]"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from holdfast.core.state import aggregate_kernels, kernels
from holdfast.core.state.page_manager import PageManager
from holdfast.core.state.unordered_map import UnorderedMap
from holdfast_bench.sguard.plain import plain_aggregate

KEY_WORDS: Final = 2
VALUE_WORDS: Final = 5
_PLAN: Final = np.array(
    [
        [aggregate_kernels.COUNT_ALL, 0, 0],
        [aggregate_kernels.MIN_WORD, 1, 0],
        [aggregate_kernels.MAX_WORD, 3, 0],
    ],
    dtype=np.int64,
)
_BATCH: Final = 1 << 15
_RECORD_BYTES: Final = 8 * (1 + KEY_WORDS + VALUE_WORDS) + 8
_NOTHING: Final = np.zeros(0, dtype=np.int64)
PAGE_SIZES: Final = (8 << 10, 64 << 10)


def aggregate_costs(
    sizes_mb: tuple[int, ...], batches: int, repeats: int, say: Callable[[str], None]
) -> list[dict[str, Any]]:
    """Nanoseconds per tuple of count, min and max per group, by size of the state.

    Pages and plain arrays take turns, time after time, so that both see the same machine; the ratio
    is the median of their ratios.
    """
    plain = plain_aggregate()
    return [
        _aggregate_cost(size_mb, page_bytes, batches, repeats, plain, say)
        for size_mb in sizes_mb
        for page_bytes in PAGE_SIZES
    ]


def _aggregate_cost(
    size_mb: int,
    page_bytes: int,
    batches: int,
    repeats: int,
    plain: Any,
    say: Callable[[str], None],
) -> dict[str, Any]:
    groups = size_mb * 10**6 // _RECORD_BYTES
    pages = PageManager(page_bytes)
    paged = UnorderedMap(pages, KEY_WORDS, VALUE_WORDS)
    keys = np.zeros((groups, KEY_WORDS), dtype=np.int64)
    keys[:, 1] = np.arange(groups)
    paged.upsert_slots(keys)
    flat, buckets, records = _flattened(pages, paged)
    work = _batches(groups, batches)
    on_pages: list[float] = []
    on_arrays: list[float] = []
    for _ in range(repeats + 1):
        arrays = (flat, pages.marks, pages.free, pages.shift, buckets, records, 0, int(records[0]))
        on_arrays.append(_timed(plain, arrays, work))
        held = (pages.arena, pages.marks, pages.free, pages.shift)
        on_pages.append(
            _timed(
                aggregate_kernels.aggregate,
                (*held, paged.bucket_pages, paged.record_pages, *paged.bases()),
                work,
            )
        )
    tuples = batches * _BATCH
    ratios = [p / a for p, a in zip(on_pages[1:], on_arrays[1:], strict=True)]
    result = {
        "size_mb": size_mb,
        "page_bytes": page_bytes,
        "groups": groups,
        "pages_ns": statistics.median(on_pages[1:]) / tuples * 1e9,
        "arrays_ns": statistics.median(on_arrays[1:]) / tuples * 1e9,
        "ratio": statistics.median(ratios),
        "dict_ns": _dict_cost(groups, work[0][0]),
    }
    say(f"aggregate, {size_mb} MB: {result['pages_ns']:.0f} ns, ratio {result['ratio']:.3f}")
    return result


def _flattened(
    pages: PageManager, paged: UnorderedMap
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The same content as one array: the array, where its buckets and its records begin."""
    tables = np.concatenate([paged.bucket_pages, paged.record_pages])
    flat = _aligned(len(tables) * pages.page_words)
    kernels.copy_pages(pages.arena, pages.shift, tables, flat)
    records_at = len(paged.bucket_pages) * pages.page_words
    # Tables keep their lengths, by which the kernel sees when a part is full.
    buckets = np.zeros(len(paged.bucket_pages), dtype=np.int64)
    records = np.full(len(paged.record_pages), records_at, dtype=np.int64)
    return flat, buckets, records


def _aligned(words: int) -> np.ndarray:
    """Zeros that begin with a cache line, as the pages do."""
    memory = np.zeros(words + 8, dtype=np.int64)
    skipped = -memory.ctypes.data % 64 // 8
    return memory[skipped : skipped + words]


def _batches(groups: int, count: int) -> list[tuple[np.ndarray, np.ndarray]]:
    random = np.random.default_rng(1)
    work = []
    for _ in range(count):
        keys = np.zeros((_BATCH, KEY_WORDS), dtype=np.int64)
        keys[:, 1] = random.integers(0, groups, _BATCH)
        work.append((keys, random.integers(0, 1 << 40, (1, _BATCH), dtype=np.int64)))
    return work


def _timed(kernel: Any, state: tuple[Any, ...], work: list[tuple[np.ndarray, np.ndarray]]) -> float:
    arena = state[0]
    running = np.empty((0, VALUE_WORDS), dtype=np.int64)
    mask = np.ones((1, 0), dtype=np.uint8)
    began = time.perf_counter()
    for keys, values in work:
        done = kernel(
            arena,
            arena.view(np.float64),
            *state[1:],
            _NOTHING,
            keys,
            VALUE_WORDS,
            _PLAN,
            values,
            values.view(np.float64),
            mask,
            0,
            running,
        )
        if done != len(keys):
            raise RuntimeError(f"the kernel stopped at row {done}")
    return time.perf_counter() - began


def _dict_cost(groups: int, keys: np.ndarray) -> float:
    """The same in a dictionary of lists, tuple by tuple, as a plain Python program has it."""
    state = {key: [0, key, key] for key in range(groups)}
    wanted = keys[:, 1].tolist()
    began = time.perf_counter()
    for key in wanted:
        group = state[key]
        group[0] += 1
        group[1] = min(group[1], key)
        group[2] = max(group[2], key)
    return (time.perf_counter() - began) / len(wanted) * 1e9
