"""Eventual checkpoints against a run without a crash: any passes, any footprints, any record."""

import itertools
import random
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from placed_rows import PlacedRows, next_footprints

from holdfast.core.checkpoint.eventual import ExtentSize, RecoveryObjective
from holdfast.core.haunit.durability.footprint_writer import FootprintWriter, Place
from holdfast.core.model.footprints import FootprintKind, FootprintsDamaged, PassMark
from holdfast.core.model.ids import END_US
from holdfast.core.model.tuples import TupleBatch
from holdfast.core.operators import footprinted_aggregate
from holdfast.core.operators.aggregate import WindowAggregate
from holdfast.core.operators.base import Operator, Rows
from holdfast.core.operators.footprinted import Footprinted, WindowsOfPass
from holdfast.core.operators.footprinted_sessions import FootprintedSessions
from holdfast.core.operators.footprinted_windows import FootprintedWindows
from holdfast.core.operators.keyed_windows import KeyedWindows
from holdfast.core.operators.sessions import SessionWindows
from holdfast.core.operators.window_kinds import CountWindows, TimeWindows, WindowKind
from holdfast.core.recovery.extent import Extent, ExtentSearch
from holdfast.core.state.page_manager import PageManager
from holdfast.core.wire import log_records
from holdfast.core.wire.log_records import LogRecord, RecordKind
from holdfast.planning.divided_footprints import records_of

SCHEMA = pa.schema([("k", pa.string()), ("f", pa.float64()), ("x", pa.int64()), ("s", pa.string())])
KEYS = ("k", "f")
NEVER = RecoveryObjective(1 << 40)


class Resting(RecoveryObjective):
    """Windows are always due, and need not be written again where nothing has changed."""

    def is_due(self, extent: ExtentSize) -> bool:
        return True


RESTING = Resting(1 << 30)
ALWAYS = RecoveryObjective(0)


@dataclass(frozen=True)
class InSegments:
    """Windows of time whose groups are written some at a time."""

    size: int
    slide: int


@dataclass(frozen=True)
class InSessions:
    """Sessions, of rows that come as their times say, or not."""

    gap: int
    are_in_order: bool = True


Kind = WindowKind | InSegments | InSessions
KINDS: dict[str, Kind] = {
    "count 1": CountWindows(1, 1),
    "count 3": CountWindows(3, 3),
    "count 4 every 2": CountWindows(4, 2),
    "count 5 every 1": CountWindows(5, 1),
    "tumbling": TimeWindows(10, 10, is_epoch=True),
    "sliding": TimeWindows(10, 4, is_epoch=True),
    "from the first": TimeWindows(7, 7, is_epoch=False),
    "sliding from the first": TimeWindows(10, 4, is_epoch=False),
    "tumbling in segments": InSegments(10, 10),
    "long in segments": InSegments(80, 80),
    "sliding in segments": InSegments(40, 9),
    "short sessions": InSessions(2),
    "sessions": InSessions(9),
    "sessions in disorder": InSessions(4, are_in_order=False),
    "long sessions in disorder": InSessions(15, are_in_order=False),
}


@pytest.fixture(autouse=True)
def small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a window of a dozen groups has several of them."""
    monkeypatch.setattr(footprinted_aggregate, "SEGMENT", 3)


def operator_of(kind: Kind, manager: PageManager) -> Footprinted:
    """As it leaves footprints."""
    of = ("w", SCHEMA, KEYS, AGGREGATES)
    if isinstance(kind, InSegments):
        return footprinted_aggregate.FootprintedAggregate(
            *of, size_us=kind.size, slide_us=kind.slide, manager=manager
        )
    if isinstance(kind, InSessions):
        return FootprintedSessions(*of, gap_us=kind.gap, manager=manager)
    return FootprintedWindows(*of, windows=kind, manager=manager)


def plain_of(kind: Kind) -> Operator:
    """As it does not."""
    of = ("w", SCHEMA, KEYS, AGGREGATES)
    if isinstance(kind, InSegments):
        return WindowAggregate(*of, size_us=kind.size, slide_us=kind.slide)
    if isinstance(kind, InSessions):
        return SessionWindows(*of, gap_us=kind.gap)
    return KeyedWindows(*of, windows=kind)


@dataclass
class Column:
    name: str

    @property
    def type(self) -> pa.DataType:
        return SCHEMA.field(self.name).type

    def evaluate(self, batch: pa.RecordBatch) -> pa.Array:
        return batch.column(self.name)


AGGREGATES = [
    ("count", None, "n"),
    ("sum", Column("x"), "sum"),
    ("avg", Column("f"), "avg"),
    ("min", Column("s"), "least"),
]


@dataclass
class Input(PlacedRows):
    """What a node is given."""

    taken: int = 0

    def take(
        self, first: int, end: int, starts: tuple[int, ...] | None = None
    ) -> tuple[Rows | None, np.ndarray]:
        """Rows as a pass is given them; in a replay, those that streams send from `starts` on."""
        low = np.array(self.before(first), dtype=np.int64)
        some = self.again((0,) * self.streams if starts is None else starts, first, end)
        if not some:
            return None, low
        rows = [self.rows[at] for at in some]
        batch = pa.RecordBatch.from_pylist([row[2] for row in rows], schema=SCHEMA)
        times = np.array([row[1] for row in rows], dtype=np.int64)
        return Rows(batch, times, np.arange(len(rows), dtype=np.int64), 0), low


def drawn(rng: random.Random, streams: int, kind: Kind | None = None) -> Input:
    time_us, rows = 1000, []
    for _ in range(rng.randint(20, 90)):
        time_us += rng.choice([0, 0, 1, 2, 5])
        values = {
            "k": rng.choice(["a", "b", "", None]),
            "f": rng.choice([0.0, -0.0, float("nan"), 1.5, None]),
            "x": rng.randint(-5, 5),
            "s": rng.choice(["p", "qq", None, "a longer string than the others"]),
        }
        rows.append((rng.randrange(streams), time_us, values))
    if isinstance(kind, InSessions) and not kind.are_in_order and streams == 1:
        rows = [
            r
            for _, r in sorted(
                ((at + rng.uniform(0, 8), r) for at, r in enumerate(rows)), key=lambda each: each[0]
            )
        ]
    given = Input(rows, streams)
    if streams > 1:
        given.shuffle(rng, rng.choice([0, 3, 12]))
    return given


def rows_of(output) -> list[tuple]:
    found: list[tuple] = []
    for piece in output.pieces:
        columns = [c.to_pylist() for c in piece.batch.columns]
        found += zip(piece.time_us.tolist(), *columns, strict=True)
    return [tuple(map(str, row)) for row in found]


@dataclass
class Log:
    """All rows that were ever appended, durable or not counted any more."""

    batches: list[TupleBatch] = field(default_factory=list)

    @property
    def next_id(self) -> int:
        return self.batches[-1].next_id if self.batches else 0

    def extent(self, ends_at: int, streams: int, needed_from: int = 0) -> Extent:
        search = ExtentSearch(ends_at, streams)
        for batch in reversed(self.batches):
            if batch.first_id >= needed_from:
                search.add(batch)
        return search.extent()


@dataclass
class Point:
    """A restart point: a record, what had been put out, and what it needs."""

    taken: int
    put_out: int
    ends_at: int
    log_needed_from: int
    starts: tuple[int, ...]


class Life:
    """One incarnation: an operator with its footprints, over the passes that chance makes."""

    def __init__(self, kind: Kind, given: Input, log: Log, point: Point | None, objective):
        self.given, self.log = given, log
        self.operator = operator_of(kind, PageManager(512))
        extent = None
        if point is not None:
            extent = log.extent(point.ends_at, given.streams, point.log_needed_from)
            assert extent.starts == point.starts
        self.footprints = FootprintWriter(
            self.operator, objective, log.next_id, extent, given.streams
        )
        self.taken = 0 if point is None else point.taken
        self.put_out: list[tuple] = []
        self.skipped = 0 if point is None else point.put_out
        self.points: list[Point] = []
        self.footprints.check_invariants()

    def replay(self, rng: random.Random, point: Point) -> None:
        """In silence, from T up to the cut."""
        at = min(self.given.again(point.starts, 0, point.taken), default=point.taken)
        while at < point.taken:
            end = min(point.taken, self.given.until(min(point.taken, at + rng.randint(1, 9))))
            rows, low = self.given.take(at, end, point.starts)
            boundary_us = self.given.place(end).boundary_us
            assert not self.operator.process([rows], low, boundary_us).pieces
            at = end
        last = self.given.place(point.taken).boundary_us
        assert not self.operator.process([None], low_of(self.given), last).pieces
        self.footprints.end_replay()
        self.check()

    def run(self, rng: random.Random, end: int, checks: int) -> None:
        """Passes up to a row, some windows written between them."""
        while self.taken < end:
            until = self.given.until(min(end, self.taken + rng.randint(1, 7)))
            self.one_pass(until, self.given.place(until), says=rng.random() < 0.5)
            for _ in range(rng.choice([0, 0, 1, 2]) if checks else 0):
                self.check_some(rng.randint(1, 3))
            if rng.random() < 0.4:
                self.note()

    def one_pass(self, until: int, place: Place, *, says: bool = True) -> None:
        rows, low = self.given.take(self.taken, until)
        self.footprints.begin_pass()
        self.put_out += rows_of(self.operator.process([rows], low, place.boundary_us))
        if says:
            self.append(*self.footprints.say(place))
        self.taken = until
        self.check()

    def check_some(self, windows: int) -> None:
        place = self.given.place(self.taken)
        if self.footprints.is_check_due(place):
            self.append(*self.footprints.piece(windows, place))
            self.check()

    def note(self) -> None:
        place = self.given.place(self.taken)
        self.append(*self.footprints.mark(place))
        footprints = self.footprints
        self.points.append(
            Point(
                self.taken,
                self.skipped + len(self.put_out),
                footprints.ends_at,
                footprints.log_needed_from,
                footprints.starts(place),
            )
        )

    def append(self, *batches: TupleBatch) -> None:
        for batch in batches:
            assert batch.first_id == self.log.next_id
            self.log.batches.append(through_the_codec(batch))

    def check(self) -> None:
        self.operator.check_invariants()
        self.footprints.check_invariants()


def through_the_codec(batch: TupleBatch) -> TupleBatch:
    """As it is read back from a file."""
    parts = log_records.encode_record(RecordKind.DATA, 0, 1, batch.first_id, 0, 0, batch.batch)
    data = memoryview(b"".join(bytes(part) for part in parts))
    found = log_records.decode_record(data, batch.batch.schema)
    assert isinstance(found, LogRecord)
    assert found.batch is not None
    return TupleBatch(found.first_id, found.batch, 0)


@pytest.mark.parametrize("kind", KINDS)
def test_no_piece_of_work_does_two_things(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(7)
    given, log = drawn(rng, 1, KINDS[kind]), Log()
    life = Life(KINDS[kind], given, log, None, ALWAYS)
    done: list[str] = []
    operator, end_pass, footprints = (
        life.operator,
        life.operator.end_pass,
        life.operator.footprints,
    )

    def say(*, closing: bool = True) -> WindowsOfPass:
        done.append("says what has opened and closed" if closing else "says what has opened")
        return end_pass(closing=closing)

    def take(*some: Any) -> WindowsOfPass:
        done.append("takes footprints")
        return footprints(*some)

    monkeypatch.setattr(operator, "end_pass", say)
    monkeypatch.setattr(operator, "footprints", take)
    pieces: list[list[str]] = []
    cuts = []
    while life.taken < len(given.rows):
        until = given.until(life.taken + 1)
        life.one_pass(until, given.place(until), says=False)
        place = given.place(life.taken)
        if life.footprints.is_check_due(place):
            done.clear()
            records = life.footprints.piece(2, place)
            pieces.append([*done, *("writes a record" for _ in records)])
            life.append(*records)
            life.check()
        cuts.append(life.footprints.starts(place))
    only_opened = ["says what has opened", "takes footprints"]
    assert all(len(piece) <= 1 or piece == only_opened for piece in pieces)
    assert sum("takes footprints" in piece for piece in pieces) >= len(pieces) // 6
    life.note()
    assert life.footprints.size(given.place(life.taken)).footprints == operator.open_windows


def test_what_has_closed_waits_for_a_piece_of_its_own() -> None:
    kind = InSegments(10, 10)
    rows = [(0, at, {"k": "a", "f": 0.5, "x": 1, "s": None}) for at in (1, 2, 12, 13, 22, 23)]
    life = Life(kind, Input(rows, 1), Log(), None, ALWAYS)
    pieces: list[list[FootprintKind]] = []

    def one_piece() -> None:
        before = len(life.log.batches)
        life.check_some(2)
        kinds = [batch.batch.column("kind").to_pylist() for batch in life.log.batches[before:]]
        pieces.append([FootprintKind(kind) for record in kinds for kind in record])

    life.one_pass(1, life.given.place(1))
    life.one_pass(3, life.given.place(3), says=False)  # The first closes, the second one opens.
    for _ in range(3):
        one_piece()
    assert pieces == [[], [FootprintKind.G_OPEN], [FootprintKind.R]]
    life.one_pass(5, life.given.place(5), says=False)  # The same once more.
    for _ in range(2):
        one_piece()
    assert pieces[3:] == [[], [FootprintKind.G_OPEN]]
    assert life.operator.open_windows == 2, "one has closed, but that is still to be said"
    life.check()
    life.note()
    assert life.log.batches[-1].batch.column("kind").to_pylist() == [FootprintKind.R]
    assert life.operator.open_windows == 1
    life.check()


def low_of(given: Input) -> np.ndarray:
    return np.zeros(given.streams, dtype=np.int64)


def uninterrupted(kind: Kind, given: Input) -> list[tuple]:
    operator = plain_of(kind)
    rows, low = given.take(0, len(given.rows))
    boundary_us = max(row[1] for row in given.rows) + (given.streams > 1)
    first = rows_of(operator.process([rows], low, boundary_us))
    return first + rows_of(operator.process([None], low, END_US))


def survive(kind: Kind, seed: int, streams: int, lives: int) -> list[tuple]:
    """What was put out in the end, by lives of which each goes on from a point of one before."""
    rng = random.Random(seed)
    given, log = drawn(rng, streams, kind), Log()
    objective = rng.choice([ALWAYS, ALWAYS, NEVER, RESTING])
    result: list[tuple] = []
    points: list[Point] = []
    for number in range(lives):
        point = rng.choice(points[-3:]) if points else None
        life = Life(kind, given, log, point, objective)
        if point is not None:
            life.replay(rng, point)
            points = points[: points.index(point) + 1]
        is_last = number == lives - 1
        end = len(given.rows) if is_last else rng.randint(life.taken, len(given.rows) - 1)
        life.run(rng, given.until(end), checks=True)
        base = life.skipped
        for offset, row in enumerate(life.put_out):
            if base + offset < len(result):
                assert result[base + offset] == row, "another result under an id"
            else:
                assert base + offset == len(result)
                result.append(row)
        points += life.points
        if life.log.batches and rng.random() < 0.3:  # A torn end: what no point rests on.
            kept = max((p.ends_at for p in points), default=0)
            if log.batches[-1].first_id >= kept:
                log.batches.pop()
    return result


@pytest.mark.parametrize("streams", [1, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_any_crashes_leave_the_results_of_none(kind: str, streams: int):
    for seed in range(8):
        given = drawn(random.Random(seed), streams, KINDS[kind])
        lives = 1 + seed % 4
        assert survive(KINDS[kind], seed, streams, lives) == uninterrupted(KINDS[kind], given), seed


@pytest.mark.parametrize("kind", KINDS)
def test_a_replay_that_is_broken_off_leaves_new_footprints_of_all_windows(kind: str):
    broken_off = 0
    for seed in range(6):
        rng = random.Random(seed)
        given, log = drawn(rng, 1, KINDS[kind]), Log()
        life = Life(KINDS[kind], given, log, None, NEVER if seed % 2 else ALWAYS)
        life.run(rng, len(given.rows) - 5, checks=True)
        life.note()
        point, other = life.points[-1], Life(KINDS[kind], given, log, life.points[-1], NEVER)
        at = rng.randint(point.starts[0], point.taken)
        rows, low = given.take(point.starts[0], at)
        other.operator.process([rows], low, given.place(at).boundary_us)
        other.append(*other.footprints.renumber(given.place(at)))
        other.check()
        if other.operator.open_windows:
            extent = log.extent(other.footprints.ends_at, 1)
            assert extent.starts == (at,)
            assert extent.last.cut > point.taken
            third = operator_of(KINDS[kind], PageManager(512))
            FootprintWriter(third, NEVER, log.next_id, extent, 1).end_replay()
            assert sorted_rows(third) == sorted_rows(other.operator)
            broken_off += at < point.taken
    assert broken_off or kind == "count 1", "of which none stays open"


@pytest.mark.parametrize("kind", KINDS)
def test_a_replay_that_lacks_input_leaves_new_footprints_of_all_windows_at_its_cut(kind: str):
    """Of two streams one brings nothing again: its producer has lost it, and begins at 0."""
    for seed in range(6):
        rng = random.Random(seed)
        given, log = drawn(rng, 2, KINDS[kind]), Log()
        life = Life(KINDS[kind], given, log, None, NEVER if seed % 2 else ALWAYS)
        life.run(rng, given.until(len(given.rows) - 5), checks=True)
        life.note()
        point = life.points[-1]
        other = Life(KINDS[kind], given, log, point, NEVER)
        place = given.place(point.taken)
        place = replace(place, starts=(0, place.starts[1]))
        rows, low = given.take(0, point.taken, (point.starts[0], len(given.rows)))
        other.operator.process([rows], low, place.boundary_us)
        other.append(*other.footprints.break_off_replay(place))
        other.check()
        extent = log.extent(other.footprints.ends_at, 2)
        if other.operator.open_windows:
            assert (extent.starts, extent.last.cut) == (place.starts, place.cut)
        third = operator_of(KINDS[kind], PageManager(512))
        FootprintWriter(third, NEVER, log.next_id, extent, 2).end_replay()
        assert sorted_rows(third) == sorted_rows(other.operator)
        rest, low = given.take(point.taken, len(given.rows))
        results = [rows_of(o.process([rest], low, END_US)) for o in (other.operator, third)]
        assert results[0] == results[1], "in the same order"


def test_sessions_come_out_in_the_order_in_which_they_began_though_rows_before_are_lost() -> None:
    """Ten rows of key a, then one of b; in the replay a's do not come, and are not counted."""
    keys = [(0, 100, "a")] + [(0, 101, "a")] * 9 + [(1, 105, "b"), (1, 110, "c"), (1, 110, "b")]
    of_key = {"f": 0.5, "x": 1, "s": "s"}
    given, log = Input([(n, time_us, {"k": k} | of_key) for n, time_us, k in keys], 2), Log()
    life = Life(InSessions(9), given, log, None, NEVER)
    for until in (1, 11):
        life.one_pass(until, given.place(until))
    life.note()
    point, place = life.points[-1], given.place(11)
    other = Life(InSessions(9), given, log, point, NEVER)
    rows, low = given.take(0, 11, (10, point.starts[1]))
    other.operator.process([rows], low, place.boundary_us)
    other.footprints.break_off_replay(place)
    rows, low = given.take(11, 13)
    results = rows_of(other.operator.process([rows], low, END_US))
    assert [row[3] for row in results] == ["a", "b", "c"]


def test_from_every_record_on_the_state_is_that_of_its_pass():
    for kind in KINDS.values():
        given, log = drawn(random.Random(7), 1, kind), Log()
        life = Life(kind, given, log, None, ALWAYS)
        rng = random.Random(8)
        states: list[tuple[Point, list]] = []
        while life.taken < len(given.rows) - 8:
            life.run(rng, life.taken + 4, checks=True)
            life.note()
            states.append((life.points[-1], sorted_rows(life.operator)))
        for point, state in states:
            other = Life(kind, given, Log(list(log.batches)), point, ALWAYS)
            other.replay(rng, point)
            assert sorted_rows(other.operator) == state


def test_where_all_rows_count_a_replay_sets_no_group_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = InSegments(10_000, 10_000)
    given, log = drawn(random.Random(7), 1), Log()
    life = Life(kind, given, log, None, NEVER)
    life.run(random.Random(8), len(given.rows) - 8, checks=False)
    life.note()
    other = Life(kind, given, log, life.points[-1], NEVER)

    def looked_at(*_: object) -> None:
        raise AssertionError("it has only a tail")

    monkeypatch.setattr(footprinted_aggregate.FootprintedAggregate, "_replay", looked_at)
    other.replay(random.Random(9), life.points[-1])
    assert sorted_rows(other.operator) == sorted_rows(life.operator)


@pytest.mark.parametrize("kind", ["long in segments", "tumbling", "sessions"])
def test_a_row_sent_behind_one_that_was_held_comes_again_and_counts_once(kind: str) -> None:
    """A stream sends a row of time 100, then one of 50: only this one is in the footprint."""
    values = {"k": "a", "f": 0.5, "x": 1, "s": "s"}
    given, log = Input([(0, 50, values), (0, 100, values), (1, 100, values)], 2), Log()
    given.ids = [1, 0, 0]
    life = Life(KINDS[kind], given, log, None, ALWAYS)
    life.one_pass(1, given.place(1))
    life.check_some(9)
    life.note()
    point = life.points[-1]
    assert (point.starts, given.place(1).processed_before) == ((0, 0), (2, 0))
    other = Life(KINDS[kind], given, log, point, ALWAYS)
    other.replay(random.Random(1), point)
    assert sorted_rows(other.operator) == sorted_rows(life.operator)
    assert len(sorted_rows(other.operator)) == 1


@pytest.mark.parametrize("kind", ["long in segments", "sliding in segments", "tumbling"])
def test_an_elastic_restart_counts_no_row_again(kind: str) -> None:
    """All footprints are of one cut. Rows from before it come again behind one that was held."""
    came_again = 0
    for seed in range(10):
        rng = random.Random(seed)
        given, log = drawn(rng, 2), Log()
        given.shuffle(rng, 12)
        life = Life(KINDS[kind], given, Log(), None, NEVER)
        life.run(rng, len(given.rows) // 2, checks=False)
        state, place = sorted_rows(life.operator), given.place(life.taken)
        said = life.operator.whole()
        mark = PassMark(len(said.windows), place.cut, place.boundary_us, place.starts, 0)
        records = records_of(life.operator, said, mark, 0, 1 << 20)
        log.batches += [through_the_codec(record) for record in records]
        point = Point(life.taken, len(life.put_out), log.next_id, 0, place.starts)
        other = Life(KINDS[kind], given, log, point, NEVER)
        other.replay(rng, point)
        assert sorted_rows(other.operator) == state
        came_again += len(given.again(point.starts, 0, point.taken))
    assert came_again


def test_segments_that_have_not_changed_are_not_written_again() -> None:
    """Until what they were written as lies too far back in the log."""
    keys = [f"{i}" for i in range(30)]
    rows = [(0, 1, {"k": key, "f": 0.5, "x": 1, "s": "s"}) for key in [*keys, *"000001"]]
    given, log = Input(rows, 1), Log()
    life = Life(InSegments(10_000, 10_000), given, log, None, RecoveryObjective(1 << 30))

    def written(taken: int) -> list[tuple[int, int, int]]:
        """Segments, parts, and how many groups, of all footprints that are written next."""
        life.one_pass(taken, given.place(taken))
        found: list[tuple[int, int, int]] = []
        while records := next_footprints(life.footprints, 4, given.place(taken)):
            life.append(*records)
            for row in [row for record in records for row in record.batch.to_pylist()]:
                if row["kind"] == FootprintKind.G_CHECK:
                    found.append((row["key.segment"], row["key.part"], len(row["groups"])))
        life.check()
        life.note()
        other = Life(InSegments(10_000, 10_000), given, log, life.points[-1], NEVER)
        other.replay(random.Random(1), life.points[-1])
        assert sorted_rows(other.operator) == sorted_rows(life.operator)
        assert life.points[-1].starts == (taken,)
        return sorted(found)

    wholes = [(n, 0, 3) for n in range(10)]
    rests = [(n, 1, 0) for n in range(10)]
    assert written(30) == wholes
    assert written(31) == [wholes[0], *rests[1:]]
    assert written(32) == [wholes[0], *rests[1:]], "what rests is said anew"
    objective = life.footprints._objective
    life = Life(InSegments(10_000, 10_000), given, log, life.points[-1], objective)
    assert written(33) == [wholes[0], *rests[1:]], "a replacement knows what they were"
    objective.extent_bytes_max = 0
    assert written(34) == wholes


def test_text_that_counts_for_nothing_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """The segment of one group is older than that of another one, to which all rows belong."""
    monkeypatch.setattr(footprinted_aggregate, "SEGMENT", 1)
    text = [f"{9999 - i}" * 40 for i in range(201)]
    keys = ["b", "a", *("b" for _ in text[2:])]
    rows = [(0, 1, {"k": key, "f": 0.5, "x": 1, "s": s}) for key, s in zip(keys, text, strict=True)]
    given, log = Input(rows, 1), Log()
    life = Life(InSegments(10_000, 10_000), given, log, None, ALWAYS)
    for taken, segments in ((2, 9), (200, 1)):
        life.one_pass(taken, given.place(taken))
        life.check_some(segments)
    life.note()
    point = life.points[-1]
    assert point.starts == (2,)
    other = Life(InSegments(10_000, 10_000), given, log, point, ALWAYS)
    adopted = other.operator.state_bytes()
    other.replay(random.Random(1), point)
    assert other.operator.state_bytes() == adopted
    assert sorted_rows(other.operator) == sorted_rows(life.operator)


@pytest.mark.parametrize("value", [1 << 62, (1 << 63) - 1])
def test_sums_of_rows_that_count_for_nothing_may_be_too_large(
    value: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All sums of a group fit its type, those of its rows from the middle on do not."""
    monkeypatch.setattr(footprinted_aggregate, "SEGMENT", 1)
    kind = InSegments(10_000, 10_000)
    for seed in range(20):
        rng = random.Random(seed)
        rows, summands = [], {key: itertools.cycle([-value, value, value, -value]) for key in "abc"}
        for at in range(60):
            key = rng.choice("abc")
            rows.append((0, at, {"k": key, "f": 0.0, "x": next(summands[key]), "s": "s"}))
        given, log = Input(rows, 1), Log()
        life = Life(kind, given, log, None, ALWAYS)
        life.run(rng, 55, checks=True)
        life.note()
        other = Life(kind, given, log, life.points[-1], ALWAYS)
        other.replay(rng, life.points[-1])
        assert sorted_rows(other.operator) == sorted_rows(life.operator)


def sorted_rows(operator: Operator) -> list[tuple]:
    table = operator.state_rows()
    return sorted(tuple(map(str, row.values())) for row in table.to_pylist())


def extents() -> tuple[Log, Point]:
    given, log = drawn(random.Random(5), 1), Log()
    life = Life(KINDS["count 4 every 2"], given, log, None, ALWAYS)
    life.run(random.Random(6), len(given.rows) - 10, checks=True)
    life.note()
    return log, life.points[-1]


def test_a_record_that_is_missing_is_noticed():
    log, point = extents()
    needed = [b for b in log.batches if b.first_id >= point.log_needed_from]
    assert len(needed) > 3
    for missing in needed[:-1]:
        rest = Log([b for b in log.batches if b is not missing])
        with pytest.raises(FootprintsDamaged):
            rest.extent(point.ends_at, 1, point.log_needed_from)


def test_a_log_cut_behind_t_is_noticed():
    log, point = extents()
    cut = Log([b for b in log.batches if b.first_id > point.log_needed_from])
    with pytest.raises(FootprintsDamaged, match="open windows"):
        cut.extent(point.ends_at, 1)


def test_the_log_needs_not_one_record_more_than_the_search_reads():
    log, point = extents()
    extent = log.extent(point.ends_at, 1)
    assert extent.records[0].first_id == point.log_needed_from
    assert extent.starts == point.starts


def test_a_record_that_names_a_window_twice_is_refused():
    log, _ = extents()
    first = log.batches[0]
    bad = TupleBatch(first.first_id, pa.concat_batches([first.batch, first.batch]), 0)
    search = ExtentSearch(bad.next_id, 1)
    with pytest.raises(FootprintsDamaged, match="two things"):
        search.add(bad)


def test_a_closed_window_is_named_though_its_strings_have_been_recycled():
    """A pass that closes windows may store the strings of the others anew."""
    rows = [(0, i, {"k": "a", "f": 0.0, "x": i, "s": f"{9999 - i}" * 40}) for i in range(400)]
    given, log = Input(rows, 1), Log()
    life = Life(KINDS["count 3"], given, log, None, NEVER)
    strings = life.operator._strings
    assert strings is not None
    for end in range(4, 400, 4):
        pages = strings.page_count
        life.one_pass(end, given.place(end))
        if strings.page_count < pages:
            break
    else:
        raise AssertionError("no strings were recycled")
    newest = log.batches[-1].batch.to_pylist()
    closed = [row for row in newest if row["kind"] == FootprintKind.R]
    assert {(row["window"], row["key.0"], row["text.0"]) for row in closed} == {
        (row["window"], "a", None) for row in closed
    }
