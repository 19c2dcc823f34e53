"""How far event time has come in a stream that is read from several partitions of a topic.

Each partition has a boundary of its own: its newest time less the delay. The stream's boundary is
the least of them, and never moves back. So that a partition without records does not hold up time
for ever, one that has been read to its end, and to which nothing has come for `idle_ms`, counts no
more until its next record. If no partition counts, the stream is as far as the furthest of them;
one of several instances then is as far as it is told (idle_floor.py), and what it was told counts
only as long as none of its partitions does.

Only time during which the partitions are looked at counts. Behind a pause there may be records in
any of them, and those of one that was idle would be late if another were read first: all that were
at their end have their whole time again.

Whether a partition is idle is a matter of the clock, so that two readers need not agree; whoever
uses this writes what it has decided into a log, and only one does at a time.

Invariants: the boundary never moves back; a partition that has had no record, and is not idle,
keeps it where it is; that of an idle instance is never beyond what it was told.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from holdfast.core.model.ids import BEGINNING_US, END_US
from holdfast.core.queues.idle_floor import Reached
from holdfast.core.queues.reach import Reach, Span

_PAUSE_MS = 1_000
"""Whoever has not looked for so long has paused."""


@dataclass(slots=True)
class _Partition:
    """One partition.

    Attributes:
        reach: Its newest tuple time that counts; `BEGINNING_US` before its first record.
        at_end_ms: Since when it has been read to its end; None: there is more.
        is_idle: It does not hold up time for now.
        has_ended: All that is wanted of it has been read.
    """

    reach: Reach
    at_end_ms: int | None = None
    is_idle: bool = False
    has_ended: bool = False


class PartitionBoundaries:
    """The boundaries of one instance's partitions, and of the stream made of them."""

    def __init__(
        self,
        partitions: Iterable[int],
        *,
        delay_us: int,
        idle_ms: int | None,
        boundary_us: int = BEGINNING_US,
        newest_us: Mapping[int, int] | None = None,
        is_sole: bool = True,
        ahead_us: int | None = None,
    ) -> None:
        """Begin, or go on where a log ends.

        Args:
            partitions: Their numbers.
            delay_us: How far tuples may be out of order.
            idle_ms: See the module; None: partitions are never idle.
            boundary_us: What the stream has promised already.
            newest_us: The newest time of the partitions that have had records.
            is_sole: Whether no other instance reads the source.
            ahead_us: How far a record may be ahead of its partition, and of the clock, and still
                move time; None: at will. See reach.py.
        """
        known = newest_us or {}
        self._partitions = {
            p: _Partition(Reach(ahead_us, known.get(p, BEGINNING_US))) for p in partitions
        }
        self._delay_us = delay_us
        self._idle_ms = idle_ms
        self._boundary_us = boundary_us
        self._is_sole = is_sole
        self._floor_us = BEGINNING_US  # what was told last
        self._looked_ms: int | None = None

    @property
    def boundary_us(self) -> int:
        """Nothing older counts as on time."""
        return self._boundary_us

    def newest_us(self, partition: int) -> int:
        """The newest time of a partition; `BEGINNING_US` before its first record."""
        return self._partitions[partition].reach.newest_us

    @property
    def tuples_beyond(self) -> int:
        """How many tuples were too far ahead of their partition to move time."""
        return sum(found.reach.tuples_beyond for found in self._partitions.values())

    def received(self, partition: int, newest_us: int) -> None:
        """Records of a partition came, the newest of this time; all are within reach."""
        self.received_spans(partition, [(newest_us, newest_us, 1)], newest_us)

    def received_spans(self, partition: int, spans: Iterable[Span], now_us: int) -> None:
        """Records of a partition came at this time; spans of their times, see reach.py."""
        found = self._partitions[partition]
        found.reach.admit(spans, now_us)
        found.at_end_ms = None
        found.is_idle = False

    def reached_end(self, partition: int, now_ms: int) -> None:
        """A partition has been read to its present end."""
        found = self._partitions[partition]
        if found.at_end_ms is None:
            found.at_end_ms = now_ms

    def ended(self, partition: int) -> None:
        """All that is wanted of a partition has been read."""
        self._partitions[partition].has_ended = True

    def looked(self, now_ms: int) -> None:
        """The partitions are being looked at; what follows is of now."""
        if self._looked_ms is not None and now_ms - self._looked_ms > _PAUSE_MS:
            self.resumed(now_ms)
        self._looked_ms = now_ms

    def resumed(self, now_ms: int) -> None:
        """Until now nobody could read: what was at its end by then has its whole time again."""
        for found in self._partitions.values():
            if found.at_end_ms is not None:
                found.at_end_ms = now_ms
                found.is_idle = False

    def quiet(self, now_ms: int) -> list[int]:
        """The partitions that become idle now, if there is nothing beyond what has been read."""
        if self._idle_ms is None:
            return []
        return [
            number
            for number, found in self._partitions.items()
            if found.at_end_ms is not None
            and not found.is_idle
            and now_ms - found.at_end_ms >= self._idle_ms
        ]

    def set_idle(self, partition: int) -> None:
        """There is nothing more in a quiet partition."""
        self._partitions[partition].is_idle = True

    def told(self, floor_us: int) -> None:
        """What may be promised as long as all partitions are idle."""
        self._floor_us = floor_us

    def reached(self, durable_us: int) -> Reached:
        """How far the instance is, of which so much has been made durable. O(partitions)."""
        return Reached(durable_us, self._furthest_us(), self._are_idle())

    def slowest(self) -> tuple[list[int], bool]:
        """The partitions that hold back the boundary, and whether another one is further.

        None of an idle instance does. O(partitions).
        """
        counting = {
            number: self._boundary_of(found)
            for number, found in self._partitions.items()
            if not (found.has_ended or found.is_idle)
        }
        slowest_us = min(counting.values(), default=END_US)
        slowest = [number for number, reached_us in counting.items() if reached_us == slowest_us]
        return slowest, slowest_us < self._furthest_us()

    def advance(self) -> int:
        """Move the boundary as far as the partitions allow; where it is now. O(partitions)."""
        self._boundary_us = max(self._boundary_us, self._reached_us())
        return self._boundary_us

    def _reached_us(self) -> int:
        waiting = [p for p in self._partitions.values() if not p.has_ended]
        if not waiting:
            return END_US
        counting = [self._boundary_of(p) for p in waiting if not p.is_idle]
        if counting:
            return min(counting)
        return self._furthest_us() if self._is_sole else self._floor_us

    def _furthest_us(self) -> int:
        reached = (self._boundary_of(p) for p in self._partitions.values())
        return max(reached, default=BEGINNING_US)

    def _are_idle(self) -> bool:
        waiting = [p for p in self._partitions.values() if not p.has_ended]
        return bool(waiting) and all(p.is_idle for p in waiting)

    def _boundary_of(self, partition: _Partition) -> int:
        return max(BEGINNING_US, partition.reach.newest_us - self._delay_us)
