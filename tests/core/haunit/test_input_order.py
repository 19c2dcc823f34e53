"""In which order a node takes its input, and how far."""

import pyarrow as pa
import pytest

from holdfast.core.errors import InvariantViolation
from holdfast.core.haunit.arrivals import Arrivals, InputStream
from holdfast.core.haunit.beginning import Beginning
from holdfast.core.haunit.events import Proceed, ReadPasses, ReportCaughtUp, TrimPasses
from holdfast.core.haunit.input_order import ArrivalOrder, IdOrder, InputOrder, TimeOrder
from holdfast.core.haunit.input_order import input_order as chosen
from holdfast.core.haunit.operator_network import OperatorNetwork
from holdfast.core.haunit.passes import Pass
from holdfast.core.haunit.plan import InputSpec, NodePlan
from holdfast.core.haunit.silent_replay import SilentReplay
from holdfast.core.machine import Effect, SetTimer
from holdfast.core.model.ids import BEGINNING_US, END_US, NodeId, StreamId
from holdfast.core.model.tuples import TupleBatch, with_time
from holdfast.core.queues.input_queue import InputQueue
from holdfast.core.recovery.restart_point import RestartPoint
from holdfast.core.replication.switching import Sender
from holdfast.core.state.page_manager import PageManager

SCHEMA = pa.schema([("v", pa.int64())])
A, B = StreamId("a>n"), StreamId("b>n")


def batch(first_id: int, times: list[int], boundary_us: int = BEGINNING_US) -> TupleBatch:
    columns = [pa.array(times, pa.int64()), pa.array(times, pa.int64())]
    rows = pa.RecordBatch.from_arrays(columns, schema=with_time(SCHEMA))
    return TupleBatch(first_id, rows, boundary_us)


class Rig:
    """An order over its streams, beside a network without operators."""

    def __init__(
        self,
        *streams: StreamId,
        by_arrival: bool = False,
        point: RestartPoint | None = None,
        passes: tuple[Pass, ...] = (),
        is_secondary: bool = False,
        loses_input: bool = False,
    ) -> None:
        specs = tuple(InputSpec(stream, 0, SCHEMA, NodeId("p")) for stream in streams)
        self.plan = NodePlan(
            NodeId("n"), "n", 0, specs, 1, (), (),
            merges_by_arrival=by_arrival, keeps_passes=by_arrival, loses_input=loses_input,
        )  # fmt: skip
        self.streams = {
            spec.stream: InputStream(
                spec,
                number,
                InputQueue(spec.stream, next_id=0, max_tuples=100),
                0,
                (sender := Sender(spec.stream, spec.producer, 0),),
                sender,
            )
            for number, spec in enumerate(specs)
        }
        self.arrivals = Arrivals(tuple(self.streams.values()), 100)
        self.network = OperatorNetwork(self.plan, PageManager())
        begins = Beginning(
            point=point or RestartPoint(),
            pages=self.network.pages,
            newest_sequence=0,
            passes=passes,
            is_secondary=is_secondary,
        )
        self.order: InputOrder = chosen(self.plan, self.arrivals, begins, is_arbitrary=False)

    def receive(self, stream: StreamId, tuples: TupleBatch) -> None:
        self.streams[stream].queue.receive(tuples)
        self.arrivals.note(self.streams[stream])

    def passes(self) -> list[tuple[list[int], int]]:
        """What passes take, and the boundary that each acts on, until there is no more."""
        taken: list[tuple[list[int], int]] = []
        while self.order.has_pass(self.network):
            found = self.order.take(Proceed(70, 7), self.network)
            if found is not None:
                rows = found.ports[0]
                values = [] if rows is None else rows.batch.column(0).to_pylist()
                assert len(values) == found.tuples
                self.network.process(found.ports, found.low, found.boundary_us, is_silent=True)
                taken.append((values, found.boundary_us))
            self.order.check_invariants(self.network)
            self.arrivals.check_invariants()
        return taken


def test_the_order_follows_from_the_plan() -> None:
    assert isinstance(Rig(A).order, IdOrder)
    assert isinstance(Rig(A, B).order, TimeOrder)
    assert isinstance(Rig(A, B, by_arrival=True).order, ArrivalOrder)


def test_ids_are_taken_up_to_a_stop_and_then_from_there() -> None:
    rig = Rig(A)
    cut = RestartPoint(1, {A: 0}, {A: 3}, 30)
    rig.order.stop_at(cut)
    rig.receive(A, batch(0, [10, 20], 21))
    assert rig.passes() == [([10, 20], 21)]
    assert not rig.order.has_reached(cut, rig.network)
    rig.receive(A, batch(2, [30, 40, 50], 50))
    assert rig.passes() == [([30], 21)], "the boundary of what is behind the stop waits, too"
    assert rig.order.has_reached(cut, rig.network)
    assert not rig.order.has_pass(rig.network)
    rig.order.go_on()
    assert rig.passes() == [([40, 50], 50)]


def test_time_is_taken_up_to_a_stop_whatever_has_come() -> None:
    rig = Rig(A, B)
    cut = RestartPoint(1, {}, {}, 25)
    rig.order.stop_at(cut)
    rig.receive(A, batch(0, [10, 20, 30], END_US))
    rig.receive(B, batch(0, [15, 40], END_US))
    assert rig.passes() == [([10, 15, 20], 25)]
    assert rig.order.has_reached(cut, rig.network)
    assert rig.order.held_tuples == 2
    rig.order.go_on()
    assert rig.passes() == [([30, 40], END_US)]
    assert rig.order.held_tuples == 0


def test_what_is_held_has_not_been_processed() -> None:
    rig = Rig(A, B)
    rig.receive(A, batch(0, [10, 20, 30], 31))
    rig.receive(B, batch(0, [15], 16))
    assert rig.passes() == [([10, 15], 16)]
    needed = rig.order.needed_from(rig.network.oldest_needed(), is_state_kept=True)
    assert needed == {A: 1, B: 1}


def test_what_was_acted_on_beyond_a_stop_is_a_violation() -> None:
    rig = Rig(A)
    rig.receive(A, batch(0, [10, 20], 21))
    rig.passes()
    rig.order.stop_at(RestartPoint(1, {A: 0}, {A: 1}, 30))
    with pytest.raises(InvariantViolation, match="processed"):
        rig.order.check_invariants(rig.network)
    rig.order.stop_at(RestartPoint(1, {A: 0}, {A: 2}, 20))
    with pytest.raises(InvariantViolation, match="acted on"):
        rig.order.check_invariants(rig.network)


def test_arrivals_are_decided_on_and_repeated_as_they_were() -> None:
    rig = Rig(A, B, by_arrival=True)
    rig.receive(B, batch(0, [5]))
    rig.receive(A, batch(0, [9, 1], 10))
    found = rig.order.take(Proceed(70, 7), rig.network)
    assert found is not None
    decided = found.decided
    assert decided == Pass(0, 70, 7, BEGINNING_US, (2, 1))
    again = Rig(A, B, by_arrival=True, passes=(decided,))
    again.receive(A, batch(0, [9, 1, 3]))
    assert not again.order.has_pass(again.network), "the other stream's tuple is missing"
    again.receive(B, batch(0, [5, 6]))
    assert again.passes() == [([9, 1, 5], BEGINNING_US), ([3, 6], BEGINNING_US)]


def test_what_comes_again_behind_a_gap_after_the_end_is_left_out() -> None:
    """1. Recorded passes, of which the last acted on the end, are run without their input. 2. A
    source without a gap brings its tuples again."""
    rig = Rig(A, by_arrival=True, loses_input=True)
    rig.network.resume(END_US)
    rig.receive(A, batch(0, [1, 2], 3))
    taken = rig.order.take(Proceed(5, 6), rig.network)
    assert taken is not None
    assert (taken.ports, taken.tuples) == ([None], 0)
    assert taken.decided is not None
    assert taken.decided.processed_before == (2,)


def test_a_secondary_runs_what_is_logged_until_it_is_promoted() -> None:
    rig = Rig(A, by_arrival=True, is_secondary=True)
    effects: list[Effect] = []
    rig.receive(A, batch(0, [1, 2, 3]))
    assert not rig.order.has_pass(rig.network)
    effects += rig.order.follow()
    effects += rig.order.recorded((Pass(0, 1, 1, BEGINNING_US, (2,)),), 10)
    assert effects == [ReadPasses(0), SetTimer("passes", 15)]
    assert rig.passes() == [([1, 2], BEGINNING_US)]
    assert not rig.order.may_follow(0), "the log has lost what this one has run"
    assert rig.order.may_follow(1)
    rig.order.promote(())
    assert rig.passes() == [([3], BEGINNING_US)]


def test_a_log_of_passes_keeps_the_one_before_the_oldest_point() -> None:
    rig = Rig(A, by_arrival=True)
    effects = rig.order.trim(RestartPoint(1, {rig.plan.pass_stream: 4}))
    effects += Rig(A).order.trim(RestartPoint(1, {A: 4}))
    assert effects == [TrimPasses(3)]


def test_a_replay_is_silent_up_to_its_cut() -> None:
    rig = Rig(A)
    replay = SilentReplay(RestartPoint(1, {A: 0}, {A: 2}, 20), rig.order)
    rig.receive(A, batch(0, [10, 20, 30], 31))
    assert replay.is_silent
    assert not replay.has_come(rig.network)
    assert rig.passes() == [([10, 20], BEGINNING_US)]
    assert replay.has_come(rig.network)
    rest = rig.order.rest_of(replay.cut)
    assert rest is not None
    assert (rest.tuples, rest.boundary_us) == (0, 20)
    effects = replay.end()
    assert effects == [ReportCaughtUp(0)]
    replay.check_invariants()
    assert rig.passes() == [([30], 31)]


def test_a_stop_that_no_replay_asks_for_is_a_violation() -> None:
    rig = Rig(A)
    replay = SilentReplay(None, rig.order)
    replay.check_invariants()
    rig.order.stop_at(RestartPoint(1, {A: 0}, {A: 2}, 20))
    with pytest.raises(InvariantViolation, match="stops the input"):
        replay.check_invariants()
