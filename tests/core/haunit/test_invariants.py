"""The smaller machines of a node say when they make no sense, each by itself and by way of a node.

Fields are changed by hand here: no stimulus leads to such a state.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from holdfast.core.errors import InvariantViolation
from holdfast.core.haunit.chkpt_mngr import ChkptMngr
from holdfast.core.haunit.delta_sender import DeltaSender
from holdfast.core.haunit.durability.choice import durability_of
from holdfast.core.haunit.events import (
    BatchReceived,
    PeerIncarnationLearned,
    Proceed,
    SubscribeReceived,
)
from holdfast.core.haunit.extent_restoration import ExtentRestoration
from holdfast.core.haunit.node import Node
from holdfast.core.haunit.outputs.kept_passes import KeptPasses
from holdfast.core.haunit.outputs.suffix import Suffix
from holdfast.core.haunit.plan import (
    Assignment,
    CheckpointPlan,
    FootprintPlan,
    InputSpec,
    NodePlan,
    OutputSpec,
    Standby,
)
from holdfast.core.haunit.replica_link import ReplicaLink
from holdfast.core.haunit.restoration import CheckpointRestoration, LineRestoration
from holdfast.core.machine import TimerFired
from holdfast.core.model.ids import CheckpointId, Incarnation, NodeId, StreamId
from holdfast.core.model.tuples import TIME_COLUMN, TupleBatch, with_time
from holdfast.core.recovery.restart_point import CheckpointRef, RestartPoint
from holdfast.core.replication.soutput import SOutput

SCHEMA = pa.schema([("v", pa.int64())])
A, OUT = StreamId("a>n"), StreamId("n>c")
N, C = NodeId("n"), NodeId("c")
ONE, TWO, THREE = Incarnation(1), Incarnation(2), Incarnation(3)
PLAN = NodePlan(
    N, "n", 0, (InputSpec(A, 0, SCHEMA, NodeId("a")),), 1, (),
    (OutputSpec(("port", 0), SCHEMA, (OUT,), (C,)),),
)  # fmt: skip
CHECKPOINTED = replace(PLAN, checkpoints=CheckpointPlan(1_000))
PASSIVE = replace(PLAN, standby=Standby.PASSIVE)
ACTIVE = replace(PLAN, standby=Standby.ACTIVE)


def rows(times: list[int]) -> pa.RecordBatch:
    columns = [pa.array(times, pa.int64()), pa.array(times, pa.int64())]
    return pa.RecordBatch.from_arrays(columns, schema=with_time(SCHEMA))


def node_at_work(plan: NodePlan, *, is_secondary: bool = False) -> Node:
    """A node that has processed three tuples."""
    node = Node(plan, Assignment(1, ONE, None, {}, is_secondary), 0)
    node.start(0)
    node.step(PeerIncarnationLearned(NodeId("a"), ONE), 1)
    node.step(BatchReceived(A, ONE, ONE, TupleBatch(0, rows([5, 6, 7]), 7)), 2)
    node.step(Proceed(), 3)
    node.check_invariants()
    return node


def is_violated(check: Callable[..., None], *args: Any) -> str:
    with pytest.raises(InvariantViolation) as found:
        check(*args)
    return str(found.value)


# -- Suffix ---------------------------------------------------------------------------------


def suffix_of_six() -> Suffix:
    suffix = Suffix(THREE, room=4)
    suffix.put_out(pa.RecordBatch.from_pydict({TIME_COLUMN: list(range(6))}), 0, 100)
    suffix.promise(77, 100)
    suffix.take_sendable()
    suffix.check_invariants(100)
    return suffix


def test_a_suffix_has_no_gap_and_no_stable_tuples_behind_it() -> None:
    suffix = suffix_of_six()
    assert "stable tuples" in is_violated(suffix.check_invariants, 101)
    suffix._unsent.clear()
    assert "gap" in is_violated(suffix.check_invariants, 100)
    suffix = suffix_of_six()
    suffix._boundary_sent_us = 78
    assert "promise" in is_violated(suffix.check_invariants, 100)
    suffix = suffix_of_six()
    suffix._output.run = None
    assert "of no run" in is_violated(suffix.check_invariants, 100)


def test_no_more_is_undone_than_was_tentative() -> None:
    output = SOutput(THREE, 0)
    output.tentative(2)
    output.undo()
    output.check_invariants()
    output.undone_total += 1
    assert "undone" in is_violated(output.check_invariants)


def test_a_node_looks_at_the_suffixes_of_its_edges() -> None:
    node = node_at_work(PLAN)
    (edge,) = node._unit.outputs._edges.values()
    edge.suffix.put_out(rows([8]), 0, edge.queue.next_id)
    node.check_invariants()
    edge.suffix._unsent.clear()
    assert "gap" in is_violated(node.check_invariants)


# -- KeptPasses -----------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", [((2, 9), {"x": 6}), ((4, 4), {"x": 4})])
def test_passes_are_kept_in_their_order(wrong: tuple[tuple[int, ...], dict[str, int]]) -> None:
    kept = KeptPasses({"x": 0})
    kept.note((3, 3), {"x": 5})
    kept.check_invariants()
    kept.note((4, 3), {"x": 5})
    kept.check_invariants()
    kept.note(*wrong)
    assert "kept behind" in is_violated(kept.check_invariants)


def test_no_pass_is_kept_whose_output_was_let_go() -> None:
    kept = KeptPasses({"x": 6})
    kept.note((3,), {"x": 5})
    assert "let go" in is_violated(kept.check_invariants)


def test_a_node_looks_at_its_kept_passes() -> None:
    node = node_at_work(PLAN)
    kept = node._unit.outputs._kept_passes
    kept.note((3,), {OUT: 3})
    kept.note((2,), {OUT: 3})
    assert "kept behind" in is_violated(node.check_invariants)


# -- ReplicaLink ----------------------------------------------------------------------------


def test_a_replica_link_tells_an_active_secondary_that_is_there_and_no_one_else() -> None:
    link = ReplicaLink(ACTIVE)
    link.subscribed()
    assert "nobody" in is_violated(link.check_invariants)
    link.learn(PeerIncarnationLearned(N, ONE, TWO))
    link.subscribed()
    link.check_invariants()
    link.learn(PeerIncarnationLearned(N, ONE, ONE))
    assert "its own secondary" in is_violated(link.check_invariants)
    link = ReplicaLink(PASSIVE)
    link.learn(PeerIncarnationLearned(N, ONE, TWO))
    link._is_subscribed = True
    assert "deltas" in is_violated(link.check_invariants)
    link = ReplicaLink(ACTIVE)
    link._untold = 2
    assert "kept its positions back" in is_violated(link.check_invariants)


def test_a_node_looks_at_its_replica_link() -> None:
    node = node_at_work(ACTIVE)
    node._replica._untold = 2
    assert "positions" in is_violated(node.check_invariants)


# -- Restoration ----------------------------------------------------------------------------


def point(sequence: int, *older: RestartPoint) -> RestartPoint:
    ref = CheckpointRef(CheckpointId(sequence, ONE), 9, (CheckpointId(1, ONE),))
    return RestartPoint(sequence, checkpoint=ref, older=older)


@pytest.mark.parametrize("kind", [CheckpointRestoration, LineRestoration])
def test_a_restoration_tries_the_newest_first_and_keeps_all_files(
    kind: type[CheckpointRestoration],
) -> None:
    made = kind(point(5, point(3)), 4_096, 1 << 20, ())
    made.start()
    made.check_invariants()
    made._found = made._found[1:]
    assert "nobody keeps the files" in is_violated(made.check_invariants)
    for wrong in (point(3, point(5)), point(5, point(5))):
        made = kind(wrong, 4_096, 1 << 20, ())
        assert "newest first" in is_violated(made.check_invariants)
    made = kind(point(5), 4_096, 1 << 20, ())
    made._newest_sequence = 4
    assert "beyond" in is_violated(made.check_invariants)


def test_an_extent_does_not_end_before_it_begins() -> None:
    plan = replace(PLAN, footprints=FootprintPlan())
    stream = plan.footprint_stream
    ExtentRestoration(
        plan, RestartPoint(1, needed_from={stream: 4}, next_ids={stream: 4})
    ).check_invariants()
    made = ExtentRestoration(plan, RestartPoint(1, needed_from={stream: 5}, next_ids={stream: 4}))
    assert "from 5 to 4" in is_violated(made.check_invariants)


# -- ChkptMngr ------------------------------------------------------------------------------


def manager_that_writes() -> tuple[Node, ChkptMngr]:
    node = node_at_work(CHECKPOINTED)
    node.step(TimerFired("checkpoint"), 1_000)
    node.check_invariants()
    manager = node._durability._chkpt_mngr  # type: ignore[attr-defined]
    assert manager.is_writing
    return node, manager


def test_a_checkpoint_manager_keeps_the_files_that_it_builds_on() -> None:
    node, manager = manager_that_writes()
    manager._stored.clear()
    assert "let go" in is_violated(node.check_invariants)


def test_pages_are_frozen_for_the_checkpoint_that_is_written() -> None:
    node, manager = manager_that_writes()
    node._unit.network.pages.finish(manager._writing.prepared.snapshot)
    assert "another checkpoint" in is_violated(node.check_invariants)
    node, manager = manager_that_writes()
    manager._writing = None
    assert "another checkpoint" in is_violated(node.check_invariants)


# -- DeltaSender ----------------------------------------------------------------------------


def sender_at_work() -> tuple[Node, DeltaSender]:
    node = node_at_work(PASSIVE)
    node.step(PeerIncarnationLearned(N, ONE, TWO), 4)
    node.step(SubscribeReceived(PLAN.replica_stream, TWO, ONE, 0, 0, 0, is_secondary=True), 5)
    node.check_invariants()
    sender = node._durability._deltas  # type: ignore[attr-defined]
    assert sender._sending is not None
    return node, sender


def test_a_delta_has_a_receiver_and_frozen_pages() -> None:
    node, sender = sender_at_work()
    sender._receiver = None
    assert "to nobody" in is_violated(node.check_invariants)
    node, sender = sender_at_work()
    node._unit.network.pages.finish(sender._sending.snapshot)
    assert "another delta" in is_violated(node.check_invariants)


def test_a_delta_is_told_behind_its_pages_and_pages_are_there_once_they_were_sent() -> None:
    node, sender = sender_at_work()
    sender._sending.received = sender._sending.sent + 1
    assert "are there" in is_violated(node.check_invariants)
    node, sender = sender_at_work()
    sender._sending.positions = range(9)
    assert "before all its pages" in is_violated(node.check_invariants)
    sender._sending.is_told = False
    sender._sending.positions, sender._sending.sent = range(10**6), 10**6
    assert "ahead" in is_violated(node.check_invariants)


def test_a_secondary_that_acknowledges_pages_which_were_not_sent_does_no_harm() -> None:
    node, sender = sender_at_work()
    sequence = sender._sending.delta.sequence
    sender.acknowledged(sequence, 10**6, is_applied=False, now_ms=6)
    node.check_invariants()


def test_every_way_to_protect_a_unit_is_looked_at() -> None:
    """A way with a machine of its own has its check in its own `check_invariants`."""
    for plan, name in ((CHECKPOINTED, "_chkpt_mngr"), (PASSIVE, "_deltas")):
        node = node_at_work(plan)
        assert durability_of(plan) is type(node._durability)
        looked: list[str] = []
        machine = getattr(node._durability, name)
        machine.check_invariants = lambda looked=looked: looked.append("yes")
        node.check_invariants()
        assert looked == ["yes"]
