"""State that moves to another number of instances: the results are those of a single one."""

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keyed_class import process
from passes import SCHEMA, Column, Row, passes_of, rows_strategy

from holdfast.core.errors import LocalProtocolError
from holdfast.core.model.ids import BEGINNING_US, END_US, NO_ID
from holdfast.core.model.stable_hash import partition_of
from holdfast.core.operators.aggregate import WindowAggregate
from holdfast.core.operators.base import Operator
from holdfast.core.operators.bsort import BSort
from holdfast.core.operators.changing_aggregate import ChangingAggregate
from holdfast.core.operators.distinct import Distinct
from holdfast.core.operators.incremental_join import IncrementalJoin
from holdfast.core.operators.interval_join import IntervalJoin
from holdfast.core.operators.join import JoinLayout, OutputField
from holdfast.core.operators.keyed_windows import KeyedWindows, KeyedWindowsWithTimeout
from holdfast.core.operators.processing_time import ProcessingTimeAggregate
from holdfast.core.operators.resample import Resample
from holdfast.core.operators.running_aggregate import RunningAggregate
from holdfast.core.operators.running_join import RunningJoin
from holdfast.core.operators.sessions import SessionWindows
from holdfast.core.operators.stream_windows import StreamWindowAggregate
from holdfast.core.operators.window_kinds import CountWindows, TimeWindows, WindowKind
from holdfast.core.operators.windowed_join import WindowedJoin

AGGREGATES = [
    ("count", None, "n"),
    ("sum", Column("i"), "total"),
    ("max", Column("k"), "last"),
    ("min", Column("d"), "least"),
    ("collect_set", Column("k"), "all"),
    ("percentile", Column("i"), "median", (0.5,)),
]
FIELDS: list[OutputField] = [
    ("left", "k", "k"), ("left", "i", "i"), ("right", "x", "x"), ("right", "d", "d"),
]  # fmt: skip
ON_K = JoinLayout("j", (SCHEMA, SCHEMA), (["k"], ["k"]), FIELDS)


def aggregate(keys: Sequence[str] = ("k",)) -> Operator:
    return WindowAggregate("a", SCHEMA, keys, AGGREGATES, size_us=40, slide_us=20)  # type: ignore[arg-type]


def changing() -> Operator:
    there = ("count", None, "there")
    return ChangingAggregate("c", SCHEMA, ["k"], AGGREGATES, there)  # type: ignore[arg-type]


def window_join() -> Operator:
    return WindowedJoin(ON_K, size_us=40, how="left")


def running_join() -> Operator:
    return RunningJoin(ON_K, size_us=40)


def interval_join() -> Operator:
    return IntervalJoin(ON_K, lower_us=-20, upper_us=20, how="full")


def join() -> Operator:
    return IncrementalJoin(JoinLayout("j", (SCHEMA, SCHEMA), (["k", "x"], ["k", "x"]), FIELDS))


def keyed(windows: WindowKind, keys: Sequence[str] = ("k",)) -> Callable[[], Operator]:
    return lambda: KeyedWindows("c", SCHEMA, keys, AGGREGATES, windows=windows)  # type: ignore[arg-type]


def sessions() -> Operator:
    return SessionWindows("e", SCHEMA, ["k"], AGGREGATES, gap_us=9)  # type: ignore[arg-type]


def resample(every_us: int | None) -> Operator:
    schemas = [SCHEMA] if every_us else [SCHEMA, SCHEMA]
    keys, columns = [["k"]] * len(schemas), [("i", "between"), ("x", "also")]
    return Resample("r", schemas, keys, columns, within_us=9, every_us=every_us)


KINDS: dict[str, tuple[Callable[[], Operator], tuple[str, ...], int]] = {
    "aggregate": (aggregate, ("k",), 1),
    "aggregate of all": (lambda: aggregate(()), (), 1),
    "aggregate by float": (lambda: aggregate(("x", "d")), ("x", "d"), 1),
    "window join": (window_join, ("k",), 2),
    "running join": (running_join, ("k",), 2),
    "join": (join, ("k", "x"), 2),
    "interval join": (interval_join, ("k",), 2),
    "running": (lambda: RunningAggregate("r", SCHEMA, ["k"], AGGREGATES), ("k",), 1),  # type: ignore[arg-type]
    "changing": (changing, ("k",), 1),
    "windows of some tuples": (keyed(CountWindows(3, 2)), ("k",), 1),
    "windows of the last tuples": (keyed(CountWindows(2, 1)), ("k",), 1),
    "windows from the first tuple": (keyed(TimeWindows(15, 10, is_epoch=False)), ("k",), 1),
    "windows from the first of all": (keyed(TimeWindows(15, 10, is_epoch=False), ()), (), 1),
    "sessions": (sessions, ("k",), 1),
    "distinct": (lambda: Distinct("d", SCHEMA, ["k"], within_us=None), ("k",), 1),
    "distinct within": (lambda: Distinct("d", SCHEMA, ["k"], within_us=9), ("k",), 1),
    "distinct of one time": (lambda: Distinct("d", SCHEMA, ["k"], within_us=0), ("k",), 1),
    "class": (lambda: process("none"), ("k",), 1),
    "class with timers": (lambda: process("event"), ("k",), 1),
    "resample": (lambda: resample(every_us=4), ("k",), 1),
    "resample at rows": (lambda: resample(every_us=None), ("k",), 2),
    "sort by time": (lambda: BSort("s", SCHEMA, by=None, slack=7), (), 1),
    "sort by column": (lambda: BSort("s", SCHEMA, by="d", slack=7), (), 1),
}


def run(
    operators: list[Operator], rows: Sequence[Row], keys: Sequence[str], ports: int, until: int
) -> list[tuple[object, ...]]:
    """What instances put out for rows that are split among them by key."""
    found: list[tuple[object, ...]] = []
    for index, operator in enumerate(operators):
        mine = [row for row in rows if where(row, keys, len(operators)) == index]
        low = np.zeros(1, dtype=np.int64)
        rows_out = operator.process(passes_of(mine, ports), low, until).rows
        operator.check_invariants()
        if rows_out is not None:
            found += [tuple(map(repr, r.values())) for r in rows_out.batch.to_pylist()]
    return found


def where(row: Row, keys: Sequence[str], count: int) -> int:
    if not keys:
        return 0
    batch = pa.RecordBatch.from_pylist([row[2]], schema=SCHEMA)
    return int(partition_of([batch.column(key) for key in keys], count)[0])


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=40)
@given(
    before=rows_strategy,
    after=rows_strategy,
    counts=st.tuples(st.integers(1, 3), st.integers(1, 3)),
)
def test_results_do_not_show_that_instances_have_changed(
    kind: str, before: list[Row], after: list[Row], counts: tuple[int, int]
) -> None:
    make, keys, ports = KINDS[kind]
    if not keys:
        counts = (1, 1)
    after = [(port, max(time, 20), value) for port, time, value in after]
    sole = [make()]
    expected = run(sole, before, keys, ports, 20) + run(sole, after, keys, ports, END_US)
    old = [make() for _ in range(counts[0])]
    found = run(old, before, keys, ports, 20)
    new = [make() for _ in range(counts[1])]
    for index, operator in enumerate(new):

        def owns(columns: Sequence[pa.Array], index: int = index) -> np.ndarray:
            return np.asarray(partition_of(columns, counts[1]) == index)

        operator.adopt(old, owns, 3)
        operator.check_invariants()
        needed = operator.oldest_needed()
        assert needed is None or needed.tolist() == [NO_ID] * 3
    assert sum(map(held_by, new)) == sum(map(held_by, old))
    for operator in new:  # Windows know as many input streams as their node has.
        low = np.zeros(3, dtype=np.int64)
        operator.process([None] * ports, low, BEGINNING_US)
    found += run_wide(new, after, keys, ports)
    assert Counter(found) == Counter(expected)


def held_by(operator: Operator) -> int:
    """Rows that people would be shown of its state."""
    rows = operator.state_rows()
    assert rows is not None
    return rows.num_rows


def run_wide(
    operators: list[Operator], rows: Sequence[Row], keys: Sequence[str], ports: int
) -> list[tuple[object, ...]]:
    """As `run` to the end, for nodes with three input streams."""
    found: list[tuple[object, ...]] = []
    for index, operator in enumerate(operators):
        mine = [row for row in rows if where(row, keys, len(operators)) == index]
        low = np.zeros(3, dtype=np.int64)
        rows_out = operator.process(passes_of(mine, ports), low, END_US).rows
        operator.check_invariants()
        if rows_out is not None:
            found += [tuple(map(repr, r.values())) for r in rows_out.batch.to_pylist()]
    return found


def nobody(columns: Sequence[pa.Array]) -> np.ndarray:
    return np.zeros(len(columns[0]), dtype=np.bool_)


def test_what_cannot_be_divided_says_so() -> None:
    sort = BSort("s", SCHEMA, by=None, slack=3)
    with pytest.raises(LocalProtocolError, match="the state of s is in 2 instances"):
        sort.adopt([sort, sort], nobody, 1)
    counted = StreamWindowAggregate("c", SCHEMA, ["k"], [("count", None, "n")], size=3, advance=3)
    timed = KeyedWindowsWithTimeout(
        "t",
        SCHEMA,
        ["k"],
        AGGREGATES,  # type: ignore[arg-type]
        windows=CountWindows(3, 3),
        timeout_us=5,
    )
    for operator in (counted, timed):
        with pytest.raises(LocalProtocolError, match=f"state of {operator.name} cannot be divided"):
            operator.adopt([], nobody, 1)
    ahead = resample(every_us=4)
    ahead.process([None], np.zeros(1, dtype=np.int64), 50)
    with pytest.raises(LocalProtocolError, match=r"one is at .*, one at"):
        resample(every_us=4).adopt([ahead, resample(every_us=4)], nobody, 1)
    clock = ProcessingTimeAggregate(
        "p",
        SCHEMA,
        ["k"],
        [("count", None, "n")],
        size_us=10,
        slide_us=10,
    )
    with pytest.raises(LocalProtocolError, match="the state of p cannot be divided"):
        clock.adopt([], nobody, 1)
