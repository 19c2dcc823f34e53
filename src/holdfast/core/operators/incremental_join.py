"""Inner join of everything that ever arrives on two inputs. Repeatable, without timeout. [HA §3.2]

All rows of both sides stay in pages for ever, so the operator needs its whole input to be rebuilt:
its low watermark is the first tuple ever seen. A pair is emitted when its later row arrives; pairs
are in the order of that row, then of the earlier row's insertion, so cuts into rounds don't show.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from holdfast.core.errors import InvariantViolation
from holdfast.core.model.ids import NO_ID
from holdfast.core.operators.base import (
    NOTHING,
    Operator,
    OperatorClass,
    Output,
    Owns,
    Rows,
    has_rows,
    merge_permutation,
)
from holdfast.core.operators.join import (
    SLOT_WORDS,
    JoinLayout,
    JoinRows,
    OutputField,
    find_pairs,
    stored_rows,
)
from holdfast.core.state.page_manager import PageManager
from holdfast.core.state.raw_page import RawPage
from holdfast.core.state.unordered_map import UnorderedMap


class IncrementalJoin(Operator):
    """Emits each pair of rows with equal keys once; a null key matches nothing."""

    operator_class = OperatorClass.REPEATABLE

    def __init__(
        self,
        name: str,
        left_schema: pa.Schema,
        right_schema: pa.Schema,
        left_keys: Sequence[str],
        right_keys: Sequence[str],
        fields: Sequence[OutputField],
        *,
        manager: PageManager | None = None,
    ) -> None:
        """Join port 0 (left) and port 1 (right).

        Args:
            name: Of the operator.
            left_schema: Of port 0.
            right_schema: Of port 1.
            left_keys: Key columns of port 0.
            right_keys: Key columns of port 1, in the same order.
            fields: Output columns: side, column, output name.
            manager: Where the state lives; an own one if None.

        Raises:
            LocalProtocolError: A column is missing, or key types differ.
        """
        self.name = name
        self._manager = manager if manager is not None else PageManager()
        self._layout = JoinLayout(
            name, (left_schema, right_schema), (left_keys, right_keys), fields
        )
        self._rows = JoinRows(self._manager, self._layout)
        self._keys = UnorderedMap(self._manager, self._layout.key_words, SLOT_WORDS)
        self._first = RawPage(self._manager)  # per stream the first id ever seen
        self.output_schema = pa.schema(self._layout.output_fields)

    def process(self, inputs: Sequence[Rows | None], low: np.ndarray, boundary_us: int) -> Output:
        """Store the rows, and emit their pairs; the time of a pair is that of its later tuple.

        Raises:
            StateLimitExceeded: The pages are used up.
        """
        present = [(side, rows) for side, rows in enumerate(inputs) if rows is not None]
        present = [(side, rows) for side, rows in present if has_rows(rows)]
        if not present:
            return NOTHING
        seen = self._first.read()
        cause = np.minimum(seen, low) if len(seen) else low.copy()
        self._first.write(cause)
        keys: list[np.ndarray] = []
        sides: list[np.ndarray] = []
        numbers: list[np.ndarray] = []
        is_null: list[np.ndarray] = []
        for side, rows in present:
            count = len(rows.time_us)
            first, words = self._rows.append(side, rows.batch, rows.time_us)
            keys.append(words)
            is_null.append(self._layout.key_packings[side].is_any_null(words))
            sides.append(np.full(count, side, dtype=np.uint8))
            numbers.append(np.arange(first, first + count, dtype=np.int64))
        permutation = merge_permutation([rows for _, rows in present])
        order = np.concatenate([rows.order for _, rows in present])[permutation]
        usable = ~np.concatenate(is_null)[permutation]
        slots = np.full(len(permutation), -1, dtype=np.int64)
        slots[usable] = self._keys.upsert_slots(np.concatenate(keys)[permutation][usable])
        pairs = find_pairs(
            self._manager,
            self._rows,
            self._keys.record_pages,
            slots,
            np.concatenate(sides)[permutation],
            np.concatenate(numbers)[permutation],
            is_outer=False,
        )
        if len(pairs) == 0:
            return NOTHING
        columns, time_us = self._rows.columns_of(pairs[:, 1], pairs[:, 2])
        batch = pa.RecordBatch.from_arrays(columns, schema=self.output_schema)
        created_us = max(rows.created_us for _, rows in present)
        return Output((Rows(batch, time_us, order[pairs[:, 0]], created_us),), cause)

    def oldest_needed(self) -> np.ndarray | None:
        """The first tuple ever seen per stream; it never moves."""
        seen = self._first.read()
        return seen if len(seen) else None

    def adopt(self, others: Sequence[Operator], owns: Owns, streams: int) -> None:
        """Rows go in the order of the instances that held them; their chains are linked anew."""
        for side in (0, 1) if others else ():
            parts = [
                self._rows.taken_over(other._rows, side, owns)
                for other in others
                if isinstance(other, IncrementalJoin)
            ]
            records = np.concatenate(parts)
            self._chain(side, records)
            self._rows.sides[side].append(records)
        self._first.write(np.full(streams, NO_ID, dtype=np.int64))  # The checkpoint has it.

    def _chain(self, side: int, records: np.ndarray) -> None:
        """Link all records of a side, each to the next of its key, and have the keys say so."""
        keys = np.ascontiguousarray(records[:, 2 : self._layout.row_at])
        numbers = np.flatnonzero(~self._layout.key_packings[side].is_any_null(keys))
        if not len(numbers):
            return
        slots = self._keys.upsert_slots(keys[numbers])
        order = np.argsort(slots, kind="stable")
        slots, numbers = slots[order], numbers[order]
        begins = np.flatnonzero(np.append(True, slots[1:] != slots[:-1]))
        ends = np.append(begins[1:], len(slots)) - 1
        links = np.append(numbers[1:] + 1, 0)
        links[ends] = 0
        records[numbers, 0] = links
        chains = self._keys.read_values(slots[begins])
        heads = np.stack([numbers[begins] + 1, numbers[ends] + 1, ends - begins + 1], axis=1)
        chains[:, 3 * side : 3 * side + 3] = heads
        self._keys.write_values(slots[begins], chains)

    def check_invariants(self) -> None:
        """Raise `InvariantViolation` if the map or the lists make no sense."""
        self._keys.check_invariants()
        self._rows.check_invariants()
        counts = self._keys.entries()[:, self._layout.key_words :]
        for side, rows in enumerate(self._rows.sides):
            if int(counts[:, 3 * side + 2].sum()) > len(rows):
                raise InvariantViolation(
                    f"{self.name}: more linked than stored rows on side {side}"
                )

    def state_bytes(self) -> int:
        """Bytes of pages held."""
        pages = self._rows.page_count + self._keys.page_count + self._first.page_count
        return pages * self._manager.page_bytes

    def state_rows(self) -> pa.Table:
        """All rows of both sides."""
        return stored_rows(self._layout, [self._rows])
