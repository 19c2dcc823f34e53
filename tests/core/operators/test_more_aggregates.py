"""Aggregates that pick a value, of bits, and of spread, against plain models."""

from __future__ import annotations

import math
from functools import reduce
from operator import and_, or_, xor

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
from holdfast.core.operators.sessions import SessionWindows
from holdfast.core.operators.window_kinds import CountWindows
from holdfast.core.state.page_manager import PageManager


class By:
    """A value, and what it goes by."""

    def __init__(self, value: str, by: str) -> None:
        self.name, self._columns = f"{value} by {by}", (value, by)

    @property
    def type(self) -> pa.DataType:
        return pa.struct([SCHEMA.field(column) for column in self._columns])

    def evaluate(self, batch: pa.RecordBatch) -> pa.Array:
        columns = [batch.column(column) for column in self._columns]
        return pa.StructArray.from_arrays(columns, names=list(self._columns))


PICKED = [
    ("first", Column("k"), "first"), ("last", Column("i"), "last"),
    ("first_valid", Column("i"), "first_valid"), ("last_valid", Column("k"), "last_valid"),
    ("max_by", By("k", "i"), "most"), ("min_by", By("i", "x"), "least"),
]  # fmt: skip
SPREAD = [
    ("bit_and", Column("i"), "all_bits"), ("bit_or", Column("i"), "any_bits"),
    ("bit_xor", Column("i"), "odd_bits"), ("stddev_samp", Column("i"), "stddev"),
    ("var_pop", Column("d"), "variance"), ("count", None, "n"),
]  # fmt: skip


def windows(manager: PageManager) -> Operator:
    aggregates = [*PICKED, *SPREAD]
    return WindowAggregate("a", SCHEMA, ["k"], aggregates, size_us=20, manager=manager)  # type: ignore[arg-type]


def counted(manager: PageManager) -> Operator:
    aggregates = [*SPREAD, *PICKED]
    kind = CountWindows(4, 3)
    return KeyedWindows("c", SCHEMA, ["x"], aggregates, windows=kind, manager=manager)  # type: ignore[arg-type]


def sessions(manager: PageManager) -> Operator:
    return SessionWindows("s", SCHEMA, ["k"], SPREAD, gap_us=4, manager=manager)  # type: ignore[arg-type]


BUILDS = {"windows": windows, "count windows": counted, "sessions": sessions}
cuts_of = st.lists(st.integers(0, 40), max_size=6)


@pytest.mark.parametrize("kind", BUILDS)
@given(rows=rows_strategy, cuts=cuts_of, at=st.integers(0, 40))
@settings(max_examples=12)
def test_neither_cuts_nor_a_restored_checkpoint_show(
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


def picked(members: list[dict[str, object]]) -> dict[str, object]:
    ints = [m["i"] for m in members if m["i"] is not None]
    texts = [m["k"] for m in members if m["k"] is not None]

    def chosen(value: str, by: str, sign: int) -> object:
        found: tuple[float, object] | None = None
        for member in members:
            key = member[by]
            if key is None:
                continue
            # NaN is the greatest.
            order = sign * (math.inf if key != key else min(float(key), 1e300))  # type: ignore[arg-type]
            if found is None or order >= found[0]:
                found = order, member[value]
        return None if found is None else found[1]

    return {
        "first": members[0]["k"], "last": members[-1]["i"],
        "first_valid": ints[0] if ints else None, "last_valid": texts[-1] if texts else None,
        "most": chosen("k", "i", 1), "least": chosen("i", "x", -1),
    }  # fmt: skip


def spread(members: list[dict[str, object]]) -> dict[str, object]:
    ints: list[int] = [m["i"] for m in members if m["i"] is not None]  # type: ignore[misc]
    decimals = [float(m["d"]) for m in members if m["d"] is not None]  # type: ignore[arg-type]
    return {
        "all_bits": reduce(and_, ints) if ints else None,
        "any_bits": reduce(or_, ints) if ints else None,
        "odd_bits": reduce(xor, ints) if ints else None,
        "stddev": float(np.std(ints, ddof=1)) if len(ints) > 1 else None,
        "variance": float(np.var(decimals)) if decimals else None,
        "n": len(members),
    }


@given(rows=rows_strategy)
@settings(max_examples=60)
def test_results_equal_the_plain_model(rows: list[Row]) -> None:
    _, output = run(windows(PageManager()), rows, [7, 20], 1)
    groups: dict[tuple[object, ...], list[dict[str, object]]] = {}
    for _, time, value in rows:
        groups.setdefault((time // 20, value["k"]), []).append(value)
    assert len(output) == len(groups)
    for row in output:
        start = round(row["window_start"].timestamp() * 1e6)  # type: ignore[attr-defined]
        members = groups[start // 20, row["k"]]
        for name, expected in (picked(members) | spread(members)).items():
            if name in ("stddev", "variance"):
                expected = None if expected is None else pytest.approx(expected, abs=1e-6)
            assert row[name] == expected, name


@given(rows=rows_strategy)
@settings(max_examples=40)
def test_sessions_that_are_joined_have_the_spread_of_all_their_rows(rows: list[Row]) -> None:
    _, output = run(sessions(PageManager()), rows, [7, 20], 1)
    for row in output:
        start, end = (
            round(row[edge].timestamp() * 1e6)  # type: ignore[attr-defined]
            for edge in ("window_start", "window_end")
        )
        members = [v for _, t, v in rows if v["k"] == row["k"] and start <= t < end]
        for name, expected in spread(members).items():
            assert row[name] == (None if expected is None else pytest.approx(expected, abs=1e-6)), (
                name
            )


@pytest.mark.parametrize(
    ("aggregate", "message"),
    [
        (("max_by", By("i", "k"), "m"), "max_by .* goes by string"),
        (("first", Column("d"), "m"), "first is not defined for decimal"),
        (("bit_or", Column("x"), "m"), "bit_or is not defined for double"),
        (("stddev_pop", Column("k"), "m"), "stddev_pop is not defined for string"),
    ],
)
def test_what_no_accumulator_holds_is_refused(aggregate: object, message: str) -> None:
    with pytest.raises(LocalProtocolError, match=message):
        WindowAggregate("a", SCHEMA, ["k"], [aggregate], size_us=1)  # type: ignore[list-item]


def test_sessions_refuse_what_depends_on_the_order_of_rows() -> None:
    with pytest.raises(LocalProtocolError, match="no order among each other"):
        SessionWindows("s", SCHEMA, ["k"], PICKED, gap_us=1)  # type: ignore[arg-type]
