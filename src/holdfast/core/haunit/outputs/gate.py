"""A gate keeps what has been put out until what it rests on is durable. [HA §6]

Theory of operation. What is put out between `begin(n)` and `end` belongs to hold `n`: the tuples of
a pass of an arbitrary node, which must not leave before the pass is durable in its log; or those
between two cuts of a node that does not repeat, which must not leave before no recovery can go back
behind the later cut. `open_before(n)` lets out all holds with lower numbers that have ended.

The tuples themselves wait where they are: an output queue sends nothing from its `gate` on, a sink
holds them. The gate knows, per hold, the ids after it and what was promised during it, so that it
costs by the hold and not by the tuple.

Who waits for a gate must not be waited for by what opens it: 1. A node's cut is safe once its sinks
have everything from before it. 2. They get that when the gate opens. 3. The gate opens when the
cut is safe. So a sink that a gate holds counts only up to where the gate is open (`open_ids`).

Invariants: numbers and ids of holds ascend; only the newest hold may not have ended.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from holdfast.core.errors import InvariantViolation, LocalProtocolError
from holdfast.core.model.ids import BEGINNING_US

if TYPE_CHECKING:
    from collections.abc import Iterable

    from holdfast.core.model.ids import StreamId


@dataclass(slots=True)
class Hold:
    """What belongs together behind a gate.

    Attributes:
        number: Of the pass, or of the cut that ends it.
        promised: Per output stream the boundary promised last.
        next_ids: Per output stream the id after it; empty until it has ended.
        next_notes: Per output stream but sinks the number of the first note after it.
    """

    number: int
    promised: dict[StreamId, int] = field(default_factory=dict)
    next_ids: dict[str, int] = field(default_factory=dict)
    next_notes: dict[StreamId, int] = field(default_factory=dict)


class Gate:
    """The gate before all outputs of one incarnation. Volatile: all fields."""

    def __init__(self, open_ids: dict[str, int]) -> None:
        """Everything before these ids, per output stream, may leave."""
        self.open_ids = open_ids
        self._holds: deque[Hold] = deque()  # oldest first

    @property
    def is_holding(self) -> bool:
        """Whether what is put out now has to wait."""
        return bool(self._holds)

    def begin(self, number: int) -> None:
        """What is put out from now on belongs to this hold. Raises `LocalProtocolError`."""
        if self._holds and (self._holds[-1].number >= number or not self._holds[-1].next_ids):
            raise LocalProtocolError(f"hold {number} begins within {self._holds[-1].number}")
        self._holds.append(Hold(number))

    def promise(self, streams: Iterable[StreamId], boundary_us: int) -> None:
        """What is promised now is promised when the newest hold is let out."""
        self._holds[-1].promised |= dict.fromkeys(streams, boundary_us)

    def promised(self, stream: StreamId) -> int:
        """The newest boundary that waits here; `BEGINNING_US`: none. Cost: O(holds)."""
        promised = (hold.promised.get(stream, BEGINNING_US) for hold in self._holds)
        return max(promised, default=BEGINNING_US)

    def end(self, next_ids: dict[str, int], next_notes: dict[StreamId, int]) -> None:
        """The newest hold is complete: it lies before these ids and notes, per output stream."""
        self._holds[-1].next_ids = next_ids
        self._holds[-1].next_notes = next_notes

    def stretch(self, next_notes: dict[StreamId, int]) -> bool:
        """Notes have been put, within the newest hold or right behind it, with which they leave.

        Returns:
            Whether they need not wait: nothing is held.
        """
        if self._holds and self._holds[-1].next_ids:
            self._holds[-1].next_notes = next_notes
        return not self._holds

    def open_before(self, number: int) -> Hold | None:
        """Open up to a hold, exclusively.

        Returns:
            The newest hold that is open now, with all that was promised in those before it; None:
            none has become open.
        """
        opened: Hold | None = None
        promised: dict[StreamId, int] = {}
        while self._holds and self._holds[0].number < number and self._holds[0].next_ids:
            opened = self._holds.popleft()
            promised |= opened.promised
        if opened is None:
            return None
        opened.promised = promised
        self.open_ids = opened.next_ids
        return opened

    def check_invariants(self) -> None:
        """Raise `InvariantViolation` unless holds follow one another."""
        before = self.open_ids
        for position, hold in enumerate(self._holds):
            if not hold.next_ids and position < len(self._holds) - 1:
                raise InvariantViolation(f"hold {hold.number} has not ended, and is not the newest")
            if any(next_id < before.get(stream, 0) for stream, next_id in hold.next_ids.items()):
                raise InvariantViolation(f"hold {hold.number} ends before the one before it")
            before = hold.next_ids
