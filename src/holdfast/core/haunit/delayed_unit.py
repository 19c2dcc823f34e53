"""An HA unit that does not wait for missing input for longer than a bound. [DPC §3, §4]

Theory of operation. It is an HAUnit whose passes the consistency manager decides on
(replication/consistency_manager.py), one step after the other:

- a stable pass, up to what all streams have promised;
- hold the cut: the pages of the network are frozen, and SUnion keeps what it releases. Then a
  tentative pass without what is missing. What the network gives to outputs that missing input
  reaches (reach.py) is put out as tentative: to feeds, and to units that go on without missing
  input themselves. Sinks and all others hear nothing. What it gives to other outputs is stable;
- go back: the pages are those of the cut, with another network over them, or the operators' state
  is made again from the input before it (replication/undo_redo.py). SUnion holds what it held. Undo
  is said. What has come since as stable is processed in passes of a bearable size; what is out of
  their results as stable is known by its ids, and dropped;
- the correction is over: rec_done is said, unless it was one in part.

A unit behind such a one takes its tentative tuples, too: while it merges, SUnion holds them beside
the stable ones; with one stream it follows that (replication/following.py).

With `buffer="drop"` a correction may go without some of its input (drop_ledger.py). Before the node
goes back, a restart point has to say so; it waits for that as for a turn.

Queues live through all that. No restart point is noted in up_failure, and no end reported. The one
timer, `delay`, is set for when something will have waited for the bound.

Should the memory of state not suffice for the clones beside the held cut, the node fails by name:
it cannot go back, and must not go on.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from holdfast.core.errors import InvariantViolation
from holdfast.core.haunit.delayed_order import corrected_order
from holdfast.core.haunit.drop_ledger import DropLedger
from holdfast.core.haunit.events import AskForTurn, LeaveTurn, ReportGap
from holdfast.core.haunit.ha_unit import HAUnit
from holdfast.core.haunit.operator_network import OperatorNetwork
from holdfast.core.haunit.reach import Reach
from holdfast.core.machine import SetTimer
from holdfast.core.model.ids import NO_ID, StreamId
from holdfast.core.model.notes import RecDone, Undo
from holdfast.core.replication.consistency_manager import Action, Consistency, Event
from holdfast.core.replication.undo_redo import UndoHistory
from holdfast.core.state.page_manager import StateLimitExceeded

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast.core.haunit.arrivals import InputStream
    from holdfast.core.haunit.beginning import Beginning
    from holdfast.core.haunit.delayed_order import CorrectedOrder
    from holdfast.core.haunit.events import Proceed
    from holdfast.core.haunit.input_order import Taken
    from holdfast.core.haunit.plan import DelayPlan, NodePlan
    from holdfast.core.machine import Effect
    from holdfast.core.model.notes import StreamNote
    from holdfast.core.recovery.restart_point import RestartPoint
    from holdfast.core.replication.consistency_manager import ConsistencyStatistics, Step
    from holdfast.core.replication.turns import Turn


class Waits(NamedTuple):
    """What of one input stream waits for others.

    Attributes:
        oldest_id: Of the tuples held; `NO_ID`: there are none.
        merged_before: All before this id have been merged, or are held.
        promised_us: Its boundary.
        closes: Of that or an earlier one, the time of the newest result that it would put out, but
            for others; what has been acted on, or less: there is none.
    """

    oldest_id: int
    merged_before: int
    promised_us: int
    closes: Callable[[int], int]


class HeldCut:
    """Where a unit goes back to."""

    def __init__(
        self, network: OperatorNetwork, next_ids: dict[str, int], *, is_copied: bool
    ) -> None:
        """What the network had acted on, and the next id of each output; its pages, or, if they are
        made again, the stream markers of each operator, which say from which input.

        Until it is gone back to, nobody accounts for what operators are given.
        """
        self.snapshot = network.pages.hold() if is_copied else None
        self.boundary_us = network.boundary_us
        self.next_ids = next_ids
        self.markers = None if is_copied else network.markers()
        self.taking_part, network.taking_part = network.taking_part, None

    @property
    def is_lost(self) -> bool:
        """Whether its pages had to go."""
        return self.snapshot is not None and self.snapshot.is_cancelled


class DelayedUnit(HAUnit):
    """See the module. Volatile: all fields."""

    order: CorrectedOrder

    def __init__(self, plan: NodePlan, begins: Beginning, now_ms: int, delays: DelayPlan) -> None:
        """Bring it up where it begins; `delays` says how long it waits."""
        self._delays = delays
        super().__init__(plan, begins, now_ms)
        self._manager = self.order.manager
        self.order.ask_operators(self._closes_us)
        self._has_windows_behind = any(
            spec.has_tentative and spec.has_windows_behind for spec in plan.outputs
        )
        self._cut: HeldCut | None = None
        self._reach = Reach(plan)
        self.order.tell_outputs(self._reach.apart)
        self._has_begun = False  # to delay: not before the silent replay is over
        self._missing: dict[StreamId, None] = {}  # source streams that the last failure is about
        self._is_due = False  # there is a step to do though nothing has come
        self._has_turns = self._manager.turn.is_needed
        self._has_asked = False  # for a turn, which is not over
        # Where state stands behind state, a replay within the node would give it partial results.
        keeps = 0 if self.network.has_chain else delays.undo_tuples
        self._history = UndoHistory(keeps) if keeps else None  # None: checkpoint/redo
        self._begins_without = begins.point.dropped
        if delays.drops and len(plan.inputs) > 1:
            streams = tuple(spec.stream for spec in plan.inputs)
            self.ledger = DropLedger(begins, streams, delays.horizon_tuples)
            self.order.may_drop(self.ledger.droppable_from)
        self.replayed_tuples = 0
        """Run again in silence, to be back at cuts."""

    def _order_of(self, begins: Beginning) -> CorrectedOrder:
        return corrected_order(self.plan, self.inputs.arrivals, begins, self._delays)

    def _closes_us(self, streams: Sequence[int], boundary_us: int) -> int:
        """The newest time, at most a boundary, that it would close of these streams' tuples.

        Units behind this one may hold windows of all that they have brought. But: 1. A stream
        promises 1,000. 2. Its first tuple comes, which is newer. What the boundary closed holds
        nothing of the stream, so none of its results has waited since then.
        """
        if self._has_windows_behind and any(self.order.had(s, boundary_us) for s in streams):
            return boundary_us
        return self.network.closes_us(streams, boundary_us)

    # -- passes -----------------------------------------------------------------------------

    @property
    def has_work(self) -> bool:
        """Whether there may be a step to do now."""
        if self.replay.is_silent or not self._has_begun:
            return super().has_work or (not self.replay.is_silent and self.outputs.has_room())
        return (self._is_due or self.order.has_news) and self.outputs.has_room()

    def run_pass(self, proceed: Proceed, now_ms: int) -> tuple[bool, list[Effect]]:
        """Do the next step; returns as of `HAUnit`."""
        if self.replay.is_silent:
            return super().run_pass(proceed, now_ms)
        effects: list[Effect] = []
        if not self._has_begun:
            self._has_begun = True
            effects += self.outputs.tentative.begin()
            self.order.begin(self.network.boundary_us, now_ms)
            effects += self._stand()
            for name, ranges in self._begins_without.items():  # The word may have been lost.
                effects.extend(ReportGap(StreamId(name), *each) for each in ranges)
        self.order.merge(now_ms)
        step = self._manager.next_step(now_ms)
        if step is not None and not self._may_do(step):
            step = None
        if step is not None:
            effects += self._perform(step, now_ms)
        self.delay_over(now_ms)
        if self._has_turns:
            effects += self._mind_turn()
        return step is not None, effects

    def _perform(self, step: Step, now_ms: int) -> list[Effect]:
        effects: list[Effect] = []
        if step.action is Action.HOLD_CUT:
            self._hold_cut()
            self._missing = {}
        elif step.action is Action.GO_BACK:
            effects += self._go_back(is_whole=step.event is Event.HEALED)
        elif step.action is Action.SAY_DONE:
            effects += self.outputs.tentative.rec_done()
        boundary_us = step.boundary_us
        if boundary_us is not None and step.is_tentative:
            boundary_us, tentative = self._process_tentative(boundary_us)
            effects += tentative
        elif boundary_us is not None:
            taken = self.order.up_to(self.network.bound_us(boundary_us))
            boundary_us = taken.boundary_us
            effects += self._process(taken)
        self._manager.did(step, boundary_us, now_ms)
        has_touched_more = self._reach.take_news()
        if step.event is not None or has_touched_more:
            effects += self._stand()
        return effects

    def _stand(self) -> list[Effect]:
        """Say where this node stands, if it is one of several replicas."""
        if not self.plan.replicas:
            return []
        state = self._manager.state
        stable: list[StreamId] = []
        if state is Consistency.UP_FAILURE:
            for spec in self.plan.outputs:
                stable += () if self._reach.touching(spec) else spec.streams
        return self.outputs.tentative.stands(state, stable)

    def _hold_cut(self) -> None:
        history, network = self._history, self.network
        can_replay = history is not None and history.reaches(network.oldest_needed())
        self._cut = HeldCut(network, self.outputs.next_ids, is_copied=not can_replay)
        self.order.hold_cut()

    def _process(self, taken: Taken) -> list[Effect]:
        """Run the operators on what is stable, and keep it for undo/redo."""
        effects = super()._process(taken)
        history = self._history
        if history is None:
            return effects
        come_before = self.inputs.arrivals.processed_before
        history.ran(taken.ports, taken.low, taken.boundary_us, taken.tuples, come_before)
        if history.is_to_be_trimmed:
            history.trim(self.network.oldest_needed())
        return effects

    def _process_tentative(self, boundary_us: int) -> tuple[int, list[Effect]]:
        """Run the operators without what is missing.

        What they give is put out as tentative where that reaches, and else as stable.

        Returns:
            The boundary that it has acted on, and what is to be done.

        Raises:
            StateLimitExceeded: The held cut had to go for the memory of its clones.
        """
        touched = self.order.touched_by(boundary_us)
        self._reach.touch(touched)
        self.order.went_without(touched)
        taken = self.order.without_missing(boundary_us)
        self.input_tuples += taken.tuples
        boundary_us = taken.boundary_us
        produced = self.network.process(taken.ports, taken.low, boundary_us, is_silent=False)
        self.passes += 1
        effects: list[Effect] = []
        for spec, pieces, before_us in produced:
            missing = self._sources_missing(boundary_us, self._reach.touching(spec))
            if missing:
                effects += self.outputs.tentative.put_out(spec, pieces, before_us, missing)
            else:
                effects += self.outputs.put_out(spec, pieces, before_us)
                self.outputs.promise(spec, before_us)
        if self._cut is not None and self._cut.is_lost:
            raise StateLimitExceeded(
                f"{self.plan.node} has gone on without missing input, and the state that it must "
                "go back to does not fit beside the present one; set spark.holdfast.stateBytesMax "
                "to twice the state"
            )
        return boundary_us, effects

    def _sources_missing(self, boundary_us: int, touching: list[int]) -> tuple[StreamId, ...]:
        """The source streams without which a pass goes on to a boundary.

        A stream whose newest tuple is the reason for the boundary has promised its time, and no
        more. It is not missing, unless nothing else is. One that has come since is not, either:
        where no other one is, what was put out before still rests on it.

        Args:
            boundary_us: The boundary.
            touching: Streams among which to look; none is missing where there are none.
        """
        looks = self._manager.behind(boundary_us - 1), self._manager.behind(boundary_us)
        among = ([each for each in touching if each in behind] for behind in looks)
        behind = next((found for found in among if found), touching)
        streams = self.inputs.arrivals.streams
        lacking = (streams[number].lacking(boundary_us - 1) for number in behind)
        missing = dict.fromkeys(source for sources in lacking for source in sources)
        self._missing |= missing
        return tuple(missing)

    def _go_back(self, *, is_whole: bool) -> list[Effect]:
        """Build the operators anew over the pages of the cut, or make these again from input.

        Args:
            is_whole: Whether all that was done since the cut is corrected before anything else.
        """
        cut, self._cut = self._cut, None
        staying = [False] * len(self.plan.operators)
        if cut is None:
            raise InvariantViolation("there is no cut to go back to")
        if cut.snapshot is not None:
            pages = self.network.pages
            pages.restore(cut.snapshot)
            self.network = OperatorNetwork(self.plan, pages)
        elif self._history is not None and cut.markers is not None:
            staying = [is_whole and stays for stays in self._reach.staying()]
            self.network.go_back(staying)
            cut.markers[staying] = NO_ID
            self.replayed_tuples += self._history.replay(self.network, cut.markers)
        self.network.resume(cut.boundary_us)
        if self.network.taking_part is not None and cut.taking_part is not None:
            self.network.taking_part.take_over(cut.taking_part)
        self.order.go_back()
        self.outputs.go_back(self._next_ids_at(cut, staying))
        self._reach.went_back()
        if self.ledger is not None:
            self.ledger.went_back()
        return self.outputs.tentative.undo()

    def _next_ids_at(self, cut: HeldCut, staying: Sequence[bool]) -> dict[str, int]:
        """Of the streams of operators that are back at the cut, the next ids there."""
        still = [
            stream
            for spec in self.plan.outputs
            if spec.source[0] == "operator" and staying[spec.source[1]]
            for stream in spec.streams
        ]
        return {stream: at for stream, at in cut.next_ids.items() if stream not in still}

    # -- what a correction goes without -------------------------------------------------------

    def _may_do(self, step: Step) -> bool:
        """Whether what it rests on is durable; what is dropped is decided when it is to go back."""
        ledger = self.ledger
        if ledger is None or step.is_tentative:
            return True
        if step.action is Action.GO_BACK:
            ledger.want(self.order.to_drop())
        return ledger.can_act(self.taken_before)

    def point_stored(self, newest: RestartPoint, now_ms: int) -> list[Effect]:
        """A point is durable; perhaps the node may go back now."""
        if self.ledger is None:
            return []
        dropped = list(self.ledger.stored(newest))
        self.delay_over(now_ms)
        return [ReportGap(StreamId(name), first, end) for name, first, end in dropped]

    def noted(self, stream: InputStream, note: StreamNote) -> bool:
        """Of a stream's suffix: it is void, or has come as stable.

        The latter its boundaries say as well, and a producer that replaces another one says it not.
        """
        if isinstance(note, Undo):
            stream.tentative.undo(note.run)
            self.inputs.arrivals.expect_tentative(stream)
        return isinstance(note, Undo | RecDone)

    # -- turns --------------------------------------------------------------------------------

    @property
    def _turn(self) -> Turn:
        return self._manager.turn

    def _mind_turn(self) -> list[Effect]:
        """Ask for a turn that is wanted; leave one that is not, so that others have theirs.

        Only where there are turns.
        """
        state = self._manager.state
        is_given_up = self._turn.is_held and state is Consistency.UP_FAILURE and not self._is_due
        if state is Consistency.STABLE or is_given_up:
            if self._turn.over():
                self._has_asked = False
                return [LeaveTurn()]
        elif self._turn.is_waiting and not self._has_asked:
            self._has_asked = True
            return [AskForTurn(self._turn.asking)]
        return []

    def turn_granted(self, asking: int, now_ms: int) -> list[Effect]:
        """It may correct now; what it wanted to correct may be done by now."""
        effects: list[Effect] = []
        if not self._turn.granted(asking):
            effects.append(LeaveTurn())
        self.delay_over(now_ms)
        return effects + self._mind_turn()

    def ask_again(self) -> list[Effect]:
        """Words can be lost, and who is not heard of has no turn any more."""
        if self._has_asked:
            return [AskForTurn(self._turn.asking)]
        return []

    # -- waiting ----------------------------------------------------------------------------

    def delay_over(self, now_ms: int) -> None:
        """Something may have waited for the bound."""
        step = self._manager.next_step(now_ms) if self._has_begun else None
        self._is_due = step is not None and self._may_do(step)

    def ask_when_due(self, now_ms: int) -> list[Effect]:
        """Set the timer for when something will have waited for the bound; ask for a turn.

        The turn may be wanted because the timer has fired, and no pass follows.
        """
        effects = self._mind_turn() if self._has_turns else []
        due_ms = self._manager.due_ms()
        is_writing_down = self.ledger is not None and not self.ledger.can_act(self.taken_before)
        if due_ms is not None and not self._is_due and not is_writing_down:
            effects.append(SetTimer("delay", max(due_ms, now_ms + 1)))
        return effects

    def waiting(self) -> list[Waits]:
        """What waits for other streams now, per stream.

        None of one that reads a single stream, or is in a silent replay. For checkers: the node
        keeps its own account (replication/input_delay.py). Cost: O(tuples held).
        """
        held = self.order.oldest_held()
        if held is None or not self._has_begun:
            return []
        return [self._waits_of(s, int(held[s.number])) for s in self.inputs.arrivals.streams]

    def _waits_of(self, stream: InputStream, oldest_id: int) -> Waits:
        promised_us = max(stream.queue.taken_boundary_us, stream.tentative.boundary_us)
        closes = partial(self._closes_us, (stream.number,))
        return Waits(oldest_id, stream.processed_before, promised_us, closes)

    # -- cuts -------------------------------------------------------------------------------

    @property
    def may_cut(self) -> bool:
        """Not in up_failure: what was processed there will be processed again.

        Nor in a correction while operators are further than the others: one cut is of all.
        """
        is_one_cut = self._manager.state is not Consistency.UP_FAILURE
        return super().may_cut and is_one_cut and not self.network.are_apart

    @property
    def has_ended(self) -> bool:
        """Whether all input has ended, and was processed as stable."""
        return super().has_ended and self._manager.is_finished

    # -- looking ----------------------------------------------------------------------------

    @property
    def missing(self) -> tuple[StreamId, ...]:
        """The source streams that it has gone on without, as long as that is not corrected."""
        return () if self._manager.state is Consistency.STABLE else tuple(sorted(self._missing))

    @property
    def trouble(self) -> str | None:
        """With `buffer="block"`: that it keeps as much as it may, and reads no more."""
        if not self.missing or self._delays.drops:
            return None
        full = [stream for stream in self.inputs.arrivals.full() if stream not in self._missing]
        if not full:
            return None
        return (
            f"{self.plan.node} is blocked: it keeps as much as it may of {', '.join(full)} for the "
            f"correction, and reads no more before {', '.join(self.missing)} comes"
        )

    @property
    def consistency(self) -> ConsistencyStatistics:
        """The unit's state, and what has happened so far."""
        return self._manager.statistics()

    def check_invariants(self) -> None:
        """Raise `InvariantViolation` when a part, or what one knows of another, makes no sense."""
        super().check_invariants()
        self._manager.check_invariants()
        if (self._cut is not None) != (self._manager.state is Consistency.UP_FAILURE):
            raise InvariantViolation(f"a cut is held in {self._manager.state.value}, or is not")
