"""Which files of a listing become part of a stream next, and in which order.

As in Spark's file source: a file is read once, whatever happens to it afterwards; new ones come in
the order of their modification times, those of the same time in the order of their paths. What has
been recorded is known by its commits, so that a restart goes on where its predecessor stopped.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from holdfast.core.queues.recording import Commit, UserFile


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A file that a listing has found.

    Attributes:
        file: What it is.
        modified_ns: When it was modified last, in nanoseconds since 1970.
    """

    file: UserFile
    modified_ns: int


class FileDiscovery:
    """Remembers by their paths the files that need not be looked at any more."""

    def __init__(self) -> None:
        """None has been seen."""
        self._seen: dict[str, None] = {}

    def recorded(self, commit: Commit) -> None:
        """A commit has made files part of the stream, whoever wrote it."""
        self._seen.update((file.user.path, None) for file in commit.files if file.user is not None)

    def passed(self, path: str) -> None:
        """A file holds no rows: nothing of it will ever be part of the stream."""
        self._seen[path] = None

    def forget(self, paths: Iterable[str]) -> None:
        """These files are gone, and so are the commits that named them."""
        for path in paths:
            self._seen.pop(path, None)

    def next_files(self, listed: Iterable[ListedFile], most: int) -> list[UserFile]:
        """The first `most` of the new files, in order.

        Cost: O(n log n) for n new files.
        """
        new = [found for found in listed if found.file.path not in self._seen]
        new.sort(key=lambda found: (found.modified_ns, found.file.path))
        return [found.file for found in new[:most]]
