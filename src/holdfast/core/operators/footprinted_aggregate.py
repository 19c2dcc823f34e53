"""An aggregate over windows of tuple time that leaves footprints: groups are written in segments.
[CEC §II.B, §III]

Theory of operation. A window's groups lie in its map in the order of their first arrivals, and stay
there. Each 64 of them are a *segment*, which has footprints of its own; each footprint holds the
segment as it is, and takes the place of the former one. So rows are aggregated as without
footprints: nobody keeps books on single groups.

Groups that no footprint holds yet are the window's *tail*. It needs none: its footprint is empty,
and has the cut before the pass in which its first group came, so that a replay brings all of it
(`opens_before`). A window that closes soon costs two short records, however many groups it has.

Segments are written in their order. So footprints hold the first groups of a window, all of them
but for the tail's, and a replacement has the groups in the order that its predecessor had:

1. It adopts the segments, and takes for a group what lies behind the cut of its segment.
2. Groups that no segment holds are the tail's. They come anew, in the order of their first rows.
3. No window opens: one without footprints had closed at the cut of the node.

Invariants: a window has footprints of its first `held` groups, each segment of them full but for
the last; it has a tail exactly if it has more groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from holdfast.core.errors import InvariantViolation
from holdfast.core.model.footprints import KEY, WINDOW
from holdfast.core.model.ids import BEGINNING_US, NO_ID
from holdfast.core.operators.accumulators import Aggregate, AggregateFunction
from holdfast.core.operators.aggregate import AggregatedWindow, WindowAggregate, some_of
from holdfast.core.operators.base import NOTHING, Evaluator, Output, Rows
from holdfast.core.operators.footprinted import Footprinted, WindowsOfPass, places_of
from holdfast.core.state.page_manager import PageManager

SEGMENT: Final = 64
"""Groups of a segment."""
TAIL: Final = -1
"""In the place of a segment's number: the groups that are in none."""
_NONE: Final = -1
_SEGMENT_KEY: Final = KEY + "segment"
_GROUPS: Final = "groups"


@dataclass(slots=True)
class _Written:
    """Which footprints of a window are needed.

    Attributes:
        generations: int64, of each segment.
        held: How many groups the segments hold.
        tail: Generation of the tail's footprint; -1: there is no tail.
    """

    generations: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    held: int = 0
    tail: int = _NONE

    def segments(self) -> list[int]:
        """Numbers of what has footprints."""
        return [*range(len(self.generations)), *([TAIL] if self.tail != _NONE else [])]

    def needed(self) -> np.ndarray:
        """Their generations, int64."""
        tail = [] if self.tail == _NONE else [self.tail]
        return np.concatenate([self.generations, np.array(tail, dtype=np.int64)])


class _Said(NamedTuple):
    """Segments of a window that follow each other, as they are said."""

    start: int
    window: AggregatedWindow
    first: int
    end: int


@dataclass(slots=True)
class _Floors:
    """From where on groups of a window take rows while it replays.

    Attributes:
        cuts: int64, of each segment.
        held: How many groups the segments hold.
        tail: Of the others; `NO_ID`: there are none.
    """

    cuts: np.ndarray
    held: int
    tail: int = NO_ID

    @property
    def newest(self) -> int:
        """From here on all groups take rows: without a tail there are none but those held."""
        tail = [] if self.tail == NO_ID else [self.tail]
        return int(np.concatenate([self.cuts, np.array(tail, dtype=np.int64)]).max())


class FootprintedAggregate(WindowAggregate, Footprinted):
    """Aggregates per window and group, whose groups are written some at a time.

    Volatile beside the pages, all of it: what of the windows is written, what the present pass has
    not said yet, and, while it replays, from where on groups take rows.
    """

    opens_before = True

    def __init__(
        self,
        name: str,
        schema: pa.Schema,
        keys: Sequence[str],
        aggregates: Sequence[Aggregate | tuple[AggregateFunction, Evaluator | None, str]],
        *,
        size_us: int,
        slide_us: int | None = None,
        manager: PageManager | None = None,
    ) -> None:
        """As `WindowAggregate`."""
        super().__init__(
            name, schema, keys, aggregates, size_us=size_us, slide_us=slide_us, manager=manager
        )
        groups = self._groups
        self._fixed_words = [w for w in range(groups.value_words) if w not in groups.text_words]
        parts = [pa.field(f"key.{i}", f.type) for i, f in enumerate(groups.key_fields)]
        parts += [pa.field(f"state.{word}", pa.int64()) for word in self._fixed_words]
        parts += [pa.field(f"text.{word}", pa.large_binary()) for word in groups.text_words]
        self._group_type = pa.struct(parts)
        self.body_schema = pa.schema(
            [
                pa.field(WINDOW, pa.int64()),
                pa.field(_SEGMENT_KEY, pa.int64()),
                pa.field(_GROUPS, pa.large_list(self._group_type)),
            ]
        )
        self._written: dict[int, _Written] = {}
        self._touched: dict[int, AggregatedWindow] = {}  # by the present pass
        self._generation = 0
        self._floors: dict[int, _Floors] | None = None  # while it replays, by window
        self._low = np.zeros(1, dtype=np.int64)
        self._closed_us = BEGINNING_US  # the boundary that windows were closed up to
        none = np.zeros(0, dtype=np.int64)
        self._unsaid = WindowsOfPass(_pairs([]), self._names([]), self._names([]), none, none)

    @property
    def open_windows(self) -> int:
        """How many segments and tails there are of windows that are open."""
        return sum(len(w.generations) + (w.tail != _NONE) for w in self._written.values())

    # -- while the node works -----------------------------------------------------------------

    def begin_pass(self, generation: int) -> None:
        """As `Footprinted`."""
        self._generation = generation
        self._touched = {}

    def _run(
        self,
        start: int,
        window: AggregatedWindow,
        keys: np.ndarray,
        arguments: np.ndarray,
        mask: np.ndarray,
    ) -> np.ndarray:
        self._touched[start] = window
        return super()._run(start, window, keys, arguments, mask)

    def end_pass(self) -> WindowsOfPass:
        """As `Footprinted`: what opens are tails, as the pass has found them."""
        last_start = self._closed_us - self._spec.size_us
        gone = {start: w for start, w in self._written.items() if start <= last_start}
        for start in gone:
            del self._written[start]
        opened: list[tuple[int, int]] = []
        for start, window in self._touched.items():
            if start <= last_start:
                continue
            written = self._written.setdefault(start, _Written())
            if written.tail == _NONE and len(window.groups) > written.held:
                written.tail = self._generation
                opened.append((start, TAIL))
        self._touched = {}
        if not opened and not gone:
            return self._unsaid
        closed = [(start, number) for start, w in gone.items() for number in w.segments()]
        former = _joined([w.needed() for w in gone.values()])
        bodies = self._named(opened, pa.array([[]] * len(opened), type=self.body_schema.types[2]))
        return WindowsOfPass(_pairs(opened), bodies, self._names(closed), former, former)

    def footprints(
        self, windows: np.ndarray, former: int, generation: int, most: int
    ) -> WindowsOfPass:
        """As `Footprinted`. Cost: O(groups of the segments that are written)."""
        self._generation = generation
        said: list[_Said] = []
        numbers: list[np.ndarray] = []
        done: list[tuple[int, int]] = []
        left, at = most, 0
        for start, first, end in _runs(windows):
            written, window = self._written.get(start), self._directory.get(start)
            if written is not None and window is not None and left > 0:
                wanted = self._wanted(written, window, first, end, former)
                some = wanted[:left]
                left -= len(some)
                for begin, stop in _ranges(some):
                    said.append(_Said(start, window, begin, stop))
                    numbers.append(self._note(written, window, begin, stop))
                if written.tail != _NONE and len(window.groups) == written.held:
                    numbers.append(np.array([written.tail], dtype=np.int64))
                    done.append((start, TAIL))
                    written.tail = _NONE
                if len(some) < len(wanted):
                    break
            elif left <= 0:
                break
            at += end - first
        gone = _joined(numbers)
        pairs = [(each.start, number) for each in said for number in range(each.first, each.end)]
        bodies = self._bodies(said, pairs)
        unfinished = len(windows) - at
        return WindowsOfPass(_pairs(pairs), bodies, self._names(done), gone, gone, unfinished)

    def _wanted(
        self, written: _Written, window: AggregatedWindow, first: int, end: int, former: int
    ) -> np.ndarray:
        """Which of the segments [first, end) to write, or of the tail; they are of a generation."""
        if first == TAIL:
            if written.tail != former:
                return np.zeros(0, dtype=np.int64)
            behind = -(-len(window.groups) // SEGMENT)
            return np.arange(written.held // SEGMENT, behind, dtype=np.int64)
        mine = np.flatnonzero(written.generations[first:end] == former)
        return mine + first

    def _note(
        self, written: _Written, window: AggregatedWindow, first: int, end: int
    ) -> np.ndarray:
        """These segments are written as they are; the generations of their former footprints."""
        before = written.generations[first:end].copy()
        new = np.full(end - first, self._generation, dtype=np.int64)
        if end <= len(written.generations):
            written.generations[first:end] = new
        else:
            written.generations = np.concatenate([written.generations[:first], new])
        written.held = max(written.held, min(end * SEGMENT, len(window.groups)))
        return before

    def whole(self) -> WindowsOfPass:
        """As `Footprinted`."""
        states = dict(self._directory.states())
        self._written = {start: _Written(tail=0) for start, w in states.items() if len(w.groups)}
        tails = _pairs([(start, TAIL) for start in self._written])
        segments = sum(-(-len(window.groups) // SEGMENT) for window in states.values())
        return self.footprints(tails, 0, 1, segments)

    # -- footprints ---------------------------------------------------------------------------

    def _named(self, pairs: list[tuple[int, int]], groups: pa.Array) -> pa.RecordBatch:
        named = _pairs(pairs)
        columns = [pa.array(np.ascontiguousarray(named[:, at])) for at in (0, 1)]
        return pa.RecordBatch.from_arrays([*columns, groups], schema=self.body_schema)

    def _names(self, pairs: list[tuple[int, int]]) -> pa.RecordBatch:
        """Segments and tails that are needed no more."""
        return self._named(pairs, pa.nulls(len(pairs), self.body_schema.types[2]))

    def _bodies(self, said: Sequence[_Said], pairs: list[tuple[int, int]]) -> pa.RecordBatch:
        lengths, structs = [], [pa.array([], type=self._group_type)]
        for _, window, first, end in said:
            count = min(end * SEGMENT, len(window.groups)) - first * SEGMENT
            structs.append(self._structs(window, first * SEGMENT, count))
            mine = np.full(end - first, SEGMENT, dtype=np.int64)
            mine[-1] = count - (end - first - 1) * SEGMENT
            lengths.append(mine)
        ends = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(_joined(lengths))])
        values = pa.concat_arrays(structs)
        offsets = pa.array(ends, pa.int64())
        groups = pa.LargeListArray.from_arrays(offsets, values, type=self.body_schema.types[2])
        return self._named(pairs, groups)

    def _structs(self, window: AggregatedWindow, first: int, count: int) -> pa.StructArray:
        """Groups of a window from one on, as footprints have them."""
        groups = self._groups
        entries = window.groups.entries(first, count)
        keys = np.ascontiguousarray(entries[:, : groups.key_words])
        values = entries[:, groups.key_words :]
        columns = groups.key_columns(keys, window.strings)
        columns += [pa.array(np.ascontiguousarray(values[:, word])) for word in self._fixed_words]
        for word in groups.text_words:
            assert window.strings is not None
            references = np.ascontiguousarray(values[:, word])
            columns.append(window.strings.gather(references, pa.large_binary()))
        return pa.StructArray.from_arrays(columns, fields=list(self._group_type))

    # -- taking the place of another ------------------------------------------------------------

    def adopt_footprints(
        self, bodies: pa.RecordBatch, generations: np.ndarray, cuts: np.ndarray, streams: int
    ) -> np.ndarray:
        """As `Footprinted`."""
        low = np.full(streams, NO_ID, dtype=np.int64)  # No tuple is needed for what they hold.
        starts, segments = (bodies.column(at).to_numpy() for at in (0, 1))
        order = np.lexsort((segments, starts))
        groups = bodies.column(2).take(pa.array(order))
        counts = np.diff(groups.offsets.to_numpy())
        structs, ends = groups.flatten(), np.cumsum(counts)
        self._floors = {}
        _, edges = np.unique(starts[order], return_index=True)
        firsts = edges.tolist()
        for first, end in zip(firsts, [*firsts, len(order)][1:], strict=True):
            mine = order[first:end]
            start = int(starts[mine[0]])
            window, _ = self._directory.enter(start, low, 0)
            tail = np.flatnonzero(segments[mine] == TAIL)
            begin = int(ends[first] - counts[first])
            held = int(ends[end - 1]) - begin
            written = _Written(generations[mine[len(tail) :]].copy(), held)
            floors = _Floors(cuts[written.generations], held)
            if len(tail):
                written.tail = int(generations[mine[0]])
                floors.tail = int(cuts[written.tail])
            self._require_whole(start, segments[mine[len(tail) :]], counts[first + len(tail) : end])
            self._append(window, structs.slice(begin, held))
            self._written[start], self._floors[start] = written, floors
        self._generation = len(cuts)
        return np.stack([starts, segments], axis=1)

    def _require_whole(self, start: int, segments: np.ndarray, counts: np.ndarray) -> None:
        """Raise `InvariantViolation` unless segments hold the first groups of a window."""
        every = np.array_equal(segments, np.arange(len(segments)))
        if not every or bool((counts[:-1] != SEGMENT).any()) or bool((counts[-1:] > SEGMENT).any()):
            raise InvariantViolation(f"{self.name}: segments of {start} leave groups out")

    def _append(self, window: AggregatedWindow, structs: pa.StructArray) -> None:
        """These groups, in this order, are the first of a window."""
        groups, columns = self._groups, structs.flatten()
        at = len(groups.key_fields)
        keys = groups.pack_keys(columns[:at], len(structs), window.strings)
        values = np.empty((len(structs), groups.value_words), dtype=np.int64)
        for word, column in zip(self._fixed_words, columns[at:], strict=False):
            values[:, word] = column.to_numpy()
        for word, column in zip(
            groups.text_words, columns[at + len(self._fixed_words) :], strict=True
        ):
            assert window.strings is not None
            values[:, word] = window.strings.intern(column)
        window.groups.reserve(len(keys))
        window.groups.write_values(window.groups.upsert_slots(keys), values)
        if len(window.groups) != len(keys):
            raise InvariantViolation(f"{self.name}: two segments hold one group")

    def end_replay(self, boundary_us: int) -> None:
        """As `Footprinted`."""
        del boundary_us  # What it closes had been put out.
        self._floors = None

    def process(self, inputs: Sequence[Rows | None], low: np.ndarray, boundary_us: int) -> Output:
        """As `WindowAggregate`; while it replays, it puts nothing out.

        Raises:
            ArithmeticOverflow: A sum does not fit its type.
            InvariantViolation: It has replayed, and a window closes that was open at the cut.
            LocalProtocolError: A row is older than the boundary.
            StateLimitExceeded: The pages are used up.
        """
        self._low = low
        self._closed_us = max(self._closed_us, boundary_us)
        output = super().process(inputs, low, boundary_us)
        if self._floors is not None and self._directory.count != len(self._floors):
            raise InvariantViolation(f"{self.name}: replaying has opened or closed a window")
        return output

    def _update(self, rows: Rows, low: np.ndarray) -> Output:
        """While it replays, only groups of windows that were open, behind their own cuts."""
        if self._floors is None:
            return super()._update(rows, low)
        places = places_of(self._low, rows.time_us, rows.order)
        none = np.full(len(low), NO_ID, dtype=np.int64)
        found = [self._floors.get(start) for start, _ in self._spec.assign(rows.time_us)]
        if all(floors is not None and floors.newest <= places[0] for floors in found):
            return super()._update(rows, none)  # No group has to be looked at.
        columns = self._groups.evaluate(rows.batch)
        shared = self._shared_words(rows.batch, columns)
        for start, numbers in self._spec.assign(rows.time_us):
            floors = self._floors.get(start)
            if floors is None:
                continue
            window, _ = self._directory.enter(start, none, rows.created_us)
            if numbers is None:
                numbers = np.arange(len(places), dtype=np.int64)
            if shared is None:
                keys = self._groups.keys_of(rows.batch.take(pa.array(numbers)), window.strings)
            else:
                keys = shared[0] if len(numbers) == len(places) else shared[0][numbers]
            counts = places[numbers] >= self._floors_of(floors, window, keys)
            some = numbers[counts]
            if shared is not None and len(some):
                self._run(start, window, *some_of(shared, some))
            elif len(some):
                mine = [c if c is None else c.take(pa.array(some)) for c in columns]
                arguments, mask = self._groups.arguments_of(mine, len(some), window.strings)
                self._run(start, window, np.ascontiguousarray(keys[counts]), arguments, mask)
        return NOTHING

    def _floors_of(self, floors: _Floors, window: AggregatedWindow, keys: np.ndarray) -> np.ndarray:
        """From where on the groups of these keys take rows. int64 (n,)."""
        slots = window.groups.lookup_slots(keys)
        found = np.full(len(slots), floors.tail, dtype=np.int64)
        known = np.flatnonzero(slots >= 0)
        numbers = window.groups.numbers_of(slots[known])
        is_held = numbers < floors.held
        found[known[is_held]] = floors.cuts[numbers[is_held] // SEGMENT]
        return found

    def check_invariants(self) -> None:
        """Raise `InvariantViolation` if windows and their segments disagree."""
        super().check_invariants()
        for start, window in self._directory.states():
            written, count = self._written.get(start, _NOTHING_WRITTEN), len(window.groups)
            if self._floors is not None and written.held <= count:
                continue
            if len(written.generations) != -(-written.held // SEGMENT) or written.held > count:
                raise InvariantViolation(f"{self.name}: segments of {start} hold more than it does")
            has_tail = written.tail != _NONE
            is_said = has_tail or start in self._touched  # or will be
            if has_tail > (count > written.held) or is_said < (count > written.held):
                raise InvariantViolation(f"{self.name}: {start} has a tail without need, or none")


_NOTHING_WRITTEN: Final = _Written()


def _pairs(rows: list[tuple[int, int]]) -> np.ndarray:
    """int64 (n, 2)."""
    return np.array(rows, dtype=np.int64).reshape(-1, 2)


def _joined(parts: list[np.ndarray]) -> np.ndarray:
    """int64, one after the other."""
    return np.concatenate([np.zeros(0, dtype=np.int64), *parts])


def _runs(windows: np.ndarray) -> list[tuple[int, int, int]]:
    """Windows with numbers that follow each other: (start, first number, the one behind the last).

    A tail is by itself.
    """
    if not len(windows):
        return []
    steps = np.diff(windows, axis=0)
    breaks = (steps[:, 0] != 0) | (steps[:, 1] != 1) | (windows[:-1, 1] == TAIL)
    firsts = [0, *(np.flatnonzero(breaks) + 1).tolist()]
    ends = [*firsts[1:], len(windows)]
    return [
        (int(windows[first, 0]), int(windows[first, 1]), int(windows[end - 1, 1]) + 1)
        for first, end in zip(firsts, ends, strict=True)
    ]


def _ranges(numbers: np.ndarray) -> list[tuple[int, int]]:
    """Ascending numbers as half-open ranges."""
    if not len(numbers):
        return []
    breaks = np.flatnonzero(np.diff(numbers) != 1) + 1
    return [(int(part[0]), int(part[-1]) + 1) for part in np.split(numbers, breaks)]
