"""The logs that a node writes: sinks in folders, stores and topics, its passes and footprints."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING

from holdfast.core.haunit import events
from holdfast.core.haunit.durability.eventual import body_schema
from holdfast.core.haunit.extent_restoration import ExtentRead, ReadExtent
from holdfast.core.haunit.life_events import (
    OpenedSink,
    OpeningFailed,
    OpenSinks,
    ReadRecordedPasses,
    RecordedPassesRead,
    SinksOpened,
)
from holdfast.core.haunit.passes import Pass, PassesLost
from holdfast.core.haunit.restoration import LoadingFailed
from holdfast.core.model.ids import StreamId
from holdfast.shell.sinks.base import OutsideWriter, SinkOpening, Waits
from holdfast.shell.spark.node_channels import output_schemas
from holdfast.shell.spark.syncing import Syncing
from holdfast.shell.storage.claimed_log import ClaimedLogWriter
from holdfast.shell.storage.errors import StorageError, UnknownStream
from holdfast.shell.storage.footprint_log import FootprintLogWriter, read_extent
from holdfast.shell.storage.logs import LogWriter, open_tail, open_writer
from holdfast.shell.storage.pass_log import PassLogReader, PassLogWriter, read_passes
from holdfast.shell.storage.stream_log import SEGMENT_BYTES
from holdfast.shell.stores.embedded_place import mount
from holdfast.shell.telemetry import LatencyHistogram

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.core.machine import Stimulus
    from holdfast.core.model.tuples import TupleBatch
    from holdfast.shell.spark.task_spec import TaskSpec
    from holdfast.shell.storage.stream_log import StreamLogReader

_SKIPPED_RECORDS = 1000
"""Records of a sink's log that a secondary passes over before it looks at its channels again."""


class NodeSinks:
    """Opens, writes and syncs them; follows those of the primary.

    Attributes:
        waits: What a broker keeps waiting.
        latency: Of results, from their input to the log.
        has_news: Results have come for somebody who waits for prompt ones; the reporter resets it.
    """

    def __init__(
        self,
        spec: TaskSpec,
        tell: Callable[[Stimulus], None],
        answer: Callable[[Stimulus | Exception], None],
        wake: Callable[[], None],
        has_read: Callable[[int], None],
    ) -> None:
        """Nothing is open.

        Args:
            spec: Where they are.
            tell: Takes answers, in the loop.
            answer: Takes answers of other threads.
            wake: Has the loop look at once.
            has_read: Takes for how long an extent was read, in nanoseconds.
        """
        mount(spec.footprint_place, spec.store)
        self._has_read = has_read
        self._spec = spec
        self._tell = tell
        self._answer = answer
        self._wake = wake
        self._schemas = output_schemas(spec)
        self._writers: dict[StreamId, LogWriter | ClaimedLogWriter] = {}
        self._outside: dict[StreamId, OutsideWriter] = {}  # those of them that are no logs of ours
        self._places: dict[StreamId, str] = {}  # of logs that are ours alone to keep
        self._closing = threading.Event()  # for what waits for a broker
        self._opening: SinkOpening | None = None
        self._asked: OpenSinks | None = None  # not answered yet
        self._pass_reader: PassLogReader | None = None  # of a secondary
        self._tails: dict[StreamId, StreamLogReader] = {}  # of the sinks of a secondary
        self._syncing = Syncing("sync-sinks", answer)
        self._settling: dict[StreamId, Syncing] = {}  # sinks that wait for a broker, not a disk
        self.waits = Waits()
        self.latency = LatencyHistogram()
        self.has_news = False

    # -- opening ----------------------------------------------------------------------------

    def open(self, effect: OpenSinks) -> None:
        """Topics first, in a thread: the broker may be away; then logs, here."""
        self._asked = effect
        specs = [s for s in self._spec.outside_sinks if StreamId(s.stream) not in self._writers]
        if specs:
            self._opening = SinkOpening(
                specs, effect.incarnation, self._closing, self.waits, self._wake
            )
        self.go_on()

    def go_on(self) -> None:
        """Answer, if all that had to be waited for is open. Raises what a broker has against it."""
        if self._asked is None or not (self._opening is None or self._opening.is_done):
            return
        asked, self._asked = self._asked, None
        if self._opening is not None:
            self._adopt(self._opening)
            self._opening = None
        try:
            self._open_logs(asked)
        except (StorageError, PassesLost) as error:
            self._tell(OpeningFailed(asked.request_id, error))
            return
        opened = {
            stream: OpenedSink(writer.next_id, self._places.get(stream, ""))
            for stream, writer in self._writers.items()
        }
        self._tell(SinksOpened(asked.request_id, opened))

    def _adopt(self, opening: SinkOpening) -> None:
        for name, writer in opening.writers.items():
            stream = StreamId(name)
            self._writers[stream] = self._outside[stream] = writer
            self._settling[stream] = Syncing(f"settle-{name}", self._answer, writer.interval_s)

    def _open_logs(self, asked: OpenSinks) -> None:
        for stream, path in self._spec.sink_paths.items():
            self._places[stream] = path
            segment_bytes, segment_s = self._spec.segments.get(stream, (SEGMENT_BYTES, None))
            self._writers[stream] = open_writer(
                path,
                self._schemas[stream],
                stream,
                asked.incarnation,
                narrows=True,
                segment_bytes=segment_bytes,
                segment_s=segment_s,
                tail=self._tails.pop(stream, None),
            )
        plan, place = self._spec.plan, self._spec.pass_place
        if plan.keeps_passes:
            log = PassLogWriter(place, plan.pass_stream, asked.incarnation)
            self._places[plan.pass_stream] = place
            self._writers[plan.pass_stream] = log
            if self._pass_reader is not None:
                self._pass_reader.require_held(log.owners)
        body = body_schema(plan)
        if body is not None:
            stream, place = plan.footprint_stream, self._spec.footprint_place
            self._places[stream] = place
            self._writers[stream] = FootprintLogWriter(place, body, stream, asked.incarnation)

    def read_recorded(self, effect: ReadRecordedPasses) -> None:
        """All passes that the log holds from one on."""
        try:
            passes = read_passes(self._spec.pass_place, effect.first, effect.before)
        except StorageError as error:
            self._tell(OpeningFailed(effect.request_id, error))
        else:
            self._tell(RecordedPassesRead(effect.request_id, passes))

    def read_extent(self, effect: ReadExtent) -> None:
        """The eventual checkpoint of a record, in a thread: it may be large."""
        place, streams = self._spec.footprint_place, len(self._spec.plan.inputs)

        def read() -> None:
            began_ns = time.monotonic_ns()
            try:
                extent = read_extent(place, effect.from_id, effect.ends_at, streams)
            except Exception as error:  # The life decides what becomes of it.
                self._answer(LoadingFailed(error))
            else:
                self._has_read(time.monotonic_ns() - began_ns)
                self._answer(ExtentRead(extent))

        threading.Thread(target=read, name="read-extent", daemon=True).start()

    # -- following --------------------------------------------------------------------------

    def follow(self) -> None:
        """A secondary keeps where the sinks' logs end, so that it can take them over at once.

        Little by little: a segment may hold hundreds of thousands of records.
        """
        for stream, path in self._spec.sink_paths.items():
            tail = self._tails.get(stream) or open_tail(path)
            if tail is not None:
                self._tails[stream] = tail
                tail.skip_to_end(_SKIPPED_RECORDS)

    def read_passes(self, effect: events.ReadPasses) -> None:
        """A secondary follows the primary's log; before the first pass there is none."""
        passes: tuple[Pass, ...] = ()
        with contextlib.suppress(UnknownStream):
            if self._pass_reader is None:
                self._pass_reader = PassLogReader(self._spec.pass_place, effect.from_number)
            passes = self._pass_reader.poll()
        self._tell(events.PassesRead(passes))

    # -- writing ----------------------------------------------------------------------------

    def write(self, effect: events.WriteSink) -> None:
        """Append; what readers wait for is made durable at once."""
        batch, writer = effect.batch, self._writers[effect.stream]
        append(writer, batch)
        outside = self._outside.get(effect.stream)
        if outside is not None and (outside.is_full or outside.is_prompt):
            self._sync(effect.stream)  # Readers wait for it.
        if batch.created_us:
            self.has_news = True
            self.latency.add(int(time.time() * 1e6) - batch.created_us, batch.count)

    def sync(self, effect: events.SyncSink) -> None:
        """Have a log synced by a thread beside the loop."""
        self._sync(effect.stream)

    def _sync(self, stream: StreamId) -> None:
        thread = self._settling.get(stream, self._syncing)
        thread.request(stream, self._writers[stream])
        if stream in self._outside and self._outside[stream].is_full:
            thread.hasten()

    def sync_stale(self) -> None:
        """Topics whose readers have waited for long."""
        for stream, writer in self._outside.items():
            if writer.is_stale:
                self._sync(stream)

    def end(self, effect: events.EndSink) -> None:
        """A sink's stream has ended; logs of the node's own have no end."""
        writer = self._writers[effect.stream]
        if not isinstance(writer, ClaimedLogWriter):
            writer.end()

    def trim_passes(self, effect: events.TrimPasses) -> None:
        """No pass before this one is run again."""
        log = self._writers.get(self._spec.plan.pass_stream)
        if isinstance(log, PassLogWriter):
            log.trim(effect.before)

    def trim_footprints(self, effect: events.TrimFootprints) -> None:
        """No replacement reads these rows again."""
        log = self._writers.get(effect.stream)
        if isinstance(log, FootprintLogWriter):
            log.trim(effect.before)

    # -- the end ----------------------------------------------------------------------------

    def end_threads(self) -> None:
        """Wait for those that sync."""
        self._closing.set()
        threads = [self._syncing, *self._settling.values()]
        for thread in threads:
            thread.end()
        for thread in threads:
            thread.join()

    def close(self) -> None:
        """Close all logs."""
        for writer in self._writers.values():
            writer.close()
        for reader in (self._pass_reader, *self._tails.values()):
            if reader is not None:
                reader.close()


def append(writer: LogWriter | ClaimedLogWriter, batch: TupleBatch) -> None:
    """A batch to the end of a log."""
    writer.append(
        batch.tuple_type, batch.first_id, batch.batch, batch.boundary_us, batch.created_us
    )
