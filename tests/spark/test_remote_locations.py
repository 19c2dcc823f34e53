"""Checkpoint locations behind URLs: everything there is parts and objects, nothing is appended to.

`local://` takes fsspec's way to this machine's files; S3 is moto's server.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from kills import kill
from pyspark.sql import SparkSession
from spark_streams import begun
from test_protocol import wait_for

import holdfast as hf
from holdfast.core.coordinator.journal_entries import NewLife, RecoveryDecision
from holdfast.core.model.ids import Incarnation, NodeId
from holdfast.driver.inspection import Inspection
from holdfast.errors import DataflowChangedError
from holdfast.shell.spark.journal import COORDINATOR, Journal

sys.path.insert(0, str(Path(__file__).parent.parent / "shell"))
from s3_server import s3_server

pytestmark = pytest.mark.slow


HALF = 30_000


def put(spark: SparkSession, folder: Path, first: int, stop: int) -> None:
    rows = spark.sql(
        "SELECT timestamp_micros(1700000000000000 + id * 500) AS at, id % 700 AS bidder "
        f"FROM range({first}, {stop})"
    )
    rows.coalesce(1).write.mode("append").parquet(str(folder))


def bids(spark: SparkSession, folder: Path, *, is_last: bool = False) -> hf.Dataflow:
    """Counts what comes into a folder; the last time, what is there."""
    rows = spark.readStream.schema("at TIMESTAMP, bidder BIGINT").parquet(str(folder))
    flow = hf.Dataflow("bids")
    trigger = {"availableNow": True} if is_last else None
    source = flow.source(rows, name="bids", time="at", trigger=trigger)
    counted = source.key_by("bidder").window(hf.tumbling("2 seconds"))
    counted.aggregate("count(*) AS n", name="counts").sink("counts")
    return flow


def test_a_killed_node_costs_nothing_where_files_cannot_be_appended_to(
    spark: SparkSession, tmp_path: Path
) -> None:
    place, folder = f"local://{tmp_path}/q", tmp_path / "in"
    given: dict[str, Any] = {
        "checkpointLocation": place,
        "protection": hf.Checkpointed(interval="300 milliseconds"),
        "options": {"spark.holdfast.outputQueueBytes": "65536"},
    }
    put(spark, folder, 0, HALF)
    query = bids(spark, folder).start(spark, **given)
    wait_for(query, lambda: bool(query.checkpoints))
    kill(query, "counts[0]")
    wait_for(query, lambda: bool(query.failures))
    put(spark, folder, HALF, 2 * HALF)
    query.processAllAvailable()
    query.stop()
    query = bids(spark, folder, is_last=True).start(spark, **given)
    assert query.awaitTermination(240)
    assert query.verify().is_identical
    results = 14 * 700  # The last window is open.
    assert query.to_dataframe().count() == results
    read = spark.readStream.format("holdfast").option("stream", "counts").load(place)
    begun(read.writeStream.format("memory").queryName("counts_read")).stop()
    assert spark.table("counts_read").count() == results
    assert spark.read.format("holdfast").option("stream", "bids").load(place).count() == 2 * HALF
    assert {c.role for c in Inspection(place).checkpoints()} >= {"newest"}
    assert not list(tmp_path.rglob("*.seg"))
    with pytest.raises(DataflowChangedError, match="UpstreamBackup"):
        bids(spark, folder).start(spark, checkpointLocation=place)


def test_a_stopped_query_goes_on_at_its_url(spark: SparkSession, tmp_path: Path) -> None:
    place, folder = f"local://{tmp_path}/q", tmp_path / "in"
    put(spark, folder, 0, HALF)
    query = bids(spark, folder).start(spark, checkpointLocation=place)
    wait_for(query, lambda: query.lastProgress["numOutputRows"] > 0)
    query.stop()
    put(spark, folder, HALF, 2 * HALF)
    again = bids(spark, folder, is_last=True).start(spark, checkpointLocation=place)
    assert again.awaitTermination(240)
    assert again.verify().is_identical
    assert again.to_dataframe().count() == 14 * 700


S3_RUN = """
import json, os, signal, sys, time
sys.path.insert(0, {tests!r})
import fsspec
from test_protocol import MOST, nexmark, wait_for
from holdfast.api.protections import Checkpointed
from holdfast.driver.session import session
from holdfast.nexmark.source import now_us
from holdfast_chaos.tap import Tap

system = fsspec.filesystem("s3")
system.mkdir("bucket")
often = Checkpointed(interval="200 milliseconds")
spark = session("s3")
tap = Tap(sys.argv[1], MOST // 2)
query = nexmark("q12", now_us(), tap=tap).start(
    spark, checkpointLocation="s3://bucket/q", protection=often
)
wait_for(query, lambda: sum(c["failure"] is None for c in query.checkpoints) >= 2, tap)
os.kill(query.pid("counts[0]"), signal.SIGKILL)
wait_for(query, lambda: bool(query.failures))
tap.open()
assert query.awaitTermination(240)
system.invalidate_cache()
print(json.dumps({{
    "identical": query.verify().is_identical,
    "rows": query.to_dataframe().count(),
    "failed": [f["node"] for f in query.failures],
    "objects": system.find("bucket"),
}}))
"""


def test_a_killed_node_costs_nothing_on_s3(tmp_path: Path) -> None:
    pytest.importorskip("moto")
    pytest.importorskip("s3fs")
    script = S3_RUN.format(tests=str(Path(__file__).parent))
    tap, folder = tmp_path / "tap", tmp_path / "empty"
    folder.mkdir()
    with s3_server() as environment:
        run = subprocess.run(
            [sys.executable, "-c", script, str(tap)],
            env={**os.environ, **environment},
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=800,
            check=False,
        )
    assert run.returncode == 0, run.stderr[-4_000:]
    done = json.loads(run.stdout.strip().splitlines()[-1])
    assert done["identical"] is True
    assert done["rows"] > 0
    assert "counts[0]" in done["failed"]
    kinds = ("checkpoint/counts[0]-", "coordinator/0000000001/", "streams/q12/0/writers/")
    for kind in kinds:
        assert any(name.startswith(f"bucket/q/{kind}") for name in done["objects"])
    assert os.listdir(folder) == []


def test_the_journals_objects_stay_few(tmp_path: Path) -> None:
    place = f"local://{tmp_path}/journal"
    journal = Journal(place, COORDINATOR)
    for number in range(1_000):
        journal.write([RecoveryDecision((NewLife(NodeId("a[0]"), Incarnation(number)),))])
    assert len([path for path in tmp_path.rglob("*") if path.is_file()]) < 300
    assert Journal(place, COORDINATOR).entries == (
        RecoveryDecision((NewLife(NodeId("a[0]"), Incarnation(999)),)),
    )
