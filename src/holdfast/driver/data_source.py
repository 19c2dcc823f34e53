"""`format("holdfast")` as users have it: logs, and the tables that inspection makes of a location.

The shell's source reads logs and writes them. Three options give no log but a table: `state`, which
checkpoints hold, `footprints`, which replacements would begin with, and `table`, which the changes
of a changelog come to. A table is one partition.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceReader, InputPartition

from holdfast.core.model.changes import CHANGE_COLUMN, COMES, without_changes
from holdfast.core.model.nested_types import is_nested
from holdfast.shell.spark.arrow_schemas import from_arrow_schema, to_arrow_schema
from holdfast.shell.spark.data_source import LogSource, checked
from holdfast.shell.storage.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql.types import StructType


class HoldfastSource(LogSource):
    """See the module."""

    def schema(self) -> StructType:
        """The columns that these options give."""
        options = checked(self.options)
        if "table" in options:
            changes = to_arrow_schema(super().schema())
            return from_arrow_schema(without_changes(_required(options, changes)))
        table = table_of(options)
        return super().schema() if table is None else from_arrow_schema(table.schema)

    def reader(self, schema: StructType) -> DataSourceReader:
        """For `spark.read`."""
        options = checked(self.options)
        if "table" in options:
            changes = super().schema()
            return _ChangesReader(super().reader(changes), to_arrow_schema(changes))
        if not has_table(options):
            return super().reader(schema)
        return _TableReader(options, to_arrow_schema(schema))


class _TableReader(DataSourceReader):
    def __init__(self, options: dict[str, str], schema: pa.Schema) -> None:
        self._options, self._schema = options, schema

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        table = table_of(self._options)
        if table is not None:
            yield from table.cast(self._schema).to_batches()


class _ChangesReader(DataSourceReader):
    """The rows that there are by the changes that a reader gives."""

    def __init__(self, changes: DataSourceReader, schema: pa.Schema) -> None:
        self._changes, self._schema = changes, schema

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        parts = self._changes.partitions()
        found: Any = [batch for part in parts for batch in self._changes.read(part)]
        yield from rows_there(pa.Table.from_batches(found, self._schema)).to_batches()


def rows_there(changes: pa.Table) -> pa.Table:
    """The rows that came, less those that went; each as often as it is there.

    Args:
        changes: A changelog, in any order.
    """
    kinds = changes.column(CHANGE_COLUMN)
    rows = changes.drop_columns([CHANGE_COLUMN])
    names = list(rows.schema.names)
    comes = pc.is_in(kinds, pa.array(COMES))
    signed = rows.append_column(CHANGE_COLUMN, pc.if_else(comes, 1, -1))
    counted = signed.group_by(names, use_threads=False).aggregate([(CHANGE_COLUMN, "sum")])
    counts = counted.column(f"{CHANGE_COLUMN}_sum").to_numpy().clip(0)
    return counted.select(names).take(np.repeat(np.arange(counted.num_rows), counts))


def _required(options: Mapping[str, str], schema: pa.Schema) -> pa.Schema:
    """The columns of a log. Raises `StorageError` if no table can be made of it."""
    what = f"option table: {options.get('stream', options['path'])}"
    if other := [each for each in ("metadata", "types", "late") if each in options]:
        raise StorageError(f"options table and {other[0]}: give one")
    if schema.names[-1:] != [CHANGE_COLUMN]:
        raise StorageError(f"{what} is no changelog, as it has no column {CHANGE_COLUMN!r}")
    nested = [field.name for field in schema if is_nested(field.type)]
    if nested:
        raise StorageError(
            f"{what} has nested columns ({', '.join(nested)}); read the changes, or have "
            "query.to_dataframe(as_table=True)"
        )
    return schema


def has_table(options: Mapping[str, str]) -> bool:
    """Whether they name a table, and no log."""
    return "state" in options or "footprints" in options


def table_of(options: Mapping[str, str]) -> pa.Table | None:
    """What checkpoints hold, or footprints are worth; None: the options name a log."""
    if "footprints" in options:
        from holdfast.driver.footprint_inspection import footprint_table

        return footprint_table(options["path"])
    if "state" in options:
        from holdfast.driver.inspection import Inspection

        return Inspection(options["path"]).state(options["state"])
    return None
