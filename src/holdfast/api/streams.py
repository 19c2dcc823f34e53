"""A stream of a dataflow: what an application does with it, step by step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import EllipsisType
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import pyarrow as pa

from holdfast.api import steps
from holdfast.api.changelogs import (
    aggregated,
    joined_changes,
    kept_by_filter,
    kept_by_select,
    kept_by_union,
    require_no_changes,
    require_rows,
)
from holdfast.api.clauses import (
    ddl,
    known_column,
    parse_aggregate,
    require_key,
    require_name,
)
from holdfast.api.columns import check_columns
from holdfast.api.dead_letters import (
    ERROR_COLUMN,
    Evaluable,
    Failure,
    function_with_bad_rows,
)
from holdfast.api.distinct_counts import counts_distinct, with_distinct_counts
from holdfast.api.expressions import CompiledExpression, compile_expression, compile_projection
from holdfast.api.functions import Function, Kind, python_function
from holdfast.api.joins import joined
from holdfast.api.operators import build_operator, is_arbitrary
from holdfast.api.outside_sinks import OutsideSinks
from holdfast.api.processors import processor_of
from holdfast.api.resampling import resampling
from holdfast.api.steps import Changelog, Step, held_back
from holdfast.api.windows import AnyWindow, CountWindow, SessionWindow, Window, duration_us
from holdfast.core.errors import LocalProtocolError
from holdfast.core.model.changes import CHANGE_COLUMN
from holdfast.core.model.column_names import quoted
from holdfast.errors import DataflowError, UnsupportedError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from holdfast.api.graph import Graph
    from holdfast.api.steps import Emit, Expression

    Schema: TypeAlias = pa.Schema | StructType | str
    """A Spark schema, DDL text or Arrow schema."""


@dataclass(frozen=True, slots=True)
class Stream(OutsideSinks):
    """A stream of a dataflow; every method returns a new one."""

    flow: Graph
    step: Step
    keys: tuple[str, ...] = ()
    windows: AnyWindow | None = None
    next_unit: str | None = None

    def unit(self, name: str) -> Stream:
        """Put the operators that follow into the HA unit `name`.

        What cannot work is refused at `start`, such as a split by key behind other operators of the
        same unit. Operators with state may stand behind each other.
        """
        return replace(self, next_unit=require_name(name))

    def filter(
        self,
        condition: str | Function,
        *,
        dead_letters: str | None = None,
        deterministic: bool = True,
    ) -> Stream:
        """Keep the tuples for which the condition is true.

        Args:
            condition: A boolean expression of Spark SQL, or a function of a row, a dict by column,
                that gives True, False or None.
            dead_letters: Name of a sink for tuples for which there is no value, e.g. because of a
                division by zero; without one, such a tuple fails the query.
            deterministic: Of a function; as of `map_batches`.
        """
        if not isinstance(condition, str):
            return self._applied("filter", condition, self.schema, deterministic, dead_letters)
        compiled = compile_expression(condition, self.schema, self.flow.functions)
        if not pa.types.is_boolean(compiled.type):
            raise DataflowError(f"filter({condition!r}) is {compiled.type}, not boolean")
        changes = kept_by_filter(self.step.changelog, compiled.columns)
        good = self._divert([compiled], dead_letters)
        return good._then(steps.Filter(compiled), self.schema, changes=changes)

    def select(self, *expressions: str, dead_letters: str | None = None) -> Stream:
        """Compute Spark SQL expressions, e.g. `select("auction", "price * 0.908 AS price")`.

        Args:
            expressions: `expression AS name`, columns, or `*` for all columns.
            dead_letters: As in `filter`.
        """
        texts = list(expressions)
        known = self.step.changelog if dead_letters is None else kept_by_filter(self.step.changelog)
        if known is not None and not {"*", CHANGE_COLUMN}.intersection(map(str.strip, texts)):
            texts.append(CHANGE_COLUMN)
        compiled = compile_projection(texts, self.schema, self.flow.functions)
        schema = schema_of(compiled)
        changes = kept_by_select(known, compiled)
        good = self._divert(compiled, dead_letters)
        return good._then(steps.Select(tuple(compiled)), schema, changes=changes)

    def _projected(self, texts: Sequence[str], changes: Changelog | None) -> Stream:
        """A `select` by which rows become changes, or changes rows; see `Changelog`."""
        compiled = compile_projection(texts, self.schema, self.flow.functions)
        return self._then(steps.Select(tuple(compiled)), schema_of(compiled), changes=changes)

    def as_feed(self, kind: str = "change") -> Stream:
        """Of a changelog its changes as rows, of which any operator may be asked.

        Args:
            kind: The name of the column that says what a change is: `insert`, `update_before`,
                `update_after` or `delete`.
        """
        if self.step.changelog is None:
            raise DataflowError("as_feed is of changelogs; see aggregate(emit='changelog')")
        columns = [quoted(each) for each in self.schema.names if each != CHANGE_COLUMN]
        return self._projected([*columns, f"{CHANGE_COLUMN} AS {quoted(kind)}"], None)

    def map_batches(
        self,
        function: Function,
        schema: Schema,
        *,
        deterministic: bool = True,
        dead_letters: str | None = None,
    ) -> Stream:
        """Run a function on Arrow batches.

        How rows are cut into batches depends on the network and on failures. So each resulting row
        must depend on its own row alone. A function that raises fails the query, which names the
        row. It travels as functions of Spark's do, inside a task: what it imports must be there.

        Args:
            function: Takes a `pyarrow.RecordBatch` and gives one with a row for each of its rows.
            schema: Of what it gives: a Spark schema, DDL text or Arrow schema.
            deterministic: False: it depends on the clock or on chance. It gets an `hf.Pass` as a
                second argument then, and has both from there: `given.now`, `given.random`. What
                these were is written down, so that no failure changes a result that is out.
            dead_letters: Name of a sink for rows for which it raises, with the error.

        Raises:
            DataflowError: It is no function.
            UnsupportedError: A column has a type that Holdfast does not carry.
        """
        return self._applied("map_batches", function, schema, deterministic, dead_letters)

    def map(
        self,
        function: Function,
        schema: Schema,
        *,
        deterministic: bool = True,
        dead_letters: str | None = None,
    ) -> Stream:
        """Run a function on rows, as `map_batches`: it takes a row, a dict by column, and gives a
        dict of the schema's columns.
        """
        return self._applied("map", function, schema, deterministic, dead_letters)

    def flat_map(
        self,
        function: Function,
        schema: Schema,
        *,
        deterministic: bool = True,
        dead_letters: str | None = None,
    ) -> Stream:
        """Run a function on rows, as `map`: it gives any number of dicts, e.g. as a list."""
        return self._applied("flat_map", function, schema, deterministic, dead_letters)

    def _applied(
        self,
        kind: Kind,
        function: Function,
        schema: Schema,
        is_deterministic: bool,
        dead_letters: str | None,
    ) -> Stream:
        from holdfast.driver.schemas import schema_from

        made = python_function(kind, function, schema_from(schema), is_deterministic)
        if dead_letters is None:
            return self._then(steps.Apply(made), made.schema, word=kind)
        both = function_with_bad_rows(made, self.schema)
        tried = self._then(steps.Apply(both), both.schema, word=kind)
        bad = tried.filter(f"{both.error} IS NOT NULL").select(*both.letter)
        bad.sink(dead_letters)
        return tried.filter(f"{both.error} IS NULL").select(*both.results)

    def _divert(self, expressions: list[CompiledExpression], sink: str | None) -> Stream:
        """Send tuples that cannot be evaluated to a sink; the stream of the others."""
        if sink is None:
            return self
        if ERROR_COLUMN in map(str.lower, self.schema.names):
            raise DataflowError(f"dead letters have a column {ERROR_COLUMN!r}; rename yours")
        is_bad = Evaluable(expressions, is_negated=True)
        changes = kept_by_filter(self.step.changelog)
        bad = self._then(steps.Filter(is_bad), self.schema, changes=changes)
        columns: list[Expression] = [*compile_projection(["*"], self.schema), Failure(expressions)]
        schema = self.schema.append(pa.field(ERROR_COLUMN, pa.string()))
        bad._then(steps.Select(tuple(columns)), schema, changes=changes).sink(sink)
        is_good = Evaluable(expressions, is_negated=False)
        return self._then(steps.Filter(is_good), self.schema, changes=changes)

    def sample(self, fraction: float) -> Stream:
        """Keep each tuple with this probability, above 0 and up to 1."""
        operation = steps.Sample(fraction)
        try:
            build_operator(operation, "sample", (self.schema,))
        except LocalProtocolError as error:
            raise DataflowError(str(error)) from None
        return self._then(operation, self.schema)

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
                    f"union of different schemas: {ddl(self.schema)} and {ddl(other.schema)}"
                )
        if order not in ("time", "arrival"):
            raise DataflowError(f"union(order={order!r}); it is 'time' or 'arrival'")
        operation = steps.Union("arrival") if order == "arrival" else steps.Union()
        every = (self.step, *(other.step for other in others))
        return self._then(operation, self.schema, *every[1:], changes=kept_by_union(every))

    def loop(self, name: str) -> LoopStream:
        """This stream together with what comes back, which `close(...)` says later.

        Operators of the loop take tuples as they come, so that its units need a protection of those
        that recover together: `Uncoordinated`, `Coordinated` or `CommunicationInduced`, all the
        same one. It may hold filters, selects, functions, unions and joins without windows; what
        comes to its end once more goes round once more, so something has to let go of it.

        Args:
            name: Of the loop.
        """
        require_rows(steps.Loop(), (self.step,))
        name = self.flow.unique_name(require_name(name))
        step = Step(steps.Loop(), name, f"{name}~loop", self.schema, (self.step,))
        self.flow.steps.append(step)
        return LoopStream(self.flow, step)

    def iterate(self, body: Callable[[Stream], Stream], *, name: str = "loop") -> Stream:
        """What a function makes of this stream and of what it has made before; see `loop`."""
        loop = self.loop(name)
        made = body(Stream(loop.flow, loop.step))
        loop.close(made)
        return made

    def key_by(self, *columns: str) -> Stream:
        """Name the key of the window, aggregate or join that follows."""
        for column in columns:
            require_key(column, self.schema, "key_by")
        if not columns:
            raise DataflowError("key_by needs at least one column")
        return replace(self, keys=columns)

    def window(self, windows: AnyWindow) -> Stream:
        """Name the windows of the aggregate or join that follows: `tumbling`, `sliding`,
        `counting` or `sessions`.
        """
        if not isinstance(windows, Window | CountWindow | SessionWindow):
            raise DataflowError(f"window({windows!r}); write for example tumbling('10 seconds')")
        return replace(self, windows=windows)

    def aggregate(self, *aggregates: str, name: str | None = None, emit: str = "final") -> Stream:
        """Aggregate per key and window; without `window(...)`, per key of all tuples so far.

        Args:
            aggregates: `count(*)`, or `count`, `sum`, `min`, `max`, `avg` of a Spark SQL
                expression, each with `AS name`; docs/operators.md has all functions.
            name: Name of the operator and, by default, of its HA unit.
            emit: `final` gives one tuple per key and window when the window has closed;
                `changes` gives the running result after each tuple, and is needed without windows:
                what a key has so far is never final. `changelog`, without windows, says of each
                result whether it is new, and which one it replaces.
        """
        if emit not in ("final", "changes", "changelog"):
            raise DataflowError(f"emit={emit!r}; it is 'final', 'changes' or 'changelog'")
        if emit == "changelog":
            return aggregated(self, aggregates, name or "aggregate")
        if self.windows is None:
            return self._running(aggregates, name or "aggregate", emit)
        if emit == "changes" and not self.windows.is_plain:
            raise UnsupportedError(
                f"aggregate(emit='changes') over {self.windows}; it works over windows of event "
                "time aligned to the epoch, without timeout"
            )
        if counts_distinct(aggregates):
            if emit == "changes":
                raise UnsupportedError("count(DISTINCT ...) with emit='changes'; use 'final'")
            return with_distinct_counts(self, aggregates, name or "aggregate")
        parsed = [parse_aggregate(text, self.schema) for text in aggregates]
        if not parsed:
            raise DataflowError("aggregate needs at least one aggregate, e.g. 'count(*) AS n'")
        operation = steps.WindowAggregate(
            self.keys, self.windows, tuple(parsed), cast("Emit", emit)
        )
        return self._stateful(operation, name or "aggregate", (self.step,))

    def _running(self, aggregates: Sequence[str], name: str, emit: str) -> Stream:
        if emit != "changes":
            raise DataflowError("aggregate needs window(...) before it, or emit='changes'")
        if counts_distinct(aggregates):
            raise UnsupportedError("count(DISTINCT ...) without window(...)")
        parsed = tuple(parse_aggregate(text, self.schema) for text in aggregates)
        if not parsed:
            raise DataflowError("aggregate needs at least one aggregate, e.g. 'count(*) AS n'")
        return self._stateful(steps.RunningAggregate(self.keys, parsed), name, (self.step,))

    def join(
        self,
        other: Stream,
        *,
        on: Sequence[tuple[str, str]] | str,
        select: Sequence[str],
        name: str | None = None,
        how: str = "inner",
        emit: str = "final",
        within: tuple[str, str] | None = None,
        where: str | None = None,
    ) -> Stream:
        """Join with another stream on equal keys.

        With `window(...)` before it, tuples of the same tumbling window are joined, and forgotten
        when it has closed. With `within`, tuples are joined whose times are so far apart at most.
        Without both, all are kept for ever, and every pair is put out as soon as both have arrived.

        Args:
            other: The right side.
            on: A column both sides have, or pairs (left column, right column).
            select: The output columns, `left.column [AS name]` or `right.column [AS name]`; with
                windows, `window_start` and `window_end` come before them.
            name: Name of the operator and, by default, of its HA unit.
            how: `inner`; with windows also `left`; with `within` also `left`, `right`, `full`, and
                `semi` and `anti`, left tuples with and without a match.
            emit: With windows, `final` gives all pairs when the window has closed, with the tuple
                time of its last microsecond; `changes` each as soon as both have arrived, with the
                later one's, which `left` does not go with. `changelog`, without windows and
                `within`: as `inner`, `left`, `right` or `full` join of rows and of changelogs.
            within: The least and the greatest time from a left tuple to a right one that it
                matches, e.g. `("-5 minutes", "1 hour")`; both are included.
            where: With `within`, what must hold of the output columns of a pair, as Spark SQL.
        """
        if emit == "changelog":
            if self.windows is not None or within is not None or where is not None:
                raise UnsupportedError("join(emit='changelog') has no windows, within and where")
            pairs = [(on, on)] if isinstance(on, str) else list(on)
            return joined_changes(self, other, on=pairs, select=select, how=how,
                                  name=name or "join")  # fmt: skip
        operation = joined(self, other, on=on, select=select, how=how, emit=emit, within=within,
                           where=where)  # fmt: skip
        return self._stateful(operation, name or "join", (self.step, other.step))

    def distinct(
        self,
        *columns: str,
        within: str | None = None,
        same_time: bool = False,
        name: str | None = None,
    ) -> Stream:
        """Of tuples that are equal in these columns the first one.

        Args:
            columns: By default all.
            within: Only tuples less than so much later, in tuple time, are copies of the first one;
                then its key is forgotten. As `dropDuplicatesWithinWatermark` with such a delay.
            same_time: Only tuples of the same tuple time are copies. As `dropDuplicates` of columns
                that have the event time among them.
            name: Name of the operator and, by default, of its HA unit.

        Without `within` and `same_time` keys are kept for ever.
        """
        if self.keys or self.windows is not None:
            raise DataflowError("distinct takes its key itself; leave key_by and window out")
        if within is not None and same_time:
            raise DataflowError("distinct takes either within=... or same_time=True")
        for column in columns or self.schema.names:
            require_key(column, self.schema, "distinct")
        within_us = 0 if same_time else None if within is None else duration_us(within)
        operation = steps.Distinct(columns or tuple(self.schema.names), within_us)
        return self._stateful(operation, name or "distinct", (self.step,))

    def process(
        self,
        processor: Any,
        schema: Schema,
        *,
        time: str = "none",
        rows: str = "rows",
        name: str | None = None,
    ) -> Stream:
        """Call a class that keeps states and timers per key of `key_by(...)`, for row after row.

        Args:
            processor: An object of a class for PySpark's `transformWithState`.
            schema: Of what it gives; as of `map_batches`.
            time: `none`, without timers; `event`: timers are of tuple time, and rows have their
                turn in its order; `processing`: they are of the clock.
            rows: `rows`: it takes and gives `Row` objects; `pandas`: data frames.
            name: Name of the operator and, by default, of its HA unit.
        """
        from holdfast.driver.schemas import schema_from, state_schema_from

        if not self.keys or self.windows is not None:
            raise DataflowError("process takes a stream with key_by(...), and without window(...)")
        made = processor_of(processor, schema_from(schema), time, rows, state_schema_from)
        operation = steps.Process(self.keys, made.time, made)
        return self._stateful(operation, name or "process", (self.step,))

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
            known_column(by, self.schema)
        if not isinstance(slack, int) or isinstance(slack, bool):
            raise DataflowError(f"sort(slack={slack!r}); it is a whole number")
        return self._stateful(steps.Sort(by, slack), name or "sort", (self.step,))

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
        operation = resampling(self, columns, within=within, every=every, at=at, on=on)
        inputs = (self.step,) if at is None else (self.step, at.step)
        return self._stateful(operation, name or "resample", inputs)

    def sink(self, name: str) -> None:
        """Write the stream to the log `name`, exactly once by tuple id."""
        self.flow.add_sink(require_name(name), self.step)

    def _then(
        self,
        operation: steps.Operation,
        schema: pa.Schema,
        *others: Step,
        word: str = "",
        changes: Changelog | EllipsisType | None = ...,
    ) -> Stream:
        """A stateless operator: in the same unit, unless its inputs come from several, it would
        merge rows there that are held back, or it is arbitrary: then what else is there would be
        recovered, and perhaps merged, as only that one needs it.
        """
        inputs = (self.step, *others)
        changelog = self._changelog(operation, schema, inputs, changes)
        name = self.flow.unique_name(word or operation.WORD)
        is_mixed = bool(others) and any(map(held_back, inputs))
        is_apart = len({s.unit for s in inputs}) > 1 or is_mixed or is_arbitrary(operation)
        is_apart = is_apart or any(isinstance(s.operation, steps.Loop) for s in inputs)
        check_columns(schema.names, name)
        unit = self.next_unit or (name if is_apart else self.step.unit)
        return self._added(Step(operation, name, unit, schema, inputs, changelog))

    def _stateful(
        self,
        operation: steps.Stateful,
        name: str,
        inputs: tuple[Step, ...],
        *,
        changes: Changelog | EllipsisType | None = ...,
    ) -> Stream:
        """A stateful operator: in a unit of its own unless told otherwise.

        Args:
            operation: What it does.
            name: Its name, and by default its unit's.
            inputs: What it reads.
            changes: Of one that takes changelogs: what is known of its own; None: it gives rows.
        """
        name = self.flow.unique_name(require_name(name))
        try:
            operator = build_operator(operation, name, tuple(step.schema for step in inputs))
        except LocalProtocolError as error:
            raise DataflowError(str(error)) from None
        schema = operator.output_schema
        changelog = self._changelog(operation, schema, inputs, changes)
        check_columns(schema.names, name)
        unit = self.next_unit or name
        return self._added(Step(operation, name, unit, schema, inputs, changelog))

    def _changelog(
        self,
        operation: steps.Operation,
        schema: pa.Schema,
        inputs: tuple[Step, ...],
        changes: Changelog | EllipsisType | None,
    ) -> Changelog | None:
        """What is known of an operator's changes; `...`: it is one of rows."""
        if changes is ...:
            require_rows(operation, inputs)
            changes = None
        if changes is None:
            require_no_changes(schema, operation.WORD)
        return changes

    def _added(self, step: Step) -> Stream:
        self.flow.steps.append(step)
        return Stream(self.flow, step)


def schema_of(expressions: Sequence[CompiledExpression]) -> pa.Schema:
    """Of what a projection gives."""
    return pa.schema([pa.field(e.name, e.type) for e in expressions])


@dataclass(frozen=True, slots=True)
class LoopStream(Stream):
    """A stream, and what comes back to it. What reads it stands in a unit of its own."""

    def close(self, back: Stream) -> None:
        """Have these tuples come back.

        Args:
            back: Of the same columns; made of this loop's tuples, at least one unit further on.

        Raises:
            DataflowError: They cannot, or the loop has been closed before.
        """
        operation = self.step.operation
        if not isinstance(operation, steps.Loop):
            raise DataflowError(f"{self.step.name} is no loop; call close on what loop(...) gave")
        if operation.back:
            raise DataflowError(f"loop {self.step.name} is closed already")
        if back.flow is not self.flow:
            raise DataflowError(
                f"loop {self.step.name} is of another dataflow than what comes back"
            )
        if back.schema.types != self.schema.types or back.schema.names != self.schema.names:
            raise DataflowError(
                f"loop {self.step.name} has columns {ddl(self.schema)}, and what comes back "
                f"{ddl(back.schema)}"
            )
        operation.back.append(back.step)
