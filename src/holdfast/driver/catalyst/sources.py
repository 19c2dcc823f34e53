"""The sources of a DataFrame's plan: files that Holdfast reads itself, and all others by Spark."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from holdfast.api.steps import FromFiles
from holdfast.driver.catalyst.expressions import untranslatable
from holdfast.driver.catalyst.trees import Plan, frame_of
from holdfast.driver.scans import NotPlain, Scan, require_exact, scan_of_stream
from holdfast.driver.schemas import schema_from_spark
from holdfast.driver.user_files import default_name
from holdfast.errors import DataflowError
from holdfast.shell.spark.watermarks import watermarks_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from holdfast.api.dataflow import Dataflow
    from holdfast.api.streams import Stream

_NEVER_LATE: Final = "36500 days"
"""A delay by which no row is late: operators without state keep every row, in Spark too."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A watermark further up: the number of its column, and its delay."""

    column: int
    delay_us: int


def is_marked(plan: Plan, column: int, *, none: int = 0) -> int:
    """The delay of the watermark that a column of a plan has, in microseconds; else `none`."""
    from pyspark.sql.types import StructType

    schema = StructType.fromJson(json.loads(plan.java.schema().json()))
    own = schema.fields[plan.output_ids.index(column)]
    return next((mark.delay_us for mark in watermarks_of(StructType([own]))), none)


def files_below(spark: SparkSession, plan: Plan) -> Scan:
    """The files of a source. Raises `UnsupportedError` if Spark should read it."""
    if plan.kind != "StreamingRelation":
        raise untranslatable(str(plan.fields["sourceName"]), "Spark reads it")
    try:
        scan = scan_of_stream(spark, plan.java)
        frame = frame_of(spark, plan.java)
        require_exact(frame, scan, schema_from_spark(frame.schema))
    except NotPlain as error:
        raise untranslatable("files", f"{error}, so Spark reads them") from None
    return scan


def read_files(
    flow: Dataflow,
    scan: Scan,
    schema: StructType,
    time: str | None,
    delay_us: int | None,
    trigger: Mapping[str, Any] | None,
) -> tuple[Stream, int]:
    """A source of files that must be what Spark reads, and the place of its time column.

    Args:
        flow: Whose source it becomes.
        scan: Which files.
        schema: Their columns.
        time: The column with the event time; None: there is no watermark.
        delay_us: How late a row may be; None: however late it is, it is kept.
        trigger: As of `Dataflow.source_files`.
    """
    time = _timestamp(schema) if time is None else time
    is_bounded = trigger is not None and "availableNow" in trigger
    stream = flow.source_files(
        scan.place,
        format=scan.of.name,
        time=time,
        schema=schema,
        name=flow.unique_name(default_name(scan.place)),
        delay=_delay(delay_us),
        ahead=None,
        trigger=trigger if is_bounded else None,
    )
    operation = stream.step.operation
    assert isinstance(operation, FromFiles)
    meta = replace(operation.files.meta, user_files=scan.of)
    files = replace(operation.files, meta=meta, files_max=scan.files_max)
    step = replace(stream.step, operation=replace(operation, files=files))
    flow.steps[-1] = step
    return replace(stream, step=step), schema.names.index(time)


def read_frame(
    flow: Dataflow, frame: DataFrame, trigger: Mapping[str, Any] | None, *, has_state: bool
) -> tuple[Stream, int]:
    """A source of rows that Spark writes into an ingest log, and the place of its time column."""
    known = [each.column for each in watermarks_of(frame.schema)]
    time = known[0] if len(known) == 1 else _timestamp(frame.schema)
    stream = flow.source(
        frame,
        name=flow.unique_name("spark"),
        time=time,
        delay=None if has_state and known else _NEVER_LATE,
        ahead=None,
        trigger=trigger,
    )
    return stream, frame.columns.index(time)


def _delay(delay_us: int | None) -> str | None:
    if delay_us is None:
        return _NEVER_LATE
    return f"{delay_us} microseconds" if delay_us else None


def _timestamp(schema: StructType) -> str:
    """The only column of timestamps."""
    found = [str(each.name) for each in schema.fields if each.dataType.typeName() == "timestamp"]
    if len(found) != 1:
        raise DataflowError(
            "from_dataframe: which column is the event time? Give the DataFrame one watermark: "
            f"df.withWatermark(column, delay); columns of timestamps are {', '.join(found) or '-'}"
        )
    return found[0]
