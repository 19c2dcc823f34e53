"""Aggregates per key of everything there is now, as a changelog. Deterministic. [HA §3.2]

A row of the input may add to its key or take something away; its own aggregates say what. One more
accumulator, the presence, says whether a key has a result: it is above zero. After each row

| had a result | has one | comes out                                              |
| ------------ | ------- | ------------------------------------------------------ |
| no           | yes     | `insert` of the result                                 |
| yes          | yes     | `update_before` of the former one, then `update_after` |
| yes          | no      | `delete` of the former one                             |
| no           | no      | nothing                                                |

The two rows of an update have the place of the row that they come of. What comes out for a row
depends on the rows before it alone, not on how they are cut into passes. State is that of
`RunningAggregate`; keys that have no result any more are kept, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.core.model.changes import CHANGE_FIELD, CHANGES
from holdfast.core.operators.accumulators import Aggregate, AggregateFunction
from holdfast.core.operators.base import Evaluator, Rows
from holdfast.core.operators.running_aggregate import RunningAggregate
from holdfast.core.state.page_manager import PageManager

_WORDS: Final = pa.array(CHANGES, pa.string())
_INSERT, _BEFORE, _AFTER, _DELETE = range(len(CHANGES))


class ChangingAggregate(RunningAggregate):
    """How the result of a key changes with each of its rows."""

    def __init__(
        self,
        name: str,
        schema: pa.Schema,
        keys: Sequence[str],
        aggregates: Sequence[Aggregate | tuple[AggregateFunction, Evaluator | None, str]],
        presence: Aggregate | tuple[AggregateFunction, Evaluator | None, str],
        *,
        manager: PageManager | None = None,
    ) -> None:
        """Aggregate rows of `schema`.

        Args:
            name: Of the operator.
            schema: Of the input.
            keys: As of `RunningAggregate`.
            aggregates: As there.
            presence: A whole number; a key has a result while it is above zero.
            manager: Where the state lives; an own one if None.

        Raises:
            LocalProtocolError: As `Accumulators`.
        """
        super().__init__(name, schema, keys, [*aggregates, presence], manager=manager)
        self._results = pa.schema(self._groups.fields[:-1])
        self.output_schema = self._results.append(CHANGE_FIELD)

    def _former(self, keys: np.ndarray) -> np.ndarray:
        """See there: everybody's are asked for."""
        slots = self._kept.lookup_slots(keys)
        is_known = slots >= 0
        former = np.zeros((len(keys), self._groups.value_words), dtype=np.int64)
        former[is_known] = self._kept.read_values(slots[is_known])
        return former

    def _put_out(
        self, rows: Rows, keys: np.ndarray, former: np.ndarray, running: np.ndarray
    ) -> Rows:
        """The changes, in the order of their rows."""
        before = self._before_each(keys, former, running)
        was, now = self._is_present(before), self._is_present(running)
        of = np.concatenate([np.flatnonzero(was), np.flatnonzero(now)])
        is_after = np.arange(len(of)) >= np.count_nonzero(was)
        turn = np.lexsort((is_after, of))
        of, is_after = of[turn], is_after[turn]
        values = np.where(is_after[:, np.newaxis], running[of], before[of])
        is_update = was[of] & now[of]
        kinds = np.where(
            is_after, np.where(is_update, _AFTER, _INSERT), np.where(is_update, _BEFORE, _DELETE)
        )
        results = self._batch(np.ascontiguousarray(keys[of]), np.ascontiguousarray(values))
        columns = [*results.columns[: len(self._results)], _WORDS.take(pa.array(kinds))]
        batch = pa.RecordBatch.from_arrays(columns, schema=self.output_schema)
        return Rows(batch, rows.time_us[of], rows.order[of], rows.created_us)

    def _before_each(self, keys: np.ndarray, former: np.ndarray, running: np.ndarray) -> np.ndarray:
        """The accumulators of each row's key before it, int64 (n, v)."""
        groups = self._kept.lookup_slots(keys)
        turn = np.argsort(groups, kind="stable")
        is_next = groups[turn[1:]] == groups[turn[:-1]]
        before = former
        before[turn[1:][is_next]] = running[turn[:-1][is_next]]
        return before

    def _is_present(self, values: np.ndarray) -> np.ndarray:
        counts = self._groups.result_columns(values, self._pages)[-1]
        present: np.ndarray = pc.fill_null(counts, 0).to_numpy(zero_copy_only=False) > 0
        return present

    def state_rows(self) -> pa.Table:
        """The keys that have a result, with it."""
        table = super().state_rows()
        is_present = pc.greater(pc.fill_null(table.column(table.num_columns - 1), 0), 0)
        return table.filter(is_present).select(self._results.names)
