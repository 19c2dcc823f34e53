"""Replicas correct in turn, so that one of them goes on. [DPC §3.3]"""

from __future__ import annotations

from holdfast.core.coordinator.events import TurnWanted
from holdfast.core.coordinator.turns import SILENT_MS, GrantTurn, Turns
from holdfast.core.haunit.plan import NodePlan
from holdfast.core.model.ids import Incarnation, NodeId
from holdfast.core.replication.turns import Turn

ONE, TWO = Incarnation(1), Incarnation(2)
A, B, C = NODES = tuple(map(NodeId, ("u[0]", "u[0]+1", "u[0]+2")))


def turns(count: int, serving: set[NodeId]) -> Turns:
    nodes = NODES[:count]
    plans = [NodePlan(node, "u", 0, (), 0, (), (), replicas=nodes) for node in nodes]
    return Turns(plans, lambda node: node in serving)


def test_one_of_two_waits_until_the_other_has_corrected() -> None:
    made = turns(2, {A, B})
    assert made.wanted(TurnWanted(A, ONE, 1), 0) == [GrantTurn(A, ONE, 1)]
    assert made.wanted(TurnWanted(B, ONE, 1), 0) == []
    assert made.wanted(TurnWanted(A, ONE, 1), 50) == [GrantTurn(A, ONE, 1)]
    assert made.left(A, ONE) == [GrantTurn(B, ONE, 1)]


def test_all_but_one_of_three_correct() -> None:
    made = turns(3, {A, B, C})
    granted = [made.wanted(TurnWanted(node, ONE, 1), 0) for node in NODES]
    assert granted == [[GrantTurn(A, ONE, 1)], [GrantTurn(B, ONE, 1)], []]


def test_who_is_alone_corrects_at_once() -> None:
    assert turns(2, {A}).wanted(TurnWanted(A, ONE, 1), 0) == [GrantTurn(A, ONE, 1)]


def test_who_is_lost_or_silent_or_of_another_incarnation_has_no_turn() -> None:
    serving = {A, B}
    made = turns(2, serving)
    made.wanted(TurnWanted(A, ONE, 1), 0)
    made.wanted(TurnWanted(B, ONE, 1), 0)
    assert made.gone(A) == [GrantTurn(B, ONE, 1)]
    made.wanted(TurnWanted(A, ONE, 1), SILENT_MS)
    assert made.check(SILENT_MS + 1) == [GrantTurn(A, ONE, 1)]
    made.wanted(TurnWanted(B, ONE, 1), SILENT_MS)
    assert made.left(A, TWO) == []
    assert made.has_turn(A)


def test_a_node_without_replicas_needs_no_turn_and_others_wait_for_theirs() -> None:
    assert Turn(is_needed=False).is_mine()
    turn = Turn(is_needed=True)
    assert not turn.granted(0)
    assert not turn.is_mine()
    assert turn.is_waiting
    assert turn.granted(turn.asking)
    assert turn.is_mine()
    assert turn.over()
    assert not turn.over()


def test_a_turn_of_before_is_none_for_the_next_correction() -> None:
    """1. A asks again. 2. It has corrected. 3. B has a turn. 4. A wants one, and hears of 1."""
    made, node = turns(2, {A, B}), Turn(is_needed=True)
    assert not node.is_mine()
    (first,) = made.wanted(TurnWanted(A, ONE, node.asking), 0)
    assert isinstance(first, GrantTurn)
    assert node.granted(first.asking)
    assert node.over()
    made.wanted(TurnWanted(B, ONE, 1), 1)
    assert made.left(A, ONE) == [GrantTurn(B, ONE, 1)]
    assert not node.is_mine()
    assert node.granted(first.asking)
    assert not node.is_mine()
    assert made.wanted(TurnWanted(A, ONE, node.asking), 2) == []
    assert made.left(B, ONE) == [GrantTurn(A, ONE, 2)]


def test_a_word_of_before_takes_no_turn_away() -> None:
    """It has been under way for long; nobody else may correct at the same time."""
    made = turns(2, {A, B})
    made.wanted(TurnWanted(A, ONE, 2), 0)
    made.wanted(TurnWanted(B, ONE, 1), 0)
    assert made.wanted(TurnWanted(A, ONE, 1), 1) == []
    assert (made.has_turn(A), made.has_turn(B)) == (True, False)


def test_who_asks_for_another_turn_has_left_the_one_before() -> None:
    """Though that word was lost."""
    made = turns(2, {A, B})
    made.wanted(TurnWanted(A, ONE, 1), 0)
    made.wanted(TurnWanted(B, ONE, 1), 0)
    assert made.wanted(TurnWanted(A, ONE, 2), 1) == [GrantTurn(B, ONE, 1)]
