"""Runs the embedded chunk store: the master in the driver, each data node as a Spark job."""

from __future__ import annotations

import logging
import os
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import xxhash

from holdfast.core.chunks.homes import destination
from holdfast.errors import OptionError
from holdfast.shell.spark.executors import Executors
from holdfast.shell.spark.reasons import reason_of
from holdfast.shell.stores.chunks.data_node_task import DataNodeSpec, run_data_node
from holdfast.shell.stores.chunks.master_service import MasterService
from holdfast.shell.stores.embedded_place import SCHEME
from holdfast.shell.transport.addresses import driver_addresses

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from holdfast.api.embedded_store import EmbeddedStore
    from holdfast.core.chunks.settings import ChunkSettings
    from holdfast.core.chunks.statistics import ChunkMasterStatistics
    from holdfast.core.coordinator.host_choice import Executor
    from holdfast.core.machine import Machine
    from holdfast.shell.stores.chunks.client import ChunkStoreSpec
    from holdfast.shell.transport.addresses import Ports

_LOG = logging.getLogger(__name__)
_STOP_TIMEOUT_S: Final = 5.0
_RELAUNCH_S: Final = 0.1
_RELAUNCH_MAX_S: Final = 5.0
_POLL_S: Final = 0.02
_HOME_POLL_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a data node comes up.

    Attributes:
        executor: Where Spark is asked to run it; None: wherever it likes.
        machine: The only one where it may; empty: any.
    """

    executor: Executor | None
    machine: str = ""


class ChunkCluster:
    """The data nodes of one checkpoint location, launched again whenever they end."""

    def __init__(
        self,
        spark: SparkSession,
        location: str,
        store: EmbeddedStore,
        *,
        name: str = "chunks",
        executors: Executors | None = None,
        settings: ChunkSettings | None = None,
        placement: Machine | None = None,
        ports: Ports | None = None,
    ) -> None:
        """Open the store's journal at a checkpoint location; `start` launches the data nodes.

        Args:
            spark: Where they run.
            location: The checkpoint location; `chunks/` there belongs to the store.
            store: What the user wants.
            name: The query's name, for job groups.
            executors: Where data nodes may run; None: this looks for itself.
            settings: If other than `store.settings()`.
            placement: Peace, if it is to place and time the writes.
            ports: Where sockets may listen.

        Raises:
            OptionError: On a cluster, without a local directory.
            JournalCorrupt: The store's journal is damaged.
        """
        self._sc = spark.sparkContext
        self._is_local = self._sc.master.startswith("local")
        if not (self._is_local or store.local_directory):
            raise OptionError(
                "EmbeddedStore() on a cluster needs local_directory, a folder on every host"
            )
        self._store = store
        self._name = name
        self._groups = f"holdfast/{name}/{uuid.uuid4()}"  # of this query alone in its session
        self._location, self._folder = location, _folder(location, store)
        settings = settings or store.settings()
        self._reach_timeout_s = settings.reach_timeout_ms / 1e3
        self._service = MasterService(
            location,
            settings,
            addresses=self._addresses(),
            ports=ports,
            placement=placement,
        )
        self._executors = executors or Executors(self._sc, name)
        self._machines: dict[str, str] = {}  # where each data node was sent last
        self._choosing = threading.Lock()
        self._waiting: dict[str, str] = {}  # by data node: the machine that it waits for
        self._down: dict[str, tuple[int | None, str]] = {}  # who ended at once: its process, why
        self._is_stopping = threading.Event()
        self._launches: dict[str, int] = {}
        self._threads: dict[str, threading.Thread] = {}
        self.ends: list[str] = []
        """Why data nodes ended, for people."""
        self.spec: ChunkStoreSpec | None = None
        """How to reach the store, once it has been started."""

    def _addresses(self) -> tuple[str, str]:
        if self._is_local:
            return "127.0.0.1", "127.0.0.1"
        return driver_addresses(self._sc.getConf())

    def located(self, reason: str) -> str:
        """What went wrong; where it names a place in this store, with the folders of the store."""
        if SCHEME not in reason:
            return reason
        folders = dict.fromkeys((os.path.join(self._location, "chunks"), self._folder))
        return f"{reason} ({SCHEME} is the query's EmbeddedStore, in {' and '.join(folders)})"

    @property
    def statistics(self) -> ChunkMasterStatistics:
        """What the store is like."""
        return self._service.statistics

    def processes(self) -> dict[str, int]:
        """The process id of every data node that has come up, as of its own host."""
        return self._service.processes()

    def refused(self) -> dict[str, dict[str, int]]:
        """Frames and handshakes refused so far, by the master and by each data node."""
        return self._service.refused()

    def waits(self) -> list[str]:
        """What data nodes wait for, for people."""
        homes = [
            f"{node} waits for {machine}, where chunks without a live copy may be"
            for node, machine in list(self._waiting.items())
        ]
        spoken = self.processes()
        return homes + [
            f"{node} does not come up: {why}"
            for node, (process, why) in list(self._down.items())
            if spoken.get(node) == process  # No later one has spoken.
        ]

    # -- life -------------------------------------------------------------------------------

    def start(self) -> ChunkStoreSpec:
        """Launch all data nodes; returns at once. What is asked before they are up, waits."""
        spec = self.spec = self._service.start()
        for number in range(self._store.data_nodes):
            node = f"data-{number}"
            thread = threading.Thread(
                target=self._keep_running, args=(node,), name=f"chunks/{node}", daemon=True
            )
            self._threads[node] = thread
            thread.start()
        return spec

    def wait_until_up(self, timeout_s: float) -> bool:
        """Wait for all data nodes; whether they came up in time."""
        deadline_s = time.monotonic() + timeout_s
        while self.statistics.data_nodes < self._store.data_nodes:
            if time.monotonic() >= deadline_s or self._is_stopping.is_set():
                return False
            self._is_stopping.wait(_POLL_S)
        return True

    def stop(self) -> None:
        """End all data nodes; returns when their slots are free again."""
        self._is_stopping.set()
        self._service.stop()
        deadline_s = time.monotonic() + _STOP_TIMEOUT_S
        for thread in self._threads.values():
            thread.join(max(0.0, deadline_s - time.monotonic()))
        for node, thread in self._threads.items():
            if thread.is_alive() and not self._is_spark_stopped():
                self._sc.cancelJobGroup(self._group(node))
                thread.join(_STOP_TIMEOUT_S)

    def _is_spark_stopped(self) -> bool:
        jsc: Any = self._sc._jsc
        return jsc is None or bool(jsc.sc().isStopped())

    # -- Spark jobs -------------------------------------------------------------------------

    def _group(self, node: str) -> str:
        return f"{self._groups}/{node}#{self._launches[node]}"

    def _keep_running(self, node: str) -> None:
        """Launch a data node again and again; one that ends at once, after a growing while."""
        wait_s, since_s = _RELAUNCH_S, time.monotonic()
        while (place := self._place(node, since_s)) is not None:
            began_s = time.monotonic()
            reason = self._run_job(node, place)
            if self._is_stopping.is_set():
                return
            self.ends.append(f"{node}: {reason}")
            _LOG.warning("data node %s ended: %s", node, reason)
            if time.monotonic() - began_s > _RELAUNCH_MAX_S:
                wait_s, since_s = _RELAUNCH_S, time.monotonic()
                self._down.pop(node, None)
            else:
                self._down[node] = self.processes().get(node), reason
                wait_s = min(2 * wait_s, _RELAUNCH_MAX_S)
            self._is_stopping.wait(wait_s)

    def _place(self, node: str, since_s: float) -> _Place | None:
        """Where a data node comes up that has been down since then; None: nowhere any more."""
        place: _Place | None = None
        while place is None and not (self._is_stopping.is_set() or self._is_spark_stopped()):
            is_too_long = time.monotonic() - since_s > self._reach_timeout_s
            with self._choosing:
                place = self._choose(node, is_too_long=is_too_long)
            if place is None:
                self._waiting[node] = self._service.homes[node][0]
                self._is_stopping.wait(_HOME_POLL_S)
        self._waiting.pop(node, None)
        return place

    def _choose(self, node: str, *, is_too_long: bool) -> _Place | None:
        """Where its chunks are, else where no other data node is, else anywhere; None: later."""
        if self._is_local:
            return _Place(None)
        must_find_home = self.statistics.out_of_reach > 0 and not is_too_long
        homes = self._service.homes.get(node, ())
        goal = destination(homes, self._executors.room, must_find_home=must_find_home)
        if goal is None:
            return None
        task = f"{self._name}/{node}"
        others = [machine for other, machine in self._machines.items() if other != node]
        chosen = self._executors.choose(
            task, apart_from=[m for m in others if m != goal.machine], before=goal.machine
        ) or self._executors.choose(task, before=goal.machine)
        if chosen is not None:
            self._machines[node] = chosen.machine
        return _Place(chosen, goal.machine if goal.is_binding else "")

    def _run_job(self, node: str, place: _Place) -> str:
        """Submit a data node's job and wait for its end; why it ended."""
        launch = self._launches[node] = self._launches.get(node, 0) + 1
        spec = self._service.data_node(
            node,
            os.path.join(self._folder, node),
            launch=launch,
            machine=place.machine,
            is_local=self._is_local,
        )
        try:
            self._sc.setJobGroup(self._group(node), f"Holdfast {self._name}: data node {node}")
            self._executors.one_task(place.executor).mapPartitions(lambda _: _serve(spec)).collect()
        except Exception as error:  # Whatever Spark says ended the task is the reason to report.
            return reason_of(error)
        return "its task ended"


def _folder(location: str, store: EmbeddedStore) -> str:
    """Where data nodes keep chunks; on every host the same."""
    if not store.local_directory:
        return os.path.join(location, "chunks")
    place = xxhash.xxh3_64_hexdigest(os.path.abspath(location).encode())
    return os.path.join(store.local_directory, f"holdfast-chunks-{place}")


def _serve(spec: DataNodeSpec) -> Iterator[str]:
    """The body of a data node's Spark task."""
    run_data_node(spec)
    yield spec.node
