"""A DataFrame is recorded once: whoever stops, starts again, or comes from another thread."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from holdfast.api.dataflow import Dataflow
from holdfast.core.coordinator.journal_entries import JournalEntry
from holdfast.driver.query import Query
from holdfast.shell.spark.journal import EntryKind
from holdfast.shell.storage.errors import StorageError

pytestmark = pytest.mark.slow
AT = 1_700_000_000


def started(spark: SparkSession, frame: DataFrame, location: Path, name: str = "kept") -> Query:
    flow = Dataflow(name)
    flow.source(frame, name="rows", time="at").filter("v >= 0").sink("kept")
    return flow.start(spark, checkpointLocation=str(location))


def numbers(spark: SparkSession, count: int) -> DataFrame:
    return spark.range(count).selectExpr(f"timestamp_seconds({AT} + id) AS at", "id AS v")


def kept(query: Query) -> list[int]:
    return sorted(row.v for row in query.to_dataframe().collect())


def test_a_stopped_query_writes_no_more(spark: SparkSession, tmp_path: Path) -> None:
    """Spark's job waits, the query is stopped and begun again, and then the first job goes on."""
    gate = tmp_path / "gate"

    def wait(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import time

        while not gate.exists():
            time.sleep(0.01)  # In Spark's worker, until the test lets it go on.
        yield from batches

    slow = numbers(spark, 100).mapInArrow(wait, "at TIMESTAMP, v BIGINT")
    first = started(spark, slow, tmp_path / "q")
    first.stop()
    assert first.exception() is None
    assert not [t for t in threading.enumerate() if t.name == "ingest-rows"]
    gate.touch()
    second = started(spark, slow, tmp_path / "q")
    assert second.awaitTermination(120)
    assert kept(second) == list(range(100))
    assert len(list((tmp_path / "q" / "ingest" / "rows" / "commits").iterdir())) == 1


def test_nothing_is_recorded_before_the_driver_has_its_epoch(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two drivers at a location only one gets it; the other one must not write beside it."""

    def refuse(folder: str, kind: EntryKind[JournalEntry]) -> None:
        raise StorageError("another driver has begun")

    monkeypatch.setattr("holdfast.driver.starting.Journal", refuse)
    with pytest.raises(StorageError, match="another driver"):
        started(spark, numbers(spark, 10), tmp_path / "q")
    assert not (tmp_path / "q" / "ingest").exists()


def test_a_numbered_write_counts_once(spark: SparkSession, tmp_path: Path) -> None:
    for _ in range(2):
        writer = numbers(spark, 10).write.format("holdfast").mode("append").option("time", "at")
        writer.option("batch", "0").option("end", "true").save(str(tmp_path / "log"))
    rows = spark.read.format("holdfast").load(str(tmp_path / "log"))
    assert sorted(row.v for row in rows.collect()) == list(range(10))


def test_two_dataflows_of_one_session_may_call_a_source_alike(
    spark: SparkSession, tmp_path: Path
) -> None:
    numbers(spark, 5).coalesce(1).write.parquet(str(tmp_path / "in"))
    rows = spark.readStream.schema("at TIMESTAMP, v BIGINT").parquet(str(tmp_path / "in"))
    queries = [started(spark, rows, tmp_path / name, "twins") for name in ("a", "b")]
    try:
        for query in queries:
            query.processAllAvailable()
            assert kept(query) == list(range(5))
    finally:
        for query in queries:
            query.stop()


def test_a_query_may_be_started_from_any_thread(spark: SparkSession, tmp_path: Path) -> None:
    """One that has not used Spark yet has no session of its own."""
    numbers(spark, 5).coalesce(1).write.parquet(str(tmp_path / "in"))
    rows = spark.readStream.schema("at TIMESTAMP, v BIGINT").parquet(str(tmp_path / "in"))

    def run() -> list[int]:
        query = started(spark, rows, tmp_path / "q")
        try:
            query.processAllAvailable()
            return kept(query)
        finally:
            query.stop()

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(run).result() == list(range(5))
