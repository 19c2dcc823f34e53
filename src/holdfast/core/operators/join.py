"""What both joins share: how rows are stored, matched and put together. [HA §3.2]"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

import numpy as np
import pyarrow as pa

from holdfast.core.errors import LocalProtocolError
from holdfast.core.model.schema import RecordPacking, column_of
from holdfast.core.model.stable_hash import is_text
from holdfast.core.operators.base import Owns
from holdfast.core.state import join_kernels
from holdfast.core.state.page_manager import PageManager, PageSetId
from holdfast.core.state.paged_list import PagedList
from holdfast.core.state.string_pages import StringPages, moved

Side = Literal["left", "right"]
_SIDES: Final = ("left", "right")
OutputField = tuple[Side, str, str]
"""Side, column, output name."""

SLOT_WORDS: Final = 6
"""Value words of a key: per side first record + 1, last record + 1, count."""
JOIN_PAGE_SETS: Final = 6
"""Page sets of `JoinRows`: two each for the strings and the two sides."""
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
