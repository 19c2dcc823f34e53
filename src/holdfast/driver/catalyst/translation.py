"""From a plan that Spark has analysed to a dataflow: which part runs where, and what is refused.

From the sources up to the first operator with state, Holdfast takes what it can compute itself, and
reads files itself. If something there is not to be translated, Spark computes that part in front of
an ingest log, up to the operator with state; each row depends on one row there, so that it does
not matter who computes it. Whatever stands above is translated, or the query is refused by name.

Spark's watermark counts the rows that come to it. So a source is read by Holdfast only if no filter
lies between it and its watermark: rows that a filter drops would move time here, and not there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from holdfast.api.windows import AnyWindow
from holdfast.core.model.column_names import quoted
from holdfast.driver.catalyst.expressions import (
    aggregate_text_of,
    as_spark_names_it,
    require_same,
    text_of,
    untranslatable,
)
from holdfast.driver.catalyst.joins import JoinOfStreams, united
from holdfast.driver.catalyst.native import Columns, Native
from holdfast.driver.catalyst.processors import drops_late_rows, processed, time_of
from holdfast.driver.catalyst.python_functions import with_functions
from holdfast.driver.catalyst.settings import unmet
from holdfast.driver.catalyst.sources import Mark, files_below, is_marked, read_files, read_frame
from holdfast.driver.catalyst.trees import Expression, Plan, frame_of, plan_of
from holdfast.driver.catalyst.windows import has_windows, windows_of
from holdfast.driver.schemas import schema_from_spark
from holdfast.errors import DataflowError, UnsupportedError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from holdfast.api.dataflow import Dataflow
    from holdfast.api.streams import Stream

_REASONS = {
    "Sort": ("orderBy", "a stream has no end to sort; sort what you read of the sink"),
    "GlobalLimit": ("limit", "a stream has no first rows; limit what you read of the sink"),
    "MapInPandas": ("mapInPandas", "Spark computes it, before any state"),
    "MapInArrow": ("mapInArrow", "Spark computes it, before any state"),
    "Distinct": ("distinct", "there is no deduplication"),
    "TransformWithState": ("transformWithState", "there are none of Scala"),
    "FlatMapGroupsInPandasWithState": (
        "applyInPandasWithState",
        "write the class that transformWithState takes",
    ),
}
"""Clauses that Holdfast does not have: their names, and why."""
_NO_WINDOW: Final = -1
"""The number of no column."""


@dataclass(frozen=True, slots=True)
class Front:
    """A plan that Spark computes, before an ingest log; and why Holdfast does not."""

    plan: Plan
    reason: UnsupportedError | DataflowError


def from_dataframe(
    flow: Dataflow, df: DataFrame, name: str, trigger: Mapping[str, Any] | None, mode: str
) -> None:
    """Give a dataflow the steps of a DataFrame, and a sink; as `Dataflow.from_dataframe`."""
    from pyspark.errors import PySparkException

    try:
        _translate(flow, df, name, trigger, mode)
    except PySparkException as error:
        raise UnsupportedError(f"from_dataframe: Spark: {str(error).splitlines()[0]}") from error


def _translate(
    flow: Dataflow, df: DataFrame, name: str, trigger: Mapping[str, Any] | None, mode: str
) -> None:
    if mode not in ("append", "update", "complete"):
        raise DataflowError(
            f"from_dataframe(mode={mode!r}); it is 'append', 'update' or 'complete'"
        )
    spark = df.sparkSession
    if not df.isStreaming:
        raise DataflowError(
            "from_dataframe takes a streaming DataFrame, of spark.readStream; a batch one is a "
            "source: flow.source(df, name=..., time=...)"
        )
    if (found := unmet(spark)) is not None:
        setting, why = found
        raise UnsupportedError(f"from_dataframe: {why}; set {setting} before the DataFrame is made")
    plan = plan_of(df)
    made = _Translation(flow, spark, name, trigger, has_state=drops_late_rows(plan), mode=mode)
    native = made.grounded(made.fragment(plan, None))
    columns = Columns()
    for number, each in zip(plan.output_ids, df.columns, strict=True):
        own = native.names[number]
        if isinstance(own, str):
            columns.add(number, each, quoted(own))
        else:
            columns.add_window(number, each, own)
    is_renamed = list(columns.own) != native.stream.schema.names
    stream = native.stream.select(*columns.texts) if is_renamed else native.stream
    _require_types(stream.schema, df, columns, plan.output_ids)
    stream.sink(name)


def _require_types(schema: pa.Schema, df: DataFrame, columns: Columns, ids: list[int]) -> None:
    """Raise `UnsupportedError` if a result is of another type than Spark's."""
    from pyspark.sql.types import StructType

    for number, spark_field in zip(ids, df.schema.fields, strict=True):
        own = columns.names[number]
        if isinstance(own, str):
            expected = schema_from_spark(StructType([spark_field])).field(0).type
            found = schema.field(own).type
            if found != expected:
                raise untranslatable(f"column {own!r}", f"it would be {found}, not {expected}")


@dataclass(frozen=True, slots=True)
class _Translation:
    """The translation of one DataFrame.

    Attributes:
        flow: What it becomes.
        spark: The session.
        name: Of the sink.
        trigger: Of the sources.
        has_state: Whether any operator drops rows that are too late; without, none ever is.
        mode: `append`, `update` or `complete`.
    """

    flow: Dataflow
    spark: SparkSession
    name: str
    trigger: Mapping[str, Any] | None
    has_state: bool
    mode: str

    def fragment(self, plan: Plan, mark: Mark | None) -> Native | Front:
        """A plan below `mark`'s watermark, as far as Holdfast can have it.

        Raises:
            UnsupportedError: It is neither to be translated nor without state.
        """
        kept = len(self.flow.steps)
        try:
            return self._native(plan, mark)
        except (UnsupportedError, DataflowError) as error:
            del self.flow.steps[kept:]
            if mark is not None or not plan.is_stateless:
                raise
            return Front(plan, error)

    def grounded(self, fragment: Native | Front, *, has_time: int | None = None) -> Native:
        """The stream of a fragment; that of Spark's part comes from an ingest log.

        Args:
            fragment: What was translated.
            has_time: A column, by its number, whose nulls are to be left out.
        """
        if isinstance(fragment, Native):
            return fragment
        plan = fragment.plan
        try:
            frame = frame_of(self.spark, plan.java)
            ids = plan.output_ids
            if has_time in ids:
                frame = frame.where(f"{quoted(frame.columns[ids.index(has_time)])} IS NOT NULL")
            stream, at = read_frame(self.flow, frame, self.trigger, has_state=self.has_state)
        except (UnsupportedError, DataflowError):
            if plan.kind not in ("Project", "Filter"):
                raise
            below = self.grounded(self.fragment(plan.child, None), has_time=has_time)
            # The time is a column below it.
            return self._passed(plan, below, calls_python=True)
        names = dict(zip(ids, stream.schema.names, strict=True))
        return Native(stream, {**names}, ids[at])

    def _native(self, plan: Plan, mark: Mark | None) -> Native:
        match plan.kind:
            case "StreamingRelation" | "StreamingRelationV2":
                return self._source(plan, mark)
            case "SubqueryAlias" | "View":
                below = self._of(plan.child, mark)
                if not set(plan.output_ids) <= set(below.names):
                    raise untranslatable(plan.kind, "its columns are not those below it")
                return below
            case "EventTimeWatermark":
                if mark is not None:
                    raise untranslatable("withWatermark", "there is another one above it")
                number = plan.expression("eventTime").id
                return self._of(plan.child, Mark(number, is_marked(plan, number)))
            case "Filter":
                if mark is not None:
                    raise untranslatable("a filter before withWatermark", "it keeps time back")
                return self._passed(plan, self._of(plan.child, None))
            case "Project":
                return self._passed(plan, self._of(plan.child, self._below(plan, mark)))
            case "Aggregate":
                return self._aggregate(plan)
            case "Join":
                return self._join(plan, mark)
            case "Union":
                return self._union(plan, mark)
            case "TransformWithStateInPySpark":
                return self._processed(plan, mark)
            case "Deduplicate" | "DeduplicateWithinWatermark":
                return self._distinct(plan, mark)
        clause, why = _REASONS.get(plan.kind, (plan.kind, "Holdfast has no such operator"))
        raise untranslatable(clause, why)

    def _of(self, plan: Plan, mark: Mark | None) -> Native:
        """A fragment that must not be Spark's: else all above it without state is Spark's too."""
        fragment = self.fragment(plan, mark)
        if isinstance(fragment, Front):
            raise fragment.reason
        return fragment

    def _below(self, plan: Plan, mark: Mark | None) -> Mark | None:
        """The mark below a projection, which may have renamed its column."""
        if mark is None:
            return None
        for each in plan.expressions("projectList"):
            if each.id == mark.column:
                inner = each.children[0] if each.kind == "Alias" else each
                if inner.kind == "AttributeReference":
                    return Mark(inner.id, mark.delay_us)
        raise untranslatable("withWatermark", "its column is computed, not of the source")

    def _source(self, plan: Plan, mark: Mark | None) -> Native:
        files = files_below(self.spark, plan)
        ids = plan.output_ids
        names = [str(each["name"]) for [each] in plan.fields["output"]]
        time = None if mark is None else names[ids.index(mark.column)]
        delay_us = 0 if mark is None else mark.delay_us
        stream, at = read_files(
            self.flow,
            files,
            frame_of(self.spark, plan.java).schema,
            time,
            delay_us if self.has_state and mark is not None else None,
            self.trigger,
        )
        return Native(stream, {**dict(zip(ids, names, strict=True))}, ids[at])

    def _passed(self, plan: Plan, below: Native, *, calls_python: bool = False) -> Native:
        """A projection or a filter of a stream; nodes call UDFs where Spark cannot stand."""
        is_filter = plan.kind == "Filter"
        trees = [plan.expression("condition")] if is_filter else plan.expressions("projectList")
        java = plan.child.java
        if calls_python or not plan.is_stateless:
            below, java, trees = with_functions(self.flow, self.spark, below, java, trees)
        if is_filter:
            (condition,) = trees
            require_same(self.spark, java, condition)
            return Native(
                below.stream.filter(text_of(condition, below.written)), below.names, below.time
            )
        columns, time = Columns(), None
        for each in trees:
            inner = each.children[0] if each.kind == "Alias" else each
            if inner.kind == "AttributeReference":
                time = each.id if inner.id == below.time else time
                own = below.names.get(inner.id)
                if isinstance(own, tuple):
                    columns.add_window(each.id, each.name, own)
                    continue
            require_same(self.spark, java, inner)
            columns.add(each.id, each.name, text_of(inner, below.written))
        return Native(below.stream.select(*columns.texts), columns.names, time)

    def _join(self, plan: Plan, mark: Mark | None) -> Native:
        """A join of two streams, each behind a watermark; those with a table are Spark's."""
        if not all(child.java.isStreaming() for child in plan.children):
            raise untranslatable(
                "a join with a static table", "Spark computes it, before any state"
            )
        if mark is not None:
            raise untranslatable("withWatermark", "behind a join its column is another one")
        left, right = self._marked(plan, "a join of two streams")
        return JoinOfStreams(self.spark, plan, left, right).joined(self.flow.unique_name("join"))

    def _union(self, plan: Plan, mark: Mark | None) -> Native:
        """A union whose time goes on as its slowest stream's does, as in Spark."""
        if mark is not None or not self.has_state:
            raise untranslatable("union", "Spark computes it, if nothing behind it has state")
        return united(plan, self._marked(plan, "union", may_be_front=not plan.is_stateless))

    def _marked(self, plan: Plan, clause: str, *, may_be_front: bool = True) -> list[Native]:
        """The streams below, whose event time is the column of a watermark each."""
        found: list[Native] = []
        for child in plan.children:
            times = [each for each in child.output_ids if is_marked(child, each, none=-1) >= 0]
            if len(times) != 1:
                raise untranslatable(
                    clause, "every side has one withWatermark, which says what is late there"
                )
            fragment = self.fragment(child, None) if may_be_front else self._of(child, None)
            below = self.grounded(fragment, has_time=times[0])
            if below.time != times[0]:
                raise untranslatable(clause, "the column of a watermark is not the event time")
            found.append(below)
        return found

    def _distinct(self, plan: Plan, mark: Mark | None) -> Native:
        """`dropDuplicates` and `dropDuplicatesWithinWatermark`, behind a watermark."""
        is_within = plan.kind == "DeduplicateWithinWatermark"
        clause = "dropDuplicatesWithinWatermark" if is_within else "dropDuplicates"
        below_ids = plan.child.output_ids
        marked = {each: is_marked(plan.child, each, none=-1) for each in below_ids}
        times = [each for each, delay_us in marked.items() if delay_us >= 0]
        if mark is not None or len(times) != 1:
            raise untranslatable(
                clause, "there is one withWatermark, which stands before it: it says what is late"
            )
        (time,) = times
        below = self.grounded(self.fragment(plan.child, None), has_time=time)
        if below.time != time:
            raise untranslatable(clause, "the column of its watermark is not the event time")
        columns: list[str] = []
        ids = [each.id for each in plan.expressions("keys")]
        for each in ids:
            own = below.names[each]
            columns += [own] if isinstance(own, str) else own
        is_of_one_time = time in ids and not is_within
        within = f"{marked[time]} microseconds" if is_within else None
        name = self.flow.unique_name("distinct")
        stream = below.stream.distinct(*columns, within=within, same_time=is_of_one_time, name=name)
        return Native(stream, below.names, below.time)

    def _processed(self, plan: Plan, mark: Mark | None) -> Native:
        """A class of the user's behind stateless steps."""
        child = plan.children[0]
        if mark is not None:
            raise untranslatable("transformWithState", "another watermark stands behind it")
        if not child.is_stateless:
            raise untranslatable("transformWithState", "it reads what an operator with state gives")
        times = [each for each in child.output_ids if is_marked(child, each, none=-1) >= 0]
        if time_of(plan) == "event" and len(times) != 1:
            raise untranslatable("transformWithState", "there is one withWatermark before it")
        has_time = times[0] if times else None
        below = self.grounded(self.fragment(child, None), has_time=has_time)
        if times and below.time != has_time:
            raise untranslatable(
                "transformWithState", "the column of its watermark is not the event time"
            )
        return processed(plan, below, self.flow.unique_name(self.name))

    def _aggregate(self, plan: Plan) -> Native:
        is_update = self.mode != "append"
        if is_update and not has_windows(plan):
            return self._running(plan)
        if self.mode == "complete":
            raise untranslatable(
                "groupBy(window(...)) in complete mode",
                "there no row is ever too late; write update mode, with a watermark",
            )
        windows, base, time, window = windows_of(self.spark, plan)
        if not is_marked(base, time, none=-1) >= 0:
            raise untranslatable(
                "groupBy(window(...))",
                "its time has no watermark, so no result is ever final; write "
                "df.withWatermark(column, delay) before it",
            )
        below = self.grounded(self.fragment(base, None), has_time=time)
        if below.time != time:
            raise untranslatable(
                "window(...)", "its column is not the event time of the source any more"
            )
        grouping = _Grouping(self.spark, plan, window, below)
        return grouping.aggregated(windows, self.name, "changes" if is_update else "final")

    def _running(self, plan: Plan) -> Native:
        """Results per key of all rows so far: none is too late, and nothing is ever forgotten."""
        if any(is_marked(plan.child, each, none=-1) >= 0 for each in plan.child.output_ids):
            raise untranslatable(
                "groupBy", "withWatermark is of no use without window(...) in it; leave it out"
            )
        if not plan.child.is_stateless:
            raise untranslatable("groupBy", "it reads what another operator with state puts out")
        below = self.grounded(self.fragment(plan.child, None))
        return _Grouping(self.spark, plan, _NO_WINDOW, below).aggregated(None, self.name, "changes")


@dataclass(frozen=True, slots=True)
class _Grouping:
    """A window aggregate: what it groups by, and what it computes of groups.

    Attributes:
        spark: The session.
        plan: Spark's.
        window: The number of the window's column.
        below: What it reads.
    """

    spark: SparkSession
    plan: Plan
    window: int
    below: Native

    def aggregated(self, windows: AnyWindow | None, name: str, emit: str) -> Native:
        """The stream of results: keys and aggregates, and then the expressions over those."""
        keys, stream = self._keys()
        over: dict[str, str] = {}
        texts: list[str] = []
        results = self.plan.expressions("aggregateExpressions")
        for each in (inner for result in results for inner in result.all()):
            if each.kind == "AggregateExpression":
                own = str(as_spark_names_it(each))
                if own not in over:
                    over[own] = f"aggregate_{len(over)}"
                    text = aggregate_text_of(each, self.below.written)
                    texts.append(f"{text} AS {over[own]}")
        if not texts:
            raise untranslatable("groupBy", "it computes no aggregate; count(*) is one")
        if keys:
            stream = stream.key_by(*keys.values())
        stream = stream if windows is None else stream.window(windows)
        stream = stream.aggregate(*texts, name=name, emit=emit)
        columns = Columns()
        for result in results:
            self._result(result, {**keys, **over}, columns)
        return Native(stream.select(*columns.texts), columns.names, None)

    def _keys(self) -> tuple[dict[str, str], Stream]:
        """By its text in Spark each key's column, and the stream that has all of them."""
        keys: dict[str, str] = {}
        made: list[str] = []
        for tree in self.plan.expressions("groupingExpressions"):
            if tree.kind == "AttributeReference" and tree.id == self.window:
                continue
            require_same(self.spark, self.plan.child.java, tree)
            spark_text = text_of(tree, as_spark_names_it)
            own = self.below.names.get(tree.id) if tree.kind == "AttributeReference" else None
            if isinstance(own, str):
                keys[spark_text] = own
                continue
            keys[spark_text] = f"key_{len(keys)}"
            made.append(f"{text_of(tree, self.below.written)} AS {quoted(keys[spark_text])}")
        stream = self.below.stream.select("*", *made) if made else self.below.stream
        return keys, stream

    def _result(self, result: Expression, known: dict[str, str], columns: Columns) -> None:
        inner = result.children[0] if result.kind == "Alias" else result
        bounds = ("window_start", "window_end")
        if inner.kind == "AttributeReference" and inner.id == self.window:
            columns.add_window(result.id, result.name, bounds)
            return

        def written(tree: Expression) -> str | None:
            if tree.kind == "GetStructField" and tree.children[0].kind == "AttributeReference":
                if tree.children[0].id == self.window:
                    return quoted(bounds[tree.fields["ordinal"]])
                return None
            found = known.get(str(as_spark_names_it(tree)))
            if found is None:
                try:
                    found = known.get(text_of(tree, as_spark_names_it))
                except UnsupportedError:
                    return None
            return None if found is None else quoted(found)

        groups = self.plan.expressions("groupingExpressions")
        texts = [text_of(each, as_spark_names_it) for each in groups]
        require_same(self.spark, self.plan.child.java, inner, *texts)
        columns.add(result.id, result.name, text_of(inner, written))
