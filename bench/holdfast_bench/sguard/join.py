"""What a join costs per tuple, on pages and on ordinary containers. [SGuard Table 5]"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pyarrow as pa

from holdfast.core.operators.base import Rows
from holdfast.core.operators.incremental_join import IncrementalJoin
from holdfast.core.operators.join import JoinLayout, OutputField
from holdfast.core.state.page_manager import PageManager

SCHEMA: Final = pa.schema([("id", pa.int64()), ("value", pa.int64())])
_ROW_BYTES: Final = 6 * 8
_TUPLES: Final = 12_000
_BATCH: Final = 1_000
_LOW: Final = np.zeros(1, dtype=np.int64)


def join_costs(
    windows_kb: tuple[int, ...], repeats: int, say: Callable[[str], None]
) -> list[dict[str, Any]]:
    """Nanoseconds per tuple of a self-join on unique ids, by what one side holds.

    The paper scans the window for every tuple, here it is looked up by its key: what the two have
    in common is the question what pages cost beside ordinary containers.
    """
    results: list[dict[str, Any]] = []
    for window_kb in windows_kb:
        held = window_kb * 1024 // _ROW_BYTES
        paged = {
            page_bytes: statistics.median(_paged(held, page_bytes) for _ in range(repeats))
            for page_bytes in (8 << 10, 64 << 10)
        }
        ordinary = statistics.median(_ordinary(held) for _ in range(repeats))
        results.append(
            {
                "window_kb": window_kb,
                "pages_8k_ns": paged[8 << 10],
                "pages_64k_ns": paged[64 << 10],
                "dict_ns": ordinary,
            }
        )
        say(f"join, {window_kb} KB: {results[-1]}")
    return results


def _rows(ids: np.ndarray) -> Rows:
    batch = pa.RecordBatch.from_arrays([pa.array(ids), pa.array(ids)], schema=SCHEMA)
    zeros = np.zeros(len(ids), dtype=np.int64)
    return Rows(batch, zeros, np.arange(len(ids), dtype=np.int64), 0)


def _paged(held: int, page_bytes: int) -> float:
    fields: list[OutputField] = [("left", "id", "id"), ("right", "value", "value")]
    layout = JoinLayout("join", (SCHEMA, SCHEMA), (["id"], ["id"]), fields)
    join = IncrementalJoin(layout, manager=PageManager(page_bytes))
    join.process([None, _rows(np.arange(held, dtype=np.int64))], _LOW, 0)
    ids = np.random.default_rng(1).integers(0, held, _TUPLES)
    join.process([_rows(ids[:_BATCH]), None], _LOW, 0)
    began = time.perf_counter()
    for at in range(0, _TUPLES, _BATCH):
        join.process([_rows(ids[at : at + _BATCH]), None], _LOW, 0)
    return (time.perf_counter() - began) / _TUPLES * 1e9


def _ordinary(held: int) -> float:
    """The same with dictionaries of lists, tuple by tuple."""
    right = {key: [(key, key)] for key in range(held)}
    left: dict[int, list[tuple[int, int]]] = {}
    ids = np.random.default_rng(1).integers(0, held, _TUPLES).tolist()
    found: list[tuple[int, int]] = []
    began = time.perf_counter()
    for key in ids:
        left.setdefault(key, []).append((key, key))
        found.extend((key, other[1]) for other in right.get(key, ()))
    return (time.perf_counter() - began) / _TUPLES * 1e9
