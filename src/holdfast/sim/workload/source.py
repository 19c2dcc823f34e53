"""A recorded source whose records arrive in virtual time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.core.model.ids import BEGINNING_US, END_US, NO_ID
from holdfast.core.model.tuples import TupleBatch, between
from holdfast.core.queues.lateness import Lateness

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class SimulatedSource:
    """One partition of a source.

    Attributes:
        batches: Its on-time tuples, record by record, each with the boundary after it.
        arrivals_us: When each record arrives.
        late_tuples: How many tuples came too late.
    """

    batches: tuple[TupleBatch, ...]
    arrivals_us: tuple[int, ...]
    late_tuples: int = 0

    @staticmethod
    def of(records: list[pa.RecordBatch], delay_us: int, arrivals_us: list[int]) -> SimulatedSource:
        """From records with the time column last; what is late is left out, as the logs do."""
        lateness = Lateness(delay_us)
        batches: list[TupleBatch] = []
        next_id = late_tuples = 0
        for record in records:
            on_time, late = lateness.split(record)
            late_tuples += 0 if late is None else late.num_rows
            batches.append(TupleBatch(next_id, on_time, lateness.boundary_us))
            next_id += on_time.num_rows
        return SimulatedSource(tuple(batches), tuple(arrivals_us), late_tuples)

    @property
    def last_arrival_us(self) -> int:
        """When the last record arrives; the source ends there."""
        return self.arrivals_us[-1] if self.arrivals_us else 0

    def read(
        self, from_id: int, max_tuples: int, now_us: int
    ) -> tuple[tuple[TupleBatch, ...], int]:
        """At most so many tuples of what has arrived, and the boundary after them."""
        arrivals = zip(self.batches, self.arrivals_us, strict=True)
        here = [batch for batch, at_us in arrivals if at_us <= now_us]
        found = between([b for b in here if b.count], from_id, from_id + max_tuples)
        reached = found[-1].next_id if found else from_id
        boundary_us = BEGINNING_US
        for batch in here:
            if batch.next_id <= reached:
                boundary_us = max(boundary_us, batch.boundary_us)
        if len(here) == len(self.batches) and reached == _end(self.batches):
            boundary_us = END_US
        return found, boundary_us

    def all_from(self, from_id: int) -> tuple[TupleBatch, ...]:
        """All tuples from an id on."""
        return between([b for b in self.batches if b.count], from_id, NO_ID)


def _end(batches: tuple[TupleBatch, ...]) -> int:
    return batches[-1].next_id if batches else 0
