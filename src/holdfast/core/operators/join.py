"""What joins share: how rows are stored, matched and put together. [HA §3.2]"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import pyarrow as pa

from holdfast.core.errors import InvariantViolation, LocalProtocolError
from holdfast.core.model.schema import RecordPacking, column_of
from holdfast.core.model.stable_hash import is_text
from holdfast.core.operators.accumulators import WINDOW_TIME
from holdfast.core.operators.base import Owns, Rows, chosen, merge_permutation
from holdfast.core.state import join_kernels
from holdfast.core.state.page_manager import PageManager, PageSetId
from holdfast.core.state.paged_list import PagedList
from holdfast.core.state.string_pages import StringPages, moved
from holdfast.core.state.unordered_map import UnorderedMap

Side = Literal["left", "right"]
_SIDES: Final = ("left", "right")
OutputField = tuple[Side, str, str]
"""Side, column, output name."""

SLOT_WORDS: Final = 6
"""Value words of a key: per side first record + 1, last record + 1, count."""
JOIN_PAGE_SETS: Final = 6
"""Page sets of `JoinRows`: two each for the strings and the two sides."""
MATCHER_PAGE_SETS: Final = JOIN_PAGE_SETS + 2
"""Page sets of `Matcher`: those of its rows, and two for the keys."""
_PAIRS_FIRST: Final = 1 << 10


class JoinLayout:
    """The fixed part of a join: keys, record layout and output fields.

    A stored record is: link to the next record of its key, tuple time, key words, row words.
    """

    def __init__(
        self,
        name: str,
        schemas: tuple[pa.Schema, pa.Schema],
        keys: tuple[Sequence[str], Sequence[str]],
        fields: Sequence[OutputField],
    ) -> None:
        """Check and lay out.

        Raises:
            LocalProtocolError: A column is missing, or the keys' types do not match.
        """
        self.name = name
        self.schemas = schemas
        if len(keys[0]) != len(keys[1]) or not keys[0]:
            raise LocalProtocolError(f"{name}: as many left as right keys needed, at least one")
        self.key_columns: list[list[int]] = []
        for schema, names in zip(schemas, keys, strict=True):
            for column in names:
                if schema.get_field_index(column) < 0:
                    raise LocalProtocolError(f"{name}: key {column} is not in {schema.names}")
            self.key_columns.append([schema.get_field_index(column) for column in names])
        for left, right in zip(*self.key_columns, strict=True):
            kinds = schemas[0].field(left).type, schemas[1].field(right).type
            if not _is_comparable(*kinds):
                raise LocalProtocolError(f"{name}: keys of types {kinds[0]} and {kinds[1]}")
        self.key_packings = [
            RecordPacking([schema.field(c).type for c in columns], is_key=True)
            for schema, columns in zip(schemas, self.key_columns, strict=True)
        ]
        self.row_packings = [RecordPacking(schema.types) for schema in schemas]
        self.key_words = self.key_packings[0].width
        self.row_at = 2 + self.key_words
        self.widths = [self.row_at + packing.width for packing in self.row_packings]
        self.fields: list[tuple[int, int]] = []
        output: list[pa.Field] = []
        for side, column, new_name in fields:
            number = 0 if side == "left" else 1
            index = schemas[number].get_field_index(column)
            if index < 0:
                raise LocalProtocolError(f"{name}: {side} column {column} does not exist")
            self.fields.append((number, index))
            output.append(pa.field(new_name, schemas[number].field(index).type))
        self.output_fields = output

    def with_keys(self, side: int, rows: Rows) -> Rows:
        """Without the rows that match nothing, as something in their key is null."""
        columns = [rows.batch.column(c) for c in self.key_columns[side]]
        nulls = [column.is_null() for column in columns if column.null_count]
        if not nulls:
            return rows
        is_null = np.any([null.to_numpy(zero_copy_only=False) for null in nulls], axis=0)
        return chosen(rows, np.flatnonzero(~is_null))


class JoinRows:
    """The stored rows of both sides, and their strings; all in pages."""

    def __init__(
        self,
        manager: PageManager,
        layout: JoinLayout,
        page_sets: tuple[PageSetId, ...] | None = None,
    ) -> None:
        """Empty, or as a checkpoint holds them in `JOIN_PAGE_SETS` page sets."""
        parts = [page_sets[i : i + 2] if page_sets else None for i in range(0, JOIN_PAGE_SETS, 2)]
        self._layout = layout
        self.strings = StringPages(manager, parts[0])
        self.sides = [PagedList(manager, layout.widths[i], parts[1 + i]) for i in range(2)]

    @property
    def page_sets(self) -> tuple[PageSetId, ...]:
        """Its page sets."""
        return self.strings.page_sets + self.sides[0].page_sets + self.sides[1].page_sets

    @property
    def page_count(self) -> int:
        """How many pages it takes."""
        return self.strings.page_count + sum(side.page_count for side in self.sides)

    def append(
        self, side: int, batch: pa.RecordBatch, time_us: np.ndarray
    ) -> tuple[int, np.ndarray]:
        """Store rows; returns the number of the first, and the key words, int64 (n, k)."""
        layout = self._layout
        records = np.zeros((batch.num_rows, layout.widths[side]), dtype=np.int64)
        records[:, 1] = time_us
        keys = records[:, 2 : layout.row_at]
        columns = batch.columns
        layout.key_packings[side].pack(
            [columns[c] for c in layout.key_columns[side]], self.strings, keys
        )
        layout.row_packings[side].pack(columns, self.strings, records[:, layout.row_at :])
        return self.sides[side].append(records), keys

    def taken_over(self, other: JoinRows, side: int, owns: Owns) -> np.ndarray:
        """Records of another store that are one's own, unlinked, with strings of this one."""
        layout = self._layout
        records = other.sides[side].scan()
        key_packing, row_packing = layout.key_packings[side], layout.row_packings[side]
        keys = np.ascontiguousarray(records[:, 2 : layout.row_at])
        records = np.ascontiguousarray(records[owns(key_packing.unpack(keys, other.strings))])
        records[:, 0] = 0
        at = [2 + word for word in key_packing.text_words]
        at += [layout.row_at + word for word in row_packing.text_words]
        if at:
            records[:, at] = moved(records[:, at], other.strings, self.strings)
        return records

    def columns_of(self, left: np.ndarray, right: np.ndarray) -> tuple[list[pa.Array], np.ndarray]:
        """Output columns of pairs of record numbers (-1: no row, nulls), and the later time."""
        layout = self._layout
        records = [self.sides[0].gather(left), self.sides[1].gather(right)]
        absent = right < 0
        rows = [part[:, layout.row_at :] for part in records]
        rows[1][absent, : layout.row_packings[1].null_words] = -1
        columns = [
            layout.row_packings[side].unpack_column(rows[side], c, self.strings)
            for side, c in layout.fields
        ]
        time_us = np.where(absent, records[0][:, 1], np.maximum(records[0][:, 1], records[1][:, 1]))
        return columns, time_us

    def destroy(self) -> None:
        """Release the pages."""
        self.strings.destroy()
        for side in self.sides:
            side.destroy()

    def check_invariants(self) -> None:
        """Raise `InvariantViolation` if a list makes no sense."""
        for side in self.sides:
            side.check_invariants()


@dataclass(frozen=True, slots=True)
class Matches:
    """Pairs of rows.

    Attributes:
        columns: The output columns.
        time_us: int64 (n,), tuple time of the later row.
        order: int64 (n,), that of the row which came last.
    """

    columns: list[pa.Array]
    time_us: np.ndarray
    order: np.ndarray


class Matcher:
    """Pairs each row that comes with those of the other side that came before; all in pages.

    Pairs are in the order of the row that came last, then of the earlier row's insertion, so cuts
    into passes don't show.
    """

    def __init__(
        self,
        manager: PageManager,
        layout: JoinLayout,
        page_sets: tuple[PageSetId, ...] | None = None,
    ) -> None:
        """Empty, or as a checkpoint holds it in `MATCHER_PAGE_SETS` page sets."""
        self._manager = manager
        self._layout = layout
        self.rows = JoinRows(manager, layout, page_sets and page_sets[:JOIN_PAGE_SETS])
        keys = page_sets and (page_sets[JOIN_PAGE_SETS], page_sets[JOIN_PAGE_SETS + 1])
        self._keys = UnorderedMap(manager, layout.key_words, SLOT_WORDS, keys)

    @property
    def page_sets(self) -> tuple[PageSetId, ...]:
        """Its page sets."""
        return self.rows.page_sets + self._keys.page_sets

    @property
    def page_count(self) -> int:
        """How many pages it takes."""
        return self.rows.page_count + self._keys.page_count

    def add(self, present: Sequence[tuple[int, Rows]]) -> Matches | None:
        """Store rows, (side, rows) with at least one each, all with keys; None: no match.

        Raises:
            StateLimitExceeded: The pages are used up.
        """
        keys: list[np.ndarray] = []
        sides: list[np.ndarray] = []
        numbers: list[np.ndarray] = []
        for side, rows in present:
            count = len(rows.time_us)
            first, words = self.rows.append(side, rows.batch, rows.time_us)
            keys.append(words)
            sides.append(np.full(count, side, dtype=np.uint8))
            numbers.append(np.arange(first, first + count, dtype=np.int64))
        permutation = merge_permutation([rows for _, rows in present])
        order = np.concatenate([rows.order for _, rows in present])[permutation]
        slots = self._keys.upsert_slots(np.concatenate(keys)[permutation])
        pairs = find_pairs(
            self._manager,
            self.rows,
            self._keys.record_pages,
            slots,
            np.concatenate(sides)[permutation],
            np.concatenate(numbers)[permutation],
            is_outer=False,
        )
        if len(pairs) == 0:
            return None
        columns, time_us = self.rows.columns_of(pairs[:, 1], pairs[:, 2])
        return Matches(columns, time_us, order[pairs[:, 0]])

    def take_over(self, others: Sequence[Matcher], owns: Owns) -> None:
        """Store what is one's own of others, into an empty one: rows go in the order of those that
        held them, and their chains are linked anew.
        """
        for side in (0, 1) if others else ():
            records = np.concatenate(
                [self.rows.taken_over(other.rows, side, owns) for other in others]
            )
            self._chain(side, records)
            self.rows.sides[side].append(records)

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

    def destroy(self) -> None:
        """Release the pages."""
        self.rows.destroy()
        self._keys.destroy()

    def check_invariants(self) -> None:
        """Raise `InvariantViolation` if the map or the lists make no sense."""
        self._keys.check_invariants()
        self.rows.check_invariants()
        counts = self._keys.entries()[:, self._layout.key_words :]
        for side, rows in enumerate(self.rows.sides):
            if int(counts[:, 3 * side + 2].sum()) > len(rows):
                raise InvariantViolation(
                    f"{self._layout.name}: more linked than stored rows on side {side}"
                )


def find_pairs(
    manager: PageManager,
    rows: JoinRows,
    key_pages: np.ndarray,
    slots: np.ndarray,
    sides: np.ndarray,
    numbers: np.ndarray,
    *,
    is_outer: bool,
) -> np.ndarray:
    """Link rows into their keys' chains in this order, and pair each with those linked before.

    Args:
        manager: Of the pages.
        rows: Where the records are.
        key_pages: Page table of the keys' records.
        slots: Per row the logical address of its key's `SLOT_WORDS`, -1 for a null key.
        sides: uint8, 0 left, 1 right.
        numbers: Record numbers.
        is_outer: Whether a left row without match is paired with -1.

    Returns:
        int64 (pairs, 3): row, left record, right record; by row, then by the partner's number.
    """
    found: list[np.ndarray] = []
    pairs = np.empty((max(_PAIRS_FIRST, 2 * len(slots)), 3), dtype=np.int64)
    done = 0
    while True:
        begun = done
        manager.make_room()
        done, written = join_kernels.join_pairs(
            manager.arena,
            manager.marks,
            manager.free,
            manager.shift,
            key_pages,
            rows.sides[0].pages,
            rows.sides[1].pages,
            rows.sides[0].width,
            np.array([rows.sides[1].width], dtype=np.int64),
            slots,
            sides,
            numbers,
            done,
            is_outer,
            pairs,
        )
        found.append(pairs[:written].copy())
        if done == len(slots):
            return found[0] if len(found) == 1 else np.concatenate(found)
        if done == begun:  # There was room for clones, so what one row needs is a larger buffer.
            pairs = np.empty((2 * len(pairs), 3), dtype=np.int64)


def window_columns(start_us: int, size_us: int, count: int) -> list[pa.Array]:
    """The columns `WINDOW_FIELDS` of so many rows of one window."""
    starts = np.full(count, start_us, dtype=np.int64)
    return [column_of(starts, None, WINDOW_TIME), column_of(starts + size_us, None, WINDOW_TIME)]


def stored_rows(layout: JoinLayout, parts: Sequence[JoinRows]) -> pa.Table:
    """What waits in a join: `side`, tuple time, and the columns of both sides, one of them null."""
    tables: list[pa.Table] = []
    for rows in parts:
        for side, schema in enumerate(layout.schemas):
            records = rows.sides[side].scan()
            columns = layout.row_packings[side].unpack(
                np.ascontiguousarray(records[:, layout.row_at :]), rows.strings
            )
            names = [f"{_SIDES[side]}_{name}" for name in schema.names]
            time = column_of(records[:, 1], None, pa.timestamp("us", tz="UTC"))
            mark = pa.array([_SIDES[side]] * len(records), type=pa.string())
            tables.append(pa.table([mark, time, *columns], names=["side", "tuple_time", *names]))
    return pa.concat_tables(tables, promote_options="default") if tables else pa.table({})


def _is_comparable(left: pa.DataType, right: pa.DataType) -> bool:
    t = pa.types
    return bool(
        left == right
        or (t.is_integer(left) and t.is_integer(right))
        or (t.is_floating(left) and t.is_floating(right))
        or (is_text(left) and is_text(right))
    )
