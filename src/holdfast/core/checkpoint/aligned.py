"""Aligned rounds: a node cuts when every input stands at the round's marker. [CheckMate §III-A]

The nodes of a region that read nothing from it cut at the coordinator's word. They put a marker on
all edges of the region, and so does every node when it cuts; an input that stands at a marker waits
until all others do. So what a receiver processed before its cut is exactly what its senders sent
before theirs: no channel has a state, and the markers are all that a round costs beside the
checkpoints.

Inputs from outside of the region bring no markers, and are not waited for. Nor are feedback edges:
their markers may come from cuts that wait for this node's own. What is in a loop at the cut is
stored by the sender of the feedback edge, as with unaligned rounds; should its marker come before
the cut all the same, nothing behind it is processed. Beyond the paper, whose version stands still
in loops.

One round goes on at a time. A marker of a later round says that the earlier one is over.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.core.checkpoint.cut_rule import NO_ROUND, WaitingNotes
from holdfast.core.errors import RemoteProtocolError
from holdfast.core.model.notes import CheckpointMarker

if TYPE_CHECKING:
    from holdfast.core.model.ids import CheckpointId
    from holdfast.core.model.notes import StreamNote


def round_of(note: StreamNote) -> int:
    """The round of a marker. Raises `RemoteProtocolError` for any other note."""
    if not isinstance(note, CheckpointMarker):
        raise RemoteProtocolError(f"{type(note).__name__} where only markers are expected")
    return note.round


class Aligned:
    """A `CutRule`. Durable: the round of the newest cut. Volatile: the rest."""

    def __init__(self, waits_for: tuple[bool, ...]) -> None:
        """Begin before any round.

        Args:
            waits_for: Per input whether its markers are waited for: it comes from the region, and
                is no feedback edge.
        """
        self._waits_for = waits_for
        self._cut = NO_ROUND  # the round of the newest cut
        self._over = NO_ROUND  # rounds up to this one do nothing any more
        self._asked = NO_ROUND  # the newest round that is known to have begun
        self._waiting: tuple[WaitingNotes[int], ...] = tuple(WaitingNotes() for _ in waits_for)

    def asked(self, round_: int) -> None:
        """See `CutRule`. Nodes that wait for markers may be told, too; it changes nothing."""
        self._begun(round_)

    def over(self, round_: int) -> None:
        """See `CutRule`."""
        self._over = max(self._over, round_)
        self._drop()

    def noted(self, stream: int, before_id: int, note: StreamNote) -> None:
        """See `CutRule`. Raises `RemoteProtocolError` for notes of other rules."""
        round_ = round_of(note)
        if round_ <= self._done():
            return
        self._waiting[stream].add(before_id, round_)
        self._begun(round_)

    def _begun(self, round_: int) -> None:
        if round_ > max(self._asked, self._done()):
            self._asked = round_
            self._over = max(self._over, round_ - 1)
            self._drop()

    def _done(self) -> int:
        return max(self._cut, self._over)

    def _drop(self) -> None:
        """Markers of rounds that are over hold up nothing."""
        for waiting in self._waiting:
            while (first := waiting.first()) is not None and first[1] <= self._done():
                waiting.drop_first()

    def dropped(self, stream: int, from_id: int) -> None:
        """See `CutRule`."""
        self._waiting[stream].drop_from(from_id)

    def is_due(self, stands_at: tuple[int, ...]) -> bool:
        """See `CutRule`."""
        if self._asked <= self._done():
            return False
        return all(
            waiting.at(place) is not None
            for waiting, place, waits in zip(self._waiting, stands_at, self._waits_for, strict=True)
            if waits
        )

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
