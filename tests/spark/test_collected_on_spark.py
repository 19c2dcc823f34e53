"""Lists, sets and percentiles: Spark's results, in all windows, under each protection."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import holdfast as hf
from holdfast.errors import DataflowError, UnsupportedError

pytestmark = pytest.mark.slow
ROWS = """
    SELECT timestamp_micros(1700000000000000 + id * 1000 + IF(id % 900 > 700, 500000, 0)) AS at,
        id % 3 AS k, IF(id % 7 = 0, NULL, id * 7919 % 100) AS n,
        CAST(id * 31 % 1000 AS DECIMAL(9,2)) / 8 AS d, concat('t', id % 5) AS t,
        IF(id % 5 = 0, NULL, array(id % 4, NULL)) AS a,
        CASE id % 5 WHEN 0 THEN double('NaN') WHEN 1 THEN -0.0D WHEN 2 THEN 0D ELSE id / 7 END AS x
    FROM range(3000)
"""
UNORDERED = (
    "collect_set(n) AS s", "collect_set(a) AS sa", "percentile(n, 0.5) AS p",
    "median(d) AS m", "percentile(d, array(0.1, 0.25, 1)) AS ps",
    "approx_percentile(n, 0.3) AS r", "percentile_approx(d, array(0, 0.9D), 100) AS rs",
    "percentile(x, 0.75) AS px", "percentile(n, 0.5) FILTER (WHERE n > 50) AS pf",
)  # fmt: skip
ORDERED = (
    "collect_list(n) AS l", "array_agg(t) AS lt", "collect_list(struct(t, a)) AS ls",
    "collect_list(x) FILTER (WHERE k > 0) AS lx", "count(*) AS c",
)  # fmt: skip


def collecting(flow: hf.Dataflow, given: DataFrame, *, slots: int = 5) -> None:
    """Windows, each with a sink; sessions only where there is a slot for a fifth node."""
    rows = flow.source(given, name="rows", time="at")
    keyed, every = rows.key_by("k"), (*ORDERED, *UNORDERED)
    keyed.window(hf.tumbling("500 milliseconds")).aggregate(*every, name="tens").sink("tens")
    slides = hf.sliding("300 milliseconds", "200 milliseconds")
    keyed.window(slides).aggregate(*every, name="slid").sink("slid")
    keyed.window(hf.counting(50, 20)).aggregate(*every, name="counted").sink("counted")
    if slots > 4:
        gaps = keyed.window(hf.sessions("100 milliseconds"))
        gaps.aggregate(*UNORDERED, name="gaps").sink("gaps")


PROTECTIONS = {
    "replay": hf.UpstreamBackup(),
    "checkpoints": hf.Checkpointed(interval="200 milliseconds"),
    "footprints": hf.EventualCheckpoints(recovery="500 milliseconds"),
    "active standby": hf.ActiveStandby(),
    "passive standby": hf.PassiveStandby(),
}


@pytest.mark.parametrize("protection", PROTECTIONS)
def test_all_windows_give_what_spark_collects_though_nodes_are_killed(
    spark: SparkSession, tmp_path: Path, protection: str
) -> None:
    flow = hf.Dataflow("collected")
    collecting(flow, spark.sql(ROWS), slots=4 if "standby" in protection else 5)
    kind: Any = PROTECTIONS[protection]
    query = flow.start(spark, checkpointLocation=str(tmp_path), protection=kind)
    for sink in flow.sinks:
        query.kill(f"{sink}[0]")
    assert query.awaitTermination(240)
    for sink in flow.sinks:
        verified = query.verify(sink)
        assert verified.is_identical, verified
        assert verified.actual > 5, verified


def test_results_after_each_tuple_hold_what_was_collected_so_far(
    spark: SparkSession, tmp_path: Path
) -> None:
    flow = hf.Dataflow("so_far")
    rows = flow.source(spark.sql(ROWS).where("n < 20"), name="rows", time="at")
    keyed = rows.key_by("k")
    keyed.aggregate(*ORDERED, *UNORDERED, emit="changes", name="all").sink("all")
    windows = keyed.window(hf.tumbling("500 milliseconds"))
    windows.aggregate(*ORDERED, *UNORDERED, emit="changes", name="some").sink("some")
    protection: Any = hf.Checkpointed(interval="100 milliseconds")
    query = flow.start(spark, checkpointLocation=str(tmp_path), protection=protection)
    query.kill("all[0]")
    assert query.awaitTermination(240)
    for sink in flow.sinks:
        verified = query.verify(sink)
        assert verified.is_identical, verified


def test_what_is_collected_in_structured_streaming_is_collected_here(
    spark: SparkSession, tmp_path: Path
) -> None:
    made = spark.sql(ROWS)
    made.coalesce(1).write.parquet(str(tmp_path / "in"))
    stream = spark.readStream.schema(made.schema).parquet(str(tmp_path / "in"))
    marked = stream.withWatermark("at", "1 second")
    groups = marked.groupBy(F.window("at", "500 milliseconds"), "k")
    asked = groups.agg(
        F.sort_array(F.collect_list("n")).alias("l"), F.sort_array(F.collect_set("t")).alias("s"),
        F.percentile("d", 0.5).alias("p"), F.percentile("n", [0.1, 0.9]).alias("ps"),
        F.median("n").alias("m"), F.percentile_approx("n", 0.3).alias("r"),
        F.size(F.collect_set("a")).alias("sa"),
    )  # fmt: skip
    flow = hf.Dataflow.from_dataframe(asked, name="lists", trigger={"availableNow": True})
    theirs = asked.writeStream.format("memory").queryName("lists").trigger(availableNow=True)
    assert theirs.start().awaitTermination(240)
    ours = flow.start(spark, checkpointLocation=str(tmp_path / "q"))
    assert ours.awaitTermination(240)
    names = "window.start AS s", "k", "l", "s AS t", "p", "ps", "m", "r", "sa"
    expected = sorted(spark.table("lists").selectExpr(*names).collect())
    assert len(expected) > 10
    own = ("window_start AS s", *names[1:])
    assert sorted(ours.to_dataframe().selectExpr(*own).collect()) == expected


def test_nested_columns_are_translated_with_their_fields_and_lambdas(
    spark: SparkSession, tmp_path: Path
) -> None:
    made = spark.sql(ROWS).selectExpr("*", "named_struct('n', n, 'a', a) AS box")
    made.coalesce(1).write.parquet(str(tmp_path / "in"))
    stream = spark.readStream.schema(made.schema).parquet(str(tmp_path / "in"))
    asked = stream.where("box.n > 20 AND a[0] > 1").select(
        "at", "box", F.col("box.n").alias("n"), F.transform("a", lambda e: e + 1).alias("more"),
        F.array("k", "n").alias("both"), F.col("a")[0].alias("first"),
    )  # fmt: skip
    flow = hf.Dataflow.from_dataframe(asked, name="boxes", trigger={"availableNow": True})
    assert type(flow.steps[0].operation).__name__ == "FromFiles"
    ours = flow.start(spark, checkpointLocation=str(tmp_path / "q"))
    assert ours.awaitTermination(240)
    batch = made.where("box.n > 20 AND a[0] > 1").selectExpr(
        "at", "box", "box.n AS n", "transform(a, e -> e + 1) AS more", "array(k, n) AS both",
        "a[0] AS first",
    )  # fmt: skip
    assert sorted(ours.to_dataframe().collect(), key=str) == sorted(batch.collect(), key=str)


@pytest.mark.parametrize(
    ("aggregate", "error", "message"),
    [
        ("percentile(n, 1.5)", DataflowError, "no percentage"),
        ("percentile(n)", DataflowError, "takes a value, and a percentage"),
        ("percentile(n, d)", DataflowError, "must be known when the dataflow is built"),
        ("percentile(n, 0.5, 2)", UnsupportedError, "there is no frequency"),
        ("percentile_approx(n, 0.5, 0)", DataflowError, "accuracy 0 is no positive number"),
        ("percentile(t, 0.5)", DataflowError, "percentile is not defined for string"),
        ("collect_set(map(k, n))", DataflowError, "collect_set is not defined for map"),
    ],
)
def test_what_is_not_collected_is_refused_by_name(
    spark: SparkSession, aggregate: str, error: type[Exception], message: str
) -> None:
    rows = hf.Dataflow("refused").source(spark.sql(ROWS), name="rows", time="at")
    with pytest.raises(error, match=message):
        rows.window(hf.tumbling("1 second")).aggregate(aggregate)


def test_sessions_refuse_lists(spark: SparkSession) -> None:
    rows = hf.Dataflow("refused").source(spark.sql(ROWS), name="rows", time="at")
    with pytest.raises(DataflowError, match="collect_list depend"):
        rows.window(hf.sessions("1 second")).aggregate("collect_list(n)")
