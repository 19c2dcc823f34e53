"""A replacement whose receivers wait for what its predecessor had put out."""

from dataclasses import replace

import pytest
from circle import LIMITS, ONE, SCHEMA, Circle, batch, node

from holdfast.core.haunit import events
from holdfast.core.haunit.node import Node
from holdfast.core.haunit.passes import Pass
from holdfast.core.haunit.plan import Assignment, InputSpec, NodePlan, OutputSpec
from holdfast.core.machine import Effect
from holdfast.core.model.ids import BEGINNING_US, Incarnation, NodeId, StreamId
from holdfast.core.model.tuples import TupleBatch
from holdfast.core.recovery.guarantee import Guarantee
from holdfast.core.recovery.restart_point import RestartPoint

TWO = Incarnation(2)
IN, LEFT, RIGHT = StreamId("a>n"), StreamId("n>l"), StreamId("n>r")
FULL = LIMITS.output_queue_tuples


def replacement(had_before: int, *, credit: int = 100, **otherwise: object) -> Node:
    """The left receiver takes so many tuples, and its predecessor had some; the right one none."""
    reads = (InputSpec(IN, 0, SCHEMA, NodeId("a")),)
    outputs = tuple(
        OutputSpec(("port", 0), SCHEMA, (stream,), (NodeId(stream[-1]),))
        for stream in (LEFT, RIGHT)
    )
    limits = {"limits": LIMITS, **otherwise}
    plan = NodePlan(NodeId("n"), "n", 0, reads, 1, (), outputs, **limits)  # type: ignore[arg-type]
    machine = Node(plan, Assignment(1, TWO, None, {}), 0)
    machine.step(events.PeerIncarnationLearned(NodeId("a"), ONE), 0)
    subscribe = events.SubscribeReceived(LEFT, ONE, TWO, 0, 0, credit, had_before=had_before)
    machine.step(subscribe, 0)
    machine.step(events.SubscribeReceived(RIGHT, ONE, TWO, 0, 0, 0), 0)
    return machine


def read(machine: Node, *first_ids: int) -> list[Effect]:
    """So many tuples come again, one by one."""
    said: list[Effect] = []
    for first_id in first_ids:
        tuples = batch(first_id, [10 * first_id])
        said += machine.step(events.BatchReceived(IN, ONE, TWO, tuples), 1)
        while machine.has_work:
            said += machine.step(events.Proceed(), 1)
    return said


def out(machine: Node) -> int:
    return machine.positions()["next_ids"][LEFT]


def by_arrival(*taken: tuple[int, int]) -> Node:
    """v takes p and q as they come; it has recorded how many of each, pass by pass."""
    reads = tuple(InputSpec(StreamId(f"{p}>v"), 0, SCHEMA, NodeId(p)) for p in "pq")
    plan = NodePlan(NodeId("v"), "v", 0, reads, 1, (), (), limits=LIMITS)
    plan = replace(plan, merges_by_arrival=True, keeps_passes=True)
    passes = tuple(Pass(n, 0, 0, BEGINNING_US, before) for n, before in enumerate(taken))
    point = RestartPoint(1, {p.stream: 0 for p in reads}, {p.stream: 0 for p in reads})
    log = {plan.pass_stream: len(passes)}
    return Node(plan, Assignment(1, TWO, point, log, passes=passes), 0)


def test_who_is_awaited_puts_out_what_its_predecessor_had() -> None:
    machine = replacement(FULL + 1)
    read(machine, *range(FULL + 1))
    assert out(machine) == FULL + 1
    read(machine, FULL + 1)
    assert out(machine) == FULL + 1, "nobody is known to wait for more"


@pytest.mark.parametrize("otherwise", [{}, {"credit": 1}], ids=["had no more", "has not taken all"])
def test_who_is_not_awaited_stops_before_a_full_stream(otherwise: dict[str, int]) -> None:
    machine = replacement(FULL + 1 if otherwise else FULL, **otherwise)
    read(machine, *range(FULL + 1))
    assert out(machine) == FULL


def test_who_is_behind_its_receivers_has_nothing_unsent() -> None:
    machine = replacement(0)
    machine.step(events.SubscribeReceived(LEFT, ONE, TWO, 3, 0, 100), 0)
    machine.step(events.SubscribeReceived(RIGHT, ONE, TWO, 0, 0, 0), 0)
    assert machine.statistics().unsent_tuples == 0
    read(machine, 0)
    assert machine.statistics().unsent_tuples == 1, "of the right one, who takes none"


def test_other_tuples_than_the_predecessors_are_not_awaited() -> None:
    machine = replacement(FULL + 1, guarantee=Guarantee.ROLLBACK)
    read(machine, *range(FULL + 1))
    assert out(machine) == FULL


def test_what_is_put_out_beyond_the_bound_is_spilled() -> None:
    machine = replacement(FULL + 2, limits=replace(LIMITS, output_queue_bytes=1))
    said = read(machine, *range(FULL + 2))
    spilled = [s for s in said if isinstance(s, events.SpillBatches) and s.stream == RIGHT]
    ids = [tuples.first_id for spill in spilled for tuples in spill.batches]
    assert ids == list(range(FULL + 1)), "the last is within the memory of one pass"


def test_what_was_spilled_before_its_pass_is_durable_leaves_when_it_is() -> None:
    """For one of a receiver's two replicas; the other one may take what it does not."""
    made = by_arrival()
    streams = StreamId("v>w"), StreamId("v>w+1")
    outputs = tuple(
        OutputSpec(("port", 0), SCHEMA, (stream,), (NodeId(stream[2:]),), replica=number)
        for number, stream in enumerate(streams)
    )
    limits = replace(LIMITS, output_queue_bytes=1)
    plan = replace(made.plan, outputs=outputs, limits=limits)
    machine = Node(plan, Assignment(1, ONE, None, {plan.pass_stream: 0}), 0)
    for peer in ("p", "q", "w", "w+1"):
        machine.step(events.PeerIncarnationLearned(NodeId(peer), ONE), 0)
    for stream in streams:
        machine.step(events.SubscribeReceived(stream, ONE, ONE, 0, 0, 100), 0)
    spilled: list[TupleBatch] = []
    for n in range(2):
        tuples = events.BatchReceived(StreamId("p>v"), ONE, ONE, batch(n, [n], n + 1))
        said = machine.step(tuples, 1)
        while machine.has_work:
            said += machine.step(events.Proceed(), 1)
        assert not [s for s in said if isinstance(s, events.SendBatch | events.ReadSpill)]
        spills = [s for s in said if isinstance(s, events.SpillBatches)]
        spilled += [b for s in spills if s.stream == streams[0] for b in s.batches]
    assert [tuples.first_id for tuples in spilled] == [0, 1]
    said = machine.step(events.SinkSynced(plan.pass_stream, 1), 2)
    asked = [s for s in said if isinstance(s, events.ReadSpill) and s.stream == streams[0]]
    assert [(s.from_id, s.to_id) for s in asked] == [(0, 1)]
    got = events.SpillRead(streams[0], asked[0].request_id, tuple(spilled[:1]))
    said = machine.step(got, 3)
    assert [s.batch.first_id for s in said if isinstance(s, events.SendBatch)] == [0]
    assert not [s for s in said if isinstance(s, events.ReadSpill)], "of the pass behind it"


def test_passes_that_are_cut_otherwise_than_before_stop_nobody_for_ever() -> None:
    """1. p and q feed u, which merges them by time, and v, which takes them as they come. 2. q puts
    out three tuples at once while u takes no more, and v takes them all. 3. All begin anew, and q
    is fed one by one. 4. v waits for q's last. q is full towards u. u waits for p, which is full
    towards v.
    """
    circle = Circle(
        {
            "p": node("p", "a", "uv", incarnation=TWO),
            "q": node("q", "b", "uv", incarnation=TWO),
            "u": node("u", "pq", "", incarnation=TWO),
            "v": by_arrival((0, LIMITS.input_queue_tuples + FULL + 1)),
        }
    )
    for source, name in ("ap", "bq"):
        circle.step(name, events.PeerIncarnationLearned(NodeId(source), ONE))
    for n in range(20):
        for stream, promised_us in (("a>p", 20 if n == 19 else BEGINNING_US), ("b>q", n + 1)):
            tuples = batch(n, [n], promised_us)
            circle.send(stream[-1], events.BatchReceived(StreamId(stream), ONE, TWO, tuples))
        circle.settle()
    for name in "uv":
        assert set(circle.nodes[name].positions()["processed"].values()) == {20}
