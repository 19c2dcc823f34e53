"""Deliberate bugs in how units go on without missing input, and correct that."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mutants import Mutant

from holdfast.core.coordinator.turns import Turns
from holdfast.core.haunit.delayed_order import DelayedOrder, FollowingOrder
from holdfast.core.haunit.delayed_unit import DelayedUnit
from holdfast.core.haunit.events import AskForTurn, BatchReceived
from holdfast.core.haunit.ha_input import HAInput
from holdfast.core.haunit.ha_output import HAOutput
from holdfast.core.haunit.ha_unit import HAUnit
from holdfast.core.haunit.operator_network import OperatorNetwork
from holdfast.core.haunit.outputs.feed import Feed
from holdfast.core.haunit.outputs.suffix import Suffix
from holdfast.core.haunit.outputs.tentative import TentativeOutputs
from holdfast.core.haunit.reach import Reach
from holdfast.core.model.ids import END_US, Run
from holdfast.core.model.notes import Undo
from holdfast.core.model.tuples import TupleType
from holdfast.core.replication.consistency_manager import (
    Action,
    Consistency,
    ConsistencyManager,
    Event,
    Step,
)
from holdfast.core.replication.following import Follower
from holdfast.core.replication.input_delay import InputDelay, _Claims
from holdfast.core.replication.soutput import SOutput
from holdfast.core.replication.sunion import SUnion
from holdfast.core.replication.tentative_input import TentativeInput
from holdfast.core.replication.undo_redo import UndoHistory
from holdfast.sim.faults import LATE_END, SILENCES
from holdfast.sim.workload.protections import REPLICAS, REPLICATED, UNDO

_SILENCED = ("silence", "kill")
_OLD_FRAMES = (*SILENCES, "stale-frames", "break")
_PAUSED = (*SILENCES, "driver-pause")
_LATE_ENDS = ("silence", LATE_END)
_REPLICAS_LOST = ("kill", "machine-crash", "kill-replicas")
_ALL_BEGIN_ANEW = ("kill", "driver-crash")
_SIDE_BY_SIDE = ("silence", "no-boundaries", "kill", "driver-crash", "lost-frames", "leave")


def _note_points_in_up_failure(original: Any) -> Any:
    del original
    return HAUnit.may_cut


def _put_out_as_stable(original: Any) -> Any:
    """What goes on without missing input is told to sinks and receivers."""
    del original

    def process_tentative(self: DelayedUnit, boundary_us: int) -> tuple[int, list[Any]]:
        taken = self.order.without_missing(boundary_us)
        return taken.boundary_us, self._process(taken)

    return process_tentative


def _promise_what_is_tentative(original: Any) -> Any:
    def process_tentative(self: DelayedUnit, boundary_us: int) -> tuple[int, list[Any]]:
        acted_us, effects = original(self, boundary_us)
        self.promise()
        return acted_us, effects

    return process_tentative


def _stay_where_it_is(original: Any) -> Any:
    """The input is repeated over the state that has seen it."""

    def go_back(self: DelayedUnit, *, is_whole: bool) -> list[Any]:
        cut, pages = self._cut, self.network.pages
        if cut is None or cut.snapshot is None:
            return original(self, is_whole=is_whole)
        self._cut = None
        later = pages.hold()
        pages.cancel(cut.snapshot)
        pages.restore(later)
        self.network = OperatorNetwork(self.plan, pages)
        self.network.resume(cut.boundary_us)
        self.order.go_back()
        return self.outputs.tentative.undo()

    return go_back


def _forget_what_comes_late(original: Any) -> Any:
    def hold(self: SUnion, stream: int, *arguments: Any) -> None:
        before = len(self._held[stream])
        original(self, stream, *arguments)
        if self._kept is not None and len(self._held[stream]) == before:
            self._kept[stream].pop()

    return hold


def _say_rec_done_early(original: Any) -> Any:
    def next_step(self: ConsistencyManager, now_ms: int) -> Step | None:
        if self.state is Consistency.STABILIZATION:
            return Step(Event.CORRECTED, Action.SAY_DONE)
        return original(self, now_ms)  # type: ignore[no-any-return]  # the method itself

    return next_step


def _say_nothing_of_what_was_left(original: Any) -> Any:
    def begin(self: Feed) -> list[Any]:
        return []

    del original
    return begin


def _never_undo(original: Any) -> Any:
    def undo(self: SOutput) -> None:
        self.run = None

    del original
    return undo


def _undo_one_too_many(original: Any) -> Any:
    def say(self: Feed, kind: TupleType, run: Any) -> list[Any]:
        if kind is TupleType.UNDO and run is not None:
            self._output.stable_before -= 1
        return original(self, kind, run)

    return say


def _take_tentative_for_stable(original: Any) -> Any:
    def receive(self: HAInput, got: BatchReceived, now_ms: int) -> list[Any]:
        return original(self, replace(got, run=None), now_ms)

    return receive


def _undo_no_stream(original: Any) -> Any:
    """Feeds alone hear of it."""

    def undo(self: TentativeOutputs) -> list[Any]:
        effects: list[Any] = []
        for feed in self._feeds.values():
            effects += feed.undo()
        return effects

    del original
    return undo


def _grant_no_credit_for_a_run(original: Any) -> Any:
    """It is left to that of stable tuples, of which none come."""
    del original
    return lambda self, run, until: None


def _wait_for_what_is_stable(original: Any) -> Any:
    """Who follows a stream goes back only when that has promised all as stable."""

    def next_step(self: Follower, now_ms: int) -> Step | None:
        if self.state is Consistency.UP_FAILURE and self.acted_us < self._target_us:
            return None
        return original(self, now_ms)  # type: ignore[no-any-return]  # the method itself

    return next_step


def _let_all_correct(original: Any) -> Any:
    del original
    return lambda self, node, replicas: True


def _say_undo_by_replica(original: Any) -> Any:
    """As notes, which each replica would number otherwise."""

    def undo(self: TentativeOutputs) -> list[Any]:
        effects: list[Any] = []
        for feed in self._feeds.values():
            effects += feed.undo()
        for edge in self._edges.values():
            run = edge.suffix.undo()
            if run is not None:
                edge.queue.put_note(Undo(run))
        return effects

    del original
    return undo


def _never_leave_a_turn(original: Any) -> Any:
    """Who has asked once asks for ever."""
    del original

    def mind_turn(self: DelayedUnit) -> list[Any]:
        if self._manager.state is Consistency.STABLE:
            self._turn.over()
        elif self._turn.is_waiting and not self._has_asked:
            self._has_asked = True
            return [AskForTurn(self._turn.asking)]
        return []

    return mind_turn


def _ask_when_something_comes(original: Any) -> Any:
    """The timer alone is no reason."""

    def ask_when_due(self: DelayedUnit, now_ms: int) -> list[Any]:
        has_asked = self._has_asked
        effects = original(self, now_ms)
        if any(isinstance(effect, AskForTurn) for effect in effects):
            self._has_asked = has_asked
        return [effect for effect in effects if not isinstance(effect, AskForTurn)]

    return ask_when_due


def _let_any_boundary_wait(original: Any) -> Any:
    """Be there something that it would close or not."""
    del original
    return lambda self, closes: None


def _let_older_boundaries_wait(original: Any) -> Any:
    """Also what a stream promised before its first tuple."""
    return lambda self, stream, before_us: original(self, stream, END_US)


def _wait_from_the_last(original: Any) -> Any:
    """The timer runs from what came last."""

    def claim(self: _Claims, needs_us: int, now_ms: int, corrected_ms: int) -> None:
        original(self, needs_us, now_ms, corrected_ms)
        if self._claims:
            last = self._claims[-1]._replace(since_ms=now_ms)
            self._claims.clear()
            self._claims.append(last)

    return claim


def _ask_once(original: Any) -> Any:
    del original
    return lambda self: []


def _replay_what_is_left(original: Any) -> Any:
    """Though some has been given up."""
    del original
    return lambda self, markers: True


def _forget_a_pass_too_many(original: Any) -> Any:
    def ran(self: UndoHistory, *arguments: Any) -> None:
        original(self, *arguments)
        if len(self._passes) > 1:
            self.tuples -= self._passes.popleft().tuples

    return ran


def _serve_an_old_run(original: Any) -> Any:
    """What has not been sent of a run that is void goes out with the next one."""

    def undo(self: Suffix) -> Any:
        unsent = list(self._unsent)
        run = original(self)
        self._unsent.extend(unsent)
        return run

    return undo


def _trim_behind_the_cut(original: Any) -> Any:
    """What was processed as tentative is acknowledged as if it were not needed again."""

    def process_tentative(self: DelayedUnit, boundary_us: int) -> tuple[int, list[Any]]:
        done = original(self, boundary_us)
        for stream in self.inputs.arrivals.streams:
            stream.needed_from = stream.processed_before
        return done  # type: ignore[no-any-return]  # the method itself

    return process_tentative


def _touch_by_ports(original: Any) -> Any:
    """Operators between a stream and an output are not looked through."""

    def touching(self: Reach, spec: Any) -> list[int]:
        return original(self, spec) if spec.source[0] == "port" else []

    return touching


def _number_anew_what_is_out(original: Any) -> Any:
    """What was put out as stable in up_failure comes once more, under other ids."""
    del original
    return lambda self, next_ids: None


def _wait_for_tuples_alone(original: Any) -> Any:
    """A result that waits for a boundary waits without any bound."""
    del original
    return lambda self, stream, boundary_us, now_ms: None


def _take_any_run(original: Any) -> Any:
    """Be it void or not."""

    def counts(self: TentativeInput, run: Run) -> bool:
        self._had = None
        return bool(original(self, run))

    return counts


def _take_what_was_overtaken(original: Any) -> Any:
    """What has come of a run is taken, though what it stands for has come as stable."""
    del original
    return lambda self, stable_us: None


def _take_what_its_state_has(original: Any) -> Any:
    """A replacement takes tentative tuples of before its restart point."""
    del original
    return property(lambda self: self._arrivals.streams[0].queue.taken_boundary_us)


def _wait_for_more_behind_a_replay(original: Any) -> Any:
    """What has come with the last tuples of a replay, and was not acted on, is no news."""
    del original
    return property(lambda self: self._arrivals.has_fresh)


def _stop_with_one_replica(original: Any) -> Any:
    """A receiver that takes no more stops its producer, whoever stands beside it."""
    del original
    return lambda self, edge: False


def _let_all_stay(original: Any) -> Any:
    """Also operators that missing input reaches."""
    return lambda self: [True] * len(original(self))


def _empty_who_stays(original: Any) -> Any:
    """They take no part in what is run again, and have lost what they had."""

    def go_back(self: OperatorNetwork, staying: Any) -> None:
        original(self, [False] * len(staying))
        self._staying = tuple(staying) if any(staying) else ()

    return go_back


def _number_anew_who_stays(original: Any) -> Any:
    """What they give next is taken for what is out."""
    del original
    return lambda self, cut, staying: cut.next_ids


def _beside(owner: Any, method: str, bug: Any, kinds: tuple[str, ...] = _SIDE_BY_SIDE) -> Mutant:
    return Mutant(owner, method, bug, kinds=kinds, approach=REPLICAS)


def _apart(owner: Any, method: str, bug: Any) -> Mutant:
    return Mutant(owner, method, bug, kinds=_SILENCED, approach=UNDO, dataflow="apart")


def _mutant(
    owner: Any,
    method: str,
    bug: Any,
    approach: str = REPLICATED,
    kinds: tuple[str, ...] = _SILENCED,
) -> Mutant:
    return Mutant(owner, method, bug, kinds=kinds, approach=approach)


REPLICATED_MUTANTS = {
    "notes points in up_failure": _mutant(DelayedUnit, "may_cut", _note_points_in_up_failure),
    "puts out as stable": _mutant(DelayedUnit, "_process_tentative", _put_out_as_stable),
    "promises what is tentative": _mutant(
        DelayedUnit, "_process_tentative", _promise_what_is_tentative
    ),
    "stays where it is": _mutant(DelayedUnit, "_go_back", _stay_where_it_is),
    "forgets what comes late": _mutant(SUnion, "_hold", _forget_what_comes_late),
    "says rec_done early": _mutant(ConsistencyManager, "next_step", _say_rec_done_early),
    "says nothing of what was left": _mutant(Feed, "begin", _say_nothing_of_what_was_left),
    "never undoes": _mutant(SOutput, "undo", _never_undo),
    "takes tentative for stable": _mutant(HAInput, "receive", _take_tentative_for_stable),
    "undoes no stream": _mutant(TentativeOutputs, "undo", _undo_no_stream),
    "grants no credit for a run": _beside(Suffix, "grant", _grant_no_credit_for_a_run, SILENCES),
    "waits for what is stable": _mutant(Follower, "next_step", _wait_for_what_is_stable),
    "undoes one too many": _mutant(Feed, "_say", _undo_one_too_many),
    "lets all replicas correct": _beside(Turns, "_may_correct", _let_all_correct, SILENCES),
    "says undo by replica": _beside(TentativeOutputs, "undo", _say_undo_by_replica),
    "never leaves a turn": _beside(DelayedUnit, "_mind_turn", _never_leave_a_turn, SILENCES),
    "asks for a turn when something comes": _beside(
        DelayedUnit, "ask_when_due", _ask_when_something_comes, SILENCES
    ),
    "lets any boundary wait": _mutant(
        DelayedOrder, "ask_operators", _let_any_boundary_wait, kinds=SILENCES
    ),
    "lets older boundaries wait": _mutant(
        SUnion, "had", _let_older_boundaries_wait, kinds=SILENCES
    ),
    "waits from the last": _mutant(_Claims, "claim", _wait_from_the_last, kinds=SILENCES),
    "asks for a turn once": _beside(DelayedUnit, "ask_again", _ask_once, _PAUSED),
    "replays what is left": _mutant(UndoHistory, "reaches", _replay_what_is_left, UNDO),
    "forgets a pass too many": _mutant(UndoHistory, "ran", _forget_a_pass_too_many, UNDO),
    "lets all stay": _apart(Reach, "staying", _let_all_stay),
    "empties who stays": _apart(OperatorNetwork, "go_back", _empty_who_stays),
    "numbers anew who stays": _apart(DelayedUnit, "_next_ids_at", _number_anew_who_stays),
    "serves an old run": _mutant(Suffix, "undo", _serve_an_old_run),
    "trims behind the held cut": _mutant(DelayedUnit, "_process_tentative", _trim_behind_the_cut),
    "touches by ports": _mutant(Reach, "touching", _touch_by_ports),
    "numbers anew what is out": _mutant(HAOutput, "go_back", _number_anew_what_is_out),
    "waits for tuples alone": _mutant(
        InputDelay, "_promise", _wait_for_tuples_alone, kinds=SILENCES
    ),
    "takes any run": _mutant(TentativeInput, "_counts", _take_any_run, kinds=_OLD_FRAMES),
    "takes what was overtaken": _beside(
        TentativeInput, "overtaken", _take_what_was_overtaken, _REPLICAS_LOST
    ),
    "takes what its state has": _beside(
        FollowingOrder, "_stable_us", _take_what_its_state_has, _ALL_BEGIN_ANEW
    ),
    "waits for more behind a replay": _beside(
        FollowingOrder, "_has_stable", _wait_for_more_behind_a_replay, _LATE_ENDS
    ),
    "stops with one replica": _beside(HAOutput, "_is_read_beside", _stop_with_one_replica),
}
