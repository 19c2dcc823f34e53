"""Schemas between Spark, its DDL and Arrow."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from holdfast.api.expressions.types import CARRIED, carried_schema, is_carried
from holdfast.core.model.nested_types import canonical, declared, is_nested
from holdfast.errors import DataflowError, UnsupportedError

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructField, StructType


def schema_from_spark(schema: StructType) -> pa.Schema:
    """The Arrow schema of a Spark schema: timestamps in microseconds UTC.

    Raises:
        UnsupportedError: A column has a type that Holdfast does not carry.
    """
    return carried_schema(_declared_in_spark(schema))


def _declared_in_spark(schema: StructType) -> pa.Schema:
    """See `declared_schema`. Raises as `schema_from_spark`."""
    from pyspark.errors import PySparkTypeError
    from pyspark.sql.types import StructType

    from holdfast.shell.spark.arrow_schemas import to_arrow_schema

    for each in schema.fields:
        _require_bytes(each.name, each.dataType)
    fields = []
    for each in schema.fields:
        try:
            (field,) = to_arrow_schema(StructType([each]))
        except PySparkTypeError:  # Arrow has no such type.
            raise _not_carried(each) from None
        kind = declared(field.type)
        if not is_carried(canonical(kind)) or _holds_other(each.dataType):
            raise _not_carried(each)
        # Spark's watermark is no property of our streams.
        fields.append(field.remove_metadata().with_type(kind))
    return pa.schema(fields)


def _not_carried(column: StructField) -> UnsupportedError:
    return UnsupportedError(
        f"column {column.name!r} is {column.dataType.simpleString()}; Holdfast carries {CARRIED}: "
        "select or flatten it in the DataFrame before"
    )


def _require_bytes(name: str, of: DataType) -> None:
    """Raise `UnsupportedError` for strings that are equal to others with other bytes."""
    collation = getattr(of, "collation", "UTF8_BINARY")
    if collation != "UTF8_BINARY":
        raise UnsupportedError(
            f"column {name!r} has the collation {collation}; Holdfast compares strings by their "
            "bytes: select it with COLLATE UTF8_BINARY, or lower(...) of it"
        )
    for part in _parts_of(of):
        _require_bytes(name, part)


def _parts_of(of: DataType) -> list[DataType]:
    """The types within an array, a map or a struct."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    match of:
        case ArrayType():
            return [of.elementType]
        case MapType():
            return [of.keyType, of.valueType]
        case StructType():
            return [field.dataType for field in of.fields]
    return []


def _holds_other(of: DataType) -> bool:
    """Whether it holds what to Arrow is a struct, and to Spark something else, as a VARIANT is."""
    from pyspark.sql.types import StructField, StructType

    from holdfast.shell.spark.arrow_schemas import to_arrow_schema

    parts = _parts_of(of)
    if parts:
        return any(map(_holds_other, parts))
    return is_nested(to_arrow_schema(StructType([StructField("it", of)])).field(0).type)


def schema_from(given: pa.Schema | StructType | str) -> pa.Schema:
    """The Arrow schema of a Spark schema, a DDL text or an Arrow schema.

    Raises:
        DataflowError: The text is no DDL.
        UnsupportedError: A column has a type that Holdfast does not carry.
    """
    return carried_schema(declared_schema(given))


def declared_schema(given: pa.Schema | StructType | str) -> pa.Schema:
    """The same, but what must not be null within arrays, maps and structs stays so."""
    if isinstance(given, pa.Schema):
        return pa.schema([f.with_type(declared(f.type)) if is_nested(f.type) else f for f in given])
    return _declared_in_spark(_parsed(given) if isinstance(given, str) else given)


def state_schema_from(given: pa.Schema | StructType | str) -> pa.Schema:
    """The same of a state, whose columns may have any type that Arrow has."""
    from holdfast.shell.spark.arrow_schemas import to_arrow_schema

    if isinstance(given, pa.Schema):
        return given
    spark_schema = _parsed(given) if isinstance(given, str) else given
    return to_arrow_schema(spark_schema).remove_metadata()


def _parsed(ddl: str) -> StructType:
    from pyspark.errors import PySparkException
    from pyspark.sql.types import StructType, _parse_datatype_string

    try:
        parsed = _parse_datatype_string(ddl)
    except PySparkException as error:
        first = str(error).splitlines()[0]
        raise DataflowError(f"{ddl!r} is no schema: {first}") from None
    if not isinstance(parsed, StructType):
        raise DataflowError(f"{ddl!r} is no schema; write 'name TYPE, ...'")
    return parsed
