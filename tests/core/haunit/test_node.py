"""One node, stepped by hand: the interleavings that the simulator found, each in a few lines."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pytest

from holdfast.core.errors import RemoteProtocolError
from holdfast.core.haunit import events
from holdfast.core.haunit.input_order import ArrivalOrder
from holdfast.core.haunit.node import Node
from holdfast.core.haunit.passes import Pass
from holdfast.core.haunit.plan import (
    Assignment,
    InputSpec,
    NodeLimits,
    NodePlan,
    OperatorSpec,
    OutputSpec,
)
from holdfast.core.machine import Effect, SetTimer, TimerFired
from holdfast.core.model.ids import BEGINNING_US, END_US, Incarnation, NodeId, StreamId
from holdfast.core.model.tuples import TupleBatch, with_time
from holdfast.core.operators.aggregate import WindowAggregate
from holdfast.core.operators.base import (
    AT_CLOSE,
    NOTHING,
    ArbitraryOperator,
    ArithmeticOverflow,
    Operator,
    OperatorClass,
    Output,
    Rows,
)
from holdfast.core.recovery.restart_point import RestartPoint
from holdfast.core.state.page_manager import PageManager

SCHEMA = pa.schema([("v", pa.int64())])
COUNTED = WindowAggregate("", SCHEMA, [], [("count", None, "n")], size_us=10).output_schema
A, B, OUT = StreamId("a>n"), StreamId("b>n"), StreamId("n>c")
ONE, TWO = Incarnation(1), Incarnation(2)
LIMITS = NodeLimits(input_queue_tuples=10, pass_tuples=100, ack_tuples=0)
_E = TypeVar("_E", bound=Effect)


def batch(first_id: int, times: list[int], boundary_us: int = BEGINNING_US) -> TupleBatch:
    columns = [pa.array(range(len(times)), pa.int64()), pa.array(times, pa.int64())]
    rows = pa.RecordBatch.from_arrays(columns, schema=with_time(SCHEMA))
    return TupleBatch(first_id, rows, boundary_us)


def node(
    *inputs: tuple[StreamId, str | None],
    operators: tuple[OperatorSpec, ...] = (),
    waits_for: dict[StreamId, tuple[StreamId, ...]] | None = None,
    limits: NodeLimits = LIMITS,
) -> Node:
    specs = tuple(
        InputSpec(
            stream,
            0,
            SCHEMA,
            None if producer is None else NodeId(producer),
            (waits_for or {}).get(stream, ()),
        )
        for stream, producer in inputs
    )
    last = ("operator", len(operators) - 1) if operators else ("port", 0)
    output = OutputSpec(last, SCHEMA, (OUT,), (NodeId("c"),))
    plan = NodePlan(NodeId("n"), "n", 0, specs, 1, operators, (output,), limits=limits)
    made = Node(plan, Assignment(1, ONE, None, {}), 0)
    for _, producer in inputs:
        if producer is not None:
            made.step(events.PeerIncarnationLearned(NodeId(producer), ONE), 0)
    return made


def of_kind(effects: list[Effect], kind: type[_E]) -> list[_E]:
    return [effect for effect in effects if isinstance(effect, kind)]


def proceed(machine: Node, now_ms: int = 1) -> list[Effect]:
    effects: list[Effect] = []
    while machine.has_work:
        effects += machine.step(events.Proceed(), now_ms)
    return effects


def receive(machine: Node, stream: StreamId, tuples: TupleBatch) -> list[Effect]:
    effects = machine.step(events.BatchReceived(stream, ONE, ONE, tuples), 1)
    return effects + proceed(machine)


def test_more_tuples_of_one_time_than_the_input_may_hold_do_not_stop_a_node() -> None:
    machine = node((A, "a"), (B, "b"))
    receive(machine, B, batch(0, [5] * 4, 1_000))
    receive(machine, A, batch(0, [7] * 10))  # No boundary: more of the same time may follow.
    machine.step(TimerFired("ack"), 2)
    acks = of_kind(machine.step(TimerFired("ack"), 52), events.SendAck)
    granted = {ack.stream: ack.credit_until for ack in acks}
    assert granted[A] == 20, "the slowest stream goes on"
    assert granted[B] == 10, "a faster one does not run ahead"


def test_few_new_tuples_wait_some_intervals_until_they_are_acknowledged() -> None:
    machine = node((A, "a"), limits=replace(LIMITS, ack_tuples=4))

    def acknowledged(now_ms: int) -> list[int]:
        acks = of_kind(machine.step(TimerFired("ack"), now_ms), events.SendAck)
        return [ack.received_before for ack in acks]

    assert [acknowledged(50 * i) for i in range(1, 6)] == [[], [], [], [0], []]
    receive(machine, A, batch(0, [5, 6, 7]))
    assert acknowledged(300) == []
    receive(machine, A, batch(3, [8]))
    assert acknowledged(350) == [4], "four are enough"


def test_a_stream_is_let_ahead_of_one_that_holds_back_what_comes_from_its_source() -> None:
    machine = node((A, "a"), (B, "b"), waits_for={B: (A,)})
    receive(machine, B, batch(0, [5] * 4, 1_000))
    receive(machine, A, batch(0, [7] * 10))
    machine.step(TimerFired("ack"), 2)
    acks = of_kind(machine.step(TimerFired("ack"), 52), events.SendAck)
    assert {ack.stream: ack.credit_until for ack in acks} == {A: 20, B: 14}


def test_a_source_that_waits_longer_is_not_forgotten_for_one_that_waits_less() -> None:
    machine = node((A, None), (B, None))
    machine.start(0)
    nothing = (events.SourceRead(A, (), BEGINNING_US), events.SourceRead(B, (), BEGINNING_US))
    now_ms = 0
    for _ in range(60):  # Both quiet, so that A is asked again after 15 ms.
        for read in nothing:
            machine.step(read, now_ms)
        now_ms += 5
        machine.step(TimerFired("read"), now_ms)
    machine.step(nothing[0], now_ms)
    machine.step(events.SourceRead(B, (batch(0, [1]),), BEGINNING_US), now_ms)
    timers = of_kind(machine.step(events.SourceRead(B, (), BEGINNING_US), now_ms), SetTimer)
    fired = of_kind(machine.step(TimerFired("read"), now_ms + 1), SetTimer)
    due = [timer for timer in (*timers, *fired) if timer.name == "read"]
    assert due[-1].at_ms == now_ms + 15, "the timer for A is set again after B's"
    reads = of_kind(machine.step(TimerFired("read"), now_ms + 15), events.ReadSource)
    assert A in [read.stream for read in reads]


@pytest.mark.parametrize(("quiet_ms", "next_ms"), [(7, 7), (5_000, 1_000), (0, 40)])
def test_a_quiet_source_is_asked_again_when_it_says_or_ever_more_seldom(
    quiet_ms: int, next_ms: int
) -> None:
    machine = node((A, None))
    machine.start(0)
    nothing = events.SourceRead(A, (), BEGINNING_US, quiet_ms=quiet_ms)
    timers = of_kind(machine.step(nothing, 60_000), SetTimer)
    assert [timer.at_ms - 60_000 for timer in timers] == [next_ms]
    assert not of_kind(machine.step(TimerFired("read"), 60_000), events.ReadSource)


def test_a_source_that_stirs_is_read_before_its_time_but_once_at_a_time() -> None:
    machine = node((A, None))
    machine.start(0)
    machine.step(events.SourceRead(A, (), BEGINNING_US), 60_000)
    stirred = events.SourceStirred(A)
    assert len(of_kind(machine.step(stirred, 60_001), events.ReadSource)) == 1
    assert not of_kind(machine.step(stirred, 60_001), events.ReadSource)
    machine.step(events.SourceRead(A, (), END_US), 60_002)
    assert not of_kind(machine.step(stirred, 60_003), events.ReadSource), "it has ended"


def test_what_has_come_is_processed_before_more_is_read() -> None:
    machine = node((A, None))
    machine.start(0)
    came = machine.step(events.SourceRead(A, (batch(0, list(range(10)), 10),), 10), 5)
    assert not of_kind(came, events.ReadSource)
    (more,) = of_kind(proceed(machine, 5), events.ReadSource)
    assert more.from_id == 10
    nothing = machine.step(events.SourceRead(A, (), 10), 5)
    assert of_kind(nothing, SetTimer), "a source that has nothing is read again at its time"


def test_a_source_that_brought_less_than_was_asked_for_is_given_time() -> None:
    machine = node((A, None))
    machine.start(0)
    effects = machine.step(events.SourceRead(A, (batch(0, [1, 2], 2),), 2), 5)
    effects += proceed(machine, 5)
    assert not of_kind(effects, events.ReadSource), "what it has by now is not worth a pass"
    assert SetTimer("read", 6) in effects
    assert of_kind(machine.step(TimerFired("read"), 6), events.ReadSource)


def test_a_node_without_passes_looks_at_its_positions_less_often_until_the_next() -> None:
    machine = node((A, "a"))

    def ack_after(now_ms: int) -> int:
        timers = of_kind(machine.step(TimerFired("ack"), now_ms), SetTimer)
        return next(timer.at_ms for timer in timers if timer.name == "ack") - now_ms

    assert [ack_after(50 * i) for i in range(10)] == [50] * 8 + [200] * 2
    timers = of_kind(receive(machine, A, batch(0, [5])), SetTimer)
    assert [timer.at_ms for timer in timers if timer.name == "ack"] == [1 + 50]
    assert ack_after(500) == 50


def test_who_is_told_of_other_tuples_asks_again_at_once_and_says_that_it_knows() -> None:
    machine = node((A, "a"))
    told = events.BoundaryReceived(A, ONE, ONE, 0, BEGINNING_US, rebased_at=0)
    [subscribe] = of_kind(machine.step(told, 1), events.SendSubscribe)
    assert subscribe.is_told
    assert not of_kind(machine.step(told, 2), events.SendSubscribe)
    [subscribe] = of_kind(
        machine.step(events.PeerIncarnationLearned(NodeId("a"), TWO), 3), events.SendSubscribe
    )
    assert not subscribe.is_told


def test_a_receiver_says_how_far_its_replay_wants_the_tuples_of_before() -> None:
    """A producer that cannot give them must say so, or the replay waits for ever."""
    point = RestartPoint(1, {A: 3}, {A: 9}, 1_000, {OUT: 5})
    machine = Node(node((A, "a")).plan, Assignment(1, TWO, point, {}), 0)
    machine.start(0)
    [asked] = of_kind(
        machine.step(events.PeerIncarnationLearned(NodeId("a"), ONE), 0), events.SendSubscribe
    )
    assert (asked.from_id, asked.had_before) == (3, 9)
    told = events.BoundaryReceived(A, ONE, TWO, 3, BEGINNING_US, rebased_at=3)
    [asked] = of_kind(machine.step(told, 1_000), events.SendSubscribe)
    assert (asked.is_told, asked.had_before) == (True, 0), "these are other tuples"


@pytest.mark.parametrize("had_before", [0, 7])
def test_a_replacement_whose_input_is_another_one_tells_who_replays_what_was_before(
    had_before: int,
) -> None:
    """1. A node without a restart point, its producer and its receiver are lost. 2. The producer
    goes on with other tuples. 3. The receiver has nothing yet, and replays up to a cut.
    """
    machine = Node(node((A, "a")).plan, Assignment(1, TWO, None, {}), 0)
    machine.start(0)
    machine.step(events.PeerIncarnationLearned(NodeId("a"), ONE), 0)
    machine.step(events.PeerIncarnationLearned(NodeId("c"), ONE), 0)
    machine.step(events.SubscribeReceived(OUT, ONE, TWO, 0, 0, 100, had_before=had_before), 1)
    machine.step(events.BoundaryReceived(A, ONE, TWO, 0, BEGINNING_US, rebased_at=0), 2)
    effects = machine.step(events.SubscribeReceived(OUT, ONE, TWO, 0, 0, 100, had_before=0), 1_000)
    said = [each.rebased_at for each in of_kind(effects, events.SendBoundary)]
    assert (0 in said) == (had_before > 0)


def test_an_old_subscription_of_a_known_receiver_is_refused_and_does_no_harm() -> None:
    machine = node((A, "a"))
    machine.step(events.PeerIncarnationLearned(NodeId("c"), ONE), 0)
    receive(machine, A, batch(0, [1, 2, 3, 4]))
    subscribe = events.SubscribeReceived(OUT, ONE, ONE, 0, 0, 100)
    assert of_kind(machine.step(subscribe, 1), events.SendBatch)
    machine.step(events.AckReceived(OUT, ONE, ONE, 4, 3, 100), 2)
    assert machine.step(subscribe, 3) == []
    assert machine.statistics().refused_frames == 1


def test_a_new_receiver_that_needs_what_was_trimmed_is_an_error() -> None:
    machine = node((A, "a"))
    machine.step(events.PeerIncarnationLearned(NodeId("c"), ONE), 0)
    receive(machine, A, batch(0, [1, 2, 3, 4]))
    machine.step(events.SubscribeReceived(OUT, ONE, ONE, 0, 0, 100), 1)
    machine.step(events.AckReceived(OUT, ONE, ONE, 4, 3, 100), 2)
    with pytest.raises(RemoteProtocolError, match="trimmed"):
        machine.step(events.SubscribeReceived(OUT, TWO, ONE, 0, 0, 100), 3)


def test_what_was_spilled_is_read_back_as_far_as_credit_goes_however_small_a_pass_is() -> None:
    machine = node((A, "a"), limits=NodeLimits(pass_tuples=1, output_queue_bytes=1))
    machine.step(events.PeerIncarnationLearned(NodeId("c"), ONE), 0)
    machine.step(events.SubscribeReceived(OUT, ONE, ONE, 0, 0, 100), 1)
    spilled: list[TupleBatch] = []
    for i in range(50):
        effects = receive(machine, A, batch(i, [i]))
        spilled += [b for e in of_kind(effects, events.SpillBatches) for b in e.batches]
    machine.step(events.PeerIncarnationLearned(NodeId("c"), TWO), 2)
    effects = machine.step(events.SubscribeReceived(OUT, TWO, ONE, 0, 0, 40), 2)
    (read,) = of_kind(effects, events.ReadSpill)
    assert (read.from_id, read.to_id) == (0, 40)
    effects = machine.step(events.AckReceived(OUT, TWO, ONE, 0, 0, 60), 3)
    assert not of_kind(effects, events.ReadSpill), "one at a time"
    effects = machine.step(events.SpillRead(OUT, read.request_id, tuple(spilled[:40])), 4)
    assert [s.batch.first_id for s in of_kind(effects, events.SendBatch)] == list(range(40))
    (read,) = of_kind(effects, events.ReadSpill)
    assert (read.from_id, read.to_id) == (40, 50), "what was granted meanwhile"


def test_a_pass_takes_only_what_has_come() -> None:
    machine = node((A, "a"), (B, "b"))
    assert not machine.has_work
    effects = receive(machine, A, batch(0, [1], 50))
    assert not of_kind(effects, events.SendBatch), "B may still send something older"
    assert machine.statistics().held_tuples == 1
    machine.step(events.BoundaryReceived(B, ONE, ONE, 0, END_US), 1)
    machine.step(events.PeerIncarnationLearned(NodeId("c"), ONE), 1)
    machine.step(events.SubscribeReceived(OUT, ONE, ONE, 0, 0, 100), 1)
    sent = of_kind(proceed(machine), events.SendBatch)
    assert [s.batch.count for s in sent] == [1]
    assert machine.statistics().boundary_us == 50


class Watched(Operator):
    """Puts out what it is given, and knows what that was."""

    operator_class = OperatorClass.REPEATABLE
    name = "watched"

    def __init__(self) -> None:
        self.seen: list[object] = []

    def process(self, inputs: Sequence[Rows | None], low: np.ndarray, boundary_us: int) -> Output:
        (rows,) = inputs
        if rows is None:
            return NOTHING
        self.seen += rows.batch.column("n").to_pylist()
        return Output((rows,), low)


def put_out(
    operators: tuple[OperatorSpec, ...],
    schema: pa.Schema,
    point: RestartPoint | None,
    given: list[TupleBatch],
) -> list[tuple[int, object]]:
    """Ids and first values of what a node puts out that starts here."""
    output = OutputSpec(("operator", len(operators) - 1), schema, (OUT,), (NodeId("c"),))
    source = InputSpec(A, 0, SCHEMA, NodeId("a"))
    plan = NodePlan(NodeId("n"), "n", 0, (source,), 1, operators, (output,), limits=LIMITS)
    machine = Node(plan, Assignment(1, TWO, point, {}), 0)
    machine.step(events.PeerIncarnationLearned(NodeId("a"), ONE), 0)
    for tuples in given:
        machine.step(events.BatchReceived(A, ONE, TWO, tuples), 1)
        proceed(machine)
    ((_, batches),) = machine.replicated()[1].items()
    return [
        (held.first_id + number, value)
        for held in batches
        for number, value in enumerate(held.batch.column(schema.names[-1]).to_pylist())
    ]


def test_what_state_does_not_depend_on_is_not_run_in_a_silent_replay() -> None:
    """It would be given results that never were, for which it may have no value."""
    running = OperatorSpec(
        "running",
        lambda pages: WindowAggregate(
            "running", SCHEMA, [], [("count", None, "n")], size_us=10, emit="changes", manager=pages
        ),
        (("port", 0),),
    )
    batches = [batch(0, [1, 2, 3], 3), batch(3, [4, 5, 6], 6)]
    for point, seen in (
        (None, [1, 2, 3, 4, 5, 6]),
        (RestartPoint(1, {A: 0}, {A: 3}, 3, {OUT: 3}), [4, 5, 6]),
    ):
        watched = Watched()
        after = OperatorSpec("after", lambda _, made=watched: made, (("operator", 0),))  # type: ignore[misc]
        assert [n for _, n in put_out((running, after), COUNTED, point, batches)] == seen
        assert watched.seen == seen


def test_windows_of_windows_are_replayed_whole() -> None:
    inner = OperatorSpec(
        "inner",
        lambda pages: WindowAggregate(
            "inner", SCHEMA, [], [("count", None, "n")], size_us=10, manager=pages
        ),
        (("port", 0),),
    )
    outer = OperatorSpec(
        "outer",
        lambda pages: WindowAggregate(
            "outer", COUNTED, [], [("sum", Column("n"), "n")], size_us=50, manager=pages
        ),
        (("operator", 0),),
    )
    times = [*range(3, 120, 4), 200]
    batches = [batch(n, [time], time) for n, time in enumerate(times)]
    whole = put_out((inner, outer), COUNTED, None, batches)
    assert [n for _, n in whole] == [12, 13, 5]
    # At 71 the window from 50 on is open: it needs all from 51 on, which is tuple 12.
    at = times.index(71)
    point = RestartPoint(1, {A: 12}, {A: at + 1}, 71, {OUT: 1})
    assert put_out((inner, outer), COUNTED, point, batches[12:]) == whole[1:]


@dataclass
class Column:
    """A column as it is."""

    name: str
    type: pa.DataType = field(default_factory=pa.int64)

    def evaluate(self, rows: pa.RecordBatch) -> pa.Array:
        return rows.column(self.name)


@dataclass
class Valued:
    """Values of tuples, by their time."""

    values: dict[int, int]
    name: str = "total"
    type: pa.DataType = field(default_factory=pa.int64)

    def evaluate(self, rows: pa.RecordBatch) -> pa.Array:
        return pa.array([self.values.get(v, 0) for v in rows.column("v").to_pylist()], pa.int64())


def test_windows_that_had_closed_are_not_computed_from_what_is_left_of_them() -> None:
    """Without its first tuple the first window's sum would not fit."""
    summed = OperatorSpec(
        "sums",
        lambda pages: WindowAggregate(
            "sums", SCHEMA, [], [("sum", Valued({1: 2**63 - 1, 2: 5}), "total")],
            size_us=10, manager=pages,
        ),
        (("port", 0),),
    )  # fmt: skip
    schema = summed.build(PageManager()).output_schema
    rest = [batch(1, [2, 3, 4, 11], 11), batch(5, [12, 21], 21)]
    point = RestartPoint(1, {A: 1}, {A: 5}, 11, {OUT: 1})
    assert put_out((summed,), schema, point, rest) == [(1, 0)]
    with pytest.raises(ArithmeticOverflow, match="total"):
        put_out((summed,), schema, None, [batch(0, [1]), *rest])


class Waker(ArbitraryOperator):
    """Wants a pass at a given time, and then puts out a row of the clock."""

    name = "waker"
    output_schema = SCHEMA

    def __init__(self) -> None:
        self.told: list[tuple[int, int]] = []
        self.wanted: int | None = 40_000

    def decide(self, clock_us: int, seed: int) -> None:
        self.told.append((clock_us, seed))

    def wake_us(self) -> int | None:
        return self.wanted

    def process(self, inputs: Sequence[Rows | None], low: np.ndarray, boundary_us: int) -> Output:
        clock_us = self.told[-1][0]
        if self.wanted is None or clock_us < self.wanted:
            return NOTHING
        self.wanted = None
        batch_ = pa.RecordBatch.from_arrays([pa.array([clock_us])], schema=SCHEMA)
        times = np.array([clock_us], dtype=np.int64)
        return Output((Rows(batch_, times, np.array([AT_CLOSE]), 0),), low)

    def promises_us(self, boundary_us: int) -> int:
        return min(boundary_us, 33)


@pytest.mark.parametrize("inputs", [((A, "a"),), ((A, "a"), (B, "b"))])
def test_an_arbitrary_operator_is_told_the_clock_and_woken(
    inputs: tuple[tuple[StreamId, str], ...],
) -> None:
    waker = Waker()
    spec = OperatorSpec("waker", lambda _: waker, (("port", 0),))
    machine = node(*inputs, operators=(spec,))
    machine.step(events.PeerIncarnationLearned(NodeId("c"), ONE), 0)
    machine.step(events.SubscribeReceived(OUT, ONE, ONE, 0, 0, 100), 1)
    assert "wake" in [timer.name for timer in of_kind(machine.start(0), SetTimer)]
    for stream, _ in inputs:
        machine.step(events.BatchReceived(stream, ONE, ONE, batch(0, [1, 2], 50)), 20)
    effects = machine.step(events.Proceed(21_000, 1), 21)
    assert waker.told[0] == (21_000, 1)
    assert SetTimer("wake", 40) in of_kind(effects, SetTimer)
    boundaries = [e.boundary_us for e in of_kind(effects, events.SendBoundary)]
    assert boundaries == [33], "its own promise, not the node's boundary"
    assert not machine.has_work
    assert machine.step(TimerFired("wake"), 40) == []
    assert machine.has_work, "without anything having come"
    sent = of_kind(machine.step(events.Proceed(41_000, 2), 41), events.SendBatch)
    assert [s.batch.batch.column(0).to_pylist() for s in sent] == [[41_000]]
    assert waker.told[-1] == (41_000, 2)
    assert not machine.has_work
    machine.step(events.BatchReceived(A, ONE, ONE, batch(2, [60], 60)), 5)
    machine.step(events.Proceed(5_000, 3), 45)  # Another clock that is behind.
    assert waker.told[-1] == (41_000, 3), "it never moves back"


def test_boundaries_of_one_stream_do_not_put_off_what_an_operator_waits_for() -> None:
    waker = Waker()
    spec = OperatorSpec("waker", lambda _: waker, (("port", 0),))
    machine = node((A, "a"), (B, "b"), operators=(spec,))
    machine.start(0)
    machine.step(events.BatchReceived(A, ONE, ONE, batch(0, [1, 2], 50)), 20)
    effects = machine.step(events.Proceed(21_000, 1), 21)
    assert SetTimer("wake", 40) in of_kind(effects, SetTimer)
    for now_ms in (30, 39):  # No pass: `b` promises nothing.
        machine.step(events.BoundaryReceived(A, ONE, ONE, 2, 100 + now_ms), now_ms)
        assert machine.has_work
        effects = machine.step(events.Proceed(1_000 * now_ms, 1), now_ms)
        assert "wake" not in [timer.name for timer in of_kind(effects, SetTimer)]


def recorded_passes(*taken: tuple[int, ...]) -> tuple[Pass, ...]:
    return tuple(Pass(n, 100 * n, 1, 0, before) for n, before in enumerate(taken))


def arbitrary(producers: Sequence[str | None], assignment: Assignment) -> Node:
    """Two input streams, merged as they come, with passes that are logged."""
    specs = tuple(
        InputSpec(stream, 0, SCHEMA, None if producer is None else NodeId(producer))
        for stream, producer in zip((A, B), producers, strict=True)
    )
    plan = NodePlan(
        NodeId("n"),
        "n",
        0,
        specs,
        1,
        (),
        (OutputSpec(("port", 0), SCHEMA, (OUT,), (NodeId("c"),)),),
        limits=LIMITS,
        merges_by_arrival=True,
        keeps_passes=True,
    )
    return Node(plan, assignment, 0)


def test_what_recorded_passes_will_take_uses_up_no_credit() -> None:
    """Else the node may wait for a stream whose sender waits for one that has no credit here."""
    passes = recorded_passes((10, 4), (25, 6))
    machine = arbitrary(("a", "b"), Assignment(1, ONE, None, {}, passes=passes))
    effects = machine.step(events.PeerIncarnationLearned(NodeId("a"), ONE), 0)
    (subscribed,) = of_kind(effects, events.SendSubscribe)
    assert subscribed.credit_until == 25 + LIMITS.input_queue_tuples
    receive(machine, A, batch(0, [7] * 30))
    assert not machine.has_work, "the pass waits for the other stream"
    (ack,) = of_kind(machine.step(TimerFired("ack"), 50), events.SendAck)
    assert ack.credit_until == 25 + LIMITS.input_queue_tuples


def test_who_has_nothing_to_replay_says_what_it_has_been_promised() -> None:
    """A producer that sends once more what it had sent leaves out what is older."""
    point = RestartPoint(1, {A: 3}, {A: 3}, 1_000, {OUT: 0})
    plan = node((A, "a")).plan
    machine = Node(plan, Assignment(1, ONE, point, {}), 0)
    machine.start(0)
    effects = machine.step(events.PeerIncarnationLearned(NodeId("a"), ONE), 0)
    (subscribed,) = of_kind(effects, events.SendSubscribe)
    assert subscribed.boundary_us == 1_000


def test_a_boundary_that_came_with_the_last_tuples_of_a_recorded_pass_is_acted_on() -> None:
    """It acts on the boundary of then; sent again, its tuples bring the end with them."""
    machine = arbitrary(("a", "b"), Assignment(1, ONE, None, {}, passes=recorded_passes((1, 1))))
    for producer in ("a", "b"):
        machine.step(events.PeerIncarnationLearned(NodeId(producer), ONE), 0)
    receive(machine, A, batch(0, [7], END_US))
    receive(machine, B, batch(0, [7], END_US))
    assert machine.statistics().boundary_us == END_US


def test_a_source_is_read_until_a_recorded_pass_has_its_tuples() -> None:
    """It is read in other steps than before; more than half an input may be there, and too few."""
    machine = arbitrary((None, "b"), Assignment(1, ONE, None, {}, passes=recorded_passes((9, 0))))
    machine.start(0)
    effects = machine.step(events.SourceRead(A, (batch(0, [7] * 6),), BEGINNING_US), 1)
    effects += machine.step(events.SourceStirred(A), 2)
    (read,) = of_kind(effects, events.ReadSource)
    assert read.from_id == 6


def test_a_secondary_forgets_the_passes_that_its_state_does_not_depend_on() -> None:
    machine = arbitrary(("a", "b"), Assignment(1, ONE, None, {}, is_secondary=True))
    for producer in ("a", "b"):
        machine.step(events.PeerIncarnationLearned(NodeId(producer), ONE), 0)
    machine.step(events.PassesRead(recorded_passes((1, 0), (2, 0), (3, 0))), 0)
    receive(machine, A, batch(0, [7] * 3))
    machine.step(TimerFired("ack"), 50)
    order = machine._unit.order
    assert isinstance(order, ArrivalOrder)
    assert not order._passes._run


def test_a_boundary_of_passes_that_are_not_run_again_still_holds() -> None:
    """1. A pass brings a boundary and no tuple. 2. A restart point behind it needs none of it."""
    output = OutputSpec(("port", 0), SCHEMA, (OUT,), (NodeId("c"),))
    source = InputSpec(A, 0, SCHEMA, NodeId("a"))
    plan = NodePlan(NodeId("n"), "n", 0, (source,), 1, (), (output,), limits=LIMITS)
    plan = replace(plan, merges_by_arrival=True, keeps_passes=True)
    passes = plan.pass_stream
    point = RestartPoint(1, {A: 0, passes: 1}, {A: 0}, 5_000, {OUT: 0, passes: 1})
    machine = Node(plan, Assignment(1, TWO, point, {passes: 1}), 0)
    machine.start(0)
    assert machine.statistics().boundary_us == 5_000


def test_an_output_sends_the_columns_that_its_receiver_reads() -> None:
    two = pa.schema([("v", pa.int64()), ("w", pa.int64())])
    source = InputSpec(A, 0, two, NodeId("a"))
    narrow = pa.schema([("w", pa.int64())])
    output = OutputSpec(("port", 0), narrow, (OUT,), (NodeId("c"),), columns=(1,))
    plan = NodePlan(NodeId("n"), "n", 0, (source,), 1, (), (output,), limits=LIMITS)
    machine = Node(plan, Assignment(1, ONE, None, {}), 0)
    for peer in ("a", "c"):
        machine.step(events.PeerIncarnationLearned(NodeId(peer), ONE), 0)
    machine.step(events.SubscribeReceived(OUT, ONE, ONE, 0, 0, 10), 0)
    columns = [pa.array([value], pa.int64()) for value in (1, 2, 50)]
    rows = pa.RecordBatch.from_arrays(columns, schema=with_time(two))
    (sent,) = of_kind(receive(machine, A, TupleBatch(0, rows, 60)), events.SendBatch)
    assert sent.batch.batch.schema == with_time(narrow)
    assert [column.to_pylist() for column in sent.batch.batch.columns] == [[2], [50]]


def test_peers_are_known_by_stream() -> None:
    machine = node((A, "a"), (B, "b"))
    assert machine.peer_incarnation(A) == ONE
    assert machine.peer_incarnation(OUT) is None
    machine.step(events.PeerIncarnationLearned(NodeId("c"), TWO), 1)
    assert machine.peer_incarnation(OUT) == TWO


def test_a_node_stops_working_while_too_much_of_a_sink_that_holds_it_up_is_not_durable() -> None:
    sink = StreamId("out[0]")
    for unsynced_max in (0, None):
        output = OutputSpec(
            ("port", 0), SCHEMA, (sink,), (), is_sink=True, unsynced_max=unsynced_max
        )
        limits = NodeLimits(input_queue_tuples=10, pass_tuples=100, output_queue_tuples=4)
        inputs = (InputSpec(A, 0, SCHEMA, NodeId("a")),)
        plan = NodePlan(NodeId("n"), "n", 0, inputs, 1, (), (output,), limits=limits)
        machine = Node(plan, Assignment(1, ONE, None, {sink: 0}), 0)
        machine.step(events.PeerIncarnationLearned(NodeId("a"), ONE), 0)
        written = of_kind(receive(machine, A, batch(0, [1, 2, 3, 4])), events.WriteSink)
        assert [w.batch.count for w in written] == [4]
        written = of_kind(receive(machine, A, batch(4, [5])), events.WriteSink)
        assert len(written) == (0 if unsynced_max == 0 else 1)
        machine.step(events.SinkSynced(sink, 1), 2)
        written += of_kind(proceed(machine), events.WriteSink)
        assert [w.batch.first_id for w in written] == [4]


@pytest.mark.parametrize("is_sink", [True, False])
def test_much_output_is_cut_into_what_readers_and_receivers_take_whole(
    is_sink: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.core.model.tuples.PART_BYTES", 1_000)
    limits = replace(LIMITS, input_queue_tuples=1_000, pass_tuples=1_000)
    inputs = (InputSpec(A, 0, SCHEMA, NodeId("a"), ()),)
    receivers = () if is_sink else (NodeId("c"),)
    output = OutputSpec(("port", 0), SCHEMA, (OUT,), receivers, is_sink=is_sink)
    plan = NodePlan(NodeId("n"), "n", 0, inputs, 1, (), (output,), limits=limits)
    machine = Node(plan, Assignment(1, ONE, None, {OUT: 0} if is_sink else {}), 0)
    machine.step(events.PeerIncarnationLearned(NodeId("a"), ONE), 0)
    if not is_sink:
        machine.step(events.PeerIncarnationLearned(NodeId("c"), ONE), 0)
        machine.step(events.SubscribeReceived(OUT, ONE, ONE, 0, 0, 1_000), 0)
    whole = batch(0, list(range(300)), 400)
    effects = receive(machine, A, whole)
    kind = events.WriteSink if is_sink else events.SendBatch
    sent = [effect.batch for effect in of_kind(effects, kind)]
    assert len(sent) > 4
    assert max(part.nbytes for part in sent) < 1_100
    assert pa.Table.from_batches([part.batch for part in sent]).equals(
        pa.Table.from_batches([whole.batch])
    )
    assert [part.first_id for part in sent[1:]] == [part.next_id for part in sent[:-1]]
    assert {part.boundary_us for part in sent[:-1]} == {BEGINNING_US}
    assert sent[-1].boundary_us == 400
