"""Joins of rows within a span of time: as nested loops give them, whatever happens meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from passes import SCHEMA, Lifetime, Row, passes_of, restored, rows_strategy, run

from holdfast.core.errors import LocalProtocolError
from holdfast.core.model.ids import END_US, NO_ID
from holdfast.core.operators.interval_join import How, IntervalJoin
from holdfast.core.operators.join import JoinLayout, OutputField
from holdfast.core.state.page_manager import PageManager

FIELDS: list[OutputField] = [
    ("left", "k", "lk"), ("left", "i", "li"), ("right", "k", "rk"), ("right", "d", "rd"),
    ("right", "i", "ri"),
]  # fmt: skip
HOWS: tuple[How, ...] = get_args(How)
SPANS = [(-5, 7), (0, 10), (3, 9), (-9, -2), (0, 0)]


class IsSmaller:
    """Whether `li` is at most `ri`."""

    name = "is_smaller"
    type = pa.bool_()

    def evaluate(self, batch: pa.RecordBatch) -> pa.Array:
        return pc.less_equal(batch.column("li"), batch.column("ri"))


def join(
    how: How,
    span: tuple[int, int],
    manager: PageManager | None = None,
    *,
    has_condition: bool = True,
) -> IntervalJoin:
    return IntervalJoin(
        JoinLayout("join", (SCHEMA, SCHEMA), (["k"], ["k"]), FIELDS),
        lower_us=span[0],
        upper_us=span[1],
        how=how,
        condition=IsSmaller() if has_condition else None,
        manager=manager or PageManager(page_bytes=512),
    )


def model(how: How, span: tuple[int, int], rows: Sequence[Row]) -> list[str]:
    """Nested loops."""
    sides = [[(t, n, v) for n, (p, t, v) in enumerate(rows) if p == side] for side in range(2)]
    keeps = max(0, span[1]), max(0, -span[0])
    found: list[tuple[tuple[int, ...], dict[str, object]]] = []
    matched: list[set[int]] = [set(), set()]

    def row(left: dict[str, object] | None, right: dict[str, object] | None) -> dict[str, object]:
        values = {"left": left or {}, "right": right or {}}
        return {name: values[side].get(column) for side, column, name in FIELDS}

    pairs = []
    for lt, ln, lv in sides[0]:
        for rt, rn, rv in sides[1]:
            is_in = span[0] <= rt - lt <= span[1] and lv["k"] is not None and lv["k"] == rv["k"]
            smaller = None not in (lv["i"], rv["i"]) and lv["i"] <= rv["i"]  # type: ignore[operator]
            if is_in and smaller:
                later, earlier = max((lt, ln), (rt, rn)), min((lt, ln), (rt, rn))
                pairs.append(((later[0], 0, later[1], earlier[1]), ln, rn, row(lv, rv)))
    for place, ln, rn, values in sorted(pairs, key=lambda pair: pair[0]):
        if how not in ("semi", "anti") or (how == "semi" and ln not in matched[0]):
            found.append((place, values))
        matched[0].add(ln)
        matched[1].add(rn)
    shown = {"left": (0,), "anti": (0,), "right": (1,), "full": (0, 1)}.get(how, ())
    for side in shown:
        for t, n, v in sides[side]:
            if n not in matched[side]:
                values = row(v, None) if side == 0 else row(None, v)
                found.append(((t + keeps[side], 1 + side, t, n), values))
    return [f"{place[0]} {values}" for place, values in sorted(found, key=lambda one: one[0])]


@pytest.mark.parametrize("how", HOWS)
@given(
    rows=rows_strategy,
    span=st.sampled_from(SPANS),
    cuts=st.lists(st.integers(0, 40), max_size=6),
    lazy=st.lists(st.integers(0, 40), max_size=6),
    is_sorted=st.booleans(),
)
@settings(max_examples=25)
def test_results_are_those_of_nested_loops(
    how: How,
    rows: list[Row],
    span: tuple[int, int],
    cuts: list[int],
    lazy: list[int],
    is_sorted: bool,
) -> None:
    if is_sorted:
        rows = sorted(rows, key=lambda row: row[1])
    found, _ = run(join(how, span), rows, cuts, 2, lazy=lazy)
    assert found == model(how, span, rows)


@pytest.mark.parametrize("how", HOWS)
@given(
    rows=rows_strategy,
    span=st.sampled_from(SPANS),
    cuts=st.lists(st.integers(0, 40), max_size=6),
    at=st.integers(0, 40),
)
@settings(max_examples=15)
def test_a_checkpoint_holds_all_of_it(
    how: How, rows: list[Row], span: tuple[int, int], cuts: list[int], at: int
) -> None:
    manager = PageManager(page_bytes=512)
    life = Lifetime(join(how, span, manager), rows, 2)
    at = min(at, len(rows))
    life.take(0, cuts, at)
    life.operator, _ = restored(lambda pages: join(how, span, pages), manager)
    life.take(at, cuts, len(rows))
    assert life.text == model(how, span, rows)


@pytest.mark.parametrize("how", HOWS)
@given(
    rows=rows_strategy,
    span=st.sampled_from(SPANS),
    cuts=st.lists(st.integers(0, 40), max_size=10),
    at=st.integers(0, 40),
)
@settings(max_examples=25)
def test_a_replay_from_the_low_watermark_goes_on_alike(
    how: How, rows: list[Row], span: tuple[int, int], cuts: list[int], at: int
) -> None:
    """Whoever is started empty needs no older tuples to put out the same rows afterwards."""
    at = min(at, len(rows))
    life = Lifetime(join(how, span), rows, 2)
    life.take(0, cuts, at)
    needed = life.operator.oldest_needed()
    first = at if needed is None else min(at, int(needed[0]))
    written = len(life.text)
    again = Lifetime(join(how, span), rows, 2)
    again.take(first, cuts, at)  # Silently.
    replayed = len(again.text)
    for one in (life, again):
        one.take(at, cuts, len(rows))
    assert again.text[replayed:] == life.text[written:]


def test_rows_go_when_nothing_can_match_them_and_so_do_their_strings() -> None:
    operator = join("full", (-5, 5), has_condition=False)
    low = np.array([7], dtype=np.int64)
    most = 0
    for step in range(400):
        texts = [{"k": f"a key that is long enough, {step} {i}", "i": i} for i in range(20)]
        rows: list[Row] = [(i % 2, 10 * step + i % 10, {**v, "x": 0.0, "d": None}) for i, v in
                           enumerate(texts)]  # fmt: skip
        operator.process(passes_of(rows, 2), low, 10 * step)
        most = max(most, operator.state_bytes()) if step < 100 else most
    operator.check_invariants()
    assert operator.state_bytes() < 2 * most
    assert operator.state_rows().num_rows < 60
    operator.process([None, None], np.array([NO_ID]), END_US)
    assert operator.oldest_needed() is None
    assert operator.state_rows().num_rows == 0


def test_state_says_which_rows_have_matched() -> None:
    operator = join("left", (0, 9), has_condition=False)
    value = {"k": "a", "x": None, "i": 1, "d": None}
    rows: list[Row] = [(0, 0, value), (0, 1, {**value, "k": "b"}), (1, 2, value)]
    operator.process(passes_of(rows, 2), np.array([0]), 5)
    kept = operator.state_rows().select(["side", "left_k", "has_matched"]).to_pylist()
    assert kept == [  # Nothing that may still come matches the right row: it has gone.
        {"side": "left", "left_k": "a", "has_matched": True},
        {"side": "left", "left_k": "b", "has_matched": False},
    ]


def test_rows_of_instances_that_become_one_are_told_apart() -> None:
    """Both have numbered their rows from zero; both rows match at once, and none is shown alone."""
    value = {"x": None, "i": 1, "d": None}
    held = [join("left", (-9, 9), has_condition=False) for _ in range(2)]
    low = np.array([0], dtype=np.int64)
    for operator, key in zip(held, ("a", "b"), strict=True):
        waiting: list[Row] = [(0, 3, {"k": key, **value}), (0, 7, {"k": key, **value})]
        operator.process(passes_of(waiting, 2), low, 5)
    whole = join("left", (-9, 9), has_condition=False)
    whole.adopt(held, lambda columns: np.ones(len(columns[0]), dtype=np.bool_), 1)
    whole.check_invariants()
    assert whole.state_rows().num_rows == 4
    coming: list[Row] = [(1, 8, {"k": key, **value}) for key in ("a", "b")]
    result = whole.process(passes_of(coming, 2), low, END_US).rows
    assert result is not None
    found = result.batch.select(["lk", "rk"]).to_pylist()
    assert sorted(map(str, found)) == sorted(
        str({"lk": key, "rk": key}) for key in ("a", "a", "b", "b")
    )


def test_an_empty_span_is_refused() -> None:
    with pytest.raises(LocalProtocolError, match="no time is between 3, 2 us"):
        join("inner", (3, 2))
