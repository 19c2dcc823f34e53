"""Checkpointed units on real Spark tasks: killed, damaged, refused; the output is the same."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from killed_driver import kill_when_journalled
from kills import kill
from pyspark.sql import SparkSession
from test_protocol import EVENTS, has_put_in, nexmark, wait_for

from holdfast.api.embedded_store import EmbeddedStore
from holdfast.api.protections import Checkpointed
from holdfast.core.model.ids import NodeId
from holdfast.driver.inspection import Inspection
from holdfast.driver.query import Query
from holdfast.errors import DataflowChangedError, InspectionError
from holdfast.nexmark.source import now_us
from holdfast_chaos.tap import Tap

pytestmark = pytest.mark.slow
OFTEN = Checkpointed(interval="60 milliseconds")
FEW = 2_000
"""Events to begin with; more come as a test waits."""


def stored(query: Query, node: str) -> int:
    """How many checkpoints of a node have been stored."""
    return sum(c["node"] == node and c["failure"] is None for c in query.checkpoints)


@pytest.mark.parametrize(("name", "killed"), [("q3", "join[0]"), ("q8", "join[1]")])
def test_a_killed_node_loads_its_checkpoint(
    spark: SparkSession, tmp_path: Path, name: str, killed: str
) -> None:
    parallelism = 2 if killed.endswith("[1]") else 1
    tap = Tap(tmp_path / "tap", FEW)
    query = nexmark(name, tap=tap).start(
        spark, checkpointLocation=str(tmp_path / "q"), protection=OFTEN, parallelism=parallelism
    )
    wait_for(query, lambda: stored(query, killed) >= 1, tap)
    kill(query, killed)
    wait_for(query, lambda: bool(query.failures))
    tap.open()
    assert query.awaitTermination(240)
    assert query.verify().is_identical
    assert not query.damaged_checkpoints
    replayed = [r["replayed_tuples"] for r in query.recoveries if r["node"] == killed]
    assert replayed[0] == 0  # Nothing was replayed in silence: the state was loaded.


def test_all_nodes_may_fail_at_once_between_checkpoints(
    spark: SparkSession, tmp_path: Path
) -> None:
    one_by_one = Checkpointed(interval="60 milliseconds", writers=1)
    tap = Tap(tmp_path / "tap", FEW)
    query = nexmark("q8", emit="changes", tap=tap).start(
        spark, checkpointLocation=str(tmp_path / "q"), protection=one_by_one, parallelism=2
    )
    wait_for(query, lambda: min(stored(query, f"join[{i}]") for i in (0, 1)) >= 2, tap)
    for node in query.nodes:
        query.kill(node)
    tap.open()
    assert query.awaitTermination(240)
    assert query.verify().is_identical


DRIVER = """
import sys
sys.path.insert(0, {tests!r})
from test_checkpointed import OFTEN
from test_protocol import MOST, nexmark
from holdfast.driver.session import session
from holdfast_chaos.tap import Tap
query = nexmark("q12", {origin}, tap=Tap({tap!r}, MOST)).start(
    session("driver"), checkpointLocation={location!r}, protection=OFTEN
)
print("started", flush=True)
query.awaitTermination()
"""


def test_a_killed_driver_goes_on_from_the_checkpoints(spark: SparkSession, tmp_path: Path) -> None:
    origin, location, tap = now_us() + 6_000_000, str(tmp_path / "q"), str(tmp_path / "tap")
    script = DRIVER.format(
        tests=str(Path(__file__).parent), origin=origin, location=location, tap=tap
    )
    kill_when_journalled(script, location, "checkpoint")
    flow = nexmark("q12", origin, tap=Tap(tap, EVENTS))
    with pytest.raises(DataflowChangedError, match="protection UpstreamBackup"):
        flow.start(spark, checkpointLocation=location)
    query = flow.start(spark, checkpointLocation=location, protection=OFTEN)
    assert query.awaitTermination(240)
    assert query.verify().is_identical


def stopped_behind_its_newest_checkpoint(query: Query, store: Path) -> tuple[int, Path]:
    """The counting node's process, which stands still, and a manifest.

    What the driver knows is the newest one in the store: what the node told it later would be
    whole, and what it has not been told would not be looked at.
    """
    deadline = time.monotonic() + 240
    while True:
        pid = query.pid("counts[0]")
        os.kill(pid, signal.SIGSTOP)
        time.sleep(0.1)  # So that what was under way may arrive; else it is tried again.
        recorded = query._cluster.registry.newest(NodeId("counts[0]"))
        *_, newest = sorted(store.rglob("counts*/*.manifest"), key=lambda path: path.parent.name)
        assert recorded is not None
        if newest.parent.name.endswith(f"-{recorded.sequence:010d}"):
            return pid, newest
        os.kill(pid, signal.SIGCONT)
        assert time.monotonic() < deadline, (recorded, newest)
        time.sleep(0.2)  # It is told a moment after it was stored.


def test_a_damaged_checkpoint_is_passed_over_and_reported(
    spark: SparkSession, tmp_path: Path
) -> None:
    store = tmp_path / "elsewhere"
    slowly = Checkpointed(interval="700 milliseconds", store=str(store))
    tap = Tap(tmp_path / "tap", FEW)
    flow = nexmark("q12", tap=tap)
    query = flow.start(spark, checkpointLocation=str(tmp_path / "q"), protection=slowly)
    wait_for(query, lambda: stored(query, "counts[0]") >= 2, tap)
    pid, manifest = stopped_behind_its_newest_checkpoint(query, store)
    newest = bytearray(manifest.read_bytes())
    newest[len(newest) // 2] ^= 1
    manifest.write_bytes(newest)
    os.kill(pid, signal.SIGKILL)
    tap.open()
    assert query.awaitTermination(240)
    assert query.verify().is_identical
    assert [d["node"] for d in query.damaged_checkpoints] == ["counts[0]"]


def test_without_a_store_the_job_goes_on_and_says_so(spark: SparkSession, tmp_path: Path) -> None:
    store = tmp_path / "store"
    away = Checkpointed(interval="150 milliseconds", store=str(store))
    tap = Tap(tmp_path / "tap", FEW)
    flow = nexmark("q12", tap=tap)
    query = flow.start(spark, checkpointLocation=str(tmp_path / "q"), protection=away)
    wait_for(query, lambda: stored(query, "counts[0]") >= 1, tap)
    store.rename(tmp_path / "gone")
    store.write_text("a file where the folder was")
    wait_for(query, lambda: any(c["failure"] for c in query.checkpoints), tap)
    store.unlink()
    (tmp_path / "gone").rename(store)
    failed = len(query.checkpoints)
    wait_for(query, lambda: any(c["failure"] is None for c in query.checkpoints[failed:]), tap)
    kill(query, "counts[0]")
    tap.open()
    assert query.awaitTermination(240)
    assert query.verify().is_identical


def test_state_can_be_looked_into_while_it_runs_and_as_a_dataframe(
    spark: SparkSession, tmp_path: Path
) -> None:
    tap, location = Tap(tmp_path / "tap", FEW), str(tmp_path / "q")
    query = nexmark("q12", tap=tap).start(
        spark, checkpointLocation=location, protection=OFTEN, parallelism=2
    )
    wait_for(query, has_put_in(query, 20_000), tap)
    of_both = lambda: min(stored(query, f"counts[{i}]") for i in (0, 1))  # noqa: E731
    wait_for(query, lambda: of_both() >= 3, tap)
    inspection = Inspection(location)
    assert inspection.operators == {"counts": "counts"}

    def newest() -> list[Any]:
        return [c for c in inspection.checkpoints() if c.role == "newest"]

    # While a checkpoint gives way to the next one, there is none to be seen of its node.
    wait_for(query, lambda: [c.node for c in newest()] == ["counts[0]", "counts[1]"], tap)
    query.stop()
    found = newest()
    assert [c.node for c in found] == ["counts[0]", "counts[1]"]
    assert all(0 < c.changed_pages <= c.pages and not c.problem for c in found)
    state = inspection.state("counts").to_pylist()
    frame = spark.read.format("holdfast").option("state", "counts").load(location)
    assert frame.count() == len(state) > 0
    assert {row["_node"] for row in state} == {"counts[0]", "counts[1]"}
    with pytest.raises(InspectionError, match="counts"):
        inspection.state("nothing")
    with pytest.raises(InspectionError, match="no checkpoints"):
        Inspection(str(tmp_path / "q" / "streams"))


def test_the_state_of_a_join_holds_the_columns_that_it_reads(
    spark: SparkSession, tmp_path: Path
) -> None:
    tap, location = Tap(tmp_path / "tap", FEW), str(tmp_path / "q")
    flow = nexmark("q3", tap=tap)
    query = flow.start(spark, checkpointLocation=location, protection=OFTEN)
    wait_for(query, has_put_in(query, 20_000), tap)
    wait_for(query, lambda: stored(query, "join[0]") >= 3, tap)
    query.stop()
    state = spark.read.format("holdfast").option("state", "join").load(location)
    sides = {row["side"]: row["count"] for row in state.groupBy("side").count().collect()}
    assert sides.keys() == {"left", "right"}
    assert min(sides.values()) > 0
    assert {"left_id", "left_seller", "right_name"} < set(state.columns)
    assert "left_expires" not in state.columns


def test_nodes_and_data_nodes_of_the_embedded_store_may_be_killed(
    spark: SparkSession, tmp_path: Path
) -> None:
    embedded = Checkpointed(interval="100 milliseconds", store=EmbeddedStore(chunk_bytes=1 << 20))
    tap = Tap(tmp_path / "tap", FEW)
    query = nexmark("q12", tap=tap).start(
        spark, checkpointLocation=str(tmp_path / "q"), protection=embedded
    )
    wait_for(query, lambda: stored(query, "counts[0]") >= 2, tap)
    data_nodes = query.status["dataNodes"]
    assert sorted(data_nodes) == ["data-0", "data-1", "data-2"]
    os.kill(data_nodes["data-1"], signal.SIGKILL)
    kill(query, "counts[0]")
    tap.open()
    assert query.awaitTermination(240)
    assert query.verify().is_identical
    assert not query.damaged_checkpoints


def test_a_chunk_without_a_live_copy_is_waited_for_and_named(
    spark: SparkSession, tmp_path: Path
) -> None:
    embedded = Checkpointed(interval="100 milliseconds", store=EmbeddedStore(chunk_bytes=1 << 20))
    tap, location = Tap(tmp_path / "tap", FEW), tmp_path / "q"
    flow = nexmark("q12", tap=tap)
    query = flow.start(spark, checkpointLocation=str(location), protection=embedded)
    wait_for(query, lambda: stored(query, "counts[0]") >= 2, tap)
    query.stop()
    for chunk in location.glob("chunks/data-*/*.chunk"):
        chunk.unlink()
    query = flow.start(
        spark,
        checkpointLocation=str(location),
        protection=embedded,
        options={"spark.holdfast.reachTimeoutMs": "15000"},
    )
    notes: list[str] = []

    def is_passed_over() -> bool:
        notes.extend(query.status["notes"])
        return bool(query.damaged_checkpoints)

    wait_for(query, is_passed_over)
    missing = "no data node within reach has chunk"
    assert any("counts[0] is being restored: counts[0]-" in n and missing in n for n in notes)
    assert missing in query.damaged_checkpoints[0]["reason"]
    query.stop()
