"""What a dataflow says of users' files as a source: format, columns, how they are read."""

from __future__ import annotations

import os
import re
from glob import has_magic
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from holdfast.api.dead_letters import ERROR_COLUMN, BadRows
from holdfast.api.expressions.types import CARRIED, carried_schema, is_carried, name_of
from holdfast.api.windows import duration_us
from holdfast.core.model.nested_types import canonical, is_nested
from holdfast.core.queues.table_versions import TableUnfit
from holdfast.driver.packages import lacks
from holdfast.driver.schemas import declared_schema
from holdfast.errors import DataflowError, UnsupportedError
from holdfast.shell.sources.delta_recorder import DeltaRecorder, DeltaSource, require_readable
from holdfast.shell.sources.file_recorder import FileRecorder, FilesSource
from holdfast.shell.storage.errors import BadName
from holdfast.shell.storage.ingest_log import IngestMeta
from holdfast.shell.storage.paths import refuse_password
from holdfast.shell.storage.places import is_remote, local_path, whole_place
from holdfast.shell.storage.user_files import UserFileError, list_files, partition_of
from holdfast.shell.storage.user_rows import (
    DEAD,
    ERROR,
    FORMATS,
    PATH,
    ROW,
    TEXT,
    FilesFormat,
    schema_of,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from pyspark.sql.types import StructType

_OPTIONS: Final = {"csv": ("header", "sep")}
_OF_BAD_LINES: Final = ("mode", "columnnameofcorruptrecord", "badrecordspath")
"""Options of Spark's readers that say how a bad line is given."""
_CORRUPT: Final = "_corrupt_record"
BAD_ROWS: Final = BadRows(
    ERROR,
    (f"{PATH} AS file", f"{ROW} AS row", f"{TEXT} AS text", f"{ERROR} AS {ERROR_COLUMN}"),
)
_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9_-]+")


def files_source(
    path: str,
    *,
    format: str,
    schema: pa.Schema | StructType | str | None,
    time: str,
    delay: str | None,
    ahead: str | None,
    trigger: Mapping[str, Any] | None,
    ends: bool,
    options: Mapping[str, str] | None,
    has_dead_letters: bool = False,
) -> FilesSource:
    """The source; arguments and errors as in `Dataflow.source_files`."""
    if format not in FORMATS:
        raise DataflowError(f"format={format!r}; there are {', '.join(FORMATS)}")
    known = _OPTIONS.get(format, ())
    unknown = [name for name in options or {} if name not in known]
    if unknown and unknown[0].lower() in _OF_BAD_LINES:
        raise DataflowError(
            f"option {unknown[0]!r}: a bad line stops the query, as with Spark's FAILFAST; give "
            "dead_letters=... to put such lines aside, or read by spark.read and flow.source(df)"
        )
    if unknown:
        raise DataflowError(
            f"option {unknown[0]!r} of format {format!r}; there are {', '.join(known) or 'none'}"
        )
    if trigger is not None and dict(trigger) != {"availableNow": True}:
        raise DataflowError(
            f"trigger={dict(trigger)}; files have {{'availableNow': True}}, or none"
        )
    if trigger is not None and ends:
        raise DataflowError("ends=True and trigger availableNow; give one of them")
    place = local_path(path)
    try:
        refuse_password(path)
    except BadName as error:
        raise DataflowError(str(error)) from None
    if not (is_remote(path) or has_magic(place) or os.path.exists(place)):
        raise DataflowError(f"{path} does not exist; correct the path, or make the folder first")
    given = tuple(sorted((name, _option(name, value)) for name, value in (options or {}).items()))
    of = FilesFormat(format, given, has_dead_letters)
    declared = _inferred(path, of) if schema is None else declared_schema(schema)
    columns = carried_schema(declared)
    _require_types(columns, format)
    if format in ("csv", "json") and _CORRUPT in columns.names:
        raise DataflowError(
            f"column {_CORRUPT!r} is where Spark puts bad lines; leave it out of schema=..., and "
            "give dead_letters=... to have them"
        )
    if taken := set(columns.names).intersection(DEAD.names if has_dead_letters else ()):
        raise DataflowError(f"column {min(taken)!r} is a name of dead letters'; rename yours")
    if has_dead_letters:
        columns = pa.schema([field.with_nullable(True) for field in columns])
    said = None if columns.equals(declared) else declared
    columns = pa.schema([*columns, *(DEAD if has_dead_letters else ())])
    delay_us = 0 if delay is None else duration_us(delay)
    ahead_us = None if ahead is None else duration_us(ahead)
    meta = IngestMeta(columns, time, delay_us, ahead_us, of, said)
    return FilesSource(path, meta, ends, trigger is not None)


def _option(name: str, given: Any) -> str:
    """An option of CSV as its text. Raises `DataflowError` for one that makes no sense."""
    value = str(given)
    if name == "header":
        value = value.lower()
        if value not in ("true", "false"):
            raise DataflowError(f"option 'header' is {given!r}; write true or false")
    elif len(value) != 1 or value in '"\\\r\n' or not value.isascii():
        raise DataflowError(f"option 'sep' is {given!r}; write one character of ASCII, e.g. ';'")
    return value


def _require_types(columns: pa.Schema, format: str) -> None:
    """Raise `DataflowError` or `UnsupportedError` for a column that nodes do not read."""
    for field in columns:
        if not is_carried(field.type):
            raise DataflowError(
                f"column {field.name!r} is {field.type}; Holdfast carries {CARRIED}. Leave it out "
                "of schema=..."
            )
    for field in columns if format in ("csv", "json") else ():
        is_local = pa.types.is_timestamp(field.type) and field.type.tz is None
        if is_nested(field.type) or pa.types.is_binary(field.type) or is_local:
            raise UnsupportedError(
                f"column {field.name!r} is {name_of(field.type)}, which nodes do not read of "
                f"{format}: have Spark read the files, flow.source(spark.read.{format}(...))"
            )


def delta_source(
    path: str,
    *,
    time: str,
    schema: pa.Schema | StructType | str | None,
    start_version: int | None,
    start_time: datetime | None,
    delay: str | None,
    ahead: str | None,
    trigger: Mapping[str, Any] | None,
    ends: bool,
) -> DeltaSource:
    """The source; arguments and errors as in `Dataflow.source_delta`."""
    try:
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError
    except ImportError:
        raise lacks("source_delta", "deltalake", "delta") from None
    if (start_version is not None) + (start_time is not None) + ends > 1:
        raise DataflowError("start_version, start_time and ends=True; give one of them")
    if start_time is not None and start_time.tzinfo is None:
        raise DataflowError(f"start_time={start_time} has no time zone; give it one, such as UTC")
    place = whole_place(path)
    try:
        table = DeltaTable(place)
        columns = pa.schema(table.schema().to_arrow())
        require_readable(table)
    except (DeltaError, OSError) as error:
        reason = str(error).splitlines()[0]
        raise DataflowError(f"{path} is no Delta table that can be read: {reason}") from None
    except TableUnfit as error:
        raise DataflowError(f"{path} cannot be read: {error}") from None
    if start_version is not None and not 0 <= start_version <= table.version() + 1:
        raise DataflowError(
            f"start_version={start_version}; the newest version of {path} is {table.version()}: "
            "give one from 0 on, and at most the one that comes next"
        )
    has = pa.schema([pa.field(f.name, _carried(f.type)) for f in columns])
    given = files_source(
        place,
        format="parquet",
        schema=has if schema is None else _chosen(has, declared_schema(schema), path),
        time=time,
        delay=delay,
        ahead=ahead,
        trigger=trigger,
        ends=ends,
        options=None,
    )
    start_ms = None if start_time is None else round(start_time.timestamp() * 1000)
    return DeltaSource(
        place,
        given.meta,
        given.ends,
        given.is_available_now,
        start_version=start_version,
        start_ms=start_ms,
    )


def _chosen(has: pa.Schema, wanted: pa.Schema, path: str) -> pa.Schema:
    """The columns of a table that are wanted. Raises `DataflowError` for others."""
    for field in carried_schema(wanted):
        if field.name not in has.names or has.field(field.name).type != field.type:
            there = ", ".join(f"{each.name} {name_of(each.type)}" for each in has)
            raise DataflowError(
                f"schema has {field.name} {name_of(field.type)}; the columns of {path} are {there}"
            )
    return wanted


def recorder_of(name: str, source: FilesSource, location: str) -> FileRecorder:
    """Who makes files, or the files of a table, part of the log of a source."""
    if isinstance(source, DeltaSource):
        return DeltaRecorder(name, source, location)
    return FileRecorder(name, source, location)


def default_name(path: str) -> str:
    """A source's name, from the last part of its path that is no glob."""
    parts = [part for part in path.rstrip("/").split("/") if part and not set(part) & set("*?[")]
    return _NOT_IN_NAMES.sub("_", parts[-1].partition(".")[0]) if parts else "files"


def _inferred(path: str, of: FilesFormat) -> pa.Schema:
    """The columns of the first file, and of its partition's folders."""
    if of.name in ("csv", "json"):
        raise DataflowError(f"{path}: {of.name} has no types; give schema='name TYPE, ...'")
    try:
        listed = sorted(list_files(path), key=lambda found: (found.modified_ns, found.file.path))
        if not listed:
            raise DataflowError(f"{path} has no files yet; give schema='name TYPE, ...'")
        first = listed[0].file
        fields = [field.with_type(_carried(field.type)) for field in schema_of(first, of)]
    except UserFileError as error:
        raise DataflowError(str(error)) from None
    named = [pa.field(name, pa.string()) for name in partition_of(first.path)]
    return pa.schema([*(pa.field(f.name, f.type) for f in fields), *named])


def _carried(of: pa.DataType) -> pa.DataType:
    """The type that streams have for a file's: microseconds UTC, strings of any length."""
    if pa.types.is_timestamp(of):
        return pa.timestamp("us", tz="UTC")
    if pa.types.is_dictionary(of):
        return _carried(of.value_type)
    if pa.types.is_large_list(of):
        return pa.list_(_carried(of.value_type))
    return pa.string() if pa.types.is_large_string(of) else canonical(of)
