"""NexMark events made inside the nodes that read them.

Partition i of p holds every p-th block of events, so that all partitions advance in event time
together. With a rate, event k is created at `origin + k / rate`: latencies count from there, also
when the node that should have made the event was dead or late.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from holdfast.core.model.ids import END_US
from holdfast.core.model.tuples import TIME_COLUMN, TupleBatch, with_time
from holdfast.nexmark.generator import NexmarkConfig, Share, event_time_us, generate, schema_of
from holdfast.nexmark.generator import to_dataframe as generate_dataframe
from holdfast.shell.sources.base import SourceReader, SourceRows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class NexmarkSource:
    """One kind of NexMark event as a source for `Dataflow.source_generator`.

    Attributes:
        kind: `person`, `auction` or `bid`.
        count: How many events.
        config: Seed, event-time rate, hot ratio.
        rate: Events of this kind per second of real time; None makes them as fast as possible.
        origin_us: Wall-clock time of event 0, microseconds since the epoch.
    """

    kind: str
    count: int
    config: NexmarkConfig
    rate: float | None = None
    origin_us: int = 0

    @property
    def schema(self) -> pa.Schema:
        """The attributes."""
        return schema_of(self.kind)

    def spec(self, partition: int, partitions: int) -> NexmarkSourceSpec:
        """One partition, for a node."""
        return NexmarkSourceSpec(self, partition, partitions)

    def to_dataframe(self, spark: SparkSession) -> DataFrame:
        """The same events as a DataFrame with their times in `__time_us`."""
        from pyspark.sql import functions as F

        frame = generate_dataframe(spark, self.kind, self.count, self.config)
        return frame.withColumn(TIME_COLUMN, F.unix_micros("date_time"))


@dataclass(frozen=True, slots=True)
class NexmarkSourceSpec:
    """One partition of a `NexmarkSource`; `open` it on a node."""

    source: NexmarkSource
    partition: int
    partitions: int

    def open(self) -> SourceReader:
        """A reader of this partition."""
        return NexmarkReader(self)


class NexmarkReader:
    """Makes the events of one partition; any id at any time."""

    def __init__(self, spec: NexmarkSourceSpec) -> None:
        """Nothing is kept between reads."""
        self._spec = spec
        self._share = Share(spec.partition, spec.partitions)
        self._schema = with_time(spec.source.schema)

    def read(self, from_id: int, max_tuples: int) -> SourceRows:
        """See `SourceReader.read`."""
        source, share = self._spec.source, self._share
        count = max(0, min(max_tuples, share.count_before(self._due()) - from_id))
        first, following = share.index(from_id), share.index(from_id + count)
        is_over = following >= source.count
        boundary_us = END_US if is_over else event_time_us(source.kind, following, source.config)
        if not count:
            return SourceRows((), boundary_us, quiet_ms=self._due_in_ms(first))
        batch = generate(source.kind, from_id, count, source.config, share)
        time_us = batch.column("date_time").cast(pa.int64())
        timed = pa.RecordBatch.from_arrays([*batch.columns, time_us], schema=self._schema)
        created_us = 0 if source.rate is None else int(self._due_us(first))
        return SourceRows((TupleBatch(from_id, timed, boundary_us, created_us),), boundary_us)

    def _due(self) -> int:
        """Events before this index exist by now."""
        source = self._spec.source
        if source.rate is None:
            return source.count
        elapsed_us = time.time() * 1e6 - source.origin_us
        return min(source.count, max(0, 1 + math.floor(elapsed_us * source.rate / 1e6)))

    def _due_in_ms(self, index: int) -> int:
        """How long it takes until this event exists, at least 1; 0: it never will, or does."""
        source = self._spec.source
        if source.rate is None or index >= source.count:
            return 0
        return max(1, int((self._due_us(index) - time.time() * 1e6) / 1000))

    def _due_us(self, index: int) -> float:
        """When an event begins to exist, where there is a rate."""
        source = self._spec.source
        return source.origin_us + index / (source.rate or 1.0) * 1e6

    def close(self) -> None:
        """See `SourceReader.close`."""


def counts_of(events: int) -> dict[str, int]:
    """How many persons, auctions and bids are among `events` NexMark events (1 : 3 : 46)."""
    return {"person": events // 50, "auction": events // 50 * 3, "bid": events // 50 * 46}


def now_us() -> int:
    """Wall-clock time in microseconds since the epoch."""
    return int(time.time() * 1e6)
