"""Operators that depend on the clock or on chance, and on nothing else beside their input."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from passes import SCHEMA, Column, Lifetime, Row, passes_of, restored, rows_strategy, run

from holdfast.core.errors import LocalProtocolError
from holdfast.core.model.ids import BEGINNING_US, END_US, NO_ID
from holdfast.core.operators.base import ArbitraryOperator, Operator, OperatorClass, Rows
from holdfast.core.operators.keyed_windows import KeyedWindowsWithTimeout
from holdfast.core.operators.processing_time import ProcessingTimeAggregate
from holdfast.core.operators.sampler import Sampler
from holdfast.core.operators.union import Union
from holdfast.core.operators.window_kinds import CountWindows, TimeWindows, WindowKind
from holdfast.core.state.page_manager import PageManager

Build = Callable[[PageManager], Operator]
AGGREGATES = [("count", None, "n"), ("sum", Column("i"), "total"), ("max", Column("k"), "max_k")]


def with_timeout(windows: WindowKind, timeout_us: int = 50) -> Build:
    def build(manager: PageManager) -> Operator:
        return KeyedWindowsWithTimeout(
            "w", SCHEMA, ["k"], AGGREGATES,  # type: ignore[arg-type]
            windows=windows, timeout_us=timeout_us, manager=manager,
        )  # fmt: skip

    return build


def by_the_clock(manager: PageManager) -> Operator:
    return ProcessingTimeAggregate(
        "p", SCHEMA, ["k"], AGGREGATES, size_us=20, slide_us=10, manager=manager  # type: ignore[arg-type]
    )  # fmt: skip


BUILDS: dict[str, Build] = {
    "tuples": with_timeout(CountWindows(4, 2)),
    "from the first": with_timeout(TimeWindows(10, 10, is_epoch=False)),
    "from the epoch": with_timeout(TimeWindows(10, 5, is_epoch=True)),
    "processing time": by_the_clock,
    "sample": lambda _: Sampler("s", SCHEMA, 0.5),
}
ids = st.lists(st.integers(0, 40), max_size=6)


def determinant(number: int) -> tuple[int, int]:
    """Of the pass that begins with this tuple."""
    return 1_000 + 13 * number, (number + 1) * 0x9E3779B97F4A7C15 % 2**64


def _one(value: int, time: int = 0, key: str = "a") -> Row:
    return (0, time, {"k": key, "x": 0.0, "i": value, "d": None})


def feed(
    operator: Operator, clock_us: int, rows: list[Row], boundary_us: int
) -> list[tuple[object, ...]]:
    """One pass; tuple time, count and sum of what comes out."""
    assert isinstance(operator, ArbitraryOperator)
    operator.decide(clock_us, 0)
    low = np.array([0 if rows else NO_ID])
    output = operator.process(passes_of(rows, 1), low, boundary_us)
    operator.check_invariants()
    if output.rows is None:
        return []
    batch = output.rows.batch
    return list(
        zip(output.rows.time_us.tolist(), *(batch.column(c).to_pylist() for c in ("n", "total")),
            strict=True)
    )  # fmt: skip


@pytest.mark.parametrize("kind", BUILDS)
def test_they_state_their_class(kind: str) -> None:
    operator = BUILDS[kind](PageManager())
    assert isinstance(operator, ArbitraryOperator)
    assert operator.operator_class is OperatorClass.ARBITRARY


@pytest.mark.parametrize("kind", BUILDS)
@given(rows=rows_strategy, cuts=ids, at=st.integers(0, 40))
@settings(max_examples=15)
def test_the_same_passes_told_the_same_give_the_same_after_a_restoration_too(
    kind: str, rows: list[Row], cuts: list[int], at: int
) -> None:
    at = min(at, len(rows))
    whole, _ = run(BUILDS[kind](PageManager()), rows, [*cuts, at], 1, determinant)
    manager = PageManager(page_bytes=512)
    life = Lifetime(BUILDS[kind](manager), rows, 1, determinant)
    life.take(0, cuts, at) if at else None
    life.operator, _ = restored(BUILDS[kind], manager)
    life.take(at, cuts, len(rows)) if life.boundary < END_US else None
    assert life.text == whole


@pytest.mark.parametrize("kind", ["tuples", "from the first", "from the epoch", "processing time"])
@given(rows=rows_strategy, cuts=ids)
@settings(max_examples=25)
def test_no_tuple_is_lost_or_counted_more_often_than_its_windows(
    kind: str, rows: list[Row], cuts: list[int]
) -> None:
    builds: dict[str, Build] = {
        "tuples": with_timeout(CountWindows(4, 4)),
        "from the first": with_timeout(TimeWindows(10, 10, is_epoch=False)),
        "from the epoch": with_timeout(TimeWindows(10, 10, is_epoch=True)),
        "processing time": by_the_clock,
    }
    _, output = run(builds[kind](PageManager()), rows, cuts, 1, determinant)
    windows = 2 if kind == "processing time" else 1
    assert sum(int(str(row["n"])) for row in output) == windows * len(rows)


def test_a_window_closes_when_nothing_has_come_for_the_timeout() -> None:
    operator = with_timeout(TimeWindows(100, 100, is_epoch=True))(PageManager())
    assert isinstance(operator, ArbitraryOperator)
    assert operator.wake_us() is None
    assert feed(operator, 1_000, [_one(1, 5), _one(2, 6, "b")], 0) == []
    assert operator.wake_us() == 1_050
    assert feed(operator, 1_030, [_one(3, 7)], 0) == []
    assert operator.wake_us() == 1_050, "b has waited longest"
    assert feed(operator, 1_049, [], 0) == []
    assert feed(operator, 1_050, [], 0) == [(99, 1, 2)]
    assert operator.wake_us() == 1_080
    assert feed(operator, 1_080, [_one(4, 8)], 0) == [], "it came in time"
    assert feed(operator, 1_130, [], 0) == [(99, 3, 8)]
    assert feed(operator, 1_131, [_one(5, 9)], 0) == [], "the window opens again"
    assert feed(operator, 1_132, [], 100) == [(99, 1, 5)]
    assert operator.wake_us() is None


def test_a_count_window_that_times_out_begins_a_new_count_and_is_not_late() -> None:
    operator = with_timeout(CountWindows(3, 3))(PageManager())
    assert feed(operator, 1_000, [_one(1, 5), _one(2, 6)], 20) == []
    assert feed(operator, 1_060, [], 20) == [(20, 2, 3)], "not older than the boundary"
    assert feed(operator, 1_061, [_one(n, 30) for n in (3, 4, 5)], 25) == [(30, 3, 12)]
    assert feed(operator, 1_062, [_one(6, 40)], 30) == []
    assert feed(operator, 1_063, [], END_US) == [(40, 1, 6)], "nothing is left at the end"


def test_windows_of_processing_time_close_by_the_clock_and_promise_it() -> None:
    operator = by_the_clock(PageManager())
    assert isinstance(operator, ArbitraryOperator)
    assert feed(operator, 1_000, [_one(1, 5)], 0) == []
    assert operator.wake_us() == 1_010, "the window that began at 990"
    assert operator.promises_us(77) == 1_000
    assert feed(operator, 1_010, [_one(2, -5)], 0) == [(1_009, 1, 1)]
    assert feed(operator, 1_025, [], 0) == [(1_019, 2, 3)]
    assert feed(operator, 1_026, [], END_US) == [(1_029, 1, 2)]
    assert operator.promises_us(END_US) == END_US


def test_windows_of_processing_time_promise_the_clock_when_nothing_comes() -> None:
    operator = by_the_clock(PageManager())
    assert isinstance(operator, ArbitraryOperator)
    assert operator.wake_us() == BEGINNING_US, "at once: whoever merges instances waits for it"
    assert feed(operator, 1_000, [], 0) == []
    assert operator.wake_us() == 21_000, "windows of 20 us are promised together"
    assert feed(operator, 21_000, [], 0) == []
    assert operator.promises_us(0) == 21_000


def test_a_sample_is_as_large_as_asked_for_and_two_differ() -> None:
    schema = pa.schema([("i", pa.int64())])
    samplers = [Sampler(name, schema, 0.3) for name in ("one", "other", "one")]
    kept: list[set[int]] = [set(), set(), set()]
    batch = pa.RecordBatch.from_arrays([pa.array(range(1_000))], schema=schema)
    for pass_ in range(100):
        for sampler, mine in zip(samplers, kept, strict=True):
            sampler.decide(0, determinant(pass_)[1])
            output = sampler.process([_rows(batch)], np.array([0]), 0)
            assert output.rows is not None
            mine |= {1_000 * pass_ + i for i in output.rows.batch.column(0).to_pylist()}
    assert 0.29 < len(kept[0]) / 100_000 < 0.31
    assert kept[0] == kept[2]
    both = len(kept[0] & kept[1]) / 100_000
    assert 0.08 < both < 0.10, "drawn independently"


def _rows(batch: pa.RecordBatch) -> Rows:
    count = batch.num_rows
    return Rows(batch, np.zeros(count, np.int64), np.arange(count, dtype=np.int64), 0)


def test_all_of_a_sample_of_everything_is_kept() -> None:
    operator = Sampler("s", SCHEMA, 1.0)
    operator.decide(0, 2**64 - 1)
    output = operator.process(passes_of([_one(i) for i in range(99)], 1), np.array([0]), 0)
    assert output.rows is not None
    assert output.rows.batch.num_rows == 99


@pytest.mark.parametrize("fraction", [0.0, -0.1, 1.1, float("nan")])
def test_a_fraction_that_is_none_is_refused(fraction: float) -> None:
    with pytest.raises(LocalProtocolError, match="fraction="):
        Sampler("s", SCHEMA, fraction)


def test_a_union_by_arrival_is_arbitrary() -> None:
    assert Union("u", SCHEMA).operator_class is OperatorClass.DETERMINISTIC
    assert Union("u", SCHEMA, is_by_arrival=True).operator_class is OperatorClass.ARBITRARY
