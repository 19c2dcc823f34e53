"""Classes with states per key on real tasks: exact when nodes are killed; as Spark runs them."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from held_rows import HeldRows
from kills import kill
from pyspark import cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor
from test_protocol import wait_for

from holdfast.api.dataflow import Dataflow
from holdfast.api.protections import Checkpointed
from holdfast.errors import UnsupportedError

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # Workers have no such module.
ROWS = 9_000
ROCKS = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


class Sums(StatefulProcessor):
    """Adds up what comes to a key, whatever comes at once; says the sum at times of its own."""

    def __init__(self, every: int) -> None:
        self.every = every

    def init(self, handle: Any) -> None:
        self.handle = handle
        self.sum = handle.getValueState("sum", "n BIGINT, at TIMESTAMP, share DECIMAL(5,2)")
        self.seen = handle.getMapState("seen", "rest BIGINT", "times INT")
        self.last = handle.getListState("last", "n BIGINT")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        for row in rows:
            known = self.sum.get()
            total = row.n + (known[0] if known else 0)
            self.sum.update((total, row.at, None))
            (times,) = self.seen.getValue((row.n % 7,)) or (0,)
            self.seen.updateValue((row.n % 7,), (times + 1,))
            self.last.appendValue((row.n,))
            if row.n % self.every == 0:
                last = sorted(n for (n,) in self.last.get())
                self.last.clear()
                times = sum(times for (times,) in self.seen.values())
                yield Row(times=times, who=key[0], last=len(last))


class Ends(Sums):
    """The same, and a timer a second behind each key's last row."""

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        rows = list(rows)
        yield from super().handleInputRows(key, iter(rows), timerValues)
        for timer in list(self.handle.listTimers()):
            self.handle.deleteTimer(timer)
        last = max(int(row.n) for row in rows)
        self.handle.registerTimer(1_700_000_000_000 + last + 1000)

    def handleExpiredTimer(
        self, key: Any, timerValues: Any, expiredTimerInfo: Any
    ) -> Iterator[Any]:
        (total, _, _) = self.sum.get()
        yield Row(who=key[0], times=total, last=expiredTimerInfo.getExpiryTimeInMs() % 1_000_000)


RESULT = "who STRING, times BIGINT, last BIGINT"


@pytest.mark.slow
def test_classes_are_exact_when_their_nodes_are_killed(spark: SparkSession, tmp_path: Path) -> None:
    log = HeldRows(tmp_path / "readings", n=pa.int64(), who=pa.string())

    def put(first: int, stop: int, *, ends: bool = False) -> None:
        ids = np.arange(first, stop)
        log.put(ids, ids, [f"user {n % 50}" for n in ids], ends=ends)

    put(0, ROWS // 2)
    flow = Dataflow("classes")
    read = flow.source_log(log.path, name="readings").key_by("who")
    read.process(Sums(3), RESULT, name="sums").sink("sums")
    read.process(Ends(5), RESULT, time="event", name="ends").sink("ends")
    read.process(Sums(1), RESULT, time="processing", name="clock").sink("clock")
    scored = flow.steps[0]
    assert scored.name == "readings"
    good = read.map(lambda row: {"m": 1 // (row["n"] % 100)}, "m BIGINT", dead_letters="bad")
    good.sink("good")
    query = flow.start(
        spark,
        checkpointLocation=str(tmp_path / "q"),
        protection=Checkpointed(interval="300 milliseconds"),
    )
    wait_for(query, lambda: query.lastProgress["numInputRows"] >= ROWS // 3)
    for unit in ("sums", "ends", "clock"):
        kill(query, f"{unit}[0]")
    put(ROWS // 2, ROWS, ends=True)
    assert query.awaitTermination(240)
    for sink, count in (("sums", -(-ROWS // 3)), ("ends", ROWS // 5 + 50), ("bad", ROWS // 100)):
        verified = query.verify(sink)
        assert verified.is_identical, verified
        assert verified.actual == count
    counts = query.to_dataframe("clock").groupBy("who").agg(F.count("*"), F.max("times"))
    assert {tuple(row)[1:] for row in counts.collect()} == {(ROWS // 50, ROWS // 50)}
    (letter,) = query.to_dataframe("bad").where("n = 700").collect()
    assert "ZeroDivisionError" in letter["error"]
    with pytest.raises(UnsupportedError, match="timers of Sums are of processing time"):
        query.verify("clock")


@pytest.fixture(scope="module")
def readings(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> DataFrame:
    folder = str(tmp_path_factory.mktemp("processors") / "readings")
    spark.sql("""
        SELECT timestamp_micros(1700000000000000 + id * 1000) AS at, id AS n,
            concat('user ', id % 7) AS who
        FROM range(4000)
    """).repartitionByRange(4, "n").write.parquet(folder)
    return spark.readStream.schema("at TIMESTAMP, n BIGINT, who STRING").parquet(folder)


@pytest.mark.slow
def test_both_run_the_same_classes(
    spark: SparkSession, readings: DataFrame, tmp_path: Path
) -> None:
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", ROCKS)
    some = readings.where("n % 10 < 8").withWatermark("at", "1 second")
    some = some.withColumn("parity", F.expr("n % 2"))
    asked = {
        "plain": some.groupBy("who", "parity").transformWithState(
            Sums(1), RESULT, "Append", "None"
        ),
        "timed": some.groupBy("who").transformWithState(Ends(1), RESULT, "Append", "EventTime"),
    }
    for name, frame in asked.items():
        writer = frame.select("times", "who").writeStream.format("memory").queryName(name)
        theirs = writer.trigger(availableNow=True).start()
        flow = Dataflow.from_dataframe(
            frame.select("times", "who"), name=name, trigger={"availableNow": True}
        )
        assert "process" in {step.operation.WORD for step in flow.steps}
        ours = flow.start(spark, checkpointLocation=str(tmp_path / name))
        assert theirs.awaitTermination(240)
        assert ours.awaitTermination(240)
        expected = sorted(map(tuple, spark.table(name).collect()))
        assert len(expected) == 3200
        found = sorted(map(tuple, ours.to_dataframe().collect()))
        # Rows within the delay have not had their turn, nor the last timers: more may still come.
        waiting = 801 if name == "timed" else 0
        assert len(found) == len(expected) - waiting
        assert not Counter(found) - Counter(expected)


def test_classes_that_spark_would_call_otherwise_are_refused(readings: DataFrame) -> None:
    grouped = readings.groupBy("who")
    initial = readings.sparkSession.sql("SELECT 'user 1' AS who, 1 AS n").groupBy("who")
    refused = {
        "it has an initial state": grouped.transformWithState(
            Sums(1), RESULT, "Append", "None", initialState=initial
        ),
        "it reads what an operator with state gives": (
            readings.withWatermark("at", "1 second")
            .dropDuplicates(["who", "at"])
            .groupBy("who")
            .transformWithState(Sums(1), RESULT, "Append", "None")
        ),
    }
    for reason, frame in refused.items():
        with pytest.raises((UnsupportedError, PySparkException), match=reason):
            Dataflow.from_dataframe(frame, name="refused")
