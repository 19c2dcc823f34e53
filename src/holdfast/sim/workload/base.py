"""What a run computes: a dataflow, placed, with its input and what must come out."""

from __future__ import annotations

import abc
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from holdfast.api.operators import is_arbitrary
from holdfast.api.steps import FromGenerator, Source
from holdfast.api.windows import AnyWindow, CountWindow, SessionWindow
from holdfast.core.model.ids import BEGINNING_US, END_US
from holdfast.core.model.tuples import with_time
from holdfast.core.queues.lateness import CommitTimes, FileTimes, FileTimesMaker
from holdfast.planning.footprints import why_no_footprints
from holdfast.planning.plan import plan_dataflow
from holdfast.planning.replicas import with_sink_units
from holdfast.planning.units import ports_read, units_of
from holdfast.sim.workload.oracle import Conserved, Expected, Oracle, TimedRow
from holdfast.sim.workload.promises import promises_of
from holdfast.sim.workload.source import Arrival, SimulatedFile, SimulatedSource

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from holdfast.api.dataflow import Dataflow
    from holdfast.core.haunit.plan import NodeLimits, NodePlan, UnitProtection
    from holdfast.core.model.ids import StreamId
    from holdfast.sim.draw import Draw
    from holdfast.sim.workload.oracle import Meaning, Table
    from holdfast.sim.workload.promises import Promise


Record = tuple[TimedRow, ...]
SPAN_US: Final = 1_000_000
"""All input arrives within so much virtual time."""


class Recorded(abc.ABC):
    """Rows of a source as they are recorded: a generator for `Dataflow.source_generator`.

    Attributes:
        schema: Attributes.
        delay_us: How far rows may be out of order.
        is_recorded: Whether records can be read whole.
        ahead_us: How far ahead of the stream, and the clock, rows still move time; None: at will.
        says_behind: Whether files say of their records how old the rows behind them are.
    """

    schema: pa.Schema
    delay_us: int
    is_recorded: bool
    ahead_us: int | None = None
    says_behind: bool = False

    @abc.abstractmethod
    def arrivals(self, partition: int, partitions: int) -> tuple[Arrival, ...]:
        """What comes to a partition."""

    @abc.abstractmethod
    def kept(self) -> list[list[TimedRow]]:
        """Per partition the rows that are not late, as they are read, by plain Python."""

    def spec(self, partition: int, partitions: int) -> SimulatedSource:
        """One partition for the simulator, what is late left out by the core."""
        arrivals = self.arrivals(partition, partitions)
        return SimulatedSource(self.delay_us, arrivals, self.is_recorded, ahead_us=self.ahead_us)

    def file(self, records: Sequence[Record], clock_us: int = BEGINNING_US) -> SimulatedFile:
        """A file of records, written at a time, and what its commit says of it."""
        behind_us = [END_US if self.says_behind else BEGINNING_US]
        for record in reversed(records[1:]):
            behind_us.append(min(behind_us[-1], *(row.time_us for row in record)))
        rows = tuple(self._batch(record) for record in records)
        if self.ahead_us is not None:
            maker = FileTimesMaker(self.ahead_us, clock_us)
            for record in records:
                maker.add(np.array([row.time_us for row in record], dtype=np.int64))
            return SimulatedFile(maker.made(), rows, tuple(reversed(behind_us)))
        newest = records[0][0].time_us
        disorder_us = 0
        for row in (row for record in records for row in record):
            newest = max(newest, row.time_us)
            disorder_us = max(disorder_us, newest - row.time_us)
        times_us = [row.time_us for record in records for row in record]
        times = FileTimes(len(times_us), min(times_us), newest, disorder_us)
        return SimulatedFile(times, rows, tuple(reversed(behind_us)))

    def _batch(self, rows: Record) -> pa.RecordBatch:
        columns = [
            pa.array([row.values[field.name] for row in rows], field.type) for field in self.schema
        ]
        times = pa.array([row.time_us for row in rows], pa.int64())
        return pa.RecordBatch.from_arrays([*columns, times], schema=with_time(self.schema))

    def on_time(self) -> list[TimedRow]:
        """The rows of all partitions that are not late, each in its order."""
        return [
            replace(row, place=(i,), instance=number)
            for number, mine in enumerate(self.kept())
            for i, row in enumerate(mine)
        ]

    def to_dataframe(self, spark: SparkSession) -> DataFrame:
        """The on-time rows for the batch twin, times in `__time_us`, and their order."""
        rows = self.on_time()
        table = pa.Table.from_batches([self._batch(tuple(rows))])
        numbers = pa.list_(pa.int64())
        order = [list(row.place) for row in rows]
        if len(self.kept()) > 1:  # Where several meet, they are merged by time.
            order = [[row.time_us, row.instance or 0, *row.place] for row in rows]
        table = table.append_column("__order", pa.array(order, numbers))
        table = table.append_column("__ties", pa.array([[]] * len(rows), numbers))
        return spark.createDataFrame(table)


@dataclass(frozen=True, slots=True)
class Recording(Recorded):
    """Partitions on their own: each record is a commit, and each partition a log of its own.

    Attributes:
        records: Per partition its records, each a list of rows.
        arrivals_us: Per partition when each record arrives.
    """

    schema: pa.Schema
    delay_us: int
    records: tuple[tuple[Record, ...], ...]
    arrivals_us: tuple[tuple[int, ...], ...]
    is_recorded: bool = False

    def arrivals(self, partition: int, partitions: int) -> tuple[Arrival, ...]:
        """See the base."""
        _require(partitions, len(self.records))
        files = [self.file([record]) for record in self.records[partition]]
        return tuple(
            Arrival(at_us, CommitTimes([file.times]), (file,))
            for file, at_us in zip(files, self.arrivals_us[partition], strict=True)
        )

    def kept(self) -> list[list[TimedRow]]:
        """See the base."""
        partitions: list[list[TimedRow]] = []
        for partition, arrivals_us in zip(self.records, self.arrivals_us, strict=True):
            mine: list[TimedRow] = []
            newest: int | None = None
            for record, at_us in zip(partition, arrivals_us, strict=True):
                late_before = None if newest is None else newest - self.delay_us
                mine += [
                    replace(row, since_us=at_us)
                    for row in record
                    if late_before is None or row.time_us >= late_before
                ]
                times = [row.time_us for row in record]
                newest = max(times) if newest is None else max(newest, *times)
            partitions.append(mine)
        return partitions


@dataclass(frozen=True, slots=True)
class RecordedCommit:
    """A commit of an ingest log, or of a Structured Streaming query's micro-batch into it.

    Attributes:
        at_us: When it arrives.
        files: Each a list of records.
        watermark_us: Spark's watermark during the batch; None: there is none.
        idle: When Spark is idle behind it, and the watermark that it has come to; None: it is not.
        clock_us: The time of day when it was made; `BEGINNING_US`: nobody knows.
    """

    at_us: int
    files: tuple[tuple[Record, ...], ...]
    watermark_us: int | None = None
    idle: tuple[int, int] | None = None
    clock_us: int = BEGINNING_US


@dataclass(frozen=True, slots=True)
class CommittedRecording(Recorded):
    """One log for all partitions, of which each reads every so many-th file of a commit.

    Attributes:
        commits: In their order.
        partitions: How many there are.
    """

    schema: pa.Schema
    delay_us: int
    commits: tuple[RecordedCommit, ...]
    partitions: int
    is_recorded: bool = False
    ahead_us: int | None = None
    says_behind: bool = False

    def arrivals(self, partition: int, partitions: int) -> tuple[Arrival, ...]:
        """See the base."""
        _require(partitions, self.partitions)
        found: list[Arrival] = []
        idle_us: int | None = None
        for commit in self.commits:
            files = tuple(self.file(records, commit.clock_us) for records in commit.files)
            told = [file.times for file in files]
            times = CommitTimes(told, commit.watermark_us, idle_us, commit.clock_us)
            found.append(Arrival(commit.at_us, times, files[partition::partitions]))
            idle_us = None
            if commit.idle is not None:
                at_us, idle_us = commit.idle
                found.append(Arrival(at_us, None, idle_us=idle_us))
        return tuple(found)

    def kept(self) -> list[list[TimedRow]]:
        """See the base."""
        partitions: list[list[TimedRow]] = [[] for _ in range(self.partitions)]
        late_before = newest = clock_us = BEGINNING_US
        for commit in self.commits:
            for number, file in enumerate(commit.files):
                partitions[number % self.partitions] += [
                    replace(row, since_us=commit.at_us)
                    for record in file
                    for row in record
                    if row.time_us >= late_before
                ]
            clock_us = max(clock_us, commit.clock_us)
            newest = self._moved(newest, commit, clock_us)
            told_us = [commit.watermark_us]
            if commit.idle is not None:
                told_us.append(commit.idle[1])
            for watermark_us in told_us:
                settled_us = watermark_us
                if settled_us is None or not self._is_near(settled_us, max(newest, clock_us)):
                    settled_us = newest - self.delay_us
                late_before = max(late_before, settled_us)
        return partitions

    def _is_near(self, time_us: int, reached_us: int) -> bool:
        return self.ahead_us is None or time_us <= reached_us + self.ahead_us

    def _moved(self, newest: int, commit: RecordedCommit, clock_us: int) -> int:
        """How far the rows of a commit move time, of which there are too few to jump for good."""
        reached_us = max(newest, clock_us)
        for time_us in sorted(r.time_us for file in commit.files for rows in file for r in rows):
            if self._is_near(time_us, reached_us):
                reached_us = max(reached_us, time_us)
            elif newest == BEGINNING_US:
                reached_us = time_us  # Nothing has moved it yet: the oldest begin.
            else:
                break
            newest = max(newest, time_us)
        return newest


def _require(partitions: int, recorded: int) -> None:
    if partitions != recorded:
        raise ValueError(f"{recorded} partitions were recorded, not {partitions}")


@dataclass(frozen=True, slots=True)
class Workload:
    """One dataflow of a run.

    Attributes:
        flow: As a user writes it.
        plans: Its nodes.
        sources: What each source stream holds.
        expected: What its sinks must hold, from the oracle.
        promises: What of that holds in sinks that have units with weaker guarantees before them.
    """

    flow: Dataflow
    plans: tuple[NodePlan, ...]
    sources: dict[StreamId, SimulatedSource]
    expected: Expected
    promises: dict[str, Promise]


def _possible(flow: Dataflow, unit: str, protection: UnitProtection) -> UnitProtection:
    """What an arbitrary unit cannot have, it waits for; what leaves no footprints is replayed."""
    steps = [step for step in flow.steps if step.unit == unit]
    if why_no_footprints(steps) is not None:
        protection = replace(protection, footprints=None)
    if any(is_arbitrary(step.operation) for step in steps):
        return replace(protection, delays=None)
    delays = protection.delays
    if delays is not None and any(isinstance(step.operation, Source) for step in steps):
        return replace(protection, delays=replace(delays, replicas=1))
    return protection


def placed(
    flow: Dataflow,
    meanings: dict[str, Meaning],
    parallelism: int | dict[str, int],
    limits: NodeLimits,
    protection: Callable[[str], UnitProtection],
    conserved: dict[str, Conserved] | None = None,
    tables: dict[str, Table] | None = None,
) -> Workload:
    """Plan a dataflow whose sources are recordings, and evaluate it.

    Args:
        flow: The dataflow.
        meanings: Per SQL text what it computes.
        parallelism: Instances of units.
        limits: Bounds and periods of nodes.
        protection: Of a unit, by its name.
        conserved: Of sinks that chance decides what it cannot change.
        tables: Of changelogs the rows that there are in the end.
    """

    def of_unit(unit: str) -> UnitProtection:
        return _possible(flow, unit, protection(unit))

    plan = plan_dataflow(flow, "", parallelism=parallelism, limits=limits, protection=of_unit)
    with_sinks = with_sink_units(flow, of_unit)
    inputs = {
        step.name: step.operation.generator.on_time()
        for step in flow.steps
        if isinstance(step.operation, FromGenerator)
    }
    ports = {unit: ports_read(members) for unit, members in units_of(with_sinks).items()}
    instances = Counter(unit for unit, _ in dict.fromkeys((n.unit, n.index) for n in plan.nodes))
    oracle = Oracle(inputs, meanings, ports, instances)
    expected = oracle.expected(with_sinks, conserved or {}, tables)
    sources: dict[StreamId, Any] = dict(plan.sources)
    stood_for = {sink: one.step for sink, one in (conserved or {}).items()}
    promises = promises_of(flow, plan.nodes, stood_for)
    return Workload(flow, plan.nodes, sources, expected, promises)


def cut_up(rows: Sequence[TimedRow], rows_max: int, draw: Draw) -> tuple[Record, ...]:
    """Rows in records, each of one to so many."""
    records: list[Record] = []
    begin = 0
    while begin < len(rows):
        end = begin + draw.number(1, rows_max)
        records.append(tuple(rows[begin:end]))
        begin = end
    return tuple(records)


def evenly(records: Sequence[Record], span_us: int = SPAN_US) -> tuple[int, ...]:
    """When each record arrives: evenly, the last one when so much time is over."""
    return tuple(span_us * (i + 1) // len(records) for i in range(len(records)))


def first_rows(records: list[Record], tuples_max: int) -> list[Record]:
    """Of the records of a partition the first ones, with so many rows at most."""
    kept: list[Record] = []
    room = tuples_max
    for record in records:
        if room <= 0:
            break
        kept.append(record[:room])
        room -= len(kept[-1])
    return kept


def copies_in(windows: AnyWindow) -> int:
    """In how many of these windows a tuple is at most."""
    if isinstance(windows, SessionWindow):
        return 1
    if isinstance(windows, CountWindow):
        return -(-windows.size // windows.advance)
    return -(-windows.size_us // windows.slide_us)
