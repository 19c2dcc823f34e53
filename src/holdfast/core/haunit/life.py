"""The life of a process that runs a node: bring-up, restoration, promotion. [HA §4, SGuard §4.4]

Theory of operation. A process has nothing until the coordinator assigns it an incarnation. From
then on it is in one of these phases:

    unassigned   it has said hello and waits for its assignment
    opening      logs, sources and the store are being opened, one after the other (openings.py)
    restoring    its state is being loaded (restoration.py)
    at work      a `Node` works as the primary
    following    a secondary: a `Node` that puts nothing out, or a `StandbyReplica` with an image
    promoting    a secondary that is to take over: it still follows while the logs are opened
    failed       it has said why, and is about to die

`NodeLife` owns the machine at work and passes on what concerns it. What it takes itself:

- `AssignmentReceived`: begin; any further one is not for this process.
- `PeerTold`: connect to a producer's new primary, and tell the machine, or keep it until there is
  one. A machine is told of all neighbours when it is made. Who counts as a later incarnation never
  makes way for an earlier one: words can be late.
- `PromotionReceived`: take over, or remember it until this secondary follows. The coordinator says
  it again until it is answered; once is enough.
- The answers to what it has asked to be opened, or loaded. One that nobody waits for is counted.
- `SubscribeReceived` before there is a machine: kept, the newest per stream and receiver; receivers
  hear of a new incarnation before it has its state.

A passive secondary that is promoted makes a node over its image, or, if that is of no use, over the
restart point. The new node is not told who the replicas of its own instance are: what is known of
them is from before, and names the one that is gone as the primary and this one as the secondary.

Failures that a replacement may not meet again are `RECOVERABLE`; by any other one the query ends.

Invariants: see `check_invariants`. `TRANSITIONS` has all transitions.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from holdfast.core.errors import InvariantViolation
from holdfast.core.haunit.events import (
    PeerIncarnationLearned,
    Promoted,
    ReportPromoted,
    SubscribeReceived,
)
from holdfast.core.haunit.life_events import (
    BeginIncarnation,
    Connect,
    Disconnect,
    Fail,
    OpeningFailed,
    RecordedPassesRead,
    SinksOpened,
    SourcesOpened,
    StoreOpened,
)
from holdfast.core.haunit.node import Node
from holdfast.core.haunit.openings import Opened, Openings
from holdfast.core.haunit.passes import PassesLost
from holdfast.core.haunit.plan import Assignment, NodePlan, Standby
from holdfast.core.haunit.restoration import (
    BeginFrom,
    LineDamaged,
    MirrorLost,
    Restoration,
    RestoredState,
    StoreAway,
    mirror_lost,
)
from holdfast.core.haunit.restorations import restoration_of
from holdfast.core.haunit.standby_replica import StandbyReplica
from holdfast.core.haunit.told import AssignmentReceived, PeerTold, PromotionReceived, RoundTold
from holdfast.core.machine import Effect, Stimulus
from holdfast.core.model.ids import NOBODY, Incarnation, NodeId, StreamId
from holdfast.core.recovery.guarantee import RolledBack, StreamRebased
from holdfast.core.recovery.restart_point import RestartPoint

RECOVERABLE: Final = (
    InvariantViolation,
    LineDamaged,
    MemoryError,
    PassesLost,
    RolledBack,
    StoreAway,
    StreamRebased,
)
"""What a replacement may not meet again. Shells add what their own technology may do."""


class Phase(enum.Enum):
    """See the module."""

    UNASSIGNED = "unassigned"
    OPENING = "opening"
    RESTORING = "restoring"
    AT_WORK = "at work"
    FOLLOWING = "following"
    PROMOTING = "promoting"
    FAILED = "failed"


TRANSITIONS: Final[Mapping[Phase, tuple[Phase, ...]]] = {
    Phase.UNASSIGNED: (Phase.OPENING,),
    Phase.OPENING: (Phase.RESTORING, Phase.AT_WORK, Phase.FOLLOWING, Phase.FAILED),
    Phase.RESTORING: (Phase.AT_WORK, Phase.FOLLOWING, Phase.FAILED),
    Phase.FOLLOWING: (Phase.PROMOTING, Phase.FAILED),
    Phase.PROMOTING: (Phase.AT_WORK, Phase.FAILED),
    Phase.AT_WORK: (Phase.FAILED,),
    Phase.FAILED: (),
}
"""All that may follow upon a phase."""

_HAS_MACHINE: Final = (Phase.AT_WORK, Phase.FOLLOWING, Phase.PROMOTING)
_IS_OPENING: Final = (Phase.OPENING, Phase.PROMOTING)


@dataclass(frozen=True, slots=True)
class LifeStatistics:
    """Counters of a process.

    Attributes:
        phase: Where it is.
        outdated_words: Words of the coordinator that were said again, or came too late.
        outdated_answers: Answers that nobody waited for.
        refused_frames: What came before there was a machine, and is for none.
    """

    phase: Phase
    outdated_words: int
    outdated_answers: int
    refused_frames: int


class NodeLife:
    """The machine of one process. Volatile: all fields."""

    def __init__(self, plan: NodePlan) -> None:
        """Unassigned."""
        self.plan = plan
        self.phase = Phase.UNASSIGNED
        self.incarnation = NOBODY  # as which it speaks; promoted, from `ReportPromoted` on
        self.born = NOBODY  # as which it began
        self.epoch = 0  # of the coordinator that assigned it
        self.machine: Node | StandbyReplica | None = None
        self.began_at: RestartPoint | None = None  # whose state was loaded; None: none was
        self._assignment: Assignment | None = None
        self._promotion: PromotionReceived | None = None  # not answered yet
        self._openings: Openings | None = None
        self._requests = 0  # numbers given to openings
        self._restoration: Restoration | None = None
        self._peers: dict[NodeId, PeerTold] = {}
        self._subscribed: dict[tuple[StreamId, Incarnation], SubscribeReceived] = {}
        self._round: RoundTold | None = None  # the newest word, if nobody could hear it
        self._speaks_to = frozenset(plan.producers()) | (
            frozenset() if plan.standby is Standby.NONE else {plan.node}
        )
        self._outdated_words = 0
        self._outdated_answers = 0
        self._refused_frames = 0

    def step(self, stimulus: Stimulus, now_ms: int) -> list[Effect]:
        """Take one stimulus. Raises what the machine at work raises.

        What concerns the machine, nearly everything, goes there without a detour.
        """
        handler = _HANDLERS.get(type(stimulus))
        if handler is None and self.machine is not None:
            return self._stepped(self.machine, stimulus, now_ms)
        if self.phase is Phase.FAILED:
            return []
        return (handler or NodeLife._before_there_is_a_machine)(self, stimulus, now_ms)

    def _stepped(
        self, machine: Node | StandbyReplica, stimulus: Stimulus, now_ms: int
    ) -> list[Effect]:
        """Step the machine; its end is a stream that it cannot follow, or having to go back."""
        try:
            return machine.step(stimulus, now_ms)
        except (RolledBack, StreamRebased) as ends:
            self._fail()
            return [Fail(ends)]

    def _go(self, phase: Phase) -> None:
        if phase not in TRANSITIONS[self.phase]:
            raise InvariantViolation(f"{self.plan.node}: {self.phase.value} to {phase.value}")
        self.phase = phase

    # -- the coordinator's words ------------------------------------------------------------

    def _on_assignment_received(self, received: AssignmentReceived, now_ms: int) -> list[Effect]:
        if self.phase is not Phase.UNASSIGNED:
            self._outdated_words += 1
            return []
        self._assignment = given = Assignment(
            received.epoch,
            received.incarnation,
            received.restart_point,
            {},
            received.is_secondary,
            rounds_over=received.rounds_over,
        )
        self.epoch = given.epoch
        self.incarnation = self.born = given.incarnation
        effects: list[Effect] = [BeginIncarnation(given)]
        for told in received.peers:
            effects += self._on_peer_told(told, now_ms)
        self._go(Phase.OPENING)
        return effects + self._open(given.incarnation, given.restart_point, now_ms)

    def _on_peer_told(self, told: PeerTold, now_ms: int) -> list[Effect]:
        known = self._peers.get(told.peer)
        if known == told or self._is_outdated(told):
            self._outdated_words += 1
            return []
        self._peers[told.peer] = told
        effects: list[Effect] = []
        if known is None or not _is_same_primary(known, told):
            effects += self._connect(told)
        return effects + self._tell(_learned(told), now_ms)

    def _is_outdated(self, told: PeerTold) -> bool:
        """Whether a later incarnation of the primary is known; a primary knows itself."""
        if not self.incarnation:
            return True  # Nobody speaks to a process without one.
        if told.peer == self.plan.node and self.phase is Phase.AT_WORK:
            return told.incarnation < self.incarnation
        known = self._peers.get(told.peer)
        return known is not None and told.incarnation < known.incarnation

    def _connect(self, told: PeerTold) -> list[Effect]:
        if told.peer not in self._speaks_to:
            return []
        if told.peer == self.plan.node and told.incarnation == self.incarnation:
            return [Disconnect(told.peer)]
        return [Connect(told.peer, told.incarnation, told.endpoint)]

    def _on_promotion_received(self, received: PromotionReceived, now_ms: int) -> list[Effect]:
        follows = self._assignment is not None and self._assignment.is_secondary
        if not follows or self._promotion is not None or received.incarnation <= self.incarnation:
            self._outdated_words += 1
            return []
        self._promotion = received
        return self._promote_if_due(now_ms)

    def _promote_if_due(self, now_ms: int) -> list[Effect]:
        promotion = self._promotion
        if promotion is not None and self.phase is Phase.FOLLOWING:
            self._go(Phase.PROMOTING)
            return self._open(promotion.incarnation, promotion.restart_point, now_ms)
        return []

    # -- opening ----------------------------------------------------------------------------

    def _open(
        self,
        incarnation: Incarnation,
        point: RestartPoint | None,
        now_ms: int,
    ) -> list[Effect]:
        is_first = self.phase is Phase.OPENING
        self._openings = Openings(
            self.plan,
            incarnation,
            point,
            writes=not (is_first and self._given.is_secondary),
            is_first=is_first,
            request_id=self._requests,
        )
        return [*self._openings.start(), *self._go_on_if_open(self._openings, now_ms)]

    @property
    def _given(self) -> Assignment:
        if self._assignment is None:
            raise InvariantViolation(f"{self.plan.node} has no assignment")
        return self._assignment

    def _on_opened(self, answer: Opened | OpeningFailed, now_ms: int) -> list[Effect]:
        openings = self._openings
        asked = None if openings is None else openings.step(answer)
        if openings is None or asked is None:
            self._outdated_answers += 1
            return []
        return [*self._perform(asked, now_ms), *self._go_on_if_open(openings, now_ms)]

    def _go_on_if_open(self, openings: Openings, now_ms: int) -> list[Effect]:
        if not openings.is_done or self.phase is Phase.FAILED:
            return []
        self._requests = openings.request_id
        self._openings = None
        if self.phase is Phase.OPENING:
            return self._restore(openings, now_ms)
        return self._take_over(openings, now_ms)

    # -- restoring --------------------------------------------------------------------------

    def _restore(self, openings: Openings, now_ms: int) -> list[Effect]:
        """All is open: get the state, if there is one to be had."""
        given, opened = self._given, openings.open
        self._assignment = replace(given, sink_next_ids=opened.next_ids, passes=opened.passes)
        if given.is_secondary and self.plan.standby is Standby.PASSIVE:
            return self._begin(StandbyReplica(self.plan, given), Phase.FOLLOWING, now_ms)
        if given.restart_point is not None and given.restart_point.is_mirrored:
            return self._perform([self._lost_with_both()], now_ms)
        self._restoration = restoration_of(self.plan, given.restart_point, opened)
        if self._restoration is None:
            return self._begin_node(None, now_ms)
        self._go(Phase.RESTORING)
        return self._perform(self._restoration.start(), now_ms)

    def _perform(self, asked: list[Effect], now_ms: int) -> list[Effect]:
        """What the machines within ask for: what concerns this one is done here."""
        effects: list[Effect] = []
        for effect in asked:
            if isinstance(effect, BeginFrom):
                self._restoration = None
                self.began_at = effect.state.point
                effects += self._begin_node(effect.state, now_ms)
                continue
            if isinstance(effect, Fail):
                self._fail()
            effects.append(effect)
        return effects

    def _fail(self) -> None:
        self._go(Phase.FAILED)
        self.machine = None
        self._openings = self._restoration = None
        self._subscribed.clear()

    def _lost_with_both(self) -> Fail:
        """The state is gone, and so is what a replay would need."""
        return Fail(MirrorLost(mirror_lost(self.plan.node)))

    def _begin_node(self, restored: RestoredState | None, now_ms: int) -> list[Effect]:
        given = self._given
        node = Node(self.plan, given, now_ms, restored)
        phase = Phase.FOLLOWING if given.is_secondary else Phase.AT_WORK
        return self._begin(node, phase, now_ms)

    def _begin(self, machine: Node | StandbyReplica, phase: Phase, now_ms: int) -> list[Effect]:
        """A machine is there: it is told of its neighbours, and of what came before it."""
        self._go(phase)
        self.machine = machine
        effects = machine.start(now_ms)
        subscribed, self._subscribed = self._subscribed, {}
        heard: list[Stimulus] = [*map(_learned, self._to_be_told()), *subscribed.values()]
        if self._round is not None:
            heard.append(self._round)
        for stimulus in heard:
            effects += self._tell(stimulus, now_ms)
        return effects + self._promote_if_due(now_ms)

    def _to_be_told(self) -> list[PeerTold]:
        """What is known of others; of a primary's own instance nothing from before it was one."""
        return [
            told
            for told in self._peers.values()
            if self.phase is not Phase.AT_WORK
            or told.peer != self.plan.node
            or told.incarnation >= self.incarnation
        ]

    # -- taking over ------------------------------------------------------------------------

    def _take_over(self, openings: Openings, now_ms: int) -> list[Effect]:
        """All logs are open: this is the primary from now on."""
        promotion, machine, opened = self._promotion, self.machine, openings.open
        if promotion is None or machine is None:
            raise InvariantViolation(f"{self.plan.node} is promoted without a word or a machine")
        if isinstance(machine, Node) and not machine.may_follow(opened.next_ids):
            lost = PassesLost(f"{self.plan.node} has run a pass that its log has lost")
            return self._perform([Fail(lost)], now_ms)
        incarnation, point = promotion.incarnation, promotion.restart_point
        self._promotion, self.incarnation = None, incarnation
        self._assignment = Assignment(
            self.epoch, incarnation, point, opened.next_ids, passes=opened.passes
        )
        if isinstance(machine, StandbyReplica):
            restored = machine.restored(point or RestartPoint(), opened.next_ids)
            self.began_at = None if restored is None else restored.point
            if restored is None and point is not None and point.is_mirrored:
                return [ReportPromoted(), *self._perform([self._lost_with_both()], now_ms)]
            # First: what follows is said as the new incarnation.
            return [ReportPromoted(), *self._begin_node(restored, now_ms)]
        self._go(Phase.AT_WORK)
        promoted = Promoted(incarnation, point, opened.next_ids, opened.passes)
        return self._tell(promoted, now_ms)

    # -- what concerns the machine ----------------------------------------------------------

    def _before_there_is_a_machine(self, stimulus: Stimulus, now_ms: int) -> list[Effect]:
        restoration = self._restoration
        if restoration is not None and type(stimulus) in restoration.answers:
            return self._perform(restoration.step(stimulus, now_ms), now_ms)
        if isinstance(stimulus, SubscribeReceived):
            self._subscribed[(stimulus.stream, stimulus.sender)] = stimulus
            return []
        if isinstance(stimulus, RoundTold):
            self._round = stimulus  # Said again it would come up to a keep-alive later.
            return []
        self._refused_frames += 1
        return []

    def _tell(self, stimulus: Stimulus, now_ms: int) -> list[Effect]:
        """Step the machine, if there is one."""
        if self.machine is not None:
            return self._stepped(self.machine, stimulus, now_ms)
        return []

    # -- looking ----------------------------------------------------------------------------

    @property
    def is_secondary(self) -> bool:
        """Whether it follows another replica."""
        return self.machine is not None and self.machine.is_secondary

    @property
    def has_work(self) -> bool:
        """Whether `Proceed` would process something now."""
        return self.machine is not None and self.machine.has_work

    @property
    def has_joined(self) -> bool:
        """Whether it is a secondary that could take over."""
        return self.machine is not None and self.machine.has_joined

    def known_peers(self) -> dict[NodeId, Incarnation]:
        """The incarnation of every neighbour's primary, as it was told."""
        if self.machine is not None:
            return self.machine.known_peers()
        return {node: told.incarnation for node, told in self._peers.items()}

    def known_secondaries(self) -> dict[NodeId, Incarnation]:
        """The secondary of every neighbour that has one, as it was told."""
        if self.machine is not None:
            return self.machine.known_secondaries()
        return {node: told.secondary for node, told in self._peers.items() if told.secondary}

    def told_secondary(self, peer: NodeId) -> Incarnation:
        """The secondary of a neighbour as the coordinator says; `NOBODY`: it has none."""
        told = self._peers.get(peer)
        return NOBODY if told is None else told.secondary

    def check_invariants(self) -> None:
        """Raise `InvariantViolation` when phase, parts and what was told do not fit."""
        self._require((self.incarnation != NOBODY) == (self.phase is not Phase.UNASSIGNED), "name")
        if self.phase is Phase.FAILED:
            return
        self._require((self.machine is not None) == (self.phase in _HAS_MACHINE), "machine")
        self._require((self._openings is not None) == (self.phase in _IS_OPENING), "openings")
        self._require((self._restoration is not None) == (self.phase is Phase.RESTORING), "state")
        self._require(not (self._subscribed and self.machine), "subscriptions kept")
        if self._restoration is not None:
            self._restoration.check_invariants()
        if self.machine is not None:
            self._check_machine(self.machine)

    def _check_machine(self, machine: Node | StandbyReplica) -> None:
        machine.check_invariants()
        is_at_work = self.phase is Phase.AT_WORK
        self._require(machine.is_secondary != is_at_work, "role")
        self._require(machine.incarnation == self.incarnation, "incarnation")
        own = machine.known_peers().get(self.plan.node, self.incarnation)
        self._require(not is_at_work or own >= self.incarnation, "former primary")
        for node, known in machine.known_peers().items():
            told = self._peers.get(node)
            is_told = told is None or known >= told.incarnation  # A subscriber says it too.
            self._require(is_told, f"view of {node}")

    def _require(self, holds: bool, what: str) -> None:
        if not holds:
            raise InvariantViolation(
                f"{self.plan.node}'s {self.incarnation}, {self.phase.value}, has a wrong {what}"
            )

    def statistics(self) -> LifeStatistics:
        """Counters now."""
        return LifeStatistics(
            self.phase, self._outdated_words, self._outdated_answers, self._refused_frames
        )


def _learned(told: PeerTold) -> PeerIncarnationLearned:
    return PeerIncarnationLearned(told.peer, told.incarnation, told.secondary)


def _is_same_primary(known: PeerTold, told: PeerTold) -> bool:
    return (known.incarnation, known.endpoint) == (told.incarnation, told.endpoint)


_HANDLERS: dict[type[Stimulus], Callable[[NodeLife, Any, int], list[Effect]]] = {
    AssignmentReceived: NodeLife._on_assignment_received,
    PeerTold: NodeLife._on_peer_told,
    PromotionReceived: NodeLife._on_promotion_received,
    SinksOpened: NodeLife._on_opened,
    SourcesOpened: NodeLife._on_opened,
    RecordedPassesRead: NodeLife._on_opened,
    StoreOpened: NodeLife._on_opened,
    OpeningFailed: NodeLife._on_opened,
}
