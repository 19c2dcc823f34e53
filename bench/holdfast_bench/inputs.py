"""The benchmark's input: NexMark events written once, as an ingest log and as parquet files.

Both systems then read the same events from disk, so that making them is part of neither's time.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from holdfast.core.model.tuples import TIME_COLUMN
from holdfast.core.queues.recording import IngestFile
from holdfast.nexmark.generator import NexmarkConfig, generate, schema_of
from holdfast.shell.sources.base import SourceReader, SourceRows, SourceSpec, in_records
from holdfast.shell.sources.log_source import LogSourceSpec
from holdfast.shell.storage import ingest_log
from holdfast.shell.storage.ingest_log import IngestMeta

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARTITIONS_MAX = 2
"""How many partitions a recording can be read in; its files alternate between them."""

TRIGGERS = 8
"""Into how many micro-batches Structured Streaming's input falls."""

FILES_PER_TRIGGER = 2
"""Parquet files of each kind per micro-batch: one for each core."""

_FILE_ROWS = 1 << 18
_BATCH_ROWS = 1 << 14


@dataclass(frozen=True, slots=True)
class Recording:
    """Events of one kind on disk.

    Attributes:
        kind: `person`, `auction` or `bid`.
        count: How many.
        log: The root of an ingest log.
        parquet: A folder of parquet files, in order of time.
    """

    kind: str
    count: int
    log: str
    parquet: str


def record(kind: str, count: int, config: NexmarkConfig, folder: Path) -> Recording:
    """Write the first `count` events of a kind in both formats."""
    recording = record_parquet(kind, count, config, folder)
    _write_log(recording, config)
    return recording


def record_parquet(kind: str, count: int, config: NexmarkConfig, folder: Path) -> Recording:
    """Write the first `count` events of a kind as parquet files alone."""
    recording = Recording(kind, count, str(folder / f"{kind}-log"), str(folder / f"{kind}-parquet"))
    _write_parquet(recording, config)
    return recording


def _batches(kind: str, first: int, end: int, config: NexmarkConfig) -> Iterator[pa.RecordBatch]:
    for start in range(first, end, _BATCH_ROWS):
        yield generate(kind, start, min(_BATCH_ROWS, end - start), config)


def _write_log(recording: Recording, config: NexmarkConfig) -> None:
    """Commits of `PARTITIONS_MAX` files each, so that any partition advances in order of time."""
    meta = IngestMeta(schema_of(recording.kind), "date_time", 0)
    ingest_log.prepare(recording.log, meta)
    commit: list[IngestFile] = []
    for first in range(0, recording.count, _FILE_ROWS):
        end = min(first + _FILE_ROWS, recording.count)
        file = ingest_log.write_file(
            recording.log, meta, _batches(recording.kind, first, end, config)
        )
        commit += [] if file is None else [file]
        if len(commit) == PARTITIONS_MAX or end == recording.count:
            ingest_log.append_batch(recording.log, commit)
            commit = []
    ingest_log.end(recording.log)


def _write_parquet(recording: Recording, config: NexmarkConfig) -> None:
    """Files of equal size; Spark takes them in the order of their modification times."""
    folder = Path(recording.parquet)
    folder.mkdir(parents=True)
    rows = -(-recording.count // (TRIGGERS * FILES_PER_TRIGGER))
    for number, first in enumerate(range(0, recording.count, rows)):
        end = min(first + rows, recording.count)
        table = pa.Table.from_batches(_batches(recording.kind, first, end, config))
        pq.write_table(table, folder / f"{number:04d}.parquet", use_dictionary=False)


@dataclass(frozen=True, slots=True)
class LogInput:
    """A recording as a source that notes, on disk, when each partition was first read.

    It is what `Dataflow.source_log` reads, with one line more per read.

    Attributes:
        path: The root of an ingest log.
        marks: A folder for the notes.
    """

    path: str
    marks: str

    @property
    def schema(self) -> pa.Schema:
        """The attributes."""
        return ingest_log.read_meta(self.path).schema

    def spec(self, partition: int, partitions: int) -> MarkingSpec:
        """One partition, for a node."""
        log = LogSourceSpec(self.path, "ingest", partition, partitions)
        return MarkingSpec(log, f"{self.marks}/{Path(self.path).name}-{partition}")

    def to_dataframe(self, spark: SparkSession) -> DataFrame:
        """The recording as a DataFrame with its times in `__time_us`."""
        from pyspark.sql import functions as F

        frame: DataFrame = spark.read.format("holdfast").load(self.path)
        return frame.withColumn(TIME_COLUMN, F.unix_micros("date_time"))


@dataclass(frozen=True, slots=True)
class Marked:
    """Any source that notes, on disk, when each partition was first read.

    Attributes:
        source: As `Dataflow.source_generator` takes it.
        marks: A folder for the notes.
    """

    source: Any
    marks: str

    @property
    def schema(self) -> pa.Schema:
        """The attributes."""
        return self.source.schema

    def spec(self, partition: int, partitions: int) -> MarkingSpec:
        """One partition, for a node."""
        spec = self.source.spec(partition, partitions)
        return MarkingSpec(spec, f"{self.marks}/{partition}")

    def to_dataframe(self, spark: SparkSession) -> DataFrame:
        """See the source."""
        frame: DataFrame = self.source.to_dataframe(spark)
        return frame


@dataclass(frozen=True, slots=True)
class MarkingSpec:
    """One partition of a source with marks; `open` it on a node."""

    source: SourceSpec
    mark: str

    def in_records(self) -> MarkingSpec | None:
        """See `RecordedSpec`."""
        source = in_records(self.source)
        return None if source is None else replace(self, source=source)

    def open(self) -> SourceReader:
        """A reader of this partition."""
        return MarkingReader(self.source.open(), Path(self.mark))


class MarkingReader:
    """Notes the time of its first read."""

    def __init__(self, reader: SourceReader, mark: Path) -> None:
        """Read `reader`, note in `mark`."""
        self._reader = reader
        self._mark: Path | None = mark

    def read(self, from_id: int, max_tuples: int) -> SourceRows:
        """See `SourceReader.read`."""
        if self._mark is not None:
            self._mark.write_text(str(time.time_ns()))
            self._mark = None
        return self._reader.read(from_id, max_tuples)

    def close(self) -> None:
        """See `SourceReader.close`."""
        self._reader.close()


def first_read_s(marks: str) -> float:
    """When the first partition was first read, in seconds since the epoch."""
    return min(int(path.read_text()) for path in Path(marks).iterdir()) / 1e9
