"""A real chunk store for tests: a master in this process, data nodes as processes of their own."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from holdfast.core.chunks.settings import ChunkSettings
from holdfast.core.peace.peace import Peace
from holdfast.shell.stores.chunks.client import ChunkStore
from holdfast.shell.stores.chunks.data_node_task import run_data_node
from holdfast.shell.stores.chunks.master_service import MasterService

QUICK = ChunkSettings(
    copies=2,
    chunk_bytes=256 << 10,
    piece_bytes=32 << 10,
    keep_alive_ms=100,
    misses=8,
    inventory_ms=500,
    recopy_delay_ms=200,
    resend_ms=50,
    chain_timeout_ms=5_000,
    read_timeout_ms=800,
    operation_timeout_ms=240_000,
)
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["holdfast.shell.stores.chunks.data_node_task"])
_WAIT_S = 240.0


def wait_until(is_so: Callable[[], bool], what: str) -> None:
    """Wait for a condition; fail when it does not come true."""
    deadline_s = time.monotonic() + _WAIT_S
    while not is_so():
        assert time.monotonic() < deadline_s, f"waited in vain until {what}"
        time.sleep(0.01)


class ChunkProcesses:
    """A store at a location; may be stopped and begun again there."""

    def __init__(
        self,
        location: Path,
        settings: ChunkSettings = QUICK,
        data_nodes: int = 3,
        placement: Peace | None = None,
    ):
        self.location = location
        self._placement = placement
        self._settings = settings
        self._processes: dict[str, multiprocessing.process.BaseProcess] = {}
        self._stores: list[ChunkStore] = []
        self._launches = 0
        self.nodes = [f"data-{n}" for n in range(data_nodes)]
        self.begin()

    def begin(self) -> None:
        """As a driver does when it starts."""
        self.service = MasterService(str(self.location), self._settings, placement=self._placement)
        self.spec = self.service.start()
        for node in self.nodes:
            self.launch(node)
        self.wait_for(len(self.nodes))

    def launch(self, node: str) -> None:
        self._launches += 1
        spec = self.service.data_node(node, str(self.folder(node)), launch=self._launches)
        process = _CONTEXT.Process(target=run_data_node, args=(spec,), daemon=True)
        process.start()
        self._processes[node] = process

    def wait_for(self, data_nodes: int) -> None:
        wait_until(lambda: self.service.statistics.data_nodes == data_nodes, f"{data_nodes} are up")

    def wait_until_settled(self) -> None:
        def is_settled() -> bool:
            seen = self.service.statistics
            return seen.wanting_chunks == 0 and seen.uploads == 0

        wait_until(is_settled, "all chunks have their copies")

    def folder(self, node: str) -> Path:
        return self.location / "chunks" / node

    def files(self, node: str, pattern: str = "*.chunk") -> list[Path]:
        return sorted(self.folder(node).glob(pattern))

    def store(self) -> ChunkStore:
        store = self.spec.open()
        self._stores.append(store)
        return store

    def signal(self, node: str, number: signal.Signals) -> None:
        process = self._processes[node]
        assert process.pid is not None
        os.kill(process.pid, number)
        if number is signal.SIGKILL:
            process.join(_WAIT_S)

    def end(self) -> None:
        """Stop the master and every process that was started here."""
        for store in self._stores:
            store.close()
        self._stores.clear()
        for process in self._processes.values():
            with contextlib.suppress(ProcessLookupError):
                if process.is_alive() and process.pid is not None:
                    os.kill(process.pid, signal.SIGCONT)
        self.service.stop()
        for process in self._processes.values():
            process.join(5)
            if process.is_alive():
                process.kill()
                process.join()
        self._processes.clear()
