"""Which DataFrames nodes read by themselves, and which Spark has to."""

from __future__ import annotations

from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from holdfast.api.dataflow import Dataflow
from holdfast.api.windows import tumbling
from holdfast.driver.frame_recorders import as_read, recorder_of_frame
from holdfast.driver.query import Query
from holdfast.shell.storage.ingest_log import IngestMeta, prepare
from holdfast.shell.storage.paths import ingest_path

pytestmark = pytest.mark.slow
IN_NODES, BY_SPARK = "nodes read the files of ", "Spark writes its rows into a log"


def way(frame: DataFrame, location: Path, *, is_allowed: bool = True, **settings: object) -> str:
    flow = Dataflow("flow")
    rows = flow.source(frame, name="rows", time="at", **settings)  # type: ignore[arg-type]
    rows.window(tumbling("10 seconds")).aggregate("count(*) AS n").sink("out")
    run = as_read(flow, str(location), is_allowed=is_allowed)
    return recorder_of_frame(run.steps[0], run, str(location), is_allowed=is_allowed).way


def explained(query: Query) -> str:
    with redirect_stdout(StringIO()) as printed:
        query.explain()
    return printed.getvalue()


@pytest.fixture(scope="module")
def folder(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    made = tmp_path_factory.mktemp("scans") / "in"
    rows = spark.sql("SELECT timestamp_seconds(id) AS at, id AS k, 'x' AS s FROM range(5)")
    rows.coalesce(1).write.parquet(str(made))
    more = spark.sql("SELECT timestamp_seconds(id) AS at, id AS k, 'x' AS s FROM range(5, 8)")
    more.coalesce(1).write.parquet(f"{made}2")
    rows.union(spark.sql("SELECT NULL, 9, 'y'")).coalesce(1).write.parquet(f"{made}3")
    rows.selectExpr("*", "k % 2 AS d").write.partitionBy("d").parquet(f"{made}4")
    return str(made)


def test_plain_scans_are_read_by_nodes(spark: SparkSession, folder: str, tmp_path: Path) -> None:
    followed = spark.readStream.schema("at TIMESTAMP, k BIGINT").parquet(folder)
    several = spark.readStream.option("maxFilesPerTrigger", 2)
    for frame in (
        spark.read.parquet(folder),
        spark.read.parquet(folder).select("k", "at"),
        followed.withWatermark("at", "2 seconds").alias("x").select("at"),
        several.schema("at TIMESTAMP, absent INT").parquet(folder),
    ):
        assert way(frame, tmp_path) == f"{IN_NODES}{folder}"
    both = spark.read.parquet(folder, f"{folder}2")
    assert way(both, tmp_path) == f"{IN_NODES}{folder}, {folder}2"


def test_a_filter_becomes_a_step_behind_the_files(
    spark: SparkSession, folder: str, tmp_path: Path
) -> None:
    """Also one over a column that the DataFrame leaves out; Spark writes casts into it."""
    frame = spark.read.parquet(folder).where("k IN (1, 2, 4)").where("s = 'x'").select("at")
    assert way(frame, tmp_path) == f"{IN_NODES}{folder}"
    flow = Dataflow("flow")
    flow.source(frame, name="rows", time="at").sink("out")
    run = as_read(flow, str(tmp_path), is_allowed=True)
    assert [step.name for step in run.steps] == [
        *("rows", "rows~filter", "rows~filter2", "rows~select")
    ]
    assert run.steps[0].schema.names == ["at", "k", "s"]
    assert run.sinks["out"].schema == flow.sinks["out"].schema
    assert as_read(flow, str(tmp_path), is_allowed=False) is flow
    marked = spark.readStream.schema("at TIMESTAMP, k BIGINT").parquet(folder)
    marked = marked.withWatermark("at", "2 seconds").where("at > '1970-01-01 00:00:02'")
    assert way(marked, tmp_path) == f"{IN_NODES}{folder}"


def test_results_of_a_filter_are_sparks(spark: SparkSession, folder: str, tmp_path: Path) -> None:
    frame = spark.read.parquet(folder, f"{folder}2").where("k % 2 = 0 AND k IN (1, 2, 4, 6)")
    flow = Dataflow("filtered")
    rows = flow.source(frame, name="rows", time="at")
    rows.window(tumbling("10 seconds")).aggregate("count(*) AS n", "sum(k) AS k").sink("out")
    query = flow.start(spark, checkpointLocation=str(tmp_path / "at"))
    assert query.awaitTermination(60)
    assert IN_NODES in explained(query)
    (row,) = query.to_dataframe("out").select("n", "k").collect()
    assert tuple(row) == frame.selectExpr("count(*)", "sum(k)").first()
    verified = query.verify("out", source="original")
    assert verified.is_identical
    assert verified.inputs[0].given == spark.read.parquet(folder, f"{folder}2").count()


def test_others_are_read_by_spark_which_says_why(
    spark: SparkSession, folder: str, tmp_path: Path
) -> None:
    plain = spark.read.parquet(folder)
    followed = spark.readStream.schema("at TIMESTAMP, k BIGINT").parquet(folder)
    narrow = spark.readStream.schema("at TIMESTAMP, k INT").parquet(folder)
    upper = spark.readStream.schema("at TIMESTAMP, K BIGINT").parquet(folder)
    for frame, reason in (
        (plain.where("hash(k) > 3"), "hash is not among the functions"),
        (followed.where("k > 3"), "filter decides which rows move time"),
        (
            followed.withWatermark("at", "2 seconds").where("at > '1970-01-01' AND k > 3"),
            "filter decides which rows move time",
        ),
        (spark.read.parquet(f"{folder}3").where("at > '1970-01-01'"), "at is null in"),
        (spark.read.parquet(f"{folder}4").where("d = 1"), "its filter reads d, which folders name"),
        (plain.selectExpr("at", "k + 1 AS k"), "a column is computed"),
        (plain.union(plain), "it reads Union"),
        (spark.read.option("mergeSchema", "true").parquet(folder), "has the option mergeschema"),
        (spark.read.parquet(folder, folder), "reads a file twice"),
        (spark.read.schema(plain.schema).json(folder), "its format is JSON"),
        (spark.range(3).selectExpr("timestamp_seconds(id) AS at"), "computed"),
        (narrow, "column 'k' is int64, not int32"),
        (upper, "column 'K' is written otherwise"),
    ):
        assert way(frame, tmp_path).startswith(BY_SPARK)
        assert reason in way(frame, tmp_path)
    assert "its trigger is a time" in way(
        followed, tmp_path, trigger={"processingTime": "1 second"}
    )
    assert "at a set speed" in way(plain, tmp_path, speed=2.0)
    assert "readFilesInNodes is off" in way(plain, tmp_path, is_allowed=False)
    grown = spark.read.parquet(folder)
    plain.write.mode("append").parquet(folder)
    assert "its folder holds other files by now" in way(grown, tmp_path)


def test_a_location_goes_on_the_way_it_was_begun(
    spark: SparkSession, folder: str, tmp_path: Path
) -> None:
    frame = spark.read.parquet(folder)
    flow = Dataflow("flow")
    flow.source(frame, name="rows", time="at")
    (step,) = flow.steps
    prepare(ingest_path(str(tmp_path / "a"), "rows"), IngestMeta(step.schema, "at", 0))
    assert way(frame, tmp_path / "a").endswith("its log was begun so")
    begun = recorder_of_frame(step, flow, str(tmp_path / "b"), is_allowed=True)
    begun.start(spark)
    begun.wait()
    assert begun.error is None
    assert begun.has_ended
    assert way(frame, tmp_path / "b", is_allowed=False).startswith(IN_NODES)
