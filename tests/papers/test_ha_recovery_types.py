"""Which type of recovery each approach gives for each class of operators. [HA §3, Table 2]

A source, the unit under test, a unit behind it and a sink run in the simulator; the unit's process
is killed. Each input row has a digit of its own, and windows sum them up: so every row put out says
exactly from which input it was made, and how often. Where the paper's approach gives only rollback
recovery, a claim stronger than the paper's must be refuted by some seed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from holdfast.api.dataflow import Dataflow, Stream
from holdfast.api.planning import plan_dataflow
from holdfast.api.windows import tumbling
from holdfast.core.haunit import events
from holdfast.core.haunit.plan import CheckpointPlan, NodeLimits, Standby, UnitProtection
from holdfast.core.model.ids import NodeId
from holdfast.core.recovery.guarantee import Guarantee
from holdfast.sim.checkers import Checker
from holdfast.sim.draw import Draw
from holdfast.sim.faults import Fault
from holdfast.sim.workload.base import Recording
from holdfast.sim.workload.oracle import TimedRow
from holdfast.sim.world import World

if TYPE_CHECKING:
    from holdfast.core.machine import Effect
    from holdfast.sim.process import Process

SEEDS = range(25)
ROWS = 60
STEP_US = 100
WINDOW = "700 microseconds"
SPAN_US = 1_500_000
_DIGIT_BITS = 2
_DIGITS = 30

PROTECTIONS = {
    "passive standby": UnitProtection(standby=Standby.PASSIVE, delta_interval_ms=20),
    "upstream backup": UnitProtection(),
    "active standby": UnitProtection(standby=Standby.ACTIVE),
    "checkpoints": UnitProtection(checkpoints=CheckpointPlan(interval_ms=40)),
    "rollback": UnitProtection(guarantee=Guarantee.ROLLBACK),
    "amnesia": UnitProtection(guarantee=Guarantee.GAP),
}
PRECISE = ("passive standby", "upstream backup", "active standby")


def _filter(stream: Stream) -> Stream:
    return stream.unit("op").filter("low + high > 0")


def _windows(stream: Stream) -> Stream:
    return _summed(stream.unit("op").window(tumbling(WINDOW)))


def _windows_of_the_first(stream: Stream) -> Stream:
    return _summed(stream.unit("op").window(tumbling(WINDOW, alignment="first")))


def _windows_of_the_clock(stream: Stream) -> Stream:
    return _summed(stream.unit("op").window(tumbling("90 milliseconds", time="processing")))


def _sample(stream: Stream) -> Stream:
    return stream.unit("op").sample(0.5)


def _summed(windowed: Any) -> Stream:
    made: Stream = windowed.aggregate("sum(low) AS low", "sum(high) AS high", name="op")
    return made


CLASSES: dict[str, Callable[[Stream], Stream]] = {
    "repeatable": _filter,
    "convergent-capable": _windows,
    "deterministic": _windows_of_the_first,
    "arbitrary": _windows_of_the_clock,
}


@dataclass(frozen=True)
class Run:
    """What came of a run.

    Attributes:
        rows: Per row of the sink, in order, how often each input row is in it.
        failures: How many losses were detected.
        reached: Rare situations.
        gaps: Reported gaps as (stream, from, to).
    """

    rows: list[Counter[int]]
    failures: int
    reached: dict[str, int]
    gaps: list[tuple[str, int, int]]


class Gaps(Checker):
    """Notes what is reported as lost."""

    def __init__(self) -> None:
        self.found: list[tuple[str, int, int]] = []

    def performing(self, process: Process, effect: Effect) -> None:
        if isinstance(effect, events.ReportGap):
            self.found.append((effect.stream, effect.from_id, effect.to_id))


def run(
    seed: int,
    made: Callable[[Stream], Stream],
    protections: dict[str, str],
    *killed: str,
    disorder_us: int = 0,
    once: bool = False,
) -> Run:
    """One run; `protections` by unit, the others have upstream backup."""
    draw = Draw(f"{seed}/recovery types")
    rows = tuple(
        TimedRow(
            1_000_000 + STEP_US * i - (draw.number(0, disorder_us) if disorder_us else 0),
            {"low": _digit(i), "high": _digit(i - _DIGITS)},
        )
        for i in range(ROWS)
    )
    records = tuple(rows[i : i + 3] for i in range(0, ROWS, 3))
    arrivals = tuple(SPAN_US * (i + 1) // len(records) for i in range(len(records)))
    schema = pa.schema([("low", pa.int64()), ("high", pa.int64())])
    flow = Dataflow("t")
    source = flow.source_generator(
        Recording(schema, disorder_us, (records,), (arrivals,)), name="src"
    )
    made(source).unit("after").filter("low + high > 0").sink("out")
    limits = NodeLimits(
        input_queue_tuples=64,
        output_queue_tuples=64,
        ack_interval_ms=draw.number(5, 80),
        resubscribe_ms=150,
        page_bytes=2048,
    )
    plan = plan_dataflow(
        flow,
        "",
        parallelism=1,
        limits=limits,
        protection=lambda unit: PROTECTIONS[protections.get(unit, "upstream backup")],
    )
    faults = {
        i: Fault(
            "kill",
            at_us=draw.number(200_000, SPAN_US),
            step="",
            nth=0,
            pick=0,
            length_us=0,
            size=0,
            node=NodeId(f"{unit}[0]"),
        )
        for i, unit in enumerate(killed)
        for _ in range(1)
    }
    if once and len(killed) > 1:  # All at the same moment.
        at_us = next(iter(faults.values())).at_us
        faults = {
            i: Fault(
                "kill", (at_us or 0) + draw.number(0, 3_000), "", 0, 0, 0, 0, None, False, f.node
            )
            for i, f in faults.items()
        }
    gaps = Gaps()
    world = World(plan.nodes, dict(plan.sources), seed=seed, faults=faults, checkers=(gaps,))
    result = world.run()
    (tuples,) = result.rows.values()
    assert [tuple_id for tuple_id, _, _ in tuples] == list(range(len(tuples)))
    return Run(
        [_members(*values[-2:]) for _, _, values in tuples],
        result.failures,
        result.reached,
        gaps.found,
    )


def _digit(i: int) -> int:
    return 1 << (_DIGIT_BITS * i) if 0 <= i < _DIGITS else 0


def _members(low: int, high: int) -> Counter[int]:
    """The input rows that a row of the sink was made of; each at most three times."""
    digits = low | high << (_DIGIT_BITS * _DIGITS)
    mask = (1 << _DIGIT_BITS) - 1
    return Counter({i: n for i in range(ROWS) if (n := digits >> (_DIGIT_BITS * i) & mask)})
