"""How the ids of an output stream go on from those of an earlier incarnation. [HA §3.1]

Theory of operation. With precise recovery a replacement gives its tuples the ids that they had, and
receivers drop by id what they have. With a weaker guarantee one id may stand for two tuples. Then
the stream is *rebased*: its receiver names the id that it expects, and the stream goes on there.

    CONTINUED    ids are those that earlier incarnations gave
    UNPLACED     the receiver has yet to name the id from which to number
    RENUMBERING  the same; what is kept goes on where the receiver is, too
    REBASED      numbered from where the receiver was, which may still need what came before that
    SETTLED      the same; the receiver needs nothing from before

`TRANSITIONS` has all legal moves; any other one is an error of ours. In UNPLACED and RENUMBERING
nothing is sent, no restart point is safe, and the node does not work.

Its receiver is told so, and is sent nothing until it has asked again, knowing it: a word may be
lost on the way, and what came behind it would be taken for what it was before.

A receiver that has failed as well may need again what came before `rebased_at`, which nobody can
produce as it was. It is told so (`StreamRebased`), or, where gaps are allowed, is sent nothing that
its former incarnation may have had.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from holdfast.core.errors import InvariantViolation
from holdfast.core.model.ids import BEGINNING_US, NO_ID, NOBODY, Incarnation, StreamId
from holdfast.core.recovery.guarantee import StreamRebased

if TYPE_CHECKING:
    from holdfast.core.haunit.events import SubscribeReceived


class Numbering(enum.Enum):
    """From where the ids of a stream come. See the module's theory of operation."""

    CONTINUED = "continued"
    UNPLACED = "unplaced"
    RENUMBERING = "renumbering"
    REBASED = "rebased"
    SETTLED = "settled"


class Move(enum.Enum):
    """What changes the numbering of a stream."""

    REBASE = "nothing can be put out again as it was"
    RENUMBER = "a secondary that numbers otherwise is promoted"
    PLACE = "the receiver names the id that it expects"
    SETTLE = "the receiver needs nothing from before that id"


TRANSITIONS: Final[dict[tuple[Numbering, Move], Numbering]] = {
    (Numbering.CONTINUED, Move.REBASE): Numbering.UNPLACED,
    (Numbering.CONTINUED, Move.RENUMBER): Numbering.RENUMBERING,
    (Numbering.UNPLACED, Move.REBASE): Numbering.UNPLACED,
    (Numbering.UNPLACED, Move.PLACE): Numbering.REBASED,
    (Numbering.RENUMBERING, Move.REBASE): Numbering.RENUMBERING,
    (Numbering.RENUMBERING, Move.PLACE): Numbering.REBASED,
    (Numbering.REBASED, Move.REBASE): Numbering.UNPLACED,
    (Numbering.REBASED, Move.SETTLE): Numbering.SETTLED,
    (Numbering.SETTLED, Move.REBASE): Numbering.UNPLACED,
}
"""All legal moves; docs/protocols/guarantees.md shows them."""

_WAITING: Final = (Numbering.UNPLACED, Numbering.RENUMBERING)


@dataclass(slots=True)
class Rebasing:
    """The numbering of one output stream. Volatile: all fields.

    Attributes:
        stream: Whose it is.
        state: See `Numbering`.
        rebased_at: From this id on its tuples are not those of an earlier incarnation; -1: they
            all are.
        has_before_us: Of a rebased stream: what its receiver has everything of.
        subscriber: The incarnation of the receiver's primary, as which it subscribed last.
        sent_before: Ids that have been sent to some incarnation of the receiver.
        lost_before: Up to where it is reported what the receiver has missed.
        had_before: Ids before which the receiver that subscribed last replays what others before it
            have had.
        received_before: Ids that the receiver has, of former incarnations too; -1: unknown.
    """

    stream: StreamId
    state: Numbering = Numbering.CONTINUED
    rebased_at: int = -1
    has_before_us: int = BEGINNING_US
    subscriber: Incarnation = NOBODY
    sent_before: int = 0
    lost_before: int = 0
    had_before: int = 0
    received_before: int = -1

    @property
    def has_before(self) -> int:
        """Ids before which the receiver has what former incarnations put out, as far as known."""
        return max(self.received_before, self.had_before)

    def move(self, move: Move) -> None:
        """Go on to another state. Raises `InvariantViolation` if that may not be."""
        found = TRANSITIONS.get((self.state, move))
        if found is None:
            raise InvariantViolation(f"{self.stream} is {self.state.value}, and {move.value}")
        self.state = found

    @property
    def is_placed(self) -> bool:
        """Whether it is known from where to number."""
        return self.state not in _WAITING

    @property
    def is_settled(self) -> bool:
        """Whether the receiver needs nothing from before `rebased_at`."""
        return self.state is not Numbering.REBASED

    @property
    def is_rebased(self) -> bool:
        """Whether it has been numbered from where the receiver was, this time or before."""
        return self.rebased_at >= 0

    def place(self, got: SubscribeReceived, promised_us: int, next_id: int) -> None:
        """The receiver has named the id that it expects.

        Args:
            got: What it says.
            promised_us: What this incarnation has promised it.
            next_id: What comes from here on is this incarnation's; what a checkpoint has brought
                lies before it.
        """
        self.move(Move.PLACE)
        self.subscriber = got.sender
        self.has_before_us = max(got.boundary_us, promised_us)
        self.rebased_at = next_id

    def received(self, received_before: int, needed_from: int) -> None:
        """What the receiver's primary has, and may need again."""
        self.received_before = max(self.received_before, received_before)
        if self.state is Numbering.REBASED and needed_from > self.rebased_at:
            self.move(Move.SETTLE)

    def must_tell(self, got: SubscribeReceived) -> bool:
        """Whether a subscriber has yet to say that it knows from where on tuples are others.

        One that takes whatever comes need not know it.
        """
        return self.is_rebased and got.from_id != NO_ID and not got.is_told

    def first_to_send(
        self, got: SubscribeReceived, trimmed_before: int, next_id: int, *, is_gap_allowed: bool
    ) -> int:
        """From which id on a subscriber is served.

        After amnesia a receiver that needs what came before is sent nothing that its former
        incarnation may have had.

        Raises:
            StreamRebased: It needs what came before the stream was rebased.
        """
        if got.from_id == NO_ID:
            return next_id
        if got.is_secondary or self.is_settled or got.from_id > self.rebased_at:
            return got.from_id
        if is_gap_allowed and got.sender != self.subscriber:
            return max(trimmed_before, self.sent_before)
        if got.from_id >= trimmed_before:
            return got.from_id
        raise StreamRebased(
            f"{self.stream} was rebased at {self.rebased_at}; {got.from_id} is needed again"
        )

    def lost_from(self, got: SubscribeReceived, from_id: int) -> int | None:
        """From where on the receiver has missed what comes before `from_id`; None: nothing new."""
        lost_from = max(got.from_id, self.lost_before)
        if got.is_secondary or lost_from >= from_id:
            return None
        self.lost_before = from_id
        return lost_from

    def check_invariants(self) -> None:
        """Raise `InvariantViolation` when state and fields do not fit."""
        if self.state is Numbering.CONTINUED and self.is_rebased:
            raise InvariantViolation(f"{self.stream} goes on as before from {self.rebased_at}")
        is_placed_anew = self.state in (Numbering.REBASED, Numbering.SETTLED)
        if is_placed_anew and (not self.is_rebased or self.subscriber == NOBODY):
            raise InvariantViolation(f"{self.stream} is {self.state.value}, but for nobody")
