"""Decisions: one entry each, and nothing that it allows before it is durable."""

from holdfast.core.coordinator.decisions import Begun, Decisions
from holdfast.core.coordinator.events import EndTask, JournalWritten
from holdfast.core.coordinator.journal_entries import NewLife, PointNoted, RecoveryDecision
from holdfast.core.model.ids import Incarnation, NodeId, PointId
from holdfast.core.recovery.restart_point import RestartPoint

A, B = NodeId("a[0]"), NodeId("b[0]")
I1, I2 = Incarnation(1), Incarnation(2)


def begun(life: NewLife) -> Begun:
    return Begun(life, lambda now_ms: [EndTask(life.node, f"at {now_ms}")])


def test_nodes_that_begin_together_begin_by_one_entry_or_not_at_all() -> None:
    before = [
        *(RecoveryDecision((NewLife(node, I1),)) for node in (A, B)),
        *(PointNoted(node, I1, RestartPoint(n), True) for n in (1, 2) for node in (A, B)),
    ]
    decisions = Decisions(before)
    lives = (NewLife(A, I2, PointId(I1, 1)), NewLife(B, I2))
    write = decisions.decide(*(begun(life) for life in lives))
    assert write.entries == (RecoveryDecision(lives),)
    assert decisions.registry.incarnation(A) == I1, "it is not durable yet"
    assert len(decisions.registry.points(A)) == 2
    effects = decisions.written(JournalWritten(write.request_id), 7)
    assert effects == [EndTask(A, "at 7"), EndTask(B, "at 7")]
    assert decisions.registry.incarnations() == {A: I2, B: I2}
    assert decisions.registry.newest(A) == RestartPoint(1)
    assert decisions.registry.newest(B) == RestartPoint(2)


def test_an_entry_that_nobody_waits_for_changes_nothing() -> None:
    decisions = Decisions(())
    write = decisions.decide(begun(NewLife(A, I1)))
    assert decisions.written(JournalWritten(write.request_id + 1), 0) == []
    assert decisions.written(JournalWritten(write.request_id), 0) == [EndTask(A, "at 0")]
    assert decisions.written(JournalWritten(write.request_id), 1) == [], "said twice"
