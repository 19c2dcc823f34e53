"""The coordinator's journal: one folder per checkpoint location, one volume per epoch.

Lines are those of core/wire/journal_lines.py; a torn end is ignored. Volumes are created
exclusively, so of two coordinators on one location only one gets an epoch. Each begins with the
state that earlier ones had reached, so that one good volume is enough.

In a folder a volume is a file that is appended to. In a store that cannot append it is a folder of
objects, each with the lines of one write; whoever writes often begins it anew now and then.
"""

from __future__ import annotations

import logging
import os
import secrets
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol

from holdfast.core.wire.journal_lines import decode_lines, encode_line
from holdfast.core.wire.log_records import CorruptRecord
from holdfast.shell.storage.errors import JournalCorrupt, StorageError
from holdfast.shell.storage.paths import sync_path
from holdfast.shell.storage.places import is_remote, local_path, store_at
from holdfast.shell.storage.small_files import open_regular
from holdfast.shell.stores.base import NameTaken, ObjectMissing, StoreUnavailable
from holdfast.shell.stores.patience import patiently

_LOG = logging.getLogger(__name__)
JOURNAL_FOLDER = "coordinator"
_OBJECTS_MAX = 256
_POINTS_INTERVAL_S = 0.25


def newest_of_each_node(entries: Iterable[dict[str, object]]) -> list[dict[str, object]]:
    """Only the newest incarnation and restart point of each node."""
    newest: dict[tuple[object, str], dict[str, object]] = {}
    for entry in entries:
        kind = "point" if "point" in entry else "incarnation"
        newest[(entry.get("node"), kind)] = entry
    return list(newest.values())


class Volume(Protocol):
    """A volume that is being written."""

    def write(self, lines: bytes) -> None:
        """Append durably."""
        ...

    def close(self) -> None:
        """Write no more."""
        ...


class _FileVolume:
    """A file, appended to."""

    def __init__(self, path: Path) -> None:
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_APPEND
        self._file = os.open(path, flags, 0o600)

    def write(self, lines: bytes) -> None:
        view = memoryview(lines)
        while len(view):
            view = view[os.write(self._file, view) :]
        os.fdatasync(self._file)

    def close(self) -> None:
        os.close(self._file)


class _FileVolumes:
    """The volumes in a folder."""

    objects_max = None

    def __init__(self, folder: str) -> None:
        self._folder = Path(local_path(folder))

    def numbers(self) -> list[int]:
        stems = (file.stem for file in self._folder.glob("[0-9]*.journal"))
        return sorted(int(stem) for stem in stems if stem.isdigit())

    def read(self, number: int) -> bytes:
        with os.fdopen(open_regular(self._path(number)), "rb") as file:
            return file.read()

    def begin(self, number: int, lines: bytes) -> Volume:
        self._folder.mkdir(parents=True, exist_ok=True)
        volume = _FileVolume(self._path(number))
        volume.write(lines)
        sync_path(self._folder)
        return volume

    def delete(self, number: int) -> None:
        self._path(number).unlink(missing_ok=True)

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:010d}.journal"


class _ObjectVolumes:
    """The volumes in a store: `<number>/<write>`.

    Write 0 is who begins it. A volume without it is what a coordinator wrote after another had
    taken over.
    """

    objects_max = _OBJECTS_MAX

    def __init__(self, place: str) -> None:
        self.place = place
        self.store = store_at(place)

    def numbers(self) -> list[int]:
        begun = [name for name in self.store.names() if name.endswith(f"/{0:010d}")]
        return sorted(int(name.partition("/")[0]) for name in begun)

    def read(self, number: int) -> bytes:
        names = self.store.names(f"{number:010d}")
        return b"".join(bytes(self.store.read(name)) for name in names[1:])

    def begin(self, number: int, lines: bytes) -> Volume:
        if not self.store.is_exclusive:
            _LOG.warning(
                "%s cannot create files exclusively: two drivers started there at the same moment "
                "would not notice each other",
                self.place,
            )
        volume = _ObjectVolume(self, number)
        volume.write(secrets.token_hex(16).encode())
        volume.write(lines)
        return volume

    def delete(self, number: int) -> None:
        for name in self.store.names(f"{number:010d}"):
            self.store.delete(name)


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
        name = f"{self._number:010d}/{self._count:010d}"

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
            raise StorageError(
                f"another driver has begun epoch {self._number} at {self._place}; stop one of them"
            )
        return True

    def close(self) -> None:
        """Nothing is open."""


def _volumes(place: str) -> _FileVolumes | _ObjectVolumes:
    return _ObjectVolumes(place) if is_remote(place) else _FileVolumes(place)


class Journal:
    """An append-only journal of one epoch."""

    def __init__(
        self,
        folder: str,
        compact: Callable[
            [Iterable[dict[str, object]]], list[dict[str, object]]
        ] = newest_of_each_node,
    ) -> None:
        """Read what earlier epochs left, and begin the next one.

        Args:
            folder: Where its volumes are; a folder or a URL.
            compact: Gives the shortest entries that say the same.

        Raises:
            JournalCorrupt: A volume is damaged before its end.
            StorageError: Another coordinator begins the same epoch.
        """
        self._volumes = _volumes(folder)
        self._compact = compact
        self._written_s = 0.0
        numbers = self._volumes.numbers()
        found = [entry for number in numbers for entry in _read(self._volumes, folder, number)]
        self.entries: tuple[dict[str, object], ...] = tuple(compact(found))
        self.epoch = numbers[-1] + 1 if numbers else 1
        self._begin(self.epoch, list(self.entries), numbers)

    def _begin(self, number: int, entries: list[dict[str, object]], former: list[int]) -> None:
        """Start a volume with what former ones had reached; then they may go."""
        self._number = number
        lines = _lines(entries)
        self.written_bytes = len(lines)
        self._said = entries  # what the volume says, if it is to be begun anew by itself
        self._writes = 0
        self._volume = self._volumes.begin(number, lines)
        for one in former:
            self._volumes.delete(one)

    def begin_anew(self, entries: list[dict[str, object]]) -> None:
        """Go on in another volume that begins with these entries, and forget the one before.

        The next epoch is above the number of the newest volume, so above all of this life.
        """
        self._volume.close()
        self._begin(self._number + 1, entries, [self._number])

    def is_due(self, entries: list[dict[str, object]]) -> bool:
        """Whether to write now: where every write is an object, restart points may wait a little.

        What they allow is to trim; everything else is what a recovery waits for.
        """
        if self._volumes.objects_max is None or any("point" not in entry for entry in entries):
            return True
        return time.monotonic() - self._written_s > _POINTS_INTERVAL_S

    def write(self, entries: list[dict[str, object]]) -> None:
        """Append entries and make them durable before returning."""
        if not entries:
            return
        lines = _lines(entries)
        self.written_bytes += len(lines)
        self._volume.write(lines)
        self._writes += 1
        self._written_s = time.monotonic()
        if self._volumes.objects_max is not None:
            self._said = self._compact([*self._said, *entries])
            if self._writes >= self._volumes.objects_max:
                self.begin_anew(self._said)

    def close(self) -> None:
        """Write no more."""
        self._volume.close()


def read_entries(folder: str) -> list[dict[str, object]]:
    """What all volumes of a journal say, without beginning an epoch.

    Raises:
        JournalCorrupt: A volume is damaged before its end.
    """
    volumes = _volumes(folder)
    return [entry for number in volumes.numbers() for entry in _read(volumes, folder, number)]


def _lines(entries: Iterable[dict[str, object]]) -> bytes:
    return b"".join(encode_line(entry) for entry in entries)


def _read(
    volumes: _FileVolumes | _ObjectVolumes, folder: str, number: int
) -> list[dict[str, object]]:
    entries = decode_lines(volumes.read(number))
    if isinstance(entries, CorruptRecord):
        raise JournalCorrupt(
            f"{folder}, volume {number}: {entries.reason}; restore the file from a copy, "
            "or begin again in a new checkpointLocation"
        )
    return entries
