"""Departures per minute of two airports, in time though one of them falls silent.

    python examples/silent_source.py /tmp/departures

The counts of both wait for both. When one airport sends nothing, counts of the other one alone come
after a second, as tentative. When it sends again they are undone, and the right ones come. Alarms
that were raised for tentative counts are called off then.
"""

from __future__ import annotations

import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

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


class Alarms:
    """Raises an alarm for a minute with few departures, and calls it off if that was not so."""

    def __init__(self, few: int) -> None:
        """Fewer than that are few."""
        self._few = few
        self._raised: dict[str, list[str]] = {}  # by the run whose rows were the reason

    def act(self, rows: DataFrame, batch: int) -> None:
        """Rows and undos as they come, in order."""
        for row in rows.collect():
            if row["_type"] == "undo":
                self._call_off(row["_run"])
            elif row["_type"] in ("stable", "tentative") and row["departures"] < self._few:
                minute = f"{row['window_start']:%H:%M}"
                print(f"ALARM at {minute}: {row['departures']} departures, {row['_type']}")
                if row["_type"] == "tentative":
                    self._raised.setdefault(row["_run"], []).append(minute)

    def _call_off(self, run: str | None) -> None:
        """All that a run was the reason for; without a run, all that is not certain."""
        for void in [run] if run else list(self._raised):
            for minute in self._raised.pop(void, []):
                print(f"called off: {minute}")


def follow(spark: SparkSession, folder: Path, alarms: Alarms) -> StreamingQuery:
    """Have the alarms follow the sink and what is tentative beside it."""
    reader = spark.readStream.format("holdfast").option("stream", "counts").option("types", "all")
    rows = reader.load(str(folder / "checkpoints"))
    return rows.writeStream.foreachBatch(alarms.act).start()


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
    followed = follow(spark, folder, Alarms(few=4))
    depart(spark, folder, "BER", range(4, 8))
    wait_for(query, spark, folder, "tentative")
    print("MUC is silent. The best known now:")
    columns = ("window_start", "departures", "_type", "_missing", "_share")
    read(spark, folder, "current").select(*columns).show(truncate=False)
    depart(spark, folder, "MUC", range(4, 8), ends=True)
    depart(spark, folder, "BER", range(8, 9), ends=True)
    query.awaitTermination()
    followed.processAllAvailable()
    followed.stop()
    print("MUC is back. Everything that was said, in order:")
    read(spark, folder, "all").select(*columns).show(truncate=False)
    print(query.verify(types="all"))


if __name__ == "__main__":
    run(hf.session("departures"), Path(sys.argv[1]))
