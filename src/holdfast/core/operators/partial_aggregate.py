"""Partial aggregates, where the rows come from, for a window aggregate elsewhere. Repeatable.

Of every batch and every group with rows in one pane one row is put out, with what the aggregates of
these rows come to; the aggregate behind it adds them up. Panes are the longest stretches of tuple
time that lie in the same windows.

It has no state: what it puts out depends on where its input is cut into batches. So it takes the
stream of a source whose tuples always come in the same batches, alone or behind operators that
leave rows out or compute new columns. A node processes batches whole, hence restart points lie
between them, and what is put out again after a failure is the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from holdfast.core.errors import LocalProtocolError
from holdfast.core.model.stable_hash import fixed_words, is_text
from holdfast.core.operators.accumulators import Accumulators, Aggregate, AggregateFunction
from holdfast.core.operators.base import (
    NOTHING,
    Evaluator,
    Operator,
    OperatorClass,
    Output,
    Rows,
    has_rows,
)
from holdfast.core.state.grouping_kernels import GROUP_WORDS, SIZE, number_groups

_ROWS_MIN: Final = 1 << 10


class PartialAggregate(Operator):
    """Aggregates per batch, pane and group."""

    operator_class = OperatorClass.REPEATABLE

    def __init__(
        self,
        name: str,
        schema: pa.Schema,
        keys: Sequence[str],
        aggregates: Sequence[Aggregate | tuple[AggregateFunction, Evaluator | None, str]],
        *,
        pane_us: int,
    ) -> None:
        """Aggregate rows of `schema`.

        Args:
            name: Of the operator.
            schema: Of the input.
            keys: Grouping columns, maybe none.
            aggregates: Function, argument, output name; what they come to is not text.
            pane_us: Length of a pane, microseconds; panes begin at its multiples.

        Raises:
            LocalProtocolError: As of `Accumulators`, or an aggregate is text.
        """
        self.name = name
        self._pane_us = pane_us
        self._keys = [schema.get_field_index(key) for key in keys]
        self._groups = Accumulators(name, _coded(schema, keys), keys, aggregates)
        if self._groups.value_has_text:
            raise LocalProtocolError(f"{name}: a partial aggregate cannot be text")
        results = self._groups.fields[len(self._keys) :]
        self.output_schema = pa.schema([*(schema.field(key) for key in self._keys), *results])
        self._scratch = _Scratch(0, self._groups.key_words)

    def process(self, inputs: Sequence[Rows | None], low: np.ndarray, boundary_us: int) -> Output:
        """One row for each batch, pane and group, with the place and the time of its first row.

        Raises:
            ArithmeticOverflow: A sum does not fit its type.
        """
        (rows,) = inputs
        if rows is None or not has_rows(rows):
            return NOTHING
        count = len(rows.time_us)
        if count > len(self._scratch.group_of):
            self._scratch = _Scratch(count, self._groups.key_words)
        scratch = self._scratch
        scratch.table.fill(-1)
        arguments, mask = self._groups.arguments_of(self._groups.evaluate(rows.batch), count, None)
        keys, words = self._key_words(rows.batch)
        group_of = scratch.group_of[: 0 if self._groups.only_counts else count]
        found = first = 0
        for stop in [*_ends(rows), count]:
            found = number_groups(
                keys,
                words,
                rows.time_us,
                self._pane_us,
                first,
                stop,
                found,
                scratch.table,
                group_of,
                scratch.firsts,
                scratch.groups,
            )
            first = stop
        words_each = GROUP_WORDS + words
        sizes = scratch.groups[: found * words_each].reshape(found, words_each)[:, SIZE]
        values = self._groups.update_groups(group_of, sizes, arguments, mask)
        firsts = scratch.firsts[:found].copy()
        taken = pa.array(firsts)
        columns = [rows.batch.column(key).take(taken) for key in self._keys]
        columns += self._groups.result_columns(values, None)
        batch = pa.RecordBatch.from_arrays(columns, schema=self.output_schema)
        times, order = rows.time_us[firsts], rows.order[firsts]
        return Output((Rows(batch, times, order, rows.created_us),), low)

    def _key_words(self, batch: pa.RecordBatch) -> tuple[np.ndarray, int]:
        """The words of all keys, one after the other, and how many a key has."""
        if len(self._keys) == 1:
            column = batch.column(self._keys[0])
            if pa.types.is_integer(column.type) and not column.null_count:
                return fixed_words(column)[0], 1  # As it is: no copy.
        keys = self._groups.keys_of(self._with_codes(batch), None)
        return keys.reshape(-1), self._groups.key_words

    def _with_codes(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch with keys that are text as numbers: they are compared within it only."""
        for key in self._keys:
            if is_text(batch.schema.field(key).type):
                column = batch.column(key)
                is_coded = pa.types.is_dictionary(column.type)
                codes = (column if is_coded else column.dictionary_encode()).indices
                name = batch.schema.field(key).name
                batch = batch.set_column(key, name, codes.cast(pa.int32()))
        return batch


class _Scratch:
    """Memory for passes of up to `rows` rows; kept, as fresh memory costs more than the work."""

    def __init__(self, rows: int, key_words: int) -> None:
        rows = max(_ROWS_MIN, rows)
        self.table = np.empty(1 << rows.bit_length(), dtype=np.int32)
        self.group_of = np.empty(rows, dtype=np.int64)
        self.firsts = np.empty(rows, dtype=np.int64)
        self.groups = np.empty(rows * (GROUP_WORDS + key_words), dtype=np.int64)


def _coded(schema: pa.Schema, keys: Sequence[str]) -> pa.Schema:
    """The schema with keys that are text as numbers."""
    return pa.schema(
        pa.field(f.name, pa.int32()) if f.name in keys and is_text(f.type) else f for f in schema
    )


def _ends(rows: Rows) -> list[int]:
    """Where batches end before the last one, by row."""
    if rows.batch_starts is None:
        return []
    ends = np.searchsorted(rows.order, rows.batch_starts[1:])
    return [int(end) for end in ends if 0 < end < len(rows.order)]
