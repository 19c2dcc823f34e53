"""The registry: all restart points since the line, and who is void. [CheckMate §III]"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.coordinator.checkpoint_registry import CheckpointRegistry
from holdfast.core.coordinator.journal_entries import (
    DataflowDecided,
    InstancesDecided,
    JournalEntry,
    LeaseRenewed,
    LeftAtCut,
    LineMoved,
    NewLife,
    PointNoted,
    RecoveryDecision,
)
from holdfast.core.errors import InvariantViolation
from holdfast.core.model.ids import NOBODY, Incarnation, NodeId, PointId
from holdfast.core.recovery.restart_point import RestartPoint

A, B = NodeId("a[0]"), NodeId("b[0]")


def begun(node: NodeId, incarnation: int, back_to: PointId | None = None) -> RecoveryDecision:
    return RecoveryDecision((NewLife(node, Incarnation(incarnation), back_to),))


def noted(node: NodeId, incarnation: int, sequence: int, *, keeps: bool = True) -> PointNoted:
    return PointNoted(node, Incarnation(incarnation), RestartPoint(sequence), keeps)


def named(incarnation: int, sequence: int) -> PointId:
    return PointId(Incarnation(incarnation), sequence)


def ids(registry: CheckpointRegistry, node: NodeId) -> list[tuple[int, int]]:
    return [(p.incarnation, p.point.sequence) for p in registry.points(node)]


def test_without_a_line_each_point_takes_the_place_of_the_one_before() -> None:
    entries = [begun(A, 1), noted(A, 1, 1, keeps=False), noted(A, 1, 2, keeps=False)]
    registry = CheckpointRegistry.of(entries)
    assert ids(registry, A) == [(1, 2)]
    assert registry.newest(A) == RestartPoint(2)
    assert registry.newest(B) is None


def test_all_points_since_the_line_stay_with_who_noted_them() -> None:
    entries = [begun(A, 1), noted(A, 1, 1), noted(A, 1, 2), begun(A, 2), noted(A, 2, 3)]
    registry = CheckpointRegistry.of(entries)
    assert ids(registry, A) == [(1, 1), (1, 2), (2, 3)]
    registry.take(LineMoved({A: named(1, 2)}))
    assert ids(registry, A) == [(1, 2), (2, 3)]


def test_one_decision_takes_several_nodes_back() -> None:
    registry = CheckpointRegistry.of(
        [begun(n, 1) for n in (A, B)] + [noted(n, 1, s) for s in (1, 2, 3) for n in (A, B)]
    )
    lives = (
        NewLife(A, Incarnation(2), named(1, 1)),
        NewLife(B, Incarnation(2), named(1, 2)),
    )
    registry.take(RecoveryDecision(lives))
    assert ids(registry, A) == [(1, 1)]
    assert ids(registry, B) == [(1, 1), (1, 2)]
    assert registry.incarnations() == {A: 2, B: 2}


def test_a_void_point_does_not_count_even_if_its_entry_comes_later() -> None:
    registry = CheckpointRegistry.of([begun(A, 1), noted(A, 1, 5), noted(A, 1, 6)])
    registry.take(begun(A, 2, named(1, 5)))
    registry.take(noted(A, 1, 7))
    assert ids(registry, A) == [(1, 5)]
    registry.take(noted(A, 2, 6))
    assert ids(registry, A) == [(1, 5), (2, 6)]


def test_who_goes_on_from_the_newest_point_makes_nothing_void() -> None:
    registry = CheckpointRegistry.of([begun(A, 1), noted(A, 1, 5), begun(A, 2), noted(A, 1, 6)])
    assert ids(registry, A) == [(1, 5), (1, 6)]


def test_a_point_that_is_noted_twice_is_one() -> None:
    registry = CheckpointRegistry.of([begun(A, 1), noted(A, 1, 2), noted(A, 1, 2)])
    assert ids(registry, A) == [(1, 2)]
    registry.check_invariants()


def test_points_of_version_1_name_nobody_and_count() -> None:
    registry = CheckpointRegistry.of(
        [PointNoted(A, NOBODY, RestartPoint(7)), begun(A, 3), noted(A, 3, 8)]
    )
    assert ids(registry, A) == [(0, 7), (3, 8)]
    registry.check_invariants()


@pytest.mark.parametrize(
    "entries",
    [
        [begun(A, 1), noted(A, 1, 2), noted(A, 1, 1)],
        [begun(A, 1), noted(A, 2, 1)],
    ],
)
def test_points_out_of_order_or_of_nobody_break_an_invariant(entries: list[JournalEntry]) -> None:
    registry = CheckpointRegistry.of(entries)
    with pytest.raises(InvariantViolation, match=r"a\[0\]"):
        registry.check_invariants()


def test_a_cut_counts_until_a_node_lives_again() -> None:
    left = [begun(A, 1), noted(A, 1, 2, keeps=False), DataflowDecided("text"), LeftAtCut()]
    registry = CheckpointRegistry.of([*left, LeaseRenewed()])
    assert registry.is_at_cut
    again = CheckpointRegistry.of(registry.entries())
    assert (again.is_at_cut, again.dataflow, ids(again, A)) == (True, "text", [(1, 2)])
    assert not CheckpointRegistry.of([*left, begun(A, 2)]).is_at_cut
    assert not CheckpointRegistry.of([*left, noted(A, 1, 3)]).is_at_cut


@given(st.data())
def test_the_shortest_entries_come_to_the_same(data: st.DataObject) -> None:
    """Whatever a coordinator has written, in the order in which it writes."""
    entries: list[JournalEntry] = []
    newest, sequence = {A: 0, B: 0}, 0
    for _ in range(data.draw(st.integers(0, 20))):
        node = data.draw(st.sampled_from([A, B]))
        registry = CheckpointRegistry.of(entries)
        points = registry.points(node)
        choice = data.draw(st.integers(0, 3))
        sequence += 1
        if choice == 0 or not newest[node]:
            newest[node] += 1
            entries.append(begun(node, newest[node]))
        elif choice == 1 and points:
            newest[node] += 1
            point = data.draw(st.sampled_from(points))
            entries.append(begun(node, newest[node], point.point_id))
        elif choice == 2 and points:
            entries.append(LineMoved({node: data.draw(st.sampled_from(points)).point_id}))
        else:
            entries.append(noted(node, newest[node], sequence, keeps=data.draw(st.booleans())))
    entries.append(InstancesDecided({"a": sequence}))
    registry = CheckpointRegistry.of(entries)
    registry.check_invariants()
    short = CheckpointRegistry.of(registry.entries())
    for node in (A, B):
        assert short.points(node) == registry.points(node)
        assert short.incarnation(node) == registry.incarnation(node) == newest[node]
    assert short.instances == registry.instances == {"a": sequence}
    assert len(registry.entries()) <= len(entries)
    written = registry.entries()[: data.draw(st.integers(0, len(registry.entries())))]
    assert _same(CheckpointRegistry.of([*entries, *written]), registry)


def _same(first: CheckpointRegistry, second: CheckpointRegistry) -> bool:
    return all(
        first.points(node) == second.points(node)
        and first.line(node) == second.line(node)
        and first.incarnation(node) == second.incarnation(node)
        for node in (A, B)
    )


def test_a_volume_that_was_filled_before_the_former_one_was_deleted_changes_nothing() -> None:
    entries = [begun(A, 1, named(0, 0)), noted(A, 1, 1), noted(A, 1, 2)]
    entries += [LineMoved({A: named(1, 1)}), begun(A, 2, named(1, 2))]
    entries += [noted(A, 2, 3), noted(A, 2, 4)]
    registry = CheckpointRegistry.of(entries)
    filled = registry.entries()
    for written in range(len(filled) + 1):  # Its writer may have died at any of them.
        again = CheckpointRegistry.of([*entries, *filled[:written]])
        again.check_invariants()
        assert _same(again, registry), filled[:written]


def test_what_a_replaced_driver_wrote_too_late_is_not_undone_by_a_volume_without_it() -> None:
    entries = [begun(A, 1, named(0, 0)), noted(A, 1, 1), noted(A, 1, 2)]
    entries += [LineMoved({A: named(1, 1)})]
    filled = CheckpointRegistry.of(entries).entries()
    late = [*entries, LineMoved({A: named(1, 2)})]
    again = CheckpointRegistry.of([*late, *filled])
    again.check_invariants()
    assert _same(again, CheckpointRegistry.of(late))
