"""The numbering of a stream: every legal move, every other one refused."""

import itertools
from pathlib import Path

import pytest

from holdfast.core.errors import InvariantViolation
from holdfast.core.haunit.events import SubscribeReceived
from holdfast.core.haunit.outputs.rebasing import TRANSITIONS, Move, Numbering, Rebasing
from holdfast.core.model.ids import NO_ID, Incarnation, StreamId
from holdfast.core.recovery.guarantee import StreamRebased

PAGE = Path(__file__).parents[4] / "docs" / "protocols" / "guarantees.md"
STREAM = StreamId("a[0]>b[0]")
ONE, TWO = Incarnation(1), Incarnation(2)


def subscription(
    from_id: int, sender: Incarnation = ONE, *, is_secondary: bool = False
) -> SubscribeReceived:
    return SubscribeReceived(STREAM, sender, ONE, from_id, 0, 99, is_secondary, boundary_us=40)


def rebased(at: int = 10, sender: Incarnation = ONE) -> Rebasing:
    numbering = Rebasing(STREAM)
    numbering.move(Move.REBASE)
    numbering.place(subscription(at, sender), 30, at)
    return numbering


def rendered() -> str:
    """All moves from all states as the table of the page."""
    rows = ["| state | " + " | ".join(move.value for move in Move) + " |"]
    rows.append("| --- |" + " --- |" * len(Move))
    for state in Numbering:
        targets = [TRANSITIONS.get((state, move)) for move in Move]
        cells = ["" if target is None else target.value for target in targets]
        rows.append(f"| {state.value} | " + " | ".join(cells) + " |")
    return "\n".join(rows)


def test_the_page_shows_the_table_of_moves() -> None:
    assert rendered() in PAGE.read_text(), "put this into the page:\n" + rendered()


@pytest.mark.parametrize(("state", "move"), list(itertools.product(Numbering, Move)))
def test_a_move_that_is_not_in_the_table_is_an_error(state: Numbering, move: Move) -> None:
    numbering = Rebasing(STREAM, state)
    if (state, move) in TRANSITIONS:
        numbering.move(move)
        assert numbering.state is TRANSITIONS[state, move]
    else:
        with pytest.raises(InvariantViolation, match=state.value):
            numbering.move(move)
        assert numbering.state is state


def test_a_stream_is_settled_once_its_receiver_needs_nothing_from_before() -> None:
    numbering = rebased(10)
    numbering.received(received_before=12, needed_from=10)
    assert not numbering.is_settled
    numbering.received(received_before=12, needed_from=11)
    assert numbering.state is Numbering.SETTLED
    numbering.received(received_before=11, needed_from=3)  # An old acknowledgement.
    assert numbering.is_settled
    assert numbering.received_before == 12


def test_the_receiver_has_everything_up_to_what_either_end_knows() -> None:
    assert rebased().has_before_us == 40
    numbering = Rebasing(STREAM)
    numbering.move(Move.REBASE)
    numbering.place(subscription(10), 70, 10)
    assert numbering.has_before_us == 70


@pytest.mark.parametrize(
    ("got", "first"),
    [
        (subscription(NO_ID), 20),
        (subscription(15), 15),
        (subscription(8), 8),
        (subscription(3, is_secondary=True), 3),
    ],
)
def test_a_subscriber_is_served_from_where_it_asks(got: SubscribeReceived, first: int) -> None:
    assert rebased().first_to_send(got, 5, 20, is_gap_allowed=False) == first


def test_what_came_before_a_stream_was_rebased_cannot_be_had_again() -> None:
    with pytest.raises(StreamRebased, match="rebased at 10; 3 is needed"):
        rebased().first_to_send(subscription(3), 5, 20, is_gap_allowed=False)


def test_after_amnesia_another_receiver_is_sent_nothing_that_the_former_one_may_have_had() -> None:
    numbering = rebased()
    numbering.sent_before = 17
    other = subscription(3, TWO)
    assert numbering.first_to_send(other, 5, 20, is_gap_allowed=True) == 17
    assert numbering.lost_from(other, 17) == 3
    assert numbering.lost_from(other, 17) is None, "a gap is reported once"


def test_states_and_fields_that_do_not_fit_are_an_error() -> None:
    rebased().check_invariants()
    with pytest.raises(InvariantViolation, match="goes on as before from 3"):
        Rebasing(STREAM, rebased_at=3).check_invariants()
    with pytest.raises(InvariantViolation, match="for nobody"):
        Rebasing(STREAM, Numbering.SETTLED, rebased_at=3).check_invariants()
