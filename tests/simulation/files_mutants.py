"""Deliberate bugs in how users' files become part of a stream, and in how nodes read them."""

from __future__ import annotations

from typing import Any

from mutants import Mutant

from holdfast.core.queues.committed_stream import Accepted, CommittedStream
from holdfast.core.queues.file_discovery import FileDiscovery
from holdfast.core.queues.lateness import Lateness

_RESTARTS = ("kill", "machine-crash")


def _read_in_order_of_names(_: Any) -> Any:
    def next_files(self: FileDiscovery, listed: Any, most: int) -> Any:
        new = [found.file for found in listed if found.file.path not in self._seen]
        return sorted(new, key=lambda file: file.path)[:most]

    return next_files


def _forget_what_earlier_lives_have_read(original: Any) -> Any:
    """All but the newest commit."""

    def recorded(self: FileDiscovery, commit: Any) -> None:
        self._seen.clear()
        original(self, commit)

    return recorded


def _promise_by_the_present_file(original: Any) -> Any:
    """What a file says of its rows is taken for what all files behind it say."""

    def split(self: Lateness, batch: Any, behind_us: int) -> Any:
        found = original(self, batch, behind_us)
        if self._rows_left > 0:
            self._move(min(behind_us, self._next_floor_us))
        return found

    return split


def _go_on_in_the_file_before(original: Any) -> Any:
    """A replacement that begins within a file gives the file's first rows the ids of later ones."""

    def accept(self: CommittedStream, record: Any, *behind_us: Any) -> Any:
        found = original(self, record, *behind_us)
        if found is None or found.is_whole or found.batch.num_rows == record.num_rows:
            return found
        batch = record.slice(0, found.batch.num_rows)
        return Accepted(found.first_id, batch, found.boundary_us, False)

    return accept


FILES_MUTANTS: dict[str, Mutant] = {
    "reads files in order of their names": Mutant(
        FileDiscovery, "next_files", _read_in_order_of_names, ()
    ),
    "forgets what earlier lives have read": Mutant(
        FileDiscovery, "recorded", _forget_what_earlier_lives_have_read, ()
    ),
    "promises by the present file alone": Mutant(
        Lateness, "split", _promise_by_the_present_file, ()
    ),
    "begins a file at its first row again": Mutant(
        CommittedStream, "accept", _go_on_in_the_file_before, _RESTARTS
    ),
}
