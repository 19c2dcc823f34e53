"""Writes a stream into a table of others: each commit says which tuples it holds, and whose it is.

A table that can be written so keeps, with its rows, some numbers under names of ours, and refuses a
commit if somebody else has changed them since. A sink stream has three: the id of its next tuple,
the incarnation that has claimed it, and the time before which nothing follows. Whoever opens the
sink

1. reads which incarnation has claimed it, and ends if that is a later one;
2. commits its own incarnation, without rows. If somebody else commits the same names at that moment
   the table refuses one of the two, which begins again;
3. goes on with the id that the table names.

Every further commit holds rows, and all three numbers. So a zombie cannot add rows, and a commit
whose answer was lost is found by its number.
"""

from __future__ import annotations

import abc
import secrets
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import pyarrow as pa

from holdfast.core.model.ids import END_US
from holdfast.core.wire.sealed_json import encode_sealed
from holdfast.shell.sinks.collecting import CollectingWriter
from holdfast.shell.storage.errors import LogSuperseded, SchemaMismatch, StorageError
from holdfast.shell.storage.places import put_or_read, read_if_any, store_at
from holdfast.shell.storage.small_files import decode

if TYPE_CHECKING:
    from collections.abc import Mapping

_NAME_FILE: Final = "sink.json"
_WRITTEN_FILE: Final = "written"


class TableSinkSpec(Protocol):
    """One sink stream, as its writer must know it.

    Attributes:
        stream: Its name, e.g. `counts[0]`.
        table: Which table.
        place: A folder or URL for what is to be remembered of the sink.
        interval_s: From one commit to the next.
    """

    @property
    def stream(self) -> str: ...  # noqa: D102

    @property
    def table(self) -> str: ...  # noqa: D102

    @property
    def place(self) -> str: ...  # noqa: D102

    @property
    def interval_s(self) -> float: ...  # noqa: D102


class Said(NamedTuple):
    """What a table says of one sink stream.

    Attributes:
        incarnation: Who has claimed it; -1: nobody.
        next_id: Of the tuple that comes next; None: the table has nothing of the stream.
        boundary_us: Nothing older follows.
    """

    incarnation: int
    next_id: int | None
    boundary_us: int


class ClaimedTableWriter(CollectingWriter):
    """Writes a sink stream as one incarnation; see `OutsideWriter`."""

    LOSSES = "it was made anew"
    """How a table can lose what it said; for people."""

    def __init__(self, spec: TableSinkSpec, incarnation: int) -> None:
        """Whoever derives has opened the table; then it claims the stream."""
        super().__init__(spec.stream, spec.interval_s)
        self._of = spec
        self._incarnation = incarnation

    @abc.abstractmethod
    def _said(self) -> Said:
        """What the table says now. Raises `StoreUnavailable`."""

    @abc.abstractmethod
    def _is_committed(self, rows: pa.Table | None, next_id: int, boundary_us: int) -> bool:
        """Commit, and whether it was; else somebody else has committed since `_said` was asked.

        Raises `StoreUnavailable`, after which it may have been all the same.
        """

    def _claim(self) -> None:
        while True:
            found, next_id, boundary_us = self._said()
            if found >= self._incarnation:
                raise LogSuperseded(f"sink {self._stream}: incarnation {found} writes it")
            known = known_next_id(self._of, next_id, self.LOSSES)
            if self._is_committed(None, known, boundary_us):
                break
        self._note_written()
        self._go_on(known, boundary_us)
        self.has_ended = boundary_us == END_US

    def _note_written(self) -> None:
        store = store_at(self._of.place)
        put_or_read(store, _WRITTEN_FILE, [b"1"])
        store.close()

    def _write(self, rows: pa.Table, next_id: int, boundary_us: int) -> None:
        while not self._is_committed(rows, next_id, boundary_us):
            if self._known_next_id() == next_id:
                return  # The answer was lost.

    def _known_next_id(self) -> int | None:
        """What the table says now, if it is ours to write."""
        said = self._said()
        self._require_own(said)
        return said.next_id

    def _require_own(self, said: Said) -> None:
        if said.incarnation != self._incarnation:
            raise LogSuperseded(f"sink {self._stream}: incarnation {said.incarnation} writes it")

    def end(self) -> None:
        """Say that nothing follows."""
        if not self.has_ended:
            while not self._is_committed(None, self.next_id, END_US):
                self._known_next_id()
            self.has_ended = True

    def tidy(self) -> None:
        """The table is its owner's to keep."""

    def close(self) -> None:
        """Nothing is open; tuples that are in no commit are dropped."""


def known_next_id(spec: TableSinkSpec, next_id: int | None, losses: str) -> int:
    """Where a sink stream is, by what its table says; 0 if nobody has written it.

    Raises:
        StorageError: It was written, and the table does not know (`losses` says how that may be).
    """
    store = store_at(spec.place)
    has_written = read_if_any(store, _WRITTEN_FILE) is not None
    store.close()
    if has_written and next_id is None:
        raise StorageError(
            f"sink {spec.stream}: the table {spec.table} has lost up to where it was written: "
            f"{losses}. Restore it, or begin again in a new checkpointLocation"
        )
    return next_id or 0


def known_name(place: str) -> str | None:
    """What a table knows the sink stream at a place by; None: nobody has opened it yet.

    Raises:
        FileDamaged: It is not what was made up.
    """
    store = store_at(place)
    try:
        found = read_if_any(store, _NAME_FILE)
    finally:
        store.close()
    return None if found is None else _name_in(place, found)


def made_up_name(place: str, stream: str) -> str:
    """What a table knows the sink stream by; the same whenever it is asked for at a place.

    Raises:
        FileDamaged: It is not what was made up.
    """
    store = store_at(place)
    try:
        wanted = encode_sealed({"id": f"holdfast-{secrets.token_hex(8)}-{stream}"})
        found = put_or_read(store, _NAME_FILE, [wanted])
        return _name_in(place, found)
    finally:
        store.close()


def _name_in(place: str, content: bytes) -> str:
    return decode(content, f"{place}/{_NAME_FILE}", lambda said: str(said["id"]))


def require_fitting(
    found: Mapping[str, pa.DataType], wanted: Mapping[str, pa.DataType], name: str
) -> None:
    """Raise `SchemaMismatch` unless a table has exactly these columns, of these types."""
    wrong = [f"{column} {type_}" for column, type_ in wanted.items() if found.get(column) != type_]
    if wrong or len(found) != len(wanted):
        raise SchemaMismatch(
            f"the table {name} has the columns {', '.join(found)}; these do not fit: "
            f"{', '.join(wrong) or 'it has more'}. Select what it has"
        )
