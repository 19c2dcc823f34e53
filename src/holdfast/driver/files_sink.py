"""What a dataflow says of files as a sink, checked; and what is in them, as Spark reads it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

import fsspec
import pyarrow as pa

from holdfast.api.expressions.types import name_of
from holdfast.api.windows import duration_us
from holdfast.core.model.column_names import quoted
from holdfast.core.model.ids import BEGINNING_US, END_US
from holdfast.core.model.nested_types import is_nested
from holdfast.driver.readable_sinks import present
from holdfast.errors import DataflowError, UnsupportedError
from holdfast.shell.sinks.collecting import CUT_TUPLES
from holdfast.shell.sinks.file_formats import FORMATS, is_partition_type
from holdfast.shell.sinks.files import CutStore, FilesSinkSpec
from holdfast.shell.sinks.user_folder import user_folder
from holdfast.shell.spark.arrow_schemas import from_arrow_schema
from holdfast.shell.storage.errors import BadName
from holdfast.shell.storage.paths import check_url
from holdfast.shell.storage.places import is_remote, store_at, whole_place

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

    from holdfast.core.queues.file_cuts import CutRecord

_NO_READER: Final = ("arrow",)


@dataclass(frozen=True, slots=True)
class FilesSink:
    """Files to write.

    Attributes:
        folder: Where; a path, or a URL.
        format: One of `FORMATS`.
        partition_by: Columns that folders name.
        every_us: How late rows may appear.
    """

    folder: str
    format: str
    partition_by: tuple[str, ...]
    every_us: int

    unsynced_max: ClassVar[int] = 2 * CUT_TUPLES  # A cut is filled while another one is written.

    @property
    def place(self) -> str:
        """For messages."""
        return f"the folder {self.folder}"

    def feed_spec(self, sink: str, feed: str, instance: int, place: str) -> None:
        """Files have no place for what is tentative."""

    def spec(self, sink: str, instance: int, place: str) -> FilesSinkSpec:
        """What one instance writes."""
        return FilesSinkSpec(
            f"{sink}[{instance}]",
            self.folder,
            self.format,
            self.partition_by,
            place,
            self.every_us / 1e6,
        )

    # -- as a readable sink -----------------------------------------------------------------

    def read(self, name: str, spark: SparkSession, location: str, schema: pa.Schema) -> DataFrame:
        """What the files of this sink hold, and no others in its folder.

        Raises:
            UnsupportedError: Spark has no reader for them.
        """
        if self.format in _NO_READER or is_remote(self.folder):
            raise UnsupportedError(f"sink {name} is {self.place}; Spark may not read it, others do")
        columns = from_arrow_schema(schema)
        writers = dict.fromkeys(r.writer for r in newest_records(location, name).values())
        if not writers or not os.path.isdir(self.folder):
            return spark.createDataFrame([], columns)
        own = "{" + ",".join(f"part-{writer}-*" for writer in writers) + "}"
        reader = spark.read.schema(columns).option("pathGlobFilter", own).option("header", "true")
        found = reader.format(self.format).load(f"file://{self.folder}")
        return found.select(*map(quoted, schema.names))

    def promised_us(self, name: str, location: str, instances: int | None = None) -> int:
        """See `ReadableSink`."""
        records = present(newest_records(location, name), instances)
        known = [END_US if record.ends else record.boundary_us for record in records]
        return min(known) if known else BEGINNING_US

    def is_published(self, name: str, location: str, wanted: Mapping[str, int]) -> bool:
        """See `ReadableSink`.

        A record is there before its files have their names; those of earlier ones have them.
        """
        folder, records = user_folder(self.folder), newest_records(location, name)
        return all(
            stream in records
            and records[stream].next_id >= before
            and not any(folder.has(file.temporary) for file in records[stream].files)
            for stream, before in wanted.items()
        )

    def __str__(self) -> str:
        """What a checkpoint location depends on; how often rows appear may change."""
        by = f" by {list(self.partition_by)}" if self.partition_by else ""
        return f"files of {self.format} in {self.folder}{by}"


def files_sink(
    path: str, *, schema: pa.Schema, format: str, partition_by: tuple[str, ...], every: str
) -> FilesSink:
    """The sink; arguments and errors as in `Stream.sink_files`."""
    if format not in FORMATS:
        raise DataflowError(f"format={format!r}; there are {', '.join(FORMATS)}")
    for name in partition_by:
        if name not in schema.names:
            raise DataflowError(f"no column {name!r}; there are {', '.join(schema.names)}")
        if not is_partition_type(schema.field(name).type):
            raise DataflowError(
                f"partition_by={name!r} is {schema.field(name).type}; folders name integers, "
                "strings, booleans and dates: select one of these first"
            )
    for field in schema if format == "csv" else ():
        if is_nested(field.type) or pa.types.is_binary(field.type):
            raise UnsupportedError(
                f"column {field.name!r} is {name_of(field.type)}, which csv has not; write "
                "format='parquet', or to_json(...) of it"
            )
    if len(set(partition_by)) == len(schema):
        raise DataflowError("partition_by names all columns; files need one at least")
    try:
        if is_remote(path):
            check_url(path)
            fsspec.get_filesystem_class(path.partition("://")[0])
    except BadName as error:
        raise DataflowError(str(error)) from None
    except ValueError as error:  # No such scheme.
        raise DataflowError(f"{path}: {error}") from None
    folder = whole_place(path)
    if not is_remote(path) and os.path.exists(folder) and not os.path.isdir(folder):
        raise DataflowError(f"{path} is a file; sink_files takes the folder for its files")
    return FilesSink(folder, format, partition_by, duration_us(every))


def newest_records(location: str, sink: str) -> dict[str, CutRecord]:
    """Per stream of the sink what its newest record says. Raises `StorageError`."""
    path, found = os.path.join(location, "streams", sink), {}
    for name in store_at(path).children():
        store = CutStore(os.path.join(path, name))
        newest = store.newest()
        store.close()
        if newest is not None:
            found[f"{sink}[{name}]"] = newest
    return found
