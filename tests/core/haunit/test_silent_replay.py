"""What a node says while it replays in silence, and who waits for that."""

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


def node(name: str, inputs: str, receivers: str, point: RestartPoint | None = None) -> Node:
    """A node that passes on what it reads; nodes are named by a letter each."""
    reads = tuple(InputSpec(StreamId(f"{p}>{name}"), 0, SCHEMA, NodeId(p)) for p in inputs)
    outputs = tuple(
        OutputSpec(("port", 0), SCHEMA, (StreamId(f"{name}>{r}"),), (NodeId(r),)) for r in receivers
    )
    plan = NodePlan(NodeId(name), name, 0, reads, 1, (), outputs, limits=LIMITS)
    return Node(plan, Assignment(1, ONE, point, {}), 0)


class Circle:
    """Nodes that hear of each other at once."""

    def __init__(self, nodes: dict[str, Node]) -> None:
        self.nodes = nodes
        self.under_way: deque[tuple[str, Stimulus]] = deque()
        for name, machine in nodes.items():
            self.perform(machine.start(0))
            for peer in nodes:
                self.step(name, events.PeerIncarnationLearned(NodeId(peer), ONE))

    def step(self, name: str, stimulus: Stimulus) -> None:
        self.perform(self.nodes[name].step(stimulus, 1))

    def perform(self, effects: list[Effect]) -> None:
        for said in effects:
            match said:
                case events.SendBatch(stream, _, tuples):
                    self.send(stream[-1], events.BatchReceived(stream, ONE, ONE, tuples))
                case events.SendBoundary(stream, _, before, at_us):
                    self.send(stream[-1], events.BoundaryReceived(stream, ONE, ONE, before, at_us))
                case events.SendSubscribe(stream, _, first, needed, credit):
                    subscribe = events.SubscribeReceived(stream, ONE, ONE, first, needed, credit)
                    self.send(stream[0], subscribe)
                case events.SendAck(stream, _, had, needed, credit):
                    self.send(stream[0], events.AckReceived(stream, ONE, ONE, had, needed, credit))

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


def test_a_node_promises_in_silence_what_it_has_acted_on_and_puts_nothing_out() -> None:
    a, b, out = StreamId("a>n"), StreamId("b>n"), StreamId("n>c")
    point = RestartPoint(1, {a: 0, b: 0}, {a: 3, b: 0}, 20, {out: 3})
    machine = node("n", "ab", "c", point)
    for producer in "ab":
        machine.step(events.PeerIncarnationLearned(NodeId(producer), ONE), 0)
    machine.step(events.SubscribeReceived(out, ONE, ONE, 3, 3, 10), 0)
    said: list[Effect] = []
    for stimulus in (
        events.BatchReceived(a, ONE, ONE, batch(0, [1, 5, 9], 12)),
        events.BoundaryReceived(b, ONE, ONE, 0, 7),
        events.BoundaryReceived(b, ONE, ONE, 0, 40),
    ):
        machine.step(stimulus, 1)
        while machine.has_work:
            said += machine.step(events.Proceed(), 1)
    assert machine.statistics().is_silent, "the cut lies at 20"
    assert not [effect for effect in said if isinstance(effect, events.SendBatch)]
    promised = [s for s in said if isinstance(s, events.SendBoundary)]
    assert [(s.sent_before, s.boundary_us) for s in promised] == [(3, 7), (3, 12)]


def test_who_replays_in_silence_is_not_waited_for_by_who_keeps_it_from_its_cut() -> None:
    """1. All begin anew: p feeds j and u, and j feeds u. 2. What j put out before its cut is had.
    3. u takes no more of p than an input holds before j has promised something. 4. p stops there,
    and j does not come to its cut.
    """
    to_j, to_u, from_j = StreamId("p>j"), StreamId("p>u"), StreamId("j>u")
    of_j = RestartPoint(1, {to_j: 0}, {to_j: 18}, 180, {from_j: 18})
    of_u = RestartPoint(1, {to_u: 0, from_j: 18}, {to_u: 18, from_j: 18}, 180, {})
    nodes = {
        "p": node("p", "a", "ju"),
        "j": node("j", "p", "u", of_j),
        "u": node("u", "pj", "", of_u),
    }
    circle = Circle(nodes)
    circle.step("p", events.PeerIncarnationLearned(NodeId("a"), ONE))
    for n in range(20):
        tuples = batch(n, [10 * n], 10 * n)
        circle.send("p", events.BatchReceived(StreamId("a>p"), ONE, ONE, tuples))
        circle.settle()
    found = {name: machine.statistics() for name, machine in nodes.items()}
    assert [name for name, now in found.items() if now.is_silent] == []
    assert {now.boundary_us for now in found.values()} == {190}
