"""Changelogs in the batch twin: the changes of each key, one after the other, in Spark's words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import Window as SqlWindow
from pyspark.sql import functions as F

from holdfast.core.model.changes import (
    CHANGE_COLUMN,
    DELETE,
    INSERT,
    UPDATE_AFTER,
    UPDATE_BEFORE,
)
from holdfast.core.model.tuples import TIME_COLUMN

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def changes_of_all(
    keys: list[str], frame: DataFrame, results: list[Any], is_there: Any, order: list[Any]
) -> DataFrame:
    """What an aggregate puts out that gives a changelog.

    Args:
        keys: The columns that it groups by, quoted.
        frame: What it reads.
        results: Of a key after each row, each with its name.
        is_there: After each row, whether the key has a result: above zero.
        order: Columns that sort the rows as they came.
    """
    by_turn = SqlWindow.partitionBy(*keys).orderBy(*order)
    is_now = F.coalesce(is_there, F.lit(0)) > 0
    rows = frame.select("*", F.struct(*results).alias("__after"), is_now.alias("__is"))
    rows = rows.withColumn("__before", F.lag("__after").over(by_turn)).withColumn(
        "__was", F.coalesce(F.lag("__is").over(by_turn), F.lit(False))
    )
    both = F.col("__was") & F.col("__is")
    changes = F.array(
        F.when(F.col("__was"), _change(F.when(both, UPDATE_BEFORE).otherwise(DELETE), "__before")),
        F.when(F.col("__is"), _change(F.when(both, UPDATE_AFTER).otherwise(INSERT), "__after")),
    )
    single = rows.select(*keys, F.explode(F.array_compact(changes)).alias("__one"), TIME_COLUMN)
    kind = F.col("__one.__kind").alias(CHANGE_COLUMN)
    return single.select(*keys, "__one.__row.*", kind, TIME_COLUMN)


def _change(kind: Any, row: str) -> Any:
    return F.struct(kind.alias("__kind"), F.col(row).alias("__row"))
