"""A source falls silent: tentative results within the bound, corrected when it is back. [DPC]"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery
from spark_streams import begun

import holdfast as hf
from holdfast.api.windows import tumbling
from holdfast.driver.query import Query
from holdfast.shell.storage import ingest_log
from holdfast.shell.storage.ingest_log import IngestMeta

pytestmark = pytest.mark.slow
AT_US = 1_700_000_000_000_000
META = IngestMeta(
    pa.schema([pa.field("at", pa.timestamp("us", tz="UTC")), pa.field("n", pa.int64())]), "at", 0
)


class Log:
    """An ingest log that a test writes to."""

    def __init__(self, root: Path) -> None:
        self.path = str(root)
        ingest_log.prepare(self.path, META)

    def put(self, first: int, stop: int, *, ends: bool = False) -> None:
        """One row per tenth of a second."""
        at = pa.array([AT_US + n * 100_000 for n in range(first, stop)], META.schema.field(0).type)
        rows = pa.RecordBatch.from_arrays([at, pa.array(range(first, stop))], schema=META.schema)
        file = ingest_log.write_file(self.path, META, iter([rows]))
        assert file is not None
        ingest_log.append_batch(self.path, [file], ends=ends)


def wait(query: Query, is_so: Callable[[], bool]) -> None:
    while not is_so():
        assert not query.awaitTermination(0.05)


def read(spark: SparkSession, query: Query, types: str) -> list[Any]:
    reader = spark.read.format("holdfast").option("stream", "counts").option("types", types)
    return reader.load(query._location).collect()


def follow(spark: SparkSession, query: Query) -> StreamingQuery:
    """Have a stream of Spark read everything as it comes, into a table."""
    reader = spark.readStream.format("holdfast").option("stream", "counts").option("types", "all")
    frame = reader.load(query._location)
    return begun(frame.writeStream.format("memory").queryName("followed"))


def kinds(spark: SparkSession, query: Query) -> list[str]:
    return [row["_type"] for row in read(spark, query, "all")]


@pytest.mark.parametrize(
    ("counting", "is_killed"), [("all", False), ("all", True), ("behind", True)]
)
def test_a_silent_source_delays_nothing_beyond_the_bound_and_all_is_corrected(
    spark: SparkSession, tmp_path: Path, counting: str, is_killed: bool
) -> None:
    """In one unit, and in a chain of two, of which the first is killed."""
    a, b = Log(tmp_path / "a"), Log(tmp_path / "b")
    a.put(0, 50)
    b.put(0, 50)
    flow = hf.Dataflow("silenced")
    sources = [flow.source_log(log.path, name=name) for log, name in ((a, "a"), (b, "b"))]
    merged = sources[0].unit("all").union(sources[1])
    windows = merged.unit(counting).window(tumbling("1 second"))
    counts = windows.aggregate("count(*) AS n", name="counts")
    counts.sink("counts")
    query = flow.start(
        spark,
        checkpointLocation=str(tmp_path / "q"),
        protection=hf.Replicated(delay="300 milliseconds", alpha=1.0),
    )
    followed = None
    try:
        wait(query, lambda: written(query) == 4)  # Before, there may be no log to read.
        if not is_killed:
            followed = follow(spark, query)
        assert query.to_dataframe("counts").count() == 4
        a.put(50, 100)  # And nothing of b.
        # A source may have been missed before, too, and that corrected: what stands is looked at.
        wait(query, lambda: len(read(spark, query, "current")) == 9)
        assert query.to_dataframe("counts").count() == 4
        current = read(spark, query, "current")
        assert {row["_type"] for row in current[4:]} == {"tentative"}
        assert [row["n"] for row in current[:4]] == [20] * 4
        assert {row["n"] for row in current[5:]} == {10}
        assert all("b[0]" in row["_missing"] for row in current[4:])
        assert all(0 <= row["_share"] < 1 for row in current[4:])
        wait(query, lambda: "up_failure" in states(query))
        if is_killed:
            pid = query.nodes["all[0]"]
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
            wait(query, lambda: len(query.recoveries) >= 1)
        b.put(50, 100, ends=True)
        a.put(100, 101, ends=True)
        assert query.awaitTermination(300)
        if followed is not None:
            followed.processAllAvailable()
            found = [tuple(row) for row in spark.table("followed").collect()]
            assert found == [tuple(row) for row in read(spark, query, "all")]
    finally:
        query.stop()
        if followed is not None:
            followed.stop()
    compared = query.verify(types="all")
    assert compared.is_identical
    assert compared.corrections is not None
    assert compared.corrections.tentative == compared.corrections.undone > 0
    found = kinds(spark, query)
    assert found.count("undo") >= 1
    assert found[-1] in ("stable", "rec_done")
    assert [row["n"] for row in read(spark, query, "current")] == [20] * 10 + [1]


def test_replicas_may_be_killed_without_and_in_failure(spark: SparkSession, tmp_path: Path) -> None:
    """Two nodes each of a unit that merges and of one behind it; the sink has one node."""
    a, b = Log(tmp_path / "a"), Log(tmp_path / "b")
    a.put(0, 50)
    b.put(0, 50)
    flow = hf.Dataflow("replicas")
    sources = [flow.source_log(log.path, name=name) for log, name in ((a, "a"), (b, "b"))]
    merged = sources[0].unit("all").union(sources[1])
    windows = merged.unit("behind").window(tumbling("1 second"))
    windows.aggregate("count(*) AS n", name="counts").sink("counts")
    query = flow.start(
        spark,
        checkpointLocation=str(tmp_path / "q"),
        protection=hf.Replicated(replicas=2, delay="2 seconds", alpha=1.0),
    )
    try:
        wait(query, lambda: written(query) == 4)
        kill(query, "all[0]", 1)
        kill(query, "behind[0]+1", 2)
        a.put(50, 60)
        b.put(50, 60)
        wait(query, lambda: written(query) == 5)
        a.put(60, 100)  # And nothing of b.
        wait(query, lambda: "tentative" in kinds(spark, query))
        kill(query, "all[0]+1", 3)
        b.put(60, 100, ends=True)
        a.put(100, 101, ends=True)
        assert query.awaitTermination(300)
    finally:
        query.stop()
    compared = query.verify(types="all")
    assert compared.is_identical
    assert compared.corrections is not None
    assert compared.corrections.tentative == compared.corrections.undone > 0
    assert [row["n"] for row in read(spark, query, "current")] == [20] * 10 + [1]


def test_beyond_its_bound_a_unit_drops_what_it_names_and_nothing_else(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Its node is killed behind the correction, too: whoever takes over drops the same."""
    a, b = Log(tmp_path / "a"), Log(tmp_path / "b")
    flow = hf.Dataflow("dropping")
    sources = [flow.source_log(log.path, name=name) for log, name in ((a, "a"), (b, "b"))]
    windows = sources[0].unit("all").union(sources[1]).window(tumbling("1 second"))
    windows.aggregate("count(*) AS n", name="counts").sink("counts")
    a.put(0, 50)
    b.put(0, 50)
    query = flow.start(
        spark,
        checkpointLocation=str(tmp_path / "q"),
        # So long that a source is missed, and rows are dropped, only where the test withholds it.
        protection=hf.Replicated(delay="10 seconds", buffer="drop"),
        options={
            "spark.holdfast.inputQueueTuples": "20",
            "spark.holdfast.passTuples": "20",
        },
    )
    try:
        wait(query, lambda: written(query) == 4)
        for first in range(50, 100, 5):  # A file is taken whole, whatever the bound.
            a.put(first, first + 5)
        wait(query, lambda: kinds(spark, query).count("tentative") >= 4)
        b.put(50, 101)
        a.put(100, 101)
        wait(query, lambda: "rec_done" in kinds(spark, query))
        wait(query, lambda: consistency(query, "all")["droppedRows"] > 0)
        counted = consistency(query, "all")["droppedRows"]
        kill(query, "all[0]", 1)
        b.put(101, 102, ends=True)
        a.put(101, 102, ends=True)
        assert query.awaitTermination(300)
    finally:
        query.stop()
    progress = query.lastProgress
    gaps = {(gap["stream"], gap["from_id"], gap["to_id"]) for gap in progress["gaps"]}
    dropped = {n for stream, first, end in gaps for n in range(first, end)}
    assert {stream[0] for stream, _, _ in gaps} == {"a"}
    assert dropped < set(range(50, 101))
    assert counted == len(dropped)
    left = [n for n in range(102) if n not in dropped] + list(range(102))
    wanted = [sum(n // 10 == second for n in left) for second in range(11)]
    assert [row["n"] for row in read(spark, query, "current")] == wanted
    compared = query.verify(types="all")
    assert not compared.is_identical, "it compares with all input"
    assert compared.corrections is not None
    assert compared.corrections.tentative == compared.corrections.undone > 0


def test_beyond_its_bound_a_unit_stops_reading_and_loses_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    a, b = Log(tmp_path / "a"), Log(tmp_path / "b")
    flow = hf.Dataflow("blocking")
    sources = [flow.source_log(log.path, name=name) for log, name in ((a, "a"), (b, "b"))]
    windows = sources[0].unit("all").union(sources[1]).window(tumbling("1 second"))
    windows.aggregate("count(*) AS n", name="counts").sink("counts")
    a.put(0, 50)
    b.put(0, 50)
    query = flow.start(
        spark,
        checkpointLocation=str(tmp_path / "q"),
        protection=hf.Replicated(delay="2 seconds", alpha=1.0, buffer="block"),
        options={
            "spark.holdfast.inputQueueTuples": "20",
            "spark.holdfast.passTuples": "20",
        },
    )
    try:
        wait(query, lambda: written(query) == 4)
        for first in range(50, 150, 5):  # A file is taken whole, whatever the bound.
            a.put(first, first + 5)
        wait(query, lambda: "tentative" in kinds(spark, query))
        wait(query, lambda: backlog(query, "a")["unsentRows"] >= 100 - 25)
        # On a busy machine its node may be replaced meanwhile, and has to wait once more.
        wait(query, lambda: backlog(query, "all")["heldRows"] >= 20)
        assert backlog(query, "all")["heldRows"] < 20 + 5, "no more is taken"
        blocked = (
            "all[0] is blocked: it keeps as much as it may of a[0] for the correction, and reads "
            "no more before b[0] comes"
        )
        wait(query, lambda: blocked in query.status["notes"])
        wait(query, lambda: consistency(query, "all")["state"] == "up_failure")
        wait(query, lambda: consistency(query, "all")["missing"] == ["b[0]"])
        wait(query, lambda: len(read(spark, query, "current")) > 5)
        assert len(read(spark, query, "current")) <= 8, "tentative results end there"
        b.put(50, 150, ends=True)
        a.put(150, 151, ends=True)
        assert query.awaitTermination(300)
    finally:
        query.stop()
    assert query.lastProgress["gaps"] == []
    assert consistency(query, "all")["droppedRows"] == 0
    compared = query.verify(types="all")
    assert compared.is_identical
    assert compared.corrections is not None
    assert compared.corrections.tentative == compared.corrections.undone > 0
    assert [row["n"] for row in read(spark, query, "current")] == [20] * 15 + [1]


def backlog(query: Query, unit: str) -> dict[str, Any]:
    block: dict[str, Any] = query.lastProgress["units"][unit]["backlog"]
    return block


def kill(query: Query, node: str, recoveries: int) -> None:
    """End a node's process, and wait for its replacement."""
    pid = query.nodes[node]
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    wait(query, lambda: len(query.recoveries) >= recoveries)


def consistency(query: Query, unit: str) -> dict[str, Any]:
    block: dict[str, Any] = query.lastProgress["units"][unit]["consistency"]
    return block


def states(query: Query) -> set[str]:
    return {unit["consistency"]["state"] for unit in query.lastProgress["units"].values()}


def written(query: Query) -> int:
    """Stable rows in sinks."""
    return query.lastProgress["numOutputRows"] if query.lastProgress else 0
