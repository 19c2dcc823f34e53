"""Runs the chunk master in a thread of the driver: its socket, its journal, its timers."""

from __future__ import annotations

import logging
import os
import queue
import threading
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

import zmq

from holdfast.core.chunks import effects as e
from holdfast.core.chunks import messages as m
from holdfast.core.chunks.chunk_master import ChunkMaster
from holdfast.core.chunks.directory import compacted
from holdfast.core.chunks.settings import ChunkSettings
from holdfast.core.chunks.statistics import ChunkMasterStatistics
from holdfast.core.machine import Effect, Machine, SetTimer, Stimulus, TimerFired
from holdfast.core.wire import chunk_words as words
from holdfast.core.wire.frames import CorruptFrame
from holdfast.core.wire.journal_lines import JsonEntry
from holdfast.core.wire.log_records import CorruptRecord
from holdfast.core.wire.node_words import task_of
from holdfast.shell.spark.journal import GROWN_BYTES_MAX, EntryKind, Journal
from holdfast.shell.stores.chunks.client import ChunkStoreSpec
from holdfast.shell.stores.chunks.data_node_task import DataNodeSpec
from holdfast.shell.transport.addresses import Ports
from holdfast.shell.transport.channels import Channels, RunKeys

if TYPE_CHECKING:
    from collections.abc import Sequence

Entry = dict[str, object]
_LOG = logging.getLogger(__name__)
_POLL_MS: Final = 20
_DRAIN_MESSAGES: Final = 1_024
_FAREWELL_S: Final = 0.5
_FAREWELL_MS: Final = 10


def _objects(lines: Iterable[JsonEntry]) -> list[Entry] | CorruptRecord:
    entries: list[Entry] = []
    for line in lines:
        if not isinstance(line, dict):
            return CorruptRecord("a line is no object")
        entries.append(line)
    return entries


_ENTRIES: Final[EntryKind[Entry]] = EntryKind(lambda e: e, _objects, compacted, lambda _: False)


class MasterService:
    """The shell around one `ChunkMaster`."""

    def __init__(
        self,
        location: str,
        settings: ChunkSettings,
        *,
        addresses: tuple[str, str] = ("127.0.0.1", "127.0.0.1"),
        ports: Ports | None = None,
        placement: Machine | None = None,
        journal_bytes_max: int = GROWN_BYTES_MAX,
    ) -> None:
        """Open the journal and bind the socket; `start` begins to serve.

        Args:
            location: The checkpoint location; the store lies under `chunks/` there.
            settings: The store's.
            addresses: The one to listen at, and the one at which others reach it.
            ports: Where it and data nodes may listen.
            placement: Peace, if it is to place and time the writes.
            journal_bytes_max: The journal is written anew, short, when it has grown by so much.

        Raises:
            JournalCorrupt: The journal is damaged before its end.
        """
        self._settings = settings
        place = os.path.join(location, "chunks", "journal")
        self._journal = Journal(place, _ENTRIES, journal_bytes_max)
        self._machine = ChunkMaster(
            epoch=self._journal.epoch,
            settings=settings,
            placement=placement,
            journal=self._journal.entries,
        )
        self._keys = RunKeys.generate()
        self._channels = Channels(self._keys)
        self._router = self._channels.server(words.WORD_BYTES_MAX)
        self._ports = ports or Ports()
        port = self._ports.bind(self._router, addresses[0])
        self.endpoint = f"tcp://{addresses[1]}:{port}"
        self._timers: dict[str, int] = {}
        self._unwritten: list[e.WriteJournal] = []
        self._asked: queue.SimpleQueue[Callable[[ChunkMaster], None]] = queue.SimpleQueue()
        self._is_stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="chunk-master", daemon=True)
        self._tasks: dict[str, str] = {}  # of each data node, the process that spoke last
        self.statistics: ChunkMasterStatistics = self._machine.statistics()
        self.homes = dict(self._machine.directory.homes)
        """By data node, the machines where its chunks may be; see core's homes.py."""
        self._refused_frames = 0
        self._refused: dict[str, dict[str, int]] = {}  # by a data node's process, as it said last
        self.error: str | None = None

    # -- life -------------------------------------------------------------------------------

    def start(self) -> ChunkStoreSpec:
        """Serve; how clients reach the store."""
        self._step(e.Started())
        self._look()
        self._thread.start()
        return ChunkStoreSpec(self.endpoint, self._keys, self._settings)

    def stop(self) -> None:
        """Dismiss the data nodes and stop; returns when nothing of it runs any more."""
        self._is_stopping.set()
        self._thread.join()

    def data_node(
        self,
        node: str,
        folder: str,
        *,
        launch: int = 1,
        rack: str = "",
        machine: str = "",
        is_local: bool = True,
    ) -> DataNodeSpec:
        """What a process needs to be one of this store's data nodes; see `DataNodeSpec`."""
        return DataNodeSpec(
            node,
            launch,
            folder,
            self.endpoint,
            self._keys,
            self._settings,
            rack,
            machine,
            is_local,
            self._ports,
        )

    def processes(self) -> dict[str, int]:
        """The process id of every data node that has spoken, as of its own host."""
        return {node: int(task.split("|")[2]) for node, task in list(self._tasks.items())}

    def refused(self) -> dict[str, dict[str, int]]:
        """Frames and handshakes refused so far, by the master and by each data node."""
        handshakes = self._channels.refused_handshakes
        found = {"chunk master": {"frames": self._refused_frames, "handshakes": handshakes}}
        for task, counts in list(self._refused.items()):
            of_node = found.setdefault(task.partition("|")[0], {})
            for kind, count in counts.items():
                of_node[kind] = of_node.get(kind, 0) + count
        return found

    def copies_of(self, name: str, timeout_s: float = 5.0) -> list[int]:
        """How many live copies each chunk of an object has; empty: there is no such object."""
        answer: queue.SimpleQueue[list[int]] = queue.SimpleQueue()

        def look(machine: ChunkMaster) -> None:
            try:
                answer.put(machine.directory.copies_of(name))
            except KeyError:
                answer.put([])

        self._asked.put(look)
        return answer.get(timeout=timeout_s)

    # -- the loop ---------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._is_stopping.is_set():
                self._turn()
            self._dismiss_all()
        except Exception as error:  # Fail-stop: clients run into their timeouts.
            self.error = f"{type(error).__name__}: {error}"
            _LOG.exception("the chunk master failed")
        finally:
            self._channels.close()
            self._journal.close()

    def _turn(self) -> None:
        """Take all messages that are there before any timer fires.

        Else a master that was held up, say by a slow disk, would take its data nodes for lost
        while their keep-alives wait in its socket.
        """
        timers_until_ms = _now_ms()
        if self._router.poll(_POLL_MS):
            self._drain()
        while not self._asked.empty():
            self._asked.get()(self._machine)
        for name in [n for n, at_ms in self._timers.items() if at_ms <= timers_until_ms]:
            del self._timers[name]
            self._step(TimerFired(name))
            self._look()
        self._write_journal()

    def _look(self) -> None:
        self.statistics = self._machine.statistics()
        self.homes = dict(self._machine.directory.homes)

    def _drain(self) -> None:
        for _ in range(_DRAIN_MESSAGES):
            try:
                identity, *parts = self._router.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            message = words.decode(parts, words.TO_MASTER)
            if isinstance(message, CorruptFrame) or not self._is_from(message, identity):
                self._refused_frames += 1
                continue
            self._step(message)

    def _is_from(self, message: m.Message, identity: bytes) -> bool:
        """Whether a message names its sender, where the answer goes to that.

        What a data node says must come from the process that last joined, or joins, in its name.
        """
        node = getattr(message, "node", None)
        if node is None:
            return str(getattr(message, "client", "")).encode() == identity
        task = task_of(identity)
        if task is None or task.node != node:
            return False
        if not isinstance(message, m.DataNodeJoined | m.DataNodeAlive):
            return self._tasks.get(node) == task.name
        if message.task != task.name:
            return False
        self._tasks[node] = task.name
        if isinstance(message, m.DataNodeAlive):
            self._refused[task.name] = {
                "frames": message.refused_frames,
                "handshakes": message.refused_handshakes,
            }
        return True

    def _step(self, stimulus: Stimulus) -> None:
        for effect in self._machine.step(stimulus, _now_ms()):
            self._perform(effect)

    def _perform(self, effect: Effect) -> None:
        match effect:
            case SetTimer():
                self._timers[effect.name] = effect.at_ms
            case e.WriteJournal():
                self._unwritten.append(effect)
            case e.SendToDataNode():
                self._send(effect.task, effect.message)
            case e.SendToClient():
                self._send(effect.client, effect.message)

    def _send(self, identity: str, message: m.Message) -> None:
        self._router.send_multipart([identity.encode(), *words.encode(message)])

    def _write_journal(self) -> None:
        """All entries of this turn with one sync; their completions may bring more."""
        while self._unwritten:
            requests, self._unwritten = self._unwritten, []
            self._journal.write([entry for request in requests for entry in request.entries])
            for request in requests:
                self._step(e.JournalWritten(request.request_id))

    def _dismiss_all(self) -> None:
        """Tell all data nodes to end, and give the words time to go out."""
        for task in self._tasks.values():
            self._send(task, m.Dismissed("the store is stopped"))
        deadline_s = time.monotonic() + _FAREWELL_S
        while self._tasks and time.monotonic() < deadline_s:
            if self._router.poll(_FAREWELL_MS):
                self._dismiss_again(self._router.recv_multipart())

    def _dismiss_again(self, parts: Sequence[bytes]) -> None:
        """Whoever still speaks has not heard."""
        word = m.Dismissed("the store is stopped")
        self._router.send_multipart([parts[0], *words.encode(word)])


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
