"""A windowed join that leaves footprints: each window is written in parts. [CEC §II.B, §III]

Theory of operation. A window of a join only ever gains rows until it closes. So its footprints are
parts (footprinted.py): the one that it opens with, and later ones with the rows that have come
since. Together they are the window, and each row is written once. A last part that is small is
written anew with what follows it, so that a slow window is not a chain of thousands.

A replacement has all parts of a window in their order. It takes the rows behind the cut of the
newest one; none for windows that were not open at the cut of the node, as these had closed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

import numpy as np
import pyarrow as pa

from holdfast.core.errors import InvariantViolation
from holdfast.core.model.footprints import PART, WINDOW
from holdfast.core.model.ids import NO_ID
from holdfast.core.operators.base import Output, Rows, chosen
from holdfast.core.operators.footprinted import Footprinted, WindowsOfPass, places_of
from holdfast.core.operators.join import JoinLayout, JoinRows
from holdfast.core.operators.windowed_join import WindowedJoin
from holdfast.core.state.page_manager import PageManager

_SMALL: Final = 64
"""A last part of fewer rows is written anew."""
_TIME: Final = "time"
_SIDES: Final = ("left", "right")


@dataclass(slots=True)
class _Written:
    """What the footprints of a window hold.

    Attributes:
        generations: Of its parts.
        last_from: Per side the first row of the last part.
        before: Per side the row before which all are in parts.
    """

    generations: list[int] = field(default_factory=list)
    last_from: tuple[int, int] = (0, 0)
    before: tuple[int, int] = (0, 0)


class FootprintedJoin(WindowedJoin, Footprinted):
    """Joins rows within windows that can be written one by one.

    Volatile beside the pages, all of it: what of the windows is written, what the present pass has
    not said yet, and, while it replays, from where on windows take rows.
    """

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
        self._generation = 0
        self._floors: dict[int, int] | None = None  # while it replays, by window
        self._low = np.zeros(1, dtype=np.int64)

    @property
    def open_windows(self) -> int:
        """How many parts there are of windows that are open."""
        return sum(len(written.generations) for written in self._written.values())

    # -- while the node works -----------------------------------------------------------------

    def begin_pass(self, generation: int) -> None:
        """As `Footprinted`."""
        self._generation = generation

    def end_pass(self) -> WindowsOfPass:
        """As `Footprinted`."""
        states = self._directory.states()
        opened = [(start, rows) for start, rows in states if start not in self._written]
        is_open = dict(states)
        closed = [start for start in self._written if start not in is_open]
        gone = {start: self._written.pop(start) for start in closed}
        said = [self._part_of(start, rows) for start, rows in opened]
        names = [(start, part) for start in closed for part in range(len(gone[start].generations))]
        return WindowsOfPass(
            _pairs([(start, part) for start, part, *_ in said]),
            self._bodies(said),
            self._names(names),
            _numbers([written.generations[-1] for written in gone.values()]),
            _numbers([each for written in gone.values() for each in written.generations]),
        )

    def footprints(
        self, windows: np.ndarray, former: int, generation: int, most: int
    ) -> WindowsOfPass:
        """As `Footprinted`."""
        del most  # Each window has one.
        self._generation = generation
        states = dict(self._directory.states())
        said, numbers, let_go = [], [], []
        for start in windows[:, 0].tolist():
            written = self._written.get(start)
            if written is None or written.generations[-1] != former:
                continue
            numbers.append(former)
            if _rows_between(written.last_from, written.before) < _SMALL:
                let_go.append(written.generations.pop())
                written.before = written.last_from
            said.append(self._part_of(start, states[start]))
        windows = _pairs([(start, part) for start, part, *_ in said])
        return WindowsOfPass(
            windows, self._bodies(said), self._names([]), _numbers(numbers), _numbers(let_go)
        )

    def whole(self) -> WindowsOfPass:
        """As `Footprinted`."""
        return self.end_pass()

    def _part_of(self, start: int, rows: JoinRows) -> tuple[int, int, JoinRows, tuple[int, int]]:
        """All rows that no part has, as a new part: its window, number, and first rows."""
        written = self._written.setdefault(start, _Written())
        written.last_from = written.before
        written.before = len(rows.sides[0]), len(rows.sides[1])
        written.generations.append(self._generation)
        return start, len(written.generations) - 1, rows, written.last_from

    # -- footprints ---------------------------------------------------------------------------

    def _names(self, parts: list[tuple[int, int]]) -> pa.RecordBatch:
        """Parts of windows that have closed."""
        pairs = _pairs(parts)
        columns = [pa.array(np.ascontiguousarray(pairs[:, at])) for at in (0, 1)]
        columns += [pa.nulls(len(parts), f.type) for f in list(self.body_schema)[2:]]
        return pa.RecordBatch.from_arrays(columns, schema=self.body_schema)

    def _bodies(
        self, parts: Sequence[tuple[int, int, JoinRows, tuple[int, int]]]
    ) -> pa.RecordBatch:
        pairs = _pairs([(start, part) for start, part, *_ in parts])
        columns = [pa.array(np.ascontiguousarray(pairs[:, at])) for at in (0, 1)]
        for side, name in enumerate(_SIDES):
            kind = self.body_schema.field(name).type.value_type
            lists = [self._rows_from(rows, side, first[side], kind) for _, _, rows, first in parts]
            ends = np.cumsum([0, *map(len, lists)])
            values = pa.concat_arrays([pa.array([], type=kind), *lists])
            columns.append(pa.LargeListArray.from_arrays(pa.array(ends, pa.int64()), values))
        return pa.RecordBatch.from_arrays(columns, schema=self.body_schema)

    def _rows_from(self, rows: JoinRows, side: int, first: int, kind: pa.StructType) -> pa.Array:
        """The rows of a side from a number on, as structs."""
        layout, stored = self._layout, rows.sides[side]
        records = stored.gather(np.arange(first, len(stored), dtype=np.int64))
        words = np.ascontiguousarray(records[:, layout.row_at :])
        columns = layout.row_packings[side].unpack(words, rows.strings)
        times = pa.array(np.ascontiguousarray(records[:, 1]))
        return pa.StructArray.from_arrays([times, *columns], fields=list(kind))

    # -- taking the place of another ------------------------------------------------------------

    def adopt_footprints(
        self, bodies: pa.RecordBatch, generations: np.ndarray, cuts: np.ndarray, streams: int
    ) -> np.ndarray:
        """As `Footprinted`."""
        low = np.full(streams, NO_ID, dtype=np.int64)  # No tuple is needed for what they hold.
        starts, parts = (bodies.column(at).to_pylist() for at in (0, 1))
        self._floors = {}
        for row in sorted(range(bodies.num_rows), key=lambda row: (starts[row], parts[row])):
            start = starts[row]
            window, _ = self._directory.enter(start, low, 0)
            written = self._written.setdefault(start, _Written())
            if parts[row] != len(written.generations):
                raise InvariantViolation(f"{self.name}: part {parts[row]} of {start} in its place")
            for side, name in enumerate(_SIDES):
                self._append(window, side, bodies.column(name)[row].values)
            written.last_from = written.before
            written.before = len(window.sides[0]), len(window.sides[1])
            written.generations.append(int(generations[row]))
            self._floors[start] = int(cuts[generations[row]])
        self._generation = len(cuts)
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
        self._floors = None

    def process(self, inputs: Sequence[Rows | None], low: np.ndarray, boundary_us: int) -> Output:
        """As `WindowedJoin`; while it replays, it puts nothing out.

        Raises:
            LocalProtocolError: A row is older than the boundary.
            InvariantViolation: It has replayed, and a window closes that was open at the cut.
            StateLimitExceeded: The pages are used up.
        """
        self._low = low
        output = super().process(inputs, low, boundary_us)
        if self._floors is not None and len(self._directory.states()) != len(self._floors):
            raise InvariantViolation(f"{self.name}: replaying has opened or closed a window")
        return output

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
            if len(mine):
                window, _ = self._directory.enter(start, none, rows.created_us)
                some = chosen(rows, mine)
                window.append(side, some.batch, some.time_us)

    def check_invariants(self) -> None:
        """Raise `InvariantViolation` if windows and their parts disagree."""
        super().check_invariants()
        for start, rows in self._directory.states():
            written = self._written.get(start)
            sides = len(rows.sides[0]), len(rows.sides[1])
            if written is None:
                continue  # It has opened, and nothing was said of it yet.
            if any(a > b for a, b in zip(written.before, sides, strict=True)):
                raise InvariantViolation(f"{self.name}: parts of {start} hold more than it does")


def _pairs(rows: list[tuple[int, int]]) -> np.ndarray:
    """int64 (n, 2)."""
    return np.array(rows, dtype=np.int64).reshape(-1, 2)


def _numbers(values: list[int]) -> np.ndarray:
    """int64 (n,)."""
    return np.array(values, dtype=np.int64)


def _rows_between(first: tuple[int, int], before: tuple[int, int]) -> int:
    """Rows of both sides from some on, before others."""
    return before[0] - first[0] + before[1] - first[1]
