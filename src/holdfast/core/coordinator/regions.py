"""The regions of a query, as the coordinator deals with them. [CheckMate §III-B]

Theory of operation. Nodes that do not repeat recover together with those that they are connected
with: a `Region` decides for all of them (region.py). This room stands between it and the
coordinator, which keeps the lives of nodes:

- A member that is lost halts its region. What comes up is not assigned before the region has
  decided where everybody goes back to; then all new lives are given by one entry.
- A survivor that would have to go back is told so, ends, and comes up again as one that was lost.
  So every plan that is written down lets all survivors go on.
- Words can be lost: to halt is said again with every keep-alive, to go on or back in answer to
  whoever says that it has halted, where the line is with every keep-alive.

- A member that cannot read the checkpoint of its point says so and ends. The next plan is made
  without that checkpoint. If no line is left the query fails.

Who missed that it may go on, and is halted for another member, still has in its queues what it was
to drop: that is said again with the next plan (`resumed`), until its answer shows that it knows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from holdfast.core.checkpoint.cut_rule import NO_ROUND
from holdfast.core.coordinator.checkpoint_rounds import AbortRound, BeginRound, ReportRound
from holdfast.core.coordinator.events import (
    NodeHalted,
    PointDamaged,
    RoundFailed,
    RoundWanted,
    TellCut,
    TellGoOn,
    TellHalt,
    TellLineMoved,
    TellRollBack,
    TellRound,
)
from holdfast.core.coordinator.region import AskForCut, Region, RegionPlan
from holdfast.core.coordinator.replica import NodeState
from holdfast.core.coordinator.rollback import GoOn, Halt, StartFrom
from holdfast.core.haunit.plan import Cuts
from holdfast.core.haunit.told import Resumed
from holdfast.core.model.ids import Incarnation
from holdfast.core.recovery.checkpoint_graph import BEGINNING, LIVE, Channel, place_of
from holdfast.core.recovery.recovery_line import NoLine
from holdfast.core.recovery.restart_point import RestartPoint

if TYPE_CHECKING:
    from holdfast.core.coordinator.decisions import Decisions
    from holdfast.core.coordinator.instance import Instance
    from holdfast.core.coordinator.journal_entries import NewLife, PointNoted
    from holdfast.core.haunit.plan import NodePlan
    from holdfast.core.machine import Effect
    from holdfast.core.model.ids import NodeId, StreamId

Assign = Callable[["Instance", int], list["Effect"]]
"""Lets a replica that has come up work, at a time; its incarnation is durable."""
Fail = Callable[[str], list["Effect"]]
"""Ends the query, for a reason; its coordinator does nothing afterwards."""
OfMember = NodeHalted | PointDamaged | RoundWanted | RoundFailed
"""What only nodes that recover with others say."""


@dataclass(slots=True)
class _Member:
    """What one member has to be told.

    Attributes:
        region: Its region.
        decided: The last attempt that it was told to go on after; 0: none.
        resumed: Per input stream where its sender goes on, as long as it may not know.
        is_going_back: Whether it was told to end.
    """

    region: Region
    decided: int = 0
    resumed: dict[StreamId, Resumed] = field(default_factory=dict)
    is_going_back: bool = False


class Regions:
    """All regions in one life of the coordinator. Durable: what the registry holds."""

    def __init__(
        self,
        plans: Iterable[NodePlan],
        instances: Mapping[NodeId, Instance],
        decisions: Decisions,
        epoch: int,
        assign: Assign,
        fail: Fail,
    ) -> None:
        """Begin with nobody at work."""
        self._instances = instances
        self._decisions = decisions
        self._assign = assign
        self._fail = fail
        self._members: dict[NodeId, _Member] = {}
        self._channels: dict[NodeId, tuple[Channel, ...]] = {}  # by receiver, within its region
        self._regions: list[Region] = []
        by_region: dict[str, list[NodePlan]] = {}
        for plan in plans:
            if plan.region:
                by_region.setdefault(plan.region, []).append(plan)
        for members in by_region.values():
            self._add(members, epoch)

    def _add(self, members: list[NodePlan], epoch: int) -> None:
        names = tuple(plan.node for plan in members)
        for plan in members:
            self._channels[plan.node] = tuple(
                Channel(spec.stream, spec.producer, plan.node, is_feedback=spec.is_feedback)
                for spec in plan.inputs
                if spec.producer is not None and spec.producer in names
            )
        channels = tuple(channel for name in names for channel in self._channels[name])
        of_region = RegionPlan(
            names,
            channels,
            self._members_told(members),
            _interval_ms(members),
            _lines_kept(members),
            members[0].all_go_back,
        )
        region = Region(of_region, self._decisions.registry, epoch)
        self._members |= {name: _Member(region) for name in names}
        self._regions.append(region)

    def _members_told(self, members: list[NodePlan]) -> tuple[NodeId, ...]:
        """Who begins a round: all, or where markers are waited for who gets none."""
        cuts = members[0].cuts
        if cuts is None or not cuts.has_rounds:
            return ()
        if cuts is Cuts.UNALIGNED:
            return tuple(plan.node for plan in members)
        return tuple(
            plan.node
            for plan in members
            if all(channel.is_feedback for channel in self._channels[plan.node])
        )

    def has(self, node: NodeId) -> bool:
        """Whether a node recovers together with others."""
        return node in self._members

    def restart_point(self, node: NodeId) -> RestartPoint | None:
        """From where a replacement goes on; a member's has all since the line behind it."""
        registry = self._decisions.registry
        newest = registry.newest(node)
        if newest is None or not self.has(node):
            return newest
        older = tuple(noted.point for noted in reversed(registry.points(node)[:-1]))
        beginning = () if registry.line(node) is not None else (RestartPoint(),)
        return replace(newest, older=(*older, *beginning))

    # -- failures ---------------------------------------------------------------------------

    def lost(self, node: NodeId) -> list[Effect]:
        """A node is gone; nothing follows if it recovers alone."""
        member = self._members.get(node)
        if member is None:
            return []
        self._members[node] = _Member(member.region)
        return [*self._words(member.region.lost(node)), *self._advance(member.region)]

    def goes_back(self, node: NodeId) -> bool:
        """Whether a member ends because it was told to, and not for a failure of its own."""
        member = self._members.get(node)
        return member is not None and member.is_going_back

    def came_up(self, node: NodeId) -> list[Effect]:
        """A process is there for a member that was lost, and waits for its assignment."""
        return self._advance(self._members[node].region)

    def damaged(self, word: PointDamaged) -> list[Effect]:
        """A member cannot read the checkpoint that it was to begin from: no plan has it again.

        It ends, too. Should the word be lost its replacement finds the same.
        """
        member = self._members.get(word.node)
        if member is None:
            return []
        self._members[word.node] = _Member(member.region)
        halts = member.region.damaged(word.node, word.sequence, word.reason)
        return [*self._words(halts), *self._advance(member.region)]

    def said(self, word: OfMember, now_ms: int) -> list[Effect]:
        """What a member at work has said."""
        match word:
            case PointDamaged():
                return self.damaged(word)
            case NodeHalted():
                return self.halted(word)
            case RoundWanted():
                return self.round_wanted(word.node, now_ms)
            case RoundFailed():
                return self.round_failed(word)

    def halted(self, word: NodeHalted) -> list[Effect]:
        """A survivor has halted; it says so until it is told what to do."""
        member = self._members.get(word.node)
        if member is None:
            return []
        if word.went_on >= member.decided:
            member.resumed = {}
        if word.attempt <= member.decided:
            return self._go_on(word.node)
        place = replace(place_of(word.place), sequence=LIVE)
        member.region.halted(word.node, word.attempt, place)
        return self._advance(member.region)

    def heard(self, node: NodeId) -> list[Effect]:
        """A member lives: it is told again what may have been lost."""
        member = self._members.get(node)
        if member is None:
            return []
        region = member.region
        if region.rollback.awaits(node):
            return self._words([Halt(node, region.rollback.attempt)])
        return [*self._line_of(node), *self._round_of(node)]

    def _words(self, effects: list[Effect]) -> list[Effect]:
        """What members at work are told of these; what is for people stays."""
        words: list[Effect] = []
        for effect in effects:
            match effect:
                case Halt(node, attempt) if task := self._task_of(node):
                    words.append(TellHalt(node, task, attempt))
                case AskForCut(node) if task := self._task_of(node):
                    words.append(TellCut(node, task))
                case BeginRound(node, _) | AbortRound(node, _):
                    words += self._round_of(node)
                case ReportRound():
                    words.append(effect)
        return words

    def _task_of(self, node: NodeId) -> str | None:
        """The task of a member at work."""
        primary = self._instances[node].primary
        return primary.task if primary.state is NodeState.RUNNING else None

    # -- plans ------------------------------------------------------------------------------

    def _advance(self, region: Region) -> list[Effect]:
        """Write the plan down, once it can be made and everybody is there."""
        if not region.rollback.is_ready:
            return []
        try:
            going_back = region.going_back()
        except NoLine as error:
            return self._fail("; ".join([str(error), *region.damage]))
        if going_back:
            return [word for node in going_back for word in self._roll_back(node, region)]
        primaries = {node: self._instances[node].primary for node in region.rollback.lost_nodes}
        if any(primary.state is not NodeState.ASSIGNING for primary in primaries.values()):
            return []
        attempt = region.rollback.attempt
        for node, primary in primaries.items():
            if primary.incarnation <= self._decisions.registry.incarnation(node):
                primary.incarnation = self._instances[node].next_incarnation()  # Of a plan before.
        given = {node: primary.incarnation for node, primary in primaries.items()}
        decision = region.decide(given)
        if decision is None:
            return []
        lives = decision.lives
        return [
            self._decisions.note(decision, lambda ms: self._decided(region, lives, attempt, ms))
        ]

    def _roll_back(self, node: NodeId, region: Region) -> list[Effect]:
        task = self._task_of(node)
        if task is None:
            return []
        self._members[node].is_going_back = True
        return [TellRollBack(node, task, region.rollback.attempt)]

    def _decided(
        self, region: Region, lives: tuple[NewLife, ...], attempt: int, now_ms: int
    ) -> list[Effect]:
        """The plan is durable: everybody may know, survivors first."""
        incarnations = {life.node: life.incarnation for life in lives}
        resumes_at = {} if region.plan is None else region.plan.resumes_at
        told = region.decided()
        effects: list[Effect] = []
        for word in told:
            if isinstance(word, GoOn):
                self._note_resumed(word.node, attempt, incarnations, resumes_at)
                effects += self._go_on(word.node)
        for word in told:
            if isinstance(word, StartFrom):
                effects += self._start(region, word.node, now_ms)
        effects += [*self._words(told), region.account.report(now_ms)]
        return [*effects, *self._move_line(region), *self._advance(region)]

    def _note_resumed(
        self,
        node: NodeId,
        attempt: int,
        incarnations: Mapping[NodeId, int],
        resumes_at: Mapping[str, int],
    ) -> None:
        member = self._members[node]
        member.decided = attempt
        for channel in self._channels[node]:
            incarnation = incarnations.get(channel.sender)
            if incarnation is None:
                continue
            next_id = resumes_at[channel.stream]
            before = member.resumed.get(channel.stream)
            if before is not None:
                next_id = min(next_id, before.next_id)
            member.resumed[channel.stream] = Resumed(next_id, Incarnation(incarnation))

    def _go_on(self, node: NodeId) -> list[Effect]:
        task, member = self._task_of(node), self._members[node]
        if task is None:
            return []
        return [TellGoOn(node, task, member.decided, dict(member.resumed))]

    def _start(self, region: Region, node: NodeId, now_ms: int) -> list[Effect]:
        """Let a replacement work, unless another was lost: it may have to begin further back."""
        instance = self._instances[node]
        if node in region.rollback.lost_nodes:
            return []
        self._members[node] = _Member(region)  # It has nothing that its former life was to drop.
        region.at_work(node)
        return self._assign(instance, now_ms)

    # -- rounds -----------------------------------------------------------------------------

    def begin_rounds(self, now_ms: int) -> list[Effect]:
        """Begin those that are due."""
        return [word for each in self._regions for word in self._words(each.begin_round(now_ms))]

    def round_wanted(self, node: NodeId, now_ms: int) -> list[Effect]:
        """A member has no more room for what waits for the line."""
        member = self._members.get(node)
        if member is None:
            return []
        return self._words(member.region.line_wanted(node, now_ms))

    def round_failed(self, word: RoundFailed) -> list[Effect]:
        """A member's checkpoint came to nothing; of a round that is over that changes nothing."""
        member = self._members.get(word.node)
        if member is None or member.region.rounds.present != word.round:
            return []
        return self._words(member.region.rounds.abort())

    def _round_of(self, node: NodeId) -> list[Effect]:
        """How far the rounds are, for a member at work."""
        task, rounds = self._task_of(node), self._members[node].region.rounds
        if task is None or not self._members[node].region.has_rounds:
            return []
        return [TellRound(node, task, rounds.present, rounds.over)]

    def rounds_over(self, node: NodeId) -> int:
        """The newest round that does nothing any more, for a node that begins; 0: none."""
        member = self._members.get(node)
        if member is None or not member.region.has_rounds:
            return NO_ROUND
        return member.region.rounds.over

    # -- the line ---------------------------------------------------------------------------

    def noted(self, noted: PointNoted, now_ms: int) -> list[Effect]:
        """A point is durable; the line may move."""
        member = self._members.get(noted.node)
        if member is None:
            return []
        return [*self._words(member.region.noted(noted, now_ms)), *self._move_line(member.region)]

    def _move_line(self, region: Region) -> list[Effect]:
        moved = region.move_line()
        if moved is None:
            return []
        return [self._decisions.note(moved, lambda ms: self._line_moved(region, ms))]

    def _line_moved(self, region: Region, now_ms: int) -> list[Effect]:
        region.line_noted(now_ms)
        told = [word for node in region.oldest for word in self._line_of(node)]
        return [*told, region.account.report(now_ms), *self._move_line(region)]

    def _line_of(self, node: NodeId) -> list[Effect]:
        task, oldest = self._task_of(node), self._members[node].region.oldest[node]
        if task is None or oldest.sequence == BEGINNING:
            return []
        return [TellLineMoved(node, task, oldest.sequence)]


def _lines_kept(members: list[NodePlan]) -> int:
    """How many lines recovery may go back to; all members of a region say the same."""
    checkpoints = members[0].checkpoints
    return 1 if checkpoints is None else checkpoints.kept


def _interval_ms(members: list[NodePlan]) -> int:
    """From one round to the next; all members of a region that has some say the same."""
    checkpoints = members[0].checkpoints
    return 0 if checkpoints is None else checkpoints.interval_ms
