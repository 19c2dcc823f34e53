"""The driver: the simulated shell around the real `Coordinator`, and Spark's part of recovery.

A `Life` is one run of the driver's process over the journal. When the driver crashes, its nodes end
soon, or live on as zombies until their lease is over; the next life begins with the next epoch. It
may begin while the one before goes on, which finds out when it writes.
Spark starts tasks after a while, starts a dead task again by itself, and gives up in the end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from holdfast.core.coordinator import events as c
from holdfast.core.coordinator.admission import AdmitWrite
from holdfast.core.coordinator.checkpoint_rounds import ReportRound
from holdfast.core.coordinator.coordinator import Coordinator
from holdfast.core.coordinator.instance import Hearing
from holdfast.core.coordinator.line_account import ReportLine
from holdfast.core.coordinator.turns import GrantTurn
from holdfast.core.errors import InvariantViolation
from holdfast.core.machine import Effect, SetTimer, Stimulus, TimerFired
from holdfast.core.model.ids import Incarnation, NodeId
from holdfast.core.wire.frames import CorruptFrame
from holdfast.core.wire.node_words import (
    CoordinatorStimulus,
    Task,
    Telling,
    decode_from_coordinator,
    decode_from_node,
    encode,
    word_of,
)
from holdfast.sim.disk import Superseded
from holdfast.sim.network import Endpoint
from holdfast.sim.process import Process

if TYPE_CHECKING:
    from holdfast.core.coordinator.journal_entries import JournalEntry
    from holdfast.core.haunit.node import Node
    from holdfast.sim.world import World

DRIVER = 0
"""The machine that the driver runs on."""
_WORD_BYTES = 200
_TASK_ATTEMPTS = 4
_LEASE_US = 3_000_000
_INVARIANTS_EVERY = 16

COMES_UP = "comes up"
"""A step of a process's own: it is there, and is about to say hello."""
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
    "region told",
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
        self._assigned: set[str] = set()  # the processes that were sent an assignment
        self._attempts: dict[tuple[NodeId, int], int] = {}
        self._timers: dict[str, int] = {}
        self._unwritten: list[c.WriteJournal] = []
        self._is_writing = False
        self._steps = 0
        self._inbox: deque[Callable[[], None]] = deque()
        self.paused_until_us = 0

    # -- words ------------------------------------------------------------------------------

    def start(self) -> None:
        """Launch all nodes, as soon as there are slots for them."""
        wait_us = self._world.strikes.ailments.slots_in_us()
        if wait_us:
            self._world.count("waited for task slots")
            self._scheduler.after(wait_us, self.start)
            return
        self._step(c.Started())

    def was_up(self, node: NodeId) -> bool:
        """Whether a node has worked in this life."""
        return self.machine.instance(node).was_up

    def receive(
        self, process: Process, said: CoordinatorStimulus, incarnation: Incarnation
    ) -> None:
        """A word of a process is on its way; of a fenced one, it is answered with `fenced`."""
        word = self._heard(process, said)

        def arrive(is_torn: bool) -> None:
            if is_torn:
                return
            instance = self.machine.instance(process.node)
            hearing = instance.judge(process.endpoint.name, incarnation)
            if hearing is Hearing.TAKEN:
                self._step(word)
            elif hearing is Hearing.FENCED:
                self._world.count("zombie told to end")
                self._step(c.ZombieHeard(process.node, incarnation))
                self._tell(process, lambda: self._end(process))

        self._to_driver(process, arrive)

    def _heard(self, process: Process, said: CoordinatorStimulus) -> CoordinatorStimulus:
        """What a process says, as bytes over the wire."""
        name = process.endpoint.name
        task = Task(name, process.node, process.launch, 0)
        word = decode_from_node([encode(said)], task)
        if not isinstance(word, CoordinatorStimulus):
            raise InvariantViolation(f"{said} of {name} is no word: {word}")
        return word

    def receive_hello(self, process: Process) -> None:
        """A process has come up."""
        name = process.endpoint.name
        hello = self._heard(process, c.HelloReceived(process.node, process.launch, name, name))

        def arrive(is_torn: bool) -> None:
            if is_torn:
                return
            instance = self.machine.instance(process.node)
            if instance.has_ended(name) or not instance.expects(process.launch):
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

    def leave(self, processes: list[Process]) -> None:
        """Spark will soon end what these run on."""
        self._step(c.TasksLeaving(tuple((p.node, p.launch) for p in processes)))

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
        self._world.strikes.passed(step, process)

    def _dies_at(self, step: str) -> bool:
        self._passed(step, None)
        return self.is_over

    def _perform(self, effect: Effect) -> None:
        _PERFORMERS[type(effect)](self, effect)

    def _launch(self, effect: c.LaunchTask) -> None:
        self._spawn(effect.node, effect.launch, 20_000, 250_000)
        self._passed("task launched", self._newest.get(effect.node))

    def _end_task(self, effect: c.EndTask) -> None:
        process = self.processes.get(effect.task)
        if process is not None and self._scheduler.percent("spark/end", 75):
            process.die()  # One in four stays: a zombie.

    def _ask_journal(self, effect: c.WriteJournal) -> None:
        if not self._dies_at("journal asked"):
            self._unwritten.append(effect)
            self._write_journal()

    def _report_failure(self, effect: c.ReportFailure) -> None:
        self._scheduler.note(f"{effect.node} is lost: {effect.reason}")
        self._world.count("failure detected")
        self._passed("failure detected", self._newest.get(effect.node))

    def _finish(self, _: c.FinishQuery) -> None:
        self._world.finished(self)

    def _fail(self, effect: c.FailQuery) -> None:
        self._world.failed(self, effect.reason)

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
        delay_us *= self._world.strikes.ailments.disk_slowness(DRIVER)
        self._scheduler.after(delay_us, written)

    # -- words to nodes ---------------------------------------------------------------------

    def _say(self, process: Process, effect: Telling) -> None:
        """What an effect tells a process, as bytes over the wire."""
        word = decode_from_coordinator([encode(word_of(effect))])
        if isinstance(word, CorruptFrame):
            raise InvariantViolation(f"{effect} is no word: {word.reason}")
        self._tell(process, lambda: process.take(word))

    def _assign(self, effect: c.SendAssignment) -> None:
        process = self.processes[effect.task]
        if effect.task in self._assigned:
            self._world.count("assignment sent again")
        self._assigned.add(effect.task)
        self._say(process, effect)
        self._passed("assignment sent", process)

    def _tell_peer(self, effect: c.TellPeer) -> None:
        target = self.processes[effect.task]
        self._world.strikes.remember_word(target, word_of(effect))
        self._say(target, effect)
        self._passed("neighbour told", target)

    def _promote(self, effect: c.SendPromotion) -> None:
        target = self.processes[effect.task]
        self._world.count("secondary promoted")
        self._say(target, effect)
        self._passed("promotion sent", target)

    def _tell_point_stored(self, effect: c.TellPointStored) -> None:
        target = self.processes[effect.task]
        self._passed("restart point journalled", target)
        self._say(target, effect)

    def _tell_member(
        self,
        effect: (
            c.TellHalt | c.TellGoOn | c.TellRollBack | c.TellLineMoved | c.TellRound | c.TellCut
        ),
    ) -> None:
        target = self.processes[effect.task]
        if isinstance(effect, c.TellCut):
            self._world.count("asked to cut for others")
        self._passed("region told", target)
        self._say(target, effect)

    def _note_round(self, _: ReportRound) -> None:
        self._world.count("round complete")

    def _note_line(self, _: ReportLine) -> None:
        self._world.count("line reported")

    def _admit(self, effect: AdmitWrite) -> None:
        admitted = self._process_of(effect.node, effect.incarnation)
        if admitted is not None:
            self._world.count("checkpoint admitted")
            self._say(admitted, effect)

    def _grant_turn(self, effect: GrantTurn) -> None:
        granted = self._process_of(effect.node, effect.incarnation)
        if granted is not None:
            self._world.count("turn granted")
            self._say(granted, effect)

    def primary_machine(self, node: NodeId) -> Node | None:
        """The node that runs as a node's primary; None: it is coming up."""
        process = self._newest.get(node)
        if process is None or process.is_dead or not process.is_primary:
            return None
        return process.machine

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
            wait_us = self._world.strikes.ailments.slots_in_us()
            if wait_us and self.was_up(node):
                self._world.count("waited for task slots")
                if self._scheduler.percent("spark/slots", 70):
                    self._scheduler.after(wait_us, up)
                return  # Or where it was to come up is cut off: nobody hears of it again.
            process = self._world.new_process(self, node, launch)
            self.processes[process.endpoint.name] = process
            self._scheduler.note(f"{process.endpoint.name} comes up")
            self._passed(COMES_UP, process)
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


_PERFORMERS: dict[type[Effect], Callable[[Life, Any], None]] = {
    SetTimer: Life._set_timer,
    c.LaunchTask: Life._launch,
    c.EndTask: Life._end_task,
    c.WriteJournal: Life._ask_journal,
    c.SendAssignment: Life._assign,
    c.TellPeer: Life._tell_peer,
    c.SendPromotion: Life._promote,
    c.TellPointStored: Life._tell_point_stored,
    c.TellFloor: lambda life, effect: None,  # Sources of this simulator are never idle.
    c.TellHalt: Life._tell_member,
    c.TellGoOn: Life._tell_member,
    c.TellRollBack: Life._tell_member,
    c.TellLineMoved: Life._tell_member,
    c.TellRound: Life._tell_member,
    c.TellCut: Life._tell_member,
    ReportRound: Life._note_round,
    ReportLine: Life._note_line,
    AdmitWrite: Life._admit,
    GrantTurn: Life._grant_turn,
    c.ReportFailure: Life._report_failure,
    c.ReportRecovery: lambda life, effect: None,  # For people.
    c.FinishQuery: Life._finish,
    c.FailQuery: Life._fail,
}
