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
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa

from holdfast.core.model.ids import BEGINNING_US, Incarnation
from holdfast.core.wire import log_parts, log_records
from holdfast.core.wire.log_opening import EndsEarly, OpenedLater, SinkLacksTuples
from holdfast.core.wire.log_owners import SOLE, Owners
from holdfast.core.wire.log_parts import StoredPart
from holdfast.core.wire.log_records import RecordKind
from holdfast.core.wire.part_marks import PartDamaged
from holdfast.core.wire.part_writing import OtherSchema, PartGone, merge_parts, open_parts
from holdfast.core.wire.steps import run
from holdfast.core.wire.store_steps import (
    ChangesTooFast,
    PutObject,
    StoreAnswer,
    StoreRequest,
)
from holdfast.shell.storage.beginnings import first_id_of
from holdfast.shell.storage.errors import (
    SchemaMismatch,
    StorageError,
    StreamLogCorrupt,
    WrittenByOther,
)
from holdfast.shell.storage.places import store_at
from holdfast.shell.storage.store_performer import perform_in
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
        wanted: int = 0,
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
            wanted: The id before which the log must not end.
            part_bytes: Size of a part at which the next one begins.

        Raises:
            SchemaMismatch: The log holds tuples of another schema.
            SinkLacksTuples: It ends before `wanted`, and was not begun.
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
        self.owners: Owners = SOLE
        self._waiting: list[_Waiting] = []
        self._waiting_bytes = 0
        self._waiting_from = 0
        self._is_end_due = False
        self._lock = threading.Lock()  # over what waits
        self._storing = threading.Lock()  # one part at a time, in order
        self._parts: list[StoredPart] = []  # changed by who holds `_storing`
        self._number = 0  # of the next part, after others without a tuple
        self._due_s = 0.0
        if not is_sole:
            self._open(wanted)
        self._waiting_from = self.next_id
        if self.has_ended:  # Said again, for readers that start here.
            self._is_end_due = True
            self.sync(at_once=True)

    def _open(self, wanted: int) -> None:
        """Find the end of the log and put a mark there."""
        steps = open_parts(self._stream, self._incarnation, self._schema, self.next_id, wanted)
        try:
            begun = run(steps, self._perform)
        except OpenedLater as later:
            raise WrittenByOther(self._path, later.incarnation, self._incarnation) from later
        except EndsEarly as early:
            raise SinkLacksTuples(self._path, early.end, early.wanted) from early
        except OtherSchema as other:
            raise SchemaMismatch(
                f"{self._path} holds {other.schema}, which differs from {self._schema}"
            ) from other
        except PartDamaged as damaged:
            raise self._corrupt(damaged) from damaged
        except ChangesTooFast as changes:
            raise StorageError(
                f"{self._path}/{changes} was listed again and again, and no two listings agreed; "
                "the store must list what was put before"
            ) from changes
        self.next_id, self.boundary_us = begun.end.next_id, begun.end.boundary_us
        self.has_ended, self.owners = begun.end.has_ended, begun.owners

    def _corrupt(self, damaged: PartDamaged) -> StreamLogCorrupt:
        return StreamLogCorrupt(f"{self._path}/{damaged.name}", damaged.offset, damaged.reason)

    def _perform(self, request: StoreRequest) -> StoreAnswer:
        if isinstance(request, PutObject):
            self._put(request.name, request.parts)
            return None
        return perform_in(self._store, request)

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
        last = self._parts[-1] if self._parts else None
        is_empty = last is not None and last.first_id == last.end == first_id
        stored = StoredPart(first_id, end, size, number=self._number)
        self._put(str(stored.name(self._incarnation)), parts)
        with self._lock:
            del self._waiting[:count]
            self._waiting_bytes -= size
            self._waiting_from = end
            self._is_end_due = self._is_end_due and not has_ended
        self._number = 0 if end > first_id else self._number + 1
        if last is not None and is_empty:  # This one says what it said, and more.
            self._parts.pop()
            self._forget(last)
        self._parts.append(stored)
        return True

    def _forget(self, part: StoredPart) -> None:
        with suppress(StoreUnavailable):  # What stays costs room and nothing else.
            self._store.delete(str(part.name(self._incarnation)))

    def _put(self, name: str, parts: Sequence[bytes | pa.Buffer]) -> None:
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
                steps = merge_parts(self._stream, self._incarnation, self._schema, wanted)
                try:
                    merged = run(steps, self._perform)
                except StoreUnavailable:
                    return
                except PartDamaged as damaged:
                    raise self._corrupt(damaged) from damaged
                except PartGone as gone:
                    self._forget_removed(str(gone))
                    continue
                if merged is None:
                    return
                self._parts[-len(wanted) :] = [merged]

    def _forget_removed(self, name: str) -> None:
        """A part is gone. Raises `StreamLogCorrupt` unless it was removed as not kept any more."""
        first_id = first_id_of(self._store, self._path)
        left = [part for part in self._parts if part.first_id >= first_id]
        if name in (str(part.name(self._incarnation)) for part in left):
            raise StreamLogCorrupt(f"{self._path}/{name}", 0, "it is not there any more")
        self._parts = left

    def skip_to(self, first_id: int) -> None:
        """Go on at a later id; nobody will read what comes before it."""
        with self._storing, self._lock:
            self._waiting.clear()
            self._waiting_bytes = 0
            self._number = self._number if first_id == self._waiting_from else 0
            self._waiting_from = self.next_id = first_id
        self.trim(first_id)

    def trim(self, before: int) -> None:
        """Delete this writer's parts that hold no tuple from `before` on."""
        with self._storing:
            gone = [part for part in self._parts if part.end <= before]
            self._parts = [part for part in self._parts if part.end > before]
        for part in gone:
            self._forget(part)

    def close(self) -> None:
        """Let go of the store; what was not synced is dropped."""
        self._store.close()
