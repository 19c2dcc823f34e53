"""A simulated cluster: the real machines, virtual time, a faulty network, disks and machines.

The world runs one dataflow to its end under a plan of faults. It wires processes, driver, network
and disks together, strikes the faults, and lets checkers watch every step. Whatever a checker or a
core finds wrong ends the run with a `Violation`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from holdfast.core.coordinator.checkpoint_registry import CheckpointRegistry
from holdfast.core.coordinator.limits import CoordinatorLimits
from holdfast.core.errors import InvariantViolation, LocalProtocolError, RemoteProtocolError
from holdfast.core.haunit.durability.eventual import body_schema
from holdfast.core.haunit.passes import PASS_SCHEMA
from holdfast.core.haunit.told import PromotionReceived
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
from holdfast.sim.checkers.base import Asked, Checker, Violation
from holdfast.sim.disk import Damage, SimulatedJournal, SimulatedLog, Superseded
from holdfast.sim.driver import Life
from holdfast.sim.faults import NO_SLOTS
from holdfast.sim.network import Network, NetworkProfile
from holdfast.sim.part_log import SimulatedPartLog
from holdfast.sim.process import Process
from holdfast.sim.scheduler import Clock, Scheduler, Trace
from holdfast.sim.store import PLACES, SimulatedStore
from holdfast.sim.strikes import Strikes

if TYPE_CHECKING:
    import pyarrow as pa

    from holdfast.core.coordinator.journal_entries import JournalEntry
    from holdfast.core.haunit.plan import Assignment, NodePlan
    from holdfast.core.machine import Effect, Stimulus
    from holdfast.sim.faults import Fault
    from holdfast.sim.workload.source import SimulatedSource

_WRITERS_MAX = 2
_LAUNCH_TIMEOUT_MS = 3_000
"""Where task slots may be taken: longer than any task takes to come up otherwise."""
_INVARIANTS_EVERY = 16
PATIENCE_US = 20_000_000
"""[I-LIVE] A run ends so long after its last fault and its last input, or it never will."""
_FEW_TUPLES = 16
_MORE_PATIENCE = 5
"""Times as long, where inputs hold so few: hundreds of tuples wait for credit, or for the disk."""


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
        trace: Trace | None = None,
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
        self.faults = faults or {}
        self.limits = limits or _limits(self.faults)
        self.scheduler = Scheduler(seed, trace)
        self.network = Network(self.scheduler, conditions.network)
        self.machines = conditions.machines
        self.uses_codec = conditions.uses_codec
        self.disk_us = conditions.disk_us
        self._refuses = self.scheduler.percent(PLACES, 10)  # its store: some checkpoints, at first
        self.clocks = [self._clock(i, skew=conditions.skew) for i in range(self.machines + 1)]
        self.sinks = _logs(plans, SimulatedPartLog if conditions.has_part_logs else SimulatedLog)
        self.journal = SimulatedJournal()
        self.store = SimulatedStore()
        self.processes: dict[str, Process] = {}
        self.reached: dict[str, int] = {}
        self.strikes = Strikes(self)
        self._checkers = checkers
        self._stepping = Asked(checkers, "stepping")
        self._stepped = Asked(checkers, "stepped")
        self._followed = Asked(checkers, "followed")
        self._performing = Asked(checkers, "performing")
        self.life: Life | None = None
        self.is_over = False
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
        self.run_until(lambda: self.is_over)
        result = self._result()
        for checker in self._checkers:
            checker.end(result)
        return result

    def run_until(self, is_there: Callable[[], bool]) -> None:
        """Begin, and run until something is so. Raises `Violation` when anything is wrong."""
        for checker in self._checkers:
            checker.begin(self)
        self.strikes.begin()
        has_room = all(p.limits.input_queue_tuples > _FEW_TUPLES for p in self.plans.values())
        patience_us = PATIENCE_US if has_room else _MORE_PATIENCE * PATIENCE_US
        try:
            self.begin_life()
            ended = self.scheduler.run(is_there, lambda: self._quiet_from_us + patience_us)
        except (InvariantViolation, RemoteProtocolError, LocalProtocolError) as error:
            raise Violation(type(error).__name__, str(error)) from error
        if not ended:
            raise Violation("I-LIVE", f"no end {patience_us // 1_000_000} s after the last fault")

    def begin_life(self, *, is_beside: bool = False) -> None:
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
        if self.life is None or life.epoch > self.life.epoch:
            self.life = life
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
                found = self._read_journal(taking.number)
                taking.entries = tuple(CheckpointRegistry.of(found).entries())
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

    def files(self) -> list[SimulatedLog | SimulatedPartLog | SimulatedJournal]:
        """All files that can be damaged."""
        spills = [log for p in self.processes.values() for log in p.spills.logs.values()]
        return [*self.sinks.values(), *spills, self.journal]

    def _restore_files(self) -> bool:
        return sum(file.restore() for file in (*self.files(), self.store)) > 0

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
            self.strikes.struck,
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

    def is_store_taken(self) -> bool:
        """Whether others write to the store now, so that a checkpoint has to wait for its turn."""
        return self._refuses and self.scheduler.percent(PLACES, 30)

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
            for stepping in self._stepping[type(stimulus)]:
                stepping(process, stimulus)
        effects = core.step(stimulus, now_ms)
        self._steps += 1
        if standby is not None or self._steps % max(_INVARIANTS_EVERY, process.degree) == 0:
            core.check_invariants()
        if core.began_at is not began_at:
            self._restored(process)
        if standby is None:
            for stepped in self._stepped[type(stimulus)]:
                stepped(process, stimulus, effects)
        else:
            for followed in self._followed[type(stimulus)]:
                followed(process, stimulus, effects)
        return effects

    def performing(self, process: Process, effect: Effect) -> None:
        """A process is about to perform an effect."""
        for performing in self._performing[type(effect)]:
            performing(process, effect)

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

    def wait_until(self, until_us: int) -> None:
        """Do not expect an end before something wears off."""
        self._quiet_from_us = max(self._quiet_from_us, until_us)

    def crash_driver(self, down_us: int) -> None:
        """The driver's process ends; another one begins so much later."""
        life = self.life
        if life is None or life.is_over:
            return
        life.end()
        self.wait_until(self.scheduler.now_us + down_us)
        self.scheduler.after(down_us, self.begin_life)

    def finished(self, life: Life) -> None:
        """A driver says that the query has finished; one that was replaced may be wrong."""
        self.is_over = life is self.life

    def failed(self, life: Life, reason: str) -> None:
        """A driver says that the query has failed: of a cause that the user can remove, or wrongly.

        One that was replaced ends alone. The query goes on, and what that driver went by may be
        old: nodes of its successor delete checkpoints that no line of theirs needs.
        """
        if life is not self.life:
            self.scheduler.note(f"{life.endpoint.name} ends, replaced: {reason}")
            self.count("replaced driver failed")
            life.end()
            return
        for checker in self._checkers:
            checker.failed(reason)
        was_damaged = self._restore_files()
        if "no space left" not in reason and not was_damaged:
            raise Violation("I-LIVE", f"the query failed: {reason}")
        self.scheduler.note(f"the query failed: {reason}; the user starts it again")
        self.count("query restarted by its user")
        self.strikes.ailments.empty_disks()
        self.crash_driver(1_000_000)


def _limits(faults: dict[int, Fault]) -> CoordinatorLimits:
    """No number of failures is too many; who waits for slots in vain is launched again soon."""
    limits = CoordinatorLimits(
        failures_max=1_000_000, launches_max=1_000_000, writers_max=_WRITERS_MAX
    )
    if not any(fault.kind == NO_SLOTS for fault in faults.values()):
        return limits
    return replace(limits, launch_timeout_ms=_LAUNCH_TIMEOUT_MS)


def _flatten(log: SimulatedLog | SimulatedPartLog) -> list[tuple[int, int, tuple[Any, ...]]]:
    """The tuples of a log as (id, time, values)."""
    rows: list[tuple[int, int, tuple[Any, ...]]] = []
    for batch in log.read():
        columns = [column.to_pylist() for column in batch.batch.columns]
        times = columns.pop()
        for i in range(batch.count):
            rows.append((batch.first_id + i, times[i], tuple(column[i] for column in columns)))
    return rows


def _logs(
    plans: tuple[NodePlan, ...], kind: type[SimulatedLog] | type[SimulatedPartLog]
) -> dict[StreamId, SimulatedLog | SimulatedPartLog]:
    """The logs of all sinks, of passes and of footprints."""
    schemas: dict[StreamId, pa.Schema] = {
        stream: with_time(output.schema)
        for plan in plans
        for output in plan.outputs
        if output.is_sink
        for stream in output.streams
    }
    schemas |= {plan.pass_stream: PASS_SCHEMA for plan in plans if plan.keeps_passes}
    schemas |= {
        plan.footprint_stream: footprint_schema(body)
        for plan in plans
        if (body := body_schema(plan)) is not None
    }
    return {stream: kind(stream, schema) for stream, schema in schemas.items()}
