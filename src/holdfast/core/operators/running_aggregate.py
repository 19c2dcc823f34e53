"""Aggregates per key of everything that ever came, put out after each row. Deterministic. [HA §3.2]

Every row gives the new result of its key, which replaces the one before: an upsert by key. Groups
stay for ever, so the operator needs its whole input to be rebuilt. Started empty in the middle, it
would count what came later only. Rows stay where they are in the order.

State, all in pages: a map key -> accumulators, the keys' strings, and those of results, which are
forgotten when they have been replaced.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from holdfast.core.model.ids import BEGINNING_US, NO_ID
from holdfast.core.operators.accumulators import Accumulators, Aggregate, AggregateFunction
from holdfast.core.operators.base import (
    NOTHING,
    Evaluator,
    Operator,
    OperatorClass,
    Output,
    Owns,
    Rows,
    has_rows,
)
from holdfast.core.state.page_manager import PageManager
from holdfast.core.state.raw_page import RawPage
from holdfast.core.state.recycled_strings import RecycledStrings
from holdfast.core.state.string_pages import StringPages, moved
from holdfast.core.state.total_pages import total_pages
from holdfast.core.state.unordered_map import UnorderedMap


class RunningAggregate(Operator):
    """The results of a key after each of its rows."""

    operator_class = OperatorClass.DETERMINISTIC

    def __init__(
        self,
        name: str,
        schema: pa.Schema,
        keys: Sequence[str],
        aggregates: Sequence[Aggregate | tuple[AggregateFunction, Evaluator | None, str]],
        *,
        manager: PageManager | None = None,
    ) -> None:
        """Aggregate rows of `schema`.

        Args:
            name: Of the operator.
            schema: Of the input.
            keys: Key columns, maybe none; nulls are a key, -0.0 = 0.0 and NaN = NaN.
            aggregates: Function, argument, output name.
            manager: Where the state lives; an own one if None.

        Raises:
            LocalProtocolError: As `Accumulators`.
        """
        self.name = name
        self._manager = manager if manager is not None else PageManager()
        self._groups = Accumulators(name, schema, keys, aggregates)
        self._kept = UnorderedMap(self._manager, self._groups.key_words, self._groups.value_words)
        has_text = self._groups.key_has_text
        self._strings = StringPages(self._manager) if has_text else None
        self._first = RawPage(self._manager)  # per stream the first id ever seen
        has_texts = self._groups.value_has_text
        self._texts = RecycledStrings(self._manager) if has_texts else None
        self.output_schema = self._of_results = pa.schema(self._groups.fields)

    def process(self, inputs: Sequence[Rows | None], low: np.ndarray, boundary_us: int) -> Output:
        """Update the keys' groups; the result after each row, with the row's time.

        Raises:
            ArithmeticOverflow: A sum does not fit its type.
            StateLimitExceeded: The pages are used up.
        """
        (rows,) = inputs
        if rows is None or not has_rows(rows):
            return NOTHING
        seen = self._first.read()
        cause = np.minimum(seen, low) if len(seen) else low.copy()
        self._first.write(cause)
        groups, count = self._groups, len(rows.time_us)
        texts = self._pages
        arguments, mask = groups.arguments_of(groups.evaluate(rows.batch), count, texts)
        keys = groups.keys_of(rows.batch, self._strings)
        running = np.empty((count, groups.value_words), dtype=np.int64)
        former = self._former(keys)
        groups.update(self._manager, self._kept, texts, keys, arguments, mask, running)
        out = self._put_out(rows, keys, former, running)
        self._renew()
        return Output((out,), cause) if len(out.time_us) else NOTHING

    def _former(self, keys: np.ndarray) -> np.ndarray:
        """The accumulators of keys before a pass, int64 (n, v), zero where there are none yet; of
        no row if nobody asks for them.
        """
        return np.empty((0, self._groups.value_words), dtype=np.int64)

    def _put_out(
        self, rows: Rows, keys: np.ndarray, former: np.ndarray, running: np.ndarray
    ) -> Rows:
        """What comes out for rows, given their keys' accumulators before the pass and after each.

        It copies: results that wait do not keep the memory that the rows came in.
        """
        del former
        batch = self._batch(keys, running)
        return Rows(batch, rows.time_us.copy(), rows.order.copy(), rows.created_us)

    def closes_us(self, boundary_us: int) -> int:
        """None: results come with rows."""
        del boundary_us
        return BEGINNING_US

    def oldest_needed(self) -> np.ndarray | None:
        """The first tuple ever seen per stream; it never moves."""
        seen = self._first.read()
        return seen if len(seen) else None

    def adopt(self, others: Sequence[Operator], owns: Owns, streams: int) -> None:
        """Groups go to the instances that have their keys now."""
        groups, words = self._groups, self._groups.key_words
        for other in others:
            assert isinstance(other, RunningAggregate)
            entries = groups.taken_over(other._groups, other._kept.entries())
            keys = np.ascontiguousarray(entries[:, :words])
            entries = np.ascontiguousarray(entries[groups.owned(owns, keys, other._strings)])
            if self._strings is not None and other._strings is not None:
                at = groups.key_text_words
                entries[:, at] = moved(entries[:, at], other._strings, self._strings)
            if self._pages is not None and other._pages is not None:
                at = [words + word for word in groups.text_words]
                entries[:, at] = moved(entries[:, at], other._pages, self._pages)
            slots = self._kept.upsert_slots(np.ascontiguousarray(entries[:, :words]))
            self._kept.write_values(slots, np.ascontiguousarray(entries[:, words:]))
        self._first.write(np.full(streams, NO_ID, dtype=np.int64))  # The checkpoint has it.

    def check_invariants(self) -> None:
        """Raise `InvariantViolation` if the map makes no sense."""
        self._kept.check_invariants()

    def state_bytes(self) -> int:
        """Bytes of pages held."""
        pages = total_pages(self._kept, self._first, self._strings, self._texts)
        return pages * self._manager.page_bytes

    def state_rows(self) -> pa.Table:
        """The keys with their results so far."""
        entries, words = self._kept.entries(), self._groups.key_words
        keys, values = entries[:, :words], entries[:, words:]
        batch = self._batch(np.ascontiguousarray(keys), np.ascontiguousarray(values))
        return pa.Table.from_batches([batch])

    def _batch(self, keys: np.ndarray, values: np.ndarray) -> pa.RecordBatch:
        columns = self._groups.key_columns(keys, self._strings)
        columns += self._groups.result_columns(values, self._pages)
        return pa.RecordBatch.from_arrays(columns, schema=self._of_results)

    @property
    def _pages(self) -> StringPages | None:
        return None if self._texts is None else self._texts.pages

    def _renew(self) -> None:
        """Let go of strings that have been replaced."""
        if self._texts is None or not self._texts.is_due:
            return
        entries, words = self._kept.entries(), self._groups.key_words
        at = [words + word for word in self._groups.text_words]
        entries[:, at] = self._texts.renew(entries[:, at])
        slots = self._kept.lookup_slots(np.ascontiguousarray(entries[:, :words]))
        self._kept.write_values(slots, np.ascontiguousarray(entries[:, words:]))
