"""What comes in time.

I-SOON   without faults a tuple is written to a sink soon after all sources behind the sink have
         promised that nothing of its time follows, however little comes after it.

Checked where event time alone decides when a tuple comes: behind filters, selects, unions by time,
windows of time and joins. What counts tuples, or waits for the next one, comes when that is there.

Two waits of nodes on the way are no fault of theirs, and do not count. A unit may have gone on
without input that came later than its bound: then it corrects what has come after `PATIENCE`
bounds. And a node cannot send on while a receiver has all the input that it may hold, as that one
waits for another source, or is to correct.
"""

from __future__ import annotations

from bisect import bisect_right
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from holdfast.api.steps import IncrementalJoin, Passing, Source, Union, WindowAggregate
from holdfast.api.windows import Window
from holdfast.core.haunit import events
from holdfast.core.model.ids import BEGINNING_US, NodeId, StreamId
from holdfast.core.replication.consistency_manager import PATIENCE
from holdfast.sim.checkers.base import Checker, Violation

if TYPE_CHECKING:
    from holdfast.api.graph import Graph
    from holdfast.api.steps import Step
    from holdfast.core.machine import Effect, Stimulus
    from holdfast.sim.process import Process
    from holdfast.sim.world import World

SOON_US: Final = 1_000_000


def timed_sinks(flow: Graph) -> dict[str, frozenset[str]]:
    """The sinks for which event time alone decides, and the sources behind each."""
    return {sink: _sources(step) for sink, step in flow.sinks.items() if _is_timed(step)}


def _is_timed(step: Step) -> bool:
    match step.operation:
        case WindowAggregate(windows=windows):
            is_timed = isinstance(windows, Window) and windows.is_plain
        case Union() as union:
            is_timed = not union.is_by_arrival
        case operation:
            is_timed = isinstance(operation, Source | Passing | IncrementalJoin)
    return is_timed and all(_is_timed(source) for source in step.inputs)


def _sources(step: Step) -> frozenset[str]:
    if not step.inputs:
        return frozenset({step.name})
    return frozenset().union(*map(_sources, step.inputs))


class Promptness(Checker):
    """See the module."""

    looks_at = MappingProxyType(
        {
            "stepping": (events.SourceRead,),
            "stepped": (events.Proceed, events.AckReceived, events.SubscribeReceived),
            "performing": (events.WriteSink,),
        }
    )

    def __init__(self, sources_of: dict[str, frozenset[str]]) -> None:
        """As `timed_sinks` gives it."""
        self._sources_of = sources_of
        self._streams: dict[str, list[StreamId]] = {}
        self._promised: dict[StreamId, tuple[list[int], list[int]]] = {}  # boundaries, and when
        self._stuck: dict[NodeId, list[tuple[int, int]]] = {}  # when outputs waited
        self._stuck_from_us: dict[NodeId, int] = {}  # since when they do
        self._world: World | None = None

    def begin(self, world: World) -> None:
        """Look which streams the sources have; with faults nothing is promised."""
        self._world = None if world.faults else world
        self.idle = ("stepped",) if world.faults or not self._sources_of else ()
        for sink, sources in self._sources_of.items():
            streams = [s for s in world.sources if s.rpartition("[")[0] in sources]
            self._streams[sink] = streams
        self._promised = {stream: ([], []) for stream in world.sources}

    def stepping(self, process: Process, stimulus: Stimulus) -> None:
        """Note when a source has promised what."""
        if self._world is None or not isinstance(stimulus, events.SourceRead):
            return
        boundaries, times_us = self._promised[stimulus.stream]
        newest_us = boundaries[-1] if boundaries else BEGINNING_US
        if process.is_primary and stimulus.boundary_us > newest_us:
            boundaries.append(stimulus.boundary_us)
            times_us.append(self._world.scheduler.now_us)

    def stepped(self, process: Process, stimulus: Stimulus, effects: list[Effect]) -> None:
        """Note when nodes cannot send on."""
        del stimulus, effects
        machine, node = process.machine, process.node
        if self._world is None or machine is None:
            return
        now_us = self._world.scheduler.now_us
        if machine.statistics().unsent_tuples:
            self._stuck_from_us.setdefault(node, now_us)
        elif node in self._stuck_from_us:
            self._stuck.setdefault(node, []).append((self._stuck_from_us.pop(node), now_us))

    def performing(self, process: Process, effect: Effect) -> None:
        """I-SOON."""
        if self._world is None or not isinstance(effect, events.WriteSink):
            return
        sink = effect.stream.rpartition("[")[0]
        if sink not in self._streams or not effect.batch.count:
            return
        oldest_us = int(effect.batch.time_us.min())
        due_us = self._due_us(sink, oldest_us)
        late_us = self._world.scheduler.now_us - due_us
        if late_us > SOON_US and late_us > SOON_US + self._waits_us(process.node, due_us):
            raise Violation(
                "I-SOON",
                f"{effect.stream} gets a tuple of {oldest_us} {late_us / 1e6:.1f} s after all its "
                "sources have passed that time",
            )

    def _waits_us(self, node: NodeId, due_us: int, seen: frozenset[NodeId] = frozenset()) -> int:
        """How long a node, and those before it on the longest way, may wait from a time on."""
        if self._world is None or node in seen:
            return 0
        plan = self._world.plans[node]
        producers = [spec.producer for spec in plan.inputs if spec.producer is not None]
        before = (self._waits_us(each, due_us, seen | {node}) for each in producers)
        waits_us = max(before, default=0) + self._stuck_us(node, due_us)
        if plan.delays is not None and len(plan.inputs) > 1 and self._has_gone_on(node):
            waits_us += 1_000 * PATIENCE * plan.delays.bound_ms
        return waits_us

    def _stuck_us(self, node: NodeId, due_us: int) -> int:
        """For how long its outputs have waited for a receiver since then."""
        now_us = self._world.scheduler.now_us if self._world is not None else 0
        present = (self._stuck_from_us.get(node, now_us), now_us)
        times = (*self._stuck.get(node, ()), present)
        return sum(to_us - max(from_us, due_us) for from_us, to_us in times if to_us > due_us)

    def _has_gone_on(self, node: NodeId) -> bool:
        """Whether a node was ever in up_failure."""
        processes = self._world.processes.values() if self._world is not None else ()
        machines = [process.machine for process in processes if process.node == node]
        said = [machine.consistency for machine in machines if machine is not None]
        return any(consistency is not None and consistency.failures for consistency in said)

    def _due_us(self, sink: str, time_us: int) -> int:
        """When all sources had passed a time; the present if one has not."""
        due_us = 0
        for stream in self._streams[sink]:
            boundaries, times_us = self._promised[stream]
            at = bisect_right(boundaries, time_us)
            if at == len(boundaries):
                return self._world.scheduler.now_us if self._world is not None else 0
            due_us = max(due_us, times_us[at])
        return due_us
