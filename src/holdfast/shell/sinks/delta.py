"""Writes a stream into a Delta table: each commit says which tuples it holds, and who made it.

A commit of a Delta table may carry *application transactions*: names with a number each, which the
table keeps with its rows. A sink stream has three of them: the id of its next tuple, the
incarnation that has claimed it, and the time before which nothing follows. Whoever opens the sink

1. reads which incarnation has claimed it, and ends if that is a later one;
2. commits its own incarnation, without rows. If somebody else commits the same names at that moment
   the table refuses one of the two, which begins again;
3. goes on with the id that the table names.

Every further commit holds rows, and all three numbers. The table refuses it if, since the version
that the writer knows, somebody else has committed these names; what others do with the table does
not matter. So a zombie cannot add rows, and a commit whose answer was lost is found by its number.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from holdfast.core.model.ids import BEGINNING_US, END_US
from holdfast.core.wire.sealed_json import encode_sealed
from holdfast.shell.sinks.base import Waits
from holdfast.shell.sinks.collecting import CollectingWriter
from holdfast.shell.sinks.delta_merging import Merging
from holdfast.shell.storage.errors import LogSuperseded, SchemaMismatch, StorageError
from holdfast.shell.storage.places import put_or_read, read_if_any, store_at
from holdfast.shell.storage.small_files import decode
from holdfast.shell.stores.base import StoreUnavailable

if TYPE_CHECKING:
    from deltalake import DeltaTable

_NAME_FILE: Final = "sink.json"
_WRITTEN_FILE: Final = "written"
_RETRIES: Final = 10


@dataclass(frozen=True, slots=True)
class DeltaSinkSpec:
    """One sink stream.

    Attributes:
        stream: Its name, e.g. `counts[0]`.
        table: A path or URL.
        schema: The columns.
        partition_by: Columns that the table is partitioned by, if it has to be made.
        place: A folder or URL for what is to be remembered of the sink.
        interval_s: From one commit to the next.
        merge_s: From one merging of small files to the next; None: others do it.
    """

    stream: str
    table: str
    schema: pa.Schema
    partition_by: tuple[str, ...]
    place: str
    interval_s: float
    merge_s: float | None = None

    def open(self, incarnation: int, closing: threading.Event, waits: Waits) -> DeltaSinkWriter:
        """Open it. Raises as `DeltaSinkWriter`."""
        del closing, waits
        return DeltaSinkWriter(self, incarnation)


class Progress:
    """What a table says of one sink stream."""

    def __init__(self, name: str) -> None:
        """Of the stream of this name, which no other location has."""
        self._next, self._owner, self._boundary = (
            f"{name}/{what}" for what in ("next", "incarnation", "boundary")
        )

    def next_id(self, table: DeltaTable) -> int | None:
        """The id of the tuple that comes next; None: the table has nothing of the stream."""
        return table.transaction_version(self._next)

    def incarnation(self, table: DeltaTable) -> int:
        """Who has claimed the stream; -1: nobody."""
        found = table.transaction_version(self._owner)
        return -1 if found is None else found

    def boundary_us(self, table: DeltaTable) -> int:
        """Nothing older follows."""
        found = table.transaction_version(self._boundary)
        return BEGINNING_US if found is None else found

    def properties(self, incarnation: int, next_id: int, boundary_us: int) -> Any:
        """A commit's, which say all three."""
        from deltalake import CommitProperties, Transaction

        said = [Transaction(self._owner, incarnation), Transaction(self._next, next_id)]
        if boundary_us >= 0:  # Others are not told: nothing is promised then.
            said.append(Transaction(self._boundary, boundary_us))
        return CommitProperties(app_transactions=said, max_commit_retries=_RETRIES)


class DeltaSinkWriter(CollectingWriter):
    """Writes a sink stream as one incarnation; see `OutsideWriter`."""

    def __init__(self, spec: DeltaSinkSpec, incarnation: int) -> None:
        """Make the table if there is none, and claim the stream.

        Raises:
            LogSuperseded: A later incarnation has claimed it.
            SchemaMismatch: The table has other columns.
            StorageError: The table cannot be read or written, or has lost what it said.
        """
        super().__init__(spec.stream, spec.interval_s)
        self._spec = spec
        self._incarnation = incarnation
        self._merging = None if spec.merge_s is None else Merging(spec.table, spec.merge_s)
        self._progress = Progress(made_up_name(spec.place, spec.stream))
        with _errors(spec):
            self._table = self._opened()
        require_columns(self._table, spec.schema, spec.table)
        self._claim()

    def _opened(self) -> DeltaTable:
        from deltalake import DeltaTable

        spec = self._spec
        # Of several that make it at once one does; the others find it.
        return DeltaTable.create(
            spec.table, schema=spec.schema, mode="ignore", partition_by=list(spec.partition_by)
        )

    def _claim(self) -> None:
        while True:
            with _errors(self._spec):
                self._table.update_incremental()
                found = self._progress.incarnation(self._table)
                next_id = self._progress.next_id(self._table)
                boundary_us = self._progress.boundary_us(self._table)
            if found >= self._incarnation:
                raise LogSuperseded(f"sink {self._spec.stream}: incarnation {found} writes it")
            self._require_known(next_id)
            if self._is_committed(None, next_id or 0, boundary_us):
                break
        self._note_written()
        self._go_on(next_id or 0, boundary_us)
        self.has_ended = boundary_us == END_US

    def _require_known(self, next_id: int | None) -> None:
        store = store_at(self._spec.place)
        has_written = read_if_any(store, _WRITTEN_FILE) is not None
        store.close()
        if has_written and next_id is None:
            raise StorageError(
                f"sink {self._spec.stream}: the table {self._spec.table} has lost up to where it "
                "was written: it was made anew, or delta.setTransactionRetentionDuration is too "
                "short. Restore it, or begin again in a new checkpointLocation"
            )

    def _note_written(self) -> None:
        store = store_at(self._spec.place)
        put_or_read(store, _WRITTEN_FILE, [b"1"])
        store.close()

    def _write(self, rows: pa.Table, next_id: int, boundary_us: int) -> None:
        while not self._is_committed(rows, next_id, boundary_us):
            if self._known_next_id() == next_id:
                return  # The answer was lost.

    def _known_next_id(self) -> int | None:
        """What the table says now, if it is ours to write."""
        with _errors(self._spec):
            self._table.update_incremental()
            owner = self._progress.incarnation(self._table)
            if owner != self._incarnation:
                raise LogSuperseded(f"sink {self._spec.stream}: incarnation {owner} writes it")
            return self._progress.next_id(self._table)

    def _is_committed(self, rows: pa.Table | None, next_id: int, boundary_us: int) -> bool:
        """Whether it was; else somebody else has committed the same names, or has been faster."""
        from deltalake import write_deltalake
        from deltalake.exceptions import CommitFailedError

        properties = self._progress.properties(self._incarnation, next_id, boundary_us)
        with _errors(self._spec):
            try:
                if rows is None:
                    self._table.create_write_transaction(
                        [], mode="append", schema=self._table.schema(), commit_properties=properties
                    )
                else:
                    write_deltalake(self._table, rows, mode="append", commit_properties=properties)
            except CommitFailedError:
                return False
            self._table.update_incremental()
        return True

    def end(self) -> None:
        """Say that nothing follows."""
        if not self.has_ended:
            while not self._is_committed(None, self.next_id, END_US):
                self._known_next_id()
            self.has_ended = True

    def tidy(self) -> None:
        """Have small files merged beside, if it is time."""
        if self._merging is not None:
            self._merging.look()

    def close(self) -> None:
        """Nothing is open; tuples that are in no commit are dropped."""
        if self._merging is not None:
            self._merging.join()


def made_up_name(place: str, stream: str) -> str:
    """What a table knows the sink stream by; the same whenever it is asked for at a place.

    Raises:
        FileDamaged: It is not what was made up.
    """
    store = store_at(place)
    try:
        wanted = encode_sealed({"id": f"holdfast-{secrets.token_hex(8)}-{stream}"})
        found = put_or_read(store, _NAME_FILE, [wanted])
        return decode(found, f"{place}/{_NAME_FILE}", lambda said: str(said["id"]))
    finally:
        store.close()


def require_columns(table: DeltaTable, schema: pa.Schema, name: str) -> None:
    """Raise `SchemaMismatch` unless the table has the columns, which may be of other widths."""
    found = pa.schema(table.schema().to_arrow())
    wrong = [
        f"{field.name} {field.type}"
        for field in schema
        if field.name not in found.names or found.field(field.name).type != field.type
    ]
    if wrong or len(found) != len(schema):
        raise SchemaMismatch(
            f"the table {name} has the columns {', '.join(found.names)}; these do not fit: "
            f"{', '.join(wrong) or 'it has more'}. Select what it has"
        )


@contextmanager
def _errors(spec: DeltaSinkSpec) -> Iterator[None]:
    """What the library raises; a replacement may not meet it again."""
    from deltalake.exceptions import DeltaError

    try:
        yield
    except (DeltaError, OSError) as error:
        raise StoreUnavailable(f"sink {spec.stream}: {spec.table}: {error}") from error
