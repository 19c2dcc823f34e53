"""A Delta table as a sink, on real Spark tasks: plain Delta readers see each row once."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

import holdfast as hf

pytestmark = pytest.mark.slow
COUNT = 20_000


def write(spark: SparkSession, folder: Path, first: int) -> None:
    rows = spark.sql(
        "SELECT timestamp_micros(1700000000000000 + id * 1000) AS at, id % 5 AS k, id AS v "
        f"FROM range({first}, {first + COUNT}, 1, 2)"
    )
    rows.write.mode("append").parquet(str(folder))


def copying(tmp_path: Path, *, trigger: dict[str, bool] | None = None) -> hf.Dataflow:
    flow = hf.Dataflow("copying")
    rows = flow.source_files(
        str(tmp_path / "in"),
        schema="at TIMESTAMP, k BIGINT, v BIGINT",
        time="at",
        delay="1 minute",  # Files that are written together may be listed one after the other.
        name="rows",
        partitions=2,
        trigger=trigger,
    )
    rows.sink_delta(str(tmp_path / "out"), partition_by="k", every="100 milliseconds")
    windows = rows.key_by("k").window(hf.tumbling("10 seconds"))
    counts = windows.aggregate("count(*) AS n", name="counts")
    counts.sink_delta(str(tmp_path / "counted"), every="100 milliseconds")
    return flow


def values(tmp_path: Path) -> list[int]:
    """As anybody reads them, who knows nothing of Holdfast."""
    return sorted(DeltaTable(tmp_path / "out").to_pyarrow_table().column("v").to_pylist())


def test_delta_readers_see_each_row_once_though_nodes_are_killed_and_a_later_run_goes_on(
    spark: SparkSession, tmp_path: Path
) -> None:
    location = str(tmp_path / "q")
    write(spark, tmp_path / "in", 0)
    query = copying(tmp_path).start(spark, checkpointLocation=location)
    try:
        for part in range(1, 4):
            query.processAllAvailable()
            assert values(tmp_path) == list(range(part * COUNT))
            write(spark, tmp_path / "in", part * COUNT)
            for node in query.nodes:
                query.kill(node)
    finally:
        query.stop()
    flow = copying(tmp_path, trigger={"availableNow": True})
    query = flow.start(spark, checkpointLocation=location)
    assert query.awaitTermination(240)
    assert values(tmp_path) == list(range(4 * COUNT))
    for sink in ("out", "counted"):
        assert query.verify(sink).is_identical


def test_a_table_is_read_as_a_stream_of_its_versions(spark: SparkSession, tmp_path: Path) -> None:
    for part in range(2):
        times = [datetime.fromtimestamp(part * COUNT + n, UTC) for n in range(COUNT)]
        rows = pa.table({"at": times, "k": [n % 5 for n in range(COUNT)], "v": range(COUNT)})
        write_deltalake(str(tmp_path / "in"), rows, mode="append", partition_by=["k"])
    flow = hf.Dataflow("versions")
    given = flow.source_delta(str(tmp_path / "in"), time="at", ends=True, name="rows", partitions=2)
    windows = given.key_by("k").window(hf.tumbling("1 hour"))
    windows.aggregate("count(*) AS n", "sum(v) AS total", name="counts").sink("counts")
    query = flow.start(spark, checkpointLocation=str(tmp_path / "q"))
    assert query.awaitTermination(240)
    assert query.verify(source="original").is_identical
    (found,) = query.to_dataframe().selectExpr("sum(n)", "sum(total)").collect()
    assert tuple(found) == (2 * COUNT, 2 * sum(range(COUNT)))
