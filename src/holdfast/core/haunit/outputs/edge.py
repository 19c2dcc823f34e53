"""An output edge: one stream to one receiving node, and the links to its replicas. [HA §5.2]

Theory of operation. The queue keeps the tuples; a link serves one replica of the receiver, from a
cursor of its own. The replica that keeps the receiver's books, its *primary*, is linked at all
times, known or not: what it has and needs counts for restart points. Any number of others may be
linked beside it, each by its incarnation: what they have not received yet is kept, too. A frame of
a replica that is not linked is refused.

How ids go on from those of an earlier incarnation, is a machine of its own (rebasing.py).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from holdfast.core.errors import InvariantViolation
from holdfast.core.haunit.events import (
    ReadSpill,
    ReportGap,
    SendBatch,
    SendBoundary,
    SendNotes,
    SpillBatches,
    TrimSpill,
)
from holdfast.core.haunit.outputs.again import PutOutAgain
from holdfast.core.haunit.outputs.partition import at_the_earliest, not_before
from holdfast.core.haunit.outputs.rebasing import Move, Numbering, Rebasing
from holdfast.core.model.ids import BEGINNING_US, NO_ID
from holdfast.core.model.tuples import TupleBatch, in_parts
from holdfast.core.queues.output_queue import Cursor
from holdfast.core.replication.switching import Standing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

    from holdfast.core.haunit.events import AckReceived, SpillRead, SubscribeReceived
    from holdfast.core.haunit.outputs.first_output import FirstOutput
    from holdfast.core.haunit.outputs.suffix import Suffix
    from holdfast.core.machine import Effect
    from holdfast.core.model.ids import Incarnation, NodeId, Run, StreamId
    from holdfast.core.model.notes import PlacedNote
    from holdfast.core.queues.output_queue import OutputQueue
    from holdfast.core.replication.consistency_manager import Consistency


@dataclass(slots=True)
class Link:
    """To one replica of a receiver."""

    cursor: Cursor
    receiver: Incarnation | None = None  # None: not known yet
    is_aside: bool = False  # it reads what is tentative at another replica of this node
    spill_request: int | None = None  # request id of the ReadSpill under way


class OutputEdge:
    """One output stream to a receiving node. Volatile: all fields."""

    def __init__(
        self,
        queue: OutputQueue,
        node: NodeId,
        first_output: FirstOutput,
        *,
        suffix: Suffix,
        has_own_time: bool,
        may_lose: bool,
        is_feedback: bool = False,
        may_lag: bool = False,
    ) -> None:
        """Nobody has subscribed yet.

        Args:
            queue: Of the stream, numbered from where the incarnation begins.
            node: The receiver.
            suffix: What is tentative behind it; stays empty where nothing is.
            first_output: Is told when something is sent.
            has_own_time: Whether tuples are of the processing time, and not of the input's.
            may_lose: Whether a receiver that has failed as well may be sent less than it needs.
            is_feedback: Whether it goes back to where a loop begins. It never stops the node:
                whoever has to take it in waits for it.
            may_lag: Whether the node may go on though the receiver takes no more, so that there is
                no bound to what is not sent.
        """
        self.node = node
        self.queue = queue
        self.primary = Link(queue.primary)
        self.others: dict[Incarnation, Link] = {}
        self.numbering = Rebasing(queue.stream)
        self.times_renumbered = 0
        self.suffix = suffix
        self.state: Consistency | None = None
        """Of the node, if it has other replicas: said with every keep-alive."""
        self.again = PutOutAgain()
        self._trimmed_told = queue.next_id
        self._first_output = first_output
        self._has_own_time = has_own_time
        self._may_lose = may_lose
        self.is_feedback = is_feedback
        self._may_lag = may_lag
        self._requests = 0

    @property
    def stream(self) -> StreamId:
        """Its name."""
        return self.queue.stream

    @property
    def links(self) -> Iterator[Link]:
        """To the receiver's replicas, the primary first."""
        yield self.primary
        yield from self.others.values()

    # -- from where to number -----------------------------------------------------------------

    def restore(self, batches: tuple[TupleBatch, ...]) -> None:
        """Hold again what was put out before a restart point and may still be needed."""
        if not batches:
            return
        self._begin_anew(batches[0].first_id)
        for batch in batches:
            self.queue.append(batch)

    def rebase(self) -> None:
        """Number from where the receiver is.

        If it has subscribed already it hears nothing more, and subscribes again: then it names what
        it has by now.
        """
        self.numbering.move(Move.REBASE)
        self.primary.cursor.is_subscribed = False

    def renumber(self) -> None:
        """The same, and what is kept goes on there, too."""
        self.numbering.move(Move.RENUMBER)
        self.primary.cursor.is_subscribed = False

    @property
    def is_behind(self) -> bool:
        """Whether the receiver has, or may have, more than this incarnation has put out."""
        numbering = self.numbering
        is_ahead = numbering.received_before < 0 or numbering.has_before > self.queue.next_id
        return numbering.is_placed and is_ahead

    @property
    def is_awaited(self) -> bool:
        """Whether the receiver has been sent everything, and is behind a former incarnation.

        So it waits for what that one had put out, and the node has not; or others wait for a
        promise that holds behind it. Not on a stream of other tuples than then, nor where nothing
        is spilled.
        """
        numbering, queue = self.numbering, self.queue
        if numbering.has_before <= queue.next_id or numbering.is_rebased or not queue.retains:
            return False
        return queue.unsent_tuples <= 0

    def _begin_anew(self, first_id: int) -> None:
        """Another queue for the stream, numbered from an id on."""
        self.queue = self.queue.anew(first_id)
        self._trimmed_told = first_id
        self.primary.cursor = self.queue.primary
        for link in self.others.values():
            link.cursor = self.queue.open_cursor()

    def _place(self, got: SubscribeReceived) -> None:
        """The receiver has named the id from which to number.

        What a checkpoint has brought goes before that, if the receiver has not got it all.
        """
        queue, first_id = self.queue, got.needed_from if got.from_id == NO_ID else got.from_id
        if self.numbering.state is Numbering.RENUMBERING:
            self.numbering.place(got, BEGINNING_US, first_id)
            self._renumber(first_id)
            self._append_again(queue)
        elif queue.trimmed_before <= got.from_id <= queue.next_id:
            self.numbering.place(got, queue.boundary_us, queue.next_id)
        else:
            self.numbering.place(got, queue.boundary_us, first_id)
            self._renumber(first_id)
            self.queue.promise(queue.boundary_us)

    def _renumber(self, first_id: int) -> None:
        """From now on the stream's ids are those of other tuples."""
        self._begin_anew(first_id)
        self.times_renumbered += 1

    def _append_again(self, former: OutputQueue) -> None:
        """Everything that is kept goes on where the receiver is."""
        for batch in former.held_from(former.trimmed_before):
            part = self._not_before(batch.batch)
            if part.num_rows:
                self.queue.append(replace(batch, first_id=self.queue.next_id, batch=part))
        self.queue.promise(former.boundary_us)

    # -- putting out --------------------------------------------------------------------------

    def put_out(self, batch: pa.RecordBatch, boundary_us: int, created_us: int) -> None:
        """Number some rows, none perhaps, and append them to the queue."""
        if self.numbering.is_rebased:
            batch = self._not_before(batch)
        if batch.num_rows:
            tuples = TupleBatch(self.queue.next_id, batch, boundary_us, created_us)
            for part in in_parts(tuples):
                self.queue.append(part)

    def _not_before(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """What a receiver has not got that has everything older: it was promised no more of that.

        Where a tuple's time is the processing time, it has not: what was put out then was another
        choice of the input. It is put out now, unless nothing may come any more.
        """
        bound = at_the_earliest if self._has_own_time else not_before
        return bound(batch, self.numbering.has_before_us)

    # -- sending ------------------------------------------------------------------------------

    def flush(self, *, may_lag: bool = False) -> list[Effect]:
        """Send what credit allows, then boundaries; spill what memory does not hold.

        `may_lag`: for now the node may go on though the receiver takes no more.
        """
        effects: list[Effect] = []
        for link in self.links:
            effects += self._flush_link(link)
        spilled = self.queue.take_spill(has_to_be_sent=not (self._may_lag or may_lag))
        if spilled:
            effects.append(SpillBatches(self.stream, tuple(spilled)))
        return effects

    def _flush_link(self, link: Link) -> list[Effect]:
        receiver, cursor = link.receiver, link.cursor
        if receiver is None or not cursor.is_subscribed:
            return []
        effects = self._read_spill(link)
        effects += self._send_notes(receiver, cursor, Cursor.take_notes_behind)
        for batch in cursor.take_sendable():
            effects.append(self._batch(receiver, cursor, batch))
            effects += self._first_output.note()
        effects += self._send_notes(receiver, cursor, Cursor.take_notes)
        boundary_us = cursor.take_boundary()
        if boundary_us is not None:
            effects.append(self._boundary(receiver, cursor, boundary_us))
        if link is self.primary and self.suffix.run is not None:
            if link.is_aside:
                self.suffix.forget_oldest()
            elif cursor.has_sent_all:
                effects += self._flush_suffix(receiver, cursor)
        return effects

    def _flush_suffix(self, receiver: Incarnation, cursor: Cursor) -> list[Effect]:
        """Send what is tentative, behind all that is stable."""
        run = self.suffix.run
        effects: list[Effect] = []
        if missing := self.suffix.take_missing():
            said = self._boundary(receiver, cursor, BEGINNING_US, run)
            effects.append(replace(said, missing=missing))
        for batch in self.suffix.take_sendable():
            effects.append(SendBatch(self.stream, receiver, batch, cursor.notes_before, run))
            effects += self._first_output.note()
        boundary_us = self.suffix.take_boundary()
        if boundary_us is not None:
            effects.append(self._boundary(receiver, cursor, boundary_us, run))
        return effects

    @property
    def unsent_tuples(self) -> int:
        """How many tuples, tentative ones too, wait for credit or for a subscriber.

        Not those that nobody reads here: only a few of them are kept.
        """
        unread = 0 if self.primary.is_aside else self.suffix.unsent_tuples
        return self.queue.unsent_tuples + unread

    def _batch(self, receiver: Incarnation, cursor: Cursor, batch: TupleBatch) -> SendBatch:
        before, notes = cursor.notes_before, cursor.take_notes_in(batch)
        return SendBatch(self.stream, receiver, batch, before, None, notes)

    def _send_notes(
        self,
        receiver: Incarnation,
        cursor: Cursor,
        take: Callable[[Cursor], tuple[PlacedNote, ...]],
    ) -> list[Effect]:
        """Those that no tuple to be sent follows; they do not wait for one."""
        before = cursor.notes_before
        if notes := take(cursor):
            place = (cursor.next_to_send, before)
            return [SendNotes(self.stream, receiver, *place, self.suffix.run, notes)]
        return []

    def _boundary(
        self, receiver: Incarnation, cursor: Cursor, boundary_us: int, run: Run | None = None
    ) -> SendBoundary:
        return SendBoundary(
            self.stream,
            receiver,
            cursor.next_to_send,
            boundary_us,
            notes_before=cursor.notes_before,
            run=run,
        )

    def keep_alive(self) -> list[Effect]:
        """Tell every replica the last id sent, so that it notices a lost end."""
        queue = self.queue
        effects: list[Effect] = []
        for link in self.links:
            if link.receiver is None or not link.cursor.is_subscribed:
                continue
            has_sent_all = link.cursor.has_sent_all
            boundary_us = queue.boundary_us if has_sent_all else BEGINNING_US
            said = self._boundary(link.receiver, link.cursor, boundary_us)
            if self.state is not None:
                said = replace(said, standing=self._standing(self.state))
            effects.append(said)
        return effects

    def stands(self, state: Consistency) -> list[Effect]:
        """The node is in this state now; said at once, before what it puts out in it."""
        self.state = state
        effects: list[Effect] = []
        for link in self.links:
            if link.receiver is not None and link.cursor.is_subscribed:
                said = self._boundary(link.receiver, link.cursor, BEGINNING_US)
                effects.append(replace(said, standing=self._standing(state)))
        return effects

    def _standing(self, state: Consistency) -> Standing:
        return Standing(state, self.queue.next_id, self.queue.boundary_us, self.suffix.run)

    def _read_spill(self, link: Link) -> list[Effect]:
        """Read back all that credit allows: a read takes its time, however little it brings."""
        missing = link.cursor.missing_for_send()
        if missing is None or link.spill_request is not None:
            return []
        self._requests += 1
        link.spill_request = self._requests
        return [ReadSpill(self.stream, self._requests, *missing)]

    def spill_read(self, got: SpillRead) -> list[Effect]:
        """Send on what was read back."""
        effects: list[Effect] = []
        for link in self.links:
            if link.spill_request != got.request_id or link.receiver is None:
                continue  # Asked for by a subscription that has been replaced.
            link.spill_request = None
            if not link.cursor.is_subscribed:
                continue  # The stream is numbered anew: these ids will be those of other tuples.
            for batch in got.batches:
                effects.append(self._batch(link.receiver, link.cursor, batch))
                link.cursor.resent(batch.next_id)
        return effects + self.flush()

    # -- receivers ----------------------------------------------------------------------------

    def learn(self, incarnation: Incarnation, others: tuple[Incarnation, ...]) -> None:
        """The receiver's primary has this incarnation, its other replicas have those.

        From now on what these have not received is kept; one that is gone needs nothing.
        """
        self.learn_primary(incarnation)
        if self.primary.receiver != incarnation:
            return  # Said by an earlier life of the coordinator.
        for gone in [known for known in self.others if known not in others]:
            self.queue.close_cursor(self.others.pop(gone).cursor)
        for other in others:
            if other not in self.others:
                self.others[other] = Link(self.queue.open_cursor(), other)

    def learn_primary(self, incarnation: Incarnation) -> None:
        """The receiver's primary has this incarnation, if it is a later one than is known."""
        link = self.primary
        if link.receiver is None or incarnation > link.receiver:
            link.receiver = incarnation
            link.cursor.unsubscribe()
            link.spill_request = None

    def link_of(self, got: SubscribeReceived | AckReceived) -> Link | None:
        """The link to the replica that says something; None: it does not count.

        A newer incarnation of the receiver's primary than the coordinator has told of is believed:
        only the coordinator gives incarnations, and waiting for its word would delay recovery.
        """
        if got.is_secondary:
            return self.others.get(got.sender)
        self.learn_primary(got.sender)
        return self.primary if got.sender == self.primary.receiver else None

    def subscribe(self, link: Link, got: SubscribeReceived) -> tuple[bool, list[Effect]]:
        """Serve a replica from an id on.

        Returns:
            False when that cannot be; and the effects, which may say why.

        Raises:
            RemoteProtocolError: A new receiver needs what was trimmed.
            StreamRebased: It needs what came before the stream was rebased.
        """
        numbering = self.numbering
        if not got.is_secondary:
            if not numbering.is_placed:
                self._place(got)
            numbering.sent_before = max(numbering.sent_before, link.cursor.next_to_send)
            numbering.had_before = got.had_before
        queue = self.queue
        from_id = numbering.first_to_send(
            got, queue.trimmed_before, queue.next_id, is_gap_allowed=self._may_lose
        )
        if not got.is_secondary:
            numbering.subscriber = got.sender
        lost_from = numbering.lost_from(got, from_id)
        effects: list[Effect] = []
        if lost_from is not None:
            effects.append(ReportGap(self.stream, lost_from, from_id))
        if numbering.is_rebased or got.from_id == NO_ID:
            effects.append(self._from_here(got, from_id))
        is_old = link.cursor.is_subscribed and from_id < queue.trimmed_before
        is_behind = got.is_secondary and from_id < queue.trimmed_before
        if is_old or is_behind or not numbering.is_placed:
            return False, effects  # Since then, it has acknowledged more.
        if numbering.must_tell(got):
            return False, effects  # What else comes might be all that it hears.
        link.spill_request = None
        link.cursor.subscribe(from_id, got.from_note)
        if got.from_id == NO_ID:
            link.cursor.skip_notes()
        link.cursor.reset_credit(got.credit_until)
        link.is_aside = got.is_aside
        if link is self.primary:
            self.suffix.subscribed()
        effects += self._trim(link, from_id, got.needed_from)
        if self.state is not None:
            said = self._boundary(got.sender, link.cursor, BEGINNING_US)
            effects.append(replace(said, standing=self._standing(self.state)))
        return True, effects

    def _from_here(self, got: SubscribeReceived, from_id: int) -> SendBoundary:
        """Where the stream goes on for a subscriber that cannot have what came before."""
        is_from_now = got.from_id == NO_ID
        notes_before = self.queue.notes.next_number if is_from_now else got.from_note
        told = (self.stream, got.sender, from_id, BEGINNING_US, self.numbering.rebased_at)
        return SendBoundary(*told, notes_before)

    def acknowledge(self, link: Link, got: AckReceived) -> list[Effect]:
        """Take over a replica's positions and credit.

        What it has, from another replica of this node perhaps, need not be sent, not even what this
        one has yet to put out. 1. A replica comes back, and is behind. 2. It puts out in a moment
        what all its readers have. 3. If that counted as unsent, streams would be full of it, and
        the node would stop, or go on beyond its bound where others wait for it.
        """
        link.cursor.grant(got.credit_until)
        if self.state is not None:
            link.cursor.resent(got.received_before)
        if link is self.primary:
            self._reads(link, is_aside=got.is_aside)
            self.suffix.grant(got.run, got.run_until)
        return self._trim(link, got.received_before, got.needed_from)

    def _reads(self, link: Link, *, is_aside: bool) -> None:
        """Where the receiver reads what is tentative now, if the subscription was lost.

        1. A reader goes over to another replica of this node. 2. Its word is lost on the way. 3. A
        run that nobody takes would fill the suffix, and stop the node. Or 1. It comes back. 2. That
        word is lost. 3. Nothing tentative would reach it from anyone.
        """
        if link.is_aside and not is_aside:
            self.suffix.subscribed()
        link.is_aside = is_aside

    def _trim(self, link: Link, received_before: int, needed_from: int) -> list[Effect]:
        """Positions beyond what this incarnation has produced again say nothing to it yet."""
        next_id = self.queue.next_id
        if link is self.primary:
            self.numbering.received(received_before, needed_from)
        link.cursor.acknowledge(min(received_before, next_id), min(needed_from, next_id))
        return self._tell_trimmed()

    def _tell_trimmed(self) -> list[Effect]:
        queue = self.queue
        if queue.trimmed_before > self._trimmed_told:
            self._trimmed_told = queue.trimmed_before
            return [TrimSpill(queue.stream, queue.trimmed_before)]
        return []

    def lets_go(self, next_id: int, *, is_held: bool) -> bool:
        """Whether nothing before an id is needed from this node any more.

        Args:
            next_id: The id.
            is_held: Whether a checkpoint has what the receiver may still need of it.
        """
        if not self.numbering.is_placed:
            return False
        if self._may_lose:  # Nothing is replayed: received is had.
            return next_id <= self.queue.primary.received_before
        if not self.numbering.is_settled and next_id > self.numbering.rebased_at:
            return False
        return is_held or next_id <= self.queue.needed_from

    # -- a secondary's ------------------------------------------------------------------------

    @property
    def positions(self) -> tuple[int, int]:
        """What the receiver's primary has, and what nobody needs any more."""
        return self.queue.primary.received_before, self.queue.needed_from

    def follow(self, received_before: int, needed_from: int) -> list[Effect]:
        """What the primary of this node says of the receiver."""
        cursor, next_id = self.queue.primary, self.queue.next_id
        cursor.resent(min(received_before, next_id))
        cursor.acknowledge(min(received_before, next_id), min(needed_from, next_id))
        return [*self._tell_trimmed(), *self.flush()]

    # -- looking ------------------------------------------------------------------------------

    def check_invariants(self) -> None:
        """Raise `InvariantViolation` when queue, numbering and links do not fit."""
        queue = self.queue
        queue.check_invariants()
        self.numbering.check_invariants()
        self.suffix.check_invariants(queue.next_id)
        if not self.numbering.is_placed and self.primary.cursor.is_subscribed:
            raise InvariantViolation(f"{self.stream} is served before it is numbered")
        if [link.cursor for link in self.links] != queue.cursors:
            raise InvariantViolation(f"{self.stream}: links and cursors are not the same")
        if any(link.receiver != other for other, link in self.others.items()):
            raise InvariantViolation(f"{self.stream}: a link to another replica than its own")
