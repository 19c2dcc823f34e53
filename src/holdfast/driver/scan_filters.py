"""Which filters of a DataFrame's files Holdfast computes exactly as Spark, and with which effect.

A filter's text is used only if Spark reads it as the very filter that it has analysed, and Holdfast
compiles it (`catalyst/expressions.py`). Rows that it leaves out were read, though: they move time,
and one without a time is a bad row. So

- a stream's filter reads the column of a watermark below it, in each of its parts. Spark moves any
  other part below the watermark, where the rows that it leaves out do not move time;
- the time of no row is null in the files that there are;
- it reads no column that folders name: Spark does not even open the files of other folders.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.api.expressions import CompiledExpression, compile_expression
from holdfast.api.steps import Loop
from holdfast.core.model.column_names import quoted
from holdfast.driver.catalyst.expressions import require_same, text_of
from holdfast.driver.catalyst.settings import unmet
from holdfast.driver.catalyst.trees import frame_of
from holdfast.driver.scans import NotPlain, files_in
from holdfast.driver.schemas import schema_from_spark
from holdfast.errors import DataflowError, UnsupportedError
from holdfast.shell.storage.exact_files import has_null
from holdfast.shell.storage.user_files import UserFileError, partition_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from holdfast.api.graph import Graph
    from holdfast.api.steps import FromFrame
    from holdfast.core.queues.recording import UserFile
    from holdfast.driver.catalyst.trees import Expression, Plan
    from holdfast.driver.scans import Scan
    from holdfast.shell.storage.user_rows import FilesFormat


def conditions_of(
    frame: FromFrame, scan: Scan, flow: Graph, *, is_begun: bool
) -> list[CompiledExpression]:
    """The filters of a scan over the columns of its files, the lowest first.

    Args:
        frame: The DataFrame as a source.
        scan: What it scans.
        flow: Its dataflow.
        is_begun: Whether its location was begun so: then its files are known to do.

    Raises:
        NotPlain: Spark has to compute one of them.
    """
    assert scan.leaf is not None
    spark = frame.df.sparkSession
    if (found := unmet(spark)) is not None:
        raise NotPlain(f"it has a filter, and the session not {found[0]}")
    if any(isinstance(step.operation, Loop) for step in flow.steps):
        raise NotPlain("it has a filter, and the dataflow has a loop")
    below = frame_of(spark, scan.leaf.java)
    names = dict(zip(scan.leaf.output_ids, below.columns, strict=True))
    try:
        schema = schema_from_spark(below.schema)
        made = [_compiled(spark, each.condition, scan.leaf, names, schema) for each in scan.filters]
    except (UnsupportedError, DataflowError) as error:
        raise NotPlain(
            f"its filter is Spark's: {str(error).removeprefix('from_dataframe: ')}"
        ) from None
    if frame.df.isStreaming:
        _require_marked(frame, scan)
    if not is_begun:
        read = [name for each in made for name in each.columns]
        _require_files(frame, scan, read, schema.field(frame.time))
    return made


def _compiled(
    spark: SparkSession,
    condition: Expression,
    leaf: Plan,
    names: dict[int, str],
    schema: pa.Schema,
) -> CompiledExpression:
    def written(tree: Expression) -> str | None:
        is_column = tree.kind == "AttributeReference" and tree.id in names
        return quoted(names[tree.id]) if is_column else None

    require_same(spark, leaf.java, condition)
    return compile_expression(text_of(condition, written), schema)


def _require_marked(frame: FromFrame, scan: Scan) -> None:
    """Raise `NotPlain` unless all parts of a stream's filters stay above its watermark."""
    assert scan.leaf is not None
    for each in scan.filters:
        parts = list(_parts(each.condition))
        is_above = all(_reads(part, frame.time) for part in parts)
        if not (frame.has_watermark and each.is_marked and is_above):
            raise NotPlain(
                "it is a stream whose filter decides which rows move time; "
                "filter what flow.source gives instead"
            )


def _reads(tree: Expression, column: str) -> bool:
    return any(each.kind == "AttributeReference" and each.name == column for each in tree.all())


def _parts(condition: Expression) -> Iterator[Expression]:
    """What an AND connects."""
    if condition.kind != "And":
        yield condition
        return
    for child in condition.children:
        yield from _parts(child)


def _require_files(frame: FromFrame, scan: Scan, columns: list[str], time: pa.Field) -> None:
    """Raise `NotPlain` if folders name a column that a filter reads, or a time may be null."""
    for file in (file for place in scan.places for file in files_in(place)):
        if named := [name for name in partition_of(file.path) if name in columns]:
            raise NotPlain(f"its filter reads {named[0]}, which folders name")
        if _has_null(file, scan.of, time):
            raise NotPlain(f"it has a filter, and {frame.time} is null in {file.path}")


def _has_null(file: UserFile, of: FilesFormat, time: pa.Field) -> bool:
    try:
        return has_null(file, of, time)
    except UserFileError as error:
        raise NotPlain(str(error)) from None
