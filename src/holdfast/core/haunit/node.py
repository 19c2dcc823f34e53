"""A node: one running instance of an HA unit under upstream backup. [HA §4.3, §5.2, §6]

Theory of operation. A node works in rounds. Between rounds stimuli fill its input queues and move
the positions of its output queues; `Proceed` runs one round:

1. Take what may be processed. With one input stream that is whatever has arrived, in id order. With
   several it is what SUnion releases: everything older than the slowest stream's boundary, in one
   order that depends on the tuples alone.
2. Run the operators in topological order on the rows and the boundary.
3. Number the outputs and append them to the output queues, or write them to the sinks.

Precise recovery rests on three facts. The input order is a function of the tuples (1). Operators
are functions of the ordered input, however it is cut into rounds. Ids are consecutive. So a node
that starts at a restart point (recovery/restart_point.py) and processes the same tuples again gives
its outputs the ids they had before, and whoever has them drops them by id.

Every `ack_interval_ms` (the paper's M):
- level-0 position and credit go upstream, for every input stream;
- a restart point is noted. Once all receivers' level-1 positions have reached its `next_ids` it is
  safe and goes to the coordinator;
- sinks are made durable: for a restart point, a sink's level-1 position is what is on disk.
When the coordinator has stored a point (`RestartPointStored`, never before), its `needed_from`
becomes the level-1 position told upstream, and upstream trims.

Invariants: restart points and level-1 positions never move back; a tuple that a stored restart
point needs is never trimmed upstream; ids of an output stream have no gap and no repeat; frames of
an earlier incarnation, or meant for one, change nothing.

Departures from [HA]: the paper maps *level-0* positions through cause() to level-1 ones, which
survives one failure at a time. Here level-1 positions are mapped, so a tuple is kept until nothing
derived from it is needed by anyone: any number of nodes may fail at the same time. And cause() is
kept per round, not per tuple: the low watermarks of the whole node at one moment.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from holdfast.core.errors import InvariantViolation, RemoteProtocolError
from holdfast.core.haunit.events import (
    AckReceived,
    BatchReceived,
    BoundaryReceived,
    EndSink,
    PeerIncarnationLearned,
    Proceed,
    ReadSource,
    ReadSpill,
    ReportCaughtUp,
    ReportFinished,
    ReportFirstOutput,
    RestartPointStored,
    SendAck,
    SendBatch,
    SendBoundary,
    SendSubscribe,
    SinkSynced,
    SourceRead,
    SpillBatches,
    SpillRead,
    StoreRestartPoint,
    SubscribeReceived,
    SyncSink,
    TrimSpill,
    WriteSink,
)
from holdfast.core.haunit.plan import Assignment, InputSpec, NodePlan, OutputSpec
from holdfast.core.machine import Effect, SetTimer, Stimulus, TimerFired
from holdfast.core.model.ids import BEGINNING_US, END_US, NO_ID, Incarnation, NodeId, StreamId
from holdfast.core.model.stable_hash import partition_of
from holdfast.core.model.tuples import TupleBatch, with_time
from holdfast.core.operators.base import Rows
from holdfast.core.queues.input_queue import InputQueue
from holdfast.core.queues.output_queue import OutputQueue
from holdfast.core.recovery.restart_point import RestartPoint
from holdfast.core.replication.sunion import SUnion

_POINTS_MAX = 64
_SOURCE_POLL_MS = 1
_SOURCE_POLL_IDLE_MS = 5
_IDLE_POLLS_BEFORE_SLOWER = 50


@dataclass(frozen=True, slots=True)
class NodeStatistics:
    """A node's counters since its incarnation started.

    Attributes:
        input_tuples: Tuples processed, replayed ones included.
        output_tuples: New tuples put out.
        replayed_tuples: Tuples processed in silence.
        duplicates_dropped: Tuples that arrived more than once.
        refused_frames: Frames of, or meant for, another incarnation.
        pending_tuples: Tuples in input queues.
        held_tuples: Tuples in SUnion.
        unsent_tuples: Tuples in output queues that wait for credit or a subscriber.
        retained_tuples: Tuples in output queues in memory.
        retained_bytes: Their size.
        spilled_tuples: Tuples in spill logs.
        state_bytes: Size of the operators' pages.
        boundary_us: The boundary reached.
        is_silent: Whether it is still replaying.
        is_finished: Whether all inputs have ended and all outputs are safe.
    """

    input_tuples: int
    output_tuples: int
    replayed_tuples: int
    duplicates_dropped: int
    refused_frames: int
    pending_tuples: int
    held_tuples: int
    unsent_tuples: int
    retained_tuples: int
    retained_bytes: int
    spilled_tuples: int
    state_bytes: int
    boundary_us: int
    is_silent: bool
    is_finished: bool


@dataclass(slots=True)
class _Input:
    """One input stream: what it is, what waits, and what was told upstream."""

    spec: InputSpec
    queue: InputQueue
    needed_from: int  # level-1 position that may be told upstream; never moves back
    producer: Incarnation | None = None
    heard_ms: int = 0  # when the producer was last heard of
    subscribed_ms: int = -(10**9)  # when SendSubscribe was last returned
    is_reading: bool = False  # a ReadSource is under way
    read_at_ms: int = 0  # earliest time of the next ReadSource
    idle_polls: int = 0


@dataclass(slots=True)
class _Output:
    """One output stream to a receiving node."""

    queue: OutputQueue
    node: NodeId
    receiver: Incarnation | None = None
    spill_request: int | None = None  # request id of the ReadSpill under way
    trimmed_told: int = 0


@dataclass(slots=True)
class _Sink:
    """One sink stream."""

    next_id: int
    durable_before: int  # ids before it are on disk: level-1 position of the log
    written_before: int  # ids before it are in the log
    is_sync_due: bool = False
    is_ended: bool = False


class Node:
    """The machine of one incarnation of a node. See the module's theory of operation.

    Durable: nothing here; the coordinator stores restart points, producers retain tuples, sinks
    and sources are logs. Volatile: all fields.
    """

    def __init__(self, plan: NodePlan, assignment: Assignment, now_ms: int) -> None:
        """Bring up an incarnation at its restart point; call `start` for the first effects."""
        self.plan = plan
        self.incarnation = assignment.incarnation
        limits = plan.limits
        point = assignment.restart_point or RestartPoint()
        self._point = point
        self._inputs = {
            spec.stream: _Input(
                spec,
                InputQueue(
                    spec.stream,
                    next_id=point.needed_from.get(spec.stream, 0),
                    max_tuples=limits.input_queue_tuples,
                ),
                needed_from=point.needed_from.get(spec.stream, 0),
                heard_ms=now_ms,
            )
            for spec in plan.inputs
        }
        self._stream_numbers = {spec.stream: i for i, spec in enumerate(plan.inputs)}
        self._sunion = (
            SUnion([spec.port for spec in plan.inputs], plan.port_count)
            if len(plan.inputs) > 1
            else None
        )
        self._read_timer_ms: int | None = None  # when the timer of the sources is due
        # Rounds must not cost by the input stream but by what came on them.
        self._fresh: dict[StreamId, _Input] = {}  # those with something that no round has taken
        self._slowest_us = BEGINNING_US  # boundary of the slowest input, as of the last round
        self._slowest_count = len(plan.inputs)  # how many inputs are there
        self._operators = [spec.build() for spec in plan.operators]
        self._boundary_us = BEGINNING_US
        self._outputs: dict[StreamId, _Output] = {}
        self._sinks: dict[StreamId, _Sink] = {}
        for output in plan.outputs:
            self._open_output(output, point, assignment.sink_next_ids)
        self._cut_us = point.boundary_us
        self._processed_before = {
            stream: point.processed_before.get(stream, 0) for stream in self._inputs
        }
        self._is_silent = assignment.restart_point is not None
        self._points: deque[RestartPoint] = deque()  # noted, not yet safe
        self._stored_sequence = point.sequence
        self._asked_points: deque[RestartPoint] = deque()  # safe, sent to the coordinator
        self._asked_ms = 0
        self._unsafe_stream: StreamId | None = None  # the one that kept a point from being safe
        self._sequence = point.sequence
        self._is_dirty = False  # a round ran since the last restart point was noted
        self._requests = 0
        self._has_put_out = False
        self._is_finished = False
        self._input_tuples = 0
        self._output_tuples = 0
        self._replayed_tuples = 0
        self._refused_frames = 0

    def _open_output(
        self, spec: OutputSpec, point: RestartPoint, sink_next_ids: dict[StreamId, int]
    ) -> None:
        for i, stream in enumerate(spec.streams):
            next_id = point.next_ids.get(stream, 0)
            if spec.is_sink:
                in_log = max(sink_next_ids.get(stream, 0), next_id)
                self._sinks[stream] = _Sink(next_id, in_log, in_log)
            else:
                queue = OutputQueue(
                    stream,
                    first_id=next_id,
                    retain=self.plan.is_protected,
                    memory_limit_bytes=self.plan.limits.output_queue_bytes,
                )
                self._outputs[stream] = _Output(queue, spec.receivers[i], trimmed_told=next_id)

    # -- the machine ------------------------------------------------------------------------

    def start(self, now_ms: int) -> list[Effect]:
        """The first effects of an incarnation: its timers and source reads."""
        limits = self.plan.limits
        effects: list[Effect] = [
            SetTimer("ack", now_ms + limits.ack_interval_ms),
            SetTimer("keep-alive", now_ms + limits.keep_alive_ms),
        ]
        self._leave_silence_if_due(effects)
        self._read_sources(now_ms, effects)
        return effects

    def step(self, stimulus: Stimulus, now_ms: int) -> list[Effect]:
        """Take one stimulus. Raises `InvariantViolation` or an operator's own error."""
        effects: list[Effect] = []
        _HANDLERS[type(stimulus)](self, stimulus, now_ms, effects)
        return effects

    @property
    def has_work(self) -> bool:
        """Whether `Proceed` would process something now. Cost: O(outputs) when there is input."""
        # A silent round stops at the cut; the boundary beyond it is left for the next round.
        has_input = self._fresh or (not self._is_silent and self._slowest_us > self._boundary_us)
        return bool(has_input) and self._may_put_out()

    def _taken_boundary_us(self) -> int:
        return min(source.queue.taken_boundary_us for source in self._inputs.values())

    def _may_put_out(self) -> bool:
        limit = self.plan.limits.output_queue_tuples
        return all(output.queue.unsent_tuples < limit for output in self._outputs.values())

    # -- input ------------------------------------------------------------------------------

    def _on_batch_received(self, got: BatchReceived, now_ms: int, effects: list[Effect]) -> None:
        source = self._accepted_input(got.stream, got.sender, got.receiver, now_ms)
        if source is None:
            return
        if not source.queue.receive(got.batch):
            self._subscribe(source, now_ms, effects)  # Tuples were lost on the way.
        self._note_fresh(source)

    def _on_boundary_received(
        self, got: BoundaryReceived, now_ms: int, effects: list[Effect]
    ) -> None:
        source = self._accepted_input(got.stream, got.sender, got.receiver, now_ms)
        if source is not None and not source.queue.promise(got.sent_before, got.boundary_us):
            self._subscribe(source, now_ms, effects)  # The last tuples were lost on the way.
        if source is not None:
            self._note_fresh(source)

    def _note_fresh(self, source: _Input) -> None:
        if source.queue.has_work:
            self._fresh[source.spec.stream] = source
        else:
            self._fresh.pop(source.spec.stream, None)

    def _accepted_input(
        self, stream: StreamId, sender: Incarnation, receiver: Incarnation, now_ms: int
    ) -> _Input | None:
        """The input stream, or None if the frame is of, or for, another incarnation."""
        source = self._inputs.get(stream)
        if source is None or receiver != self.incarnation or sender != source.producer:
            self._refused_frames += 1
            return None
        source.heard_ms = now_ms
        return source

    def _subscribe(self, source: _Input, now_ms: int, effects: list[Effect]) -> None:
        """Ask for everything from the next expected id; not twice within a moment."""
        if source.producer is None:
            return
        if now_ms - source.subscribed_ms < self.plan.limits.resubscribe_ms:
            return
        source.subscribed_ms = now_ms
        source.queue.refresh_credit(self._held(source))
        source.queue.credit_told()
        effects.append(
            SendSubscribe(
                source.spec.stream,
                source.producer,
                source.queue.next_id,
                source.needed_from,
                source.queue.credit_until,
            )
        )

    def _held(self, source: _Input) -> int:
        """Tuples in SUnion that use up the stream's credit.

        Those of the slowest streams do not, or the node could wait for ever: 1. A window closes
        with more results than the input may hold. 2. They share one time, so that none is released
        before the boundary behind the last. 3. The last is never sent for want of credit.
        """
        if self._sunion is None or source.queue.taken_boundary_us <= self._slowest_us:
            return 0
        return self._sunion.held_tuples[self._stream_numbers[source.spec.stream]]

    def _on_peer_incarnation_learned(
        self, learned: PeerIncarnationLearned, now_ms: int, effects: list[Effect]
    ) -> None:
        for source in self._inputs.values():
            if source.spec.producer == learned.node and (
                source.producer is None or learned.incarnation > source.producer
            ):
                source.producer = learned.incarnation
                source.subscribed_ms = -(10**9)
                source.heard_ms = now_ms
                self._subscribe(source, now_ms, effects)
        for output in self._outputs.values():
            if output.node == learned.node:
                self._learn_receiver(output, learned.incarnation)

    def _learn_receiver(self, output: _Output, incarnation: Incarnation) -> None:
        if output.receiver is None or incarnation > output.receiver:
            output.receiver = incarnation
            output.queue.unsubscribe()
            output.spill_request = None

    def _on_source_read(self, got: SourceRead, now_ms: int, effects: list[Effect]) -> None:
        source = self._inputs[got.stream]
        source.is_reading = False
        for batch in got.batches:
            if not source.queue.receive(batch):
                raise RemoteProtocolError(
                    f"source {got.stream} gave tuple {batch.first_id}, "
                    f"expected {source.queue.next_id}"
                )
        source.queue.promise(source.queue.next_id, got.boundary_us)
        self._note_fresh(source)
        if got.batches:
            source.idle_polls = 0
            source.read_at_ms = now_ms
        else:
            source.idle_polls += 1
            is_idle = source.idle_polls > _IDLE_POLLS_BEFORE_SLOWER
            source.read_at_ms = now_ms + (_SOURCE_POLL_IDLE_MS if is_idle else _SOURCE_POLL_MS)
        self._read_sources(now_ms, effects)

    def _read_sources(self, now_ms: int, effects: list[Effect]) -> None:
        """Read the sources that are due; one timer wakes the node for the first of the others."""
        next_read_ms: int | None = None
        for source in self._inputs.values():
            if source.spec.producer is not None or source.is_reading:
                continue
            if source.queue.boundary_us == END_US:
                continue
            if now_ms < source.read_at_ms:
                next_read_ms = min(source.read_at_ms, next_read_ms or source.read_at_ms)
                continue
            room = self.plan.limits.input_queue_tuples - self._held(source)
            room -= source.queue.pending_tuples
            if room >= self.plan.limits.input_queue_tuples // 2:
                source.is_reading = True
                effects.append(
                    ReadSource(
                        source.spec.stream,
                        source.queue.next_id,
                        min(room, self.plan.limits.round_tuples),
                    )
                )
        if next_read_ms is not None and next_read_ms != self._read_timer_ms:
            self._read_timer_ms = next_read_ms
            effects.append(SetTimer("read", next_read_ms))

    # -- one round --------------------------------------------------------------------------

    def _on_proceed(self, _: Proceed, now_ms: int, effects: list[Effect]) -> None:
        if not self.has_work:
            return
        taken = list(self._fresh.values())
        if self._sunion is None:
            has_processed = self._round_in_id_order(effects)
        else:
            has_processed = self._round_in_merged_order(self._sunion, effects)
        for source in self._inputs.values() if has_processed else taken:
            source.queue.refresh_credit(self._held(source))
            if source.producer is not None and source.queue.credit_is_due():
                self._acknowledge(source, effects)
        if has_processed:
            self._flush(effects)
        self._read_sources(now_ms, effects)
        self._finish_if_due(effects)

    def _round_in_id_order(self, effects: list[Effect]) -> bool:
        (source,) = self._inputs.values()
        stream = source.spec.stream
        batches = source.queue.take(self.plan.limits.round_tuples)
        boundary_us = self._slowest_us = source.queue.taken_boundary_us
        if self._is_silent:
            cut = self._processed_before[stream]
            batches = self._keep_before(source, batches, cut)
            boundary_us = min(boundary_us, self._cut_us)
        ports: list[Rows | None] = [None] * self.plan.port_count
        low = np.full(1, NO_ID, dtype=np.int64)
        if batches:
            low[0] = batches[0].first_id
            ports[0] = _rows(batches)
            self._processed_before[stream] = max(
                self._processed_before[stream], batches[-1].next_id
            )
        self._process(ports, low, boundary_us, effects)
        self._leave_silence_if_due(effects, batches[-1].next_id if batches else None)
        self._note_fresh(source)
        return True

    def _keep_before(self, source: _Input, batches: list[TupleBatch], cut: int) -> list[TupleBatch]:
        """Only the tuples before `cut`; the rest goes back to the queue."""
        kept: list[TupleBatch] = []
        rest: list[TupleBatch] = []
        for batch in batches:
            if batch.next_id <= cut:
                kept.append(batch)
            elif batch.first_id >= cut:
                rest.append(batch)
            else:
                kept.append(_before(batch, cut))
                rest.append(batch.starting_at(cut))
        for batch in reversed(rest):
            source.queue.put_back(batch)
        return kept

    def _round_in_merged_order(self, sunion: SUnion, effects: list[Effect]) -> bool:
        """Take what has come; whether all streams have passed a time and something was done."""
        for stream, source in list(self._fresh.items()):
            was_slowest = source.queue.taken_boundary_us <= self._slowest_us
            for batch in source.queue.take(self.plan.limits.round_tuples):
                sunion.add(self._stream_numbers[stream], batch)
            if was_slowest and source.queue.taken_boundary_us > self._slowest_us:
                self._slowest_count -= 1
            self._note_fresh(source)
        if self._slowest_count == 0:
            self._slowest_us = self._taken_boundary_us()
            self._slowest_count = sum(
                source.queue.taken_boundary_us <= self._slowest_us
                for source in self._inputs.values()
            )
        boundary_us = self._slowest_us
        if self._is_silent:
            boundary_us = min(boundary_us, self._cut_us)
        if boundary_us <= self._boundary_us and boundary_us != END_US:
            return False
        release = sunion.release(boundary_us)
        ports = [
            None
            if port is None
            else Rows(_without_time(port.batch), port.time_us, port.order, port.created_us)
            for port in release.ports
        ]
        self._process(ports, release.low, boundary_us, effects)
        self._leave_silence_if_due(effects)
        return True

    def _process(
        self,
        ports: list[Rows | None],
        low: np.ndarray,
        boundary_us: int,
        effects: list[Effect],
    ) -> None:
        """Run the operators; outputs of a silent round are discarded."""
        count = sum(len(rows.time_us) for rows in ports if rows is not None)
        self._input_tuples += count
        if self._is_silent:
            self._replayed_tuples += count
        if count == 0 and boundary_us <= self._boundary_us:
            return
        self._is_dirty = True
        none = np.full(len(self._inputs), NO_ID, dtype=np.int64)
        results: list[tuple[Rows | None, np.ndarray]] = []
        for spec, operator in zip(self.plan.operators, self._operators, strict=True):
            inputs: list[Rows | None] = []
            operator_low = none
            for kind, number in spec.inputs:
                rows, rows_low = (ports[number], low) if kind == "port" else results[number]
                inputs.append(rows)
                if rows is not None:
                    operator_low = np.minimum(operator_low, rows_low)
            output = operator.process(inputs, operator_low, boundary_us)
            results.append((output.rows, none if output.low is None else output.low))
        self._boundary_us = max(self._boundary_us, boundary_us)
        if self._is_silent:
            return
        for wanted in self.plan.outputs:
            kind, number = wanted.source
            rows = ports[number] if kind == "port" else results[number][0]
            if rows is not None and len(rows.time_us):
                self._put_out(wanted, rows, effects)
        for queue in self._outputs.values():
            queue.queue.promise(self._boundary_us)

    def _leave_silence_if_due(self, effects: list[Effect], processed_to: int | None = None) -> None:
        """End the silent replay once everything before the cut has been processed."""
        if not self._is_silent:
            return
        if self._sunion is None:
            (stream,) = self._inputs
            source = self._inputs[stream]
            done = processed_to if processed_to is not None else source.queue.next_id
            if source.queue.pending_tuples and processed_to is None:
                done = 0
            if done < self._point.processed_before.get(stream, 0):
                return
            ports: list[Rows | None] = [None] * self.plan.port_count
            self._process(ports, np.full(1, NO_ID, dtype=np.int64), self._cut_us, effects)
        elif self._boundary_us < self._cut_us:
            return
        self._is_silent = False
        for output in self._outputs.values():
            output.queue.promise(self._boundary_us)
        effects.append(ReportCaughtUp(self._replayed_tuples))

    # -- output -----------------------------------------------------------------------------

    def _put_out(self, spec: OutputSpec, rows: Rows, effects: list[Effect]) -> None:
        schema = with_time(spec.schema)
        batch = pa.RecordBatch.from_arrays(
            [*rows.batch.columns, pa.array(rows.time_us)], schema=schema
        )
        self._output_tuples += batch.num_rows
        if spec.is_sink:
            self._write_sink(spec.streams[0], batch, rows.created_us, effects)
            return
        for stream, part in zip(spec.streams, _partition(batch, spec), strict=True):
            if part.num_rows:
                queue = self._outputs[stream].queue
                queue.append(TupleBatch(queue.next_id, part, self._boundary_us, rows.created_us))

    def _write_sink(
        self, stream: StreamId, batch: pa.RecordBatch, created_us: int, effects: list[Effect]
    ) -> None:
        """Write what the log does not hold yet: exactly once by tuple id."""
        sink = self._sinks[stream]
        tuples = TupleBatch(sink.next_id, batch, self._boundary_us, created_us)
        sink.next_id = tuples.next_id
        if tuples.next_id <= sink.written_before:
            return
        tuples = tuples.starting_at(sink.written_before)
        sink.written_before = tuples.next_id
        sink.is_sync_due = True
        effects.append(WriteSink(stream, tuples))
        self._note_first_output(effects)

    def _note_first_output(self, effects: list[Effect]) -> None:
        if not self._has_put_out:
            self._has_put_out = True
            effects.append(ReportFirstOutput())

    def _flush(self, effects: list[Effect]) -> None:
        """Send what credit allows on all output streams, then boundaries."""
        for stream, output in self._outputs.items():
            self._flush_output(stream, output, effects)

    def _flush_output(self, stream: StreamId, output: _Output, effects: list[Effect]) -> None:
        receiver = output.receiver
        if receiver is None or not output.queue.is_subscribed:
            return
        self._read_spill(stream, output, effects)
        for batch in output.queue.take_sendable():
            effects.append(SendBatch(stream, receiver, batch))
            self._note_first_output(effects)
        boundary_us = output.queue.take_boundary()
        if boundary_us is not None:
            effects.append(SendBoundary(stream, receiver, output.queue.sent_before, boundary_us))
        spilled = output.queue.take_spill()
        if spilled:
            effects.append(SpillBatches(stream, tuple(spilled)))

    def _read_spill(self, stream: StreamId, output: _Output, effects: list[Effect]) -> None:
        missing = output.queue.missing_for_send()
        if missing is None or output.spill_request is not None:
            return
        self._requests += 1
        output.spill_request = self._requests
        from_id, to_id = missing
        to_id = min(to_id, from_id + self.plan.limits.round_tuples)
        effects.append(ReadSpill(stream, self._requests, from_id, to_id))

    def _on_spill_read(self, got: SpillRead, now_ms: int, effects: list[Effect]) -> None:
        output = self._outputs[got.stream]
        if output.spill_request != got.request_id or output.receiver is None:
            return  # Asked for by a subscription that has been replaced.
        output.spill_request = None
        for batch in got.batches:
            effects.append(SendBatch(got.stream, output.receiver, batch))
            output.queue.resent(batch.next_id)
        self._flush_output(got.stream, output, effects)

    def _on_subscribe_received(
        self, got: SubscribeReceived, now_ms: int, effects: list[Effect]
    ) -> None:
        output = self._accepted_output(got.stream, got.sender, got.receiver)
        if output is None:
            return
        if output.queue.is_subscribed and got.from_id < output.queue.trimmed_before:
            self._refused_frames += 1  # An old frame: since then, it has acknowledged more.
            return
        output.spill_request = None
        output.queue.subscribe(got.from_id)
        output.queue.reset_credit(got.credit_until)
        self._take_ack(output, got.from_id, got.needed_from, now_ms, effects)
        self._flush_output(got.stream, output, effects)

    def _on_ack_received(self, got: AckReceived, now_ms: int, effects: list[Effect]) -> None:
        output = self._accepted_output(got.stream, got.sender, got.receiver)
        if output is None:
            return
        output.queue.grant(got.credit_until)
        self._take_ack(output, got.received_before, got.needed_from, now_ms, effects)
        self._flush_output(got.stream, output, effects)

    def _accepted_output(
        self, stream: StreamId, sender: Incarnation, receiver: Incarnation
    ) -> _Output | None:
        """The output stream, or None if the frame is of, or for, another incarnation.

        A newer incarnation of the receiver than the coordinator has told of is believed: only the
        coordinator gives incarnations, and waiting for its word would delay recovery.
        """
        output = self._outputs.get(stream)
        if output is None or receiver != self.incarnation:
            self._refused_frames += 1
            return None
        self._learn_receiver(output, sender)
        if sender != output.receiver:
            self._refused_frames += 1
            return None
        return output

    def _take_ack(
        self,
        output: _Output,
        received_before: int,
        needed_from: int,
        now_ms: int,
        effects: list[Effect],
    ) -> None:
        """Positions beyond what this incarnation has produced again say nothing to it yet."""
        queue = output.queue
        queue.acknowledge(min(received_before, queue.next_id), min(needed_from, queue.next_id))
        if queue.trimmed_before > output.trimmed_told:
            output.trimmed_told = queue.trimmed_before
            effects.append(TrimSpill(queue.stream, queue.trimmed_before))
        self._ask_to_store(now_ms, effects)

    # -- restart points and acknowledgements --------------------------------------------------

    def _on_timer_fired(self, timer: TimerFired, now_ms: int, effects: list[Effect]) -> None:
        if timer.name == "ack":
            self._on_ack_timer(now_ms, effects)
        elif timer.name == "keep-alive":
            self._on_keep_alive_timer(now_ms, effects)
        else:
            self._read_timer_ms = None
            self._read_sources(now_ms, effects)

    def _on_ack_timer(self, now_ms: int, effects: list[Effect]) -> None:
        effects.append(SetTimer("ack", now_ms + self.plan.limits.ack_interval_ms))
        self._note_point()
        for stream, sink in self._sinks.items():
            if sink.is_sync_due:
                sink.is_sync_due = False
                effects.append(SyncSink(stream))
        self._ask_to_store(now_ms, effects)
        for source in self._inputs.values():
            self._acknowledge(source, effects)
        self._finish_if_due(effects)

    def _note_point(self) -> None:
        """Note the node's present cut as a restart point, unless nothing has changed."""
        if not self.plan.is_protected or self._is_silent or not self._is_dirty:
            return
        if len(self._points) >= _POINTS_MAX:
            del self._points[_POINTS_MAX // 2]  # Keep the oldest, the first to become safe.
        self._is_dirty = False
        self._sequence += 1
        low = np.full(len(self._inputs), NO_ID, dtype=np.int64)
        for operator in self._operators:
            needed = operator.oldest_needed()
            if needed is not None:
                low = np.minimum(low, needed)
        if self._sunion is not None:
            low = np.minimum(low, self._sunion.oldest_held())
        needed_from: dict[str, int] = {}
        processed: dict[str, int] = {}
        for i, (stream, source) in enumerate(self._inputs.items()):
            next_id = source.queue.next_id - source.queue.pending_tuples
            needed_from[stream] = max(min(int(low[i]), next_id), source.needed_from)
            processed[stream] = next_id
        next_ids: dict[str, int] = {s: o.queue.next_id for s, o in self._outputs.items()}
        next_ids.update({s: sink.next_id for s, sink in self._sinks.items()})
        self._points.append(
            RestartPoint(self._sequence, needed_from, processed, self._boundary_us, next_ids)
        )

    def _ask_to_store(self, now_ms: int, effects: list[Effect]) -> None:
        """Send the newest safe restart point to the coordinator."""
        safe: RestartPoint | None = None
        while self._points and self._is_safe(self._points[0]):
            safe = self._points.popleft()
        if safe is not None:
            self._asked_points.append(safe)
            self._asked_ms = now_ms
            effects.append(StoreRestartPoint(safe))

    def _is_safe(self, point: RestartPoint) -> bool:
        """Whether nothing put out before the point is needed from this node any more."""
        if not self._lets_go(self._unsafe_stream, point):
            return False  # The stream that was missing the last time still is.
        for stream in (*self._outputs, *self._sinks):
            if not self._lets_go(stream, point):
                self._unsafe_stream = stream
                return False
        return True

    def _lets_go(self, stream: StreamId | None, point: RestartPoint) -> bool:
        if stream is None:
            return True
        output = self._outputs.get(stream)
        if output is not None:
            return point.next_ids[stream] <= output.queue.needed_from
        return point.next_ids[stream] <= self._sinks[stream].durable_before

    def _on_restart_point_stored(
        self, stored: RestartPointStored, now_ms: int, effects: list[Effect]
    ) -> None:
        """Level-1 positions may move now, and not before: a replacement will start here."""
        while self._asked_points and self._asked_points[0].sequence <= stored.sequence:
            point = self._asked_points.popleft()
            self._stored_sequence = point.sequence
            for stream, source in self._inputs.items():
                source.needed_from = max(source.needed_from, point.needed_from[stream])

    def _acknowledge(self, source: _Input, effects: list[Effect]) -> None:
        if source.producer is None:
            return
        source.queue.refresh_credit(self._held(source))
        source.queue.credit_told()
        effects.append(
            SendAck(
                source.spec.stream,
                source.producer,
                source.queue.next_id,
                source.needed_from if self.plan.is_protected else source.queue.next_id,
                source.queue.credit_until,
            )
        )

    def _on_sink_synced(self, synced: SinkSynced, now_ms: int, effects: list[Effect]) -> None:
        sink = self._sinks[synced.stream]
        sink.durable_before = max(sink.durable_before, synced.durable_before)
        self._ask_to_store(now_ms, effects)
        self._finish_if_due(effects)

    def _on_keep_alive_timer(self, now_ms: int, effects: list[Effect]) -> None:
        limits = self.plan.limits
        effects.append(SetTimer("keep-alive", now_ms + limits.keep_alive_ms))
        self._repeat_reports(now_ms, effects)
        for stream, output in self._outputs.items():
            queue = output.queue
            if output.receiver is not None and queue.is_subscribed:
                boundary_us = (
                    queue.boundary_us if queue.sent_before >= queue.next_id else BEGINNING_US
                )
                effects.append(
                    SendBoundary(stream, output.receiver, queue.sent_before, boundary_us)
                )
        for source in self._inputs.values():
            if source.producer is not None and now_ms - source.heard_ms > limits.resubscribe_ms:
                self._subscribe(source, now_ms, effects)

    def _repeat_reports(self, now_ms: int, effects: list[Effect]) -> None:
        """Words to the coordinator can be lost with their connection: say again what counts."""
        if self._is_finished:
            effects.append(ReportFinished())
        if self._asked_points and now_ms - self._asked_ms > self.plan.limits.resubscribe_ms:
            self._asked_ms = now_ms
            effects.append(StoreRestartPoint(self._asked_points[-1]))

    def known_peers(self) -> dict[NodeId, Incarnation]:
        """The incarnation of every neighbour that this node has been told of."""
        known = {i.spec.producer: i.producer for i in self._inputs.values()}
        known.update({o.node: o.receiver for o in self._outputs.values()})
        return {node: inc for node, inc in known.items() if node is not None and inc is not None}

    def peer_incarnation(self, stream: StreamId) -> Incarnation | None:
        """The incarnation that this node knows at the other end of a stream; None: of nobody."""
        source = self._inputs.get(stream)
        return self._outputs[stream].receiver if source is None else source.producer

    # -- the end ----------------------------------------------------------------------------

    def _finish_if_due(self, effects: list[Effect]) -> None:
        if self._is_finished or self._is_silent or self._boundary_us != END_US:
            return
        if not all(source.queue.is_ended for source in self._inputs.values()):
            return
        for stream, sink in self._sinks.items():
            if sink.durable_before < sink.next_id:
                return
            if not sink.is_ended:
                sink.is_ended = True
                effects.append(EndSink(stream))
        self._is_finished = True
        effects.append(ReportFinished())

    # -- looking ----------------------------------------------------------------------------

    def check_invariants(self) -> None:
        """Raise `InvariantViolation` when queues, operators or restart points make no sense."""
        for source in self._inputs.values():
            source.queue.check_invariants()
        for output in self._outputs.values():
            output.queue.check_invariants()
        for operator in self._operators:
            operator.check_invariants()
        previous: RestartPoint | None = None
        for point in [*self._asked_points, *self._points]:
            for stream, source in self._inputs.items():
                if point.needed_from[stream] < source.needed_from:
                    raise InvariantViolation(f"{stream}: a low watermark moved back")
                if previous and point.needed_from[stream] < previous.needed_from[stream]:
                    raise InvariantViolation(f"{stream}: a low watermark moved back")
            previous = point

    def statistics(self) -> NodeStatistics:
        """Counters now."""
        queues = [output.queue.statistics() for output in self._outputs.values()]
        inputs = list(self._inputs.values())
        return NodeStatistics(
            input_tuples=self._input_tuples,
            output_tuples=self._output_tuples,
            replayed_tuples=self._replayed_tuples,
            duplicates_dropped=sum(i.queue.duplicates_dropped for i in inputs),
            refused_frames=self._refused_frames,
            pending_tuples=sum(i.queue.pending_tuples for i in inputs),
            held_tuples=0 if self._sunion is None else sum(self._sunion.held_tuples),
            unsent_tuples=sum(o.queue.unsent_tuples for o in self._outputs.values()),
            retained_tuples=sum(q.retained_tuples for q in queues),
            retained_bytes=sum(q.retained_bytes for q in queues),
            spilled_tuples=sum(q.spilled_tuples for q in queues),
            state_bytes=sum(operator.state_bytes() for operator in self._operators),
            boundary_us=self._boundary_us,
            is_silent=self._is_silent,
            is_finished=self._is_finished,
        )


_HANDLERS: dict[type[Stimulus], Callable[[Node, Any, int, list[Effect]], None]] = {
    BatchReceived: Node._on_batch_received,
    BoundaryReceived: Node._on_boundary_received,
    SubscribeReceived: Node._on_subscribe_received,
    AckReceived: Node._on_ack_received,
    PeerIncarnationLearned: Node._on_peer_incarnation_learned,
    SourceRead: Node._on_source_read,
    SinkSynced: Node._on_sink_synced,
    SpillRead: Node._on_spill_read,
    RestartPointStored: Node._on_restart_point_stored,
    TimerFired: Node._on_timer_fired,
    Proceed: Node._on_proceed,
}


def _rows(batches: list[TupleBatch]) -> Rows:
    """The rows of consecutive batches as one round's input, in id order."""
    batch = batches[0].batch if len(batches) == 1 else pa.concat_batches([b.batch for b in batches])
    time_us = batch.column(batch.num_columns - 1).to_numpy()
    created = [b.created_us for b in batches if b.created_us]
    return Rows(
        _without_time(batch),
        time_us,
        np.arange(len(time_us), dtype=np.int64),
        min(created, default=0),
    )


def _without_time(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.select(range(batch.num_columns - 1))


def _before(batch: TupleBatch, tuple_id: int) -> TupleBatch:
    """The tuples before `tuple_id`, whose own boundary is not known."""
    head = batch.batch.slice(0, tuple_id - batch.first_id)
    return TupleBatch(batch.first_id, head, BEGINNING_US, batch.created_us, batch.tuple_type)


def _partition(batch: pa.RecordBatch, spec: OutputSpec) -> list[pa.RecordBatch]:
    """Split by key hash into one batch per receiver, rows in order."""
    receivers = len(spec.streams)
    if receivers == 1:
        return [batch]
    part = partition_of([batch.column(key) for key in spec.keys], receivers)
    order = np.argsort(part, kind="stable")
    counts = np.bincount(part, minlength=receivers)
    sorted_batch = batch.take(pa.array(order))
    starts = np.concatenate([[0], np.cumsum(counts)])
    return [sorted_batch.slice(int(starts[i]), int(counts[i])) for i in range(receivers)]
