"""Data nodes of a chunk store that begins again: where they come up, and what is said meanwhile."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from chunk_processes import wait_until
from pyspark import cloudpickle

from holdfast.api.embedded_store import EmbeddedStore
from holdfast.core.chunks.settings import ChunkSettings
from holdfast.core.coordinator.host_choice import Executor
from holdfast.shell.spark.chunk_cluster import ChunkCluster
from holdfast.shell.stores.base import ObjectMissing
from holdfast.shell.transport.addresses import HOST_VARIABLE

_CONTEXT = multiprocessing.get_context("forkserver")
_STORE = EmbeddedStore(copies=2, data_nodes=2, local_directory="$DISK")
_DATA = b"kept" * 1_000


@dataclass
class Task:
    """A Spark task: a process on a machine."""

    machine: str
    folder: Path
    processes: list[Any]

    def mapPartitions(self, body: Callable[[Iterator[int]], Iterator[str]]) -> Task:
        environment = {HOST_VARIABLE: self.machine, "DISK": str(self.folder / self.machine)}
        arguments = (cloudpickle.dumps(body), environment)
        self.processes.append(_CONTEXT.Process(target=_run, args=arguments, daemon=True))
        return self

    def collect(self) -> None:
        process = self.processes[-1]
        process.start()
        process.join()
        if process.exitcode:
            raise RuntimeError("the task failed")


def _run(body: bytes, environment: dict[str, str]) -> None:
    os.environ |= environment
    list(cloudpickle.loads(body)(iter([0])))


class Machines:
    """What a cluster has now, as `Executors` sees it."""

    def __init__(self, folder: Path, *room: str) -> None:
        self.room = room
        self.misplaced: list[str] = []
        self._folder = folder
        self._lock = threading.Lock()

    def choose(self, name: str, *, apart_from: list[str] = (), before: str = "") -> Executor | None:  # type: ignore[assignment]
        del name
        free = [machine for machine in self.room if machine not in apart_from]
        chosen = before if before in free else next(iter(free), None)
        return None if chosen is None else Executor(chosen, chosen, chosen, 1, 0)

    def one_task(self, chosen: Executor) -> Task:
        """Spark follows a wish, but for the machines in `misplaced`, once for each."""
        with self._lock:
            machine = self.misplaced.pop() if self.misplaced else chosen.machine
        return Task(machine, self._folder, [])


def begin(folder: Path, machines: Machines, reach_timeout_ms: int = 60_000) -> ChunkCluster:
    jsc = SimpleNamespace(sc=lambda: SimpleNamespace(isStopped=lambda: False))
    context = SimpleNamespace(
        master="spark://m:1",
        getConf=lambda: {"spark.driver.host": "127.0.0.1"},
        setJobGroup=lambda *_: None,
        cancelJobGroup=lambda *_: None,
        _jsc=jsc,
    )
    settings = ChunkSettings(copies=2, keep_alive_ms=100, reach_timeout_ms=reach_timeout_ms)
    return ChunkCluster(
        SimpleNamespace(sparkContext=context),  # type: ignore[arg-type]
        str(folder / "location"),
        _STORE,
        executors=machines,  # type: ignore[arg-type]
        settings=settings,
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Of a store that has an object in data nodes on m0 and m1, and has ended."""
    cluster = begin(tmp_path, Machines(tmp_path, "m0", "m1"))
    store = cluster.start().open()
    try:
        writer = store.create("n-1/x")
        writer.write(_DATA)
        writer.close()
    finally:
        store.close()
        cluster.stop()
    return tmp_path


def test_data_nodes_wait_for_the_machines_of_their_chunks(folder: Path) -> None:
    machines = Machines(folder, "m2", "m3")
    cluster = begin(folder, machines)
    store = cluster.start().open()
    try:
        wait_until(lambda: len(cluster.waits()) == 2, "both wait")
        assert "data-0 waits for m0, where chunks without a live copy may be" in cluster.waits()
        machines.room = ("m2", "m3", "m0", "m1")
        assert store.read("n-1/x") == _DATA
        wait_until(lambda: cluster.statistics.wanting_chunks == 0, "every chunk has its copies")
        assert not cluster.waits()
        assert not list(folder.glob("m[23]/*/*/*.chunk"))
    finally:
        store.close()
        cluster.stop()


def test_one_that_spark_puts_elsewhere_is_launched_again(folder: Path) -> None:
    machines = Machines(folder, "m0", "m1")
    machines.misplaced = ["m2", "m2"]
    cluster = begin(folder, machines)
    store = cluster.start().open()
    try:
        assert store.read("n-1/x") == _DATA
    finally:
        store.close()
        cluster.stop()


def test_a_machine_that_is_gone_holds_nobody_up_if_there_is_another_copy(folder: Path) -> None:
    cluster = begin(folder, Machines(folder, "m1", "m2"))
    store = cluster.start().open()
    try:
        assert store.read("n-1/x") == _DATA
        wait_until(lambda: cluster.statistics.wanting_chunks == 0, "there is another copy again")
        assert len(list(folder.glob("m2/*/data-0/*.chunk"))) == 1
    finally:
        store.close()
        cluster.stop()


def test_machines_that_stay_away_are_named_and_are_homes_still(folder: Path) -> None:
    cluster = begin(folder, Machines(folder, "m2", "m3"), reach_timeout_ms=2_000)
    store = cluster.start().open()
    try:
        with pytest.raises(ObjectMissing, match="data-0 is not on m0, data-1 is not on m1"):
            store.read("n-1/x")
        assert cluster.wait_until_up(60)
    finally:
        store.close()
        cluster.stop()
    again = begin(folder, Machines(folder, "m2", "m3", "m0", "m1"))
    store = again.start().open()
    try:
        assert store.read("n-1/x") == _DATA
    finally:
        store.close()
        again.stop()
