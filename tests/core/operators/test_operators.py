"""Each operator against a plain model, and independence of the cuts into passes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal
from typing import Literal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from passes import SCHEMA, Column, IsPositive, Lifetime, Row, passes_of, rows_strategy, run

from holdfast.core.errors import LocalProtocolError
from holdfast.core.model.ids import END_US, NO_ID
from holdfast.core.operators.aggregate import WindowAggregate
from holdfast.core.operators.base import ArithmeticOverflow, Operator, Rows
from holdfast.core.operators.filter import Filter
from holdfast.core.operators.incremental_join import IncrementalJoin
from holdfast.core.operators.join import JoinLayout, OutputField
from holdfast.core.operators.map import Map
from holdfast.core.operators.running_join import RunningJoin
from holdfast.core.operators.union import Union
from holdfast.core.operators.windowed_join import WindowedJoin
from holdfast.core.state.page_manager import PageManager

AGGREGATES: list[tuple[str, str | None]] = [
    ("count", None), ("count", "i"), ("sum", "i"), ("avg", "i"), ("min", "i"), ("max", "i"),
    ("sum", "x"), ("avg", "x"), ("min", "x"), ("max", "x"), ("sum", "d"), ("avg", "d"),
    ("min", "d"), ("max", "d"), ("min", "k"), ("max", "k"),
]  # fmt: skip


def aggregate(slide: int = 10, emit: str = "final", keys: Sequence[str] = ("k", "x")) -> Operator:
    chosen = [
        (function, None if column is None else Column(column), f"{function}_{column}")
        for function, column in AGGREGATES
    ]
    return WindowAggregate(
        "agg", SCHEMA, list(keys), chosen, size_us=10, slide_us=slide, emit=emit,  # type: ignore[arg-type]
        manager=PageManager(page_bytes=512),
    )  # fmt: skip


FIELDS: list[OutputField] = [
    ("left", "k", "lk"), ("left", "i", "li"), ("right", "x", "rx"), ("right", "d", "rd"),
]  # fmt: skip
ON_K = JoinLayout("join", (SCHEMA, SCHEMA), (["k"], ["k"]), FIELDS)
ON_K_AND_I = JoinLayout("join", (SCHEMA, SCHEMA), (["k", "i"], ["k", "i"]), FIELDS)


def windowed(how: Literal["inner", "left"] = "inner") -> Operator:
    return WindowedJoin(ON_K, size_us=10, how=how, manager=PageManager(page_bytes=512))


def running() -> Operator:
    return RunningJoin(ON_K, size_us=10, manager=PageManager(page_bytes=512))


def incremental() -> Operator:
    return IncrementalJoin(ON_K_AND_I, manager=PageManager(page_bytes=512))


OPERATORS: dict[str, tuple[Callable[[], Operator], int]] = {
    "filter": (lambda: Filter("filter", SCHEMA, IsPositive()), 1),
    "map": (lambda: Map("map", [Column("i"), Column("k")]), 1),
    "union": (lambda: Union("union", SCHEMA), 2),
    "tumbling": (aggregate, 1),
    "sliding": (lambda: aggregate(slide=4), 1),
    "global": (lambda: aggregate(keys=()), 1),
    "changes": (lambda: aggregate(emit="changes"), 1),
    "sliding changes": (lambda: aggregate(slide=4, emit="changes"), 1),
    "windowed join": (windowed, 2),
    "left windowed join": (lambda: windowed("left"), 2),
    "incremental join": (incremental, 2),
    "running join": (running, 2),
}


@pytest.mark.parametrize("kind", OPERATORS)
@given(rows=rows_strategy, cuts=st.lists(st.integers(0, 40), max_size=6), is_sorted=st.booleans())
@settings(max_examples=25)
def test_output_does_not_depend_on_the_cuts(
    kind: str, rows: list[Row], cuts: list[int], is_sorted: bool
) -> None:
    build, ports = OPERATORS[kind]
    if is_sorted:
        rows = sorted(rows, key=lambda row: row[1])
    whole, _ = run(build(), rows, [], ports)
    parts, _ = run(build(), rows, cuts, ports)
    assert parts == whole


def _group(value: object) -> object:
    return "nan" if value != value else value


@given(rows=rows_strategy, slide=st.sampled_from([10, 4, 3]))
@settings(max_examples=60)
def test_an_aggregate_equals_the_plain_model(rows: list[Row], slide: int) -> None:
    _, output = run(aggregate(slide), rows, [7, 20], 1)
    groups: dict[tuple[object, ...], list[dict[str, object]]] = {}
    for _, time, value in rows:
        for start in range(time // slide * slide - 12, time + 1):
            if start % slide == 0 and start <= time < start + 10:
                groups.setdefault((start, value["k"], _group(value["x"])), []).append(value)
    expected = sorted(groups.items(), key=lambda item: item[0][0])  # type: ignore[arg-type,return-value]
    assert len(output) == len(expected)
    for row, ((start, k, x), members) in zip(output, expected, strict=True):
        assert row["window_start"].timestamp() * 1e6 == pytest.approx(start)  # type: ignore[attr-defined]
        assert (row["k"], _group(row["x"])) == (k, x)
        ints = [m["i"] for m in members if m["i"] is not None]
        decs = [m["d"] for m in members if m["d"] is not None]
        assert row["count_None"] == len(members)
        assert row["count_i"] == len(ints)
        assert row["sum_i"] == (sum(ints) if ints else None)  # type: ignore[arg-type]
        assert row["avg_i"] == (sum(ints) / len(ints) if ints else None)  # type: ignore[arg-type]
        assert row["min_i"] == min(ints, default=None)  # type: ignore[type-var]
        assert row["max_i"] == max(ints, default=None)  # type: ignore[type-var]
        assert row["sum_d"] == (sum(decs) if decs else None)  # type: ignore[arg-type]
        assert row["min_d"] == min(decs, default=None)  # type: ignore[type-var]
        assert row["max_d"] == max(decs, default=None)  # type: ignore[type-var]
        if decs:
            mean = sum(decs, Decimal(0)) / len(decs)  # type: ignore[arg-type]
            assert row["avg_d"] == mean.quantize(Decimal("0.000001"), ROUND_HALF_UP)
        assert row["min_k"] == k
        assert row["max_k"] == k
        assert _group(row["min_x"]) == _group(row["max_x"]) == x


@given(rows=rows_strategy, how=st.sampled_from(["inner", "left"]))
@settings(max_examples=40)
def test_a_windowed_join_equals_nested_loops(rows: list[Row], how: str) -> None:
    _, output = run(windowed(how), rows, [5, 9], 2)
    expected: list[tuple[object, ...]] = []
    for start in range(-30, 70, 10):
        inside = [row for row in rows if start <= row[1] < start + 10]
        for left in [value for port, _, value in inside if port == 0]:
            right = [
                value for port, _, value in inside
                if port == 1 and value["k"] is not None and value["k"] == left["k"]
            ]  # fmt: skip
            pairs = [(left["k"], left["i"], repr(r["x"]), r["d"]) for r in right]
            if not pairs and how == "left":
                pairs = [(left["k"], left["i"], "None", None)]
            expected += pairs
    assert [(r["lk"], r["li"], repr(r["rx"]), r["rd"]) for r in output] == expected


@given(rows=rows_strategy)
@settings(max_examples=40)
def test_an_incremental_join_emits_each_pair_when_its_later_row_arrives(rows: list[Row]) -> None:
    _, output = run(incremental(), rows, [3, 11], 2)
    expected: list[tuple[object, ...]] = []
    for n, (port, _, value) in enumerate(rows):
        for other_port, _, other in rows[:n]:
            if port == other_port or value["k"] is None or value["i"] is None:
                continue
            if (value["k"], value["i"]) == (other["k"], other["i"]):
                left, right = (value, other) if port == 0 else (other, value)
                expected.append((left["k"], left["i"], repr(right["x"]), right["d"]))
    assert [(r["lk"], r["li"], repr(r["rx"]), r["rd"]) for r in output] == expected


@given(rows=rows_strategy)
@settings(max_examples=40)
def test_a_running_join_emits_each_pair_of_a_window_when_its_later_row_arrives(
    rows: list[Row],
) -> None:
    life = Lifetime(running(), rows, 2)
    life.take(0, [3, 11], len(rows))
    expected: list[tuple[object, ...]] = []
    for n, (port, time, value) in enumerate(rows):
        for other_port, other_time, other in rows[:n]:
            if port == other_port or value["k"] is None or value["k"] != other["k"]:
                continue
            if time // 10 == other_time // 10:
                left, right = (value, other) if port == 0 else (other, value)
                pair = (left["k"], left["i"], repr(right["x"]), right["d"])
                expected.append((time // 10 * 10, max(time, other_time), *pair))
    found = [
        (_us(r["window_start"]), time, r["lk"], r["li"], repr(r["rx"]), r["rd"])
        for time, r in zip(life.times, life.output, strict=True)
    ]
    assert found == expected
    assert all(_us(r["window_end"]) == _us(r["window_start"]) + 10 for r in life.output)


def test_a_running_join_gives_the_pages_of_closed_windows_back() -> None:
    manager = PageManager(page_bytes=512)
    operator = RunningJoin(ON_K, size_us=10, manager=manager)
    for start in range(0, 500, 10):
        rows = [(n % 2, start, _one(n)[2]) for n in range(50)]
        operator.process(passes_of(rows, 2), np.zeros(1, np.int64), start + 10)
        manager.check_invariants()
    assert manager.statistics().pages_used == 2, "the directory's and the boundary's"


@pytest.mark.parametrize(
    ("build", "kept"),
    [(running, 0), (incremental, 0), (windowed, 0), (lambda: windowed("left"), 1)],
)
def test_rows_that_can_match_nothing_are_not_kept(build: Callable[[], Operator], kept: int) -> None:
    operator = build()
    without = {"k": None, "x": 0.0, "i": 1, "d": None}
    low = np.array([7], dtype=np.int64)
    given = passes_of([(0, 5, without), (1, 5, without)], 2)
    assert operator.process(given, low, 5).rows is None
    operator.check_invariants()
    state, needed = operator.state_rows(), operator.oldest_needed()
    assert (0 if state is None else state.num_rows) == kept
    assert (needed is not None) == bool(kept)


@given(rows=rows_strategy, cuts=st.lists(st.integers(0, 40), max_size=6))
@settings(max_examples=25)
def test_windows_may_close_into_a_running_join(rows: list[Row], cuts: list[int]) -> None:
    """Both sides are results of closed windows of one stream, whatever the cuts."""

    def pairs(cuts: Sequence[int]) -> list[object]:
        sides = [
            WindowAggregate("a", SCHEMA, ["k"], [("count", None, "n")], size_us=size)
            for size in (5, 10)
        ]
        fields: list[OutputField] = [("left", "n", "five"), ("right", "n", "ten")]
        schemas = [side.output_schema for side in sides]
        layout = JoinLayout("j", (schemas[0], schemas[1]), (["k"], ["k"]), fields)
        join = RunningJoin(layout, size_us=20)
        found: list[object] = []
        for begin, end in itertools.pairwise([0, *sorted(min(c, len(rows)) for c in cuts), None]):
            rest = [] if end is None else [time for _, time, _ in rows[end:]]
            low = np.zeros(1, dtype=np.int64)
            given = passes_of(rows[begin:end], 1)
            boundary = min(rest, default=END_US)
            closed = [side.process(given, low, boundary).rows for side in sides]
            output = join.process(closed, low, boundary).rows
            if output is not None:
                listed = output.batch.to_pylist()
                found += zip(output.time_us.tolist(), map(str, listed), strict=True)
        return found

    rows = sorted(rows, key=lambda row: row[1])
    assert pairs(cuts) == pairs([])


def _us(time: object) -> int:
    assert isinstance(time, datetime)
    return (time - datetime.fromtimestamp(0, UTC)) // timedelta(microseconds=1)


def test_what_a_running_join_needs_and_depends_on_is_that_of_its_open_windows() -> None:
    operator = running()
    left, right = _one(1, 5), (1, 6, _one(2)[2])
    operator.process(passes_of([left], 2), np.array([7, NO_ID]), 5)
    operator.process(passes_of([(0, 15, left[2])], 2), np.array([8, NO_ID]), 6)
    output = operator.process(passes_of([right], 2), np.array([NO_ID, 3]), 6)
    assert output.low is not None
    assert output.low.tolist() == [7, 3], "the pair's left row was the tuple 7"
    needed = operator.oldest_needed()
    assert needed is not None
    assert needed.tolist() == [7, 3]
    assert operator.process([None, None], np.array([NO_ID, NO_ID]), 10).rows is None
    needed = operator.oldest_needed()
    assert needed is not None
    assert needed.tolist() == [8, NO_ID]
    with pytest.raises(LocalProtocolError, match="older than the boundary"):
        operator.process(passes_of([right], 2), np.zeros(2, np.int64), 10)


def _one(value: int, time: int = 0) -> Row:
    return (0, time, {"k": "a", "x": 0.0, "i": value, "d": None})


def test_an_integer_sum_that_overflows_is_refused_by_name() -> None:
    operator = WindowAggregate("a", SCHEMA, [], [("sum", Column("i"), "total")], size_us=10)
    with pytest.raises(ArithmeticOverflow, match="total"):
        operator.process(passes_of([_one(2**63 - 1), _one(1)], 1), np.zeros(1, np.int64), 0)


def test_a_row_older_than_the_boundary_is_refused() -> None:
    operator = aggregate()
    operator.process(passes_of([_one(1, 5)], 1), np.zeros(1, np.int64), 20)
    with pytest.raises(LocalProtocolError, match="older than the boundary"):
        operator.process(passes_of([_one(1, 5)], 1), np.zeros(1, np.int64), 20)


def test_low_watermarks_follow_the_open_windows() -> None:
    operator = aggregate()
    assert operator.oldest_needed() is None
    operator.process(passes_of([_one(1, 5)], 1), np.array([7, NO_ID]), 5)
    operator.process(passes_of([_one(1, 15)], 1), np.array([8, 3]), 9)
    needed = operator.oldest_needed()
    assert needed is not None
    assert needed.tolist() == [7, 3]
    output = operator.process([None], np.array([NO_ID, NO_ID]), 10)
    assert output.low is not None
    assert output.low.tolist() == [7, NO_ID]
    needed = operator.oldest_needed()
    assert needed is not None
    assert needed.tolist() == [8, 3]


def test_closed_windows_give_their_pages_back() -> None:
    manager = PageManager(page_bytes=512)
    operator = WindowAggregate(
        "a", SCHEMA, ["k", "i"], [("min", Column("k"), "m")], size_us=10, manager=manager
    )
    for start in range(0, 1000, 10):
        rows = [_one(i, start) for i in range(50)]
        operator.process(passes_of(rows, 1), np.zeros(1, np.int64), start + 10)
        manager.check_invariants()
    statistics = manager.statistics()
    assert statistics.pages_peak < 60
    assert statistics.pages_used == 2  # the directory and the boundary


def test_a_union_places_closed_windows_by_tuple_time_whatever_the_cuts() -> None:
    rows = [_one(time % 3, time) for time in range(0, 40, 3)]

    def both(cuts: Sequence[int]) -> list[tuple[int, int]]:
        wide = WindowAggregate("w", SCHEMA, [], [("count", None, "n")], size_us=10)
        narrow = WindowAggregate("n", SCHEMA, [], [("count", None, "n")], size_us=5)
        union = Union("u", wide.output_schema)
        result: list[tuple[int, int]] = []
        edges = [0, *cuts, len(rows)]
        for begin, end in itertools.pairwise(edges):
            boundary = rows[end][1] if end < len(rows) else END_US
            low = np.array([begin], dtype=np.int64)
            inputs = passes_of(rows[begin:end], 1)
            parts = [operator.process(inputs, low, boundary).rows for operator in (wide, narrow)]
            merged = union.process(parts, low, boundary).rows
            if merged is not None:
                counts = merged.batch.column("n").to_pylist()
                result += zip(merged.time_us.tolist(), counts, strict=True)
        return result

    assert both([]) == both([2, 3, 7]) == both(list(range(1, len(rows))))


def test_a_join_that_touches_many_frozen_pages_needs_no_more_memory_for_it() -> None:
    manager = PageManager(page_bytes=512)
    schema = pa.schema([("k", pa.int64())])
    fields: list[OutputField] = [("left", "k", "k")]
    layout = JoinLayout("j", (schema, schema), (["k"], ["k"]), fields)
    join = IncrementalJoin(layout, manager=manager)
    keys = np.arange(20_000, dtype=np.int64)

    def rows(side: int) -> list[Rows | None]:
        batch = pa.RecordBatch.from_arrays([pa.array(keys)], schema=schema)
        given = Rows(batch, np.zeros(len(keys), np.int64), np.arange(len(keys)), 0)
        return [given, None] if side == 0 else [None, given]

    low = np.zeros(1, np.int64)
    join.process(rows(0), low, 0)
    snapshot = manager.checkpoint()
    output = join.process(rows(1), low, 0)
    assert output.rows is not None
    assert output.rows.batch.column(0).to_numpy().tolist() == keys.tolist()
    assert not snapshot.is_cancelled
    manager.finish(snapshot)
    assert manager.statistics().pages_replaced > 2_000
    join.check_invariants()
