"""`format("holdfast")`: what a query leaves as DataFrames, and DataFrames into ingest logs.

Reading takes a checkpoint location and one of `stream`, `state`, `metrics`, `footprints`; or the
folder of one log. `READ_OPTIONS` and `WRITE_OPTIONS` say what there is. Of these, `state`, `table`
and `footprints` are made above the shell (driver/data_source.py). A log has one Spark
partition for each instance that wrote it; Spark gets Arrow batches, and the filters in
pushed_filters.py run before rows leave for it.

Writing, batch or streaming, appends to an ingest log exactly once by batch id.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass, replace
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    Filter,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from holdfast.core.model.feed_rows import FEED_FIELDS
from holdfast.core.model.nested_types import canonical
from holdfast.core.model.tuples import TIME_COLUMN, TupleType
from holdfast.core.queues.reach import DAY_US
from holdfast.core.queues.recording import IngestFile
from holdfast.shell.spark.active_session import active_session
from holdfast.shell.spark.arrow_schemas import from_arrow_schema, to_arrow_schema
from holdfast.shell.spark.data_source_options import is_true, whole_number
from holdfast.shell.spark.offsets import offset_of, place_in
from holdfast.shell.spark.pushed_filters import PARTITION, TUPLE_ID, PushedFilters
from holdfast.shell.spark.watermarks import origin_of_batch, watermark_of_batch
from holdfast.shell.storage import ingest_log
from holdfast.shell.storage.beginnings import first_kept
from holdfast.shell.storage.commit_counting import first_id_of
from holdfast.shell.storage.errors import StorageError, TuplesMissing, UnknownStream
from holdfast.shell.storage.feed_log import (
    FeedFollower,
    Place,
    all_rows,
    current_rows,
    logged_in,
)
from holdfast.shell.storage.ingest_log import IngestLogReader, IngestMeta
from holdfast.shell.storage.log_follower import LogFollower, LoggedBatch
from holdfast.shell.storage.logs import open_kept, open_reader
from holdfast.shell.storage.paths import FEEDS, checked_name, metrics_path, within
from holdfast.shell.storage.places import has_files, local_path, store_at

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_UTC = pa.timestamp("us", tz="UTC")
_FOLDERS = ("streams", "ingest", "kafka")
"""Folders of a checkpoint location with logs by name."""
_PUSHDOWN: Final = "spark.sql.python.filterPushdown.enabled"

READ_OPTIONS: Final = {
    "stream": "a sink, dead letters included, or a source of the query that wrote the location",
    "state": "an operator with state: what its newest checkpoints hold; batch only",
    "footprints": "`true`: of each node with `EventualCheckpoints`, what a replacement would begin "
    "with, and how long it would take; batch only",
    "metrics": "`true`: the progress of the units, one row per unit and report",
    "metadata": "`true` adds `_partition`, `_tuple_id` and `_time`",
    "types": "of a sink: `stable` (default); `all`: tentative ones too, and what is undone and "
    "corrected, in order, with `_type`, `_tuple_id`, `_run`, `_missing`, `_share`; `current`: the "
    "best known now, which is for batch only",
    "table": "`true`: of a sink of a changelog, or of running results, the rows that stand; batch "
    "only",
    "late": "`true`: of a source's log the late tuples instead; batch only",
    "pushdown": "`true`: filters run where the log is read. Give each query a `load` of its own: "
    "Spark keeps the filtered scan of a DataFrame for its next query, even without the filter",
    "partitions": "of a source's log: into how many it is split, as the dataflow does; default 1",
}
WRITE_OPTIONS: Final = {
    "time": "the column with the event time; required",
    "delayMs": "how far rows may be out of order; default 0",
    "delayUs": "the same in microseconds",
    "aheadUs": "by how many microseconds a row may be ahead of the others, and of the clock, and "
    "still move time; 0: at will; default a day",
    "watermark": "`true`: Spark's own watermark says what is late, not the delay; streaming only",
    "end": "`true`: nothing will follow; batch only",
    "batch": "the number of this write, from 0 on without gaps: written again it counts once; by "
    "default it follows all others; batch only",
}


def register(spark: SparkSession) -> None:
    """Make `format("holdfast")` known to a session, and let it push filters down.

    It is what Spark would find by itself (see the package `pyspark_holdfast`), and may have found.
    """
    try:
        spark.dataSource.register(import_module("pyspark_holdfast").DefaultSource)
    except PySparkException as error:
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise
    if spark.conf.get(_PUSHDOWN, None) != "true":
        spark.conf.set(_PUSHDOWN, "true")


def load(spark: SparkSession, path: str, **options: str) -> DataFrame:
    """`spark.read.format("holdfast").options(...).load(path)` in any session, from any thread.

    The first use of a format in a session makes Spark look for data sources in Python, for seconds;
    so what does without it does not register it.
    """
    with active_session(spark):
        register(spark)
        return spark.read.format("holdfast").options(**options).load(path)


@dataclass(frozen=True)
class _Log:
    """Where to read: an ingest log (one partition), or the partitions of a stream."""

    path: str
    is_ingest: bool
    partitions: tuple[int, ...]
    schema: pa.Schema
    feed: str | None = None
    """Where what is tentative lies; None: nothing is."""

    def open(self, partition: int, from_id: int) -> LogFollower | IngestLogReader:
        if self.is_ingest:
            return IngestLogReader(self.path, partition, len(self.partitions), from_id)
        return self.open_sink(partition, from_id)

    def open_sink(self, partition: int, from_id: int) -> LogFollower:
        return open_reader(os.path.join(self.path, str(partition)), from_id)

    def beginning(self, partition: int) -> int:
        """The id of a partition's first tuple that is kept."""
        if self.is_ingest:
            return first_id_of(self.path, partition, len(self.partitions))
        return first_kept(os.path.join(self.path, str(partition)))

    def open_feed(self, partition: int, from_id: int) -> LogFollower:
        return open_reader(os.path.join(self.feed or "", str(partition)), from_id)

    def both_begin(self, partition: int) -> Place:
        """Where a sink and its feed begin, as far as they are kept."""
        feed = first_kept(os.path.join(self.feed or "", str(partition)))
        return Place(self.beginning(partition), feed, stands=False)


def _find(options: dict[str, str]) -> _Log:
    location = path = local_path(options.get("path", ""))
    if not has_files(path):
        raise UnknownStream(f"{path} is no folder; give load(path) a checkpoint location or a log")
    stream = options.get("stream")
    if is_true(options, "metrics"):
        path = metrics_path(path)
        if not has_files(path):
            raise UnknownStream(
                f"{options['path']} holds no metrics: no query ran there with "
                "spark.holdfast.metricsIntervalMs above 0"
            )
    elif stream is not None:
        checked_name(stream)
        places = [within(path, kind, stream) for kind in _FOLDERS]
        found = [place for place in places if has_files(place)]
        if not found:
            raise UnknownStream(f"no stream {stream!r} in {path}; there are {_known(path)}")
        path = found[0]
    children = store_at(path).children()
    if "meta.json" in children:
        count = max(1, whole_number(options, "partitions", 1))
        schema = ingest_log.read_meta(path).schema
        return _Log(path, True, tuple(range(count)), schema)
    partitions = tuple(sorted(int(name) for name in children if name.isdigit()))
    for partition in partitions:
        schema = open_kept(os.path.join(path, str(partition))).schema
        if schema is not None:
            attributes = pa.schema([f for f in schema if f.name != TIME_COLUMN])
            return _Log(path, False, partitions, attributes, _feed(location, stream))
    known = _known(path)
    hint = f"; name one with option('stream', ...): {known}" if known else ""
    raise UnknownStream(f"{path} holds no log{hint}")


def _feed(location: str, stream: str | None) -> str | None:
    """The folder of a sink's feeds, if it has any."""
    place = None if stream is None else within(location, FEEDS, stream)
    return place if place is not None and has_files(place) else None


def _has_corrections(options: dict[str, str], log: _Log) -> bool:
    """Whether more than stable tuples are wanted, and there may be more.

    Raises:
        StorageError: The best known now is wanted of what nothing tentative is known of.
    """
    types = options.get("types", "stable")
    if types == "current" and log.feed is None:
        raise StorageError(
            f"option types='current': {options.get('stream', log.path)} has stable tuples alone, "
            "as no unit that writes it is Replicated; leave the option out"
        )
    return types != "stable" and log.feed is not None


def _known(location: str) -> str:
    """The names of all streams and sources of a checkpoint location."""
    kinds = [os.path.join(location, kind) for kind in _FOLDERS]
    return ", ".join(
        sorted(name for kind in kinds if has_files(kind) for name in store_at(kind).children())
    )


_OPTIONS = frozenset(("path", *(name.lower() for name in (*READ_OPTIONS, *WRITE_OPTIONS))))
_SPARK_OPTIONS = frozenset(("checkpointlocation", "queryname", "outputmode"))
_KINDS = ("stream", "state", "metrics", "footprints")
_SWITCHES = ("metrics", "footprints", "table")
_TYPES = ("stable", "all", "current")


def checked(options: Any) -> dict[str, str]:
    """The options, names in lower case as Spark hands them over; unknown ones are refused."""
    given = {str(name).lower(): str(value) for name, value in dict(options).items()}
    unknown = sorted(set(given) - _OPTIONS - _SPARK_OPTIONS)
    if unknown:
        raise StorageError(
            f"unknown option {', '.join(unknown)}; there are {', '.join(sorted(_OPTIONS))}"
        )
    if not given.get("path"):
        raise StorageError("give load(path) or save(path) a folder")
    if given.get("types", "stable") not in _TYPES:
        raise StorageError(f"option types={given['types']!r}; it is 'stable', 'all' or 'current'")
    for name in _SWITCHES:
        if not is_true(given, name):
            given.pop(name, None)
    kinds = [kind for kind in _KINDS if kind in given]
    if len(kinds) > 1:
        raise StorageError(f"options {' and '.join(kinds)} name different things; give one")
    return given


def _checked_for_streams(options: Any) -> dict[str, str]:
    """The options of `readStream`. State and late tuples do not grow at an end."""
    given = checked(options)
    if "state" in given or "footprints" in given:
        raise StorageError("options state, footprints: a checkpoint is no stream; use spark.read")
    if "table" in given:
        raise StorageError("option table: no stream takes rows back; use spark.read")
    if is_true(given, "late"):
        raise StorageError("option late: late tuples have no ids to follow; use spark.read")
    if given.get("types") == "current":
        raise StorageError(
            "option types='current': the best known now takes rows back, which no stream can; use "
            "spark.read, or follow types='all', where an undo says what is void"
        )
    return given


class LogSource(DataSource):
    """The data source, without the tables that `HoldfastSource` adds; see the module."""

    @classmethod
    def name(cls) -> str:
        """What `format(...)` calls it."""
        return "holdfast"

    def schema(self) -> StructType:
        """The columns that these options give; see the module."""
        options = checked(self.options)
        log = _find(options)
        fields = list(log.schema)
        if is_true(options, "metadata"):
            fields += [pa.field(PARTITION, pa.int32()), pa.field(TUPLE_ID, pa.int64())]
            fields.append(pa.field("_time", _UTC))
        if _has_corrections(options, log):
            fields += [f for f in FEED_FIELDS if f.name not in [known.name for known in fields]]
        elif options.get("types", "stable") == "all":
            fields.append(pa.field("_type", pa.string()))
        nullable = [f.with_nullable(True) for f in fields]
        return from_arrow_schema(pa.schema(nullable))

    def reader(self, schema: StructType) -> DataSourceReader:
        """For `spark.read`."""
        return _Reader(checked(self.options), to_arrow_schema(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """For `spark.readStream`."""
        options = _checked_for_streams(self.options)
        reader = _CorrectedReader if _has_corrections(options, _find(options)) else _StreamReader
        return reader(options, to_arrow_schema(schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """For `DataFrame.write`."""
        return _BatchWriter(checked(self.options), to_arrow_schema(schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        """For `DataFrame.writeStream`."""
        return _StreamWriter(checked(self.options), to_arrow_schema(schema))


class _Range(InputPartition):
    """Ids [start, end) of one partition; `end` None means all there is.

    `is_there`: the log has held all of them.
    """

    def __init__(
        self, partition: int, start: int, end: int | None, *, is_there: bool = False
    ) -> None:
        self.partition, self.start, self.end, self.is_there = partition, start, end, is_there


class _Between(InputPartition):
    """What one partition of a sink and its feed have put out between two places."""

    def __init__(self, partition: int, start: Place, end: Place | None) -> None:
        self.partition, self.start, self.end = partition, start, end


def _before(end: int, batch: LoggedBatch) -> LoggedBatch | None:
    """The tuples of a batch with ids below `end`; None if there is none."""
    count = end - batch.first_id
    if count <= 0:
        return None
    return batch if batch.count <= count else replace(batch, count=count, batch=batch.batch[:count])


class _Rows:
    """Turns logged batches into what the options ask for."""

    def __init__(self, options: dict[str, str], schema: pa.Schema) -> None:
        self.log = _find(options)
        self._schema = schema
        self._has_metadata = is_true(options, "metadata")
        self._has_types = options.get("types", "stable") == "all"
        self._is_late = is_true(options, "late")
        self._is_current = options.get("types") == "current"
        self._has_corrections = _has_corrections(options, self.log)

    def read(self, part: _Range) -> Iterator[pa.RecordBatch]:
        """The rows of a range. Raises `TuplesMissing` if the log ends before what was there."""
        if self._has_corrections:
            start = self.log.both_begin(part.partition)
            yield from self.with_corrections(_Between(part.partition, start, None))
            return
        reader = self.log.open(part.partition, part.start)
        while part.end is None or reader.next_id < part.end:
            batches = reader.poll()
            if self._is_late and isinstance(reader, IngestLogReader):
                for late in reader.take_late():
                    logged = LoggedBatch(TupleType.STABLE, 0, -1, late.num_rows, 0, 0, late)
                    yield self._shaped(logged, part.partition)
            if not batches:
                break
            for batch in batches if not self._is_late else ():
                kept = batch if part.end is None else _before(part.end, batch)
                if kept is None:
                    break
                if self._has_types or kept.tuple_type is TupleType.STABLE:
                    yield self._shaped(kept, part.partition)
        reader.close()
        if part.is_there and part.end is not None and reader.next_id < part.end:
            place = os.path.join(self.log.path, str(part.partition))
            raise TuplesMissing(place, reader.next_id, part.end)

    def with_corrections(self, part: _Between) -> Iterator[pa.RecordBatch]:
        """What is stable and what is not, of one partition."""
        partition, end = part.partition, part.end

        def stable(start: int, before: int | None) -> Iterator[LoggedBatch]:
            return logged_in(self.log.open_sink(partition, start), before)

        feed = logged_in(self.log.open_feed(partition, part.start.feed), end and end.feed)
        if self._is_current:
            found = current_rows(stable, feed, part.start)
        else:
            found = all_rows(stable, feed, part.start, end)
        for batch in found:
            known = dict(zip(batch.schema.names, batch.columns, strict=True))
            known[PARTITION] = pa.repeat(partition, batch.num_rows)
            known["_time"] = known[TIME_COLUMN].cast(_UTC)
            columns = [known[field.name].cast(field.type) for field in self._schema]
            yield pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _shaped(self, logged: LoggedBatch, partition: int) -> pa.RecordBatch:
        count = logged.count
        columns = list(logged.batch.columns[:-1])
        if self._has_metadata:
            ids = pa.array(range(logged.first_id, logged.first_id + count), pa.int64())
            ids = pa.nulls(count, pa.int64()) if self._is_late else ids
            columns += [pa.array([partition] * count, pa.int32()), ids]
            columns.append(logged.batch.column(logged.batch.num_columns - 1).cast(_UTC))
        if self._has_types:
            columns.append(pa.array([logged.tuple_type.name.lower()] * count))
        columns = [c.cast(f.type) for c, f in zip(columns, self._schema, strict=True)]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)


class _Pushing:
    """`pushFilters` of a reader, where the session allows it.

    Spark refuses a reader that implements it in a session that has filter push-down switched off,
    as it is by default. There this passes for the method that takes no filter.
    """

    __func__ = staticmethod(DataSourceReader.pushFilters)

    def __init__(self, reader: _Reader) -> None:
        self._reader = reader

    def __call__(self, filters: list[Filter]) -> list[Filter]:
        return self._reader.push(filters)


class _Reader(DataSourceReader):
    def __init__(self, options: dict[str, str], schema: pa.Schema) -> None:
        self._options, self._schema = options, schema
        self._pushed = PushedFilters()
        self.pushFilters = _Pushing(self)

    def push(self, filters: list[Filter]) -> list[Filter]:
        """Take what can be evaluated here, if the user wants it; gives back what is left to Spark.

        Not by default: 1. `frame.where("n = 1").count()` pushes a filter down, and Spark keeps the
        read that this gave with the relation. 2. `frame.count()` has no filter to push down, takes
        what is there, and counts the filtered rows. (Seen with Spark 4.3.)
        """
        if not is_true(self._options, "pushdown") or "types" in self._options:
            return filters
        self._pushed, left = PushedFilters.take(filters, self._schema)
        return left

    def partitions(self) -> Sequence[InputPartition]:
        log, (first, end) = _find(self._options), self._pushed.ids()
        known = self._pushed.keep_partitions(log.partitions)
        starts = {n: log.beginning(n) if first == 0 else first for n in known}
        return [_Range(n, start, end) for n, start in starts.items()] or [_Range(0, 0, 0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _Range)
        for batch in self._batches(partition):
            kept = self._pushed.keep(batch)
            if kept.num_rows:
                yield kept

    def _batches(self, partition: _Range) -> Iterator[pa.RecordBatch]:
        if partition.end is None or partition.end > partition.start:
            yield from _Rows(self._options, self._schema).read(partition)


class _StreamReader(DataSourceStreamReader):
    """Offsets map each partition to the next id."""

    def __init__(self, options: dict[str, str], schema: pa.Schema) -> None:
        self._options, self._schema = options, schema
        self._followers: dict[int, LogFollower | IngestLogReader] = {}

    def initialOffset(self) -> dict[str, int]:
        log = _find(self._options)
        return {str(partition): log.beginning(partition) for partition in log.partitions}

    def latestOffset(self, start: Any = None, limit: Any = None) -> dict[str, int]:
        log = _find(self._options)
        latest = {}
        for partition in log.partitions:
            follower = self._followers.get(partition)
            if follower is None:
                follower = log.open(partition, log.beginning(partition))
                self._followers[partition] = follower
            if isinstance(follower, IngestLogReader):
                while follower.poll():
                    follower.take_late()
            else:
                follower.skip_to_end()
            latest[str(partition)] = follower.next_id
        return latest

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        return [
            _Range(int(name), start.get(name, 0), next_id, is_there=True)
            for name, next_id in end.items()
            if next_id > start.get(name, 0)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _Range)
        yield from _Rows(self._options, self._schema).read(partition)

    def __getstate__(self) -> dict[str, Any]:
        return {"_options": self._options, "_schema": self._schema, "_followers": {}}


class _CorrectedReader(DataSourceStreamReader):
    """Of a sink and its feed. Offsets say how much of both, under names of Spark's kind."""

    def __init__(self, options: dict[str, str], schema: pa.Schema) -> None:
        self._options, self._schema = options, schema
        self._followers: dict[int, FeedFollower] = {}

    def initialOffset(self) -> dict[str, int]:
        log = _find(self._options)
        return offset_of({partition: log.both_begin(partition) for partition in log.partitions})

    def latestOffset(self, start: Any = None, limit: Any = None) -> dict[str, int]:
        log = _find(self._options)
        for partition in log.partitions:
            if partition not in self._followers:
                at, feed, _ = log.both_begin(partition)
                logs = log.open_sink(partition, at), log.open_feed(partition, feed)
                self._followers[partition] = FeedFollower(*logs)
        return offset_of({n: self._followers[n].place() for n in log.partitions})

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        numbers = sorted({int(name.partition(".")[0]) for name in end})
        parts = [_Between(n, place_in(start, n), place_in(end, n)) for n in numbers]
        return [part for part in parts if part.start != part.end]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _Between)
        yield from _Rows(self._options, self._schema).with_corrections(partition)

    def __getstate__(self) -> dict[str, Any]:
        return {"_options": self._options, "_schema": self._schema, "_followers": {}}


@dataclass
class _Written(WriterCommitMessage):
    """What one task wrote."""

    partition: int
    file: tuple[Any, ...] | None


class _Writing:
    """What batch and streaming writes share."""

    def __init__(self, options: dict[str, str], schema: pa.Schema) -> None:
        if "time" not in options:
            raise StorageError("writing needs option('time', column)")
        if options["time"] not in schema.names:
            raise StorageError(
                f"no time column {options['time']!r}; there are {', '.join(schema.names)}"
            )
        self._root = options["path"]
        self._has_watermark = is_true(options, "watermark")
        self._checkpoint = options.get("checkpointlocation", "")
        attributes = [f.with_type(canonical(f.type)) for f in schema]
        if "delayms" in options and "delayus" in options:
            raise StorageError("options delayMs and delayUs say the same; give one")
        delay_us = whole_number(options, "delayms", 0) * 1000 + whole_number(options, "delayus", 0)
        # Batch ids count per query, and a query is where its checkpoints are.
        self._query = f"query {options.get('checkpointlocation', 'without a name')}"
        ahead_us = whole_number(options, "aheadus", DAY_US) or None
        self._meta = IngestMeta(pa.schema(attributes), options["time"], delay_us, ahead_us)
        ingest_log.prepare(self._root, self._meta)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        from pyspark import TaskContext

        file = ingest_log.write_file(self._root, self._meta, iterator)
        context = TaskContext.get()
        partition = context.partitionId() if context is not None else 0
        return _Written(partition, None if file is None else astuple(file))

    def _files(self, messages: list[WriterCommitMessage | None]) -> list[IngestFile]:
        written = [m for m in messages if isinstance(m, _Written) and m.file is not None]
        return [IngestFile(*m.file) for m in sorted(written, key=lambda m: m.partition) if m.file]


class _BatchWriter(_Writing, DataSourceArrowWriter):
    def __init__(self, options: dict[str, str], schema: pa.Schema) -> None:
        if is_true(options, "watermark"):
            raise StorageError("option watermark: a batch write has none; use delayMs")
        super().__init__(options, schema)
        self._has_end = is_true(options, "end")
        self._batch = whole_number(options, "batch", 0) if "batch" in options else None

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        files = self._files(messages)
        if self._batch is None:
            ingest_log.append_batch(self._root, files, ends=self._has_end)
        else:
            ingest_log.commit(
                self._root, self._batch, files, by=ingest_log.BATCH, ends=self._has_end
            )

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Files without a commit do not count."""


def write_frame(df: DataFrame, path: str, **options: str) -> None:
    """What `df.write.format("holdfast").mode("append")` does, in one job and nothing beside it.

    Spark plans a write to a Python data source in processes of their own, which takes seconds.

    Args:
        df: The rows.
        path: The ingest log.
        options: See `WRITE_OPTIONS`.
    """
    given = checked({"path": path, **options})
    writer = _BatchWriter(given, to_arrow_schema(df.schema))
    # Spark parses names of columns here; odd ones are none to it.
    numbered = df.toDF(*(f"c{number}" for number in range(len(df.columns))))
    write = partial(_written_part, writer, tuple(df.columns))
    found = numbered.mapInArrow(write, "partition int, file string").collect()
    writer.commit([_Written(part, file and _fields_of(file)) for part, file in found])


def _written_part(
    writer: _BatchWriter, names: tuple[str, ...], rows: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """What one task wrote of columns so named, as a row."""
    named = (pa.RecordBatch.from_arrays(batch.columns, names=list(names)) for batch in rows)
    written = writer.write(named)
    assert isinstance(written, _Written)
    file = None if written.file is None else json.dumps(written.file)
    columns = {"partition": pa.array([written.partition], pa.int32())}
    yield pa.record_batch(columns | {"file": pa.array([file], pa.string())})


def _fields_of(file: str) -> tuple[Any, ...]:
    """The fields of an `IngestFile` that Spark's rows are written to."""
    *fields, spans, user = json.loads(file)
    return *fields, tuple(tuple(span) for span in spans), user


class _StreamWriter(_Writing, DataSourceStreamArrowWriter):
    def __init__(self, options: dict[str, str], schema: pa.Schema) -> None:
        if is_true(options, "end") or "batch" in options:
            raise StorageError("options end and batch: Spark numbers a stream's batches itself")
        super().__init__(options, schema)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        watermark_us = None
        if self._has_watermark:
            watermark_us = watermark_of_batch(self._checkpoint, batchId)
        ingest_log.commit(
            self._root,
            batchId,
            self._files(messages),
            by=self._query,
            watermark_us=watermark_us,
            origin=origin_of_batch(self._checkpoint, batchId),
        )

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Files without a commit do not count."""
