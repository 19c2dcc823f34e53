"""A user's class that keeps states and timers per key. Deterministic, or arbitrary. [HA §3.2]

Its side is a `KeyedFunction`, which is called for one row at a time: how rows are cut into passes
depends on the network. Three kinds, by what its timers are of:

| time       | rows are taken                              | timers                      |
| ---------- | ------------------------------------------- | --------------------------- |
| none       | as they come                                | none                        |
| event      | by (tuple time, arrival), below the boundary | of tuple time               |
| processing | as they come                                | of the clock; arbitrary     |

**Event time.** A row has its turn when the boundary has passed its time, so that the order of rows
and timers is one of tuple time, and no crash changes it. The *watermark* at a row is the last
millisecond before its time, and at a timer the timer's own. A timer has its turn behind all rows up
to its time, and before all later ones. If boundaries alone let a timer that a timer has set have
its turn, a class that always sets the next one would never come to an end of its input; and where
it stops would depend on how far boundaries came one by one. So such a timer waits for a row of its
time or a later one:

1. Before a row of time t come the timers before t that rows have set, and those of timers up to the
   newest row before; each by (time, key).
2. The row's time is now the newest. Timers of timers before t have their turns.
3. The row.
4. The boundary b does as in 1, with b for t.

**Departure from Spark**, which gives a class all rows of a key in a micro-batch at once, in no
order, and the watermark of the batch before: of these runs ours is that with a row in each batch.

State, all in pages: see `keyed_states.py`; rows that wait, by (time, number); the newest row's
time, the watermark, and the number of the next row.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol

import numpy as np
import pyarrow as pa

from holdfast.core.errors import LocalProtocolError
from holdfast.core.model.ids import BEGINNING_US, END_US, NO_ID
from holdfast.core.model.schema import RecordPacking
from holdfast.core.operators.bad_rows import BadRowError
from holdfast.core.operators.base import (
    AT_CLOSE,
    NOTHING,
    Operator,
    OperatorClass,
    Output,
    Owns,
    Rows,
    has_rows,
)
from holdfast.core.operators.by_clock import IDLE_US, ByClock
from holdfast.core.operators.causes import Causes
from holdfast.core.operators.keyed_states import OF_TIMER, KeyedStates, Scope, Timer
from holdfast.core.state.ordered_map import OrderedMap, time_bound
from holdfast.core.state.page_manager import PageManager
from holdfast.core.state.raw_page import RawPage
from holdfast.core.state.recycled_strings import RecycledStrings
from holdfast.core.state.string_pages import moved
from holdfast.core.state.total_pages import total_pages

Time = Literal["none", "event", "processing"]
_MS_US: Final = 1000
_BEGINNING_MS: Final = -(2**53)
"""A watermark before any row."""
_CURE: Final = "mend the class, or leave such rows out by a filter before it"


class KeyedFunction(Protocol):
    """The user's class, opened for one operator. Rows and results are objects of its side."""

    @property
    def schema(self) -> pa.Schema:
        """Of its results."""
        ...

    @property
    def states(self) -> tuple[str, ...]:
        """Names of the states that each key may have."""
        ...

    @property
    def time(self) -> Time:
        """What its timers are of."""
        ...

    def rows(self, batch: pa.RecordBatch) -> list[Any]:
        """The rows of a batch as it takes them."""
        ...

    def scope(self, key: tuple[Any, ...], stored: list[bytes | None], timers: set[Timer]) -> Scope:
        """What a key has, to work on."""
        ...

    def take(self, scope: Scope, row: Any, now_ms: int, watermark_ms: int) -> list[Any]:
        """The results for a row. Raises `ArithmeticError` if there are none."""
        ...

    def expire(self, scope: Scope, timer: Timer, now_ms: int, watermark_ms: int) -> list[Any]:
        """The results for a timer, which it also removes. Raises `ArithmeticError`."""
        ...

    def batch(self, results: list[Any]) -> pa.RecordBatch:
        """Results, of the schema. Raises `ArithmeticError` if one is not."""
        ...


@dataclass(slots=True)
class _Results:
    """Results of a pass, with what caused them."""

    rows: list[Any] = field(default_factory=list)
    time_us: list[int] = field(default_factory=list)
    order: list[int] = field(default_factory=list)

    def add(self, rows: list[Any], time_us: int, order: int) -> None:
        self.rows += rows
        self.time_us += [time_us] * len(rows)
        self.order += [order] * len(rows)


@dataclass(slots=True)
class _Opened:
    """The keys of a pass.

    Attributes:
        keys: int64 (n, key words), each once.
        ranks: A number of each that no process gives another one.
        scopes: What each has.
        before: The timers that each had.
        of_rows: Per row the number of its key.
        expired: Timers that may have their turn: time, kind, number of the key.
    """

    keys: np.ndarray
    ranks: list[int]
    scopes: list[Scope]
    before: list[set[Timer]]
    of_rows: list[int]
    expired: list[tuple[int, int, int]]


class Process(Operator):
    """Calls a class for rows as they come, or for rows and timers in order of tuple time."""

    operator_class = OperatorClass.DETERMINISTIC

    def __init__(
        self,
        name: str,
        schema: pa.Schema,
        keys: Sequence[str],
        function: KeyedFunction,
        *,
        manager: PageManager | None = None,
    ) -> None:
        """Run the class on rows of `schema`.

        Args:
            name: Of the operator.
            schema: Of the input.
            keys: Key columns; nulls are a key, -0.0 = 0.0 and NaN = NaN.
            function: The class.
            manager: Where the state lives; an own one if None.

        Raises:
            LocalProtocolError: There is no key, or it cannot be stored.
        """
        self._columns = [schema.get_field_index(key) for key in keys]
        if min(self._columns, default=-1) < 0:
            raise LocalProtocolError(f"{name}: keys {list(keys)}; there are {schema.names}")
        self.name = name
        self.output_schema = function.schema
        self._schema = schema
        self._function = function
        self._manager = manager if manager is not None else PageManager()
        self._key_fields = [schema.field(column) for column in self._columns]
        has_timers = function.time != "none"
        self._states = KeyedStates(
            self._manager,
            [each.type for each in self._key_fields],
            len(function.states),
            has_timers=has_timers,
        )
        self._causes = Causes(self._manager, is_forgetful=False)
        self._marks = RawPage(self._manager)  # the next number, the newest time, the watermark
        self._packing = RecordPacking(schema.types)
        is_held = function.time == "event"
        self._waiting = OrderedMap(self._manager, 2, self._packing.width) if is_held else None
        self._strings = RecycledStrings(self._manager) if is_held else None
        self._created_us = 0

    def process(self, inputs: Sequence[Rows | None], low: np.ndarray, boundary_us: int) -> Output:
        """Call the class for what has its turn.

        Raises:
            BadRowError: It has no result for a row or a timer.
            StateLimitExceeded: The pages are used up.
        """
        (rows,) = inputs
        if rows is not None and has_rows(rows):
            self._causes.note(rows.time_us, low)
            self._created_us = max(self._created_us, rows.created_us)
        results = _Results()
        if self._waiting is None:
            if rows is not None and has_rows(rows):
                opened = self._open(rows.batch, self._states.expired(_BEGINNING_MS))
                self._take_all(rows, opened, results, -1)
                self._close(opened)
            return self._output(results)
        self._wait(rows)
        due = self._waiting.pop_below(time_bound(boundary_us, 2))
        before_ms = END_US if boundary_us == END_US else -(-boundary_us // _MS_US)
        expired = self._states.expired(before_ms)
        if len(due) or len(expired):
            batch = self._batch(due)
            opened = self._open(batch, expired)
            self._in_turn(batch, due[:, 0].tolist(), boundary_us, opened, results)
            self._close(opened)
        self._recycle()
        return self._output(results)

    def closes_us(self, boundary_us: int) -> int:
        """Any, if there may be timers or rows wait; else results come with rows."""
        return BEGINNING_US if self._waiting is None else boundary_us

    def oldest_needed(self) -> np.ndarray | None:
        """The first tuple ever seen per stream."""
        return self._causes.oldest()

    def adopt(self, others: Sequence[Operator], owns: Owns, streams: int) -> None:
        """Keys go to the instances that have them now."""
        first, newest = 0, np.array([BEGINNING_US, _BEGINNING_MS], dtype=np.int64)
        for other in others:
            assert isinstance(other, Process)
            self._states.adopt(other._states, owns)
            marks = other._read_marks()
            newest = np.maximum(newest, marks[1:])
            self._adopt_waiting(other, owns, first)
            first += int(marks[0])
        marks = np.concatenate([np.array([first], dtype=np.int64), newest])
        self._marks.write(marks)
        self._causes.note(np.zeros(1, np.int64), np.full(streams, NO_ID, dtype=np.int64))

    def check_invariants(self) -> None:
        """Raise `InvariantViolation` if the state makes no sense."""
        self._states.check_invariants()
        self._causes.check_invariants()
        if self._waiting is not None:
            self._waiting.check_invariants()

    def state_bytes(self) -> int:
        """Bytes of pages held."""
        own = self._states, self._causes, self._marks
        pages = total_pages(*own, self._waiting, self._strings)
        return pages * self._manager.page_bytes

    def state_rows(self) -> pa.Table:
        """Each state of each key: the key's columns, `state`, `value` as JSON."""
        found = self._states.rows(self._function.states)
        columns: list[pa.Array] = []
        for at, key in enumerate(self._key_fields):
            parts = [each[0][at] for each in found]
            columns.append(pa.concat_arrays(parts) if parts else pa.array([], key.type))
        columns.append(pa.array([name for _, name, _ in found], pa.string()))
        columns.append(pa.array([blob.decode() for _, _, blob in found], pa.string()))
        names = [*(key.name for key in self._key_fields), "state", "value"]
        return pa.Table.from_arrays(columns, names=names)

    # -- one pass --------------------------------------------------------------------------

    def _take_all(self, rows: Rows, opened: _Opened, results: _Results, now_ms: int) -> None:
        """Call the class for rows in their order."""
        given = self._function.rows(rows.batch)
        times, orders = rows.time_us.tolist(), rows.order.tolist()
        for at, row in enumerate(given):
            scope = opened.scopes[opened.of_rows[at]]
            found = self._called(scope, row, times[at], now_ms, -1)
            if found:
                results.add(found, times[at], orders[at])

    def _in_turn(
        self,
        batch: pa.RecordBatch,
        times: list[int],
        boundary_us: int,
        opened: _Opened,
        results: _Results,
    ) -> None:
        """Call the class for rows and timers in order of time; see the module."""
        number, newest_us, watermark_ms = self._read_marks().tolist()
        turns = _Turns(self._function, opened, results, newest_us, watermark_ms, self.name)
        for at, row in enumerate(self._function.rows(batch)):
            time_us = times[at]
            turns.expire(time_us, 0)
            if time_us > turns.newest_us:
                turns.newest_us = time_us
                turns.expire(time_us, time_us)
            turns.watermark_ms = max(turns.watermark_ms, (time_us - 1) // _MS_US)
            scope = opened.scopes[opened.of_rows[at]]
            known = scope.timers.copy()
            found = self._called(scope, row, time_us, -1, turns.watermark_ms)
            turns.register(opened.of_rows[at], scope.timers - known)
            turns.at_us = max(turns.at_us, time_us)
            results.add(found, turns.at_us, AT_CLOSE)
        turns.expire(boundary_us, 0)
        self._marks.write(np.array([number, turns.newest_us, turns.watermark_ms], dtype=np.int64))

    def _called(
        self, scope: Scope, row: Any, time_us: int, now_ms: int, watermark_ms: int
    ) -> list[Any]:
        try:
            return self._function.take(scope, row, now_ms, watermark_ms)
        except ArithmeticError as error:
            raise BadRowError(
                f"{self.name}: {error}, at the tuple of time {np.datetime64(time_us, 'us')}Z with "
                f"{row}; {_CURE}"
            ) from error

    def _open(self, batch: pa.RecordBatch, expired: np.ndarray) -> _Opened:
        """All that the keys of rows and of timers have."""
        states = self._states
        columns = [batch.column(column) for column in self._columns]
        of_rows = states.pack(columns) if batch.num_rows else np.empty(
            (0, states.key_words), np.int64
        )  # fmt: skip
        numbers, keys = states.distinct(np.concatenate([of_rows, expired[:, 2:]]))
        stored, timers = states.load(keys)
        own = zip(*(column.to_pylist() for column in states.columns(keys)), strict=True)
        scopes = [
            self._function.scope(key, has, timers[at].copy())
            for at, (key, has) in enumerate(zip(own, stored, strict=True))
        ]
        of_timers = numbers[batch.num_rows :].tolist()
        turns = [
            (time_ms, kind, number)
            for (time_ms, kind), number in zip(expired[:, :2].tolist(), of_timers, strict=True)
        ]
        ranks, of = states.ranks(keys).tolist(), numbers[: batch.num_rows].tolist()
        return _Opened(keys, ranks, scopes, timers, of, turns)

    def _close(self, opened: _Opened) -> None:
        self._states.store(opened.keys, opened.scopes, opened.before)

    def _output(self, results: _Results) -> Output:
        cause = self._causes.oldest()
        if not results.rows or cause is None:
            return NOTHING
        try:
            batch = self._function.batch(results.rows)
        except ArithmeticError as error:
            raise BadRowError(f"{self.name}: {error}; {_CURE}") from error
        time_us = np.array(results.time_us, dtype=np.int64)
        order = np.array(results.order, dtype=np.int64)
        return Output((Rows(batch, time_us, order, self._created_us),), cause)

    # -- rows that wait --------------------------------------------------------------------

    def _adopt_waiting(self, other: Process, owns: Owns, first: int) -> None:
        """Take over rows that wait, numbered from `first` on: those of a key keep their order."""
        if self._waiting is None or other._waiting is None or not len(other._waiting):
            return
        entries = other._waiting.entries()
        columns = other._batch(entries).columns
        entries = entries[owns([columns[column] for column in self._columns])]
        at = [2 + word for word in self._packing.text_words]
        if at and self._strings is not None and other._strings is not None:
            entries[:, at] = moved(entries[:, at], other._strings.pages, self._strings.pages)
        entries[:, 1] += first
        self._waiting.put(entries[:, :2], entries[:, 2:])

    def _read_marks(self) -> np.ndarray:
        marks = self._marks.read()
        first = np.array([0, BEGINNING_US, _BEGINNING_MS], dtype=np.int64)
        return marks if len(marks) else first

    def _wait(self, rows: Rows | None) -> None:
        if rows is None or not has_rows(rows) or self._waiting is None:
            return
        count, marks = len(rows.time_us), self._read_marks()
        entries = np.empty((count, 2 + self._packing.width), dtype=np.int64)
        entries[:, 0] = rows.time_us
        entries[:, 1] = np.arange(marks[0], marks[0] + count)
        strings = None if self._strings is None else self._strings.pages
        self._packing.pack(rows.batch.columns, strings, entries[:, 2:])
        self._waiting.put(entries[:, :2], entries[:, 2:])
        marks[0] += count
        self._marks.write(marks)

    def _batch(self, entries: np.ndarray) -> pa.RecordBatch:
        words = np.ascontiguousarray(entries[:, 2:])
        strings = None if self._strings is None else self._strings.pages
        columns = self._packing.unpack(words, strings)
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _recycle(self) -> None:
        """Let go of the strings of rows that wait no more."""
        at = [2 + word for word in self._packing.text_words]
        if self._strings is None or self._waiting is None or not at or not self._strings.is_due:
            return
        entries = self._waiting.entries()
        entries[:, at] = self._strings.renew(entries[:, at])
        self._waiting.pop_first(len(self._waiting))
        self._waiting.put(entries[:, :2], entries[:, 2:])


class _Turns:
    """The turns of timers between rows, of tuple time.

    Attributes:
        newest_us: Of the rows so far.
        watermark_ms: Of the last turn.
        at_us: The time of the last turn's results.
    """

    def __init__(
        self,
        function: KeyedFunction,
        opened: _Opened,
        results: _Results,
        newest_us: int,
        watermark_ms: int,
        name: str,
    ) -> None:
        """Begin with the timers that may have their turn."""
        self._function = function
        self._opened = opened
        self._results = results
        self._name = name
        self.newest_us = newest_us
        self.watermark_ms = watermark_ms
        self.at_us = BEGINNING_US
        self._heap: list[tuple[int, int, int, int]] = []
        self._held: list[tuple[int, int, int, int]] = []  # timers of timers beyond the newest row
        for time_ms, kind, number in opened.expired:
            self._push(time_ms, kind, number)

    def register(self, number: int, timers: set[Timer]) -> None:
        """A key has timers that it had not."""
        for time_ms, kind in sorted(timers):
            self._push(time_ms, kind, number)

    def expire(self, before_us: int, at_us: int) -> None:
        """The turns of the timers before a time; their results are not older than `at_us`."""
        while self._held and self._held[0][0] * _MS_US <= self.newest_us:
            heapq.heappush(self._heap, heapq.heappop(self._held))
        while self._heap and (self._heap[0][0] * _MS_US < before_us or before_us == END_US):
            time_ms, _, kind, number = heapq.heappop(self._heap)
            scope = self._opened.scopes[number]
            if (time_ms, kind) not in scope.timers:
                continue  # It was deleted.
            self.watermark_ms = max(self.watermark_ms, time_ms)
            self.at_us = max(self.at_us, time_ms * _MS_US, at_us)
            known = scope.timers.copy()
            timer = time_ms, kind
            results = expired(self._name, self._function, scope, timer, -1, self.watermark_ms)
            self._results.add(results, self.at_us, AT_CLOSE)
            self.register(number, scope.timers - known)

    def _push(self, time_ms: int, kind: int, number: int) -> None:
        entry = time_ms, self._opened.ranks[number], kind, number
        is_held = kind == OF_TIMER and time_ms * _MS_US > self.newest_us
        heapq.heappush(self._held if is_held else self._heap, entry)


class ProcessByClock(ByClock, Process):
    """Calls a class for rows as they come, and for timers when the clock has come to them.

    Results have the times of the clock, as `ProcessingTimeAggregate` explains. At the input's end
    the timers that are left have no turn.
    """

    def __init__(
        self,
        name: str,
        schema: pa.Schema,
        keys: Sequence[str],
        function: KeyedFunction,
        *,
        manager: PageManager | None = None,
    ) -> None:
        """As `Process`."""
        super().__init__(name, schema, keys, function, manager=manager)
        self._clock = RawPage(self._manager)

    def wake_us(self) -> int | None:
        """When the first timer is due, or the clock is to be promised; at first at once."""
        clock_us, first_ms = self._clock_us, self._states.first_ms()
        if clock_us == BEGINNING_US:
            return clock_us
        idle_us = clock_us + IDLE_US
        return idle_us if first_ms is None else min(idle_us, first_ms * _MS_US)

    def process(self, inputs: Sequence[Rows | None], low: np.ndarray, boundary_us: int) -> Output:
        """Call the class for rows, and then for timers.

        Raises:
            BadRowError: It has no result for a row or a timer.
            StateLimitExceeded: The pages are used up.
        """
        (rows,) = inputs
        now_us = self._clock_us
        now_ms = now_us // _MS_US
        results = _Results()
        is_end = boundary_us == END_US
        due = self._states.expired(_BEGINNING_MS if is_end else now_ms + 1)
        if rows is not None and has_rows(rows):
            self._causes.note(np.full(1, now_us), low)
            self._created_us = max(self._created_us, rows.created_us)
            batch = rows.batch
        else:
            rows, batch = None, pa.RecordBatch.from_pylist([], schema=self._schema)
        if rows is None and not len(due):
            return NOTHING
        opened = self._open(batch, due)
        if rows is not None:
            self._take_all(rows, opened, results, now_ms)
        for time_ms, kind, number in sorted(
            opened.expired, key=lambda e: (e[0], opened.ranks[e[2]], e[1])
        ):
            scope = opened.scopes[number]
            if (time_ms, kind) in scope.timers:
                timer = time_ms, kind
                found = expired(self.name, self._function, scope, timer, now_ms, -1)
                results.add(found, now_us, AT_CLOSE)
        self._close(opened)
        results.time_us = [now_us] * len(results.rows)
        return self._output(results)

    def closes_us(self, boundary_us: int) -> int:
        """Any: its timers are of the clock."""
        return boundary_us


def expired(
    name: str, function: KeyedFunction, scope: Scope, timer: Timer, now_ms: int, watermark_ms: int
) -> list[Any]:
    """The results for a timer. Raises `BadRowError` if the class has none."""
    try:
        return function.expire(scope, timer, now_ms, watermark_ms)
    except ArithmeticError as error:
        raise BadRowError(
            f"{name}: {error}, at the timer of {np.datetime64(timer[0], 'ms')}Z; {_CURE}"
        ) from error
