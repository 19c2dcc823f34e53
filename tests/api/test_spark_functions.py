"""`udf`, `pandas_udf` and `arrow_udf` in expressions: results, and what is refused."""

import datetime as dt
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark import cloudpickle
from pyspark.sql import functions as F
from pyspark.sql import types as T

from holdfast.api.dataflow import Dataflow
from holdfast.api.expressions import CompiledExpression, EvaluationError, compile_expression
from holdfast.driver.spark_functions import user_function
from holdfast.errors import DataflowError, UnsupportedError

AT = dt.datetime(2023, 11, 14, 22, 13, 20)
BATCH = pa.record_batch(
    {
        "n": pa.array([1, None, 30], pa.int64()),
        "at": pa.array([AT, AT, None], pa.timestamp("us", tz="UTC")),
        "words": pa.array([["a"], [], None], pa.list_(pa.string())),
    }
)
GIVEN: dict[str, Any] = {
    "shown": F.udf(lambda n, at: f"{n} {at}", T.StringType()),
    "half": F.udf(lambda n: None if n is None else n / 2, T.DoubleType()),
    "doubled": F.pandas_udf(lambda n: n * 2.0, T.DoubleType()),
    "later": F.pandas_udf(lambda at: at + dt.timedelta(seconds=1), T.TimestampType()),
    "next_one": F.arrow_udf(lambda n: pc.add(n, 1), T.LongType()),
    "wrong": F.udf(lambda n: n, T.DoubleType()),
    "short": F.arrow_udf(lambda n: n[:1], T.LongType()),
    "nothing": F.udf(lambda: 7, T.LongType()),
    "counted": F.udf(
        lambda words: None if words is None else {w: [len(w), None] for w in words},
        T.MapType(T.StringType(), T.ArrayType(T.LongType())),
    ),
    "named": F.udf(lambda box: f"{box.n} {box['w']}", T.StringType()),
    "boxed": F.udf(
        lambda n: (n, ["x"]),
        T.StructType().add("n", T.LongType()).add("w", T.ArrayType(T.StringType())),
    ),
    "cut": F.udf(lambda n: [1.5], T.ArrayType(T.LongType())),
}
FUNCTIONS = {name: user_function(name, given) for name, given in GIVEN.items()}


def values(sql: str) -> list[Any]:
    """As a node has them, which got the expression inside of Spark's task."""
    made = compile_expression(sql, BATCH.schema, FUNCTIONS)
    travelled: CompiledExpression = cloudpickle.loads(cloudpickle.dumps(made.over(BATCH.schema)))
    assert travelled.type == made.type
    return list(travelled.evaluate(BATCH).to_pylist())


@pytest.mark.parametrize(
    ("sql", "wanted"),
    [
        ("shown(n, at)", [f"1 {AT}", f"None {AT}", "30 None"]),
        ("HALF(n + 1) + 1", [2.0, None, 16.5]),
        ("doubled(n)", [2.0, None, 60.0]),
        ("next_one(next_one(n)) AS m", [3, None, 32]),
        ("nothing() + n", [8, None, 37]),
        ("counted(words)", [[("a", [1, None])], [], None]),
        ("named(named_struct('n', n, 'w', words))", ["1 ['a']", "None []", "30 None"]),
        ("boxed(n).w[0]", ["x", "x", "x"]),
        ("CASE WHEN n < 10 THEN next_one(n) ELSE 0 END", [2, 0, 0]),
        ("year(later(at))", [2023, 2023, None]),
    ],
)
def test_each_kind_gives_a_value_per_row(sql: str, wanted: list[Any]) -> None:
    assert values(sql) == wanted


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("wrong(n)", "wrong gave 1, which is no DOUBLE"),
        ("short(n)", "not 3 values"),
        ("doubled(n / (n - 1))", "zero"),
        ("half(at)", "TypeError"),
        ("cut(n)", r"cut gave \[1.5\], which is no ARRAY<BIGINT>"),
    ],
)
def test_a_row_without_a_value_is_an_error_that_names_the_function(sql: str, message: str) -> None:
    with pytest.raises(EvaluationError, match=message):
        values(sql)


@pytest.mark.parametrize(
    ("sql", "error", "message"),
    [
        ("half(NULL)", DataflowError, "NULL has no type"),
        ("doubled(words)", UnsupportedError, "words is .*functions of pandas do not take"),
        ("doubled()", DataflowError, "at least one"),
        ("unknown(n)", UnsupportedError, "unknown is not supported"),
        ("transform(words, w -> shown(w, w))", UnsupportedError, "shown is not supported"),
    ],
)
def test_what_cannot_be_called_is_refused(sql: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        compile_expression(sql, BATCH.schema, FUNCTIONS)


def test_what_is_no_function_of_a_row_is_not_registered() -> None:
    flow = Dataflow("functions")
    chance = F.udf(lambda n: n, T.LongType()).asNondeterministic()
    with pytest.raises(UnsupportedError, match="deterministic=False"):
        flow.register_function("chance", chance)
    with pytest.raises(DataflowError, match="no udf"):
        flow.register_function("plain", lambda n: n)
    with pytest.raises(DataflowError, match="function of Spark's"):
        flow.register_function("upper", GIVEN["shown"])
    nested = F.pandas_udf(lambda n: n, T.ArrayType(T.LongType()))
    with pytest.raises(UnsupportedError, match="functions of pandas do not give"):
        flow.register_function("nested", nested)
    interval = F.udf(lambda n: n, T.DayTimeIntervalType())
    with pytest.raises(UnsupportedError, match="carries"):
        flow.register_function("interval", interval)
    flow.register_function("Shown", GIVEN["shown"])
    assert list(flow.functions) == ["shown"]
