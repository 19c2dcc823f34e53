"""Journals: the coordinator's, one folder per checkpoint location, one volume per epoch.

Lines are those of core/wire/journal_lines.py; a torn end is ignored. Which volume counts, and that
what a replaced coordinator writes does not, stands in core/wire/journal_volumes.py.

In a folder a volume is a file that is appended to. In a store that cannot append it is a folder of
objects, each with the lines of one write. A volume that has grown is left for another one, which
begins with what the journal has come to: a life may be long, and most restart points are out of
date as soon as others follow.
"""

from __future__ import annotations

import logging
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from holdfast.core.coordinator.checkpoint_registry import CheckpointRegistry
from holdfast.core.coordinator.driver_watch import JournalSeen
from holdfast.core.coordinator.journal_entries import (
    Ending,
    JournalEntry,
    LifeEnded,
    PointNoted,
)
from holdfast.core.wire import journal_volumes
from holdfast.core.wire.journal_entries import decode_entries, encode_entry
from holdfast.core.wire.journal_lines import JsonEntry, decode_lines, encode_line
from holdfast.core.wire.journal_volumes import (
    ClaimVolume,
    DeleteVolumes,
    FillVolume,
    ReadVolumes,
)
from holdfast.core.wire.log_records import CorruptRecord
from holdfast.shell.storage.errors import JournalCorrupt, JournalSuperseded, StorageError
from holdfast.shell.storage.paths import sync_path
from holdfast.shell.storage.places import is_remote, local_path, store_at
from holdfast.shell.storage.rights import create_file, make_folder, storage_error
from holdfast.shell.storage.small_files import open_regular
from holdfast.shell.stores.base import NameTaken, ObjectMissing, StoreUnavailable
from holdfast.shell.stores.patience import patiently

_LOG = logging.getLogger(__name__)
JOURNAL_FOLDER = "coordinator"
_OBJECTS_MAX = 256
GROWN_BYTES_MAX = 4 << 20
_LOOKS = 16
_POINTS_INTERVAL_S = 0.25
_TAIL_BYTES = 4096


E = TypeVar("E")


@dataclass(frozen=True, slots=True)
class EntryKind(Generic[E]):
    """What a journal is of.

    Attributes:
        encode: An entry as JSON takes it.
        decode: All entries, or why one is none.
        compact: The shortest entries that say the same.
        may_wait: Whether an entry need not be written at once where every write is an object.
        is_last: Whether those who look have to find an entry at the end; nothing follows it.
    """

    encode: Callable[[E], JsonEntry]
    decode: Callable[[Iterable[JsonEntry]], list[E] | CorruptRecord]
    compact: Callable[[Iterable[E]], list[E]]
    may_wait: Callable[[E], bool]
    is_last: Callable[[E], bool] = lambda _: False


COORDINATOR: EntryKind[JournalEntry] = EntryKind(
    encode_entry,
    decode_entries,
    lambda entries: CheckpointRegistry.of(entries).entries(),
    lambda entry: isinstance(entry, PointNoted),
    lambda entry: isinstance(entry, LifeEnded),
)
"""Restart points may wait a little: what they allow is to trim; a recovery waits for the others."""


class Volume(Protocol):
    """A volume that is being written."""

    def write(self, lines: bytes) -> None:
        """Append durably."""
        ...

    def renew(self) -> bool:
        """Show that it is being written, without a line; False: only a line can show it."""
        ...

    def close(self) -> None:
        """Write no more."""
        ...


class _VolumeGone(Exception):
    """It was filled into a later one, and deleted, while it was being read."""


class _FileVolume:
    """A file, appended to."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = create_file(path, os.O_WRONLY | os.O_APPEND)
        self._size = 0

    def write(self, lines: bytes) -> None:
        view = memoryview(lines)
        try:
            while len(view):
                view = view[os.write(self._file, view) :]
            os.fdatasync(self._file)
        except OSError as error:
            with suppress(OSError):  # No half line: what follows stays readable.
                os.ftruncate(self._file, self._size)
            raise StorageError(
                f"writing the journal to {self._path} failed: {error.strerror}; make room, then "
                "start again"
            ) from error
        self._size += len(lines)

    def renew(self) -> bool:
        try:
            os.utime(self._file)
        except OSError as error:
            raise storage_error(error, self._path) from error
        return True

    def close(self) -> None:
        os.close(self._file)


class _FileVolumes:
    """The volumes in a folder."""

    objects_max = None

    def __init__(self, folder: str) -> None:
        self.place = folder
        self._folder = Path(local_path(folder))

    def numbers(self) -> list[int]:
        stems = (file.stem for file in self._folder.glob("[0-9]*.journal"))
        return sorted(int(stem) for stem in stems if stem.isdigit())

    newest_numbers = numbers

    def tail(self, number: int) -> tuple[int, bytes, int]:
        """How long a volume is, in bytes, its last lines, and its stamp."""
        try:
            with os.fdopen(open_regular(self._path(number)), "rb") as file:
                stamp = os.fstat(file.fileno()).st_mtime_ns
                length = file.seek(0, os.SEEK_END)
                cut = max(0, length - _TAIL_BYTES)
                file.seek(cut)
                text = file.read()
        except FileNotFoundError as error:
            raise _VolumeGone(str(error)) from error
        except OSError as error:
            raise storage_error(error, self._path(number)) from error
        return cut + len(text), text[text.find(b"\n") + 1 :] if cut else text, stamp

    def read(self, number: int) -> bytes:
        try:
            with os.fdopen(open_regular(self._path(number)), "rb") as file:
                return file.read()
        except FileNotFoundError as error:
            raise _VolumeGone(str(error)) from error
        except OSError as error:
            raise storage_error(error, self._path(number)) from error

    def claim(self, number: int) -> Volume:
        path = self._path(number)
        try:
            make_folder(self._folder)
            volume = _FileVolume(path)
            sync_path(self._folder)
        except FileExistsError:
            raise _superseded(self.place, number) from None
        except OSError as error:
            raise storage_error(error, path) from error
        return volume

    def delete(self, number: int) -> None:
        self._path(number).unlink(missing_ok=True)

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:010d}.journal"


class _ObjectVolumes:
    """The volumes in a store: `<number>/<write>`.

    Write 0 is who claims it. A volume without it is what a coordinator wrote after another had
    taken over.
    """

    objects_max = _OBJECTS_MAX

    def __init__(self, place: str) -> None:
        self.place = place
        self.store = store_at(place)

    def numbers(self) -> list[int]:
        begun = [name for name in self.store.names() if name.endswith(f"/{0:010d}")]
        return sorted(int(name.partition("/")[0]) for name in begun)

    def newest_numbers(self) -> list[int]:
        """Of all folders: the newest is claimed, whatever a replaced coordinator has left."""
        return [int(name) for name in patiently(self.store.children) if name.isdigit()]

    def tail(self, number: int) -> tuple[int, bytes, int]:
        """How long a volume is, in objects, the lines of the last one, and no stamp."""
        names = self.store.names(f"{number:010d}")
        try:
            return len(names), bytes(self.store.read(names[-1])) if len(names) > 1 else b"", 0
        except ObjectMissing as error:
            raise _VolumeGone(str(error)) from error

    def read(self, number: int) -> bytes:
        names = self.store.names(f"{number:010d}")
        try:
            if not names or names != [_object(number, count) for count in range(len(names))]:
                raise _VolumeGone(f"an object between {names[:1]} and {names[-1:]} is missing")
            return b"".join(bytes(self.store.read(name)) for name in names[1:])
        except ObjectMissing as error:
            raise _VolumeGone(str(error)) from error

    def claim(self, number: int) -> Volume:
        if not self.store.is_exclusive:
            _LOG.warning(
                "%s cannot create files exclusively: two drivers started there at the same moment "
                "would not notice each other",
                self.place,
            )
        volume = _ObjectVolume(self, number)
        volume.write(secrets.token_hex(16).encode())
        return volume

    def delete(self, number: int) -> None:
        for name in self.store.names(f"{number:010d}"):
            self.store.delete(name)


def _object(number: int, count: int) -> str:
    return f"{number:010d}/{count:010d}"


class _ObjectVolume:
    """A volume of objects."""

    def __init__(self, volumes: _ObjectVolumes, number: int) -> None:
        self._store, self._place = volumes.store, volumes.place
        self._number = number
        self._count = 0

    def write(self, lines: bytes) -> None:
        """Store the lines; tried again as long as it is not known whether they are stored.

        1. An attempt stores them, and its answer is lost. 2. The next finds the name taken, by
        these very lines, unless another coordinator has begun the volume: it has another token.
        """
        name = _object(self._number, self._count)

        def attempt() -> None:
            try:
                self._store.put(name, [lines])
            except NameTaken:
                if not self._is_stored(name, lines):
                    raise

        patiently(attempt)
        self._count += 1

    def _is_stored(self, name: str, lines: bytes) -> bool:
        try:
            found = bytes(self._store.read(name))
        except (ObjectMissing, StoreUnavailable):
            return False
        if found != lines:
            raise _superseded(self._place, self._number)
        return True

    def renew(self) -> bool:
        return False

    def close(self) -> None:
        """Nothing is open."""


def _superseded(place: str, number: int) -> JournalSuperseded:
    return JournalSuperseded(
        f"another driver has begun epoch {number} at {place}; stop one of them. If there is no "
        f"other, {place}/{number:010d} has lost its first object: restore it from a copy, or begin "
        "again in a new checkpointLocation"
    )


def _volumes(place: str) -> _FileVolumes | _ObjectVolumes:
    return _ObjectVolumes(place) if is_remote(place) else _FileVolumes(place)


class Journal(Generic[E]):
    """An append-only journal of one epoch."""

    def __init__(
        self, folder: str, kind: EntryKind[E], grown_bytes_max: int = GROWN_BYTES_MAX
    ) -> None:
        """Read what earlier epochs left, and begin the next one.

        Args:
            folder: Where its volumes are; a folder or a URL.
            kind: What it is of.
            grown_bytes_max: A file begins anew, short, when it has grown by more than that, and by
                more than it began with.

        Raises:
            JournalCorrupt: A volume is damaged before its end.
            JournalSuperseded: Another coordinator begins at the same time.
            StorageError: It could not be written.
        """
        self._volumes = _volumes(folder)
        self._kind = kind
        self._grown_bytes_max = grown_bytes_max
        self._written_s = time.monotonic()
        self._lock = threading.RLock()  # A lease is renewed by a thread of its own.
        self._is_closed = False
        self.entries: tuple[E, ...] = ()
        for step in journal_volumes.takeover(self._volumes.numbers()):
            match step:
                case ClaimVolume():
                    self.epoch = self._number = step.number
                    self._volume = self._volumes.claim(step.number)
                case ReadVolumes():
                    found = _read_all(self._volumes, kind, apart_from=self._number)
                    self.entries = tuple(kind.compact(found))
                case FillVolume():
                    self._fill(list(self.entries))
                case DeleteVolumes():
                    self._delete(step.numbers)

    def _fill(self, entries: list[E]) -> None:
        """The first lines of a volume that was claimed: what those before it had come to."""
        lines = self._lines(entries)
        self._written_bytes = self._filled_bytes = len(lines)
        self._said = list(entries)  # by this volume; it comes to less
        self._writes = 0
        self._volume.write(lines)
        self.require_newest()

    def _delete(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            self._volumes.delete(number)

    def require_newest(self) -> None:
        """What was written counts. Raises `JournalSuperseded` if it does not. From any thread."""
        numbers = self._volumes.newest_numbers()
        if not journal_volumes.is_newest(self._number, numbers):
            raise _superseded(self._volumes.place, max(numbers, default=self._number))

    def _lines(self, entries: Iterable[E]) -> bytes:
        return b"".join(encode_line(self._kind.encode(entry)) for entry in entries)

    def begin_anew(self, entries: list[E]) -> None:
        """Go on in another volume that begins with these entries, and forget the one before.

        The next epoch is above the number of the newest volume, so above all of this life.

        Raises:
            JournalSuperseded: Another coordinator has begun.
        """
        with self._lock:
            self._volume.close()
            former, self._number = self._number, self._number + 1
            self._volume = self._volumes.claim(self._number)
            self._fill(entries)
            self._delete([former])

    def is_due(self, entries: list[E]) -> bool:
        """Whether to write now: where every write is an object, some entries may wait a little."""
        may_wait = self._kind.may_wait
        if self._volumes.objects_max is None or not all(may_wait(entry) for entry in entries):
            return True
        return time.monotonic() - self._written_s > _POINTS_INTERVAL_S

    def write(self, entries: list[E]) -> None:
        """Append entries and make them durable before returning.

        Raises:
            JournalSuperseded: They do not count: another coordinator has begun.
            StorageError: They could not be written.
        """
        if not entries:
            return
        with self._lock:
            lines = self._lines(entries)
            self._written_bytes += len(lines)
            self._volume.write(lines)
            self.require_newest()
            self._writes += 1
            self._written_s = time.monotonic()
            self._said += entries
            if self._has_grown() and not self._kind.is_last(entries[-1]):
                self.begin_anew(self._kind.compact(self._said))

    def _has_grown(self) -> bool:
        """Whether another volume would say the same with much less."""
        if self._volumes.objects_max is not None:
            return self._writes >= self._volumes.objects_max
        grown = self._written_bytes - self._filled_bytes
        return grown > max(self._grown_bytes_max, self._filled_bytes)

    def renew(self, renewal: E, interval_s: float) -> None:
        """Show that it is being written if nothing was for so long, unless the journal is closed.

        Args:
            renewal: What to write where nothing else can show it.
            interval_s: How long.

        Raises:
            JournalSuperseded: It does not count: another coordinator has begun.
            StorageError: It could not be written.
        """
        with self._lock:
            if self._is_closed or time.monotonic() - self._written_s < interval_s:
                return
            if self._volume.renew():
                self.require_newest()
                self._written_s = time.monotonic()
            else:
                self.write([renewal])

    def close(self) -> None:
        """Write no more; a second time does nothing."""
        with self._lock:
            if not self._is_closed:
                self._is_closed = True
                self._volume.close()


def look(folder: str) -> JournalSeen:
    """How a coordinator's journal looks now, for drivers in standby; it is not changed."""
    volumes = _volumes(folder)
    for _ in range(_LOOKS):
        number = max(volumes.numbers(), default=0)
        try:
            length, text, stamp = volumes.tail(number) if number else (0, b"", 0)
        except _VolumeGone:
            continue  # Another driver has begun.
        return JournalSeen(number, length, _last_word(text), stamp)
    return JournalSeen(0, 0)


def _last_word(text: bytes) -> Ending | None:
    """How the life ended that these lines are the last of; None: it goes on, for all they say."""
    lines = decode_lines(text)
    entries = lines if isinstance(lines, CorruptRecord) else COORDINATOR.decode(lines[-1:])
    if isinstance(entries, CorruptRecord) or not entries:
        return None
    return entries[-1].ending if isinstance(entries[-1], LifeEnded) else None


def read_entries(folder: str) -> list[JournalEntry]:
    """What all volumes of a coordinator's journal say, without beginning an epoch.

    Raises:
        JournalCorrupt: A volume is damaged before its end.
    """
    return _read_all(_volumes(folder), COORDINATOR)


def registry_at(location: str) -> CheckpointRegistry:
    """What the journal of a checkpoint location has come to; errors as of `read_entries`."""
    return CheckpointRegistry.of(read_entries(os.path.join(location, JOURNAL_FOLDER)))


def _read_all(
    volumes: _FileVolumes | _ObjectVolumes, kind: EntryKind[E], *, apart_from: int = 0
) -> list[E]:
    """What all volumes say; listed anew when one was replaced by a later one meanwhile."""
    reason = ""
    for _ in range(_LOOKS):
        numbers = [number for number in volumes.numbers() if number != apart_from]
        try:
            return [entry for number in numbers for entry in _read(volumes, kind, number)]
        except _VolumeGone as gone:
            reason = str(gone)
    raise _corrupt(volumes.place, reason)


def _read(volumes: _FileVolumes | _ObjectVolumes, kind: EntryKind[E], number: int) -> list[E]:
    lines = decode_lines(volumes.read(number))
    entries = lines if isinstance(lines, CorruptRecord) else kind.decode(lines)
    if isinstance(entries, CorruptRecord):
        raise _corrupt(f"{volumes.place}, volume {number}", entries.reason)
    return entries


def _corrupt(place: str, reason: str) -> JournalCorrupt:
    return JournalCorrupt(
        f"{place}: {reason}; restore the file from a copy, or begin again in a new "
        "checkpointLocation"
    )
