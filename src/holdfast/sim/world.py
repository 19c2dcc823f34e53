"""A simulated cluster: the real machines, virtual time, a faulty network, disks and machines.

The world runs one dataflow to its end under a plan of faults. It wires processes, driver, network
and disks together, strikes the faults, and lets checkers watch every step. Whatever a checker or a
core finds wrong ends the run with a `Violation`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from holdfast.core.coordinator.limits import CoordinatorLimits
from holdfast.core.errors import InvariantViolation, LocalProtocolError, RemoteProtocolError
from holdfast.core.haunit.durability.eventual import body_schema
from holdfast.core.haunit.plan import Standby
from holdfast.core.haunit.rounds import ROUND_SCHEMA
from holdfast.core.haunit.told import PeerTold, PromotionReceived
from holdfast.core.model.footprints import footprint_schema
from holdfast.core.model.ids import NodeId, StreamId
from holdfast.core.model.tuples import with_time
from holdfast.core.wire.journal_volumes import (
    ClaimVolume,
    DeleteVolumes,
    FillVolume,
    ReadVolumes,
    TakeoverStep,
    takeover,
)
from holdfast.sim.checkers.base import Violation
from holdfast.sim.disk import Damage, SimulatedJournal, SimulatedLog, Superseded
from holdfast.sim.driver import DRIVER, Life
from holdfast.sim.network import Network, NetworkProfile
from holdfast.sim.part_log import SimulatedPartLog
from holdfast.sim.process import Process
from holdfast.sim.scheduler import Clock, Scheduler
from holdfast.sim.store import SimulatedStore

if TYPE_CHECKING:
    from holdfast.core.coordinator.journal_entries import JournalEntry
    from holdfast.core.haunit.plan import Assignment, NodePlan
    from holdfast.core.machine import Effect, Stimulus
    from holdfast.core.wire.messages import NodeMessage
    from holdfast.sim.checkers.base import Checker
    from holdfast.sim.faults import Fault
    from holdfast.sim.workload.source import SimulatedSource

_STALE_FRAMES = 32
_STALE_WORDS = 32
_WRITERS_MAX = 2
_INVARIANTS_EVERY = 16
_PICK_WORST_FROM = 5
_NOTICED_US = 600_000
"""By then a failure is known."""
PATIENCE_US = 20_000_000
"""[I-LIVE] A run ends so long after its last fault and its last input, or it never will."""


@dataclass(slots=True)
class _Takeover:
    """How far a driver that begins has come with the journal."""

    steps: tuple[TakeoverStep, ...]
    is_beside: bool
    done: int = 0
    number: int = 0  # of the volume that it has claimed
    entries: tuple[JournalEntry, ...] = ()


@dataclass(frozen=True, slots=True)
class Conditions:
    """What a run's cluster is like.

    Attributes:
        machines: Machines for nodes; the driver has one of its own.
        network: Latencies and bandwidth.
        disk_us: Longest time that a disk takes to sync or read.
        uses_codec: Whether all frames pass through their byte format.
        skew: Whether clocks begin anywhere and drift, instead of all alike.
        has_part_logs: Whether sinks are in a store that cannot append, instead of on disks.
    """

    machines: int = 2
    network: NetworkProfile = field(default_factory=NetworkProfile)
    disk_us: int = 8_000
    uses_codec: bool = False
    skew: bool = False
    has_part_logs: bool = False


@dataclass(slots=True)
class RunResult:
    """What a run came to.

    Attributes:
        rows: Per sink stream all tuples as (id, time, values), in order.
        virtual_us: How long it took.
        events: Events of the scheduler.
        faults: How many of each kind struck.
        reached: How often rare situations were met, by name.
        failures: How many losses of nodes were detected.
        digest: Hash over all events; equal for equal runs.
        replayed_tuples: By the nodes that lived at the end.
        duplicates_dropped: By the nodes that lived at the end.
    """

    rows: dict[StreamId, list[tuple[int, int, tuple[Any, ...]]]]
    virtual_us: int
    events: int
    faults: dict[str, int]
    reached: dict[str, int]
    failures: int
    digest: str
    replayed_tuples: int
    duplicates_dropped: int


class World:
    """One simulated run of a dataflow."""

    def __init__(
        self,
        plans: tuple[NodePlan, ...],
        sources: dict[StreamId, SimulatedSource],
        *,
        seed: int,
        faults: dict[int, Fault] | None = None,
        conditions: Conditions | None = None,
        limits: CoordinatorLimits | None = None,
        checkers: tuple[Checker, ...] = (),
        trace: Callable[[int, str], None] | None = None,
    ) -> None:
        """Prepare; `run` runs to the end.

        Args:
            plans: The dataflow's nodes.
            sources: What each source stream holds.
            seed: Of everything that is not planned.
            faults: What strikes, by its number in the plan.
            conditions: What the cluster is like.
            limits: Of the coordinator; by default no number of failures is too many.
            checkers: They watch.
            trace: Called with the time and text of every event.
        """
        conditions = conditions or Conditions()
        self.plans = {plan.node: plan for plan in plans}
        self.sources = sources
        self.limits = limits or CoordinatorLimits(
            failures_max=1_000_000, launches_max=1_000_000, writers_max=_WRITERS_MAX
        )
        self.scheduler = Scheduler(seed, trace)
        self.network = Network(self.scheduler, conditions.network)
        self.machines = conditions.machines
        self.uses_codec = conditions.uses_codec
        self.disk_us = conditions.disk_us
        self.clocks = [self._clock(i, skew=conditions.skew) for i in range(self.machines + 1)]
        kind = SimulatedPartLog if conditions.has_part_logs else SimulatedLog
        self.sinks: dict[StreamId, SimulatedLog | SimulatedPartLog] = {
            stream: kind(stream, with_time(output.schema))
            for plan in plans
            for output in plan.outputs
            if output.is_sink
            for stream in output.streams
        }
        self.sinks |= {
            plan.round_stream: kind(plan.round_stream, ROUND_SCHEMA)
            for plan in plans
            if plan.keeps_rounds
        }
        self.sinks |= {
            plan.footprint_stream: kind(plan.footprint_stream, footprint_schema(body))
            for plan in plans
            if (body := body_schema(plan)) is not None
        }
        self.journal = SimulatedJournal()
        self.store = SimulatedStore()
        self.processes: dict[str, Process] = {}
        self.reached: dict[str, int] = {}
        self.struck: dict[str, int] = {}
        self.faults = faults or {}
        self._checkers = checkers
        self._life: Life | None = None
        self._is_over = False
        self._passings: dict[str, int] = {}
        self._at_steps: dict[str, list[int]] = {}
        self._followers: dict[int, list[int]] = {}
        self._armed: dict[int, tuple[NodeId, int]] = {}  # waits for a node to pass its step
        self._slow: dict[tuple[str, int], tuple[int, int]] = {}  # (what, machine): (until, factor)
        self._silent: dict[tuple[str, StreamId], int] = {}  # (kind of fault, source): until when
        self._stale: deque[tuple[NodeId, int, NodeMessage]] = deque(maxlen=_STALE_FRAMES)
        self._words: deque[tuple[Process, PeerTold]] = deque(maxlen=_STALE_WORDS)
        self._last_hit: tuple[NodeId, int] | None = None  # of the last fault
        self._steps = 0
        last_arrival_us = max((s.ends_us for s in sources.values()), default=0)
        self._quiet_from_us = last_arrival_us

    def _clock(self, machine: int, *, skew: bool) -> Clock:
        if not skew:
            return Clock(self.scheduler, offset_ms=0, drift_ppm=0)
        return Clock(
            self.scheduler,
            offset_ms=self.scheduler.uniform(f"clock/{machine}", 0, 10_000_000),
            drift_ppm=self.scheduler.uniform(f"clock/{machine}", -50_000, 50_000),
        )

    # -- the run ------------------------------------------------------------------------------

    def run(self) -> RunResult:
        """Run until the query has finished. Raises `Violation` when anything is wrong."""
        for checker in self._checkers:
            checker.begin(self)
        for number, fault in self.faults.items():
            if fault.follows is not None:
                self._followers.setdefault(fault.follows, []).append(number)
            elif fault.at_us is None:
                self._at_steps.setdefault(fault.step, []).append(number)
            else:
                self._schedule(number, fault.at_us)
        try:
            self._begin_life()
            ended = self.scheduler.run(
                lambda: self._is_over, lambda: self._quiet_from_us + PATIENCE_US
            )
        except (InvariantViolation, RemoteProtocolError, LocalProtocolError) as error:
            raise Violation(type(error).__name__, str(error)) from error
        if not ended:
            raise Violation("I-LIVE", f"no end {PATIENCE_US // 1_000_000} s after the last fault")
        result = self._result()
        for checker in self._checkers:
            checker.end(result)
        return result

    def _schedule(self, number: int, delay_us: int) -> None:
        self._quiet_from_us = max(self._quiet_from_us, self.scheduler.now_us + delay_us)
        self.scheduler.after(delay_us, lambda: self._strike(number, None))

    def _begin_life(self, *, is_beside: bool = False) -> None:
        """A driver takes over the journal, and begins; `is_beside`: while another one still runs.

        Then what it does step by step falls among what the other one does.
        """
        self._take_over(_Takeover(takeover(self.journal.numbers()), is_beside=is_beside))

    def _take_over(self, taking: _Takeover) -> None:
        for step in taking.steps[taking.done :]:
            try:
                self._take_step(taking, step)
            except Superseded as superseded:
                self.scheduler.note(f"a driver gives way: {superseded}")
                self.count("driver gave way")
                return
            taking.done += 1
            if taking.is_beside:
                delay_us = self.scheduler.uniform("driver/beside", 100, 20_000)
                self.scheduler.after(delay_us, lambda: self._take_over(taking))
                return
        life = self.new_life(taking.number, taking.entries)
        if self._life is None or life.epoch > self._life.epoch:
            self._life = life
        life.start()

    def new_life(self, epoch: int, entries: tuple[JournalEntry, ...]) -> Life:
        """A driver's process."""
        return Life(self, epoch, entries)

    def _take_step(self, taking: _Takeover, step: TakeoverStep) -> None:
        match step:
            case ClaimVolume():
                self.journal.claim(step.number)
                taking.number = step.number
            case ReadVolumes():
                taking.entries = self._read_journal(taking.number)
                self.recovered(taking.entries)
            case FillVolume():
                self.journal.append(step.number, taking.entries)
                self.journal.sync(step.number)
            case DeleteVolumes():
                self.journal.delete(step.numbers)

    def _read_journal(self, claimed: int) -> tuple[JournalEntry, ...]:
        try:
            return self.journal.read(apart_from=claimed)
        except Damage as damage:
            self.scheduler.note(f"{damage}; the user restores the file")
            self.count("damage found")
            self._restore_files()
            return self.journal.read(apart_from=claimed)

    def _files(self) -> list[SimulatedLog | SimulatedPartLog | SimulatedJournal]:
        spills = [log for p in self.processes.values() for log in p.spills.values()]
        return [*self.sinks.values(), *spills, self.journal]

    def _restore_files(self) -> bool:
        return sum(file.restore() for file in (*self._files(), self.store)) > 0

    def _result(self) -> RunResult:
        self._restore_files()
        try:
            own = {stream for plan in self.plans.values() for stream in plan.own_logs}
            rows = {s: _flatten(log) for s, log in self.sinks.items() if s not in own}
        except Damage as damage:
            raise Violation("I-ID", str(damage)) from damage
        living = [
            p.machine.statistics()
            for p in self.processes.values()
            if p.machine is not None and not p.is_dead and not p.machine.is_secondary
        ]
        refused = sum(s.refused_frames for s in living)
        if refused:
            self.count("frame of another incarnation refused", refused)
        if self.network.torn:
            self.count("torn frame", self.network.torn)
        return RunResult(
            rows,
            self.scheduler.now_us,
            self.scheduler.events,
            self.struck,
            self.reached,
            self.reached.get("failure detected", 0),
            self.scheduler.digest(),
            sum(s.replayed_tuples for s in living),
            sum(s.duplicates_dropped for s in living),
        )

    # -- called by processes and the driver -----------------------------------------------------

    def count(self, situation: str, times: int = 1) -> None:
        """A rare situation was met."""
        self.reached[situation] = self.reached.get(situation, 0) + times

    def new_process(self, life: Life, node: NodeId, launch: int) -> Process:
        """A process of a node comes up."""
        process = Process(self, life, node, launch, len(self.processes))
        self.processes[process.endpoint.name] = process
        return process

    def stepped(self, process: Process, stimulus: Stimulus, now_ms: int) -> list[Effect]:
        """Step a process's core while the checkers watch its machine."""
        core, standby = process.core, process.standby
        began_at = core.began_at
        if isinstance(stimulus, PromotionReceived):
            self._promoted(process, stimulus)
        if standby is None:
            for checker in self._checkers:
                checker.stepping(process, stimulus)
        effects = core.step(stimulus, now_ms)
        self._steps += 1
        if standby is not None or self._steps % max(_INVARIANTS_EVERY, process.degree) == 0:
            core.check_invariants()
        if core.began_at is not began_at:
            self._restored(process)
        for checker in self._checkers:
            if standby is None:
                checker.stepped(process, stimulus, effects)
            else:
                checker.followed(process, stimulus, effects)
        return effects

    def performing(self, process: Process, effect: Effect) -> None:
        """A process is about to perform an effect."""
        for checker in self._checkers:
            checker.performing(process, effect)

    def assigned(self, process: Process, assignment: Assignment) -> None:
        """A process begins an incarnation."""
        if assignment.restart_point is not None:
            self.count("restart from a stored point")
        for checker in self._checkers:
            checker.assigned(process, assignment)

    def _promoted(self, process: Process, told: PromotionReceived) -> None:
        for checker in self._checkers:
            checker.promoted(process, told.incarnation)

    def _restored(self, process: Process) -> None:
        """It begins with a state: from a checkpoint, or from its own image."""
        point = process.core.began_at
        if point is not None and process.plan.checkpoints is not None:
            for checker in self._checkers:
                checker.restored(process, point)

    def journalled(self, entries: tuple[JournalEntry, ...]) -> None:
        """Entries of the journal are durable."""
        for checker in self._checkers:
            checker.journalled(entries)

    def recovered(self, entries: tuple[JournalEntry, ...]) -> None:
        """A new life has read the journal."""
        for checker in self._checkers:
            checker.recovered(entries)

    def remember_frame(self, receiver: NodeId, epoch: int, frame: NodeMessage) -> None:
        """A frame was sent; it may arrive once more, much later."""
        self._stale.append((receiver, epoch, frame))

    def remember_word(self, receiver: Process, word: Stimulus) -> None:
        """A driver has said something; it may arrive once more, much later."""
        if isinstance(word, PeerTold):
            self._words.append((receiver, word))

    def finished(self, life: Life) -> None:
        """A driver says that the query has finished; one that was replaced may be wrong."""
        self._is_over = life is self._life

    def failed(self, reason: str) -> None:
        """The query has failed: of a cause that the user can remove, or wrongly."""
        was_damaged = self._restore_files()
        if "no space left" not in reason and not was_damaged:
            raise Violation("I-LIVE", f"the query failed: {reason}")
        self.scheduler.note(f"the query failed: {reason}; the user starts it again")
        self.count("query restarted by its user")
        for what, machine in list(self._slow):
            if what == "full-disk":
                del self._slow[(what, machine)]
        self._crash_driver(1_000_000)

    # -- the state of machines ------------------------------------------------------------------

    def _factor(self, what: str, machine: int) -> int:
        until_us, factor = self._slow.get((what, machine), (0, 1))
        return factor if self.scheduler.now_us < until_us else 1

    def slowness(self, machine: int) -> int:
        """By which factor a machine computes slower now."""
        return self._factor("slow-node", machine)

    def disk_slowness(self, machine: int) -> int:
        """By which factor a machine's disk is slower now."""
        return self._factor("slow-disk", machine)

    def is_disk_full(self, machine: int) -> bool:
        """Whether a machine's disk takes nothing now."""
        return self._factor("full-disk", machine) != 1

    def is_silent(self, stream: StreamId, kind: str = "silence") -> bool:
        """Whether a source gives nothing now; or, of kind `no-boundaries`, promises nothing."""
        return self.scheduler.now_us < self._silent.get((kind, stream), 0)

    def is_store_away(self) -> bool:
        """Whether the checkpoint store answers nobody now."""
        return self._factor("store-outage", DRIVER) != 1

    # -- faults -------------------------------------------------------------------------------

    def passed(self, step: str, process: Process | None) -> None:
        """A named step is passed; the faults planned for it strike."""
        passings = self._passings[step] = self._passings.get(step, 0) + 1
        for number in self._at_steps.get(step, ()):
            if self.faults[number].nth == passings:
                self._strike(number, process)
        if process is not None and self._armed:
            self._count_down(step, process)

    def _count_down(self, step: str, process: Process) -> None:
        """Strike the faults that wait for this node to pass the step so many times more."""
        for number, (node, waits) in list(self._armed.items()):
            if node != process.node or self.faults[number].step != step:
                continue
            self._armed[number] = (node, waits - 1)
            if waits == 1:
                del self._armed[number]
                self._strike(number, process)

    def _strike(self, number: int, process: Process | None) -> None:
        if self._is_over:
            return
        fault = self.faults[number]
        alive = [p for p in self.processes.values() if not p.is_dead]
        target = process
        if (target is None or target.is_dead) and alive:
            target = alive[fault.pick % len(alive)]
        machine = fault.pick % (self.machines + 1)
        if process is not None:
            machine = process.endpoint.machine
        if fault.is_same_place and self._last_hit is not None:
            node, machine = self._last_hit
            own = [p for p in reversed(alive) if p.node == node]
            target = own[fault.pick % len(own)] if own else target
        if fault.node is not None:
            own = [p for p in reversed(alive) if p.node == fault.node]
            target = next((p for p in own if p.is_primary), own[0] if own else None)
        if target is not None:
            hits_machine = fault.kind not in _HIT_PROCESSES
            self._last_hit = target.node, machine if hits_machine else target.endpoint.machine
        until_us = self.scheduler.now_us + fault.length_us
        self._quiet_from_us = max(self._quiet_from_us, until_us)
        name = target.endpoint.name if target else "-"
        self.scheduler.note(f"fault {number}: {fault} (process {name}, machine {machine})")
        if _STRIKES[fault.kind](self, fault, target, machine, until_us) is not False:
            self.struck[fault.kind] = self.struck.get(fault.kind, 0) + 1
        for follower in self._followers.get(number, ()):
            at_us = self.faults[follower].at_us
            if at_us is not None:
                self._schedule(follower, at_us)
            elif self._last_hit is not None:
                self._armed[follower] = (self._last_hit[0], self.faults[follower].nth)

    def _strike_kill(self, fault: Fault, target: Process | None, *_: int) -> bool:
        if target is None:
            return False
        if fault.at_us is not None and fault.size > _PICK_WORST_FROM:
            target = self._process_with_most_to_lose(target)
        self._kill(target)
        return True

    def _process_with_most_to_lose(self, otherwise: Process) -> Process:
        """The one that has written most without syncing it; adversaries wait for such moments."""
        sizes = {
            p.endpoint.name: sum(log.unsynced_bytes_of(p.incarnation) for log in p.logs.all())
            for p in self.processes.values()
            if not p.is_dead and p.machine is not None
        }
        worst = max(sizes, key=lambda name: sizes[name], default=None)
        return self.processes[worst] if worst is not None and sizes[worst] else otherwise

    def _kill(self, process: Process) -> None:
        machine = process.machine
        if process.launch > 1 and (machine is None or machine.statistics().is_silent):
            self.count("killed while recovering")
        process.die()
        process.life.process_died(process, "killed")

    def _kill_if_alive(self, process: Process | None) -> None:
        if process is not None and not process.is_dead:
            self._kill(process)

    def _strike_handover(self, fault: Fault, target: Process | None, *_: int) -> bool:
        if target is None or self._life is None:
            return False
        standing_by = [n for n, plan in self.plans.items() if plan.standby is not Standby.NONE]
        if not standing_by:
            return False
        is_apt = target.node in standing_by
        node = target.node if is_apt else standing_by[fault.pick % len(standing_by)]
        return self._life.hand_over(node)

    def _strike_pause(self, _: Fault, target: Process | None, __: int, until_us: int) -> bool:
        if target is None:
            return False
        target.paused_until_us = until_us
        return True

    def _strike_machine(self, fault: Fault, _: Process | None, machine: int, __: int) -> bool:
        if machine == DRIVER:
            self.journal.crash(self._pick)
            self._crash_driver(fault.length_us)
            return True
        if fault.size > _PICK_WORST_FROM:
            machine = self._machine_with_most_to_lose(machine)
        for log in self.sinks.values():
            if log.crash(machine, self._pick):
                self.count("unsynced tuples torn off a log")
        for process in list(self.processes.values()):
            if process.endpoint.machine == machine and not process.is_dead:
                self._kill(process)
        return True

    def _machine_with_most_to_lose(self, otherwise: int) -> int:
        sizes: dict[int, int] = {}
        for log in self.sinks.values():
            for machine, size in log.unsynced_bytes().items():
                sizes[machine] = sizes.get(machine, 0) + size
        return max(sorted(sizes), key=lambda machine: sizes[machine], default=otherwise)

    def _pick(self, low: int, high: int) -> int:
        return self.scheduler.uniform("disk/crash", low, high)

    def _strike_driver(self, fault: Fault, *_: object) -> None:
        self._crash_driver(fault.length_us)

    def _crash_driver(self, down_us: int) -> None:
        life = self._life
        if life is None or life.is_over:
            return
        life.end()
        self._quiet_from_us = max(self._quiet_from_us, self.scheduler.now_us + down_us)
        self.scheduler.after(down_us, self._begin_life)

    def _strike_driver_overlap(
        self, fault: Fault, _: Process | None, __: int, until_us: int
    ) -> bool:
        """Somebody believes that the driver is gone; often it only stood still."""
        life = self._life
        if life is None or life.is_over:
            return False
        if fault.size > _PICK_WORST_FROM:
            life.paused_until_us = until_us
        self._begin_life(is_beside=True)
        return True

    def _strike_driver_pause(self, _: Fault, __: Process | None, ___: int, until_us: int) -> None:
        if self._life is not None:
            self._life.paused_until_us = until_us

    def _strike_break(self, fault: Fault, target: Process | None, *_: int) -> bool:
        if target is None:
            return False
        back_us = self.scheduler.now_us + fault.length_us % 50_000
        self.network.break_links(target.endpoint.name, back_us)
        return True

    def _strike_loss(self, fault: Fault, target: Process | None, _: int, until_us: int) -> bool:
        if target is None:
            return False
        self.network.lose(target.endpoint.name, 2 * fault.size, until_us)
        return True

    def _strike_lag(self, fault: Fault, target: Process | None, _: int, until_us: int) -> bool:
        """Often the primary dies before its secondary has caught up."""
        if target is None:
            return False
        alive = [p for p in self.processes.values() if not p.is_dead]
        own = [p for p in alive if p.node == target.node]
        receiver = next((p for p in reversed(own) if not p.is_primary), target)
        if fault.size > _PICK_WORST_FROM:
            primary = next((p for p in reversed(own) if p.is_primary and p is not receiver), None)
            self.scheduler.after(fault.length_us, lambda: self._kill_if_alive(primary))
            until_us += _NOTICED_US
            self._quiet_from_us = max(self._quiet_from_us, until_us)
        self.network.hold_back((p.endpoint.name for p in alive), receiver.endpoint.name, until_us)
        return True

    def _strike_cut(self, fault: Fault, _: Process | None, machine: int, until_us: int) -> None:
        other = (machine + 1 + fault.size % self.machines) % (self.machines + 1)
        self.network.cut(machine, other, until_us, holds=False)

    def _strike_isolate(self, _: Fault, __: Process | None, machine: int, until_us: int) -> None:
        self.network.cut(machine, None, until_us, holds=False)
        self.network.cut(None, machine, until_us, holds=False)

    def _strike_stall(self, _: Fault, __: Process | None, machine: int, until_us: int) -> None:
        self.network.cut(machine, None, until_us, holds=True)

    def _strike_slow_link(
        self, fault: Fault, _: Process | None, machine: int, until_us: int
    ) -> None:
        self.network.slow_down(machine, 10 * fault.size, until_us)

    def _strike_slow(self, fault: Fault, _: Process | None, machine: int, until_us: int) -> None:
        factor = fault.size * (5 if fault.kind == "slow-node" else 10)
        self._slow[(fault.kind, machine)] = (until_us, factor)

    def _strike_stale(self, *_: object) -> bool:
        newest = {p.node: p for p in self.processes.values()}
        for node, epoch, frame in list(self._stale):
            newest[node].receive(frame, epoch, newest[node].endpoint, is_torn=False)
        last = {(receiver, word.peer): word for receiver, word in self._words}
        for receiver, word in list(self._words):
            if last[(receiver, word.peer)] is not word:
                receiver.take(word)
        return bool(self._stale)

    def _strike_flip(self, fault: Fault, *_: object) -> bool:
        files = self._files()
        return files[fault.pick % len(files)].flip(self._pick)

    def _strike_store(self, _: Fault, __: Process | None, ___: int, until_us: int) -> None:
        self._slow[("store-outage", DRIVER)] = (until_us, 2)

    def _strike_lost_object(self, fault: Fault, target: Process | None, *_: object) -> bool:
        node = None if target is None else target.node
        return self._kill_owner(fault, self.store.lose(self._pick, node))

    def _strike_rot(self, fault: Fault, target: Process | None, *_: object) -> bool:
        node = None if target is None else target.node
        return self._kill_owner(fault, self.store.flip(self._pick, node))

    def _kill_owner(self, fault: Fault, node: NodeId | None) -> bool:
        """Often the node dies too: damage that nobody reads does no harm."""
        if node is not None and fault.at_us is not None and fault.size > _PICK_WORST_FROM // 2:
            for process in [p for p in self.processes.values() if p.node == node]:
                self._kill_if_alive(process)
        return node is not None

    def _strike_silence(self, fault: Fault, _: Process | None, __: int, until_us: int) -> bool:
        streams = sorted(self.sources)
        if streams:
            self._silent[(fault.kind, streams[fault.pick % len(streams)])] = until_us
        return bool(streams)

    def _strike_jump(self, fault: Fault, _: Process | None, machine: int, __: int) -> None:
        self.clocks[machine].jump(fault.size * 100)


_STRIKES: dict[str, Callable[..., bool | None]] = {
    "kill": World._strike_kill,
    "handover": World._strike_handover,
    "pause": World._strike_pause,
    "slow-node": World._strike_slow,
    "machine-crash": World._strike_machine,
    "driver-crash": World._strike_driver,
    "driver-pause": World._strike_driver_pause,
    "driver-overlap": World._strike_driver_overlap,
    "break": World._strike_break,
    "lost-frames": World._strike_loss,
    "lag": World._strike_lag,
    "cut": World._strike_cut,
    "isolate": World._strike_isolate,
    "stall": World._strike_stall,
    "slow-link": World._strike_slow_link,
    "stale-frames": World._strike_stale,
    "slow-disk": World._strike_slow,
    "full-disk": World._strike_slow,
    "bit-flip": World._strike_flip,
    "clock-jump": World._strike_jump,
    "store-outage": World._strike_store,
    "lost-object": World._strike_lost_object,
    "store-rot": World._strike_rot,
    "silence": World._strike_silence,
    "no-boundaries": World._strike_silence,
}


_HIT_PROCESSES = ("kill", "handover", "pause", "break", "lost-frames", "lag")


def _flatten(log: SimulatedLog | SimulatedPartLog) -> list[tuple[int, int, tuple[Any, ...]]]:
    """The tuples of a log as (id, time, values)."""
    rows: list[tuple[int, int, tuple[Any, ...]]] = []
    for batch in log.read():
        columns = [column.to_pylist() for column in batch.batch.columns]
        times = columns.pop()
        for i in range(batch.count):
            rows.append((batch.first_id + i, times[i], tuple(column[i] for column in columns)))
    return rows
