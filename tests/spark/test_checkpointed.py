"""Checkpointed units on real Spark tasks: killed, damaged, refused; the output is the same."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from killed_driver import kill_when_journalled
from pyspark.sql import SparkSession
from test_protocol import has_put_in, nexmark, wait_for

from holdfast.api.embedded_store import EmbeddedStore
from holdfast.api.errors import DataflowChangedError, InspectionError
from holdfast.api.inspection import Inspection
from holdfast.api.protections import Checkpointed
from holdfast.api.query import Query
from holdfast.nexmark.source import now_us

pytestmark = pytest.mark.slow
OFTEN = Checkpointed(interval="60 milliseconds")


def stored(query: Query, node: str) -> int:
    """How many checkpoints of a node have been stored."""
    return sum(c["node"] == node and c["failure"] is None for c in query.checkpoints)


@pytest.mark.parametrize(("name", "killed"), [("q3", "join[0]"), ("q8", "join[1]")])
def test_a_killed_node_loads_its_checkpoint(
    spark: SparkSession, tmp_path: Path, name: str, killed: str
) -> None:
    parallelism = 2 if killed.endswith("[1]") else 1
    query = nexmark(name, now_us() + 5_000_000).start(
        spark, checkpointLocation=str(tmp_path), protection=OFTEN, parallelism=parallelism
    )
    wait_for(query, lambda: stored(query, killed) >= 1)
    os.kill(query.pid(killed), signal.SIGKILL)
    wait_for(query, lambda: bool(query.failures))
    assert query.awaitTermination(90)
    assert query.verify().is_identical
    assert not query.damaged_checkpoints
    replayed = [r["replayed_tuples"] for r in query.recoveries if r["node"] == killed]
    assert replayed[0] == 0  # Nothing was replayed in silence: the state was loaded.


def test_all_nodes_may_fail_at_once_between_checkpoints(
    spark: SparkSession, tmp_path: Path
) -> None:
    one_by_one = Checkpointed(interval="60 milliseconds", writers=1)
    query = nexmark("q8", now_us() + 5_000_000, "changes").start(
        spark, checkpointLocation=str(tmp_path), protection=one_by_one, parallelism=2
    )
    wait_for(query, lambda: min(stored(query, f"join[{i}]") for i in (0, 1)) >= 2)
    for node in query.nodes:
        query.kill(node)
    assert query.awaitTermination(90)
    assert query.verify().is_identical


DRIVER = """
import sys
sys.path.insert(0, {tests!r})
from test_checkpointed import OFTEN
from test_protocol import nexmark
from holdfast.api.session import session
query = nexmark("q12", {origin}).start(
    session("driver"), checkpointLocation={location!r}, protection=OFTEN
)
print("started", flush=True)
query.awaitTermination()
"""


def test_a_killed_driver_goes_on_from_the_checkpoints(spark: SparkSession, tmp_path: Path) -> None:
    origin = now_us() + 24_000_000
    location = str(tmp_path / "q")
    script = DRIVER.format(tests=str(Path(__file__).parent), origin=origin, location=location)
    kill_when_journalled(script, location, "checkpoint")
    with pytest.raises(DataflowChangedError, match="protection UpstreamBackup"):
        nexmark("q12", origin).start(spark, checkpointLocation=location)
    query = nexmark("q12", origin).start(spark, checkpointLocation=location, protection=OFTEN)
    assert query.awaitTermination(60)
    assert query.verify().is_identical


def test_a_damaged_checkpoint_is_passed_over_and_reported(
    spark: SparkSession, tmp_path: Path
) -> None:
    store = tmp_path / "elsewhere"
    slowly = Checkpointed(interval="700 milliseconds", store=str(store))
    flow = nexmark("q12", now_us() + 6_000_000)  # All nodes are up by then.
    query = flow.start(spark, checkpointLocation=str(tmp_path / "q"), protection=slowly)
    wait_for(query, lambda: stored(query, "counts[0]") >= 2)
    manifests = sorted(store.rglob("counts*/*.manifest"), key=lambda p: p.stat().st_mtime_ns)
    newest = bytearray(manifests[-1].read_bytes())
    newest[len(newest) // 2] ^= 1
    manifests[-1].write_bytes(newest)
    os.kill(query.pid("counts[0]"), signal.SIGKILL)
    assert query.awaitTermination(90)
    assert query.verify().is_identical
    assert [d["node"] for d in query.damaged_checkpoints] == ["counts[0]"]


def test_without_a_store_the_job_goes_on_and_says_so(spark: SparkSession, tmp_path: Path) -> None:
    store = tmp_path / "store"
    away = Checkpointed(interval="150 milliseconds", store=str(store))
    query = nexmark("q12").start(spark, checkpointLocation=str(tmp_path / "q"), protection=away)
    wait_for(query, lambda: stored(query, "counts[0]") >= 1)
    store.rename(tmp_path / "gone")
    store.write_text("a file where the folder was")
    wait_for(query, lambda: any(c["failure"] for c in query.checkpoints))
    store.unlink()
    (tmp_path / "gone").rename(store)
    failed = len(query.checkpoints)
    wait_for(query, lambda: any(c["failure"] is None for c in query.checkpoints[failed:]))
    os.kill(query.pid("counts[0]"), signal.SIGKILL)
    assert query.awaitTermination(90)
    assert query.verify().is_identical


def test_state_can_be_looked_into_while_it_runs_and_as_a_dataframe(
    spark: SparkSession, tmp_path: Path
) -> None:
    query = nexmark("q12").start(
        spark, checkpointLocation=str(tmp_path), protection=OFTEN, parallelism=2
    )
    wait_for(query, has_put_in(query, 20_000))
    wait_for(query, lambda: stored(query, "counts[0]") >= 3 and stored(query, "counts[1]") >= 3)
    inspection = Inspection(str(tmp_path))
    assert inspection.operators == {"counts": "counts"}
    found = [c for c in inspection.checkpoints() if c.role == "newest"]
    assert [c.node for c in found] == ["counts[0]", "counts[1]"]
    assert all(0 < c.changed_pages <= c.pages and not c.problem for c in found)
    query.stop()
    state = inspection.state("counts").to_pylist()
    frame = spark.read.format("holdfast").option("state", "counts").load(str(tmp_path))
    assert frame.count() == len(state) > 0
    assert {row["_node"] for row in state} == {"counts[0]", "counts[1]"}
    with pytest.raises(InspectionError, match="counts"):
        inspection.state("nothing")
    with pytest.raises(InspectionError, match="no checkpoints"):
        Inspection(str(tmp_path / "streams"))


def test_the_state_of_a_join_holds_the_columns_that_it_reads(
    spark: SparkSession, tmp_path: Path
) -> None:
    query = nexmark("q3").start(spark, checkpointLocation=str(tmp_path), protection=OFTEN)
    wait_for(query, has_put_in(query, 20_000))
    wait_for(query, lambda: stored(query, "join[0]") >= 3)
    query.stop()
    state = spark.read.format("holdfast").option("state", "join").load(str(tmp_path))
    sides = {row["side"]: row["count"] for row in state.groupBy("side").count().collect()}
    assert sides.keys() == {"left", "right"}
    assert min(sides.values()) > 0
    assert {"left_id", "left_seller", "right_name"} < set(state.columns)
    assert "left_expires" not in state.columns


def test_nodes_and_data_nodes_of_the_embedded_store_may_be_killed(
    spark: SparkSession, tmp_path: Path
) -> None:
    embedded = Checkpointed(interval="100 milliseconds", store=EmbeddedStore(chunk_bytes=1 << 20))
    query = nexmark("q12", now_us() + 6_000_000).start(
        spark, checkpointLocation=str(tmp_path), protection=embedded
    )
    wait_for(query, lambda: stored(query, "counts[0]") >= 2)
    data_nodes = query.status["dataNodes"]
    assert sorted(data_nodes) == ["data-0", "data-1", "data-2"]
    os.kill(data_nodes["data-1"], signal.SIGKILL)
    os.kill(query.pid("counts[0]"), signal.SIGKILL)
    assert query.awaitTermination(90)
    assert query.verify().is_identical
    assert not query.damaged_checkpoints


def test_a_chunk_without_a_live_copy_is_waited_for_and_named(
    spark: SparkSession, tmp_path: Path
) -> None:
    embedded = Checkpointed(interval="100 milliseconds", store=EmbeddedStore(chunk_bytes=1 << 20))
    flow = nexmark("q12", now_us() + 15_000_000)
    query = flow.start(spark, checkpointLocation=str(tmp_path), protection=embedded)
    wait_for(query, lambda: stored(query, "counts[0]") >= 2)
    query.stop()
    for chunk in tmp_path.glob("chunks/data-*/*.chunk"):
        chunk.unlink()
    query = flow.start(
        spark,
        checkpointLocation=str(tmp_path),
        protection=embedded,
        options={"spark.holdfast.reachTimeoutMs": "4000"},
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
