"""Whether units that recover together are at a line from which they can be divided."""

from __future__ import annotations

from types import SimpleNamespace

import pyarrow as pa
import pytest

from holdfast.core.haunit.plan import CheckpointPlan, Cuts, InputSpec, NodePlan, OutputSpec
from holdfast.core.model.ids import CheckpointId, Incarnation, NodeId, StreamId
from holdfast.core.recovery.restart_point import CheckpointRef, RestartPoint
from holdfast.planning.divided_regions import PROCESSED_ALL
from holdfast.planning.division import Division, Stand

SCHEMA = pa.schema([("n", pa.int64())])
ROWS, EDGE, OUT = StreamId("rows"), StreamId("reader>member"), StreamId("out[0]")
READER, MEMBER = NodeId("reader"), NodeId("member")
PLANS = (
    NodePlan(
        READER, "reader", 0, (InputSpec(ROWS, 0, SCHEMA, None),), 1, (),
        (OutputSpec(("port", 0), SCHEMA, (EDGE,), (MEMBER,)),),
    ),
    NodePlan(
        MEMBER, "member", 0, (InputSpec(EDGE, 0, SCHEMA, READER),), 1, (),
        (OutputSpec(("port", 0), SCHEMA, (OUT,), (), is_sink=True, is_gated=True),),
        checkpoints=CheckpointPlan(1_000, kept=1), region="member", cuts=Cuts.UNCOORDINATED,
    ),
)  # fmt: skip


@pytest.mark.parametrize("boundary_us", [7, 8])
def test_a_region_that_was_divided_can_be_divided_again(boundary_us: int) -> None:
    """1. A stream from outside of a region begins anew, and all of it before a boundary counts as
    processed. 2. All later points of its receiver say so. 3. Another elastic restart waited for a
    point that says how far the receiver is.
    """
    ref = CheckpointRef(CheckpointId(4, Incarnation(1)), 0)
    stored = {
        READER: None,
        MEMBER: RestartPoint(4, {EDGE: 5}, {EDGE: PROCESSED_ALL}, 7, {OUT: 3}, ref),
    }
    stands = {
        READER: Stand({ROWS: 9}, {EDGE: 5}, boundary_us, 0),
        MEMBER: Stand({EDGE: 5}, {OUT: 3}, boundary_us, 0),
    }
    home = SimpleNamespace(sink_next_id=lambda _: 3, sink_holds=lambda *_: True)
    division = Division(PLANS, PLANS)
    found = division.points(stands, stored, home)
    if boundary_us == 8:
        assert found == "instances of member have not stored the same boundary"
        return
    assert not isinstance(found, str), found
    assert found[MEMBER].processed_before == {EDGE: 5}
    left = division.left(found, stored, home)
    assert left == found
