"""Aggregates over windows that every key has for itself; see window_kinds.py. [HA §3.2]

Convergent-capable or deterministic, as the alignment of the windows is; with a timeout arbitrary.

State, all in pages: the keys with their words; and a T-tree of the open windows, each with the
times of its tuples, the words of its key and its accumulators. A pass takes the accumulators of
the windows that its rows enter into a map of its own, where one compiled pass updates them.

A count window is put out when its last tuple comes, with that tuple's time and place in the order;
one that the input's end leaves incomplete is never put out. A window of time is put out when the
boundary has reached its end, with tuple time end - 1; in the order (end, first arrival of the key).

With a timeout a window is also put out when none of its tuples has come for so long in processing
time. Nothing is lost by that: tuples that come later open a window of time again, and begin a new
count of the key; at the input's end what is left is put out too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from holdfast.core.errors import InvariantViolation
from holdfast.core.model.ids import BEGINNING_US, END_US, NO_ID
from holdfast.core.model.schema import column_of
from holdfast.core.operators.accumulators import (
    WINDOW_FIELDS,
    WINDOW_TIME,
    Accumulators,
    Aggregate,
    AggregateFunction,
)
from holdfast.core.operators.base import (
    AT_CLOSE,
    NOTHING,
    ArbitraryOperator,
    Evaluator,
    Operator,
    OperatorClass,
    Output,
    Owns,
    Rows,
    has_rows,
)
from holdfast.core.operators.causes import Causes
from holdfast.core.operators.window_kinds import Entered, WindowKind
from holdfast.core.state.ordered_map import OrderedMap, time_bound
from holdfast.core.state.page_manager import PageManager
from holdfast.core.state.raw_page import RawPage
from holdfast.core.state.recycled_strings import RecycledStrings
from holdfast.core.state.string_pages import StringPages, moved
from holdfast.core.state.total_pages import total_pages
from holdfast.core.state.unordered_map import UnorderedMap

EARLIEST, LATEST, TOUCHED, BEGUN, KEY_AT = range(5)
"""Words of a window: times of its tuples, what an operator keeps of its newest one beside (the
processing time, the generation of the newest footprint), when it began; then key words."""
_ENTRIES_MAX: Final = 1 << 18
"""Most pairs of row and window that are worked on at once."""
_NOT_WANTED: Final = 0
Parts = list[tuple[np.ndarray, np.ndarray, np.ndarray]]
"""Windows that are put out: the windows (u, 2), their words (u, w), order and tuple time (u, 2)."""


class KeyedWindows(Operator):
    """Aggregates per key and window."""

    operator_class = OperatorClass.DETERMINISTIC

    def __init__(
        self,
        name: str,
        schema: pa.Schema,
        keys: Sequence[str],
        aggregates: Sequence[Aggregate | tuple[AggregateFunction, Evaluator | None, str]],
        *,
        windows: WindowKind,
        manager: PageManager | None = None,
    ) -> None:
        """Aggregate rows of `schema`.

        Args:
            name: Of the operator.
            schema: Of the input.
            keys: Key columns, maybe none; nulls are a key, -0.0 = 0.0 and NaN = NaN.
            aggregates: Function (count, sum, min, max, avg), argument, output name.
            windows: Which windows there are.
            manager: Where the state lives; an own one if None.

        Raises:
            LocalProtocolError: As `Accumulators`, or a tuple were in too many windows.
        """
        self.name = name
        windows.require_sane(name)
        self._kind = windows
        self._manager = manager if manager is not None else PageManager()
        self._groups = Accumulators(name, schema, keys, aggregates)
        self._values_at = KEY_AT + self._groups.key_words
        self._keys = UnorderedMap(self._manager, self._groups.key_words, 2)
        self._key_strings = StringPages(self._manager) if self._groups.key_has_text else None
        self._windows = OrderedMap(self._manager, 2, self._values_at + self._groups.value_words)
        self._strings = RecycledStrings(self._manager) if self._groups.value_has_text else None
        self._causes = Causes(self._manager, is_forgetful=windows.is_absolute)
        self._taken = self._newest_begun() + 1  # rows; orders windows by when they began
        self._created_us = 0
        if windows.is_absolute:
            self.operator_class = OperatorClass.CONVERGENT_CAPABLE
        self.output_schema = pa.schema([*WINDOW_FIELDS, *self._groups.fields])

    def process(self, inputs: Sequence[Rows | None], low: np.ndarray, boundary_us: int) -> Output:
        """Put the rows into windows; put out those that are full or closed.

        Raises:
            ArithmeticOverflow: A sum does not fit its type.
            StateLimitExceeded: The pages are used up.
        """
        (rows,) = inputs
        parts: Parts = []
        if rows is not None and has_rows(rows):
            self._causes.note(rows.time_us, low)
            self._created_us = max(self._created_us, rows.created_us)
            self._take_rows(rows, parts)
        self._close(boundary_us, parts)
        cause = self._causes.oldest()
        self._forget()
        if not parts or cause is None:
            return NOTHING
        windows, records, places = (np.concatenate(part) for part in zip(*parts, strict=True))
        batch = self._batch(windows, records)
        self._renew()
        time_us, order = np.ascontiguousarray(places[:, 1]), np.ascontiguousarray(places[:, 0])
        return Output((Rows(batch, time_us, order, self._created_us),), cause)

    def oldest_needed(self) -> np.ndarray | None:
        """The oldest tuple of an open window; where the alignment is by the first, that of all."""
        return self._causes.oldest()

    def adopt(self, others: Sequence[Operator], owns: Owns, streams: int) -> None:
        """Keys are numbered anew, and windows go, in the order of the instances that held them."""
        for other in others:
            assert isinstance(other, KeyedWindows)
            numbers = self._adopt_keys(other, owns)
            if bool((numbers >= 0).any()):
                self._adopt_windows(other, numbers, np.full(streams, NO_ID, dtype=np.int64))
            self._taken += other._taken

    def _adopt_keys(self, other: KeyedWindows, owns: Owns) -> np.ndarray:
        """The new numbers of another instance's keys, by their old ones; -1: not this one's."""
        entries, groups = other._keys.entries(), self._groups
        keys = np.ascontiguousarray(entries[:, : groups.key_words])
        mine = groups.owned(owns, keys, other._key_strings)
        numbers = np.full(len(keys), -1, dtype=np.int64)
        first = len(self._keys)
        numbers[entries[mine, groups.key_words] - 1] = first + np.arange(int(mine.sum()))
        slots = self._keys.upsert_slots(self._moved_keys(keys[mine], other))
        known = entries[mine, groups.key_words :]
        known[:, 0] = first + 1 + np.arange(len(known))
        self._keys.write_values(slots, known)
        return numbers

    def _adopt_windows(self, other: KeyedWindows, numbers: np.ndarray, low: np.ndarray) -> None:
        """The windows of keys that have a new number."""
        entries, at = other._windows.entries(), self._kind.number_at
        entries = entries[numbers[entries[:, at]] >= 0]
        if len(entries) or not self._kind.is_absolute:
            # The checkpoint has them: no tuple is needed.
            newest = entries[:, 2 + LATEST] if len(entries) else np.zeros(1, dtype=np.int64)
            self._causes.note(newest, low)
        windows, records = np.ascontiguousarray(entries[:, :2]), entries[:, 2:]
        windows[:, at] = numbers[windows[:, at]]
        records[:, BEGUN] += self._taken
        keys = slice(KEY_AT, self._values_at)
        records[:, keys] = self._moved_keys(records[:, keys], other)
        if self._strings is not None and other._strings is not None:
            text_at = [self._values_at + word for word in self._groups.text_words]
            references = records[:, text_at]
            records[:, text_at] = moved(references, other._strings.pages, self._strings.pages)
        self._windows.put(windows, np.ascontiguousarray(records))

    def _moved_keys(self, keys: np.ndarray, other: KeyedWindows) -> np.ndarray:
        """Words of keys of another instance as they are here."""
        keys, at = np.array(keys, order="C"), self._groups.key_text_words
        if self._key_strings is not None and other._key_strings is not None:
            keys[:, at] = moved(keys[:, at], other._key_strings, self._key_strings)
        return keys

    # -- taking rows in ---------------------------------------------------------------------

    def _take_rows(self, rows: Rows, parts: Parts) -> None:
        """Some rows at a time, so that their windows fit in memory."""
        columns = self._groups.evaluate(rows.batch)
        step = max(1, _ENTRIES_MAX // self._kind.copies)
        for begin in range(0, len(rows.time_us), step):
            some = slice(begin, begin + step)
            cut = [None if c is None else c.slice(begin, step) for c in columns]
            batch = rows.batch.slice(begin, step)
            self._take_some(batch, cut, rows.time_us[some], rows.order[some], parts)

    def _take_some(
        self,
        batch: pa.RecordBatch,
        columns: Sequence[pa.Array | None],
        time_us: np.ndarray,
        order: np.ndarray,
        parts: Parts,
    ) -> None:
        keys = self._groups.keys_of(batch, self._key_strings)
        entered = self._enter(keys, time_us)
        if not len(entered.rows):
            return
        windows, first, place, last = _distinct(entered)
        found, records = self._windows.get(windows)
        at = self._values_at
        strings = None if self._strings is None else self._strings.pages
        arguments, mask = self._groups.arguments_of(columns, batch.num_rows, strings)
        values = self._updated(entered, windows, records[:, at:], arguments, mask)
        members = time_us[entered.rows]
        records[~found, EARLIEST] = END_US
        records[~found, LATEST] = BEGINNING_US
        records[~found, BEGUN] = self._taken + entered.rows[first[~found]]
        self._taken += batch.num_rows
        np.minimum.at(records[:, EARLIEST], place, members)
        np.maximum.at(records[:, LATEST], place, members)
        records[:, KEY_AT:at] = keys[entered.rows[first]]
        records[:, at:] = values
        newest = entered.rows[last]
        is_full = self._kind.is_complete(windows, entered.words[newest])
        self._touch(windows, records, found, is_full)
        self._windows.remove(windows[found & is_full])
        self._windows.put(windows[~is_full], records[~is_full])
        full = np.flatnonzero(is_full)
        full = full[np.argsort(newest[full], kind="stable")]
        if len(full):
            places = np.stack([order[newest[full]], time_us[newest[full]]], axis=1)
            parts.append((windows[full], records[full], places))

    def _enter(self, keys: np.ndarray, time_us: np.ndarray) -> Entered:
        """Number the keys and put the rows into windows."""
        slots, known, is_first = self._numbered(keys)
        entered = self._kind.enter(known[:, 0] - 1, known[:, 1], is_first, time_us)
        if self._kind.closes_by_count or bool(is_first.any()):
            known[:, 1] = entered.words
            self._keys.write_values(slots, known)
        return entered

    def _numbered(self, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Where keys are, what is known of them, int64 (n, 2) with numbers + 1, and which are new.

        What is known of new ones, their numbers included, is for the caller to write.
        """
        slots = self._keys.upsert_slots(keys)
        known = self._keys.read_values(slots)  # number + 1, word
        is_first = known[:, 0] == 0
        if bool(is_first.any()):
            new = np.unique(slots[is_first])  # In order of insertion, as addresses rise.
            numbers = len(self._keys) - len(new) + np.searchsorted(new, slots[is_first])
            known[is_first, 0] = numbers + 1
        return slots, known, is_first

    def _updated(
        self,
        entered: Entered,
        windows: np.ndarray,
        before: np.ndarray,
        arguments: np.ndarray,
        mask: np.ndarray,
    ) -> np.ndarray:
        """The accumulators of these windows after the rows. int64 (u, v)."""
        groups = UnorderedMap(self._manager, 2, self._groups.value_words)
        groups.write_values(groups.upsert_slots(windows), before)
        self._groups.update(
            self._manager,
            groups,
            None if self._strings is None else self._strings.pages,
            entered.windows,
            np.ascontiguousarray(arguments[:, entered.rows]),
            np.ascontiguousarray(mask[:, entered.rows]) if mask.shape[1] else mask,
            np.empty((_NOT_WANTED, self._groups.value_words), dtype=np.int64),
        )
        values = groups.entries()[:, 2:]
        groups.destroy()
        return values

    def _touch(
        self, windows: np.ndarray, records: np.ndarray, found: np.ndarray, is_full: np.ndarray
    ) -> None:
        """Rows have come for these windows."""

    # -- putting windows out ----------------------------------------------------------------

    def _close(self, boundary_us: int, parts: Parts) -> None:
        """Put out what the boundary closes."""
        entries = self._windows.pop_below(self._kind.closed_before(boundary_us))
        if not len(entries):
            return
        windows, records = entries[:, :2], entries[:, 2:]
        self._let_go(windows, records)
        self._put_out(windows, records, boundary_us, parts)

    def _put_out(
        self, windows: np.ndarray, records: np.ndarray, boundary_us: int, parts: Parts
    ) -> None:
        """In an order that windows which are gone have no part in: it must not depend on more than
        the operator says it needs.
        """
        places = self._at_close(windows, records, boundary_us)
        order = np.lexsort((records[:, BEGUN], places[:, 1]))
        parts.append((windows[order], records[order], places[order]))

    def _newest_begun(self) -> int:
        """When the newest of the windows began that a checkpoint has brought."""
        entries = self._windows.entries()
        return int(entries[:, 2 + BEGUN].max()) if len(entries) else -1

    def _let_go(self, windows: np.ndarray, records: np.ndarray) -> None:
        """These windows are no longer open."""

    def _at_close(self, windows: np.ndarray, records: np.ndarray, boundary_us: int) -> np.ndarray:
        """Order and tuple time of windows that no row of theirs has closed. int64 (u, 2)."""
        del boundary_us
        _, ends = self._kind.span(windows, records[:, EARLIEST], records[:, LATEST])
        return np.stack([np.full(len(windows), AT_CLOSE, dtype=np.int64), ends - 1], axis=1)

    def _forget(self) -> None:
        """Let go of causes."""
        if not self._kind.is_absolute:
            return  # The first tuple is needed for ever.
        self._causes.forget_seldom(
            len(self._windows), lambda: int(self._windows.entries()[:, 2 + EARLIEST].min())
        )

    def _renew(self) -> None:
        """Forget the strings of windows that have gone, when it is worth it."""
        if self._strings is None or not self._strings.is_due:
            return
        entries = self._windows.entries()
        at = [2 + self._values_at + word for word in self._groups.text_words]
        entries[:, at] = self._strings.renew(entries[:, at])
        self._windows.put(entries[:, :2], entries[:, 2:])

    def _batch(self, windows: np.ndarray, records: np.ndarray) -> pa.RecordBatch:
        starts, ends = self._kind.span(windows, records[:, EARLIEST], records[:, LATEST])
        keys = np.ascontiguousarray(records[:, KEY_AT : self._values_at])
        values = np.ascontiguousarray(records[:, self._values_at :])
        columns = [column_of(starts, None, WINDOW_TIME), column_of(ends, None, WINDOW_TIME)]
        columns += self._groups.key_columns(keys, self._key_strings)
        strings = None if self._strings is None else self._strings.pages
        columns += self._groups.result_columns(values, strings)
        return pa.RecordBatch.from_arrays(columns, schema=self.output_schema)

    # -- looking ----------------------------------------------------------------------------

    def check_invariants(self) -> None:
        """Raise `InvariantViolation` if a structure makes no sense, or a window's times do."""
        self._keys.check_invariants()
        self._windows.check_invariants()
        self._causes.check_invariants()
        records = self._windows.entries()[:, 2:]
        if bool((records[:, EARLIEST] > records[:, LATEST]).any()):
            raise InvariantViolation(f"{self.name}: a window without tuples")

    def state_bytes(self) -> int:
        """Bytes of pages held."""
        own = self._keys, self._windows, self._causes
        pages = total_pages(*own, self._key_strings, self._strings)
        return pages * self._manager.page_bytes

    def state_rows(self) -> pa.Table:
        """The open windows with their results so far."""
        entries = self._windows.entries()
        return pa.Table.from_batches([self._batch(entries[:, :2], entries[:, 2:])])


class KeyedWindowsWithTimeout(KeyedWindows, ArbitraryOperator):
    """The same, closing windows also when no tuple has come for them for some time. Arbitrary.

    In pages beside the others: the windows by the processing time of their newest tuple; and the
    clock and the boundary as they were last.
    """

    def __init__(
        self,
        name: str,
        schema: pa.Schema,
        keys: Sequence[str],
        aggregates: Sequence[Aggregate | tuple[AggregateFunction, Evaluator | None, str]],
        *,
        windows: WindowKind,
        timeout_us: int,
        manager: PageManager | None = None,
    ) -> None:
        """As `KeyedWindows`; `timeout_us` of processing time without a tuple close a window."""
        super().__init__(name, schema, keys, aggregates, windows=windows, manager=manager)
        self.operator_class = OperatorClass.ARBITRARY
        self._timeout_us = timeout_us
        self._idle = OrderedMap(self._manager, 3, 0)
        self._now = RawPage(self._manager)

    def decide(self, clock_us: int, seed: int) -> None:
        """The clock of the coming pass."""
        del seed
        _, boundary_us = self._last()
        self._now.write(np.array([clock_us, boundary_us], dtype=np.int64))

    def wake_us(self) -> int | None:
        """When the window that has waited longest has waited long enough."""
        longest = self._idle.first()
        return None if longest is None else int(longest[0]) + self._timeout_us

    def adopt(self, others: Sequence[Operator], owns: Owns, streams: int) -> None:
        """Not yet: the clock is the instance's own."""
        Operator.adopt(self, others, owns, streams)

    def _last(self) -> tuple[int, int]:
        """Clock and boundary."""
        words = self._now.read().tolist()
        return (words[0], words[1]) if words else (BEGINNING_US, BEGINNING_US)

    def _touch(
        self, windows: np.ndarray, records: np.ndarray, found: np.ndarray, is_full: np.ndarray
    ) -> None:
        clock_us, _ = self._last()
        self._let_go(windows[found], records[found])
        records[:, TOUCHED] = clock_us
        kept = _idle_keys(windows[~is_full], records[~is_full])
        self._idle.put(kept, np.empty((len(kept), 0), dtype=np.int64))

    def _let_go(self, windows: np.ndarray, records: np.ndarray) -> None:
        self._idle.remove(_idle_keys(windows, records))

    def _close(self, boundary_us: int, parts: Parts) -> None:
        """What the boundary closes, and what has waited for too long."""
        clock_us, before_us = self._last()
        if boundary_us != END_US and boundary_us > before_us:
            self._now.write(np.array([clock_us, boundary_us], dtype=np.int64))
        super()._close(boundary_us, parts)
        until_us = END_US
        if boundary_us != END_US:
            until_us = max(clock_us, BEGINNING_US + self._timeout_us) - self._timeout_us + 1
        idle = self._idle.pop_below(time_bound(until_us, self._idle.key_words))
        if not len(idle):
            return
        windows = np.ascontiguousarray(idle[:, 1:])
        _, records = self._windows.get(windows)
        self._windows.remove(windows)
        if self._kind.closes_by_count:
            self._begin_again(records)
        self._put_out(windows, records, boundary_us, parts)

    def _begin_again(self, records: np.ndarray) -> None:
        """The keys of these windows count from zero."""
        keys = np.ascontiguousarray(records[:, KEY_AT : self._values_at])
        slots = self._keys.lookup_slots(keys)
        known = self._keys.read_values(slots)
        known[:, 1] = 0
        self._keys.write_values(slots, known)

    def _at_close(self, windows: np.ndarray, records: np.ndarray, boundary_us: int) -> np.ndarray:
        """Not older than the boundary, which may have passed the tuples of a count window."""
        places = super()._at_close(windows, records, boundary_us)
        if self._kind.closes_by_count:
            _, before_us = self._last()
            places[:, 1] = np.maximum(records[:, LATEST], before_us)
        return places

    def check_invariants(self) -> None:
        """Raise `InvariantViolation` if windows and waiting times disagree."""
        super().check_invariants()
        self._idle.check_invariants()
        entries = self._windows.entries()
        if not np.array_equal(
            np.sort(_idle_keys(entries[:, :2], entries[:, 2:]), axis=0),
            np.sort(self._idle.entries(), axis=0),
        ):
            raise InvariantViolation(f"{self.name}: windows and waiting times disagree")

    def state_bytes(self) -> int:
        """Bytes of pages held."""
        pages = self._idle.page_count + self._now.page_count
        return super().state_bytes() + pages * self._manager.page_bytes


def _idle_keys(windows: np.ndarray, records: np.ndarray) -> np.ndarray:
    """Processing time of the newest tuple, then the window. int64 (u, 3)."""
    return np.concatenate([records[:, TOUCHED : TOUCHED + 1], windows], axis=1)


def _distinct(entered: Entered) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The windows that rows enter, each once, in order of their first rows.

    Returns:
        The windows (u, 2); where each occurs first; which of them each occurrence is; where each
        occurs last.
    """
    permutation = np.lexsort((entered.windows[:, 1], entered.windows[:, 0]))
    ordered = entered.windows[permutation]
    is_new = np.ones(len(ordered), dtype=np.bool_)
    is_new[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    begins = np.flatnonzero(is_new)
    first, last = permutation[begins], permutation[np.append(begins[1:], len(ordered)) - 1]
    by_arrival = np.argsort(first, kind="stable")
    number = np.empty(len(begins), dtype=np.int64)
    number[by_arrival] = np.arange(len(begins))
    place = np.empty(len(ordered), dtype=np.int64)
    place[permutation] = np.repeat(number, np.diff(np.append(begins, len(ordered))))
    first, last = first[by_arrival], last[by_arrival]
    return entered.windows[first], first, place, last
