"""The coordinator of the small world: a journal around the real region and registry."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from holdfast.core.coordinator.checkpoint_registry import CheckpointRegistry
from holdfast.core.coordinator.checkpoint_rounds import AbortRound, BeginRound, ReportRound
from holdfast.core.coordinator.journal_entries import LineMoved, PointNoted, RecoveryDecision
from holdfast.core.coordinator.region import Region, RegionPlan, TellLine
from holdfast.core.coordinator.rollback import GoOn, Halt, RollBack, StartFrom
from holdfast.core.model.ids import Incarnation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.core.coordinator.journal_entries import JournalEntry
    from holdfast.core.machine import Effect
    from holdfast.core.model.ids import NodeId
    from holdfast.core.recovery.checkpoint_graph import Place
    from holdfast.core.recovery.recovery_plan import RecoveryPlan
    from holdfast.core.recovery.restart_point import RestartPoint
    from holdfast.sim.lines.region import LinesPlan

_INTERVAL_STEPS = 60


@dataclass(frozen=True, slots=True)
class Recovered:
    """What a decision has come to, for everybody.

    Attributes:
        plan: Who goes back where.
        incarnations: As whom all members go on.
        over: The newest round that is over.
    """

    plan: RecoveryPlan
    incarnations: dict[NodeId, Incarnation]
    over: int


@dataclass(frozen=True, slots=True)
class Word:
    """What the coordinator tells a node, as the incarnation that it believes it to be.

    Attributes:
        node: Whom.
        incarnation: As which it counts.
        kind: begin, over, line, halt, go on, go back.
        number: A round, an attempt, or the point to go back to.
        recovered: For `go on` and `go back`.
        line: For `line`.
    """

    node: NodeId
    incarnation: Incarnation
    kind: str
    number: int = 0
    recovered: Recovered | None = None
    line: TellLine = field(default_factory=lambda: TellLine("", {}, {}))  # type: ignore[arg-type]


class LineCoordinator:
    """One life of the coordinator."""

    def __init__(self, plan: LinesPlan, journal: list[JournalEntry], epoch: int) -> None:
        """Begin over the journal: everybody is lost."""
        self.journal = journal
        self.registry = CheckpointRegistry.of(journal)
        self._members = tuple(plan.specs)
        told = self._members if plan.is_coordinated else ()
        if plan.protocol == "aligned":
            told = tuple(n for n in self._members if not any(plan.specs[n].waits_for))
        made_of = RegionPlan(
            self._members, plan.channels, told, _INTERVAL_STEPS, plan.kept, plan.is_whole
        )
        self.region = Region(made_of, self.registry, epoch)
        self.writing: deque[JournalEntry] = deque()  # asked for, not yet durable
        self.words: dict[NodeId, deque[Word]] = {name: deque() for name in self._members}
        self.starts: deque[tuple[NodeId, int, Recovered]] = deque()
        self.completed: list[int] = []
        self.decided: list[RecoveryPlan] = []

    # -- what comes in ----------------------------------------------------------------------

    def lost(self, node: NodeId) -> None:
        """A node is taken for dead."""
        self._perform(self.region.lost(node))

    def halted(self, node: NodeId, incarnation: Incarnation, attempt: int, place: Place) -> None:
        """A survivor has halted."""
        if incarnation == self.registry.incarnation(node):
            self.region.halted(node, attempt, place)

    def at_work(self, node: NodeId, incarnation: Incarnation) -> None:
        """A replacement has come up."""
        if incarnation == self.registry.incarnation(node):
            self.region.at_work(node)

    def written(self, node: NodeId, incarnation: Incarnation, point: RestartPoint) -> None:
        """A node asks for its point to be stored."""
        if incarnation == self.registry.incarnation(node):
            self.writing.append(PointNoted(node, incarnation, point, keeps_older=True))

    def damaged(self, node: NodeId, sequence: int) -> None:
        """A node that comes up cannot read its checkpoint."""
        self._perform(self.region.damaged(node, sequence))

    def tick(self, step: int) -> None:
        """Begin a round if it is time; plan if all have halted."""
        self._perform(self.region.begin_round(step))
        decision = self.region.decide()
        if decision is not None:
            self.writing.append(decision)

    def journal_written(self, step: int) -> None:
        """The next entry is durable."""
        entry = self.writing.popleft()
        self.journal.append(entry)
        self.registry.take(entry)
        self.registry.check_invariants()
        if isinstance(entry, RecoveryDecision):
            self._tell()
        elif isinstance(entry, PointNoted):
            self._perform(self.region.noted(entry, step))
        elif isinstance(entry, LineMoved):
            self.region.line_noted(step)
            self._perform(self.region.tell_line())
        moved = self.region.move_line()
        if moved is not None:
            self.writing.append(moved)

    # -- what goes out ----------------------------------------------------------------------

    def _tell(self) -> None:
        """Everybody hears of the decision, survivors as what they were before it."""
        plan = self.region.plan
        assert plan is not None
        self.decided.append(plan)
        known = {node: self.registry.incarnation(node) for node in self._members}
        recovered = Recovered(plan, known, self.region.rounds.over)
        for effect in self.region.decided():
            if isinstance(effect, GoOn):
                self._say(effect.node, "go on", recovered=recovered)
            elif isinstance(effect, RollBack):
                former = Incarnation(known[effect.node] - 1)
                word = Word(effect.node, former, "go back", effect.sequence, recovered)
                self.words[effect.node].append(word)
            elif isinstance(effect, StartFrom):
                self.starts.append((effect.node, effect.sequence, recovered))
            else:
                self._perform([effect])
        self._perform(self.region.tell_line())

    def _say(self, node: NodeId, kind: str, number: int = 0, **what: object) -> None:
        incarnation = self.registry.incarnation(node)
        word = Word(node, incarnation, kind, number, **what)  # type: ignore[arg-type]
        self.words[node].append(word)

    def _perform(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Halt):
                self._say(effect.node, "halt", effect.attempt)
            elif isinstance(effect, BeginRound):
                self._say(effect.node, "begin", effect.round)
            elif isinstance(effect, AbortRound):
                self._say(effect.node, "over", effect.round)
            elif isinstance(effect, TellLine):
                self._say(effect.node, "line", line=effect)
            elif isinstance(effect, ReportRound):
                self.completed.append(effect.round)
