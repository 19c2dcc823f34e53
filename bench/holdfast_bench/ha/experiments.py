"""HA's experiments by simulation: Figures 6 and 7, Tables 6, 7 and 8. [HA §7]

Every point is the average of runs that differ in the moment of failure and in the phases of all
timers. The paper averages 25 runs of a minute; here a run ends once the unit has recovered.

A protection takes part by its name: `APPROACHES` says what the unit's nodes are told.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import lru_cache
from statistics import mean, stdev
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from holdfast.api.dataflow import Dataflow
from holdfast.api.streams import Stream
from holdfast.api.windows import sliding
from holdfast.core.haunit.plan import CheckpointPlan, NodeLimits, Standby, UnitProtection
from holdfast.core.recovery.guarantee import Guarantee
from holdfast.planning.plan import plan_dataflow
from holdfast.sim.workload.base import Recording
from holdfast.sim.workload.oracle import TimedRow
from holdfast_bench.ha import paper
from holdfast_bench.ha.paper import PaperQuery
from holdfast_bench.ha.world import ExperimentWorld, Measured

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.core.model.ids import StreamId
    from holdfast.planning.plan import Plan
    from holdfast.sim.workload.source import SimulatedSource

_SCHEMA: Final = pa.schema([("value", pa.int64())])
_PASS_TUPLES: Final = 10
_PAGE_BYTES: Final = 512
"""The smallest there are: the states here are some hundred bytes."""
_AFTERWARDS_MS: Final = 1_500
_SEND_COST_US: Final = paper.TUPLE_BYTES * 1000 / paper.NETWORK_BYTES_PER_MS

APPROACHES: Final[dict[str, Callable[[int], UnitProtection]]] = {
    "Amnesia": lambda _: UnitProtection(guarantee=Guarantee.GAP),
    "UpstreamBackup": lambda _: UnitProtection(),
    "ActiveStandby": lambda _: UnitProtection(standby=Standby.ACTIVE),
    "PassiveStandby": lambda interval_ms: UnitProtection(
        standby=Standby.PASSIVE, delta_interval_ms=interval_ms
    ),
    "Checkpointed": lambda interval_ms: UnitProtection(checkpoints=CheckpointPlan(interval_ms)),
}
"""By the name of its protection what a unit is told, given M."""


@dataclass(frozen=True, slots=True)
class Point:
    """One point of a figure, or cell of a table.

    Attributes:
        experiment: `figure6`, `figure7`, `table6`, `table7` or `table8`.
        approach: Name of the protection.
        operator: As in `PaperQuery`.
        window_ms: As in `PaperQuery`.
        advance_ms: As in `PaperQuery`.
        aggregates: As in `PaperQuery`.
        interval_ms: M.
        runs: How many were averaged.
        recovery_ms: The paper's recovery time, mean.
        recovery_error_ms: Its standard error.
        replayed_ms: The same if a replay from empty costs as in the paper: an aggregate opens its
            windows one after another, and a tuple is sent, then processed; None: there is none.
        detection_ms: From the failure until it was known, mean.
        overhead_percent: Bytes for protection that the paper has too, of the tuples' bytes.
        own_percent: Bytes for protection that only Holdfast has: restart points and checkpoints.
        lost_tuples: Reported as lost, mean.
    """

    experiment: str
    approach: str
    operator: str
    window_ms: int
    advance_ms: int
    aggregates: int
    interval_ms: int
    runs: int
    recovery_ms: float
    recovery_error_ms: float
    replayed_ms: float | None
    detection_ms: float
    overhead_percent: float
    own_percent: float
    lost_tuples: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """All figures, rounded."""
        return {k: round(v, 3) if isinstance(v, float) else v for k, v in asdict(self).items()}


def measure(
    experiment: str, query: PaperQuery, approach: str, interval_ms: int, runs: int
) -> Point:
    """Average runs of one configuration."""
    seeds = range(1, runs + 1)
    found = [once(query, approach, interval_ms, seed) for seed in seeds]
    replayed_ms: float | None = None
    if approach == "UpstreamBackup":
        replayed = [once(query, approach, interval_ms, s, is_as_in_paper=True) for s in seeds]
        replayed_ms = mean(run.recovery_ms for run in replayed)
    times = [run.recovery_ms for run in found]
    return Point(
        experiment=experiment,
        approach=approach,
        operator=query.operator,
        window_ms=query.window_ms,
        advance_ms=query.advance_ms,
        aggregates=query.aggregates,
        interval_ms=interval_ms,
        runs=runs,
        recovery_ms=mean(times),
        recovery_error_ms=stdev(times) / runs**0.5 if runs > 1 else 0.0,
        replayed_ms=replayed_ms,
        detection_ms=mean(run.detection_ms for run in found),
        overhead_percent=_percent(found, "acks", "positions", "secondary_tuples"),
        own_percent=_percent(found, "restart_points", "checkpoints"),
        lost_tuples=mean(run.lost_tuples for run in found),
    )


def once(
    query: PaperQuery, approach: str, interval_ms: int, seed: int, *, is_as_in_paper: bool = False
) -> Measured:
    """One run with one failure; `is_as_in_paper`: a replay costs as there."""
    opens_over = query.window_ms if query.operator == "aggregate" else 0
    plan, sources, settle_ms = _prepared(query, approach, interval_ms)
    return ExperimentWorld(
        plan.nodes,
        sources,
        seed=seed,
        tuple_cost_us=query.tuple_cost_us,
        opens_over_tuples=opens_over if is_as_in_paper else 0,
        send_cost_us=_SEND_COST_US if is_as_in_paper else 0.0,
        settle_us=settle_ms * 1000,
        period_us=max(100, interval_ms) * 1000,
    ).measure()


def _percent(found: list[Measured], *kinds: str) -> float:
    spent: int = sum(getattr(run.traffic, kind) for run in found for kind in kinds)
    return 100 * spent / sum(run.traffic.tuples for run in found)


# -- the chain ------------------------------------------------------------------------------


def chain(query: PaperQuery, length_ms: int) -> Dataflow:
    """A source, the unit `query`, and a unit `down` with a sink."""
    flow = Dataflow("paper")
    stream = _source(flow, query, length_ms)
    match query.operator:
        case "filter":
            stream = stream.unit("query").filter("value >= 0")
        case "aggregate":
            windows = sliding(f"{query.window_ms} milliseconds", f"{query.advance_ms} milliseconds")
            for number in range(query.aggregates):
                column = "value" if number == 0 else f"sum{number - 1}"
                stream = stream.unit("query").window(windows)
                stream = stream.aggregate(f"sum({column}) AS sum{number}", name=f"sums{number}")
        case "union":
            pass
    stream.unit("down").select(stream.schema.names[-1]).sink("out")
    return flow


def _source(flow: Dataflow, query: PaperQuery, length_ms: int) -> Stream:
    if query.operator != "union":
        return flow.source_generator(_recording(length_ms, 1, 0), name="up")
    left = flow.source_generator(_recording(length_ms, 2, 0), name="up0")
    right = flow.source_generator(_recording(length_ms, 2, 1), name="up1")
    return left.unit("query").union(right)


@lru_cache(maxsize=8)
def _recording(length_ms: int, step_ms: int, first_ms: int) -> Recording:
    """One tuple every `step_ms`, each created when it arrives."""
    times = range(first_ms, length_ms, step_ms)
    records = tuple((TimedRow(ms * 1000, {"value": ms}),) for ms in times)
    return Recording(_SCHEMA, 0, (records,), (tuple(ms * 1000 for ms in times),))


@lru_cache(maxsize=4)
def _prepared(
    query: PaperQuery, approach: str, interval_ms: int
) -> tuple[Plan, dict[StreamId, SimulatedSource], int]:
    """The chain, placed; what arrives; and when it has settled, ms."""
    span_ms = query.window_ms * query.aggregates if query.operator == "aggregate" else 0
    settle_ms = 600 + 2 * span_ms + 4 * interval_ms
    flow = chain(query, settle_ms + max(100, interval_ms) + span_ms + _AFTERWARDS_MS)
    protection = APPROACHES[approach](interval_ms)
    plan = plan_dataflow(
        flow,
        "",
        parallelism=1,
        limits=NodeLimits(
            ack_interval_ms=interval_ms,
            ack_tuples=0,  # As in the paper, every M whatever the rate.
            pass_tuples=_PASS_TUPLES,
            page_bytes=_PAGE_BYTES,
        ),
        protection=lambda unit: protection if unit == "query" else UnitProtection(),
    )
    sources: dict[StreamId, Any] = dict(plan.sources)
    return plan, sources, settle_ms


# -- the experiments ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Configuration:
    """One point to be measured."""

    experiment: str
    query: PaperQuery
    interval_ms: int = paper.INTERVAL_MS


def configurations(experiment: str) -> list[Configuration]:
    """The points of a figure or table."""
    match experiment:
        case "figure6":
            return [Configuration("figure6", PaperQuery(), m) for m in paper.INTERVALS_MS]
        case "figure7":
            queries = [PaperQuery(aggregates=count) for count in range(1, 6)]
        case "table6":
            queries = [PaperQuery("filter"), PaperQuery(), PaperQuery("union")]
        case "table7":
            queries = [PaperQuery(window_ms=window) for window in (100, 200, 300, 400, 500)]
        case _:
            queries = [PaperQuery(advance_ms=advance) for advance in (100, 50, 25, 10, 5)]
    return [Configuration(experiment, query) for query in queries]


EXPERIMENTS: Final = ("figure6", "figure7", "table6", "table7", "table8")


def run(
    only: tuple[str, ...], approaches: tuple[str, ...], runs: int, say: Callable[[str], None]
) -> list[Point]:
    """All points of some experiments; what several share is measured once."""
    known: dict[tuple[PaperQuery, str, int], Point] = {}
    found: list[Point] = []
    for experiment in only:
        for approach in approaches:
            for wanted in configurations(experiment):
                if approach == "Checkpointed" and wanted.query.operator != "aggregate":
                    continue  # Without state it is upstream backup.
                if approach == "Amnesia" and experiment != "table6":
                    continue  # The paper gives only formulas.
                key = (wanted.query, approach, wanted.interval_ms)
                if key not in known:
                    point = measure(experiment, wanted.query, approach, wanted.interval_ms, runs)
                    known[key] = point
                    say(
                        f"{experiment}: {approach}, {wanted.query.operator}, "
                        f"M {wanted.interval_ms} ms: recovery {point.recovery_ms:.1f} ms, "
                        f"overhead {point.overhead_percent:.2f} %"
                    )
                found.append(Point(**{**asdict(known[key]), "experiment": experiment}))
    return found
