"""When nodes cut: each rule by itself, stimulus by stimulus."""

from __future__ import annotations

import pytest

from holdfast.core.checkpoint.aligned import Aligned
from holdfast.core.checkpoint.bcs import BCS
from holdfast.core.checkpoint.cut_rule import NO_ROUND
from holdfast.core.checkpoint.hmnr import HMNR
from holdfast.core.checkpoint.lazy_fi import LazyFI
from holdfast.core.checkpoint.scope import Scope, components, scope_of
from holdfast.core.checkpoint.unaligned import Unaligned
from holdfast.core.checkpoint.uncoordinated import Uncoordinated
from holdfast.core.errors import RemoteProtocolError
from holdfast.core.model.ids import NO_ID, CheckpointId, Incarnation, NodeId
from holdfast.core.model.notes import CheckpointClocks, CheckpointIndex, CheckpointMarker

PAIR = (Scope(2, 0, (1,), (1,)), Scope(2, 1, (0,), (0,)))
"""Two nodes that send to each other."""


def _cut(rule, sequence=1, stands_at=(0,)):
    return rule.cut(CheckpointId(sequence, Incarnation(1)), stands_at)


# -- aligned ------------------------------------------------------------------------------------


def test_an_aligned_cut_waits_until_every_input_stands_at_the_marker():
    rule = Aligned((True, True))
    rule.noted(0, 10, CheckpointMarker(1))
    assert rule.limits() == (10, NO_ID)
    assert not rule.is_due((10, 5))
    rule.noted(1, 8, CheckpointMarker(1))
    assert rule.limits() == (10, 8)
    assert not rule.is_due((10, 7))
    assert rule.is_due((10, 8))
    assert _cut(rule, stands_at=(10, 8)) == CheckpointMarker(1)
    assert rule.limits() == (NO_ID, NO_ID)
    assert not rule.is_due((10, 8))


def test_an_input_without_markers_is_not_waited_for():
    rule = Aligned((True, False))
    rule.noted(0, 3, CheckpointMarker(1))
    assert rule.is_due((3, 100))


def test_nothing_behind_the_marker_of_a_feedback_edge_is_processed_before_the_cut():
    rule = Aligned((True, False))
    rule.noted(1, 4, CheckpointMarker(1))
    assert rule.limits() == (NO_ID, 4)
    rule.noted(0, 2, CheckpointMarker(1))
    assert rule.is_due((2, 1))
    _cut(rule, stands_at=(2, 1))
    assert rule.limits() == (NO_ID, NO_ID)


def test_whoever_reads_nothing_of_the_region_cuts_at_the_coordinators_word():
    rule = Aligned((False,))
    assert not rule.is_due((7,))
    rule.asked(3)
    assert rule.is_due((7,))
    assert _cut(rule) == CheckpointMarker(3)
    assert rule.round() == 3


@pytest.mark.parametrize("comes", ["before", "after"])
def test_the_marker_of_a_round_that_is_over_does_nothing(comes):
    rule = Aligned((True, True))
    if comes == "before":
        rule.noted(0, 10, CheckpointMarker(1))
    rule.over(1)
    if comes == "after":
        rule.noted(0, 10, CheckpointMarker(1))
    rule.noted(1, 8, CheckpointMarker(1))
    assert rule.limits() == (NO_ID, NO_ID)
    assert not rule.is_due((10, 8))


def test_a_later_round_says_that_the_earlier_one_is_over():
    rule = Aligned((True, True))
    rule.noted(0, 10, CheckpointMarker(1))
    rule.noted(1, 8, CheckpointMarker(2))
    assert rule.limits() == (NO_ID, 8)
    rule.noted(0, 12, CheckpointMarker(2))
    assert rule.is_due((12, 8))


def test_a_restored_rule_takes_no_marker_of_its_round_again():
    rule = Aligned((True,))
    rule.restore((4,))
    rule.over(6)
    for round_ in (4, 5, 6):
        rule.noted(0, 10, CheckpointMarker(round_))
    assert not rule.is_due((10,))
    rule.noted(0, 11, CheckpointMarker(7))
    assert rule.is_due((11,))


# -- unaligned ----------------------------------------------------------------------------------


def test_an_unaligned_cut_is_due_as_soon_as_a_marker_is_there():
    rule = Unaligned(2)
    rule.noted(1, 50, CheckpointMarker(1))
    assert rule.is_due((0, 0))
    assert _cut(rule) == CheckpointMarker(1)
    rule.noted(0, 70, CheckpointMarker(1))
    rule.asked(1)
    assert not rule.is_due((0, 0))
    assert rule.limits() == (NO_ID, NO_ID)


def test_an_unaligned_round_that_is_over_is_not_cut_for():
    rule = Unaligned(1)
    rule.over(2)
    rule.asked(2)
    rule.noted(0, 5, CheckpointMarker(1))
    assert not rule.is_due((0,))


# -- uncoordinated ------------------------------------------------------------------------------


def test_an_uncoordinated_node_says_nothing_and_hears_nothing():
    rule = Uncoordinated(2)
    assert not rule.is_due((0, 0))
    rule.asked()
    assert rule.is_due((0, 0))
    assert _cut(rule) is None
    assert rule.before_output(0) is None
    assert (rule.limits(), rule.round(), rule.state()) == ((NO_ID, NO_ID), NO_ROUND, ())
    with pytest.raises(RemoteProtocolError):
        rule.noted(0, 1, CheckpointMarker(1))


# -- bcs ----------------------------------------------------------------------------------------


def test_bcs_cuts_before_it_processes_what_was_sent_with_a_later_index():
    a, b = BCS(PAIR[0]), BCS(PAIR[1])
    assert a.before_output(0) == CheckpointIndex(1)
    assert a.before_output(0) is None
    a.asked()
    assert a.is_due((0,))
    _cut(a)
    index = a.before_output(0)
    assert index == CheckpointIndex(2)
    b.noted(0, 5, index)
    assert b.limits() == (5,)
    assert not b.is_due((4,))
    assert b.is_due((5,))
    _cut(b, stands_at=(5,))
    assert (b.forced, b.state()) == (1, (2,))
    b.begin_pass((5,))
    assert b.limits() == (NO_ID,)


# -- hmnr ---------------------------------------------------------------------------------------


def _send(sender, receiver, before_id):
    """One tuple, and the clocks before it if they have changed."""
    note = sender.before_output(0)
    if note is not None:
        receiver.noted(0, before_id, note)


def _receive(rule, stands_at):
    """Process up to a place; whether a cut was forced before."""
    is_due = rule.is_due((stands_at,))
    if is_due:
        _cut(rule, sequence=rule.checkpoints[0] + 100)
    rule.begin_pass((stands_at,))
    return is_due


@pytest.mark.parametrize("kind", [HMNR, LazyFI])
def test_a_cycle_around_the_others_checkpoint_is_broken(kind):
    """C2: a sends to b, b cuts and sends back: b's checkpoint would be behind and before a's."""
    a, b = kind(PAIR[0]), kind(PAIR[1])
    _send(a, b, 0)
    assert not _receive(b, 0)
    _cut(b, sequence=1)
    _send(b, a, 0)
    assert _receive(a, 0)
    assert a.forced == 1


def test_clocks_that_are_restored_still_break_it():
    a, b = HMNR(PAIR[0]), HMNR(PAIR[1])
    for sequence in (1, 2, 3):
        _cut(a, sequence=sequence)
    state = a.state()
    again, fresh = HMNR(PAIR[0]), HMNR(PAIR[0])
    again.restore(state)
    _send(a, b, 0)
    b.begin_pass((0,))  # The same state of a is known to b before it fails.
    for rule in (again, fresh):
        other = HMNR(PAIR[1])
        other.restore(b.state())
        _send(rule, other, 1)
        _receive(other, 1)
        _cut(other, sequence=9)
        _send(other, rule, 0)
        assert rule.is_due((0,)) == (rule is again)


def test_clocks_are_said_when_they_have_changed_and_only_then():
    a = HMNR(PAIR[0])
    assert a.before_output(0) == CheckpointClocks(1, (1, 0), 0b10, 0b10)
    assert a.before_output(0) is None
    _cut(a, sequence=7)
    assert a.before_output(0) == CheckpointClocks(2, (8, 0), 0b10, 0b10)


def test_outside_of_the_scope_nothing_is_said_or_heard():
    rule = HMNR(Scope(1, 0, (-1,), (-1,)))
    assert rule.before_output(0) is None
    rule.noted(0, 4, CheckpointClocks(99, (9,), 1, 1))
    assert rule.limits() == (NO_ID,)
    assert not rule.is_due((4,))


def test_clocks_of_another_number_of_members_are_refused():
    with pytest.raises(RemoteProtocolError, match="3 members where there are 2"):
        HMNR(PAIR[0]).noted(0, 0, CheckpointClocks(1, (1, 1, 1), 0, 0))


def test_the_clock_of_lazy_fi_rises_only_when_something_has_made_it():
    a, b = LazyFI(PAIR[0]), LazyFI(PAIR[1])
    for sequence in (1, 2, 3):
        _cut(b, sequence=sequence)
    assert b.clock == 1
    _send(a, b, 0)
    _receive(b, 0)  # An equal clock.
    _cut(b, sequence=4)
    assert b.clock == 2


# -- scope --------------------------------------------------------------------------------------


def test_components_are_the_cycles_of_the_dataflow():
    a, b, c, d = (NodeId(name) for name in "abcd")
    found = components(((a, b), (b, c), (c, b), (c, d)))
    assert found == {a: (a,), b: (b, c), c: (b, c), d: (d,)}
    assert scope_of(b, found[b], (a, c), (c,)) == Scope(2, 0, (-1, 1), (1,))
