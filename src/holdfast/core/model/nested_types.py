"""Types of columns that hold others: arrays, maps and structs. It loads nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Callable


def is_nested(kind: pa.DataType) -> bool:
    """An array, a map or a struct."""
    return bool(pa.types.is_list(kind) or pa.types.is_map(kind) or pa.types.is_struct(kind))


def holds(kind: pa.DataType, is_kind: Callable[[pa.DataType], bool]) -> bool:
    """Whether it is of a kind, or a type within it is."""
    return is_kind(kind) or any(holds(kind.field(n).type, is_kind) for n in range(kind.num_fields))


def with_parts(
    kind: pa.DataType,
    of_part: Callable[[pa.DataType], pa.DataType],
    *,
    keeps_needed: bool = False,
) -> pa.DataType:
    """A type with what holds nothing in it replaced by what a function gives for that.

    What an array, a map's values or a struct hold may then be null, unless `keeps_needed`.
    """

    def part(name: str, of: pa.Field) -> pa.Field:
        made = with_parts(of.type, of_part, keeps_needed=keeps_needed)
        return pa.field(name, made, nullable=of.nullable or not keeps_needed)

    if pa.types.is_list(kind):
        return pa.list_(part("item", kind.value_field))
    if pa.types.is_map(kind):
        key = with_parts(kind.key_type, of_part, keeps_needed=keeps_needed)
        return pa.map_(key, part("value", kind.item_field))
    if pa.types.is_struct(kind):
        return pa.struct([part(field.name, field) for field in kind])
    return of_part(kind)


def canonical(kind: pa.DataType) -> pa.DataType:
    """A type as streams have it: what an array, a map's values or a struct hold may be null, and
    moments are in microseconds UTC.
    """
    return with_parts(kind, _canonical_part)


def of_stream(kind: pa.DataType) -> pa.DataType:
    """A type as streams have it: arrays, maps and structs canonically, others as they are."""
    return canonical(kind) if is_nested(kind) else kind


def declared(kind: pa.DataType) -> pa.DataType:
    """As `canonical`, but what must not be null in it stays so."""
    return with_parts(kind, _canonical_part, keeps_needed=True)


def _canonical_part(kind: pa.DataType) -> pa.DataType:
    is_moment = pa.types.is_timestamp(kind) and kind.tz is not None
    return pa.timestamp("us", tz="UTC") if is_moment else kind
