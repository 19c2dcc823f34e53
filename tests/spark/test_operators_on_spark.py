"""Operators of all classes on real tasks: exact where they can be, complete where they cannot."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from held_rows import HeldRows
from kills import kill
from pyspark.sql import SparkSession
from test_protocol import wait_for

from holdfast.api.dataflow import Dataflow
from holdfast.api.protections import Checkpointed, Protection, UpstreamBackup
from holdfast.api.streams import Stream
from holdfast.api.windows import counting, sliding, tumbling
from holdfast.errors import UnsupportedError
from holdfast.nexmark.generator import NexmarkConfig
from holdfast.nexmark.source import NexmarkSource, now_us

EVENTS = 8_000


def bids(flow: Dataflow, rate: float | None = None) -> Stream:
    origin = now_us() + 1_500_000 if rate else 0
    config = NexmarkConfig(events_per_second=2_000)
    source = NexmarkSource("bid", EVENTS, config, rate, origin)
    return flow.source_generator(source, name="bids")


def put(log: HeldRows, first: int, stop: int, *, ends: bool = False) -> None:
    """Readings that are a little out of order."""
    ids = np.arange(first, stop)
    early_us = ids * 7_919 % 50 * 1_000
    log.put(ids, ids * ids % 20, ids * 6_007 % 1_000, early_us=early_us, ends=ends)


def deterministic(flow: Dataflow, log: HeldRows) -> None:
    """All deterministic kinds, each with a sink."""
    stream = flow.source_log(log.path, name="readings")
    keyed = stream.key_by("who")
    for name, windows in {
        "tens": counting(10, 4),
        "last": counting(5, 1),
        "ids": counting(100, 50, alignment="stream"),
        "own": sliding("800 milliseconds", "400 milliseconds", alignment="first"),
    }.items():
        counts = keyed.window(windows).aggregate("count(*) AS n", "max(price) AS top", name=name)
        counts.sink(name)
    stream.sort("price", slack=50, name="sorted").sink("sorted")
    every = keyed.resample("price AS p", within="1 second", every="70 milliseconds", name="every")
    every.sink("every")


@pytest.mark.slow
@pytest.mark.parametrize(
    "protection", [UpstreamBackup(), Checkpointed(interval="200 milliseconds")]
)
def test_they_are_precise_when_nodes_are_killed(
    spark: SparkSession, tmp_path: Path, protection: Protection
) -> None:
    flow = Dataflow("deterministic")
    log = HeldRows(tmp_path / "readings", 100_000, who=pa.int64(), price=pa.int64())
    put(log, 0, EVENTS // 2)
    deterministic(flow, log)
    query = flow.start(spark, checkpointLocation=str(tmp_path / "q"), protection=protection)
    wait_for(query, lambda: query.lastProgress["numInputRows"] >= EVENTS // 2)
    killed = ("tens", "sorted", "every")
    for unit in killed:
        kill(query, f"{unit}[0]")
    put(log, EVENTS // 2, EVENTS, ends=True)
    assert query.awaitTermination(240)
    for sink in killed if isinstance(protection, Checkpointed) else flow.sinks:
        verified = query.verify(sink)
        assert verified.is_identical, verified
        assert verified.actual > 100, verified


@pytest.mark.slow
def test_timeouts_the_clock_and_chance_lose_nothing(spark: SparkSession, tmp_path: Path) -> None:
    flow = Dataflow("arbitrary")
    stream = bids(flow, rate=10_000.0)
    keyed = stream.key_by("bidder")
    keyed.window(counting(7, timeout="100 milliseconds")).aggregate(
        "count(*) AS n", name="counted"
    ).sink("counted")
    keyed.window(tumbling("1 day", timeout="100 milliseconds")).aggregate(
        "count(*) AS n", name="timed"
    ).sink("timed")
    stream.window(tumbling("100 milliseconds", time="processing")).aggregate(
        "count(*) AS n", name="clock"
    ).sink("clock")
    stream.sample(0.25).sink("sampled")
    query = flow.start(spark, checkpointLocation=str(tmp_path))
    assert query.awaitTermination(240)

    def rows(sink: str) -> list[Any]:
        reader = spark.read.format("holdfast").option("stream", sink)
        return reader.load(str(tmp_path)).collect()

    for sink in ("counted", "timed", "clock"):
        assert sum(row["n"] for row in rows(sink)) == EVENTS
    lengths = {row["window_end"] - row["window_start"] for row in rows("clock")}
    assert lengths == {timedelta(milliseconds=100)}
    assert any(row["n"] < 7 for row in rows("counted"))
    assert 0.22 < len(rows("sampled")) / EVENTS < 0.28


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("sample", "sample: no batch twin: what a sample keeps is chance"),
        ("timeout", "timed: no batch twin: its windows close by a timeout"),
        ("processing", "clock: no batch twin: its windows are of processing time"),
    ],
)
def test_what_no_batch_query_can_say_is_refused_by_name(
    spark: SparkSession, tmp_path: Path, kind: str, reason: str
) -> None:
    flow = Dataflow(kind)
    stream = bids(flow)
    if kind == "sample":
        stream.sample(0.5).sink("out")
    elif kind == "timeout":
        windows = tumbling("1 second", timeout="1 second")
        stream.window(windows).aggregate("count(*) AS n", name="timed").sink("out")
    else:
        windows = tumbling("1 second", time="processing")
        stream.window(windows).aggregate("count(*) AS n", name="clock").sink("out")
    with pytest.raises(UnsupportedError, match=reason):
        flow.to_dataframe(spark, checkpointLocation=str(tmp_path))


def test_the_order_of_the_input_must_be_known_where_results_depend_on_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    flow = Dataflow("order")
    stream = bids(flow).sort("price", slack=3)
    stream.window(counting(5)).aggregate("sum(price) AS total", name="fives").sink("out")
    with pytest.raises(UnsupportedError, match="fives: its results depend on the order"):
        flow.to_dataframe(spark, checkpointLocation=str(tmp_path))
