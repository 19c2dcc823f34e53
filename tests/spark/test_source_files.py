"""Users' files as a source, on real Spark tasks: killed, restarted, taken away."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import holdfast as hf

pytestmark = pytest.mark.slow
COUNT = 30_000


def rows(spark: SparkSession, first: int, count: int) -> DataFrame:
    return spark.sql(
        "SELECT timestamp_micros(1700000000000000 + id * 1000) AS at, id % 7 AS k, id AS v, "
        f"concat('n', id) AS s FROM range({first}, {first + count}, 1, 1)"
    )


def write(spark: SparkSession, folder: Path, first: int, count: int) -> None:
    rows(spark, first, count).write.mode("append").parquet(str(folder))


def counting(folder: Path, *, partitions: int = 1, ends: bool = False) -> hf.Dataflow:
    flow = hf.Dataflow("counting")
    trigger = None if ends else {"availableNow": True}
    files = flow.source_files(
        str(folder), time="at", name="rows", partitions=partitions, trigger=trigger, ends=ends
    )
    windows = files.filter("v % 3 <> 0").key_by("k").window(hf.tumbling("5 seconds"))
    windows.aggregate("count(*) AS n", "sum(v) AS total", name="counts").sink("counts")
    return flow


def test_files_that_end_give_what_spark_sql_gives(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    for part in range(4):
        write(spark, folder, part * COUNT, COUNT)
    flow = counting(folder, partitions=2, ends=True)
    query = flow.start(spark, checkpointLocation=str(tmp_path / "q"), parallelism=2)
    assert query.awaitTermination(240)
    assert query.verify().is_identical
    expected = spark.read.parquet(str(folder)).where("v % 3 <> 0")
    found = query.to_dataframe().selectExpr("sum(n)", "sum(total)").collect()
    assert found == expected.selectExpr("count(*)", "sum(v)").collect()


def test_a_later_run_reads_what_is_new_and_a_killed_node_reads_on(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder, location = tmp_path / "in", str(tmp_path / "q")
    write(spark, folder, 0, COUNT)
    assert counting(folder).start(spark, checkpointLocation=location).awaitTermination(240)
    write(spark, folder, COUNT, COUNT)
    query = counting(folder).start(spark, checkpointLocation=location)
    os.kill(query.pid("rows[0]"), signal.SIGKILL)
    assert query.awaitTermination(240)
    found = query.verify()
    assert found.is_identical
    # The last two seconds' window is open; each other one has 7 keys.
    assert (found.actual, found.open) == (7 * 11, 7)


def test_files_that_appear_are_read_and_one_that_was_replaced_ends_the_query(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder = tmp_path / "in"
    write(spark, folder, 0, COUNT)
    flow = hf.Dataflow("following")
    files = flow.source_files(str(folder), time="at", name="rows")
    files.filter("k = 3").sink("out")
    files.window(hf.tumbling("1 day")).aggregate("count(*) AS n", name="counts").sink("counts")
    query = flow.start(spark, checkpointLocation=str(tmp_path / "q"))
    query.processAllAvailable()
    write(spark, folder, COUNT, COUNT)
    query.processAllAvailable()
    expected = spark.read.parquet(str(folder)).where("k = 3").count()
    assert query.to_dataframe("out").count() == expected
    for file in folder.glob("*.parquet"):
        os.utime(file, (1.0, 1.0))
    for node in query.nodes:  # Without them the open window has to be read again.
        query.kill(node)
    with pytest.raises(hf.QueryFailedError, match="was replaced or changed"):
        query.awaitTermination(240)
