"""Results that change, on real Spark tasks: feeds, tables, a Delta table; nodes are killed."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from deltalake import DeltaTable
from kills import kill
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import holdfast as hf
from holdfast.errors import OptionError, UnsupportedError
from holdfast_chaos.kafka_broker import KafkaBroker

pytestmark = pytest.mark.slow
ORDERS = """
    SELECT timestamp_micros(1700000000000000 + id * 1000) AS at, CAST(id % 7 AS INT) AS who,
        id AS v, concat('item ', id % 3) AS item FROM range(0, 3000, 1, 1)
"""
PEOPLE = """
    SELECT timestamp_micros(1700000000000500 + id * 400000) AS at, CAST(2 * id AS INT) AS who,
        concat('name ', id) AS name FROM range(0, 6, 1, 1)
"""


def listed(frame: DataFrame) -> list[str]:
    return sorted(map(str, frame.collect()))


def test_counts_of_counts_come_and_go_as_the_rows_do(spark: SparkSession, tmp_path: Path) -> None:
    """A feed as in Spark SQL, its table, counts over what changes, and a Delta table by key."""
    flow = hf.Dataflow("changes")
    orders = flow.source(spark.sql(ORDERS), name="orders", time="at", speed=2.0)
    orders.sink("orders")
    per_key = orders.key_by("who", "item").aggregate(
        "count(*) AS n", "sum(v) AS total", "max(item) AS latest", emit="changelog", name="counts"
    )
    per_key.sink("counts")
    per_key.filter("n > 100").select("who", "item", "total").sink_delta(
        str(tmp_path / "large"), name="large", every="100 milliseconds"
    )
    per_key.sink_files(str(tmp_path / "files"), name="files", every="100 milliseconds")
    how_many = per_key.key_by("n").aggregate(
        "count(*) AS keys", "avg(total) AS mean", emit="changelog", name="spread"
    )
    how_many.sink("spread")
    query = flow.start(
        spark,
        checkpointLocation=str(tmp_path / "q"),
        protection=hf.Checkpointed(),
        parallelism={"counts": 2},
    )
    for node in ("counts[0]", "spread[0]"):
        kill(query, node)
    assert query.awaitTermination(240)
    assert query.verify("counts").is_identical
    assert query.verify("large").is_identical
    assert query.verify("files").is_identical, "it holds the changes, not what they come to"
    spark.sql(ORDERS).createOrReplaceTempView("orders_now")
    table = spark.sql("""
        SELECT who, item, count(*) AS n, sum(v) AS total, max(item) AS latest FROM orders_now
        GROUP BY who, item
    """)
    assert listed(query.to_dataframe("counts", as_table=True)) == listed(table)
    assert listed(query.to_dataframe("files", as_table=True)) == listed(table)
    feed = query.to_dataframe("counts")
    assert feed.where("_change = 'insert'").count() == 21
    assert feed.where("_change = 'update_before'").count() == 3_000 - 21
    wanted = table.where("n > 100").selectExpr("who", "item", "total")
    rows = DeltaTable(tmp_path / "large").to_pyarrow_table().to_pylist()
    assert sorted(str(tuple(row.values())) for row in rows) == sorted(
        str(tuple(row)) for row in wanted.collect()
    )
    spread = table.groupBy("n").agg({"*": "count", "total": "avg"})
    spread = spread.selectExpr("n", "`count(1)` AS keys", "`avg(total)` AS mean")
    assert listed(query.to_dataframe("spread", as_table=True)) == listed(spread)
    with pytest.raises(UnsupportedError, match="order of the input"):
        query.verify("spread")
    with pytest.raises(OptionError, match="no changelog"):
        query.to_dataframe("orders", as_table=True)
    with pytest.raises(OptionError, match="leave newest_by out"):
        query.to_dataframe("counts", as_table=True, newest_by=["who"])


def test_results_that_replace_each_other_are_a_table_by_what_the_location_says(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A reader has the location alone, and no dataflow."""
    flow = hf.Dataflow("running")
    orders = flow.source(spark.sql(ORDERS), name="orders", time="at")
    counts = orders.key_by("who").aggregate("count(*) AS n", emit="changes", name="counts")
    counts.select("who AS customer", "n").sink("counts")
    counts.filter("n > 100").sink("many")
    location = str(tmp_path / "q")
    assert flow.start(spark, checkpointLocation=location).awaitTermination(240)
    frames = spark.read.format("holdfast").option("table", "true")
    found = frames.option("stream", "counts").load(location)
    spark.sql(ORDERS).createOrReplaceTempView("orders_now")
    wanted = "SELECT who AS customer, count(*) AS n FROM orders_now GROUP BY who"
    assert listed(found) == listed(spark.sql(wanted))
    with pytest.raises(PySparkException, match=r"many is no changelog.* no key is known"):
        frames.option("stream", "many").load(location)


def test_a_full_join_takes_back_what_had_no_match(spark: SparkSession, tmp_path: Path) -> None:
    """Half of the people come when there are totals of theirs already."""
    flow = hf.Dataflow("joins")
    orders = flow.source(spark.sql(ORDERS), name="orders", time="at", speed=2.0)
    people = flow.source(spark.sql(PEOPLE), name="people", time="at", speed=2.0, unit="orders")
    totals = orders.key_by("who").aggregate("sum(v) AS total", emit="changelog", name="totals")
    columns = ["left.who", "left.total", "right.name", "right.who AS other"]
    joined = totals.join(people, on="who", select=columns, how="full", emit="changelog", name="j")
    joined.sink("joined")
    query = flow.start(spark, checkpointLocation=str(tmp_path / "q"), protection=hf.Checkpointed())
    for node in ("totals[0]", "j[0]", "j-left[0]"):
        kill(query, node)
    assert query.awaitTermination(240)
    spark.sql(ORDERS).groupBy("who").agg({"v": "sum"}).selectExpr(
        "who", "`sum(v)` AS total"
    ).createOrReplaceTempView("totals_now")
    spark.sql(PEOPLE).createOrReplaceTempView("people_now")
    wanted = spark.sql("""
        SELECT t.who, t.total, p.name, p.who AS other
        FROM totals_now t FULL OUTER JOIN people_now p ON t.who = p.who
    """)
    assert wanted.count() == 9
    assert listed(query.to_dataframe(as_table=True)) == listed(wanted)


def test_the_table_of_a_topic_is_that_of_the_database_though_nodes_are_killed(
    spark: SparkSession, tmp_path: Path, kafka: KafkaBroker
) -> None:
    """People move from city to city; the last of a city leaves it without a row."""
    pytest.importorskip("confluent_kafka")
    from kafka_topics import committed, produce, wait_for_records

    kafka.create_topic("moves", 2)
    kafka.create_topic("cities", 2)
    changes: list[tuple[int, bytes | None]] = []
    lives: dict[int, int] = {}
    for number in range(4_000):
        who, city = number % 40, number * 7 % 11 if number < 3_960 else 1 + number % 2
        before = {"id": who, "city": lives[who]} if who in lives else None
        told = {"op": "u" if before else "c", "before": before, "after": {"id": who, "city": city}}
        lives[who] = city
        changes.append((who % 2, json.dumps(told).encode()))
    flow = hf.Dataflow("moves")
    people = flow.source_kafka(
        servers=kafka.servers,
        topic="moves",
        format="debezium",
        schema="id BIGINT, city BIGINT",
        key="id",
        end={0: 2_000, 1: 2_000},
    )
    counts = people.key_by("city").aggregate("count(*) AS n", emit="changelog", name="counts")
    counts.sink("feed")
    counts.sink_kafka("table", servers=kafka.servers, topic="cities")
    query = flow.start(
        spark,
        checkpointLocation=str(tmp_path),
        protection=hf.Checkpointed(interval="300 milliseconds"),
        parallelism={"counts": 2},
    )
    written = 0
    for begin, node in enumerate(("moves[0]", "counts[0]", "moves[0]", "counts[1]")):
        part = changes[begin * 1_000 : (begin + 1) * 1_000]
        produce(kafka, "moves", part)
        kill(query, node)
        written += 2 * len(part) - (40 if begin == 0 else 0)  # Who comes changes one city, not two.
        if begin < 3:
            wait_for_records(kafka, "cities", written, query)
    assert query.awaitTermination(240)
    records = committed(kafka, "cities")
    assert len(records) == written
    wanted = Counter(lives.values())
    assert len(wanted) == 2
    newest = {record.key(): record.value() for record in records}
    assert len(newest) == 11
    assert {key: json.loads(value) for key, value in newest.items() if value is not None} == {
        str(city).encode(): {"city": city, "n": n} for city, n in wanted.items()
    }
    assert listed(query.to_dataframe("feed", as_table=True)) == sorted(
        f"Row(city={city}, n={n})" for city, n in wanted.items()
    )
