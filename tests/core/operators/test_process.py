"""Classes with states per key: as PySpark's own tester runs them, and where its promises end."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keyed_class import INT, RESULT, Watching, operator, parsed, process
from passes import SCHEMA, Row, passes_of, run
from pyspark.sql import Row as SparkRow
from pyspark.sql.streaming.tws_tester import TwsTester

from holdfast.api.functions import FunctionError
from holdfast.api.processors import processor_of
from holdfast.api.state_codecs import state_codec
from holdfast.core.model.ids import END_US, NO_ID
from holdfast.core.operators.bad_rows import BadRowError
from holdfast.errors import DataflowError, UnsupportedError

NONE = np.array([NO_ID], dtype=np.int64)
moments = st.lists(
    st.tuples(st.integers(1, 25), st.sampled_from(["a", "b", ""]), st.integers(-5, 5)), max_size=25
)


def row_of(time_ms: int, k: str, i: int | None) -> Row:
    return 0, 1000 * time_ms, {"k": k, "x": time_ms / 2, "i": i, "d": None}


def by_tester(of: Any, rows: list[tuple[int, str, int]], time: str) -> tuple[list[str], TwsTester]:
    """What PySpark's tester makes of rows one by one, with the watermark of the row before."""
    tester = TwsTester(of, timeMode=time, eventTimeExtractor=lambda row: row.at)
    found: list[Any] = []
    reached = 0

    def moved(until: int) -> None:
        nonlocal reached
        while time == "EventTime" and reached < until:
            reached += 1
            found.extend(tester.setWatermark(reached))

    for at, k, i in sorted(rows, key=lambda row: row[0]) if time == "EventTime" else rows:
        moved(at - 1)
        found.extend(tester.test(k, [SparkRow(k=k, x=at / 2, i=i, at=at)]))
    moved(100)
    return sorted(map(repr, found)), tester


@settings(max_examples=30)
@given(rows=moments, time=st.sampled_from(["None", "EventTime"]), cut=st.integers(0, 25))
def test_a_class_does_what_it_does_in_pysparks_tester(
    rows: list[tuple[int, str, int]], time: str, cut: int
) -> None:
    has_timers = time == "EventTime"
    expected, tester = by_tester(Watching(has_timers, chains=False), rows, time)
    ours = operator(Watching(has_timers, chains=False), "event" if has_timers else "none")
    _, output = run(ours, [row_of(*row) for row in rows], [cut], 1)
    assert sorted(map(repr, output)) == expected
    kept = {(row["k"], row["state"]): row["value"] for row in ours.state_rows().to_pylist()}
    for k in {k for _, k, _ in rows}:
        count = kept.get((k, "count"))
        stored = None if count is None else tuple(json.loads(count)[0][1])
        assert stored == tester.peekValueState("count", k)
        sums = json.loads(kept.get((k, "sums"), "[]"))
        assert {tuple(key): tuple(value) for _, value, key in sums} == tester.peekMapState(
            "sums", k
        )
        last = [tuple(value) for _, value in json.loads(kept.get((k, "last"), "[]"))]
        assert last == tester.peekListState("last", k)


class Ticking:
    """A timer that always sets the next one, a millisecond later."""

    def init(self, handle: Any) -> None:
        self.handle = handle

    def handleInputRows(self, key: Any, rows: Any, timers: Any) -> Iterator[Any]:
        self.handle.registerTimer(timers.getCurrentWatermarkInMs() + 2)
        yield from ()

    def handleExpiredTimer(self, key: Any, timers: Any, info: Any) -> Iterator[Any]:
        at, time_ms = timers.getCurrentWatermarkInMs(), info.getExpiryTimeInMs()
        self.handle.registerTimer(max(at, time_ms) + 1)
        yield {"k": key[0], "what": "tick", "n": time_ms, "at": at}


@pytest.mark.parametrize("cuts", [[], [1], [1, 2]])
def test_timers_that_set_timers_go_on_as_far_as_rows_do(cuts: list[int]) -> None:
    rows = [row_of(1, "a", 1), row_of(5, "a", 1), row_of(50, "b", 1)]
    _, output = run(operator(Ticking(), "event"), rows, cuts, 1)
    # Set by the first row for 2; those for 3 and 4 had to wait for a row, and for 5 until it was
    # over. The second row's is for 6, as is the fourth timer's: there is one at each time.
    assert [row["n"] for row in output if row["k"] == "a"] == [2, *range(3, 51)]
    assert [row["n"] for row in output if row["k"] == "b"] == [51]


class Lasting:
    """A value, a list and a map that last some milliseconds of the clock."""

    def init(self, handle: Any) -> None:
        self.handle = handle
        self.value = handle.getValueState("value", INT, 10)
        self.items = handle.getListState("items", INT, 10)
        self.map = handle.getMapState("map", INT, INT, 30)

    def handleInputRows(self, key: Any, rows: Any, timers: Any) -> Iterator[Any]:
        now = timers.getCurrentProcessingTimeInMs()
        kept = self.value.get(), list(self.items.get()), list(self.map.iterator())
        for row in rows:
            self.value.update((row.i,))
            self.items.appendValue((row.i,))
            self.map.updateValue((row.i,), (now,))
            if row.i == 7:
                self.handle.registerTimer(now + 3)
        yield {"k": key[0], "what": str(kept), "n": 0, "at": now}

    def handleExpiredTimer(self, key: Any, timers: Any, info: Any) -> Iterator[Any]:
        now = timers.getCurrentProcessingTimeInMs()
        yield {"k": key[0], "what": "timer", "n": info.getExpiryTimeInMs(), "at": now}


def test_states_last_as_long_as_they_say_by_the_clock_and_are_gone_then() -> None:
    ours: Any = operator(Lasting(), "processing")
    assert ours.wake_us() is not None

    def at(now_ms: int, *rows: Row) -> list[Any]:
        ours.decide(1000 * now_ms, 0)
        low = np.array([0 if rows else NO_ID], dtype=np.int64)
        found = ours.process(passes_of(rows, 1), low, 5).rows
        ours.check_invariants()
        assert found is None or set(found.time_us.tolist()) == {1000 * now_ms}
        return [] if found is None else [r["what"] for r in found.batch.to_pylist()]

    assert at(100, row_of(1, "a", 7)) == ["(None, [], [])"]
    assert ours.wake_us() == 103_000
    assert at(103) == ["timer"]
    assert at(105, row_of(1, "a", 8)) == ["((7,), [(7,)], [((7,), (100,))])"]
    assert at(112, row_of(2, "a", 9)) == ["((8,), [(8,)], [((7,), (100,)), ((8,), (105,))])"]
    assert at(122) == []
    assert [row["state"] for row in ours.state_rows().to_pylist()] == ["map"]
    assert at(130, row_of(3, "a", 1)) == ["(None, [], [((8,), (105,)), ((9,), (112,))])"]
    at(170)
    assert ours.state_rows().num_rows == 0
    assert at(171, row_of(1, "b", 7)) == ["(None, [], [])"]
    found = ours.process([None], NONE, END_US)
    assert found.rows is None, "at the end the clock's timers have no turn"
    assert ours.promises_us(END_US) == END_US


class Frames:
    """Takes and gives data frames."""

    def init(self, handle: Any) -> None:
        self.count = handle.getValueState("count", INT)

    def handleInputRows(self, key: Any, rows: Any, timers: Any) -> Iterator[Any]:
        (n,) = self.count.get() or (0,)
        for frame in rows:
            n += len(frame)
            self.count.update((np.int64(n),))
            yield pd.DataFrame(
                {"n": [n, n], "what": [frame["k"].iloc[0], None], "k": key[0], "at": 0}
            )


def test_a_class_may_take_data_frames() -> None:
    ours = operator(Frames(), "none", rows="pandas")
    _, output = run(ours, [row_of(1, "a", 1), row_of(2, "a", 2)], [1], 1)
    assert [(row["n"], row["what"]) for row in output] == [(1, "a"), (1, None), (2, "a"), (2, None)]


class Odd:
    """Does what it is told to."""

    def __init__(self, does: Any) -> None:
        self.does = does

    def init(self, handle: Any) -> None:
        self.handle = handle
        self.value = handle.getValueState("value", INT)
        self.map = handle.getMapState("map", INT, INT)

    def handleInputRows(self, key: Any, rows: Any, timers: Any) -> Any:
        return self.does(self)

    def __deepcopy__(self, memo: Any) -> Odd:
        return Odd(self.does)


@pytest.mark.parametrize(
    ("does", "says"),
    [
        (lambda _: 1 // 0, "Odd: ZeroDivisionError.*at the tuple of time 1970-01-01T00:00:00.001"),
        (lambda own: own.value.update((1.5,)), "state 'value': 1.5 for i: it is float, not int"),
        (
            lambda own: own.value.update((1, 2)),
            r"state 'value': \\(1, 2\\) has 2 values; there are i",
        ),
        (lambda own: own.value.update(3), "state 'value': 3 is no tuple"),
        (lambda own: own.map.updateValue((1 << 70,), (1,)), "does not fit in 64 bits"),
        (lambda own: own.handle.registerTimer(5), "there are no timers with time='none'"),
        (lambda own: [("a",)], r"gave \\('a',\\); a result is a Row or a dict"),
        (lambda own: [{"n": 2.5}], "gave 2.5 for n, int64"),
    ],
)
def test_a_class_that_fails_says_at_which_row(does: Any, says: str) -> None:
    with pytest.raises(BadRowError, match=says.replace("\\\\", "\\")):
        run(operator(Odd(does), "none"), [row_of(1, "a", 1)], [], 1)


def test_a_timer_is_later_than_the_watermark() -> None:
    ours = operator(Odd(lambda own: own.handle.registerTimer(4)), "event")
    with pytest.raises(BadRowError, match="a timer of 4, which is no later than the watermark, 4"):
        run(ours, [row_of(5, "a", 1)], [], 1)


def test_states_belong_to_a_key() -> None:
    kept: list[Odd] = []
    ours = operator(Odd(lambda own: kept.extend([own])), "none")
    run(ours, [row_of(1, "a", 1)], [], 1)
    with pytest.raises(FunctionError, match="states belong to a key"):
        kept[0].value.get()


@pytest.mark.parametrize(
    ("asks", "error", "says"),
    [
        (
            lambda h: [h.getValueState("s", INT), h.getListState("s", INT)],
            DataflowError,
            "two states",
        ),
        (lambda h: h.getValueState("s", INT, 5), UnsupportedError, "write time='processing'"),
        (lambda h: h.getValueState("s", INT, 0), DataflowError, "lasts 0 milliseconds"),
        (
            lambda h: h.getMapState("s", pa.schema([("x", pa.list_(pa.int64()))]), INT),
            UnsupportedError,
            "a key has a column x list",
        ),
        (
            lambda h: h.getValueState("s", pa.schema([("x", pa.duration("us"))])),
            UnsupportedError,
            "column x is duration",
        ),
        (lambda h: 1 // 0, DataflowError, "init: integer division"),
    ],
)
def test_a_class_whose_states_cannot_be_is_refused(asks: Any, error: Any, says: str) -> None:
    class Asking(Odd):
        def init(self, handle: Any) -> None:
            asks(handle)

        def __deepcopy__(self, memo: Any) -> Asking:
            return self

    with pytest.raises(error, match=says):
        processor_of(Asking(None), RESULT, "none", "rows", parsed)


@pytest.mark.parametrize(
    ("of", "time", "rows", "says"),
    [
        (object(), "none", "rows", "with a method init"),
        (Ticking(), "EventTime", "rows", "it is 'none', 'event' or 'processing'"),
        (Ticking(), "none", "arrow", "it is 'rows' or 'pandas'"),
    ],
)
def test_what_is_no_class_is_refused(of: Any, time: str, rows: str, says: str) -> None:
    with pytest.raises(DataflowError, match=says):
        processor_of(of, RESULT, time, rows, parsed)


def test_values_of_every_type_are_read_as_they_were_written_and_columns_may_be_added() -> None:
    types = [
        ("i", pa.int8(), -128), ("f", pa.float32(), 1.5), ("d", pa.float64(), float("inf")),
        ("b", pa.bool_(), True), ("s", pa.string(), "ä"), ("y", pa.binary(), b"\x00\xff"),
        ("t", pa.timestamp("us", tz="UTC"), dt.datetime(1, 1, 1, 0, 0, 0, 1)),
        ("a", pa.date32(), dt.date(9999, 12, 31)), ("m", pa.decimal128(5, 2), Decimal("-1.50")),
        ("l", pa.list_(pa.list_(pa.int64())), [[1, None], [], None]), ("n", pa.int64(), None),
    ]  # fmt: skip
    schema = pa.schema([(name, kind) for name, kind, _ in types])
    codec = state_codec("all", schema)
    row = tuple(value for _, _, value in types)
    stored = json.loads(json.dumps(codec.dump(row)))
    assert codec.load(stored) == row
    wider = state_codec("all", schema.append(pa.field("more", pa.string())))
    assert wider.load(stored) == (*row, None)
    aware = dt.datetime(2020, 1, 1, 2, tzinfo=dt.timezone(dt.timedelta(hours=2)))
    zoned = state_codec("one", pa.schema([("t", pa.timestamp("us", tz="UTC"))]))
    assert zoned.load(zoned.dump((aware,))) == (dt.datetime(2020, 1, 1),)


def test_a_class_without_states_is_one_that_forgets() -> None:
    ours = operator(Ticking(), "none")
    assert ours.state_rows().num_rows == 0
    with pytest.raises(BadRowError, match="no timers"):
        ours.process(passes_of([row_of(1, "a", 1)], 1), np.array([0]), 5)
    assert SCHEMA.names[0] in ours.state_rows().column_names
    assert process("none").closes_us(7) < 0
    assert process("event").closes_us(7) == 7
