"""The commits of an ingest log as objects of a store: does what core/queues/recording decides."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

from holdfast.core.queues.packing import PACKS
from holdfast.core.queues.recording import (
    NO_COMMIT,
    BeginningFound,
    Commit,
    CommitPut,
    CommitRead,
    CommitsListed,
    CommitTaken,
    CommitWanted,
    Counted,
    FindBeginning,
    Following,
    ListCommits,
    PutCommit,
    ReadCommit,
    Recording,
    Refusal,
    Refuse,
    TakeCommit,
    WithdrawCommit,
)
from holdfast.core.wire.ingest_commits import decode_commit, encode_commit
from holdfast.core.wire.log_records import CorruptRecord
from holdfast.shell.storage.beginnings import beginning_of
from holdfast.shell.storage.commit_packs import CommitPacks
from holdfast.shell.storage.errors import FileDamaged, LogEnded, StorageError
from holdfast.shell.storage.places import read_if_any, store_at
from holdfast.shell.stores.base import NameTaken

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from holdfast.core.machine import Effect, Stimulus
    from holdfast.core.queues.beginning import Beginning
    from holdfast.core.queues.recording import IngestFile
    from holdfast.shell.storage.log_follower import LoggedBatch

COMMITS: Final = "commits"


class CommitStore:
    """The commits below one root.

    Attributes:
        packs: Where the older ones are.
    """

    def __init__(self, root: str) -> None:
        """Open the place. Raises `StoreUnavailable`."""
        self._root = root
        self._store = store_at(root)
        self.packs = CommitPacks(self._store, root)
        self._last: tuple[int, Commit] | None = None  # of those read in packs

    def record(self, recording: Recording) -> Counted:
        """Write a commit, or find it there.

        Raises:
            LogEnded: Nothing can follow any more.
            StorageError: Another kind of writer has used the number, the one before is missing, or
                a commit is damaged.
        """
        done = self._run(recording)
        assert isinstance(done, Counted)
        return done

    def next_commit(self, following: Following) -> Commit | None:
        """The next commit; None: there is none yet, or nothing follows.

        Raises:
            StorageError: It is missing although later ones are there, or it is damaged.
        """
        done = self._run(following)
        assert done is None or isinstance(done, TakeCommit)
        return None if done is None else done.commit

    def has_ended(self) -> bool:
        """Whether nothing will follow."""
        last = self.newest()
        newest = None if last == NO_COMMIT else self._read(last)
        return newest is not None and newest.ends

    def newest(self) -> int:
        """The number of the newest commit; -1: there is none."""
        return max(self.numbers(), default=NO_COMMIT)

    def numbers(self) -> list[int]:
        """Those of all commits outside of packs, in order; not all need count any more."""
        stems = [PurePosixPath(n).stem for n in self._store.names(COMMITS) if n.endswith(".json")]
        return sorted(int(stem) for stem in stems if stem.isdigit())

    def beginning(self) -> Beginning | None:
        """Which commits are kept, and what the others have come to; None: all are.

        Raises:
            FileDamaged: Nobody can tell.
        """
        return beginning_of(self._store, self._root)

    def commit(self, number: int) -> Commit | None:
        """What one says; None: it is not there. Raises `FileDamaged`."""
        return self._read(number)

    def packed(
        self, number: int, file: IngestFile, schema: pa.Schema
    ) -> Iterator[LoggedBatch] | None:
        """The records of a commit's file; None: no pack that is known holds it."""
        commit = self._packed(number)
        names = [] if commit is None else [each.name for each in commit.files]
        if file.name not in names:
            return None  # Or it is of a writer that came too late.
        return self.packs.records(number, names.index(file.name), schema)

    def delete(self, number: int) -> None:
        """Let go of a commit that is not kept any more, or packed; twice does no harm."""
        self._store.delete(_name(number))

    def has(self, number: int) -> bool:
        """Whether there is a commit of this number."""
        return self._read(number) is not None

    def close(self) -> None:
        """Let go of the store."""
        self._store.close()

    def _run(self, machine: Recording | Following) -> Effect | None:
        """Perform one effect after the other, up to the one that is the result."""
        effects = machine.step(CommitWanted())
        while effects:
            (effect,) = effects
            if isinstance(effect, (Counted, TakeCommit)):
                return effect
            effects = machine.step(self._perform(effect))
        return None

    def _perform(self, effect: Effect) -> Stimulus:
        match effect:
            case ReadCommit(number):
                return CommitRead(number, self._read(number))
            case PutCommit(number, commit):
                return self._put(number, encode_commit(commit))
            case FindBeginning(number):
                return self._beginning_found(number)
            case WithdrawCommit(number):
                self.delete(number)
                return CommitTaken(number)
            case ListCommits():
                listed = CommitsListed(self.newest())
                self.packs.look()  # After that: what a pack holds is deleted behind it.
                return listed
            case Refuse(refusal, text):
                error = LogEnded if refusal is Refusal.ENDED else StorageError
                raise error(f"{self._root}: {text}")
        raise AssertionError(effect)

    def _beginning_found(self, number: int) -> BeginningFound:
        beginning = self.beginning()
        self.packs.look()
        first = 0 if beginning is None else beginning.first_commit
        return BeginningFound(first, self.packs.holds(number))

    def _put(self, number: int, content: bytes) -> Stimulus:
        try:
            self._store.put_soon(_name(number), content)
        except NameTaken:
            return CommitTaken(number)
        return CommitPut(number)

    def _read(self, number: int) -> Commit | None:
        """Where it lies; see core/queues/packing.py for the order of looking."""
        packed = self._packed(number)
        if packed is not None:
            return packed
        name = _name(number)
        found = read_if_any(self._store, name)
        self.packs.look(seldom=found is None)
        packed = self._packed(number)
        if packed is not None or found is None:
            return packed
        return _decoded(found, f"{self._root}/{name}")

    def _packed(self, number: int) -> Commit | None:
        """A commit of the packs that are known; the last one is remembered."""
        if self._last is None or self._last[0] != number:
            content = self.packs.content(number)
            if content is None:
                return None
            self._last = number, _decoded(content, f"{self._root}/{PACKS}")
        return self._last[1]


def _name(number: int) -> str:
    return f"{COMMITS}/{number:020d}.json"


def _decoded(content: bytes, place: str) -> Commit:
    commit = decode_commit(content)
    if isinstance(commit, CorruptRecord):
        raise FileDamaged(place, commit.reason)
    return commit
