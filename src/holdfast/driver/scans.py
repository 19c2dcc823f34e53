"""Which DataFrames are plain scans of files, so that nodes can read the files instead of Spark.

A scan is plain if nothing but columns is chosen of Parquet files in one local folder, and if
pyarrow gives of these files exactly what Spark gives: of a file whose columns have other types or
other names, or whose times are of Spark's old calendar, that is not so (`exact_parquet.py`).

The way is chosen when the query starts. A location that was begun one way goes on that way.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

from holdfast.api import steps
from holdfast.api.windows import CountWindow
from holdfast.driver.schemas import schema_from_spark
from holdfast.shell.sources.file_recorder import FileRecorder, FilesSource
from holdfast.shell.spark.ingest import FrameSource, Ingest
from holdfast.shell.storage.errors import UnknownStream
from holdfast.shell.storage.exact_parquet import why_not_exact, why_not_of_folders
from holdfast.shell.storage.ingest_log import IngestMeta, read_meta
from holdfast.shell.storage.paths import ingest_path
from holdfast.shell.storage.user_files import UserFileError, list_files, partition_of
from holdfast.shell.storage.user_rows import FilesFormat

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from holdfast.api.graph import Graph
    from holdfast.api.steps import FromFrame, Step
    from holdfast.shell.sources.recorder import Recorder

SETTING: Final = "readFilesInNodes"
_PASSED: Final = ("SubqueryAlias",)
_OPTIONS: Final = {"path", "maxfilespertrigger"}
_USUAL: Final = {
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.int96TimestampConversion": "false",
    "spark.sql.parquet.fieldId.read.enabled": "false",
}
"""Settings by which Spark reads other rows or values of the same files."""
_FILES_MAX: Final = 1_000
"""Of a micro-batch, unless the reader says otherwise; Spark's own default."""


class NotPlain(Exception):
    """The DataFrame is no plain scan; the text says why, for people."""


@dataclass(frozen=True, slots=True)
class Scan:
    """A plain scan.

    Attributes:
        place: The folder, or the file.
        files_max: Of one micro-batch.
    """

    place: str
    files_max: int


def recorder_of_frame(step: Step, flow: Graph, location: str, *, is_allowed: bool) -> Recorder:
    """Who makes the rows of a DataFrame part of its log.

    Args:
        step: The source.
        flow: Its dataflow.
        location: The checkpoint location.
        is_allowed: Whether nodes may read files; a location that was begun so goes on so.
    """
    frame = step.operation
    assert isinstance(frame, steps.FromFrame)
    begun = _begun(ingest_path(location, step.name))
    reason = f"{SETTING} is off" if begun is None and not is_allowed else ""
    if begun is not None and begun.user_files is None:
        reason = "its log was begun so"
    if not reason:
        try:
            source = _files_source(frame, flow, is_begun=begun is not None)
            return FileRecorder(step.name, source, location)
        except NotPlain as error:
            reason = str(error)
    return Ingest(step.name, _frame_source(frame), location, reason)


def _frame_source(frame: FromFrame) -> FrameSource:
    return FrameSource(
        frame.df,
        frame.time,
        frame.delay_us,
        frame.ahead_us,
        frame.has_watermark,
        frame.partitions,
        frame.speed is not None,
        frame.trigger,
    )


def _begun(log: str) -> IngestMeta | None:
    """What an ingest log says of itself; None: there is none yet."""
    with suppress(UnknownStream):
        return read_meta(log)
    return None


def _files_source(frame: FromFrame, flow: Graph, *, is_begun: bool) -> FilesSource:
    """The DataFrame as files that nodes read. Raises `NotPlain`."""
    df, is_streaming = frame.df, bool(frame.df.isStreaming)
    if frame.speed is not None:
        raise NotPlain("it is replayed at a set speed")
    if frame.trigger and "availableNow" not in frame.trigger:
        raise NotPlain("its trigger is a time")
    if not is_streaming and (word := _by_order(flow)):
        raise NotPlain(f"{word} takes the rows of a batch DataFrame in order of time")
    scan = _plain_scan(df)
    schema = schema_from_spark(df.schema)
    if not is_begun:
        require_exact(df, scan.place, schema)
    meta = IngestMeta(
        schema,
        frame.time,
        frame.delay_us,
        frame.ahead_us,
        FilesFormat("parquet", is_exact=True),
    )
    return FilesSource(
        scan.place,
        meta,
        ends=not is_streaming,
        is_available_now=frame.trigger is not None,
        has_watermark=frame.has_watermark,
        files_max=scan.files_max,
    )


def _by_order(flow: Graph) -> str:
    """A step whose results depend on the order of rows with different times; empty: none does."""
    for step in flow.steps:
        match step.operation:
            case steps.WindowAggregate(windows=CountWindow()) | steps.Sort() | steps.Sample():
                return step.name
            case steps.WindowAggregate(emit="changes"):
                return step.name
    return ""


def _plain_scan(df: DataFrame) -> Scan:
    """What is scanned. Raises `NotPlain`."""
    plan: Any = df._jdf.queryExecution().analyzed()
    while plan.children().size() == 1:
        kind = plan.getClass().getSimpleName()
        if kind == "Project":
            _require_columns(plan)
        elif kind not in ("EventTimeWatermark", *_PASSED):
            raise NotPlain(f"its plan has {kind}")
        plan = plan.children().apply(0)
    kind = plan.getClass().getSimpleName()
    if kind == "LogicalRelation":
        return _of_relation(df.sparkSession, plan)
    if kind == "StreamingRelation":
        return scan_of_stream(df.sparkSession, plan)
    raise NotPlain(f"it reads {kind}, no files")


def _require_columns(project: Any) -> None:
    for column in _each(project.projectList()):
        kind = column.getClass().getSimpleName()
        if kind != "AttributeReference":
            raise NotPlain(f"a column is computed: {column.sql()}")


def _of_relation(spark: SparkSession, leaf: Any) -> Scan:
    """A batch DataFrame's files."""
    relation = leaf.relation()
    if relation.getClass().getSimpleName() != "HadoopFsRelation":
        raise NotPlain("it reads no files")
    if relation.location().getClass().getSimpleName() != "InMemoryFileIndex":
        raise NotPlain("it reads a table")
    paths = [str(path.toString()) for path in _each(relation.location().rootPaths())]
    return _scan(spark, str(relation.fileFormat().toString()), paths, _dict(relation.options()))


def scan_of_stream(spark: SparkSession, leaf: Any) -> Scan:
    """The folder of a `StreamingRelation`. Raises `NotPlain`."""
    source = leaf.dataSource()
    options = _dict(source.options())
    paths = [options["path"]] if "path" in options else []
    paths += [str(path) for path in _each(source.paths())]
    return _scan(spark, str(source.className()), paths, options)


def _scan(spark: SparkSession, format: str, paths: list[str], options: Mapping[str, str]) -> Scan:
    for name, usual in _USUAL.items():
        if str(spark.conf.get(name, usual)).lower() != usual.lower():
            raise NotPlain(f"{name} is set")
    if format.lower() != "parquet":
        raise NotPlain(f"its format is {format}")
    if len(paths) != 1:
        raise NotPlain("it reads several paths")
    if unknown := [name for name in options if name.lower() not in _OPTIONS]:
        raise NotPlain(f"its reader has the option {unknown[0]}")
    if set(paths[0]) & set("*?[{"):
        raise NotPlain("its path is a glob")
    place = _local(spark, paths[0])
    if os.path.exists(os.path.join(place, "_spark_metadata")):
        raise NotPlain("Spark keeps a list of the folder's files")
    given = {name.lower(): value for name, value in options.items()}
    return Scan(place, int(given.get("maxfilespertrigger", _FILES_MAX)))


def _local(spark: SparkSession, path: str) -> str:
    """The local folder that Spark takes a path for: it is no URL, so `%` and `#` are themselves."""
    jvm: Any = spark._jvm
    named = jvm.org.apache.hadoop.fs.Path(path)
    system = named.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())
    found = system.makeQualified(named).toUri()
    if found.getScheme() != "file":
        raise NotPlain(f"it reads from {found.getScheme()}")
    return str(found.getPath())


def require_exact(df: DataFrame, place: str, schema: pa.Schema) -> None:
    """Raise `NotPlain` unless pyarrow gives of these files what Spark gives, as far as is known."""
    try:
        listed = [found.file for found in list_files(place)]
    except UserFileError as error:
        raise NotPlain(str(error)) from None
    if not df.isStreaming:
        given = {unquote(urlsplit(url).path) for url in df.inputFiles()}
        if given != {file.path for file in listed}:
            raise NotPlain("its folder holds other files by now")
    for name in partition_of(f"{place}/"):
        if name in schema.names:
            raise NotPlain(f"its path names the column {name}")
    for file in listed[:1]:
        named = partition_of(file.path)
        if reason := why_not_of_folders(named, schema):
            raise NotPlain(reason)
        if reason := why_not_exact(file, [f for f in schema if f.name not in named]):
            raise NotPlain(reason)


def _each(found: Any) -> list[Any]:
    """What a sequence of Scala's holds."""
    return [found.apply(number) for number in range(found.size())]


def _dict(found: Any) -> dict[str, str]:
    """What a map of Scala's holds."""
    keys = found.keys().toSeq()
    return {str(key): str(found.apply(key)) for key in _each(keys)}
