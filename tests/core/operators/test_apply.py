"""Functions of the user's as operators: no result depends on the cuts, errors show a row."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from passes import SCHEMA, Row, rows_strategy, run

from holdfast.api.dead_letters import function_with_bad_rows
from holdfast.api.functions import Pass, PythonFunction
from holdfast.core.operators.apply import Apply, ApplyArbitrarily
from holdfast.core.operators.bad_rows import BadRowError
from holdfast.core.operators.base import Rows
from holdfast.errors import DataflowError, UnsupportedError

ONE = pa.schema([("n", pa.int64())])


def doubled(batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pc.fill_null(pc.multiply(batch["i"], 2), -1)], schema=ONE)


def numbered(row: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"n": n} for n in range((row["i"] or 0) % 3)]


def operator(kind: Any, function: Callable[..., Any]) -> Apply:
    schema = SCHEMA if kind == "filter" else ONE
    return Apply(kind, PythonFunction(function, kind, schema, True))


KINDS: dict[str, Callable[..., Any]] = {
    "map_batches": doubled,
    "map": lambda row: {"n": row["i"]},
    "flat_map": numbered,
    "filter": lambda row: None if row["i"] is None else row["i"] % 2 == 0,
}


@pytest.mark.parametrize("kind", KINDS)
@given(rows=rows_strategy, cuts=st.lists(st.integers(0, 20), max_size=4))
def test_results_do_not_depend_on_the_cuts(kind: str, rows: list[Row], cuts: list[int]) -> None:
    inside = sorted(cut for cut in cuts if cut < len(rows))
    whole, _ = run(operator(kind, KINDS[kind]), rows, [], 1)
    parts, _ = run(operator(kind, KINDS[kind]), rows, inside, 1)
    assert parts == whole


def given_rows(*numbers: int) -> Rows:
    batch = pa.RecordBatch.from_arrays([pa.array(numbers, pa.int64())], schema=ONE)
    times = np.arange(len(numbers), dtype=np.int64)
    return Rows(batch, times, times, 0)


def processed(kind: Any, function: Callable[..., Any], *numbers: int) -> Rows | None:
    applied = Apply("step", PythonFunction(function, kind, ONE, True))
    return applied.process([given_rows(*numbers)], np.zeros(1, np.int64), 0).rows


def test_results_have_the_times_and_places_of_their_rows() -> None:
    found = processed("flat_map", lambda row: [row] * row["n"], 2, 0, 3)
    assert found is not None
    assert found.batch.column(0).to_pylist() == [2, 2, 3, 3, 3]
    assert found.time_us.tolist() == found.order.tolist() == [0, 0, 2, 2, 2]
    kept = processed("filter", lambda row: row["n"] > 1, 2, 0, 3)
    assert kept is not None
    assert kept.order.tolist() == [0, 2]
    assert processed("filter", lambda row: False, 1) is None


@pytest.mark.parametrize(
    ("kind", "function", "reason"),
    [
        ("map", lambda row: {"n": 6 // row["n"]}, r"ZeroDivisionError.*00:00:00.000001Z.*'n': 0"),
        ("map", lambda row: {"m": 1}, r"gave {'m': 1}; a row is a dict of n"),
        ("map", lambda row: {"n": "many"}, "ArrowInvalid"),
        ("filter", lambda row: "yes", "gave 'yes', neither True, False nor None"),
        ("map_batches", lambda batch: batch.slice(1), "gave 0 rows for 1; map_batches gives one"),
        ("map_batches", lambda batch: batch.rename_columns(["m"]), "gave columns m"),
        ("map_batches", lambda batch: batch.to_pylist(), "gave list, not a RecordBatch"),
    ],
)
def test_an_error_shows_the_row(kind: str, function: Callable[..., Any], reason: str) -> None:
    with pytest.raises(BadRowError, match=reason):
        processed(kind, function, 5, 0, 7)


def test_an_error_of_no_row_alone_is_shown_as_it_is() -> None:
    def small(batch: pa.RecordBatch) -> pa.RecordBatch:
        if batch.num_rows > 2:
            raise ValueError("too many at once")
        return batch

    with pytest.raises(BadRowError, match="too many at once, though for no row alone"):
        processed("map_batches", small, 1, 2, 3)


def test_an_arbitrary_function_is_told_clock_and_chance() -> None:
    def drawn(row: dict[str, Any], given: Pass) -> dict[str, Any]:
        return {"n": given.random.randrange(10**9) + given.now.microsecond}

    def values(clock_us: int, seed: int, name: str = "step") -> Any:
        applied = ApplyArbitrarily(name, PythonFunction(drawn, "map", ONE, False))
        applied.decide(clock_us, seed)
        rows = applied.process([given_rows(1, 2)], np.zeros(1, np.int64), 0).rows
        assert rows is not None
        return rows.batch.column(0).to_pylist()

    first = values(5, 7)
    assert first[0] != first[1]
    assert values(5, 7) == first
    assert values(6, 7) == [value + 1 for value in first]
    assert values(5, 8) != first
    assert values(5, 7, "another") != first


@pytest.mark.parametrize(
    ("type", "value"),
    [(pa.int64(), 1.5), (pa.int64(), np.float32(1.5)), (pa.date32(), dt.datetime(2026, 1, 1, 5))],
)
def test_values_of_which_arrow_would_drop_a_part_are_errors(type: pa.DataType, value: Any) -> None:
    function = PythonFunction(lambda _: {"n": value}, "map", pa.schema([("n", type)]), True)
    with pytest.raises(BadRowError, match="for n, "):
        Apply("map", function).process([given_rows(1)], np.zeros(1, np.int64), 0)


@pytest.mark.parametrize("kind", ["map", "map_batches"])
def test_a_null_where_the_schema_has_none_is_refused(kind: Any) -> None:
    schema = pa.schema([pa.field("n", pa.int64(), nullable=False)])
    whole = pa.RecordBatch.from_arrays([pa.nulls(1, pa.int64())], names=["n"])
    function: Callable[..., Any] = (
        (lambda _: whole) if kind == "map_batches" else (lambda _: {"n": None})
    )
    applied = Apply("step", PythonFunction(function, kind, schema, True))
    with pytest.raises(BadRowError, match="gave null for n, which is NOT NULL"):
        applied.process([given_rows(1)], np.array([0]), 0)


@pytest.mark.parametrize(
    ("given_", "kind", "fits"),
    [
        (pa.array([2]), pa.bool_(), False),
        (pa.array([1, 0]), pa.bool_(), True),
        (pa.array([1], pa.int32()), pa.int64(), True),
        (pa.array([0.1]), pa.float32(), True),
        (pa.array([dt.datetime(2024, 1, 2, 3)]), pa.date32(), False),
    ],
)
def test_a_cast_that_would_change_a_value_is_refused(
    given_: pa.Array, kind: pa.DataType, fits: bool
) -> None:
    def function(_: pa.RecordBatch) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([given_], names=["n"])

    schema = pa.schema([("n", kind)])
    applied = Apply("step", PythonFunction(function, "map_batches", schema, True))
    rows = given_rows(*range(len(given_)))
    if fits:
        assert applied.process([rows], np.array([0]), 0).rows is not None
        return
    with pytest.raises(BadRowError, match=r"no place for all of its values|[Cc]ast"):
        applied.process([rows], np.array([0]), 0)


@pytest.mark.parametrize("kind", KINDS)
@given(rows=rows_strategy, cuts=st.lists(st.integers(0, 20), max_size=4))
def test_rows_for_which_a_function_raises_are_apart_and_others_as_without_them(
    kind: Any, rows: list[Row], cuts: list[int]
) -> None:
    def picky(given: Any, *more: Any) -> Any:
        values = given["i"].to_pylist() if kind == "map_batches" else [given["i"]]
        if any(value is not None and value % 3 == 0 for value in values):
            raise ValueError(f"not {values}")
        return KINDS[kind](given, *more)

    schema = SCHEMA if kind == "filter" else ONE
    both = function_with_bad_rows(PythonFunction(picky, kind, schema, True), SCHEMA)
    _, output = run(Apply(kind, both), rows, [cut for cut in cuts if cut < len(rows)], 1)
    bad = [row for row in rows if row[2]["i"] is not None and row[2]["i"] % 3 == 0]  # type: ignore[operator]
    good = [row for row in rows if row not in bad]
    letters = [row for row in output if row[both.error] is not None]
    assert [row["given 2"] for row in letters] == [row[2]["i"] for row in bad]
    assert all("ValueError: not [" in str(row[both.error]) for row in letters)
    _, expected = run(operator(kind, KINDS[kind]), good, [], 1)
    found = [row for row in output if row[both.error] is None]
    assert [repr(row["result 0"]) for row in found] == [
        repr(row[schema.names[0]]) for row in expected
    ]


def test_dead_letters_are_of_functions_that_depend_on_the_row_alone() -> None:
    drawn = PythonFunction(lambda row, _: row, "map", ONE, False)
    with pytest.raises(UnsupportedError, match=r"dead_letters=\.\.\. with deterministic=False"):
        function_with_bad_rows(drawn, ONE)
    named = pa.schema([("Error", pa.int64())])
    with pytest.raises(DataflowError, match="dead letters have a column 'error'"):
        function_with_bad_rows(PythonFunction(lambda row: row, "map", ONE, True), named)
