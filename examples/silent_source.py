"""Departures per minute of two airports, in time though one of them falls silent.

    python examples/silent_source.py /tmp/departures

The counts of both wait for both. When one airport sends nothing, counts of the other one alone come
after a second, as tentative. When it sends again they are undone, and the right ones come.
"""

from __future__ import annotations

import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

import holdfast as hf

MORNING = datetime(2026, 11, 25, 8, 0, tzinfo=UTC)
AIRPORTS = ("BER", "MUC")


def depart(
    spark: SparkSession, folder: Path, airport: str, minutes: range, *, ends: bool = False
) -> None:
    """An airport reports two departures per minute; in earnest somebody else writes them."""
    times = [MORNING + timedelta(seconds=30 * n) for m in minutes for n in (2 * m, 2 * m + 1)]
    rows = spark.createDataFrame([(at, airport) for at in times], "at TIMESTAMP, airport STRING")
    writer = rows.coalesce(1).write.format("holdfast").mode("append").option("time", "at")
    writer.option("end", str(ends).lower()).save(str(folder / airport))


def departures(folder: Path) -> hf.Dataflow:
    """What to do with them."""
    flow = hf.Dataflow("departures")
    first, second = (flow.source_log(str(folder / name), name=name) for name in AIRPORTS)
    minutes = first.unit("merged").union(second).window(hf.tumbling("1 minute"))
    minutes.aggregate("count(*) AS departures", name="counts").sink("counts")
    return flow


def read(spark: SparkSession, folder: Path, types: str) -> DataFrame:
    """The sink, with what is tentative."""
    reader = spark.read.format("holdfast").option("stream", "counts").option("types", types)
    return reader.load(str(folder / "checkpoints"))


def wait_for(query: hf.Query, spark: SparkSession, folder: Path, kind: str) -> None:
    """Until the sink, or the feed beside it, has rows of a kind."""
    while not query.lastProgress["numOutputRows"]:
        time.sleep(0.1)  # Progress is asked for; nothing tells of it.
    while not read(spark, folder, "all").where(f"_type = '{kind}'").count():
        time.sleep(0.1)  # A batch reads what is there; reading takes from what is read.


def run(spark: SparkSession, folder: Path) -> None:
    """Silence an airport, look at what comes, and let it speak again."""
    for airport in AIRPORTS:
        depart(spark, folder, airport, range(4))
    query = departures(folder).start(
        spark,
        checkpointLocation=str(folder / "checkpoints"),
        protection=hf.Replicated(delay="1 second"),
    )
    wait_for(query, spark, folder, "stable")
    depart(spark, folder, "BER", range(4, 8))
    wait_for(query, spark, folder, "tentative")
    print("MUC is silent. The best known now:")
    columns = ("window_start", "departures", "_type", "_missing", "_share")
    read(spark, folder, "current").select(*columns).show(truncate=False)
    depart(spark, folder, "MUC", range(4, 8), ends=True)
    depart(spark, folder, "BER", range(8, 9), ends=True)
    query.awaitTermination()
    print("MUC is back. Everything that was said, in order:")
    read(spark, folder, "all").select(*columns).show(truncate=False)
    print(query.verify(types="all"))


if __name__ == "__main__":
    run(hf.session("departures"), Path(sys.argv[1]))
