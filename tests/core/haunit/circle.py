"""Nodes that hear of each other at once, each of which passes on what it reads."""

from collections import deque

import pyarrow as pa

from holdfast.core.haunit import events
from holdfast.core.haunit.node import Node
from holdfast.core.haunit.plan import Assignment, InputSpec, NodeLimits, NodePlan, OutputSpec
from holdfast.core.machine import Effect, Stimulus, TimerFired
from holdfast.core.model.ids import BEGINNING_US, Incarnation, NodeId, StreamId
from holdfast.core.model.tuples import TupleBatch, with_time
from holdfast.core.recovery.restart_point import RestartPoint

SCHEMA = pa.schema([("v", pa.int64())])
ONE = Incarnation(1)
LIMITS = NodeLimits(input_queue_tuples=3, output_queue_tuples=2, pass_tuples=4, ack_tuples=0)


def batch(first_id: int, times: list[int], boundary_us: int = BEGINNING_US) -> TupleBatch:
    columns = [pa.array(times, pa.int64()), pa.array(times, pa.int64())]
    rows = pa.RecordBatch.from_arrays(columns, schema=with_time(SCHEMA))
    return TupleBatch(first_id, rows, boundary_us)


def node(
    name: str,
    inputs: str,
    receivers: str,
    point: RestartPoint | None = None,
    incarnation: Incarnation = ONE,
) -> Node:
    """A node that passes on what it reads; nodes are named by a letter each."""
    reads = tuple(InputSpec(StreamId(f"{p}>{name}"), 0, SCHEMA, NodeId(p)) for p in inputs)
    outputs = tuple(
        OutputSpec(("port", 0), SCHEMA, (StreamId(f"{name}>{r}"),), (NodeId(r),)) for r in receivers
    )
    plan = NodePlan(NodeId(name), name, 0, reads, 1, (), outputs, limits=LIMITS)
    return Node(plan, Assignment(1, incarnation, point, {}), 0)


class Circle:
    """Nodes that hear of each other at once."""

    def __init__(self, nodes: dict[str, Node]) -> None:
        """All of them begin; who has begun before, and heard of others, knows it still."""
        self.nodes = nodes
        self.under_way: deque[tuple[str, Stimulus]] = deque()
        for name, machine in nodes.items():
            self.perform(name, machine.start(0))
            for peer, other in nodes.items():
                self.step(name, events.PeerIncarnationLearned(NodeId(peer), other.incarnation))

    def step(self, name: str, stimulus: Stimulus) -> None:
        self.perform(name, self.nodes[name].step(stimulus, 1))

    def perform(self, name: str, effects: list[Effect]) -> None:
        own = self.nodes[name].incarnation
        for said in effects:
            match said:
                case events.SendBatch(stream, other, tuples):
                    self.send(stream[-1], events.BatchReceived(stream, own, other, tuples))
                case events.SendBoundary(stream, other, before, at_us):
                    self.send(
                        stream[-1], events.BoundaryReceived(stream, own, other, before, at_us)
                    )
                case events.SendSubscribe(stream, other, first, needed, credit):
                    subscribe = events.SubscribeReceived(
                        stream,
                        own,
                        other,
                        first,
                        needed,
                        credit,
                        boundary_us=said.boundary_us,
                        had_before=said.had_before,
                    )
                    self.send(stream[0], subscribe)
                case events.SendAck(stream, other, had, needed, credit):
                    self.send(
                        stream[0], events.AckReceived(stream, own, other, had, needed, credit)
                    )

    def send(self, receiver: str, stimulus: Stimulus) -> None:
        if receiver in self.nodes:
            self.under_way.append((receiver, stimulus))

    def settle(self) -> None:
        """Until nobody has anything to say, also after its next acknowledgements."""
        for _ in range(20):
            for name in self.nodes:
                self.step(name, TimerFired("ack"))
            while self.under_way:
                self.step(*self.under_way.popleft())
                for name, machine in self.nodes.items():
                    while machine.has_work:
                        self.step(name, events.Proceed())
