"""Elastic restarts by seed: a dataflow is left at one parallelism and goes on at another.

Two worlds of whole query networks, one after the other. In the first one a part of the input
arrives, under faults, and nothing more does. Once all nodes are at one cut (planning/division.py),
as their positions and the journal say, it stops: what was written is durable, and all else is gone.
The cores divide what the store holds. The second world begins with the journal that they have
written, the same store and the same logs of sinks, and runs to its end, under faults as well.

I-PRECISE, I-TIME   sinks hold, over all instances of both lives, what a run without failures puts
                    out at either parallelism, with its tuple times; of a sink for which that is not
                    the same, as ties have no order then, nothing is asked.
I-ID                no sink's log has a gap or a repeat.
I-LIVE              the second life ends.

In some, windows leave footprints, and the other units are replayed. The first life writes them
whenever there is time, as a unit does that drains.

In three of ten, units recover together: then the cut is a line at which nothing is in flight. In
some of these they are in a loop.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from holdfast.core.coordinator.checkpoint_registry import CheckpointRegistry
from holdfast.core.errors import InvariantViolation, LocalProtocolError, RemoteProtocolError
from holdfast.core.haunit.events import CheckpointWritten
from holdfast.core.haunit.plan import FootprintPlan
from holdfast.core.model.footprints import footprint_schema
from holdfast.core.model.ids import StreamId
from holdfast.core.model.tuples import with_time
from holdfast.core.recovery.restart_point import CheckpointRef
from holdfast.planning.divided_footprints import (
    extent_of,
    footprinted,
    is_of_one_cut,
    leading_to,
    mark_of,
    operators_of,
    records_of,
)
from holdfast.planning.divided_regions import points_to_divide
from holdfast.planning.division import Division, Stand
from holdfast.sim.checkers.base import Violation
from holdfast.sim.checkers.fencing import Fencing
from holdfast.sim.checkers.output import PreciseOutput
from holdfast.sim.checkers.promises import AtLeastOnce
from holdfast.sim.disk import SimulatedLog
from holdfast.sim.draw import Draw
from holdfast.sim.faults import plan_faults
from holdfast.sim.network import NetworkProfile
from holdfast.sim.process_sinks import extent_of as logged_extent
from holdfast.sim.store import CheckpointWriting, load_checkpoint
from holdfast.sim.workload.base import SPAN_US
from holdfast.sim.workload.known import KNOWN, known_workload
from holdfast.sim.workload.loops import looped_workload
from holdfast.sim.workload.oracle import Expected
from holdfast.sim.workload.protections import CUTS, EVENTUAL
from holdfast.sim.workload.together import merged_workload
from holdfast.sim.world import Conditions, World

if TYPE_CHECKING:
    from holdfast.core.coordinator.journal_entries import JournalEntry, NewLife
    from holdfast.core.haunit.plan import NodePlan
    from holdfast.core.haunit.prepared import PreparedCheckpoint
    from holdfast.core.model.ids import Incarnation, NodeId
    from holdfast.core.model.tuples import TupleBatch
    from holdfast.core.operators.base import Operator
    from holdfast.core.recovery.extent import Extent
    from holdfast.core.recovery.restart_point import RestartPoint
    from holdfast.sim.scheduler import Trace
    from holdfast.sim.workload.base import Workload
    from holdfast.sim.workload.source import SimulatedSource

_KINDS: Final = ("kill", "machine-crash", "pause", "driver-crash", "break", "lost-frames", "stall")
_FAULTY_PERCENT: Final = 60
"""Of lives have faults."""
_RECORD_BYTES: Final = 2_000
"""So few that new instances write several records."""
_TOGETHER_PERCENT: Final = 30
"""Of seeds, whose units recover together."""
_EVENTUAL_PERCENT: Final = 40
"""Of the others, in which windows leave footprints."""
_LOOP_PERCENT: Final = 40
"""Of these, in which they are in a loop."""
_LOOK_US: Final = 20_000
_LINGERS_US: Final = 10_000_000
"""So long the first life waits for a cut; a unit that holds tuples of another may never have one"""
_COUNTS: Final = (1, 2, 3, 4)
_REPEATING_PERCENT: Final = 30
"""Of the runs in which units recover together have some whose results may come again."""


@dataclass(frozen=True, slots=True)
class Rescaled:
    """How a run went.

    Attributes:
        invariant: The one that does not hold; None: all hold.
        violation: What was seen; of a run that was not divided, why.
        is_divided: Whether there was a cut.
        rows: Rows in sinks at the end.
        digest: Hash over all events of both lives.
    """

    invariant: str | None = None
    violation: str = ""
    is_divided: bool = False
    rows: int = 0
    digest: str = ""


def simulate_rescaling(seed: int, trace: Trace | None = None) -> Rescaled:
    """Run a seed; a violated invariant is part of the outcome; `trace` is told of both lives."""
    try:
        return _Run(seed, trace).outcome()
    except Violation as wrong:
        return Rescaled(wrong.invariant, str(wrong))
    except (InvariantViolation, RemoteProtocolError, LocalProtocolError) as error:
        return Rescaled(type(error).__name__, str(error))


class _Run:
    """Both lives of a seed."""

    def __init__(self, seed: int, trace: Trace | None) -> None:
        """Draw them."""
        self._seed = seed
        self._trace = trace
        draw = Draw(f"{seed}/rescaling")
        self._dataflow = draw.one_of(KNOWN)
        lines = Draw(f"{seed}/rescaling/lines")
        self._cuts = lines.one_of(tuple(CUTS)) if lines.percent(_TOGETHER_PERCENT) else None
        loops = Draw(f"{seed}/rescaling/loops")
        self._is_looped = self._cuts is not None and loops.percent(_LOOP_PERCENT)
        repeats = Draw(f"{seed}/rescaling/repeats").percent(_REPEATING_PERCENT)
        self._guarantee = "rollback" if repeats else "precise"  # of units that recover together
        eventual = Draw(f"{seed}/rescaling/each window").percent(_EVENTUAL_PERCENT)
        self._approach = EVENTUAL if eventual else "checkpoints"
        before = draw.one_of(_COUNTS)
        after = draw.one_of([count for count in _COUNTS if count != before])
        self._before, self._after = self._workload(before), self._workload(after)
        if eventual and not any(plan.footprints for plan in self._before.plans):
            self._approach = "checkpoints"  # Its state is not made of windows.
            self._before, self._after = self._workload(before), self._workload(after)
        self._stops_us = draw.number(SPAN_US // 5, SPAN_US * 9 // 10)
        self._conditions = Conditions(
            machines=draw.number(1, 3),
            network=NetworkProfile(
                local_us=draw.steep(50, 1_000),
                remote_us=draw.steep(200, 20_000),
                bytes_per_us=draw.steep(1, 1_000),
            ),
            disk_us=draw.steep(1_000, 20_000),
            uses_codec=draw.percent(25),
            has_part_logs=Draw(f"{seed}/rescaling/logs").percent(40),
        )

    def _workload(self, instances: int) -> Workload:
        if self._is_looped:
            return looped_workload(self._seed, None, self._cuts, instances, self._guarantee)
        if self._cuts is not None:
            return merged_workload(self._seed, self._cuts, instances, self._guarantee)
        return known_workload(
            self._dataflow, self._seed, None, self._approach, "precise", parallelism=instances
        )

    def outcome(self) -> Rescaled:
        """Run both."""
        division = Division(self._before.plans, self._after.plans)
        reason = division.why_not()
        if reason is not None:
            return Rescaled(violation=reason)
        first = self._world("first", _draining(self._before.plans), self._first_sources())
        first.scheduler.tell(f"first life: {_described(self._before)}")
        found = _Drained(first, division).points()
        digest = first.scheduler.digest()
        if isinstance(found, str):
            return Rescaled(violation=found, digest=digest)
        home = _Home(first)
        home.stop()
        registry = CheckpointRegistry.of(first.journal.read())
        plans = self._before.plans
        left = division.left(found, points_to_divide(registry, plans), home)
        if isinstance(left, str):
            return Rescaled(violation=left, digest=digest)
        entries = division.divide(left, registry.incarnations(), home)
        first.scheduler.tell("divided at one cut")
        second = self._world("second", self._after.plans, self._second_sources())
        second.scheduler.tell(f"second life: {_described(self._after)}")
        _take_over(second, first, entries)
        result = second.run()
        rows = sum(map(len, result.rows.values()))
        return Rescaled(None, "", True, rows, f"{digest}{result.digest}")

    def _world(
        self, life: str, plans: tuple[NodePlan, ...], sources: dict[StreamId, SimulatedSource]
    ) -> World:
        draw = Draw(f"{self._seed}/rescaling/{life}")
        planned = plan_faults(draw.number(0, 1 << 30), _KINDS, self._stops_us)
        faults = dict(enumerate(planned)) if draw.percent(_FAULTY_PERCENT) else {}
        expected, promises = self._expected(), self._before.promises
        return World(
            plans,
            sources,
            seed=draw.number(0, 1 << 30),
            faults=faults,
            conditions=self._conditions,
            checkers=(
                Fencing(),
                PreciseOutput(expected, promises, replays=_has_to_replay(plans)),
                AtLeastOnce(expected, promises),
            ),
            trace=self._trace,
        )

    def _expected(self) -> Expected:
        """What is the same at both parallelisms."""
        one, other = self._before.expected, self._after.expected
        rows = {sink: found for sink, found in one.rows.items() if found == other.rows[sink]}
        timed = {s: found for s, found in one.timed.items() if found == other.timed.get(s)}
        return Expected(rows, {sink: found for sink, found in timed.items() if sink in rows})

    def _first_sources(self) -> dict[StreamId, SimulatedSource]:
        """A part of the input, behind which nothing comes."""
        stops_us = self._stops_us
        return {
            stream: replace(
                source,
                arrivals=tuple(a for a in source.arrivals if a.at_us <= stops_us),
                lingers_us=2 * _LINGERS_US,
            )
            for stream, source in self._before.sources.items()
        }

    def _second_sources(self) -> dict[StreamId, SimulatedSource]:
        """All input; the part that was there is there at once."""
        stops_us = self._stops_us
        return {
            stream: replace(
                source,
                arrivals=tuple(
                    replace(a, at_us=max(0, a.at_us - stops_us)) for a in source.arrivals
                ),
            )
            for stream, source in self._after.sources.items()
        }


def _described(workload: Workload) -> str:
    return ", ".join(plan.node for plan in workload.plans)


def _has_to_replay(plans: tuple[NodePlan, ...]) -> bool:
    """Whether a cut may be a time, so that rows come again that were sent behind one that waits."""
    return any(plan.footprints is not None and len(plan.inputs) > 1 for plan in plans)


def _draining(plans: tuple[NodePlan, ...]) -> tuple[NodePlan, ...]:
    """Windows are always due."""
    return tuple(
        plan if plan.footprints is None else replace(plan, footprints=FootprintPlan(1.0, 0))
        for plan in plans
    )


class _Drained:
    """A world in which input has stopped, until all its nodes are at one cut."""

    def __init__(self, world: World, division: Division) -> None:
        """Look every now and then."""
        self._world = world
        self._division = division
        self._found: dict[NodeId, RestartPoint] | str = "nobody has looked yet"
        self._is_late = False

    def points(self) -> dict[NodeId, RestartPoint] | str:
        """Where each node is; or why there is no cut."""
        self._look_again()
        self._world.run_until(lambda: self._is_late or not isinstance(self._found, str))
        return self._found

    def _look_again(self) -> None:
        self._found = self._look()
        self._is_late = self._world.scheduler.now_us > _LINGERS_US
        self._world.scheduler.after(_LOOK_US, self._look_again)

    def _look(self) -> dict[NodeId, RestartPoint] | str:
        life = self._world.life
        if life is None or life.is_over:
            return "there is no driver"
        stands: dict[NodeId, Stand] = {}
        for node in self._world.plans:
            machine = life.primary_machine(node)
            if machine is None:
                return f"{node} is coming up"
            positions, counted = machine.positions(), machine.statistics()
            stands[node] = Stand(
                {str(stream): before for stream, before in positions["processed"].items()},
                {str(stream): next_id for stream, next_id in positions["next_ids"].items()},
                counted.boundary_us,
                counted.held_tuples,
            )
            for stream, processed in positions["processed"].items():
                source = self._world.sources.get(stream)
                if source is not None and processed < source.newest_id(_LINGERS_US):
                    return f"{stream} is not worked off"
        entries = self._world.journal.read()
        registry = CheckpointRegistry.of(entries)
        stored = points_to_divide(registry, self._world.plans.values())
        return self._division.points(stands, stored, _Home(self._world))


class _Home:
    """What a world that has stopped holds; see `division.Home`."""

    def __init__(self, world: World) -> None:
        """Of a world at a cut."""
        self._world = world

    def stop(self) -> None:
        """What its nodes have written to files becomes durable; parts of objects are dropped."""
        life = self._world.life
        for process in () if life is None else life.processes.values():
            if process.is_dead or not process.is_primary:
                continue
            for output in process.plan.outputs:
                for stream in output.streams if output.is_sink else ():
                    log = self._world.sinks[stream]
                    if isinstance(log, SimulatedLog) and log.is_newest(process.incarnation):
                        log.sync(process.incarnation)

    def loaded(self, plan: NodePlan, ref: CheckpointRef) -> list[Operator]:
        """From the store."""
        schemas = {s: with_time(o.schema) for o in plan.outputs for s in o.streams}
        store, limits = self._world.store, plan.limits
        found = load_checkpoint(store, plan.node, ref, schemas, limits.state_bytes)
        return [spec.build(found.pages) for spec in plan.operators]

    def store_checkpoint(self, plan: NodePlan, prepared: PreparedCheckpoint) -> CheckpointRef:
        """Into the store."""
        del plan
        writing = CheckpointWriting(self._world.store, prepared, _no_spill)
        while not isinstance(said := writing.step(), CheckpointWritten):
            pass
        stored = said.stored
        return CheckpointRef(stored.checkpoint, stored.checksum, stored.bases())

    def windows(self, plan: NodePlan, point: RestartPoint) -> list[Operator] | None:
        """From its footprint log."""
        return operators_of(plan, self._extent(plan, point))

    def write_windows(
        self, plan: NodePlan, made: list[Operator], point: RestartPoint, incarnation: Incarnation
    ) -> RestartPoint:
        """Into the instance's own footprint log, which may be new."""
        operator, stream = footprinted(made), plan.footprint_stream
        said, schema = operator.whole(), footprint_schema(operator.body_schema)
        kind = type(next(iter(self._world.sinks.values())))  # All are files, or all are objects.
        log = self._world.sinks.setdefault(stream, kind(stream, schema))
        first_id = ends_at = log.open(incarnation, 0)
        mark = mark_of(plan, point, len(said.windows))
        for record in records_of(operator, said, mark, first_id, _RECORD_BYTES):
            log.append(incarnation, record)
            ends_at = record.next_id
        if isinstance(log, SimulatedLog):
            log.sync(incarnation)
        else:
            log.store(incarnation)
            log.stored(incarnation)
        return leading_to(plan, point, first_id, ends_at)

    def are_written(self, plan: NodePlan, point: RestartPoint) -> bool:
        """As its footprint log says."""
        return is_of_one_cut(self._extent(plan, point))

    def _extent(self, plan: NodePlan, point: RestartPoint) -> Extent | None:
        def read(first_id: int, ends_at: int) -> Extent:
            log = self._world.sinks[plan.footprint_stream]
            return logged_extent(log, first_id, ends_at, len(plan.inputs))

        return extent_of(plan, point, read)

    def sink_next_id(self, stream: str) -> int:
        """As the log says; one that is new is empty."""
        log = self._world.sinks.get(StreamId(stream))
        return 0 if log is None else log.durable_before()

    def sink_holds(self, stream: str, before: int) -> bool:
        """A file will once it is synced; of an object what is stored."""
        log = self._world.sinks[StreamId(stream)]
        return isinstance(log, SimulatedLog) or log.durable_before() >= before

    def announce(self, lives: tuple[NewLife, ...]) -> None:
        """Nobody goes on in this world, where others could have the same incarnations."""


def _no_spill(stream: StreamId, from_id: int, to_id: int) -> tuple[TupleBatch, ...]:
    raise AssertionError(f"{stream} {from_id} to {to_id}: a divided state has no output")


def _take_over(world: World, former: World, entries: list[JournalEntry]) -> None:
    """A world begins with a journal, and with the store and the logs of another one."""
    world.store = former.store
    gone = {s for node, p in former.plans.items() if node not in world.plans for s in p.own_logs}
    world.sinks |= {stream: log for stream, log in former.sinks.items() if stream not in gone}
    world.journal.claim(1)
    world.journal.append(1, entries)
    world.journal.sync(1)
