"""`format("holdfast")` as users have it: logs, and the tables that inspection makes of a location.

The shell's source reads logs and writes them. Three options give no log but a table: `state`, which
checkpoints hold, `footprints`, which replacements would begin with, and `table`, which the changes
of a changelog come to, or rows that replace each other by a key. A table is one partition.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceReader, InputPartition

from holdfast.core.model.changes import CHANGE_COLUMN, COMES, without_changes
from holdfast.core.model.nested_types import is_nested
from holdfast.driver.sink_keys import sink_keys_at
from holdfast.shell.spark.arrow_schemas import from_arrow_schema, to_arrow_schema
from holdfast.shell.spark.data_source import LogSource, checked
from holdfast.shell.spark.pushed_filters import PARTITION, TUPLE_ID
from holdfast.shell.storage.errors import StorageError
from holdfast.shell.storage.places import local_path

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql.types import StructType


class HoldfastSource(LogSource):
    """See the module."""

    def schema(self) -> StructType:
        """The columns that these options give."""
        options = checked(self.options)
        if "table" in options:
            log = to_arrow_schema(super().schema())
            keys = _required(options, log)
            return from_arrow_schema(without_changes(log) if keys is None else log)
        table = table_of(options)
        return super().schema() if table is None else from_arrow_schema(table.schema)

    def reader(self, schema: StructType) -> DataSourceReader:
        """For `spark.read`."""
        options = checked(self.options)
        if "table" in options:
            log = super().schema()
            keys = _required(options, to_arrow_schema(log))
            if keys is None:
                return _ChangesReader(super().reader(log), to_arrow_schema(log))
            return _NewestReader(options, keys)
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


class _NewestReader(DataSourceReader):
    """Of the rows of a log that are equal in some columns the newest one."""

    def __init__(self, options: Mapping[str, str], keys: Sequence[str]) -> None:
        given = {name: value for name, value in options.items() if name != "table"}
        self._keys, self._options = keys, {**given, "metadata": "true"}

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        log = LogSource(self._options)
        schema = log.schema()
        rows = log.reader(schema)
        found: Any = [batch for part in rows.partitions() for batch in rows.read(part)]
        table = pa.Table.from_batches(found, to_arrow_schema(schema))
        yield from newest_rows(table, self._keys).to_batches()


def newest_rows(rows: pa.Table, keys: Sequence[str]) -> pa.Table:
    """The newest one of all rows that are equal in some columns; nulls are equal.

    Args:
        rows: Of a log with its metadata, those of a partition in order.
        keys: The columns; none: the newest of all.

    Raises:
        StorageError: Rows of one key are in several partitions, so that nobody knows which is the
            newest.
    """
    own = [name for name in rows.schema.names if name not in (PARTITION, TUPLE_ID, "_time")]
    columns = [rows.column(name) for name in keys] or [pa.nulls(rows.num_rows, pa.int8())]
    columns += [rows.column(PARTITION), pa.array(np.arange(rows.num_rows))]
    names = [f"k{number}" for number in range(len(columns) - 2)]
    grouped = pa.table(columns, names=[*names, "of", "at"]).group_by(names, use_threads=False)
    found = grouped.aggregate([("at", "max"), ("of", "min"), ("of", "max")])
    if pc.any(pc.not_equal(found.column("of_min"), found.column("of_max"))).as_py():
        raise StorageError(
            "option table: rows of one key are in several streams of the sink, as after rescaling, "
            "so nobody knows which is the newest; read all rows"
        )
    return rows.select(own).take(np.sort(found.column("at_max").to_numpy()))


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


def _required(options: Mapping[str, str], schema: pa.Schema) -> tuple[str, ...] | None:
    """The columns by which rows of a log replace each other; None: it is a changelog.

    Raises:
        StorageError: No table can be made of it.
    """
    stream = options.get("stream")
    what = f"option table: {stream or options['path']}"
    if other := [each for each in ("metadata", "types", "late") if each in options]:
        raise StorageError(f"options table and {other[0]}: give one")
    if schema.names[-1:] == [CHANGE_COLUMN]:
        if nested := [field.name for field in schema if is_nested(field.type)]:
            raise StorageError(
                f"{what} has nested columns ({', '.join(nested)}); read the changes, or have "
                "query.to_dataframe(as_table=True)"
            )
        return None
    keys = sink_keys_at(local_path(options["path"])).get(stream) if stream else None
    if keys is None or not {*keys} <= {*schema.names}:
        raise StorageError(
            f"{what} is no changelog, as it has no column {CHANGE_COLUMN!r}, and no key is known "
            "by which its rows replace each other: such are those of an aggregate with "
            "emit='changes', or mode='update', in option('stream', ...), if nothing stands behind "
            "it but a select that keeps its key"
        )
    if nested := [name for name in keys if is_nested(schema.field(name).type)]:
        raise StorageError(f"{what} has nested columns in its key ({', '.join(nested)})")
    return keys


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
