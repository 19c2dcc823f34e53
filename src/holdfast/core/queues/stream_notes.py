"""The notes of one stream: kept by its producer, and taken in their place by its receiver.

Theory of operation. Notes and tuples of a stream are one sequence. A place in it is a tuple id and
the number of a note: everything before that id and before that number lies before the place. A note
stands before a tuple id, so whoever has the tuples and the notes can put them in their order again,
in whatever frames they came.

The producer's `KeptNotes` numbers notes, keeps them as long as the tuple behind them, and trims
them with it: a note is gone when a tuple behind it is gone. Every frame names the number of the
first note that it carries, or would carry; so a frame is refused if a note before it was lost, as
one is if a tuple was lost.

The receiver's `ComingNotes` drops what it has, by number. No tuple is handed on before the notes
that stand before it; what stands before an id is *due* once everything before that id is taken.

A stream without notes costs nothing here but a comparison of two numbers per frame.

Invariants: numbers follow one another without a gap; the ids before which notes stand never
descend.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from holdfast.core.errors import InvariantViolation, LocalProtocolError, RemoteProtocolError
from holdfast.core.model.ids import NO_ID
from holdfast.core.model.notes import PlacedNote

if TYPE_CHECKING:
    from collections.abc import Iterable

    from holdfast.core.model.ids import StreamId
    from holdfast.core.model.notes import StreamNote


class KeptNotes:
    """The notes of an output queue. Volatile: all fields; checkpoints hold those that are kept."""

    __slots__ = ("_kept", "_stream", "next_number")

    def __init__(self, stream: StreamId, next_number: int = 0) -> None:
        """The next note gets this number; none is kept."""
        self._stream = stream
        self._kept: deque[PlacedNote] = deque()
        self.next_number = next_number

    def __len__(self) -> int:
        """How many are kept."""
        return len(self._kept)

    @property
    def first_number(self) -> int:
        """The first note that is kept, or the next one."""
        return self.next_number - len(self._kept)

    def put(self, note: StreamNote, before_id: int) -> None:
        """Append a note. Raises `LocalProtocolError` if the last one stands further on."""
        if self._kept and self._kept[-1].before_id > before_id:
            raise LocalProtocolError(
                f"{self._stream}: note before {before_id}, but note {self._kept[-1].number} "
                f"stands before {self._kept[-1].before_id}"
            )
        self._kept.append(PlacedNote(self.next_number, before_id, note))
        self.next_number += 1

    def go_on_from(self, number: int) -> None:
        """The receiver expects this number: it has had notes of a former incarnation."""
        if not self._kept:
            self.next_number = max(self.next_number, number)

    def restore(self, notes: Iterable[PlacedNote]) -> None:
        """Keep again what a checkpoint has; the last one is the one before the next number."""
        self._kept = deque(notes)
        self.check_invariants()

    def trim(self, before_id: int) -> None:
        """The tuples before this id are gone, and with them the notes that stand further ahead."""
        while self._kept and self._kept[0].before_id < before_id:
            self._kept.popleft()

    def number_at(self, tuple_id: int) -> int:
        """The first note that stands before this id or a later one; O(notes kept)."""
        later = sum(note.before_id >= tuple_id for note in self._kept)
        return self.next_number - later

    def between(self, from_number: int, to_number: int, to_id: int) -> tuple[PlacedNote, ...]:
        """The notes with numbers in [from_number, to_number) that stand before `to_id` at most."""
        found: list[PlacedNote] = []
        for note in self._kept:
            if note.number >= to_number or note.before_id > to_id:
                break
            if note.number >= from_number:
                found.append(note)
        return tuple(found)

    def all(self) -> tuple[PlacedNote, ...]:
        """All that are kept."""
        return tuple(self._kept)

    def check_invariants(self) -> None:
        """Raise `InvariantViolation` unless numbers and ids follow one another."""
        before_id, number = 0, self.first_number
        for note in self._kept:
            if note.number != number or note.before_id < before_id:
                raise InvariantViolation(
                    f"{self._stream}: note {note.number} before {note.before_id} stands behind "
                    f"note {number - 1} before {before_id}"
                )
            before_id, number = note.before_id, number + 1


class ComingNotes:
    """The notes of an input queue. Volatile: all fields."""

    __slots__ = ("_pending", "_stream", "_taken", "next_number", "taken_before")

    def __init__(self, stream: StreamId, next_number: int = 0) -> None:
        """Expect this number first."""
        self._stream = stream
        self._pending: deque[PlacedNote] = deque()  # received, not taken
        self._taken: deque[PlacedNote] = deque()  # whose place may have to be gone back to
        self.next_number = next_number  # the next one expected
        self.taken_before = next_number  # the first one that has not been taken

    @property
    def are_pending(self) -> bool:
        """Whether some have come that are not taken."""
        return bool(self._pending)

    def receive(self, notes: tuple[PlacedNote, ...], next_id: int) -> None:
        """Take over what is new; what has come before is dropped by its number.

        Args:
            notes: The notes of a frame, in order. None is missing before the first of them.
            next_id: All tuples before this id have been received.

        Raises:
            RemoteProtocolError: A number is missing, or a note stands where none can.
        """
        before_id = self._pending[-1].before_id if self._pending else 0
        for note in notes:
            if note.number < self.next_number:
                continue
            if note.number > self.next_number or not before_id <= note.before_id <= next_id:
                raise RemoteProtocolError(
                    f"{self._stream}: note {note.number} before {note.before_id}, expected note "
                    f"{self.next_number} at most before {next_id}"
                )
            self._pending.append(note)
            before_id = note.before_id
            self.next_number += 1

    def skip_to(self, number: int) -> None:
        """The producer cannot send what comes before; nothing if that has been received."""
        self.next_number = max(self.next_number, number)
        if not self._pending:
            self.taken_before = self.next_number

    @property
    def next_place(self) -> int:
        """The id before which the first one stands that is not taken; `NO_ID`: there is none."""
        return self._pending[0].before_id if self._pending else NO_ID

    def take(self) -> PlacedNote:
        """The first one that is not taken. Raises `IndexError`: there is none."""
        note = self._pending.popleft()
        self._taken.append(note)
        self.taken_before = note.number + 1
        return note

    def number_at(self, tuple_id: int) -> int:
        """The first note that was taken and stands before this id or later, or the next to be.

        Whoever begins again at the tuple begins with that note. O(notes taken since `let_go`).
        """
        return self.taken_before - sum(note.before_id >= tuple_id for note in self._taken)

    def let_go(self, before_id: int) -> None:
        """Nobody begins again before this tuple."""
        while self._taken and self._taken[0].before_id < before_id:
            self._taken.popleft()

    def check_invariants(self) -> None:
        """Raise `InvariantViolation` unless numbers and ids follow one another."""
        before_id = self._taken[-1].before_id if self._taken else 0
        number = self.taken_before
        for note in self._pending:
            if note.number < number or note.before_id < before_id:
                raise InvariantViolation(f"{self._stream}: note {note.number} out of place")
            before_id, number = note.before_id, note.number + 1
        if number > self.next_number:
            raise InvariantViolation(f"{self._stream}: note {number - 1} before its time")
