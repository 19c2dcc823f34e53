"""State behind state in one unit: what a replay begins with gets into no state."""

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from test_operator_network import reopened

from holdfast.core.errors import InvariantViolation
from holdfast.core.haunit.beginning import Beginning
from holdfast.core.haunit.events import Proceed, SourceRead, WriteSink
from holdfast.core.haunit.ha_unit import HAUnit
from holdfast.core.haunit.plan import InputSpec, NodePlan, OperatorSpec, OutputSpec
from holdfast.core.model.ids import BEGINNING_US, END_US, Incarnation, NodeId, StreamId
from holdfast.core.model.tuples import TupleBatch, with_time
from holdfast.core.operators.aggregate import WindowAggregate
from holdfast.core.operators.filter import Filter
from holdfast.core.recovery.restart_point import RestartPoint
from holdfast.core.state.page_manager import PageManager

SCHEMA = pa.schema([("v", pa.int64())])
IN, OUT = StreamId("in"), StreamId("out")


class Rare:
    """Whether fewer than three were counted; it remembers all that it was asked."""

    name, type = "is_rare", pa.bool_()

    def __init__(self) -> None:
        self.asked: list[int] = []

    def evaluate(self, batch: pa.RecordBatch) -> pa.Array:
        counted = batch.column(2)
        self.asked += counted.to_pylist()
        return pc.less(counted, 3)


class Counts(WindowAggregate):
    """It passes over nothing, as most operators do not."""

    def pass_over(self, closed_us: int) -> None:
        pass


def counts(name: str, schema: pa.Schema, size_us: int, pages: PageManager) -> WindowAggregate:
    count: list[Any] = [("count", None, "n")]
    return Counts(name, schema, [], count, size_us=size_us, manager=pages)


COUNTED = counts("", SCHEMA, 10, PageManager()).output_schema


class Number:
    """What was counted."""

    name, type = "n", pa.int64()

    def evaluate(self, batch: pa.RecordBatch) -> pa.Array:
        return batch.column(2)


def sums(name: str, schema: pa.Schema, size_us: int, pages: PageManager) -> WindowAggregate:
    total: list[Any] = [("sum", Number(), "n")]
    return Counts(name, schema, [], total, size_us=size_us, manager=pages)


SUMMED = sums("", COUNTED, 50, PageManager()).output_schema
THREE = (
    OperatorSpec("counts", lambda p: counts("counts", SCHEMA, 10, p), (("port", 0),)),
    OperatorSpec("sums", lambda p: sums("sums", COUNTED, 50, p), (("operator", 0),)),
    OperatorSpec("tops", lambda p: sums("tops", SUMMED, 100, p), (("operator", 1),)),
)


class Unit:
    """Windows of 10 µs, of which those with fewer than three tuples are counted by windows of 100.

    Both keep state, and are in one unit that reads a source.
    """

    def __init__(
        self, begins: Beginning | None = None, others: tuple[OperatorSpec, ...] = ()
    ) -> None:
        self.rare = Rare()
        specs = others or (
            OperatorSpec("counts", lambda p: counts("counts", SCHEMA, 10, p), (("port", 0),)),
            OperatorSpec("rare", lambda _: Filter("rare", COUNTED, self.rare), (("operator", 0),)),
            OperatorSpec("tops", lambda p: counts("tops", COUNTED, 100, p), (("operator", 1),)),
        )
        output = OutputSpec(
            ("operator", 2), SUMMED if others else COUNTED, (OUT,), (), is_sink=True
        )
        source = InputSpec(IN, 0, SCHEMA, None)
        plan = NodePlan(NodeId("n"), "n", 0, (source,), 1, specs, (output,))
        empty = Beginning(point=RestartPoint(), pages=PageManager(512), newest_sequence=0)
        begins = replace(begins or empty, incarnation=Incarnation(1), sink_next_ids={OUT: 0})
        self.unit = HAUnit(plan, begins, 0)
        self.unit.pass_over()
        if begins.is_at_cut:
            self.unit.resume(begins.point)
        self.unit.end_silence_if_due()
        self.unit.inputs.read_sources(0)

    def read(self, first_id: int, times: list[int], boundary_us: int) -> list[int]:
        """What the large windows have counted that have closed."""
        columns = [pa.array(times, pa.int64()), pa.array(times, pa.int64())]
        rows = pa.RecordBatch.from_arrays(columns, schema=with_time(SCHEMA))
        batches = (TupleBatch(first_id, rows, BEGINNING_US),) if times else ()
        self.unit.inputs.source_read(SourceRead(IN, batches, boundary_us), 0)
        effects = []
        while self.unit.has_work:
            effects += self.unit.run_pass(Proceed(), 0)[1]
            self.unit.check_invariants()
        written = [e.batch.batch for e in effects if isinstance(e, WriteSink)]
        return [n for batch in written for n in batch.column(2).to_pylist()]


def at_a_cut() -> tuple[Unit, RestartPoint]:
    """The window from 20 on was rare, the one before it was not: tuple 4 came late for that."""
    unit = Unit()
    for first_id, times, boundary_us in ((0, [11, 12, 13], 5), (3, [25], 5), (4, [14], 20)):
        assert unit.read(first_id, times, boundary_us) == []
    assert unit.read(5, [], 30) == []
    assert unit.rare.asked == [4, 1]
    return unit, unit.unit.cut(1)


def test_partial_results_of_a_replay_get_into_no_state_behind_them() -> None:
    first, cut = at_a_cut()
    assert cut.needed_from == {IN: 3}, "the tuple of the rare window"
    assert first.read(5, [35], 110) == [2]
    again = Unit(Beginning(point=cut, pages=PageManager(), newest_sequence=1, silent_to=cut))
    assert again.unit.replay.left_out == ["rare", "tops"]
    assert again.read(3, [25, 14], 20) == []
    assert again.rare.asked == [1], "tuple 4 alone would be a rare window, too"
    assert again.read(5, [35], 110) == [2]
    assert again.rare.asked == [1, 1]
    assert again.unit.cut(2).needed_from == first.unit.cut(2).needed_from


def test_of_three_the_second_has_let_go_in_the_pass_in_which_it_gives_to_the_third() -> None:
    first = Unit(others=THREE)
    for number in range(12):  # The one before the last closes the first window of 50.
        assert first.read(number, [number * 5], number * 5) == []
    cut = first.unit.cut(1)
    assert {name: at.boundary_us for name, at in cut.taking_part.items()} == {"sums": 5, "tops": 45}
    assert first.read(12, [100], 110) == [12]
    again = Unit(Beginning(point=cut, pages=PageManager(), newest_sequence=1, silent_to=cut), THREE)
    for number in range(cut.needed_from[IN], 12):
        assert again.read(number, [number * 5], number * 5) == []
    assert again.read(12, [100], 110) == [12]


def test_a_point_of_an_earlier_version_leaves_nobody_out() -> None:
    _, cut = at_a_cut()
    cut = replace(cut, taking_part={}, needed_from={IN: 0})
    again = Unit(Beginning(point=cut, pages=PageManager(), newest_sequence=1, silent_to=cut))
    assert again.read(0, [11, 12, 13, 25, 14], 20) == []
    assert again.read(5, [35], 110) == [2]


def test_without_a_replay_in_silence_operators_are_left_out_all_the_same() -> None:
    """Rollback recovery: what comes twice does no harm, but nothing may be lost."""
    _, cut = at_a_cut()
    again = Unit(Beginning(point=cut, pages=PageManager(), newest_sequence=1))
    assert not again.unit.may_cut
    assert again.read(3, [25, 14], 20) == []
    assert again.unit.may_cut
    assert again.read(5, [35], 110) == [2]


def test_who_takes_over_a_copy_of_the_state_knows_what_it_goes_back_to() -> None:
    first, cut = at_a_cut()
    copied = first.unit.cut(2, is_state_kept=True)
    assert copied.needed_from == {IN: 5}

    def taken_over(point: RestartPoint) -> HAUnit:
        pages = reopened(first.unit.network.pages)
        return Unit(Beginning(point=point, pages=pages, newest_sequence=2, is_at_cut=True)).unit

    over = taken_over(replace(copied, older=(cut,)))
    assert over.replay.is_over
    noted = over.cut(3)
    assert (noted.needed_from, noted.taking_part["tops"].boundary_us) == (cut.needed_from, 20)
    with pytest.raises(InvariantViolation, match="before all it was given"):
        taken_over(replace(copied, taking_part={})).cut(3)


def test_once_nothing_is_held_all_take_part_from_the_cut_on() -> None:
    unit, _ = at_a_cut()
    assert unit.read(5, [], END_US) == [1]
    cut = unit.unit.cut(2)
    assert cut.needed_from == {IN: 5}
    assert {each.boundary_us for each in cut.taking_part.values()} == {END_US}
    assert RestartPoint.from_json(cut.to_json()) == cut
    with pytest.raises(ValueError, match="operators take part"):
        RestartPoint.from_json(cut.to_json() | {"taking_part": []})
