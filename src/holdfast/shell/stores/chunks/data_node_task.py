"""Runs one data node, inside a Spark task or as a process of its own.

One thread turns the loop: it takes messages, steps the machine, and sends; a few others work on the
files. It ends when the master says so, when it has heard nothing for the lease, or when its parent
dies; a killed process leaves its folder to its replacement.
"""

from __future__ import annotations

import os
import time
from collections import deque
from dataclasses import dataclass, field, replace
from typing import Any, Final

import zmq

from holdfast.core.chunks import effects as e
from holdfast.core.chunks.data_node import DataNode, DataNodeIdentity
from holdfast.core.chunks.messages import DataNodeAlive, Message
from holdfast.core.chunks.settings import ChunkSettings
from holdfast.core.machine import Effect, SetTimer, Stimulus, TimerFired
from holdfast.core.wire import chunk_words as words
from holdfast.core.wire.frames import CorruptFrame
from holdfast.shell.processes import die_with_parent
from holdfast.shell.stores.base import StoreUnavailable
from holdfast.shell.stores.chunks.chunk_folder import ChunkFolder, DiskThreads
from holdfast.shell.stores.chunks.lines import Lines
from holdfast.shell.transport.addresses import Ports, machine_of, own_address
from holdfast.shell.transport.channels import Channels, RunKeys
from holdfast.shell.transport.socket_folder import SocketFolder
from holdfast.shell.transport.waker import Waker

_DISK_THREADS: Final = 4
_DRAIN_MESSAGES: Final = 256
_LOCK_WAIT_S: Final = 20.0


@dataclass(frozen=True, slots=True)
class DataNodeSpec:
    """All that a process needs to be a data node.

    Attributes:
        node: Its name, the same over all its lives.
        launch: Number of the launch; the newest one counts.
        folder: Where its chunks are; on the local disk of whatever host it runs on. Variables of
            the executor's environment are replaced.
        master: The master's endpoint.
        keys: The store's CURVE keys.
        settings: The store's.
        rack: For Peace; empty: the host's name.
        machine: The only one where it may come up: its chunks are there; empty: any.
        is_local: All of the store is on one host, so that channels can be `ipc`.
        ports: Where it may listen otherwise.
    """

    node: str
    launch: int
    folder: str
    master: str
    keys: RunKeys = field(repr=False)
    settings: ChunkSettings
    rack: str = ""
    machine: str = ""
    is_local: bool = True
    ports: Ports = field(default_factory=Ports)


def run_data_node(spec: DataNodeSpec) -> None:
    """Be a data node until told to stop. Raises what makes it impossible."""
    die_with_parent()
    task = DataNodeTask(spec)
    try:
        task.run()
    finally:
        task.close()


class DataNodeTask:
    """The shell around one `DataNode`."""

    def __init__(self, spec: DataNodeSpec) -> None:
        """Take the folder, open the sockets. Raises `StoreUnavailable`."""
        self._spec = spec
        address = own_address(spec.master)
        host = machine_of(address)
        if spec.machine not in ("", host):
            raise StoreUnavailable(f"{spec.node} came up on {host} and not on {spec.machine}")
        wait_s = _LOCK_WAIT_S
        self._folder = ChunkFolder(
            os.path.expandvars(spec.folder), piece_bytes=spec.settings.piece_bytes, wait_s=wait_s
        )
        self._sockets = SocketFolder() if spec.is_local else None
        self._channels = Channels(spec.keys)
        self._server = self._channels.server(words.PIECE_FRAME_BYTES_MAX)
        task = f"{spec.node}|{spec.launch}|{os.getpid()}|{time.time_ns()}"
        identity = DataNodeIdentity(
            spec.node, task, spec.launch, host, spec.rack or host, self._bind(address)
        )
        self._lines = Lines(self._channels, task.encode())
        self._master = self._lines.to(spec.master)
        self._machine = DataNode(identity, spec.settings, *self._folder.found())
        self._answers: deque[Stimulus] = deque()  # from the disk's threads
        self._waker = Waker()
        self._disk = DiskThreads(self._folder, _DISK_THREADS, self._tell)
        self._timers: dict[str, int] = {}
        self._parent = os.getppid()
        self._is_over = False
        self._refused_frames = 0

    def _bind(self, address: str) -> str:
        if self._sockets is not None:
            endpoint = f"ipc://{self._sockets.path}/data-node"
            self._server.bind(endpoint)
            return endpoint
        return f"tcp://{address}:{self._spec.ports.bind(self._server, address)}"

    def _tell(self, answer: Stimulus) -> None:
        self._answers.append(answer)
        self._waker.wake()

    # -- the loop ---------------------------------------------------------------------------

    def run(self) -> None:
        """Serve until told to stop."""
        self._step(e.Started())
        while not self._is_over and os.getppid() == self._parent:
            self._turn()

    def _turn(self) -> None:
        now_ms = _now_ms()
        due_ms = min(self._timers.values(), default=now_ms + 100)
        sources: list[Any] = [self._server, *self._lines.sockets(), self._waker]
        poller = zmq.Poller()
        for source in sources:
            poller.register(source, zmq.POLLIN)
        for source, _ in poller.poll(max(0, min(100, due_ms - now_ms))):
            if source == self._waker.fileno():
                self._waker.clear()
            elif source is self._server:
                self._drain_server()
            else:
                self._drain(source)
        self._disk.require_all()
        while self._answers:
            self._step(self._answers.popleft())
        now_ms = _now_ms()
        for name in [name for name, at_ms in self._timers.items() if at_ms <= now_ms]:
            del self._timers[name]
            self._step(TimerFired(name))
        self._lines.close_idle(keep=self._master)

    def _drain_server(self) -> None:
        for _ in range(_DRAIN_MESSAGES):
            try:
                sender, *parts = self._server.recv_multipart(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                return
            message = self._decoded(parts, words.DOWN_THE_CHAIN)
            if message is not None:
                self._step(e.Received(sender.bytes, message))

    def _drain(self, line: zmq.Socket[bytes]) -> None:
        kinds = words.TO_DATA_NODE if line is self._master else words.UP_THE_CHAIN
        for _ in range(_DRAIN_MESSAGES):
            try:
                parts = line.recv_multipart(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                return
            message = self._decoded(parts, kinds)
            if message is not None:
                self._step(message)

    def _decoded(self, parts: list[zmq.Frame], kinds: tuple[type[Message], ...]) -> Message | None:
        message = words.decode([part.buffer for part in parts], kinds)
        if isinstance(message, CorruptFrame):
            self._refused_frames += 1
            return None
        return message

    def _step(self, stimulus: Stimulus) -> None:
        for effect in self._machine.step(stimulus, _now_ms()):
            self._perform(effect)

    def _perform(self, effect: Effect) -> None:
        match effect:
            case SetTimer():
                self._timers[effect.name] = effect.at_ms
            case e.SendToMaster():
                self._master.send_multipart(words.encode(self._counted(effect.message)))
            case e.SendToEndpoint():
                line = self._lines.to(effect.endpoint)
                line.send_multipart(words.encode(effect.message), copy=False)
            case e.Reply():
                parts = [effect.sender, *words.encode(effect.message)]
                self._server.send_multipart(parts, copy=False)
            case e.WritePiece() | e.DropWrite():
                self._disk.submit(effect, effect.chunk)
            case e.SealChunk() | e.EraseChunk() | e.MarkDamaged() | e.LoadPiece():
                self._disk.submit(effect, effect.stored.chunk)
            case e.EndProcess():
                self._is_over = True

    def _counted(self, message: Message) -> Message:
        """A keep-alive with what only the shell counts."""
        if not isinstance(message, DataNodeAlive):
            return message
        handshakes = self._channels.refused_handshakes
        return replace(message, refused_frames=self._refused_frames, refused_handshakes=handshakes)

    def close(self) -> None:
        """Release everything; the process may serve another task afterwards."""
        self._disk.close()
        self._folder.close()
        self._channels.close()
        self._waker.close()
        if self._sockets is not None:
            self._sockets.close()


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
