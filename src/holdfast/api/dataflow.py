"""A dataflow: sources, operators, sinks. Building one does nothing; `start` runs it on Spark.

flow = Dataflow("bids")
bids = flow.source(df, name="bids", time="date_time")
counts = bids.key_by("bidder").window(tumbling("10 seconds")).aggregate("count(*) AS n")
counts.sink("counts")
query = flow.start(spark, checkpointLocation="/tmp/bids")
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from holdfast.api.dead_letters import ERROR_COLUMN, Evaluable, Failure
from holdfast.api.errors import DataflowError, UnsupportedError
from holdfast.api.expressions import CompiledExpression, compile_expression, compile_projection
from holdfast.api.operators import build_operator
from holdfast.core.errors import LocalProtocolError
from holdfast.core.state.page_manager import PageManager
from holdfast.shell.storage.paths import checked_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from holdfast.api.protections import Protection
    from holdfast.api.query import Query

_UNITS_US = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
    "week": 7 * 86_400_000_000,
}
_AGGREGATE = re.compile(r"^\s*(\w+)\s*\((.*)\)\s*(?:\s[aA][sS]\s+`?(\w+)`?)?\s*$", re.DOTALL)
AGGREGATE_FUNCTIONS = ("count", "sum", "min", "max", "avg")


def duration_us(text: str) -> int:
    """Microseconds of a duration as Spark writes it, e.g. `10 seconds`, `1 hour 30 minutes`.

    Raises:
        DataflowError: The text is no positive duration of fixed length.
    """
    total = 0
    words = text.split()
    if not words or len(words) % 2:
        raise DataflowError(f"{text!r} is no duration; write for example '10 seconds'")
    for number, unit in zip(words[::2], words[1::2], strict=True):
        factor = _UNITS_US.get(unit.lower().removesuffix("s"))
        if factor is None or not number.isdigit():
            raise DataflowError(
                f"{text!r} is no duration; units are {', '.join(_UNITS_US)}, numbers whole"
            )
        total += int(number) * factor
    if total <= 0:
        raise DataflowError(f"{text!r} is not positive")
    return total


@dataclass(frozen=True, slots=True)
class Window:
    """Windows of event time: `size_us` long, a new one every `slide_us`, aligned to the epoch."""

    size_us: int
    slide_us: int


def tumbling(size: str) -> Window:
    """Windows that follow each other, e.g. `tumbling("10 seconds")`."""
    return Window(duration_us(size), duration_us(size))


def sliding(size: str, slide: str) -> Window:
    """Windows that overlap. `size` must be a multiple of `slide`."""
    window = Window(duration_us(size), duration_us(slide))
    if window.size_us % window.slide_us:
        raise DataflowError(f"window size {size!r} is no multiple of its slide {slide!r}")
    return window


@dataclass(frozen=True, slots=True)
class Aggregate:
    """One aggregate: `function(expression) AS name`; the expression is None for `count(*)`."""

    function: str
    expression: CompiledExpression | None
    name: str
    sql: str


@dataclass(eq=False, slots=True)
class Step:
    """One vertex of the dataflow: a source or an operator.

    Attributes:
        kind: `source`, `filter`, `select`, `union`, `aggregate`, `window_join`, `join`.
        name: Unique in the dataflow.
        unit: The HA unit it belongs to.
        schema: Attributes of its output, without the time column.
        inputs: The steps it reads.
        settings: What its kind needs; see planning.py.
    """

    kind: str
    name: str
    unit: str
    schema: pa.Schema
    inputs: tuple[Step, ...] = ()
    settings: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Stream:
    """A stream of a dataflow; every method returns a new one."""

    flow: Dataflow
    step: Step
    keys: tuple[str, ...] = ()
    windows: Window | None = None
    next_unit: str | None = None

    @property
    def schema(self) -> pa.Schema:
        """The attributes, as an Arrow schema."""
        return self.step.schema

    def unit(self, name: str) -> Stream:
        """Put the operators that follow into the HA unit `name`."""
        return replace(self, next_unit=_checked(name))

    def filter(self, condition: str, *, dead_letters: str | None = None) -> Stream:
        """Keep the tuples for which the Spark SQL condition is true.

        Args:
            condition: A boolean expression.
            dead_letters: Name of a sink for tuples for which it has no value, e.g. because of a
                division by zero; without one, such a tuple fails the query.
        """
        compiled = compile_expression(condition, self.schema)
        if not pa.types.is_boolean(compiled.type):
            raise DataflowError(f"filter({condition!r}) is {compiled.type}, not boolean")
        good = self._divert([compiled], dead_letters)
        return good._then("filter", self.schema, expression=compiled)

    def select(self, *expressions: str, dead_letters: str | None = None) -> Stream:
        """Compute Spark SQL expressions, e.g. `select("auction", "price * 0.908 AS price")`.

        Args:
            expressions: `expression AS name`, columns, or `*` for all columns.
            dead_letters: As in `filter`.
        """
        compiled = compile_projection(expressions, self.schema)
        schema = pa.schema([pa.field(e.name, e.type) for e in compiled])
        good = self._divert(compiled, dead_letters)
        return good._then("select", schema, expressions=compiled)

    def _divert(self, expressions: list[CompiledExpression], sink: str | None) -> Stream:
        """Send tuples that cannot be evaluated to a sink; the stream of the others."""
        if sink is None:
            return self
        if ERROR_COLUMN in self.schema.names:
            raise DataflowError(f"dead letters have a column {ERROR_COLUMN!r}; rename yours")
        is_bad = Evaluable(expressions, is_negated=True)
        bad = self._then("filter", self.schema, expression=is_bad)
        columns = [*compile_projection(["*"], self.schema), Failure(expressions)]
        schema = self.schema.append(pa.field(ERROR_COLUMN, pa.string()))
        bad._then("select", schema, expressions=columns).sink(sink)
        is_good = Evaluable(expressions, is_negated=False)
        return self._then("filter", self.schema, expression=is_good)

    def union(self, *others: Stream) -> Stream:
        """All tuples of these streams in one deterministic order (time, stream, id)."""
        for other in others:
            if other.schema.types != self.schema.types or other.schema.names != self.schema.names:
                raise DataflowError(
                    f"union of different schemas: {_ddl(self.schema)} and {_ddl(other.schema)}"
                )
        return self._then("union", self.schema, *(other.step for other in others))

    def key_by(self, *columns: str) -> Stream:
        """Name the key of the window, aggregate or join that follows."""
        for column in columns:
            _known(column, self.schema)
        if not columns:
            raise DataflowError("key_by needs at least one column")
        return replace(self, keys=columns)

    def window(self, windows: Window) -> Stream:
        """Name the windows of the aggregate or join that follows."""
        return replace(self, windows=windows)

    def aggregate(self, *aggregates: str, name: str | None = None, emit: str = "final") -> Stream:
        """Aggregate per key and window.

        Args:
            aggregates: `count(*)`, or `count`, `sum`, `min`, `max`, `avg` of a Spark SQL
                expression, each with `AS name`.
            name: Name of the operator and, by default, of its HA unit.
            emit: `final` gives one tuple per key and window when the window has closed;
                `changes` gives the running result after each tuple.
        """
        if self.windows is None:
            raise DataflowError("aggregate needs window(...) before it")
        if emit not in ("final", "changes"):
            raise DataflowError(f"emit={emit!r}; it is 'final' or 'changes'")
        parsed = [_parse_aggregate(text, self.schema) for text in aggregates]
        if not parsed:
            raise DataflowError("aggregate needs at least one aggregate, e.g. 'count(*) AS n'")
        settings = {
            "keys": self.keys,
            "windows": self.windows,
            "aggregates": parsed,
            "emit": emit,
        }
        return self._stateful("aggregate", name or "aggregate", (self.step,), settings)

    def join(
        self,
        other: Stream,
        *,
        on: Sequence[tuple[str, str]] | str,
        select: Sequence[str],
        name: str | None = None,
        how: str = "inner",
    ) -> Stream:
        """Join with another stream on equal keys.

        With `window(...)` before it, tuples of the same tumbling window are joined when it has
        closed. Without, every pair is joined as soon as both have arrived, and both sides are
        kept for ever.

        Args:
            other: The right side.
            on: A column both sides have, or pairs (left column, right column).
            select: The output columns, `left.column [AS name]` or `right.column [AS name]`; with
                windows, `window_start` and `window_end` come before them.
            name: Name of the operator and, by default, of its HA unit.
            how: `inner`, or with windows also `left`.
        """
        pairs = [(on, on)] if isinstance(on, str) else list(on)
        for left, right in pairs:
            left_type = _known(left, self.schema).type
            right_type = _known(right, other.schema).type
            if left_type != right_type:
                raise DataflowError(f"join on {left} ({left_type}) and {right} ({right_type})")
        if how not in ("inner", "left") or (how == "left" and self.windows is None):
            raise UnsupportedError(
                f"join how={how!r}: 'inner' always works, 'left' with window(...)"
            )
        if self.windows is not None and self.windows.size_us != self.windows.slide_us:
            raise UnsupportedError("a join over sliding windows; use tumbling(...)")
        fields = [_parse_join_field(text, self.schema, other.schema) for text in select]
        settings = {
            "left_keys": tuple(left for left, _ in pairs),
            "right_keys": tuple(right for _, right in pairs),
            "windows": self.windows,
            "fields": fields,
            "how": how,
        }
        kind = "join" if self.windows is None else "window_join"
        return self._stateful(kind, name or "join", (self.step, other.step), settings)

    def sink(self, name: str) -> None:
        """Write the stream to the log `name`, exactly once by tuple id."""
        self.flow._add_sink(_checked(name), self.step)

    def _then(self, kind: str, schema: pa.Schema, *others: Step, **settings: Any) -> Stream:
        """A stateless operator: in the same unit unless its inputs come from several."""
        units = {step.unit for step in (self.step, *others)}
        name = self.flow._unique(kind)
        unit = self.next_unit or (self.step.unit if len(units) == 1 else name)
        step = Step(kind, name, unit, schema, (self.step, *others), settings)
        self.flow.steps.append(step)
        return Stream(self.flow, step)

    def _stateful(
        self,
        kind: str,
        name: str,
        inputs: tuple[Step, ...],
        settings: dict[str, Any],
    ) -> Stream:
        """A stateful operator: in a unit of its own unless told otherwise."""
        name = self.flow._unique(_checked(name))
        try:
            schemas = tuple(step.schema for step in inputs)
            operator = build_operator(kind, name, schemas, settings, PageManager())
        except LocalProtocolError as error:
            raise DataflowError(str(error)) from None
        schema = operator.output_schema
        names = schema.names
        if len(set(names)) != len(names):
            raise DataflowError(f"{name} gives a column twice: {names}")
        step = Step(kind, name, self.next_unit or name, schema, inputs, settings)
        self.flow.steps.append(step)
        return Stream(self.flow, step)


class Dataflow:
    """A directed graph of operators over streams."""

    def __init__(self, name: str) -> None:
        """Begin an empty dataflow. The name appears in Spark's UI and in messages."""
        self.name = _checked(name)
        self.steps: list[Step] = []
        self.sinks: dict[str, Step] = {}

    def source(
        self,
        df: DataFrame,
        *,
        name: str,
        time: str,
        delay: str | None = None,
        unit: str | None = None,
        partitions: int = 1,
        speed: float | None = None,
    ) -> Stream:
        """Read a batch or streaming DataFrame; Spark writes its rows into an ingest log.

        Args:
            df: Any DataFrame.
            name: The source's name; also its unit's unless `unit` is given.
            time: The timestamp column that holds the event time.
            delay: How far tuples may be out of order; later ones go to the late stream.
            unit: HA unit of the source and the stateless operators after it.
            partitions: Parallelism of that unit.
            speed: Replay a recorded stream at so many seconds of event time per second.
        """
        from holdfast.api.schemas import schema_from_spark

        schema = schema_from_spark(df.schema)
        _timestamp(time, schema)
        settings = {
            "df": df,
            "time": time,
            "delay_us": duration_us(delay) if delay else 0,
            "partitions": partitions,
            "speed": speed,
        }
        return self._source(name, unit, schema, settings)

    def source_log(
        self,
        path: str,
        *,
        name: str,
        unit: str | None = None,
        partitions: int = 1,
        speed: float | None = None,
    ) -> Stream:
        """Read an ingest log that exists already, e.g. one that another job writes."""
        from holdfast.shell.storage.ingest_log import read_meta

        meta = read_meta(path)
        settings = {"path": path, "time": meta.time_column, "partitions": partitions}
        return self._source(name, unit, meta.schema, {**settings, "speed": speed})

    def source_generator(
        self, generator: Any, *, name: str, unit: str | None = None, partitions: int = 1
    ) -> Stream:
        """Read a generator inside the nodes; see holdfast.nexmark for one.

        Args:
            generator: Has `schema` (a Spark schema, DDL text or Arrow schema),
                `spec(partition, partitions)` (a `SourceSpec`) and `to_dataframe(spark)` with the
                same tuples and their times in `__time_us`.
            name: The source's name.
            unit: HA unit of the source and the stateless operators after it.
            partitions: Parallelism of that unit.
        """
        from holdfast.api.schemas import schema_from

        settings = {"generator": generator, "partitions": partitions}
        return self._source(name, unit, schema_from(generator.schema), settings)

    def _source(
        self, name: str, unit: str | None, schema: pa.Schema, settings: dict[str, Any]
    ) -> Stream:
        name = _checked(name)
        if any(step.name == name for step in self.steps):
            raise DataflowError(f"there is already a step named {name!r}")
        if settings["partitions"] < 1:
            raise DataflowError(f"partitions={settings['partitions']}; at least 1")
        step = Step("source", name, _checked(unit or name), schema, (), settings)
        self.steps.append(step)
        return Stream(self, step)

    def _unique(self, name: str) -> str:
        taken = {step.name for step in self.steps}
        if name not in taken:
            return name
        return next(n for i in range(2, len(taken) + 3) if (n := f"{name}{i}") not in taken)

    def _add_sink(self, name: str, step: Step) -> None:
        if name in self.sinks:
            raise DataflowError(f"there is already a sink named {name!r}")
        self.sinks[name] = step

    def start(
        self,
        spark: SparkSession,
        *,
        checkpointLocation: str,
        protection: Protection | Mapping[str, Protection] | None = None,
        parallelism: int | dict[str, int] = 1,
        options: dict[str, str] | None = None,
    ) -> Query:
        """Run the dataflow on Spark until its sources end or the query is stopped.

        Args:
            spark: A session; see `holdfast.session` for one that starts nodes quickly.
            checkpointLocation: A folder for logs, journal and results; starting again with the
                same folder goes on where the query stopped.
            protection: What a failure may cost, for the dataflow or by unit; by default precise
                upstream backup.
            parallelism: Instances of each stateful unit, for all or per unit.
            options: Settings `spark.holdfast.*`, over those of the session.
        """
        from holdfast.api.query import start

        return start(self, spark, checkpointLocation, protection, parallelism, options or {})

    def to_dataframe(
        self, spark: SparkSession, sink: str | None = None, *, checkpointLocation: str
    ) -> DataFrame:
        """The batch twin: the same dataflow as a Spark SQL query over the recorded inputs."""
        from holdfast.api.batch_twin import to_dataframe

        return to_dataframe(self, spark, self.sink_name(sink), checkpointLocation)

    def sink_name(self, sink: str | None) -> str:
        """The sink of this name, or the only one."""
        if sink is None and len(self.sinks) == 1:
            return next(iter(self.sinks))
        if sink is None or sink not in self.sinks:
            raise DataflowError(f"no sink {sink!r}; there are {', '.join(self.sinks) or 'none'}")
        return sink


def _checked(name: str) -> str:
    try:
        return checked_name(name)
    except ValueError as error:
        raise DataflowError(str(error)) from None


def _known(column: str, schema: pa.Schema) -> pa.Field:
    if column not in schema.names:
        raise DataflowError(f"no column {column!r}; there are {', '.join(schema.names)}")
    return schema.field(column)


def _timestamp(column: str, schema: pa.Schema) -> None:
    if not pa.types.is_timestamp(_known(column, schema).type):
        raise DataflowError(f"time column {column!r} is {schema.field(column).type}, no timestamp")


def _ddl(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)


def _parse_aggregate(text: str, schema: pa.Schema) -> Aggregate:
    match = _AGGREGATE.match(text)
    if match is None:
        raise DataflowError(f"{text!r} is no aggregate; write for example 'sum(price) AS total'")
    function, argument, name = match[1].lower(), match[2].strip(), match[3]
    if argument.lower().startswith("distinct"):
        raise UnsupportedError(
            f"{text!r}: distinct aggregates keep every value; aggregate twice instead, "
            "first by the value, then count the groups"
        )
    if function == "mean":
        function = "avg"
    if function not in AGGREGATE_FUNCTIONS:
        raise UnsupportedError(
            f"aggregate {function!r}; supported are {', '.join(AGGREGATE_FUNCTIONS)}"
        )
    is_star = argument == "*"
    if is_star and function != "count":
        raise DataflowError(f"{text!r}: only count takes *")
    expression = None if is_star else compile_expression(argument, schema)
    sql = f"{function}({argument})"
    return Aggregate(function, expression, name or sql, sql)


def _parse_join_field(text: str, left: pa.Schema, right: pa.Schema) -> tuple[str, str, str]:
    """(side, column, output name); side is `left` or `right`."""
    source, _, name = text.partition(" AS ") if " AS " in text else text.partition(" as ")
    side, _, column = source.strip().partition(".")
    if side not in ("left", "right") or not column:
        raise DataflowError(
            f"join select {text!r}: write 'left.column' or 'right.column', "
            "with AS name where wanted"
        )
    _known(column, left if side == "left" else right)
    return side, column, name.strip() or column
