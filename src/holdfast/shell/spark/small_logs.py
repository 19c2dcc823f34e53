"""Reads a small log in the driver: for a reader of its own, Spark starts processes for seconds."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from holdfast.shell.spark.arrow_schemas import from_arrow_schema, to_arrow_schema
from holdfast.shell.spark.data_source import LogSource, load
from holdfast.shell.storage import ingest_log
from holdfast.shell.storage.commit_counting import user_files_of
from holdfast.shell.storage.errors import UnknownStream
from holdfast.shell.storage.logs import open_kept
from holdfast.shell.storage.places import is_remote, local_path, store_at

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import DataFrame, SparkSession

_IN_FEW_PARTITIONS: Final = {
    "spark.sql.execution.arrow.localRelationThreshold": "0",
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(1 << 17),
}
"""Rows stay Arrow beside a plan, as one with rows in it costs more; a batch is a partition."""
_BYTES_MAX: Final = 64 << 20
_PACKED_BYTES_MAX: Final = 4 << 20
"""Of users' files, whose rows may be many times as large in memory."""


def load_now(spark: SparkSession, path: str, **options: str) -> DataFrame:
    """What `load` gives, as it is now: rows that come to the log later may not be in it.

    Args:
        spark: The session.
        path: One log's folder.
        options: Of `format("holdfast")`.
    """
    if not _is_small(path):
        return load(spark, path, **options)
    source = LogSource({"path": path, **options})
    schema = source.schema()
    reader = source.reader(schema)
    batches = [rows for part in reader.partitions() for rows in reader.read(part)]
    wanted = to_arrow_schema(schema)
    rows = pa.Table.from_batches(batches) if batches else wanted.empty_table()
    with _set(spark, _IN_FEW_PARTITIONS):
        return spark.createDataFrame(rows.cast(wanted).combine_chunks(), schema)


def gaps_now(path: str) -> int | None:
    """Ids missing from, or repeated in, the streams of a sink's log; None: it is not small."""
    if not _is_small(path):
        return None
    gaps = 0
    for stream in _streams(path):
        reader = open_kept(stream)
        next_id = reader.next_id
        for logged in (one for batches in iter(reader.poll, []) for one in batches):
            gaps += logged.first_id != next_id
            next_id = logged.first_id + logged.count
        reader.close()
    return gaps


@contextmanager
def _set(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Within the block the session has these settings."""
    before = {name: spark.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, former in before.items():
            if former is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, former)


def has_begun(path: str) -> bool:
    """Whether a sink's node has opened the log there, in any of its streams."""
    return any(_has_schema(stream) for stream in _streams(path))


def nothing_of(spark: SparkSession, schema: pa.Schema) -> DataFrame:
    """No rows in the columns of a sink, as `load` would give them."""
    nullable = pa.schema([field.with_nullable(True) for field in schema])
    return spark.createDataFrame([], from_arrow_schema(nullable))


def has_ended(path: str) -> bool:
    """Whether nothing comes to a sink's log any more, in none of its streams."""
    streams = _streams(path)
    return bool(streams) and all(map(_is_over, streams))


def _streams(path: str) -> list[str]:
    """Where the streams of a sink's log are."""
    return [os.path.join(path, name) for name in store_at(path).children() if name.isdigit()]


def _has_schema(path: str) -> bool:
    reader = open_kept(path)
    try:
        return reader.schema is not None
    finally:
        reader.close()


def _is_over(path: str) -> bool:
    reader = open_kept(path)
    try:
        reader.skip_to_end()
        return bool(reader.ended)
    finally:
        reader.close()


def _is_small(path: str) -> bool:
    """Whether the driver's memory bears all of a log."""
    if is_remote(path):
        return False
    place, size = local_path(path), 0
    for folder, _, names in os.walk(place):
        size += sum(os.path.getsize(os.path.join(folder, name)) for name in names)
    return size <= _BYTES_MAX and _users_bytes(path) <= _PACKED_BYTES_MAX


def _users_bytes(path: str) -> int:
    """Of the users' files that an ingest log names."""
    try:
        if ingest_log.read_meta(path).user_files is None:
            return 0
    except UnknownStream:
        return 0  # It is another log.
    return sum(file.size_bytes for file in user_files_of(path))
