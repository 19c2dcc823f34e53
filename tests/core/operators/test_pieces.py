"""Windows of many groups come in pieces, those of few together: always the same rows."""

from __future__ import annotations

import tracemalloc
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from passes import Column

from holdfast.core.operators import aggregate, base
from holdfast.core.operators.aggregate import WindowAggregate
from holdfast.core.operators.base import NOTHING, Output, Rows, in_pieces, joined
from holdfast.core.operators.stream_windows import StreamWindowAggregate

SCHEMA = pa.schema([pa.field("k", pa.int64(), nullable=False), pa.field("s", pa.string())])
LOW = np.array([3], dtype=np.int64)


def rows(keys: list[int], time_us: list[int]) -> Rows:
    batch = pa.RecordBatch.from_arrays(
        [pa.array(keys), pa.array([f"s{k % 5}" for k in keys])], schema=SCHEMA
    )
    order = np.arange(len(keys), dtype=np.int64)
    return Rows(batch, np.array(time_us, dtype=np.int64), order, 9)


def closing(keys: list[int], time_us: list[int]) -> Output:
    operator = WindowAggregate("a", SCHEMA, ["s", "k"], [("count", None, "n")], size_us=10)
    assert operator.process([rows(keys, time_us)], LOW, 0) == NOTHING
    return operator.process([None], LOW, 1_000)


def same(a: Rows, b: Rows) -> bool:
    return (
        a.batch.equals(b.batch)
        and np.array_equal(a.time_us, b.time_us)
        and np.array_equal(a.order, b.order)
        and a.created_us == b.created_us
    )


@pytest.mark.parametrize("piece_rows", [1, 7, 10, 64])
@pytest.mark.parametrize("windows", [1, 3, 40])
def test_pieces_are_the_same_rows(
    piece_rows: int, windows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = [(i * 7919) % 83 for i in range(400)]
    times = [i % (10 * windows) for i in range(400)]
    whole = closing(keys, times)
    assert len(whole.pieces) == 1
    for module in (base, aggregate):
        monkeypatch.setattr(module, "PIECE_ROWS", piece_rows)
    cut = closing(keys, times)
    assert cut.low is not None
    assert cut.low.tolist() == [3]
    sizes = [len(piece.time_us) for piece in cut.pieces]
    assert max(sizes) <= piece_rows
    assert all(a + b > piece_rows for a, b in pairwise(sizes)), "no crumbs"
    assert whole.rows is not None
    assert same(joined(cut.pieces), whole.rows)


def test_windows_of_tuples_take_their_place_piece_by_piece(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def put_out() -> Output:
        operator = StreamWindowAggregate(
            "a", SCHEMA, ["k"], [("count", None, "n")], size=20, advance=20
        )
        return operator.process([rows(list(range(50)), list(range(100, 150)))], np.array([0]), 0)

    whole = put_out()
    for module in (base, aggregate):
        monkeypatch.setattr(module, "PIECE_ROWS", 6)
    cut = put_out()
    assert len(cut.pieces) > len(whole.pieces)
    assert whole.rows is not None
    assert whole.rows.time_us.tolist() == [119] * 20 + [139] * 20
    assert same(joined(cut.pieces), whole.rows)


def test_nothing_is_no_piece() -> None:
    assert in_pieces([]) == ()
    assert Output((), None).rows is None


def test_who_keeps_one_column_keeps_no_other() -> None:
    schema = pa.schema([SCHEMA.field("k")])
    sums = [("sum", Column("k", schema), f"s{i}") for i in range(20)]
    operator = WindowAggregate("a", schema, ["k"], sums, size_us=10)
    keys = pa.RecordBatch.from_arrays([pa.array(range(30_000))], schema=schema)
    zeros = np.zeros(30_000, dtype=np.int64)
    operator.process([Rows(keys, zeros, zeros, 9)], LOW, 0)
    tracemalloc.start()
    try:
        (piece,) = operator.process([None], LOW, 1_000).pieces
        kept = piece.batch.select(["k", "s7"])
        del piece
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept.nbytes > 400_000
    assert held < 2 * kept.nbytes
