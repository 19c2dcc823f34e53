"""Types of columns that hold others: arrays, maps and structs. It loads nothing else."""

from __future__ import annotations

import pyarrow as pa


def is_nested(kind: pa.DataType) -> bool:
    """An array, a map or a struct."""
    return bool(pa.types.is_list(kind) or pa.types.is_map(kind) or pa.types.is_struct(kind))


def canonical(kind: pa.DataType) -> pa.DataType:
    """A type as streams have it: what an array, a map's values or a struct hold may be null, and
    moments are in microseconds UTC.
    """
    if pa.types.is_list(kind):
        return pa.list_(canonical(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(canonical(kind.key_type), canonical(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, canonical(field.type)) for field in kind])
    is_moment = pa.types.is_timestamp(kind) and kind.tz is not None
    return pa.timestamp("us", tz="UTC") if is_moment else kind
