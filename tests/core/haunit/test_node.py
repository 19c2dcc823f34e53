"""One node, stepped by hand: the interleavings that the simulator found, each in a few lines."""

from typing import TypeVar

import pyarrow as pa
import pytest

from holdfast.core.errors import RemoteProtocolError
from holdfast.core.haunit import events
from holdfast.core.haunit.node import Node
from holdfast.core.haunit.plan import Assignment, InputSpec, NodeLimits, NodePlan, OutputSpec
from holdfast.core.machine import Effect, SetTimer, TimerFired
from holdfast.core.model.ids import BEGINNING_US, END_US, Incarnation, NodeId, StreamId
from holdfast.core.model.tuples import TupleBatch, with_time

SCHEMA = pa.schema([("v", pa.int64())])
A, B, OUT = StreamId("a>n"), StreamId("b>n"), StreamId("n>c")
ONE, TWO = Incarnation(1), Incarnation(2)
LIMITS = NodeLimits(input_queue_tuples=10, round_tuples=100)
_E = TypeVar("_E", bound=Effect)


def batch(first_id: int, times: list[int], boundary_us: int = BEGINNING_US) -> TupleBatch:
    columns = [pa.array(range(len(times)), pa.int64()), pa.array(times, pa.int64())]
    rows = pa.RecordBatch.from_arrays(columns, schema=with_time(SCHEMA))
    return TupleBatch(first_id, rows, boundary_us)


def node(*inputs: tuple[StreamId, str | None]) -> Node:
    specs = tuple(
        InputSpec(stream, 0, SCHEMA, None if producer is None else NodeId(producer))
        for stream, producer in inputs
    )
    output = OutputSpec(("port", 0), SCHEMA, (OUT,), (NodeId("c"),))
    plan = NodePlan(NodeId("n"), "n", 0, specs, 1, (), (output,), limits=LIMITS)
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


def test_a_source_that_waits_longer_is_not_forgotten_for_one_that_waits_less() -> None:
    machine = node((A, None), (B, None))
    machine.start(0)
    nothing = (events.SourceRead(A, (), BEGINNING_US), events.SourceRead(B, (), BEGINNING_US))
    now_ms = 0
    for _ in range(60):  # Both idle, so that A is polled every 5 ms.
        for read in nothing:
            machine.step(read, now_ms)
        now_ms += 5
        machine.step(TimerFired("read"), now_ms)
    machine.step(nothing[0], now_ms)
    machine.step(events.SourceRead(B, (batch(0, [1]),), BEGINNING_US), now_ms)
    timers = of_kind(machine.step(events.SourceRead(B, (), BEGINNING_US), now_ms), SetTimer)
    fired = of_kind(machine.step(TimerFired("read"), now_ms + 1), SetTimer)
    due = [timer for timer in (*timers, *fired) if timer.name == "read"]
    assert due[-1].at_ms == now_ms + 5, "the timer for A is set again after B's"
    reads = of_kind(machine.step(TimerFired("read"), now_ms + 5), events.ReadSource)
    assert A in [read.stream for read in reads]


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


def test_a_round_takes_only_what_has_come() -> None:
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


def test_peers_are_known_by_stream() -> None:
    machine = node((A, "a"), (B, "b"))
    assert machine.peer_incarnation(A) == ONE
    assert machine.peer_incarnation(OUT) is None
    machine.step(events.PeerIncarnationLearned(NodeId("c"), TWO), 1)
    assert machine.peer_incarnation(OUT) == TWO
