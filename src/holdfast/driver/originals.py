"""What the user gave, read again, and compared with what was recorded of it.

The batch twin begins behind the recording, and cannot see what went wrong on the way into it. A
batch DataFrame is just computed again. A streaming one is read again by Spark, from its beginning
to the offsets of the last batch that was recorded: a query of its own has those as the offsets of
its first batch, beside a copy of what the sources of the recording query have noted, as the list
of files that they have read. So files that came later do not count.
"""

from __future__ import annotations

import json
import os
import tempfile
import uuid
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from holdfast.api.steps import (
    FromFiles,
    FromFrame,
    FromGenerator,
    FromKafka,
    FromLog,
    Source,
    Step,
)
from holdfast.core.model.column_names import quoted
from holdfast.driver.comparable import comparable
from holdfast.driver.kept_part import beginning_at, removed_text
from holdfast.errors import QueryFailedError
from holdfast.shell.spark.active_session import active_session
from holdfast.shell.spark.arrow_schemas import from_arrow_schema
from holdfast.shell.spark.data_source import load
from holdfast.shell.spark.reasons import reason_of
from holdfast.shell.storage.commit_counting import CommitFinder, user_files_of
from holdfast.shell.storage.exact_texts import COLUMNS, columns_of
from holdfast.shell.storage.ingest_log import IngestMeta, read_meta
from holdfast.shell.storage.paths import ingest_path
from holdfast.shell.storage.places import has_files, is_remote, store_at
from holdfast.shell.storage.user_files import partition_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from holdfast.shell.sources.file_recorder import FilesSource
    from holdfast.shell.storage.user_rows import FilesFormat

_WITH_COLUMNS = ("parquet", "orc")


@dataclass(frozen=True, slots=True)
class InputCheck:
    """What comparing the recording of a source with what the user gave has shown.

    Attributes:
        source: The source.
        compared_with: `original`, or `recorded` where that cannot be read again: then the recording
            is taken for what was given.
        reason: Why it cannot be read again; empty: it was.
        given: Rows that the user gave.
        recorded: Rows that were recorded, late ones included.
        lost: Rows given that were not recorded, copies counted.
        doubled: Rows recorded that were not given, copies counted.
    """

    source: str
    compared_with: str
    reason: str = ""
    given: int = 0
    recorded: int = 0
    lost: int = 0
    doubled: int = 0


def check_input(step: Step, spark: SparkSession, location: str) -> InputCheck:
    """Compare the recording of a source with what the user gave.

    Raises:
        QueryFailedError: Spark cannot read it again, e.g. because files are gone.
    """
    beginning = beginning_at(ingest_path(location, step.name))
    if beginning is not None:
        reason = f"{removed_text(beginning)} were removed, as retention asks for"
        return InputCheck(step.name, "recorded", reason)
    try:
        match step.operation:
            case FromGenerator() | FromLog():
                return InputCheck(step.name, "original")  # The twin reads the very same.
            case FromKafka():
                return InputCheck(step.name, "recorded", "records of Kafka are not read again")
            case FromFiles(files=files):
                return _check_files(files, step, spark, location)
            case FromFrame(df=df):
                return _check_frame(df, step, spark, location)
            case _:
                raise AssertionError(f"{step.name} is no source")
    except Exception as error:  # Spark's errors have many classes.
        raise QueryFailedError(
            f"source {step.name} cannot be read again: {reason_of(error)}"
        ) from error


def _check_files(files: FilesSource, step: Step, spark: SparkSession, location: str) -> InputCheck:
    if reason := _unreadable(files):
        return InputCheck(step.name, "recorded", reason)
    given = _files_again(files.meta, spark, ingest_path(location, step.name))
    return _compared(step, given, _recorded(step, spark, location))


def _check_frame(df: DataFrame, step: Step, spark: SparkSession, location: str) -> InputCheck:
    compared: list[InputCheck] = []

    def compare(given: DataFrame) -> None:
        compared.append(_compared(step, given, _recorded(step, spark, location)))

    log = ingest_path(location, step.name)
    if not df.isStreaming:
        compare(df)
    elif has_files(log) and (meta := read_meta(log)).user_files is not None:
        compare(_files_again(meta, spark, log))  # Nodes have read them, not Spark.
    elif reason := _read_again(df, spark, location, step.name, compare):
        return InputCheck(step.name, "recorded", reason)
    return compared[0]


def _recorded(step: Step, spark: SparkSession, location: str) -> DataFrame:
    """All rows of a recording, late ones too."""
    assert isinstance(step.operation, Source)
    path, partitions = ingest_path(location, step.name), str(step.operation.partitions)
    parts = [load(spark, path, partitions=partitions, late=late) for late in ("false", "true")]
    return reduce(DataFrame.unionByName, parts)


def _unreadable(source: FilesSource) -> str:
    """Why Spark cannot read the files by itself; empty: it can."""
    of = source.meta.user_files
    assert of is not None
    if of.name == "arrow":
        return "Spark has no reader of Arrow files"
    if of.has_dead_letters:
        return "Spark makes something else of bad rows"
    return "Spark knows a URL of fsspec by another name" if is_remote(source.place) else ""


def _files_again(meta: IngestMeta, spark: SparkSession, log: str) -> DataFrame:
    """What Spark's own reader gives of the files that a log names."""
    of, schema = meta.user_files, meta.schema
    assert of is not None
    folders: dict[tuple[tuple[str, str | None], ...], list[str]] = {}
    for file in user_files_of(log):
        folders.setdefault(tuple(partition_of(file.path).items()), []).append(file.path)
    whole = spark.createDataFrame([], from_arrow_schema(schema))
    for named, paths in folders.items():
        options = {name: value for name, value in of.options if name != COLUMNS}
        reader = spark.read.options(**options).option("mergeSchema", "true")
        if of.name not in _WITH_COLUMNS:
            own = [field for field in _all_columns(of, schema) if field.name not in dict(named)]
            reader = reader.schema(from_arrow_schema(pa.schema(own)))
        rows = reader.format(of.name).load([f"file://{path}" for path in paths])
        for name, value in named:
            rows = rows.withColumn(name, F.lit(value))
        kinds = {field.name: field.dataType for field in whole.schema}
        whole = whole.unionByName(
            rows.select(
                *(
                    (F.col(quoted(name)) if name in rows.columns else F.lit(None))
                    .cast(kinds[name])
                    .alias(name)
                    for name in schema.names
                )
            )
        )
    return whole


def _all_columns(of: FilesFormat, schema: pa.Schema) -> list[pa.Field]:
    """The columns of a text; a CSV whose columns are known by their places has unread ones, too."""
    named = of.option(COLUMNS, "")
    if not named:
        return list(schema)
    return [
        schema.field(name) if name in schema.names else pa.field(name, pa.string())
        for name in columns_of(named)
    ]


def _compared(step: Step, given: DataFrame, recorded: DataFrame) -> InputCheck:
    columns = [F.col(quoted(name)) for name in step.schema.names]
    given, recorded = (comparable(each.select(*columns)) for each in (given, recorded))
    lost, doubled = given.exceptAll(recorded), recorded.exceptAll(given)
    counts = [frame.count() for frame in (given, recorded, lost, doubled)]
    return InputCheck(step.name, "original", "", *counts)


def _read_again(
    df: DataFrame,
    spark: SparkSession,
    location: str,
    source: str,
    compare: Callable[[DataFrame], None],
) -> str:
    """Have Spark read a streaming DataFrame again, in one batch; or why that cannot be."""
    checkpoint = store_at(os.path.join(location, "ingest-checkpoints", source))
    if "state" in checkpoint.children():
        return "its own operators in Spark keep state, whose results depend on the batches"
    newest = CommitFinder(ingest_path(location, source)).newest()
    if newest < 0:
        return "nothing was recorded"
    with tempfile.TemporaryDirectory(prefix="holdfast-verify-") as folder:
        _put(folder, "metadata", json.dumps({"id": str(uuid.uuid4())}).encode())
        _put(folder, "offsets/0", checkpoint.read(f"offsets/{newest}"))
        noted = store_at(os.path.join(location, "ingest-checkpoints", source, "sources"))
        for name in noted.names():
            _put(folder, f"sources/{name}", noted.read(name))
        with active_session(spark):
            writer: Any = df.writeStream.foreachBatch(lambda batch, _: compare(batch))
            writer = writer.option("checkpointLocation", f"file://{folder}").trigger(once=True)
            writer.start().awaitTermination()
    return ""


def _put(folder: str, name: str, content: bytes | memoryview) -> None:
    path = Path(folder, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
