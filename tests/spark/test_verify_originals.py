"""`verify(source="original")` sees what went wrong on the way into the recording."""

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from holdfast.api.dataflow import Dataflow
from holdfast.driver.originals import InputCheck
from holdfast.driver.query import Query
from holdfast.errors import OptionError
from holdfast.shell.storage import ingest_log

pytestmark = pytest.mark.slow
AT = 1_700_000_000


def ran(spark: SparkSession, frame: DataFrame, location: Path, **settings: object) -> Query:
    flow = Dataflow("kept")
    flow.source(frame, name="rows", time="at", **settings).filter("v >= 0").sink("kept")  # type: ignore[arg-type]
    query = flow.start(spark, checkpointLocation=str(location))
    assert query.awaitTermination(120)
    return query


def numbers(spark: SparkSession, first: int, end: int) -> DataFrame:
    rows = spark.range(first, end).selectExpr(f"timestamp_seconds({AT} + id) AS at", "id AS v")
    return rows.coalesce(1)


def test_rows_recorded_twice_are_seen_beside_the_original_alone(
    spark: SparkSession, tmp_path: Path
) -> None:
    """As if an earlier life had recorded the DataFrame, too."""
    root, frame = str(tmp_path / "q" / "ingest" / "rows"), numbers(spark, 0, 20)
    writer = frame.write.format("holdfast").mode("append").option("time", "at")
    writer.option("delayUs", "0").save(root)
    writer.option("delayUs", "0").option("end", "true").save(root)
    assert ingest_log.has_ended(root)
    query = ran(spark, frame, tmp_path / "q")
    found = query.verify()
    assert (found.is_identical, found.compared_with, found.inputs) == (True, "recorded", ())
    found = query.verify(source="original")
    assert (found.is_identical, found.compared_with) == (False, "original")
    assert found.inputs == (InputCheck("rows", "original", "", 20, 40, 0, 20),)
    with pytest.raises(OptionError, match="it is 'recorded' or 'original'"):
        query.verify(source="twin")


def test_files_of_a_stream_are_read_again_as_far_as_they_were_recorded(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    files = str(tmp_path / "in")
    frame = spark.readStream.schema("at TIMESTAMP, v BIGINT").parquet(files)
    for first in (0, 10):
        numbers(spark, first, first + 10).write.mode("append").parquet(files)
        query = ran(spark, frame, tmp_path / "q", trigger={"availableNow": True})
    numbers(spark, 20, 30).write.mode("append").parquet(files)  # Nobody has read it.
    found = query.verify(source="original")
    assert found.inputs == (InputCheck("rows", "original", "", 20, 20, 0, 0),)
    assert (found.is_identical, found.actual) == (True, 20)
