"""Writes a stream log in a store that cannot append; see core/wire/log_parts.py.

Tuples wait in memory until `sync`, which stores them as one part, or as several where
there are many: fewer and larger ones under load. Parts follow each other at `PART_INTERVAL_S` at
the earliest, and small ones are merged later (`tidy`), so that their number stays low. What a dying
writer had not stored is gone, as with a disk what was not synced. Beyond `_WAITING_BYTES` appending
waits for the store.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa

from holdfast.core.model.ids import BEGINNING_US, Incarnation
from holdfast.core.wire import log_parts, log_records
from holdfast.core.wire.log_parts import Owner, Part, PartName, StoredPart
from holdfast.core.wire.log_records import CorruptRecord, Incomplete, RecordKind
from holdfast.shell.storage.errors import (
    SchemaMismatch,
    StorageError,
    StreamLogCorrupt,
    WrittenByOther,
)
from holdfast.shell.storage.places import store_at
from holdfast.shell.stores.base import (
    NameTaken,
    ObjectMissing,
    StoreUnavailable,
)
from holdfast.shell.stores.patience import patiently

PART_BYTES = 16 << 20
PART_INTERVAL_S = 0.25
_WAITING_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class _Waiting:
    """An encoded record that is not stored yet."""

    first_id: int
    record: list[bytes | pa.Buffer]
    size: int


class PartLogWriter:
    """Writes a log of parts as one incarnation. `append` and `sync` may run side by side."""

    def __init__(
        self,
        path: str,
        schema: pa.Schema,
        stream: str,
        incarnation: int,
        *,
        first_id: int | None = None,
        is_sole: bool = False,
        part_bytes: int = PART_BYTES,
    ) -> None:
        """Find the end of the log and put a mark there.

        Args:
            path: The log's URL.
            schema: Of the batches, time column included.
            stream: The stream's name.
            incarnation: Of the writer; must exceed that of every earlier one.
            first_id: For an empty log, the id of its first tuple; otherwise the log says.
            is_sole: The log has a unique name, and nobody else ever opens it to write.
            part_bytes: Size of a part at which the next one begins.

        Raises:
            SchemaMismatch: The log holds tuples of another schema.
            StorageError: The log has a writer of this incarnation or a later one.
        """
        self._path = path
        self._store = store_at(path)
        self._schema = schema
        self._stream = stream
        self._incarnation = Incarnation(incarnation)
        self._part_bytes = part_bytes
        self.boundary_us = BEGINNING_US
        self.has_ended = False
        self.next_id = first_id or 0
        self._waiting: list[_Waiting] = []
        self._waiting_bytes = 0
        self._waiting_from = 0
        self._is_end_due = False
        self._lock = threading.Lock()  # over what waits
        self._storing = threading.Lock()  # one part at a time, in order
        self._parts: list[StoredPart] = []  # changed by who holds `_storing`
        self._due_s = 0.0
        if not is_sole:
            self._find_end()
            self._put(log_parts.mark_name(self.next_id, incarnation), self._encoded(self.next_id))
        self._waiting_from = self.next_id
        if self.has_ended:  # Said again, for readers that start here.
            self._is_end_due = True
            self.sync(at_once=True)

    def _find_end(self) -> None:
        """Where the log ends; the newest writer that has left something whole says."""
        marks = self._store.names(log_parts.MARKS)
        newest = log_parts.newest_incarnation(marks)
        if newest >= self._incarnation:
            raise WrittenByOther(self._path, newest, self._incarnation)
        for owner in reversed(log_parts.owners(marks)):
            names = self._store.names(log_parts.folder_of(owner.incarnation))
            parts = [part for name in names if (part := log_parts.parse_part(name))]
            newest_first = sorted(parts, key=lambda part: part.first_id, reverse=True)
            mark = log_parts.mark_name(owner.first_id, owner.incarnation)
            for name in [*map(str, newest_first), mark]:
                if self._ends_in(name, owner):
                    return

    def _ends_in(self, name: str, owner: Owner) -> bool:
        """Take over the end of the log from the owner's last part; False if it says nothing."""
        part = log_parts.decode_part(self._store.read(name))
        if isinstance(part, Incomplete):
            return False
        if isinstance(part, CorruptRecord):
            raise StreamLogCorrupt(f"{self._path}/{name}", 0, part.reason)
        if part.corrupt is not None:
            at, reason = part.corrupt
            raise StreamLogCorrupt(f"{self._path}/{name}", at, reason.reason)
        if not part.header.schema.equals(self._schema):
            raise SchemaMismatch(
                f"{self._path} holds {part.header.schema}, which differs from {self._schema}"
            )
        end = log_parts.end_of(part, owner.superseded_from)
        if end is None:
            return False
        self.next_id, self.boundary_us, self.has_ended = end
        return True

    def _encoded(self, first_id: int) -> list[bytes | pa.Buffer]:
        """A mark, or a part without tuples."""
        return log_parts.encode_part(
            self._stream,
            self._incarnation,
            self._schema,
            first_id,
            [],
            first_id,
            self.boundary_us,
            has_ended=self.has_ended,
        )

    def append(
        self,
        tuple_type: int,
        first_id: int,
        batch: pa.RecordBatch,
        boundary_us: int,
        created_us: int,
    ) -> None:
        """Append tuples. Raises `StorageError` unless `first_id` continues the log."""
        if first_id != self.next_id:
            raise StorageError(f"{self._stream}: tuple {first_id}, expected {self.next_id}")
        record = log_records.encode_record(
            RecordKind.DATA,
            tuple_type,
            self._incarnation,
            first_id,
            boundary_us,
            created_us,
            batch,
        )
        size = sum(len(part) for part in record)
        if size > log_records.MAX_PAYLOAD_BYTES:
            raise StorageError(f"{self._stream}: a record of {size} bytes; use smaller batches")
        with self._lock:
            self._waiting.append(_Waiting(first_id, record, size))
            self._waiting_bytes += size
            self.next_id += batch.num_rows
            self.boundary_us = max(self.boundary_us, boundary_us)
        if self._waiting_bytes > _WAITING_BYTES:
            self.sync(at_once=True)

    def end(self) -> None:
        """The stream has ended; nothing follows."""
        if not self.has_ended:
            with self._lock:
                self.has_ended = self._is_end_due = True
            self.sync(at_once=True)

    def sync(self, *, at_once: bool = False) -> None:
        """Store everything appended so far, as soon as the next part is due.

        Raises:
            StoreUnavailable: The store did not take it; parts before it are stored.
        """
        wait_s = self._due_s - time.monotonic()
        if wait_s > 0 and not at_once:
            time.sleep(wait_s)
        with self._storing:
            while self._store_part():
                self._due_s = time.monotonic() + PART_INTERVAL_S

    def _store_part(self) -> bool:
        """Store the oldest part that waits; False: none does."""
        with self._lock:
            if not self._waiting and not self._is_end_due:
                return False
            body: list[bytes | pa.Buffer] = []
            count = size = 0
            while count < len(self._waiting) and size < self._part_bytes:
                body += self._waiting[count].record
                size += self._waiting[count].size
                count += 1
            is_all = count == len(self._waiting)
            first_id, end = self._waiting_from, self.next_id
            boundary_us = self.boundary_us
            if not is_all:
                end, boundary_us = self._waiting[count].first_id, BEGINNING_US
            has_ended = is_all and self._is_end_due
        parts = log_parts.encode_part(
            self._stream,
            self._incarnation,
            self._schema,
            first_id,
            body,
            end,
            boundary_us,
            has_ended=has_ended,
        )
        self._put(str(PartName(self._incarnation, first_id, None)), parts)
        with self._lock:
            del self._waiting[:count]
            self._waiting_bytes -= size
            self._waiting_from = end
            self._is_end_due = self._is_end_due and not has_ended
        self._parts.append(StoredPart(first_id, end, size))
        return True

    def _put(self, name: str, parts: list[bytes | pa.Buffer]) -> None:
        """Store an object of which this writer is the only one to know the name.

        1. An attempt stores it, and its answer is lost. 2. The next finds the name taken. What is
        there is compared: it is whole, or it is the beginning of what was to be stored.
        """

        def attempt() -> None:
            try:
                self._store.put(name, parts)
            except NameTaken:
                if not self._is_stored(name, b"".join(parts)):
                    raise

        patiently(attempt)

    def _is_stored(self, name: str, wanted: bytes) -> bool:
        try:
            found = bytes(self._store.read(name))
        except (ObjectMissing, StoreUnavailable):
            return False
        if found == wanted:
            return True
        if not wanted.startswith(found):
            raise StorageError(
                f"{self._path}/{name} was written by another process of incarnation "
                f"{self._incarnation}"
            )
        self._store.delete(name)
        return False

    def publish(self) -> None:
        """Let readers see everything appended so far. Raises as `sync`."""
        self.sync(at_once=True)

    def tidy(self) -> None:
        """Merge small parts if there are many; that the store is away is no error."""
        with self._storing:
            while wanted := log_parts.to_merge(self._parts):
                try:
                    self._merge(wanted)
                except StoreUnavailable:
                    return

    def _merge(self, wanted: list[StoredPart]) -> None:
        first_id, end = wanted[0].first_id, wanted[-1].end
        body: list[bytes | pa.Buffer] = []
        boundary_us = BEGINNING_US
        for part in wanted:
            name = str(self._name_of(part))
            data = self._store.read(name)
            records, last = log_parts.body_of(data), log_parts.decode_part(data)
            if isinstance(records, CorruptRecord) or not isinstance(last, Part) or not last.end:
                raise StreamLogCorrupt(f"{self._path}/{name}", 0, "it is not what was stored")
            body.append(pa.py_buffer(records))
            boundary_us = last.end.boundary_us
            if last.end.kind is RecordKind.END:
                return  # It is the last; nothing is gained any more.
        parts = log_parts.encode_part(
            self._stream,
            self._incarnation,
            self._schema,
            first_id,
            body,
            end,
            boundary_us,
            has_ended=False,
        )
        merged = StoredPart(
            first_id, end, sum(p.size for p in wanted), wanted[0].level + 1, is_merged=True
        )
        self._put(str(self._name_of(merged)), parts)
        self._parts[-len(wanted) :] = [merged]
        for part in wanted:
            self._store.delete(str(self._name_of(part)))

    def _name_of(self, part: StoredPart) -> PartName:
        return PartName(self._incarnation, part.first_id, part.end if part.is_merged else None)

    def skip_to(self, first_id: int) -> None:
        """Go on at a later id; nobody will read what comes before it."""
        with self._storing, self._lock:
            self._waiting.clear()
            self._waiting_bytes = 0
            self._waiting_from = self.next_id = first_id
        self.trim(first_id)

    def trim(self, before: int) -> None:
        """Delete this writer's parts that hold no tuple from `before` on."""
        with self._storing:
            gone = [part for part in self._parts if part.end <= before]
            self._parts = [part for part in self._parts if part.end > before]
        for part in gone:
            with suppress(StoreUnavailable):  # What stays costs room and nothing else.
                self._store.delete(str(self._name_of(part)))

    def close(self) -> None:
        """Let go of the store; what was not synced is dropped."""
        self._store.close()
