"""Aggregates that put out a changelog: what comes, what replaces what, and what goes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from passes import SCHEMA, Column, Lifetime, Row, restored, rows_strategy, run

from holdfast.core.model.changes import CHANGE_COLUMN
from holdfast.core.operators.changing_aggregate import ChangingAggregate
from holdfast.core.state.page_manager import PageManager

KEYS = ("k",)
AGGREGATES: list[tuple[Any, Any, str]] = [
    ("sum", Column("i"), "total"), ("last", Column("k"), "latest"), ("max", Column("d"), "most"),
]  # fmt: skip


@dataclass
class Sign:
    """One for a row that comes, minus one for one that goes: where `x` is above zero, or not."""

    name: str = "sign"

    @property
    def type(self) -> pa.DataType:
        return pa.int32()

    def evaluate(self, batch: pa.RecordBatch) -> pa.Array:
        found = [1 if x is not None and x > 0 else -1 for x in batch.column("x").to_pylist()]
        return pa.array(found, pa.int32())


PRESENCES: dict[str, tuple[Any, Any, str]] = {
    "rows only come": ("count", None, "there"),
    "rows come and go": ("sum", Sign(), "there"),
    "rows replace each other": ("last", Sign(), "there"),
}


def changing(presence: str, manager: PageManager | None = None) -> ChangingAggregate:
    of = PRESENCES[presence]
    manager = manager or PageManager(page_bytes=512)
    return ChangingAggregate("changing", SCHEMA, KEYS, AGGREGATES, of, manager=manager)


def model(presence: str, rows: list[Row]) -> list[str]:
    """A dict of what stands, and lists of what came."""
    members: dict[Any, list[dict[str, Any]]] = {}
    stands: dict[Any, dict[str, Any]] = {}
    found: list[str] = []
    for _, time, value in rows:
        mine = members.setdefault(value["k"], [])
        mine.append(value)
        signs = Sign().evaluate(pa.RecordBatch.from_pylist(mine, schema=SCHEMA)).to_pylist()
        there = {"rows only come": len(mine), "rows come and go": sum(signs)}.get(
            presence, signs[-1]
        )
        numbers = [v["i"] for v in mine if v["i"] is not None]
        result = {
            "k": value["k"],
            "total": sum(numbers) if numbers else None,
            "latest": value["k"],
            "most": max((v["d"] for v in mine if v["d"] is not None), default=None),
        }
        former = stands.pop(value["k"], None)
        if there > 0:
            stands[value["k"]] = result
        changes = [
            (former, "update_before" if there > 0 else "delete"),
            (stands.get(value["k"]), "insert" if former is None else "update_after"),
        ]
        found += [f"{time} {row | {CHANGE_COLUMN: kind}}" for row, kind in changes if row]
    return found


@pytest.mark.parametrize("presence", PRESENCES)
@given(rows=rows_strategy, cuts=st.lists(st.integers(0, 40), max_size=6), at=st.integers(0, 40))
@settings(max_examples=30)
def test_each_row_says_what_it_replaces_however_passes_are_cut(
    presence: str, rows: list[Row], cuts: list[int], at: int
) -> None:
    expected = model(presence, rows)
    text, output = run(changing(presence), rows, cuts, 1)
    assert text == expected
    manager = PageManager(page_bytes=512)
    life = Lifetime(changing(presence, manager), rows, 1)
    at = min(at, len(rows))
    life.take(0, cuts, at)
    life.operator, _ = restored(lambda pages: changing(presence, pages), manager)
    stands = _table(life.output)
    assert sorted(map(str, life.operator.state_rows().to_pylist())) == stands
    life.take(at, cuts, len(rows))
    assert life.text == text
    assert life.output == output


def _table(changes: list[dict[str, Any]]) -> list[str]:
    """The rows that there are by some changes."""
    rows: list[str] = []
    for change in changes:
        row = str({name: value for name, value in change.items() if name != CHANGE_COLUMN})
        if change[CHANGE_COLUMN] in ("insert", "update_after"):
            rows.append(row)
        else:
            rows.remove(row)
    return sorted(rows)


def test_rows_that_change_nothing_that_anybody_sees_put_nothing_out() -> None:
    gone = {"k": "a", "x": -1.0, "i": 1, "d": None}
    text, _ = run(changing("rows come and go"), [(0, 0, gone), (0, 1, {**gone, "x": 1.0})], [1], 1)
    assert text == []
