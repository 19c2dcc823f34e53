"""Whoever goes on from a copy of the state goes on from its clock, where no pass log tells it."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from holdfast.core.haunit.events import (
    BatchReceived,
    BoundaryReceived,
    DeltaAckReceived,
    PeerIncarnationLearned,
    Proceed,
    SendBatch,
    SendDelta,
    SendPageRun,
    SubscribeReceived,
)
from holdfast.core.haunit.node import Node
from holdfast.core.haunit.plan import (
    Assignment,
    InputSpec,
    NodePlan,
    OperatorSpec,
    OutputSpec,
    Standby,
)
from holdfast.core.haunit.state_delta import StandbyImage
from holdfast.core.machine import Effect, SetTimer, TimerFired
from holdfast.core.model.ids import END_US, Incarnation, NodeId, StreamId
from holdfast.core.model.tuples import TIME_COLUMN, TupleBatch, with_time
from holdfast.core.operators.base import Operator
from holdfast.core.operators.processing_time import ProcessingTimeAggregate
from holdfast.core.recovery.guarantee import Guarantee
from holdfast.core.recovery.restart_point import RestartPoint
from holdfast.core.state.page_manager import PageManager

SCHEMA = pa.schema([("v", pa.int64())])
A, OUT = StreamId("a>n"), StreamId("n>c")
N, C = NodeId("n"), NodeId("c")
ONE, TWO = Incarnation(1), Incarnation(2)
SIZE_US = 10_000
AHEAD_US = 5_004_000
"""The clock of the first machine; that of the second is at its beginning."""


def counting(pages: PageManager) -> Operator:
    counts = [("count", None, "n")]
    own = {"size_us": SIZE_US, "slide_us": SIZE_US, "manager": pages}
    return ProcessingTimeAggregate("counts", SCHEMA, [], counts, **own)  # type: ignore[arg-type]


COUNTS = OperatorSpec("counts", counting, (("port", 0),))
PLAN = NodePlan(
    N,
    "n",
    0,
    (InputSpec(A, 0, SCHEMA, NodeId("a")),),
    1,
    (COUNTS,),
    (OutputSpec(("operator", 0), counting(PageManager()).output_schema, (OUT,), (C,)),),
    standby=Standby.PASSIVE,
    guarantee=Guarantee.ROLLBACK,
)


def rows(first_id: int, count: int) -> TupleBatch:
    columns = [pa.array([0] * count, pa.int64()), pa.array([7] * count, pa.int64())]
    return TupleBatch(first_id, pa.RecordBatch.from_arrays(columns, schema=with_time(SCHEMA)), 7)


def at_work(plan: NodePlan) -> Node:
    """Two tuples have come in a window of a clock that is ahead."""
    node = Node(plan, Assignment(1, ONE, None, {}), 0)
    node.start(0)
    node.step(PeerIncarnationLearned(NodeId("a"), ONE), 1)
    node.step(PeerIncarnationLearned(N, ONE, TWO), 1)
    node.step(BatchReceived(A, ONE, ONE, rows(0, 2)), 2)
    node.step(Proceed(AHEAD_US, 1), 3)
    return node


def copied(node: Node) -> StandbyImage:
    """What a secondary has once it has been sent everything."""
    image = StandbyImage(node.plan)
    stream = node.plan.replica_stream
    effects = node.step(SubscribeReceived(stream, TWO, ONE, 0, 0, 0), 4)
    while image.cut is None:
        sent, effects = effects, []
        for effect in sent:
            if isinstance(effect, SendPageRun):
                number, pages = effect.run.sequence, image.receive(effect.run)
                got = DeltaAckReceived(stream, TWO, ONE, number, pages, is_applied=False)
                effects += node.step(got, 5)
            elif isinstance(effect, SendDelta):
                image.apply(effect.delta)
    return image


def promoted() -> tuple[Node, list[Effect]]:
    """The secondary, on a machine whose clock is behind."""
    restored = copied(at_work(PLAN)).restored(RestartPoint(0), {})
    assert restored is not None
    node = Node(PLAN, Assignment(1, TWO, restored.point, {}), 0, restored)
    effects = node.start(0)
    node.step(PeerIncarnationLearned(NodeId("a"), ONE), 1)
    node.step(PeerIncarnationLearned(C, ONE), 1)
    for is_told in (False, True):  # It is told first that the stream goes on with other tuples.
        node.step(SubscribeReceived(OUT, ONE, TWO, 0, 0, 100, is_told=is_told), 1)
    return node, effects


def counted(effects: list[Effect]) -> list[tuple[int, int]]:
    """Counts, and the last microsecond of their windows."""
    sent = [effect.batch.batch for effect in effects if isinstance(effect, SendBatch)]
    columns = [(b.column("n").to_pylist(), b.column(TIME_COLUMN).to_pylist()) for b in sent]
    return [pair for counts, ends in columns for pair in zip(counts, ends, strict=True)]


def test_a_promoted_secondary_with_a_slow_clock_goes_on_in_the_open_window() -> None:
    node, _ = promoted()
    node.step(BatchReceived(A, ONE, TWO, rows(2, 3)), 2)
    effects = node.step(Proceed(1_000, 2), 3)
    assert counted(effects) == []
    node.step(BoundaryReceived(A, ONE, TWO, 5, END_US), 4)
    assert counted(node.step(Proceed(2_000, 3), 5)) == [(5, 5_009_999)]


def test_a_promoted_secondary_closes_the_window_in_time_without_input() -> None:
    node, effects = promoted()
    assert SetTimer("wake", 6) in effects, "the window ends 6 ms after the clock of the copy"
    node.step(TimerFired("wake"), 6)
    assert counted(node.step(Proceed(5_010_000, 2), 6)) == [(2, 5_009_999)]


@pytest.mark.parametrize("keeps_passes", [False, True])
def test_the_clock_goes_with_the_state_unless_the_pass_log_tells_it(*, keeps_passes: bool) -> None:
    unit = at_work(replace(PLAN, keeps_passes=keeps_passes))._unit
    assert unit.cut(1, is_state_kept=True).clock_us == (0 if keeps_passes else AHEAD_US)
    assert unit.cut(1, is_state_kept=False).clock_us == 0, "the state is made anew, by any clock"
