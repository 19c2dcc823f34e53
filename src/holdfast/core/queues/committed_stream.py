"""Follows an instance's share of a committed recording from a tuple id on.

Ids count the on-time tuples of the share, so that they depend on the commits alone: every reader,
and every replay, numbers the same tuples alike. Whoever starts behind the beginning goes over what
lies before by what commits say, and reads only files in which something is late; so it judges what
follows exactly as its predecessor did, and has counted the same late tuples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from holdfast.core.model.ids import BEGINNING_US
from holdfast.core.queues.lateness import NO_COMMITS, CommitTimes, FileTimes, Lateness, Standing


@dataclass(frozen=True, slots=True)
class Accepted:
    """On-time tuples of one record.

    Attributes:
        first_id: Id of row 0.
        batch: The rows, at least one, with the time column last.
        boundary_us: Nothing older follows.
        is_whole: Whether they are all the on-time tuples of the record.
    """

    first_id: int
    batch: pa.RecordBatch
    boundary_us: int
    is_whole: bool


@dataclass(frozen=True, slots=True)
class Share:
    """What an instance was given of commits that are not kept any more; see beginning.py.

    Attributes:
        next_id: So many tuples were on time.
        rows: Late ones included.
    """

    next_id: int = 0
    rows: int = 0

    @property
    def late_rows(self) -> int:
        """Those that have no id."""
        return self.rows - self.next_id


NOTHING: Final = Share()


class CommittedStream:
    """Numbers what is on time and puts aside what is late."""

    def __init__(
        self,
        delay_us: int,
        from_id: int = 0,
        ahead_us: int | None = None,
        standing: Standing = NO_COMMITS,
        share: Share = NOTHING,
    ) -> None:
        """Start at `from_id`.

        Args:
            delay_us: See `Lateness`.
            from_id: The first tuple wanted.
            ahead_us: See `Lateness`.
            standing: What the commits have come to that are not kept any more.
            share: What they gave this instance.
        """
        self._lateness = Lateness(delay_us, ahead_us, standing)
        self._from_id = from_id
        self._late: list[pa.RecordBatch] = []
        self.next_id = share.next_id
        self.rows_read = share.rows  # late ones and those before the start included
        self.late_rows = share.late_rows  # those before the start included

    @property
    def boundary_us(self) -> int:
        """Nothing older follows."""
        return self._lateness.boundary_us

    @property
    def rows_ahead(self) -> int:
        """See `Lateness.rows_ahead`; of all partitions."""
        return self._lateness.rows_ahead

    def begin(self, commit: CommitTimes, share: Sequence[FileTimes]) -> None:
        """See `Lateness.begin`."""
        self._lateness.begin(commit, share)

    def idle(self, watermark_us: int) -> None:
        """See `Lateness.idle`."""
        self._lateness.idle(watermark_us)

    def enter(self, file: FileTimes) -> bool:
        """The share's next file begins; False: all of it lies before the start, and is passed."""
        self._lateness.enter(file)
        if self._lateness.is_on_time and self.next_id + file.count <= self._from_id:
            self.next_id += file.count
            self.rows_read += file.count
            self._lateness.leave()
            return False
        return True

    def accept(self, record: pa.RecordBatch, behind_us: int = BEGINNING_US) -> Accepted | None:
        """The on-time tuples of the file's next record from the start on; None: there are none.

        Args:
            record: At least one row, with the time column last.
            behind_us: See `Lateness.split`.
        """
        self.rows_read += record.num_rows
        batch, late = self._lateness.split(record, behind_us)
        if late is not None:
            self.late_rows += late.num_rows
            if self.next_id >= self._from_id:
                self._late.append(late)
        first_id = self.next_id
        self.next_id += batch.num_rows
        if self.next_id <= self._from_id or batch.num_rows == 0:
            return None
        is_whole = first_id >= self._from_id
        if not is_whole:
            batch, first_id = batch.slice(self._from_id - first_id), self._from_id
        return Accepted(first_id, batch, self.boundary_us, is_whole)

    def take_late(self) -> list[pa.RecordBatch]:
        """Late tuples met since the last call, from the start on, time column included."""
        late, self._late = self._late, []
        return late
