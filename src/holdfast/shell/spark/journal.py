"""The coordinator's journal: one folder per checkpoint location, one file per epoch.

Its lines are those of core/wire/journal_lines.py; a torn end is ignored. Files are created
exclusively, so of two coordinators on one location only one gets an epoch. Each file begins with
the state that earlier ones had reached, so that one good file is enough.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

from holdfast.core.wire.journal_lines import decode_lines, encode_line
from holdfast.core.wire.log_records import CorruptRecord
from holdfast.shell.storage.errors import JournalCorrupt
from holdfast.shell.storage.paths import sync_path


def newest_of_each_node(entries: Iterable[dict[str, object]]) -> list[dict[str, object]]:
    """Only the newest incarnation and restart point of each node."""
    newest: dict[tuple[object, str], dict[str, object]] = {}
    for entry in entries:
        kind = "point" if "point" in entry else "incarnation"
        newest[(entry.get("node"), kind)] = entry
    return list(newest.values())


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
            folder: Where its files are.
            compact: Gives the shortest entries that say the same.

        Raises:
            JournalCorrupt: A file is damaged before its end.
        """
        path = Path(folder)
        path.mkdir(parents=True, exist_ok=True)
        files = sorted(path.glob("[0-9]*.journal"))
        self.entries: tuple[dict[str, object], ...] = tuple(
            entry for file in files for entry in _read(file)
        )
        self.epoch = int(files[-1].stem) + 1 if files else 1
        self.entries = tuple(compact(self.entries))
        self._begin(path / f"{self.epoch:010d}.journal", list(self.entries), files)

    def _begin(self, path: Path, entries: list[dict[str, object]], former: list[Path]) -> None:
        """Start a file with what former ones had reached; then they may go."""
        self._path = path
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_APPEND
        self._file = os.open(path, flags, 0o600)
        self.written_bytes = 0
        self.write(entries)
        sync_path(path.parent)
        for file in former:
            file.unlink(missing_ok=True)

    def begin_anew(self, entries: list[dict[str, object]]) -> None:
        """Go on in another file that begins with these entries, and forget the one before.

        The next epoch is above the number of the newest file, so above all of this life.
        """
        former = self._path
        os.close(self._file)
        self._begin(former.with_stem(f"{int(former.stem) + 1:010d}"), entries, [former])

    def write(self, entries: list[dict[str, object]]) -> None:
        """Append entries and make them durable before returning."""
        if not entries:
            return
        lines = memoryview(b"".join(encode_line(entry) for entry in entries))
        self.written_bytes += len(lines)
        while len(lines):
            lines = lines[os.write(self._file, lines) :]
        os.fdatasync(self._file)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


def read_entries(folder: str) -> list[dict[str, object]]:
    """What all files of a journal say, without beginning an epoch.

    Raises:
        JournalCorrupt: A file is damaged before its end.
    """
    files = sorted(Path(folder).glob("[0-9]*.journal"))
    return [entry for file in files for entry in _read(file)]


def _read(file: Path) -> list[dict[str, object]]:
    entries = decode_lines(file.read_bytes())
    if isinstance(entries, CorruptRecord):
        raise JournalCorrupt(
            f"{file}: {entries.reason}; restore the file from a copy, or begin again in a new "
            "checkpointLocation"
        )
    return entries
