"""A node that goes on without missing input, stepped by hand. [DPC §3, §4]"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from holdfast.core.haunit import events
from holdfast.core.haunit.delayed_unit import DelayedUnit
from holdfast.core.haunit.node import Node
from holdfast.core.haunit.plan import (
    ACK_INTERVALS_MAX,
    Assignment,
    DelayPlan,
    InputSpec,
    NodeLimits,
    NodePlan,
    OperatorSpec,
    OutputSpec,
)
from holdfast.core.haunit.reach import Reach
from holdfast.core.machine import Effect, SetTimer, TimerFired
from holdfast.core.model.feed_rows import FEED_COLUMNS, feed_schema
from holdfast.core.model.ids import END_US, Incarnation, NodeId, StreamId
from holdfast.core.model.tuples import TupleBatch, with_time
from holdfast.core.operators.aggregate import WindowAggregate
from holdfast.core.operators.base import Output, Rows
from holdfast.core.operators.union import Union
from holdfast.core.recovery.restart_point import RestartPoint
from holdfast.core.replication.consistency_manager import PATIENCE, Consistency
from holdfast.core.replication.input_delay import DuringFailure
from holdfast.core.state.page_manager import PageManager, StateLimitExceeded

SCHEMA = pa.schema([("k", pa.int64())])
A, B = StreamId("a[0]"), StreamId("b[0]")
SINK, FEED = StreamId("out[0]"), StreamId("out~feed[0]")
ALONE, ALONE_FEED = StreamId("alone[0]"), StreamId("alone~feed[0]")
ONE, TWO = Incarnation(1), Incarnation(2)


BOUND_MS = 50


def counting(pages: PageManager) -> WindowAggregate:
    """Rows per key in windows of 10 µs."""
    return WindowAggregate("n", SCHEMA, ["k"], [("count", None, "n")], size_us=10, manager=pages)


def node(
    assignment: Assignment | None = None,
    during: DuringFailure = DuringFailure.PROCESS,
    reads: tuple[StreamId, ...] = (A, B),
    replicas: int = 1,
    undo_tuples: int = 0,
    drops: bool = False,
    **limits: int,
) -> Node:
    counted = counting(PageManager()).output_schema
    source = ("operator", 0)
    sink = OutputSpec(source, counted, (SINK,), (), is_sink=True)
    feed = replace(sink, schema=feed_schema(counted), streams=(FEED,), feed_of=SINK)
    plan = NodePlan(
        NodeId("n"),
        "n",
        0,
        tuple(InputSpec(stream, 0, SCHEMA, None) for stream in reads),
        1,
        (OperatorSpec("n", counting, (("port", 0),)),),
        (sink, feed),
        limits=NodeLimits(**limits),
        delays=DelayPlan(BOUND_MS, during, 0, replicas, None, undo_tuples, drops),
        replicas=tuple(NodeId(f"n+{i}") for i in range(replicas)) if replicas > 1 else (),
    )
    made = Node(plan, assignment or Assignment(1, ONE, None, {}), 0)
    made.start(0)
    return made


def batch(stream: StreamId, first_id: int, times: list[int], boundary_us: int) -> TupleBatch:
    first_key = first_id + (0 if stream == A else 1_000)
    keys = pa.array(range(first_key, first_key + len(times)), pa.int64())
    rows = pa.RecordBatch.from_arrays([keys, pa.array(times, pa.int64())], schema=with_time(SCHEMA))
    return TupleBatch(first_id, rows, boundary_us)


def give(
    machine: Node, stream: StreamId, first_id: int, times: list[int], boundary_us: int, now_ms: int
) -> list[Effect]:
    """A source gives rows of distinct keys, and promises with the last of them."""
    batches = (batch(stream, first_id, times, boundary_us),) if times else ()
    effects = machine.step(events.SourceRead(stream, batches, boundary_us), now_ms)
    return effects + proceed(machine, now_ms)


def proceed(machine: Node, now_ms: int) -> list[Effect]:
    effects: list[Effect] = []
    while machine.has_work:
        effects += machine.step(events.Proceed(), now_ms)
    machine.check_invariants()
    return effects


def wait_until(machine: Node, now_ms: int) -> list[Effect]:
    return machine.step(TimerFired("delay"), now_ms) + proceed(machine, now_ms)


def stable(effects: list[Effect]) -> int:
    """How many rows go to the sink."""
    return sum(e.batch.count for e in effects if _is_of(e, SINK))


def said(effects: list[Effect]) -> list[tuple[str, int]]:
    """What goes to the feed: types, with ids."""
    rows = [row for e in effects if _is_of(e, FEED) for row in _feed_rows(e)]
    return [(row["_type"], row["_tuple_id"]) for row in rows]


def _is_of(effect: Effect, stream: StreamId) -> bool:
    return isinstance(effect, events.WriteSink) and effect.stream == stream


def _feed_rows(effect: Effect) -> list[dict[str, object]]:
    assert isinstance(effect, events.WriteSink)
    return effect.batch.batch.select(list(FEED_COLUMNS)).to_pylist()


def failed(machine: Node) -> None:
    """Up to 20 all is there, then nothing of B."""
    give(machine, A, 0, [1, 11, 21], 40, 0)
    give(machine, B, 0, [2, 12], 20, 0)


@pytest.mark.parametrize("undo_tuples", [0, 1_000], ids=["checkpoint/redo", "undo/redo"])
def test_a_node_goes_on_without_a_silent_source_and_corrects_it_when_it_is_back(
    undo_tuples: int,
) -> None:
    machine = node(undo_tuples=undo_tuples)
    give(machine, A, 0, [1, 11, 21], 40, 0)
    effects = give(machine, B, 0, [2, 12], 20, 0)
    assert stable(effects) == 4
    assert SetTimer("delay", BOUND_MS) in effects
    assert wait_until(machine, BOUND_MS - 1)[-1] == SetTimer("delay", BOUND_MS)
    effects = wait_until(machine, BOUND_MS)
    assert (stable(effects), said(effects)) == (0, [("tentative", 4)])
    assert machine.consistency is not None
    assert machine.consistency.state is Consistency.UP_FAILURE
    assert machine.missing == (B,)
    lacking = [
        (row["_missing"], row["_share"])
        for e in effects
        if _is_of(e, FEED)
        for row in _feed_rows(e)
    ]
    assert lacking == [("b[0]", 0.5)]
    effects = give(machine, A, 3, [51, 52], 70, 60)
    assert said(effects) == [("tentative", 5), ("tentative", 6)]
    effects = give(machine, B, 2, [22], 80, 70)
    assert said(effects) == [("undo", 4), ("rec_done", 8)]
    assert stable(effects) == 4
    assert machine.consistency.state is Consistency.STABLE
    assert machine.missing == ()
    assert machine.tentative_rows == (3, 3)


def test_delay_makes_each_tuple_wait_for_the_bound() -> None:
    machine = node(during=DuringFailure.DELAY)
    failed(machine)
    assert said(wait_until(machine, BOUND_MS)) == [("tentative", 4)]
    assert said(give(machine, A, 3, [51], 70, 60)) == []
    assert said(wait_until(machine, 60 + BOUND_MS)) == [("tentative", 5)]


def test_no_restart_point_is_noted_and_no_end_reported_in_up_failure() -> None:
    machine = node()
    failed(machine)
    wait_until(machine, BOUND_MS)
    give(machine, A, 3, [51], END_US, 60)
    effects = machine.step(TimerFired("ack"), 70)
    effects += machine.step(events.SinkSynced(SINK, 4), 71) + machine.step(TimerFired("ack"), 400)
    assert not [
        e for e in effects if isinstance(e, events.StoreRestartPoint | events.ReportFinished)
    ]
    effects = give(machine, B, 2, [22], END_US, 500)
    effects += machine.step(events.SinkSynced(SINK, 7), 501)
    effects += machine.step(events.SinkSynced(FEED, 4), 502)
    assert [e for e in effects if isinstance(e, events.ReportFinished)]


def test_who_takes_over_says_first_that_what_was_left_is_void() -> None:
    machine = node(Assignment(1, TWO, None, {SINK: 4, FEED: 2}))
    effects = proceed(machine, 0)
    assert said(effects) == [("undo", 4)]
    failed(machine)
    effects = wait_until(machine, BOUND_MS)
    assert said(effects) == [("tentative", 4)]


def test_a_held_cut_that_does_not_fit_beside_the_state_ends_the_node_by_name() -> None:
    machine = node(page_bytes=512, state_bytes=24 * 512)
    give(machine, A, 0, [1] * 150, 40, 0)
    give(machine, B, 0, [2], 5, 0)
    wait_until(machine, BOUND_MS)
    with pytest.raises(StateLimitExceeded, match=r"stateBytesMax to twice the state"):
        fill(machine)


def fill(machine: Node) -> None:
    """Window after window, with 150 keys each."""
    for number in range(1, 30):
        first_id = 150 * number
        give(machine, A, first_id, [40 + 10 * number] * 150, 50 + 10 * number, 60 + number)


def test_a_stream_that_has_promised_the_time_of_its_newest_tuple_is_not_missing() -> None:
    """The boundary that has expired is one beyond that."""
    machine = node()
    give(machine, B, 0, [2, 12], 20, 0)
    give(machine, A, 0, [1, 11, 29], 29, 0)
    effects = wait_until(machine, BOUND_MS)
    assert said(effects) == [("tentative", 4)]
    assert machine.missing == (B,)


def test_a_turn_that_comes_due_is_asked_for_though_nothing_comes() -> None:
    machine = node(replicas=2)
    failed(machine)
    wait_until(machine, BOUND_MS)
    give(machine, B, 2, [22], 25, 60)
    effects = wait_until(machine, 60 + PATIENCE * BOUND_MS)
    assert [e for e in effects if isinstance(e, events.AskForTurn)]
    effects = machine.step(events.TurnGranted(1), 60 + PATIENCE * BOUND_MS + 1)
    effects += proceed(machine, 60 + PATIENCE * BOUND_MS + 1)
    assert ("undo", 4) in said(effects), "a part of what is missing has come, long ago"


def test_a_boundary_that_comes_with_the_last_of_a_silent_replay_is_acted_on() -> None:
    """The replay goes no further than its cut, and nothing may follow."""
    point = RestartPoint(1, {A: 0}, {A: 2}, 12)
    machine = node(Assignment(1, TWO, point, {SINK: 0, FEED: 0}), reads=(A,))
    proceed(machine, 0)
    effects = give(machine, A, 0, [1, 11], END_US, 0)
    assert stable(effects) == 1


def test_a_stream_behind_one_that_promises_far_ahead_is_not_missing() -> None:
    """Nothing of the latter's tuples waits; the former is as slow as time, and alive."""
    machine = node()
    give(machine, B, 0, [2, 12], 20, 0)
    give(machine, A, 0, [1, 11], 20, 0)
    effects = give(machine, B, 2, [], 1_000, 0)
    for now_ms in range(0, 10 * BOUND_MS, 10):
        number = now_ms // 10
        effects += give(machine, A, 2 + number, [20 + number], 21 + number, now_ms)
        effects += wait_until(machine, now_ms)
    assert said(effects) == []
    assert stable(effects) == 50
    assert machine.consistency is not None
    assert machine.consistency.failures == 0


def test_a_result_made_of_its_tuples_waits_for_the_bound_and_nothing_behind_it_goes() -> None:
    """Its window has closed, as far as it is concerned; a slow stream counts as a silent one."""
    machine = node()
    give(machine, A, 0, [1, 11], 20, 0)
    give(machine, B, 0, [2, 12, 22], 1_000, 0)
    effects = give(machine, A, 2, [], 23, 10)
    assert stable(effects) == 0
    effects = wait_until(machine, BOUND_MS - 1) + give(machine, A, 2, [], 24, BOUND_MS - 1)
    assert said(effects) == []
    assert said(wait_until(machine, BOUND_MS)) == [("tentative", 4)]
    effects = give(machine, A, 2, [31], 32, BOUND_MS + 1)
    assert said(effects) == [("undo", 4), ("rec_done", 5)], "it has gone to 30, and no further"


def test_a_tuple_waits_no_longer_for_a_stream_that_creeps() -> None:
    machine = node()
    give(machine, B, 0, [25], 30, 0)
    effects: list[Effect] = []
    for now_ms in range(1, BOUND_MS):
        effects += give(machine, A, 0, [], now_ms // 10, now_ms) + wait_until(machine, now_ms)
    assert said(effects) == []
    assert said(wait_until(machine, BOUND_MS)) == [("tentative", 0)]


def before_windows(at: RestartPoint | None = None, *, is_sink_unit: bool = False) -> Node:
    """A node without windows; the unit behind it has some, unless it is a sink's."""
    ends = (StreamId("n->m"),), (NodeId("m"),)
    behind = OutputSpec(("port", 0), SCHEMA, *ends, has_tentative=True)
    outputs = (replace(behind, has_windows_behind=not is_sink_unit),)
    alone = replace(node().plan, outputs=outputs, operators=())
    machine = Node(alone, Assignment(1, ONE, at, {}), 0)
    machine.start(0)
    return machine


def failures_at(machine: Node, now_ms: int) -> int:
    wait_until(machine, now_ms)
    assert machine.consistency is not None
    return machine.consistency.failures


def test_where_windows_may_stand_behind_it_all_that_has_brought_a_tuple_waits() -> None:
    for is_sink_unit, failures in ((False, 1), (True, 0)):
        machine = before_windows(is_sink_unit=is_sink_unit)
        give(machine, A, 0, [1], 2, 0)
        give(machine, B, 0, [1], 1_000, 0)
        assert failures_at(machine, BOUND_MS) == failures


def test_what_a_stream_promises_before_its_first_tuple_keeps_nothing_of_it_waiting() -> None:
    machine = before_windows()
    give(machine, A, 0, [], 1_000, 0)
    give(machine, A, 0, [1_500], 1_501, 20)
    assert failures_at(machine, 20 + BOUND_MS - 1) == 0
    assert failures_at(machine, 20 + BOUND_MS) == 1


def test_a_replacement_does_not_take_the_first_tuple_that_it_sees_for_the_first_of_all() -> None:
    processed = {A: 1, B: 1}
    machine = before_windows(RestartPoint(1, dict(processed), processed, 10))
    give(machine, B, 1, [], 10, 0)
    give(machine, A, 1, [], 1_000, 0)
    give(machine, A, 1, [1_500], 1_501, 20)
    assert failures_at(machine, BOUND_MS - 1) == 0
    assert failures_at(machine, BOUND_MS) == 1


def test_what_is_dropped_is_durable_before_the_node_goes_back_and_left_out_by_who_takes_over() -> (
    None
):
    machine = node(drops=True, input_queue_tuples=2)
    failed(machine)
    wait_until(machine, BOUND_MS)
    assert said(give(machine, A, 3, [51, 52], 60, 60)) == [("tentative", 5), ("tentative", 6)]
    assert said(give(machine, A, 5, [61], 70, 65)) == [("tentative", 7)], "it is not kept"
    assert said(give(machine, B, 2, [22], 80, 70)) == [], "it is not written down"
    asked = machine.step(TimerFired("ack"), 80)
    (point,) = (e.point for e in asked if isinstance(e, events.StoreRestartPoint))
    assert point.dropped == {A: ((4, 6),)}, "two were kept: 21 and 51"
    assert RestartPoint.from_json(point.to_json()) == point
    assert not machine.has_work
    effects = machine.step(events.RestartPointStored(point.sequence), 90) + proceed(machine, 90)
    assert [e for e in effects if isinstance(e, events.ReportGap)] == [events.ReportGap(A, 4, 6)]
    assert said(effects) == [("undo", 4), ("rec_done", 7)]
    assert (stable(effects), machine.dropped_tuples) == (3, 2)

    heir = node(Assignment(1, TWO, point, {SINK: 4, FEED: 9}), drops=True)
    effects = proceed(heir, 100) + give(heir, A, 0, [1, 11, 21, 51, 52, 61], 70, 101)
    effects += give(heir, B, 0, [2, 12, 22], 80, 102)
    assert stable(effects) == 3
    assert [e for e in effects if isinstance(e, events.ReportGap)] == [events.ReportGap(A, 4, 6)]


def test_nothing_is_dropped_of_the_stream_that_all_wait_for() -> None:
    machine = node(drops=True, input_queue_tuples=2)
    failed(machine)
    wait_until(machine, BOUND_MS)
    effects = give(machine, B, 2, [22, 23, 24, 25, 26], 80, 70)
    assert said(effects) == [("undo", 4), ("rec_done", 10)]
    assert machine.dropped_tuples == 0


def test_a_unit_that_blocks_says_on_which_stream_and_what_it_waits_for() -> None:
    machine, dropping = node(input_queue_tuples=4), node(drops=True, input_queue_tuples=4)
    for one in (machine, dropping):
        failed(one)
        wait_until(one, BOUND_MS)
        assert one.trouble is None
        give(one, A, 3, [51, 52], 60, 60)
    assert machine.trouble == (
        "n is blocked: it keeps as much as it may of a[0] for the correction, and reads no more "
        "before b[0] comes"
    )
    assert dropping.trouble is None, "it reads on"
    give(machine, B, 2, [22], 80, 70)
    assert machine.trouble is None


def unit_of(machine: Node) -> DelayedUnit:
    assert isinstance(machine._unit, DelayedUnit)
    return machine._unit


def page_sets_of(machine: Node) -> int:
    return unit_of(machine).network.pages.statistics().page_sets


GIVEN: list[int] = []
"""How many rows the operator that counts A alone was given, pass by pass."""


class Alone(WindowAggregate):
    """Notes what it is given."""

    def process(self, inputs: Sequence[Rows | None], low: np.ndarray, boundary_us: int) -> Output:
        (rows,) = inputs
        GIVEN.append(0 if rows is None else len(rows.time_us))
        return super().process(inputs, low, boundary_us)


def counting_alone(pages: PageManager) -> WindowAggregate:
    return Alone("m", SCHEMA, ["k"], [("count", None, "n")], size_us=10, manager=pages)


def with_a_path_of_a(
    assignment: Assignment | None = None, undo_tuples: int = 0, **limits: int
) -> Node:
    """What A and B bring is united and counted; what A brings is counted alone, too."""
    plan = node(undo_tuples=undo_tuples, **limits).plan
    GIVEN.clear()
    sink, feed = (replace(spec, source=("operator", 1)) for spec in plan.outputs)
    alone = replace(sink, source=("operator", 2), streams=(ALONE,))
    alone_feed = replace(feed, source=("operator", 2), streams=(ALONE_FEED,), feed_of=ALONE)
    made = Node(
        replace(
            plan,
            inputs=(InputSpec(A, 0, SCHEMA, None), InputSpec(B, 1, SCHEMA, None)),
            port_count=2,
            operators=(
                OperatorSpec("u", lambda _: Union("u", SCHEMA), (("port", 0), ("port", 1))),
                OperatorSpec("n", counting, (("operator", 0),)),
                OperatorSpec("m", counting_alone, (("port", 0),)),
            ),
            outputs=(sink, feed, alone, alone_feed),
        ),
        assignment or Assignment(1, ONE, None, {}),
        0,
    )
    made.start(0)
    return made


def written_alone(effects: list[Effect]) -> list[tuple[int, int]]:
    """What goes to the sink of A alone: ids and keys."""
    return [
        (e.batch.first_id + number, key)
        for e in effects
        if isinstance(e, events.WriteSink) and e.stream == ALONE
        for number, key in enumerate(e.batch.batch.column("k").to_pylist())
    ]


@pytest.mark.parametrize("undo_tuples", [0, 1_000], ids=["checkpoint/redo", "undo/redo"])
def test_what_missing_input_does_not_reach_stays_stable_and_comes_once(undo_tuples: int) -> None:
    machine = with_a_path_of_a(undo_tuples=undo_tuples)
    effects = give(machine, A, 0, [1, 11, 21], 40, 0) + give(machine, B, 0, [2, 12], 20, 0)
    assert written_alone(effects) == [(0, 0), (1, 1)]
    effects = wait_until(machine, BOUND_MS) + give(machine, A, 3, [51, 52], 70, 60)
    assert written_alone(effects) == [(2, 2), (3, 3), (4, 4)]
    assert said(effects) == [("tentative", 4), ("tentative", 5), ("tentative", 6)]
    effects = give(machine, B, 2, [22], 80, 70)
    assert written_alone(effects) == []
    assert said(effects) == [("undo", 4), ("rec_done", 8)]
    assert machine.statistics().output_tuples == 8 + 5, "each once"
    assert written_alone(give(machine, A, 5, [71], 90, 71)) == [(5, 5)]
    assert not [e for e in effects if _is_of(e, ALONE_FEED)]


def test_operators_that_missing_input_does_not_reach_stay_where_they_are() -> None:
    machine = with_a_path_of_a(undo_tuples=1_000)
    failed(machine)
    effects = wait_until(machine, BOUND_MS) + give(machine, A, 3, [51, 52], 55, 60)
    assert written_alone(effects) == [(2, 2)], "the window of 51 is open"
    pages = page_sets_of(machine)
    effects = give(machine, B, 2, [22], 55, 70)
    assert said(effects)[0][0] == "undo"
    assert said(effects)[-1][0] == "rec_done"
    assert page_sets_of(machine) == pages, "what was emptied is gone"
    assert sum(GIVEN) == 5, "each row once"
    effects = give(machine, A, 5, [58], 70, 80) + give(machine, B, 3, [56], 70, 80)
    assert written_alone(effects) == [(3, 3), (4, 4), (5, 5)], "they have what was in the window"
    assert stable(effects) == 4


def test_operators_that_have_stayed_go_back_in_the_next_failure_if_that_reaches_them() -> None:
    machine = with_a_path_of_a(undo_tuples=1_000)
    failed(machine)
    wait_until(machine, BOUND_MS)
    give(machine, A, 3, [51, 52], 55, 60)
    give(machine, B, 2, [22], 55, 70)
    give(machine, B, 3, [61], 80, 80)
    assert machine.consistency is not None
    effects = wait_until(machine, 80 + BOUND_MS)
    assert machine.consistency.state is Consistency.UP_FAILURE
    effects = give(machine, A, 5, [58], 80, 300)
    assert written_alone(effects) == [(3, 3), (4, 4), (5, 5)]
    assert machine.consistency.state is Consistency.STABLE


def test_a_correction_in_part_goes_back_with_all_operators() -> None:
    machine = with_a_path_of_a(undo_tuples=1_000)
    failed(machine)
    wait_until(machine, BOUND_MS)
    give(machine, A, 3, [51, 52], 70, 60)
    give(machine, B, 2, [22], 25, 60)
    assert sum(GIVEN) == 5
    effects = wait_until(machine, 60 + PATIENCE * BOUND_MS)
    assert ("undo", 4) in said(effects)
    assert sum(GIVEN) > 5
    effects = give(machine, B, 3, [61], 90, 900) + give(machine, A, 5, [71], 90, 900)
    assert written_alone(effects) == [(5, 5)]


def test_a_copied_cut_finds_the_page_sets_of_operators_that_were_emptied_before() -> None:
    machine = with_a_path_of_a(undo_tuples=12)
    give(machine, A, 0, [1, 11, 21], 40, 0)
    give(machine, B, 0, [2, 12, 22], 24, 0)
    wait_until(machine, BOUND_MS)
    give(machine, B, 3, [], 70, 60)
    replayed = unit_of(machine).replayed_tuples
    assert replayed > 0, "the state was made again"
    give(machine, A, 3, [75] * 20, 76, 80)  # More than are kept.
    give(machine, B, 3, [75], 76, 80)
    effects = give(machine, A, 23, [81], 99, 82) + wait_until(machine, 82 + BOUND_MS)
    assert len(written_alone(effects)) == 21
    effects = give(machine, B, 4, [], 99, 300)
    assert unit_of(machine).replayed_tuples == replayed, "it was copied"
    assert (said(effects)[-1][0], written_alone(effects)) == ("rec_done", [])
    assert stable(effects) == 22


def test_no_restart_point_is_noted_while_operators_are_apart() -> None:
    """What the further ones have put out does not belong to the cut of the others."""
    machine = with_a_path_of_a(undo_tuples=1_000, pass_tuples=1)
    failed(machine)
    effects = wait_until(machine, BOUND_MS) + give(machine, A, 3, [51, 52], 70, 60)
    effects += machine.step(events.SourceRead(B, (batch(B, 2, [22, 62], 80),), 80), 70)
    while machine.has_work:
        effects += machine.step(events.Proceed(), 70)
        for _ in range(ACK_INTERVALS_MAX):
            effects += machine.step(TimerFired("ack"), 70)
        written = {SINK: 8, ALONE: 5, FEED: machine.positions()["next_ids"][FEED]}
        for stream, before in written.items():
            effects += machine.step(events.SinkSynced(stream, before), 70)
    points = [e.point for e in effects if isinstance(e, events.StoreRestartPoint)]
    assert [point.next_ids[ALONE] for point in points if point.boundary_us > 20] == [5]


def test_what_feeds_an_operator_that_goes_back_goes_back_too() -> None:
    plan = with_a_path_of_a().plan
    operators = (
        OperatorSpec("f", counting, (("port", 0),)),
        OperatorSpec("u", lambda _: Union("u", SCHEMA), (("operator", 0), ("port", 1))),
        OperatorSpec("g", counting, (("operator", 0),)),
    )
    outputs = (replace(plan.outputs[0], source=("operator", 1)),)
    reach = Reach(replace(plan, operators=operators, outputs=outputs))
    reach.touch([1])
    assert reach.staying() == [False, False, True]
    reach.went_back()
    assert reach.staying() == [True, True, True]


def test_a_restart_point_within_a_correction_does_not_count_what_is_out_already() -> None:
    machine = with_a_path_of_a()
    failed(machine)
    effects = wait_until(machine, BOUND_MS) + give(machine, A, 3, [51, 52], 70, 60)
    assert len(written_alone(effects)) == 3
    effects = give(machine, B, 2, [22], 25, 60)
    now_ms = 60 + PATIENCE * BOUND_MS
    effects += machine.step(TimerFired("delay"), now_ms)
    while machine.has_work:
        effects += machine.step(events.Proceed(), now_ms)
        for _ in range(ACK_INTERVALS_MAX):
            effects += machine.step(TimerFired("ack"), now_ms)
        written = {SINK: 4, ALONE: 5, FEED: machine.positions()["next_ids"][FEED]}
        for stream, before in written.items():
            effects += machine.step(events.SinkSynced(stream, before), now_ms)
    points = [e.point for e in effects if isinstance(e, events.StoreRestartPoint)]
    (point,) = (each for each in points if each.boundary_us == 25)
    assert point.next_ids[ALONE] == 2, "of five that are out"
    heir = with_a_path_of_a(Assignment(1, TWO, point, {SINK: 4, FEED: 9, ALONE: 5, ALONE_FEED: 0}))
    effects += proceed(heir, 0) + give(heir, A, 0, [1, 11, 21, 51, 52, 71], 90, 1)
    effects += give(heir, B, 0, [2, 12, 22], 90, 2)
    assert written_alone(effects) == [(5, 5)]


@pytest.mark.parametrize("undo_tuples", [0, 1_000], ids=["checkpoint/redo", "undo/redo"])
def test_an_output_is_corrected_when_its_own_streams_are_back_whoever_else_is_missing(
    undo_tuples: int,
) -> None:
    """A's newest tuple waits for A's own next boundary, and B is silent for ever."""
    machine = with_a_path_of_a(undo_tuples=undo_tuples)
    give(machine, B, 0, [2], 12, 0)
    effects = give(machine, A, 0, [1, 11, 25], 25, 0)
    assert written_alone(effects) == [(0, 0)]
    effects = wait_until(machine, BOUND_MS)
    assert written_alone(effects) == [(1, 1)], "A has promised that much"
    assert machine.consistency is not None
    assert machine.consistency.state is Consistency.UP_FAILURE
    effects = give(machine, A, 3, [35], 36, 60)
    assert written_alone(effects) == [], "the node has gone on without A, too"
    effects = wait_until(machine, 60 + PATIENCE * BOUND_MS - 1)
    assert not [row for row in said(effects) if row[0] == "undo"]
    effects = wait_until(machine, 60 + PATIENCE * BOUND_MS)
    assert written_alone(effects) == [(2, 2)]
    assert machine.consistency.state is Consistency.UP_FAILURE
    assert machine.missing == (B,)
    effects = wait_until(machine, 60 + 3 * PATIENCE * BOUND_MS)
    assert said(effects) == [], "nobody goes back before A has promised more"
    effects = give(machine, A, 4, [], 80, 1_000) + give(machine, B, 1, [], 80, 1_000)
    assert written_alone(effects) == [(3, 3)]
    assert machine.consistency.state is Consistency.STABLE
    assert said(effects)[-1][0] == "rec_done"
