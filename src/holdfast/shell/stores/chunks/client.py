"""The chunk store as a checkpoint store.

Each write and each read is a machine of core/chunks; this drives it over sockets of its own, which
are lent for as long as it lasts: a ZeroMQ socket is for one thread at a time.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import zmq

from holdfast.core.chunks import effects as e
from holdfast.core.chunks import messages as m
from holdfast.core.chunks.object_reading import (
    Deliver,
    ObjectReading,
    ReadDone,
    ReadMissing,
    ReadOutOfReach,
    ReadWaits,
)
from holdfast.core.chunks.object_writing import (
    ChunkGiven,
    FinishRequested,
    GivenUp,
    ObjectFailed,
    ObjectWriting,
    StepDone,
)
from holdfast.core.chunks.place_asking import PlaceAsking, PlacesAwaited
from holdfast.core.chunks.settings import ChunkSettings
from holdfast.core.machine import Effect, Machine, SetTimer, Stimulus, TimerFired
from holdfast.core.wire import chunk_words as words
from holdfast.core.wire.frames import CorruptFrame
from holdfast.shell.storage.paths import object_parts
from holdfast.shell.stores.base import CheckpointStore, ObjectMissing, StoreUnavailable
from holdfast.shell.stores.chunks.lines import Lines
from holdfast.shell.transport.addresses import machine_of, own_address
from holdfast.shell.transport.channels import Channels, RunKeys

if TYPE_CHECKING:
    from holdfast.core.chunks.messages import ChunkCopies

_FROM_PEERS: Final = (*words.TO_CLIENT, *words.UP_THE_CHAIN, *words.TO_READER)
_ENDS: Final = (StepDone, ObjectFailed, ReadDone, ReadMissing, ReadOutOfReach)
_PLACES_KEPT: Final = 256
_POLL_MS: Final = 100


@dataclass(frozen=True, slots=True)
class ChunkStoreSpec:
    """How to reach a chunk store; travels inside Spark's task closures.

    Attributes:
        master: The master's endpoint.
        keys: The store's CURVE keys.
        settings: The store's.
    """

    master: str
    keys: RunKeys = field(repr=False)
    settings: ChunkSettings

    def open(self) -> ChunkStore:
        """Connect; the first operation finds out whether anybody is there."""
        return ChunkStore(self)


class _Line:
    """One user's sockets; lent to one thread at a time."""

    def __init__(self, channels: Channels, spec: ChunkStoreSpec) -> None:
        self.client = os.urandom(12).hex()
        self.lines = Lines(channels, self.client.encode())
        self.master = self.lines.to(spec.master)
        self.next_request = 1

    def send(self, endpoint: str | None, message: m.Message) -> None:
        """To the master, or to a data node."""
        line = self.master if endpoint is None else self.lines.to(endpoint)
        line.send_multipart(words.encode(message), copy=False)

    def receive(self, timeout_ms: int) -> list[m.Message]:
        """What has come, waiting for some of it at most so long."""
        poller = zmq.Poller()
        for line in self.lines.sockets():
            poller.register(line, zmq.POLLIN)
        messages: list[m.Message] = []
        for line, _ in poller.poll(timeout_ms):
            parts = line.recv_multipart(copy=False)
            message = words.decode([part.buffer for part in parts], _FROM_PEERS)
            if not isinstance(message, CorruptFrame):
                messages.append(message)
        return messages

    def close_idle(self) -> None:
        self.lines.close_idle(keep=self.master)


class _Driver:
    """Drives one machine over a line until it has an answer for its caller."""

    def __init__(
        self, line: _Line, machine: Machine, perform: Callable[[Effect], None] = lambda _: None
    ) -> None:
        """`perform` takes the effects that are its caller's."""
        self._line = line
        self._machine = machine
        self._perform_else = perform
        self._timers: dict[str, int] = {}

    def run(self, stimulus: Stimulus, is_over: Callable[[], bool] = lambda: False) -> Effect:
        """Give it a stimulus, and wait for the end of what that brings, or give up."""
        pending: deque[Stimulus] = deque([stimulus])
        while True:
            if is_over():
                pending = deque([GivenUp()])
            while pending:
                for effect in self._machine.step(pending.popleft(), _now_ms()):
                    if isinstance(effect, _ENDS):
                        return effect
                    self._perform(effect)
            now_ms = _now_ms()
            due_ms = min(self._timers.values(), default=now_ms + _POLL_MS)
            pending += self._line.receive(max(0, min(_POLL_MS, due_ms - now_ms)))
            pending += self._fired()

    def tell(self, stimulus: Stimulus) -> None:
        """Give it a stimulus that nobody waits for."""
        for effect in self._machine.step(stimulus, _now_ms()):
            self._perform(effect)

    def _fired(self) -> list[Stimulus]:
        now_ms = _now_ms()
        names = [name for name, at_ms in self._timers.items() if at_ms <= now_ms]
        for name in names:
            del self._timers[name]
        return [TimerFired(name) for name in names]

    def _perform(self, effect: Effect) -> None:
        match effect:
            case SetTimer():
                self._timers[effect.name] = effect.at_ms
            case e.SendToMaster():
                self._line.send(None, effect.message)
            case e.SendToEndpoint():
                self._line.send(effect.endpoint, effect.message)
            case _:
                self._perform_else(effect)


class ChunkStore(CheckpointStore):
    """A client of the embedded chunk store."""

    def __init__(self, spec: ChunkStoreSpec) -> None:
        """Prepare; nothing is sent yet."""
        self._spec = spec
        self._channels = Channels(spec.keys)
        self._mutex = threading.Lock()
        self._free: list[_Line] = []
        self._places: dict[str, tuple[ChunkCopies, ...]] = {}  # of objects read lately
        self._waits: dict[str, str] = {}  # by client: what a read waits for
        self._reservation = ""  # whose places objects take; one checkpoint is written at a time
        self._is_closed = False

    # -- lines ------------------------------------------------------------------------------

    def _take_line(self) -> _Line:
        with self._mutex:
            if self._is_closed:
                raise StoreUnavailable("the chunk store is closed")
            return self._free.pop() if self._free else _Line(self._channels, self._spec)

    def _give_back(self, line: _Line, *, is_clean: bool) -> None:
        """A line on which something failed may hold unsent pieces: it is closed."""
        with self._mutex:
            if is_clean and not self._is_closed:
                line.close_idle()
                self._free.append(line)
                return
            if not self._is_closed:
                line.lines.close()

    # -- writing ----------------------------------------------------------------------------

    def reserve(
        self, sizes: Sequence[int], is_over: Callable[[], bool], refused: Callable[[], None]
    ) -> None:
        """See the base: Peace grants all of a checkpoint, or refuses it for now."""
        settings = self._spec.settings
        chunks = sum(-(-size // settings.chunk_bytes) for size in sizes)
        if not chunks:
            return
        self._reservation = self._reservation or os.urandom(12).hex()
        line = self._take_line()

        def perform(effect: Effect) -> None:
            if isinstance(effect, PlacesAwaited):
                refused()

        machine = PlaceAsking(
            client=line.client,
            reservation=self._reservation,
            host=machine_of(own_address(self._spec.master)),
            chunks=chunks,
            settings=settings,
        )
        is_clean = False
        try:
            result = _Driver(line, machine, perform).run(e.Started(), is_over)
            is_clean = not isinstance(result, ObjectFailed)
        except zmq.ZMQError as error:
            raise StoreUnavailable(str(error)) from error
        finally:
            self._give_back(line, is_clean=is_clean)
            if not is_clean:
                self._reservation = ""
        if isinstance(result, ObjectFailed):
            raise StoreUnavailable(result.reason)

    def release(self) -> None:
        """See the base."""
        reservation, self._reservation = self._reservation, ""
        if not reservation:
            return
        with contextlib.suppress(zmq.ZMQError, StoreUnavailable):  # Else the master forgets it.
            line = self._take_line()
            line.send(None, m.PlacesReturned(line.client, reservation))
            self._give_back(line, is_clean=True)

    def create(self, name: str) -> _ObjectWriter:
        """See the base."""
        object_parts(name)
        line = self._take_line()
        try:
            return _ObjectWriter(self, line, name)
        except zmq.ZMQError as error:
            self._give_back(line, is_clean=False)
            raise StoreUnavailable(f"{name}: {error}") from error
        except BaseException:
            self._give_back(line, is_clean=False)
            raise

    # -- reading ----------------------------------------------------------------------------

    def read_into(self, name: str, offset: int, buffer: memoryview) -> None:
        """See the base."""
        view = buffer.cast("B")
        if not len(view):
            return
        line = self._take_line()
        is_clean = False
        try:
            with self._mutex:
                places = self._places.get(name)
            machine = ObjectReading(
                client=line.client,
                name=name,
                offset=offset,
                size=len(view),
                first_request=line.next_request,
                settings=self._spec.settings,
                chunks=places,
            )

            def perform(effect: Effect) -> None:
                if isinstance(effect, Deliver):
                    view[effect.offset : effect.offset + len(effect.data)] = effect.data
                elif isinstance(effect, ReadWaits):
                    self._waits[line.client] = effect.reason

            result = _Driver(line, machine, perform).run(e.Started())
            line.next_request = machine.next_request
            is_clean = not isinstance(result, ObjectFailed)
            self._conclude(name, result)
        except zmq.ZMQError as error:
            raise StoreUnavailable(f"{name}: {error}") from error
        finally:
            self._waits.pop(line.client, None)
            self._give_back(line, is_clean=is_clean)

    @property
    def trouble(self) -> str:
        """See the base."""
        return next(filter(None, list(self._waits.values())), "")

    def _conclude(self, name: str, result: Effect) -> None:
        if isinstance(result, ReadDone) and result.is_smooth:
            self._note_places(name, result.chunks)
            return
        with self._mutex:
            self._places.pop(name, None)
        if isinstance(result, ReadMissing | ReadOutOfReach):
            raise ObjectMissing(result.reason)
        if isinstance(result, ObjectFailed):
            raise StoreUnavailable(result.reason)

    def _note_places(self, name: str, places: tuple[ChunkCopies, ...]) -> None:
        """They are a hint: copies that moved are found out when they are asked."""
        with self._mutex:
            self._places.pop(name, None)
            self._places[name] = places
            while len(self._places) > _PLACES_KEPT:
                del self._places[next(iter(self._places))]

    def size(self, name: str) -> int:
        """See the base."""

        def asked(line: _Line, request: int) -> m.Message:
            return m.ObjectLocateRequested(line.client, request, name)

        answer = self._ask(asked)
        if isinstance(answer, m.ObjectLocated):
            self._note_places(name, answer.chunks)
            return sum(copies.chunk.size for copies in answer.chunks)
        raise ObjectMissing(f"{name} is missing")

    def names(self, folder_prefix: str = "") -> list[str]:
        """See the base."""
        answer = self._ask(lambda line, n: m.NamesRequested(line.client, n, folder_prefix))
        return list(answer.names) if isinstance(answer, m.NamesListed) else []

    def delete(self, name: str) -> None:
        """See the base."""
        with self._mutex:
            self._places.pop(name, None)
        self._ask(lambda line, n: m.ObjectDeleteRequested(line.client, n, name))

    def _ask(self, asked: Callable[[_Line, int], m.Message]) -> m.Message:
        """Ask the master until it answers. Raises `StoreUnavailable`."""
        line = self._take_line()
        is_clean = False
        try:
            request, line.next_request = line.next_request, line.next_request + 1
            answer = self._answer_to(line, request, asked(line, request))
            is_clean = True
            return answer
        except zmq.ZMQError as error:
            raise StoreUnavailable(str(error)) from error
        finally:
            self._give_back(line, is_clean=is_clean)

    def _answer_to(self, line: _Line, request: int, message: m.Message) -> m.Message:
        settings = self._spec.settings
        deadline_ms = _now_ms() + settings.operation_timeout_ms
        while _now_ms() < deadline_ms:
            line.send(None, message)
            again_ms = _now_ms() + settings.resend_ms
            while (left_ms := again_ms - _now_ms()) > 0:
                for answer in line.receive(left_ms):
                    if getattr(answer, "request", 0) == request:
                        return answer
        raise StoreUnavailable(
            f"the chunk master at {self._spec.master} does not answer for "
            f"{settings.operation_timeout_ms} ms"
        )

    def close(self) -> None:
        """Close all connections; operations of other threads fail."""
        with self._mutex:
            if self._is_closed:
                return
            self._is_closed = True
            self._free.clear()
        self._channels.close()


class _ObjectWriter:
    """Writes one object, a chunk at a time."""

    def __init__(self, store: ChunkStore, line: _Line, name: str) -> None:
        self._store = store
        self._line: _Line | None = line
        self._chunk_bytes = store._spec.settings.chunk_bytes
        self._buffer = bytearray()
        machine = ObjectWriting(
            client=line.client,
            upload=f"{line.client}-{os.urandom(8).hex()}",
            name=name,
            host=machine_of(own_address(store._spec.master)),
            settings=store._spec.settings,
            reservation=store._reservation,
        )
        self._driver = _Driver(line, machine)
        self._run(e.Started())

    def _run(self, stimulus: Stimulus) -> None:
        try:
            result = self._driver.run(stimulus)
        except zmq.ZMQError as error:
            self._end(is_clean=False)
            raise StoreUnavailable(str(error)) from error
        if isinstance(result, ObjectFailed):
            self._end(is_clean=False)
            raise StoreUnavailable(result.reason)

    def _end(self, *, is_clean: bool) -> None:
        line, self._line = self._line, None
        if line is not None:
            self._store._give_back(line, is_clean=is_clean)

    def write(self, data: bytes | memoryview) -> None:
        self._check_is_open()
        view = memoryview(data).cast("B")
        while len(view):
            room = self._chunk_bytes - len(self._buffer)
            self._buffer += view[:room]
            view = view[room:]
            if len(self._buffer) == self._chunk_bytes:
                self._send()

    def _check_is_open(self) -> None:
        if self._line is None:
            raise StoreUnavailable("the object was closed, given up, or failed before")

    def _send(self) -> None:
        data = bytes(self._buffer)
        self._buffer.clear()
        self._run(ChunkGiven(data))

    def close(self) -> None:
        self._check_is_open()
        if self._buffer:
            self._send()
        self._run(FinishRequested())
        self._end(is_clean=True)

    def abort(self) -> None:
        if self._line is None:
            return
        try:
            self._driver.tell(GivenUp())
        except zmq.ZMQError:
            self._end(is_clean=False)
        else:
            self._end(is_clean=True)


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
