"""What is arbitrary changes nothing beside it or before it: dataflows that once showed otherwise.

Each is run twice without faults, with the arbitrary branch and without. The other sinks must hold
the same tuples, at the same times, in the same order.
"""

from collections.abc import Callable
from functools import cache

import pyarrow as pa
import pytest

from holdfast.api.dataflow import Dataflow
from holdfast.api.streams import Stream
from holdfast.api.windows import counting, sliding, tumbling
from holdfast.core.haunit.plan import NodeLimits
from holdfast.planning.plan import plan_dataflow
from holdfast.sim.workload.base import Recording
from holdfast.sim.workload.oracle import TimedRow
from holdfast.sim.world import Conditions, World

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])
ROWS = 60
RECORD = 4
LATER_US = 1_000_000
"""The stream that arrives first has times that are later by so much."""

Branch = Callable[[Stream], object]

BRANCHES: dict[str, Branch] = {
    "sample": lambda s: s.sample(0.5).sink("peek"),
    "union by arrival": lambda s: (
        s.select("v").union(s.select("v + 1 AS v"), order="arrival").sink("peek")
    ),
    "windows of the clock": lambda s: (
        s.window(tumbling("5 milliseconds", time="processing"))
        .aggregate("count(*) AS n", name="clock")
        .sink("peek")
    ),
    "timeouts": lambda s: (
        s.window(counting(5, timeout="5 milliseconds"))
        .aggregate("count(*) AS n", name="timeout")
        .sink("peek")
    ),
}


def _recording(first_us: int, partitions: int, span_us: int) -> Recording:
    """Partitions that are ahead of each other by whole records, in times and in arrival."""
    records = []
    for partition in range(partitions):
        rows = [
            TimedRow(first_us + 10 * i + partition, {"k": i % 3, "v": 100 * partition + i})
            for i in range(ROWS)
        ]
        records.append(tuple(tuple(rows[i : i + RECORD]) for i in range(0, ROWS, RECORD)))
    arrivals = tuple(
        tuple((1 + partition) * span_us * (i + 1) // len(made) for i in range(len(made)))
        for partition, made in enumerate(records)
    )
    return Recording(SCHEMA, 0, tuple(records), arrivals)


def _merged(flow: Dataflow) -> Stream:
    """A union in time order, of which the stream with the later times arrives first."""
    late = flow.source_generator(_recording(LATER_US, 1, 200_000), name="late")
    early = flow.source_generator(_recording(0, 1, 700_000), name="early")
    return late.union(early)


def _parallel(flow: Dataflow) -> Stream:
    """A source of three partitions that arrive one after the other."""
    return flow.source_generator(_recording(0, 3, 250_000), name="parts", partitions=3)


def union(flow: Dataflow) -> Stream:
    merged = _merged(flow)
    merged.sink("whole")
    merged.key_by("k").window(counting(7)).aggregate("sum(v) AS s", name="sevens").sink("sevens")
    return merged


def running(flow: Dataflow) -> Stream:
    stream = _merged(flow).key_by("k").window(tumbling("100 microseconds"))
    made = stream.aggregate("max(v) AS v", name="tops", emit="changes")
    made.sink("tops")
    return made


def windows_of_the_first(flow: Dataflow) -> Stream:
    windows = sliding("400 microseconds", "200 microseconds", alignment="first")
    made = _parallel(flow).key_by("k").window(windows).aggregate("sum(v) AS v", name="first")
    made.sink("first")
    made.filter("v > 100").sink("some")
    return made


def counted(flow: Dataflow) -> Stream:
    made = _parallel(flow).window(counting(4, 3)).aggregate("sum(v) AS v", name="fours")
    made.filter("v > 100").sink("some")
    return made


FLOWS = (union, running, windows_of_the_first, counted)
Sink = list[tuple[int, tuple[object, ...]]]


@cache
def _sinks(
    build: Callable[[Dataflow], Stream], branch: Branch | None, seed: int
) -> dict[str, Sink]:
    flow = Dataflow("beside")
    stream = build(flow)
    if branch is not None:
        branch(stream)
    plan = plan_dataflow(flow, "", parallelism=1, limits=NodeLimits(pass_tuples=8))
    world = World(plan.nodes, plan.sources, seed=seed, conditions=Conditions(2), checkers=[])
    rows = world.run().rows
    assert all(rows.values()), "sinks without rows prove nothing"
    return {
        stream: [(time_us, values) for _, time_us, values in found]
        for stream, found in rows.items()
        if stream != "peek[0]"
    }


@pytest.mark.parametrize("build", FLOWS, ids=lambda build: build.__name__)
@pytest.mark.parametrize("kind", BRANCHES)
def test_what_is_arbitrary_changes_nothing_beside_it(
    kind: str, build: Callable[[Dataflow], Stream]
) -> None:
    for seed in range(2):
        assert _sinks(build, BRANCHES[kind], seed) == _sinks(build, None, seed)
