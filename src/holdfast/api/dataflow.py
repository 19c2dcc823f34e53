"""A dataflow: sources, operators, sinks. Building one does nothing; `start` runs it on Spark.

flow = Dataflow("bids")
bids = flow.source(df, name="bids", time="date_time")
counts = bids.key_by("bidder").window(tumbling("10 seconds")).aggregate("count(*) AS n")
counts.sink("counts")
query = flow.start(spark, checkpointLocation="/tmp/bids")
"""

from __future__ import annotations

import re
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from holdfast.api.columns import check_columns, unquoted
from holdfast.api.dead_letters import ERROR_COLUMN, Evaluable, Failure
from holdfast.api.expressions import CompiledExpression, compile_expression, compile_projection
from holdfast.api.operators import HOLDING, build_operator, is_arbitrary
from holdfast.api.windows import CountWindow, Window, duration_us
from holdfast.core.errors import LocalProtocolError
from holdfast.errors import DataflowError, UnsupportedError
from holdfast.shell.storage.paths import checked_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from holdfast.api.protections import Protection
    from holdfast.driver.kafka import KafkaSink
    from holdfast.driver.query import Query

_AGGREGATE = re.compile(r"^\s*(\w+)\s*\((.*)\)\s*(?:\s[aA][sS]\s+`?(\w+)`?)?\s*$", re.DOTALL)
_WINDOWED_JOINS = {"final": "window_join", "changes": "running_join"}
AGGREGATE_FUNCTIONS = ("count", "sum", "min", "max", "avg")


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
        kind: `source`, `filter`, `select`, `sample`, `union`, `aggregate`, `join`, `window_join`,
            `running_join`, `sort`, `resample`.
        name: Unique in the dataflow.
        unit: The HA unit it belongs to.
        schema: Attributes of its output, without the time column.
        inputs: The steps it reads.
        settings: What its kind needs; see planning/plan.py.
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
    windows: Window | CountWindow | None = None
    next_unit: str | None = None

    @property
    def schema(self) -> pa.Schema:
        """The attributes, as an Arrow schema."""
        return self.step.schema

    def unit(self, name: str) -> Stream:
        """Put the operators that follow into the HA unit `name`.

        What cannot work is refused at `start`: an operator with state behind another one in a unit
        that is replayed, or a split by key behind other operators of the same unit.
        """
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
        if ERROR_COLUMN in map(str.lower, self.schema.names):
            raise DataflowError(f"dead letters have a column {ERROR_COLUMN!r}; rename yours")
        is_bad = Evaluable(expressions, is_negated=True)
        bad = self._then("filter", self.schema, expression=is_bad)
        columns = [*compile_projection(["*"], self.schema), Failure(expressions)]
        schema = self.schema.append(pa.field(ERROR_COLUMN, pa.string()))
        bad._then("select", schema, expressions=columns).sink(sink)
        is_good = Evaluable(expressions, is_negated=False)
        return self._then("filter", self.schema, expression=is_good)

    def sample(self, fraction: float) -> Stream:
        """Keep each tuple with this probability, above 0 and up to 1."""
        try:
            build_operator("sample", "sample", (self.schema,), {"fraction": fraction})
        except LocalProtocolError as error:
            raise DataflowError(str(error)) from None
        return self._then("sample", self.schema, fraction=fraction)

    def union(self, *others: Stream, order: str = "time") -> Stream:
        """All tuples of these streams.

        Args:
            others: Streams of the same columns.
            order: `time`: one deterministic order (time, stream, id), which waits for the slowest
                stream; `arrival`: as they come, which no two runs do alike.
        """
        for other in others:
            if other.schema.types != self.schema.types or other.schema.names != self.schema.names:
                raise DataflowError(
                    f"union of different schemas: {_ddl(self.schema)} and {_ddl(other.schema)}"
                )
        if order not in ("time", "arrival"):
            raise DataflowError(f"union(order={order!r}); it is 'time' or 'arrival'")
        settings = {} if order == "time" else {"order": order}
        return self._then("union", self.schema, *(other.step for other in others), **settings)

    def key_by(self, *columns: str) -> Stream:
        """Name the key of the window, aggregate or join that follows."""
        for column in columns:
            _known(column, self.schema)
        if not columns:
            raise DataflowError("key_by needs at least one column")
        return replace(self, keys=columns)

    def window(self, windows: Window | CountWindow) -> Stream:
        """Name the windows of the aggregate or join that follows: `tumbling`, `sliding` or
        `counting`.
        """
        if not isinstance(windows, Window | CountWindow):
            raise DataflowError(f"window({windows!r}); write for example tumbling('10 seconds')")
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
        if emit == "changes" and not self.windows.is_plain:
            raise UnsupportedError(
                f"aggregate(emit='changes') over {self.windows}; it works over windows of event "
                "time aligned to the epoch, without timeout"
            )
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
        emit: str = "final",
    ) -> Stream:
        """Join with another stream on equal keys.

        With `window(...)` before it, tuples of the same tumbling window are joined, and forgotten
        when it has closed. Without, both sides are kept for ever, and every pair is put out as soon
        as both have arrived.

        Args:
            other: The right side.
            on: A column both sides have, or pairs (left column, right column).
            select: The output columns, `left.column [AS name]` or `right.column [AS name]`; with
                windows, `window_start` and `window_end` come before them.
            name: Name of the operator and, by default, of its HA unit.
            how: `inner`, or with windows also `left`.
            emit: With windows, `final` gives all pairs when the window has closed, with the tuple
                time of its last microsecond; `changes` each as soon as both have arrived, with the
                later one's, which `left` does not go with.
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
        if emit not in _WINDOWED_JOINS:
            raise DataflowError(f"emit={emit!r}; it is 'final' or 'changes'")
        if emit == "changes" and self.windows is None:
            raise DataflowError("join(emit='changes') without window(...): such a join always does")
        if emit == "changes" and how == "left":
            raise UnsupportedError(
                "join(how='left', emit='changes'): that a tuple has no match is known when the "
                "window has closed; use emit='final'"
            )
        if self.windows is not None and not self.windows.is_plain:
            raise UnsupportedError(
                f"a join over {self.windows}; use tumbling(...) in event time, aligned to the "
                "epoch, without timeout"
            )
        if isinstance(self.windows, Window) and self.windows.size_us != self.windows.slide_us:
            raise UnsupportedError("a join over sliding windows; use tumbling(...)")
        fields = [_parse_join_field(text, self.schema, other.schema) for text in select]
        settings = {
            "left_keys": tuple(left for left, _ in pairs),
            "right_keys": tuple(right for _, right in pairs),
            "windows": self.windows,
            "fields": fields,
            "how": how,
        }
        kind = "join" if self.windows is None else _WINDOWED_JOINS[emit]
        return self._stateful(kind, name or "join", (self.step, other.step), settings)

    def sort(self, by: str | None = None, *, slack: int, name: str | None = None) -> Stream:
        """Put tuples into ascending order as far as a buffer of so many goes (BSort).

        A tuple that comes when the buffer is full pushes the least one out, be it itself; so a
        tuple gets past at most `slack` others. Runs in one instance.

        Args:
            by: The column, nulls first; by default the tuple time.
            slack: Size of the buffer.
            name: Name of the operator and, by default, of its HA unit.
        """
        if self.keys:
            raise DataflowError("sort orders the whole stream; leave key_by(...) out before it")
        if by is not None:
            _known(by, self.schema)
        if not isinstance(slack, int) or isinstance(slack, bool):
            raise DataflowError(f"sort(slack={slack!r}); it is a whole number")
        return self._stateful("sort", name or "sort", (self.step,), {"by": by, "slack": slack})

    def resample(
        self,
        *columns: str,
        within: str,
        every: str | None = None,
        at: Stream | None = None,
        on: Sequence[tuple[str, str]] | str = (),
        name: str | None = None,
    ) -> Stream:
        """Values of columns at other times, by linear interpolation in tuple time.

        The value at a time lies on the line between the key's last value at or before it and the
        first one at or after it, if both are at most `within` away; else it is null. Of several at
        one time the greatest counts. Results are doubles, put out once `within` has passed.

        Args:
            columns: `column [AS name]`, of integers or floats.
            within: How far away a value may be.
            every: At the multiples of this since the epoch, per key of `key_by(...)`, between two
                tuples of the key: columns `time`, the key, the results.
            at: At the times of the tuples of this stream: its columns, and the results.
            on: With `at`, a column both have, or pairs (column, column of `at`); the key.
            name: Name of the operator and, by default, of its HA unit.
        """
        if (every is None) == (at is None):
            raise DataflowError("resample needs either every=... or at=...")
        if every is not None and on:
            raise DataflowError("resample(every=...) takes its key from key_by(...), not from on=")
        if at is not None and self.keys:
            raise DataflowError("resample(at=...) takes its key from on=, not from key_by(...)")
        pairs = [(on, on)] if isinstance(on, str) else list(on)
        keys: list[tuple[str, ...]] = [self.keys]
        if at is not None:
            for mine, theirs in pairs:
                kinds = _known(mine, self.schema).type, _known(theirs, at.schema).type
                if kinds[0] != kinds[1]:
                    raise DataflowError(
                        f"resample on {mine} ({kinds[0]}) and {theirs} ({kinds[1]})"
                    )
            keys = [tuple(mine for mine, _ in pairs), tuple(theirs for _, theirs in pairs)]
        settings = {
            "resampled": [_parse_column(text, self.schema) for text in columns],
            "match": keys,
            "within_us": duration_us(within),
            "every_us": None if every is None else duration_us(every),
        }
        inputs = (self.step,) if at is None else (self.step, at.step)
        return self._stateful("resample", name or "resample", inputs, settings)

    def sink(self, name: str) -> None:
        """Write the stream to the log `name`, exactly once by tuple id."""
        self.flow._add_sink(_checked(name), self.step)

    def sink_kafka(
        self,
        name: str,
        *,
        servers: str,
        topic: str,
        format: str = "json",
        key: str | tuple[str, ...] = (),
        exactly_once: bool = True,
        commit_interval: str | None = "50 milliseconds",
        transactional_id: str | None = None,
        options: Mapping[str, str] | None = None,
    ) -> None:
        """Write the stream to a Kafka topic; see docs/kafka.md.

        Args:
            name: The sink's name.
            servers: The brokers, `host:port`, separated by commas.
            topic: The topic, which exists.
            format: `json`, an object of all columns; `string` or `bytes`: the column `value`.
            key: The column, or columns, of the record's key.
            exactly_once: Write in transactions; otherwise results are there as soon as they are
                made, and a failure may write some of them again.
            commit_interval: From the beginning of a transaction to that of the next, at least;
                None: they follow one another as fast as the broker ends them.
            transactional_id: Prefix of the transactional ids and groups, where brokers allow only
                some; unique in the Kafka cluster. By default one is made up for the location.
            options: More settings of librdkafka, e.g. for TLS and SASL.
        """
        from holdfast.driver.kafka import kafka_sink

        sink = kafka_sink(
            servers=servers,
            topic=topic,
            format=format,
            key=key,
            schema=self.schema,
            transactional_id=transactional_id,
            exactly_once=exactly_once,
            commit_interval=commit_interval,
            options=options,
        )
        self.flow._add_sink(_checked(name), self.step)
        self.flow.kafka_sinks[name] = sink

    def _then(self, kind: str, schema: pa.Schema, *others: Step, **settings: Any) -> Stream:
        """A stateless operator: in the same unit, unless its inputs come from several, it would
        merge rows there that are held back, or it is arbitrary: then what else is there would be
        recovered, and perhaps merged, as only that one needs it.
        """
        units = {step.unit for step in (self.step, *others)}
        name = self.flow._unique(kind)
        is_mixed = bool(others) and any(held_back(s) for s in (self.step, *others))
        is_apart = len(units) > 1 or is_mixed or is_arbitrary(kind, settings)
        check_columns(schema.names, name)
        unit = self.next_unit or (name if is_apart else self.step.unit)
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
            operator = build_operator(kind, name, schemas, settings)
        except LocalProtocolError as error:
            raise DataflowError(str(error)) from None
        schema = operator.output_schema
        check_columns(schema.names, name)
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
        self.kafka_sinks: dict[str, KafkaSink] = {}

    def source(
        self,
        df: DataFrame,
        *,
        name: str,
        time: str | None = None,
        delay: str | None = None,
        ahead: str | None = "1 day",
        unit: str | None = None,
        partitions: int = 1,
        speed: float | None = None,
        trigger: Mapping[str, Any] | None = None,
    ) -> Stream:
        """Read a batch or streaming DataFrame; Spark writes its rows into an ingest log.

        Args:
            df: Any DataFrame.
            name: The source's name; also its unit's unless `unit` is given.
            time: The timestamp column that holds the event time; by default that of
                `df.withWatermark(...)`.
            delay: How far tuples may be older than what earlier micro-batches brought; later ones
                go to the late stream. By default Spark's watermark of the column says what is late,
                as it does for Spark's own operators.
            ahead: How far a row may be ahead of the others, and of the clock when it is recorded,
                and still move time: a row of a broken clock is a row like any other, but makes no
                later one late, and is named in `status["notes"]`. None: every row moves time.
            unit: HA unit of the source and the stateless operators after it.
            partitions: Parallelism of that unit.
            speed: Replay a recorded stream at so many seconds of event time per second.
            trigger: Of a streaming DataFrame, as `DataStreamWriter.trigger` takes it:
                `{"processingTime": "1 second"}`, or `{"availableNow": True}`, which reads what is
                there and ends the query when that has been worked off; a later run goes on behind
                it, and until then windows stay open that it may add to.

        Raises:
            DataflowError: There is no such column, or none is named and none has a watermark.
            UnsupportedError: A column has a type that Holdfast does not carry.
        """
        from holdfast.driver.frames import frame_settings
        from holdfast.driver.schemas import schema_from_spark

        schema = schema_from_spark(df.schema)
        settings = frame_settings(df, time, delay, ahead, trigger)
        _timestamp(settings["time"], schema)
        settings |= {"partitions": partitions, "speed": speed}
        return self._source(name, unit, schema, settings)

    def source_files(
        self,
        path: str,
        *,
        time: str,
        format: str = "parquet",
        schema: pa.Schema | StructType | str | None = None,
        name: str | None = None,
        delay: str | None = None,
        ahead: str | None = "1 day",
        trigger: Mapping[str, Any] | None = None,
        ends: bool = False,
        dead_letters: str | None = None,
        unit: str | None = None,
        partitions: int = 1,
        options: Mapping[str, str] | None = None,
    ) -> Stream:
        """Read files where they lie, by the nodes themselves; new ones as they appear.

        Files come in the order of their modification times, those of the same time in that of their
        paths, each once, whatever is restarted. They have to appear whole: write them under a name
        that begins with `_` or `.`, and rename them.

        Args:
            path: A folder, with folders `key=value` below it if it is partitioned; a file; or a
                glob. A local path, or a URL that fsspec knows.
            time: The timestamp column that holds the event time.
            format: `parquet`, `orc`, `arrow` (IPC files), `csv` or `json` (a record a line).
            schema: A Spark schema, DDL text or Arrow schema; by default that of the first file
                there is, and of the partitions' folders, whose columns are strings then.
            name: The source's name, by default the folder's; also its unit's.
            delay: How far tuples may be older than what earlier listings brought; later ones go to
                the late stream.
            ahead: As of `source`.
            trigger: None: go on for ever; `{"availableNow": True}`: read what is there, and then
                end the query; the next run goes on behind that.
            ends: Whether what is there at the first start is all: then the query ends with it, and
                all windows close.
            dead_letters: Name of a sink for rows that are not of the schema, and for files that are
                not of the format; without one, such a row fails the query.
            unit: HA unit of the source and the stateless operators after it.
            partitions: Instances of that unit, among which files are divided.
            options: Of CSV, as Spark names them: `header`, `sep`.

        Raises:
            DataflowError: An argument makes no sense, or there is neither a schema nor a file.
            UnsupportedError: A column has a type that Holdfast does not carry.
        """
        from holdfast.driver.user_files import (
            DEAD_LETTER,
            IS_ALIVE,
            IS_DEAD,
            default_name,
            files_source,
        )

        source = files_source(
            path,
            format=format,
            schema=schema,
            time=time,
            delay=delay,
            ahead=ahead,
            trigger=trigger,
            ends=ends,
            options=options,
            has_dead_letters=dead_letters is not None,
        )
        _timestamp(time, source.meta.schema)
        settings = {"files": source, "time": time, "delay_us": source.meta.delay_us}
        settings |= {"partitions": partitions, "speed": None}
        stream = self._source(name or default_name(path), unit, source.meta.schema, settings)
        if dead_letters is None:
            return stream
        stream.filter(IS_DEAD).select(*DEAD_LETTER).sink(dead_letters)
        return stream.filter(IS_ALIVE).select(*source.columns())

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
        from holdfast.driver.schemas import schema_from

        settings = {"generator": generator, "partitions": partitions}
        return self._source(name, unit, schema_from(generator.schema), settings)

    def source_kafka(
        self,
        *,
        servers: str,
        topic: str,
        name: str | None = None,
        format: str = "json",
        schema: pa.Schema | StructType | str | None = None,
        time: str | None = None,
        delay: str | None = None,
        ahead: str | None = "1 day",
        idle: str | None = "10 seconds",
        begin: str | Mapping[int, int] = "earliest",
        end: str | Mapping[int, int] | None = None,
        dead_letters: str | None = None,
        unit: str | None = None,
        partitions: int = 1,
        options: Mapping[str, str] | None = None,
    ) -> Stream:
        """Read a Kafka topic inside the nodes, each partition by the same one; see docs/kafka.md.

        Args:
            servers: The brokers, `host:port`, separated by commas.
            topic: The topic; records of open and aborted transactions are not read.
            name: The source's name, by default the topic's; also its unit's.
            format: `json`, `arrow` (an IPC stream), with `schema`; or `string` or `bytes`, with
                the columns key, value, partition, offset and timestamp.
            schema: A Spark schema, DDL text or Arrow schema.
            time: The timestamp column with the event time; by default Kafka's timestamp.
            delay: How far tuples of one partition may be out of order; what is older than all
                partitions have reached by then is late.
            ahead: How far a tuple may be ahead of its partition, and of the clock when it is read,
                and still move time; see `source`. None: every tuple moves time.
            idle: A partition without records for so long does not hold up time; None: it does.
            begin: `earliest`, `latest`, or the first offset by partition.
            end: None: go on for ever; `latest`: what there is at the first start; or the offset
                before which to stop by partition.
            dead_letters: Name of a sink for records that cannot be decoded; without one, such a
                record fails the query.
            unit: HA unit of the source and the stateless operators after it.
            partitions: Instances of that unit; instance i reads partition p if p % partitions = i.
            options: More settings of librdkafka, e.g. for TLS and SASL.
        """
        from holdfast.driver.kafka import DEAD_LETTER, IS_ALIVE, IS_DEAD, kafka_source

        source = kafka_source(
            servers=servers,
            topic=topic,
            format=format,
            schema=schema,
            time=time,
            delay=delay,
            ahead=ahead,
            idle=idle,
            begin=begin,
            end=end,
            has_dead_letters=dead_letters is not None,
            options=options,
        )
        settings = {"kafka": source, "partitions": partitions}
        stream = self._source(name or topic, unit, source.decoder.log_schema, settings)
        if dead_letters is not None:
            stream.filter(IS_DEAD).select(*DEAD_LETTER).sink(dead_letters)
            stream = stream.filter(IS_ALIVE)
        return stream.select(*source.columns())

    def _source(
        self, name: str, unit: str | None, schema: pa.Schema, settings: dict[str, Any]
    ) -> Stream:
        name = _checked(name)
        if any(step.name == name for step in self.steps):
            raise DataflowError(f"there is already a step named {name!r}")
        if settings["partitions"] < 1:
            raise DataflowError(f"partitions={settings['partitions']}; at least 1")
        check_columns(schema.names, f"source {name}")
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
        from holdfast.driver.query import start

        return start(self, spark, checkpointLocation, protection, parallelism, options or {})

    def to_dataframe(
        self, spark: SparkSession, sink: str | None = None, *, checkpointLocation: str
    ) -> DataFrame:
        """The batch twin: the same dataflow as a Spark SQL query over the recorded inputs."""
        from holdfast.driver.batch_twin import to_dataframe

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


def held_back(step: Step) -> Step | None:
    """The operator of the step's unit that holds back the rows it puts out, if there is one."""
    return step if step.kind in HOLDING else before(step, HOLDING)


def before(step: Step, kinds: Container[str]) -> Step | None:
    """An operator of these kinds on the way to a step, in its unit."""
    for source in step.inputs:
        if source.unit == step.unit:
            found = source if source.kind in kinds else before(source, kinds)
            if found is not None:
                return found
    return None


def _parse_column(text: str, schema: pa.Schema) -> tuple[str, str]:
    """(column, result name)."""
    source, _, name = text.partition(" AS ") if " AS " in text else text.partition(" as ")
    column = unquoted(source.strip())
    _known(column, schema)
    return column, unquoted(name.strip()) or column


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
    column = unquoted(column)
    _known(column, left if side == "left" else right)
    return side, column, unquoted(name.strip()) or column
