"""Count windows, windows from the first tuple, BSort and Resample against plain models; these and
joins of windows replayed and restored.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Literal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keyed_class import process
from passes import SCHEMA, Column, Lifetime, Row, passes_of, restored, rows_strategy, run

from holdfast.core.errors import LocalProtocolError
from holdfast.core.model.ids import END_US, NO_ID
from holdfast.core.operators.aggregate import WindowAggregate
from holdfast.core.operators.base import ArithmeticOverflow, Operator, OperatorClass
from holdfast.core.operators.bsort import BSort
from holdfast.core.operators.distinct import Distinct
from holdfast.core.operators.join import JoinLayout, OutputField
from holdfast.core.operators.keyed_windows import KeyedWindows
from holdfast.core.operators.resample import Resample
from holdfast.core.operators.running_join import RunningJoin
from holdfast.core.operators.sessions import SessionWindows
from holdfast.core.operators.window_kinds import CountWindows, TimeWindows, WindowKind
from holdfast.core.operators.windowed_join import WindowedJoin
from holdfast.core.state.page_manager import PageManager

Build = Callable[[PageManager], Operator]
AGGREGATES = [
    ("count", None, "n"), ("sum", Column("i"), "sum_i"), ("max", Column("d"), "max_d"),
    ("min", Column("k"), "min_k"), ("max", Column("k"), "max_k"), ("avg", Column("x"), "avg_x"),
]  # fmt: skip
FIELDS: list[OutputField] = [("left", "k", "k"), ("left", "i", "i"), ("right", "d", "d")]
ON_K = JoinLayout("j", (SCHEMA, SCHEMA), (["k"], ["k"]), FIELDS)


def keyed(windows: WindowKind, *keys: str) -> Build:
    def build(manager: PageManager) -> Operator:
        return KeyedWindows("w", SCHEMA, keys, AGGREGATES, windows=windows, manager=manager)  # type: ignore[arg-type]

    return build


def sort(by: str | None, slack: int) -> Build:
    return lambda manager: BSort("sort", SCHEMA, by=by, slack=slack, manager=manager)


def resample(*keys: str, every_us: int | None = None, within_us: int = 16) -> Build:
    ports = 1 if every_us else 2

    def build(manager: PageManager) -> Operator:
        columns = [("i", "at_i"), ("x", "at_x")]
        return Resample(
            "r", [SCHEMA] * ports, [keys] * ports, columns,
            within_us=within_us, every_us=every_us, manager=manager,
        )  # fmt: skip

    return build


def aggregate(size_us: int, slide_us: int, emit: Literal["final", "changes"]) -> Build:
    def build(manager: PageManager) -> Operator:
        return WindowAggregate(
            "a", SCHEMA, ["k"], AGGREGATES,  # type: ignore[arg-type]
            size_us=size_us, slide_us=slide_us, emit=emit, manager=manager,
        )  # fmt: skip

    return build


def sessions(gap_us: int, *keys: str) -> Build:
    def build(manager: PageManager) -> Operator:
        return SessionWindows("s", SCHEMA, keys, AGGREGATES, gap_us=gap_us, manager=manager)  # type: ignore[arg-type]

    return build


def distinct(within_us: int | None, *keys: str) -> Build:
    return lambda m: Distinct("d", SCHEMA, keys, within_us=within_us, manager=m)


def windowed_join(manager: PageManager) -> Operator:
    return WindowedJoin(ON_K, size_us=20, how="left", manager=manager)


def running_join(manager: PageManager) -> Operator:
    return RunningJoin(ON_K, size_us=20, manager=manager)


BUILDS: dict[str, tuple[Build, int]] = {
    "tuples 3": (keyed(CountWindows(3, 3), "k"), 1),
    "tuples 4 every 2": (keyed(CountWindows(4, 2), "i"), 1),
    "tuples 5 every 3 of all": (keyed(CountWindows(5, 3)), 1),
    "last 3 tuples": (keyed(CountWindows(3, 1), "k", "x"), 1),
    "from the first": (keyed(TimeWindows(10, 10, is_epoch=False), "k"), 1),
    "sliding from the first": (keyed(TimeWindows(10, 4, is_epoch=False), "i"), 1),
    "sort by time": (sort(None, 3), 1),
    "sort by double": (sort("x", 4), 1),
    "sort by decimal": (sort("d", 2), 1),
    "windows": (aggregate(10, 10, "final"), 1),
    "sliding windows, changes": (aggregate(10, 4, "changes"), 1),
    "sessions": (sessions(4, "k"), 1),
    "short sessions of all": (sessions(2), 1),
    "distinct": (distinct(None, "k", "i"), 1),
    "distinct within": (distinct(9, "k"), 1),
    "distinct of one time": (distinct(0, "k", "x"), 1),
    "class": (lambda m: process("none", m), 1),
    "class with timers": (lambda m: process("event", m), 1),
    "windowed join": (windowed_join, 2),
    "running join": (running_join, 2),
    "resample at": (resample("k"), 2),
    "resample at, no key": (resample(), 2),
    "resample every": (resample("k", every_us=7), 1),
}
ids = st.lists(st.integers(0, 40), max_size=6)


def fresh(build: Build) -> Operator:
    return build(PageManager(page_bytes=512))


@pytest.mark.parametrize("kind", BUILDS)
@given(rows=rows_strategy, cuts=ids, lazy=ids, is_sorted=st.booleans())
@settings(max_examples=12)
def test_output_does_not_depend_on_the_cuts(
    kind: str, rows: list[Row], cuts: list[int], lazy: list[int], is_sorted: bool
) -> None:
    build, ports = BUILDS[kind]
    if is_sorted:
        rows = sorted(rows, key=lambda row: row[1])
    whole, _ = run(fresh(build), rows, [], ports)
    parts, _ = run(fresh(build), rows, cuts, ports, lazy=[0, *cuts] if lazy else lazy)
    assert parts == whole


@pytest.mark.parametrize("kind", BUILDS)
@given(rows=rows_strategy, cuts=ids, other_cuts=ids, at=st.integers(0, 40))
@settings(max_examples=12)
def test_replay_from_the_oldest_needed_tuple_rebuilds_the_state(
    kind: str, rows: list[Row], cuts: list[int], other_cuts: list[int], at: int
) -> None:
    build, ports = BUILDS[kind]
    at = min(at, len(rows))
    first = Lifetime(fresh(build), rows, ports)
    first.take(0, cuts, at)
    needed = first.operator.oldest_needed()
    again = Lifetime(fresh(build), rows, ports)
    again.operator.pass_over(first.boundary)
    again.take(at if needed is None else int(min(needed[0], at)), other_cuts, at)
    assert again.promised == first.promised
    before = len(first.text), len(again.text)
    first.take(at, cuts, len(rows))
    again.take(at, other_cuts, len(rows))
    assert again.text[before[1] :] == first.text[before[0] :]


@pytest.mark.parametrize("kind", ["windows", "sliding windows, changes", "running join"])
def test_nothing_of_windows_that_had_closed_is_put_out_again(kind: str) -> None:
    build, ports = BUILDS[kind]
    rows = [(n % 2, n, {"k": "a", "x": 0.0, "i": n, "d": None}) for n in range(60)]
    whole = Lifetime(fresh(build), rows, ports)
    whole.take(0, [45], 60)
    again = Lifetime(fresh(build), rows[25:], ports)  # From the middle of a window.
    again.operator.pass_over(45)
    again.take(0, [20], len(rows) - 25)
    closed_at = datetime.fromtimestamp(0, UTC) + timedelta(microseconds=45)
    assert again.output
    assert again.output == [row for row in whole.output if row["window_end"] > closed_at]  # type: ignore[operator]


@pytest.mark.parametrize("kind", BUILDS)
@given(rows=rows_strategy, cuts=ids, at=st.integers(0, 40))
@settings(max_examples=12)
def test_a_restored_operator_goes_on_as_if_nothing_had_happened(
    kind: str, rows: list[Row], cuts: list[int], at: int
) -> None:
    build, ports = BUILDS[kind]
    at = min(at, len(rows))
    manager = PageManager(page_bytes=512)
    life = Lifetime(build(manager), rows, ports)
    life.take(0, cuts, at)
    life.operator, manager = restored(build, manager)
    assert life.operator.promises_us(life.boundary) == life.promised
    life.take(at, cuts, len(rows))
    whole, _ = run(fresh(build), rows, [], ports)
    assert life.text == whole
    manager.check_invariants()


# -- plain models ----------------------------------------------------------------------------------


def _same(value: object) -> object:
    return "nan" if value != value else value


def summary(members: list[tuple[int, dict[str, object]]]) -> dict[str, object]:
    """What AGGREGATES give, but for the float average."""

    def of(column: str) -> list[object]:
        return [value[column] for _, value in members if value[column] is not None]

    return {
        "n": len(members),
        "sum_i": sum(of("i")) if of("i") else None,  # type: ignore[arg-type]
        "max_d": max(of("d"), default=None),  # type: ignore[type-var]
        "min_k": min(of("k"), default=None),  # type: ignore[type-var]
        "max_k": max(of("k"), default=None),  # type: ignore[type-var]
    }


def without(row: dict[str, object], *names: str) -> dict[str, object]:
    return {name: value for name, value in row.items() if name not in names}


@given(rows=rows_strategy, size=st.integers(1, 5), advance=st.integers(1, 5))
@settings(max_examples=40)
def test_count_windows_equal_the_plain_model(rows: list[Row], size: int, advance: int) -> None:
    advance = min(advance, size)
    life = Lifetime(fresh(keyed(CountWindows(size, advance), "k")), rows, 1)
    life.take(0, [7, 20], len(rows))
    members: dict[object, list[tuple[int, dict[str, object]]]] = {}
    expected: list[dict[str, object]] = []
    for _, time, value in rows:
        mine = members.setdefault(value["k"], [])
        mine.append((time, value))
        if len(mine) >= size and (len(mine) - size) % advance == 0:
            last = mine[-size:]
            row = {"window_start": min(t for t, _ in last), "window_end": max(t for t, _ in last)}
            expected.append({**row, "time": time, "k": value["k"], **summary(last)})
    found = [
        {**without(row, "avg_x"), "window_start": _micros(row["window_start"]),
         "window_end": _micros(row["window_end"]), "time": time}
        for row, time in zip(life.output, life.times, strict=True)
    ]  # fmt: skip
    assert found == expected


def _micros(time: object) -> int:
    return round(time.timestamp() * 1e6)  # type: ignore[attr-defined]


@given(rows=rows_strategy, slide=st.sampled_from([10, 5, 4, 3]))
@settings(max_examples=40)
def test_windows_from_the_first_tuple_equal_the_plain_model(rows: list[Row], slide: int) -> None:
    _, output = run(fresh(keyed(TimeWindows(10, slide, is_epoch=False), "k")), rows, [7, 20], 1)
    origins: dict[object, int] = {}
    groups: dict[tuple[object, ...], list[tuple[int, dict[str, object]]]] = {}
    for _, time, value in rows:
        origin = origins.setdefault(value["k"], time)
        for start in range(time - 9, time + 1):
            if (start - origin) % slide == 0:
                groups.setdefault((start, value["k"]), []).append((time, value))
    by_start = sorted(groups.items(), key=lambda group: group[0][0])  # then by when they began
    expected = [
        {"start": start, "k": key, **summary(members)} for (start, key), members in by_start
    ]
    found = [
        {"start": _micros(row["window_start"]),
         **without(row, "window_start", "window_end", "avg_x")}
        for row in output
    ]  # fmt: skip
    assert found == expected


@given(rows=rows_strategy, gap=st.sampled_from([1, 3, 10]))
@settings(max_examples=60)
def test_sessions_equal_the_plain_model(rows: list[Row], gap: int) -> None:
    life = Lifetime(fresh(sessions(gap, "k")), rows, 1)
    life.take(0, [7, 20], len(rows))
    by_key: dict[object, list[tuple[int, int, dict[str, object]]]] = {}
    for number, (_, time, value) in enumerate(rows):
        by_key.setdefault(value["k"], []).append((time, number, value))
    whole: list[list[tuple[int, int, dict[str, object]]]] = []
    for members in by_key.values():
        members.sort(key=lambda member: member[:2])
        for at, member in enumerate(members):
            if at and member[0] - members[at - 1][0] <= gap:
                whole[-1].append(member)
            else:
                whole.append([member])
    expected = []
    for session in sorted(whole, key=lambda s: (s[-1][0], min(number for _, number, _ in s))):
        edges = {"start": session[0][0], "end": session[-1][0] + gap, "k": session[0][2]["k"]}
        expected.append({**edges, **summary([(time, value) for time, _, value in session])})
    found = [
        {"start": _micros(row["window_start"]), "end": _micros(row["window_end"]),
         **without(row, "window_start", "window_end", "avg_x")}
        for row in life.output
    ]  # fmt: skip
    assert found == expected
    assert life.times == [row["end"] for row in expected]
    assert life.operator.oldest_needed() is None


def test_a_row_between_two_sessions_joins_all_that_they_have_summed() -> None:
    operator = SessionWindows(
        "s", SCHEMA, ["k"],
        [("sum", Column("d"), "sum"), ("avg", Column("x"), "avg"), ("min", Column("i"), "min"),
         ("max", Column("d"), "max"), ("count", Column("i"), "n"), ("max", Column("k"), "last")],
        gap_us=10,
    )  # fmt: skip
    big = 2**62
    given_ = [(5, big, 1.0, Decimal("-7.50")), (25, -3, 2.5, Decimal("9.25")), (15, 4, 7.0, None)]
    for n, (time, i, x, d) in enumerate(given_):
        row: Row = (0, time, {"k": "a", "i": i, "x": x, "d": d})
        assert operator.process(passes_of([row], 1), np.array([n]), 5).rows is None
        operator.check_invariants()
    (row,) = operator.process([None], np.array([NO_ID]), END_US).rows.batch.to_pylist()  # type: ignore[union-attr]
    assert without(row, "window_start", "window_end", "k") == {
        "sum": Decimal("1.75"), "avg": 3.5, "min": -3, "max": Decimal("9.25"), "n": 3, "last": "a"
    }  # fmt: skip


def test_sums_that_overflow_when_sessions_are_joined_are_an_error() -> None:
    operator = fresh(sessions(10))
    for n, time in enumerate((5, 25)):
        operator.process(passes_of([_one(2**62, time)], 1), np.array([n]), 5)
    with pytest.raises(ArithmeticOverflow, match="sum as sum_i overflows"):
        operator.process(passes_of([_one(1, 15)], 1), np.array([2]), 5)


@given(rows=rows_strategy, within=st.sampled_from([None, 0, 5, 30]))
@settings(max_examples=60)
def test_distinct_equals_the_plain_model(rows: list[Row], within: int | None) -> None:
    life = Lifetime(fresh(distinct(within, "k", "x")), rows, 1)
    life.take(0, [7, 20], len(rows))
    until: dict[object, float] = {}
    expected: list[int] = []
    for _, time, value in rows:
        x = value["x"]
        key = (value["k"], _same(x if x != x or x is None else x + 0.0), within == 0 and time)  # type: ignore[operator]
        if time >= until.get(key, -float("inf")):
            until[key] = time + within if within else float("inf")
            expected.append(time)
    assert life.times == expected


@pytest.mark.parametrize("build", [sessions(3, "k"), distinct(0, "k"), distinct(50, "k")])
def test_keys_leave_nothing_behind_when_their_time_has_passed(build: Build) -> None:
    operator = fresh(build)
    for i in range(400):
        key = f"{i} a text that takes a good part of a page"
        row = (0, 100 * i, {"k": key, "x": 0.0, "i": 1, "d": None})
        operator.process(passes_of([row], 1), np.array([i]), 100 * i)
        operator.check_invariants()
    assert operator.state_bytes() < 60 * 512


@given(rows=rows_strategy, slack=st.integers(1, 6), by=st.sampled_from([None, "i", "x", "d"]))
@settings(max_examples=80)
def test_bsort_equals_a_heap_that_holds_so_many(
    rows: list[Row], slack: int, by: str | None
) -> None:
    life = Lifetime(fresh(sort(by, slack)), rows, 1)
    life.take(0, [5, 6, 21], len(rows))
    heap: list[tuple[object, ...]] = []
    expected: list[int] = []
    for number, (_, time, value) in enumerate(rows):
        given_ = time if by is None else value[by]
        is_nan = given_ != given_
        key = (given_ is not None, is_nan, 0 if given_ is None or is_nan else given_)
        heapq.heappush(heap, (*key, number))
        if len(heap) > slack:
            expected.append(heapq.heappop(heap)[-1])  # type: ignore[arg-type]
    expected += [heapq.heappop(heap)[-1] for _ in range(len(heap))]  # type: ignore[misc]
    assert life.times == [rows[number][1] for number in expected]
    got = [{name: _same(value) for name, value in row.items()} for row in life.output]
    assert got == [
        {name: _same(value) for name, value in rows[number][2].items()} for number in expected
    ]


def line(known: dict[int, float], at: int, within: int) -> float | None:
    """The value at a time on the line between the nearest known ones."""
    before = max((t for t in known if t <= at), default=None)
    after = min((t for t in known if t >= at), default=None)
    if before is None or after is None or at - before > within or after - at > within:
        return None
    if before == after:
        return known[at]
    return known[before] + (known[after] - known[before]) * ((at - before) / (after - before))


def greatest(values: list[float]) -> float:
    return next((v for v in values if v != v), max(values))


def known_values(rows: list[Row], key: object, column: str, port: int) -> dict[int, float]:
    found: dict[int, list[float]] = {}
    for p, time, value in rows:
        if p == port and value["k"] == key and value[column] is not None:
            found.setdefault(time, []).append(float(value[column]))  # type: ignore[arg-type]
    return {time: greatest(several) for time, several in found.items()}


def _text(value: float | None) -> str:
    return repr(None if value is None else value + 0.0)


@given(rows=rows_strategy, within=st.sampled_from([1, 5, 16, 90]))
@settings(max_examples=40)
def test_resample_at_other_times_equals_the_plain_model(rows: list[Row], within: int) -> None:
    rows = sorted(rows, key=lambda row: row[1])  # So that the boundary moves with every pass.
    _, output = run(fresh(resample("k", within_us=within)), rows, range(0, 40, 2), 2)
    asked = sorted((row for row in rows if row[0] == 1), key=lambda row: row[1])
    expected = []
    for _, time, value in asked:
        for column in ("i", "x"):
            known = {} if value["k"] is None else known_values(rows, value["k"], column, 0)
            expected.append(_text(line(known, time, within)))
    found = [_text(row[c]) for row in output for c in ("at_i", "at_x")]  # type: ignore[arg-type]
    assert found == expected
    assert [row["d"] for row in output] == [value["d"] for _, _, value in asked]


@given(rows=rows_strategy, within=st.sampled_from([1, 5, 16, 90]), every=st.sampled_from([1, 7]))
@settings(max_examples=40)
def test_resample_at_multiples_equals_the_plain_model(
    rows: list[Row], within: int, every: int
) -> None:
    rows = sorted(((0, time, value) for _, time, value in rows), key=lambda row: row[1])
    build = resample("k", every_us=every, within_us=within)
    _, output = run(fresh(build), rows, range(0, 40, 2), 1)
    expected = []
    for at in range(-35, 65):
        if at % every:
            continue
        for key in {value["k"] for _, _, value in rows}:
            times = [time for _, time, value in rows if value["k"] == key]
            if line(dict.fromkeys(times, 0.0), at, within) is not None:
                results = [line(known_values(rows, key, c, 0), at, within) for c in ("i", "x")]
                expected.append((at, str(key), *map(_text, results)))
    found = [
        (_micros(r["time"]), str(r["k"]), _text(r["at_i"]), _text(r["at_x"]))  # type: ignore[arg-type]
        for r in output
    ]
    assert sorted(found) == sorted(expected)
    assert [at for at, *_ in found] == sorted(at for at, *_ in found)


# -- one thing at a time ---------------------------------------------------------------------------


def _one(value: int, time: int = 0) -> Row:
    return (0, time, {"k": "a", "x": 0.0, "i": value, "d": Decimal(1)})


def test_every_operator_states_its_class() -> None:
    classes = {name: fresh(build).operator_class for name, (build, _) in BUILDS.items()}
    deterministic = {n for n, c in classes.items() if c is OperatorClass.DETERMINISTIC}
    assert deterministic == {
        "tuples 3", "tuples 4 every 2", "tuples 5 every 3 of all", "from the first",
        "sliding from the first", "distinct", "distinct within", "class", "class with timers",
    }  # fmt: skip
    others = {c for n, c in classes.items() if n not in deterministic}
    assert others == {OperatorClass.CONVERGENT_CAPABLE}


def test_windows_aligned_by_the_first_tuple_need_it_for_ever() -> None:
    operator = fresh(keyed(TimeWindows(10, 10, is_epoch=False), "k"))
    operator.process(passes_of([_one(1, 5)], 1), np.array([3]), 5)
    operator.process([None], np.array([NO_ID]), 100)
    needed = operator.oldest_needed()
    assert needed is not None
    assert needed.tolist() == [3]


def test_windows_that_need_no_alignment_let_go_of_what_has_left_them() -> None:
    operator = fresh(keyed(CountWindows(3, 1), "k"))
    for i in range(40_000 // 400):
        rows = [_one(1, 400 * i + j) for j in range(400)]
        operator.process(passes_of(rows, 1), np.array([400 * i]), 400 * i)
    needed = operator.oldest_needed()
    assert needed is not None
    assert needed[0] >= 36_000
    assert operator.state_bytes() < 20 * 512


def test_bsort_by_a_column_holds_its_promise_back() -> None:
    operator = fresh(sort("i", 2))
    operator.process(passes_of([_one(9, 10), _one(1, 20), _one(5, 30)], 1), np.array([0]), 25)
    assert operator.promises_us(25) == 10
    assert operator.promises_us(END_US) == END_US
    needed = operator.oldest_needed()
    assert needed is not None
    assert needed.tolist() == [0]


def test_resample_promises_what_it_can_tell() -> None:
    operator = fresh(resample("k", within_us=16))
    assert operator.promises_us(100) == 84
    assert operator.promises_us(101) == 84, "looks are taken every eighth of within"


def test_strings_of_rows_that_have_gone_are_forgotten() -> None:
    for build, ports in (BUILDS["sort by time"], BUILDS["resample at"], BUILDS["last 3 tuples"]):
        manager = PageManager(page_bytes=512)
        operator = build(manager)
        for i in range(300):
            rows = [
                (j % ports, 100 * i + j, {"k": "a", "x": 0.0, "i": 1, "d": None}) for j in range(6)
            ]
            for j, row in enumerate(rows):
                row[2]["k"] = f"{i} {j} a text that takes a good part of a page" * (ports < 3)
            if build is BUILDS["last 3 tuples"][0]:
                rows = [(p, t, {**v, "x": 1.0}) for p, t, v in rows]
            operator.process(passes_of(rows, ports), np.array([6 * i]), 100 * i)
            operator.check_invariants()
            if build is not BUILDS["last 3 tuples"][0]:
                assert operator.state_bytes() < 100 * 512
        manager.check_invariants()


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: CountWindows(2, 3), "0 < advance <= size"),
        (lambda: TimeWindows(2, 3, is_epoch=False), "0 < slide <= size"),
        (lambda: fresh(keyed(CountWindows(10_001, 1))), "10001 windows; at most 10000"),
        (lambda: fresh(sort("k", 3)), "cannot sort by k, which is string"),
        (lambda: fresh(sort("z", 3)), "z is not in"),
        (lambda: fresh(sort(None, 0)), "slack=0"),
        (lambda: fresh(resample("k", within_us=0)), "positive"),
        (lambda: fresh(resample("z")), "key z"),
        (lambda: fresh(resample("k", every_us=1, within_us=10**9)), "rows between two tuples"),
    ],
)
def test_what_makes_no_sense_is_refused(build: Callable[[], object], message: str) -> None:
    with pytest.raises(LocalProtocolError, match=message):
        build()


def test_text_cannot_be_interpolated() -> None:
    with pytest.raises(LocalProtocolError, match="integers and floats"):
        Resample("r", [SCHEMA], [[]], [("k", "at_k")], within_us=1, every_us=1)
    schema = pa.schema([("k", pa.string())])
    with pytest.raises(LocalProtocolError, match="no column to interpolate"):
        Resample("r", [schema], [[]], [], within_us=1, every_us=1)
