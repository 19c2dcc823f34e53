"""Writes a stream into files that anybody may read: does what core/queues/file_cuts.py decides."""

from __future__ import annotations

import secrets
import threading
from dataclasses import dataclass
from functools import partial
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from holdfast.core.model.ids import Incarnation
from holdfast.core.queues.file_cuts import (
    NO_RECORD,
    Claiming,
    CutFile,
    CutRecord,
    Cutting,
    FilesNamed,
    ListRecords,
    NameFiles,
    PutRecord,
    ReadRecord,
    RecordPut,
    RecordRead,
    RecordsListed,
    RecordTaken,
    Replaced,
    Settled,
)
from holdfast.core.wire.cut_records import encode_record, record_from
from holdfast.shell.sinks.base import Waits
from holdfast.shell.sinks.collecting import CollectingWriter
from holdfast.shell.sinks.file_formats import FORMATS, partitioned
from holdfast.shell.sinks.user_folder import user_folder
from holdfast.shell.storage.errors import LogSuperseded
from holdfast.shell.storage.places import read_if_any, store_at
from holdfast.shell.storage.small_files import decode
from holdfast.shell.stores.base import NameTaken

if TYPE_CHECKING:
    from holdfast.core.machine import Effect, Stimulus

_RECORDS: Final = "cuts"
_TEMPORARY: Final = "_holdfast"


@dataclass(frozen=True, slots=True)
class FilesSinkSpec:
    """One sink stream.

    Attributes:
        stream: Its name, e.g. `counts[0]`.
        folder: Where files go; a path, or a URL.
        format: One of `FORMATS`.
        partition_by: Columns that folders name.
        place: A folder or URL for the records of cuts.
        interval_s: From one cut to the next, at most, and a small one at least.
    """

    stream: str
    folder: str
    format: str
    partition_by: tuple[str, ...]
    place: str
    interval_s: float

    def open(self, incarnation: int, closing: threading.Event, waits: Waits) -> FilesSinkWriter:
        """Open it. Raises as `FilesSinkWriter`."""
        del closing, waits
        return FilesSinkWriter(self, incarnation)

    def settled(self) -> int:
        """See `OutsideSpec`: files of the last cut may have no names yet."""
        store = CutStore(self.place)
        try:
            record = store.newest()
        finally:
            store.close()
        if record is None:
            return 0
        user_folder(self.folder).rename(record.files)
        return record.next_id


class CutStore:
    """The records of a sink stream's cuts."""

    def __init__(self, place: str) -> None:
        """Open the place. Raises `StoreUnavailable`."""
        self._place = place
        self._store = store_at(place)

    def perform(self, effect: Effect) -> Stimulus:
        """Do what concerns records. Raises `StorageError`."""
        match effect:
            case ListRecords():
                return RecordsListed(max(self._numbers(), default=NO_RECORD))
            case ReadRecord(number):
                return RecordRead(number, self._read(number))
            case PutRecord(number, record):
                try:
                    self._store.put(_name(number), [encode_record(record)])
                except NameTaken:
                    return RecordTaken()
                return RecordPut()
        raise AssertionError(effect)

    def newest(self) -> CutRecord | None:
        """The newest record; None: there is none. Raises `StorageError`."""
        while numbers := self._numbers():
            record = self._read(newest := max(numbers))
            # One that was deleted may have been put again, by whoever did not know (file_cuts.py).
            if record is not None and max(self._numbers(), default=NO_RECORD) == newest:
                return record
        return None

    def delete_before(self, number: int) -> None:
        """Delete records that a newer one makes needless. Raises `StoreUnavailable`."""
        for each in self._numbers():
            if each < number:
                self._store.delete(_name(each))

    def _numbers(self) -> list[int]:
        stems = (PurePosixPath(name).stem for name in self._store.names(_RECORDS))
        return [int(stem) for stem in stems if stem.isdigit()]

    def _read(self, number: int) -> CutRecord | None:
        name = _name(number)
        found = read_if_any(self._store, name)
        return None if found is None else decode(found, f"{self._place}/{name}", record_from)

    def close(self) -> None:
        """Let go of the store."""
        self._store.close()


def _name(number: int) -> str:
    return f"{_RECORDS}/{number:020d}.json"


class FilesSinkWriter(CollectingWriter):
    """Writes a sink stream as one incarnation; see `OutsideWriter`."""

    def __init__(self, spec: FilesSinkSpec, incarnation: int) -> None:
        """Finish what the former writer had decided, and claim the sink.

        Raises:
            LogSuperseded: A later incarnation has claimed it.
            StorageError: Records or files cannot be read or written.
        """
        super().__init__(spec.stream, spec.interval_s)
        self._spec = spec
        self._incarnation = incarnation
        self._label = spec.stream.replace("[", "-").removesuffix("]")
        self._folder = user_folder(spec.folder)
        self._store = CutStore(spec.place)
        claiming = Claiming(Incarnation(incarnation), secrets.token_hex(6))
        settled = self._performed(claiming, claiming.start())
        self._writer = settled.record.writer
        self._cutting = Cutting(settled.number, settled.record)
        self._go_on(settled.record.next_id, settled.record.boundary_us)
        self.has_ended = settled.record.ends
        self._newest = settled.number
        self._sweep()

    def _sweep(self) -> None:
        """Delete what earlier incarnations have left half-way."""
        for name in self._folder.names(self._temporary):
            incarnation = PurePosixPath(name).name.partition("-")[0]
            if incarnation.isdigit() and int(incarnation) < self._incarnation:
                self._folder.delete(name)

    @property
    def _temporary(self) -> str:
        return f"{_TEMPORARY}/{self._writer}-{self._label}"

    def _write(self, rows: pa.Table, next_id: int, boundary_us: int) -> None:
        files = self._written(rows, next_id)
        self._settle(self._cutting.cut(next_id, files, boundary_us))

    def _written(self, table: pa.Table, next_id: int) -> tuple[CutFile, ...]:
        """The files of a cut, under temporary names, durable."""
        spec, ids = self._spec, f"{self._cutting.next_id:012d}-{next_id:012d}"
        name = f"part-{self._writer}-{self._label}-{ids}.{spec.format}"
        files = []
        for number, (folder, rows) in enumerate(partitioned(table, spec.partition_by)):
            temporary = f"{self._temporary}/{self._incarnation:010d}-{ids}-{number}"
            self._folder.write(temporary, partial(FORMATS[spec.format], rows))
            files.append(CutFile(temporary, f"{folder}/{name}" if folder else name))
        return tuple(files)

    def end(self) -> None:
        """Say that nothing follows."""
        if not self.has_ended:
            self._settle(self._cutting.cut(self.next_id, (), self.boundary_us, ends=True))
            self.has_ended = True

    def _settle(self, effects: list[Effect]) -> None:
        self._newest = self._performed(self._cutting, effects).number

    def _performed(self, machine: Claiming | Cutting, effects: list[Effect]) -> Settled:
        """Perform one effect after the other, up to the one that is the result."""
        while True:
            (effect,) = effects
            match effect:
                case Settled():
                    return effect
                case Replaced(text):
                    raise LogSuperseded(f"sink {self._spec.stream}: {text}")
                case NameFiles(files):
                    self._folder.rename(files)
                    effects = machine.step(FilesNamed())
                case _:
                    effects = machine.step(self._store.perform(effect))

    def tidy(self) -> None:
        """Delete records that are not needed any more."""
        self._store.delete_before(self._newest)

    def close(self) -> None:
        """Let go of the store; tuples that are in no cut are dropped."""
        self._store.close()
