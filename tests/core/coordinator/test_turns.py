"""Replicas correct in turn, so that one of them goes on. [DPC §3.3]"""

from __future__ import annotations

from holdfast.core.coordinator.turns import SILENT_MS, GrantTurn, Turns
from holdfast.core.haunit.plan import NodePlan
from holdfast.core.model.ids import Incarnation, NodeId
from holdfast.core.replication.turns import Turn

ONE = Incarnation(1)
A, B, C = NODES = tuple(map(NodeId, ("u[0]", "u[0]+1", "u[0]+2")))


def turns(count: int, serving: set[NodeId]) -> Turns:
    nodes = NODES[:count]
    plans = [NodePlan(node, "u", 0, (), 0, (), (), replicas=nodes) for node in nodes]
    return Turns(plans, lambda node: node in serving)


def test_one_of_two_waits_until_the_other_has_corrected() -> None:
    made = turns(2, {A, B})
    assert made.wanted(A, ONE, 0) == [GrantTurn(A, ONE)]
    assert made.wanted(B, ONE, 0) == []
    assert made.wanted(A, ONE, 50) == [GrantTurn(A, ONE)]
    assert made.left(A, ONE) == [GrantTurn(B, ONE)]


def test_all_but_one_of_three_correct() -> None:
    made = turns(3, {A, B, C})
    granted = [made.wanted(node, ONE, 0) for node in NODES]
    assert granted == [[GrantTurn(A, ONE)], [GrantTurn(B, ONE)], []]


def test_who_is_alone_corrects_at_once() -> None:
    assert turns(2, {A}).wanted(A, ONE, 0) == [GrantTurn(A, ONE)]


def test_who_is_lost_or_silent_or_of_another_incarnation_has_no_turn() -> None:
    serving = {A, B}
    made = turns(2, serving)
    made.wanted(A, ONE, 0)
    made.wanted(B, ONE, 0)
    assert made.gone(A) == [GrantTurn(B, ONE)]
    made.wanted(A, ONE, SILENT_MS)
    assert made.check(SILENT_MS + 1) == [GrantTurn(A, ONE)]
    made.wanted(B, ONE, SILENT_MS)
    assert made.left(A, Incarnation(2)) == []
    assert made.has_turn(A)


def test_a_node_without_replicas_needs_no_turn_and_others_wait_for_theirs() -> None:
    assert Turn(is_needed=False).is_mine()
    turn = Turn(is_needed=True)
    assert not turn.granted()
    assert not turn.is_mine()
    assert turn.is_waiting
    assert turn.granted()
    assert turn.is_mine()
    assert turn.over()
    assert not turn.over()
