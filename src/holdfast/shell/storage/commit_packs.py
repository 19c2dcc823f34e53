"""The packs of an ingest log as objects of its store: finds commits and rows in them.

Who makes packs, and when, says core/queues/packing.py.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, TypeVar

import pyarrow as pa

from holdfast.core.queues.packing import PACKS, PackName, packs_in
from holdfast.core.wire.commit_packs import (
    TAIL_BYTES,
    Place,
    decode_index,
    index_place,
    records_in,
)
from holdfast.core.wire.log_records import CorruptRecord
from holdfast.shell.storage.errors import FileDamaged
from holdfast.shell.storage.log_follower import LoggedBatch
from holdfast.shell.stores.base import ObjectMissing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from holdfast.core.wire.commit_packs import PackedCommit
    from holdfast.shell.stores.base import CheckpointStore

_T = TypeVar("_T")
_LOOK_INTERVAL_S: Final = 1.0
_INDEXES_KEPT: Final = 4
_TRIES: Final = 8


class CommitPacks:
    """The packs of one log, as they were when it was looked last; for one thread."""

    def __init__(self, store: CheckpointStore, root: str) -> None:
        """Nothing is looked at yet."""
        self._store, self._root = store, root
        self._known: set[PackName] = set()
        self._lengths: list[int] = []  # the longest first
        self._looked_at_s: float | None = None
        self._whole: set[PackName] = set()  # No pack changes, but it may be gone.
        self._indexes: dict[PackName, tuple[PackedCommit, ...]] = {}

    def names(self) -> list[PackName]:
        """All that there are, whole or not."""
        return packs_in(self._store.names(PACKS))

    def whole(self) -> list[PackName]:
        """Those that are known and whole."""
        return [name for name in sorted(self._known) if self.is_whole(name)]

    def look(self, *, seldom: bool = False) -> None:
        """List the packs; `seldom`: unless they were listed a moment ago."""
        now_s = time.monotonic()
        is_recent = self._looked_at_s is not None and now_s < self._looked_at_s + _LOOK_INTERVAL_S
        if seldom and is_recent:
            return
        self._looked_at_s = now_s
        self._known = set(self.names())
        self._lengths = sorted({pack.length for pack in self._known}, reverse=True)
        self._whole &= self._known
        self._indexes = {n: index for n, index in self._indexes.items() if n in self._known}

    def content(self, number: int) -> bytes | None:
        """A commit as it was written, of the packs that are known; None: it is in none of them.

        Raises:
            FileDamaged: The pack is not what was written.
            ObjectMissing: A pack is gone, however often they are listed.
        """
        found = self._found(number, lambda commit: commit.place)
        return None if found is None else bytes(found[1])

    def holds(self, number: int) -> bool:
        """Whether a commit is in a pack that is known and whole; raises as `content`."""
        return self._again(lambda: self._holding(number)) is not None

    def size_of_rows(self, number: int) -> int | None:
        """Bytes of a commit's rows; otherwise as `content`."""
        name = self._again(lambda: self._holding(number))
        return None if name is None else self._indexes[name][number - name.first].size_bytes

    def records(self, number: int, index: int, schema: pa.Schema) -> Iterator[LoggedBatch] | None:
        """The records of a commit's file; otherwise as `content`."""
        found = self._found(number, lambda commit: commit.files[index])
        return None if found is None else self._decoded(*found, schema)

    def is_whole(self, name: PackName) -> bool:
        """Whether a pack counts; of one that is known this is read once."""
        try:
            return name in self._whole or self._has_index(name)
        except ObjectMissing:
            return False

    def _found(
        self, number: int, place_in: Callable[[PackedCommit], Place]
    ) -> tuple[PackName, memoryview] | None:
        """The bytes of a commit, or of a file of it."""

        def found() -> tuple[PackName, memoryview] | None:
            name = self._holding(number)
            if name is None:
                return None
            return name, self._read(name, place_in(self._indexes[name][number - name.first]))

        return self._again(found)

    def _again(self, answer: Callable[[], _T]) -> _T:
        """An answer; asked anew with other packs when one is gone: a longer one may hold it now."""
        for _ in range(_TRIES - 1):
            try:
                return answer()
            except ObjectMissing:
                self.look()
        return answer()

    def _holding(self, number: int) -> PackName | None:
        """The longest pack that holds a commit. Raises `ObjectMissing`: it is gone meanwhile."""
        for length in self._lengths:
            name = PackName.around(number, length)
            if name in self._known and self._has_index(name):
                return name
        return None

    def _has_index(self, name: PackName) -> bool:
        """Whether it is known what is in a pack; False: it is not whole. Raises `ObjectMissing`."""
        if name in self._indexes:
            return True
        size = self._store.size(str(name))
        end = min(size, TAIL_BYTES)
        place = index_place(bytes(self._read(name, Place(size - end, end))), size)
        if isinstance(place, CorruptRecord):
            return False
        entries = decode_index(bytes(self._read(name, place)))
        if isinstance(entries, CorruptRecord):
            raise FileDamaged(f"{self._root}/{name}", entries.reason)
        if len(entries) != name.length:
            raise FileDamaged(f"{self._root}/{name}", f"it holds {len(entries)} commits")
        while len(self._indexes) >= _INDEXES_KEPT:
            del self._indexes[next(iter(self._indexes))]
        self._indexes[name] = entries
        self._whole.add(name)
        return True

    def _read(self, name: PackName, place: Place) -> memoryview:
        buffer = memoryview(pa.allocate_buffer(place.size)).cast("B")
        if place.size:
            self._store.read_into(str(name), place.offset, buffer)
        return buffer

    def _decoded(
        self, name: PackName, data: memoryview, schema: pa.Schema
    ) -> Iterator[LoggedBatch]:
        for record in records_in(data, schema):
            if isinstance(record, CorruptRecord):
                raise FileDamaged(f"{self._root}/{name}", record.reason)
            assert record.batch is not None
            yield LoggedBatch(
                record.tuple_type,
                record.incarnation,
                record.first_id,
                record.count,
                record.boundary_us,
                record.created_us,
                record.batch,
            )
