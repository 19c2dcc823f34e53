"""Packs old commits of an ingest log, with their files; see core/queues/packing.py.

One process at a time does it, as it trims (ingest_trimming.py). Another one that stood still
meanwhile makes the same packs, and deletes what is in them.
"""

from __future__ import annotations

import shutil
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

from holdfast.core.queues.packing import PACKS, PackName, due, within_others
from holdfast.core.wire.commit_packs import PackMaker
from holdfast.core.wire.ingest_commits import encode_commit
from holdfast.core.wire.log_records import RecordKind, encode_record
from holdfast.shell.storage.errors import FileMissing
from holdfast.shell.storage.ingest_log import IDLE, file_place, records_of
from holdfast.shell.storage.paths import sync_path
from holdfast.shell.storage.places import is_remote, local_path, store_at
from holdfast.shell.storage.rights import storage_error
from holdfast.shell.stores.base import NameTaken

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    import pyarrow as pa

    from holdfast.core.queues.recording import IngestFile
    from holdfast.core.queues.retention import Piece
    from holdfast.shell.storage.commit_store import CommitStore
    from holdfast.shell.storage.ingest_log import IngestMeta
    from holdfast.shell.stores.base import CheckpointStore

_AT_ONCE: Final = 64
"""So many packs are made at one look."""


class Packer:
    """Packs one log; from the thread that trims it."""

    def __init__(
        self,
        root: str,
        store: CheckpointStore,
        commits: CommitStore,
        meta: IngestMeta,
        require_lead: Callable[[], None],
    ) -> None:
        """Nothing is looked at yet; `require_lead` raises when another driver leads."""
        self._root = root
        self._store = store
        self._commits = commits
        self._meta = meta
        self._require_lead = require_lead

    def pack(self, pieces: Collection[Piece], now_us: int) -> int:
        """Make the packs that are due; how many.

        Args:
            pieces: The commits that are kept, the oldest first.
            now_us: The clock.

        Raises:
            StorageError: The log is damaged, or another driver leads.
        """
        packs = self._commits.packs
        packs.look()
        whole = packs.whole()
        made = list(islice(due(pieces, whole, now_us), _AT_ONCE))
        for name in made:
            self._make(name)
        packs.look()
        self._clear({*whole, *made})
        return len(made)

    def _make(self, name: PackName) -> None:
        """Put one; what is in it stays for now."""
        maker = PackMaker()
        for number in range(name.first, name.end):
            commit = self._commits.commit(number)
            if commit is None:
                raise FileMissing(f"{self._root}: commit {number}", "later ones are there")
            maker.begin_commit(encode_commit(commit))
            for file in commit.files:
                is_own = file.user is None
                maker.add_file(list(self._parts(number, file)) if is_own else [])
        parts = maker.made()
        self._require_lead()
        try:
            self._store.put(str(name), parts)
        except NameTaken:  # It is not whole, as that of one who died; or another driver makes it.
            if not self._commits.packs.is_whole(name):
                self._store.delete(str(name))
                self._store.put(str(name), parts)

    def _parts(self, number: int, file: IngestFile) -> Iterator[bytes | pa.Buffer]:
        """The records of a file as they are in a pack."""
        for logged in records_of(self._root, self._commits, number, file, self._meta):
            yield from encode_record(
                RecordKind.DATA,
                logged.tuple_type,
                logged.incarnation,
                logged.first_id,
                logged.boundary_us,
                logged.created_us,
                logged.batch,
            )

    def _clear(self, packs: set[PackName]) -> None:
        """Delete what packs hold, also what an earlier driver has left. Commits go last."""
        within = within_others(packs)
        packed = [n for n in self._commits.numbers() if self._commits.packs.holds(n)]
        if (within or packed) and not is_remote(self._root):
            self._sync_names()
        for name in within:
            self._store.delete(str(name))
        for number in packed:
            commit = self._commits.commit(number)
            for file in () if commit is None else commit.files:
                delete_file(self._root, file)
            self._store.delete(f"{IDLE}/{number:020d}.json")
            self._commits.delete(number)

    def _sync_names(self) -> None:
        """Make the names of packs durable: another driver may have put one a moment ago.

        Raises `StorageError`.
        """
        folder = Path(local_path(self._root))
        try:
            sync_path(folder / PACKS)
            sync_path(folder)
        except OSError as error:
            raise storage_error(error, folder) from error


def delete_file(root: str, file: IngestFile) -> None:
    """Delete a file of a log; a user's stays."""
    if file.user is not None:
        return
    if not is_remote(root):
        shutil.rmtree(local_path(file_place(root, file.name)), ignore_errors=True)
        return
    store = store_at(file_place(root, file.name))
    try:
        for name in store.names():
            store.delete(name)
    finally:
        store.close()
