"""Aggregates without windows: the result of a key after each of its rows."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from passes import SCHEMA, Column, Lifetime, Row, restored, rows_strategy, run

from holdfast.core.operators.running_aggregate import RunningAggregate
from holdfast.core.state.page_manager import PageManager

AGGREGATES: list[tuple[Any, Any, str]] = [
    ("count", None, "n"), ("count", Column("i"), "is"), ("sum", Column("i"), "total"),
    ("min", Column("d"), "least"), ("max", Column("i"), "most"), ("max", Column("k"), "last"),
]  # fmt: skip


def running(keys: tuple[str, ...], manager: PageManager | None = None) -> RunningAggregate:
    manager = manager or PageManager(page_bytes=512)
    return RunningAggregate("running", SCHEMA, keys, AGGREGATES, manager=manager)


def model(keys: tuple[str, ...], rows: list[Row]) -> list[str]:
    """A dict of lists."""
    groups: dict[tuple[object, ...], list[dict[str, Any]]] = {}
    found: list[str] = []
    for _, time, value in rows:
        named = {key: value[key] for key in keys}
        key = tuple("nan" if v != v else v for v in named.values())
        members = groups.setdefault(key, [])
        members.append(value)
        numbers = [v["i"] for v in members if v["i"] is not None]
        least = [v["d"] for v in members if v["d"] is not None]
        result = {
            "n": len(members),
            "is": len(numbers),
            "total": sum(numbers) if numbers else None,
            "least": min(least, default=None),
            "most": max(numbers, default=None),
            "last": max((v["k"] for v in members if v["k"] is not None), default=None),
        }
        found.append(f"{time} {plain({**named, **result})}")
    return found


def plain(row: dict[str, Any]) -> dict[str, Any]:
    """-0.0 and 0.0 are one key, and so are all NaN."""
    return {
        name: 0.0 if value == 0 and isinstance(value, float) else value
        for name, value in row.items()
        if not (isinstance(value, float) and math.isnan(value))
    }


@pytest.mark.parametrize("keys", [("k",), (), ("k", "x")])
@given(rows=rows_strategy, cuts=st.lists(st.integers(0, 40), max_size=6), at=st.integers(0, 40))
@settings(max_examples=25)
def test_every_row_gives_the_new_result_of_its_key(
    keys: tuple[str, ...], rows: list[Row], cuts: list[int], at: int
) -> None:
    expected = model(keys, rows)
    text, output = run(running(keys), rows, cuts, 1)
    times = [line.split()[0] for line in text]
    assert [f"{t} {plain(row)}" for t, row in zip(times, output, strict=True)] == expected
    manager = PageManager(page_bytes=512)
    life = Lifetime(running(keys, manager), rows, 1)
    at = min(at, len(rows))
    life.take(0, cuts, at)
    life.operator, _ = restored(lambda pages: running(keys, pages), manager)
    assert life.operator.state_rows().num_rows == len({str(list(r.values())[: len(keys)]) for r in
                                                       map(plain_keys, life.output)})  # fmt: skip
    life.take(at, cuts, len(rows))
    assert life.text == text


def plain_keys(row: dict[str, Any]) -> dict[str, Any]:
    return {name: "nan" if value != value else value for name, value in row.items()}


def test_it_needs_all_its_input() -> None:
    value = {"k": "a", "x": None, "i": 1, "d": None}
    life = Lifetime(running(("k",)), [(0, n, value) for n in range(6)], 1)
    life.take(2, [4], 6)
    needed = life.operator.oldest_needed()
    assert needed is not None
    assert needed.tolist() == [2]


def test_strings_that_were_replaced_are_forgotten() -> None:
    manager = PageManager(page_bytes=512)
    made = RunningAggregate("r", SCHEMA, ["i"], [("last", Column("k"), "last")], manager=manager)
    life = Lifetime(made, [(0, n, _named(n)) for n in range(3000)], 1)
    life.take(0, list(range(0, 3000, 20)), 3000)
    assert [row["last"] for row in life.output] == [f"name {n}".ljust(60) for n in range(3000)]
    assert made.state_bytes() < 3000 * 60 / 4
    manager.check_invariants()


def _named(n: int) -> dict[str, object]:
    return {"k": f"name {n}".ljust(60), "x": None, "i": n % 3, "d": None}
