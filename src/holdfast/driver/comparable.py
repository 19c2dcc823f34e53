"""Rows that Spark can compare: it takes no maps where it looks for equal rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from holdfast.core.model.column_names import quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def comparable(frame: DataFrame) -> DataFrame:
    """The frame with arrays of entries in the place of maps."""
    fields = frame.schema.fields
    if not any(_holds_map(field.dataType) for field in fields):
        return frame
    return frame.select(
        *(_of_entries(F.col(quoted(f.name)), f.dataType).alias(f.name) for f in fields)
    )


def _holds_map(of: DataType) -> bool:
    match of:
        case ArrayType():
            return _holds_map(of.elementType)
        case StructType():
            return any(_holds_map(field.dataType) for field in of.fields)
    return isinstance(of, MapType)


def _of_entries(column: Column, of: DataType) -> Column:
    if not _holds_map(of):
        return column
    match of:
        case MapType():
            entries = F.map_entries(column)
            if not (_holds_map(of.keyType) or _holds_map(of.valueType)):
                return entries
            return F.transform(
                entries,
                lambda e: F.struct(
                    _of_entries(e["key"], of.keyType), _of_entries(e["value"], of.valueType)
                ),
            )
        case ArrayType():
            return F.transform(column, lambda each: _of_entries(each, of.elementType))
        case StructType():
            made = [_of_entries(column.getField(f.name), f.dataType).alias(f.name) for f in of]
            return F.when(column.isNotNull(), F.struct(*made))
    raise AssertionError(of)
