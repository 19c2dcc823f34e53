"""A receiver reads another replica of its producer than before, and its word is lost. [DPC §3.2]"""

from __future__ import annotations

import pyarrow as pa

from holdfast.core.haunit.events import (
    AckReceived,
    BoundaryReceived,
    SendAck,
    SendBatch,
    SendSubscribe,
    SubscribeReceived,
)
from holdfast.core.haunit.ha_input import HAInput
from holdfast.core.haunit.outputs.edge import OutputEdge
from holdfast.core.haunit.outputs.first_output import FirstOutput
from holdfast.core.haunit.outputs.suffix import Suffix
from holdfast.core.haunit.plan import Alternate, InputSpec, NodePlan
from holdfast.core.machine import Effect
from holdfast.core.model.ids import BEGINNING_US, Incarnation, NodeId, StreamId
from holdfast.core.model.tuples import TIME_COLUMN
from holdfast.core.queues.output_queue import OutputQueue
from holdfast.core.recovery.restart_point import RestartPoint
from holdfast.core.replication.consistency_manager import Consistency
from holdfast.core.replication.switching import Standing
from holdfast.core.wire.messages import message_of

A, B = StreamId("p[0]>n"), StreamId("p[0]+1>n")
P, Q = NodeId("p[0]"), NodeId("p[0]+1")
ONE = Incarnation(1)
ROOM = 4
BEGINS = RestartPoint(0, {}, {}, BEGINNING_US)


def reader() -> HAInput:
    """Of the stream of a producer with two replicas; it reads the first one."""
    schema = pa.schema([("v", pa.int64())])
    spec = InputSpec(A, 0, schema, P, alternates=(Alternate(B, Q),))
    made = HAInput(NodePlan(NodeId("n"), "n", 0, (spec,), 1, (), ()), ONE, BEGINS, 0)
    for node in (P, Q):
        made.learn(node, ONE, 0)
    for stream in (A, B):
        stands(made, stream, Consistency.STABLE)
    return made


def edge(stream: StreamId, *, is_aside: bool) -> OutputEdge:
    """Of one of the replicas, which the receiver has subscribed."""
    queue = OutputQueue(stream, first_id=0, retain=True, memory_limit_bytes=1 << 20)
    told = (NodeId("n"), FirstOutput())
    made = OutputEdge(queue, *told, suffix=Suffix(ONE, ROOM), has_own_time=False, may_lose=False)
    link = made.link_of(got := SubscribeReceived(stream, ONE, ONE, 0, 0, 10, is_aside=is_aside))
    assert link is not None
    assert made.subscribe(link, got)[0]
    return made


def stands(read: HAInput, stream: StreamId, state: Consistency) -> list[tuple[StreamId, bool]]:
    """A replica says where it stands; whom the receiver asks then, and whether as aside."""
    standing = Standing(state, 0, BEGINNING_US)
    said = BoundaryReceived(stream, ONE, ONE, 0, BEGINNING_US, standing=standing)
    asked = [e for e in read.promise(said, 1) if isinstance(e, SendSubscribe)]
    return [(effect.stream, effect.is_aside) for effect in asked]


def acknowledge(read: HAInput, output: OutputEdge) -> None:
    """The receiver acknowledges, as it does now and then, and the word comes."""
    (said,) = (e for e in read.acknowledge_all() if is_ack_on(e, output.stream))
    assert isinstance(said, SendAck)
    got = message_of(said, ONE)
    assert isinstance(got, AckReceived)
    link = output.link_of(got)
    assert link is not None
    output.acknowledge(link, got)
    output.check_invariants()


def is_ack_on(effect: Effect, stream: StreamId) -> bool:
    return isinstance(effect, SendAck) and effect.stream == stream


def go_on_without(output: OutputEdge, count: int) -> int:
    """So many tentative tuples come; how many are sent."""
    rows = pa.RecordBatch.from_arrays([pa.array(range(count), pa.int64())], names=[TIME_COLUMN])
    output.suffix.put_out(rows, 0, stable_before=0)
    return tentative_sent(output)


def tentative_sent(output: OutputEdge) -> int:
    effects = output.flush()
    output.check_invariants()
    return sum(e.batch.count for e in effects if isinstance(e, SendBatch) and e.run is not None)


def test_a_replica_that_is_left_and_does_not_hear_of_it_is_not_stopped_by_its_run() -> None:
    read, left = reader(), edge(A, is_aside=False)
    assert stands(read, A, Consistency.UP_FAILURE) == [(A, True), (B, False)]  # Lost on the way.
    assert go_on_without(left, ROOM + 3) == ROOM
    assert left.unsent_tuples == 3
    acknowledge(read, left)
    assert tentative_sent(left) == 0
    assert left.unsent_tuples == 0


def test_a_replica_that_is_gone_over_to_and_does_not_hear_of_it_sends_its_run() -> None:
    read, chosen = reader(), edge(B, is_aside=True)
    assert stands(read, A, Consistency.UP_FAILURE) == [(A, True), (B, False)]  # Lost on the way.
    assert go_on_without(chosen, ROOM + 3) == 0
    acknowledge(read, chosen)
    assert tentative_sent(chosen) == ROOM
    acknowledge(read, chosen)
    assert tentative_sent(chosen) == 0, "the same word again is no credit"
