"""Schemas between Spark and Arrow."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


def schema_from_spark(schema: StructType) -> pa.Schema:
    """The Arrow schema of a Spark schema: timestamps in microseconds UTC."""
    from pyspark.sql.pandas.types import to_arrow_schema

    fields = []
    for field in to_arrow_schema(schema, timezone="UTC"):
        is_zoned = pa.types.is_timestamp(field.type) and field.type.tz is not None
        fields.append(field.with_type(pa.timestamp("us", tz="UTC")) if is_zoned else field)
    return pa.schema(fields)
