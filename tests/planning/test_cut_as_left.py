"""A cut counts only if sinks hold, when all is stopped, what they held when it was found."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pyarrow as pa
import pytest

from holdfast.core.haunit.plan import InputSpec, NodePlan, OutputSpec
from holdfast.core.model.ids import CheckpointId, Incarnation, NodeId, StreamId
from holdfast.core.recovery.restart_point import CheckpointRef, RestartPoint
from holdfast.planning.division import Division, Moved

SCHEMA = pa.schema([("n", pa.int64())])
ROWS, EDGE, OUT = StreamId("rows"), StreamId("reader>member"), StreamId("out[0]")
READER, MEMBER = NodeId("reader"), NodeId("member")
SINK = OutputSpec(("port", 0), SCHEMA, (OUT,), (), is_sink=True)
PLANS = (
    NodePlan(
        READER, "reader", 0, (InputSpec(ROWS, 0, SCHEMA, None),), 1, (),
        (OutputSpec(("port", 0), SCHEMA, (EDGE,), (MEMBER,)),),
    ),
    NodePlan(MEMBER, "member", 0, (InputSpec(EDGE, 0, SCHEMA, READER),), 1, (), (SINK,)),
)  # fmt: skip
POINTS = {
    READER: RestartPoint(1, {ROWS: 9}, {ROWS: 9}, 7, {EDGE: 5}),
    MEMBER: RestartPoint(1, {EDGE: 5}, {EDGE: 5}, 7, {OUT: 3}),
}


def home(sink_next_id: int) -> SimpleNamespace:
    return SimpleNamespace(
        sink_next_id=lambda _: sink_next_id, sink_holds=lambda _, before: sink_next_id >= before
    )


@pytest.mark.parametrize(
    ("sink_next_id", "reason"),
    [
        (2, "out[0] has lost results of member while it was stopped"),
        (3, None),
        (4, "member put out more to out[0] while it was stopped"),
    ],
)
def test_a_node_that_goes_on_while_it_is_stopped_is_at_no_cut(
    sink_next_id: int, reason: str | None
) -> None:
    """1. A boundary is on its way. 2. There is a cut. 3. It arrives, and a window closes."""
    left = Division(PLANS, PLANS).left(POINTS, dict(POINTS), home(sink_next_id))
    assert left == (POINTS if reason is None else reason)


def test_a_node_that_stores_another_checkpoint_while_it_is_stopped_is_at_no_cut() -> None:
    ref = CheckpointRef(CheckpointId(2, Incarnation(1)), 0)
    now = {**POINTS, MEMBER: replace(POINTS[MEMBER], boundary_us=8, checkpoint=ref)}
    left = Division(PLANS, PLANS).left(POINTS, now, home(3))
    assert left == "member went on while it was stopped"


def test_what_only_reads_sources_puts_out_the_same_again() -> None:
    """It may go on from a point that its sink is ahead of, unless it is changed."""
    plans = (replace(PLANS[0], outputs=(SINK,)),)
    points = {READER: RestartPoint(1, {ROWS: 4}, {ROWS: 9}, 7, {OUT: 3})}
    assert Division(plans, plans).left(points, dict(points), home(4)) == points
    for units, reason in (((), None), (("reader",), "out[0] holds results of reader behind")):
        moved = Moved(frozenset(units), frozenset())
        found = Division(plans, plans, moved).why_not_behind(points, home(4))
        assert (found or "").startswith(reason or "")
        assert (found is None) == (reason is None)
