"""The outputs of a node: streams to other nodes, and sinks. [HA §5.2]

Every stream to another node has an output queue, which numbers and keeps its tuples; a sink has a
log, written exactly once by tuple id. Both say up to which id they let the node go: what was put
out before is needed from it no more.

A receiver may have two replicas, which are served side by side; its primary alone counts for
retention, but what its secondary has not received yet is kept.

A secondary puts out nothing. It keeps everything, tuples for sinks too, until the primary says that
nobody needs it any more (`positions`, the high watermarks of [HA §4.2]); promoted, it hands on what
is left. One that numbers otherwise than its primary is told which input that needs no more, lets go
of the rounds that took nothing else, and numbers what is left from where receivers are.

The output of an arbitrary node stays behind a gate until the round that made it is durable in the
node's round log (rounds.py), which is written like a sink's.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from holdfast.core.haunit.events import (
    EndSink,
    ReadSpill,
    ReportFirstOutput,
    ReportGap,
    SendBatch,
    SendBoundary,
    SpillBatches,
    SyncSink,
    TrimSpill,
    WriteSink,
)
from holdfast.core.haunit.prepared import OutputTuples
from holdfast.core.model.ids import (
    BEGINNING_US,
    END_US,
    NO_ID,
    NOBODY,
    Incarnation,
    NodeId,
    StreamId,
)
from holdfast.core.model.stable_hash import partition_of
from holdfast.core.model.tuples import TupleBatch, in_parts, with_time
from holdfast.core.queues.output_queue import Cursor, OutputQueue
from holdfast.core.recovery.guarantee import Guarantee, StreamRebased

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from holdfast.core.haunit.events import (
        AckReceived,
        SinkSynced,
        SpillRead,
        SubscribeReceived,
    )
    from holdfast.core.haunit.plan import NodePlan, OutputSpec
    from holdfast.core.haunit.prepared import OutputSegment
    from holdfast.core.haunit.rounds import Round
    from holdfast.core.machine import Effect
    from holdfast.core.operators.base import Rows
    from holdfast.core.recovery.restart_point import RestartPoint


@dataclass(slots=True)
class Link:
    """To one replica of a receiver."""

    cursor: Cursor
    receiver: Incarnation | None = None
    spill_request: int | None = None  # request id of the ReadSpill under way


@dataclass(slots=True)
class Output:
    """One output stream to a receiving node."""

    queue: OutputQueue
    node: NodeId
    primary: Link
    trimmed_told: int
    is_unplaced: bool = False  # the receiver has yet to name the id from which to number
    is_numbered_anew: bool = False  # what is kept goes on where the receiver is, too
    rebased_at: int = -1  # from this id on its tuples are not those of an earlier incarnation
    has_before_us: int = BEGINNING_US  # of a rebased stream: what its receiver has
    is_settled: bool = True  # the receiver needs nothing from before `rebased_at`
    subscriber: Incarnation = NOBODY  # of the receiver's primary, as which it subscribed last
    sent_before: int = 0  # ids that have been sent to some incarnation of the receiver
    lost_before: int = 0  # up to where it is reported what its receiver has missed
    received_before: int = -1  # ids that the receiver has, of former incarnations too; -1: unknown
    secondary: Link | None = None

    def links(self) -> Iterator[Link]:
        """To the receiver's replicas."""
        yield self.primary
        if self.secondary is not None:
            yield self.secondary


@dataclass(slots=True)
class Sink:
    """One sink stream."""

    next_id: int
    durable_before: int  # ids before it are on disk: level-1 position of the log
    written_before: int  # ids before it are in the log
    is_held_up: bool = False  # what is not durable has a bound, as unsent tuples have
    is_sync_due: bool = False
    is_ended: bool = False
    is_syncing: bool = False  # of a round log
    held: deque[TupleBatch] = field(default_factory=deque)  # what must not be written yet

    @property
    def held_tuples(self) -> int:
        """How many tuples are kept from the log."""
        return self.next_id - self.held[0].first_id if self.held else 0


@dataclass(slots=True)
class _Gate:
    """Behind it is what a round has put out, until the round is durable."""

    number: int
    promised: dict[StreamId, int] = field(default_factory=dict)  # boundaries
    next_ids: dict[str, int] = field(default_factory=dict)  # after it


class HAOutput:
    """The HAOutput of a unit: all output streams and sinks of one incarnation. [SGuard §3]

    Volatile: all fields.
    """

    def __init__(
        self,
        plan: NodePlan,
        incarnation: Incarnation,
        point: RestartPoint,
        sink_next_ids: dict[StreamId, int],
        restored: dict[StreamId, tuple[TupleBatch, ...]] | None = None,
        *,
        is_secondary: bool = False,
        is_rebased: bool = False,
        has_own_time: bool = False,
    ) -> None:
        """Number from the restart point on.

        Args:
            plan: The node's.
            incarnation: The node's.
            point: Where it begins.
            sink_next_ids: What the sinks' logs hold.
            restored: What a checkpoint holds of each stream, up to the point's `next_ids`.
            is_secondary: Whether to keep everything to itself until promoted.
            is_rebased: Whether to go on with the ids that receivers name. [HA §3.1]
            has_own_time: Whether tuples are of the processing time, and not of the input's.
        """
        self._plan = plan
        self._has_own_time = has_own_time
        self._incarnation = incarnation
        self._is_secondary = is_secondary
        self._streams: dict[StreamId, Output] = {}
        self._sinks: dict[StreamId, Sink] = {}
        for spec in plan.outputs:
            self._open(spec, point, sink_next_ids)
        for stream, batches in (restored or {}).items():
            self._restore(self._streams[stream], batches)
        if is_rebased:
            self.rebase()
        self._gates: deque[_Gate] | None = None  # of rounds that are not durable, oldest first
        if plan.keeps_rounds:
            self._open_gates(point, sink_next_ids)
        # Of a secondary that numbers otherwise: the input that rounds took, and what they put out.
        self._rounds_kept: deque[tuple[tuple[int, ...], dict[str, int]]] = deque()
        self._let_go_before = self.next_ids
        self._requests = 0
        self._has_put_out = False
        self._unsafe_stream: StreamId | None = None  # the one that kept a point from being safe
        self.refused_frames = 0
        self.tuples = 0  # put out so far

    def _open_gates(self, point: RestartPoint, sink_next_ids: dict[StreamId, int]) -> None:
        stream = self._plan.round_stream
        in_log = sink_next_ids.get(stream, 0)
        self._sinks[stream] = Sink(point.needed_from.get(stream, 0), in_log, in_log)
        self._gates = deque()
        for output in self._streams.values():
            output.queue.gate = output.queue.next_id

    def _open(
        self, spec: OutputSpec, point: RestartPoint, sink_next_ids: dict[StreamId, int]
    ) -> None:
        for i, stream in enumerate(spec.streams):
            next_id = point.next_ids.get(stream, 0)
            if spec.is_sink:
                in_log = max(sink_next_ids.get(stream, 0), next_id)
                self._sinks[stream] = Sink(next_id, in_log, in_log, spec.is_held_up)
            else:
                queue = self._new_queue(stream, next_id)
                self._streams[stream] = Output(
                    queue, spec.receivers[i], Link(queue.primary), trimmed_told=next_id
                )

    def _new_queue(self, stream: StreamId, first_id: int) -> OutputQueue:
        return OutputQueue(
            stream,
            first_id=first_id,
            retain=self._plan.is_protected,
            memory_limit_bytes=self._plan.limits.output_queue_bytes,
        )

    def _begin_anew(self, output: Output, first_id: int) -> None:
        """Another queue for a stream, numbered from an id on."""
        output.queue = self._new_queue(output.queue.stream, first_id)
        output.trimmed_told = first_id
        output.primary.cursor = output.queue.primary
        if output.secondary is not None:
            output.secondary.cursor = output.queue.open_secondary()

    def rebase(self) -> None:
        """Nothing has been put out yet: number from where receivers, and sinks' logs, are.

        A receiver that has subscribed already hears nothing more, and subscribes again: then it
        names what it has by now.
        """
        for output in self._streams.values():
            output.is_unplaced = True
            output.primary.cursor.is_subscribed = False
        for sink in self._sinks.values():
            sink.next_id = sink.written_before

    @property
    def is_behind(self) -> bool:
        """Whether a former incarnation has, or may have, put out more than this one. O(streams)."""
        if any(sink.next_id < sink.written_before for sink in self._sinks.values()):
            return True
        return self._incarnation > 1 and any(
            not output.is_unplaced
            and (output.received_before < 0 or output.received_before > output.queue.next_id)
            for output in self._streams.values()
        )

    @property
    def are_placed(self) -> bool:
        """Whether it is known from where to number all streams. Cost: O(streams)."""
        return not any(output.is_unplaced for output in self._streams.values())

    def _restore(self, output: Output, batches: tuple[TupleBatch, ...]) -> None:
        """Hold again what was put out before the point and may still be needed."""
        if not batches:
            return
        self._begin_anew(output, batches[0].first_id)
        for batch in batches:
            output.queue.append(batch)

    # -- putting out --------------------------------------------------------------------------

    def has_room(self) -> bool:
        """Whether no stream has too many unsent tuples. Cost: O(streams)."""
        limit = self._plan.limits.output_queue_tuples
        for sink in self._sinks.values():
            if sink.is_held_up and sink.written_before - sink.durable_before >= limit:
                return False
        if self._is_secondary and any(s.held_tuples >= limit for s in self._sinks.values()):
            return False
        return all(
            not output.is_unplaced and output.queue.unsent_tuples < limit
            for output in self._streams.values()
        )

    def put_out(
        self, spec: OutputSpec, pieces: Sequence[Rows], boundary_us: int, effects: list[Effect]
    ) -> None:
        """Number rows and append them to their queues, or write them to their sink.

        Only the last of them brings the boundary.
        """
        pieces = [piece for piece in pieces if len(piece.time_us)]
        for number, piece in enumerate(pieces, 1):
            is_last = number == len(pieces)
            self._put_out(spec, piece, boundary_us if is_last else BEGINNING_US, effects)

    def _put_out(
        self, spec: OutputSpec, rows: Rows, boundary_us: int, effects: list[Effect]
    ) -> None:
        kept = rows.batch if spec.columns is None else rows.batch.select(list(spec.columns))
        batch = pa.RecordBatch.from_arrays(
            [*kept.columns, pa.array(rows.time_us)], schema=with_time(spec.schema)
        )
        self.tuples += batch.num_rows
        if spec.is_sink:
            sink = self._sinks[spec.streams[0]]
            tuples = TupleBatch(sink.next_id, batch, boundary_us, rows.created_us)
            sink.next_id = tuples.next_id
            for part in in_parts(tuples):
                if self._is_secondary or self._gates:
                    sink.held.append(part)
                else:
                    self._write(spec.streams[0], part, effects)
            return
        for stream, part in zip(spec.streams, _partition(batch, spec), strict=True):
            output = self._streams[stream]
            if output.rebased_at >= 0:
                part = self._not_before(part, output.has_before_us)
            if part.num_rows:
                tuples = TupleBatch(output.queue.next_id, part, boundary_us, rows.created_us)
                for piece in in_parts(tuples):
                    output.queue.append(piece)

    def _not_before(self, batch: pa.RecordBatch, time_us: int) -> pa.RecordBatch:
        """What a receiver has not got that has everything older: it was promised no more of that.

        Where a tuple's time is the processing time, it has not: what was put out then was another
        choice of the input. It is put out now, unless nothing may come any more.
        """
        if not self._has_own_time or time_us in (BEGINNING_US, END_US):
            return _not_before(batch, time_us)
        times = batch.column(batch.num_columns - 1).to_numpy()
        columns = [*batch.columns[:-1], pa.array(np.maximum(times, time_us))]
        return pa.RecordBatch.from_arrays(columns, schema=batch.schema)

    def promise(self, spec: OutputSpec, boundary_us: int) -> None:
        """Nothing older will be put out on the streams of this output."""
        if spec.is_sink:
            return
        if self._gates:
            self._gates[-1].promised |= dict.fromkeys(spec.streams, boundary_us)
        else:
            for stream in spec.streams:
                self._streams[stream].queue.promise(boundary_us)

    def _write(self, stream: StreamId, tuples: TupleBatch, effects: list[Effect]) -> None:
        """Write what the log of a sink does not hold yet: exactly once by tuple id."""
        sink = self._sinks[stream]
        if tuples.next_id <= sink.written_before:
            return
        tuples = tuples.starting_at(sink.written_before)
        sink.written_before = tuples.next_id
        sink.is_sync_due = True
        effects.append(WriteSink(stream, tuples))
        self._note_first_output(effects)

    # -- rounds of an arbitrary node ----------------------------------------------------------

    def begin_round(self, round_: Round, effects: list[Effect]) -> None:
        """What is put out from now on is this round's; unless the log has it, write it there.

        It is open at once if the round is durable already.
        """
        if self._gates is None:
            return
        log = self._sinks[self._plan.round_stream]
        log.next_id = round_.number + 1
        if self._is_secondary:
            return  # It runs what the primary has logged, and puts nothing out.
        if round_.number >= log.written_before:
            log.written_before = round_.number + 1
            effects.append(WriteSink(self._plan.round_stream, round_.to_batch()))
            self._sync_rounds(log, effects)
        self._gates.append(_Gate(round_.number))

    def _sync_rounds(self, log: Sink, effects: list[Effect]) -> None:
        """One sync at a time; rounds that come in the meantime share the next."""
        if not log.is_syncing and log.durable_before < log.written_before:
            log.is_syncing = True
            effects.append(SyncSink(self._plan.round_stream))

    def end_round(self, processed_before: tuple[int, ...], effects: list[Effect]) -> None:
        """Note up to where the round has taken and put out, and let out what may leave."""
        if self._is_secondary and self._plan.diverges:
            self._rounds_kept.append((processed_before, self.next_ids))
        if not self._gates:
            return
        self._gates[-1].next_ids = self.next_ids
        self._let_out(effects)

    def _let_out(self, effects: list[Effect]) -> None:
        """Open the gates of all rounds that are durable."""
        if self._gates is None or self._is_secondary:
            return
        durable_before = self._sinks[self._plan.round_stream].durable_before
        opened: _Gate | None = None
        promised: dict[StreamId, int] = {}
        while self._gates and self._gates[0].number < durable_before:
            if not self._gates[0].next_ids:
                break  # It is being run.
            opened = self._gates.popleft()
            promised |= opened.promised
        if opened is None:
            return
        for stream, output in self._streams.items():
            output.queue.gate = opened.next_ids[stream]
            output.queue.promise(promised.get(stream, BEGINNING_US))
        for stream, sink in self._sinks.items():
            while sink.held and sink.held[0].next_id <= opened.next_ids[stream]:
                self._write(stream, sink.held.popleft(), effects)

    def _note_first_output(self, effects: list[Effect]) -> None:
        if not self._has_put_out:
            self._has_put_out = True
            effects.append(ReportFirstOutput())

    # -- sending ----------------------------------------------------------------------------

    def flush(self, effects: list[Effect]) -> None:
        """Send what credit allows on all streams, then boundaries."""
        for stream, output in self._streams.items():
            self._flush(stream, output, effects)

    def _flush(self, stream: StreamId, output: Output, effects: list[Effect]) -> None:
        for link in output.links():
            self._flush_link(stream, output.queue, link, effects)
        spilled = output.queue.take_spill()
        if spilled:
            effects.append(SpillBatches(stream, tuple(spilled)))

    def _flush_link(
        self, stream: StreamId, queue: OutputQueue, link: Link, effects: list[Effect]
    ) -> None:
        receiver, cursor = link.receiver, link.cursor
        if receiver is None or not cursor.is_subscribed:
            return
        self._read_spill(stream, link, effects)
        for batch in cursor.take_sendable():
            effects.append(SendBatch(stream, receiver, batch))
            self._note_first_output(effects)
        boundary_us = cursor.take_boundary()
        if boundary_us is not None:
            effects.append(SendBoundary(stream, receiver, cursor.next_to_send, boundary_us))

    def keep_alive(self, effects: list[Effect]) -> None:
        """Tell every receiver the last id sent, so that it notices a lost end."""
        for stream, output in self._streams.items():
            queue = output.queue
            for link in output.links():
                if link.receiver is None or not link.cursor.is_subscribed:
                    continue
                sent_before = link.cursor.next_to_send
                boundary_us = queue.boundary_us if sent_before >= queue.next_id else BEGINNING_US
                effects.append(SendBoundary(stream, link.receiver, sent_before, boundary_us))

    def _read_spill(self, stream: StreamId, link: Link, effects: list[Effect]) -> None:
        """Read back all that credit allows: a read takes its time, however little it brings."""
        missing = link.cursor.missing_for_send()
        if missing is None or link.spill_request is not None:
            return
        self._requests += 1
        link.spill_request = self._requests
        effects.append(ReadSpill(stream, self._requests, *missing))

    def spill_read(self, got: SpillRead, effects: list[Effect]) -> None:
        """Send on what was read back."""
        output = self._streams[got.stream]
        for link in output.links():
            if link.spill_request != got.request_id or link.receiver is None:
                continue  # Asked for by a subscription that has been replaced.
            link.spill_request = None
            for batch in got.batches:
                effects.append(SendBatch(got.stream, link.receiver, batch))
                link.cursor.resent(batch.next_id)
        self._flush(got.stream, output, effects)

    # -- receivers --------------------------------------------------------------------------

    def learn(self, node: NodeId, incarnation: Incarnation, secondary: Incarnation) -> None:
        """A receiver's primary has this incarnation, and its secondary, if it has one, that."""
        for output in self._streams.values():
            if output.node == node:
                self._learn(output, incarnation)
                if output.primary.receiver == incarnation:
                    self._learn_secondary(output, secondary)

    def _learn(self, output: Output, incarnation: Incarnation) -> None:
        link = output.primary
        if link.receiver is None or incarnation > link.receiver:
            link.receiver = incarnation
            link.cursor.unsubscribe()
            link.spill_request = None

    def _learn_secondary(self, output: Output, secondary: Incarnation) -> None:
        """From now on keep what this secondary has not received; one that is gone needs nothing."""
        known = output.secondary
        if not secondary:
            output.secondary = None
            output.queue.close_secondary()
        elif known is None or known.receiver != secondary:
            output.secondary = Link(output.queue.open_secondary(), secondary)

    def subscribe(self, got: SubscribeReceived, effects: list[Effect]) -> bool:
        """Serve a replica of a receiver from an id on; False when the frame was refused.

        Raises:
            RemoteProtocolError: A new receiver needs what was trimmed.
        """
        accepted = self._accepted(got)
        if accepted is None:
            return False
        output, link = accepted
        if output.is_unplaced and not got.is_secondary:
            self._place(output, got)
        if not got.is_secondary:
            output.sent_before = max(output.sent_before, link.cursor.next_to_send)
        queue, from_id = output.queue, self._first_to_send(output, got)
        if not got.is_secondary:
            output.subscriber = got.sender
        self._report_gap(output, got, from_id, effects)
        is_old = link.cursor.is_subscribed and from_id < queue.trimmed_before
        is_behind = got.is_secondary and from_id < queue.trimmed_before
        if output.rebased_at >= 0 or got.from_id == NO_ID:
            told = (got.stream, got.sender, from_id, BEGINNING_US, output.rebased_at)
            effects.append(SendBoundary(*told))
        if is_old or is_behind or output.is_unplaced:
            self.refused_frames += 1  # Since then, it has acknowledged more.
            return False
        link.spill_request = None
        link.cursor.subscribe(from_id)
        link.cursor.reset_credit(got.credit_until)
        self._trim(output, link, from_id, got.needed_from, effects)
        return True

    def _report_gap(
        self, output: Output, got: SubscribeReceived, from_id: int, effects: list[Effect]
    ) -> None:
        """What a receiver needs again, and after amnesia nobody has, is lost to it."""
        lost_from = max(got.from_id, output.lost_before)
        if not got.is_secondary and lost_from < from_id:
            output.lost_before = from_id
            effects.append(ReportGap(got.stream, lost_from, from_id))

    def _first_to_send(self, output: Output, got: SubscribeReceived) -> int:
        """From which id on a subscriber is served.

        After amnesia a receiver that needs what came before is sent nothing that its former
        incarnation may have had.

        Raises:
            StreamRebased: It needs what came before the stream was rebased.
        """
        if got.from_id == NO_ID:
            return output.queue.next_id
        trimmed_before = output.queue.trimmed_before
        if got.is_secondary or output.is_settled or got.from_id > output.rebased_at:
            return got.from_id
        is_another = got.sender != output.subscriber
        if self._plan.guarantee is Guarantee.GAP and is_another:
            return max(trimmed_before, output.sent_before)
        if got.from_id >= trimmed_before:
            return got.from_id
        raise StreamRebased(
            f"{got.stream} was rebased at {output.rebased_at}; {got.from_id} is needed again"
        )

    def _place(self, output: Output, got: SubscribeReceived) -> None:
        """The receiver has named the id from which to number.

        What a checkpoint has brought goes before that, if the receiver has not got it all.
        """
        output.is_unplaced = False
        output.subscriber = got.sender
        output.has_before_us = got.boundary_us
        output.is_settled = False
        if output.is_numbered_anew:
            self._number_anew(output, got.needed_from if got.from_id == NO_ID else got.from_id)
            return
        output.has_before_us = max(got.boundary_us, output.queue.boundary_us)
        output.rebased_at = output.queue.next_id
        if output.queue.trimmed_before <= got.from_id <= output.rebased_at:
            return
        output.rebased_at = got.needed_from if got.from_id == NO_ID else got.from_id
        promised_us = output.queue.boundary_us
        self._begin_anew(output, output.rebased_at)
        output.queue.promise(promised_us)
        if self._gates is not None:
            output.queue.gate = output.rebased_at

    def _number_anew(self, output: Output, first_id: int) -> None:
        """Everything that is kept goes on where the receiver is."""
        output.is_numbered_anew = False
        output.rebased_at = first_id
        former = output.queue
        self._begin_anew(output, first_id)
        for batch in former.held_from(former.trimmed_before):
            part = self._not_before(batch.batch, output.has_before_us)
            if part.num_rows:
                output.queue.append(replace(batch, first_id=output.queue.next_id, batch=part))
        output.queue.promise(former.boundary_us)

    def acknowledge(self, got: AckReceived, effects: list[Effect]) -> bool:
        """Take over a replica's positions and credit; False when the frame was refused."""
        accepted = self._accepted(got)
        if accepted is None:
            return False
        output, link = accepted
        link.cursor.grant(got.credit_until)
        self._trim(output, link, got.received_before, got.needed_from, effects)
        return True

    def flush_stream(self, stream: StreamId, effects: list[Effect]) -> None:
        """Send what credit allows on one stream."""
        self._flush(stream, self._streams[stream], effects)

    def _accepted(self, got: SubscribeReceived | AckReceived) -> tuple[Output, Link] | None:
        """The stream and the link, or None if the frame is of, or for, another incarnation.

        A newer incarnation of the receiver's primary than the coordinator has told of is believed:
        only the coordinator gives incarnations, and waiting for its word would delay recovery.
        """
        output = self._streams.get(got.stream)
        if output is None or got.receiver != self._incarnation or self._is_secondary:
            self.refused_frames += 1
            return None
        if not got.is_secondary:
            self._learn(output, got.sender)
        link = output.secondary if got.is_secondary else output.primary
        if link is None or got.sender != link.receiver:
            self.refused_frames += 1
            return None
        return output, link

    def _trim(
        self,
        output: Output,
        link: Link,
        received_before: int,
        needed_from: int,
        effects: list[Effect],
    ) -> None:
        """Positions beyond what this incarnation has produced again say nothing to it yet."""
        queue = output.queue
        if link is output.primary:
            output.received_before = max(output.received_before, received_before)
            output.is_settled = output.is_settled or needed_from > output.rebased_at
        link.cursor.acknowledge(
            min(received_before, queue.next_id), min(needed_from, queue.next_id)
        )
        self._tell_trimmed(output, effects)

    def _tell_trimmed(self, output: Output, effects: list[Effect]) -> None:
        queue = output.queue
        if queue.trimmed_before > output.trimmed_told:
            output.trimmed_told = queue.trimmed_before
            effects.append(TrimSpill(queue.stream, queue.trimmed_before))

    # -- two replicas -------------------------------------------------------------------------

    def positions(self) -> tuple[tuple[int, int], ...]:
        """Per output stream, in the order of the plan, what receivers have and need no more."""
        found: list[tuple[int, int]] = []
        for stream in self._plan.output_streams():
            if stream in self._sinks:
                durable_before = self._sinks[stream].durable_before
                found.append((durable_before, durable_before))
            else:
                queue = self._streams[stream].queue
                found.append((queue.primary.received_before, queue.needed_from))
        return tuple(found)

    def since(
        self, sent_before: dict[str, int]
    ) -> tuple[tuple[tuple[int, int], ...], tuple[tuple[int, TupleBatch], ...]] | None:
        """What a passive secondary has to know of the output that it has not had yet.

        Args:
            sent_before: Per stream the id up to which it has had the tuples.

        Returns:
            Per stream but sinks the first id that is kept and the next id, and the new tuples with
            the position of their stream; None if some of them are spilled.
        """
        positions: list[tuple[int, int]] = []
        batches: list[tuple[int, TupleBatch]] = []
        for number, (stream, output) in enumerate(self._streams.items()):
            queue = output.queue
            first_id = max(sent_before.get(stream, 0), queue.trimmed_before)
            if first_id < min(queue.memory_first, queue.next_id):
                return None
            positions.append((queue.trimmed_before, queue.next_id))
            batches += [(number, batch) for batch in queue.held_from(first_id)]
        return tuple(positions), tuple(batches)

    def follow(self, positions: tuple[tuple[int, int], ...], effects: list[Effect]) -> None:
        """What the primary says of its receivers: a secondary keeps no more than it has to."""
        if self._plan.diverges:
            positions = self._let_go_of_rounds(tuple(needed for _, needed in positions))
        for stream, (received_before, needed_from) in zip(
            self._plan.output_streams(), positions, strict=True
        ):
            if stream in self._sinks:
                held = self._sinks[stream].held
                while held and held[0].next_id <= needed_from:
                    held.popleft()
                continue
            output = self._streams[stream]
            cursor, next_id = output.queue.primary, output.queue.next_id
            cursor.resent(min(received_before, next_id))
            cursor.acknowledge(min(received_before, next_id), min(needed_from, next_id))
            self._tell_trimmed(output, effects)
            self._flush(stream, output, effects)

    def _let_go_of_rounds(self, needed_from: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
        """What rounds have put out that took nothing but input from before what is needed."""
        kept = self._rounds_kept
        while kept and all(b <= n for b, n in zip(kept[0][0], needed_from, strict=True)):
            self._let_go_before = kept.popleft()[1]
        ids = (self._let_go_before[stream] for stream in self._plan.output_streams())
        return tuple((i, i) for i in ids)

    def promote(
        self,
        incarnation: Incarnation,
        sink_next_ids: dict[StreamId, int],
        effects: list[Effect],
    ) -> None:
        """From now on this is the primary: write what the sinks' logs lack, wait for receivers."""
        self._incarnation = incarnation
        self._is_secondary = False
        for stream, sink in self._sinks.items():
            sink.durable_before = sink.written_before = sink_next_ids[stream]
            if self._plan.diverges:
                sink.next_id = sink.written_before
                held, sink.held = sink.held, deque()
                for tuples in held:
                    sink.held.append(replace(tuples, first_id=sink.next_id))
                    sink.next_id = sink.held[-1].next_id
            while sink.held:
                self._write(stream, sink.held.popleft(), effects)
        if self._plan.diverges:
            for output in self._streams.values():
                output.is_unplaced = output.is_numbered_anew = True
                output.primary.cursor.is_subscribed = False
            self._rounds_kept.clear()
        if self._gates is not None:
            for output in self._streams.values():
                output.queue.gate = output.queue.next_id

    # -- sinks ------------------------------------------------------------------------------

    def sync_sinks(self, effects: list[Effect]) -> None:
        """Have what was written made durable."""
        for stream, sink in self._sinks.items():
            if sink.is_sync_due:
                sink.is_sync_due = False
                effects.append(SyncSink(stream))

    def sink_synced(self, synced: SinkSynced, effects: list[Effect]) -> None:
        """A sink's log is on disk up to an id."""
        sink = self._sinks[synced.stream]
        sink.durable_before = max(sink.durable_before, synced.durable_before)
        if synced.stream == self._plan.round_stream:
            sink.is_syncing = False
            self._sync_rounds(sink, effects)
            self._let_out(effects)
            self.flush(effects)

    def end_sinks(self, effects: list[Effect]) -> bool:
        """End every sink that is durable; False as long as one is not."""
        for stream, sink in self._sinks.items():
            if sink.durable_before < sink.next_id:
                return False
            if not sink.is_ended and stream != self._plan.round_stream:
                sink.is_ended = True
                effects.append(EndSink(stream))
        return True

    # -- checkpoints --------------------------------------------------------------------------

    def to_be_stored(
        self, stored: tuple[OutputSegment, ...], segments_max: int
    ) -> tuple[tuple[OutputSegment, ...], tuple[OutputTuples, ...]]:
        """What a checkpoint has to hold of the tuples that receivers may still need.

        Args:
            stored: Where earlier checkpoints have stored some of them.
            segments_max: With more segments than that, all is to be written again.

        Returns:
            The segments that go on to count, and the tuples to be written.
        """
        kept = tuple(
            segment
            for segment in stored
            if segment.to_id > self._streams[segment.stream].queue.trimmed_before
        )
        if len(kept) > segments_max:
            kept = ()
        stored_before = {segment.stream: segment.to_id for segment in kept}
        wanted: list[OutputTuples] = []
        for stream, output in self._streams.items():
            queue = output.queue
            from_id = stored_before.get(stream, queue.trimmed_before)
            if from_id < queue.next_id:
                batches = tuple(queue.held_from(from_id))
                wanted.append(OutputTuples(stream, from_id, queue.next_id, batches))
        return kept, tuple(wanted)

    # -- restart points -----------------------------------------------------------------------

    @property
    def next_ids(self) -> dict[str, int]:
        """Per stream the id of its next tuple."""
        ids: dict[str, int] = {s: output.queue.next_id for s, output in self._streams.items()}
        return ids | {stream: sink.next_id for stream, sink in self._sinks.items()}

    def let_go(self, point: RestartPoint) -> bool:
        """Whether nothing put out before the point is needed from this node any more."""
        if not self._lets_go(self._unsafe_stream, point):
            return False  # The stream that was missing the last time still is.
        for stream in (*self._streams, *self._sinks):
            if not self._lets_go(stream, point):
                self._unsafe_stream = stream
                return False
        return True

    def _lets_go(self, stream: StreamId | None, point: RestartPoint) -> bool:
        if stream is None:
            return True
        output = self._streams.get(stream)
        if output is not None:
            if output.is_unplaced:
                return False
            if self._plan.guarantee is Guarantee.GAP:  # Nothing is replayed: received is had.
                return point.next_ids[stream] <= output.queue.primary.received_before
            if not output.is_settled and point.next_ids[stream] > output.rebased_at:
                return False
            is_held = point.checkpoint is not None
            return is_held or point.next_ids[stream] <= output.queue.needed_from
        return point.next_ids[stream] <= self._sinks[stream].durable_before

    # -- looking ----------------------------------------------------------------------------

    def receiver(self, stream: StreamId) -> Incarnation | None:
        """The incarnation of the primary of a stream's receiver, as far as it is known."""
        return self._streams[stream].primary.receiver

    def secondary(self, stream: StreamId) -> Incarnation | None:
        """The incarnation of the secondary of a stream's receiver, if it has one."""
        link = self._streams[stream].secondary
        return None if link is None else link.receiver

    def receivers(self) -> dict[NodeId, Incarnation]:
        """The incarnation of every receiver that is known."""
        links = ((o.node, o.primary.receiver) for o in self._streams.values())
        return {node: receiver for node, receiver in links if receiver is not None}

    def secondaries(self) -> dict[NodeId, Incarnation]:
        """The incarnation of every receiver's secondary."""
        links = ((o.node, o.secondary) for o in self._streams.values())
        return {n: link.receiver for n, link in links if link is not None and link.receiver}

    def queues(self) -> list[OutputQueue]:
        """All output queues."""
        return [output.queue for output in self._streams.values()]


def _not_before(batch: pa.RecordBatch, time_us: int) -> pa.RecordBatch:
    """The rows that are not older, by the last column."""
    if time_us == BEGINNING_US or not batch.num_rows:
        return batch
    keep = batch.column(batch.num_columns - 1).to_numpy() >= time_us
    return batch if bool(keep.all()) else batch.filter(pa.array(keep))


def _partition(batch: pa.RecordBatch, spec: OutputSpec) -> list[pa.RecordBatch]:
    """Split by key hash into one batch per receiver, rows in order."""
    receivers = len(spec.streams)
    if receivers == 1:
        return [batch]
    part = partition_of([batch.column(key) for key in spec.keys], receivers)
    small = np.min_scalar_type(receivers - 1)  # Up to 16 bits are sorted in linear time.
    order = np.argsort(part.astype(small), kind="stable")
    counts = np.bincount(part, minlength=receivers)
    sorted_batch = batch.take(pa.array(order))
    starts = np.concatenate([[0], np.cumsum(counts)])
    return [sorted_batch.slice(int(starts[i]), int(counts[i])) for i in range(receivers)]
