"""Spark's schemas as those of streams; none of this starts a session."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql import types as T

from holdfast.api.clauses import require_timestamp
from holdfast.driver.schemas import declared_schema, schema_from_spark
from holdfast.errors import DataflowError, UnsupportedError

AT = pa.timestamp("us", tz="UTC")


def test_local_times_stay_local_and_moments_are_in_utc() -> None:
    given = T.StructType().add("at", T.TimestampType()).add("local", T.TimestampNTZType())
    given = given.add("both", T.MapType(T.TimestampNTZType(), T.ArrayType(T.TimestampType())))
    schema = schema_from_spark(given)
    assert schema.types == [AT, pa.timestamp("us"), pa.map_(pa.timestamp("us"), pa.list_(AT))]
    require_timestamp("at", schema)
    with pytest.raises(DataflowError, match="'local' is TIMESTAMP_NTZ, no moment"):
        require_timestamp("local", schema)


def test_what_nested_values_hold_may_be_null() -> None:
    inner = T.StructType().add("n", T.LongType(), nullable=False)
    given = T.StructType().add("a", T.ArrayType(inner, containsNull=False), nullable=False)
    given = given.add("m", T.MapType(T.StringType(), T.BinaryType(), valueContainsNull=False))
    schema = schema_from_spark(given)
    assert schema.field("a").type == pa.list_(pa.struct([("n", pa.int64())]))
    assert schema.field("m").type == pa.map_(pa.string(), pa.binary())
    assert not schema.field("a").nullable
    of_a, of_m = declared_schema(given).types
    assert not of_a.value_field.nullable
    assert not of_a.value_type.field("n").nullable
    assert not of_m.item_field.nullable
    assert declared_schema(declared_schema(given)) == declared_schema(given)


@pytest.mark.parametrize(
    ("of", "message"),
    [
        (T.VariantType(), "column 'v' is variant; Holdfast carries"),
        (T.ArrayType(T.VariantType()), "array<variant>"),
        (T.ArrayType(T.DayTimeIntervalType()), "array<interval day to second>"),
        (T.MapType(T.StringType(), T.StringType("UTF8_LCASE")), "collation UTF8_LCASE"),
        (T.StructType().add("a", T.LongType()).add("A", T.LongType()), "struct<a:bigint,A:bigint>"),
    ],
)
def test_other_types_are_refused_by_name(of: T.DataType, message: str) -> None:
    with pytest.raises(UnsupportedError, match=message):
        schema_from_spark(T.StructType().add("v", of))
