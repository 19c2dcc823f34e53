"""Aggregates over windows of tuple time, per group. Convergent-capable. [HA §3.2]

State: the directory of open windows, and per window a map group -> accumulators and its strings,
all in pages. One compiled pass per batch and window finds each row's group and updates it. When
the boundary reaches a window's end the window is emitted and its page sets are destroyed; with
`emit="changes"` every input row gives a row instead, and closing only frees the pages.

Output order: (window end, window start, first arrival of the group); with changes, (input row,
window start). Results follow Spark's ANSI mode.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import pyarrow as pa

from holdfast.core.errors import LocalProtocolError
from holdfast.core.model.schema import RecordPacking, column_of
from holdfast.core.model.stable_hash import (
    fixed_words,
    is_text,
    normal_float_words,
    validity,
)
from holdfast.core.operators.base import (
    AT_CLOSE,
    NOTHING,
    ArithmeticOverflow,
    Evaluator,
    Operator,
    OperatorClass,
    Output,
    Rows,
    has_rows,
)
from holdfast.core.operators.windows import ClosedWindow, WindowDirectory, WindowSpec
from holdfast.core.state import aggregate_kernels as kernels
from holdfast.core.state.page_manager import PageManager, PageSetId
from holdfast.core.state.string_pages import StringPages
from holdfast.core.state.unordered_map import UnorderedMap

AggregateFunction = Literal["count", "sum", "min", "max", "avg"]
WINDOW_TIME: Final = pa.timestamp("us", tz="UTC")
_NO_PAGES: Final = np.zeros(0, dtype=np.int64)
_SIGN: Final = np.int64(2**63 - 1)


@dataclass(frozen=True, slots=True)
class Aggregate:
    """One aggregate: `argument` None is count(*)."""

    function: AggregateFunction
    argument: Evaluator | None
    name: str


@dataclass(frozen=True, slots=True)
class _Window:
    groups: UnorderedMap
    strings: StringPages | None

    @property
    def page_sets(self) -> tuple[PageSetId, ...]:
        strings = () if self.strings is None else self.strings.page_sets
        return self.groups.page_sets + strings

    @property
    def page_count(self) -> int:
        strings = 0 if self.strings is None else self.strings.page_count
        return self.groups.page_count + strings

    def destroy(self) -> None:
        self.groups.destroy()
        if self.strings is not None:
            self.strings.destroy()

    def check_invariants(self) -> None:
        self.groups.check_invariants()


class _Accumulator:
    """How one aggregate is computed: its operation, its words, its result."""

    def __init__(self, aggregate: Aggregate) -> None:
        self.aggregate = aggregate
        function, argument = aggregate.function, aggregate.argument
        kind = argument.type if argument is not None else None
        self.kind = kind
        self.argument_words = 0 if kind is None else 1
        self.is_text = False
        self.result, self.operation, self.words = self._choose(function, kind)
        if self.operation in (kernels.SUM_DECIMAL, kernels.MIN_DECIMAL, kernels.MAX_DECIMAL):
            self.argument_words = 2
        self.is_float_order = (
            function in ("min", "max") and kind is not None and pa.types.is_floating(kind)
        )

    def _choose(self, function: str, kind: pa.DataType | None) -> tuple[pa.DataType, int, int]:
        """Result type, operation and accumulator words."""
        t = pa.types
        if function == "count":
            if kind is None:
                return pa.int64(), kernels.COUNT_ALL, 1
            return pa.int64(), kernels.COUNT, 1
        if kind is None:
            raise LocalProtocolError(f"{function} of {self.aggregate.name} needs an argument")
        if function in ("min", "max"):
            smaller = function == "min"
            if is_text(kind):
                self.is_text = True
                return kind, kernels.MIN_STRING if smaller else kernels.MAX_STRING, 2
            if t.is_decimal(kind):
                return kind, kernels.MIN_DECIMAL if smaller else kernels.MAX_DECIMAL, 3
            return kind, kernels.MIN_WORD if smaller else kernels.MAX_WORD, 2
        if t.is_decimal(kind):
            if function == "sum":
                wide = pa.decimal128(min(kind.precision + 10, 38), kind.scale)
                return wide, kernels.SUM_DECIMAL, 3
            fine = pa.decimal128(min(kind.precision + 4, 38), min(kind.scale + 4, 38))
            return fine, kernels.SUM_DECIMAL, 3
        if function == "sum" and t.is_integer(kind):
            return pa.int64(), kernels.SUM_INT, 2
        if t.is_integer(kind) or t.is_floating(kind):
            return pa.float64(), kernels.SUM_FLOAT, 2
        raise LocalProtocolError(f"{function} is not defined for {kind} ({self.aggregate.name})")

    def evaluate(self, batch: pa.RecordBatch) -> pa.Array | None:
        """The argument column, if there is one."""
        if self.aggregate.argument is None:
            return None
        column = self.aggregate.argument.evaluate(batch)
        return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column

    def words_of(self, column: pa.Array, strings: StringPages | None) -> list[np.ndarray]:
        """The argument as the kernel takes it."""
        if self.operation == kernels.COUNT:
            return [np.zeros(len(column), dtype=np.int64)]
        if self.is_text:
            assert strings is not None
            return [strings.intern(column)]
        if self.operation == kernels.SUM_FLOAT:
            if column.type == pa.float64():
                return fixed_words(column)
            if pa.types.is_integer(column.type):
                return [fixed_words(column)[0].astype(np.float64).view(np.int64)]
            return fixed_words(column.cast(pa.float64()))
        if self.is_float_order:
            bits = normal_float_words(column)
            return [bits ^ ((bits >> 63) & _SIGN)]  # Signed order of the words; NaN is greatest.
        return fixed_words(column)

    def finish(self, words: np.ndarray, strings: StringPages | None) -> pa.Array:
        """The results from accumulators, int64 (groups, words)."""
        if self.aggregate.function == "count":
            return pa.array(np.ascontiguousarray(words[:, 0]))
        is_null = words[:, 0] == 0
        if self.is_text:
            assert strings is not None
            return strings.gather(np.ascontiguousarray(words[:, 1]), self.result)
        if self.operation == kernels.SUM_DECIMAL:
            return self._finish_decimal(words)
        if self.is_float_order:
            bits = words[:, 1] ^ ((words[:, 1] >> 63) & _SIGN)
            values = np.ascontiguousarray(bits).view(np.float64)
            return pa.array(values, mask=is_null, type=pa.float64()).cast(self.result, safe=False)
        if self.operation == kernels.SUM_FLOAT:
            values = np.ascontiguousarray(words[:, 1]).view(np.float64)
            if self.aggregate.function == "avg":
                values = values / np.where(is_null, 1, words[:, 0])
            return pa.array(values, mask=is_null, from_pandas=False)
        high = words[:, 2] if self.words == 3 else None
        return column_of(words[:, 1], is_null, self.result, high)

    def _finish_decimal(self, words: np.ndarray) -> pa.Array:
        """Sums checked against their precision; averages rounded half up."""
        assert self.kind is not None
        counts = words[:, 0]
        bound = 10**self.result.precision
        sum_bound = 10 ** min(self.kind.precision + 10, 38)
        is_average = self.aggregate.function == "avg"
        if not is_average and bool(((words[:, 1] >> 63) == words[:, 2]).all()) and bound > 2**63:
            return column_of(words[:, 1], counts == 0, self.result, words[:, 2])
        out = np.zeros((len(words), 2), dtype=np.int64)
        up = 10 ** (self.result.scale - self.kind.scale)
        for i, (count, low, high) in enumerate(words.tolist()):
            if count == 0:
                continue
            value = (high << 64) | (low & (2**64 - 1))
            if abs(value) >= sum_bound:
                self.refuse()
            if is_average:
                quotient = (2 * abs(value) * up + count) // (2 * count)
                value = quotient if value >= 0 else -quotient
            if abs(value) >= bound:
                self.refuse()
            low = value & (2**64 - 1)
            out[i] = (low - 2**64 if low >> 63 else low, value >> 64)
        return column_of(out[:, 0], counts == 0, self.result, out[:, 1])

    def refuse(self) -> None:
        """Raise `ArithmeticOverflow`."""
        raise ArithmeticOverflow(
            f"{self.aggregate.function} as {self.aggregate.name} overflows {self.result}"
        )


class WindowAggregate(Operator):
    """Aggregates per window and group."""

    operator_class = OperatorClass.CONVERGENT_CAPABLE

    def __init__(
        self,
        name: str,
        schema: pa.Schema,
        keys: Sequence[str],
        aggregates: Sequence[Aggregate | tuple[AggregateFunction, Evaluator | None, str]],
        *,
        size_us: int,
        slide_us: int | None = None,
        emit: Literal["final", "changes"] = "final",
        manager: PageManager | None = None,
    ) -> None:
        """Aggregate rows of `schema`.

        Args:
            name: Of the operator.
            schema: Of the input.
            keys: Grouping columns, maybe none; nulls form a group, -0.0 = 0.0 and NaN = NaN.
            aggregates: Function (count, sum, min, max, avg), argument, output name.
            size_us: Length of a window, microseconds.
            slide_us: Distance of window starts; equal to the size (tumbling) if None.
            emit: `final`: one row per group when the window closes, with tuple time window end - 1.
                `changes`: one row per input row and window, with the input row's time.
            manager: Where the state lives; an own one if None.

        Raises:
            LocalProtocolError: A function is not defined for its argument's type, a size is not
                positive, or a type cannot be stored.
        """
        self.name = name
        self._keys = [schema.get_field_index(key) for key in keys]
        if min(self._keys, default=0) < 0:
            raise LocalProtocolError(f"{name}: a key of {list(keys)} is not in {schema.names}")
        self._manager = manager if manager is not None else PageManager()
        self._spec = WindowSpec(size_us, slide_us if slide_us is not None else size_us)
        self._is_changes = emit == "changes"
        self._accumulators = [
            _Accumulator(a if isinstance(a, Aggregate) else Aggregate(*a)) for a in aggregates
        ]
        fields = [schema.field(key) for key in self._keys]
        self._packing = RecordPacking([field.type for field in fields], is_key=True)
        self._needs_strings = self._packing.has_text or any(a.is_text for a in self._accumulators)
        self._key_words = max(1, self._packing.width)
        self._plan, self._value_words, self._argument_words = self._lay_out()
        self._directory: WindowDirectory[_Window] = WindowDirectory(
            self._manager, self._spec, 4 if self._needs_strings else 2, self._attach
        )
        self.output_schema = pa.schema(
            [
                pa.field("window_start", WINDOW_TIME, nullable=False),
                pa.field("window_end", WINDOW_TIME, nullable=False),
                *fields,
                *(pa.field(a.aggregate.name, a.result) for a in self._accumulators),
            ]
        )

    def process(self, inputs: Sequence[Rows | None], low: np.ndarray, boundary_us: int) -> Output:
        """Update the windows' groups; emit.

        Raises:
            ArithmeticOverflow: A sum does not fit its type.
            LocalProtocolError: A row is older than the boundary.
            StateLimitExceeded: The pages are used up.
        """
        (rows,) = inputs
        changes = NOTHING
        if rows is not None and has_rows(rows):
            self._directory.require_not_late(self.name, rows.time_us)
            changes = self._update(rows, low)
        closed = self._directory.close(boundary_us)
        if not closed:
            return changes
        final = NOTHING if self._is_changes else self._emit(closed)
        for window in closed:
            window.state.destroy()
        return changes if self._is_changes else final

    def oldest_needed(self) -> np.ndarray | None:
        """The oldest tuple of any open window."""
        return self._directory.oldest_needed()

    def check_invariants(self) -> None:
        """Raise `InvariantViolation` if windows, directory and pages disagree."""
        self._directory.check_invariants()

    def state_bytes(self) -> int:
        """Bytes of pages held."""
        return self._directory.state_bytes()

    # -- updating ---------------------------------------------------------------------------

    def _lay_out(self) -> tuple[np.ndarray, int, int]:
        """The kernel's plan, and how many accumulator and argument words there are."""
        plan = np.zeros((len(self._accumulators), 3), dtype=np.int64)
        words = arguments = 0
        for p, accumulator in enumerate(self._accumulators):
            plan[p] = (accumulator.operation, words, arguments)
            words += accumulator.words
            arguments += accumulator.argument_words
        return plan, words, arguments

    def _update(self, rows: Rows, low: np.ndarray) -> Output:
        columns = [accumulator.evaluate(rows.batch) for accumulator in self._accumulators]
        parts: list[tuple[int, np.ndarray, pa.RecordBatch]] = []
        cause = low.copy()
        shared: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None
        for start, numbers in self._spec.assign(rows.time_us):
            window, watermark = self._directory.enter(start, low, rows.created_us)
            np.minimum(cause, watermark, out=cause)
            if self._needs_strings:
                taken = None if numbers is None else pa.array(numbers)
                batch = rows.batch if taken is None else rows.batch.take(taken)
                mine = [c if c is None or taken is None else c.take(taken) for c in columns]
                keys, arguments, mask = self._words(batch, mine, window.strings)
            else:
                if shared is None:
                    shared = self._words(rows.batch, columns, None)
                keys, arguments, mask = shared
                if numbers is not None:
                    keys = keys[numbers]
                    arguments = np.ascontiguousarray(arguments[:, numbers])
                    mask = np.ascontiguousarray(mask[:, numbers]) if mask.shape[1] else mask
            running = self._run(window, keys, arguments, mask)
            if self._is_changes:
                if numbers is None:
                    numbers = np.arange(len(rows.time_us), dtype=np.int64)
                starts = np.full(len(keys), start, dtype=np.int64)
                parts.append((0, numbers, self._batch(starts, keys, running, window.strings)))
        if not self._is_changes:
            return NOTHING
        numbers = np.concatenate([numbers for _, numbers, _ in parts])
        batch = parts[0][2]
        if len(parts) > 1:
            permutation = np.argsort(numbers, kind="stable")
            numbers = numbers[permutation]
            batch = pa.concat_batches([part for _, _, part in parts]).take(pa.array(permutation))
        return Output(
            Rows(batch, rows.time_us[numbers], rows.order[numbers], rows.created_us), cause
        )

    def _attach(self, page_sets: tuple[PageSetId, ...] | None) -> _Window:
        """A window's structures, new or over these page sets."""
        groups, strings = (page_sets[:2], page_sets[2:]) if page_sets else (None, None)
        return _Window(
            UnorderedMap(self._manager, self._key_words, self._value_words, groups),
            StringPages(self._manager, strings) if self._needs_strings else None,
        )

    def _words(
        self,
        batch: pa.RecordBatch,
        columns: Sequence[pa.Array | None],
        strings: StringPages | None,
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Keys (n, k), arguments (words, n), and the arguments' validity (words, n or 0)."""
        n = batch.num_rows
        if self._keys:
            keys = self._packing.pack([batch.column(key) for key in self._keys], strings)
        else:
            keys = np.zeros((n, 1), dtype=np.int64)
        arguments = np.empty((self._argument_words, n), dtype=np.int64)
        with_nulls = any(c is not None and c.null_count for c in columns)
        mask = np.ones((self._argument_words, n if with_nulls else 0), dtype=np.uint8)
        for p, column in enumerate(columns):
            if column is None:
                continue
            row = int(self._plan[p, 2])
            for part, words in enumerate(self._accumulators[p].words_of(column, strings)):
                arguments[row + part] = words
            if column.null_count:
                mask[row] = validity(column)
        return keys, arguments, mask

    def _run(
        self, window: _Window, keys: np.ndarray, arguments: np.ndarray, mask: np.ndarray
    ) -> np.ndarray:
        """One compiled pass; returns the running accumulators if they are wanted."""
        n = len(keys)
        manager, groups = self._manager, window.groups
        running = np.empty((n if self._is_changes else 0, self._value_words), dtype=np.int64)
        done = 0
        while done < n:
            manager.make_room()
            done = kernels.aggregate(
                manager.arena,
                manager.arena.view(np.float64),
                manager.marks,
                manager.free,
                manager.shift,
                groups.bucket_pages,
                groups.record_pages,
                *groups.bases(),
                _NO_PAGES if window.strings is None else window.strings.text_pages,
                keys,
                self._value_words,
                self._plan,
                arguments,
                arguments.view(np.float64),
                mask,
                done,
                running,
            )
            if done < 0:
                self._accumulators[-1 - done].refuse()
            if done < n:
                groups.grow()
        return running

    # -- emitting ---------------------------------------------------------------------------

    def _emit(self, closed: list[ClosedWindow[_Window]]) -> Output:
        batches: list[pa.RecordBatch] = []
        ends: list[np.ndarray] = []
        cause = closed[0].low.copy()
        for window in closed:
            batch = self._rows_of(window.start, window.state)
            batches.append(batch)
            ends.append(
                np.full(batch.num_rows, window.start + self._spec.size_us - 1, dtype=np.int64)
            )
            np.minimum(cause, window.low, out=cause)
        batch = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
        order = np.full(batch.num_rows, AT_CLOSE, dtype=np.int64)
        created_us = max(window.created_us for window in closed)
        return Output(Rows(batch, np.concatenate(ends), order, created_us), cause)

    def _rows_of(self, start: int, window: _Window) -> pa.RecordBatch:
        """The results of a window, one row per group in order of first arrival."""
        entries = window.groups.entries()
        starts = np.full(len(entries), start, dtype=np.int64)
        keys, values = entries[:, : self._key_words], entries[:, self._key_words :]
        return self._batch(starts, keys, values, window.strings)

    def state_rows(self) -> pa.Table:
        """The groups of the open windows with their results so far."""
        batches = [self._rows_of(start, window) for start, window in self._directory.states()]
        return pa.Table.from_batches(batches, schema=self.output_schema)

    def _batch(
        self,
        starts: np.ndarray,
        keys: np.ndarray,
        values: np.ndarray,
        strings: StringPages | None,
    ) -> pa.RecordBatch:
        columns = [
            column_of(starts, None, WINDOW_TIME),
            column_of(starts + self._spec.size_us, None, WINDOW_TIME),
        ]
        if self._keys:
            columns.extend(self._packing.unpack(keys, strings))
        for p, accumulator in enumerate(self._accumulators):
            at = int(self._plan[p, 1])
            columns.append(accumulator.finish(values[:, at : at + accumulator.words], strings))
        return pa.RecordBatch.from_arrays(columns, schema=self.output_schema)
