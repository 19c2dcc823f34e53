"""Python UDFs in a streaming DataFrame: each is computed by Spark or by nodes, or refused by name.

None is passed over, whichever branch of a union or of a join it stands in.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, LongType

from holdfast.api.dataflow import Dataflow
from holdfast.errors import UnsupportedError

SCHEMA = "at TIMESTAMP, who INT, price BIGINT, item STRING"
NOW = {"availableNow": True}
ROWS = """
    SELECT timestamp_micros(1700000000000000 + id * 100000) AS at,
        IF(id % 11 = 0, NULL, CAST(id % 3 AS INT)) AS who, id * {} % 1000 AS price,
        concat('item ', id % 5) AS item
    FROM range(600)
"""
MATCHED = "item = other AND later BETWEEN at - INTERVAL 1 SECOND AND at + INTERVAL 1 SECOND"
Branches = tuple[DataFrame, DataFrame]
cloudpickle.register_pickle_by_value(sys.modules[__name__])

twice = F.udf(lambda n: None if n is None else n * 2, LongType())
odd = F.udf(lambda n: n % 2 == 1, BooleanType())


def _thrice(n: pd.Series) -> pd.Series:
    return n * 3


def _more(n: pa.Array) -> pa.Array:
    return pc.add(n, 1)


def _total(n: pd.Series) -> int:
    return int(n.sum())


thrice = F.pandas_udf(_thrice, LongType())
more = F.arrow_udf(_more, LongType())
total = F.pandas_udf(_total, LongType())


@pytest.fixture(scope="module")
def branches(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Branches:
    """Two streams of files."""
    place = tmp_path_factory.mktemp("branches")
    for name, factor in (("a", 7), ("b", 13)):
        spark.sql(ROWS.format(factor)).coalesce(1).write.parquet(str(place / name))
    a, b = (spark.readStream.schema(SCHEMA).parquet(str(place / name)) for name in "ab")
    return a.withWatermark("at", "10 seconds"), b.withWatermark("at", "10 seconds")


def counted(frame: DataFrame) -> DataFrame:
    groups = frame.groupBy(F.window("at", "10 seconds"), "who")
    return groups.agg(F.count("*").alias("n"), F.sum("price").alias("s"))


def joined(a: DataFrame, b: DataFrame) -> DataFrame:
    other = b.selectExpr("at AS later", "price AS paid", "item AS other")
    return a.join(other, F.expr(MATCHED))


def both(a: DataFrame, b: DataFrame) -> DataFrame:
    """Several kinds of functions, in three branches."""
    third = a.where(~odd("price")).withColumn("price", thrice("price"))
    return counted(a.where(odd("price")).union(b.withColumn("price", more("price"))).union(third))


def behind_windows(a: DataFrame, b: DataFrame) -> DataFrame:
    """Functions of functions, inside of expressions, and of the window's end."""
    late = F.udf(lambda end: end.second >= 10, "boolean")
    made = counted(a).withColumn("x", twice(F.col("n") + 1) + more(thrice("s")))
    return made.where(late("window.end") & odd(F.col("n") + F.col("x"))).select("who", "x", "n")


def behind_a_join(a: DataFrame, b: DataFrame) -> DataFrame:
    pairs = joined(a.where(odd("price")), b).where(odd("paid"))
    return pairs.select(twice("paid").alias("x"), "item", F.greatest("at", "later").alias("at"))


def rows_of(frame: DataFrame) -> list[str]:
    """Rows without the names of columns; of pairs those that the watermark has passed."""
    if "at" in frame.columns:
        frame = frame.where("at < timestamp_micros(1700000049800000)")
    names = [f"{each}.*" if each == "window" else each for each in frame.columns]
    return sorted(str(tuple(row)) for row in frame.select(*names).collect())


@pytest.mark.slow
@pytest.mark.parametrize("query", [both, behind_windows, behind_a_join])
def test_rows_are_those_of_spark(
    spark: SparkSession, branches: Branches, tmp_path: Path, query: Callable[..., DataFrame]
) -> None:
    asked, name = query(*branches), query.__name__
    flow = Dataflow.from_dataframe(asked, name=name, trigger=NOW)
    named = asked.writeStream.format("memory").queryName(f"udfs_{name}")
    assert named.trigger(availableNow=True).start().awaitTermination(240)
    ours = flow.start(spark, checkpointLocation=str(tmp_path))
    assert ours.awaitTermination(240)
    found = [rows_of(frame) for frame in (ours.to_dataframe(), spark.table(f"udfs_{name}"))]
    assert len(found[1]) > 3
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("query", "sources"),
    [
        (lambda a, b: counted(a.where(odd("price")).union(b)), ["spark"]),
        (lambda a, b: counted(a.union(b.withColumn("price", thrice("price")))), ["spark"]),
        (lambda a, b: a.union(b.withColumn("price", more("price"))), ["spark"]),
        (lambda a, b: joined(a.where(odd("price")), b), ["spark", "b"]),
        (lambda a, b: joined(a, b.withColumn("price", more("price"))), ["a", "spark"]),
        (lambda a, b: joined(a, b).withColumn("x", twice("paid")), ["a", "b"]),
        (lambda a, b: counted(a).where(odd("n")), ["a"]),
        (lambda a, b: a.dropDuplicates(["item", "at"]).where(odd("price")), ["a"]),
        (lambda a, b: a.select(thrice("price")), ["a"]),
    ],
)
def test_a_branch_with_a_function_is_sparks_or_a_nodes(
    branches: Branches, query: Callable[..., DataFrame], sources: list[str]
) -> None:
    flow = Dataflow.from_dataframe(query(*branches), name="told")
    assert [step.name for step in flow.steps if not step.inputs] == sources
    assert bool(flow.functions) == (not any(each == "spark" for each in sources))


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        (
            lambda a, b: a.groupBy(F.window("at", "1 minute")).agg(F.sum(twice("price"))),
            "Python UDF <lambda>: it has to be a column by itself",
        ),
        (
            lambda a, b: a.groupBy(F.window("at", "1 minute"), odd("price")).count(),
            "Python UDF <lambda>: it has to be a column by itself",
        ),
        (
            lambda a, b: joined(a, b).where("item > 'a'").join(b, twice("paid") == b.price),
            "one withWatermark|behind a join|join",
        ),
        (
            lambda a, b: a.groupBy(F.window("at", "1 minute")).agg(total("price")),
            r"total\(price.*: there are count",
        ),
        (
            lambda a, b: counted(a).mapInPandas(lambda rows: rows, "who INT"),
            "mapInPandas: Spark computes it, before any state",
        ),
        (
            lambda a, b: counted(a).withColumn(
                "x", F.udf(lambda n: n, "bigint").asNondeterministic()("n")
            ),
            "Python UDF <lambda>: it is not deterministic",
        ),
    ],
)
def test_others_are_refused_by_name(
    branches: Branches, query: Callable[..., DataFrame], reason: str
) -> None:
    with pytest.raises(UnsupportedError, match=reason):
        Dataflow.from_dataframe(query(*branches), name="refused")
