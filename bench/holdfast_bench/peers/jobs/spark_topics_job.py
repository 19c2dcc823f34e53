"""Structured Streaming from topic to topic, in micro-batches as fast as possible."""

from __future__ import annotations

import os
import sys
import time
from typing import Any

from contract import BID_COLUMNS, read, say

from holdfast_bench import structured_streaming as native


def build(query: str, bids: Any) -> Any:
    """Q1 record by record, or Q12 with a running count for every bid."""
    from pyspark.sql import functions as f

    if query == "q1":
        return bids.selectExpr("auction", "bidder", "price * 0.908 AS price", "made_us")
    windows = bids.withWatermark("timestamp", "1 second").groupBy(
        f.window("timestamp", "10 seconds"), "bidder"
    )
    counts = windows.agg(f.count("*").alias("bids"), f.max("made_us").alias("made_us"))
    return counts.selectExpr("window.start AS window_start", "bidder", "bids", "made_us")


def run(trigger: dict[str, str]) -> None:
    """Run until killed. Real-time mode needs a core for every task of the query at once."""
    job = read()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    more = {"spark.jars": job.jars, "spark.sql.shuffle.partitions": "1"}
    spark = native.spark_session(f"{job.scratch}/warehouse", more)
    stream = spark.readStream.format("kafka").option("kafka.bootstrap.servers", job.servers)
    stream = stream.option("startingOffsets", "earliest").option("subscribe", job.inputs["bid"])
    parsed = f"from_json(CAST(value AS STRING), '{BID_COLUMNS}') AS bid"
    bids = stream.load().selectExpr("timestamp", parsed).selectExpr("timestamp", "bid.*")
    results = build(job.query, bids).selectExpr("to_json(struct(*)) AS value")
    writer = results.writeStream.format("kafka").option("kafka.bootstrap.servers", job.servers)
    writer = writer.option("topic", job.output).option("checkpointLocation", job.state)
    say(started=time.time())
    writer.outputMode("update").trigger(**trigger).start().awaitTermination()


if __name__ == "__main__":
    run({"processingTime": "0 seconds"})
