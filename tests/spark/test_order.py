"""`verify` compares the order of a sink where there is one, and says whether it did."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from holdfast.api.dataflow import Dataflow
from holdfast.api.streams import Stream
from holdfast.api.windows import counting, tumbling
from holdfast.driver import verification
from holdfast.driver.query import Query
from holdfast.driver.verification import Verification, verify

pytestmark = pytest.mark.slow
ROWS = 2_000


def rows(flow: Dataflow, spark: SparkSession, name: str, unit: str | None = None) -> Stream:
    """Out of order by up to 20 ms; every time comes in all sources."""
    frame = spark.sql(f"""
        SELECT timestamp_micros(1700000000000000 + id * 1000 - (id * 7919) % 20 * 1000) AS at,
            '{name}' AS source, id AS v
        FROM range({ROWS})
    """).coalesce(1)
    return flow.source(frame, name=name, time="at", delay="100 milliseconds", unit=unit)


def merged(flow: Dataflow, spark: SparkSession, *, is_swapped: bool = False) -> None:
    one, two = rows(flow, spark, "one"), rows(flow, spark, "two")
    both = two.union(one) if is_swapped else one.union(two)
    both.sink("merged")
    both.key_by("source").window(counting(7)).aggregate("sum(v) AS s", name="sevens").sink("sevens")
    both.window(tumbling("1 second")).aggregate("count(*) AS n", name="seconds").sink("seconds")
    both.sort(slack=5).sink("sorted")


def branches(flow: Dataflow, spark: SparkSession) -> None:
    """Of one stream in its own unit, and of two that share a unit."""
    one = rows(flow, spark, "one")
    united = one.filter("v % 2 = 0").union(one.filter("v % 3 = 0"))
    united.sink("united")
    united.window(counting(7)).aggregate("sum(v) AS s", name="sevens").sink("sevens")
    left, right = rows(flow, spark, "left", "pair"), rows(flow, spark, "right", "pair")
    left.sink("left")
    right.union(left).sink("pair")
    left.window(counting(7, 1)).aggregate("sum(v) AS s", name="last").sink("last")


def run(flow: Dataflow, spark: SparkSession, location: Path) -> Query:
    query = flow.start(spark, checkpointLocation=str(location))
    assert query.awaitTermination(120), query.exception()
    return query


def verify_at_length(flow: Dataflow, spark: SparkSession, sink: str, location: str) -> Verification:
    """As if the one job that tells whether a sink is its twin had found a difference."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(verification, "_sameness", lambda *_: None)
        return verify(flow, spark, sink, location)


def test_the_order_of_a_merged_stream_is_compared_and_another_one_is_not_identical(
    spark: SparkSession, tmp_path: Path
) -> None:
    flow = Dataflow("merged")
    merged(flow, spark)
    query = run(flow, spark, tmp_path)
    found = {sink: query.verify(sink) for sink in flow.sinks}
    assert all(each.is_identical for each in found.values()), found
    assert {sink: each.misplaced for sink, each in found.items()} == {
        "merged": 0,
        "sevens": None,
        "seconds": None,
        "sorted": None,
    }
    assert found["merged"].actual == 2 * ROWS
    at_length = {sink: verify_at_length(flow, spark, sink, str(tmp_path)) for sink in flow.sinks}
    assert at_length == found
    other = Dataflow("merged")
    merged(other, spark, is_swapped=True)
    swapped = verify(other, spark, "merged", str(tmp_path))
    assert (swapped.lost, swapped.doubled, swapped.gaps) == (0, 0, 0)
    assert swapped.misplaced
    assert swapped.misplaced > ROWS
    assert not swapped.is_identical
    assert swapped.sample[0].startswith("misplaced Row(_tuple_id=0")


def test_branches_of_a_stream_and_streams_that_share_a_unit_come_in_the_order_of_the_twin(
    spark: SparkSession, tmp_path: Path
) -> None:
    flow = Dataflow("branches")
    branches(flow, spark)
    query = run(flow, spark, tmp_path)
    found = {sink: query.verify(sink) for sink in flow.sinks}
    assert all(each.is_identical for each in found.values()), found
    for sink in ("united", "left", "pair"):
        assert found[sink].misplaced == 0
