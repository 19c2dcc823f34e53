"""Input that flows only as far as whoever strikes lets it.

A run that is to be hit in the middle must not be over before, however slow the machine is. So the
source holds back what comes after the tuples that are let through, and the striker lets the rest
through when all has been done. Times say how fast input comes; they never say when it ends.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.nexmark.source import NexmarkSource
from holdfast.shell.sources.base import SourceReader, SourceRows, SourceSpec

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


class Tap:
    """Says by a file how much of each source may flow; nodes look at it whenever they read."""

    def __init__(self, path: str | Path, events: int) -> None:
        """Let through the first `events` events of each source."""
        self.path = str(path)
        self._events = 0
        self.let_through(events)

    def let_through(self, events: int) -> None:
        """So many from the very first one; never fewer than before."""
        self._events = max(self._events, events)
        draft = f"{self.path}.draft"
        Path(draft).write_text(str(self._events))
        os.replace(draft, self.path)

    def trickle(self, events: int, most: int) -> None:
        """Let some more through, but not beyond the first `most`."""
        self.let_through(min(self._events + events, most))

    def open(self) -> None:
        """Let everything through."""
        self.let_through(1 << 62)

    def on(self, source: NexmarkSource) -> TappedSource:
        """The source behind this tap."""
        return TappedSource(source, self.path)


@dataclass(frozen=True, slots=True)
class TappedSource:
    """A source for `Dataflow.source_generator` whose events flow as far as a `Tap` lets them.

    Attributes:
        source: Whose events.
        path: The tap's file.
    """

    source: NexmarkSource
    path: str

    @property
    def schema(self) -> pa.Schema:
        """The attributes."""
        return self.source.schema

    def spec(self, partition: int, partitions: int) -> TappedSpec:
        """One partition, for a node."""
        return TappedSpec(self.source.spec(partition, partitions), self.path, partitions)

    def to_dataframe(self, spark: SparkSession) -> DataFrame:
        """All events, as `NexmarkSource.to_dataframe`."""
        return self.source.to_dataframe(spark)


@dataclass(frozen=True, slots=True)
class TappedSpec:
    """One partition of a `TappedSource`; `open` it on a node."""

    spec: SourceSpec
    path: str
    partitions: int

    def open(self) -> SourceReader:
        """A reader of this partition."""
        return TappedReader(self.spec.open(), self.path, self.partitions)


class TappedReader:
    """Reads a partition as far as the tap lets it."""

    def __init__(self, reader: SourceReader, path: str, partitions: int) -> None:
        """Read by `reader`."""
        self._reader = reader
        self._path = path
        self._partitions = partitions

    def read(self, from_id: int, max_tuples: int) -> SourceRows:
        """See `SourceReader.read`."""
        let_through = int(Path(self._path).read_text()) // self._partitions
        return self._reader.read(from_id, min(max_tuples, max(0, let_through - from_id)))

    def close(self) -> None:
        """See `SourceReader.close`."""
        self._reader.close()
