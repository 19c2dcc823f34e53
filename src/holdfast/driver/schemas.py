"""Schemas between Spark, its DDL and Arrow."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from holdfast.api.expressions.types import is_carried
from holdfast.errors import DataflowError, UnsupportedError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


def schema_from_spark(schema: StructType) -> pa.Schema:
    """The Arrow schema of a Spark schema: timestamps in microseconds UTC.

    Raises:
        UnsupportedError: A column has a type that Holdfast does not carry.
    """
    from holdfast.shell.spark.arrow_schemas import to_arrow_schema

    _require_bytes(schema)
    fields = []
    for field in to_arrow_schema(schema).remove_metadata():
        field = field.remove_metadata()  # Spark's watermark is no property of our streams.
        if not is_carried(field.type):
            raise UnsupportedError(
                f"column {field.name!r} is {schema[field.name].dataType.simpleString()}; Holdfast "
                "carries numbers, decimals, strings, booleans, dates and timestamps: select or "
                "flatten it in the DataFrame before"
            )
        is_zoned = pa.types.is_timestamp(field.type)
        fields.append(field.with_type(pa.timestamp("us", tz="UTC")) if is_zoned else field)
    return pa.schema(fields)


def _require_bytes(schema: StructType) -> None:
    """Raise `UnsupportedError` for strings that are equal to others with other bytes."""
    for field in schema.fields:
        collation = getattr(field.dataType, "collation", "UTF8_BINARY")
        if collation != "UTF8_BINARY":
            raise UnsupportedError(
                f"column {field.name!r} has the collation {collation}; Holdfast compares strings "
                "by their bytes: select it with COLLATE UTF8_BINARY, or lower(...) of it"
            )


def schema_from_ddl(ddl: str) -> pa.Schema:
    """The Arrow schema of a Spark DDL text, e.g. `id BIGINT, name STRING, at TIMESTAMP`.

    Raises:
        DataflowError: The text is no DDL.
        UnsupportedError: A column has a type that Holdfast does not carry.
    """
    return schema_from_spark(_parsed(ddl))


def schema_from(given: pa.Schema | StructType | str) -> pa.Schema:
    """The Arrow schema of a Spark schema, a DDL text or an Arrow schema."""
    if isinstance(given, pa.Schema):
        return given
    return schema_from_ddl(given) if isinstance(given, str) else schema_from_spark(given)


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
