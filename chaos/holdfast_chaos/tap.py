"""Input that flows only as far as whoever strikes lets it.

A run that is to be hit in the middle must not be over before, however slow the machine is. So the
source holds back what comes after the tuples that are let through, and the striker lets the rest
through when all has been done. Times say how fast input comes; they never say when it ends.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.core.model.ids import BEGINNING_US
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
        self._sources = 0
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
        self._sources += 1
        return TappedSource(source, self.path, self._sources - 1)

    def silence(self, pick: int, until_s: float) -> bool:
        """The first partition of a source gives and promises nothing until a wall-clock time."""
        if not self._sources:
            return False
        path = _silence_of(self.path, pick % self._sources)
        Path(f"{path}.draft").write_text(str(until_s))
        os.replace(f"{path}.draft", path)
        return True


@dataclass(frozen=True, slots=True)
class TappedSource:
    """A source for `Dataflow.source_generator` whose events flow as far as a `Tap` lets them.

    Attributes:
        source: Whose events.
        path: The tap's file.
        number: Of the source, by which it is silenced.
    """

    source: NexmarkSource
    path: str
    number: int = 0

    @property
    def schema(self) -> pa.Schema:
        """The attributes."""
        return self.source.schema

    def spec(self, partition: int, partitions: int) -> TappedSpec:
        """One partition, for a node."""
        silence = "" if partition else _silence_of(self.path, self.number)
        return TappedSpec(self.source.spec(partition, partitions), self.path, partitions, silence)

    def to_dataframe(self, spark: SparkSession) -> DataFrame:
        """All events, as `NexmarkSource.to_dataframe`."""
        return self.source.to_dataframe(spark)


@dataclass(frozen=True, slots=True)
class TappedSpec:
    """One partition of a `TappedSource`; `open` it on a node."""

    spec: SourceSpec
    path: str
    partitions: int
    silence: str = ""

    def open(self) -> SourceReader:
        """A reader of this partition."""
        return TappedReader(self.spec.open(), self.path, self.partitions, self.silence)


class TappedReader:
    """Reads a partition as far as the tap lets it."""

    def __init__(self, reader: SourceReader, path: str, partitions: int, silence: str = "") -> None:
        """Read by `reader`; a file `silence`, if it is named, says until when not to."""
        self._silence = Path(silence) if silence else None
        self._reader = reader
        self._path = path
        self._partitions = partitions

    def read(self, from_id: int, max_tuples: int) -> SourceRows:
        """See `SourceReader.read`."""
        if self._is_silent():
            return SourceRows((), BEGINNING_US)
        let_through = int(Path(self._path).read_text()) // self._partitions
        return self._reader.read(from_id, min(max_tuples, max(0, let_through - from_id)))

    def _is_silent(self) -> bool:
        silence = self._silence
        return silence is not None and silence.exists() and time.time() < float(silence.read_text())

    def close(self) -> None:
        """See `SourceReader.close`."""
        self._reader.close()


def _silence_of(path: str, number: int) -> str:
    return f"{path}.silent-{number}"
