"""The batch twins of joins of two streams."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F

from holdfast.api import steps
from holdfast.core.model.column_names import quoted
from holdfast.core.model.tuples import TIME_COLUMN
from holdfast.errors import UnsupportedError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_LEFT_US: Final = f"l__{TIME_COLUMN}"
_RIGHT_US: Final = f"r__{TIME_COLUMN}"


def interval_join(join: steps.IntervalJoin, left: DataFrame, right: DataFrame) -> DataFrame:
    """Rows whose times lie in a span of each other, and rows without a match.

    Raises:
        UnsupportedError: It shows of left rows their first matches, which depend on the order.
    """
    left, right, condition = _sides(join, left, right)
    for side, column, name in join.fields:  # The condition is over these.
        if side == "left":
            left = left.withColumn(name, F.col(quoted(f"l__{column}")))
        else:
            right = right.withColumn(name, F.col(quoted(f"r__{column}")))
    later_us = F.col(_RIGHT_US) - F.col(_LEFT_US)
    condition = condition & later_us.between(join.lower_us, join.upper_us)
    if join.where is not None:
        condition = condition & F.expr(join.where)
    names = [quoted(name) for _, _, name in join.fields]
    left_alone_us = F.col(_LEFT_US) + F.lit(max(0, join.upper_us))
    if join.how == "semi":
        return _first_matches(join, left, right, condition)
    if join.how == "anti":
        alone = left.join(right, condition, "left_anti")
        nulls = [
            F.col(quoted(name)) if side == "left" else F.lit(None).cast(right.schema[name].dataType)
            for side, _, name in join.fields
        ]
        columns = [value.alias(name) for value, (*_, name) in zip(nulls, join.fields, strict=True)]
        return alone.select(*columns, left_alone_us.alias(TIME_COLUMN))
    joined = left.join(right, condition, join.how)
    right_alone_us = F.col(_RIGHT_US) + F.lit(max(0, -join.lower_us))
    time_us = F.when(F.col(_RIGHT_US).isNull(), left_alone_us)
    time_us = time_us.when(F.col(_LEFT_US).isNull(), right_alone_us).otherwise(_later())
    return joined.select(*names, time_us.alias(TIME_COLUMN))


def _first_matches(
    join: steps.IntervalJoin, left: DataFrame, right: DataFrame, condition: Any
) -> DataFrame:
    if any(side == "right" for side, *_ in join.fields):
        raise UnsupportedError("no batch twin: a semi join that shows columns of first matches")
    kept = [quoted(name) for *_, name in join.fields]
    own = [quoted(c) for c in left.columns if c not in ("l____order", "l____ties")]
    counted = left.groupBy(*own).agg(F.count("*").alias("__copies"))
    pairs = counted.join(right, condition)
    first = pairs.groupBy(*own, "__copies").agg(F.min(_later()).alias("__first_us"))
    copies = first.withColumn("__copy", F.explode(F.sequence(F.lit(1), "__copies")))
    return copies.select(*kept, F.col("__first_us").alias(TIME_COLUMN))


def _sides(join: steps.Join, left: DataFrame, right: DataFrame) -> tuple[DataFrame, DataFrame, Any]:
    left = left.select(*(F.col(quoted(c)).alias(f"l__{c}") for c in left.columns))
    right = right.select(*(F.col(quoted(c)).alias(f"r__{c}") for c in right.columns))
    pairs = zip(join.left_keys, join.right_keys, strict=True)
    condition = None
    for left_key, right_key in pairs:
        equal = F.col(quoted(f"l__{left_key}")) == F.col(quoted(f"r__{right_key}"))
        condition = equal if condition is None else condition & equal
    return left, right, condition


def _fields(join: steps.Join) -> list[Any]:
    return [F.col(quoted(f"{side[0]}__{column}")).alias(name) for side, column, name in join.fields]


def window_join(
    join: steps.WindowJoin | steps.RunningJoin, left: DataFrame, right: DataFrame
) -> DataFrame:
    """Pairs of one tumbling window."""
    size_us = join.windows.size_us
    left, right, condition = _sides(join, left, right)
    start = F.col(f"l__{TIME_COLUMN}") - F.pmod(F.col(f"l__{TIME_COLUMN}"), F.lit(size_us))
    right_start = F.col(f"r__{TIME_COLUMN}") - F.pmod(F.col(f"r__{TIME_COLUMN}"), F.lit(size_us))
    joined = left.join(right, condition & (start == right_start), join.how)
    end = start + F.lit(size_us)
    return joined.select(
        F.timestamp_micros(start).alias("window_start"),
        F.timestamp_micros(end).alias("window_end"),
        *_fields(join),
        (_later() if isinstance(join, steps.RunningJoin) else end - 1).alias(TIME_COLUMN),
    )


def join_of_all(join: steps.IncrementalJoin, left: DataFrame, right: DataFrame) -> DataFrame:
    """Pairs of all rows."""
    left, right, condition = _sides(join, left, right)
    return left.join(right, condition).select(*_fields(join), _later().alias(TIME_COLUMN))


def _later() -> Any:
    return F.greatest(f"l__{TIME_COLUMN}", f"r__{TIME_COLUMN}")
