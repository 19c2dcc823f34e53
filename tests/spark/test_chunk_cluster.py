"""Data nodes as Spark jobs: launched, killed, launched again, and begun again at the same place."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from holdfast.api.embedded_store import EmbeddedStore
from holdfast.errors import OptionError
from holdfast.shell.spark.chunk_cluster import ChunkCluster

pytestmark = pytest.mark.slow
DATA = random.Random(1).randbytes(3 << 20)


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + 240
    while not is_so():
        assert time.monotonic() < deadline_s
        time.sleep(0.02)


def test_objects_survive_a_killed_data_node_and_a_restart(
    spark: SparkSession, tmp_path: Path
) -> None:
    wanted = EmbeddedStore(copies=2, data_nodes=3, chunk_bytes=1 << 20)
    cluster = ChunkCluster(spark, str(tmp_path), wanted)
    store = cluster.start().open()
    try:
        writer = store.create("a-1/x")
        writer.write(DATA)
        writer.close()
        assert cluster.wait_until_up(60)
        before = cluster.processes()
        os.kill(before["data-0"], signal.SIGKILL)
        assert store.read("a-1/x") == DATA
        wait_until(lambda: cluster.processes()["data-0"] != before["data-0"])
        wait_until(lambda: cluster.statistics.data_nodes == 3)
        assert store.read("a-1/x") == DATA
    finally:
        store.close()
        cluster.stop()
    tracker = spark.sparkContext.statusTracker()
    wait_until(lambda: not tracker.getActiveJobsIds())
    again = ChunkCluster(spark, str(tmp_path), wanted)
    store = again.start().open()
    try:
        assert store.names() == ["a-1/x"]
        assert store.read("a-1/x") == DATA
    finally:
        store.close()
        again.stop()


def test_a_data_node_that_cannot_start_is_named_with_its_reason_until_it_can(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "chunks").mkdir()
    (tmp_path / "chunks" / "data-1").write_text("no folder")
    cluster = ChunkCluster(spark, str(tmp_path), EmbeddedStore(copies=2, data_nodes=2))
    cluster.start()
    try:
        wait_until(lambda: bool(cluster.waits()))
        (said,) = cluster.waits()
        assert said.startswith("data-1 does not come up: ")
        assert str(tmp_path / "chunks" / "data-1") in said
        (tmp_path / "chunks" / "data-1").unlink()
        assert cluster.wait_until_up(60)
        assert not cluster.waits()
    finally:
        cluster.stop()


@pytest.mark.parametrize(
    "wrong", [{"copies": 0}, {"copies": 3, "data_nodes": 2}, {"chunk_bytes": 1}, {"copies": True}]
)
def test_what_makes_no_sense_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(OptionError):
        EmbeddedStore(**wrong)  # type: ignore[arg-type]
