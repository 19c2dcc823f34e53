"""Chains that wait once, and those in which each node waits by itself. [DPC §5.2]"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import holdfast as hf
from holdfast.api.dataflow import Dataflow
from holdfast.core.haunit import events
from holdfast.core.haunit.plan import NodeLimits, UnitProtection
from holdfast.sim.checkers import all_checkers, timed_sinks
from holdfast.sim.checkers.base import Checker
from holdfast.sim.faults import Fault
from holdfast.sim.workload.base import Recording, placed
from holdfast.sim.workload.oracle import TimedRow
from holdfast.sim.world import Conditions, World

if TYPE_CHECKING:
    from holdfast.core.machine import Effect
    from holdfast.sim.process import Process

BOUND_MS = 100
SLACK_MS = 25
BEGAN_US = 1_700_000_000_000_000
LEAD_US = 500_000
"""When the first rows are due: all nodes are up by then."""
SILENCE = Fault("silence", LEAD_US + 250_000, "", 0, pick=0, length_us=450_000, size=1)


class Newest(Checker):
    """When something newer than all before came to the sink or its feed."""

    def begin(self, world: World) -> None:
        self.world = world
        self.newest_us = self.delay_us = 0
        self.tentative = 0

    def performing(self, process: Process, effect: Effect) -> None:
        del process
        if not isinstance(effect, events.WriteSink) or not effect.batch.count:
            return
        if "~feed" in effect.stream:
            names = effect.batch.batch.column("_type").to_pylist()
            self.tentative += names.count("tentative")
            if "tentative" not in names:
                return
        now_us = self.world.scheduler.now_us
        times = effect.batch.time_us
        new = times[times > self.newest_us]
        if len(new):
            self.newest_us = int(new.max())
            self.delay_us = max(self.delay_us, now_us - LEAD_US + BEGAN_US - int(new.min()))


@dataclass(frozen=True, slots=True)
class Seen:
    """Tentative rows of the feed; how late the latest row was that is newer than all before."""

    tentative: int
    delay_ms: float


def recording(number: int) -> Recording:
    """A row every 8 ms, and every 16 ms a record, which comes when its newest row is due."""
    rows = [TimedRow(BEGAN_US + i * 8_000 + number, {"v": i}) for i in range(100)]
    records = tuple((rows[i], rows[i + 1]) for i in range(0, len(rows), 2))
    arrivals = tuple(record[-1].time_us - BEGAN_US + LEAD_US for record in records)
    return Recording(pa.schema([("v", pa.int64())]), 0, (records,), (arrivals,))


def run(nodes: int, *, merges: bool = False, behind: str = "", **settings: Any) -> Seen:
    """Three sources into the first of so many nodes; one is silent for some bounds.

    Args:
        nodes: In a row.
        merges: Whether each of them merges a source of its own.
        behind: What those behind the first one do in a failure; empty: the same as it.
        settings: Of `Replicated`.
    """
    flow = Dataflow("chain")
    streams = [
        flow.source_generator(recording(number), name=name, unit=name)
        for number, name in enumerate("abcdef"[: 2 + nodes if merges else 3])
    ]
    stream = streams[0].unit("merged").union(streams[1], streams[2])
    for number in range(1, nodes):
        stream = stream.unit(f"behind{number}")
        stream = stream.union(streams[2 + number]) if merges else stream.select("v")
    stream.sink("out")
    protection = hf.Replicated(delay=f"{BOUND_MS} milliseconds", alpha=1.0, **settings)
    others = replace(protection, during_failure=behind) if behind else protection
    protection.check(flow)

    def of_unit(unit: str) -> UnitProtection:
        return (others if unit.startswith("behind") else protection).of_unit()

    work = placed(flow, {}, 1, NodeLimits(), of_unit)
    seen = Newest()
    checkers = all_checkers(work.expected, work.promises, timed_sinks(work.flow))
    world = World(
        work.plans,
        work.sources,
        seed=1,
        faults={0: SILENCE},
        conditions=Conditions(),
        checkers=(*checkers, seen),
    )
    result = world.run()
    assert result.faults == {"silence": 1}
    return Seen(seen.tentative, round(seen.delay_us / 1000, 1))


@pytest.mark.parametrize("mode", ["process", "delay"])
def test_a_chain_waits_once_and_in_the_papers_scheme_delays_add_up_where_each_delays(
    mode: str,
) -> None:
    """The paper: with process & process the delay is αX plus processing; delay & delay adds αX for
    each node. Here the chain waits once, in both.
    """
    modes = {"replicas": 2, "during_failure": mode, "during_stabilization": mode}
    once, each = (run(3, chain=chain, **modes) for chain in ("once", "each"))
    assert once.tentative > 0
    assert BOUND_MS <= once.delay_ms <= BOUND_MS + SLACK_MS
    if mode == "delay":
        assert 3 * BOUND_MS <= each.delay_ms <= 3 * BOUND_MS + SLACK_MS
    else:
        assert once.tentative <= each.tentative
        assert BOUND_MS <= each.delay_ms <= BOUND_MS + SLACK_MS


def test_nodes_that_merge_keep_the_bound_in_both_schemes() -> None:
    for chain in ("once", "each"):
        seen = run(3, merges=True, replicas=2, during_stabilization="process", chain=chain)
        assert BOUND_MS <= seen.delay_ms <= BOUND_MS + SLACK_MS


def test_who_suspends_behind_a_node_that_does_not_has_nothing_tentative() -> None:
    """And does not keep that node from going on, or back."""
    assert run(3, behind="suspend").tentative == 0
