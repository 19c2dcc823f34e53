"""A passive secondary: it keeps a copy of its primary's state, and does nothing else. [HA §4.1]

It subscribes to the instance's replica stream, applies what comes, and says what it has. When it
loses the thread it subscribes again, and everything is sent anew. At a *takeover* it is promoted:
it hands the state to a node of its own process, which goes on from there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

from holdfast.core.haunit.events import (
    DeltaReceived,
    PageRunReceived,
    PeerIncarnationLearned,
    SendDeltaAck,
)
from holdfast.core.haunit.node_figures import NodeStatistics
from holdfast.core.haunit.replica_link import ReplicaLink
from holdfast.core.haunit.state_delta import BrokenDelta, StandbyImage
from holdfast.core.machine import Effect, SetTimer, Stimulus, TimerFired
from holdfast.core.model.ids import BEGINNING_US

if TYPE_CHECKING:
    from holdfast.core.haunit.plan import Assignment, NodePlan
    from holdfast.core.haunit.restoration import RestoredState
    from holdfast.core.model.ids import Incarnation, NodeId, StreamId
    from holdfast.core.recovery.restart_point import RestartPoint


class StandbyReplica:
    """The machine of one incarnation of a passive secondary. Volatile: all fields."""

    is_secondary = True
    trouble: ClassVar[str | None] = None

    def __init__(self, plan: NodePlan, assignment: Assignment) -> None:
        """Bring it up; call `start` for the first effects."""
        self.plan = plan
        self.incarnation = assignment.incarnation
        self._link = ReplicaLink(plan)
        self._peers: dict[NodeId, Incarnation] = {}
        self.image = StandbyImage(plan)

    def start(self, now_ms: int) -> list[Effect]:
        """The first effects: its timer."""
        return [SetTimer("keep-alive", now_ms + self.plan.limits.keep_alive_ms)]

    def step(self, stimulus: Stimulus, now_ms: int) -> list[Effect]:
        """Take one stimulus; what concerns only a node at work is dropped."""
        handler = _HANDLERS.get(type(stimulus))
        return [] if handler is None else handler(self, stimulus, now_ms)

    @property
    def has_work(self) -> bool:
        """Nothing is done between stimuli."""
        return False

    @property
    def has_joined(self) -> bool:
        """Whether there is a state to take over with."""
        return self.image.cut is not None

    def restored(
        self, point: RestartPoint, sink_next_ids: dict[StreamId, int]
    ) -> RestoredState | None:
        """See `StandbyImage.restored`."""
        return self.image.restored(point, sink_next_ids)

    def _on_peer_incarnation_learned(
        self, learned: PeerIncarnationLearned, now_ms: int
    ) -> list[Effect]:
        if learned.node != self.plan.node:
            self._peers[learned.node] = learned.incarnation
            return []
        is_other = self._link.known_primary().get(learned.node) != learned.incarnation
        self._link.learn(learned)
        if is_other:
            self.image = StandbyImage(self.plan)
            return self._link.subscribe(now_ms)
        return []

    def _on_page_run_received(self, got: PageRunReceived, now_ms: int) -> list[Effect]:
        if not self._is_ours(got, got.run.sequence, now_ms):
            return []
        pages = self.image.receive(got.run)
        return self._acknowledge(got.sender, got.run.sequence, pages, is_applied=False)

    def _on_delta_received(self, got: DeltaReceived, now_ms: int) -> list[Effect]:
        if not self._is_ours(got, got.delta.sequence, now_ms):
            return []
        try:
            self.image.apply(got.delta)
        except BrokenDelta:
            return self._link.subscribe(now_ms)
        delta = got.delta
        return self._acknowledge(got.sender, delta.sequence, delta.pages, is_applied=True)

    def _is_ours(self, got: PageRunReceived | DeltaReceived, sequence: int, now_ms: int) -> bool:
        is_from_primary = got.receiver == self.incarnation and self._link.heard(got.sender, now_ms)
        if is_from_primary and sequence > self.image.sequence:
            return True  # Else it has come before.
        self._link.refused_frames += 1
        return False

    def _acknowledge(
        self,
        primary: Incarnation,
        sequence: int,
        pages: int,
        *,
        is_applied: bool,
    ) -> list[Effect]:
        stream = self.plan.replica_stream
        return [SendDeltaAck(stream, primary, sequence, pages, is_applied)]

    def _on_timer_fired(self, _: TimerFired, now_ms: int) -> list[Effect]:
        return [
            SetTimer("keep-alive", now_ms + self.plan.limits.keep_alive_ms),
            *self._link.subscribe_if_silent(now_ms),
        ]

    # -- looking ----------------------------------------------------------------------------

    def known_peers(self) -> dict[NodeId, Incarnation]:
        """The incarnation of every neighbour's primary, and of its own."""
        return self._peers | self._link.known_primary()

    def known_secondaries(self) -> dict[NodeId, Incarnation]:
        """Its own incarnation, once it has been told."""
        return self._link.known_secondary()

    def peer_incarnation(self, stream: StreamId, *, is_secondary: bool = False) -> Incarnation:
        """The incarnation that it knows at the other end of the replica stream."""
        del stream
        return self._link.other(is_secondary=is_secondary)

    def check_invariants(self) -> None:
        """Raise `InvariantViolation` when the pages, or the link, make no sense."""
        self.image.pages.check_invariants()
        self._link.check_invariants()

    def statistics(self) -> NodeStatistics:
        """What it holds."""
        pages = self.image.pages.statistics()
        cut = self.image.cut
        return NodeStatistics(
            state_bytes=pages.pages_used * pages.page_bytes,
            held_bytes=pages.pages_held * pages.page_bytes,
            refused_frames=self._link.refused_frames,
            boundary_us=BEGINNING_US if cut is None else cut.boundary_us,
        )


_HANDLERS: dict[type[Stimulus], Callable[[StandbyReplica, Any, int], list[Effect]]] = {
    PeerIncarnationLearned: StandbyReplica._on_peer_incarnation_learned,
    PageRunReceived: StandbyReplica._on_page_run_received,
    DeltaReceived: StandbyReplica._on_delta_received,
    TimerFired: StandbyReplica._on_timer_fired,
}
