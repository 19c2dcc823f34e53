"""HAInput, the input streams of a node: what came, what is missing, what may come. [HA §5, §6]

A stream comes from another node, which must subscribe it, or from a source that the shell reads.
Frames of an earlier incarnation, or meant for one, are refused and counted. A gap in the ids, or a
producer that is silent for long, is answered by subscribing again from the next id expected.

What has come stands in `Arrivals`, from which the input order takes it.

A secondary receives all that the primary does, and acknowledges only that it has received it: what
is needed to rebuild the node, the primary says. It has joined when every producer serves it; from
then on they keep what it has not received.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from holdfast.core.errors import LocalProtocolError, RemoteProtocolError
from holdfast.core.haunit.arrivals import Arrivals, InputStream
from holdfast.core.haunit.events import (
    ReadSource,
    ReportGap,
    SendAck,
    SendSubscribe,
)
from holdfast.core.haunit.source_reading import SourceReading
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
from holdfast.core.replication.switching import Reading, Sender, choose

if TYPE_CHECKING:
    from holdfast.core.haunit.events import (
        BatchReceived,
        BoundaryReceived,
        NotesReceived,
        SourceRead,
        SourceStirred,
    )
    from holdfast.core.haunit.plan import NodePlan
    from holdfast.core.machine import Effect
    from holdfast.core.model.ids import Run
    from holdfast.core.model.tuples import TupleBatch
    from holdfast.core.recovery.restart_point import RestartPoint
    from holdfast.core.replication.switching import Choice, Standing

_FIRST = Incarnation(1)
_KEEP_ALIVES_MISSED = 3
"""So many and a replica of a producer counts as gone: another one is read."""


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
        self._streams: dict[StreamId, InputStream] = {}
        self._senders: dict[StreamId, tuple[InputStream, Sender]] = {}  # each by its own stream
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
            senders = tuple(Sender(name, node, now_ms) for name, node in spec.senders)
            main = senders[plan.replica % len(senders)]
            main.reading = Reading.MAIN
            stream = InputStream(spec, number, queue, needed_from, senders, main)
            self._senders |= {sender.stream: (stream, sender) for sender in senders}
            if spec.producer is None:
                stream.reading = SourceReading(now_ms)
            stream.had_before = point.processed_before.get(spec.stream, 0)
            stream.rebased_by = Incarnation(point.rebased.get(spec.stream, NOBODY))
            self._streams[spec.stream] = stream
        self.arrivals = Arrivals(tuple(self._streams.values()), plan.limits.pass_tuples)
        self._read_timer_ms: int | None = None  # when the timer of the sources is due
        self._has_before_us = point.boundary_us if is_at_cut else BEGINNING_US  # in the state
        self._has_rebased = False  # a stream is another one, and the node has not been told
        self.refused_frames = 0
        self.switches = 0  # from one replica of a producer to another

    # -- what comes -------------------------------------------------------------------------

    def receive(self, got: BatchReceived, now_ms: int) -> list[Effect]:
        """Tuples of another node."""
        accepted = self._accepted(got.stream, got.sender, got.receiver, now_ms)
        if accepted is None:
            return []
        stream, sender = accepted
        if got.run is not None:
            if sender is stream.main:  # Else it has been read before, or will be.
                self._receive_tentative(stream, got.run, got.batch)
            return []
        effects: list[Effect] = []
        if not stream.queue.receive(got.batch, got.notes_before, got.notes):
            effects += self._subscribe(stream, sender, now_ms)  # Some were lost on the way.
        if got.notes:
            self.arrivals.expect_notes(stream)
        self.arrivals.note(stream)
        return effects

    def _receive_tentative(self, stream: InputStream, run: Run, batch: TupleBatch) -> None:
        """Tuples of a suffix; those that stand for stable ones which have come are left out.

        By their ids, or by their time, if those may be of another replica: its ids are of its own.
        """
        if stream.has_replicas:
            batch = batch.not_older_than(stream.queue.boundary_us)
        else:
            batch = batch.starting_at(min(stream.queue.next_id, batch.next_id))
        stream.tentative.receive(run, batch)
        self.arrivals.expect_tentative(stream)

    def receive_notes(self, got: NotesReceived, now_ms: int) -> list[Effect]:
        """Notes of another node that no tuple has followed yet."""
        accepted = self._accepted(got.stream, got.sender, got.receiver, now_ms)
        if accepted is None:
            return []
        stream, sender = accepted
        effects: list[Effect] = []
        if not stream.queue.receive_notes(got.sent_before, got.notes_before, got.notes):
            effects += self._subscribe(stream, sender, now_ms)  # Something was lost on the way.
        self.arrivals.expect_notes(stream)
        self.arrivals.note(stream)
        return effects

    def promise(self, got: BoundaryReceived, now_ms: int) -> list[Effect]:
        """A keep-alive of another node."""
        accepted = self._accepted(got.stream, got.sender, got.receiver, now_ms)
        if accepted is None:
            return []
        stream, sender = accepted
        effects: list[Effect] = []
        if got.standing is not None:
            effects += self._stands(stream, sender, got.standing, now_ms)
        adopts = stream.queue.adopts
        if adopts:
            effects += self._adopt(stream, got.sent_before, got.notes_before)
            effects += self._acknowledge(stream)
        if got.rebased_at >= 0:
            self._note_rebased(stream, got)
            if not (adopts or sender.has_told):
                sender.has_told = True
                sender.ask_at_once()
                effects += self._subscribe(stream, sender, now_ms)
        boundary_us = BEGINNING_US if got.run is not None else got.boundary_us
        if not stream.queue.promise(got.sent_before, boundary_us, got.notes_before):
            effects += self._subscribe(stream, sender, now_ms)  # The last tuples were lost.
        elif got.run is not None and sender is stream.main:
            stream.tentative.promise(got.run, got.boundary_us, got.missing)
            self.arrivals.expect_tentative(stream)
        self.arrivals.note(stream)
        return effects

    def _note_rebased(self, stream: InputStream, got: BoundaryReceived) -> None:
        """From an id on the stream is another one.

        Raises:
            StreamRebased: This is a secondary, and what it began from is of before: its primary may
                have numbered its output anew.
        """
        next_id = stream.queue.next_id
        if stream.rebased_by == got.sender and next_id >= got.rebased_at:
            return  # Said before, or the restart point needs nothing from before.
        if self._is_secondary:
            raise StreamRebased(f"{stream.spec.stream} is another one from {got.rebased_at} on")
        stream.rebased_by, stream.had_before, stream.decided_before = got.sender, 0, 0
        stream.queue.skip_to(got.sent_before)  # What comes before it is gone for good.
        self._has_rebased = True

    def _adopt(self, stream: InputStream, next_id: int, next_note: int = 0) -> list[Effect]:
        """The stream goes on here; what lies between is lost. [HA §4]"""
        stream.queue.adopt(next_id, next_note)
        name = stream.spec.stream
        lost_from = self._lost_from.get(name, 0)
        if lost_from < next_id:
            return [ReportGap(name, lost_from, next_id)]
        return []

    def take_rebased(self) -> bool:
        """Whether a stream has become another one since this was last asked."""
        has_rebased, self._has_rebased = self._has_rebased, False
        return has_rebased

    def _accepted(
        self, name: StreamId, sender: Incarnation, receiver: Incarnation, now_ms: int
    ) -> tuple[InputStream, Sender] | None:
        """The stream, and who sends it; None: the frame is of, or for, another incarnation."""
        found = self._senders.get(name)
        if found is None or receiver != self._incarnation or sender != found[1].incarnation:
            self.refused_frames += 1
            return None
        found[1].heard_ms = now_ms
        found[1].is_served = True
        return found

    def source_read(self, got: SourceRead, now_ms: int) -> list[Effect]:
        """The answer of a source. Raises `RemoteProtocolError` when it leaves tuples out."""
        stream, reading = self._read(got.stream)
        effects: list[Effect] = []
        if stream.queue.adopts:
            effects += self._adopt(stream, got.from_id)
        for batch in got.batches:
            if not stream.queue.receive(batch):
                raise RemoteProtocolError(
                    f"source {got.stream} gave tuple {batch.first_id}, "
                    f"expected {stream.queue.next_id}"
                )
        stream.queue.promise(stream.queue.next_id, got.boundary_us)
        self.arrivals.note(stream)
        reading.answered(sum(batch.count for batch in got.batches), got.quiet_ms, now_ms)
        return effects

    def source_stirred(self, got: SourceStirred, now_ms: int) -> list[Effect]:
        """A source is worth a look before its time."""
        self._read(got.stream)[1].stir(now_ms)
        return self.read_sources(now_ms)

    def _read(self, name: StreamId) -> tuple[InputStream, SourceReading]:
        """The stream of a source, and when it is read."""
        stream = self._streams[name]
        if stream.reading is None:
            raise LocalProtocolError(f"{name} comes from a node, and is not read")
        return stream, stream.reading

    # -- what may come ------------------------------------------------------------------------

    def learn(self, node: NodeId, incarnation: Incarnation, now_ms: int) -> list[Effect]:
        """A producer has this incarnation: subscribe to it, if it is a later one."""
        effects: list[Effect] = []
        for stream, sender in self._senders.values():
            known = max(sender.incarnation or NOBODY, stream.not_before - 1)
            if sender.node == node and incarnation > known:
                sender.learn(incarnation, now_ms)
                if stream.has_replicas:
                    effects += self._choose(stream, now_ms)
                if sender is stream.main:
                    stream.tentative.void()
                    self.arrivals.expect_tentative(stream)
                effects += self._subscribe(stream, sender, now_ms)
        return effects

    def drop_from(
        self, name: StreamId, tuple_id: int, incarnation: Incarnation, acted_us: int
    ) -> None:
        """The producer has gone back: its new incarnation sends others from this tuple on.

        Args:
            name: The stream.
            tuple_id: The tuple; no pass has taken it.
            incarnation: The new one; nothing of earlier ones is taken any more.
            acted_us: The boundary that the operators have acted on.
        """
        stream = self._streams[name]
        stream.queue.drop_from(tuple_id, acted_us)
        stream.main.incarnation = None
        stream.not_before = incarnation
        self.arrivals.went_back(stream)

    def subscribe_to_silent(self, now_ms: int) -> list[Effect]:
        """Subscribe again to producers that have not been heard of for long."""
        effects: list[Effect] = []
        for stream, sender in self._senders.values():
            if now_ms - sender.heard_ms > self._plan.limits.resubscribe_ms:
                effects += self._subscribe(stream, sender, now_ms)
        for stream in self._streams.values():
            if stream.has_replicas:
                effects += self._choose(stream, now_ms)
        return effects

    def _subscribe(self, stream: InputStream, sender: Sender, now_ms: int) -> list[Effect]:
        """Ask for everything from the next expected id; not twice within a moment."""
        if sender.incarnation is None:
            return []
        if now_ms - sender.subscribed_ms < self._plan.limits.resubscribe_ms:
            return []
        sender.subscribed_ms = now_ms
        self._refresh_credit(stream)
        stream.queue.credit_told()
        return [
            SendSubscribe(
                sender.stream,
                sender.incarnation,
                NO_ID if stream.queue.adopts else stream.queue.next_id,
                self._needed_from(stream),
                self._credit_of(stream, sender),
                self._is_secondary,
                max(stream.queue.boundary_us, self._has_before_us),
                stream.queue.notes.next_number,
                sender.reading is not Reading.MAIN,
                sender.has_told,
                max(stream.had_before, stream.decided_before),
            )
        ]

    def _credit_of(self, stream: InputStream, sender: Sender) -> int:
        return 0 if sender.reading is Reading.WATCHED else stream.queue.credit_until

    # -- replicas of producers ----------------------------------------------------------------

    def _stands(
        self,
        stream: InputStream,
        sender: Sender,
        standing: Standing,
        now_ms: int,
    ) -> list[Effect]:
        """A replica says where it stands: its run may be void, and another one the better one."""
        sender.standing = standing
        run = stream.tentative.run
        is_void = standing.run is None or (run is not None and run != standing.run)
        if sender is stream.main and is_void:
            stream.tentative.void()
            self.arrivals.expect_tentative(stream)
        if stream.has_replicas:
            return self._choose(stream, now_ms)
        return []

    def _choose(self, stream: InputStream, now_ms: int) -> list[Effect]:
        """Read from whom it is best now."""
        choice = choose(
            stream.senders,
            stream.main,
            tentative_us=stream.tentative.boundary_us,
            now_ms=now_ms,
            silence_ms=self._plan.limits.keep_alive_ms * _KEEP_ALIVES_MISSED,
        )
        if choice.main is not stream.main:
            stream.main = choice.main
            self.switches += 1
            standing = choice.main.standing
            if standing is not None and standing.run is not None:
                stream.tentative.go_over()
            else:
                stream.tentative.change_producer()
            self.arrivals.expect_tentative(stream)
        effects: list[Effect] = []
        for sender in stream.senders:
            reading = _reading(sender, choice)
            if sender.reading is not reading:
                sender.reading = reading
                sender.ask_at_once()
                effects += self._subscribe(stream, sender, now_ms)
        return effects

    def _needed_from(self, stream: InputStream) -> int:
        """The level-1 position to tell a producer; before one is known, what is lost.

        Never beyond what has been received: 1. A secondary lags behind the newest restart point.
        2. It is promoted, and a new secondary starts at that point. 3. Nobody seems to need what
        lies between, and it is trimmed before it has been sent to the new primary.
        """
        if stream.queue.adopts:
            return self._lost_from.get(stream.spec.stream, 0)
        is_told_by_us = self._plan.is_replayed and not self._is_secondary
        next_id = stream.queue.next_id
        return min(stream.needed_from, next_id) if is_told_by_us else next_id

    def acknowledge_all(self) -> list[Effect]:
        """Tell all producers both positions and the credit."""
        effects: list[Effect] = []
        for stream in self._streams.values():
            effects += self._acknowledge(stream)
        return effects

    def grant(self, sources: Iterable[InputStream]) -> list[Effect]:
        """Acknowledge where enough room has come free that the producer should know at once."""
        effects: list[Effect] = []
        for stream in sources:
            self._refresh_credit(stream)
            is_due = stream.queue.credit_is_due() or self._tentative_credit_is_due(stream)
            if is_due:
                effects += self._acknowledge(stream)
        return effects

    def _acknowledge(self, stream: InputStream) -> list[Effect]:
        known = [(s, s.incarnation) for s in stream.senders if s.incarnation is not None]
        if known:
            self._refresh_credit(stream)
            stream.queue.credit_told()
        effects: list[Effect] = []
        for sender, incarnation in known:
            effects += self._tell(stream, sender, incarnation)
        return effects

    def _tell(
        self,
        stream: InputStream,
        sender: Sender,
        incarnation: Incarnation,
    ) -> list[Effect]:
        """Tell one replica of the producer both positions and its credit."""
        is_main = sender is stream.main
        run_until = self._tentative_credit(stream) if is_main else 0
        if is_main:
            stream.tentative.credit_told(run_until)
        return [
            SendAck(
                sender.stream,
                incarnation,
                stream.queue.next_id,
                self._needed_from(stream),
                self._credit_of(stream, sender),
                self._is_secondary,
                stream.tentative.run if is_main else None,
                run_until,
                sender.reading is not Reading.MAIN,
            )
        ]

    def _tentative_credit(self, stream: InputStream) -> int:
        held = self.arrivals.tentative_tuples[stream.number]
        return stream.tentative.credit(held, self._plan.limits.input_queue_tuples)

    def _tentative_credit_is_due(self, stream: InputStream) -> bool:
        limit = self._plan.limits.input_queue_tuples
        return stream.tentative.credit_is_due(self._tentative_credit(stream), limit)

    def has_before(self, boundary_us: int) -> None:
        """The state is that of a cut, which has acted on a boundary: nothing older is to come.

        Who has nothing to replay has it without having received anything. 1. A node stores a point
        that needs no tuple again. 2. It fails, and its producer too, which promises less. 3. What
        that sends once more is older than the boundary, unless it is told of it.
        """
        self._has_before_us = max(self._has_before_us, boundary_us)

    def _refresh_credit(self, stream: InputStream) -> None:
        stream.queue.refresh_credit(self.arrivals.held_of(stream), stream.decided_before)

    def read_sources(self, now_ms: int) -> list[Effect]:
        """Read the sources that are due; one timer wakes the node for the first of the others."""
        limits = self._plan.limits
        next_read_ms: int | None = None
        effects: list[Effect] = []
        for stream in self._streams.values():
            reading, queue = stream.reading, stream.queue
            if reading is None or reading.is_reading or queue.boundary_us == END_US:
                continue
            if now_ms < reading.due_ms:
                next_read_ms = min(reading.due_ms, next_read_ms or reading.due_ms)
                continue
            room = self.arrivals.room(stream)
            if room >= queue.reading_room:
                asked = min(room, limits.pass_tuples)
                reading.asked(asked)
                from_id = NO_ID if queue.adopts else queue.next_id
                effects.append(ReadSource(stream.spec.stream, from_id, asked))
        if next_read_ms is not None and next_read_ms != self._read_timer_ms:
            self._read_timer_ms = next_read_ms
            effects.append(SetTimer("read", next_read_ms))
        return effects

    def read_timer_fired(self, now_ms: int) -> list[Effect]:
        """The timer of the sources has run out."""
        self._read_timer_ms = None
        return self.read_sources(now_ms)

    # -- what is needed -----------------------------------------------------------------------

    def let_go(self, point: RestartPoint) -> None:
        """A restart point is durable: what comes before its needs may be forgotten upstream."""
        for name, stream in self._streams.items():
            stream.needed_from = max(stream.needed_from, point.needed_from.get(name, 0))
            stream.queue.notes.let_go(stream.needed_from)

    @property
    def rebased(self) -> dict[str, int]:
        """Per stream that its producer has rebased, the incarnation that did."""
        found = self._streams.items()
        return {name: stream.rebased_by for name, stream in found if stream.rebased_by}

    @property
    def needed_from(self) -> dict[str, int]:
        """Per stream the level-1 position that may be told upstream."""
        return {name: stream.needed_from for name, stream in self._streams.items()}

    # -- two replicas -------------------------------------------------------------------------

    @property
    def are_served(self) -> bool:
        """Whether every producer has been heard of since this incarnation began."""
        return all(s.is_served or s.node is None for _, s in self._senders.values())

    def promote(self, incarnation: Incarnation, now_ms: int) -> list[Effect]:
        """From now on this is the primary: subscribe as such, from where the secondary is."""
        self._incarnation = incarnation
        self._is_secondary = False
        effects: list[Effect] = []
        for stream, sender in self._senders.values():
            sender.ask_at_once()
            effects += self._subscribe(stream, sender, now_ms)
        return effects

    # -- looking ----------------------------------------------------------------------------

    def all(self) -> Iterable[InputStream]:
        """All streams, in the order of the plan."""
        return self.arrivals.streams

    def has(self, stream: StreamId) -> bool:
        """Whether it is an input stream."""
        return stream in self._senders

    def producers(self) -> dict[NodeId, Incarnation]:
        """The incarnation of every producer, as far as it is known."""
        return {
            sender.node: sender.incarnation
            for _, sender in self._senders.values()
            if sender.node is not None and sender.incarnation is not None
        }

    def producer(self, stream: StreamId) -> Incarnation | None:
        """The incarnation of a stream's producer, as far as it is known."""
        return self._senders[stream][1].incarnation

    def check_invariants(self) -> None:
        """Raise `InvariantViolation` when a queue makes no sense."""
        self.arrivals.check_invariants()


def _reading(sender: Sender, choice: Choice) -> Reading:
    if sender is choice.main:
        return Reading.MAIN
    return Reading.ASIDE if sender is choice.aside else Reading.WATCHED
