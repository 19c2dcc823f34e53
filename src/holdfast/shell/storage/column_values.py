"""A file's values as those of the stream's columns: none becomes another one by its new type.

A column may have become narrower or wider, or a text. Arrow would also take a number for a date or
for a time, and cut off what does not fit; here that is an error, which names both types.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

_ZONED: Final = r"(Z|[T ]\d\d.*[+-]\d\d(:?\d\d)?)$"
"""A time of the day comes before a zone: the end of `2026-11-25` is none."""
_INFINITY: Final = r"(?i)^\s*[+-]?inf(inity)?\s*$"


def as_type(values: pa.Array, to: pa.DataType) -> pa.Array:
    """Values of another type; times without a zone are UTC.

    Raises:
        ValueError: A value would be another one; or one of Arrow's errors.
    """
    if values.type == to:
        return values
    if types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if not _are_alike(values.type, to):
        raise ValueError(f"the file has {values.type}")
    if types.is_timestamp(to):
        return _times(values, to)
    made = values.cast(to)
    of, is_inexact = values.type, types.is_floating(to) or types.is_decimal(to)
    if types.is_floating(of) and is_inexact and not _is_same(made.cast(of), values):
        raise ValueError(f"the file has {of}, and values that are none of {to}")
    if types.is_floating(to) and _is_text(of) and has_infinity(made):
        beyond = pc.and_(pc.is_inf(made), pc.invert(pc.match_substring_regex(values, _INFINITY)))
        if pc.any(beyond).as_py():
            raise ValueError(f"{values.filter(beyond)[0]} is too large")
    return made


def has_infinity(values: pa.Array) -> bool:
    """Whether one of some floating-point numbers is infinite."""
    return bool(pc.any(pc.is_inf(values)).as_py())


def _times(values: pa.Array, to: pa.DataType) -> pa.Array:
    plain = pa.timestamp(to.unit)
    if types.is_large_string(values.type):
        values = values.cast(pa.string())
    if types.is_string(values.type):
        if pc.all(pc.ends_with(values, "Z")).as_py():  # The usual case, without a search.
            return values.cast(to)
        is_zoned = pc.match_substring_regex(values, _ZONED)
        zoned = pc.if_else(is_zoned, values, None).cast(to)
        return pc.coalesce(zoned, pc.if_else(is_zoned, None, values).cast(plain).cast(to))
    if types.is_null(values.type) or values.type.tz is not None:
        return values.cast(to)
    return values.cast(plain).cast(to)


def _are_alike(of: pa.DataType, to: pa.DataType) -> bool:
    """Whether values of one type may be meant as those of the other."""
    if types.is_null(of):
        return True
    if types.is_string(to) or types.is_large_string(to):
        return _is_text(of) or types.is_binary(of) or types.is_integer(of)
    kinds = (types.is_boolean, types.is_date, types.is_timestamp, types.is_time, types.is_duration)
    for is_kind in kinds:
        if is_kind(of) or is_kind(to):
            return bool(is_kind(to) and (_is_text(of) or is_kind(of)))
    return True


def _is_text(of: pa.DataType) -> bool:
    return bool(types.is_string(of) or types.is_large_string(of) or types.is_string_view(of))


def _is_same(made: pa.Array, values: pa.Array) -> bool:
    """Whether numbers are equal; NaN is."""
    is_nan = pc.and_(pc.is_nan(made), pc.is_nan(values))
    return bool(pc.all(pc.or_(pc.equal(made, values), is_nan)).as_py() is not False)


def require_names(has: Sequence[str], schema: pa.Schema, wanted: Collection[str]) -> None:
    """Raise `ValueError` if a file has a column of the schema in other capitals, or a needed none.

    Args:
        has: The file's columns.
        schema: The stream's.
        wanted: Those that are read of the file.
    """
    capitals = {name.lower(): name for name in has}
    for field in schema:
        if field.name not in wanted or field.name in has:
            continue
        other = capitals.get(field.name.lower())
        if other is not None:
            raise ValueError(
                f"it has a column {other!r}, and none {field.name!r}; rename it in the file"
            )
        if not field.nullable:
            raise ValueError(f"it has no column {field.name!r}, which is NOT NULL in the schema")
