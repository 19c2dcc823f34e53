"""The reachability query of the paper: links and sources come and go. [CheckMate §VI]

Of 100 changes 60 are new links, 15 new sources, 20 links and 5 sources that go again. A change is a
row with `change` 1 or -1; the product of two changes is that of what follows from both, so that
sums of `change` say how many ways lead to a node. A way has at most `HOPS_MAX` links.

Every link or source goes once at most: the k-th to go of a block is the k-th that came in the block
before.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from holdfast.api.dataflow import Dataflow
from holdfast.core.model.ids import END_US
from holdfast.core.model.tuples import TupleBatch, with_time
from holdfast.shell.sources.base import SourceReader, SourceRows
from holdfast_bench.inputs import Marked

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NODES: Final = 1_000_000
HOPS_MAX: Final = 8
LINKS, SOURCES = "links", "sources"
ADDED_AND_GONE: Final = {LINKS: (60, 20), SOURCES: (15, 5)}
_CHANGES: Final = 100
_TIME: Final = pa.timestamp("us", tz="UTC")
_BASE_US: Final = 1_436_918_400_000_000
_STEP_US: Final = 5
"""Of event time from one change to the next."""


def _mix(index: np.ndarray, salt: int) -> np.ndarray:
    """SplitMix64 of a counter."""
    z = index.astype(np.uint64) + np.uint64(salt * 0x9E3779B97F4A7C15 % (1 << 64))
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: np.ndarray = z ^ (z >> np.uint64(31))
    return mixed


@dataclass(frozen=True, slots=True)
class Changes:
    """Changes of links or of sources, for `Dataflow.source_generator`.

    Attributes:
        kind: `links` or `sources`.
        changes: Of both kinds, in all.
        nodes: Between how many nodes links lead.
        rate: Changes of both kinds per second; None: as fast as they can be read.
        origin_us: When the first one comes, microseconds since the epoch.
    """

    kind: str
    changes: int
    nodes: int = NODES
    rate: float | None = None
    origin_us: int = 0

    @property
    def per_block(self) -> int:
        """Of 100 changes those of this kind."""
        return sum(ADDED_AND_GONE[self.kind])

    @property
    def count(self) -> int:
        """How many there are of this kind."""
        return self.changes // _CHANGES * self.per_block

    @property
    def schema(self) -> pa.Schema:
        """The attributes."""
        ends = ["source", "target"] if self.kind == LINKS else ["node"]
        return pa.schema([*((name, pa.int64()) for name in ends), ("change", pa.int64())])

    def time_us(self, index: np.ndarray) -> np.ndarray:
        """When changes happen, in event time."""
        times: np.ndarray = _BASE_US + index * _CHANGES // self.per_block * _STEP_US
        return times

    def rows(self, index: np.ndarray) -> pa.RecordBatch:
        """Changes by their numbers, with their times."""
        added, _ = ADDED_AND_GONE[self.kind]
        block, place = np.divmod(index, self.per_block)
        is_gone = (place >= added) & (block > 0)
        of = np.where(is_gone, (block - 1) * self.per_block + place - added, index)
        ends = [
            pa.array((_mix(of, salt) % np.uint64(self.nodes)).astype(np.int64))
            for salt in ((1, 2) if self.kind == LINKS else (3,))
        ]
        changes = pa.array(np.where(is_gone, -1, 1).astype(np.int64))
        columns = [*ends, changes, pa.array(self.time_us(index))]
        return pa.RecordBatch.from_arrays(columns, schema=with_time(self.schema))

    def spec(self, partition: int, partitions: int) -> ChangesSpec:
        """One partition, for a node."""
        return ChangesSpec(self, partition, partitions)

    def to_dataframe(self, spark: SparkSession) -> DataFrame:
        """The same changes as a DataFrame with their times."""
        rows = self.rows(np.arange(self.count, dtype=np.int64))
        frame: DataFrame = spark.createDataFrame(rows.to_pandas())
        return frame


@dataclass(frozen=True, slots=True)
class ChangesSpec:
    """Every so many changes; `open` it on a node."""

    source: Changes
    partition: int
    partitions: int

    def open(self) -> SourceReader:
        """A reader of this partition."""
        return ChangesReader(self)


class ChangesReader:
    """Makes the changes of one partition; any id at any time."""

    def __init__(self, spec: ChangesSpec) -> None:
        """Nothing is kept between reads."""
        self._spec = spec

    def read(self, from_id: int, max_tuples: int) -> SourceRows:
        """See `SourceReader.read`."""
        source, spec = self._spec.source, self._spec
        due = (self._due() - spec.partition + spec.partitions - 1) // spec.partitions
        count = max(0, min(max_tuples, due - from_id))
        numbers = np.arange(from_id, from_id + count + 1, dtype=np.int64)
        index = numbers * spec.partitions + spec.partition
        is_over = int(index[-1]) >= source.count
        boundary_us = END_US if is_over else int(source.time_us(index)[-1])
        if not count:
            return SourceRows((), boundary_us, quiet_ms=0 if is_over else 1)
        created_us = self._created_us(int(index[0]))
        batch = TupleBatch(from_id, source.rows(index[:-1]), boundary_us, created_us)
        return SourceRows((batch,), boundary_us)

    def _due(self) -> int:
        """Changes of this kind before this number exist by now."""
        source = self._spec.source
        if source.rate is None:
            return source.count
        elapsed_s = time.time() - source.origin_us / 1e6
        rate = source.rate * source.per_block / _CHANGES
        return min(source.count, max(0, 1 + math.floor(elapsed_s * rate)))

    def _created_us(self, index: int) -> int:
        source = self._spec.source
        if source.rate is None:
            return 0
        return source.origin_us + int(index / (source.rate * source.per_block / _CHANGES) * 1e6)

    def close(self) -> None:
        """See `SourceReader.close`."""


def reachability(made: dict[str, Changes], marks: str = "", partitions: int = 1) -> Dataflow:
    """Which nodes are reached, and over how many links; see the module.

    Args:
        made: The changes of both kinds.
        marks: A folder where sources note when they were first read; empty: they do not.
        partitions: Of each source.
    """
    flow = Dataflow("reachability")

    def source(kind: str) -> Any:
        changes: Any = made[kind]
        if marks:
            folder = Path(marks) / kind
            folder.mkdir(exist_ok=True)
            changes = Marked(changes, str(folder))
        return flow.source_generator(changes, name=kind, unit=kind, partitions=partitions)

    links = source(LINKS)
    reached = source(SOURCES).select("node", "0L AS hops", "change").loop("reached")
    found = links.join(
        reached,
        on=[("source", "node")],
        select=[
            "left.target AS node",
            "right.hops AS hops",
            "left.change AS of_link",
            "right.change AS of_node",
        ],
        name="found",
    )
    further = found.unit("further").filter(f"hops < {HOPS_MAX}")
    further = further.select("node", "hops + 1L AS hops", "of_link * of_node AS change")
    reached.close(further)
    further.sink("reached")
    return flow
