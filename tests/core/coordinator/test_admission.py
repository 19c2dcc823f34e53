"""Who may write a checkpoint, one after another. [SGuard §5]"""

from holdfast.core.coordinator.admission import Admission, AdmitWrite
from holdfast.core.machine import Effect
from holdfast.core.model.ids import Incarnation, NodeId

A, B, C = NodeId("a"), NodeId("b"), NodeId("c")
ONE = Incarnation(1)


def admitted(effects: list[Effect]) -> list[NodeId]:
    return [effect.node for effect in effects if isinstance(effect, AdmitWrite)]


def test_places_are_given_in_order_of_asking() -> None:
    admission = Admission(1, (A, B, C))
    assert admitted(admission.wanted(A, ONE, 0)) == [A]
    assert admitted(admission.wanted(B, ONE, 1)) == []
    assert admitted(admission.wanted(C, ONE, 2)) == []
    assert admitted(admission.ended(A, ONE, 3)) == [B]
    assert admitted(admission.ended(B, ONE, 4)) == [C]
    admission.check_invariants()


def test_a_lost_answer_is_given_again() -> None:
    admission = Admission(2, (A, B, C))
    assert admitted(admission.wanted(A, ONE, 0)) == [A]
    assert admitted(admission.wanted(A, ONE, 1)) == [A]
    assert admitted(admission.wanted(B, ONE, 2)) == [B]
    assert admitted(admission.wanted(C, ONE, 3)) == []


def test_the_place_of_a_lost_node_is_free() -> None:
    admission = Admission(1, (A, B, C))
    admission.wanted(A, ONE, 0)
    admission.wanted(B, ONE, 1)
    assert admitted(admission.gone(A, 2)) == [B]
    assert admitted(admission.ended(A, ONE, 3)) == []  # A zombie has no place to give back.


def test_who_had_nothing_to_write_makes_room_too() -> None:
    admission = Admission(1, (A, B, C))
    admission.wanted(A, ONE, 0)
    admission.wanted(B, ONE, 1)
    admission.wanted(C, ONE, 1)
    assert admitted(admission.ended(B, ONE, 2)) == []  # It was still waiting.
    assert admitted(admission.ended(A, ONE, 3)) == [C]
