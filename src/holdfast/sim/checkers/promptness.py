"""What comes in time.

I-SOON   without faults a tuple is written to a sink soon after all sources behind the sink have
         promised that nothing of its time follows, however little comes after it.

Checked where event time alone decides when a tuple comes: behind filters, selects, unions by time,
windows of time and joins. What counts tuples, or waits for the next one, comes when that is there.
"""

from __future__ import annotations

from bisect import bisect_right
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from holdfast.api.steps import IncrementalJoin, Passing, Source, Union, WindowAggregate
from holdfast.api.windows import Window
from holdfast.core.haunit import events
from holdfast.core.model.ids import BEGINNING_US, StreamId
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
            "performing": (events.WriteSink,),
        }
    )

    def __init__(self, sources_of: dict[str, frozenset[str]]) -> None:
        """As `timed_sinks` gives it."""
        self._sources_of = sources_of
        self._streams: dict[str, list[StreamId]] = {}
        self._promised: dict[StreamId, tuple[list[int], list[int]]] = {}  # boundaries, and when
        self._world: World | None = None

    def begin(self, world: World) -> None:
        """Look which streams the sources have; with faults nothing is promised."""
        self._world = None if world.faults else world
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

    def performing(self, process: Process, effect: Effect) -> None:
        """I-SOON."""
        if self._world is None or not isinstance(effect, events.WriteSink):
            return
        sink = effect.stream.rpartition("[")[0]
        if sink not in self._streams or not effect.batch.count:
            return
        oldest_us = int(effect.batch.time_us.min())
        late_us = self._world.scheduler.now_us - self._due_us(sink, oldest_us)
        if late_us > SOON_US:
            raise Violation(
                "I-SOON",
                f"{effect.stream} gets a tuple of {oldest_us} {late_us / 1e6:.1f} s after all its "
                "sources have passed that time",
            )

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
