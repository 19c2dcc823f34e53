"""What a dataflow says of a Delta table as a sink, checked; and what is in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from holdfast.api.changelogs import upsert_keys
from holdfast.api.windows import duration_us
from holdfast.core.model.changes import without_changes
from holdfast.driver.packages import lacks
from holdfast.driver.table_sinks import TableSink
from holdfast.errors import DataflowError
from holdfast.shell.sinks.delta import DeltaSinkSpec, Progress, require_columns
from holdfast.shell.spark.arrow_schemas import from_arrow_schema
from holdfast.shell.storage.errors import BadName, SchemaMismatch
from holdfast.shell.storage.paths import check_url
from holdfast.shell.storage.places import is_remote, whole_place

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql import DataFrame, SparkSession

    from holdfast.api.steps import Changelog
    from holdfast.shell.sinks.claimed_table import Said


@dataclass(frozen=True, slots=True)
class DeltaSink(TableSink):
    """A Delta table to write.

    Attributes:
        table: A path or URL.
        schema: The columns.
        partition_by: Columns that it is partitioned by, if it has to be made.
        every_us: How late rows may appear.
        merge_every_us: How often small files are merged; None: never.
        upserts: As of `DeltaSinkSpec`.
        is_paired: As of `DeltaSinkSpec`.
    """

    table: str
    schema: pa.Schema
    partition_by: tuple[str, ...]
    every_us: int
    merge_every_us: int | None = None
    upserts: tuple[str, ...] | None = None
    is_paired: bool = True

    @property
    def place(self) -> str:
        """For messages."""
        return f"the Delta table {self.table}"

    def spec(self, sink: str, instance: int, place: str) -> DeltaSinkSpec:
        """What one instance writes."""
        stream, every_s = f"{sink}[{instance}]", self.every_us / 1e6
        merge_s = None if self.merge_every_us is None else self.merge_every_us / 1e6
        return DeltaSinkSpec(
            stream,
            self.table,
            self.schema,
            self.partition_by,
            place,
            every_s,
            None if instance else merge_s,  # It is one table.
            self.upserts,
            self.is_paired,
        )

    def __str__(self) -> str:
        """What a checkpoint location depends on; what happens how often may change."""
        by = f" by {list(self.partition_by)}" if self.partition_by else ""
        key = "" if self.upserts is None else f", upserts by {list(self.upserts)}"
        return f"{self.place}{by}{key}"

    # -- as a readable sink -----------------------------------------------------------------

    def read(self, name: str, spark: SparkSession, location: str, schema: pa.Schema) -> DataFrame:
        """All that the table holds now, whoever has written it; by way of the driver's memory."""
        del name, location
        schema = without_changes(schema)
        rows = self._opened().to_pyarrow_table().select(schema.names).cast(schema)
        return spark.createDataFrame(rows, from_arrow_schema(rows.schema))

    def _opened(self) -> DeltaTable:
        from deltalake import DeltaTable

        return DeltaTable(self.table)

    def _said(self, table: DeltaTable, name: str) -> Said:
        return Progress(name).said(table)


def delta_sink(
    path: str,
    *,
    schema: pa.Schema,
    partition_by: tuple[str, ...],
    every: str,
    merge_every: str | None = None,
    changelog: Changelog | None = None,
    key: tuple[str, ...] = (),
) -> DeltaSink:
    """The sink; arguments and errors as in `Stream.sink_delta`."""
    try:
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError
    except ImportError:
        raise lacks("sink_delta", "deltalake", "delta") from None
    if key and changelog is None:
        raise DataflowError(f"sink_delta(key={key!r}) is of changelogs; rows are only added")
    upserts = None if changelog is None else upsert_keys(changelog, key, f"the table {path}")
    schema = without_changes(schema)
    for name in partition_by:
        if name not in schema.names:
            raise DataflowError(f"no column {name!r}; there are {', '.join(schema.names)}")
    try:
        if is_remote(path):
            check_url(path)
    except BadName as error:
        raise DataflowError(str(error)) from None
    table = whole_place(path)
    try:
        if DeltaTable.is_deltatable(table):
            require_columns(DeltaTable(table), schema, table)
    except SchemaMismatch as error:
        raise DataflowError(str(error)) from None
    except (DeltaError, OSError) as error:
        raise DataflowError(f"{path} cannot be a Delta table: {error}") from None
    merge_every_us = None if merge_every is None else duration_us(merge_every)
    every_us, is_paired = duration_us(every), changelog is None or changelog.is_paired
    return DeltaSink(table, schema, partition_by, every_us, merge_every_us, upserts, is_paired)
