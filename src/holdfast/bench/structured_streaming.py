"""The baseline: the NexMark queries on Structured Streaming, in a process of its own.

    python -m holdfast.bench.structured_streaming <folder of parquet files> <query>...

Input are parquet files in order of event time, output is parquet; state is in RocksDB with
changelog checkpoints; `availableNow` takes two files of each kind per trigger, so that both cores
read. A first run on part of the input warms the JVM up. Standard output is one JSON object.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
from typing import TYPE_CHECKING, Any

from holdfast.nexmark.queries import KINDS, WINDOW

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CORES = 2
TRIGGERS = 20
"""Into how many micro-batches the input falls."""
FILES = TRIGGERS * CORES

_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "4g",
    "spark.log.level": "ERROR",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": str(CORES),
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.numRecentProgressUpdates": "1000",
}


def session() -> SparkSession:
    """A session with as many task slots as the comparison has cores."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName("structured-streaming").master(f"local[{CORES}]")
    for key, value in _SETTINGS.items():
        builder = builder.config(key, value)
    spark: SparkSession = builder.getOrCreate()
    return spark


def query(spark: SparkSession, name: str, folder: str) -> DataFrame:
    """A NexMark query over the streams of parquet files in `folder`; see nexmark/queries.py."""
    from pyspark.sql import functions as F

    def stream(kind: str) -> DataFrame:
        path = os.path.join(folder, kind)
        reader = spark.readStream.schema(spark.read.parquet(path).schema)
        frame: DataFrame = reader.option("maxFilesPerTrigger", CORES).parquet(path)
        return frame

    if name == "q1":
        return stream("bid").selectExpr("auction", "bidder", "price * 0.908 AS price", "date_time")
    if name == "q12":
        bids = stream("bid").withWatermark("date_time", "0 seconds")
        counts = bids.groupBy(F.window("date_time", WINDOW), "bidder").agg(F.count("*").alias("n"))
        return counts.selectExpr("window.start", "window.end", "bidder", "n")
    if name == "q3":
        persons = (
            stream("person").filter("state IN ('OR', 'ID', 'CA')").withColumnRenamed("id", "p")
        )
        auctions = stream("auction").filter("category = 10")
        joined = auctions.join(persons, auctions["seller"] == persons["p"])
        return joined.select("name", "city", "state", "id")
    return _q8(stream("person"), stream("auction"))


def _q8(persons: DataFrame, auctions: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    left = persons.withWatermark("date_time", "0 seconds")
    left = left.select("id", "name", F.window("date_time", WINDOW).alias("w"))
    right = auctions.withWatermark("date_time", "0 seconds")
    right = right.select(
        "seller", F.col("id").alias("auction"), F.window("date_time", WINDOW).alias("v")
    )
    joined = left.join(right, (left["id"] == right["seller"]) & (left["w"] == right["v"]))
    return joined.selectExpr("w.start", "w.end", "id", "name", "auction")


def run(spark: SparkSession, name: str, folder: str) -> dict[str, Any]:
    """Run a query to its end; rates count the triggers alone, not the start of the query."""
    with tempfile.TemporaryDirectory(prefix="holdfast-baseline-") as out:
        frame = query(spark, name, folder)
        started = time.monotonic()
        writer = frame.writeStream.format("parquet").outputMode("append")
        writer = writer.option("checkpointLocation", os.path.join(out, "checkpoint"))
        running = writer.trigger(availableNow=True).start(os.path.join(out, "rows"))
        running.awaitTermination()
        seconds = time.monotonic() - started
        progress = [dict(p) for p in running.recentProgress]
        rows = sum(p["numInputRows"] for p in progress)
        busy = [p["durationMs"]["triggerExecution"] / 1e3 for p in progress if p["numInputRows"]]
        output = spark.read.parquet(os.path.join(out, "rows")).count()
    return {
        "input_tuples": rows,
        "output_tuples": output,
        "seconds": round(sum(busy), 3),
        "seconds_with_start": round(seconds, 3),
        "throughput_tps": round(rows / sum(busy), 1),
        "triggers": len(busy),
    }


def _warm_up(spark: SparkSession, names: list[str], folder: str) -> None:
    """Each query once over the first files: the JVM compiles, as a long-running one would have."""
    with tempfile.TemporaryDirectory(prefix="holdfast-baseline-") as part:
        for kind in {kind for name in names for kind in KINDS[name]}:
            os.makedirs(os.path.join(part, kind))
            files = sorted(f for f in os.listdir(os.path.join(folder, kind)) if f[0] == "p")
            for file in files[: 2 * CORES]:
                shutil.copy2(os.path.join(folder, kind, file), os.path.join(part, kind, file))
        for name in names:
            run(spark, name, part)


def main() -> None:
    """Run the queries named on the command line."""
    folder, *names = sys.argv[1:]
    spark = session()
    try:
        _warm_up(spark, names, folder)
        results = {name: run(spark, name, folder) for name in names}
    finally:
        spark.stop()
    sys.stdout.write(json.dumps(results) + "\n")


if __name__ == "__main__":
    main()
