"""HAOutput, the outputs of a node: streams to other nodes, and sinks. [HA §5.2]

Every stream to another node is an edge (outputs/edge.py) with an output queue, which numbers and
keeps its tuples; a sink (outputs/sink.py) has a log, written exactly once by tuple id. Both say up
to which id they let the node go: what was put out before is needed from it no more. This module
only routes.

A receiver may have several replicas, which are served side by side; its primary alone counts for
retention, but what the others have not received yet is kept.

A secondary puts out nothing. It keeps everything, tuples for sinks too, until the primary says that
nobody needs it any more (`positions`, the high watermarks of [HA §4.2]); promoted, it hands on what
is left. One that numbers otherwise than its primary is told which input that needs no more, lets go
of the passes that took nothing else (outputs/kept_passes.py), and numbers what is left from where
receivers are.

The output of an arbitrary node stays behind a gate until the pass that made it is
durable in the node's log of passes (outputs/pass_gate.py, outputs/pass_log.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.core.haunit.outputs.edge import Link, OutputEdge
from holdfast.core.haunit.outputs.feed import Feed
from holdfast.core.haunit.outputs.first_output import FirstOutput
from holdfast.core.haunit.outputs.footprint_log import FootprintLog
from holdfast.core.haunit.outputs.former_promises import FormerPromises, Source
from holdfast.core.haunit.outputs.kept_output import KeptOutput
from holdfast.core.haunit.outputs.kept_passes import KeptPasses
from holdfast.core.haunit.outputs.line_gate import LineGate
from holdfast.core.haunit.outputs.partition import batch_of, partition
from holdfast.core.haunit.outputs.pass_gate import PassGate
from holdfast.core.haunit.outputs.pass_log import PassLog
from holdfast.core.haunit.outputs.places import OutputPlaces
from holdfast.core.haunit.outputs.receivers import Receivers
from holdfast.core.haunit.outputs.sink import Sink
from holdfast.core.haunit.outputs.suffix import Suffix
from holdfast.core.haunit.outputs.tentative import TentativeOutputs
from holdfast.core.model.ids import BEGINNING_US, Incarnation, StreamId
from holdfast.core.queues.output_queue import OutputQueue
from holdfast.core.queues.stream_notes import first_number_of
from holdfast.core.recovery.guarantee import Guarantee

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from holdfast.core.haunit.events import (
        AckReceived,
        SinkSynced,
        SpillRead,
        SubscribeReceived,
    )
    from holdfast.core.haunit.passes import Pass
    from holdfast.core.haunit.plan import NodePlan, OutputSpec
    from holdfast.core.machine import Effect
    from holdfast.core.model.notes import PlacedNote, StreamNote
    from holdfast.core.model.tuples import TupleBatch
    from holdfast.core.operators.base import Rows
    from holdfast.core.recovery.restart_point import RestartPoint


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
        restored_notes: dict[StreamId, tuple[PlacedNote, ...]] | None = None,
        is_secondary: bool = False,
        is_rebased: bool = False,
        has_own_time: bool = False,
        roots: Mapping[Source, Source] | None = None,
    ) -> None:
        """Number from the restart point on.

        Args:
            plan: The node's.
            incarnation: The node's.
            point: Where it begins.
            sink_next_ids: What the sinks' logs hold.
            restored: What a checkpoint holds of each stream, up to the point's `next_ids`.
            restored_notes: What it holds of the notes among them, and behind them.
            is_secondary: Whether to keep everything to itself until promoted.
            is_rebased: Whether to go on with the ids that receivers name. [HA §3.1]
            has_own_time: Whether tuples are of the processing time, and not of the input's.
            roots: See `OperatorNetwork.roots`.
        """
        self._plan = plan
        self._has_own_time = has_own_time
        self._incarnation = incarnation
        self._is_secondary = is_secondary
        self._first_output = FirstOutput()
        self._edges: dict[StreamId, OutputEdge] = {}
        self._sinks: dict[StreamId, Sink] = {}
        self._feeds: dict[StreamId, Feed] = {}
        self._beside = plan.streams_beside()
        for spec in plan.outputs:
            self._open(spec, point, sink_next_ids)
        self._places = OutputPlaces(self._edges, self._sinks)
        self.kept = KeptOutput(self._edges, plan.streams_empty_at_cuts())
        self.receivers = Receivers(self._edges)
        self._former = FormerPromises(plan, self._edges, roots)
        self.tentative = TentativeOutputs(self._feeds, self._edges)
        self._restore(restored or {}, restored_notes or {})
        if is_rebased:
            self.rebase()
        self._pass_gate: PassGate | None = None
        self._line_gate: LineGate | None = None
        if plan.keeps_passes:
            self._pass_gate = self._new_pass_gate(point, sink_next_ids)
        self.footprints: FootprintLog | None = None
        if plan.footprints is not None:
            self._open_footprint_log(sink_next_ids)
        self._kept_passes = KeptPasses(self.next_ids)
        self._unsafe_stream: StreamId | None = None  # the one that kept a point from being safe
        self.before_tuples: Callable[[StreamId], None] | None = None
        """Told before tuples are put out on a stream to another node: notes may have to precede."""
        self.refused_frames = self.tuples = 0  # put out so far
        self._out_before: dict[StreamId, int] = {}  # of sinks, by operators that have gone back

    def _restore(
        self,
        restored: dict[StreamId, tuple[TupleBatch, ...]],
        restored_notes: dict[StreamId, tuple[PlacedNote, ...]],
    ) -> None:
        for stream, batches in restored.items():
            (self._edges.get(stream) or self._sinks[stream]).restore(batches)
        for stream, notes in restored_notes.items():
            self._edges[stream].queue.notes.restore(notes)

    def _new_pass_gate(self, point: RestartPoint, sink_next_ids: dict[StreamId, int]) -> PassGate:
        stream = self._plan.pass_stream
        next_id, in_log = point.needed_from.get(stream, 0), sink_next_ids.get(stream, 0)
        self._sinks[stream] = log = PassLog(stream, next_id, in_log, self._first_output)
        return PassGate(log, self._places)

    def _open_footprint_log(self, sink_next_ids: dict[StreamId, int]) -> None:
        """Its end is where it is written on, whatever the restart point names."""
        stream = self._plan.footprint_stream
        in_log = sink_next_ids.get(stream, 0)
        self.footprints = FootprintLog(stream, in_log, in_log, self._first_output)
        self._sinks[stream] = self.footprints

    def _open(
        self, spec: OutputSpec, point: RestartPoint, sink_next_ids: dict[StreamId, int]
    ) -> None:
        for i, stream in enumerate(spec.streams):
            next_id = point.next_ids.get(stream, 0)
            if spec.feed_of is not None:
                self._open_feed(spec, spec.feed_of, sink_next_ids)
            elif spec.is_sink:
                in_log = max(sink_next_ids.get(stream, 0), point.held_from.get(stream, next_id))
                next_id = _numbered_from(self._plan, next_id, in_log)
                self._sinks[stream] = Sink(
                    stream, next_id, in_log, self._first_output, unsynced_max=spec.unsynced_max
                )
            else:
                first_note = first_number_of(self._incarnation)
                queue = _new_queue(self._plan, stream, next_id, first_note)
                self._edges[stream] = OutputEdge(
                    queue,
                    spec.receivers[i],
                    self._first_output,
                    suffix=Suffix(self._incarnation, self._plan.limits.input_queue_tuples),
                    has_own_time=self._has_own_time,
                    may_lose=self._plan.guarantee is Guarantee.GAP,
                    is_feedback=spec.is_feedback,
                    may_lag=spec.is_feedback or bool(self._beside.get(stream)),
                )

    def _open_feed(
        self, spec: OutputSpec, sink: StreamId, sink_next_ids: dict[StreamId, int]
    ) -> None:
        """Beside its sink, which stands before it in the plan."""
        (stream,) = spec.streams
        in_log = sink_next_ids.get(stream, 0)
        sources = {source for read in self._plan.inputs for source in read.sources}
        place = stream, in_log, spec.schema, self._sinks[sink], self._incarnation
        feed = Feed(*place, self._first_output, len(sources) or len(self._plan.inputs))
        self._sinks[stream] = self._feeds[stream] = feed

    def hold_for_line(self, point: RestartPoint) -> LineGate:
        """What a recovery could change leaves when the line has passed it.

        Args:
            point: Where the incarnation begins, with the points since the line behind it.
        """
        gated = [s for spec in self._plan.outputs if spec.is_gated for s in spec.streams]
        edges = {stream: self._edges[stream] for stream in gated if stream in self._edges}
        sinks = {stream: self._sinks[stream] for stream in gated if stream in self._sinks}
        gate = LineGate(edges, sinks, point, self._plan.limits)
        self._line_gate = self.kept.gate = gate
        return gate

    def rebase(self) -> None:
        """Nothing has been put out yet: number from where receivers, and sinks' logs, are."""
        for edge in self._edges.values():
            edge.rebase()
        for sink in self._sinks.values():
            sink.next_id = sink.written_before

    @property
    def is_behind(self) -> bool:
        """Whether a former incarnation has, or may have, put out more than this one. O(streams)."""
        if any(sink.next_id < sink.written_before for sink in self._sinks.values()):
            return True
        return self._incarnation > 1 and any(edge.is_behind for edge in self._edges.values())

    @property
    def are_placed(self) -> bool:
        """Whether it is known from where to number all streams. Cost: O(streams)."""
        return all(edge.numbering.is_placed for edge in self._edges.values())

    # -- putting out --------------------------------------------------------------------------

    def has_room(self) -> bool:
        """Whether no stream has too many unsent tuples, or a receiver waits for more nonetheless.

        Cost: O(streams).
        """
        limit = self._plan.limits.output_queue_tuples
        if not all(sink.has_room(limit) for sink in self._sinks.values()):
            return False
        if self._is_secondary and any(s.held_tuples >= limit for s in self._sinks.values()):
            return False
        if self._line_gate is not None and self._line_gate.stops_node:
            return False
        takes_more = all(
            edge.numbering.is_placed
            and (edge.is_feedback or edge.unsent_tuples < limit or self._is_read_beside(edge))
            for edge in self._edges.values()
        )
        return takes_more or (self._is_awaited and self.are_placed)

    @property
    def _is_awaited(self) -> bool:
        """Whether a receiver waits for what a former incarnation had put out. Cost: O(streams).

        1. A pass begins while a stream is not full, and ends beyond its bound. 2. A replacement
        cuts passes otherwise, and finds the stream full before that. 3. A receiver of another
        stream has recorded what it made of the rest, and does nothing without. 4. Who reads the
        full stream waits for a node that is full towards that receiver.
        """
        return self._incarnation > 1 and any(edge.is_awaited for edge in self._edges.values())

    def _is_read_beside(self, edge: OutputEdge) -> bool:
        """Whether another replica of a receiver that takes no more still does.

        1. Of three replicas one has to wait for its turn to correct, and takes nothing meanwhile.
        2. It would stop this node. 3. The others, whose turn it is, would wait for the rest of what
        they correct, and nobody would ever have another turn. Or one of them is lost.
        """
        limit = self._plan.limits.output_queue_tuples
        beside = self._beside.get(edge.stream, ())
        return any(self._edges[stream].unsent_tuples < limit for stream in beside)

    def put_out(self, spec: OutputSpec, pieces: Sequence[Rows], boundary_us: int) -> list[Effect]:
        """Number rows and append them to their queues, or write them to their sink.

        Only the last of them brings the boundary. Feeds get nothing that is stable.
        """
        if spec.feed_of is not None:
            return []
        pieces = [piece for piece in pieces if len(piece.time_us)]
        effects: list[Effect] = []
        for number, piece in enumerate(pieces, 1):
            is_last = number == len(pieces)
            effects += self._put_out(spec, piece, boundary_us if is_last else BEGINNING_US)
        return effects

    def _put_out(self, spec: OutputSpec, rows: Rows, boundary_us: int) -> list[Effect]:
        batch = batch_of(rows, spec)
        if spec.is_sink:
            sink, is_held = self._sinks[spec.streams[0]], self._is_holding(spec)
            out_before = max(sink.next_id, self._out_before.get(sink.stream, 0))
            effects = sink.put_out(batch, boundary_us, rows.created_us, is_held=is_held)
            self.tuples += max(0, sink.next_id - out_before)
            return effects
        for stream, part in zip(spec.streams, partition(batch, spec), strict=True):
            if self.before_tuples is not None and part.num_rows:
                self.before_tuples(stream)
            edge = self._edges[stream]
            part = edge.again.new_of(part)
            self.tuples += part.num_rows
            edge.put_out(part, boundary_us, rows.created_us)
        return []

    def go_back(self, next_ids: dict[str, int]) -> None:
        """The operators give again what has these ids; what is out of it stays as it is.

        Args:
            next_ids: Of the streams whose operators have gone back; the others' have stayed.
        """
        for stream, edge in self._edges.items():
            if stream in next_ids:
                edge.again.went_back(edge.queue.next_id - next_ids[stream])
        for stream, sink in self._sinks.items():
            if stream in next_ids and stream not in self._feeds:
                self._out_before[stream] = max(sink.next_id, self._out_before.get(stream, 0))
                sink.next_id = next_ids[stream]

    def put_note(
        self,
        note: StreamNote,
        streams: Iterable[StreamId] | None = None,
        *,
        replaces: bool = False,
    ) -> None:
        """Place a note behind everything that has been put out.

        Args:
            note: What to say.
            streams: To whom; None: on all streams to other nodes. Sinks hear of none.
            replaces: Whether the last one of its kind is void where no tuple has followed it.
        """
        for stream in self._edges if streams is None else streams:
            self._edges[stream].queue.put_note(note, replaces=replaces)
        if self._pass_gate is not None:
            self._pass_gate.noted()

    def _is_holding(self, spec: OutputSpec) -> bool:
        """Whether this sink must not be written now."""
        if self._is_secondary or (self._line_gate is not None and spec.is_gated):
            return True
        return self._pass_gate is not None and self._pass_gate.is_holding

    def promise(self, spec: OutputSpec, boundary_us: int) -> None:
        """Nothing older will be put out on the streams of this output."""
        if spec.is_sink:
            return
        if self._line_gate is not None and spec.is_gated:
            self._line_gate.promise(spec.streams, boundary_us)
            return
        if self._pass_gate is not None and self._pass_gate.is_holding:
            self._pass_gate.promise(spec.streams, boundary_us)
            return
        for stream in spec.streams:
            promised_us = max(boundary_us, self._former.promised_us(stream))
            self._edges[stream].queue.promise(promised_us)

    # -- passes of an arbitrary node ----------------------------------------------------------

    def begin_pass(self, pass_: Pass) -> list[Effect]:
        """What is put out from now on is this pass's; unless the log has it, write it there.

        It is open at once if the pass is durable already.
        """
        if self._pass_gate is not None:
            return self._pass_gate.begin(pass_, is_secondary=self._is_secondary)
        return []

    def end_pass(self, processed_before: tuple[int, ...]) -> list[Effect]:
        """Note up to where the pass has taken and put out, and let out what may leave."""
        if self._is_secondary and self._plan.diverges:
            self._kept_passes.note(processed_before, self.next_ids)
        if self._pass_gate is not None and not self._is_secondary:
            return self._pass_gate.end()
        return []

    # -- sending ------------------------------------------------------------------------------

    def flush(self) -> list[Effect]:
        """Send what credit allows on all streams, then boundaries."""
        effects: list[Effect] = []
        limit, is_behind = self._plan.limits.output_queue_tuples, self.is_behind
        for edge in self._edges.values():
            effects += edge.flush(may_lag=is_behind and edge.unsent_tuples >= limit)
        return effects

    def flush_stream(self, stream: StreamId) -> list[Effect]:
        """Send what credit allows on one stream."""
        return self._edges[stream].flush()

    def keep_alive(self) -> list[Effect]:
        """Tell every receiver the last id sent, so that it notices a lost end."""
        effects: list[Effect] = []
        for edge in self._edges.values():
            effects += edge.keep_alive()
        return effects

    def spill_read(self, got: SpillRead) -> list[Effect]:
        """Send on what was read back."""
        return self._edges[got.stream].spill_read(got)

    # -- receivers ----------------------------------------------------------------------------

    def subscribe(self, got: SubscribeReceived) -> tuple[bool, list[Effect]]:
        """Serve a replica of a receiver from an id on.

        Returns:
            False when the frame was refused; and the effects, which may say why.

        Raises:
            RemoteProtocolError: A new receiver needs what was trimmed.
            StreamRebased: It needs what came before the stream was rebased.
        """
        accepted = self._accepted(got)
        if accepted is None:
            return False, []
        edge, link = accepted
        was_placed = edge.numbering.is_placed
        is_served, effects = edge.subscribe(link, got)
        if self._pass_gate is not None and not was_placed:
            self._pass_gate.placed(got.stream, edge.queue.next_id)
        self.refused_frames += not is_served
        if is_served and not got.is_secondary:
            effects += self._former.subscribed(got)
        return is_served, effects

    def acknowledge(self, got: AckReceived) -> tuple[bool, list[Effect]]:
        """Take over a replica's positions and credit.

        Returns:
            False when the frame was refused; and the effects.
        """
        accepted = self._accepted(got)
        if accepted is None:
            return False, []
        edge, link = accepted
        return True, edge.acknowledge(link, got)

    def _accepted(self, got: SubscribeReceived | AckReceived) -> tuple[OutputEdge, Link] | None:
        """The edge and the link, or None if the frame is of, or for, another incarnation."""
        edge = self._edges.get(got.stream)
        if edge is not None and got.receiver == self._incarnation and not self._is_secondary:
            link = edge.link_of(got)
            if link is not None:
                return edge, link
        self.refused_frames += 1
        return None

    # -- two replicas -------------------------------------------------------------------------

    def positions(self) -> tuple[tuple[int, int], ...]:
        """Per output stream, in the order of the plan, what receivers have and need no more."""
        found: list[tuple[int, int]] = []
        for stream in self._plan.output_streams():
            if stream in self._sinks:
                durable_before = self._sinks[stream].durable_before
                found.append((durable_before, durable_before))
            else:
                found.append(self._edges[stream].positions)
        return tuple(found)

    def follow(self, positions: tuple[tuple[int, int], ...]) -> list[Effect]:
        """What the primary says of its receivers: a secondary keeps no more than it has to."""
        streams = self._plan.output_streams()
        if self._plan.diverges:
            ids = self._kept_passes.let_go(tuple(needed for _, needed in positions))
            positions = tuple((ids[stream], ids[stream]) for stream in streams)
        effects: list[Effect] = []
        for stream, (received_before, needed_from) in zip(streams, positions, strict=True):
            if stream in self._sinks:
                self._sinks[stream].let_go(needed_from)
            else:
                effects += self._edges[stream].follow(received_before, needed_from)
        return effects

    def promote(
        self,
        incarnation: Incarnation,
        sink_next_ids: dict[StreamId, int],
    ) -> list[Effect]:
        """From now on this is the primary: write what the sinks' logs lack, wait for receivers."""
        self._incarnation = incarnation
        self._is_secondary = False
        effects: list[Effect] = []
        for stream, sink in self._sinks.items():
            sink.go_on_from(sink_next_ids[stream])
            if self._plan.diverges:
                sink.number_anew()
            effects += sink.let_out(sink.next_id)
        for edge in self._edges.values():
            edge.queue.notes.promote(incarnation)
            if self._plan.diverges:
                edge.renumber()
        self._kept_passes.forget()
        if self._pass_gate is not None:
            self._pass_gate.hold_from_now()
        return effects

    # -- sinks --------------------------------------------------------------------------------

    def sync_sinks(self) -> list[Effect]:
        """Have what was written made durable."""
        effects: list[Effect] = []
        for sink in self._sinks.values():
            effects += sink.sync()
        return effects

    def sink_synced(self, synced: SinkSynced) -> list[Effect]:
        """A sink's log is on disk up to an id."""
        sink = self._sinks[synced.stream]
        sink.synced(synced.durable_before)
        if self._pass_gate is not None and sink is self._pass_gate.log:
            effects = sink.sync()
            if not self._is_secondary:
                effects += self._pass_gate.open()
            return effects + self.flush()
        return []

    def end_sinks(self) -> tuple[bool, list[Effect]]:
        """End every sink that is durable.

        Returns:
            False as long as one is not; and the effects.
        """
        are_durable = True
        effects: list[Effect] = []
        for sink in self._sinks.values():
            if sink.durable_before < sink.next_id:
                are_durable = False
                effects += sink.hasten()
            elif are_durable:
                effects += sink.end()
        return are_durable, effects

    # -- restart points -----------------------------------------------------------------------

    @property
    def next_ids(self) -> dict[str, int]:
        """Per stream the id of its next tuple."""
        return self._places.next_ids

    def let_go(self, point: RestartPoint) -> bool:
        """Whether nothing put out before the point is needed from this node any more."""
        if not self._lets_go(self._unsafe_stream, point):
            return False  # The stream that was missing the last time still is.
        for stream in (*self._edges, *self._sinks):
            if not self._lets_go(stream, point):
                self._unsafe_stream = stream
                return False
        return True

    def _lets_go(self, stream: StreamId | None, point: RestartPoint) -> bool:
        if stream is None:
            return True
        next_id = point.next_ids[stream]
        edge = self._edges.get(stream)
        if edge is not None:
            return edge.lets_go(next_id, is_held=point.holds_outputs)
        next_id = point.held_from.get(stream, next_id)  # The checkpoint has the rest.
        return next_id <= self._sinks[stream].durable_before

    def are_sinks_durable(self, cut: RestartPoint) -> bool:
        """Whether all that sinks were given before a cut is on disk. Cost: O(sinks)."""
        return all(sink.durable_before >= cut.next_ids[s] for s, sink in self._sinks.items())

    # -- looking ------------------------------------------------------------------------------

    def queues(self) -> list[OutputQueue]:
        """All output queues."""
        return [edge.queue for edge in self._edges.values()]

    def check_invariants(self) -> None:
        """Raise `InvariantViolation` when edges, sinks or the gate make no sense."""
        for edge in self._edges.values():
            edge.check_invariants()
        for sink in self._sinks.values():
            sink.check_invariants()
        self._kept_passes.check_invariants()
        for gate in (self._pass_gate, self._line_gate):
            if gate is not None:
                gate.check_invariants()


def _numbered_from(plan: NodePlan, next_id: int, in_log: int) -> int:
    """The id of the first result of an incarnation.

    Results of before that wait for no line are in the log by then. What comes next may be another
    one, and would be dropped for its id.
    """
    return in_log if plan.repeats_results else next_id


def _new_queue(plan: NodePlan, stream: StreamId, first_id: int, first_note: int) -> OutputQueue:
    return OutputQueue(
        stream,
        first_id=first_id,
        retain=plan.is_protected,
        memory_limit_bytes=plan.limits.output_queue_bytes,
        first_note=first_note,
    )
