"""The batch twin: a dataflow as a Spark SQL query over its recorded inputs.

The twin shares no code with the operators: it is written in Spark's own functions, so that the two
can check each other. Every DataFrame carries the tuple time in `__time_us`, and, as long as the
order of its rows is known, what sorts them: `__order`, their place in what the unit takes in, and
`__ties`, the ports of the unions on their way in the unit, last one first. Results may depend on
it, and sinks are compared in it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from pyspark.sql import Window as SqlWindow
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from holdfast.api import steps
from holdfast.api.dead_letters import Evaluable, Failure
from holdfast.api.steps import (
    FromFiles,
    FromFrame,
    FromGenerator,
    FromKafka,
    FromLog,
    Source,
    Step,
)
from holdfast.api.windows import CountWindow, SessionWindow, Window
from holdfast.core.model.column_names import quoted
from holdfast.core.model.tuples import TIME_COLUMN
from holdfast.core.operators.collected import COLLECTING
from holdfast.driver.changelog_twin import changes_of_all
from holdfast.driver.collected_twin import collected
from holdfast.driver.function_twin import applied
from holdfast.driver.join_twin import interval_join, join_of_all, window_join
from holdfast.driver.loop_twin import looped
from holdfast.driver.process_twin import processed
from holdfast.driver.resample_twin import resampled
from holdfast.driver.spark_functions import called_by, register
from holdfast.errors import UnsupportedError
from holdfast.planning.units import keys_read, ports_read, units_of
from holdfast.shell.spark.small_logs import load_now
from holdfast.shell.storage.paths import ingest_path

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from holdfast.api.graph import Graph


ORDER = ("__order", "__ties")


def to_dataframe(flow: Graph, spark: SparkSession, sink: str, location: str) -> DataFrame:
    """The twin of one sink. The session's time zone must be UTC."""
    return ordered(flow, spark, sink, location).drop(TIME_COLUMN, *ORDER)


def ordered(flow: Graph, spark: SparkSession, sink: str, location: str) -> DataFrame:
    """The twin with the columns that it carries."""
    if spark.conf.get("spark.sql.session.timeZone") not in ("UTC", "Etc/UTC", "GMT"):
        raise UnsupportedError(
            "the session's time zone must be UTC: set spark.sql.session.timeZone=UTC"
        )
    ports = {unit: ports_read(members) for unit, members in units_of(flow).items()}
    return _twin(flow.sinks[sink], _Recorded(spark, location, ports))


@dataclass(frozen=True, slots=True)
class _Recorded:
    """What steps read.

    Attributes:
        spark: The session.
        location: The checkpoint location.
        ports: Per unit what it reads, port by port.
        loops: By name what is in loops that are being evaluated.
    """

    spark: SparkSession
    location: str
    ports: dict[str, list[tuple[Step, tuple[str, ...]]]]
    loops: dict[str, DataFrame] = field(default_factory=dict)

    def taken_in(
        self, frame: DataFrame, unit: str, port: tuple[Step, tuple[str, ...]]
    ) -> DataFrame:
        """Rows as they come to a port: those of one stream as they are, of several by time."""
        if not has_order(frame):
            return frame
        order = F.concat("__order", "__ties")
        ports = self.ports[unit]
        if len(ports) > 1:
            order = F.concat(_longs(F.col(TIME_COLUMN), F.lit(ports.index(port))), order)
        return frame.withColumn("__order", order).withColumn("__ties", _longs())


def _longs(*values: Any) -> Any:
    """A column of arrays of whole numbers, which Spark sorts by their elements."""
    return F.array(*values).cast("array<bigint>")


def has_order(frame: DataFrame) -> bool:
    """Whether the order of a twin's rows is known."""
    return "__order" in frame.columns


def _carried(frame: DataFrame) -> list[str]:
    """The columns beside the attributes that a stateless step hands on."""
    return [TIME_COLUMN, *(column for column in ORDER if column in frame.columns)]


def _looped(loop: Step, recorded: _Recorded) -> DataFrame:
    """What is in a loop; of the lap before, while one is evaluated."""
    (into,), (back,) = loop.inputs, loop.feedback

    def came_back(present: DataFrame) -> DataFrame:
        within = replace(recorded, loops={**recorded.loops, loop.name: present})
        return _twin(back, within).drop(*ORDER)

    if loop.name in recorded.loops:
        return recorded.loops[loop.name]
    return looped(_twin(into, recorded).drop(*ORDER), came_back)


def _twin(step: Step, recorded: _Recorded) -> DataFrame:
    if isinstance(step.operation, steps.Loop):
        return _looped(step, recorded)
    inputs = [_twin(source, recorded) for source in step.inputs]
    for position, source in enumerate(step.inputs):
        if source.unit != step.unit:
            port = source, keys_read(step, position)
            inputs[position] = recorded.taken_in(inputs[position], step.unit, port)
    match step.operation:
        case FromFrame() | FromFiles() | FromLog() | FromGenerator() | FromKafka():
            rows = _source(step, recorded.spark, recorded.location)
            return recorded.taken_in(rows, step.unit, (step, ()))
        case steps.Filter(expression=Evaluable() as condition):
            return _by_evaluation(inputs[0], condition)
        case steps.Filter(expression):
            register(recorded.spark, called_by(expression))
            return inputs[0].where(expression.sql)
        case steps.Select(expressions=(*_, Failure() as failure)):
            return _explained(inputs[0], failure)
        case steps.Select(expressions):
            register(recorded.spark, called_by(*expressions))
            columns = [F.expr(e.sql).alias(e.name) for e in expressions]
            return inputs[0].select(*columns, *_carried(inputs[0]))
        case steps.Apply(function):
            return applied(
                step.name, function, inputs[0], step.inputs[0].schema, _carried(inputs[0])
            )
        case steps.Sample():
            raise UnsupportedError(f"{step.name}: no batch twin: what a sample keeps is chance")
        case steps.Union() as union:
            return _union(inputs, union.is_by_arrival)
        case steps.Process() as process:
            return processed(step.name, process, inputs[0], step.inputs[0].schema, ORDER)
        case steps.Distinct() as distinct:
            return _distinct(step.name, distinct, inputs[0])
        case steps.Sort():
            return inputs[0].drop(*ORDER)  # The same rows, but in another order.
        case steps.Resample() as resample:
            return resampled(resample, step.inputs, inputs)
        case steps.RunningAggregate() as running:
            if running.presence is not None:
                return _changes_of_all(step.name, running, running.presence, inputs[0])
            return _running_of_all(step.name, running, inputs[0])
        case steps.WindowAggregate() as aggregate:
            return _aggregate(step.name, aggregate, inputs[0])
        case steps.WindowJoin() | steps.RunningJoin() as join:
            return window_join(join, inputs[0], inputs[1])
        case steps.IntervalJoin() as join:
            return interval_join(join, inputs[0], inputs[1])
        case steps.IncrementalJoin() as join:
            return join_of_all(join, inputs[0], inputs[1])
        case steps.PartialAggregate():
            raise AssertionError("a dataflow as it was written has no parts")


def _by_evaluation(frame: DataFrame, condition: Evaluable) -> DataFrame:
    """Spark SQL cannot ask whether an expression has a value; everything else here is its own."""

    def split(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch.filter(condition.evaluate(batch))

    return frame.mapInArrow(split, frame.schema)


def _explained(frame: DataFrame, failure: Failure) -> DataFrame:
    def explain(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch.append_column(failure.name, failure.evaluate(batch))

    schema = StructType([*frame.schema.fields, StructField(failure.name, StringType())])
    return frame.mapInArrow(explain, schema)


def _union(inputs: list[DataFrame], is_by_arrival: bool) -> DataFrame:
    """All rows; where they come in a known order, a row that comes on several ports does so once on
    each, one after the other.
    """
    if is_by_arrival or not all(map(has_order, inputs)):
        inputs = [frame.drop(*ORDER) for frame in inputs]
    else:
        inputs = [
            frame.withColumn("__ties", F.concat(_longs(F.lit(port)), "__ties"))
            for port, frame in enumerate(inputs)
        ]
    whole = inputs[0]
    for other in inputs[1:]:
        whole = whole.unionByName(other)
    return whole


def _source(step: Step, spark: SparkSession, location: str) -> DataFrame:
    match step.operation:
        case FromGenerator(generator=generator):
            frame: DataFrame = generator.to_dataframe(spark)
            return frame
        case FromKafka():
            path = os.path.join(location, "kafka", step.name)
            return _timed(step, load_now(spark, path, metadata="true"))
        case _:
            # As many partitions as the nodes read: what is late depends on the order within each.
            partitions = str(partitions_of(step))
            path = log_of(step, location)
            return _timed(step, load_now(spark, path, metadata="true", partitions=partitions))


def log_of(step: Step, location: str) -> str:
    """The ingest log that a source is read from."""
    source = step.operation
    return source.path if isinstance(source, FromLog) else ingest_path(location, step.name)


def partitions_of(step: Step) -> int:
    """How many partitions a source is read in."""
    assert isinstance(step.operation, Source)
    return step.operation.partitions


def _timed(step: Step, frame: DataFrame) -> DataFrame:
    time_us = F.unix_micros(F.col("_time")).alias(TIME_COLUMN)
    rows = frame.select("*", time_us)
    if partitions_of(step) == 1:
        rows = rows.withColumn("__order", _longs(F.col("_tuple_id"))).withColumn("__ties", _longs())
    return rows.select(*(F.col(quoted(c)) for c in step.schema.names), *_carried(rows))


def _windows(size_us: int, slide_us: int, origin_us: Any) -> Any:
    """The starts of all windows that hold a tuple, newest last."""
    time_us = F.col(TIME_COLUMN)
    last = time_us - F.pmod(time_us - origin_us, F.lit(slide_us))
    steps = -(-size_us // slide_us)
    starts = F.array(*(last - F.lit(i * slide_us) for i in reversed(range(steps))))
    if size_us % slide_us:
        starts = F.filter(starts, lambda start: start + F.lit(size_us) > time_us)
    return F.explode(starts)


def _aggregate(name: str, of: steps.WindowAggregate, frame: DataFrame) -> DataFrame:
    windows, keys = of.windows, _keys(of)
    if windows.timeout_us is not None:
        raise UnsupportedError(
            f"{name}: no batch twin: its windows close by a timeout of processing time"
        )
    if isinstance(windows, CountWindow):
        return _counted(name, of, windows, frame)
    if isinstance(windows, SessionWindow):
        return _sessions(name, of, windows, frame)
    if windows.time == "processing":
        raise UnsupportedError(
            f"{name}: no batch twin: its windows are of processing time, which is not recorded"
        )
    origin_us: Any = F.lit(0)
    if windows.alignment == "first":
        order = _order_of_arrival(name, frame)
        over = SqlWindow.partitionBy(*keys).orderBy(*order)
        over = over.rowsBetween(SqlWindow.unboundedPreceding, SqlWindow.unboundedFollowing)
        frame = frame.withColumn("__origin", F.first(TIME_COLUMN).over(over))
        origin_us = F.col("__origin")
    starts = _windows(windows.size_us, windows.slide_us, origin_us)
    placed = frame.withColumn("__start", starts)
    if of.emit == "changes":
        return _running(name, of, windows, placed)
    grouped = placed.groupBy("__start", *keys).agg(*_results(name, of, placed))
    return _windowed(of, windows, grouped, None)


def _keys(of: steps.WindowAggregate | steps.RunningAggregate) -> list[str]:
    return [quoted(key) for key in of.keys]


def _results(name: str, of: steps.WindowAggregate, frame: DataFrame) -> list[Any]:
    """The aggregates; those of the first row and of the last one need to know which that is."""
    return [_result(name, a, frame).alias(a.name) for a in of.aggregates]


def _result(name: str, of: steps.Aggregate, frame: DataFrame) -> Any:
    if of.function in COLLECTING:
        order = _order_of_arrival(name, frame) if of.function == "collect_list" else None
        return collected(of, order=order)
    function, _, kind = of.function.partition("_")
    if function not in ("first", "last"):
        return F.expr(of.sql)
    assert of.expression is not None
    value = F.expr(of.expression.sql)
    place = F.struct(*_order_of_arrival(name, frame))
    if kind == "valid":
        place = F.when(value.isNotNull(), place)
    return (F.min_by if function == "first" else F.max_by)(value, place)


def _order_of_arrival(name: str, frame: DataFrame) -> list[Any]:
    """Columns that sort the operator's input as it came."""
    if not has_order(frame):
        raise UnsupportedError(
            f"{name}: its results depend on the order of the input, which is known for "
            "recorded sources of one partition alone"
        )
    return [F.col(column) for column in ORDER]


def _counted(
    name: str, of: steps.WindowAggregate, windows: CountWindow, frame: DataFrame
) -> DataFrame:
    """Windows of so many tuples of a key, or of the stream."""
    keys = _keys(of)
    size, advance = F.lit(windows.size), F.lit(windows.advance)
    is_stream = windows.alignment == "stream"
    own = [] if is_stream else keys
    order = _order_of_arrival(name, frame)
    over = SqlWindow.partitionBy(*own).orderBy(*order)
    at = F.col("__at")
    first = F.greatest(F.lit(0), F.floor((at - size) / advance) + 1)
    placed = frame.withColumn("__at", F.row_number().over(over).cast("bigint") - 1).withColumn(
        "__window", F.explode(F.sequence(first, F.floor(at / advance)))
    )
    whole = SqlWindow.partitionBy(*own, "__window")
    placed = placed.withColumn("__size", F.count(F.lit(1)).over(whole))
    placed = placed.withColumn("__closed_us", F.max_by(TIME_COLUMN, "__at").over(whole))
    grouped = (
        placed.where(F.col("__size") == size)
        .groupBy("__window", *keys)
        .agg(
            F.min(TIME_COLUMN).alias("__earliest"),
            F.max(TIME_COLUMN).alias("__latest"),
            F.first("__closed_us").alias("__closed_us"),
            *_results(name, of, placed),
        )
    )
    first_id = F.col("__window") * advance
    edges = [
        F.timestamp_micros("__earliest").alias("window_start"),
        F.timestamp_micros("__latest").alias("window_end"),
    ]
    if is_stream:
        edges = [first_id.alias("first_id"), (first_id + size).alias("next_id")]
    names = (quoted(a.name) for a in of.aggregates)
    return grouped.select(*edges, *keys, *names, F.col("__closed_us").alias(TIME_COLUMN))


def _sessions(
    name: str, of: steps.WindowAggregate, windows: SessionWindow, frame: DataFrame
) -> DataFrame:
    """By Spark's own `session_window`."""
    at = F.timestamp_micros(TIME_COLUMN)
    gaps = F.session_window(at, f"{windows.gap_us} microseconds").alias("__session")
    grouped = frame.groupBy(gaps, *_keys(of)).agg(*_results(name, of, frame))
    return grouped.select(
        F.col("__session.start").alias("window_start"),
        F.col("__session.end").alias("window_end"),
        *_keys(of),
        *(quoted(a.name) for a in of.aggregates),
        F.unix_micros(F.col("__session.end")).alias(TIME_COLUMN),
    )


def _running(name: str, of: steps.WindowAggregate, windows: Window, placed: DataFrame) -> DataFrame:
    """The result after each tuple."""
    results = _after_each(name, of, placed, ["__start", *_keys(of)])
    rows = placed.select("__start", *_keys(of), *results, TIME_COLUMN)
    return _windowed(of, windows, rows, F.col(TIME_COLUMN))


def _running_of_all(name: str, of: steps.RunningAggregate, frame: DataFrame) -> DataFrame:
    results = _after_each(name, of, frame, _keys(of))
    return frame.select(*_keys(of), *results, TIME_COLUMN)


def _changes_of_all(
    name: str, of: steps.RunningAggregate, presence: steps.Aggregate, frame: DataFrame
) -> DataFrame:
    keys, order = _keys(of), _order_of_arrival(name, frame)
    every = replace(of, aggregates=(*of.aggregates, presence), presence=None)
    *results, is_there = _after_each(name, every, frame, keys, order)
    return changes_of_all(keys, frame, results, is_there, order)


def _after_each(
    name: str,
    of: steps.WindowAggregate | steps.RunningAggregate,
    frame: DataFrame,
    groups: list[str],
    order: list[Any] | None = None,
) -> list[Any]:
    """Results over the rows of a group so far. That of count(*) is the same in whatever order."""
    if order is None:
        is_alike = all(a.sql == "count(*)" for a in of.aggregates)
        order = [F.col(TIME_COLUMN)] if is_alike else _order_of_arrival(name, frame)
    over = SqlWindow.partitionBy(*groups).orderBy(*order)
    over = over.rowsBetween(SqlWindow.unboundedPreceding, SqlWindow.currentRow)
    return [
        (collected(a, over) if a.function in COLLECTING else F.expr(a.sql).over(over)).alias(a.name)
        for a in of.aggregates
    ]


def _windowed(
    of: steps.WindowAggregate, windows: Window, frame: DataFrame, time_us: Any
) -> DataFrame:
    """Attributes as the operator gives them; by default a result's time is its window's end."""
    end_us = F.col("__start") + F.lit(windows.size_us)
    return frame.select(
        F.timestamp_micros("__start").alias("window_start"),
        F.timestamp_micros(end_us).alias("window_end"),
        *_keys(of),
        *(quoted(a.name) for a in of.aggregates),
        (end_us - 1 if time_us is None else time_us).alias(TIME_COLUMN),
    )


def _distinct(name: str, of: steps.Distinct, frame: DataFrame) -> DataFrame:
    """The first of each key as the rows came, and then the first one that is no copy of it."""
    keys = [quoted(key) for key in of.keys]
    if of.is_of_one_time:
        keys.append(TIME_COLUMN)
    order = _order_of_arrival(name, frame)
    if not of.within_us:
        over = SqlWindow.partitionBy(*keys).orderBy(*order)
        numbered = frame.withColumn("__number", F.row_number().over(over))
        return numbered.where("__number = 1").drop("__number")
    within_us = of.within_us
    row = F.struct(*(F.col(quoted(column)) for column in frame.columns))
    placed = F.struct(*order, F.col(TIME_COLUMN).alias("at"), row.alias("row"))
    rows = F.array_sort(F.collect_list(placed))
    grouped = frame.groupBy(*keys).agg(rows.alias("__rows"))
    none = F.filter("__rows", lambda _: F.lit(False))
    begin = F.struct(none.alias("kept"), F.lit(-(2**63)).alias("until"))

    def taken(so_far: Any, row: Any) -> Any:
        kept = F.concat(so_far["kept"], F.array(row)).alias("kept")
        with_it = F.struct(kept, (row["at"] + F.lit(within_us)).alias("until"))
        return F.when(row["at"] >= so_far["until"], with_it).otherwise(so_far)

    kept = F.aggregate("__rows", begin, taken, lambda found: found["kept"])
    return grouped.select(F.explode(kept).alias("__kept")).select("__kept.row.*")
