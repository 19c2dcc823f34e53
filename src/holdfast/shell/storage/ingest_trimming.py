"""Removes the oldest commits of an ingest log, with their files; see core/queues/beginning.py.

One process at a time does it: the driver that leads. Another one that stood still meanwhile does no
harm: what it deletes lies before a beginning that somebody has put, which never moves back.
"""

from __future__ import annotations

import os
from collections import deque
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Final

import numpy as np

from holdfast.core.queues.beginning import KEPT_COMMITS, Account, is_past, nothing_removed
from holdfast.core.queues.recording import Following
from holdfast.core.queues.retention import Piece, Retention, removable
from holdfast.core.wire.beginnings import encode_beginning
from holdfast.shell.storage.beginnings import delete_marks_before, put_mark
from holdfast.shell.storage.commit_store import CommitStore
from holdfast.shell.storage.errors import StorageError, UnknownStream
from holdfast.shell.storage.ingest_log import IDLE, file_place, read_meta, records_of
from holdfast.shell.storage.ingest_packing import Packer, delete_file
from holdfast.shell.storage.places import is_remote, local_path, store_at

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from holdfast.core.queues.beginning import Beginning
    from holdfast.core.queues.recording import Commit, IngestFile
    from holdfast.shell.storage.ingest_log import IngestMeta

_AT_ONCE: Final = 10_000
"""So many commits are removed with one mark."""


class IngestTrimmer:
    """Removes what is not kept of one log; from one thread."""

    def __init__(
        self,
        root: str,
        partitions: int,
        require_lead: Callable[[], None],
        still_there: Callable[[tuple[str, ...]], tuple[str, ...]] = lambda paths: paths,
    ) -> None:
        """Nothing is looked at yet.

        Args:
            root: The log.
            partitions: Into how many the dataflow splits it.
            require_lead: Raises when another driver leads; asked before a mark is put.
            still_there: Which of users' files, that commits have named, there still are.
        """
        self._root = root
        self._partitions = partitions
        self._require_lead = require_lead
        self._still_there = still_there
        self._store = store_at(root)
        self._commits = CommitStore(root)
        self._meta: IngestMeta | None = None
        self._account: Account | None = None
        self._following = Following()
        self._pieces: deque[Piece] = deque()
        self._is_cleared = False  # what an earlier driver has left

    @property
    def size_bytes(self) -> int:
        """Of all that is kept, users' own files left out."""
        return sum(piece.size_bytes for piece in self._pieces)

    @property
    def oldest_us(self) -> int | None:
        """When the oldest commit that is kept was made; None: there is none."""
        return self._pieces[0].at_us if self._pieces else None

    def trim(self, retention: Retention, needed: Mapping[tuple[int, int], int], now_us: int) -> int:
        """Remove what neither the user nor a restart wants; how many commits that were.

        Args:
            retention: What the user wants.
            needed: See `is_past`.
            now_us: The clock.

        Raises:
            StorageError: The log is damaged, or another driver leads.
        """
        account = self._begun()
        if account is None:
            return 0
        self._look()
        before = account.beginning.first_commit
        if not self._is_cleared:
            self._delete_before(before)
            self._is_cleared = True
        count = min(removable(self._pieces, retention, now_us, KEPT_COMMITS), _AT_ONCE)
        for piece in islice(self._pieces, count):
            behind = self._behind(account, piece.first)
            if behind is None or not is_past(behind, needed):
                break
            account.beginning = behind
        removed = account.beginning.first_commit - before
        if removed:
            self._begin_at(account)
            for _ in range(removed):
                self._pieces.popleft()
        return removed

    def _begun(self) -> Account | None:
        """Who adds up commits, from where the log begins; None: there is no log yet."""
        if self._account is None:
            try:
                self._meta = meta = read_meta(self._root)
            except UnknownStream:
                return None
            beginning = self._commits.beginning() or nothing_removed([self._partitions])
            self._account = Account(meta.delay_us, meta.ahead_us, beginning)
            self._following = Following(beginning.first_commit)
        return self._account

    def _look(self) -> None:
        """Take note of new commits."""
        while (commit := self._commits.next_commit(self._following)) is not None:
            number = self._following.next_number - 1
            packed = self._commits.packs.size_of_rows(number)
            size = sum(map(self._size_of, commit.files)) if packed is None else packed
            self._pieces.append(Piece(number, size, commit.at_us))

    def _size_of(self, file: IngestFile) -> int:
        if file.user is not None:
            return 0
        place = file_place(self._root, file.name)
        if not is_remote(self._root):
            with suppress(OSError):
                return sum(entry.stat().st_size for entry in os.scandir(local_path(place)))
            return 0
        store = store_at(place)
        try:
            return sum(map(store.size, store.names()))
        finally:
            store.close()

    def _behind(self, account: Account, number: int) -> Beginning | None:
        """The beginning behind a commit; None: somebody has deleted it."""
        commit = self._commits.commit(number)
        if commit is None:
            return None
        floor_us, files = account.maybe_late(commit)
        late = {file.name: self._late_rows(number, file, floor_us) for file in files}
        return account.next_after(commit, late)

    def _late_rows(self, number: int, file: IngestFile, floor_us: int) -> int:
        late = 0
        assert self._meta is not None
        for logged in records_of(self._root, self._commits, number, file, self._meta):
            times = logged.batch.column(logged.batch.num_columns - 1).to_numpy()
            late += int(np.count_nonzero(times < floor_us))
        return late

    def _begin_at(self, account: Account) -> None:
        """Put the mark, and only then delete."""
        beginning = account.beginning
        known = self._still_there(beginning.known) if beginning.known else ()
        account.beginning = beginning = replace(beginning, known=known)
        self._require_lead()
        put_mark(self._store, beginning.first_commit, encode_beginning(beginning))
        self._delete_before(beginning.first_commit)

    def _delete_before(self, first: int) -> None:
        """Delete what a mark excludes. Commits go last: they name the files."""
        if not first:
            return
        for number in self._commits.numbers():
            if number < first:
                commit = self._read(number)
                self._delete_files(() if commit is None else commit.files)
                self._commits.delete(number)
        for name in self._store.names(IDLE):
            stem = name.rpartition("/")[2].removesuffix(".json")
            if stem.isdigit() and int(stem) < first - 1:
                self._store.delete(name)
        for pack in self._commits.packs.names():
            if pack.end <= first:
                self._store.delete(str(pack))
        delete_marks_before(self._store, first)

    def _read(self, number: int) -> Commit | None:
        """A commit that does not count any more; None: it is gone, or nobody can read it."""
        try:
            return self._commits.commit(number)
        except StorageError:
            return None

    def _delete_files(self, files: Iterable[IngestFile]) -> None:
        for file in files:
            delete_file(self._root, file)

    def pack(self, now_us: int) -> int:
        """Make what is many small files one, after `trim`; how many packs that made.

        Raises:
            StorageError: As `trim`.
        """
        if self._meta is None:
            return 0  # There is no log yet.
        packer = Packer(self._root, self._store, self._commits, self._meta, self._require_lead)
        return packer.pack(self._pieces, now_us)

    def close(self) -> None:
        """Let go of the stores."""
        self._commits.close()
        self._store.close()
