"""Functions that Spark has wrapped, for our expressions; and ours again for the batch twin."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.api.expressions import SUPPORTED_FUNCTIONS, CompiledExpression
from holdfast.api.expressions.user_functions import Takes, UserFunction
from holdfast.core.model.nested_types import is_nested
from holdfast.driver.schemas import schema_from_spark
from holdfast.errors import DataflowError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import SparkSession

    from holdfast.api.steps import Expression


def user_function(name: str, given: Any) -> UserFunction:
    """What `udf`, `pandas_udf` or `arrow_udf` has made, by a name; see `register_function`."""
    from pyspark.sql.types import StructField, StructType
    from pyspark.util import PythonEvalType

    takes: dict[int, Takes] = {
        PythonEvalType.SQL_BATCHED_UDF: "rows",
        PythonEvalType.SQL_ARROW_BATCHED_UDF: "rows",
        PythonEvalType.SQL_SCALAR_PANDAS_UDF: "pandas",
        PythonEvalType.SQL_SCALAR_ARROW_UDF: "arrow",
    }
    if not hasattr(given, "evalType") or not hasattr(given, "returnType"):
        raise DataflowError(f"{name}: {given!r} is no udf, pandas_udf or arrow_udf of Spark's")
    if given.evalType not in takes:
        raise UnsupportedError(f"{name}: functions of iterators or of groups are not supported")
    if not given.deterministic:
        raise UnsupportedError(
            f"{name} is not deterministic; use stream.map(..., deterministic=False)"
        )
    if name.lower() in SUPPORTED_FUNCTIONS:
        raise DataflowError(f"{name} is a function of Spark's; give yours another name")
    schema = schema_from_spark(StructType([StructField(name, given.returnType)]))
    kind = schema.field(0).type
    if is_nested(kind) and takes[given.evalType] == "pandas":
        raise UnsupportedError(
            f"{name} gives {given.returnType.simpleString()}, which functions of pandas do not "
            "give here; write a udf or an arrow_udf"
        )
    return UserFunction(name, given.func, takes[given.evalType], kind)


def called_by(*expressions: Expression) -> list[UserFunction]:
    """The user's functions that expressions call."""
    compiled = [each for each in expressions if isinstance(each, CompiledExpression)]
    return [function for each in compiled for function in each.functions.values()]


def register(spark: SparkSession, functions: Iterable[UserFunction]) -> None:
    """Have a session call functions by their names, as our expressions do."""
    from pyspark.sql import functions as F
    from pyspark.sql.pandas.types import from_arrow_type

    made: dict[str, Any] = {"rows": F.udf, "pandas": F.pandas_udf, "arrow": F.arrow_udf}
    for each in functions:
        wrapped = made[each.takes](
            each.function, from_arrow_type(each.type, prefer_timestamp_ntz=True)
        )
        spark.udf.register(each.name, wrapped)
