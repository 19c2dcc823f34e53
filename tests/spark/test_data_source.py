"""`format("holdfast")`: DataFrames in, streams out, options, errors."""

from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from spark_streams import begun

from holdfast.api.dataflow import Dataflow
from holdfast.api.windows import tumbling

pytestmark = pytest.mark.slow


def rows(spark: SparkSession, first: int = 0, last: int = 300) -> DataFrame:
    return spark.sql(
        f"SELECT timestamp_micros(1700000000000000 + id * 1000000) AS at, id AS v "
        f"FROM range({first}, {last})"
    )


def test_late_rows_are_counted_kept_and_left_out(spark: SparkSession, tmp_path: Path) -> None:
    late = "if(id % 50 = 49, id - 40, id)"
    frame = spark.sql(
        f"SELECT timestamp_micros(1700000000000000 + ({late}) * 1000000) AS at, id AS v "
        "FROM range(300)"
    ).coalesce(1)
    log = str(tmp_path / "log")
    for start in range(0, 300, 10):
        part = frame.where(f"v >= {start} AND v < {start + 10}")
        part.write.format("holdfast").option("time", "at").option("delayMs", "15000").mode(
            "append"
        ).save(log)
    stable = spark.read.format("holdfast").load(log)
    dropped = spark.read.format("holdfast").option("late", "true").load(log)
    assert stable.count() == 294
    assert sorted(r.v for r in dropped.collect()) == [49, 99, 149, 199, 249, 299]


def test_a_streaming_dataframe_is_followed_while_it_runs(
    spark: SparkSession, tmp_path: Path
) -> None:
    incoming = tmp_path / "incoming"
    rows(spark, 0, 100).coalesce(1).write.parquet(str(incoming))
    stream = spark.readStream.schema("at TIMESTAMP, v BIGINT").parquet(str(incoming))
    flow = Dataflow("follow")
    source = flow.source(stream, name="rows", time="at")
    source.window(tumbling("10 seconds")).aggregate("sum(v) AS total", name="totals").sink("totals")
    query = flow.start(spark, checkpointLocation=str(tmp_path / "q"))
    try:
        for first in (100, 200):
            while query.lastProgress["numInputRows"] < first:
                assert not query.awaitTermination(0.05)
            rows(spark, first, first + 100).coalesce(1).write.mode("append").parquet(str(incoming))
        while query.lastProgress["numInputRows"] < 300:
            assert not query.awaitTermination(0.05)
        while query.lastProgress["numOutputRows"] < 29:
            assert not query.awaitTermination(0.05)
    finally:
        query.stop()
    totals = query.to_dataframe().orderBy("window_start").collect()
    assert [r.total for r in totals][:2] == [sum(range(10)), sum(range(10, 20))]


def test_results_are_a_stream_again(spark: SparkSession, tmp_path: Path) -> None:
    flow = Dataflow("again")
    flow.source(rows(spark), name="rows", time="at").filter("v % 2 = 0").sink("even")
    query = flow.start(spark, checkpointLocation=str(tmp_path))
    assert query.awaitTermination(240)
    reader = spark.readStream.format("holdfast").option("stream", "even")
    writer = reader.load(str(tmp_path)).writeStream.format("memory").queryName("even_again")
    assert begun(writer.trigger(availableNow=True)).awaitTermination(240)
    assert spark.table("even_again").count() == 150
    described = spark.read.format("holdfast").option("stream", "even").option("metadata", "true")
    ids = [r._tuple_id for r in described.load(str(tmp_path)).orderBy("_tuple_id").collect()]
    assert ids == list(range(150))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"colour": "red"}, "unknown option colour; there are"),
        ({"types": "some"}, "types='some'"),
        ({"stream": "nothing"}, "no stream 'nothing'"),
        ({"stream": "../up"}, "cannot be a name"),
        ({"partitions": "two"}, "partitions='two' is no whole number"),
    ],
)
def test_bad_options_are_refused(
    spark: SparkSession, tmp_path: Path, options: dict[str, str], message: str
) -> None:
    rows(spark).write.format("holdfast").option("time", "at").mode("append").save(
        str(tmp_path / "ingest" / "rows")
    )
    path = str(tmp_path / "ingest" / "rows") if "partitions" in options else str(tmp_path)
    with pytest.raises(PySparkException, match=message):
        spark.read.format("holdfast").options(**options).load(path).collect()


def test_writing_needs_a_time_column(spark: SparkSession, tmp_path: Path) -> None:
    frame = rows(spark)
    with pytest.raises(PySparkException, match=r"writing needs option\('time', column\)"):
        frame.write.format("holdfast").mode("append").save(str(tmp_path / "a"))
    with pytest.raises(PySparkException, match="no time column 'when'; there are at, v"):
        frame.write.format("holdfast").option("time", "when").mode("append").save(
            str(tmp_path / "b")
        )
