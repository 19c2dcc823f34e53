"""What one seed runs: workload, cluster, faults; and how a run went."""

from __future__ import annotations

import gc
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from holdfast.sim.beside import BESIDE, figures_of
from holdfast.sim.checkers import Violation, all_checkers, timed_sinks
from holdfast.sim.draw import Draw
from holdfast.sim.faults import KINDS, Fault, plan_faults
from holdfast.sim.network import NetworkProfile
from holdfast.sim.workload.base import SPAN_US
from holdfast.sim.workload.changing import changing_workload
from holdfast.sim.workload.kinds_of_steps import ONLY
from holdfast.sim.workload.known import KNOWN, known_workload
from holdfast.sim.workload.loops import looped_workload
from holdfast.sim.workload.processes import process_workload
from holdfast.sim.workload.protections import CUTS, GO_ON, TINY_MAX, approach_of
from holdfast.sim.workload.random_dataflow import random_workload
from holdfast.sim.world import Conditions, World

if TYPE_CHECKING:
    from holdfast.core.haunit.plan import NodeLimits
    from holdfast.sim.scheduler import Trace
    from holdfast.sim.workload.base import Workload

_FAULT_SPAN_US = SPAN_US + 200_000
_ENDLESS_PERCENT = 10
_LINGERS_US = 2_500_000
_KNOWN_EVERY = 8
_LOOP_EVERY = 25
_CHANGELOG_EVERY, _CHANGELOG_AT = 50, 49
MIXED, RANDOM, LOOP, PROCESS = "mixed", "random", "loop", "process"
CHANGELOG = "changelog"
DATAFLOWS = (MIXED, RANDOM, *ONLY, LOOP, PROCESS, CHANGELOG, *KNOWN, *BESIDE)


@dataclass(frozen=True, slots=True)
class Run:
    """One run, named so that it can be repeated and cut down.

    Attributes:
        seed: Draws workload, cluster, faults and all chances.
        kinds: The kinds of faults that may be drawn.
        keep: Which of the planned faults strike; None: all.
        tuples: Most tuples per source partition; None: all.
        dataflow: One of `DATAFLOWS`; mixed is a random one, now and then a loop, a changelog or a
            known one; those of `ONLY` are random ones of one kind; those of `BESIDE` have worlds of
            their own.
        approach: One of `APPROACHES`, for all units; None: it is drawn.
        guarantee: One of `GUARANTEES`, the weakest that units have; None: it is drawn.
    """

    seed: int
    kinds: tuple[str, ...] = tuple(KINDS)
    dataflow: str = MIXED
    keep: tuple[int, ...] | None = None
    tuples: int | None = None
    approach: str | None = None
    guarantee: str | None = None

    def faults(self) -> dict[int, Fault]:
        """The faults that strike, by their numbers in the plan."""
        is_often_silent = self.approach in GO_ON
        planned = plan_faults(
            self.seed, self.kinds, _FAULT_SPAN_US, is_often_silent=is_often_silent
        )
        return {i: f for i, f in enumerate(planned) if self.keep is None or i in self.keep}

    def workload(self) -> Workload:
        """What it computes; now and then its sources go on for long without a tuple."""
        workload = self._workload()
        if not Draw(f"{self.seed}/endless").percent(_ENDLESS_PERCENT):
            return workload
        sources = {s: replace(one, lingers_us=_LINGERS_US) for s, one in workload.sources.items()}
        return replace(workload, sources=sources)

    def _workload(self) -> Workload:
        name = self.dataflow
        if name == MIXED:
            name = self._mixed()
        if name == RANDOM or name in ONLY:
            only = None if name == RANDOM else name
            return random_workload(self.seed, self.tuples, self.approach, self.guarantee, only=only)
        if name == LOOP:
            own = self.seed, self.tuples, self.approach
            return looped_workload(*own, guarantee=self.guarantee)
        if name == CHANGELOG:
            return changing_workload(self.seed, self.tuples, self.approach)
        if name == PROCESS:
            return process_workload(self.seed, self.tuples, self.approach, self.guarantee)
        return known_workload(name, self.seed, self.tuples, self.approach, self.guarantee)

    def _mixed(self) -> str:
        if self.seed % _KNOWN_EVERY == _KNOWN_EVERY - 1:
            return KNOWN[self.seed // _KNOWN_EVERY % len(KNOWN)]
        is_precise = self.guarantee in (None, "precise")
        looping = (None, *CUTS) if is_precise else tuple(CUTS)
        may_loop = self.guarantee != "gap" and self.approach in looping
        if may_loop and self.seed % _LOOP_EVERY == _LOOP_EVERY // 2:
            return LOOP
        is_changelog = is_precise and self.seed % _CHANGELOG_EVERY == _CHANGELOG_AT
        return CHANGELOG if is_changelog else RANDOM

    def command(self) -> str:
        """How to see it again."""
        words = ["holdfast simulate", f"--seed {self.seed}"]
        if self.kinds != tuple(KINDS):
            words.append(f"--faults {','.join(self.kinds) or 'none'}")
        if self.dataflow != MIXED:
            words.append(f"--dataflow {self.dataflow}")
        if self.approach is not None:
            words.append(f"--approach '{self.approach}'")
        if self.guarantee is not None:
            words.append(f"--guarantee {self.guarantee}")
        if self.keep is not None:
            words.append(f"--keep {','.join(map(str, self.keep)) or 'none'}")
        if self.tuples is not None:
            words.append(f"--tuples {self.tuples}")
        words.append("--trace")
        return " ".join(words)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run went.

    Attributes:
        run: The run.
        invariant: The one that does not hold; None: all hold.
        violation: What was seen; empty when all is well.
        faults: How many of each kind struck.
        reached: How often rare situations were met.
        virtual_us: How long it took.
        events: Events of the scheduler.
        rows: Rows in sinks at the end.
        digest: Hash over all events.
        protections: How its units were protected, each once.
    """

    run: Run
    invariant: str | None = None
    violation: str = ""
    faults: dict[str, int] = field(default_factory=dict)
    reached: dict[str, int] = field(default_factory=dict)
    virtual_us: int = 0
    events: int = 0
    rows: int = 0
    digest: str = ""
    protections: tuple[str, ...] = ()


def conditions(seed: int, limits: NodeLimits) -> Conditions:
    """The cluster of a seed.

    Queues for few tuples have no slow disks beside them: every few tuples would wait for one, and
    the run would not end for that alone. Nor are clocks far apart, for which who merges windows of
    processing time of several machines waits.
    """
    draw = Draw(f"{seed}/conditions")
    is_tiny = limits.input_queue_tuples <= TINY_MAX
    network = NetworkProfile(
        local_us=draw.steep(50, 1_000),
        remote_us=draw.steep(200, 20_000),
        bytes_per_us=draw.steep(1, 1_000),
    )
    return Conditions(
        machines=draw.number(1, 3),
        network=network,
        disk_us=draw.steep(1_000, 10_000 if is_tiny else 200_000),
        uses_codec=draw.percent(25),
        skew=draw.percent(50) and not is_tiny,
        has_part_logs=draw.percent(25),
    )


def simulate(run: Run, trace: Trace | None = None) -> Outcome:
    """Run a seed; a violated invariant is part of the outcome.

    Within it nothing is looked for that only refers to itself: most objects live as long as the
    world, which goes as a whole when the next run begins.
    """
    gc.collect(1)
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return _simulate(run, trace)
    finally:
        if was_enabled:
            gc.enable()


def _simulate(run: Run, trace: Trace | None) -> Outcome:
    if run.dataflow in BESIDE:
        return Outcome(run, **figures_of(BESIDE[run.dataflow](run.seed, trace)))
    workload = run.workload()
    world = World(
        workload.plans,
        workload.sources,
        seed=run.seed,
        faults=run.faults(),
        conditions=conditions(run.seed, workload.plans[0].limits),
        checkers=all_checkers(workload.expected, workload.promises, timed_sinks(workload.flow)),
        trace=trace,
    )
    invariant, violation, rows, digest = None, "", 0, world.scheduler.digest()
    try:
        result = world.run()
        rows, digest = sum(len(r) for r in result.rows.values()), result.digest
    except Violation as wrong:
        invariant, violation = wrong.invariant, str(wrong)
    except Exception as error:  # Whatever a core raises in a run is what we are looking for.
        invariant, violation = type(error).__name__, f"{type(error).__name__}: {error}"
    return Outcome(
        run,
        invariant,
        violation,
        world.strikes.struck,
        world.reached,
        world.scheduler.now_us,
        world.scheduler.events,
        rows,
        digest,
        tuple(sorted({approach_of(plan) for plan in workload.plans})),
    )
