"""Clients of the simulated chunk store: they write, read and delete objects, and die at it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from holdfast.core.chunks import effects as e
from holdfast.core.chunks import messages as m
from holdfast.core.chunks.object_reading import (
    Deliver,
    ObjectReading,
    ReadDone,
    ReadMissing,
    ReadOutOfReach,
)
from holdfast.core.chunks.object_writing import (
    ChunkGiven,
    FinishRequested,
    GivenUp,
    ObjectFailed,
    ObjectWriting,
    StepDone,
    WritingState,
)
from holdfast.core.chunks.place_asking import PlaceAsking, PlacesAwaited
from holdfast.core.machine import Effect, Machine, Stimulus
from holdfast.sim.chunk_checks import Violated, check_acknowledged

if TYPE_CHECKING:
    from holdfast.core.chunks.messages import ChunkCopies
    from holdfast.sim.chunks import ChunkWorld


@dataclass(slots=True)
class Process:
    """A machine that runs; messages reach it by its name while it lives."""

    name: str
    machine: Machine
    perform: Callable[[Effect], None]
    is_alive: bool = True
    paused_until_us: int = 0
    timers: dict[str, int] = field(default_factory=dict)


class Client:
    """Writes, reads and deletes, one thing at a time."""

    def __init__(self, world: ChunkWorld, number: int) -> None:
        """Idle."""
        self._world = world
        self._number = number
        self._life = 0
        self._writes = 0
        self._requests = 1
        self._mine: list[str] = []
        self._places: dict[str, tuple[ChunkCopies, ...]] = {}
        self._process: Process | None = None
        self._delete: tuple[int, str] | None = None
        self.is_ending = False
        self.is_busy = False
        self._may_fail = True

    @property
    def name(self) -> str:
        """Where answers go."""
        return f"client-{self._number}#{self._life}"

    def start(self) -> None:
        """Begin a life."""
        self._life += 1
        self._places.clear()
        self._next()

    def write_at_last(self) -> None:
        """Faults have ended, and the store has settled: it takes this. C-LIVE"""
        self._may_fail = False
        self.is_busy = True
        self._write()

    def die(self) -> None:
        """Be killed, and start again later."""
        if self._process is not None:
            self._process.is_alive = False
        self._process = None
        self._delete = None
        self.is_busy = False
        self._life += 1
        delay_us = self._world.scheduler.uniform("restart", 10_000, 500_000)
        life = self._life
        self._world.scheduler.after(delay_us, lambda: self.start() if life == self._life else None)

    def _next(self) -> None:
        self.is_busy = False
        life = self._life
        delay_us = self._world.scheduler.uniform(f"client/{self._number}", 1_000, 200_000)

        def act() -> None:
            if life == self._life and not self.is_ending:
                self._act()

        self._world.scheduler.after(delay_us, act)

    def _act(self) -> None:
        draw = self._world.scheduler.uniform(f"client/{self._number}", 0, 99)
        self.is_busy = True
        known = list(self._world.expected)
        if draw < 40 or not known:
            self._write()
        elif draw < 85:
            self._read(known[self._world.scheduler.uniform("reads", 0, len(known) - 1)])
        elif self._mine:
            self._begin_delete(self._mine.pop(0))
        else:
            self._next()

    def _run(self, machine: Machine, perform: Callable[[Effect], None]) -> Process:
        world = self._world
        process = Process(self.name, machine, lambda _: None)

        def performing(effect: Effect) -> None:
            match effect:
                case e.SendToMaster():
                    world.send(process, "master", effect.message, None)
                case e.SendToEndpoint():
                    world.send(process, effect.endpoint, effect.message, process.name)
                case _:
                    perform(effect)

        process.perform = performing
        self._process = world.processes[self.name] = process
        return process

    # -- writing ----------------------------------------------------------------------------

    def _ask_for_places(self, reservation: str, chunks: int) -> None:
        """Of a checkpoint; one that is refused is as large as the state is when its turn comes."""
        world = self._world
        was_refused = False

        def perform(effect: Effect) -> None:
            nonlocal was_refused
            if isinstance(effect, PlacesAwaited):
                was_refused = True
                world.scheduler.note(f"refused: {reservation}")
                world.refusals += 1
            elif isinstance(effect, ObjectFailed):
                if not self._may_fail:
                    raise Violated("C-LIVE", f"no places: {effect.reason}")
                self._next()
            elif isinstance(effect, StepDone) and was_refused:
                size = world.scheduler.uniform("checkpoints", 1, 4)
                self._ask_for_places(reservation, size)
            elif isinstance(effect, StepDone):
                self._write(reservation)

        machine = PlaceAsking(
            client=self.name,
            reservation=reservation,
            host="",
            chunks=chunks,
            settings=world.settings,
        )
        world.step(self._run(machine, perform), e.Started())

    def _return_places(self, reservation: str) -> None:
        if reservation and self._process is not None:
            word = m.PlacesReturned(self.name, reservation)
            self._world.send(self._process, "master", word, None)

    def _write(self, reservation: str = "") -> None:
        """Write an object; with a reservation, of any size, for nobody knows it exactly before."""
        world = self._world
        is_turn = bool(reservation)
        self._writes += 1
        name = f"c{self._number}-{self._writes}/{self._life}"
        draw = world.scheduler.uniform
        content = bytes(draw("content", 0, 255) for _ in range(draw("content", 0, 200)))
        machine = ObjectWriting(
            client=self.name,
            upload=f"{self.name}-{self._writes}",
            name=name,
            host="",
            settings=world.settings,
            reservation=reservation,
        )
        rest = [content[at : at + 64] for at in range(0, len(content), 64)]
        if not is_turn and rest and world.scheduler.percent("checkpoints", 50):
            self._ask_for_places(f"{self.name}/{self._writes}", len(rest))
            return
        is_given_up = not world.is_quiet and world.scheduler.percent("give up", 5)

        def perform(effect: Effect) -> None:
            if isinstance(effect, ObjectFailed):
                if not self._may_fail:
                    raise Violated("C-LIVE", f"not written: {effect.reason}")
                world.scheduler.note(f"failed: {effect.reason}")
                self._return_places(reservation)
                self._next()
            elif isinstance(effect, StepDone):
                if machine.state is WritingState.DONE:
                    self._return_places(reservation)
                self._go_on(process, machine, name, content, rest, is_given_up)

        process = self._run(machine, perform)
        world.step(process, e.Started())

    def _go_on(
        self,
        process: Process,
        machine: ObjectWriting,
        name: str,
        content: bytes,
        rest: list[bytes],
        is_given_up: bool,
    ) -> None:
        world = self._world
        if machine.state is WritingState.DONE:
            world.scheduler.note(f"committed: {name}")
            world.commits += 1
            world.expected[name] = content
            world.unsure.pop(name, None)
            self._mine.append(name)
            check_acknowledged(world, name)
            self._next()
        elif rest:
            data = rest.pop(0)
            self._later(process, machine, ChunkGiven(data))
        elif is_given_up:
            world.scheduler.after(1, lambda: world.step(process, GivenUp()))
            self._next()
        else:
            world.unsure[name] = content
            self._later(process, machine, FinishRequested())

    def _later(self, process: Process, machine: ObjectWriting, stimulus: Stimulus) -> None:
        """The next step of a writer, which may be slow, and refused meanwhile."""
        world = self._world

        def act() -> None:
            if machine.state is WritingState.IDLE:
                world.step(process, stimulus)

        is_slow = not world.is_quiet and world.scheduler.percent("slow writers", 8)
        delay_us = world.scheduler.uniform("slow writers", 1, 3_000_000) if is_slow else 1
        world.scheduler.after(delay_us, act)

    # -- reading ----------------------------------------------------------------------------

    def _read(self, name: str) -> None:
        world = self._world
        content = world.expected[name]
        if not content:
            self._next()
            return
        start = world.scheduler.uniform("reads", 0, len(content) - 1)
        size = world.scheduler.uniform("reads", 1, len(content) - start)
        machine = ObjectReading(
            client=self.name,
            name=name,
            offset=start,
            size=size,
            first_request=self._requests,
            settings=world.settings,
            chunks=self._places.get(name),
        )
        buffer = bytearray(size)

        def perform(effect: Effect) -> None:
            if isinstance(effect, Deliver):
                buffer[effect.offset : effect.offset + len(effect.data)] = effect.data
            elif isinstance(effect, ReadDone):
                if buffer != content[start : start + size]:
                    raise Violated("C-READ", f"{name} from {start}, {size} bytes")
                self._places[name] = effect.chunks
                end()
            elif isinstance(effect, ReadMissing):
                if name in world.expected:
                    raise Violated("C-NAMES", f"{name} is missing")
                end()
            elif isinstance(effect, ObjectFailed | ReadOutOfReach):
                world.scheduler.note(f"unread: {effect.reason}")
                self._places.pop(name, None)
                end()

        def end() -> None:
            self._requests = machine.next_request
            self._next()

        world.step(self._run(machine, perform), e.Started())

    # -- deleting ---------------------------------------------------------------------------

    def _begin_delete(self, name: str) -> None:
        content = self._world.expected.pop(name)
        self._world.unsure[name] = content
        self._delete = (self._requests, name)
        self._requests += 1
        asking = Asking(self._delete[0], lambda: self._deleted(name))
        self._process = Process(self.name, asking, lambda _: None)
        self._world.processes[self.name] = self._process
        self._ask_to_delete(self._delete)

    def _ask_to_delete(self, asked: tuple[int, str]) -> None:
        """Until it is answered; a client that dies before leaves it open, and so may others."""
        if self._delete != asked or self._process is None:
            return
        world = self._world
        word = m.ObjectDeleteRequested(self.name, *asked)
        world.send(self._process, "master", word, None)
        if not world.is_quiet and world.scheduler.percent("give up", 30):
            self._delete = None
            self._next()
            return
        world.scheduler.after(100_000, lambda: self._ask_to_delete(asked))

    def _deleted(self, name: str) -> None:
        if self._delete is not None and self._delete[1] == name:
            self._world.unsure.pop(name, None)
            self._delete = None
            self._next()


class Asking:
    """Waits for one answer."""

    def __init__(self, request: int, done: Callable[[], None]) -> None:
        """Call `done` when the object of this request is deleted."""
        self._request = request
        self._done = done

    def step(self, stimulus: Stimulus, now_ms: int) -> list[Effect]:
        """Take one stimulus."""
        del now_ms
        if isinstance(stimulus, m.ObjectDeleted) and stimulus.request == self._request:
            self._done()
        return []

    def check_invariants(self) -> None:
        """There is nothing to violate."""

    def statistics(self) -> object:
        """There is nothing to count."""
        return None
