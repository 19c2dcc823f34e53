"""An output queue keeps what was produced until nobody can need it again. [HA §5.2]

Theory of operation. A queue serves one stream. It has a cursor for its receiver's primary, and one
for each other replica of the receiver as long as there is one. Positions, all tuple ids, never move
back within one incarnation, but for `next_to_send`, and are ordered:

    trimmed_before <= needed_from <= next_to_send <= next_id        (needed_from: level-1 ack)

- `append` adds a batch at `next_id`.
- `Cursor.subscribe(from_id)` starts or restarts sending at the id that the receiver names; a lost
  connection is healed by subscribing again, so sending may go back as far as `trimmed_before`.
- `Cursor.take_sendable` hands out batches up to the receiver's credit, an absolute id that only
  grows: a lost, repeated or late grant can do no harm.
- `Cursor.acknowledge` raises the level-0 position (received) and the level-1 position (nothing
  before it is needed to rebuild the receiver), and trims up to the lowest of the latter. A cursor
  that goes away trims nothing: when another replica becomes the primary, what it still needs is
  kept until it says so itself.

Beyond `memory_limit_bytes` the oldest batches that have been sent are spilled: the queue names
them in `take_spill`, the shell writes them to a stream log, and `spilled` ranges remain readable
through `missing_for_send`, which names the ids to be read back before sending can go on. Where what
is not sent has no bound, batches that have not been sent are spilled, too, and even those behind a
`gate`; nothing from there on is sent, from memory or from a spill log.

Between the tuples stand notes (stream_notes.py): `put_note` places one before `next_id`. A cursor
gives with every batch the notes that stand in it or behind it, from `next_note` on, and otherwise
those that stand before `next_to_send`. They need no credit and are not spilled.

Batches shrink with the load: an idle node sends tuples one by one. What has been sent and is kept
is therefore merged, at acknowledgements, so that replay costs by the tuple and not by the batch.

Departure from the paper: a queue per receiver instead of one with several cursors. A keyed edge
gives every receiver other tuples, so that nothing is stored twice, and a slow receiver holds back
only its own tuples.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from holdfast.core.errors import InvariantViolation, LocalProtocolError, RemoteProtocolError
from holdfast.core.model.ids import BEGINNING_US, NO_ID, StreamId
from holdfast.core.model.notes import PlacedNote, StreamNote
from holdfast.core.model.tuples import PART_BYTES, TupleBatch, merged
from holdfast.core.queues.stream_notes import KeptNotes

_MERGED_TUPLES = 1 << 14
_MERGED_BATCHES_MIN = 16


@dataclass(frozen=True, slots=True)
class OutputQueueStatistics:
    """A queue's positions and sizes.

    Attributes:
        next_id: Id of the next tuple to be produced.
        received_before: The receiver has everything before this id (level 0).
        needed_from: The receiver may need this id and later ones again (level 1).
        retained_tuples: Tuples held in memory.
        retained_bytes: Their size.
        spilled_tuples: Tuples held in the spill log.
    """

    next_id: int
    received_before: int
    needed_from: int
    retained_tuples: int
    retained_bytes: int
    spilled_tuples: int


class OutputQueue:
    """The output queue of one stream towards one receiver.

    Durable: nothing; a recovered node produces its tuples again from a restart point.
    Volatile: all fields.
    """

    def __init__(
        self,
        stream: StreamId,
        *,
        first_id: int,
        retain: bool,
        memory_limit_bytes: int,
        first_note: int = 0,
    ) -> None:
        """Start an empty queue whose first tuple will be `first_id`.

        Args:
            stream: Name of the stream, for messages.
            first_id: Id of the first tuple to be appended.
            retain: False drops tuples as soon as they are sent (no protection).
            memory_limit_bytes: Beyond this, sent batches are spilled.
            first_note: Number of the first note to be put.
        """
        self.stream = stream
        self.retains = retain
        self._memory_limit_bytes = memory_limit_bytes
        self._batches: deque[TupleBatch] = deque()  # consecutive, from memory_first to next_id
        self._bytes = 0
        self.next_id = first_id
        self.trimmed_before = first_id  # exclusive bound of what is gone for good
        self.memory_first = first_id  # ids in [trimmed_before, memory_first) are spilled
        self.needed_from = first_id
        self.boundary_us = BEGINNING_US
        self.notes = KeptNotes(stream, first_note)
        self.gate: int | None = None  # ids from here on must not be sent yet; None: all may be
        self.note_gate = NO_ID  # notes from this number on must not be sent yet
        self.primary = Cursor(self, first_id)
        self.cursors: list[Cursor] = [self.primary]  # of all replicas, the primary's first

    def anew(self, first_id: int) -> OutputQueue:
        """An empty queue of the same stream and bounds, with the primary's cursor alone."""
        queue = OutputQueue(
            self.stream,
            first_id=first_id,
            retain=self.retains,
            memory_limit_bytes=self._memory_limit_bytes,
            first_note=self.notes.next_number,
        )
        if self.gate is not None:
            queue.shut()
        return queue

    def shut(self) -> None:
        """What is appended or put from now on must not be sent before `open_to` allows it."""
        self.open_to(self.next_id, self.notes.next_number)

    def open_to(self, next_id: int, next_note: int) -> None:
        """Tuples before this id, and notes before this number, may be sent."""
        self.gate, self.note_gate = next_id, next_note

    # -- producing --------------------------------------------------------------------------

    def append(self, batch: TupleBatch) -> None:
        """Add the next tuples. Raises `LocalProtocolError` if their ids do not continue."""
        if batch.first_id != self.next_id:
            raise LocalProtocolError(
                f"{self.stream}: batch starts at {batch.first_id}, expected {self.next_id}"
            )
        self._batches.append(batch)
        self._bytes += batch.nbytes
        self.next_id = batch.next_id
        self.boundary_us = max(self.boundary_us, batch.boundary_us)

    def put_note(self, note: StreamNote, *, replaces: bool = False) -> None:
        """A note stands here: behind what has been appended, before what will be."""
        self.notes.put(note, self.next_id, replaces=replaces)

    def promise(self, boundary_us: int) -> None:
        """Nothing older than `boundary_us` will be appended from now on."""
        self.boundary_us = max(self.boundary_us, boundary_us)

    @property
    def unsent_tuples(self) -> int:
        """How many tuples wait for credit or for a subscriber; notes that do count like tuples."""
        unsent = self.next_id - max(self.primary.next_to_send, self.trimmed_before)
        if self.notes:
            unsent += self.notes.count_from(self.primary.next_note)
        return unsent

    # -- the receiver's other replicas --------------------------------------------------------

    def open_cursor(self) -> Cursor:
        """A cursor for another replica of the receiver."""
        cursor = Cursor(self, self.needed_from)
        self.cursors.append(cursor)
        return cursor

    def close_cursor(self, cursor: Cursor) -> None:
        """The replica is gone, or has become the primary."""
        self.cursors.remove(cursor)

    # -- trimming ---------------------------------------------------------------------------

    def let_go(self) -> None:
        """Trim what no replica of the receiver needs any more."""
        needed_from = min(cursor.needed_from for cursor in self.cursors)
        if needed_from > self.needed_from:
            self.needed_from = needed_from
            self.trim(needed_from)

    def merge_small(self) -> None:
        """Merge the newest batches that have been sent where they are many and small.

        So what is kept for long is few batches, each of which costs some microseconds when it is
        let go. Cost: O(batches added since the last time, and _MERGED_TUPLES).
        """
        if len(self._batches) < _MERGED_BATCHES_MIN:
            return
        newer: list[TupleBatch] = []
        while self._batches and self._batches[-1].next_id > self.primary.next_to_send:
            newer.append(self._batches.pop())
        while len(small := self._take_small()) >= _MERGED_BATCHES_MIN:
            together = merged(small)
            if 2 * len(together) > len(small):  # Of ever other types: older ones are no better.
                break
            self._bytes -= sum(batch.nbytes for batch in small)
            self._bytes += sum(batch.nbytes for batch in together)
            newer += reversed(together)
        self._batches.extend([*small, *reversed(newer)])

    def _take_small(self) -> list[TupleBatch]:
        """Some of the newest batches that are no more together than one should be."""
        small: list[TupleBatch] = []
        room, room_bytes = _MERGED_TUPLES, PART_BYTES
        while self._batches and self._batches[-1].count <= room:
            room_bytes -= self._batches[-1].nbytes
            if room_bytes < 0:
                break
            room -= self._batches[-1].count
            small.append(self._batches.pop())
        small.reverse()
        return small

    def trim(self, before: int) -> None:
        """Nobody needs the tuples before this id any more; whole batches go."""
        while self._batches and self._batches[0].next_id <= before:
            dropped = self._batches.popleft()
            self._bytes -= dropped.nbytes
            self.memory_first = dropped.next_id
        if before > self.trimmed_before:
            self.trimmed_before = before
            if self.retains:  # Else they are gone when they are sent, after the tuples.
                self.notes.trim(before)
        if self.memory_first < self.trimmed_before and not (
            self._batches and self._batches[0].first_id < self.trimmed_before
        ):
            self.memory_first = self.trimmed_before

    # -- spilling ---------------------------------------------------------------------------

    def take_spill(self, *, has_to_be_sent: bool = True) -> list[TupleBatch]:
        """Batches to write to the spill log now; they leave memory.

        Args:
            has_to_be_sent: Whether what has not been sent stays; else there is no bound to that.
        """
        spilled: list[TupleBatch] = []
        while (
            self.retains
            and self._bytes > self._memory_limit_bytes
            and self._batches
            and (not has_to_be_sent or self._batches[0].next_id <= self.primary.next_to_send)
        ):
            batch = self._batches.popleft()
            self._bytes -= batch.nbytes
            self.memory_first = batch.next_id
            spilled.append(batch)
        return spilled

    # -- looking ----------------------------------------------------------------------------

    def held_from(self, tuple_id: int) -> list[TupleBatch]:
        """The tuples from `tuple_id` on that are in memory, the first batch cut.

        What is missing before them is spilled. Cost: O(batches after it).
        """
        found: deque[TupleBatch] = deque()
        for batch in reversed(self._batches):
            if batch.next_id <= tuple_id:
                break
            found.appendleft(batch)
        if found and found[0].first_id < tuple_id:
            found[0] = found[0].starting_at(tuple_id)
        return list(found)

    def check_invariants(self) -> None:
        """Raise `InvariantViolation` unless positions are ordered and batches consecutive."""
        if not self.trimmed_before <= self.memory_first <= self.next_id:
            first = self._batches[0].first_id if self._batches else self.next_id
            if not (self._batches and first <= self.trimmed_before):
                raise InvariantViolation(f"{self.stream}: positions out of order")
        if self.needed_from < self.trimmed_before and self.retains:
            raise InvariantViolation(f"{self.stream}: trimmed a tuple that is still needed")
        expected = None
        for batch in self._batches:
            if expected is not None and batch.first_id != expected:
                raise InvariantViolation(f"{self.stream}: gap in the queue at {expected}")
            expected = batch.next_id
        if expected is not None and expected != self.next_id:
            raise InvariantViolation(f"{self.stream}: queue ends at {expected}")
        self.notes.check_invariants()

    def statistics(self) -> OutputQueueStatistics:
        """Positions and sizes now."""
        return OutputQueueStatistics(
            next_id=self.next_id,
            received_before=self.primary.received_before,
            needed_from=self.needed_from,
            retained_tuples=self.next_id - max(self.memory_first, self.trimmed_before),
            retained_bytes=self._bytes,
            spilled_tuples=max(0, self.memory_first - self.trimmed_before)
            if self.memory_first > self.trimmed_before
            else 0,
        )


class Cursor:
    """Where one replica of the receiver is. Volatile: all fields."""

    def __init__(self, queue: OutputQueue, first_id: int) -> None:
        """Nobody has subscribed yet; everything from `first_id` on is needed."""
        self._queue = queue
        self.needed_from = first_id
        self.received_before = first_id
        self.next_to_send = first_id  # all before it have been sent to the present subscriber
        self.next_note = 0  # all before it have been sent, or need not be
        self.notes_before = 0  # what the subscriber must have had, to understand what comes
        self.is_subscribed = False
        self._credit_until = first_id
        self._boundary_sent_us = BEGINNING_US

    def subscribe(self, from_id: int, from_note: int = 0) -> None:
        """The receiver has everything before a place, and wants what follows.

        Args:
            from_id: The first tuple wanted.
            from_note: The lowest number of a note that is wanted.

        Raises:
            RemoteProtocolError: `from_id` has been trimmed, so that it cannot be served.
        """
        queue = self._queue
        if from_id < queue.trimmed_before:
            raise RemoteProtocolError(
                f"{queue.stream}: asked for {from_id}, but everything before "
                f"{queue.trimmed_before} was acknowledged and trimmed"
            )
        self.is_subscribed = True
        self.next_to_send = from_id
        self.next_note = queue.notes.first_for(from_id, from_note)
        self.notes_before = from_note
        self._boundary_sent_us = BEGINNING_US

    def skip_notes(self) -> None:
        """The receiver wants none that have been put until now."""
        self.next_note = self.notes_before = self._queue.notes.next_number

    def unsubscribe(self) -> None:
        """The receiver is gone; nothing is sent until it or its replacement subscribes.

        A replacement may need more than the receiver did: all that is still there.
        """
        self.is_subscribed = False
        self.needed_from = self._queue.needed_from

    def grant(self, credit_until: int) -> None:
        """Ids below `credit_until` may be sent."""
        self._credit_until = max(self._credit_until, credit_until)

    def reset_credit(self, credit_until: int) -> None:
        """A new subscription states its own credit, which replaces the old."""
        self._credit_until = credit_until

    def take_sendable(self) -> list[TupleBatch]:
        """Batches to send now, in order; the last may be cut at the credit."""
        queue = self._queue
        limit = self._limit(queue.next_id)
        if not self.is_subscribed or self.next_to_send >= limit:
            return []
        if self.next_to_send < queue.memory_first:
            return []  # Must be read back from the spill log first.
        taken: list[TupleBatch] = []
        for batch in queue.held_from(self.next_to_send):
            if batch.first_id >= limit:
                break
            batch = batch.before(limit)
            taken.append(batch)
            self.next_to_send = batch.next_id
            self._boundary_sent_us = max(self._boundary_sent_us, batch.boundary_us)
        if not queue.retains:
            queue.trim(self.next_to_send)
        return taken

    def take_notes(self) -> tuple[PlacedNote, ...]:
        """The notes to send now: those that stand before, or right behind, what has been sent."""
        notes = self._queue.notes
        if not self.is_subscribed or self.next_note >= notes.next_number:
            return ()
        return self._take_notes_to(self.next_to_send)

    def take_notes_behind(self) -> tuple[PlacedNote, ...]:
        """The notes to send now that stand before tuples which the subscriber has had.

        A replacement has put them where its predecessor had others.
        """
        if self.next_note >= self._queue.notes.next_number:
            return ()
        return self._take_notes_to(self.next_to_send - 1)

    def take_notes_in(self, batch: TupleBatch) -> tuple[PlacedNote, ...]:
        """The notes to send with a batch: those that stand in it or right behind it."""
        if self.next_note >= self._queue.notes.next_number:
            return ()
        return self._take_notes_to(batch.next_id)

    def _take_notes_to(self, to_id: int) -> tuple[PlacedNote, ...]:
        queue = self._queue
        found = queue.notes.between(self.next_note, queue.note_gate, to_id)
        if found:
            self.next_note = self.notes_before = found[-1].number + 1
            if not queue.retains:
                queue.notes.trim(found[-1].before_id)
        return found

    def missing_for_send(self) -> tuple[int, int] | None:
        """The range [from, to) of spilled ids to be read back before sending can go on.

        What must not be sent yet may be spilled, too. It is read back when it may: what is read
        back is sent.
        """
        limit = self._limit(self._queue.memory_first)
        if not self.is_subscribed or self.next_to_send >= limit:
            return None
        return self.next_to_send, limit

    def _limit(self, before: int) -> int:
        """The ids before this one that may be sent now, by credit and by the gate, end here."""
        gate = self._queue.gate
        limit = min(before, self._credit_until)
        return limit if gate is None else min(limit, gate)

    def resent(self, next_id: int) -> None:
        """Spilled tuples before `next_id` were sent by way of the spill log."""
        self.next_to_send = max(self.next_to_send, next_id)

    @property
    def has_sent_all(self) -> bool:
        """Whether all tuples, and notes that are kept, have been sent to the present subscriber.

        A note goes unsent with the tuple behind it if the subscriber has had that already.
        """
        queue, notes = self._queue, self._queue.notes
        if self.next_to_send < queue.next_id:
            return False
        return self.next_note >= notes.next_number or not notes.count_from(self.next_note)

    def take_boundary(self) -> int | None:
        """The boundary to tell the receiver now, or None if it knows it already.

        A boundary is told only when all tuples and notes before it have been sent.
        """
        queue = self._queue
        if not self.is_subscribed or not self.has_sent_all:
            return None
        if queue.boundary_us <= self._boundary_sent_us:
            return None
        self._boundary_sent_us = queue.boundary_us
        return queue.boundary_us

    def acknowledge(self, received_before: int, needed_from: int) -> None:
        """Take over level-0 and level-1 positions and trim. [HA §5.2.1]

        Args:
            received_before: The receiver has every tuple before this id.
            needed_from: The oldest id the receiver may need again; it is kept.

        Raises:
            RemoteProtocolError: A position lies beyond what was produced.
        """
        queue = self._queue
        if needed_from > queue.next_id or received_before > queue.next_id:
            raise RemoteProtocolError(
                f"{queue.stream}: acknowledged {max(needed_from, received_before)}, "
                f"but the next id to be produced is {queue.next_id}"
            )
        self.received_before = max(self.received_before, received_before)
        self.needed_from = max(self.needed_from, needed_from)
        queue.let_go()
        queue.merge_small()
