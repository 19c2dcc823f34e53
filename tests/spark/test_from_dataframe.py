"""A query written for Structured Streaming gives the same rows in Holdfast, or is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from holdfast.api.dataflow import Dataflow
from holdfast.errors import DataflowError, UnsupportedError

SCHEMA = "at TIMESTAMP, who INT, price BIGINT, item STRING"
NOW = {"availableNow": True}
ROWS = """
    SELECT timestamp_micros(1700000000000000 + id * 100000) AS at,
        IF(id % 11 = 0, NULL, CAST(id % 3 AS INT)) AS who, id * 7 % 1000 AS price,
        concat('item ', id % 5) AS item
    FROM range(2000)
"""


@pytest.fixture(scope="module")
def bids(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> DataFrame:
    """Some files, as a stream."""
    folder = str(tmp_path_factory.mktemp("queries") / "bids")
    spark.sql(ROWS).repartition(2).write.parquet(folder)
    return spark.readStream.schema(SCHEMA).parquet(folder)


def marked(bids: DataFrame) -> DataFrame:
    return bids.withWatermark("at", "10 seconds")


def tumbling(bids: DataFrame) -> DataFrame:
    """Aggregates, expressions over them, and a condition on results."""
    large = (
        marked(bids)
        .where("price > 20 AND item LIKE 'item%'")
        .withColumn("half", F.expr("price / 2"))
    )
    groups = large.groupBy(F.window("at", "10 seconds"), "who")
    counts = groups.agg(F.count("*").alias("n"), (F.sum("half") / F.count("half")).alias("mean"))
    return counts.where("n > 3 OR who IS NULL")


def sliding(bids: DataFrame) -> DataFrame:
    """Windows that overlap, a computed key, and a name that Spark lets stand twice."""
    groups = marked(bids).groupBy(
        F.window("at", "20 seconds", "5 seconds").alias("w"), F.upper("item")
    )
    return groups.agg(F.max("price"), F.avg("price").alias("mean")).select(
        "w.end", F.col("upper(item)").alias("item"), F.expr("IF(mean > 400, mean, 0) + 1 AS more")
    )


def sessions(bids: DataFrame) -> DataFrame:
    """Sessions per key: rows of one item come every half second, but some are left out."""
    some = marked(bids).where("price % 100 < 40")
    groups = some.groupBy(F.session_window("at", "950 milliseconds").alias("s"), "item")
    return groups.agg(F.count("*").alias("n"), F.max("price"), F.avg("price")).where("n > 1")


def odd(bids: DataFrame) -> DataFrame:
    """Windows whose size is no multiple of their slide."""
    groups = marked(bids).groupBy(F.window("at", "10 seconds", "4 seconds"), "who")
    return groups.agg(F.count("*"), F.sum("price"))


def many(bids: DataFrame) -> DataFrame:
    """Aggregates that pick, of bits, of spread, of conditions, and of some of the rows."""
    groups = marked(bids).groupBy(F.window("at", "20 seconds"), "who")
    return groups.agg(
        F.max_by("item", "at"),
        F.min_by("price", F.col("price") + 1),
        F.expr("round(stddev(price), 6)"),
        F.expr("round(var_pop(price), 6)"),
        F.bool_and(F.col("price") > 3),
        F.bool_or(F.col("price") > 990),
        F.bit_xor("price"),
        F.bit_or("price"),
        F.count_if(F.col("price") < 500),
        F.expr("sum(price) FILTER (WHERE item > 'item 1')"),
        F.expr("count(*) FILTER (WHERE item > 'item 3')"),
        (F.max("price") - F.min("price")).alias("range"),
    )


def values(bids: DataFrame) -> DataFrame:
    """How many distinct values there are, beside other results, in windows that slide."""
    groups = bids.groupBy(F.window("at", "20 seconds", "5 seconds").alias("w"), "who")
    return groups.agg(
        F.count_distinct("item").alias("items"), F.count("*").alias("n"), F.sum("price")
    )


def distinct(bids: DataFrame) -> DataFrame:
    """What follows sees the first rows only; of equal ones it does not matter which is first."""
    twice = marked(bids).selectExpr("at", "who", "item", "explode(array(1, 2)) AS copy")
    once = twice.dropDuplicates(["who", "item", "at"])
    return once.groupBy(F.window("at", "10 seconds"), "who").agg(F.count("*"), F.max("item"))


def within(bids: DataFrame) -> DataFrame:
    """All rows of an item are within the delay of its first one."""
    few = bids.withWatermark("at", "1 hour")
    return few.dropDuplicatesWithinWatermark(["item", "who"]).select("item", "who")


def front(bids: DataFrame) -> DataFrame:
    """Holdfast has no regular expressions, so Spark computes what lies below the window."""
    some = bids.where("item RLIKE '[24]$'").withWatermark("at", "10 seconds")
    return some.groupBy(F.window("at", "10 seconds")).count()


def rows(frame: DataFrame) -> list[tuple[Any, ...]]:
    flat = [
        f"`{f.name}`.*" if f.dataType.typeName() == "struct" else f"`{f.name}`"
        for f in frame.schema
    ]
    return sorted(map(tuple, frame.selectExpr(*flat).collect()), key=str)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("query", "source"),
    [
        (tumbling, "FromFiles"),
        (sliding, "FromFiles"),
        (sessions, "FromFiles"),
        (odd, "FromFiles"),
        (many, "FromFiles"),
        (distinct, "FromFrame"),
        (within, "FromFiles"),
        (front, "FromFrame"),
    ],
)
def test_both_give_the_same_rows(
    spark: SparkSession,
    bids: DataFrame,
    tmp_path: Path,
    query: Callable[[DataFrame], DataFrame],
    source: str,
) -> None:
    asked = query(bids)
    name = query.__name__
    flow = Dataflow.from_dataframe(asked, name=name, trigger=NOW)
    assert type(flow.steps[0].operation).__name__ == source
    theirs = asked.writeStream.format("memory").queryName(name).trigger(availableNow=True).start()
    assert theirs.awaitTermination(240)
    ours = flow.start(spark, checkpointLocation=str(tmp_path))
    assert ours.awaitTermination(240)
    expected = rows(spark.table(name))
    assert len(expected) > 10
    assert rows(ours.to_dataframe()) == expected


@pytest.mark.slow
def test_distinct_values_are_counted_which_spark_does_in_batches_alone(
    spark: SparkSession, bids: DataFrame, tmp_path: Path
) -> None:
    flow = Dataflow.from_dataframe(values(marked(bids)), name="values", trigger=NOW)
    ours = flow.start(spark, checkpointLocation=str(tmp_path))
    assert ours.awaitTermination(240)
    closed = "w.end <= timestamp_micros(1700000000000000 + 1999 * 100000) - INTERVAL 10 SECONDS"
    expected = rows(values(spark.sql(ROWS)).where(closed))
    assert len(expected) > 10
    assert rows(ours.to_dataframe()) == expected


def test_a_query_without_state_keeps_all_rows_however_late(bids: DataFrame) -> None:
    flow = Dataflow.from_dataframe(marked(bids).select("at", F.upper("item")), name="names")
    source, projected = flow.steps
    assert source.operation.delay_us > 10**15  # type: ignore[union-attr]
    assert projected.schema.names == ["at", "upper(item)"]


def test_rows_that_a_filter_drops_move_no_watermark(bids: DataFrame) -> None:
    before = bids.where("price < 500").withWatermark("at", "10 seconds")
    counts = before.groupBy(F.window("at", "10 seconds")).count()
    source = Dataflow.from_dataframe(counts, name="counts").steps[0]
    assert type(source.operation).__name__ == "FromFrame"


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        (lambda b: b.groupBy("who").count(), r"groupBy: .* without window\(...\)"),
        (lambda b: b.groupBy(F.window("at", "1 minute")).count(), "no watermark"),
        (
            lambda b: (
                marked(b).groupBy(F.window("at", "1 minute", "1 minute", "5 seconds")).count()
            ),
            "without startTime",
        ),
        (
            lambda b: (
                marked(b)
                .groupBy(F.session_window("at", F.when(F.col("price") > 9, "1 minute")))
                .count()
            ),
            "its gap is the same for every row",
        ),
        (
            lambda b: marked(b).groupBy(F.window("at", "1 minute")).agg(F.skewness("price")),
            r"skewness.*: there are count, sum, min, max, avg",
        ),
        (
            lambda b: marked(b).groupBy(F.window("at", "1 minute")).agg(F.sum_distinct("price")),
            "of distinct values there is count alone",
        ),
        (
            lambda b: marked(b).groupBy(F.window("at", "1 minute")).count().where("rand() > 0.5"),
            "rand",
        ),
        (lambda b: b.dropDuplicates(["who"]), "dropDuplicates: there is one withWatermark"),
        (
            lambda b: marked(b).groupBy(F.window("at", "1 minute")).agg(F.expr("try_sum(price)")),
            "try_sum",
        ),
    ],
)
def test_what_has_no_counterpart_is_refused_by_name(
    bids: DataFrame, query: Callable[[DataFrame], DataFrame], reason: str
) -> None:
    with pytest.raises(UnsupportedError, match=reason):
        Dataflow.from_dataframe(query(bids), name="refused")


def test_what_makes_no_sense_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(DataflowError, match="a streaming DataFrame"):
        Dataflow.from_dataframe(spark.range(3), name="batch")
    timeless = spark.readStream.schema("who INT").parquet(str(tmp_path))
    with pytest.raises(DataflowError, match="which column is the event time"):
        Dataflow.from_dataframe(timeless, name="timeless")


def test_files_that_pyarrow_reads_otherwise_are_read_by_spark(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Spark takes `WHO` for `who`; a path is no URL; and ORC's times have the zone of the JVM."""

    def source(frame: DataFrame) -> str:
        flow = Dataflow.from_dataframe(frame.select("at", "who"), name="names")
        return type(flow.steps[0].operation).__name__

    plain = spark.sql("SELECT timestamp_seconds(1) AS at, 1 AS WHO").coalesce(1)
    plain.write.parquet(str(tmp_path / "upper"))
    plain.write.parquet(str(tmp_path / "a#b%20c"))
    stream = spark.readStream.schema("at TIMESTAMP, who INT")
    assert source(stream.parquet(str(tmp_path / "upper"))) == "FromFrame"
    assert source(stream.orc(str(tmp_path / "upper"))) == "FromFrame"
    (tmp_path / "a b").mkdir()
    for folder in ("a#b%20c", "a b"):
        own = spark.readStream.schema("at TIMESTAMP, WHO INT").parquet(f"file:{tmp_path}/{folder}")
        operation = Dataflow.from_dataframe(own, name="names").steps[0].operation
        assert operation.files.place == str(tmp_path / folder)  # type: ignore[union-attr]
        assert operation.files.meta.user_files.is_exact  # type: ignore[union-attr]


def test_strings_that_are_equal_to_others_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    schema = "at TIMESTAMP, item STRING COLLATE UTF8_LCASE"
    frame = spark.readStream.schema(schema).parquet(str(tmp_path))
    groups = frame.withWatermark("at", "1 second").groupBy(F.window("at", "1 second"), "item")
    with pytest.raises(UnsupportedError, match="'item' has the collation UTF8_LCASE"):
        Dataflow.from_dataframe(groups.count(), name="items")


def test_decimals_of_other_precision_are_refused(spark: SparkSession, bids: DataFrame) -> None:
    setting = "spark.sql.decimalOperations.allowPrecisionLoss"
    spark.conf.set(setting, "false")
    try:
        with pytest.raises(UnsupportedError, match="allowPrecisionLoss"):
            Dataflow.from_dataframe(bids, name="bids")
    finally:
        spark.conf.unset(setting)
