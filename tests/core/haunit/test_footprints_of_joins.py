"""Joins within windows against a run without a crash: any passes, any parts, any record."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pytest
from placed_rows import PlacedRows, next_footprints

from holdfast.core.checkpoint.eventual import RecoveryObjective
from holdfast.core.haunit.durability.footprint_writer import FootprintWriter, Place
from holdfast.core.model.footprints import PART, FootprintKind
from holdfast.core.model.ids import END_US
from holdfast.core.model.tuples import TupleBatch
from holdfast.core.operators import footprinted_join
from holdfast.core.operators.base import Rows
from holdfast.core.operators.footprinted_join import FootprintedJoin
from holdfast.core.operators.join import JoinLayout
from holdfast.core.operators.windowed_join import WindowedJoin
from holdfast.core.recovery.extent import ExtentSearch
from holdfast.core.state.page_manager import PageManager
from holdfast.core.wire import log_records
from holdfast.core.wire.log_records import LogRecord, RecordKind

SCHEMAS = (
    pa.schema([("k", pa.string()), ("x", pa.int64())]),
    pa.schema([("k", pa.string()), ("y", pa.float64()), ("s", pa.string())]),
)
SIZE = 10
Row = tuple[int, int, dict[str, object]]
"""Side, tuple time, values."""


def layout() -> JoinLayout:
    fields = [("left", "x", "x"), ("right", "y", "y"), ("right", "s", "s"), ("left", "k", "k")]
    return JoinLayout("j", SCHEMAS, (["k"], ["k"]), fields)


def drawn(rng: random.Random) -> list[Row]:
    time_us, rows = 100, list[Row]()
    for i in range(rng.randint(20, 200)):
        time_us += rng.choice([0, 0, 0, 1, 4])
        key = rng.choice(["a", "b", "", None])
        if rng.randrange(2):
            rows.append(
                (1, time_us, {"k": key, "y": i / 2, "s": rng.choice(["p", None, "q" * 40])})
            )
        else:
            rows.append((0, time_us, {"k": key, "x": i}))
    return rows


def sides(rows: Sequence[Row]) -> list[Rows | None]:
    made: list[Rows | None] = []
    for side, schema in enumerate(SCHEMAS):
        mine = [(at, time_us, values) for at, (s, time_us, values) in enumerate(rows) if s == side]
        columns = {name: [values[name] for *_, values in mine] for name in schema.names}
        batch = pa.RecordBatch.from_pydict(columns, schema=schema)
        times = np.array([time_us for _, time_us, _ in mine], dtype=np.int64)
        order = np.array([at for at, *_ in mine], dtype=np.int64)
        made.append(Rows(batch, times, order, 0) if mine else None)
    return made


def rows_of(output) -> list[tuple]:
    found: list[tuple] = []
    for piece in output.pieces:
        columns = [c.to_pylist() for c in piece.batch.columns]
        found += zip(piece.time_us.tolist(), *columns, strict=True)
    return found


@dataclass
class Run(PlacedRows):
    """Lives of one join over the same rows, read by one stream or by one for each side."""

    how: str
    log: list[TupleBatch] = field(default_factory=list)

    def low(self, taken: int) -> np.ndarray:
        return np.array(self.before(taken), dtype=np.int64)

    def expected(self) -> list[tuple]:
        join = WindowedJoin(layout(), size_us=SIZE, how=self.how)
        last = self.rows[-1][1]
        first = rows_of(join.process(sides(self.rows), self.low(0), last))
        return first + rows_of(join.process([None, None], self.low(0), END_US))

    def append(self, *batches: TupleBatch) -> None:
        for batch in batches:
            self._append(batch)

    def _append(self, batch: TupleBatch) -> None:
        parts = log_records.encode_record(
            RecordKind.DATA, 0, 1, batch.first_id, 0, 0, batch.batch, narrows=True
        )
        data = memoryview(b"".join(bytes(part) for part in parts))
        found = log_records.decode_record(data, batch.batch.schema)
        assert isinstance(found, LogRecord), found
        assert found.batch is not None
        self.log.append(TupleBatch(found.first_id, found.batch, 0))

    def life(
        self, rng: random.Random, point: tuple[int, int, int, int] | None, end: int
    ) -> tuple[list[tuple], list[tuple[int, int, int, int]]]:
        """What it puts out from a point on, and the points that it notes."""
        join = FootprintedJoin(layout(), size_us=SIZE, how=self.how, manager=PageManager(1024))
        extent, taken, put_out = None, 0, 0
        if point is not None:
            taken, put_out, ends_at, needed_from = point
            search = ExtentSearch(ends_at, self.streams)
            for batch in reversed(self.log):
                if batch.first_id >= needed_from:
                    search.add(batch)
            extent = search.extent()
        next_id = self.log[-1].next_id if self.log else 0
        footprints = FootprintWriter(join, RecoveryObjective(0), next_id, extent, self.streams)
        if extent is not None:
            self.replay(rng, join, extent.starts, taken)
            footprints.end_replay()
        results: list[tuple] = []
        points: list[tuple[int, int, int, int]] = []
        while taken < end:
            until = self.until(min(end, taken + rng.randint(1, 9)))
            place = self.place(until)
            footprints.begin_pass()
            given, low = sides(self.rows[taken:until]), self.low(taken)
            results += rows_of(join.process(given, low, place.boundary_us))
            taken = until
            for _ in range(rng.choice([0, 0, 1, 2])):
                if footprints.is_check_due(place):
                    self.append(*footprints.piece(rng.randint(1, 3), place))
            join.check_invariants()
            footprints.check_invariants()
            if rng.random() < 0.4:
                self.append(*footprints.mark(place))
                ends_at, needed_from = footprints.ends_at, footprints.log_needed_from
                points.append((taken, put_out + len(results), ends_at, needed_from))
        return results, points

    def replay(
        self, rng: random.Random, join: FootprintedJoin, starts: tuple[int, ...], taken: int
    ) -> None:
        at = min(self.again(starts, 0, taken), default=taken)
        while at < taken:
            end = min(taken, self.until(min(taken, at + rng.randint(1, 9))))
            rows = [self.rows[n] for n in self.again(starts, at, end)]
            given, place = sides(rows), self.place(end)
            assert not join.process(given, self.low(at), place.boundary_us).pieces
            at = end
        last = self.place(taken).boundary_us
        assert not join.process([None, None], self.low(taken), last).pieces
        join.check_invariants()


@pytest.mark.parametrize("part", [footprinted_join._PART, 2])
@pytest.mark.parametrize("streams", [1, 2])
@pytest.mark.parametrize("how", ["inner", "left"])
def test_any_crashes_leave_the_pairs_of_none(
    how: str, streams: int, part: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where a piece of work does not do for all rows that have come."""
    monkeypatch.setattr(footprinted_join, "_PART", part)
    unfinished = 0
    for seed in range(20):
        rng = random.Random(seed)
        run = Run(drawn(rng), streams, how)
        if streams > 1:
            run.shuffle(rng, rng.choice([0, 3, 12]))
        result: list[tuple] = []
        points: list[tuple[int, int, int, int]] = []
        lives = 1 + seed % 4
        for number in range(lives):
            point = rng.choice(points[-3:]) if points else None
            begun, base = (point[0], point[1]) if point else (0, 0)
            points = points[: points.index(point) + 1] if point else []
            is_last = number == lives - 1
            end = len(run.rows) if is_last else rng.randint(begun, len(run.rows) - 1)
            put_out, noted = run.life(rng, point, run.until(end))
            for offset, row in enumerate(put_out):
                if base + offset < len(result):
                    assert result[base + offset] == row, "another result under an id"
                else:
                    result.append(row)
            points += noted
        assert result == run.expected(), seed
        parts = [number for b in run.log for number in b.batch.column(PART).to_pylist()]
        unfinished += sum(number is not None and number < 0 for number in parts)
    assert bool(unfinished) == (part == 2)


def test_a_piece_of_work_has_few_rows_however_many_have_come() -> None:
    rows: list[Row] = [(i % 2, 100, {"k": "a", "x": i, "y": 0.5, "s": "s"}) for i in range(4000)]
    run, join = Run(rows, 1, "inner"), FootprintedJoin(layout(), size_us=SIZE)
    footprints = FootprintWriter(join, RecoveryObjective(0), 0, None, 1)
    footprints.begin_pass()
    join.process(sides(rows), run.low(0), 100)
    place = Place(4000, 100, (4000,), (4000,))
    (opened,) = footprints.mark(place)[:-1]
    assert rows_in(opened) == 0, "nor has what opens"
    written = []
    while records := next_footprints(footprints, 2, place):
        written += map(rows_in, records)
    assert sum(written) == 4000
    assert max(written) == 2 * footprinted_join._PART
    assert footprints.starts(place) == (4000,)
    join.check_invariants()
    footprints.check_invariants()


def rows_in(record: TupleBatch) -> int:
    """Of both sides."""
    columns = [record.batch.column(name).to_pylist() for name in ("left", "right")]
    return sum(len(rows or ()) for column in columns for rows in column)


def test_each_row_of_a_slow_window_is_written_about_once() -> None:
    """However often it is written, and a small last part with what follows it."""
    rows: list[Row] = [(i % 2, 100, {"k": "a", "x": i, "y": 0.5, "s": "s"}) for i in range(4000)]
    run = Run(rows, 1, "inner")
    join = FootprintedJoin(layout(), size_us=SIZE)
    footprints = FootprintWriter(join, RecoveryObjective(0), 0, None, 1)
    for taken in range(0, 4000, 40):
        place = run.place(taken + 40)
        footprints.begin_pass()
        join.process(sides(rows[taken : taken + 40]), run.low(taken), 100)
        run.append(*footprints.say(Place(taken + 40, 100, place.starts, place.starts)))
        check = Place(taken + 41, 100, place.starts, place.starts)
        run.append(*next_footprints(footprints, 9, check))
    kinds = [kind for batch in run.log for kind in batch.batch.column("kind").to_pylist()]
    assert kinds.count(FootprintKind.G_OPEN) == 1
    assert 4000 <= sum(map(rows_in, run.log)) < 1.9 * 4000
    assert join.open_windows < 4000 / 64 + 2
