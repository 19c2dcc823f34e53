"""`format("holdfast")` as users have it: logs, and the tables that inspection makes of a location.

The shell's source reads logs and writes them. Two options name no log but a table: `state`, which
checkpoints hold, and `footprints`, which replacements would begin with. A table is one partition.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from holdfast.shell.spark.arrow_schemas import from_arrow_schema, to_arrow_schema
from holdfast.shell.spark.data_source import LogSource, checked

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType


class HoldfastSource(LogSource):
    """See the module."""

    def schema(self) -> StructType:
        """The columns that these options give."""
        table = table_of(checked(self.options))
        return super().schema() if table is None else from_arrow_schema(table.schema)

    def reader(self, schema: StructType) -> DataSourceReader:
        """For `spark.read`."""
        options = checked(self.options)
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
