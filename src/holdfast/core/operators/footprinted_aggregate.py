"""An aggregate over windows of tuple time that leaves footprints: groups are written in segments.
[CEC §II.B, §III]

Theory of operation. A window's groups lie in its map in the order of their first arrivals, and stay
there. Each 64 of them are a *segment*, which has footprints of its own; each footprint holds the
segment as it is, and takes the place of the former one. So rows are aggregated as without
footprints: nobody keeps books on single groups.

A segment that is what it was is not written again: it *rests*. Its second part, without groups,
says that the first one holds at a later cut, too. A fingerprint of 64 bits tells. The writer bounds
how far back in the log the first part may lie (`rest_from`).

Groups that no footprint holds yet are the window's *tail*. It needs none: its footprint is empty,
and has the cut before the pass in which its first group came, so that a replay brings all of it
(`opens_before`). A window that closes soon costs two short records, however many groups it has.

Segments are written in their order. So footprints hold the first groups of a window, all of them
but for the tail's, and a replacement has the groups in the order that its predecessor had:

1. It adopts the segments. Those of the oldest cut take all rows from there on. Rows before it are
   left out: of several streams some come again, namely those sent behind a row that was held.
2. The groups of a later segment are set to nothing. Whatever rows they take before its cut counts
   for nothing: where the replay comes to the cut, they are put back as the segment holds them. So
   no row has to be looked up to know whether its group takes it. Only where groups refer to strings
   are they: text that counts for nothing would stay there until the window closes.
3. Groups that no segment holds are the tail's. They come anew, in the order of their first rows,
   none before the tail's cut.
4. No window opens: one without footprints had closed at the cut of the node.

A sum of rows that count for nothing might not fit its type. While there is such a group, a batch
with values so large is taken in parts, and before each part these groups are set to nothing again.

Invariants: a window has footprints of its first `held` groups, each segment of them full but for
the last; it has a tail exactly if it has more groups.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Final

import numpy as np
import pyarrow as pa

from holdfast.core.errors import InvariantViolation
from holdfast.core.model.footprints import KEY, PART, WINDOW, no_window
from holdfast.core.model.ids import BEGINNING_US, NO_ID
from holdfast.core.model.schema import array_over
from holdfast.core.operators.accumulators import Aggregate, AggregateFunction
from holdfast.core.operators.aggregate import AggregatedWindow, WindowAggregate, Words, some_of
from holdfast.core.operators.base import NOTHING, Evaluator, Output, Rows
from holdfast.core.operators.footprinted import Footprinted, WindowsOfPass, places_of, rows_from
from holdfast.core.operators.written_segments import (
    NONE,
    RESTS,
    TAIL,
    AdoptedSegments,
    SegmentsFound,
    SegmentsSaid,
    SetAside,
    WrittenSegments,
    adopted,
    joined,
    named,
    names_of,
    ranges_of,
    runs_of,
    tail_of,
)
from holdfast.core.state.fingerprint_kernels import take_fingerprints
from holdfast.core.state.page_manager import PageManager

SEGMENT: Final = 64
"""Groups of a segment, unless they grow without bound: then each is one."""
_FITS: Final = 1 << 62
"""A sum whose summands do not come to more than that fits a word."""
_SEGMENT_KEY: Final = KEY + "segment"
_GROUPS: Final = "groups"


class FootprintedAggregate(WindowAggregate, Footprinted):
    """Aggregates per window and group, whose groups are written some at a time.

    Volatile beside the pages, all of it: what of the windows is written, what the present pass has
    not said yet, and, while it replays, the groups that are set aside.
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
        self._segment = 1 if groups.collects else SEGMENT
        self._fixed_words = [w for w in range(groups.value_words) if w not in groups.text_words]
        parts = [pa.field(f"key.{i}", f.type) for i, f in enumerate(groups.key_fields)]
        parts += [pa.field(f"state.{word}", pa.int64()) for word in self._fixed_words]
        parts += [pa.field(f"text.{word}", pa.large_binary()) for word in groups.text_words]
        self._group_fields = parts
        self._group_type = pa.struct(parts)
        self._groups_type = pa.large_list(self._group_type)
        self.body_schema = pa.schema(
            [
                pa.field(WINDOW, pa.int64()),
                pa.field(_SEGMENT_KEY, pa.int64()),
                pa.field(PART, pa.int64()),
                pa.field(_GROUPS, self._groups_type),
            ]
        )
        self._written: dict[int, WrittenSegments] = {}
        self._count = 0  # of their footprints
        self._touched: dict[int, AggregatedWindow] = {}  # by the present pass
        self._generation = 0
        self._aside: dict[int, deque[SetAside]] | None = None  # while it replays, by window
        self._floors: dict[int, tuple[np.ndarray, np.ndarray]] = {}  # where groups are, their cuts
        self._oldest = 0  # of the cuts that it replays from: what is before it counts for nothing
        self._sum_rows = groups.sum_rows
        self._summed: dict[int, int] = {}  # by window a bound of the sums of those groups
        self._low = np.zeros(1, dtype=np.int64)
        self._closed_us = BEGINNING_US  # the boundary that windows were closed up to
        self._none = no_window(self.body_schema).slice(0, 0)
        self._one_empty = self._empty_groups(1)  # As most records of what has opened need it.
        none, no_windows = joined([]), named([])[:, :2]
        self._unsaid = WindowsOfPass(no_windows, self._none, self._none, none, none)

    @property
    def open_windows(self) -> int:
        """How many footprints of segments and tails there are of windows that are open."""
        return self._count

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

    def end_pass(self, *, closing: bool = True) -> WindowsOfPass:
        """As `Footprinted`: what opens are tails, as the pass has found them."""
        last_start = self._closed_us - self._spec.size_us
        gone: dict[int, WrittenSegments] = {}
        if closing:
            gone = {start: w for start, w in self._written.items() if start <= last_start}
        for start in gone:
            self._count -= self._written.pop(start).count
        opened: list[np.ndarray] = []
        for start, window in self._touched.items():
            if start <= last_start:
                continue
            written = self._written.setdefault(start, WrittenSegments())
            if written.tail == NONE and len(window.groups) > written.held:
                written.tail = self._generation
                self._count += 1
                opened.append(tail_of(start))
        self._touched = {}
        if not opened and not gone:
            return self._unsaid
        names = named(opened)
        return WindowsOfPass(
            names[:, :2],
            self._empty(names),
            self._names([written.names(start) for start, written in gone.items()]),
            joined([written.bound() for written in gone.values()]),
            joined([written.needed() for written in gone.values()]),
        )

    def footprints(
        self, windows: np.ndarray, former: int, generation: int, most: int
    ) -> WindowsOfPass:
        """As `Footprinted`. Cost: O(groups of the segments that are written)."""
        self._generation = generation
        found = SegmentsFound()
        left, at = most, 0
        for start, first, end in runs_of(windows):
            written, window = self._written.get(start), self._directory.get(start)
            if written is not None and window is not None and left > 0:
                before = written.count
                wanted = self._wanted(written, window, (first, end), former, left + 1)
                some = wanted[:left]
                left -= len(some)
                for begin, stop in ranges_of(some):
                    self._write(start, written, window, (begin, stop), found)
                if written.tail != NONE and len(window.groups) == written.held:
                    tail = np.array([written.tail], dtype=np.int64)
                    found.former.append(tail)
                    found.let_go.append(tail)
                    found.done.append(tail_of(start))
                    written.tail = NONE
                self._count += written.count - before
                if len(some) < len(wanted):
                    break
            elif left <= 0:
                break
            at += end - first
        names = named([names_of(each.start, each.numbers) for each in found.said])
        bodies = self._bodies(names, found.said)
        if found.rest:
            rest = named(found.rest)
            resting = self._empty(rest)
            bodies = pa.concat_batches([bodies, resting]) if len(names) else resting
            names = np.concatenate([names, rest])
        names = names[np.lexsort((names[:, 1], names[:, 0]))]
        return WindowsOfPass(
            names[:, :2],
            bodies,
            self._names(found.done),
            joined(found.former),
            joined(found.let_go),
            len(windows) - at,
        )

    def _wanted(
        self,
        written: WrittenSegments,
        window: AggregatedWindow,
        between: tuple[int, int],
        former: int,
        most: int,
    ) -> np.ndarray:
        """Which of the segments [first, end) to write, or of the tail; they are of a generation.

        Up to so many: a tail may have a million.
        """
        first, end = between
        if first == TAIL:
            if written.tail != former:
                return np.zeros(0, dtype=np.int64)
            begin, behind = written.held // self._segment, -(-len(window.groups) // self._segment)
            return np.arange(begin, min(behind, begin + most), dtype=np.int64)
        mine = np.flatnonzero(written.binding[first:end] == former)
        return mine[:most] + first

    def _write(
        self,
        start: int,
        written: WrittenSegments,
        window: AggregatedWindow,
        between: tuple[int, int],
        found: SegmentsFound,
    ) -> None:
        """The segments [first, end) as they are, or that they are as they were."""
        first, end = between
        count = min(end * self._segment, len(window.groups)) - first * self._segment
        entries = window.groups.entries(first * self._segment, count)
        lengths = np.full(end - first, self._segment, dtype=np.int64)
        lengths[-1] = count - (end - first - 1) * self._segment
        prints, known = self._prints(entries, lengths), len(written.generations[first:end])
        rests = np.zeros(end - first, dtype=np.bool_)
        before, bound = written.generations[first:end], written.binding[first:end]
        rests[:known] = (written.prints[first:end] == prints[:known]) & (before >= self.rest_from)
        is_whole, had_rested = ~rests, bound != before
        found.former.append(bound.copy())
        found.let_go += [before[is_whole[:known]], bound[had_rested]]
        numbers = np.arange(first, end, dtype=np.int64)
        no_more = had_rested & is_whole[:known]
        if bool(no_more.any()):
            found.done.append(names_of(start, numbers[:known][no_more], RESTS))
        if bool(rests.any()):
            found.rest.append(names_of(start, numbers[rests], RESTS))
        if bool(is_whole.any()):
            if bool(rests.any()):
                entries = np.asfortranarray(entries[np.repeat(is_whole, lengths)])
            some = numbers[is_whole], lengths[is_whole], entries
            found.said.append(SegmentsSaid(start, window, *some))
        new = np.empty((3, end - first), dtype=np.int64)
        new[:2], new[2] = self._generation, prints
        if len(some_rest := np.flatnonzero(rests)):
            new[0, some_rest] = before[some_rest]
        written.write(first, new)
        written.held = max(written.held, min(end * self._segment, len(window.groups)))

    def whole(self) -> WindowsOfPass:
        """As `Footprinted`."""
        states = dict(self._directory.states())
        self._written = {
            start: WrittenSegments(tail=0) for start, w in states.items() if len(w.groups)
        }
        self._count = len(self._written)
        tails = named([tail_of(start) for start in self._written])[:, :2]
        segments = sum(-(-len(window.groups) // self._segment) for window in states.values())
        return self.footprints(tails, 0, 1, segments)

    # -- footprints ---------------------------------------------------------------------------

    def _named(self, names: np.ndarray, groups: pa.Array) -> pa.RecordBatch:
        columns = [array_over(each) for each in np.ascontiguousarray(names.T)]
        return pa.RecordBatch.from_arrays([*columns, groups], schema=self.body_schema)

    def _names(self, parts: list[np.ndarray]) -> pa.RecordBatch:
        """Footprints that are needed no more, by names."""
        if not parts:
            return self._none
        names = named(parts)
        return self._named(names, pa.nulls(len(names), self._groups_type))

    def _empty(self, names: np.ndarray) -> pa.RecordBatch:
        """Footprints without groups."""
        if not len(names):
            return self._none
        groups = self._one_empty if len(names) == 1 else self._empty_groups(len(names))
        return self._named(names, groups)

    def _empty_groups(self, count: int) -> pa.LargeListArray:
        """The groups of so many footprints, none of which has any."""
        offsets = array_over(np.zeros(count + 1, dtype=np.int64))
        none = self._none.column(_GROUPS).flatten()
        return pa.LargeListArray.from_arrays(offsets, none, type=self._groups_type)

    def _bodies(self, names: np.ndarray, said: Sequence[SegmentsSaid]) -> pa.RecordBatch:
        if not said:
            return self._none
        structs = [self._structs(each.window, each.entries) for each in said]
        lengths = [length for each in said for length in each.lengths.tolist()]
        offsets = array_over(np.array([0, *accumulate(lengths)]))
        values = structs[0] if len(structs) == 1 else pa.concat_arrays(structs)
        groups = pa.LargeListArray.from_arrays(offsets, values, type=self._groups_type)
        return self._named(names, groups)

    def _structs(self, window: AggregatedWindow, entries: np.ndarray) -> pa.StructArray:
        """Groups of a window as footprints have them."""
        groups = self._groups
        keys = np.ascontiguousarray(entries[:, : groups.key_words])
        values = entries[:, groups.key_words :]
        columns = groups.key_columns(keys, window.strings)
        columns += [array_over(np.ascontiguousarray(values[:, w])) for w in self._fixed_words]
        for word in groups.text_words:
            assert window.strings is not None
            references = np.ascontiguousarray(values[:, word])
            columns.append(window.strings.gather(references, pa.large_binary()))
        return pa.StructArray.from_arrays(columns, fields=self._group_fields)

    @staticmethod
    def _prints(entries: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """A fingerprint of each segment of groups that follow each other, int64."""
        found = np.empty(len(lengths), dtype=np.int64)
        take_fingerprints(entries.T, lengths, found)
        return found

    # -- taking the place of another ------------------------------------------------------------

    def adopt_footprints(
        self, bodies: pa.RecordBatch, generations: np.ndarray, cuts: np.ndarray, streams: int
    ) -> np.ndarray:
        """As `Footprinted`."""
        names = np.stack([bodies.column(at).to_numpy() for at in range(3)], axis=1)
        order = np.lexsort(names.T[::-1])
        groups = bodies.column(3).take(pa.array(order))
        lengths = np.diff(groups.offsets.to_numpy())
        found = adopted(self.name, names[order], generations[order], lengths, self._segment)
        bound = cuts[np.concatenate([found.binding, found.tails[found.tails != NONE]])]
        self._oldest = int(bound.min()) if len(bound) else 0
        cut_of = np.repeat(cuts[found.binding], found.lengths)
        entries, slots = self._append(found, groups.flatten(), cut_of, streams)
        prints = self._prints(entries, found.lengths)
        known = np.stack([found.generations, found.binding, prints])
        held = np.diff(found.ends)
        each = zip(found.starts, found.tails.tolist(), found.segments, held.tolist(), strict=True)
        for start, tail, (first, end), count in each:
            self._written[start] = WrittenSegments(known[:, first:end].copy(), count, tail)
        self._count += len(order)
        self._set_aside(found, cut_of, slots, entries[:, self._groups.key_words :])
        self._generation = len(cuts)
        return np.ascontiguousarray(names[:, :2])

    def _set_aside(
        self, found: AdoptedSegments, cut_of: np.ndarray, slots: np.ndarray, values: np.ndarray
    ) -> None:
        """Groups of later cuts than the oldest, by window and cut: where they are, and what."""
        aside: dict[int, deque[SetAside]] = {start: deque() for start in found.starts}
        self._aside = aside
        self._summed = dict.fromkeys(found.starts, 0)
        later = np.flatnonzero(cut_of > self._oldest)
        of = np.repeat(found.starts, np.diff(found.ends))[later]
        order = np.lexsort((cut_of[later], of))
        later, of = later[order], of[order]
        cut, slot, value = cut_of[later], slots[later], np.ascontiguousarray(values[later])
        breaks = (of[1:] != of[:-1]) | (cut[1:] != cut[:-1])
        firsts = np.flatnonzero(np.append(True, breaks)[: len(later)])
        edges = [*firsts.tolist(), len(later)]
        parts = zip(of[firsts].tolist(), cut[firsts].tolist(), edges, edges[1:], strict=False)
        for start, floor, first, end in parts:
            aside[start].append(SetAside(floor, slot[first:end], value[first:end]))
        if self._groups.value_has_text:
            for start, (first, end) in zip(found.starts, found.groups, strict=True):
                if aside[start]:
                    self._floors[start] = slots[first:end], cut_of[first:end]

    def _append(
        self, found: AdoptedSegments, structs: pa.StructArray, cut_of: np.ndarray, streams: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Open windows with these groups, in this order; what they are, and where.

        Those of a later cut than the oldest have nothing yet.
        """
        groups, columns = self._groups, structs.flatten()
        key_words, at = groups.key_words, len(groups.key_fields)
        keys, texts = columns[:at], columns[at + len(self._fixed_words) :]
        entries = np.empty((len(structs), key_words + groups.value_words), np.int64, order="F")
        if not groups.key_has_text:
            entries[:, :key_words] = groups.pack_keys(keys, len(structs), None)
        for word, column in zip(self._fixed_words, columns[at:], strict=False):
            entries[:, key_words + word] = column.to_numpy()
        slots = np.empty(len(structs), dtype=np.int64)
        current = np.flatnonzero(cut_of <= self._oldest)
        now_of = pairwise(np.searchsorted(current, found.ends).tolist())
        low = np.full(streams, NO_ID, dtype=np.int64)  # No tuple is needed for what they hold.
        opened = self._directory.open(found.starts, low, 0)
        for window, (first, end), (begin, stop) in zip(opened, found.groups, now_of, strict=True):
            mine, count = entries[first:end], end - first
            if groups.key_has_text:
                some = [column.slice(first, count) for column in keys]
                mine[:, :key_words] = groups.pack_keys(some, count, window.strings)
            for word, column in zip(groups.text_words, texts, strict=True):
                assert window.strings is not None
                mine[:, key_words + word] = window.strings.intern(column.slice(first, count))
            window.groups.reserve(count)
            slots[first:end] = window.groups.upsert_slots(mine[:, :key_words])
            if len(window.groups) != count:
                raise InvariantViolation(f"{self.name}: two segments hold one group")
            if len(now := current[begin:stop]):
                window.groups.write_values(slots[now], entries[now, key_words:])
        return entries, slots

    def _set_to_nothing(self, start: int, window: AggregatedWindow) -> None:
        """What the groups of a window have that are set aside."""
        assert self._aside is not None
        self._summed[start] = 0
        for some in self._aside[start]:
            window.groups.write_values(some.slots, np.zeros_like(some.values))

    def _put_back(self, window: AggregatedWindow, some: SetAside) -> None:
        """The replay has come to the cut of these groups."""
        window.groups.write_values(some.slots, some.values)

    def end_replay(self, boundary_us: int) -> None:
        """As `Footprinted`."""
        del boundary_us  # What it closes had been put out.
        for start, aside in (self._aside or {}).items():
            window = self._directory.get(start) if aside else None
            while aside and window is not None:
                self._put_back(window, aside.popleft())
        self._aside, self._summed, self._floors = None, {}, {}

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
        if self._aside is not None and self._directory.count != len(self._aside):
            raise InvariantViolation(f"{self.name}: replaying has opened or closed a window")
        return output

    def _update(self, rows: Rows, low: np.ndarray) -> Output:
        """While it replays, only windows that were open, and rows from the oldest cut on."""
        if self._aside is None:
            return super()._update(rows, low)
        counting = rows_from(rows, self._low, self._oldest)
        if counting is None:
            return NOTHING
        rows = counting
        places = places_of(self._low, rows.time_us, rows.order)
        none = np.full(len(low), NO_ID, dtype=np.int64)
        if all(self._aside.get(start) == deque() for start, _ in self._spec.assign(rows.time_us)):
            return super()._update(rows, none)
        columns = self._groups.evaluate(rows.batch)
        shared = self._shared_words(rows.batch, columns)
        for start, numbers in self._spec.assign(rows.time_us):
            if start not in self._aside:
                continue
            window, _ = self._directory.enter(start, none, rows.created_us)
            mine = places if numbers is None else places[numbers]
            if shared is not None:
                words = some_of(shared, numbers)
            else:
                taken = None if numbers is None else pa.array(numbers)
                batch = rows.batch if taken is None else rows.batch.take(taken)
                some = [c if c is None or taken is None else c.take(taken) for c in columns]
                words, mine = self._counting(start, window, batch, some, mine)
            if len(mine):
                self._replay(start, window, words, mine)
        return NOTHING

    def _counting(
        self,
        start: int,
        window: AggregatedWindow,
        batch: pa.RecordBatch,
        columns: Sequence[pa.Array | None],
        places: np.ndarray,
    ) -> tuple[Words, np.ndarray]:
        """Words of rows with these places, without those whose text would count for nothing."""
        assert self._aside is not None
        if not self._aside[start] or start not in self._floors:
            return self._words(batch, columns, window.strings), places
        keys = self._groups.keys_of(batch, window.strings)
        slots, cuts = self._floors[start]  # in the order of groups
        found = window.groups.lookup_slots(keys)
        at = np.minimum(np.searchsorted(slots, found), len(slots) - 1)
        counting = np.flatnonzero((slots[at] != found) | (places >= cuts[at]))
        some = pa.array(counting)
        columns = [c if c is None else c.take(some) for c in columns]
        arguments, mask = self._groups.arguments_of(columns, len(counting), window.strings)
        return (np.ascontiguousarray(keys[counting]), arguments, mask), places[counting]

    def _replay(
        self, start: int, window: AggregatedWindow, words: Words, places: np.ndarray
    ) -> None:
        """Take rows with these places, int64 (n,) that never fall, into a window."""
        assert self._aside is not None
        aside, at = self._aside[start], 0
        while aside and at < len(places) and aside[0].cut <= places[-1]:
            until = int(np.searchsorted(places, aside[0].cut))
            self._take_part(start, window, words, at, until)
            self._put_back(window, aside.popleft())
            at = until
        self._take_part(start, window, words, at, len(places))

    def _take_part(
        self, start: int, window: AggregatedWindow, words: Words, first: int, end: int
    ) -> None:
        """Take the rows [first, end); sums of groups that are set aside must not be refused."""
        assert self._aside is not None
        if first == end:
            return
        keys, arguments, mask = words
        if self._aside[start] and not self._fits(start, arguments[self._sum_rows, first:end]):
            self._set_to_nothing(start, window)
            if not self._fits(start, arguments[self._sum_rows, first:end]):
                if end - first > 1:
                    middle = (first + end) // 2
                    self._take_part(start, window, words, first, middle)
                    self._take_part(start, window, words, middle, end)
                    return
                self._summed[start] = _FITS  # One summand fits; nothing is added to it.
        some = slice(first, end)
        mask = np.ascontiguousarray(mask[:, some]) if mask.shape[1] else mask
        self._run(start, window, keys[some], np.ascontiguousarray(arguments[:, some]), mask)

    def _fits(self, start: int, summands: np.ndarray) -> bool:
        """Whether any sums of these, (m, n), and of those before fit; if so, they count now."""
        if not summands.size:
            return True
        largest = max(int(summands.max()), -int(summands.min())) + 1
        summed = self._summed[start] + largest * summands.shape[1]
        if summed > _FITS:
            return False
        self._summed[start] = summed
        return True

    def check_invariants(self) -> None:
        """Raise `InvariantViolation` if windows and their segments disagree."""
        super().check_invariants()
        if self._count != sum(written.count for written in self._written.values()):
            raise InvariantViolation(f"{self.name}: there are not {self._count} footprints")
        for start, window in self._directory.states():
            written, count = self._written.get(start, _NOTHING_WRITTEN), len(window.groups)
            if self._aside is not None and written.held <= count:
                continue
            segments = -(-written.held // self._segment)
            lengths = {len(written.generations), len(written.binding), len(written.prints)}
            if lengths != {segments} or written.held > count:
                raise InvariantViolation(f"{self.name}: segments of {start} hold more than it does")
            has_tail = written.tail != NONE
            is_said = has_tail or start in self._touched  # or will be
            if has_tail > (count > written.held) or is_said < (count > written.held):
                raise InvariantViolation(f"{self.name}: {start} has a tail without need, or none")


_NOTHING_WRITTEN: Final = WrittenSegments()
