"""Runs that the simulator found, written out: they do not depend on what seeds draw."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from mutants import Mutant

from holdfast.api.dataflow import Dataflow
from holdfast.api.windows import tumbling
from holdfast.core.haunit.arrivals import Arrivals
from holdfast.core.haunit.passes import Passes
from holdfast.core.haunit.plan import NodeLimits, Standby, UnitProtection
from holdfast.core.model.ids import NodeId, StreamId
from holdfast.planning.plan import plan_dataflow
from holdfast.sim.checkers import Violation, all_checkers
from holdfast.sim.draw import Draw
from holdfast.sim.faults import Fault
from holdfast.sim.network import NetworkProfile
from holdfast.sim.workload.base import SPAN_US, Recording, cut_up, evenly
from holdfast.sim.workload.oracle import Expected, TimedRow
from holdfast.sim.world import Conditions, World

if TYPE_CHECKING:
    from holdfast.sim.world import RunResult

PROTECTIONS = {
    "upstream backup": UnitProtection(),
    "passive standby": UnitProtection(standby=Standby.PASSIVE, delta_interval_ms=20),
    "active standby": UnitProtection(standby=Standby.ACTIVE),
}


@dataclass(frozen=True)
class Scenario:
    """A dataflow, how its units are protected, and what strikes when, by microseconds."""

    flow: Dataflow
    protection: UnitProtection
    faults: tuple[Fault, ...]
    limits: NodeLimits
    conditions: Conditions = field(default_factory=lambda: Conditions(machines=1))

    def run(self, seed: int) -> RunResult:
        """Run it under all checkers; `seed` draws the chances of network, disks and Spark."""
        plan = plan_dataflow(
            self.flow,
            "",
            parallelism=1,
            limits=self.limits,
            protection=lambda _: self.protection,
        )
        sources: dict[StreamId, Any] = dict(plan.sources)
        world = World(
            plan.nodes,
            sources,
            seed=seed,
            faults=dict(enumerate(self.faults)),
            conditions=self.conditions,
            checkers=all_checkers(Expected({})),
        )
        return world.run()


def recording(count: int, *begins_us: int, span_us: int = SPAN_US) -> Recording:
    """So many rows a partition, each of which has a time to begin at, in records of up to 20."""
    rows = Draw("rows of a scenario")
    records = []
    for begin_us in begins_us:
        mine = [TimedRow(begin_us + 40 * i, {"k": rows.number(0, 2)}) for i in range(count)]
        records.append(cut_up(mine, 20, rows))
    arrivals = tuple(evenly(partition, span_us) for partition in records)
    schema = pa.schema([("k", pa.int64())])
    return Recording(schema, 0, tuple(records), arrivals)


def at(kind: str, at_us: int, node: str | None = None, length_us: int = 1_000) -> Fault:
    name = None if node is None else NodeId(node)
    return Fault(kind, at_us, "", 0, pick=0, length_us=length_us, size=1, node=name)


def timeouts_of_three_sources() -> Dataflow:
    flow = Dataflow("t")
    source = flow.source_generator(recording(80, -5_000, 0, -4_800), name="src", partitions=3)
    window = tumbling("5000 microseconds", timeout="100 milliseconds")
    source.key_by("k").window(window).aggregate("count(*) AS n", name="op").sink("out")
    return flow


def both_replicas_lost(after_us: int) -> Scenario:
    """1. A passive replica is promoted; its state depends on passes that it has not run. 2. It
    notes a restart point. 3. Both replicas die.
    """
    again_us = after_us + 150_000
    faults = (
        at("kill", after_us, "op[0]"),
        at("kill", again_us, "op[0]"),
        at("kill", again_us + 100, "op[0]"),
    )
    limits = NodeLimits(
        input_queue_tuples=512, output_queue_tuples=64, ack_interval_ms=20, ack_tuples=0
    )
    flow = timeouts_of_three_sources()
    return Scenario(flow, PROTECTIONS["passive standby"], faults, limits)


def a_union_beside_a_merge(crash_us: int, approach: str) -> Scenario:
    """1. A source feeds a union in the order of arrival, and a unit that merges it by time. 2. All
    begin anew. 3. A recorded pass of the union waits for a tuple of a partition that is full
    towards the merge; this waits for another one, which is full towards the union.
    """
    flow = Dataflow("t")
    source = flow.source_generator(
        recording(45, 1_000_000, -4_500, -4_300, span_us=0), name="src", partitions=3
    )
    other = flow.source_generator(recording(56, -5_000, span_us=0), name="other")
    merged = source.unit("merge").select("k AS m")
    merged.union(other.select("k AS m"), order="arrival").sink("first")
    source.select("k AS u").union(other.select("k AS u"), order="arrival").sink("united")
    window = tumbling("5000 microseconds", timeout="500 microseconds")
    source.key_by("k").window(window).aggregate("count(*) AS n", name="op").sink("timeouts")
    limits = NodeLimits(
        input_queue_tuples=16,
        output_queue_tuples=12,
        pass_tuples=3,
        ack_interval_ms=57,
        ack_tuples=256,
        keep_alive_ms=50,
        resubscribe_ms=324,
    )
    conditions = Conditions(1, NetworkProfile(699, 692, 370), disk_us=140_000)
    crash = at("driver-crash", crash_us)
    return Scenario(flow, PROTECTIONS[approach], (crash,), limits, conditions)


@pytest.mark.parametrize("after_us", range(500_000, 800_000, 100_000))
def test_both_replicas_lost_after_a_promotion_lose_nothing(after_us: int) -> None:
    taken_over = 0
    for seed in range(2):
        result = both_replicas_lost(after_us).run(seed)
        (tuples,) = result.rows.values()
        assert sum(values[-1] for _, _, values in tuples) == 3 * 80
        taken_over += result.reached.get("image taken over", 0)
    assert taken_over


@pytest.mark.parametrize("approach", PROTECTIONS)
def test_a_recovery_does_not_wait_for_itself(approach: str) -> None:
    for seed in (2, 4):
        result = a_union_beside_a_merge(540_000, approach).run(seed)
        assert sum(len(result.rows[StreamId(f"{sink}[0]")]) for sink in ("first", "united")) == 382


def _forget_the_passes_of_a_copy(original: Any) -> Any:
    def init(self: Passes, first: Any, recorded: Any, *, replayed_from: Any) -> None:
        original(self, first, recorded, replayed_from=replayed_from and first)

    return init


def _make_no_room(_: Any) -> Any:
    return lambda self, decided_before: None


BUGS = {
    "forgets the passes of a copy": (
        Mutant(Passes, "__init__", _forget_the_passes_of_a_copy),
        (both_replicas_lost(500_000), 0, "I-CUT"),
    ),
    "makes no room for recorded passes": (
        Mutant(Arrivals, "make_room", _make_no_room),
        (a_union_beside_a_merge(540_000, "upstream backup"), 2, "I-LIVE"),
    ),
}
"""Deliberate bugs that seeds hardly ever show, and what shows them: a scenario, its seed, and what
is found. What they look like in mutants.py."""


@pytest.mark.parametrize("name", BUGS)
def test_a_scenario_finds_the_bug_that_it_is_for(name: str) -> None:
    bug, (scenario, seed, invariant) = BUGS[name]
    with bug.switched_in(), pytest.raises(Violation) as found:
        scenario.run(seed)
    assert found.value.invariant == invariant
