"""A node whose windows leave footprints: what its restart points name, and what it starts from."""

from dataclasses import dataclass, replace

import pyarrow as pa
import pytest

from holdfast.core.checkpoint.eventual import RecoveryCosts
from holdfast.core.haunit import events
from holdfast.core.haunit.durability.eventual import Eventual, body_schema
from holdfast.core.haunit.extent_restoration import ExtentRead, ExtentRestoration, ReadExtent
from holdfast.core.haunit.life_events import Fail
from holdfast.core.haunit.node import Node
from holdfast.core.haunit.plan import (
    Assignment,
    FootprintPlan,
    InputSpec,
    NodeLimits,
    NodePlan,
    OperatorSpec,
    OutputSpec,
)
from holdfast.core.haunit.restoration import BeginFrom, LoadingFailed, RestoredState
from holdfast.core.machine import Effect, TimerFired
from holdfast.core.model.footprints import FootprintKind, record_of
from holdfast.core.model.ids import BEGINNING_US, Incarnation, NodeId, StreamId
from holdfast.core.model.tuples import TupleBatch, with_time
from holdfast.core.operators.footprinted_sessions import FootprintedSessions
from holdfast.core.operators.footprinted_windows import FootprintedWindows
from holdfast.core.operators.window_kinds import CountWindows
from holdfast.core.recovery.extent import ExtentSearch
from holdfast.core.recovery.restart_point import RestartPoint
from holdfast.core.state.page_manager import PageManager

SCHEMA = pa.schema([("k", pa.int64())])
A, B, OUT, LOG = StreamId("a>n"), StreamId("b>n"), StreamId("out"), StreamId("n~footprints")
ONE, TWO = Incarnation(1), Incarnation(2)
COSTS = RecoveryCosts(tuple_us=1.0)


@dataclass(frozen=True)
class Windows:
    """Three tuples of a key."""

    def __call__(self, manager: PageManager) -> FootprintedWindows:
        return FootprintedWindows(
            "w", SCHEMA, ["k"], [("count", None, "n")], windows=CountWindows(3, 3), manager=manager
        )


RESULT = Windows()(PageManager()).output_schema
PLAN = NodePlan(
    NodeId("n"), "n", 0, (InputSpec(A, 0, SCHEMA, NodeId("a")),), 1,
    (OperatorSpec("w", Windows(), (("port", 0),)),),
    (OutputSpec(("operator", 0), RESULT, (OUT,), (), is_sink=True),),
    limits=NodeLimits(ack_tuples=0), footprints=FootprintPlan(extent_bytes=0),
)  # fmt: skip


class Running:
    """A node, all that it has written, and its newest restart point."""

    plan = PLAN

    def __init__(self, incarnation: Incarnation = ONE, before: "Running | None" = None) -> None:
        self.log = [] if before is None else list(before.log)
        self.point = None if before is None else before.point
        ends = {LOG: self.log[-1].next_id if self.log else 0, OUT: 0}
        restored = None if self.point is None else self._restored(self.point)
        self.node = Node(self.plan, Assignment(1, incarnation, self.point, ends), 0, restored)
        self.incarnation = incarnation
        self.results: list[TupleBatch] = []
        self.trims: list[int] = []
        self._note(self.node.start(0))
        for spec in self.plan.inputs:
            assert spec.producer is not None
            self.step(events.PeerIncarnationLearned(spec.producer, ONE))

    def _restored(self, point: RestartPoint) -> RestoredState:
        restoration = ExtentRestoration(self.plan, point)
        (asked,) = restoration.start()
        assert isinstance(asked, ReadExtent)
        search = ExtentSearch(asked.ends_at, len(self.plan.inputs))
        for batch in reversed(self.log):
            if asked.from_id <= batch.first_id < asked.ends_at:
                search.add(batch)
        (begin,) = restoration.step(ExtentRead(search.extent()), 0)
        assert isinstance(begin, BeginFrom)
        return begin.state

    def step(self, stimulus: object, at_ms: int = 1) -> None:
        self._note(self.node.step(stimulus, at_ms))  # type: ignore[arg-type]
        self.node.check_invariants()

    def _note(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, events.WriteSink):
                (self.log if effect.stream == LOG else self.results).append(effect.batch)
            elif isinstance(effect, events.SyncSink):
                end = (self.log if effect.stream == LOG else self.results)[-1].next_id
                self.step(events.SinkSynced(effect.stream, end))
            elif isinstance(effect, events.StoreRestartPoint):
                self.point = effect.point
                self.step(events.RestartPointStored(effect.point.sequence))
            elif isinstance(effect, events.TrimFootprints):
                self.trims.append(effect.before)

    def receive(self, first_id: int, *keys: int, stream: StreamId = A) -> None:
        times = range(first_id, first_id + len(keys))
        columns = [pa.array(keys, pa.int64()), pa.array(times, pa.int64())]
        rows = pa.RecordBatch.from_arrays(columns, schema=with_time(SCHEMA))
        batch = TupleBatch(first_id, rows, times[-1])
        self.step(events.BatchReceived(stream, ONE, self.incarnation, batch))
        while self.node.has_work:
            self.step(events.Proceed())

    def promise(
        self, stream: StreamId, sent_before: int, boundary_us: int, rebased_at: int = -1
    ) -> None:
        said = (stream, ONE, self.incarnation, sent_before, boundary_us, rebased_at)
        self.step(events.BoundaryReceived(*said))
        while self.node.has_work:
            self.step(events.Proceed())

    def acknowledge(self, at_ms: int = 1) -> None:
        self.step(TimerFired("ack"), at_ms)

    def kinds(self) -> list[list[FootprintKind]]:
        records = [record_of(batch, len(self.plan.inputs)) for batch in self.log]
        return [[FootprintKind(kind) for kind in each.kinds.tolist()] for each in records]

    def counted(self) -> list[tuple[int, int]]:
        rows = [row for batch in self.results for row in batch.batch.to_pylist()]
        return [(row["k"], row["n"]) for row in rows]


def test_a_point_names_the_record_of_its_cut_and_needs_what_t_does() -> None:
    running = Running()
    running.receive(0, 7, 8, 7)
    running.acknowledge()
    assert running.kinds() == [[FootprintKind.G_OPEN, FootprintKind.G_OPEN]]
    point = running.point
    assert point is not None
    assert (point.processed_before, point.next_ids[LOG]) == ({A: 3}, 2)
    assert point.needed_from == {A: 3, LOG: 0}, "the footprints hold all three tuples"
    running.receive(3, 8)
    running.acknowledge()
    assert running.kinds()[1:] == [[FootprintKind.PASS]], "of its own cut, though nothing opened"
    point = running.point
    assert point is not None
    assert (point.processed_before, point.next_ids[LOG]) == ({A: 4}, 3)
    assert point.needed_from == {A: 3, LOG: 0}, "the newest footprint lacks tuple 3"


def test_a_window_that_opens_and_closes_between_two_points_leaves_no_trace() -> None:
    running = Running()
    running.receive(0, 7)
    running.receive(1, 7)
    running.receive(2, 7, 8)
    running.acknowledge()
    assert running.counted() == [(7, 3)]
    assert running.kinds() == [[FootprintKind.G_OPEN]], "of one key, for three passes"


def test_windows_are_written_when_there_is_time_and_t_moves() -> None:
    running = Running()
    running.receive(0, 7, 8)
    running.acknowledge()
    running.receive(2, 7)
    for _ in range(4):  # Each window is taken, then written.
        running.step(events.CheckWindows(1, COSTS))
    running.acknowledge()
    assert running.kinds()[1:] == [[FootprintKind.G_CHECK], [FootprintKind.G_CHECK]]
    assert running.point is not None
    assert running.point.needed_from == {A: 3, LOG: 2}
    assert running.trims[-1] == 2


def test_t_moves_when_windows_are_written_though_no_more_input_comes() -> None:
    running = Running()
    running.receive(0, 7, 8)
    running.acknowledge()
    running.receive(2, 7)
    running.acknowledge()
    assert running.point is not None
    assert running.point.needed_from[A] < 3
    for _ in range(4):
        running.step(events.CheckWindows(1, replace(COSTS, fixed_us=5_000.0)))
    running.acknowledge()
    assert running.point.needed_from[A] == 3
    assert running.point.predicted_us >= 5_000, "a replacement has to start"
    assert RestartPoint.from_json(running.point.to_json()) == running.point


def test_points_are_as_far_apart_as_the_share_of_the_time_wants() -> None:
    running = Running()
    running.receive(0, 7)
    running.acknowledge(100)
    running.step(events.CheckWindows(0, COSTS, marks_apart_ms=120), 110)
    assert len(running.log) == 1, "there is no time for windows"
    running.receive(1, 8)
    running.acknowledge(150)
    running.acknowledge(200)
    assert running.point is not None
    assert running.point.processed_before == {A: 1}
    running.acknowledge(250)
    assert running.point.processed_before == {A: 2}


def test_what_has_opened_is_a_piece_of_its_own_but_t_does_not_stand_still_for_it() -> None:
    running = Running()
    running.receive(0, *range(10))
    running.acknowledge()
    running.receive(10, *range(10, 16))  # Six more open.
    running.step(events.CheckWindows(3, COSTS))
    assert len(running.log) == 1, "what has opened has been taken"
    running.receive(16, 16)  # Another one, before the next piece.
    running.step(events.CheckWindows(3, COSTS))
    assert running.kinds()[1:] == [[FootprintKind.G_OPEN] * 6]
    running.step(events.CheckWindows(3, COSTS))
    running.step(events.CheckWindows(3, COSTS))
    assert running.kinds()[2:] == [[FootprintKind.G_OPEN]], "three more have been taken"
    running.step(events.CheckWindows(3, COSTS))
    assert running.kinds()[3:] == [[FootprintKind.G_CHECK] * 3]
    running.receive(17, 0)  # None opens.
    running.step(events.CheckWindows(3, COSTS))
    running.step(events.CheckWindows(3, COSTS))
    assert running.kinds()[4:] == [[FootprintKind.G_CHECK] * 3]


def with_footprints_taken() -> Running:
    """Of two windows that are open, behind three tuples."""
    running = Running()
    running.receive(0, 7, 8)
    running.acknowledge()
    running.receive(2, 7)
    running.step(events.CheckWindows(2, COSTS))
    assert len(running.log) == 1, "no record was made yet"
    return running


def test_footprints_are_of_the_pass_behind_which_they_were_taken() -> None:
    running = with_footprints_taken()
    running.receive(3, 9, 7)  # One opens, and one closes.
    running.acknowledge()
    assert running.kinds()[1:] == [
        [FootprintKind.G_CHECK] * 2,
        [FootprintKind.G_OPEN, FootprintKind.R],
    ]
    taken, said = (record_of(batch, 1).mark for batch in running.log[1:])
    assert (taken.cut, taken.open_windows) == (3, 2)
    assert (said.cut, said.open_windows) == (5, 2)
    assert said.follows == running.log[1].next_id
    assert running.counted() == [(7, 3)]


def test_footprints_that_were_taken_are_written_though_no_time_is_left() -> None:
    running = with_footprints_taken()
    running.step(events.CheckWindows(0, COSTS))
    assert len(running.log) == 1
    running.acknowledge()
    assert running.kinds()[1:] == [[FootprintKind.G_CHECK] * 2]
    assert running.point is not None
    assert running.point.needed_from == {A: 3, LOG: 2}


def test_a_replacement_goes_on_from_its_windows_and_replays_what_they_lack() -> None:
    running = Running()
    running.receive(0, 7, 8, 7)
    running.acknowledge()
    running.receive(3, 8)
    running.acknowledge()
    other = Running(TWO, running)
    assert other.point is not None
    other.receive(3, 8, 8, 7)  # From T on, beyond the cut.
    assert other.counted() == [(8, 3), (7, 3)]
    other.acknowledge()
    assert other.kinds()[2:] == [[FootprintKind.R, FootprintKind.R]]


def test_windows_outlive_a_replay_that_ends_as_the_stream_begins_anew() -> None:
    """Other tuples come under the ids between T and the cut: all windows take them."""
    running = Running()
    running.receive(0, 7, 7, 8)
    running.acknowledge()
    running.receive(3, 9)
    running.acknowledge()
    other = Running(TWO, running)  # It would replay the tuple 3, which key 9 has.
    other.promise(A, 3, BEGINNING_US, rebased_at=3)
    other.promise(A, 3, 3)
    other.acknowledge()
    third = Running(Incarnation(3), other)
    third.receive(3, 9)
    third.acknowledge()
    fourth = Running(Incarnation(4), third)
    fourth.receive(3, 9, 8, 7, 9, 8)  # From T on, which is where the stream began anew.
    assert fourth.counted() == [(7, 3), (9, 3), (8, 3)]


class Merging(Running):
    """The same of two streams, whose cuts are times."""

    plan = replace(PLAN, inputs=(*PLAN.inputs, InputSpec(B, 0, SCHEMA, NodeId("b"))))


def test_a_cut_in_time_comes_though_a_stream_begins_anew() -> None:
    """What the other one brings again lies before the windows' own cuts, and counts once."""
    running = Merging()
    running.receive(0, 7, 7, 8)
    running.receive(0, 6, 6, 9, stream=B)
    running.acknowledge()
    running.receive(3, 9)
    running.promise(B, 3, 4)
    running.acknowledge()
    other = Merging(TWO, running)
    other.receive(2, 9, stream=B)
    other.promise(A, 2, BEGINNING_US, rebased_at=2)
    other.promise(A, 2, 2)
    other.acknowledge()
    other.promise(A, 2, 9)
    other.receive(3, 9, 6, stream=B)
    other.acknowledge()
    third = Merging(Incarnation(3), other)
    third.promise(A, 2, 99)
    third.receive(2, 9, 9, 6, 9, stream=B)
    third.promise(B, 6, 99)
    assert (other.counted(), third.counted()) == ([], [(6, 3), (9, 3)])


@dataclass(frozen=True)
class Sessions:
    """Of tuples of a key that are at most 3 us apart."""

    def __call__(self, manager: PageManager) -> FootprintedSessions:
        return FootprintedSessions(
            "w", SCHEMA, ["k"], [("count", None, "n")], gap_us=3, manager=manager
        )


class MergingIntoSessions(Merging):
    """Sessions of two streams."""

    plan = replace(
        Merging.plan,
        operators=(OperatorSpec("w", Sessions(), (("port", 0),)),),
        outputs=(replace(PLAN.outputs[0], schema=Sessions()(PageManager()).output_schema),),
    )


def test_a_key_whose_session_would_have_lasted_by_lost_tuples_has_none() -> None:
    """1. Key 7 has a footprint of its first tuple; four more follow up to the cut. 2. They are lost
    with their producer. 3. Without them the session ends within the replay.
    """
    running = MergingIntoSessions()
    running.receive(0, 7)
    running.promise(A, 1, 1)
    running.promise(B, 0, 1)
    running.acknowledge()
    running.receive(1, 7, 7, 7, 7)
    running.promise(A, 5, 5)
    running.promise(B, 0, 5)
    running.acknowledge()
    assert running.kinds() == [[FootprintKind.G_OPEN], [FootprintKind.PASS]]
    other = MergingIntoSessions(TWO, running)
    other.promise(A, 9, BEGINNING_US, rebased_at=9)
    other.promise(A, 9, 5)
    other.promise(B, 0, 5)
    other.acknowledge()
    assert other.kinds()[2:] == [[FootprintKind.R]], "it is said before any point is noted"
    third = MergingIntoSessions(Incarnation(3), other)
    for each in (other, third):
        each.receive(9, 7, 8, 7)
        each.promise(A, 12, 99)
        each.promise(B, 0, 99)
        assert each.counted() == [(8, 1), (7, 2)]


def test_an_extent_that_cannot_be_read_is_the_end() -> None:
    restoration = ExtentRestoration(PLAN, RestartPoint(1, {A: 0, LOG: 0}, {}, 0, {LOG: 1}))
    error = OSError("gone")
    assert restoration.step(LoadingFailed(error), 0) == [Fail(error)]


def test_a_plan_without_footprints_has_no_columns_for_them() -> None:
    assert body_schema(replace(PLAN, footprints=None)) is None
    assert body_schema(PLAN) == Windows()(PageManager()).body_schema


def test_eventual_checkpoints_need_one_operator_that_leaves_footprints() -> None:
    plan = replace(PLAN, operators=(), outputs=())
    with pytest.raises(Exception, match="no footprints"):
        Node(plan, Assignment(1, ONE, None, {}), 0)
    assert isinstance(Running().node._durability, Eventual)
