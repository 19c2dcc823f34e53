"""A region of nodes that cut with others: its rounds, its line, its recoveries. [CheckMate §III]

Theory of operation. A region puts together what each part decides for itself: when rounds begin
(checkpoint_rounds.py), which places go together (recovery/), what a failure asks of whom
(rollback.py). The coordinator tells it what has happened, and writes down what it asks for:

- `RecoveryDecision`: one entry for all members that go back, once all survivors have halted. Only
  when it is durable is anybody told (`decided`).
- `LineMoved`: the oldest line that recovery may go back to. With `kept=1` it is the newest line of
  durable points, as if everybody were lost; with two the newest one that shares no point with that,
  so that whichever of its points is damaged, there is another line. Only when it is durable do
  members hear of it (`line_noted`): they trim what lies before it, and open their gates up to it.

One `LineMoved` is under way at a time, and none while a plan is.

Where there are no rounds the line can pass a point only when members before it have cut, too. A
member with a full gate waits for that, and its senders wait for it: so all others are asked to cut
at once, instead of when their timers are due.

Points of a region keep the older ones (`PointNoted.keeps_older`). A damaged checkpoint is left out
of plans for the rest of this life; the next one would find it damaged again.

Invariants: the oldest line never moves back; it has no orphan and loses nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from holdfast.core.coordinator.checkpoint_rounds import CheckpointRounds, first_round
from holdfast.core.coordinator.journal_entries import LineMoved, NewLife, RecoveryDecision
from holdfast.core.coordinator.line_account import LineAccount
from holdfast.core.coordinator.rollback import Rollback
from holdfast.core.machine import Effect
from holdfast.core.model.ids import NOBODY, Incarnation, PointId
from holdfast.core.recovery.checkpoint_graph import BEGINNING, CheckpointGraph, Place, place_of
from holdfast.core.recovery.recovery_line import NoLine, recovery_line

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.core.coordinator.checkpoint_registry import CheckpointRegistry
    from holdfast.core.coordinator.journal_entries import PointNoted
    from holdfast.core.model.ids import NodeId
    from holdfast.core.recovery.checkpoint_graph import Channel
    from holdfast.core.recovery.recovery_plan import RecoveryPlan

_ASK_AGAIN_MS: Final = 100
"""About as long as a cut takes to become durable."""
_BEFORE_ALL = PointId(NOBODY, BEGINNING)


@dataclass(frozen=True, slots=True)
class RegionPlan:
    """What a region is made of.

    Attributes:
        members: Its nodes.
        channels: All streams between them.
        told: Who is told that a round begins; empty: there are no rounds.
        interval_ms: From the beginning of one round to that of the next, at least.
        kept: How many lines recovery may go back to: 1 or 2.
        is_whole: Everybody goes back after a failure (`rolls_back="all"`).
    """

    members: tuple[NodeId, ...]
    channels: tuple[Channel, ...]
    told: tuple[NodeId, ...] = ()
    interval_ms: int = 5_000
    kept: int = 1
    is_whole: bool = False


@dataclass(frozen=True, slots=True)
class TellLine(Effect):
    """Tell a member the oldest line that recovery may go back to.

    Attributes:
        node: The member.
        needed_from: Per output stream to another member what that one has processed there: nothing
            before it is needed any more.
        next_ids: Per output stream the member's own next tuple there: what comes before it may
            leave the region.
    """

    node: NodeId
    needed_from: dict[str, int]
    next_ids: dict[str, int]


@dataclass(frozen=True, slots=True)
class AskForCut(Effect):
    """A member is to cut, as the line waits for it."""

    node: NodeId


class Region:
    """One region in one life of the coordinator.

    Durable: what the registry holds. Volatile: all fields.

    Attributes:
        rounds: Of coordinated checkpoints.
        rollback: Its recoveries.
        plan: The newest decision's, for people and tests.
        account: Of its checkpoints.
    """

    def __init__(self, region: RegionPlan, registry: CheckpointRegistry, epoch: int) -> None:
        """Begin over what the journal says, with nobody at work."""
        self._region = region
        self._registry = registry
        self.rounds = CheckpointRounds(
            region.members,
            region.told,
            interval_ms=region.interval_ms,
            first=first_round(epoch),
            is_paused=True,
        )
        self.rollback = Rollback(region.members, region.channels, is_whole=region.is_whole)
        self.plan: RecoveryPlan | None = None
        self.account = LineAccount.of(region.members)
        self._planned_over: dict[NodeId, tuple[Place, ...]] = {}
        self._damaged: dict[tuple[NodeId, PointId], str] = {}
        self.oldest: Mapping[NodeId, Place] = {n: self._begins_at(n) for n in region.members}
        self._moves_to: Mapping[NodeId, Place] | None = None  # the line that is being written
        self._ask_from_ms = 0  # members are not asked to cut before

    # -- failures and recoveries --------------------------------------------------------------

    def lost(self, node: NodeId) -> list[Effect]:
        """A member is gone."""
        return [*self.rollback.lost(node), *self.rounds.pause()]

    def damaged(self, node: NodeId, sequence: int, reason: str = "") -> list[Effect]:
        """A member that comes up, or goes back, cannot read the checkpoint of its point."""
        for noted in self._registry.points(node):
            if noted.point.sequence == sequence:
                self._damaged[node, noted.point_id] = reason
        return self.lost(node)

    @property
    def damage(self) -> list[str]:
        """What is known of checkpoints that cannot be read, for people."""
        return [f"{node}: {reason}" for (node, _), reason in self._damaged.items() if reason]

    def halted(self, node: NodeId, attempt: int, place: Place) -> None:
        """A survivor says where it stands."""
        self.rollback.halted(node, attempt, place)

    def at_work(self, node: NodeId) -> None:
        """A member that was lost has been assigned, with the point of the last decision."""
        self.rollback.at_work(node)
        self._resume()

    def going_back(self) -> tuple[NodeId, ...]:
        """The survivors that the plan would have go back, as things are.

        Raises:
            NoLine: a checkpoint that is needed is damaged.
        """
        return self.rollback.going_back(self.places())

    def decide(self, given: Mapping[NodeId, Incarnation] | None = None) -> RecoveryDecision | None:
        """The decision to be written down now; None: there is none.

        Args:
            given: The incarnations of those that have been given one; the others get the next.

        Raises:
            NoLine: a checkpoint that is needed is damaged.
        """
        if not self.rollback.is_ready:
            return None
        given = given or {}
        self._planned_over = self.places()
        self.plan = plan = self.rollback.decide(self._planned_over)
        return RecoveryDecision(
            tuple(
                NewLife(
                    node,
                    given.get(node, Incarnation(self._registry.incarnation(node) + 1)),
                    self._point_id(node, sequence),
                )
                for node, sequence in plan.back_to.items()
            )
        )

    def _point_id(self, node: NodeId, sequence: int) -> PointId:
        return next(
            (p.point_id for p in self._registry.points(node) if p.point.sequence == sequence),
            _BEFORE_ALL,
        )

    def decided(self) -> list[Effect]:
        """The decision is durable, and the registry has taken it: everybody may know."""
        effects = self.rollback.journalled()
        if self.plan is not None:
            self.account.went_back(self.plan, self._planned_over)
        self._resume()
        return effects

    def _resume(self) -> None:
        if self.rollback.is_at_work:
            self.rounds.resume()

    # -- points and the line ------------------------------------------------------------------

    def noted(self, noted: PointNoted, now_ms: int) -> list[Effect]:
        """A member's point is durable, and the registry has taken it, unless it is void."""
        is_void = noted not in self._registry.points(noted.node)
        self.account.noted(noted, now_ms, is_void=is_void)
        if is_void:
            return []
        return self.rounds.stored(noted.node, noted.point.round, now_ms)

    @property
    def has_rounds(self) -> bool:
        """Whether its members cut in rounds."""
        return bool(self._region.told)

    def begin_round(self, now_ms: int) -> list[Effect]:
        """Begin a round, if there are any and it is time."""
        return self.rounds.begin(now_ms) if self.has_rounds else []

    def line_wanted(self, node: NodeId, now_ms: int) -> list[Effect]:
        """A member's gate is full: begin a round, or ask the others to cut.

        They are asked again once the line has moved: 1. A member cuts. 2. It sends on. 3. Whoever
        is behind it cuts with what came, and has to wait for a later cut of it.
        """
        if self.has_rounds:
            return self.rounds.begin(now_ms, is_wanted=True)
        if now_ms < self._ask_from_ms or not self.rollback.is_at_work:
            return []
        self._ask_from_ms = now_ms + max(_ASK_AGAIN_MS, self._region.interval_ms)
        return [AskForCut(member) for member in self._region.members if member != node]

    def move_line(self) -> LineMoved | None:
        """The move to be written down now; None: the line stands, or may not move."""
        if self._moves_to is not None or not self.rollback.may_move_line:
            return None
        line = self._oldest_line()
        moved = {node: p for node, p in line.items() if p.sequence != self.oldest[node].sequence}
        if not moved:
            return None
        self._moves_to = line
        self.account.moving(self.places(), self._region.channels, line)
        return LineMoved({node: self._point_id(node, p.sequence) for node, p in moved.items()})

    def line_noted(self, now_ms: int) -> None:
        """A move is durable, and the registry has taken it: members may know (`tell_line`)."""
        if self._moves_to is not None:
            self.oldest, self._moves_to = self._moves_to, None
            self.account.moved(self.oldest, now_ms)
            self._ask_from_ms = min(self._ask_from_ms, now_ms + _ASK_AGAIN_MS)

    def tell_line(self) -> list[Effect]:
        """Tell all members the oldest line; said again, it changes nothing."""
        return [self._line_for(node) for node in self._region.members]

    def _line_for(self, node: NodeId) -> TellLine:
        outputs = [channel for channel in self._region.channels if channel.sender == node]
        needed_from = {
            str(c.stream): self.oldest[c.receiver].processed_before.get(c.stream, 0)
            for c in outputs
        }
        return TellLine(node, needed_from, dict(self.oldest[node].next_ids))

    def places(self) -> dict[NodeId, tuple[Place, ...]]:
        """Per member where recovery could have it go back to, oldest first."""
        return {node: self._places(node) for node in self._region.members}

    def _places(self, node: NodeId) -> tuple[Place, ...]:
        noted = self._registry.points(node)
        sound = tuple(place_of(p.point) for p in noted if (node, p.point_id) not in self._damaged)
        is_at_beginning = self._registry.line(node) is None
        return (Place(BEGINNING), *sound) if is_at_beginning else sound

    def _begins_at(self, node: NodeId) -> Place:
        """Where the oldest line stands, by the journal."""
        is_at_beginning = self._registry.line(node) is None
        return (
            Place(BEGINNING) if is_at_beginning else place_of(self._registry.points(node)[0].point)
        )

    def _oldest_line(self) -> Mapping[NodeId, Place]:
        """Where the oldest line may be; where it is, if damage leaves no other."""
        places = self.places()
        try:
            line = recovery_line(CheckpointGraph(places, self._region.channels))
            if self._region.kept == 1:
                return line
            others = {
                node: tuple(p for p in own if p.sequence == BEGINNING or p != line[node])
                for node, own in places.items()
            }
            return recovery_line(CheckpointGraph(others, self._region.channels))
        except NoLine:
            return self.oldest
