"""Values of arrays, maps and structs in Python, as functions of Spark's have them.

They are lists, dicts, and `Row` objects or dicts. A value that a function gives must be just of its
type: Arrow would drop a part of another one without a word.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa

from holdfast.core.model.nested_types import is_nested, with_parts

KINDS: Final[tuple[tuple[Callable[[pa.DataType], bool], type, type | None], ...]] = (
    (pa.types.is_boolean, bool, None),
    (pa.types.is_integer, int, bool),
    (pa.types.is_floating, float, None),
    (pa.types.is_decimal, Decimal, None),
    (pa.types.is_string, str, None),
    (pa.types.is_binary, bytes, None),
    (pa.types.is_date, dt.date, dt.datetime),
    (pa.types.is_timestamp, dt.datetime, None),
)
"""Per type of a value what Python has for it, and what of that is another type's."""


def rows_of(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """Rows as dicts by column; maps and structs are dicts, too."""
    rows: list[dict[str, Any]] = batch.to_pylist(maps_as_pydicts="strict")
    return rows


def values_of(column: pa.Array) -> list[Any]:
    """Values as functions of Spark's take them: moments without a time zone, structs as `Row`."""
    made: list[Any] = column.cast(with_parts(column.type, _naive)).to_pylist(
        maps_as_pydicts="strict"
    )
    if not is_nested(column.type):
        return made
    turn = _turn(column.type)
    return [None if value is None else turn(value) for value in made]


def is_fitting(of: pa.DataType, value: Any) -> bool:
    """Whether a value is of a type, without a conversion; null is of any."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None:
        return True
    if pa.types.is_list(of):
        is_list = isinstance(value, list | tuple | np.ndarray)
        return is_list and all(is_fitting(of.value_type, each) for each in value)
    if pa.types.is_map(of):
        return isinstance(value, dict) and all(
            key is not None and is_fitting(of.key_type, key) and is_fitting(of.item_type, item)
            for key, item in value.items()
        )
    if pa.types.is_struct(of):
        fields = _fields_of(of, value)
        return fields is not None and all(map(is_fitting, (f.type for f in of), fields))
    for is_of, kind, other in KINDS:
        if is_of(of):
            return isinstance(value, kind) and not (other and isinstance(value, other))
    return False


def for_arrow(of: pa.DataType, value: Any) -> Any:
    """A value that `is_fitting`, as Arrow takes it: a struct is a dict there."""
    if value is None or not is_nested(of):
        return value
    if pa.types.is_list(of):
        return [for_arrow(of.value_type, each) for each in value]
    if pa.types.is_map(of):
        return [(key, for_arrow(of.item_type, item)) for key, item in value.items()]
    fields = _fields_of(of, value) or ()
    return {f.name: for_arrow(f.type, each) for f, each in zip(of, fields, strict=True)}


def _fields_of(of: pa.DataType, value: Any) -> Sequence[Any] | None:
    """The fields of a struct in their order; None: it is none of that type."""
    if hasattr(value, "asDict"):
        value = value.asDict()
    if isinstance(value, dict):
        names = [field.name for field in of]
        return [value[name] for name in names] if value.keys() == set(names) else None
    return value if isinstance(value, tuple) and len(value) == of.num_fields else None


def _naive(of: pa.DataType) -> pa.DataType:
    return pa.timestamp("us") if pa.types.is_timestamp(of) else of


def _turn(of: pa.DataType) -> Callable[[Any], Any]:
    """What makes `Row` objects of the dicts in a value that is not null."""
    if pa.types.is_list(of):
        inner = _or_null(of.value_type)
        return lambda value: [inner(each) for each in value]
    if pa.types.is_map(of):
        key, item = _or_null(of.key_type), _or_null(of.item_type)
        return lambda value: {key(k): item(v) for k, v in value.items()}
    if not pa.types.is_struct(of):
        return lambda value: value
    from pyspark.sql import Row

    make = Row(*(field.name for field in of))
    turns = [(field.name, _or_null(field.type)) for field in of]
    return lambda value: make(*(turn(value[name]) for name, turn in turns))


def _or_null(of: pa.DataType) -> Callable[[Any], Any]:
    turn = _turn(of)
    return lambda value: None if value is None else turn(value)
