"""Functions of the user's in the batch twin: Spark's workers run them, each row twice.

A function that says it is deterministic and is not would make a result that no failure should
change depend on failures. Where the second run of a batch differs, the twin names the function.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.types import StructField, StructType

from holdfast.api.dead_letters import FunctionWithBadRows
from holdfast.api.functions import PythonFunction
from holdfast.errors import DataflowError, UnsupportedError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def applied(
    name: str,
    function: PythonFunction | FunctionWithBadRows,
    frame: DataFrame,
    schema: pa.Schema,
    carried: list[str],
) -> DataFrame:
    """The results of a function.

    Args:
        name: Of the step.
        function: Of the step.
        frame: What it reads.
        schema: Of that.
        carried: The columns beside; those of the order are lost if a row may give several.

    Raises:
        UnsupportedError: What it gives is not settled by the rows.
    """
    from holdfast.shell.spark.arrow_schemas import from_arrow_schema

    if not function.is_deterministic:
        raise UnsupportedError(
            f"{name}: no batch twin: {function.name} is not deterministic, so no second run gives "
            "the same"
        )
    kept = carried[:1] if function.kind == "flat_map" else carried
    fields: list[StructField] = [*from_arrow_schema(function.schema).fields]
    fields += [each for each in frame.schema.fields if each.name in kept]

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            columns = [batch.column(field.name).cast(field.type) for field in schema]
            rows = pa.RecordBatch.from_arrays(columns, schema=schema)
            found, of = function.apply(rows, 0, 0)
            again, _ = function.apply(rows, 0, 0)
            if repr(found.to_pylist()) != repr(again.to_pylist()):  # NaN is equal to itself here.
                raise DataflowError(
                    f"{name}: {function.name} gave two results for the same rows; if it depends on "
                    "the clock or on chance, say deterministic=False and have them from its Pass"
                )
            beside = batch.select(kept)
            beside = beside if of is None else beside.take(pa.array(of))
            yield pa.RecordBatch.from_arrays(
                [*found.columns, *beside.columns], names=[*found.schema.names, *kept]
            )

    return frame.mapInArrow(run, StructType(fields))
