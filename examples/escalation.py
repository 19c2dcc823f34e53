"""Alerts go up the chain of who depends on whom, as far as three services.

    python examples/escalation.py /tmp/escalation

A service that fails alerts all that depend on it, which alert others in their turn: what comes out
goes in again. Who depends on whom changes while alerts go round: a dependency that ends takes back
what came by way of it, as alerts with `change` -1. A node is killed meanwhile; it loses nothing.
"""

from __future__ import annotations

import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

import holdfast as hf

MORNING = datetime(2026, 11, 25, 8, 0, tzinfo=UTC)
DEPENDS = (
    ("disk", "database", 1),
    ("database", "orders", 1),
    ("database", "billing", 1),
    ("orders", "shop", 1),
    ("billing", "shop", 1),
    ("shop", "orders", 1),
    ("database", "billing", -1),
)
"""Which service, who depends on it, and whether it begins (1) or ends (-1) to."""
ALERTS = (("disk", 0, 1), ("orders", 0, 1))
"""Which service fails, over how many others the alert came, and whether it is one or taken back."""


def write(spark: SparkSession, place: Path, rows: tuple[tuple[str, ...], ...], ddl: str) -> None:
    """Rows, a second from one to the next; in earnest somebody else writes them."""
    timed = [(MORNING + timedelta(seconds=n), *row) for n, row in enumerate(rows)]
    writer = spark.createDataFrame(timed, f"at TIMESTAMP, {ddl}").coalesce(1).write
    writer = writer.format("holdfast").mode("append").option("time", "at")
    writer.option("end", "true").save(str(place))


def escalation(folder: Path) -> hf.Dataflow:
    """What to do with them."""
    flow = hf.Dataflow("escalation")
    depends = flow.source_log(str(folder / "depends"), name="depends")
    alerts = flow.source_log(str(folder / "alerts"), name="alerts")
    alerted = alerts.select("service", "hops", "change").loop("alerted")
    raised = depends.join(
        alerted,
        on="service",
        select=[
            "left.dependent AS service",
            "right.hops AS hops",
            "left.change AS of_dependency",
            "right.change AS of_alert",
        ],
        name="raise",
    )
    further = raised.unit("further").filter("hops < 3")
    further = further.select("service", "hops + 1 AS hops", "of_dependency * of_alert AS change")
    alerted.close(further)
    further.sink("escalated")
    return flow


def net(spark: SparkSession, folder: Path) -> DataFrame:
    """What is left of alerts when those that were taken back are."""
    found = spark.read.format("holdfast").option("stream", "escalated")
    left = found.load(str(folder / "checkpoints")).groupBy("service", "hops").sum("change")
    return left.toDF("service", "hops", "alerts").where("alerts > 0").orderBy("hops", "service")


def run(spark: SparkSession, folder: Path) -> None:
    """Kill a node in the loop, and look at what came out."""
    write(spark, folder / "depends", DEPENDS, "service STRING, dependent STRING, change BIGINT")
    write(spark, folder / "alerts", ALERTS, "service STRING, hops BIGINT, change BIGINT")
    query = escalation(folder).start(
        spark,
        checkpointLocation=str(folder / "checkpoints"),
        protection=hf.Coordinated(interval="200 milliseconds", aligned=False),
    )
    while not query.lastProgress["numOutputRows"] and query.isActive:
        time.sleep(0.05)  # Progress is asked for; nothing tells of it.
    if query.isActive:
        query.kill("raise[0]")
    query.awaitTermination()
    net(spark, folder).show()
    print(query.verify())


if __name__ == "__main__":
    run(hf.session("escalation"), Path(sys.argv[1]))
