"""A query written for Structured Streaming, run by Holdfast: not a line of it is changed.

    python examples/brought_over.py /tmp/stations

`hottest` is such a query. `run` starts it as Structured Streaming does, and as Holdfast does.
"""

from __future__ import annotations

import sys
from itertools import zip_longest
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import holdfast as hf


def make_readings(spark: SparkSession, folder: Path) -> None:
    """Some temperatures; in earnest somebody else writes them."""
    readings = spark.sql("""
        SELECT timestamp_micros(1700000000000000 + id * 1000000) AS at,
            concat('station ', id % 4) AS station, 15 + id * 13 % 20 AS celsius
        FROM range(7200)
    """)
    readings.write.parquet(str(folder / "readings"))


def hottest(spark: SparkSession, folder: Path) -> DataFrame:
    """The query, as it has always been."""
    readings = spark.readStream.schema("at TIMESTAMP, station STRING, celsius BIGINT")
    return (
        readings.parquet(str(folder / "readings"))
        .withWatermark("at", "1 minute")
        .where("celsius > 20")
        .groupBy(F.window("at", "10 minutes"), "station")
        .agg(F.max("celsius").alias("top"), F.count("*").alias("readings"))
        .select("window.start", "station", "top", "readings")
        .where("readings > 5")
    )


def run(spark: SparkSession, folder: Path) -> None:
    """Run both, and show that they agree."""
    if not (folder / "readings").exists():
        make_readings(spark, folder)
    query = hottest(spark, folder)

    before = query.writeStream.format("memory").queryName("before")
    before.trigger(availableNow=True).start().awaitTermination()

    flow = hf.Dataflow.from_dataframe(query, name="hottest", trigger={"availableNow": True})
    now = flow.start(spark, checkpointLocation=str(folder / "checkpoints"))
    now.awaitTermination()

    found = now.to_dataframe()
    found.orderBy("start", "station").show()
    before_rows, now_rows = (
        sorted(map(tuple, f.collect())) for f in (spark.table("before"), found)
    )
    differing = sum(a != b for a, b in zip_longest(before_rows, now_rows))
    print(f"{len(now_rows)} results, {differing} differ from Structured Streaming's")


if __name__ == "__main__":
    run(hf.session("hottest"), Path(sys.argv[1]))
