"""A node: one running instance of an HA unit. It routes. [HA §4.3, §5.2, §6; SGuard §3]

Theory of operation. Stimuli come one at a time, and each goes to the room that it concerns:

| of | to |
| --- | --- |
| frames of producers, sources | `HAInput`; what has come, an input order takes (`input_order.py`) |
| `Proceed` | `HAUnit`, which runs one pass |
| frames of receivers, sinks, spills | `HAOutput` |
| restart points, checkpoints | the plan's `Durability` |
| the other replica of the instance | `ReplicaLink` |

Every `ack_interval_ms` (the paper's M), or at a low rate every few of them: restart points are
noted, level-0 positions and credit go upstream for every input stream, and sinks are made durable.

An instance may have a second replica (active standby, [HA §4.2]): a secondary is a node that starts
at the instance's newest restart point, processes the same input and puts nothing out. It keeps its
output until the primary, every `ack_interval_ms`, tells it that nobody needs it any more. Promoted,
it goes on as another incarnation: it subscribes anew, and its receivers subscribe to it. Passes
make the same tuples wherever they run, so that nothing needs to be compared. Where they do not and
need not, a secondary decides for itself (`NodePlan.diverges`): it lets go of the passes whose input
its primary does not need any more, and promoted, numbers what is left from where receivers are.

    SECONDARY --promoted--> AT_WORK --all input has ended, all output is safe--> FINISHED

Invariants: those of the rooms; and frames of an earlier incarnation, or meant for one, change
nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from holdfast.core.haunit import events as e
from holdfast.core.haunit.ack_pace import AckPace
from holdfast.core.haunit.durability.choice import durability_of
from holdfast.core.haunit.kinds_of_unit import unit_of
from holdfast.core.haunit.node_looks import NodeLooks, NodeState
from holdfast.core.haunit.replica_link import ReplicaLink
from holdfast.core.machine import Effect, SetTimer, Stimulus, TimerFired

if TYPE_CHECKING:
    from holdfast.core.haunit.plan import Assignment, NodePlan
    from holdfast.core.haunit.restoration import RestoredState
    from holdfast.core.model.ids import StreamId


class Node(NodeLooks):
    """The machine of one incarnation of a node. See the module's theory of operation.

    Durable: nothing here; the coordinator stores restart points, producers retain tuples, sinks
    and sources are logs. Volatile: all fields.
    """

    def __init__(
        self,
        plan: NodePlan,
        assignment: Assignment,
        now_ms: int,
        restored: RestoredState | None = None,
    ) -> None:
        """Bring up an incarnation at its restart point; call `start` for the first effects.

        Args:
            plan: Its part of the dataflow.
            assignment: What the coordinator says.
            now_ms: The time.
            restored: What a `Restoration` has found, if the restart point has a checkpoint or one
                behind it; its point counts then.
        """
        self.plan = plan
        self.incarnation = assignment.incarnation
        durability = durability_of(plan)
        begins = durability.begin(plan, assignment, restored)
        self._unit = unit_of(plan, begins, now_ms)
        self._durability = durability(self._unit, begins, restored)
        self._durability.adopt(begins)
        self._replica = ReplicaLink(plan)
        self._pace = AckPace(plan.limits)
        self._state = NodeState.SECONDARY if begins.is_secondary else NodeState.AT_WORK

    # -- the machine ------------------------------------------------------------------------

    def start(self, now_ms: int) -> list[Effect]:
        """The first effects of an incarnation: its timers and source reads."""
        effects: list[Effect] = [self._pace.timer(now_ms), self._keep_alive_timer(now_ms)]
        effects += self._durability.start(now_ms)
        if not self._unit.replay.is_silent:
            effects.append(e.ReportCaughtUp(0))
        effects += self._unit.end_silence_if_due()
        effects += self._unit.inputs.read_sources(now_ms)
        effects += self._unit.ask_to_wake(now_ms)
        return effects + self._unit.order.follow()

    def step(self, stimulus: Stimulus, now_ms: int) -> list[Effect]:
        """Take one stimulus. Raises `InvariantViolation` or an operator's own error."""
        handler = _HANDLERS.get(type(stimulus))
        if handler is None:
            return self._durability.step(stimulus, now_ms)
        return handler(self, stimulus, now_ms)

    @property
    def has_work(self) -> bool:
        """Whether `Proceed` would process something now. Cost: O(outputs) when there is input."""
        return self._unit.has_work and not self._durability.is_halted

    def _on_proceed(self, proceed: e.Proceed, now_ms: int) -> list[Effect]:
        unit = self._unit
        if not self.has_work:
            return []
        effects = self._pace.passed(now_ms)
        had_fresh = unit.inputs.arrivals.fresh
        has_heard, said = self._hear_notes(now_ms)
        effects += said
        has_processed, said = unit.run_pass(proceed, now_ms)
        effects += said
        effects += unit.inputs.grant(unit.inputs.all() if has_processed else had_fresh)
        if has_processed or has_heard:
            effects += unit.outputs.flush()
        effects += unit.inputs.read_sources(now_ms)
        if has_processed:
            effects += unit.ask_to_wake(now_ms)
        else:  # The clock is that of the last pass: what is to wait from there waits already.
            effects += unit.ask_when_due(now_ms)
        return effects + self._finish_if_due()

    def _hear_notes(self, now_ms: int) -> tuple[bool, list[Effect]]:
        """Tell of the notes whose places have been reached.

        The durability may put notes on the outputs, and stop the stream.

        Returns:
            Whether there were some, and the effects.
        """
        has_heard = False
        effects: list[Effect] = []
        for stream, note in self._unit.inputs.arrivals.take_notes():
            if not self._unit.noted(stream, note.note):
                effects += self._durability.noted(stream, note, now_ms)
            has_heard = True
        return has_heard, effects

    def _finish_if_due(self) -> list[Effect]:
        if self._state is not NodeState.AT_WORK or not self._unit.has_ended:
            return []
        are_ended, effects = self._unit.outputs.end_sinks()
        if are_ended:
            self._state = NodeState.FINISHED
            effects.append(e.ReportFinished())
        return effects

    # -- input ------------------------------------------------------------------------------

    def _on_batch_received(self, got: e.BatchReceived, now_ms: int) -> list[Effect]:
        effects = self._unit.inputs.receive(got, now_ms)
        if got.notes:
            effects += self._durability.notes_arrived(now_ms)
        return effects

    def _on_notes_received(self, got: e.NotesReceived, now_ms: int) -> list[Effect]:
        return [
            *self._unit.inputs.receive_notes(got, now_ms),
            *self._durability.notes_arrived(now_ms),
        ]

    def _on_boundary_received(self, got: e.BoundaryReceived, now_ms: int) -> list[Effect]:
        effects = self._unit.inputs.promise(got, now_ms)
        if self._unit.inputs.take_rebased():
            effects += self._unit.follow_rebased()
        return effects

    def _on_source_read(self, got: e.SourceRead, now_ms: int) -> list[Effect]:
        effects = self._unit.inputs.source_read(got, now_ms)
        if not (got.batches and self.has_work):  # Else what has come goes first.
            effects += self._unit.inputs.read_sources(now_ms)
        return effects

    # -- output -----------------------------------------------------------------------------

    def _on_subscribe_received(self, got: e.SubscribeReceived, now_ms: int) -> list[Effect]:
        if got.stream == self.plan.replica_stream:
            if self._replica.is_from_secondary(got, self.incarnation):
                self._replica.subscribed()
                return self._durability.secondary_subscribed(got.sender, now_ms)
            return []
        is_served, effects = self._unit.outputs.subscribe(got)
        return effects + self._serve(got.stream, now_ms) if is_served else effects

    def _on_ack_received(self, got: e.AckReceived, now_ms: int) -> list[Effect]:
        is_accepted, effects = self._unit.outputs.acknowledge(got)
        return effects + self._serve(got.stream, now_ms) if is_accepted else effects

    def _serve(self, stream: StreamId, now_ms: int) -> list[Effect]:
        stored = self._durability.ask_to_store(now_ms)
        return stored + self._unit.outputs.flush_stream(stream)

    def _on_sink_synced(self, synced: e.SinkSynced, now_ms: int) -> list[Effect]:
        return [
            *self._unit.outputs.sink_synced(synced),
            *self._durability.ask_to_store(now_ms),
            *self._finish_if_due(),
        ]

    # -- neighbours and the other replica -----------------------------------------------------

    def _on_peer_incarnation_learned(
        self, learned: e.PeerIncarnationLearned, now_ms: int
    ) -> list[Effect]:
        if self._durability.defers(learned):
            return []
        if learned.node != self.plan.node:
            effects = self._unit.inputs.learn(learned.node, learned.incarnation, now_ms)
            self._unit.outputs.receivers.learn(learned.node, learned.incarnation, learned.secondary)
            return effects
        is_other_secondary = self._replica.learn(learned)
        if self.is_secondary:
            return self._replica.subscribe(now_ms)
        if is_other_secondary:
            self._durability.secondary_replaced()
        return []

    def _on_delta_ack_received(self, got: e.DeltaAckReceived, now_ms: int) -> list[Effect]:
        if self._replica.is_from_secondary(got, self.incarnation):
            return self._durability.delta_acknowledged(got, now_ms)
        return []

    def _on_state_received(
        self, got: e.PageRunReceived | e.DeltaReceived, now_ms: int
    ) -> list[Effect]:
        """Meant for the passive secondary that this node was before it was promoted."""
        del got, now_ms
        self._replica.refused_frames += 1
        return []

    def _on_positions_received(self, got: e.PositionsReceived, now_ms: int) -> list[Effect]:
        is_meant = self.is_secondary and got.receiver == self.incarnation
        if self._replica.is_told(got, now_ms, is_meant=is_meant):
            return self._unit.outputs.follow(got.positions)
        return []

    def _on_promoted(self, promoted: e.Promoted, now_ms: int) -> list[Effect]:
        """The primary is gone, or hands over: go on in its place."""
        if not self.is_secondary:
            return []
        self._state = NodeState.AT_WORK
        self.incarnation = promoted.incarnation
        unit = self._unit
        self._durability.promoted(promoted.restart_point)
        # First: what follows is said as the new incarnation.
        effects: list[Effect] = [e.ReportPromoted()]
        effects += unit.inputs.promote(promoted.incarnation, now_ms)
        effects += unit.outputs.promote(promoted.incarnation, promoted.sink_next_ids)
        unit.order.promote(promoted.passes)
        effects += unit.ask_to_wake(now_ms)
        self._replica = ReplicaLink(self.plan)
        return effects + self._finish_if_due()

    # -- timers -----------------------------------------------------------------------------

    def _on_timer_fired(self, timer: TimerFired, now_ms: int) -> list[Effect]:
        handler = _TIMERS.get(timer.name)
        if handler is not None:
            return handler(self, now_ms)
        is_of_unit, effects = self._unit.timer_fired(timer.name, now_ms)
        return effects if is_of_unit else self._durability.timer_fired(timer.name, now_ms)

    def _on_ack_timer(self, now_ms: int) -> list[Effect]:
        unit = self._unit
        is_due = self._pace.fired(unit.input_tuples)
        effects: list[Effect] = [self._pace.timer(now_ms)]
        effects += self._durability.acknowledging(now_ms, is_due=is_due)
        effects += unit.outputs.sync_sinks()
        effects += self._durability.ask_to_store(now_ms)
        if is_due:
            effects += unit.inputs.acknowledge_all()
            effects += self._replica.tell(unit.inputs.needed_from, unit.outputs.positions)
        return effects + self._finish_if_due()

    def _on_keep_alive_timer(self, now_ms: int) -> list[Effect]:
        effects: list[Effect] = [self._keep_alive_timer(now_ms)]
        if self._state is NodeState.FINISHED:
            effects.append(e.ReportFinished())
        effects += self._durability.ask_again(now_ms)
        effects += self._unit.outputs.keep_alive()
        effects += self._unit.inputs.subscribe_to_silent(now_ms)
        effects += self._unit.ask_again()
        if self.is_secondary:
            effects += self._replica.subscribe_if_silent(now_ms)
        return effects

    def _keep_alive_timer(self, now_ms: int) -> SetTimer:
        return SetTimer("keep-alive", now_ms + self.plan.limits.keep_alive_ms)

    def check_invariants(self) -> None:
        """Raise `InvariantViolation` when a room, or what it knows of another, makes no sense."""
        self._unit.check_invariants()
        self._durability.check_invariants()
        self._replica.check_invariants()


_HANDLERS: dict[type[Stimulus], Callable[[Node, Any, int], list[Effect]]] = {
    e.BatchReceived: Node._on_batch_received,
    e.NotesReceived: Node._on_notes_received,
    e.BoundaryReceived: Node._on_boundary_received,
    e.SubscribeReceived: Node._on_subscribe_received,
    e.PositionsReceived: Node._on_positions_received,
    e.PassesRead: lambda node, got, now_ms: node._unit.order.recorded(got.passes, now_ms),
    e.DeltaAckReceived: Node._on_delta_ack_received,
    e.PageRunReceived: Node._on_state_received,
    e.DeltaReceived: Node._on_state_received,
    e.Promoted: Node._on_promoted,
    e.AckReceived: Node._on_ack_received,
    e.PeerIncarnationLearned: Node._on_peer_incarnation_learned,
    e.SourceRead: Node._on_source_read,
    e.SourceStirred: lambda node, got, now_ms: node._unit.inputs.source_stirred(got, now_ms),
    e.SinkSynced: Node._on_sink_synced,
    e.SpillRead: lambda node, got, _: node._unit.outputs.spill_read(got),
    e.TurnGranted: lambda node, got, now_ms: node._unit.turn_granted(got.asking, now_ms),
    TimerFired: Node._on_timer_fired,
    e.Proceed: Node._on_proceed,
}
"""What is not here concerns the durability."""

_TIMERS: dict[str, Callable[[Node, int], list[Effect]]] = {
    "ack": Node._on_ack_timer,
    "keep-alive": Node._on_keep_alive_timer,
}
"""Others are of the unit, or of the durability."""
