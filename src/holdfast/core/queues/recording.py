"""Which commits of an ingest log count: who may write one, and what a reader takes next.

Theory of operation. The log is a row of commits, 0, 1, 2 and so on; each is an object that is
created exclusively, so that of two writers one has made it and the other finds it. A commit makes
files part of the stream, and may say that nothing follows. What is written is thereby recorded as
a whole, its end included, or not at all.

A `Recording` writes one commit, in one of two ways:

- Numbered, by whoever knows which batch it is: a streaming query, whose batches Spark numbers, and
  a DataFrame that is recorded as a whole, which is batch 0. However often it is recorded, by one
  driver or by two whose lives overlap, it counts once. It may be there already, in these cases:
  1. It is ours: an attempt whose answer was lost has stored it.
  2. Another attempt has recorded the same batch. That one counts, its files and not ours.
  3. It was made from other offsets, or by another kind of writer. Then rows that ours alone has
     would be lost without a word: refused.
- After all others, by whoever appends.

The commit before a numbered one must be there, and must not be the last one: a reader would never
come as far. So commits have no gap, and of one that is missing it is certain that it was lost.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

from holdfast.core.machine import Effect, Stimulus
from holdfast.core.queues.lateness import FileTimes
from holdfast.core.queues.reach import Span

NO_COMMIT: Final = -1
_GAP_LOOKS: Final = 1024
"""One in so many looks for a commit that is not there is for what may have been lost."""


@dataclass(frozen=True, slots=True)
class UserFile:
    """A file that somebody else wrote, as it was when it became part of the stream.

    Attributes:
        path: Where it lies: a path, or a URL.
        size_bytes: Its size.
        version: What changes when the file does: its modification time, or its store's own mark.
    """

    path: str
    size_bytes: int
    version: str


@dataclass(frozen=True, slots=True)
class IngestFile:
    """One file of a commit.

    Attributes:
        name: Of its folder under `files/`; of a user's file, its path.
        count: Rows.
        min_time_us: Oldest tuple time.
        max_time_us: Newest tuple time.
        disorder_us: How far a row is older than the newest row before it, at most.
        spans: Of its times, if some are far ahead of the others and the clock; see reach.py.
        user: The user's file that is read in place; None: it lies under `files/`.
    """

    name: str
    count: int
    min_time_us: int
    max_time_us: int
    disorder_us: int
    spans: tuple[Span, ...] = ()
    user: UserFile | None = None

    @property
    def times(self) -> FileTimes:
        """What it says of time."""
        times = (self.min_time_us, self.max_time_us, self.disorder_us)
        return FileTimes(self.count, *times, self.spans)


@dataclass(frozen=True, slots=True)
class Commit:
    """What one commit says.

    Attributes:
        by: Who numbers the batches: `batch` writes, or the name of a streaming query's log.
        files: What it makes part of the stream.
        at_us: When it was made.
        watermark_us: Spark's watermark during the batch; None: there is none.
        idle_us: The watermark told while Spark was idle before the batch; None: there was none.
        origin: Stands for the offsets that the batch was read from; empty: nobody says.
        ends: Whether nothing follows.
    """

    by: str
    files: tuple[IngestFile, ...]
    at_us: int
    watermark_us: int | None = None
    idle_us: int | None = None
    origin: str = ""
    ends: bool = False


class Refusal(enum.Enum):
    """Why a commit is not made, or a log not read."""

    ENDED = "ended"
    MISSING = "missing"
    FOREIGN = "foreign"


# -- what has happened ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CommitWanted(Stimulus):
    """Go on: write the commit, or look for the next one."""


@dataclass(frozen=True, slots=True)
class CommitsListed(Stimulus):
    """Which commits there are.

    Attributes:
        last: The highest number; -1: there is none.
    """

    last: int


@dataclass(frozen=True, slots=True)
class CommitRead(Stimulus):
    """What a commit says; None: there is none of this number."""

    number: int
    commit: Commit | None


@dataclass(frozen=True, slots=True)
class CommitPut(Stimulus):
    """The commit is durable."""

    number: int


@dataclass(frozen=True, slots=True)
class BeginningFound(Stimulus):
    """Where the log begins now.

    Attributes:
        first: The first commit that is kept; see beginning.py.
        is_packed: Whether a pack holds the commit that was asked for; see packing.py.
    """

    first: int
    is_packed: bool = False


@dataclass(frozen=True, slots=True)
class CommitTaken(Stimulus):
    """There is a commit of this number already; perhaps it is ours."""

    number: int


# -- what is to be done ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ListCommits(Effect):
    """Answered by `CommitsListed`."""


@dataclass(frozen=True, slots=True)
class ReadCommit(Effect):
    """Answered by `CommitRead`."""

    number: int


@dataclass(frozen=True, slots=True)
class PutCommit(Effect):
    """Create it exclusively and durably; answered by `CommitPut` or `CommitTaken`."""

    number: int
    commit: Commit


@dataclass(frozen=True, slots=True)
class WithdrawCommit(Effect):
    """Delete what was put under a name that had been given before; answered by `CommitTaken`."""

    number: int


@dataclass(frozen=True, slots=True)
class FindBeginning(Effect):
    """Where the log begins, and whether a commit is packed; answered by `BeginningFound`."""

    number: int


@dataclass(frozen=True, slots=True)
class Counted(Effect):
    """The batch counts, once.

    Attributes:
        number: Of its commit.
        is_ours: Whether our files count; otherwise those of an earlier attempt do.
    """

    number: int
    is_ours: bool


@dataclass(frozen=True, slots=True)
class TakeCommit(Effect):
    """The next commit of the stream."""

    number: int
    commit: Commit


@dataclass(frozen=True, slots=True)
class Refuse(Effect):
    """It cannot go on; the text says why, and what helps."""

    refusal: Refusal
    text: str


class Recording:
    """Writes one commit; begun by `CommitWanted`, over with `Counted` or `Refuse`."""

    def __init__(self, commit: Commit, number: int | None = None) -> None:
        """Do nothing yet.

        Args:
            commit: What to write.
            number: Its number, if it has one; None: after all others.
        """
        self._commit = commit
        self._number = number
        self._before = NO_COMMIT if number is None else number - 1
        self._put = NO_COMMIT  # the number that is put, or that was found taken
        self._is_withdrawn = False  # what was put there

    def step(self, stimulus: Stimulus) -> list[Effect]:
        """Take one stimulus; what to do next."""
        match stimulus:
            case CommitWanted():
                return [ListCommits()] if self._number is None else self._look_before()
            case CommitsListed():
                self._before = stimulus.last
                return self._look_before()
            case CommitRead(number, commit):
                return self._on_taken(commit) if number == self._put else self._on_before(commit)
            case CommitPut():
                return [FindBeginning(self._put)]
            case BeginningFound(first, is_packed):
                return self._on_beginning(first, is_packed=is_packed)
            case CommitTaken(number):
                return [ReadCommit(number)]
        raise AssertionError(stimulus)

    def _look_before(self) -> list[Effect]:
        """What stands before ours decides whether anything may follow."""
        return self._put_next() if self._before == NO_COMMIT else [ReadCommit(self._before)]

    def _on_before(self, before: Commit | None) -> list[Effect]:
        if before is None:
            return [_missing(self._before)]
        if before.ends:
            return [_ended(self._before)]
        if self._number is None and self._is_foreign(before):
            return [self._foreign(self._before, before)]
        return self._put_next()

    def _put_next(self) -> list[Effect]:
        self._put, self._is_withdrawn = self._before + 1, False
        return [PutCommit(self._put, self._commit)]

    def _on_beginning(self, first: int, *, is_packed: bool) -> list[Effect]:
        """Ours is there. Whether it counts, is looked at afterwards.

        1. A query's own checkpoints are removed, or it stands still for long. 2. The commit of its
        number is removed, as it is not kept any more. 3. Ours takes the name, and nobody reads it.
        The mark was there before what it lets go was deleted. A pack was there before, too: then
        the commit in it counts, and ours must not stay beside it.
        """
        if self._put < first:
            return [_removed(self._put, first)]
        if is_packed and not self._is_withdrawn:
            self._is_withdrawn = True
            return [WithdrawCommit(self._put)]
        return self._counted()

    def _counted(self) -> list[Effect]:
        return [Counted(self._put, is_ours=True)]

    def _on_taken(self, found: Commit | None) -> list[Effect]:
        """There is a commit of the number that ours was to get."""
        if found is None:
            return [_missing(self._put)]
        if found == self._commit:
            return [FindBeginning(self._put)]
        if self._is_foreign(found):
            return [self._foreign(self._put, found)]
        if self._number is not None:
            return self._on_recorded(found)
        self._before = self._put
        return [_ended(self._put)] if found.ends else self._put_next()

    def _on_recorded(self, found: Commit) -> list[Effect]:
        """Another attempt has recorded our batch, or so it says."""
        is_of_other = self._commit.origin and found.origin and self._commit.origin != found.origin
        if is_of_other or (self._commit.ends and not found.ends):
            return [_otherwise(self._put)]
        return [Counted(self._put, is_ours=False)]

    def _is_foreign(self, found: Commit) -> bool:
        """Whether another kind of writer has numbered it; anybody may end a log."""
        is_end = self._number is None and self._commit.ends and not self._commit.files
        return found.by != self._commit.by and not is_end

    def _foreign(self, number: int, found: Commit) -> Refuse:
        return Refuse(
            Refusal.FOREIGN,
            f"batch {number} was written by {found.by!r}, this is {self._commit.by!r}; batch "
            "writes and a streaming query cannot share an ingest log, nor can two queries",
        )


class Following:
    """Finds the commits of a log in their order; `CommitWanted` asks for the next one.

    No effect means that there is none yet, or that nothing follows.
    """

    def __init__(self, next_number: int = 0) -> None:
        """Begin at the first commit, or at the first one that is kept; see beginning.py."""
        self.next_number = next_number
        self.ended = False
        self._absent_looks = 0
        self._last = NO_COMMIT  # of a listing that is to be judged

    def step(self, stimulus: Stimulus) -> list[Effect]:
        """Take one stimulus; what to do next."""
        match stimulus:
            case CommitWanted():
                self._last = NO_COMMIT
                return [] if self.ended else [ReadCommit(self.next_number)]
            case CommitRead(_, commit):
                return self._on_absent() if commit is None else self._take_commit(commit)
            case CommitsListed():
                self._last = stimulus.last
                return [ReadCommit(self.next_number)] if self._last >= self.next_number else []
        raise AssertionError(stimulus)

    def _take_commit(self, commit: Commit) -> list[Effect]:
        number, self.next_number = self.next_number, self.next_number + 1
        self.ended = commit.ends
        return [TakeCommit(number, commit)]

    def _on_absent(self) -> list[Effect]:
        """It is not there: not yet, or because it was lost; a later one shows that it was.

        All commits are listed for it: at the first look, and then ever more seldom.
        """
        if self._last >= self.next_number:
            return [_missing(self.next_number)]
        self._absent_looks += 1
        looks = self._absent_looks
        is_due = looks % _GAP_LOOKS == 0 or (looks < _GAP_LOOKS and looks.bit_count() == 1)
        return [ListCommits()] if is_due else []


def _otherwise(number: int) -> Refuse:
    return Refuse(
        Refusal.FOREIGN,
        f"batch {number} was recorded from other offsets: another driver records here, or the "
        "streaming query's own checkpoints were removed; stop the other one, and begin again in a "
        "new checkpointLocation",
    )


def _removed(number: int, first: int) -> Refuse:
    return Refuse(
        Refusal.FOREIGN,
        f"batch {number} was recorded and removed before: the log begins at commit {first}. The "
        "streaming query's own checkpoints were removed, or another driver records here; stop the "
        "other one, and begin again in a new checkpointLocation",
    )


def _ended(number: int) -> Refuse:
    return Refuse(
        Refusal.ENDED,
        f"it has ended with commit {number}, and nothing can follow; write to another log",
    )


def _missing(number: int) -> Refuse:
    return Refuse(
        Refusal.MISSING,
        f"commit {number} is missing although later ones were made; restore it from a copy, or "
        "begin again in a new checkpointLocation",
    )
