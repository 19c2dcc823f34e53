"""HMNR: a cut is forced only where a Z-cycle could close. [CheckMate §III-C, HMNR]

Theory of operation. A checkpoint is useless if a Z-path leads from behind it to before it: a chain
of messages, each sent in the interval between two cuts in which the one before it was received, be
it before or after that. Every node keeps, of all members of its scope:

- a Lamport clock, which every cut raises, and the clocks of others that it receives;
- per member the newest checkpoint that it knows of;
- `taken`: whether a Z-path leads from that checkpoint to here with a checkpoint on it;
- `greater`: whether its clock may be greater than the member's;
- `sent_to`: whether it has sent to the member since its newest cut.

All but the last stand, as one note, before the tuples that were sent when they were so. A cut is
forced before tuples whose note says that

- C1: the sender's clock is ahead, and may be greater than that of somebody to whom the node has
  sent in this interval: their next checkpoint might not be later than all that lies before this
  tuple; or
- C2: the sender knows the node's newest checkpoint, and a Z-path has led from it through another
  one to this tuple: received in this interval, it would close a cycle around that one.

A pass receives before it sends. It takes in the notes that the node stands at, and stops before the
next ones; so all that it puts out is sent with the same clocks. Notes are received once, not with
every tuple: received again they would change nothing. (1. After its first receipt the clock is no
less than the note's, so C1 does not hold again. 2. C2 does not hold after the first receipt, or a
cut was made; every later cut makes the node's newest checkpoint another one.) For the same reason
it does no harm that a note counts as received although its tuple waits for the next pass.

Members are the strongly connected component of the node, or all (scope.py). Whatever goes back to a
checkpoint goes back to the clocks in it.

Departure from the paper: its testbed sends all of this with every record; here it is sent when it
has changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.core.checkpoint.cut_rule import NO_ROUND, WaitingNotes
from holdfast.core.errors import RemoteProtocolError
from holdfast.core.model.notes import CheckpointClocks

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.core.checkpoint.scope import Scope
    from holdfast.core.model.ids import CheckpointId
    from holdfast.core.model.notes import StreamNote


class HMNR:
    """A `CutRule`. Durable: `clock`, `checkpoints`, `taken`, `greater`. Volatile: the rest.

    Attributes:
        clock: The Lamport clock; never moves back but with the state.
        checkpoints: Per member the sequence of the newest known checkpoint, plus one; 0: of none.
        taken: Bits, see the module; the own one is never set.
        greater: Bits, see the module.
        forced: Cuts that no trigger wanted.
    """

    def __init__(self, scope: Scope) -> None:
        """Begin at the node's first point, a checkpoint like any other."""
        self._scope = scope
        self._own = 1 << scope.own
        self._others = ((1 << scope.members) - 1) ^ self._own
        self.clock = 1
        self.checkpoints = [0] * scope.members
        self.checkpoints[scope.own] = 1
        self.taken = self._others
        self.greater = self._others
        self._sent_to = 0  # bits: to whom tuples were sent since the newest cut
        self._is_asked = False
        self._waiting: tuple[WaitingNotes[CheckpointClocks], ...] = tuple(
            WaitingNotes() for _ in scope.inputs
        )
        self._clocks_told: list[CheckpointClocks | None] = [None] * len(scope.outputs)
        self.forced = 0

    def asked(self, round_: int = NO_ROUND) -> None:
        """See `CutRule`."""
        self._is_asked = True

    def over(self, round_: int) -> None:
        """See `CutRule`; there are no rounds."""

    def noted(self, stream: int, before_id: int, note: StreamNote) -> None:
        """See `CutRule`.

        Raises:
            RemoteProtocolError: the note is of another rule, or has another number of members.
        """
        if not isinstance(note, CheckpointClocks):
            raise RemoteProtocolError(f"{type(note).__name__} where only clocks are expected")
        if len(note.checkpoints) != self._scope.members:
            raise RemoteProtocolError(
                f"clocks of {len(note.checkpoints)} members where there are {self._scope.members}"
            )
        if self._scope.inputs[stream] >= 0:
            self._waiting[stream].add(before_id, note)

    def dropped(self, stream: int, from_id: int) -> None:
        """See `CutRule`."""
        self._waiting[stream].drop_from(from_id)

    def is_due(self, stands_at: tuple[int, ...]) -> bool:
        """See `CutRule`."""
        return self._is_asked or any(self._forces(note) for note in self._here(stands_at))

    def _here(self, stands_at: tuple[int, ...]) -> Iterator[CheckpointClocks]:
        for waiting, place in zip(self._waiting, stands_at, strict=True):
            if (note := waiting.at(place)) is not None:
                yield note

    def _forces(self, note: CheckpointClocks) -> bool:
        return self._may_be_passed(note) or self._closes_a_cycle(note)

    def _may_be_passed(self, note: CheckpointClocks) -> bool:
        """C1; see the module."""
        return note.clock > self.clock and bool(self._sent_to & note.greater)

    def _closes_a_cycle(self, note: CheckpointClocks) -> bool:
        """C2; see the module."""
        own = self._scope.own
        return note.checkpoints[own] == self.checkpoints[own] and bool(note.taken & self._own)

    def begin_pass(self, stands_at: tuple[int, ...]) -> None:
        """See `CutRule`."""
        for waiting, place in zip(self._waiting, stands_at, strict=True):
            if (note := waiting.take(place)) is not None:
                self._receive(note)

    def _receive(self, note: CheckpointClocks) -> None:
        if note.clock > self.clock:
            self.clock = note.clock
            self.greater = note.greater & self._others
        elif note.clock == self.clock:
            self.greater &= note.greater
        for member, theirs in enumerate(note.checkpoints):
            bit = 1 << member
            if bit == self._own or theirs < self.checkpoints[member]:
                continue
            if theirs > self.checkpoints[member]:
                self.checkpoints[member] = theirs
                self.taken &= ~bit
            self.taken |= note.taken & bit

    def limits(self) -> tuple[int, ...]:
        """See `CutRule`."""
        return tuple(waiting.limit() for waiting in self._waiting)

    def cut(self, checkpoint: CheckpointId, stands_at: tuple[int, ...]) -> StreamNote | None:
        """See `CutRule`."""
        self.forced += not self._is_asked
        self._is_asked = False
        self._sent_to = 0
        self.taken = self._others
        self.checkpoints[self._scope.own] = checkpoint.sequence + 1
        self._raise_clock()
        return None

    def _raise_clock(self) -> None:
        self.clock += 1
        self.greater = self._others

    def round(self) -> int:
        """See `CutRule`."""
        return NO_ROUND

    def before_output(self, output: int) -> StreamNote | None:
        """See `CutRule`."""
        member = self._scope.outputs[output]
        if member < 0:
            return None
        self._sent_to |= 1 << member
        clocks = CheckpointClocks(self.clock, tuple(self.checkpoints), self.taken, self.greater)
        if self._clocks_told[output] == clocks:
            return None
        self._clocks_told[output] = clocks
        return clocks

    def state(self) -> tuple[int, ...]:
        """See `CutRule`."""
        return (self.clock, self.taken, self.greater, *self.checkpoints)

    def restore(self, state: tuple[int, ...]) -> None:
        """See `CutRule`. The state is that of right after a cut: nothing has been sent since."""
        self.clock, self.taken, self.greater, *self.checkpoints = state
        self._sent_to = 0
        self._is_asked = False
        self._clocks_told = [None] * len(self._clocks_told)
        for waiting in self._waiting:
            waiting.clear()
