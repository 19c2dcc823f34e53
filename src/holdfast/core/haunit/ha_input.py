"""The input streams of a node: what came, what is missing, what may come. [HA §5, §6]

A stream comes from another node, which must subscribe it, or from a source that the shell reads.
Frames of an earlier incarnation, or meant for one, are refused and counted. A gap in the ids, or a
producer that is silent for long, is answered by subscribing again from the next id expected.

With several streams, tuples go on into SUnion, which releases them up to the slowest boundary.

A secondary receives all that the primary does, and acknowledges only that it has received it: what
is needed to rebuild the node, the primary says. It has joined when every producer serves it; from
then on they keep what it has not received.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.core.errors import RemoteProtocolError
from holdfast.core.haunit.events import (
    ENOUGH_TUPLES,
    ReadSource,
    ReportGap,
    SendAck,
    SendSubscribe,
)
from holdfast.core.machine import SetTimer
from holdfast.core.model.ids import (
    BEGINNING_US,
    END_US,
    NO_ID,
    NOBODY,
    Incarnation,
    NodeId,
    StreamId,
)
from holdfast.core.queues.input_queue import InputQueue
from holdfast.core.recovery.guarantee import Guarantee, StreamRebased
from holdfast.core.replication.sunion import SUnion

if TYPE_CHECKING:
    from holdfast.core.haunit.events import (
        BatchReceived,
        BoundaryReceived,
        NotesReceived,
        SourceRead,
        SourceStirred,
    )
    from holdfast.core.haunit.plan import InputSpec, NodePlan
    from holdfast.core.machine import Effect
    from holdfast.core.model.tuples import TupleBatch
    from holdfast.core.recovery.restart_point import RestartPoint

_PATIENCE = 20
"""A quiet source is asked again after so small a part of the time for which it has been quiet: its
tuples wait for a twentieth of the pause before them, and for `_SOURCE_POLL_MAX_MS` at most."""
_SOURCE_POLL_MAX_MS = 40
_QUIET_MAX_MS = 1_000
_NEVER_MS = -(10**9)
_FIRST = Incarnation(1)


@dataclass(slots=True)
class Input:
    """One input stream: what it is, what waits, and what was told upstream."""

    spec: InputSpec
    number: int  # among the node's input streams
    queue: InputQueue
    needed_from: int  # level-1 position that may be told upstream; never moves back
    producer: Incarnation | None = None
    is_served: bool = False  # the producer has been heard of since this incarnation began
    heard_ms: int = 0  # when the producer was last heard of
    subscribed_ms: int = _NEVER_MS  # when SendSubscribe was last returned
    is_reading: bool = False  # a ReadSource is under way
    read_at_ms: int = 0  # earliest time of the next ReadSource
    fed_ms: int = 0  # when a source last gave something
    asked: int = 0  # tuples that the last ReadSource asked for
    rebased_by: Incarnation = NOBODY  # the producer that has rebased it, and been followed
    decided_before: int = 0  # what comes before it recorded rounds will take, and needs no room


class HAInput:
    """The HAInput of a unit: all input streams of one incarnation. [SGuard §3]

    Volatile: all fields.
    """

    def __init__(
        self,
        plan: NodePlan,
        incarnation: Incarnation,
        point: RestartPoint,
        now_ms: int,
        *,
        is_secondary: bool = False,
        is_at_cut: bool = False,
        lost_from: dict[str, int] | None = None,
    ) -> None:
        """Expect what the restart point needs; keep upstream what the oldest behind it needs.

        Args:
            plan: The node's.
            incarnation: The node's.
            point: Where it begins.
            now_ms: The time.
            is_secondary: Whether it follows another replica until promoted.
            is_at_cut: Whether the state is that of the point's cut, and need not be replayed.
            lost_from: Of a node that starts empty: per stream the oldest tuple that has not, or may
                not have, had all its effects.
        """
        self._plan = plan
        self._is_secondary = is_secondary
        self._lost_from = lost_from or {}
        kept = point.oldest()
        self._incarnation = incarnation
        self._streams: dict[StreamId, Input] = {}
        for number, spec in enumerate(plan.inputs):
            first_id = point.needed_from.get(spec.stream, 0)
            limit = plan.limits.input_queue_tuples
            adopts = plan.guarantee is Guarantee.GAP and incarnation > _FIRST
            queue = InputQueue(
                spec.stream,
                next_id=first_id,
                max_tuples=limit,
                adopts=adopts,
                next_note=point.next_notes.get(spec.stream, 0),
            )
            needed_from = kept.needed_from.get(spec.stream, 0)
            source = Input(spec, number, queue, needed_from, heard_ms=now_ms, fed_ms=now_ms)
            source.rebased_by = Incarnation(point.rebased.get(spec.stream, NOBODY))
            self._streams[spec.stream] = source
        self.sunion: SUnion | None = None
        if len(plan.inputs) > 1 and not plan.merges_by_arrival:
            self.sunion = SUnion([spec.port for spec in plan.inputs], plan.port_count)
            if is_at_cut:
                processed = [point.processed_before[spec.stream] for spec in plan.inputs]
                self.sunion.resume(point.boundary_us, processed)
        # Rounds must not cost by the input stream but by what came on them.
        self._fresh: dict[StreamId, Input] = {}  # those with something that no round has taken
        self.slowest_us = BEGINNING_US  # boundary of the slowest stream, as of the last round
        self._slowest_count = len(plan.inputs)  # how many streams are there
        self._read_timer_ms: int | None = None  # when the timer of the sources is due
        self._has_before_us = point.boundary_us if is_at_cut else BEGINNING_US  # in the state
        self._has_rebased = False  # a stream is another one, and the node has not been told
        self.refused_frames = 0

    # -- what comes -------------------------------------------------------------------------

    def receive(self, got: BatchReceived, now_ms: int, effects: list[Effect]) -> None:
        """Tuples of another node."""
        source = self._accepted(got.stream, got.sender, got.receiver, now_ms)
        if source is None:
            return
        if not source.queue.receive(got.batch, got.notes_before, got.notes):
            self._subscribe(source, now_ms, effects)  # Tuples or notes were lost on the way.
        self._note_fresh(source)

    def receive_notes(self, got: NotesReceived, now_ms: int, effects: list[Effect]) -> None:
        """Notes of another node that no tuple has followed yet."""
        source = self._accepted(got.stream, got.sender, got.receiver, now_ms)
        if source is None:
            return
        if not source.queue.receive_notes(got.sent_before, got.notes_before, got.notes):
            self._subscribe(source, now_ms, effects)  # Something was lost on the way.
        self._note_fresh(source)

    def promise(self, got: BoundaryReceived, now_ms: int, effects: list[Effect]) -> None:
        """A keep-alive of another node."""
        source = self._accepted(got.stream, got.sender, got.receiver, now_ms)
        if source is None:
            return
        if source.queue.adopts:
            self._adopt(source, got.sent_before, effects, got.notes_before)
            self._acknowledge(source, effects)
        if got.rebased_at >= 0:
            self._note_rebased(source, got)
        if not source.queue.promise(got.sent_before, got.boundary_us, got.notes_before):
            self._subscribe(source, now_ms, effects)  # The last tuples were lost on the way.
        self._note_fresh(source)

    def _note_rebased(self, source: Input, got: BoundaryReceived) -> None:
        """From an id on the stream is another one.

        Raises:
            StreamRebased: This is a secondary, and what it began from is of before: its primary may
                have numbered its output anew.
        """
        next_id = source.queue.next_id
        if source.rebased_by == got.sender and next_id >= got.rebased_at:
            return  # Said before, or the restart point needs nothing from before.
        if self._is_secondary:
            raise StreamRebased(f"{source.spec.stream} is another one from {got.rebased_at} on")
        source.rebased_by = got.sender
        source.queue.skip_to(got.sent_before)  # What comes before it is gone for good.
        self._has_rebased = True

    def _adopt(
        self, source: Input, next_id: int, effects: list[Effect], next_note: int = 0
    ) -> None:
        """The stream goes on here; what lies between is lost. [HA §4]"""
        source.queue.adopt(next_id, next_note)
        stream = source.spec.stream
        lost_from = self._lost_from.get(stream, 0)
        if lost_from < next_id:
            effects.append(ReportGap(stream, lost_from, next_id))

    def take_rebased(self) -> bool:
        """Whether a stream has become another one since this was last asked."""
        has_rebased, self._has_rebased = self._has_rebased, False
        return has_rebased

    def _accepted(
        self, stream: StreamId, sender: Incarnation, receiver: Incarnation, now_ms: int
    ) -> Input | None:
        """The stream, or None if the frame is of, or for, another incarnation."""
        source = self._streams.get(stream)
        if source is None or receiver != self._incarnation or sender != source.producer:
            self.refused_frames += 1
            return None
        source.heard_ms = now_ms
        source.is_served = True
        return source

    def source_read(self, got: SourceRead, now_ms: int, effects: list[Effect]) -> None:
        """The answer of a source. Raises `RemoteProtocolError` when it leaves tuples out."""
        source = self._streams[got.stream]
        source.is_reading = False
        if source.queue.adopts:
            self._adopt(source, got.from_id, effects)
        for batch in got.batches:
            if not source.queue.receive(batch):
                raise RemoteProtocolError(
                    f"source {got.stream} gave tuple {batch.first_id}, "
                    f"expected {source.queue.next_id}"
                )
        source.queue.promise(source.queue.next_id, got.boundary_us)
        self._note_fresh(source)
        if got.batches:
            source.fed_ms = now_ms
        if sum(batch.count for batch in got.batches) >= min(source.asked, ENOUGH_TUPLES):
            source.read_at_ms = now_ms
        elif got.quiet_ms:
            source.read_at_ms = now_ms + min(got.quiet_ms, _QUIET_MAX_MS)
        else:
            patience_ms = (now_ms - source.fed_ms) // _PATIENCE
            source.read_at_ms = now_ms + max(1, min(patience_ms, _SOURCE_POLL_MAX_MS))

    def source_stirred(self, got: SourceStirred, now_ms: int, effects: list[Effect]) -> None:
        """A source is worth a look before its time."""
        self._streams[got.stream].read_at_ms = now_ms
        self.read_sources(now_ms, effects)

    def _note_fresh(self, source: Input) -> None:
        if source.queue.has_work:
            self._fresh[source.spec.stream] = source
        else:
            self._fresh.pop(source.spec.stream, None)

    # -- what may come ------------------------------------------------------------------------

    def learn(
        self, node: NodeId, incarnation: Incarnation, now_ms: int, effects: list[Effect]
    ) -> None:
        """A producer has this incarnation: subscribe to it, if it is a later one."""
        for source in self._streams.values():
            if source.spec.producer == node and (
                source.producer is None or incarnation > source.producer
            ):
                source.producer = incarnation
                source.subscribed_ms = _NEVER_MS
                source.heard_ms = now_ms
                self._subscribe(source, now_ms, effects)

    def subscribe_to_silent(self, now_ms: int, effects: list[Effect]) -> None:
        """Subscribe again to producers that have not been heard of for long."""
        for source in self._streams.values():
            if now_ms - source.heard_ms > self._plan.limits.resubscribe_ms:
                self._subscribe(source, now_ms, effects)

    def _subscribe(self, source: Input, now_ms: int, effects: list[Effect]) -> None:
        """Ask for everything from the next expected id; not twice within a moment."""
        if source.producer is None:
            return
        if now_ms - source.subscribed_ms < self._plan.limits.resubscribe_ms:
            return
        source.subscribed_ms = now_ms
        self._refresh_credit(source)
        source.queue.credit_told()
        effects.append(
            SendSubscribe(
                source.spec.stream,
                source.producer,
                NO_ID if source.queue.adopts else source.queue.next_id,
                self._needed_from(source),
                source.queue.credit_until,
                self._is_secondary,
                max(source.queue.boundary_us, self._has_before_us),
                source.queue.notes.next_number,
            )
        )

    def _needed_from(self, source: Input) -> int:
        """The level-1 position to tell a producer; before one is known, what is lost.

        Never beyond what has been received: 1. A secondary lags behind the newest restart point.
        2. It is promoted, and a new secondary starts at that point. 3. Nobody seems to need what
        lies between, and it is trimmed before it has been sent to the new primary.
        """
        if source.queue.adopts:
            return self._lost_from.get(source.spec.stream, 0)
        is_told_by_us = self._plan.is_replayed and not self._is_secondary
        next_id = source.queue.next_id
        return min(source.needed_from, next_id) if is_told_by_us else next_id

    def acknowledge_all(self, effects: list[Effect]) -> None:
        """Tell all producers both positions and the credit."""
        for source in self._streams.values():
            self._acknowledge(source, effects)

    def grant(self, sources: Iterable[Input], effects: list[Effect]) -> None:
        """Acknowledge where enough room has come free that the producer should know at once."""
        for source in sources:
            self._refresh_credit(source)
            if source.producer is not None and source.queue.credit_is_due():
                self._acknowledge(source, effects)

    def _acknowledge(self, source: Input, effects: list[Effect]) -> None:
        if source.producer is None:
            return
        self._refresh_credit(source)
        source.queue.credit_told()
        effects.append(
            SendAck(
                source.spec.stream,
                source.producer,
                source.queue.next_id,
                self._needed_from(source),
                source.queue.credit_until,
                self._is_secondary,
            )
        )

    def has_before(self, boundary_us: int) -> None:
        """The state is that of a cut, which has acted on a boundary: nothing older is to come.

        Who has nothing to replay has it without having received anything. 1. A node stores a point
        that needs no tuple again. 2. It fails, and its producer too, which promises less. 3. What
        that sends once more is older than the boundary, unless it is told of it.
        """
        self._has_before_us = max(self._has_before_us, boundary_us)

    def make_room(self, decided_before: tuple[int, ...]) -> None:
        """Recorded rounds will take what comes before these ids, in the order of the plan."""
        for source, before in zip(self._streams.values(), decided_before, strict=True):
            source.decided_before = before

    def _refresh_credit(self, source: Input) -> None:
        source.queue.refresh_credit(self._held(source), source.decided_before)

    def _held(self, source: Input) -> int:
        """Tuples in SUnion that use up the stream's credit.

        Those of the slowest streams do not, or the node could wait for ever: 1. A window closes
        with more results than the input may hold. 2. They share one time, so that none is released
        before the boundary behind the last. 3. The last is never sent for want of credit.

        Nor do those of a stream that is ahead of one which an operator holds back: 1. A source
        feeds a sort, and the node directly. 2. The sort lets go of nothing until so many more have
        come. 3. The source sends no more, as the node has no room for what it gets directly. What
        the node holds then is bounded by what the operator holds back.
        """
        if self.sunion is None or self._is_slowest(source):
            return 0
        if any(self._is_slowest(self._streams[other]) for other in source.spec.waits_for):
            return 0
        return self.sunion.held_tuples[source.number]

    def _is_slowest(self, source: Input) -> bool:
        return source.queue.taken_boundary_us <= self.slowest_us

    def read_sources(self, now_ms: int, effects: list[Effect]) -> None:
        """Read the sources that are due; one timer wakes the node for the first of the others."""
        limits = self._plan.limits
        next_read_ms: int | None = None
        for source in self._streams.values():
            if source.spec.producer is not None or source.is_reading:
                continue
            if source.queue.boundary_us == END_US:
                continue
            if now_ms < source.read_at_ms:
                next_read_ms = min(source.read_at_ms, next_read_ms or source.read_at_ms)
                continue
            room = source.queue.room(self._held(source), source.decided_before)
            if room >= limits.input_queue_tuples // 2:
                source.is_reading = True
                source.asked = min(room, limits.round_tuples)
                from_id = NO_ID if source.queue.adopts else source.queue.next_id
                effects.append(ReadSource(source.spec.stream, from_id, source.asked))
        if next_read_ms is not None and next_read_ms != self._read_timer_ms:
            self._read_timer_ms = next_read_ms
            effects.append(SetTimer("read", next_read_ms))

    def read_timer_fired(self, now_ms: int, effects: list[Effect]) -> None:
        """The timer of the sources has run out."""
        self._read_timer_ms = None
        self.read_sources(now_ms, effects)

    # -- what is taken ------------------------------------------------------------------------

    @property
    def fresh(self) -> list[Input]:
        """The streams with something that no round has taken."""
        return list(self._fresh.values())

    @property
    def has_fresh(self) -> bool:
        """Whether there is any."""
        return bool(self._fresh)

    def all(self) -> Iterable[Input]:
        """All streams, in the order of the plan."""
        return self._streams.values()

    def taken_from(self, source: Input) -> None:
        """A round has taken from the node's only stream, and perhaps put some of it back."""
        self.slowest_us = source.queue.taken_boundary_us
        self._note_fresh(source)

    def has_received(self, before: tuple[int, ...]) -> bool:
        """Whether all tuples before these ids, in the order of the plan, have come."""
        streams = self._streams.values()
        return all(s.queue.next_id >= b for s, b in zip(streams, before, strict=True))

    def take_arrived(self) -> list[list[TupleBatch]]:
        """Per stream, in the order of the plan, some of what has come."""
        taken = [s.queue.take(self._plan.limits.round_tuples) for s in self._streams.values()]
        self._note_taken()
        return taken

    def take_before(self, before: tuple[int, ...]) -> list[list[TupleBatch]]:
        """Per stream, in the order of the plan, what comes before an id."""
        streams = self._streams.values()
        taken = [s.queue.take_before(b) for s, b in zip(streams, before, strict=True)]
        self._note_taken()
        return taken

    def _note_taken(self) -> None:
        for source in self._streams.values():
            self._note_fresh(source)
        self.slowest_us = self._slowest_boundary_us()

    @property
    def processed_before(self) -> tuple[int, ...]:
        """Per stream, in the order of the plan, the first id that no round has taken."""
        return tuple(s.queue.next_id - s.queue.pending_tuples for s in self._streams.values())

    def merge_fresh(self, sunion: SUnion) -> None:
        """Move what has come into SUnion, and find the slowest boundary."""
        for source in self.fresh:
            was_slowest = source.queue.taken_boundary_us <= self.slowest_us
            for batch in source.queue.take(self._plan.limits.round_tuples):
                sunion.add(source.number, batch)
            if was_slowest and source.queue.taken_boundary_us > self.slowest_us:
                self._slowest_count -= 1
            self._note_fresh(source)
        if self._slowest_count == 0:
            self.slowest_us = self._slowest_boundary_us()
            self._slowest_count = sum(
                source.queue.taken_boundary_us <= self.slowest_us
                for source in self._streams.values()
            )

    def _slowest_boundary_us(self) -> int:
        return min(source.queue.taken_boundary_us for source in self._streams.values())

    # -- what is needed -----------------------------------------------------------------------

    def let_go(self, point: RestartPoint) -> None:
        """A restart point is durable: what comes before its needs may be forgotten upstream."""
        for stream, source in self._streams.items():
            source.needed_from = max(source.needed_from, point.needed_from.get(stream, 0))
            source.queue.notes.let_go(source.needed_from)

    @property
    def rebased(self) -> dict[str, int]:
        """Per stream that its producer has rebased, the incarnation that did."""
        found = self._streams.items()
        return {stream: source.rebased_by for stream, source in found if source.rebased_by}

    @property
    def needed_from(self) -> dict[str, int]:
        """Per stream the level-1 position that may be told upstream."""
        return {stream: source.needed_from for stream, source in self._streams.items()}

    # -- two replicas -------------------------------------------------------------------------

    @property
    def are_served(self) -> bool:
        """Whether every producer has been heard of since this incarnation began."""
        return all(s.is_served or s.spec.producer is None for s in self._streams.values())

    def promote(self, incarnation: Incarnation, now_ms: int, effects: list[Effect]) -> None:
        """From now on this is the primary: subscribe as such, from where the secondary is."""
        self._incarnation = incarnation
        self._is_secondary = False
        for source in self._streams.values():
            source.subscribed_ms = _NEVER_MS
            self._subscribe(source, now_ms, effects)

    # -- looking ----------------------------------------------------------------------------

    @property
    def are_ended(self) -> bool:
        """Whether all streams have ended and all was taken."""
        return all(source.queue.is_ended for source in self._streams.values())

    def has(self, stream: StreamId) -> bool:
        """Whether it is an input stream."""
        return stream in self._streams

    def producer(self, stream: StreamId) -> Incarnation | None:
        """The incarnation of a stream's producer, as far as it is known."""
        return self._streams[stream].producer

    def check_invariants(self) -> None:
        """Raise `InvariantViolation` when a queue makes no sense."""
        for source in self._streams.values():
            source.queue.check_invariants()
