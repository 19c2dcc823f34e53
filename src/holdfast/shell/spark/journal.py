"""The coordinator's journal: one folder per checkpoint location, one file per epoch.

Its lines are those of core/wire/journal_lines.py; a torn end is ignored. Files are created
exclusively, so of two coordinators on one location only one gets an epoch. Each file begins with
the state that earlier ones had reached, so that one good file is enough.
"""

from __future__ import annotations

import os
from pathlib import Path

from holdfast.core.wire.journal_lines import decode_lines, encode_line
from holdfast.core.wire.log_records import CorruptRecord
from holdfast.shell.storage.errors import JournalCorrupt
from holdfast.shell.storage.paths import sync_path


class Journal:
    """An append-only journal of one epoch."""

    def __init__(self, folder: str) -> None:
        """Read what earlier epochs left, and begin the next one.

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
        self._path = path / f"{self.epoch:010d}.journal"
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_APPEND
        self._file = os.open(self._path, flags, 0o600)
        self._compact(files)

    def _compact(self, files: list[Path]) -> None:
        """Carry over only the newest incarnation and restart point of each node."""
        newest: dict[tuple[object, str], dict[str, object]] = {}
        for entry in self.entries:
            kind = "point" if "point" in entry else "incarnation"
            newest[(entry.get("node"), kind)] = entry
        self.entries = tuple(newest.values())
        self.write(list(self.entries))
        sync_path(self._path.parent)
        for file in files:
            file.unlink(missing_ok=True)

    def write(self, entries: list[dict[str, object]]) -> None:
        """Append entries and make them durable before returning."""
        if not entries:
            return
        os.write(self._file, b"".join(encode_line(entry) for entry in entries))
        os.fdatasync(self._file)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


def _read(file: Path) -> list[dict[str, object]]:
    entries = decode_lines(file.read_bytes())
    if isinstance(entries, CorruptRecord):
        raise JournalCorrupt(
            f"{file}: {entries.reason}; restore the file from a copy, or begin again in a new "
            "checkpointLocation"
        )
    return entries
