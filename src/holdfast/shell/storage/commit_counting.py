"""What commits of an ingest log come to, without their rows: counts, files of users."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from holdfast.core.queues.recording import NO_COMMIT, Following
from holdfast.shell.storage.commit_store import CommitStore
from holdfast.shell.storage.errors import StorageError
from holdfast.shell.storage.places import has_files

if TYPE_CHECKING:
    from holdfast.core.queues.beginning import Beginning
    from holdfast.core.queues.committed_stream import Share
    from holdfast.core.queues.recording import Commit, UserFile


def share_of(beginning: Beginning, root: str, partition: int, partitions: int) -> Share:
    """What an instance was given of commits that are gone. Raises `StorageError`: nobody knows."""
    share = beginning.share(partition, partitions)
    if share is None:
        counts = " or ".join(map(str, sorted(beginning.shares)))
        raise StorageError(
            f"{root} begins at commit {beginning.first_commit}, those before it were removed, and "
            f"ids go on for {counts} partitions alone, not for {partitions}; read it so"
        )
    return share


def first_id_of(root: str, partition: int, partitions: int) -> int:
    """The id of a partition's first tuple that is kept. Raises `StorageError`."""
    if not has_files(root):
        return 0
    store = CommitStore(root)
    try:
        beginning = store.beginning()
    finally:
        store.close()
    return 0 if beginning is None else share_of(beginning, root, partition, partitions).next_id


class CommitFinder:
    """Finds the newest commit. Cost: O(new commits), after one listing."""

    def __init__(self, root: str) -> None:
        """Nothing is looked at yet; the log need not exist."""
        self._root = root
        self._store: CommitStore | None = None  # It knows which packs there are.
        self._newest: int | None = None

    def newest(self) -> int:
        """Its id; -1: there is none."""
        if self._store is None:
            if not has_files(self._root):
                return NO_COMMIT
            self._store = CommitStore(self._root)
        if self._newest is None:
            self._newest = self._store.newest()
        while self._store.has(self._newest + 1):
            self._newest += 1
        return self._newest


def user_files_of(root: str) -> list[UserFile]:
    """All users' files that a log names. Raises as `IngestLogReader.poll`."""
    store = CommitStore(root)
    found: list[UserFile] = []
    try:
        beginning = store.beginning()
        following = Following(0 if beginning is None else beginning.first_commit)
        while (commit := store.next_commit(following)) is not None:
            found += [file.user for file in commit.files if file.user is not None]
    finally:
        store.close()
    return found


class CommitCounter:
    """Counts the rows that one partition holds, from what commits say; from any thread.

    Cost: O(new commits).
    """

    def __init__(self, root: str, partition: int, partitions: int) -> None:
        """Begin at the first commit; the log need not exist yet."""
        self._root = root
        self._partition = partition
        self._partitions = partitions
        self._lock = threading.Lock()
        self._following: Following | None = None
        self._rows = 0

    def rows(self) -> int:
        """All rows so far, late ones included. Raises as `IngestLogReader.poll`."""
        if not has_files(self._root):
            return 0
        store = CommitStore(self._root)
        try:
            with self._lock:
                while (commit := self._next_commit(store)) is not None:
                    files = commit.files[self._partition :: self._partitions]
                    self._rows += sum(file.count for file in files)
                return self._rows
        finally:
            store.close()

    def _next_commit(self, store: CommitStore) -> Commit | None:
        """The next one that is kept; what those before it held is known then."""
        while True:
            if self._following is None:
                self._following = self._begin(store)
            try:
                return store.next_commit(self._following)
            except StorageError:
                beginning = store.beginning()
                if beginning is None or beginning.first_commit <= self._following.next_number:
                    raise
                self._following = None  # Nobody has asked for long.

    def _begin(self, store: CommitStore) -> Following:
        beginning = store.beginning()
        if beginning is None:
            return Following()
        share = share_of(beginning, self._root, self._partition, self._partitions)
        self._rows = share.rows
        return Following(beginning.first_commit)
