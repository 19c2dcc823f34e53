"""How a node with one input stream takes what comes on it as tentative. [DPC §3]"""

from __future__ import annotations

import pyarrow as pa

from holdfast.core.haunit.arrivals import Arrivals, InputStream
from holdfast.core.haunit.delayed_order import FollowingOrder
from holdfast.core.haunit.plan import DelayPlan, InputSpec, NodePlan
from holdfast.core.model.ids import BEGINNING_US, Incarnation, NodeId, Run, StreamId
from holdfast.core.model.tuples import TupleBatch, with_time
from holdfast.core.queues.input_queue import InputQueue
from holdfast.core.replication.input_delay import DuringFailure
from holdfast.core.replication.switching import Sender

SCHEMA = pa.schema([("v", pa.int64())])
A = StreamId("a>n")
ONE, OF_ANOTHER = Run(Incarnation(1), 1), Run(Incarnation(7), 1)


def batch(first_id: int, times: list[int], boundary_us: int) -> TupleBatch:
    columns = [pa.array(times, pa.int64()), pa.array(times, pa.int64())]
    rows = pa.RecordBatch.from_arrays(columns, schema=with_time(SCHEMA))
    return TupleBatch(first_id, rows, boundary_us)


def following() -> tuple[FollowingOrder, InputStream]:
    spec = InputSpec(A, 0, SCHEMA, NodeId("p"))
    delays = DelayPlan(50, DuringFailure.PROCESS, 0)
    plan = NodePlan(NodeId("n"), "n", 0, (spec,), 1, (), (), delays=delays)
    sender = Sender(A, spec.producer, 0)
    queue = InputQueue(A, next_id=0, max_tuples=100)
    stream = InputStream(spec, 0, queue, 0, (sender,), sender)
    return FollowingOrder(plan, Arrivals((stream,), 100), delays), stream


def ids_given(order: FollowingOrder) -> range:
    taken = order.without_missing(BEGINNING_US)
    first = int(taken.low[0])
    return range(first, first + taken.tuples)


def test_tentative_tuples_are_numbered_behind_all_that_operators_have_had() -> None:
    """Windows of so many tuples tell by its id whether a tuple is late."""
    order, stream = following()
    stream.queue.receive(batch(0, [1, 2, 3, 4, 5], 6))
    order.up_to(6)
    stream.tentative.receive(ONE, batch(2, [5, 6, 7], 8))
    assert ids_given(order) == range(5, 7), "a run that its replica began behind two stable tuples"
    stream.tentative.receive(ONE, batch(5, [8], 9))
    assert ids_given(order) == range(7, 8)
    stream.tentative.go_over()
    stream.tentative.receive(OF_ANOTHER, batch(3, [7, 8, 9], 10))
    assert ids_given(order) == range(8, 9), "a run of another replica"
    order.go_back()
    stream.tentative.undo(OF_ANOTHER)
    stream.tentative.receive(Run(Incarnation(7), 2), batch(5, [6], 7))
    assert ids_given(order) == range(5, 6), "what was numbered since the cut is void"
