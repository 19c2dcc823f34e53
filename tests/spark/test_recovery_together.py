"""Units that take their input as it comes, on real Spark tasks: killed, and as promised."""

from __future__ import annotations

import os
from dataclasses import replace
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
from holdfast.api.windows import tumbling
from holdfast.core.coordinator.checkpoint_registry import CheckpointRegistry
from holdfast.core.coordinator.journal_entries import PointNoted
from holdfast.core.model.ids import NodeId
from holdfast.core.wire.manifests import manifest_name
from holdfast.driver.query import Query
from holdfast.nexmark.generator import NexmarkConfig
from holdfast.nexmark.source import NexmarkSource, now_us
from holdfast.shell.spark.journal import JOURNAL_FOLDER, read_entries
from holdfast_chaos.tap import Tap

pytestmark = pytest.mark.slow
OFTEN = Uncoordinated(interval="100 milliseconds", jitter="50 milliseconds")
UNITS = ("union", "counts")
"""Of the region."""
SINKS = ("merged", "counted")
FEW = 2_000
"""Events to begin with; more come as a test waits."""


def merged(tap: Tap) -> Dataflow:
    """Bids of two sources as they come, counted by bidder, in a unit of its own."""
    flow, origin = Dataflow("merged"), now_us() + 1_500_000

    def bids(name: str, seed: int):
        config = NexmarkConfig(events_per_second=2_000, seed=seed)
        tapped = tap.on(NexmarkSource("bid", EVENTS, config, RATE, origin))
        return flow.source_generator(tapped, name=name).select("bidder", "price")

    both = bids("one", 1).union(bids("other", 2), order="arrival")
    both.sink("merged")
    counted = both.key_by("bidder").window(tumbling("2 seconds"))
    counted.aggregate("count(*) AS n", "sum(price) AS total", name="counts").sink("counted")
    return flow


def stored(query: Query, node: str) -> int:
    """How many checkpoints of a node have been stored."""
    return sum(c["node"] == node and c["failure"] is None for c in query.checkpoints)


ROUNDS = Coordinated(interval="100 milliseconds")
INDEXED, LAZY = (
    CommunicationInduced(
        interval="100 milliseconds", jitter="50 milliseconds", algorithm=algorithm, scope="all"
    )
    for algorithm in ("bcs", "lazy-fi")
)


@pytest.mark.parametrize(
    ("protection", "killed"),
    [
        (INDEXED, ("union[0]",)),
        (LAZY, ("counts[1]",)),
        (OFTEN, ("union[0]", "counts[0]")),
        (ROUNDS, ("union[0]",)),
    ],
)
def test_killed_members_of_a_region_put_each_result_out_once(
    spark: SparkSession, tmp_path: Path, protection: Protection, killed: tuple[str, ...]
) -> None:
    tap = Tap(tmp_path / "tap", FEW)
    query = merged(tap).start(
        spark, checkpointLocation=str(tmp_path / "q"), protection=protection, parallelism=2
    )
    members = ("union[0]", "counts[0]", "counts[1]")
    wait_for(query, lambda: min(stored(query, node) for node in members) >= 2, tap)
    for node in killed:
        kill(query, node)
    wait_for(query, lambda: {f["node"] for f in query.failures} >= set(killed), tap)
    tap.open()
    assert query.awaitTermination(240)
    assert all(query.verify(sink).is_identical for sink in SINKS)
    assert all(c["prepared_us"] > 0 for c in query.checkpoints if c["failure"] is None)
    for unit in UNITS:
        said = query.lastProgress["units"][unit]
        assert said["line"]["checkpoints"] >= 2
        assert said["line"]["useless"] == 0  # Streams do not go in a circle.
        assert said["line"]["ageMs"] is not None
        assert (said["round"] is not None) is (protection is ROUNDS)


@pytest.mark.parametrize(
    ("protection", "has_line"),
    [
        (Coordinated(interval="1 hour", guarantee="rollback"), False),
        (replace(OFTEN, guarantee="rollback"), True),
    ],
)
def test_at_least_once_results_wait_for_nothing_and_come_again(
    spark: SparkSession, tmp_path: Path, protection: Protection, has_line: bool
) -> None:
    """Those since the line, which is nowhere yet if the first round is an hour away."""
    tap = Tap(tmp_path / "tap", FEW)
    query = merged(tap).start(spark, checkpointLocation=str(tmp_path / "q"), protection=protection)
    least = 2 if has_line else 0
    wait_for(query, lambda: min(stored(query, f"{unit}[0]") for unit in UNITS) >= least, tap)
    wait_for(query, lambda: query.to_dataframe("counted").count() > 0, tap)
    for unit in UNITS:
        kill(query, f"{unit}[0]")
    wait_for(query, lambda: {f["node"] for f in query.failures} >= {"union[0]", "counts[0]"}, tap)
    tap.open()
    assert query.awaitTermination(240)
    for sink in SINKS:
        found = query.verify(sink)
        assert (found.lost, found.gaps) == (0, 0), found
        assert found.doubled == found.actual - found.expected
        assert found.doubled > 0 or has_line, "all that had left came again"
    counted = query.to_dataframe("counted").distinct().count()
    assert counted == query.verify("counted").expected, "no other count than the right one"


def test_all_nodes_may_fail_at_once(spark: SparkSession, tmp_path: Path) -> None:
    tap = Tap(tmp_path / "tap", FEW)
    query = merged(tap).start(spark, checkpointLocation=str(tmp_path / "q"), protection=OFTEN)
    wait_for(query, lambda: min(stored(query, f"{unit}[0]") for unit in UNITS) > 1, tap)
    for node in query.nodes:
        query.kill(node)
    tap.open()
    assert query.awaitTermination(240)
    assert all(query.verify(sink).is_identical for sink in SINKS)
    now = {unit.measured.unit: unit.measured.protection for unit in query.advise().units}
    assert now["union"] == now["counts"] == "Uncoordinated"


def test_a_damaged_checkpoint_is_passed_over_where_two_lines_are_kept(
    spark: SparkSession, tmp_path: Path
) -> None:
    tap, location = Tap(tmp_path / "tap", FEW), str(tmp_path / "q")
    flow, two_lines = merged(tap), replace(ROUNDS, aligned=False, kept=2)

    def points(node: str) -> tuple[PointNoted, ...]:
        """Those that recovery may have it go back to, once the line has left the beginning."""
        entries = read_entries(os.path.join(location, JOURNAL_FOLDER))
        registry = CheckpointRegistry.of(entries)
        found = registry.points(NodeId(node))
        return found if registry.line(NodeId(node)) is not None else ()

    query = flow.start(spark, checkpointLocation=location, protection=two_lines)
    wait_for(query, lambda: min(len(points(f"{unit}[0]")) for unit in UNITS) >= 2, tap)
    query.stop()
    for noted in points("union[0]")[1:]:
        assert noted.point.checkpoint is not None
        named = noted.point.checkpoint.checkpoint
        manifest = Path(location, "checkpoint", manifest_name(NodeId("union[0]"), named))
        rotten = bytearray(manifest.read_bytes())
        rotten[len(rotten) // 2] ^= 1
        manifest.write_bytes(rotten)
    query = flow.start(spark, checkpointLocation=location, protection=two_lines)
    tap.open()
    assert query.awaitTermination(240)
    assert all(query.verify(sink).is_identical for sink in SINKS)
    assert {d["node"] for d in query.damaged_checkpoints} == {"union[0]"}
