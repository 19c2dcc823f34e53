"""The beginning of a recording: which commit is the first that is kept, and what it needs.

Theory of operation. A recording (recording.py) is a row of commits without gaps, and both ids and
lateness count from the first one. So commits cannot just be deleted. Who removes some first makes a
*beginning* durable: the number of the first commit that stays, and all that those before it have
come to. Ids go on from there as if nothing had been removed.

1. The beginning is put. From here on no reader looks at what lies before it.
2. Files, then commits before it are deleted, in any order, and again after a crash.
3. Earlier beginnings are deleted.

A commit that is missing behind the newest beginning was lost, as before. A reader that wants an id
before it comes too late, and is told so.

What commits come to: the floor of the next one and the newest time (lateness.py), and per number of
instances that anybody reads with how many tuples each of them was given. A commit without a file is
a commit like any other. The two newest commits are never removed: who writes the next one reads the
one before, and may write the newest one again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from holdfast.core.model.ids import BEGINNING_US
from holdfast.core.queues.committed_stream import Share
from holdfast.core.queues.lateness import CommitTimes, Lateness, Standing
from holdfast.core.queues.recording import Commit, IngestFile

KEPT_COMMITS: Final = 2
"""So many of the newest commits are never removed."""


@dataclass(frozen=True, slots=True)
class Beginning:
    """What the commits before the first one that is kept have come to.

    Attributes:
        first_commit: The first one that is kept.
        standing: Of lateness, behind them.
        shares: Per number of instances what each was given.
        newest_us: The newest time of all their rows, whether it moved time or not.
        at_us: When the last of them was made.
        known: Users' files among them that need not be looked at any more, by path.
    """

    first_commit: int
    standing: Standing
    shares: Mapping[int, tuple[Share, ...]]
    newest_us: int = BEGINNING_US
    at_us: int = BEGINNING_US
    known: tuple[str, ...] = ()

    def share(self, partition: int, partitions: int) -> Share | None:
        """What instance `partition` of so many was given; None: nobody has counted for so many."""
        shares = self.shares.get(partitions)
        return None if shares is None else shares[partition]


def nothing_removed(partitions: Sequence[int]) -> Beginning:
    """Of a recording that has all its commits, which is read with these numbers of instances."""
    shares = {count: (Share(),) * count for count in sorted({1, *partitions})}
    return Beginning(0, Standing(), shares)


class Account:
    """Adds commits to a beginning, one by one.

    `next_after` asks what the beginning would be behind the next commit; some of its files may have
    to be read for it: those in which tuples may be late.
    """

    def __init__(self, delay_us: int, ahead_us: int | None, beginning: Beginning) -> None:
        """Go on from a beginning; see `Lateness` for the rest."""
        self._delay_us, self._ahead_us = delay_us, ahead_us
        self.beginning = beginning

    def maybe_late(self, commit: Commit) -> tuple[int, list[IngestFile]]:
        """The floor of the next commit, and those of its files that have tuples older than that."""
        lateness = self._behind(commit)
        floor_us = lateness.floor_us
        return floor_us, [file for file in commit.files if file.min_time_us < floor_us]

    def next_after(self, commit: Commit, late_rows: Mapping[str, int]) -> Beginning:
        """The beginning behind the next commit.

        Args:
            commit: The one of number `beginning.first_commit`.
            late_rows: By name, of each of the files that may have some, how many are late.
        """
        lateness, before = self._behind(commit), self.beginning
        shares = {
            count: tuple(
                _with(share, commit.files[index::count], late_rows)
                for index, share in enumerate(of_all)
            )
            for count, of_all in before.shares.items()
        }
        known = [file.user.path for file in commit.files if file.user is not None]
        return replace(
            before,
            first_commit=before.first_commit + 1,
            standing=lateness.standing(),
            shares=shares,
            newest_us=max([before.newest_us, *(file.max_time_us for file in commit.files)]),
            at_us=max(before.at_us, commit.at_us),
            known=(*before.known, *known),
        )

    def _behind(self, commit: Commit) -> Lateness:
        lateness = Lateness(self._delay_us, self._ahead_us, self.beginning.standing)
        times = [file.times for file in commit.files]
        lateness.begin(
            CommitTimes(times, commit.watermark_us, commit.idle_us, commit.at_us), share=()
        )
        return lateness


def _with(share: Share, files: Sequence[IngestFile], late_rows: Mapping[str, int]) -> Share:
    rows = sum(file.count for file in files)
    late = sum(late_rows.get(file.name, 0) for file in files)
    return Share(share.next_id + rows - late, share.rows + rows)


def is_past(beginning: Beginning, needed: Mapping[tuple[int, int], int]) -> bool:
    """Whether nobody needs a tuple before a beginning.

    Args:
        beginning: It.
        needed: Per instance, and of how many, the oldest id that a restart asks for.
    """
    for (partition, partitions), tuple_id in needed.items():
        share = beginning.share(partition, partitions)
        if share is None or share.next_id > tuple_id:
            return False
    return True
