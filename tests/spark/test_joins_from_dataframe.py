"""Joins and unions written for Structured Streaming give the same rows in Holdfast."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from holdfast.api.dataflow import Dataflow
from holdfast.api.steps import IncrementalJoin, IntervalJoin, RunningAggregate, Step, Union
from holdfast.errors import OptionError, UnsupportedError

NOW = {"availableNow": True}
ROWS = """
    SELECT timestamp_micros(1700000000000000 + id * 100000) AS at,
        IF(id % 11 = 0, NULL, CAST(id % 7 AS INT)) AS who, id * 7 % 1000 AS price,
        concat('item ', id % 5) AS item
    FROM range(1200)
"""
CERTAIN = "coalesce(at, sold) < timestamp_seconds(1700000000 + 100)"
"""Rows are compared of which both have put out all: watermarks are beyond them and their spans."""


@pytest.fixture(scope="module")
def plain(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> DataFrame:
    """Some files, as a stream without a watermark."""
    folder = str(tmp_path_factory.mktemp("joins") / "bids")
    spark.sql(ROWS).repartition(2).write.parquet(folder)
    schema = "at TIMESTAMP, who INT, price BIGINT, item STRING"
    return spark.readStream.schema(schema).parquet(folder)


@pytest.fixture(scope="module")
def bids(plain: DataFrame) -> DataFrame:
    return plain.withWatermark("at", "10 seconds")


def sales(bids: DataFrame) -> DataFrame:
    return bids.selectExpr("at AS sold", "who AS buyer", "price AS paid", "item AS thing")


def inner(bids: DataFrame) -> DataFrame:
    """A condition on pairs, and a span written by BETWEEN."""
    span = "sold BETWEEN at AND at + INTERVAL 3 SECONDS"
    return bids.join(sales(bids), F.expr(f"who = buyer AND {span} AND paid > price + 60"))


def left(bids: DataFrame) -> DataFrame:
    span = "sold >= at - INTERVAL 1 SECOND AND sold < at + INTERVAL 2 SECONDS"
    on = f"upper(item) = upper(thing) AND who = buyer AND {span} AND paid > price"
    joined = bids.join(sales(bids).where("paid % 3 = 0"), F.expr(on), "left")
    return joined.select("item", "at", "price", "paid", "sold").where("paid IS NULL OR price > 9")


def full(bids: DataFrame) -> DataFrame:
    span = "at + INTERVAL 2 SECONDS >= sold AND sold > at + INTERVAL 1 SECOND"
    few = bids.where("price % 4 > 0")
    return few.join(sales(bids), F.expr(f"who = buyer AND item = thing AND {span}"), "full")


def semi(bids: DataFrame) -> DataFrame:
    few = sales(bids).where("paid % 5 = 0")
    on = F.expr("who = buyer AND at BETWEEN sold AND sold + INTERVAL 1 SECOND")
    return bids.join(few, on, "left_semi").withColumn("sold", F.col("at"))


def united(bids: DataFrame) -> DataFrame:
    other = sales(bids).where("paid > 500").select("sold", "buyer", "paid", "thing")
    whole = bids.union(other)
    groups = whole.groupBy(F.window("at", "10 seconds"), "who")
    return groups.agg(F.count("*").alias("n"), F.sum("price").alias("total")).selectExpr(
        "window.start AS at", "who", "n", "total", "window.start AS sold"
    )


def static(bids: DataFrame) -> DataFrame:
    """With a table, which Spark joins before the ingest log; then state."""
    names = bids.sparkSession.range(5).selectExpr("CAST(id AS INT) AS who", "id * id AS weight")
    weighed = bids.join(names, "who", "left")
    groups = weighed.groupBy(F.window("at", "10 seconds"), "item")
    return groups.agg(F.count("*").alias("n"), F.sum("weight").alias("weight")).selectExpr(
        "window.start AS at", "item", "n", "weight", "window.start AS sold"
    )


def steps_of(flow: Dataflow, kind: type) -> list[Step]:
    return [step for step in flow.steps if isinstance(step.operation, kind)]


def rows(frame: DataFrame) -> list[tuple[Any, ...]]:
    return sorted(map(tuple, frame.where(CERTAIN).collect()), key=str)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("query", "kind"),
    [
        (inner, IntervalJoin),
        (left, IntervalJoin),
        (full, IntervalJoin),
        (semi, IntervalJoin),
        (united, Union),
        (static, None),
    ],
)
def test_both_give_the_same_rows(
    spark: SparkSession,
    bids: DataFrame,
    tmp_path: Path,
    query: Callable[[DataFrame], DataFrame],
    kind: type | None,
) -> None:
    asked = query(bids)
    name = f"joined_{query.__name__}"
    flow = Dataflow.from_dataframe(asked, name=name, trigger=NOW)
    assert kind is None or len(steps_of(flow, kind)) == 1
    theirs = asked.writeStream.format("memory").queryName(name).trigger(availableNow=True).start()
    assert theirs.awaitTermination(240)
    ours = flow.start(spark, checkpointLocation=str(tmp_path))
    assert ours.awaitTermination(240)
    expected = rows(spark.table(name))
    assert len(expected) > 10
    assert rows(ours.to_dataframe()) == expected
    if kind is not None:
        ours.verify(name)


@pytest.mark.slow
def test_update_mode_ends_with_the_same_results(
    spark: SparkSession, plain: DataFrame, tmp_path: Path
) -> None:
    groups = plain.where("price % 3 > 0").groupBy("who", F.upper("item").alias("item"))
    asked = groups.agg(F.count("*").alias("n"), F.sum("price").alias("total"), F.avg("price"))
    flow = Dataflow.from_dataframe(asked, name="totals", trigger=NOW, mode="complete")
    assert len(steps_of(flow, RunningAggregate)) == 1
    stream = asked.writeStream.format("memory").queryName("totals").outputMode("update")
    theirs = stream.trigger(availableNow=True).start()
    assert theirs.awaitTermination(240)
    ours = flow.start(spark, checkpointLocation=str(tmp_path))
    assert ours.awaitTermination(240)

    def last(frame: DataFrame) -> list[tuple[Any, ...]]:
        newest = frame.withColumn("newest", F.expr("max(n) OVER (PARTITION BY who, item)"))
        return sorted(map(tuple, newest.where("n = newest").collect()), key=str)

    expected = last(spark.table("totals"))
    assert len(expected) > 10
    assert last(ours.to_dataframe()) == expected
    ours.verify()
    table = ours.to_dataframe(newest_by=("who", "item"))
    assert sorted(map(tuple, table.collect()), key=str) == [row[:-1] for row in expected]
    with pytest.raises(OptionError, match=r"newest_by=\('whom',\); columns are who, item, n"):
        ours.to_dataframe(newest_by=("whom",))


def test_an_inner_join_without_times_keeps_both_sides_for_ever(bids: DataFrame) -> None:
    joined = bids.join(sales(bids), F.expr("who = buyer AND price < paid"))
    flow = Dataflow.from_dataframe(joined, name="pairs")
    assert len(steps_of(flow, IncrementalJoin)) == 1
    assert flow.sinks["pairs"].schema.names == [
        *("at", "who", "price", "item", "sold", "buyer", "paid", "thing")
    ]


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        (
            lambda b: b.join(sales(b), F.expr("who = buyer AND sold >= at"), "left"),
            "with a least and a greatest distance",
        ),
        (
            lambda b: b.join(
                b.selectExpr("current_timestamp() AS now", "who AS buyer"), F.expr("who = buyer")
            ),
            "every side has one withWatermark",
        ),
        (
            lambda b: b.join(
                sales(b),
                F.expr("who = buyer AND sold BETWEEN at AND at + INTERVAL 1 SECOND AND paid > 3"),
                "left_semi",
            ),
            "its condition has keys and times only",
        ),
        (
            lambda b: (
                b.join(sales(b), F.expr("who = buyer AND sold = at"))
                .groupBy(F.window("at", "1 minute"))
                .count()
            ),
            "not the event time",
        ),
    ],
)
def test_what_has_no_counterpart_is_refused_by_name(
    bids: DataFrame, query: Callable[[DataFrame], DataFrame], reason: str
) -> None:
    with pytest.raises(UnsupportedError, match=reason):
        Dataflow.from_dataframe(query(bids), name="refused")
