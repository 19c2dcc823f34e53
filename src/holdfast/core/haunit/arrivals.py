"""What has come on the input streams of a node, and no pass has taken yet. [HA §5]

The queues stand here side by side, in the order of the plan. An input order takes from them; the
HAInput fills them, and grants credit by what is left in them.

A pass must not cost by the streams but by what came on them. So streams with something new are
known (*fresh*), and the slowest boundary is looked for only when the last stream that stood at it
has gone on.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from holdfast.core.errors import InvariantViolation
from holdfast.core.model.ids import BEGINNING_US, NO_ID, NOBODY, Incarnation, StreamId
from holdfast.core.replication.tentative_input import TentativeInput

if TYPE_CHECKING:
    from holdfast.core.haunit.plan import InputSpec
    from holdfast.core.haunit.source_reading import SourceReading
    from holdfast.core.model.notes import PlacedNote
    from holdfast.core.model.tuples import TupleBatch
    from holdfast.core.queues.input_queue import InputQueue
    from holdfast.core.replication.switching import Sender


@dataclass(slots=True)
class InputStream:
    """One input stream: what it is, what waits, and what was told upstream.

    Attributes:
        spec: Its part of the plan.
        number: Its position among the node's input streams.
        queue: What has come and is not taken.
        needed_from: Level-1 position that may be told upstream; never moves back.
        senders: Who sends it: its producer, or each replica of that.
        main: The one of them that sends tentative tuples, too.
        reading: Of a source: when it is read.
        rebased_by: The producer that has rebased it, and been followed.
        had_before: What comes before this id is to be what an earlier incarnation had: of a stream
            that is not another one since, the node's state and its outputs rest on it.
        decided_before: What comes before this id recorded passes will take, and needs no room.
        not_before: Earlier incarnations of the producer do not count.
        tentative: What has come behind the stable tuples, and may be void again.
    """

    spec: InputSpec
    number: int
    queue: InputQueue
    needed_from: int
    senders: tuple[Sender, ...]
    main: Sender
    reading: SourceReading | None = None
    rebased_by: Incarnation = NOBODY
    had_before: int = 0
    decided_before: int = 0
    not_before: Incarnation = NOBODY
    tentative: TentativeInput = field(default_factory=TentativeInput)

    @property
    def processed_before(self) -> int:
        """The first id that no pass has taken."""
        return self.queue.taken_before

    @property
    def has_replicas(self) -> bool:
        """Whether its producer has several replicas."""
        return len(self.senders) > 1

    @property
    def has_tentative(self) -> bool:
        """Whether something is to be heard of its suffix: an undo, or what stands behind all."""
        if self.tentative.is_undone:
            return True
        is_next = not (self.queue.has_work or self.queue.notes.are_pending)
        return is_next and self.tentative.has_news

    def lacking(self, boundary_us: int) -> tuple[StreamId, ...]:
        """The source streams without which it has been gone on to a boundary.

        Those that its producer lacks; all that it comes from, if the producer has not come so far
        either, or has not said which.
        """
        suffix = self.tentative
        if suffix.missing and suffix.boundary_us >= boundary_us:
            return suffix.missing
        return self.spec.sources or (self.spec.stream,)


class Arrivals:
    """The input streams of a node, to be taken from. Volatile: all fields."""

    def __init__(self, streams: Sequence[InputStream], pass_tuples: int) -> None:
        """Nothing has come.

        Args:
            streams: All of them, in the order of the plan.
            pass_tuples: Most tuples that a pass takes of one stream, but for a single batch.
        """
        self.streams = tuple(streams)
        self._pass_tuples = pass_tuples
        self._fresh: dict[int, InputStream] = {}  # by number
        self._with_notes: dict[int, InputStream] = {}  # with notes that are not taken, by number
        self._with_tentative: dict[int, InputStream] = {}  # that have had a suffix, by number
        self.slowest_us = BEGINNING_US  # boundary of the slowest stream, as of the last pass
        self._slowest_count = len(self.streams)  # how many streams stand there
        self.held_tuples: Sequence[int] = (0,) * len(self.streams)
        """Per stream what has been taken and waits in the input order, which keeps the count."""
        self.tentative_tuples: Sequence[int] = self.held_tuples
        """The same of what is tentative."""

    # -- what is there ------------------------------------------------------------------------

    def note(self, stream: InputStream) -> None:
        """Something may have come on a stream, or been taken from it."""
        if stream.queue.has_work:
            self._fresh[stream.number] = stream
        else:
            self._fresh.pop(stream.number, None)

    @property
    def fresh(self) -> list[InputStream]:
        """The streams with something that no pass has taken."""
        return list(self._fresh.values())

    @property
    def has_fresh(self) -> bool:
        """Whether there is any."""
        return bool(self._fresh)

    def has_received(self, before: tuple[int, ...]) -> bool:
        """Whether all tuples before these ids, in the order of the plan, have come."""
        return all(s.queue.next_id >= b for s, b in zip(self.streams, before, strict=True))

    @property
    def processed_before(self) -> tuple[int, ...]:
        """Per stream, in the order of the plan, the first id that no pass has taken."""
        return tuple(stream.processed_before for stream in self.streams)

    @property
    def are_ended(self) -> bool:
        """Whether all streams have ended and all was taken."""
        return all(stream.queue.is_ended for stream in self.streams)

    def is_slowest(self, stream: InputStream) -> bool:
        """Whether none is behind it."""
        return stream.queue.taken_boundary_us <= self.slowest_us

    # -- notes --------------------------------------------------------------------------------

    def expect_notes(self, stream: InputStream) -> None:
        """Notes have come on a stream."""
        self._with_notes[stream.number] = stream

    def take_notes(self) -> Iterator[tuple[InputStream, PlacedNote]]:
        """The notes that are due, one by one: whoever hears of one may stop its stream there."""
        for stream in list(self._with_notes.values()):
            while (note := stream.queue.take_note()) is not None:
                yield stream, note
            if not stream.queue.notes.are_pending:
                del self._with_notes[stream.number]
            self.note(stream)

    def next_notes(self, needed_from: dict[str, int], *, is_state_kept: bool) -> dict[str, int]:
        """Per stream that has had notes, the first one that a replacement needs.

        Args:
            needed_from: Per stream the first tuple that it needs.
            is_state_kept: Whether what came of the notes taken is kept with the state; else those
                that stand among the tuples that it needs are needed, too.
        """
        numbers: dict[str, int] = {}
        for stream in self.streams:
            notes, first_id = stream.queue.notes, needed_from[stream.spec.stream]
            if notes.next_number:
                is_had = is_state_kept or first_id >= stream.queue.taken_before
                number = notes.taken_before if is_had else notes.number_at(first_id)
                numbers[stream.spec.stream] = number
        return numbers

    def went_back(self, stream: InputStream) -> None:
        """What had come on a stream was forgotten, in part, and so was its boundary."""
        self.note(stream)
        self.slowest_us = min(self.slowest_us, stream.queue.taken_boundary_us)
        self._slowest_count = sum(map(self.is_slowest, self.streams))

    # -- what is tentative --------------------------------------------------------------------

    def expect_tentative(self, stream: InputStream) -> None:
        """Something tentative has come on a stream, or is void."""
        self._with_tentative[stream.number] = stream

    @property
    def has_tentative(self) -> bool:
        """Whether some is to be taken. Cost: O(streams that have had some)."""
        return any(stream.has_tentative for stream in self._with_tentative.values())

    def with_tentative(self) -> list[InputStream]:
        """The streams of which some is to be taken."""
        return [stream for stream in self._with_tentative.values() if stream.has_tentative]

    # -- what is taken ------------------------------------------------------------------------

    def take_first(self) -> list[TupleBatch]:
        """Some of what has come on the first stream, which is the only one."""
        stream = self.streams[0]
        taken = stream.queue.take(self._pass_tuples)
        self.slowest_us = stream.queue.taken_boundary_us
        self.note(stream)
        return taken

    def take_some(self, passed_over: Container[InputStream] = ()) -> list[list[TupleBatch]]:
        """Per stream some of what has come; nothing of those that are passed over."""
        taken = [
            [] if stream in passed_over else stream.queue.take(self._pass_tuples)
            for stream in self.streams
        ]
        self._note_all()
        return taken

    def take_recorded(self, before: tuple[int, ...]) -> list[list[TupleBatch]]:
        """Per stream all before an id that has been received; no boundary goes with the last."""
        taken = [s.queue.take_recorded(b) for s, b in zip(self.streams, before, strict=True)]
        self._note_all()
        return taken

    def take_fresh(self) -> list[tuple[int, list[TupleBatch]]]:
        """Numbers of streams with some of what has come on them; finds the slowest boundary."""
        taken: list[tuple[int, list[TupleBatch]]] = []
        for stream in self.fresh:
            was_slowest = self.is_slowest(stream)
            taken.append((stream.number, stream.queue.take(self._pass_tuples)))
            if was_slowest and not self.is_slowest(stream):
                self._slowest_count -= 1
            self.note(stream)
        if self._slowest_count == 0:
            self.slowest_us = self._slowest_boundary_us()
            self._slowest_count = sum(map(self.is_slowest, self.streams))
        return taken

    def _note_all(self) -> None:
        for stream in self.streams:
            self.note(stream)
        self.slowest_us = self._slowest_boundary_us()

    def _slowest_boundary_us(self) -> int:
        return min(stream.queue.taken_boundary_us for stream in self.streams)

    # -- limits -----------------------------------------------------------------------------

    def stop_at(self, before: tuple[int, ...]) -> None:
        """Nothing from these ids on, in the order of the plan, is taken until `go_on`."""
        for stream, tuple_id in zip(self.streams, before, strict=True):
            stream.queue.stop_at(tuple_id)
            self.note(stream)

    def hold_back(self, from_ids: tuple[int, ...]) -> bool:
        """Take nothing from these ids on, in the order of the plan; whether other ids were said."""
        changed = [
            (stream, tuple_id)
            for stream, tuple_id in zip(self.streams, from_ids, strict=True)
            if stream.queue.stop_before != tuple_id
        ]
        for stream, tuple_id in changed:
            stream.queue.stop_at(tuple_id)
            self.note(stream)
        return bool(changed)

    def go_on(self) -> None:
        """Take what comes, wherever it stands."""
        for stream in self.streams:
            stream.queue.go_on()
            self.note(stream)

    # -- room -------------------------------------------------------------------------------

    def make_room(self, decided_before: tuple[int, ...]) -> None:
        """Recorded passes will take what comes before these ids, in the order of the plan."""
        for stream, before in zip(self.streams, decided_before, strict=True):
            stream.decided_before = before

    def held_of(self, stream: InputStream) -> int:
        """Tuples of a stream in the input order that use up its credit.

        Those of the slowest streams do not, or the node could wait for ever: 1. A window closes
        with more results than the input may hold. 2. They share one time, so that none is released
        before the boundary behind the last. 3. The last is never sent for want of credit.

        Nor do those of a stream that is ahead of one which an operator holds back: 1. A source
        feeds a sort, and the node directly. 2. The sort lets go of nothing until so many more have
        come. 3. The source sends no more, as the node has no room for what it gets directly. What
        the node holds then is bounded by what the operator holds back.

        Nor do those of a stream that goes on while another one is stopped for a cut: the cut may
        wait for a note on it, behind more tuples than the input may hold.
        """
        held = self.held_tuples[stream.number]
        if not held or self.is_slowest(stream):
            return 0
        if stream.queue.stop_before == NO_ID and any(
            s.queue.stop_before != NO_ID for s in self.streams
        ):
            return 0
        waits_for = stream.spec.waits_for
        if any(s.spec.stream in waits_for and self.is_slowest(s) for s in self.streams):
            return 0
        return held

    def room(self, stream: InputStream) -> int:
        """How many more tuples of a stream fit."""
        return stream.queue.room(self.held_of(stream), stream.decided_before)

    def full(self) -> list[StreamId]:
        """The source streams of which nobody sends more, or reads, for want of room."""

        def is_full(stream: InputStream) -> bool:
            least = 1 if stream.reading is None else stream.queue.reading_room
            return self.room(stream) < least

        full = [stream.spec for stream in self.streams if is_full(stream)]
        return sorted({name for spec in full for name in spec.sources or (spec.stream,)})

    def check_invariants(self) -> None:
        """Raise `InvariantViolation` when a queue, or what is known of all of them, is wrong."""
        for stream in self.streams:
            stream.queue.check_invariants()
            stream.tentative.check_invariants()
            if stream.queue.has_work != (stream.number in self._fresh):
                raise InvariantViolation(f"{stream.spec.stream}: what is fresh was not noted")
            if stream.queue.notes.are_pending and stream.number not in self._with_notes:
                raise InvariantViolation(f"{stream.spec.stream}: nobody waits for its notes")
            if stream.queue.taken_boundary_us < self.slowest_us:
                raise InvariantViolation(f"{stream.spec.stream} is behind the slowest boundary")
