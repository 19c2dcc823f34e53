"""Unaligned rounds: a node cuts as soon as it hears of the round. (Beyond [CheckMate].)

The coordinator tells all nodes of the region; whoever gets a marker first has heard by it. A marker
stands at the sender's cut, and its receiver cuts before it processes anything behind it: so nothing
is processed before a cut that was sent after one. Markers overtake what waits in queues, by lying
in front of it: a node is at its cut as soon as the frame is there, however full the queue is.

What was sent before the sender's cut and is processed after the receiver's is in flight. The sender
stores it: its output queue holds it anyway, and the receiver's acknowledgements say where its cut
was. So no channel is ever held up, and no cycle can wait for itself.

With round numbers for indices this is BCS, with the coordinator for a trigger.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.core.checkpoint.aligned import round_of
from holdfast.core.checkpoint.cut_rule import NO_ROUND, WaitingNotes
from holdfast.core.model.notes import CheckpointMarker

if TYPE_CHECKING:
    from holdfast.core.model.ids import CheckpointId
    from holdfast.core.model.notes import StreamNote


class Unaligned:
    """A `CutRule`. Durable: the round of the newest cut. Volatile: the rest."""

    def __init__(self, inputs: int) -> None:
        """Begin before any round."""
        self._cut = NO_ROUND  # the round of the newest cut
        self._over = NO_ROUND  # rounds up to this one do nothing any more
        self._asked = NO_ROUND  # the newest round that is known to have begun
        self._waiting: tuple[WaitingNotes[int], ...] = tuple(WaitingNotes() for _ in range(inputs))

    def asked(self, round_: int) -> None:
        """See `CutRule`."""
        self._asked = max(self._asked, round_)

    def over(self, round_: int) -> None:
        """See `CutRule`."""
        self._over = max(self._over, round_)
        self._drop()

    def noted(self, stream: int, before_id: int, note: StreamNote) -> None:
        """See `CutRule`. Raises `RemoteProtocolError` for notes of other rules."""
        round_ = round_of(note)
        self._waiting[stream].add(before_id, round_)
        self.asked(round_)
        self._drop()

    def _done(self) -> int:
        return max(self._cut, self._over)

    def _drop(self) -> None:
        for waiting in self._waiting:
            while (first := waiting.first()) is not None and first[1] <= self._done():
                waiting.drop_first()

    def dropped(self, stream: int, from_id: int) -> None:
        """See `CutRule`."""
        self._waiting[stream].drop_from(from_id)

    def is_due(self, stands_at: tuple[int, ...]) -> bool:
        """See `CutRule`."""
        return self._asked > self._done()

    def begin_pass(self, stands_at: tuple[int, ...]) -> None:
        """See `CutRule`; markers are taken in as they arrive."""

    def limits(self) -> tuple[int, ...]:
        """See `CutRule`."""
        return tuple(waiting.limit() for waiting in self._waiting)

    def cut(self, checkpoint: CheckpointId, stands_at: tuple[int, ...]) -> StreamNote | None:
        """See `CutRule`."""
        self._cut = self._asked
        self._drop()
        return CheckpointMarker(self._cut)

    def round(self) -> int:
        """See `CutRule`."""
        return self._cut

    def before_output(self, output: int) -> StreamNote | None:
        """See `CutRule`; nothing."""
        return None

    def state(self) -> tuple[int, ...]:
        """See `CutRule`."""
        return (self._cut,)

    def restore(self, state: tuple[int, ...]) -> None:
        """See `CutRule`."""
        (self._cut,) = state
        self._asked = self._cut
        self._over = NO_ROUND
        for waiting in self._waiting:
            waiting.clear()
