"""The coordinator of the small world: registry, line and journal around the real cores."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from holdfast.core.coordinator.checkpoint_rounds import (
    AbortRound,
    BeginRound,
    CheckpointRounds,
    ReportRound,
    first_round,
)
from holdfast.core.coordinator.rollback import GoOn, Halt, RollBack, Rollback
from holdfast.core.model.ids import Incarnation
from holdfast.core.recovery.checkpoint_graph import CheckpointGraph, Place
from holdfast.core.recovery.recovery_line import NoLine, recovery_line

if TYPE_CHECKING:
    from holdfast.core.machine import Effect
    from holdfast.core.model.ids import NodeId
    from holdfast.core.recovery.recovery_plan import RecoveryPlan
    from holdfast.sim.lines.line_node import Snapshot
    from holdfast.sim.lines.region import Region

_INTERVAL_STEPS = 60


@dataclass(frozen=True, slots=True)
class Point:
    """An entry of the journal: a checkpoint is durable."""

    node: NodeId
    snapshot: Snapshot


@dataclass(frozen=True, slots=True)
class Decision:
    """An entry of the journal: a whole recovery.

    Attributes:
        plan: Who goes back where.
        incarnations: As whom they go on.
    """

    plan: RecoveryPlan
    incarnations: dict[NodeId, Incarnation]


@dataclass(frozen=True, slots=True)
class Damaged:
    """An entry of the journal: a checkpoint cannot be read."""

    node: NodeId
    sequence: int


Entry = Point | Decision | Damaged


@dataclass(frozen=True, slots=True)
class Word:
    """What the coordinator tells a node, as the incarnation that it believes it to be.

    Attributes:
        node: Whom.
        incarnation: As which it counts.
        kind: begin, over, line, halt, go on, go back.
        number: A round, an attempt, or the point to go back to.
        decision: For `go on` and `go back`.
        over: For these the newest round that is over.
        floors: For `line`: per output the receiver's place on the oldest line.
        gate: For `line`: the node's own next result on it.
    """

    node: NodeId
    incarnation: Incarnation
    kind: str
    number: int = 0
    decision: Decision | None = None
    over: int = 0
    floors: dict[str, int] = field(default_factory=dict)
    gate: int = 0


class Registry:
    """What the journal says: points, who is at which incarnation, and what is void."""

    def __init__(self, region: Region, journal: list[Entry]) -> None:
        """Read a journal."""
        self._region = region
        self.points: dict[NodeId, dict[int, Snapshot]] = {name: {} for name in region.specs}
        self.incarnations = dict.fromkeys(region.specs, Incarnation(0))
        self._back_to: dict[NodeId, list[tuple[Incarnation, int]]] = {n: [] for n in region.specs}
        self.newest = dict.fromkeys(region.specs, 0)
        self.oldest = {name: Place(0) for name in region.specs}
        for entry in journal:
            self.add(entry)

    def add(self, entry: Entry) -> bool:
        """An entry is durable. Returns whether it is a point that counts."""
        if isinstance(entry, Decision):
            for node, incarnation in entry.incarnations.items():
                self.incarnations[node] = incarnation
                self._back_to[node].append((incarnation, entry.plan.back_to[node]))
            for node, own in self.points.items():
                self.points[node] = {k: v for k, v in own.items() if not self.is_void(node, v)}
            return False
        if isinstance(entry, Damaged):
            self.points[entry.node].pop(entry.sequence, None)
            return False
        sequence = entry.snapshot.place.sequence
        self.newest[entry.node] = max(self.newest[entry.node], sequence)
        if self.is_void(entry.node, entry.snapshot):
            return False
        self.points[entry.node][sequence] = entry.snapshot
        return True

    def is_void(self, node: NodeId, snapshot: Snapshot) -> bool:
        """Whether its node has gone back behind it since."""
        return any(
            snapshot.incarnation < incarnation and snapshot.place.sequence > sequence
            for incarnation, sequence in self._back_to[node]
        )

    def places(self) -> dict[NodeId, tuple[Place, ...]]:
        """Per node those that recovery may go back to, oldest first."""
        return {
            node: tuple(
                place
                for place in (Place(0), *(own[k].place for k in sorted(own)))
                if place.sequence >= self.oldest[node].sequence
            )
            for node, own in self.points.items()
        }

    def line(self) -> dict[NodeId, Place]:
        """The newest line of durable points, if everybody is lost."""
        return recovery_line(CheckpointGraph(self.places(), self._region.channels))

    def move(self) -> bool:
        """Move the oldest line that recovery may go back to. Returns whether it has moved."""
        line = self.line()
        if self._region.kept > 1:
            others = {
                node: tuple(p for p in own if p.sequence != line[node].sequence or not p.sequence)
                for node, own in self.places().items()
            }
            if not all(others.values()):
                return False
            try:
                line = recovery_line(CheckpointGraph(others, self._region.channels))
            except NoLine:
                return False
        moved = {n: p.sequence for n, p in line.items()} != {
            n: p.sequence for n, p in self.oldest.items()
        }
        self.oldest = line
        return moved


class LineCoordinator:
    """One life of the coordinator."""

    def __init__(self, region: Region, journal: list[Entry], epoch: int) -> None:
        """Begin over the journal: everybody is lost."""
        self._region = region
        self.journal = journal
        self.registry = Registry(region, journal)
        self.registry.move()
        members = tuple(region.specs)
        told = members
        if region.protocol == "aligned":
            told = tuple(n for n in members if not any(region.specs[n].waits_for))
        self.rounds = CheckpointRounds(
            members, told, interval_ms=_INTERVAL_STEPS, first=first_round(epoch)
        )
        self.rounds.pause()
        self.rollback = Rollback(members, region.channels, is_whole=region.is_whole)
        self.writing: deque[Entry] = deque()  # asked for, not yet durable
        self.words: dict[NodeId, deque[Word]] = {name: deque() for name in members}
        self.starts: deque[tuple[NodeId, int, Decision, int]] = deque()
        self.completed: list[int] = []
        self.decided: list[Decision] = []

    # -- what comes in ----------------------------------------------------------------------

    def lost(self, node: NodeId) -> None:
        """A node is taken for dead."""
        self._perform(self.rollback.lost(node))
        self._perform(self.rounds.pause())

    def halted(self, node: NodeId, incarnation: Incarnation, attempt: int, place: Place) -> None:
        """A survivor has halted."""
        if incarnation == self.registry.incarnations[node]:
            self.rollback.halted(node, attempt, place)

    def at_work(self, node: NodeId, incarnation: Incarnation) -> None:
        """A replacement has come up."""
        if incarnation == self.registry.incarnations[node]:
            self.rollback.at_work(node)
            self._resume()

    def written(self, node: NodeId, snapshot: Snapshot) -> None:
        """A node asks for its point to be stored."""
        if snapshot.incarnation == self.registry.incarnations[node]:
            self.writing.append(Point(node, snapshot))

    def damaged(self, node: NodeId, sequence: int) -> None:
        """A node that comes up cannot read its checkpoint."""
        self.registry.add(Damaged(node, sequence))
        self.writing.append(Damaged(node, sequence))
        self.lost(node)

    def tick(self, step: int) -> None:
        """Begin a round if it is time; plan if all have halted."""
        if self._region.is_coordinated:
            self._perform(self.rounds.begin(step))
        if self.rollback.is_ready:
            plan = self.rollback.decide(self.registry.places())
            known = self.registry.incarnations
            given = {node: Incarnation(known[node] + 1) for node in plan.back_to}
            self.writing.append(Decision(plan, given))

    def journal_written(self, step: int) -> None:
        """The next entry is durable."""
        entry = self.writing.popleft()
        self.journal.append(entry)
        counts = self.registry.add(entry)
        if isinstance(entry, Decision):
            self._tell(entry)
        elif isinstance(entry, Point) and counts:
            self._perform(self.rounds.stored(entry.node, entry.snapshot.round, step))
            if self.rollback.may_move_line and self.registry.move():
                self._tell_line()

    # -- what goes out ----------------------------------------------------------------------

    def _tell(self, decision: Decision) -> None:
        self.decided.append(decision)
        over = self.rounds.over
        for effect in self.rollback.journalled():
            if isinstance(effect, GoOn):
                self._say(effect.node, "go on", decision=decision, over=over)
            elif isinstance(effect, RollBack):
                former = Incarnation(decision.incarnations[effect.node] - 1)
                self.words[effect.node].append(
                    Word(effect.node, former, "go back", effect.sequence, decision, over)
                )
            elif isinstance(effect, Halt):
                self._say(effect.node, "halt", effect.attempt)
            else:
                node = effect.node  # type: ignore[attr-defined]  # StartFrom
                self.starts.append((node, decision.plan.back_to[node], decision, over))
        self._resume()
        self.registry.move()
        self._tell_line()

    def _resume(self) -> None:
        if self.rollback.is_at_work:
            self.rounds.resume()

    def _tell_line(self) -> None:
        oldest = self.registry.oldest
        for name, spec in self._region.specs.items():
            floors = {
                stream: oldest[receiver].processed_before.get(stream, 0)
                for stream, receiver in zip(spec.outputs, spec.receivers, strict=True)
            }
            gate = oldest[name].next_ids.get(spec.sink, 0)
            self._say(name, "line", floors=floors, gate=gate)

    def _say(self, node: NodeId, kind: str, number: int = 0, **what: object) -> None:
        incarnation = self.registry.incarnations[node]
        word = Word(node, incarnation, kind, number, **what)  # type: ignore[arg-type]
        self.words[node].append(word)

    def _perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Halt):
                self._say(effect.node, "halt", effect.attempt)
            elif isinstance(effect, BeginRound):
                self._say(effect.node, "begin", effect.round)
            elif isinstance(effect, AbortRound):
                self._say(effect.node, "over", effect.round)
            elif isinstance(effect, ReportRound):
                self.completed.append(effect.round)
