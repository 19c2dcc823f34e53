"""Files as a sink, on real Spark tasks: any reader sees each row once, whoever is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import holdfast as hf

pytestmark = pytest.mark.slow
COUNT = 20_000


def write(spark: SparkSession, folder: Path, first: int) -> None:
    rows = spark.sql(
        "SELECT timestamp_micros(1700000000000000 + id * 1000) AS at, id % 5 AS k, id AS v, "
        f"concat('n', id % 3) AS s FROM range({first}, {first + COUNT}, 1, 2)"
    )
    rows.write.mode("append").parquet(str(folder))


def copying(tmp_path: Path, *, trigger: dict[str, bool] | None = None) -> hf.Dataflow:
    """Rows into files by partition, and counts into files of another format."""
    flow = hf.Dataflow("copying")
    rows = flow.source_files(
        str(tmp_path / "in"),
        schema="at TIMESTAMP, k BIGINT, v BIGINT, s STRING",
        time="at",
        delay="1 minute",  # Files that are written together may be listed one after the other.
        name="rows",
        partitions=2,
        trigger=trigger,
    )
    rows.filter("v % 2 = 0").sink_files(
        str(tmp_path / "out"), partition_by=("k", "s"), every="200 milliseconds"
    )
    windows = rows.key_by("k").window(hf.tumbling("10 seconds"))
    counts = windows.aggregate("count(*) AS n", name="counts")
    counts.sink_files(str(tmp_path / "counted"), format="csv", every="100 milliseconds")
    return flow


def values(spark: SparkSession, folder: Path) -> list[int]:
    """As anybody reads them, who knows nothing of Holdfast."""
    return sorted(row["v"] for row in spark.read.parquet(str(folder)).select("v").collect())


def test_any_reader_sees_each_row_once_though_nodes_are_killed_again_and_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    location = str(tmp_path / "q")
    write(spark, tmp_path / "in", 0)
    query = copying(tmp_path).start(spark, checkpointLocation=location)
    try:
        for part in range(1, 4):
            query.processAllAvailable()
            assert values(spark, tmp_path / "out") == list(range(0, part * COUNT, 2))
            write(spark, tmp_path / "in", part * COUNT)
            for node in query.nodes:
                query.kill(node)
        query.processAllAvailable()
    finally:
        query.stop()
    found = spark.read.parquet(str(tmp_path / "out"))
    assert values(spark, tmp_path / "out") == list(range(0, 4 * COUNT, 2))
    assert found.where("k <> v % 5 OR s <> concat('n', v % 3)").count() == 0
    assert found.schema["k"].dataType.simpleString() == "int"
    assert query.to_dataframe("out").schema["k"].dataType.simpleString() == "bigint"
    for sink in ("out", "counted"):
        assert query.verify(sink).is_identical


DRIVER = """
import sys
sys.path.insert(0, {tests!r})
from pathlib import Path
from test_sink_files import copying
from holdfast.driver.session import session
spark = session("killed")
copying(Path({place!r})).start(spark, checkpointLocation={place!r} + "/q").awaitTermination()
"""


def test_a_killed_driver_goes_on_and_readers_see_each_row_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    for part in range(3):
        write(spark, tmp_path / "in", part * COUNT)
    script = DRIVER.format(tests=str(Path(__file__).parent), place=str(tmp_path))
    with subprocess.Popen([sys.executable, "-c", script], start_new_session=True) as driver:
        try:
            deadline = time.monotonic() + 240
            while not list((tmp_path / "out").glob("k=*/s=*/part-*")):
                assert time.monotonic() < deadline, "no file in the sink"
                assert driver.poll() is None, "the driver ended"
                time.sleep(0.005)  # The kill comes as early as may be; nothing tells of the file.
        finally:
            os.killpg(driver.pid, signal.SIGKILL)
    before = values(spark, tmp_path / "out")
    assert len(before) == len(set(before))
    write(spark, tmp_path / "in", 3 * COUNT)
    flow = copying(tmp_path, trigger={"availableNow": True})
    query = flow.start(spark, checkpointLocation=str(tmp_path / "q"))
    assert query.awaitTermination(240)
    assert values(spark, tmp_path / "out") == list(range(0, 4 * COUNT, 2))
    assert query.verify("out").is_identical
    assert query.verify("counted").is_identical
