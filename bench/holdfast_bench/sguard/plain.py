"""The kernels over plain arrays: the same code without pages, to see what pages cost.

A kernel's source is compiled a second time with other meanings for the functions through which it
reaches its state: a logical address is the place itself, and there are no marks to look at.
"""

from __future__ import annotations

from types import FunctionType
from typing import Any

import numba
import numpy as np

from holdfast.core.state import aggregate_kernels, hash_kernels, kernels

_OTHER = ("resolve", "place", "touch", "mark_of")
_SAME = (
    (hash_kernels, ("find_record", "split_bucket", "insert_record")),
    (
        aggregate_kernels,
        ("_find_rows", "_find_block", "_enter_block", "_update_found", "aggregate"),
    ),
)
_AGGREGATE = (
    "int64(int64[::1], float64[::1], uint8[::1], int64[::1], int64, int64[::1], int64[::1], int64,"
    " int64, int64[::1], int64[:,::1], int64, int64[:,::1], int64[:,::1], float64[:,::1],"
    " uint8[:,::1], int64, int64[:,::1])"
)


def _resolve(pages: np.ndarray, logical: int, shift: int) -> int:
    """The logical address is the place; `pages` holds where the part begins."""
    address: int = pages[0] + logical
    return address


def _place(pages: np.ndarray, base: int, logical: int, shift: int) -> int:
    return base + logical


def _touch(
    arena: np.ndarray,
    marks: np.ndarray,
    free: np.ndarray,
    shift: int,
    pages: np.ndarray,
    logical: int,
) -> int:
    address: int = pages[0] + logical
    return address


def _mark_of(marks: np.ndarray, shift: int, address: int) -> int:
    return kernels.DIRTY


def plain_aggregate() -> Any:
    """`aggregate` over plain arrays: page tables are of one word, where the part begins."""
    scope: dict[str, Any] = dict(vars(hash_kernels)) | dict(vars(aggregate_kernels))
    for name, function in zip(_OTHER, (_resolve, _place, _touch, _mark_of), strict=True):
        scope[name] = numba.njit(inline="always")(function)
    for module, names in _SAME:
        for name in names:
            source = getattr(module, name).py_func
            copy = FunctionType(source.__code__, scope, name, source.__defaults__)
            signature = _AGGREGATE if name == "aggregate" else None
            scope[name] = numba.njit(signature, nogil=True, _nrt=name == "aggregate")(copy)
    return scope["aggregate"]
