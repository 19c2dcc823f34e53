"""Bids that fill a state at once and then go on at a steady rate, until told how many there are.

Event i < keys is the first bid of bidder i; later ones repeat bidders in a fixed pseudo-random
order. All lie in one window, so the state never shrinks and every bid has one right answer: how
many bids of its bidder came so far.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from holdfast.core.model.ids import END_US
from holdfast.core.model.tuples import TupleBatch, with_time
from holdfast.nexmark.generator import schema_of
from holdfast.shell.sources.base import SourceReader, SourceRows
from holdfast_bench.running import BenchFailed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

WINDOW = "1 hour"
_BASE_US = 1_436_918_400_000_000
_STEP_US = 10
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_TIME = pa.timestamp("us", tz="UTC")


@dataclass(frozen=True, slots=True)
class PreloadedBids:
    """The source and its only partition; see the module.

    Attributes:
        keys: Bidders; so many bids are there from the start.
        rate: Bids per second after that.
        origin_us: Wall-clock time at which the rate begins, microseconds since the epoch.
        end_path: A file that, once it exists, holds the number of bids in all.
    """

    keys: int
    rate: float
    origin_us: int
    end_path: str

    @property
    def schema(self) -> pa.Schema:
        """The attributes: those of a bid."""
        return schema_of("bid")

    def spec(self, partition: int, partitions: int) -> PreloadedBids:
        """Itself. Raises `BenchFailed` for more than one partition."""
        if partitions != 1:
            raise BenchFailed(f"preloaded bids have one partition, not {partitions}")
        return self

    def open(self) -> SourceReader:
        """A reader of the only partition."""
        return PreloadedReader(self)

    def to_dataframe(self, spark: SparkSession) -> DataFrame:
        """Refused: `expected_counts` is this source's oracle."""
        raise BenchFailed("preloaded bids have no batch twin")

    def bidders(self, first: int, end: int) -> np.ndarray:
        """The bidders of events [first, end)."""
        index = np.arange(first, end, dtype=np.int64)
        mixed = (index.astype(np.uint64) * _MULTIPLIER) >> np.uint64(20)
        return np.where(index < self.keys, index, (mixed % np.uint64(self.keys)).astype(np.int64))

    def due(self) -> tuple[int, bool]:
        """How many events exist by now, and whether that is all there will be."""
        end = Path(self.end_path)
        if end.exists():
            return int(end.read_text()), True
        elapsed_s = time.time() - self.origin_us / 1e6
        return self.keys + max(0, 1 + math.floor(elapsed_s * self.rate)), False


class PreloadedReader:
    """Makes any range of the events that exist."""

    def __init__(self, source: PreloadedBids) -> None:
        """Nothing is kept between reads."""
        self._source = source
        self._schema = with_time(source.schema)

    def read(self, from_id: int, max_tuples: int) -> SourceRows:
        """See `SourceReader.read`."""
        due, is_all = self._source.due()
        end = min(due, from_id + max_tuples)
        boundary_us = END_US if is_all and end >= due else _BASE_US + end * _STEP_US
        if end <= from_id:
            return SourceRows((), boundary_us)
        index = pa.array(np.arange(from_id, end, dtype=np.int64))
        time_us = pa.array(_BASE_US + np.arange(from_id, end, dtype=np.int64) * _STEP_US)
        bidders = pa.array(self._source.bidders(from_id, end))
        columns = [index, bidders, index, time_us.cast(_TIME), time_us]
        batch = pa.RecordBatch.from_arrays(columns, schema=self._schema)
        return SourceRows(
            (TupleBatch(from_id, batch, boundary_us, self._created_us(from_id)),), boundary_us
        )

    def _created_us(self, event: int) -> int:
        """When it was due; 0, which no latency counts, for those that are there from the start."""
        source = self._source
        if event < source.keys:
            return 0
        return source.origin_us + int((event - source.keys) / source.rate * 1e6)

    def close(self) -> None:
        """See `SourceReader.close`."""


def expected_counts(source: PreloadedBids, total: int) -> tuple[np.ndarray, np.ndarray]:
    """Per event its bidder, and how many bids of that bidder came up to and with it."""
    bidders = source.bidders(0, total)
    order = np.argsort(bidders, kind="stable")
    ordered = bidders[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    within = np.arange(total) - np.repeat(starts, np.diff(np.r_[starts, total]))
    counts = np.empty(total, dtype=np.int64)
    counts[order] = within + 1
    return bidders, counts
