"""Arrow's schema of Spark's and back, whichever version of Spark it is."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.pandas import types

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

_TAKES_ZONE: Final = "timezone" in inspect.signature(types.to_arrow_schema).parameters
_ZONE: Final[dict[str, Any]] = {"timezone": "UTC"} if _TAKES_ZONE else {}
"""Newer versions ask for it; those before take UTC."""


def to_arrow_schema(schema: StructType) -> pa.Schema:
    """As Spark converts it, with times in UTC."""
    return types.to_arrow_schema(schema, **_ZONE)


def from_arrow_schema(schema: pa.Schema) -> StructType:
    """As Spark converts it; times without a zone have none in Spark either."""
    return types.from_arrow_schema(schema, prefer_timestamp_ntz=True)
