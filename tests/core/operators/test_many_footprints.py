"""What footprints cost does not grow with windows and groups that have no part in it."""

import random
import tracemalloc
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pytest

from holdfast.core.operators import footprinted_aggregate
from holdfast.core.operators.accumulators import Aggregate, AggregateFunction
from holdfast.core.operators.base import Rows
from holdfast.core.operators.footprinted_aggregate import FootprintedAggregate
from holdfast.core.operators.footprinted_join import FootprintedJoin
from holdfast.core.operators.join import JoinLayout
from holdfast.core.operators.windows import WindowDirectory
from holdfast.core.operators.written_segments import WrittenSegments
from holdfast.core.state.page_manager import PageManager

SCHEMA = pa.schema([("k", pa.int64()), ("x", pa.int64())])
LOW = np.zeros(1, dtype=np.int64)


@dataclass
class Column:
    name: str
    type = pa.int64()

    def evaluate(self, batch: pa.RecordBatch) -> pa.Array:
        return batch.column(self.name)


def aggregate(function: AggregateFunction) -> FootprintedAggregate:
    calls = [Aggregate(function, Column("x"), "v")]
    manager = PageManager(state_bytes_max=1 << 30)
    return FootprintedAggregate("w", SCHEMA, ["k"], calls, size_us=10_000, manager=manager)


def rows(keys: np.ndarray, times: np.ndarray) -> Rows:
    batch = pa.RecordBatch.from_arrays([pa.array(keys), pa.array(keys)], schema=SCHEMA)
    return Rows(batch, times, np.arange(len(keys), dtype=np.int64), 0)


def filled(operator: FootprintedAggregate, groups: int) -> np.ndarray:
    """The tail of the only window, which has so many groups."""
    operator.begin_pass(1)
    keys = np.arange(groups, dtype=np.int64)
    operator.process([rows(keys, np.zeros(groups, dtype=np.int64))], LOW, 0)
    return operator.end_pass().windows


@pytest.mark.parametrize(("function", "groups"), [("sum", 64), ("collect_list", 1)])
def test_a_group_that_grows_without_bound_is_a_footprint_of_its_own(
    function: AggregateFunction, groups: int
) -> None:
    operator = aggregate(function)
    said = operator.footprints(filled(operator, 200), 1, 2, 1)
    assert said.bodies.column("groups").value_lengths().to_pylist() == [groups]
    assert operator.open_windows == 2, "it, and the tail"
    operator.check_invariants()


def test_a_piece_of_a_window_of_many_groups_looks_at_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Who looks at all segments makes an array of as many words."""
    monkeypatch.setattr(footprinted_aggregate, "SEGMENT", 1)
    made = [bytes_of_a_piece(groups) for groups in (1_000, 200_000)]
    assert made[1] < 2 * made[0]


def bytes_of_a_piece(groups: int) -> int:
    """The most memory that a piece holds beside what was there before; the median of many."""
    operator = aggregate("sum")
    tail, pieces = filled(operator, groups), []
    tracemalloc.start()
    for generation in range(2, 42):
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        operator.footprints(tail, 1, generation, 10)
        pieces.append(tracemalloc.get_traced_memory()[1] - before)
    tracemalloc.stop()
    return sorted(pieces)[20]


def test_what_is_known_of_segments_is_not_copied_for_each_that_comes() -> None:
    written, rng, copies = WrittenSegments(), random.Random(1), set()
    for number in range(1_000):
        written.write(number, np.full((3, 1), number, dtype=np.int64))
        copies.add(written.generations.__array_interface__["data"][0])
        first = rng.randrange(number + 1)
        new = np.full((3, 1), number, dtype=np.int64)
        new[0] -= rng.randrange(2)  # It rests.
        written.write(first, new)
        assert written.rests == len(written.resting)
        assert written.count == number + 1 + written.rests
    assert len(copies) < 20
    assert written.prints.tolist()[-1:] == [999]


def test_each_group_may_be_taken_over_at_a_cut_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(footprinted_aggregate, "SEGMENT", 1)
    groups = 6_000
    operator, other = aggregate("sum"), aggregate("sum")
    said = operator.footprints(filled(operator, groups), 1, 2, groups)
    cuts = np.arange(groups, dtype=np.int64)
    other.adopt_footprints(said.bodies, cuts, cuts, 1)
    other.end_replay(0)
    assert other.state_rows().equals(operator.state_rows())


@pytest.mark.parametrize("function", ["sum", "collect_list"])
def test_windows_are_adopted_together_as_one_by_one(function: AggregateFunction) -> None:
    operator, streams = aggregate(function), 1
    operator.begin_pass(1)
    numbers = np.arange(900, dtype=np.int64)
    operator.process([rows(numbers % 130, numbers % 7 * 10_000)], LOW, 0)
    said = operator.footprints(operator.end_pass().windows, 1, 2, 2_000)
    mixed = pa.array(np.random.default_rng(1).permutation(said.bodies.num_rows))
    bodies = said.bodies.take(mixed)
    cuts = np.arange(bodies.num_rows, dtype=np.int64)
    together = aggregate(function)
    assert together.adopt_footprints(bodies, cuts, cuts, streams).tolist() == [
        list(name) for name in zip(*(bodies.column(at).to_pylist() for at in range(2)), strict=True)
    ]
    together.end_replay(0)
    together.check_invariants()
    assert together.state_rows().equals(operator.state_rows())
    starts = bodies.column(0).to_numpy()
    for start in np.unique(starts).tolist():
        alone, mine = aggregate(function), np.flatnonzero(starts == start)
        alone.adopt_footprints(bodies.take(pa.array(mine)), cuts[mine], cuts, streams)
        alone.end_replay(0)
        found, expected = together._written[start], alone._written[start]
        assert found.names(start).tolist() == expected.names(start).tolist()
        assert found.prints.tolist() == expected.prints.tolist()
        assert found.needed().tolist() == expected.needed().tolist()


def test_no_piece_of_a_join_looks_at_windows_that_have_no_part_in_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    layout = JoinLayout("j", (SCHEMA, SCHEMA), (["k"], ["k"]), [("left", "x", "x")])
    operator = FootprintedJoin(layout, size_us=10)
    times = np.arange(0, 1_000, 10, dtype=np.int64)
    monkeypatch.setattr(WindowDirectory, "states", None)
    operator.begin_pass(1)
    operator.process([rows(times, times), rows(times, times)], LOW, 0)
    opened = operator.end_pass().windows
    assert opened[:, 0].tolist() == times.tolist()
    assert len(operator.footprints(opened[:2], 1, 2, 9).windows) == 2
    assert operator.open_windows == 100, "small parts are written anew"
    operator.begin_pass(3)
    operator.process([None, None], LOW, 30)
    closed = operator.end_pass()
    assert closed.closed.column("window").to_pylist() == [0, 10, 20]
    assert operator.open_windows == 97
