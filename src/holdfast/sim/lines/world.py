"""A region of nodes that cut with others, under one seeded scheduler.

Real are the cores: cut rules (core/checkpoint), checkpoint graph, line, Z-paths and plan
(core/recovery), rounds and rollback (core/coordinator). Simulated is what lies around them: nodes
whose state is the list of what they processed (line_node.py), channels that deliver late, a store
and a journal that take their time, a coordinator that forgets (line_coordinator.py). Nodes are
killed, or taken for dead while they still work; checkpoints turn out to be damaged; the driver dies
with whatever it had not written.

The invariants, by name:

    I-LINE     the line of a recovery is the newest consistent one, by brute force; what stays
               processed is what its sender has sent, and in the end everything has been processed
    I-CHANNEL  what is in flight across a complete round is held by its senders, and whoever
               subscribes gets what it asks for
    I-ALIGN    in an aligned round without feedback edges nothing is in flight
    I-ROUND    a complete round has a durable point of every member, and no orphan
    I-CTRL     nobody cuts for a round that it knows to be over
    I-CIC      under bcs, hmnr and lazy-fi no checkpoint is useless
    I-GATE     what has left the region is never sent otherwise
    I-SELF     the cores find no fault with what they are given
    I-LIVE     in the end all that came has been processed, and all results are out
"""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from holdfast.core.coordinator.checkpoint_registry import CheckpointRegistry
from holdfast.core.coordinator.journal_entries import LineMoved, PointNoted, RecoveryDecision
from holdfast.core.errors import InvariantViolation
from holdfast.core.model.ids import Incarnation, PointId
from holdfast.core.recovery.checkpoint_graph import CheckpointGraph, Place, place_of
from holdfast.core.recovery.recovery_line import NoLine, recovery_line
from holdfast.core.recovery.recovery_plan import with_survivors
from holdfast.core.recovery.z_paths import useless_checkpoints
from holdfast.sim.checkers.base import Violation
from holdfast.sim.lines.line_coordinator import LineCoordinator, Recovered, Word
from holdfast.sim.lines.line_node import Label, LineNode, Snapshot
from holdfast.sim.lines.region import PROTOCOLS, LinesPlan, draw_region

if TYPE_CHECKING:
    from holdfast.core.coordinator.journal_entries import JournalEntry
    from holdfast.core.model.ids import NodeId, StreamId
    from holdfast.core.model.notes import StreamNote
    from holdfast.core.recovery.checkpoint_graph import Channel
    from holdfast.core.recovery.recovery_plan import RecoveryPlan
    from holdfast.sim.scheduler import Trace

FAULTS: Final = ("kill", "suspect", "damage", "driver")
_STEPS: Final = 1_500
_DRAIN_STEPS: Final = 60_000
_BRUTE_MAX: Final = 3_000
_INDUCED: Final = ("bcs", "hmnr", "lazy-fi")


@dataclass(frozen=True, slots=True)
class Frame:
    """What crosses a channel downwards: a tuple, or a note."""

    sender: Incarnation
    receiver: Incarnation
    at: int
    what: Label | StreamNote


@dataclass(frozen=True, slots=True)
class LinesOutcome:
    """What a run came to.

    Attributes:
        seed: Of which seed.
        protocol: Which was drawn, or asked for.
        invariant: What was violated; None: nothing.
        violation: In words.
        faults: What struck.
        checkpoints: How many count at the end.
        forced: How many of all cuts were forced.
        useless: How many of those that count are on a Z-cycle.
        rolled_past: How many were newer than the line of a recovery.
        rounds: How many were complete.
        recoveries: How many recoveries were decided.
        stayed: How many nodes went on where they stood in them.
        notes: How many notes were sent.
        tuples: How many tuples were sent between nodes.
    """

    seed: int
    protocol: str
    invariant: str | None
    violation: str
    faults: tuple[str, ...]
    checkpoints: int
    forced: int
    useless: int
    rolled_past: int
    rounds: int
    recoveries: int
    stayed: int
    notes: int
    tuples: int


class LinesWorld:
    """One run."""

    def __init__(
        self,
        seed: int,
        protocol: str | None = None,
        *,
        faults: tuple[str, ...] = FAULTS,
        is_scoped: bool = True,
        trace: Trace | None = None,
    ) -> None:
        """Draw a dataflow, its input, and when to strike."""
        self._trace = trace
        self.rng = random.Random(f"lines {seed}")
        self.seed = seed
        self.region: LinesPlan = draw_region(
            self.rng, protocol or self.rng.choice(PROTOCOLS), is_scoped=is_scoped
        )
        self.labels = itertools.count()
        self.sources = {
            name: [(f"{name}:{i}", self.rng.randint(1, 5)) for i in range(self.rng.randint(20, 80))]
            for name, spec in self.region.specs.items()
            if spec.has_source
        }
        self.cut_share = self.rng.choice((0.05, 0.12, 0.3))
        self.pace = {name: self.rng.choice((1.0, 1.0, 0.4, 0.1)) for name in self.region.specs}
        self.faults_left = [f for f in faults for _ in range(self.rng.choice((0, 0, 1, 2)))]
        self.rng.shuffle(self.faults_left)
        if "damage" in self.faults_left:  # Two at once are more than two lines can bear.
            self.faults_left = ["damage", *(f for f in self.faults_left if f != "damage")]
        self.struck: Counter[str] = Counter()
        self.sinks: dict[StreamId, list[Label]] = {s.sink: [] for s in self.region.specs.values()}
        self.down: dict[StreamId, deque[Frame]] = {c.stream: deque() for c in self.region.channels}
        self.up: dict[StreamId, deque[tuple[object, ...]]] = {
            c.stream: deque() for c in self.region.channels
        }
        self.words_up: deque[tuple[object, ...]] = deque()
        self.journal: list[JournalEntry] = []
        self.store: dict[tuple[NodeId, PointId], Snapshot] = {}
        self.damaged: dict[tuple[NodeId, PointId], None] = {}
        self.nodes: dict[NodeId, LineNode] = {}  # whose process is the node's newest
        self.zombies: list[LineNode] = []
        self.unnoticed: dict[NodeId, None] = {}  # dead, and not yet known to be
        self.epoch = 1
        self.lineage: dict[NodeId, list[Snapshot]] = {name: [] for name in self.region.specs}
        self.forced = self.rolled_past = self.completed = self.recoveries = self.stayed = 0
        self.notes_sent = self.tuples_sent = 0
        self.useless: list[tuple[NodeId, int]] = []
        self.step_number = 0
        self.coordinator = LineCoordinator(self.region, self.journal, self.epoch)

    # -- the scheduler ----------------------------------------------------------------------

    def run(self) -> LinesOutcome:
        """Run to the end."""
        violation: Violation | None = None
        try:
            for _ in range(_STEPS):
                self._step()
                if self.faults_left and self.rng.random() < 0.01:
                    self._strike(self.faults_left.pop())
            self.pace = dict.fromkeys(self.pace, 1.0)
            self._drain()
            self._check_the_end()
            self.useless = useless_checkpoints(self.graph())
            if self.region.protocol in _INDUCED and self.useless:
                raise Violation("I-CIC", f"{self.useless[:3]} are useless")
        except Violation as found:
            violation = found
        except NoLine as found:
            violation = Violation("I-LINE", str(found))
        except InvariantViolation as found:
            violation = Violation("I-SELF", str(found))
        return self._outcome(violation)

    def _drain(self) -> None:
        for _ in range(_DRAIN_STEPS):
            self._step()
            if self.step_number % 50 == 0 and self._is_drained():
                return
        raise Violation("I-LIVE", "the run does not come to an end")

    def _log(self, what: str) -> None:
        if self._trace is not None:
            self._trace(self.step_number, what)

    def _step(self) -> None:
        self.step_number += 1
        kind = self.rng.random()
        if kind < 0.45:
            self._step_a_node()
        elif kind < 0.75 and self.down:
            self._deliver(self.rng.choice(list(self.down)))
        elif kind < 0.85 and self.up:
            self._deliver_up(self.rng.choice(list(self.up)))
        else:
            self._step_the_coordinator()

    def _step_a_node(self) -> None:
        everybody = [*self.nodes.values(), *self.zombies]
        if not everybody:
            return
        node = self.rng.choice(everybody)
        kind = self.rng.random()
        if kind < 0.4:
            if self.rng.random() > self.pace[node.spec.name]:
                return
            if not self.region.is_coordinated and self.rng.random() < self.cut_share:
                node.rule.asked(0)
            sink = self.sinks[node.spec.sink]
            before = getattr(node.rule, "forced", 0)
            node.proceed(self.rng, self.sources.get(node.spec.name, []), len(sink))
            self.forced += getattr(node.rule, "forced", 0) - before
        elif kind < 0.7:
            self._send(node)
        elif kind < 0.8:
            self._ask_and_acknowledge(node)
        elif kind < 0.9:
            self._write_results(node)
        elif node.unwritten:
            self._write_checkpoint(node, node.unwritten.pop(0))

    def _write_checkpoint(self, node: LineNode, snapshot: Snapshot) -> None:
        name, point = node.spec.name, snapshot.point
        self.store[name, PointId(snapshot.incarnation, point.sequence)] = snapshot
        self._log(f"{name}+{snapshot.incarnation} has written checkpoint {point.sequence}")
        self.words_up.append(("written", name, snapshot.incarnation, point))

    # -- channels ---------------------------------------------------------------------------

    def _send(self, node: LineNode) -> None:
        for stream, receiver in zip(node.spec.outputs, node.spec.receivers, strict=True):
            serving = node.served[stream]
            if serving.receiver != node.peers[receiver]:
                continue
            for _ in range(self.rng.randint(0, 6)):
                frame = node.next_frame(stream)
                if frame is None:
                    break
                at, what = frame
                self.down[stream].append(Frame(node.incarnation, serving.receiver, at, what))
                self.tuples_sent += isinstance(what, tuple)
                self.notes_sent += not isinstance(what, tuple)

    def _deliver(self, stream: StreamId) -> None:
        """Some frames arrive; those that are not for the present receiver are lost or refused."""
        queue = self.down[stream]
        sender, receiver = self._ends(stream)
        for _ in range(min(len(queue), self.rng.randint(1, 5))):
            frame = queue.popleft()
            node = self.nodes.get(receiver)
            if node is None or frame.receiver != node.incarnation:
                continue
            if frame.sender != node.peers[sender] or not node.is_subscribed[stream]:
                continue
            self._receive(node, stream, frame)

    def _receive(self, node: LineNode, stream: StreamId, frame: Frame) -> None:
        if isinstance(frame.what, tuple):
            node.receive(stream, frame.at, frame.what)
        else:
            node.rule.noted(node.spec.inputs.index(stream), frame.at, frame.what)

    def _ends(self, stream: StreamId) -> tuple[NodeId, NodeId]:
        channel = next(c for c in self.region.channels if c.stream == stream)
        return channel.sender, channel.receiver

    def _ask_and_acknowledge(self, node: LineNode) -> None:
        for stream, sender in zip(node.spec.inputs, node.spec.senders, strict=True):
            if not sender:
                continue
            head = (node.peers[sender], node.incarnation)
            at = (node.rule.round(), node.cuts[stream], len(node.processed[stream]))
            if not node.is_subscribed[stream]:
                asked = (node.received[stream], node.notes_from[stream])
                self.up[stream].append(("subscribe", *head, *asked, *at))
            else:
                self.up[stream].append(("ack", *head, *at))

    def _deliver_up(self, stream: StreamId) -> None:
        if not self.up[stream]:
            return
        kind, sender, receiver, *rest = self.up[stream].popleft()
        names = self._ends(stream)
        node, asker = self.nodes.get(names[0]), self.nodes.get(names[1])
        if node is None or node.incarnation != sender or node.peers[names[1]] != receiver:
            return
        if kind == "subscribe":
            if asker is None or asker.incarnation != receiver or asker.is_subscribed[stream]:
                return
            if asker.peers[names[0]] != sender or rest[0] != asker.received[stream]:
                return  # It was asked before a recovery.
            node.subscribe(stream, receiver, *rest)  # type: ignore[arg-type]
            self.down[stream].clear()  # A new connection.
            asker.is_subscribed[stream] = True
        elif node.served[stream].receiver == receiver:
            serving = node.served[stream]
            serving.round, serving.cut, serving.processed = rest  # type: ignore[assignment]

    def _write_results(self, node: LineNode) -> None:
        """Results leave through the gate; a replaced writer is fenced by its log."""
        if self.nodes.get(node.spec.name) is not node:
            return
        log, made = self.sinks[node.spec.sink], node.sent[node.spec.sink]
        before = min(node.lets_out_before(), len(made))
        if len(log) < node.held[node.spec.sink]:
            raise Violation("I-CHANNEL", f"{node.spec.sink}: {len(log)} is gone")
        log += made[len(log) : before]

    # -- coordinator ------------------------------------------------------------------------

    def _step_the_coordinator(self) -> None:
        coordinator = self.coordinator
        kind = self.rng.random()
        if kind < 0.2 and self.unnoticed:
            node = self.rng.choice(list(self.unnoticed))
            del self.unnoticed[node]
            coordinator.lost(node)
        elif kind < 0.4 and self.words_up:
            self._hear(self.words_up.popleft())
        elif kind < 0.6 and any(coordinator.words.values()):
            self._tell(self.rng.choice([w for w in coordinator.words.values() if w]).popleft())
        elif kind < 0.8 and coordinator.writing:
            self._write_journal()
        elif kind < 0.9 and coordinator.starts:
            self._start(*coordinator.starts.popleft())
        else:
            self._tick()

    def _tick(self) -> None:
        region = self.coordinator.region
        is_ready = region.rollback.is_ready
        places = region.places() if is_ready else {}
        live = {} if self.region.is_whole else dict(region.rollback.live)
        self.coordinator.tick(self.step_number)
        if is_ready and region.plan is not None:
            self._check_plan(region.plan, places, live)

    def _write_journal(self) -> None:
        coordinator = self.coordinator
        entry = coordinator.writing[0]
        decided, completed = len(coordinator.decided), len(coordinator.completed)
        coordinator.journal_written(self.step_number)
        if isinstance(entry, PointNoted) and entry in coordinator.registry.points(entry.node):
            self.lineage[entry.node].append(self.store[entry.node, entry.point_id])
        if isinstance(entry, RecoveryDecision):
            self._forget_void(entry)
        for plan in coordinator.decided[decided:]:
            back_to = ", ".join(f"{node} to {point}" for node, point in plan.back_to.items())
            self._log(f"decided: back go {back_to or 'none'}")
            self.recoveries += 1
            self.rolled_past += plan.rolled_past
            self.stayed += len(self.region.specs) - len(plan.back_to)
        for round_ in coordinator.completed[completed:]:
            self.completed += 1
            self._log(f"round {round_} is complete")
            self._check_round(round_)

    def _forget_void(self, decision: RecoveryDecision) -> None:
        for life in decision.lives:
            back_to = life.goes_back_to
            if back_to is not None:
                own = self.lineage[life.node]
                self.lineage[life.node] = [p for p in own if _point_id(p) <= back_to]

    def _hear(self, word: tuple[object, ...]) -> None:
        kind, node, *rest = word
        self._log(f"coordinator hears of {node}: {kind}")
        {
            "written": self.coordinator.written,
            "halted": self.coordinator.halted,
            "at work": self.coordinator.at_work,
            "damaged": self.coordinator.damaged,
        }[str(kind)](node, *rest)  # type: ignore[operator]

    def _tell(self, word: Word) -> None:
        for node in (self.nodes.get(word.node), *self.zombies):
            if node is None or node.spec.name != word.node:
                continue
            if node.incarnation == word.incarnation:
                self._log(f"{word.node}+{word.incarnation} is told: {word.kind} {word.number}")
                self._take_word(node, word)

    def _take_word(self, node: LineNode, word: Word) -> None:
        if word.kind == "begin":
            node.rule.asked(word.number)
        elif word.kind == "over":
            node.over = max(node.over, word.number)
            node.rule.over(word.number)
        elif word.kind == "line":
            node.trim(word.line)
        elif word.kind == "halt":
            self.halt(node, word.number)
        else:
            self._take_decision(node, word)

    def halt(self, node: LineNode, attempt: int) -> None:
        """A node stops, and says where it stands."""
        node.is_halted = True
        name, incarnation = node.spec.name, node.incarnation
        self.words_up.append(("halted", name, incarnation, attempt, node.place()))

    def _take_decision(self, node: LineNode, word: Word) -> None:
        recovered = word.recovered
        assert recovered is not None
        if word.kind == "go back":
            name = node.spec.name
            if self._is_unreadable(name, word.number):
                self.words_up.append(("damaged", name, word.number))
                return
            node.go_back(self._read(name, word.number), recovered.incarnations[name])
            self._check_gate(node)
        node.go_on(recovered.incarnations, recovered.plan.resumes_at, recovered.over)

    def _named(self, name: NodeId, sequence: int) -> PointId | None:
        noted = self.coordinator.registry.points(name)
        return next((p.point_id for p in noted if p.point.sequence == sequence), None)

    def _read(self, name: NodeId, sequence: int) -> Snapshot | None:
        point_id = self._named(name, sequence)
        return None if point_id is None else self.store[name, point_id]

    def _is_unreadable(self, name: NodeId, sequence: int) -> bool:
        point_id = self._named(name, sequence)
        return point_id is not None and (name, point_id) in self.damaged

    def _start(self, name: NodeId, sequence: int, recovered: Recovered) -> None:
        """A replacement comes up, unless a later decision has another one come."""
        incarnation = recovered.incarnations[name]
        if self.coordinator.registry.incarnation(name) != incarnation:
            return
        if self._is_unreadable(name, sequence):
            self.coordinator.damaged(name, sequence)
            return
        former = self.nodes.pop(name, None)
        if former is not None:
            self.zombies.append(former)
        node = LineNode(
            self.region.specs[name],
            self.region.protocol,
            incarnation,
            dict(recovered.incarnations),
            self.labels,
            sequence=sequence,
        )
        node.go_back(self._read(name, sequence), incarnation)
        self._check_gate(node)
        now = {n: self.coordinator.registry.incarnation(n) for n in self.region.specs}
        node.go_on(now, recovered.plan.resumes_at, recovered.over)
        self.nodes[name] = node
        self._log(f"{name}+{incarnation} comes up from checkpoint {sequence}")
        self.unnoticed.pop(name, None)
        self.words_up.append(("at work", name, incarnation))

    # -- faults -----------------------------------------------------------------------------

    def _strike(self, fault: str) -> None:
        if not self.nodes:
            return
        name = self.rng.choice(list(self.nodes))
        if fault == "kill":
            del self.nodes[name]
            self.unnoticed[name] = None
        elif fault == "suspect":
            self.zombies.append(self.nodes.pop(name))
            self.unnoticed[name] = None
        elif fault == "damage":
            if not self._damage(name):
                self.faults_left.insert(0, fault)  # Later, when another line is kept.
                return
        else:
            self._kill_the_driver()
        self.struck[fault] += 1
        self._log(f"fault: {fault} {'' if fault == 'driver' else name}".rstrip())

    def _damage(self, name: NodeId) -> bool:
        """The newest checkpoint cannot be read, where another line is kept; its node dies."""
        region = self.coordinator.region
        noted = self.coordinator.registry.points(name)
        newest = recovery_line(CheckpointGraph(region.places(), self.region.channels))[name]
        if self.region.kept < 2 or not noted or newest.sequence == region.oldest[name].sequence:
            return False
        point_id = self._named(name, newest.sequence)
        assert point_id is not None
        self.damaged[name, point_id] = None
        del self.nodes[name]
        self.unnoticed[name] = None
        return True

    def _kill_the_driver(self) -> None:
        """All nodes die with it; of what it was writing some is durable."""
        for _ in range(self.rng.randint(0, len(self.coordinator.writing))):
            self.journal.append(self.coordinator.writing.popleft())
        self.epoch += 1
        self.nodes.clear()
        self.zombies.clear()
        self.unnoticed.clear()
        self.words_up.clear()
        for frames in self.down.values():
            frames.clear()
        for words in self.up.values():
            words.clear()
        self.coordinator = LineCoordinator(self.region, self.journal, self.epoch)
        self.lineage = {name: [] for name in self.region.specs}
        kept = CheckpointRegistry.of(e for e in self.journal if not isinstance(e, LineMoved))
        for name in self.region.specs:
            self.lineage[name] = [self.store[name, p.point_id] for p in kept.points(name)]

    # -- what must hold ---------------------------------------------------------------------

    def _check_gate(self, node: LineNode) -> None:
        """A node goes back behind nothing that has left, unless it will send the same again."""
        log, made = self.sinks[node.spec.sink], node.sent[node.spec.sink]
        if not node.spec.repeats and len(made) < len(log):
            raise Violation("I-GATE", f"{node.spec.sink}: {len(log)} are out, {len(made)} are made")
        if made[: len(log)] != log[: len(made)]:
            raise Violation("I-GATE", f"{node.spec.sink} has other tuples than its node")

    def _check_plan(
        self,
        plan: RecoveryPlan,
        places: dict[NodeId, tuple[Place, ...]],
        live: dict[NodeId, Place],
    ) -> None:
        graph = CheckpointGraph(with_survivors(places, live), self.region.channels)
        line = plan.line
        if graph.orphans(line) or graph.losses(line):
            raise Violation("I-LINE", "the plan has orphans or loses tuples")
        if math.prod(len(own) for own in graph.places.values()) <= _BRUTE_MAX:
            newest = newest_line_by_brute_force(graph)
            if newest != line:
                raise Violation("I-LINE", f"{newest} is newer than {line}")

    def _check_round(self, round_: int) -> None:
        found: dict[NodeId, Snapshot] = {}
        for name in self.region.specs:
            own = [p for p in self.lineage[name] if p.point.round == round_]
            if not own:
                raise Violation("I-ROUND", f"{name} has no durable point for {round_}")
            found[name] = own[-1]
        for channel in self.region.channels:
            self._check_channel(channel, found[channel.sender], found[channel.receiver])

    def _check_channel(self, channel: Channel, sender: Snapshot, receiver: Snapshot) -> None:
        stream = channel.stream
        sent, processed = sender.sent[stream], receiver.processed[stream]
        is_ahead = len(processed) > len(sent) and not channel.repeats
        if is_ahead or sent[: len(processed)] != processed[: len(sent)]:
            raise Violation("I-ROUND", f"{stream}: a complete round has an orphan")
        if len(processed) < min(sender.point.held_from[stream], len(sent)):
            raise Violation("I-CHANNEL", f"{stream}: a complete round loses what is in flight")
        spec = self.region.specs[channel.sender]
        is_kept = spec.keeps[spec.outputs.index(stream)]
        if self.region.protocol == "aligned" and not is_kept and len(sent) > len(processed):
            raise Violation("I-ALIGN", f"{stream}: {len(sent)} sent, {len(processed)} processed")

    def _is_drained(self) -> bool:
        """Whether everything is processed, and every result is out."""
        if len(self.nodes) < len(self.region.specs) or self.unnoticed or self.faults_left_now():
            return False
        for name, node in self.nodes.items():
            if node.is_halted or len(node.sent[node.spec.sink]) != len(self.sinks[node.spec.sink]):
                return False
            if node.spec.has_source:
                stream = node.spec.inputs[0]
                if len(node.processed[stream]) < len(self.sources[name]):
                    return False
        return all(
            len(self.nodes[c.sender].sent[c.stream])
            == len(self.nodes[c.receiver].processed[c.stream])
            for c in self.region.channels
        )

    def faults_left_now(self) -> bool:
        """Whether a recovery is under way."""
        return self.coordinator.region.rollback.state.value != "working"

    def _check_the_end(self) -> None:
        for channel in self.region.channels:
            sent = self.nodes[channel.sender].sent[channel.stream]
            processed = self.nodes[channel.receiver].processed[channel.stream]
            if sent != processed:
                raise Violation("I-LINE", f"{channel.stream}: processed is not what was sent")
        for node in self.nodes.values():
            self._check_gate(node)

    def graph(self) -> CheckpointGraph:
        """All points of the lineage that goes on, and where the nodes stand."""
        places = {
            name: (Place(0), *(place_of(p.point) for p in sorted(own, key=_point_id)))
            for name, own in self.lineage.items()
        }
        return CheckpointGraph(places, self.region.channels)

    def _outcome(self, violation: Violation | None) -> LinesOutcome:
        return LinesOutcome(
            self.seed,
            self.region.protocol,
            None if violation is None else violation.invariant,
            str(violation or ""),
            tuple(self.struck.elements()),
            sum(len(own) for own in self.lineage.values()),
            self.forced,
            len(self.useless),
            self.rolled_past,
            self.completed,
            self.recoveries,
            self.stayed,
            self.notes_sent,
            self.tuples_sent,
        )


def _point_id(snapshot: Snapshot) -> PointId:
    return PointId(snapshot.incarnation, snapshot.point.sequence)


def newest_line_by_brute_force(graph: CheckpointGraph) -> dict[NodeId, Place]:
    """Of all combinations of places those that go together; the newest in every node at once.

    Raises:
        Violation: no line is newest in all nodes, so that there is not one answer.
    """
    nodes = list(graph.places)
    consistent = [
        indices
        for indices in itertools.product(*(range(len(graph.places[n])) for n in nodes))
        if _goes_together(graph, dict(zip(nodes, indices, strict=True)))
    ]
    top = tuple(max(column) for column in zip(*consistent, strict=True))
    if top not in consistent:
        raise Violation("I-LINE", "no line is the newest in all nodes")
    return {node: graph.places[node][index] for node, index in zip(nodes, top, strict=True)}


def _goes_together(graph: CheckpointGraph, indices: dict[NodeId, int]) -> bool:
    for channel in graph.channels:
        sender = graph.places[channel.sender][indices[channel.sender]]
        receiver = graph.places[channel.receiver][indices[channel.receiver]]
        processed = receiver.processed_before.get(channel.stream, 0)
        made = sender.next_ids.get(channel.stream, 0)
        if processed < sender.held_from.get(channel.stream, 0) and processed < made:
            return False
        if processed > made and not channel.repeats:
            return False
    return True


def simulate_lines(
    seed: int,
    trace: Trace | None = None,
    *,
    protocol: str | None = None,
    faults: tuple[str, ...] = FAULTS,
    is_scoped: bool = True,
) -> LinesOutcome:
    """Run a seed; with a protocol of `PROTOCOLS`, or one that is drawn.

    `trace` is told of what happens, and at which step.
    """
    return LinesWorld(seed, protocol, faults=faults, is_scoped=is_scoped, trace=trace).run()
