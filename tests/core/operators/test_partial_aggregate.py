"""Parts of aggregates: added up they are the aggregates, however batches are cut into passes."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from passes import SCHEMA, Column, IsPositive, Row, passes_of, rows_strategy

from holdfast.core.errors import LocalProtocolError
from holdfast.core.model.ids import END_US
from holdfast.core.operators.aggregate import WindowAggregate
from holdfast.core.operators.base import ArithmeticOverflow, Operator, Rows
from holdfast.core.operators.filter import Filter
from holdfast.core.operators.partial_aggregate import PartialAggregate
from holdfast.core.state.page_manager import PageManager

PARTS = {
    "n": ("count", None, "sum"),
    "seen": ("count", "i", "sum"),
    "total": ("sum", "i", "sum"),
    "least": ("min", "i", "min"),
    "most": ("max", "i", "max"),
    "low": ("min", "x", "min"),
    "high": ("max", "x", "max"),
}
LOW = np.zeros(1, dtype=np.int64)


def parts(keys: Sequence[str], pane_us: int, only: Sequence[str] = tuple(PARTS)) -> Operator:
    chosen = [(PARTS[n][0], None if PARTS[n][1] is None else Column(PARTS[n][1]), n) for n in only]
    return PartialAggregate("part", SCHEMA, keys, chosen, pane_us=pane_us)  # type: ignore[arg-type]


def windows(keys: Sequence[str], size: int, slide: int, schema: pa.Schema | None) -> Operator:
    """Over the rows themselves, or over parts of this schema."""
    chosen = []
    for name, (function, column, adding) in PARTS.items():
        if schema is not None:
            chosen.append((adding, Column(name, schema), name))
        else:
            chosen.append((function, None if column is None else Column(column), name))
    return WindowAggregate(
        "agg", schema or SCHEMA, list(keys), chosen, size_us=size, slide_us=slide,  # type: ignore[arg-type]
        manager=PageManager(page_bytes=512),
    )  # fmt: skip


def batches_of(rows: Sequence[Row], cuts: Sequence[int]) -> list[Sequence[Row]]:
    edges = [0, *sorted({cut for cut in cuts if 0 < cut < len(rows)}), len(rows)]
    return [rows[a:b] for a, b in itertools.pairwise(edges) if b > a]


def pass_of(batches: Sequence[Sequence[Row]]) -> Rows:
    (rows,) = passes_of([row for batch in batches for row in batch], 1)
    assert rows is not None
    sizes = [len(batch) for batch in batches]
    rows.batch_starts = np.array([0, *np.cumsum(sizes[:-1])], dtype=np.int64)
    return rows


def put_out(operators: Sequence[Operator], passes: Sequence[Rows], boundary_us: int) -> list[str]:
    """What a chain of operators puts out, in order, with its times."""
    texts = []
    for rows in [*passes, None]:
        given: Rows | None = rows
        for operator in operators:
            given = operator.process([given], LOW, boundary_us if rows else END_US).rows
        if given is not None:
            assert (np.diff(given.order) >= 0).all()
            given.batch.validate(full=True)
            assert given.batch.schema == operators[-1].output_schema
            listed = zip(given.time_us.tolist(), given.batch.to_pylist(), strict=True)
            texts += [f"{time} {row}" for time, row in listed]
    return texts


cuts_strategy = st.lists(st.integers(0, 40), max_size=6)
keys_strategy = st.sampled_from([(), ("k",), ("i",), ("k", "x"), ("x", "d")])


@given(rows_strategy, cuts_strategy, keys_strategy, st.sampled_from([(10, 10), (10, 4), (3, 3)]))
def test_added_up_they_are_the_aggregate(
    rows: list[Row], cuts: list[int], keys: tuple[str, ...], window: tuple[int, int]
) -> None:
    size, slide = window
    if not rows:
        return
    passes = [pass_of([batch]) for batch in batches_of(rows, cuts)]
    part = parts(keys, int(np.gcd(size, slide)))
    added = windows(keys, size, slide, part.output_schema)
    whole = windows(keys, size, slide, None)
    assert put_out([part, added], passes, -1000) == put_out([whole], passes, -1000)


@given(rows_strategy, cuts_strategy, cuts_strategy, keys_strategy, st.booleans())
def test_passes_of_several_batches_give_the_same_parts(
    rows: list[Row], cuts: list[int], joined: list[int], keys: tuple[str, ...], is_filtered: bool
) -> None:
    def chain() -> list[Operator]:
        part = parts(keys, 7)
        return [Filter("filter", SCHEMA, IsPositive()), part] if is_filtered else [part]

    batches = batches_of(rows, cuts)
    alone = [pass_of([batch]) for batch in batches]
    edges = [0, *sorted({cut for cut in joined if 0 < cut < len(batches)}), len(batches)]
    together = [pass_of(batches[a:b]) for a, b in itertools.pairwise(edges) if b > a]
    assert put_out(chain(), alone, -1000) == put_out(chain(), together, -1000)


def test_a_part_has_the_place_and_the_time_of_its_first_row() -> None:
    values = [("a", 3), ("b", 9), ("a", 8), ("a", 12), ("b", 1)]
    rows: list[Row] = [
        (0, time, {"k": key, "x": 0.0, "i": time, "d": None}) for key, time in values
    ]
    part = parts(["k"], 10, ["n", "total"])
    made = part.process([pass_of([rows])], LOW, 0).rows
    assert made is not None
    assert made.batch.to_pylist() == [
        {"k": "a", "n": 2, "total": 11},
        {"k": "b", "n": 2, "total": 10},
        {"k": "a", "n": 1, "total": 12},
    ]
    assert made.time_us.tolist() == [3, 9, 12]
    assert made.order.tolist() == [0, 1, 3]


def test_dictionaries_are_keys_too() -> None:
    schema = pa.schema([("k", pa.dictionary(pa.int32(), pa.string()))])
    column = pa.array(["a", "b", None, "a", None]).dictionary_encode()
    batch = pa.RecordBatch.from_arrays([column], schema=schema)
    part = PartialAggregate("part", schema, ["k"], [("count", None, "n")], pane_us=10)
    numbers = np.arange(5, dtype=np.int64)
    made = part.process([Rows(batch, numbers, numbers, 0)], LOW, 0).rows
    assert made is not None
    assert made.batch.to_pylist() == [{"k": "a", "n": 2}, {"k": "b", "n": 1}, {"k": None, "n": 2}]


def test_a_sum_that_does_not_fit_is_refused() -> None:
    rows: list[Row] = [(0, 1, {"k": "a", "x": 0.0, "i": 2**62, "d": None}) for _ in range(2)]
    with pytest.raises(ArithmeticOverflow, match="total"):
        parts(["k"], 10, ["total"]).process([pass_of([rows])], LOW, 0)


def test_text_has_no_parts() -> None:
    with pytest.raises(LocalProtocolError, match="text"):
        PartialAggregate("part", SCHEMA, ["i"], [("min", Column("k"), "least")], pane_us=10)
