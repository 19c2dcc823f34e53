"""Checkpoint locations behind URLs: everything there is parts and objects, nothing is appended to.

`local://` takes fsspec's way to this machine's files; S3 is moto's server.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import holdfast as hf
from holdfast.core.coordinator.journal_entries import NewLife, RecoveryDecision
from holdfast.core.model.ids import Incarnation, NodeId
from holdfast.driver.inspection import Inspection
from holdfast.errors import DataflowChangedError
from holdfast.shell.spark.journal import COORDINATOR, Journal

sys.path.insert(0, str(Path(__file__).parent.parent / "shell"))
from s3_server import s3_server

pytestmark = pytest.mark.slow


def bids(spark: SparkSession, *, speed: float | None = None) -> hf.Dataflow:
    rows = spark.sql(
        "SELECT timestamp_micros(1700000000000000 + id * 100) AS at, id % 700 AS bidder "
        "FROM range(300000)"
    )
    flow = hf.Dataflow("bids")
    source = flow.source(rows, name="bids", time="at", speed=speed)
    counted = source.key_by("bidder").window(hf.tumbling("2 seconds"))
    counted.aggregate("count(*) AS n", name="counts").sink("counts")
    return flow


def test_a_killed_node_costs_nothing_where_files_cannot_be_appended_to(
    spark: SparkSession, tmp_path: Path
) -> None:
    place = f"local://{tmp_path}/q"
    query = bids(spark, speed=5.0).start(
        spark,
        checkpointLocation=place,
        protection=hf.Checkpointed(interval="300 milliseconds"),
        options={"spark.holdfast.outputQueueBytes": "65536"},
    )
    deadline = time.monotonic() + 240
    while not query.checkpoints and time.monotonic() < deadline:
        time.sleep(0.01)
    os.kill(query.pid("counts[0]"), signal.SIGKILL)
    assert query.awaitTermination(240)
    assert query.verify().is_identical
    assert query.failures
    assert query.to_dataframe().count() == 15 * 700
    read = spark.readStream.format("holdfast").option("stream", "counts").load(place)
    stream = read.writeStream.format("memory").queryName("counts_read").start()
    stream.processAllAvailable()
    stream.stop()
    assert spark.table("counts_read").count() == 15 * 700
    assert spark.read.format("holdfast").option("stream", "bids").load(place).count() == 300_000
    assert {c.role for c in Inspection(place).checkpoints()} >= {"newest"}
    assert not list(tmp_path.rglob("*.seg"))
    with pytest.raises(DataflowChangedError, match="UpstreamBackup"):
        bids(spark, speed=5.0).start(spark, checkpointLocation=place)


def test_a_stopped_query_goes_on_at_its_url(spark: SparkSession, tmp_path: Path) -> None:
    place = f"local://{tmp_path}/q"
    query = bids(spark, speed=20.0).start(spark, checkpointLocation=place)
    deadline = time.monotonic() + 240
    while not query.lastProgress["numOutputRows"] and time.monotonic() < deadline:
        time.sleep(0.01)
    query.stop()
    again = bids(spark, speed=20.0).start(spark, checkpointLocation=place)
    assert again.awaitTermination(240)
    assert again.verify().is_identical


S3_RUN = """
import json, os, signal, sys, time
sys.path.insert(0, {tests!r})
import fsspec
from test_protocol import nexmark, wait_for
from holdfast.api.protections import Checkpointed
from holdfast.driver.session import session
from holdfast.nexmark.source import now_us

system = fsspec.filesystem("s3")
system.mkdir("bucket")
often = Checkpointed(interval="200 milliseconds")
spark = session("s3")
query = nexmark("q12", now_us() + 10_000_000).start(
    spark, checkpointLocation="s3://bucket/q", protection=often
)
wait_for(query, lambda: sum(c["failure"] is None for c in query.checkpoints) >= 2)
os.kill(query.pid("counts[0]"), signal.SIGKILL)
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
    with s3_server() as environment:
        run = subprocess.run(
            [sys.executable, "-c", S3_RUN.format(tests=str(Path(__file__).parent))],
            env={**os.environ, **environment},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=250,
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
    assert os.listdir(tmp_path) == []


def test_the_journals_objects_stay_few(tmp_path: Path) -> None:
    place = f"local://{tmp_path}/journal"
    journal = Journal(place, COORDINATOR)
    for number in range(1_000):
        journal.write([RecoveryDecision((NewLife(NodeId("a[0]"), Incarnation(number)),))])
    assert len([path for path in tmp_path.rglob("*") if path.is_file()]) < 300
    assert Journal(place, COORDINATOR).entries == (
        RecoveryDecision((NewLife(NodeId("a[0]"), Incarnation(999)),)),
    )
