"""Writes a stream into an Iceberg table; claimed_table.py says how.

What is said of a sink stream are properties of the table, which its commit sets with the snapshot
of its rows. Iceberg commits rows only if the table's main branch still has the snapshot that the
writer knows. A claim makes a snapshot, too, without rows: so whoever knows the one before it is
refused. What others do in between refuses a commit as well, which is then made again.

pyiceberg makes a refused commit again by itself, on top of what it finds then, without asking: a
zombie's rows would come into the table behind its successor's claim. How often it does that it
reads in the properties that the writer knows of the table. There the writer says: never. The
table's own property, by which others go, stays as it is.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from holdfast.core.model.ids import BEGINNING_US
from holdfast.shell.sinks.base import Waits
from holdfast.shell.sinks.claimed_table import (
    ClaimedTableWriter,
    Said,
    known_name,
    known_next_id,
    made_up_name,
    require_fitting,
)
from holdfast.shell.stores.base import StoreUnavailable

if TYPE_CHECKING:
    from pyiceberg.table import Table

_RETRIES: Final = "commit.retry.num-retries"
_WIDER: Final = {
    pa.int8(): pa.int32(),
    pa.int16(): pa.int32(),
    pa.large_string(): pa.string(),
    pa.large_binary(): pa.binary(),
}
"""Of types that tables do not have, and of those that pyiceberg reads, what is meant."""


@dataclass(frozen=True, slots=True)
class Catalog:
    """A catalog.

    Attributes:
        name: Its name; some keep tables under it.
        properties: How it is reached; what is configured on a machine is added.
    """

    name: str
    properties: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class IcebergSinkSpec:
    """One sink stream.

    Attributes:
        stream: Its name, e.g. `counts[0]`.
        table: Its name in the catalog.
        catalog: Which catalog.
        schema: The columns.
        place: A folder or URL for what is to be remembered of the sink.
        interval_s: From one commit to the next.
    """

    stream: str
    table: str
    catalog: Catalog
    schema: pa.Schema
    place: str
    interval_s: float

    def open(self, incarnation: int, closing: threading.Event, waits: Waits) -> IcebergSinkWriter:
        """Open it. Raises as `IcebergSinkWriter`."""
        del closing, waits
        return IcebergSinkWriter(self, incarnation)

    def settled(self) -> int:
        """See `OutsideSpec`; whatever was decided is in the table."""
        from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

        name, next_id = known_name(self.place), None
        with _errors(self), suppress(NoSuchNamespaceError, NoSuchTableError):
            if name is not None:
                next_id = Progress(name).said(opened(self.catalog, self.table)).next_id
        return known_next_id(self, next_id, IcebergSinkWriter.LOSSES)


class Progress:
    """What a table says of one sink stream."""

    def __init__(self, name: str) -> None:
        """Of the stream of this name, which no other location has."""
        self._next, self._owner, self._boundary = (
            f"{name}.{what}" for what in ("next", "incarnation", "boundary")
        )

    def said(self, table: Table) -> Said:
        """As far as the table is loaded."""
        known = table.metadata.properties
        next_id, boundary_us = known.get(self._next), known.get(self._boundary, BEGINNING_US)
        return Said(
            int(known.get(self._owner, -1)),
            None if next_id is None else int(next_id),
            int(boundary_us),
        )

    def properties(self, incarnation: int, next_id: int, boundary_us: int) -> dict[str, str]:
        """A commit's, which say all three."""
        return {
            self._owner: str(incarnation),
            self._next: str(next_id),
            self._boundary: str(boundary_us),
        }


class IcebergSinkWriter(ClaimedTableWriter):
    """Writes a sink stream as one incarnation; see `OutsideWriter`."""

    def __init__(self, spec: IcebergSinkSpec, incarnation: int) -> None:
        """Make the table if there is none, and claim the stream.

        Raises:
            LogSuperseded: A later incarnation has claimed it.
            SchemaMismatch: The table has other columns.
            StorageError: The table cannot be read or written, or has lost what it said.
        """
        super().__init__(spec, incarnation)
        self._spec = spec
        self._progress = Progress(made_up_name(spec.place, spec.stream))
        with _errors(spec):
            self._table = opened(spec.catalog, spec.table, spec.schema)
        require_columns(self._table, spec.schema, spec.table)
        self._claim()

    def _said(self) -> Said:
        with _errors(self._spec):
            self._table.refresh()
            return self._progress.said(self._table)

    def _is_committed(self, rows: pa.Table | None, next_id: int, boundary_us: int) -> bool:
        from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException

        said = self._progress.properties(self._incarnation, next_id, boundary_us)
        given = self._spec.schema.empty_table() if rows is None else rows
        wanted = pa.schema([(f.name, _WIDER.get(f.type, f.type)) for f in given.schema])
        self._table.metadata.properties[_RETRIES] = "0"  # See the module.
        with _errors(self._spec):
            try:
                with self._table.transaction() as transaction:
                    transaction.set_properties(said)
                    transaction.append(given.cast(wanted))
            except (CommitFailedException, CommitStateUnknownException):
                return False
        # A catalog may answer with what came after this commit, so that the next one would pass it.
        self._require_own(self._progress.said(self._table))
        return True


def opened(catalog: Catalog, table: str, schema: pa.Schema | None = None) -> Table:
    """A table of a catalog; with a schema, it is made if there is none."""
    from pyiceberg.catalog import load_catalog

    found = load_catalog(catalog.name, **catalog.properties)
    if schema is None:
        return found.load_table(table)
    found.create_namespace_if_not_exists(table.rpartition(".")[0])
    return found.create_table_if_not_exists(
        table, pa.schema([(f.name, _WIDER.get(f.type, f.type)) for f in schema])
    )


def require_columns(table: Table, schema: pa.Schema, name: str) -> None:
    """Raise `SchemaMismatch` unless the table has the columns."""
    require_fitting(_types(table.schema().as_arrow()), _types(schema), name)


def _types(schema: Any) -> dict[str, pa.DataType]:
    return {field.name: _WIDER.get(field.type, field.type) for field in schema}


@contextmanager
def _errors(spec: IcebergSinkSpec) -> Iterator[None]:
    """What the library raises, whose errors have no base; a replacement may not meet it again."""
    try:
        yield
    except Exception as error:
        raise StoreUnavailable(f"sink {spec.stream}: {spec.table}: {error}") from error
