"""Arrays and maps on Arrow: rows taken apart into their parts, and put together again.

What rearranges arrays works on *positions* in one pool of all parts, so that it is the same for
every type of element. What compares parts works on their *ranks*: equal parts have equal ranks, and
ranks are ordered as Spark orders the parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.api.expressions.types import name_of
from holdfast.api.expressions.values import Column
from holdfast.core.model.nested_types import is_nested
from holdfast.errors import UnsupportedError

Row = list[int] | None
"""One array as positions or ranks; None: the array is null."""


@dataclass(frozen=True, slots=True)
class Parts:
    """A column of arrays or maps, taken apart.

    Attributes:
        lengths: Parts of each row, 0 where it is null.
        valid: Which rows are not null.
        values: All elements of an array; of a map its entries, as structs of key and value.
    """

    lengths: npt.NDArray[np.int64]
    valid: npt.NDArray[np.bool_]
    values: pa.Array

    @property
    def rows(self) -> npt.NDArray[np.int64]:
        """To which row each part belongs."""
        return np.repeat(np.arange(len(self.lengths)), self.lengths)

    @property
    def begins(self) -> npt.NDArray[np.int64]:
        """Where each row's parts begin."""
        begins: npt.NDArray[np.int64] = np.cumsum(self.lengths) - self.lengths
        return begins

    def positions(self, base: int = 0) -> list[Row]:
        """Where each row's parts stand in a pool in which the first has position `base`."""
        rows: list[Row] = []
        begin = base
        for length, is_valid in zip(self.lengths.tolist(), self.valid.tolist(), strict=True):
            rows.append(list(range(begin, begin + length)) if is_valid else None)
            begin += length
        return rows


def parts_of(column: pa.Array) -> Parts:
    """Take arrays or maps apart."""
    valid = np.asarray(column.is_valid().to_numpy(zero_copy_only=False), bool)
    if pa.types.is_map(column.type):
        fresh = column.take(pa.array(np.arange(len(column)), pa.int64()))
        offsets = fresh.offsets.to_numpy()
        values = pa.StructArray.from_arrays([fresh.keys, fresh.items], ["key", "value"])
        return Parts(np.diff(offsets).astype(np.int64), valid, values)
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
    return Parts(lengths.astype(np.int64), valid, column.flatten())


def arrays_from(
    lengths: npt.NDArray[np.int64], valid: npt.NDArray[np.bool_], values: pa.Array
) -> pa.Array:
    """Arrays of these lengths."""
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())
    return pa.ListArray.from_arrays(offsets, values, mask=pa.array(~valid))


def maps_from(
    lengths: npt.NDArray[np.int64], valid: npt.NDArray[np.bool_], keys: pa.Array, items: pa.Array
) -> pa.Array:
    """Maps of these sizes."""
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())
    return pa.MapArray.from_arrays(offsets, keys, items, mask=pa.array(~valid))


@dataclass(frozen=True, slots=True)
class Aligned:
    """Several columns of arrays next to each other; the shorter ones of a row go on with nulls.

    Attributes:
        lengths: Of each row its longest array's; 0 where one of them is null.
        valid: Where none of them is null.
        rows: To which row each place belongs.
        columns: Per column its element at each place.
    """

    lengths: npt.NDArray[np.int64]
    valid: npt.NDArray[np.bool_]
    rows: npt.NDArray[np.int64]
    columns: tuple[pa.Array, ...]


def aligned(several: Sequence[Parts]) -> Aligned:
    """Put what stands at the same place of a row's arrays side by side."""
    valid = np.logical_and.reduce([parts.valid for parts in several])
    longest = np.maximum.reduce([parts.lengths for parts in several])
    lengths = np.where(valid, longest, 0)
    rows = np.repeat(np.arange(len(valid)), lengths)
    place = np.arange(len(rows)) - (np.cumsum(lengths) - lengths)[rows]
    columns = (
        parts.values.take(pa.array(parts.begins[rows] + place, mask=place >= parts.lengths[rows]))
        for parts in several
    )
    return Aligned(lengths, valid, rows, tuple(columns))


def arrays_of_positions(rows: Iterable[Sequence[int | None] | None], pool: pa.Array) -> pa.Array:
    """Arrays of what stands at these positions of a pool; None is a null element, or array."""
    flat: list[int | None] = []
    lengths, valid = [], []
    for row in rows:
        lengths.append(len(row) if row is not None else 0)
        valid.append(row is not None)
        flat.extend(row or ())
    values = pool.take(pa.array(flat, pa.int64()))
    return arrays_from(np.array(lengths, np.int64), np.array(valid, bool), values)


def ranked(pool: pa.Array, text: str) -> tuple[npt.NDArray[np.int64], pa.Array]:
    """The rank of each value in a pool, -1 for null, and the values by rank.

    Raises:
        UnsupportedError: The values are nested themselves.
    """
    check_comparable(pool.type, text)
    if pa.types.is_null(pool.type):
        return np.full(len(pool), -1), pool.slice(0, 0)
    if pa.types.is_floating(pool.type):
        pool = pc.if_else(pc.equal(pool, 0), pa.scalar(0.0, pool.type), pool)  # No -0.0.
    distinct = pc.drop_null(pc.unique(pool))
    by_rank = distinct.take(pc.array_sort_indices(distinct))
    ranks = pc.index_in(pool, by_rank).fill_null(-1).to_numpy(zero_copy_only=False)
    return ranks.astype(np.int64), by_rank


def check_comparable(of: pa.DataType, text: str) -> None:
    """Raises `UnsupportedError` for parts that are nested themselves."""
    if is_nested(of):
        raise UnsupportedError(f"{text}: {name_of(of)} is not compared here")


def per_array(kernel: Callable[..., pa.Array]) -> Callable[..., Column]:
    """A kernel that takes arrays only, applied to scalars as well; all of them: a scalar again."""

    def apply(*columns: Column) -> Column:
        rows = [len(column) for column in columns if not isinstance(column, pa.Scalar)]
        count = rows[0] if rows else 1
        arrays = [pa.repeat(c, count) if isinstance(c, pa.Scalar) else c for c in columns]
        result = kernel(*arrays)
        return result if rows else result[0]

    return apply
