"""The checkers themselves: what they accept, what they refuse, and what they call it."""

from collections import Counter
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest

from holdfast.api.steps import FromGenerator, Step
from holdfast.core.coordinator.journal_entries import (
    LineMoved,
    NewLife,
    PointNoted,
    RecoveryDecision,
)
from holdfast.core.haunit import events
from holdfast.core.haunit.delayed_unit import Waits
from holdfast.core.haunit.plan import Cuts, DelayPlan
from holdfast.core.haunit.told import GoOnTold, HaltTold
from holdfast.core.model.ids import (
    BEGINNING_US,
    NO_ID,
    NOBODY,
    CheckpointId,
    Incarnation,
    NodeId,
    PointId,
    StreamId,
)
from holdfast.core.recovery.guarantee import Guarantee
from holdfast.core.recovery.restart_point import CheckpointRef, RestartPoint
from holdfast.core.replication.consistency_manager import Consistency
from holdfast.core.replication.input_delay import DuringFailure
from holdfast.sim.checkers import Kept, Lines, RestartPoints, Tape, Trimming, Violation
from holdfast.sim.checkers.output import check_order, check_precise, check_sum, check_times
from holdfast.sim.checkers.promises import Row, check_extra, check_held, check_part_sum
from holdfast.sim.checkers.waiting import Waiting
from holdfast.sim.workload.oracle import Adding, Conserved
from holdfast.sim.workload.promises import Extra, Held, Level, Promise

STEP = Step(FromGenerator(generator=None, partitions=1), "s", "s", pa.schema([]))
EXPECTED = Counter({("a", 1): 2, ("b", 2): 1})


def test_precise_is_exactly_what_was_expected() -> None:
    check_precise("out", EXPECTED, Counter(EXPECTED))


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (Counter({("b", 2): -1}), "1 lost"),
        (Counter({("b", 2): 1}), "1 doubled"),
        (Counter({("c", 3): 1}), "1 never expected"),
    ],
)
def test_precise_names_the_kind_of_difference(change: Counter[tuple[str, int]], word: str) -> None:
    found = Counter(EXPECTED)
    found.update(change)
    with pytest.raises(Violation, match=f"I-PRECISE.*{word}"):
        check_precise("out", EXPECTED, +found)


ROLLBACK = Promise(
    Level(Held.ALL, Extra.COPIES),
    Level(Held.ALL, Extra.COPIES),
    frozenset({Guarantee.ROLLBACK}),
    frozenset(),
    frozenset(),
    may_repeat=False,
)
GAP = replace(
    ROLLBACK,
    level=Level(Held.SETTLED, Extra.NOTHING),
    given=Level(Held.SETTLED, Extra.NOTHING),
    guarantees=frozenset({Guarantee.GAP}),
)
ROWS = [(False, ("a", 1)), (False, ("a", 1)), (True, ("b", 2))]
"""The rows of `EXPECTED`, and whether they are settled."""


def check(promise: Promise, *rows: Row, may_repeat: bool = False) -> None:
    check_held("out", promise, ROWS, Counter(rows))
    check_extra("out", promise, ROWS, Counter(rows), may_repeat=may_repeat)


def test_rollback_loses_nothing_and_repeats_only_what_came_before_a_failure() -> None:
    check(ROLLBACK, ("a", 1), ("a", 1), ("b", 2), ("a", 1))
    with pytest.raises(Violation, match=r"I-ROLLBACK.*1 lost"):
        check(ROLLBACK, ("a", 1), ("b", 2))
    with pytest.raises(Violation, match=r"I-ROLLBACK.*1 never expected"):
        check(ROLLBACK, ("a", 1), ("a", 1), ("b", 2), ("c", 3))
    with pytest.raises(Violation, match=r"I-ROLLBACK.*1 doubled"):
        check(ROLLBACK, ("a", 1), ("a", 1), ("b", 2), ("b", 2))


def test_rollback_puts_out_windows_in_parts_but_no_others_and_none_that_have_more() -> None:
    parts = replace(ROLLBACK, level=Level(Held.ALL, Extra.PARTS), groups=(0,), counts=(1,))
    rows = [("a", 1), ("a", 1), ("b", 2)]
    check(parts, *rows, ("b", 1))
    with pytest.raises(Violation, match=r"I-ROLLBACK.*never expected"):
        check(parts, *rows, ("b", 3))
    with pytest.raises(Violation, match=r"I-ROLLBACK.*never expected"):
        check(parts, *rows, ("c", 1))


def test_gap_loses_only_what_came_before_a_failure_and_doubles_nothing() -> None:
    check(GAP, ("b", 2))
    with pytest.raises(Violation, match=r"I-GAP.*1 lost"):
        check(GAP, ("a", 1), ("a", 1))
    with pytest.raises(Violation, match=r"I-GAP.*1 doubled"):
        check(GAP, ("a", 1), ("a", 1), ("a", 1), ("b", 2))
    with pytest.raises(Violation, match=r"I-GAP.*1 never expected"):
        check(GAP, ("b", 2), ("c", 3))


def test_several_failures_at_once_may_double_what_came_before_them_and_nothing_else() -> None:
    check(GAP, ("a", 1), ("a", 1), ("a", 1), ("b", 2), may_repeat=True)
    with pytest.raises(Violation, match=r"I-GAP.*1 doubled"):
        check(GAP, ("b", 2), ("b", 2), may_repeat=True)


def test_a_window_of_which_a_part_was_lost_comes_once() -> None:
    parts = replace(GAP, level=Level(Held.SETTLED, Extra.PARTS), groups=(0,), counts=(1,))
    rows = [(False, ("a", 3)), (True, ("b", 2))]
    check_extra("out", parts, rows, Counter([("a", 1), ("b", 2)]), may_repeat=False)
    with pytest.raises(Violation, match="I-GAP"):
        check_extra("out", parts, rows, Counter([("a", 1), ("a", 2)]), may_repeat=False)


@pytest.mark.parametrize(("promise", "wrong"), [(ROLLBACK, 3), (GAP, 5)])
def test_what_the_clock_decides_adds_up_to_all_input_at_least_or_at_most(
    promise: Promise, wrong: int
) -> None:
    conserved = Conserved(
        STEP, lambda row: (), lambda row: (), lambda row: row.values["n"], is_whole=True
    )
    adding = Adding(("n",), Counter({(): 4}), conserved)
    for total in (3, 4, 5):
        if total != wrong:
            check_part_sum("any", adding, promise, [(0, (total,))], may_repeat=False)
    with pytest.raises(Violation, match=r"I-ROLLBACK|I-GAP"):
        check_part_sum("any", adding, promise, [(0, (wrong,))], may_repeat=False)


def test_a_row_with_another_time_is_a_violation_of_its_own() -> None:
    check_times("out", Counter([(1, ("a",)), (2, ("b",))]), Counter([(2, ("b",)), (1, ("a",))]))
    with pytest.raises(Violation, match="I-TIME"):
        check_times("out", Counter([(1, ("a",))]), Counter([(2, ("a",))]))


def test_rows_in_another_order_are_a_violation_of_their_own() -> None:
    rows = [(1, ("a",)), (1, ("b",))]
    check_order("out[0]", rows, list(rows))
    with pytest.raises(Violation, match=r"I-ORDER.*tuple 0"):
        check_order("out[0]", rows, rows[::-1])


@pytest.mark.parametrize("is_whole", [True, False])
def test_counts_make_up_their_input_and_a_sample_is_a_part_of_it(is_whole: bool) -> None:
    conserved = Conserved(
        STEP,
        group=lambda row: (row.values["k"],),
        said=lambda row: (row.values["k"],),
        weight=lambda row: row.values["n"],
        is_whole=is_whole,
    )
    adding = Adding(("k", "n"), Counter({("a",): 3, ("b",): 1}), conserved)
    check_sum("any", adding, [(0, ("a", 1)), (0, ("a", 2)), (0, ("b", 1))])
    with pytest.raises(Violation, match="I-SUM"):
        check_sum("any", adding, [(0, ("a", 2)), (0, ("a", 2)), (0, ("b", 1))])
    if is_whole:
        with pytest.raises(Violation, match="I-SUM"):
            check_sum("any", adding, [(0, ("a", 3))])
    else:
        check_sum("any", adding, [(0, ("a", 3))])


def process_of(life: Any) -> Any:
    """Some process that a driver has brought up, and counts."""
    return SimpleNamespace(
        plan=SimpleNamespace(replica_stream=None),
        endpoint=SimpleNamespace(name=f"a process of {life.name}"),
        life=life,
        is_dead=False,
        is_current=True,
    )


def test_what_a_secondary_lacks_must_be_kept_by_processes_of_its_own_driver_alone() -> None:
    """Lives of the driver overlap: the newer one's processes trim what those of the former lack.

    A driver stands still; the next one brings up all instances anew, whose receivers let go of
    tuples that a secondary of the former driver has never had. Nobody promotes that one any more.
    """
    stream = StreamId("a[0]>b[0]")
    former, newer = (SimpleNamespace(name=name, is_over=False) for name in ("one", "two"))
    kept = Kept()
    kept.performing(process_of(former), events.SendAck(stream, 1, 10, 10, 50, is_secondary=True))
    kept.performing(process_of(newer), events.TrimSpill(stream, 20))
    with pytest.raises(Violation, match="I-KEEP"):
        kept.performing(process_of(former), events.TrimSpill(stream, 20))


SENDER, RECEIVER, STREAM = NodeId("a[0]"), NodeId("b[0]"), StreamId("a[0]>b[0]")
SENT, TAKEN = RestartPoint(1, next_ids={STREAM: 21}), RestartPoint(1, processed_before={STREAM: 21})
AT_25 = RestartPoint(processed_before={STREAM: 25})


def begun() -> tuple[Any, ...]:
    """The journal of two that recover together, each with a point."""
    return lives(1, SENDER, RECEIVER), noted(SENDER, SENT), noted(RECEIVER, TAKEN)


def lines_of_two() -> Lines:
    """A sender, and a receiver that recovers together with it; both are at work."""
    spec = SimpleNamespace(stream=STREAM, producer=SENDER, is_from_region=True, is_feedback=False)
    common = {"region": "r", "cuts": Cuts.UNCOORDINATED, "checkpoints": None}
    plans = [
        SimpleNamespace(node=SENDER, inputs=(), **common),
        SimpleNamespace(node=RECEIVER, inputs=(spec,), **common),
    ]
    lines = Lines()
    world: Any = SimpleNamespace(plans={plan.node: plan for plan in plans})
    lines.begin(world)
    lines.journalled(begun())
    return lines


def lives(incarnation: int, *nodes: NodeId, back_to: int = 0) -> RecoveryDecision:
    point = PointId(Incarnation(1) if back_to else NOBODY, back_to)
    return RecoveryDecision(tuple(NewLife(n, Incarnation(incarnation), point) for n in nodes))


def noted(node: NodeId, point: RestartPoint) -> PointNoted:
    return PointNoted(node, Incarnation(1), point, keeps_older=True)


def says_where(lines: Lines, incarnation: int, attempt: int, place: RestartPoint) -> None:
    """The receiver's process of an incarnation says that it has halted."""
    done = {"processed": place.processed_before}
    machine = SimpleNamespace(incarnation=incarnation, positions=lambda: done)
    process: Any = SimpleNamespace(node=RECEIVER, machine=machine)
    word = events.ReportHalted(attempt, 0, place)
    lines.stepped(process, HaltTold(attempt), [word])


def test_a_survivor_that_has_more_than_its_sender_goes_back_to_is_a_violation() -> None:
    lines = lines_of_two()
    says_where(lines, 1, 2, AT_25)
    with pytest.raises(Violation, match=r"I-LINE.*has 25 .*has sent 21"):
        lines.journalled((lives(2, SENDER, back_to=1),))


def test_where_a_node_of_an_earlier_driver_halted_is_not_where_its_successor_stands() -> None:
    """Attempts count from 1 in each life of the driver, so the two name the same one.

    1. The driver halts all, and another one takes over before it decides. 2. That one brings up
    all anew. 3. The sender is lost; the new receiver halts at 21. 4. The former receiver, which has
    heard of nothing, says once more that it has halted at 25.
    """
    lines = lines_of_two()
    says_where(lines, 1, 2, AT_25)
    lines.recovered(())
    says_where(lines, 1, 2, AT_25)
    lines.journalled((lives(2, SENDER, RECEIVER, back_to=1),))
    says_where(lines, 2, 2, TAKEN)
    says_where(lines, 1, 2, AT_25)
    lines.journalled((lives(3, SENDER, back_to=1),))
    with pytest.raises(Violation, match=r"I-HALT.*21.*25"):
        says_where(lines, 2, 3, AT_25)


def test_only_a_node_that_is_told_to_go_on_may_go_on() -> None:
    lines = lines_of_two()
    says_where(lines, 1, 2, TAKEN)
    machine = SimpleNamespace(incarnation=1)
    process: Any = SimpleNamespace(node=RECEIVER, machine=machine)
    lines.stepping(process, GoOnTold(2, {}))
    says_where(lines, 1, 3, AT_25)


def test_the_line_may_have_moved_in_a_journal_whose_driver_never_heard_so() -> None:
    first, second = PointId(Incarnation(1), 1), PointId(Incarnation(1), 2)
    sent, taken = (
        replace(SENT, next_ids={STREAM: 31}),
        replace(TAKEN, processed_before={STREAM: 31}),
    )
    newer = (noted(SENDER, replace(sent, sequence=2)), noted(RECEIVER, replace(taken, sequence=2)))
    for is_known in (True, False):
        lines = lines_of_two()
        former = (*newer, LineMoved({SENDER: first, RECEIVER: first}))
        lines.journalled(former)
        if is_known:
            lines.recovered((*begun(), *former, LineMoved({SENDER: second})))
            lines.journalled((LineMoved({RECEIVER: second}),))
        else:
            with pytest.raises(Violation, match=r"I-LINE.*has 31 .*has sent 21"):
                lines.journalled((LineMoved({RECEIVER: second}),))


def drivers_that_find(guarantee: Guarantee, *needed_from: int) -> None:
    """Each driver finds one more point of a node, which needs its input from there on."""
    node, stream = NodeId("op[0]"), StreamId("s[0]>op[0].0")
    inputs = (SimpleNamespace(stream=stream, alternates=()),)
    plan = SimpleNamespace(
        node=node,
        guarantee=guarantee,
        rebases=guarantee is not Guarantee.PRECISE,
        inputs=inputs,
        producers=lambda: (),
    )
    world: Any = SimpleNamespace(plans={node: plan}, sinks={})
    checker = Trimming()
    checker.begin(world)
    journal: tuple[PointNoted, ...] = ()
    for number, needed in enumerate(needed_from, start=1):
        point = RestartPoint(number, needed_from={stream: needed})
        noted = PointNoted(node, Incarnation(number), point)
        checker.recovered((*journal, noted))
        journal += (noted,)


def test_a_driver_that_finds_an_older_point_has_lost_one_unless_nothing_is_kept_for_it() -> None:
    with pytest.raises(Violation, match=r"I-LOW.*lost a restart point"):
        drivers_that_find(Guarantee.PRECISE, 140, 78)
    drivers_that_find(Guarantee.PRECISE, 78, 140)
    drivers_that_find(Guarantee.GAP, 140, 78)


def test_only_who_was_replaced_meanwhile_may_begin_anew_behind_a_checkpoint() -> None:
    node, checker = NodeId("op[0]"), RestartPoints(Tape())
    stored = RestartPoint(3, checkpoint=CheckpointRef(CheckpointId(2, Incarnation(2)), 0))
    checker.journalled((lives(3, node), PointNoted(node, Incarnation(3), stored)))
    late: Any = SimpleNamespace(node=node, incarnation=Incarnation(2))
    checker.restored(late, RestartPoint())
    with pytest.raises(Violation, match=r"I-STORE.*begins anew, which was given up"):
        checker.restored(
            cast("Any", SimpleNamespace(node=node, incarnation=Incarnation(3))), RestartPoint()
        )


Look = tuple[int, int, int, int, int]
"""When, in ms; the oldest tuple held; what is merged; what is promised; what was reached."""


def goes_on(at_ms: int, looks: list[Look], windows: tuple[int, ...]) -> None:
    """A node goes on without input, after looks at its first stream; windows close at these times.

    It waits for 100 ms. Windows are in the operators when their stream has nothing held.
    """
    node = NodeId("n")
    delays = DelayPlan(100, DuringFailure.PROCESS)
    spec = SimpleNamespace(node=node, delays=delays, inputs=(0, 1))
    scheduler = SimpleNamespace(now_us=0)
    world: Any = SimpleNamespace(
        faults={}, plans={node: spec}, scheduler=scheduler, count=lambda _: None
    )
    checker = Waiting()
    checker.begin(world)
    for number, (now_ms, oldest, merged, promised, reached) in enumerate([*looks, looks[-1]]):
        is_over = number == len(looks)

        def closes(boundary_us: int, oldest: int = oldest) -> int:
            ends = [end for end in windows if oldest == NO_ID and end <= boundary_us]
            return max(ends, default=BEGINNING_US)

        waits = [Waits(oldest, merged, promised, closes)]
        state = Consistency.UP_FAILURE if is_over else Consistency.STABLE
        machine = SimpleNamespace(
            plan=spec,
            consistency=SimpleNamespace(state=state, failures=int(is_over)),
            has_room=True,
            has_suffixes=False,
            statistics=lambda reached=reached: SimpleNamespace(boundary_us=reached),
            waiting=lambda waits=waits: waits,
        )
        scheduler.now_us = 1_000 * (at_ms if is_over else now_ms)
        process: Any = SimpleNamespace(node=node, machine=machine)
        checker.stepped(process, events.Proceed(), [])


def test_the_first_of_several_results_has_waited_since_its_own_boundary() -> None:
    """Both of its windows come into the operators when later boundaries have come as well."""
    looks = [
        (0, 0, 1, BEGINNING_US, BEGINNING_US),
        (10, 0, 1, 350, BEGINNING_US),
        (80, 0, 1, 700, BEGINNING_US),
        (90, NO_ID, 1, 700, 300),
    ]
    goes_on(111, looks, (350, 700))
    with pytest.raises(Violation, match="I-MIN"):
        goes_on(111, looks, (700,))


def test_nothing_of_a_stream_waits_since_before_its_first_tuple() -> None:
    looks = [
        (0, NO_ID, 0, 350, BEGINNING_US),
        (50, 0, 1, 350, BEGINNING_US),
        (60, 0, 1, 700, BEGINNING_US),
    ]
    goes_on(151, looks, ())
    with pytest.raises(Violation, match="I-MIN"):
        goes_on(111, looks, ())
