"""Windows with eventual checkpoints on real Spark tasks: killed, and none the worse."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kills import kill
from pyspark.sql import SparkSession
from test_protocol import EVENTS, MOST, RATE, has_put_in, wait_for
from test_replicated import Log
from typer.testing import CliRunner

import holdfast as hf
from holdfast.api.dataflow import Dataflow
from holdfast.api.windows import SessionWindow, Window, counting, sessions, sliding, tumbling
from holdfast.cli.main import app
from holdfast.core.model.ids import NodeId
from holdfast.core.wire import log_records
from holdfast.driver.footprint_inspection import eventual_checkpoints
from holdfast.driver.query import Query
from holdfast.nexmark.generator import NexmarkConfig
from holdfast.nexmark.source import NexmarkSource, now_us
from holdfast_chaos.tap import Tap

pytestmark = pytest.mark.slow
FEW = 2_000
OFTEN = hf.EventualCheckpoints(share=0.2, extent="1 B")
"""Every window is written again as soon as there is time."""


def bids(tap: Tap, windows: Any, *, keys: tuple[str, ...] = ("auction",)) -> Dataflow:
    """Aggregates of each auction's bids, of all functions and with text among the accumulators."""
    config = NexmarkConfig(events_per_second=2_000)
    source = NexmarkSource("bid", EVENTS, config, RATE, now_us() + 1_500_000)
    flow = hf.Dataflow("eventual")
    stream = flow.source_generator(tap.on(source), name="bids", unit="bids")
    stream = stream.select("auction", "bidder", "CAST(price AS STRING) AS text").key_by(*keys)
    made = stream.window(windows).aggregate(
        "count(*) AS n", "sum(bidder) AS total", "max(text) AS text", name="counts"
    )
    made.sink("results")
    return flow


def extent(query: Query) -> dict[str, Any]:
    progress = query.lastProgress
    return (progress["units"]["counts"]["extent"] or {}) if progress else {}


@pytest.mark.parametrize(
    ("windows", "parallelism", "store"),
    [
        (tumbling("10 seconds"), 1, "folder"),
        (sliding("10 seconds", "2 seconds"), 2, "URL"),
        (sessions("1 second"), 2, "folder"),
    ],
)
def test_killed_again_and_again_its_windows_hold_what_they_should(
    spark: SparkSession,
    tmp_path: Path,
    windows: Window | SessionWindow,
    parallelism: int,
    store: str,
) -> None:
    tap = Tap(tmp_path / "tap", FEW)
    folder = tmp_path / "q"
    location = f"local://{folder}" if store == "URL" else str(folder)
    query = bids(tap, windows).start(
        spark,
        checkpointLocation=location,
        protection=OFTEN,
        parallelism=parallelism,
    )
    for kills in range(1, 4):
        put_in = has_put_in(query, 3_000 * kills)
        wait_for(query, lambda put_in=put_in: put_in() and extent(query).get("footprints", 0), tap)
        kill(query, f"counts[{kills % parallelism}]")
        wait_for(query, lambda kills=kills: len(query.failures) >= kills, tap)
    tap.open()
    assert query.awaitTermination(240)
    assert query.verify().is_identical
    assert (folder / "footprints" / "counts[0]").is_dir()


def counted(log: Log) -> Dataflow:
    """Windows by count, of keys that are seen often and seldom."""
    flow = hf.Dataflow("counted")
    rows = flow.source_log(log.path, name="rows").select("n % 13 AS k", "n")
    windows = rows.key_by("k").window(counting(50, 20))
    made = windows.aggregate("count(*) AS many", "sum(n) AS total", name="counts")
    made.sink("results")
    return flow


def test_windows_by_count_go_on_counting_after_all_nodes_and_the_driver_failed(
    spark: SparkSession, tmp_path: Path
) -> None:
    log = Log(tmp_path / "rows")
    log.put(0, 1_000)
    query = counted(log).start(spark, checkpointLocation=str(tmp_path / "q"), protection=OFTEN)
    for kills in range(1, 3):
        put_in = has_put_in(query, 1_000 * kills)
        wait_for(query, lambda put_in=put_in: put_in() and extent(query).get("footprints", 0))
        for node in query.nodes:
            kill(query, node)
        wait_for(query, lambda kills=kills: len(query.failures) >= 2 * kills)
        log.put(1_000 * kills, 1_000 * (kills + 1))
    query.stop()
    log.put(3_000, 3_500, ends=True)
    again = counted(log).start(spark, checkpointLocation=str(tmp_path / "q"), protection=OFTEN)
    assert again.awaitTermination(240)
    assert again.verify().is_identical
    assert again.to_dataframe("results").count() > 100
    shown = json.loads(CliRunner().invoke(app, ["inspect", str(tmp_path / "q"), "--json"]).stdout)
    assert [(c["node"], c["problem"]) for c in shown] == [("counts[0]", "")]
    assert 13 < shown[0]["footprints"] <= 3 * 13, "each key has two or three windows open"
    assert shown[0]["predicted_recovery_ms"] > 1, "a process has to start"
    table = spark.read.format("holdfast").option("footprints", "true").load(str(tmp_path / "q"))
    assert [row.asDict() for row in table.collect()] == shown


def test_progress_says_what_recovery_would_have_to_do(spark: SparkSession, tmp_path: Path) -> None:
    tap = Tap(tmp_path / "tap", FEW)
    never = hf.EventualCheckpoints(share=0.0001, recovery="1 milliseconds")
    query = bids(tap, counting(MOST), keys=("auction",)).start(
        spark, checkpointLocation=str(tmp_path / "q"), protection=never
    )
    wait_for(query, lambda: bool(extent(query).get("shortfall") and extent(query)["tuples"]), tap)
    said = extent(query)
    assert said["predictedRecoveryMs"] > 1
    # Which it is, depends on whether the process has measured by then what it takes to come up.
    assert any(why in said["shortfall"] for why in ("share=", "before anything is read"))
    query.stop()


def flip(segment: Path) -> None:
    """A bit of the first record: others follow, so that it cannot be one that a crash has torn."""
    data = bytearray(segment.read_bytes())
    header = log_records.decode_segment_header(bytes(data))
    assert isinstance(header, log_records.SegmentHeader)
    data[header.size + 200] ^= 4
    segment.write_bytes(data)


def tear(segment: Path) -> None:
    os.truncate(segment, segment.stat().st_size // 2)


@pytest.mark.parametrize(
    ("damage", "error"),
    [
        (flip, "StreamLogCorrupt"),
        (tear, "SinkLacksTuples"),
        (os.unlink, "SinkLacksTuples"),
    ],
)
def test_a_damaged_footprint_log_ends_the_query_by_name(
    spark: SparkSession, tmp_path: Path, damage: Callable[[Path], None], error: str
) -> None:
    tap = Tap(tmp_path / "tap", FEW)
    seldom = hf.EventualCheckpoints(share=0.0001)
    location = tmp_path / "q"
    query = bids(tap, counting(MOST)).start(
        spark, checkpointLocation=str(location), protection=seldom
    )
    wait_for(query, lambda: any(c.footprints > 9 for c in eventual_checkpoints(str(location))), tap)
    newest = query._cluster.registry.newest  # Before there is one, the log is not read.

    def has_records() -> bool:
        """Each point has brought one at least."""
        point = newest(NodeId("counts[0]"))
        return point is not None and point.sequence > 3

    wait_for(query, has_records, tap)
    (segment,) = (location / "footprints" / "counts[0]").glob("*.seg")
    pid = query.pid("counts[0]")
    os.kill(pid, signal.SIGSTOP)  # What it writes behind the damage would make another one of it.
    damage(segment)
    os.kill(pid, signal.SIGKILL)
    tap.open()
    with pytest.raises(hf.QueryFailedError, match=error):
        query.awaitTermination(240)
    (found,) = eventual_checkpoints(str(location))
    assert found.problem
