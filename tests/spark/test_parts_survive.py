"""Aggregates in parts on real tasks: whoever dies, what is put out again is the same."""

import os
import signal
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import holdfast as hf
from holdfast.api.dataflow import Dataflow
from holdfast.api.windows import sliding

pytestmark = pytest.mark.slow

ROWS = 2_000_000
SQL = (
    "SELECT timestamp_micros(1700000000000000 + id * 20) AS at, id % 97 AS key, id "
    f"FROM range({ROWS})"
)


@pytest.mark.parametrize("protection", [None, "checkpointed"])
def test_parts_survive(spark: SparkSession, tmp_path: Path, protection: str | None) -> None:
    flow = Dataflow("parts")
    rows = flow.source(spark.sql(SQL), name="rows", time="at", partitions=2)
    windows = rows.filter("id % 5 > 0").key_by("key").window(sliding("4 seconds", "2 seconds"))
    windows.aggregate("count(*) AS n", "sum(id) AS total", name="counts").sink("counts")
    query = flow.start(
        spark,
        checkpointLocation=str(tmp_path),
        parallelism=2,
        protection=hf.Checkpointed(interval="200 milliseconds") if protection else None,
    )
    for number, node in enumerate(("rows[0]", "counts[1]", "rows[1]", "rows[0]")):
        while query.lastProgress["numInputRows"] < (number + 1) * 250_000:
            assert query.isActive, query.exception()
            time.sleep(0.002)
        os.kill(query.pid(node), signal.SIGKILL)
    assert query.awaitTermination(90)
    assert query.verify().is_identical
    assert query.recoveries
    taken = {name: node["input_tuples"] for name, node in query.status["nodes"].items()}
    assert sum(taken[f"counts[{i}]"] for i in range(2)) < ROWS // 20
