"""Of a sink whose rows replace each other, or are changes, those that stand now: as a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from holdfast.core.model.changes import CHANGE_COLUMN, COMES
from holdfast.core.model.column_names import quoted
from holdfast.errors import OptionError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_SEVERAL = (
    "rows of one key are in several streams of the sink, as after rescaling, so nobody knows which "
    "is the newest"
)


def newest_by(rows: DataFrame, by: Sequence[str], names: Sequence[str]) -> DataFrame:
    """Of rows that are equal in some columns the last one that was put out.

    Args:
        rows: Of a sink, with `_partition` and `_tuple_id`.
        by: The columns; nulls are equal.
        names: All columns of the result.

    Raises:
        OptionError: There is no such column. If rows of one key are in several streams of the sink,
            reading raises an error.
    """
    unknown = [column for column in by if column not in names]
    if unknown or not by:
        raise OptionError(f"newest_by={tuple(by)!r}; columns are {', '.join(names)}")
    row = F.struct(*(F.col(quoted(name)) for name in names))
    found = rows.groupBy(*map(quoted, by)).agg(
        F.max_by(row, "_tuple_id").alias("__row"),
        F.min("_partition").alias("__first"),
        F.max("_partition").alias("__last"),
    )
    is_one = F.col("__first") == F.col("__last")
    kept = F.when(is_one, F.col("__row")).otherwise(F.raise_error(F.lit(_SEVERAL)))
    return found.select(kept.alias("__row")).select("__row.*")


def table_of(changes: DataFrame, *more: str) -> DataFrame:
    """The rows that there are by the changes of a changelog: those that came less those that went.

    Args:
        changes: With `_change`.
        more: Columns that are no part of the rows; the greatest of each is kept.
    """
    names = [quoted(each) for each in changes.columns if each not in (CHANGE_COLUMN, *more)]
    sign = F.when(F.col(CHANGE_COLUMN).isin(*COMES), 1).otherwise(-1)
    latest = [F.max(each).alias(each) for each in more]
    counted = changes.groupBy(*names).agg(F.sum(sign).cast("int").alias("__rows"), *latest)
    copies = F.explode(F.array_repeat(F.lit(0), F.col("__rows"))).alias("__copy")
    return counted.select(*names, *more, copies).drop("__copy")
