"""A gate: what is held, what is let out, and in which order."""

import pytest

from holdfast.core.errors import InvariantViolation, LocalProtocolError
from holdfast.core.haunit.outputs.gate import Gate
from holdfast.core.model.ids import StreamId

OUT, SINK = StreamId("n>c"), StreamId("results")


def held(*numbers: int) -> Gate:
    """Hold n ends at id 10 n of both streams, and has promised 100 n of one."""
    gate = Gate({OUT: 0, SINK: 0})
    for number in numbers:
        gate.begin(number)
        gate.promise([OUT], 100 * number)
        gate.end({OUT: 10 * number, SINK: 10 * number}, {})
    return gate


def test_a_gate_opens_up_to_a_hold_and_no_further() -> None:
    gate = held(1, 2, 3)
    opened = gate.open_before(3)
    assert opened is not None
    assert (opened.number, opened.next_ids[SINK]) == (2, 20)
    assert gate.open_ids == {OUT: 20, SINK: 20}
    assert gate.is_holding
    assert gate.open_before(3) is None


def test_what_was_promised_in_earlier_holds_is_promised_with_the_newest_that_opens() -> None:
    gate = Gate({OUT: 0, SINK: 0})
    gate.begin(1)
    gate.promise([OUT], 7)
    gate.end({OUT: 1}, {})
    gate.begin(2)
    gate.promise([SINK], 9)
    gate.end({OUT: 2}, {})
    opened = gate.open_before(3)
    assert opened is not None
    assert opened.promised == {OUT: 7, SINK: 9}


def test_a_hold_that_has_not_ended_stays_shut() -> None:
    gate = held(1)
    gate.begin(2)
    opened = gate.open_before(9)
    assert opened is not None
    assert opened.number == 1
    assert gate.is_holding
    gate.end({OUT: 20, SINK: 20}, {})
    assert gate.open_before(9) is not None
    assert not gate.is_holding


def test_holds_do_not_overlap_and_their_numbers_ascend() -> None:
    gate = held(5)
    with pytest.raises(LocalProtocolError, match="hold 5 begins within 5"):
        gate.begin(5)
    gate.begin(6)
    with pytest.raises(LocalProtocolError, match="hold 7 begins within 6"):
        gate.begin(7)


def test_a_hold_that_ends_before_the_one_before_it_is_an_error() -> None:
    gate = held(1, 2)
    gate.check_invariants()
    gate.begin(3)
    gate.end({OUT: 19, SINK: 30}, {})
    with pytest.raises(InvariantViolation, match="hold 3"):
        gate.check_invariants()
