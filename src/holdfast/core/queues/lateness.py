"""Which tuples of a recorded source are late, and how far time has come in it.

A recording is a sequence of commits, each with any number of files; an instance reads its share of
the files. Whether a tuple is late is a matter of the stream: it is judged by the commits before its
own, whichever files they had and whoever reads those. So it depends neither on the order of the
files of a commit, nor on the number of instances, nor on where a reader starts.

What is older than the *floor* of its commit is late. A commit settles the floor of the next one:

1. With a watermark of Spark's the floor is that watermark. Spark judges the rows of a micro-batch
   by the watermark of the batch before it; so the watermark during a batch counts from the next
   commit on.
2. If Spark was idle in between, its operators would have had a batch without rows, and with it the
   watermark that the last batch led to. Such a word of idleness raises the floor at once.
3. Without a watermark the floor is the newest time of all commits so far, less the delay.

The *boundary* is what an instance may promise while it reads: nothing older follows in its share.
Within a commit it goes as far as the rest of the share allows, by what the commit says of its
files, and never beyond the floor of the next commit. After the share it is that floor, also for an
instance whose share was empty.

Invariants: floor and boundary never move back; the boundary is at least the floor; what is on time
is never older than a boundary given before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from holdfast.core.model.ids import BEGINNING_US, END_US


@dataclass(frozen=True, slots=True)
class FileTimes:
    """What a commit says of the times in one of its files.

    Attributes:
        count: Rows, at least one.
        oldest_us: Oldest tuple time.
        newest_us: Newest tuple time.
        disorder_us: How far a row is older than the newest row before it, at most.
    """

    count: int
    oldest_us: int
    newest_us: int
    disorder_us: int


class FileTimesMaker:
    """Sums up the times of a file while it is written."""

    def __init__(self) -> None:
        """Nothing is written yet."""
        self._count = 0
        self._oldest_us, self._newest_us = END_US, BEGINNING_US
        self._disorder_us = 0

    def add(self, times_us: np.ndarray) -> None:
        """The times of the file's next rows, at least one, int64."""
        if not self._count:
            self._newest_us = int(times_us[0])
        running = np.maximum(np.maximum.accumulate(times_us), self._newest_us)
        self._disorder_us = max(self._disorder_us, int((running - times_us).max()))
        self._oldest_us = min(self._oldest_us, int(times_us.min()))
        self._newest_us = int(running[-1])
        self._count += len(times_us)

    def made(self) -> FileTimes:
        """Of all that was added, at least one row."""
        return FileTimes(self._count, self._oldest_us, self._newest_us, self._disorder_us)


@dataclass(frozen=True, slots=True)
class CommitTimes:
    """What a commit says of time.

    Attributes:
        files: All its files, whoever reads them.
        watermark_us: Spark's watermark during the micro-batch; None: nothing was said.
        idle_us: The watermark that Spark had come to while it was idle before this batch; None: it
            was not idle, or came to none.
    """

    files: Sequence[FileTimes]
    watermark_us: int | None = None
    idle_us: int | None = None


class Lateness:
    """Follows the commits of a stream, in order, for one instance."""

    def __init__(self, delay_us: int) -> None:
        """Tuples may be out of order by `delay_us` microseconds, if no watermark is told."""
        self._delay_us = delay_us
        self._newest_us = BEGINNING_US  # of all commits so far, the present one included
        self._floor_us = BEGINNING_US  # of the present commit
        self._next_floor_us = BEGINNING_US
        # Per file of the share, the last one first: no tuple behind it is older. Never beyond the
        # floor of the next commit.
        self._oldest_left_us: list[int] = []
        self._file: FileTimes | None = None
        self._rows_left = 0  # of the present file
        self._reached_us = BEGINNING_US  # newest time met in it
        self.boundary_us = BEGINNING_US  # nothing older counts as on time from here on

    def begin(self, commit: CommitTimes, share: Sequence[FileTimes]) -> None:
        """A commit begins; the one before has been read to its end.

        Args:
            commit: What it says.
            share: Those of its files that this instance will read, in this order.
        """
        self._floor_us = self._next_floor_us
        if commit.idle_us is not None:
            self._floor_us = max(self._floor_us, commit.idle_us)
        for file in commit.files:
            self._newest_us = max(self._newest_us, file.newest_us)
        settled_us = commit.watermark_us
        if settled_us is None:
            settled_us = max(BEGINNING_US, self._newest_us - self._delay_us)
        self._next_floor_us = max(self._floor_us, settled_us)
        oldest_us, left = self._next_floor_us, []
        for file in reversed(share):
            left.append(oldest_us)
            oldest_us = min(oldest_us, file.oldest_us)
        self._oldest_left_us = left
        self._move(max(self._floor_us, oldest_us))

    def idle(self, watermark_us: int) -> None:
        """Spark is idle behind the last commit, and has come to this watermark."""
        self._next_floor_us = max(self._next_floor_us, watermark_us)
        self._move(self._next_floor_us)

    def enter(self, file: FileTimes) -> None:
        """The next file of the share begins."""
        self._file, self._rows_left, self._reached_us = file, file.count, BEGINNING_US

    @property
    def is_on_time(self) -> bool:
        """Whether nothing in the present file is late."""
        assert self._file is not None
        return self._file.oldest_us >= self._floor_us

    def leave(self) -> None:
        """The present file is over, whether it was read or not."""
        self._file, self._rows_left = None, 0
        self._move(self._oldest_left_us.pop())

    def split(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch | None]:
        """The on-time and the late tuples of the present file's next rows (None: no late ones).

        Args:
            batch: At least one row, with the time column last.
        """
        assert self._file is not None
        times = batch.column(batch.num_columns - 1).to_numpy()
        self._rows_left -= len(times)
        late = None
        if not self.is_on_time and int(times.min()) < self._floor_us:
            is_late = times < self._floor_us
            late = batch.filter(pa.array(is_late))
            batch = batch.filter(pa.array(~is_late))
        if self._rows_left > 0:
            self._reached_us = max(self._reached_us, int(np.max(times)))
            ahead_us = self._reached_us - self._file.disorder_us
            self._move(min(self._oldest_left_us[-1], ahead_us))
        else:
            self.leave()
        return batch, late

    def _move(self, boundary_us: int) -> None:
        self.boundary_us = max(self.boundary_us, boundary_us)
