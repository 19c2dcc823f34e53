"""The batch twin of `resample`: linear interpolation as a Spark SQL query.

Values and the times asked for are put into one column of time per key, values before what asks at
the same time; window functions then find the nearest value on either side.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import Window as SqlWindow
from pyspark.sql import functions as F

from holdfast.core.model.column_names import quoted
from holdfast.core.model.tuples import TIME_COLUMN
from holdfast.core.operators.resample import TIME_NAME

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from holdfast.api.steps import Resample, Step


def resampled(
    resample: Resample, producers: tuple[Step, ...], inputs: list[DataFrame]
) -> DataFrame:
    """Rows at the times of the second input, or at the multiples of the period."""
    keys = [f"__key{i}" for i in range(len(resample.match[0]))]
    values = _values(resample, inputs[0], keys)
    if resample.every_us is None:
        asking, carried = (
            _asked(resample, producers[1], inputs[1], keys),
            list(producers[1].schema.names),
        )
    else:
        asking, carried = _multiples(resample, values, keys), []
    known = [F.col(f"__value{i}") for i in range(len(resample.resampled))]
    both = values.select(
        *keys, TIME_COLUMN, F.lit(0).alias("__asks"), *known, F.lit(None).alias("__row")
    ).unionByName(
        asking.select(
            *keys,
            TIME_COLUMN,
            F.lit(1).alias("__asks"),
            *(F.lit(None).cast("double").alias(f"__value{i}") for i in range(len(known))),
            "__row",
        )
    )
    results = [
        _interpolated(i, keys, resample.within_us).alias(name)
        for i, (_, name) in enumerate(resample.resampled)
    ]
    found = both.select("*", *(r.alias(f"__result{i}") for i, r in enumerate(results)))
    found = found.where("__asks = 1")
    if resample.every_us is None:
        first = [F.col("__row")[name].alias(name) for name in carried]
    else:
        names = resample.match[0]
        first = [F.timestamp_micros(TIME_COLUMN).alias(TIME_NAME)]
        first += [F.col(key).alias(name) for key, name in zip(keys, names, strict=True)]
    is_keyed = F.lit(True)
    if resample.every_us is None:
        for key in keys:
            is_keyed = is_keyed & F.col(key).isNotNull()
    last = [
        F.when(is_keyed, F.col(f"__result{i}")).alias(name)
        for i, (_, name) in enumerate(resample.resampled)
    ]
    return found.select(*first, *last, TIME_COLUMN)


def _values(resample: Resample, frame: DataFrame, keys: list[str]) -> DataFrame:
    """One row per key and time, with the greatest value of each column."""
    named = [
        F.col(quoted(name)).alias(key) for key, name in zip(keys, resample.match[0], strict=True)
    ]
    columns = [
        F.max(F.col(quoted(column)).cast("double")).alias(f"__value{i}")
        for i, (column, _) in enumerate(resample.resampled)
    ]
    return frame.groupBy(*named, TIME_COLUMN).agg(*columns)


def _asked(resample: Resample, producer: Step, frame: DataFrame, keys: list[str]) -> DataFrame:
    named = [
        F.col(quoted(name)).alias(key) for key, name in zip(keys, resample.match[1], strict=True)
    ]
    row = F.struct(*(F.col(quoted(name)) for name in producer.schema.names))
    return frame.select(*named, TIME_COLUMN, row.alias("__row"))


def _multiples(resample: Resample, values: DataFrame, keys: list[str]) -> DataFrame:
    """Multiples of the period at a tuple of the key, or between two that are near enough."""
    every, within = F.lit(resample.every_us), F.lit(resample.within_us)
    time_us = F.col(TIME_COLUMN)
    after_us = F.lead(TIME_COLUMN).over(SqlWindow.partitionBy(*keys).orderBy(TIME_COLUMN))
    pairs = values.select(*keys, TIME_COLUMN, after_us.alias("__after"))
    low = F.greatest(time_us + 1, F.col("__after") - within)
    high = F.least(F.col("__after") - 1, time_us + within)
    first, last = low + F.pmod(-low, every), high - F.pmod(high, every)
    is_pair = F.col("__after").isNotNull() & (first <= last)
    between = F.when(is_pair, F.sequence(first, last, every)).otherwise(F.array())
    own = F.when(F.pmod(time_us, every) == 0, F.array(time_us)).otherwise(F.array())
    at_us = F.explode(F.concat(own, between).cast("array<bigint>"))
    return pairs.select(*keys, at_us.alias(TIME_COLUMN), F.lit(None).alias("__row"))


def _interpolated(number: int, keys: list[str], within_us: int) -> Any:
    value = F.col(f"__value{number}")
    point = F.when(value.isNotNull(), F.struct(F.col(TIME_COLUMN).alias("t"), value.alias("v")))
    over = SqlWindow.partitionBy(*keys).orderBy(TIME_COLUMN, "__asks")
    up_to = over.rowsBetween(SqlWindow.unboundedPreceding, SqlWindow.currentRow)
    from_on = over.rowsBetween(SqlWindow.currentRow, SqlWindow.unboundedFollowing)
    before = F.last(point, ignorenulls=True).over(up_to)
    after = F.first(point, ignorenulls=True).over(from_on)
    at_us = F.col(TIME_COLUMN)
    share = (at_us - before["t"]).cast("double") / (after["t"] - before["t"]).cast("double")
    on_line = before["v"] + (after["v"] - before["v"]) * share
    is_near = (at_us - before["t"] <= within_us) & (after["t"] - at_us <= within_us)
    return F.when(before["t"] == at_us, before["v"]).when(is_near, on_line)
