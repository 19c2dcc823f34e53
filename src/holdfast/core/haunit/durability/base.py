"""What of a unit outlives its process, and when others may forget what it was made from. [HA §5.2]

Theory of operation. A `Durability` notes *restart points* (recovery/restart_point.py): cuts of the
unit between two passes. A point is safe once no receiver needs anything from before it; then the
coordinator is asked to store it. When it has (`RestartPointStored`, never before), the point's
`needed_from` become the level-1 positions told upstream, and upstream trims. Everywhere the same:

    note --safe--> asked for --stored--> retained (trimmed up to the oldest of these)

What differs between the ways to protect a unit is what is noted when, what goes with a point, and
how a replacement comes to its state. Each way is one module of this folder; `choice.py` names the
one that a plan asks for. Nobody else asks.

A durability is a small machine of the node's: it has timers and stimuli of its own (`HANDLERS`,
`TIMERS`), and is told of what happens to the unit. It belongs to one incarnation, which begins
where `begin` says, and takes over what was restored in `adopt`.

    KEEPS: the primary's, notes points
    FOLLOWS --promoted--> KEEPS: a secondary's notes none, its primary's count

Invariants: restart points and level-1 positions never move back; a tuple that a stored restart
point needs is never trimmed upstream; none is noted twice at the same pass.

Departure from [HA §5.2]: the paper maps *level-0* positions through cause() to level-1 ones, which
survives one failure at a time. Here level-1 positions are mapped, so a tuple is kept until nothing
derived from it is needed by anyone: any number of nodes may fail at the same time.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from holdfast.core.errors import LocalProtocolError
from holdfast.core.haunit.beginning import Beginning
from holdfast.core.haunit.events import RestartPointStored, StoreRestartPoint
from holdfast.core.haunit.restart_points import RestartPoints
from holdfast.core.machine import Effect, Stimulus
from holdfast.core.recovery.restart_point import RestartPoint
from holdfast.core.state.page_manager import PageManager

if TYPE_CHECKING:
    from holdfast.core.checkpoint.eventual import ExtentStatistics
    from holdfast.core.haunit.arrivals import InputStream
    from holdfast.core.haunit.events import DeltaAckReceived, PeerIncarnationLearned
    from holdfast.core.haunit.ha_unit import HAUnit
    from holdfast.core.haunit.plan import Assignment, NodePlan
    from holdfast.core.haunit.restoration import RestoredState
    from holdfast.core.model.ids import Incarnation, NodeId
    from holdfast.core.model.notes import PlacedNote

NO_PASS = -1


class DurabilityState(enum.Enum):
    """See the module."""

    KEEPS = "keeps"
    FOLLOWS = "follows"


class Durability:
    """What all ways have in common; by itself, of a unit that nothing protects: no point is noted.

    Volatile: all fields; what is stored is the coordinator's.
    """

    REPLAYS: ClassVar[bool] = True
    """Whether a replacement rebuilds the state by processing input again."""

    # -- bringing up ------------------------------------------------------------------------

    @classmethod
    def begin(
        cls, plan: NodePlan, assignment: Assignment, restored: RestoredState | None
    ) -> Beginning:
        """Where an incarnation begins.

        Args:
            plan: The node's.
            assignment: What the coordinator says.
            restored: What was found of an earlier state; its point counts, then. None: nothing is
                kept of states, and the unit is brought up empty.
        """
        point = assignment.restart_point or RestartPoint()
        is_first = assignment.incarnation <= 1  # Nobody has put anything out.
        is_precise = not plan.rebases
        limits = plan.limits
        begins_at = point if plan.is_replayed else RestartPoint(point.sequence)
        is_at_cut = restored is not None and restored.is_at_cut
        is_silent = restored is None and is_precise  # Else what comes twice does no harm.
        return Beginning(
            point=begins_at if restored is None else restored.point,
            pages=PageManager(limits.page_bytes, limits.state_bytes)
            if restored is None
            else restored.pages,
            newest_sequence=point.sequence if restored is None else restored.newest_sequence,
            incarnation=assignment.incarnation,
            is_secondary=assignment.is_secondary,
            is_at_cut=is_at_cut,
            is_replayed=cls.REPLAYS,
            is_rebased=not (is_precise or is_first or assignment.is_secondary),
            silent_to=begins_at if is_silent and assignment.restart_point is not None else None,
            lost_from=point.needed_from,
            sink_next_ids=assignment.sink_next_ids,
            outputs={} if restored is None else restored.outputs,
            notes={} if restored is None else restored.notes,
            passes=assignment.passes,
            noted_behind=assignment.restart_point if is_at_cut and cls.REPLAYS else None,
            rounds_over=assignment.rounds_over,
        )

    def __init__(self, unit: HAUnit, begins: Beginning, restored: RestoredState | None) -> None:
        """Protect a unit that begins there; `restored` as it was given to `begin`."""
        del restored
        self.unit = unit
        self.kept = 1 if unit.plan.checkpoints is None else unit.plan.checkpoints.kept
        self.points = RestartPoints(begins.newest_sequence, self.kept, begins.point.candidates())
        follows = begins.is_secondary
        self.state = DurabilityState.FOLLOWS if follows else DurabilityState.KEEPS
        self._noted_pass = unit.passes  # the last one that a noted point holds
        # No cut before that of the former primary is noted: its point is durable already.
        self._noted_behind = begins.noted_behind

    def adopt(self, begins: Beginning) -> None:
        """Take over what was restored; the unit has been brought up over its pages."""
        self.unit.pass_over()
        if begins.is_at_cut:
            self.unit.resume(begins.point)

    def start(self, now_ms: int) -> list[Effect]:
        """Set the timers of its own."""
        return []

    # -- the machine ------------------------------------------------------------------------

    def step(self, stimulus: Stimulus, now_ms: int) -> list[Effect]:
        """Take a stimulus of its own.

        Raises:
            LocalProtocolError: It is none of this way to protect a unit.
        """
        handler = self.HANDLERS.get(type(stimulus))
        if handler is None:
            kind = type(stimulus).__name__
            raise LocalProtocolError(f"{kind} does not concern {self.unit.plan.node}")
        return handler(self, stimulus, now_ms)

    def timer_fired(self, name: str, now_ms: int) -> list[Effect]:
        """A timer of its own has run out; args and errors as of `step`."""
        handler = self.TIMERS.get(name)
        if handler is None:
            raise LocalProtocolError(f"{self.unit.plan.node} has no timer {name}")
        return handler(self, now_ms)

    def acknowledging(self, now_ms: int, *, is_due: bool) -> list[Effect]:
        """The ack interval is over.

        Args:
            now_ms: The time.
            is_due: Whether enough is new that positions are told.
        """
        return []

    # -- notes ------------------------------------------------------------------------------

    def notes_arrived(self, now_ms: int) -> list[Effect]:
        """Notes have come, on some stream; their places may not have been reached.

        What waits is in `queue.notes.waiting()` of the streams in `unit.inputs.arrivals`.
        """
        return []

    def noted(self, stream: InputStream, note: PlacedNote, now_ms: int) -> list[Effect]:
        """A note's place has been reached: all before it on its stream has been taken, no more.

        Here a unit may be cut, notes may be put on its outputs (`HAOutput.put_note`), and the
        stream be stopped (`InputQueue.stop_at`).

        Args:
            stream: The input stream.
            note: The note, with its number and place.
            now_ms: The time.
        """
        return []

    # -- recoveries together with others ------------------------------------------------------

    @property
    def is_halted(self) -> bool:
        """Whether nothing may be processed now."""
        return False

    def defers(self, learned: PeerIncarnationLearned) -> bool:
        """Whether the node must not know of a neighbour's incarnation yet; it is told later."""
        del learned
        return False

    def deferred_peers(self) -> dict[NodeId, Incarnation]:
        """Neighbours' incarnations that it will be told of."""
        return {}

    # -- restart points -----------------------------------------------------------------------

    def may_note(self) -> bool:
        """Whether a restart point would say anything new, and would be right."""
        if self.state is DurabilityState.FOLLOWS or not self.unit.may_cut:
            return False
        return self.unit.passes != self._noted_pass and self._has_passed_former()

    def _has_passed_former(self) -> bool:
        """Whether the present cut is not before that of the former primary's newest point."""
        if self._noted_behind is not None and self.unit.has_passed(self._noted_behind):
            self._noted_behind = None
        return self._noted_behind is None

    def cut(self, *, is_state_kept: bool) -> RestartPoint:
        """The present cut as a point that will be noted; args as of `HAUnit.cut`."""
        self._noted_pass = self.unit.passes
        return self.unit.cut(self.points.next_sequence(), is_state_kept=is_state_kept)

    def note_again(self) -> None:
        """The last cut came to nothing: the next one is not too soon."""
        self._noted_pass = NO_PASS

    def ask_to_store(self, now_ms: int) -> list[Effect]:
        """Send the newest point that has become safe to the coordinator."""
        point = self.points.ask(self.unit.outputs.let_go, now_ms)
        if point is not None:
            return [StoreRestartPoint(point)]
        return []

    def ask_again(self, now_ms: int) -> list[Effect]:
        """Words can be lost with their connection: say again what was not answered."""
        point = self.points.ask_again(now_ms, self.unit.plan.limits.resubscribe_ms)
        if point is not None:
            return [StoreRestartPoint(point)]
        return []

    def on_restart_point_stored(self, stored: RestartPointStored, now_ms: int) -> list[Effect]:
        """Level-1 positions may move now, and not before: a replacement will start here."""
        del now_ms
        if not self.points.stored(stored.sequence):
            return []
        oldest = self.points.retained[-1]
        self.unit.inputs.let_go(oldest)
        return [*self.unit.order.trim(oldest), *self.retained()]

    def retained(self) -> list[Effect]:
        """Other points are retained: what only earlier ones needed may go."""
        return []

    # -- replicas ---------------------------------------------------------------------------

    def promoted(self, point: RestartPoint | None) -> None:
        """The secondary is the primary now; `point` is the newest that its predecessor stored."""
        self.state = DurabilityState.KEEPS
        newest = point or RestartPoint()
        self.points = RestartPoints(newest.sequence, self.kept, newest.candidates())
        self.unit.inputs.let_go(newest)
        self._noted_behind = point
        self.note_again()

    def secondary_subscribed(self, secondary: Incarnation, now_ms: int) -> list[Effect]:
        """The secondary of the instance wants to be told."""
        return []

    def secondary_replaced(self) -> None:
        """The instance has another secondary, or none."""

    def delta_acknowledged(self, got: DeltaAckReceived, now_ms: int) -> list[Effect]:
        """The secondary has received pages, or applied a delta."""
        return []

    # -- looking ----------------------------------------------------------------------------

    @property
    def delta_under_way(self) -> int:
        """The number of the delta that a secondary is being sent; 0: none."""
        return 0

    @property
    def trouble(self) -> str | None:
        """Why it is less safe than its plan says, as people should read it; None: it is not."""
        return None

    @property
    def extent(self) -> ExtentStatistics | None:
        """What a replacement would read and replay; None: windows leave no footprints."""
        return None

    def check_invariants(self) -> None:
        """Raise `InvariantViolation` when points make no sense."""
        self.points.check_invariants(self.unit.inputs.needed_from)

    HANDLERS: ClassVar[Mapping[type[Stimulus], Callable[[Any, Any, int], list[Effect]]]] = {
        RestartPointStored: on_restart_point_stored,
    }
    TIMERS: ClassVar[Mapping[str, Callable[[Any, int], list[Effect]]]] = {}
