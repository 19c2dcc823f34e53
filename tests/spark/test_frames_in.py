"""DataFrames in: event time and watermark, exactly once over restarts, the end of bounded input."""

import shutil
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from holdfast.api.dataflow import Dataflow
from holdfast.api.windows import tumbling
from holdfast.driver.query import Query
from holdfast.errors import (
    DataflowChangedError,
    DataflowError,
    QueryFailedError,
    UnsupportedError,
)

pytestmark = pytest.mark.slow
AT = 1_700_000_000


def put(spark: SparkSession, folder: Path, seconds: list[int]) -> None:
    """One file with rows of these seconds; the value is the second."""
    values = ", ".join(f"{second}L" for second in seconds)
    made = spark.sql(
        f"SELECT timestamp_seconds({AT} + v) AS at, v FROM explode(array({values})) t(v)"
    )
    made.coalesce(1).write.mode("append").parquet(str(folder))


def following(spark: SparkSession, folder: Path) -> DataFrame:
    return spark.readStream.schema("at TIMESTAMP, v BIGINT").parquet(str(folder))


def recorded(spark: SparkSession, folder: Path) -> DataFrame:
    """One that Spark writes into the log, as a column is computed."""
    return following(spark, folder).selectExpr("at", "v + 0 AS v")


def started(spark: SparkSession, frame: DataFrame, location: Path, **settings: object) -> Query:
    flow = Dataflow("totals")
    source = flow.source(frame, name="rows", **settings)  # type: ignore[arg-type]
    windows = source.window(tumbling("10 seconds"))
    windows.aggregate("sum(v) AS total", name="totals").sink("totals")
    return flow.start(spark, checkpointLocation=str(location))


def totals(query: Query) -> list[int]:
    return [row.total for row in query.to_dataframe().orderBy("window_start").collect()]


def test_sparks_watermark_closes_windows_and_says_what_is_late(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The newest row is filtered out, so that only the watermark knows how late it is.

    It closes windows once Spark has found nothing new, and judges what comes afterwards.
    """
    put(spark, tmp_path / "in", [1, 2, 11, 101])
    marked = following(spark, tmp_path / "in").withWatermark("at", "15 seconds")
    query = started(spark, marked.where(f"at < timestamp_seconds({AT + 100})"), tmp_path / "q")
    try:
        query.processAllAvailable()
        while totals(query) != [1 + 2, 11]:
            assert not query.awaitTermination(0.05)
        put(spark, tmp_path / "in", [12, 87])
        query.processAllAvailable()
        assert totals(query) == [1 + 2, 11]
        assert query.lastProgress["lateRows"] == 1
        assert query.lastProgress["eventTime"]["watermark"].startswith("2023-11-14T22:14:46")
    finally:
        query.stop()
    late = spark.read.format("holdfast").option("late", "true").option("stream", "rows")
    assert [row.v for row in late.load(str(tmp_path / "q")).collect()] == [12]
    verified = query.verify()
    assert (verified.doubled, verified.dropped) == (0, 1)


def test_nothing_is_late_that_spark_keeps(spark: SparkSession, tmp_path: Path) -> None:
    """Two tasks of one micro-batch have read the same stretch of time."""
    incoming = tmp_path / "in"
    put(spark, incoming, list(range(100)))
    put(spark, incoming, list(range(100)))
    marked = following(spark, incoming).withWatermark("at", "3 seconds")
    flow = Dataflow("kept")
    flow.source(marked, name="rows", trigger={"availableNow": True}).sink("kept")
    query = flow.start(spark, checkpointLocation=str(tmp_path / "q"))
    assert query.awaitTermination(120)
    assert query.to_dataframe("kept").count() == 200
    assert query.lastProgress["lateRows"] == 0


def test_a_delay_counts_to_the_microsecond(spark: SparkSession, tmp_path: Path) -> None:
    put(spark, tmp_path / "in", [1])
    marked = following(spark, tmp_path / "in")
    query = started(spark, marked, tmp_path / "q", time="at", delay="1500 microseconds")
    try:
        query.processAllAvailable()
        late = f"SELECT timestamp_micros({AT + 1}000000 - age) AS at, age AS v FROM VALUES "
        for age in (1400, 1600):
            row = spark.sql(f"{late} ({age}L) AS t(age)")
            row.coalesce(1).write.mode("append").parquet(str(tmp_path / "in"))
        query.processAllAvailable()
        assert query.lastProgress["lateRows"] == 1
    finally:
        query.stop()
    kept = spark.read.format("holdfast").option("stream", "rows").load(str(tmp_path / "q"))
    assert sorted(row.v for row in kept.collect()) == [1, 1400]


def test_a_batch_that_spark_runs_again_counts_once(spark: SparkSession, tmp_path: Path) -> None:
    put(spark, tmp_path / "in", list(range(20)))
    query = started(spark, recorded(spark, tmp_path / "in"), tmp_path / "q", time="at")
    query.processAllAvailable()
    query.stop()
    first_id = query.id
    done = tmp_path / "q" / "ingest-checkpoints" / "rows" / "commits"
    shutil.rmtree(done)  # As if Spark had died between our commit and its own.
    put(spark, tmp_path / "in", list(range(20, 35)))
    query = started(spark, recorded(spark, tmp_path / "in"), tmp_path / "q", time="at")
    try:
        query.processAllAvailable()
        assert query.id == first_id
    finally:
        query.stop()
    rows = spark.read.format("holdfast").option("stream", "rows").load(str(tmp_path / "q"))
    assert sorted(row.v for row in rows.collect()) == list(range(35))
    assert totals(query) == [sum(range(10)), sum(range(10, 20)), sum(range(20, 30))]


def test_a_streaming_query_without_its_checkpoints_is_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Spark would number its batches anew, and those that count already would be left out."""
    put(spark, tmp_path / "in", [1])
    query = started(spark, recorded(spark, tmp_path / "in"), tmp_path / "q", time="at")
    query.processAllAvailable()
    query.stop()
    shutil.rmtree(tmp_path / "q" / "ingest-checkpoints")
    put(spark, tmp_path / "in", [2])
    query = started(spark, recorded(spark, tmp_path / "in"), tmp_path / "q", time="at")
    with pytest.raises(QueryFailedError, match="batch 0 was recorded from other offsets"):
        query.awaitTermination(60)


def test_what_is_available_now_ends_the_query_and_a_later_run_goes_on(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As Spark's own: the window that more rows may come to is not put out before they have."""
    put(spark, tmp_path / "in", list(range(25)))
    frame = following(spark, tmp_path / "in")
    query = started(spark, frame, tmp_path / "q", time="at", trigger={"availableNow": True})
    assert query.awaitTermination(120)
    query.explain()
    assert f"rows: nodes read the files of {tmp_path / 'in'}" in capsys.readouterr().out
    assert totals(query) == [sum(range(10)), sum(range(10, 20))]
    found = query.verify()
    assert (found.is_identical, found.expected, found.open) == (True, 3, 1)
    put(spark, tmp_path / "in", list(range(25, 35)))
    again = started(spark, frame, tmp_path / "q", time="at", trigger={"availableNow": True})
    assert again.awaitTermination(120)
    assert totals(again) == [sum(range(10)), sum(range(10, 20)), sum(range(20, 30))]
    idle = started(spark, frame, tmp_path / "q", time="at", trigger={"availableNow": True})
    assert idle.awaitTermination(120)
    assert totals(idle) == totals(again)
    found = idle.verify()
    assert (found.is_identical, found.expected, found.open) == (True, 4, 1)


def test_what_is_available_now_beside_what_has_no_end_is_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    put(spark, tmp_path / "in", [1])
    flow = Dataflow("mixed")
    frame = following(spark, tmp_path / "in")
    some = flow.source(frame, name="some", time="at", trigger={"availableNow": True})
    some.union(flow.source(frame, name="endless", time="at")).sink("all")
    with pytest.raises(UnsupportedError, match="source endless does not say how much that is"):
        flow.start(spark, checkpointLocation=str(tmp_path / "q"))


def test_what_is_available_now_is_merged_with_a_bounded_dataframe(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The bounded one ends; the other holds time where it is."""
    put(spark, tmp_path / "in", [1, 5])
    put(spark, tmp_path / "bounded", [2, 3, 9])
    flow = Dataflow("merged")
    frame = following(spark, tmp_path / "in")
    some = flow.source(frame, name="some", time="at", trigger={"availableNow": True})
    bounded = spark.read.parquet(str(tmp_path / "bounded"))
    some.union(flow.source(bounded, name="bounded", time="at")).sink("all")
    query = flow.start(spark, checkpointLocation=str(tmp_path / "q"))
    assert query.awaitTermination(120)
    found = query.verify()
    assert (found.is_identical, found.expected, found.lost) == (True, 5, 0)
    assert sorted(row.v for row in query.to_dataframe().collect())[:2] == [1, 2]


def test_a_streaming_query_that_is_stopped_by_others_fails_the_query(
    spark: SparkSession, tmp_path: Path
) -> None:
    put(spark, tmp_path / "in", [1])
    query = started(spark, recorded(spark, tmp_path / "in"), tmp_path / "q", time="at")
    try:
        (ingest,) = [q for q in spark.streams.active if q.name.startswith("holdfast-ingest-rows-")]
        ingest.stop()
        with pytest.raises(QueryFailedError, match="rows: its streaming query was stopped"):
            query.awaitTermination(240)
    finally:
        query.stop()


def test_other_columns_at_the_same_location_are_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    put(spark, tmp_path / "in", [1])
    started(spark, following(spark, tmp_path / "in"), tmp_path / "q", time="at").stop()
    changed = following(spark, tmp_path / "in").selectExpr("at", "CAST(v AS INT) AS v")
    with pytest.raises(DataflowChangedError, match="v int32"):
        started(spark, changed, tmp_path / "q", time="at")


def test_a_dataframe_must_say_what_its_time_is(spark: SparkSession, tmp_path: Path) -> None:
    put(spark, tmp_path / "in", [1])
    plain = following(spark, tmp_path / "in")
    marked = plain.withWatermark("at", "1 second")
    other = following(spark, tmp_path / "in").selectExpr("at AS other", "v")
    both = marked.join(other.withWatermark("other", "1 second"), "v")
    flow = Dataflow("refused")
    with pytest.raises(DataflowError, match=r"which column is the event time.* it has none"):
        flow.source(plain, name="rows")
    with pytest.raises(DataflowError, match="it has several: at, other"):
        flow.source(both, name="rows")
    with pytest.raises(DataflowError, match="no column 'when'; there are at, v"):
        flow.source(plain, name="rows", time="when")
    with pytest.raises(DataflowError, match="time column 'v' is int64"):
        flow.source(plain, name="rows", time="v")


@pytest.mark.parametrize(
    ("trigger", "message"),
    [
        ({"once": True}, "write {'availableNow': True}"),
        ({"availableNow": False}, "availableNow is True or left out"),
        ({"processingTime": "soon"}, "'soon' is no duration"),
        ({}, "write {'availableNow': True}"),
    ],
)
def test_bad_triggers_are_refused(
    spark: SparkSession, tmp_path: Path, trigger: dict[str, object], message: str
) -> None:
    put(spark, tmp_path / "in", [1])
    with pytest.raises((DataflowError, UnsupportedError), match=message):
        Dataflow("refused").source(
            following(spark, tmp_path / "in"), name="rows", time="at", trigger=trigger
        )


def test_a_bounded_dataframe_has_no_trigger(spark: SparkSession) -> None:
    frame = spark.sql("SELECT timestamp_seconds(1) AS at")
    with pytest.raises(DataflowError, match="only a streaming DataFrame has one"):
        Dataflow("refused").source(frame, name="rows", time="at", trigger={"availableNow": True})
