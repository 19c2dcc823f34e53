"""A recorded source whose commits arrive in virtual time, read by the core that follows logs."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from dataclasses import dataclass, replace
from functools import cached_property

import pyarrow as pa

from holdfast.core.errors import InvariantViolation
from holdfast.core.model.ids import BEGINNING_US, END_US, NO_ID
from holdfast.core.model.tuples import TupleBatch, between
from holdfast.core.queues.committed_stream import CommittedStream
from holdfast.core.queues.lateness import CommitTimes, FileTimes


@dataclass(frozen=True, slots=True)
class SimulatedFile:
    """A file of a commit.

    Attributes:
        times: What the commit says of it.
        records: Its rows, the time column last.
        behind_us: Per record, no row of the file behind it is older, as far as the file says.
    """

    times: FileTimes
    records: tuple[pa.RecordBatch, ...]
    behind_us: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Arrival:
    """A commit, or a word of Spark's idleness, becomes visible.

    Attributes:
        at_us: When.
        commit: What the commit says; None: it is a word of idleness.
        share: Those of its files that the partition reads.
        idle_us: The watermark of a word of idleness.
    """

    at_us: int
    commit: CommitTimes | None
    share: tuple[SimulatedFile, ...] = ()
    idle_us: int = BEGINNING_US


@dataclass(frozen=True)
class SimulatedSource:
    """One partition of a source.

    Attributes:
        delay_us: How far rows may be out of order.
        arrivals: What comes, in this order.
        is_recorded: Whether it can be read record by record.
        is_in_records: Whether it is.
        lingers_us: How long nothing comes before it ends, as if it were endless.
        ahead_us: How far ahead of the stream, and the clock, rows still move time; None: at will.
    """

    delay_us: int
    arrivals: tuple[Arrival, ...]
    is_recorded: bool = False
    is_in_records: bool = False
    lingers_us: int = 0
    ahead_us: int | None = None

    def in_records(self) -> SimulatedSource | None:
        """See `RecordedSpec`."""
        return replace(self, is_in_records=True) if self.is_recorded else None

    def open(self) -> SimulatedReader:
        """A reader of its own for a process."""
        return SimulatedReader(self)

    @property
    def ends_us(self) -> int:
        """When the source has ended."""
        return self.lingers_us + (self.arrivals[-1].at_us if self.arrivals else 0)

    @cached_property
    def batches(self) -> tuple[TupleBatch, ...]:
        """All on-time tuples, record by record, as who reads from the beginning gets them."""
        return self.open().read(0, NO_ID, self.ends_us)[0]

    @cached_property
    def _reached(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """When something arrives, and the end of what is there then."""
        reader = self.open()
        ends: list[int] = []
        next_id = 0
        for arrival in self.arrivals:
            batches, _ = reader.read(next_id, NO_ID, arrival.at_us)
            next_id = batches[-1].next_id if batches else next_id
            ends.append(next_id)
        return tuple(arrival.at_us for arrival in self.arrivals), tuple(ends)

    def newest_id(self, now_us: int) -> int:
        """The end of what has arrived."""
        arrivals_us, ends = self._reached
        here = bisect_right(arrivals_us, now_us)
        return ends[here - 1] if here else 0

    def all_from(self, from_id: int) -> tuple[TupleBatch, ...]:
        """All tuples from an id on."""
        return between(self.batches, from_id, NO_ID)


class SimulatedReader:
    """Follows the arrivals from whatever id is asked for."""

    def __init__(self, source: SimulatedSource) -> None:
        """The first read says from where."""
        self._source = source
        self._next_id = -1
        self._begin(0)

    def _begin(self, from_id: int) -> None:
        source = self._source
        self._stream = CommittedStream(source.delay_us, from_id, source.ahead_us)
        self._met = 0  # of the arrivals
        self._share: deque[SimulatedFile] = deque()
        self._records: deque[tuple[pa.RecordBatch, int]] = deque()
        self._held: TupleBatch | None = None  # the rest of a record that was cut
        self._boundary_us = BEGINNING_US

    def read(
        self, from_id: int, max_tuples: int, now_us: int
    ) -> tuple[tuple[TupleBatch, ...], int]:
        """At most so many tuples of what has arrived, and the boundary after them.

        Records that must be whole are, the last one too.

        Raises:
            InvariantViolation: Records must be whole, and none begins there.
        """
        if from_id != self._next_id:
            self._begin(from_id)
            self._next_id = from_id
        taken: list[TupleBatch] = []
        last_id = from_id + max_tuples
        while self._next_id < last_id and (batch := self._next_batch(now_us)) is not None:
            if not self._source.is_in_records and batch.next_id > last_id:
                self._held, batch = batch.starting_at(last_id), batch.before(last_id)
            taken.append(batch)
            self._next_id = batch.next_id
        if self._held is None:
            self._boundary_us = END_US if self._is_over(now_us) else self._stream.boundary_us
        return tuple(taken), self._boundary_us

    def newest_id(self, now_us: int) -> int:
        """The end of what has arrived."""
        return self._source.newest_id(now_us)

    def _next_batch(self, now_us: int) -> TupleBatch | None:
        """The next on-time tuples that have arrived."""
        held, self._held = self._held, None
        if held is not None:
            return held
        while True:
            while self._records:
                accepted = self._stream.accept(*self._records.popleft())
                if accepted is None:
                    continue
                if self._source.is_in_records and not accepted.is_whole:
                    raise InvariantViolation(f"no record begins with tuple {accepted.first_id}")
                return TupleBatch(accepted.first_id, accepted.batch, accepted.boundary_us)
            if self._share:
                file = self._share.popleft()
                if self._stream.enter(file.times):
                    self._records.extend(zip(file.records, file.behind_us, strict=True))
            elif not self._meet(now_us):
                return None

    def _meet(self, now_us: int) -> bool:
        """Take the next arrival, if it is there."""
        arrivals = self._source.arrivals
        if self._met == len(arrivals) or arrivals[self._met].at_us > now_us:
            return False
        arrival = arrivals[self._met]
        self._met += 1
        if arrival.commit is None:
            if self._met == len(arrivals) or arrivals[self._met].at_us > now_us:
                self._stream.idle(arrival.idle_us)  # Who meets the next commit reads it there.
        else:
            self._stream.begin(arrival.commit, [file.times for file in arrival.share])
            self._share.extend(arrival.share)
        return True

    def _is_over(self, now_us: int) -> bool:
        is_read = not (self._records or self._share) and self._held is None
        return (
            is_read and self._met == len(self._source.arrivals) and now_us >= self._source.ends_us
        )
