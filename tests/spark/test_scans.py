"""Which DataFrames nodes read by themselves, and which Spark has to."""

from __future__ import annotations

import json
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, DataFrameReader, SparkSession

from holdfast.api.dataflow import Dataflow
from holdfast.api.windows import tumbling
from holdfast.driver.frame_recorders import as_read, recorder_of_frame
from holdfast.driver.query import Query
from holdfast.driver.schemas import schema_from
from holdfast.shell.storage.commit_store import CommitStore
from holdfast.shell.storage.ingest_log import IngestMeta, prepare
from holdfast.shell.storage.paths import ingest_path
from holdfast.shell.storage.user_files import UserFileDamaged, list_files
from holdfast.shell.storage.user_rows import FilesFormat, read_rows

pytestmark = pytest.mark.slow
IN_NODES, BY_SPARK = "nodes read the files of ", "Spark writes its rows into a log"


def way(frame: DataFrame, location: Path, *, is_allowed: bool = True, **settings: object) -> str:
    flow = Dataflow("flow")
    rows = flow.source(frame, name="rows", time="at", **settings)  # type: ignore[arg-type]
    rows.window(tumbling("10 seconds")).aggregate("count(*) AS n").sink("out")
    run = as_read(flow, str(location), is_allowed=is_allowed)
    return recorder_of_frame(run.steps[0], run, str(location), is_allowed=is_allowed).way


def explained(query: Query) -> str:
    with redirect_stdout(StringIO()) as printed:
        query.explain()
    return printed.getvalue()


@pytest.fixture(scope="module")
def folder(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    made = tmp_path_factory.mktemp("scans") / "in"
    rows = spark.sql("SELECT timestamp_seconds(id) AS at, id AS k, 'x' AS s FROM range(5)")
    rows.coalesce(1).write.parquet(str(made))
    more = spark.sql("SELECT timestamp_seconds(id) AS at, id AS k, 'x' AS s FROM range(5, 8)")
    more.coalesce(1).write.parquet(f"{made}2")
    rows.union(spark.sql("SELECT NULL, 9, 'y'")).coalesce(1).write.parquet(f"{made}3")
    rows.selectExpr("*", "k % 2 AS d").write.partitionBy("d").parquet(f"{made}4")
    return str(made)


def test_plain_scans_are_read_by_nodes(spark: SparkSession, folder: str, tmp_path: Path) -> None:
    followed = spark.readStream.schema("at TIMESTAMP, k BIGINT").parquet(folder)
    several = spark.readStream.option("maxFilesPerTrigger", 2)
    for frame in (
        spark.read.parquet(folder),
        spark.read.parquet(folder).select("k", "at"),
        followed.withWatermark("at", "2 seconds").alias("x").select("at"),
        several.schema("at TIMESTAMP, absent INT").parquet(folder),
    ):
        assert way(frame, tmp_path) == f"{IN_NODES}{folder}"
    both = spark.read.parquet(folder, f"{folder}2")
    assert way(both, tmp_path) == f"{IN_NODES}{folder}, {folder}2"


def test_a_filter_becomes_a_step_behind_the_files(
    spark: SparkSession, folder: str, tmp_path: Path
) -> None:
    """Also one over a column that the DataFrame leaves out; Spark writes casts into it."""
    frame = spark.read.parquet(folder).where("k IN (1, 2, 4)").where("s = 'x'").select("at")
    assert way(frame, tmp_path) == f"{IN_NODES}{folder}"
    flow = Dataflow("flow")
    flow.source(frame, name="rows", time="at").sink("out")
    run = as_read(flow, str(tmp_path), is_allowed=True)
    assert [step.name for step in run.steps] == [
        *("rows", "rows~filter", "rows~filter2", "rows~select")
    ]
    assert run.steps[0].schema.names == ["at", "k", "s"]
    assert run.sinks["out"].schema == flow.sinks["out"].schema
    assert as_read(flow, str(tmp_path), is_allowed=False) is flow
    marked = spark.readStream.schema("at TIMESTAMP, k BIGINT").parquet(folder)
    marked = marked.withWatermark("at", "2 seconds").where("at > '1970-01-01 00:00:02'")
    assert way(marked, tmp_path) == f"{IN_NODES}{folder}"


def test_results_of_a_filter_are_sparks(spark: SparkSession, folder: str, tmp_path: Path) -> None:
    frame = spark.read.parquet(folder, f"{folder}2").where("k % 2 = 0 AND k IN (1, 2, 4, 6)")
    flow = Dataflow("filtered")
    rows = flow.source(frame, name="rows", time="at")
    rows.window(tumbling("10 seconds")).aggregate("count(*) AS n", "sum(k) AS k").sink("out")
    query = flow.start(spark, checkpointLocation=str(tmp_path / "at"))
    assert query.awaitTermination(60)
    assert IN_NODES in explained(query)
    (row,) = query.to_dataframe("out").select("n", "k").collect()
    assert tuple(row) == frame.selectExpr("count(*)", "sum(k)").first()
    verified = query.verify("out", source="original")
    assert verified.is_identical
    assert verified.inputs[0].given == spark.read.parquet(folder, f"{folder}2").count()


def test_others_are_read_by_spark_which_says_why(
    spark: SparkSession, folder: str, tmp_path: Path
) -> None:
    plain = spark.read.parquet(folder)
    followed = spark.readStream.schema("at TIMESTAMP, k BIGINT").parquet(folder)

    def failing(name: str, value: str, column: str = "m DECIMAL(5,2)") -> DataFrameReader:
        reader = spark.read.schema(f"at TIMESTAMP, {column}").option("mode", "FAILFAST")
        return reader.option(name, value)

    narrow = spark.readStream.schema("at TIMESTAMP, k INT").parquet(folder)
    upper = spark.readStream.schema("at TIMESTAMP, K BIGINT").parquet(folder)
    for frame, reason in (
        (plain.where("sentences(s) IS NOT NULL"), "sentences is not among the functions"),
        (followed.where("k > 3"), "filter decides which rows move time"),
        (
            followed.withWatermark("at", "2 seconds").where("at > '1970-01-01' AND k > 3"),
            "filter decides which rows move time",
        ),
        (spark.read.parquet(f"{folder}3").where("at > '1970-01-01'"), "at is null in"),
        (spark.read.parquet(f"{folder}4").where("d = 1"), "its filter reads d, which folders name"),
        (plain.selectExpr("at", "k + 1 AS k"), "a column is computed"),
        (plain.union(plain), "it reads Union"),
        (spark.read.option("mergeSchema", "true").parquet(folder), "has the option mergeschema"),
        (spark.read.parquet(folder, folder), "reads a file twice"),
        (spark.read.text(folder).selectExpr("timestamp_seconds(1) AS at"), "is computed"),
        (spark.read.schema(plain.schema).json(folder), "makes nulls of bad lines of json"),
        (failing("mode", "PERMISSIVE").csv(folder), "its reader has mode=PERMISSIVE"),
        (failing("mode", "dropMalformed").json(folder), "its reader has mode=dropMalformed"),
        (failing("sep", ",", "_corrupt_record STRING").csv(folder).select("at"), "puts bad lines"),
        (failing("timestampFormat", "y").json(folder), "has the option timestampformat"),
        (failing("sep", "||").csv(folder), "has sep=||"),
        (failing("maxFilesPerTrigger", "1").json(folder), "'m' is decimal128(5, 2)"),
        (spark.range(3).selectExpr("timestamp_seconds(id) AS at"), "computed"),
        (narrow, "column 'k' is int64, not int32"),
        (upper, "column 'K' is written otherwise"),
    ):
        assert way(frame, tmp_path).startswith(BY_SPARK)
        assert reason in way(frame, tmp_path)
    assert "its trigger is a time" in way(
        followed, tmp_path, trigger={"processingTime": "1 second"}
    )
    assert "at a set speed" in way(plain, tmp_path, speed=2.0)
    assert "readFilesInNodes is off" in way(plain, tmp_path, is_allowed=False)
    grown = spark.read.parquet(folder)
    plain.write.mode("append").parquet(folder)
    assert "its folder holds other files by now" in way(grown, tmp_path)


ODD = {
    "STRING": (
        *("a", " a ", '"b,c"', '"b"', '""', '"a""b"', "a\\b", '"a\\"b"', 'a"b', "", "0x1"),
        "\u00e4",
    ),
    "BIGINT": (
        *("5", " 5", "5 ", "+5", "007", "0x10", "5.0", "1e3", '"5"', '" 5"', "", "-0", "9" * 19),
    ),
    "DOUBLE": (
        *("1.5", "1e3", "nan", "NaN", "inf", "Infinity", " 1.5", "1d", "1e400", "0x1p3", ".5", ""),
    ),
    "DECIMAL(10,2)": ("1.5", "1.555", "1e2", " 1.5", "12345678901", '"1,000"', "+1", ""),
    "BOOLEAN": ("true", "True", "tRuE", "1", "t", " true", "FALSE", ""),
    "DATE": ("2024-01-02", "2024-1-2", "2024", " 2024-01-02", "2024-01-02x", "0001-01-01", ""),
    "TIMESTAMP": (
        *("2024-01-02", "2024-01-02 03", "2024-01-02 03:04", "2024-01-02T03:04:05Z", ""),
        *("2024-01-02 03:04:05.123456", "2024-01-02 03:04:05.1234567", "2024-01-02 03:04:05+01:00"),
        *("2024-01-02 03:04:05+0130", "2024-01-02 03:04:05-01", "2024-01-02 03:04:05 UTC", "0"),
        *("2024-01-02 03:04:05+19:00", " 2024-01-02 03:04:05", "1500-01-02 03:04:05"),
    ),
}
"""Texts of each type of which parsers may think differently."""


def read_alone(folder: Path, kind: str, line: str, name: str) -> object:
    """What nodes make of a line of a CSV or JSON; None: it is bad."""
    schema = schema_from(f"v {kind}, n BIGINT, at TIMESTAMP")
    options = (("columns", '["v", "n", "at"]'),) if name == "csv" else ()
    path = folder / "line"
    path.write_text(line + "\n")
    (file,) = list_files(str(path))
    try:
        (found,) = read_rows(file.file, FilesFormat(name, options, is_exact=True), schema, "at")
        (rows,) = found.parts
    except UserFileDamaged:
        return None
    assert isinstance(rows, pa.RecordBatch)
    return rows.column(0).to_pylist()


@pytest.mark.parametrize("name", ["csv", "json"])
def test_texts_are_to_nodes_what_they_are_to_spark_or_are_bad(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    """Spark says of each line in its own way whether it is bad."""
    read = 0
    for kind, texts in ODD.items():
        if name == "json" and kind.startswith("DECIMAL"):
            continue
        values = list(texts)
        if name == "json":
            values = [*map(json.dumps, texts), *texts, "null", "true", "[1]", '"\\u00e9"']
            lines = [
                f'{{"v": {value}, "n": {n}, "at": "2024-01-01T00:00:00Z"}}'
                for n, value in enumerate(values)
            ]
        else:
            lines = [f"{value},{n},2024-01-01 00:00:00" for n, value in enumerate(values)]
        (tmp_path / "lines").write_text("\n".join(lines) + "\n")
        reader = spark.read.schema(f"v {kind}, n BIGINT, at TIMESTAMP, _corrupt_record STRING")
        given = reader.format(name).load(str(tmp_path / "lines")).cache()
        rows = given.select("v", "_corrupt_record").toArrow().to_pylist()
        assert len(rows) == len(lines)
        for line, row in zip(lines, rows, strict=True):
            found = read_alone(tmp_path, kind, line, name)
            if found is not None:
                read += 1
                assert (row["_corrupt_record"], [row["v"]]) == (None, found), line
    assert read > 30


def test_orc_csv_and_json_are_read_by_nodes_as_by_spark(
    spark: SparkSession, folder: str, tmp_path: Path
) -> None:
    """With a filter, from several paths, and as a stream of what is there."""
    rows = spark.sql(
        "SELECT timestamp_millis(id * 700) AS at, id AS k, concat('a ', id) AS s, id / 2 AS d, "
        "if(id % 3 = 0, NULL, date_from_unix_date(cast(id AS INT))) AS day FROM range(2000)"
    )
    for name, options in (
        ("orc", {}),
        ("csv", {"mode": "FAILFAST", "header": "true", "sep": ";"}),
        ("json", {"mode": "FAILFAST"}),
    ):
        places = [str(tmp_path / name / part) for part in ("a", "b")]
        for place in places:
            rows.write.format(name).options(**options).save(place)
        reader = spark.read.schema(rows.schema).options(**options).format(name)
        frame = reader.load(places).where("k % 7 <> 3").select("day", "at", "s", "d")
        flow = Dataflow(name)
        source = flow.source(frame, name="rows", time="at")
        source.select("s", "d", "day").sink("out")
        following = spark.readStream.schema(rows.schema).options(**options).format(name)
        stream = (
            following.load(f"{places[0]}/p?rt-*").withWatermark("at", "1 second").select("k", "at")
        )
        more = flow.source(stream, name="more", time="at", trigger={"availableNow": True})
        more.select("k").sink("followed")
        query = flow.start(spark, checkpointLocation=str(tmp_path / "at" / name))
        assert query.awaitTermination(120)
        said = explained(query)
        assert f"{IN_NODES}{places[0]}, {places[1]}" in said
        assert f"{IN_NODES}{places[0]}/p?rt-*" in said
        wanted = frame.select("s", "d", "day")
        found = query.to_dataframe("out").select("s", "d", "day")
        assert found.exceptAll(wanted).count() == wanted.exceptAll(found).count() == 0
        verified = query.verify("followed", source="original")
        assert verified.is_identical
        assert verified.inputs[-1].given == verified.inputs[-1].recorded > 0


@pytest.mark.parametrize("needs_order", [False, True])
def test_many_rows_come_as_spark_gives_them_unless_a_step_needs_their_order(
    spark: SparkSession, tmp_path: Path, needs_order: bool
) -> None:
    numbers = spark.range(0, 1_000_000, 1, 3)
    flow = Dataflow("many")
    given = numbers.selectExpr("timestamp_seconds(-id) AS at", "id")
    rows = flow.source(given, name="rows", time="at")
    if needs_order:
        rows.sort(slack=1)
    recorder = recorder_of_frame(flow.steps[0], flow, str(tmp_path), is_allowed=True)
    recorder.start(spark)
    recorder.wait()
    assert recorder.error is None
    store = CommitStore(ingest_path(str(tmp_path), "rows"))
    commit = store.commit(0)
    assert commit is not None
    assert commit.ends
    assert sum(file.count for file in commit.files) == 1_000_000
    assert [file.disorder_us == 0 for file in commit.files] == (
        [True] if needs_order else [False] * 3
    )


def test_a_location_goes_on_the_way_it_was_begun(
    spark: SparkSession, folder: str, tmp_path: Path
) -> None:
    frame = spark.read.parquet(folder)
    flow = Dataflow("flow")
    flow.source(frame, name="rows", time="at")
    (step,) = flow.steps
    prepare(ingest_path(str(tmp_path / "a"), "rows"), IngestMeta(step.schema, "at", 0))
    assert way(frame, tmp_path / "a").endswith("its log was begun so")
    begun = recorder_of_frame(step, flow, str(tmp_path / "b"), is_allowed=True)
    begun.start(spark)
    begun.wait()
    assert begun.error is None
    assert begun.has_ended
    assert way(frame, tmp_path / "b", is_allowed=False).startswith(IN_NODES)
