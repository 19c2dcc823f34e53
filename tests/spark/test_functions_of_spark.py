"""`udf`, `pandas_udf` and `arrow_udf` inside `select` and `filter`, beside Spark's own results."""

from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest
from kills import kill
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from holdfast.api.dataflow import Dataflow
from holdfast.errors import DataflowError, UnsupportedError

pytestmark = pytest.mark.slow


def made() -> dict[str, Any]:
    """One of each kind; they are Spark's."""
    return {
        "label": F.udf(lambda n, at: f"{n} {at:%M:%S}", "string"),
        "is_odd": F.udf(lambda n: None if n is None else n % 2 == 1, "boolean"),
        "doubled": F.pandas_udf(lambda n: n * 2.0, "double"),
        "next_one": F.arrow_udf(lambda n: pc.add(n, 1), "bigint"),
    }


def test_functions_of_each_kind_give_what_they_give_in_spark(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = spark.range(4_000).selectExpr(
        "timestamp_millis(1700000000000 + id * 10) AS at", "nullif(id % 10, 3) AS n", "id"
    )
    rows.write.parquet(str(tmp_path / "in"))
    stream = spark.readStream.schema(rows.schema).parquet(str(tmp_path / "in"))
    flow = Dataflow("functions")
    for name, function in made().items():
        flow.register_function(name, function)
    source = flow.source(stream, name="rows", time="at", trigger={"availableNow": True})
    columns = "label(n, at) AS l", "doubled(n) + 1 AS d", "if(n > 5, NEXT_ONE(id), 0) AS i"
    source.filter("is_odd(n) OR doubled(n) > 15").unit("made").select(*columns).sink("out")
    query = flow.start(spark, checkpointLocation=str(tmp_path / "q"))
    kill(query, "made[0]")
    assert query.awaitTermination(120)
    assert query.verify("out").is_identical
    assert query.to_dataframe("out").count() == 400 * 5
    for expression, error, message in (
        ("label(NULL, at)", DataflowError, "NULL has no type"),
        ("doubled(array(n))", UnsupportedError, "functions of pandas do not take"),
        ("unknown(n)", UnsupportedError, "unknown is not supported"),
    ):
        with pytest.raises(error, match=message):
            source.select(expression)
    chance = F.udf(lambda n: n, "bigint").asNondeterministic()
    with pytest.raises(UnsupportedError, match=r"deterministic=False"):
        flow.register_function("chance", chance)
    with pytest.raises(DataflowError, match="no udf"):
        flow.register_function("plain", lambda n: n)
    with pytest.raises(DataflowError, match="function of Spark's"):
        flow.register_function("upper", made()["label"])
