"""The protocol on real tasks: spilled replay, paused nodes, several at once, a killed driver."""

import contextlib
import gc
import os
import shutil
import signal
import sys
import time
import zipimport
from collections.abc import Callable
from pathlib import Path

import pytest
from killed_driver import kill_when_journalled
from kills import kill
from pyspark.sql import SparkSession

from holdfast.api.dataflow import Dataflow
from holdfast.api.streams import Stream
from holdfast.api.windows import sliding, tumbling
from holdfast.driver.query import Query
from holdfast.nexmark.generator import NexmarkConfig
from holdfast.nexmark.queries import build
from holdfast.nexmark.source import NexmarkSource, now_us
from holdfast.shell.spark.launch import Cluster
from holdfast_chaos.tap import Tap

pytestmark = pytest.mark.slow

RATE = 10_000.0
EVENTS = 40_000
MOST = 34_000
"""Events that a tap lets through before a test has done what it does to a running query."""
PATIENCE_S = 240


def nexmark(
    query: str, origin_us: int | None = None, emit: str = "final", tap: Tap | None = None
) -> Dataflow:
    """A query over events that arrive for about four seconds, as far as the tap lets them."""
    origin = now_us() + 1_500_000 if origin_us is None else origin_us

    def source(flow: Dataflow, kind: str) -> Stream:
        # Event time runs five times as fast as the clock: a window is open for two seconds.
        config = NexmarkConfig(events_per_second=2_000 if kind == "bid" else 100_000)
        generator = NexmarkSource(kind, EVENTS, config, RATE, origin)
        tapped = generator if tap is None else tap.on(generator)
        return flow.source_generator(tapped, name=f"{kind}s", unit=f"{kind}s")

    return build(query, source, emit=emit)


def wait_for(query: Query, condition: Callable[[], bool], tap: Tap | None = None) -> None:
    """Poll until it holds; the query must not end before. Each time a tap lets some more through:
    state goes on changing, however slow the machine is.
    """
    deadline = time.monotonic() + PATIENCE_S
    while True:
        is_active = query.isActive  # Asked first: the query may end as soon as it holds.
        if condition():
            return
        assert is_active, query.exception()
        if tap is not None:
            tap.trickle(20, MOST)
        assert time.monotonic() < deadline, query.status
        time.sleep(0.005)


def has_put_in(query: Query, tuples: int) -> Callable[[], bool]:
    return lambda: query.lastProgress["numInputRows"] >= tuples


def test_what_a_node_is_forked_with_is_left_out_of_garbage_collections(
    spark: SparkSession,
) -> None:
    frozen = spark.sparkContext.parallelize([0], 1).map(lambda _: gc.get_freeze_count())
    assert frozen.first() > 100_000


def test_what_a_node_is_forked_with_reads_no_archive_again(spark: SparkSession) -> None:
    def compiled_from(_: int) -> str | None:
        return sys.modules["pyspark.worker"].__file__

    def is_kept(_: int) -> bool:
        return hasattr(zipimport.zipimporter.invalidate_caches, "__wrapped__")

    one = spark.sparkContext.parallelize([0], 1)
    assert ".zip" not in str(one.map(compiled_from).first())
    assert one.map(is_kept).first()


def test_a_replay_from_the_spill_log_is_precise(spark: SparkSession, tmp_path: Path) -> None:
    options = {"spark.holdfast.outputQueueBytes": "20000"}
    tap = Tap(tmp_path / "tap", MOST)
    query = nexmark("q8", tap=tap).start(
        spark, checkpointLocation=str(tmp_path / "q"), options=options
    )
    spilled = lambda: sum(n.get("spilled_tuples", 0) for n in query.status["nodes"].values())  # noqa: E731
    wait_for(query, lambda: spilled() > 1_000)
    kill(query, "join[0]")
    tap.open()
    assert query.awaitTermination(240)
    assert query.verify().is_identical
    assert query.recoveries
    retained = [n["retained_bytes"] for n in query.status["nodes"].values()]
    assert max(retained) <= 20_000 * 4, "memory stays near its bound"


def test_a_sink_is_empty_until_its_node_has_come_up(spark: SparkSession, tmp_path: Path) -> None:
    tap = Tap(tmp_path / "tap", 0)
    query = nexmark("q12", tap=tap).start(spark, checkpointLocation=str(tmp_path / "q"))
    shutil.rmtree(tmp_path / "q" / "streams", ignore_errors=True)  # However soon it has come up.
    early = query.to_dataframe()
    assert early.count() == 0
    query.stop()
    again = nexmark("q12", origin_us=0).start(spark, checkpointLocation=str(tmp_path / "again"))
    assert again.awaitTermination(240)
    assert early.schema == again.to_dataframe().schema


def test_all_counts_are_known_when_a_query_has_finished(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_time_is_left(cluster: Cluster) -> None:
        pass

    monkeypatch.setattr(Cluster, "_collect_last_words", no_time_is_left)
    query = nexmark("q12", origin_us=0).start(spark, checkpointLocation=str(tmp_path))
    assert query.awaitTermination(240)
    assert query.lastProgress["numInputRows"] == EVENTS
    assert query.lastProgress["numOutputRows"] == query.to_dataframe().count() > 0


def test_a_paused_node_is_replaced_and_does_no_harm(spark: SparkSession, tmp_path: Path) -> None:
    tap = Tap(tmp_path / "tap", MOST)
    query = nexmark("q12", emit="changes", tap=tap).start(
        spark, checkpointLocation=str(tmp_path / "q")
    )
    wait_for(query, has_put_in(query, 5_000))
    paused = query.pid("counts[0]")
    os.kill(paused, signal.SIGSTOP)
    tap.open()
    wait_for(query, lambda: bool(query.recoveries))
    with contextlib.suppress(ProcessLookupError):  # Gone if it was ended as soon as replaced.
        os.kill(paused, signal.SIGCONT)
    assert query.awaitTermination(240)
    assert query.verify().is_identical


def test_all_nodes_may_fail_at_once(spark: SparkSession, tmp_path: Path) -> None:
    tap = Tap(tmp_path / "tap", MOST)
    query = nexmark("q8", tap=tap).start(
        spark, checkpointLocation=str(tmp_path / "q"), parallelism=2
    )
    wait_for(query, has_put_in(query, 10_000))
    wait_for(query, lambda: None not in query.nodes.values())
    for node in query.nodes:
        query.kill(node)
    tap.open()
    assert query.awaitTermination(240)
    assert query.verify().is_identical
    assert len({r["node"] for r in query.recoveries}) == 4


DRIVER = """
import sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from test_protocol import MOST, nexmark
from holdfast.driver.session import session
from holdfast_chaos.tap import Tap
query = nexmark("q12", {origin}, tap=Tap({tap!r}, MOST)).start(
    session("driver"), checkpointLocation={location!r}
)
print("started", flush=True)
query.awaitTermination()
"""


def test_a_killed_driver_goes_on_where_it_stopped(spark: SparkSession, tmp_path: Path) -> None:
    origin, location, tap = now_us() + 6_000_000, str(tmp_path / "q"), str(tmp_path / "tap")
    script = DRIVER.format(
        tests=str(Path(__file__).parent), origin=origin, location=location, tap=tap
    )
    kill_when_journalled(script, location, "PointNoted")
    everything = Tap(tap, EVENTS)
    query = nexmark("q12", origin, tap=everything).start(spark, checkpointLocation=location)
    assert query.awaitTermination(240)
    assert query.verify().is_identical


@pytest.mark.parametrize("partitions", [1, 2])
def test_running_and_sliding_results_are_those_of_spark_sql(
    spark: SparkSession, tmp_path: Path, partitions: int
) -> None:
    rows = spark.sql(
        "SELECT timestamp_micros(1700000000000000 + (id * 7919 % 60000) * 1000) AS at, "
        "id % 11 AS k, CAST(id % 101 AS DOUBLE) AS v, concat('n', id % 7) AS s FROM range(60000)"
    )
    flow = Dataflow("windows")
    source = flow.source(rows, name="rows", time="at", partitions=partitions)
    keyed = source.key_by("k").window(sliding("10 seconds", "5 seconds"))
    keyed.aggregate("count(*) AS n", "avg(v) AS mean", "max(s) AS last").sink("slides")
    running = source.filter("v > 3").key_by("k", "s").window(tumbling("20 seconds"))
    functions = ["count(*) AS n", "min(v) AS low"] if partitions == 1 else ["count(*) AS n"]
    running.aggregate(*functions, name="running", emit="changes").sink("running")
    query = flow.start(spark, checkpointLocation=str(tmp_path), parallelism=2)
    assert query.awaitTermination(240)
    assert query.verify("slides").is_identical
    assert query.verify("running").is_identical
    assert query.to_dataframe("running").count() > 50_000
