"""Running one operator over passes, as a node would, and what must hold of any."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from holdfast.core.model.ids import BEGINNING_US, END_US, NO_ID
from holdfast.core.operators.base import ArbitraryOperator, Operator, Rows
from holdfast.core.state import kernels
from holdfast.core.state.page_manager import PageManager

SCHEMA = pa.schema(
    [
        ("k", pa.string()),
        ("x", pa.float64()),
        ("i", pa.int64()),
        ("d", pa.decimal128(10, 2)),
    ]
)


@dataclass
class Column:
    """Evaluates to a column."""

    name: str
    schema: pa.Schema = SCHEMA

    @property
    def type(self) -> pa.DataType:
        return self.schema.field(self.name).type

    def evaluate(self, batch: pa.RecordBatch) -> pa.Array:
        return batch.column(self.name)


@dataclass
class IsPositive:
    name: str = "is_positive"

    @property
    def type(self) -> pa.DataType:
        return pa.bool_()

    def evaluate(self, batch: pa.RecordBatch) -> pa.Array:
        positive = [None if v is None else v > 0 for v in batch.column("i").to_pylist()]
        return pa.array(positive, type=pa.bool_())


Row = tuple[int, int, dict[str, object]]  # port, time, values

decimals = st.decimals(-1000, 1000, places=2)
values = st.fixed_dictionaries(
    {
        "k": st.sampled_from([None, "", "a", "b", "a long key that takes more than a word"]),
        "x": st.sampled_from([None, 0.0, -0.0, 1.5, -2.25, float("nan"), float("inf")]),
        "i": st.one_of(st.none(), st.integers(-5, 5)),
        "d": st.one_of(st.none(), decimals),
    }
)
rows_strategy = st.lists(st.tuples(st.integers(0, 1), st.integers(-30, 60), values), max_size=40)


def passes_of(rows: Sequence[Row], ports: int) -> list[Rows | None]:
    result: list[Rows | None] = []
    for port in range(ports):
        mine = [(n, time, value) for n, (p, time, value) in enumerate(rows) if p % ports == port]
        if not mine:
            result.append(None)
            continue
        batch = pa.RecordBatch.from_pylist([value for _, _, value in mine], schema=SCHEMA)
        times = np.array([time for _, time, _ in mine], dtype=np.int64)
        result.append(Rows(batch, times, np.array([n for n, _, _ in mine], dtype=np.int64), 0))
    return result


@dataclass
class Lifetime:
    """An operator's output so far, and what it has promised.

    After passes that begin at a number in `lazy`, the boundary stays where it was.
    """

    operator: Operator
    rows: Sequence[Row]
    ports: int
    clock: Callable[[int], tuple[int, int]] | None = None
    lazy: frozenset[int] = frozenset()
    text: list[str] = field(default_factory=list)
    output: list[dict[str, object]] = field(default_factory=list)
    times: list[int] = field(default_factory=list)
    boundary: int = BEGINNING_US
    promised: int = BEGINNING_US

    def round(self, begin: int, end: int) -> None:
        """Process the rows of these numbers, which are their ids too."""
        rest = [time for _, time, _ in self.rows[end:]]
        if begin == end or begin not in self.lazy:
            self.boundary = max(self.boundary, min(rest, default=END_US))
        low = np.array([begin if end > begin else NO_ID], dtype=np.int64)
        if isinstance(self.operator, ArbitraryOperator):
            assert self.clock is not None
            self.operator.decide(*self.clock(begin))
        given = passes_of(self.rows[begin:end], self.ports)
        result = self.operator.process(given, low, self.boundary)
        self.operator.check_invariants()
        if result.rows is not None:
            got = result.rows
            assert result.low is not None
            assert len(got.time_us)
            assert got.batch.schema == self.operator.output_schema
            assert (np.diff(got.order) >= 0).all()
            assert got.time_us.min() >= self.promised
            got.batch.validate(full=True)
            listed = got.batch.to_pylist()
            self.output += listed
            self.times += got.time_us.tolist()
            self.text += [f"{t} {r}" for t, r in zip(got.time_us.tolist(), listed, strict=True)]
        promised = self.operator.promises_us(self.boundary)
        assert promised >= self.promised
        assert promised == END_US or self.boundary < END_US
        self.promised = promised

    def take(self, begin: int, cuts: Sequence[int], end: int) -> None:
        """Process the rows from `begin` to `end`, in passes that end at these cuts."""
        inner = sorted({cut for cut in cuts if begin < cut < end})
        for first, last in itertools.pairwise([begin, *inner, end]):
            self.round(first, last)
        if end == len(self.rows) and self.boundary < END_US:
            self.round(end, end)


def run(
    operator: Operator,
    rows: Sequence[Row],
    cuts: Sequence[int],
    ports: int,
    clock: Callable[[int], tuple[int, int]] | None = None,
    lazy: Sequence[int] = (),
) -> tuple[list[str], list[dict[str, object]]]:
    """Output rows of the whole run, as (text with times, values)."""
    life = Lifetime(operator, rows, ports, clock, frozenset(lazy))
    life.take(0, cuts, len(rows))
    return life.text, life.output


def restored(
    build: Callable[[PageManager], Operator], manager: PageManager
) -> tuple[Operator, PageManager]:
    """The operator over a copy of its pages, as from a checkpoint."""
    snapshot = manager.checkpoint()
    words = np.empty(len(snapshot.pages) * manager.page_words, dtype=np.int64)
    kernels.copy_pages(manager.arena, manager.shift, snapshot.pages, words)
    manager.finish(snapshot)
    other = PageManager(page_bytes=manager.page_bytes)
    order = np.arange(len(snapshot.pages), dtype=np.int64)[::-1].copy()
    physical = other.load(snapshot.page_sets, snapshot.counts, order, snapshot.next_set)
    other.arena.reshape(-1, other.page_words)[physical] = words.reshape(-1, manager.page_words)
    operator = build(other)
    other.recovered()
    operator.check_invariants()
    return operator, other
