"""The logs that a simulated process writes: sinks, on disks or in a store, and its pass log."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from holdfast.core.haunit import events
from holdfast.core.haunit.extent_restoration import ExtentRead, ReadExtent
from holdfast.core.haunit.life_events import (
    OpeningFailed,
    OpenSinks,
    ReadRecordedPasses,
    RecordedPassesRead,
    SinksOpened,
)
from holdfast.core.haunit.passes import Pass, passes_of
from holdfast.core.haunit.restoration import LoadingFailed
from holdfast.core.model.footprints import FootprintsDamaged
from holdfast.core.model.ids import StreamId
from holdfast.core.model.tuples import between
from holdfast.core.recovery.extent import Extent, ExtentSearch
from holdfast.core.wire.log_opening import SinkLacksTuples
from holdfast.sim.disk import Damage, SimulatedLog, Superseded
from holdfast.sim.part_log import SimulatedPartLog

if TYPE_CHECKING:
    from holdfast.sim.process import Process
    from holdfast.sim.world import World

_STORE_RETRY_US = 50_000
_STORE_ATTEMPTS = 5


def extent_of(
    log: SimulatedLog | SimulatedPartLog, from_id: int, ends_at: int, streams: int
) -> Extent:
    """The eventual checkpoint of the record that ends at a row, of what a footprint log holds.

    Raises:
        Damage: The log cannot be read.
        FootprintsDamaged: Its rows are no eventual checkpoint.
    """
    search = ExtentSearch(ends_at, streams)
    for batch in reversed(between(log.read(), from_id, ends_at)):
        search.add(batch)
    return search.extent()


class ProcessSinks:
    """Opens, writes and syncs them for one process."""

    def __init__(self, process: Process, world: World) -> None:
        """Nothing is open."""
        self._process = process
        self._world = world
        self._scheduler = world.scheduler
        self._storing: dict[StreamId, deque[int]] = {}  # by sink, up to where parts are wanted

    def all(self) -> list[SimulatedLog | SimulatedPartLog]:
        """The logs that it writes."""
        streams = [s for o in self._process.plan.outputs if o.is_sink for s in o.streams]
        streams += self._process.plan.own_logs
        return [self._world.sinks[s] for s in streams]

    def open(self, effect: OpenSinks) -> None:
        """Where logs end is looked up on disk; without any there is nothing to wait for."""

        def opened() -> None:
            if self._process.waits(opened):
                return
            try:
                next_ids = self._open(effect)
            except (Damage, Superseded, SinkLacksTuples) as error:
                self._process.take(OpeningFailed(effect.request_id, error))
            else:
                self._process.take(SinksOpened(effect.request_id, next_ids))

        if self.all():
            self._scheduler.after(self._process.opening_us(), opened)
        else:
            self._process.at_once.append(SinksOpened(effect.request_id, {}))

    def _open(self, effect: OpenSinks) -> dict[StreamId, int]:
        """By log where it goes on."""
        ends: dict[StreamId, int] = {}
        for log in self.all():
            stream = StreamId(log.stream)
            wanted = effect.needs.of(stream, ends)
            machine = self._process.endpoint.machine
            ends[stream] = log.open(effect.incarnation, machine, wanted=wanted)
        return ends

    def read_recorded(self, effect: ReadRecordedPasses) -> None:
        """The passes that the log holds."""
        try:
            passes = self._read_log(self._process.plan.pass_stream, effect.first)
        except Damage as damage:
            self._process.at_once.append(OpeningFailed(effect.request_id, damage))
        else:
            logged = tuple(r for r in passes if r.number < effect.before)
            self._process.at_once.append(RecordedPassesRead(effect.request_id, logged))

    def _read_log(self, stream: StreamId, first: int) -> tuple[Pass, ...]:
        batches = self._world.sinks[stream].read()
        return passes_of(between(batches, first, batches[-1].next_id if batches else first))

    def read_extent(self, effect: ReadExtent) -> None:
        """The eventual checkpoint of a record, as shell/storage/footprint_log.py reads it."""
        plan = self._process.plan

        def read() -> None:
            if self._process.waits(read):
                return
            try:
                log = self._world.sinks[plan.footprint_stream]
                extent = extent_of(log, effect.from_id, effect.ends_at, len(plan.inputs))
            except (Damage, FootprintsDamaged) as error:
                self._process.take(LoadingFailed(error))
            else:
                self._world.count("extent read")
                self._process.take(ExtentRead(extent))

        self._scheduler.after(self._process.disk_us() // 10, read)

    def read_passes(self, effect: events.ReadPasses) -> None:
        """A secondary follows the primary's log."""

        def read() -> None:
            if self._process.is_dead:
                return
            try:
                passes = self._read_log(self._process.plan.pass_stream, effect.from_number)
            except Damage:
                passes = ()  # The primary will find it.
            self._process.take(events.PassesRead(passes))

        self._scheduler.after(self._process.disk_us() // 10, read)

    def write(self, effect: events.WriteSink) -> None:
        """Append to a log."""
        if self._process.dies_of_a_full_disk():
            return
        try:
            self._world.sinks[effect.stream].append(self._process.incarnation, effect.batch)
        except Damage as damage:
            self._process.fail(str(damage), is_fatal=True)

    def sync(self, effect: events.SyncSink) -> None:
        """Make a log durable: at once on a disk, part by part in a store."""
        log = self._world.sinks[effect.stream]
        written_before = log.next_id(self._process.incarnation)
        if isinstance(log, SimulatedPartLog):
            requests = self._storing.setdefault(effect.stream, deque())
            requests.append(written_before)
            if len(requests) == 1:
                self._store_part(log, requests, 0)
            return

        def synced() -> None:
            if not self._process.is_dead:
                log.sync(self._process.incarnation)
                notice()

        def notice() -> None:
            paused_us = self._process.paused_until_us - self._scheduler.now_us
            if paused_us > 0:  # What is on disk is; the process hears of it when it wakes up.
                self._scheduler.after(paused_us, notice)
            elif not self._process.is_dead and not self.is_superseded(log):
                self._process.take(events.SinkSynced(effect.stream, written_before))

        self._scheduler.after(self._process.disk_us(), synced)

    def _store_part(self, log: SimulatedPartLog, requests: deque[int], attempt: int) -> None:
        """One part after the other, each tried again as long as the store gives no answer."""

        def store() -> None:
            paused_us = self._process.paused_until_us - self._scheduler.now_us
            if self._process.is_dead:
                if self._scheduler.uniform("store/late", 0, 1):
                    log.store(self._process.incarnation, self._pick_late)
                    self._world.count("part stored after its writer died")
            elif paused_us > 0:
                self._scheduler.after(paused_us, store)
            elif self._world.strikes.ailments.is_store_away():
                self._retry_part(log, requests, attempt)
            else:
                log.store(self._process.incarnation)
                if attempt < _STORE_ATTEMPTS - 1 and not self._scheduler.uniform(
                    "store/lost", 0, 9
                ):
                    self._world.count("answer of the store lost")
                    self._retry_part(log, requests, attempt)
                else:
                    self._part_stored(log, requests)

        self._scheduler.after(self._process.store_us(), store)

    def _pick_late(self, low: int, high: int) -> int:
        return self._scheduler.uniform("store/cut", low, high)

    def _retry_part(self, log: SimulatedPartLog, requests: deque[int], attempt: int) -> None:
        if attempt == _STORE_ATTEMPTS - 1:
            self._process.fail("the store is away", is_fatal=False)
            return
        again = lambda: self._store_part(log, requests, attempt + 1)  # noqa: E731
        self._scheduler.after(_STORE_RETRY_US << attempt, again)

    def is_superseded(self, log: SimulatedLog | SimulatedPartLog) -> bool:
        """Whether a successor may have missed a record: it may not count, and all is over."""
        is_own = log.stream in self._process.plan.own_logs
        if not is_own or log.is_newest(self._process.incarnation):
            return False
        is_pass = log.stream == self._process.plan.pass_stream
        self._world.count("pass of a zombie" if is_pass else "footprint of a zombie")
        self._process.fail("superseded", is_fatal=False)
        return True

    def _part_stored(self, log: SimulatedPartLog, requests: deque[int]) -> None:
        if self.is_superseded(log):
            return
        try:
            log.stored(self._process.incarnation)
        except Damage as damage:  # Of a part that was to be merged.
            self._process.fail(str(damage), is_fatal=True)
            return
        self._process.take(events.SinkSynced(StreamId(log.stream), requests.popleft()))
        if requests:
            self._store_part(log, requests, 0)
