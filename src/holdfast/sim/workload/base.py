"""What a run computes: a dataflow, placed, with its input and what must come out."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from holdfast.api.planning import plan_dataflow
from holdfast.core.model.tuples import with_time
from holdfast.sim.workload.oracle import Oracle, TimedRow
from holdfast.sim.workload.source import SimulatedSource

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

    from holdfast.api.dataflow import Dataflow
    from holdfast.core.haunit.plan import NodeLimits, NodePlan, UnitProtection
    from holdfast.core.model.ids import StreamId
    from holdfast.sim.workload.oracle import Meaning


@dataclass(frozen=True, slots=True)
class Recording:
    """The rows of a source as they are recorded: a generator for `Dataflow.source_generator`.

    Attributes:
        schema: Attributes.
        delay_us: How far rows may be out of order.
        records: Per partition its records, each a list of rows.
        arrivals_us: Per partition when each record arrives.
        is_recorded: Whether records can be read whole.
    """

    schema: pa.Schema
    delay_us: int
    records: tuple[tuple[tuple[TimedRow, ...], ...], ...]
    arrivals_us: tuple[tuple[int, ...], ...]
    is_recorded: bool = False

    def spec(self, partition: int, partitions: int) -> SimulatedSource:
        """One partition for the simulator, what is late left out by the core."""
        if partitions != len(self.records):
            raise ValueError(f"{len(self.records)} partitions were recorded, not {partitions}")
        batches = [self._batch(record) for record in self.records[partition]]
        arrivals_us = self.arrivals_us[partition]
        return SimulatedSource.of(batches, self.delay_us, arrivals_us, is_recorded=self.is_recorded)

    def _batch(self, rows: tuple[TimedRow, ...]) -> pa.RecordBatch:
        columns = [
            pa.array([row.values[field.name] for row in rows], field.type) for field in self.schema
        ]
        times = pa.array([row.time_us for row in rows], pa.int64())
        return pa.RecordBatch.from_arrays([*columns, times], schema=with_time(self.schema))

    def on_time(self) -> list[TimedRow]:
        """The rows of all partitions that are not late, by plain Python.

        One partition is read as it is; where several meet, they are merged by time.
        """
        kept: list[TimedRow] = []
        for number, partition in enumerate(self.records):
            mine: list[TimedRow] = []
            newest: int | None = None
            boundary: int | None = None
            for record in partition:
                mine += [row for row in record if boundary is None or row.time_us >= boundary]
                times = [row.time_us for row in record]
                newest = max(times) if newest is None else max(newest, *times)
                late_before = newest - self.delay_us
                boundary = late_before if boundary is None else max(boundary, late_before)
            is_only = len(self.records) == 1
            kept += [
                replace(row, place=(i,) if is_only else (row.time_us, number, i))
                for i, row in enumerate(mine)
            ]
        return kept

    def to_dataframe(self, spark: SparkSession) -> DataFrame:
        """The on-time rows for the batch twin, times in `__time_us`, and their order."""
        rows = sorted(self.on_time(), key=lambda row: row.place)
        table = pa.Table.from_batches([self._batch(tuple(rows))])
        numbers = pa.list_(pa.int64())
        order = [list(row.place) for row in rows]
        table = table.append_column("__order", pa.array(order, numbers))
        table = table.append_column("__ties", pa.array([[]] * len(rows), numbers))
        return spark.createDataFrame(table)


@dataclass(frozen=True, slots=True)
class Workload:
    """One dataflow of a run.

    Attributes:
        flow: As a user writes it.
        plans: Its nodes.
        sources: What each source stream holds.
        expected: Per sink its rows, from the oracle.
    """

    flow: Dataflow
    plans: tuple[NodePlan, ...]
    sources: dict[StreamId, SimulatedSource]
    expected: dict[str, Counter[tuple[Any, ...]]]


def placed(
    flow: Dataflow,
    meanings: dict[str, Meaning],
    parallelism: int | dict[str, int],
    limits: NodeLimits,
    protection: Callable[[str], UnitProtection],
) -> Workload:
    """Plan a dataflow whose sources are recordings, and evaluate it."""
    plan = plan_dataflow(
        flow,
        "",
        parallelism=parallelism,
        limits=limits,
        protection=protection,
    )
    inputs = {
        step.name: step.settings["generator"].on_time()
        for step in flow.steps
        if step.kind == "source"
    }
    expected = Oracle(inputs, meanings).expected(flow)
    sources: dict[StreamId, Any] = dict(plan.sources)
    return Workload(flow, plan.nodes, sources, expected)
