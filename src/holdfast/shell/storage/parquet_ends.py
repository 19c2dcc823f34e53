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


def group_is_kept(found: Any, group: int, schema: pa.Schema, pruning: KeepsNone | None) -> bool:
    """Whether somebody may keep a row of a group of a `ParquetFile`.

    Args:
        found: The file.
        group: Which one.
        schema: The columns of the stream.
        pruning: What leaves out groups; None: nothing does.
    """
    if pruning is None:
        return True
    own = {found.schema.column(number).path: number for number in range(len(found.schema))}
    ends: dict[str, pa.Array] = {}
    for name in pruning.columns:
        if name not in own or not _is_as_read(found.schema_arrow.field(name), schema.field(name)):
            continue
        column = found.metadata.row_group(group).column(own[name])
        said = _ends(column, schema.field(name).type)
        if said is not None:
            ends[name] = said
    return not pruning.keeps_none(ends)


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
