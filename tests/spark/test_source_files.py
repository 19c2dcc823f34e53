"""Users' files as a source, on real Spark tasks: killed, restarted, taken away."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from kills import kill
from pyspark.sql import DataFrame, SparkSession

import holdfast as hf

pytestmark = pytest.mark.slow
COUNT = 30_000


def rows(spark: SparkSession, first: int, count: int) -> DataFrame:
    return spark.sql(
        "SELECT timestamp_micros(1700000000000000 + id * 1000) AS at, id % 7 AS k, id AS v, "
        f"concat('n', id) AS s FROM range({first}, {first + count}, 1, 1)"
    )


def write(spark: SparkSession, folder: Path, first: int, count: int) -> None:
    rows(spark, first, count).write.mode("append").parquet(str(folder))


def counting(folder: Path, *, partitions: int = 1, ends: bool = False) -> hf.Dataflow:
    flow = hf.Dataflow("counting")
    trigger = None if ends else {"availableNow": True}
    files = flow.source_files(
        str(folder), time="at", name="rows", partitions=partitions, trigger=trigger, ends=ends
    )
    windows = files.filter("v % 3 <> 0").key_by("k").window(hf.tumbling("5 seconds"))
    windows.aggregate("count(*) AS n", "sum(v) AS total", name="counts").sink("counts")
    return flow


def test_files_that_end_give_what_spark_sql_gives(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    for part in range(4):
        write(spark, folder, part * COUNT, COUNT)
    flow = counting(folder, partitions=2, ends=True)
    query = flow.start(spark, checkpointLocation=str(tmp_path / "q"), parallelism=2)
    assert query.awaitTermination(240)
    found = query.verify(source="original")
    assert found.is_identical
    (given,) = found.inputs
    assert (given.compared_with, given.given, given.recorded) == ("original", 4 * COUNT, 4 * COUNT)
    assert (given.lost, given.doubled) == (0, 0)
    expected = spark.read.parquet(str(folder)).where("v % 3 <> 0")
    found = query.to_dataframe().selectExpr("sum(n)", "sum(total)").collect()
    assert found == expected.selectExpr("count(*)", "sum(v)").collect()


def test_groups_of_rows_that_a_filter_leaves_out_change_no_result(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    made = rows(spark, 0, COUNT).toArrow()
    pq.write_table(made, folder / "a.parquet", row_group_size=1_000)
    flow = hf.Dataflow("few")
    files = flow.source_files(str(folder), time="at", name="rows", ends=True)
    kept = files.filter("v BETWEEN 12345 AND 17000 AND s > 'n13'")
    kept.key_by("k").window(hf.tumbling("1 second")).aggregate("count(*) AS n").sink("counts")
    query = flow.start(spark, checkpointLocation=str(tmp_path / "q"))
    assert query.awaitTermination(240)
    assert query.verify(source="original").is_identical
    expected = spark.read.parquet(str(folder)).where("v BETWEEN 12345 AND 17000 AND s > 'n13'")
    assert query.to_dataframe().selectExpr("sum(n)").first()[0] == expected.count() > 0


def test_a_filter_of_a_plain_scan_leaves_out_groups_of_rows_too(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    pq.write_table(rows(spark, 0, 9_000).toArrow(), folder / "a.parquet", row_group_size=1_000)
    flow = hf.Dataflow("scan")
    frame = spark.read.parquet(str(folder)).filter("v > 8000")
    flow.source(frame, time="at", name="rows").sink("out")
    query = flow.start(spark, checkpointLocation=str(tmp_path / "q"))
    assert query.awaitTermination(240)
    assert query.to_dataframe().count() == 999
    query.explain(extended=True)
    assert "without groups of rows that filters leave out by v" in capsys.readouterr().out


def test_a_later_run_reads_what_is_new_and_a_killed_node_reads_on(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder, location = tmp_path / "in", str(tmp_path / "q")
    write(spark, folder, 0, COUNT)
    assert counting(folder).start(spark, checkpointLocation=location).awaitTermination(240)
    write(spark, folder, COUNT, COUNT)
    query = counting(folder).start(spark, checkpointLocation=location)
    kill(query, "rows[0]")
    assert query.awaitTermination(240)
    found = query.verify()
    assert found.is_identical
    # The last two seconds' window is open; each other one has 7 keys.
    assert (found.actual, found.open) == (7 * 11, 7)


def test_files_that_appear_are_read_and_one_that_was_replaced_ends_the_query(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder = tmp_path / "in"
    write(spark, folder, 0, COUNT)
    flow = hf.Dataflow("following")
    files = flow.source_files(str(folder), time="at", name="rows")
    files.filter("k = 3").sink("out")
    files.window(hf.tumbling("1 day")).aggregate("count(*) AS n", name="counts").sink("counts")
    query = flow.start(spark, checkpointLocation=str(tmp_path / "q"))
    query.processAllAvailable()
    write(spark, folder, COUNT, COUNT)
    query.processAllAvailable()
    expected = spark.read.parquet(str(folder)).where("k = 3").count()
    assert query.to_dataframe("out").count() == expected
    for file in folder.glob("*.parquet"):
        os.utime(file, (1.0, 1.0))
    for node in query.nodes:  # Without them the open window has to be read again.
        query.kill(node)
    with pytest.raises(hf.QueryFailedError, match="was replaced or changed"):
        query.awaitTermination(240)


def test_bad_rows_of_partitioned_csv_are_put_aside_once_though_all_nodes_are_killed(
    spark: SparkSession, tmp_path: Path
) -> None:
    for day in range(4):
        folder = tmp_path / "in" / f"day=2026-11-0{day + 1}"
        folder.mkdir(parents=True)
        lines = [f"2026-11-0{day + 1}T00:00:{n % 60:02d}Z,{n}" for n in range(20_000)]
        lines[day * 1000 :: 5_000] = [f"bad {day}"] * len(lines[day * 1000 :: 5_000])
        (folder / "part.csv").write_text("at,v\n" + "\n".join(lines) + "\n")
    flow = hf.Dataflow("bad-rows")
    rows = flow.source_files(
        str(tmp_path / "in"),
        format="csv",
        options={"header": "true"},
        schema="at TIMESTAMP, v BIGINT, day DATE",
        time="at",
        name="rows",
        partitions=2,
        trigger={"availableNow": True},
        dead_letters="bad",
    )
    rows.select("day", "v").sink("good")
    query = flow.start(spark, checkpointLocation=str(tmp_path / "q"))
    for node in query.nodes:
        query.kill(node)
    assert query.awaitTermination(240)
    for sink in ("good", "bad"):
        assert query.verify(sink).is_identical
    good, bad = query.to_dataframe("good"), query.to_dataframe("bad")
    assert {
        row["n"] for row in good.groupBy("day").agg({"*": "count"}).toDF("d", "n").collect()
    } == {20_000 - 4}
    found = bad.where("text = 'bad 3'").orderBy("row").collect()
    assert [row["row"] for row in found] == [3_002, 8_002, 13_002, 18_002]
    assert all(row["file"].endswith("day=2026-11-04/part.csv") for row in found)
    assert bad.count() == 16


def test_other_numbers_of_instances_go_on_with_the_files(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder, location = tmp_path / "in", str(tmp_path / "q")
    protection = hf.Checkpointed(interval="100 milliseconds")
    for first, instances in ((0, 1), (COUNT, 3)):
        write(spark, folder, first, COUNT)
        query = counting(folder).start(
            spark, checkpointLocation=location, protection=protection, parallelism=instances
        )
        assert len([node for node in query.nodes if node.startswith("counts")]) == instances
        assert query.awaitTermination(240)
    found = query.verify(source="original")
    assert found.is_identical
    assert found.inputs[0].given == 2 * COUNT
