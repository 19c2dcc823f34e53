"""Operators with state behind each other in one unit: what a replay puts out stays out of them."""

import os
import signal
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from test_protocol import EVENTS, MOST, RATE, has_put_in, wait_for

import holdfast as hf
from holdfast.nexmark.generator import NexmarkConfig
from holdfast.nexmark.source import NexmarkSource, now_us
from holdfast_chaos.tap import Tap

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    "protection", [hf.UpstreamBackup(), hf.PassiveStandby()], ids=["upstream", "passive"]
)
def test_a_unit_with_a_chain_of_windows_is_killed_twice(
    spark: SparkSession, tmp_path: Path, protection: hf.Protection
) -> None:
    """Windows of a second are counted in windows of 5 s, and these in windows of 10 s."""
    flow, tap = hf.Dataflow("chain"), Tap(tmp_path / "tap", MOST)
    config = NexmarkConfig(events_per_second=2_000)
    generator = NexmarkSource("bid", EVENTS, config, RATE, now_us() + 1_500_000)
    counted = flow.source_generator(tap.on(generator), name="bids").key_by("bidder").unit("chain")
    for seconds, counting in ((1, "count(*) AS n"), (5, "sum(n) AS n"), (10, "sum(n) AS n")):
        windows = counted.window(hf.tumbling(f"{seconds} seconds"))
        counted = windows.aggregate(counting, "count(*) AS parts", name=f"of_{seconds}")
    counted.sink("out")
    query = flow.start(spark, checkpointLocation=str(tmp_path / "q"), protection=protection)
    for kills, tuples in ((1, 9_000), (2, 25_000)):
        wait_for(query, has_put_in(query, tuples))
        os.kill(query.pid("chain[0]"), signal.SIGKILL)
        wait_for(query, lambda least=kills: len(query.recoveries) >= least)
    tap.open()
    assert query.awaitTermination(240)
    assert {recovery["node"] for recovery in query.recoveries} == {"chain[0]"}
    assert query.verify().is_identical
    assert query.to_dataframe("out").selectExpr("sum(n)").collect()[0][0] == EVENTS
