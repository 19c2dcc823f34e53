"""The commits of an ingest log as objects of a store: does what core/queues/recording decides."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

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
)
from holdfast.core.wire.ingest_commits import decode_commit, encode_commit
from holdfast.core.wire.log_records import CorruptRecord
from holdfast.shell.storage.beginnings import beginning_of
from holdfast.shell.storage.errors import FileDamaged, LogEnded, StorageError
from holdfast.shell.storage.places import read_if_any, store_at
from holdfast.shell.stores.base import NameTaken

if TYPE_CHECKING:
    from holdfast.core.machine import Effect, Stimulus
    from holdfast.core.queues.beginning import Beginning

COMMITS: Final = "commits"


class CommitStore:
    """The commits below one root."""

    def __init__(self, root: str) -> None:
        """Open the place. Raises `StoreUnavailable`."""
        self._root = root
        self._store = store_at(root)

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
        """Those of all commits, in order; not all of them need count any more."""
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

    def delete(self, number: int) -> None:
        """Let go of a commit that is not kept any more; twice does no harm."""
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
            case FindBeginning():
                beginning = self.beginning()
                return BeginningFound(0 if beginning is None else beginning.first_commit)
            case ListCommits():
                return CommitsListed(self.newest())
            case Refuse(refusal, text):
                error = LogEnded if refusal is Refusal.ENDED else StorageError
                raise error(f"{self._root}: {text}")
        raise AssertionError(effect)

    def _put(self, number: int, content: bytes) -> Stimulus:
        try:
            self._store.put_soon(_name(number), content)
        except NameTaken:
            return CommitTaken(number)
        return CommitPut(number)

    def _read(self, number: int) -> Commit | None:
        found = read_if_any(self._store, _name(number))
        if found is None:
            return None
        commit = decode_commit(found)
        if isinstance(commit, CorruptRecord):
            raise FileDamaged(f"{self._root}/{_name(number)}", commit.reason)
        return commit


def _name(number: int) -> str:
    return f"{COMMITS}/{number:020d}.json"
