"""A node's process: the simulated shell around one real `NodeLife`.

It performs effects as shell/spark/task.py does, over simulated links and disks, and decides nothing
either. A process may die, be paused, be slow, and outlive its own replacement as a zombie.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from holdfast.core.checkpoint.eventual import RecoveryCosts
from holdfast.core.coordinator import events as c
from holdfast.core.haunit import events
from holdfast.core.haunit.extent_restoration import ExtentRead, ReadExtent
from holdfast.core.haunit.life import RECOVERABLE, NodeLife
from holdfast.core.haunit.life_events import (
    BeginIncarnation,
    Connect,
    Disconnect,
    Fail,
    OpenSinks,
    OpenSources,
    OpenStore,
    ReadRecordedPasses,
    SinksOpened,
)
from holdfast.core.haunit.node import Node
from holdfast.core.haunit.passes import PassesLost
from holdfast.core.haunit.restoration import (
    CheckpointLoaded,
    CheckpointUnreadable,
    LoadCheckpoint,
    ReportDamage,
)
from holdfast.core.haunit.standby_replica import StandbyReplica
from holdfast.core.haunit.told import (
    AssignmentReceived,
    CutTold,
    GoOnTold,
    HaltTold,
    LineTold,
    PromotionReceived,
    RollBackTold,
    RoundTold,
)
from holdfast.core.machine import Effect, SetTimer, Stimulus, TimerFired
from holdfast.core.model.ids import (
    Incarnation,
    NodeId,
)
from holdfast.core.recovery.guarantee import RolledBack, StreamRebased
from holdfast.sim.correction_steps import steps_passed
from holdfast.sim.disk import Damage, Superseded
from holdfast.sim.network import Endpoint
from holdfast.sim.process_channels import ProcessChannels
from holdfast.sim.process_checkpoints import ProcessCheckpoints
from holdfast.sim.process_reports import WORDS, ProcessReports
from holdfast.sim.process_sinks import ProcessSinks
from holdfast.sim.process_sources import ProcessSources
from holdfast.sim.process_spills import ProcessSpills

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.core.replication.consistency_manager import Consistency
    from holdfast.sim.driver import Life
    from holdfast.sim.world import World

_TURN_US = 200
_COSTS = RecoveryCosts(tuple_us=1.0, replayed_us=1.0)
_DEAR_POINTS_PERCENT = 10
_MESSAGES_PER_TURN = 16
_PIECES = 4
"""Of background work at a time: what has opened is taken and written, then footprints are."""
_KEEP_ALIVE_US = 100_000
_FRAME_BYTES = 64
_NOTE_BYTES = 16
_STORE_RETRY_US = 50_000
_STORE_ATTEMPTS = 5

_STEPS: dict[type[Stimulus], str] = {
    AssignmentReceived: "assigned",
    SinksOpened: "sinks opened",
    CheckpointLoaded: "checkpoint loaded",
    CheckpointUnreadable: "checkpoint loaded",
    ExtentRead: "checkpoint loaded",
    PromotionReceived: "promotion due",
    events.BatchReceived: "batch received",
    events.SubscribeReceived: "subscription received",
    events.AckReceived: "acknowledgement received",
    events.PositionsReceived: "positions received",
    events.DeltaReceived: "delta received",
    events.DeltaAckReceived: "delta acknowledged",
    events.SinkSynced: "sink synced",
    events.RestartPointStored: "restart point stored",
    events.SpillRead: "spill read",
    HaltTold: "halt due",
    GoOnTold: "going on due",
    RollBackTold: "going back due",
    LineTold: "line moved",
    RoundTold: "round told",
    CutTold: "cut told",
    events.Proceed: "pass due",
    events.PagesCopied: "pages copied",
    events.CheckpointWritten: "checkpoint written",
    events.CheckpointFailed: "checkpoint failed",
}
"""Steps passed before a stimulus is handled."""

_EFFECT_STEPS: dict[type[Effect], str] = {
    events.SendBatch: "batch sent",
    events.SendSubscribe: "subscription sent",
    events.SendAck: "acknowledged",
    events.WriteSink: "sink written",
    events.StoreRestartPoint: "restart point asked for",
    events.ReportHalted: "halted",
    events.WantRound: "round wanted",
    events.SpillBatches: "spilled",
    events.TrimSpill: "trimmed",
    events.ReportCaughtUp: "caught up",
    events.ReportPromoted: "promoted",
    events.ReportFirstOutput: "first output",
    events.ReportFinished: "node finished",
    events.WriteCheckpoint: "checkpoint prepared",
    events.SendPageRun: "pages sent",
    events.SendDelta: "delta sent",
    events.ForgetCheckpoints: "checkpoints forgotten",
}
"""Steps passed after an effect is performed."""

NODE_STEPS = tuple(dict.fromkeys((*_STEPS.values(), *_EFFECT_STEPS.values())))

_MAY_PASS = (*RECOVERABLE, Superseded)
"""Failures that a replacement may not meet again."""


class Process:
    """One process of a node, in one life of the driver."""

    def __init__(self, world: World, life: Life, node: NodeId, launch: int, number: int) -> None:
        """Come up on a machine that Spark chooses."""
        self._world = world
        self._scheduler = world.scheduler
        self.life = life
        self.node = node
        self.launch = launch
        self.plan = world.plans[node]
        machine = world.scheduler.uniform("spark/place", 1, world.machines)
        self.endpoint = Endpoint(
            f"{node}|{launch}|{number}", world.strikes.departures.elsewhere(machine)
        )
        self.core = NodeLife(self.plan)
        self.inbox: deque[Stimulus] = deque()
        self.is_dead = False
        self.paused_until_us = 0
        self._timers: dict[str, int] = {}
        self._apart_ms: int | None = None
        self._is_turn_due = False
        self.degree = len(self.plan.inputs) + sum(len(o.streams) for o in self.plan.outputs)
        self.channels: ProcessChannels = ProcessChannels(self, world)
        self.sources: ProcessSources = ProcessSources(self, world)
        self.spills: ProcessSpills = ProcessSpills(self, world)
        self.checkpoints: ProcessCheckpoints = ProcessCheckpoints(self, world)
        self.reports: ProcessReports = ProcessReports(self, world)
        self.logs: ProcessSinks = ProcessSinks(self, world)
        self.at_once: deque[Stimulus] = deque()  # answers for which nobody has to wait

    @property
    def machine(self) -> Node | None:
        """The node, if it has its state by now."""
        machine = self.core.machine
        return machine if isinstance(machine, Node) else None

    @property
    def standby(self) -> StandbyReplica | None:
        """The passive secondary, until it is promoted."""
        machine = self.core.machine
        return machine if isinstance(machine, StandbyReplica) else None

    @property
    def incarnation(self) -> Incarnation:
        """As which it speaks; 0 before the assignment."""
        return self.core.incarnation

    def _now_ms(self) -> int:
        return self._world.clocks[self.endpoint.machine].now_ms()

    # -- coming up --------------------------------------------------------------------------

    def hello(self) -> None:
        """Say hello to the driver until the assignment comes."""
        if self.is_dead or self.incarnation or self.life.is_over:
            return
        if self._scheduler.now_us >= self.paused_until_us:
            self.life.receive_hello(self)
        self._scheduler.after(_KEEP_ALIVE_US, self.hello)

    def _begin(self, effect: BeginIncarnation) -> None:
        given = effect.assignment
        self._scheduler.note(f"{self.endpoint.name} is incarnation {given.incarnation}")
        self._world.assigned(self, given)
        self.reports.keep_alive()

    def opening_us(self) -> int:
        """How long a disk takes to say where a log ends."""
        disk_us = self._scheduler.uniform("disk/open", 100, self._world.disk_us)
        return disk_us * self._world.strikes.ailments.disk_slowness(self.endpoint.machine)

    def waits(self, action: Callable[[], None]) -> bool:
        """Whether an action is not for now: it comes when the process wakes up, or never."""
        paused_us = self.paused_until_us - self._scheduler.now_us
        if paused_us > 0 and not self.is_dead:
            self._scheduler.after(paused_us, action)
        return self.is_dead or paused_us > 0

    def _die_of(self, effect: Fail) -> None:
        error = effect.error
        if isinstance(error, PassesLost):
            self._world.count("secondary ahead of the log")
        elif isinstance(error, RolledBack):
            self._world.count("survivor went back")
        elif isinstance(error, StreamRebased):
            self._world.count("started once more for a rebased stream")
        self.fail(str(error), is_fatal=not isinstance(error, _MAY_PASS))

    def _dies_at(self, step: str) -> bool:
        """Pass a named step; whether that was the end."""
        self._world.strikes.passed(step, self)
        return self.is_dead

    @property
    def is_current(self) -> bool:
        """Whether the coordinator still counts it as one of its node's replicas."""
        return self.life.machine.instance(self.node).counts(self.incarnation)

    @property
    def is_primary(self) -> bool:
        """Whether it works, and not as a secondary."""
        return self.machine is not None and not self.machine.is_secondary

    def take(self, stimulus: Stimulus) -> None:
        """Put a stimulus into the inbox."""
        if not self.is_dead:
            self.inbox.append(stimulus)
            self._turn_soon()

    # -- life and death -----------------------------------------------------------------------

    def die(self) -> None:
        """Lose everything in memory."""
        self.is_dead = True
        self.inbox.clear()

    def fail(self, reason: str, *, is_fatal: bool) -> None:
        """As a task that raises: say why, then die; Spark notices."""
        self._scheduler.note(f"{self.endpoint.name} fails: {reason}")
        failed = c.NodeFailed(self.node, self.incarnation, reason, is_fatal)
        self.life.receive(self, failed, self.incarnation)
        self.die()
        self.life.process_died(self, reason)

    # -- the loop ---------------------------------------------------------------------------

    def _turn_soon(self, delay_us: int | None = None) -> None:
        if not self._is_turn_due:
            self._is_turn_due = True
            if delay_us is None:
                delay_us = _TURN_US * self._world.strikes.ailments.slowness(self.endpoint.machine)
            self._scheduler.after(delay_us, self._turn)

    def _turn(self) -> None:
        self._is_turn_due = False
        if self.is_dead:
            return
        paused_us = self.paused_until_us - self._scheduler.now_us
        if paused_us > 0:
            self._turn_soon(paused_us)
            return
        for _ in range(min(_MESSAGES_PER_TURN, len(self.inbox))):
            if self.inbox:
                self._step(self.inbox.popleft())
        has_work = not self.is_dead and self.core.has_work
        if has_work:
            seed = self._scheduler.uniform("node/seed", 0, 1 << 62)
            clock_us = self._world.clocks[self.endpoint.machine].day_us()
            self._step(events.Proceed(clock_us, seed))
        has_changed = self._check_windows() or has_work
        if not self.is_dead and (self.inbox or (has_changed and self.core.has_work)):
            self._turn_soon()

    def _check_windows(self) -> bool:
        """Behind now and then a pass a node has time for windows; whether it took a step."""
        if self.plan.footprints is None or self.is_dead or self.machine is None:
            return False
        if self._scheduler.uniform("node/background", 0, 2) != 0:
            return False
        windows = self._scheduler.uniform("node/windows", 1, 4)
        check = events.CheckWindows(windows, _COSTS, marks_apart_ms=self._points_apart_ms())
        for _ in range(_PIECES):  # No pass is due between them.
            if not self.is_dead:
                self._step(check)
        return True

    def _points_apart_ms(self) -> int:
        """What this process is told: for some points cost so much that they are seldom."""
        if self._apart_ms is None:
            is_dear = self._scheduler.percent("node/marks", _DEAR_POINTS_PERCENT)
            self._apart_ms = self._scheduler.uniform("node/marks", 50, 1_000) if is_dear else 0
        return self._apart_ms

    def _step(self, stimulus: Stimulus) -> None:
        if type(stimulus) in _STEPS and self._dies_at(_STEPS[type(stimulus)]):
            return
        self._scheduler.note(f"{self.endpoint.name} {type(stimulus).__name__}")
        before = self._consistency
        effects = self._world.stepped(self, stimulus, self._now_ms())
        self._perform(effects)
        if before is not None and not self.is_dead:
            for step in steps_passed(stimulus, effects, before, self._consistency):
                self._world.strikes.passed(step, self)
        while self.at_once and not self.is_dead:
            self._step(self.at_once.popleft())

    @property
    def _consistency(self) -> Consistency | None:
        """The state of a node that may go on without missing input; None: it is none, or silent."""
        if self.plan.delays is None or self.machine is None:
            return None
        consistency = self.machine.consistency
        return None if consistency is None else consistency.state

    def _perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            if self.is_dead:
                return
            self._world.performing(self, effect)
            try:
                _PERFORMERS[type(effect)](self, effect)
            except Damage as damage:
                self.fail(str(damage), is_fatal=False)
                return
            if type(effect) in _EFFECT_STEPS:
                self._world.strikes.passed(_EFFECT_STEPS[type(effect)], self)

    def answer(self, stimulus: Stimulus, delay_us: int) -> None:
        """Put a stimulus into the inbox a little later."""
        self._scheduler.after(delay_us, lambda: self.take(stimulus))

    def disk_us(self) -> int:
        """How long its disk takes to sync or read, this time."""
        machine = self.endpoint.machine
        disk_us = self._scheduler.uniform("disk", 100, self._world.disk_us)
        return disk_us * self._world.strikes.ailments.disk_slowness(machine)

    def store_us(self) -> int:
        """How long the store takes, this time."""
        return self._scheduler.uniform("store", 100, self._world.disk_us)

    def dies_of_a_full_disk(self) -> bool:
        """Whether nothing can be written; then the process fails."""
        if not self._world.strikes.ailments.is_disk_full(self.endpoint.machine):
            return False
        self.fail("no space left on device", is_fatal=True)
        return True

    # -- effects ----------------------------------------------------------------------------

    def _set_timer(self, effect: SetTimer) -> None:
        self._timers[effect.name] = effect.at_ms

        def fire() -> None:
            if self._timers.get(effect.name) == effect.at_ms and not self.is_dead:
                del self._timers[effect.name]
                self.take(TimerFired(effect.name))

        self._world.clocks[self.endpoint.machine].wait_until(effect.at_ms, fire)

    def _report_gap(self, _: events.ReportGap) -> None:
        self._world.count("gap reported")

    def _nothing(self, _: Effect) -> None:
        """Nothing that a run can see."""


_PERFORMERS: dict[type[Effect], Callable[[Process, Any], None]] = {
    **dict.fromkeys(WORDS, lambda process, effect: process.reports.report(effect)),
    BeginIncarnation: Process._begin,
    Connect: lambda process, effect: process.channels.connect(effect),
    Disconnect: lambda process, effect: process.channels.disconnect(effect),
    Fail: Process._die_of,
    SetTimer: Process._set_timer,
    **dict.fromkeys(
        (
            events.SendBatch,
            events.SendNotes,
            events.SendBoundary,
            events.SendPositions,
            events.SendPageRun,
            events.SendDelta,
        ),
        lambda process, effect: process.channels.send(effect),
    ),
    **dict.fromkeys(
        (events.SendDeltaAck, events.SendSubscribe, events.SendAck),
        lambda process, effect: process.channels.answer(effect),
    ),
    OpenSources: lambda process, effect: process.sources.open(effect),
    events.ReadSource: lambda process, effect: process.sources.read(effect),
    OpenSinks: lambda process, effect: process.logs.open(effect),
    ReadRecordedPasses: lambda process, effect: process.logs.read_recorded(effect),
    ReadExtent: lambda process, effect: process.logs.read_extent(effect),
    events.WriteSink: lambda process, effect: process.logs.write(effect),
    events.ReadPasses: lambda process, effect: process.logs.read_passes(effect),
    events.SyncSink: lambda process, effect: process.logs.sync(effect),
    events.SpillBatches: lambda process, effect: process.spills.write(effect),
    events.ReadSpill: lambda process, effect: process.spills.read(effect),
    OpenStore: lambda process, effect: process.checkpoints.open(effect),
    LoadCheckpoint: lambda process, effect: process.checkpoints.load(effect),
    ReportDamage: lambda process, effect: process.checkpoints.damaged(effect),
    events.WriteCheckpoint: lambda process, effect: process.checkpoints.write(effect),
    events.CancelCheckpoint: lambda process, effect: process.checkpoints.cancel(effect),
    events.ForgetCheckpoints: lambda process, effect: process.checkpoints.forget(effect),
    events.ReportPromoted: lambda process, effect: process.reports.promoted(effect),
    events.ReportGap: Process._report_gap,
    **dict.fromkeys(
        (
            events.EndSink,
            events.FootprintsTaken,
            events.HastenSink,
            events.TrimPasses,
            events.TrimFootprints,
            events.TrimSpill,
            events.ReportCheckpoint,
        ),
        Process._nothing,
    ),
}
