"""What a predecessor has promised, and a replacement hears of its receivers."""

import pytest
from circle import LIMITS, ONE, SCHEMA, Circle, batch, node

from holdfast.core.haunit import events
from holdfast.core.haunit.node import Node
from holdfast.core.haunit.plan import Assignment, InputSpec, NodePlan, OperatorSpec, OutputSpec
from holdfast.core.machine import Effect
from holdfast.core.model.ids import BEGINNING_US, Incarnation, NodeId, StreamId
from holdfast.core.operators.union import Union
from holdfast.core.recovery.guarantee import Guarantee
from holdfast.core.state.page_manager import PageManager

TWO = Incarnation(2)
IN, LEFT, RIGHT = StreamId("a>n"), StreamId("n>l"), StreamId("n>r")


def replacement(**otherwise: object) -> Node:
    """Its streams come of its port, and of an operator without state; it has everything to do."""

    def build(pages: PageManager) -> Union:
        del pages
        return Union("u", SCHEMA)

    outputs = (
        OutputSpec(("port", 0), SCHEMA, (LEFT,), (NodeId("l"),)),
        OutputSpec(("operator", 0), SCHEMA, (RIGHT,), (NodeId("r"),)),
    )
    reads = (InputSpec(IN, 0, SCHEMA, NodeId("a")),)
    operators = (OperatorSpec("u", build, (("port", 0),)),)
    limits = {"limits": LIMITS, **otherwise}
    plan = NodePlan(NodeId("n"), "n", 0, reads, 1, operators, outputs, **limits)  # type: ignore[arg-type]
    machine = Node(plan, Assignment(1, TWO, None, {}), 0)
    machine.step(events.PeerIncarnationLearned(NodeId("a"), ONE), 0)
    machine.step(events.SubscribeReceived(RIGHT, ONE, TWO, 0, 0, 100), 0)
    return machine


def has(machine: Node, from_id: int, boundary_us: int, had_before: int = 0) -> list[Effect]:
    """The left receiver says what it has."""
    said = (LEFT, ONE, TWO, from_id, 0, 100)
    got = events.SubscribeReceived(*said, boundary_us=boundary_us, had_before=had_before)
    return machine.step(got, 1)


def read(machine: Node, first_id: int, times: list[int]) -> list[Effect]:
    """Tuples come again, without a promise."""
    said = machine.step(events.BatchReceived(IN, ONE, TWO, batch(first_id, times)), 1)
    while machine.has_work:
        said += machine.step(events.Proceed(), 1)
    return said


def promised(said: list[Effect], stream: StreamId) -> list[tuple[int, int]]:
    found = [s for s in said if isinstance(s, events.SendBoundary) and s.stream == stream]
    return [(s.sent_before, s.boundary_us) for s in found if s.boundary_us != BEGINNING_US]


def test_a_promise_holds_for_all_behind_the_tuple_before_which_it_was_given() -> None:
    machine = replacement()
    assert promised(has(machine, 3, 60), RIGHT) == []
    assert promised(read(machine, 0, [10, 20, 30]), RIGHT) == [], "older ones may follow on it"
    said = read(machine, 3, [70])
    assert promised(said, LEFT) == [(4, 60)]
    assert promised(said, RIGHT) == [(4, 60)]


def test_who_subscribes_late_tells_what_holds_by_then() -> None:
    machine = replacement()
    read(machine, 0, [10, 70])
    assert promised(has(machine, 1, 60), RIGHT) == [(2, 60)]


def test_what_a_replacement_has_rests_on_all_that_its_point_had_processed() -> None:
    machine = replacement()
    has(machine, 0, 60, had_before=2)
    assert promised(read(machine, 0, [10, 20]), RIGHT) == []
    assert promised(read(machine, 2, [70]), RIGHT) == [(3, 60)]


@pytest.mark.parametrize(
    "otherwise",
    [
        {"guarantee": Guarantee.ROLLBACK},
        {"may_be_rebased": True},
        {"region": "r"},
        {"is_protected": False},
    ],
    ids=lambda plan: next(iter(plan)),
)
def test_what_may_come_otherwise_is_not_promised(otherwise: dict[str, object]) -> None:
    machine = replacement(**otherwise)
    has(machine, 1, 60)
    assert promised(read(machine, 0, [10, 70, 80]), RIGHT) == []


def test_who_is_ahead_since_a_failure_stops_nobody_for_ever() -> None:
    """1. p feeds r and s, which feed u. p promises 60, and r alone has heard of it. 2. All others
    begin anew. p reads the same again, and is promised nothing. 3. u takes no more of r before s
    has come as far. 4. r takes no more of p, which stops short of the next promise.
    """
    r = node("r", "p", "u")
    r.start(0)
    r.step(events.PeerIncarnationLearned(NodeId("p"), ONE), 0)
    times = [10 * n for n in range(20)]
    received = events.BatchReceived(StreamId("p>r"), ONE, ONE, batch(0, times[:6], 60))
    r.step(received, 0)
    circle = Circle(
        {
            "p": node("p", "a", "rs", incarnation=TWO),
            "r": r,
            "s": node("s", "p", "u", incarnation=TWO),
            "u": node("u", "rs", "", incarnation=TWO),
        }
    )
    circle.step("p", events.PeerIncarnationLearned(NodeId("a"), ONE))
    for n, time_us in enumerate(times):
        at_us = 190 if n == 19 else BEGINNING_US
        tuples = batch(n, [time_us], at_us)
        circle.send("p", events.BatchReceived(StreamId("a>p"), ONE, TWO, tuples))
        circle.settle()
    found = {name: machine.statistics() for name, machine in circle.nodes.items()}
    assert {now.boundary_us for now in found.values()} == {190}


def test_rows_of_ports_and_of_operators_without_state_are_in_one_order() -> None:
    machine = replacement()
    assert machine._unit.network.roots() == {("port", 0): ("port", 0), ("operator", 0): ("port", 0)}
