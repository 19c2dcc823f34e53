"""The driver: the simulated shell around the real `Coordinator`, and Spark's part of recovery.

A `Life` is one run of the driver's process over the journal. When the driver crashes, its nodes end
soon, or live on as zombies until their lease is over; the next life begins with the next epoch. It
may begin while the one before goes on, which finds out when it writes.
Spark starts tasks after a while, starts a dead task again by itself, and gives up in the end.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from holdfast.core.coordinator import events as c
from holdfast.core.coordinator.admission import AdmitWrite
from holdfast.core.coordinator.coordinator import Coordinator
from holdfast.core.coordinator.instance import Hearing
from holdfast.core.haunit.events import (
    RestartPointStored,
    WriteAdmitted,
)
from holdfast.core.machine import Effect, SetTimer, Stimulus, TimerFired
from holdfast.core.model.ids import Incarnation, NodeId
from holdfast.core.wire.node_words import word_of
from holdfast.sim.disk import Superseded
from holdfast.sim.network import Endpoint
from holdfast.sim.process import Process

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.core.coordinator.journal_entries import JournalEntry
    from holdfast.sim.world import World

DRIVER = 0
"""The machine that the driver runs on."""
_WORD_BYTES = 200
_TASK_ATTEMPTS = 4
_LEASE_US = 3_000_000
_INVARIANTS_EVERY = 16

COORDINATOR_STEPS = (
    "failure detected",
    "task launched",
    "hello received",
    "journal asked",
    "journal written",
    "assignment sent",
    "neighbour told",
    "promotion sent",
    "restart point journalled",
)


class Life:
    """One life of the driver."""

    def __init__(self, world: World, epoch: int, entries: tuple[JournalEntry, ...]) -> None:
        """Begin the epoch with what the journal says."""
        self._world = world
        self._scheduler = world.scheduler
        self.epoch = epoch
        self.endpoint = Endpoint(f"driver/{epoch}", DRIVER)
        self.machine = Coordinator(
            tuple(world.plans.values()), epoch=epoch, limits=world.limits, journal=entries
        )
        self.is_over = False
        self.processes: dict[str, Process] = {}
        self._newest: dict[NodeId, Process] = {}  # the process that last said hello
        self._attempts: dict[tuple[NodeId, int], int] = {}
        self._timers: dict[str, int] = {}
        self._unwritten: list[c.WriteJournal] = []
        self._is_writing = False
        self._steps = 0
        self._inbox: deque[Callable[[], None]] = deque()
        self.paused_until_us = 0

    # -- words ------------------------------------------------------------------------------

    def start(self) -> None:
        """Launch all nodes."""
        self._step(c.Started())

    def receive(self, process: Process, stimulus: Stimulus, incarnation: Incarnation) -> None:
        """A word of a process is on its way; of a fenced one, it is answered with `fenced`."""

        def arrive(is_torn: bool) -> None:
            if is_torn:
                return
            instance = self.machine.instance(process.node)
            hearing = instance.judge(process.endpoint.name, incarnation)
            if hearing is Hearing.TAKEN:
                self._step(stimulus)
            elif hearing is Hearing.FENCED:
                self._world.count("zombie told to end")
                self._step(c.ZombieHeard(process.node, incarnation))
                self._tell(process, lambda: self._end(process))

        self._to_driver(process, arrive)

    def receive_hello(self, process: Process) -> None:
        """A process has come up."""
        name = process.endpoint.name
        hello = c.HelloReceived(process.node, process.launch, name, name)

        def arrive(is_torn: bool) -> None:
            if is_torn:
                return
            if not self.machine.instance(process.node).expects(process.launch):
                self._tell(process, lambda: self._end(process))
                return
            self._newest[process.node] = process
            self._step(hello)
            self._passed("hello received", process)

        self._to_driver(process, arrive)

    def _to_driver(self, process: Process, arrive: Callable[[bool], None]) -> None:
        def deliver(is_torn: bool) -> None:
            self._inbox.append(lambda: arrive(is_torn))
            self._drain()

        self._world.network.send(process.endpoint, self.endpoint, _WORD_BYTES, deliver)

    def _drain(self) -> None:
        """Handle what has arrived, in order, unless the driver is paused."""
        paused_us = self.paused_until_us - self._scheduler.now_us
        if paused_us > 0:
            self._scheduler.after(paused_us, self._drain)
            return
        while self._inbox and not self.is_over:
            self._inbox.popleft()()

    def _tell(self, process: Process, action: Callable[[], None]) -> None:
        """A word to a process."""

        def deliver(is_torn: bool) -> None:
            if not is_torn and not process.is_dead:
                action()

        self._world.network.send(self.endpoint, process.endpoint, _WORD_BYTES, deliver)

    def _end(self, process: Process) -> None:
        self._scheduler.note(f"{process.endpoint.name} ends: fenced")
        process.die()

    def hand_over(self, node: NodeId) -> bool:
        """The user wants a node's secondary to take over; whether one was ready."""
        primary = self.machine.instance(node).primary
        task = primary.task
        if task is not None:
            self._step(c.HandoverWanted(node, task))
        return self.machine.instance(node).primary is not primary

    # -- the machine ------------------------------------------------------------------------

    def _step(self, stimulus: Stimulus) -> None:
        if self.is_over:
            return
        self._scheduler.note(f"coordinator {type(stimulus).__name__}")
        effects = self.machine.step(stimulus, self._world.clocks[DRIVER].now_ms())
        self._steps += 1
        if self._steps % max(_INVARIANTS_EVERY, len(self._world.plans)) == 0:
            self.machine.check_invariants()
        for effect in effects:
            if not self.is_over:  # A fault may end this life between two effects.
                self._perform(effect)

    def _passed(self, step: str, process: Process | None) -> None:
        self._world.passed(step, process)

    def _dies_at(self, step: str) -> bool:
        self._passed(step, None)
        return self.is_over

    def _perform(self, effect: Effect) -> None:
        match effect:
            case SetTimer():
                self._set_timer(effect)
            case c.LaunchTask():
                self._spawn(effect.node, effect.launch, 20_000, 250_000)
                self._passed("task launched", self._newest.get(effect.node))
            case c.EndTask():
                process = self.processes.get(effect.task)
                if process is not None and self._scheduler.percent("spark/end", 75):
                    process.die()  # One in four stays: a zombie.
            case c.WriteJournal():
                if not self._dies_at("journal asked"):
                    self._unwritten.append(effect)
                    self._write_journal()
            case c.SendAssignment():
                self._assign(effect)
            case c.TellPeer():
                self._tell_peer(effect)
            case c.SendPromotion():
                self._promote(effect)
            case c.TellPointStored():
                target = self.processes[effect.task]
                self._passed("restart point journalled", target)
                stored = RestartPointStored(effect.sequence)
                self._tell(target, lambda: target.take(stored))
            case AdmitWrite():
                admitted = self._process_of(effect.node, effect.incarnation)
                if admitted is None:
                    return
                self._world.count("checkpoint admitted")
                self._tell(admitted, lambda: admitted.take(WriteAdmitted()))
            case c.ReportFailure():
                self._scheduler.note(f"{effect.node} is lost: {effect.reason}")
                self._world.count("failure detected")
                self._passed("failure detected", self._newest.get(effect.node))
            case c.FinishQuery():
                self._world.finished(self)
            case c.FailQuery():
                self._world.failed(effect.reason)
            case _:
                pass  # Reports of recovered nodes.

    def _set_timer(self, effect: SetTimer) -> None:
        self._timers[effect.name] = effect.at_ms

        def fire() -> None:
            if self.is_over or self._timers.get(effect.name) != effect.at_ms:
                return
            paused_us = self.paused_until_us - self._scheduler.now_us
            if paused_us > 0:
                self._scheduler.after(paused_us, fire)
                return
            del self._timers[effect.name]
            self._step(TimerFired(effect.name))

        self._world.clocks[DRIVER].wait_until(effect.at_ms, fire)

    def _write_journal(self) -> None:
        """One write at a time, in order; each is durable before the next begins."""
        if self._is_writing or not self._unwritten:
            return
        self._is_writing = True
        requests, self._unwritten = self._unwritten, []
        entries = tuple(entry for request in requests for entry in request.entries)
        self._world.journal.append(self.epoch, entries)

        def written() -> None:
            if self.is_over:
                return
            try:
                self._world.journal.sync(self.epoch)
            except Superseded as superseded:
                self._scheduler.note(f"{self.endpoint.name} ends: {superseded}")
                self._world.count("driver replaced by another")
                self.end()
                return
            self._world.journalled(entries)
            self._passed("journal written", None)
            self._is_writing = False
            for request in requests:
                self._step(c.JournalWritten(request.request_id))
            self._write_journal()

        delay_us = self._scheduler.uniform("journal", 100, self._world.disk_us)
        self._scheduler.after(delay_us * self._world.disk_slowness(DRIVER), written)

    def _assign(self, effect: c.SendAssignment) -> None:
        process = self.processes[effect.task]
        self._tell(process, lambda: process.take(word_of(effect)))
        self._passed("assignment sent", process)

    def _tell_peer(self, effect: c.TellPeer) -> None:
        target = self.processes[effect.task]
        told = word_of(effect)
        self._world.remember_word(target, told)
        self._tell(target, lambda: target.take(told))
        self._passed("neighbour told", target)

    def _promote(self, effect: c.SendPromotion) -> None:
        target = self.processes[effect.task]
        self._world.count("secondary promoted")
        self._tell(target, lambda: target.take(word_of(effect)))
        self._passed("promotion sent", target)

    def _process_of(self, node: NodeId, incarnation: Incarnation) -> Process | None:
        """The process that runs an incarnation."""
        for process in self.processes.values():
            if process.node == node and process.incarnation == incarnation:
                return process
        return None

    # -- Spark ------------------------------------------------------------------------------

    def _spawn(self, node: NodeId, launch: int, soonest_us: int, latest_us: int) -> None:
        """A task of a launch comes up after a while."""
        self._attempts[(node, launch)] = self._attempts.get((node, launch), 0) + 1

        def up() -> None:
            if self.is_over:
                return
            process = self._world.new_process(self, node, launch)
            self.processes[process.endpoint.name] = process
            self._scheduler.note(f"{process.endpoint.name} comes up")
            process.hello()

        self._scheduler.after(self._scheduler.uniform("spark/launch", soonest_us, latest_us), up)

    def process_died(self, process: Process, reason: str) -> None:
        """Spark starts the task again, or, after some attempts, reports its end."""
        node, launch = process.node, process.launch
        if self.is_over:
            return
        attempts = self._attempts[(node, launch)]
        if attempts < _TASK_ATTEMPTS and self._scheduler.percent("spark/retry", 70):
            self._spawn(node, launch, 50_000, 400_000)
            return
        ended = c.TaskEnded(node, launch, reason)
        report_us = self._scheduler.uniform("spark/report", 5_000, 400_000)
        self._scheduler.after(report_us, lambda: self._step(ended))

    def end(self) -> None:
        """The driver is gone: its nodes end soon, or live on until their lease is over."""
        self.is_over = True
        for process in self.processes.values():
            if process.is_dead:
                continue
            latest_us = 500_000 if self._scheduler.percent("spark/orphan", 75) else _LEASE_US
            delay_us = self._scheduler.uniform("spark/orphan", 0, latest_us)
            self._scheduler.after(delay_us, process.die)
