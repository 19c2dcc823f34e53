"""Which tuples of a recorded source are late.

A tuple is late when it is older than the boundary at the start of its record; after the record the
boundary is the newest time seen so far minus the delay that the user allows. A commit may bring a
boundary of its own: Spark's watermark. All this depends on the log alone, so that every reader and
every replay agree.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from holdfast.core.model.ids import BEGINNING_US


class Lateness:
    """Follows the records of one partition of a source, in order."""

    def __init__(self, delay_us: int) -> None:
        """Tuples may be out of order by `delay_us` microseconds."""
        self._delay_us = delay_us
        self._newest_us = BEGINNING_US
        self.boundary_us = BEGINNING_US  # nothing older counts as on time from here on

    def advance(self, newest_us: int) -> None:
        """A record whose newest tuple has this time is over."""
        self._newest_us = max(self._newest_us, newest_us)
        self.boundary_us = max(self.boundary_us, self._newest_us - self._delay_us)

    def promise(self, boundary_us: int) -> None:
        """From here on whatever is older is late, whoever says so; never moves back."""
        self.boundary_us = max(self.boundary_us, boundary_us)

    def split(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch | None]:
        """The on-time and the late tuples of the next record (None: no late ones).

        Args:
            batch: The record's rows, at least one, with the time column last.
        """
        times = batch.column(batch.num_columns - 1).to_numpy()
        late = None
        if int(times.min()) < self.boundary_us:
            is_late = times < self.boundary_us
            late = batch.filter(pa.array(is_late))
            batch = batch.filter(pa.array(~is_late))
        self.advance(int(np.max(times)))
        return batch, late
