"""A windowed join that leaves footprints: each window is written in parts. [CEC §II.B, §III]

Theory of operation. A window of a join only ever gains rows until it closes. So its footprints are
parts (footprinted.py). The first one has no row, and the cut before the window opened
(`opens_before`): a window that closes soon costs two short records, however many rows it has. Later
parts have the rows that have come since the part before, each `_PART` of them at most. Together
they are the window, and each row is written once. A last part that is small is written anew with
what follows it, so that a slow window is not a chain of thousands.

Where more rows have come than one piece of background work takes, several pieces write them:

1. Parts that leave rows for later are *unfinished*, and have negative numbers. They bind nothing:
   T stays where the newest finished part has it.
2. The part that has the last of the rows that have come is finished. Its cut is the window's, now.

A replacement has all parts of a window in their order. It replays the rows behind the cut of the
newest finished part. The first of these are in the unfinished parts behind it, so it leaves out as
many of each side: rows come in the same order again. Windows that were not open at the cut of the
node take none, as these had closed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

import numpy as np
import pyarrow as pa

from holdfast.core.errors import InvariantViolation
from holdfast.core.model.footprints import PART, WINDOW
from holdfast.core.model.ids import NO_ID
from holdfast.core.model.schema import array_over
from holdfast.core.operators.base import Output, Rows, chosen
from holdfast.core.operators.footprinted import Footprinted, WindowsOfPass, places_of
from holdfast.core.operators.join import JoinLayout, JoinRows
from holdfast.core.operators.windowed_join import WindowedJoin
from holdfast.core.state.page_manager import PageManager

_PART: Final = 128
"""Rows of a part, at most."""
_SMALL: Final = 64
"""A last part of fewer rows is written anew, if what follows fits in."""
_TIME: Final = "time"
_SIDES: Final = ("left", "right")


class _Part(NamedTuple):
    """A footprint of a window.

    Attributes:
        number: Of the part in its window; negative, and one less, if it is unfinished.
        generation: Of its record.
        first: Per side its first row.
        end: Per side the row behind its last.
    """

    number: int
    generation: int
    first: tuple[int, int]
    end: tuple[int, int]

    @property
    def is_finished(self) -> bool:
        """Whether it had all rows that had come."""
        return self.number >= 0


class _Said(NamedTuple):
    """A part of a window as it is written."""

    start: int
    part: _Part
    rows: JoinRows


@dataclass(slots=True)
class _Written:
    """What the footprints of a window hold.

    Attributes:
        parts: In their order.
        finished: How many parts there are up to the newest finished one.
    """

    parts: list[_Part] = field(default_factory=list)
    finished: int = 0

    @property
    def before(self) -> tuple[int, int]:
        """Per side the row before which all are in parts."""
        return self.parts[-1].end if self.parts else (0, 0)

    @property
    def binding(self) -> _Part:
        """The newest finished part."""
        return self.parts[self.finished - 1]

    def add(self, part: _Part) -> None:
        """It has the rows behind those of the others."""
        self.parts.append(part)
        if part.is_finished:
            self.finished = len(self.parts)

    def beyond(self) -> list[int]:
        """Per side how many rows unfinished parts have behind the newest finished one."""
        return [end - first for first, end in zip(self.binding.end, self.before, strict=True)]


class FootprintedJoin(WindowedJoin, Footprinted):
    """Joins rows within windows that can be written one by one.

    Volatile beside the pages, all of it: what of the windows is written, what the present pass has
    not said yet, and, while it replays, from where on windows take rows.
    """

    opens_before = True

    def __init__(
        self,
        layout: JoinLayout,
        *,
        size_us: int,
        how: Literal["inner", "left"] = "inner",
        manager: PageManager | None = None,
    ) -> None:
        """As `WindowedJoin`."""
        super().__init__(layout, size_us=size_us, how=how, manager=manager)
        fields = [pa.field(WINDOW, pa.int64()), pa.field(PART, pa.int64())]
        for name, schema in zip(_SIDES, layout.schemas, strict=True):
            columns = [pa.field(f"{i}", f.type) for i, f in enumerate(schema)]
            row = pa.struct([pa.field(_TIME, pa.int64()), *columns])
            fields.append(pa.field(name, pa.large_list(row)))
        self.body_schema = pa.schema(fields)
        self._written: dict[int, _Written] = {}
        self._count = 0  # of their parts
        self._entered: dict[int, JoinRows] = {}  # by rows, since what was said last
        self._left: list[int] = []  # windows that have closed since
        self._generation = 0
        self._floors: dict[int, int] | None = None  # while it replays, by window
        self._beyond: dict[int, list[int]] = {}  # and how many rows it has from there on, by side
        self._low = np.zeros(1, dtype=np.int64)

    @property
    def open_windows(self) -> int:
        """How many parts there are of windows that are open."""
        return self._count

    # -- while the node works -----------------------------------------------------------------

    def begin_pass(self, generation: int) -> None:
        """As `Footprinted`."""
        self._generation = generation

    def end_pass(self, *, closing: bool = True) -> WindowsOfPass:
        """As `Footprinted`: windows open with a part without rows."""
        del closing  # All is said at once.
        said = []
        for start in sorted(self._entered.keys() - self._written.keys()):
            if self._directory.get(start) is not None:
                part = _Part(0, self._generation, (0, 0), (0, 0))
                self._written[start] = _Written([part], 1)
                said.append(_Said(start, part, self._entered[start]))
        gone = [start for start in self._left if start in self._written]
        closed = [(start, self._written.pop(start)) for start in gone]
        self._count += len(said) - sum(len(written.parts) for _, written in closed)
        self._entered, self._left = {}, []
        return WindowsOfPass(
            _names_of(said),
            self._bodies(said),
            self._names([(start, part.number) for start, w in closed for part in w.parts]),
            _numbers([written.binding.generation for _, written in closed]),
            _numbers([part.generation for _, written in closed for part in written.parts]),
        )

    def footprints(
        self, windows: np.ndarray, former: int, generation: int, most: int
    ) -> WindowsOfPass:
        """As `Footprinted`. Cost: O(rows of the parts that are written)."""
        self._generation = generation
        said: list[_Said] = []
        numbers: list[int] = []
        let_go: list[int] = []
        starts = windows[:, 0].tolist()
        for at, start in enumerate(starts):
            written = self._written.get(start)
            if written is None or written.binding.generation != former:
                continue
            if len(said) < most:
                rows, before = self._directory.get(start), len(written.parts)
                assert rows is not None
                let_go += self._join_small(written, rows)
                for part in self._parts_of(written, rows, most - len(said)):
                    written.add(part)
                    said.append(_Said(start, part, rows))
                self._count += len(written.parts) - before
            if written.binding.generation == former:  # There are rows left.
                return self._checked(said, numbers, let_go, len(starts) - at)
            numbers.append(former)
        return self._checked(said, numbers, let_go, 0)

    def _checked(
        self, said: list[_Said], numbers: list[int], let_go: list[int], unfinished: int
    ) -> WindowsOfPass:
        return WindowsOfPass(
            _names_of(said),
            self._bodies(said),
            self._names([]),
            _numbers(numbers),
            _numbers(let_go),
            unfinished,
            np.array([each.part.is_finished for each in said], dtype=np.bool_),
        )

    @staticmethod
    def _join_small(written: _Written, rows: JoinRows) -> list[int]:
        """Give up a small last part if its rows fit in one with those that have come since."""
        last = written.parts[-1]
        is_small = _rows_between(last.first, last.end) < _SMALL
        if not is_small or not last.is_finished or _rows_between(last.first, _ends(rows)) > _PART:
            return []
        written.parts.pop()
        written.finished -= 1
        return [last.generation]

    def _parts_of(self, written: _Written, rows: JoinRows, most: int) -> Iterator[_Part]:
        """The rows that no part has, as up to so many new ones; the last of all is finished."""
        ends, first = _ends(rows), written.before
        for number in range(len(written.parts), len(written.parts) + most):
            left = min(ends[0], first[0] + _PART)
            end = left, min(ends[1], first[1] + _PART - (left - first[0]))
            yield _Part(number if end == ends else -1 - number, self._generation, first, end)
            if end == ends:
                return
            first = end

    def whole(self) -> WindowsOfPass:
        """As `Footprinted`: each window is one part."""
        said = [
            _Said(start, _Part(0, self._generation, (0, 0), _ends(rows)), rows)
            for start, rows in self._directory.states()
        ]
        self._written = {each.start: _Written([each.part], 1) for each in said}
        self._count = len(said)
        return self._checked(said, [], [], 0)

    # -- footprints ---------------------------------------------------------------------------

    def _names(self, parts: list[tuple[int, int]]) -> pa.RecordBatch:
        """Parts of windows that have closed."""
        pairs = _pairs(parts)
        columns = [array_over(np.ascontiguousarray(pairs[:, at])) for at in (0, 1)]
        columns += [pa.nulls(len(parts), f.type) for f in list(self.body_schema)[2:]]
        return pa.RecordBatch.from_arrays(columns, schema=self.body_schema)

    def _bodies(self, said: Sequence[_Said]) -> pa.RecordBatch:
        pairs = _names_of(said)
        columns = [array_over(np.ascontiguousarray(pairs[:, at])) for at in (0, 1)]
        for side, name in enumerate(_SIDES):
            kind = self.body_schema.field(name).type.value_type
            parts = [(each.rows, each.part.first[side], each.part.end[side]) for each in said]
            lists = [self._rows_from(*part, side, kind) for part in parts if part[1] < part[2]]
            ends = np.cumsum([0, *(end - first for _, first, end in parts)])
            values = pa.concat_arrays([pa.array([], type=kind), *lists])
            columns.append(pa.LargeListArray.from_arrays(pa.array(ends, pa.int64()), values))
        return pa.RecordBatch.from_arrays(columns, schema=self.body_schema)

    def _rows_from(
        self, rows: JoinRows, first: int, end: int, side: int, kind: pa.StructType
    ) -> pa.Array:
        """The rows [first, end) of a side, as structs."""
        layout, stored = self._layout, rows.sides[side]
        records = stored.gather(np.arange(first, end, dtype=np.int64))
        words = np.ascontiguousarray(records[:, layout.row_at :])
        columns = layout.row_packings[side].unpack(words, rows.strings)
        times = array_over(np.ascontiguousarray(records[:, 1]))
        return pa.StructArray.from_arrays([times, *columns], fields=list(kind))

    # -- taking the place of another ------------------------------------------------------------

    def adopt_footprints(
        self, bodies: pa.RecordBatch, generations: np.ndarray, cuts: np.ndarray, streams: int
    ) -> np.ndarray:
        """As `Footprinted`."""
        low = np.full(streams, NO_ID, dtype=np.int64)  # No tuple is needed for what they hold.
        starts, parts = (bodies.column(at).to_pylist() for at in (0, 1))
        self._floors, self._written = {}, {}
        for row in sorted(range(bodies.num_rows), key=lambda r: (starts[r], _place(parts[r]))):
            start = starts[row]
            window, _ = self._directory.enter(start, low, 0)
            written = self._written.setdefault(start, _Written())
            if _place(parts[row]) != len(written.parts):
                raise InvariantViolation(f"{self.name}: part {parts[row]} of {start} in its place")
            first = written.before
            for side, name in enumerate(_SIDES):
                self._append(window, side, bodies.column(name)[row].values)
            written.add(_Part(parts[row], int(generations[row]), first, _ends(window)))
        for start, written in self._written.items():
            if not written.finished:
                raise InvariantViolation(f"{self.name}: {start} has no finished part")
            self._floors[start] = int(cuts[written.binding.generation])
        self._beyond = {start: written.beyond() for start, written in self._written.items()}
        self._generation, self._count = len(cuts), bodies.num_rows
        return _pairs(list(zip(starts, parts, strict=True)))

    def _append(self, window: JoinRows, side: int, rows: pa.StructArray) -> None:
        if not len(rows):
            return
        times, *columns = rows.flatten()
        batch = pa.RecordBatch.from_arrays(columns, schema=self._layout.schemas[side])
        window.append(side, batch, times.to_numpy())

    def end_replay(self, boundary_us: int) -> None:
        """As `Footprinted`."""
        del boundary_us  # What it closes had been put out.
        self._floors, self._beyond = None, {}

    def process(self, inputs: Sequence[Rows | None], low: np.ndarray, boundary_us: int) -> Output:
        """As `WindowedJoin`; while it replays, it puts nothing out.

        Raises:
            LocalProtocolError: A row is older than the boundary.
            InvariantViolation: It has replayed, and a window closes that was open at the cut.
            StateLimitExceeded: The pages are used up.
        """
        self._low = low
        output = super().process(inputs, low, boundary_us)
        if self._floors is not None and self._directory.count != len(self._floors):
            raise InvariantViolation(f"{self.name}: replaying has opened or closed a window")
        return output

    def _enter(self, start: int, low: np.ndarray, created_us: int) -> JoinRows:
        rows = super()._enter(start, low, created_us)
        self._entered[start] = rows
        return rows

    def _join(self, start: int, rows: JoinRows) -> pa.RecordBatch:
        self._left.append(start)
        return super()._join(start, rows)

    def _store(self, side: int, rows: Rows, low: np.ndarray) -> None:
        """While it replays, only into windows that were open, behind their own cuts."""
        if self._floors is None:
            super()._store(side, rows, low)
            return
        places = places_of(self._low, rows.time_us, rows.order)
        none = np.full(len(low), NO_ID, dtype=np.int64)
        for start, numbers in self._spec.assign(rows.time_us):
            floor = self._floors.get(start)
            if floor is None:
                continue
            counts = places >= floor
            mine = np.flatnonzero(counts) if numbers is None else numbers[counts[numbers]]
            known = min(len(mine), self._beyond[start][side])
            self._beyond[start][side] -= known
            mine = mine[known:]
            if len(mine):
                window, _ = self._directory.enter(start, none, rows.created_us)
                some = chosen(rows, mine)
                window.append(side, some.batch, some.time_us)

    def check_invariants(self) -> None:
        """Raise `InvariantViolation` if windows and their parts disagree."""
        super().check_invariants()
        if self._count != sum(len(written.parts) for written in self._written.values()):
            raise InvariantViolation(f"{self.name}: there are not {self._count} parts")
        for start, rows in self._directory.states():
            written = self._written.get(start)
            if written is None:
                continue  # It has opened, and nothing was said of it yet.
            if any(a > b for a, b in zip(written.before, _ends(rows), strict=True)):
                raise InvariantViolation(f"{self.name}: parts of {start} hold more than it does")
            are_finished = [part.is_finished for part in written.parts]
            if written.finished == 0 or any(are_finished[written.finished :]):
                raise InvariantViolation(f"{self.name}: {start} is not bound by its newest part")


def _place(number: int) -> int:
    """Of the part with this number in its window."""
    return number if number >= 0 else -1 - number


def _ends(rows: JoinRows) -> tuple[int, int]:
    """Per side the row behind the last."""
    return len(rows.sides[0]), len(rows.sides[1])


def _names_of(said: Sequence[_Said]) -> np.ndarray:
    """Windows and numbers of parts, int64 (n, 2)."""
    return _pairs([(each.start, each.part.number) for each in said])


def _pairs(rows: list[tuple[int, int]]) -> np.ndarray:
    """int64 (n, 2)."""
    return np.array(rows, dtype=np.int64).reshape(-1, 2)


def _numbers(values: list[int]) -> np.ndarray:
    """int64 (n,)."""
    return np.array(values, dtype=np.int64)


def _rows_between(first: tuple[int, int], before: tuple[int, int]) -> int:
    """Rows of both sides from some on, before others."""
    return before[0] - first[0] + before[1] - first[1]
