"""Small dataflows for the simulator, with an independent evaluation of what they mean."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from holdfast.core.haunit.plan import InputSpec, NodeLimits, NodePlan, OperatorSpec, OutputSpec
from holdfast.core.model.ids import BEGINNING_US, END_US, NodeId, StreamId
from holdfast.core.model.tuples import TIME_COLUMN, TupleBatch, with_time
from holdfast.core.operators.aggregate import WindowAggregate
from holdfast.core.operators.base import Operator
from holdfast.core.operators.incremental_join import IncrementalJoin
from holdfast.sim.world import SimulatedSource

SCHEMA = pa.schema([("key", pa.int64()), ("value", pa.int64())])
WINDOW_US = 1_000
LIMITS = NodeLimits(
    input_queue_tuples=256,
    output_queue_tuples=256,
    output_queue_bytes=8_000,
    round_tuples=64,
)

Rows = list[tuple[int, int, int]]  # (time, key, value)


@dataclass(frozen=True, slots=True)
class Case:
    """A dataflow with its input, and the rows each sink must hold, in any order."""

    plans: tuple[NodePlan, ...]
    sources: dict[StreamId, SimulatedSource]
    expected: Counter[tuple[Any, ...]]


def counts_case(seed: int, *, senders: int, counters: int, tuples: int, is_deep: bool) -> Case:
    """Sources, a keyed count per window, and if deep a count of counts after it."""
    chance = random.Random(f"{seed}/workload")
    inputs = [_rows(chance, tuples) for _ in range(senders)]
    sources = {StreamId(f"source[{i}]"): _source(rows) for i, rows in enumerate(inputs)}
    plans = [_ingest(i, StreamId(f"source[{i}]"), "counts", counters) for i in range(senders)]
    counted = _count("counts", SCHEMA, ["key"], WINDOW_US).output_schema
    for j in range(counters):
        streams = tuple(
            InputSpec(StreamId(f"ingest[{i}]>counts[{j}]"), 0, SCHEMA, NodeId(f"ingest[{i}]"))
            for i in range(senders)
        )
        build = partial(_count, "counts", SCHEMA, ["key"], WINDOW_US)
        sink = _sink("out", j, counted) if not is_deep else _to_one("counts", j, "totals", counted)
        plans.append(_node("counts", j, streams, 1, build, sink))
    if is_deep:
        streams = tuple(
            InputSpec(StreamId(f"counts[{j}]>totals[0]"), 0, counted, NodeId(f"counts[{j}]"))
            for j in range(counters)
        )
        build = partial(_count, "totals", counted, ["n"], 4 * WINDOW_US)
        plans.append(_node("totals", 0, streams, 1, build, _sink("out", 0, build().output_schema)))
    per_window = Counter(
        (time // WINDOW_US * WINDOW_US, key) for rows in inputs for time, key, _ in rows
    )
    expected: Counter[tuple[Any, ...]] = Counter()
    if is_deep:
        size = 4 * WINDOW_US
        totals = Counter(
            ((start + WINDOW_US - 1) // size * size, n) for (start, _), n in per_window.items()
        )
        expected.update((start, n, count) for (start, n), count in totals.items())
    else:
        expected.update((start, key, n) for (start, key), n in per_window.items())
    return Case(tuple(plans), sources, expected)


def join_case(seed: int, *, tuples: int) -> Case:
    """Two sources joined on their keys for ever: nothing is ever trimmed."""
    chance = random.Random(f"{seed}/workload")
    left, right = _rows(chance, tuples), _rows(chance, tuples)
    sources = {StreamId("source[0]"): _source(left), StreamId("source[1]"): _source(right)}
    plans = [_ingest(i, StreamId(f"source[{i}]"), "join", 1) for i in range(2)]
    streams = tuple(
        InputSpec(StreamId(f"ingest[{i}]>join[0]"), i, SCHEMA, NodeId(f"ingest[{i}]"))
        for i in range(2)
    )
    build = _join
    plans.append(_node("join", 0, streams, 2, build, _sink("out", 0, build().output_schema)))
    expected = Counter((key, a, b) for _, key, a in left for _, other, b in right if other == key)
    return Case(tuple(plans), sources, expected)


def _join() -> Operator:
    fields = [("left", "key", "key"), ("left", "value", "a"), ("right", "value", "b")]
    return IncrementalJoin("join", SCHEMA, SCHEMA, ["key"], ["key"], fields)


def _count(name: str, schema: pa.Schema, keys: list[str], size_us: int) -> Operator:
    return WindowAggregate(name, schema, keys, [("count", None, "n")], size_us=size_us)


def _rows(chance: random.Random, tuples: int) -> Rows:
    time, rows = 0, []
    for value in range(tuples):
        time += int(chance.random() * 40)
        rows.append((time, int(chance.random() * 12), value))
    return rows


def _source(rows: Rows) -> SimulatedSource:
    batches = []
    for first in range(0, len(rows), 25):
        part = rows[first : first + 25]
        columns = [
            pa.array([key for _, key, _ in part], pa.int64()),
            pa.array([value for _, _, value in part], pa.int64()),
            pa.array([time for time, _, _ in part], pa.int64()),
        ]
        following = rows[first + 25][0] if first + 25 < len(rows) else END_US
        batch = pa.RecordBatch.from_arrays(columns, schema=with_time(SCHEMA))
        batches.append(TupleBatch(first, batch, following))
    return SimulatedSource(tuple(batches), 0.5)


def _ingest(i: int, source: StreamId, unit: str, receivers: int) -> NodePlan:
    output = OutputSpec(
        ("port", 0),
        SCHEMA,
        tuple(StreamId(f"ingest[{i}]>{unit}[{j}]") for j in range(receivers)),
        tuple(NodeId(f"{unit}[{j}]") for j in range(receivers)),
        ("key",),
    )
    inputs = (InputSpec(source, 0, SCHEMA, None),)
    return NodePlan(NodeId(f"ingest[{i}]"), "ingest", i, inputs, 1, (), (output,), limits=LIMITS)


def _node(
    unit: str,
    index: int,
    inputs: tuple[InputSpec, ...],
    ports: int,
    build: Callable[[], Operator],
    output: OutputSpec,
) -> NodePlan:
    origins = tuple(("port", port) for port in range(ports))
    operators = (OperatorSpec(unit, build, origins),)
    return NodePlan(
        NodeId(f"{unit}[{index}]"), unit, index, inputs, ports, operators, (output,), limits=LIMITS
    )


def _sink(name: str, index: int, schema: pa.Schema) -> OutputSpec:
    stream = StreamId(f"{name}[{index}]")
    return OutputSpec(("operator", 0), schema, (stream,), (), is_sink=True)


def _to_one(unit: str, index: int, receiver: str, schema: pa.Schema) -> OutputSpec:
    stream = StreamId(f"{unit}[{index}]>{receiver}[0]")
    return OutputSpec(("operator", 0), schema, (stream,), (NodeId(f"{receiver}[0]"),))


def rows_of(sinks: dict[StreamId, list[tuple[int, int, tuple[Any, ...]]]]) -> Counter[Any]:
    """What the sinks hold, with window starts as microseconds and window ends left out."""
    rows: Counter[Any] = Counter()
    for tuples in sinks.values():
        for _, _, values in tuples:
            if len(values) == 4:
                start = int(np.datetime64(values[0].replace(tzinfo=None), "us").astype(np.int64))
                rows[(start, values[2], values[3])] += 1
            else:
                rows[values] += 1
    return rows


__all__ = ["BEGINNING_US", "TIME_COLUMN", "Case", "counts_case", "join_case", "rows_of"]
