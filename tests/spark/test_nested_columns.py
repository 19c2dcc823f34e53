"""Arrays, maps, structs, bytes and times without a zone as columns, from sources to sinks."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import holdfast as hf
from holdfast.errors import DataflowError, UnsupportedError

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # Workers have no such module.
pytestmark = pytest.mark.slow
COUNT = 6_000
COLUMNS = (
    "timestamp_micros(1700000000000000 + id * 1000) AS at",
    "id % 7 AS k",
    "IF(id % 11 = 0, NULL, transform(sequence(0, id % 4), x -> concat('é', x))) AS words",
    "map(id % 3, id / 2, -1, IF(id % 5 = 0, NULL, 0.5)) AS halves",
    "IF(id % 13 = 0, NULL, named_struct('n', id, 'low', named_struct("
    "'days', array(date_add(DATE'1999-12-31', CAST(id % 400 AS INT)), NULL), "
    "'d', CAST(id AS DECIMAL(30,4))))) "
    "AS box",
    "IF(id % 17 = 0, NULL, CAST(concat('b', id) AS BINARY)) AS raw",
    "TIMESTAMP_NTZ'2020-02-29 23:59:59.999999' + make_dt_interval(0, id) AS local",
    "array(map('a', array(timestamp_millis(id)))) AS deep",
)


def tagged(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Another nested column beside."""
    tags = pa.array([[str(n), None] for n in batch.column("k").to_pylist()], pa.list_(pa.string()))
    return pa.RecordBatch.from_arrays([*batch.columns, tags], names=[*batch.schema.names, "tags"])


def nested(flow: hf.Dataflow, given: Any, *, by_span: bool) -> None:
    """All steps that nested columns pass through, with a sink each."""
    trigger = {"availableNow": True} if given.isStreaming else None
    rows = flow.source(given, name="rows", time="at", trigger=trigger)
    assert rows.schema.field("halves").type == pa.map_(pa.int64(), pa.float64())
    schema = rows.schema.append(pa.field("tags", pa.list_(pa.string())))
    good = rows.filter("size(words) > 1 AND box.n % 2 = 0").map_batches(tagged, schema)
    good.sink("passed")
    parts = (
        "at", "k", "words[0] AS word", "box.low.d AS d", "struct(words, raw) AS pair", "local",
        "map_keys(halves) AS keys", "deep",
    )  # fmt: skip
    good.select(*parts).union(rows.filter("k = 3").select(*parts)).sink("both")
    window = hf.tumbling("1 second")
    keyed = good.key_by("k")
    kept = keyed.window(window).aggregate(
        "count(*) AS n", "count(box) AS boxes", "first(halves) AS halves", "last(box, true) AS box",
        "max_by(words, at) AS words", "max(raw) AS raw", "min(local) AS local", name="kept",
    )  # fmt: skip
    kept.sink("kept")
    pairs = ["left.k", "left.box AS box", "right.halves AS halves", "right.raw AS raw"]
    few = rows.filter("box.n % 20 = 0")
    if by_span:
        within = ("-5 milliseconds", "9 milliseconds")
        near = good.join(few, on="k", within=within, select=pairs, how="left", name="near")
    else:
        near = good.window(window).join(few, on="k", select=pairs, how="left", name="near")
    near.sink("near")
    by_bytes = rows.key_by("raw", "local").window(hf.tumbling("1 second"))
    by_bytes.aggregate("count(*) AS n", name="by_bytes").sink("by_bytes")


PROTECTIONS = {
    "replay": hf.UpstreamBackup(),
    "checkpoints": hf.Checkpointed(interval="200 milliseconds"),
    "footprints": hf.EventualCheckpoints(recovery="500 milliseconds"),
}


@pytest.mark.parametrize("protection", PROTECTIONS)
def test_nested_columns_come_through_all_operators_though_nodes_are_killed(
    spark: SparkSession, tmp_path: Path, protection: str
) -> None:
    made = spark.range(COUNT).selectExpr(*COLUMNS)
    given = made
    if protection == "replay":
        made.coalesce(1).write.parquet(str(tmp_path / "in"))
        given = spark.readStream.schema(made.schema).parquet(str(tmp_path / "in"))
    flow = hf.Dataflow("nested")
    nested(flow, given, by_span=protection != "footprints")
    flow_protection: Any = PROTECTIONS[protection]
    query = flow.start(spark, checkpointLocation=str(tmp_path / "q"), protection=flow_protection)
    for node in ("rows[0]", "kept[0]", "near[0]"):
        query.kill(node)
    assert query.awaitTermination(240)
    for sink in flow.sinks:
        verified = query.verify(sink)
        assert verified.is_identical, verified
        assert verified.actual > 20, verified
    read = query.to_dataframe("passed").drop("tags")
    kinds = [(f.name, f.dataType.simpleString()) for f in read.schema]
    assert kinds == [(f.name, f.dataType.simpleString()) for f in made.schema]
    expected = made.where("size(words) > 1 AND box.n % 2 = 0")
    texts = [F.col(name).cast("string") for name in read.columns]
    assert sorted(read.select(*texts).collect()) == sorted(expected.select(*texts).collect())


def test_files_and_tables_take_nested_columns(spark: SparkSession, tmp_path: Path) -> None:
    pytest.importorskip("deltalake")
    made = spark.range(500).selectExpr(*COLUMNS)
    flow = hf.Dataflow("outside")
    rows = flow.source(made, name="rows", time="at")
    rows.sink_files(str(tmp_path / "files"), every="200 milliseconds")
    rows.sink_delta(str(tmp_path / "table"), every="200 milliseconds")
    query = flow.start(spark, checkpointLocation=str(tmp_path / "q"))
    assert query.awaitTermination(120)
    for sink in ("files", "table"):
        assert query.verify(sink).is_identical
    again = hf.Dataflow("again")
    again.source_files(str(tmp_path / "files"), time="at", ends=True).sink("files")
    again.source_delta(str(tmp_path / "table"), time="at", ends=True).sink("table")
    second = again.start(spark, checkpointLocation=str(tmp_path / "q2"))
    assert second.awaitTermination(120)
    texts = [F.col(name).cast("string") for name in made.columns if name != "local"]
    expected = sorted(made.select(*texts).collect())
    for sink in ("files", "table"):
        assert sorted(second.to_dataframe(sink).select(*texts).collect()) == expected


def test_functions_of_spark_take_and_give_nested_values(
    spark: SparkSession, tmp_path: Path
) -> None:
    made = spark.range(300).selectExpr(*COLUMNS)
    flow = hf.Dataflow("functions")
    flow.register_function("told", F.udf(lambda box, m: f"{box} {m}", "string"))
    flow.register_function(
        "spread", F.udf(lambda n: {str(n): [n, None]}, "map<string,array<bigint>>")
    )
    flow.register_function(
        "pair", F.udf(lambda n: (n, [str(n)]), "struct<n:bigint,t:array<string>>")
    )
    flow.register_function("same", F.arrow_udf(lambda w: w, "array<string>"))
    rows = flow.source(made, name="rows", time="at")
    rows.select(
        "told(box, halves) AS told", "spread(k) AS parts", "pair(k).t AS texts", "same(words) AS w"
    ).sink("out")  # fmt: skip
    query = flow.start(spark, checkpointLocation=str(tmp_path))
    assert query.awaitTermination(120)
    assert query.verify("out").is_identical
    given = F.pandas_udf(lambda n: n, "array<bigint>")
    with pytest.raises(UnsupportedError, match="functions of pandas do not give"):
        flow.register_function("odd", given)


def test_what_nested_columns_cannot_be_is_refused_by_name(
    spark: SparkSession, tmp_path: Path
) -> None:
    made = spark.range(3).selectExpr(*COLUMNS)
    flow = hf.Dataflow("refused")
    rows = flow.source(made, name="rows", time="at")
    windows = rows.window(hf.tumbling("1 second"))
    for refused, message in (
        (lambda: rows.key_by("words"), r"key_by\('words'\): it is ARRAY<STRING>; keys are no"),
        (lambda: rows.distinct(), r"distinct\('words'\)"),
        (lambda: rows.join(rows, on="box", select=["left.k"]), r"join on \('box'\)"),
        (lambda: rows.sort("words", slack=3, name="s"), "cannot be hashed"),
        (lambda: windows.aggregate("max(halves) AS m"), "max is not defined for map"),
        (lambda: rows.sink_files(str(tmp_path / "c"), format="csv"), "which csv has not"),
        (lambda: flow.source(spark.sql("SELECT current_timestamp() AS at, parse_json('1') AS v"),
                             name="v", time="at"), "column 'v' is variant"),
        (lambda: flow.source_files(str(tmp_path), format="json", time="at",
                                   schema="at TIMESTAMP, a ARRAY<INT>"), "do not read of json"),
    ):  # fmt: skip
        with pytest.raises((DataflowError, UnsupportedError), match=message):
            refused()
