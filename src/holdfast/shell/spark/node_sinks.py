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
    OpeningFailed,
    OpenSinks,
    ReadRecordedPasses,
    RecordedPassesRead,
    SinksOpened,
)
from holdfast.core.haunit.passes import Pass, PassesLost
from holdfast.core.haunit.restoration import LoadingFailed
from holdfast.core.model.ids import StreamId
from holdfast.core.wire.log_opening import SinkLacksTuples
from holdfast.shell.sinks.base import OutsideWriter, Waits
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
    from collections.abc import Callable, Mapping

    from holdfast.core.machine import Stimulus
    from holdfast.core.model.tuples import TupleBatch
    from holdfast.core.recovery.extent import Extent
    from holdfast.shell.spark.bring_up import BringUp
    from holdfast.shell.spark.task_spec import TaskSpec
    from holdfast.shell.storage.encoded_records import EncodedRecords
    from holdfast.shell.storage.stream_log import StreamLogReader

_SKIPPED_RECORDS = 1000
"""Records of a sink's log that a secondary passes over before it looks at its channels again."""


class NodeSinks:
    """Opens, writes and syncs them; follows those of the primary.

    Attributes:
        waits: What a broker keeps waiting.
        latency: Of results, from their input to the log.
    """

    def __init__(
        self,
        spec: TaskSpec,
        tell: Callable[[Stimulus], None],
        answer: Callable[[Stimulus | Exception], None],
        bring_up: BringUp,
        has_read: Callable[[Extent, int], None],
        encoded: EncodedRecords,
    ) -> None:
        """Nothing is open.

        Args:
            spec: Where they are.
            tell: Takes answers, in the loop.
            answer: Takes answers of other threads.
            bring_up: Opens and reads logs.
            has_read: Takes an extent, and for how long it was read, in nanoseconds.
            encoded: Records that checkpoints have encoded.
        """
        mount(spec.footprint_place, spec.store)
        self._has_read = has_read
        self._encoded = encoded
        self._spec = spec
        self._tell = tell
        self._answer = answer
        self._bring_up = bring_up
        self._schemas = output_schemas(spec)
        self._writers: dict[StreamId, LogWriter | ClaimedLogWriter] = {}
        self._outside: dict[StreamId, OutsideWriter] = {}  # those of them that are no logs of ours
        self._closing = threading.Event()  # for what waits for a broker
        self._follows = True  # until logs are opened: what others write there is looked at
        self._pass_reader: PassLogReader | None = None  # of a secondary
        self._tails: dict[StreamId, StreamLogReader] = {}  # of the sinks of a secondary
        self._syncing = Syncing("sync-sinks", answer)
        self._settling: dict[StreamId, Syncing] = {}  # sinks that wait for a broker, not a disk
        self.waits = Waits()
        self.latency = LatencyHistogram()

    # -- opening ----------------------------------------------------------------------------

    def open(self, effect: OpenSinks) -> None:
        """Open all of them; from now on what others wrote is no more followed, but found there."""
        self._follows = False
        self._bring_up.run("its logs are being opened", lambda: self._open(effect))

    def _open(self, asked: OpenSinks) -> Callable[[], None]:
        """In a thread. Topics first: their broker may be away, and logs would be fenced for long.

        Raises what a broker has against it.
        """
        outside = {
            StreamId(spec.stream): spec.open(asked.incarnation, self._closing, self.waits)
            for spec in self._spec.outside_sinks
            if StreamId(spec.stream) not in self._writers
        }
        self.waits.trouble = ""
        try:
            logs = self._logs(asked, self._writers | outside)
        except (StorageError, PassesLost, SinkLacksTuples) as error:
            failed = OpeningFailed(asked.request_id, error)
            return lambda: self._tell(failed)
        return lambda: self._go_on(asked, outside, logs)

    def _go_on(
        self,
        asked: OpenSinks,
        outside: dict[StreamId, OutsideWriter],
        logs: dict[StreamId, LogWriter | ClaimedLogWriter],
    ) -> None:
        self._outside |= outside
        self._writers |= outside | logs
        for stream, sink in outside.items():
            self._settling[stream] = Syncing(f"settle-{stream}", self._answer, sink.interval_s)
        self._tell(SinksOpened(asked.request_id, _ends(self._writers)))

    def _logs(
        self, asked: OpenSinks, outside: Mapping[StreamId, LogWriter | ClaimedLogWriter]
    ) -> dict[StreamId, LogWriter | ClaimedLogWriter]:
        """All logs, opened, the pass log last; `outside` are open already."""
        incarnation, needs = asked.incarnation, asked.needs
        writers: dict[StreamId, LogWriter | ClaimedLogWriter] = {}
        for stream, path in self._spec.sink_paths.items():
            segment_bytes, segment_s = self._spec.segments.get(stream, (SEGMENT_BYTES, None))
            writers[stream] = open_writer(
                path,
                self._schemas[stream],
                stream,
                incarnation,
                encode=self._encoded.again,
                segment_bytes=segment_bytes,
                segment_s=segment_s,
                wanted=needs.of(stream, _ends(writers)),
                tail=self._tails.pop(stream, None),
            )
        plan = self._spec.plan
        body = body_schema(plan)
        if body is not None:
            stream, place = plan.footprint_stream, self._spec.footprint_place
            wanted = needs.of(stream, _ends(writers))
            writers[stream] = FootprintLogWriter(place, body, stream, incarnation, wanted=wanted)
        if plan.keeps_passes:
            stream, place = plan.pass_stream, self._spec.pass_place
            wanted = needs.of(stream, _ends({**outside, **writers}))
            log = writers[stream] = PassLogWriter(place, stream, incarnation, wanted=wanted)
            if self._pass_reader is not None:
                self._pass_reader.require_held(log.owners)
        return writers

    def read_recorded(self, effect: ReadRecordedPasses) -> None:
        """All passes that the log holds from one on."""

        def work() -> Callable[[], None]:
            try:
                passes = read_passes(self._spec.pass_place, effect.first, effect.before)
            except StorageError as error:
                failed = OpeningFailed(effect.request_id, error)
                return lambda: self._tell(failed)
            return lambda: self._tell(RecordedPassesRead(effect.request_id, passes))

        self._bring_up.run("its recorded passes are being read", work)

    def read_extent(self, effect: ReadExtent) -> None:
        """The eventual checkpoint of a record: it may be large."""
        place, streams = self._spec.footprint_place, len(self._spec.plan.inputs)

        def work() -> Callable[[], None]:
            began_ns = time.monotonic_ns()
            try:
                extent = read_extent(place, effect.from_id, effect.ends_at, streams)
            except Exception as error:  # The life decides what becomes of it.
                failed = LoadingFailed(error)
                return lambda: self._tell(failed)
            took_ns = time.monotonic_ns() - began_ns
            return lambda: self._has_extent(ExtentRead(extent), took_ns)

        self._bring_up.run("its footprints are being read", work)

    def _has_extent(self, read: ExtentRead, took_ns: int) -> None:
        self._has_read(read.extent, took_ns)
        self._tell(read)

    # -- following --------------------------------------------------------------------------

    def follow(self) -> None:
        """A secondary keeps where the sinks' logs end, so that it can take them over at once.

        Little by little: a segment may hold hundreds of thousands of records.
        """
        if not self._follows:
            return
        for stream, path in self._spec.sink_paths.items():
            tail = self._tails.get(stream) or open_tail(path)
            if tail is not None:
                self._tails[stream] = tail
                tail.skip_to_end(_SKIPPED_RECORDS)

    def read_passes(self, effect: events.ReadPasses) -> None:
        """A secondary follows the primary's log; before the first pass there is none."""
        passes: tuple[Pass, ...] = ()
        with contextlib.suppress(UnknownStream):
            if self._follows and self._pass_reader is None:
                self._pass_reader = PassLogReader(self._spec.pass_place, effect.from_number)
            passes = self._pass_reader.poll() if self._follows and self._pass_reader else ()
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
            self.latency.add(int(time.time() * 1e6) - batch.created_us, batch.count)

    def sync(self, effect: events.SyncSink) -> None:
        """Have a log synced by a thread beside the loop."""
        self._sync(effect.stream)

    def _sync(self, stream: StreamId) -> None:
        thread = self._settling.get(stream, self._syncing)
        thread.request(stream, self._writers[stream])
        if stream in self._outside and self._outside[stream].is_full:
            thread.hasten()

    def hasten(self, effect: events.HastenSink) -> None:
        """Write what waits for more of a sink that has ended; logs of our own wait for nothing."""
        if effect.stream in self._settling:
            self._settling[effect.stream].hasten()

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


def _ends(writers: Mapping[StreamId, LogWriter | ClaimedLogWriter]) -> dict[StreamId, int]:
    """By log, the first id that it does not hold yet."""
    return {stream: writer.next_id for stream, writer in writers.items()}


def append(writer: LogWriter | ClaimedLogWriter, batch: TupleBatch) -> None:
    """A batch to the end of a log."""
    writer.append(
        batch.tuple_type, batch.first_id, batch.batch, batch.boundary_us, batch.created_us
    )
