"""A simulated cluster: the real machines, a virtual clock, one seeded scheduler, faults.

One heap of events ordered by (virtual microseconds, sequence number); everything that is not
determined by the machines is drawn here, from one random stream per concern, so that the same seed
gives the same run. Nodes are killed, paused and resumed (a paused node that was replaced comes
back as a zombie), links lose what is in flight or are cut for a while. Machines' invariants are
checked after every step.
"""

from __future__ import annotations

import hashlib
import heapq
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from holdfast.core.coordinator import coordinator as c
from holdfast.core.errors import InvariantViolation
from holdfast.core.haunit import events
from holdfast.core.haunit.node import Node
from holdfast.core.haunit.plan import Assignment, NodePlan
from holdfast.core.machine import Effect, SetTimer, Stimulus, TimerFired
from holdfast.core.model.ids import BEGINNING_US, END_US, Incarnation, NodeId, StreamId

if TYPE_CHECKING:
    from holdfast.core.model.tuples import TupleBatch

_TURN_US = 200
_MESSAGES_PER_TURN = 16


@dataclass(frozen=True, slots=True)
class Faults:
    """What may go wrong in a run; rates are events per virtual second of the faulty phase.

    Attributes:
        kills: Nodes killed with everything they hold in memory.
        pauses: Nodes stopped and continued later.
        losses: Connections that lose what is in flight.
        cuts: Links cut for a while, in one direction.
        until_ms: No fault begins after this virtual time.
        pause_ms: Longest pause and cut.
        buggy: Deliberate bugs switched in, by name; tests of the checker only.
    """

    kills: float = 0.0
    pauses: float = 0.0
    losses: float = 0.0
    cuts: float = 0.0
    until_ms: int = 3_000
    pause_ms: int = 800
    buggy: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class SimulatedSource:
    """All tuples of one source stream, and how fast they come.

    Attributes:
        batches: Consecutive batches from id 0, each with its boundary.
        tuples_per_ms: How many become available per virtual millisecond.
    """

    batches: tuple[TupleBatch, ...]
    tuples_per_ms: float


@dataclass(slots=True)
class _Host:
    """One process that runs a node."""

    node: NodeId
    task: str
    machine: Node | None = None
    inbox: deque[Stimulus] = field(default_factory=deque)
    timers: dict[str, int] = field(default_factory=dict)
    peers: dict[NodeId, tuple[Incarnation, str]] = field(default_factory=dict)
    is_dead: bool = False
    paused_until_us: int = 0
    is_turn_due: bool = False
    spill: dict[StreamId, list[TupleBatch]] = field(default_factory=dict)


@dataclass(slots=True)
class RunResult:
    """What a run came to.

    Attributes:
        sinks: Per sink stream all tuples as (id, time, values), in order.
        virtual_ms: How long it took.
        faults: How many of each kind happened.
        failures: Failures that the coordinator detected.
        digest: Hash over all events; equal for equal runs.
        error: Why the query failed, or None.
        statistics: Sums over the nodes that lived at the end.
    """

    sinks: dict[StreamId, list[tuple[int, int, tuple[Any, ...]]]]
    virtual_ms: int
    faults: dict[str, int]
    failures: int
    digest: str
    error: str | None
    statistics: dict[str, int]


class World:
    """One simulated run of a dataflow."""

    def __init__(
        self,
        plans: tuple[NodePlan, ...],
        sources: dict[StreamId, SimulatedSource],
        *,
        seed: int,
        faults: Faults,
        limits: c.CoordinatorLimits | None = None,
        trace: Callable[[int, str], None] | None = None,
    ) -> None:
        """Prepare; `run` runs to the end."""
        self._plans = {plan.node: plan for plan in plans}
        self._sources = sources
        self._faults = faults
        self._seed = seed
        self._trace = trace
        self._now_us = 0
        self._sequence = 0
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._streams: dict[str, random.Random] = {}
        self._digest = hashlib.blake2b(digest_size=16)
        self._hosts: dict[str, _Host] = {}
        self._links: dict[tuple[str, str], int] = {}  # time of the last delivery
        self._cut_until: dict[tuple[str, str], int] = {}
        self._lost_before: dict[tuple[str, str], int] = {}
        self._sinks: dict[StreamId, list[TupleBatch]] = {}
        self._journal: list[dict[str, object]] = []
        self._coordinator_timers: dict[str, int] = {}
        self._tasks = 0
        self._newest_launch: dict[NodeId, int] = {}
        self._counts: dict[str, int] = {}
        self._is_done = False
        self.error: str | None = None
        self._producer_of: dict[StreamId, NodeId] = {}
        self._receiver_of: dict[StreamId, NodeId] = {}
        for plan in plans:
            for spec in plan.inputs:
                self._receiver_of[spec.stream] = plan.node
                if spec.producer is not None:
                    self._producer_of[spec.stream] = spec.producer
        self._coordinator = c.Coordinator(
            plans, epoch=1, limits=limits or c.CoordinatorLimits(failures_max=1_000)
        )

    # -- the scheduler ------------------------------------------------------------------------

    def _random(self, concern: str) -> random.Random:
        stream = self._streams.get(concern)
        if stream is None:
            stream = self._streams[concern] = random.Random(f"{self._seed}/{concern}")
        return stream

    def _uniform(self, concern: str, low: int, high: int) -> int:
        """A whole number in [low, high], from `random()` alone, which no version changes."""
        return low + int(self._random(concern).random() * (high - low + 1))

    def _after(self, delay_us: int, action: Callable[[], None]) -> None:
        self._sequence += 1
        heapq.heappush(self._heap, (self._now_us + delay_us, self._sequence, action))

    def _note(self, text: str) -> None:
        self._digest.update(f"{self._now_us} {text}\n".encode())
        if self._trace is not None:
            self._trace(self._now_us, text)

    def _count(self, kind: str) -> None:
        self._counts[kind] = self._counts.get(kind, 0) + 1

    def run(self, limit_ms: int = 120_000) -> RunResult:
        """Run until the query ends or `limit_ms` of virtual time are over."""
        self._step_coordinator(c.Started())
        for kind, rate in (
            ("kill", self._faults.kills),
            ("pause", self._faults.pauses),
            ("loss", self._faults.losses),
            ("cut", self._faults.cuts),
        ):
            if rate > 0:
                self._plan_fault(kind, rate)
        while self._heap and not self._is_done:
            at_us, _, action = heapq.heappop(self._heap)
            self._now_us = max(self._now_us, at_us)
            if self._now_us > limit_ms * 1_000:
                self.error = f"no end within {limit_ms} ms of virtual time"
                break
            action()
        return self._result()

    def _result(self) -> RunResult:
        statistics: dict[str, int] = {}
        for host in self._hosts.values():
            if host.machine is not None and not host.is_dead:
                counters = host.machine.statistics()
                for name in ("duplicates_dropped", "refused_frames", "replayed_tuples"):
                    statistics[name] = statistics.get(name, 0) + getattr(counters, name)
        return RunResult(
            {stream: _flatten(batches) for stream, batches in self._sinks.items()},
            self._now_us // 1_000,
            dict(self._counts),
            self._coordinator.failures,
            self._digest.hexdigest(),
            self.error,
            statistics,
        )

    # -- faults -------------------------------------------------------------------------------

    def _plan_fault(self, kind: str, rate: float) -> None:
        gap_us = int(-1e6 / rate * _log(1.0 - self._random(f"faults/{kind}").random()))
        if self._now_us + gap_us > self._faults.until_ms * 1_000:
            return

        def strike() -> None:
            self._strike(kind)
            self._plan_fault(kind, rate)

        self._after(gap_us, strike)

    def _strike(self, kind: str) -> None:
        alive = [h for h in self._hosts.values() if not h.is_dead and h.machine is not None]
        if not alive:
            return
        host = alive[self._uniform(f"faults/{kind}", 0, len(alive) - 1)]
        self._count(kind)
        if kind == "kill":
            self._kill(host)
        elif kind == "pause":
            pause_us = self._uniform("faults/pause", 1, self._faults.pause_ms) * 1_000
            host.paused_until_us = self._now_us + pause_us
            self._note(f"pause {host.task} {pause_us}")
        else:
            others = [h.task for h in alive if h is not host] + ["coordinator"]
            other = others[self._uniform(f"faults/{kind}", 0, len(others) - 1)]
            link = (host.task, other) if self._uniform("faults/way", 0, 1) else (other, host.task)
            self._note(f"{kind} {link[0]}>{link[1]}")
            self._lost_before[link] = self._now_us
            if kind == "cut":
                cut_us = self._uniform("faults/cut", 1, self._faults.pause_ms) * 1_000
                self._cut_until[link] = self._now_us + cut_us

    def _kill(self, host: _Host) -> None:
        host.is_dead = True
        self._note(f"kill {host.task}")
        launch = int(host.task.split("|")[1])
        report_us = self._uniform("spark", 5_000, 400_000)
        if host.node in self._plans:
            ended = c.TaskEnded(host.node, launch, "killed")
            self._after(report_us, lambda: self._step_coordinator(ended))

    # -- the network --------------------------------------------------------------------------

    def _transmit(self, sender: str, receiver: str, deliver: Callable[[], None]) -> None:
        """Deliver in order per link after a delay, unless the link loses or is cut."""
        link = (sender, receiver)
        if self._now_us < self._cut_until.get(link, 0):
            return
        sent_us = self._now_us
        at_us = max(
            self._links.get(link, 0) + 1, sent_us + self._uniform(f"net/{sender}", 50, 2_000)
        )
        self._links[link] = at_us

        def arrive() -> None:
            if sent_us > self._lost_before.get(link, -1) or not self._was_cut(link, sent_us):
                deliver()

        self._after(at_us - self._now_us, arrive)

    def _was_cut(self, link: tuple[str, str], sent_us: int) -> bool:
        return sent_us <= self._lost_before.get(link, -1)

    def _to_node(self, sender: str, receiver: str, stimulus: Stimulus) -> None:
        host = self._hosts.get(receiver)
        if host is None:
            return

        def deliver() -> None:
            if not host.is_dead:
                host.inbox.append(stimulus)
                self._turn_soon(host)

        self._transmit(sender, receiver, deliver)

    # -- the coordinator ----------------------------------------------------------------------

    def _step_coordinator(self, stimulus: Stimulus) -> None:
        if self._is_done:
            return
        self._note(f"coordinator {type(stimulus).__name__}")
        for effect in self._coordinator.step(stimulus, self._now_us // 1_000):
            self._perform_coordinator(effect)
        self._coordinator.check_invariants()

    def _perform_coordinator(self, effect: Effect) -> None:
        match effect:
            case SetTimer():
                delay_us = max(0, effect.at_ms * 1_000 - self._now_us)
                timer = TimerFired(effect.name)
                self._after(delay_us, lambda: self._step_coordinator(timer))
            case c.LaunchTask():
                self._launch(effect.node, effect.launch)
            case c.EndTask():
                host = self._hosts.get(effect.task)
                if host is not None and self._uniform("spark/end", 0, 3):
                    host.is_dead = True  # One in four stays: a zombie.
            case c.WriteJournal():
                self._write_journal(effect)
            case c.SendAssignment():
                self._assign(effect)
            case c.TellPeer():
                peer = (effect.incarnation, effect.endpoint)
                self._tell(effect.node, lambda host: self._meet(host, effect.peer, *peer))
            case c.TellPointStored():
                stored = events.RestartPointStored(effect.sequence)
                self._tell(effect.node, lambda host: host.inbox.append(stored))
            case c.FinishQuery():
                self._is_done = True
            case c.FailQuery():
                self.error = effect.reason
                self._is_done = True

    def _launch(self, node: NodeId, launch: int) -> None:
        self._tasks += 1
        self._newest_launch[node] = launch
        host = _Host(node, f"{node}|{launch}|{self._tasks}")

        def up() -> None:
            self._hosts[host.task] = host
            self._hello(host)

        self._after(self._uniform("spark/launch", 20_000, 250_000), up)

    def _hello(self, host: _Host) -> None:
        """Said again until the answer comes."""
        if host.is_dead or host.machine is not None or self._is_done:
            return
        hello = c.HelloReceived(host.node, host.task, host.task)
        self._transmit(host.task, "coordinator", lambda: self._receive_hello(host, hello))
        self._after(500_000, lambda: self._hello(host))

    def _receive_hello(self, host: _Host, hello: c.HelloReceived) -> None:
        if int(host.task.split("|")[1]) == self._newest_launch[host.node]:
            self._step_coordinator(hello)
        else:
            host.is_dead = True

    def _write_journal(self, effect: c.WriteJournal) -> None:
        def written() -> None:
            self._journal.extend(effect.entries)
            self._step_coordinator(c.JournalWritten(effect.request_id))

        self._after(self._uniform("journal", 100, 5_000), written)

    def _tell(self, node: NodeId, action: Callable[[_Host], None]) -> None:
        """Something reaches the newest process of a node, over the network."""
        newest = [h for h in self._hosts.values() if h.node == node]
        if not newest:
            return
        host = newest[-1]

        def deliver() -> None:
            if not host.is_dead:
                action(host)
                self._turn_soon(host)

        self._transmit("coordinator", host.task, deliver)

    def _assign(self, effect: c.SendAssignment) -> None:
        host = self._hosts[effect.task]

        def deliver() -> None:
            if host.is_dead:
                return
            sinks = [s for o in self._plans[host.node].outputs if o.is_sink for s in o.streams]
            next_ids = {s: _next_id(self._sinks.setdefault(s, [])) for s in sinks}
            given = effect.assignment
            assignment = Assignment(given.epoch, given.incarnation, given.restart_point, next_ids)
            host.machine = Node(self._plans[host.node], assignment, self._now_us // 1_000)
            self._note(f"assigned {host.task} {given.incarnation}")
            self._perform(host, host.machine.start(self._now_us // 1_000))
            for peer, (incarnation, endpoint) in effect.peers.items():
                self._meet(host, peer, incarnation, endpoint)
            self._keep_alive(host)
            self._turn_soon(host)

        self._transmit("coordinator", host.task, deliver)

    def _meet(self, host: _Host, peer: NodeId, incarnation: Incarnation, endpoint: str) -> None:
        host.peers[peer] = (incarnation, endpoint)
        host.inbox.append(events.PeerIncarnationLearned(peer, incarnation))

    def _keep_alive(self, host: _Host) -> None:
        machine = host.machine
        if host.is_dead or machine is None or self._is_done:
            return
        if self._now_us < host.paused_until_us:
            self._after(host.paused_until_us - self._now_us, lambda: self._keep_alive(host))
            return
        alive = c.KeepAliveReceived(host.node, machine.incarnation, machine.known_peers())
        self._transmit(host.task, "coordinator", lambda: self._from_node(host, alive))
        self._after(100_000, lambda: self._keep_alive(host))

    def _from_node(self, host: _Host, stimulus: Stimulus) -> None:
        machine = host.machine
        if machine is not None and not self._coordinator.is_current(host.node, machine.incarnation):

            def fenced() -> None:
                host.is_dead = True

            self._transmit("coordinator", host.task, fenced)
            return
        self._step_coordinator(stimulus)

    # -- nodes --------------------------------------------------------------------------------

    def _turn_soon(self, host: _Host, delay_us: int = _TURN_US) -> None:
        if not host.is_turn_due:
            host.is_turn_due = True
            self._after(delay_us, lambda: self._turn(host))

    def _turn(self, host: _Host) -> None:
        host.is_turn_due = False
        if host.is_dead or self._is_done:
            return
        if self._now_us < host.paused_until_us:
            self._turn_soon(host, host.paused_until_us - self._now_us)
            return
        machine = host.machine
        if machine is None:
            return
        for _ in range(min(_MESSAGES_PER_TURN, len(host.inbox))):
            self._step(host, machine, host.inbox.popleft())
        if machine.has_work:
            self._step(host, machine, events.Proceed())
        if host.inbox or machine.has_work:
            self._turn_soon(host)

    def _step(self, host: _Host, machine: Node, stimulus: Stimulus) -> None:
        self._note(f"{host.task} {type(stimulus).__name__}")
        effects = machine.step(stimulus, self._now_us // 1_000)
        machine.check_invariants()
        self._perform(host, effects)

    def _perform(self, host: _Host, effects: list[Effect]) -> None:
        for effect in effects:
            self._perform_one(host, effect)

    def _perform_one(self, host: _Host, effect: Effect) -> None:
        machine = host.machine
        if machine is None:
            raise InvariantViolation("an effect without a machine")
        own = machine.incarnation
        match effect:
            case SetTimer():
                self._set_timer(host, effect)
            case events.SendBatch():
                batch = events.BatchReceived(effect.stream, own, effect.receiver, effect.batch)
                self._send_down(host, effect.stream, batch)
            case events.SendBoundary():
                boundary = events.BoundaryReceived(
                    effect.stream, own, effect.receiver, effect.sent_before, effect.boundary_us
                )
                self._send_down(host, effect.stream, boundary)
            case events.SendSubscribe():
                subscribe = events.SubscribeReceived(
                    effect.stream,
                    own,
                    effect.producer,
                    effect.from_id,
                    effect.needed_from,
                    effect.credit_until,
                )
                self._send_up(host, effect.stream, subscribe)
            case events.SendAck():
                ack = events.AckReceived(
                    effect.stream,
                    own,
                    effect.producer,
                    effect.received_before,
                    effect.needed_from,
                    effect.credit_until,
                )
                self._send_up(host, effect.stream, ack)
            case events.ReadSource():
                self._read_source(host, effect)
            case events.WriteSink():
                self._write_sink(effect)
            case events.SyncSink():
                synced = events.SinkSynced(effect.stream, _next_id(self._sinks[effect.stream]))
                self._answer(host, synced, self._uniform("disk", 100, 8_000))
            case events.SpillBatches():
                host.spill.setdefault(effect.stream, []).extend(effect.batches)
            case events.ReadSpill():
                batches = _between(host.spill[effect.stream], effect.from_id, effect.to_id)
                read = events.SpillRead(effect.stream, effect.request_id, batches)
                self._answer(host, read, self._uniform("disk", 100, 8_000))
            case events.StoreRestartPoint():
                point = c.RestartPointReceived(host.node, own, effect.point)
                self._say(host, point)
            case events.ReportCaughtUp():
                self._say(host, c.NodeCaughtUp(host.node, own, effect.replayed_tuples))
            case events.ReportFirstOutput():
                self._say(host, c.FirstOutput(host.node, own))
            case events.ReportFinished():
                self._say(host, c.NodeFinished(host.node, own))
            case _:
                pass  # EndSink and TrimSpill change nothing that a run can see.

    def _say(self, host: _Host, stimulus: Stimulus) -> None:
        self._transmit(host.task, "coordinator", lambda: self._from_node(host, stimulus))

    def _answer(self, host: _Host, stimulus: Stimulus, delay_us: int) -> None:
        def answer() -> None:
            if not host.is_dead:
                host.inbox.append(stimulus)
                self._turn_soon(host)

        self._after(delay_us, answer)

    def _set_timer(self, host: _Host, effect: SetTimer) -> None:
        host.timers[effect.name] = effect.at_ms

        def fire() -> None:
            if host.timers.get(effect.name) == effect.at_ms and not host.is_dead:
                del host.timers[effect.name]
                host.inbox.append(TimerFired(effect.name))
                self._turn_soon(host)

        self._after(max(0, effect.at_ms * 1_000 - self._now_us), fire)

    def _send_down(self, host: _Host, stream: StreamId, stimulus: Stimulus) -> None:
        """To the process that subscribed last, as a ROUTER would."""
        receivers = [h for h in self._hosts.values() if h.node == self._receiver_of[stream]]
        for receiver in receivers[-2:]:
            known = receiver.peers.get(host.node)
            if known is not None and known[1] == host.task:
                self._to_node(host.task, receiver.task, stimulus)

    def _send_up(self, host: _Host, stream: StreamId, stimulus: Stimulus) -> None:
        known = host.peers.get(self._producer_of[stream])
        if known is not None:
            self._to_node(host.task, known[1], stimulus)

    def _read_source(self, host: _Host, effect: events.ReadSource) -> None:
        source = self._sources[effect.stream]
        available = int(self._now_us / 1_000 * source.tuples_per_ms)
        total = _next_id(list(source.batches))
        limit = min(total, available, effect.from_id + effect.max_tuples)
        cut = self._uniform(f"source/{effect.stream}", 1, 64)
        limit = min(limit, effect.from_id + cut)
        batches = _between(list(source.batches), effect.from_id, limit)
        boundary_us = BEGINNING_US
        if batches:
            boundary_us = batches[-1].boundary_us
        if max(limit, effect.from_id) >= total:
            boundary_us = END_US
        read = events.SourceRead(effect.stream, batches, boundary_us)
        self._answer(host, read, self._uniform("source/read", 20, 500))

    def _write_sink(self, effect: events.WriteSink) -> None:
        """A log takes a tuple id once; what a zombie writes again is identical or refused."""
        log = self._sinks.setdefault(effect.stream, [])
        next_id = _next_id(log)
        if effect.batch.first_id > next_id:
            raise InvariantViolation(f"{effect.stream}: gap before {effect.batch.first_id}")
        if effect.batch.next_id > next_id:
            log.append(effect.batch.starting_at(next_id))


def _log(x: float) -> float:
    import math

    return math.log(x)


def _next_id(batches: list[TupleBatch]) -> int:
    return batches[-1].next_id if batches else 0


def _between(batches: list[TupleBatch], from_id: int, to_id: int) -> tuple[TupleBatch, ...]:
    """The tuples with ids in [from_id, to_id); a cut batch keeps only a boundary that holds."""
    from dataclasses import replace

    cut: list[TupleBatch] = []
    for batch in batches:
        if batch.next_id <= from_id or batch.first_id >= to_id:
            continue
        batch = batch.starting_at(from_id)
        if batch.next_id > to_id:
            rows = batch.batch.slice(0, to_id - batch.first_id)
            batch = replace(batch, batch=rows, boundary_us=BEGINNING_US)
        cut.append(batch)
    return tuple(cut)


def _flatten(batches: list[TupleBatch]) -> list[tuple[int, int, tuple[Any, ...]]]:
    rows: list[tuple[int, int, tuple[Any, ...]]] = []
    for batch in batches:
        columns = [column.to_pylist() for column in batch.batch.columns]
        for i in range(batch.count):
            values = tuple(column[i] for column in columns[:-1])
            rows.append((batch.first_id + i, columns[-1][i], values))
    return rows
