"""HA's simulated system, around Holdfast's own machines. [HA §7, Table 5]

The same `Node` and `Coordinator` as everywhere, in the simulator's world with what an experiment
needs to be like the paper's: constant delays, links that send one frame after the other at 16 Mbps,
processing that takes time, a failure that only missed keep-alives give away, and bytes by kind of
message. A chain of three units runs: a source `up`, the unit `query`, and `down` with a sink.

What the paper's redirection takes (r = 40 ms) is here: the replacement comes up, says hello, is
told its assignment, and subscribes upstream. The three words take three network delays; the coming
up is made to take the rest. A passive secondary is told, and subscribes: it is made to wait for the
rest too. An active one has its input already.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from holdfast.core.coordinator import events as c
from holdfast.core.coordinator.limits import CoordinatorLimits
from holdfast.core.haunit import events
from holdfast.core.haunit.plan import Standby
from holdfast.core.haunit.told import PromotionReceived
from holdfast.core.model.ids import NodeId
from holdfast.sim.driver import Life
from holdfast.sim.network import Network
from holdfast.sim.process import Process
from holdfast.sim.process_channels import ProcessChannels
from holdfast.sim.process_sources import ProcessSources
from holdfast.sim.world import Conditions, World
from holdfast_bench.ha import paper

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.core.coordinator.journal_entries import JournalEntry
    from holdfast.core.haunit.plan import NodePlan
    from holdfast.core.machine import Effect, Stimulus
    from holdfast.core.model.ids import StreamId
    from holdfast.core.wire.messages import NodeMessage
    from holdfast.sim.network import Endpoint, NetworkProfile
    from holdfast.sim.scheduler import Scheduler
    from holdfast.sim.workload.source import SimulatedSource

QUERY: Final = NodeId("query[0]")
_DELAY_US: Final = paper.NETWORK_DELAY_MS * 1000
_WORDS_UNTIL_REDIRECTED: Final = 3
_COMES_UP_US: Final = paper.REDIRECT_MS * 1000 - _WORDS_UNTIL_REDIRECTED * _DELAY_US
_IS_PROMOTED_US: Final = _COMES_UP_US + _DELAY_US
_TURN_US: Final = 5
_READ_US: Final = 10
_SETTLED_US: Final = 200_000
_POSITION_IDS: Final = 2
"""An acknowledgement carries a position of level 0 and one of level 1."""
_JOURNAL_US: Final = 100


@dataclass(slots=True)
class Traffic:
    """Bytes by kind of message, counted as the paper counts: 50 per tuple, 8 per id.

    Attributes:
        tuples: Tuples to the unit.
        secondary_tuples: The same tuples, to its secondary.
        acks: Acknowledgements of the unit, and of its secondary.
        positions: What the primary tells the secondary, differences of the state included.
        restart_points: To the coordinator, and its answers: not in the paper.
        checkpoints: Written to a store: not in the paper, and as large as they are.
        boundaries: Keep-alives and boundaries on the unit's input: not for protection.
    """

    tuples: int = 0
    secondary_tuples: int = 0
    acks: int = 0
    positions: int = 0
    restart_points: int = 0
    checkpoints: int = 0
    boundaries: int = 0


@dataclass(slots=True)
class Measured:
    """One run.

    Attributes:
        traffic: From when the system had settled until the failure.
        seconds: How long that was.
        failed_us: When the unit's node failed.
        detected_us: When the coordinator took it for lost.
        recovered_us: When a replica that counts had reached the state before the failure.
        reached_us: The boundary that the failed node had acted on.
        lost_tuples: Input tuples reported as lost, after amnesia.
        is_over: Whether the unit has recovered.
    """

    traffic: Traffic = field(default_factory=Traffic)
    seconds: float = 0.0
    failed_us: int = -1
    detected_us: int = -1
    recovered_us: int = -1
    reached_us: int = 0
    lost_tuples: int = 0
    is_over: bool = False

    @property
    def recovery_ms(self) -> float:
        """The paper's recovery time: from detection until the state is there again."""
        return (self.recovered_us - self.detected_us) / 1000

    @property
    def detection_ms(self) -> float:
        """From the failure until it was known."""
        return (self.detected_us - self.failed_us) / 1000


class ExperimentWorld(World):
    """One run with one failure of the unit `query`."""

    def __init__(
        self,
        plans: tuple[NodePlan, ...],
        sources: dict[StreamId, SimulatedSource],
        *,
        seed: int,
        tuple_cost_us: float,
        opens_over_tuples: int = 0,
        send_cost_us: float = 0.0,
        settle_us: int,
        period_us: int,
    ) -> None:
        """Prepare.

        Args:
            plans: The chain.
            sources: What arrives.
            seed: Of the moment of failure, and of the phases of all timers.
            tuple_cost_us: Processing time per input tuple of the unit.
            opens_over_tuples: A replacement that begins empty opens its windows one after another
                over so many tuples, and takes proportionally less until then; 0: all at once.
            send_cost_us: What a tuple takes a replacement before it is processed; 0: tuples are
                sent while others are processed.
            settle_us: The failure comes this long after the beginning, or later.
            period_us: How much later, at most; and over how long nodes come up, so that their
                timers are out of step. At least M.
        """
        super().__init__(
            plans,
            sources,
            seed=seed,
            conditions=Conditions(disk_us=_JOURNAL_US),
            limits=CoordinatorLimits(failures_max=1_000, launches_max=1_000),
        )
        self.network = ExperimentNetwork(self.scheduler, Conditions().network)
        self._tuple_cost_us = tuple_cost_us
        self._opens_over_tuples = opens_over_tuples
        self._send_cost_us = send_cost_us
        self.measured = Measured()
        self.period_us = period_us
        failed_us = settle_us + self.scheduler.uniform("failure", 0, period_us)
        self._counts_from_us = min(_SETTLED_US + settle_us // 2, settle_us)
        self.scheduler.after(failed_us, self._fail)

    def measure(self) -> Measured:
        """Run until the unit has recovered."""
        self.run()
        return self.measured

    def new_life(self, epoch: int, entries: tuple[JournalEntry, ...]) -> Life:
        """One that tells when it has noticed the failure."""
        return ExperimentLife(self, epoch, entries)

    def new_process(self, life: Life, node: NodeId, launch: int) -> Process:
        """One whose processing takes time."""
        process = ExperimentProcess(self, life, node, launch, len(self.processes))
        self.processes[process.endpoint.name] = process
        return process

    def cost_us(self, before: int, after: int, *, is_replacement: bool) -> float:
        """What the unit's input tuples take, counted from its incarnation's first one."""
        over = self._opens_over_tuples if is_replacement else 0
        sending = self._send_cost_us * (after - before) if is_replacement else 0.0
        full = sending + self._tuple_cost_us * (after - max(before, min(over, after)))
        opening = range(before, min(over, after))
        return full + sum(self._tuple_cost_us * (number + 0.5) / over for number in opening)

    # -- the failure ------------------------------------------------------------------------

    def _fail(self) -> None:
        """The unit's primary dies."""
        measured, now_us = self.measured, self.scheduler.now_us
        for process in list(self.processes.values()):
            if process.node != QUERY or not _counts(process):
                continue
            if isinstance(process, ExperimentProcess):
                measured.reached_us = process.reached_us
            measured.failed_us = now_us
            measured.seconds = (now_us - self._counts_from_us) / 1e6
            self.strikes.kill(process)

    def detected(self, node: NodeId) -> None:
        """The coordinator has noticed."""
        if node == QUERY and self.measured.detected_us < 0:
            self.measured.detected_us = self.scheduler.now_us

    def look(self, process: ExperimentProcess) -> None:
        """Whether this process has brought the unit back."""
        measured = self.measured
        if measured.detected_us < 0 or measured.is_over or process.node != QUERY:
            return
        if _counts(process) and process.reached_us >= measured.reached_us:
            measured.recovered_us = self.scheduler.now_us
            measured.is_over = True
            self.finished(process.life)

    # -- bytes ------------------------------------------------------------------------------

    @property
    def counts(self) -> bool:
        """Whether what is sent now is counted."""
        return self.measured.failed_us < 0 and self.scheduler.now_us >= self._counts_from_us

    def sent(self, sender: Process, receiver: Process, message: NodeMessage, size: int) -> None:
        """A message between nodes; those on the unit's input side, and inside it, count."""
        if not self.counts:
            return
        traffic = self.measured.traffic
        match message:
            case events.BatchReceived() if receiver.node == QUERY:
                if _counts(receiver):
                    traffic.tuples += size
                else:
                    traffic.secondary_tuples += size
            case events.AckReceived() if sender.node == QUERY and receiver.node != QUERY:
                traffic.acks += size
            case events.BoundaryReceived() if receiver.node == QUERY:
                traffic.boundaries += size
            case _ if sender.node == QUERY and receiver.node == QUERY:
                traffic.positions += size

    def performing(self, process: Process, effect: Effect) -> None:
        """What goes to the coordinator or the store."""
        super().performing(process, effect)
        if isinstance(effect, events.ReportGap) and process.node == QUERY:
            self.measured.lost_tuples += effect.to_id - effect.from_id
        if process.node != QUERY or not self.counts:
            return
        if isinstance(effect, events.StoreRestartPoint):
            point = effect.point
            ids = len(point.needed_from) + len(point.processed_before) + len(point.next_ids) + 2
            self.measured.traffic.restart_points += (ids + 1) * paper.ID_BYTES
        elif isinstance(effect, events.ReportCheckpoint):
            self.measured.traffic.checkpoints += effect.written_bytes


class ExperimentNetwork(Network):
    """Every link sends one frame after the other, and each arrives after the same delay."""

    def __init__(self, scheduler: Scheduler, profile: NetworkProfile) -> None:
        """Idle links."""
        super().__init__(scheduler, profile)
        self._free_us: dict[tuple[str, str], int] = {}  # when a link has sent what it was given

    def send(
        self,
        sender: Endpoint,
        receiver: Endpoint,
        size_bytes: int,
        deliver: Callable[[bool], None],
    ) -> None:
        """Call `deliver(False)` when the frame has arrived; none is ever lost."""
        key = (sender.name, receiver.name)
        free_us = max(self._free_us.get(key, 0), self._scheduler.now_us)
        free_us += size_bytes * 1000 // paper.NETWORK_BYTES_PER_MS
        self._free_us[key] = free_us
        self._scheduler.after(free_us + _DELAY_US - self._scheduler.now_us, lambda: deliver(False))


class ExperimentLife(Life):
    """Spark replaces nothing by itself, and reports nothing: keep-alives alone tell."""

    def _perform(self, effect: Effect) -> None:
        if isinstance(effect, c.ReportFailure) and isinstance(self._world, ExperimentWorld):
            self._world.detected(effect.node)
        super()._perform(effect)

    def _spawn(self, node: NodeId, launch: int, soonest_us: int, latest_us: int) -> None:
        """A first launch comes up at any moment, so that timers are out of step."""
        comes_up_us = _COMES_UP_US
        if launch <= 2 and self._scheduler.now_us < _SETTLED_US:
            latest_us = self._world.period_us if isinstance(self._world, ExperimentWorld) else 0
            comes_up_us += self._scheduler.uniform(f"phase/{node}/{launch}", 0, latest_us)
        super()._spawn(node, launch, comes_up_us, comes_up_us)

    def process_died(self, process: Process, reason: str) -> None:
        """Nobody says so."""


class ExperimentProcess(Process):
    """A process whose passes take as long as their tuples cost."""

    def __init__(
        self, world: ExperimentWorld, life: Life, node: NodeId, launch: int, number: int
    ) -> None:
        """Come up."""
        super().__init__(world, life, node, launch, number)
        self._experiment = world
        self._busy_until_us = 0
        self.reached_us = -(2**62)
        self.channels = _CountedChannels(self, world)
        self.sources = _PromptSources(self, world)

    def take(self, stimulus: Stimulus) -> None:
        """A passive secondary's inputs take r to be redirected."""
        take = super().take
        if isinstance(stimulus, PromotionReceived) and self.plan.standby is Standby.PASSIVE:
            self._scheduler.after(_IS_PROMOTED_US, lambda: take(stimulus))
        else:
            take(stimulus)

    def opening_us(self) -> int:
        """HA's processes have no logs to look at."""
        return 0

    def _turn_soon(self, delay_us: int | None = None) -> None:
        super()._turn_soon(_TURN_US if delay_us is None else delay_us)

    def _turn(self) -> None:
        busy_us = self._busy_until_us - self._scheduler.now_us
        if busy_us > 0 and not self.is_dead:
            self._is_turn_due = False
            self._turn_soon(busy_us)
            return
        super()._turn()

    def _step(self, stimulus: Stimulus) -> None:
        """Passes take time; what comes of them is there afterwards, if the process still is."""
        is_pass = isinstance(stimulus, events.Proceed) and self.node == QUERY
        machine = self.machine
        if not is_pass or machine is None:
            super()._step(stimulus)
            return
        before = machine.input_tuples
        effects = self._world.stepped(self, stimulus, self._now_ms())
        cost_us = round(
            self._experiment.cost_us(before, machine.input_tuples, is_replacement=self.launch > 1)
        )
        boundary_us = machine.statistics().boundary_us
        self._busy_until_us = self._scheduler.now_us + cost_us

        def done() -> None:
            if not self.is_dead:
                self.reached_us = boundary_us
                self._perform(effects)
                self._experiment.look(self)

        self._scheduler.after(cost_us, done)

    def _perform(self, effects: list[Effect]) -> None:
        super()._perform(effects)
        if any(isinstance(effect, events.ReportPromoted) for effect in effects):
            self._experiment.look(self)


class _CountedChannels(ProcessChannels):
    """Links on which messages are as large as in the paper, and are counted."""

    def __init__(self, process: ExperimentProcess, world: ExperimentWorld) -> None:
        super().__init__(process, world)
        self._experiment = world

    def _transmit(self, target: Endpoint, stimulus: NodeMessage, size_bytes: int) -> None:
        receiver = self._world.processes.get(target.name)
        size = _paper_bytes(stimulus, size_bytes)
        if receiver is not None:
            self._experiment.sent(self._process, receiver, stimulus, size)
        super()._transmit(target, stimulus, size)


class _PromptSources(ProcessSources):
    """Sources that give all that has arrived, at once."""

    def read(self, effect: events.ReadSource) -> None:
        source = self._reader(effect.stream)
        now_us = self._scheduler.now_us
        batches, boundary_us = source.read(effect.from_id, effect.max_tuples, now_us)
        self._process.answer(events.SourceRead(effect.stream, batches, boundary_us), _READ_US)


def _counts(process: Process) -> bool:
    """Whether it lives, and is no secondary."""
    machine = process.machine
    return not process.is_dead and machine is not None and not machine.is_secondary


def _paper_bytes(message: NodeMessage, size_bytes: int) -> int:
    """A message's size as the paper counts: tuples and ids, no headers; pages as they are."""
    match message:
        case events.BatchReceived():
            return message.batch.count * paper.TUPLE_BYTES
        case events.AckReceived() | events.SubscribeReceived():
            return _POSITION_IDS * paper.ID_BYTES
        case events.PositionsReceived():
            return sum(len(pair) for pair in message.positions) * paper.ID_BYTES
        case events.DeltaReceived() | events.PageRunReceived():
            return size_bytes
        case _:
            return paper.ID_BYTES
