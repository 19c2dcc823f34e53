"""The sources that a simulated process reads."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from holdfast.core.haunit import events
from holdfast.core.haunit.life_events import OpenSources, SourcesOpened
from holdfast.core.model.ids import BEGINNING_US, END_US, NO_ID

if TYPE_CHECKING:
    from holdfast.core.model.ids import StreamId
    from holdfast.core.model.tuples import TupleBatch
    from holdfast.sim.process import Process
    from holdfast.sim.workload.source import SimulatedReader
    from holdfast.sim.world import World

DRAINED: Final = "source drained"
"""The step of who has read all of a source, and is about to hear that it has ended."""


class ProcessSources:
    """Reads them for one process."""

    def __init__(self, process: Process, world: World) -> None:
        """Nothing has been read."""
        self._process = process
        self._world = world
        self._scheduler = world.scheduler
        self._readers: dict[StreamId, SimulatedReader] = {}
        self._stirring: set[StreamId] = set()  # those that will say that there may be more

    def open(self, effect: OpenSources) -> None:
        """There is nothing to wait for."""
        self._process.at_once.append(SourcesOpened(effect.request_id))

    def read(self, effect: events.ReadSource) -> None:
        """Read some tuples, with their promise; say later if there may be more."""
        source = self._reader(effect.stream)
        from_id = effect.from_id
        if from_id == NO_ID:
            from_id = source.newest_id(self._scheduler.now_us)
        wanted = min(effect.max_tuples, self._scheduler.uniform(f"source/{effect.stream}", 1, 64))
        batches, boundary_us = self._given(effect.stream, from_id, wanted)
        delay_us = self._scheduler.uniform("source/read", 20, 500)
        read = events.SourceRead(effect.stream, batches, boundary_us, from_id)
        self._process.answer(read, delay_us)
        if not batches and effect.stream not in self._stirring:
            self._stirring.add(effect.stream)
            stirs_us = self._scheduler.uniform("source/stirs", 100, 60_000)
            self._scheduler.after(delay_us + stirs_us, lambda: self._stir(effect.stream))

    def _given(
        self, stream: StreamId, from_id: int, wanted: int
    ) -> tuple[tuple[TupleBatch, ...], int]:
        """What a source gives, and promises, unless it has fallen silent."""
        strikes = self._world.strikes
        if strikes.ailments.is_silent(stream):
            return (), BEGINNING_US
        batches, boundary_us = self._reader(stream).read(from_id, wanted, self._scheduler.now_us)
        if boundary_us == END_US:
            strikes.passed(DRAINED, self._process)
        is_end_held = boundary_us == END_US and strikes.ailments.are_ends_held
        if not (is_end_held or strikes.ailments.is_silent(stream, "no-boundaries")):
            return batches, boundary_us
        return tuple(replace(batch, boundary_us=BEGINNING_US) for batch in batches), BEGINNING_US

    def _reader(self, stream: StreamId) -> SimulatedReader:
        """This process's own reader of a source."""
        reader = self._readers.get(stream)
        if reader is None:
            reader = self._readers[stream] = self._world.sources[stream].open()
        return reader

    def _stir(self, stream: StreamId) -> None:
        """There may be something by now, or not."""
        self._stirring.discard(stream)
        if self._process.machine is not None:
            self._process.take(events.SourceStirred(stream))
