"""`verify`: a sink compared with its batch twin, tuple by tuple, copies, ids and order.

One Spark job tells whether they are the same. If they are not, more jobs look for what differs.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from pyspark.sql import Window as SqlWindow
from pyspark.sql import functions as F

from holdfast.api.steps import FromGenerator, FromKafka, Source, Step
from holdfast.core.model.column_names import quoted
from holdfast.core.model.ids import END_US
from holdfast.core.model.tuples import TIME_COLUMN
from holdfast.driver.batch_twin import ORDER, has_order, log_of, ordered, partitions_of
from holdfast.driver.comparable import comparable
from holdfast.driver.delta_sink import DeltaSink
from holdfast.driver.kept_part import kept_part
from holdfast.driver.newest import table_of
from holdfast.driver.originals import InputCheck, check_input
from holdfast.driver.readable_sinks import ReadableSink, present
from holdfast.errors import OptionError, UnsupportedError
from holdfast.planning.units import lineage
from holdfast.shell.kafka import positions
from holdfast.shell.spark.journal import registry_at
from holdfast.shell.spark.small_logs import gaps_now, load_now
from holdfast.shell.storage import ingest_log
from holdfast.shell.storage.beginnings import first_kept
from holdfast.shell.storage.logs import open_kept
from holdfast.shell.storage.paths import kafka_path
from holdfast.shell.storage.places import store_at

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

    from holdfast.api.graph import Graph
    from holdfast.driver.feed_check import FeedCheck
    from holdfast.driver.kept_part import KeptPart


@dataclass(frozen=True, slots=True)
class Verification:
    """What comparing a sink with its batch twin gave.

    Attributes:
        sink: The sink.
        expected: Tuples of the twin.
        actual: Tuples of the sink.
        open: Tuples of the twin that the sink lacks and need not have yet: its stream may still
            bring tuples as old, as its input has not ended.
        lost: Other tuples of the twin that the sink lacks, copies counted.
        doubled: Tuples of the sink that the twin lacks, copies counted.
        gaps: Ids missing from, or repeated in, the sink's streams.
        misplaced: Tuples that the twin has at another place; None: the order was not compared, as
            none is promised or known, or tuples are open, lost or doubled.
        sample: Up to five differing rows, as text.
        dropped: Rows of the sources before the sink that came too late: neither the sink nor the
            twin has them.
        compared_with: `recorded`: the twin has read what was recorded of the sources; `original`:
            and that was compared with what the user gave, as `inputs` says.
        inputs: Per source before the sink; empty: only what was recorded was compared with.
        corrections: What the sink's feed holds; None: it was not looked at.
        removed: What is not kept any more, so that it was not compared; empty: all was.
    """

    sink: str
    expected: int
    actual: int
    open: int
    lost: int
    doubled: int
    gaps: int
    misplaced: int | None
    sample: tuple[str, ...]
    dropped: int = 0
    compared_with: str = "recorded"
    inputs: tuple[InputCheck, ...] = ()
    corrections: FeedCheck | None = None
    removed: tuple[str, ...] = ()

    @property
    def is_identical(self) -> bool:
        """Whether the sink holds exactly the twin's tuples that it must, each once and, as far as
        an order is known, in order; ids without gaps; and all that was given was recorded once.
        If its feed was looked at, all that was undone has left tuples that it holds. False where
        something was removed by now, so that it could not be compared; see `agrees`.
        """
        return self.agrees and not self.removed

    @property
    def agrees(self) -> bool:
        """The same of what could be compared: all of it, but for what `removed` names."""
        is_recorded = all(i.lost == i.doubled == 0 for i in self.inputs)
        is_undone = self.corrections is None or not self.corrections.faults
        return (
            is_recorded
            and is_undone
            and self.lost == self.doubled == self.gaps == 0
            and not self.misplaced
        )


def verify(
    flow: Graph, spark: SparkSession, sink: str, location: str, source: str = "recorded"
) -> Verification:
    """Compare a sink with its batch twin, tuple by tuple, copies counted, ids and order checked.

    Args:
        flow: The dataflow.
        spark: The session.
        sink: The sink.
        location: The checkpoint location.
        source: `recorded`, or `original`: compare what was recorded with what the user gave, too.

    Raises:
        OptionError: `source` is something else.
        QueryFailedError: What the user gave cannot be read again.
        UnsupportedError: The dataflow has changed there, or the sink is a table by key that is not
            done yet.
    """
    decided = registry_at(location)
    if decided.dataflow is not None:
        raise UnsupportedError(
            f"{location} has gone on with a changed dataflow: no batch query gives what both have "
            "put out, so that nothing can be compared"
        )
    if source not in ("recorded", "original"):
        raise OptionError(f"verify(source={source!r}); it is 'recorded' or 'original'")
    # Instances that are gone promise nothing; None: all that have ever been are there.
    instances = (decided.instances or {}).get(flow.sinks[sink].unit)
    of = flow.outside_sinks.get(sink)
    by_key = of if isinstance(of, DeltaSink) and of.upserts is not None else None
    if by_key is not None and by_key.promised_us(sink, location, instances) < END_US:
        raise UnsupportedError(
            f"sink {sink} is a table by key, and more changes are to come: rows that they will "
            "replace are neither right nor wrong. Verify it when the query has ended"
        )
    part = kept_part(flow, sink, location)
    rows = ordered(flow, spark, sink, location)
    if by_key is not None:
        rows = table_of(rows.drop(*ORDER), TIME_COLUMN)  # It holds what the changes come to.
    rows = comparable(rows)
    columns = [quoted(column) for column in rows.columns if column not in (TIME_COLUMN, *ORDER)]
    stored = _stored(flow, spark, sink, location, instances)
    stored = replace(stored, rows=comparable(stored.rows))
    sources = _sources_before(flow.sinks[sink])
    inputs: tuple[InputCheck, ...] = ()
    if source == "original":
        inputs = tuple(check_input(step, spark, location) for step in sources)
    if part.removed:
        found = _of_part(rows, columns, stored, part)
    else:
        found = _sameness(rows, columns, stored) or _differences(rows, columns, stored)
    return Verification(
        sink,
        **found,
        dropped=sum(_late_rows(step, location) for step in sources),
        compared_with=source,
        inputs=inputs,
        removed=part.removed,
    )


@dataclass(frozen=True, slots=True)
class _Stored:
    """What a sink holds.

    Attributes:
        rows: With `_partition` and `_tuple_id`, if it is a log.
        promised_us: Nothing older than this comes to it any more; `END_US`: nothing at all.
        streams: How many it has, if it is a log; otherwise 0.
        begins: Of each of them that lacks its oldest tuples, the first id that it has.
        path: Where its log lies, if it is one.
    """

    rows: DataFrame
    promised_us: int
    streams: int
    begins: Mapping[int, int] = field(default_factory=dict)
    path: str = ""

    def has_order_of(self, twin: DataFrame) -> bool:
        """Whether the order of its rows is known: that of several instances is for them to say."""
        return self.streams == 1 and has_order(twin)


def _sameness(twin: DataFrame, columns: list[str], stored: _Stored) -> dict[str, Any] | None:
    """What one job tells, if a sink holds its twin's rows, each as often and at its place."""
    place, id_ = F.lit(None).cast("bigint"), F.lit(None).cast("bigint")
    if stored.has_order_of(twin):
        place, id_ = _place_in_order(), F.col("_tuple_id")
    expected = twin.select(*columns, place.alias("__place"), F.lit(1).alias("__of_twin"))
    found = stored.rows.select(*columns, id_.alias("__place"), F.lit(0).alias("__of_twin"))
    of_both = (
        expected.union(found)
        .groupBy(*columns, "__place")
        .agg(F.sum("__of_twin").alias("__expected"), F.count("*").alias("__rows"))
        .agg(
            F.sum("__expected").alias("expected"),
            F.sum("__rows").alias("rows"),
            F.count_if(F.col("__rows") != 2 * F.col("__expected")).alias("differing"),
        )
        .first()
    )
    assert of_both is not None
    if of_both["differing"]:
        return None
    is_ordered = stored.has_order_of(twin)
    gaps = 0 if is_ordered or not stored.streams else _gaps(stored, stored.rows)
    count = of_both["expected"] or 0
    return {
        "expected": count,
        "actual": count,
        "open": 0,
        "lost": 0,
        "doubled": 0,
        "gaps": gaps,
        "misplaced": 0 if is_ordered else None,
        "sample": (),
    }


def _differences(twin: DataFrame, columns: list[str], stored: _Stored) -> dict[str, Any]:
    """How a sink differs from its twin."""
    kept = stored.rows.persist()
    expected, actual = twin.select(*columns), kept.select(*columns)
    missing = expected.exceptAll(actual).persist()
    lost = missing
    if stored.promised_us < END_US and missing.count():
        due = twin.where(F.col(TIME_COLUMN) < stored.promised_us).select(*columns)
        lost = due.exceptAll(actual).persist()
    doubled = actual.exceptAll(expected).persist()
    sample = [f"lost {row}" for row in lost.take(3)]
    sample += [f"not expected {row}" for row in doubled.take(2)]
    gaps = _gaps(stored, kept) if stored.streams else 0
    misplaced: int | None = None
    is_whole = not (missing.count() or doubled.count() or gaps)
    if is_whole and stored.has_order_of(twin):
        moved = _moved(twin, columns, kept)
        misplaced = moved.count()
        sample = [f"misplaced {row}" for row in moved.take(5)]
    found = {
        "expected": expected.count(),
        "actual": kept.count(),
        "open": missing.count() - lost.count(),
        "lost": lost.count(),
        "doubled": doubled.count(),
        "gaps": gaps,
        "misplaced": misplaced,
        "sample": tuple(sample),
    }
    for frame in (kept, missing, lost, doubled):
        frame.unpersist()
    return found


def _of_part(
    twin: DataFrame, columns: list[str], stored: _Stored, part: KeptPart
) -> dict[str, Any]:
    """How what is kept differs from what follows from what is kept. Its order is not compared.

    A sink outside says no times: its results may all be older than those that are due.
    """
    of_sink = replace(stored, streams=0)
    if not part.is_input_whole:
        twin = twin.where(F.col(TIME_COLUMN) >= part.from_us)
        if stored.streams:
            due = F.unix_micros("_time") >= part.from_us
            of_sink = replace(of_sink, rows=stored.rows.where(due))
    found = _differences(twin, columns, of_sink)
    if stored.streams:
        found["gaps"] = _gaps(stored, stored.rows)
    elif not part.is_input_whole:
        found["doubled"] = 0
    if not part.is_sink_whole:
        found["open"] = found["lost"] = 0
    is_due = {"lost": found["lost"], "not": found["doubled"]}
    found["sample"] = tuple(each for each in found["sample"] if is_due[each.split()[0]])
    return found


def _stored(
    flow: Graph, spark: SparkSession, sink: str, location: str, instances: int | None
) -> _Stored:
    outside: object = flow.outside_sinks.get(sink)
    if isinstance(outside, ReadableSink):
        found = outside.read(sink, spark, location, flow.sinks[sink].schema)
        return _Stored(found, outside.promised_us(sink, location, instances), 0)
    path = os.path.join(location, "streams", sink)
    streams = {name: os.path.join(path, name) for name in store_at(path).children()}
    firsts = {int(name): first_kept(place) for name, place in streams.items() if name.isdigit()}
    begins = {stream: first for stream, first in firsts.items() if first}
    rows = load_now(spark, path, metadata="true")
    named = {f"{sink}[{name}]": place for name, place in streams.items()}
    promised_us = min(map(_promised_us, present(named, instances)), default=END_US)
    return _Stored(rows, promised_us, len(streams), begins, path)


def _promised_us(stream: str) -> int:
    """Nothing older than this comes to a stream any more; `END_US` if nothing comes at all."""
    reader = open_kept(stream)
    reader.skip_to_end()
    found = END_US if reader.ended else reader.boundary_us
    reader.close()
    return found


def _place_in_order() -> Any:
    return (F.row_number().over(SqlWindow.orderBy(*ORDER)) - 1).cast("bigint")


def _gaps(stored: _Stored, rows: DataFrame) -> int:
    """Ids missing from, or repeated in, the streams of a sink, which has these rows."""
    counted = gaps_now(stored.path)
    if counted is not None:
        return counted
    order = SqlWindow.partitionBy("_partition").orderBy("_tuple_id")
    before = F.lit(-1)
    for stream, first in stored.begins.items():
        before = F.when(F.col("_partition") == stream, first - 1).otherwise(before)
    previous = F.coalesce(F.lag("_tuple_id").over(order), before)
    steps = rows.select((F.col("_tuple_id") - previous).alias("step"))
    return int(steps.where("step <> 1").count())


def _moved(twin: DataFrame, columns: list[str], stored: DataFrame) -> DataFrame:
    """The tuples of a sink that the twin has at another place."""
    expected = twin.select(
        _place_in_order().alias("_tuple_id"), F.struct(*columns).alias("__expected")
    )
    found = stored.select("_tuple_id", F.struct(*columns).alias("__found"))
    differ = ~F.col("__expected").eqNullSafe(F.col("__found"))
    return found.join(expected, "_tuple_id").where(differ).orderBy("_tuple_id")


def _sources_before(step: Step) -> list[Step]:
    """All sources before a step, each once."""
    return [found for found in lineage([step]) if isinstance(found.operation, Source)]


def _late_rows(source: Step, location: str) -> int:
    match source.operation:
        case FromGenerator():
            return 0
        case FromKafka(partitions=partitions):
            places = (kafka_path(location, source.name, i) for i in range(partitions))
            return sum(positions.late_rows_of(place) for place in places)
        case _:
            return ingest_log.late_rows_of(log_of(source, location), partitions_of(source))
