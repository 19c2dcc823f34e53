"""What a dataflow says of an Iceberg table as a sink, checked; and what is in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from holdfast.api.expressions.types import name_of
from holdfast.api.windows import duration_us
from holdfast.core.model.nested_types import is_nested
from holdfast.driver.packages import lacks
from holdfast.driver.table_sinks import TableSink
from holdfast.errors import DataflowError, UnsupportedError
from holdfast.shell.sinks.iceberg import (
    Catalog,
    IcebergSinkSpec,
    Progress,
    opened,
    require_columns,
)
from holdfast.shell.spark.arrow_schemas import from_arrow_schema
from holdfast.shell.storage.errors import SchemaMismatch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyiceberg.table import Table
    from pyspark.sql import DataFrame, SparkSession

    from holdfast.shell.sinks.claimed_table import Said


@dataclass(frozen=True, slots=True)
class IcebergSink(TableSink):
    """An Iceberg table to write.

    Attributes:
        table: Its name in the catalog.
        catalog: Which catalog.
        schema: The columns.
        every_us: How late rows may appear.
    """

    table: str
    catalog: Catalog
    schema: pa.Schema
    every_us: int

    @property
    def place(self) -> str:
        """For messages."""
        return f"the Iceberg table {self.table}"

    def spec(self, sink: str, instance: int, place: str) -> IcebergSinkSpec:
        """What one instance writes."""
        stream, every_s = f"{sink}[{instance}]", self.every_us / 1e6
        return IcebergSinkSpec(stream, self.table, self.catalog, self.schema, place, every_s)

    def __str__(self) -> str:
        """What a checkpoint location depends on; how a catalog is reached may change."""
        return self.place

    # -- as a readable sink -----------------------------------------------------------------

    def read(self, name: str, spark: SparkSession, location: str, schema: pa.Schema) -> DataFrame:
        """All that the table holds now, whoever has written it; by way of the driver's memory."""
        del name, location
        rows = self._opened().scan().to_arrow().select(schema.names).cast(schema)
        return spark.createDataFrame(rows, from_arrow_schema(rows.schema))

    def _opened(self) -> Table:
        return opened(self.catalog, self.table)

    def _said(self, table: Table, name: str) -> Said:
        return Progress(name).said(table)


def iceberg_sink(
    table: str, *, catalog: str, properties: Mapping[str, str], schema: pa.Schema, every: str
) -> IcebergSink:
    """The sink; arguments and errors as in `Stream.sink_iceberg`."""
    try:
        from pyiceberg.exceptions import NoSuchTableError
    except ImportError:
        raise lacks("sink_iceberg", "pyiceberg", "iceberg") from None
    for field in schema:
        if is_nested(field.type):
            raise UnsupportedError(
                f"column {field.name!r} is {name_of(field.type)}, which sink_iceberg does not "
                "write; take sink_delta or sink_files, or to_json(...) of it"
            )
    if not table.rpartition(".")[0]:
        raise DataflowError(f"table={table!r} lacks its namespace, as in 'shop.orders'")
    found = Catalog(catalog, dict(properties))
    try:
        require_columns(opened(found, table), schema, table)
    except NoSuchTableError:
        pass
    except SchemaMismatch as error:
        raise DataflowError(str(error)) from None
    except Exception as error:  # pyiceberg's errors have no base.
        raise DataflowError(f"catalog of {table}: {error}") from error
    return IcebergSink(table, found, schema, duration_us(every))
