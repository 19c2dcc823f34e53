"""Lists, sets and percentiles of groups, against plain models."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from passes import SCHEMA, Column, Lifetime, Row, restored, rows_strategy, run

from holdfast.core.errors import LocalProtocolError
from holdfast.core.operators.aggregate import WindowAggregate
from holdfast.core.operators.base import Operator
from holdfast.core.operators.keyed_windows import KeyedWindows
from holdfast.core.operators.running_aggregate import RunningAggregate
from holdfast.core.operators.sessions import SessionWindows
from holdfast.core.operators.window_kinds import CountWindows
from holdfast.core.state.page_manager import PageManager


class Pair:
    """A struct of a text and a list, so that values are nested."""

    name = "pair"
    type = pa.struct([("text", pa.string()), ("numbers", pa.list_(pa.int64()))])

    def evaluate(self, batch: pa.RecordBatch) -> pa.Array:
        numbers = pa.array([[v, None] for v in batch.column("i").to_pylist()], pa.list_(pa.int64()))
        mask = batch.column("i").is_null()
        columns = [batch.column("k"), numbers]
        return pa.StructArray.from_arrays(columns, fields=list(self.type), mask=mask)


LISTS: list[Any] = [
    ("collect_list", Column("k"), "texts"),
    ("collect_list", Pair(), "pairs"),
    ("count", None, "n"),
]
UNORDERED: list[Any] = [
    ("collect_set", Column("i"), "set"),
    ("collect_set", Column("x"), "reals"),
    ("collect_set", Pair(), "nested"),
    ("percentile", Column("i"), "median", (0.5,)),
    ("percentiles", Column("d"), "quarters", (0.25, 0.0, 1.0)),
    ("approx_percentile", Column("d"), "low", (0.3,)),
    ("approx_percentiles", Column("i"), "ranks", (0.0, 0.5, 1.0)),
]


def windows(manager: PageManager) -> Operator:
    every = [*LISTS, *UNORDERED]
    return WindowAggregate("a", SCHEMA, ["k"], every, size_us=20, slide_us=10, manager=manager)


def changes(manager: PageManager) -> Operator:
    every = [*UNORDERED, *LISTS]
    return WindowAggregate("a", SCHEMA, [], every, size_us=20, emit="changes", manager=manager)


def counted(manager: PageManager) -> Operator:
    kind, every = CountWindows(4, 3), [*UNORDERED, *LISTS]
    return KeyedWindows("c", SCHEMA, ["x"], every, windows=kind, manager=manager)


def sessions(manager: PageManager) -> Operator:
    return SessionWindows("s", SCHEMA, ["k"], UNORDERED, gap_us=4, manager=manager)


def running(manager: PageManager) -> Operator:
    return RunningAggregate("r", SCHEMA, ["x"], [*LISTS, *UNORDERED], manager=manager)


BUILDS = {
    "windows": windows, "changes": changes, "count windows": counted, "sessions": sessions,
    "without windows": running
}  # fmt: skip
cuts_of = st.lists(st.integers(0, 40), max_size=6)


@pytest.mark.parametrize("kind", BUILDS)
@given(rows=rows_strategy, cuts=cuts_of, at=st.integers(0, 40))
@settings(max_examples=10)
def test_neither_cuts_nor_a_restored_checkpoint_change_what_is_collected(
    kind: str, rows: list[Row], cuts: list[int], at: int
) -> None:
    build, at = BUILDS[kind], min(at, len(rows))
    manager = PageManager(page_bytes=1024)
    life = Lifetime(build(manager), rows, 1)
    life.take(0, cuts, at)
    life.operator, _ = restored(build, manager)
    life.take(at, cuts, len(rows))
    whole, _ = run(build(PageManager(page_bytes=1024)), rows, [], 1)
    assert life.text == whole


def percentile(values: list[Any], percentage: float) -> float | None:
    return float(np.percentile([float(v) for v in values], 100 * percentage)) if values else None


def ranked(values: list[Any], percentage: float) -> object:
    """The least value such that so many are no greater."""
    ordered = sorted(values)
    return ordered[max(1, math.ceil(percentage * len(values))) - 1] if values else None


def collected(members: list[dict[str, Any]]) -> dict[str, Any]:
    whole = [m["i"] for m in members if m["i"] is not None]
    decimals = [m["d"] for m in members if m["d"] is not None]
    reals = {m["x"] for m in members if m["x"] is not None and m["x"] == m["x"]}
    has_nan = any(m["x"] is not None and m["x"] != m["x"] for m in members)
    pairs = [{"text": m["k"], "numbers": [m["i"], None]} for m in members if m["i"] is not None]
    known = {(m["k"] is not None, m["k"] or "", m["i"]) for m in members if m["i"] is not None}
    quarters = [percentile(decimals, p) for p in (0.25, 0.0, 1.0)]
    return {
        "texts": [m["k"] for m in members if m["k"] is not None],
        "pairs": pairs,
        "n": len(members),
        "set": sorted(set(whole)),
        "reals": [*sorted(reals), *(["nan"] if has_nan else [])],
        "nested": [{"text": k if is_text else None, "numbers": [i, None]}
                   for is_text, k, i in sorted(known)],
        "median": percentile(whole, 0.5),
        "quarters": quarters if decimals else None,
        "low": ranked(decimals, 0.3),
        "ranks": [ranked(whole, p) for p in (0.0, 0.5, 1.0)] if whole else None,
    }  # fmt: skip


def _close(found: Any) -> Any:
    if isinstance(found, list):
        return ["nan" if v != v else _close(v) for v in found]
    return pytest.approx(found, abs=1e-9) if isinstance(found, float) else found


@given(rows=rows_strategy)
@settings(max_examples=60)
def test_what_is_collected_equals_the_plain_model(rows: list[Row]) -> None:
    _, output = run(windows(PageManager()), rows, [7, 20], 1)
    groups: dict[tuple[object, ...], list[dict[str, Any]]] = {}
    for _, time, value in rows:
        for start in (time // 10 * 10 - 10, time // 10 * 10):
            groups.setdefault((start, value["k"]), []).append(value)
    assert len(output) == len(groups)
    for row in output:
        start = round(row["window_start"].timestamp() * 1e6)  # type: ignore[attr-defined]
        for name, expected in collected(groups[start, row["k"]]).items():
            assert _close(expected) == _close(row[name]), name


@given(rows=rows_strategy, cuts=cuts_of)
@settings(max_examples=40)
def test_a_row_in_several_windows_is_collected_in_each(rows: list[Row], cuts: list[int]) -> None:
    kind, every = CountWindows(4, 1), [*LISTS, *UNORDERED]
    made = KeyedWindows("c", SCHEMA, ["k"], every, windows=kind, manager=PageManager())
    _, output = run(made, rows, cuts, 1)
    members: dict[object, list[dict[str, Any]]] = {}
    expected = []
    for _, _, value in rows:
        own = members.setdefault(value["k"], [])
        own.append(value)
        if len(own) >= 4:
            expected.append(collected(own[-4:]))
    assert len(output) == len(expected)
    for row, wanted in zip(output, expected, strict=True):
        for name in wanted:
            assert _close(wanted[name]) == _close(row[name]), name


@given(rows=rows_strategy)
@settings(max_examples=40)
def test_joined_sessions_have_the_values_of_all_their_rows(rows: list[Row]) -> None:
    _, output = run(sessions(PageManager()), rows, [7, 20], 1)
    for row in output:
        start, end = (
            round(row[edge].timestamp() * 1e6)  # type: ignore[attr-defined]
            for edge in ("window_start", "window_end")
        )
        members = [v for _, t, v in rows if v["k"] == row["k"] and start <= t < end]
        expected = collected(members)
        for _, _, name, *_ in UNORDERED:
            assert _close(expected[name]) == _close(row[name]), name


def test_a_long_list_costs_by_its_values_not_by_its_passes() -> None:
    manager = PageManager(page_bytes=4096)
    lists: list[Any] = [("collect_list", Column("i"), "all")]
    made = WindowAggregate("a", SCHEMA, [], lists, size_us=10_000, manager=manager)
    rows: list[Row] = [(0, n, {"k": None, "x": None, "i": n, "d": None}) for n in range(4000)]
    life = Lifetime(made, rows, 1)
    life.take(0, list(range(0, 3999, 10)), 3999)
    assert made.state_bytes() < 4000 * 80
    life.take(3999, [], 4000)
    assert [row["all"] for row in life.output] == [list(range(4000))]


@pytest.mark.parametrize(
    ("aggregate", "message"),
    [
        (("percentile", Column("k"), "p", (0.5,)), "percentile is not defined for string"),
        (("approx_percentile", Column("k"), "p", (0.5,)), "not defined for string"),
        (("percentile", Column("i"), "p", (1.5,)), "percentages are from 0.0 to 1.0"),
        (("percentiles", Column("i"), "p", ()), "percentages are from 0.0 to 1.0"),
        (("min", Pair(), "p"), "min is not defined for struct"),
    ],
)
def test_what_nothing_is_collected_of_is_refused(aggregate: Any, message: str) -> None:
    with pytest.raises(LocalProtocolError, match=message):
        WindowAggregate("a", SCHEMA, ["k"], [aggregate], size_us=1)


def test_sessions_refuse_lists_as_their_rows_have_no_order() -> None:
    with pytest.raises(LocalProtocolError, match="no order among each other"):
        SessionWindows("s", SCHEMA, ["k"], LISTS, gap_us=1)
