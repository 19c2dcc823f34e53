"""Results of aggregates that keep all values of a group: lists, sets and percentiles.

A group's values lie behind each other in one byte string, each behind its length (4 bytes), as
`nested_values.py` writes it; string pages make it longer without copying it. So the state grows
with each value, copies included. Sets and percentiles do not depend on the order of the values: a
set is put out in ascending order, as Spark's `sort_array(collect_set(x))` gives it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.core.errors import InvariantViolation, LocalProtocolError
from holdfast.core.model.nested_types import is_nested
from holdfast.core.model.nested_values import from_places, to_bytes
from holdfast.core.model.stable_hash import string_parts
from holdfast.core.state.string_kernels import places_behind_lengths

LISTS: Final = ("collect_list", "collect_set")
PERCENTILES: Final = ("percentile", "percentiles")
RANKS: Final = ("approx_percentile", "approx_percentiles")
COLLECTING: Final = (*LISTS, *PERCENTILES, *RANKS)
"""Functions that keep all values; the plural ones have several percentages."""


def result_of(function: str, kind: pa.DataType) -> pa.DataType | None:
    """The type of results over values of type `kind`; None: the function does not take these."""
    t = pa.types
    if function in LISTS:
        return None if function == "collect_set" and _holds_map(kind) else pa.list_(kind)
    is_number = t.is_integer(kind) or t.is_floating(kind) or t.is_decimal(kind)
    if function in PERCENTILES:
        single = pa.float64() if is_number else None
    else:
        single = kind if is_number or t.is_date(kind) or t.is_timestamp(kind) else None
    if single is None:
        return None
    return pa.list_(single) if function.endswith("s") else single


def encoded(column: pa.Array) -> pa.Array:
    """Values as they are appended to those of their groups; large binary, null where they are."""
    bodies = to_bytes(column)
    offsets, _ = string_parts(bodies)
    lengths = np.diff(offsets).astype("<u4")
    framed = pa.Array.from_buffers(pa.binary(4), len(lengths), [None, pa.py_buffer(lengths)])
    nothing = pa.scalar(b"", pa.large_binary())
    return pc.binary_join_element_wise(framed.cast(pa.large_binary()), bodies, nothing)


def finished(
    function: str,
    kind: pa.DataType,
    percentages: Sequence[float],
    counts: np.ndarray,
    texts: pa.Array,
) -> pa.Array:
    """The results of groups.

    Args:
        function: One of `COLLECTING`.
        kind: Of the values.
        percentages: From 0 to 1; one, unless the function is a plural.
        counts: int64 (groups,): values of each.
        texts: Their values, large binary.

    Cost: O(n log n) for n values, of lists O(n).
    """
    offsets, data = string_parts(texts)
    places = np.empty(int(counts.sum()), dtype=np.int64)
    if not places_behind_lengths(data, offsets, counts, places):
        raise InvariantViolation(f"{function}: values of a group are not as many as were counted")
    values = from_places(kind, data, places)
    of = np.repeat(np.arange(len(counts)), counts)
    if function == "collect_list":
        return _lists(counts, values)
    order = _ascending(of, values)
    values, of = values.take(pa.array(order)), of[order]
    if function == "collect_set":
        is_new = _is_new(of, values)
        return _lists(np.bincount(of[is_new], minlength=len(counts)), values.filter(is_new))
    picked = _interpolated if function in PERCENTILES else _ranked
    results = [picked(values, counts, each) for each in percentages]
    if not function.endswith("s"):
        return results[0]
    mask = counts == 0
    several = pa.concat_arrays(results)
    rows = np.arange(len(counts))[~mask]
    at = (rows[:, None] + np.arange(len(results)) * len(counts)).reshape(-1)
    ends = np.concatenate([[0], np.cumsum(np.where(mask, 0, len(results)))])
    return pa.ListArray.from_arrays(
        pa.array(ends, pa.int32()), several.take(pa.array(at)), mask=pa.array(mask)
    )


def _lists(counts: np.ndarray, values: pa.Array) -> pa.Array:
    ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), values)


def _ascending(of: np.ndarray, values: pa.Array) -> np.ndarray:
    """Row numbers by group and value, as Spark orders values: NaN is greater than all others."""
    if not is_nested(values.type):
        table = pa.table({"of": of, "value": values})
        keys = [("of", "ascending"), ("value", "ascending")]
        return np.asarray(pc.sort_indices(table, sort_keys=keys).to_numpy(), np.int64)
    known = [(group, _sortable(value)) for group, value in zip(of, values.to_pylist(), strict=True)]
    return np.array(sorted(range(len(known)), key=known.__getitem__), dtype=np.int64)


def _sortable(value: Any) -> tuple[Any, ...]:
    """A nested value as Python orders it like Spark: nulls are least, NaN is greatest."""
    match value:
        case None:
            return (0,)
        case dict():
            return (1, *map(_sortable, value.values()))
        case list():
            return (1, tuple(map(_sortable, value)))
        case float():
            return (1, value != value, 0.0 if value != value else value)
    return (1, value)


def _is_new(of: np.ndarray, values: pa.Array) -> np.ndarray:
    """Which of ordered values differ from the one before; Spark's -0.0 is 0.0 here, and NaN NaN."""
    if not len(values):
        return np.zeros(0, np.bool_)
    bodies = to_bytes(values)
    same = np.asarray(pc.equal(bodies[1:], bodies[:-1]))
    if pa.types.is_floating(values.type):
        numbers = values.to_numpy(zero_copy_only=False)
        same |= numbers[1:] == numbers[:-1]
        same |= np.isnan(numbers[1:]) & np.isnan(numbers[:-1])
    return np.concatenate([[True], ~same | (of[1:] != of[:-1])])


def _begins(counts: np.ndarray) -> np.ndarray:
    begins: np.ndarray = np.cumsum(counts) - counts
    return begins


def _taken(values: pa.Array, at: np.ndarray, is_empty: np.ndarray) -> pa.Array:
    return values.take(pa.array(np.where(is_empty, 0, at), mask=is_empty))


def _interpolated(values: pa.Array, counts: np.ndarray, percentage: float) -> pa.Array:
    """Between the two values next to the place, step by step as Spark's `Percentile`."""
    is_empty = counts == 0
    position = np.maximum(counts - 1, 0) * percentage
    lower, higher = np.floor(position), np.ceil(position)
    begins = _begins(counts)
    low = _taken(values, begins + lower.astype(np.int64), is_empty)
    high = _taken(values, begins + higher.astype(np.int64), is_empty)
    is_same = np.asarray(pc.fill_null(pc.equal(low, high), True)) | (lower == higher)
    below, above = _doubles(low), _doubles(high)
    with np.errstate(invalid="ignore"):
        between = below + (above - below) * (position - lower)
    return pa.array(np.where(is_same, below, between), mask=is_empty, from_pandas=False)


def _doubles(values: pa.Array) -> np.ndarray:
    if pa.types.is_decimal(values.type):
        known = [0.0 if value is None else float(value) for value in values.to_pylist()]
        return np.array(known, dtype=np.float64)
    found = values.fill_null(0).cast(pa.float64(), safe=False)
    return np.asarray(found.to_numpy(zero_copy_only=False))


def _ranked(values: pa.Array, counts: np.ndarray, percentage: float) -> pa.Array:
    """The least value such that so many of all are no greater."""
    rank = np.ceil(percentage * counts).astype(np.int64)
    at = _begins(counts) + np.maximum(rank - 1, 0)
    return _taken(values, at, counts == 0)


def _holds_map(kind: pa.DataType) -> bool:
    parts = (kind.field(n).type for n in range(kind.num_fields))
    return bool(pa.types.is_map(kind)) or any(map(_holds_map, parts))


def require_percentages(name: str, percentages: Sequence[float]) -> None:
    """Raise `LocalProtocolError` for a percentage that is none."""
    wrong = [each for each in percentages if not 0 <= each <= 1]
    if wrong or not percentages:
        raise LocalProtocolError(f"{name}: percentages are from 0.0 to 1.0, not {wrong}")
