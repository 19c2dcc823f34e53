"""Tables of others that a query writes under faults, as plain readers of theirs see them."""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

if TYPE_CHECKING:
    from holdfast.api.streams import Stream


class Tables(abc.ABC):
    """The tables of one run, by name."""

    def __init__(self, folder: Path) -> None:
        """They lie in this folder."""
        self._folder = folder

    @abc.abstractmethod
    def write(self, stream: Stream, name: str) -> None:
        """Have a stream written into a table."""

    @abc.abstractmethod
    def count(self, name: str) -> int:
        """Rows, by what the table says of its files; 0: there is no table yet."""

    @abc.abstractmethod
    def rows(self, name: str) -> pa.Table:
        """All rows."""

    @abc.abstractmethod
    def versions(self, name: str) -> int:
        """How many versions, or snapshots, the table had."""


class DeltaTables(Tables):
    """Delta tables, whose small files are merged meanwhile."""

    def write(self, stream: Stream, name: str) -> None:
        """See the base."""
        place = str(self._folder / name)
        stream.sink_delta(place, every="100 milliseconds", merge_every="2 seconds")

    def count(self, name: str) -> int:
        """See the base."""
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError

        try:
            found = DeltaTable(self._folder / name)
        except TableNotFoundError:
            return 0
        counts = pa.table(found.get_add_actions(flatten=True)).column("num_records")
        return sum(counts.to_pylist())

    def rows(self, name: str) -> pa.Table:
        """See the base."""
        from deltalake import DeltaTable

        return DeltaTable(self._folder / name).to_pyarrow_table()

    def versions(self, name: str) -> int:
        """See the base."""
        from deltalake import DeltaTable

        return int(DeltaTable(self._folder / name).version())


class IcebergTables(Tables):
    """Iceberg tables of a catalog in a file."""

    def write(self, stream: Stream, name: str) -> None:
        """See the base."""
        stream.sink_iceberg(
            f"shop.{name}", catalog="shops", properties=self._catalog(), every="500 milliseconds"
        )

    def count(self, name: str) -> int:
        """See the base."""
        from pyiceberg.exceptions import NoSuchTableError

        try:
            snapshot = self._table(name).current_snapshot()
        except NoSuchTableError:
            return 0
        summary = None if snapshot is None else snapshot.summary
        return 0 if summary is None else int(summary["total-records"] or 0)

    def rows(self, name: str) -> pa.Table:
        """See the base."""
        return self._table(name).scan().to_arrow()

    def versions(self, name: str) -> int:
        """See the base."""
        return len(self._table(name).metadata.snapshots)

    def _table(self, name: str) -> Any:
        from pyiceberg.catalog import load_catalog

        return load_catalog("shops", **self._catalog()).load_table(f"shop.{name}")

    def _catalog(self) -> dict[str, str]:
        place = f"sqlite:///{self._folder}/catalog.db"
        return {"type": "sql", "uri": place, "warehouse": f"file://{self._folder}/warehouse"}


KINDS: Final[Mapping[str, Callable[[Path], Tables]]] = {
    "delta": DeltaTables,
    "iceberg": IcebergTables,
}
