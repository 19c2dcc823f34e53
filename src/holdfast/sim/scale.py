"""How the simulator's cost grows with the dataflow: nodes, edges, virtual seconds per second."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from holdfast.api.dataflow import Dataflow
from holdfast.api.windows import tumbling
from holdfast.core.haunit.plan import NodeLimits
from holdfast.planning.plan import plan_dataflow
from holdfast.sim.checkers import Fencing, Tape, Trimming
from holdfast.sim.workload.base import Recording
from holdfast.sim.workload.oracle import TimedRow
from holdfast.sim.world import World

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast.core.model.ids import StreamId

_SCHEMA: Final = pa.schema([("key", pa.int64())])
_TUPLES: Final = 100
_SPAN_US: Final = 1_000_000
SHAPES: Final = ("chains", "exchange")
SIZES: Final = (10, 30, 100, 300, 1_000, 10_000)


@dataclass(frozen=True, slots=True)
class Measured:
    """One dataflow simulated without faults.

    Attributes:
        shape: `chains`: of ten units each; `exchange`: sources and counters, all with all.
        nodes: How many nodes.
        edges: How many streams between nodes.
        plan_s: Real seconds to place it.
        run_s: Real seconds to run it.
        virtual_s: Virtual seconds that the run took.
        events: Events of the scheduler.
    """

    shape: str
    nodes: int
    edges: int
    plan_s: float
    run_s: float
    virtual_s: float
    events: int

    @property
    def virtual_per_real(self) -> float:
        """Virtual seconds per real second."""
        return self.virtual_s / self.run_s

    @property
    def us_per_edge(self) -> float:
        """Real microseconds per edge and virtual second."""
        return self.run_s * 1e6 / self.edges / self.virtual_s

    def to_json(self) -> dict[str, Any]:
        """All figures, rounded."""
        figures = {"virtual_per_real": self.virtual_per_real, "us_per_edge": self.us_per_edge}
        return {
            name: round(value, 4) if isinstance(value, float) else value
            for name, value in (asdict(self) | figures).items()
        }


def measure(shape: str, size: int) -> Measured:
    """Simulate a dataflow of about `size` nodes of a shape for its input's virtual second."""
    flow = _chains(size) if shape == "chains" else _exchange(size)
    started_s = time.perf_counter()
    parallelism: dict[str, int] = {} if shape == "chains" else {"counts": size // 2}
    plan = plan_dataflow(flow, "", parallelism=parallelism, limits=NodeLimits())
    plan_s = time.perf_counter() - started_s
    sources: dict[StreamId, Any] = dict(plan.sources)
    world = World(plan.nodes, sources, seed=1, checkers=(Tape(), Fencing(), Trimming()))
    started_s = time.perf_counter()
    result = world.run()
    run_s = time.perf_counter() - started_s
    edges = sum(spec.producer is not None for node in plan.nodes for spec in node.inputs)
    virtual_s = result.virtual_us / 1e6
    return Measured(shape, len(plan.nodes), edges, plan_s, run_s, virtual_s, result.events)


def measure_all(say: Callable[[str], None], sizes: Sequence[int] = SIZES) -> list[Measured]:
    """All sizes, in nodes, of all shapes; exchanges stay at 50,000 edges."""
    found = []
    for shape in SHAPES:
        for size in sizes:
            if shape == "exchange" and (size // 2) ** 2 > 50_000:
                continue
            measured = measure(shape, size)
            found.append(measured)
            say(
                f"{shape}: {measured.nodes} nodes, {measured.edges} edges, "
                f"{measured.virtual_per_real:.2f} virtual s/s"
            )
    return found


def _chains(size: int) -> Dataflow:
    flow = Dataflow("chains")
    for number in range(max(1, size // 10)):
        stream = flow.source_generator(_recording(1, number), name=f"s{number}")
        for depth in range(1, 10):
            stream = stream.unit(f"u{number}-{depth}").select("key")
        stream.sink(f"out{number}")
    return flow


def _exchange(size: int) -> Dataflow:
    flow = Dataflow("exchange")
    sources = size - size // 2
    stream = flow.source_generator(_recording(sources, 0), name="s", partitions=sources)
    counts = stream.key_by("key").window(tumbling("10 milliseconds"))
    counts.aggregate("count(*) AS n", name="counts").sink("out")
    return flow


def _recording(partitions: int, offset: int) -> Recording:
    step_us = _SPAN_US // _TUPLES
    records = tuple(
        tuple((TimedRow(i * step_us, {"key": (i * 7 + p + offset) % 50}),) for i in range(_TUPLES))
        for p in range(partitions)
    )
    arrivals = tuple(tuple((i + 1) * step_us for i in range(_TUPLES)) for _ in range(partitions))
    return Recording(_SCHEMA, 0, records, arrivals)
