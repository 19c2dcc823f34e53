"""What a node says while it replays in silence, and who waits for that."""

from circle import ONE, Circle, batch, node

from holdfast.core.haunit import events
from holdfast.core.machine import Effect
from holdfast.core.model.ids import NodeId, StreamId
from holdfast.core.recovery.restart_point import RestartPoint


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
