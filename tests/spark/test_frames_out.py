"""DataFrames out: every kind of content, filters that are pushed down, what is refused."""

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType
from spark_streams import begun

from holdfast.api.dataflow import Dataflow
from holdfast.api.protections import Checkpointed
from holdfast.api.streams import Stream
from holdfast.api.windows import tumbling
from holdfast.driver.data_source import HoldfastSource
from holdfast.driver.session import register
from holdfast.nexmark.generator import NexmarkConfig
from holdfast.nexmark.queries import build
from holdfast.nexmark.source import NexmarkSource
from holdfast.shell.storage.errors import StorageError

pytestmark = pytest.mark.slow
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
CONDITIONS = (
    "n = 7",
    "n <> 7",
    "n IN (1, 2, NULL)",
    "n NOT IN (1, 2)",
    "n NOT IN (1, NULL)",
    "n <=> NULL",
    "NOT (n <=> 3)",
    "n IS NULL AND text LIKE 'a%'",
    "text LIKE '%z'",
    "text LIKE '%é%' OR n = 1",
    "NOT (text LIKE 'a%')",
    "text > 'b' AND text <= 'é'",
    "flag",
    "NOT flag",
    "real = double('NaN') OR real > 5",
    "real >= 3",
    "amount >= 3.50 AND amount < 7",
    "amount = 2.5",
    "day = DATE'2023-11-15'",
    "day > DATE'2023-11-15'",
    "at < TIMESTAMP'2023-11-14 22:13:30'",
    "big > 9223372036854775800",
    "_tuple_id >= 20 AND _tuple_id < 25",
    "_tuple_id = 3",
    "_tuple_id < 0",
    "_partition = 0 AND n < 5",
    "_partition = 3",
    "_time > TIMESTAMP'2023-11-14 22:13:50'",
)


@pytest.fixture(scope="module")
def location(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """What a query with sinks, dead letters and state has left."""
    place = tmp_path_factory.mktemp("out")
    frame = spark.sql(
        """SELECT timestamp_seconds(1700000000 + id) AS at, nullif(id % 10, 9) AS n,
                  elt(1 + id % 4, 'alpha', 'buzz', 'café', NULL) AS text,
                  if(id % 5 = 0, NULL, id % 2 = 0) AS flag,
                  if(id % 11 = 0, double('NaN'), id / 10) AS real,
                  CAST(id AS DECIMAL(12, 2)) / 4 AS amount,
                  date_add(DATE'2023-11-14', CAST(id % 3 AS INT)) AS day,
                  9223372036854775807 - id AS big, id AS v
           FROM range(100)"""
    ).selectExpr("* EXCEPT (amount)", "CAST(amount AS DECIMAL(10, 2)) AS amount")
    flow = Dataflow("out")
    rows = flow.source(frame, name="rows", time="at")
    rows.select("*", "100 / (v % 10) AS share", dead_letters="bad").sink("good")
    keyed = rows.key_by("n").window(tumbling("10 seconds"))
    keyed.aggregate("count(*) AS c", name="counts").sink("counts")
    query = flow.start(
        spark,
        checkpointLocation=str(place),
        parallelism=2,
        protection=Checkpointed(interval="100 milliseconds"),
    )
    assert query.awaitTermination(240)
    return str(place)


def read(spark: SparkSession, location: str, **options: str) -> DataFrame:
    return spark.read.format("holdfast").options(**options).load(location)


def test_outputs_logs_and_dead_letters_are_tables(spark: SparkSession, location: str) -> None:
    assert read(spark, location, stream="good").count() == 90
    bad = read(spark, location, stream="bad").select("v", "error").collect()
    assert sorted(row.v for row in bad) == list(range(0, 100, 10))
    assert all("division by zero" in row.error.lower() for row in bad)
    assert read(spark, location, stream="rows").count() == 100
    counts = read(spark, location, stream="counts", metadata="true", types="all")
    assert {row._type for row in counts.collect()} == {"stable"}
    assert counts.rdd.getNumPartitions() == 2


def test_metrics_are_a_table_with_a_row_per_unit_and_report(
    spark: SparkSession, location: str
) -> None:
    rows = read(spark, location, metrics="true").orderBy("at").collect()
    last = {row.unit: row for row in rows}
    assert set(last) == {"rows", "counts"}
    assert last["counts"].input_rows == 100
    assert last["counts"].instances == 2
    assert last["rows"].source_backlog_rows == 0


def test_metrics_tell_of_checkpoints(spark: SparkSession, tmp_path: Path) -> None:
    def source(flow: Dataflow, kind: str) -> Stream:
        origin_us = time.time_ns() // 1000 + 1_000_000
        bids = NexmarkSource(kind, 6_000, NexmarkConfig(), 2_000.0, origin_us)  # Three seconds.
        return flow.source_generator(bids, name="bids", unit="bids")

    protection = Checkpointed(interval="100 milliseconds")
    query = build("q12", source).start(
        spark, checkpointLocation=str(tmp_path), protection=protection
    )
    assert query.awaitTermination(240)
    rows = read(spark, str(tmp_path), metrics="true").where("unit = 'counts'").collect()
    last = max(rows, key=lambda row: row.at)
    assert last.checkpoints >= 1
    assert last.checkpoint_bytes > 0


def test_metrics_are_a_stream(spark: SparkSession, location: str) -> None:
    stream = spark.readStream.format("holdfast").option("metrics", "true").load(location)
    writer = stream.writeStream.format("memory").queryName("metrics_again")
    assert begun(writer.trigger(availableNow=True)).awaitTermination(240)
    assert spark.table("metrics_again").count() == read(spark, location, metrics="true").count()


def test_dead_letters_are_a_stream(spark: SparkSession, location: str) -> None:
    stream = spark.readStream.format("holdfast").option("stream", "bad").load(location)
    writer = stream.writeStream.format("memory").queryName("bad_again")
    assert begun(writer.trigger(availableNow=True)).awaitTermination(240)
    assert spark.table("bad_again").count() == 10


def test_filters_leave_the_same_rows_wherever_they_run(spark: SparkSession, location: str) -> None:
    options = {"stream": "rows", "metadata": "true"}
    here = {
        condition: rows_of(read(spark, location, pushdown="true", **options).where(condition))
        for condition in CONDITIONS
    }
    frame = read(spark, location, **options)
    there = {condition: rows_of(frame.where(condition)) for condition in CONDITIONS}
    assert here == there
    assert sum(bool(rows) for rows in here.values()) > len(CONDITIONS) / 2


def test_a_frame_can_be_used_again_with_another_filter(spark: SparkSession, location: str) -> None:
    frame = read(spark, location, stream="rows")
    assert frame.where("n = 1").count() == 10
    assert frame.count() == 100
    spark.conf.set(PUSHDOWN, "false")
    try:
        wanted = read(spark, location, stream="rows", pushdown="true")
        assert wanted.where("n = 1").count() == 10
    finally:
        register(spark)
    assert spark.conf.get(PUSHDOWN) == "true"


def rows_of(frame: DataFrame) -> list[int]:
    return sorted(row.v for row in frame.select("v").collect())


def test_what_a_filter_rules_out_is_not_read(spark: SparkSession, location: str) -> None:
    counts = read(spark, location, stream="counts", metadata="true", pushdown="true")
    one = counts.where("_partition = 1")
    assert one.rdd.getNumPartitions() == 1
    assert {row._partition for row in one.collect()} == {1}
    plan = one._jdf.queryExecution().executedPlan().toString()
    assert not re.search(r"\bFilter\b", plan)  # Spark need not look again.


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"stream": "counts", "state": "counts"}, "options stream and state name different"),
        ({"metrics": "true", "stream": "counts"}, "options stream and metrics name different"),
        ({"metrics": "perhaps"}, "option metrics='perhaps'; it is 'true' or 'false'"),
        ({"stream": "counts", "metadata": "1"}, "option metadata='1'; it is 'true' or 'false'"),
        ({"state": "means"}, "no operator with state is named 'means'; there are counts"),
        ({}, "holds no log; name one with option"),
    ],
)
def test_bad_reads_are_refused(
    spark: SparkSession, location: str, options: dict[str, str], message: str
) -> None:
    with pytest.raises(PySparkException, match=message):
        read(spark, location, **options).collect()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"state": "counts"}, r"a checkpoint is no stream; use spark\.read"),
        ({"stream": "rows", "late": "true"}, "late tuples have no ids to follow"),
    ],
)
def test_what_does_not_grow_is_no_stream(options: dict[str, str], message: str) -> None:
    with pytest.raises(StorageError, match=message):
        HoldfastSource({"path": "/somewhere", **options}).streamReader(StructType([]))


def test_a_batch_write_has_no_watermark(spark: SparkSession, tmp_path: Path) -> None:
    writer = spark.sql("SELECT timestamp_seconds(1) AS at").write.format("holdfast")
    with pytest.raises(PySparkException, match="a batch write has none; use delayMs"):
        writer.options(time="at", watermark="true").mode("append").save(str(tmp_path / "log"))


def test_a_location_without_metrics_says_so(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(PySparkException, match="holds no metrics: no query ran there"):
        read(spark, str(tmp_path), metrics="true").collect()


def test_any_session_finds_the_format_by_itself(location: str) -> None:
    """Nothing of Holdfast is imported or called there, and filters are not pushed down."""
    program = (
        "import json, sys\n"
        "from pyspark.sql import SparkSession\n"
        "spark = SparkSession.builder.master('local[2]').config('spark.ui.enabled', 'false')"
        ".getOrCreate()\n"
        "frame = spark.read.format('holdfast').option('stream', 'good').load(sys.argv[1])\n"
        "count = frame.where('n = 1').count()\n"
        "import holdfast\n"
        "holdfast.register(spark)\n"
        "print(json.dumps([count, frame.where('n = 1').count()]))\n"
    )
    environment = {
        **os.environ,
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    done = subprocess.run(
        [sys.executable, "-c", program, location],
        capture_output=True,
        text=True,
        env=environment,
        timeout=800,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(done.stdout.splitlines()[-1]) == [10, 10]
