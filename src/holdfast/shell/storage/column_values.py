"""A file's values as those of the stream's columns: none becomes another one by its new type.

That holds at any depth, within arrays, maps and structs.

A column may have become narrower or wider, or a text. Arrow would also take a number for a date or
for a time, and cut off what does not fit; here that is an error, which names both types.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from holdfast.core.model.nested_types import is_nested

_ZONED: Final = r"(Z|[T ]\d\d.*[+-]\d\d(:?\d\d)?)$"
"""A time of the day comes before a zone: the end of `2026-11-25` is none."""
_INFINITY: Final = r"(?i)^\s*[+-]?inf(inity)?\s*$"


def as_type(values: pa.Array, to: pa.DataType, name: str = "") -> pa.Array:
    """Values of another type; times without a zone are UTC.

    Fields of structs are found by their names, as columns are. Errors name the path of a part:
    `a.b[]` is an element of the field b of the column a; `a{key}` and `a{}` are a map's.

    Args:
        values: Of a column.
        to: The type that is wanted.
        name: Of the column.

    Raises:
        ValueError: A value would be another one; or one of Arrow's errors.
    """
    return _as_part(values, to, name) if is_nested(to) else _as_plain(values, to)


def _as_part(values: pa.Array, to: pa.DataType, path: str) -> pa.Array:
    if values.type == to and not _has_needed(to):
        return values
    if not is_nested(to):
        try:
            return _as_plain(values, to)
        except (pa.ArrowException, ValueError) as error:
            raise ValueError(f"{path} is not {to}: {error}") from None
    if types.is_null(values.type):
        return pa.nulls(len(values), to)
    is_kind = next(kind for kind in (types.is_struct, types.is_map, _is_list) if kind(to))
    if not is_kind(values.type):
        raise ValueError(f"{path} is not {to}: the file has {values.type}")
    if types.is_struct(to):
        return _as_struct(values, to, path)
    if types.is_map(to):
        return _as_map(values, to, path)
    lists = values.cast(pa.list_(values.type.value_field))
    part = _nested_part(lists.flatten(), to.value_field, f"{path}[]")
    return pa.ListArray.from_arrays(offsets_of(lists), part, type=to, mask=lists.is_null())


def _is_list(of: pa.DataType) -> bool:
    is_kind = (types.is_list, types.is_large_list, types.is_fixed_size_list)
    return any(kind(of) for kind in is_kind)


def _has_needed(of: pa.DataType) -> bool:
    """Whether something within it must not be null, but the keys of maps."""
    if types.is_map(of):
        return not of.item_field.nullable or _has_needed(of.key_type) or _has_needed(of.item_type)
    parts = (of.field(number) for number in range(of.num_fields))
    return any(not part.nullable or _has_needed(part.type) for part in parts)


def _nested_part(values: pa.Array, to: pa.Field, path: str) -> pa.Array:
    made = _as_part(values, to.type, path)
    if made.null_count and not to.nullable:
        raise ValueError(f"{path} is not {to.type} NOT NULL: a value is null")
    return made


def _as_struct(values: pa.Array, to: pa.DataType, path: str) -> pa.Array:
    """A field that the values lack is null."""
    has = [field.name for field in values.type]
    require_names(has, pa.schema([*to]), {field.name for field in to}, f"{path}.")
    if not to.num_fields:
        return values.cast(to)
    is_there, is_whole = values.is_valid(), not values.null_count
    parts = []
    for field in to:
        if field.name not in has:
            parts.append(pa.nulls(len(values), field.type))
            continue
        given = values.field(has.index(field.name))  # What lies beneath a null is nothing.
        given = given if is_whole else given.filter(is_there)
        part = _nested_part(given, field, f"{path}.{field.name}")
        parts.append(part if is_whole else _spread(part, is_there))
    return pa.StructArray.from_arrays(parts, fields=[*to], mask=values.is_null())


def _spread(values: pa.Array, is_there: pa.Array) -> pa.Array:
    """Values in the places that are true, nulls in the others."""
    places = pc.subtract(pc.cumulative_sum(is_there.cast(pa.int64())), 1)
    return values.take(pc.if_else(is_there, places, None))


def _as_map(values: pa.Array, to: pa.DataType, path: str) -> pa.Array:
    if not len(values):
        return pa.array([], to)
    whole = values.take(pa.array(np.arange(len(values))))  # Nulls hold nothing in it.
    first, last = whole.offsets[0].as_py(), whole.offsets[-1].as_py()
    keys = _nested_part(whole.keys[first:last], to.key_field, f"{path}{{key}}")
    items = _nested_part(whole.items[first:last], to.item_field, f"{path}{{}}")
    is_null = pa.concat_arrays([whole.is_null(), pa.array([False])])
    offsets = pc.if_else(is_null, None, pc.subtract(whole.offsets, first))
    return pa.MapArray.from_arrays(offsets, keys, items, to)


def offsets_of(lists: pa.Array) -> pa.Array:
    """Where lists begin among all that they hold."""
    lengths = pc.fill_null(pc.list_value_length(lists), 0)
    ends = pc.cumulative_sum(lengths)
    return pa.concat_arrays([pa.array([0], pa.int32()), ends.cast(pa.int32())])


def _as_plain(values: pa.Array, to: pa.DataType) -> pa.Array:
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


def require_values(rows: pa.RecordBatch, declared: pa.Schema | None) -> pa.RecordBatch:
    """The rows, unless something is null that must not be.

    Args:
        rows: As streams have them.
        declared: Their columns, with what is NOT NULL at any depth; None: all may be null.

    Raises:
        ValueError: A value is null; the message names its path.
    """
    for field in declared or ():
        values = rows.column(field.name)
        if values.null_count and not field.nullable:
            raise ValueError(f"column {field.name!r} is not {field.type} NOT NULL: a value is null")
        as_type(values, field.type, field.name)
    return rows


def require_names(
    has: Sequence[str], schema: pa.Schema, wanted: Collection[str], path: str = ""
) -> None:
    """Raise `ValueError` if a file has a column of the schema in other capitals, or a needed none.

    Args:
        has: The file's columns.
        schema: The stream's.
        wanted: Those that are read of the file.
        path: Where fields of a struct lie, which they are then.
    """
    what = "field" if path else "column"
    capitals = {name.lower(): name for name in has}
    for field in schema:
        if field.name not in wanted or field.name in has:
            continue
        other = capitals.get(field.name.lower())
        if other is not None:
            raise ValueError(
                f"it has a {what} {path + other!r}, and none {path + field.name!r}; "
                "rename it in the file"
            )
        if not field.nullable:
            raise ValueError(
                f"it has no {what} {path + field.name!r}, which is NOT NULL in the schema"
            )


def require_columns(has: pa.Schema, schema: pa.Schema, wanted: Collection[str]) -> None:
    """The same of columns and, where they are structs or hold some, of fields.

    Args:
        has: The file's columns.
        schema: The stream's.
        wanted: Those that are read of the file.
    """
    require_names(has.names, schema, wanted)
    for field in schema:
        number = has.get_field_index(field.name)
        if field.name in wanted and number >= 0:
            _require_fields(has.field(number).type, field.type, field.name)


def _require_fields(of: pa.DataType, to: pa.DataType, path: str) -> None:
    if types.is_struct(of) and types.is_struct(to):
        has = {field.name: field.type for field in of}
        require_names([*has], pa.schema([*to]), {field.name for field in to}, f"{path}.")
        for field in to:
            if field.name in has:
                _require_fields(has[field.name], field.type, f"{path}.{field.name}")
    elif types.is_map(of) and types.is_map(to):
        _require_fields(of.key_type, to.key_type, f"{path}{{key}}")
        _require_fields(of.item_type, to.item_type, f"{path}{{}}")
    elif _is_list(of) and _is_list(to):
        _require_fields(of.value_type, to.value_type, f"{path}[]")
