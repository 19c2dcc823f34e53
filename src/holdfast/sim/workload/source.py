"""A recorded source whose records arrive in virtual time."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from holdfast.core.errors import InvariantViolation
from holdfast.core.model.ids import BEGINNING_US, END_US, NO_ID
from holdfast.core.model.tuples import TupleBatch, between
from holdfast.core.queues.lateness import Lateness

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class SimulatedSource:
    """One partition of a source.

    Attributes:
        batches: Its on-time tuples, record by record, none empty.
        boundaries_us: The boundary after each of them.
        arrivals_us: When each of them has arrived with all before it.
        ends_us: When the source has ended.
        next_ids: The id after each of them.
        is_recorded: Whether it can be read record by record.
        is_in_records: Whether it is.
    """

    batches: tuple[TupleBatch, ...]
    boundaries_us: tuple[int, ...]
    arrivals_us: tuple[int, ...]
    ends_us: int
    next_ids: tuple[int, ...]
    is_recorded: bool = False
    is_in_records: bool = False

    @staticmethod
    def of(
        records: list[pa.RecordBatch],
        delay_us: int,
        arrivals_us: tuple[int, ...],
        *,
        is_recorded: bool = False,
    ) -> SimulatedSource:
        """From records with the time column last; what is late is left out, as the logs do."""
        lateness = Lateness(delay_us)
        batches: list[TupleBatch] = []
        arrivals: list[int] = []
        next_id = 0
        for record, at_us in zip(records, arrivals_us, strict=True):
            on_time, _ = lateness.split(record)
            if on_time.num_rows:
                batches.append(TupleBatch(next_id, on_time, lateness.boundary_us))
                arrivals.append(at_us)
                next_id += on_time.num_rows
        return SimulatedSource(
            tuple(batches),
            tuple(batch.boundary_us for batch in batches),
            tuple(arrivals),
            arrivals_us[-1] if arrivals_us else 0,
            tuple(batch.next_id for batch in batches),
            is_recorded,
        )

    def in_records(self) -> SimulatedSource | None:
        """See `RecordedSpec`."""
        return replace(self, is_in_records=True) if self.is_recorded else None

    def read(
        self, from_id: int, max_tuples: int, now_us: int
    ) -> tuple[tuple[TupleBatch, ...], int]:
        """At most so many tuples of what has arrived, and the boundary after them.

        Records that must be whole are, the last one too.

        Raises:
            InvariantViolation: Records must be whole, and none begins there.
        """
        first = bisect_right(self.next_ids, from_id)
        here = bisect_right(self.arrivals_us, now_us)
        last = min(here, bisect_left(self.next_ids, from_id + max_tuples) + 1)
        found = self.batches[first:last]
        if not self.is_in_records:
            found = between(found, from_id, from_id + max_tuples)
        elif found and found[0].first_id != from_id:
            raise InvariantViolation(f"no record begins with tuple {from_id}")
        reached = found[-1].next_id if found else from_id
        if now_us >= self.ends_us and reached == self._end():
            return found, END_US
        whole = bisect_right(self.next_ids, reached)
        return found, self.boundaries_us[whole - 1] if whole else BEGINNING_US

    def newest_id(self, now_us: int) -> int:
        """The end of what has arrived."""
        here = bisect_right(self.arrivals_us, now_us)
        return self.next_ids[here - 1] if here else 0

    def all_from(self, from_id: int) -> tuple[TupleBatch, ...]:
        """All tuples from an id on."""
        return between(self.batches, from_id, NO_ID)

    def _end(self) -> int:
        return self.next_ids[-1] if self.next_ids else 0
