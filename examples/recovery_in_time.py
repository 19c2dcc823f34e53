"""Counts per sensor and day that are back soon after a failure, however long a day is.

    python examples/recovery_in_time.py /tmp/readings

The node that counts writes its windows one by one, all the time: so often that a replacement has
them, and what they lack, within 250 milliseconds. It is killed, and the counts are as without that.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pyspark.sql import SparkSession

import holdfast as hf

MIDNIGHT = datetime(2026, 11, 25, tzinfo=UTC)
SENSORS = 40
NODE = "counts[0]"


def report(spark: SparkSession, folder: Path, hours: range, *, ends: bool = False) -> None:
    """Each sensor reports once an hour; in earnest somebody else writes that."""
    rows = [(MIDNIGHT + timedelta(hours=h), s, h * s % 7) for h in hours for s in range(SENSORS)]
    frame = spark.createDataFrame(rows, "at TIMESTAMP, sensor BIGINT, value BIGINT")
    writer = frame.coalesce(1).write.format("holdfast").mode("append").option("time", "at")
    writer.option("end", str(ends).lower()).save(str(folder / "readings"))


def days(folder: Path) -> hf.Dataflow:
    """What to do with them."""
    flow = hf.Dataflow("days")
    sensors = flow.source_log(str(folder / "readings"), name="readings").key_by("sensor")
    daily = sensors.window(hf.tumbling("1 day")).aggregate(
        "count(*) AS readings", "sum(value) AS total", name="counts"
    )
    daily.sink("counts")
    return flow


def wait_for(what: Callable[[], bool]) -> None:
    """Until it is so."""
    while not what():
        time.sleep(0.05)  # Progress is asked for; nothing tells of it.


def has_windows(query: hf.Query) -> bool:
    """Whether the log holds windows that are open."""
    progress = query.lastProgress
    extent = progress["units"]["counts"]["extent"] if progress else None
    return bool(extent and extent["footprints"])


def run(spark: SparkSession, folder: Path) -> None:
    """Count, lose the node that counts, and go on."""
    report(spark, folder, range(30))
    query = days(folder).start(
        spark,
        checkpointLocation=str(folder / "checkpoints"),
        protection={"counts": hf.EventualCheckpoints(recovery="250 milliseconds")},
    )
    wait_for(lambda: has_windows(query))
    extent = query.lastProgress["units"]["counts"]["extent"]
    print(f"a replacement would take {extent['predictedRecoveryMs']} ms, as the node says")
    os.kill(query.pid(NODE), signal.SIGKILL)
    wait_for(lambda: bool(query.failures))
    report(spark, folder, range(30, 50), ends=True)
    query.awaitTermination()
    print(f"{query.failures[0]['node']} was lost, and is back")
    print(f"as without a failure: {query.verify().is_identical}")


if __name__ == "__main__":
    run(hf.session("days"), Path(sys.argv[1]))
