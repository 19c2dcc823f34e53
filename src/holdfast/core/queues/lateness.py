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
4. Rows that are too far ahead of the stream do not move its time (reach.py), and a watermark to
   which only such rows can have led counts as one that is not told.

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
from typing import Final

import numpy as np
import pyarrow as pa

from holdfast.core.model.ids import BEGINNING_US, END_US
from holdfast.core.queues.reach import Reach, Span, joined, spans_of


@dataclass(frozen=True, slots=True)
class FileTimes:
    """What a commit says of the times in one of its files.

    Attributes:
        count: Rows, at least one.
        oldest_us: Oldest tuple time.
        newest_us: Newest tuple time.
        disorder_us: How far a row is older than the newest row before it, at most.
        spans: See reach.py; empty: the rows are one span.
    """

    count: int
    oldest_us: int
    newest_us: int
    disorder_us: int
    spans: tuple[Span, ...] = ()

    @property
    def all_spans(self) -> tuple[Span, ...]:
        """All rows."""
        return self.spans or ((self.oldest_us, self.newest_us, self.count),)


class FileTimesMaker:
    """Sums up the times of a file while it is written."""

    def __init__(self, ahead_us: int | None = None, now_us: int = BEGINNING_US) -> None:
        """Nothing is written yet; see reach.py for what is ahead of the clock."""
        self._ahead_us, self._now_us = ahead_us, now_us
        self._spans: list[Span] = []
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
        if self._ahead_us is not None:
            found = spans_of(times_us, self._ahead_us, self._now_us)
            self._spans = joined([*self._spans, *found], self._ahead_us, self._now_us)

    def made(self) -> FileTimes:
        """Of all that was added, at least one row."""
        spans = tuple(self._spans) if len(self._spans) > 1 else ()
        return FileTimes(self._count, self._oldest_us, self._newest_us, self._disorder_us, spans)


@dataclass(frozen=True, slots=True)
class CommitTimes:
    """What a commit says of time.

    Attributes:
        files: All its files, whoever reads them.
        watermark_us: Spark's watermark during the micro-batch; None: nothing was said.
        idle_us: The watermark that Spark had come to while it was idle before this batch; None: it
            was not idle, or came to none.
        at_us: The clock when it was made; `BEGINNING_US`: nobody knows.
    """

    files: Sequence[FileTimes]
    watermark_us: int | None = None
    idle_us: int | None = None
    at_us: int = BEGINNING_US


@dataclass(frozen=True, slots=True)
class Standing:
    """What commits have come to, for those that follow; the same for all instances.

    Attributes:
        floor_us: Of the next commit, unless it says itself that Spark was idle.
        newest_us: The newest time that counts.
        at_us: The newest clock of them.
        beyond: Rows that were too far ahead to move time.
        in_a_row: Those of them since one was within reach; see reach.py.
    """

    floor_us: int = BEGINNING_US
    newest_us: int = BEGINNING_US
    at_us: int = BEGINNING_US
    beyond: int = 0
    in_a_row: int = 0


NO_COMMITS: Final = Standing()


class Lateness:
    """Follows the commits of a stream, in order, for one instance."""

    def __init__(
        self, delay_us: int, ahead_us: int | None = None, standing: Standing = NO_COMMITS
    ) -> None:
        """Begin.

        Args:
            delay_us: How far tuples may be out of order, if no watermark is told.
            ahead_us: How far a tuple may be ahead of the stream and still move its time; None: at
                will. See reach.py.
            standing: What the commits before the first one that is kept have come to.
        """
        self._delay_us = delay_us
        # Of all commits so far, the present one included.
        self._reach = Reach(ahead_us, standing.newest_us, standing.beyond, standing.in_a_row)
        self._at_us = standing.at_us
        self._floor_us = standing.floor_us  # of the present commit
        self._next_floor_us = standing.floor_us
        # Per file of the share, the last one first: no tuple behind it is older. Never beyond the
        # floor of the next commit.
        self._oldest_left_us: list[int] = []
        self._file: FileTimes | None = None
        self._rows_left = 0  # of the present file
        self._reached_us = BEGINNING_US  # newest time met in it
        self.boundary_us = standing.floor_us  # nothing older counts as on time from here on

    def standing(self) -> Standing:
        """What all commits so far have come to."""
        reach = self._reach
        return Standing(
            self._next_floor_us,
            reach.newest_us,
            self._at_us,
            reach.tuples_beyond,
            reach.in_a_row,
        )

    @property
    def floor_us(self) -> int:
        """Of the present commit: what is older is late."""
        return self._floor_us

    def begin(self, commit: CommitTimes, share: Sequence[FileTimes]) -> None:
        """A commit begins; the one before has been read to its end.

        Args:
            commit: What it says.
            share: Those of its files that this instance will read, in this order.
        """
        self._floor_us = self._next_floor_us
        if commit.idle_us is not None:
            self._floor_us = max(self._floor_us, self._believed(commit.idle_us))
        self._at_us = max(self._at_us, commit.at_us)
        spans = [span for file in commit.files for span in file.all_spans]
        self._reach.admit(spans, self._at_us)
        settled_us = self._floor_us
        if commit.watermark_us is not None:
            settled_us = self._believed(commit.watermark_us)
        elif commit.files:
            settled_us = self._delayed_us
        self._next_floor_us = max(self._floor_us, settled_us)
        oldest_us, left = self._next_floor_us, []
        for file in reversed(share):
            left.append(oldest_us)
            oldest_us = min(oldest_us, file.oldest_us)
        self._oldest_left_us = left
        self._move(max(self._floor_us, oldest_us))

    def idle(self, watermark_us: int) -> None:
        """Spark is idle behind the last commit, and has come to this watermark."""
        self._next_floor_us = max(self._next_floor_us, self._believed(watermark_us))
        self._move(self._next_floor_us)

    @property
    def rows_ahead(self) -> int:
        """How many rows of all commits so far were too far ahead of the stream to move its time."""
        return self._reach.tuples_beyond

    @property
    def _delayed_us(self) -> int:
        return max(BEGINNING_US, self._reach.newest_us - self._delay_us)

    def _believed(self, watermark_us: int) -> int:
        """A watermark, unless only a row beyond reach can have led to it."""
        is_within = self._reach.believes(watermark_us, self._at_us)
        return watermark_us if is_within else self._delayed_us

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

    def split(
        self, batch: pa.RecordBatch, behind_us: int = BEGINNING_US
    ) -> tuple[pa.RecordBatch, pa.RecordBatch | None]:
        """The on-time and the late tuples of the present file's next rows (None: no late ones).

        Args:
            batch: At least one row, with the time column last.
            behind_us: No row of the file behind them is older, as far as is known.
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
            ahead_us = max(behind_us, self._reached_us - self._file.disorder_us)
            self._move(min(self._oldest_left_us[-1], ahead_us))
        else:
            self.leave()
        return batch, late

    def _move(self, boundary_us: int) -> None:
        self.boundary_us = max(self.boundary_us, boundary_us)
