"""What aggregates of every kind of window share: keys, accumulators and how they are computed.

A group is a record of an unordered map: its key words, then the words of all accumulators, zero in
the beginning. One compiled pass finds each row's group and updates it (`kernels.aggregate`).
Results follow Spark's ANSI mode.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import pyarrow as pa

from holdfast.core.errors import LocalProtocolError
from holdfast.core.model.nested_types import is_nested
from holdfast.core.model.schema import RecordPacking, column_of, is_interned
from holdfast.core.model.stable_hash import (
    fixed_words,
    is_text,
    normal_float_words,
    validity,
)
from holdfast.core.operators.base import ArithmeticOverflow, Evaluator, Owns
from holdfast.core.operators.collected import (
    COLLECTING,
    LISTS,
    encoded,
    finished,
    require_percentages,
    result_of,
)
from holdfast.core.state import aggregate_kernels as kernels
from holdfast.core.state.page_manager import PageManager
from holdfast.core.state.string_pages import StringPages
from holdfast.core.state.unordered_map import UnorderedMap

AggregateFunction = Literal[
    "count", "sum", "min", "max", "avg", "first", "last", "first_valid", "last_valid", "min_by",
    "max_by", "bit_and", "bit_or", "bit_xor", "stddev_samp", "stddev_pop", "var_samp", "var_pop",
    "collect_list", "collect_set", "percentile", "percentiles", "approx_percentile",
    "approx_percentiles",
]  # fmt: skip
"""`first` and `last` take nulls for values, `first_valid` and `last_valid` do not. The argument of
`min_by` and `max_by` is a struct of the value and of what it goes by; of equal ones the last one.
The plural functions give a list, one result per percentage.
"""
WINDOW_TIME: Final = pa.timestamp("us", tz="UTC")
WINDOW_FIELDS: Final = (
    pa.field("window_start", WINDOW_TIME, nullable=False),
    pa.field("window_end", WINDOW_TIME, nullable=False),
)
_NO_PAGES: Final = np.zeros(0, dtype=np.int64)
_SIGN: Final = np.int64(2**63 - 1)


PICKING: Final = {
    "first": kernels.FIRST,
    "last": kernels.LAST,
    "first_valid": kernels.FIRST,
    "last_valid": kernels.LAST,
    "min_by": kernels.MIN_BY,
    "max_by": kernels.MAX_BY,
}
"""Functions that pick a row's value, and so depend on the order of a group's rows."""
BY_ORDER: Final = frozenset((*PICKING, "collect_list"))
"""All that depend on that order."""
_BY: Final = (kernels.MIN_BY, kernels.MAX_BY)
_BITS: Final = {
    "bit_and": kernels.BIT_AND,
    "bit_or": kernels.BIT_OR,
    "bit_xor": kernels.BIT_XOR,
}
_MERGED_BITS: Final = {
    kernels.BIT_AND: np.bitwise_and,
    kernels.BIT_OR: np.bitwise_or,
    kernels.BIT_XOR: np.bitwise_xor,
}
_MOMENTS: Final = ("stddev_samp", "stddev_pop", "var_samp", "var_pop")


@dataclass(frozen=True, slots=True)
class Aggregate:
    """One aggregate: `argument` None is count(*); `percentages` are those of percentiles."""

    function: AggregateFunction
    argument: Evaluator | None
    name: str
    percentages: tuple[float, ...] = ()


class Accumulators:
    """The keys and aggregates of an operator, laid out in words.

    Attributes:
        key_words: Words of a key, at least one.
        value_words: Words of all accumulators of a group.
        key_has_text: Whether keys refer to strings.
        key_text_words: Which words of a key do.
        value_has_text: Whether accumulators do.
        only_counts: Whether all of them count rows, whatever these hold.
        needs_order: Whether results depend on the order of a group's rows.
        collects: Whether groups keep all values of an argument, and so grow without bound.
        text_words: Which words of a group's accumulators are references to strings.
        sum_rows: Which words of the arguments are summed up as integers, the highest of each.
        key_fields: The fields of the keys.
        fields: Output fields: the keys, then the aggregates.
    """

    def __init__(
        self,
        name: str,
        schema: pa.Schema,
        keys: Sequence[str],
        aggregates: Sequence[Aggregate | tuple[AggregateFunction, Evaluator | None, str]],
    ) -> None:
        """Lay them out for rows of `schema`.

        Raises:
            LocalProtocolError: A key is not in the schema, a function is not defined for its
                argument's type, or a type cannot be stored.
        """
        self._keys = [schema.get_field_index(key) for key in keys]
        if min(self._keys, default=0) < 0:
            raise LocalProtocolError(f"{name}: a key of {list(keys)} is not in {schema.names}")
        self._each = [
            _Accumulator(a if isinstance(a, Aggregate) else Aggregate(*a)) for a in aggregates
        ]
        key_fields = [schema.field(key) for key in self._keys]
        self._packing = RecordPacking([field.type for field in key_fields], is_key=True)
        self.key_words = max(1, self._packing.width)
        self.key_has_text = self._packing.has_text
        self.key_text_words = self._packing.text_words
        self.value_has_text = any(a.is_text for a in self._each)
        self._plan, self.value_words, self._argument_words = self._lay_out()
        self.only_counts = bool((self._plan[:, 0] == kernels.COUNT_ALL).all())
        self.collects = bool((self._plan[:, 0] == kernels.COLLECT).any())
        self.text_words = [
            int(self._plan[p, 1]) + a.value_at for p, a in enumerate(self._each) if a.is_text
        ]
        self.needs_order = any(a.aggregate.function in BY_ORDER for a in self._each)
        self.key_fields = key_fields
        self.fields = [*key_fields, *(pa.field(a.aggregate.name, a.result) for a in self._each)]
        self.sum_rows = [
            int(self._plan[p, 2]) + a.argument_words - 1
            for p, a in enumerate(self._each)
            if a.operation in (kernels.SUM_INT, kernels.SUM_DECIMAL)
        ]

    def _lay_out(self) -> tuple[np.ndarray, int, int]:
        """The kernel's plan, and how many accumulator and argument words there are."""
        plan = np.zeros((len(self._each), 3), dtype=np.int64)
        words = arguments = 0
        for p, accumulator in enumerate(self._each):
            plan[p] = (accumulator.operation, words, arguments)
            words += accumulator.words
            arguments += accumulator.argument_words
        return plan, words, arguments

    def evaluate(self, batch: pa.RecordBatch) -> list[pa.Array | None]:
        """Per aggregate its argument column, if it has one."""
        return [accumulator.evaluate(batch) for accumulator in self._each]

    def keys_of(self, batch: pa.RecordBatch, strings: StringPages | None) -> np.ndarray:
        """Key words, int64 (n, k)."""
        return self.pack_keys([batch.column(key) for key in self._keys], batch.num_rows, strings)

    def pack_keys(
        self, columns: Sequence[pa.Array], count: int, strings: StringPages | None
    ) -> np.ndarray:
        """Key words, int64 (n, k), of `count` rows of key columns; inverse of `key_columns`."""
        if self._keys:
            return self._packing.pack(columns, strings)
        return np.zeros((count, 1), dtype=np.int64)

    def arguments_of(
        self, columns: Sequence[pa.Array | None], count: int, strings: StringPages | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Arguments (words, n), and their validity (words, n or 0)."""
        arguments = np.empty((self._argument_words, count), dtype=np.int64)
        with_nulls = any(
            c is not None and (c.null_count or pa.types.is_struct(c.type)) for c in columns
        )
        mask = np.ones((self._argument_words, count if with_nulls else 0), dtype=np.uint8)
        for p, column in enumerate(columns):
            if column is None:
                continue
            row = int(self._plan[p, 2])
            for part, words in enumerate(self._each[p].words_of(column, strings)):
                arguments[row + part] = words
            tested = self._each[p].tested(column)
            if tested is not None and tested.null_count:
                mask[row] = validity(tested)
        return arguments, mask

    def update(
        self,
        manager: PageManager,
        groups: UnorderedMap,
        strings: StringPages | None,
        keys: np.ndarray,
        arguments: np.ndarray,
        mask: np.ndarray,
        running: np.ndarray,
    ) -> None:
        """One compiled pass over rows.

        Args:
            manager: Of the pages.
            groups: Key -> accumulators.
            strings: Of the arguments.
            keys: int64 (n, k).
            arguments: As from `arguments_of`.
            mask: As from `arguments_of`.
            running: int64 (n, v), receives the accumulators after each row; (0, v): not wanted.

        Raises:
            ArithmeticOverflow: A sum does not fit its type.
            StateLimitExceeded: The pages are used up.
        """
        self._keep_apart(arguments, strings)
        done = 0
        while done < len(keys):
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
                _NO_PAGES if strings is None else strings.text_pages,
                keys,
                self.value_words,
                self._plan,
                arguments,
                arguments.view(np.float64),
                mask,
                done,
                running,
            )
            if done < 0:
                self._each[-1 - done].refuse()
            if done < len(keys):
                groups.grow()

    def _keep_apart(self, arguments: np.ndarray, strings: StringPages | None) -> None:
        """Give each row a collected value of its own, though it stands in several windows.

        A value becomes the continuation of its group's others, and so can be in one group alone.
        """
        for operation, _, row in self._plan.tolist():
            if operation != kernels.COLLECT:
                continue
            assert strings is not None
            references = arguments[row]
            is_again = references != 0
            is_again[np.unique(references, return_index=True)[1]] = False
            if bool(is_again.any()):
                copied = strings.gather(references[is_again], pa.large_binary())
                references[is_again] = strings.append(copied)

    def update_groups(
        self, group_of: np.ndarray, sizes: np.ndarray, arguments: np.ndarray, mask: np.ndarray
    ) -> np.ndarray:
        """The accumulators of rows whose groups are numbered, outside of pages.

        Args:
            group_of: int64 (n,), the group of each row; not looked at if there are `only_counts`.
            sizes: int64 (groups,), how many rows each group has.
            arguments: As from `arguments_of`.
            mask: As from `arguments_of`.

        Returns:
            int64 (groups, v).

        Raises:
            ArithmeticOverflow: A sum does not fit its type.
        """
        if self.only_counts:
            return np.repeat(sizes[:, np.newaxis], self.value_words, axis=1)
        values = np.zeros((len(sizes), self.value_words), dtype=np.int64)
        flat = values.reshape(-1)
        done = kernels.update_found(
            flat,
            flat.view(np.float64),
            0,
            _NO_PAGES,
            -1,
            self.value_words,
            self._plan,
            arguments,
            arguments.view(np.float64),
            mask,
            0,
            len(group_of),
            group_of * self.value_words,
            np.empty((0, self.value_words), dtype=np.int64),
        )
        if done < 0:
            self._each[-1 - done].refuse()
        return values

    def merged(self, one: np.ndarray, other: np.ndarray, strings: StringPages | None) -> np.ndarray:
        """The accumulators of two groups that have become one, int64 (v,).

        Raises:
            ArithmeticOverflow: A sum does not fit its type.
        """
        whole = one.copy()
        for p, accumulator in enumerate(self._each):
            at = int(self._plan[p, 1])
            words = slice(at, at + accumulator.words)
            whole[words] = accumulator.merged(one[words], other[words], strings)
        return whole

    def key_columns(self, keys: np.ndarray, strings: StringPages | None) -> list[pa.Array]:
        """The key columns of key words, int64 (n, k)."""
        return self._packing.unpack(keys, strings) if self._keys else []

    def owned(self, owns: Owns, keys: np.ndarray, strings: StringPages | None) -> np.ndarray:
        """Which of these keys, int64 (n, k), are an instance's own, bool (n,); without keys all."""
        if not self._keys:
            return np.ones(len(keys), dtype=np.bool_)
        return owns(self.key_columns(keys, strings))

    def taken_over(self, other: Accumulators, entries: np.ndarray) -> np.ndarray:
        """Groups of an operator with the same keys, as they are laid out here.

        Args:
            other: How they are laid out there: the same aggregates, or fewer, by name.
            entries: Key words and accumulators, int64 (n, k + v).

        Returns:
            The same, int64 (n, k + v); aggregates that are not there begin anew.
        """
        words = self.key_words
        made = np.zeros((len(entries), words + self.value_words), dtype=np.int64)
        made[:, :words] = entries[:, :words]
        held = {
            a.aggregate.name: int(at) for a, at in zip(other._each, other._plan[:, 1], strict=True)
        }
        for accumulator, at in zip(self._each, self._plan[:, 1].tolist(), strict=True):
            start = held.get(accumulator.aggregate.name)
            if start is not None:
                end = words + start + accumulator.words
                made[:, words + at : words + at + accumulator.words] = entries[
                    :, words + start : end
                ]
        return made

    def result_columns(self, values: np.ndarray, strings: StringPages | None) -> list[pa.Array]:
        """The results from accumulators, int64 (n, v)."""
        columns = []
        for p, accumulator in enumerate(self._each):
            at = int(self._plan[p, 1])
            columns.append(accumulator.finish(values[:, at : at + accumulator.words], strings))
        return columns


class _Accumulator:
    """How one aggregate is computed: its operation, its words, its result."""

    def __init__(self, aggregate: Aggregate) -> None:
        self.aggregate = aggregate
        function, argument = aggregate.function, aggregate.argument
        kind = argument.type if argument is not None else None
        self.kind = kind
        self.argument_words = 0 if kind is None else 1
        self.is_text = False
        self.value_at = 1
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
        if function in PICKING:
            return self._choose_picking(function, kind)
        if function in COLLECTING:
            return self._choose_collecting(function, kind)
        if function in _BITS and t.is_integer(kind):
            return kind, _BITS[function], 2
        is_number = t.is_integer(kind) or t.is_floating(kind) or t.is_decimal(kind)
        if function in _MOMENTS and is_number:
            return pa.float64(), kernels.MOMENTS, 3
        if function in _BITS or function in _MOMENTS:
            raise LocalProtocolError(
                f"{function} is not defined for {kind} ({self.aggregate.name})"
            )
        if function in ("min", "max"):
            smaller = function == "min"
            if is_nested(kind):
                raise LocalProtocolError(
                    f"{function} is not defined for {kind} ({self.aggregate.name})"
                )
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

    def _choose_picking(self, function: str, kind: pa.DataType) -> tuple[pa.DataType, int, int]:
        """As `_choose`, of what picks one of the values."""
        operation, self.argument_words = PICKING[function], 2
        if operation in _BY:
            kind, by = kind.field(0).type, kind.field(1).type
            self.argument_words = 3
            if is_text(by) or pa.types.is_decimal(by) or pa.types.is_nested(by):
                raise LocalProtocolError(f"{function} ({self.aggregate.name}) goes by {by}")
        self.is_text = is_interned(kind)
        if pa.types.is_decimal(kind):
            raise LocalProtocolError(
                f"{function} is not defined for {kind} ({self.aggregate.name})"
            )
        self.value_at = self.argument_words - 1
        return kind, operation, self.argument_words + 1

    def _choose_collecting(self, function: str, kind: pa.DataType) -> tuple[pa.DataType, int, int]:
        """As `_choose`, of what keeps all values."""
        if function not in LISTS:
            require_percentages(self.aggregate.name, self.aggregate.percentages)
        result = result_of(function, kind)
        if result is None:
            raise LocalProtocolError(
                f"{function} is not defined for {kind} ({self.aggregate.name})"
            )
        self.is_text = True
        return result, kernels.COLLECT, 2

    def tested(self, column: pa.Array) -> pa.Array | None:
        """The column in whose null rows the argument does not count; None: all count."""
        if self.operation in _BY:
            return column.field(1)
        takes_nulls = self.aggregate.function in ("first", "last")
        return None if takes_nulls else column

    def _picked_words(self, column: pa.Array, strings: StringPages | None) -> list[np.ndarray]:
        """What is picked by, if anything; the values; and which are there."""
        by: list[np.ndarray] = []
        if self.operation in _BY:
            column, ordering = column.field(0), column.field(1)
            if pa.types.is_floating(ordering.type):
                bits = normal_float_words(ordering)
                by = [bits ^ ((bits >> 63) & _SIGN)]
            else:
                by = fixed_words(ordering)
        if self.is_text:
            assert strings is not None
            values = [strings.intern(column)]
        else:
            values = fixed_words(column)
        mask = validity(column)
        is_there = mask.astype(np.int64) if len(mask) else np.ones(len(column), dtype=np.int64)
        return [*by, *values, is_there]

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
        if self.aggregate.function in PICKING:
            return self._picked_words(column, strings)
        if self.operation == kernels.COLLECT:
            assert strings is not None
            return [strings.append(encoded(column))]
        if self.is_text:
            assert strings is not None
            return [strings.intern(column)]
        if self.operation in (kernels.SUM_FLOAT, kernels.MOMENTS):
            if column.type == pa.float64():
                return fixed_words(column)
            if pa.types.is_integer(column.type):
                return [fixed_words(column)[0].astype(np.float64).view(np.int64)]
            return fixed_words(column.cast(pa.float64()))
        if self.is_float_order:
            bits = normal_float_words(column)
            return [bits ^ ((bits >> 63) & _SIGN)]  # Signed order of the words; NaN is greatest.
        return fixed_words(column)

    def merged(self, one: np.ndarray, other: np.ndarray, strings: StringPages | None) -> np.ndarray:
        """The words of two accumulators that have become one."""
        if one[0] == 0 or other[0] == 0:
            return other if one[0] == 0 else one
        whole = one.copy()
        whole[0] = one[0] + other[0]
        if self.words == 1:
            return whole
        if self.operation == kernels.SUM_FLOAT:
            whole[1:] = (one[1:].view(np.float64) + other[1:].view(np.float64)).view(np.int64)
            return whole
        if self.operation == kernels.MOMENTS:
            means = one[1:].view(np.float64), other[1:].view(np.float64)
            delta = means[1][0] - means[0][0]
            part = delta * (int(other[0]) / int(whole[0]))
            squares = means[0][1] + means[1][1] + delta * part * int(one[0])
            whole[1:] = np.array([means[0][0] + part, squares]).view(np.int64)
            return whole
        if self.operation in _MERGED_BITS:
            whole[1] = _MERGED_BITS[self.operation](one[1], other[1])
            return whole
        if self.operation == kernels.COLLECT:
            assert strings is not None
            both = strings.gather(np.array([one[1], other[1]]), pa.large_binary()).to_pylist()
            whole[1:] = strings.intern(pa.array([b"".join(both)], pa.large_binary()))
            return whole
        values = self._value(one), self._value(other)
        if self.operation in (kernels.SUM_INT, kernels.SUM_DECIMAL):
            total, bits = sum(values), 64 * (self.words - 1)
            if not -(1 << bits - 1) <= total < 1 << bits - 1:
                self.refuse()
            parts = (total >> 64 * i & 2**64 - 1 for i in range(self.words - 1))
            whole[1:] = np.array(list(parts), dtype=np.uint64).view(np.int64)
            return whole
        if self.is_text:
            assert strings is not None
            references = np.array([one[1], other[1]], dtype=np.int64)
            values = tuple(strings.gather(references, pa.large_binary()).to_pylist())
        is_smaller = self.operation in (
            kernels.MIN_WORD, kernels.MIN_DECIMAL, kernels.MIN_STRING
        )  # fmt: skip
        if (values[1] < values[0]) is is_smaller and values[0] != values[1]:
            whole[1:] = other[1:]
        return whole

    def _value(self, words: np.ndarray) -> int:
        """The whole number behind the count: one word, or a low and a high one."""
        low = int(words[1])
        return low if self.words == 2 else (int(words[2]) << 64) | (low & (2**64 - 1))

    def finish(self, words: np.ndarray, strings: StringPages | None) -> pa.Array:
        """The results from accumulators, int64 (groups, words)."""
        if self.aggregate.function == "count":
            return pa.array(words[:, 0].copy())
        if self.operation == kernels.COLLECT:
            assert strings is not None
            assert self.kind is not None
            texts = strings.gather(np.ascontiguousarray(words[:, 1]), pa.large_binary())
            counts, percentages = words[:, 0].copy(), self.aggregate.percentages
            return finished(self.aggregate.function, self.kind, percentages, counts, texts)
        is_null = words[:, 0] == 0
        if self.aggregate.function in PICKING and not self.is_text:
            is_null |= words[:, self.value_at + 1] == 0
            return column_of(words[:, self.value_at], is_null, self.result)
        if self.operation == kernels.MOMENTS:
            return self._finish_moments(words)
        if self.is_text:
            assert strings is not None
            return strings.gather(np.ascontiguousarray(words[:, self.value_at]), self.result)
        if self.operation == kernels.SUM_DECIMAL:
            return self._finish_decimal(words)
        if self.is_float_order:
            bits = words[:, 1] ^ ((words[:, 1] >> 63) & _SIGN)
            values = np.ascontiguousarray(bits).view(np.float64)
            return pa.array(values, mask=is_null, type=pa.float64()).cast(self.result, safe=False)
        if self.operation == kernels.SUM_FLOAT:
            values = words[:, 1].copy().view(np.float64)
            if self.aggregate.function == "avg":
                values = values / np.where(is_null, 1, words[:, 0])
            return pa.array(values, mask=is_null, from_pandas=False)
        high = words[:, 2] if self.words == 3 else None
        return column_of(words[:, 1], is_null, self.result, high)

    def _finish_moments(self, words: np.ndarray) -> pa.Array:
        """Variances and their roots; of a sample there must be two values."""
        function = self.aggregate.function
        degrees = words[:, 0] - (1 if function.endswith("samp") else 0)
        squares = np.ascontiguousarray(words[:, 2]).view(np.float64)
        is_null = degrees <= 0
        values = squares / np.where(is_null, 1, degrees)
        if function.startswith("stddev"):
            values = np.sqrt(values)
        return pa.array(values, mask=is_null, from_pandas=False)

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
