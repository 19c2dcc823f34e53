"""The smallest and the largest value of each group of rows, as a Parquet file says them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import pyarrow as pa


class KeepsNone(Protocol):
    """Knows of which groups of rows nobody keeps any."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns whose ends it looks at."""
        ...

    def keeps_none(self, ends: Mapping[str, pa.Array]) -> bool:
        """Whether nobody keeps a row of a group.

        Args:
            ends: Of columns, the smallest and the largest value, null in a group without any.
        """
        ...


def column_number(found: Any, name: str) -> int:
    """Which one of a `ParquetFile`'s columns has a name; -1: none has."""
    columns = (found.schema.column(number) for number in range(len(found.schema)))
    return next((number for number, each in enumerate(columns) if each.path == name), -1)


def groups_kept(found: Any, schema: pa.Schema, pruning: KeepsNone | None) -> list[bool]:
    """Of which groups of rows of a `ParquetFile` somebody may keep a row.

    Args:
        found: The file.
        schema: The columns of the stream.
        pruning: What leaves out groups; None: nothing does.
    """
    groups = range(found.metadata.num_row_groups)
    if pruning is None:
        return [True] * len(groups)
    own = {name: column_number(found, name) for name in pruning.columns}
    known = {
        name: number
        for name, number in own.items()
        if number >= 0 and _is_as_read(found.schema_arrow.field(name), schema.field(name))
    }

    def ends_in(group: int) -> dict[str, pa.Array]:
        columns = found.metadata.row_group(group)
        said = {n: _ends(columns.column(at), schema.field(n).type) for n, at in known.items()}
        return {name: ends for name, ends in said.items() if ends is not None}

    return [not pruning.keeps_none(ends_in(group)) for group in groups]


def _is_as_read(own: pa.Field, wanted: pa.Field) -> bool:
    """Whether a value is never lost, nor bad, on its way from a file's column to a stream's."""
    if pa.types.is_timestamp(own.type) and pa.types.is_timestamp(wanted.type):
        return own.type.unit in ("ms", "us")
    return bool(own.type == wanted.type)


def _ends(column: Any, of: pa.DataType) -> pa.Array | None:
    """The smallest and largest value of a column of a group; None: it does not say them."""
    said = column.statistics
    if said is None:
        return None
    if said.has_null_count and said.null_count == column.num_values:
        return pa.nulls(2, of)
    if not said.has_min_max:
        return None
    try:
        return pa.array([said.min, said.max]).cast(of)
    except (pa.ArrowException, ValueError, TypeError):
        return None  # A text that was cut off within a character, or a value of another type.
