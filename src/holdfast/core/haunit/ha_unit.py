"""One HA unit: inputs, their order, operators, outputs; and how a pass runs. [SGuard §3]

Theory of operation. A unit works in *passes*. Between passes frames and reads fill its queues.

1. The input order takes what may be processed: rows, the oldest ids among them, a boundary.
2. The operator network runs on that.
3. The outputs number what it gives, and send or write it.

Precise recovery rests on three facts. The order of processing is a function of the tuples, or of a
log of passes (input_order.py). Operators are functions of the ordered input, however it is cut into
passes (operator_network.py). Ids are consecutive. So a unit that starts at a restart point and
processes the same tuples again gives its outputs the ids they had before, and whoever has them
drops them by id.

The network can be replaced by another one over other pages (`network` is a plain field); inputs and
outputs live on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

from holdfast.core.haunit.ha_input import HAInput
from holdfast.core.haunit.ha_output import HAOutput
from holdfast.core.haunit.input_order import Taken, input_order
from holdfast.core.haunit.operator_network import OperatorNetwork
from holdfast.core.haunit.silent_replay import SilentReplay
from holdfast.core.machine import SetTimer
from holdfast.core.model.ids import END_US, NO_ID
from holdfast.core.recovery.guarantee import StreamRebased
from holdfast.core.recovery.restart_point import RestartPoint

if TYPE_CHECKING:
    from holdfast.core.haunit.arrivals import InputStream
    from holdfast.core.haunit.beginning import Beginning
    from holdfast.core.haunit.delayed_unit import Waits
    from holdfast.core.haunit.drop_ledger import DropLedger
    from holdfast.core.haunit.events import Proceed
    from holdfast.core.haunit.input_order import InputOrder
    from holdfast.core.haunit.operator_network import Produced
    from holdfast.core.haunit.passes import Pass
    from holdfast.core.haunit.plan import NodePlan
    from holdfast.core.machine import Effect
    from holdfast.core.model.ids import StreamId
    from holdfast.core.model.notes import StreamNote
    from holdfast.core.replication.consistency_manager import ConsistencyStatistics


class PassWitness(Protocol):
    """Who is told of each pass that is not silent, and if there is none but the replay ends."""

    def pass_begins(self) -> None:
        """The operators are about to be run."""
        ...

    def stream_rebased(self) -> tuple[bool, list[Effect]]:
        """A stream is another one, amid the replay; whether that ends here, short of its cut."""
        ...

    def replay_ended(self) -> list[Effect]:
        """The replay has come to its cut; no pass has been run since."""
        ...


class HAUnit:
    """The unit of one incarnation of a node. Volatile: all fields."""

    def __init__(self, plan: NodePlan, begins: Beginning, now_ms: int) -> None:
        """Bring it up where it begins."""
        self.plan = plan
        self.network = OperatorNetwork(plan, begins.pages)
        self.inputs = HAInput(
            plan,
            begins.incarnation,
            begins.point,
            now_ms,
            is_secondary=begins.is_secondary,
            is_at_cut=begins.is_at_cut,
            lost_from=begins.lost_from,
        )
        self.order = self._order_of(begins)
        self.outputs = HAOutput(
            plan,
            begins.incarnation,
            begins.point,
            begins.sink_next_ids,
            begins.outputs,
            restored_notes=begins.notes,
            is_secondary=begins.is_secondary,
            is_rebased=begins.is_rebased,
            has_own_time=self.network.has_own_time,
            roots=self.network.roots(),
        )
        can_leave_out = self.order.can_stop and not begins.is_at_cut
        left_out = begins.point.taking_part if can_leave_out else {}
        self.replay = SilentReplay(begins.silent_to, self.order, left_out)
        self.network.leave_out(self.replay.left_out)
        self._begin_account(begins)
        self.witness: PassWitness | None = None
        self.passes = 0  # that have changed something
        self.input_tuples = 0  # processed, those in silence included

    def _begin_account(self, begins: Beginning) -> None:
        """Of operators that stand behind state: from where on they take part in a replay."""
        account = self.network.taking_part
        if account is None:
            return
        if begins.is_at_cut and begins.point.taking_part:
            cuts = begins.point.taking_part
            places = {name: self.order.place_of(cut) for name, cut in cuts.items()}
            low = next(iter(places.values())).untaken_from  # The same of all.
            account.begin_with(places, np.array(low, dtype=np.int64))
        self._mark_place()

    def _mark_place(self) -> None:
        """The next pass begins where the last one has ended."""
        if self.network.taking_part is not None:
            self.network.taking_part.stand_at(self.order.place(self.network.boundary_us))

    def _order_of(self, begins: Beginning) -> InputOrder:
        """In which order it takes its input."""
        is_arbitrary = self.network.is_arbitrary
        return input_order(self.plan, self.inputs.arrivals, begins, is_arbitrary=is_arbitrary)

    # -- passes -----------------------------------------------------------------------------

    @property
    def has_work(self) -> bool:
        """Whether there is a pass to run now. Cost: O(outputs) when there is input."""
        return self.order.has_pass(self.network) and self.outputs.has_room()

    def run_pass(self, proceed: Proceed, now_ms: int) -> tuple[bool, list[Effect]]:
        """Run the next pass.

        Returns:
            Whether there was something to do, and the effects.
        """
        del now_ms
        taken = self.order.take(proceed, self.network)
        if taken is None:
            return False, []
        decided = taken.decided
        effects: list[Effect] = []
        if decided is not None:
            self.network.decide(decided.clock_us, decided.seed)
            effects += self.outputs.begin_pass(decided)
        effects += self._process(taken)
        if decided is not None:
            effects += self.outputs.end_pass(decided.processed_before)
        return True, effects + self.end_silence_if_due()

    def _process(self, taken: Taken) -> list[Effect]:
        """Run the operators on what was taken, and put out what they give."""
        if not taken.tuples and not self.network.has_news(taken.boundary_us):
            return []
        self.passes += 1
        self.input_tuples += taken.tuples
        is_silent = self.replay.is_silent
        if is_silent:
            self.replay.tuples += taken.tuples
        elif self.witness is not None:
            self.witness.pass_begins()
        produced = self.network.process(
            taken.ports, taken.low, taken.boundary_us, is_silent=is_silent
        )
        effects: list[Effect] = []
        for spec, pieces, before_us in produced:
            effects += self.outputs.put_out(spec, pieces, before_us)
        self._promise(produced)
        self._mark_place()
        return effects

    def promise(self) -> None:
        """Tell the outputs what the operators promise now, without a pass."""
        self._promise(self.network.promises())

    def _promise(self, produced: list[Produced]) -> None:
        for spec, _, before_us in produced:
            self.outputs.promise(spec, before_us)

    def end_silence_if_due(self) -> list[Effect]:
        """End the silent replay once everything before its cut has been processed."""
        effects: list[Effect] = []
        while (joined_at := self.replay.joining(self.network)) is not None:
            effects += self._finish_before(joined_at)
            self.replay.join()
            self.network.leave_out(self.replay.left_out)
        if not self.replay.has_come(self.network):
            return effects
        cut = self.replay.cut
        effects += self._finish_before(cut)
        self.inputs.has_before(cut.boundary_us)
        self.promise()
        effects += self.replay.end()
        return effects if self.witness is None else effects + self.witness.replay_ended()

    def _finish_before(self, cut: RestartPoint) -> list[Effect]:
        """All that comes before a cut has been processed, but perhaps not its boundary."""
        rest = self.order.rest_of(cut)
        effects = [] if rest is None else self._process(rest)
        self.network.resume(cut.boundary_us)
        self._mark_place()
        return effects

    def resume(self, cut: RestartPoint) -> None:
        """The operators are over the state of this cut."""
        self.network.resume(cut.boundary_us)
        self._mark_place()
        self.promise()

    def pass_over(self) -> None:
        """A silent replay begins: leave out windows that close in it."""
        stop = self.order.stop
        if self.replay.is_silent and stop is not None:
            fed_us = stop.boundary_us if self.replay.left_out else None
            self.network.pass_over(self.replay.cut.boundary_us, fed_us)

    def ask_to_wake(self, now_ms: int) -> list[Effect]:
        """The node begins, or a pass has run: set the timer for the first operator that wants one
        without input, and `ask_when_due`.
        """
        effects = self.ask_when_due(now_ms)
        wake_us, clock_us = self.network.wake_us(), self.order.clock_us
        if wake_us is not None and clock_us is not None:
            wait_us = max(0, wake_us - clock_us)
            effects.append(SetTimer("wake", now_ms - (-wait_us // 1000)))
        return effects

    def ask_when_due(self, now_ms: int) -> list[Effect]:
        """Set the timer for when input will have waited for as long as it is to; it may for ever
        here.
        """
        return []

    def noted(self, stream: InputStream, note: StreamNote) -> bool:
        """A note's place has been reached; whether it was for the unit, and not its durability."""
        del stream, note
        return False

    def turn_granted(self, asking: int, now_ms: int) -> list[Effect]:
        """It may correct now; whoever waits for all input has nothing to correct."""
        del asking, now_ms
        return []

    def ask_again(self) -> list[Effect]:
        """What was asked of the coordinator may have been lost."""
        return []

    def delay_over(self, now_ms: int) -> None:
        """Input may have waited for as long as it is to; there is no such time here."""

    ledger: DropLedger | None = None
    """Of one that may drop some of its input: what, and what is durable of that."""

    @property
    def dropped_tuples(self) -> int:
        """Of its input, without which corrections have gone."""
        return 0 if self.ledger is None else self.ledger.dropped_tuples

    @property
    def taken_before(self) -> dict[str, int]:
        """Per input stream the first id that no pass has taken."""
        return {s.spec.stream: s.processed_before for s in self.inputs.all()}

    def point_stored(self, newest: RestartPoint, now_ms: int) -> list[Effect]:
        """A point is durable; this is the newest one that is."""
        del newest, now_ms
        return []

    @property
    def missing(self) -> tuple[StreamId, ...]:
        """The source streams that it goes on without; none if it waits for all input."""
        return ()

    def waiting(self) -> list[Waits]:
        """What waits for missing input for no longer than a bound: nothing, as it waits for all."""
        return []

    @property
    def trouble(self) -> str | None:
        """Why it reads no more for now, as people should read it; None: it reads."""
        return None

    @property
    def consistency(self) -> ConsistencyStatistics | None:
        """Of what may go on without missing input its state; None: it waits for all input."""
        return None

    # -- rebasing -----------------------------------------------------------------------------

    def follow_rebased(self) -> list[Effect]:
        """A producer cannot say again what came before: take what comes instead.

        A node that has put out, before it failed, more than it has since cannot go on with the ids
        from then: its output is rebased too.

        Raises:
            StreamRebased: It has put out some of that again, and not all.
        """
        if self.replay.is_over and not self.outputs.is_behind:
            return []
        skipped = self.order.skip_recorded()
        if self.outputs.tuples and skipped is None:  # Recorded passes gave the same ids.
            raise StreamRebased("a producer's stream is another one, and the output not at its end")
        self.outputs.rebase()
        if skipped is not None and self.plan.loses_input:
            self._run_without_input(skipped)
        if self.replay.is_over:
            return []
        ends, effects = (True, []) if self.witness is None else self.witness.stream_rebased()
        if not ends:
            return effects
        self.network.leave_out(())
        return effects + self.replay.end()

    def _run_without_input(self, skipped: tuple[Pass, ...]) -> None:
        """Close what the clock of these passes closed: it has been put out, and must not be again.

        Only for input that does not come again: what comes under other ids might be lost by it. The
        boundary that these passes have acted on is promised, as there may be no later one: the end.
        What is older, and another stream brings again, has been put out.
        """
        ports = [None] * self.plan.port_count
        low = np.full(len(self.plan.inputs), NO_ID, dtype=np.int64)
        for decided in skipped:
            self.network.decide(decided.clock_us, decided.seed)
            self.network.process(ports, low, decided.boundary_us, is_silent=True)
            self.passes += 1
        self.promise()

    # -- cuts -------------------------------------------------------------------------------

    @property
    def may_cut(self) -> bool:
        """Whether a replacement could start from the present cut: there is nothing to replay, and
        it is known how to number. Cost: O(streams)."""
        return self.replay.is_over and self.outputs.are_placed

    def cut(self, sequence: int, *, is_state_kept: bool = False) -> RestartPoint:
        """The present cut as a restart point.

        Args:
            sequence: The point's number.
            is_state_kept: Whether a copy of the state goes with it: then operators need no tuple
                again.
        """
        low = np.full(len(self.plan.inputs), NO_ID, dtype=np.int64)
        if not is_state_kept:
            low = self.network.oldest_needed()
        needed_from = self.order.needed_from(low, is_state_kept=is_state_kept)
        return RestartPoint(
            sequence,
            needed_from,
            self.taken_before,
            self.network.boundary_us,
            self.outputs.next_ids,
            taking_part=self._taking_part(),
            rebased=self.inputs.rebased,
            clock_us=self._clock_us() if is_state_kept else 0,
            next_notes=self.inputs.arrivals.next_notes(needed_from, is_state_kept=is_state_kept),
            dropped=self.order.dropped(needed_from),
            horizon={} if self.ledger is None else self.ledger.horizon(self.taken_before),
        )

    def _clock_us(self) -> int:
        """The processing time that the state has come to; 0: there is none, or passes tell it.

        Clocks of machines differ. Whoever goes on from the state must not decide on an earlier
        time: operators have closed windows, and promised, up to this one.
        """
        return 0 if self.plan.keeps_passes else self.order.clock_us or 0

    def _taking_part(self) -> dict[str, RestartPoint]:
        """From where on operators behind state take part in a replay that makes this state."""
        account = self.network.taking_part
        if account is None:
            return {}
        low = self.network.oldest_needed()
        needed_from = self.order.needed_from(low, is_state_kept=False)
        return {
            name: self.order.cut_at(place, needed_from) for name, place in account.places().items()
        }

    def has_passed(self, point: RestartPoint) -> bool:
        """Whether the present cut is at or behind that of a point of another replica."""
        return self.order.has_passed(point, self.network)

    @property
    def has_ended(self) -> bool:
        """Whether all input has ended, and all of it has been acted on, and put out."""
        is_at_end = self.network.boundary_us == END_US and self.replay.is_over
        return is_at_end and self.inputs.arrivals.are_ended

    def timer_fired(self, name: str, now_ms: int) -> tuple[bool, list[Effect]]:
        """A timer has run out.

        Returns:
            Whether it was the unit's, and the effects of what was due.
        """
        match name:
            case "wake":
                self.network.is_woken = True
                return True, []
            case "delay":
                self.delay_over(now_ms)
                return True, self.ask_when_due(now_ms)
            case "passes":
                return True, self.order.follow()
            case "read":
                return True, self.inputs.read_timer_fired(now_ms)
        return False, []

    def check_invariants(self) -> None:
        """Raise `InvariantViolation` when a part, or what one knows of another, makes no sense."""
        self.inputs.check_invariants()
        self.network.check_invariants()
        self.outputs.check_invariants()
        self.order.check_invariants(self.network)
        self.replay.check_invariants()
