"""Loops on real Spark tasks: killed, and each result comes out once."""

from __future__ import annotations

from pathlib import Path

import pytest
from kills import kill
from pyspark.sql import SparkSession
from test_protocol import EVENTS, RATE, wait_for

from holdfast.api.dataflow import Dataflow
from holdfast.api.protections import (
    CommunicationInduced,
    Coordinated,
    Protection,
    Uncoordinated,
)
from holdfast.nexmark.generator import NexmarkConfig
from holdfast.nexmark.source import NexmarkSource, now_us
from holdfast_chaos.runs import in_a_circle
from holdfast_chaos.tap import Tap

pytestmark = pytest.mark.slow
FEW = 2_000


def overbid(tap: Tap) -> Dataflow:
    """What chaos runs, too, over sources that can be held up."""
    flow, origin = Dataflow("overbid"), now_us() + 1_500_000

    def bids(name: str, seed: int):
        config = NexmarkConfig(events_per_second=2_000, seed=seed)
        tapped = tap.on(NexmarkSource("bid", EVENTS, config, RATE, origin))
        return flow.source_generator(tapped, name=name)

    in_a_circle(bids("links", 1), bids("starts", 2), unit="paths").sink("reached")
    return flow


@pytest.mark.parametrize(
    ("protection", "killed"),
    [
        (Uncoordinated(interval="100 milliseconds", jitter="50 milliseconds"), "found[1]"),
        (Coordinated(interval="100 milliseconds"), "paths[0]"),
        (Coordinated(interval="100 milliseconds", aligned=False), "found[0]"),
        (CommunicationInduced(interval="100 milliseconds", jitter="50 milliseconds"), "paths[0]"),
    ],
)
def test_what_goes_round_survives_a_kill_and_comes_out_once(
    spark: SparkSession, tmp_path: Path, protection: Protection, killed: str
) -> None:
    tap = Tap(tmp_path / "tap", FEW)
    query = overbid(tap).start(
        spark, checkpointLocation=str(tmp_path / "q"), protection=protection, parallelism=2
    )
    members = ("found[0]", "found[1]", "paths[0]")

    def stored(node: str) -> int:
        return sum(c["node"] == node and c["failure"] is None for c in query.checkpoints)

    wait_for(query, lambda: min(map(stored, members)) >= 2, tap)
    kill(query, killed)
    wait_for(query, lambda: any(f["node"] == killed for f in query.failures), tap)
    tap.open()
    assert query.awaitTermination(240)
    verified = query.verify("reached")
    assert verified.is_identical, verified
    assert verified.actual
