"""Corrections that go without input for want of room, under faults. [DPC §6 "buffer management"]

I-DROP  what is said to be dropped is in the journal, and nothing else is: the stable output is
        exactly that of the input without it, whoever is killed, and when.
"""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest

import holdfast as hf
from holdfast.api.dataflow import Dataflow
from holdfast.api.steps import FromGenerator
from holdfast.core.coordinator.journal_entries import PointNoted
from holdfast.core.errors import InvariantViolation
from holdfast.core.haunit import events
from holdfast.core.haunit.drop_ledger import DropLedger
from holdfast.core.model.dropped import Ranges, count, joined, left_of
from holdfast.core.replication.sunion import SUnion
from holdfast.planning.replicas import with_sink_units
from holdfast.planning.units import ports_read, units_of
from holdfast.sim.checkers import all_checkers
from holdfast.sim.checkers.base import Checker, Violation
from holdfast.sim.checkers.corrections import Corrections
from holdfast.sim.checkers.output import PreciseOutput, check_exact
from holdfast.sim.checkers.trimming import RestartPoints
from holdfast.sim.draw import Draw
from holdfast.sim.faults import SILENCES, plan_faults
from holdfast.sim.seeds import conditions
from holdfast.sim.workload.base import Workload, placed
from holdfast.sim.workload.known import _MEANINGS, _events, _recorded
from holdfast.sim.workload.oracle import Expected, Oracle
from holdfast.sim.workload.protections import random_limits
from holdfast.sim.world import World

KINDS = (*SILENCES, "kill", "pause", "driver-crash", "break", "stale-frames", "slow-link")
SPAN_US = 700_000


class Said(Checker):
    """What nodes say that they dropped, and what the journal holds of it."""

    looks_at = MappingProxyType({"performing": (events.ReportGap,)})

    def __init__(self) -> None:
        """Nothing yet."""
        self.dropped: dict[str, Ranges] = {}
        self.journalled_ranges: set[tuple[str, tuple[int, int]]] = set()

    def performing(self, process: Any, effect: Any) -> None:
        """I-DROP: it is durable by then."""
        said = (effect.from_id, effect.to_id)
        if (effect.stream, said) not in self.journalled_ranges:
            raise Violation("I-DROP", f"{effect.stream}: {said} is dropped, and not durable")
        if said not in self.dropped.get(effect.stream, ()):
            self.dropped = joined(self.dropped, {effect.stream: (said,)})

    def journalled(self, entries: Any) -> None:
        """Points are durable."""
        for entry in entries:
            if isinstance(entry, PointNoted):
                for stream, ranges in entry.point.dropped.items():
                    self.journalled_ranges |= {(stream, each) for each in ranges}


class WithoutBound(Corrections):
    """What is to be written down first makes input wait for that."""

    def stepped(self, process: Any, stimulus: Any, effects: Any) -> None:
        """See the class."""


def workload(seed: int) -> Workload:
    """Bids of two sources are united and counted by units that drop; queues hold little."""
    draw = Draw(f"{seed}/drops")
    flow = Dataflow("drops")
    sources = []
    for number, name in enumerate(("a", "b")):
        rows, schema = _events("q12", "bid", 2 * seed + number)
        recording = _recorded(rows, schema, 1, None, draw)
        sources.append(flow.source_generator(recording, name=name, unit=name))
    merged = sources[0].unit("merged").union(sources[1])
    counts = merged.unit("behind").key_by("bidder").window(hf.tumbling("10 seconds"))
    counts.aggregate("count(*) AS n", name="counts").sink("counts")
    delay = f"{draw.number(10, 60)} milliseconds"
    protection = hf.Replicated(
        delay=delay,
        buffer="drop",
        during_failure=draw.one_of(("process", "delay")),
        reconcile=draw.one_of(("checkpoint/redo", "undo/redo")),
    )
    limits = replace(random_limits(draw), input_queue_tuples=draw.number(4, 40))
    told = protection.of_unit()
    assert told.delays is not None
    delays = replace(told.delays, horizon_tuples=draw.number(10, 200))
    told = replace(told, delays=delays)
    return placed(flow, _MEANINGS, 1, limits, lambda unit: told)


def expected(made: Workload, dropped: dict[str, Ranges]) -> Expected:
    """What the sinks must hold, of the input without what was dropped."""
    flow = made.flow
    inputs = {}
    for step in flow.steps:
        if isinstance(step.operation, FromGenerator):
            rows = step.operation.generator.on_time()
            of = next((r for s, r in dropped.items() if s.startswith(step.name)), ())
            kept = [slice(*each) for each in left_of(of, 0, len(rows))]
            inputs[step.name] = [row for each in kept for row in rows[each]]
    apart = with_sink_units(flow, lambda unit: hf.Replicated().of_unit())
    ports = {unit: ports_read(members) for unit, members in units_of(apart).items()}
    return Oracle(inputs, _MEANINGS, ports, dict.fromkeys(ports, 1)).expected(apart, {})


def run(seed: int) -> int:
    """Run a seed; how many tuples were dropped. Raises `Violation`."""
    made = workload(seed)
    said = Said()
    # What is expected is known at the end; points of before are void once something is dropped.
    left = (PreciseOutput, RestartPoints, Corrections)
    others = [c for c in all_checkers(made.expected) if not isinstance(c, left)]
    world = World(
        made.plans,
        made.sources,
        seed=seed,
        faults=dict(enumerate(plan_faults(seed, KINDS, SPAN_US))),
        conditions=conditions(seed, made.plans[0].limits),
        checkers=(*others, WithoutBound(), said),
    )
    result = world.run()
    check_exact("counts", expected(made, said.dropped), result)
    return sum(map(count, said.dropped.values()))


def test_the_stable_output_is_that_of_the_input_without_what_was_dropped() -> None:
    dropped = [run(seed) for seed in range(12)]
    assert sum(tuples > 0 for tuples in dropped) > 3


def _replacements_forget(patch: pytest.MonkeyPatch) -> None:
    """A replacement takes what was dropped before it."""

    def keep_at_most(self: SUnion, tuples: int | None, dropped: Any) -> None:
        kept(self, tuples, [()] * len(dropped))

    kept = SUnion.keep_at_most
    patch.setattr(SUnion, "keep_at_most", keep_at_most)


def _goes_back_at_once(patch: pytest.MonkeyPatch) -> None:
    """It is not written down before."""
    patch.setattr(DropLedger, "want", lambda self, dropping: None)


def _says_less(patch: pytest.MonkeyPatch) -> None:
    """The last tuple of each range is not told."""

    def stored(self: DropLedger, point: Any) -> Any:
        return ((name, first, end - 1) for name, first, end in kept(self, point))

    kept = DropLedger.stored
    patch.setattr(DropLedger, "stored", stored)


def _drops_what_may_have_had_effects(patch: pytest.MonkeyPatch) -> None:
    """A replacement drops what its predecessor has processed."""

    def begin(self: DropLedger, *given: Any) -> None:
        kept(self, *given)
        self.droppable_from = dict.fromkeys(self.droppable_from, 0)

    kept = DropLedger.__init__
    patch.setattr(DropLedger, "__init__", begin)


FOUND_AT = {
    _replacements_forget: 5,
    _goes_back_at_once: 0,
    _says_less: 0,
    _drops_what_may_have_had_effects: 5,
}
"""The seed that is tried before the others; see `KeptSeeds`."""


@pytest.mark.parametrize("mutant", FOUND_AT)
def test_the_mutant_is_found(mutant: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant(monkeypatch)
    with pytest.raises((Violation, ValueError, InvariantViolation)):
        [run(seed) for seed in (FOUND_AT[mutant], *range(60))]
