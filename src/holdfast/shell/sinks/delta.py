"""Writes a stream into a Delta table; claimed_table.py says how.

A commit of a Delta table may carry *application transactions*: names with a number each, which the
table keeps with its rows. The table refuses a commit if, since the version that the writer knows,
somebody else has committed the same names; what others do with the table does not matter.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.core.model.changes import CHANGE_COLUMN, UPDATE_BEFORE, came
from holdfast.core.model.ids import BEGINNING_US
from holdfast.core.model.nested_types import canonical, is_nested
from holdfast.shell.sinks.base import Waits
from holdfast.shell.sinks.claimed_table import (
    ClaimedTableWriter,
    Said,
    known_name,
    known_next_id,
    made_up_name,
    require_fitting,
)
from holdfast.shell.sinks.delta_merging import Merging
from holdfast.shell.stores.base import StoreUnavailable

if TYPE_CHECKING:
    from deltalake import DeltaTable

_RETRIES: Final = 10
_NUMBER: Final = "__number"


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
        upserts: Of a changelog: the columns by which rows are replaced and deleted; None: rows are
            added.
        is_paired: Of a changelog: whether each row that was is followed by what became of it.
    """

    stream: str
    table: str
    schema: pa.Schema
    partition_by: tuple[str, ...]
    place: str
    interval_s: float
    merge_s: float | None = None
    upserts: tuple[str, ...] | None = None
    is_paired: bool = True

    def open(self, incarnation: int, closing: threading.Event, waits: Waits) -> DeltaSinkWriter:
        """Open it. Raises as `DeltaSinkWriter`."""
        del closing, waits
        return DeltaSinkWriter(self, incarnation)

    def settled(self) -> int:
        """See `OutsideSpec`; whatever was decided is in the table."""
        from deltalake import DeltaTable

        name, next_id = known_name(self.place), None
        with _errors(self):
            if name is not None and DeltaTable.is_deltatable(self.table):
                next_id = Progress(name).said(DeltaTable(self.table)).next_id
        return known_next_id(self, next_id, DeltaSinkWriter.LOSSES)


class Progress:
    """What a table says of one sink stream."""

    def __init__(self, name: str) -> None:
        """Of the stream of this name, which no other location has."""
        self._next, self._owner, self._boundary = (
            f"{name}/{what}" for what in ("next", "incarnation", "boundary")
        )

    def said(self, table: DeltaTable) -> Said:
        """As of the version that is loaded."""
        owner, next_id, boundary_us = map(
            table.transaction_version, (self._owner, self._next, self._boundary)
        )
        return Said(
            -1 if owner is None else owner,
            next_id,
            BEGINNING_US if boundary_us is None else boundary_us,
        )

    def properties(self, incarnation: int, next_id: int, boundary_us: int) -> Any:
        """A commit's, which say all three."""
        from deltalake import CommitProperties, Transaction

        said = [Transaction(self._owner, incarnation), Transaction(self._next, next_id)]
        if boundary_us >= 0:  # Others are not told: nothing is promised then.
            said.append(Transaction(self._boundary, boundary_us))
        return CommitProperties(app_transactions=said, max_commit_retries=_RETRIES)


class DeltaSinkWriter(ClaimedTableWriter):
    """Writes a sink stream as one incarnation; see `OutsideWriter`."""

    LOSSES = "it was made anew, or delta.setTransactionRetentionDuration is too short"

    def __init__(self, spec: DeltaSinkSpec, incarnation: int) -> None:
        """Make the table if there is none, and claim the stream.

        Raises:
            LogSuperseded: A later incarnation has claimed it.
            SchemaMismatch: The table has other columns.
            StorageError: The table cannot be read or written, or has lost what it said.
        """
        super().__init__(spec, incarnation)
        self._spec = spec
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

    def _said(self) -> Said:
        with _errors(self._spec):
            self._table.update_incremental()
            return self._progress.said(self._table)

    def _is_committed(self, rows: pa.Table | None, next_id: int, boundary_us: int) -> bool:
        from deltalake import write_deltalake
        from deltalake.exceptions import CommitFailedError

        properties = self._progress.properties(self._incarnation, next_id, boundary_us)
        with _errors(self._spec):
            try:
                if rows is not None and self._spec.upserts is not None:
                    self._merge(rows, properties, self._spec.upserts)
                    if self._known_next_id() == next_id:
                        return True
                    rows = None  # Changes that change nothing are no commit.
                if rows is None:
                    self._table.create_write_transaction(
                        [], mode="append", schema=self._table.schema(), commit_properties=properties
                    )
                else:
                    write_deltalake(self._table, rows, mode="append", commit_properties=properties)
            except CommitFailedError:
                return False
        # The table is loaded anew: 1. This commit succeeds. 2. Another incarnation claims the
        # stream. 3. The claim is loaded, and the table refuses none of the next commits for it.
        self._known_next_id()
        return True

    def _merge(self, changes: pa.Table, properties: Any, keys: tuple[str, ...]) -> None:
        """Make of the table what the changes make of it, in one commit, or in none."""
        latest = last_changes(changes, keys, is_paired=self._spec.is_paired)
        is_there = came(f"s.`{CHANGE_COLUMN}`")
        merger = self._table.merge(
            latest,
            " AND ".join(f"(t.{key} IS NOT DISTINCT FROM s.{key})" for key in map(_quoted, keys)),
            source_alias="s",
            target_alias="t",
            commit_properties=properties,
        )
        every = {_quoted(name): f"s.{_quoted(name)}" for name in self._spec.schema.names}
        merger = merger.when_matched_delete(f"NOT ({is_there})")
        merger = merger.when_matched_update(every)
        merger = merger.when_not_matched_insert(every, is_there)
        merger.execute()

    def tidy(self) -> None:
        """Have small files merged beside, if it is time."""
        if self._merging is not None:
            self._merging.look()

    def close(self) -> None:
        """Nothing is open; tuples that are in no commit are dropped."""
        if self._merging is not None:
            self._merging.join()


def _quoted(column: str) -> str:
    """As the library's SQL has it, in which a back-tick within back-ticks ends the name."""
    return '"' + column.replace('"', '""') + '"'


def last_changes(changes: pa.Table, keys: Sequence[str], *, is_paired: bool) -> pa.Table:
    """Of each key the last change.

    Args:
        changes: In their order.
        keys: Columns; nulls are equal.
        is_paired: Whether each row that was is followed by what became of it, maybe later.
    """
    if is_paired:
        changes = changes.filter(pc.not_equal(changes.column(CHANGE_COLUMN), UPDATE_BEFORE))
    numbers = pa.array(range(len(changes)), pa.int64())
    numbered = changes.select(list(keys)).append_column(_NUMBER, numbers)
    last = numbered.group_by(list(keys)).aggregate([(_NUMBER, "max")])
    return changes.take(last.column(f"{_NUMBER}_max"))


def require_columns(table: DeltaTable, schema: pa.Schema, name: str) -> None:
    """Raise `SchemaMismatch` unless the table has the columns."""
    found = pa.schema(table.schema().to_arrow())
    have = {f.name: canonical(f.type) if is_nested(f.type) else f.type for f in found}
    require_fitting(have, {f.name: f.type for f in schema}, name)


@contextmanager
def _errors(spec: DeltaSinkSpec) -> Iterator[None]:
    """What the library raises; a replacement may not meet it again."""
    from deltalake.exceptions import DeltaError

    try:
        yield
    except (DeltaError, OSError) as error:
        raise StoreUnavailable(f"sink {spec.stream}: {spec.table}: {error}") from error
