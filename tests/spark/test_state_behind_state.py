"""Operators with state behind each other in one unit: what a replay puts out stays out of them."""

from pathlib import Path
from typing import Any

import pytest
from kills import kill
from pyspark.sql import SparkSession
from test_protocol import EVENTS, MOST, RATE, has_put_in, wait_for

import holdfast as hf
from holdfast.nexmark.generator import NexmarkConfig
from holdfast.nexmark.source import NexmarkSource, now_us
from holdfast_chaos.tap import Tap

pytestmark = pytest.mark.slow


def primary(query: hf.Query) -> dict[str, Any]:
    """The replica that counts; empty: there is none."""
    replicas = query.status["nodes"]["chain[0]"]["replicas"]
    return next((each for each in replicas if each["role"] == "primary"), {})


def is_behind(query: hf.Query, incarnation: int) -> bool:
    """Whether a later one is at work, and has replayed."""
    is_later = primary(query).get("incarnation", 0) > incarnation
    return is_later and not query.status["nodes"]["chain[0]"]["is_silent"]


@pytest.mark.parametrize(
    "protection", [hf.UpstreamBackup(), hf.PassiveStandby()], ids=["upstream", "passive"]
)
def test_a_unit_with_a_chain_of_windows_is_killed_twice(
    spark: SparkSession, tmp_path: Path, protection: hf.Protection
) -> None:
    """Windows of 4 s that slide are counted in windows of 5 s, and these in windows of 10 s.

    A replay begins in the middle of windows that slide: their results would be too small.
    """
    flow, tap = hf.Dataflow("chain"), Tap(tmp_path / "tap", MOST)
    config = NexmarkConfig(events_per_second=2_000)
    generator = NexmarkSource("bid", EVENTS, config, RATE, now_us() + 1_500_000)
    counted = flow.source_generator(tap.on(generator), name="bids").key_by("bidder")
    for length, counting in (
        (hf.sliding("4 seconds", "1 second"), "count(*) AS n"),
        (hf.tumbling("5 seconds"), "sum(n) AS n"),
        (hf.tumbling("10 seconds"), "sum(n) AS n"),
    ):
        windows = counted.unit("chain").window(length)
        counted = windows.aggregate(counting, "count(*) AS parts")
    counted.sink("out")
    assert {step.unit for step in flow.steps} == {"bids", "chain"}
    query = flow.start(spark, checkpointLocation=str(tmp_path / "q"), protection=protection)
    for tuples in (9_000, 25_000):
        wait_for(query, has_put_in(query, tuples))
        before = primary(query).get("incarnation", 0)
        kill(query, "chain[0]")
        wait_for(query, lambda at=before: is_behind(query, at))
    tap.open()
    assert query.awaitTermination(240)
    assert {recovery["node"] for recovery in query.recoveries} == {"chain[0]"}
    assert query.verify().is_identical
    assert query.to_dataframe("out").selectExpr("sum(n)").collect()[0][0] == 4 * EVENTS
