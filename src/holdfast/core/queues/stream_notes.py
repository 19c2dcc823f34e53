"""The notes of one stream: kept by its producer, and taken in their place by its receiver.

Theory of operation. Notes and tuples of a stream are one sequence. A place in it is a tuple id and
the number of a note: everything before that id and before that number lies before the place. A note
stands before a tuple id, so whoever has the tuples and the notes can put them in their order again,
in whatever frames they came.

Numbers. A replacement puts out the same tuples under the same ids, but not the same notes: they say
what it, or a round, has come to since. So a note's number begins with the incarnation of the
producer that put it (`first_number_of`), and notes of a replacement have higher numbers than all
that its predecessor put. What a checkpoint holds keeps its numbers: receivers drop by number what
they have had. Behind the restart point the notes of the replacement are others, and come even where
the receiver has had the tuples; they are due at once, or behind the predecessor's that still wait.

The producer's `KeptNotes` keeps notes as long as the tuple behind them, and trims them with it.
Every frame says what its receiver must have had (`notes_before`): up to the note that was sent
last, or up to where the receiver has asked. So a frame is refused if a note before it was lost, as
one is if a tuple was lost.

A note may say that the earlier one at its place, of the same kind, is void: that one goes. So a
stream without tuples, on which markers of round after round stand at one place, keeps the last one.
Nobody misses the earlier ones, as there are gaps between numbers anyway.

The receiver's `ComingNotes` hands no tuple on before the notes that stand before it; what stands
before an id is *due* once everything before that id is taken.

A secondary that is promoted counts otherwise than its primary did. It numbers what it has kept
anew, and sends what stands from the receiver's place on: notes right there may come twice.

A stream without notes costs nothing here but a comparison of two numbers per frame.

Invariants: numbers ascend; the ids before which notes stand never descend.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from holdfast.core.errors import InvariantViolation, LocalProtocolError, RemoteProtocolError
from holdfast.core.model.ids import NO_ID
from holdfast.core.model.notes import PlacedNote

if TYPE_CHECKING:
    from collections.abc import Iterable

    from holdfast.core.model.ids import Incarnation, StreamId
    from holdfast.core.model.notes import StreamNote

_NUMBER_BITS: Final = 32
"""So many notes an incarnation may put on one stream: 2^32."""


def first_number_of(incarnation: Incarnation) -> int:
    """The number of the first note that this incarnation of a producer puts on a stream."""
    return incarnation << _NUMBER_BITS


def _incarnation_of(note: PlacedNote) -> int:
    return note.number >> _NUMBER_BITS


class KeptNotes:
    """The notes of an output queue. Volatile: all fields; checkpoints hold those that are kept."""

    __slots__ = ("_kept", "_repeats_before", "_stream", "next_number")

    def __init__(self, stream: StreamId, next_number: int = 0) -> None:
        """The next note gets this number; none is kept."""
        self._stream = stream
        self._kept: deque[PlacedNote] = deque()
        self._repeats_before = 0  # numbers below it are those of a promotion
        self.next_number = next_number

    def __len__(self) -> int:
        """How many are kept."""
        return len(self._kept)

    def put(self, note: StreamNote, before_id: int, *, replaces: bool = False) -> None:
        """Append a note.

        Args:
            note: What it says.
            before_id: Where it stands.
            replaces: Whether it makes the last one of its kind void, if that stands there, too.

        Raises:
            LocalProtocolError: The last one stands further on.
        """
        if self._kept and self._kept[-1].before_id > before_id:
            raise LocalProtocolError(
                f"{self._stream}: note before {before_id}, but note {self._kept[-1].number} "
                f"stands before {self._kept[-1].before_id}"
            )
        if replaces:
            self._void(type(note), before_id)
        self._kept.append(PlacedNote(self.next_number, before_id, note))
        self.next_number += 1

    def _void(self, kind: type[StreamNote], before_id: int) -> None:
        """Forget the note of this kind that stands here, if there is one."""
        for place in reversed(range(len(self._kept))):
            if self._kept[place].before_id != before_id:
                return
            if type(self._kept[place].note) is kind:
                del self._kept[place]
                return

    def restore(self, notes: Iterable[PlacedNote]) -> None:
        """Keep again what a checkpoint has, with the numbers that an earlier incarnation gave."""
        self._kept = deque(notes)
        self.check_invariants()

    def promote(self, incarnation: Incarnation) -> None:
        """From now on number as this incarnation, what is kept first."""
        first = self.next_number = first_number_of(incarnation)
        for note in [self._kept.popleft() for _ in range(len(self._kept))]:
            self._kept.append(replace(note, number=self.next_number))
            self.next_number += 1
        self._repeats_before = self.next_number if self.next_number > first else 0

    def trim(self, before_id: int) -> None:
        """The tuples before this id are gone, and with them the notes that stand further ahead."""
        while self._kept and self._kept[0].before_id < before_id:
            self._kept.popleft()

    def first_for(self, from_id: int, from_number: int) -> int:
        """The first one to send to a receiver that has everything before a place; O(notes kept)."""
        for note in self._kept:
            is_new = note.number >= self._repeats_before or note.before_id >= from_id
            if is_new and note.number >= from_number:
                return note.number
        return self.next_number

    def between(self, from_number: int, to_number: int, to_id: int) -> tuple[PlacedNote, ...]:
        """The notes with numbers in [from_number, to_number) that stand before `to_id` at most."""
        found: list[PlacedNote] = []
        for note in self._kept:
            if note.number >= to_number or note.before_id > to_id:
                break
            if note.number >= from_number:
                found.append(note)
        return tuple(found)

    def count_from(self, number: int) -> int:
        """How many are kept from a number on."""
        return sum(note.number >= number for note in self._kept)

    def all(self) -> tuple[PlacedNote, ...]:
        """All that are kept."""
        return tuple(self._kept)

    def check_invariants(self) -> None:
        """Raise `InvariantViolation` unless numbers ascend, and ids do not descend."""
        _check_order(self._stream, self._kept, self.next_number)


class ComingNotes:
    """The notes of an input queue. Volatile: all fields."""

    __slots__ = ("_pending", "_stream", "_taken", "next_number")

    def __init__(self, stream: StreamId, next_number: int = 0) -> None:
        """Everything before this number has been had."""
        self._stream = stream
        self._pending: deque[PlacedNote] = deque()  # received, not taken
        self._taken: deque[PlacedNote] = deque()  # the first at each place that may be gone back to
        self.next_number = next_number  # behind the last one received

    @property
    def are_pending(self) -> bool:
        """Whether some have come that are not taken."""
        return bool(self._pending)

    def waiting(self) -> tuple[PlacedNote, ...]:
        """Those that have come and are not taken: their places have not been reached."""
        return tuple(self._pending)

    def receive(self, notes: tuple[PlacedNote, ...], taken_before: int, next_id: int) -> None:
        """Take over what is new; what has come before is dropped by its number.

        Args:
            notes: The notes of a frame, in order. None is missing before the first of them.
            taken_before: All tuples before this id have been taken: a new note that stands further
                ahead is due now.
            next_id: All tuples before this id have been received.

        Raises:
            RemoteProtocolError: A note stands where none can.
        """
        for note in notes:
            if note.number < self.next_number:
                continue
            before_id = max(note.before_id, taken_before)
            if self._pending and _incarnation_of(self._pending[-1]) < _incarnation_of(note):
                before_id = max(before_id, self._pending[-1].before_id)
            if before_id > next_id or (self._pending and before_id < self._pending[-1].before_id):
                raise RemoteProtocolError(
                    f"{self._stream}: note {note.number} stands before {note.before_id}, where it "
                    f"cannot: tuples before {next_id} have come"
                )
            here = note if before_id == note.before_id else replace(note, before_id=before_id)
            self._pending.append(here)
            self.next_number = note.number + 1

    def skip_to(self, number: int) -> None:
        """The producer cannot send what comes before; nothing if that has been received."""
        self.next_number = max(self.next_number, number)

    def drop_from(self, tuple_id: int) -> None:
        """The producer has gone back to this tuple: what stands there or later may be void.

        What it has kept of that, it sends again.
        """
        while self._pending and self._pending[-1].before_id >= tuple_id:
            self.next_number = self._pending.pop().number

    def move_to(self, tuple_id: int) -> None:
        """What waits further ahead stands before this tuple instead."""
        for place, note in enumerate(self._pending):
            if note.before_id >= tuple_id:
                break
            self._pending[place] = replace(note, before_id=tuple_id)

    @property
    def next_place(self) -> int:
        """The id before which the first one stands that is not taken; `NO_ID`: there is none."""
        return self._pending[0].before_id if self._pending else NO_ID

    def take(self) -> PlacedNote:
        """The first one that is not taken. Raises `IndexError`: there is none."""
        note = self._pending.popleft()
        if not self._taken or self._taken[-1].before_id < note.before_id:
            self._taken.append(note)
        return note

    @property
    def taken_before(self) -> int:
        """All notes with lower numbers have been taken."""
        return self._pending[0].number if self._pending else self.next_number

    def number_at(self, tuple_id: int) -> int:
        """The first note that was taken and stands before this id or later, or the next to be.

        Whoever begins again at the tuple begins with that note. O(places of notes taken since
        `let_go`).
        """
        later = (note.number for note in self._taken if note.before_id >= tuple_id)
        return next(later, self.taken_before)

    def let_go(self, before_id: int) -> None:
        """Nobody begins again before this tuple."""
        while self._taken and self._taken[0].before_id < before_id:
            self._taken.popleft()

    def check_invariants(self) -> None:
        """Raise `InvariantViolation` unless numbers ascend, and ids do not descend."""
        _check_order(self._stream, self._pending, self.next_number)


def _check_order(stream: StreamId, notes: Iterable[PlacedNote], next_number: int) -> None:
    before_id, number = 0, -1
    for note in notes:
        if note.number <= number or note.number >= next_number or note.before_id < before_id:
            raise InvariantViolation(
                f"{stream}: note {note.number} before {note.before_id} stands behind note {number} "
                f"before {before_id}; the next one is {next_number}"
            )
        before_id, number = note.before_id, note.number
